//! Operations that follow from a sort: their results, also if ranks fail, and wrong arguments.

mod failures;

use std::cmp::Reverse;

use super::refusals::{limited, used_again};
use super::*;
use ftsort_core::group::columns::KeysAndValues;
use ftsort_core::query::groups::{Aggregate, Aggregation};
use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::record::Comparator;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Query {
    ByKey,
    Argsort,
    Positions,
    Unique,
    GroupBy,
    Select,
    Quantiles,
    Top(u64),
}

const QUERIES: [Query; 8] = [
    Query::ByKey,
    Query::Argsort,
    Query::Positions,
    Query::Unique,
    Query::GroupBy,
    Query::Select,
    Query::Quantiles,
    Query::Top(17),
];

/// One rank alone has enough records.
const WANTED: [u64; 5] = [9, 0, 12, 9, 2];
/// So many that the inputs are sorted before the search.
const FRACTIONS: [f64; 14] = [
    0.5, 0.0, 1.0, 0.25, 0.1, 0.15, 0.2, 0.3, 0.35, 0.4, 0.6, 0.7, 0.8, 0.9,
];

/// A record: a key, and a number that tells equal keys apart.
type Record = (i32, u32);

const RECORD_BYTES: usize = 8;

/// The records of a rank. Many have equal keys; one rank has more records than the others.
fn records(rank: Rank) -> Vec<Record> {
    let count = 13 + 7 * (rank.0 == 1) as u32;
    let record = |index: u32| {
        let key = (index.wrapping_mul(7919) ^ rank.0.wrapping_mul(31)) % 11;
        (key as i32 - 5, 100 * rank.0 + index)
    };
    (0..count).map(record).collect()
}

fn bytes_of(records: &[Record]) -> Vec<u8> {
    let bytes = records
        .iter()
        .flat_map(|(key, number)| [key.to_ne_bytes(), number.to_ne_bytes()]);
    bytes.flatten().collect()
}

fn layout() -> Layout {
    let fields = Fields {
        record_bytes: RECORD_BYTES,
        key: KeyKind::I32 as i32,
        ..Fields::default()
    };
    Layout::new(fields).expect("a layout")
}

fn input(records: &[u8]) -> SortInput<'_> {
    SortInput {
        layout: layout(),
        stable: true,
        records,
    }
}

fn aggregates() -> Vec<Aggregate> {
    let of = |function| Aggregate::new(function, KeyKind::U32, 4, RECORD_BYTES).unwrap();
    vec![
        of(Aggregation::Sum),
        of(Aggregation::Least),
        Aggregate::COUNT,
    ]
}

/// The rows of a rank's part of an outcome: offset of the row, and its elements of all columns. Records that all ranks
/// receive have rows without an offset.
type Rows = Vec<(Option<u64>, Vec<u8>)>;

fn rows_of(sorted: &Sorted) -> Rows {
    let mut rows = Vec::new();
    for (index, block) in sorted.blocks().enumerate() {
        let columns: Vec<(&[u8], usize)> = (0..sorted.columns())
            .map(|column| sorted.column(index, column).expect("a column"))
            .collect();
        let count = columns[0].0.len() / columns[0].1;
        for row in 0..count {
            let cells = columns
                .iter()
                .flat_map(|(bytes, width)| &bytes[row * width..][..*width]);
            rows.push((Some(block.offset + row as u64), cells.copied().collect()));
        }
    }
    rows
}

/// Runs a query. `recover`: waits for failures and recovers the result before it is read.
fn run(
    query: Query,
    group: &mut SimGroup<'_>,
    rank: Rank,
    recover: &dyn Fn(&mut SimGroup<'_>, &mut Sorted) -> Result<()>,
) -> Result<Rows> {
    let records = records(rank);
    let bytes = bytes_of(&records);
    let shared = |found: Vec<u8>| {
        let found = found.chunks_exact(RECORD_BYTES);
        Ok(found.map(|record| (None, record.to_vec())).collect())
    };
    let mut sorted = match query {
        Query::ByKey => {
            let keys: Vec<i32> = records.iter().map(|(key, _)| *key).collect();
            let values: Vec<u32> = records.iter().map(|(_, value)| *value).collect();
            group.sort_by_key(KeysAndValues {
                keys: SortInput::of_keys(&keys),
                values: bytemuck::cast_slice(&values),
                value_bytes: 4,
            })?
        }
        Query::Argsort => group.argsort(input(&bytes))?,
        Query::Positions => group.positions(input(&bytes))?,
        Query::Unique => group.group_by(input(&bytes), &[Aggregate::COUNT])?,
        Query::GroupBy => group.group_by(input(&bytes), &aggregates())?,
        Query::Top(count) => group.top(input(&bytes), count)?,
        Query::Select => return shared(group.select(input(&bytes), &WANTED)?),
        Query::Quantiles => return shared(group.quantiles(input(&bytes), &FRACTIONS)?),
    };
    recover(group, &mut sorted)?;
    Ok(rows_of(&sorted))
}

/// The rows of all ranks, if these ones have no input.
fn expected_without(query: Query, ranks: usize, absent: &[Rank]) -> Rows {
    let all: Vec<Record> = Rank::all(ranks)
        .filter(|rank| !absent.contains(rank))
        .flat_map(records)
        .collect();
    // (record, position in the input), in sorted order.
    let mut order: Vec<(Record, u64)> = all.iter().copied().zip(0..).collect();
    order.sort_by_key(|((key, _), _)| *key);
    let cells = |record: &Record| bytes_of(&[*record]);
    let in_order = |rows: Vec<Vec<u8>>| (0..).map(Some).zip(rows).collect();
    match query {
        Query::ByKey => in_order(order.iter().map(|(record, _)| cells(record)).collect()),
        Query::Argsort => {
            let positions = order.iter().map(|(_, position)| position.to_ne_bytes());
            in_order(positions.map(Vec::from).collect())
        }
        Query::Positions => {
            let mut inverse = vec![0_u64; order.len()];
            for (sorted, (_, position)) in (0..).zip(&order) {
                inverse[*position as usize] = sorted;
            }
            let positions = inverse.into_iter().map(u64::to_ne_bytes);
            in_order(positions.map(Vec::from).collect())
        }
        Query::Unique | Query::GroupBy => {
            let rows = order.chunk_by(|((one, _), _), ((other, _), _)| one == other);
            let row = |group: &[(Record, u64)]| {
                let numbers = group.iter().map(|((_, number), _)| *number);
                let sum: u64 = numbers.clone().map(u64::from).sum();
                let count = (group.len() as u64).to_ne_bytes();
                let least = numbers.min().unwrap_or_default().to_ne_bytes();
                let first = cells(&group[0].0);
                match query {
                    Query::Unique => [&first[..], &count].concat(),
                    _ => [&first[..], &sum.to_ne_bytes(), &least, &count].concat(),
                }
            };
            in_order(rows.map(row).collect())
        }
        Query::Select => {
            let found = WANTED.iter().map(|at| cells(&order[*at as usize].0));
            found.map(|record| (None, record)).collect()
        }
        Query::Quantiles => {
            let total = order.len() as f64;
            let found = FRACTIONS.iter().map(|fraction| {
                let at = ((fraction * total).ceil() as usize).max(1) - 1;
                cells(&order[at].0)
            });
            found.map(|record| (None, record)).collect()
        }
        Query::Top(count) => {
            let first = order.iter().take(count as usize);
            in_order(first.map(|(record, _)| cells(record)).collect())
        }
    }
}

fn expected(query: Query, ranks: usize) -> Rows {
    expected_without(query, ranks, &[])
}

/// The rows of all survivors, in order. Rows without an offset must be the same on all ranks.
fn joined(outcomes: &[Option<Result<Rows>>]) -> Rows {
    let mut survivors = outcomes.iter().flatten().map(|outcome| {
        let rows = outcome.as_ref();
        rows.expect("the query succeeds").clone()
    });
    if let Some((None, _)) = survivors.clone().flatten().next() {
        let first = survivors.next().unwrap_or_default();
        assert!(survivors.all(|other| other == first));
        return first;
    }
    let mut rows: Rows = survivors.flatten().collect();
    rows.sort();
    rows
}

fn none_to_recover(_: &mut SimGroup<'_>, _: &mut Sorted) -> Result<()> {
    Ok(())
}

fn recovered(group: &mut SimGroup<'_>, sorted: &mut Sorted) -> Result<()> {
    group.fault_check()?;
    group.recover(sorted)
}

#[test]
fn queries_have_the_results_of_a_sorted_array() {
    for query in QUERIES.into_iter().chain([0, 1, 46, 1000].map(Query::Top)) {
        for (ranks, seed) in (1..6).zip(SEEDS) {
            // The wanted positions exist.
            let ranks = ranks.max(2);
            let config = GroupConfig {
                dense: seed % 2 == 0 && query != Query::Positions,
                ..GroupConfig::default()
            };
            let outcomes = play_group(ranks, seed, config, "", move |rank, group| {
                run(query, group, rank, &none_to_recover)
            });
            assert_eq!(
                joined(&outcomes),
                expected(query, ranks),
                "{query:?} {ranks}"
            );
        }
    }
}

/// A rank that is excluded as slow has no blocks, and another rank has two.
#[test]
fn queries_are_right_while_a_rank_is_excluded() {
    for query in QUERIES {
        for seed in SEEDS {
            let config = GroupConfig::default();
            let outcomes = play_group(4, seed, config, "3@10", move |rank, group| {
                super::exclusions::start_monitor(group)?;
                run(query, group, rank, &|group, sorted| {
                    super::redundancy::fail_in(group, 10, 3)?;
                    group.recover(sorted)
                })
            });
            assert_eq!(joined(&outcomes), expected(query, 4), "{query:?} {seed}");
        }
    }
}

/// Failures between the call and the release of a result.
#[test]
fn results_of_queries_are_recovered() {
    for query in [
        Query::ByKey,
        Query::Argsort,
        Query::Positions,
        Query::Unique,
        Query::Top(30),
    ] {
        for seed in SEEDS {
            let config = GroupConfig::default();
            let outcomes = play_group(4, seed, config, "1@10 0@11 3@12", move |rank, group| {
                run(query, group, rank, &|group, sorted| {
                    for (round, failed) in [(10, 1), (11, 0), (12, 3)] {
                        let before = addresses(sorted);
                        super::redundancy::fail_in(group, round, failed)?;
                        group.recover(&mut *sorted)?;
                        // All ranks have recovered it before the next one fails.
                        group.fault_check()?;
                        let after = addresses(sorted);
                        assert!(before.iter().all(|address| after.contains(address)));
                    }
                    Ok(())
                })
            });
            assert_eq!(joined(&outcomes), expected(query, 4), "{query:?} {seed}");
        }
    }
}

/// A reload provides the arrays as the caller passed them.
#[test]
fn inputs_of_queries_are_reloaded() {
    for query in QUERIES {
        for seed in SEEDS {
            let outcomes = super::play(3, seed, move |rank, transport, _| {
                let config = GroupConfig {
                    store: StoreChoice::Memory(0),
                    failures: Plan::parse("1@1.begin")?,
                    ..GroupConfig::default()
                };
                let reload = move |rank: Rank| {
                    let records = records(rank);
                    let keys: Vec<i32> = records.iter().map(|(key, _)| *key).collect();
                    let values: Vec<u32> = records.iter().map(|(_, value)| *value).collect();
                    let apart = [
                        bytemuck::cast_slice(&keys),
                        bytemuck::cast_slice::<_, u8>(&values),
                    ];
                    let bytes = match query {
                        Query::ByKey => apart.concat(),
                        _ => bytes_of(&records),
                    };
                    Buffer::copy_of(&bytes)
                };
                let services = Services {
                    reload: Some(Box::new(reload)),
                    ..services(rank)
                };
                let mut group = Group::new(transport, config, services)?;
                run(query, &mut group, rank, &recovered)
            });
            assert_eq!(joined(&outcomes), expected(query, 3), "{query:?} {seed}");
        }
    }
}

#[test]
fn wrong_arguments_of_queries_are_agreed_on() {
    type Call = fn(&mut SimGroup<'_>, &[u8], u64) -> Result<()>;
    let wrong_values: Call = |group, bytes, wrong| {
        group
            .sort_by_key(KeysAndValues {
                keys: input(bytes),
                values: &vec![0; bytes.len() / RECORD_BYTES * 2 + wrong as usize],
                value_bytes: 2,
            })
            .map(drop)
    };
    let wrong_fraction: Call = |group, bytes, wrong| {
        group
            .quantiles(input(bytes), &[wrong as f64 * 2.0])
            .map(drop)
    };
    let no_fraction: Call = |group, bytes, wrong| {
        let fraction = if wrong == 1 { f64::NAN } else { 0.5 };
        group.quantiles(input(bytes), &[fraction]).map(drop)
    };
    let other_top: Call = |group, bytes, wrong| group.top(input(bytes), 5 + wrong).map(drop);
    let other_positions: Call =
        |group, bytes, wrong| group.select(input(bytes), &[3 + wrong]).map(drop);
    let other_fractions: Call = |group, bytes, wrong| {
        let fraction = 0.5 - 0.25 * wrong as f64;
        group.quantiles(input(bytes), &[fraction]).map(drop)
    };
    let other_aggregates: Call = |group, bytes, wrong| {
        let aggregate = aggregates()[wrong as usize];
        group.group_by(input(bytes), &[aggregate]).map(drop)
    };
    let other_values: Call = |group, bytes, wrong| {
        let value_bytes = 2 + wrong as usize;
        group
            .sort_by_key(KeysAndValues {
                keys: input(bytes),
                values: &vec![0; bytes.len() / RECORD_BYTES * value_bytes],
                value_bytes,
            })
            .map(drop)
    };
    let other_record: Call = |group, _, wrong| match wrong {
        0 => group.sort_keys(&[1i64]).map(drop),
        _ => group.sort_keys(&[1u64]).map(drop),
    };
    let beyond: Call = |group, bytes, _| group.select(input(bytes), &[3, 1000]).map(drop);
    let other_function: Call = |group, bytes, wrong| match wrong {
        0 => group.argsort(input(bytes)).map(drop),
        _ => group.positions(input(bytes)).map(drop),
    };
    let nothing: Call = |group, _, _| group.quantiles(input(&[]), &[0.5]).map(drop);
    use Status::{Argument, PeerArgument};
    for (call, statuses_of_call, text) in [
        (
            wrong_values,
            [PeerArgument, Argument],
            "values has 27 bytes",
        ),
        (
            wrong_fraction,
            [PeerArgument, Argument],
            "fractions[0] is 2",
        ),
        (no_fraction, [PeerArgument, Argument], "fractions[0] is NaN"),
        (
            other_top,
            [Argument, Argument],
            "the function or top is not the same on all ranks",
        ),
        (
            other_positions,
            [Argument, Argument],
            "the function or positions is not the same on all ranks",
        ),
        (
            other_fractions,
            [Argument, Argument],
            "the function or fractions is not the same on all ranks",
        ),
        (
            other_aggregates,
            [Argument, Argument],
            "the function or aggregates is not the same on all ranks",
        ),
        (
            other_values,
            [Argument, Argument],
            "the function or value_bytes is not the same on all ranks",
        ),
        (
            other_record,
            [Argument, Argument],
            "record is not the same on all ranks",
        ),
        (beyond, [Argument, Argument], "positions[1] is 1000"),
        (
            other_function,
            [Argument, Argument],
            "the function is not the same on all ranks",
        ),
        (nothing, [Argument, Argument], "no rank has a record"),
    ] {
        let outcomes = play_group(2, 1, GroupConfig::default(), "", move |rank, group| {
            let bytes = bytes_of(&records(Rank(0)));
            let refused = refusal(call(group, &bytes, u64::from(rank.0)))?;
            // The group stays usable.
            assert_eq!(group.sort_keys(&[1, 2, 3])?.total(), 6);
            Err::<(), Error>(refused)
        });
        assert_eq!(statuses(&outcomes), statuses_of_call.map(Some), "{text}");
        let error = outcomes[1].as_ref().unwrap().as_ref().unwrap_err();
        assert!(error.text.contains(text), "{}", error.text);
    }
}

/// The key behind the number of a record.
fn key_behind(record: &[u8]) -> i32 {
    i32::from_ne_bytes(record[4..8].try_into().expect("four bytes"))
}

/// Layouts in descending order of the key behind the number.
fn descending_layouts() -> [Layout; 2] {
    let compare = |one: &[u8], other: &[u8]| key_behind(one).cmp(&key_behind(other));
    let fields = Fields {
        record_bytes: RECORD_BYTES,
        descending: true,
        ..Fields::default()
    };
    let of_numbers = Fields {
        key: KeyKind::I32 as i32,
        key_offset: 4,
        ..fields.clone()
    };
    let of_comparator = Fields {
        key: KeyKind::Compare as i32,
        compare: Some(Comparator::new(compare)),
        ..fields
    };
    [of_numbers, of_comparator].map(|fields| Layout::new(fields).expect("a layout"))
}

/// The records of a rank, with the key behind the number.
fn swapped(rank: Rank) -> Vec<u8> {
    let records = records(rank).into_iter();
    let swapped = records.flat_map(|(key, number)| [number.to_ne_bytes(), key.to_ne_bytes()]);
    swapped.flatten().collect()
}

#[test]
fn positions_have_the_order_of_any_layout() {
    let all: Vec<Record> = Rank::all(3).flat_map(records).collect();
    let mut order: Vec<u64> = (0..all.len() as u64).collect();
    order.sort_by_key(|position| Reverse(all[*position as usize].0));
    let mut inverse = order.clone();
    inverse.sort_by_key(|sorted| order[*sorted as usize]);
    for (layout, expected, is_inverse) in descending_layouts()
        .into_iter()
        .flat_map(|layout| [(layout.clone(), &order, false), (layout, &inverse, true)])
    {
        let outcomes = play_group(3, 1, GroupConfig::default(), "", move |rank, group| {
            let input = SortInput {
                layout: layout.clone(),
                stable: true,
                records: &swapped(rank),
            };
            let sorted = match is_inverse {
                true => group.positions(input)?,
                false => group.argsort(input)?,
            };
            Ok(rows_of(&sorted))
        });
        let rows = joined(&outcomes).into_iter();
        let found = rows.map(|(_, cells)| u64::from_ne_bytes(cells.try_into().expect("a number")));
        assert_eq!(found.collect::<Vec<u64>>(), *expected, "{is_inverse}");
    }
}

/// The samples of a search can have all records of all ranks.
#[test]
fn a_search_in_large_records_is_refused_on_all_ranks() {
    const MIB: usize = 1 << 20;
    // Each rank has its records and a copy of those of the other.
    for (limit, expected) in [(24 * MIB, Status::Memory), (40 * MIB, Status::Ok)] {
        let outcomes = play_with(2, 1, 4 * MIB, move |rank, transport, _| {
            let config = GroupConfig {
                memory_limit: if rank == Rank(1) { limit } else { 0 },
                ..GroupConfig::default()
            };
            let services = limited(rank, &MemoryBudget::new());
            let mut group = Group::new(transport, config, services)?;
            let layout = Layout::new(Fields {
                record_bytes: MIB,
                key: KeyKind::I32 as i32,
                ..Fields::default()
            });
            let records = vec![rank.0 as u8; 8 * MIB];
            let found = group.select(
                SortInput {
                    layout: layout?,
                    stable: false,
                    records: &records,
                },
                &[3],
            );
            used_again(&mut group, found)
        });
        assert_eq!(statuses(&outcomes), [Some(expected); 2]);
    }
}

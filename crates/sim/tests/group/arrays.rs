//! Sorts of many arrays in one job, and the results of the arrays.

use super::redundancy::{fail_in, whole};
use super::releases::check_lost_without_redundancy;
use super::*;

const ARRAYS: usize = 9;

/// The keys of one array of a rank. The arrays have different lengths.
fn keys(rank: Rank, array: usize) -> Vec<i32> {
    let count = (array * array + rank.index() * 5) % 23;
    let key = |index: usize| ((index * 7919 + array * 31 + rank.index() * 104_729) % 1000) as i32;
    (0..count).map(key).collect()
}

fn all_arrays(rank: Rank) -> Vec<Vec<i32>> {
    (0..ARRAYS).map(|array| keys(rank, array)).collect()
}

fn expected(ranks: &[u32]) -> Vec<Vec<i32>> {
    let array = |array| {
        let mut all: Vec<i32> = ranks
            .iter()
            .flat_map(|rank| keys(Rank(*rank), array))
            .collect();
        all.sort_unstable();
        all
    };
    (0..ARRAYS).map(array).collect()
}

fn sort_arrays(group: &mut SimGroup<'_>, arrays: &[Vec<i32>]) -> Result<Vec<Sorted>> {
    let inputs = arrays.iter().map(|keys| SortInput::of_keys(keys));
    group.sort_many(inputs.collect::<Vec<_>>())
}

/// The blocks of all ranks, put together for each array.
fn joined_arrays(outcomes: Vec<Option<Result<Vec<Blocks>>>>) -> Vec<Vec<i32>> {
    let survivors: Vec<Vec<Blocks>> = survivors(outcomes).collect();
    let array = |array: usize| {
        let blocks = survivors
            .iter()
            .map(|arrays| Some(Ok(arrays[array].clone())));
        joined(blocks.collect())
    };
    (0..ARRAYS).map(array).collect()
}

fn all_parts(results: &[Sorted]) -> Vec<Blocks> {
    results.iter().map(parts).collect()
}

#[test]
fn every_array_has_a_result_of_its_own() {
    for (seed, dense) in SEEDS.zip([false, true].into_iter().cycle()) {
        let config = GroupConfig {
            dense,
            ..GroupConfig::default()
        };
        let outcomes = play_group(3, seed, config, "", move |rank, group| {
            let results = sort_arrays(group, &all_arrays(rank))?;
            assert_eq!(group.last_run(), Some(LastRun::Sort(Method::SampleSort(1))));
            for (result, all) in results.iter().zip(expected(&[0, 1, 2])) {
                assert_eq!(result.total(), all.len() as u64);
                assert!(!dense || result.len() == 1);
            }
            Ok(all_parts(&results))
        });
        assert_eq!(joined_arrays(outcomes), expected(&[0, 1, 2]));
    }
}

/// Arrays of the same records, of which one is sorted by a short key and another one by a long key.
#[test]
fn keys_of_arrays_may_have_different_lengths() {
    const RECORD_BYTES: usize = 64;
    let short = Fields {
        record_bytes: RECORD_BYTES,
        key: KeyKind::U32 as i32,
        ..Fields::default()
    };
    let long = Fields {
        key: KeyKind::Bytes as i32,
        key_offset: 4,
        key_bytes: RECORD_BYTES - 4,
        ..short.clone()
    };
    let layouts = [short, long].map(|fields| Layout::new(fields).expect("a layout"));
    for order in [[0, 1], [1, 0]] {
        for count in [10, 1000] {
            let layouts = order.map(|index| layouts[index].clone());
            let outcomes = play_group(4, 1, GroupConfig::default(), "", move |rank, group| {
                let number = |index: usize| (index * 7919 + rank.index() * 104_729) as u32;
                let record = |index| [number(index).to_be_bytes(); RECORD_BYTES / 4];
                let records: Vec<_> = (0..count).map(record).collect();
                let inputs = layouts.iter().map(|layout| SortInput {
                    layout: layout.clone(),
                    stable: false,
                    records: records.as_flattened().as_flattened(),
                });
                let results = group.sort_many(inputs.collect::<Vec<_>>())?;
                Ok(results.iter().map(Sorted::total).collect::<Vec<_>>())
            });
            let totals: Vec<Vec<u64>> = survivors(outcomes).collect();
            assert_eq!(totals, vec![vec![4 * count as u64; 2]; 4], "{order:?}");
        }
    }
}

/// A rank that is excluded as slow has no blocks, and another rank has two of each array.
#[test]
fn arrays_are_sorted_while_a_rank_is_excluded() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "1@10", |rank, group| {
            super::exclusions::start_monitor(group)?;
            let mut results = sort_arrays(group, &all_arrays(rank))?;
            fail_in(group, 10, 1)?;
            for result in &mut results {
                group.recover(&mut *result)?;
            }
            Ok(all_parts(&results))
        });
        assert_eq!(joined_arrays(outcomes), expected(&[0, 1, 2, 3]));
    }
}

#[test]
fn arrays_are_sorted_although_ranks_fail_in_the_middle() {
    for failures in ["1@0.stored 2@1.begin", "0@1.stored", "3@2.begin 1@2.stored"] {
        for seed in SEEDS {
            let config = GroupConfig {
                store: StoreChoice::Memory(2),
                ..GroupConfig::default()
            };
            let outcomes = play_group(4, seed, config, failures, |rank, group| {
                Ok(all_parts(&sort_arrays(group, &all_arrays(rank))?))
            });
            assert_eq!(
                joined_arrays(outcomes),
                expected(&[0, 1, 2, 3]),
                "{failures} {seed}"
            );
        }
    }
}

/// The recovery of one result brings the blocks of all arrays to their places. Results are released in any order.
#[test]
fn results_of_arrays_are_recovered_and_released_in_any_order() {
    for seed in SEEDS {
        let outcomes = play_group(
            4,
            seed,
            GroupConfig::default(),
            "1@10 0@11 3@12",
            |rank, group| {
                let mut results = sort_arrays(group, &all_arrays(rank))?;
                let released = results.remove(4);
                for (round, failed) in [(10, 1), (11, 0), (12, 3)] {
                    fail_in(group, round, failed)?;
                    let mut order: Vec<&mut Sorted> = results.iter_mut().collect();
                    order.reverse();
                    for result in order {
                        let before = addresses(result);
                        group.recover(&mut *result)?;
                        let after = addresses(result);
                        assert!(before.iter().all(|address| after.contains(address)));
                    }
                }
                let mut found = all_parts(&results);
                found.insert(4, parts(&released));
                Ok(found)
            },
        );
        let mut found = joined_last(outcomes);
        let mut all = expected(&[0, 1, 2, 3]);
        // The released result was not recovered.
        found.remove(4);
        all.remove(4);
        assert_eq!(found, all, "seed {seed}");
    }
}

/// The arrays of the only survivor.
fn joined_last(outcomes: Vec<Option<Result<Vec<Blocks>>>>) -> Vec<Vec<i32>> {
    let mut survivors = outcomes.into_iter().flatten();
    let arrays = survivors
        .next()
        .expect("one rank survives")
        .expect("it succeeds");
    assert!(survivors.next().is_none());
    let records = arrays.into_iter().map(|blocks| {
        let blocks = blocks.into_iter().map(|(_, keys)| keys);
        blocks.flatten().collect()
    });
    records.collect()
}

#[test]
fn arrays_without_redundancy_are_lost_with_their_rank() {
    check_lost_without_redundancy(|rank, group| sort_arrays(group, &all_arrays(rank)));
}

#[test]
fn an_array_is_gathered_although_another_one_was_recovered() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "2@10", |rank, group| {
            let mut results = sort_arrays(group, &all_arrays(rank))?;
            fail_in(group, 10, 2)?;
            group.recover(&mut results[0])?;
            whole(group, &mut results[7])
        });
        let whole: Vec<i32> = survivors(outcomes).flatten().collect();
        assert_eq!(whole, expected(&[0, 1, 2, 3])[7], "seed {seed}");
    }
}

#[test]
fn arrays_are_reloaded_one_after_the_other() {
    for seed in SEEDS {
        let outcomes = play(3, seed, |rank, transport, _| {
            let config = GroupConfig {
                store: StoreChoice::Memory(0),
                failures: Plan::parse("1@1.begin 0@10")?,
                ..GroupConfig::default()
            };
            let reload =
                |rank: Rank| Buffer::copy_of(bytemuck::cast_slice(&all_arrays(rank).concat()));
            let services = Services {
                reload: Some(Box::new(reload)),
                ..services(rank)
            };
            let mut group = Group::new(transport, config, services)?;
            let mut results = sort_arrays(&mut group, &all_arrays(rank))?;
            fail_in(&mut group, 10, 0)?;
            results
                .iter_mut()
                .try_for_each(|result| group.recover(result))?;
            Ok(all_parts(&results))
        });
        assert_eq!(joined_arrays(outcomes), expected(&[0, 1, 2]), "seed {seed}");
    }
}

fn order(kind: KeyKind, descending: bool) -> Layout {
    let fields = Fields {
        record_bytes: 4,
        key: kind as i32,
        descending,
        ..Fields::default()
    };
    Layout::new(fields).expect("a number")
}

#[test]
fn arrays_may_have_different_orders() {
    let config = GroupConfig {
        checks: DIGESTS,
        ..GroupConfig::default()
    };
    let outcomes = play_group(3, 7, config, "2@1.stored", |rank, group| {
        let bits = [1.5_f32, -2.0, 0.25 * rank.0 as f32].map(f32::to_bits);
        let input = |layout| SortInput {
            layout,
            stable: true,
            records: bytemuck::cast_slice(&bits),
        };
        let results = group.sort_many(vec![
            input(order(KeyKind::F32, false)),
            input(order(KeyKind::U32, true)),
            input(order(KeyKind::F32, false)),
        ])?;
        let keys = |result: &Sorted| {
            let blocks = result.blocks();
            let keys = blocks.map(|block| (block.offset, block.keys::<u32>().unwrap().to_vec()));
            keys.collect::<Vec<_>>()
        };
        Ok(results.iter().map(keys).collect::<Vec<_>>())
    });
    let arrays: Vec<_> = survivors(outcomes).collect();
    let floats = [-2.0_f32, -2.0, -2.0, 0.0, 0.25, 0.5, 1.5, 1.5, 1.5];
    for array in 0..3 {
        let mut blocks: Vec<_> = arrays
            .iter()
            .flat_map(|arrays| arrays[array].clone())
            .collect();
        blocks.sort();
        let found: Vec<u32> = blocks.into_iter().flat_map(|(_, keys)| keys).collect();
        let mut bits: Vec<u32> = floats.iter().map(|float| float.to_bits()).collect();
        if array == 1 {
            bits.sort_by(|one, other| other.cmp(one));
        }
        assert_eq!(found, bits, "array {array}");
    }
}

#[test]
fn wrong_arrays_are_refused_on_all_ranks() {
    type Wrong = fn(Rank) -> Result<Vec<SortInput<'static>>>;
    let cases: [(Wrong, &str); 3] = [
        (
            |rank| {
                let mut arrays = vec![SortInput::of_keys(&[1_i32, 2]); 3];
                if rank == Rank(1) {
                    arrays[2] = SortInput::of_keys(&[1_u64]);
                }
                Ok(arrays)
            },
            "arrays[2].record.record_bytes is 8, but that of arrays[0] is 4",
        ),
        (
            |rank| {
                let mut arrays = vec![SortInput::of_keys(&[1_i32, 2]); 3];
                if rank == Rank(1) {
                    arrays[1].records = &[1, 2, 3];
                }
                Ok(arrays)
            },
            "arrays[1].records has 3 bytes",
        ),
        (
            |rank| {
                let wrong = Error::new(Status::Argument, "arrays[0]: data is NULL");
                if rank == Rank(1) {
                    Err(wrong)
                } else {
                    Ok(Vec::new())
                }
            },
            "arrays[0]: data is NULL",
        ),
    ];
    for (wrong, text) in cases {
        let outcomes = play_group(3, 2, GroupConfig::default(), "", move |rank, group| {
            let error = refusal(group.sort_many(wrong(rank)))?;
            assert_eq!(rank == Rank(1), error.text.contains(text), "{error}");
            // The group is still usable.
            assert!(group.sort_many(Vec::new())?.is_empty());
            Err::<(), _>(error)
        });
        let peer = Some(Status::PeerArgument);
        assert_eq!(statuses(&outcomes), [peer, Some(Status::Argument), peer]);
    }
}

#[test]
fn arrays_that_differ_between_ranks_are_refused() {
    let cases: [fn(Rank) -> Vec<SortInput<'static>>; 2] = [
        |rank| vec![SortInput::of_keys(&[1_i32]); 2 + rank.index() / 2],
        |rank| match rank.0 {
            1 => vec![SortInput::of_keys(&[1_i32]), SortInput::of_keys(&[1_u32])],
            _ => vec![SortInput::of_keys(&[1_i32]); 2],
        },
    ];
    for arrays in cases {
        let outcomes = play_group(3, 2, GroupConfig::default(), "", move |rank, group| {
            let error = refusal(group.sort_many(arrays(rank)))?;
            assert!(error.text.contains("array_count or the record"), "{error}");
            Err::<(), _>(error)
        });
        assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
    }
}

#[test]
fn results_of_different_arrays_are_not_recovered_together() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let mut results = sort_arrays(group, &all_arrays(rank))?;
        group.recover(&mut results[rank.index()])
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
}

#[test]
fn a_rank_that_failed_before_contributes_nothing() {
    let outcomes = play_group(3, 3, GroupConfig::default(), "1@10", |rank, group| {
        let first = sort_arrays(group, &all_arrays(rank))?;
        fail_in(group, 10, 1)?;
        drop(first);
        Ok(all_parts(&sort_arrays(group, &all_arrays(rank))?))
    });
    assert_eq!(joined_arrays(outcomes), expected(&[0, 2]));
}

//! Comparators that are no order: an error of the callback or a wrong order, the same status on all ranks, and a group
//! that stays usable.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::redundancy::{fail_in, whole};
use super::*;
use ftsort_core::query::groups::Aggregate;
use ftsort_core::sort::Splitters;
use ftsort_kernels::record::Comparator;

/// Layouts by comparators that contradict themselves. `salt` selects two of them.
pub fn layouts(salt: u32, record_bytes: usize) -> Vec<Layout> {
    let hash = move |record: &[u8]| {
        let hash = record
            .iter()
            .fold(7_u32, |hash, byte| hash * 31 % 1009 + u32::from(*byte));
        (hash * 421 + salt) % 1013
    };
    let random = move |one: &[u8], other: &[u8]| (hash(one) * hash(other) % 7 < 3).cmp(&true);
    // In a circle: less than half of the others, and greater than the other half.
    let circular =
        move |one: &[u8], other: &[u8]| ((hash(one) + 1013 - hash(other)) % 1013).cmp(&506);
    // Most records are equal to some others, and not to themselves.
    let uneven = move |one: &[u8], other: &[u8]| (hash(one) % 2).cmp(&(hash(other) % 3));
    let comparators = [
        Comparator::new(random),
        Comparator::new(circular),
        Comparator::new(uneven),
        Comparator::new(|_: &[u8], _: &[u8]| Ordering::Greater),
        Comparator::new(|_: &[u8], _: &[u8]| Ordering::Less),
    ];
    let layout = |compare| {
        let fields = Fields {
            record_bytes,
            key: KeyKind::Compare as i32,
            compare: Some(compare),
            ..Fields::default()
        };
        Layout::new(fields).expect("a layout")
    };
    comparators.into_iter().map(layout).collect()
}

type Call = fn(&mut SimGroup<'_>, SortInput<'_>) -> Result<()>;

const CALLS: [(&str, Call); 10] = [
    ("sort", |group, input| group.sort(input).map(drop)),
    ("argsort", |group, input| group.argsort(input).map(drop)),
    ("positions", |group, input| group.positions(input).map(drop)),
    ("top", |group, input| group.top(input, 37).map(drop)),
    ("select", |group, input| {
        group.select(input, &[0, 17, 90]).map(drop)
    }),
    ("quantiles", |group, input| {
        group.quantiles(input, &[0.1, 0.5, 0.9]).map(drop)
    }),
    ("group_by", |group, input| {
        group.group_by(input, &[Aggregate::COUNT]).map(drop)
    }),
    ("sort_many", |group, input| {
        group.sort_many(vec![input.clone(), input]).map(drop)
    }),
    ("sort_protected", |group, input| {
        let mut protected = group.protect(input)?;
        group.sort_protected(&mut protected, None)?;
        group.sort_protected(&mut protected, None).map(drop)
    }),
    ("verify", |group, input| {
        let layout = input.layout.clone();
        let numbers = SortInput::of_keys::<i32>(bytemuck::cast_slice(input.records));
        let sorted = group.sort(numbers)?;
        group.verify(&layout, &sorted, None).map(drop)
    }),
];

const METHODS: [Option<Method>; 6] = [
    None,
    Some(Method::SampleSort(2)),
    Some(Method::HyperQuickSort(PivotRule::Sampled)),
    Some(Method::QuickMerge(Splitters::Sampled)),
    Some(Method::QuickMerge(Splitters::Averaged)),
    Some(Method::Bitonic(Shape::Any)),
];

/// Makes a call with `count` records on each of 4 ranks, and then sorts numbers. Returns the status of the call.
fn status_of(
    call: Call,
    layout: &Layout,
    count: usize,
    config: GroupConfig,
    text: &str,
) -> Option<Status> {
    let layout = layout.clone();
    let outcomes = play_group(4, 1, config, "", move |rank, group| {
        let numbers: Vec<i32> = keys(rank).into_iter().cycle().take(count).collect();
        let input = SortInput {
            layout: layout.clone(),
            stable: false,
            records: bytemuck::cast_slice(&numbers),
        };
        let outcome = call(group, input);
        let sorted = group.sort_keys(&keys(rank))?;
        assert_eq!(sorted.total(), all_keys(4).len() as u64);
        Ok(outcome.err().map(|error| error.status))
    });
    let outcomes = outcomes
        .into_iter()
        .map(|outcome| outcome.expect("no rank fails"));
    let statuses: Vec<_> = outcomes.collect::<Result<_>>().expect(text);
    assert!(
        statuses.windows(2).all(|pair| pair[0] == pair[1]),
        "{text}: {statuses:?}"
    );
    statuses[0]
}

#[test]
fn comparators_that_are_no_order_are_errors_of_all_ranks() {
    let (mut refused, mut accepted) = (0, 0);
    for (name, call) in CALLS {
        for (salt, count) in [(0, 100), (1, 60), (2, 1500)] {
            for (number, layout) in layouts(salt, 4).iter().enumerate() {
                for (method, dense) in METHODS.into_iter().zip([false, true].into_iter().cycle()) {
                    let config = GroupConfig {
                        method,
                        dense,
                        ..GroupConfig::default()
                    };
                    let text = format!("{name}, {method:?}, comparator {number}, {count} records");
                    match status_of(call, layout, count, config, &text) {
                        None => accepted += 1,
                        Some(Status::Callback) => refused += 1,
                        Some(other) => panic!("{text}: {other:?}"),
                    }
                }
            }
        }
    }
    assert!(refused > 0 && accepted > 0, "{refused} {accepted}");
}

/// Sorts on 4 ranks, of which one fails then, and gathers the result while the comparator answers otherwise. Returns the
/// status of the gather on the survivors.
fn gathered_with_other_answers(failed: u32, answer: fn(Ordering) -> Ordering) -> Status {
    let outcomes = play_group(
        4,
        1,
        GroupConfig::default(),
        &format!("{failed}@10"),
        move |rank, group| {
            let changed = Arc::new(AtomicBool::new(false));
            let is_changed = Arc::clone(&changed);
            let compare = Comparator::new(move |one: &[u8], other: &[u8]| {
                let order = one.cmp(other);
                match is_changed.load(Relaxed) {
                    true => answer(order),
                    false => order,
                }
            });
            let fields = Fields {
                record_bytes: 4,
                key: KeyKind::Compare as i32,
                compare: Some(compare),
                ..Fields::default()
            };
            let numbers: Vec<u32> = (0..300_u32).map(|at| at * 7919 + rank.0).collect();
            let mut sorted = group.sort(SortInput {
                layout: Layout::new(fields)?,
                stable: false,
                records: bytemuck::cast_slice(&numbers),
            })?;
            fail_in(group, 10, failed)?;
            changed.store(true, Relaxed);
            let received = whole(group, &mut sorted);
            changed.store(false, Relaxed);
            // The group stays usable.
            let survivors = Rank::all(4).filter(|rank| rank.0 != failed);
            let all: usize = survivors.map(|rank| keys(rank).len()).sum();
            assert_eq!(group.sort_keys(&keys(rank))?.total(), all as u64);
            received
        },
    );
    let statuses: Vec<Status> = statuses(&outcomes).into_iter().flatten().collect();
    assert!(
        statuses.len() == 3 && statuses.iter().all(|status| *status == statuses[0]),
        "{statuses:?}"
    );
    statuses[0]
}

/// Rebuilt blocks that leave a gap, overlap others or are beyond the last record.
#[test]
fn blocks_that_do_not_follow_one_another_are_corrupt() {
    let answers: [fn(Ordering) -> Ordering; 3] =
        [Ordering::reverse, |_| Ordering::Less, |_| Ordering::Greater];
    for failed in [0, 1, 3] {
        let found = answers.map(|answer| gathered_with_other_answers(failed, answer));
        assert_eq!(found, [Status::Corrupt; 3], "rank {failed}");
    }
}

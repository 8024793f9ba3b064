//! Errors and arguments of one rank alone, of which all ranks learn.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::refusals::used_again;
use super::*;
use ftsort_core::group::Verification;
use ftsort_core::query::groups::Aggregate;
use ftsort_kernels::record::Comparator;

type Call = fn(&mut SimGroup<'_>, SortInput<'_>) -> Result<()>;

/// A layout of numbers with a comparator that fails on rank 1 from one of its calls on.
fn failing_at(rank: Rank, at: usize) -> Layout {
    let calls = AtomicUsize::new(0);
    let compare = move |one: &[u8], other: &[u8]| {
        let fails = calls.fetch_add(1, Ordering::Relaxed) >= at && rank == Rank(1);
        assert!(!fails, "the comparator fails");
        one.cmp(other)
    };
    let fields = Fields {
        record_bytes: 4,
        key: KeyKind::Compare as i32,
        compare: Some(Comparator::new(compare)),
        ..Fields::default()
    };
    Layout::new(fields).expect("a layout")
}

/// Lets the comparator of rank 1 fail from each of its calls on. Returns how many did, or the first error.
fn failing_comparators(call: Call) -> std::result::Result<usize, String> {
    let (mut failed, mut at) = (0, 0);
    loop {
        let outcomes = try_play(3, (1, &[]), move |rank, mpi, _| {
            let mut group = Group::new(transport(mpi), GroupConfig::default(), services(rank))?;
            let keys = keys(rank);
            let input = SortInput {
                layout: failing_at(rank, at),
                stable: false,
                records: bytemuck::cast_slice(&keys),
            };
            let called = call(&mut group, input);
            let status = called.err().map(|error| error.status);
            used_again(&mut group, Ok(())).map(|()| status)
        })?;
        let outcomes = outcomes.into_iter().flatten();
        let found: Vec<Option<Status>> = outcomes
            .collect::<Result<_>>()
            .map_err(|error| format!("call {at}: {error}"))?;
        match found[..] {
            [None, None, None] => return Ok(failed),
            [
                Some(Status::Callback),
                Some(Status::Callback),
                Some(Status::Callback),
            ] => failed += 1,
            _ => return Err(format!("call {at}: {found:?}")),
        }
        at += 1 + at / 32;
    }
}

#[test]
fn all_ranks_learn_that_a_comparator_failed_on_one() {
    let calls: [(Call, Mutant); 2] = [
        (
            |group, input| group.select(input, &[0, 17, 90]).map(drop),
            Mutant::SearchEndNotAgreedOn,
        ),
        (
            |group, input| group.group_by(input, &[Aggregate::COUNT]).map(drop),
            Mutant::SummariesNotAgreedOn,
        ),
    ];
    for (call, mutant) in calls {
        let failed = failing_comparators(call);
        assert!(
            failed.as_ref().is_ok_and(|failed| *failed > 20),
            "{failed:?}"
        );
        let found = with_mutant(mutant, || {
            std::panic::catch_unwind(|| failing_comparators(call))
        });
        assert!(!matches!(found, Ok(Ok(_))), "{mutant:?}");
    }
}

/// Rank 0 wants a stable sort, and the others do not. Returns the statuses.
fn sorts_of_different_stability(many: bool) -> Vec<Option<Status>> {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", move |rank, group| {
        let keys = keys(rank);
        let input = SortInput {
            stable: rank == Rank(0),
            ..SortInput::of_keys(&keys)
        };
        let sorted = match many {
            true => group.sort_many(vec![input]).map(drop),
            false => group.sort(input).map(drop),
        };
        used_again(group, sorted)
    });
    statuses(&outcomes)
}

#[test]
fn sorts_of_different_stability_are_refused() {
    let refused = [Some(Status::Argument); 3];
    for many in [false, true] {
        assert_eq!(sorts_of_different_stability(many), refused);
    }
    let found = || sorts_of_different_stability(false);
    let found = with_mutant(Mutant::StabilityNotCompared, found);
    assert_ne!(found, refused);
}

/// Rank 0 verifies another result than the other ranks. Returns the statuses.
fn different_results_verified() -> Vec<Option<Status>> {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let keys = keys(rank);
        let [one, other] = [group.sort_keys(&keys)?, group.sort_keys(&keys)?];
        let result = if rank == Rank(0) { &one } else { &other };
        let layout = SortInput::of_keys(&keys).layout;
        let found = group.verify(&layout, result, None);
        used_again(group, found.map(drop))
    });
    statuses(&outcomes)
}

#[test]
fn results_of_different_sorts_are_not_verified_as_one() {
    let refused = [Some(Status::Argument); 3];
    assert_eq!(different_results_verified(), refused);
    let found = with_mutant(Mutant::ResultsNotCompared, different_results_verified);
    assert_ne!(found, refused);
}

#[test]
fn parts_of_records_to_verify_are_refused() {
    for (input, part) in [(Some(7), 8), (None, 12)] {
        let outcomes = play_group(3, 1, GroupConfig::default(), "", move |rank, group| {
            let bytes = [0_u64; 2];
            let bytes: &[u8] = bytemuck::cast_slice(&bytes);
            let is_wrong = rank == Rank(1);
            let found = group.verify_checked(Ok(Verification {
                layout: SortInput::of_keys::<u64>(&[]).layout,
                parts: vec![(Node(rank.0), &bytes[..if is_wrong { part } else { 8 }])],
                input: input.map(|length| &bytes[..if is_wrong { length } else { 8 }]),
                total: None,
                id: None,
            }));
            used_again(group, found.map(drop))
        });
        use Status::{Argument, PeerArgument};
        let refused = [Some(PeerArgument), Some(Argument), Some(PeerArgument)];
        assert_eq!(statuses(&outcomes), refused);
    }
}

#[test]
fn a_bitonic_merge_with_spares_is_refused() {
    let config = GroupConfig {
        method: Some(Method::Bitonic(Shape::Bitonic)),
        spares: 1,
        ..GroupConfig::default()
    };
    let outcomes = play_group(5, 1, config, "", |rank, group| {
        let keys: &[i32] = if rank == Rank(4) { &[] } else { &[1, 2] };
        let error = refusal(group.sort_keys(keys))?;
        assert!(error.text.contains("config.spares is 1"), "{error}");
        group.set_method(None)?;
        Err::<(), Error>(error)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 5]);
}

/// Ranks that receive all small inputs cut them by samples.
#[test]
fn small_sorts_have_dense_results_too() {
    let config = GroupConfig {
        dense: true,
        ..GroupConfig::default()
    };
    let outcomes = play_group(3, 1, config, "", |rank, group| {
        let count = [500, 3000, 1500][rank.index()];
        let key = |index: i32| index.wrapping_mul(1_640_531_527) ^ rank.0 as i32;
        let keys: Vec<i32> = (0..count).map(key).collect();
        let sorted = group.sort_keys(&keys)?;
        Ok(sorted.blocks().map(|block| block.records.len() / 4).sum())
    });
    let counts: Vec<usize> = survivors(outcomes).collect();
    assert!(
        counts.iter().all(|count| [1666, 1667].contains(count)),
        "{counts:?}"
    );
}

//! Sorts of small inputs, which every rank receives, or samples of them, with wrong arguments and failures at once.

use super::redundancy::whole;
use super::*;
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::test_size::sized;

type Sort = fn(&mut SimGroup<'_>) -> Result<u64>;

/// Sorts of records that differ from those of the other ranks: in their size, and in their kind alone.
const OTHERS: [Sort; 2] = [
    |group| Ok(group.sort_keys(&[3_u64, 1, 2])?.total()),
    |group| Ok(group.sort_keys(&[3.5_f32, -1.5, 2.5])?.total()),
];

/// Lets a rank with other records than those of the other ranks fail at each of its steps. Returns the first error.
fn sorted_without_other_records(seed: u64, other: Sort) -> Option<String> {
    for step in 1.. {
        let outcomes = try_play(3, (seed, &[crash(1, step)]), move |rank, mpi, _| {
            let mut group = Group::new(transport(mpi), GroupConfig::default(), services(rank))?;
            let had_failed = group.members().is_faulty(Rank(1));
            let total = match rank {
                Rank(1) => other(&mut group),
                _ => group.sort_keys(&keys(rank)).map(|sorted| sorted.total()),
            };
            let status = total
                .as_ref()
                .err()
                .map_or(Status::Ok, |error| error.status);
            Result::Ok((had_failed, status, total.unwrap_or_default()))
        });
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(text) => return Some(format!("seed {seed} step {step}: {text}")),
        };
        if outcomes[1].is_some() {
            break;
        }
        let is_right = |outcome: &Result<(bool, Status, u64)>| {
            matches!(
                outcome,
                Ok((true, Status::Ok, 200)) | Ok((false, Status::Argument | Status::DataLost, _))
            )
        };
        let survivors: Vec<_> = outcomes.into_iter().flatten().collect();
        if !survivors.iter().all(is_right) || survivors[0] != survivors[1] {
            return Some(format!("seed {seed} step {step}: {survivors:?}"));
        }
    }
    None
}

#[test]
fn records_of_a_failed_rank_with_another_layout_are_not_used() {
    for other in OTHERS {
        for seed in SEEDS {
            assert_eq!(sorted_without_other_records(seed, other), None);
        }
        let fails = |seed| {
            let found = std::panic::catch_unwind(|| sorted_without_other_records(seed, other));
            !matches!(found, Ok(None))
        };
        let is_detected = with_mutant(Mutant::GatheredOfOtherJobUsed, || {
            SEEDS.into_iter().any(fails)
        });
        assert!(is_detected);
    }
}

/// Lets a rank fail at each of its steps while two other ranks have wrong arguments. Returns whether each of these reports its
/// own.
fn wrong_arguments_are_reported(seed: u64) -> bool {
    for step in 1.. {
        let outcomes = try_play(4, (seed, &[crash(3, step)]), |rank, mpi, _| {
            let mut group = Group::new(transport(mpi), GroupConfig::default(), services(rank))?;
            let is_wrong = [Rank(1), Rank(2)].contains(&rank);
            let input = SortInput {
                records: &[0; 8][..if is_wrong { 7 } else { 8 }],
                ..SortInput::of_keys::<i32>(&[])
            };
            group.sort(input).map(drop)
        });
        let mut found = statuses(&outcomes.expect("no rank hangs"));
        let last = found.pop().flatten();
        use Status::{Argument, PeerArgument};
        if found != [PeerArgument, Argument, Argument].map(Some) {
            return false;
        }
        if last.is_some() {
            break;
        }
    }
    true
}

#[test]
fn a_failure_does_not_hide_a_wrong_argument() {
    let are_reported = || (1..60).all(wrong_arguments_are_reported);
    assert!(are_reported());
    assert!(!with_mutant(Mutant::RefusalOfGatherForgotten, are_reported));
}

/// The numbers of records of inputs of which the second one is given to all ranks as a whole, and the others as samples.
const COUNTS: [usize; 3] = [1500, 400, 3000];

fn many_keys(rank: Rank) -> Vec<i32> {
    let mut draw = SplitMix::new(u64::from(rank.0));
    let count = COUNTS[rank.index()];
    (0..count).map(|_| draw.below(1000) as i32).collect()
}

/// Lets a rank fail at each of its steps while inputs are divided by samples. Returns the first error.
fn divided_inputs_with_a_failure(seed: u64, fails: Rank) -> Option<String> {
    let mut expected: Vec<i32> = (0..3).map(Rank).flat_map(many_keys).collect();
    expected.sort_unstable();
    for step in 1.. {
        let outcomes = try_play(
            3,
            (seed, &[crash(fails.index(), step)]),
            move |rank, mpi, _| {
                let mut group = Group::new(transport(mpi), GroupConfig::default(), services(rank))?;
                let had_failed = group.members().is_faulty(fails);
                let sorted = group.sort_keys(&many_keys(rank));
                let status = (sorted.as_ref().err()).map_or(Status::Ok, |error| error.status);
                let records = match sorted {
                    Ok(mut sorted) => whole(&mut group, &mut sorted)?,
                    Err(_) => Vec::new(),
                };
                Result::Ok((had_failed, status, records))
            },
        );
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(text) => return Some(format!("seed {seed} step {step}: {text}")),
        };
        let is_over = outcomes[fails.index()].is_some();
        let survivors = outcomes.into_iter().flatten();
        let survivors: Result<Vec<_>> = survivors.collect();
        let Ok(survivors) = survivors else {
            return Some(format!("seed {seed} step {step}: {survivors:?}"));
        };
        let is_right = |(had_failed, status, records): &(bool, Status, Vec<i32>)| match status {
            Status::Ok => *had_failed || records.is_empty() || *records == expected,
            Status::DataLost => true,
            _ => false,
        };
        let is_same = survivors.windows(2).all(|pair| pair[0].1 == pair[1].1);
        if !is_same || !survivors.iter().all(is_right) {
            let statuses: Vec<Status> = survivors.iter().map(|survivor| survivor.1).collect();
            return Some(format!("seed {seed} step {step}: {statuses:?}"));
        }
        if is_over {
            break;
        }
    }
    None
}

#[test]
fn inputs_that_are_divided_by_samples_are_sorted_in_spite_of_a_failure() {
    for seed in SEEDS.take(sized(1, 3)) {
        for fails in (0..3).map(Rank) {
            assert_eq!(divided_inputs_with_a_failure(seed, fails), None);
        }
    }
    for mutant in [Mutant::HoldersGetSamples, Mutant::SizesOfPiecesIgnored] {
        let is_wrong = || divided_inputs_with_a_failure(1, Rank(2)).is_some();
        assert!(with_mutant(mutant, is_wrong), "{mutant:?}");
    }
}

/// The samples have whole keys: the inputs are small enough to be gathered, but not their samples.
#[test]
fn inputs_with_samples_too_long_for_all_ranks_are_sorted() {
    const KEY: usize = 200;
    const RECORDS: usize = 255;
    let records = |rank: Rank| {
        let mut draw = SplitMix::new(u64::from(rank.0));
        let bytes = (0..RECORDS * KEY).map(move |_| draw.below(256) as u8);
        bytes.collect::<Vec<u8>>()
    };
    // A message can be longer than an input.
    let outcomes = play_with(8, 1, 1 << 20, move |rank, transport, _| {
        let services = Services {
            processors: 8,
            ..services(rank)
        };
        let mut group = Group::new(transport, GroupConfig::default(), services)?;
        let layout = Layout::new(Fields {
            record_bytes: KEY,
            key_bytes: KEY,
            key: KeyKind::Bytes as i32,
            ..Fields::default()
        });
        let sorted = group.sort(SortInput {
            layout: layout?,
            stable: false,
            records: &records(rank),
        })?;
        let blocks = sorted.blocks();
        Ok(blocks
            .map(|block| block.records.to_vec())
            .collect::<Vec<_>>()
            .concat())
    });
    let sorted: Result<Vec<Vec<u8>>> = outcomes.into_iter().flatten().collect();
    let all: Vec<u8> = Rank::all(8).flat_map(records).collect();
    let mut expected: Vec<&[u8]> = all.chunks(KEY).collect();
    expected.sort_unstable();
    assert!(sorted.expect("survivors succeed").concat() == expected.concat());
}

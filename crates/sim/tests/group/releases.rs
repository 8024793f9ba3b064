//! Results that some ranks have released before others have learned that all may do so, and results without redundancy.

use super::named::World;
use super::redundancy::fail_in;
use super::*;

/// One rank fails at every step of the documented loop that writes a result, also after it has released the result. Returns
/// the first loss.
fn lost_after_a_release(seed: u64) -> Option<String> {
    for step in 1.. {
        let world = World::default();
        let failures = [crash(0, step)];
        let outcomes = try_play(3, (seed, &failures), move |rank, mpi, handle| {
            let config = GroupConfig {
                method: Some(Method::HyperQuickSort(PivotRule::Sampled)),
                ..world.config(&handle)
            };
            let mut group = Group::new(transport(mpi), config, services(rank))?;
            let mut sorted = match group.sort_keys(&keys(rank)) {
                // The rank has failed before its input was in a file.
                Err(error) if error.status == Status::DataLost => return Ok(()),
                sorted => sorted?,
            };
            group.recover(&mut sorted)?;
            loop {
                let (_, failures) = group.agree(1)?;
                if failures == 0 {
                    break;
                }
                group.recover(&mut sorted)?;
            }
            drop(sorted);
            group.agree(1)?;
            group.fault_check().map(drop)
        });
        let outcomes = outcomes.unwrap_or_else(|text| panic!("step {step}: {text}"));
        let is_over = outcomes[0].is_some();
        for outcome in outcomes.into_iter().flatten() {
            if let Err(error) = outcome {
                return Some(format!("step {step}: {error}"));
            }
        }
        if is_over {
            return None;
        }
    }
    None
}

#[test]
fn a_rank_that_has_released_its_result_leaves_its_files_to_the_others() {
    let found = || (1..4).find_map(lost_after_a_release);
    assert_eq!(found(), None);
    assert!(with_mutant(Mutant::ReleasedFilesRemovedAtOnce, found).is_some());
}

/// The links of rank 4 break at every step of a program in which it then gives up its result and its group, since too few
/// ranks are left. Returns the first error of the others.
fn lost_after_a_partition(seed: u64) -> Option<String> {
    for step in 1.. {
        let world = World::default();
        let failures = [Failure {
            mode: FailureMode::Partition,
            ..crash(4, step)
        }];
        let outcomes = try_play(5, (seed, &failures), move |rank, mpi, handle| {
            let config = GroupConfig {
                min_survivors: 4,
                ..world.config(&handle)
            };
            let mut group = Group::new(transport(mpi), config, services(rank))?;
            let mut sorted = match group.sort_keys(&keys(rank)) {
                // The links broke before the input was in a file.
                Err(error) if error.status == Status::DataLost => return Ok(()),
                sorted => sorted?,
            };
            // Rank 4 leaves here, and removes no files.
            for _ in 0..3 {
                group.agree(1)?;
            }
            group.recover(&mut sorted)
        });
        let mut outcomes = outcomes.unwrap_or_else(|text| panic!("step {step}: {text}"));
        let last = outcomes.pop().flatten();
        for outcome in outcomes.into_iter().flatten() {
            if let Err(error) = outcome {
                return Some(format!("step {step}: {error}"));
            }
        }
        if last == Some(Ok(())) {
            return None;
        }
    }
    None
}

#[test]
fn a_rank_that_is_set_apart_leaves_its_files_to_the_others() {
    assert_eq!((1..6).find_map(lost_after_a_partition), None);
}

/// A result may outlive its group, which may end without an agreement.
#[test]
fn a_result_that_is_released_after_its_group_leaves_no_files() {
    let world = World::default();
    let of_ranks = world.clone();
    let blocks = |world: &World| {
        let names = world.names().into_iter();
        names.filter(|name| name.contains("-v")).count()
    };
    let outcomes = try_play(3, (1, &[]), move |rank, mpi, handle| {
        let config = GroupConfig {
            method: Some(Method::HyperQuickSort(PivotRule::Sampled)),
            ..of_ranks.config(&handle)
        };
        let mut group = Group::new(transport(mpi), config, services(rank))?;
        let sorted = group.sort_keys(&keys(rank))?;
        drop(group);
        let before = blocks(&of_ranks);
        drop(sorted);
        Result::Ok(before > 0)
    });
    assert_eq!(survivors(outcomes.unwrap()).collect::<Vec<_>>(), [true; 3]);
    assert_eq!(blocks(&world), 0);
}

/// Checks that results of groups without redundancy are lost with rank 1.
pub fn check_lost_without_redundancy(make: fn(Rank, &mut SimGroup<'_>) -> Result<Vec<Sorted>>) {
    for (store, release_after_run) in [(0, false), (1, true)] {
        let config = GroupConfig {
            store: StoreChoice::Memory(store),
            release_after_run,
            ..GroupConfig::default()
        };
        let outcomes = play_group(3, 5, config, "1@10", move |rank, group| {
            let mut results = make(rank, group)?;
            results
                .iter_mut()
                .try_for_each(|result| group.recover(result))?;
            fail_in(group, 10, 1)?;
            for result in &mut results {
                let error = refusal(group.recover(result))?;
                assert_eq!(error.status, Status::DataLost);
                assert!(group.lost_ranks().iter().eq([Rank(1)]));
            }
            Ok(())
        });
        let checked = Some(Status::Ok);
        assert_eq!(statuses(&outcomes), [checked, None, checked], "{store}");
    }
}

#[test]
fn a_result_without_redundancy_is_lost_with_its_rank() {
    check_lost_without_redundancy(|rank, group| Ok(vec![group.sort_keys(&keys(rank))?]));
}

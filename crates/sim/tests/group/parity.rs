//! Groups with parity in place of copies: results, protected inputs, refusals, and the warning about shared hosts.

use std::cell::Cell;

use super::redundancy::{ONE_AFTER_ANOTHER, fail_in, recover_repeatedly};
use super::states::Fixed;
use super::*;
use ftsort_core::group::{LogLevel, ParityShape};
use ftsort_kernels::memory::MemoryBudget;

pub fn with_parity(shares: usize, group: usize) -> GroupConfig {
    GroupConfig {
        store: StoreChoice::Parity(ParityShape { shares, group }),
        ..GroupConfig::default()
    }
}

#[test]
fn a_result_is_recovered_by_parity_down_to_one_rank() {
    let methods = [
        Method::SampleSort(1),
        Method::SampleSort(2),
        Method::HyperQuickSort(PivotRule::Sampled),
        Method::Bitonic(Shape::Any),
    ];
    for (method, seed) in methods.into_iter().zip(SEEDS) {
        let config = GroupConfig {
            method: Some(method),
            ..with_parity(1, 8)
        };
        let outcomes = play_group(4, seed, config, ONE_AFTER_ANOTHER, |rank, group| {
            let mut sorted = group.sort_keys(&keys(rank))?;
            recover_repeatedly(group, &mut sorted)
        });
        assert_eq!(outcomes.iter().flatten().count(), 1);
        assert_eq!(joined(outcomes), all_keys(4), "{method:?}");
    }
}

#[test]
fn a_protected_input_survives_failures_between_its_sorts() {
    for seed in SEEDS {
        let checks = DataChecks {
            digest: seed % 2 == 0,
            ..DataChecks::default()
        };
        let config = GroupConfig {
            checks,
            ..with_parity(1, 3)
        };
        let outcomes = play_group(5, seed, config, ONE_AFTER_ANOTHER, |rank, group| {
            let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
            for (round, failed) in [(10, 1), (11, 0), (12, 3)] {
                group.sort_protected(&mut input, None)?;
                fail_in(group, round, failed)?;
            }
            let sorted = group.sort_protected(&mut input, None)?;
            Ok(parts(&sorted))
        });
        assert_eq!(joined(outcomes), all_keys(5), "seed {seed}");
    }
}

/// Ranks 1 and 2 fail before an update, which loads their new records in place of the lost old ones. Rank 0 refuses this of its
/// allocations in the update, and the callback refuses the new records. Returns the status of the update, and the number of
/// records of the next sort.
fn sort_after_a_refused_update(rank: Rank, mpi: SimMpi<'_>, action: u32) -> Result<(Status, u64)> {
    let budget = MemoryBudget::default();
    let refuses = Rc::new(Cell::new(true));
    let refused = Rc::clone(&refuses);
    let services = Services {
        budget: Box::new(Fixed(budget.clone())),
        reload: Some(Box::new(move |rank: Rank| match refused.get() {
            true => Err(Error::new(Status::Callback, "the test refuses")),
            false => Buffer::copy_of(bytemuck::cast_slice(&keys(rank))),
        })),
        ..services(rank)
    };
    let config = GroupConfig {
        failures: Plan::parse("1@10 2@10")?,
        ..with_parity(1, 8)
    };
    let mut group = Group::new(transport(mpi), config, services)?;
    let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
    group.inject(10)?;
    if rank == Rank(0) {
        let number = budget.actions() + action;
        budget.refuse(number..number + 1);
    }
    let error = refusal(group.update(&mut input, &[]))?;
    budget.refuse(0..0);
    refuses.set(false);
    let sorted = group.sort_protected(&mut input, None)?;
    Ok((error.status, sorted.total()))
}

#[test]
fn the_old_inputs_of_failed_ranks_are_needed_after_a_refused_update() {
    let mut refused = Vec::new();
    for action in 1..30 {
        let outcomes = try_play(4, (1, &[]), move |rank, mpi, _| {
            sort_after_a_refused_update(rank, mpi, action)
        });
        let found: Vec<_> = survivors(outcomes.unwrap()).collect();
        let (status, _) = found[0];
        assert_eq!(found, [(status, 400); 2], "action {action}");
        refused.push(status);
    }
    assert!(
        refused.contains(&Status::Memory) && refused.contains(&Status::Callback),
        "{refused:?}"
    );
}

/// Ranks 1 and 2 fail before an update, in which a callback loads their new records in place of the lost old ones. No data
/// are lost then.
#[test]
fn an_update_that_succeeds_after_old_inputs_were_lost_names_no_rank() {
    let outcomes = play(4, 1, |rank, transport, _| {
        let config = GroupConfig {
            failures: Plan::parse("1@10 2@10")?,
            ..with_parity(1, 8)
        };
        let mut group = Group::new(transport, config, reloading(rank))?;
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        group.inject(10)?;
        group.update(&mut input, bytemuck::cast_slice(&keys(rank)))?;
        assert!(group.members().is_faulty(Rank(1)) && group.members().is_faulty(Rank(2)));
        let lost: Vec<Rank> = group.lost_ranks().iter().collect();
        assert_eq!(lost, []);
        Ok(parts(&group.sort_protected(&mut input, None)?))
    });
    assert_eq!(joined(outcomes), all_keys(4));
}

/// Rank 1 fails before an update, and rank 0 at this step. Returns the number of records of the next sort if the update is
/// `Status::DataLost`, or None if rank 0 has not failed.
fn records_after_lost_update(step: u32) -> Option<Option<u64>> {
    let outcomes = try_play(3, (1, &[crash(0, step)]), |rank, mpi, _| {
        let config = GroupConfig {
            failures: Plan::parse("1@10")?,
            ..with_parity(1, 8)
        };
        let mut group = Group::new(transport(mpi), config, services(rank))?;
        let Ok(mut input) = group.protect(SortInput::of_keys(&keys(rank))) else {
            return Ok(None);
        };
        fail_in(&mut group, 10, 1)?;
        let updated = group.update(&mut input, bytemuck::cast_slice(&keys(rank)));
        match updated {
            Err(error) if error.status == Status::DataLost => {
                let sorted = group.sort_protected(&mut input, None)?;
                Ok(Some(sorted.total()))
            }
            other => other.map(|()| None),
        }
    });
    let outcomes = outcomes.unwrap();
    match &outcomes[0] {
        Some(_) => None,
        None => Some(survivors(outcomes).next().expect("rank 2 survives")),
    }
}

/// The old records are lost if the second rank fails before their new shares are made, and else are in the input still.
#[test]
fn the_old_records_stay_if_new_ones_are_lost_in_an_update() {
    let found: Vec<_> = (1..).map_while(records_after_lost_update).collect();
    let mut found: Vec<u64> = found.into_iter().flatten().collect();
    found.dedup();
    assert_eq!(found, [100, 300]);
}

#[test]
fn impossible_shapes_are_refused() {
    for (shares, group) in [(0, 8), (2, 2), (1, 65)] {
        let outcomes = play_group(2, 1, with_parity(shares, group), "", |_, _| Ok(()));
        assert_eq!(statuses(&outcomes), [Some(Status::Argument); 2]);
    }
    let outcomes = play(2, 1, |rank, transport, _| {
        let config = with_parity(1, 8 + rank.index());
        Group::new(transport, config, services(rank)).map(drop)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 2]);
}

/// Keeps the lines of the log.
pub struct Lines(pub Rc<RefCell<Vec<String>>>);

impl Observer for Lines {
    fn event(&mut self, _occasion: Occasion) {}
}

impl GroupObserver for Lines {
    fn log(&mut self, level: LogLevel, line: &str) {
        assert_eq!(level, LogLevel::Warning);
        self.0.borrow_mut().push(line.into());
    }
}

/// Three of four ranks on one host are too many for pairs of different hosts.
#[test]
fn groups_with_several_ranks_of_a_host_are_reported() {
    for (hosts, warns) in [
        ([1, 1, 2, 2], false),
        ([1, 1, 1, 2], true),
        ([1, 1, 1, 1], false),
    ] {
        let outcomes = play(4, 1, move |rank, transport, _| {
            let lines = Rc::new(RefCell::new(Vec::new()));
            let services = Services {
                host: hosts[rank.index()],
                observer: Box::new(Lines(Rc::clone(&lines))),
                ..services(rank)
            };
            Group::new(transport, with_parity(1, 8), services)?;
            Ok::<_, ftsort_kernels::error::Error>(lines.take())
        });
        for lines in outcomes.into_iter().flatten() {
            let lines = lines.expect("the group is created");
            let reported = lines
                .iter()
                .any(|line| line.contains("several ranks of one host"));
            assert_eq!(reported, warns, "{hosts:?}: {lines:?}");
        }
    }
}

/// Ranks that fail at once in different groups lose nothing; two of one group lose their blocks.
#[test]
fn a_result_is_lost_only_if_one_group_loses_too_many() {
    for (second, is_lost) in [(3, true), (2, false)] {
        let failures = format!("1@10 {second}@10");
        let outcomes = play_group(4, 3, with_parity(1, 2), &failures, move |rank, group| {
            let mut sorted = group.sort_keys(&keys(rank))?;
            fail_in(group, 10, 1)?;
            fail_in(group, 10, second)?;
            let recovered = group.recover(&mut sorted);
            let status = recovered.map_err(|error| error.status).err();
            if status == Some(Status::Internal) {
                return Ok(());
            }
            assert_eq!(status, is_lost.then_some(Status::DataLost));
            let lost: Vec<Rank> = group.lost_ranks().iter().collect();
            let expected = if is_lost {
                vec![Rank(1), Rank(3)]
            } else {
                vec![]
            };
            assert_eq!(lost, expected);
            Ok(())
        });
        assert!(outcomes.iter().flatten().all(std::result::Result::is_ok));
    }
}

/// Sorts a protected input that has changed in the memory of rank 0, after the failure of a rank of another group.
fn changed_input_is_found() -> bool {
    let config = GroupConfig {
        checks: DIGESTS,
        ..with_parity(1, 4)
    };
    let outcomes = play_group(8, 1, config, "7@10", |rank, group| {
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        if rank == Rank(0) {
            let first = input.records().as_ptr().cast_mut();
            // SAFETY: a defect of the memory, which nothing reads or writes meanwhile.
            unsafe { *first ^= 1 };
        }
        fail_in(group, 10, 7)?;
        let sorted = group.sort_protected(&mut input, None)?;
        Ok(parts(&sorted))
    });
    let all_succeed = outcomes.iter().flatten().all(std::result::Result::is_ok);
    all_succeed && joined(outcomes) == all_keys(8)
}

/// An input that has changed is solved for like that of a failed rank, and loaded.
#[test]
fn a_changed_input_is_found_by_parity() {
    assert!(changed_input_is_found());
    let is_found = with_mutant(Mutant::FoundInputNotLoaded, changed_input_is_found);
    assert!(!is_found);
}

//! States of the caller's own loop, without the loop of the trials.

use super::named::World;
use super::redundancy::fail_in;
use super::stored_rounds::{Sums, expected_from, initial, listed, run_stored};
use std::collections::BTreeMap;

use super::*;
use ftsort_core::group::HostBudget;
use ftsort_kernels::memory::MemoryBudget;
use ftsort_sim::transport::{TraceEntry, TraceEvent};

#[test]
fn states_that_were_not_committed_are_discarded() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let node = rank.home();
        group.put_state(node, &[1])?;
        assert!(group.commit_states(true)?);
        group.put_state(node, &[2])?;
        assert!(!group.commit_states(rank != Rank(1))?);
        assert!(group.commit_states(true)?);
        assert_eq!(group.state(node)?, Some(&[1][..]));
        group.put_state(node, &[3])?;
        group.clear_states()?;
        assert_eq!(group.state(node)?, None);
        assert!(group.commit_states(true)?);
        assert_eq!(group.state(node)?, None);
        Ok(())
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Ok); 3]);
}

/// A failure that another call has found makes the next commit move the states.
#[test]
fn a_commit_after_a_failure_moves_the_states() {
    for seed in SEEDS {
        let outcomes = play_group(3, seed, GroupConfig::default(), "2@1", |rank, group| {
            let node = rank.home();
            group.put_state(node, &[rank.0 as u8])?;
            assert!(group.commit_states(true)?);
            group.sort_keys(&keys(rank))?;
            let executor = group.members().executor(Node(2));
            assert!(!group.commit_states(true)?);
            if rank == executor {
                assert_eq!(group.state(Node(2))?, Some(&[2][..]));
            }
            assert!(group.commit_states(true)?);
            assert_eq!(group.state(node)?, Some(&[rank.0 as u8][..]));
            Ok(())
        });
        let done = Some(Status::Ok);
        assert_eq!(statuses(&outcomes), [done, done, None], "seed {seed}");
    }
}

/// Puts the first states, and lets another call find a failure before they are committed. Returns whether the commit fails.
fn first_commit_sees_a_failure_before(seed: u64) -> bool {
    let outcomes = play_group(3, seed, GroupConfig::default(), "2@1", |rank, group| {
        let known = group.members().faulty().len();
        group.put_state(rank.home(), &[rank.0 as u8])?;
        group.inject(1)?;
        let (_, found) = group.agree(1)?;
        let committed = group.commit_states(true)?;
        let state = group.state(rank.home())?.map(<[u8]>::to_vec);
        // The next round can be committed.
        assert!(group.commit_states(true)?);
        Ok((known, found, committed, state))
    });
    let is_right = |outcome: Result<_>| outcome.unwrap() == (0, 1, false, None);
    outcomes.into_iter().flatten().all(is_right)
}

#[test]
fn the_first_commit_fails_after_a_failure_that_another_call_has_found() {
    // In others the failure is found in the creation.
    let seeds: Vec<u64> = SEEDS
        .filter(|seed| first_commit_sees_a_failure_before(*seed))
        .collect();
    assert!(!seeds.is_empty());
    let mutant = Mutant::CallerRoundSpansFailure;
    let are_right = with_mutant(mutant, || {
        seeds
            .iter()
            .any(|seed| first_commit_sees_a_failure_before(*seed))
    });
    assert!(!are_right);
}

/// Commits states after a failure that another call has found, with a wrong argument on rank 1, and then without. Returns
/// whether the survivors agree on both.
fn late_commit_is_agreed_on(seed: u64) -> bool {
    let outcomes = play_group(3, seed, GroupConfig::default(), "2@1", |rank, group| {
        group.put_state(rank.home(), &[1])?;
        group.inject(1)?;
        group.agree(1)?;
        let argument = match rank {
            Rank(1) => group.put_state(Node(9), &[1]),
            _ => Ok(()),
        };
        let refused = group.commit_states_checked(true, argument);
        Ok((
            refused.err().map(|error| error.status),
            group.commit_states(true)?,
        ))
    });
    let of_survivors = outcomes.into_iter().take(2).map(Option::unwrap);
    let outcomes: Vec<Option<_>> = of_survivors.map(Result::ok).collect();
    let refused =
        [Status::PeerArgument, Status::Argument].map(|status| Some((Some(status), false)));
    outcomes == refused
}

#[test]
fn a_commit_is_agreed_on_although_all_ranks_know_that_it_fails() {
    let seeds: Vec<u64> = SEEDS
        .filter(|seed| first_commit_sees_a_failure_before(*seed))
        .collect();
    assert!(seeds.iter().all(|seed| late_commit_is_agreed_on(*seed)));
    let mutant = Mutant::LateCommitNotAgreedOn;
    assert!(!with_mutant(mutant, || late_commit_is_agreed_on(seeds[0])));
}

/// A rank fails at each of its steps while all ranks leave. Returns the first run in which a survivor leaves as if no rank had
/// failed, although an agreement has told it of the failure.
fn left_despite_a_failure(seed: u64) -> Option<String> {
    for step in 1.. {
        let world = World::default();
        let config = SimConfig {
            record: true,
            ..sim_config(seed, &[crash(1, step)])
        };
        let run = run_ranks(3, &config, move |rank, mpi| {
            let handle = mpi.handle();
            let config = world.config(&handle);
            let left = Group::new(transport(mpi), config, services(rank))
                .and_then(|mut group| group.finish());
            handle.check().is_ok().then_some(left)
        });
        assert!(run.hung.is_empty(), "seed {seed} step {step}");
        let outcomes: Vec<Option<Result<bool>>> =
            run.outcomes.into_iter().map(Option::flatten).collect();
        if outcomes[1].is_some() {
            break;
        }
        let is_told =
            |entry: &TraceEntry| matches!(&entry.event, TraceEvent::Agrees { failure: true, .. });
        let has_left = |outcome: &Result<bool>| *outcome == Ok(true);
        if outcomes.iter().flatten().any(has_left) && run.trace.iter().any(is_told) {
            return Some(format!("seed {seed} step {step}: {outcomes:?}"));
        }
    }
    None
}

#[test]
fn a_rank_that_leaves_knows_all_failures_of_which_it_was_told() {
    let found = || SEEDS.into_iter().find_map(left_despite_a_failure);
    assert_eq!(found(), None);
    assert!(with_mutant(Mutant::LeavesDespiteFailure, found).is_some());
}

/// Recovers the states after all rounds. The copy of the state of the failed rank at its first holder has changed.
fn recover_changed(digest: bool) -> Vec<u64> {
    let config = GroupConfig {
        store: StoreChoice::Memory(2),
        checks: DataChecks {
            digest,
            purity: false,
        },
        ..GroupConfig::default()
    };
    let outcomes = play_group(4, 1, config, "0~6.replica 1@20", |rank, group| {
        let sums = Sums::new(&World::default(), 6);
        let mut result = run_stored(group, &sums, (&initial(rank.0), 0))?;
        fail_in(group, 20, 1)?;
        group.recover_states(&mut result)?;
        Ok(listed(&result))
    });
    let states = survivors(outcomes).flatten();
    states.collect::<BTreeMap<_, _>>().into_values().collect()
}

#[test]
fn a_changed_copy_of_a_final_state_is_not_used_for_a_recovery() {
    let right = expected_from((0..4).map(initial));
    assert_eq!(recover_changed(true), right);
    assert_ne!(recover_changed(false), right);
}

/// Runs rounds with digests while rank 2 changes its first state before a round (`block`), or swaps bytes of pieces in it, some
/// of which it sends to itself (`swap`). Returns whether the states are right, or the change is reported.
fn changes_are_found(target: &str) -> bool {
    let places = (1..=6).flat_map(|round| (0..8).map(move |place| (round, place)));
    places.into_iter().all(|(round, place)| {
        let config = GroupConfig {
            checks: DataChecks {
                digest: true,
                purity: false,
            },
            ..GroupConfig::default()
        };
        let plan = format!("2~{round}.{target}/{place}");
        let outcomes = play_group(3, 1, config, &plan, |rank, group| {
            let sums = Sums::new(&World::default(), 6);
            let result = run_stored(group, &sums, (&initial(rank.0), 0))?;
            Ok(listed(&result))
        });
        let expected = expected_from((0..3).map(initial));
        outcomes.into_iter().flatten().all(|listed| match listed {
            Ok(listed) => {
                (listed.into_iter()).all(|(node, state)| expected[node as usize] == state)
            }
            Err(error) => error.status == Status::Corrupt,
        })
    })
}

#[test]
fn changed_pieces_that_a_rank_sends_to_itself_are_found() {
    let are_found = || changes_are_found("swap");
    assert!(are_found());
    assert!(!with_mutant(Mutant::StayingPiecesNotChecked, are_found));
}

#[test]
fn a_state_that_has_changed_before_a_round_is_found() {
    assert!(changes_are_found("block"));
}

/// A memory limit that calls do not set.
pub struct Fixed(pub MemoryBudget);

impl HostBudget for Fixed {
    fn memory(&self) -> Option<&MemoryBudget> {
        Some(&self.0)
    }

    fn begin_job(&mut self, _limit: usize, _survivors_here: usize) {}

    fn set_survivors_here(&mut self, _survivors_here: usize) {}
}

/// Every rank is refused the memory to move the state of rank 2, and puts only a state of its own node afterwards.
fn commit_after_a_refused_move(rank: Rank, mpi: SimMpi<'_>) -> Result<()> {
    let budget = MemoryBudget::default();
    let services = Services {
        budget: Box::new(Fixed(budget.clone())),
        ..services(rank)
    };
    let config = GroupConfig {
        failures: Plan::parse("2@10")?,
        ..GroupConfig::default()
    };
    let mut group = Group::new(transport(mpi), config, services)?;
    // Limits do not apply to small allocations.
    let long = |rank: u32| vec![rank as u8; 2 << 20];
    group.put_state(rank.home(), &long(rank.0))?;
    assert!(group.commit_states(true)?);
    group.inject(10)?;
    while !group.members().is_faulty(Rank(2)) {
        group.agree(1)?;
    }
    budget.set_limit(budget.used());
    assert_eq!(refusal(group.fault_check())?.status, Status::Memory);
    budget.set_limit(usize::MAX);
    for is_committed in [false, true] {
        group.put_state(rank.home(), b"later")?;
        assert_eq!(group.commit_states(true)?, is_committed);
    }
    if group.members().executor(Node(2)) == rank {
        assert_eq!(group.state(Node(2))?, Some(&long(2)[..]));
    }
    Ok(())
}

#[test]
fn a_commit_after_a_refused_move_moves_the_states() {
    let outcomes = try_play(4, (1, &[]), |rank, mpi, _| {
        commit_after_a_refused_move(rank, mpi)
    });
    let done = Some(Status::Ok);
    assert_eq!(statuses(&outcomes.unwrap()), [done, done, None, done]);
}

#[test]
fn a_commit_without_states_stores_nothing() {
    let outcomes = World::default().job(3, (1, &[]), |rank, group, _| {
        group.open_states("loop")?;
        assert!(group.commit_states(true)?);
        Ok(group.sort_stored(SortInput::of_keys(&keys(rank)))?.total())
    });
    for total in outcomes.unwrap().into_iter().flatten() {
        assert_eq!(total, Ok(300));
    }
}

/// States that are stored after those of a result were discarded, which have the same numbers.
type Later = fn(&mut SimGroup<'_>, Rank) -> Result<()>;

const LATER: [Later; 3] = [
    |group, rank| {
        let other = vec![rank.0 as i32; 30];
        group.sort_stored(SortInput::of_keys(&other)).map(drop)
    },
    |group, rank| {
        let sums = Sums::new(&World::default(), 6);
        run_stored(group, &sums, (&[rank.0 as u8; 8], 6)).map(drop)
    },
    |group, rank| {
        group.put_state(rank.home(), b"another state")?;
        group.commit_states(true).map(drop)
    },
];

/// Recovers results after their states were discarded and others stored. Returns whether they stay as they are.
fn results_of_discarded_states_stay() -> bool {
    let stays = |later: Later| {
        let sorts = World::default().job(3, (1, &[]), move |rank, group, _| {
            group.open_states("loop")?;
            let mut sorted = group.sort_stored(SortInput::of_keys(&keys(rank)))?;
            let before = parts(&sorted);
            group.clear_states()?;
            later(group, rank)?;
            group.recover(&mut sorted)?;
            Ok(parts(&sorted) == before)
        });
        let rounds = World::default().job(3, (1, &[]), move |rank, group, world| {
            group.open_states("loop")?;
            let sums = Sums::new(world, 6);
            let mut states = run_stored(group, &sums, (&initial(rank.0), 6))?;
            let before = listed(&states);
            group.clear_states()?;
            later(group, rank)?;
            group.recover_states(&mut states)?;
            Ok(listed(&states) == before)
        });
        let mut all = sorts.unwrap().into_iter().chain(rounds.unwrap());
        all.all(|stays| matches!(stays, Some(Ok(true))))
    };
    LATER.into_iter().all(stays)
}

/// A rank fails at any step of rounds, and initial states can be loaded again. Returns whether no data are lost.
fn initial_states_are_loaded_again() -> bool {
    for step in 1.. {
        let mut world = World::default();
        world.reloads = true;
        let failures = [crash(1, step)];
        let outcomes = world.job(3, (1, &failures), |rank, group, world| {
            group.open_states("loop")?;
            let sums = Sums::new(world, 6);
            let states = run_stored(group, &sums, (&initial(rank.0), 6))?;
            Ok(listed(&states))
        });
        let outcomes = outcomes.unwrap();
        if outcomes[1].is_some() {
            break;
        }
        let expected = expected_from((0..3).map(initial));
        for listed in outcomes.into_iter().flatten() {
            let Ok(listed) = listed else {
                return false;
            };
            for (node, state) in listed {
                assert_eq!(state, expected[node as usize], "step {step} node {node}");
            }
        }
    }
    true
}

#[test]
fn results_and_initial_states_are_those_of_their_calls() {
    assert!(results_of_discarded_states_stay());
    assert!(initial_states_are_loaded_again());
    let stay = with_mutant(
        Mutant::StatesAfterClearUsed,
        results_of_discarded_states_stay,
    );
    let are_loaded = with_mutant(
        Mutant::InitialStatesNotReloaded,
        initial_states_are_loaded_again,
    );
    assert!(!stay && !are_loaded);
}

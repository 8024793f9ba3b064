//! Stored states of user-defined algorithms that are lost.

use super::named::World;
use super::stored_rounds::{Sums, expected_from, initial, listed, run_stored};
use super::*;
use ftsort_core::rounds::Round;

/// Removes all states of a node.
fn remove_states(world: &World, node: u32) {
    let mut files = world.files.borrow_mut();
    let ending = format!("-n{node}");
    for name in files.names().iter().filter(|name| name.ends_with(&ending)) {
        files.remove(name);
    }
}

/// Rank 1 fails after the rounds, and the state of its node is gone. Returns the statuses of two recoveries.
fn recoveries_without_a_state() -> Vec<(Option<Status>, Option<Status>)> {
    let world = World::failing("1@20", 0);
    let outcomes = world.job(3, (1, &[]), |rank, group, world| {
        group.open_states("loop")?;
        let sums = Sums::new(world, 2);
        let mut result = run_stored(group, &sums, (&initial(rank.0), 2))?;
        group.agree(1)?;
        if rank == Rank(0) {
            remove_states(world, 1);
        }
        group.inject(20)?;
        let mut recover = || {
            let recovered = group.recover_states(&mut result);
            recovered.err().map(|error| error.status)
        };
        Ok((recover(), recover()))
    });
    let outcomes = outcomes.expect("no rank hangs");
    survivors(outcomes).collect()
}

#[test]
fn a_lost_state_is_reported_by_each_recovery() {
    let lost = Some(Status::DataLost);
    assert_eq!(recoveries_without_a_state(), [(lost, lost); 2]);
    let found = with_mutant(Mutant::LostStatesForgotten, recoveries_without_a_state);
    assert_ne!(found, [(lost, lost); 2]);
}

/// An algorithm in which rank 0 removes the stored states of node 1 in a round.
struct Removing {
    world: World,
    sums: Sums,
    round: u32,
    inits_all: bool,
}

impl Rounds for Removing {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        self.sums.plan(dimension)
    }

    fn init(&self, node: Node) -> Result<Slice> {
        self.sums.init(node)
    }

    fn inits_all(&self) -> bool {
        self.inits_all
    }

    fn propose(&self, task: &Task<'_>) -> Result<Slice> {
        self.sums.propose(task)
    }

    fn decide(&self, task: &Task<'_>, proposals: &[(Node, Slice)]) -> Result<Slice> {
        self.sums.decide(task, proposals)
    }

    fn emit(&self, task: &Task<'_>) -> Result<Slice> {
        if task.round == self.round && task.node == Node(0) {
            remove_states(&self.world, 1);
        }
        self.sums.emit(task)
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        self.sums.absorb(task, inbox)
    }
}

/// Rank 1 fails in the first round, and its initial state is gone. Returns the statuses of two calls and of one in a second
/// job.
fn calls_without_an_initial_state() -> Vec<Option<Status>> {
    let world = World::failing("1@1", 0);
    let run = |group: &mut SimGroup<'_>, world: &World| {
        let rounds = Removing {
            world: world.clone(),
            sums: Sums::new(world, 2),
            round: 1,
            inits_all: false,
        };
        let result = run_stored(group, &rounds, (&[7; 8], 2));
        result.err().map(|error| error.status)
    };
    let first = world.job(3, (1, &[]), move |_, group, world| {
        group.open_states("loop")?;
        Ok([run(group, world), run(group, world)])
    });
    let second = world
        .with_failures("", 0)
        .job(3, (2, &[]), move |_, group, world| {
            group.open_states("loop")?;
            Ok([run(group, world)])
        });
    let first = survivors(first.expect("no rank hangs")).flatten();
    let second = survivors(second.expect("no rank hangs")).flatten();
    first.chain(second).collect()
}

#[test]
fn a_lost_initial_state_is_not_made_again() {
    let lost = [Some(Status::DataLost); 7];
    assert_eq!(calls_without_an_initial_state(), lost);
    let found = with_mutant(Mutant::LostStatesBegunAgain, || {
        std::panic::catch_unwind(calls_without_an_initial_state)
    });
    assert!(!found.is_ok_and(|found| found == lost));
}

#[test]
fn an_algorithm_that_makes_all_initial_states_begins_anew() {
    for (failures, round) in [("1@3", 3), ("1@5", 5), ("1@3 2@5", 5)] {
        let world = World::failing(failures, 0);
        let outcomes = world.job(3, (1, &[]), move |_, group, world| {
            group.open_states("loop")?;
            let rounds = Removing {
                world: world.clone(),
                sums: Sums::new(world, 2),
                round,
                inits_all: true,
            };
            let mut result = run_stored(group, &rounds, (&[], 2))?;
            group.fault_check()?;
            group.recover_states(&mut result)?;
            assert!(group.lost_ranks().is_empty());
            Ok(listed(&result))
        });
        let outcomes = outcomes.expect("no rank hangs");
        let states = survivors(outcomes).flatten();
        let states: std::collections::BTreeMap<u32, u64> = states.collect();
        let expected = expected_from((0..3).map(initial));
        assert!(states.into_values().eq(expected), "{failures}");
    }
}

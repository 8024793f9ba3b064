//! Committed states and user-defined algorithms.

use std::rc::Rc;

use ftsort_core::faults::Plan;
use ftsort_core::group::{Group, GroupConfig, LastRun, StoreChoice};
use ftsort_core::members::Rank;
use ftsort_core::rounds::{Rounds, Task, bytes};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_sim::directory::{InMemoryDirectory, SharedFiles};

use crate::{SEEDS, SimGroup, play, play_group, services, statuses};

/// A loop that adds its round to a state for each node, and survives failures.
fn count_rounds(group: &mut SimGroup<'_>) -> Result<Vec<(u32, u8)>> {
    let mut round = 0;
    while round < 3 {
        group.inject(round)?;
        for node in group.members().my_nodes() {
            let before = group.state(node)?.map_or(0, |state| state[0]);
            group.put_state(node, &[before + 1])?;
        }
        round += u32::from(group.commit_states(true)?);
    }
    let nodes = group.members().my_nodes().into_iter();
    let states = nodes.map(|node| Ok((node.0, group.state(node)?.expect("a state")[0])));
    states.collect()
}

#[test]
fn committed_states_survive_failures() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "1@1 2@2", |_, group| {
            count_rounds(group)
        });
        let mut states: Vec<(u32, u8)> = outcomes
            .into_iter()
            .flatten()
            .flat_map(|states| states.expect("survivors succeed"))
            .collect();
        states.sort_unstable();
        assert_eq!(states, [(0, 3), (1, 3), (2, 3), (3, 3)], "seed {seed}");
    }
}

#[test]
fn states_are_kept_in_a_directory() {
    for seed in SEEDS {
        let files = SharedFiles::default();
        let shared = Rc::clone(&files);
        let outcomes = play(3, seed, move |rank, transport, handle| {
            let files = Rc::clone(&shared);
            let open = move || -> Box<dyn ftsort_core::store::directory::Files> {
                Box::new(InMemoryDirectory::new(&files, &handle, false))
            };
            let config = GroupConfig {
                store: StoreChoice::Directory(Rc::new(open)),
                failures: Plan::parse("1@1")?,
                ..GroupConfig::default()
            };
            let mut group = Group::new(transport, config, services(rank))?;
            let states = count_rounds(&mut group)?;
            Ok((states.len(), group.finish()?))
        });
        let mut nodes = 0;
        for outcome in outcomes.into_iter().flatten() {
            let outcome: Result<(usize, bool)> = outcome;
            let (states, no_failures) = outcome.expect("survivors succeed");
            assert!(!no_failures);
            nodes += states;
        }
        assert_eq!(nodes, 4);
        assert_eq!(files.borrow().files.len(), 0, "seed {seed}");
    }
}

#[test]
fn a_state_of_another_ranks_node_is_refused() {
    let outcomes = play_group(2, 1, GroupConfig::default(), "", |rank, group| {
        let other = Node(1 - rank.0);
        assert_eq!(group.state(other).unwrap_err().status, Status::Argument);
        group.put_state(Node(9), &[1])
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 2]);
    let refused = Err(Error::new(Status::Argument, "committed is NULL"));
    let outcomes = play_group(2, 1, GroupConfig::default(), "", move |rank, group| {
        let arguments = if rank == Rank(0) {
            Ok(())
        } else {
            refused.clone()
        };
        group.commit_states_checked(true, arguments).map(drop)
    });
    use Status::{Argument, PeerArgument};
    assert_eq!(statuses(&outcomes), [Some(PeerArgument), Some(Argument)]);
}

/// Every node ends with the sum of all nodes' bytes.
struct Sum;

impl Rounds for Sum {
    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        bytes(&[task.state.first().unwrap_or(&0) + inbox.first().unwrap_or(&0)])
    }
}

#[test]
fn rounds_run_although_a_rank_fails() {
    for seed in SEEDS {
        let outcomes = play_group(
            4,
            seed,
            GroupConfig::default(),
            "3@1.send",
            |rank, group| {
                let states = group.run_rounds(&Sum, &[1 << rank.0])?;
                assert_eq!(group.last_run(), Some(LastRun::Rounds));
                Ok(states
                    .iter()
                    .map(|(_, state)| state[0])
                    .collect::<Vec<u8>>())
            },
        );
        let states: Vec<u8> = outcomes
            .into_iter()
            .flatten()
            .flat_map(|states| states.expect("survivors succeed"))
            .collect();
        assert_eq!(states, [15; 4], "seed {seed}");
    }
}

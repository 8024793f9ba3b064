//! Groups with spares: their arguments, and their part in each kind of call.

use super::collectives::count_rounds;
use super::named::World;
use super::redundancy::fail_in;
use super::stored_rounds::{Sums, expected_from, initial, listed, run_stored};
use super::*;
use ftsort_core::group::{MergeOperation, TreeMerge, TreeOptions};

fn with_spares(spares: usize) -> GroupConfig {
    GroupConfig {
        spares,
        ..GroupConfig::default()
    }
}

/// The numbers of a rank in a group with this idle spare, which has none.
pub fn keys_beside(spare: Rank, rank: Rank) -> Vec<i32> {
    match rank == spare {
        true => Vec::new(),
        false => keys(rank),
    }
}

/// Lets a rank fail at each of its steps. Returns the first outcome other than `expected`, which is that of a step that the
/// rank does not reach, unless a step before it is wrong.
fn first_other<T: PartialEq>(trial: impl Fn(u32) -> T, expected: &T) -> T {
    let outcome = (1..).map(trial).find(|outcome| outcome != expected);
    outcome.expect("the rank survives its last step")
}

#[test]
fn a_group_without_a_working_rank_is_refused() {
    let outcomes = play_group(3, 1, with_spares(3), "", |_, _| Ok(()));
    for outcome in outcomes.into_iter().flatten() {
        let error = outcome.unwrap_err();
        assert_eq!(error.status, Status::Argument);
        let expected = "config.spares is 3, but comm has 3 ranks, of which at least one must have a \
                        node: set config.spares to at most 2";
        assert_eq!(error.text, expected);
    }
}

#[test]
fn records_on_an_idle_spare_are_refused_on_all_ranks() {
    for seed in SEEDS {
        let outcomes = play_group(3, seed, with_spares(1), "", |rank, group| {
            let mine = keys(rank);
            let error = refusal(group.sort_keys(&mine))?;
            let arrays = vec![SortInput::of_keys(&mine)];
            let of_arrays = refusal(group.sort_many(arrays))?;
            let sums = Sums::new(&World::default(), 1);
            let of_rounds = refusal(group.run_rounds(&sums, &initial(rank.0)))?;
            assert_eq!([of_arrays.status, of_rounds.status], [error.status; 2]);
            if rank == Rank(2) {
                assert!(error.text.contains("count is 100, but rank 2"), "{error}");
                assert!(error.text.contains("pass 0 until"), "{error}");
            }
            let empty: &[i32] = &[];
            let sorted = group.sort_keys(if rank == Rank(2) { empty } else { &mine })?;
            assert_eq!(sorted.total(), 200);
            assert_eq!(sorted.is_empty(), rank == Rank(2));
            Err::<(), _>(error)
        });
        let (spare, others) = (Status::Argument, Status::PeerArgument);
        let expected = [others, others, spare].map(Some);
        assert_eq!(statuses(&outcomes), expected, "seed {seed}");
    }
}

/// The program of the documentation: a rank passes no input as long as it is an idle spare.
#[test]
fn later_sorts_have_the_shares_of_a_group_without_failures() {
    for seed in SEEDS {
        let outcomes = play_group(5, seed, with_spares(1), "1@2", |rank, group| {
            let mut blocks = Vec::new();
            for sort in 0..3 {
                let is_spare = group.members().is_idle_spare(rank);
                assert_eq!(is_spare, rank == Rank(4) && sort == 0);
                let mine = if is_spare { Vec::new() } else { keys(rank) };
                let sorted = group.sort_keys(&mine)?;
                let full = sorted.blocks().filter(|block| !block.records.is_empty());
                let nodes: Vec<Node> = full.map(|block| block.node).collect();
                let node = if rank == Rank(4) {
                    Node(1)
                } else {
                    rank.home()
                };
                assert_eq!(nodes, [node], "sort {sort}");
                let largest = sorted.blocks().map(|block| block.records.len() / 4).max();
                assert!(largest.is_some_and(|records| records <= 105));
                blocks = parts(&sorted);
            }
            assert_eq!(group.members().executor(Node(1)), Rank(4));
            Ok(blocks)
        });
        let mut expected: Vec<i32> = [0, 2, 3, 4].map(Rank).into_iter().flat_map(keys).collect();
        expected.sort_unstable();
        assert_eq!(joined(outcomes), expected, "seed {seed}");
    }
}

#[test]
fn trees_and_states_leave_out_idle_spares_and_reach_them() -> Result<()> {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, with_spares(1), "", |rank, group| {
            let sent = if rank == Rank(1) { [7, 8] } else { [0, 0] };
            let received = group.tree_broadcast(TreeOptions::default(), Rank(1), &sent)?;
            assert_eq!(received[..], [7, 8]);
            let from_spare = group.tree_broadcast(TreeOptions::default(), Rank(3), &sent);
            let error = refusal(from_spare.map(drop))?;
            assert!(error.text.contains("root is 3, an idle spare"), "{error}");
            let mut sorted = group.sort_keys(&keys_beside(Rank(3), rank))?;
            let mut to_spare = TreeOptions::default();
            to_spare.request.sink = Some(Rank(3));
            let error = refusal(group.gather(to_spare, &mut sorted, &mut |_| Ok(())))?;
            assert!(error.text.contains("sink is 3, an idle spare"), "{error}");
            let contribution = [rank.0 as u8];
            let merge = |contribution| TreeMerge {
                options: TreeOptions::default(),
                operation: MergeOperation::Concatenate,
                contribution,
            };
            let refused = refusal(group.tree_merge(merge(&contribution)).map(drop))?;
            let expected = match rank {
                Rank(3) => Status::Argument,
                _ => Status::PeerArgument,
            };
            assert_eq!(refused.status, expected);
            let mine = &contribution[usize::from(rank == Rank(3))..];
            let merged = group.tree_merge(merge(mine))?;
            assert!(merged.is_none_or(|merged| merged[..] == [0, 1, 2]));
            count_rounds(group)
        });
        let states = outcomes.into_iter().flatten();
        let states: Vec<_> = states.collect::<Result<Vec<_>>>()?;
        assert_eq!(states[3], [], "seed {seed}");
        assert_eq!(states.concat().len(), 4, "seed {seed}");
    }
    Ok(())
}

/// Whether algorithms in rounds store the initial state of a spare that has taken over from rank 1, also if the spare fails
/// at a step.
fn states_of_spares_are_stored(seed: u64) -> bool {
    let expected = expected_from((0..4).map(initial));
    for step in [1_000_000].into_iter().chain((60..260).step_by(4)) {
        let world = World::failing("1@20", 1);
        let outcomes = world.job(4, (seed, &[crash(3, step)]), |rank, group, world| {
            group.open_states("loop")?;
            group.inject(20)?;
            group.fault_check()?;
            let mine = match group.members().is_idle_spare(rank) {
                true => Vec::new(),
                false => initial(rank.0),
            };
            let sums = Sums::new(world, 2);
            Ok(listed(&run_stored(group, &sums, (&mine, 2))?))
        });
        let outcomes = outcomes.unwrap();
        let told: Vec<Status> = statuses(&outcomes).into_iter().flatten().collect();
        let is_lost = told.iter().all(|status| *status == Status::DataLost);
        let states = outcomes.into_iter().flatten().flatten().flatten();
        let is_right = |(node, state): (u32, u64)| expected[node as usize] == state;
        let may_be_lost = is_lost && told.len() < 3;
        let is_fine = may_be_lost || told.iter().all(|status| *status == Status::Ok);
        if !is_fine || !states.into_iter().all(is_right) {
            return false;
        }
    }
    true
}

#[test]
fn rounds_store_the_state_of_a_spare_that_has_taken_over() {
    assert!(SEEDS.take(5).all(states_of_spares_are_stored));
}

/// Recovers a result after the failure of rank 1, while its spare fails at one of its steps. Returns whether the spare
/// survives, or the error of a survivor.
fn recover_with_spare_failing(step: u32) -> std::result::Result<bool, String> {
    // Rank 1 fails after the sort.
    let failures = [crash(1, 200), crash(2, step)];
    let outcomes = try_play(3, (1, &failures), |rank, mpi, _| {
        let config = GroupConfig {
            // The home node of the spare has records, which move to it from rank 0 when it takes over.
            method: Some(Method::HyperQuickSort(PivotRule::Paper)),
            store: StoreChoice::Memory(2),
            ..with_spares(1)
        };
        let mut group = Group::new(transport(mpi), config, services(rank))?;
        let mine = keys_beside(Rank(2), rank);
        let mut sorted = group.sort_keys(&mine)?;
        while !group.members().is_faulty(Rank(1)) {
            group.fault_check()?;
        }
        group.recover(&mut sorted)?;
        Ok(parts(&sorted))
    })?;
    let mut errors = outcomes
        .iter()
        .flatten()
        .filter_map(|outcome| outcome.as_ref().err());
    if let Some(error) = errors.next() {
        return Err(format!("step {step}: {error}"));
    }
    let survives = outcomes[2].is_some();
    // A spare that fails after the recovery takes its blocks along.
    if survives {
        assert_eq!(joined(outcomes), all_keys(2), "step {step}");
    }
    Ok(survives)
}

/// Lets the spare fail at each of its steps. Returns the first error, or that it survives.
fn recover_with_spare_failing_at_every_step() -> std::result::Result<bool, String> {
    first_other(recover_with_spare_failing, &Ok(false))
}

/// A rank keeps a block that moves to a spare until the blocks are copied.
#[test]
fn a_spare_that_fails_while_a_result_is_recovered_loses_nothing() {
    assert_eq!(recover_with_spare_failing_at_every_step(), Ok(true));
    let outcome = with_mutant(
        Mutant::BlockGivenUpBeforeCopies,
        recover_with_spare_failing_at_every_step,
    );
    assert!(outcome.is_err());
}

/// Whether rank 0 gathers all records while rank 1 fails at one of its steps; None: rank 1 survives. Node 2, the home of the
/// spare, has all records above 0, and nodes 1 and 3 of rank 1 have none.
fn gathers_all_with_failure(step: u32) -> std::result::Result<Option<bool>, String> {
    let outcomes = try_play(3, (1, &[crash(1, step)]), |rank, mpi, _| {
        let config = GroupConfig {
            method: Some(Method::HyperQuickSort(PivotRule::Paper)),
            ..with_spares(1)
        };
        let mut group = Group::new(transport(mpi), config, services(rank))?;
        let mine = match rank.0 {
            2 => Vec::new(),
            _ => [vec![0; 60], vec![1; 40]].concat(),
        };
        let mut sorted = match group.sort_keys::<i32>(&mine) {
            // Rank 1 failed before its records had a copy.
            Err(error) if error.status == Status::DataLost => return Ok(true),
            sorted => sorted?,
        };
        let mut options = TreeOptions::default();
        options.request.sink = Some(Rank(0));
        let mut gathered: Vec<i32> = Vec::new();
        group.gather(options, &mut sorted, &mut |records| {
            gathered.extend_from_slice(bytemuck::cast_slice(records));
            Ok(())
        })?;
        // Rank 1 may have failed before the sort.
        let ranks = sorted.total() as usize / 100;
        Result::Ok(
            rank != Rank(0) || gathered == [vec![0; 60 * ranks], vec![1; 40 * ranks]].concat(),
        )
    })?;
    let survives = outcomes[1].is_some();
    match outcomes.into_iter().next().flatten() {
        Some(Ok(gathers_all)) => Ok((!survives).then_some(gathers_all)),
        outcome => Err(format!("{outcome:?}")),
    }
}

/// The first outcome other than that of a gather with all records.
fn gathers_all_with_failure_at_every_step() -> std::result::Result<Option<bool>, String> {
    first_other(gathers_all_with_failure, &Ok(Some(true)))
}

/// A spare that takes over a node from a failed rank also executes its home node, whose records another rank has.
#[test]
fn a_gather_has_the_records_of_the_home_of_a_spare() {
    assert_eq!(gathers_all_with_failure_at_every_step(), Ok(None));
    let outcome = with_mutant(
        Mutant::MovedNodeIgnored,
        gathers_all_with_failure_at_every_step,
    );
    assert_eq!(outcome, Ok(Some(false)));
}

/// A spare that was idle when a result was made takes over from a rank that fails later.
#[test]
fn a_spare_gets_the_blocks_of_a_rank_that_fails_after_the_sort() {
    let outcomes = play_group(4, 1, with_spares(1), "1@10", |rank, group| {
        let mine = keys_beside(Rank(3), rank);
        let mut sorted = group.sort_keys(&mine)?;
        fail_in(group, 10, 1)?;
        group.recover(&mut sorted)?;
        let full = sorted.blocks().filter(|block| !block.records.is_empty());
        Ok(full.map(|block| block.node).collect::<Vec<Node>>())
    });
    let nodes: Vec<Vec<Node>> = survivors(outcomes).collect();
    assert_eq!(nodes, [0, 2, 1].map(|node| vec![Node(node)]));
}

/// An idle spare has no block that could be lost.
#[test]
fn a_failed_idle_spare_loses_no_result() {
    for released in [false, true] {
        let config = GroupConfig {
            store: StoreChoice::Memory(usize::from(released)),
            release_after_run: released,
            ..with_spares(1)
        };
        let outcomes = play_group(4, 1, config, "3@10", |rank, group| {
            let mine = keys_beside(Rank(3), rank);
            let mut sorted = group.sort_keys(&mine)?;
            fail_in(group, 10, 3)?;
            group.recover(&mut sorted)?;
            assert!(group.lost_ranks().is_empty());
            Ok(parts(&sorted))
        });
        assert_eq!(joined(outcomes), all_keys(3), "released {released}");
    }
}

/// Sorts without redundancy, and recovers the result after the failure of a rank that had work.
fn recovered_without_redundancy() -> Vec<Option<Status>> {
    let config = GroupConfig {
        store: StoreChoice::Memory(0),
        ..with_spares(1)
    };
    let outcomes = play_group(4, 1, config, "1@10", |rank, group| {
        let mine = keys_beside(Rank(3), rank);
        let mut sorted = group.sort_keys(&mine)?;
        fail_in(group, 10, 1)?;
        let recovered = group.recover(&mut sorted);
        assert_eq!(group.lost_ranks().contains(Rank(1)), recovered.is_err());
        recovered
    });
    statuses(&outcomes)
}

#[test]
fn a_failed_rank_loses_its_part_of_a_result_without_redundancy() {
    let lost = Some(Status::DataLost);
    assert_eq!(recovered_without_redundancy(), [lost, None, lost, lost]);
    let found = with_mutant(Mutant::FailedRanksHadNoBlocks, recovered_without_redundancy);
    assert!(!found.contains(&lost));
}

/// Recovers a result after the failure of rank 1. The holder of both inputs on another host is the spare, which fails in the
/// sort. Returns whether the spare survives the sort, or the error of rank 0.
fn recovered_without_spare(step: u32) -> std::result::Result<bool, String> {
    let outcomes = try_play(3, (1, &[crash(2, step)]), |rank, mpi, _| {
        let config = GroupConfig {
            method: Some(Method::HyperQuickSort(PivotRule::Sampled)),
            failures: Plan::parse("1@10").expect("a failure schedule"),
            ..with_spares(1)
        };
        let services = Services {
            host: u64::from(rank.0 / 2),
            ..services(rank)
        };
        let mut group = Group::new(transport(mpi), config, services)?;
        let mine = keys_beside(Rank(2), rank);
        let mut sorted = group.sort_keys(&mine)?;
        if !group.members().is_faulty(Rank(2)) {
            return Result::Ok(None);
        }
        fail_in(&mut group, 10, 1)?;
        group.recover(&mut sorted)?;
        Ok(Some(parts(&sorted)))
    })?;
    match outcomes.into_iter().next().flatten() {
        Some(Ok(Some(blocks))) => {
            assert_eq!(joined(vec![Some(Ok(blocks))]), all_keys(2), "step {step}");
            Ok(false)
        }
        Some(Ok(None)) => Ok(true),
        outcome => Err(format!("step {step}: {outcome:?}")),
    }
}

/// The first outcome other than that of a spare that fails in the sort.
fn recovered_without_spare_at_every_step() -> std::result::Result<bool, String> {
    first_other(recovered_without_spare, &Ok(false))
}

/// The owners of inputs keep the pieces of the ranks that hold copies after the failure of the former holder.
#[test]
fn a_result_is_recovered_after_the_failure_of_a_spare_with_copies() {
    assert_eq!(recovered_without_spare_at_every_step(), Ok(true));
    let outcome = with_mutant(
        Mutant::PiecesOfFormerHoldersKept,
        recovered_without_spare_at_every_step,
    );
    assert!(outcome.is_err());
}

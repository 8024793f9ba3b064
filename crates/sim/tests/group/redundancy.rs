//! Results that are recovered after failures, and versions that are kept in files.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::positions::Query;
use super::refusals::limited;
use super::*;
use ftsort_core::group::{HostBudget, TreeOptions};
use ftsort_kernels::memory::MemoryBudget;

/// Lets the rank of the failure schedule fail in this round of the program, and waits until the others know.
pub fn fail_in(group: &mut SimGroup<'_>, round: u32, failed: u32) -> Result<()> {
    group.inject(round)?;
    while !group.members().is_faulty(Rank(failed)) {
        group.fault_check()?;
    }
    Ok(())
}

/// The failures of three of four ranks between the calls of a program.
pub const ONE_AFTER_ANOTHER: &str = "1@10 0@11 3@12";

/// Recovers a result after each of these failures. Returns the blocks at the end.
pub fn recover_repeatedly(group: &mut SimGroup<'_>, sorted: &mut Sorted) -> Result<Blocks> {
    let stats = *group.stats();
    group.recover(&mut *sorted)?;
    for (round, failed) in [(10, 1), (11, 0), (12, 3)] {
        let before = addresses(sorted);
        fail_in(group, round, failed)?;
        group.recover(&mut *sorted)?;
        let after = addresses(sorted);
        assert!(before.iter().all(|address| after.contains(address)));
        assert!(group.lost_ranks().is_empty());
        assert_eq!(*group.stats(), stats);
    }
    Ok(parts(sorted))
}

#[test]
fn a_result_is_recovered_after_failures_down_to_one_rank() {
    let methods = [
        Method::SampleSort(1),
        Method::HyperQuickSort(PivotRule::Sampled),
        Method::Bitonic(Shape::Any),
        Method::SampleSort(2),
    ];
    for ((method, dense), seed) in methods
        .into_iter()
        .flat_map(|m| [(m, false), (m, true)])
        .zip(SEEDS)
    {
        let config = GroupConfig {
            method: Some(method),
            dense,
            ..GroupConfig::default()
        };
        let outcomes = play_group(4, seed, config, ONE_AFTER_ANOTHER, |rank, group| {
            let mut sorted = group.sort_keys(&keys(rank))?;
            recover_repeatedly(group, &mut sorted)
        });
        assert_eq!(outcomes.iter().flatten().count(), 1);
        assert_eq!(joined(outcomes), all_keys(4), "{method:?} {dense}");
    }
}

/// Runs a program on ranks that share a directory, and returns the number of files that are left.
pub fn with_directory(
    failures: &'static str,
    program: fn(Rank, &mut SimGroup<'_>) -> Result<Blocks>,
) -> (Vec<i32>, usize) {
    let files = SharedFiles::default();
    let shared = Rc::clone(&files);
    let outcomes = play(4, 3, move |rank, transport, handle| {
        let config = GroupConfig {
            store: store_in(&shared, &handle, FileModel::default()),
            failures: Plan::parse(failures)?,
            ..GroupConfig::default()
        };
        let mut group = Group::new(transport, config, services(rank))?;
        let blocks = program(rank, &mut group)?;
        group.finish()?;
        Ok(blocks)
    });
    let left = files.borrow().names().len();
    (joined(outcomes), left)
}

#[test]
fn a_result_is_recovered_from_files_which_are_removed_at_the_end() {
    let (all, files) = with_directory(ONE_AFTER_ANOTHER, |rank, group| {
        let mut sorted = group.sort_keys(&keys(rank))?;
        recover_repeatedly(group, &mut sorted)
    });
    assert_eq!((all, files), (all_keys(4), 0));
    // Files of a released result are removed, and those of another one stay.
    let (all, files) = with_directory("2@10", |rank, group| {
        let first = group.sort_keys(&keys(rank))?;
        let mut second = group.sort_keys(&keys(rank))?;
        fail_in(group, 10, 2)?;
        drop(first);
        group.fault_check()?;
        group.recover(&mut second)?;
        Ok(parts(&second))
    });
    assert_eq!((all, files), (all_keys(4), 0));
}

/// A program may release a result after the end of the group.
#[test]
fn the_end_of_the_group_removes_the_files_of_results_that_are_not_released() {
    let files = SharedFiles::default();
    let shared = Rc::clone(&files);
    let outcomes = play(4, 3, move |rank, transport, handle| {
        let config = GroupConfig {
            store: store_in(&shared, &handle, FileModel::default()),
            ..GroupConfig::default()
        };
        let mut group = Group::new(transport, config, services(rank))?;
        let sorted = group.sort_keys(&keys(rank))?;
        group.finish()?;
        let left = shared.borrow().names();
        drop(sorted);
        Result::Ok(left)
    });
    for left in survivors(outcomes) {
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn more_failures_at_once_than_copies_lose_blocks_and_name_their_ranks() {
    for seed in SEEDS {
        let failures = "1@10 2@10";
        let outcomes = play_group(4, seed, GroupConfig::default(), failures, |rank, group| {
            let mut sorted = group.sort_keys(&keys(rank))?;
            let before = parts(&sorted);
            fail_in(group, 10, 1)?;
            fail_in(group, 10, 2)?;
            let error = refusal(group.recover(&mut sorted))?;
            assert_eq!(error.status, Status::DataLost);
            let lost: Vec<Rank> = group.lost_ranks().iter().collect();
            assert_eq!(lost, [Rank(1), Rank(2)]);
            assert_eq!(parts(&sorted), before);
            // The group is still usable.
            group.sort_keys(&keys(rank)).map(|sorted| sorted.total())
        });
        for outcome in outcomes.into_iter().flatten() {
            assert_eq!(outcome, Ok(200), "seed {seed}");
        }
    }
}

/// A budget with a limit that the test changes.
#[derive(Clone, Default)]
struct Adjusted {
    budget: MemoryBudget,
    limit: Rc<Cell<usize>>,
}

impl HostBudget for Adjusted {
    fn memory(&self) -> Option<&MemoryBudget> {
        Some(&self.budget)
    }

    fn begin_job(&mut self, _limit: usize, _survivors_here: usize) {
        self.budget.set_limit(self.limit.get());
    }

    fn set_survivors_here(&mut self, _survivors_here: usize) {}
}

/// A recovery that is refused memory for copies brings the blocks to their places, and the next one makes the copies.
#[test]
fn blocks_are_recovered_although_there_is_no_memory_for_copies() {
    // Blocks of 2 MB: shorter buffers are never refused.
    let many = |keys: Vec<i32>| -> Vec<i32> { (0..5000).flat_map(|_| keys.clone()).collect() };
    // Enough to put a block together, but not for the copy of another one.
    let memory = 7 << 19;
    let recovered: Rc<RefCell<Vec<Blocks>>> = Rc::default();
    let all_recovered = Rc::clone(&recovered);
    let outcomes = play(4, 1, move |rank, transport, _| {
        let adjusted = Adjusted::default();
        adjusted.limit.set(usize::MAX);
        let config = GroupConfig {
            failures: Plan::parse("1@10 3@11")?,
            ..GroupConfig::default()
        };
        let services = Services {
            budget: Box::new(adjusted.clone()),
            ..services(rank)
        };
        let mut group = Group::new(transport, config, services)?;
        let mut sorted = group.sort_keys(&many(keys(rank)))?;
        fail_in(&mut group, 10, 1)?;
        // The second one, which makes copies alone, is refused, too.
        for memory in [memory, 1 << 19] {
            adjusted.limit.set(adjusted.budget.used() + memory);
            let error = refusal(group.recover(&mut sorted))?;
            assert_eq!(error.status, Status::Memory);
        }
        all_recovered.borrow_mut().push(parts(&sorted));
        adjusted.limit.set(usize::MAX);
        group.recover(&mut sorted)?;
        fail_in(&mut group, 11, 3)?;
        group.recover(&mut sorted)?;
        Ok(parts(&sorted))
    });
    let mut expected = many(all_keys(4));
    expected.sort_unstable();
    let recovered = recovered.take().into_iter();
    let recovered = recovered.map(|blocks| Some(Ok(blocks))).collect();
    assert!(joined(recovered) == expected && joined(outcomes) == expected);
}

/// Recovers a result after a failure while one action of a rank is refused, and again without refusals. Returns whether the
/// first recovery succeeds, and the number of bytes in all blocks afterwards.
fn recover_with_refusal(make: Query, refused: Rank, action: u32) -> (bool, usize) {
    let outcomes = play(3, 1, move |rank, transport, _| {
        let budget = MemoryBudget::new();
        let config = GroupConfig {
            method: Some(Method::SampleSort(2)),
            failures: Plan::parse("1@10")?,
            ..GroupConfig::default()
        };
        let mut group = Group::new(transport, config, limited(rank, &budget))?;
        let keys = keys(rank);
        // Sorting records takes memory.
        let input = SortInput {
            layout: Layout::new(Fields {
                record_bytes: 20,
                key: KeyKind::I32 as i32,
                ..Fields::default()
            })?,
            stable: true,
            records: bytemuck::cast_slice(&keys),
        };
        let mut sorted = make(&mut group, input)?;
        fail_in(&mut group, 10, 1)?;
        if rank == refused {
            let number = budget.actions() + action;
            budget.refuse(number..number + 1);
        }
        let first = group.recover(&mut sorted);
        group.recover(&mut sorted)?;
        let bytes = sorted.blocks().map(|block| block.records.len());
        Ok((first.is_ok(), bytes.sum::<usize>()))
    });
    let outcomes = outcomes.into_iter().flatten();
    let (fine, bytes): (Vec<bool>, Vec<usize>) = outcomes.map(Result::unwrap).unzip();
    (!fine.contains(&false), bytes.iter().sum())
}

/// Whether a recovery that was refused memory can be repeated, whatever was refused. `record_bytes`: the size of a record of
/// the result.
pub fn is_repeated_after_refusals(make: Query, record_bytes: usize) -> bool {
    let whole = 60 * record_bytes;
    [Rank(0), Rank(2)].into_iter().all(|refused| {
        let mut outcomes = (1..).map(|action| recover_with_refusal(make, refused, action));
        let is_last = |(is_fine, bytes): &(bool, usize)| *is_fine || *bytes != whole;
        outcomes.find(is_last) == Some((true, whole))
    })
}

#[test]
fn a_recovery_is_repeated_after_a_refusal() {
    let is_repeated = || is_repeated_after_refusals(|group, input| group.sort(input), 20);
    assert!(is_repeated());
    assert!(!with_mutant(Mutant::InputConsumedByRefusal, is_repeated));
}

/// Positions are made of the blocks of a sort, which are released where there is no redundancy.
#[test]
fn positions_without_redundancy_stay_if_no_rank_has_failed() {
    for (store, release_after_run, ranks) in [(0, false, 3), (1, true, 3), (0, false, 1)] {
        let config = GroupConfig {
            store: StoreChoice::Memory(store),
            release_after_run,
            ..GroupConfig::default()
        };
        let outcomes = play_group(ranks, 1, config, "", |rank, group| {
            let mut sorted = group.positions(SortInput::of_keys(&keys(rank)))?;
            let before = parts(&sorted);
            group.recover(&mut sorted)?;
            Ok(parts(&sorted) == before)
        });
        assert!(outcomes.into_iter().flatten().all(|same| same == Ok(true)));
    }
}

#[test]
fn a_result_is_recovered_from_inputs_that_are_reloaded() {
    for seed in SEEDS {
        let outcomes = play(3, seed, |rank, transport, _| {
            let config = GroupConfig {
                store: StoreChoice::Memory(0),
                failures: Plan::parse("1@10 0@11")?,
                ..GroupConfig::default()
            };
            let mut group = Group::new(transport, config, reloading(rank))?;
            let mut sorted = group.sort_keys(&keys(rank))?;
            for (round, failed) in [(10, 1), (11, 0)] {
                fail_in(&mut group, round, failed)?;
                group.recover(&mut sorted)?;
            }
            Ok(parts(&sorted))
        });
        assert_eq!(joined(outcomes), all_keys(3), "seed {seed}");
    }
}

#[test]
fn results_of_different_sorts_are_not_recovered() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let mut first = group.sort_keys(&keys(rank))?;
        let mut second = group.sort_keys(&keys(rank))?;
        group.recover(if rank == Rank(0) {
            &mut first
        } else {
            &mut second
        })
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
}

/// Gathers a result: all records on one rank, none on the others.
pub fn whole(group: &mut SimGroup<'_>, sorted: &mut Sorted) -> Result<Vec<i32>> {
    let mut whole = Vec::new();
    group.gather(TreeOptions::default(), sorted, &mut |records| {
        whole.extend(bytemuck::cast_slice::<u8, i32>(records));
        Ok(())
    })?;
    Ok(whole)
}

#[test]
fn a_recovered_result_is_gathered() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "2@10", |rank, group| {
            let mut sorted = group.sort_keys(&keys(rank))?;
            fail_in(group, 10, 2)?;
            group.recover(&mut sorted)?;
            whole(group, &mut sorted)
        });
        let whole: Vec<i32> = survivors(outcomes).flatten().collect();
        assert_eq!(whole, all_keys(4), "seed {seed}");
    }
}

#[test]
fn final_states_are_recovered() {
    for seed in SEEDS {
        let failures = "3@10 1@11";
        let outcomes = play_group(4, seed, GroupConfig::default(), failures, |rank, group| {
            let mut states = group.run_rounds(&super::collectives::Sum, &[1 << rank.0])?;
            for (round, failed) in [(10, 3), (11, 1)] {
                fail_in(group, round, failed)?;
                group.recover_states(&mut states)?;
            }
            Ok(states
                .iter()
                .map(|(node, state)| (node, state[0]))
                .collect())
        });
        let states: Vec<Vec<(Node, u8)>> = survivors(outcomes).collect();
        let mut states = states.concat();
        states.sort_unstable();
        assert_eq!(
            states,
            [0, 1, 2, 3].map(|node| (Node(node), 15)),
            "seed {seed}"
        );
    }
}

/// The records of a gathering.
struct Gathered {
    /// Those that the survivors have received.
    by_survivors: Vec<i32>,
    /// Those that rank 0 has received, also if it has failed since.
    by_first: Vec<i32>,
    /// Whether no rank has failed.
    is_whole: bool,
}

/// Gathers a result at rank 0 or at its successor, in several windows.
fn gather_with_failure(seed: u64, failure: Failure) -> Gathered {
    let config = sim_config(seed, &[failure]);
    let by_first: Rc<RefCell<Vec<i32>>> = Rc::default();
    let noted = Rc::clone(&by_first);
    let run = run_ranks(3, &config, move |rank, mpi| {
        let handle = mpi.handle();
        let gathered = || -> Result<Vec<i32>> {
            let mut group = Group::new(transport(mpi), GroupConfig::default(), services(rank))?;
            let mut sorted = group.sort_keys(&keys(rank))?;
            // The failures are those of the gathering.
            group.fault_check()?;
            let mut whole = Vec::new();
            let mut options = TreeOptions::default();
            options.request.sink = Some(Rank(0));
            group.gather(options, &mut sorted, &mut |records| {
                let records = bytemuck::cast_slice::<u8, i32>(records);
                whole.extend(records);
                if rank == Rank(0) {
                    noted.borrow_mut().extend(records);
                }
                Ok(())
            })?;
            group.fault_check()?;
            Ok(whole)
        };
        let gathered = gathered();
        handle.check().is_ok().then_some(gathered)
    });
    assert_eq!((run.hung, run.misuse), (vec![], None), "seed {seed}");
    let is_whole = run
        .outcomes
        .iter()
        .all(|outcome| matches!(outcome, Some(Some(_))));
    let wholes = run.outcomes.into_iter().flatten().flatten();
    let wholes = wholes.flat_map(|whole| whole.expect("survivors succeed"));
    Gathered {
        by_survivors: wholes.collect(),
        by_first: by_first.take(),
        is_whole,
    }
}

#[test]
fn a_failure_at_any_step_of_a_gathering_loses_nothing() {
    let mut received_in_part = 0;
    for (seed, rank) in (1..4).flat_map(|seed| (0..3).map(move |rank| (seed, rank))) {
        for step in 50.. {
            let found = gather_with_failure(seed, crash(rank, step));
            // A sink that fails after it has received everything takes it along.
            let has_left = found.by_survivors.is_empty() && found.by_first == all_keys(3);
            assert!(
                found.by_survivors == all_keys(3) || has_left && rank == 0,
                "seed {seed}: rank {rank} failed at step {step}: {} records",
                found.by_survivors.len()
            );
            received_in_part += usize::from((1..300).contains(&found.by_first.len()));
            if found.is_whole {
                break;
            }
        }
    }
    // Some sinks have failed between two windows.
    assert!(received_in_part > 10, "{received_in_part}");
}

/// Counts the rounds of each node. A recovery must not call it.
struct Counted;

impl Rounds for Counted {
    fn absorb(&self, task: &Task<'_>, _: Slice) -> Result<Slice> {
        ftsort_core::rounds::bytes(&[task.state.first().copied().unwrap_or(0) + 1])
    }
}

#[test]
fn states_of_several_hosts_survive_the_loss_of_one() {
    let outcomes = play(4, 2, |rank, transport, _| {
        let config = GroupConfig {
            failures: Plan::parse("0@10 1@10")?,
            ..GroupConfig::default()
        };
        let services = Services {
            host: u64::from(rank.0 / 2),
            ..services(rank)
        };
        let mut group = Group::new(transport, config, services)?;
        let mut states = group.run_rounds(&Counted, &[0])?;
        fail_in(&mut group, 10, 0)?;
        fail_in(&mut group, 10, 1)?;
        group.recover_states(&mut states)?;
        Ok(states
            .iter()
            .map(|(_, state)| state[0])
            .collect::<Vec<u8>>())
    });
    let states: Vec<u8> = survivors(outcomes).flatten().collect();
    assert_eq!(states, [2; 4]);
}

/// Keeps the greatest number of versions of blocks that the files of a directory had at a commit.
struct MostVersions(SharedFiles, Rc<Cell<usize>>);

impl Observer for MostVersions {
    fn event(&mut self, occasion: Occasion) {
        if occasion.event != Event::Round {
            return;
        }
        let names = self.0.borrow().names();
        let versions = names.iter().filter_map(|name| name.split("-v").nth(1));
        let versions: BTreeSet<&str> = versions.filter_map(|rest| rest.split('-').next()).collect();
        self.1.set(self.1.get().max(versions.len()));
    }
}

impl GroupObserver for MostVersions {}

/// The last two versions are kept. A rank that learns of a commit later has not removed the one before, and another
/// may have stored the next.
#[test]
fn files_of_old_versions_are_removed_while_a_sort_runs() {
    for seed in 1..4 {
        let files = SharedFiles::default();
        let outcomes = play(8, seed, move |rank, transport, handle| {
            let most = Rc::new(Cell::new(0));
            let config = GroupConfig {
                store: store_in(&files, &handle, FileModel::default()),
                method: Some(Method::Bitonic(Shape::Any)),
                ..GroupConfig::default()
            };
            let services = Services {
                observer: Box::new(MostVersions(Rc::clone(&files), Rc::clone(&most))),
                ..services(rank)
            };
            let mut group = Group::new(transport, config, services)?;
            drop(group.sort_keys(&keys(rank))?);
            group.finish()?;
            Ok(most.get())
        });
        for most in outcomes.into_iter().flatten() {
            let most: Result<usize> = most;
            let most = most.unwrap();
            assert!((2..=4).contains(&most), "seed {seed}: {most}");
        }
    }
}

/// Notes the numbers of survivors on the rank's host, as the calls and the events of its group report them.
#[derive(Clone, Default)]
struct Noted {
    of_calls: Rc<RefCell<Vec<usize>>>,
    of_events: Rc<RefCell<Vec<usize>>>,
}

impl HostBudget for Noted {
    fn begin_job(&mut self, _limit: usize, survivors_here: usize) {
        self.of_calls.borrow_mut().push(survivors_here);
    }

    fn set_survivors_here(&mut self, survivors_here: usize) {
        self.of_events.borrow_mut().push(survivors_here);
    }
}

#[test]
fn the_survivors_of_a_host_share_its_memory() {
    let outcomes = play(4, 1, |rank, transport, _| {
        let config = GroupConfig {
            failures: Plan::parse("1@1")?,
            ..GroupConfig::default()
        };
        let noted = Noted::default();
        let services = Services {
            host: u64::from(rank.0 / 2),
            budget: Box::new(noted.clone()),
            ..services(rank)
        };
        let mut group = Group::new(transport, config, services)?;
        // The hosts were not known when the creation began.
        noted.of_events.take();
        for _ in 0..2 {
            group.sort_keys(&keys(rank))?;
        }
        let [mut calls, mut events] = [noted.of_calls.take(), noted.of_events.take()];
        calls.dedup();
        events.dedup();
        Ok([calls, events])
    });
    let found: Vec<[Vec<usize>; 2]> = survivors(outcomes).collect();
    assert_eq!(found[0], [[2, 1], [2, 1]]);
    assert_eq!(found[1..], [[[2], [2]], [[2], [2]]]);
}

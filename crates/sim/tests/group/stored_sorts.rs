//! Sorts that store their results: jobs that end at any step, and jobs that find the results of others.

use std::collections::{BTreeMap, BTreeSet};

use super::exclusions::start_monitor;
use super::named::{World, failures_of_two_at_every_step, jobs_ended_at_every_step};
use super::*;
use ftsort_core::group::TreeOptions;
use ftsort_core::members::RankSet;

const RANKS: usize = 3;

/// The input of a rank, if so many ranks divide the records.
fn share(rank: Rank, ranks: usize) -> Vec<i32> {
    let all: Vec<i32> = Rank::all(RANKS).flat_map(keys).collect();
    let parts: Vec<&[i32]> = all.chunks(all.len().div_ceil(ranks)).collect();
    parts[rank.0 as usize].to_vec()
}

/// The blocks of a rank by their nodes.
type Listed = BTreeMap<u32, (u64, Vec<i32>)>;

/// The outcome of a sort on one rank.
#[derive(Debug)]
struct Outcome {
    blocks: Listed,
    /// The ranks whose records are in the result.
    ranks: Vec<Rank>,
    /// It sorted, and did not only find the result.
    has_sorted: bool,
    /// The number of failed ranks that it knows.
    failed: usize,
}

fn listed(sorted: &Sorted) -> Listed {
    let blocks = sorted.blocks();
    blocks
        .map(|block| {
            let keys = block.keys::<i32>().unwrap().to_vec();
            (block.node.0, (block.offset, keys))
        })
        .collect()
}

type Program = fn(&mut SimGroup<'_>) -> Result<()>;

fn without_program(_: &mut SimGroup<'_>) -> Result<()> {
    Ok(())
}

/// The outcomes of a job.
#[derive(Default)]
struct Job {
    outcomes: Vec<Option<Result<Outcome>>>,
    /// The ranks that it reports as lost.
    lost: BTreeSet<Rank>,
    /// The ranks that had not failed when the sort began.
    begun_with: Vec<Rank>,
}

/// Runs a job on so many ranks that sorts after a program and recovers the result. An error if it hangs.
fn run_job(
    world: &World,
    ranks: usize,
    run: (u64, &[Failure]),
    program: Program,
) -> std::result::Result<Job, String> {
    let seen: Rc<RefCell<Job>> = Rc::default();
    let all_seen = Rc::clone(&seen);
    let outcomes = world.job(ranks, run, move |rank, group, world| {
        program(group)?;
        group.open_states("result")?;
        let keys = share(rank, ranks);
        let begun_with: Vec<Rank> = group.members().survivors().collect();
        seen.borrow_mut().begun_with.clone_from(&begun_with);
        let sorted = group.sort_stored(SortInput::of_keys(&keys));
        seen.borrow_mut().lost.extend(group.lost_ranks().iter());
        let mut sorted = sorted?;
        world.note_committed(1);
        let has_sorted = group.last_run().is_some();
        group.fault_check()?;
        group.recover(&mut sorted)?;
        Ok(Outcome {
            blocks: listed(&sorted),
            // A result that was found is of all ranks.
            ranks: match has_sorted {
                true => begun_with,
                false => Rank::all(ranks).collect(),
            },
            has_sorted,
            failed: group.members().faulty().len(),
        })
    })?;
    Ok(Job {
        outcomes,
        ..all_seen.take()
    })
}

impl Job {
    fn survivors(&self) -> usize {
        self.outcomes.iter().flatten().count()
    }

    /// Checks the blocks of the survivors. `was_stored`: the result was there before. Returns whether all blocks are
    /// there.
    fn check(&self, was_stored: bool) -> std::result::Result<bool, String> {
        let (mut found, mut count, mut total) = (BTreeSet::new(), 0, 0);
        for outcome in self.outcomes.iter().flatten() {
            let outcome = outcome.as_ref().map_err(ToString::to_string)?;
            if outcome.has_sorted && was_stored {
                return Err("records were sorted again".to_owned());
            }
            let ranks = outcome.ranks.iter();
            let mut all: Vec<i32> = ranks
                .flat_map(|rank| share(*rank, self.outcomes.len()))
                .collect();
            all.sort_unstable();
            total = all.len();
            for (node, (offset, keys)) in &outcome.blocks {
                let place = *offset as usize..*offset as usize + keys.len();
                if all.get(place) != Some(&keys[..]) {
                    return Err(format!("the block of node {node} is wrong"));
                }
                if found.insert(*node) {
                    count += keys.len();
                }
            }
        }
        Ok(count == total)
    }
}

/// Ends a job at a step of every rank, or lets one rank fail there and ends the others later. Other jobs, with other
/// numbers of ranks, find the result or sort. Returns whether a rank failed.
fn ended_and_continued(
    (seed, dense): (u64, bool),
    step: u32,
    spread: u32,
) -> std::result::Result<bool, String> {
    let mut world = World::default();
    world.dense = dense;
    let failures: Vec<Failure> = (0..RANKS)
        .map(|rank| crash((rank + seed as usize) % RANKS, step + spread * rank as u32))
        .collect();
    let first = run_job(&world, RANKS, (seed, &failures), without_program)?;
    if first.lost.is_empty() {
        first.check(false)?;
    }
    for (further, ranks) in (1..).zip([3, 4, 3]) {
        let was_stored = world.committed() > 0;
        let job = run_job(&world, ranks, (seed + further, &[]), without_program)?;
        let refused = vec![Some(Status::Argument); ranks];
        if first.begun_with.len() < RANKS && statuses(&job.outcomes) == refused {
            // The stored result does not have the records of a rank that failed before the sort.
            return Ok(true);
        }
        if !job.check(was_stored)? {
            return Err(format!("blocks are missing on {ranks} ranks"));
        }
    }
    Ok(first.survivors() < RANKS)
}

#[test]
fn a_result_of_a_job_that_ended_at_any_step_is_found() {
    let stride = if all_tests() { 1 } else { 5 };
    for run in [(1, false), (2, true), (3, false)] {
        let trial = |step, spread| ended_and_continued(run, step, spread);
        let found = jobs_ended_at_every_step([0, 1, 7, 60], stride, trial);
        assert_eq!(found, None, "{run:?}");
    }
}

/// Sorts after a program, with failures of ranks, after which the others go on. Returns whether a rank failed.
fn survived(
    seed: u64,
    failures: &[Failure],
    (world, program): (&World, Program),
) -> std::result::Result<bool, String> {
    let was_stored = world.committed() > 0;
    let job = run_job(world, RANKS, (seed, failures), program)?;
    let survivors = job.survivors();
    if !job.lost.is_empty() {
        let told: Vec<Status> = statuses(&job.outcomes).into_iter().flatten().collect();
        // With a stored result the inputs of the failed ranks are not needed.
        let have_failed = job
            .lost
            .iter()
            .all(|rank| job.outcomes[rank.index()].is_none());
        if told == vec![Status::DataLost; survivors] && have_failed && !was_stored {
            return Ok(true);
        }
        return Err(format!("{:?} are lost: {:?}", job.lost, job.outcomes));
    }
    let is_whole = job.check(was_stored)?;
    // A rank that fails after the last call takes its blocks along.
    let knows_all = |outcome: &Outcome| outcome.failed == RANKS - survivors;
    let mut known = job.outcomes.iter().flatten().flatten();
    if !is_whole && known.all(knows_all) && survivors > 0 {
        return Err("blocks are missing".to_owned());
    }
    Ok(survivors < RANKS)
}

/// The first error of jobs with failures of two ranks at every step. `is_stored`: the jobs find the result.
fn failures_at_every_step(
    seed: u64,
    stride: usize,
    (is_stored, program): (bool, Program),
) -> Option<String> {
    failures_of_two_at_every_step(stride, |failures| {
        let world = World::default();
        if is_stored {
            run_job(&world, RANKS, (seed, &[]), without_program).unwrap();
        }
        survived(seed, failures, (&world, program))
    })
}

#[test]
fn stored_sorts_survive_failures_at_any_step() {
    let stride = if all_tests() { 1 } else { 7 };
    for is_stored in [false, true] {
        let found = failures_at_every_step(1, stride, (is_stored, without_program));
        assert_eq!(found, None, "stored before: {is_stored}");
    }
}

#[test]
fn blocks_of_excluded_executors_are_stored() {
    let stride = if all_tests() { 1 } else { 7 };
    let found = failures_at_every_step(2, stride, (false, start_monitor));
    assert_eq!(found, None);
}

/// Every allocation and every access to a file may be refused. All ranks return the same status, and the next job has
/// the result.
#[test]
fn refused_memory_and_files_leave_the_stored_result() {
    let stride = if all_tests() { 1 } else { 5 };
    let mut refused = Vec::new();
    for is_stored in [false, true] {
        for action in (0..).step_by(stride) {
            let world = World::default();
            if is_stored {
                run_job(&world, RANKS, (1, &[]), without_program).unwrap();
            }
            let before = world.budget.actions();
            world.budget.refuse(before + action..before + action + 1);
            let job = run_job(&world, RANKS, (1, &[]), without_program);
            let job = job.unwrap();
            let found = statuses(&job.outcomes);
            assert_eq!(found, [found[0]; RANKS], "{action}");
            let actions = world.budget.actions() - before;
            world.budget.refuse(0..0);
            if found[0] == Some(Status::Ok) {
                assert_eq!(job.check(is_stored), Ok(true), "{action}");
            }
            let was_stored = world.committed() > 0;
            let last = run_job(&world, 4, (2, &[]), without_program);
            assert_eq!(last.unwrap().check(was_stored), Ok(true), "{action}");
            refused.extend(found[0].filter(|status| *status != Status::Ok));
            if action > actions {
                break;
            }
        }
    }
    assert!(refused.contains(&Status::Store) && refused.contains(&Status::Memory));
}

/// Whether a result that a sort finds after a refused action of ftsort_store_clear is found by the next job.
fn a_found_result_stays() -> bool {
    let mut is_refused = false;
    for action in 0..60 {
        let world = World::default();
        run_job(&world, RANKS, (1, &[]), without_program).unwrap();
        let job = world.job(RANKS, (1, &[]), move |rank, group, world| {
            opened(rank, group)?;
            if rank == Rank(0) {
                let before = world.budget.actions();
                world.budget.refuse(before + action..before + action + 1);
            }
            // The action may be one of this call.
            let _ = group.fault_check();
            let cleared = group.clear_states();
            world.budget.refuse(0..0);
            group.sort_stored(SortInput::of_keys(&share(rank, RANKS)))?;
            Ok(cleared.is_ok())
        });
        let cleared = job.unwrap().into_iter().flatten();
        is_refused |= cleared.map(Result::unwrap).any(|is_cleared| !is_cleared);
        let next = run_job(&world, RANKS, (1, &[]), without_program).unwrap();
        if next.check(true) != Ok(true) {
            return false;
        }
    }
    is_refused
}

#[test]
fn a_result_that_was_found_after_a_refused_clear_stays() {
    assert!(a_found_result_stays());
}

/// The errors of all ranks in a job with one more sort of these records, after a program.
fn refusals(
    world: &World,
    program: impl Fn(Rank, &mut SimGroup<'_>) -> Result<()> + 'static,
    records: impl Fn(Rank) -> Vec<i32> + 'static,
) -> Vec<Error> {
    let outcomes = world.job(RANKS, (1, &[]), move |rank, group, _| {
        program(rank, group)?;
        refusal(group.sort_stored(SortInput::of_keys(&records(rank))))
    });
    let outcomes = outcomes.unwrap().into_iter().flatten();
    outcomes.map(|outcome| outcome.unwrap()).collect()
}

fn opened(_: Rank, group: &mut SimGroup<'_>) -> Result<()> {
    group.open_states("result").map(drop)
}

/// The records of all ranks but for one of them.
fn changed(rank: Rank) -> Vec<i32> {
    let mut changed = keys(rank);
    if rank == Rank(1) {
        changed[17] += 1;
    }
    changed
}

/// Whether a sort of other records is refused.
fn other_records_are_refused() -> bool {
    let world = World::default();
    run_job(&world, RANKS, (1, &[]), without_program).unwrap();
    let job = world.job(RANKS, (1, &[]), |rank, group, _| {
        opened(rank, group)?;
        group
            .sort_stored(SortInput::of_keys(&changed(rank)))
            .map(drop)
    });
    statuses(&job.unwrap()) == [Some(Status::Argument); RANKS]
}

#[test]
fn states_that_do_not_fit_are_refused() {
    for error in refusals(&World::default(), |_, _| Ok(()), keys) {
        assert_eq!(error.status, Status::State);
        assert!(
            error.text.contains("call ftsort_store_open first"),
            "{error}"
        );
    }
    assert!(other_records_are_refused());
    let own_states = World::default();
    let job = own_states.job(RANKS, (1, &[]), |rank, group, _| {
        opened(rank, group)?;
        group.put_state(rank.home(), &[1])?;
        group.commit_states(true)
    });
    assert_eq!(statuses(&job.unwrap()), [Some(Status::Ok); RANKS]);
    let other_type = World::default();
    let job = other_type.job(RANKS, (1, &[]), |rank, group, _| {
        opened(rank, group)?;
        let keys: Vec<u32> = keys(rank).into_iter().map(|key| key as u32).collect();
        group.sort_stored(SortInput::of_keys(&keys)).map(drop)
    });
    assert_eq!(statuses(&job.unwrap()), [Some(Status::Ok); RANKS]);
    for world in [own_states, other_type] {
        for error in refusals(&world, opened, keys) {
            assert_eq!(error.status, Status::Argument);
            assert!(error.text.contains("call ftsort_store_clear"), "{error}");
        }
        let cleared = world.job(RANKS, (1, &[]), |rank, group, _| {
            opened(rank, group)?;
            group.clear_states()?;
            Ok(parts(&group.sort_stored(SortInput::of_keys(&keys(rank)))?))
        });
        assert_eq!(joined(cleared.unwrap()), all_keys(RANKS));
    }
}

/// The records of a rank that has failed are not compared, and are not lost, if the result is stored.
#[test]
fn a_result_is_found_after_failures() {
    for (plan, checks, records, expected) in [
        ("2@20", true, keys as fn(Rank) -> Vec<i32>, Status::Ok),
        ("2@20", true, changed, Status::Argument),
        ("1@20", true, changed, Status::Ok),
        ("2@20", false, changed, Status::DataLost),
    ] {
        let world = World::failing(plan, 0);
        let stored = world.job(RANKS, (1, &[]), |rank, group, _| {
            opened(rank, group)?;
            group.sort_stored(SortInput::of_keys(&keys(rank))).map(drop)
        });
        assert_eq!(statuses(&stored.unwrap()), [Some(Status::Ok); RANKS]);
        let found = world.job(RANKS, (1, &[]), move |rank, group, _| {
            opened(rank, group)?;
            group.inject(20)?;
            if checks {
                group.fault_check()?;
            }
            let sorted = group.sort_stored(SortInput::of_keys(&records(rank)));
            let lost = RankSet::of(RANKS, [Rank(2)].into_iter().filter(|_| !checks));
            assert_eq!(*group.lost_ranks(), lost);
            Ok(parts(&sorted?))
        });
        let found = found.unwrap();
        let told: Vec<Status> = statuses(&found).into_iter().flatten().collect();
        assert_eq!(told, [expected; RANKS - 1], "{plan}");
        if expected == Status::Ok {
            assert_eq!(joined(found), all_keys(RANKS), "{plan}");
        }
    }
}

/// Whether a result with the records of more ranks than there are now is refused.
fn records_of_absent_ranks_are_refused() -> bool {
    let world = World::default();
    let stored = run_job(&world, 4, (1, &[]), without_program).unwrap();
    let of_three = |failures, spares| {
        let world = world.with_failures(failures, spares);
        let job = world.job(3 + spares, (1, &[]), |rank, group, _| {
            opened(rank, group)?;
            group.inject(20)?;
            group.fault_check()?;
            let mine = match rank.0 {
                3 => Vec::new(),
                _ => share(rank, 4),
            };
            group.sort_stored(SortInput::of_keys(&mine)).map(drop)
        });
        statuses(&job.unwrap())
    };
    let refused = Some(Status::Argument);
    stored.check(false) == Ok(true)
        && of_three("", 0) == [refused; 3]
        && of_three("", 1) == [refused; 4]
        && of_three("1@20", 0) == [refused, None, refused]
        && of_three("3@20", 1) == [refused, refused, refused, None]
}

#[test]
fn a_result_with_further_records_is_not_returned() {
    assert!(records_of_absent_ranks_are_refused());
}

/// A result without the records of a rank that had failed is not returned if the rank fails in the call of a later job.
#[test]
fn a_result_without_a_rank_is_not_returned() {
    let world = World::failing("1@20", 0);
    for (checks, expected) in [(true, Status::Ok), (false, Status::DataLost)] {
        let job = world.job(RANKS, (1, &[]), move |rank, group, _| {
            opened(rank, group)?;
            group.inject(20)?;
            if checks {
                group.fault_check()?;
            }
            group
                .sort_stored(SortInput::of_keys(&keys(rank)))
                .map(|sorted| sorted.total())
        });
        let found = statuses(&job.unwrap());
        assert_eq!(found, [Some(expected), None, Some(expected)]);
    }
}

/// A rank without a block knows the number of records, and a spare takes over from a rank that fails after the sort or
/// before the result is found.
#[test]
fn spares_take_part_in_stored_sorts() {
    for (plan, checks) in [("", false), ("1@20", false), ("1@20", true)] {
        let world = World::failing(plan, 1);
        for job in 0..3 {
            let outcomes = world.job(RANKS + 1, (1, &[]), move |rank, group, _| {
                opened(rank, group)?;
                let is_spare = rank.0 as usize == RANKS;
                let keys = if is_spare { Vec::new() } else { keys(rank) };
                if job == 1 {
                    group.inject(20)?;
                }
                if checks {
                    group.fault_check()?;
                }
                let mut sorted = group.sort_stored(SortInput::of_keys(&keys))?;
                assert_eq!(sorted.total(), 100 * RANKS as u64);
                group.inject(20)?;
                group.fault_check()?;
                group.recover(&mut sorted)?;
                assert_eq!(sorted.is_empty(), is_spare && plan.is_empty());
                Ok(parts(&sorted))
            });
            let outcomes = outcomes.unwrap();
            assert_eq!(joined(outcomes), all_keys(RANKS), "{plan}, job {job}");
        }
    }
}

/// A spare that has taken over passes records, and fails in a call that finds the result.
#[test]
fn a_result_with_records_of_a_spare_is_found() {
    let world = World::failing("1@20 3@21", 1);
    let outcomes = world.job(RANKS + 1, (1, &[]), |rank, group, _| {
        opened(rank, group)?;
        group.inject(20)?;
        group.fault_check()?;
        let keys = keys(rank);
        let stored = group.sort_stored(SortInput::of_keys(&keys))?.total();
        group.inject(21)?;
        let found = group.sort_stored(SortInput::of_keys(&keys))?.total();
        Ok((stored, found))
    });
    let found: Vec<_> = outcomes.unwrap().into_iter().flatten().collect();
    assert!(
        matches!(&found[..], [Ok((300, 300)), Ok((300, 300))]),
        "{found:?}"
    );
}

/// A result is recovered as long as it is stored, and a gathering takes part in that.
#[test]
fn a_stored_result_is_recovered_after_failures() {
    for seed in SEEDS {
        for clears in [false, true] {
            let world = World::failing("1@20", 0);
            let outcomes = world.job(RANKS, (seed, &[]), move |rank, group, _| {
                opened(rank, group)?;
                let mut sorted = group.sort_stored(SortInput::of_keys(&keys(rank)))?;
                let before = addresses(&sorted);
                if clears {
                    group.clear_states()?;
                }
                group.inject(20)?;
                let recovered = group.recover(&mut sorted);
                let after = addresses(&sorted);
                assert!(before.iter().all(|address| after.contains(address)));
                recovered?;
                let mut gathered = Vec::new();
                let options = TreeOptions::default();
                group.gather(options, &mut sorted, &mut |bytes| {
                    gathered.extend_from_slice(bytes);
                    Ok(())
                })?;
                Ok((parts(&sorted), gathered))
            });
            let outcomes = outcomes.unwrap();
            if clears {
                let told = [Some(Status::DataLost), None, Some(Status::DataLost)];
                assert_eq!(statuses(&outcomes), told, "seed {seed}");
                continue;
            }
            let outcomes = outcomes.into_iter();
            let mut gathered = Vec::new();
            let blocks = outcomes.map(|outcome| {
                let outcome = outcome?;
                Some(outcome.map(|(parts, bytes)| {
                    gathered.extend(bytes);
                    parts
                }))
            });
            let blocks: Vec<_> = blocks.collect();
            assert_eq!(joined(blocks), all_keys(RANKS), "seed {seed}");
            let expected = all_keys(RANKS).into_iter().flat_map(i32::to_ne_bytes);
            assert_eq!(gathered, expected.collect::<Vec<u8>>(), "seed {seed}");
        }
    }
}

/// The mutants of stored sorts, and the test that detects each.
#[test]
fn every_mutant_of_stored_sorts_is_detected() {
    let failed: Detects = || failures_at_every_step(1, 1, (false, without_program)).is_some();
    let detected: [(Mutant, Detects); 5] = [
        (Mutant::NameNotConfirmed, || !a_found_result_stays()),
        (Mutant::UnstoredResultCounted, failed),
        (Mutant::RecordsOfAbsentRanksReturned, || {
            !records_of_absent_ranks_are_refused()
        }),
        (Mutant::StoredBlocksNotListedAgain, failed),
        (Mutant::ResultOfOtherInputReturned, || {
            !other_records_are_refused()
        }),
    ];
    assert_detected(&detected);
}

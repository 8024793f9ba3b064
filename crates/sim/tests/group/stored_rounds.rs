//! User-defined algorithms that store their states: jobs that end at any step, and jobs that continue them.

use std::collections::{BTreeMap, BTreeSet};

use super::exclusions::start_monitor;
use super::named::{World, failures_of_two_at_every_step, jobs_ended_at_every_step};
use super::*;
use ftsort_core::group::{FinalStates, RoundsInput};
use ftsort_core::rounds::sequential::run_all_nodes;
use ftsort_core::rounds::{Round, bytes};

const RANKS: usize = 3;

/// Adds up the states along the dimensions, and adds the value that the nodes shared last. Only rounds 2 and 5 share a
/// value.
pub struct Sums {
    world: World,
    every: u32,
    /// Numbers of rounds that this rank has run.
    run: Rc<RefCell<BTreeSet<u32>>>,
}

impl Sums {
    pub fn new(world: &World, every: u32) -> Sums {
        Sums {
            world: world.clone(),
            every,
            run: Rc::default(),
        }
    }
}

const ROUNDS: u32 = 6;

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn of_number(number: u64) -> Result<Slice> {
    bytes(&number.to_le_bytes())
}

/// The state with which a node begins, which may be empty: the home rank may have failed before.
pub fn initial(node: u32) -> Vec<u8> {
    match node {
        1 => Vec::new(),
        _ => (100 + u64::from(node)).to_le_bytes().to_vec(),
    }
}

impl Rounds for Sums {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        (1..=ROUNDS)
            .map(|round| match round {
                2 => Round::along(0).sharing(dimension),
                5 => Round::local().sharing(1),
                3 => Round::local(),
                _ => Round::along(round % dimension),
            })
            .collect()
    }

    fn init(&self, node: Node) -> Result<Slice> {
        bytes(&initial(node.0))
    }

    fn propose(&self, task: &Task<'_>) -> Result<Slice> {
        of_number((number(task.state).wrapping_mul(3)).wrapping_add(number(task.shared)))
    }

    fn decide(&self, task: &Task<'_>, proposals: &[(Node, Slice)]) -> Result<Slice> {
        let proposed = proposals.iter().map(|(_, proposal)| number(proposal));
        of_number(proposed.fold(number(task.shared), |sum, one| {
            sum.wrapping_mul(7).wrapping_add(one)
        }))
    }

    fn emit(&self, task: &Task<'_>) -> Result<Slice> {
        of_number(number(task.state).wrapping_add(number(task.shared)))
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        // A part of the rounds has the number of all rounds.
        assert_eq!(task.rounds, ROUNDS);
        // The states before this part are stored.
        let stored = (task.round - 1) / self.every * self.every;
        self.world.note_committed(stored);
        self.run.borrow_mut().insert(task.round);
        let sum = number(task.state)
            .wrapping_mul(u64::from(task.round) + 10)
            .wrapping_add(number(&inbox))
            .wrapping_add(number(task.shared) << 1);
        of_number(sum ^ u64::from(task.node.0))
    }
}

fn expected() -> Vec<u64> {
    expected_from((0..RANKS as u32).map(initial))
}

/// The states after all rounds, if the ranks provide these.
pub fn expected_from(inputs: impl Iterator<Item = Vec<u8>>) -> Vec<u64> {
    let inputs: Vec<Vec<u8>> = inputs.collect();
    let states = run_all_nodes(&Sums::new(&World::default(), 1), &inputs).unwrap();
    states.iter().map(|state| number(state)).collect()
}

/// The outcome of a run on one rank.
#[derive(Debug)]
struct Outcome {
    states: BTreeMap<u32, u64>,
    /// The first round that it ran.
    first: Option<u32>,
    /// The number of failed ranks that it knows.
    failed: usize,
}

pub fn listed(states: &FinalStates) -> BTreeMap<u32, u64> {
    let states = states.iter();
    states
        .map(|(node, state)| (node.0, number(state)))
        .collect()
}

pub fn run_stored(
    group: &mut SimGroup<'_>,
    rounds: &dyn Rounds,
    (state, every): (&[u8], u32),
) -> Result<FinalStates> {
    group.run_rounds_checked(Ok(RoundsInput {
        rounds,
        state,
        caller_fingerprint: 0,
        store_every: every,
    }))
}

/// Opens the states, runs the rounds that are left, and recovers the result.
fn continue_rounds(
    every: u32,
    (rank, group, world): (Rank, &mut SimGroup<'_>, &World),
) -> Result<Outcome> {
    group.open_states("loop")?;
    let sums = Sums::new(world, every);
    // A later job has other initial states, which are not read.
    let state = match world.committed() {
        0 => initial(rank.0),
        _ => Vec::from([9; 8]),
    };
    let mut result = run_stored(group, &sums, (&state, every))?;
    world.note_committed(ROUNDS);
    group.fault_check()?;
    group.recover_states(&mut result)?;
    let first = sums.run.borrow().first().copied();
    Ok(Outcome {
        states: listed(&result),
        first,
        failed: group.members().faulty().len(),
    })
}

type Outcomes = Vec<Option<Result<Outcome>>>;

type Program = fn(&mut SimGroup<'_>) -> Result<()>;

fn without_program(_: &mut SimGroup<'_>) -> Result<()> {
    Ok(())
}

/// Runs a job that continues the rounds after a program. Also returns the ranks that it reports as lost. An error if it
/// hangs.
fn run_job(
    world: &World,
    (seed, every): (u64, u32),
    failures: &[Failure],
    program: Program,
) -> std::result::Result<(Outcomes, BTreeSet<Rank>), String> {
    let lost: Rc<RefCell<BTreeSet<Rank>>> = Rc::default();
    let all_lost = Rc::clone(&lost);
    let outcomes = world.job(RANKS, (seed, failures), move |rank, group, world| {
        program(group)?;
        let outcome = continue_rounds(every, (rank, group, world));
        lost.borrow_mut().extend(group.lost_ranks().iter());
        outcome
    });
    Ok((outcomes?, all_lost.take()))
}

/// Checks the states of the survivors of a job, which began after `before` rounds were stored.
fn check(
    outcomes: &[Option<Result<Outcome>>],
    before: u32,
) -> std::result::Result<BTreeMap<u32, u64>, String> {
    let mut all = BTreeMap::new();
    for outcome in outcomes.iter().flatten() {
        let Outcome { states, first, .. } = outcome.as_ref().map_err(ToString::to_string)?;
        if first.is_some_and(|first| first <= before) {
            return Err(format!("round {first:?} was run again after {before}"));
        }
        all.extend(states);
    }
    let expected = expected();
    match all
        .iter()
        .find(|(node, state)| expected[**node as usize] != **state)
    {
        Some((node, _)) => Err(format!("the state of node {node} is wrong")),
        None => Ok(all),
    }
}

/// Ends a job at a step of every rank, or lets one rank fail there and ends the others later, and continues it. Returns
/// whether a rank failed.
fn ended_and_continued(
    (seed, every): (u64, u32),
    step: u32,
    spread: u32,
) -> std::result::Result<bool, String> {
    let world = World::default();
    let job =
        |seed: u64, failures: &[Failure]| run_job(&world, (seed, every), failures, without_program);
    let failures: Vec<Failure> = (0..RANKS)
        .map(|rank| crash((rank + seed as usize) % RANKS, step + spread * rank as u32))
        .collect();
    let (outcomes, lost) = job(seed, &failures)?;
    let is_lost = statuses(&outcomes).contains(&Some(Status::DataLost));
    if let Some(rank) = lost.iter().find(|rank| has_initial_file(&world, **rank)) {
        return Err(format!("rank {rank} had stored its state"));
    }
    if !is_lost {
        check(&outcomes, 0)?;
    }
    let before = world.committed();
    let (last, _) = job(seed + 1, &[])?;
    let all = check(&last, before)?;
    if all.len() != 4 || world.committed() != ROUNDS {
        return Err(format!("{all:?}, {} rounds", world.committed()));
    }
    // The finished result is returned at once.
    let (again, _) = job(seed + 2, &[])?;
    if check(&again, ROUNDS)?.len() != 4 {
        return Err("states of the finished run are missing".to_owned());
    }
    Ok(outcomes.iter().any(Option::is_none))
}

/// Whether a file with the complete initial state of a rank's node exists.
fn has_initial_file(world: &World, rank: Rank) -> bool {
    let end = format!("-n{rank}");
    let mut names = world.names().into_iter();
    names.any(|name| name.contains("-v1-") && name.ends_with(&end))
}

#[test]
fn rounds_of_a_job_that_ended_at_any_step_are_continued() {
    let stride = if all_tests() { 1 } else { 5 };
    for run in [(1, 1), (2, 2), (3, 4), (4, 9)] {
        let trial = |step, spread| ended_and_continued(run, step, spread);
        let found = jobs_ended_at_every_step([0, 1, 7, 60], stride, trial);
        assert_eq!(found, None, "{run:?}");
    }
}

/// Runs the rounds after a program, with failures of ranks, after which the others go on. Returns whether a rank failed.
fn survived(
    run: (u64, u32),
    failures: &[Failure],
    world: &World,
    program: Program,
) -> std::result::Result<bool, String> {
    let (outcomes, lost) = run_job(world, run, failures, program)?;
    let survivors = statuses(&outcomes).into_iter().flatten().count();
    if let Some(rank) = lost.first() {
        let expected = vec![Status::DataLost; survivors];
        let told: Vec<Status> = statuses(&outcomes).into_iter().flatten().collect();
        return match told == expected && !has_initial_file(world, *rank) {
            true => Ok(true),
            false => Err(format!("rank {rank} is lost: {outcomes:?}")),
        };
    }
    let all = check(&outcomes, 0)?;
    // A rank that fails after the last call takes its states along.
    let knows_all = |outcome: &Outcome| outcome.failed == RANKS - survivors;
    let mut known = outcomes.iter().flatten().flatten();
    if all.len() != 4 && known.all(knows_all) && survivors > 0 {
        return Err(format!("{all:?}"));
    }
    Ok(survivors < RANKS)
}

/// The first error of runs with failures of two ranks at every step.
fn failures_at_every_step(run: (u64, u32), stride: usize, program: Program) -> Option<String> {
    failures_of_two_at_every_step(stride, |failures| {
        survived(run, failures, &World::default(), program)
    })
}

#[test]
fn rounds_survive_failures_at_any_step() {
    let stride = if all_tests() { 1 } else { 7 };
    for run in [(1, 1), (2, 2), (3, 9)] {
        assert_eq!(failures_at_every_step(run, stride, without_program), None);
    }
}

/// Whether an excluded rank runs nothing, because each part is stored without it.
fn excluded_ranks_run_nothing() -> bool {
    let world = World::default();
    let (outcomes, _) = run_job(&world, (1, 2), &[], start_monitor).unwrap();
    let outcomes = outcomes.into_iter().flatten();
    let firsts: Vec<Option<u32>> = outcomes.map(|outcome| outcome.unwrap().first).collect();
    firsts == [Some(1), Some(1), None]
}

#[test]
fn states_of_excluded_executors_are_stored() {
    assert!(excluded_ranks_run_nothing());
    let stride = if all_tests() { 1 } else { 7 };
    for run in [(1, 1), (2, 4)] {
        assert_eq!(failures_at_every_step(run, stride, start_monitor), None);
    }
}

/// Injected failures name the rounds of the whole algorithm, however many rounds are stored at once.
#[test]
fn failures_are_injected_in_rounds_of_the_whole_algorithm() {
    for every in [1, 2, 4, 6] {
        for (plan, failed) in [("1@2 2@5", 2), ("0@6.send", 1), ("2@7", 0)] {
            let world = World::failing(plan, 0);
            let outcomes = run_job(&world, (1, every), &[], without_program);
            let (outcomes, _) = outcomes.unwrap();
            let gone = outcomes.iter().filter(|outcome| outcome.is_none()).count();
            assert_eq!(gone, failed, "{plan}, every {every}");
            assert_eq!(
                check(&outcomes, 0).map(|all| all.len()),
                Ok(4),
                "{plan}, every {every}"
            );
        }
    }
}

/// The world after some rounds, with states stored after each.
fn world_after(rounds: u32) -> World {
    let world = World::default();
    for step in (100..).step_by(10) {
        let failures: Vec<Failure> = (0..RANKS).map(|rank| crash(rank, step)).collect();
        let job = run_job(&world, (1, 1), &failures, without_program);
        job.unwrap();
        if world.committed() >= rounds {
            break;
        }
    }
    world
}

/// Every allocation and every access to a file may be refused. All ranks return the same status, and the next job
/// continues.
#[test]
fn refused_memory_and_files_leave_the_stored_rounds() {
    let stride = if all_tests() { 1 } else { 5 };
    let mut refused = Vec::new();
    for rounds in [0, 2] {
        for action in (0..).step_by(stride) {
            let world = if rounds == 0 {
                World::default()
            } else {
                world_after(rounds)
            };
            let committed = world.committed();
            let before = world.budget.actions();
            world.budget.refuse(before + action..before + action + 1);
            let outcomes = run_job(&world, (1, 2), &[], without_program);
            let (outcomes, _) = outcomes.unwrap();
            let found = statuses(&outcomes);
            assert_eq!(found, [found[0]; RANKS], "{action}");
            let actions = world.budget.actions() - before;
            world.budget.refuse(0..0);
            if found[0] == Some(Status::Ok) {
                assert_eq!(check(&outcomes, committed).map(|all| all.len()), Ok(4));
            }
            let committed = world.committed();
            let last = run_job(&world, (2, 1), &[], without_program);
            let all = check(&last.unwrap().0, committed).map(|all| all.len());
            assert_eq!(all, Ok(4), "{action}");
            refused.extend(found[0].filter(|status| *status != Status::Ok));
            if action > actions {
                break;
            }
        }
    }
    assert!(refused.contains(&Status::Store) && refused.contains(&Status::Memory));
}

/// An algorithm with other rounds.
struct Others;

impl Rounds for Others {
    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        Ok(task.state.clone())
    }
}

/// The errors of all ranks in a job of one more run, after the program.
fn refusals(
    world: &World,
    program: impl Fn(Rank, &mut SimGroup<'_>) -> Result<()> + 'static,
) -> Vec<Error> {
    let outcomes = world.job(RANKS, (1, &[]), move |rank, group, world| {
        program(rank, group)?;
        let sums = Sums::new(world, 1);
        refusal(run_stored(group, &sums, (&initial(rank.0), 1)))
    });
    let outcomes = outcomes.unwrap().into_iter().flatten();
    outcomes.map(|outcome| outcome.unwrap()).collect()
}

#[test]
fn states_that_do_not_fit_are_refused() {
    for error in refusals(&World::default(), |_, _| Ok(())) {
        assert_eq!(error.status, Status::State);
        assert!(
            error.text.contains("call ftsort_store_open first"),
            "{error}"
        );
    }
    let other_rounds = World::default();
    let job = other_rounds.job(RANKS, (1, &[]), |_, group, _| {
        group.open_states("loop")?;
        run_stored(group, &Others, (&[1], 1)).map(drop)
    });
    assert_eq!(statuses(&job.unwrap()), [Some(Status::Ok); RANKS]);
    let own_states = World::default();
    let job = own_states.job(RANKS, (1, &[]), |rank, group, _| {
        group.open_states("loop")?;
        group.put_state(rank.home(), &[1])?;
        group.commit_states(true)
    });
    assert_eq!(statuses(&job.unwrap()), [Some(Status::Ok); RANKS]);
    for world in [other_rounds, own_states] {
        let errors = refusals(&world, |_, group| group.open_states("loop").map(drop));
        for error in errors {
            assert_eq!(error.status, Status::Argument);
            assert!(error.text.contains("call ftsort_store_clear"), "{error}");
        }
        let cleared = world.job(RANKS, (1, &[]), |rank, group, world| {
            group.open_states("loop")?;
            group.clear_states()?;
            let sums = Sums::new(world, 1);
            Ok(listed(&run_stored(group, &sums, (&initial(rank.0), 1))?).len())
        });
        let states: usize = cleared
            .unwrap()
            .into_iter()
            .flatten()
            .map(Result::unwrap)
            .sum();
        assert_eq!(states, 4);
    }
}

#[test]
fn the_ranks_agree_on_the_rounds_that_are_stored_at_once() {
    let world = World::default();
    let outcomes = world.job(RANKS, (1, &[]), |rank, group, world| {
        group.open_states("loop")?;
        let sums = Sums::new(world, 1);
        refusal(run_stored(group, &sums, (&initial(rank.0), 1 + rank.0)))
    });
    for error in outcomes.unwrap().into_iter().flatten() {
        assert_eq!(error.unwrap().status, Status::Argument);
    }
}

/// A result is recovered as long as its states are stored.
#[test]
fn a_stored_result_is_recovered_after_failures() {
    for seed in SEEDS {
        for clears in [false, true] {
            let world = World::failing("1@20", 0);
            let outcomes = world.job(RANKS, (seed, &[]), move |rank, group, world| {
                group.open_states("loop")?;
                let sums = Sums::new(world, 2);
                let mut result = run_stored(group, &sums, (&initial(rank.0), 2))?;
                let before: Vec<*const u8> =
                    result.iter().map(|(_, state)| state.as_ptr()).collect();
                if clears {
                    group.clear_states()?;
                }
                group.inject(20)?;
                let recovered = group.recover_states(&mut result);
                assert!(
                    result
                        .iter()
                        .zip(before)
                        .all(|((_, state), at)| state.as_ptr() == at)
                );
                recovered?;
                // The failure before the recovery takes nothing from the states that it listed.
                group.clear_states()?;
                group.recover_states(&mut result)?;
                Ok(listed(&result))
            });
            let outcomes = outcomes.unwrap();
            if clears {
                let told = [Some(Status::DataLost), None, Some(Status::DataLost)];
                assert_eq!(statuses(&outcomes), told, "seed {seed}");
                continue;
            }
            let all: BTreeMap<u32, u64> = survivors(outcomes).flatten().collect();
            let all: Vec<u64> = all.into_values().collect();
            assert_eq!(all, expected(), "seed {seed}");
        }
    }
}

/// After a first call with other initial states, in which an action was refused, a rank fails in a second call. Returns
/// whether the result is that of one of the calls.
fn states_of_an_earlier_call_are_not_used() -> bool {
    // The first call takes some 60 actions, and writes the initial states among them.
    for action in 20..60 {
        for step in (60..160).step_by(2) {
            let world = World::default();
            let failures = [crash(2, step)];
            world.budget.refuse(action..action + 1);
            let outcomes = world.job(RANKS, (1, &failures), |rank, group, world| {
                group.open_states("loop")?;
                let sums = Sums::new(world, 1);
                let first = run_stored(group, &sums, (&[7; 8], 1));
                if first.is_ok() {
                    return Ok(None);
                }
                let states = run_stored(group, &sums, (&initial(rank.0), 1))?;
                Ok(Some(listed(&states)))
            });
            // The second call continues the first one if that has stored its states.
            let possible = [expected(), expected_from((0..RANKS).map(|_| vec![7; 8]))];
            let states = outcomes.unwrap().into_iter().flatten().flatten().flatten();
            let states: Vec<(u32, u64)> = states.flatten().collect();
            let is_right = |expected: &Vec<u64>| {
                let mut states = states.iter();
                states.all(|(node, state)| expected[*node as usize] == *state)
            };
            if !possible.iter().any(is_right) {
                return false;
            }
        }
    }
    true
}

#[test]
fn initial_states_are_those_of_the_call() {
    assert!(states_of_an_earlier_call_are_not_used());
}

/// The mutants of stored rounds, and the test that detects each.
#[test]
fn every_mutant_of_stored_rounds_is_detected() {
    let failed: Detects = || failures_at_every_step((1, 1), 1, without_program).is_some();
    let detected: [(Mutant, Detects); 5] = [
        (Mutant::RoundsOfFailedRankStored, failed),
        (Mutant::UnstoredRoundsCounted, failed),
        (Mutant::SharedValueNotContinued, failed),
        (Mutant::ExclusionsForgottenAtCommit, || {
            !excluded_ranks_run_nothing()
        }),
        (Mutant::StatesOfEarlierCallUsed, || {
            !states_of_an_earlier_call_are_not_used()
        }),
    ];
    assert_detected(&detected);
}

//! States with a name: jobs that end at any step, and jobs that continue the states of others.

use std::cell::Cell;

use super::refusals::Limited;
use super::stored_rounds::initial;
use super::*;
use ftsort_core::group::Reload;
use ftsort_core::store::directory::Series;
use ftsort_core::store::named::StatesManifest;
use ftsort_kernels::memory::MemoryBudget;

pub const RANKS: usize = 3;

const ROUNDS: u8 = 3;

pub const MANIFEST: &str = "ftsort-loop.states";

/// The state in a round with which a rank is not done.
const UNFINISHED: u8 = 99;

/// The files that jobs leave to each other, and their progress.
#[derive(Clone, Default)]
pub struct World {
    pub files: SharedFiles,
    /// The number of jobs so far.
    jobs: Rc<Cell<u64>>,
    /// The last round of which a rank knows that it is committed.
    committed: Rc<Cell<u32>>,
    /// The memory of all ranks together.
    pub budget: MemoryBudget,
    /// Failures that are injected in jobs.
    failures: Plan,
    spares: usize,
    /// Results are dense.
    pub dense: bool,
    pub model: FileModel,
    /// Initial states can be loaded again.
    pub reloads: bool,
    /// Data are checked by digests.
    pub digests: bool,
}

/// The first round of a job, and whether it found states; None: the rank failed.
type Starts = Vec<Option<Result<(u8, bool)>>>;

/// A program of ranks in a group with the files of a world.
type WorldProgram<R> = Box<dyn Fn(Rank, &mut SimGroup<'_>, &World) -> Result<R>>;

impl World {
    /// A world with failures that are injected in its jobs, and spares.
    pub fn failing(plan: &str, spares: usize) -> World {
        World::default().with_failures(plan, spares)
    }

    /// The same files, with these failures and spares in later jobs.
    pub fn with_failures(&self, plan: &str, spares: usize) -> World {
        World {
            failures: Plan::parse(plan).expect("a failure schedule"),
            spares,
            ..self.clone()
        }
    }

    /// The last round of which a rank knows that it is committed.
    pub fn committed(&self) -> u32 {
        self.committed.get()
    }

    /// Notes that the states after a round are committed.
    pub fn note_committed(&self, round: u32) {
        self.committed.set(self.committed.get().max(round));
    }

    /// The configuration of a rank, with these files.
    pub fn config(&self, handle: &RankHandle) -> GroupConfig {
        GroupConfig {
            store: store_in(&self.files, handle, self.model),
            failures: self.failures.clone(),
            spares: self.spares,
            dense: self.dense,
            checks: DataChecks {
                digest: self.digests,
                purity: false,
            },
            ..GroupConfig::default()
        }
    }

    /// Runs one job. An error if it hangs.
    pub fn job<R: 'static>(
        &self,
        ranks: usize,
        run: (u64, &[Failure]),
        program: impl Fn(Rank, &mut SimGroup<'_>, &World) -> Result<R> + 'static,
    ) -> std::result::Result<Vec<Option<Result<R>>>, String> {
        self.job_of(ranks, run, Box::new(program))
    }

    fn job_of<R: 'static>(
        &self,
        ranks: usize,
        run: (u64, &[Failure]),
        program: WorldProgram<R>,
    ) -> std::result::Result<Vec<Option<Result<R>>>, String> {
        self.jobs.set(self.jobs.get() + 1);
        let (world, number) = (self.clone(), self.jobs.get());
        try_play(ranks, run, move |rank, mpi, handle| {
            let services = Services {
                nonce: 1000 * number + u64::from(rank.0),
                budget: Box::new(Limited(world.budget.clone())),
                reload: world.reloads.then(|| -> Box<dyn Reload> {
                    Box::new(|rank: Rank| Buffer::copy_of(&initial(rank.0)))
                }),
                ..Services::default()
            };
            let mut group = Group::new(transport(mpi), world.config(&handle), services)?;
            program(rank, &mut group, &world)
        })
    }

    /// Runs a job that continues the loop. An error for a wrong state, and if committed work is repeated.
    pub fn continued(
        &self,
        ranks: usize,
        run: (u64, &[Failure]),
    ) -> std::result::Result<usize, String> {
        let before = self.committed();
        let starts: Starts = self.job(ranks, run, continue_loop)?;
        let starts: Vec<_> = starts.into_iter().flatten().collect();
        for start in &starts {
            match start {
                Err(error) => return Err(error.to_string()),
                Ok((first, found)) if !(before..=before + 1).contains(&u32::from(*first)) => {
                    let found = if *found { "found" } else { "no" };
                    return Err(format!("{found} states, round {first} after {before}"));
                }
                Ok(_) => {}
            }
        }
        Ok(starts.len())
    }

    pub fn names(&self) -> Vec<String> {
        self.files.borrow().names()
    }
}

/// The round of which all nodes of this rank have the state.
fn round_of(group: &SimGroup<'_>) -> Result<u8> {
    let nodes = group.members().my_nodes();
    let rounds: Result<Vec<Option<u8>>> = nodes
        .into_iter()
        .map(|node| match group.state(node)? {
            None => Ok(Some(0)),
            Some([of, round]) => Ok((*of == node.0 as u8 && *round <= ROUNDS).then_some(*round)),
            Some(_) => Ok(None),
        })
        .collect();
    let rounds = rounds?;
    match rounds.first() {
        Some(Some(first)) if rounds.iter().all(|round| *round == Some(*first)) => Ok(*first),
        _ => Err(Error::new(Status::DataLost, format!("{rounds:?}"))),
    }
}

pub fn put(group: &mut SimGroup<'_>, round: u8) -> Result<()> {
    for node in group.members().my_nodes() {
        group.put_state(node, &[node.0 as u8, round])?;
    }
    Ok(())
}

/// The loop of a program: in the first attempt at each round the last rank is not done. It begins with a sort, of which an
/// interrupted job leaves the files.
fn continue_loop(rank: Rank, group: &mut SimGroup<'_>, world: &World) -> Result<(u8, bool)> {
    let found = group.open_states("loop")?;
    let first = round_of(group)?;
    world.note_committed(first.into());
    let mut round = first;
    if round < ROUNDS {
        match group.sort_keys(&keys(rank)) {
            // A rank has failed before its input was in a file.
            Err(error) if error.status == Status::DataLost => {}
            sorted => drop(sorted?),
        }
    }
    let mut holds_up = true;
    while round < ROUNDS {
        group.fault_check()?;
        let is_last = group.members().survivors().last() == Some(group.members().me());
        put(group, if holds_up { UNFINISHED } else { round + 1 })?;
        let committed = group.commit_states(!(holds_up && is_last))?;
        holds_up = !holds_up;
        if committed {
            round += 1;
            world.note_committed(round.into());
            assert_eq!(round_of(group)?, round);
        }
    }
    group.finish()?;
    Ok((first, found))
}

/// Ends a job at a step of every rank, or lets one rank fail there and ends the others later, and continues it with
/// another number of ranks. Returns whether the first job was ended.
fn ended_and_continued(seed: u64, step: u32, spread: u32) -> TrialOutcome {
    let world = World::default();
    let failures: Vec<Failure> = (0..RANKS)
        .map(|rank| crash((rank + seed as usize) % RANKS, step + spread * rank as u32))
        .collect();
    let survivors = world.continued(RANKS, (seed, &failures))?;
    // Files of a job that has not opened its states are not known to the next one.
    let is_known = world.names().iter().any(|name| name == MANIFEST);
    let unknown = if is_known { Vec::new() } else { world.names() };
    let ranks = [3, 4][step as usize % 2];
    world.continued(ranks, (seed + 1, &[]))?;
    let left = || -> Vec<String> {
        let names = world.names().into_iter();
        names.filter(|name| !unknown.contains(name)).collect()
    };
    // States with a name stay when the group ends: those of the last commit, and of the one before.
    if world.committed() != u32::from(ROUNDS) || !(5..=9).contains(&left().len()) {
        return Err(format!("{} rounds, {:?}", world.committed(), left()));
    }
    let cleared: Vec<Option<Result<bool>>> = world.job(RANKS, (seed, &[]), |_, group, _| {
        let found = group.open_states("loop")?;
        assert_eq!(round_of(group)?, ROUNDS);
        group.clear_states()?;
        group.finish()?;
        Ok(found)
    })?;
    if statuses(&cleared) != [Some(Status::Ok); RANKS] || !left().is_empty() {
        return Err(format!("{cleared:?}, {:?}", left()));
    }
    Ok(survivors < RANKS)
}

/// Whether a rank has failed in a trial; an error if its outcome is wrong.
pub type TrialOutcome = std::result::Result<bool, String>;

/// Ends jobs at every `stride`-th step, with these numbers of steps from the end of one rank to that of the next. `trial`
/// receives the step and the number. Returns the first error.
pub fn jobs_ended_at_every_step(
    spreads: [u32; 4],
    stride: usize,
    trial: impl Fn(u32, u32) -> TrialOutcome,
) -> Option<String> {
    for spread in spreads {
        for step in (1..).step_by(stride) {
            match trial(step, spread) {
                Ok(true) => {}
                Ok(false) => break,
                Err(text) => return Some(format!("step {step} spread {spread}: {text}")),
            }
        }
    }
    None
}

/// The first error of loops that end at every step.
fn loops_ended_at_every_step(seed: u64, stride: usize) -> Option<String> {
    let trial = |step, spread| ended_and_continued(seed, step, spread);
    jobs_ended_at_every_step([0, 1, 5, 40], stride, trial)
}

/// One of three ranks fails at every `stride`-th step, and another one some steps later. Returns the first error.
pub fn failures_of_two_at_every_step(
    stride: usize,
    trial: impl Fn(&[Failure]) -> TrialOutcome,
) -> Option<String> {
    for spread in [1, 5, 20, 1000] {
        for (one, other) in [(0, 1), (1, 2), (2, 0)] {
            for step in (1..).step_by(stride) {
                let failures = [crash(one, step), crash(other, step + spread)];
                match trial(&failures) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(text) => return Some(format!("{failures:?}: {text}")),
                }
            }
        }
    }
    None
}

#[test]
fn a_job_that_ended_at_any_step_is_continued() {
    let stride = if all_tests() { 1 } else { 3 };
    for seed in 1..4 {
        assert_eq!(loops_ended_at_every_step(seed, stride), None, "seed {seed}");
    }
}

/// The job that continues the states may end at any step too.
fn continued_jobs_end_at_every_step(seed: u64, stride: usize) -> Option<String> {
    for step in (1..).step_by(stride) {
        let world = World::default();
        let failures = |step: u32| -> Vec<Failure> {
            (0..RANKS)
                .map(|rank| crash(rank, step + 3 * rank as u32))
                .collect()
        };
        let run = || -> std::result::Result<bool, String> {
            world.continued(RANKS, (seed, &failures(150)))?;
            let survivors = world.continued(RANKS, (seed + 1, &failures(step)))?;
            world.continued(4, (seed + 2, &[]))?;
            // Only files of groups that have not opened the states are left by the jobs that ended.
            let is_state = |name: &String| !name.contains("probe") && !name.contains("sign");
            let left: Vec<String> = world.names().into_iter().filter(is_state).collect();
            if left.len() > 9 {
                return Err(format!("{left:?}"));
            }
            Ok(survivors < RANKS)
        };
        match run() {
            Ok(true) => {}
            Ok(false) => break,
            Err(text) => return Some(format!("seed {seed} step {step}: {text}")),
        }
    }
    None
}

#[test]
fn a_job_that_continues_another_may_end_at_any_step() {
    let stride = if all_tests() { 1 } else { 3 };
    for seed in 1..4 {
        assert_eq!(continued_jobs_end_at_every_step(seed, stride), None);
    }
}

/// The world after a job that has committed all rounds.
pub fn finished_world() -> World {
    let world = World::default();
    assert_eq!(world.continued(RANKS, (1, &[])), Ok(RANKS));
    world
}

/// Opens the states in a job; returns the errors of all ranks.
fn refusals(world: &World, ranks: usize, name: &'static str) -> Vec<Error> {
    let outcomes = world.job(ranks, (1, &[]), move |_, group, _| {
        let refused = refusal(group.open_states(name))?;
        // The group goes on, and its states have no name.
        put(group, 1)?;
        assert!(group.commit_states(true)?);
        group.clear_states()?;
        Ok(refused)
    });
    let outcomes: Vec<_> = outcomes.unwrap().into_iter().flatten().collect();
    outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap())
        .collect()
}

#[test]
fn damaged_files_are_an_error_and_stay() {
    let world = finished_world();
    let last = format!("-v{ROUNDS}-");
    let names = world.names();
    let found: Vec<&String> = names.iter().filter(|name| name.contains(&last)).collect();
    assert_eq!(found.len(), 4, "{names:?}");
    for damaged in found.into_iter().chain([&MANIFEST.to_string()]) {
        let flip = |at: usize| {
            world
                .files
                .borrow_mut()
                .content_mut(damaged)
                .expect("a file")[at] ^= 1;
        };
        flip(20);
        for error in refusals(&world, RANKS, "loop") {
            assert_eq!(error.status, Status::Store, "{damaged}: {error}");
        }
        flip(20);
        assert_eq!(world.names(), names);
    }
    assert_eq!(world.continued(RANKS, (1, &[])), Ok(RANKS));
}

#[test]
fn other_numbers_of_nodes_and_wrong_names_are_refused() {
    let world = finished_world();
    for ranks in [2, 5] {
        for error in refusals(&world, ranks, "loop") {
            assert_eq!(error.status, Status::Argument);
            assert!(error.text.contains("hypercube of 4 nodes"), "{error}");
        }
    }
    for error in refusals(&world, RANKS, "../loop") {
        assert_eq!(error.status, Status::Argument);
        assert!(error.text.contains("name is \"../loop\""), "{error}");
    }
    let different = world.job(2, (1, &[]), |rank, group, _| {
        refusal(group.open_states(["a", "b"][rank.index()]))
    });
    for error in different.unwrap().into_iter().flatten() {
        assert_eq!(error.unwrap().text, "name is not the same on all ranks");
    }
    let in_memory = play_group(2, 1, GroupConfig::default(), "", |_, group| {
        refusal(group.open_states("loop"))
    });
    for error in in_memory.into_iter().flatten() {
        assert!(error.unwrap().text.contains("FTSORT_STORE_DIRECTORY"));
    }
}

#[test]
fn states_get_a_name_first_and_once() {
    let world = World::default();
    let late = world.job(RANKS, (1, &[]), |rank, group, _| {
        if rank == Rank(1) {
            group.put_state(rank.home(), &[1])?;
        }
        let first = refusal(group.open_states("loop"))?;
        group.fault_check()?;
        assert!(!group.open_states("loop")?);
        Ok((first.status, refusal(group.open_states("other"))?.status))
    });
    for (rank, outcome) in late.unwrap().into_iter().flatten().enumerate() {
        let (first, second) = outcome.unwrap();
        assert_eq!(first, Status::State, "rank {rank}");
        assert_eq!(second, Status::State, "rank {rank}");
    }
}

/// Every allocation and every access to a file may be refused in a job that opens the states. All ranks return the same
/// status, and the next job finds the states.
#[test]
fn refused_memory_and_files_leave_the_states() {
    let mut refused = Vec::new();
    for action in 0.. {
        let world = finished_world();
        let before = world.budget.actions();
        world.budget.refuse(before + action..before + action + 1);
        let opened = world.job(RANKS, (1, &[]), |_, group, _| group.open_states("loop"));
        let opened = statuses(&opened.unwrap());
        assert_eq!(opened, [opened[0]; RANKS], "{action}");
        let actions = world.budget.actions() - before;
        world.budget.refuse(0..0);
        assert_eq!(world.continued(RANKS, (1, &[])), Ok(RANKS), "{action}");
        refused.extend(opened[0].filter(|status| *status != Status::Ok));
        if action > actions {
            break;
        }
    }
    assert!(refused.contains(&Status::Store) && refused.contains(&Status::Memory));
}

/// Whether a commit fails after another job has taken the name, and leaves that job's manifest.
fn another_writer_is_noticed() -> bool {
    let world = finished_world();
    let outcomes = world.job(RANKS, (1, &[]), |rank, group, world| {
        assert!(group.open_states("loop")?);
        let before = group.state(rank.home())?.map(<[u8]>::to_vec);
        if rank == Rank(0) {
            let mut files = world.files.borrow_mut();
            let content = files.content_mut(MANIFEST).expect("a manifest");
            let found = StatesManifest::decode(content).expect("it is intact");
            let other = StatesManifest {
                series: Series { group: 7, sort: 0 },
                ..found
            };
            *content = other.encode();
        }
        group.agree(1)?;
        put(group, 1)?;
        let status = group
            .commit_states(true)
            .map_or_else(|error| error.status, |_| Status::Ok);
        let is_kept = group.state(rank.home())? == before.as_deref();
        Ok(if is_kept { status } else { Status::Ok })
    });
    let files = world.files.borrow();
    let left = files.content(MANIFEST).and_then(StatesManifest::decode);
    let is_left = left.is_some_and(|manifest| manifest.series.group == 7);
    let refused = |outcome: Option<Result<Status>>| {
        outcome.is_some_and(|status| status.is_ok_and(|status| status == Status::Store))
    };
    is_left && outcomes.is_ok_and(|outcomes| outcomes.into_iter().all(refused))
}

#[test]
fn states_that_another_job_continues_are_left_to_it() {
    assert!(another_writer_is_noticed());
}

/// Opens the states of an earlier job, with failures and refused actions, until that succeeds, and checks that they are
/// those of the earlier job, and that another job finds them. An error for a wrong state. Returns whether an attempt was
/// refused.
fn opened_again(
    world: &World,
    (seed, failures): (u64, &[Failure]),
    refused: std::ops::Range<u32>,
) -> std::result::Result<bool, String> {
    let before = world.budget.actions();
    let refused = before + refused.start..before + refused.end;
    let outcomes = world.job(RANKS, (seed, failures), move |_, group, world| {
        world.budget.refuse(refused.clone());
        let first = group.open_states("loop");
        let is_refused = first
            .as_ref()
            .is_err_and(|error| matches!(error.status, Status::Memory | Status::Store));
        world.budget.refuse(0..0);
        if is_refused {
            group.fault_check()?;
        }
        let found = if is_refused {
            group.open_states("loop")?
        } else {
            first?
        };
        // A failure moves states from the files of this group.
        group.fault_check()?;
        Ok((is_refused, found, round_of(group)?))
    });
    let mut is_refused = false;
    for outcome in outcomes?.into_iter().flatten() {
        let (refused, found, round) = outcome.map_err(|error| error.to_string())?;
        is_refused |= refused;
        if (found, round) != (true, ROUNDS) {
            return Err(format!("found {found}, round {round}"));
        }
    }
    world.continued(RANKS, (seed, &[])).map(|_| is_refused)
}

/// The first error of states that are opened again after they were refused.
fn refused_openings(seed: u64) -> Option<String> {
    let mut refused = 0;
    for count in [1, 2, 3, 40] {
        for action in 0..150 {
            for failures in [&[][..], &[crash(0, 60)], &[crash(1, 80)], &[crash(2, 100)]] {
                let world = finished_world();
                match opened_again(&world, (seed, failures), action..action + count) {
                    Ok(is_refused) => refused += usize::from(is_refused),
                    Err(text) => return Some(format!("{action} {count} {failures:?}: {text}")),
                }
            }
        }
    }
    assert!(refused > 0);
    None
}

#[test]
fn states_are_opened_again_after_they_were_refused() {
    assert_eq!(refused_openings(1), None);
}

/// The first error of groups that are created while hosts fail, and lose the files that they have not synced.
fn creations_with_failures(seed: u64) -> Option<String> {
    failures_of_two_at_every_step(1, |failures| {
        let mut world = World::default();
        world.model.power = true;
        let outcomes = world.job(RANKS, (seed, failures), |_, _, _| Ok(()))?;
        let survivors: Vec<Status> = statuses(&outcomes).into_iter().flatten().collect();
        match survivors.iter().find(|status| **status != Status::Ok) {
            Some(status) => Err(format!("{status:?}")),
            None => Ok(survivors.len() < RANKS),
        }
    })
}

#[test]
fn groups_are_created_although_hosts_fail_at_any_step() {
    for seed in 1..40 {
        assert_eq!(creations_with_failures(seed), None, "seed {seed}");
    }
}

/// The mutants of states with a name, and of the creation of their groups, and the test that detects each.
#[test]
fn every_mutant_of_states_with_a_name_is_detected() {
    let ended: Detects = || (1..9).any(|seed| loops_ended_at_every_step(seed, 1).is_some());
    let detected: [(Mutant, Detects); 7] = [
        (Mutant::StatesNamedBeforeCommit, ended),
        (Mutant::StatesNotMovedAfterManifest, ended),
        (Mutant::ActionOfFailedRank, ended),
        (Mutant::EarlierStatesRemovedFirst, || {
            (1..9).any(|seed| continued_jobs_end_at_every_step(seed, 1).is_some())
        }),
        (Mutant::OtherWriterIgnored, || !another_writer_is_noticed()),
        (Mutant::OwnFilesCountAsLeft, || {
            refused_openings(1).is_some()
        }),
        (Mutant::LostSignNotRepeated, || {
            (1..9).any(|seed| creations_with_failures(seed).is_some())
        }),
    ];
    assert_detected(&detected);
}

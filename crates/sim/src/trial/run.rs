//! The program of one simulated rank in a trial. It does the same as a program does through the C interface.

use std::collections::BTreeMap;
use std::mem::offset_of;

use super::custom_loop::CustomLoop;
use super::disordered::DisorderedKernel;
use super::many::sort_many;
use super::scripted_policy::ScriptedPolicy;
use super::tree_op::TreeJob;
use super::update::{InputOf, Updates, protect};
use super::{TestRecord, Trial};
use crate::directory::FileModel;
use crate::harness::{CommitLog, Harness, JobOptions, JobReport, SimRank};
use crate::job::{InputSource, JobContext, JobRun};
use crate::transport::{Received, SimConfig, StepRecord, TraceEntry, WrongWords};
use ftsort_core::block::Block;
use ftsort_core::engine::{
    Algorithm, Checkpoints, Checks, Contribution, Finished, Gathered, HeldInputs, PlacementPolicy,
    repair_inputs,
};
use ftsort_core::faults::{Plan, Schedule};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::mutants::{Mutant, mutant, set_mutant};
use ftsort_core::sort::{DivideFirst, MergeAndPlace, global_offset, samples, total_records};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status, caught};
use ftsort_kernels::kernel::{Kernel, kernel_for};
use ftsort_kernels::memory::without_limit;
use ftsort_kernels::record::{Fields, KeyKind, Layout};

/// One block of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultBlock {
    /// The node that the block belongs to.
    pub node: Node,
    /// The position of its first record in the whole result, in records.
    pub offset: u64,
    /// The records.
    pub records: Vec<TestRecord>,
}

/// The result of one job on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankResult {
    /// The blocks of the nodes that the rank executes.
    pub blocks: Vec<ResultBlock>,
    /// The number of records of the whole result. For a tree: the rank that has the result.
    pub total: u64,
    /// The updates of the protected input.
    pub updates: Updates,
    /// The results of the arrays after the first, if many are sorted.
    pub others: Vec<RankResult>,
}

/// The outcome of one job on one rank.
pub type SortOutcome = JobReport<RankResult>;

/// The result of a trial.
#[derive(Debug, Default)]
pub struct TrialRun {
    /// For each job the outcome of each rank. None: the rank failed, hangs, or did not run the job.
    pub outcomes: Vec<Vec<Option<SortOutcome>>>,
    /// The ranks that survived to the end.
    pub survivors: Vec<Rank>,
    /// All steps, in order.
    pub steps: Vec<StepRecord>,
    /// The commits, each with the number of steps before the first rank learned of it.
    pub commits: CommitLog,
    /// The trace, if it was asked for.
    pub trace: Vec<TraceEntry>,
    /// The messages that arrived at receives, and how many of each there were.
    pub received: BTreeMap<Received, usize>,
    /// The ranks that hang.
    pub hung: Vec<Rank>,
    /// The names of the files that were left in the shared directory.
    pub leftover_files: Vec<String>,
    /// The names of all files that were complete at some time.
    pub finished_files: Vec<String>,
    /// The number of actions of each rank that could be refused.
    pub actions: Vec<u32>,
    /// The seconds that a timed run took.
    pub seconds: f64,
    /// The text of an error that ended the run at once.
    pub panic: Option<String>,
}

/// Runs a trial.
pub fn run(trial: &Trial, record: bool) -> TrialRun {
    let config = SimConfig {
        seed: trial.seed,
        failures: trial.failures.clone(),
        timed: trial.timed,
        wrong_words: match trial.wrong_words {
            true => WrongWords::OfAll,
            false => WrongWords::Never,
        },
        record,
        ..SimConfig::default()
    };
    let harness = Harness {
        files: FileModel {
            damage: trial.damage,
            power: trial.power,
            sync: trial.sync,
        },
        repair: trial.repair,
        fan_out: trial.fan_out,
        hosts: trial.hosts,
        quorum: trial.quorum,
        spares: trial.spares,
        refusals: trial.refusals.clone(),
        ..Harness::new(trial.ranks, config, trial.store)
    };
    let shared = trial.clone();
    let result = caught(|| {
        set_mutant(trial.mutant);
        Ok(harness.run(move |rank| run_jobs(&shared, rank)))
    });
    set_mutant(None);
    let result = match result {
        Ok(result) => result,
        Err(error) => {
            return TrialRun {
                outcomes: by_job(trial, Vec::new()),
                panic: Some(error.text),
                ..TrialRun::default()
            };
        }
    };
    let outcomes = result.sim.outcomes;
    let survived = |rank: &Rank| outcomes[rank.index()].is_some();
    let survivors = Rank::all(trial.ranks).filter(survived).collect();
    TrialRun {
        outcomes: by_job(trial, outcomes),
        survivors,
        steps: result.sim.steps,
        commits: result.commits,
        trace: result.sim.trace,
        received: result.sim.received,
        hung: result.sim.hung,
        leftover_files: result.files,
        finished_files: result.finished_files,
        actions: result.actions,
        seconds: result.sim.seconds,
        panic: result.sim.misuse,
    }
}

/// Arranges the outcomes of each rank by job.
fn by_job(trial: &Trial, outcomes: Vec<Option<Vec<SortOutcome>>>) -> Vec<Vec<Option<SortOutcome>>> {
    let mut jobs = vec![vec![None; trial.ranks]; trial.sorts];
    for (rank, outcomes) in outcomes.into_iter().enumerate() {
        for (job, outcome) in outcomes.into_iter().flatten().enumerate() {
            jobs[job][rank] = Some(outcome);
        }
    }
    jobs
}

/// Runs all jobs of one rank.
fn run_jobs(trial: &Trial, rank: &mut SimRank<'_>) -> Vec<SortOutcome> {
    let mut checkpoints = Checkpoints::new(rank.checkpoint_store(), &rank.members);
    let mut outcomes = Vec::new();
    for job in 0..trial.sorts {
        let outcome = run_one(trial, job, rank, &mut checkpoints);
        if !rank.is_running() {
            break;
        }
        let error = outcome.result.as_ref().err();
        let is_apart =
            error.is_some_and(|error| matches!(error.status, Status::Excluded | Status::Mpi));
        outcomes.push(outcome);
        if is_apart {
            return outcomes;
        }
    }
    if rank.is_running() {
        rank.release_results();
    }
    outcomes
}

fn run_one(
    trial: &Trial,
    number: usize,
    rank: &mut SimRank<'_>,
    checkpoints: &mut Checkpoints,
) -> SortOutcome {
    // A text that is no schedule is an error of every rank's job.
    let plan = Plan::parse(&trial.corruptions.join(" "));
    let plan = plan.map(|plan| plan.resolve(trial.ranks, 1));
    let no_corruptions = Schedule::default();
    let me = rank.members.me();
    let members = &rank.members;
    let idle = Rank::all(trial.ranks).filter(|rank| members.is_idle_spare(*rank));
    let idle: Vec<Rank> = idle.collect();
    let version_of = |rank: Rank, version: usize| {
        if idle.contains(&rank) {
            return Ok(Buffer::default());
        }
        bytes_of(trial, &trial.version_of_records(number, rank, version))
    };
    let input_of = |rank| version_of(rank, trial.update_count());
    let is_sort = !trial.custom_loop && trial.tree.is_none();
    let digest_key =
        (is_sort && trial.checks).then(|| DigestKey::new(trial.seed, record_bytes(trial)));
    let mut policy = ScriptedPolicy::of(trial, me);
    let options = JobOptions {
        number,
        schedule: Some(plan.as_ref().unwrap_or(&no_corruptions)),
        policy: policy
            .as_mut()
            .map(|policy| policy as &mut dyn PlacementPolicy),
        record_bytes: is_sort.then_some(record_bytes(trial)),
        digest_key: digest_key.as_ref(),
    };
    rank.run_job(options, |mut context| {
        if let Err(error) = &plan {
            return Err(error.clone());
        }
        if trial.custom_loop {
            return run_custom_loop(trial, &mut context, checkpoints, || input_of(me));
        }
        let input = input_of(me);
        let prepared = input.and_then(|input| prepare(trial, input));
        let mut gathered = Gathered::default();
        if trial.may_gather() {
            gathered = match gather(trial, number, &input_of, &mut context, &prepared)? {
                Attempt::Finished(result) => return Ok(result),
                Attempt::TakesRounds(gathered) => gathered,
            };
        }
        let (kernel, input) = context.engine.all_or_none(prepared)?;
        if let Some(kind) = trial.tree {
            let tree = TreeJob {
                trial,
                job: number,
                context: &mut context,
                kernel: &*kernel,
            };
            return tree.run(kind, input);
        }
        if trial.arrays > 0 {
            return sort_many(trial, &input_of, context, digest_key.as_ref(), input);
        }
        let checks = digest_key.as_ref().map(|key| Checks {
            key,
            orders: vec![&*kernel],
            input: key.digest(&input),
        });
        sort(
            trial,
            (number, &version_of),
            context,
            (&*kernel, checks.as_ref()),
            (input, gathered),
        )
    })
}

fn run_custom_loop(
    trial: &Trial,
    context: &mut JobContext<'_, '_>,
    checkpoints: &mut Checkpoints,
    input: impl FnOnce() -> Result<Buffer>,
) -> Result<RankResult> {
    // The memory of the program's own loop is not ftsort's.
    without_limit(|| {
        let mut custom_loop = CustomLoop {
            trial,
            context,
            checkpoints,
        };
        custom_loop.run(input()?)
    })
}

/// The outcome of an attempt to sort without rounds.
enum Attempt {
    /// The sort is done.
    Finished(RankResult),
    /// The sort takes rounds. These inputs have arrived.
    TakesRounds(Gathered),
}

/// Gives this rank's input to all others, and sorts without rounds if all inputs have arrived.
fn gather(
    trial: &Trial,
    job: usize,
    input_of: &dyn Fn(Rank) -> Result<Buffer>,
    context: &mut JobContext<'_, '_>,
    prepared: &Result<(Box<dyn Kernel>, Buffer)>,
) -> Result<Attempt> {
    let members = context.engine.members();
    let (me, nodes) = (members.me(), members.cube().len());
    let given = prepared.as_ref().ok().and_then(|(kernel, input)| {
        let mut input = Buffer::copy_of(input).ok()?;
        kernel.sort(&mut input).ok()?;
        if !trial.is_sampler(me) {
            return Some(Contribution::Whole(input));
        }
        let samples = samples(&**kernel, &input, nodes).ok()?;
        Some(Contribution::Samples { input, samples })
    });
    let given = given.unwrap_or(Contribution::Nothing);
    let scope = context.store.scope();
    let fingerprint = trial.fingerprint(job);
    let gathered = context.engine.gather(given, scope, fingerprint, None)?;
    let (Ok((kernel, _)), true) = (prepared, gathered.is_complete()) else {
        return Ok(Attempt::TakesRounds(gathered));
    };
    let dimension = context.engine.members().cube().dimension();
    let sort = trial.algorithm.on(&**kernel, dimension);
    let algorithm = MergeAndPlace {
        sort: &*sort,
        kernel: &**kernel,
        dimension,
        dense: trial.dense,
        filter: None,
    };
    let source = |own| input_source(trial, input_of, own);
    let retains = trial.recoveries > 0;
    let finished = context.finish(&algorithm, source(None), &gathered, retains)?;
    let Some(finished) = finished else {
        return Ok(Attempt::TakesRounds(gathered));
    };
    let (blocks, decision) = recovered(trial, context, &algorithm, &source, finished)?;
    let result = result_of(trial, &blocks, &decision);
    Ok(Attempt::Finished(result))
}

/// Returns the kernel, and the input in the form that the job needs.
fn prepare(trial: &Trial, mut input: Buffer) -> Result<(Box<dyn Kernel>, Buffer)> {
    let kernel = kernel_of(trial, false)?;
    if trial.tree.is_some() {
        kernel.sort(&mut input)?;
    }
    Ok((kernel, input))
}

/// Runs one sort on one rank: protects the input before, if the trial says so.
fn sort(
    trial: &Trial,
    (number, input_of): (usize, InputOf<'_>),
    mut context: JobContext<'_, '_>,
    (kernel, checks): (&dyn Kernel, Option<&Checks<'_>>),
    (input, gathered): (Buffer, Gathered),
) -> Result<RankResult> {
    let me = context.engine.members().me();
    let dimension = context.engine.members().cube().dimension();
    let other_kernel = other_kernel_of(trial)?;
    let divide_first = trial.divide_first(me);
    let sorts = [kernel, &*other_kernel].map(|kernel| {
        (
            trial.algorithm.on_divided(kernel, dimension, divide_first),
            kernel,
        )
    });
    let [algorithm, other] = sorts.each_ref().map(|(sort, kernel)| MergeAndPlace {
        sort: &**sort,
        kernel: *kernel,
        dimension,
        dense: trial.dense,
        filter: None,
    });
    let mut input = Slice::from(input);
    let (mut held, mut updates) = (None, Updates::default());
    let mut digest = None;
    if trial.protects > 0 {
        let protected = protect(trial, number, &mut context, input_of, checks)?;
        digest = protected
            .digest
            .filter(|_| !mutant(Mutant::ProtectedDigestForgotten));
        updates = protected.updates;
        (held, input) = (Some(protected.held), protected.input);
    }
    if let (Some(held), Some(digest)) = (&mut held, digest) {
        let repaired = repair_inputs(context.engine, held, input, digest);
        input = context.noted(repaired)?;
    }
    let checks = checks.map(|checks| Checks {
        input: digest.unwrap_or_else(|| checks.key.digest(&input)),
        ..checks.clone()
    });
    let other_checks = checks.as_ref().map(|checks| Checks {
        orders: vec![&*other_kernel],
        ..checks.clone()
    });
    let updated = |rank: Rank| match rank == me && trial.protects > 0 {
        true => Buffer::copy_of(&input),
        false => input_of(rank, updates.version_of(rank)),
    };
    let run = SortRun {
        algorithm: &algorithm,
        checks: checks.as_ref(),
        earlier: Some((&other, other_checks.as_ref())),
        source: &|own| input_source(trial, &updated, own),
        input: input.clone(),
        held,
        gathered,
    };
    let (blocks, decision) = run_sort(trial, &mut context, run)?;
    Ok(RankResult {
        updates,
        ..result_of(trial, &blocks, &decision)
    })
}

/// The result of a sort of one array.
fn result_of(trial: &Trial, blocks: &BTreeMap<Node, Block>, decision: &[u8]) -> RankResult {
    let blocks = blocks.iter().filter_map(|(node, block)| {
        let (offset, data) = global_offset(block)?;
        Some(ResultBlock {
            node: *node,
            offset,
            records: read_records(trial, data),
        })
    });
    RankResult {
        blocks: blocks.collect(),
        total: total_records(decision),
        ..RankResult::default()
    }
}

/// A sort of one rank.
pub struct SortRun<'r> {
    /// The sort with its last rounds.
    pub algorithm: &'r dyn Algorithm,
    /// The detection of changed data.
    pub checks: Option<&'r Checks<'r>>,
    /// The sort of all turns but the last, and its checks; None: the same sort.
    pub earlier: Option<(&'r dyn Algorithm, Option<&'r Checks<'r>>)>,
    /// Makes a source of inputs, from the rank that can copy its own one again.
    pub source: &'r dyn Fn(Option<Rank>) -> InputSource<'r>,
    /// The input of the rank.
    pub input: Slice,
    /// The inputs, if they were protected before.
    pub held: Option<HeldInputs>,
    /// The inputs of other ranks that have arrived already.
    pub gathered: Gathered,
}

/// Returns a source of the inputs that `input_of` makes. `own`: the rank that can copy its own one again.
pub fn input_source<'r>(
    trial: &Trial,
    input_of: &'r dyn Fn(Rank) -> Result<Buffer>,
    own: Option<Rank>,
) -> InputSource<'r> {
    InputSource {
        read: input_of,
        own,
        can_reload: trial.can_reload(),
        lies: trial.lies,
    }
}

/// Runs a sort, several times if its input is held, and recovers the result afterwards, if the trial says so. Returns
/// the blocks of the result and the last decision.
pub fn run_sort(
    trial: &Trial,
    context: &mut JobContext<'_, '_>,
    mut sort: SortRun<'_>,
) -> Result<(BTreeMap<Node, Block>, Slice)> {
    let me = context.engine.members().me();
    let mut finished;
    let mut turn = 0;
    loop {
        turn += 1;
        let last = (sort.algorithm, sort.checks);
        let (algorithm, checks) = sort
            .earlier
            .filter(|_| turn < trial.protects)
            .unwrap_or(last);
        let run = JobRun {
            source: (sort.source)(Some(me)),
            input: sort.input.clone(),
            checks,
            held: sort.held.as_mut(),
            retains: trial.recoveries > 0,
            gathered: std::mem::take(&mut sort.gathered),
        };
        finished = context.run(algorithm, run)?;
        if turn >= trial.protects {
            break;
        }
        context.engine.readmit_all();
    }
    recovered(trial, context, sort.algorithm, sort.source, finished)
}

/// Recovers the result of a job after failures, if the trial says so. Returns its blocks and the last decision.
fn recovered<'i>(
    trial: &Trial,
    context: &mut JobContext<'_, '_>,
    algorithm: &dyn Algorithm,
    source: &dyn Fn(Option<Rank>) -> InputSource<'i>,
    finished: Finished,
) -> Result<(BTreeMap<Node, Block>, Slice)> {
    let decision = finished.decision();
    let mut blocks = finished.blocks;
    if let Some(mut retained) = finished.retained {
        context.engine.readmit_all();
        for _ in 0..trial.recoveries {
            context.recover(algorithm, source(None), &mut retained)?;
        }
        retained.exclude_again(context.engine);
        blocks = retained.blocks().clone();
        context.results.push(retained);
    } else if trial.recoveries > 0 {
        none_failed(context)?;
    }
    Ok((blocks, decision))
}

/// `Status::DataLost` if a rank with blocks has failed since a result without redundancy was made.
fn none_failed(context: &mut JobContext<'_, '_>) -> Result<()> {
    let executing = context.engine.members().membership().executing().clone();
    context.find_failures()?;
    let members = context.engine.members();
    let failed = members.faulty().iter();
    let failed = failed.filter(|rank| executing.contains(*rank));
    *context.lost = RankSet::of(members.ranks(), failed);
    if context.lost.is_empty() {
        return Ok(());
    }
    Err(Error::new(Status::DataLost, "the result has no redundancy"))
}

/// Converts records to bytes.
pub fn bytes_of(trial: &Trial, records: &[TestRecord]) -> Result<Buffer> {
    if trial.tagged {
        return Buffer::copy_of(bytemuck::cast_slice(records));
    }
    let keys: Vec<i32> = records.iter().map(|record| record.key).collect();
    Buffer::copy_of(bytemuck::cast_slice(&keys))
}

/// Converts bytes to records.
pub fn read_records(trial: &Trial, bytes: &[u8]) -> Vec<TestRecord> {
    if trial.tagged {
        return bytemuck::cast_slice(bytes).to_vec();
    }
    let keys: &[i32] = bytemuck::cast_slice(bytes);
    keys.iter()
        .map(|key| TestRecord { key: *key, tag: 0 })
        .collect()
}

/// Returns the size of a record of a trial.
pub fn record_bytes(trial: &Trial) -> usize {
    if trial.tagged {
        size_of::<TestRecord>()
    } else {
        size_of::<i32>()
    }
}

/// Returns the kernel of a trial's records.
pub fn kernel_of(trial: &Trial, descending: bool) -> Result<Box<dyn Kernel>> {
    let fields = Fields {
        record_bytes: record_bytes(trial),
        key: KeyKind::I32 as i32,
        descending,
        ..Fields::default()
    };
    let kernel = kernel_for(&Layout::new(fields)?, 1);
    Ok(match trial.divide_first(Rank(0)) {
        DivideFirst::Never => kernel,
        _ => Box::new(DisorderedKernel(kernel)),
    })
}

/// Returns the kernel of a trial's records for another order than that of its result.
fn other_kernel_of(trial: &Trial) -> Result<Box<dyn Kernel>> {
    if !trial.tagged {
        return kernel_of(trial, true);
    }
    let fields = Fields {
        record_bytes: record_bytes(trial),
        key_offset: offset_of!(TestRecord, tag),
        key: KeyKind::U32 as i32,
        descending: true,
        ..Fields::default()
    };
    Ok(kernel_for(&Layout::new(fields)?, 1))
}

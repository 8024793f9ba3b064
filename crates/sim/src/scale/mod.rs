//! One sort on many simulated ranks: its messages, its control data, its time by a network clock, and a check of its
//! result that takes a time in proportion to the records.
//!
//! Must never: keep anything of a rank that grows with the number of ranks.

mod charged_kernel;
mod formula;
mod inputs;
mod judge;

use crate::harness::{Harness, JobOptions, SimRank, StoreKind};
use crate::job::{InputSource, JobContext, JobRun};
use crate::transport::{Failure, FailureMode, NetworkModel, SimConfig, Traffic};
use charged_kernel::ChargedKernel;
use ftsort_core::members::Rank;
use ftsort_core::sort::{MergeAndPlace, Method, global_offset};
use ftsort_kernels::error::{Result, caught};
use ftsort_kernels::kernel::{Kernel, kernel_of};
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::KeyKind;

pub use formula::predicted_seconds;
pub use inputs::Distribution;
use judge::BlockSummary;

/// The values that decide a sort at scale.
#[derive(Clone, Debug)]
pub struct ScaleSetting {
    /// The number of ranks.
    pub ranks: usize,
    /// The number of records of each rank.
    pub records: usize,
    /// The size of a record in bytes: a multiple of 8.
    pub record_bytes: usize,
    /// The distribution of the keys.
    pub distribution: Distribution,
    /// The sort.
    pub method: Method,
    /// Decides the inputs, the failing ranks and every interleaving.
    pub seed: u64,
    /// The redundancy of the inputs.
    pub store: StoreKind,
    /// The network clock.
    pub network: Option<NetworkModel>,
}

/// The end of one rank.
struct RankEnd {
    result: Result<Vec<BlockSummary>>,
    traffic: Traffic,
    time: f64,
    steps: u32,
    /// The failed ranks that were known at the last commit. None: nothing was committed.
    failed_at_commit: Option<Vec<Rank>>,
}

/// The mean and the maximum over the surviving ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerRank {
    /// The mean.
    pub mean: f64,
    /// The maximum.
    pub most: u64,
}

impl PerRank {
    fn of(values: impl Iterator<Item = u64> + Clone) -> PerRank {
        let count = values.clone().count().max(1) as f64;
        PerRank {
            mean: values.clone().sum::<u64>() as f64 / count,
            most: values.max().unwrap_or(0),
        }
    }
}

/// The figures of one sort.
#[derive(Clone, Debug)]
pub struct ScaleReport {
    /// The failures that were injected.
    pub failures: Vec<Failure>,
    /// The number of ranks that did not survive.
    pub failed: usize,
    /// Messages sent by a rank.
    pub messages: PerRank,
    /// Bytes sent by a rank.
    pub bytes: PerRank,
    /// Bytes of control messages received by a rank.
    pub control: PerRank,
    /// The most bytes of control messages that one rank received between two collective calls.
    pub control_step: u64,
    /// The largest share of the result, as a multiple of an equal share of the surviving ranks.
    pub largest_share: f64,
    /// The time of the slowest rank by the network clock, in seconds.
    pub seconds: f64,
    /// The error in the result. None: it is right.
    pub wrong: Option<String>,
    /// Whether the ranks report that data are lost, because a rank failed before its input was protected.
    pub lost: bool,
    /// The number of steps of each rank; 0: it did not survive.
    steps: Vec<u32>,
}

/// Runs a sort, in which these failures are injected.
pub fn run_scale(setting: &ScaleSetting, failures: &[Failure]) -> ScaleReport {
    let config = SimConfig {
        seed: setting.seed,
        failures: failures.to_vec(),
        forgets: true,
        in_batches: true,
        network: setting.network,
        ..SimConfig::default()
    };
    let harness = Harness::new(setting.ranks, config, setting.store);
    let of_ranks = setting.clone();
    let run = caught(|| Ok(harness.run(move |rank| run_rank(&of_ranks, rank))));
    let (ends, hung, misuse) = match run {
        Ok(run) => (run.sim.outcomes, run.sim.hung, run.sim.misuse),
        Err(error) => (Vec::new(), Vec::new(), Some(error.text)),
    };
    let hung = (!hung.is_empty()).then(|| format!("ranks {hung:?} hang"));
    let wrong = misuse.or(hung);
    let wrong = wrong.or_else(|| judge::judge(setting, &ends, failures));
    report(&ends, failures, wrong)
}

/// Draws failing ranks, and for each of them one of the steps that it took in a run without failures.
pub fn draw_failures(
    setting: &ScaleSetting,
    undisturbed: &ScaleReport,
    count: usize,
) -> Vec<Failure> {
    let mut draw = SplitMix::new(!setting.seed);
    let mut ranks: Vec<Rank> = Rank::all(setting.ranks).collect();
    let failures = (0..count.min(setting.ranks.saturating_sub(1))).map(|index| {
        let rank = draw.draw_at(&mut ranks, index);
        let steps = undisturbed.steps.get(rank.index()).copied().unwrap_or(0);
        Failure {
            rank,
            step: 1 + draw.below(u64::from(steps)) as u32,
            mode: FailureMode::Crash,
        }
    });
    failures.collect()
}

fn report(ends: &[Option<RankEnd>], failures: &[Failure], wrong: Option<String>) -> ScaleReport {
    let living = || ends.iter().flatten();
    let shares = living().filter_map(|end| Some(judge::records_of(end.result.as_ref().ok()?)));
    let shares = PerRank::of(shares.collect::<Vec<u64>>().into_iter());
    let seconds = living().map(|end| end.time);
    ScaleReport {
        failures: failures.to_vec(),
        failed: ends.iter().filter(|end| end.is_none()).count(),
        messages: PerRank::of(living().map(|end| end.traffic.messages)),
        bytes: PerRank::of(living().map(|end| end.traffic.bytes)),
        control: PerRank::of(living().map(|end| end.traffic.control)),
        control_step: living()
            .map(|end| end.traffic.most_control)
            .max()
            .unwrap_or(0),
        largest_share: shares.most as f64 / shares.mean.max(f64::MIN_POSITIVE),
        seconds: seconds.fold(0.0, f64::max),
        steps: ends
            .iter()
            .map(|end| end.as_ref().map_or(0, |end| end.steps))
            .collect(),
        lost: wrong.is_none() && living().any(judge::reports_early_loss),
        wrong,
    }
}

/// The program of one rank.
fn run_rank(setting: &ScaleSetting, rank: &mut SimRank<'_>) -> RankEnd {
    let options = JobOptions {
        record_bytes: Some(setting.record_bytes),
        ..JobOptions::default()
    };
    let report = rank.run_job(options, |mut context| sort(setting, &mut context));
    let handle = rank.handle();
    RankEnd {
        result: report.result,
        traffic: handle.traffic(),
        time: handle.time(),
        steps: handle.own_steps(),
        failed_at_commit: report.failed_at_commit,
    }
}

fn sort(setting: &ScaleSetting, context: &mut JobContext<'_, '_>) -> Result<Vec<BlockSummary>> {
    let me = context.engine.members().me();
    let dimension = context.engine.members().cube().dimension();
    let plain = kernel_of(setting.record_bytes, KeyKind::U64);
    let charged = setting
        .network
        .map(|model| ChargedKernel::new(&*plain, model));
    let kernel: &dyn Kernel = match &charged {
        Some(charged) => charged,
        None => &*plain,
    };
    let sort = setting.method.on(kernel, dimension);
    let algorithm = MergeAndPlace {
        sort: &*sort,
        kernel,
        dimension,
        dense: false,
        filter: None,
    };
    let source = InputSource {
        read: &|rank| inputs::input(setting, rank),
        own: Some(me),
        can_reload: false,
        lies: false,
    };
    let input = inputs::input(setting, me)?;
    let finished = context.run(&algorithm, JobRun::new(source, input.into()))?;
    let blocks = finished.blocks.values().filter_map(global_offset);
    let summaries = blocks.map(|(offset, data)| BlockSummary::of(setting, offset, data));
    Ok(summaries.collect())
}

#[cfg(test)]
mod tests;

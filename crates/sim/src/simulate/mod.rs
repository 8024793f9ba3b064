//! User-defined algorithms on simulated ranks that fail: the engine is the same as on MPI, in one thread, and a seed
//! decides every interleaving and every failure.
//!
//! `Check` (feature `trials`) tries an algorithm with many seeds, or with every possible failure, and compares the
//! survivors' results with those of a run without failures:
//!
//! ```
//! # #[cfg(feature = "trials")] {
//! use ftsort_core::rounds::{Rounds, Task, bytes};
//! use ftsort_kernels::{buffer::Slice, error::Result};
//! use ftsort_sim::simulate::Check;
//!
//! /// Computes the exclusive or of all nodes' bytes at each node.
//! #[derive(Clone)]
//! struct Xor;
//! impl Rounds for Xor {
//!     fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
//!         bytes(&[task.state.first().unwrap_or(&0) ^ inbox.first().unwrap_or(&0)])
//!     }
//! }
//! let check = Check::new(Xor, vec![vec![1], vec![2], vec![4]]).unwrap();
//! println!("{}", check.seeds(0..20, 2).unwrap()); // two of three ranks fail
//! println!("{}", check.every_failure(1).unwrap()); // one rank fails, at every step
//! # }
//! ```
//!
//! Must never: take a decision that does not follow from the seed.

#[cfg(feature = "trials")]
mod check;
#[cfg(all(test, feature = "trials"))]
mod tests;

use std::fmt;
use std::rc::Rc;

#[cfg(feature = "trials")]
pub use check::{Check, FailingRun, Tally};
#[cfg(feature = "trials")]
pub(crate) use check::{steps_until_last, with_one_more};

use crate::harness::{Harness, JobOptions, JobReport, StoreKind};
use crate::job::{InputSource, JobContext, JobRun};
use crate::transport::{Failure, FailureMode, SimConfig, StepRecord};
use ftsort_core::members::Rank;
use ftsort_core::rounds::purity::PurityCheck;
use ftsort_core::rounds::{Hypercube, Rounds};
use ftsort_core::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Result, caught};
use ftsort_kernels::random::SplitMix;

/// The values that decide a run, apart from the algorithm and the ranks' inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationSetting {
    /// Decides every interleaving.
    pub seed: u64,
    /// The store.
    pub store: StoreKind,
    /// Whether the ranks' inputs can be loaded again, whatever the store is. This holds for algorithms without
    /// inputs ([`Rounds::inits_all`]).
    pub reload: bool,
    /// The failures to inject.
    pub failures: Vec<Failure>,
}

impl SimulationSetting {
    /// Whether the ranks' inputs can be loaded again.
    fn can_reload(&self) -> bool {
        self.reload || self.store == StoreKind::Reload
    }
}

impl fmt::Display for SimulationSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "seed={} store={}", self.seed, self.store)?;
        if self.reload {
            out.write_str(" reload")?;
        }
        for (index, failure) in self.failures.iter().enumerate() {
            let before = if index == 0 { " failures=" } else { "," };
            write!(out, "{before}{failure}")?;
        }
        Ok(())
    }
}

/// The final states of the nodes that a rank executes.
pub type NodeStates = Vec<(Node, Slice)>;

/// The result of a run.
#[derive(Debug)]
pub struct SimulationRun {
    /// The result of each rank. None: the rank failed or hangs.
    pub outcomes: Vec<Option<JobReport<NodeStates>>>,
    /// All steps, in order.
    pub steps: Vec<StepRecord>,
    /// The ranks that hang.
    pub hung: Vec<Rank>,
    /// A use of the network that its interface forbids.
    pub misuse: Option<String>,
}

/// Runs an algorithm on one simulated rank for each input. Each callback is called twice ([`PurityCheck`]), so that a
/// callback that is not pure is detected.
///
/// # Panics
/// If the system has no memory for the ranks' stacks, or the engine has a defect.
pub fn run(
    rounds: &Rc<dyn Rounds>,
    inputs: &Rc<Vec<Vec<u8>>>,
    setting: &SimulationSetting,
) -> SimulationRun {
    let config = SimConfig {
        seed: setting.seed,
        failures: setting.failures.clone(),
        large_stacks: true,
        ..SimConfig::default()
    };
    let harness = Harness::new(inputs.len(), config, setting.store);
    let (rounds, inputs) = (Rc::clone(rounds), Rc::clone(inputs));
    let can_reload = setting.can_reload();
    let result = harness.run(move |rank| {
        rank.run_job(JobOptions::default(), |context| {
            run_rounds(context, &*rounds, &inputs, can_reload)
        })
    });
    SimulationRun {
        outcomes: result.sim.outcomes,
        steps: result.sim.steps,
        hung: result.sim.hung,
        misuse: result.sim.misuse,
    }
}

/// Runs the algorithm on one rank, as a program does through the C interface.
fn run_rounds(
    mut context: JobContext<'_, '_>,
    rounds: &dyn Rounds,
    inputs: &[Vec<u8>],
    can_reload: bool,
) -> Result<NodeStates> {
    let members = context.engine.members();
    let cube = members.cube();
    let input = Buffer::copy_of(&inputs[members.me().index()])?;
    let nodes_with_input = NodeSet::of(cube.len(), Rank::all(inputs.len()).map(Rank::home));
    let dimension = cube.dimension();
    let checked = PurityCheck(rounds);
    let algorithm = caught(|| Hypercube::new(&checked, dimension, nodes_with_input));
    let algorithm = context.engine.all_or_none(algorithm)?;
    let source = InputSource {
        read: &|rank| Buffer::copy_of(&inputs[rank.index()]),
        own: None,
        can_reload,
        lies: false,
    };
    let finished = context.run(&algorithm, JobRun::new(source, input.into()))?;
    let blocks = finished.blocks.iter();
    blocks
        .map(|(node, block)| Ok((*node, algorithm.finished(*node, block)?)))
        .collect()
}

/// Does the same as [`run`] with this many failures. The seed draws the failing ranks and their steps: each failure
/// is soon after the previous one, or at any time. Also returns the failures.
///
/// # Panics
/// As [`run`].
pub fn run_with_failures(
    rounds: &Rc<dyn Rounds>,
    inputs: &Rc<Vec<Vec<u8>>>,
    setting: &SimulationSetting,
    failures: usize,
) -> (SimulationRun, Vec<Failure>) {
    let mut draw = SplitMix::new(setting.seed);
    let mut setting = setting.clone();
    let mut candidates: Vec<Rank> = Rank::all(inputs.len()).collect();
    let mut result = run(rounds, inputs, &setting);
    for index in 0..failures.min(inputs.len().saturating_sub(1)) {
        let rank = draw.draw_at(&mut candidates, index);
        let last = setting.failures.last();
        let last = last.and_then(|last| position_of(&result.steps, last));
        let start = if draw.once_in(2) {
            last.unwrap_or(0)
        } else {
            0
        };
        let steps = steps_of(&result.steps[start..], rank);
        let pick = draw.below(steps.len() as u64) as usize;
        if let Some(step) = steps.get(pick) {
            setting.failures.push(Failure {
                rank,
                step: *step,
                mode: FailureMode::Crash,
            });
            result = run(rounds, inputs, &setting);
        }
    }
    (result, setting.failures)
}

/// The numbers of the steps of a rank.
pub(crate) fn steps_of(steps: &[StepRecord], rank: Rank) -> Vec<u32> {
    let steps = steps.iter().filter(|record| record.rank == rank);
    steps.map(|record| record.step).collect()
}

/// The index of the step at which a failure is injected.
pub(crate) fn position_of(steps: &[StepRecord], failure: &Failure) -> Option<usize> {
    let is_failure =
        |record: &StepRecord| record.rank == failure.rank && record.step == failure.step;
    steps.iter().position(is_failure)
}

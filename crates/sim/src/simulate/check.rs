//! Runs an algorithm with many failures and compares the results with the correct ones.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use rayon::prelude::*;

use super::{
    NodeStates, SimulationRun, SimulationSetting, StoreKind, position_of, run, run_with_failures,
};
use crate::harness::JobReport;
use crate::transport::{Failure, FailureMode, StepRecord};
use ftsort_core::members::{Members, Rank, RankSet};
use ftsort_core::rounds::Rounds;
use ftsort_core::rounds::purity::PurityCheck;
use ftsort_core::rounds::sequential::run_all_nodes;
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status, caught};

/// Describes the error in the states of all nodes, which are in order of nodes.
type Oracle = dyn Fn(&[Slice]) -> std::result::Result<(), String> + Send + Sync;

/// An algorithm, the ranks' inputs, and an oracle for the results.
pub struct Check<A> {
    algorithm: A,
    inputs: Vec<Vec<u8>>,
    store: StoreKind,
    reload: bool,
    oracle: Box<Oracle>,
}

/// A run with a wrong result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingRun {
    /// The setting with which [`Check::run`] repeats the run.
    pub setting: SimulationSetting,
    /// A description of the error.
    pub text: String,
}

impl fmt::Display for FailingRun {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.setting, self.text)
    }
}

/// The number of runs with each kind of result, none of which is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The runs in which the survivors have the correct result.
    pub correct: u64,
    /// Runs in which more data were lost than the store protects, and all survivors reported the loss.
    pub data_lost: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} correct, {} with reported data loss",
            self.correct, self.data_lost
        )
    }
}

impl Tally {
    fn plus(self, other: Tally) -> Tally {
        Tally {
            correct: self.correct + other.correct,
            data_lost: self.data_lost + other.data_lost,
        }
    }
}

impl<A: Rounds + Clone + Send + Sync + 'static> Check<A> {
    /// Creates a check with one rank for each input, and a store with one replica in memory. A result is correct if
    /// it equals that of a run without failures, at every node. Returns an error if the algorithm does not run
    /// without failures, or is not pure.
    pub fn new(algorithm: A, inputs: Vec<Vec<u8>>) -> Result<Check<A>> {
        if inputs.is_empty() {
            return Err(Error::new(
                Status::Argument,
                "inputs is empty; pass one input for each rank",
            ));
        }
        let expected = caught(|| run_all_nodes(&PurityCheck(&algorithm), &inputs))?;
        let oracle = move |states: &[Slice]| {
            let pairs = (0..).zip(states.iter().zip(&expected));
            let mut wrong = pairs.filter(|(_, (state, expected))| state != expected);
            wrong.next().map_or(Ok(()), |(node, (state, expected))| {
                Err(format!(
                    "the state of node {node} ({} bytes) differs from that of a run without failures ({} bytes)",
                    state.len(),
                    expected.len()
                ))
            })
        };
        Ok(Check {
            algorithm,
            inputs,
            store: StoreKind::Memory(1),
            reload: false,
            oracle: Box::new(oracle),
        })
    }

    /// Uses another store.
    #[must_use]
    pub fn store(self, store: StoreKind) -> Check<A> {
        Check { store, ..self }
    }

    /// Allows inputs to be loaded again, so that no data can be lost.
    #[must_use]
    pub fn reloading(self) -> Check<A> {
        Check {
            reload: true,
            ..self
        }
    }

    /// Uses another oracle, which gets the states of all nodes in order of nodes. This is needed for algorithms
    /// with results that depend on the survivors.
    #[must_use]
    pub fn judged_by(
        self,
        oracle: impl Fn(&[Slice]) -> std::result::Result<(), String> + Send + Sync + 'static,
    ) -> Check<A> {
        Check {
            oracle: Box::new(oracle),
            ..self
        }
    }

    /// Runs the algorithm once for each seed, on all processors. The seed draws up to `failures` failures.
    pub fn seeds(
        &self,
        seeds: Range<u64>,
        failures: usize,
    ) -> std::result::Result<Tally, FailingRun> {
        let tallies = seeds.into_par_iter().map(|seed| {
            let (rounds, inputs) = self.shared();
            let mut setting = self.setting(seed);
            let result = caught(|| Ok(run_with_failures(&rounds, &inputs, &setting, failures)));
            let (result, failures) = result.map_err(|panic| failing(&setting, panic.text))?;
            setting.failures = failures;
            self.judge(&setting, &result)
        });
        tallies.try_reduce(Tally::default, |one, other| Ok(one.plus(other)))
    }

    /// Runs the algorithm with every sequence of up to `failures` crashes, at every step of every rank, with one
    /// seed, on all processors.
    pub fn every_failure(&self, failures: usize) -> std::result::Result<Tally, FailingRun> {
        self.descend(&self.setting(1), failures.min(self.inputs.len() - 1))
    }

    /// Repeats one run.
    pub fn run(&self, setting: &SimulationSetting) -> std::result::Result<Tally, FailingRun> {
        self.judge(setting, &self.run_once(setting)?)
    }

    fn descend(
        &self,
        setting: &SimulationSetting,
        failures: usize,
    ) -> std::result::Result<Tally, FailingRun> {
        let result = self.run_once(setting)?;
        let tally = self.judge(setting, &result)?;
        if setting.failures.len() >= failures {
            return Ok(tally);
        }
        let fresh = &result.steps[steps_until_last(&result.steps, &setting.failures)..];
        let more = with_one_more(&setting.failures, fresh, FailureMode::Crash);
        let below = more.into_par_iter().map(|more| {
            let setting = SimulationSetting {
                failures: more,
                ..setting.clone()
            };
            self.descend(&setting, failures)
        });
        let below = below.try_reduce(Tally::default, |one, other| Ok(one.plus(other)))?;
        Ok(tally.plus(below))
    }

    fn run_once(
        &self,
        setting: &SimulationSetting,
    ) -> std::result::Result<SimulationRun, FailingRun> {
        let (rounds, inputs) = self.shared();
        let result = caught(|| Ok(run(&rounds, &inputs, setting)));
        result.map_err(|panic| failing(setting, panic.text))
    }

    fn shared(&self) -> (Rc<dyn Rounds>, Rc<Vec<Vec<u8>>>) {
        (
            Rc::new(self.algorithm.clone()),
            Rc::new(self.inputs.clone()),
        )
    }

    fn setting(&self, seed: u64) -> SimulationSetting {
        SimulationSetting {
            seed,
            store: self.store,
            reload: self.reload || self.algorithm.inits_all(),
            failures: Vec::new(),
        }
    }

    fn judge(
        &self,
        setting: &SimulationSetting,
        result: &SimulationRun,
    ) -> std::result::Result<Tally, FailingRun> {
        let wrong = |text: String| failing(setting, text);
        if let Some(misuse) = &result.misuse {
            return Err(wrong(misuse.clone()));
        }
        if !result.hung.is_empty() {
            return Err(wrong(format!("ranks {:?} hang", result.hung)));
        }
        let outcomes = (0..).map(Rank).zip(&result.outcomes);
        let survivors: Vec<(Rank, &JobReport<NodeStates>)> = outcomes
            .filter_map(|(rank, outcome)| Some((rank, outcome.as_ref()?)))
            .collect();
        if survivors.len() + setting.failures.len() < self.inputs.len() {
            return Err(wrong(
                "a rank failed for which no failure was injected".into(),
            ));
        }
        let Some((_, first)) = survivors.first() else {
            return Ok(Tally::default());
        };
        for (rank, outcome) in &survivors {
            let status =
                |outcome: &JobReport<NodeStates>| outcome.result.as_ref().err().map(|e| e.status);
            if (status(outcome), &outcome.failed) != (status(first), &first.failed) {
                return Err(wrong(format!("rank {rank} returns another status")));
            }
        }
        match &first.result {
            Ok(_) => self.judge_states(&survivors, first).map_err(wrong),
            Err(error) if error.status == Status::DataLost => {
                judge_data_loss(setting, first).map_err(wrong)
            }
            Err(error) => Err(wrong(format!("all ranks return an error: {error}"))),
        }
    }

    /// Checks that every survivor has the states of the nodes that it executes, and, if all nodes are there, that
    /// the states are correct. The states of a rank that failed after the end of the job are missing.
    fn judge_states(
        &self,
        survivors: &[(Rank, &JobReport<NodeStates>)],
        first: &JobReport<NodeStates>,
    ) -> std::result::Result<Tally, String> {
        let ranks = self.inputs.len();
        let mut members = Members::new(survivors[0].0, ranks);
        members.absorb(&RankSet::of(ranks, first.failed.iter().copied()));
        let mut all: NodeStates = Vec::new();
        for (rank, outcome) in survivors {
            let states = outcome.result.iter().flatten();
            let nodes: Vec<Node> = states.clone().map(|(node, _)| *node).collect();
            if nodes != members.nodes_of(*rank) {
                return Err(format!("rank {rank} has the states of nodes {nodes:?}"));
            }
            all.extend(states.cloned());
        }
        if all.len() == members.cube().len() {
            all.sort_unstable_by_key(|(node, _)| *node);
            let all: Vec<Slice> = all.into_iter().map(|(_, state)| state).collect();
            (self.oracle)(&all)?;
        }
        Ok(Tally {
            correct: 1,
            data_lost: 0,
        })
    }
}

fn failing(setting: &SimulationSetting, text: String) -> FailingRun {
    FailingRun {
        setting: setting.clone(),
        text,
    }
}

/// Checks that more ranks failed at once than the store protects against. The ranks that failed after the last commit
/// count, because every commit leaves all replicas in their places. The input of a rank that fails before its input
/// is committed is lost.
fn judge_data_loss(
    setting: &SimulationSetting,
    outcome: &JobReport<NodeStates>,
) -> std::result::Result<Tally, String> {
    let replicas = setting.store.replicas().unwrap_or(usize::MAX);
    let protected = if setting.can_reload() {
        usize::MAX
    } else {
        replicas
    };
    let is_lost = match &outcome.failed_at_commit {
        None => !setting.can_reload(),
        Some(known) => outcome.failed.len() - known.len() > protected,
    };
    if is_lost {
        Ok(Tally {
            correct: 0,
            data_lost: 1,
        })
    } else {
        Err("data loss is reported, although the store holds the data".into())
    }
}

/// Returns these failures with one more, at each of these steps of a rank that does not fail yet.
pub(crate) fn with_one_more(
    failures: &[Failure],
    steps: &[StepRecord],
    mode: FailureMode,
) -> Vec<Vec<Failure>> {
    let has_failed = |rank| failures.iter().any(|failure| failure.rank == rank);
    let steps = steps.iter().filter(|record| !has_failed(record.rank));
    let one_more = steps.map(|record| Failure {
        rank: record.rank,
        step: record.step,
        mode,
    });
    one_more
        .map(|failure| [failures, &[failure]].concat())
        .collect()
}

/// The number of steps up to the last failure. A run with one more failure after it has the same steps until then.
pub(crate) fn steps_until_last(steps: &[StepRecord], failures: &[Failure]) -> usize {
    let Some(last) = failures.last() else {
        return 0;
    };
    position_of(steps, last).map_or(steps.len(), |index| index + 1)
}

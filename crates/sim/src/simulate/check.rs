//! An algorithm tried under many crashes, and what comes of it compared with what it should be.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use rayon::prelude::*;

use super::{Ended, Keeping, Outcome, Setting, place_of, run, run_with_deaths};
use crate::transport::{Loss, Manner, Taken};
use ftsort_core::members::{Members, Rank, RankSet};
use ftsort_core::rounds::Rounds;
use ftsort_core::rounds::purity::PurityCheck;
use ftsort_core::rounds::sequential::run_all_nodes;
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status, caught};

/// Says what is wrong with the states of all nodes, in order.
type Judge = dyn Fn(&[Slice]) -> std::result::Result<(), String> + Send + Sync;

/// An algorithm, what each rank brings, and how to tell whether it came out right.
pub struct Check<A> {
    algorithm: A,
    inputs: Vec<Vec<u8>>,
    keeping: Keeping,
    reload: bool,
    judge: Box<Judge>,
}

/// A run that went wrong: everything that decides it, and what was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    /// To be run again with [`Check::run`].
    pub setting: Setting,
    /// For people.
    pub text: String,
}

impl fmt::Display for Failing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.setting, self.text)
    }
}

/// How many runs came out how; none of them wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs whose survivors got what they should.
    pub right: u64,
    /// Runs in which more was lost than the store keeps, as all survivors said.
    pub lost: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} right, {} lost", self.right, self.lost)
    }
}

impl Tally {
    fn with(self, other: Tally) -> Tally {
        Tally {
            right: self.right + other.right,
            lost: self.lost + other.lost,
        }
    }
}

impl<A: Rounds + Clone + Send + Sync + 'static> Check<A> {
    /// On as many ranks as there are inputs, which keep states in the memory of one other. Right is what
    /// the algorithm comes to without faults, at every node. An error: it does not even run then, or is
    /// not pure.
    pub fn new(algorithm: A, inputs: Vec<Vec<u8>>) -> Result<Check<A>> {
        if inputs.is_empty() {
            return Err(Error::new(Status::Argument, "there are no inputs"));
        }
        let right = caught(|| run_all_nodes(&PurityCheck(&algorithm), &inputs))?;
        let judge = move |states: &[Slice]| {
            let wrong = (0..).zip(states.iter().zip(&right));
            let mut wrong = wrong.filter(|(_, (found, right))| found != right);
            wrong.next().map_or(Ok(()), |(node, (found, right))| {
                let of = |bytes: usize| format!("{bytes} bytes");
                let (found, right) = (of(found.len()), of(right.len()));
                Err(format!(
                    "the state of node {node} ({found}) is not what it is without faults ({right})"
                ))
            })
        };
        Ok(Check {
            algorithm,
            inputs,
            keeping: Keeping::Memory(1),
            reload: false,
            judge: Box::new(judge),
        })
    }

    /// With another store.
    #[must_use]
    pub fn keeping(self, keeping: Keeping) -> Check<A> {
        Check { keeping, ..self }
    }

    /// What ranks bring can be got again, so that nothing is ever lost.
    #[must_use]
    pub fn reloading(self) -> Check<A> {
        Check {
            reload: true,
            ..self
        }
    }

    /// Right is what this says of the states of all nodes, in order: for algorithms whose results
    /// depend on who is alive.
    #[must_use]
    pub fn judged_by(
        self,
        judge: impl Fn(&[Slice]) -> std::result::Result<(), String> + Send + Sync + 'static,
    ) -> Check<A> {
        Check {
            judge: Box::new(judge),
            ..self
        }
    }

    /// One run for each seed, in which up to so many ranks die at instants that it draws; on all processors.
    pub fn seeds(&self, seeds: Range<u64>, deaths: usize) -> std::result::Result<Tally, Failing> {
        let tallies = seeds.into_par_iter().map(|seed| {
            let (rounds, inputs) = self.shared();
            let mut setting = self.setting(seed);
            let drawn = caught(|| Ok(run_with_deaths(&rounds, &inputs, &setting, deaths)));
            let (ended, losses) = drawn.map_err(|panic| failing(&setting, panic.text))?;
            setting.losses = losses;
            self.judge(&setting, &ended)
        });
        tallies.try_reduce(Tally::default, |one, other| Ok(one.with(other)))
    }

    /// Every sequence of up to so many crashes, at every step of every rank, with one seed; on all
    /// processors.
    pub fn every_crash(&self, deaths: usize) -> std::result::Result<Tally, Failing> {
        self.descend(&self.setting(1), deaths.min(self.inputs.len() - 1))
    }

    /// One run once more.
    pub fn run(&self, setting: &Setting) -> std::result::Result<Tally, Failing> {
        self.judge(setting, &self.ended(setting)?)
    }

    fn descend(&self, setting: &Setting, deaths: usize) -> std::result::Result<Tally, Failing> {
        let ended = self.ended(setting)?;
        let tally = self.judge(setting, &ended)?;
        if setting.losses.len() >= deaths {
            return Ok(tally);
        }
        // Up to the last crash so far it is the same run.
        let last = setting.losses.last();
        let start = last.map_or(Some(0), |last| place_of(&ended, last).map(|at| at + 1));
        let alive = |taken: &&Taken| !setting.losses.iter().any(|loss| loss.rank == taken.rank);
        let steps: Vec<&Taken> = match start {
            Some(start) => ended.taken[start..].iter().filter(alive).collect(),
            None => Vec::new(),
        };
        let below = steps.par_iter().map(|taken| {
            let mut more = setting.clone();
            more.losses.push(Loss {
                rank: taken.rank,
                step: taken.step,
                manner: Manner::Crash,
            });
            self.descend(&more, deaths)
        });
        let below = below.try_reduce(Tally::default, |one, other| Ok(one.with(other)))?;
        Ok(tally.with(below))
    }

    fn ended(&self, setting: &Setting) -> std::result::Result<Ended, Failing> {
        let (rounds, inputs) = self.shared();
        let ended = caught(|| Ok(run(&rounds, &inputs, setting)));
        ended.map_err(|panic| failing(setting, panic.text))
    }

    fn shared(&self) -> (Rc<dyn Rounds>, Rc<Vec<Vec<u8>>>) {
        (
            Rc::new(self.algorithm.clone()),
            Rc::new(self.inputs.clone()),
        )
    }

    fn setting(&self, seed: u64) -> Setting {
        Setting {
            seed,
            keeping: self.keeping,
            reload: self.reload || self.algorithm.inits_all(),
            losses: Vec::new(),
        }
    }

    fn judge(&self, setting: &Setting, ended: &Ended) -> std::result::Result<Tally, Failing> {
        let wrong = |text: String| failing(setting, text);
        if let Some(misuse) = &ended.misuse {
            return Err(wrong(misuse.clone()));
        }
        if !ended.hung.is_empty() {
            return Err(wrong(format!("ranks {:?} hang", ended.hung)));
        }
        let outcomes = (0..).map(Rank).zip(&ended.outcomes);
        let living: Vec<(Rank, &Outcome)> = outcomes
            .filter_map(|(rank, outcome)| Some((rank, outcome.as_ref()?)))
            .collect();
        if living.len() + setting.losses.len() < self.inputs.len() {
            return Err(wrong("somebody else died, too".into()));
        }
        let Some((_, first)) = living.first() else {
            return Ok(Tally::default());
        };
        for (rank, outcome) in &living {
            let status = |outcome: &Outcome| outcome.states.as_ref().err().map(|e| e.status);
            if (status(outcome), &outcome.faulty) != (status(first), &first.faulty) {
                return Err(wrong(format!("rank {rank} returns something else")));
            }
        }
        match &first.states {
            Ok(_) => self.judge_states(&living, first).map_err(wrong),
            Err(error) if error.status == Status::DataLost => {
                judge_loss(setting, first).map_err(wrong)
            }
            Err(error) => Err(wrong(format!("fails: {error}"))),
        }
    }

    /// Every node's state with its executor, and right as far as they are here: a rank that died after
    /// the end took its own along.
    fn judge_states(
        &self,
        living: &[(Rank, &Outcome)],
        first: &Outcome,
    ) -> std::result::Result<Tally, String> {
        let ranks = self.inputs.len();
        let mut members = Members::new(living[0].0, ranks);
        members.absorb(&RankSet::from_ranks(ranks, first.faulty.iter().copied()));
        let mut all: Vec<(Node, Slice)> = Vec::new();
        for (rank, outcome) in living {
            let states = outcome.states.iter().flatten();
            let nodes: Vec<Node> = states.clone().map(|(node, _)| *node).collect();
            if nodes != members.nodes_of(*rank) {
                return Err(format!("rank {rank} has the states of {nodes:?}"));
            }
            all.extend(states.cloned());
        }
        if all.len() == members.cube().len() {
            all.sort_by_key(|(node, _)| *node);
            let all: Vec<Slice> = all.into_iter().map(|(_, state)| state).collect();
            (self.judge)(&all)?;
        }
        Ok(Tally { right: 1, lost: 0 })
    }
}

fn failing(setting: &Setting, text: String) -> Failing {
    Failing {
        setting: setting.clone(),
        text,
    }
}

/// Was more lost than the store keeps? Counted are the ranks that died after the last commit, since
/// every commit finds all copies where they belong. Who dies before its input is committed takes it along.
fn judge_loss(setting: &Setting, outcome: &Outcome) -> std::result::Result<Tally, String> {
    let survived = match setting.keeping {
        _ if setting.reload => usize::MAX,
        Keeping::Nowhere => 0,
        Keeping::Memory(copies) => copies,
        Keeping::Directory => usize::MAX,
    };
    let lost = match outcome.absorbed {
        None => !setting.reload,
        Some(absorbed) => outcome.faulty.len() - absorbed > survived,
    };
    match lost {
        true => Ok(Tally { right: 0, lost: 1 }),
        false => Err("data are lost that the store keeps".into()),
    }
}

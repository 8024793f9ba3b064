//! A placement policy that follows a script in place of measurements.

use std::cell::Cell;
use std::fmt;

use super::Trial;
use ftsort_core::engine::{Load, Placement, PlacementPolicy};
use ftsort_core::members::{FULL_WEIGHT, Members, Rank, RankSet};
use ftsort_core::monitor::Report;
use ftsort_core::monitor::group_view::{excluded_if_it_pays, not_recommended};
use ftsort_core::wire::{Reader, Writer};

/// A change of a rank's speed as another rank observes it at some commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The rank that changes its speed.
    pub rank: Rank,
    /// The rank that observes the change.
    pub observer: Rank,
    /// The number of the commit, among those of one job in which the observer takes part.
    pub commit: u32,
}

impl Observation {
    /// Parses the form that `to_string` writes.
    pub fn parse(text: &str) -> Option<Observation> {
        let (rank, rest) = text.split_once('/')?;
        let (observer, commit) = rest.split_once('@')?;
        Some(Observation {
            rank: Rank(rank.parse().ok()?),
            observer: Rank(observer.parse().ok()?),
            commit: commit.parse().ok()?,
        })
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}@{}", self.rank, self.observer, self.commit)
    }
}

/// A change of a rank's weight as another rank observes it at some commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeedChange {
    /// The rank, the observer, and the commit.
    pub observation: Observation,
    /// The new weight, at most [`FULL_WEIGHT`].
    pub weight: u8,
}

impl SpeedChange {
    /// Parses the form that `to_string` writes.
    pub fn parse(text: &str) -> Option<SpeedChange> {
        let (observation, weight) = text.split_once(':')?;
        Some(SpeedChange {
            observation: Observation::parse(observation)?,
            weight: weight
                .parse()
                .ok()
                .filter(|weight| *weight <= FULL_WEIGHT)?,
        })
    }
}

impl fmt::Display for SpeedChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.observation, self.weight)
    }
}

/// The commit of the observer since which a weight holds, and the weight.
type Weight = (u32, u8);

const WEIGHT_BYTES: usize = 5;

/// One rank's policy. It counts the changes that the rank has observed, and reports them to the others when the engine
/// asks for a decision.
pub struct ScriptedPolicy {
    exclusions: Vec<Observation>,
    speeds: Vec<SpeedChange>,
    /// Whether a slow rank is excluded only if that saves time.
    gain: bool,
    /// The number of commits, which is the number of calls that ask for changes.
    asked: Cell<u32>,
    /// The number of changes of each rank that all ranks have agreed on.
    agreed: Vec<u32>,
    /// The weights that all ranks have agreed on.
    weights: Vec<Weight>,
}

impl ScriptedPolicy {
    /// The policy of a rank in one of the jobs of a trial. None: the trial has no script.
    pub fn of(trial: &Trial, me: Rank) -> Option<ScriptedPolicy> {
        let ranks = trial.ranks;
        let mine = |observation: &Observation| {
            observation.observer == me && observation.rank.index() < ranks
        };
        let exclusions = trial
            .exclusions
            .iter()
            .filter(|observation| mine(observation));
        let speeds = trial.speeds.iter().filter(|speed| mine(&speed.observation));
        let silent = trial.exclusions.is_empty() && trial.speeds.is_empty();
        (!silent).then(|| ScriptedPolicy {
            exclusions: exclusions.copied().collect(),
            speeds: speeds.copied().collect(),
            gain: trial.gain,
            asked: Cell::new(0),
            agreed: vec![0; ranks],
            weights: vec![(0, FULL_WEIGHT); ranks],
        })
    }

    /// The counters with the changes that this rank has observed. A rank with an odd counter is slow.
    fn present(&self) -> Vec<u32> {
        let mut counters = self.agreed.clone();
        for observation in &self.exclusions {
            counters[observation.rank.index()] += u32::from(observation.commit <= self.asked.get());
        }
        counters
    }

    /// The weights with the changes that this rank has observed. The latest change counts.
    fn present_weights(&self) -> Vec<Weight> {
        let mut weights = self.weights.clone();
        let seen = |speed: &&SpeedChange| speed.observation.commit <= self.asked.get();
        for SpeedChange {
            observation,
            weight,
        } in self.speeds.iter().filter(seen)
        {
            let known = &mut weights[observation.rank.index()];
            *known = (*known).max((observation.commit, *weight));
        }
        weights
    }

    fn excluded(&self, reports: &[(Rank, Report)], group: &RankSet) -> RankSet {
        let suspects = not_recommended(&self.agreed);
        if !self.gain {
            return suspects;
        }
        let slowdown = |(_, weight): &Weight| f64::from(FULL_WEIGHT) / f64::from(*weight).max(0.4);
        let slowdowns: Vec<f64> = self.weights.iter().map(slowdown).collect();
        excluded_if_it_pays(suspects, reports, &slowdowns, group)
    }
}

/// The weights without their commits.
fn values(weights: &[Weight]) -> Vec<u8> {
    weights.iter().map(|(_, weight)| *weight).collect()
}

impl PlacementPolicy for ScriptedPolicy {
    fn wants_change(&self, members: &Members, _now: f64) -> bool {
        self.asked.set(self.asked.get() + 1);
        let present = self.present();
        let same_group = if self.gain {
            present == self.agreed
        } else {
            not_recommended(&present) == *members.excluded()
        };
        !same_group || values(&self.present_weights()) != members.weights()
    }

    fn local_report(&mut self, load: &Load) -> Vec<u8> {
        let reports = Report {
            counters: self.present(),
            ..Report::default()
        };
        let mut words = Writer::new();
        words.bytes(&reports.with_load(load).encode());
        for (since, weight) in self.present_weights() {
            words.u32(since).u8(weight);
        }
        let asked = self.asked.get();
        self.exclusions
            .retain(|observation| observation.commit > asked);
        words.finish()
    }

    fn settle(&mut self, reports: &[(Rank, &[u8])], group: &RankSet) -> Placement {
        let ranks = self.agreed.len();
        let mut received = Vec::with_capacity(reports.len());
        for (rank, words) in reports {
            let (words, weights) = words.split_at(words.len() - WEIGHT_BYTES * ranks);
            let Some(words) = Report::decode(ranks, words) else {
                continue;
            };
            if group.contains(*rank) {
                for (counter, theirs) in self.agreed.iter_mut().zip(&words.counters) {
                    *counter = (*theirs).max(*counter);
                }
            }
            let mut weights = Reader::new(weights);
            for mine in &mut self.weights {
                if let (Some(since), Some(weight)) = (weights.u32(), weights.u8()) {
                    *mine = (*mine).max((since, weight));
                }
            }
            received.push((*rank, words));
        }
        Placement {
            excluded: self.excluded(&received, group),
            weights: values(&self.weights),
        }
    }
}

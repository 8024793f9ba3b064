//! An policy that follows a script, in place of one that watches ranks.

use std::cell::Cell;
use std::fmt;

use super::Trial;
use ftsort_core::engine::{Load, Placement, PlacementPolicy};
use ftsort_core::members::{FULL_WEIGHT, Rank, RankSet};
use ftsort_core::monitor::Told;
use ftsort_core::monitor::group_view::{left_out_if_it_pays, odd};

/// A rank becomes slow, or is as fast again, as one of the others sees it at some commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whose.
    pub rank: Rank,
    /// Who sees it.
    pub witness: Rank,
    /// At which of the commits that it takes part in, in one sort.
    pub commit: u32,
}

impl Turn {
    /// Reads what `to_string` gave.
    pub fn parse(text: &str) -> Option<Turn> {
        let (rank, rest) = text.split_once('/')?;
        let (witness, commit) = rest.split_once('@')?;
        Some(Turn {
            rank: Rank(rank.parse().ok()?),
            witness: Rank(witness.parse().ok()?),
            commit: commit.parse().ok()?,
        })
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}@{}", self.rank, self.witness, self.commit)
    }
}

/// A rank has another speed, as one of the others sees it at some commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Whose, who sees it, and when.
    pub turn: Turn,
    /// The weight that goes with it, up to that of full speed.
    pub weight: u8,
}

impl Speed {
    /// Reads what `to_string` gave.
    pub fn parse(text: &str) -> Option<Speed> {
        let (turn, weight) = text.split_once(':')?;
        Some(Speed {
            turn: Turn::parse(turn)?,
            weight: weight
                .parse()
                .ok()
                .filter(|weight| *weight <= FULL_WEIGHT)?,
        })
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.turn, self.weight)
    }
}

/// A weight, and since which commit of its witness.
type Weight = (u32, u8);

const WEIGHT_BYTES: usize = 5;

/// One rank's policy: counters of turns, and speeds, of which others hear when all are asked.
pub struct ScriptedPolicy {
    turns: Vec<Turn>,
    speeds: Vec<Speed>,
    /// Who is slow is left out only where that pays.
    gain: bool,
    /// How often it was asked whether it is content.
    asked: Cell<u32>,
    /// As all have agreed on.
    agreed: Vec<u32>,
    /// As all have agreed on.
    weights: Vec<Weight>,
}

impl ScriptedPolicy {
    /// The policy of a rank in one of the sorts of a trial; None if it has no script.
    pub fn of(trial: &Trial, me: Rank) -> Option<ScriptedPolicy> {
        let ranks = trial.ranks;
        let mine = |turn: &Turn| turn.witness == me && turn.rank.index() < ranks;
        let turns = trial.turns.iter().filter(|turn| mine(turn));
        let speeds = trial.speeds.iter().filter(|speed| mine(&speed.turn));
        let silent = trial.turns.is_empty() && trial.speeds.is_empty();
        (!silent).then(|| ScriptedPolicy {
            turns: turns.copied().collect(),
            speeds: speeds.copied().collect(),
            gain: trial.gain,
            asked: Cell::new(0),
            agreed: vec![0; ranks],
            weights: vec![(0, FULL_WEIGHT); ranks],
        })
    }

    /// The counters with the turns that have been seen: every turn makes an even one odd, and an odd one
    /// even.
    fn present(&self) -> Vec<u32> {
        let mut counters = self.agreed.clone();
        for turn in &self.turns {
            counters[turn.rank.index()] += u32::from(turn.commit <= self.asked.get());
        }
        counters
    }

    /// The weights with the speeds that have been seen: the latest counts, whoever saw it.
    fn present_weights(&self) -> Vec<Weight> {
        let mut weights = self.weights.clone();
        let seen = |speed: &&Speed| speed.turn.commit <= self.asked.get();
        for Speed { turn, weight } in self.speeds.iter().filter(seen) {
            let known = &mut weights[turn.rank.index()];
            *known = (*known).max((turn.commit, *weight));
        }
        weights
    }

    fn excluded(&self, told: &[(Rank, Told)], group: &RankSet) -> RankSet {
        let suspects = odd(&self.agreed);
        if !self.gain {
            return suspects;
        }
        let slowdown = |(_, weight): &Weight| f64::from(FULL_WEIGHT) / f64::from(*weight).max(0.4);
        let slowdowns: Vec<f64> = self.weights.iter().map(slowdown).collect();
        left_out_if_it_pays(suspects, told, &slowdowns, group)
    }
}

/// The weights alone.
fn values(weights: &[Weight]) -> Vec<u8> {
    weights.iter().map(|(_, weight)| *weight).collect()
}

impl PlacementPolicy for ScriptedPolicy {
    fn wants_change(&self, excluded: &RankSet, weights: &[u8], _now: f64) -> bool {
        self.asked.set(self.asked.get() + 1);
        let present = self.present();
        let same_group = match self.gain {
            true => present == self.agreed,
            false => odd(&present) == *excluded,
        };
        !same_group || values(&self.present_weights()) != weights
    }

    fn local_report(&mut self, load: &Load) -> Vec<u8> {
        let told = Told {
            counters: self.present(),
            ..Told::default()
        };
        let mut words = told.with(load).encode();
        for (since, weight) in self.present_weights() {
            words.extend(since.to_le_bytes());
            words.push(weight);
        }
        let asked = self.asked.get();
        self.turns.retain(|turn| turn.commit > asked);
        words
    }

    fn settle(&mut self, told: &[(Rank, &[u8])], group: &RankSet) -> Placement {
        let ranks = self.agreed.len();
        let mut heard = Vec::with_capacity(told.len());
        for (rank, words) in told {
            let (words, weights) = words.split_at(words.len() - WEIGHT_BYTES * ranks);
            let Some(words) = Told::decode(ranks, words) else {
                continue;
            };
            if group.contains(*rank) {
                for (counter, theirs) in self.agreed.iter_mut().zip(&words.counters) {
                    *counter = (*theirs).max(*counter);
                }
            }
            for (mine, theirs) in self
                .weights
                .iter_mut()
                .zip(weights.chunks_exact(WEIGHT_BYTES))
            {
                let since = u32::from_le_bytes([theirs[0], theirs[1], theirs[2], theirs[3]]);
                *mine = (*mine).max((since, theirs[4]));
            }
            heard.push((*rank, words));
        }
        Placement {
            excluded: self.excluded(&heard, group),
            weights: values(&self.weights),
        }
    }
}

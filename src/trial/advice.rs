//! An adviser that follows a script, in place of one that watches ranks.

use std::cell::Cell;
use std::fmt;

use crate::engine::{Adviser, Load};
use crate::members::{Rank, RankSet};

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

/// One rank's adviser: counters of turns, of which others hear when all are asked.
pub struct Scripted {
    turns: Vec<Turn>,
    /// How often it was asked whether it is content.
    asked: Cell<u32>,
    /// As all have agreed on.
    agreed: Vec<u32>,
}

impl Scripted {
    pub fn new(me: Rank, ranks: usize, turns: &[Turn]) -> Scripted {
        let turns = turns.iter();
        let mine = turns.filter(|turn| turn.witness == me && turn.rank.index() < ranks);
        Scripted {
            turns: mine.copied().collect(),
            asked: Cell::new(0),
            agreed: vec![0; ranks],
        }
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
}

fn odd(counters: &[u32]) -> RankSet {
    let ranks = Rank::all(counters.len());
    RankSet::from_ranks(
        counters.len(),
        ranks.filter(|rank| counters[rank.index()] % 2 == 1),
    )
}

impl Adviser for Scripted {
    fn is_content(&self, left_out: &RankSet, _now: f64) -> bool {
        self.asked.set(self.asked.get() + 1);
        odd(&self.present()) == *left_out
    }

    fn testimony(&mut self, _load: &Load) -> Vec<u8> {
        let counters = self.present();
        let asked = self.asked.get();
        self.turns.retain(|turn| turn.commit > asked);
        let words = counters.iter();
        words.flat_map(|counter| counter.to_le_bytes()).collect()
    }

    fn settle(&mut self, told: &[(Rank, &[u8])], group: &RankSet) -> RankSet {
        for (_, words) in told.iter().filter(|(rank, _)| group.contains(*rank)) {
            for (counter, word) in self.agreed.iter_mut().zip(words.chunks_exact(4)) {
                let theirs = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                *counter = theirs.max(*counter);
            }
        }
        odd(&self.agreed)
    }
}

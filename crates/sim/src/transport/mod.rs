//! Simulated ranks: the mpi in which one seed decides every interleaving and every crash.
//!
//! It models the MPI that exists, not a kind one. Messages sent before a crash arrive, or do not.
//! Ranks learn of a death at different times, and some never ask. An agreement gives the same to all
//! survivors, at different times; it may count a rank that dies within it, or not; who leads it may
//! hear what was decided and be lost before the others have, and then it is decided anew. A barrier, or a
//! revocation, succeeds at some and fails at others. A rank can be declared dead and live on for a
//! while ([`Manner::Outlive`]), still sending and still writing files, or be cut off and go on alone
//! ([`Manner::CutOff`]).
//!
//! Ranks are coroutines of one thread; time is logical, and a run is replayed exactly by its script.
//! Up to about a thousand ranks.
//!
//! Must never: let anything but the script's seed decide what happens next.

mod calls;
mod mpi;
mod network;
mod scheduler;
mod state;

use std::fmt;

use ftsort_core::members::Rank;

pub use mpi::{Probe, SimMpi};
pub use scheduler::{Played, play, play_with_room};

/// How a rank is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manner {
    /// It stops between two steps.
    Crash,
    /// It is declared dead, wrongly at first: it goes on, and does not know, and stops some time
    /// later.
    Outlive,
    /// Its link is cut: the others take it for dead, and it takes the others for dead, and goes on
    /// alone.
    CutOff,
}

/// One fault: who, at which of its steps, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// Who is lost.
    pub rank: Rank,
    /// At which of its steps, counted from 1.
    pub step: u32,
    /// How.
    pub manner: Manner,
}

impl fmt::Display for Loss {
    /// `RANK@STEP`, with a `z` (for zombie) where the rank outlives its own death, a `c` where it is
    /// cut off.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manner = match self.manner {
            Manner::Crash => "",
            Manner::Outlive => "z",
            Manner::CutOff => "c",
        };
        write!(out, "{}@{}{manner}", self.rank, self.step)
    }
}

impl Loss {
    /// The opposite of `to_string`.
    pub fn parse(text: &str) -> Option<Loss> {
        let (text, manner) = match (text.strip_suffix('z'), text.strip_suffix('c')) {
            (Some(text), _) => (text, Manner::Outlive),
            (_, Some(text)) => (text, Manner::CutOff),
            _ => (text, Manner::Crash),
        };
        let (rank, step) = text.split_once('@')?;
        Some(Loss {
            rank: Rank(rank.parse().ok()?),
            step: step.parse().ok()?,
            manner,
        })
    }
}

/// All that decides a run, beside the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Decides every interleaving.
    pub seed: u64,
    /// Who is lost.
    pub losses: Vec<Loss>,
    /// Write down what happens.
    pub record: bool,
}

/// What a rank does in a step. A fault can inject_crash at each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimStep {
    /// About to send.
    Sending,
    /// Has handed a message to the network.
    Sent,
    /// About to wait for a message.
    Receiving,
    /// Has a message.
    Received,
    /// About to take part in an agreement.
    Agreeing,
    /// Takes part in a collective call, and waits for the others.
    Waiting,
    /// Has heard what was agreed.
    Agreed,
    /// About to acknowledge the failures that it has seen.
    Acknowledging,
    /// Enters a barrier.
    Entering,
    /// Has left it.
    Left,
    /// About to revoke the communicator.
    Revoking,
    /// About to shrink it.
    Shrinking,
    /// Is in the smaller one.
    Shrunk,
    /// About to write to its store.
    Storing,
    /// In the middle of it.
    Tearing,
    /// Has written.
    Stored,
    /// About to read from its store.
    Fetching,
    /// About to remove something from its store.
    Removing,
    /// Acts on a commit.
    Committing,
}

/// One line of what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Logical time.
    pub time: u64,
    /// Who; None: the network.
    pub rank: Option<Rank>,
    /// What, for people.
    pub text: String,
}

/// A step that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// By whom.
    pub rank: Rank,
    /// Which of its steps.
    pub step: u32,
    /// What for.
    pub deed: SimStep,
}

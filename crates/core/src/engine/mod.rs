//! Rounds as transactions: the only part that knows of faults.
//!
//! An algorithm ([`Algorithm`]) says what a node does in a round, and nothing else. The engine runs
//! it for every node on that node's executor, moves what nodes exchange, stores the new version, and
//! commits it by an agreement of all survivors. If anybody died meanwhile, the survivors agree on
//! the dead, compute the covers anew, get the lost blocks back from the store, and run the round
//! again from the last committed version. A crash at any instant falls into one of these two cases,
//! a crash during recovery too, for recovery is such a transaction itself.
//!
//! Nothing leaves the engine (a result, an event, a figure) before its commit.

mod algorithm;
mod commit;
mod corrupt;
mod decision;
mod exchange;
mod handshake;
mod inputs;
mod integrity;
mod job;
mod policy;
mod progress;
mod recovery;
mod redundancy;
mod round;
mod stats;
mod table;
mod verify;
#[cfg(feature = "testing")]
pub mod wire_formats;

pub use algorithm::{Algorithm, Exchange, RoundContext, Split, Step, Subcube};
pub use commit::{Engine, EngineContext, Verdict, agreed_error};
pub use exchange::{Delivery, Letter, Transfer};
pub use handshake::{Handshake, handshake, sum};
pub use inputs::{InputHash, InputHasher, Source};
pub use integrity::{Accusation, Checks};
pub use job::{Finished, Job};
pub use policy::{Load, Placement, PlacementPolicy};
pub use redundancy::checkpoints::Checkpoints;
pub use stats::{Phase, Stats};
pub use verify::{VerifyInput, verify};

use crate::members::Rank;
use crate::vcube::Node;
use ftsort_kernels::error::Finding;

/// What happened, told after it was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The round was committed.
    Round,
    /// The rank was found dead.
    Fault(Rank),
    /// The node is executed by another rank from now on.
    Covered(Node, Rank),
    /// This rank got the node's block back, from a rank, or from the directory or a reload.
    Restored(Node, Option<Rank>),
    /// The round starts again.
    Replay,
    /// The rank executes no node any more, because an policy does not recommend it.
    Demoted(Rank),
    /// The rank executes nodes again.
    Rejoined(Rank),
    /// Something wrong was found: who is accused, if anybody is, by whom, and of what.
    Corrupt(Option<Rank>, Rank, Finding),
}

/// An event with its circumstances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occasion {
    /// What happened.
    pub event: Event,
    /// In which round.
    pub round: u32,
    /// Of how many.
    pub rounds: u32,
    /// Repairs so far.
    pub epoch: u32,
    /// The lowest survivor: who may speak for all.
    pub speaker: Rank,
    /// How many survivors are on this rank's host.
    pub living_here: usize,
}

/// A time that a rank spent on a phase. Those of one rank do not overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// On what.
    pub phase: Phase,
    /// When it began, by the transport's clock.
    pub start: f64,
    /// How long it took.
    pub seconds: f64,
    /// In which round it ended.
    pub round: u32,
    /// Repairs so far, at its end.
    pub epoch: u32,
}

/// A message with records of a block, as its sender or its receiver sees it. Both see those from one to
/// the other in the same order, but for what a death interrupts, and then the epoch is another one; or a
/// lack of memory, and then the job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageEvent {
    /// Who sends.
    pub from: Rank,
    /// Who receives, another rank.
    pub to: Rank,
    /// Its size.
    pub bytes: usize,
    /// In which round.
    pub round: u32,
    /// Repairs so far.
    pub epoch: u32,
}

/// Is told what happens.
pub trait Observer {
    /// Something was agreed on.
    fn event(&mut self, occasion: Occasion);

    /// Time was spent.
    fn span(&mut self, _span: Span) {}

    /// This rank sends something, or has got it.
    fn message(&mut self, _parcel: MessageEvent) {}
}

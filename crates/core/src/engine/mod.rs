//! Rounds as transactions: the only part of ftsort that handles failures.
//!
//! An algorithm ([`Algorithm`]) defines a node's part in a round, and nothing else. The engine runs it for
//! every node on that node's executor, moves the blocks that nodes exchange, stores the new version, and
//! commits it by an agreement of all survivors. If a rank failed in the meantime, the survivors agree on the
//! failed ranks, recompute the executors, restore the lost blocks from the store, and replay the round from
//! the last committed version. A failure at any instant is one of these two cases, and so is a failure during
//! recovery, because recovery is a transaction itself.
//!
//! Nothing leaves the engine (a result, an event, a figure) before its commit.

mod algorithm;
mod arrivals;
mod at_once;
mod commit;
mod corrupt;
mod decision;
mod exchange;
mod gather;
mod handshake;
mod inputs;
mod integrity;
mod job;
mod policy;
mod progress;
mod recovery;
mod redundancy;
mod relay;
mod round;
mod stats;
mod sums;
mod table;
mod verify;
#[cfg(feature = "testing")]
pub mod wire_formats;

pub use algorithm::{
    Algorithm, AtOnce, Exchange, MadeAtOnce, Proposals, RoundContext, Split, Step, Subcube,
};
pub use at_once::finish_gathered;
pub use commit::{
    AgreedStatus, CollectiveError, CollectiveResult, Engine, EngineContext, InStep, Verdict,
    agreed_error,
};
pub use decision::Decisions;
pub use exchange::{ControlMessage, Delivery, ENCLOSED_PART, Transfer};
pub use gather::{Contribution, FOR_HOLDERS, Gathered, TRAILER, WHOLE, trailer};
pub use handshake::{Handshake, handshake, reported_by_all, sum};
pub use inputs::{InputHash, InputHasher, Source};
pub use integrity::{Accusation, Checks};
pub use job::{Finished, JobParts, run_job};
pub use policy::{Load, Placement, PlacementPolicy};
pub use redundancy::checkpoints::Checkpoints;
pub use redundancy::committed::{CommittedStates, StatesCommit};
pub use redundancy::held::HeldInputs;
pub use redundancy::holders::holders;
pub use redundancy::retained::{FinishedRounds, LoadOnly, RetainedResult};
pub use redundancy::update::{repair_inputs, update_inputs};
pub use stats::{Phase, Stats};
pub use verify::{VerifyInput, verify};

use crate::members::Rank;
use crate::vcube::Node;
use ftsort_kernels::error::Finding;

/// An event, reported after all survivors have agreed on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The round was committed.
    Round,
    /// The rank has failed.
    Failure(Rank),
    /// Another rank executes the node for the rest of the call.
    Executor(Node, Rank),
    /// This rank has restored the node's block, from a copy of a rank, or from the directory or inputs. Blocks that are
    /// restored before round 0 is committed are not reported.
    Restored(Node, Option<Rank>),
    /// The round is replayed.
    Replay,
    /// The placement policy does not recommend the rank: it executes no node until it rejoins or the call ends.
    Excluded(Rank),
    /// The rank executes nodes again, for the rest of the call.
    Rejoined(Rank),
    /// A result is recovered: all of its blocks are on their executors, and its redundancy is renewed.
    Renewed,
    /// Data corruption was detected: the accused rank if it is known, the rank that reports it, and its kind.
    Corrupt(Option<Rank>, Rank, Finding),
}

/// An event with its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occasion {
    /// The event.
    pub event: Event,
    /// The round.
    pub round: u32,
    /// The number of rounds.
    pub rounds: u32,
    /// The number of recoveries and changes of executors so far.
    pub epoch: u32,
    /// The lowest survivor, which may report for all.
    pub speaker: Rank,
    /// The number of survivors on this rank's host.
    pub living_here: usize,
}

/// A time that a rank spent on a phase. The spans of one rank do not overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The phase.
    pub phase: Phase,
    /// Its start, by the transport's clock, in seconds.
    pub start: f64,
    /// Its length in seconds.
    pub seconds: f64,
    /// The round in which it ended.
    pub round: u32,
    /// The number of recoveries and changes of executors at its end.
    pub epoch: u32,
}

/// A message with records of a block, as its sender or its receiver reports it.
///
/// Both report the messages of a pair of ranks in the same order, unless a failure interrupts them, after
/// which the epoch differs, or memory is lacking, after which the job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageEvent {
    /// The sender.
    pub from: Rank,
    /// The receiver, which is another rank.
    pub to: Rank,
    /// The size in bytes.
    pub bytes: usize,
    /// The round.
    pub round: u32,
    /// The number of recoveries and changes of executors so far.
    pub epoch: u32,
}

/// Receives events and measurements of an engine.
pub trait Observer {
    /// Reports an event on which all survivors have agreed.
    fn event(&mut self, occasion: Occasion);

    /// Reports a time that was spent.
    fn span(&mut self, _span: Span) {}

    /// Reports a message that this rank sends or has received.
    fn message(&mut self, _parcel: MessageEvent) {}

    /// As [`Observer::message`], for records that travel in one message with the header of their block.
    fn enclosed_message(&mut self, message: MessageEvent) {
        self.message(message);
    }
}

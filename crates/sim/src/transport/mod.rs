//! The transport of simulated ranks: one seed decides every interleaving and every failure.
//!
//! It models the behaviour that MPI implementations show, including the unpleasant cases:
//!
//! - Messages sent before a failure arrive, or do not.
//! - Ranks learn of a failure at different times, and a rank that never asks does not learn of it.
//! - An agreement gives the same result to all survivors, at different times. A rank that fails during the
//!   agreement is counted or not. The rank that leads the agreement may learn the result and fail before the
//!   others learn it; then the agreement is decided again.
//! - A barrier or a revocation succeeds on some ranks and fails on others.
//! - A rank can be reported as failed and go on for a while ([`FailureMode::EarlyReport`]), during which it still
//!   sends messages and writes files. Or it can be separated from all others and go on alone
//!   ([`FailureMode::Partition`]).
//! - A rank can stop, be slow, or hang in a collective call without a report to any rank ([`FailureMode::Stop`],
//!   [`FailureMode::Slow`], [`FailureMode::Hang`]). Timed runs have a clock, by which the other ranks notice it.
//!
//! Ranks are coroutines of one thread, time is logical or that of a network model ([`NetworkModel`]), and a run is
//! repeated exactly by its [`SimConfig`].
//!
//! Must never: take a decision that does not follow from the seed.

mod buffers;
mod calls;
mod clock;
mod events;
mod liveness;
mod mpi;
mod network;
mod ready;
mod scheduler;
mod state;
mod trace;
mod traffic;

use std::fmt;

use ftsort_core::members::Rank;

pub use calls::CollectiveCall;
pub use clock::{AgreementShape, NetworkModel, compute};
pub use liveness::SLOW_SECONDS;
pub use mpi::{RankHandle, SimMpi};
pub use scheduler::{SimResult, run_ranks};
pub use trace::{TraceEntry, TraceEvent};
pub use traffic::Traffic;

/// The way in which a rank fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureMode {
    /// The rank stops between two steps.
    Crash,
    /// The rank is reported as failed while it still runs. It goes on without knowing, and stops some time later.
    EarlyReport,
    /// The rank's link is cut. The others see it as failed, it sees the others as failed, and it goes on alone.
    Partition,
    /// The rank takes no step any more, and no rank is told: a stopped process. Only in timed runs.
    Stop,
    /// The rank works at the step for 200 seconds, and then goes on. Only in timed runs.
    Slow,
    /// The rank's collective calls do not return any more: a hang of MPI. Only in timed runs.
    Hang,
}

/// One injected failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The rank that fails.
    pub rank: Rank,
    /// The step of this rank at which it fails, counted from 1.
    pub step: u32,
    /// The way in which it fails.
    pub mode: FailureMode,
}

impl fmt::Display for Failure {
    /// Writes `RANK@STEP`, followed by `z` for an early report, `c` for a partition, `s` for a stop, `w` for slow work,
    /// and `h` for a hang.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            FailureMode::Crash => "",
            FailureMode::EarlyReport => "z",
            FailureMode::Partition => "c",
            FailureMode::Stop => "s",
            FailureMode::Slow => "w",
            FailureMode::Hang => "h",
        };
        write!(out, "{}@{}{mode}", self.rank, self.step)
    }
}

impl Failure {
    /// Parses the form that `to_string` writes.
    pub fn parse(text: &str) -> Option<Failure> {
        let mode = match text.chars().next_back()? {
            'z' => FailureMode::EarlyReport,
            'c' => FailureMode::Partition,
            's' => FailureMode::Stop,
            'w' => FailureMode::Slow,
            'h' => FailureMode::Hang,
            _ => FailureMode::Crash,
        };
        let text = match mode {
            FailureMode::Crash => text,
            _ => &text[..text.len() - 1],
        };
        let (rank, step) = text.split_once('@')?;
        Some(Failure {
            rank: Rank(rank.parse().ok()?),
            step: step.parse().ok()?,
            mode,
        })
    }
}

/// The words in agreements that Open MPI replaces by multiples of 8 at times, in programs with threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WrongWords {
    /// None.
    #[default]
    Never,
    /// The contribution of some rank, so that all ranks get a wrong result.
    OfAll,
    /// The result of one rank.
    OfOne,
}

/// The values that decide a run, apart from the program that the ranks run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimConfig {
    /// Decides every interleaving.
    pub seed: u64,
    /// The failures to inject.
    pub failures: Vec<Failure>,
    /// Whether to record a trace.
    pub record: bool,
    /// Whether the run has a clock by which waits end.
    pub timed: bool,
    /// The wrong words in agreements.
    pub wrong_words: WrongWords,
    /// Whether the run keeps no records of steps and messages, which take much memory in large groups.
    pub forgets: bool,
    /// Ranks continue in ascending order, each as far as it can, and then all events happen, those of a rank one after
    /// the other. That is fast with many ranks, because the memory of a rank stays in the caches. The seed decides
    /// nothing then.
    pub in_batches: bool,
    /// Whether the ranks run callbacks of a program, which may need large stacks.
    pub large_stacks: bool,
    /// The network clock. None: time is logical.
    pub network: Option<NetworkModel>,
}

/// A message that has arrived at a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Received {
    /// The receiver's job, as [`RankHandle::begin_job`] numbers it.
    pub job: usize,
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// The number of bytes that the receive had room for.
    pub room: usize,
    /// The checksum of its bytes.
    pub checksum: u64,
}

/// The kind of a step. A failure can be injected at each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimStep {
    /// Before a message is sent.
    Sending,
    /// After a message was handed to the network.
    Sent,
    /// Before a receive is posted.
    Receiving,
    /// After a message was received.
    Received,
    /// Before an agreement.
    Agreeing,
    /// After the rank entered a collective call.
    Waiting,
    /// After the rank learned the result of an agreement.
    Agreed,
    /// Before the rank acknowledges the failures that it knows of.
    Acknowledging,
    /// Before a barrier.
    Entering,
    /// After a barrier.
    Left,
    /// Before the communicator is revoked.
    Revoking,
    /// Before the communicator is shrunk.
    Shrinking,
    /// After the communicator was shrunk.
    Shrunk,
    /// Before a file is written.
    Storing,
    /// When a part of a file is written.
    Tearing,
    /// After a file was written or renamed.
    Stored,
    /// After a file or the names of files were synced.
    Synced,
    /// Before a file is read.
    Fetching,
    /// Before a file is removed.
    Removing,
    /// When the rank learns of a commit.
    Committing,
}

/// One step of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// The rank.
    pub rank: Rank,
    /// The number of the step on this rank, counted from 1.
    pub step: u32,
    /// The kind of the step.
    pub kind: SimStep,
}

//! The trace of a run: the events that a timeline shows.

use super::calls::CollectiveCall;
use super::{FailureMode, SimStep};
use ftsort_core::engine::Event;
use ftsort_core::members::Rank;

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// Logical time.
    pub time: u64,
    /// The rank at which it happened. None: the network.
    pub rank: Option<Rank>,
    /// The event.
    pub event: TraceEvent,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// The rank sends a message, which has a number of its own.
    Sends {
        /// The number of the message.
        message: u64,
        /// The receiver.
        to: Rank,
        /// The size of the message.
        bytes: usize,
    },
    /// The rank receives a message.
    Receives {
        /// The number of the message.
        message: u64,
        /// The sender.
        from: Rank,
        /// The size of the message.
        bytes: usize,
    },
    /// A message gets lost because its sender failed.
    Loses {
        /// The number of the message.
        message: u64,
    },
    /// The rank receives more bytes than it expects, which is a defect of the caller.
    Overflows {
        /// The size of the message.
        bytes: usize,
        /// The size of the receive.
        room: usize,
    },
    /// An injected failure begins.
    Fails {
        /// The way in which the rank fails.
        mode: FailureMode,
        /// The step at which it fails.
        step: SimStep,
    },
    /// A rank that was reported as failed stops.
    Stops,
    /// The rank learns of a failure.
    Learns {
        /// The rank that failed.
        failed: Rank,
    },
    /// The rank learns that the communicator was revoked.
    Revoked,
    /// The rank enters a collective call.
    Enters {
        /// The call.
        call: CollectiveCall,
        /// The rank's flag, for agreements.
        flag: u32,
    },
    /// The rank has the result of a collective call.
    Leaves {
        /// The call.
        call: CollectiveCall,
        /// Whether the call reports a failure.
        failed: bool,
    },
    /// The result of an agreement is fixed for some ranks.
    Agrees {
        /// The bitwise AND of the flags.
        flag: u32,
        /// Whether the agreement reports a failure that not all ranks had acknowledged.
        failure: bool,
        /// The ranks that are not counted as survivors.
        failed: Vec<Rank>,
        /// The ranks that get this result.
        recipients: Vec<Rank>,
    },
    /// The engine reports an event to its observer.
    Reports {
        /// The event.
        event: Event,
        /// The round in which it happened.
        round: u32,
        /// The number of rounds.
        rounds: u32,
    },
}

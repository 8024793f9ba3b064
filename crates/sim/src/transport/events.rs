//! The events of the simulated system that happen outside of the ranks' own steps.

use super::calls::CollectiveCall;
use ftsort_core::members::Rank;
use ftsort_core::transport::mpi_api::Request;

/// An event that can happen while all ranks pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimEvent {
    /// The oldest message between two ranks arrives.
    Arrive { from: Rank, to: Rank },
    /// A large message is copied to the receive that it has matched.
    Transfer { to: Rank, receive: Request },
    /// A rank learns of a failure.
    ReportFailure { to: Rank, about: Rank },
    /// A rank learns that a communicator was revoked.
    Revoked { to: Rank, comm: usize },
    /// The result of a collective call is decided.
    Decide {
        comm: usize,
        call: CollectiveCall,
        number: usize,
    },
    /// A rank continues after a collective call.
    Leave { rank: Rank },
    /// A rank that was reported as failed stops.
    Stop { rank: Rank },
}

impl SimEvent {
    /// The rank to which it happens; None for the result of a collective call.
    pub fn rank(&self) -> Option<Rank> {
        match *self {
            SimEvent::Arrive { to: rank, .. }
            | SimEvent::Transfer { to: rank, .. }
            | SimEvent::ReportFailure { to: rank, .. }
            | SimEvent::Revoked { to: rank, .. }
            | SimEvent::Leave { rank }
            | SimEvent::Stop { rank } => Some(rank),
            SimEvent::Decide { .. } => None,
        }
    }
}

//! The interface between the engine and a message-passing layer with processes that may fail.
//!
//! The engine communicates through [`Transport`] alone. A transport never decides how to handle a failure; it
//! only reports failures, and makes all survivors hold the same set of failed ranks on request. There is one
//! transport, [`Protocol`], over two implementations of [`MpiApi`](mpi_api::MpiApi): MPI with ULFM, and
//! simulated ranks.

pub mod comparison;
pub mod mpi_api;
pub mod numbered;
mod protocol;
pub mod recv_buffers;
pub mod watch;

pub use comparison::Comparison;
pub use protocol::{Protocol, ProtocolConfig, Repair};
pub use watch::{Contact, Timeout};

use std::convert::Infallible;

use crate::members::{Rank, RankSet};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;

/// The number of bits of the word that a rank contributes to an agreement.
pub const WORD_BITS: u32 = protocol::WORD_BITS;

/// Identifies a posted receive until its bytes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Everything that was posted is complete.
    Done,
    /// A rank failed: posted messages may never complete. The caller abandons the round, takes part in the
    /// next agreement, and then recovers.
    Interrupted,
}

/// The outcome of an agreement, the same on all survivors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Agreed {
    /// The bitwise AND of the survivors' contributions. None: it is lost, because the contribution of a failed rank to
    /// another agreement was counted in this one.
    pub flag: Option<u32>,
    /// Ranks have failed since the last recovery: all ranks must recover.
    pub faults: bool,
}

/// Messages, agreement, time and (for tests with real crashes) termination.
///
/// Messages from one rank to another arrive in the order in which they were sent, and match the receives
/// there in the order in which these were posted. Nothing blocks except [`settle`], [`settle_receives`], [`agree`] and
/// [`recover`], and these end although ranks fail.
///
/// [`settle`]: Transport::settle
/// [`settle_receives`]: Transport::settle_receives
/// [`agree`]: Transport::agree
/// [`recover`]: Transport::recover
pub trait Transport {
    /// This process's rank.
    fn me(&self) -> Rank;

    /// The number of ranks at the start, failed ones included.
    fn ranks(&self) -> usize;

    /// Seconds since some fixed instant; monotonic.
    fn now(&self) -> f64;

    /// See [`MpiApi::keeps_borrowed`](mpi_api::MpiApi::keeps_borrowed).
    fn keeps_borrowed(&self) -> bool;

    /// Posts a message. `payload` is shared, not copied. Must not be called for a rank that is known to have
    /// failed.
    fn send(&mut self, to: Rank, payload: Slice) -> Result<()>;

    /// Posts a receive of the next message from `from`. The message may be shorter than `capacity` if that is
    /// at most [`Transport::eager_limit`]; longer ones must fit exactly. `Status::Memory` if there is no
    /// memory; then nothing is posted.
    fn receive(&mut self, from: Rank, capacity: usize) -> Result<Ticket>;

    /// Posts a receive of the next message, of `length` bytes, and discards the bytes. Needs little memory:
    /// for ranks that have run out of it but must not leave a sender waiting.
    fn discard(&mut self, from: Rank, length: usize) -> Result<()>;

    /// The greatest capacity for which a receive accepts a shorter message.
    fn eager_limit(&self) -> usize;

    /// The number of ranks with which a rank exchanges control messages in one step, where all ranks together are more
    /// than this number squared.
    fn fan_out(&self) -> usize;

    /// Waits until everything posted is complete, or a rank fails.
    fn settle(&mut self) -> Result<Flow>;

    /// Waits until every posted receive is complete, or a rank fails. Sends may still be in progress.
    fn settle_receives(&mut self) -> Result<Flow>;

    /// Returns whether all bytes of a receive have arrived. False for a ticket that is unknown.
    fn is_complete(&self, ticket: Ticket) -> bool;

    /// Returns the bytes of a completed receive; once for each ticket.
    ///
    /// # Panics
    ///
    /// If the ticket is unknown, or its receive is not complete.
    fn take(&mut self, ticket: Ticket) -> Slice;

    /// Agrees with all survivors on the bitwise AND of `flag`, of which the lowest [`WORD_BITS`] bits are used.
    /// Collective.
    fn agree(&mut self, flag: u32) -> Result<Agreed>;

    /// The number of the last agreement, which wraps around. None: a message was posted since, or there was none.
    fn agreement(&self) -> Option<u32>;

    /// Makes all survivors hold the same set of failed ranks, returns all failures so far, and clears every
    /// message that is still in transit. Messages that survivors have sent arrive at the receives that are
    /// posted for them. Afterwards all tickets are unknown, except those in `keep` of which the receive is
    /// complete. Collective; called by all survivors after an agreement that reported failures, or that made
    /// all ranks abandon a round by its flag.
    fn recover(&mut self, keep: &[Ticket]) -> Result<RankSet>;

    /// The ranks that all survivors know to have failed.
    fn failed(&self) -> &RankSet;

    /// Sets the way in which failures are agreed on from now on; on all ranks at the same place of the
    /// program.
    fn repair_by(&mut self, repair: Repair);

    /// Returns the data with which other ranks can probe this rank for signs of life.
    fn contact(&self) -> Contact;

    /// Receives the contacts of all survivors. From now on a timeout counts from their signs of life.
    fn meet(&mut self, contacts: &[(Rank, Contact)]);

    /// Tells the ranks that probe this rank that it takes part in no agreement any more.
    fn leave(&mut self);

    /// Kills this process as a failure would. A transport in which several ranks share a process returns
    /// an error that must be passed up without another call to the transport.
    fn crash(&mut self) -> Result<Infallible>;
}

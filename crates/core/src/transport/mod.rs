//! What the engine needs of a message-passing layer in which processes crash.
//!
//! The engine talks through [`Transport`] alone. A transport never decides what a fault means; it
//! only reports, and makes all survivors hold the same set of dead ranks when asked to. There is one
//! transport, [`Protocol`], over two fabrics: MPI with ULFM ([`ulfm`]), and simulated ranks (`sim`,
//! with the feature `simulation`).

pub mod mpi_api;
mod protocol;
pub mod recv_buffers;

pub use protocol::{Protocol, ProtocolConfig, Repair};

use std::convert::Infallible;

use crate::members::{Rank, RankSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;

/// Names a posted receive until its bytes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Everything that was posted is complete.
    Done,
    /// A rank died: what was posted may never complete. The caller gives the round up, takes part
    /// in the next agreement, and then recovers.
    Interrupted,
}

/// What an agreement decided, the same on all survivors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Agreed {
    /// The bitwise AND of what the survivors contributed.
    pub flag: u32,
    /// Ranks have died since the last recovery: everybody must recover.
    pub faults: bool,
}

/// Messages, agreement, time and (for tests of real crashes) death.
///
/// Messages from one rank to another arrive in the order in which they were sent, and match the
/// receives there in the order in which these were posted. Nothing blocks except [`settle`],
/// [`agree`] and [`recover`], and these end although ranks die.
///
/// [`settle`]: Transport::settle
/// [`agree`]: Transport::agree
/// [`recover`]: Transport::recover
pub trait Transport {
    /// This process's rank.
    fn me(&self) -> Rank;

    /// How many ranks there were at the start, dead ones included.
    fn ranks(&self) -> usize;

    /// Seconds since some fixed instant; monotonic.
    fn now(&self) -> f64;

    /// Posts a message. `payload` is shared, not copied. Never send to a rank known to be dead.
    fn send(&mut self, to: Rank, payload: Slice) -> Result<()>;

    /// Posts a receive of the next message from `from`. The message may be shorter than `capacity`
    /// if that is at most [`Transport::eager_limit`]; longer ones must fit exactly.
    /// `Status::Memory` if there is no room; nothing is posted then.
    fn receive(&mut self, from: Rank, capacity: usize) -> Result<Ticket>;

    /// Posts a receive of the next message, of `length` bytes, and throws the bytes away. Needs no
    /// memory to speak of: for ranks that have run out of it but must not leave a sender waiting.
    fn discard(&mut self, from: Rank, length: usize) -> Result<()>;

    /// The greatest capacity for which a receive accepts a shorter message.
    fn eager_limit(&self) -> usize;

    /// Waits until everything posted is complete, or somebody dies.
    fn settle(&mut self) -> Result<Flow>;

    /// The bytes of a completed receive; each ticket once.
    ///
    /// # Panics
    /// If the ticket is unknown, or its receive is not complete.
    fn take(&mut self, ticket: Ticket) -> Buffer;

    /// Agreement among all survivors on the bitwise AND of `flag`, whose two highest bits are not looked
    /// at. Collective.
    fn agree(&mut self, flag: u32) -> Result<Agreed>;

    /// Makes all survivors hold the same set of dead ranks, returns it (all deaths so far), and
    /// clears away every message that is still on its way. Collective; called by all survivors
    /// after an agreement that reported faults, or whose flag made everybody give up.
    fn recover(&mut self) -> Result<RankSet>;

    /// The ranks that all survivors know to have failed.
    fn failed(&self) -> &RankSet;

    /// Repairs failures in this way from now on; called by all ranks at the same place of the program.
    fn repair_by(&mut self, repair: Repair);

    /// Kills this process as a fault would. A transport whose ranks are not processes of their own
    /// returns an error that must be passed up without another call to the transport.
    fn crash(&mut self) -> Result<Infallible>;
}

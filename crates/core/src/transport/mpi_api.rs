//! What the protocol needs of MPI with ULFM, call by call.
//!
//! [`Protocol`](super::Protocol) makes a transport out of this. There are two fabrics: MPI itself
//! ([`ulfm`](super::ulfm)), and a simulation of it, in which every interleaving and every crash is
//! decided by one seed. A mpi reports what this one rank sees, and never draws conclusions.

use std::convert::Infallible;
use std::ops::Range;

use crate::members::{Rank, RankSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;

/// Names a send or a receive that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request(pub u64);

/// Names a buffer that receives write into. It is the mpi's until it is lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecvBuffer(pub u64);

/// Tells messages apart that must not be taken for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(pub u32);

/// How a call ended, reduced to what the protocol branches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Success.
    Fine,
    /// A process involved is dead, or the communicator was revoked because one is.
    Failed,
}

/// One look at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Look {
    /// It is under way.
    Pending,
    /// It is complete, with so many bytes (meaningful for receives). The request is gone.
    Complete(usize),
    /// It will never complete, since the peer is dead. The request is gone.
    Failed,
}

/// One rank's view of a communicator in which processes crash.
///
/// Ranks are those of the communicator that the group was made of, whatever the mpi uses inside.
/// Messages with one tag from one rank to another match receives in the order in which both were
/// posted.
pub trait MpiApi {
    /// This process's rank.
    fn me(&self) -> Rank;

    /// How many ranks there were at the start, dead ones included.
    fn ranks(&self) -> usize;

    /// The ranks that are not in the present communicator.
    fn absent(&self) -> RankSet;

    /// Seconds since some fixed instant; monotonic.
    fn now(&self) -> f64;

    /// A place for `bytes` bytes. `Status::Memory` if there is no room.
    fn land(&mut self, bytes: usize) -> Result<RecvBuffer>;

    /// The bytes.
    ///
    /// # Panics
    /// If a receive into it is still under way.
    fn lift(&mut self, buffer: RecvBuffer) -> Buffer;

    /// Nobody wants the bytes; freed as soon as no receive can write there any more.
    fn release(&mut self, buffer: RecvBuffer);

    /// Starts to send. The payload is kept until it has left.
    fn send(&mut self, to: Rank, tag: Tag, payload: Slice) -> Result<Request>;

    /// Starts to receive at most `range.len()` bytes to a part of a buffer.
    fn receive(
        &mut self,
        from: Rank,
        tag: Tag,
        buffer: RecvBuffer,
        range: Range<usize>,
    ) -> Result<Request>;

    /// How is it going? A mpi may make progress only here.
    fn test(&mut self, request: Request) -> Result<Look>;

    /// Takes a receive back if nothing matches it yet; it must still be tested to its end.
    fn cancel(&mut self, request: Request) -> Result<()>;

    /// A request with a dead peer that does not end: nobody will ask again, but what it uses is
    /// kept.
    fn abandon(&mut self, request: Request);

    /// Nothing to do at the moment: lets others go on.
    fn rest(&mut self) -> Result<()>;

    /// How many members of the communicator this rank has seen die: `MPIX_Comm_get_failed`.
    fn failures(&mut self) -> Result<usize>;

    /// Acknowledges what this rank has seen, and returns it: `MPIX_Comm_failure_ack`, `_get_acked`.
    fn acknowledge(&mut self) -> Result<RankSet>;

    /// `MPIX_Comm_agree`: the bitwise AND over the survivors, the same at all of them; and whether
    /// somebody is dead whom not all of them had acknowledged, the same at all of them too.
    /// Collective. `Status::Mpi` if it takes longer than `timeout` seconds.
    fn agree(&mut self, flag: u32, timeout: Option<f64>) -> Result<(Outcome, u32)>;

    /// `MPI_Barrier`. May succeed at some and fail at others. Collective.
    fn barrier(&mut self) -> Result<Outcome>;

    /// `MPIX_Comm_revoke`: everything that is under way fails, everywhere, but for agreements and
    /// shrinking.
    fn revoke(&mut self) -> Result<()>;

    /// `MPIX_Comm_shrink`: goes on with a communicator of the survivors. Returns who is not in it.
    /// Collective.
    fn shrink(&mut self) -> Result<RankSet>;

    /// Kills this process as a fault would.
    fn crash(&mut self) -> Result<Infallible>;
}

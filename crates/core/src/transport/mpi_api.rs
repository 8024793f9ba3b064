//! The calls of MPI with ULFM that the protocol uses.
//!
//! [`Protocol`](super::Protocol) makes a transport of this interface. There are two implementations: MPI
//! itself, and a simulation in which one seed decides every interleaving and every failure. An implementation
//! reports the view of one rank, and never draws conclusions.

use std::convert::Infallible;
use std::ops::Range;

use super::watch::{Liveness, Watch};
use crate::members::{Rank, RankSet};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;

/// Identifies a send or a receive that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request(pub u64);

/// Identifies a buffer that receives write into. It belongs to the implementation until it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecvBuffer(pub u64);

/// Distinguishes messages that must not be confused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(pub u32);

/// The outcome of a call, reduced to the cases that the protocol distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Success.
    Fine,
    /// A process involved has failed, or the communicator was revoked because one has.
    Failed,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Look {
    /// It is in progress.
    Pending,
    /// It is complete, with this many bytes (meaningful for receives). The request no longer exists.
    Complete(usize),
    /// It will never complete, because the peer has failed. The request no longer exists.
    Failed,
}

/// One rank's view of a communicator of processes that may fail.
///
/// Ranks are those of the communicator from which the group was made, whatever the implementation uses
/// inside. Messages with one tag from one rank to another match receives in the order in which both were
/// posted.
pub trait MpiApi: Liveness {
    /// This process's rank.
    fn me(&self) -> Rank;

    /// The number of ranks at the start, failed ones included.
    fn ranks(&self) -> usize;

    /// The ranks that are not in the present communicator.
    fn absent(&self) -> RankSet;

    /// Whether another transport may use the communicator after this one, and would receive messages that are left.
    fn is_reused(&self) -> bool {
        false
    }

    /// Seconds since some fixed instant; monotonic.
    fn now(&self) -> f64;

    /// Allocates a receive buffer of `bytes` bytes. `Status::Memory` if there is no memory.
    fn add_buffer(&mut self, bytes: usize) -> Result<RecvBuffer>;

    /// Takes the first `bytes` bytes of a receive buffer.
    ///
    /// # Panics
    ///
    /// If a receive into it is still in progress.
    fn take_buffer(&mut self, buffer: RecvBuffer, bytes: usize) -> Slice;

    /// Gives up a receive buffer; its memory is freed as soon as no receive can write to it any more.
    fn release(&mut self, buffer: RecvBuffer);

    /// Whether a send may still read borrowed bytes ([`Slice::borrowed`]) after an error that separates this rank from
    /// the others.
    fn keeps_borrowed(&self) -> bool {
        true
    }

    /// Starts a send. The payload is kept until it has been sent.
    fn send(&mut self, to: Rank, tag: Tag, payload: Slice) -> Result<Request>;

    /// Starts a receive of at most `range.len()` bytes into a part of a buffer.
    fn receive(
        &mut self,
        from: Rank,
        tag: Tag,
        buffer: RecvBuffer,
        range: Range<usize>,
    ) -> Result<Request>;

    /// Returns the state of a request. An implementation may make progress only here.
    fn test(&mut self, request: Request) -> Result<Look>;

    /// Cancels a receive if no message matches it yet; it must still be tested to its end.
    fn cancel(&mut self, request: Request) -> Result<()>;

    /// Abandons a request with a failed peer that does not end; its resources are kept.
    fn abandon(&mut self, request: Request);

    /// Lets other processes run, because there is nothing to do at the moment.
    fn rest(&mut self) -> Result<()>;

    /// The number of members of the communicator that this rank has seen fail: `MPIX_Comm_get_failed`.
    ///
    /// `receiver`: the rank that this rank is about to send a message to; the answer is then up to date as far as that
    /// send is concerned. None: this rank waits, and the answer may be some time old.
    fn failures(&mut self, receiver: Option<Rank>) -> Result<usize>;

    /// Acknowledges the failures that this rank has seen, and returns them: `MPIX_Comm_failure_ack`,
    /// `_get_acked`.
    fn acknowledge(&mut self) -> Result<RankSet>;

    /// `MPIX_Comm_agree`: the bitwise AND over the survivors, and whether there is a failed rank that not all
    /// of them had acknowledged; both the same on all survivors. Collective. While it waits it looks at the
    /// `watch`, if there is one, and ends with its error.
    fn agree(&mut self, flag: u32, watch: Option<&mut Watch>) -> Result<(Outcome, u32)>;

    /// `MPI_Barrier`. May succeed on some ranks and fail on others. Collective.
    fn barrier(&mut self) -> Result<Outcome>;

    /// `MPIX_Comm_revoke`: all operations in progress fail on all ranks, except agreements and shrinking.
    fn revoke(&mut self) -> Result<()>;

    /// `MPIX_Comm_shrink`: continues with a communicator of the survivors. Returns the ranks that are not in
    /// it. Collective.
    fn shrink(&mut self) -> Result<RankSet>;

    /// Kills this process as a failure would.
    fn crash(&mut self) -> Result<Infallible>;
}

//! Messages in progress: the posted requests and their purpose, and the clearing of an epoch's messages.

use std::collections::BTreeMap;

use super::counts::{Counts, PeerCounts};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::transport::Ticket;
use crate::transport::mpi_api::{Look, MpiApi, Outcome, RecvBuffer, Request, Tag};
use crate::transport::numbered::Numbered;
use crate::transport::watch::Watch;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;
use ftsort_kernels::memory;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Send,
    /// A part of a receive.
    Receive(Ticket),
    /// A receive into the scratch buffer, or one that was cancelled.
    Discard,
}

struct Open {
    request: Request,
    peer: Rank,
    purpose: Purpose,
}

struct Incoming {
    buffer: RecvBuffer,
    chunks_open: usize,
    received: usize,
}

impl Incoming {
    fn is_complete(&self) -> bool {
        self.chunks_open == 0
    }
}

/// The number of messages posted to and from a peer since the last recovery.
#[derive(Clone, Copy, Default)]
struct Posted {
    sends: u64,
    receives: u64,
}

pub struct Pending {
    chunk: usize,
    open: Vec<Open>,
    incoming: Numbered<Incoming>,
    posted: BTreeMap<Rank, Posted>,
    /// Discarded messages are received here, each over the previous one.
    scratch: Option<RecvBuffer>,
}

/// The tags of data are even, and those of the counts that are exchanged before an epoch is cleared are odd. MPI allows
/// at least 32767.
const TAGS_OF_EACH: u32 = 16_000;

fn data_tag(epoch: u32) -> Tag {
    Tag(epoch % TAGS_OF_EACH * 2)
}

/// The tag of one exchange of counts.
pub fn count_tag(exchange: u32) -> Tag {
    Tag(exchange % TAGS_OF_EACH * 2 + 1)
}

impl Pending {
    pub fn new(chunk: usize) -> Pending {
        Pending {
            chunk,
            open: Vec::new(),
            incoming: Numbered::default(),
            posted: BTreeMap::new(),
            scratch: None,
        }
    }

    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether all receives are complete, and all sends too if these count.
    pub fn is_settled(&self, sends: bool) -> bool {
        let mut open = self.open.iter();
        open.all(|open| !sends && open.purpose == Purpose::Send)
    }

    /// The number of messages in which a payload of `length` bytes travels. An empty one is a message too.
    fn chunks(&self, length: usize) -> usize {
        length.div_ceil(self.chunk).max(1)
    }

    pub fn send(
        &mut self,
        mpi: &mut impl MpiApi,
        to: Rank,
        epoch: u32,
        payload: &Slice,
    ) -> Result<()> {
        for index in 0..self.chunks(payload.len()) {
            let end = payload.len().min((index + 1) * self.chunk);
            let part = payload.part(index * self.chunk..end);
            let request = mpi.send(to, data_tag(epoch), part)?;
            self.posted.entry(to).or_default().sends += 1;
            self.open.push(Open {
                request,
                peer: to,
                purpose: Purpose::Send,
            });
        }
        Ok(())
    }

    pub fn receive(
        &mut self,
        mpi: &mut impl MpiApi,
        from: Rank,
        epoch: u32,
        capacity: usize,
    ) -> Result<Ticket> {
        let buffer = mpi.add_buffer(capacity)?;
        let chunks = self.chunks(capacity);
        let ticket = Ticket(self.incoming.add(Incoming {
            buffer,
            chunks_open: chunks,
            received: 0,
        }));
        for index in 0..chunks {
            let end = capacity.min((index + 1) * self.chunk);
            let range = index * self.chunk..end;
            let request = mpi.receive(from, data_tag(epoch), buffer, range)?;
            self.posted.entry(from).or_default().receives += 1;
            self.open.push(Open {
                request,
                peer: from,
                purpose: Purpose::Receive(ticket),
            });
        }
        Ok(ticket)
    }

    pub fn discard(
        &mut self,
        mpi: &mut impl MpiApi,
        from: Rank,
        epoch: u32,
        length: usize,
    ) -> Result<()> {
        for _ in 0..self.chunks(length) {
            self.post_discard(mpi, from, epoch)?;
            self.posted.entry(from).or_default().receives += 1;
        }
        Ok(())
    }

    fn post_discard(&mut self, mpi: &mut impl MpiApi, from: Rank, epoch: u32) -> Result<()> {
        let scratch = match self.scratch {
            Some(scratch) => scratch,
            // A rank that discards a message may have no memory left within its limit.
            None => *self.scratch.insert(control_buffer(mpi, self.chunk)?),
        };
        let request = mpi.receive(from, data_tag(epoch), scratch, 0..self.chunk)?;
        self.open.push(Open {
            request,
            peer: from,
            purpose: Purpose::Discard,
        });
        Ok(())
    }

    /// Tests open requests in their order, and drops those that are complete: all of them, or those before the first
    /// one that is not. Each test makes progress for all, and takes its time only if the request is not complete.
    pub fn poll(&mut self, mpi: &mut impl MpiApi, tests_all: bool) -> Result<Outcome> {
        let mut result = Ok(Outcome::Fine);
        let mut goes_on = true;
        let incoming = &mut self.incoming;
        self.open.retain(|open| {
            if !goes_on {
                return true;
            }
            match mpi.test(open.request) {
                Ok(Look::Pending) => {
                    goes_on = tests_all;
                    return true;
                }
                Ok(Look::Complete(bytes)) => {
                    count_arrival(incoming, open.purpose, bytes);
                    return false;
                }
                Ok(Look::Failed) => result = Ok(Outcome::Failed),
                Err(error) => result = Err(error),
            }
            goes_on = false;
            // MPI has completed a request that it reports as failed.
            result.is_err()
        });
        result
    }

    pub fn is_complete(&self, ticket: Ticket) -> bool {
        let incoming = self.incoming.get(ticket.0);
        incoming.is_some_and(Incoming::is_complete)
    }

    pub fn take(&mut self, mpi: &mut impl MpiApi, ticket: Ticket) -> Slice {
        let incoming = self.incoming.remove(ticket.0);
        let Some(incoming) = incoming.filter(Incoming::is_complete) else {
            panic!("{ticket:?} is unknown or not complete");
        };
        mpi.take_buffer(incoming.buffer, incoming.received)
    }

    /// The number of messages that this rank has sent to each peer since the last recovery, if it has sent any.
    pub fn sends(&self) -> Counts {
        let sends = self
            .posted
            .iter()
            .map(|(peer, posted)| (*peer, posted.sends));
        sends.filter(|(_, sends)| *sends > 0).collect()
    }

    /// Clears an epoch, so that no message of it can match a receive of the next.
    ///
    /// `theirs`: the number of messages that each live peer has posted to this rank. A message that a peer has posted
    /// is received, into scratch if no receive is posted for it any more; a receive that no message will match
    /// is cancelled. Sends are never cancelled: the peer's scratch receive completes them. A peer that fails
    /// in the meantime is skipped, because the next round recovers again.
    pub fn drain(
        &mut self,
        mpi: &mut impl MpiApi,
        live: &RankSet,
        theirs: &PeerCounts,
        epoch: u32,
        watch: &mut Watch,
    ) -> Result<()> {
        let is_counted = |peer: &Rank| live.contains(*peer) && !theirs.failed.contains(peer);
        let sent = |peer| theirs.counts.get(&peer).copied().unwrap_or(0);
        let mut unmatched = Counts::new();
        for (peer, posted) in self.posted.iter().filter(|(peer, _)| is_counted(peer)) {
            unmatched.insert(*peer, posted.receives.saturating_sub(sent(*peer)));
        }
        self.cancel_last_receives(mpi, unmatched)?;
        for (peer, sent) in theirs.counts.iter().filter(|(peer, _)| is_counted(peer)) {
            let receives = self.posted.get(peer).copied().unwrap_or_default().receives;
            if mutant(Mutant::LateMessagesNotReceived) {
                continue;
            }
            for _ in receives..*sent {
                self.post_discard(mpi, *peer, epoch)?;
            }
        }
        self.finish_with(mpi, live, watch)
    }

    /// Begins the next epoch: gives up all receives but the complete ones in `keep`.
    pub fn forget(&mut self, mpi: &mut impl MpiApi, keep: &[Ticket]) {
        self.incoming.retain(|ticket, incoming| {
            let kept = keep.contains(&Ticket(ticket)) && incoming.is_complete();
            if !kept {
                mpi.release(incoming.buffer);
            }
            kept
        });
        if let Some(scratch) = self.scratch.take() {
            mpi.release(scratch);
        }
        self.posted.clear();
    }

    /// Cancels so many of the last receives from each peer.
    fn cancel_last_receives(&mut self, mpi: &mut impl MpiApi, mut counts: Counts) -> Result<()> {
        let receives = self.open.iter_mut().rev();
        for open in receives.filter(|open| open.purpose != Purpose::Send) {
            let Some(left @ 1..) = counts.get_mut(&open.peer) else {
                continue;
            };
            *left -= 1;
            mpi.cancel(open.request)?;
            // A cancelled receive ends like one of an empty message.
            if !mutant(Mutant::CancelledReceivesCount) {
                open.purpose = Purpose::Discard;
            }
        }
        Ok(())
    }

    /// Waits for every request with a live peer. Those with failed peers get a limited time, and are then
    /// abandoned.
    fn finish_with(
        &mut self,
        mpi: &mut impl MpiApi,
        live: &RankSet,
        watch: &mut Watch,
    ) -> Result<()> {
        const POLLS: usize = 10_000;
        for open in std::mem::take(&mut self.open) {
            let end = if live.contains(open.peer) {
                wait(mpi, open.request, watch, None)?
            } else {
                end_within(mpi, open.request, POLLS)?
            };
            match end {
                Look::Complete(bytes) => {
                    count_arrival(&mut self.incoming, open.purpose, bytes);
                }
                Look::Failed => {}
                Look::Pending => mpi.abandon(open.request),
            }
        }
        Ok(())
    }

    /// After a revocation every request ends by itself, without a message.
    pub fn abandon(&mut self, mpi: &mut impl MpiApi, watch: &mut Watch) -> Result<()> {
        self.finish_with(mpi, &RankSet::new(0), watch)
    }
}

/// Allocates a receive buffer that the memory limit does not apply to: a refusal could not be shared with the
/// other ranks.
pub fn control_buffer(mpi: &mut impl MpiApi, bytes: usize) -> Result<RecvBuffer> {
    if mutant(Mutant::DiscardsAreLimited) {
        return mpi.add_buffer(bytes);
    }
    memory::for_messages(|| mpi.add_buffer(bytes))
}

/// Adds a message that has arrived to its receive.
fn count_arrival(incoming: &mut Numbered<Incoming>, purpose: Purpose, bytes: usize) {
    if let Purpose::Receive(ticket) = purpose
        && let Some(into) = incoming.get_mut(ticket.0)
    {
        into.chunks_open -= 1;
        into.received += bytes;
    }
}

/// Polls a request to its end. `Look::Failed` if the peer has failed; `Look::Pending` if this rank sees more than the `known`
/// failures before the end. None: failures of other ranks do not matter.
pub fn wait(
    mpi: &mut impl MpiApi,
    request: Request,
    watch: &mut Watch,
    known: Option<usize>,
) -> Result<Look> {
    watch.begin(mpi.now());
    let end = loop {
        match mpi.test(request)? {
            Look::Pending => mpi.rest()?,
            end => break end,
        }
        let now = mpi.now();
        if watch.is_due(now) {
            if let Some(known) = known
                && mpi.failures(None)? > known
            {
                break Look::Pending;
            }
            watch.look(mpi, now)?;
        }
    };
    watch.end(mpi);
    Ok(end)
}

/// Polls a request at most so many times. `Look::Pending` if it has not ended then.
fn end_within(mpi: &mut impl MpiApi, request: Request, polls: usize) -> Result<Look> {
    for _ in 0..polls {
        match mpi.test(request)? {
            Look::Pending => mpi.rest()?,
            end => return Ok(end),
        }
    }
    Ok(Look::Pending)
}

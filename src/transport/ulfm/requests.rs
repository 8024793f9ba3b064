//! Messages under way: posted sends and receives, the buffers that they use, and their progress.
//!
//! Owns every buffer that MPI may still read or write; a buffer leaves only after its requests are
//! complete. What cannot be completed is kept until the process ends.

use std::collections::BTreeMap;
use std::ffi::c_int;

use mpi_sys::{MPI_Request, MPI_Status};

use super::comm::{Comm, Outcome, check, outcome};
use crate::buffer::{Buffer, Slice};
use crate::error::Result;
use crate::members::Rank;
use crate::transport::Ticket;

/// What an MPI request reads or writes.
enum Use {
    /// Keeps the bytes of a send alive.
    Send { _payload: Slice },
    /// A part of a receive.
    Receive(Ticket),
    /// A receive into the scratch buffer.
    Discard,
}

struct Open {
    request: MPI_Request,
    peer: Rank,
    purpose: Use,
}

struct Incoming {
    buffer: Buffer,
    chunks_open: usize,
    received: usize,
}

/// How many messages were posted to and from a peer since the last repair.
#[derive(Clone, Copy, Default)]
pub struct Posted {
    pub sends: u64,
    pub receives: u64,
}

pub struct Requests {
    chunk: usize,
    open: Vec<Open>,
    incoming: BTreeMap<Ticket, Incoming>,
    next_ticket: u64,
    posted: BTreeMap<Rank, Posted>,
    /// Discarded messages all land here, one after the other and on top of each other.
    scratch: Option<Buffer>,
    /// Requests with dead peers that MPI does not complete, with their buffers.
    stuck: Vec<(Open, Option<Incoming>)>,
}

/// Two tags an epoch: data, and the counts exchanged when an epoch is cleared away. MPI allows at
/// least 32767.
fn data_tag(epoch: u32) -> c_int {
    (epoch % 16_000 * 2) as c_int
}

fn count_tag(epoch: u32) -> c_int {
    data_tag(epoch) + 1
}

/// Starts a send of `bytes`.
///
/// # Safety
/// The bytes stay where they are, unchanged, until the request is complete.
unsafe fn isend(comm: &Comm, bytes: &[u8], place: c_int, tag: c_int) -> Result<MPI_Request> {
    // SAFETY: a constant of the MPI library.
    let mut request = unsafe { mpi_sys::RSMPI_REQUEST_NULL };
    // SAFETY: the caller's contract.
    let code = unsafe {
        mpi_sys::MPI_Isend(
            bytes.as_ptr().cast(),
            bytes.len() as c_int,
            mpi_sys::RSMPI_UINT8_T,
            place,
            tag,
            comm.raw(),
            &mut request,
        )
    };
    // A dead peer is reported again when the request is tested.
    let _ = outcome(code, "MPI_Isend")?;
    Ok(request)
}

/// Starts a receive of at most `bytes.len()` bytes.
///
/// # Safety
/// Nobody touches the bytes until the request is complete.
unsafe fn irecv(comm: &Comm, bytes: &mut [u8], place: c_int, tag: c_int) -> Result<MPI_Request> {
    // SAFETY: a constant of the MPI library.
    let mut request = unsafe { mpi_sys::RSMPI_REQUEST_NULL };
    // SAFETY: the caller's contract.
    let code = unsafe {
        mpi_sys::MPI_Irecv(
            bytes.as_mut_ptr().cast(),
            bytes.len() as c_int,
            mpi_sys::RSMPI_UINT8_T,
            place,
            tag,
            comm.raw(),
            &mut request,
        )
    };
    let _ = outcome(code, "MPI_Irecv")?;
    Ok(request)
}

/// One look at a request.
enum Look {
    Pending,
    /// Complete, with so many bytes (meaningful for receives).
    Complete(usize),
    /// The peer is dead.
    Failed,
}

fn look(request: &mut MPI_Request) -> Result<Look> {
    let mut flag: c_int = 0;
    // SAFETY: MPI_Status is plain data for which all zero is valid; MPI fills it in.
    let mut status: MPI_Status = unsafe { std::mem::zeroed() };
    // SAFETY: the request is ours.
    let code = unsafe { mpi_sys::MPI_Test(request, &mut flag, &mut status) };
    if outcome(code, "MPI_Test")? == Outcome::Failed {
        return Ok(Look::Failed);
    }
    if flag == 0 {
        return Ok(Look::Pending);
    }
    let mut count: c_int = 0;
    // SAFETY: the status was filled in by MPI_Test.
    let code = unsafe { mpi_sys::MPI_Get_count(&status, mpi_sys::RSMPI_UINT8_T, &mut count) };
    check(code, "MPI_Get_count")?;
    Ok(Look::Complete(count.max(0) as usize))
}

impl Requests {
    pub fn new(chunk: usize) -> Requests {
        Requests {
            chunk,
            open: Vec::new(),
            incoming: BTreeMap::new(),
            next_ticket: 0,
            posted: BTreeMap::new(),
            scratch: None,
            stuck: Vec::new(),
        }
    }

    pub fn open(&self) -> usize {
        self.open.len()
    }

    pub fn is_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// Messages that a payload of `length` bytes travels in. An empty one is a message too.
    fn chunks(&self, length: usize) -> usize {
        length.div_ceil(self.chunk).max(1)
    }

    pub fn send(
        &mut self,
        comm: &Comm,
        to: Rank,
        place: c_int,
        epoch: u32,
        payload: Slice,
    ) -> Result<()> {
        for index in 0..self.chunks(payload.len()) {
            let end = payload.len().min((index + 1) * self.chunk);
            let part = payload.part(index * self.chunk..end);
            // SAFETY: `part` lives in `open` until the request is complete, and slices never change.
            let request = unsafe { isend(comm, &part, place, data_tag(epoch))? };
            self.posted.entry(to).or_default().sends += 1;
            self.open.push(Open {
                request,
                peer: to,
                purpose: Use::Send { _payload: part },
            });
        }
        Ok(())
    }

    pub fn receive(
        &mut self,
        comm: &Comm,
        from: Rank,
        place: c_int,
        epoch: u32,
        capacity: usize,
    ) -> Result<Ticket> {
        let mut buffer = Buffer::zeroed(capacity)?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let chunks = self.chunks(capacity);
        for index in 0..chunks {
            let end = capacity.min((index + 1) * self.chunk);
            let part = &mut buffer[index * self.chunk..end];
            // SAFETY: the buffer stays in `incoming`, untouched, until its requests are complete;
            // its bytes do not move when it does.
            let request = unsafe { irecv(comm, part, place, data_tag(epoch))? };
            self.posted.entry(from).or_default().receives += 1;
            self.open.push(Open {
                request,
                peer: from,
                purpose: Use::Receive(ticket),
            });
        }
        self.incoming.insert(
            ticket,
            Incoming {
                buffer,
                chunks_open: chunks,
                received: 0,
            },
        );
        Ok(ticket)
    }

    pub fn discard(
        &mut self,
        comm: &Comm,
        from: Rank,
        place: c_int,
        epoch: u32,
        length: usize,
    ) -> Result<()> {
        for _ in 0..self.chunks(length) {
            self.post_discard(comm, from, place, epoch)?;
            self.posted.entry(from).or_default().receives += 1;
        }
        Ok(())
    }

    fn post_discard(&mut self, comm: &Comm, from: Rank, place: c_int, epoch: u32) -> Result<()> {
        if self.scratch.is_none() {
            self.scratch = Some(Buffer::zeroed(self.chunk)?);
        }
        let Some(scratch) = self.scratch.as_mut() else {
            return Ok(());
        };
        // SAFETY: the scratch buffer is never read, never resized, and lives as long as `self`.
        let request = unsafe { irecv(comm, scratch, place, data_tag(epoch))? };
        self.open.push(Open {
            request,
            peer: from,
            purpose: Use::Discard,
        });
        Ok(())
    }

    /// Looks at every open request once, and drops those that are complete.
    pub fn poll(&mut self) -> Result<Outcome> {
        let mut result = Ok(Outcome::Fine);
        let incoming = &mut self.incoming;
        self.open.retain_mut(|open| {
            if result != Ok(Outcome::Fine) {
                return true;
            }
            match look(&mut open.request) {
                Ok(Look::Pending) => true,
                Ok(Look::Complete(bytes)) => {
                    if let Use::Receive(ticket) = open.purpose
                        && let Some(into) = incoming.get_mut(&ticket)
                    {
                        into.chunks_open -= 1;
                        into.received += bytes;
                    }
                    false
                }
                Ok(Look::Failed) => {
                    result = Ok(Outcome::Failed);
                    // MPI has completed it with the error.
                    false
                }
                Err(error) => {
                    result = Err(error);
                    true
                }
            }
        });
        result
    }

    pub fn take(&mut self, ticket: Ticket) -> Buffer {
        let incoming = self.incoming.remove(&ticket);
        let Some(mut incoming) = incoming.filter(|incoming| incoming.chunks_open == 0) else {
            panic!("{ticket:?} is unknown or not complete");
        };
        incoming.buffer.truncate(incoming.received);
        incoming.buffer
    }

    /// Clears an epoch away, so that no message of it can be taken for one of the next.
    ///
    /// Live peers tell each other how many messages they have posted. What a peer has posted is
    /// received, into scratch if nobody waits for it any more; what it has not posted is cancelled
    /// on our side. Sends are never cancelled: the peer's scratch receive completes them. A peer
    /// that dies meanwhile is skipped, for the next round recovers again.
    pub fn drain(&mut self, comm: &Comm, live: &[(Rank, c_int)], epoch: u32) -> Result<()> {
        let theirs = self.exchange_counts(comm, live, epoch)?;
        for ((peer, place), sent) in live.iter().zip(theirs) {
            let Some(sent) = sent else { continue };
            let receives = self.posted.get(peer).copied().unwrap_or_default().receives;
            self.cancel_last_receives(*peer, receives.saturating_sub(sent) as usize)?;
            for _ in receives..sent {
                self.post_discard(comm, *peer, *place, epoch)?;
            }
        }
        self.finish_with(live)?;
        self.incoming.clear();
        self.posted.clear();
        Ok(())
    }

    /// Tells every live peer how many messages were sent to it, and hears the same of it; None for
    /// one that dies meanwhile.
    fn exchange_counts(
        &self,
        comm: &Comm,
        live: &[(Rank, c_int)],
        epoch: u32,
    ) -> Result<Vec<Option<u64>>> {
        let mine: Vec<[u8; 8]> = live
            .iter()
            .map(|(peer, _)| {
                self.posted
                    .get(peer)
                    .copied()
                    .unwrap_or_default()
                    .sends
                    .to_ne_bytes()
            })
            .collect();
        let mut theirs = vec![[0_u8; 8]; live.len()];
        let mut requests = Vec::with_capacity(live.len());
        for (index, (_, place)) in live.iter().enumerate() {
            // SAFETY: both arrays stay where they are until all requests are complete, below.
            let pair = unsafe {
                let receive = irecv(comm, &mut theirs[index], *place, count_tag(epoch))?;
                let send = isend(comm, &mine[index], *place, count_tag(epoch))?;
                (receive, send)
            };
            requests.push(pair);
        }
        let mut alive = vec![true; live.len()];
        for (index, (receive, send)) in requests.iter_mut().enumerate() {
            alive[index] &= wait(receive)?;
            alive[index] &= wait(send)?;
        }
        Ok(theirs
            .into_iter()
            .zip(alive)
            .map(|(count, alive)| alive.then(|| u64::from_ne_bytes(count)))
            .collect())
    }

    fn cancel_last_receives(&mut self, peer: Rank, count: usize) -> Result<()> {
        let waiting = self
            .open
            .iter_mut()
            .rev()
            .filter(|open| open.peer == peer && !matches!(open.purpose, Use::Send { .. }));
        for open in waiting.take(count) {
            // SAFETY: the request is ours and active; it is tested to its end afterwards.
            let code = unsafe { mpi_sys::MPI_Cancel(&mut open.request) };
            check(code, "MPI_Cancel")?;
        }
        Ok(())
    }

    /// Waits for every request with a live peer. Those with dead peers are given a while, and then
    /// kept aside with their buffers, since MPI may still touch these.
    fn finish_with(&mut self, live: &[(Rank, c_int)]) -> Result<()> {
        const PATIENCE: usize = 10_000;
        for mut open in std::mem::take(&mut self.open) {
            let ends = if live.iter().any(|(peer, _)| *peer == open.peer) {
                wait(&mut open.request)?;
                true
            } else {
                ends_within(&mut open.request, PATIENCE)?
            };
            if !ends {
                let buffer = match open.purpose {
                    Use::Receive(ticket) => self.incoming.remove(&ticket),
                    _ => None,
                };
                self.stuck.push((open, buffer));
            }
        }
        Ok(())
    }

    /// After a revocation every request ends by itself; nothing has to be told to anybody.
    pub fn abandon(&mut self) -> Result<()> {
        self.finish_with(&[])?;
        self.incoming.clear();
        self.posted.clear();
        Ok(())
    }
}

/// Polls a request to its end. False: it ended because the peer is dead.
fn wait(request: &mut MPI_Request) -> Result<bool> {
    loop {
        match look(request)? {
            Look::Pending => std::thread::yield_now(),
            Look::Complete(_) => return Ok(true),
            Look::Failed => return Ok(false),
        }
    }
}

fn ends_within(request: &mut MPI_Request, polls: usize) -> Result<bool> {
    for _ in 0..polls {
        if !matches!(look(request)?, Look::Pending) {
            return Ok(true);
        }
        std::thread::yield_now();
    }
    Ok(false)
}

impl Drop for Requests {
    fn drop(&mut self) {
        // MPI may write into these for as long as the process lives.
        let under_way = !self.open.is_empty() || !self.stuck.is_empty();
        if under_way {
            std::mem::forget(std::mem::take(&mut self.open));
            std::mem::forget(std::mem::take(&mut self.stuck));
            std::mem::forget(std::mem::take(&mut self.incoming));
            std::mem::forget(self.scratch.take());
        }
    }
}

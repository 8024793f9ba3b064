//! Messages under way: what was posted, what it is for, and how an epoch's messages are cleared
//! away.

use std::collections::BTreeMap;

use super::out_of_patience;
use crate::members::Rank;
use crate::mutants::{Defect, planted};
use crate::transport::Ticket;
use crate::transport::fabric::{Fabric, Landing, Look, Outcome, Request, Tag};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Send,
    /// A part of a receive.
    Receive(Ticket),
    /// A receive into the scratch landing.
    Discard,
}

struct Open {
    request: Request,
    peer: Rank,
    purpose: Purpose,
}

struct Incoming {
    landing: Landing,
    chunks_open: usize,
    received: usize,
}

/// How many messages were posted to and from a peer since the last repair.
#[derive(Clone, Copy, Default)]
struct Posted {
    sends: u64,
    receives: u64,
}

pub struct Pending {
    chunk: usize,
    open: Vec<Open>,
    incoming: BTreeMap<Ticket, Incoming>,
    next_ticket: u64,
    posted: BTreeMap<Rank, Posted>,
    /// Discarded messages all land here, one after the other and on top of each other.
    scratch: Option<Landing>,
}

/// Two tags an epoch: data, and the counts exchanged when an epoch is cleared away. MPI allows at
/// least 32767.
fn data_tag(epoch: u32) -> Tag {
    Tag(epoch % 16_000 * 2)
}

fn count_tag(epoch: u32) -> Tag {
    Tag(data_tag(epoch).0 + 1)
}

const COUNT_BYTES: usize = 8;

impl Pending {
    pub fn new(chunk: usize) -> Pending {
        Pending {
            chunk,
            open: Vec::new(),
            incoming: BTreeMap::new(),
            next_ticket: 0,
            posted: BTreeMap::new(),
            scratch: None,
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
        fabric: &mut impl Fabric,
        to: Rank,
        epoch: u32,
        payload: &Slice,
    ) -> Result<()> {
        for index in 0..self.chunks(payload.len()) {
            let end = payload.len().min((index + 1) * self.chunk);
            let part = payload.part(index * self.chunk..end);
            let request = fabric.send(to, data_tag(epoch), part)?;
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
        fabric: &mut impl Fabric,
        from: Rank,
        epoch: u32,
        capacity: usize,
    ) -> Result<Ticket> {
        let landing = fabric.land(capacity)?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let chunks = self.chunks(capacity);
        self.incoming.insert(
            ticket,
            Incoming {
                landing,
                chunks_open: chunks,
                received: 0,
            },
        );
        for index in 0..chunks {
            let end = capacity.min((index + 1) * self.chunk);
            let range = index * self.chunk..end;
            let request = fabric.receive(from, data_tag(epoch), landing, range)?;
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
        fabric: &mut impl Fabric,
        from: Rank,
        epoch: u32,
        length: usize,
    ) -> Result<()> {
        for _ in 0..self.chunks(length) {
            self.post_discard(fabric, from, epoch)?;
            self.posted.entry(from).or_default().receives += 1;
        }
        Ok(())
    }

    fn post_discard(&mut self, fabric: &mut impl Fabric, from: Rank, epoch: u32) -> Result<()> {
        let scratch = match self.scratch {
            Some(scratch) => scratch,
            None => *self.scratch.insert(fabric.land(self.chunk)?),
        };
        let request = fabric.receive(from, data_tag(epoch), scratch, 0..self.chunk)?;
        self.open.push(Open {
            request,
            peer: from,
            purpose: Purpose::Discard,
        });
        Ok(())
    }

    /// Looks at every open request once, and drops those that are complete.
    pub fn poll(&mut self, fabric: &mut impl Fabric) -> Result<Outcome> {
        let mut result = Ok(Outcome::Fine);
        let incoming = &mut self.incoming;
        self.open.retain(|open| {
            if result != Ok(Outcome::Fine) {
                return true;
            }
            match fabric.test(open.request) {
                Ok(Look::Pending) => true,
                Ok(Look::Complete(bytes)) => {
                    if let Purpose::Receive(ticket) = open.purpose
                        && let Some(into) = incoming.get_mut(&ticket)
                    {
                        into.chunks_open -= 1;
                        into.received += bytes;
                    }
                    false
                }
                Ok(Look::Failed) => {
                    result = Ok(Outcome::Failed);
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

    pub fn take(&mut self, fabric: &mut impl Fabric, ticket: Ticket) -> Buffer {
        let incoming = self.incoming.remove(&ticket);
        let Some(incoming) = incoming.filter(|incoming| incoming.chunks_open == 0) else {
            panic!("{ticket:?} is unknown or not complete");
        };
        let mut buffer = fabric.lift(incoming.landing);
        buffer.truncate(incoming.received);
        buffer
    }

    /// Clears an epoch away, so that no message of it can be taken for one of the next.
    ///
    /// Live peers tell each other how many messages they have posted. What a peer has posted is
    /// received, into scratch if nobody waits for it any more; what it has not posted is cancelled
    /// on our side. Sends are never cancelled: the peer's scratch receive completes them. A peer
    /// that dies meanwhile is skipped, for the next round recovers again.
    pub fn drain(
        &mut self,
        fabric: &mut impl Fabric,
        live: &[Rank],
        epoch: u32,
        patience: Option<f64>,
    ) -> Result<()> {
        let theirs = self.exchange_counts(fabric, live, epoch, patience)?;
        for (peer, sent) in live.iter().zip(theirs) {
            let Some(sent) = sent else { continue };
            let receives = self.posted.get(peer).copied().unwrap_or_default().receives;
            self.cancel_last_receives(fabric, *peer, receives.saturating_sub(sent) as usize)?;
            if planted(Defect::LateMessagesAreLeft) {
                continue;
            }
            for _ in receives..sent {
                self.post_discard(fabric, *peer, epoch)?;
            }
        }
        self.finish_with(fabric, live, patience)?;
        self.forget(fabric);
        Ok(())
    }

    fn forget(&mut self, fabric: &mut impl Fabric) {
        for incoming in std::mem::take(&mut self.incoming).into_values() {
            fabric.release(incoming.landing);
        }
        self.posted.clear();
    }

    /// Tells every live peer how many messages were sent to it, and hears the same of it; None for
    /// one that dies meanwhile.
    fn exchange_counts(
        &self,
        fabric: &mut impl Fabric,
        live: &[Rank],
        epoch: u32,
        patience: Option<f64>,
    ) -> Result<Vec<Option<u64>>> {
        let mut requests = Vec::with_capacity(live.len());
        for peer in live {
            let sends = self.posted.get(peer).copied().unwrap_or_default().sends;
            let landing = fabric.land(COUNT_BYTES)?;
            let receive = fabric.receive(*peer, count_tag(epoch), landing, 0..COUNT_BYTES)?;
            let count = Buffer::copy_of(&sends.to_ne_bytes())?.into();
            let send = fabric.send(*peer, count_tag(epoch), count)?;
            requests.push((receive, send, landing));
        }
        let mut theirs = Vec::with_capacity(live.len());
        for (receive, send, landing) in requests {
            let received = wait(fabric, receive, patience)?;
            let alive = wait(fabric, send, patience)? && received;
            let count = fabric.lift(landing);
            let count = count[..].try_into().map_or(0, u64::from_ne_bytes);
            theirs.push(alive.then_some(count));
        }
        Ok(theirs)
    }

    fn cancel_last_receives(
        &mut self,
        fabric: &mut impl Fabric,
        peer: Rank,
        count: usize,
    ) -> Result<()> {
        let receives = self.open.iter().rev();
        let waiting = receives.filter(|open| open.peer == peer && open.purpose != Purpose::Send);
        for open in waiting.take(count) {
            fabric.cancel(open.request)?;
        }
        Ok(())
    }

    /// Waits for every request with a live peer. Those with dead peers are given a while, and then
    /// left to themselves.
    fn finish_with(
        &mut self,
        fabric: &mut impl Fabric,
        live: &[Rank],
        patience: Option<f64>,
    ) -> Result<()> {
        const POLLS: usize = 10_000;
        for open in std::mem::take(&mut self.open) {
            if live.contains(&open.peer) {
                wait(fabric, open.request, patience)?;
            } else if !ends_within(fabric, open.request, POLLS)? {
                fabric.abandon(open.request);
            }
        }
        Ok(())
    }

    /// After a revocation every request ends by itself; nothing has to be told to anybody.
    pub fn abandon(&mut self, fabric: &mut impl Fabric) -> Result<()> {
        self.finish_with(fabric, &[], None)?;
        self.forget(fabric);
        Ok(())
    }
}

/// Polls a request to its end. False: it ended because the peer is dead.
fn wait(fabric: &mut impl Fabric, request: Request, patience: Option<f64>) -> Result<bool> {
    let start = fabric.now();
    loop {
        match fabric.test(request)? {
            Look::Pending => fabric.rest()?,
            Look::Complete(_) => return Ok(true),
            Look::Failed => return Ok(false),
        }
        out_of_patience(patience, fabric.now() - start)?;
    }
}

fn ends_within(fabric: &mut impl Fabric, request: Request, polls: usize) -> Result<bool> {
    for _ in 0..polls {
        if fabric.test(request)? != Look::Pending {
            return Ok(true);
        }
        fabric.rest()?;
    }
    Ok(false)
}

//! The exchange of the numbers of messages that ranks have posted to each other, with which an epoch is cleared.
//!
//! Few ranks send their numbers to each other directly. Many ranks route them in the way of Bruck et al. (1997,
//! "Efficient Algorithms for All-to-All Communications"): in hop k each rank sends everything for ranks whose distance
//! has bit k set to the rank at distance 2^k, so that P ranks send P log P messages instead of P^2. Numbers that are 0
//! are not sent.

use std::collections::BTreeMap;

use super::pending::{control_buffer, wait};
use crate::members::Rank;
use crate::transport::mpi_api::{Look, MpiApi, Request, Tag};
use crate::transport::watch::Watch;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::memory;

const COUNT_BYTES: usize = size_of::<u64>();

/// A number on its way: the distance from its origin to its destination (u32), and the number (u64).
const ENTRY_BYTES: usize = size_of::<u32>() + COUNT_BYTES;

/// The numbers that this rank has for its live peers, and its means to exchange them.
pub struct CountExchange<'a, M> {
    pub mpi: &'a mut M,
    pub watch: &'a mut Watch,
    /// The live ranks except this one, in ascending order.
    pub peers: &'a [Rank],
    /// This rank's numbers, in the order of the peers.
    pub counts: Vec<u64>,
    /// A tag that no other exchange of numbers has used.
    pub tag: Tag,
}

/// The part of a rank in a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Send,
    Receive,
}

impl<M: MpiApi> CountExchange<'_, M> {
    /// Exchanges the numbers directly. Returns those of the peers for this rank; None for a peer that fails in the
    /// meantime.
    pub fn directly(self) -> Result<Vec<Option<u64>>> {
        let mut requests = Vec::with_capacity(self.peers.len());
        for (peer, sends) in self.peers.iter().zip(self.counts) {
            let buffer = control_buffer(self.mpi, COUNT_BYTES)?;
            let receive = (self.mpi).receive(*peer, self.tag, buffer, 0..COUNT_BYTES)?;
            let count = message(&sends.to_ne_bytes())?;
            let send = self.mpi.send(*peer, self.tag, count)?;
            requests.push((receive, send, buffer));
        }
        let mut theirs = Vec::with_capacity(self.peers.len());
        for (receive, send, buffer) in requests {
            let received = wait(self.mpi, receive, self.watch)? != Look::Failed;
            let alive = wait(self.mpi, send, self.watch)? != Look::Failed && received;
            let count = self.mpi.lift(buffer, COUNT_BYTES);
            let count = count[..].try_into().map_or(0, u64::from_ne_bytes);
            theirs.push(alive.then_some(count));
        }
        Ok(theirs)
    }

    /// Routes the numbers through other ranks. Returns those of the peers for this rank; None if this rank sees more
    /// than the `known` failures. Then other ranks may lack numbers, too, although they see no failure.
    pub fn routed(mut self, known: usize) -> Result<Option<Vec<u64>>> {
        let me = self.mpi.me();
        let mine = self.peers.partition_point(|peer| *peer < me);
        let ring = [&self.peers[..mine], &[me], &self.peers[mine..]].concat();
        let ranks = ring.len();
        let others = || (0..ranks).filter(|place| *place != mine);
        // The numbers that this rank holds, by the distance from their origins to their destinations.
        let distances = others().map(|place| (place + ranks - mine) % ranks);
        let mut held: BTreeMap<usize, u64> = distances.zip(self.counts.iter().copied()).collect();
        held.retain(|_, count| *count > 0);
        for hop in (0..).map(|bit| 1 << bit).take_while(|hop| *hop < ranks) {
            let leaving: Vec<u8> = (held.iter().filter(|(distance, _)| *distance & hop != 0))
                .flat_map(|(distance, count)| encoded(*distance, *count))
                .collect();
            held.retain(|distance, _| distance & hop == 0);
            let most = (1..ranks).filter(|distance| distance & hop != 0).count();
            let (to, from) = ((mine + hop) % ranks, (mine + ranks - hop) % ranks);
            let ends = (ring[to], ring[from]);
            let Some(arrived) = self.hop(ends, &leaving, most * ENTRY_BYTES, known)? else {
                return Ok(None);
            };
            held.extend(decoded(&arrived));
        }
        let from = |place: usize| held.get(&((mine + ranks - place) % ranks));
        Ok(Some(
            others()
                .map(|place| from(place).copied().unwrap_or(0))
                .collect(),
        ))
    }

    /// Sends bytes to one rank and receives up to `most` bytes from another. None: this rank sees a failure.
    fn hop(
        &mut self,
        (to, from): (Rank, Rank),
        bytes: &[u8],
        most: usize,
        known: usize,
    ) -> Result<Option<Slice>> {
        // Right before the send, as Protocol::send explains.
        if self.mpi.failures(Some(to))? > known {
            return Ok(None);
        }
        let send = self.mpi.send(to, self.tag, message(bytes)?)?;
        let buffer = control_buffer(self.mpi, most)?;
        let receive = self.mpi.receive(from, self.tag, buffer, 0..most)?;
        let received = self.wait_or_give_up(receive, Role::Receive, known)?;
        let sent = match received {
            Some(_) => self.wait_or_give_up(send, Role::Send, known)?,
            None => self.give_up(send, Role::Send).map(|()| None)?,
        };
        let (Some(length), Some(_)) = (received, sent) else {
            self.mpi.release(buffer);
            return Ok(None);
        };
        Ok(Some(self.mpi.lift(buffer, length)))
    }

    /// Waits for the end of a request and returns its bytes. None: it was given up, because this rank sees a failure,
    /// and the peer may have given up its part.
    fn wait_or_give_up(
        &mut self,
        request: Request,
        role: Role,
        known: usize,
    ) -> Result<Option<usize>> {
        self.watch.begin(self.mpi.now());
        let end = loop {
            match self.mpi.test(request)? {
                Look::Complete(bytes) => break Some(bytes),
                Look::Failed => break None,
                Look::Pending => {}
            }
            let now = self.mpi.now();
            if self.watch.is_due(now) {
                if self.mpi.failures(None)? > known {
                    self.give_up(request, role)?;
                    break None;
                }
                self.watch.look(self.mpi, now)?;
            }
            self.mpi.rest()?;
        };
        self.watch.end(self.mpi);
        Ok(end)
    }

    /// Ends a request that may never end by itself.
    fn give_up(&mut self, request: Request, role: Role) -> Result<()> {
        if role == Role::Receive {
            self.mpi.cancel(request)?;
        }
        if self.mpi.test(request)? == Look::Pending {
            self.mpi.abandon(request);
        }
        Ok(())
    }
}

fn message(bytes: &[u8]) -> Result<Slice> {
    Ok(memory::without_limit(|| Buffer::copy_of(bytes))?.into())
}

fn encoded(distance: usize, count: u64) -> impl Iterator<Item = u8> {
    let distance = (distance as u32).to_le_bytes();
    distance.into_iter().chain(count.to_le_bytes())
}

fn decoded(entries: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
    entries.iter().map(|entry| {
        let (distance, count) = entry.split_at(size_of::<u32>());
        let distance = distance.try_into().map_or(0, u32::from_le_bytes);
        (
            distance as usize,
            count.try_into().map_or(0, u64::from_le_bytes),
        )
    })
}

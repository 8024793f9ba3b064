//! The exchange of the numbers of messages that ranks have posted to each other, with which an epoch is cleared.
//!
//! Few ranks send their numbers to each other directly. Many ranks route them in the way of Bruck et al. (1997,
//! "Efficient Algorithms for All-to-All Communications"): in hop k each rank sends everything for ranks whose distance
//! has bit k set to the rank at distance 2^k, so that P ranks send P log P messages instead of P^2. Numbers that are 0
//! are not sent.

use std::collections::{BTreeMap, BTreeSet};

use super::pending::{control_buffer, wait};
use crate::members::{Rank, RankSet};
use crate::transport::mpi_api::{Look, MpiApi, Request, Tag};
use crate::transport::watch::Watch;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;
use ftsort_kernels::memory;

const COUNT_BYTES: usize = size_of::<u64>();

/// A number on its way: the distance from its origin to its destination (u32), and the number (u64).
const ENTRY_BYTES: usize = size_of::<u32>() + COUNT_BYTES;

/// Numbers of messages by peer; those that are missing are 0.
pub type Counts = BTreeMap<Rank, u64>;

/// The numbers that this rank has got from its live peers.
#[derive(Default)]
pub struct PeerCounts {
    pub counts: Counts,
    /// The peers that failed before they sent their numbers.
    pub failed: BTreeSet<Rank>,
}

/// The numbers that this rank has for its live peers, and its means to exchange them.
pub struct CountExchange<'a, M> {
    pub mpi: &'a mut M,
    pub watch: &'a mut Watch,
    /// The live ranks except this one.
    pub peers: &'a RankSet,
    /// This rank's numbers.
    pub counts: Counts,
    /// A tag that no other exchange of numbers has used.
    pub tag: Tag,
}

/// The live ranks in ascending order, as a ring. Takes memory for the other ranks only, which mostly are few.
struct Ring {
    /// The number of live ranks.
    ranks: usize,
    /// The place of this rank.
    mine: usize,
    /// The ranks that are not live, ascending.
    failed: Vec<Rank>,
}

impl Ring {
    fn of(peers: &RankSet, me: Rank) -> Ring {
        let mut failed = RankSet::all(peers.ranks());
        failed.remove_all(peers);
        failed.remove(me);
        let mut ring = Ring {
            ranks: peers.len() + 1,
            mine: 0,
            failed: failed.iter().collect(),
        };
        ring.mine = ring.distance_to(me);
        ring
    }

    /// Returns the distance from this rank to a live rank.
    fn distance_to(&self, rank: Rank) -> usize {
        let place = rank.index() - self.failed.partition_point(|failed| *failed < rank);
        (place + self.ranks - self.mine) % self.ranks
    }

    /// Returns the live rank at a distance from this rank.
    fn at(&self, distance: usize) -> Rank {
        let place = (self.mine + distance) % self.ranks;
        let skipped = self.failed.iter().enumerate();
        let skipped = skipped.take_while(|(before, failed)| failed.index() - before <= place);
        Rank((place + skipped.count()) as u32)
    }
}

/// The part of a rank in a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Send,
    Receive,
}

impl<M: MpiApi> CountExchange<'_, M> {
    /// Exchanges the numbers directly. Returns those of the peers for this rank.
    pub fn directly(self) -> Result<PeerCounts> {
        let mut requests = Vec::with_capacity(self.peers.len());
        for peer in self.peers.iter() {
            let buffer = control_buffer(self.mpi, COUNT_BYTES)?;
            let receive = (self.mpi).receive(peer, self.tag, buffer, 0..COUNT_BYTES)?;
            let sends = self.counts.get(&peer).copied().unwrap_or(0);
            let count = message(&sends.to_ne_bytes())?;
            let send = self.mpi.send(peer, self.tag, count)?;
            requests.push((peer, receive, send, buffer));
        }
        let mut theirs = PeerCounts::default();
        for (peer, receive, send, buffer) in requests {
            let received = wait(self.mpi, receive, self.watch, None)? != Look::Failed;
            let alive = wait(self.mpi, send, self.watch, None)? != Look::Failed && received;
            let count = self.mpi.take_buffer(buffer, COUNT_BYTES);
            let count = count[..].try_into().map_or(0, u64::from_ne_bytes);
            if alive {
                theirs.counts.insert(peer, count);
            } else {
                theirs.failed.insert(peer);
            }
        }
        Ok(theirs)
    }

    /// Routes the numbers through other ranks. Returns those of the peers for this rank; None if this rank sees more
    /// than the `known` failures. Then other ranks may lack numbers, too, although they see no failure.
    pub fn routed(mut self, known: usize) -> Result<Option<PeerCounts>> {
        let ring = Ring::of(self.peers, self.mpi.me());
        let ranks = ring.ranks;
        // The numbers that this rank holds, by the distance from their origins to their destinations.
        let counts = self.counts.iter();
        let counts = counts.filter(|(peer, _)| self.peers.contains(**peer));
        let mut held: BTreeMap<usize, u64> = counts
            .map(|(peer, count)| (ring.distance_to(*peer), *count))
            .collect();
        for hop in (0..).map(|bit| 1 << bit).take_while(|hop| *hop < ranks) {
            let mut leaving = Writer::new();
            for (distance, count) in held.iter().filter(|(distance, _)| *distance & hop != 0) {
                leaving.u32(*distance as u32).u64(*count);
            }
            held.retain(|distance, _| distance & hop == 0);
            // The number of distances that have the bit.
            let most = ranks / (2 * hop) * hop + (ranks % (2 * hop)).saturating_sub(hop);
            let ends = (ring.at(hop), ring.at(ranks - hop));
            let Some(arrived) = self.hop(ends, &leaving.finish(), most * ENTRY_BYTES, known)?
            else {
                return Ok(None);
            };
            let arrived = Reader::new(&arrived)
                .repeat_to_end(|fields| Some((fields.u32()? as usize, fields.u64()?)));
            let arrived = arrived.into_iter().flatten();
            held.extend(arrived.filter(|(distance, _)| *distance < ranks));
        }
        let counts = held.into_iter();
        Ok(Some(PeerCounts {
            counts: counts
                .map(|(distance, count)| (ring.at(ranks - distance), count))
                .collect(),
            failed: BTreeSet::new(),
        }))
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
        Ok(Some(self.mpi.take_buffer(buffer, length)))
    }

    /// Waits for the end of a request and returns its bytes. None: it was given up, because this rank sees a failure,
    /// and the peer may have given up its part.
    fn wait_or_give_up(
        &mut self,
        request: Request,
        role: Role,
        known: usize,
    ) -> Result<Option<usize>> {
        match wait(self.mpi, request, self.watch, Some(known))? {
            Look::Complete(bytes) => Ok(Some(bytes)),
            Look::Failed => Ok(None),
            Look::Pending => self.give_up(request, role).map(|()| None),
        }
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
    memory::for_messages(|| Slice::copy_of(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn distances_in_a_ring_lead_to_all_live_ranks(
            ranks in 1_usize..200,
            failed in prop::collection::vec(0_u32..200, 0..200),
            me in 0_u32..200,
        ) {
            let me = Rank(me % ranks as u32);
            let mut peers = RankSet::all(ranks);
            failed.into_iter().for_each(|rank| peers.remove(Rank(rank)));
            peers.remove(me);
            let ring = Ring::of(&peers, me);
            prop_assert_eq!((ring.at(0), ring.at(ring.ranks)), (me, me));
            let mut found: Vec<Rank> = (1..ring.ranks).map(|distance| ring.at(distance)).collect();
            for (distance, rank) in (1..).zip(&found) {
                prop_assert_eq!(ring.distance_to(*rank), distance);
            }
            found.sort_unstable();
            prop_assert!(peers.iter().eq(found));
        }
    }
}

//! Short messages beside the group's own, for a service with a thread: no rank waits for another, messages to
//! failed ranks are lost, and any rank may stop receiving at any time.

use std::ffi::c_int;
use std::time::Instant;

use super::comm::{Comm, Group};
use super::requests::{Peer, Requests};
use super::{Mpi, ext, turn};
use ftsort_core::group::Datagrams;
use ftsort_core::members::Rank;
use ftsort_core::transport::mpi_api::{Look, RecvBuffer, Request};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::Result;

/// The only kind of message on this communicator.
const TAG: c_int = 0;

/// One rank's end of a private communicator of the survivors. It may move from the thread that made it to the
/// one that uses it, which needs MPI_THREAD_MULTIPLE; its calls take turns with the group's own calls.
pub struct DatagramChannel {
    comm: Comm,
    peers: Vec<Inbox>,
    /// The position of each rank in `comm`.
    position: Vec<Option<c_int>>,
    requests: Requests,
    sending: Vec<Request>,
    limit: usize,
    started: Instant,
    /// The peer to poll next.
    next: usize,
}

/// The posted receive from a peer.
struct Inbox {
    rank: Rank,
    place: c_int,
    /// None: the peer has failed.
    awaited: Option<(Request, RecvBuffer)>,
}

// SAFETY: with MPI_THREAD_MULTIPLE MPI handles may be used by any thread, one at a time.
unsafe impl Send for DatagramChannel {}

impl Mpi {
    /// Makes a channel for messages of at most `limit` bytes. Collective over the survivors; to be called at
    /// a quiet point, right after an agreement.
    pub fn datagram(&self, limit: usize) -> Result<DatagramChannel> {
        let mut comm = Comm::survivors_of(self.comm.raw(), ext::COMPILED_IN, c"ftsort monitor")?;
        // Messages may still be in transit when all ranks have stopped receiving.
        comm.leave_to_mpi();
        let position = comm.positions_of(&self.everyone, self.ranks)?;
        let others = Rank::all(self.ranks).filter(|rank| *rank != self.me);
        let peers = others.filter_map(|rank| {
            Some(Inbox {
                rank,
                place: position[rank.index()]?,
                awaited: None,
            })
        });
        let mut datagram = DatagramChannel {
            peers: peers.collect(),
            comm,
            position,
            requests: Requests::default(),
            sending: Vec::new(),
            limit,
            started: self.started,
            next: 0,
        };
        for index in 0..datagram.peers.len() {
            datagram.listen(index)?;
        }
        Ok(datagram)
    }
}

impl Datagrams for DatagramChannel {
    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Sends a message that may be lost. A message that is too long, or for a rank that is absent or that MPI has
    /// reported as failed, is dropped: Open MPI may crash in a send to a failed rank.
    fn send(&mut self, to: Rank, message: Vec<u8>) -> Result<()> {
        let place = self.position.get(to.index()).copied().flatten();
        let Some(place) = place.filter(|_| message.len() <= self.limit) else {
            return Ok(());
        };
        let payload = Buffer::copy_of(&message)?;
        let _turn = turn::take_as_monitor()?;
        let mut still = Vec::new();
        for request in std::mem::take(&mut self.sending) {
            if self.requests.test(request)? == Look::Pending {
                still.push(request);
            }
        }
        self.sending = still;
        // MPI may have learned of the failure just now, or before a receive showed it.
        let among_failed = Group::of(self.comm.raw())?.translate(&[place], &self.comm.failed()?)?;
        if among_failed.iter().any(|index| *index >= 0) {
            return Ok(());
        }
        let peer = Peer { place, tag: TAG };
        let request = self.requests.send(&self.comm, peer, payload.into())?;
        self.sending.push(request);
        Ok(())
    }

    /// Returns a message that has arrived and its sender, if there is one. Looks at one peer only while a group waits for
    /// its turn.
    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>> {
        for looked in 0..self.peers.len() {
            if looked > 0 && turn::is_awaited() {
                break;
            }
            let index = self.next;
            self.next = (index + 1) % self.peers.len();
            let Some((request, buffer)) = self.peers[index].awaited else {
                continue;
            };
            let turn = turn::take_as_monitor()?;
            let look = self.requests.test(request)?;
            drop(turn);
            match look {
                Look::Pending => {}
                Look::Failed => {
                    self.peers[index].awaited = None;
                    self.requests.release(buffer);
                }
                Look::Complete(bytes) => {
                    let message = self.requests.take_buffer(buffer)[..bytes].to_vec();
                    self.listen(index)?;
                    return Ok(Some((self.peers[index].rank, message)));
                }
            }
        }
        Ok(None)
    }
}

impl DatagramChannel {
    fn listen(&mut self, index: usize) -> Result<()> {
        let place = self.peers[index].place;
        let buffer = self.requests.add_buffer(self.limit)?;
        let _turn = turn::take_as_monitor()?;
        let peer = Peer { place, tag: TAG };
        let range = 0..self.limit;
        let request = self.requests.receive(&self.comm, peer, buffer, range)?;
        self.peers[index].awaited = Some((request, buffer));
        Ok(())
    }
}

//! Short messages beside the group's, for a service that has a thread of its own: nobody waits for
//! anybody, messages to the dead vanish, and any rank may stop listening at any time.

use std::ffi::c_int;
use std::sync::PoisonError;
use std::time::Instant;

use super::comm::Comm;
use super::requests::{Peer, Requests};
use super::{Mpi, TURN, ext};
use ftsort_core::members::Rank;
use ftsort_core::transport::mpi_api::{Look, RecvBuffer, Request};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::Result;

/// The only kind of message on this communicator.
const TAG: c_int = 0;

/// One rank's end of a private communicator of the survivors. Sent from one thread to the one that uses
/// it, which needs MPI_THREAD_MULTIPLE; that takes turns with the group's own calls.
pub struct DatagramChannel {
    comm: Comm,
    peers: Vec<Inbox>,
    /// Where each rank is in `comm`.
    position: Vec<Option<c_int>>,
    requests: Requests,
    sending: Vec<Request>,
    limit: usize,
    started: Instant,
    /// Who is looked at next.
    next: usize,
}

/// What is awaited from a peer.
struct Inbox {
    rank: Rank,
    place: c_int,
    /// None: it is dead.
    awaited: Option<(Request, RecvBuffer)>,
}

// SAFETY: handles of MPI may be used by any thread with MPI_THREAD_MULTIPLE, by one at a time.
unsafe impl Send for DatagramChannel {}

impl Mpi {
    /// A datagram for messages of at most `limit` bytes. Collective over the survivors; call it at a
    /// quiet point, right after an agreement.
    pub fn datagram(&self, limit: usize) -> Result<DatagramChannel> {
        let mut comm = Comm::survivors_of(self.comm.raw(), ext::COMPILED_IN, c"ftsort monitor")?;
        // Messages may still be on their way to it when everybody has stopped listening.
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

impl DatagramChannel {
    /// The clock of the group, in seconds.
    pub fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Sends a message, of which it does not matter whether it arrives. One that is too long, or to a
    /// rank that is not there, is dropped.
    pub fn send(&mut self, to: Rank, message: Vec<u8>) -> Result<()> {
        let place = self.position.get(to.index()).copied().flatten();
        let Some(place) = place.filter(|_| message.len() <= self.limit) else {
            return Ok(());
        };
        let payload = Buffer::copy_of(&message)?;
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut still = Vec::new();
        for request in std::mem::take(&mut self.sending) {
            if self.requests.test(request)? == Look::Pending {
                still.push(request);
            }
        }
        self.sending = still;
        let peer = Peer { place, tag: TAG };
        let request = self.requests.send(&self.comm, peer, payload.into())?;
        self.sending.push(request);
        Ok(())
    }

    /// A message that came, if there is one, and from whom.
    pub fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>> {
        for _ in 0..self.peers.len() {
            let index = self.next;
            self.next = (index + 1) % self.peers.len();
            let Some((request, buffer)) = self.peers[index].awaited else {
                continue;
            };
            let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            let look = self.requests.test(request)?;
            drop(turn);
            match look {
                Look::Pending => {}
                Look::Failed => {
                    self.peers[index].awaited = None;
                    self.requests.release(buffer);
                }
                Look::Complete(bytes) => {
                    let message = self.requests.lift(buffer)[..bytes].to_vec();
                    self.listen(index)?;
                    return Ok(Some((self.peers[index].rank, message)));
                }
            }
        }
        Ok(None)
    }

    fn listen(&mut self, index: usize) -> Result<()> {
        let place = self.peers[index].place;
        let buffer = self.requests.land(self.limit)?;
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = Peer { place, tag: TAG };
        let range = 0..self.limit;
        let request = self.requests.receive(&self.comm, peer, buffer, range)?;
        self.peers[index].awaited = Some((request, buffer));
        Ok(())
    }
}

/// May several threads call MPI at once?
pub fn among_threads() -> Result<bool> {
    Ok(super::thread_level()? == mpi_sys::MPI_THREAD_MULTIPLE as c_int)
}

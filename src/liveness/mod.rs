//! Signs of life of this process: a thread that answers the probes of other ranks, for all groups of the process.
//!
//! The thread is started with the first group that has a timeout and ends with the last one. It blocks in `poll` on a
//! UDP socket and never calls MPI, so it answers although the program computes, and at every thread level of MPI. It
//! runs only if a datagram arrives: while no rank of the group has waited for longer than about a second, there is none.
//!
//! Datagrams have a fixed size and carry a token of 128 random bits that only the ranks of the group know
//! ([`message`]). All others are dropped without an answer. docs/failure-model.md has the rules for the timeout, which
//! `ftsort_core::transport::watch` implements.
//!
//! Must never: call MPI, wait for another rank, run a signal handler of the program, or end the process.

mod contact;
mod message;
mod responder;

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ftsort_core::members::Rank;
use ftsort_core::transport::watch::{Activity, Contact, SignsOfLife};
use ftsort_kernels::error::Result;
use message::{Content, Message, Token};
use responder::Responder;

/// The greatest number of ranks that a rank probes when a group is created.
const PROBED_AT_START: usize = 1024;

/// The number of unanswered probes after which a probe goes to all addresses of a rank again.
const ADDRESS_IN_DOUBT: u32 = 2;

/// The activities as numbers; any other number is the instant since when this rank waits, in microseconds.
const AT_WORK: u64 = 0;
const LEFT: u64 = u64::MAX;

/// One group as the thread sees it.
struct Entry {
    me: Rank,
    token: Token,
    /// The clock of the group.
    started: Instant,
    activity: AtomicU64,
    /// The other ranks; empty until their contacts are known.
    peers: Mutex<Vec<Peer>>,
}

/// Another rank of a group.
#[derive(Clone, Default)]
struct Peer {
    /// The rank's token and addresses; None: it cannot be probed.
    contact: Option<(Token, Vec<SocketAddrV4>)>,
    /// The address from which its last answer came.
    answers_from: Option<SocketAddrV4>,
    signs: SignsOfLife,
}

impl Entry {
    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn peers(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a probe.
    fn answer(&self, reply: Token) -> Message {
        let content = match self.activity.load(Ordering::Relaxed) {
            AT_WORK => Content::AtWork,
            LEFT => Content::Left,
            since => {
                let now = self.started.elapsed().as_micros() as u64;
                Content::Waiting(now.saturating_sub(since))
            }
        };
        Message {
            token: reply,
            rank: self.me.0,
            content,
        }
    }

    /// Notes the answer of a rank.
    fn note(&self, from: SocketAddrV4, message: &Message) {
        let now = self.now();
        let mut peers = self.peers();
        let Some(peer) = peers.get_mut(message.rank as usize) else {
            return;
        };
        let signs = &mut peer.signs;
        let at_work = match message.content {
            Content::Probe(_) => return,
            Content::AtWork => now,
            Content::Waiting(time) => now - time as f64 / 1e6,
            Content::Left => {
                signs.left_since.get_or_insert(now);
                signs.at_work.unwrap_or(now)
            }
        };
        signs.at_work = Some(signs.at_work.map_or(at_work, |before| before.max(at_work)));
        signs.answered = now;
        signs.unanswered = 0;
        peer.answers_from = Some(from);
    }
}

/// This rank's part of the liveness of one group.
pub struct GroupLiveness {
    entry: Arc<Entry>,
    responder: Arc<Responder>,
}

impl GroupLiveness {
    /// Registers a group of this process, in which it is rank `me`. Times are those of the clock that began at
    /// `started`. `Status::State` if the system refuses a socket or a thread.
    pub fn new(me: Rank, started: Instant) -> Result<GroupLiveness> {
        let responder = Responder::of_process()?;
        let entry = Arc::new(Entry {
            me,
            token: responder::random_token()?,
            started,
            activity: AtomicU64::new(AT_WORK),
            peers: Mutex::default(),
        });
        responder.register(&entry);
        Ok(GroupLiveness { entry, responder })
    }

    /// Returns the contact of this rank.
    pub fn contact(&self) -> Contact {
        self.responder.contact(&self.entry.token)
    }

    /// Receives the contacts of the survivors of `ranks` ranks, and probes each once, without waiting for the answers.
    pub fn meet(&self, ranks: usize, contacts: &[(Rank, Contact)]) {
        let mut peers = vec![Peer::default(); ranks];
        for (rank, contact) in contacts {
            if let Some(peer) = peers.get_mut(rank.index()) {
                peer.contact = contact::decode(contact);
            }
        }
        *self.entry.peers() = peers;
        // Each rank begins with its successor, so that no rank is probed by all others at once.
        let me = self.entry.me.index();
        for step in 1..ranks.min(PROBED_AT_START + 1) {
            self.probe(Rank(((me + step) % ranks) as u32));
        }
    }

    /// Publishes the activity of this rank.
    pub fn publish(&self, activity: Activity) {
        let number = match activity {
            Activity::AtWork => AT_WORK,
            Activity::WaitingSince(since) => (since * 1e6) as u64 + 1,
            Activity::Left => LEFT,
        };
        if self.entry.activity.load(Ordering::Relaxed) != LEFT {
            self.entry.activity.store(number, Ordering::Relaxed);
        }
    }

    /// Sends a probe to a rank.
    pub fn probe(&self, rank: Rank) {
        let mut peers = self.entry.peers();
        let Some(peer) = peers.get_mut(rank.index()) else {
            return;
        };
        let Some((token, addresses)) = &peer.contact else {
            return;
        };
        let message = Message {
            token: *token,
            rank: self.entry.me.0,
            content: Content::Probe(self.entry.token),
        };
        match peer.answers_from {
            Some(address) if peer.signs.unanswered < ADDRESS_IN_DOUBT => {
                self.responder.send(address, &message);
            }
            _ => self.responder.send_to_all(addresses, &message),
        }
        let signs = &mut peer.signs;
        if signs.unanswered == 0 {
            signs.unanswered_since = self.entry.now();
        }
        signs.unanswered += 1;
    }

    /// Returns the signs of life of a rank.
    pub fn signs_of_life(&self, rank: Rank) -> SignsOfLife {
        let peers = self.entry.peers();
        peers
            .get(rank.index())
            .map_or(SignsOfLife::default(), |peer| peer.signs)
    }
}

impl Drop for GroupLiveness {
    fn drop(&mut self) {
        self.responder.remove(&self.entry.token);
    }
}

#[cfg(test)]
mod tests;

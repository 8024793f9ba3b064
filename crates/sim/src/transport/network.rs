//! Messages in the simulated network: in transit, arrived before a receive was posted, or received.
//!
//! A small message leaves its sender at once. A large message stays at its sender until the receiver has posted
//! a receive, and is lost if the sender fails before.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::Received;
use super::clock::MessageSize;
use super::events::SimEvent;
use super::state::{Process, SimState};
use super::trace::TraceEvent;
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::transport::mpi_api::{Look, RecvBuffer, Request, Tag};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::checksum::Checksum;

/// A message.
pub struct SimMessage {
    /// Its number, for the trace.
    pub id: u64,
    pub comm: usize,
    pub tag: Tag,
    pub payload: Slice,
    /// Whether it has records, and not control data.
    pub is_records: bool,
    /// The time at which it has arrived, with a network clock.
    pub arrived: f64,
    /// The sender's request, if the sender waits until the message is received.
    pub rendezvous: Option<Request>,
}

/// The kinds of requests.
pub enum RequestKind {
    Send,
    Receive {
        tag: Tag,
        buffer: RecvBuffer,
        range: Range<usize>,
        /// The large message that is being received.
        matched: Option<SimMessage>,
    },
}

/// A request that its owner has not completed or abandoned.
pub struct OpenRequest {
    pub comm: usize,
    pub peer: Rank,
    pub kind: RequestKind,
    pub done: Option<Look>,
    /// The time at which it was done, with a network clock.
    pub done_at: f64,
}

impl SimState {
    pub fn take_buffer(&mut self, rank: Rank, buffer: RecvBuffer, bytes: usize) -> Slice {
        let buffer = self.process(rank).recv_buffers.take_buffer(buffer);
        buffer.into_slice(bytes)
    }

    pub fn release(&mut self, rank: Rank, buffer: RecvBuffer) {
        self.process(rank).recv_buffers.release(buffer);
    }

    pub fn send(&mut self, from: Rank, to: Rank, tag: Tag, payload: Slice) -> Request {
        let eager = payload.len() <= self.eager;
        let process = self.process(from);
        let comm = process.comm;
        let failed = process.known_failures.contains(to) || process.revoked.contains(&comm);
        let is_seen = process.seen_failures.contains(to);
        let done = match (failed, eager) {
            (true, _) => Some(Look::Failed),
            (_, true) => Some(Look::Complete(payload.len())),
            _ => None,
        };
        let request = process.keep(OpenRequest {
            comm,
            peer: to,
            kind: RequestKind::Send,
            done,
            done_at: 0.0,
        });
        if is_seen {
            // Open MPI may crash.
            let text = format!("rank {from} sends to rank {to}, which it has seen fail");
            self.misuse.get_or_insert(text);
        }
        let id = self.next_message;
        self.next_message += 1;
        if !failed {
            let bytes = payload.len();
            self.trace(Some(from), || TraceEvent::Sends {
                message: id,
                to,
                bytes,
            });
            let is_records = self.process(from).traffic.count_sent(bytes);
            let arrival = self.depart(from, MessageSize { bytes, is_records });
            let message = SimMessage {
                id,
                comm,
                tag,
                payload,
                is_records,
                arrived: 0.0,
                rendezvous: (!eager).then_some(request),
            };
            let ranks = self.ranks();
            let process = self.process(from);
            let receivers = process
                .receivers
                .get_or_insert_with(|| Box::new(RankSet::new(ranks)));
            receivers.insert(to);
            queue(&mut process.in_transit, to).push_back(message);
            self.schedule(SimEvent::Arrive { from, to }, arrival);
        }
        request
    }

    pub fn receive(
        &mut self,
        rank: Rank,
        from: Rank,
        tag: Tag,
        buffer: RecvBuffer,
        range: Range<usize>,
    ) -> Request {
        let process = self.process(rank);
        let comm = process.comm;
        let length = process.recv_buffers.open(buffer).len();
        assert!(range.end <= length, "{buffer:?} ends before {range:?}");
        let request = process.keep(OpenRequest {
            comm,
            peer: from,
            kind: RequestKind::Receive {
                tag,
                buffer,
                range,
                matched: None,
            },
            done: process.revoked.contains(&comm).then_some(Look::Failed),
            done_at: 0.0,
        });
        if process.revoked.contains(&comm) {
            return request;
        }
        let process = self.process(rank);
        match process.take_unexpected(from, comm, tag) {
            Some(message) => self.give(rank, request, message),
            None if self.process(rank).known_failures.contains(from) => self.fail(rank, request),
            None => {
                let posted = queue(&mut self.process(rank).posted, from);
                posted.push_back(request);
            }
        }
        request
    }

    fn fail(&mut self, rank: Rank, request: Request) {
        let process = self.process(rank);
        process.wake();
        if let Some(open) = process.open.get_mut(&request) {
            open.done = Some(Look::Failed);
        }
    }

    pub fn arrive(&mut self, from: Rank, to: Rank) {
        let Some(mut message) = take_first(&mut self.process(from).in_transit, to) else {
            return;
        };
        // A message is dropped if the receiver has stopped or knows that the sender failed.
        if !self.is_running(to) || self.process(to).known_failures.contains(from) {
            return;
        }
        let (bytes, is_records) = (message.payload.len(), message.is_records);
        message.arrived = self.arrival(to, MessageSize { bytes, is_records });
        let process = self.process(to);
        match process.matching(from, &message) {
            Some(request) => self.give(to, request, message),
            None => queue(&mut process.unexpected, from).push_back(message),
        }
    }

    /// Gives a message to the receive that matches it.
    fn give(&mut self, to: Rank, receive: Request, message: SimMessage) {
        if message.rendezvous.is_some() {
            if let Some(matched) = self.process(to).matched(receive) {
                *matched = Some(message);
                self.schedule(SimEvent::Transfer { to, receive }, 0.0);
            }
            return;
        }
        self.fill(to, receive, &message);
    }

    pub fn transfer(&mut self, to: Rank, receive: Request) {
        if !self.is_running(to) {
            return;
        }
        let open = self.process(to).open.get(&receive);
        let Some(from) = open
            .filter(|open| open.done.is_none())
            .map(|open| open.peer)
        else {
            return;
        };
        // The bytes are in the sender's memory. If it has failed, the receive cannot complete.
        if !self.is_running(from) || self.processes[from.index()].stopped {
            if self.process(to).known_failures.contains(from) {
                self.fail(to, receive);
            }
            return;
        }
        let matched = self.process(to).matched(receive);
        let Some(message) = matched.and_then(Option::take) else {
            return;
        };
        self.fill(to, receive, &message);
        if let Some(request) = message.rendezvous
            && let Some(open) = self.process(from).open.get_mut(&request)
            && open.done.is_none()
        {
            open.done = Some(Look::Complete(message.payload.len()));
            self.process(from).wake();
        }
    }

    fn fill(&mut self, rank: Rank, receive: Request, message: &SimMessage) {
        let (id, bytes) = (message.id, &message.payload[..]);
        let forgets = self.forgets;
        let process = self.process(rank);
        process.wake();
        let Some(open) = process.open.get_mut(&receive) else {
            return;
        };
        if let RequestKind::Receive { buffer, range, .. } = &open.kind
            && let Some(place) = process.recv_buffers.get_mut(*buffer)
        {
            if bytes.len() > range.len() {
                let (sent, room) = (bytes.len(), range.len());
                open.done = Some(Look::Failed);
                self.trace(Some(rank), || TraceEvent::Overflows { bytes: sent, room });
                self.misuse.get_or_insert(format!(
                    "rank {rank} receives {sent} bytes, but expects {room}"
                ));
                return;
            }
            place.fill(range.start, &message.payload);
        }
        open.done = Some(Look::Complete(bytes.len()));
        open.done_at = message.arrived;
        process
            .traffic
            .count_received(bytes.len(), message.is_records);
        let (from, job) = (open.peer, process.job);
        if let RequestKind::Receive { range, .. } = &open.kind
            && !forgets
        {
            let received = Received {
                job,
                from,
                to: rank,
                room: range.len(),
                checksum: Checksum::of(bytes),
            };
            *self.received.entry(received).or_default() += 1;
        }
        let bytes = bytes.len();
        self.trace(Some(rank), || TraceEvent::Receives {
            message: id,
            from,
            bytes,
        });
    }

    pub fn test(&mut self, rank: Rank, request: Request) -> Look {
        let process = self.process(rank);
        let Some(open) = process.open.get(&request) else {
            panic!("{request:?} is unknown");
        };
        let Some(look) = open.done else {
            return Look::Pending;
        };
        let is_receive = matches!(open.kind, RequestKind::Receive { .. });
        let done_at = open.done_at;
        process.close(request);
        if is_receive {
            self.end_receive(rank, done_at);
        }
        look
    }

    pub fn cancel(&mut self, rank: Rank, request: Request) {
        let open = self.process(rank).open.get_mut(&request);
        if let Some(open) = open
            && open.done.is_none()
            && matches!(open.kind, RequestKind::Receive { matched: None, .. })
        {
            open.done = Some(Look::Complete(0));
        }
    }

    pub fn abandon(&mut self, rank: Rank, request: Request) {
        self.process(rank).close(request);
    }
}

/// Returns the queue of a peer. Most queues have one element, and in large groups there are millions of them.
fn queue<T>(queues: &mut BTreeMap<Rank, VecDeque<T>>, rank: Rank) -> &mut VecDeque<T> {
    queues
        .entry(rank)
        .or_insert_with(|| VecDeque::with_capacity(1))
}

/// Takes the oldest message of a queue, and drops the queue if it is empty then.
fn take_first(queues: &mut BTreeMap<Rank, VecDeque<SimMessage>>, rank: Rank) -> Option<SimMessage> {
    let queue = queues.get_mut(&rank)?;
    let message = queue.pop_front();
    if queue.is_empty() {
        queues.remove(&rank);
    }
    message
}

impl Process {
    /// The place of the large message that a receive has matched.
    fn matched(&mut self, receive: Request) -> Option<&mut Option<SimMessage>> {
        match &mut self.open.get_mut(&receive)?.kind {
            RequestKind::Receive { matched, .. } => Some(matched),
            RequestKind::Send => None,
        }
    }

    /// Returns the first posted receive that a message matches.
    fn matching(&mut self, from: Rank, message: &SimMessage) -> Option<Request> {
        let posted = self.posted.get_mut(&from)?;
        let waits = |request: &Request| {
            let open = self.open.get(request)?;
            match &open.kind {
                RequestKind::Receive {
                    tag, matched: None, ..
                } if open.done.is_none() => Some(open.comm == message.comm && *tag == message.tag),
                _ => None,
            }
        };
        posted.retain(|request| waits(request).is_some());
        let found = posted
            .iter()
            .position(|request| waits(request) == Some(true));
        let found = found.and_then(|index| posted.remove(index));
        if posted.is_empty() {
            self.posted.remove(&from);
        }
        found
    }

    /// Takes the first message that has arrived before a receive for it was posted.
    fn take_unexpected(&mut self, from: Rank, comm: usize, tag: Tag) -> Option<SimMessage> {
        let waiting = self.unexpected.get_mut(&from)?;
        let matches = |message: &SimMessage| message.comm == comm && message.tag == tag;
        let found = waiting.iter().position(matches);
        let message = found.and_then(|index| waiting.remove(index));
        if waiting.is_empty() {
            self.unexpected.remove(&from);
        }
        message
    }

    fn keep(&mut self, open: OpenRequest) -> Request {
        let request = Request(self.next);
        self.next += 1;
        self.open.insert(request, open);
        request
    }

    fn close(&mut self, request: Request) {
        let Some(open) = self.open.remove(&request) else {
            return;
        };
        if let RequestKind::Receive { buffer, .. } = open.kind {
            self.recv_buffers.close(buffer);
        }
    }
}

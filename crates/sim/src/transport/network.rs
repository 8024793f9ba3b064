//! Messages in the simulated network: on their way, arrived before they were asked for, or received.
//!
//! Small ones leave their sender at once; large ones wait there until the receiver has a place for
//! them, and are lost if the sender dies before.

use std::collections::VecDeque;
use std::ops::Range;

use super::state::{Event, Process, World};
use ftsort_core::members::Rank;
use ftsort_core::transport::mpi_api::{Look, RecvBuffer, Request, Tag};
use ftsort_kernels::buffer::{Buffer, Slice};

pub struct Message {
    pub comm: usize,
    pub tag: Tag,
    pub payload: Slice,
    /// The sender's request, if it waits until the message is received.
    pub rendezvous: Option<Request>,
}

pub enum Kind {
    Send,
    Receive {
        from: Rank,
        tag: Tag,
        buffer: RecvBuffer,
        range: Range<usize>,
        /// The large message that is on its way into it.
        matched: Option<Message>,
    },
}

pub struct Open {
    pub comm: usize,
    pub peer: Rank,
    pub kind: Kind,
    pub done: Option<Look>,
}

impl World {
    pub fn land(&mut self, rank: Rank, buffer: Buffer) -> RecvBuffer {
        self.process(rank).recv_buffers.add(buffer)
    }

    pub fn lift(&mut self, rank: Rank, buffer: RecvBuffer) -> Buffer {
        self.process(rank).recv_buffers.lift(buffer)
    }

    pub fn release(&mut self, rank: Rank, buffer: RecvBuffer) {
        self.process(rank).recv_buffers.release(buffer);
    }

    pub fn send(&mut self, from: Rank, to: Rank, tag: Tag, payload: Slice) -> Request {
        let eager = payload.len() <= self.eager;
        let process = self.process(from);
        let comm = process.comm;
        let failed = process.knows.contains(to) || process.revoked.contains(&comm);
        let done = match (failed, eager) {
            (true, _) => Some(Look::Failed),
            (_, true) => Some(Look::Complete(payload.len())),
            _ => None,
        };
        let request = process.keep(Open {
            comm,
            peer: to,
            kind: Kind::Send,
            done,
        });
        if !failed {
            let message = Message {
                comm,
                tag,
                payload,
                rendezvous: (!eager).then_some(request),
            };
            self.wires.entry((from, to)).or_default().push_back(message);
            self.events.push(Event::Arrive { from, to });
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
        process.recv_buffers.open(buffer, range.clone());
        let request = process.keep(Open {
            comm,
            peer: from,
            kind: Kind::Receive {
                from,
                tag,
                buffer,
                range,
                matched: None,
            },
            done: process.revoked.contains(&comm).then_some(Look::Failed),
        });
        if process.revoked.contains(&comm) {
            return request;
        }
        let waiting = process.unexpected.entry(from).or_default();
        let found = waiting
            .iter()
            .position(|message| message.comm == comm && message.tag == tag);
        let message = found.and_then(|index| waiting.remove(index));
        match message {
            Some(message) => self.give(rank, request, message),
            None if self.process(rank).knows.contains(from) => self.fail(rank, request),
            None => {}
        }
        request
    }

    fn fail(&mut self, rank: Rank, request: Request) {
        let process = self.process(rank);
        process.changed = true;
        if let Some(open) = process.open.get_mut(&request) {
            open.done = Some(Look::Failed);
        }
    }

    pub fn arrive(&mut self, from: Rank, to: Rank) {
        let wire = self.wires.get_mut(&(from, to));
        let Some(message) = wire.and_then(VecDeque::pop_front) else {
            return;
        };
        // What comes from a rank that is known to be dead is thrown away, and so is what comes for one
        // that has stopped.
        if !self.runs(to) || self.process(to).knows.contains(from) {
            return;
        }
        let process = self.process(to);
        let matching = process.open.iter().find(|(_, open)| {
            open.done.is_none()
                && open.comm == message.comm
                && matches!(&open.kind, Kind::Receive { from: source, tag, matched: None, .. }
                    if *source == from && *tag == message.tag)
        });
        match matching.map(|(request, _)| *request) {
            Some(request) => self.give(to, request, message),
            None => process
                .unexpected
                .entry(from)
                .or_default()
                .push_back(message),
        }
    }

    /// A message meets the receive that it is for.
    fn give(&mut self, to: Rank, receive: Request, message: Message) {
        if message.rendezvous.is_some() {
            let open = self.process(to).open.get_mut(&receive);
            if let Some(Open {
                kind: Kind::Receive { matched, .. },
                ..
            }) = open
            {
                *matched = Some(message);
                self.events.push(Event::Transfer { to, receive });
            }
            return;
        }
        self.fill(to, receive, &message.payload);
    }

    pub fn transfer(&mut self, to: Rank, receive: Request) {
        if !self.runs(to) {
            return;
        }
        let Some(open) = self.process(to).open.get_mut(&receive) else {
            return;
        };
        let Kind::Receive { from, matched, .. } = &mut open.kind else {
            return;
        };
        let from = *from;
        if open.done.is_some() {
            return;
        }
        if matched.is_none() {
            return;
        }
        // The bytes are the sender's: without it there are none, and the receive is corrupted.
        if !self.runs(from) {
            if self.process(to).knows.contains(from) {
                self.fail(to, receive);
            }
            return;
        }
        let open = self.process(to).open.get_mut(&receive);
        let Some(Open {
            kind: Kind::Receive { matched, .. },
            ..
        }) = open
        else {
            return;
        };
        let Some(message) = matched.take() else {
            return;
        };
        self.fill(to, receive, &message.payload);
        if let Some(request) = message.rendezvous
            && let Some(open) = self.process(from).open.get_mut(&request)
            && open.done.is_none()
        {
            open.done = Some(Look::Complete(message.payload.len()));
            self.process(from).changed = true;
        }
    }

    fn fill(&mut self, rank: Rank, receive: Request, bytes: &[u8]) {
        let process = self.process(rank);
        process.changed = true;
        let Some(open) = process.open.get_mut(&receive) else {
            return;
        };
        if let Kind::Receive { buffer, range, .. } = &open.kind
            && let Some(place) = process.recv_buffers.bytes(*buffer)
        {
            if bytes.len() > range.len() {
                let (sent, room) = (bytes.len(), range.len());
                open.done = Some(Look::Failed);
                self.note(Some(rank), || format!("gets {sent} bytes for {room}"));
                self.misuse
                    .get_or_insert(format!("{rank} gets {sent} bytes where it expects {room}"));
                return;
            }
            place[range.start..range.start + bytes.len()].copy_from_slice(bytes);
        }
        open.done = Some(Look::Complete(bytes.len()));
    }

    pub fn test(&mut self, rank: Rank, request: Request) -> Look {
        let process = self.process(rank);
        let look = process.open.get(&request).map(|open| open.done);
        match look {
            Some(None) => Look::Pending,
            Some(Some(look)) => {
                process.close(request);
                look
            }
            None => panic!("{request:?} is unknown"),
        }
    }

    pub fn cancel(&mut self, rank: Rank, request: Request) {
        let open = self.process(rank).open.get_mut(&request);
        if let Some(open) = open
            && open.done.is_none()
            && matches!(open.kind, Kind::Receive { matched: None, .. })
        {
            open.done = Some(Look::Complete(0));
        }
    }

    pub fn abandon(&mut self, rank: Rank, request: Request) {
        self.process(rank).close(request);
    }
}

impl Process {
    fn keep(&mut self, open: Open) -> Request {
        let request = Request(self.next);
        self.next += 1;
        self.open.insert(request, open);
        request
    }

    fn close(&mut self, request: Request) {
        let Some(open) = self.open.remove(&request) else {
            return;
        };
        if let Kind::Receive { buffer, .. } = open.kind {
            self.recv_buffers.close(buffer);
        }
    }
}

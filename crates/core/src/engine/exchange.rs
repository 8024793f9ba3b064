//! Messages between ranks in a step that all ranks take together.
//!
//! Every rank lists the control messages or transfers that concern it, in an order on which any two ranks
//! agree (ascending node), so that messages match without names. A rank with an error still sends its
//! messages, empty, so that no rank waits for it in vain.
//!
//! Each rank sends to the ranks after it first, so that no rank receives from all others at once while the others wait.
//! Sends come before receives, because data are safe when they have left a rank.

use std::ops::Range;

use super::Engine;
use super::arrivals::Stage;
use super::relay::message_of;
use crate::block::{Block, Header, Run};
use crate::engine::{CollectiveResult, InStep};
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::transport::{Flow, Ticket};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Finding, Result, Status};
use ftsort_kernels::memory;

/// A small message from one rank to another.
pub struct ControlMessage {
    /// The sender.
    pub from: Rank,
    /// The receiver; may be the sender.
    pub to: Rank,
    /// The payload, read on the sender only. None: the sender has an error.
    pub payload: Option<Slice>,
}

impl ControlMessage {
    /// A message with this payload, or for a rank that only receives it, without one.
    pub fn new(from: Rank, to: Rank, payload: Option<Slice>) -> ControlMessage {
        ControlMessage { from, to, payload }
    }
}

/// A block on its way from one rank to another.
pub struct Transfer {
    /// The sender.
    pub from: Rank,
    /// The receiver; if it is the sender, nothing is copied.
    pub to: Rank,
    /// The block, read on the sender only. None: the sender has an error.
    pub block: Option<Block>,
}

/// The outcome of a message, as its receiver sees it.
#[derive(Debug)]
pub enum Delivery<T> {
    /// It is for another rank.
    NotMine,
    /// It has arrived.
    Got(T),
    /// The sender had an error, or this rank had no memory for it.
    Nothing,
}

impl<T> Delivery<T> {
    /// Returns the content if it has arrived.
    pub fn got(self) -> Option<T> {
        match self {
            Delivery::Got(thing) => Some(thing),
            Delivery::NotMine | Delivery::Nothing => None,
        }
    }
}

/// Runs of up to `SHORT` bytes travel together in messages of up to `BUNDLE` bytes, because a message costs
/// more than a copy of so few bytes.
const SHORT: usize = 4 << 10;
const BUNDLE: usize = 64 << 10;

/// A block travels with its header if it is at most this part of an eager message, because a second message
/// takes longer.
pub const ENCLOSED_PART: usize = 2048;

/// The records of a block for which receives are posted.
pub(super) enum Awaited {
    /// Messages, each with the runs of the block that it brings.
    Messages(Vec<(Range<usize>, Ticket)>),
    /// They came with the header.
    Enclosed(Slice),
}

/// The outcome of control messages; as an error the receives that a failure interrupted, for each message.
type Delivered = std::result::Result<Vec<Delivery<Slice>>, Vec<Option<Ticket>>>;

/// The first byte of a control message: whether a payload follows in the same message, or in the next one.
const NO_PAYLOAD: u8 = 0;
const HAS_PAYLOAD: u8 = 1;
const PAYLOAD_IS_NEXT: u8 = 2;

impl Engine<'_> {
    /// Delivers control messages of at most `limit` bytes. None: a rank failed.
    pub fn deliver(
        &mut self,
        messages: Vec<ControlMessage>,
        limit: usize,
    ) -> Result<Option<Vec<Delivery<Slice>>>> {
        // A rank without memory for a control message could not tell the others, which would wait for its
        // message: so the limit does not apply here.
        let delivered = memory::for_messages(|| self.deliver_now(messages, limit))?;
        Ok(delivered.ok())
    }

    /// Payloads that may be long follow in messages of their own, so that receives of unknown length need little
    /// memory although many of them are posted at once.
    fn deliver_now(&mut self, messages: Vec<ControlMessage>, limit: usize) -> Result<Delivered> {
        let me = self.members.me();
        let short = self.short_payload();
        let order = self.sending_order(messages.iter().map(|message| (message.from, message.to)));
        for index in &order {
            let message = &messages[*index];
            self.send_control(message.to, framed(message.payload.as_deref(), short)?)?;
        }
        let mut tickets: Vec<Option<Ticket>> = Vec::with_capacity(messages.len());
        for message in &messages {
            let incoming = message.to == me && message.from != me;
            tickets.push(if incoming {
                let capacity = 1 + limit.min(short);
                Some(self.transport.receive(message.from, capacity)?)
            } else {
                None
            });
        }
        if self.transport.settle()? == Flow::Interrupted {
            return Ok(Err(tickets));
        }
        for message in order.into_iter().map(|index| &messages[index]) {
            if let Some(payload) =
                (message.payload.as_ref()).filter(|payload| payload.len() > short)
            {
                self.send_control(message.to, payload.clone())?;
            }
        }
        let mut deliveries = Vec::with_capacity(messages.len());
        let mut awaited = Vec::new();
        for (index, (message, ticket)) in messages.iter().zip(tickets).enumerate() {
            deliveries.push(match (ticket, &message.payload) {
                (Some(ticket), _) => {
                    let frame = self.transport.take(ticket);
                    if let Some(bytes) = length_of_next(&frame) {
                        if bytes > limit {
                            return Err(too_long(bytes, limit));
                        }
                        awaited.push((index, self.transport.receive(message.from, bytes)?));
                    }
                    opened(frame)
                }
                _ if message.to != me => Delivery::NotMine,
                (None, Some(payload)) => Delivery::Got(payload.clone()),
                (None, None) => Delivery::Nothing,
            });
        }
        if self.transport.settle()? == Flow::Interrupted {
            return Ok(Err(Vec::new()));
        }
        for (index, ticket) in awaited {
            deliveries[index] = Delivery::Got(self.transport.take(ticket));
        }
        Ok(Ok(deliveries))
    }

    /// Returns the indices of the messages that this rank sends to others, in the order of sending, given sender and
    /// receiver of each message. The messages to one rank keep their order.
    fn sending_order(&self, ends: impl Iterator<Item = (Rank, Rank)>) -> Vec<usize> {
        let me = self.members.me();
        let mut order: Vec<(u32, usize)> = ends
            .enumerate()
            .filter(|(_, (from, to))| *from == me && *to != me)
            .map(|(index, (_, to))| (me.turn_of(to), index))
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(_, index)| index).collect()
    }

    fn send_control(&mut self, to: Rank, message: Slice) -> Result<()> {
        self.stats.bytes_sent += message.len() as u64;
        self.transport.send(to, message)
    }

    /// Returns the size of the longest payload that travels in the first message. Receives from all ranks together
    /// take about as much memory as one eager message. The header of a single run, with its records if they are few,
    /// is always short.
    fn short_payload(&self) -> usize {
        let share = self.transport.eager_limit() / self.members.ranks();
        share.max(Header::limit(1) + self.enclosed(1))
    }

    /// Moves blocks of at most `most_runs` runs. If this rank has no memory for one, it sets `error` and
    /// discards the bytes. None: a rank failed.
    pub fn transfer(
        &mut self,
        transfers: Vec<Transfer>,
        most_runs: usize,
        error: &mut Option<Error>,
    ) -> CollectiveResult<Option<Vec<Delivery<Block>>>> {
        let transfers = self.corrupt_messages(transfers);
        self.transfer_from(&[], transfers, most_runs, error)
            .or_apart()
    }

    /// As [`Engine::transfer`], for whole inputs, of which `origins` has the owners. If a rank fails, the
    /// inputs that arrive nevertheless can be had from [`Engine::take_arrived`].
    pub(super) fn transfer_inputs(
        &mut self,
        origins: &[Rank],
        transfers: Vec<Transfer>,
        error: &mut Option<Error>,
    ) -> CollectiveResult<Option<Vec<Delivery<Block>>>> {
        let transfers = self.corrupt_messages(transfers);
        self.transfer_from(origins, transfers, 1, error).or_apart()
    }

    /// Changes blocks that this rank sends if the schedule says so.
    fn corrupt_messages(&mut self, mut transfers: Vec<Transfer>) -> Vec<Transfer> {
        let me = self.members.me();
        for transfer in &mut transfers {
            if transfer.from == me && transfer.to != me {
                let block = transfer.block.take();
                transfer.block = block.map(|block| self.corrupt_message(transfer.to, block));
            }
        }
        transfers
    }

    fn transfer_from(
        &mut self,
        origins: &[Rank],
        transfers: Vec<Transfer>,
        most_runs: usize,
        error: &mut Option<Error>,
    ) -> Result<Option<Vec<Delivery<Block>>>> {
        let me = self.members.me();
        let enclosed = self.enclosed(most_runs);
        let header = |transfer: &Transfer| {
            let header = (transfer.block.as_ref()).map(|block| header_message(block, enclosed));
            let payload = header.map(|header| message_of(&header)).transpose()?;
            Ok(ControlMessage::new(transfer.from, transfer.to, payload))
        };
        let headers = transfers.iter().map(header).collect::<Result<_>>()?;
        let limit = Header::limit(most_runs) + enclosed;
        let headers = match memory::for_messages(|| self.deliver_now(headers, limit))? {
            Ok(headers) => headers,
            Err(tickets) => {
                let stages = tickets.into_iter().map(|ticket| ticket.map(Stage::Header));
                self.expect_late(origins, &transfers, stages);
                return Ok(None);
            }
        };
        let ends = transfers
            .iter()
            .map(|transfer| (transfer.from, transfer.to));
        for index in self.sending_order(ends) {
            self.send_runs(&transfers[index], enclosed)?;
        }
        let mut awaited = Vec::with_capacity(transfers.len());
        for (transfer, header_bytes) in transfers.iter().zip(headers) {
            awaited.push(match header_bytes {
                Delivery::Got(header_bytes) if transfer.from != me => {
                    Some(self.await_runs(transfer.from, &header_bytes, enclosed, error)?)
                }
                _ => None,
            });
        }
        if self.transport.settle()? == Flow::Interrupted {
            let stages = awaited.into_iter().map(|awaited| {
                let (header, awaited) = awaited??;
                Some(Stage::Records(header, awaited))
            });
            self.expect_late(origins, &transfers, stages);
            return Ok(None);
        }
        let mut deliveries = Vec::with_capacity(transfers.len());
        for (transfer, awaited) in transfers.into_iter().zip(awaited) {
            deliveries.push(match (awaited, transfer.block) {
                _ if transfer.to != me => Delivery::NotMine,
                (Some(Some((header, awaited))), _) => {
                    let block = self.arrived(transfer.from, &header, awaited);
                    if self.is_intact(&block) {
                        Delivery::Got(block)
                    } else {
                        let corrupt = self.accuse(Some(transfer.from), Finding::Message);
                        error.get_or_insert(corrupt);
                        Delivery::Nothing
                    }
                }
                (None, Some(block)) if transfer.from == me => Delivery::Got(block),
                _ => Delivery::Nothing,
            });
        }
        Ok(Some(deliveries))
    }

    /// Returns the greatest size of a block that travels with its header; a receiver needs memory for that.
    fn enclosed(&self, most_runs: usize) -> usize {
        let most = self.transport.eager_limit() / ENCLOSED_PART;
        let fits = Header::limit(most_runs) + most < self.transport.eager_limit();
        if fits { most } else { 0 }
    }

    fn send_runs(&mut self, transfer: &Transfer, enclosed: usize) -> Result<()> {
        let Some(block) = transfer.block.clone() else {
            return Ok(());
        };
        if travels_along(block.bytes(), enclosed) {
            self.emit_enclosed(transfer.from, transfer.to, block.bytes());
            return Ok(());
        }
        let sizes: Vec<usize> = block.runs.iter().map(|run| run.data.len()).collect();
        for runs in bundles(&sizes) {
            let message = bundled(&block.runs[runs])?;
            let bytes = message.len();
            self.stats.bytes_sent += bytes as u64;
            self.emit_message(transfer.from, transfer.to, bytes);
            self.transport.send(transfer.to, message)?;
        }
        Ok(())
    }

    /// Returns the block of which all messages have arrived.
    pub(super) fn arrived(&mut self, from: Rank, header: &Header, awaited: Awaited) -> Block {
        let is_enclosed = matches!(awaited, Awaited::Enclosed(_));
        let messages = match awaited {
            Awaited::Enclosed(records) => vec![(0..header.runs.len(), records)],
            Awaited::Messages(messages) => {
                let messages = messages.into_iter();
                let taken = messages.map(|(runs, ticket)| (runs, self.transport.take(ticket)));
                taken.collect()
            }
        };
        let mut parts = Vec::with_capacity(header.runs.len());
        for (runs, message) in messages {
            if is_enclosed {
                self.emit_enclosed(from, self.members.me(), message.len());
            } else {
                self.emit_message(from, self.members.me(), message.len());
            }
            let mut start = 0;
            for (_, _, bytes) in &header.runs[runs] {
                parts.push(message.part(start..start + bytes));
                start += bytes;
            }
        }
        Block::from_parts(header, parts)
    }

    /// Posts the receives of a block's runs; None if there is no memory for some of them.
    fn await_runs(
        &mut self,
        from: Rank,
        header_bytes: &Slice,
        enclosed: usize,
        error: &mut Option<Error>,
    ) -> Result<Option<(Header, Awaited)>> {
        let (header, rest) = Header::from_message(header_bytes)?;
        if travels_along(header.bytes(), enclosed) {
            if rest.len() != header.bytes() {
                return Err(Error::internal("a block of few records came without them"));
            }
            // The payload of a header is not aligned for records.
            return match memory::without_limit(|| Buffer::copy_of(rest)) {
                Ok(records) => Ok(Some((header, Awaited::Enclosed(records.into())))),
                Err(refused) => {
                    error.get_or_insert(refused);
                    Ok(None)
                }
            };
        }
        let sizes: Vec<usize> = header.runs.iter().map(|(_, _, bytes)| *bytes).collect();
        let mut awaited = Vec::new();
        let mut room = true;
        for runs in bundles(&sizes) {
            let bytes = sizes[runs.clone()].iter().sum();
            match self.transport.receive(from, bytes) {
                Ok(ticket) => awaited.push((runs, ticket)),
                Err(refused)
                    if refused.status == Status::Memory && !mutant(Mutant::RefusalNotAgreedOn) =>
                {
                    self.transport.discard(from, bytes)?;
                    error.get_or_insert(refused);
                    room = false;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(room.then_some((header, Awaited::Messages(awaited))))
    }
}

/// Returns whether a block of this size travels with its header.
fn travels_along(bytes: usize, enclosed: usize) -> bool {
    (1..=enclosed).contains(&bytes)
}

/// Returns the header of a block, followed by its records if they are few.
fn header_message(block: &Block, enclosed: usize) -> Vec<u8> {
    let mut header_bytes = block.header().encode();
    if travels_along(block.bytes(), enclosed) {
        let records = block.runs.iter().map(|run| &run.data[..]);
        records.for_each(|records| header_bytes.extend_from_slice(records));
    }
    header_bytes
}

/// Groups runs of these sizes into messages, in order: consecutive short runs together as far as they fit,
/// and each other run alone. Sender and receiver both compute it from the block's header.
fn bundles(sizes: &[usize]) -> Vec<Range<usize>> {
    let mut bundles: Vec<Range<usize>> = Vec::new();
    // None: the last run is not short and travels alone.
    let mut room = None;
    for (index, bytes) in sizes.iter().enumerate() {
        match bundles.last_mut() {
            Some(last) if *bytes <= SHORT && room.is_some_and(|room| *bytes <= room) => {
                last.end = index + 1;
                room = room.map(|room| room - bytes);
            }
            _ => {
                bundles.push(index..index + 1);
                room = (*bytes <= SHORT).then(|| BUNDLE - bytes);
            }
        }
    }
    bundles
}

/// Returns the records of these runs, one run after the other.
fn bundled(runs: &[Run]) -> Result<Slice> {
    if let [only] = runs {
        return Ok(only.data.clone());
    }
    let records: Vec<&[u8]> = runs.iter().map(|run| &run.data[..]).collect();
    // The receivers wait for this message, so the memory limit does not apply to it.
    Ok(memory::for_messages(|| Buffer::concatenated(&records))?.into())
}

/// Returns the first message of a payload: all of it if it is short, otherwise its length.
fn framed(payload: Option<&[u8]>, short: usize) -> Result<Slice> {
    let length = payload
        .map_or(0, |payload| payload.len() as u64)
        .to_le_bytes();
    let (kind, content) = match payload {
        None => (NO_PAYLOAD, &[][..]),
        Some(payload) if payload.len() > short => (PAYLOAD_IS_NEXT, &length[..]),
        Some(payload) => (HAS_PAYLOAD, payload),
    };
    Ok(Buffer::concatenated(&[&[kind], content])?.into())
}

/// Returns the length of the payload that follows in a message of its own.
fn length_of_next(message: &[u8]) -> Option<usize> {
    let length = message.strip_prefix(&[PAYLOAD_IS_NEXT])?;
    let length = length.try_into().map(u64::from_le_bytes);
    length.ok()?.try_into().ok()
}

fn too_long(bytes: usize, limit: usize) -> Error {
    let text = format!("a control message has {bytes} bytes, which is more than {limit}");
    Error::internal(text)
}

pub(super) fn opened(message: Slice) -> Delivery<Slice> {
    if message.first() != Some(&HAS_PAYLOAD) {
        return Delivery::Nothing;
    }
    Delivery::Got(message.part(1..message.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bundles_contain_all_runs_in_order(
            sizes in proptest::collection::vec(prop_oneof![0..SHORT + 2, SHORT - 1..2 * BUNDLE], 0..100),
        ) {
            let bundles = bundles(&sizes);
            let runs: Vec<usize> = bundles.iter().cloned().flatten().collect();
            prop_assert!(runs.into_iter().eq(0..sizes.len()));
            let sum = |runs: &Range<usize>| sizes[runs.clone()].iter().sum::<usize>();
            for runs in bundles.iter().filter(|runs| runs.len() > 1) {
                prop_assert!(sizes[runs.clone()].iter().all(|bytes| *bytes <= SHORT));
                prop_assert!(sum(runs) <= BUNDLE);
            }
            // The next run did not fit, or one of the two is not short.
            for pair in bundles.windows(2) {
                let next = sizes[pair[1].start];
                let alone = next > SHORT || sizes[pair[0].start] > SHORT;
                prop_assert!(alone || sum(&pair[0]) + next > BUNDLE);
            }
        }
    }
}

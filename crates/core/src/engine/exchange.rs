//! Moving things between ranks in a step that all take together.
//!
//! Every rank lists the letters or transfers that concern it, in an order on which any two ranks
//! agree (ascending node), so that messages match without being named. A rank that is in trouble
//! still plays its part, with empty hands: nobody waits for it in vain.

use std::ops::Range;

use super::{Engine, table};
use crate::block::{Block, Header, Run};
use crate::faults::Target;
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::transport::{Flow, Ticket};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Finding, Result, Status};
use ftsort_kernels::memory;

/// A small message from one rank to another.
pub struct Letter {
    /// Who sends.
    pub from: Rank,
    /// Who receives; may be the sender.
    pub to: Rank,
    /// What is sent; looked at on the sender. None: the sender is in trouble.
    pub body: Option<Vec<u8>>,
}

/// A block on its way from one rank to another.
pub struct Transfer {
    /// Who sends.
    pub from: Rank,
    /// Who receives; may be the sender, and then nothing is copied.
    pub to: Rank,
    /// What is sent; looked at on the sender. None: the sender is in trouble.
    pub block: Option<Block>,
}

/// What came of a letter or a shipment, as its receiver sees it.
#[derive(Debug)]
pub enum Delivery<T> {
    /// It is for another rank.
    NotMine,
    /// Here it is.
    Got(T),
    /// The sender was in trouble, or this rank had no room.
    Nothing,
}

impl<T> Delivery<T> {
    /// What was got, if it was.
    pub fn got(self) -> Option<T> {
        match self {
            Delivery::Got(thing) => Some(thing),
            Delivery::NotMine | Delivery::Nothing => None,
        }
    }
}

/// Runs up to this size travel together, in messages of up to so many bytes: a message costs more than a
/// copy of so few.
const SHORT: usize = 4 << 10;
const BUNDLE: usize = 64 << 10;

/// A block that is no larger than one of so many parts of a message travels with its header: a message more
/// takes longer.
const ENCLOSED_PART: usize = 2048;

/// The records of a block that is awaited.
enum Awaited {
    /// Messages, and which runs of the block each of them brings.
    Messages(Vec<(Range<usize>, Ticket)>),
    /// They have come with the header.
    Enclosed(Slice),
}

/// Goes before every letter's body: is there one?
const IN_TROUBLE: u8 = 0;
const HAS_BODY: u8 = 1;

impl Engine<'_> {
    /// Delivers letters of at most `limit` bytes. None: somebody died.
    pub fn deliver(
        &mut self,
        letters: Vec<Letter>,
        limit: usize,
    ) -> Result<Option<Vec<Delivery<Slice>>>> {
        // Who finds no room for a letter cannot tell the others: they would wait for its own in vain.
        memory::without_limit(|| self.deliver_now(letters, limit))
    }

    fn deliver_now(
        &mut self,
        letters: Vec<Letter>,
        limit: usize,
    ) -> Result<Option<Vec<Delivery<Slice>>>> {
        if limit >= self.transport.eager_limit() {
            return self.deliver_long(letters);
        }
        let me = self.members.me();
        let mut tickets: Vec<Option<Ticket>> = Vec::with_capacity(letters.len());
        for letter in &letters {
            if letter.from == me && letter.to != me {
                let message = sealed(letter.body.as_deref())?;
                self.stats.bytes_sent += message.len() as u64;
                self.transport.send(letter.to, message)?;
            }
            let incoming = letter.to == me && letter.from != me;
            tickets.push(match incoming {
                true => Some(self.transport.receive(letter.from, limit + 1)?),
                false => None,
            });
        }
        if self.transport.settle()? == Flow::Interrupted {
            return Ok(None);
        }
        let mut deliveries = Vec::with_capacity(letters.len());
        for (letter, ticket) in letters.into_iter().zip(tickets) {
            deliveries.push(match ticket {
                Some(ticket) => opened(self.transport.take(ticket)),
                None if letter.to != me => Delivery::NotMine,
                None => match letter.body {
                    Some(body) => Delivery::Got(Buffer::copy_of(&body)?.into()),
                    None => Delivery::Nothing,
                },
            });
        }
        Ok(Some(deliveries))
    }

    /// As [`Engine::deliver`], where letters may be longer than what can be received without knowing
    /// how long it is: they go as blocks of one run, whose headers go before them.
    fn deliver_long(&mut self, letters: Vec<Letter>) -> Result<Option<Vec<Delivery<Slice>>>> {
        let me = self.members.me();
        let mut transfers = Vec::with_capacity(letters.len());
        for letter in letters {
            let block = match letter.body.filter(|_| letter.from == me) {
                Some(body) => Some(Block::input(me, Buffer::copy_of(&body)?.into())),
                None => None,
            };
            let (from, to) = (letter.from, letter.to);
            transfers.push(Transfer { from, to, block });
        }
        let mut trouble = None;
        let shipped = self.ship(transfers, 1, &mut trouble)?;
        if let Some(error) = trouble {
            // Too late to let the others know.
            let text = format!("a letter: {}", error.text);
            return Err(Error::new(Status::Internal, text));
        }
        let opened = |delivery| {
            Ok(match delivery {
                Delivery::Got(block) => Delivery::Got(only_run(block)?),
                Delivery::Nothing => Delivery::Nothing,
                Delivery::NotMine => Delivery::NotMine,
            })
        };
        let letters = shipped.map(|deliveries| deliveries.into_iter().map(opened).collect());
        letters.transpose()
    }

    /// Moves blocks of at most so many runs. Where this rank has no room for one it says so in
    /// `trouble`, and lets the bytes pass. None: somebody died.
    pub fn ship(
        &mut self,
        mut transfers: Vec<Transfer>,
        most_runs: usize,
        trouble: &mut Option<Error>,
    ) -> Result<Option<Vec<Delivery<Block>>>> {
        let me = self.members.me();
        for shipment in &mut transfers {
            if shipment.from == me && shipment.to != me {
                let block = shipment.block.take();
                let block = block.map(|block| self.corrupt(Target::Message, block));
                shipment.block = block.transpose()?;
            }
        }
        let enclosed = self.enclosed(most_runs);
        let labels = transfers
            .iter()
            .map(|shipment| Letter {
                from: shipment.from,
                to: shipment.to,
                body: (shipment.block.as_ref()).map(|block| label_of(block, enclosed)),
            })
            .collect();
        let Some(labels) = self.deliver(labels, Header::limit(most_runs) + enclosed)? else {
            return Ok(None);
        };
        let mut awaited = Vec::with_capacity(transfers.len());
        for (shipment, label) in transfers.iter().zip(labels) {
            if shipment.from == me && shipment.to != me {
                self.send_runs(shipment, enclosed)?;
            }
            awaited.push(match label {
                Delivery::Got(label) if shipment.from != me => {
                    Some(self.await_runs(shipment.from, &label, enclosed, trouble)?)
                }
                _ => None,
            });
        }
        if self.transport.settle()? == Flow::Interrupted {
            return Ok(None);
        }
        let mut deliveries = Vec::with_capacity(transfers.len());
        for (shipment, awaited) in transfers.into_iter().zip(awaited) {
            deliveries.push(match (awaited, shipment.block) {
                _ if shipment.to != me => Delivery::NotMine,
                (Some(Some((header, awaited))), _) => {
                    let block = self.arrived(shipment.from, &header, awaited);
                    match self.is_intact(&block) {
                        true => Delivery::Got(block),
                        false => {
                            let error = self.accuse(Some(shipment.from), Finding::Message);
                            trouble.get_or_insert(error);
                            Delivery::Nothing
                        }
                    }
                }
                (None, Some(block)) if shipment.from == me => Delivery::Got(block),
                _ => Delivery::Nothing,
            });
        }
        Ok(Some(deliveries))
    }

    /// How large a block may be to travel with its header: whoever awaits one needs room for that.
    fn enclosed(&self, most_runs: usize) -> usize {
        let most = self.transport.eager_limit() / ENCLOSED_PART;
        let fits = Header::limit(most_runs) + most < self.transport.eager_limit();
        if fits { most } else { 0 }
    }

    fn send_runs(&mut self, shipment: &Transfer, enclosed: usize) -> Result<()> {
        let Some(block) = shipment.block.clone() else {
            return Ok(());
        };
        if travels_along(block.bytes(), enclosed) {
            self.emit_message(shipment.from, shipment.to, block.bytes());
            return Ok(());
        }
        let sizes: Vec<usize> = block.runs.iter().map(|run| run.data.len()).collect();
        for runs in bundles(&sizes) {
            let message = bundled(&block.runs[runs])?;
            let bytes = message.len();
            self.stats.bytes_sent += bytes as u64;
            self.emit_message(shipment.from, shipment.to, bytes);
            self.transport.send(shipment.to, message)?;
        }
        Ok(())
    }

    /// The block of which all messages have come.
    fn arrived(&mut self, from: Rank, header: &Header, awaited: Awaited) -> Block {
        let messages = match awaited {
            Awaited::Enclosed(records) => vec![(0..header.runs.len(), records)],
            Awaited::Messages(messages) => {
                let messages = messages.into_iter();
                let taken = messages.map(|(runs, ticket)| (runs, self.transport.take(ticket)));
                taken
                    .map(|(runs, message)| (runs, message.into()))
                    .collect()
            }
        };
        let mut parts = Vec::with_capacity(header.runs.len());
        for (runs, message) in messages {
            self.emit_message(from, self.members.me(), message.len());
            let mut start = 0;
            for (_, _, bytes) in &header.runs[runs] {
                parts.push(message.part(start..start + bytes));
                start += bytes;
            }
        }
        Block::from_parts(header, parts)
    }

    /// Posts the receives of a block's runs; None where there is no room for some of them.
    fn await_runs(
        &mut self,
        from: Rank,
        label: &Slice,
        enclosed: usize,
        trouble: &mut Option<Error>,
    ) -> Result<Option<(Header, Awaited)>> {
        let (header, rest) = Header::from_message(label)?;
        if travels_along(header.bytes(), enclosed) {
            // For records the label is not aligned.
            let records = match rest.len() == header.bytes() {
                true => memory::without_limit(|| Buffer::copy_of(rest))?,
                false => return Err(Error::new(Status::Internal, "a label lacks its records")),
            };
            return Ok(Some((header, Awaited::Enclosed(records.into()))));
        }
        let sizes: Vec<usize> = header.runs.iter().map(|(_, _, bytes)| *bytes).collect();
        let mut awaited = Vec::new();
        let mut room = true;
        for runs in bundles(&sizes) {
            let bytes = sizes[runs.clone()].iter().sum();
            match self.transport.receive(from, bytes) {
                Ok(ticket) => awaited.push((runs, ticket)),
                Err(error) if error.status == Status::Memory => {
                    self.transport.discard(from, bytes)?;
                    trouble.get_or_insert(error);
                    room = false;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(room.then_some((header, Awaited::Messages(awaited))))
    }
}

/// Do so many bytes of records travel with their header?
fn travels_along(bytes: usize, enclosed: usize) -> bool {
    (1..=enclosed).contains(&bytes)
}

/// What goes before a block's records, and these themselves if they are few.
fn label_of(block: &Block, enclosed: usize) -> Vec<u8> {
    let mut label = block.header().encode();
    if travels_along(block.bytes(), enclosed) {
        label.extend(block.runs.iter().flat_map(|run| run.data.iter()));
    }
    label
}

/// Which runs of these sizes travel in one message, in order: short ones that follow each other, as many
/// as fit, and each other one alone. Sender and receiver both compute it, from the block's header.
fn bundles(sizes: &[usize]) -> Vec<Range<usize>> {
    let mut bundles: Vec<Range<usize>> = Vec::new();
    // None: the last one is not short, and travels alone.
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

/// The records of these runs, one after the other.
fn bundled(runs: &[Run]) -> Result<Slice> {
    if let [only] = runs {
        return Ok(only.data.clone());
    }
    let mut message = Buffer::unset(runs.iter().map(|run| run.data.len()).sum())?;
    let mut start = 0;
    for run in runs {
        message[start..start + run.data.len()].copy_from_slice(&run.data);
        start += run.data.len();
    }
    Ok(message.into())
}

impl Engine<'_> {
    /// Tells what each survivor says, at most `limit` bytes, to all of them, by way of one; in
    /// ascending order of rank. None: somebody died.
    pub fn share(&mut self, mine: Vec<u8>, limit: usize) -> Result<Option<Vec<(Rank, Slice)>>> {
        let survivors: Vec<Rank> = self.members.survivors().collect();
        let total = survivors.len() * limit;
        self.by_way_of_coordinator(&survivors, mine, (limit, total))
    }

    /// As [`Engine::share`], but only `speakers` say something, at most `limit` bytes each and
    /// `total` together; it is told to all survivors.
    pub fn by_way_of_coordinator(
        &mut self,
        speakers: &[Rank],
        mine: Vec<u8>,
        (limit, total): (usize, usize),
    ) -> Result<Option<Vec<(Rank, Slice)>>> {
        let coordinator = match mutant(Mutant::ScribeIsRankZero) {
            true => Rank(0),
            // Not one that keeps the others waiting.
            false => self.members.lowest_executor(),
        };
        let me = self.members.me();
        let letters = speakers.iter().map(|speaker| Letter {
            from: *speaker,
            to: coordinator,
            body: (*speaker == me).then(|| mine.clone()),
        });
        let Some(heard) = self.deliver(letters.collect(), limit)? else {
            return Ok(None);
        };
        let heard: Vec<(Rank, Slice)> = (speakers.iter().zip(heard))
            .filter_map(|(speaker, words)| Some((*speaker, words.got()?)))
            .collect();
        let table = table::write(heard.iter().map(|(speaker, words)| (speaker.0, &words[..])));
        let survivors = self.members.survivors();
        let letters = survivors.map(|survivor| Letter {
            from: coordinator,
            to: survivor,
            body: (coordinator == me).then(|| table.clone()),
        });
        let longest = speakers.len() * table::PER_ENTRY + total;
        let Some(told) = self.deliver(letters.collect(), longest)? else {
            return Ok(None);
        };
        let told = told.into_iter().find_map(Delivery::got);
        let Some(told) = told else { return Ok(None) };
        let told = table::read(&told)?.into_iter();
        Ok(Some(
            told.map(|(rank, words)| (Rank(rank), words)).collect(),
        ))
    }
}

/// The bytes of a block of one run at most.
fn only_run(block: Block) -> Result<Slice> {
    match block.runs.into_iter().next() {
        Some(run) => Ok(run.data),
        None => Ok(Buffer::zeroed(0)?.into()),
    }
}

fn sealed(body: Option<&[u8]>) -> Result<Slice> {
    let mut message = vec![if body.is_some() { HAS_BODY } else { IN_TROUBLE }];
    message.extend_from_slice(body.unwrap_or_default());
    Ok(Buffer::copy_of(&message)?.into())
}

fn opened(message: Buffer) -> Delivery<Slice> {
    if message.first() != Some(&HAS_BODY) {
        return Delivery::Nothing;
    }
    let length = message.len();
    Delivery::Got(Slice::from(message).part(1..length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bundles_are_all_runs_in_order(
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
            // The next one did not fit, or one of both is not short.
            for both in bundles.windows(2) {
                let next = sizes[both[1].start];
                let alone = next > SHORT || sizes[both[0].start] > SHORT;
                prop_assert!(alone || sum(&both[0]) + next > BUNDLE);
            }
        }
    }
}

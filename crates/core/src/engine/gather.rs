//! The step in which ranks with small inputs give them to each other, before a job without rounds.
//!
//! A rank gives its whole sorted input to every other rank, or, if it is larger, to the holders of its copies, and
//! samples to all others. One message between each pair of ranks is all of this. Then every rank can divide the records
//! of all ranks in the same way, without a root that decides ([`finish_gathered`](super::finish_gathered)).
//!
//! A message of 4 to 8 KB is sent in two parts ([`FIRST_PART`]). But a holder of a copy gets the input in one message, so that
//! it has all of it as early as possible.
//!
//! A rank with an input that is too large, or that has a reason to run the rounds, states it in its message. As all
//! ranks read the same of each message, all of them continue with the rounds, without an agreement. If a rank fails in
//! the meantime, some ranks may have read its message and others not. The agreement that follows fails, whether it is
//! that of this step, of the job without rounds, or the first one of the rounds, and all survivors continue with the
//! rounds. The inputs that have arrived are copies then, which count as if they had been sent to protect them.
//!
//! Must never: use a message of a step that was interrupted for anything but a copy.

use super::Engine;
use super::commit::{CollectiveResult, InStep, Verdict, agreed_error};
use crate::block::{Block, Run};
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::store::StoreScope;
use crate::transport::{Flow, Ticket};
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::memory;

/// The greatest size in bytes of an input, and of the messages that arrive at the ranks of a processor if all inputs have
/// that size, with which jobs without rounds are faster.
const MOST_OF_A_RANK: usize = 512 << 10;
const MOST_AT_A_PROCESSOR: usize = 4 << 20;

/// The same for inputs that all ranks receive: as much as a second-level cache holds.
const MOST_WHOLE_AT_A_PROCESSOR: usize = 1 << 20;

/// The same if so many ranks have a processor each: a second step is short then.
const MANY_RANKS: usize = 8;
const MOST_WHOLE_OF_MANY: usize = 4 << 10;

/// An input that all ranks receive has at most this part of the longest message.
const WHOLE_PART: usize = 8;

/// The greatest size of samples.
const MOST_OF_SAMPLES: usize = 16 << 10;

/// The size of the first part of a message of two. Open MPI by default takes a system call for each message of more than
/// about 4000 bytes over shared memory; two messages without one are faster, and three are not.
const FIRST_PART: usize = 3968;

/// The first part has at most this part of the longest message.
const PART_OF_LONGEST: usize = 128;

/// The size of the end of a message ([`trailer`]).
pub const TRAILER: usize = 16;

/// The size of the size of a piece (u32), of which a message with pieces has one for each node.
pub(super) const SIZE_BYTES: usize = 4;

/// The kind of a message without content.
const NOTHING: u32 = 0;
/// The kind of a message with an input that all ranks receive.
pub const WHOLE: u32 = 1;
/// The kind of a message with an input that only the holders of its copies receive.
pub const FOR_HOLDERS: u32 = 2;
/// The kind of a message with samples of such an input.
const SAMPLES: u32 = 3;

/// Returns the end of a message, behind the records or samples: the fingerprint of the job (u64), the kind of the content
/// (u32), and its size (u32).
pub fn trailer(fingerprint: u64, kind: u32, size: usize) -> Vec<u8> {
    let mut trailer = Writer::with_capacity(TRAILER);
    trailer.u64(fingerprint).u32(kind).u32(size as u32);
    trailer.finish()
}

/// The content of a rank's messages to the others.
pub enum Contribution {
    /// The rank cannot give its input: it is larger than [`Engine::gather_limit`], or invalid, or there is another reason.
    Nothing,
    /// Its sorted input, for all ranks.
    Whole(Buffer),
    /// Its sorted input, for the holders of its copies, and samples of it ([`AtOnce::samples`](super::AtOnce::samples))
    /// for all others.
    Samples {
        /// The input.
        input: Buffer,
        /// The samples.
        samples: Buffer,
    },
}

/// The inputs and samples that a rank has received.
#[derive(Debug, Default)]
pub struct Gathered {
    /// The inputs with their owners, this rank's own one included; sorted, in ascending order of owner.
    pub(super) inputs: Vec<(Rank, Block)>,
    /// The samples of the other inputs, in ascending order of owner.
    pub(super) samples: Vec<(Rank, Slice)>,
    /// The ranks that have only samples of this rank's input, in the order in which it sends to them.
    pub(super) without_own: Vec<Rank>,
    /// Some ranks have only samples of some inputs.
    pub(super) is_sampled: bool,
    /// The contributions are those of all survivors to the same job, and all survivors know it unless one fails.
    is_complete: bool,
}

impl Gathered {
    /// Returns whether the job can be finished without rounds ([`finish_gathered`](super::finish_gathered)).
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The inputs of other ranks, which count as copies.
    pub(super) fn into_copies(self, me: Rank) -> Vec<(Rank, Block)> {
        let mut inputs = self.inputs;
        inputs.retain(|(owner, _)| *owner != me && !mutant(Mutant::GatheredCopiesDropped));
        inputs
    }
}

/// A message of the step without its trailer, or the second part of one.
struct Received {
    content: Slice,
    fingerprint: u64,
    kind: u32,
    /// The size of the first part. 0: this is the whole message.
    missing: usize,
}

impl Received {
    fn read(message: &Slice) -> Result<Received> {
        let received = || {
            let length = message.len().checked_sub(TRAILER)?;
            let mut trailer = Reader::new(&message[length..]);
            Some(Received {
                content: message.part(0..length),
                fingerprint: trailer.u64()?,
                kind: trailer.u32()?,
                missing: (trailer.u32()? as usize).checked_sub(length)?,
            })
        };
        received().ok_or_else(|| Error::internal("a message with an input does not decode"))
    }
}

impl Engine<'_> {
    /// The greatest size of an input with which a job may do without rounds. Larger ones are copied before they are sorted.
    pub fn gather_limit(&self) -> usize {
        let most = MOST_OF_A_RANK.min(self.per_rank(MOST_AT_A_PROCESSOR));
        most.min(self.longest_content())
    }

    /// The greatest size of an input that is best given to all ranks as a whole.
    pub fn whole_limit(&self) -> usize {
        let most = match self.members.ranks() {
            ..=2 => self.gather_limit(),
            MANY_RANKS.. if self.members.ranks_per_processor() == 1 => MOST_WHOLE_OF_MANY,
            _ => self.per_rank(MOST_WHOLE_AT_A_PROCESSOR),
        };
        most.min(self.transport.eager_limit() / WHOLE_PART)
            .min(self.gather_limit())
    }

    /// The greatest size of an input or of samples that a rank gives to all others.
    fn limit_for_all(&self) -> usize {
        let most = self.whole_limit().max(MOST_OF_SAMPLES);
        most.min(self.longest_content())
    }

    /// The size of a message if the messages that arrive at the ranks of a processor have so many bytes together.
    fn per_rank(&self, at_processor: usize) -> usize {
        // With a processor for each rank, half of the messages were best (8 and 16 ranks).
        let sharers = self.members.ranks_per_processor().max(2);
        at_processor / (self.members.ranks() * sharers)
    }

    /// The greatest size of an input or of pieces of it in one message.
    fn longest_content(&self) -> usize {
        let sizes = self.members.cube().len() * SIZE_BYTES;
        let most = self.transport.eager_limit();
        most.saturating_sub(sizes.max(TRAILER))
    }

    /// Gives this rank's sorted input, or samples of it, to all survivors, and receives theirs. `scope`: of the store that
    /// keeps the copies of inputs. `fingerprint`: of all that must be the same on all ranks. `refusal`: the error of this
    /// rank's arguments. Collective.
    ///
    /// # Errors
    /// `refusal`, or the error of another rank, if the step is interrupted and a rank has left it with one.
    pub fn gather(
        &mut self,
        own: Contribution,
        scope: StoreScope,
        fingerprint: u64,
        refusal: Option<&Error>,
    ) -> CollectiveResult<Gathered> {
        let limit = self.gather_limit();
        let me = self.members.me();
        let limit_for_all = self.limit_for_all();
        let own = own.within(limit, limit_for_all);
        // The limit does not apply: a rank that refuses a message would leave the others waiting.
        let messages = memory::for_messages(|| own.messages(fingerprint)).or_apart()?;
        let holders = match mutant(Mutant::HoldersGetSamples) {
            true => Vec::new(),
            false => self.other_holders(scope, me),
        };
        // In the order of their turns.
        let after = self.members.survivors().filter(|rank| *rank > me);
        let before = self.members.survivors().filter(|rank| *rank < me);
        let others: Vec<Rank> = after.chain(before).collect();
        let mut tickets = Vec::with_capacity(others.len());
        for rank in &others {
            let is_held = self.other_holders(scope, *rank).contains(&me);
            let most = if is_held {
                limit.max(limit_for_all)
            } else {
                limit_for_all
            };
            let receive = || self.transport.receive(*rank, most + TRAILER);
            tickets.push((*rank, memory::for_messages(receive).or_apart()?));
        }
        let mut without_own = Vec::new();
        for rank in &others {
            let message = match &messages.samples {
                Some(samples) if !holders.contains(rank) => {
                    without_own.push(*rank);
                    samples
                }
                _ => &messages.input,
            };
            // A holder would receive the first part after the second parts of all other ranks.
            match holders.contains(rank) && others.len() > 1 {
                true => self.send_in_one(*rank, message.clone())?,
                false => self.send_in_parts(*rank, message)?,
            }
        }
        let (flow, mut arrived) = self.settle_messages(&mut tickets)?;
        let is_interrupted = flow == Flow::Interrupted;
        if is_interrupted {
            self.late_messages = tickets.iter().map(|(_, ticket)| *ticket).collect();
            // Other ranks may agree on the arguments already.
            let known = refusal.filter(|_| !mutant(Mutant::RefusalOfGatherForgotten));
            let verdict = self.commit(false, known)?;
            self.late_messages.clear();
            tickets.retain(|(_, ticket)| self.transport.is_complete(*ticket));
            for (from, ticket) in tickets {
                arrived.push((from, self.take_message(from, ticket)));
            }
            if let Verdict::Failed(status) = verdict {
                return Err(agreed_error(status, known.cloned()));
            }
        }
        let gathered = self
            .read_gathered(messages.input, fingerprint, arrived)
            .or_apart()?;
        Ok(Gathered {
            is_complete: gathered.is_complete
                && (!is_interrupted || mutant(Mutant::GatheredInSpiteOfFailure)),
            without_own,
            ..gathered
        })
    }

    /// The size of the first part of a message of two.
    fn first_part(&self) -> usize {
        let most = self.transport.eager_limit() / PART_OF_LONGEST;
        FIRST_PART.min(most).max(1)
    }

    /// Sends a message; one of some size in two parts, of which the second one is sent first. Its trailer tells that there
    /// is another.
    fn send_in_parts(&mut self, to: Rank, message: &Slice) -> CollectiveResult<()> {
        let first = self.first_part();
        if (message.len() - TRAILER) / first != 1 {
            return self.send_in_one(to, message.clone());
        }
        self.send_in_one(to, message.part(first..message.len()))?;
        self.send_in_one(to, message.part(0..first))
    }

    fn send_in_one(&mut self, to: Rank, message: Slice) -> CollectiveResult<()> {
        self.stats.bytes_sent += message.len() as u64;
        self.emit_message(self.members.me(), to, message.len());
        self.transport.send(to, message).or_apart()
    }

    /// Waits for the messages of these receives, and for the first parts of those that are sent in two. Returns the messages,
    /// and removes their receives from the list. If a rank fails, there may be second parts among them.
    fn settle_messages(
        &mut self,
        tickets: &mut Vec<(Rank, Ticket)>,
    ) -> CollectiveResult<(Flow, Vec<(Rank, Slice)>)> {
        let mut arrived = Vec::with_capacity(tickets.len());
        // All ranks receive first parts after all second parts, so that a send of a first part cannot end before.
        let flow = match mutant(Mutant::SendsInPartsAwaited) {
            true => self.transport.settle().or_apart()?,
            false => self.transport.settle_receives().or_apart()?,
        };
        if flow == Flow::Interrupted {
            return Ok((flow, arrived));
        }
        let mut awaited = Vec::new();
        for (from, ticket) in tickets.drain(..) {
            let message = self.take_message(from, ticket);
            let missing = Received::read(&message).or_apart()?.missing;
            if missing > 0 {
                let receive = || self.transport.receive(from, missing);
                awaited.push((arrived.len(), memory::for_messages(receive).or_apart()?));
            }
            arrived.push((from, message));
        }
        let flow = self.transport.settle().or_apart()?;
        if flow == Flow::Done {
            for (place, ticket) in awaited {
                let (from, second) = &arrived[place];
                let first = self.take_message(*from, ticket);
                let message = || Buffer::concatenated(&[&first, second]);
                arrived[place].1 = memory::for_messages(message).or_apart()?.into();
            }
        }
        Ok((flow, arrived))
    }

    fn take_message(&mut self, from: Rank, ticket: Ticket) -> Slice {
        let message = self.transport.take(ticket);
        self.emit_message(from, self.members.me(), message.len());
        message
    }

    fn read_gathered(
        &mut self,
        own: Slice,
        fingerprint: u64,
        arrived: Vec<(Rank, Slice)>,
    ) -> Result<Gathered> {
        let mut messages = vec![(self.members.me(), own)];
        for (rank, message) in arrived {
            insert_by_owner(&mut messages, rank, message);
        }
        let mut gathered = Gathered {
            inputs: Vec::with_capacity(messages.len()),
            is_complete: true,
            ..Gathered::default()
        };
        for (owner, message) in messages {
            let received = Received::read(&message)?;
            // A rank failed before the first part arrived.
            if received.missing > 0 && !mutant(Mutant::SecondPartsCountAsInputs) {
                gathered.is_complete = false;
                continue;
            }
            let is_same = received.fingerprint == fingerprint;
            gathered.is_complete &= is_same && received.kind != NOTHING;
            gathered.is_sampled |= received.kind != WHOLE;
            // The records of a rank that passed other arguments are no input of this rank's job. If that rank fails, the
            // survivors do not learn of the difference.
            if !is_same && !mutant(Mutant::GatheredOfOtherJobUsed) {
                continue;
            }
            match received.kind {
                WHOLE | FOR_HOLDERS => {
                    let run = Run::new(owner, 0, received.content);
                    gathered.inputs.push((owner, Block::of_sorted(vec![run])));
                }
                SAMPLES => gathered.samples.push((owner, received.content)),
                _ => {}
            }
        }
        Ok(gathered)
    }
}

/// Inserts a value of an owner into a short list in ascending order of owner. A sort takes some KB of code for each type.
pub(super) fn insert_by_owner<T>(list: &mut Vec<(Rank, T)>, owner: Rank, value: T) {
    let place = list.partition_point(|(other, _)| *other < owner);
    list.insert(place, (owner, value));
}

/// The messages of one rank.
struct Messages {
    input: Slice,
    /// For the ranks that do not hold copies of the input; None: they get the input, too.
    samples: Option<Slice>,
}

impl Contribution {
    /// Returns the contribution, or nothing if the input or what all ranks receive of it is too large.
    fn within(self, limit: usize, limit_for_all: usize) -> Contribution {
        let fits = match &self {
            Contribution::Nothing => true,
            Contribution::Whole(input) => input.len() <= limit_for_all,
            Contribution::Samples { input, samples } => {
                input.len() <= limit && samples.len() <= limit_for_all
            }
        };
        if fits { self } else { Contribution::Nothing }
    }

    fn messages(self, fingerprint: u64) -> Result<Messages> {
        let message = |mut content: Buffer, kind: u32| -> Result<Slice> {
            let size = content.len();
            content.append(&trailer(fingerprint, kind, size))?;
            Ok(content.into())
        };
        Ok(match self {
            Contribution::Nothing => Messages {
                input: message(Buffer::default(), NOTHING)?,
                samples: None,
            },
            Contribution::Whole(input) => Messages {
                input: message(input, WHOLE)?,
                samples: None,
            },
            Contribution::Samples { input, samples } => Messages {
                input: message(input, FOR_HOLDERS)?,
                samples: Some(message(samples, SAMPLES)?),
            },
        })
    }
}

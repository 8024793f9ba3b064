//! Jobs with inputs that are so small that each rank sends its whole input to every other rank.
//!
//! One message between each pair of ranks and one agreement are all of the communication. Every rank then has all
//! inputs, divides them in the same way, and makes the blocks of its nodes. This replaces the rounds of the
//! algorithm: the decisions that it logs are those of rounds with the same cuts, so that a block is recovered as
//! after these.
//!
//! A rank with an input that is too large, or that has a reason to run the rounds, states it in its message. As all
//! ranks read the same messages, all of them continue with the rounds, without an agreement. If a rank fails in the
//! meantime, some ranks may have read its message and others not. The agreement that follows fails, whether it is that
//! of this step or the first one of the rounds, and all survivors continue with the rounds. The inputs that have arrived
//! are copies then, which count as if they had been sent to protect them.
//!
//! Must never: use a message of a step that was interrupted for anything but a copy.

use std::collections::BTreeMap;

use super::algorithm::attempt;
use super::commit::{Verdict, agreed_error};
use super::decision::Decisions;
use super::job::{Finished, Job, JobParts, RoundResult};
use super::{Algorithm, Engine, Event, Phase, Subcube};
use crate::block::{Block, Run};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::VersionId;
use crate::transport::{Flow, Ticket};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::memory;

/// The greatest size in bytes of an input, and of the messages that arrive at the ranks of a processor if all inputs have
/// that size, with which the step is faster than rounds.
const MOST_OF_A_RANK: usize = 512 << 10;
const MOST_AT_A_PROCESSOR: usize = 4 << 20;

/// The end of a message, behind the records: the fingerprint of the job (u64), and whether the records are the whole
/// input (u64).
pub const TRAILER: usize = 16;

/// The inputs that a rank has received.
#[derive(Debug, Default)]
pub struct Gathered {
    /// The inputs with their owners, this rank's own one included; sorted, in ascending order of owner.
    inputs: Vec<(Rank, Block)>,
    /// They are the inputs of all survivors, of the same job, and all survivors know it unless one fails.
    is_complete: bool,
}

impl Gathered {
    /// Returns whether the job can be finished with these inputs ([`finish_gathered`]).
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

/// The decisions and the blocks of a job that was made of all inputs at once.
pub struct MadeAtOnce {
    /// The decision of each round, for the whole cube.
    pub decisions: Vec<Vec<u8>>,
    /// The final blocks, in the order of the nodes that were asked for.
    pub blocks: Vec<Block>,
}

/// The state of a job after the commit of a result that was made at once.
struct Committable {
    decisions: Vec<Decisions>,
    blocks: BTreeMap<Node, Block>,
    /// The inputs that this rank keeps, with their owners.
    inputs: Vec<(Rank, Block)>,
}

/// A message of the step, without its trailer.
struct Contribution {
    input: Option<Slice>,
    fingerprint: u64,
}

impl Contribution {
    fn read(message: Slice) -> Result<Contribution> {
        let undecodable = || Error::internal("a message with an input does not decode");
        let length = message.len().checked_sub(TRAILER).ok_or_else(undecodable)?;
        let (numbers, _) = message[length..].as_chunks::<8>();
        let [fingerprint, is_whole] = [numbers[0], numbers[1]].map(u64::from_le_bytes);
        Ok(Contribution {
            input: (is_whole == 1).then(|| message.part(0..length)),
            fingerprint,
        })
    }
}

impl Engine<'_> {
    /// The greatest size of an input that a rank can give to all others.
    pub fn gather_limit(&self) -> usize {
        // With a processor for each rank, half of the messages were best (8 and 16 ranks).
        let sharers = self.members.ranks_per_processor().max(2);
        let most = MOST_OF_A_RANK.min(MOST_AT_A_PROCESSOR / (self.members.ranks() * sharers));
        most.min(self.transport.eager_limit().saturating_sub(TRAILER))
    }

    /// Gives this rank's sorted input to all survivors, and receives theirs. `own`: None if this rank cannot give its
    /// input, because it is larger than [`Engine::gather_limit`], or invalid, or for another reason. `fingerprint`: of
    /// all that must be the same on all ranks. `refusal`: the error of this rank's arguments. Collective.
    ///
    /// # Errors
    /// `refusal`, or the error of another rank, if the step is interrupted and a rank has left it with one.
    pub fn gather(
        &mut self,
        own: Option<Buffer>,
        fingerprint: u64,
        refusal: Option<&Error>,
    ) -> Result<Gathered> {
        let limit = self.gather_limit();
        let own = own.filter(|own| own.len() <= limit);
        // The limit does not apply: a rank that refuses a message would leave the others waiting.
        let message = memory::for_messages(|| message(own, fingerprint))?;
        let me = self.members.me();
        let mut others: Vec<Rank> = self
            .members
            .survivors()
            .filter(|rank| *rank != me)
            .collect();
        others.sort_unstable_by_key(|rank| me.turn_of(*rank));
        let mut tickets = Vec::with_capacity(others.len());
        for rank in &others {
            let receive = || self.transport.receive(*rank, limit + TRAILER);
            tickets.push((*rank, memory::for_messages(receive)?));
        }
        for rank in &others {
            self.stats.bytes_sent += message.len() as u64;
            self.emit_message(me, *rank, message.len());
            self.transport.send(*rank, message.clone())?;
        }
        let is_interrupted = self.transport.settle()? == Flow::Interrupted;
        if is_interrupted {
            self.late_messages = tickets.iter().map(|(_, ticket)| *ticket).collect();
            // Other ranks may agree on the arguments already.
            let known = refusal.filter(|_| !mutant(Mutant::RefusalOfGatherForgotten));
            let verdict = self.commit(false, known)?;
            self.late_messages.clear();
            tickets.retain(|(_, ticket)| self.transport.is_complete(*ticket));
            if let Verdict::Failed(status) = verdict {
                tickets
                    .into_iter()
                    .for_each(|(_, ticket)| drop(self.transport.take(ticket)));
                return Err(agreed_error(status, known.cloned()));
            }
        }
        let gathered = self.read_gathered(message, fingerprint, tickets)?;
        Ok(Gathered {
            is_complete: gathered.is_complete
                && (!is_interrupted || mutant(Mutant::GatheredInSpiteOfFailure)),
            ..gathered
        })
    }

    fn read_gathered(
        &mut self,
        own: Slice,
        fingerprint: u64,
        tickets: Vec<(Rank, Ticket)>,
    ) -> Result<Gathered> {
        let me = self.members.me();
        let mut messages = vec![(me, own)];
        for (rank, ticket) in tickets {
            let message = self.transport.take(ticket);
            self.emit_message(rank, me, message.len());
            messages.push((rank, message));
        }
        messages.sort_unstable_by_key(|(rank, _)| *rank);
        let mut gathered = Gathered {
            inputs: Vec::with_capacity(messages.len()),
            is_complete: true,
        };
        for (owner, message) in messages {
            let contribution = Contribution::read(message)?;
            let is_same = contribution.fingerprint == fingerprint;
            gathered.is_complete &= is_same && contribution.input.is_some();
            // The records of a rank that passed other arguments are no input of this rank's job. If that rank fails, the
            // survivors do not learn of the difference.
            let is_copy = is_same || mutant(Mutant::GatheredOfOtherJobUsed);
            if let Some(data) = contribution.input.filter(|_| is_copy) {
                let run = Run::new(owner, 0, data);
                gathered.inputs.push((owner, Block::of_sorted(vec![run])));
            }
        }
        Ok(gathered)
    }
}

/// Appends the trailer to a rank's sorted records.
fn message(own: Option<Buffer>, fingerprint: u64) -> Result<Slice> {
    let is_whole = u64::from(own.is_some());
    let mut message = own.unwrap_or_default();
    message.append([fingerprint, is_whole].map(u64::to_le_bytes).as_flattened())?;
    Ok(message.into())
}

/// Finishes a job with the inputs of all ranks, which are in `gathered`. None: a rank failed, and all survivors
/// run the rounds. Collective, on all ranks with a complete [`Gathered`].
///
/// # Errors
/// As [`run_job`](super::run_job).
pub fn finish_gathered(
    engine: &mut Engine<'_>,
    algorithm: &dyn Algorithm,
    parts: JobParts<'_>,
    gathered: &Gathered,
    lost: &mut RankSet,
) -> Result<Option<Finished>> {
    let mut job = Job::new(engine, algorithm, parts);
    match job.make_at_once(gathered) {
        Ok(false) => Ok(None),
        Ok(true) => job.finish(Ok(()), lost).map(Some),
        Err(error) => job.finish(Err(error), lost).map(Some),
    }
}

impl Job<'_, '_> {
    /// Makes the blocks of this rank's nodes, and commits them. False: a rank failed.
    fn make_at_once(&mut self, gathered: &Gathered) -> Result<bool> {
        let algorithm = self.algorithm;
        let dimension = self.engine.members.cube().dimension();
        let subcube = Subcube::of(self.engine.members, Node(0), dimension);
        let nodes = self.engine.members.my_nodes();
        let inputs: Vec<&Block> = gathered.inputs.iter().map(|(_, input)| input).collect();
        let mut result = RoundResult::new();
        let made = self.engine.timed(Phase::Merge, |_| {
            attempt(algorithm, || {
                algorithm.make_at_once(&subcube, &inputs, &nodes)
            })
        });
        // After the commit nothing can be refused any more.
        let made = made.and_then(|made| self.committable(made, nodes, gathered));
        let made = result.check(made);
        let verdict = match mutant(Mutant::GatheredWithoutCommit) && made.is_some() {
            true => Verdict::Committed,
            false => self.engine.commit(result.complete, result.error.as_ref())?,
        };
        match (verdict, made) {
            (Verdict::Committed, Some(made)) => self.accept_at_once(made),
            (Verdict::Committed, None) => {
                return Err(Error::internal("a job without blocks was committed"));
            }
            (Verdict::Replay, _) => return Ok(false),
            (Verdict::Failed(status), _) => return Err(agreed_error(status, result.error)),
        }
        Ok(true)
    }

    /// Brings the blocks, and the inputs that a job of rounds would have kept, into the form in which they are kept.
    fn committable(
        &self,
        made: MadeAtOnce,
        nodes: Vec<Node>,
        gathered: &Gathered,
    ) -> Result<Committable> {
        let members = &self.engine.members;
        let (me, dimension) = (members.me(), members.cube().dimension());
        let decisions = made.decisions.iter().map(|decision| {
            // The limit does not apply to decisions, as in rounds.
            let decision = memory::without_limit(|| Slice::copy_of(decision))?;
            Ok(Decisions::of_cube(dimension, decision))
        });
        let is_kept = |owner: Rank| {
            let is_holder = owner == me || self.other_holders(owner).contains(&me);
            is_holder && !mutant(Mutant::GatheredInputsNotKept)
        };
        let inputs = gathered.inputs.iter();
        let inputs = inputs.filter(|(owner, _)| self.redundancy.retains && is_kept(*owner));
        let inputs = inputs.map(|(owner, input)| {
            let mut input = input.clone();
            for run in &mut input.runs {
                // Its buffer has room for the largest message.
                if run.data.len() < self.engine.gather_limit() / 2 {
                    run.data = Slice::copy_of(&run.data)?;
                }
            }
            Ok((*owner, input))
        });
        Ok(Committable {
            decisions: decisions.collect::<Result<_>>()?,
            inputs: inputs.collect::<Result<_>>()?,
            blocks: nodes.into_iter().zip(made.blocks).collect(),
        })
    }

    /// Makes the blocks the result of the job, after its commit.
    fn accept_at_once(&mut self, made: Committable) {
        // Only now: in the commit, ranks without all inputs report the same failures.
        self.engine.rounds = self.algorithm.rounds() + 1;
        self.engine.round = self.algorithm.rounds();
        self.progress.log = made.decisions;
        self.progress.blocks = made.blocks;
        self.progress.version =
            VersionId::new(self.algorithm.rounds(), self.engine.members.faulty());
        self.progress.membership = Some(self.engine.members.membership().clone());
        for (owner, input) in made.inputs {
            let stored = self
                .redundancy
                .store
                .put(VersionId::INPUT, owner.home(), &input);
            // The store is in memory, which takes any block.
            if stored.is_ok() {
                self.engine.stats.bytes_stored += input.bytes() as u64;
                self.redundancy.held.insert(owner);
            }
        }
        // The commit is that of all rounds.
        for round in 0..=self.algorithm.rounds() {
            self.engine.round = round;
            self.engine.stats.rounds += 1;
            self.engine.tell(Event::Round);
        }
    }
}

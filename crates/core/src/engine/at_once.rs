//! Jobs without rounds, of the inputs and samples that the ranks have given to each other ([`Engine::gather`]).
//!
//! If every rank has all inputs, it divides them and makes the blocks of its nodes. If some inputs are larger, all ranks
//! cut the order of the records at the same places by the samples, and every rank sends the pieces of its input to the
//! ranks of their nodes, with the sizes of all of them. One agreement commits the result. This replaces the rounds of the
//! algorithm: the decisions that are logged are those of rounds with the same cuts, so that a block is recovered as after
//! these.
//!
//! Must never: return a block before the commit.

use std::collections::BTreeMap;

use super::algorithm::{AtOnce, MadeAtOnce, attempt};
use super::commit::{CollectiveError, CollectiveResult, InStep, Verdict, agreed_error};
use super::decision::Decisions;
use super::gather::{Gathered, SIZE_BYTES, insert_by_owner};
use super::job::{Finished, Job, JobParts, RoundResult};
use super::{Engine, Event, Phase, RoundContext, Subcube};
use crate::block::Block;
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::VersionId;
use crate::transport::Flow;
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::memory;

/// The parts of an input that belong to the nodes.
#[derive(Default)]
struct Pieces {
    /// The size in bytes of the piece of each node of the cube.
    sizes: Vec<usize>,
    /// The pieces of some nodes, ascending.
    records: Vec<(Node, Slice)>,
}

impl Pieces {
    /// Returns a message with the pieces of these nodes, and the sizes of all pieces behind them.
    fn message(&self, nodes: &[Node]) -> Result<Slice> {
        let sizes = self.sizes.iter();
        let sizes = sizes.map(|size| (*size as u32).to_le_bytes());
        let sizes: Vec<[u8; SIZE_BYTES]> = sizes.collect();
        let records = self.records.iter().filter(|(node, _)| nodes.contains(node));
        let mut parts: Vec<&[u8]> = records.map(|(_, records)| &records[..]).collect();
        parts.push(sizes.as_flattened());
        Ok(Buffer::concatenated(&parts)?.into())
    }

    /// Reads a message with the pieces of `nodes`. `all`: the number of nodes of the cube.
    fn read(message: &Slice, nodes: &[Node], all: usize) -> Result<Pieces> {
        let undecodable = || Error::internal("a message with pieces does not decode");
        let length = message.len().checked_sub(all * SIZE_BYTES);
        let length = length.ok_or_else(undecodable)?;
        let (sizes, _) = message[length..].as_chunks::<SIZE_BYTES>();
        let sizes = sizes.iter().map(|size| u32::from_le_bytes(*size) as usize);
        let sizes: Vec<usize> = sizes.collect();
        let mut records = Vec::with_capacity(nodes.len());
        let mut start = 0;
        for node in nodes {
            let end = start + sizes[node.0 as usize];
            if end > length {
                return Err(undecodable());
            }
            records.push((*node, message.part(start..end)));
            start = end;
        }
        if start < length {
            return Err(undecodable());
        }
        Ok(Pieces { sizes, records })
    }
}

/// The inputs that a rank has, divided among the nodes.
struct Divided {
    /// The decision of the first round.
    cuts: Vec<u8>,
    /// All pieces of each input that the rank has, in ascending order of owner.
    pieces: Vec<(Rank, Pieces)>,
}

impl Divided {
    /// Divides the inputs that this rank has, at the cuts that follow from the samples of all inputs.
    fn of(algorithm: &dyn AtOnce, subcube: &Subcube, gathered: &Gathered) -> Result<Divided> {
        let mut samples = gathered.samples.clone();
        for (owner, input) in &gathered.inputs {
            let data = input.runs.first().map_or(&[][..], |run| &run.data);
            insert_by_owner(&mut samples, *owner, algorithm.samples(data)?.into());
        }
        let cuts = algorithm.cuts(subcube, &samples)?;
        let mut pieces = Vec::with_capacity(gathered.inputs.len());
        for (owner, input) in &gathered.inputs {
            // The first node exchanges with all others in their order.
            let split = algorithm.split(&RoundContext::new(1, subcube.first, &cuts), input)?;
            let mut of_input = Pieces::default();
            for part in [split.keep].into_iter().chain(split.give) {
                let run = part.runs.into_iter().next();
                let records = run.map(|run| run.data).unwrap_or_default();
                let node = Node(of_input.sizes.len() as u32);
                of_input.sizes.push(records.len());
                of_input.records.push((node, records));
            }
            pieces.push((*owner, of_input));
        }
        Ok(Divided { cuts, pieces })
    }

    /// Unites the pieces of each of these nodes, those of other ranks' inputs included.
    fn united(
        self,
        algorithm: &dyn AtOnce,
        received: Vec<(Rank, Pieces)>,
        nodes: &[Node],
    ) -> Result<MadeAtOnce> {
        let mut pieces = self.pieces;
        for (owner, of_other) in received {
            insert_by_owner(&mut pieces, owner, of_other);
        }
        let counted = match mutant(Mutant::SizesOfPiecesIgnored) {
            true => 1,
            false => pieces.len(),
        };
        let counted = pieces.iter().map(|(_, pieces)| pieces).take(counted);
        let nodes_in_all = pieces.first().map_or(0, |(_, pieces)| pieces.sizes.len());
        let sizes =
            (0..nodes_in_all).map(|place| counted.clone().map(|pieces| pieces.sizes[place]).sum());
        let sizes: Vec<usize> = sizes.collect();
        let layout = algorithm.layout(&sizes);
        let mut blocks = Vec::with_capacity(nodes.len());
        for node in nodes {
            let of_node = pieces.iter().flat_map(|(_, pieces)| &pieces.records);
            let of_node = of_node.filter(|(other, records)| other == node && !records.is_empty());
            let of_node: Vec<&[u8]> = of_node.map(|(_, records)| &records[..]).collect();
            let at = RoundContext::new(algorithm.rounds(), *node, &layout);
            blocks.push(algorithm.united(&at, &of_node)?);
        }
        Ok(MadeAtOnce {
            decisions: vec![self.cuts, layout],
            blocks,
        })
    }
}

/// The state of a job after the commit of a result that was made at once.
struct Committable {
    decisions: Vec<Decisions>,
    blocks: BTreeMap<Node, Block>,
    /// The inputs that this rank keeps, with their owners.
    inputs: Vec<(Rank, Block)>,
}

/// Finishes a job with the contributions of all ranks, which are in `gathered`. None: a rank failed, and all survivors
/// run the rounds. Collective, on all ranks with a complete [`Gathered`].
///
/// # Errors
/// As [`run_job`](super::run_job).
pub fn finish_gathered(
    engine: &mut Engine<'_>,
    algorithm: &dyn AtOnce,
    parts: JobParts<'_>,
    gathered: &Gathered,
    lost: &mut RankSet,
) -> CollectiveResult<Option<Finished>> {
    let mut job = Job::new(engine, algorithm, parts);
    match job.make_at_once(algorithm, gathered) {
        Ok(false) => Ok(None),
        Ok(true) => job.finish(Ok(()), lost).map(Some),
        Err(error) => job.finish(Err(error), lost).map(Some),
    }
}

impl Job<'_, '_> {
    /// Makes the blocks of this rank's nodes, and commits them. False: a rank failed.
    fn make_at_once(
        &mut self,
        algorithm: &dyn AtOnce,
        gathered: &Gathered,
    ) -> CollectiveResult<bool> {
        let dimension = self.engine.members.cube().dimension();
        let subcube = Subcube::of(self.engine.members, Node(0), dimension);
        let nodes = self.engine.members.my_nodes();
        let mut result = RoundResult::new();
        let made = if gathered.is_sampled {
            self.made_of_pieces(algorithm, (&subcube, &nodes), gathered, &mut result)?
        } else {
            let inputs: Vec<&Block> = gathered.inputs.iter().map(|(_, input)| input).collect();
            let made = self.engine.timed(Phase::Merge, |_| {
                attempt(algorithm, || algorithm.of_inputs(&subcube, &inputs, &nodes))
            });
            result.check(made)
        };
        // After the commit nothing can be refused any more.
        let made = made.and_then(|made| result.check(self.committable(made, nodes, gathered)));
        let verdict = match mutant(Mutant::GatheredWithoutCommit) && made.is_some() {
            true => Verdict::Committed,
            false => self.engine.commit(result.complete, result.error.as_ref())?,
        };
        match (verdict, made) {
            (Verdict::Committed, Some(made)) => self.accept_at_once(made),
            (Verdict::Committed, None) => {
                return Err(CollectiveError::internal(
                    "a job without blocks was committed",
                ));
            }
            (Verdict::Replay, _) => return Ok(false),
            (Verdict::Failed(status), _) => return Err(agreed_error(status, result.error)),
        }
        Ok(true)
    }

    /// Makes the blocks of this rank's nodes of pieces: the records that belong to them of each input. Each rank sends the
    /// pieces of its input to the ranks that do not have the input. None: this rank cannot make them.
    fn made_of_pieces(
        &mut self,
        algorithm: &dyn AtOnce,
        (subcube, nodes): (&Subcube, &[Node]),
        gathered: &Gathered,
        result: &mut RoundResult,
    ) -> CollectiveResult<Option<MadeAtOnce>> {
        let start = self.engine.transport.now();
        let divided = attempt(algorithm, || Divided::of(algorithm, subcube, gathered));
        let divided = result.check(divided);
        let received = self
            .exchange_pieces(algorithm, divided.as_ref(), subcube, gathered)
            .or_apart()?;
        self.engine.spent(Phase::Exchange, start);
        let (Some(divided), Some(received)) = (divided, received) else {
            result.complete = false;
            return Ok(None);
        };
        let made = self.engine.timed(Phase::Merge, |_| {
            attempt(algorithm, || divided.united(algorithm, received, nodes))
        });
        Ok(result.check(made))
    }

    /// Sends the pieces of this rank's input, and receives those of the inputs that it does not have. A rank with an error
    /// sends an empty message. None: a rank failed or had an error.
    fn exchange_pieces(
        &mut self,
        algorithm: &dyn AtOnce,
        divided: Option<&Divided>,
        subcube: &Subcube,
        gathered: &Gathered,
    ) -> Result<Option<Vec<(Rank, Pieces)>>> {
        let engine = &mut *self.engine;
        let me = engine.members.me();
        let mut tickets = Vec::with_capacity(gathered.samples.len());
        for (owner, samples) in &gathered.samples {
            // The limit does not apply, as to the inputs.
            let most = algorithm.most_bytes(samples)?.min(engine.gather_limit());
            let receive = || {
                engine
                    .transport
                    .receive(*owner, most + subcube.len() * SIZE_BYTES)
            };
            tickets.push((*owner, memory::for_messages(receive)?));
        }
        let own = divided.and_then(|divided| divided.pieces.iter().find(|(owner, _)| *owner == me));
        for rank in &gathered.without_own {
            let mut nodes = engine.members.nodes_of(*rank);
            if mutant(Mutant::PiecesOfOwnNodeSent) {
                nodes.retain(|node| *node == rank.home());
            }
            let message = own.map(|(_, own)| memory::for_messages(|| own.message(&nodes)));
            let message = message.transpose()?.unwrap_or_default();
            engine.stats.bytes_sent += message.len() as u64;
            engine.emit_message(me, *rank, message.len());
            engine.transport.send(*rank, message)?;
        }
        if engine.transport.settle()? == Flow::Interrupted {
            return Ok(None);
        }
        let nodes = engine.members.my_nodes();
        let mut received = Vec::with_capacity(tickets.len());
        for (owner, ticket) in tickets {
            let message = engine.transport.take(ticket);
            engine.emit_message(owner, me, message.len());
            if !message.is_empty() {
                received.push((owner, Pieces::read(&message, &nodes, subcube.len())?));
            }
        }
        Ok((received.len() == gathered.samples.len()).then_some(received))
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
        let room = self.engine.gather_limit();
        let inputs = inputs.map(|(owner, input)| {
            let mut input = input.clone();
            for run in &mut input.runs {
                // Its buffer has room for the largest message.
                if run.data.len() < room / 2 {
                    run.data = Slice::copy_of(&run.data)?;
                }
            }
            Ok((*owner, input))
        });
        // To collect a map sorts, which takes some KB of code for each type.
        let mut blocks = BTreeMap::new();
        blocks.extend(nodes.into_iter().zip(made.blocks));
        Ok(Committable {
            decisions: decisions.collect::<Result<_>>()?,
            inputs: inputs.collect::<Result<_>>()?,
            blocks,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Pieces {
        let records =
            [&b"aaaa"[..], b"", b"bb", b"cccccc"].map(|records| Slice::copy_of(records).unwrap());
        Pieces {
            sizes: records.iter().map(|records| records.len()).collect(),
            records: (0..).map(Node).zip(records).collect(),
        }
    }

    #[test]
    fn a_message_has_the_pieces_of_the_nodes_that_are_asked_for_and_all_sizes() {
        for nodes in [
            vec![],
            vec![Node(1)],
            vec![Node(0), Node(3)],
            vec![Node(0), Node(1), Node(2), Node(3)],
        ] {
            let message = pieces().message(&nodes).unwrap();
            let read = Pieces::read(&message, &nodes, 4).unwrap();
            assert_eq!(read.sizes, [4, 0, 2, 6]);
            let sent = pieces()
                .records
                .into_iter()
                .filter(|(node, _)| nodes.contains(node));
            let sent: Vec<(Node, Vec<u8>)> = sent
                .map(|(node, records)| (node, records.to_vec()))
                .collect();
            let got = read
                .records
                .iter()
                .map(|(node, records)| (*node, records.to_vec()));
            assert_eq!(got.collect::<Vec<_>>(), sent);
        }
    }

    #[test]
    fn a_message_with_other_pieces_is_refused() {
        let nodes = [Node(0), Node(3)];
        let message = pieces().message(&nodes).unwrap();
        assert!(Pieces::read(&message, &[Node(0), Node(1)], 4).is_err());
        assert!(Pieces::read(&message, &[Node(0), Node(2), Node(3)], 4).is_err());
        assert!(Pieces::read(&message.part(1..message.len()), &nodes, 4).is_err());
        assert!(Pieces::read(&message.part(0..15), &nodes, 4).is_err());
    }
}

//! The interface between algorithms on the virtual hypercube and the engine.

use std::sync::Arc;

use crate::block::Block;
use crate::members::{Members, Rank};
use crate::mutants::{Mutant, mutant};
use crate::vcube::{Node, NodeSet, first_of};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, caught_as};

/// The pairs of nodes between which a round moves records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// None.
    Nothing,
    /// Node v and node v xor 2^s, for this dimension s.
    Dimension(u32),
    /// Subcubes of dimension `high` consist of parts, which are subcubes of dimension `low`. Every node and one node
    /// of each other part of its subcube.
    ///
    /// Nodes that exchange have the same number within their parts if a number that depends on the part is added to it
    /// (xor). Without it, the keys of all ranks with equal lowest bits could meet at one node of a part, for example
    /// where ranks are the cells of a grid and keys depend on the column.
    Parts {
        /// The dimension of the parts.
        low: u32,
        /// The dimension of the subcubes.
        high: u32,
    },
}

/// Returns the number of a part that is added to places below `places` + 1: different numbers for different parts, if
/// there are as many places. Rows, columns and diagonals of a grid get numbers that look like random ones.
fn scattered(part: u32, places: u32) -> u32 {
    const FACTOR: u32 = 0x6b;
    let product = part.wrapping_mul(FACTOR) & places;
    (product ^ product >> 2).wrapping_mul(FACTOR) & places
}

impl Exchange {
    /// The exchange of every node of a cube of this dimension with every other.
    pub fn all(dimension: u32) -> Exchange {
        Exchange::Parts {
            low: 0,
            high: dimension,
        }
    }

    /// Returns the first node on the path from one node to another.
    pub fn next_stop(self, from: Node, to: Node) -> Node {
        match self {
            Exchange::Nothing => from,
            Exchange::Dimension(s) => {
                let bit = 1 << s;
                Node(from.0 & !bit | to.0 & bit)
            }
            Exchange::Parts { low, high } => Node(in_part(
                from.0,
                to.0 >> low & ((1 << (high - low)) - 1),
                (low, high),
            )),
        }
    }

    /// Returns the nodes that a node exchanges with, ascending.
    pub fn peers(self, node: Node) -> Vec<Node> {
        match self {
            Exchange::Nothing => Vec::new(),
            Exchange::Dimension(s) => vec![Node(node.0 ^ 1 << s)],
            Exchange::Parts { low, high } => {
                let parts = 0..1 << (high - low);
                let peers = parts.map(|part| Node(in_part(node.0, part, (low, high))));
                peers.filter(|peer| *peer != node).collect()
            }
        }
    }
}

/// Returns the node of a part that exchanges with `node`; `node` itself if it is in this part.
fn in_part(node: u32, part: u32, (low, high): (u32, u32)) -> u32 {
    let (parts, places) = ((1 << (high - low)) - 1, (1 << low) - 1);
    let own = node >> low & parts;
    let place = (node & places) ^ scattered(own, places) ^ scattered(part, places);
    node & !(parts << low | places) | part << low | place
}

/// The communication of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The nodes of a subcube of this dimension make a decision together before they act. None: the decision
    /// of the round before still holds; before the first decision it is empty.
    pub scope: Option<u32>,
    /// The pairs of nodes that exchange.
    pub exchange: Exchange,
}

/// The subcube in which a decision is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subcube {
    /// Its dimension.
    pub dimension: u32,
    /// Its smallest node.
    pub first: Node,
    /// The nodes of the cube that get no share of the records.
    faulty: Arc<NodeSet>,
    /// The share of the records that each of its fault-free nodes gets, in proportion to the others, as all ranks have
    /// agreed. Empty: all get the same.
    weights: Vec<u8>,
}

impl Subcube {
    /// Returns the subcube of this dimension that a node is in.
    pub fn of(members: &Members, node: Node, dimension: u32) -> Subcube {
        let faulty = Arc::clone(&members.membership().faulty);
        let mut subcube = Subcube::of_equal_nodes(node, dimension, faulty);
        if members.has_weights() {
            let weight = |node| members.weight(members.executor(node));
            subcube.weights = subcube.fault_free().map(weight).collect();
        }
        subcube
    }

    /// Returns the subcube of this dimension that a node is in, of which all nodes but the `faulty` ones get equal shares.
    pub fn of_equal_nodes(node: Node, dimension: u32, faulty: Arc<NodeSet>) -> Subcube {
        Subcube {
            dimension,
            first: first_of(node, dimension),
            faulty,
            weights: Vec::new(),
        }
    }

    /// Returns the nodes that get a share of the records, ascending: those with a home that executes them, and those of
    /// failed ranks from which a spare took over.
    pub fn fault_free(&self) -> impl Iterator<Item = Node> + Clone {
        let nodes = (self.first.0..).take(self.len()).map(Node);
        nodes.filter(|node| !self.faulty.contains(*node))
    }

    /// Returns each node's share of the subcube's records, in proportion to the others: its weight if it is
    /// fault-free, otherwise 0. If all fault-free nodes have weight 0, they get equal shares.
    pub fn shares(&self) -> Vec<usize> {
        // Without weights, too.
        let weightless = self.weights.iter().all(|weight| *weight == 0);
        let alike = weightless || mutant(Mutant::WeightsIgnored);
        let mut shares = vec![0; self.len()];
        for (index, node) in self.fault_free().enumerate() {
            let share = &mut shares[(node.0 - self.first.0) as usize];
            *share = if alike { 1 } else { self.weights[index].into() };
        }
        shares
    }

    /// Returns the fault-free node with the smallest identifier. If all are faulty it is the smallest node,
    /// which then has an executor outside of the subcube.
    pub fn root(&self) -> Node {
        self.fault_free().next().unwrap_or(self.first)
    }

    /// The number of its nodes.
    pub fn len(&self) -> usize {
        1 << self.dimension
    }

    /// Returns false: a subcube has at least one node.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// A node's place in a round, as the functions of [`Algorithm`] see it.
#[derive(Clone, Copy, Debug)]
pub struct RoundContext<'a> {
    /// The round, from 1 on.
    pub round: u32,
    /// The node.
    pub node: Node,
    /// The decision that holds for the node: for `propose` and `decide` that of the round before, which is
    /// empty in the first round; for `split` and `join` that of this round.
    pub decision: &'a [u8],
}

impl<'a> RoundContext<'a> {
    /// A node's place in a round.
    pub fn new(round: u32, node: Node, decision: &'a [u8]) -> RoundContext<'a> {
        RoundContext {
            round,
            node,
            decision,
        }
    }
}

/// The parts of a node's block: one that it keeps, and those that it sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The part that stays.
    pub keep: Block,
    /// The parts for each of the node's peers ([`Exchange::peers`]), in their order.
    pub give: Vec<Block>,
}

/// The contributions of nodes to a decision.
pub type Proposals = Vec<(Node, Slice)>;

/// An algorithm that is written over nodes and knows nothing about ranks and failures.
///
/// All ranks learn all decisions and keep them until the end. All functions are pure: no input or output, no
/// clock, no randomness. They may be called for any node, on any rank, more than once, and return the same
/// bytes. Rounds count from 1; version 0 of a block is the node's input, and version r is its state after
/// round r.
pub trait Algorithm {
    /// Returns the error of a function of the algorithm that has panicked with this error.
    fn error_of_panic(&self, error: Error) -> Error {
        error
    }

    /// The number of rounds.
    fn rounds(&self) -> u32;

    /// The number of rounds that earlier jobs have run; for events and injected failures.
    fn rounds_before(&self) -> u32 {
        0
    }

    /// The number of rounds of this job and of all before and after it.
    fn rounds_in_all(&self) -> u32 {
        self.rounds()
    }

    /// The communication of a round.
    fn step(&self, round: u32) -> Step;

    /// Brings a node's input into the form that the first round needs: its own, unless the algorithm says otherwise.
    /// Its digest does not change.
    fn prepare(&self, block: Block) -> Result<Block> {
        Ok(block)
    }

    /// As [`Algorithm::prepare`], for inputs that arrive one after the other: where there are threads, one
    /// input is prepared while the caller's thread fetches the next.
    fn prepare_each(&self, inputs: &mut dyn Iterator<Item = Result<Block>>) -> Vec<Result<Block>> {
        inputs.map(|input| self.prepare(input?)).collect()
    }

    /// Whether a node's input is not prepared before the first round, but divided by its decision ([`Algorithm::divided`]).
    /// This only saves time: another rank may prepare a copy of the same input, and the parts have the same records.
    fn waits(&self, _block: &Block) -> bool {
        false
    }

    /// Divides an input that has waited by the decision of the first round, so that [`Algorithm::split`] finds its parts.
    /// Its digest does not change.
    fn divided(&self, _at: &RoundContext<'_>, block: Block) -> Result<Block> {
        Ok(block)
    }

    /// Returns the contribution of the node to its subcube's decision; called in rounds that decide, as
    /// [`Algorithm::decide`]. The context's decision is that of the round before.
    fn propose(
        &self,
        _at: &RoundContext<'_>,
        _subcube: &Subcube,
        _block: &Block,
    ) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Returns fewer or smaller contributions to a decision that stand for these contributions of some nodes of a
    /// subcube, in ascending order of node. Called where many contributions meet on the way to the root; the context is
    /// that of [`Algorithm::decide`].
    fn unite_proposals(&self, _at: &RoundContext<'_>, proposals: Proposals) -> Result<Proposals> {
        Ok(proposals)
    }

    /// Returns the decision of a subcube, made at its root from the contributions of all its nodes, in
    /// ascending order of node, as [`Algorithm::unite_proposals`] has united them. The context's node is the subcube's
    /// first one, and its decision is that of the round before.
    fn decide(
        &self,
        _at: &RoundContext<'_>,
        _subcube: &Subcube,
        _proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// The greatest size of a contribution to this round, in bytes.
    fn proposal_limit(&self, _round: u32) -> usize {
        0
    }

    /// The greatest size of a decision of this round, in bytes.
    fn decision_limit(&self, _round: u32) -> usize {
        0
    }

    /// The greatest number of runs of a block.
    fn most_runs(&self) -> usize {
        1
    }

    /// The greatest number of runs of the records in a block that come from one input.
    fn most_runs_of_input(&self) -> usize {
        1
    }

    /// Whether a block of any version before the result consists of pieces of inputs, so that it can be
    /// recomputed from the inputs and the decisions and versions need not be stored.
    ///
    /// This holds if every run is split by itself, whatever the other runs are, joining unites runs before it
    /// merges them, and a round that exchanges between all nodes sends each record to the same node, wherever the
    /// rounds before have brought it.
    fn is_recomputable(&self) -> bool {
        false
    }

    /// Whether the last round moves no records and calls no function of the caller, so that a block of the result
    /// can be made again from the block before it and the last decision.
    fn finishes_locally(&self) -> bool {
        false
    }

    /// Returns the number of records of the result, if a decision of the last round states it; the caller
    /// learns it.
    fn promised(&self, _decision: &[u8]) -> Option<u64> {
        None
    }

    /// Returns the part that the node keeps and the parts that it sends; called in rounds that exchange.
    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split>;

    /// Returns blocks in a form that takes less memory or is faster to join: the same records in the same
    /// order, so that the round gives the same result on any rank.
    ///
    /// Called before the join of rounds that exchange nothing, with the blocks of all nodes that this rank
    /// executes, in ascending order; each returned block replaces the one in its position.
    fn condensed(&self, _round: u32, blocks: Vec<Block>) -> Result<Vec<Block>> {
        Ok(blocks)
    }

    /// Returns the node's new block: the part that it kept and the parts from its peers, united, both
    /// together, unless the algorithm says otherwise.
    ///
    /// In rounds that exchange nothing `keep` is the whole block and `got` is empty. An
    /// [`Error::corrupt`](ftsort_kernels::error::Error::corrupt) says that the algorithm's own checks have
    /// found wrong data: the round starts again from the store.
    fn join(&self, _at: &RoundContext<'_>, keep: Block, got: Block) -> Result<Block> {
        Ok(Block::unite([keep, got]))
    }
}

/// The decisions and the blocks of a job without rounds.
pub struct MadeAtOnce {
    /// The decision of each round, for the whole cube.
    pub decisions: Vec<Vec<u8>>,
    /// The final blocks, in the order of the nodes that were asked for.
    pub blocks: Vec<Block>,
}

/// An algorithm of two rounds, an exchange of all nodes and a layout of the result, that can do without them where inputs
/// are small: every rank makes the decisions by itself. They are such that the rounds would make the same blocks of these
/// inputs. Inputs are prepared; their owners, and all lists by owner, are in ascending order. `subcube`: the whole cube.
pub trait AtOnce: Algorithm {
    /// Returns the decisions, and the blocks of `nodes`, made of all inputs.
    fn of_inputs(&self, subcube: &Subcube, inputs: &[&Block], nodes: &[Node])
    -> Result<MadeAtOnce>;

    /// Returns samples of an input, by which it is divided with others.
    fn samples(&self, input: &[u8]) -> Result<Buffer>;

    /// Returns the decision of the first round, made of the samples of all inputs.
    fn cuts(&self, subcube: &Subcube, samples: &[(Rank, Slice)]) -> Result<Vec<u8>>;

    /// Returns a size in bytes that the input of these samples does not exceed.
    fn most_bytes(&self, samples: &[u8]) -> Result<usize>;

    /// Returns the decision of the last round for blocks of these sizes in bytes, of all nodes.
    fn layout(&self, sizes: &[usize]) -> Vec<u8>;

    /// Returns a node's block of the result, made of its pieces of each input. The context is that of the last round.
    fn united(&self, at: &RoundContext<'_>, pieces: &[&[u8]]) -> Result<Block>;
}

/// Runs a function of an algorithm, and returns a panic as an error on which ranks can agree.
pub fn attempt<T>(
    algorithm: &(impl Algorithm + ?Sized),
    function: impl FnOnce() -> Result<T>,
) -> Result<T> {
    caught_as(function, |error| algorithm.error_of_panic(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn next_stop_reaches_the_target_over_peers(from in 0_u32..64, to in 0_u32..64) {
            let (from, to) = (Node(from), Node(to));
            let mut at = from;
            for s in [2, 0, 1, 5, 4, 3] {
                let next = Exchange::Dimension(s).next_stop(at, to);
                prop_assert!(next == at || Exchange::Dimension(s).peers(at) == [next]);
                at = next;
            }
            prop_assert_eq!(at, to);
            prop_assert_eq!(Exchange::all(6).next_stop(from, to), to);
            prop_assert_eq!(Exchange::Nothing.next_stop(from, to), from);
            let peers = Exchange::all(6).peers(from);
            prop_assert!(peers.len() == 63 && !peers.contains(&from) && peers.is_sorted());
        }

        /// In each step a node sends one message to each other part, and as many arrive.
        #[test]
        fn every_part_has_one_peer_of_each_node(node in 0_u32..64, low in 0_u32..6, width in 1_u32..6) {
            let (node, high) = (Node(node), (low + width).min(6));
            let exchange = Exchange::Parts { low, high };
            let peers = exchange.peers(node);
            prop_assert!(peers.is_sorted() && !peers.contains(&node));
            let mut parts: Vec<u32> = peers.iter().map(|peer| peer.0 >> low).collect();
            parts.push(node.0 >> low);
            parts.sort_unstable();
            let first = node.0 >> high << (high - low);
            prop_assert_eq!(parts, (first..first + (1 << (high - low))).collect::<Vec<u32>>());
            for peer in peers {
                prop_assert!(exchange.peers(peer).contains(&node));
                prop_assert_eq!(exchange.next_stop(node, peer), peer);
            }
        }

        #[test]
        fn exchanges_of_parts_and_then_within_parts_reach_every_node(
            from in 0_u32..256,
            to in 0_u32..256,
            (first, second) in (0_u32..=8, 0_u32..=8),
        ) {
            let (from, to) = (Node(from), Node(to));
            let (high, low) = (first.max(second), first.min(second));
            let mut at = from;
            for (low, high) in [(high, 8), (low, high), (0, low)] {
                at = Exchange::Parts { low, high }.next_stop(at, to);
            }
            prop_assert_eq!(at, to);
        }
    }
}

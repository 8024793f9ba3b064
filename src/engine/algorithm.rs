//! What an algorithm on the virtual hypercube is, to the engine.

use crate::block::Block;
use crate::buffer::Slice;
use crate::error::Result;
use crate::vcube::Node;

/// What a round needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The nodes of a subcube of this dimension decide something together before they act.
    pub scope: u32,
    /// Node v exchanges with its neighbour v xor 2^(s-1); None: nothing is exchanged.
    pub exchange: Option<u32>,
}

/// The subcube in which a decision is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subcube {
    /// Its dimension.
    pub dimension: u32,
    /// The fault-free node with the smallest identifier in it.
    pub root: Node,
    /// The fault-free nodes in its lower half and in its upper half.
    pub fault_free: (usize, usize),
}

/// What a node keeps, and what it gives to its neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Stays.
    pub keep: Block,
    /// Goes.
    pub give: Block,
}

/// An algorithm written over nodes, which knows nothing of ranks and faults.
///
/// Decisions are told to all ranks, and kept until the end. All functions are pure: no input or
/// output, no clock, no randomness. They may be called for any node, on any rank, more than once, and
/// give the same bytes. Rounds count from 1; version 0 of a block is the node's input, and version r
/// is its state after round r.
pub trait Algorithm {
    /// How many rounds there are, the one that makes the result included.
    fn rounds(&self) -> u32;

    /// What this round needs.
    fn step(&self, round: u32) -> Step;

    /// Brings a node's input into the form in which the first round takes it.
    fn prepare(&self, block: Block) -> Result<Block>;

    /// What the node contributes to its subcube's decision.
    fn propose(&self, round: u32, node: Node, subcube: &Subcube, block: &Block) -> Result<Vec<u8>>;

    /// The decision, made by the subcube's root from the contributions of all its nodes, in
    /// ascending order of node.
    fn decide(&self, round: u32, subcube: &Subcube, proposals: &[(Node, Slice)])
    -> Result<Vec<u8>>;

    /// The greatest size of a contribution, in bytes.
    fn proposal_limit(&self) -> usize;

    /// The greatest size of a decision of this round, in bytes.
    fn decision_limit(&self, round: u32) -> usize;

    /// In rounds that exchange, every run is split by itself, whatever the other runs are, and joining
    /// unites runs. So a block of any version before the result consists of pieces of inputs, and
    /// can be made again from the inputs and the decisions: versions need not be stored.
    fn is_piecewise(&self) -> bool;

    /// What the node keeps and what it gives. Called in rounds that exchange.
    fn split(&self, round: u32, node: Node, block: &Block, decision: &[u8]) -> Result<Split>;

    /// The node's new block, from what it kept and what it got from its neighbour. In rounds that
    /// exchange nothing `keep` is the whole block and `got` is empty.
    fn join(
        &self,
        round: u32,
        node: Node,
        keep: Block,
        got: Block,
        decision: &[u8],
    ) -> Result<Block>;
}

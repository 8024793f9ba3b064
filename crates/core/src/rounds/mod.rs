//! Any hypercube algorithm made fault-tolerant: what the 2024 paper leaves to future work (Section 6: "an
//! API can make the task of programming a fault-tolerant version of an arbitrary algorithm easier").
//!
//! The caller says what a node does ([`Rounds`]): a state of any bytes, and pure functions that say what
//! a node sends to its neighbour in a round, and what its state is afterwards. [`Hypercube`] makes of it
//! an algorithm for the engine, which runs it for every node on whoever executes that, stores, commits
//! and recovers, as for sorts. States cannot be made again from inputs, so every round's are stored.
//!
//! | file | what |
//! |---|---|
//! | `hypercube` | the adapter to the engine |
//! | [`twice`] | finds functions that are not pure: each step is run twice |
//! | [`alone`] | plays all nodes in one place, without engine and messages: to compare with |
//!
//! Must never: look at who is alive, but for what a subcube that shares something is told.

pub mod alone;
mod hypercube;
#[cfg(test)]
mod tests;
pub mod twice;

pub use hypercube::Hypercube;

use crate::engine::Subcube;
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// What one round is like. Dimensions count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Round {
    /// Every node exchanges with its neighbour in this dimension, node xor 2^dimension. None: nobody
    /// sends anything.
    pub dimension: Option<u32>,
    /// The nodes that differ in the lowest so many bits alone share something before they act. None:
    /// what was shared last holds on.
    pub share: Option<u32>,
}

impl Round {
    /// An exchange along one dimension, in which nothing is shared.
    pub fn along(dimension: u32) -> Round {
        Round {
            dimension: Some(dimension),
            share: None,
        }
    }

    /// A round in which nobody sends anything.
    pub fn local() -> Round {
        Round {
            dimension: None,
            share: None,
        }
    }

    /// The same round, but that the nodes of a subcube of so many dimensions share something.
    pub fn sharing(self, share: u32) -> Round {
        Round {
            share: Some(share),
            ..self
        }
    }
}

/// A node's part of a round.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// Whose part it is.
    pub node: Node,
    /// How many nodes there are.
    pub nodes: usize,
    /// Which round, from 1 on.
    pub round: u32,
    /// Of how many.
    pub rounds: u32,
    /// See [`Round::dimension`].
    pub dimension: Option<u32>,
    /// The node's state before the round; empty where something is decided.
    pub state: &'a Slice,
    /// What the node's subcube shared last; empty before anything was. Where something is proposed or
    /// decided, what was shared before.
    pub shared: &'a [u8],
    /// The subcube that shares something, where something is proposed or decided.
    pub subcube: Option<&'a Subcube>,
}

impl Task<'_> {
    /// With whom the node exchanges.
    pub fn partner(&self) -> Option<Node> {
        let bit = self.dimension?;
        Some(Node(self.node.0 ^ 1 << bit))
    }

    /// Is the node in the upper half, along the dimension of the round?
    pub fn is_upper(&self) -> bool {
        self.dimension
            .is_some_and(|bit| self.node.0 >> bit & 1 == 1)
    }

    /// Is the node the root of the subcube that shares something: its fault-free node with the smallest
    /// number?
    pub fn is_root(&self) -> bool {
        self.subcube
            .is_some_and(|subcube| subcube.root() == self.node)
    }
}

/// The greatest size of what is shared, if an algorithm does not say otherwise.
pub const SHARE_LIMIT: usize = 4096;

/// One round for each dimension, from the highest down: as in the papers.
pub fn downwards(dimension: u32) -> Vec<Round> {
    (0..dimension).rev().map(Round::along).collect()
}

/// One round for each dimension, from the lowest up.
pub fn upwards(dimension: u32) -> Vec<Round> {
    (0..dimension).map(Round::along).collect()
}

/// An algorithm on the hypercube, as its caller writes it: what a node does, whoever executes it.
///
/// All functions are pure: no input or output, no clock, no randomness, nothing kept from one call to the
/// next. They may be called for any node, on any rank, any number of times, and give the same bytes.
/// An error ends the run on all ranks; give it [`Status::Callback`].
pub trait Rounds {
    /// The rounds, on a cube of this dimension.
    fn plan(&self, dimension: u32) -> Vec<Round> {
        downwards(dimension)
    }

    /// The state before the first round of a node whose home brings none: where the number of ranks is
    /// no power of two, or a rank was dead before it all began.
    fn init(&self, _node: Node) -> Result<Slice> {
        Ok(Buffer::default().into())
    }

    /// Is every node's first state that of [`Rounds::init`]? What ranks bring is not looked at then, and
    /// cannot be lost.
    fn inits_all(&self) -> bool {
        false
    }

    /// What a node contributes to what its subcube shares.
    fn propose(&self, _task: &Task<'_>) -> Result<Slice> {
        Ok(Buffer::default().into())
    }

    /// What a subcube shares, made from the contributions of all its nodes, in ascending order of node:
    /// that of its root, if not said otherwise. `task` is the root's.
    fn decide(&self, task: &Task<'_>, proposals: &[(Node, Slice)]) -> Result<Slice> {
        let root = proposals.iter().find(|(node, _)| *node == task.node);
        root.map(|(_, proposal)| proposal.clone())
            .ok_or_else(|| Error::new(Status::Internal, "the root proposed nothing"))
    }

    /// The most bytes of a contribution, and of what is shared.
    fn share_limit(&self) -> usize {
        SHARE_LIMIT
    }

    /// What a node sends to its partner: all of its state, if not said otherwise. Called in rounds
    /// that exchange.
    fn emit(&self, task: &Task<'_>) -> Result<Slice> {
        Ok(task.state.clone())
    }

    /// The node's state after the round. `inbox`: what its partner sent, empty in rounds that do not
    /// exchange.
    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice>;
}

/// Bytes that an algorithm's functions give.
pub fn bytes(bytes: &[u8]) -> Result<Slice> {
    Ok(Buffer::copy_of(bytes)?.into())
}

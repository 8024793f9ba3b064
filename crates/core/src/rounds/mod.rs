//! Fault tolerance for any hypercube algorithm, which the 2024 paper leaves to future work (Section 6: "an
//! API can make the task of programming a fault-tolerant version of an arbitrary algorithm easier").
//!
//! The user defines a node's part ([`Rounds`]): a state of arbitrary bytes, and pure functions that compute
//! the message to the partner in a round and the state after it. [`Hypercube`] turns this into an algorithm
//! for the engine, which runs each node's part on the node's executor, stores and commits the states, and
//! recovers them, as for sorts. A state cannot be recomputed from inputs, so the states of every round are
//! stored.
//!
//! | file | content |
//! |---|---|
//! | `hypercube` | the adapter to the engine |
//! | `continued` | the algorithm from a round on, with the states that were stored before it |
//! | [`purity`] | runs each function twice to find functions that are not pure |
//! | [`sequential`] | runs all nodes in one process, without engine and messages: the reference |
//!
//! Must never: depend on failures, except through the subcube that is passed to `propose` and `decide`.

mod continued;
mod hypercube;
pub mod purity;
pub mod sequential;
#[cfg(test)]
mod tests;

pub use continued::{Continued, Note};
pub use hypercube::Hypercube;
pub(crate) use hypercube::state_of;

use crate::engine::Subcube;
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result};

/// The communication of a round. Dimensions count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Round {
    /// The dimension along which every node exchanges with its partner, node xor 2^dimension. None: no node
    /// sends a message.
    pub dimension: Option<u32>,
    /// The dimension of the subcubes in which the nodes agree on a shared value before they act: nodes that
    /// differ only in this number of lowest bits. None: the last shared value still holds.
    pub share: Option<u32>,
}

impl Round {
    /// Returns a round with an exchange along one dimension and no new shared value.
    pub fn along(dimension: u32) -> Round {
        Round {
            dimension: Some(dimension),
            share: None,
        }
    }

    /// Returns a round in which no node sends a message.
    pub fn local() -> Round {
        Round {
            dimension: None,
            share: None,
        }
    }

    /// Returns the same round with a shared value in each subcube of `share` dimensions.
    pub fn sharing(self, share: u32) -> Round {
        Round {
            share: Some(share),
            ..self
        }
    }
}

/// A node's part in a round.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The node.
    pub node: Node,
    /// The number of nodes.
    pub nodes: usize,
    /// The round, from 1 on.
    pub round: u32,
    /// The number of rounds.
    pub rounds: u32,
    /// See [`Round::dimension`].
    pub dimension: Option<u32>,
    /// The node's state before the round; empty in `decide`.
    pub state: &'a Slice,
    /// The last shared value of the node's subcube, empty before the first one. In `propose` and `decide` it
    /// is that of an earlier round; in `decide` of the subcube of the first node, whether or not that is the root.
    pub shared: &'a [u8],
    /// The subcube that decides, in `propose` and `decide`.
    pub subcube: Option<&'a Subcube>,
}

impl Task<'_> {
    /// Returns the node with which this node exchanges. None if the round exchanges nothing.
    pub fn partner(&self) -> Option<Node> {
        let bit = self.dimension?;
        Some(Node(self.node.0 ^ 1 << bit))
    }

    /// Whether the node's bit in the dimension of the round is 1.
    pub fn is_upper(&self) -> bool {
        self.dimension
            .is_some_and(|bit| self.node.0 >> bit & 1 == 1)
    }

    /// Whether the node is the root of the deciding subcube: its fault-free node with the smallest
    /// identifier.
    pub fn is_root(&self) -> bool {
        self.subcube
            .is_some_and(|subcube| subcube.root() == self.node)
    }
}

/// The default limit of a shared value, in bytes.
pub const SHARE_LIMIT: usize = 4096;

/// Returns one round for each dimension, from the highest down, as in the papers.
pub fn downwards(dimension: u32) -> Vec<Round> {
    (0..dimension).rev().map(Round::along).collect()
}

/// Returns one round for each dimension, from the lowest up.
pub fn upwards(dimension: u32) -> Vec<Round> {
    (0..dimension).map(Round::along).collect()
}

/// A user's algorithm on the hypercube: the part of a node, independent of the rank that executes it.
///
/// All functions are pure: no input or output, no clock, no randomness, and no state between calls. They may
/// be called for any node, on any rank, any number of times, and return the same bytes. An error, which
/// should have [`Status::Callback`](ftsort_kernels::error::Status), ends the run on all ranks.
pub trait Rounds {
    /// Returns the rounds on a cube of this dimension.
    fn plan(&self, dimension: u32) -> Vec<Round> {
        downwards(dimension)
    }

    /// Returns the state before the first round of a node without a state from its home rank, because the
    /// number of ranks is not a power of two or the rank failed before the start.
    fn init(&self, _node: Node) -> Result<Slice> {
        Ok(Slice::default())
    }

    /// Whether [`Rounds::init`] provides the first state of every node. The inputs of ranks are then ignored,
    /// and cannot be lost.
    fn inits_all(&self) -> bool {
        false
    }

    /// Returns a node's proposal for the shared value of its subcube.
    fn propose(&self, _task: &Task<'_>) -> Result<Slice> {
        Ok(Slice::default())
    }

    /// Returns the shared value of a subcube, from the proposals of all its nodes in ascending order of node.
    /// The default is the root's proposal. `task` is the root's.
    fn decide(&self, task: &Task<'_>, proposals: &[(Node, Slice)]) -> Result<Slice> {
        let root = proposals.iter().find(|(node, _)| *node == task.node);
        root.map(|(_, proposal)| proposal.clone())
            .ok_or_else(|| Error::internal("the root of a subcube has made no proposal"))
    }

    /// Returns the greatest size of a proposal and of a shared value, in bytes.
    fn share_limit(&self) -> usize {
        SHARE_LIMIT
    }

    /// Returns the message of a node to its partner, in rounds that exchange. The default is the whole state.
    fn emit(&self, task: &Task<'_>) -> Result<Slice> {
        Ok(task.state.clone())
    }

    /// Returns the node's state after the round. `inbox` is the partner's message, empty in rounds that
    /// exchange nothing.
    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice>;
}

/// Copies bytes into a slice, which the functions of an algorithm return.
pub fn bytes(bytes: &[u8]) -> Result<Slice> {
    Slice::copy_of(bytes)
}

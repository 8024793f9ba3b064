//! A snapshot of the membership, which takes little memory where most nodes are executed by their homes.
//!
//! Must never: change after it was made.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Rank, RankSet};
use crate::vcube::{Node, NodeSet};

/// A snapshot of the membership: the executor of each node, and the ranks that could keep copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The nodes that get no share of the records: their home has failed and no spare took over, or executes
    /// nothing, or is a spare; and the nodes without a home.
    pub faulty: Arc<NodeSet>,
    /// The homes of the idle spares.
    pub idle: Arc<NodeSet>,
    /// The homes of the live ranks that a placement policy excludes, which may hold copies.
    pub reserve: Arc<NodeSet>,
    /// The ranks that execute nodes.
    pub(super) executing: Arc<RankSet>,
    /// The number of nodes.
    pub(super) nodes: u32,
    /// The executors of the nodes that are not executed by their home.
    pub(super) moved: Arc<BTreeMap<Node, Rank>>,
}

impl Membership {
    /// Returns the rank that executes a node; None for a node that the cube does not have.
    pub fn executor(&self, node: Node) -> Option<Rank> {
        let home = (node.0 < self.nodes).then_some(Rank(node.0))?;
        Some(self.moved.get(&node).copied().unwrap_or(home))
    }

    /// Returns whether the rank executes nodes.
    pub fn is_executing(&self, rank: Rank) -> bool {
        self.executing.contains(rank)
    }

    /// Returns the nodes that a rank executes, ascending.
    pub fn nodes_of(&self, rank: Rank) -> Vec<Node> {
        let home = Some(rank.home()).filter(|node| self.executor(*node) == Some(rank));
        let moved = self.moved.iter().filter(|(_, executor)| **executor == rank);
        let mut nodes: Vec<Node> = home
            .into_iter()
            .chain(moved.map(|(node, _)| *node))
            .collect();
        nodes.sort_unstable();
        nodes
    }
}

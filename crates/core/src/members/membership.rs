//! A snapshot of the membership, which takes little memory where most nodes are executed by their homes.
//!
//! Must never: change after it was made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Rank, RankSet};
use crate::vcube::{Node, NodeSet, VCube};

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

    /// Returns the paper's partner of a node in a dimension: a node of its cluster with the executor of `node` xor
    /// 2^`dimension`; None if no node of the cluster is fault-free.
    pub fn partner(&self, cube: &VCube, node: Node, dimension: u32) -> Option<Node> {
        let neighbour = cube.neighbour(node, dimension);
        let executor = self.executor(neighbour)?;
        // The node of a spare that took over has no share, and counts as faulty.
        let is_in_cluster = (executor.0 ^ neighbour.0) >> dimension == 0;
        if is_in_cluster {
            return Some(executor.home());
        }
        // A spare can take over the node of another one, too.
        let partner = cube.partner(node, dimension, &self.faulty)?;
        Some(match self.executor(partner) == Some(executor) {
            true => partner,
            false => neighbour,
        })
    }

    /// Returns the ranks that execute the nodes of a subcube, and the greatest number of these nodes that one of them
    /// executes.
    pub fn executors_of(&self, first: Node, dimension: u32) -> (RankSet, usize) {
        let end = Node(first.0 + (1 << dimension));
        let mut ranks = RankSet::clone(&self.executing);
        ranks.retain_range(first.0 as usize..end.0 as usize);
        let moved = self.moved.range(first..end);
        (moved.clone()).for_each(|(node, _)| ranks.remove(Rank(node.0)));
        let mut nodes: BTreeMap<Rank, usize> = BTreeMap::new();
        for (_, rank) in moved {
            let at_home = || usize::from(ranks.contains(*rank));
            *nodes.entry(*rank).or_insert_with(at_home) += 1;
        }
        nodes.keys().for_each(|rank| {
            ranks.insert(*rank);
        });
        (ranks, nodes.into_values().max().unwrap_or(1))
    }

    /// The nodes that are not executed by their home, ascending.
    pub fn moved_nodes(&self) -> impl Iterator<Item = Node> + '_ {
        self.moved.keys().copied()
    }

    /// Returns the nodes that have another executor than in an earlier snapshot, ascending.
    pub fn moved_since(&self, before: &Membership) -> impl Iterator<Item = Node> {
        let nodes: BTreeSet<Node> = before.moved_nodes().chain(self.moved_nodes()).collect();
        nodes
            .into_iter()
            .filter(|node| self.executor(*node) != before.executor(*node))
    }

    /// The ranks that execute nodes.
    pub fn executing(&self) -> &RankSet {
        &self.executing
    }

    /// Returns whether the rank executes nodes.
    pub fn is_executing(&self, rank: Rank) -> bool {
        self.executing.contains(rank)
    }

    /// Returns the nodes that a rank executes, ascending.
    pub fn nodes_of(&self, rank: Rank) -> Vec<Node> {
        let home = Some(rank.home()).filter(|node| self.executor(*node) == Some(rank));
        let moved = self.moved.iter().filter(|(_, executor)| **executor == rank);
        let mut nodes: Vec<Node> = moved.map(|(node, _)| *node).collect();
        if let Some(home) = home {
            nodes.insert(nodes.partition_point(|node| *node < home), home);
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::super::Members;
    use super::*;
    use proptest::prelude::*;

    fn set(ranks: usize, some: &[u32]) -> RankSet {
        let some = some.iter().map(|rank| Rank(*rank));
        RankSet::of(
            ranks,
            some.filter(|rank| rank.0 > 0 && rank.index() < ranks),
        )
    }

    /// Weights end with the monitor that decided on them.
    #[test]
    fn readmitted_ranks_have_equal_weights() {
        let mut members = Members::new(Rank(0), 2);
        members.weigh(&[1, 16]);
        members.exclude(&set(2, &[1]));
        members.readmit_all();
        assert!(!members.has_weights() && members.executing().contains(Rank(1)));
    }

    proptest! {
        /// The figures that follow from the moved nodes are those of a search in all nodes.
        #[test]
        fn executors_and_moves_are_those_of_all_nodes(
            ranks in 2_usize..70,
            spares in 0_usize..5,
            failed in prop::collection::vec(prop::collection::vec(0_u32..70, 0..20), 2),
            excluded in prop::collection::vec(0_u32..70, 0..6),
            (node, dimension) in (0_u32..70, 0_u32..7),
        ) {
            let mut members = Members::new(Rank(0), ranks);
            members.set_spares(spares.min(ranks - 1));
            members.absorb(&set(ranks, &failed[0]));
            members.exclude(&set(ranks, &excluded));
            let before = members.membership().clone();
            members.absorb(&set(ranks, &failed[1]));
            let now = members.membership();
            let moved = members.cube().nodes();
            let moved = moved.filter(|node| now.executor(*node) != before.executor(*node));
            prop_assert!(now.moved_since(&before).eq(moved));
            let dimension = dimension.min(members.cube().dimension());
            let nodes = members.cube().subcube(Node(node % members.cube().len() as u32), dimension);
            let mut counts: BTreeMap<Rank, usize> = BTreeMap::new();
            let nodes: Vec<Node> = nodes.collect();
            for node in &nodes {
                *counts.entry(members.executor(*node)).or_default() += 1;
            }
            for (node, s) in members.cube().nodes().flat_map(|node| (0..members.cube().dimension()).map(move |s| (node, s))) {
                let partner = now.partner(members.cube(), node, s);
                if let Some(partner) = partner {
                    prop_assert_eq!(now.executor(partner), now.executor(members.cube().neighbour(node, s)));
                }
                if spares == 0 {
                    prop_assert_eq!(partner, members.cube().partner(node, s, &now.faulty));
                }
            }
            let (found, most) = now.executors_of(nodes[0], dimension);
            prop_assert!(found.iter().eq(counts.keys().copied()));
            prop_assert_eq!(Some(&most), counts.values().max());
        }
    }
}

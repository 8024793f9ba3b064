//! The generalised communication tree of the 1996 paper, Section 2.2: any node as the sink, any order of the
//! dimensions, and the role of each node at each stage.
//!
//! In stage i all data crosses dimension d_i, towards the sink's side of it. A node sends once, at the stage
//! of the first dimension in which it differs from the sink. Must never: depend on faults.

use crate::tree::faults::{Link, along};
use crate::vcube::Node;

/// A communication tree: a binomial tree within a hypercube, rooted at the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    sink: Node,
    /// The dimensions d_0, d_1, ..., d_(n-1).
    order: Vec<u32>,
}

impl Tree {
    /// Creates the tree with this sink in which data crosses the dimensions in this order. None if the order
    /// is not a permutation of 0..n, or the n-dimensional hypercube has no such node.
    pub fn new(sink: Node, order: Vec<u32>) -> Option<Tree> {
        let n = order.len() as u32;
        let mut sorted = order.clone();
        sorted.sort_unstable();
        let complete = sorted.into_iter().eq(0..n);
        (complete && n < 32 && sink.0 < 1 << n).then_some(Tree { sink, order })
    }

    /// Creates the tree that is used if nothing is faulty: sink 0 and the order (0, 1, ..., n-1).
    pub fn simple(dimensions: u32) -> Tree {
        Tree {
            sink: Node(0),
            order: (0..dimensions).collect(),
        }
    }

    /// The node to which the data goes.
    pub fn sink(&self) -> Node {
        self.sink
    }

    /// The dimensions d_0, d_1, ..., d_(n-1) that data crosses at each stage.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// The number of dimensions, which is also the number of stages: the paper's n.
    pub fn dimensions(&self) -> u32 {
        self.order.len() as u32
    }

    /// Returns d_i.
    pub fn dimension_at(&self, stage: u32) -> u32 {
        self.order[stage as usize]
    }

    /// Returns the stage at which a node sends, the only one at which it is active. None for the sink.
    pub fn stage_of(&self, node: Node) -> Option<u32> {
        let apart = node.0 ^ self.sink.0;
        let stage = self.order.iter().position(|d| apart >> d & 1 == 1);
        stage.map(|stage| stage as u32)
    }

    /// Returns the node to which a node sends. None for the sink.
    pub fn parent(&self, node: Node) -> Option<Node> {
        let stage = self.stage_of(node)?;
        Some(along(node, self.dimension_at(stage)))
    }

    /// Returns A_i: the nodes that send at a stage, ascending.
    pub fn active(&self, stage: u32) -> impl Iterator<Item = Node> + '_ {
        let nodes = (0..1 << self.dimensions()).map(Node);
        nodes.filter(move |node| self.stage_of(*node) == Some(stage))
    }

    /// Returns AN_i(v): the neighbours of an active node that are active at the same stage, in the order
    /// d_(i+1), ..., d_(n-1) in which algorithm FTTC uses them. Formula (4).
    pub fn active_neighbours(&self, node: Node, stage: u32) -> impl Iterator<Item = Node> + '_ {
        let later = self.order[stage as usize + 1..].iter();
        later.map(move |dimension| along(node, *dimension))
    }

    /// Returns the links that the tree uses, in the order of the nodes that send over them.
    pub fn links(&self) -> impl Iterator<Item = Link> + '_ {
        let nodes = (0..1 << self.dimensions()).map(Node);
        nodes.filter_map(|node| Link::between(node, self.parent(node)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::testing::any_tree;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The role of a node at a stage.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Role {
        /// The node sends.
        Active,
        /// The node receives.
        Passive,
        /// The node has sent at an earlier stage.
        Idle,
    }

    /// The paper's rules (1), (2) and (3), with r = sink xor 1^n.
    fn role(tree: &Tree, node: Node, stage: u32) -> Role {
        let r = !tree.sink.0;
        let agrees = |dimension: &u32| (node.0 ^ r) >> dimension & 1 == 0;
        match &tree.order[..=stage as usize] {
            [before @ .., _] if before.iter().any(agrees) => Role::Idle,
            [.., now] if agrees(now) => Role::Active,
            _ => Role::Passive,
        }
    }

    /// The tree of Figure 3b.
    fn figure_3b() -> Tree {
        Tree::new(Node(0b010), vec![1, 2, 0]).expect("a tree")
    }

    #[test]
    fn example_1_node_110_of_figure_3b() {
        let roles: Vec<Role> = (0..3)
            .map(|stage| role(&figure_3b(), Node(0b110), stage))
            .collect();
        assert_eq!(roles, [Role::Passive, Role::Active, Role::Idle]);
    }

    #[test]
    fn figure_3b_data_crosses_dimensions_1_then_2_then_0() {
        let tree = figure_3b();
        let senders = |stage| tree.active(stage).map(|node| node.0).collect::<Vec<_>>();
        assert_eq!(senders(0), [0b000, 0b001, 0b100, 0b101]);
        assert_eq!(senders(1), [0b110, 0b111]);
        assert_eq!(senders(2), [0b011]);
        assert_eq!(tree.parent(Node(0b011)), Some(tree.sink()));
        assert_eq!(tree.parent(Node(0b110)), Some(Node(0b010)));
    }

    #[test]
    fn figure_1_node_0001_sends_to_node_0000_at_stage_0() {
        let tree = Tree::simple(4);
        assert_eq!(role(&tree, Node(1), 0), Role::Active);
        for child in [1, 2, 4, 8] {
            assert_eq!(tree.parent(Node(child)), Some(Node(0)));
        }
    }

    #[test]
    fn rejects_invalid_orders_and_sinks() {
        assert_eq!(Tree::new(Node(0), vec![0, 0, 1]), None);
        assert_eq!(Tree::new(Node(0), vec![1, 2, 3]), None);
        assert_eq!(Tree::new(Node(8), vec![0, 1, 2]), None);
        assert!(Tree::new(Node(0), vec![]).is_some());
    }

    proptest! {
        #[test]
        fn roles_stages_and_parents_agree(tree in any_tree(0..=6)) {
            for node in (0..1_u32 << tree.dimensions()).map(Node) {
                for stage in 0..tree.dimensions() {
                    let expected = match tree.stage_of(node) {
                        Some(own) if own < stage => Role::Idle,
                        Some(own) if own == stage => Role::Active,
                        _ => Role::Passive,
                    };
                    prop_assert_eq!(role(&tree, node, stage), expected);
                    if expected == Role::Active {
                        prop_assert_eq!(tree.parent(node).map(|to| role(&tree, to, stage)), Some(Role::Passive));
                    }
                }
            }
        }

        #[test]
        fn property_2_a_tree_uses_as_many_links_as_there_are_other_nodes(tree in any_tree(0..=7)) {
            let links: BTreeSet<Link> = tree.links().collect();
            prop_assert_eq!(links.len(), (1 << tree.dimensions()) - 1);
        }

        #[test]
        fn theorems_1_and_2_numbers_of_active_nodes_and_neighbours(tree in any_tree(1..=7)) {
            for stage in 0..tree.dimensions() {
                let rest = tree.dimensions() - stage - 1;
                let active: BTreeSet<Node> = tree.active(stage).collect();
                prop_assert_eq!(active.len(), 1 << rest);
                let nodes = (0..1 << tree.dimensions()).map(Node);
                let passive = nodes.filter(|node| role(&tree, *node, stage) == Role::Passive);
                prop_assert_eq!(passive.count(), 1 << rest);
                for node in &active {
                    let neighbours: Vec<Node> = tree.active_neighbours(*node, stage).collect();
                    let all = active.iter().filter(|other| Link::between(*node, **other).is_some());
                    prop_assert_eq!(neighbours.len(), rest as usize);
                    prop_assert_eq!(all.count(), rest as usize);
                    prop_assert!(neighbours.iter().all(|other| active.contains(other)));
                }
            }
        }
    }
}

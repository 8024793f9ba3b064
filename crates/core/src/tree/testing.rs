//! Fault patterns and trees for the tests of this module: the paper's figures, and random ones.
//!
//! Must never: be used outside of tests and models.

use proptest::prelude::*;
use std::ops::RangeInclusive;

use crate::tree::faults::{Faults, Link};
use crate::tree::shape::Tree;
use crate::vcube::Node;

/// Returns a cube with these faulty links and nodes.
pub fn faults(dimensions: u32, links: &[(u32, u32)], nodes: &[u32]) -> Faults {
    let mut faults = Faults::none(dimensions);
    for (one, other) in links {
        let link = Link::between(Node(*one), Node(*other));
        faults.add_link(link.expect("neighbours"));
    }
    nodes.iter().for_each(|node| faults.add_node(Node(*node)));
    faults
}

/// Returns the smallest cube with a node for each rank. The nodes without a home rank are faulty.
pub fn of_ranks(ranks: usize) -> Faults {
    let nodes = ranks.next_power_of_two();
    let homeless: Vec<u32> = (ranks as u32..nodes as u32).collect();
    faults(nodes.trailing_zeros(), &[], &homeless)
}

/// Returns Figure 9. The text gives FAULT(101) = <011> and, in Example 2, all costs; only these links agree
/// with them.
pub fn figure_9() -> Faults {
    let links = [(0b100, 0b101), (0b101, 0b111), (0b001, 0b011)];
    faults(3, &links, &[])
}

/// Returns Figure 14, of Example 3.
pub fn figure_14() -> Faults {
    faults(4, &[(0b1011, 0b1010), (0b1011, 0b1001)], &[])
}

/// Returns Figure 16, of Example 4.
pub fn figure_16() -> Faults {
    faults(3, &[(0b100, 0b110), (0b100, 0b000)], &[0b111])
}

/// Draws faulty links, from none to all, and faulty nodes, rarely many.
pub fn pattern(dimensions: RangeInclusive<u32>) -> impl Strategy<Value = Faults> {
    random(dimensions, 0.3)
}

/// Draws faulty links, often around half as many as there are nodes, and no faulty nodes.
pub fn links_only(dimensions: RangeInclusive<u32>) -> impl Strategy<Value = Faults> {
    random(dimensions, 0.0)
}

fn random(dimensions: RangeInclusive<u32>, nodes: f64) -> impl Strategy<Value = Faults> {
    let amounts = (dimensions, 0.0..1.0_f64, 0.0..=nodes);
    amounts.prop_flat_map(|(n, links, nodes)| {
        // Squared, so that there are usually few and sometimes nearly all.
        let link = prop::bool::weighted((links * links).min(0.9));
        let links = prop::collection::vec(link, n as usize * (1 << n));
        let nodes = prop::collection::vec(prop::bool::weighted(nodes), 1 << n);
        (Just(n), links, nodes).prop_map(|(n, links, nodes)| drawn(n, &links, &nodes))
    })
}

fn drawn(n: u32, links: &[bool], nodes: &[bool]) -> Faults {
    let mut faults = Faults::none(n);
    let chosen = |flags: &[bool]| -> Vec<u32> {
        let indices = (0..).zip(flags).filter(|(_, flag)| **flag);
        indices.map(|(index, _)| index).collect()
    };
    for index in chosen(links) {
        let link = Link::of(Node(index / n), index % n);
        // Each link is drawn twice, once from each end.
        if link.ends().0 == Node(index / n) {
            faults.add_link(link);
        }
    }
    chosen(nodes)
        .into_iter()
        .for_each(|node| faults.add_node(Node(node)));
    faults
}

/// Draws a tree of a cube of one of these dimensions.
pub fn any_tree(dimensions: RangeInclusive<u32>) -> impl Strategy<Value = Tree> {
    dimensions.prop_flat_map(tree_of)
}

/// Draws a tree of a cube.
pub fn tree_of(dimensions: u32) -> impl Strategy<Value = Tree> {
    let order = Just((0..dimensions).collect::<Vec<u32>>()).prop_shuffle();
    let sink = 0..1_u32 << dimensions;
    (sink, order).prop_map(|(sink, order)| Tree::new(Node(sink), order).expect("a tree"))
}

/// Draws a fault pattern and any tree of the cube. The tree's sink may be faulty.
pub fn cases(dimensions: RangeInclusive<u32>) -> impl Strategy<Value = (Faults, Tree)> {
    let with_tree = |faults: Faults| {
        let tree = tree_of(faults.dimensions());
        (Just(faults), tree)
    };
    pattern(dimensions).prop_flat_map(with_tree)
}

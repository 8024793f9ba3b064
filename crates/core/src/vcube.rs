//! The virtual hypercube (VCube): clusters, covers, executors and partners.
//!
//! Follows Section 3 of the 2024 paper (Duarte, Bona and Ruoso 2014). Pure topology over nodes and sets of
//! faulty nodes; it must never depend on ranks, messages or data. Dimensions count from 0.

use std::fmt;

use crate::set::{Set, SetMember};

/// A vertex of the virtual hypercube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

impl fmt::Display for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl SetMember for Node {
    fn of_number(number: usize) -> Node {
        Node(number as u32)
    }

    fn number(self) -> usize {
        self.0 as usize
    }
}

/// A set of nodes of one cube, in ascending order. Its length is the number of nodes of the cube.
pub type NodeSet = Set<Node>;

/// Returns the nodes of the cluster of node i in dimension s, in the order of the paper's Table 1.
///
/// The paper counts dimensions from 1 and defines c(i,s) = (i xor 2^(s-1), c(i xor 2^(s-1), 1), ...,
/// c(i xor 2^(s-1), s-1)), which is i xor 2^(s-1) xor e for e = 0, 1, ..., 2^(s-1) - 1. Here dimensions
/// count from 0: `cluster(i, s)` is the paper's c(i,s+1).
pub fn cluster(i: Node, s: u32) -> impl Iterator<Item = Node> {
    let size = 1_u32 << s;
    (0..size).map(move |e| Node(i.0 ^ size ^ e))
}

/// Returns the smallest node of the subcube of `s` dimensions that v is in.
pub fn first_of(v: Node, s: u32) -> Node {
    Node(v.0 >> s << s)
}

/// A hypercube of virtual nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VCube {
    dimension: u32,
}

impl VCube {
    /// The smallest cube with a node for each of `ranks` processes.
    pub fn for_ranks(ranks: usize) -> VCube {
        VCube {
            dimension: ranks.max(1).next_power_of_two().trailing_zeros(),
        }
    }

    /// log2 of the number of nodes.
    pub fn dimension(&self) -> u32 {
        self.dimension
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        1 << self.dimension
    }

    /// Returns false: a cube has at least one node.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// All nodes, ascending.
    pub fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        (0..1_u32 << self.dimension).map(Node)
    }

    /// Returns the paper's cover of v: the first fault-free node of its clusters in ascending dimension;
    /// None if every other node is faulty.
    pub fn cover(&self, v: Node, faulty: &NodeSet) -> Option<Node> {
        (0..self.dimension)
            .flat_map(|s| cluster(v, s))
            .find(|candidate| !faulty.contains(*candidate))
    }

    /// Returns the node with the home that executes v: v itself if it is fault-free, otherwise its cover.
    pub fn executor(&self, v: Node, faulty: &NodeSet) -> Option<Node> {
        if faulty.contains(v) {
            self.cover(v, faulty)
        } else {
            Some(v)
        }
    }

    /// Returns the paper's partner of v in dimension s: the first fault-free node of its cluster.
    pub fn partner(&self, v: Node, s: u32, faulty: &NodeSet) -> Option<Node> {
        cluster(v, s).find(|candidate| !faulty.contains(*candidate))
    }

    /// Returns v xor 2^s, the node with which v exchanges in dimension s.
    pub fn neighbour(&self, v: Node, s: u32) -> Node {
        Node(v.0 ^ (1 << s))
    }

    /// Returns the nodes of the subcube of `s` dimensions that v is in, ascending.
    pub fn subcube(&self, v: Node, s: u32) -> impl Iterator<Item = Node> + use<> {
        let Node(first) = first_of(v, s);
        (first..first + (1 << s)).map(Node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(cube: &VCube, nodes: impl IntoIterator<Item = u32>) -> NodeSet {
        NodeSet::of(cube.len(), nodes.into_iter().map(Node))
    }

    fn numbers(nodes: impl Iterator<Item = Node>) -> Vec<u32> {
        nodes.map(|node| node.0).collect()
    }

    /// The paper's recursive definition, with dimensions from 0.
    fn cluster_by_definition(i: u32, s: u32) -> Vec<u32> {
        let first = i ^ 1 << s;
        let mut nodes = vec![first];
        (0..s).for_each(|smaller| nodes.extend(cluster_by_definition(first, smaller)));
        nodes
    }

    #[test]
    fn clusters_match_table_1_of_the_2024_paper() {
        let table: [[&[u32]; 8]; 3] = [
            [&[1], &[0], &[3], &[2], &[5], &[4], &[7], &[6]],
            [
                &[2, 3],
                &[3, 2],
                &[0, 1],
                &[1, 0],
                &[6, 7],
                &[7, 6],
                &[4, 5],
                &[5, 4],
            ],
            [
                &[4, 5, 6, 7],
                &[5, 4, 7, 6],
                &[6, 7, 4, 5],
                &[7, 6, 5, 4],
                &[0, 1, 2, 3],
                &[1, 0, 3, 2],
                &[2, 3, 0, 1],
                &[3, 2, 1, 0],
            ],
        ];
        for (s, row) in (0..).zip(table) {
            for (i, expected) in (0..).zip(row) {
                assert_eq!(numbers(cluster(Node(i), s)), expected, "c({i},{s})");
            }
        }
    }

    #[test]
    fn the_closed_form_matches_the_recursive_definition() {
        for s in 0..10 {
            for i in [0, 1, 5, 77, 512, 1023] {
                assert_eq!(numbers(cluster(Node(i), s)), cluster_by_definition(i, s));
            }
        }
    }

    #[test]
    fn covers_match_the_examples_of_the_2024_paper() {
        let cube = VCube::for_ranks(8);
        let cover = |faulty: &[u32]| {
            let faulty = set(&cube, faulty.iter().copied());
            cube.cover(Node(0), &faulty).map(|node| node.0)
        };
        assert_eq!(cover(&[0]), Some(1));
        assert_eq!(cover(&[0, 1]), Some(2));
        assert_eq!(cover(&[0, 1, 2]), Some(3));
        assert_eq!(cover(&[0, 1, 2, 3, 4, 5, 6, 7]), None);
    }

    #[test]
    fn a_cube_has_the_smallest_power_of_two_of_nodes() {
        for (ranks, len) in [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (64, 64), (65, 128)] {
            assert_eq!(VCube::for_ranks(ranks).len(), len);
        }
    }

    /// Checks the properties that hold for every set of faulty nodes with a survivor.
    fn check(cube: &VCube, faulty: &NodeSet) {
        for v in cube.nodes() {
            let executor = cube.executor(v, faulty).unwrap();
            assert!(!faulty.contains(executor));
            if !faulty.contains(v) {
                assert_eq!(executor, v);
            }
            // The covers in the order of distance: v xor 1, v xor 2, ...
            let by_distance = (0..cube.len() as u32)
                .map(|distance| Node(v.0 ^ distance))
                .find(|node| !faulty.contains(*node));
            assert_eq!(Some(executor), by_distance);
            for s in 0..cube.dimension() {
                check_dimension(cube, faulty, v, s);
            }
        }
    }

    fn check_dimension(cube: &VCube, faulty: &NodeSet, v: Node, s: u32) {
        let alive = |n: &Node| !faulty.contains(*n);
        let executor = cube.executor(v, faulty).unwrap();
        let other = cube.executor(cube.neighbour(v, s), faulty).unwrap();
        let own_half = cube.subcube(v, s).find(alive);
        match (cube.partner(v, s, faulty), own_half) {
            // The paper's partner executes the neighbour in the hypercube, for every node, those with a
            // cover included: the rule "exchange with v xor 2^s" implies it.
            (Some(partner), _) => assert_eq!(partner, other),
            // Without a partner v and its neighbour have one executor, and the exchange is local.
            (None, Some(_)) => assert_eq!(executor, other),
            // All nodes of the subcube of both are faulty: two executors outside of it are possible.
            (None, None) => assert!(cube.subcube(v, s + 1).all(|n| n != executor && n != other)),
        }
    }

    #[test]
    fn executors_and_partners_agree_for_every_set_of_faults_in_small_cubes() {
        for dimension in 0..=3 {
            let cube = VCube::for_ranks(1 << dimension);
            for mask in 0..(1_u32 << cube.len()) - 1 {
                let faulty = set(
                    &cube,
                    (0..cube.len() as u32).filter(|node| mask >> node & 1 == 1),
                );
                check(&cube, &faulty);
            }
        }
    }

    #[test]
    fn the_last_survivor_executes_every_node() {
        for dimension in 0..=10 {
            let cube = VCube::for_ranks(1 << dimension);
            for survivor in [0, cube.len() as u32 / 3, cube.len() as u32 - 1] {
                let faulty = set(
                    &cube,
                    (0..cube.len() as u32).filter(|node| *node != survivor),
                );
                for v in cube.nodes() {
                    assert_eq!(cube.executor(v, &faulty), Some(Node(survivor)));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn executors_and_partners_agree_for_random_sets_of_faults(
            dimension in 0_u32..=10,
            density in 0.0_f64..=1.0,
            seed: u64,
            survivor: u32,
        ) {
            let cube = VCube::for_ranks(1 << dimension);
            let survivor = survivor % cube.len() as u32;
            let mut state = seed;
            let faulty = set(&cube, (0..cube.len() as u32).filter(|node| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *node != survivor && ((state >> 33) as f64) < density * f64::from(1_u32 << 31)
            }));
            check(&cube, &faulty);
        }
    }
}

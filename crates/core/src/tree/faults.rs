//! The faulty links and nodes of a hypercube: the FAULT words of the 1996 paper, Section 3.1, and the nodes
//! that the fault-free links connect.
//!
//! A faulty node has only faulty links (Section 3.3) and no data. A fault-free node with the same links, an
//! *isolated* node, is cut off as well, but may have data; so the two are distinguished. Must never: assume a
//! fault. A link or node that is not named is fault-free.

use std::collections::BTreeSet;
use std::fmt;

use crate::vcube::{Node, NodeSet};

/// A link of a hypercube: two nodes that differ in one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    lower: Node,
    dimension: u32,
}

impl Link {
    /// Returns the link of a node along a dimension, counted from 0.
    pub fn of(node: Node, dimension: u32) -> Link {
        Link {
            lower: Node(node.0 & !(1 << dimension)),
            dimension,
        }
    }

    /// Returns the link between two nodes. None if they are not neighbours.
    pub fn between(one: Node, other: Node) -> Option<Link> {
        let apart = one.0 ^ other.0;
        apart
            .is_power_of_two()
            .then(|| Link::of(one, apart.trailing_zeros()))
    }

    /// Returns its ends, the smaller one first.
    pub fn ends(self) -> (Node, Node) {
        (self.lower, along(self.lower, self.dimension))
    }

    /// Returns the bit in which its ends differ, counted from 0.
    pub fn dimension(self) -> u32 {
        self.dimension
    }
}

impl fmt::Display for Link {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lower, upper) = self.ends();
        write!(out, "{lower}-{upper}")
    }
}

/// Returns the neighbour of a node along a dimension, counted from 0 as in the paper.
pub fn along(node: Node, dimension: u32) -> Node {
    Node(node.0 ^ 1 << dimension)
}

/// The faulty links and nodes of a hypercube. Two values are equal if the same links and nodes were named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    dimensions: u32,
    /// The links that were named, without those of faulty nodes.
    links: BTreeSet<Link>,
    nodes: NodeSet,
    /// FAULT(v) for each node v: bit i is set if the link along dimension i is faulty, or ends at a
    /// faulty node.
    words: Vec<u32>,
}

/// The largest number of dimensions, because tables have an entry for each node.
pub const MOST_DIMENSIONS: u32 = 24;

impl Faults {
    /// Creates a hypercube without faults.
    ///
    /// # Panics
    /// If there are more than [`MOST_DIMENSIONS`] dimensions.
    pub fn none(dimensions: u32) -> Faults {
        assert!(
            dimensions <= MOST_DIMENSIONS,
            "{dimensions} dimensions are more than {MOST_DIMENSIONS}"
        );
        Faults {
            dimensions,
            links: BTreeSet::new(),
            nodes: NodeSet::new(1 << dimensions),
            words: vec![0; 1 << dimensions],
        }
    }

    /// Adds a faulty link.
    ///
    /// # Panics
    /// If the cube has no such link.
    pub fn add_link(&mut self, link: Link) {
        assert!(
            link.dimension < self.dimensions,
            "the cube has no link {link}"
        );
        self.links.insert(link);
        self.mark(link);
    }

    /// Adds a faulty node.
    ///
    /// # Panics
    /// If the cube has no such node.
    pub fn add_node(&mut self, node: Node) {
        self.nodes.insert(node);
        (0..self.dimensions).for_each(|dimension| self.mark(Link::of(node, dimension)));
    }

    fn mark(&mut self, link: Link) {
        let (lower, upper) = link.ends();
        self.words[lower.0 as usize] |= 1 << link.dimension;
        self.words[upper.0 as usize] |= 1 << link.dimension;
    }

    /// The number of dimensions of the hypercube: the paper's n.
    pub fn dimensions(&self) -> u32 {
        self.dimensions
    }

    /// The number of nodes of the hypercube: the paper's N.
    pub fn len(&self) -> usize {
        1 << self.dimensions
    }

    /// Whether the hypercube has no faults.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.nodes.is_empty()
    }

    /// All nodes of the hypercube, ascending.
    pub fn all_nodes(&self) -> impl Iterator<Item = Node> + use<> {
        (0..1_u32 << self.dimensions).map(Node)
    }

    /// Returns FAULT(v): bit i is set if v's link along dimension i cannot be used.
    pub fn word(&self, node: Node) -> u32 {
        self.words[node.0 as usize]
    }

    /// Whether the link of a node along a dimension can be used. It cannot if it is faulty, or one of its
    /// ends is.
    pub fn is_usable(&self, node: Node, dimension: u32) -> bool {
        self.word(node) >> dimension & 1 == 0
    }

    /// Whether the node is faulty.
    pub fn is_faulty(&self, node: Node) -> bool {
        self.nodes.contains(node)
    }

    /// The faulty nodes.
    pub fn nodes(&self) -> &NodeSet {
        &self.nodes
    }

    /// The faulty links that were named, ascending; those of faulty nodes only if they were named too.
    pub fn links(&self) -> impl Iterator<Item = Link> + '_ {
        self.links.iter().copied()
    }

    /// Returns the fault-free nodes to which a node is connected over fault-free links, including itself.
    /// Empty if the node is faulty.
    pub fn connected(&self, from: Node) -> NodeSet {
        let mut reached = NodeSet::new(self.len());
        if self.is_faulty(from) {
            return reached;
        }
        reached.insert(from);
        let mut unvisited = vec![from];
        while let Some(node) = unvisited.pop() {
            for next in self.neighbours(node) {
                if !reached.contains(next) {
                    reached.insert(next);
                    unvisited.push(next);
                }
            }
        }
        reached
    }

    /// Returns the largest set of connected fault-free nodes; of several the one with the smallest node.
    /// Empty if all nodes are faulty.
    pub fn largest_component(&self) -> NodeSet {
        let mut seen = NodeSet::new(self.len());
        let mut largest = NodeSet::new(self.len());
        for node in self.all_nodes() {
            if self.is_faulty(node) || seen.contains(node) {
                continue;
            }
            let part = self.connected(node);
            seen.extend(&part);
            if part.len() > largest.len() {
                largest = part;
            }
        }
        largest
    }

    /// Returns the nodes at the other ends of a node's usable links, by dimension.
    fn neighbours(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        let usable = move |dimension: &u32| self.is_usable(node, *dimension);
        let dimensions = (0..self.dimensions).filter(usable);
        dimensions.map(move |dimension| along(node, dimension))
    }

    /// Returns a shortest path over fault-free links from a node to an accepted end; both ends are included.
    /// Of several ends at the same distance it takes the preferred one, otherwise the smallest. None if no
    /// such path exists.
    pub fn shortest_path(
        &self,
        from: Node,
        preferred: Node,
        accepted: impl Fn(Node) -> bool,
    ) -> Option<Vec<Node>> {
        let mut predecessors: Vec<Option<Node>> = vec![None; self.len()];
        predecessors[from.0 as usize] = Some(from);
        let mut frontier = vec![from];
        while !frontier.is_empty() {
            let ends = frontier.iter().filter(|node| accepted(**node));
            if let Some(end) = ends.min_by_key(|node| (**node != preferred, node.0)) {
                return Some(path_to(&predecessors, *end));
            }
            let mut next_frontier = Vec::new();
            for node in frontier {
                for next in self.neighbours(node) {
                    if predecessors[next.0 as usize].is_none() {
                        predecessors[next.0 as usize] = Some(node);
                        next_frontier.push(next);
                    }
                }
            }
            frontier = next_frontier;
        }
        None
    }
}

/// Returns the path that ends at a node, from the table of predecessors.
fn path_to(predecessors: &[Option<Node>], end: Node) -> Vec<Node> {
    let mut path = vec![end];
    let mut node = end;
    while let Some(previous) = predecessors[node.0 as usize].filter(|previous| *previous != node) {
        path.push(previous);
        node = previous;
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::testing::{figure_9, of_ranks, pattern};
    use proptest::prelude::*;

    #[test]
    fn words_of_figure_9() {
        let faults = figure_9();
        let words: Vec<u32> = faults.all_nodes().map(|node| faults.word(node)).collect();
        assert_eq!(
            words,
            [0b000, 0b010, 0b000, 0b010, 0b001, 0b011, 0b000, 0b010]
        );
        // The paper says that node 101 has two link failures, on dimensions 0 and 1.
        assert_eq!(faults.word(Node(0b101)), 0b011);
    }

    #[test]
    fn links_are_the_same_from_both_ends() {
        assert_eq!(Link::of(Node(5), 2), Link::of(Node(1), 2));
        assert_eq!(Link::between(Node(1), Node(5)), Some(Link::of(Node(5), 2)));
        assert_eq!(Link::between(Node(1), Node(6)), None);
        assert_eq!(Link::between(Node(1), Node(1)), None);
        assert_eq!(Link::of(Node(5), 2).ends(), (Node(1), Node(5)));
        assert_eq!(Link::of(Node(5), 2).dimension(), 2);
        assert_eq!(Link::of(Node(5), 2).to_string(), "1-5");
    }

    #[test]
    fn nodes_without_a_home_are_faulty() {
        let faults = of_ranks(5);
        assert_eq!(faults.len(), 8);
        let homeless: Vec<Node> = faults.nodes().iter().collect();
        assert_eq!(homeless, [Node(5), Node(6), Node(7)]);
        assert_eq!(faults.word(Node(4)), 0b011);
        assert_eq!(of_ranks(1).len(), 1);
        assert!(of_ranks(8).is_empty());
    }

    #[test]
    fn of_ends_at_one_distance_the_preferred_is_taken_or_the_smallest() {
        let faults = Faults::none(2);
        let end =
            |preferred: u32| faults.shortest_path(Node(0), Node(preferred), |node| node.0 > 0);
        assert_eq!(end(2), Some(vec![Node(0), Node(2)]));
        assert_eq!(end(3), Some(vec![Node(0), Node(1)]));
    }

    #[test]
    fn of_several_parts_the_largest_counts() {
        let mut faults = Faults::none(3);
        for node in [0, 1, 2, 3] {
            faults.add_link(Link::of(Node(node), 2));
        }
        let lower: Vec<u32> = faults
            .largest_component()
            .iter()
            .map(|node| node.0)
            .collect();
        assert_eq!(lower, [0, 1, 2, 3]);
        faults.add_node(Node(0));
        let upper: Vec<u32> = faults
            .largest_component()
            .iter()
            .map(|node| node.0)
            .collect();
        assert_eq!(upper, [4, 5, 6, 7]);
        assert!(faults.connected(Node(0)).is_empty());
    }

    proptest! {
        #[test]
        fn words_links_and_nodes_agree(faults in pattern(0..=6)) {
            for node in faults.all_nodes() {
                for dimension in 0..faults.dimensions() {
                    let link = Link::of(node, dimension);
                    let other = along(node, dimension);
                    let usable = !faults.links.contains(&link)
                        && !faults.is_faulty(node)
                        && !faults.is_faulty(other);
                    prop_assert_eq!(faults.is_usable(node, dimension), usable);
                    prop_assert_eq!(faults.is_usable(other, dimension), usable);
                }
            }
            let bits: u32 = faults.words.iter().map(|word| word.count_ones()).sum();
            let links = faults.all_nodes().flat_map(|node| (0..faults.dimensions()).map(move |d| (node, d)));
            let unusable = links.filter(|(node, dimension)| !faults.is_usable(*node, *dimension));
            let unusable: BTreeSet<Link> = unusable.map(|(node, d)| Link::of(node, d)).collect();
            prop_assert_eq!(bits as usize, 2 * unusable.len());
        }

        #[test]
        fn paths_are_shortest_and_usable(faults in pattern(1..=5), from: u32, to: u32) {
            let mask = faults.len() as u32 - 1;
            let (from, to) = (Node(from & mask), Node(to & mask));
            prop_assume!(!faults.is_faulty(from));
            let path = faults.shortest_path(from, to, |node| node == to);
            prop_assert_eq!(path.is_some(), faults.connected(from).contains(to));
            let Some(path) = path else { return Ok(()) };
            prop_assert_eq!((path[0], path[path.len() - 1]), (from, to));
            for hop in path.windows(2) {
                let link = Link::between(hop[0], hop[1]).expect("neighbours");
                prop_assert!(faults.is_usable(hop[0], link.dimension()));
            }
            // Distances by Bellman's rule, with as many iterations as there are nodes.
            let mut distance = vec![usize::MAX - 1; faults.len()];
            distance[from.0 as usize] = 0;
            for _ in 0..faults.len() {
                for node in faults.all_nodes() {
                    for next in faults.neighbours(node) {
                        let more = distance[node.0 as usize] + 1;
                        distance[next.0 as usize] = distance[next.0 as usize].min(more);
                    }
                }
            }
            prop_assert_eq!(path.len() - 1, distance[to.0 as usize]);
        }

        #[test]
        fn the_largest_component_is_closed(faults in pattern(0..=6)) {
            let part = faults.largest_component();
            let fault_free = faults.len() - faults.nodes().len();
            prop_assert_eq!(part.is_empty(), fault_free == 0);
            for node in part.iter() {
                prop_assert_eq!(&faults.connected(node), &part);
            }
            for node in faults.all_nodes() {
                prop_assert!(faults.connected(node).len() <= part.len());
            }
        }
    }
}

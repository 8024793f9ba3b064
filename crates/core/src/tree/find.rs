//! Algorithm FIND_TREE of the 1996 paper, Section 3.1: a communication tree with few faulty links.
//!
//! From a given sink the dimensions are chosen from the last stage to the first, each time the dimension along which
//! the nodes of the tree so far have the fewest faulty links. The paper's choice of the sink is in `ftsort-papers`.
//! Must never: read anything but the FAULT words, so that every rank with the same words finds the same tree.
//!
//! The paper prints the inner sum of its cost function (7) over the dimensions used so far. Its text, its
//! Figure 11 and its Example 2 sum over the dimensions *not* used yet, and so does this code.

use crate::tree::faults::{Faults, along};
use crate::tree::shape::Tree;
use crate::vcube::Node;

/// The links that the cost of a dimension counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The paper's cost: all links along unused dimensions of the nodes that the dimension adds. The links
    /// over which these nodes are added are included.
    Paper,
    /// The cost without the links over which nodes are added. Those links belong to the tree for every
    /// choice, because a node of the tree receives along every dimension that is unused when it is added.
    /// This cost is the number of faulty links that the choice adds to the tree.
    Added,
}

/// Returns the tree with the given sink and the order of dimensions of the second part of FIND_TREE.
///
/// # Panics
/// If the cube has no such node.
pub fn tree_to(sink: Node, faults: &Faults, cost: Cost) -> Tree {
    let n = faults.dimensions();
    let mut used = vec![sink];
    let mut unused: Vec<u32> = (0..n).collect();
    let mut reversed = Vec::with_capacity(n as usize);
    while !unused.is_empty() {
        let costs = unused
            .iter()
            .map(|dimension| cost_of(*dimension, &used, &unused, faults, cost));
        // Among equal costs the smallest dimension, as in the paper's loop over j.
        let (_, cheapest) = costs
            .zip(&unused)
            .min()
            .map_or((0, n), |(cost, dimension)| (cost, *dimension));
        reversed.push(cheapest);
        unused.retain(|dimension| *dimension != cheapest);
        let more: Vec<Node> = used.iter().map(|node| along(*node, cheapest)).collect();
        used.extend(more);
    }
    reversed.reverse();
    Tree::new(sink, reversed)
        .unwrap_or_else(|| panic!("a cube of {n} dimensions has no node {sink}"))
}

/// Returns COST(j), formula (7).
fn cost_of(dimension: u32, used: &[Node], unused: &[u32], faults: &Faults, cost: Cost) -> u32 {
    let counted = unused
        .iter()
        .filter(|other| cost == Cost::Paper || **other != dimension);
    let mask = counted.fold(0, |mask, other| mask | 1_u32 << other);
    let neighbours = used.iter().map(|node| along(*node, dimension));
    neighbours
        .map(|neighbour| (faults.word(neighbour) & mask).count_ones())
        .sum()
}

/// Returns the number of a tree's links that cannot be used.
pub fn faulty_links(tree: &Tree, faults: &Faults) -> u32 {
    let faulty = tree
        .links()
        .filter(|link| !faults.is_usable(link.ends().0, link.dimension()));
    faulty.count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::testing::{figure_9, figure_16, pattern};
    use proptest::prelude::*;

    #[test]
    fn follows_example_2_and_figure_12() {
        let faults = figure_9();
        let cost = |dimension, used: &[u32], unused: &[u32]| {
            let used: Vec<Node> = used.iter().copied().map(Node).collect();
            cost_of(dimension, &used, unused, &faults, Cost::Paper)
        };
        // Step 1: node 000 has no faulty link. Step 2: its neighbours.
        assert_eq!(faults.word(Node(0)), 0);
        assert_eq!(cost(0, &[0b000], &[0, 1, 2]), 1);
        assert_eq!(cost(1, &[0b000], &[0, 1, 2]), 0);
        assert_eq!(cost(2, &[0b000], &[0, 1, 2]), 1);
        // Step 3: d_2 is 1, and node 010 has been added.
        assert_eq!(cost(0, &[0b000, 0b010], &[0, 2]), 0);
        assert_eq!(cost(2, &[0b000, 0b010], &[0, 2]), 1);
        // Step 4: the last dimension.
        let tree = tree_to(Node(0b000), &faults, Cost::Paper);
        assert_eq!(tree.order(), [2, 0, 1]);
        assert_eq!(faulty_links(&tree, &faults), 0);
    }

    #[test]
    fn formula_7_as_printed_has_no_cost_in_the_first_step() {
        // No dimension has been used, so a sum over the used ones is empty; but Example 2 has COST(0) = 1.
        let cost = cost_of(0, &[Node(0)], &[], &figure_9(), Cost::Paper);
        assert_eq!(cost, 0);
    }

    #[test]
    fn figure_16_data_crosses_dimension_2_first() {
        let faults = figure_16();
        let tree = tree_to(Node(0b001), &faults, Cost::Paper);
        assert_eq!(tree.order(), [2, 1, 0]);
        // The faulty links are those of node 100, which the paper names, and of the faulty node.
        assert_eq!(tree.parent(Node(0b100)), Some(Node(0b000)));
        assert_eq!(faulty_links(&tree, &faults), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        /// The sum of the added costs over all stages, with the sink's own faulty links, is the number of
        /// faulty links of the tree.
        #[test]
        fn costs_add_up_to_the_faulty_links_of_the_tree(faults in pattern(1..=6), sink: u32) {
            let sink = Node(sink & (faults.len() as u32 - 1));
            let tree = tree_to(sink, &faults, Cost::Added);
            let mut used = vec![sink];
            let mut unused: Vec<u32> = (0..faults.dimensions()).collect();
            let mut added = faults.word(sink).count_ones();
            for dimension in tree.order().iter().rev() {
                let own = cost_of(*dimension, &used, &unused, &faults, Cost::Added);
                for other in &unused {
                    prop_assert!(own <= cost_of(*other, &used, &unused, &faults, Cost::Added));
                }
                added += own;
                unused.retain(|other| other != dimension);
                let more: Vec<Node> = used.iter().map(|node| along(*node, *dimension)).collect();
                used.extend(more);
            }
            prop_assert_eq!(added, faulty_links(&tree, &faults));
        }
    }
}

//! Figures and counts of the 1996 paper that no other file reproduces: Figure 2 (the grid), formula (8) (iterations of
//! FIND_TREE), Figure 15 (the resource dependency graph), and the 2(n+1) steps of a broadcast and a merge.
//!
//! Must never: plan a tree; that is [`ftsort_core::tree::plan`].

use std::collections::BTreeSet;

use ftsort_core::tree::faults::{Faults, along};
use ftsort_core::tree::plan::TreePlan;
use ftsort_core::vcube::Node;

/// Returns the node in cell (i, j) of Figure 2, counted from 0: the bits of the column's Gray code, and then those of the
/// row's.
pub fn grid_node(i: u32, j: u32, row_bits: u32) -> Node {
    let gray = |index: u32| index ^ index >> 1;
    Node(gray(j) << row_bits | gray(i))
}

/// Counts the iterations of the loops of FIND_TREE (Figure 10) that determine the order of dimensions, as the proof of
/// Theorem 4 does: one for each link that COST(j) looks at, and one for each node that is added to USED_N.
pub fn find_tree_iterations(n: u32) -> u64 {
    let (mut used, mut unused, mut iterations) = (1_u64, n, 0);
    // Until one dimension is left, which needs no choice.
    while unused > 1 {
        for _dimension in 0..unused {
            for _node in 0..used {
                iterations += u64::from(unused);
            }
        }
        iterations += used;
        used *= 2;
        unused -= 1;
    }
    iterations
}

/// Returns the resource dependency graph of a plan. An edge leads from a node to each node that must send before it.
/// A message over several hops is an edge between its ends.
pub fn resource_dependencies(plan: &TreePlan) -> BTreeSet<(Node, Node)> {
    let messages = plan.messages().iter();
    messages
        .map(|message| (message.to(), message.from()))
        .collect()
}

/// Returns whether a graph has no cycle.
pub fn is_acyclic(edges: &BTreeSet<(Node, Node)>) -> bool {
    let mut edges = edges.clone();
    loop {
        // A node that waits for none is not on a cycle.
        let waiting: BTreeSet<Node> = edges.iter().map(|(from, _)| *from).collect();
        let before = edges.len();
        edges.retain(|(_, to)| waiting.contains(to));
        if edges.len() == before {
            return edges.is_empty();
        }
    }
}

/// Returns the number of steps in which a message from this node reaches all others over fault-free links, if each node
/// sends to all its neighbours. None if it does not reach all.
pub fn broadcast_steps(source: Node, faults: &Faults) -> Option<u32> {
    let mut reached = BTreeSet::from([source]);
    for steps in 0.. {
        if reached.len() == faults.len() {
            return Some(steps);
        }
        let next = reached.iter().flat_map(|node| {
            let dimensions = (0..faults.dimensions()).filter(|d| faults.is_usable(*node, *d));
            dimensions.map(|dimension| along(*node, dimension))
        });
        let next: Vec<Node> = next.filter(|node| !reached.contains(node)).collect();
        if next.is_empty() {
            return None;
        }
        reached.extend(next);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::find::{faulty_stages, find_tree};
    use ftsort_core::tree::faults::Link;
    use ftsort_core::tree::plan::{MessagePurpose, Remedy};
    use ftsort_core::tree::schedule::{LinkModel, Ports, StageStart, TreeSchedule};
    use ftsort_core::tree::shape::Tree;
    use ftsort_core::tree::testing::{cases, figure_14};
    use proptest::prelude::*;

    #[test]
    fn the_cells_of_figure_2() {
        let figure = [
            [0, 8, 24, 16],
            [1, 9, 25, 17],
            [3, 11, 27, 19],
            [2, 10, 26, 18],
            [6, 14, 30, 22],
            [7, 15, 31, 23],
            [5, 13, 29, 21],
            [4, 12, 28, 20],
        ];
        for (i, row) in (0..).zip(figure) {
            for (j, number) in (0..).zip(row) {
                let node = grid_node(i, j, 3);
                assert_eq!(node, Node(number), "cell ({}, {})", i + 1, j + 1);
                // Neighbours on the grid, and across its edges, are neighbours on the hypercube.
                for other in [grid_node((i + 1) % 8, j, 3), grid_node(i, (j + 1) % 4, 3)] {
                    assert!(Link::between(node, other).is_some());
                }
            }
        }
    }

    #[test]
    fn formula_8_counts_the_iterations_of_find_tree() {
        for n in 1..=14_u32 {
            let m = i64::from(n);
            let formula = 6 * (1_i64 << n) - m * m - 4 * m - 7;
            assert_eq!(find_tree_iterations(n) as i64, formula, "n = {n}");
        }
    }

    fn planned(tree: &Tree, faults: &Faults, remedy: Remedy) -> TreePlan {
        let all = faults.connected(tree.sink());
        TreePlan::new(tree, faults, &all, remedy).expect("connected")
    }

    /// Figure 15: the tree of Example 3 without the edge of the faulty link, and with an edge to each of the two
    /// neighbours that get a part.
    #[test]
    fn the_resource_dependencies_of_example_3_have_no_cycle() {
        let tree = Tree::simple(4);
        let without = resource_dependencies(&planned(&tree, &Faults::none(4), Remedy::Partition));
        assert_eq!(without.len(), 15);
        assert!(is_acyclic(&without));
        let with = resource_dependencies(&planned(&tree, &figure_14(), Remedy::Partition));
        let edge = |to: u32, from: u32| (Node(to), Node(from));
        let removed: Vec<_> = without.difference(&with).copied().collect();
        let added: Vec<_> = with.difference(&without).copied().collect();
        assert_eq!(removed, [edge(0b1010, 0b1011)]);
        assert_eq!(added, [edge(0b0011, 0b1011), edge(0b1111, 0b1011)]);
        assert!(is_acyclic(&with));
        let cycle = BTreeSet::from([edge(1, 2), edge(2, 3), edge(3, 1), edge(1, 0)]);
        assert!(!is_acyclic(&cycle));
    }

    proptest! {
        /// Theorem 6 for the corrected algorithm, with any faulty links and nodes.
        #[test]
        fn resource_dependencies_have_no_cycle((faults, tree) in cases(0..=6)) {
            for remedy in [Remedy::Partition, Remedy::Delegate, Remedy::Reroute] {
                prop_assert!(is_acyclic(&resource_dependencies(&planned(&tree, &faults, remedy))));
            }
        }
    }

    /// All sets of fewer than n faulty links: a broadcast takes up to n + 1 steps, and so does the merge along its paths,
    /// 2(n+1) together. FTTC takes n + k, which is less: at most 2n - 1.
    #[test]
    fn a_broadcast_and_a_merge_take_more_steps_than_fttc() {
        for n in 2..=4_u32 {
            let links: BTreeSet<Link> = (0..1 << n)
                .flat_map(|node| (0..n).map(move |d| Link::of(Node(node), d)))
                .collect();
            let links: Vec<Link> = links.into_iter().collect();
            let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
            for _ in 1..n {
                let longer = sets.iter().flat_map(|set| {
                    let from = set.last().map_or(0, |last| last + 1);
                    (from..links.len()).map(move |next| [&set[..], &[next]].concat())
                });
                let longer: Vec<_> = longer.collect();
                sets.extend(longer);
                sets.sort();
                sets.dedup();
            }
            let (mut longest_broadcast, mut longest_tree) = (0, 0);
            for set in &sets {
                let mut faults = Faults::none(n);
                set.iter().for_each(|index| faults.add_link(links[*index]));
                let tree = find_tree(&faults).expect("fewer than 2^(n-1) faulty links");
                let steps = broadcast_steps(tree.sink(), &faults).expect("connected");
                longest_broadcast = longest_broadcast.max(steps);
                // Any node may be the source.
                let worst = faults
                    .all_nodes()
                    .filter_map(|node| broadcast_steps(node, &faults))
                    .max();
                assert!(worst <= Some(n + 1), "{set:?}");
                let plan = planned(&tree, &faults, Remedy::Delegate);
                assert_eq!(plan.count(MessagePurpose::Detour), 0);
                let machine = LinkModel::new(Ports::All, StageStart::Synchronous);
                let steps = TreeSchedule::new(&plan, machine).steps().len() as u32;
                assert_eq!(steps, n + faulty_stages(&plan));
                longest_tree = longest_tree.max(steps);
            }
            assert!(longest_tree < 2 * n && longest_broadcast <= n + 1);
        }
    }
}

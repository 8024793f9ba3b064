//! Uniform data distribution: the UDD strategy of the 1996 paper, Sections 3.2 and 3.3.
//!
//! Before the computation, the data is divided evenly among the nodes that can bring results to the sink. The
//! paper omits the faulty nodes and the *isolated* nodes, which have only faulty links. That is not enough:
//! two nodes with no fault-free link but the one between them are not isolated, but they are cut off.
//! Therefore a node that is not connected to the sink gets no data here. Must never: lose or duplicate an
//! item.

use std::ops::Range;

use crate::tree::faults::Faults;
use crate::vcube::{Node, NodeSet};

/// Returns the nodes to which the paper gives data: those that are neither faulty nor isolated.
pub fn not_isolated(faults: &Faults) -> NodeSet {
    let all = faults.len() as u32 - 1;
    // The only node of a cube of dimension 0 has no links, but is not isolated.
    let isolated = |node: Node| all > 0 && faults.word(node).count_ones() == faults.dimensions();
    let mut nodes = NodeSet::new(faults.len());
    faults
        .all_nodes()
        .filter(|node| !faults.is_faulty(*node) && !isolated(*node))
        .for_each(|node| nodes.insert(node));
    nodes
}

/// Returns the nodes that get data: those that are connected to the sink.
pub fn data_nodes(faults: &Faults, sink: Node) -> NodeSet {
    faults.connected(sink)
}

/// Returns the range of `total` items that a node gets. The ranges of the data nodes are contiguous in the
/// order of nodes, and their sizes differ by one at most. Other nodes get an empty range.
pub fn share(total: u64, data_nodes: &NodeSet, node: Node) -> Range<u64> {
    let before = data_nodes
        .iter()
        .take_while(|holder| *holder < node)
        .count();
    let count = data_nodes.len() as u128;
    let cut = |index: usize| match count {
        0 => 0,
        count => (u128::from(total) * index as u128 / count) as u64,
    };
    if data_nodes.contains(node) {
        cut(before)..cut(before + 1)
    } else {
        cut(before)..cut(before)
    }
}

/// Returns the factor by which each data node computes more than each node would if all nodes had data: the
/// paper's N/(N - f), where f is the number of nodes without data.
pub fn computation_slowdown(faults: &Faults, data_nodes: &NodeSet) -> f64 {
    faults.len() as f64 / data_nodes.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::find::find_tree_anyway;
    use crate::tree::testing::{faults, figure_16, pattern};
    use proptest::prelude::*;

    #[test]
    fn example_4_seven_nodes_share_the_data() {
        let data_nodes = data_nodes(&figure_16(), Node(0b001));
        assert!(!data_nodes.contains(Node(0b111)));
        let sizes: Vec<u64> = (0..8)
            .map(|node| share(70, &data_nodes, Node(node)))
            .map(|range| range.end - range.start)
            .collect();
        assert_eq!(sizes, [10, 10, 10, 10, 10, 10, 10, 0]);
        let slowdown = computation_slowdown(&figure_16(), &data_nodes);
        assert!((slowdown - 8.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn two_nodes_connected_only_to_each_other_get_no_data() {
        // Nodes 0 and 1 of a cube of 16 nodes: 6 faulty links, fewer than the 8 of Theorem 7.
        let links = [(0, 2), (0, 4), (0, 8), (1, 3), (1, 5), (1, 9)];
        let faults = faults(4, &links, &[]);
        assert_eq!(not_isolated(&faults).len(), 16);
        let sink = find_tree_anyway(&faults).expect("a tree").sink();
        assert_eq!(data_nodes(&faults, sink).len(), 14);
    }

    #[test]
    fn isolated_nodes_get_no_data() {
        let faults = faults(2, &[(0, 1), (0, 2)], &[]);
        let nodes: Vec<u32> = not_isolated(&faults).iter().map(|node| node.0).collect();
        assert_eq!(nodes, [1, 2, 3]);
        assert_eq!(not_isolated(&Faults::none(0)).len(), 1);
    }

    proptest! {
        #[test]
        fn shares_are_even_and_cover_all_items(faults in pattern(0..=6), total: u64) {
            let Some(tree) = find_tree_anyway(&faults) else { return Ok(()) };
            let data_nodes = data_nodes(&faults, tree.sink());
            let least = total / data_nodes.len() as u64;
            let mut next = 0;
            for node in faults.all_nodes() {
                let own = share(total, &data_nodes, node);
                prop_assert_eq!(own.start, next);
                next = own.end;
                if data_nodes.contains(node) {
                    prop_assert!((least..=least + 1).contains(&(own.end - own.start)));
                } else {
                    prop_assert!(own.is_empty());
                }
            }
            prop_assert_eq!(next, total);
        }

        #[test]
        fn data_nodes_are_not_isolated(faults in pattern(1..=6)) {
            let Some(tree) = find_tree_anyway(&faults) else { return Ok(()) };
            let data_nodes = data_nodes(&faults, tree.sink());
            prop_assume!(data_nodes.len() > 1);
            let reachable = not_isolated(&faults);
            prop_assert!(data_nodes.iter().all(|node| reachable.contains(node)));
        }
    }
}

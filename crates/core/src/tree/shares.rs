//! Uniform data distribution: the UDD strategy of the 1996 paper, Sections 3.2 and 3.3.
//!
//! Before the work begins the data is dealt evenly to the nodes that can bring results to the sink. The
//! paper leaves out the faulty nodes and the *isolated* ones, all of whose links are faulty. That is not
//! enough: two nodes whose only fault-free link is the one between them are not isolated, and yet cut
//! off. So whoever is not connected to the sink gets none. Must never: lose or double an item.

use std::ops::Range;

use crate::tree::faults::Faults;
use crate::vcube::{Node, NodeSet};

/// The nodes that the paper gives data to: those that are neither faulty nor isolated.
pub fn not_isolated(faults: &Faults) -> NodeSet {
    let all = faults.len() as u32 - 1;
    // A node without neighbours, in a cube of one, has nobody to be isolated from.
    let isolated = |node: Node| all > 0 && faults.word(node).count_ones() == faults.dimensions();
    let mut nodes = NodeSet::new(faults.len());
    faults
        .all_nodes()
        .filter(|node| !faults.is_faulty(*node) && !isolated(*node))
        .for_each(|node| nodes.insert(node));
    nodes
}

/// The nodes that are to get data: those that are connected to the sink.
pub fn holders(faults: &Faults, sink: Node) -> NodeSet {
    faults.connected(sink)
}

/// Which of `total` items a holder gets: a contiguous range, in the order of nodes; the sizes differ by
/// one at most. Nothing for a node that is no holder.
pub fn share(total: u64, holders: &NodeSet, node: Node) -> Range<u64> {
    let before = holders.iter().take_while(|holder| *holder < node).count();
    let count = holders.len() as u128;
    let cut = |index: usize| match count {
        0 => 0,
        count => (u128::from(total) * index as u128 / count) as u64,
    };
    match holders.contains(node) {
        true => cut(before)..cut(before + 1),
        false => cut(before)..cut(before),
    }
}

/// How many times more each holder has to compute than each of all nodes would: the paper's
/// N/(N - f), with f the nodes that get no data.
pub fn computation_slowdown(faults: &Faults, holders: &NodeSet) -> f64 {
    faults.len() as f64 / holders.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::find::find_tree_anyway;
    use crate::tree::testing::{faults, figure_16, pattern};
    use proptest::prelude::*;

    #[test]
    fn example_4_seven_nodes_share_the_data() {
        let holders = holders(&figure_16(), Node(0b001));
        assert!(!holders.contains(Node(0b111)));
        let sizes: Vec<u64> = (0..8)
            .map(|node| share(70, &holders, Node(node)))
            .map(|range| range.end - range.start)
            .collect();
        assert_eq!(sizes, [10, 10, 10, 10, 10, 10, 10, 0]);
        let slowdown = computation_slowdown(&figure_16(), &holders);
        assert!((slowdown - 8.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn two_nodes_that_have_only_each_other_get_none() {
        // Nodes 0 and 1 of a cube of 16: 6 faulty links, fewer than the 8 of Theorem 7.
        let links = [(0, 2), (0, 4), (0, 8), (1, 3), (1, 5), (1, 9)];
        let faults = faults(4, &links, &[]);
        assert_eq!(not_isolated(&faults).len(), 16);
        let sink = find_tree_anyway(&faults).expect("a tree").sink();
        assert_eq!(holders(&faults, sink).len(), 14);
    }

    #[test]
    fn isolated_nodes_get_none() {
        let faults = faults(2, &[(0, 1), (0, 2)], &[]);
        let nodes: Vec<u32> = not_isolated(&faults).iter().map(|node| node.0).collect();
        assert_eq!(nodes, [1, 2, 3]);
        assert_eq!(not_isolated(&Faults::none(0)).len(), 1);
    }

    proptest! {
        #[test]
        fn shares_are_even_and_leave_nothing_out(faults in pattern(0..=6), total: u64) {
            let Some(tree) = find_tree_anyway(&faults) else { return Ok(()) };
            let holders = holders(&faults, tree.sink());
            let least = total / holders.len() as u64;
            let mut next = 0;
            for node in faults.all_nodes() {
                let own = share(total, &holders, node);
                prop_assert_eq!(own.start, next);
                next = own.end;
                match holders.contains(node) {
                    true => prop_assert!((least..=least + 1).contains(&(own.end - own.start))),
                    false => prop_assert!(own.is_empty()),
                }
            }
            prop_assert_eq!(next, total);
        }

        #[test]
        fn holders_of_several_nodes_are_not_isolated(faults in pattern(1..=6)) {
            let Some(tree) = find_tree_anyway(&faults) else { return Ok(()) };
            let holders = holders(&faults, tree.sink());
            prop_assume!(holders.len() > 1);
            let reachable = not_isolated(&faults);
            prop_assert!(holders.iter().all(|node| reachable.contains(node)));
        }
    }
}

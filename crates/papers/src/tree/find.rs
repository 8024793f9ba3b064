//! The choice of the sink in algorithm FIND_TREE of the 1996 paper, Section 3.1, and a rule for the cases in which it
//! finds none; the nodes to which the paper gives data. [`ftsort_core::tree::find`] has the order of the dimensions.
//!
//! Must never: choose by anything but the faults.

use ftsort_core::tree::faults::Faults;
use ftsort_core::tree::find::{Cost, tree_to};
use ftsort_core::tree::plan::{MessagePurpose, TreePlan};
use ftsort_core::tree::shape::Tree;
use ftsort_core::vcube::{Node, NodeSet};

/// Returns the tree of FIND_TREE as printed: its sink is the first node without a faulty link. None if every
/// node has a faulty link.
pub fn find_tree(faults: &Faults) -> Option<Tree> {
    let sink = faults.all_nodes().find(|node| faults.word(*node) == 0)?;
    // The only node of a cube of dimension 0 has no links, and may be faulty.
    (!faults.is_faulty(sink)).then(|| tree_to(sink, faults, Cost::Paper))
}

/// Returns a tree for any pattern of faults, or None if all nodes are faulty. Its sink is in the largest set
/// of connected nodes, and has the fewest faulty links in that set; of several such nodes it is the first.
///
/// The paper's choice fails if each node has a faulty link, and may select a node that is connected to few
/// others.
pub fn find_tree_anyway(faults: &Faults) -> Option<Tree> {
    let part = faults.largest_component();
    let sink = part
        .iter()
        .min_by_key(|node| (faults.word(*node).count_ones(), node.0))?;
    Some(tree_to(sink, faults, Cost::Paper))
}

/// Returns the nodes to which the paper gives data: those that are neither faulty nor isolated.
pub fn not_isolated(faults: &Faults) -> NodeSet {
    let all = faults.len() as u32 - 1;
    // The only node of a cube of dimension 0 has no links, but is not isolated.
    let isolated = |node: Node| all > 0 && faults.word(node).count_ones() == faults.dimensions();
    let nodes = faults.all_nodes();
    let nodes = nodes.filter(|node| !faults.is_faulty(*node) && !isolated(*node));
    NodeSet::of(faults.len(), nodes)
}

/// Returns the paper's k: the number of stages at which an active node with data has a faulty link to its
/// passive neighbour.
pub fn faulty_stages(plan: &TreePlan) -> u32 {
    let messages = plan.messages().iter();
    let off_tree = messages.filter(|message| message.purpose != MessagePurpose::ToParent);
    let mut stages: Vec<u32> = off_tree.map(|message| message.stage).collect();
    stages.dedup();
    stages.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_core::tree::faults::{Link, along};
    use ftsort_core::tree::testing::{faults, figure_9, figure_16, links_only, of_ranks, pattern};
    use proptest::prelude::*;

    #[test]
    fn the_sinks_of_figures_12_and_16() {
        for (faults, sink) in [(figure_9(), 0b000), (figure_16(), 0b001)] {
            let tree = find_tree(&faults).expect("a tree");
            assert_eq!(tree.sink(), Node(sink));
        }
    }

    #[test]
    fn theorem_7_does_not_hold_with_exactly_half_as_many_faulty_links_as_nodes() {
        // All links of one dimension are faulty: every node has a faulty link, and the cube is divided into
        // two parts.
        for n in 1..=8 {
            let mut faults = Faults::none(n);
            for node in 0..1 << n {
                faults.add_link(Link::of(Node(node), 0));
            }
            assert_eq!(faults.links().count(), 1 << (n - 1));
            assert_eq!(find_tree(&faults), None);
            assert_eq!(faults.largest_component().len(), 1 << (n - 1));
        }
    }

    /// Node 0 of 64 and its neighbours are cut off from all other nodes by 30 faulty links, fewer than 32.
    #[test]
    fn chooses_a_sink_in_the_largest_component() {
        let mut faults = Faults::none(6);
        for neighbour in (0..6).map(|dimension| along(Node(0), dimension)) {
            for dimension in (0..6).filter(|d| along(Node(0), *d) != neighbour) {
                faults.add_link(Link::of(neighbour, dimension));
            }
        }
        assert_eq!(faults.links().count(), 30);
        // No node is isolated in the paper's sense, but most data does not reach the sink that the paper
        // chooses. Theorem 7 therefore fails below its bound, too.
        assert!(faults.all_nodes().all(|node| faults.word(node) != 0x3f));
        let printed = find_tree(&faults).expect("a tree");
        assert_eq!(printed.sink(), Node(0));
        assert_eq!(faults.connected(printed.sink()).len(), 7);
        let tree = find_tree_anyway(&faults).expect("a tree");
        assert_eq!(tree.sink(), Node(7));
        assert_eq!(faults.connected(tree.sink()).len(), 57);
    }

    #[test]
    fn nodes_without_a_home_leave_node_0_without_a_faulty_link() {
        for ranks in 1..=70 {
            let faults = of_ranks(ranks);
            let tree = find_tree(&faults).expect("a tree");
            assert_eq!(tree.sink(), Node(0), "{ranks} ranks");
        }
    }

    #[test]
    fn two_nodes_connected_only_to_each_other_get_no_data() {
        // Nodes 0 and 1 of a cube of 16 nodes: 6 faulty links, fewer than the 8 of Theorem 7.
        let links = [(0, 2), (0, 4), (0, 8), (1, 3), (1, 5), (1, 9)];
        let faults = faults(4, &links, &[]);
        assert_eq!(not_isolated(&faults).len(), 16);
        let sink = find_tree_anyway(&faults).expect("a tree").sink();
        assert_eq!(faults.connected(sink).len(), 14);
    }

    #[test]
    fn isolated_nodes_get_no_data() {
        let faults = faults(2, &[(0, 1), (0, 2)], &[]);
        let nodes: Vec<u32> = not_isolated(&faults).iter().map(|node| node.0).collect();
        assert_eq!(nodes, [1, 2, 3]);
        assert_eq!(not_isolated(&Faults::none(0)).len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn theorem_3_fewer_faulty_links_than_half_the_nodes(faults in links_only(1..=7)) {
            let found = find_tree(&faults);
            if faults.links().count() < 1 << (faults.dimensions() - 1) {
                prop_assert!(found.is_some());
            }
            let free = faults.all_nodes().find(|node| faults.word(*node) == 0);
            prop_assert_eq!(found.map(|tree| tree.sink()), free);
        }

        #[test]
        fn finds_a_tree_if_a_node_is_fault_free(faults in pattern(0..=6)) {
            let fault_free = faults.len() - faults.nodes().len();
            let tree = find_tree_anyway(&faults);
            prop_assert_eq!(tree.is_some(), fault_free > 0);
            if let Some(tree) = tree {
                let part = faults.connected(tree.sink());
                prop_assert_eq!(part.len(), faults.largest_component().len());
            }
        }

        #[test]
        fn data_nodes_are_not_isolated(faults in pattern(1..=6)) {
            let Some(tree) = find_tree_anyway(&faults) else { return Ok(()) };
            let data_nodes = faults.connected(tree.sink());
            prop_assume!(data_nodes.len() > 1);
            let reachable = not_isolated(&faults);
            prop_assert!(data_nodes.iter().all(|node| reachable.contains(node)));
        }
    }
}

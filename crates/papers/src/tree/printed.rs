//! What algorithm FTTC does if it is followed to the letter of Figure 13 of the 1996 paper: whose data is
//! lost, and who waits for ever. Only to be counted; [`ftsort_core::tree::plan`] is what works.
//!
//! Must never: correct anything.

use ftsort_core::tree::faults::Faults;
use ftsort_core::tree::shape::Tree;
use ftsort_core::vcube::Node;

/// How often what Figure 13 says goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// Parts that are sent to an active neighbour which is in trouble itself, and so does not receive.
    pub lost: u32,
    /// Messages for which a helper waits, and that are not sent: because the link between the two is
    /// faulty, or the other node.
    pub awaited: u32,
    /// Messages that come to a passive node by a detour, for which it does not wait.
    pub unheard: u32,
}

/// What Figure 13 does with a tree.
pub fn figure_13(tree: &Tree, faults: &Faults) -> Printed {
    let mut printed = Printed::default();
    for stage in 0..tree.dimensions() {
        let living = tree.active(stage).filter(|node| !faults.is_faulty(*node));
        living.for_each(|node| printed.stage(tree, faults, stage, node));
    }
    printed
}

impl Printed {
    /// What a node does at the stage at which it is active.
    fn stage(&mut self, tree: &Tree, faults: &Faults, stage: u32, node: Node) {
        let dimension = tree.dimension_at(stage);
        let later = tree.order()[stage as usize + 1..].iter();
        let neighbours: Vec<(Node, bool)> = tree
            .active_neighbours(node, stage)
            .zip(later)
            .map(|(neighbour, between)| (neighbour, faults.is_usable(node, *between)))
            .collect();
        let in_trouble = |neighbour: &Node| !faults.is_usable(*neighbour, dimension);
        if faults.is_usable(node, dimension) {
            let awaited = neighbours
                .iter()
                .filter(|(neighbour, joined)| in_trouble(neighbour) && !joined);
            self.awaited += awaited.count() as u32;
            return;
        }
        let mut parts = neighbours.iter().filter(|(_, joined)| *joined).peekable();
        // An isolated node has no way around either, and by UDD no data.
        let isolated = faults.word(node).count_ones() == faults.dimensions();
        let passive_lives = tree
            .parent(node)
            .is_some_and(|passive| !faults.is_faulty(passive));
        self.unheard += u32::from(parts.peek().is_none() && !isolated && passive_lives);
        self.lost += parts.filter(|(neighbour, _)| in_trouble(neighbour)).count() as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_core::tree::find::{Cost, find_tree, tree_to};
    use ftsort_core::tree::plan::{MessagePurpose, Remedy, TreePlan};
    use ftsort_core::tree::shares::data_nodes;
    use ftsort_core::tree::testing::{faults, figure_9, figure_14, figure_16, links_only};
    use proptest::prelude::*;

    #[test]
    fn node_1001_of_example_3_waits_for_ever() {
        let printed = figure_13(&Tree::simple(4), &figure_14());
        let awaited = Printed {
            awaited: 1,
            ..Printed::default()
        };
        assert_eq!(printed, awaited);
    }

    #[test]
    fn nodes_101_and_110_of_example_4_wait_for_ever() {
        let faults = figure_16();
        let printed = figure_13(&find_tree(&faults).expect("a tree"), &faults);
        // Both for node 111, which is faulty, and node 110 for node 100 over a faulty link as well.
        assert_eq!((printed.awaited, printed.lost), (3, 0));
    }

    #[test]
    fn a_part_for_a_neighbour_in_trouble_is_lost() {
        // At stage 0 nodes 1 and 3 are neighbours, and neither can send to its passive neighbour.
        let faults = faults(3, &[(1, 0), (3, 2)], &[]);
        let printed = figure_13(&Tree::simple(3), &faults);
        assert_eq!((printed.lost, printed.awaited, printed.unheard), (2, 0, 0));
    }

    #[test]
    fn what_comes_around_is_not_received() {
        // At stage 1 node 2 has only its link to node 3, which is idle.
        let faults = faults(3, &[(2, 0), (2, 6)], &[]);
        let printed = figure_13(&Tree::simple(3), &faults);
        assert_eq!((printed.lost, printed.awaited, printed.unheard), (0, 1, 1));
    }

    #[test]
    fn without_faulty_links_in_the_tree_nothing_goes_wrong() {
        let faults = figure_9();
        let tree = find_tree(&faults).expect("a tree");
        assert_eq!(figure_13(&tree, &faults), Printed::default());
    }

    proptest! {
        /// The plan sends the parts that are not lost, and a detour instead where all would be.
        #[test]
        fn the_plan_helps_where_help_is_not_lost(faults in links_only(1..=6), seed: u32) {
            let sink = Node(seed & (faults.len() as u32 - 1));
            let tree = tree_to(sink, &faults, Cost::Paper);
            let all = data_nodes(&faults, sink);
            // Who is cut off has no data, and does not send in the plan.
            if all.len() < faults.len() {
                return Ok(());
            }
            let plan = TreePlan::new(&tree, &faults, &all, Remedy::Partition).expect("connected");
            let mut parts = 0;
            for stage in 0..tree.dimensions() {
                let dimension = tree.dimension_at(stage);
                let later = &tree.order()[stage as usize + 1..];
                for node in tree.active(stage).filter(|node| !faults.is_usable(*node, dimension)) {
                    parts += later.iter().filter(|d| faults.is_usable(node, **d)).count();
                }
            }
            let printed = figure_13(&tree, &faults);
            prop_assert_eq!(plan.count(MessagePurpose::Delegated) + printed.lost as usize, parts);
            prop_assert!(plan.count(MessagePurpose::Detour) >= printed.unheard as usize);
            if printed.lost == 0 {
                prop_assert_eq!(plan.count(MessagePurpose::Detour), printed.unheard as usize);
            }
        }
    }
}

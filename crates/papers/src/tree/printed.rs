//! Counts the errors of algorithm FTTC if Figure 13 of the 1996 paper is followed to the letter:
//! lost data, and nodes that wait forever. [`ftsort_core::tree::plan`] is the corrected algorithm.
//!
//! Must never: correct an error of the figure.

use ftsort_core::tree::faults::Faults;
use ftsort_core::tree::shape::Tree;
use ftsort_core::vcube::Node;

/// The number of errors of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrintedErrors {
    /// Parts that are sent to an active neighbour which cannot send itself and therefore does not
    /// receive.
    pub lost: u32,
    /// Messages for which a helper waits and which are not sent, because the link between the two
    /// nodes is faulty, or the other node.
    pub awaited: u32,
    /// Messages that reach a passive node by a detour, for which it does not wait.
    pub unexpected: u32,
}

/// Counts the errors of Figure 13 for a tree.
pub fn figure_13(tree: &Tree, faults: &Faults) -> PrintedErrors {
    let mut printed = PrintedErrors::default();
    for stage in 0..tree.dimensions() {
        let living = tree.active(stage).filter(|node| !faults.is_faulty(*node));
        living.for_each(|node| printed.stage(tree, faults, stage, node));
    }
    printed
}

impl PrintedErrors {
    /// Counts the errors of a node in the stage in which it is active.
    fn stage(&mut self, tree: &Tree, faults: &Faults, stage: u32, node: Node) {
        let dimension = tree.dimension_at(stage);
        let later = tree.order()[stage as usize + 1..].iter();
        let neighbours: Vec<(Node, bool)> = tree
            .active_neighbours(node, stage)
            .zip(later)
            .map(|(neighbour, between)| (neighbour, faults.is_usable(node, *between)))
            .collect();
        let cannot_send = |neighbour: &Node| !faults.is_usable(*neighbour, dimension);
        if faults.is_usable(node, dimension) {
            let awaited = neighbours
                .iter()
                .filter(|(neighbour, joined)| cannot_send(neighbour) && !joined);
            self.awaited += awaited.count() as u32;
            return;
        }
        let mut parts = neighbours.iter().filter(|(_, joined)| *joined).peekable();
        // An isolated node has no detour either, and no data, by UDD.
        let isolated = faults.word(node).count_ones() == faults.dimensions();
        let passive_lives = tree
            .parent(node)
            .is_some_and(|passive| !faults.is_faulty(passive));
        self.unexpected += u32::from(parts.peek().is_none() && !isolated && passive_lives);
        self.lost += parts
            .filter(|(neighbour, _)| cannot_send(neighbour))
            .count() as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::find::find_tree;
    use ftsort_core::tree::find::{Cost, tree_to};
    use ftsort_core::tree::plan::{MessagePurpose, Remedy, TreePlan};
    use ftsort_core::tree::testing::{faults, figure_9, figure_14, figure_16, links_only};
    use proptest::prelude::*;

    #[test]
    fn node_1001_of_example_3_waits_forever() {
        let printed = figure_13(&Tree::simple(4), &figure_14());
        let awaited = PrintedErrors {
            awaited: 1,
            ..PrintedErrors::default()
        };
        assert_eq!(printed, awaited);
    }

    #[test]
    fn nodes_101_and_110_of_example_4_wait_forever() {
        let faults = figure_16();
        let printed = figure_13(&find_tree(&faults).expect("a tree"), &faults);
        // Both wait for node 111, which is faulty. Node 110 also waits for node 100 over a faulty
        // link.
        assert_eq!((printed.awaited, printed.lost), (3, 0));
    }

    #[test]
    fn a_part_for_a_neighbour_that_cannot_send_is_lost() {
        // At stage 0 nodes 1 and 3 are neighbours, and neither can send to its passive neighbour.
        let faults = faults(3, &[(1, 0), (3, 2)], &[]);
        let printed = figure_13(&Tree::simple(3), &faults);
        assert_eq!(
            (printed.lost, printed.awaited, printed.unexpected),
            (2, 0, 0)
        );
    }

    #[test]
    fn a_detour_is_not_received() {
        // At stage 1 node 2 has only its link to node 3, which is idle.
        let faults = faults(3, &[(2, 0), (2, 6)], &[]);
        let printed = figure_13(&Tree::simple(3), &faults);
        assert_eq!(
            (printed.lost, printed.awaited, printed.unexpected),
            (0, 1, 1)
        );
    }

    #[test]
    fn a_tree_without_faulty_links_has_no_errors() {
        let faults = figure_9();
        let tree = find_tree(&faults).expect("a tree");
        assert_eq!(figure_13(&tree, &faults), PrintedErrors::default());
    }

    proptest! {
        /// The plan sends the parts that are not lost, and a detour where all parts would be lost.
        #[test]
        fn the_plan_sends_the_parts_that_are_not_lost(faults in links_only(1..=6), seed: u32) {
            let sink = Node(seed & (faults.len() as u32 - 1));
            let tree = tree_to(sink, &faults, Cost::Paper);
            let all = faults.connected(sink);
            // A node that is cut off has no data, and does not send in the plan.
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
            prop_assert!(plan.count(MessagePurpose::Detour) >= printed.unexpected as usize);
            if printed.lost == 0 {
                prop_assert_eq!(plan.count(MessagePurpose::Detour), printed.unexpected as usize);
            }
        }
    }
}

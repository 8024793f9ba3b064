//! Applies a schedule to lists: moves items as an engine moves messages. The tests check plans with
//! it, and it is the shortest description of the meaning of a [`LinkMessage`].
//!
//! Must never: depend on the reason for a transfer.

use std::collections::VecDeque;

use ftsort_core::tree::plan::Fraction;
use ftsort_core::tree::schedule::LinkMessage;

/// The items at all nodes.
struct NodeLists<T> {
    /// The items that each node holds.
    held: Vec<Vec<T>>,
    /// The parts into which each sender has divided its items. A part that has left is empty.
    parts: Vec<Option<Vec<Vec<T>>>>,
    /// The items that each node must forward, with their message.
    passing: Vec<VecDeque<(u32, Vec<T>)>>,
}

impl<T> NodeLists<T> {
    /// Removes the items of a transfer from the sender. Returns None if they are not there.
    fn take(&mut self, transfer: &LinkMessage) -> Option<Vec<T>> {
        let from = transfer.from.0 as usize;
        let Some(part) = transfer.fraction else {
            let passing = &mut self.passing[from];
            let found = passing
                .iter()
                .position(|(message, _)| *message == transfer.message)?;
            return passing.remove(found).map(|(_, items)| items);
        };
        let held = &mut self.held[from];
        let parts = self.parts[from].get_or_insert_with(|| divide(std::mem::take(held), part.of));
        let part = parts.get_mut(part.index as usize)?;
        Some(std::mem::take(part))
    }

    fn put(&mut self, transfer: &LinkMessage, items: Vec<T>) {
        let to = transfer.to.0 as usize;
        if transfer.delivered {
            self.held[to].extend(items)
        } else {
            self.passing[to].push_back((transfer.message, items))
        }
    }
}

/// Divides a list into equal parts.
fn divide<T>(mut items: Vec<T>, of: u32) -> Vec<Vec<T>> {
    let len = items.len();
    let mut parts: Vec<Vec<T>> = (0..of)
        .rev()
        .map(|index| Fraction { index, of }.range(len).start)
        .map(|start| items.split_off(start))
        .collect();
    parts.reverse();
    parts
}

/// Applies the steps of a schedule to the items that each node holds. Returns the items afterwards, or None if a
/// node must forward a message that it did not receive, which no plan asks for.
pub fn replay<T>(steps: &[Vec<LinkMessage>], holdings: Vec<Vec<T>>) -> Option<Vec<Vec<T>>> {
    let nodes = holdings.len();
    let mut lists = NodeLists {
        held: holdings,
        parts: (0..nodes).map(|_| None).collect(),
        passing: (0..nodes).map(|_| VecDeque::new()).collect(),
    };
    for step in steps {
        let moved: Option<Vec<Vec<T>>> = step.iter().map(|transfer| lists.take(transfer)).collect();
        for (transfer, items) in step.iter().zip(moved?) {
            lists.put(transfer, items);
        }
    }
    Some(lists.held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::find::{faulty_stages, find_tree};
    use ftsort_core::tree::faults::{Faults, Link};
    use ftsort_core::tree::plan::{MessagePurpose, Remedy, TreePlan};
    use ftsort_core::tree::schedule::{LinkModel, Ports, StageStart, TreeSchedule};
    use ftsort_core::tree::shape::Tree;
    use ftsort_core::tree::testing::{cases, faults, figure_14, figure_16, links_only};
    use ftsort_core::vcube::{Node, NodeSet};
    use proptest::prelude::*;

    const LOCKSTEP: LinkModel = LinkModel::new(Ports::All, StageStart::Synchronous);

    /// Returns `each` items for each of these nodes: (node, number).
    fn items(faults: &Faults, of: &NodeSet, each: usize) -> Vec<Vec<(u32, usize)>> {
        let own = |node: Node| {
            if of.contains(node) {
                (0..each).map(|number| (node.0, number)).collect()
            } else {
                Vec::new()
            }
        };
        faults.all_nodes().map(own).collect()
    }

    /// Returns the items that a node holds after this number of steps.
    fn after(
        schedule: &TreeSchedule,
        steps: usize,
        holdings: &[Vec<(u32, usize)>],
        node: u32,
    ) -> Vec<(u32, usize)> {
        let mut lists = replay(&schedule.steps()[..steps], holdings.to_vec()).expect("complete");
        let mut held = lists.swap_remove(node as usize);
        held.sort_unstable();
        held
    }

    #[test]
    fn example_3_step_by_step() {
        let (faults, tree) = (figure_14(), Tree::simple(4));
        let all = faults.connected(tree.sink());
        let holdings = items(&faults, &all, 4);
        let plan = TreePlan::new(&tree, &faults, &all, Remedy::Partition);
        let schedule = TreeSchedule::new(&plan.expect("all are connected"), LOCKSTEP);
        // Node 1011 divides its data into two parts, for nodes 1111 and 0011.
        let halves = [
            after(&schedule, 1, &holdings, 0b1111),
            after(&schedule, 1, &holdings, 0b0011),
        ];
        assert_eq!(
            halves[0],
            [(11, 0), (11, 1), (15, 0), (15, 1), (15, 2), (15, 3)]
        );
        assert_eq!(
            halves[1],
            [(3, 0), (3, 1), (3, 2), (3, 3), (11, 2), (11, 3)]
        );
        // Their passive nodes get the merged data; node 1010 does nothing in this stage.
        assert_eq!(after(&schedule, 2, &holdings, 0b1110).len(), 10);
        assert_eq!(after(&schedule, 2, &holdings, 0b0010).len(), 10);
        assert_eq!(
            after(&schedule, 2, &holdings, 0b1010),
            [(10, 0), (10, 1), (10, 2), (10, 3)]
        );
        // n + k = 4 + 1 steps.
        assert_eq!(schedule.steps().len(), 5);
        assert_eq!(after(&schedule, 5, &holdings, 0).len(), 64);
    }

    #[test]
    fn example_4_step_by_step() {
        let faults = figure_16();
        let tree = find_tree(&faults).expect("a tree");
        let all = faults.connected(tree.sink());
        let holdings = items(&faults, &all, 1);
        let plan = TreePlan::new(&tree, &faults, &all, Remedy::Partition);
        let schedule = TreeSchedule::new(&plan.expect("all are connected"), LOCKSTEP);
        // At stage 0 node 100 sends to node 101, which sends to node 001.
        assert_eq!(
            after(&schedule, 1, &holdings, 0b101),
            [(0b100, 0), (0b101, 0)]
        );
        assert_eq!(
            after(&schedule, 2, &holdings, 0b001),
            [(0b001, 0), (0b100, 0), (0b101, 0)]
        );
        assert_eq!(schedule.steps().len(), 4);
        assert_eq!(after(&schedule, 4, &holdings, 0b001).len(), 7);
    }

    /// Checks that all items of these nodes are at the sink exactly once, and that no other node
    /// holds any.
    fn check(
        faults: &Faults,
        tree: &Tree,
        remedy: Remedy,
        of: &NodeSet,
        each: usize,
    ) -> Result<TreePlan, TestCaseError> {
        let sink = tree.sink();
        let plan = TreePlan::new(tree, faults, of, remedy).expect("connected");
        let holdings = items(faults, of, each);
        let mut all = holdings.concat();
        all.sort_unstable();
        for ports in [Ports::All, Ports::One] {
            for stage_start in [StageStart::Synchronous, StageStart::PerNode] {
                let schedule = TreeSchedule::new(&plan, LinkModel::new(ports, stage_start));
                let mut after = replay(schedule.steps(), holdings.clone()).expect("complete");
                after[sink.0 as usize].sort_unstable();
                prop_assert_eq!(&after[sink.0 as usize], &all);
                prop_assert_eq!(after.concat().len(), all.len());
            }
        }
        Ok(plan)
    }

    /// Seven faulty links, of eight that Theorem 7 allows. At stage 1 node 11 has one usable link,
    /// to a node that has sent already. The proof of Theorem 5 omits this case, which doubles the
    /// steps.
    #[test]
    fn theorem_5_does_not_hold_with_a_detour() {
        let links = [
            (3, 11),
            (5, 13),
            (6, 14),
            (7, 15),
            (9, 11),
            (10, 11),
            (10, 14),
        ];
        let faults = faults(4, &links, &[]);
        let tree = find_tree(&faults).expect("Theorem 3");
        assert_eq!((tree.sink(), tree.order()), (Node(0), &[2, 3, 1, 0][..]));
        let all = faults.connected(tree.sink());
        let plan = TreePlan::new(&tree, &faults, &all, Remedy::Partition).expect("connected");
        assert_eq!(faulty_stages(&plan), 2);
        let around = plan
            .messages()
            .iter()
            .find(|message| message.purpose == MessagePurpose::Detour);
        let way = [11, 15, 13, 9, 1].map(Node).to_vec();
        assert_eq!(around.map(|message| &message.path), Some(&way));
        assert_eq!(TreeSchedule::new(&plan, LOCKSTEP).steps().len(), 2 * 4);
    }

    /// Examines all sets of fewer than 2^(n-1) faulty links. Returns their number, the number for
    /// which the plan of FIND_TREE's tree takes 2n steps or more, and the largest number of steps.
    fn every_pattern_below_the_bound(n: u32) -> (u64, u64, usize) {
        let links: Vec<Link> = Faults::none(n)
            .all_nodes()
            .flat_map(|node| (0..n).map(move |dimension| (node, dimension)))
            .filter(|(node, dimension)| node.0 >> dimension & 1 == 0)
            .map(|(node, dimension)| Link::of(node, dimension))
            .collect();
        let (mut patterns, mut twice, mut most) = (0, 0, 0);
        // Each pattern with the index of the next link that may be added.
        let mut open = vec![(Faults::none(n), 0)];
        while let Some((faults, next)) = open.pop() {
            let tree = find_tree(&faults).expect("Theorem 3");
            let all = faults.connected(tree.sink());
            let plan = TreePlan::new(&tree, &faults, &all, Remedy::Partition).expect("connected");
            let steps = TreeSchedule::new(&plan, LOCKSTEP).steps().len();
            patterns += 1;
            twice += u64::from(steps >= 2 * n as usize);
            most = most.max(steps);
            if faults.links().count() + 1 < 1 << (n - 1) {
                for (place, link) in links.iter().enumerate().skip(next) {
                    let mut more = faults.clone();
                    more.add_link(*link);
                    open.push((more, place + 1));
                }
            }
        }
        (patterns, twice, most)
    }

    #[test]
    fn theorem_5_every_pattern_of_three_dimensions_below_the_bound() {
        // 1 + 12 + 66 + 220 sets of up to three links.
        assert_eq!(every_pattern_below_the_bound(3), (299, 0, 5));
    }

    #[test]
    #[ignore = "4.5 million patterns take a minute with --release"]
    fn theorem_5_every_pattern_of_four_dimensions_below_the_bound() {
        assert_eq!(every_pattern_below_the_bound(4), (4_514_873, 5606, 9));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn all_data_reaches_the_sink_exactly_once(
            (faults, tree) in cases(0..=6),
            each in 0_usize..9,
            some: u64,
        ) {
            let all = faults.connected(tree.sink());
            let few = all.iter().filter(|node| some >> node.0 & 1 == 1);
            let few = NodeSet::of(faults.len(), few);
            for remedy in [Remedy::Partition, Remedy::Delegate, Remedy::Reroute] {
                check(&faults, &tree, remedy, &all, each)?;
                // The other nodes have no data, but help those that have.
                check(&faults, &tree, remedy, &few, each)?;
            }
        }

        #[test]
        fn theorem_5_holds_without_detours(
            faults in links_only(1..=7),
        ) {
            let Some(tree) = find_tree(&faults) else { return Ok(()) };
            let all = faults.connected(tree.sink());
            let plan = check(&faults, &tree, Remedy::Partition, &all, 3)?;
            let (n, k) = (faults.dimensions(), faulty_stages(&plan));
            // All links of the sink are fault-free, so the last stage cannot be faulty.
            prop_assert!(k < n);
            let steps = TreeSchedule::new(&plan, LOCKSTEP).steps().len() as u32;
            // "We omit this case in the later analysis": the case in which no neighbour can help.
            match plan.count(MessagePurpose::Detour) {
                0 => prop_assert_eq!(steps, n + k),
                _ => prop_assert!(steps > n + k),
            }
        }

        #[test]
        fn theorem_7_holds_for_nodes_connected_to_the_sink(
            faults in links_only(1..=7),
        ) {
            prop_assume!(faults.links().count() < 1 << (faults.dimensions() - 1));
            let tree = find_tree(&faults).expect("Theorem 3");
            let all = faults.connected(tree.sink());
            check(&faults, &tree, Remedy::Partition, &all, 2)?;
        }
    }
}

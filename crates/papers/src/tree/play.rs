//! Plays a schedule on lists: what an engine does with messages, done by moving items. The tests judge
//! plans with it, and it is the shortest answer to "what do I do with a [`LinkMessage`]".
//!
//! Must never: know why a transfer is there.

use std::collections::VecDeque;

use ftsort_core::tree::plan::Fraction;
use ftsort_core::tree::schedule::{LinkMessage, TreeSchedule};

/// What the nodes have.
struct Desk<T> {
    /// What each node holds.
    held: Vec<Vec<T>>,
    /// The parts into which each sender has divided what it held, those that have left being empty.
    parts: Vec<Option<Vec<Vec<T>>>>,
    /// What nodes are to pass on, each with its message.
    passing: Vec<VecDeque<(u32, Vec<T>)>>,
}

impl<T> Desk<T> {
    /// What leaves with a transfer; None if it is not there.
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
        match transfer.delivered {
            true => self.held[to].extend(items),
            false => self.passing[to].push_back((transfer.message, items)),
        }
    }
}

/// Equal parts of a list.
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

/// Plays a schedule: from what each node holds before to what each holds after it. None if a node is to
/// pass on what never came to it, which no plan asks for.
pub fn play<T>(schedule: &TreeSchedule, holdings: Vec<Vec<T>>) -> Option<Vec<Vec<T>>> {
    let nodes = holdings.len();
    let mut desk = Desk {
        held: holdings,
        parts: (0..nodes).map(|_| None).collect(),
        passing: (0..nodes).map(|_| VecDeque::new()).collect(),
    };
    for step in schedule.steps() {
        let moved: Option<Vec<Vec<T>>> = step.iter().map(|transfer| desk.take(transfer)).collect();
        for (transfer, items) in step.iter().zip(moved?) {
            desk.put(transfer, items);
        }
    }
    Some(desk.held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_core::tree::faults::{Faults, Link};
    use ftsort_core::tree::find::find_tree;
    use ftsort_core::tree::plan::{MessagePurpose, Remedy, TreePlan};
    use ftsort_core::tree::schedule::{LinkModel, Ports, StageStart};
    use ftsort_core::tree::shape::Tree;
    use ftsort_core::tree::shares::data_nodes;
    use ftsort_core::tree::testing::{cases, faults, figure_14, figure_16, links_only};
    use ftsort_core::vcube::{Node, NodeSet};
    use proptest::prelude::*;

    const LOCKSTEP: LinkModel = LinkModel {
        ports: Ports::All,
        stage_start: StageStart::Synchronous,
    };

    /// So many items of each of these nodes: (node, number).
    fn items(faults: &Faults, of: &NodeSet, each: usize) -> Vec<Vec<(u32, usize)>> {
        let own = |node: Node| match of.contains(node) {
            true => (0..each).map(|number| (node.0, number)).collect(),
            false => Vec::new(),
        };
        faults.all_nodes().map(own).collect()
    }

    /// What a node holds after so many steps.
    fn after(
        schedule: &TreeSchedule,
        steps: usize,
        holdings: &[Vec<(u32, usize)>],
        node: u32,
    ) -> Vec<(u32, usize)> {
        let mut desk = play(&schedule.first(steps), holdings.to_vec()).expect("played");
        let mut held = desk.swap_remove(node as usize);
        held.sort_unstable();
        held
    }

    #[test]
    fn example_3_step_by_step() {
        let (faults, tree) = (figure_14(), Tree::simple(4));
        let all = data_nodes(&faults, tree.sink());
        let holdings = items(&faults, &all, 4);
        let plan = TreePlan::new(&tree, &faults, &all, Remedy::Partition);
        let schedule = TreeSchedule::new(&plan.expect("all are connected"), LOCKSTEP);
        // Node 1011 divides its data into two partitions, for nodes 1111 and 0011.
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
        // Their passive nodes get what was merged; node 1010 does nothing at this stage.
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
        let all = data_nodes(&faults, tree.sink());
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

    /// Everything that these nodes had is at the sink, once, and nothing anywhere else.
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
                let schedule = TreeSchedule::new(&plan, LinkModel { ports, stage_start });
                let mut after = play(&schedule, holdings.clone()).expect("played");
                after[sink.0 as usize].sort_unstable();
                prop_assert_eq!(&after[sink.0 as usize], &all);
                prop_assert_eq!(after.concat().len(), all.len());
            }
        }
        Ok(plan)
    }

    /// Seven faulty links, of eight that Theorem 7 allows. At stage 1 node 11 has one usable link, to a node
    /// that has sent already: the case that the proof of Theorem 5 omits, and twice the steps.
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
        let all = data_nodes(&faults, tree.sink());
        let plan = TreePlan::new(&tree, &faults, &all, Remedy::Partition).expect("connected");
        assert_eq!(plan.faulty_stages(), 2);
        let around = plan
            .messages()
            .iter()
            .find(|message| message.purpose == MessagePurpose::Detour);
        let way = [11, 15, 13, 9, 1].map(Node).to_vec();
        assert_eq!(around.map(|message| &message.path), Some(&way));
        assert_eq!(TreeSchedule::new(&plan, LOCKSTEP).steps().len(), 2 * 4);
    }

    /// All sets of fewer than 2^(n-1) faulty links: how many there are, for how many of them the plan for
    /// FIND_TREE's tree takes 2n steps or more, and the most steps.
    fn every_pattern_below_the_bound(n: u32) -> (u64, u64, usize) {
        let links: Vec<Link> = Faults::none(n)
            .all_nodes()
            .flat_map(|node| (0..n).map(move |dimension| (node, dimension)))
            .filter(|(node, dimension)| node.0 >> dimension & 1 == 0)
            .map(|(node, dimension)| Link::of(node, dimension))
            .collect();
        let (mut patterns, mut twice, mut most) = (0, 0, 0);
        // Each with the place of the next link that may be added.
        let mut open = vec![(Faults::none(n), 0)];
        while let Some((faults, next)) = open.pop() {
            let tree = find_tree(&faults).expect("Theorem 3");
            let all = data_nodes(&faults, tree.sink());
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
    #[ignore = "four and a half million patterns: a minute, with --release"]
    fn theorem_5_every_pattern_of_four_dimensions_below_the_bound() {
        assert_eq!(every_pattern_below_the_bound(4), (4_514_873, 5606, 9));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn all_data_reaches_the_sink_once_whatever_is_faulty(
            (faults, tree) in cases(0..=6),
            each in 0_usize..9,
            some: u64,
        ) {
            let all = data_nodes(&faults, tree.sink());
            let mut few = NodeSet::new(faults.len());
            all.iter().filter(|node| some >> node.0 & 1 == 1).for_each(|node| few.insert(node));
            for remedy in [Remedy::Partition, Remedy::Delegate, Remedy::Reroute] {
                check(&faults, &tree, remedy, &all, each)?;
                // The others have no data, but help those that have.
                check(&faults, &tree, remedy, &few, each)?;
            }
        }

        #[test]
        fn theorem_5_n_plus_k_steps_and_less_than_twice_as_many_as_without_faults(
            faults in links_only(1..=7),
        ) {
            let Some(tree) = find_tree(&faults) else { return Ok(()) };
            let all = data_nodes(&faults, tree.sink());
            let plan = check(&faults, &tree, Remedy::Partition, &all, 3)?;
            let (n, k) = (faults.dimensions(), plan.faulty_stages());
            // All links of the sink are fault-free, so that the last stage cannot be faulty.
            prop_assert!(k < n);
            let steps = TreeSchedule::new(&plan, LOCKSTEP).steps().len() as u32;
            // "We omit this case in the later analysis": that where nobody can help.
            match plan.count(MessagePurpose::Detour) {
                0 => prop_assert_eq!(steps, n + k),
                _ => prop_assert!(steps > n + k),
            }
        }

        #[test]
        fn theorem_7_below_its_bound_all_who_are_connected_to_the_sink_are_heard(
            faults in links_only(1..=7),
        ) {
            prop_assume!(faults.links().count() < 1 << (faults.dimensions() - 1));
            let tree = find_tree(&faults).expect("Theorem 3");
            let all = data_nodes(&faults, tree.sink());
            check(&faults, &tree, Remedy::Partition, &all, 2)?;
        }
    }
}

//! The cost of a plan on the machine of the 1996 paper: steps, hops and sizes, computed from the
//! schedule.
//!
//! The paper counts steps alone, so a step that moves a tenth of the data is as long as a step that
//! moves all of it. Besides the steps this module counts the data that crosses links, and the time
//! if each step is as long as its largest message.
//!
//! Must never: be mistaken for time on a real machine.

use ftsort_core::tree::plan::TreePlan;
use ftsort_core::tree::schedule::TreeSchedule;

/// The effect of merging on sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merging {
    /// Sizes add up: sorted lists become one list.
    Adds,
    /// Sizes stay: two vectors become their sum. A part of a vector is added in its place.
    Keeps,
}

/// The cost of a plan. Sizes are in units of one node's data if all nodes had data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlanCost {
    /// The number of parallel steps.
    pub steps: u32,
    /// The number of times that a message crosses a link.
    pub hops: u64,
    /// The amount of data that crosses links.
    pub volume: f64,
    /// The sum of the largest sizes of all steps.
    pub time: f64,
}

/// Returns the cost of a schedule. The same amount of data is distributed over the contributors,
/// for any number of them.
pub fn cost(plan: &TreePlan, schedule: &TreeSchedule, merging: Merging) -> PlanCost {
    let nodes = 1_usize << plan.tree().dimensions();
    let each = nodes as f64 / plan.contributors().len() as f64;
    let own = match merging {
        Merging::Adds => each,
        Merging::Keeps => 1.0,
    };
    let mut held = vec![0.0; nodes];
    for node in plan.contributors().iter() {
        held[node.0 as usize] = own;
    }
    let mut sizes: Vec<f64> = vec![0.0; plan.messages().len()];
    let mut cost = PlanCost::default();
    for step in schedule.steps() {
        let mut largest = 0.0_f64;
        for transfer in step {
            let size = &mut sizes[transfer.message as usize];
            // No message is merged at a node while parts of its data are still to leave, so all
            // parts have the same total.
            if let Some(part) = transfer.fraction {
                *size = held[transfer.from.0 as usize] / f64::from(part.of);
            }
            cost.hops += 1;
            cost.volume += *size;
            largest = largest.max(*size);
        }
        for transfer in step.iter().filter(|transfer| transfer.delivered) {
            let (size, held) = (
                sizes[transfer.message as usize],
                &mut held[transfer.to.0 as usize],
            );
            *held = match merging {
                Merging::Adds => *held + size,
                Merging::Keeps => (*held + size).min(1.0),
            };
        }
        cost.steps += 1;
        cost.time += largest;
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_core::tree::faults::Faults;
    use ftsort_core::tree::plan::Remedy;
    use ftsort_core::tree::schedule::{LinkModel, Ports, StageStart};
    use ftsort_core::tree::shape::Tree;
    use ftsort_core::tree::testing::{cases, figure_14};
    use proptest::prelude::*;

    fn counted(faults: &Faults, tree: &Tree, remedy: Remedy, merging: Merging) -> PlanCost {
        let holders = faults.connected(tree.sink());
        let plan = TreePlan::new(tree, faults, &holders, remedy).expect("connected");
        let machine = LinkModel::new(Ports::All, StageStart::Synchronous);
        cost(&plan, &TreeSchedule::new(&plan, machine), merging)
    }

    #[test]
    fn without_faults() {
        let faults = Faults::none(4);
        let sums = counted(&faults, &Tree::simple(4), Remedy::Partition, Merging::Keeps);
        assert_eq!((sums.steps, sums.hops), (4, 15));
        assert!((sums.volume - 15.0).abs() < 1e-9 && (sums.time - 4.0).abs() < 1e-9);
        // Each stage halves the number of senders and doubles the data of each.
        let lists = counted(&faults, &Tree::simple(4), Remedy::Partition, Merging::Adds);
        assert!((lists.volume - 32.0).abs() < 1e-9 && (lists.time - 15.0).abs() < 1e-9);
    }

    #[test]
    fn example_3() {
        // Two halves in the first step, messages of 1.5 in the second, and one message fewer
        // upwards.
        let lists = counted(
            &figure_14(),
            &Tree::simple(4),
            Remedy::Partition,
            Merging::Adds,
        );
        assert_eq!((lists.steps, lists.hops), (5, 16));
        // The first step moves one unit from each node that need not wait; the second half a unit
        // more; and so on, except the last: node 1000 lacks the data that node 1010 did not get.
        let steps = 1.0 + 1.5 + 2.5 + 4.5 + 7.5;
        assert!((lists.time - steps).abs() < 1e-9, "{lists:?}");
        let detour = counted(
            &figure_14(),
            &Tree::simple(4),
            Remedy::Reroute,
            Merging::Adds,
        );
        assert_eq!((detour.steps, detour.hops), (6, 17));
        assert!((detour.time - 17.0).abs() < 1e-9, "{detour:?}");
    }

    proptest! {
        #[test]
        fn all_data_crosses_the_links_of_the_sink((faults, tree) in cases(1..=6)) {
            let data_nodes = faults.connected(tree.sink());
            prop_assume!(data_nodes.len() > 1);
            for remedy in [Remedy::Partition, Remedy::Reroute] {
                let lists = counted(&faults, &tree, remedy, Merging::Adds);
                let sums = counted(&faults, &tree, remedy, Merging::Keeps);
                prop_assert_eq!((lists.steps, lists.hops), (sums.steps, sums.hops));
                // Each unit moves at least once, in the tree or around it.
                let away = faults.len() as f64 * (1.0 - 1.0 / data_nodes.len() as f64);
                prop_assert!(lists.volume >= away - 1e-9);
                prop_assert!(sums.volume <= sums.hops as f64 + 1e-9);
                prop_assert!(sums.time <= f64::from(sums.steps) + 1e-9);
                prop_assert!(lists.time <= lists.volume + 1e-9);
            }
        }
    }
}

//! The steps of a plan: the hop that each message makes in each step, on a machine like the 1996 paper's.
//!
//! In a step a message crosses one link, and a link carries one message in each direction ("full-duplex",
//! Section 3.1). The model of the machine states whether a node uses several links in a step, and whether a
//! stage begins only after the one before has ended. Must never: let a node send before it has all data that
//! it must send.

use crate::tree::plan::{Fraction, TreeMessage, TreePlan};
use crate::vcube::Node;

/// The number of links that a node uses in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// All links, as Theorem 5 requires: all parts leave at once.
    All,
    /// One for sending and one for receiving, as a process with one network card.
    One,
}

/// The start of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageStart {
    /// A stage starts after the one before has ended at all nodes. The paper's proofs count in this way.
    Synchronous,
    /// A stage starts at each node when the node has all its data. The paper's programs run in this way.
    PerNode,
}

/// The model of the machine, which determines the hops of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkModel {
    /// The number of links that a node uses at once.
    pub ports: Ports,
    /// The start of a stage.
    pub stage_start: StageStart,
}

impl LinkModel {
    /// The machine with these ports and starts of stages.
    pub const fn new(ports: Ports, stage_start: StageStart) -> LinkModel {
        LinkModel { ports, stage_start }
    }
}

/// One hop of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkMessage {
    /// The index of the message in [`TreePlan::messages`].
    pub message: u32,
    /// The node that sends.
    pub from: Node,
    /// The node that receives.
    pub to: Node,
    /// The part of the sender's data that it sends; None if it forwards a message.
    ///
    /// All parts are of the data that the sender had when the first part left. It receives no data after
    /// that.
    pub fraction: Option<Fraction>,
    /// Whether this is the last hop: the receiver merges the data with its own. Otherwise it keeps the
    /// message apart and forwards it.
    pub delivered: bool,
}

/// The hops of a plan, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSchedule {
    steps: Vec<Vec<LinkMessage>>,
}

impl TreeSchedule {
    /// Schedules a plan. In each step every message makes a hop if its links are free and its sender has all
    /// its data, in the order of the plan.
    pub fn new(plan: &TreePlan, machine: LinkModel) -> TreeSchedule {
        let mut builder = ScheduleBuilder::new(plan, machine);
        let mut steps = Vec::new();
        while !builder.is_done() {
            let step = builder.step();
            // Theorem 6: no plan waits for itself. A defect must not fill the memory with empty steps.
            assert!(!step.is_empty(), "every message waits for another");
            steps.push(step);
        }
        TreeSchedule { steps }
    }

    /// The hops of each step.
    pub fn steps(&self) -> &[Vec<LinkMessage>] {
        &self.steps
    }
}

/// The state of a schedule under construction.
struct ScheduleBuilder<'a> {
    messages: &'a [TreeMessage],
    machine: LinkModel,
    /// The number of hops that each message has made.
    hops: Vec<usize>,
    /// The messages that have not arrived, in the plan's order.
    open: Vec<u32>,
    /// The number of messages for which each node still waits.
    expected: Vec<u32>,
}

impl<'a> ScheduleBuilder<'a> {
    fn new(plan: &'a TreePlan, machine: LinkModel) -> ScheduleBuilder<'a> {
        let messages = plan.messages();
        let mut expected = vec![0; 1 << plan.tree().dimensions()];
        for message in messages {
            expected[message.to().0 as usize] += 1;
        }
        ScheduleBuilder {
            messages,
            machine,
            hops: vec![0; messages.len()],
            open: (0..messages.len() as u32).collect(),
            expected,
        }
    }

    fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    fn step(&mut self) -> Vec<LinkMessage> {
        let stage = self.messages[self.open[0] as usize].stage;
        let mut in_use = LinkUse::none(self.expected.len());
        let mut transfers = Vec::new();
        for index in &self.open {
            let message = &self.messages[*index as usize];
            if self.machine.stage_start == StageStart::Synchronous && message.stage > stage {
                break;
            }
            let hop = self.hops[*index as usize];
            let complete = hop > 0 || self.expected[message.from().0 as usize] == 0;
            let (from, to) = (message.path[hop], message.path[hop + 1]);
            if complete && in_use.reserve(from, to, self.machine.ports) {
                transfers.push(LinkMessage {
                    message: *index,
                    from,
                    to,
                    fraction: (hop == 0).then_some(message.fraction),
                    delivered: hop + 2 == message.path.len(),
                });
            }
        }
        // After the loop above, so that data that arrives in this step is sent in the next step at the
        // earliest.
        for transfer in &transfers {
            self.hops[transfer.message as usize] += 1;
            if transfer.delivered {
                self.expected[transfer.to.0 as usize] -= 1;
            }
        }
        let (messages, hops) = (self.messages, &self.hops);
        self.open
            .retain(|index| hops[*index as usize] + 1 < messages[*index as usize].path.len());
        transfers
    }
}

/// The links in use in a step.
struct LinkUse {
    /// The dimensions along which each node sends, as bits.
    sending: Vec<u32>,
    /// Whether each node receives.
    receiving: Vec<bool>,
}

impl LinkUse {
    fn none(nodes: usize) -> LinkUse {
        LinkUse {
            sending: vec![0; nodes],
            receiving: vec![false; nodes],
        }
    }

    /// Reserves the link from one node to the other, and returns whether it was free.
    fn reserve(&mut self, from: Node, to: Node, ports: Ports) -> bool {
        let link = from.0 ^ to.0;
        let sending = &mut self.sending[from.0 as usize];
        let receiving = &mut self.receiving[to.0 as usize];
        let free = match ports {
            Ports::All => *sending & link == 0,
            Ports::One => *sending == 0 && !*receiving,
        };
        if free {
            *sending |= link;
            *receiving = true;
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::faults::Faults;
    use crate::tree::plan::Remedy;
    use crate::tree::shape::Tree;
    use crate::tree::testing::{cases, faults};
    use proptest::prelude::*;

    const REMEDIES: [Remedy; 3] = [Remedy::Partition, Remedy::Delegate, Remedy::Reroute];
    const MACHINES: [LinkModel; 4] = [
        LinkModel::new(Ports::All, StageStart::Synchronous),
        LinkModel::new(Ports::All, StageStart::PerNode),
        LinkModel::new(Ports::One, StageStart::Synchronous),
        LinkModel::new(Ports::One, StageStart::PerNode),
    ];

    fn plan(faults: &Faults, tree: &Tree, remedy: Remedy) -> TreePlan {
        let data_nodes = faults.connected(tree.sink());
        TreePlan::new(tree, faults, &data_nodes, remedy).expect("all are connected")
    }

    #[test]
    fn takes_one_step_per_dimension_without_faults() {
        for n in 0..=6 {
            let plan = plan(&Faults::none(n), &Tree::simple(n), Remedy::Partition);
            for machine in MACHINES {
                assert_eq!(TreeSchedule::new(&plan, machine).steps().len(), n as usize);
            }
        }
    }

    /// Node 7 of a simple tree cannot send to node 6, so nodes 5 and 3 forward its data. If each node starts
    /// its stages by itself, the other nodes are not delayed.
    #[test]
    fn one_port_sends_two_parts_in_two_steps() {
        let plan = plan(
            &faults(3, &[(7, 6)], &[]),
            &Tree::simple(3),
            Remedy::Partition,
        );
        let steps = MACHINES.map(|machine| TreeSchedule::new(&plan, machine).steps().len());
        assert_eq!(steps, [4, 3, 5, 4]);
        let schedule = TreeSchedule::new(&plan, MACHINES[2]);
        let of_seven = |hop: &&LinkMessage| hop.from == Node(7) || hop.to == Node(7);
        let steps = schedule.steps().iter();
        let seven: Vec<usize> = steps
            .map(|step| step.iter().filter(of_seven).count())
            .collect();
        assert_eq!(seven, [1, 1, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn links_carry_one_message_per_step_and_messages_follow_their_paths(
            (faults, tree) in cases(0..=6),
        ) {
            for (machine, remedy) in MACHINES.into_iter().flat_map(|m| REMEDIES.map(|r| (m, r))) {
                let plan = plan(&faults, &tree, remedy);
                let schedule = TreeSchedule::new(&plan, machine);
                let mut paths: Vec<Vec<Node>> = plan.messages().iter().map(|m| vec![m.from()]).collect();
                for step in schedule.steps() {
                    prop_assert!(!step.is_empty());
                    let mut links: Vec<(Node, Node)> = step.iter().map(|t| (t.from, t.to)).collect();
                    links.sort_unstable();
                    links.dedup();
                    prop_assert_eq!(links.len(), step.len());
                    if machine.ports == Ports::One {
                        links.dedup_by_key(|link| link.0);
                        prop_assert_eq!(links.len(), step.len());
                        links.sort_unstable_by_key(|link| link.1);
                        links.dedup_by_key(|link| link.1);
                        prop_assert_eq!(links.len(), step.len());
                    }
                    for transfer in step {
                        let path = &mut paths[transfer.message as usize];
                        prop_assert_eq!(path[path.len() - 1], transfer.from);
                        prop_assert_eq!(transfer.fraction.is_some(), path.len() == 1);
                        path.push(transfer.to);
                    }
                }
                let planned: Vec<Vec<Node>> = plan.messages().iter().map(|m| m.path.clone()).collect();
                prop_assert_eq!(paths, planned);
            }
        }

        #[test]
        fn starting_stages_per_node_takes_no_more_steps((faults, tree) in cases(0..=6)) {
            let plan = plan(&faults, &tree, Remedy::Partition);
            let steps = MACHINES.map(|machine| TreeSchedule::new(&plan, machine).steps().len());
            // With one port, or with detours that share links, the order of arrival may not be the best one.
            if plan.count(crate::tree::plan::MessagePurpose::Detour) == 0 {
                prop_assert!(steps[1] <= steps[0]);
            }
            prop_assert!(steps[0] <= steps[2]);
        }
    }
}

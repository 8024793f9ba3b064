//! The steps of a plan: which message takes which hop in which step of a machine like the 1996 paper's.
//!
//! In a step a message crosses one link, and a link carries one message in each direction ("full-duplex",
//! Section 3.1). Whether a node uses several links in a step, and whether a stage begins only when the
//! one before has ended, is the machine's. Must never: let a node send before it has all that it is to
//! send.

use crate::tree::plan::{Message, Part, Plan};
use crate::vcube::Node;

/// How many links a node uses in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// All of them, as Theorem 5 needs: all parts leave at once.
    All,
    /// It sends one message and receives one, as a process does with one network card.
    One,
}

/// When a stage begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// When the one before has ended everywhere. The paper's proofs count so.
    Together,
    /// For each node when it has all its data. The paper's programs run so.
    Alone,
}

/// What hops are put into one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// How many links a node uses at once.
    pub ports: Ports,
    /// When a stage begins.
    pub pace: Pace,
}

/// One hop of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkMessage {
    /// Which message: its place among [`Plan::messages`].
    pub message: u32,
    /// Who sends.
    pub from: Node,
    /// Who receives.
    pub to: Node,
    /// The sender takes this part of what it holds; None if it passes on what came.
    ///
    /// All parts are of what it held when the first of them left. It gets nothing after that.
    pub takes: Option<Part>,
    /// The receiver merges it with what it holds; else it keeps it apart, and passes it on.
    pub lands: bool,
}

/// A plan, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    steps: Vec<Vec<LinkMessage>>,
}

impl Schedule {
    /// In each step every message moves on that can, in the order of the plan: its links are free, and
    /// its sender has all its data.
    pub fn new(plan: &Plan, machine: Machine) -> Schedule {
        let mut clock = Clock::new(plan, machine);
        let mut steps = Vec::new();
        while !clock.is_done() {
            let step = clock.step();
            // Theorem 6: no plan waits for itself. A defect there must not fill the memory with steps.
            assert!(!step.is_empty(), "every message waits for another");
            steps.push(step);
        }
        Schedule { steps }
    }

    /// The transfers of each step.
    pub fn steps(&self) -> &[Vec<LinkMessage>] {
        &self.steps
    }

    /// Only the first steps of it.
    pub fn first(&self, steps: usize) -> Schedule {
        let steps = self.steps[..steps].to_vec();
        Schedule { steps }
    }

    /// What a node does in each step: the transfers that it sends or receives.
    pub fn of(&self, node: Node) -> impl Iterator<Item = Vec<LinkMessage>> + '_ {
        let own = move |transfer: &&LinkMessage| transfer.from == node || transfer.to == node;
        let steps = self.steps.iter();
        steps.map(move |step| step.iter().filter(own).copied().collect())
    }
}

/// A schedule in the making.
struct Clock<'a> {
    messages: &'a [Message],
    machine: Machine,
    /// How far each message has come on its way.
    hops: Vec<usize>,
    /// The messages that are not where they are to be, in the plan's order.
    open: Vec<u32>,
    /// How many messages each node still waits for.
    awaited: Vec<u32>,
}

impl<'a> Clock<'a> {
    fn new(plan: &'a Plan, machine: Machine) -> Clock<'a> {
        let messages = plan.messages();
        let mut awaited = vec![0; 1 << plan.tree().dimensions()];
        for message in messages {
            awaited[message.to().0 as usize] += 1;
        }
        Clock {
            messages,
            machine,
            hops: vec![0; messages.len()],
            open: (0..messages.len() as u32).collect(),
            awaited,
        }
    }

    fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    fn step(&mut self) -> Vec<LinkMessage> {
        let stage = self.messages[self.open[0] as usize].stage;
        let mut busy = Busy::none(self.awaited.len());
        let mut transfers = Vec::new();
        for index in &self.open {
            let message = &self.messages[*index as usize];
            if self.machine.pace == Pace::Together && message.stage > stage {
                break;
            }
            let hop = self.hops[*index as usize];
            let complete = hop > 0 || self.awaited[message.from().0 as usize] == 0;
            let (from, to) = (message.way[hop], message.way[hop + 1]);
            if complete && busy.take(from, to, self.machine.ports) {
                transfers.push(LinkMessage {
                    message: *index,
                    from,
                    to,
                    takes: (hop == 0).then_some(message.part),
                    lands: hop + 2 == message.way.len(),
                });
            }
        }
        // Only now: what lands in this step is sent in the next at the earliest.
        for transfer in &transfers {
            self.hops[transfer.message as usize] += 1;
            if transfer.lands {
                self.awaited[transfer.to.0 as usize] -= 1;
            }
        }
        let (messages, hops) = (self.messages, &self.hops);
        self.open
            .retain(|index| hops[*index as usize] + 1 < messages[*index as usize].way.len());
        transfers
    }
}

/// What is in use in a step.
struct Busy {
    /// The dimensions along which each node sends.
    sending: Vec<u32>,
    /// Which nodes receive.
    receiving: Vec<bool>,
}

impl Busy {
    fn none(nodes: usize) -> Busy {
        Busy {
            sending: vec![0; nodes],
            receiving: vec![false; nodes],
        }
    }

    /// Takes the link from one node to the other, if it is free.
    fn take(&mut self, from: Node, to: Node, ports: Ports) -> bool {
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
    use crate::tree::shares::holders;
    use crate::tree::testing::{cases, faults};
    use proptest::prelude::*;

    const REMEDIES: [Remedy; 3] = [Remedy::Partition, Remedy::Delegate, Remedy::Reroute];
    const MACHINES: [Machine; 4] = [
        Machine {
            ports: Ports::All,
            pace: Pace::Together,
        },
        Machine {
            ports: Ports::All,
            pace: Pace::Alone,
        },
        Machine {
            ports: Ports::One,
            pace: Pace::Together,
        },
        Machine {
            ports: Ports::One,
            pace: Pace::Alone,
        },
    ];

    fn plan(faults: &Faults, tree: &Tree, remedy: Remedy) -> Plan {
        let holders = holders(faults, tree.sink());
        Plan::new(tree, faults, &holders, remedy).expect("all are connected")
    }

    #[test]
    fn without_faults_there_are_as_many_steps_as_dimensions() {
        for n in 0..=6 {
            let plan = plan(&Faults::none(n), &Tree::simple(n), Remedy::Partition);
            for machine in MACHINES {
                assert_eq!(Schedule::new(&plan, machine).steps().len(), n as usize);
            }
        }
    }

    /// Node 7 of a simple tree cannot send to node 6, and has nodes 5 and 3 to help it. Where stages do
    /// not wait for each other, the others are not held up.
    #[test]
    fn two_parts_leave_one_port_one_after_the_other() {
        let plan = plan(
            &faults(3, &[(7, 6)], &[]),
            &Tree::simple(3),
            Remedy::Partition,
        );
        let steps = MACHINES.map(|machine| Schedule::new(&plan, machine).steps().len());
        assert_eq!(steps, [4, 3, 5, 4]);
        let seven: Vec<usize> = Schedule::new(&plan, MACHINES[2])
            .of(Node(7))
            .map(|step| step.len())
            .collect();
        assert_eq!(seven, [1, 1, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn each_link_carries_one_message_a_step_and_each_message_goes_its_way(
            (faults, tree) in cases(0..=6),
        ) {
            for (machine, remedy) in MACHINES.into_iter().flat_map(|m| REMEDIES.map(|r| (m, r))) {
                let plan = plan(&faults, &tree, remedy);
                let schedule = Schedule::new(&plan, machine);
                let mut ways: Vec<Vec<Node>> = plan.messages().iter().map(|m| vec![m.from()]).collect();
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
                        let way = &mut ways[transfer.message as usize];
                        prop_assert_eq!(way[way.len() - 1], transfer.from);
                        prop_assert_eq!(transfer.takes.is_some(), way.len() == 1);
                        way.push(transfer.to);
                    }
                }
                let planned: Vec<Vec<Node>> = plan.messages().iter().map(|m| m.way.clone()).collect();
                prop_assert_eq!(ways, planned);
            }
        }

        #[test]
        fn who_need_not_wait_for_others_is_done_no_later((faults, tree) in cases(0..=6)) {
            let plan = plan(&faults, &tree, Remedy::Partition);
            let steps = MACHINES.map(|machine| Schedule::new(&plan, machine).steps().len());
            // With one port, or with detours in each other's way, first come need not be best.
            if plan.count(crate::tree::plan::Kind::Detour) == 0 {
                prop_assert!(steps[1] <= steps[0]);
            }
            prop_assert!(steps[0] <= steps[2]);
        }
    }
}

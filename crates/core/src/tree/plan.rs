//! Algorithm FTTC of the 1996 paper, Section 3.2, as a plan: the list of messages, with their paths around
//! all faulty links and nodes.
//!
//! At each stage an active node with a faulty link to its passive neighbour divides its data among those of
//! its active neighbours that can forward it. If there is no such neighbour, the data goes to the passive
//! neighbour on a longer path (the paper's detour), or to the nearest other node that still has to send. By
//! induction over the stages, data that is not at the sink yet is held by a node that is connected to the
//! sink and still has to send. The plan therefore exists whenever every node with data is connected to the
//! sink, for all other faults. It is a pure function of the tree, the faults and the nodes with data, so it
//! is the same on every rank. Must never: use a faulty link, or give one part of the data to two nodes.
//!
//! Differences from Figure 13, and their reasons:
//! - A part goes only to neighbours that can forward it. As printed, m counts all neighbours over a
//!   fault-free link; a neighbour that cannot send itself does not receive, and the part is lost.
//! - A delegate waits only for the nodes that send to it. As printed it waits for each active neighbour that
//!   cannot send, although the comment says "and the link to it is nonfaulty": the condition tests
//!   FAULT(curr)\[d_i\], which is known to be 0 there, instead of FAULT(curr)\[d_j\]. Node 1001 of Example 3
//!   would wait forever, and so would nodes 101 and 110 of Example 4.
//! - Data that arrives by a detour is received. As printed a passive node with a faulty link does nothing.
//! - A detour may end at another passive node, because the passive neighbour may be faulty itself.

use std::fmt;
use std::ops::Range;

use crate::tree::faults::Faults;
use crate::tree::shape::Tree;
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::error::listed;

/// One of several equal parts of a node's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction {
    /// The index of the part, from 0.
    pub index: u32,
    /// The number of parts.
    pub of: u32,
}

impl Fraction {
    /// All data.
    pub const ALL: Fraction = Fraction { index: 0, of: 1 };

    /// Returns the range of this part among `len` items. The parts cover all items, and their sizes differ by
    /// one at most.
    pub fn range(self, len: usize) -> Range<usize> {
        let cut = |index: u32| (len as u128 * u128::from(index) / u128::from(self.of)) as usize;
        cut(self.index)..cut(self.index + 1)
    }
}

/// The reason for which a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePurpose {
    /// It avoids faulty links, over several hops.
    Detour,
    /// It goes to an active neighbour, which forwards the data.
    Delegated,
    /// It follows the tree, from an active node to its passive neighbour.
    ToParent,
}

/// A message with the data of a node at its stage, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeMessage {
    /// The stage, from 0.
    pub stage: u32,
    /// Its reason.
    pub purpose: MessagePurpose,
    /// The part of the sender's data that it contains.
    pub fraction: Fraction,
    /// The nodes from the sender to the receiver, which merges the data with its own. The nodes in between
    /// only forward the message.
    pub path: Vec<Node>,
}

impl TreeMessage {
    /// Returns the sender.
    pub fn from(&self) -> Node {
        self.path[0]
    }

    /// Returns the receiver, which merges the data with its own.
    pub fn to(&self) -> Node {
        self.path[self.path.len() - 1]
    }
}

/// The strategy of an active node with a faulty link to its passive neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The paper's strategy: the node divides its data among active neighbours, and makes a detour only if no
    /// neighbour can forward it.
    Partition,
    /// The node gives all its data to one active neighbour: the one with the fewest other nodes to forward
    /// for, and of several the first. This is faster if a node sends one message at a time.
    Delegate,
    /// The strategy that the paper compares with: always a detour, of three hops if possible.
    Reroute,
}

/// An error: nodes with data that cannot reach the sink, because the nodes are faulty or cut off from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutOff {
    /// The sink.
    pub sink: Node,
    /// The nodes, ascending.
    pub nodes: Vec<Node>,
}

impl fmt::Display for CutOff {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = listed(&self.nodes);
        write!(out, "no path to node {} from {nodes}", self.sink)
    }
}

impl std::error::Error for CutOff {}

/// All messages of one tree communication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreePlan {
    tree: Tree,
    contributors: NodeSet,
    messages: Vec<TreeMessage>,
}

impl TreePlan {
    /// Plans the messages that bring the data of the contributors to the tree's sink, each part once, over
    /// fault-free links. Other nodes have no data, and send only data that they forward.
    ///
    /// # Panics
    /// If the tree and the faults do not belong to cubes of the same dimension.
    pub fn new(
        tree: &Tree,
        faults: &Faults,
        contributors: &NodeSet,
        remedy: Remedy,
    ) -> Result<TreePlan, CutOff> {
        assert_eq!(
            tree.dimensions(),
            faults.dimensions(),
            "the tree and the faults belong to cubes of different dimensions"
        );
        let reached = faults.connected(tree.sink());
        let lost = contributors.iter().filter(|node| !reached.contains(*node));
        let nodes: Vec<Node> = lost.collect();
        if !nodes.is_empty() {
            let sink = tree.sink();
            return Err(CutOff { sink, nodes });
        }
        let mut builder = PlanBuilder {
            tree,
            faults,
            remedy,
            has_data: (0..faults.len() as u32)
                .map(|node| contributors.contains(Node(node)))
                .collect(),
            messages: Vec::new(),
        };
        (0..tree.dimensions()).for_each(|stage| builder.plan_stage(stage));
        Ok(TreePlan {
            tree: tree.clone(),
            contributors: contributors.clone(),
            messages: builder.messages,
        })
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The nodes with data.
    pub fn contributors(&self) -> &NodeSet {
        &self.contributors
    }

    /// The messages. Each comes after the messages that end at its sender.
    pub fn messages(&self) -> &[TreeMessage] {
        &self.messages
    }

    /// Returns the number of messages with this purpose.
    pub fn count(&self, purpose: MessagePurpose) -> usize {
        let with_purpose = self
            .messages
            .iter()
            .filter(|message| message.purpose == purpose);
        with_purpose.count()
    }
}

/// The state of a plan under construction.
struct PlanBuilder<'a> {
    tree: &'a Tree,
    faults: &'a Faults,
    remedy: Remedy,
    /// Whether each node has data to send: its own, or data that it has received.
    has_data: Vec<bool>,
    messages: Vec<TreeMessage>,
}

impl PlanBuilder<'_> {
    fn plan_stage(&mut self, stage: u32) {
        let dimension = self.tree.dimension_at(stage);
        let active: Vec<Node> = self.tree.active(stage).collect();
        let (able, unable): (Vec<Node>, Vec<Node>) = active
            .into_iter()
            .partition(|node| self.faults.is_usable(*node, dimension));
        let with_data = unable.into_iter().filter(|node| self.has_data(*node));
        let blocked: Vec<Node> = with_data.collect();
        let mut delegating: Vec<(Node, Vec<Node>)> = Vec::new();
        for node in blocked {
            let mut delegates = self.delegates(node, stage);
            if self.remedy == Remedy::Delegate {
                let busy = |delegate: &Node| {
                    delegating
                        .iter()
                        .filter(|(_, by)| by.contains(delegate))
                        .count()
                };
                let least_busy = delegates
                    .iter()
                    .min_by_key(|delegate| busy(delegate))
                    .copied();
                delegates.retain(|delegate| Some(*delegate) == least_busy);
            }
            if delegates.is_empty() {
                self.detour(node, stage)
            } else {
                delegating.push((node, delegates))
            }
        }
        // Delegated messages come after the detours, which are longer: a schedule that starts messages in
        // this order lets the long ones go first.
        for (node, delegates) in delegating {
            for (index, delegate) in (0..).zip(&delegates) {
                let of = delegates.len() as u32;
                self.send(
                    stage,
                    MessagePurpose::Delegated,
                    Fraction { index, of },
                    vec![node, *delegate],
                );
            }
        }
        for node in able {
            if !self.has_data(node) {
                continue;
            }
            if let Some(passive) = self.tree.parent(node) {
                self.send(
                    stage,
                    MessagePurpose::ToParent,
                    Fraction::ALL,
                    vec![node, passive],
                );
            }
        }
    }

    fn has_data(&self, node: Node) -> bool {
        self.has_data[node.0 as usize]
    }

    fn send(&mut self, stage: u32, purpose: MessagePurpose, fraction: Fraction, path: Vec<Node>) {
        let message = TreeMessage {
            stage,
            purpose,
            fraction,
            path,
        };
        self.has_data[message.to().0 as usize] = true;
        self.messages.push(message);
    }

    /// Returns the active neighbours that get a part of this node's data.
    fn delegates(&self, node: Node, stage: u32) -> Vec<Node> {
        if self.remedy == Remedy::Reroute {
            return Vec::new();
        }
        let dimension = self.tree.dimension_at(stage);
        let later = &self.tree.order()[stage as usize + 1..];
        let neighbours = self.tree.active_neighbours(node, stage).zip(later);
        neighbours
            .filter(|(_, between)| self.faults.is_usable(node, **between))
            .map(|(neighbour, _)| neighbour)
            .filter(|neighbour| self.faults.is_usable(*neighbour, dimension))
            .collect()
    }

    /// Adds a detour to the nearest node that still sends, or to the sink; of several at the same distance to
    /// the passive neighbour. Rerouting always ends at the passive neighbour if there is a path to it.
    fn detour(&mut self, node: Node, stage: u32) {
        let tree = self.tree;
        let still_sends = |other: Node| tree.stage_of(other).is_none_or(|own| own > stage);
        let passive = tree.parent(node).unwrap_or(node);
        let direct = match self.remedy {
            Remedy::Reroute => self
                .faults
                .shortest_path(node, passive, |other| other == passive),
            Remedy::Partition | Remedy::Delegate => None,
        };
        // The sink is an accepted end, and every node with data is connected to it.
        let path = direct.or_else(|| self.faults.shortest_path(node, passive, still_sends));
        if let Some(path) = path {
            self.send(stage, MessagePurpose::Detour, Fraction::ALL, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::faults::Link;
    use crate::tree::find::{Cost, tree_to};
    use crate::tree::testing::{cases, faults, figure_9, figure_14, figure_16, of_ranks};
    use proptest::prelude::*;

    fn planned(faults: &Faults, tree: &Tree, remedy: Remedy) -> TreePlan {
        let data_nodes = faults.connected(tree.sink());
        TreePlan::new(tree, faults, &data_nodes, remedy).expect("all are connected")
    }

    fn paths(plan: &TreePlan, stage: u32, purpose: MessagePurpose) -> Vec<Vec<u32>> {
        let messages = plan.messages().iter();
        messages
            .filter(|message| (message.stage, message.purpose) == (stage, purpose))
            .map(|message| message.path.iter().map(|node| node.0).collect())
            .collect()
    }

    #[test]
    fn messages_follow_a_tree_without_faulty_links() {
        let faults = figure_9();
        let tree = tree_to(Node(0b000), &faults, Cost::Paper);
        let plan = planned(&faults, &tree, Remedy::Partition);
        assert_eq!(plan.count(MessagePurpose::ToParent), 7);
        assert_eq!(plan.messages().len(), 7);
        for message in plan.messages() {
            assert_eq!(tree.parent(message.from()), Some(message.to()));
            assert_eq!(tree.stage_of(message.from()), Some(message.stage));
        }
    }

    #[test]
    fn example_3_sends_two_parts_to_two_of_three_active_neighbours() {
        let plan = planned(&figure_14(), &Tree::simple(4), Remedy::Partition);
        let delegated = paths(&plan, 0, MessagePurpose::Delegated);
        assert_eq!(delegated, [[0b1011, 0b1111], [0b1011, 0b0011]]);
        let parts: Vec<Fraction> = plan.messages()[..2]
            .iter()
            .map(|message| message.fraction)
            .collect();
        assert_eq!(
            parts,
            [Fraction { index: 0, of: 2 }, Fraction { index: 1, of: 2 }]
        );
        assert_eq!(paths(&plan, 0, MessagePurpose::ToParent).len(), 7);
        assert_eq!(plan.count(MessagePurpose::Detour), 0);
    }

    #[test]
    fn example_3_rerouted_takes_three_hops() {
        let plan = planned(&figure_14(), &Tree::simple(4), Remedy::Reroute);
        let detours = paths(&plan, 0, MessagePurpose::Detour);
        assert_eq!(detours, [[0b1011, 0b1111, 0b1110, 0b1010]]);
    }

    #[test]
    fn example_4_node_100_sends_all_data_to_node_101() {
        let faults = figure_16();
        let tree = tree_to(Node(0b001), &faults, Cost::Paper);
        let plan = planned(&faults, &tree, Remedy::Partition);
        assert_eq!(paths(&plan, 0, MessagePurpose::Delegated), [[0b100, 0b101]]);
        assert_eq!(plan.messages()[0].fraction, Fraction::ALL);
        // Node 111 is faulty, and no message is sent to it.
        let faulty = Node(0b111);
        assert!(
            plan.messages()
                .iter()
                .all(|message| !message.path.contains(&faulty))
        );
        // One message for each node with data except the sink; the data of node 100 is merged on the way.
        assert_eq!(plan.messages().len(), 6);
    }

    #[test]
    fn delegates_to_the_neighbour_with_the_fewest_tasks() {
        // At stage 0 nodes 3 and 5 share the neighbour 7, and node 1 cannot send itself.
        let faults = faults(4, &[(1, 0), (3, 2), (5, 4)], &[]);
        let plan = planned(&faults, &Tree::simple(4), Remedy::Delegate);
        assert_eq!(
            paths(&plan, 0, MessagePurpose::Delegated),
            [[1, 9], [3, 7], [5, 13]]
        );
        assert!(
            plan.messages()
                .iter()
                .all(|message| message.fraction == Fraction::ALL)
        );
    }

    #[test]
    fn makes_a_detour_if_no_neighbour_can_forward() {
        // In three dimensions node 1 has two active neighbours at stage 0, nodes 3 and 5, which cannot send
        // themselves.
        let faults = faults(3, &[(1, 0), (3, 2), (5, 4)], &[]);
        let plan = planned(&faults, &Tree::simple(3), Remedy::Partition);
        // Nodes 1 and 5 are neighbours, and node 7 can forward for nodes 3 and 5.
        assert_eq!(paths(&plan, 0, MessagePurpose::Delegated), [[3, 7], [5, 7]]);
        assert_eq!(paths(&plan, 0, MessagePurpose::Detour), [[1, 3, 7, 6]]);
    }

    #[test]
    fn names_the_nodes_that_are_cut_off() {
        let faults = faults(2, &[(0, 1), (0, 2)], &[3]);
        let tree = Tree::simple(2);
        let error = TreePlan::new(
            &tree,
            &faults,
            &NodeSet::all(faults.len()),
            Remedy::Partition,
        );
        let error = error.expect_err("all other nodes are cut off");
        assert_eq!(error.nodes, [Node(1), Node(2), Node(3)]);
        assert_eq!(error.to_string(), "no path to node 0 from 1, 2, 3");
        let alone = faults.connected(Node(0));
        let plan = TreePlan::new(&tree, &faults, &alone, Remedy::Partition);
        assert_eq!(plan.expect("the data is at the sink").messages(), []);
    }

    #[test]
    fn fractions_cover_all_items_once() {
        for len in [0, 1, 7, 1000] {
            for of in 1..=9 {
                let ends = (0..of).map(|index| Fraction { index, of }.range(len));
                let mut next = 0;
                for range in ends {
                    assert_eq!(range.start, next);
                    assert!((len / of as usize..=len / of as usize + 1).contains(&range.len()));
                    next = range.end;
                }
                assert_eq!(next, len);
            }
        }
    }

    #[test]
    fn plans_for_any_number_of_ranks() {
        for ranks in 1..=40 {
            let faults = of_ranks(ranks);
            let tree = tree_to(Node(0), &faults, Cost::Paper);
            let plan = planned(&faults, &tree, Remedy::Partition);
            assert_eq!(plan.contributors().len(), ranks);
            // The parent of a rank's home node has a smaller identifier, and therefore a home rank.
            let of_tree = plan.count(MessagePurpose::ToParent);
            assert_eq!((of_tree, plan.messages().len()), (ranks - 1, ranks - 1));
        }
    }

    proptest! {
        #[test]
        fn messages_use_fault_free_links_and_end_at_nodes_that_still_send((faults, tree) in cases(0..=6)) {
            for remedy in [Remedy::Partition, Remedy::Delegate, Remedy::Reroute] {
                let plan = planned(&faults, &tree, remedy);
                for message in plan.messages() {
                    for hop in message.path.windows(2) {
                        let link = Link::between(hop[0], hop[1]).expect("neighbours");
                        prop_assert!(faults.is_usable(hop[0], link.dimension()));
                    }
                    prop_assert_eq!(tree.stage_of(message.from()), Some(message.stage));
                    let own = tree.stage_of(message.to());
                    match message.purpose {
                        MessagePurpose::Delegated => prop_assert_eq!(own, Some(message.stage)),
                        _ => prop_assert!(own.is_none_or(|own| own > message.stage)),
                    }
                    if message.purpose == MessagePurpose::Detour && remedy != Remedy::Reroute {
                        prop_assert!(message.path.len() >= 4);
                    }
                }
            }
        }

        #[test]
        fn fails_if_and_only_if_data_is_cut_off((faults, tree) in cases(0..=6), selected: u64) {
            let nodes = faults.all_nodes().filter(|node| selected >> node.0 & 1 == 1);
            let contributors = NodeSet::of(faults.len(), nodes);
            let reached = faults.connected(tree.sink());
            let lost: Vec<Node> = contributors.iter().filter(|node| !reached.contains(*node)).collect();
            match TreePlan::new(&tree, &faults, &contributors, Remedy::Partition) {
                Ok(_) => prop_assert_eq!(lost, []),
                Err(error) => prop_assert_eq!(error.nodes, lost),
            }
        }
    }
}

//! Algorithm FTTC of the 1996 paper, Section 3.2, as a plan: who sends which part of what it holds to
//! whom, around everything that is faulty.
//!
//! At each stage an active node whose link to its passive neighbour is faulty deals what it holds to
//! those of its active neighbours that can pass it on; where there is none, it goes to the passive
//! neighbour on a way around (the paper's detour), or to the nearest other node that still has to send.
//! By induction over the stages, what is not at the sink yet is held by a node that is connected to it
//! and still has to send: so the plan exists whenever every node with data is connected to the sink,
//! whatever else is faulty. It is a pure function of the tree, the faults and the nodes with data: the
//! same on every rank. Must never: use a faulty link, or give a part of some data to two nodes.
//!
//! Where this differs from Figure 13, and why:
//! - A part goes only to neighbours that can pass it on themselves. As printed m counts all those over
//!   a fault-free link; one that is in trouble itself does not receive, and the part is lost.
//! - A helper waits only for those that send to it. As printed it waits for each active neighbour in
//!   trouble, although its comment says "and the link to it is nonfaulty": the condition tests
//!   FAULT(curr)\[d_i\], where it is known to be 0, instead of FAULT(curr)\[d_j\]. So node 1001 of
//!   Example 3 would wait for ever, and nodes 101 and 110 of Example 4.
//! - What comes by a detour is received. As printed a passive node with a faulty link does nothing.
//! - A detour may end at another passive node, since the passive neighbour may be faulty itself.

use std::fmt;
use std::ops::Range;

use crate::tree::faults::Faults;
use crate::tree::shape::Tree;
use crate::vcube::{Node, NodeSet};

/// One of several equal parts of what a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which, from 0.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

impl Part {
    /// Everything.
    pub const ALL: Part = Part { index: 0, of: 1 };

    /// Which of so many things: the parts differ by one in size at most, and leave nothing out.
    pub fn range(self, len: usize) -> Range<usize> {
        let cut = |index: u32| (len as u128 * u128::from(index) / u128::from(self.of)) as usize;
        cut(self.index)..cut(self.index + 1)
    }
}

/// Why a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Around faulty links, over several hops.
    Detour,
    /// To an active neighbour that helps.
    Help,
    /// Along the tree, from an active node to its passive neighbour.
    Up,
}

/// What a node sends at its stage, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The stage, from 0.
    pub stage: u32,
    /// Why.
    pub kind: Kind,
    /// How much of what the sender holds.
    pub part: Part,
    /// From the sender to the node that merges it with what it holds. Those between only pass it on.
    pub way: Vec<Node>,
}

impl Message {
    /// Who sends it.
    pub fn from(&self) -> Node {
        self.way[0]
    }

    /// Who merges it with what it holds.
    pub fn to(&self) -> Node {
        self.way[self.way.len() - 1]
    }
}

/// What an active node does whose link to its passive neighbour is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The paper's: it deals its data to active neighbours; a detour only where none can help.
    Partition,
    /// It gives all its data to one of those neighbours: that has the fewest others to help, and is the
    /// first of these. Who sends one message at a time is done sooner.
    Delegate,
    /// What the paper compares with: always a detour, of three hops where there is one.
    Reroute,
}

/// These nodes have data that cannot get to the sink: they are faulty, or cut off from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutOff {
    /// Where the data was to go.
    pub sink: Node,
    /// The nodes, ascending.
    pub nodes: Vec<Node>,
}

impl fmt::Display for CutOff {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "no way to node {} from ", self.sink)?;
        for (index, node) in self.nodes.iter().enumerate() {
            let before = if index == 0 { "" } else { ", " };
            write!(out, "{before}{node}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CutOff {}

/// All messages of one tree communication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    tree: Tree,
    contributors: NodeSet,
    messages: Vec<Message>,
}

impl Plan {
    /// Brings the data of the contributors to the tree's sink, each piece once, over fault-free links.
    /// Who is no contributor has no data, and sends none unless it helps or is on the way.
    ///
    /// # Panics
    /// If the tree and the faults are not of one cube.
    pub fn new(
        tree: &Tree,
        faults: &Faults,
        contributors: &NodeSet,
        remedy: Remedy,
    ) -> Result<Plan, CutOff> {
        assert_eq!(tree.dimensions(), faults.dimensions(), "two cubes");
        let reached = faults.connected(tree.sink());
        let lost = contributors.iter().filter(|node| !reached.contains(*node));
        let nodes: Vec<Node> = lost.collect();
        if !nodes.is_empty() {
            let sink = tree.sink();
            return Err(CutOff { sink, nodes });
        }
        let mut stages = Stages {
            tree,
            faults,
            remedy,
            holds: (0..faults.len() as u32)
                .map(|node| contributors.contains(Node(node)))
                .collect(),
            messages: Vec::new(),
        };
        (0..tree.dimensions()).for_each(|stage| stages.plan(stage));
        Ok(Plan {
            tree: tree.clone(),
            contributors: contributors.clone(),
            messages: stages.messages,
        })
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The nodes whose data is brought to the sink.
    pub fn contributors(&self) -> &NodeSet {
        &self.contributors
    }

    /// The messages, in an order in which each comes after those that end at its sender.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The paper's k: at how many stages an active node with data has a faulty link to its passive
    /// neighbour.
    pub fn faulty_stages(&self) -> u32 {
        let mut stages: Vec<u32> = self
            .messages
            .iter()
            .filter(|message| message.kind != Kind::Up)
            .map(|message| message.stage)
            .collect();
        stages.dedup();
        stages.len() as u32
    }

    /// How many messages are sent for this reason.
    pub fn count(&self, kind: Kind) -> usize {
        let of_kind = self.messages.iter().filter(|message| message.kind == kind);
        of_kind.count()
    }
}

/// A plan in the making.
struct Stages<'a> {
    tree: &'a Tree,
    faults: &'a Faults,
    remedy: Remedy,
    /// Which nodes have something to send: their own data, or what they got.
    holds: Vec<bool>,
    messages: Vec<Message>,
}

impl Stages<'_> {
    fn plan(&mut self, stage: u32) {
        let dimension = self.tree.dimension_at(stage);
        let active: Vec<Node> = self.tree.active(stage).collect();
        let (able, unable): (Vec<Node>, Vec<Node>) = active
            .into_iter()
            .partition(|node| self.faults.carries(*node, dimension));
        let holding = unable.into_iter().filter(|node| self.holds(*node));
        let in_trouble: Vec<Node> = holding.collect();
        let mut helped: Vec<(Node, Vec<Node>)> = Vec::new();
        for node in in_trouble {
            let mut helpers = self.helpers(node, stage);
            if self.remedy == Remedy::Delegate {
                let busy =
                    |helper: &Node| helped.iter().filter(|(_, by)| by.contains(helper)).count();
                let idlest = helpers.iter().min_by_key(|helper| busy(helper)).copied();
                helpers.retain(|helper| Some(*helper) == idlest);
            }
            match helpers.is_empty() {
                true => self.detour(node, stage),
                false => helped.push((node, helpers)),
            }
        }
        // After the detours, which are longer: who gives each step to messages in this order lets the
        // long ones go first.
        for (node, helpers) in helped {
            for (index, helper) in (0..).zip(&helpers) {
                let of = helpers.len() as u32;
                self.send(stage, Kind::Help, Part { index, of }, vec![node, *helper]);
            }
        }
        for node in able {
            if !self.holds(node) {
                continue;
            }
            if let Some(passive) = self.tree.parent(node) {
                self.send(stage, Kind::Up, Part::ALL, vec![node, passive]);
            }
        }
    }

    fn holds(&self, node: Node) -> bool {
        self.holds[node.0 as usize]
    }

    fn send(&mut self, stage: u32, kind: Kind, part: Part, way: Vec<Node>) {
        let message = Message {
            stage,
            kind,
            part,
            way,
        };
        self.holds[message.to().0 as usize] = true;
        self.messages.push(message);
    }

    /// The active neighbours that get a part of what this node holds.
    fn helpers(&self, node: Node, stage: u32) -> Vec<Node> {
        if self.remedy == Remedy::Reroute {
            return Vec::new();
        }
        let dimension = self.tree.dimension_at(stage);
        let later = &self.tree.order()[stage as usize + 1..];
        let neighbours = self.tree.active_neighbours(node, stage).zip(later);
        neighbours
            .filter(|(_, between)| self.faults.carries(node, **between))
            .map(|(neighbour, _)| neighbour)
            .filter(|neighbour| self.faults.carries(*neighbour, dimension))
            .collect()
    }

    /// Around what is faulty, to the nearest node that still sends, or is the sink; of several to the
    /// passive neighbour. Rerouting knows no other destination, as long as there is a way to it.
    fn detour(&mut self, node: Node, stage: u32) {
        let tree = self.tree;
        let still_sends = |other: Node| tree.stage_of(other).is_none_or(|own| own > stage);
        let passive = tree.parent(node).unwrap_or(node);
        let direct = match self.remedy {
            Remedy::Reroute => self.faults.way(node, passive, |other| other == passive),
            Remedy::Partition | Remedy::Delegate => None,
        };
        // The sink is among those wanted, and who holds something is connected to it.
        let way = direct.or_else(|| self.faults.way(node, passive, still_sends));
        if let Some(way) = way {
            self.send(stage, Kind::Detour, Part::ALL, way);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::faults::Link;
    use crate::tree::find::{find_tree, find_tree_anyway};
    use crate::tree::shares::holders;
    use crate::tree::testing::{cases, faults, figure_9, figure_14, figure_16, pattern};
    use proptest::prelude::*;

    fn everybody(faults: &Faults) -> NodeSet {
        let mut nodes = NodeSet::new(faults.len());
        faults.all_nodes().for_each(|node| nodes.insert(node));
        nodes
    }

    fn planned(faults: &Faults, tree: &Tree, remedy: Remedy) -> Plan {
        let holders = holders(faults, tree.sink());
        Plan::new(tree, faults, &holders, remedy).expect("all are connected")
    }

    fn ways(plan: &Plan, stage: u32, kind: Kind) -> Vec<Vec<u32>> {
        let messages = plan.messages().iter();
        messages
            .filter(|message| (message.stage, message.kind) == (stage, kind))
            .map(|message| message.way.iter().map(|node| node.0).collect())
            .collect()
    }

    #[test]
    fn a_tree_without_faulty_links_is_followed() {
        let faults = figure_9();
        let tree = find_tree(&faults).expect("a tree");
        let plan = planned(&faults, &tree, Remedy::Partition);
        assert_eq!(plan.count(Kind::Up), 7);
        assert_eq!(plan.messages().len(), 7);
        for message in plan.messages() {
            assert_eq!(tree.parent(message.from()), Some(message.to()));
            assert_eq!(tree.stage_of(message.from()), Some(message.stage));
        }
    }

    #[test]
    fn example_3_two_partitions_for_two_of_three_active_neighbours() {
        let plan = planned(&figure_14(), &Tree::simple(4), Remedy::Partition);
        let help = ways(&plan, 0, Kind::Help);
        assert_eq!(help, [[0b1011, 0b1111], [0b1011, 0b0011]]);
        let parts: Vec<Part> = plan.messages()[..2]
            .iter()
            .map(|message| message.part)
            .collect();
        assert_eq!(parts, [Part { index: 0, of: 2 }, Part { index: 1, of: 2 }]);
        assert_eq!(ways(&plan, 0, Kind::Up).len(), 7);
        assert_eq!((plan.faulty_stages(), plan.count(Kind::Detour)), (1, 0));
    }

    #[test]
    fn example_3_with_three_hops_instead() {
        let plan = planned(&figure_14(), &Tree::simple(4), Remedy::Reroute);
        let detours = ways(&plan, 0, Kind::Detour);
        assert_eq!(detours, [[0b1011, 0b1111, 0b1110, 0b1010]]);
    }

    #[test]
    fn example_4_node_100_sends_all_to_node_101() {
        let faults = figure_16();
        let tree = find_tree(&faults).expect("a tree");
        let plan = planned(&faults, &tree, Remedy::Partition);
        assert_eq!(ways(&plan, 0, Kind::Help), [[0b100, 0b101]]);
        assert_eq!(plan.messages()[0].part, Part::ALL);
        // Node 111 cannot do anything, and nobody waits for it.
        let faulty = Node(0b111);
        assert!(
            plan.messages()
                .iter()
                .all(|message| !message.way.contains(&faulty))
        );
        // As many as there are nodes with data, but for the sink, and node 100's is merged on the way.
        assert_eq!(plan.messages().len(), 6);
    }

    #[test]
    fn who_delegates_turns_to_the_neighbour_with_the_least_to_do() {
        // At stage 0 nodes 3 and 5 have node 7 in common, and node 1 is in trouble itself.
        let faults = faults(4, &[(1, 0), (3, 2), (5, 4)], &[]);
        let plan = planned(&faults, &Tree::simple(4), Remedy::Delegate);
        assert_eq!(ways(&plan, 0, Kind::Help), [[1, 9], [3, 7], [5, 13]]);
        assert!(
            plan.messages()
                .iter()
                .all(|message| message.part == Part::ALL)
        );
    }

    #[test]
    fn where_nobody_can_help_there_is_a_detour() {
        // In two dimensions node 3 has one active neighbour at stage 0, node 1: in trouble itself.
        let faults = faults(3, &[(1, 0), (3, 2), (5, 4)], &[]);
        let plan = planned(&faults, &Tree::simple(3), Remedy::Partition);
        // Nodes 1 and 5 are each other's neighbours, and 7 can help 3 and 5.
        assert_eq!(ways(&plan, 0, Kind::Help), [[3, 7], [5, 7]]);
        assert_eq!(ways(&plan, 0, Kind::Detour), [[1, 3, 7, 6]]);
    }

    #[test]
    fn who_is_cut_off_is_named() {
        let faults = faults(2, &[(0, 1), (0, 2)], &[3]);
        let tree = Tree::simple(2);
        let refused = Plan::new(&tree, &faults, &everybody(&faults), Remedy::Partition);
        let refused = refused.expect_err("nobody gets through");
        assert_eq!(refused.nodes, [Node(1), Node(2), Node(3)]);
        assert_eq!(refused.to_string(), "no way to node 0 from 1, 2, 3");
        let alone = holders(&faults, Node(0));
        let plan = Plan::new(&tree, &faults, &alone, Remedy::Partition);
        assert_eq!(plan.expect("it is there already").messages(), []);
    }

    #[test]
    fn parts_cover_everything_once() {
        for len in [0, 1, 7, 1000] {
            for of in 1..=9 {
                let ends = (0..of).map(|index| Part { index, of }.range(len));
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
    fn ranks_that_are_no_power_of_two() {
        for ranks in 1..=40 {
            let faults = Faults::of_ranks(ranks);
            let tree = find_tree(&faults).expect("node 0 has no faulty link");
            let plan = planned(&faults, &tree, Remedy::Partition);
            assert_eq!(plan.contributors().len(), ranks);
            // The parent of a rank has a smaller number, and so a home.
            assert_eq!(plan.faulty_stages(), 0, "{ranks} ranks");
            assert_eq!(plan.messages().len(), ranks - 1);
        }
    }

    proptest! {
        #[test]
        fn messages_go_over_fault_free_links_to_who_still_sends((faults, tree) in cases(0..=6)) {
            for remedy in [Remedy::Partition, Remedy::Delegate, Remedy::Reroute] {
                let plan = planned(&faults, &tree, remedy);
                for message in plan.messages() {
                    for hop in message.way.windows(2) {
                        let link = Link::between(hop[0], hop[1]).expect("neighbours");
                        prop_assert!(faults.carries(hop[0], link.dimension()));
                    }
                    prop_assert_eq!(tree.stage_of(message.from()), Some(message.stage));
                    let own = tree.stage_of(message.to());
                    match message.kind {
                        Kind::Help => prop_assert_eq!(own, Some(message.stage)),
                        _ => prop_assert!(own.is_none_or(|own| own > message.stage)),
                    }
                    if message.kind == Kind::Detour && remedy != Remedy::Reroute {
                        prop_assert!(message.way.len() >= 4);
                    }
                }
            }
        }

        #[test]
        fn the_plan_is_refused_if_and_only_if_data_is_cut_off(faults in pattern(0..=6), who: u64) {
            let Some(tree) = find_tree_anyway(&faults) else { return Ok(()) };
            let mut contributors = NodeSet::new(faults.len());
            for node in faults.all_nodes().filter(|node| who >> node.0 & 1 == 1) {
                contributors.insert(node);
            }
            let reached = faults.connected(tree.sink());
            let lost: Vec<Node> = contributors.iter().filter(|node| !reached.contains(*node)).collect();
            match Plan::new(&tree, &faults, &contributors, Remedy::Partition) {
                Ok(_) => prop_assert_eq!(lost, []),
                Err(refused) => prop_assert_eq!(refused.nodes, lost),
            }
        }
    }
}

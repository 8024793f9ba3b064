//! The tree of an operation: FIND_TREE of the 1996 paper (Section 3.1) on the group's current members, with
//! the plan along the tree.
//!
//! Faults are declared as pairs of ranks. A pair counts for every link of the cube between a node that one of
//! them executes and a node that the other executes. A link between two nodes of one rank is in that rank's
//! memory, and never faulty. No node is faulty, because executors run the nodes of failed ranks and the nodes
//! without a home rank. The data are divided among the ranks that the faulty links connect to the sink: the paper's
//! UDD (Section 3.2) for ranks. Must never: depend on anything but the members and the request, so that all ranks
//! choose the same tree and the same shares.

use std::ops::Range;

use crate::members::{Members, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::tree::faults::{Faults, Link, along};
use crate::tree::find::{Cost, faulty_links, tree_to};
use crate::tree::plan::{CutOff, MessagePurpose, Remedy, TreePlan};
use crate::tree::schedule::{LinkModel, Ports, StageStart, TreeSchedule};
use crate::tree::shape::Tree;
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::error::{Error, Result, Status};

/// Options of a tree operation; the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRequest {
    /// The rank that has the sink as its home node. None: FIND_TREE chooses the sink.
    pub sink: Option<Rank>,
    /// The pairs of ranks that cannot exchange messages directly.
    pub links: Vec<(Rank, Rank)>,
    /// The strategy of a node that cannot send to its parent. [`Remedy::Partition`] needs data that can be
    /// divided; operations on other data use [`TreeRequest::undivided`].
    pub remedy: Remedy,
    /// Whether the faulty links were detected, and not given by the caller.
    pub detected: bool,
}

impl TreeRequest {
    /// Returns a request with any sink and no faulty links.
    pub fn any() -> TreeRequest {
        TreeRequest {
            sink: None,
            links: Vec::new(),
            remedy: Remedy::Delegate,
            detected: false,
        }
    }

    /// `Status::Argument` if the sink or an end of a link is no rank of the group.
    pub fn check(&self, members: &Members) -> Result<()> {
        let last = members.ranks() - 1;
        let ends = self.links.iter().flat_map(|(one, other)| [*one, *other]);
        let linked = ends.map(|end| ("a rank in options.links", end));
        let mut named = linked.chain(self.sink.map(|sink| ("options.sink", sink)));
        match named.find(|(_, rank)| rank.index() > last) {
            Some((name, rank)) => Err(Error::argument(format!(
                "{name} is {rank}, but the group has the ranks 0 to {last}"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the same request for data that cannot be divided.
    pub fn undivided(&self) -> TreeRequest {
        let remedy = match self.remedy {
            Remedy::Reroute => Remedy::Reroute,
            Remedy::Delegate | Remedy::Partition => Remedy::Delegate,
        };
        TreeRequest {
            remedy,
            ..self.clone()
        }
    }

    /// Returns whether the caller declared that these ranks cannot exchange messages directly.
    pub fn is_faulty(&self, one: Rank, other: Rank) -> bool {
        let mut links = self.links.iter();
        links.any(|link| *link == (one, other) || *link == (other, one))
    }

    /// Returns the links of the cube that cannot be used.
    pub fn faults(&self, members: &Members) -> Faults {
        let cube = members.cube();
        let mut faults = Faults::none(cube.dimension());
        for node in cube.nodes() {
            for dimension in 0..cube.dimension() {
                let ends = (
                    members.executor(node),
                    members.executor(along(node, dimension)),
                );
                if ends.0 != ends.1 && self.is_faulty(ends.0, ends.1) {
                    faults.add_link(Link::of(node, dimension));
                }
            }
        }
        faults
    }

    /// Returns the node to which the tree leads.
    fn sink(&self, faults: &Faults, members: &Members) -> Node {
        match self.sink {
            Some(rank) => rank.home(),
            None => best_sink(faults, members),
        }
    }

    /// Returns the home nodes of the ranks that can contribute to a tree: the survivors that are connected to its sink,
    /// without idle spares. A rank contributes at its home node.
    pub fn sharing_nodes(&self, members: &Members) -> NodeSet {
        let faults = self.faults(members);
        let absent = if mutant(Mutant::SharesOfFailedRanks) {
            members.idle_spares().clone()
        } else {
            members.without_input()
        };
        let mut nodes = contributing_nodes(members, &absent);
        if !mutant(Mutant::SharesOfCutOffRanks) {
            nodes = both(&nodes, &faults.connected(self.sink(&faults, members)));
        }
        nodes
    }

    /// Returns the range of `total` items that a rank gets if they are divided among the ranks that can contribute. The
    /// ranges are contiguous in the order of ranks, and their sizes differ by one at most.
    pub fn share(&self, members: &Members, total: u64, rank: Rank) -> Range<u64> {
        share(total, &self.sharing_nodes(members), rank.home())
    }
}

/// Returns the range of `total` items that a node gets. The ranges of the data nodes are contiguous in the
/// order of nodes, and their sizes differ by one at most. Other nodes get an empty range.
fn share(total: u64, data_nodes: &NodeSet, node: Node) -> Range<u64> {
    let before = data_nodes
        .iter()
        .take_while(|holder| *holder < node)
        .count();
    let count = data_nodes.len() as u128;
    let cut = |index: usize| match count {
        0 => 0,
        count => (u128::from(total) * index as u128 / count) as u64,
    };
    if data_nodes.contains(node) {
        cut(before)..cut(before + 1)
    } else {
        cut(before)..cut(before)
    }
}

/// Returns the home nodes of all ranks but the absent ones.
pub fn contributing_nodes(members: &Members, absent: &RankSet) -> NodeSet {
    let ranks = Rank::all(members.ranks()).filter(|rank| !absent.contains(*rank));
    NodeSet::of(members.cube().len(), ranks.map(Rank::home))
}

/// Returns the nodes that are in both sets.
fn both(some: &NodeSet, others: &NodeSet) -> NodeSet {
    let mut nodes = some.clone();
    some.iter()
        .filter(|node| !others.contains(*node))
        .for_each(|node| nodes.remove(node));
    nodes
}

/// The properties of the chosen tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenTree {
    /// The tree.
    pub tree: Tree,
    /// The rank that executes its sink.
    pub sink_rank: Rank,
    /// The number of its links that are faulty and are avoided.
    pub faulty_links: u32,
    /// The number of messages that a neighbour forwards instead of the parent.
    pub delegated: usize,
    /// The number of messages that make a detour.
    pub detours: usize,
}

/// A tree with its schedule, for one set of members.
pub struct TreeRoute {
    /// The properties of the tree.
    pub chosen: ChosenTree,
    /// The messages of each step.
    pub schedule: TreeSchedule,
    /// The error of contributors that have no path to the sink. None: all of them have one.
    pub cut_off: Option<Error>,
    /// The contributors with a path to the sink.
    reached: NodeSet,
    /// The executor of each node when the tree was chosen.
    executors: Vec<Rank>,
}

impl TreeRoute {
    /// Chooses a tree along which the data of `contributors` reaches the sink. If there is no path, returns
    /// `Status::Argument`, or `Status::State` if the faulty links were detected.
    pub fn new(
        members: &Members,
        request: &TreeRequest,
        contributors: &NodeSet,
    ) -> Result<TreeRoute> {
        let route = TreeRoute::of_connected(members, request, contributors);
        match route.cut_off {
            Some(error) => Err(error),
            None => Ok(route),
        }
    }

    /// Chooses a tree along which the data of those contributors reaches the sink that have a path to it.
    pub fn of_connected(
        members: &Members,
        request: &TreeRequest,
        contributors: &NodeSet,
    ) -> TreeRoute {
        let faults = request.faults(members);
        let tree = tree_to(request.sink(&faults, members), &faults, Cost::Paper);
        let sink = tree.sink();
        let reached = both(contributors, &faults.connected(sink));
        let plan = TreePlan::new(&tree, &faults, &reached, request.remedy)
            .unwrap_or_else(|cut_off| panic!("connected nodes have no path: {cut_off}"));
        let is_missing = |node: &Node| !reached.contains(*node);
        let nodes: Vec<Node> = contributors.iter().filter(is_missing).collect();
        let cut_off = CutOff { sink, nodes };
        let cut_off =
            (!cut_off.nodes.is_empty()).then(|| cut_off_error(&cut_off, members, request));
        let machine = LinkModel::new(Ports::All, StageStart::PerNode);
        TreeRoute {
            chosen: ChosenTree {
                sink_rank: members.executor(sink),
                faulty_links: faulty_links(&tree, &faults),
                delegated: plan.count(MessagePurpose::Delegated),
                detours: plan.count(MessagePurpose::Detour),
                tree,
            },
            schedule: TreeSchedule::new(&plan, machine),
            cut_off,
            reached,
            executors: members
                .cube()
                .nodes()
                .map(|node| members.executor(node))
                .collect(),
        }
    }

    /// Returns whether the data of a node reaches the sink.
    pub fn reaches(&self, node: Node) -> bool {
        self.reached.contains(node)
    }

    /// Returns the executor of a node when the tree was chosen.
    pub fn executor(&self, node: Node) -> Rank {
        self.executors[node.0 as usize]
    }
}

/// Returns the node with the fewest faulty links in the largest connected part, among the home nodes of the ranks that
/// execute nodes.
/// Without spares each connected part has one, because a rank is connected to all nodes that it executes.
fn best_sink(faults: &Faults, members: &Members) -> Node {
    let part = faults.largest_component();
    let executing = members.executing();
    let homes = executing.iter().map(Rank::home);
    let candidates = homes.filter(|node| part.contains(*node));
    let best = candidates.min_by_key(|node| (faults.word(*node).count_ones(), node.0));
    best.unwrap_or(members.lowest_executor().home())
}

fn cut_off_error(cut_off: &CutOff, members: &Members, request: &TreeRequest) -> Error {
    let ranks = cut_off.nodes.iter().map(|node| members.executor(*node));
    let ranks = RankSet::of(members.ranks(), ranks);
    let sink = members.executor(cut_off.sink);
    no_path(format!("to rank {sink} from rank {ranks}"), request)
}

/// The error of a tree that faulty links make impossible.
pub(super) fn no_path(between: String, request: &TreeRequest) -> Error {
    let (status, links, remedy) = match request.detected {
        true => (
            Status::State,
            "the slow links leave",
            "raise options.detect_ms",
        ),
        false => (
            Status::Argument,
            "options.links leaves",
            "declare fewer faulty links",
        ),
    };
    Error::new(status, format!("{links} no path {between}: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::RankSet;
    use crate::tree::testing::figure_16;
    use proptest::prelude::*;

    fn members(ranks: usize, failed: &[u32]) -> Members {
        let lowest = (0..ranks as u32).find(|rank| !failed.contains(rank));
        let mut members = Members::new(Rank(lowest.expect("a survivor")), ranks);
        members.absorb(&RankSet::of(ranks, failed.iter().map(|rank| Rank(*rank))));
        members
    }

    fn request(links: &[(u32, u32)]) -> TreeRequest {
        TreeRequest {
            links: links.iter().map(|(a, b)| (Rank(*a), Rank(*b))).collect(),
            ..TreeRequest::any()
        }
    }

    #[test]
    fn a_pair_of_ranks_counts_for_all_nodes_that_they_execute() {
        // Rank 2 executes nodes 2 and 3: a pair with rank 1 is the link from node 1 to node 3.
        let one = request(&[(2, 1)]).faults(&members(3, &[]));
        let links: Vec<Link> = one.links().collect();
        assert_eq!(links, [Link::of(Node(1), 1)]);
        // Ranks that are not neighbours have no link that could be faulty.
        assert!(request(&[(0, 3)]).faults(&members(4, &[])).is_empty());
        // After a failure they may be neighbours: rank 0 executes nodes 0 and 1.
        let after_failure = request(&[(0, 3)]).faults(&members(4, &[1]));
        let links: Vec<Link> = after_failure.links().collect();
        assert_eq!(links, [Link::of(Node(1), 1)]);
        // A link within one rank is never faulty.
        assert!(request(&[(0, 0)]).faults(&members(4, &[1])).is_empty());
    }

    #[test]
    fn names_the_ranks_that_are_cut_off_and_chooses_a_home_node_as_sink() {
        let members = members(6, &[1, 3]);
        let all = NodeSet::of(8, (0..6).map(Node));
        let nothing =
            TreeRoute::new(&members, &TreeRequest::any(), &all).expect("all are connected");
        assert_eq!(nothing.chosen.tree.sink(), Node(0));
        // Rank 5 executes node 7 besides its home node, and rank 4 node 6.
        let links: Vec<(u32, u32)> = vec![(5, 0), (5, 2), (5, 4)];
        let error = TreeRoute::new(&members, &request(&links), &all).err();
        let error = error.expect("rank 5 is cut off");
        assert_eq!(error.status, Status::Argument);
        assert_eq!(
            error.text,
            "options.links leaves no path to rank 0 from rank 5: declare fewer faulty links"
        );
        let found = TreeRequest {
            detected: true,
            ..request(&links)
        };
        let error = TreeRoute::new(&members, &found, &all).err();
        assert_eq!(error.map(|error| error.status), Some(Status::State));
    }

    #[test]
    fn the_sink_has_few_faulty_links_and_is_in_the_largest_connected_part() {
        // Node 2 is the lowest node without a faulty link.
        let near = request(&[(0, 1)]);
        let all = NodeSet::of(8, (0..8).map(Node));
        let route = TreeRoute::new(&members(8, &[]), &near, &all).expect("all are connected");
        assert_eq!(route.chosen.tree.sink(), Node(2));
        // The lowest rank is cut off: the others share the data.
        let apart = request(&[(0, 1), (0, 2), (0, 3)]);
        let shares = (0..4).map(|rank| apart.share(&members(4, &[]), 90, Rank(rank)));
        assert_eq!(shares.collect::<Vec<_>>(), [0..0, 0..30, 30..60, 60..90]);
    }

    #[test]
    fn example_4_seven_nodes_share_the_data() {
        let data_nodes = figure_16().connected(Node(0b001));
        let sizes = (0..8).map(|node| share(70, &data_nodes, Node(node)));
        let sizes: Vec<u64> = sizes.map(|range| range.end - range.start).collect();
        assert_eq!(sizes, [10, 10, 10, 10, 10, 10, 10, 0]);
    }

    /// The rows of 1024 that a rank of eight computes at most, where the executor of a node computes the rows of that
    /// node, and where the rows are divided among the ranks that are connected to the sink. The table in docs/tree.md.
    #[test]
    fn rows_of_each_rank_by_nodes_and_by_shares() {
        let all_of = |rank: u32| (0..8).map(move |other| (rank, other));
        let most_rows = |failed: &[u32], cut_off: &[u32]| {
            let members = members(8, failed);
            let links: Vec<(u32, u32)> = cut_off.iter().flat_map(|rank| all_of(*rank)).collect();
            let request = request(&links);
            let faults = request.faults(&members);
            let by_nodes = members
                .survivors()
                .map(|rank| 128 * members.nodes_of(rank).len());
            let by_nodes =
                (faults.largest_component().len() == faults.len()).then(|| by_nodes.max());
            let shares = members
                .survivors()
                .map(|rank| request.share(&members, 1024, rank));
            let by_shares = shares.map(|share| share.end - share.start).max();
            (by_nodes.flatten(), by_shares.unwrap_or(0))
        };
        // By nodes there is no result if a rank is cut off.
        assert_eq!(most_rows(&[], &[]), (Some(128), 128));
        assert_eq!(most_rows(&[], &[7]), (None, 147));
        assert_eq!(most_rows(&[], &[6, 7]), (None, 171));
        assert_eq!(most_rows(&[], &[5, 6, 7]), (None, 205));
        assert_eq!(most_rows(&[1], &[]), (Some(256), 147));
        assert_eq!(most_rows(&[1, 2], &[]), (Some(256), 171));
        assert_eq!(most_rows(&[1, 2], &[7]), (None, 205));
        assert_eq!(most_rows(&[2, 3], &[]), (Some(256), 171));
        assert_eq!(most_rows(&[1, 2, 3], &[]), (Some(512), 205));
    }

    proptest! {
        /// The ranks with a share are those that a tree reaches, and their shares cover all items.
        #[test]
        fn shares_cover_all_items(
            ranks in 1_usize..20,
            failed in prop::collection::vec(0_u32..20, 0..6),
            links in prop::collection::vec((0_u32..20, 0_u32..5), 0..40),
            sink in prop::option::of(0_u32..20),
            total: u64,
        ) {
            let failed = failed.into_iter();
            let failed: Vec<u32> = failed.filter(|rank| (1..ranks as u32).contains(rank)).collect();
            let members = members(ranks, &failed);
            let links: Vec<(u32, u32)> = links.into_iter().map(|(a, bit)| (a, a ^ 1 << bit)).collect();
            let sink = sink.map(|sink| Rank(sink % ranks as u32));
            let request = TreeRequest { sink, ..request(&links) };
            let living = contributing_nodes(&members, members.faulty());
            let route = TreeRoute::of_connected(&members, &request, &living);
            let sharing = request.sharing_nodes(&members);
            prop_assert!(TreeRoute::new(&members, &request, &sharing).is_ok());
            prop_assert_eq!(route.cut_off.is_none(), sharing.len() == living.len());
            let least = total / sharing.len() as u64;
            let mut next = 0;
            for rank in Rank::all(ranks) {
                let own = request.share(&members, total, rank);
                prop_assert_eq!(own.start, next);
                next = own.end;
                if members.is_faulty(rank) || !route.reaches(rank.home()) {
                    prop_assert!(own.is_empty());
                } else {
                    prop_assert!((least..=least + 1).contains(&(own.end - own.start)));
                }
            }
            prop_assert_eq!(next, total);
        }

        #[test]
        fn no_data_crosses_a_faulty_link(
            ranks in 1_usize..20,
            failed in prop::collection::vec(0_u32..20, 0..6),
            links in prop::collection::vec((0_u32..20, 0_u32..5), 0..12),
            reroute: bool,
        ) {
            let failed = failed.into_iter();
            let failed: Vec<u32> = failed.filter(|rank| (1..ranks as u32).contains(rank)).collect();
            let members = members(ranks, &failed);
            let links: Vec<(u32, u32)> = links.into_iter().map(|(a, bit)| (a, a ^ 1 << bit)).collect();
            let remedy = if reroute { Remedy::Reroute } else { Remedy::Delegate };
            let request = TreeRequest { remedy, ..request(&links) };
            let all = NodeSet::of(members.cube().len(), (0..ranks as u32).map(Node));
            let route = TreeRoute::of_connected(&members, &request, &all);
            prop_assert!(members.survivors().any(|rank| rank.home() == route.chosen.tree.sink()));
            for transfer in route.schedule.steps().iter().flatten() {
                let ends = (route.executor(transfer.from), route.executor(transfer.to));
                prop_assert!(ends.0 == ends.1 || !request.is_faulty(ends.0, ends.1));
            }
        }

        #[test]
        fn the_nodes_of_one_rank_are_connected(
            ranks in 1_usize..40,
            failed in prop::collection::vec(0_u32..40, 0..39),
        ) {
            let failed = failed.into_iter();
            let failed: Vec<u32> = failed.filter(|rank| (1..ranks as u32).contains(rank)).collect();
            let members = members(ranks, &failed);
            let survivors: Vec<Rank> = members.survivors().collect();
            let all = survivors.iter().flat_map(|a| survivors.iter().map(move |b| (a.0, b.0)));
            let all: Vec<(u32, u32)> = all.collect();
            // If every pair is faulty, only the nodes of one rank are connected.
            let faults = request(&all).faults(&members);
            for rank in survivors {
                let part: Vec<Node> = faults.connected(rank.home()).iter().collect();
                prop_assert_eq!(part, members.nodes_of(rank));
            }
        }
    }
}

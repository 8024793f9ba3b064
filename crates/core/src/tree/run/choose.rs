//! The tree that ranks take: FIND_TREE of the 1996 paper (Section 3.1) on the group as it is, and the
//! plan along it.
//!
//! What is declared faulty is a pair of ranks. It counts for every link of the cube whose two ends they
//! execute; a link between two nodes of one rank is in its memory, and never faulty. The nodes of the
//! dead are executed by their covers, and so is every node without a home: no node is faulty. Must never:
//! look at more than the members and the wish, so that all ranks choose alike.

use crate::members::{Members, Rank};
use crate::tree::faults::{Faults, Link, along};
use crate::tree::find::{Cost, faulty_links, tree_to};
use crate::tree::plan::{CutOff, Kind, Plan, Remedy};
use crate::tree::schedule::{Machine, Pace, Ports, Schedule};
use crate::tree::shape::Tree;
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::error::{Error, Result, Status};

/// What a caller wants of a tree; the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Whose node the data go to; None: FIND_TREE chooses.
    pub sink: Option<Rank>,
    /// The pairs of ranks that cannot talk to each other directly.
    pub links: Vec<(Rank, Rank)>,
    /// What a node does that cannot talk to its parent. [`Remedy::Partition`] needs data that can be
    /// divided, and counts as [`Remedy::Delegate`].
    pub remedy: Remedy,
    /// The links were found out, not given by the caller.
    pub detected: bool,
}

impl Wish {
    /// Any sink, and nothing faulty.
    pub fn any() -> Wish {
        Wish {
            sink: None,
            links: Vec::new(),
            remedy: Remedy::Delegate,
            detected: false,
        }
    }

    fn is_faulty(&self, one: Rank, other: Rank) -> bool {
        let mut links = self.links.iter();
        links.any(|link| *link == (one, other) || *link == (other, one))
    }

    /// Which links of the cube cannot be used.
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
}

/// A tree that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The tree.
    pub tree: Tree,
    /// The rank that executes its sink.
    pub holder: Rank,
    /// How many of its links are faulty, and had to be worked around.
    pub faulty_links: u32,
    /// How many messages took a neighbour's help instead.
    pub helps: usize,
    /// How many took a way around.
    pub detours: usize,
}

/// A tree with who sends what when.
pub struct Route {
    /// The tree.
    pub chosen: Chosen,
    /// The steps.
    pub schedule: Schedule,
    /// Who executed which node when it was chosen.
    executors: Vec<Rank>,
}

impl Route {
    /// Chooses a tree along which the data of `contributors` come to its sink. `Status::Argument` where
    /// there is no way; `Status::State` if it was found out which links are faulty.
    pub fn new(members: &Members, wish: &Wish, contributors: &NodeSet) -> Result<Route> {
        let faults = wish.faults(members);
        let sink = match wish.sink {
            Some(rank) => rank.home(),
            None => best_sink(&faults, members),
        };
        let tree = tree_to(sink, &faults, Cost::Paper);
        let remedy = match wish.remedy {
            Remedy::Reroute => Remedy::Reroute,
            Remedy::Delegate | Remedy::Partition => Remedy::Delegate,
        };
        let plan = Plan::new(&tree, &faults, contributors, remedy);
        let plan = plan.map_err(|cut_off| refuse(&cut_off, members, wish))?;
        let machine = Machine {
            ports: Ports::All,
            pace: Pace::Alone,
        };
        Ok(Route {
            chosen: Chosen {
                holder: members.executor(sink),
                faulty_links: faulty_links(&tree, &faults),
                helps: plan.count(Kind::Help),
                detours: plan.count(Kind::Detour),
                tree,
            },
            schedule: Schedule::new(&plan, machine),
            executors: members
                .cube()
                .nodes()
                .map(|node| members.executor(node))
                .collect(),
        })
    }

    /// Who does a node's part.
    pub fn executor(&self, node: Node) -> Rank {
        self.executors[node.0 as usize]
    }
}

/// As `find_tree_anyway`, but the home of a living rank: each connected part has one, since a rank is
/// connected to all nodes that it executes.
fn best_sink(faults: &Faults, members: &Members) -> Node {
    let part = faults.largest_part();
    let homes = members.survivors().map(Rank::home);
    let candidates = homes.filter(|node| part.contains(*node));
    let best = candidates.min_by_key(|node| (faults.word(*node).count_ones(), node.0));
    best.unwrap_or(members.lowest_survivor().home())
}

fn refuse(cut_off: &CutOff, members: &Members, wish: &Wish) -> Error {
    let ranks = cut_off.nodes.iter().map(|node| members.executor(*node));
    let mut ranks: Vec<Rank> = ranks.collect();
    ranks.sort_unstable();
    ranks.dedup();
    let names: Vec<String> = ranks.iter().map(|rank| rank.to_string()).collect();
    let status = match wish.detected {
        true => Status::State,
        false => Status::Argument,
    };
    let text = format!(
        "the faulty links leave no way to rank {} from rank {}",
        members.executor(cut_off.sink),
        names.join(", ")
    );
    Error::new(status, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::RankSet;
    use proptest::prelude::*;

    fn members(ranks: usize, dead: &[u32]) -> Members {
        let lowest = (0..ranks as u32).find(|rank| !dead.contains(rank));
        let mut members = Members::new(Rank(lowest.expect("somebody lives")), ranks);
        members.absorb(&RankSet::from_ranks(
            ranks,
            dead.iter().map(|rank| Rank(*rank)),
        ));
        members
    }

    fn wish(links: &[(u32, u32)]) -> Wish {
        Wish {
            links: links.iter().map(|(a, b)| (Rank(*a), Rank(*b))).collect(),
            ..Wish::any()
        }
    }

    #[test]
    fn a_pair_of_ranks_counts_for_all_nodes_that_they_execute() {
        // Rank 2 executes nodes 2 and 3: a pair with rank 1 is the link from node 1 to node 3.
        let one = wish(&[(2, 1)]).faults(&members(3, &[]));
        let links: Vec<Link> = one.links().collect();
        assert_eq!(links, [Link::of(Node(1), 1)]);
        // Ranks that are no neighbours have no link that could be faulty.
        assert!(wish(&[(0, 3)]).faults(&members(4, &[])).is_empty());
        // Unless one of them takes over: rank 0 executes nodes 0 and 1.
        let taken = wish(&[(0, 3)]).faults(&members(4, &[1]));
        let links: Vec<Link> = taken.links().collect();
        assert_eq!(links, [Link::of(Node(1), 1)]);
        // A link within one rank is never faulty.
        assert!(wish(&[(0, 0)]).faults(&members(4, &[1])).is_empty());
    }

    #[test]
    fn who_has_no_way_is_named_and_a_sink_is_somebody_s_own_node() {
        let members = members(6, &[1, 3]);
        let mut all = NodeSet::new(8);
        (0..6).map(Node).for_each(|node| all.insert(node));
        let nothing = Route::new(&members, &Wish::any(), &all).expect("all are connected");
        assert_eq!(nothing.chosen.tree.sink(), Node(0));
        // Rank 5 executes node 7 besides its own, and rank 4 node 6.
        let links: Vec<(u32, u32)> = vec![(5, 0), (5, 2), (5, 4)];
        let error = Route::new(&members, &wish(&links), &all).err();
        let error = error.expect("rank 5 is cut off");
        assert_eq!(error.status, Status::Argument);
        assert!(error.text.ends_with("to rank 0 from rank 5"), "{error}");
        let found = Wish {
            detected: true,
            ..wish(&links)
        };
        let error = Route::new(&members, &found, &all).err();
        assert_eq!(error.map(|error| error.status), Some(Status::State));
    }

    proptest! {
        #[test]
        fn no_data_cross_a_faulty_link(
            ranks in 1_usize..20,
            dead in prop::collection::vec(0_u32..20, 0..6),
            links in prop::collection::vec((0_u32..20, 0_u32..5), 0..12),
            reroute: bool,
        ) {
            let dead: Vec<u32> = dead.into_iter().filter(|rank| *rank > 0 && (*rank as usize) < ranks).collect();
            let members = members(ranks, &dead);
            let links: Vec<(u32, u32)> = links.into_iter().map(|(a, bit)| (a, a ^ 1 << bit)).collect();
            let remedy = if reroute { Remedy::Reroute } else { Remedy::Delegate };
            let wish = Wish { remedy, ..wish(&links) };
            let mut all = NodeSet::new(members.cube().len());
            (0..ranks as u32).map(Node).for_each(|node| all.insert(node));
            let Ok(route) = Route::new(&members, &wish, &all) else { return Ok(()) };
            prop_assert!(members.survivors().any(|rank| rank.home() == route.chosen.tree.sink()));
            for transfer in route.schedule.steps().iter().flatten() {
                let ends = (route.executor(transfer.from), route.executor(transfer.to));
                prop_assert!(ends.0 == ends.1 || !wish.is_faulty(ends.0, ends.1));
            }
        }

        #[test]
        fn the_nodes_of_a_rank_are_connected_within_it(
            ranks in 1_usize..40,
            dead in prop::collection::vec(0_u32..40, 0..39),
        ) {
            let dead: Vec<u32> = dead.into_iter().filter(|rank| *rank > 0 && (*rank as usize) < ranks).collect();
            let members = members(ranks, &dead);
            let survivors: Vec<Rank> = members.survivors().collect();
            let all = survivors.iter().flat_map(|a| survivors.iter().map(move |b| (a.0, b.0)));
            let all: Vec<(u32, u32)> = all.collect();
            // With every pair cut, what is left are the ranks' own nodes.
            let faults = wish(&all).faults(&members);
            for rank in survivors {
                let part: Vec<Node> = faults.connected(rank.home()).iter().collect();
                prop_assert_eq!(part, members.nodes_of(rank));
            }
        }
    }
}

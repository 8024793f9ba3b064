//! The testing graph: which rank tests which. Follows "DGRP: description" of the 2018 paper, which
//! tests all to all and leaves other graphs open, and VCube (Duarte, Bona and Ruoso 2014) for a
//! graph that grows as N log N.
//!
//! VCube's graph uses the clusters c(i,s) of `vcube`. Member i tests, for each s, the first member
//! of c(i,s), and gets that member's counters with the reply. After s rounds the member that i
//! tests knows all that its subcube of s dimensions, c(i,s+1), knew; so an event is known to all
//! members within log2 N rounds. This graph has no test of a rank that is not a member, so such a
//! rank could never come back. Therefore each survivor j outside the group is also tested by the
//! first member of c(j,s), for each s. Together these are at most N log2 N tests. Every member is
//! tested: in the smallest cluster of j that has a member, j is that member's first.
//!
//! Must never: depend on anything but the counters, so that all ranks with the same counters
//! compute the same graph.

use crate::members::{Rank, RankSet};
use crate::vcube::{Node, VCube, cluster};

/// A testing graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// Every member tests all other ranks, as in the paper's experiments. An event is sent to all
    /// ranks at once, by a reliable broadcast of N^2 messages.
    AllToAll,
    /// Each member tests at most log2 N members, and some ranks outside the group. Events travel
    /// with the tests: they take up to log2 N intervals and need no further messages.
    VCube,
}

/// Returns the first member of c(node,s).
fn first_member(node: Node, s: u32, group: &RankSet) -> Option<Rank> {
    let ranks = cluster(node, s).map(|node| Rank(node.0));
    ranks.into_iter().find(|rank| group.contains(*rank))
}

impl Assignment {
    /// Returns the ranks that a member tests, ascending. `ranks` is the number of ranks, and
    /// `outside` holds the survivors outside the group. A rank is in both sets if the group
    /// consists of all survivors because none is recommended.
    pub fn tested_by(
        self,
        tester: Rank,
        ranks: usize,
        group: &RankSet,
        outside: &RankSet,
    ) -> Vec<Rank> {
        let mut tested = self.members_near(tester, ranks, group);
        match self {
            Assignment::AllToAll => tested.extend(outside),
            Assignment::VCube => {
                for rank in outside.iter().filter(|rank| *rank != tester) {
                    // The s for which the tester is in c(rank,s).
                    let s = (rank.0 ^ tester.0).ilog2();
                    if first_member(rank.home(), s, group) == Some(tester) {
                        tested.insert(rank);
                    }
                }
            }
        }
        tested.remove(tester);
        tested.iter().collect()
    }

    /// Returns the members with which the graph joins a rank.
    fn members_near(self, rank: Rank, ranks: usize, group: &RankSet) -> RankSet {
        match self {
            Assignment::AllToAll => group.clone(),
            Assignment::VCube => {
                let dimensions = 0..VCube::for_ranks(ranks).dimension();
                let firsts = dimensions.filter_map(|s| first_member(rank.home(), s, group));
                RankSet::of(ranks, firsts)
            }
        }
    }

    /// Returns the members that test a survivor outside the group, ascending. They vote on its
    /// return.
    pub fn testers_of(self, rank: Rank, ranks: usize, group: &RankSet) -> Vec<Rank> {
        let mut testers = self.members_near(rank, ranks, group);
        testers.remove(rank);
        testers.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(ranks: usize, members: impl IntoIterator<Item = u32>) -> RankSet {
        RankSet::of(ranks, members.into_iter().map(Rank))
    }

    fn numbers(ranks: Vec<Rank>) -> Vec<u32> {
        ranks.into_iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn without_failures_the_graph_is_the_hypercube() {
        let (all, none) = (set(8, 0..8), set(8, []));
        let tested = |rank| numbers(Assignment::VCube.tested_by(Rank(rank), 8, &all, &none));
        assert_eq!(tested(0), [1, 2, 4]);
        assert_eq!(tested(5), [1, 4, 7]);
        let tested =
            numbers(Assignment::AllToAll.tested_by(Rank(2), 4, &set(4, [0, 2]), &set(4, [3])));
        assert_eq!(tested, [0, 3]);
    }

    #[test]
    fn an_outside_rank_is_tested_by_the_first_members_of_its_clusters() {
        // Rank 4 is outside, and so is rank 5, its first neighbour: c(4,2) = 6 7, c(4,3) = 0 1 2 3.
        let (group, outside) = (set(8, [0, 1, 2, 3, 6, 7]), set(8, [4, 5]));
        let testers = numbers(Assignment::VCube.testers_of(Rank(4), 8, &group));
        assert_eq!(testers, [0, 6]);
        for tester in 0..8 {
            let tested = Assignment::VCube.tested_by(Rank(tester), 8, &group, &outside);
            let expected = group.contains(Rank(tester)) && testers.contains(&tester);
            assert_eq!(tested.contains(&Rank(4)), expected, "{tester}");
        }
    }

    /// A group of at least two members, with survivors and failed ranks outside.
    fn groups() -> impl Strategy<Value = (usize, RankSet, RankSet)> {
        (2_usize..300, 0.0_f64..1.0, any::<u64>()).prop_map(|(ranks, share, seed)| {
            let mut random = ftsort_kernels::random::SplitMix::new(seed);
            let (mut group, mut outside) = (RankSet::new(ranks), RankSet::new(ranks));
            for rank in Rank::all(ranks) {
                let kind = random.below(1000) as f64 / 1000.0;
                if kind >= share {
                    group.insert(rank);
                } else if kind >= share / 2.0 {
                    outside.insert(rank);
                }
            }
            for rank in [0, ranks as u64 / 2] {
                group.insert(Rank(rank as u32));
                outside.remove(Rank(rank as u32));
            }
            (ranks, group, outside)
        })
    }

    fn graph(ranks: usize, group: &RankSet, outside: &RankSet) -> Vec<(Rank, Vec<Rank>)> {
        let tested = |tester| Assignment::VCube.tested_by(tester, ranks, group, outside);
        group
            .iter()
            .map(|tester| (tester, tested(tester)))
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_rank_is_tested_by_few_members((ranks, group, outside) in groups()) {
            let graph = graph(ranks, &group, &outside);
            let log = VCube::for_ranks(ranks).dimension() as usize;
            let tests: usize = graph.iter().map(|(_, tested)| tested.len()).sum();
            prop_assert!(tests <= (group.len() + outside.len()) * log);
            for rank in group.iter().chain(outside.iter()) {
                prop_assert!(graph.iter().any(|(_, tested)| tested.contains(&rank)), "{rank}");
            }
            for (tester, tested) in &graph {
                prop_assert!(!tested.contains(tester));
                let known = |rank: &Rank| group.contains(*rank) || outside.contains(*rank);
                prop_assert!(tested.iter().all(known));
            }
        }

        #[test]
        fn voters_are_testers((ranks, group, outside) in groups()) {
            let graph = graph(ranks, &group, &outside);
            for rank in outside.iter() {
                let testers = graph.iter().filter(|(_, tested)| tested.contains(&rank));
                let testers: Vec<Rank> = testers.map(|(tester, _)| *tester).collect();
                prop_assert_eq!(testers, Assignment::VCube.testers_of(rank, ranks, &group));
            }
        }

        #[test]
        fn events_reach_all_members_within_log_n_rounds((ranks, group, outside) in groups()) {
            let graph = graph(ranks, &group, &outside);
            // For each member, the members with events that it knows.
            let own = |rank| RankSet::of(ranks, [rank]);
            let mut known: Vec<RankSet> = Rank::all(ranks).map(own).collect();
            for _ in 0..VCube::for_ranks(ranks).dimension() {
                let before = known.clone();
                for (tester, tested) in &graph {
                    for rank in tested.iter().filter(|rank| group.contains(**rank)) {
                        known[tester.index()].extend(&before[rank.index()]);
                    }
                }
            }
            for member in group.iter() {
                prop_assert!(group.iter().all(|other| known[member.index()].contains(other)));
            }
        }
    }
}

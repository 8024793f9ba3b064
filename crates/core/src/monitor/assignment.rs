//! Who tests whom. Follows "DGRP: description" of the 2018 paper, which tests all to all and leaves other
//! testing graphs open, and VCube (Duarte, Bona and Ruoso 2014) for one that grows as N log N. Pure: all
//! ranks with the same counters come to the same graph.
//!
//! VCube's, over the clusters c(i,s) of `vcube`: member i tests, for each s, the first member of c(i,s),
//! and pulls what that knows; so news are everywhere within log2 N rounds, since after s rounds the one
//! that i tests knows all that its subcube of s dimensions, c(i,s+1), knew. That graph leaves out whoever
//! is not a member, who could never come back. So beside these each survivors rank j outside of the group is
//! tested by the first member of c(j,s), for each s. Together that is at most N log2 N tests.
//! Every member is tested: in the smallest cluster of j that has a member, that member's first is j.

use crate::members::{Rank, RankSet};
use crate::vcube::{Node, VCube, cluster};

/// A testing graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// Every member tests all others, as in the paper's experiments. Events are told to all at once, by a
    /// reliable broadcast: N^2 messages each.
    AllToAll,
    /// At most log2 N tests by each member, but for those of ranks outside of the group. Events are told
    /// with the tests: up to log2 N intervals, and no message more.
    VCube,
}

/// The first member of c(node,s).
fn first_member(node: Node, s: u32, group: &RankSet) -> Option<Rank> {
    let ranks = cluster(node, s).map(|node| Rank(node.0));
    ranks.into_iter().find(|rank| group.contains(*rank))
}

impl Assignment {
    /// Whom a member tests, ascending: of `ranks` ranks, the `group` and survivors ranks `outside` of it. A
    /// rank may be in both where the group is all the survivors because nobody is recommended.
    pub fn tested_by(
        self,
        tester: Rank,
        ranks: usize,
        group: &RankSet,
        outside: &RankSet,
    ) -> Vec<Rank> {
        let mut tested = RankSet::new(ranks);
        match self {
            Assignment::AllToAll => {
                tested.extend(group);
                tested.extend(outside);
            }
            Assignment::VCube => {
                let dimension = VCube::for_ranks(ranks).dimension();
                let firsts = (1..=dimension).filter_map(|s| first_member(tester.home(), s, group));
                firsts.for_each(|rank| {
                    tested.insert(rank);
                });
                for rank in outside.iter().filter(|rank| *rank != tester) {
                    // The s for which the tester is in c(rank,s).
                    let s = (rank.0 ^ tester.0).ilog2() + 1;
                    if first_member(rank.home(), s, group) == Some(tester) {
                        tested.insert(rank);
                    }
                }
            }
        }
        tested.remove(tester);
        tested.iter().collect()
    }

    /// Which members test a survivors rank outside of the group, ascending: those who vote on it.
    pub fn testers_of(self, rank: Rank, ranks: usize, group: &RankSet) -> Vec<Rank> {
        let mut testers = RankSet::new(ranks);
        match self {
            Assignment::AllToAll => testers.extend(group),
            Assignment::VCube => {
                let dimension = VCube::for_ranks(ranks).dimension();
                let firsts = (1..=dimension).filter_map(|s| first_member(rank.home(), s, group));
                firsts.for_each(|rank| {
                    testers.insert(rank);
                });
            }
        }
        testers.remove(rank);
        testers.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(ranks: usize, members: impl IntoIterator<Item = u32>) -> RankSet {
        RankSet::from_ranks(ranks, members.into_iter().map(Rank))
    }

    fn numbers(ranks: Vec<Rank>) -> Vec<u32> {
        ranks.into_iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn without_faults_the_graph_is_the_hypercube() {
        let (all, none) = (set(8, 0..8), set(8, []));
        let tested = |rank| numbers(Assignment::VCube.tested_by(Rank(rank), 8, &all, &none));
        assert_eq!(tested(0), [1, 2, 4]);
        assert_eq!(tested(5), [1, 4, 7]);
        let tested =
            numbers(Assignment::AllToAll.tested_by(Rank(2), 4, &set(4, [0, 2]), &set(4, [3])));
        assert_eq!(tested, [0, 3]);
    }

    #[test]
    fn who_is_out_is_tested_by_the_first_members_of_its_clusters() {
        // Rank 4 is out, and so is 5, its first neighbour: c(4,2) = 6 7, c(4,3) = 0 1 2 3.
        let (group, outside) = (set(8, [0, 1, 2, 3, 6, 7]), set(8, [4, 5]));
        let testers = numbers(Assignment::VCube.testers_of(Rank(4), 8, &group));
        assert_eq!(testers, [0, 6]);
        for tester in 0..8 {
            let tested = Assignment::VCube.tested_by(Rank(tester), 8, &group, &outside);
            let expected = group.contains(Rank(tester)) && testers.contains(&tester);
            assert_eq!(tested.contains(&Rank(4)), expected, "{tester}");
        }
    }

    /// A group of any size of at least two, with survivors and failed ranks outside.
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
        fn everybody_is_tested_by_few((ranks, group, outside) in groups()) {
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
        fn news_are_everywhere_within_log_n_rounds((ranks, group, outside) in groups()) {
            let graph = graph(ranks, &group, &outside);
            // Whose news each member has.
            let own = |rank| RankSet::from_ranks(ranks, [rank]);
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

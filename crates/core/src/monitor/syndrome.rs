//! The state of all ranks as one rank knows it: a counter of events for each rank, which is even
//! for a recommended rank and odd for one that is not. Follows "DGRP: system model" and "DGRP
//! implementation" of the 2018 paper. The counters are those of Rangarajan, Dahbura and Ziegler,
//! 1995.
//!
//! Must never: decide whether the source of an update may be trusted. The monitor does that.

use crate::members::{Rank, RankSet};
use ftsort_kernels::random::SplitMix;

/// Counters that differ from 0, by ascending rank.
pub type CounterUpdates = Vec<(Rank, u32)>;

/// The counters of all ranks, and the set of failed ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Syndrome {
    counters: Vec<u32>,
    failed: RankSet,
    digest: u64,
}

/// Returns the contribution of one counter to the digest.
fn digest_of(rank: usize, counter: u32) -> u64 {
    match counter {
        0 => 0,
        _ => SplitMix::new((rank as u64) << 32 | u64::from(counter)).bits(),
    }
}

impl Syndrome {
    /// Creates the state of `ranks` ranks, all recommended.
    pub fn new(ranks: usize) -> Syndrome {
        Syndrome {
            counters: vec![0; ranks],
            failed: RankSet::new(ranks),
            digest: 0,
        }
    }

    /// Returns the counters, by rank.
    pub fn counters(&self) -> &[u32] {
        &self.counters
    }

    /// Returns the counter of a rank.
    pub fn counter(&self, rank: Rank) -> u32 {
        self.counters[rank.index()]
    }

    /// Returns a number that is the same for equal counters, and almost always different for
    /// different ones.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns whether a rank has not failed and its counter is even.
    pub fn is_recommended(&self, rank: Rank) -> bool {
        self.counter(rank).is_multiple_of(2) && !self.failed.contains(rank)
    }

    /// Returns whether a rank is known to have failed.
    pub fn is_failed(&self, rank: Rank) -> bool {
        self.failed.contains(rank)
    }

    fn survivors(&self) -> impl Iterator<Item = Rank> {
        Rank::all(self.counters.len()).filter(|rank| !self.failed.contains(*rank))
    }

    /// Returns the group: all recommended ranks. If there is none, returns all survivors, because
    /// no rank could ever come back into an empty group. The paper does not treat this case.
    pub fn group(&self) -> RankSet {
        let ranks = self.counters.len();
        let recommended = self.survivors().filter(|rank| self.is_recommended(*rank));
        let group = RankSet::of(ranks, recommended);
        if group.is_empty() {
            RankSet::of(ranks, self.survivors())
        } else {
            group
        }
    }

    /// Returns the survivors that are not recommended.
    pub fn outside(&self) -> RankSet {
        let outside = self.survivors().filter(|rank| !self.is_recommended(*rank));
        RankSet::of(self.counters.len(), outside)
    }

    fn set(&mut self, rank: Rank, counter: u32) {
        let index = rank.index();
        let change = digest_of(index, counter).wrapping_sub(digest_of(index, self.counters[index]));
        self.digest = self.digest.wrapping_add(change);
        self.counters[index] = counter;
    }

    /// Counts an event: the rank changes between recommended and not recommended. A counter at its
    /// maximum stays.
    pub fn increment(&mut self, rank: Rank) {
        self.set(rank, self.counter(rank).saturating_add(1));
    }

    /// Takes over a counter that is above the known one. Returns whether it was.
    pub fn merge(&mut self, rank: Rank, counter: u32) -> bool {
        let newer = counter > self.counter(rank);
        if newer {
            self.set(rank, counter);
        }
        newer
    }

    /// Marks ranks as failed. A failed rank is never recommended, whatever its counter becomes. For a rank that was
    /// recommended this is an event.
    pub fn mark_failed(&mut self, failed: &RankSet) {
        let ranks = self.counters.len();
        for rank in failed.iter().filter(|rank| rank.index() < ranks) {
            let was_recommended = self.is_recommended(rank);
            self.failed.insert(rank);
            if was_recommended {
                self.increment(rank);
            }
        }
    }

    /// Returns the counters that differ from 0, which is all that another rank can learn from.
    pub fn nonzero_counters(&self) -> CounterUpdates {
        let counters = Rank::all(self.counters.len()).zip(&self.counters);
        let nonzero = counters.filter(|(_, counter)| **counter > 0);
        nonzero.map(|(rank, counter)| (rank, *counter)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn syndrome_of(ranks: usize, counters: &[(u32, u32)]) -> Syndrome {
        let mut syndrome = Syndrome::new(ranks);
        for (rank, counter) in counters {
            syndrome.merge(Rank(rank % ranks as u32), *counter);
        }
        syndrome
    }

    fn numbers(set: &RankSet) -> Vec<u32> {
        set.iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn figures_2_and_3_of_the_paper() {
        let figure_2 = syndrome_of(8, &[(1, 1), (3, 3), (4, 1), (6, 1)]);
        assert_eq!(numbers(&figure_2.group()), [0, 2, 5, 7]);
        let mut figure_3 = figure_2;
        figure_3.increment(Rank(0));
        figure_3.increment(Rank(6));
        assert_eq!(numbers(&figure_3.group()), [2, 5, 6, 7]);
        assert_eq!(numbers(&figure_3.outside()), [0, 1, 3, 4]);
    }

    #[test]
    fn two_testers_of_the_same_failure_count_one_event() {
        let (mut one, mut other) = (Syndrome::new(3), Syndrome::new(3));
        one.increment(Rank(2));
        other.increment(Rank(2));
        assert!(!one.merge(Rank(2), other.counter(Rank(2))));
        assert_eq!(one.counters(), [0, 0, 1]);
    }

    #[test]
    fn failed_ranks_are_never_recommended() {
        let mut syndrome = syndrome_of(4, &[(1, 1)]);
        let failed = RankSet::of(4, [Rank(1), Rank(2)]);
        syndrome.mark_failed(&failed);
        assert_eq!(syndrome.counters(), [0, 1, 1, 0]);
        assert!(syndrome.merge(Rank(2), 4));
        assert_eq!(numbers(&syndrome.group()), [0, 3]);
        assert!(syndrome.outside().is_empty());
        let before = syndrome.clone();
        syndrome.mark_failed(&failed);
        assert_eq!(syndrome, before);
    }

    #[test]
    fn without_a_recommended_rank_all_survivors_are_the_group() {
        let mut syndrome = syndrome_of(3, &[(0, 1), (1, 3), (2, 1)]);
        assert_eq!(numbers(&syndrome.group()), [0, 1, 2]);
        syndrome.mark_failed(&RankSet::of(3, [Rank(1)]));
        assert_eq!(numbers(&syndrome.group()), [0, 2]);
        assert_eq!(numbers(&syndrome.outside()), [0, 2]);
    }

    proptest! {
        #[test]
        fn the_order_of_merging_does_not_matter(
            ranks in 1_usize..40,
            counters in prop::collection::vec((any::<u32>(), 0_u32..9), 0..60),
            seed: u64,
        ) {
            let mut shuffled = counters.clone();
            let mut random = SplitMix::new(seed);
            for index in 0..shuffled.len() {
                random.draw_at(&mut shuffled, index);
            }
            shuffled.extend_from_slice(&counters[..counters.len() / 2]);
            let (one, other) = (syndrome_of(ranks, &counters), syndrome_of(ranks, &shuffled));
            prop_assert_eq!(&one, &other);
            prop_assert_eq!(one.digest(), other.digest());
            let most = |rank: u32| {
                let own = counters.iter().filter(|(of, _)| of % ranks as u32 == rank);
                own.map(|(_, counter)| *counter).max().unwrap_or(0)
            };
            let expected: Vec<u32> = (0..ranks as u32).map(most).collect();
            prop_assert_eq!(one.counters(), &expected[..]);
        }

        #[test]
        fn different_counters_have_different_digests(ranks in 1_usize..20, one: Vec<(u32, u32)>, other: Vec<(u32, u32)>) {
            let (one, other) = (syndrome_of(ranks, &one), syndrome_of(ranks, &other));
            prop_assert_eq!(one.counters() == other.counters(), one.digest() == other.digest());
        }
    }
}

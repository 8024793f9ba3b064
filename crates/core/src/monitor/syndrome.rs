//! Who is recommended, as one rank knows it: a counter of events for each rank, even for a recommended one
//! and odd for one that is not. Follows "DGRP: system model" and "DGRP implementation" of the 2018 paper
//! (the counters are those of Rangarajan, Dahbura and Ziegler, 1995). Pure; it must never ask who told it,
//! which is for the monitor to do.

use crate::members::{Rank, RankSet};
use crate::monitor::wire::{put, take_u32};
use ftsort_kernels::random::SplitMix;

/// Counters that differ from 0, by ascending rank.
pub type News = Vec<(Rank, u32)>;

/// The counters of all ranks, and who is dead.
#[derive(Clone, Debug, PartialEq)]
pub struct Syndrome {
    counters: Vec<u32>,
    dead: RankSet,
    digest: u64,
}

/// The share of one counter in the digest.
fn digest_of(rank: usize, counter: u32) -> u64 {
    match counter {
        0 => 0,
        _ => SplitMix::new((rank as u64) << 32 | u64::from(counter)).bits(),
    }
}

impl Syndrome {
    /// So many ranks, all recommended.
    pub fn new(ranks: usize) -> Syndrome {
        Syndrome {
            counters: vec![0; ranks],
            dead: RankSet::new(ranks),
            digest: 0,
        }
    }

    /// The counters, by rank.
    pub fn counters(&self) -> &[u32] {
        &self.counters
    }

    /// The counter of a rank.
    pub fn counter(&self, rank: Rank) -> u32 {
        self.counters[rank.index()]
    }

    /// A number that is the same for equal counters and hardly ever for others.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Is a rank alive, and its counter even?
    pub fn is_recommended(&self, rank: Rank) -> bool {
        self.counter(rank).is_multiple_of(2) && !self.dead.contains(rank)
    }

    /// Is it known to be dead?
    pub fn has_failed(&self, rank: Rank) -> bool {
        self.dead.contains(rank)
    }

    fn living(&self) -> impl Iterator<Item = Rank> {
        Rank::all(self.counters.len()).filter(|rank| !self.dead.contains(*rank))
    }

    /// The group: all recommended ranks. If there is none, all living ones: nobody could ever come back
    /// into an empty group, and the paper says nothing of it.
    pub fn group(&self) -> RankSet {
        let ranks = self.counters.len();
        let recommended = self.living().filter(|rank| self.is_recommended(*rank));
        let group = RankSet::from_ranks(ranks, recommended);
        match group.is_empty() {
            true => RankSet::from_ranks(ranks, self.living()),
            false => group,
        }
    }

    /// The living ranks that are not recommended.
    pub fn outside(&self) -> RankSet {
        let outside = self.living().filter(|rank| !self.is_recommended(*rank));
        RankSet::from_ranks(self.counters.len(), outside)
    }

    fn set(&mut self, rank: Rank, counter: u32) {
        let index = rank.index();
        let change = digest_of(index, counter).wrapping_sub(digest_of(index, self.counters[index]));
        self.digest = self.digest.wrapping_add(change);
        self.counters[index] = counter;
    }

    /// An event: the rank is from now on what it was not. A counter that cannot grow stays.
    pub fn bump(&mut self, rank: Rank) {
        self.set(rank, self.counter(rank).saturating_add(1));
    }

    /// Learns of a counter. True if it is above the own one, which then becomes it.
    pub fn merge(&mut self, rank: Rank, counter: u32) -> bool {
        let newer = counter > self.counter(rank);
        if newer {
            self.set(rank, counter);
        }
        newer
    }

    /// Learns of deaths: the dead are not recommended, whatever is heard of them. Returns those that
    /// were recommended before.
    pub fn absorb_dead(&mut self, dead: &RankSet) -> Vec<Rank> {
        let known = |rank: &Rank| rank.index() < self.counters.len();
        let new = dead
            .iter()
            .filter(known)
            .filter(|rank| !self.has_failed(*rank));
        let new: Vec<Rank> = new.collect();
        let were = new
            .iter()
            .copied()
            .filter(|rank| self.is_recommended(*rank));
        let were: Vec<Rank> = were.collect();
        for rank in new {
            self.dead.insert(rank);
        }
        for rank in &were {
            self.bump(*rank);
        }
        were
    }

    /// All that is worth telling.
    pub fn news(&self) -> News {
        let counters = Rank::all(self.counters.len()).zip(&self.counters);
        let told = counters.filter(|(_, counter)| **counter > 0);
        told.map(|(rank, counter)| (rank, *counter)).collect()
    }
}

/// Appends news: how many, and each as the gap from the rank before, and the counter.
pub fn encode(news: &News, out: &mut Vec<u8>) {
    put(out, news.len() as u64);
    let mut next = 0;
    for (rank, counter) in news {
        put(out, u64::from(rank.0 - next));
        put(out, u64::from(*counter));
        next = rank.0 + 1;
    }
}

/// Takes news off the front; None if they are no news about so many ranks.
pub fn decode(ranks: usize, bytes: &mut &[u8]) -> Option<News> {
    let length = take_u32(bytes)? as usize;
    if length > ranks {
        return None;
    }
    let mut news = News::with_capacity(length);
    let mut next = 0_u32;
    for _ in 0..length {
        let rank = next.checked_add(take_u32(bytes)?)?;
        let counter = take_u32(bytes)?;
        if rank as usize >= ranks {
            return None;
        }
        news.push((Rank(rank), counter));
        next = rank + 1;
    }
    Some(news)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(ranks: usize, counters: &[(u32, u32)]) -> Syndrome {
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
        let figure_2 = told(8, &[(1, 1), (3, 3), (4, 1), (6, 1)]);
        assert_eq!(numbers(&figure_2.group()), [0, 2, 5, 7]);
        let mut figure_3 = figure_2;
        figure_3.bump(Rank(0));
        figure_3.bump(Rank(6));
        assert_eq!(numbers(&figure_3.group()), [2, 5, 6, 7]);
        assert_eq!(numbers(&figure_3.outside()), [0, 1, 3, 4]);
    }

    #[test]
    fn two_testers_who_notice_the_same_count_one_event() {
        let (mut one, mut other) = (Syndrome::new(3), Syndrome::new(3));
        one.bump(Rank(2));
        other.bump(Rank(2));
        assert!(!one.merge(Rank(2), other.counter(Rank(2))));
        assert_eq!(one.counters(), [0, 0, 1]);
    }

    #[test]
    fn the_dead_are_never_recommended() {
        let mut syndrome = told(4, &[(1, 1)]);
        let dead = RankSet::from_ranks(4, [Rank(1), Rank(2)]);
        assert_eq!(syndrome.absorb_dead(&dead), [Rank(2)]);
        assert_eq!(syndrome.counters(), [0, 1, 1, 0]);
        assert!(syndrome.merge(Rank(2), 4));
        assert_eq!(numbers(&syndrome.group()), [0, 3]);
        assert!(syndrome.outside().is_empty());
        assert!(syndrome.absorb_dead(&dead).is_empty());
    }

    #[test]
    fn where_nobody_is_recommended_all_the_living_are_the_group() {
        let mut syndrome = told(3, &[(0, 1), (1, 3), (2, 1)]);
        assert_eq!(numbers(&syndrome.group()), [0, 1, 2]);
        syndrome.absorb_dead(&RankSet::from_ranks(3, [Rank(1)]));
        assert_eq!(numbers(&syndrome.group()), [0, 2]);
        assert_eq!(numbers(&syndrome.outside()), [0, 2]);
    }

    proptest! {
        #[test]
        fn merging_in_any_order_comes_to_the_same(
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
            let (one, other) = (told(ranks, &counters), told(ranks, &shuffled));
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
        fn news_survive_their_encoding(ranks in 1_usize..200, counters: Vec<(u32, u32)>) {
            let syndrome = told(ranks, &counters);
            let mut bytes = Vec::new();
            encode(&syndrome.news(), &mut bytes);
            let mut rest = &bytes[..];
            let news = decode(ranks, &mut rest).expect("just encoded");
            prop_assert!(rest.is_empty());
            let mut other = Syndrome::new(ranks);
            for (rank, counter) in news {
                other.merge(rank, counter);
            }
            prop_assert_eq!(syndrome, other);
        }

        #[test]
        fn digests_tell_counters_apart(ranks in 1_usize..20, one: Vec<(u32, u32)>, other: Vec<(u32, u32)>) {
            let (one, other) = (told(ranks, &one), told(ranks, &other));
            prop_assert_eq!(one.counters() == other.counters(), one.digest() == other.digest());
        }

        #[test]
        fn any_bytes_are_survived(ranks in 1_usize..200, bytes: Vec<u8>) {
            if let Some(news) = decode(ranks, &mut &bytes[..]) {
                prop_assert!(news.iter().all(|(rank, _)| rank.index() < ranks));
            }
        }
    }
}

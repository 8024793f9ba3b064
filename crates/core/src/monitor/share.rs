//! What to do about a slow rank, past the 2018 paper, which only knows of leaving it out: does moving its
//! work pay, and how would work be shared by speed. Pure functions, for who hands out the work.
//!
//! Why: a executor does two parts, one after the other. So moving a part never pays before its rank is more
//! than twice as slow, whatever the paper's threshold says; and a rank that is three times as slow still
//! does a third of a part for nothing.
//!
//! Sums, products and quotients are the same on all machines, so that all ranks come to the same from the
//! same measurements. Must never look at a clock, or at what only one rank knows.

use crate::members::{FULL_WEIGHT, Rank, RankSet};
use crate::vcube::{NodeSet, VCube};

/// Times differ by as much without anybody being slow: up to here a rank is at full speed.
const USUAL: f64 = 1.25;

/// How long something has taken of late: a mean in which what is older counts less. Unlike Algorithm 1's it
/// does not begin at 0, and late replies always enter it: that a rank is slow is what it is to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SmoothedTime {
    sum: f64,
    weights: f64,
}

impl SmoothedTime {
    /// It took so long, in any unit. `alpha`: the weight of what was.
    pub fn add(&mut self, time: f64, alpha: f64) {
        self.sum = alpha * self.sum + (1.0 - alpha) * time;
        self.weights = alpha * self.weights + (1.0 - alpha);
    }

    /// The mean; None if nothing is known.
    pub fn mean(&self) -> Option<f64> {
        (self.weights > 0.0).then(|| self.sum / self.weights)
    }
}

/// How many seconds are gained, or lost if below 0, when the part of a slow rank is moved.
///
/// - `work`: how long a part takes at full speed, in seconds.
/// - `slowdown`: how many times as long it takes on the slow rank.
/// - `parts`: how many parts the other one then does, its own included: 2 for a executor that has done
///   nothing else; less than 2 if the part is spread over several.
/// - `cost`: how long moving takes, in seconds: an agreement, and fetching the data.
pub fn gain(work: f64, slowdown: f64, parts: f64, cost: f64) -> f64 {
    work * slowdown - (work * parts + cost)
}

/// How many times as slow as full speed each rank is, by how long the same takes it (None or not above 0:
/// not known, and at full speed). Full speed is the median of the faster half, so that a few that are
/// very fast, or any number that is slow, change nothing. 1 up to a quarter more, since times differ by as
/// much anyway.
pub fn slowdowns(means: &[Option<f64>]) -> Vec<f64> {
    let known = |mean: &Option<f64>| mean.filter(|mean| mean.is_finite() && *mean > 0.0);
    let mut sorted: Vec<f64> = means.iter().filter_map(known).collect();
    sorted.sort_by(f64::total_cmp);
    let faster = &sorted[..sorted.len().div_ceil(2)];
    let full = faster.get(faster.len() / 2).copied();
    let slowdown = |mean: &Option<f64>| match (known(mean), full) {
        (Some(mean), Some(full)) if mean > USUAL * full => mean / full,
        _ => 1.0,
    };
    means.iter().map(slowdown).collect()
}

/// Each rank's share of work, from 0 to [`FULL_WEIGHT`], by how many times as slow as full speed it is. One
/// that is more than 32 times as slow gets 0.
pub fn weights(slowdowns: &[f64]) -> Vec<u8> {
    let weight = |slowdown: &f64| (f64::from(FULL_WEIGHT) / slowdown.max(1.0)).round() as u8;
    slowdowns.iter().map(weight).collect()
}

/// Of what several testers say of each rank, the lower median; `said` has a list for each of them, by rank.
/// So a tester that is itself slow, and to which all others look slow, counts for nothing among three.
pub fn merged(said: &[Vec<Option<f64>>], ranks: usize) -> Vec<Option<f64>> {
    let of = |rank: usize| {
        let all = said.iter().filter_map(|said| said.get(rank).copied()?);
        let mut all: Vec<f64> = all.filter(|mean| *mean > 0.0 && mean.is_finite()).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len().saturating_sub(1) / 2).copied()
    };
    (0..ranks).map(of).collect()
}

/// What a rank has before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankLoad {
    /// How many times as slow as full speed it is.
    pub slowdown: f64,
    /// Bytes of its blocks.
    pub bytes: u64,
}

/// Those of the `candidates` whom to leave out pays, with so many rounds to go. `group`: who executes nodes
/// now; `loads`: by rank, those of the others mean nothing.
///
/// Work is counted in bytes times rounds: a rank that is s times as slow takes s times its own; if it is left
/// out, its executor has its bytes besides its own, and must be sent them, which is what a round does too, so
/// that moving costs one round of these bytes. Whoever is slowest is asked about first, and who covers
/// several has all of theirs. Who is out already stays out: there is nothing to be moved. Somebody stays.
pub fn worth_excluding(
    candidates: &RankSet,
    group: &RankSet,
    loads: &[RankLoad],
    rounds_left: u32,
) -> RankSet {
    let ranks = loads.len();
    let cube = VCube::for_ranks(ranks);
    let mut faulty = NodeSet::new(cube.len());
    for node in cube.nodes() {
        let home = Rank(node.0);
        if home.index() >= ranks || !group.contains(home) {
            faulty.insert(node);
        }
    }
    let outside = candidates.iter().filter(|rank| !group.contains(*rank));
    let mut out = RankSet::from_ranks(ranks, outside);
    let mut bytes: Vec<f64> = loads.iter().map(|load| load.bytes as f64).collect();
    let mut inside: Vec<Rank> = candidates
        .iter()
        .filter(|rank| group.contains(*rank))
        .collect();
    let slowness = |rank: Rank| loads[rank.index()].slowdown;
    inside.sort_by(|one, other| {
        slowness(*other)
            .total_cmp(&slowness(*one))
            .then(one.cmp(other))
    });
    for rank in inside {
        faulty.insert(rank.home());
        let executor = cube.executor(rank.home(), &faulty).map(|node| Rank(node.0));
        let own = bytes[rank.index()];
        let saved = executor.filter(|_| own > 0.0).map(|executor| {
            let parts = slowness(executor) * (bytes[executor.index()] + own) / own;
            let work = own * f64::from(rounds_left);
            (executor, gain(work, slowness(rank), parts, own))
        });
        match saved {
            Some((executor, saved)) if saved > 0.0 => {
                bytes[executor.index()] += own;
                out.insert(rank);
            }
            _ => faulty.remove(rank.home()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn weights_of(means: &[Option<f64>]) -> Vec<u8> {
        weights(&slowdowns(means))
    }

    #[test]
    fn moving_pays_for_the_very_slow_only() {
        assert!(gain(10.0, 1.9, 2.0, 0.0) < 0.0);
        assert!(gain(10.0, 2.5, 2.0, 1.0) > 0.0);
        assert!(gain(10.0, 2.5, 2.0, 6.0) < 0.0);
        assert!(gain(10.0, 1.5, 1.1, 1.0) > 0.0);
    }

    #[test]
    fn shares_by_speed() {
        let means = [0.01, 0.01, 0.02, 0.04, 1.0].map(Some);
        assert_eq!(weights_of(&means), [16, 16, 8, 4, 0]);
        assert_eq!(weights_of(&[None, Some(0.1), Some(f64::NAN)]), [16, 16, 16]);
        assert_eq!(weights_of(&[]), []);
        assert_eq!(weights_of(&[Some(1.0), Some(4.0)]), [16, 4]);
        assert_eq!(weights_of(&[Some(1.0), Some(1.2)]), [16, 16]);
    }

    #[test]
    fn a_pace_begins_at_the_first_and_forgets() {
        let mut reply_time = SmoothedTime::default();
        assert_eq!(reply_time.mean(), None);
        reply_time.add(3.0, 0.9);
        assert!((reply_time.mean().unwrap() - 3.0).abs() < 1e-12);
        (0..100).for_each(|_| reply_time.add(6.0, 0.9));
        assert!((reply_time.mean().unwrap() - 6.0).abs() < 1e-3);
    }

    #[test]
    fn a_slow_tester_is_outvoted() {
        let said = [
            vec![None, Some(1.0), Some(1.0), Some(4.0)],
            vec![Some(1.0), None, Some(1.0), Some(4.0)],
            vec![Some(1.0), Some(1.0), None, Some(5.0)],
            vec![Some(9.0), Some(9.0), Some(9.0), None],
        ];
        assert_eq!(weights_of(&merged(&said, 4)), [16, 16, 16, 4]);
        assert_eq!(merged(&[vec![Some(f64::NAN)]], 2), [None, None]);
    }

    fn set(ranks: usize, some: &[u32]) -> RankSet {
        RankSet::from_ranks(ranks, some.iter().copied().map(Rank))
    }

    fn loads(slowdowns: &[f64]) -> Vec<RankLoad> {
        let load = |slowdown: &f64| RankLoad {
            slowdown: *slowdown,
            bytes: 1000,
        };
        slowdowns.iter().map(load).collect()
    }

    #[test]
    fn leaving_out_must_save_more_than_the_cover_s_work_and_the_move() {
        let all = set(4, &[0, 1, 2, 3]);
        let ask = |slow: f64, rounds| {
            let loads = loads(&[1.0, slow, 1.0, 1.0]);
            worth_excluding(&set(4, &[1]), &all, &loads, rounds)
        };
        // Two parts and half a round with two to go.
        assert_eq!(ask(2.4, 2), set(4, &[]));
        assert_eq!(ask(2.6, 2), set(4, &[1]));
        // With one to go the move counts twice as much.
        assert_eq!(ask(2.6, 1), set(4, &[]));
        assert_eq!(ask(100.0, 0), set(4, &[]));
        // Its executor, rank 0, is as slow.
        let both = loads(&[5.0, 5.0, 1.0, 1.0]);
        assert_eq!(worth_excluding(&set(4, &[1]), &all, &both, 9), set(4, &[]));
        // Who is out stays so, and who has nothing costs nothing.
        let group = set(4, &[0, 2, 3]);
        let idle = loads(&[1.0; 4]);
        assert_eq!(
            worth_excluding(&set(4, &[1]), &group, &idle, 9),
            set(4, &[1])
        );
    }

    #[test]
    fn a_cover_of_several_has_all_of_theirs() {
        let all = set(4, &[0, 1, 2, 3]);
        let suspects = set(4, &[1, 2, 3]);
        // Ranks 2 and 3 are each other's covers.
        let slow = loads(&[1.0, 3.2, 3.2, 3.2]);
        assert_eq!(worth_excluding(&suspects, &all, &slow, 4), set(4, &[1]));
        // Without rank 3 rank 0 covers 2 as well, and has the part of 1 already.
        let three = set(4, &[0, 1, 2]);
        assert_eq!(
            worth_excluding(&suspects, &three, &slow, 4),
            set(4, &[1, 3])
        );
        let slower = loads(&[1.0, 3.5, 3.5, 3.5]);
        assert_eq!(worth_excluding(&suspects, &three, &slower, 4), suspects);
    }

    proptest! {
        #[test]
        fn the_faster_never_get_less(means in prop::collection::vec(prop::option::of(0.001_f64..100.0), 0..50)) {
            let weights = weights_of(&means);
            prop_assert!(weights.iter().all(|weight| *weight <= FULL_WEIGHT));
            for (one, weight) in means.iter().zip(&weights) {
                for (other, than) in means.iter().zip(&weights) {
                    if let (Some(one), Some(other)) = (one, other) {
                        prop_assert!(one > other || weight >= than);
                    }
                }
            }
            // A quarter of them at least is at full speed.
            let full = weights.iter().filter(|weight| **weight == FULL_WEIGHT).count();
            prop_assert!(4 * full >= means.len());
        }

        #[test]
        fn only_speeds_relative_to_others_count(means in prop::collection::vec(0.001_f64..100.0, 1..50), exponent in -8_i32..8) {
            let scaled: Vec<Option<f64>> = means.iter().map(|mean| Some(mean * 2.0_f64.powi(exponent))).collect();
            let means: Vec<Option<f64>> = means.into_iter().map(Some).collect();
            prop_assert_eq!(weights_of(&means), weights_of(&scaled));
        }

        #[test]
        fn candidates_alone_leave_somebody_stays_and_all_agree(
            slow in prop::collection::vec((1.0_f64..40.0, 0_u64..5000), 1..20),
            chosen in prop::collection::vec(any::<bool>(), 20),
            inside in prop::collection::vec(any::<bool>(), 20),
            rounds in 0_u32..10,
        ) {
            let ranks = slow.len();
            let loads: Vec<RankLoad> =
                slow.iter().map(|(slowdown, bytes)| RankLoad { slowdown: *slowdown, bytes: *bytes }).collect();
            let some = |flags: &[bool]| RankSet::from_ranks(ranks, Rank::all(ranks).filter(|rank| flags[rank.index()]));
            let (candidates, mut group) = (some(&chosen), some(&inside));
            group.insert(Rank(0));
            let out = worth_excluding(&candidates, &group, &loads, rounds);
            prop_assert_eq!(&out, &worth_excluding(&candidates, &group, &loads, rounds));
            prop_assert!(out.iter().all(|rank| candidates.contains(rank)));
            prop_assert!(group.iter().any(|rank| !out.contains(rank)));
            for rank in candidates.iter() {
                // Never one that is at most twice as slow, if nobody is faster than full speed.
                let slow = loads[rank.index()].slowdown > 1.0 && rounds > 0;
                prop_assert!(!group.contains(rank) || !out.contains(rank) || slow);
                prop_assert!(group.contains(rank) || out.contains(rank));
            }
        }
    }
}

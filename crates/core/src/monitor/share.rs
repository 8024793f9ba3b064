//! The placement of work with slow ranks: whether excluding a slow rank saves time, and how to
//! share work by speed. Goes beyond the 2018 paper, which always excludes a slow rank.
//!
//! An executor of two nodes runs one after the other. So moving a node's work never saves time
//! unless its rank is more than twice as slow, whatever the paper's threshold says; and a rank that
//! is three times as slow still does a third of a node's work.
//!
//! Sums, products and quotients are the same on all machines, so all ranks compute the same from
//! the same measurements.
//!
//! Must never: read a clock, or use data that only one rank has.

use crate::members::{FULL_WEIGHT, Rank, RankSet};
use crate::vcube::{NodeSet, VCube};

/// A rank is at full speed up to this slowdown, because times vary by as much without a cause.
const FULL_SPEED_UP_TO: f64 = 1.25;

/// A smoothed time: a mean with lower weights for older values. Unlike Algorithm 1's mean it does
/// not begin at 0, and late replies always enter it, because it measures how slow a rank is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SmoothedTime {
    sum: f64,
    weights: f64,
}

impl SmoothedTime {
    /// Adds a time, in any unit. `alpha` is the weight of the earlier values.
    pub fn add(&mut self, time: f64, alpha: f64) {
        self.sum = alpha * self.sum + (1.0 - alpha) * time;
        self.weights = alpha * self.weights + (1.0 - alpha);
    }

    /// Returns the mean, or None without any value.
    pub fn mean(&self) -> Option<f64> {
        (self.weights > 0.0).then(|| self.sum / self.weights)
    }
}

/// Returns the number of seconds saved by moving the work of a slow rank, or lost if below 0.
///
/// - `work`: the time for one node's work at full speed, in seconds.
/// - `slowdown`: the factor by which the slow rank takes longer.
/// - `parts`: the number of nodes' work that the other rank then does, its own included: 2 for an
///   executor that had one node; less than 2 if the work is spread over several ranks.
/// - `cost`: the time to move the work, in seconds: an agreement, and the transfer of the data.
pub fn gain(work: f64, slowdown: f64, parts: f64, cost: f64) -> f64 {
    work * slowdown - (work * parts + cost)
}

/// Returns the factor by which each rank is slower than full speed, from the time that the same
/// work takes on each. A time of None, or not above 0, counts as full speed. Full speed is the
/// median of the faster half, so slow ranks do not change it as long as more than a quarter of the ranks is at
/// full speed. A rank that takes up to a quarter longer has factor 1, because times vary by as much anyway.
pub fn slowdowns(means: &[Option<f64>]) -> Vec<f64> {
    let known = |mean: &Option<f64>| mean.filter(|mean| mean.is_finite() && *mean > 0.0);
    let mut sorted: Vec<f64> = means.iter().filter_map(known).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let faster = &sorted[..sorted.len().div_ceil(2)];
    let full = faster.get(faster.len() / 2).copied();
    let slowdown = |mean: &Option<f64>| match (known(mean), full) {
        (Some(mean), Some(full)) if mean > FULL_SPEED_UP_TO * full => mean / full,
        _ => 1.0,
    };
    means.iter().map(slowdown).collect()
}

/// Returns each rank's share of work, from 0 to [`FULL_WEIGHT`], from its slowdown. A rank that is
/// more than 32 times as slow gets 0.
pub fn weights(slowdowns: &[f64]) -> Vec<u8> {
    let weight = |slowdown: &f64| (f64::from(FULL_WEIGHT) / slowdown.max(1.0)).round() as u8;
    slowdowns.iter().map(weight).collect()
}

/// Returns the lower median of the times that the testers report for each rank. `by_tester` has one list
/// per tester, by rank. A slow tester, to which all others look slow, does not count among three.
pub fn median_of_testers(by_tester: &[Vec<Option<f64>>], ranks: usize) -> Vec<Option<f64>> {
    let of = |rank: usize| {
        let all = by_tester
            .iter()
            .filter_map(|by_tester| by_tester.get(rank).copied()?);
        let mut all: Vec<f64> = all.filter(|mean| *mean > 0.0 && mean.is_finite()).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len().saturating_sub(1) / 2).copied()
    };
    (0..ranks).map(of).collect()
}

/// The work of one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankLoad {
    /// The factor by which the rank is slower than full speed.
    pub slowdown: f64,
    /// The size of its blocks, in bytes.
    pub bytes: u64,
}

/// Returns the `candidates` that should be excluded to save time with `rounds_left` rounds to go. `group`
/// holds the ranks that execute nodes now. `loads` has an entry for each rank; those outside the
/// group are ignored.
///
/// Work is counted in bytes times rounds. A rank that is s times as slow needs s times its own
/// work. If it is excluded, its executor has these bytes besides its own. They must be sent to it
/// first, which costs as much as one round of these bytes. The slowest candidate is examined first,
/// and an executor of several nodes has the work of all of them. A candidate outside the group
/// stays excluded, because there is nothing to move. At least one rank stays in the group.
pub fn worth_excluding(
    candidates: &RankSet,
    group: &RankSet,
    loads: &[RankLoad],
    rounds_left: u32,
) -> RankSet {
    let ranks = loads.len();
    let cube = VCube::for_ranks(ranks);
    let without_work = cube.nodes().filter(|node| !group.contains(Rank(node.0)));
    let mut faulty = NodeSet::of(cube.len(), without_work);
    let outside = candidates.iter().filter(|rank| !group.contains(*rank));
    let mut out = RankSet::of(ranks, outside);
    let mut bytes: Vec<f64> = loads.iter().map(|load| load.bytes as f64).collect();
    let mut inside: Vec<Rank> = candidates
        .iter()
        .filter(|rank| group.contains(*rank))
        .collect();
    let slowness = |rank: Rank| loads[rank.index()].slowdown;
    inside.sort_unstable_by(|one, other| {
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
    fn moving_work_saves_time_only_for_very_slow_ranks() {
        assert!(gain(10.0, 1.9, 2.0, 0.0) < 0.0);
        assert!(gain(10.0, 2.5, 2.0, 1.0) > 0.0);
        assert!(gain(10.0, 2.5, 2.0, 6.0) < 0.0);
        assert!(gain(10.0, 1.5, 1.1, 1.0) > 0.0);
    }

    #[test]
    fn weights_follow_speed() {
        let means = [0.01, 0.01, 0.02, 0.04, 1.0].map(Some);
        assert_eq!(weights_of(&means), [16, 16, 8, 4, 0]);
        assert_eq!(weights_of(&[None, Some(0.1), Some(f64::NAN)]), [16, 16, 16]);
        assert_eq!(weights_of(&[]), []);
        assert_eq!(weights_of(&[Some(1.0), Some(4.0)]), [16, 4]);
        assert_eq!(weights_of(&[Some(1.0), Some(1.2)]), [16, 16]);
    }

    #[test]
    fn a_smoothed_time_begins_at_the_first_value_and_forgets_it() {
        let mut reply_time = SmoothedTime::default();
        assert_eq!(reply_time.mean(), None);
        reply_time.add(3.0, 0.9);
        assert!((reply_time.mean().unwrap() - 3.0).abs() < 1e-12);
        (0..100).for_each(|_| reply_time.add(6.0, 0.9));
        assert!((reply_time.mean().unwrap() - 6.0).abs() < 1e-3);
    }

    #[test]
    fn the_median_ignores_a_slow_tester() {
        let by_tester = [
            vec![None, Some(1.0), Some(1.0), Some(4.0)],
            vec![Some(1.0), None, Some(1.0), Some(4.0)],
            vec![Some(1.0), Some(1.0), None, Some(5.0)],
            vec![Some(9.0), Some(9.0), Some(9.0), None],
        ];
        assert_eq!(
            weights_of(&median_of_testers(&by_tester, 4)),
            [16, 16, 16, 4]
        );
        assert_eq!(median_of_testers(&[vec![Some(f64::NAN)]], 2), [None, None]);
        // Each of three ranks has two testers, and the greater time of two may be that of the slow one.
        let by_tester = [
            vec![None, Some(1.0), Some(4.0)],
            vec![Some(1.0), None, Some(4.0)],
            vec![Some(9.0), Some(9.0), None],
        ];
        assert_eq!(weights_of(&median_of_testers(&by_tester, 3)), [16, 16, 4]);
    }

    fn set(ranks: usize, some: &[u32]) -> RankSet {
        RankSet::of(ranks, some.iter().copied().map(Rank))
    }

    fn loads(slowdowns: &[f64]) -> Vec<RankLoad> {
        let load = |slowdown: &f64| RankLoad {
            slowdown: *slowdown,
            bytes: 1000,
        };
        slowdowns.iter().map(load).collect()
    }

    #[test]
    fn exclusion_must_save_more_than_the_executors_work_and_the_move() {
        let all = set(4, &[0, 1, 2, 3]);
        let ask = |slow: f64, rounds| {
            let loads = loads(&[1.0, slow, 1.0, 1.0]);
            worth_excluding(&set(4, &[1]), &all, &loads, rounds)
        };
        // Two nodes' work and half a round, with two rounds to go.
        assert_eq!(ask(2.4, 2), set(4, &[]));
        assert_eq!(ask(2.6, 2), set(4, &[1]));
        // With one round to go the move counts twice as much.
        assert_eq!(ask(2.6, 1), set(4, &[]));
        assert_eq!(ask(100.0, 0), set(4, &[]));
        // Its executor, rank 0, is as slow.
        let both = loads(&[5.0, 5.0, 1.0, 1.0]);
        assert_eq!(worth_excluding(&set(4, &[1]), &all, &both, 9), set(4, &[]));
        // An excluded rank stays excluded, and a rank without data costs nothing.
        let group = set(4, &[0, 2, 3]);
        let idle = loads(&[1.0; 4]);
        assert_eq!(
            worth_excluding(&set(4, &[1]), &group, &idle, 9),
            set(4, &[1])
        );
    }

    #[test]
    fn an_executor_of_several_nodes_has_all_their_work() {
        let all = set(4, &[0, 1, 2, 3]);
        let suspects = set(4, &[1, 2, 3]);
        // Ranks 2 and 3 are each other's executors.
        let slow = loads(&[1.0, 3.2, 3.2, 3.2]);
        assert_eq!(worth_excluding(&suspects, &all, &slow, 4), set(4, &[1]));
        // Without rank 3, rank 0 is the executor of node 2 as well, and has the work of node 1
        // already.
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
        fn a_faster_rank_never_gets_less(means in prop::collection::vec(prop::option::of(0.001_f64..100.0), 0..50)) {
            let weights = weights_of(&means);
            prop_assert!(weights.iter().all(|weight| *weight <= FULL_WEIGHT));
            for (one, weight) in means.iter().zip(&weights) {
                for (other, than) in means.iter().zip(&weights) {
                    if let (Some(one), Some(other)) = (one, other) {
                        prop_assert!(one > other || weight >= than);
                    }
                }
            }
            // At least a quarter of them is at full speed.
            let full = weights.iter().filter(|weight| **weight == FULL_WEIGHT).count();
            prop_assert!(4 * full >= means.len());
        }

        #[test]
        fn weights_depend_on_relative_speed_only(means in prop::collection::vec(0.001_f64..100.0, 1..50), exponent in -8_i32..8) {
            let scaled: Vec<Option<f64>> = means.iter().map(|mean| Some(mean * 2.0_f64.powi(exponent))).collect();
            let means: Vec<Option<f64>> = means.into_iter().map(Some).collect();
            prop_assert_eq!(weights_of(&means), weights_of(&scaled));
        }

        #[test]
        fn only_candidates_are_excluded_and_one_rank_stays(
            slow in prop::collection::vec((1.0_f64..40.0, 0_u64..5000), 1..20),
            chosen in prop::collection::vec(any::<bool>(), 20),
            inside in prop::collection::vec(any::<bool>(), 20),
            rounds in 0_u32..10,
        ) {
            let ranks = slow.len();
            let loads: Vec<RankLoad> =
                slow.iter().map(|(slowdown, bytes)| RankLoad { slowdown: *slowdown, bytes: *bytes }).collect();
            let some = |flags: &[bool]| RankSet::of(ranks, Rank::all(ranks).filter(|rank| flags[rank.index()]));
            let (candidates, mut group) = (some(&chosen), some(&inside));
            group.insert(Rank(0));
            let out = worth_excluding(&candidates, &group, &loads, rounds);
            prop_assert_eq!(&out, &worth_excluding(&candidates, &group, &loads, rounds));
            prop_assert!(out.iter().all(|rank| candidates.contains(rank)));
            prop_assert!(group.iter().any(|rank| !out.contains(rank)));
            for rank in candidates.iter() {
                // A rank at full speed is never excluded.
                let slow = loads[rank.index()].slowdown > 1.0 && rounds > 0;
                prop_assert!(!group.contains(rank) || !out.contains(rank) || slow);
                prop_assert!(group.contains(rank) || out.contains(rank));
            }
        }
    }
}

//! `Foreground` on made-up measurements: how soon a slow rank is noticed, and how often one that is not is taken
//! for one. Past the 2018 paper.

use crate::dgrp::Distribution;
use ftsort_core::members::Rank;
use ftsort_core::monitor::MonitorOptions;
use ftsort_core::monitor::foreground::Foreground;
use ftsort_kernels::random::SplitMix;

/// How many times as long a rank test_seconds that is slow on purpose.
pub const SLOWDOWNS: [f64; 3] = [3.0, 10.0, 30.0];

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForegroundStats {
    /// Intervals, times the ranks that were in the group.
    pub rank_intervals: u64,
    /// Ranks excluded that were not slow on purpose.
    pub false_exclusions: u64,
    /// By [`SLOWDOWNS`]: how many there were.
    pub by_slowdown: [u64; SLOWDOWNS.len()],
    /// By [`SLOWDOWNS`]: how many were excluded in their first interval.
    pub noticed: [u64; SLOWDOWNS.len()],
}

/// After so many intervals somebody else is made slow, for one interval.
const INTERVALS_BETWEEN: u32 = 10;

/// Plays so many intervals, after fifty that do not count. All times are distribution in the same way.
pub fn run(
    options: &MonitorOptions,
    ranks: usize,
    distribution: Distribution,
    intervals: u32,
    seed: u64,
) -> ForegroundStats {
    let mut random = SplitMix::new(seed);
    let mut group = Foreground::new(ranks, options.clone());
    let mut stats = ForegroundStats::default();
    for interval in 0..50 + intervals {
        let counts = interval >= 50;
        let before = group.recommended();
        let mut measurements: Vec<(Rank, f64)> = Rank::all(ranks)
            .map(|rank| (rank, distribution.draw(&mut random)))
            .collect();
        let kind = (interval / INTERVALS_BETWEEN) as usize % SLOWDOWNS.len();
        let chosen = random.below(ranks as u64) as usize;
        let slow =
            counts && interval % INTERVALS_BETWEEN == 0 && before.contains(measurements[chosen].0);
        if slow {
            measurements[chosen].1 *= SLOWDOWNS[kind];
            stats.by_slowdown[kind] += 1;
        }
        group.end_interval(&measurements);
        if !counts {
            continue;
        }
        stats.rank_intervals += before.len() as u64;
        let after = group.recommended();
        for rank in before.iter().filter(|rank| !after.contains(*rank)) {
            if slow && rank.index() == chosen {
                stats.noticed[kind] += 1
            } else {
                stats.false_exclusions += 1
            }
        }
    }
    stats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_factor_notices_less_and_errs_less() {
        let stats = |multiple| {
            let options = MonitorOptions {
                multiple,
                ..MonitorOptions::default()
            };
            run(&options, 16, Distribution::Lognormal(0.3), 1000, 1)
        };
        let (small, large) = (stats(1.0), stats(3.0));
        assert!(small.false_exclusions > large.false_exclusions);
        assert!(small.noticed[0] > large.noticed[0]);
        assert!(
            10 * large.noticed[2] > 8 * large.by_slowdown[2] && large.by_slowdown[2] > 20,
            "{large:?}"
        );
        assert!(large.rank_intervals > 15 * 1000);
    }
}

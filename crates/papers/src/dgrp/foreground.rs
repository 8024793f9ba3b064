//! The foreground monitor ([`Foreground`]) on simulated measurements: the share of slow ranks that
//! are detected, and the rate of false exclusions. Goes beyond the 2018 paper.
//!
//! Must never: count a rank as falsely excluded that was slowed on purpose.

use crate::dgrp::Distribution;
use ftsort_core::members::Rank;
use ftsort_core::monitor::MonitorOptions;
use ftsort_core::monitor::foreground::Foreground;
use ftsort_kernels::random::SplitMix;

/// The factors by which ranks are slowed on purpose.
pub const SLOWDOWNS: [f64; 3] = [3.0, 10.0, 30.0];

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForegroundStats {
    /// The sum over all intervals of the number of members.
    pub rank_intervals: u64,
    /// The number of excluded ranks that were not slowed.
    pub false_exclusions: u64,
    /// The number of slowed ranks, by the factors of [`SLOWDOWNS`].
    pub by_slowdown: [u64; SLOWDOWNS.len()],
    /// The number that were excluded in their first interval, by the factors of [`SLOWDOWNS`].
    pub detected: [u64; SLOWDOWNS.len()],
}

/// One rank is slowed for one interval in each ten.
const INTERVALS_BETWEEN: u32 = 10;

/// Runs this number of intervals, after fifty that are not counted. All times have the same
/// distribution.
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
                stats.detected[kind] += 1
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
    fn a_larger_factor_detects_less_and_errs_less() {
        let stats = |multiple| {
            let options = MonitorOptions {
                multiple,
                ..MonitorOptions::default()
            };
            run(&options, 16, Distribution::Lognormal(0.3), 1000, 1)
        };
        let (small, large) = (stats(1.0), stats(3.0));
        assert!(small.false_exclusions > large.false_exclusions);
        assert!(small.detected[0] > large.detected[0]);
        assert!(
            10 * large.detected[2] > 8 * large.by_slowdown[2] && large.by_slowdown[2] > 20,
            "{large:?}"
        );
        assert!(large.rank_intervals > 15 * 1000);
    }
}

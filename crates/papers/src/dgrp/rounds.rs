//! `Foreground` on made-up figures: how soon a slow rank is noticed, and how often one that is not is taken
//! for one. Past the 2018 paper.

use crate::dgrp::Spread;
use ftsort_core::members::Rank;
use ftsort_core::monitor::foreground::Foreground;
use ftsort_core::monitor::options::Options;
use ftsort_kernels::random::SplitMix;

/// How many times as long a rank takes that is slow on purpose.
pub const ILLS: [f64; 3] = [3.0, 10.0, 30.0];

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Intervals, times the ranks that were in the group.
    pub rank_intervals: u64,
    /// Ranks excluded that were not slow on purpose.
    pub false_exclusions: u64,
    /// By [`ILLS`]: how many there were.
    pub ills: [u64; ILLS.len()],
    /// By [`ILLS`]: how many were excluded in their first interval.
    pub noticed: [u64; ILLS.len()],
}

/// After so many intervals somebody else is made slow, for one interval.
const BETWEEN: u32 = 10;

/// Plays so many intervals, after fifty that do not count. All times are spread in the same way.
pub fn play(options: &Options, ranks: usize, spread: Spread, intervals: u32, seed: u64) -> Tally {
    let mut random = SplitMix::new(seed);
    let mut group = Foreground::new(ranks, options.clone());
    let mut tally = Tally::default();
    for interval in 0..50 + intervals {
        let counts = interval >= 50;
        let before = group.recommended();
        let mut figures: Vec<(Rank, f64)> = Rank::all(ranks)
            .map(|rank| (rank, spread.draw(&mut random)))
            .collect();
        let ill = (interval / BETWEEN) as usize % ILLS.len();
        let chosen = random.below(ranks as u64) as usize;
        let slow = counts && interval % BETWEEN == 0 && before.contains(figures[chosen].0);
        if slow {
            figures[chosen].1 *= ILLS[ill];
            tally.ills[ill] += 1;
        }
        group.interval(&figures);
        if !counts {
            continue;
        }
        tally.rank_intervals += before.len() as u64;
        let after = group.recommended();
        for rank in before.iter().filter(|rank| !after.contains(*rank)) {
            if slow && rank.index() == chosen {
                tally.noticed[ill] += 1
            } else {
                tally.false_exclusions += 1
            }
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_factor_notices_less_and_errs_less() {
        let tally = |multiple| {
            let options = Options {
                multiple,
                ..Options::default()
            };
            play(&options, 16, Spread::Lognormal(0.3), 1000, 1)
        };
        let (small, large) = (tally(1.0), tally(3.0));
        assert!(small.false_exclusions > large.false_exclusions);
        assert!(small.noticed[0] > large.noticed[0]);
        assert!(
            10 * large.noticed[2] > 8 * large.ills[2] && large.ills[2] > 20,
            "{large:?}"
        );
        assert!(large.rank_intervals > 15 * 1000);
    }
}

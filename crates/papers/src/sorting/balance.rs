//! The balance of the papers' pivots in theory, for keys that are drawn independently and rarely equal.
//!
//! Let n keys be on N nodes, m = n / N on each. The law of the shares follows from the central limit theorem for the
//! quantiles of samples:
//!
//! - HyperQuickSort: the root's median divides a subcube of M nodes in the ratio (1 + e) : (1 - e), where e has the
//!   variance (1 - 1/M) / m. A node's share is the product over log2(N) rounds, with a variance of
//!   (log2(N) - 1 + 1/N) / m.
//! - QuickMerge: all splitters come from one list. A share has the variance (N - 1) (1 - 1/N) / m, and the sum of all
//!   shares is fixed.
//! - Modified QuickMerge: in the average of all nodes' quantiles their deviations cancel to first order. A cut at the
//!   fraction p is wrong by a number of keys with the variance N sqrt(m) sqrt(2 p (1 - p) / pi), since node i has as
//!   many keys too many or too few as lie between its own quantile and the average. A share thus deviates as
//!   m^(-3/4), and not as m^(-1/2).
//!
//! Must never: sort keys; the tests compare the theory with sorts.

use crate::dgrp::normal;
use ftsort_kernels::random::SplitMix;

/// A rule that finds pivots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PivotScheme {
    /// The median of each subcube's root.
    HyperQuickSort,
    /// The quantiles of one node's list.
    QuickMerge,
    /// The averages of the quantiles of all nodes' lists.
    ModifiedQuickMerge,
}

impl PivotScheme {
    /// All rules.
    pub const ALL: [PivotScheme; 3] = [
        PivotScheme::HyperQuickSort,
        PivotScheme::QuickMerge,
        PivotScheme::ModifiedQuickMerge,
    ];
}

/// Draws the deviations of all shares from the ideal one, relative to it.
fn deviations(scheme: PivotScheme, count: f64, dimension: u32, random: &mut SplitMix) -> Vec<f64> {
    let nodes = 1_usize << dimension;
    let all = nodes as f64;
    let each = count / all;
    match scheme {
        PivotScheme::HyperQuickSort => {
            let mut shares = vec![0.0];
            for round in 0..dimension {
                let subcube = f64::from(1_u32 << (dimension - round));
                let spread = ((1.0 - 1.0 / subcube) / each).sqrt();
                let halves = shares.into_iter().flat_map(|share| {
                    let error = spread * normal(random);
                    [share + error, share - error]
                });
                shares = halves.collect();
            }
            shares
        }
        PivotScheme::QuickMerge => {
            let drawn: Vec<f64> = (0..nodes).map(|_| normal(random)).collect();
            let mean = drawn.iter().sum::<f64>() / all;
            let spread = ((all - 1.0) / each).sqrt();
            drawn.iter().map(|x| spread * (x - mean)).collect()
        }
        PivotScheme::ModifiedQuickMerge => {
            let error = |cut: usize, random: &mut SplitMix| {
                let p = cut as f64 / all;
                let between =
                    (2.0 * p * (1.0 - p) * (1.0 - 1.0 / all) / std::f64::consts::PI).sqrt();
                (all * each.sqrt() * between).sqrt() * normal(random)
            };
            let errors: Vec<f64> = (0..=nodes).map(|cut| error(cut, random)).collect();
            errors
                .windows(2)
                .map(|cuts| (cuts[1] - cuts[0]) / each)
                .collect()
        }
    }
}

/// Returns the expected value, in percent, of the largest deviation of a node's share from the ideal one, of
/// `repetitions` sorts of 2^`log2_count` keys on 2^`dimension` nodes. The value is a mean over `trials` draws.
pub fn largest_deviation(
    scheme: PivotScheme,
    log2_count: u32,
    dimension: u32,
    repetitions: u32,
    trials: u32,
) -> f64 {
    let mut random = SplitMix::new(1);
    let count = 2_f64.powi(log2_count as i32);
    let draws = trials * repetitions;
    let largest: Vec<f64> = (0..draws)
        .map(|_| {
            let all = deviations(scheme, count, dimension, &mut random);
            all.into_iter().map(f64::abs).fold(0.0, f64::max)
        })
        .collect();
    let worst = largest
        .chunks(repetitions as usize)
        .map(|chunk| chunk.iter().copied().fold(0.0, f64::max));
    100.0 * worst.sum::<f64>() / f64::from(trials)
}

#[cfg(test)]
mod tests {
    use super::super::hyperquicksort::{Reading, hyperquicksort};
    use super::super::{Lists, draw};
    use super::*;

    /// The splitters of a list at the positions of 2024, Algorithm 2, line 16.
    fn splitters(list: &[i32], nodes: usize) -> Vec<i32> {
        let at = (1..nodes).map(|v| v * list.len() / nodes);
        at.map(|index| list[index]).collect()
    }

    /// The number of keys of each node after a sort of the lists.
    fn shares(scheme: PivotScheme, mut lists: Lists) -> Vec<usize> {
        lists.iter_mut().for_each(|list| list.sort_unstable());
        let nodes = lists.len();
        let cuts: Vec<i32> = match scheme {
            PivotScheme::HyperQuickSort => {
                let outcome = hyperquicksort(&lists, &[], Reading::CORRECTED);
                return outcome.lists.iter().map(Vec::len).collect();
            }
            PivotScheme::QuickMerge => splitters(&lists[0], nodes),
            PivotScheme::ModifiedQuickMerge => {
                let each: Vec<Vec<i32>> = lists.iter().map(|list| splitters(list, nodes)).collect();
                let sum = |cut: usize| each.iter().map(|list| i64::from(list[cut])).sum::<i64>();
                (0..nodes - 1)
                    .map(|cut| (sum(cut) / nodes as i64) as i32)
                    .collect()
            }
        };
        let below = |cut: &i32| {
            lists
                .iter()
                .map(|list| list.partition_point(|key| key <= cut))
                .sum()
        };
        let mut ends: Vec<usize> = cuts.iter().map(below).collect();
        ends.insert(0, 0);
        ends.push(lists.iter().map(Vec::len).sum());
        ends.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn the_theory_agrees_with_sorts() {
        for (log2_count, dimension) in [(12, 2), (14, 3), (16, 4)] {
            for scheme in PivotScheme::ALL {
                let (trials, size) = (60, 1_usize << (log2_count - dimension));
                let measured = (0..trials).map(|seed| {
                    let found = shares(scheme, draw(1 << dimension, size, 1000 + seed));
                    let off = found.iter().map(|share| share.abs_diff(size)).max();
                    100.0 * off.unwrap_or(0) as f64 / size as f64
                });
                let measured = measured.sum::<f64>() / trials as f64;
                let theory = largest_deviation(scheme, log2_count, dimension, 1, 4000);
                let ratio = measured / theory;
                assert!(
                    (0.8..1.25).contains(&ratio),
                    "{scheme:?} on {} nodes: {measured} and {theory} %",
                    1 << dimension
                );
            }
        }
    }

    /// 2024, Section 5.2: below 0.2 % for all, and modified QuickMerge better by orders of magnitude. On 32 nodes
    /// QuickMerge is expected to be slightly above this limit.
    #[test]
    fn the_papers_statement_holds_at_its_size_except_for_quickmerge_on_32_nodes() {
        let at = |dimension| {
            PivotScheme::ALL.map(|scheme| largest_deviation(scheme, 30, dimension, 1, 2000))
        };
        for dimension in 2..=4 {
            assert!(at(dimension).iter().all(|percent| *percent < 0.2));
        }
        let [hyperquicksort, quickmerge, modified] = at(5);
        assert!((0.06..0.08).contains(&hyperquicksort), "{hyperquicksort}");
        assert!((0.21..0.23).contains(&quickmerge), "{quickmerge}");
        assert!(quickmerge > 50.0 * modified && hyperquicksort > 20.0 * modified);
        assert!((0.002..0.003).contains(&modified), "{modified}");
    }
}

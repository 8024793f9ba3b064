//! What to do about a slow rank, past the 2018 paper, which only knows of leaving it out: does moving its
//! work pay, and how would work be shared by speed. Pure functions, for who hands out the work.
//!
//! Why: a cover does two parts, one after the other. So moving a part never pays before its rank is more
//! than twice as slow, whatever the paper's threshold says; and a rank that is three times as slow still
//! does a third of a part for nothing.

/// The weight of a rank at full speed.
pub const FULL: u8 = 16;

/// How many seconds are gained, or lost if below 0, when the part of a slow rank is moved.
///
/// - `work`: how long a part takes at full speed, in seconds.
/// - `slowdown`: how many times as long it takes on the slow rank.
/// - `parts`: how many parts the other one then does, its own included: 2 for a cover that has done
///   nothing else; less than 2 if the part is spread over several.
/// - `cost`: how long moving takes, in seconds: an agreement, and fetching the data.
pub fn gain(work: f64, slowdown: f64, parts: f64, cost: f64) -> f64 {
    work * slowdown - (work * parts + cost)
}

/// Each rank's share of work by its speed: from 0 to [`FULL`], by its mean reply time (None or not above 0:
/// not known, and as fast as any). Full speed is the median of the faster half, so that a few that are
/// very fast, or any number that is slow, change nothing. One that is more than 32 times as slow gets 0.
pub fn weights(means: &[Option<f64>]) -> Vec<u8> {
    let known = |mean: &Option<f64>| mean.filter(|mean| mean.is_finite() && *mean > 0.0);
    let mut sorted: Vec<f64> = means.iter().filter_map(known).collect();
    sorted.sort_by(f64::total_cmp);
    let faster = &sorted[..sorted.len().div_ceil(2)];
    let full = faster.get(faster.len() / 2).copied();
    let weight = |mean: &Option<f64>| match (known(mean), full) {
        (Some(mean), Some(full)) => {
            (f64::from(FULL) * full / mean).round().min(f64::from(FULL)) as u8
        }
        _ => FULL,
    };
    means.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!(weights(&means), [16, 16, 8, 4, 0]);
        assert_eq!(weights(&[None, Some(0.1), Some(f64::NAN)]), [16, 16, 16]);
        assert_eq!(weights(&[]), []);
        assert_eq!(weights(&[Some(1.0), Some(4.0)]), [16, 4]);
    }

    proptest! {
        #[test]
        fn the_faster_never_get_less(means in prop::collection::vec(prop::option::of(0.001_f64..100.0), 0..50)) {
            let weights = weights(&means);
            prop_assert!(weights.iter().all(|weight| *weight <= FULL));
            for (one, weight) in means.iter().zip(&weights) {
                for (other, than) in means.iter().zip(&weights) {
                    if let (Some(one), Some(other)) = (one, other) {
                        prop_assert!(one > other || weight >= than);
                    }
                }
            }
            // A quarter of them at least is at full speed.
            let full = weights.iter().filter(|weight| **weight == FULL).count();
            prop_assert!(4 * full >= means.len());
        }

        #[test]
        fn only_speeds_relative_to_others_count(means in prop::collection::vec(0.001_f64..100.0, 1..50), exponent in -8_i32..8) {
            let scaled: Vec<Option<f64>> = means.iter().map(|mean| Some(mean * 2.0_f64.powi(exponent))).collect();
            let means: Vec<Option<f64>> = means.into_iter().map(Some).collect();
            prop_assert_eq!(weights(&means), weights(&scaled));
        }
    }
}

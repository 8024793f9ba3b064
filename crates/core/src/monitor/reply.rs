//! Statistics of one rank's reply times, and the limit of the next reply. Follows Algorithm 1 of
//! the 2018 paper to the letter; phi goes beyond it.
//!
//! Properties of Algorithm 1:
//! - `mean` begins at 0 and not at the first reply, so early values are far off. For replies that
//!   all take t the mean after n of them is (1 - alpha^n) t, and the variance is (1 - alpha) n
//!   alpha^n t. With alpha 0.9 and beta 4 the timeout is 0.46 t after the first reply and 0.84 t
//!   after the second (a threshold without a factor fails every test). Then it rises to 2.1 t after
//!   eleven replies, and needs 58 to come within a twentieth of t.
//! - The deviation is taken from the new mean, and not from the one before as Jacobson has it. That
//!   makes it alpha times as large.
//! - The timeout, after which a tester is to stop waiting, is below the threshold. A tester that
//!   stops there never sees a reply between the two. Here a test ends at the threshold, and the
//!   timeout is an intermediate value.
//!
//! Must never: read a clock.

use crate::monitor::options::{MonitorOptions, Suspicion};

/// The least deviation that phi assumes, as a share of the mean. Without it, replies that always
/// take the same time would make the smallest delay suspicious.
const LEAST_DEVIATION: f64 = 0.1;

/// A curve that is close to the normal distribution: P(later) = 1 / (1 + exp(y (A + B y^2))).
const A: f64 = 1.597_6;
const B: f64 = 0.070_566;

/// Statistics of the reply times of one rank: the variables of Algorithm 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplyStatistics {
    /// The weighted mean.
    pub mean: f64,
    /// The weighted mean of the deviations.
    pub variance: f64,
    /// mean + beta * variance.
    pub timeout: f64,
    /// timeout * multiple + plus.
    pub threshold: f64,
    /// The number of replies.
    pub count: u64,
    /// The weighted mean of the squares, for phi.
    squares: f64,
    /// The sum of the weights of all replies so far, for phi.
    weights: f64,
}

impl ReplyStatistics {
    /// Adds a reply that took `test_time` seconds: lines 8 to 12 of Algorithm 1.
    pub fn add(&mut self, options: &MonitorOptions, test_time: f64) {
        let alpha = options.alpha;
        self.mean = alpha * self.mean + (1.0 - alpha) * test_time;
        self.variance = alpha * self.variance + (1.0 - alpha) * (self.mean - test_time).abs();
        self.timeout = self.mean + options.beta * self.variance;
        self.threshold = self.timeout * options.multiple + options.plus;
        self.count += 1;
        self.squares = alpha * self.squares + (1.0 - alpha) * test_time * test_time;
        self.weights = alpha * self.weights + (1.0 - alpha);
    }

    /// Returns the longest time, in seconds, that the next reply may take.
    pub fn limit(&self, options: &MonitorOptions) -> f64 {
        if self.count < u64::from(options.first_tests.max(1)) {
            return options.first_threshold;
        }
        match options.suspicion {
            Suspicion::Threshold => self.threshold,
            Suspicion::Phi(limit) => {
                let (mean, deviation) = self.moments();
                mean + deviation * deviations_of(limit)
            }
        }
    }

    /// Returns how suspicious a test is after `elapsed` seconds: 1 if one reply in ten takes
    /// longer, 2 if one in a hundred does, and so on. Returns 0 before the first reply.
    pub fn phi(&self, elapsed: f64) -> f64 {
        let (mean, deviation) = self.moments();
        if deviation <= 0.0 {
            return 0.0;
        }
        let y = (elapsed - mean) / deviation;
        let exponent = y * (A + B * y * y);
        // ln(1 + exp(exponent)), also where exp would overflow.
        (exponent.max(0.0) + (-exponent.abs()).exp().ln_1p()) / std::f64::consts::LN_10
    }

    /// Returns the mean and the standard deviation, weighted as in Algorithm 1 but without its
    /// start at 0.
    fn moments(&self) -> (f64, f64) {
        if self.weights <= 0.0 {
            return (0.0, 0.0);
        }
        let mean = self.mean / self.weights;
        let variance = (self.squares / self.weights - mean * mean).max(0.0);
        (mean, variance.sqrt().max(LEAST_DEVIATION * mean))
    }
}

/// Returns the number of standard deviations above the mean at which phi reaches a limit: the root
/// of B y^3 + A y = g, with exp(g) = 10^limit - 1, by Cardano's formula.
fn deviations_of(limit: f64) -> f64 {
    let g = (10.0_f64.powf(limit) - 1.0).ln();
    let (p, q) = (A / (3.0 * B), g / (2.0 * B));
    let root = (q * q + p * p * p).sqrt();
    // The product of the two cube roots is -p; computing this one involves no cancellation.
    let large = (q.abs() + root).cbrt();
    (large - p / large).copysign(q)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(options: &MonitorOptions, times: &[f64]) -> ReplyStatistics {
        let mut replies = ReplyStatistics::default();
        for time in times {
            replies.add(options, *time);
        }
        replies
    }

    #[test]
    fn algorithm_1_by_hand() {
        let options = MonitorOptions::default();
        let one = after(&options, &[10.0]);
        // mean = 0.1 * 10; variance = 0.1 * |1 - 10|; timeout = 1 + 4 * 0.9.
        assert!((one.mean - 1.0).abs() < 1e-12 && (one.variance - 0.9).abs() < 1e-12);
        assert!((one.timeout - 4.6).abs() < 1e-12 && (one.threshold - 11.5).abs() < 1e-12);
        let two = after(&options, &[10.0, 20.0]);
        // mean = 0.9 + 2; variance = 0.81 + 0.1 * |2.9 - 20|.
        assert!((two.mean - 2.9).abs() < 1e-12 && (two.variance - 2.52).abs() < 1e-12);
        assert!((two.timeout - 12.98).abs() < 1e-12);
        let added = MonitorOptions {
            multiple: 1.0,
            plus: 3.0,
            ..options
        };
        assert!((after(&added, &[10.0]).threshold - 7.6).abs() < 1e-12);
    }

    #[test]
    fn the_first_threshold_holds_for_the_first_tests() {
        let options = MonitorOptions::default();
        assert!((ReplyStatistics::default().limit(&options) - 8.0).abs() < 1e-12);
        assert!((after(&options, &[0.1]).limit(&options) - 8.0).abs() < 1e-12);
        let two = after(&options, &[0.1, 0.1]);
        assert!((two.limit(&options) - two.threshold).abs() < 1e-12 && two.threshold < 0.3);
    }

    #[test]
    fn without_a_factor_the_second_and_third_test_fail_at_constant_speed() {
        let options = MonitorOptions {
            multiple: 1.0,
            ..MonitorOptions::default()
        };
        assert!(after(&options, &[1.0]).threshold < 0.47);
        assert!(after(&options, &[1.0; 2]).threshold < 0.84);
        assert!(after(&options, &[1.0; 3]).threshold > 1.0);
        assert!(after(&options, &[1.0; 11]).threshold > 2.06);
        let close = (1..).find(|n| *n > 11 && after(&options, &vec![1.0; *n]).timeout < 1.05);
        assert_eq!(close, Some(58));
    }

    #[test]
    fn one_late_reply_raises_the_limit_above_itself() {
        // The option `learn_late: false` prevents this.
        let options = MonitorOptions::default();
        let mut replies = after(&options, &[1.0; 200]);
        assert!(replies.limit(&options) < 4.0);
        replies.add(&options, 4.0);
        assert!(replies.limit(&options) > 4.0);
    }

    proptest! {
        #[test]
        fn the_printed_formulas(times in prop::collection::vec(0.0_f64..10.0, 1..50), alpha in 0.0_f64..1.0, beta in 0.0_f64..8.0) {
            let options = MonitorOptions { alpha, beta, ..MonitorOptions::default() };
            let (mut mean, mut variance) = (0.0_f64, 0.0_f64);
            let mut replies = ReplyStatistics::default();
            for time in &times {
                mean = alpha * mean + (1.0 - alpha) * time;
                variance = alpha * variance + (1.0 - alpha) * (mean - time).abs();
                replies.add(&options, *time);
                prop_assert_eq!((replies.mean, replies.variance), (mean, variance));
                prop_assert_eq!(replies.timeout, mean + beta * variance);
                prop_assert_eq!(replies.threshold, 2.5 * replies.timeout);
            }
            let most = times.iter().fold(0.0_f64, |most, time| most.max(*time));
            prop_assert!(mean <= most && variance <= most);
            prop_assert_eq!(replies.count, times.len() as u64);
        }

        #[test]
        fn closed_forms_at_constant_speed(n in 1_usize..100, t in 0.001_f64..10.0) {
            let replies = after(&MonitorOptions::default(), &vec![t; n]);
            let left = 0.9_f64.powi(n as i32);
            prop_assert!((replies.mean - (1.0 - left) * t).abs() < 1e-9);
            prop_assert!((replies.variance - 0.1 * n as f64 * left * t).abs() < 1e-9);
        }

        #[test]
        fn phi_reaches_its_limit_at_the_threshold(
            times in prop::collection::vec(0.001_f64..10.0, 2..50),
            limit in 0.05_f64..300.0,
        ) {
            let options = MonitorOptions { suspicion: Suspicion::Phi(limit), ..MonitorOptions::default() };
            let replies = after(&options, &times);
            let time = replies.limit(&options);
            prop_assert!((replies.phi(time) - limit).abs() < 1e-6 * limit, "{} at {time}", replies.phi(time));
            prop_assert!(replies.phi(time * 0.999 - 1e-9) <= limit);
        }

        #[test]
        fn phi_grows_with_time(times in prop::collection::vec(0.001_f64..10.0, 1..50), one in 0.0_f64..100.0, other in 0.0_f64..100.0) {
            let replies = after(&MonitorOptions::default(), &times);
            let (less, more) = (one.min(other), one.max(other));
            prop_assert!(replies.phi(less) <= replies.phi(more));
            prop_assert!(replies.phi(more).is_finite() && replies.phi(less) >= 0.0);
        }
    }
}

//! The options of a monitor. Follows the 2018 paper ("Running resilient MPI applications on a
//! Dynamic Group of Recommended Processes"), Algorithm 1 and "Results". An option that goes beyond
//! the paper says so, and is off by default.
//!
//! Must never: hold state, or differ between the ranks of a group.

use crate::monitor::assignment::Assignment;
use ftsort_kernels::error::{Error, Result};

/// The rule by which a reply is too late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Suspicion {
    /// A reply is too late if it takes longer than Algorithm 1's threshold.
    Threshold,
    /// Beyond the paper: a reply is too late if its phi is above this limit. Phi is the negative
    /// decimal logarithm of the probability that a reply takes even longer (Hayashibara and others,
    /// "The phi accrual failure detector", 2004; here over reply times instead of the gaps between
    /// heartbeats).
    Phi(f64),
}

/// Options of a monitor. All ranks of a group must have the same.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorOptions {
    /// The testing interval, in seconds.
    pub interval: f64,
    /// The weight of earlier values in Algorithm 1's means.
    pub alpha: f64,
    /// The multiple of the deviation that Algorithm 1 adds to the mean for its timeout.
    pub beta: f64,
    /// threshold = timeout * `multiple` + `plus`. The paper's text multiplies by 2.5 ("two and a
    /// half times").
    pub multiple: f64,
    /// In seconds. Algorithm 1 as printed adds a factor: for that set `multiple` to 1 and `plus` to
    /// the factor.
    pub plus: f64,
    /// The threshold, in seconds, as long as there are fewer than `first_tests` replies.
    pub first_threshold: f64,
    /// The number of replies of a rank for which the first threshold holds. The paper: "initially,
    /// it was set to 8 s. As soon as the tests are executed and the actual delays to receive test
    /// replies are measured, the threshold gets closer to the mean time [...]. This takes a couple
    /// of testing rounds." We read two, for each pair of tester and tested rank: after one reply of
    /// time t Algorithm 1's threshold is 1.15 t, because its mean begins at 0; after two replies it
    /// is 2.1 t.
    pub first_tests: u32,
    /// The number of passed tests in a row that a rank needs to come back.
    pub zeta: u32,
    /// The testing graph.
    pub assignment: Assignment,
    /// The rule by which a reply is too late.
    pub suspicion: Suspicion,
    /// Beyond the paper: a tester doubts itself in an interval in which at least two, and more than
    /// half, of the recommended ranks that it tests fail, or in which its own clock shows that it
    /// was woken too late to measure a reply time. It then reports no failed test of that interval,
    /// because the tester is more likely to be slow than all the others.
    pub self_doubt: bool,
    /// The reply times of failed tests enter the means too, as in Algorithm 1. With `false`, beyond
    /// the paper, they do not, so a rank that has become slow permanently stays slow for its
    /// testers; with `true` the testers adapt to it. The times of an interval of self-doubt always
    /// enter the means.
    pub learn_late: bool,
    /// Beyond the paper, for the placement of work: exclude a slow rank only where that [saves
    /// time](crate::monitor::share::worth_excluding). A monitor does not use this option.
    pub gain: bool,
    /// Beyond the paper, for the placement of work: share the work by [`weights`], and exclude no
    /// rank. A monitor does not use this option.
    ///
    /// [`weights`]: crate::monitor::share::weights
    pub weights: bool,
}

impl Default for MonitorOptions {
    /// Returns the paper's options: tests every second, alpha 0.9, beta 4, two and a half times the
    /// timeout, 8 s at first, zeta 5, all ranks test each other, and nothing beyond the paper.
    fn default() -> MonitorOptions {
        MonitorOptions {
            interval: 1.0,
            alpha: 0.9,
            beta: 4.0,
            multiple: 2.5,
            plus: 0.0,
            first_threshold: 8.0,
            first_tests: 2,
            zeta: 5,
            assignment: Assignment::AllToAll,
            suspicion: Suspicion::Threshold,
            self_doubt: false,
            learn_late: true,
            gain: false,
            weights: false,
        }
    }
}

fn argument_error(name: &str, value: f64, expected: &str) -> Error {
    Error::argument(format!("{name} is {value}; it must be {expected}"))
}

impl MonitorOptions {
    /// Checks that the options can be used.
    ///
    /// # Errors `Status::Argument` with the name and value of the first option that cannot be used.
    pub fn check(&self) -> Result<()> {
        let above_zero = |name, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(argument_error(name, value, "a finite number above 0"))
            }
        };
        let not_below_zero = |name, value: f64| {
            if value.is_finite() && value >= 0.0 {
                Ok(())
            } else {
                Err(argument_error(name, value, "a finite number of at least 0"))
            }
        };
        above_zero("interval", self.interval)?;
        if !(0.0..1.0).contains(&self.alpha) {
            return Err(argument_error("alpha", self.alpha, "from 0 to below 1"));
        }
        not_below_zero("beta", self.beta)?;
        above_zero("multiple", self.multiple)?;
        not_below_zero("plus", self.plus)?;
        above_zero("first_threshold", self.first_threshold)?;
        if self.zeta == 0 {
            return Err(argument_error("zeta", 0.0, "at least 1"));
        }
        match self.suspicion {
            Suspicion::Threshold => Ok(()),
            Suspicion::Phi(limit) if limit.is_finite() && limit > 0.0 && limit <= 300.0 => Ok(()),
            Suspicion::Phi(limit) => Err(argument_error("phi", limit, "above 0 and up to 300")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::error::Status;

    #[test]
    fn the_papers_options_are_valid() {
        assert_eq!(MonitorOptions::default().check(), Ok(()));
        let phi = MonitorOptions {
            suspicion: Suspicion::Phi(8.0),
            ..MonitorOptions::default()
        };
        assert_eq!(phi.check(), Ok(()));
    }

    #[test]
    fn an_invalid_option_is_named() {
        type Change = fn(&mut MonitorOptions);
        let wrong: [(&str, Change); 9] = [
            ("interval is 0;", |options| options.interval = 0.0),
            ("alpha is 1;", |options| options.alpha = 1.0),
            ("alpha is NaN;", |options| options.alpha = f64::NAN),
            ("beta is -1;", |options| options.beta = -1.0),
            ("multiple is inf;", |options| {
                options.multiple = f64::INFINITY
            }),
            ("plus is -0.5;", |options| options.plus = -0.5),
            ("first_threshold is NaN;", |options| {
                options.first_threshold = f64::NAN
            }),
            ("zeta is 0;", |options| options.zeta = 0),
            ("phi is 301;", |options| {
                options.suspicion = Suspicion::Phi(301.0)
            }),
        ];
        for (text, change) in wrong {
            let mut options = MonitorOptions::default();
            change(&mut options);
            let error = options.check().expect_err(text);
            assert_eq!(error.status, Status::Argument);
            assert!(error.text.starts_with(text), "{}", error.text);
        }
    }
}

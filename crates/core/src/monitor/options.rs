//! What a monitor can be told. Follows the 2018 paper ("Running resilient MPI applications on a Dynamic
//! Group of Recommended Processes"), Algorithm 1 and "Results"; what goes past it says so, and is off
//! unless asked for.

use crate::monitor::assignment::Assignment;
use ftsort_kernels::error::{Error, Result, Status};

/// What makes a reply too late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Suspicion {
    /// It takes longer than Algorithm 1's threshold.
    Threshold,
    /// Past the paper: phi, the negative decimal logarithm of the probability that a reply takes even
    /// longer, is above this limit (Hayashibara and others, "The phi accrual failure detector", 2004; over
    /// reply times here, not over the gaps between heartbeats).
    Phi(f64),
}

/// How a group is tested. All ranks of a group are to have the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The testing interval, in seconds.
    pub interval: f64,
    /// The weight of what was, in Algorithm 1's means.
    pub alpha: f64,
    /// How many times the deviation is added to the mean, in Algorithm 1's timeout.
    pub beta: f64,
    /// threshold = timeout * `multiple` + `plus`. The paper's text multiplies, by 2.5 ("two and a half
    /// times").
    pub multiple: f64,
    /// In seconds. Algorithm 1 adds a factor: for that `multiple` is 1 and this is the factor.
    pub plus: f64,
    /// In seconds: the threshold as long as there are fewer than `first_tests` replies.
    pub first_threshold: f64,
    /// For how many replies of a rank the first threshold holds. The paper: "initially, it was set to 8
    /// s. As soon as the tests are executed and the actual delays to receive test replies are measured,
    /// the threshold gets closer to the mean time [...]. This takes a couple of testing rounds." We read
    /// two, for each pair of tester and tested: after one reply of time t Algorithm 1's threshold is 1.15
    /// t, since its mean begins at 0; after two it is 2.1 t.
    pub first_tests: u32,
    /// How many good tests in a row a rank needs to come back.
    pub zeta: u32,
    /// Who tests whom.
    pub assignment: Assignment,
    /// What makes a reply too late.
    pub suspicion: Suspicion,
    /// Past the paper: a tester that sees at least two, and more than half, of the recommended ranks that
    /// it tests fail in one interval, or whose own clock shows that it was woken too late to tell,
    /// reports nothing of that interval. It is itself the more likely one to be slow.
    pub self_doubt: bool,
    /// The reply times of failed tests enter the means too, as in Algorithm 1. With `false`, past the
    /// paper, they do not, and a rank that has become slow for good stays so in the eyes of its testers:
    /// else they get used to it. In an interval of self-doubt they always do.
    pub learn_late: bool,
    /// Past the paper, for who hands out the work: leave a slow rank out only where that is
    /// [worth it](crate::monitor::share::worth_leaving_out). A monitor does not look at it.
    pub gain: bool,
    /// Past the paper, for who hands out the work: share it by [`weights`], and leave nobody out. A monitor
    /// does not look at it.
    ///
    /// [`weights`]: crate::monitor::share::weights
    pub weights: bool,
}

impl Default for Options {
    /// The paper's: tests every second, alpha 0.9, beta 4, two and a half times the timeout, 8 s at
    /// first, zeta 5, everybody tests everybody; nothing past it.
    fn default() -> Options {
        Options {
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

fn wrong(name: &str, value: f64, expected: &str) -> Error {
    Error::new(
        Status::Argument,
        format!("{name}: {value} is not {expected}"),
    )
}

impl Options {
    /// Can these be used?
    ///
    /// # Errors
    /// `Status::Argument`, naming the first option that cannot, and its value.
    pub fn check(&self) -> Result<()> {
        let above_zero = |name, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(()),
            false => Err(wrong(name, value, "a finite number above 0")),
        };
        let not_below_zero = |name, value: f64| match value.is_finite() && value >= 0.0 {
            true => Ok(()),
            false => Err(wrong(name, value, "a finite number from 0 on")),
        };
        above_zero("interval", self.interval)?;
        if !(0.0..1.0).contains(&self.alpha) {
            return Err(wrong("alpha", self.alpha, "from 0 to below 1"));
        }
        not_below_zero("beta", self.beta)?;
        above_zero("multiple", self.multiple)?;
        not_below_zero("plus", self.plus)?;
        above_zero("first_threshold", self.first_threshold)?;
        if self.zeta == 0 {
            return Err(wrong("zeta", 0.0, "at least 1"));
        }
        match self.suspicion {
            Suspicion::Threshold => Ok(()),
            Suspicion::Phi(limit) if limit.is_finite() && limit > 0.0 && limit <= 300.0 => Ok(()),
            Suspicion::Phi(limit) => Err(wrong("phi", limit, "above 0 and up to 300")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_are_fine() {
        assert_eq!(Options::default().check(), Ok(()));
        let phi = Options {
            suspicion: Suspicion::Phi(8.0),
            ..Options::default()
        };
        assert_eq!(phi.check(), Ok(()));
    }

    #[test]
    fn a_wrong_one_is_named() {
        type Corruption = fn(&mut Options);
        let wrong: [(&str, Corruption); 9] = [
            ("interval: 0 ", |options| options.interval = 0.0),
            ("alpha: 1 ", |options| options.alpha = 1.0),
            ("alpha: NaN ", |options| options.alpha = f64::NAN),
            ("beta: -1 ", |options| options.beta = -1.0),
            ("multiple: inf ", |options| options.multiple = f64::INFINITY),
            ("plus: -0.5 ", |options| options.plus = -0.5),
            ("first_threshold: NaN ", |options| {
                options.first_threshold = f64::NAN
            }),
            ("zeta: 0 ", |options| options.zeta = 0),
            ("phi: 301 ", |options| {
                options.suspicion = Suspicion::Phi(301.0)
            }),
        ];
        for (text, corrupt) in wrong {
            let mut options = Options::default();
            corrupt(&mut options);
            let error = options.check().expect_err(text);
            assert_eq!(error.status, Status::Argument);
            assert!(error.text.starts_with(text), "{}", error.text);
        }
    }
}

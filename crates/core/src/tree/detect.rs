//! The timeout of a test of a link: the "delay" of algorithm DETECT of the 1996 paper (Section 3.1, Figure 7), which
//! the paper leaves open. The crate `ftsort-papers` has the rest of the algorithm, for any reports of the nodes;
//! [`probe`](super::run::probe) tests the links of ranks. Must never: read a clock. Times are numbers, in the
//! caller's unit.

/// The consequence of a missed test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedTest {
    /// The test is repeated with this timeout.
    Repeat(u64),
    /// The link is faulty.
    Faulty,
}

/// The timeout of tests over one link: the "delay" of Figure 7, adapted to the measured times.
///
/// The rule is that of TCP (V. Jacobson, "Congestion avoidance and control", 1988; RFC 6298): the mean time
/// plus four times its mean deviation, and at least twice the mean time; twice as long after each missed
/// test. A link is faulty only after several missed tests in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestTimeout {
    least: u64,
    most: u64,
    tries: u32,
    /// The mean time and the mean deviation, both multiplied by 8 so that fractions are kept.
    mean: Option<(u64, u64)>,
    missed: u32,
}

impl TestTimeout {
    /// Creates a timeout between `least` and `most`, which is `most` for the first test. A link is faulty
    /// after `tries` missed tests in a row.
    ///
    /// # Panics
    /// If `least` is 0 or more than `most`, or `tries` is 0.
    pub fn new(least: u64, most: u64, tries: u32) -> TestTimeout {
        assert!(
            0 < least && least <= most,
            "a timeout from {least} to {most}"
        );
        assert!(tries > 0, "tries is 0");
        TestTimeout {
            least,
            most,
            tries,
            mean: None,
            missed: 0,
        }
    }

    /// Returns the timeout of the next test.
    pub fn limit(&self) -> u64 {
        let Some((mean, deviation)) = self.mean else {
            return self.most;
        };
        let margin = mean.max(deviation.saturating_mul(4));
        let once = mean.saturating_add(margin).div_ceil(8).max(self.least);
        let longer = once.saturating_mul(1 << self.missed.min(32));
        longer.min(self.most)
    }

    /// Records a test that arrived after this time.
    pub fn arrived(&mut self, after: u64) {
        // A time beyond the greatest timeout counts as that timeout.
        let now = after.min(self.most).saturating_mul(8);
        self.mean = Some(match self.mean {
            None => (now, now / 2),
            Some((mean, deviation)) => {
                let difference = now.abs_diff(mean);
                let deviation = deviation - deviation / 4 + difference / 4;
                (mean - mean / 8 + now / 8, deviation)
            }
        });
        self.missed = 0;
    }

    /// Records that no test arrived within the timeout, and returns the consequence.
    pub fn missed(&mut self) -> MissedTest {
        self.missed = self.missed.saturating_add(1);
        if self.missed >= self.tries {
            MissedTest::Faulty
        } else {
            MissedTest::Repeat(self.limit())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tolerates_late_tests_but_not_missing_tests() {
        let mut timeout = TestTimeout::new(10, 10_000, 3);
        assert_eq!(timeout.limit(), 10_000);
        (0..50).for_each(|_| timeout.arrived(100));
        // Twice the mean time, once it is known.
        assert_eq!(timeout.limit(), 200);
        assert_eq!(timeout.missed(), MissedTest::Repeat(400));
        assert_eq!(timeout.missed(), MissedTest::Repeat(800));
        timeout.arrived(700);
        assert!(timeout.limit() > 700);
        let again = [timeout.missed(), timeout.missed(), timeout.missed()];
        assert_eq!(again[2], MissedTest::Faulty);
        assert!(
            again[..2]
                .iter()
                .all(|missed| *missed != MissedTest::Faulty)
        );
    }

    proptest! {
        #[test]
        fn timeouts_stay_within_bounds_and_above_the_mean(
            times in prop::collection::vec(1_u64..5000, 1..200),
            mean in 1_u64..2500,
        ) {
            let mut timeout = TestTimeout::new(50, 5000, 4);
            for time in times {
                timeout.arrived(time);
                prop_assert!((50..=5000).contains(&timeout.limit()));
                // A second test that takes as long as the first one would have arrived in time.
                if timeout.mean == Some((time * 8, time * 4)) {
                    prop_assert!(timeout.limit() >= time);
                }
            }
            // Earlier times are forgotten.
            (0..200).for_each(|_| timeout.arrived(mean));
            prop_assert!(timeout.limit() >= mean);
            prop_assert!(timeout.limit() <= (2 * mean + 32).max(50));
            let mut waited = timeout.limit();
            while let MissedTest::Repeat(limit) = timeout.missed() {
                prop_assert!(limit >= waited);
                waited = limit;
            }
        }

        #[test]
        fn very_long_times_do_not_overflow(times in prop::collection::vec(any::<u64>(), 0..20)) {
            let mut timeout = TestTimeout::new(1, u64::MAX, 40);
            for time in times {
                timeout.arrived(time);
                prop_assert!(timeout.limit() >= 1);
            }
            (1..40).for_each(|_| assert_ne!(timeout.missed(), MissedTest::Faulty));
            prop_assert_eq!(timeout.missed(), MissedTest::Faulty);
        }
    }
}

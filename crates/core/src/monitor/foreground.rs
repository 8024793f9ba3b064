//! The group from measurements that all ranks share: the rules of the 2018 paper without messages.
//! An application agrees on something after each round. There each rank adds the time of its own
//! test; all ranks apply the same measurements in the same order, and obtain the same counters. No
//! broadcast is needed, and no consensus: a rank comes back after zeta passed intervals in a row.
//!
//! A measurement is divided by the median of its interval, and Algorithm 1 is applied to the ratio.
//! So an interval that is long for all ranks excludes none. Thresholds are therefore multiples of
//! the median; the first threshold is 8 times the median. A rank that is not slower than the median
//! passes, so at least one rank always does. The median is the lower one of two.
//!
//! Sums, products and square roots are the same on all machines. Phi takes logarithms, and their last
//! bit may differ, so ranks on machines of different kinds must use thresholds.
//!
//! Must never: read a clock, or use data that only one rank has.

use crate::members::{Rank, RankSet};
use crate::monitor::machine::MonitorView;
use crate::monitor::options::MonitorOptions;
use crate::monitor::syndrome::Syndrome;
use crate::monitor::tester::TestedRank;

/// The group, with the same state on all ranks.
#[derive(Clone, Debug)]
pub struct Foreground {
    options: MonitorOptions,
    syndrome: Syndrome,
    /// The measurements of each rank, in multiples of the median.
    ranks: Vec<TestedRank>,
}

impl Foreground {
    /// Creates a group of `ranks` ranks, all recommended. The options must be the same on all ranks
    /// and must have passed [`MonitorOptions::check`]. Options on time, assignment and self-doubt
    /// have no effect here.
    pub fn new(ranks: usize, options: MonitorOptions) -> Foreground {
        Foreground {
            options,
            syndrome: Syndrome::new(ranks),
            ranks: vec![TestedRank::default(); ranks],
        }
    }

    /// Ends an interval with each rank's measurement, a time in any unit. A measurement that is not
    /// a finite number above 0, or of a rank that does not exist, is ignored. A rank without a
    /// measurement was not tested.
    pub fn end_interval(&mut self, measurements: &[(Rank, f64)]) {
        let known = |rank: Rank| rank.index() < self.ranks.len() && !self.syndrome.is_failed(rank);
        let sound = |(rank, measurement): &(Rank, f64)| {
            known(*rank) && measurement.is_finite() && *measurement > 0.0
        };
        let measurements: Vec<(Rank, f64)> = measurements.iter().copied().filter(sound).collect();
        let mut sorted: Vec<f64> = measurements
            .iter()
            .map(|(_, measurement)| *measurement)
            .collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let Some(median) = sorted.get((sorted.len().max(1) - 1) / 2) else {
            return;
        };
        for (rank, measurement) in measurements {
            self.evaluate(rank, measurement / median);
        }
    }

    fn evaluate(&mut self, rank: Rank, ratio: f64) {
        let state = &mut self.ranks[rank.index()];
        let passed = ratio <= 1.0 || ratio <= state.replies.limit(&self.options);
        state.last_reply = Some(ratio);
        state.reply_time.add(ratio, self.options.alpha);
        state.phi = state.replies.phi(ratio);
        if passed || self.options.learn_late {
            state.replies.add(&self.options, ratio);
        }
        state.passes = if passed {
            state.passes.saturating_add(1)
        } else {
            0
        };
        let recommended = self.syndrome.is_recommended(rank);
        if recommended != passed && (recommended || state.passes >= self.options.zeta) {
            self.syndrome.increment(rank);
        }
    }

    /// Marks ranks as failed. They never come back.
    pub fn mark_failed(&mut self, failed: &RankSet) {
        self.syndrome.mark_failed(failed);
    }

    /// Returns the counters of events, by rank. A recommended rank has an even counter.
    pub fn counters(&self) -> &[u32] {
        self.syndrome.counters()
    }

    /// Returns the group: all survivors with an even counter, or all survivors if there is none.
    pub fn recommended(&self) -> RankSet {
        self.syndrome.group()
    }

    /// Returns the smoothed measurement of each rank, in multiples of the median. None if a rank was never tested, or
    /// has failed.
    pub fn reply_times(&self) -> Vec<Option<f64>> {
        let ranks = Rank::all(self.ranks.len()).zip(&self.ranks);
        ranks
            .map(|(rank, state)| match self.syndrome.is_failed(rank) {
                true => None,
                false => state.reply_time.mean(),
            })
            .collect()
    }

    /// Returns the state of a rank. Times are multiples of the median.
    ///
    /// # Panics
    /// If the rank does not exist.
    pub fn view(&self, rank: Rank) -> MonitorView {
        let recommended = self.syndrome.group().contains(rank);
        let counter = self.syndrome.counter(rank);
        self.ranks[rank.index()].view(counter, recommended, &self.options)
    }
}

/// The time of the next test of all ranks. Measurements can be compared only if they are taken at
/// the same time. So a rank reports that its interval is over, and at the next commit
/// all ranks report a measurement, even if their clocks started at different times.
#[derive(Clone, Copy, Debug)]
pub struct TestTimer {
    interval: f64,
    last: f64,
    requested: bool,
}

impl TestTimer {
    /// Creates a timer with at least `interval` seconds between two tests. The first interval
    /// starts at `now`.
    pub fn new(interval: f64, now: f64) -> TestTimer {
        TestTimer {
            interval,
            last: now,
            requested: false,
        }
    }

    /// Returns whether the interval of this rank is over.
    pub fn is_due(&self, now: f64) -> bool {
        now - self.last >= self.interval
    }

    /// Returns whether this rank has something to report: that its interval is over, or a
    /// measurement.
    pub fn has_report(&self, now: f64) -> bool {
        self.requested || self.is_due(now)
    }

    /// Records that this rank reports. Returns whether all ranks report their measurements now.
    pub fn report(&mut self, now: f64) -> bool {
        if self.requested {
            self.last = now;
        }
        self.requested
    }

    /// Starts a new interval after a report without a test.
    pub fn restart(&mut self, now: f64) {
        self.last = now;
    }

    /// Records that all ranks have reported. `is_due` says whether the interval of any of them was
    /// over.
    pub fn all_reported(&mut self, is_due: bool) {
        self.requested = is_due && !self.requested;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn measurements(times: &[f64]) -> Vec<(Rank, f64)> {
        Rank::all(times.len()).zip(times.iter().copied()).collect()
    }

    fn warmed_up(options: MonitorOptions) -> Foreground {
        let mut group = Foreground::new(4, options);
        for interval in 1..50 {
            // An interval that is long for all ranks excludes none.
            let scale = f64::from(1 << (interval % 5));
            group.end_interval(&measurements(&[scale, 1.1 * scale, 0.9 * scale, scale]));
        }
        assert_eq!(group.counters(), [0; 4]);
        group
    }

    #[test]
    fn a_slow_rank_is_excluded_and_back_after_zeta_passed_intervals() {
        let mut group = warmed_up(MonitorOptions::default());
        group.end_interval(&measurements(&[1.0, 9.0, 1.0, 1.0]));
        assert_eq!(group.counters(), [0, 1, 0, 0]);
        assert!(!group.recommended().contains(Rank(1)));
        for passes in 1..=5 {
            assert!(!group.view(Rank(1)).recommended);
            group.end_interval(&measurements(&[1.0, 1.0, 1.0, 1.0]));
            assert_eq!(group.view(Rank(1)).good_in_row, passes);
        }
        assert_eq!(group.counters(), [0, 2, 0, 0]);
        assert!(group.view(Rank(1)).recommended);
    }

    #[test]
    fn one_failed_interval_restarts_the_count() {
        let mut group = warmed_up(MonitorOptions::default());
        for slow in [9.0, 1.0, 1.0, 1.0, 1.0, 90.0, 1.0, 1.0, 1.0, 1.0] {
            group.end_interval(&measurements(&[1.0, slow, 1.0, 1.0]));
        }
        assert_eq!(group.counters(), [0, 1, 0, 0]);
    }

    #[test]
    fn the_slower_of_two_ranks_is_excluded() {
        let mut group = Foreground::new(2, MonitorOptions::default());
        for _ in 0..50 {
            group.end_interval(&measurements(&[1.0, 1.0]));
        }
        group.end_interval(&measurements(&[50.0, 1.0]));
        assert_eq!(group.counters(), [1, 0]);
    }

    #[test]
    fn failed_ranks_and_missing_measurements_are_ignored() {
        let mut group = warmed_up(MonitorOptions::default());
        group.mark_failed(&RankSet::of(4, [Rank(3)]));
        group.end_interval(&[
            (Rank(0), 1.0),
            (Rank(3), 1.0),
            (Rank(9), 1.0),
            (Rank(1), f64::NAN),
        ]);
        assert_eq!(group.counters(), [0, 0, 0, 1]);
        assert_eq!(group.recommended().len(), 3);
        let known = group.reply_times().into_iter().map(|time| time.is_some());
        assert_eq!(known.collect::<Vec<_>>(), [true, true, true, false]);
        group.end_interval(&[]);
    }

    #[test]
    fn a_permanently_slow_rank_stays_excluded_if_late_measurements_are_left_out() {
        let slow = measurements(&[1.0, 4.0, 1.0, 1.0]);
        let (mut paper, mut strict) = (
            warmed_up(MonitorOptions::default()),
            warmed_up(MonitorOptions {
                learn_late: false,
                ..MonitorOptions::default()
            }),
        );
        for _ in 0..100 {
            paper.end_interval(&slow);
            strict.end_interval(&slow);
        }
        assert_eq!((paper.counters()[1], strict.counters()[1]), (2, 1));
    }

    proptest! {
        /// Clocks that start at different times, ranks that reach each commit one after the other,
        /// and some commits at which no interval is over.
        #[test]
        fn all_ranks_measure_at_the_same_commits(
            begun in prop::collection::vec(0.0..0.9_f64, 1..9),
            steps in prop::collection::vec(
                (0.001..0.2_f64, prop::collection::vec(0.0..0.05_f64, 9), any::<bool>()), 1..200),
        ) {
            let mut ranks: Vec<TestTimer> = begun.iter().map(|now| TestTimer::new(1.0, *now)).collect();
            let (mut time, mut tested) = (1.0, Vec::new());
            for (step, delays, anyway) in steps {
                time += step;
                let clocked = |ranks: &[TestTimer], asks: fn(&TestTimer, f64) -> bool| {
                    ranks.iter().zip(&delays).any(|(rank, delay)| asks(rank, time + delay))
                };
                if !anyway && !clocked(&ranks, TestTimer::has_report) {
                    continue;
                }
                let is_due = clocked(&ranks, TestTimer::is_due);
                let pairs = ranks.iter_mut().zip(&delays);
                let reporting: Vec<bool> = pairs.map(|(rank, delay)| rank.report(time + delay)).collect();
                prop_assert!(reporting.iter().all(|one| *one == reporting[0]));
                if reporting[0] {
                    tested.push(time);
                }
                ranks.iter_mut().for_each(|rank| rank.all_reported(is_due));
            }
            // One commit until an interval is over, and one more for the measurements.
            prop_assert!(time - tested.last().unwrap_or(&0.9) < 1.0 + 2.0 * 0.25);
            prop_assert!(tested.is_sorted_by(|one, next| next - one > 0.9));
        }
    }

    proptest! {
        #[test]
        fn some_rank_is_always_recommended_and_all_agree(
            ranks in 1_usize..12,
            seed: u64,
            multiple in 0.1_f64..3.0,
        ) {
            let mut random = ftsort_kernels::random::SplitMix::new(seed);
            let options = MonitorOptions { multiple, zeta: 2, ..MonitorOptions::default() };
            let mut groups = vec![Foreground::new(ranks, options); 2];
            for _ in 0..60 {
                let measurements: Vec<(Rank, f64)> = Rank::all(ranks)
                    .map(|rank| (rank, 1.0 + (random.below(100) as f64 / 20.0).exp()))
                    .collect();
                let even = |group: &Foreground| group.counters().iter().filter(|c| c.is_multiple_of(2)).count();
                let before = groups[0].counters().to_vec();
                groups.iter_mut().for_each(|group| group.end_interval(&measurements));
                prop_assert_eq!(groups[0].counters(), groups[1].counters());
                prop_assert!(groups[0].counters().iter().zip(&before).all(|(now, was)| now - was <= 1));
                // A member that is not slower than the median stays a member.
                prop_assert!(even(&groups[0]) > 0 || before.iter().any(|counter| counter % 2 == 1));
            }
        }
    }
}

//! The group by measurements that all ranks have anyway: the rules of the 2018 paper without messages. Where an
//! application agrees on something after each round, each rank adds how long its own test took; all feed
//! the same measurements, in the same order, and come to the same counters. Nobody needs to be told, and nobody
//! to be requested: a rank comes back after zeta passes intervals in a row, without consensus.
//!
//! A measurement is taken relative to the median of its interval, and Algorithm 1 is applied to that: so an
//! interval that is long for all is nobody's fault. Thresholds are therefore multiples of the median, the
//! first one too: 8 times. Whoever is not slower than the median passes, so that somebody always does. The
//! median is the lower one of two.
//!
//! Sums, products and square roots are the same on all machines; phi, which takes logarithms, need not be
//! to the last bit: where machines differ in kind use thresholds. Pure; must never look at a clock.

use crate::members::{Rank, RankSet};
use crate::monitor::machine::MonitorView;
use crate::monitor::options::MonitorOptions;
use crate::monitor::reply::ReplyStatistics;
use crate::monitor::share::SmoothedTime;
use crate::monitor::syndrome::Syndrome;

#[derive(Clone, Debug, Default)]
struct MeasuredRank {
    replies: ReplyStatistics,
    last: Option<f64>,
    phi: f64,
    passes: u32,
    reply_time: SmoothedTime,
}

/// The group, as all ranks know it.
#[derive(Clone, Debug)]
pub struct Foreground {
    options: MonitorOptions,
    syndrome: Syndrome,
    measured: Vec<MeasuredRank>,
}

impl Foreground {
    /// So many ranks, all recommended. The options, the same on all ranks, are to have passed
    /// [`MonitorOptions::check`]; those on time, assignment and doubt mean nothing here.
    pub fn new(ranks: usize, options: MonitorOptions) -> Foreground {
        Foreground {
            options,
            syndrome: Syndrome::new(ranks),
            measured: vec![MeasuredRank::default(); ranks],
        }
    }

    /// An interval is over: each rank's measurement, which is a time in any unit. Figures that are no finite
    /// number above 0, and those of ranks that there are not, are left out; a rank without a measurement was
    /// not tested.
    pub fn end_interval(&mut self, measurements: &[(Rank, f64)]) {
        let known =
            |rank: Rank| rank.index() < self.measured.len() && !self.syndrome.is_failed(rank);
        let sound = |(rank, measurement): &(Rank, f64)| {
            known(*rank) && measurement.is_finite() && *measurement > 0.0
        };
        let measurements: Vec<(Rank, f64)> = measurements.iter().copied().filter(sound).collect();
        let mut sorted: Vec<f64> = measurements
            .iter()
            .map(|(_, measurement)| *measurement)
            .collect();
        sorted.sort_by(f64::total_cmp);
        let Some(median) = sorted.get((sorted.len().max(1) - 1) / 2) else {
            return;
        };
        for (rank, measurement) in measurements {
            self.evaluate(rank, measurement / median);
        }
    }

    fn evaluate(&mut self, rank: Rank, ratio: f64) {
        let measured = &mut self.measured[rank.index()];
        let passed = ratio <= 1.0 || ratio <= measured.replies.limit(&self.options);
        measured.last = Some(ratio);
        measured.reply_time.add(ratio, self.options.alpha);
        measured.phi = measured.replies.phi(ratio);
        if passed || self.options.learn_late {
            measured.replies.add(&self.options, ratio);
        }
        measured.passes = if passed {
            measured.passes.saturating_add(1)
        } else {
            0
        };
        let recommended = self.syndrome.is_recommended(rank);
        if recommended != passed && (recommended || measured.passes >= self.options.zeta) {
            self.syndrome.increment(rank);
        }
    }

    /// These ranks crashed: they are out for ever.
    pub fn mark_failed(&mut self, failed: &RankSet) {
        self.syndrome.mark_failed(failed);
    }

    /// The counters of events, by rank: even for a recommended rank.
    pub fn counters(&self) -> &[u32] {
        self.syndrome.counters()
    }

    /// The group: all survivors ranks with an even counter; all survivors ranks if there is none.
    pub fn recommended(&self) -> RankSet {
        self.syndrome.group()
    }

    /// How long each rank has taken of late, in multiples of the median; None if it was never tested.
    pub fn reply_times(&self) -> Vec<Option<f64>> {
        self.measured
            .iter()
            .map(|measured| measured.reply_time.mean())
            .collect()
    }

    /// What is known of a rank. Times are multiples of the median.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn view(&self, rank: Rank) -> MonitorView {
        let measured = &self.measured[rank.index()];
        MonitorView {
            counter: self.syndrome.counter(rank),
            recommended: self.syndrome.group().contains(rank),
            last_reply: measured.last,
            mean: measured.replies.mean,
            variance: measured.replies.variance,
            timeout: measured.replies.timeout,
            threshold: measured.replies.limit(&self.options),
            phi: measured.phi,
            good_in_row: measured.passes,
        }
    }
}

/// When a rank is tested. A measurement says something beside others of the same moment only: so whoever finds it
/// time says so, and then all are tested at the same occasion, however far apart their clocks began.
#[derive(Clone, Copy, Debug)]
pub struct TestTimer {
    interval: f64,
    last: f64,
    requested: bool,
}

impl TestTimer {
    /// At least so many seconds between two tests, the first of them from `now`.
    pub fn new(interval: f64, now: f64) -> TestTimer {
        TestTimer {
            interval,
            last: now,
            requested: false,
        }
    }

    /// Does this rank find it time for a test?
    pub fn is_due(&self, now: f64) -> bool {
        now - self.last >= self.interval
    }

    /// Is there something to tell the others: that it is time, or a measurement?
    pub fn has_report(&self, now: f64) -> bool {
        self.requested || self.is_due(now)
    }

    /// This rank tells the others. True if all tell their measurements now: the test is this one.
    pub fn report(&mut self, now: f64) -> bool {
        if self.requested {
            self.last = now;
        }
        self.requested
    }

    /// This rank has told others what it has without a test: it is not time before the interval is over again.
    pub fn restart(&mut self, now: f64) {
        self.last = now;
    }

    /// All have told each other, and for some of them it was time.
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
            // An interval that is long for all is nobody's fault.
            let scale = f64::from(1 << (interval % 5));
            group.end_interval(&measurements(&[scale, 1.1 * scale, 0.9 * scale, scale]));
        }
        assert_eq!(group.counters(), [0; 4]);
        group
    }

    #[test]
    fn a_slow_one_is_out_and_back_after_zeta_good_intervals() {
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
    fn one_bad_interval_starts_the_count_anew() {
        let mut group = warmed_up(MonitorOptions::default());
        for slow in [9.0, 1.0, 1.0, 1.0, 1.0, 90.0, 1.0, 1.0, 1.0, 1.0] {
            group.end_interval(&measurements(&[1.0, slow, 1.0, 1.0]));
        }
        assert_eq!(group.counters(), [0, 1, 0, 0]);
    }

    #[test]
    fn of_two_the_slower_one_is_out() {
        let mut group = Foreground::new(2, MonitorOptions::default());
        for _ in 0..50 {
            group.end_interval(&measurements(&[1.0, 1.0]));
        }
        group.end_interval(&measurements(&[50.0, 1.0]));
        assert_eq!(group.counters(), [1, 0]);
    }

    #[test]
    fn the_dead_and_the_silent() {
        let mut group = warmed_up(MonitorOptions::default());
        group.mark_failed(&RankSet::from_ranks(4, [Rank(3)]));
        group.end_interval(&[
            (Rank(0), 1.0),
            (Rank(3), 1.0),
            (Rank(9), 1.0),
            (Rank(1), f64::NAN),
        ]);
        assert_eq!(group.counters(), [0, 0, 0, 1]);
        assert_eq!(group.recommended().len(), 3);
        group.end_interval(&[]);
    }

    #[test]
    fn slow_for_good_stays_out_if_late_figures_are_not_learnt_from() {
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
        /// Clocks that began at different times, ranks that come to each commit one after the other, and some
        /// occasions at which nobody finds it time.
        #[test]
        fn all_have_figures_at_the_same_occasions(
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
                let told: Vec<bool> = pairs.map(|(rank, delay)| rank.report(time + delay)).collect();
                prop_assert!(told.iter().all(|one| *one == told[0]));
                if told[0] {
                    tested.push(time);
                }
                ranks.iter_mut().for_each(|rank| rank.all_reported(is_due));
            }
            // One commit until somebody finds it time, and one more for the measurements.
            prop_assert!(time - tested.last().unwrap_or(&0.9) < 1.0 + 2.0 * 0.25);
            prop_assert!(tested.is_sorted_by(|one, next| next - one > 0.9));
        }
    }

    proptest! {
        #[test]
        fn somebody_is_always_recommended_and_all_agree(
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
                // Whoever was in it and not slower than the median still is.
                prop_assert!(even(&groups[0]) > 0 || before.iter().any(|counter| counter % 2 == 1));
            }
        }
    }
}

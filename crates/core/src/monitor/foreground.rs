//! The group by figures that all ranks have anyway: the rules of the 2018 paper without messages. Where an
//! application agrees on something after each round, each rank adds how long its own test took; all feed
//! the same figures, in the same order, and come to the same counters. Nobody needs to be told, and nobody
//! to be asked: a rank comes back after zeta good intervals in a row, without consensus.
//!
//! A figure is taken relative to the median of its interval, and Algorithm 1 is applied to that: so an
//! interval that is long for all is nobody's fault. Thresholds are therefore multiples of the median, the
//! first one too: 8 times. Whoever is not slower than the median passes, so that somebody always does. The
//! median is the lower one of two.
//!
//! Sums, products and square roots are the same on all machines; phi, which takes logarithms, need not be
//! to the last bit: where machines differ in kind use thresholds. Pure; must never look at a clock.

use crate::members::{Rank, RankSet};
use crate::monitor::machine::View;
use crate::monitor::options::Options;
use crate::monitor::reply::Replies;
use crate::monitor::share::Pace;
use crate::monitor::syndrome::Syndrome;

#[derive(Clone, Debug, Default)]
struct Record {
    replies: Replies,
    last: Option<f64>,
    phi: f64,
    good: u32,
    pace: Pace,
}

/// The group, as all ranks know it.
#[derive(Clone, Debug)]
pub struct Foreground {
    options: Options,
    syndrome: Syndrome,
    records: Vec<Record>,
}

impl Foreground {
    /// So many ranks, all recommended. The options, the same on all ranks, are to have passed
    /// [`Options::check`]; those on time, assignment and doubt mean nothing here.
    pub fn new(ranks: usize, options: Options) -> Foreground {
        Foreground {
            options,
            syndrome: Syndrome::new(ranks),
            records: vec![Record::default(); ranks],
        }
    }

    /// An interval is over: each rank's figure, which is a time in any unit. Figures that are no finite
    /// number above 0, and those of ranks that there are not, are left out; a rank without a figure was
    /// not tested.
    pub fn interval(&mut self, figures: &[(Rank, f64)]) {
        let known =
            |rank: Rank| rank.index() < self.records.len() && !self.syndrome.has_failed(rank);
        let sound =
            |(rank, figure): &(Rank, f64)| known(*rank) && figure.is_finite() && *figure > 0.0;
        let figures: Vec<(Rank, f64)> = figures.iter().copied().filter(sound).collect();
        let mut sorted: Vec<f64> = figures.iter().map(|(_, figure)| *figure).collect();
        sorted.sort_by(f64::total_cmp);
        let Some(median) = sorted.get((sorted.len().max(1) - 1) / 2) else {
            return;
        };
        for (rank, figure) in figures {
            self.judge(rank, figure / median);
        }
    }

    fn judge(&mut self, rank: Rank, ratio: f64) {
        let record = &mut self.records[rank.index()];
        let passed = ratio <= 1.0 || ratio <= record.replies.limit(&self.options);
        record.last = Some(ratio);
        record.pace.took(ratio, self.options.alpha);
        record.phi = record.replies.phi(ratio);
        if passed || self.options.learn_late {
            record.replies.arrived(&self.options, ratio);
        }
        record.good = match passed {
            true => record.good.saturating_add(1),
            false => 0,
        };
        let recommended = self.syndrome.is_recommended(rank);
        if recommended != passed && (recommended || record.good >= self.options.zeta) {
            self.syndrome.bump(rank);
        }
    }

    /// These ranks crashed: they are out for ever.
    pub fn absorb_dead(&mut self, dead: &RankSet) {
        self.syndrome.absorb_dead(dead);
    }

    /// The counters of events, by rank: even for a recommended rank.
    pub fn counters(&self) -> &[u32] {
        self.syndrome.counters()
    }

    /// The group: all living ranks with an even counter; all living ranks if there is none.
    pub fn recommended(&self) -> RankSet {
        self.syndrome.group()
    }

    /// How long each rank has taken of late, in multiples of the median; None if it was never tested.
    pub fn paces(&self) -> Vec<Option<f64>> {
        self.records
            .iter()
            .map(|record| record.pace.mean())
            .collect()
    }

    /// What is known of a rank. Times are multiples of the median.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn view(&self, rank: Rank) -> View {
        let record = &self.records[rank.index()];
        View {
            counter: self.syndrome.counter(rank),
            recommended: self.syndrome.group().contains(rank),
            last_reply: record.last,
            mean: record.replies.mean,
            variance: record.replies.variance,
            timeout: record.replies.timeout,
            threshold: record.replies.limit(&self.options),
            phi: record.phi,
            good_in_row: record.good,
        }
    }
}

/// When a rank is tested. A figure says something beside others of the same moment only: so whoever finds it
/// time says so, and then all are tested at the same occasion, however far apart their clocks began.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    interval: f64,
    last: f64,
    asked: bool,
}

impl Rhythm {
    /// At least so many seconds between two tests, the first of them from `now`.
    pub fn new(interval: f64, now: f64) -> Rhythm {
        Rhythm {
            interval,
            last: now,
            asked: false,
        }
    }

    /// Does this rank find it time for a test?
    pub fn is_due(&self, now: f64) -> bool {
        now - self.last >= self.interval
    }

    /// Is there something to tell the others: that it is time, or a figure?
    pub fn has_news(&self, now: f64) -> bool {
        self.asked || self.is_due(now)
    }

    /// This rank tells the others. True if all tell their figures now: the test is this one.
    pub fn tell(&mut self, now: f64) -> bool {
        if self.asked {
            self.last = now;
        }
        self.asked
    }

    /// This rank has told others what it has without a test: it is not time before the interval is over again.
    pub fn rest(&mut self, now: f64) {
        self.last = now;
    }

    /// All have told each other, and for some of them it was time.
    pub fn heard(&mut self, is_due: bool) {
        self.asked = is_due && !self.asked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figures(times: &[f64]) -> Vec<(Rank, f64)> {
        Rank::all(times.len()).zip(times.iter().copied()).collect()
    }

    fn warm(options: Options) -> Foreground {
        let mut group = Foreground::new(4, options);
        for interval in 1..50 {
            // An interval that is long for all is nobody's fault.
            let scale = f64::from(1 << (interval % 5));
            group.interval(&figures(&[scale, 1.1 * scale, 0.9 * scale, scale]));
        }
        assert_eq!(group.counters(), [0; 4]);
        group
    }

    #[test]
    fn a_slow_one_is_out_and_back_after_zeta_good_intervals() {
        let mut group = warm(Options::default());
        group.interval(&figures(&[1.0, 9.0, 1.0, 1.0]));
        assert_eq!(group.counters(), [0, 1, 0, 0]);
        assert!(!group.recommended().contains(Rank(1)));
        for good in 1..=5 {
            assert!(!group.view(Rank(1)).recommended);
            group.interval(&figures(&[1.0, 1.0, 1.0, 1.0]));
            assert_eq!(group.view(Rank(1)).good_in_row, good);
        }
        assert_eq!(group.counters(), [0, 2, 0, 0]);
        assert!(group.view(Rank(1)).recommended);
    }

    #[test]
    fn one_bad_interval_starts_the_count_anew() {
        let mut group = warm(Options::default());
        for slow in [9.0, 1.0, 1.0, 1.0, 1.0, 90.0, 1.0, 1.0, 1.0, 1.0] {
            group.interval(&figures(&[1.0, slow, 1.0, 1.0]));
        }
        assert_eq!(group.counters(), [0, 1, 0, 0]);
    }

    #[test]
    fn of_two_the_slower_one_is_out() {
        let mut group = Foreground::new(2, Options::default());
        for _ in 0..50 {
            group.interval(&figures(&[1.0, 1.0]));
        }
        group.interval(&figures(&[50.0, 1.0]));
        assert_eq!(group.counters(), [1, 0]);
    }

    #[test]
    fn the_dead_and_the_silent() {
        let mut group = warm(Options::default());
        group.absorb_dead(&RankSet::from_ranks(4, [Rank(3)]));
        group.interval(&[
            (Rank(0), 1.0),
            (Rank(3), 1.0),
            (Rank(9), 1.0),
            (Rank(1), f64::NAN),
        ]);
        assert_eq!(group.counters(), [0, 0, 0, 1]);
        assert_eq!(group.recommended().len(), 3);
        group.interval(&[]);
    }

    #[test]
    fn slow_for_good_stays_out_if_late_figures_are_not_learnt_from() {
        let slow = figures(&[1.0, 4.0, 1.0, 1.0]);
        let (mut paper, mut strict) = (
            warm(Options::default()),
            warm(Options {
                learn_late: false,
                ..Options::default()
            }),
        );
        for _ in 0..100 {
            paper.interval(&slow);
            strict.interval(&slow);
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
            let mut ranks: Vec<Rhythm> = begun.iter().map(|now| Rhythm::new(1.0, *now)).collect();
            let (mut time, mut tested) = (1.0, Vec::new());
            for (step, delays, anyway) in steps {
                time += step;
                let clocked = |ranks: &[Rhythm], asks: fn(&Rhythm, f64) -> bool| {
                    ranks.iter().zip(&delays).any(|(rank, delay)| asks(rank, time + delay))
                };
                if !anyway && !clocked(&ranks, Rhythm::has_news) {
                    continue;
                }
                let is_due = clocked(&ranks, Rhythm::is_due);
                let pairs = ranks.iter_mut().zip(&delays);
                let told: Vec<bool> = pairs.map(|(rank, delay)| rank.tell(time + delay)).collect();
                prop_assert!(told.iter().all(|one| *one == told[0]));
                if told[0] {
                    tested.push(time);
                }
                ranks.iter_mut().for_each(|rank| rank.heard(is_due));
            }
            // One commit until somebody finds it time, and one more for the figures.
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
            let options = Options { multiple, zeta: 2, ..Options::default() };
            let mut groups = vec![Foreground::new(ranks, options); 2];
            for _ in 0..60 {
                let figures: Vec<(Rank, f64)> = Rank::all(ranks)
                    .map(|rank| (rank, 1.0 + (random.below(100) as f64 / 20.0).exp()))
                    .collect();
                let even = |group: &Foreground| group.counters().iter().filter(|c| c.is_multiple_of(2)).count();
                let before = groups[0].counters().to_vec();
                groups.iter_mut().for_each(|group| group.interval(&figures));
                prop_assert_eq!(groups[0].counters(), groups[1].counters());
                prop_assert!(groups[0].counters().iter().zip(&before).all(|(now, was)| now - was <= 1));
                // Whoever was in it and not slower than the median still is.
                prop_assert!(even(&groups[0]) > 0 || before.iter().any(|counter| counter % 2 == 1));
            }
        }
    }
}

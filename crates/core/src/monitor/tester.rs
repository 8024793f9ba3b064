//! The tests of one rank: those in progress, their results, and whether the tester can rely on
//! them. Follows "DGRP implementation" of the 2018 paper: a test fails if the reply is wrong or
//! takes longer than the threshold, and results are collected until the interval ends. Self-doubt
//! goes beyond the paper.
//!
//! The threshold may be longer than the interval (at first 8 s against 1 s). A test that still has
//! time when the interval ends has neither passed nor failed. It continues, and its rank gets no
//! second test meanwhile. A reply that arrives after its test failed still enters the means.
//!
//! Must never: know which ranks are recommended.

use std::collections::{BTreeMap, VecDeque};

use crate::members::Rank;
use crate::monitor::machine::MonitorView;
use crate::monitor::options::MonitorOptions;
use crate::monitor::reply::ReplyStatistics;
use crate::monitor::share::SmoothedTime;

/// The number of unanswered tests of a rank that are remembered. A reply to an older test is
/// ignored.
const MAX_UNANSWERED: usize = 16;

#[derive(Clone, Debug)]
struct PendingTest {
    number: u64,
    start: f64,
    limit: f64,
    /// The time by which the reply exceeded the limit, not above 0 for a passed test. None: in
    /// progress.
    excess: Option<f64>,
}

/// The results of the tests of one rank.
#[derive(Clone, Debug, Default)]
pub struct TestedRank {
    /// The statistics of its reply times.
    pub replies: ReplyStatistics,
    /// The time of the last reply, in seconds.
    pub last_reply: Option<f64>,
    /// How suspicious the last test was.
    pub phi: f64,
    /// The number of tests passed in a row.
    pub passes: u32,
    /// The smoothed time of its correct replies, late ones included.
    pub reply_time: SmoothedTime,
    test: Option<PendingTest>,
    unanswered: VecDeque<(u64, f64)>,
    /// Late reply times that enter the means only if this interval is one of self-doubt.
    deferred: Vec<f64>,
}

/// The results of the tests of one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalOutcome {
    /// The ranks that passed, ascending.
    pub passed: Vec<Rank>,
    /// The ranks that failed, ascending, with the number of seconds by which each exceeded its
    /// limit; infinite if the answer was wrong.
    pub failed: Vec<(Rank, f64)>,
    /// The longest delay, in seconds, with which the tester was woken.
    pub late: f64,
}

impl IntervalOutcome {
    /// Returns whether the tester itself is more likely to be slow than the ranks that failed.
    /// The tester would report a failure of the ranks that `recommended` selects.
    pub fn is_doubtful(&self, recommended: impl Fn(Rank) -> bool) -> bool {
        let reported = self.failed.iter().filter(|(rank, _)| recommended(*rank));
        let excesses: Vec<f64> = reported.map(|(_, excess)| *excess).collect();
        let passed = self
            .passed
            .iter()
            .filter(|rank| recommended(**rank))
            .count();
        // Without its own delay the tester might have seen the reply in time.
        let own_delay = excesses.iter().any(|excess| *excess <= self.late);
        let majority = excesses.len() >= 2 && excesses.len() > passed;
        own_delay || majority
    }
}

/// The tests of one rank.
#[derive(Clone, Debug)]
pub struct Tester {
    options: MonitorOptions,
    tested: BTreeMap<Rank, TestedRank>,
    next: u64,
    answer: u64,
    late: f64,
}

impl Tester {
    /// Creates a tester without tests. `answer` is the correct result of the test procedure.
    pub fn new(options: MonitorOptions, answer: u64) -> Tester {
        Tester {
            options,
            tested: BTreeMap::new(),
            next: 0,
            answer,
            late: 0.0,
        }
    }

    /// Sets the correct result of the test procedure.
    pub fn set_answer(&mut self, answer: u64) {
        self.answer = answer;
    }

    /// Returns the results of a rank, or None if it was never tested.
    pub fn tested(&self, rank: Rank) -> Option<&TestedRank> {
        self.tested.get(&rank)
    }

    /// Returns the number of tests that a rank passed in a row.
    pub fn passes(&self, rank: Rank) -> u32 {
        self.tested(rank).map_or(0, |tested| tested.passes)
    }

    /// Starts counting the passed tests of a rank from 0.
    pub fn reset(&mut self, rank: Rank) {
        if let Some(tested) = self.tested.get_mut(&rank) {
            tested.passes = 0;
        }
    }

    /// Discards a rank: its replies are no longer expected.
    pub fn forget(&mut self, rank: Rank) {
        self.tested.remove(&rank);
    }

    /// Records that the tester was woken `by` seconds late.
    pub fn woke_late(&mut self, by: f64) {
        self.late = self.late.max(by);
    }

    /// Starts a test of each of these ranks that has none in progress. Returns the numbers of the
    /// tests.
    pub fn begin(&mut self, now: f64, ranks: &[Rank]) -> Vec<(Rank, u64)> {
        let mut begun = Vec::with_capacity(ranks.len());
        for rank in ranks {
            let tested = self.tested.entry(*rank).or_default();
            if tested.test.is_some() {
                continue;
            }
            tested.test = Some(PendingTest {
                number: self.next,
                start: now,
                limit: tested.replies.limit(&self.options),
                excess: None,
            });
            begun.push((*rank, self.next));
            self.next += 1;
        }
        begun
    }

    /// Returns the next time at which a test in progress exceeds its limit, if it is after `now`.
    pub fn next_limit(&self, now: f64) -> Option<f64> {
        let tests = self
            .tested
            .values()
            .filter_map(|tested| tested.test.as_ref());
        let open = tests.filter(|test| test.excess.is_none());
        let limits = open.map(|test| test.start + test.limit);
        limits.filter(|limit| *limit > now).reduce(f64::min)
    }

    /// Processes a reply.
    pub fn reply(&mut self, now: f64, from: Rank, number: u64, answer: u64) {
        let Some(tested) = self.tested.get_mut(&from) else {
            return;
        };
        let right = answer == self.answer;
        let test = tested.test.as_mut();
        if let Some(test) = test.filter(|test| test.number == number && test.excess.is_none()) {
            let time = now - test.start;
            test.excess = Some(if right {
                time - test.limit
            } else {
                f64::INFINITY
            });
            let late = time > test.limit;
            tested.phi = tested.replies.phi(time);
            // The time of a wrong answer says nothing about correct ones.
            if right {
                tested.record(&self.options, time, late);
            }
            return;
        }
        let unanswered = tested.unanswered.iter().position(|test| test.0 == number);
        if let Some((_, start)) = unanswered.and_then(|index| tested.unanswered.remove(index))
            && right
        {
            tested.record(&self.options, now - start, true);
        }
    }

    /// Ends the interval and returns the results of its tests. A test that still has time
    /// continues. Passed tests are counted here, failed tests by [`Tester::settle`].
    pub fn finish(&mut self, now: f64) -> IntervalOutcome {
        let mut outcome = IntervalOutcome {
            late: std::mem::take(&mut self.late),
            ..IntervalOutcome::default()
        };
        for (rank, tested) in &mut self.tested {
            let Some(test) = tested.test.take() else {
                // A rank that was not tested in this interval starts again from 0.
                tested.passes = 0;
                continue;
            };
            let elapsed = now - test.start;
            match test.excess {
                Some(excess) if excess > 0.0 => outcome.failed.push((*rank, excess)),
                Some(_) => {
                    tested.passes = tested.passes.saturating_add(1);
                    outcome.passed.push(*rank);
                }
                None if elapsed > test.limit => {
                    tested.phi = tested.replies.phi(elapsed);
                    tested.remember(&test);
                    outcome.failed.push((*rank, elapsed - test.limit));
                }
                None => tested.test = Some(test),
            }
        }
        outcome
    }

    /// Counts the failed tests of the ended interval, unless it was one of self-doubt.
    pub fn settle(&mut self, outcome: &IntervalOutcome, doubtful: bool) {
        for (rank, _) in outcome.failed.iter().filter(|_| !doubtful) {
            self.reset(*rank);
        }
        for tested in self.tested.values_mut() {
            for time in std::mem::take(&mut tested.deferred) {
                if doubtful {
                    tested.replies.add(&self.options, time);
                }
            }
        }
    }

    /// Ends all tests in progress, because this rank stops testing.
    pub fn stop(&mut self) {
        for tested in self.tested.values_mut() {
            tested.passes = 0;
            tested.deferred.clear();
            if let Some(test) = tested.test.take() {
                tested.remember(&test);
            }
        }
        self.late = 0.0;
    }
}

impl TestedRank {
    /// Returns the state of the rank, with its counter and whether it is recommended.
    pub fn view(&self, counter: u32, recommended: bool, options: &MonitorOptions) -> MonitorView {
        MonitorView {
            counter,
            recommended,
            last_reply: self.last_reply,
            mean: self.replies.mean,
            variance: self.replies.variance,
            timeout: self.replies.timeout,
            threshold: self.replies.limit(options),
            phi: self.phi,
            good_in_row: self.passes,
        }
    }

    /// Remembers a test that was not answered, to which a reply may still come.
    fn remember(&mut self, test: &PendingTest) {
        self.unanswered.push_back((test.number, test.start));
        if self.unanswered.len() > MAX_UNANSWERED {
            self.unanswered.pop_front();
        }
    }

    fn record(&mut self, options: &MonitorOptions, time: f64, late: bool) {
        self.last_reply = Some(time);
        self.reply_time.add(time, options.alpha);
        if late && !options.learn_late {
            self.deferred.push(time)
        } else {
            self.replies.add(options, time)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: u64 = 168;

    fn tests(options: MonitorOptions) -> Tester {
        Tester::new(options, ANSWER)
    }

    /// Runs an interval of 1 s in which ranks 1, 2, ... reply after these times.
    fn run_interval(tests: &mut Tester, start: f64, times: &[f64]) -> IntervalOutcome {
        let ranks: Vec<Rank> = (1..=times.len() as u32).map(Rank).collect();
        let begun = tests.begin(start, &ranks);
        for ((rank, number), time) in begun.iter().zip(times) {
            if *time < 1.0 {
                tests.reply(start + time, *rank, *number, ANSWER);
            }
        }
        let outcome = tests.finish(start + 1.0);
        tests.settle(&outcome, false);
        outcome
    }

    fn warmed_up(options: MonitorOptions) -> Tester {
        let mut tests = tests(options);
        for interval in 0..100 {
            let outcome = run_interval(&mut tests, f64::from(interval), &[0.01, 0.01, 0.01, 0.01]);
            assert!(outcome.failed.is_empty());
        }
        tests
    }

    #[test]
    fn a_late_or_missing_reply_fails_the_test() {
        let mut tests = warmed_up(MonitorOptions::default());
        assert_eq!(tests.passes(Rank(1)), 100);
        let outcome = run_interval(&mut tests, 100.0, &[0.01, 0.5, 9.0, 0.012]);
        assert_eq!(outcome.passed, [Rank(1), Rank(4)]);
        let failed: Vec<Rank> = outcome.failed.iter().map(|(rank, _)| *rank).collect();
        assert_eq!(failed, [Rank(2), Rank(3)]);
        assert_eq!((tests.passes(Rank(1)), tests.passes(Rank(2))), (101, 0));
    }

    /// A rank that leaves its tester for another one and returns has not passed its tests in a row.
    #[test]
    fn an_interval_without_a_test_ends_the_row() {
        let mut tests = warmed_up(MonitorOptions::default());
        run_interval(&mut tests, 100.0, &[0.01]);
        let passes = |tests: &Tester| [1, 2].map(|rank| tests.passes(Rank(rank)));
        assert_eq!(passes(&tests), [101, 0]);
        run_interval(&mut tests, 101.0, &[0.01, 0.01]);
        assert_eq!(passes(&tests), [102, 1]);
        assert_eq!(tests.finish(103.0), IntervalOutcome::default());
        assert_eq!(passes(&tests), [0, 0]);
    }

    /// A tester that was outside the group counts anew. A reply to a test before that still enters the means.
    #[test]
    fn a_row_ends_when_its_tester_stops() {
        let mut tests = warmed_up(MonitorOptions::default());
        let begun = tests.begin(100.0, &[Rank(1)]);
        tests.stop();
        assert_eq!(tests.passes(Rank(1)), 0);
        tests.reply(100.5, Rank(1), begun[0].1, ANSWER);
        let last_reply = tests.tested(Rank(1)).and_then(|tested| tested.last_reply);
        assert_eq!(last_reply, Some(0.5));
        run_interval(&mut tests, 101.0, &[0.01]);
        assert_eq!(tests.passes(Rank(1)), 1);
    }

    #[test]
    fn the_first_test_may_outlast_the_interval() {
        let mut tests = tests(MonitorOptions::default());
        let begun = tests.begin(0.0, &[Rank(1)]);
        assert_eq!(begun, [(Rank(1), 0)]);
        for end in 1..=8 {
            let outcome = tests.finish(f64::from(end));
            assert_eq!(outcome, IntervalOutcome::default());
            assert!(tests.begin(f64::from(end), &[Rank(1)]).is_empty());
        }
        assert_eq!(tests.finish(8.5).failed, [(Rank(1), 0.5)]);
        // A reply that arrives now is late, and enters the means.
        tests.reply(9.0, Rank(1), 0, ANSWER);
        let tested = tests.tested(Rank(1)).expect("tested");
        assert!((tested.replies.mean - 0.9).abs() < 1e-12 && tested.last_reply == Some(9.0));
        // A second copy does not.
        tests.reply(9.5, Rank(1), 0, ANSWER);
        assert_eq!(
            tests.tested(Rank(1)).map(|tested| tested.replies.count),
            Some(1)
        );
    }

    #[test]
    fn a_wrong_answer_fails_the_test_and_does_not_enter_the_means() {
        let mut tests = warmed_up(MonitorOptions::default());
        let begun = tests.begin(100.0, &[Rank(1)]);
        tests.reply(100.01, Rank(1), begun[0].1, ANSWER + 1);
        assert_eq!(tests.finish(101.0).failed, [(Rank(1), f64::INFINITY)]);
        assert_eq!(
            tests.tested(Rank(1)).map(|tested| tested.replies.count),
            Some(100)
        );
    }

    #[test]
    fn testers_adapt_to_a_slow_rank_unless_late_replies_are_left_out() {
        let slow = [0.04, 0.01, 0.01, 0.01];
        let mut tests = warmed_up(MonitorOptions::default());
        assert_eq!(run_interval(&mut tests, 100.0, &slow).failed.len(), 1);
        assert_eq!(run_interval(&mut tests, 101.0, &slow).failed.len(), 0);
        let mut tests = warmed_up(MonitorOptions {
            learn_late: false,
            ..MonitorOptions::default()
        });
        for interval in 100..200 {
            assert_eq!(
                run_interval(&mut tests, f64::from(interval), &slow)
                    .failed
                    .len(),
                1
            );
        }
    }

    #[test]
    fn many_failures_at_once_cause_self_doubt() {
        let mut tests = warmed_up(MonitorOptions::default());
        let all = |_| true;
        assert!(!run_interval(&mut tests, 100.0, &[0.9, 0.01, 0.01, 0.01]).is_doubtful(all));
        assert!(
            !run_interval(
                &mut warmed_up(MonitorOptions::default()),
                100.0,
                &[0.9, 0.9, 0.01, 0.01]
            )
            .is_doubtful(all)
        );
        let three = run_interval(
            &mut warmed_up(MonitorOptions::default()),
            100.0,
            &[0.9, 0.9, 0.9, 0.01],
        );
        assert!(three.is_doubtful(all));
        // The failure of a rank outside the group would not be reported.
        assert!(three.is_doubtful(|rank| rank != Rank(1)));
        assert!(!three.is_doubtful(|rank| rank.0 >= 3));
    }

    #[test]
    fn a_tester_that_was_woken_late_doubts_itself() {
        let mut tests = warmed_up(MonitorOptions::default());
        let begun = tests.begin(100.0, &[Rank(1)]);
        let limit = tests.next_limit(100.0).expect("under way");
        assert!(limit > 100.01 && limit < 100.1);
        // The tester wakes 0.5 s late and finds a reply that may have been there for as long.
        tests.woke_late(100.6 - limit);
        tests.reply(100.6, Rank(1), begun[0].1, ANSWER);
        let outcome = tests.finish(101.0);
        assert_eq!(outcome.failed.len(), 1);
        assert!(outcome.is_doubtful(|_| true));
        // The tester was woken in time and saw that there was no reply.
        let begun = tests.begin(101.0, &[Rank(1)]);
        let limit = tests.next_limit(101.0).expect("under way");
        tests.woke_late(1e-4);
        tests.reply(limit + 0.5, Rank(1), begun[0].1, ANSWER);
        assert!(!tests.finish(102.0).is_doubtful(|_| true));
    }

    #[test]
    fn late_replies_of_a_doubtful_interval_enter_the_means() {
        let mut tests = warmed_up(MonitorOptions {
            learn_late: false,
            ..MonitorOptions::default()
        });
        let before = tests.tested(Rank(1)).map(|tested| tested.replies.count);
        for doubtful in [false, true] {
            let begun = tests.begin(100.0, &[Rank(1)]);
            tests.reply(100.5, Rank(1), begun[0].1, ANSWER);
            let outcome = tests.finish(101.0);
            tests.settle(&outcome, doubtful);
        }
        let after = tests.tested(Rank(1)).map(|tested| tested.replies.count);
        assert_eq!(after, before.map(|count| count + 1));
    }
}

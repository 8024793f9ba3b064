//! The number of failures that MPI has seen, and the times at which MPI has to be asked again.
//!
//! `MPIX_Comm_get_failed` compares each failed process with each process of the communicator. After failures its
//! cost grows with the product of their numbers. Therefore it is not called for each message.

use ftsort_core::members::{Rank, RankSet};

/// A rank that waits spends at most this part of its time in asking for failures, unless it would notice a failure
/// later than after `LONGEST_PAUSE` seconds.
const PART_OF_TIME: f64 = 0.1;
const LONGEST_PAUSE: f64 = 0.1;

/// The last answer of `MPIX_Comm_get_failed`.
pub struct SeenFailures {
    /// None: a call made progress since the answer, and MPI may have learned of further failures in it.
    count: Option<usize>,
    /// The ranks that this rank sent a message to, or posted a receive from, since the answer. Over TCP, both can write
    /// to the connection with that rank, and find in this way that it has failed.
    addressed: RankSet,
    /// The last answer, its time, and the time that it took, in seconds.
    last: Option<(usize, f64, f64)>,
}

impl SeenFailures {
    /// Returns a value that has no answer yet.
    pub fn new(ranks: usize) -> SeenFailures {
        SeenFailures {
            count: None,
            addressed: RankSet::new(ranks),
            last: None,
        }
    }

    /// Records an answer that was requested at `began` and given at `ended`, in seconds. `for_sends`: it may serve
    /// the sends that follow.
    pub fn store(&mut self, count: usize, (began, ended): (f64, f64), for_sends: bool) {
        self.count = for_sends.then_some(count);
        self.last = Some((count, ended, ended - began));
        if !self.addressed.is_empty() {
            self.addressed = RankSet::new(self.addressed.ranks());
        }
    }

    /// Records that a call made progress.
    pub fn progressed(&mut self) {
        self.count = None;
    }

    /// Records that a message was sent to `rank`, or that a receive from it was posted.
    pub fn addressed(&mut self, rank: Rank) {
        self.addressed.insert(rank);
    }

    /// Returns the number of failures if it cannot have changed since the answer, as far as a send to `rank` is
    /// concerned.
    pub fn before_send(&self, rank: Rank) -> Option<usize> {
        self.count.filter(|_| !self.addressed.contains(rank))
    }

    /// Returns the last answer if it is too early to ask again. By this a failure is noticed later: by ten times the
    /// duration of a request, and by at most 0.1 seconds.
    pub fn while_waiting(&self, now: f64) -> Option<usize> {
        let (count, at, took) = self.last?;
        let pause = (took / PART_OF_TIME).min(LONGEST_PAUSE);
        (now - at < pause).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered() -> SeenFailures {
        let mut seen = SeenFailures::new(4);
        seen.store(2, (1.0, 1.001), true);
        seen
    }

    #[test]
    fn one_answer_serves_one_message_to_each_rank() {
        let mut seen = answered();
        assert_eq!(seen.before_send(Rank(0)), Some(2));
        seen.addressed(Rank(0));
        assert_eq!(seen.before_send(Rank(1)), Some(2));
        assert_eq!(seen.before_send(Rank(0)), None);
        seen.store(2, (2.0, 2.0), true);
        assert_eq!(seen.before_send(Rank(0)), Some(2));
    }

    #[test]
    fn an_answer_is_out_of_date_after_progress() {
        let mut seen = answered();
        seen.progressed();
        assert_eq!(seen.before_send(Rank(1)), None);
    }

    #[test]
    fn an_answer_to_a_waiting_rank_serves_no_send() {
        let mut seen = answered();
        seen.store(2, (2.0, 2.0), false);
        assert_eq!(seen.before_send(Rank(1)), None);
    }

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        let seen = SeenFailures::new(4);
        assert_eq!(seen.before_send(Rank(1)), None);
        assert_eq!(seen.while_waiting(0.0), None);
    }

    #[test]
    fn a_wait_asks_again_after_ten_times_the_duration_of_a_request() {
        let mut seen = answered();
        seen.progressed();
        assert_eq!(seen.while_waiting(1.010), Some(2));
        assert_eq!(seen.while_waiting(1.012), None);
    }

    #[test]
    fn a_wait_asks_again_after_a_tenth_of_a_second_at_the_latest() {
        let mut seen = answered();
        seen.store(2, (1.0, 2.0), true);
        assert_eq!(seen.while_waiting(2.05), Some(2));
        assert_eq!(seen.while_waiting(2.15), None);
    }
}

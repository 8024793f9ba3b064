//! The monitor of one rank, as a state machine: its inputs are the time and received messages, its
//! outputs are messages to send. Follows "DGRP: system model" and "DGRP implementation" of the 2018
//! paper.
//!
//! A member tests others in each interval of its own clock. At the interval's end it counts an
//! event for each member that failed, and broadcasts the events. Members ignore updates from ranks
//! outside the group. If a rank outside the group has passed zeta tests in a row, its tester asks
//! the leader for a decision. Once decided, the rank's counter becomes even, which is an event like
//! any other. A rank outside the group answers tests and accepts updates from all ranks, and its own
//! tests have no results. It runs tests only if no rank has tested it for more than zeta intervals.
//! Then its view of the group is wrong, and the replies bring the counters of others. Without these
//! tests, ranks that each believe themselves outside after lost messages would wait for each other
//! for ever.
//!
//! The driver calls [`Monitor::tick`] at [`Monitor::next_wake`] and not much later (the delay shows
//! a tester that it was short of processor time); passes received messages to [`Monitor::receive`]
//! with the time of their arrival; sends messages; and runs the test procedure for
//! [`Action::RunTest`] and passes its result to [`Monitor::test_done`]. Messages may be lost,
//! duplicated, delayed or reordered. Only one thread may use a monitor at a time.
//!
//! Must never: read a clock, wait, or send a message itself.

use crate::members::{Rank, RankSet};
use crate::monitor::broadcast::BroadcastLog;
use crate::monitor::message::{MonitorMessage, RejoinSubject};
use crate::monitor::options::MonitorOptions;
use crate::monitor::paxos::{PaxosMessage, ProposerStep};
use crate::monitor::rejoin::RejoinDecisions;
use crate::monitor::syndrome::{CounterUpdates, Syndrome};
use crate::monitor::tester::Tester;
use crate::monitor::{DEFAULT_LIMIT, count_primes};
use std::collections::BTreeMap;

/// An action that the driver must perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message.
    Send {
        /// The receiver, which is never this rank.
        to: Rank,
        /// The bytes for the receiver's [`Monitor::receive`].
        message: Vec<u8>,
    },
    /// Run the test procedure, then call [`Monitor::test_done`] with these values and the result.
    RunTest {
        /// The tester.
        to: Rank,
        /// The tester's number for the test.
        number: u64,
    },
}

/// The state of one rank, as a monitor knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MonitorView {
    /// The number of events so far.
    pub counter: u32,
    /// Whether the rank is in the group.
    pub recommended: bool,
    /// The time of its last reply, in seconds. None before the first reply.
    pub last_reply: Option<f64>,
    /// Algorithm 1's mean, in seconds.
    pub mean: f64,
    /// Algorithm 1's variance, in seconds.
    pub variance: f64,
    /// Algorithm 1's timeout, in seconds.
    pub timeout: f64,
    /// The longest time that the next reply may take, in seconds.
    pub threshold: f64,
    /// How suspicious the last test was.
    pub phi: f64,
    /// The number of tests by this rank that it passed in a row since it left the group.
    pub good_in_row: u32,
}

/// One rank's part in maintaining the group.
#[derive(Clone, Debug)]
pub struct Monitor {
    me: Rank,
    ranks: usize,
    options: MonitorOptions,
    syndrome: Syndrome,
    group: RankSet,
    outside: RankSet,
    tester: Tester,
    broadcasts: BroadcastLog,
    rejoins: RejoinDecisions,
    /// The tests that this rank must answer: their numbers and the testers' digests.
    pending_answers: BTreeMap<Rank, (u64, u64)>,
    interval: u64,
    /// The interval in which another rank last tested this rank.
    last_tested: u64,
    interval_end: f64,
    wake: f64,
}

impl Monitor {
    /// Creates the monitor of rank `me` of `ranks`, at the time `now` of its own clock, in seconds.
    /// All ranks are recommended, and tests begin with the first [`Monitor::tick`]. The options
    /// must have passed [`MonitorOptions::check`].
    ///
    /// # Panics
    /// If `me` is not below `ranks`.
    pub fn new(me: Rank, ranks: usize, options: MonitorOptions, now: f64) -> Monitor {
        assert!(me.index() < ranks, "there is no rank {me} among {ranks}");
        let syndrome = Syndrome::new(ranks);
        Monitor {
            me,
            ranks,
            group: syndrome.group(),
            outside: syndrome.outside(),
            syndrome,
            tester: Tester::new(options.clone(), count_primes(DEFAULT_LIMIT)),
            options,
            broadcasts: BroadcastLog::default(),
            rejoins: RejoinDecisions::default(),
            pending_answers: BTreeMap::new(),
            interval: 0,
            last_tested: 0,
            interval_end: now,
            wake: now,
        }
    }

    /// Sets the correct result of the test procedure, which is that of `count_primes(1000)` by
    /// default. Any other answer fails the test.
    pub fn set_answer(&mut self, answer: u64) {
        self.tester.set_answer(answer);
    }

    /// Returns the time at which [`Monitor::tick`] must be called next.
    pub fn next_wake(&self) -> f64 {
        self.wake
    }

    /// Processes the passage of time. Before [`Monitor::next_wake`] the call has no effect.
    pub fn tick(&mut self, now: f64) -> Vec<Action> {
        let mut out = Vec::new();
        if now.is_nan() || now < self.wake {
            return out;
        }
        self.tester.woke_late(now - self.wake);
        if now >= self.interval_end {
            self.end_interval(now, &mut out);
            self.begin_interval(now, &mut out);
        }
        let limit = self.tester.next_limit(now).unwrap_or(f64::INFINITY);
        self.wake = self.interval_end.min(limit);
        out
    }

    /// Processes a message from another rank. Bytes that are no message are ignored.
    pub fn receive(&mut self, now: f64, from: Rank, message: &[u8]) -> Vec<Action> {
        let mut out = Vec::new();
        if from == self.me || from.index() >= self.ranks || self.syndrome.is_failed(from) {
            return out;
        }
        let Some(message) = MonitorMessage::decode(self.ranks, message) else {
            return out;
        };
        if now > self.wake {
            // A message that is received only now may have been available since then.
            self.tester.woke_late(now - self.wake);
        }
        match message {
            MonitorMessage::Test { number, digest } => {
                self.last_tested = self.interval;
                self.pending_answers.insert(from, (number, digest));
                out.push(Action::RunTest { to: from, number });
            }
            MonitorMessage::Reply {
                number,
                answer,
                digest,
                updates,
            } => {
                self.tester.reply(now, from, number, answer);
                self.merge_from(from, &updates);
                if digest != self.syndrome.digest() {
                    let own = MonitorMessage::Counters(self.syndrome.nonzero_counters());
                    self.send(from, own, &mut out);
                }
            }
            MonitorMessage::Counters(updates) => self.merge_from(from, &updates),
            MonitorMessage::Events {
                origin,
                number,
                updates,
            } => self.receive_events(from, origin, number, &updates, &mut out),
            MonitorMessage::Request(subject) => self.receive_request(from, subject, &mut out),
            MonitorMessage::Vote(subject, message) => {
                self.receive_vote(from, subject, &message, &mut out)
            }
        }
        out
    }

    /// Processes the result of the test procedure for [`Action::RunTest`]. The returned action
    /// sends it to the tester.
    pub fn test_done(&mut self, _now: f64, to: Rank, number: u64, answer: u64) -> Vec<Action> {
        let mut out = Vec::new();
        if to.index() >= self.ranks || to == self.me {
            return out;
        }
        let digest = self.syndrome.digest();
        let asked = self.pending_answers.remove(&to);
        let same = asked == Some((number, digest));
        let updates = if same {
            CounterUpdates::new()
        } else {
            self.syndrome.nonzero_counters()
        };
        let reply = MonitorMessage::Reply {
            number,
            answer,
            digest,
            updates,
        };
        self.send(to, reply, &mut out);
        out
    }

    /// Marks ranks as failed. They never come back, and the monitor no longer expects messages from
    /// them. This rank is ignored in the set.
    pub fn mark_failed(&mut self, failed: &RankSet) {
        let is_other = |rank: &Rank| *rank != self.me && rank.index() < self.ranks;
        let others = RankSet::of(self.ranks, failed.iter().filter(is_other));
        for rank in others.iter() {
            self.tester.forget(rank);
            self.pending_answers.remove(&rank);
            self.rejoins.remove(rank);
        }
        self.syndrome.mark_failed(&others);
        self.update_group();
    }

    /// Returns the counters of events, by rank. A recommended rank has an even counter.
    pub fn counters(&self) -> &[u32] {
        self.syndrome.counters()
    }

    /// Returns a number that is the same for equal counters and almost always different for
    /// different ones: a cheap test for changes.
    pub fn digest(&self) -> u64 {
        self.syndrome.digest()
    }

    /// Merges counters that a commit agreed on, by rank. Counters beyond the number of ranks are
    /// ignored.
    pub fn adopt_counters(&mut self, counters: &[u32]) {
        let counters = Rank::all(self.ranks).zip(counters);
        let updates: CounterUpdates = counters.map(|(rank, counter)| (rank, *counter)).collect();
        self.merge(&updates);
    }

    /// Returns the group, as this rank knows it: all survivors with an even counter. If there is
    /// none, returns all survivors, because some rank must do the work.
    pub fn recommended(&self) -> RankSet {
        self.group.clone()
    }

    /// Returns the smoothed reply time of each rank, in seconds. None before a rank's first reply.
    pub fn reply_times(&self) -> Vec<Option<f64>> {
        let ranks = Rank::all(self.ranks);
        ranks
            .map(|rank| self.tester.tested(rank)?.reply_time.mean())
            .collect()
    }

    /// Returns the state of a rank.
    ///
    /// # Panics
    /// If the rank does not exist.
    pub fn view(&self, rank: Rank) -> MonitorView {
        let tested = self.tester.tested(rank).cloned().unwrap_or_default();
        let (counter, recommended) = (self.syndrome.counter(rank), self.group.contains(rank));
        tested.view(counter, recommended, &self.options)
    }

    fn is_member(&self) -> bool {
        self.group.contains(self.me)
    }

    /// Sends a message to another rank, or processes it at once if it is for this rank.
    fn send(&mut self, to: Rank, message: MonitorMessage, out: &mut Vec<Action>) {
        if to != self.me {
            out.push(Action::Send {
                to,
                message: message.encode(),
            });
            return;
        }
        match message {
            MonitorMessage::Request(subject) => self.receive_request(to, subject, out),
            MonitorMessage::Vote(subject, message) => self.receive_vote(to, subject, &message, out),
            _ => {}
        }
    }

    /// Sends a message to all survivors except these ranks, including survivors outside the group.
    fn send_to_all(&self, message: &MonitorMessage, but: [Rank; 2], out: &mut Vec<Action>) {
        let bytes = message.encode();
        let survivors = Rank::all(self.ranks).filter(|rank| !self.syndrome.is_failed(*rank));
        for to in survivors.filter(|rank| *rank != self.me && !but.contains(rank)) {
            let message = bytes.clone();
            out.push(Action::Send { to, message });
        }
    }

    fn update_group(&mut self) {
        self.group = self.syndrome.group();
        self.outside = self.syndrome.outside();
    }

    fn merge(&mut self, updates: &CounterUpdates) {
        let mut changed = false;
        for (rank, counter) in updates {
            if self.syndrome.merge(*rank, *counter) {
                changed = true;
                self.counter_grew(*rank);
            }
        }
        if changed {
            self.update_group();
        }
    }

    /// Processes the growth of a rank's counter.
    fn counter_grew(&mut self, rank: Rank) {
        self.rejoins.remove(rank);
        if !self.syndrome.is_recommended(rank) {
            // Passed tests are counted from the moment at which the rank left the group.
            self.tester.reset(rank);
        }
    }

    /// Merges updates that a member sent. A rank outside the group accepts them from all ranks: its
    /// own view of the group may be so old that it would take all its testers for outsiders, and no
    /// other rank sends it anything.
    fn merge_from(&mut self, from: Rank, updates: &CounterUpdates) {
        if self.group.contains(from) || !self.is_member() {
            self.merge(updates);
        }
    }

    fn receive_events(
        &mut self,
        from: Rank,
        origin: Rank,
        number: u64,
        updates: &CounterUpdates,
        out: &mut Vec<Action>,
    ) {
        if origin == self.me || !self.broadcasts.is_new(origin, number) {
            return;
        }
        if self.is_member() {
            let message = MonitorMessage::Events {
                origin,
                number,
                updates: updates.clone(),
            };
            self.send_to_all(&message, [origin, from], out);
        }
        self.merge_from(origin, updates);
    }

    /// Counts an event for each of these ranks, and broadcasts the new counters.
    fn broadcast_events(&mut self, ranks: &[Rank], out: &mut Vec<Action>) {
        for rank in ranks {
            self.syndrome.increment(*rank);
            self.counter_grew(*rank);
        }
        self.update_group();
        if self.options.assignment == super::Assignment::AllToAll {
            let counter = |rank: &Rank| (*rank, self.syndrome.counter(*rank));
            let message = MonitorMessage::Events {
                origin: self.me,
                number: self.broadcasts.next_number(),
                updates: ranks.iter().map(counter).collect(),
            };
            self.send_to_all(&message, [self.me; 2], out);
        }
    }

    fn end_interval(&mut self, now: f64, out: &mut Vec<Action>) {
        if !self.is_member() {
            self.tester.stop();
            return;
        }
        let outcome = self.tester.finish(now);
        let recommended = |rank: Rank| self.syndrome.is_recommended(rank);
        let doubtful = self.options.self_doubt && outcome.is_doubtful(recommended);
        let failed = outcome.failed.iter().map(|(rank, _)| *rank);
        let events: Vec<Rank> = failed.filter(|rank| recommended(*rank)).collect();
        self.tester.settle(&outcome, doubtful);
        if !doubtful && !events.is_empty() {
            self.broadcast_events(&events, out);
        }
        let ripe = |rank: &Rank| self.tester.passes(*rank) >= self.options.zeta;
        let ripe: Vec<Rank> = self.outside.iter().filter(ripe).collect();
        for rank in ripe {
            let (subject, voters) = self.subject(rank);
            if let Some(leader) = voters.first() {
                self.send(*leader, MonitorMessage::Request(subject), out);
            }
        }
    }

    fn begin_interval(&mut self, now: f64, out: &mut Vec<Action>) {
        self.interval += 1;
        let next = self.interval_end + self.options.interval;
        // Intervals that were missed are not made up for.
        self.interval_end = if next > now + self.options.interval / 2.0 {
            next
        } else {
            now + self.options.interval
        };
        let is_untested = self.interval - self.last_tested > u64::from(self.options.zeta);
        if !self.is_member() && !is_untested {
            return;
        }
        let (group, outside) = (&self.group, &self.outside);
        let assignment = self.options.assignment;
        let tested = assignment.tested_by(self.me, self.ranks, group, outside);
        let digest = self.syndrome.digest();
        for (to, number) in self.tester.begin(now, &tested) {
            self.send(to, MonitorMessage::Test { number, digest }, out);
        }
    }

    /// Returns the subject of a decision on a rank outside the group, and its voters.
    fn subject(&self, rank: Rank) -> (RejoinSubject, Vec<Rank>) {
        let assignment = self.options.assignment;
        let voters = assignment.testers_of(rank, self.ranks, &self.group);
        let set = RankSet::of(self.ranks, voters.iter().copied());
        let subject = RejoinSubject {
            rank,
            counter: self.syndrome.counter(rank),
            voters: set.fingerprint(),
        };
        (subject, voters)
    }

    /// Returns the voters if this decision is due and the sender computed the same voters. A sender
    /// with other voters knows other counters, and will try again.
    fn voters(&self, from: Rank, subject: RejoinSubject) -> Option<Vec<Rank>> {
        let known = self.is_member() && self.outside.contains(subject.rank);
        if !known || !self.group.contains(from) {
            return None;
        }
        let (own, voters) = self.subject(subject.rank);
        (own == subject).then_some(voters)
    }

    fn receive_request(&mut self, from: Rank, subject: RejoinSubject, out: &mut Vec<Action>) {
        let Some(voters) = self.voters(from, subject) else {
            return;
        };
        let rejoins = &mut self.rejoins;
        if let Some(message) = rejoins.start(self.me, subject, &voters, from, self.interval) {
            self.send_to_voters(&voters, subject, message, out);
        }
    }

    fn send_to_voters(
        &mut self,
        voters: &[Rank],
        subject: RejoinSubject,
        message: PaxosMessage,
        out: &mut Vec<Action>,
    ) {
        for voter in voters {
            self.send(*voter, MonitorMessage::Vote(subject, message), out);
        }
    }

    fn receive_vote(
        &mut self,
        from: Rank,
        subject: RejoinSubject,
        message: &PaxosMessage,
        out: &mut Vec<Action>,
    ) {
        let Some(voters) = self.voters(from, subject) else {
            return;
        };
        if let PaxosMessage::Prepare(_) | PaxosMessage::Accept(..) = message {
            let willing = 2 * self.tester.passes(subject.rank) > self.options.zeta;
            let answer = if voters.contains(&self.me) {
                self.rejoins.vote(subject, willing, message)
            } else {
                None
            };
            if let Some(answer) = answer {
                self.send(from, MonitorMessage::Vote(subject, answer), out);
            }
            return;
        }
        match self.rejoins.count_vote(subject, from, message) {
            Some(ProposerStep::Send(message)) => {
                self.send_to_voters(&voters, subject, message, out)
            }
            Some(ProposerStep::Decided(_)) => self.broadcast_events(&[subject.rank], out),
            Some(ProposerStep::Abandoned) | None => {}
        }
    }
}

#[cfg(test)]
mod tests;

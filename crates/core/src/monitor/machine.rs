//! The monitor of one rank, as a state machine: it is told the time and what came, and says what to send.
//! Follows "DGRP: system model" and "DGRP implementation" of the 2018 paper. Must never look at a clock,
//! wait, or talk to anybody itself.
//!
//! A member tests others in each interval of its own clock; at the interval's end it counts an event for
//! each member that failed, and tells all. Members ignore news of ranks outside of the group. A rank
//! outside that passed zeta tests in a row has its tester ask the leader for a decision; once decided, its
//! counter becomes even, which is an event like any other. A rank that is itself outside tests nobody,
//! answers tests, and listens.
//!
//! The driver's part: call [`Monitor::tick`] at [`Monitor::next_wake`] and not much later (how late it was
//! tells a starved tester); hand over what comes, with the time at which it came; send what is to be sent;
//! run the test procedure for [`Action::RunTest`] and hand its result to [`Monitor::answered`]. Messages
//! may get lost, come twice, late, or in any order. One thread at a time.

use crate::members::{Rank, RankSet};
use crate::monitor::broadcast::Heard;
use crate::monitor::message::{Message, Subject};
use crate::monitor::options::Options;
use crate::monitor::paxos::{self, Step};
use crate::monitor::rejoin::Rejoins;
use crate::monitor::syndrome::{News, Syndrome};
use crate::monitor::tester::Tests;
use crate::monitor::{DEFAULT_LIMIT, count_primes};
use std::collections::BTreeMap;

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message.
    Send {
        /// To whom; never this rank.
        to: Rank,
        /// For that rank's [`Monitor::hear`].
        message: Vec<u8>,
    },
    /// Run the test procedure, then call [`Monitor::answered`] with these and its result.
    RunTest {
        /// The tester.
        to: Rank,
        /// The tester's number for the test.
        number: u64,
    },
}

/// What a monitor knows of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Events so far.
    pub counter: u32,
    /// Is the rank in the group?
    pub recommended: bool,
    /// How long its last reply took, in seconds; None before the first.
    pub last_reply: Option<f64>,
    /// Algorithm 1's mean, in seconds.
    pub mean: f64,
    /// Algorithm 1's variance, in seconds.
    pub variance: f64,
    /// Algorithm 1's timeout, in seconds.
    pub timeout: f64,
    /// How long the next reply may take, in seconds.
    pub threshold: f64,
    /// How suspicious the last test was.
    pub phi: f64,
    /// Good tests in a row, by this rank, since the rank left the group.
    pub good_in_row: u32,
}

/// One rank's part in keeping the group.
#[derive(Clone, Debug)]
pub struct Monitor {
    me: Rank,
    ranks: usize,
    options: Options,
    syndrome: Syndrome,
    group: RankSet,
    outside: RankSet,
    tests: Tests,
    heard: Heard,
    rejoins: Rejoins,
    /// Tests that this rank is to answer: their numbers, and the testers' digests.
    asked: BTreeMap<Rank, (u64, u64)>,
    interval: u64,
    interval_end: f64,
    wake: f64,
}

impl Monitor {
    /// The monitor of rank `me` of so many, at the time `now` of its own clock, in seconds. Everybody is
    /// recommended; tests begin with the first [`Monitor::tick`]. The options are to have passed
    /// [`Options::check`].
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn new(me: Rank, ranks: usize, options: Options, now: f64) -> Monitor {
        assert!(me.index() < ranks, "there is no rank {me} among {ranks}");
        let syndrome = Syndrome::new(ranks);
        Monitor {
            me,
            ranks,
            group: syndrome.group(),
            outside: syndrome.outside(),
            syndrome,
            tests: Tests::new(options.clone(), count_primes(DEFAULT_LIMIT)),
            options,
            heard: Heard::default(),
            rejoins: Rejoins::default(),
            asked: BTreeMap::new(),
            interval: 0,
            interval_end: now,
            wake: now,
        }
    }

    /// What the test procedure yields where all is well; that of `count_primes(1000)` unless told
    /// otherwise. Any other answer fails the test.
    pub fn set_answer(&mut self, answer: u64) {
        self.tests.set_answer(answer);
    }

    /// When [`Monitor::tick`] is to be called next.
    pub fn next_wake(&self) -> f64 {
        self.wake
    }

    /// The time has come, or may have: before [`Monitor::next_wake`] nothing happens.
    pub fn tick(&mut self, now: f64) -> Vec<Action> {
        let mut out = Vec::new();
        if now.is_nan() || now < self.wake {
            return out;
        }
        self.tests.woken_late(now - self.wake);
        if now >= self.interval_end {
            self.end_interval(now, &mut out);
            self.begin_interval(now, &mut out);
        }
        let limit = self.tests.next_limit(now).unwrap_or(f64::INFINITY);
        self.wake = self.interval_end.min(limit);
        out
    }

    /// A message came from another rank. Anything that is no message is ignored.
    pub fn hear(&mut self, now: f64, from: Rank, message: &[u8]) -> Vec<Action> {
        let mut out = Vec::new();
        if from == self.me || from.index() >= self.ranks || self.syndrome.has_failed(from) {
            return out;
        }
        let Some(message) = Message::decode(self.ranks, message) else {
            return out;
        };
        if now > self.wake {
            // What is heard only now may have been there since then.
            self.tests.woken_late(now - self.wake);
        }
        match message {
            Message::Test { number, digest } => {
                self.asked.insert(from, (number, digest));
                out.push(Action::RunTest { to: from, number });
            }
            Message::Reply {
                number,
                answer,
                digest,
                news,
            } => {
                self.tests.reply(now, from, number, answer);
                self.learn(from, &news);
                if digest != self.syndrome.digest() {
                    let own = Message::Counters(self.syndrome.news());
                    self.post(from, own, &mut out);
                }
            }
            Message::Counters(news) => self.learn(from, &news),
            Message::Events {
                origin,
                number,
                news,
            } => self.events(from, origin, number, &news, &mut out),
            Message::Request(subject) => self.request(from, subject, &mut out),
            Message::Vote(subject, message) => self.vote(from, subject, &message, &mut out),
        }
        out
    }

    /// The test procedure ran for [`Action::RunTest`] and yielded this; the action sends it to the
    /// tester.
    pub fn answered(&mut self, _now: f64, to: Rank, number: u64, answer: u64) -> Vec<Action> {
        let mut out = Vec::new();
        if to.index() >= self.ranks || to == self.me {
            return out;
        }
        let digest = self.syndrome.digest();
        let asked = self.asked.remove(&to);
        let same = asked == Some((number, digest));
        let news = match same {
            true => News::new(),
            false => self.syndrome.news(),
        };
        let reply = Message::Reply {
            number,
            answer,
            digest,
            news,
        };
        self.post(to, reply, &mut out);
        out
    }

    /// These ranks crashed: they are out for ever, and nobody waits for them. This rank is not among
    /// them.
    pub fn absorb_dead(&mut self, dead: &RankSet) {
        let others = dead.iter().filter(|rank| *rank != self.me);
        let others = others.filter(|rank| rank.index() < self.ranks);
        let others = RankSet::from_ranks(self.ranks, others);
        for rank in others.iter() {
            self.tests.forget(rank);
            self.asked.remove(&rank);
            self.rejoins.close(rank);
        }
        self.syndrome.absorb_dead(&others);
        self.regroup();
    }

    /// The counters of events, by rank: even for a recommended rank.
    pub fn counters(&self) -> &[u32] {
        self.syndrome.counters()
    }

    /// A number that is the same for equal counters and hardly ever for others: tells cheaply whether they
    /// changed.
    pub fn digest(&self) -> u64 {
        self.syndrome.digest()
    }

    /// Merges counters that the application's commit agreed on, by rank, whoever they are from. Those
    /// beyond the number of ranks are ignored.
    pub fn adopt(&mut self, counters: &[u32]) {
        let counters = Rank::all(self.ranks).zip(counters);
        let news: News = counters.map(|(rank, counter)| (rank, *counter)).collect();
        self.merge(&news);
    }

    /// The group, as this rank knows it: all living ranks with an even counter. If there is none, all
    /// living ranks, since somebody has to do the work.
    pub fn recommended(&self) -> RankSet {
        self.group.clone()
    }

    /// How long each rank has taken to reply of late, in seconds; None before the first reply.
    pub fn paces(&self) -> Vec<Option<f64>> {
        let ranks = Rank::all(self.ranks);
        ranks
            .map(|rank| self.tests.peer(rank)?.pace.mean())
            .collect()
    }

    /// What is known of a rank.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn view(&self, rank: Rank) -> View {
        let peer = self.tests.peer(rank).cloned().unwrap_or_default();
        View {
            counter: self.syndrome.counter(rank),
            recommended: self.group.contains(rank),
            last_reply: peer.last,
            mean: peer.replies.mean,
            variance: peer.replies.variance,
            timeout: peer.replies.timeout,
            threshold: peer.replies.limit(&self.options),
            phi: peer.phi,
            good_in_row: peer.good,
        }
    }

    fn is_member(&self) -> bool {
        self.group.contains(self.me)
    }

    /// A message for another rank, or, at once, for this one.
    fn post(&mut self, to: Rank, message: Message, out: &mut Vec<Action>) {
        if to != self.me {
            let message = message.encode();
            out.push(Action::Send { to, message });
            return;
        }
        match message {
            Message::Request(subject) => self.request(to, subject, out),
            Message::Vote(subject, message) => self.vote(to, subject, &message, out),
            _ => {}
        }
    }

    /// A message for all living ranks but these: also for those outside, who are to know.
    fn tell_all(&self, message: &Message, but: [Rank; 2], out: &mut Vec<Action>) {
        let bytes = message.encode();
        let living = Rank::all(self.ranks).filter(|rank| !self.syndrome.has_failed(*rank));
        for to in living.filter(|rank| *rank != self.me && !but.contains(rank)) {
            let message = bytes.clone();
            out.push(Action::Send { to, message });
        }
    }

    fn regroup(&mut self) {
        self.group = self.syndrome.group();
        self.outside = self.syndrome.outside();
    }

    fn merge(&mut self, news: &News) {
        let mut changed = false;
        for (rank, counter) in news {
            if self.syndrome.merge(*rank, *counter) {
                changed = true;
                self.moved(*rank);
            }
        }
        if changed {
            self.regroup();
        }
    }

    /// A rank's counter grew.
    fn moved(&mut self, rank: Rank) {
        self.rejoins.close(rank);
        if !self.syndrome.is_recommended(rank) {
            // Good tests in a row are those since it left.
            self.tests.reset(rank);
        }
    }

    /// News of members count. Who is outside listens to everybody: its idea of the group may be so old
    /// that it would take all those who test it for outsiders, and nobody else tells it anything.
    fn learn(&mut self, from: Rank, news: &News) {
        if self.group.contains(from) || !self.is_member() {
            self.merge(news);
        }
    }

    fn events(
        &mut self,
        from: Rank,
        origin: Rank,
        number: u64,
        news: &News,
        out: &mut Vec<Action>,
    ) {
        if origin == self.me || !self.heard.is_new(origin, number) {
            return;
        }
        if self.is_member() {
            let message = Message::Events {
                origin,
                number,
                news: news.clone(),
            };
            self.tell_all(&message, [origin, from], out);
        }
        self.learn(origin, news);
    }

    /// Counts an event for each of these ranks, and tells all.
    fn report(&mut self, ranks: &[Rank], out: &mut Vec<Action>) {
        for rank in ranks {
            self.syndrome.bump(*rank);
            self.moved(*rank);
        }
        self.regroup();
        if self.options.assignment == super::Assignment::AllToAll {
            let counter = |rank: &Rank| (*rank, self.syndrome.counter(*rank));
            let message = Message::Events {
                origin: self.me,
                number: self.heard.next_number(),
                news: ranks.iter().map(counter).collect(),
            };
            self.tell_all(&message, [self.me; 2], out);
        }
    }

    fn end_interval(&mut self, now: f64, out: &mut Vec<Action>) {
        if !self.is_member() {
            self.tests.stop();
            return;
        }
        let outcome = self.tests.finish(now);
        let recommended = |rank: Rank| self.syndrome.is_recommended(rank);
        let doubtful = self.options.self_doubt && outcome.is_doubtful(recommended);
        let failed = outcome.failed.iter().map(|(rank, _)| *rank);
        let events: Vec<Rank> = failed.filter(|rank| recommended(*rank)).collect();
        self.tests.settle(&outcome, doubtful);
        if !doubtful && !events.is_empty() {
            self.report(&events, out);
        }
        let ripe = |rank: &Rank| self.tests.good(*rank) >= self.options.zeta;
        let ripe: Vec<Rank> = self.outside.iter().filter(ripe).collect();
        for rank in ripe {
            let (subject, voters) = self.subject(rank);
            if let Some(leader) = voters.first() {
                self.post(*leader, Message::Request(subject), out);
            }
        }
    }

    fn begin_interval(&mut self, now: f64, out: &mut Vec<Action>) {
        self.interval += 1;
        let next = self.interval_end + self.options.interval;
        // Intervals that were slept through are not made up for.
        self.interval_end = match next > now + self.options.interval / 2.0 {
            true => next,
            false => now + self.options.interval,
        };
        if !self.is_member() {
            return;
        }
        let (group, outside) = (&self.group, &self.outside);
        let assignment = self.options.assignment;
        let tested = assignment.tested_by(self.me, self.ranks, group, outside);
        let digest = self.syndrome.digest();
        for (to, number) in self.tests.begin(now, &tested) {
            self.post(to, Message::Test { number, digest }, out);
        }
    }

    /// What there is to decide on a rank outside, and who votes on it.
    fn subject(&self, rank: Rank) -> (Subject, Vec<Rank>) {
        let assignment = self.options.assignment;
        let voters = assignment.testers_of(rank, self.ranks, &self.group);
        let set = RankSet::from_ranks(self.ranks, voters.iter().copied());
        let subject = Subject {
            rank,
            counter: self.syndrome.counter(rank),
            voters: set.fingerprint(),
        };
        (subject, voters)
    }

    /// The voters, if that is to be decided and they are the same for the one who says so. Others have
    /// heard news that this rank has not, or the other way round; they will try again.
    fn voters(&self, from: Rank, subject: Subject) -> Option<Vec<Rank>> {
        let known = self.is_member() && self.outside.contains(subject.rank);
        if !known || !self.group.contains(from) {
            return None;
        }
        let (own, voters) = self.subject(subject.rank);
        (own == subject).then_some(voters)
    }

    fn request(&mut self, from: Rank, subject: Subject, out: &mut Vec<Action>) {
        let Some(voters) = self.voters(from, subject) else {
            return;
        };
        let rejoins = &mut self.rejoins;
        if let Some(message) = rejoins.request(self.me, subject, &voters, from, self.interval) {
            self.tell(&voters, subject, message, out);
        }
    }

    fn tell(
        &mut self,
        voters: &[Rank],
        subject: Subject,
        message: paxos::Message,
        out: &mut Vec<Action>,
    ) {
        for voter in voters {
            self.post(*voter, Message::Vote(subject, message), out);
        }
    }

    fn vote(
        &mut self,
        from: Rank,
        subject: Subject,
        message: &paxos::Message,
        out: &mut Vec<Action>,
    ) {
        let Some(voters) = self.voters(from, subject) else {
            return;
        };
        if let paxos::Message::Prepare(_) | paxos::Message::Accept(..) = message {
            let willing = 2 * self.tests.good(subject.rank) > self.options.zeta;
            let answer = match voters.contains(&self.me) {
                true => self.rejoins.vote(subject, willing, message),
                false => None,
            };
            if let Some(answer) = answer {
                self.post(from, Message::Vote(subject, answer), out);
            }
            return;
        }
        match self.rejoins.count(subject, from, message) {
            Some(Step::Tell(message)) => self.tell(&voters, subject, message, out),
            Some(Step::Decided(_)) => self.report(&[subject.rank], out),
            Some(Step::GivenUp) | None => {}
        }
    }
}

#[cfg(test)]
mod tests;

//! Simulates the monitors of a group in virtual time: the Dynamic Group of Recommended Processes
//! (DGRP) of Camargo and Duarte 2018, on hosts with a simulated load. Everything follows from a
//! seed.
//!
//! A rank's process runs on a host. The host takes some time for a test, more of it while it is
//! slow. The process stalls now and then. Messages take some time, or are lost. A stalled process
//! does not answer, receive or read its clock until it runs again. So one stall makes the rank look
//! slow to others, and others look slow to the rank.
//!
//! Must never: be mistaken for time on a real machine.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ftsort_core::members::{Rank, RankSet};
use ftsort_core::monitor::MonitorOptions;
use ftsort_core::monitor::machine::{Action, Monitor};
use ftsort_core::monitor::{DEFAULT_LIMIT, count_primes};
use ftsort_kernels::random::SplitMix;

pub mod cluster;
pub mod foreground;
pub mod hyperquicksort;
pub mod large_group;

/// Returns a number from 0 to below 1.
pub fn uniform(random: &mut SplitMix) -> f64 {
    (random.bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns an exponentially distributed number with this mean.
pub fn exponential(random: &mut SplitMix, mean: f64) -> f64 {
    -mean * (1.0 - uniform(random)).ln()
}

/// Draws from the normal distribution by the method of Box and Muller.
pub fn normal(random: &mut SplitMix) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(random)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(random)).cos()
}

/// The distribution of a time, as a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// exp(sigma * normal): the median is 1.
    Lognormal(f64),
    /// The minimum is 1, and P(more than x) = x^-alpha.
    Pareto(f64),
}

impl Distribution {
    /// Draws one factor.
    pub fn draw(self, random: &mut SplitMix) -> f64 {
        match self {
            Distribution::Lognormal(sigma) => (sigma * normal(random)).exp(),
            Distribution::Pareto(alpha) => (1.0 - uniform(random)).powf(-1.0 / alpha),
        }
    }
}

/// A host, and the process of a rank on it.
#[derive(Clone, Debug)]
pub struct Host {
    /// The median or minimum time of a test, in seconds.
    pub test_seconds: f64,
    /// The distribution of the test time.
    pub distribution: Distribution,
    /// The factor by which a test takes longer now. Infinite: the process does not answer.
    pub slowdown: f64,
    /// The rate of stalls, per second. 0: none.
    pub stalls_per_second: f64,
    /// The median or minimum length of a stall, in seconds, and its distribution.
    pub stall: (f64, Distribution),
    next_stall: (f64, f64),
    /// The time at which the process last resumed after a stall.
    ran_again: f64,
}

impl Host {
    /// Creates a host with this test time and without stalls.
    pub fn new(test_seconds: f64, distribution: Distribution) -> Host {
        Host {
            test_seconds,
            distribution,
            slowdown: 1.0,
            stalls_per_second: 0.0,
            stall: (0.0, Distribution::Lognormal(0.0)),
            next_stall: (f64::INFINITY, f64::INFINITY),
            ran_again: f64::NEG_INFINITY,
        }
    }

    fn draw_stall(&mut self, after: f64, random: &mut SplitMix) {
        let start = after + exponential(random, 1.0 / self.stalls_per_second);
        let end = start + self.stall.0 * self.stall.1.draw(random);
        self.next_stall = (start, end);
    }

    /// Returns the earliest time from `time` on at which the process runs.
    fn runs_at(&mut self, time: f64, random: &mut SplitMix) -> f64 {
        if self.stalls_per_second <= 0.0 {
            return time;
        }
        if self.next_stall.0.is_infinite() {
            self.draw_stall(0.0, random);
        }
        while self.next_stall.1 <= time {
            self.draw_stall(self.next_stall.1, random);
        }
        if self.next_stall.0 <= time {
            self.ran_again = self.next_stall.1;
            self.next_stall.1
        } else {
            time
        }
    }
}

#[derive(Debug)]
enum EventKind {
    Tick,
    Receive(Rank, Vec<u8>),
    TestDone(Rank, u64),
}

#[derive(Debug)]
struct TimedEvent {
    time: f64,
    order: u64,
    rank: Rank,
    kind: EventKind,
}

impl PartialEq for TimedEvent {
    fn eq(&self, other: &TimedEvent) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for TimedEvent {}

impl PartialOrd for TimedEvent {
    fn partial_cmp(&self, other: &TimedEvent) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TimedEvent {
    /// The earliest event is the greatest, for a heap.
    fn cmp(&self, other: &TimedEvent) -> Ordering {
        let times = other.time.total_cmp(&self.time);
        times.then(other.order.cmp(&self.order))
    }
}

/// The first growth of a counter on any rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CounterChange {
    /// The time, in seconds.
    pub time: f64,
    /// The rank of the monitor that had the new counter first.
    pub by: Rank,
    /// The rank that the counter belongs to.
    pub rank: Rank,
    /// The new value.
    pub counter: u32,
}

/// The ranks with their monitors and hosts, and the messages in flight.
#[derive(Debug)]
pub struct GroupSimulation {
    monitors: Vec<Monitor>,
    digests: Vec<u64>,
    /// The hosts, by rank. May be changed at any time.
    pub hosts: Vec<Host>,
    /// The time that a message takes, in seconds.
    pub delay: f64,
    /// The share of messages that are lost.
    pub lost: f64,
    /// The largest counters that any rank knows.
    known: Vec<u32>,
    changes: Vec<CounterChange>,
    events: BinaryHeap<TimedEvent>,
    order: u64,
    now: f64,
    messages: u64,
    random: SplitMix,
    answer: u64,
}

impl GroupSimulation {
    /// Creates one rank on each of these hosts. Their clocks differ by less than an interval.
    pub fn new(hosts: Vec<Host>, options: &MonitorOptions, seed: u64) -> GroupSimulation {
        let ranks = hosts.len();
        let mut random = SplitMix::new(seed);
        let starts: Vec<f64> = hosts
            .iter()
            .map(|_| uniform(&mut random) * options.interval)
            .collect();
        let monitor =
            |(rank, start): (Rank, &f64)| Monitor::new(rank, ranks, options.clone(), *start);
        let monitors: Vec<Monitor> = Rank::all(ranks).zip(&starts).map(monitor).collect();
        let mut simulation = GroupSimulation {
            digests: monitors.iter().map(Monitor::digest).collect(),
            monitors,
            hosts,
            delay: 1e-4,
            lost: 0.0,
            known: vec![0; ranks],
            changes: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            now: 0.0,
            messages: 0,
            random,
            answer: count_primes(DEFAULT_LIMIT),
        };
        for (rank, start) in Rank::all(ranks).zip(starts) {
            simulation.schedule(start, rank, EventKind::Tick);
        }
        simulation
    }

    /// Returns the current time, in seconds.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Returns the number of messages sent.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns the time, in seconds, at which each rank's process last resumed after a stall, or
    /// will resume; negative infinity if no stall delayed it.
    pub fn last_stalls(&self) -> Vec<f64> {
        self.hosts.iter().map(|host| host.ran_again).collect()
    }

    /// Returns the monitor of a rank.
    pub fn monitor(&self, rank: Rank) -> &Monitor {
        &self.monitors[rank.index()]
    }

    /// Returns the largest counters that any rank knows, by rank.
    pub fn known(&self) -> &[u32] {
        &self.known
    }

    /// Returns the ranks that are recommended by the largest counters.
    pub fn recommended(&self) -> RankSet {
        let ranks = self.known.len();
        let even = |rank: &Rank| self.known[rank.index()].is_multiple_of(2);
        RankSet::of(ranks, Rank::all(ranks).filter(even))
    }

    /// Returns the changes since the last call.
    pub fn take_changes(&mut self) -> Vec<CounterChange> {
        std::mem::take(&mut self.changes)
    }

    fn schedule(&mut self, time: f64, rank: Rank, kind: EventKind) {
        self.order += 1;
        self.events.push(TimedEvent {
            time,
            order: self.order,
            rank,
            kind,
        });
    }

    fn perform(&mut self, rank: Rank, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send { to, message } => {
                    self.messages += 1;
                    if self.lost > 0.0 && uniform(&mut self.random) < self.lost {
                        continue;
                    }
                    let time =
                        self.now + self.delay + exponential(&mut self.random, self.delay / 4.0);
                    self.schedule(time, to, EventKind::Receive(rank, message));
                }
                Action::RunTest { to, number } => {
                    let host = &self.hosts[rank.index()];
                    let test_seconds = host.test_seconds
                        * host.slowdown
                        * host.distribution.draw(&mut self.random);
                    if test_seconds.is_finite() {
                        self.schedule(
                            self.now + test_seconds,
                            rank,
                            EventKind::TestDone(to, number),
                        );
                    }
                }
            }
        }
    }

    /// Processes the next event, if it is not after `until`. Returns the rank of the monitor that ran, or
    /// None if there is no such event.
    pub fn step(&mut self, until: f64) -> Option<Rank> {
        loop {
            if self.events.peek().is_none_or(|event| event.time > until) {
                self.now = self.now.max(until);
                return None;
            }
            let TimedEvent {
                time, rank, kind, ..
            } = self.events.pop()?;
            let runs = self.hosts[rank.index()].runs_at(time, &mut self.random);
            if runs > time {
                self.schedule(runs, rank, kind);
                continue;
            }
            self.now = time;
            let monitor = &mut self.monitors[rank.index()];
            let actions = match kind {
                EventKind::Tick => {
                    let actions = monitor.tick(time);
                    let wake = monitor.next_wake();
                    self.schedule(wake, rank, EventKind::Tick);
                    actions
                }
                EventKind::Receive(from, message) => monitor.receive(time, from, &message),
                EventKind::TestDone(to, number) => monitor.test_done(time, to, number, self.answer),
            };
            self.perform(rank, actions);
            self.record_changes(rank);
            return Some(rank);
        }
    }

    /// Processes all events up to this time.
    pub fn run(&mut self, until: f64) {
        while self.step(until).is_some() {}
    }

    fn record_changes(&mut self, by: Rank) {
        let monitor = &self.monitors[by.index()];
        let digest = monitor.digest();
        if digest == std::mem::replace(&mut self.digests[by.index()], digest) {
            return;
        }
        for (rank, counter) in Rank::all(self.known.len()).zip(monitor.counters()) {
            if *counter > self.known[rank.index()] {
                self.known[rank.index()] = *counter;
                self.changes.push(CounterChange {
                    time: self.now,
                    by,
                    rank,
                    counter: *counter,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(ranks: usize) -> Vec<Host> {
        vec![Host::new(0.01, Distribution::Lognormal(0.1)); ranks]
    }

    #[test]
    fn distributions_have_their_medians() {
        let mut random = SplitMix::new(3);
        let mut share = |distribution: Distribution, above: f64| {
            let drawn = (0..20_000).filter(|_| distribution.draw(&mut random) > above);
            drawn.count() as f64 / 20_000.0
        };
        assert!((share(Distribution::Lognormal(0.5), 1.0) - 0.5).abs() < 0.02);
        assert!((share(Distribution::Lognormal(0.5), 0.5_f64.exp()) - 0.159).abs() < 0.02);
        assert!((share(Distribution::Pareto(2.0), 2.0) - 0.25).abs() < 0.02);
        assert!((share(Distribution::Pareto(2.0), 1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_depends_on_its_seed_alone() {
        let run = |seed| {
            let mut hosts = hosts(6);
            hosts[2].stalls_per_second = 0.05;
            hosts[2].stall = (0.3, Distribution::Lognormal(0.5));
            let mut simulation = GroupSimulation::new(hosts, &MonitorOptions::default(), seed);
            simulation.lost = 0.001;
            simulation.run(300.0);
            (simulation.take_changes(), simulation.messages())
        };
        let (changes, messages) = run(1);
        assert_eq!(run(1), (changes.clone(), messages));
        assert!(run(2) != (changes.clone(), messages));
        assert!(changes.iter().any(|change| change.rank == Rank(2)));
        assert!(messages > 300 * 6 * 5 * 2 - 2000);
    }

    #[test]
    fn a_stopped_rank_is_excluded_and_comes_back() {
        let mut simulation = GroupSimulation::new(hosts(5), &MonitorOptions::default(), 1);
        simulation.run(60.0);
        assert_eq!(simulation.known(), [0; 5]);
        simulation.hosts[1].slowdown = f64::INFINITY;
        simulation.run(70.0);
        assert_eq!(simulation.known(), [0, 1, 0, 0, 0]);
        assert_eq!(simulation.recommended().len(), 4);
        simulation.hosts[1].slowdown = 1.0;
        simulation.run(80.0);
        assert_eq!(simulation.known(), [0, 2, 0, 0, 0]);
        let changes = simulation.take_changes();
        assert_eq!((changes.len(), simulation.take_changes().len()), (2, 0));
        assert!(changes[0].time < 62.5 && changes[0].by != Rank(1));
    }
}

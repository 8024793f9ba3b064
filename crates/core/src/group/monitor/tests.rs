//! Monitors' threads, and the placement that follows from their knowledge. `make races` runs these tests with
//! detectors of data races.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::policy::{Clocks, MonitorPolicy};
use super::state::{Datagrams, MonitorKind, MonitorState, locked};
use crate::engine::{Load, Placement, PlacementPolicy};
use crate::members::{Members, Rank, RankSet};
use crate::monitor::{Action, Foreground, Monitor, MonitorOptions, Report};
use ftsort_kernels::error::{Error, Result, Status};

struct StoppedClocks;

impl Clocks for StoppedClocks {
    fn processor_seconds(&self) -> f64 {
        0.0
    }

    fn seconds(&self) -> f64 {
        0.0
    }
}

/// A rank that gets a part of a processor; the time and the part are set from outside.
#[derive(Clone)]
struct PartOfProcessor {
    now: Rc<Cell<f64>>,
    used: Rc<Cell<f64>>,
}

impl Clocks for PartOfProcessor {
    fn processor_seconds(&self) -> f64 {
        self.used.get()
    }

    fn seconds(&self) -> f64 {
        self.now.get()
    }
}

/// Monitors at the commits without any message between them. At each commit the policies get the reports of the
/// survivors only. A rank that was slow returns after zeta tests in a row, at the same commit on all ranks.
#[test]
fn a_rank_returns_at_the_same_commit_on_all_ranks_without_consensus() {
    const RANKS: usize = 5;
    for failing in [None, Some((12, 3)), Some((20, 0)), Some((24, 3))] {
        let options = MonitorOptions::default();
        let now = Rc::new(Cell::new(0.0));
        let clocks: Vec<PartOfProcessor> = (0..RANKS)
            .map(|_| PartOfProcessor {
                now: Rc::clone(&now),
                used: Rc::default(),
            })
            .collect();
        let mut policies: Vec<(Rank, MonitorPolicy)> = Rank::all(RANKS)
            .map(|rank| {
                let kind =
                    MonitorKind::Foreground(Box::new(Foreground::new(RANKS, options.clone())));
                let state = Arc::new(MonitorState::new(RANKS, kind, None));
                let clock = Box::new(clocks[rank.index()].clone());
                (rank, MonitorPolicy::new(rank, state, &options, clock, 0.0))
            })
            .collect();
        let mut excluded_at = Vec::new();
        for commit in 1..60 {
            if let Some((_, rank)) = failing.filter(|(at, _)| *at == commit) {
                policies.retain(|(other, _)| other.0 != rank);
            }
            now.set(f64::from(commit) * 0.6 * options.interval);
            for (rank, clock) in clocks.iter().enumerate() {
                // Rank 1 gets a hundredth of a processor for a while.
                let part = if rank == 1 && (8..18).contains(&commit) {
                    0.01
                } else {
                    0.9
                };
                clock
                    .used
                    .set(clock.used.get() + part * 0.6 * options.interval);
            }
            let load = Load {
                now: now.get(),
                ..Load::default()
            };
            let group = RankSet::of(RANKS, policies.iter().map(|(rank, _)| *rank));
            let reports: Vec<(Rank, Vec<u8>)> = policies
                .iter_mut()
                .map(|(rank, policy)| (*rank, policy.local_report(&load)))
                .collect();
            let told: Vec<(Rank, &[u8])> = reports
                .iter()
                .map(|(rank, report)| (*rank, &report[..]))
                .collect();
            let placements: Vec<Placement> = policies
                .iter_mut()
                .map(|(_, policy)| policy.settle(&told, &group))
                .collect();
            assert!(
                placements.windows(2).all(|two| two[0] == two[1]),
                "commit {commit}"
            );
            if placements[0].excluded.contains(Rank(1)) {
                excluded_at.push(commit);
            }
        }
        // Every second commit has a test, so zeta tests take at least twice as many commits.
        let (first, last) = (excluded_at[0], excluded_at[excluded_at.len() - 1]);
        assert_eq!(
            excluded_at,
            (first..=last).collect::<Vec<_>>(),
            "{failing:?}"
        );
        assert!((8..18).contains(&first) && last < 59, "{excluded_at:?}");
        assert!(last >= 18 + 2 * options.zeta as i32 - 4, "{excluded_at:?}");
    }
}

fn policy(me: u32, ranks: usize) -> MonitorPolicy {
    policy_with(me, ranks, MonitorOptions::default())
}

fn policy_with(me: u32, ranks: usize, options: MonitorOptions) -> MonitorPolicy {
    let mut monitor = Monitor::new(Rank(me), ranks, options.clone(), 0.0);
    monitor.set_answer(ANSWER);
    let kind = MonitorKind::Background(Box::new(monitor));
    let state = Arc::new(MonitorState::new(ranks, kind, Some(Arc::new(|| ANSWER))));
    MonitorPolicy::new(Rank(me), state, &options, Box::new(StoppedClocks), 0.0)
}

fn settle(policies: &mut [MonitorPolicy]) -> Vec<Placement> {
    let ranks = policies.len();
    let reports: Vec<Vec<u8>> = policies
        .iter_mut()
        .map(|policy| policy.local_report(&Load::default()))
        .collect();
    let told: Vec<(Rank, &[u8])> = (Rank::all(ranks).zip(&reports))
        .map(|(rank, report)| (rank, &report[..]))
        .collect();
    let all = RankSet::of(ranks, Rank::all(ranks));
    let placements = policies.iter_mut();
    placements
        .map(|policy| policy.settle(&told, &all))
        .collect()
}

fn suspect(policy: &MonitorPolicy, rank: usize) {
    let mut counters = vec![0; policy.state.ranks];
    counters[rank] = 1;
    if let MonitorKind::Background(monitor) = &mut *locked(&policy.state.kind) {
        monitor.adopt_counters(&counters);
    }
}

/// Whether a rank of three wants a change while these ranks are excluded.
fn wants_change(policies: &[MonitorPolicy], rank: u32, excluded: &RankSet) -> bool {
    let mut members = Members::new(Rank(rank), 3);
    members.exclude(excluded);
    policies[rank as usize].wants_change(&members, 0.0)
}

#[test]
fn a_suspected_rank_is_excluded() {
    let mut policies: Vec<MonitorPolicy> = (0..3).map(|rank| policy(rank, 3)).collect();
    suspect(&policies[0], 2);
    assert!(wants_change(&policies, 0, &RankSet::new(3)));
    for placement in settle(&mut policies) {
        assert!(placement.excluded.contains(Rank(2)));
    }
}

fn with_gain() -> MonitorOptions {
    MonitorOptions {
        gain: true,
        ..MonitorOptions::default()
    }
}

#[test]
fn ranks_report_reply_times_if_the_gain_depends_on_them() {
    for (options, times) in [(with_gain(), 3), (MonitorOptions::default(), 0)] {
        let mut policy = policy_with(0, 3, options);
        let report = Report::decode(3, &policy.local_report(&Load::default()));
        assert_eq!(report.expect("a report").reply_times.len(), times);
    }
}

/// At a later commit its exclusion may pay.
#[test]
fn a_suspected_rank_whose_exclusion_does_not_pay_is_considered_again() {
    let mut policies: Vec<MonitorPolicy> = (0..3)
        .map(|rank| policy_with(rank, 3, with_gain()))
        .collect();
    suspect(&policies[0], 2);
    for placement in settle(&mut policies) {
        assert!(placement.excluded.is_empty());
    }
    let members = Members::new(Rank(0), 3);
    let wants = [0.5, 1.0].map(|now| policies[0].wants_change(&members, now));
    assert_eq!(wants, [false, true]);
}

#[test]
fn views_have_the_weights_of_the_placement() {
    let options = MonitorOptions {
        weights: true,
        ..MonitorOptions::default()
    };
    let kind = MonitorKind::Foreground(Box::new(Foreground::new(3, options.clone())));
    let state = Arc::new(MonitorState::new(3, kind, None));
    let clocks = Box::new(StoppedClocks);
    let mut policy = MonitorPolicy::new(Rank(0), Arc::clone(&state), &options, clocks, 0.0);
    let reports = [1.0, 1.0, 4.0].map(|measurement| {
        let report = Report {
            counters: vec![0; 3],
            measurement: Some(measurement),
            ..Report::default()
        };
        report.encode()
    });
    let told = Rank::all(3).zip(reports.iter().map(Vec::as_slice));
    let placement = policy.settle(&told.collect::<Vec<_>>(), &RankSet::all(3));
    assert_eq!(placement.weights, [16, 16, 4]);
    let weights: Vec<f64> = Rank::all(3).map(|rank| state.weight(rank)).collect();
    assert_eq!(weights, [1.0, 1.0, 0.25]);
}

/// The receivers of the messages that a background monitor sends at this time.
fn sent_to(policy: &MonitorPolicy, now: f64) -> Vec<Rank> {
    match &mut *locked(&policy.state.kind) {
        MonitorKind::Background(monitor) => {
            let actions = monitor.tick(now).into_iter();
            let receivers = actions.filter_map(|action| match action {
                Action::Send { to, .. } => Some(to),
                Action::RunTest { .. } => None,
            });
            receivers.collect()
        }
        MonitorKind::Foreground(_) => Vec::new(),
    }
}

/// At a placement each monitor learns of the ranks that have not reported because they have failed.
#[test]
fn monitors_learn_of_failures_at_a_placement() {
    let mut policies: Vec<MonitorPolicy> = (0..3).map(|rank| policy(rank, 3)).collect();
    assert_eq!(sent_to(&policies[0], 0.0), [1, 2].map(Rank));
    let reports: Vec<Vec<u8>> = policies
        .iter_mut()
        .map(|policy| policy.local_report(&Load::default()))
        .collect();
    let told = [(Rank(0), &reports[0][..]), (Rank(1), &reports[1][..])];
    let survivors = RankSet::of(3, [0, 1].map(Rank));
    for policy in &mut policies[..2] {
        policy.settle(&told, &survivors);
        for rank in [0, 1, 2].map(Rank) {
            let view = policy.state.view(rank).expect("a rank of the group");
            assert_eq!(view.recommended, rank != Rank(2));
        }
        // Rank 2 is not tested any more, although its tests have failed since.
        let view = policy.state.view(Rank(2));
        for interval in 1..30 {
            assert!(!sent_to(policy, f64::from(interval)).contains(&Rank(2)));
        }
        assert_eq!(policy.state.view(Rank(2)), view);
    }
}

#[test]
fn a_rank_whose_monitor_has_stopped_is_not_excluded() {
    let mut policies: Vec<MonitorPolicy> = (0..3).map(|rank| policy(rank, 3)).collect();
    let error = Error::new(Status::Mpi, "no more messages");
    policies[2].state.fail(error.clone());
    assert!(wants_change(&policies, 2, &RankSet::new(3)));
    suspect(&policies[0], 2);
    for placement in settle(&mut policies) {
        assert!(placement.excluded.is_empty());
    }
    assert!(!(0..3).any(|rank| wants_change(&policies, rank, &RankSet::new(3))));
    assert_eq!(policies[2].state.take_failure(), Some(error));
    assert_eq!(policies[2].state.take_failure(), None);
}

#[test]
fn an_excluded_rank_returns_when_its_monitor_stops() {
    let mut policies: Vec<MonitorPolicy> = (0..3).map(|rank| policy(rank, 3)).collect();
    suspect(&policies[0], 2);
    let excluded = settle(&mut policies).remove(0).excluded;
    assert!(excluded.contains(Rank(2)));
    policies[2]
        .state
        .fail(Error::new(Status::Mpi, "no more messages"));
    assert!(wants_change(&policies, 2, &excluded));
    for placement in settle(&mut policies) {
        assert!(placement.excluded.is_empty());
    }
}

#[test]
fn ranks_that_execute_although_all_are_excluded_want_a_change() {
    let mut policies: Vec<MonitorPolicy> = (0..3).map(|rank| policy(rank, 3)).collect();
    (0..3).for_each(|rank| suspect(&policies[rank], rank));
    let excluded = settle(&mut policies).remove(0).excluded;
    assert_eq!(excluded.len(), 3);
    assert!(!wants_change(&policies, 0, &excluded));
    if let MonitorKind::Background(monitor) = &mut *locked(&policies[0].state.kind) {
        monitor.adopt_counters(&[2, 1, 1]);
    }
    assert!(wants_change(&policies, 0, &excluded));
    // While it executes nothing, its observations do not count.
    let but_one = RankSet::of(3, [0, 2].map(Rank));
    assert!(!wants_change(&policies, 0, &but_one));
}

const ANSWER: u64 = 168;

/// One rank's end of a network of channels, with a clock that advances whenever it is read.
struct Channels {
    me: Rank,
    to: Vec<Sender<(Rank, Vec<u8>)>>,
    inbox: Receiver<(Rank, Vec<u8>)>,
    now: f64,
}

impl Datagrams for Channels {
    fn now(&self) -> f64 {
        self.now
    }

    fn send(&mut self, to: Rank, message: Vec<u8>) -> Result<()> {
        let sent = self.to[to.index()].send((self.me, message));
        sent.map_err(|_| Error::new(Status::Mpi, "the receiver has ended"))
    }

    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>> {
        self.now += 0.01;
        Ok(self.inbox.try_recv().ok())
    }
}

fn network(ranks: usize) -> Vec<Channels> {
    let (to, inboxes): (Vec<_>, Vec<_>) = (0..ranks).map(|_| channel()).unzip();
    Rank::all(ranks)
        .zip(inboxes)
        .map(|(me, inbox)| Channels {
            me,
            to: to.clone(),
            inbox,
            now: 0.0,
        })
        .collect()
}

/// The threads serve the monitors while the group reads their knowledge, changes it, and stops them.
#[test]
fn threads_share_their_knowledge_with_the_group() {
    const RANKS: usize = 2;
    let mut policies: Vec<MonitorPolicy> = (0..2).map(|rank| policy(rank, RANKS)).collect();
    let states: Vec<_> = policies.iter().map(|one| Arc::clone(&one.state)).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = (states.iter().zip(network(RANKS)))
            .map(|(state, mut channels)| {
                scope.spawn(move || {
                    state.run(&mut channels, thread::yield_now);
                    channels
                })
            })
            .collect();
        let has_worked =
            |state: &Arc<MonitorState>| state.tests_answered() > 0 && state.messages_sent() > 1;
        while !states.iter().all(has_worked) {
            assert!(states.iter().all(|state| !state.has_failed()));
            let placements = settle(&mut policies);
            assert!(placements.windows(2).all(|two| two[0] == two[1]));
            for state in &states {
                assert!(state.view(Rank(1)).is_some());
                assert!(state.weight(Rank(0)) > 0.0);
            }
            thread::yield_now();
        }
        states.iter().for_each(|state| state.stop());
        // The channels stay open until both threads have ended.
        let channels = threads.into_iter().map(|thread| thread.join());
        assert!(channels.collect::<thread::Result<Vec<_>>>().is_ok());
    });
    assert!(states.iter().all(|state| !state.has_failed()));
}

type End = fn() -> Result<()>;

/// Datagrams that end the monitor after some calls.
struct Ending {
    calls: u32,
    end: End,
}

impl Datagrams for Ending {
    fn now(&self) -> f64 {
        0.0
    }

    fn send(&mut self, _: Rank, _: Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>> {
        match self.calls.checked_sub(1) {
            Some(calls) => self.calls = calls,
            None => (self.end)()?,
        }
        Ok(None)
    }
}

#[test]
fn the_error_of_a_thread_is_handed_over_once() {
    let broken = Error::new(Status::Mpi, "the channel broke");
    let panic = Error::internal("panic: no such message");
    let ends: [(End, Error); 2] = [
        (|| Err(Error::new(Status::Mpi, "the channel broke")), broken),
        (|| panic!("no such message"), panic),
    ];
    for (end, expected) in ends {
        let policy = policy(0, 2);
        let state = &policy.state;
        thread::scope(|scope| {
            scope.spawn(|| state.run(&mut Ending { calls: 3, end }, thread::yield_now));
            while !state.has_failed() {
                assert_eq!(state.view(Rank(2)), None);
                thread::yield_now();
            }
            assert_eq!(state.take_failure(), Some(expected));
            assert_eq!(state.take_failure(), None);
        });
    }
}

//! Monitors on a simulated network with delays, losses, duplicates, crashes and slow ranks.

use std::collections::BTreeMap;

use super::*;
use crate::monitor::paxos::Ballot;
use crate::monitor::{Assignment, DEFAULT_LIMIT, count_primes};
use ftsort_kernels::random::SplitMix;
use proptest::prelude::*;

enum NetworkEvent {
    Tick(Rank),
    Receive(Rank, Rank, Vec<u8>),
    TestDone(Rank, Rank, u64),
}

struct TestNetwork {
    monitors: Vec<Monitor>,
    /// By time in microseconds, and the order in which they were created.
    events: BTreeMap<(u64, u64), NetworkEvent>,
    random: SplitMix,
    made: u64,
    now: f64,
    /// The time of each rank's test procedure, and its result.
    test_seconds: Vec<f64>,
    answers: Vec<u64>,
    /// The tests of this tester take as long as usual, and not the time in `test_seconds`.
    fast_for: Option<Rank>,
    failed: RankSet,
    /// A message is lost once in so many times, and duplicated as often. 0: never.
    lost: u64,
    sent: u64,
}

impl TestNetwork {
    fn new(ranks: usize, options: &MonitorOptions) -> TestNetwork {
        let mut network = TestNetwork {
            monitors: Vec::new(),
            events: BTreeMap::new(),
            random: SplitMix::new(ranks as u64),
            made: 0,
            now: 0.0,
            test_seconds: vec![0.01; ranks],
            answers: vec![count_primes(DEFAULT_LIMIT); ranks],
            fast_for: None,
            failed: RankSet::new(ranks),
            lost: 0,
            sent: 0,
        };
        for rank in Rank::all(ranks) {
            let start = network.random.below(1000) as f64 / 1000.0;
            let monitor = Monitor::new(rank, ranks, options.clone(), start);
            network.monitors.push(monitor);
            network.at(start, NetworkEvent::Tick(rank));
        }
        network
    }

    fn at(&mut self, time: f64, event: NetworkEvent) {
        self.made += 1;
        self.events
            .insert(((time * 1e6) as u64 + 1, self.made), event);
    }

    fn perform(&mut self, rank: Rank, actions: Vec<Action>) {
        for action in actions {
            let jitter = self.random.below(1000) as f64 / 1e6;
            match action {
                Action::RunTest { to, number } => {
                    let seconds = match self.fast_for == Some(to) {
                        true => 0.01,
                        false => self.test_seconds[rank.index()],
                    };
                    let time = self.now + seconds + jitter;
                    self.at(time, NetworkEvent::TestDone(rank, to, number));
                }
                Action::Send { to, message } => {
                    self.sent += 1;
                    let copies = match self.lost {
                        0 => 1,
                        lost => match self.random.below(lost) {
                            0 => 0,
                            1 => 2,
                            _ => 1,
                        },
                    };
                    for copy in 0..copies {
                        let time = self.now + jitter + 0.002 * f64::from(copy);
                        self.at(time, NetworkEvent::Receive(to, rank, message.clone()));
                    }
                }
            }
        }
    }

    fn run_until(&mut self, end: f64) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            self.now = time as f64 / 1e6;
            let now = self.now;
            let (NetworkEvent::Tick(rank)
            | NetworkEvent::Receive(rank, ..)
            | NetworkEvent::TestDone(rank, ..)) = event;
            if self.failed.contains(rank) {
                continue;
            }
            let monitor = &mut self.monitors[rank.index()];
            let actions = match event {
                NetworkEvent::Tick(_) => {
                    let actions = monitor.tick(now);
                    let wake = monitor.next_wake();
                    assert!(wake > now);
                    self.at(wake, NetworkEvent::Tick(rank));
                    actions
                }
                NetworkEvent::Receive(_, from, message) => monitor.receive(now, from, &message),
                NetworkEvent::TestDone(_, to, number) => {
                    monitor.test_done(now, to, number, self.answers[rank.index()])
                }
            };
            self.perform(rank, actions);
            if now >= end {
                return;
            }
        }
    }

    /// Returns the counters of the survivors, which must be equal.
    fn counters(&self) -> Vec<u32> {
        let survivors = self
            .monitors
            .iter()
            .filter(|monitor| !self.failed.contains(monitor.me));
        let all: Vec<&[u32]> = survivors.map(Monitor::counters).collect();
        assert!(all.windows(2).all(|two| two[0] == two[1]), "{all:?}");
        all[0].to_vec()
    }
}

fn of(ranks: usize, changed: &[(usize, u32)]) -> Vec<u32> {
    let mut counters = vec![0; ranks];
    changed
        .iter()
        .for_each(|(rank, counter)| counters[*rank] = *counter);
    counters
}

fn kinds() -> Vec<(usize, MonitorOptions)> {
    let vcube = MonitorOptions {
        assignment: Assignment::VCube,
        ..MonitorOptions::default()
    };
    vec![
        (6, MonitorOptions::default()),
        (8, vcube.clone()),
        (13, vcube),
    ]
}

#[test]
fn equally_fast_ranks_stay_together() {
    for (ranks, options) in kinds() {
        let mut network = TestNetwork::new(ranks, &options);
        network.run_until(50.0);
        assert_eq!(network.counters(), of(ranks, &[]));
        for monitor in &network.monitors {
            assert_eq!(monitor.recommended().len(), ranks);
        }
    }
}

#[test]
fn a_single_rank_sends_nothing() {
    let mut network = TestNetwork::new(1, &MonitorOptions::default());
    network.run_until(5.0);
    assert_eq!((network.counters(), network.sent), (vec![0], 0));
}

#[test]
fn a_slow_rank_is_excluded_and_comes_back() {
    for (ranks, options) in kinds() {
        let mut network = TestNetwork::new(ranks, &options);
        network.run_until(60.0);
        network.test_seconds[3] = 0.7;
        network.run_until(61.0);
        network.test_seconds[3] = 0.01;
        network.run_until(65.0);
        assert_eq!(network.counters(), of(ranks, &[(3, 1)]));
        assert!(
            network
                .monitors
                .iter()
                .all(|monitor| !monitor.recommended().contains(Rank(3)))
        );
        // Five intervals, one for the decision, and for VCube three to spread the counters.
        network.run_until(72.0);
        assert_eq!(network.counters(), of(ranks, &[(3, 2)]));
        let view = network.monitors[2].view(Rank(3));
        assert!(view.recommended && view.counter == 2 && view.last_reply.is_some());
    }
}

/// Tests that it has passed before do not count.
#[test]
fn a_rank_that_a_commit_excludes_comes_back_after_as_many_tests() {
    let mut network = TestNetwork::new(6, &MonitorOptions::default());
    network.run_until(60.0);
    for monitor in &mut network.monitors {
        monitor.adopt_counters(&of(6, &[(3, 1)]));
    }
    network.run_until(63.5);
    assert_eq!(network.counters(), of(6, &[(3, 1)]));
    network.run_until(72.0);
    assert_eq!(network.counters(), of(6, &[(3, 2)]));
}

/// Most testers measure the rank as slow, and vote against its return.
#[test]
fn a_rank_that_is_fast_for_one_tester_does_not_come_back() {
    let options = MonitorOptions {
        learn_late: false,
        zeta: 4,
        ..MonitorOptions::default()
    };
    let mut network = TestNetwork::new(6, &options);
    network.run_until(60.0);
    network.test_seconds[3] = 0.9;
    network.run_until(62.0);
    network.fast_for = Some(Rank(0));
    network.run_until(120.0);
    assert_eq!(network.counters(), of(6, &[(3, 1)]));
    // It needs more than half of zeta tests in a row for a vote.
    for time in 120..180 {
        network.test_seconds[3] = if time % 3 == 0 { 0.9 } else { 0.01 };
        network.run_until(f64::from(time + 1));
    }
    assert_eq!(network.counters(), of(6, &[(3, 1)]));
}

#[test]
fn a_repeatedly_slow_rank_does_not_come_back() {
    // With Algorithm 1 as printed the testers adapt, and the rank would be back after the first few
    // times.
    let options = MonitorOptions {
        learn_late: false,
        ..MonitorOptions::default()
    };
    let mut network = TestNetwork::new(6, &options);
    network.run_until(60.0);
    for time in 0..60 {
        network.test_seconds[3] = if time % 4 == 0 { 0.9 } else { 0.01 };
        network.run_until(61.0 + f64::from(time));
    }
    assert_eq!(network.counters(), of(6, &[(3, 1)]));
}

#[test]
fn a_wrong_answer_fails_the_test() {
    let mut network = TestNetwork::new(6, &MonitorOptions::default());
    network.answers[5] = 169;
    network.run_until(3.0);
    assert_eq!(network.counters(), of(6, &[(5, 1)]));
    network
        .monitors
        .iter_mut()
        .for_each(|monitor| monitor.set_answer(169));
    network.answers = vec![169; 6];
    network.run_until(13.0);
    assert_eq!(network.counters(), of(6, &[(5, 2)]));
}

#[test]
fn a_crashed_rank_is_excluded_with_and_without_notice() {
    for (ranks, options) in kinds() {
        let mut network = TestNetwork::new(ranks, &options);
        network.run_until(30.0);
        network.failed.insert(Rank(0));
        network.run_until(36.0);
        assert_eq!(network.counters(), of(ranks, &[(0, 1)]));
        let failed = RankSet::of(ranks, [Rank(0), Rank(1)]);
        network.failed.insert(Rank(1));
        for monitor in network.monitors.iter_mut().skip(2) {
            monitor.mark_failed(&failed);
        }
        assert_eq!(network.counters(), of(ranks, &[(0, 1), (1, 1)]));
        let sent = network.sent;
        network.run_until(40.0);
        assert!(network.sent > sent);
        assert_eq!(network.counters(), of(ranks, &[(0, 1), (1, 1)]));
    }
}

#[test]
fn a_failed_leader_does_not_keep_others_excluded() {
    for (ranks, options) in kinds() {
        let mut network = TestNetwork::new(ranks, &options);
        network.run_until(60.0);
        network.test_seconds[3] = 0.7;
        network.run_until(61.5);
        network.test_seconds[3] = 0.01;
        // No rank is told that the leader crashed. Another rank takes its place after it has failed
        // its tests.
        network.run_until(66.0);
        network.failed.insert(Rank(0));
        network.run_until(85.0);
        assert_eq!(network.counters(), of(ranks, &[(0, 1), (3, 2)]));
    }
}

#[test]
fn lost_and_duplicated_messages_only_delay() {
    for (ranks, options) in kinds() {
        let mut network = TestNetwork::new(ranks, &options);
        network.run_until(60.0);
        network.lost = 20;
        network.run_until(120.0);
        network.lost = 0;
        network.run_until(140.0);
        // Each lost test or reply excluded some rank; all are back.
        let counters = network.counters();
        assert!(
            counters.iter().all(|counter| counter % 2 == 0),
            "{counters:?}"
        );
        assert!(counters.iter().sum::<u32>() > 4, "{counters:?}");
    }
}

/// Begins an interval of a monitor of five ranks. Returns the replies to its tests.
fn replies_to_tests(monitor: &mut Monitor, start: f64) -> Vec<(Rank, Vec<u8>)> {
    let actions = monitor.tick(start.max(monitor.next_wake())).into_iter();
    let replies = actions.filter_map(|action| {
        let Action::Send { to, message } = action else {
            panic!("the monitor was not asked")
        };
        let Some(MonitorMessage::Test { number, digest }) = MonitorMessage::decode(5, &message)
        else {
            return None;
        };
        let reply = MonitorMessage::Reply {
            number,
            answer: count_primes(DEFAULT_LIMIT),
            digest,
            updates: CounterUpdates::new(),
        };
        Some((to, reply.encode()))
    });
    replies.collect()
}

#[test]
fn a_stalled_tester_excludes_all_unless_it_doubts_itself() {
    for self_doubt in [false, true] {
        let options = MonitorOptions {
            self_doubt,
            ..MonitorOptions::default()
        };
        let mut monitor = Monitor::new(Rank(0), 5, options, 0.0);
        for interval in 0..20 {
            // In the last interval the monitor runs only when the next one is due.
            let delay = if interval == 19 { 0.9 } else { 0.01 };
            let start = f64::from(interval);
            for (from, reply) in replies_to_tests(&mut monitor, start) {
                monitor.receive(start + delay, from, &reply);
            }
        }
        monitor.tick(20.0);
        let out = monitor
            .counters()
            .iter()
            .filter(|counter| **counter == 1)
            .count();
        assert_eq!(out, if self_doubt { 0 } else { 4 });
    }
}

/// The times of intervals of self-doubt enter the means, although other late ones do not.
#[test]
fn a_tester_that_has_become_slower_itself_still_finds_a_slow_rank() {
    let options = MonitorOptions {
        self_doubt: true,
        learn_late: false,
        ..MonitorOptions::default()
    };
    let mut monitor = Monitor::new(Rank(0), 5, options, 0.0);
    for interval in 0..80 {
        let start = f64::from(interval);
        for (from, reply) in replies_to_tests(&mut monitor, start) {
            let time = start
                + match (interval, from) {
                    (0..20, _) => 0.01,
                    (79, Rank(4)) => 0.9,
                    _ => 0.2,
                };
            while monitor.next_wake() < time {
                monitor.tick(monitor.next_wake());
            }
            monitor.receive(time, from, &reply);
        }
    }
    monitor.tick(80.0);
    assert_eq!(monitor.counters(), [0, 0, 0, 0, 1]);
}

#[test]
fn two_ranks_that_exclude_each_other_reunite() {
    let mut network = TestNetwork::new(2, &MonitorOptions::default());
    network.run_until(60.0);
    network.monitors[0].adopt_counters(&[0, 1]);
    network.monitors[1].adopt_counters(&[1, 0]);
    for (own, other) in [(0, 1), (1, 0)] {
        let group = network.monitors[own].recommended();
        assert!(group.contains(Rank(own as u32)) && !group.contains(Rank(other)));
    }
    network.run_until(75.0);
    assert_eq!(network.counters(), [2, 2]);
}

#[test]
fn an_excluded_rank_with_old_counters_learns_from_ranks_it_takes_for_outsiders() {
    let (ranks, options) = kinds().pop().expect("some");
    let mut network = TestNetwork::new(ranks, &options);
    network.run_until(10.0);
    network.monitors[2].adopt_counters(&[1; 13]);
    network.monitors[2].adopt_counters(&[0, 2]);
    assert_eq!(network.monitors[2].recommended().len(), 1);
    for monitor in &mut network.monitors {
        if monitor.me != Rank(2) {
            monitor.adopt_counters(&[2; 13]);
        }
    }
    network.run_until(15.0);
    assert_eq!(network.counters(), vec![2; 13]);
}

#[test]
fn after_a_commit_that_excludes_all_ranks_all_of_them_work() {
    let mut network = TestNetwork::new(4, &MonitorOptions::default());
    network.run_until(20.0);
    for monitor in &mut network.monitors {
        monitor.adopt_counters(&[1, 1, 1, 1, 77]);
        assert_eq!(monitor.recommended().len(), 4);
    }
    network.run_until(45.0);
    assert_eq!(network.counters(), [2, 2, 2, 2]);
}

#[test]
fn updates_from_outside_the_group_are_ignored() {
    let mut monitor = Monitor::new(Rank(0), 4, MonitorOptions::default(), 0.0);
    let events = |origin: u32, number, of: u32| MonitorMessage::Events {
        origin: Rank(origin),
        number,
        updates: vec![(Rank(of), 1)],
    };
    let relayed = monitor.receive(0.1, Rank(1), &events(1, 1, 2).encode());
    assert_eq!(monitor.counters(), [0, 0, 1, 0]);
    // To rank 3, and to rank 2, which must know; not back to rank 1.
    assert_eq!(relayed.len(), 2);
    assert!(
        monitor
            .receive(0.2, Rank(3), &events(1, 1, 2).encode())
            .is_empty()
    );
    // Rank 2 is outside: its updates do not count, even if another rank forwards them.
    monitor.receive(0.3, Rank(3), &events(2, 1, 3).encode());
    monitor.receive(
        0.3,
        Rank(2),
        &MonitorMessage::Counters(vec![(Rank(3), 1)]).encode(),
    );
    assert_eq!(monitor.counters(), [0, 0, 1, 0]);
    monitor.receive(
        0.3,
        Rank(3),
        &MonitorMessage::Counters(vec![(Rank(2), 2)]).encode(),
    );
    assert_eq!(monitor.counters(), [0, 0, 2, 0]);
}

#[test]
fn an_all_to_all_test_round_costs_two_messages_each() {
    let mut network = TestNetwork::new(6, &MonitorOptions::default());
    network.run_until(10.0);
    let before = network.sent;
    network.run_until(20.0);
    assert_eq!(network.sent - before, 10 * 6 * 5 * 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_monitor_accepts_any_bytes(seed: u64, junk in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..40)) {
        let mut random = SplitMix::new(seed);
        let mut monitor = Monitor::new(Rank(1), 5, MonitorOptions::default(), 0.0);
        for (time, bytes) in junk.iter().enumerate() {
            monitor.tick(time as f64);
            let from = Rank(random.below(7) as u32);
            prop_assert!(monitor.receive(time as f64, from, bytes).is_empty());
            monitor.test_done(time as f64, from, random.bits(), random.bits());
        }
        // No test was answered, so each fails after 8 s.
        prop_assert!(monitor.counters().iter().all(|counter| *counter <= 1));
    }

    #[test]
    fn a_monitor_accepts_any_messages(seed: u64, vcube: bool) {
        let mut random = SplitMix::new(seed);
        let assignment = if vcube { Assignment::VCube } else { Assignment::AllToAll };
        let options = MonitorOptions { assignment, ..MonitorOptions::default() };
        let mut monitor = Monitor::new(Rank(1), 5, options, 0.0);
        let mut before = monitor.counters().to_vec();
        for step in 0..200 {
            let mut number = || random.below(4) as u32;
            let rank = Rank(number() + 1);
            let ballot = Ballot { round: number(), by: rank };
            let (subject, _) = monitor.subject(rank);
            let vote = match number() {
                0 => PaxosMessage::Prepare(ballot),
                1 => PaxosMessage::Promise(ballot, Some((ballot, 3))),
                2 => PaxosMessage::Accept(ballot, 3),
                _ => PaxosMessage::Accepted(ballot),
            };
            let message = match number() + number() {
                0 => MonitorMessage::Events { origin: rank, number: u64::from(number()), updates: vec![(rank, number())] },
                1 => MonitorMessage::Counters(vec![(rank, number())]),
                2 => MonitorMessage::Request(subject),
                3 => MonitorMessage::Reply { number: u64::from(number()), answer: 168, digest: 0, updates: vec![] },
                4 => MonitorMessage::Test { number: 3, digest: 5 },
                _ => MonitorMessage::Vote(subject, vote),
            };
            let now = f64::from(step) / 10.0;
            let mut actions = monitor.receive(now, Rank(number()), &message.encode());
            actions.extend(monitor.tick(now));
            for action in actions {
                match action {
                    Action::Send { to, message } => {
                        prop_assert!(to != Rank(1) && to.0 < 5);
                        prop_assert!(MonitorMessage::decode(5, &message).is_some());
                    }
                    Action::RunTest { to, number } => {
                        monitor.test_done(now, to, number, 168);
                    }
                }
            }
            prop_assert!(monitor.counters().iter().zip(&before).all(|(now, was)| now >= was));
            prop_assert!(!monitor.recommended().is_empty());
            before = monitor.counters().to_vec();
        }
    }

    #[test]
    fn all_ranks_come_back_after_slowness_and_losses(ranks in 2_usize..12, vcube: bool, self_doubt: bool, seed: u64) {
        let counters = counters_after_slowness_and_losses(ranks, vcube, self_doubt, seed);
        prop_assert!(counters.iter().all(|counter| counter % 2 == 0), "{counters:?}");
    }
}

/// Returns the counters after 15 s in which ranks were slow at random and messages were lost, and
/// another 40 s without either.
fn counters_after_slowness_and_losses(
    ranks: usize,
    vcube: bool,
    self_doubt: bool,
    seed: u64,
) -> Vec<u32> {
    let assignment = if vcube {
        Assignment::VCube
    } else {
        Assignment::AllToAll
    };
    let options = MonitorOptions {
        assignment,
        self_doubt,
        ..MonitorOptions::default()
    };
    let mut network = TestNetwork::new(ranks, &options);
    network.run_until(40.0);
    let mut random = SplitMix::new(seed);
    network.lost = random.below(60);
    for second in 0..15 {
        for test_seconds in &mut network.test_seconds {
            *test_seconds = if random.once_in(6) { 0.6 } else { 0.01 };
        }
        network.run_until(40.0 + f64::from(second));
    }
    network.lost = 0;
    network.test_seconds = vec![0.01; ranks];
    network.run_until(95.0);
    network.counters()
}

#[test]
fn ranks_that_all_believe_themselves_outside_reunite() {
    // After the losses ranks 3 and 8 hold rank 4 for the only member, rank 4 holds ranks 3 and 6
    // for the members, and all others hold rank 3 for the only one.
    let counters = counters_after_slowness_and_losses(9, true, false, 5376117332621260679);
    assert!(counters.iter().all(|counter| counter % 2 == 0));
}

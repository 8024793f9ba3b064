//! Monitors that talk over a network of this test's: delays, losses, doubles, crashes, slow ranks.

use std::collections::BTreeMap;

use super::*;
use crate::monitor::{Assignment, DEFAULT_LIMIT, count_primes};
use ftsort_kernels::random::SplitMix;
use proptest::prelude::*;

enum Event {
    Tick(Rank),
    Hear(Rank, Rank, Vec<u8>),
    Answer(Rank, Rank, u64),
}

struct Net {
    monitors: Vec<Monitor>,
    /// By microseconds, and the order in which they were made.
    events: BTreeMap<(u64, u64), Event>,
    random: SplitMix,
    made: u64,
    now: f64,
    /// How long each rank's test procedure takes, and what it yields.
    takes: Vec<f64>,
    yields: Vec<u64>,
    dead: RankSet,
    /// Once in so many times a message is lost, and as often it comes twice; 0: never.
    lost: u64,
    sent: u64,
}

impl Net {
    fn new(ranks: usize, options: &Options) -> Net {
        let mut net = Net {
            monitors: Vec::new(),
            events: BTreeMap::new(),
            random: SplitMix::new(ranks as u64),
            made: 0,
            now: 0.0,
            takes: vec![0.01; ranks],
            yields: vec![count_primes(DEFAULT_LIMIT); ranks],
            dead: RankSet::new(ranks),
            lost: 0,
            sent: 0,
        };
        for rank in Rank::all(ranks) {
            let start = net.random.below(1000) as f64 / 1000.0;
            let monitor = Monitor::new(rank, ranks, options.clone(), start);
            net.monitors.push(monitor);
            net.at(start, Event::Tick(rank));
        }
        net
    }

    fn at(&mut self, time: f64, event: Event) {
        self.made += 1;
        self.events
            .insert(((time * 1e6) as u64 + 1, self.made), event);
    }

    fn obey(&mut self, rank: Rank, actions: Vec<Action>) {
        for action in actions {
            let jitter = self.random.below(1000) as f64 / 1e6;
            match action {
                Action::RunTest { to, number } => {
                    let time = self.now + self.takes[rank.index()] + jitter;
                    self.at(time, Event::Answer(rank, to, number));
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
                        self.at(time, Event::Hear(to, rank, message.clone()));
                    }
                }
            }
        }
    }

    fn run_until(&mut self, end: f64) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            self.now = time as f64 / 1e6;
            let now = self.now;
            let (Event::Tick(rank) | Event::Hear(rank, ..) | Event::Answer(rank, ..)) = event;
            if self.dead.contains(rank) {
                continue;
            }
            let monitor = &mut self.monitors[rank.index()];
            let actions = match event {
                Event::Tick(_) => {
                    let actions = monitor.tick(now);
                    let wake = monitor.next_wake();
                    assert!(wake > now);
                    self.at(wake, Event::Tick(rank));
                    actions
                }
                Event::Hear(_, from, message) => monitor.hear(now, from, &message),
                Event::Answer(_, to, number) => {
                    monitor.answered(now, to, number, self.yields[rank.index()])
                }
            };
            self.obey(rank, actions);
            if now >= end {
                return;
            }
        }
    }

    /// What all living ranks' counters are, which are the same.
    fn counters(&self) -> Vec<u32> {
        let living = self
            .monitors
            .iter()
            .filter(|monitor| !self.dead.contains(monitor.me));
        let all: Vec<&[u32]> = living.map(Monitor::counters).collect();
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

fn kinds() -> Vec<(usize, Options)> {
    let vcube = Options {
        assignment: Assignment::VCube,
        ..Options::default()
    };
    vec![(6, Options::default()), (8, vcube.clone()), (13, vcube)]
}

#[test]
fn equally_fast_ranks_stay_together() {
    for (ranks, options) in kinds() {
        let mut net = Net::new(ranks, &options);
        net.run_until(50.0);
        assert_eq!(net.counters(), of(ranks, &[]));
        for monitor in &net.monitors {
            assert_eq!(monitor.recommended().len(), ranks);
        }
    }
}

#[test]
fn alone_is_no_trouble() {
    let mut net = Net::new(1, &Options::default());
    net.run_until(5.0);
    assert_eq!((net.counters(), net.sent), (vec![0], 0));
}

#[test]
fn a_slow_rank_is_out_and_comes_back() {
    for (ranks, options) in kinds() {
        let mut net = Net::new(ranks, &options);
        net.run_until(60.0);
        net.takes[3] = 0.7;
        net.run_until(61.0);
        net.takes[3] = 0.01;
        net.run_until(65.0);
        assert_eq!(net.counters(), of(ranks, &[(3, 1)]));
        assert!(
            net.monitors
                .iter()
                .all(|monitor| !monitor.recommended().contains(Rank(3)))
        );
        // Five intervals, one for the decision, and for VCube three for the news.
        net.run_until(72.0);
        assert_eq!(net.counters(), of(ranks, &[(3, 2)]));
        let view = net.monitors[2].view(Rank(3));
        assert!(view.recommended && view.counter == 2 && view.last_reply.is_some());
    }
}

#[test]
fn a_rank_that_is_slow_again_and_again_does_not_come_back() {
    // As printed Algorithm 1 gets used to it, and it would be back after the first few times.
    let options = Options {
        learn_late: false,
        ..Options::default()
    };
    let mut net = Net::new(6, &options);
    net.run_until(60.0);
    for time in 0..60 {
        net.takes[3] = if time % 4 == 0 { 0.9 } else { 0.01 };
        net.run_until(61.0 + f64::from(time));
    }
    assert_eq!(net.counters(), of(6, &[(3, 1)]));
}

#[test]
fn a_wrong_answer_is_a_failed_test() {
    let mut net = Net::new(6, &Options::default());
    net.yields[5] = 169;
    net.run_until(3.0);
    assert_eq!(net.counters(), of(6, &[(5, 1)]));
    net.monitors
        .iter_mut()
        .for_each(|monitor| monitor.set_answer(169));
    net.yields = vec![169; 6];
    net.run_until(13.0);
    assert_eq!(net.counters(), of(6, &[(5, 2)]));
}

#[test]
fn a_crashed_rank_is_out_told_or_not() {
    for (ranks, options) in kinds() {
        let mut net = Net::new(ranks, &options);
        net.run_until(30.0);
        net.dead.insert(Rank(0));
        net.run_until(36.0);
        assert_eq!(net.counters(), of(ranks, &[(0, 1)]));
        let dead = RankSet::from_ranks(ranks, [Rank(0), Rank(1)]);
        net.dead.insert(Rank(1));
        for monitor in net.monitors.iter_mut().skip(2) {
            monitor.absorb_dead(&dead);
        }
        assert_eq!(net.counters(), of(ranks, &[(0, 1), (1, 1)]));
        let sent = net.sent;
        net.run_until(40.0);
        assert!(net.sent > sent);
        assert_eq!(net.counters(), of(ranks, &[(0, 1), (1, 1)]));
    }
}

#[test]
fn a_leader_that_is_gone_does_not_keep_others_out() {
    for (ranks, options) in kinds() {
        let mut net = Net::new(ranks, &options);
        net.run_until(60.0);
        net.takes[3] = 0.7;
        net.run_until(61.5);
        net.takes[3] = 0.01;
        // Nobody is told that the leader crashed; its place is taken once it failed its tests.
        net.run_until(66.0);
        net.dead.insert(Rank(0));
        net.run_until(85.0);
        assert_eq!(net.counters(), of(ranks, &[(0, 1), (3, 2)]));
    }
}

#[test]
fn lost_and_doubled_messages_delay_and_no_more() {
    for (ranks, options) in kinds() {
        let mut net = Net::new(ranks, &options);
        net.run_until(60.0);
        net.lost = 20;
        net.run_until(120.0);
        net.lost = 0;
        net.run_until(140.0);
        // Each lost test or reply excluded somebody; all are back.
        let counters = net.counters();
        assert!(
            counters.iter().all(|counter| counter % 2 == 0),
            "{counters:?}"
        );
        assert!(counters.iter().sum::<u32>() > 4, "{counters:?}");
    }
}

#[test]
fn a_tester_that_stood_still_excludes_all_unless_it_doubts_itself() {
    for self_doubt in [false, true] {
        let options = Options {
            self_doubt,
            ..Options::default()
        };
        let mut monitor = Monitor::new(Rank(0), 5, options, 0.0);
        for interval in 0..20 {
            // In the last interval it looks only when the next one is due.
            let delay = if interval == 19 { 0.9 } else { 0.01 };
            let start = f64::from(interval);
            let actions = monitor.tick(start.max(monitor.next_wake()));
            for action in actions {
                let Action::Send { to, message } = action else {
                    panic!("nobody asked it")
                };
                let Some(Message::Test { number, digest }) = Message::decode(5, &message) else {
                    continue;
                };
                let answer = count_primes(DEFAULT_LIMIT);
                let news = News::new();
                let reply = Message::Reply {
                    number,
                    answer,
                    digest,
                    news,
                };
                monitor.hear(start + delay, to, &reply.encode());
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

#[test]
fn two_that_exclude_each_other_find_together_again() {
    let mut net = Net::new(2, &Options::default());
    net.run_until(60.0);
    net.monitors[0].adopt(&[0, 1]);
    net.monitors[1].adopt(&[1, 0]);
    for (own, other) in [(0, 1), (1, 0)] {
        let group = net.monitors[own].recommended();
        assert!(group.contains(Rank(own as u32)) && !group.contains(Rank(other)));
    }
    net.run_until(75.0);
    assert_eq!(net.counters(), [2, 2]);
}

#[test]
fn who_is_out_and_knows_too_little_is_told_by_those_it_takes_for_outsiders() {
    let (ranks, options) = kinds().pop().expect("some");
    let mut net = Net::new(ranks, &options);
    net.run_until(10.0);
    net.monitors[2].adopt(&[1; 13]);
    net.monitors[2].adopt(&[0, 2]);
    assert_eq!(net.monitors[2].recommended().len(), 1);
    for monitor in &mut net.monitors {
        if monitor.me != Rank(2) {
            monitor.adopt(&[2; 13]);
        }
    }
    net.run_until(15.0);
    assert_eq!(net.counters(), vec![2; 13]);
}

#[test]
fn after_a_commit_that_excludes_all_everybody_works() {
    let mut net = Net::new(4, &Options::default());
    net.run_until(20.0);
    for monitor in &mut net.monitors {
        monitor.adopt(&[1, 1, 1, 1, 77]);
        assert_eq!(monitor.recommended().len(), 4);
    }
    net.run_until(45.0);
    assert_eq!(net.counters(), [2, 2, 2, 2]);
}

#[test]
fn news_from_outside_are_ignored() {
    let mut monitor = Monitor::new(Rank(0), 4, Options::default(), 0.0);
    let events = |origin: u32, number, of: u32| Message::Events {
        origin: Rank(origin),
        number,
        news: vec![(Rank(of), 1)],
    };
    let relayed = monitor.hear(0.1, Rank(1), &events(1, 1, 2).encode());
    assert_eq!(monitor.counters(), [0, 0, 1, 0]);
    // To rank 3, and to rank 2, which is to know; not back.
    assert_eq!(relayed.len(), 2);
    assert!(
        monitor
            .hear(0.2, Rank(3), &events(1, 1, 2).encode())
            .is_empty()
    );
    // Rank 2 is out: what it has to tell does not count, whoever relays it.
    monitor.hear(0.3, Rank(3), &events(2, 1, 3).encode());
    monitor.hear(
        0.3,
        Rank(2),
        &Message::Counters(vec![(Rank(3), 1)]).encode(),
    );
    assert_eq!(monitor.counters(), [0, 0, 1, 0]);
    monitor.hear(
        0.3,
        Rank(3),
        &Message::Counters(vec![(Rank(2), 2)]).encode(),
    );
    assert_eq!(monitor.counters(), [0, 0, 2, 0]);
}

#[test]
fn an_all_to_all_test_round_costs_two_messages_each() {
    let mut net = Net::new(6, &Options::default());
    net.run_until(10.0);
    let before = net.sent;
    net.run_until(20.0);
    assert_eq!(net.sent - before, 10 * 6 * 5 * 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_survived(seed: u64, junk in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..40)) {
        let mut random = SplitMix::new(seed);
        let mut monitor = Monitor::new(Rank(1), 5, Options::default(), 0.0);
        for (time, bytes) in junk.iter().enumerate() {
            monitor.tick(time as f64);
            let from = Rank(random.below(7) as u32);
            prop_assert!(monitor.hear(time as f64, from, bytes).is_empty());
            monitor.answered(time as f64, from, random.bits(), random.bits());
        }
        // Nobody answered a test, which fails after 8 s.
        prop_assert!(monitor.counters().iter().all(|counter| *counter <= 1));
    }

    #[test]
    fn any_messages_are_survived(seed: u64, vcube: bool) {
        let mut random = SplitMix::new(seed);
        let assignment = if vcube { Assignment::VCube } else { Assignment::AllToAll };
        let options = Options { assignment, ..Options::default() };
        let mut monitor = Monitor::new(Rank(1), 5, options, 0.0);
        let mut before = monitor.counters().to_vec();
        for step in 0..200 {
            let mut number = || random.below(4) as u32;
            let rank = Rank(number() + 1);
            let ballot = paxos::Ballot { round: number(), by: rank };
            let (subject, _) = monitor.subject(rank);
            let vote = match number() {
                0 => paxos::Message::Prepare(ballot),
                1 => paxos::Message::Promise(ballot, Some((ballot, 3))),
                2 => paxos::Message::Accept(ballot, 3),
                _ => paxos::Message::Accepted(ballot),
            };
            let message = match number() + number() {
                0 => Message::Events { origin: rank, number: u64::from(number()), news: vec![(rank, number())] },
                1 => Message::Counters(vec![(rank, number())]),
                2 => Message::Request(subject),
                3 => Message::Reply { number: u64::from(number()), answer: 168, digest: 0, news: vec![] },
                4 => Message::Test { number: 3, digest: 5 },
                _ => Message::Vote(subject, vote),
            };
            let now = f64::from(step) / 10.0;
            let mut actions = monitor.hear(now, Rank(number()), &message.encode());
            actions.extend(monitor.tick(now));
            for action in actions {
                match action {
                    Action::Send { to, message } => {
                        prop_assert!(to != Rank(1) && to.0 < 5);
                        prop_assert!(Message::decode(5, &message).is_some());
                    }
                    Action::RunTest { to, number } => {
                        monitor.answered(now, to, number, 168);
                    }
                }
            }
            prop_assert!(monitor.counters().iter().zip(&before).all(|(now, was)| now >= was));
            prop_assert!(!monitor.recommended().is_empty());
            before = monitor.counters().to_vec();
        }
    }

    #[test]
    fn whatever_happens_all_come_back(ranks in 2_usize..12, vcube: bool, self_doubt: bool, seed: u64) {
        let assignment = if vcube { Assignment::VCube } else { Assignment::AllToAll };
        let mut net = Net::new(ranks, &Options { assignment, self_doubt, ..Options::default() });
        net.run_until(40.0);
        let mut random = SplitMix::new(seed);
        net.lost = random.below(60);
        for second in 0..15 {
            for takes in &mut net.takes {
                *takes = if random.once_in(6) { 0.6 } else { 0.01 };
            }
            net.run_until(40.0 + f64::from(second));
        }
        net.lost = 0;
        net.takes = vec![0.01; ranks];
        net.run_until(95.0);
        let counters = net.counters();
        prop_assert!(counters.iter().all(|counter| counter % 2 == 0), "{counters:?}");
    }
}

//! Explores every sequence of events of two proposers and three acceptors, with messages lost,
//! duplicated and reordered, and random sequences of larger groups.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::*;
use ftsort_kernels::random::SplitMix;
use proptest::prelude::*;

/// Proposers and acceptors, which are ranks 0, 1, ... . A message is never removed once it is sent,
/// so it can arrive at any time, repeatedly or not at all: this covers lost, duplicated and late
/// messages.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PaxosState {
    proposers: Vec<Proposer>,
    attempts: Vec<u32>,
    acceptors: Vec<Acceptor>,
    to_acceptors: BTreeSet<PaxosMessage>,
    to_proposers: BTreeSet<(Rank, PaxosMessage)>,
}

#[derive(Clone, Copy)]
enum PaxosEvent {
    Start(usize),
    ToAcceptor(usize, PaxosMessage),
    ToProposer(Rank, PaxosMessage),
}

impl PaxosState {
    fn new(proposers: u32, acceptors: u32) -> PaxosState {
        let voters: Vec<Rank> = (0..acceptors).map(Rank).collect();
        // Each proposer has its own value, which is harder than the monitor's use, where they
        // agree.
        let propose = |rank: u32| Proposer::new(Rank(rank), &voters, u64::from(rank) + 7);
        PaxosState {
            proposers: (0..proposers).map(propose).collect(),
            attempts: vec![0; proposers as usize],
            acceptors: vec![Acceptor::default(); acceptors as usize],
            to_acceptors: BTreeSet::new(),
            to_proposers: BTreeSet::new(),
        }
    }

    fn events(&self, attempts: u32) -> Vec<PaxosEvent> {
        let may_start = |(_, started): &(usize, &u32)| **started < attempts;
        let starts = self.attempts.iter().enumerate().filter(may_start);
        let mut events: Vec<PaxosEvent> = starts
            .map(|(proposer, _)| PaxosEvent::Start(proposer))
            .collect();
        for message in &self.to_acceptors {
            events.extend(
                (0..self.acceptors.len())
                    .map(|acceptor| PaxosEvent::ToAcceptor(acceptor, *message)),
            );
        }
        events.extend(
            self.to_proposers
                .iter()
                .map(|(from, message)| PaxosEvent::ToProposer(*from, *message)),
        );
        events
    }

    fn apply(&mut self, choice: PaxosEvent, willing: bool) {
        match choice {
            PaxosEvent::Start(proposer) => {
                self.attempts[proposer] += 1;
                let message = self.proposers[proposer].start();
                self.to_acceptors.insert(message);
            }
            PaxosEvent::ToAcceptor(acceptor, message) => {
                if let Some(answer) = self.acceptors[acceptor].receive(willing, &message) {
                    self.to_proposers.insert((Rank(acceptor as u32), answer));
                }
            }
            PaxosEvent::ToProposer(from, message) => {
                let (PaxosMessage::Promise(ballot, _)
                | PaxosMessage::Accepted(ballot)
                | PaxosMessage::Refused(ballot, _)) = message
                else {
                    return;
                };
                let proposer = &mut self.proposers[ballot.by.index()];
                if let Some(ProposerStep::Send(message)) = proposer.receive(from, &message) {
                    self.to_acceptors.insert(message);
                }
            }
        }
    }

    fn check(&self) {
        let decided: BTreeSet<u64> = self
            .proposers
            .iter()
            .filter_map(Proposer::decided)
            .collect();
        assert!(decided.len() <= 1, "decided: {decided:?}");
        let wanted = |value: &u64| (7..7 + self.proposers.len() as u64).contains(value);
        assert!(decided.iter().all(wanted));
    }
}

/// Explores all states that can be reached. Returns their number, and the number of those with a
/// decision.
///
/// Here an answer arrives at once or not at all. A later arrival only changes when the proposer
/// continues, and the proposer's next message can arrive later as well.
fn exhaust(start: PaxosState, attempts: u32, willing: impl Fn(usize) -> bool) -> (usize, usize) {
    let key = |state: &PaxosState| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    };
    let mut seen = HashSet::from([key(&start)]);
    let mut open = vec![start];
    let mut decided = 0;
    while let Some(state) = open.pop() {
        state.check();
        let proposers = &state.proposers;
        decided += usize::from(proposers.iter().any(|one| one.decided().is_some()));
        for choice in state.events(attempts) {
            let mut next = state.clone();
            next.apply(
                choice,
                matches!(choice, PaxosEvent::ToAcceptor(acceptor, _) if willing(acceptor)),
            );
            let answers = std::mem::take(&mut next.to_proposers);
            let lost = next.clone();
            // A refusal only makes a proposer abandon its attempt.
            let refusal = |message: &PaxosMessage| matches!(message, PaxosMessage::Refused(..));
            for (from, message) in answers.into_iter().filter(|(_, said)| !refusal(said)) {
                next.apply(PaxosEvent::ToProposer(from, message), true);
            }
            for next in [lost, next] {
                if seen.insert(key(&next)) {
                    open.push(next);
                }
            }
        }
    }
    (seen.len(), decided)
}

#[test]
fn two_proposers_and_three_acceptors_never_decide_twice() {
    let (states, decided) = exhaust(PaxosState::new(2, 3), 1, |_| true);
    assert!(states > 1000 && decided > 100, "{states} {decided}");
}

#[test]
fn a_proposer_that_retries_keeps_its_decision() {
    let (states, decided) = exhaust(PaxosState::new(1, 3), 3, |_| true);
    assert!(states > 1000 && decided > 100, "{states} {decided}");
}

#[test]
fn one_vote_of_three_is_no_majority() {
    let (_, decided) = exhaust(PaxosState::new(2, 3), 1, |acceptor| acceptor == 0);
    assert_eq!(decided, 0);
    let (_, decided) = exhaust(PaxosState::new(1, 3), 2, |acceptor| acceptor != 0);
    assert!(decided > 0);
}

#[test]
fn the_exploration_detects_an_acceptor_that_forgets() {
    // Shows that the exploration finds errors: acceptors that do not report the accepted value
    // decide twice.
    let twice = std::panic::catch_unwind(|| {
        let mut state = PaxosState::new(2, 3);
        let mut random = SplitMix::new(1);
        for _ in 0..100_000 {
            let events = state.events(2);
            let choice = events[random.below(events.len() as u64) as usize];
            let choice = match choice {
                PaxosEvent::ToProposer(from, PaxosMessage::Promise(ballot, _)) => {
                    PaxosEvent::ToProposer(from, PaxosMessage::Promise(ballot, None))
                }
                other => other,
            };
            state.apply(choice, true);
            state.check();
            if events.len() > 60 {
                state = PaxosState::new(2, 3);
            }
        }
    });
    assert!(twice.is_err());
}

#[test]
fn a_majority_decides_if_all_messages_arrive() {
    for acceptors in 1..=9 {
        for refusing in 0..=acceptors {
            let mut state = PaxosState::new(1, acceptors);
            state.apply(PaxosEvent::Start(0), true);
            for _ in 0..5 {
                for choice in state.events(0) {
                    let willing = matches!(choice, PaxosEvent::ToAcceptor(acceptor, _) if acceptor >= refusing as usize);
                    state.apply(choice, willing);
                }
            }
            let majority = acceptors - refusing > acceptors / 2;
            assert_eq!(
                state.proposers[0].decided(),
                majority.then_some(7),
                "{refusing} of {acceptors}"
            );
        }
    }
}

#[test]
fn a_leader_that_crashed_half_way_does_not_stop_the_next() {
    let mut state = PaxosState::new(2, 3);
    state.apply(PaxosEvent::Start(0), true);
    // Rank 0's proposal reaches two acceptors, but their answers do not reach rank 0 before it fails.
    for acceptor in 0..3 {
        state.apply(
            PaxosEvent::ToAcceptor(
                acceptor,
                PaxosMessage::Prepare(Ballot {
                    round: 1,
                    by: Rank(0),
                }),
            ),
            true,
        );
    }
    for (from, message) in state.to_proposers.clone() {
        state.apply(PaxosEvent::ToProposer(from, message), true);
    }
    let accept = PaxosMessage::Accept(
        Ballot {
            round: 1,
            by: Rank(0),
        },
        7,
    );
    state.apply(PaxosEvent::ToAcceptor(1, accept), true);
    state.apply(PaxosEvent::ToAcceptor(2, accept), true);
    state.to_acceptors.clear();
    state.to_proposers.clear();
    state.apply(PaxosEvent::Start(1), true);
    for _ in 0..5 {
        for choice in state.events(0) {
            state.apply(choice, true);
        }
    }
    // A majority had accepted the value, so the next proposer must decide it.
    assert_eq!(state.proposers[1].decided(), Some(7));
}

#[test]
fn a_proposer_refused_for_a_higher_ballot_goes_above_it() {
    let mut proposer = Proposer::new(Rank(0), &[Rank(0), Rank(1), Rank(2)], 7);
    let first = proposer.start();
    assert_eq!(
        first,
        PaxosMessage::Prepare(Ballot {
            round: 1,
            by: Rank(0)
        })
    );
    let ballot = Ballot {
        round: 1,
        by: Rank(0),
    };
    let higher = Some(Ballot {
        round: 5,
        by: Rank(2),
    });
    assert_eq!(
        proposer.receive(Rank(1), &PaxosMessage::Refused(ballot, higher)),
        None
    );
    assert_eq!(
        proposer.receive(Rank(1), &PaxosMessage::Refused(ballot, higher)),
        None
    );
    assert_eq!(
        proposer.receive(Rank(2), &PaxosMessage::Refused(ballot, None)),
        Some(ProposerStep::Abandoned)
    );
    assert_eq!(
        proposer.start(),
        PaxosMessage::Prepare(Ballot {
            round: 6,
            by: Rank(0)
        })
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn random_sequences_never_decide_twice(
        acceptors in 1_u32..=9,
        proposers in 1_u32..=4,
        attempts in 1_u32..=3,
        willingness in 0_u64..=4,
        seed: u64,
    ) {
        let mut state = PaxosState::new(proposers.min(acceptors), acceptors);
        let mut random = SplitMix::new(seed);
        for _ in 0..400 {
            let events = state.events(attempts);
            let choice = events[random.below(events.len() as u64) as usize];
            // An acceptor may also change its mind.
            state.apply(choice, random.below(5) >= willingness / 2);
            state.check();
            // Old messages are lost more often than not.
            if random.once_in(3) && state.to_proposers.len() > 2 * acceptors as usize {
                let lost = random.below(state.to_proposers.len() as u64) as usize;
                let lost = *state.to_proposers.iter().nth(lost).expect("in range");
                state.to_proposers.remove(&lost);
            }
        }
    }
}

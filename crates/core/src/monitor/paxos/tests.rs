//! Every course that two proposers and three acceptors can take, with messages lost, doubled and in any
//! order; and random courses of more.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::*;
use ftsort_kernels::random::SplitMix;
use proptest::prelude::*;

/// Proposers first, then acceptors, which are ranks 0, 1, ... . What was said is never taken back, so that
/// any of it can be heard at any time, twice or not at all: lost, doubled and late messages are in this.
#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    proposers: Vec<Proposer>,
    attempts: Vec<u32>,
    acceptors: Vec<Acceptor>,
    asked: BTreeSet<Message>,
    answered: BTreeSet<(Rank, Message)>,
}

#[derive(Clone, Copy)]
enum Move {
    Start(usize),
    Ask(usize, Message),
    Answer(Rank, Message),
}

impl World {
    fn new(proposers: u32, acceptors: u32) -> World {
        let voters: Vec<Rank> = (0..acceptors).map(Rank).collect();
        // Each wants something else, which our use of it never has: a harder case.
        let propose = |rank: u32| Proposer::new(Rank(rank), &voters, u64::from(rank) + 7);
        World {
            proposers: (0..proposers).map(propose).collect(),
            attempts: vec![0; proposers as usize],
            acceptors: vec![Acceptor::default(); acceptors as usize],
            asked: BTreeSet::new(),
            answered: BTreeSet::new(),
        }
    }

    fn moves(&self, attempts: u32) -> Vec<Move> {
        let tries = self.attempts.iter().enumerate();
        let tries = tries.filter(|(_, tried)| **tried < attempts);
        let mut moves: Vec<Move> = tries.map(|(proposer, _)| Move::Start(proposer)).collect();
        for message in &self.asked {
            moves.extend((0..self.acceptors.len()).map(|acceptor| Move::Ask(acceptor, *message)));
        }
        moves.extend(
            self.answered
                .iter()
                .map(|(from, message)| Move::Answer(*from, *message)),
        );
        moves
    }

    fn make(&mut self, choice: Move, willing: bool) {
        match choice {
            Move::Start(proposer) => {
                self.attempts[proposer] += 1;
                let message = self.proposers[proposer].start();
                self.asked.insert(message);
            }
            Move::Ask(acceptor, message) => {
                if let Some(answer) = self.acceptors[acceptor].hear(willing, &message) {
                    self.answered.insert((Rank(acceptor as u32), answer));
                }
            }
            Move::Answer(from, message) => {
                let (Message::Promise(ballot, _)
                | Message::Accepted(ballot)
                | Message::Refused(ballot, _)) = message
                else {
                    return;
                };
                let proposer = &mut self.proposers[ballot.by.index()];
                if let Some(Step::Tell(message)) = proposer.hear(from, &message) {
                    self.asked.insert(message);
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

/// All worlds that can be reached; how many, and how many of them with a decision.
///
/// Here an answer is heard at once or not at all. One that is heard later changes nothing but when the
/// proposer goes on, and what it then says can be heard later just as well.
fn exhaust(start: World, attempts: u32, willing: impl Fn(usize) -> bool) -> (usize, usize) {
    let key = |world: &World| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        hasher.finish()
    };
    let mut seen = HashSet::from([key(&start)]);
    let mut open = vec![start];
    let mut decided = 0;
    while let Some(world) = open.pop() {
        world.check();
        let proposers = &world.proposers;
        decided += usize::from(proposers.iter().any(|one| one.decided().is_some()));
        for choice in world.moves(attempts) {
            let mut next = world.clone();
            next.make(
                choice,
                matches!(choice, Move::Ask(acceptor, _) if willing(acceptor)),
            );
            let answers = std::mem::take(&mut next.answered);
            let lost = next.clone();
            // A refusal only makes a proposer give up.
            let refusal = |message: &Message| matches!(message, Message::Refused(..));
            for (from, message) in answers.into_iter().filter(|(_, said)| !refusal(said)) {
                next.make(Move::Answer(from, message), true);
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
    let (worlds, decided) = exhaust(World::new(2, 3), 1, |_| true);
    assert!(worlds > 1000 && decided > 100, "{worlds} {decided}");
}

#[test]
fn one_proposer_that_tries_again_keeps_its_decision() {
    let (worlds, decided) = exhaust(World::new(1, 3), 3, |_| true);
    assert!(worlds > 1000 && decided > 100, "{worlds} {decided}");
}

#[test]
fn one_for_it_of_three_is_no_majority() {
    let (_, decided) = exhaust(World::new(2, 3), 1, |acceptor| acceptor == 0);
    assert_eq!(decided, 0);
    let (_, decided) = exhaust(World::new(1, 3), 2, |acceptor| acceptor != 0);
    assert!(decided > 0);
}

#[test]
fn an_acceptor_that_forgets_is_noticed() {
    // What the exploration is worth: acceptors that do not tell what they accepted decide twice.
    let twice = std::panic::catch_unwind(|| {
        let mut world = World::new(2, 3);
        let mut random = SplitMix::new(1);
        for _ in 0..100_000 {
            let moves = world.moves(2);
            let choice = moves[random.below(moves.len() as u64) as usize];
            let choice = match choice {
                Move::Answer(from, Message::Promise(ballot, _)) => {
                    Move::Answer(from, Message::Promise(ballot, None))
                }
                other => other,
            };
            world.make(choice, true);
            world.check();
            if moves.len() > 60 {
                world = World::new(2, 3);
            }
        }
    });
    assert!(twice.is_err());
}

#[test]
fn where_all_messages_get_through_it_is_decided() {
    for acceptors in 1..=9 {
        for against in 0..=acceptors {
            let mut world = World::new(1, acceptors);
            world.make(Move::Start(0), true);
            for _ in 0..5 {
                for choice in world.moves(0) {
                    let willing =
                        matches!(choice, Move::Ask(acceptor, _) if acceptor >= against as usize);
                    world.make(choice, willing);
                }
            }
            let majority = acceptors - against > acceptors / 2;
            assert_eq!(
                world.proposers[0].decided(),
                majority.then_some(7),
                "{against} of {acceptors}"
            );
        }
    }
}

#[test]
fn a_leader_that_crashed_half_way_does_not_stop_the_next() {
    let mut world = World::new(2, 3);
    world.make(Move::Start(0), true);
    // Rank 0's proposal reaches two acceptors, whose answers do not scope rank 0 before it is gone.
    for acceptor in 0..3 {
        world.make(
            Move::Ask(
                acceptor,
                Message::Prepare(Ballot {
                    round: 1,
                    by: Rank(0),
                }),
            ),
            true,
        );
    }
    for (from, message) in world.answered.clone() {
        world.make(Move::Answer(from, message), true);
    }
    let accept = Message::Accept(
        Ballot {
            round: 1,
            by: Rank(0),
        },
        7,
    );
    world.make(Move::Ask(1, accept), true);
    world.make(Move::Ask(2, accept), true);
    world.asked.clear();
    world.answered.clear();
    world.make(Move::Start(1), true);
    for _ in 0..5 {
        for choice in world.moves(0) {
            world.make(choice, true);
        }
    }
    // It was as good as decided, so that is what the next one decides.
    assert_eq!(world.proposers[1].decided(), Some(7));
}

#[test]
fn who_is_refused_for_a_higher_ballot_goes_above_it() {
    let mut proposer = Proposer::new(Rank(0), &[Rank(0), Rank(1), Rank(2)], 7);
    let first = proposer.start();
    assert_eq!(
        first,
        Message::Prepare(Ballot {
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
        proposer.hear(Rank(1), &Message::Refused(ballot, higher)),
        None
    );
    assert_eq!(
        proposer.hear(Rank(1), &Message::Refused(ballot, higher)),
        None
    );
    assert_eq!(
        proposer.hear(Rank(2), &Message::Refused(ballot, None)),
        Some(Step::GivenUp)
    );
    assert_eq!(
        proposer.start(),
        Message::Prepare(Ballot {
            round: 6,
            by: Rank(0)
        })
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn random_courses_never_decide_twice(
        acceptors in 1_u32..=9,
        proposers in 1_u32..=4,
        attempts in 1_u32..=3,
        willingness in 0_u64..=4,
        seed: u64,
    ) {
        let mut world = World::new(proposers.min(acceptors), acceptors);
        let mut random = SplitMix::new(seed);
        for _ in 0..400 {
            let moves = world.moves(attempts);
            let choice = moves[random.below(moves.len() as u64) as usize];
            // Changes its mind, too.
            world.make(choice, random.below(5) >= willingness / 2);
            world.check();
            // Old messages get lost more often than not.
            if random.once_in(3) && world.answered.len() > 2 * acceptors as usize {
                let lost = random.below(world.answered.len() as u64) as usize;
                let lost = *world.answered.iter().nth(lost).expect("in range");
                world.answered.remove(&lost);
            }
        }
    }
}

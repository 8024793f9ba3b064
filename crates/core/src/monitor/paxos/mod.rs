//! Single-decree Paxos (Lamport, "Paxos made simple", 2001), with which the members of a group decide that
//! a rank may come back. Follows "DGRP implementation" of the 2018 paper: one proposes, a member votes for
//! it only if its own tests say so, and a majority decides. Pure state machines; who sends what to whom,
//! and when to try again, is for the monitor to say.
//!
//! A vote against is an answer that does not come, as far as Paxos is concerned: an acceptor may refuse
//! what it likes, and nothing becomes unsafe. It is said aloud so that a proposer knows when to stop.

use std::collections::BTreeSet;

use crate::members::Rank;

/// A proposal's number: proposers have different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// How often was tried before, as far as the proposer knows.
    pub round: u32,
    /// The proposer.
    pub by: Rank,
}

/// What is said between a proposer and the acceptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Phase 1, from the proposer: promise to ignore smaller ballots.
    Prepare(Ballot),
    /// The answer: promised, and what was accepted before.
    Promise(Ballot, Option<(Ballot, u64)>),
    /// Phase 2, from the proposer: accept this value.
    Accept(Ballot, u64),
    /// The answer: done.
    Accepted(Ballot),
    /// The answer to either: no, since the acceptor is against it, or (the second ballot) has promised
    /// more to somebody else.
    Refused(Ballot, Option<Ballot>),
}

/// A member's memory of one decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acceptor {
    promised: Option<Ballot>,
    accepted: Option<(Ballot, u64)>,
}

impl Acceptor {
    /// The answer to a proposer's message. `willing`: this member is for it now.
    pub fn hear(&mut self, willing: bool, message: &Message) -> Option<Message> {
        let (Message::Prepare(ballot) | Message::Accept(ballot, _)) = *message else {
            return None;
        };
        if self.promised.is_some_and(|promised| promised > ballot) {
            return Some(Message::Refused(ballot, self.promised));
        }
        if !willing {
            return Some(Message::Refused(ballot, None));
        }
        self.promised = Some(ballot);
        Some(match *message {
            Message::Accept(_, value) => {
                self.accepted = Some((ballot, value));
                Message::Accepted(ballot)
            }
            _ => Message::Promise(ballot, self.accepted),
        })
    }
}

/// What a proposer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this to all voters.
    Tell(Message),
    /// This value is decided.
    Decided(u64),
    /// So many are against it that there is no majority: this attempt is over.
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Preparing,
    Accepting(u64),
}

/// One who proposes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposer {
    voters: BTreeSet<Rank>,
    value: u64,
    ballot: Ballot,
    /// The highest round that was heard of.
    highest: u32,
    phase: Phase,
    for_it: BTreeSet<Rank>,
    against: BTreeSet<Rank>,
    before: Option<(Ballot, u64)>,
    decided: Option<u64>,
}

impl Proposer {
    /// One who would have the voters decide on this value. Nothing happens before [`Proposer::start`].
    pub fn new(me: Rank, voters: &[Rank], value: u64) -> Proposer {
        Proposer {
            voters: voters.iter().copied().collect(),
            value,
            ballot: Ballot { round: 0, by: me },
            highest: 0,
            phase: Phase::Idle,
            for_it: BTreeSet::new(),
            against: BTreeSet::new(),
            before: None,
            decided: None,
        }
    }

    /// A new attempt, which leaves the last one behind. The message is for all voters.
    pub fn start(&mut self) -> Message {
        self.highest = self.highest.saturating_add(1);
        self.ballot.round = self.highest;
        self.phase = Phase::Preparing;
        self.before = None;
        self.clear();
        Message::Prepare(self.ballot)
    }

    /// The highest round that was heard of.
    pub fn round(&self) -> u32 {
        self.highest
    }

    /// The next attempt is to be above this round.
    pub fn go_above(&mut self, round: u32) {
        self.highest = self.highest.max(round);
    }

    /// Who votes.
    pub fn voters(&self) -> impl Iterator<Item = Rank> + '_ {
        self.voters.iter().copied()
    }

    /// What was decided, as far as this proposer knows.
    pub fn decided(&self) -> Option<u64> {
        self.decided
    }

    fn clear(&mut self) {
        self.for_it.clear();
        self.against.clear();
    }

    /// A voter's answer. Answers that come twice, or to an attempt that is over, change nothing.
    pub fn hear(&mut self, from: Rank, message: &Message) -> Option<Step> {
        let (Message::Promise(ballot, _) | Message::Accepted(ballot) | Message::Refused(ballot, _)) =
            *message
        else {
            return None;
        };
        if let Message::Refused(_, Some(promised)) = message {
            self.go_above(promised.round);
        }
        if ballot != self.ballot || !self.voters.contains(&from) || self.phase == Phase::Idle {
            return None;
        }
        match (*message, self.phase) {
            (Message::Promise(_, before), Phase::Preparing) => {
                // By ballot: what was accepted last may have been decided.
                self.before = self.before.max(before);
                self.for_it.insert(from);
            }
            (Message::Accepted(_), Phase::Accepting(_)) => {
                self.for_it.insert(from);
            }
            (Message::Refused(..), _) => {
                self.against.insert(from);
            }
            _ => return None,
        }
        self.count()
    }

    fn count(&mut self) -> Option<Step> {
        let majority = self.voters.len() / 2 + 1;
        if self.for_it.len() >= majority {
            return Some(match self.phase {
                Phase::Accepting(value) => {
                    self.phase = Phase::Idle;
                    self.decided = Some(value);
                    Step::Decided(value)
                }
                _ => {
                    let value = self.before.map_or(self.value, |(_, value)| value);
                    self.phase = Phase::Accepting(value);
                    self.clear();
                    Step::Tell(Message::Accept(self.ballot, value))
                }
            });
        }
        if self.voters.len() - self.against.len() < majority {
            self.phase = Phase::Idle;
            return Some(Step::GivenUp);
        }
        None
    }
}

#[cfg(test)]
mod tests;

//! Single-decree Paxos (Lamport, "Paxos made simple", 2001), with which the members of a group decide that
//! a rank may come back. Follows "DGRP implementation" of the 2018 paper: one proposes, a member votes for
//! it only if its own tests say so, and a majority decides. Pure state machines; who sends what to whom,
//! and when to try again, is for the monitor to say.
//!
//! A vote refusing is an answer that does not come, as far as Paxos is concerned: an acceptor may refuse
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
pub enum PaxosMessage {
    /// ProposerPhase 1, from the proposer: promise to ignore smaller ballots.
    Prepare(Ballot),
    /// The answer: promised, and what was accepted before.
    Promise(Ballot, Option<(Ballot, u64)>),
    /// ProposerPhase 2, from the proposer: accept this value.
    Accept(Ballot, u64),
    /// The answer: done.
    Accepted(Ballot),
    /// The answer to either: no, since the acceptor is refusing it, or (the second ballot) has promised
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
    pub fn receive(&mut self, willing: bool, message: &PaxosMessage) -> Option<PaxosMessage> {
        let (PaxosMessage::Prepare(ballot) | PaxosMessage::Accept(ballot, _)) = *message else {
            return None;
        };
        if self.promised.is_some_and(|promised| promised > ballot) {
            return Some(PaxosMessage::Refused(ballot, self.promised));
        }
        if !willing {
            return Some(PaxosMessage::Refused(ballot, None));
        }
        self.promised = Some(ballot);
        Some(match *message {
            PaxosMessage::Accept(_, value) => {
                self.accepted = Some((ballot, value));
                PaxosMessage::Accepted(ballot)
            }
            _ => PaxosMessage::Promise(ballot, self.accepted),
        })
    }
}

/// What a proposer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposerStep {
    /// Send this to all voters.
    Send(PaxosMessage),
    /// This value is decided.
    Decided(u64),
    /// So many are refusing it that there is no majority: this attempt is over.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ProposerPhase {
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
    phase: ProposerPhase,
    accepting: BTreeSet<Rank>,
    refusing: BTreeSet<Rank>,
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
            phase: ProposerPhase::Idle,
            accepting: BTreeSet::new(),
            refusing: BTreeSet::new(),
            before: None,
            decided: None,
        }
    }

    /// A new attempt, which leaves the last one behind. The message is for all voters.
    pub fn start(&mut self) -> PaxosMessage {
        self.highest = self.highest.saturating_add(1);
        self.ballot.round = self.highest;
        self.phase = ProposerPhase::Preparing;
        self.before = None;
        self.clear();
        PaxosMessage::Prepare(self.ballot)
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
        self.accepting.clear();
        self.refusing.clear();
    }

    /// A voter's answer. Answers that come twice, or to an attempt that is over, change nothing.
    pub fn receive(&mut self, from: Rank, message: &PaxosMessage) -> Option<ProposerStep> {
        let (PaxosMessage::Promise(ballot, _)
        | PaxosMessage::Accepted(ballot)
        | PaxosMessage::Refused(ballot, _)) = *message
        else {
            return None;
        };
        if let PaxosMessage::Refused(_, Some(promised)) = message {
            self.go_above(promised.round);
        }
        if ballot != self.ballot
            || !self.voters.contains(&from)
            || self.phase == ProposerPhase::Idle
        {
            return None;
        }
        match (*message, self.phase) {
            (PaxosMessage::Promise(_, before), ProposerPhase::Preparing) => {
                // By ballot: what was accepted last may have been decided.
                self.before = self.before.max(before);
                self.accepting.insert(from);
            }
            (PaxosMessage::Accepted(_), ProposerPhase::Accepting(_)) => {
                self.accepting.insert(from);
            }
            (PaxosMessage::Refused(..), _) => {
                self.refusing.insert(from);
            }
            _ => return None,
        }
        self.count()
    }

    fn count(&mut self) -> Option<ProposerStep> {
        let majority = self.voters.len() / 2 + 1;
        if self.accepting.len() >= majority {
            return Some(match self.phase {
                ProposerPhase::Accepting(value) => {
                    self.phase = ProposerPhase::Idle;
                    self.decided = Some(value);
                    ProposerStep::Decided(value)
                }
                _ => {
                    let value = self.before.map_or(self.value, |(_, value)| value);
                    self.phase = ProposerPhase::Accepting(value);
                    self.clear();
                    ProposerStep::Send(PaxosMessage::Accept(self.ballot, value))
                }
            });
        }
        if self.voters.len() - self.refusing.len() < majority {
            self.phase = ProposerPhase::Idle;
            return Some(ProposerStep::Abandoned);
        }
        None
    }
}

#[cfg(test)]
mod tests;

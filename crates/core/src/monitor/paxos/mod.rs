//! Single-decree Paxos (Lamport, "Paxos made simple", 2001), by which the members of a group decide
//! that a rank may come back. Follows "DGRP implementation" of the 2018 paper: one member proposes,
//! a member votes for the proposal only if its own tests support it, and a majority decides.
//!
//! For Paxos a refusal is a missing answer: an acceptor may refuse any message without making the
//! protocol unsafe. The refusal is sent so that a proposer knows when to stop.
//!
//! Must never: send a message or choose when to try again. The monitor does both.

use std::collections::BTreeSet;

use crate::members::Rank;

/// The number of a proposal. Two proposers never use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// The number of attempts before, as far as the proposer knows.
    pub round: u32,
    /// The proposer.
    pub by: Rank,
}

/// A message between a proposer and the acceptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PaxosMessage {
    /// Phase 1, from the proposer: promise to ignore smaller ballots.
    Prepare(Ballot),
    /// The answer to `Prepare`: the promise, and the proposal that was accepted before.
    Promise(Ballot, Option<(Ballot, u64)>),
    /// Phase 2, from the proposer: accept this value.
    Accept(Ballot, u64),
    /// The answer to `Accept`: the value is accepted.
    Accepted(Ballot),
    /// The answer to either: the acceptor does not support the proposal, or it has promised the
    /// second ballot to another proposer.
    Refused(Ballot, Option<Ballot>),
}

/// The state of an acceptor in one decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acceptor {
    promised: Option<Ballot>,
    accepted: Option<(Ballot, u64)>,
}

impl Acceptor {
    /// Returns the answer to a proposer's message. `willing` says whether this member supports the
    /// proposal now.
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

/// The next step of a proposer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposerStep {
    /// Send this message to all voters.
    Send(PaxosMessage),
    /// This value is decided.
    Decided(u64),
    /// So many voters refuse that there is no majority. The attempt is over.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ProposerPhase {
    Idle,
    Preparing,
    Accepting(u64),
}

/// The state of a proposer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposer {
    voters: BTreeSet<Rank>,
    value: u64,
    ballot: Ballot,
    /// The highest round that this proposer knows of.
    highest: u32,
    phase: ProposerPhase,
    accepting: BTreeSet<Rank>,
    refusing: BTreeSet<Rank>,
    before: Option<(Ballot, u64)>,
    decided: Option<u64>,
}

impl Proposer {
    /// Creates a proposer of this value. It does nothing before [`Proposer::start`].
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

    /// Starts a new attempt and abandons the last one. Returns the message to all voters.
    pub fn start(&mut self) -> PaxosMessage {
        self.highest = self.highest.saturating_add(1);
        self.ballot.round = self.highest;
        self.phase = ProposerPhase::Preparing;
        self.before = None;
        self.clear();
        PaxosMessage::Prepare(self.ballot)
    }

    /// Returns the highest round that this proposer knows of.
    pub fn round(&self) -> u32 {
        self.highest
    }

    /// Makes the next attempt use a round above this one.
    pub fn go_above(&mut self, round: u32) {
        self.highest = self.highest.max(round);
    }

    /// Returns the voters.
    pub fn voters(&self) -> impl Iterator<Item = Rank> + '_ {
        self.voters.iter().copied()
    }

    /// Returns the decided value, as far as this proposer knows.
    pub fn decided(&self) -> Option<u64> {
        self.decided
    }

    fn clear(&mut self) {
        self.accepting.clear();
        self.refusing.clear();
    }

    /// Processes a voter's answer. A repeated answer, or one to an earlier attempt, changes
    /// nothing.
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
                // The proposal with the highest ballot may have been decided already.
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

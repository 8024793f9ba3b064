//! The decisions on ranks that may come back: one Paxos instance for each value of a rank's
//! counter. Follows "DGRP implementation" of the 2018 paper. The leader is the voter with the
//! smallest rank. A request that is repeated in the same interval is ignored. A request that is
//! repeated in a later interval starts a new attempt, because messages may have been lost; the
//! paper does not treat this case.
//!
//! The decided counter can only be "counter + 1". So two decisions on one counter, by groups that
//! do not know of each other, are harmless, and Paxos is stronger than necessary. The value decided
//! here is the rank that asked.
//!
//! Must never: send a message.

use std::collections::BTreeMap;

use crate::members::Rank;
use crate::monitor::message::RejoinSubject;
use crate::monitor::paxos::{Acceptor, PaxosMessage, Proposer, ProposerStep};

#[derive(Clone, Debug)]
struct RejoinInstance {
    counter: u32,
    acceptor: Acceptor,
    /// If this rank is the leader: the subject, the proposer, and the interval of its last attempt.
    proposer: Option<(RejoinSubject, Proposer, u64)>,
}

/// The decisions in progress, by the rank that may come back.
#[derive(Clone, Debug, Default)]
pub struct RejoinDecisions {
    instances: BTreeMap<Rank, RejoinInstance>,
}

impl RejoinDecisions {
    fn instance(&mut self, subject: RejoinSubject) -> &mut RejoinInstance {
        let new = || RejoinInstance {
            counter: subject.counter,
            acceptor: Acceptor::default(),
            proposer: None,
        };
        let instance = self.instances.entry(subject.rank).or_insert_with(new);
        if instance.counter != subject.counter {
            *instance = new();
        }
        instance
    }

    /// Starts a decision on the leader, for a voter that asks for one. Returns the message to all
    /// voters, or None if an attempt of this interval is in progress.
    pub fn start(
        &mut self,
        me: Rank,
        subject: RejoinSubject,
        voters: &[Rank],
        asked_by: Rank,
        interval: u64,
    ) -> Option<PaxosMessage> {
        let instance = self.instance(subject);
        match &mut instance.proposer {
            Some((of, proposer, tried)) if *of == subject => {
                if *tried == interval {
                    return None;
                }
                *tried = interval;
                Some(proposer.start())
            }
            other => {
                // The rounds continue from those of the earlier set of voters, so a ballot is never
                // used twice.
                let round = other.as_ref().map_or(0, |(_, before, _)| before.round());
                let mut proposer = Proposer::new(me, voters, u64::from(asked_by.0));
                proposer.go_above(round);
                let message = proposer.start();
                *other = Some((subject, proposer, interval));
                Some(message)
            }
        }
    }

    /// Returns a voter's answer to the leader.
    pub fn vote(
        &mut self,
        subject: RejoinSubject,
        willing: bool,
        message: &PaxosMessage,
    ) -> Option<PaxosMessage> {
        self.instance(subject).acceptor.receive(willing, message)
    }

    /// Counts a voter's answer on the leader.
    pub fn count_vote(
        &mut self,
        subject: RejoinSubject,
        from: Rank,
        message: &PaxosMessage,
    ) -> Option<ProposerStep> {
        match &mut self.instance(subject).proposer {
            Some((of, proposer, _)) if *of == subject => proposer.receive(from, message),
            _ => None,
        }
    }

    /// Discards the decision on a rank, after its counter has changed.
    pub fn remove(&mut self, rank: Rank) {
        self.instances.remove(&rank);
    }
}

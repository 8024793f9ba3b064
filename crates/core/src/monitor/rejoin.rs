//! The decisions on ranks that may come back: one Paxos for each, kept apart by the rank's counter. Follows
//! "DGRP implementation" of the 2018 paper; the leader is the voter with the smallest rank, and a request
//! that comes again in the same interval is ignored. One that comes again in a later interval starts a new
//! attempt, since messages may have been lost; the paper says nothing of that.
//!
//! What is decided has one value only, "counter + 1": so two decisions on one counter, by groups that do
//! not know of each other, do no harm, and Paxos is more than is needed. The value here is the rank that
//! asked.

use std::collections::BTreeMap;

use crate::members::Rank;
use crate::monitor::message::RejoinSubject;
use crate::monitor::paxos::{Acceptor, PaxosMessage, Proposer, ProposerStep};

#[derive(Clone, Debug)]
struct RejoinInstance {
    counter: u32,
    acceptor: Acceptor,
    /// As the leader, and in which interval it last tried.
    proposer: Option<(RejoinSubject, Proposer, u64)>,
}

/// All that is being decided.
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

    /// As the leader: a voter asks for a decision. What to tell all voters, unless one is under way.
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
                // The round goes on where that of another group of voters ended: ballots never come again.
                let round = other.as_ref().map_or(0, |(_, before, _)| before.round());
                let mut proposer = Proposer::new(me, voters, u64::from(asked_by.0));
                proposer.go_above(round);
                let message = proposer.start();
                *other = Some((subject, proposer, interval));
                Some(message)
            }
        }
    }

    /// As a voter: the answer to the leader.
    pub fn vote(
        &mut self,
        subject: RejoinSubject,
        willing: bool,
        message: &PaxosMessage,
    ) -> Option<PaxosMessage> {
        self.instance(subject).acceptor.receive(willing, message)
    }

    /// As the leader: a voter answered.
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

    /// The rank's counter moved on.
    pub fn remove(&mut self, rank: Rank) {
        self.instances.remove(&rank);
    }
}

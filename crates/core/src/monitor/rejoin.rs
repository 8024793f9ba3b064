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
use crate::monitor::message::Subject;
use crate::monitor::paxos::{Acceptor, Message, Proposer, Step};

#[derive(Clone, Debug)]
struct Case {
    counter: u32,
    acceptor: Acceptor,
    /// As the leader, and in which interval it last tried.
    proposer: Option<(Subject, Proposer, u64)>,
}

/// All that is being decided.
#[derive(Clone, Debug, Default)]
pub struct Rejoins {
    cases: BTreeMap<Rank, Case>,
}

impl Rejoins {
    fn case(&mut self, subject: Subject) -> &mut Case {
        let new = || Case {
            counter: subject.counter,
            acceptor: Acceptor::default(),
            proposer: None,
        };
        let case = self.cases.entry(subject.rank).or_insert_with(new);
        if case.counter != subject.counter {
            *case = new();
        }
        case
    }

    /// As the leader: a voter asks for a decision. What to tell all voters, unless one is under way.
    pub fn request(
        &mut self,
        me: Rank,
        subject: Subject,
        voters: &[Rank],
        asked_by: Rank,
        interval: u64,
    ) -> Option<Message> {
        let case = self.case(subject);
        match &mut case.proposer {
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
    pub fn vote(&mut self, subject: Subject, willing: bool, message: &Message) -> Option<Message> {
        self.case(subject).acceptor.hear(willing, message)
    }

    /// As the leader: a voter answered.
    pub fn count(&mut self, subject: Subject, from: Rank, message: &Message) -> Option<Step> {
        match &mut self.case(subject).proposer {
            Some((of, proposer, _)) if *of == subject => proposer.hear(from, message),
            _ => None,
        }
    }

    /// The rank's counter moved on.
    pub fn close(&mut self, rank: Rank) {
        self.cases.remove(&rank);
    }
}

//! The messages that monitors send to each other, and their bytes: a kind, varints, and a checksum
//! ([`crate::wire`]). Part of "DGRP implementation" of the 2018 paper, which does not fix a format.
//!
//! A test and its reply carry a digest of the sender's counters. A reply carries the counters themselves
//! only if the digests differ. So messages stay small and counters still spread with the tests: this is
//! how they spread in VCube's graph, and how a lost broadcast is made up for in the other graph.
//!
//! Must never: panic on bytes that are no message.

use crate::members::Rank;
use crate::monitor::paxos::{Ballot, PaxosMessage};
use crate::monitor::syndrome::CounterUpdates;
use crate::wire::{Reader, Writer};

/// The subject of a decision: may this rank, with this value of its counter, come back into the group?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejoinSubject {
    /// The rank that is to come back.
    pub rank: Rank,
    /// The rank's counter, which is odd.
    pub counter: u32,
    /// A fingerprint of the set of voters. Votes count together only if it is the same.
    pub voters: u32,
}

/// A message from one monitor to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorMessage {
    /// Asks the receiver to run the test procedure.
    Test {
        /// The tester's number for this test.
        number: u64,
        /// The digest of the tester's counters.
        digest: u64,
    },
    /// The result of the test procedure.
    Reply {
        /// The tester's number for the test.
        number: u64,
        /// The result.
        answer: u64,
        /// The digest of the tested rank's counters.
        digest: u64,
        /// The tested rank's counters, if their digest differs from the tester's.
        updates: CounterUpdates,
    },
    /// The sender's counters, for a receiver with a different digest.
    Counters(CounterUpdates),
    /// Events, broadcast to all survivors.
    Events {
        /// The rank that detected them.
        origin: Rank,
        /// The origin's number for this broadcast.
        number: u64,
        /// The counters after the events.
        updates: CounterUpdates,
    },
    /// Asks the leader to start a decision.
    Request(RejoinSubject),
    /// A message of the Paxos instance that decides on the subject.
    Vote(RejoinSubject, PaxosMessage),
}

/// Appends the number of updates, then for each the gap to the rank before it and the counter.
fn write_updates(out: &mut Writer, updates: &CounterUpdates) {
    out.varint(updates.len() as u64);
    let mut next = 0;
    for (rank, counter) in updates {
        out.varint(rank.0 - next).varint(*counter);
        next = rank.0 + 1;
    }
}

fn write_subject(out: &mut Writer, subject: RejoinSubject) {
    out.varint(subject.rank.0)
        .varint(subject.counter)
        .varint(subject.voters);
}

fn write_ballot(out: &mut Writer, ballot: Ballot) {
    out.varint(ballot.round).varint(ballot.by.0);
}

fn write_vote(out: &mut Writer, message: &PaxosMessage) {
    use PaxosMessage::{Accept, Accepted, Prepare, Promise, Refused};
    let (kind, ballot) = match *message {
        Prepare(ballot) => (0, ballot),
        Promise(ballot, None) => (1, ballot),
        Promise(ballot, Some(_)) => (2, ballot),
        Accept(ballot, _) => (3, ballot),
        Accepted(ballot) => (4, ballot),
        Refused(ballot, None) => (5, ballot),
        Refused(ballot, Some(_)) => (6, ballot),
    };
    write_ballot(out.u8(kind), ballot);
    match *message {
        Promise(_, Some((before, value))) => {
            write_ballot(out, before);
            out.varint(value);
        }
        Accept(_, value) => {
            out.varint(value);
        }
        Refused(_, Some(promised)) => write_ballot(out, promised),
        _ => {}
    }
}

/// Takes the fields of a message for a group of `ranks` ranks.
struct MessageReader<'a> {
    ranks: usize,
    fields: Reader<'a>,
}

impl MessageReader<'_> {
    fn rank(&mut self) -> Option<Rank> {
        let rank = self.fields.varint_u32()?;
        ((rank as usize) < self.ranks).then_some(Rank(rank))
    }

    fn updates(&mut self) -> Option<CounterUpdates> {
        let count = self.fields.varint_u32()? as usize;
        let (ranks, mut next) = (self.ranks, 0_u32);
        self.fields.repeat(count, |fields| {
            let rank = next.checked_add(fields.varint_u32()?)?;
            let counter = fields.varint_u32()?;
            next = rank.checked_add(1)?;
            ((rank as usize) < ranks).then_some((Rank(rank), counter))
        })
    }

    fn subject(&mut self) -> Option<RejoinSubject> {
        Some(RejoinSubject {
            rank: self.rank()?,
            counter: self.fields.varint_u32()?,
            voters: self.fields.varint_u32()?,
        })
    }

    fn ballot(&mut self) -> Option<Ballot> {
        Some(Ballot {
            round: self.fields.varint_u32()?,
            by: self.rank()?,
        })
    }

    fn vote(&mut self) -> Option<PaxosMessage> {
        use PaxosMessage::{Accept, Accepted, Prepare, Promise, Refused};
        let kind = self.fields.u8()?;
        let ballot = self.ballot()?;
        Some(match kind {
            0 => Prepare(ballot),
            1 => Promise(ballot, None),
            2 => Promise(ballot, Some((self.ballot()?, self.fields.varint()?))),
            3 => Accept(ballot, self.fields.varint()?),
            4 => Accepted(ballot),
            5 => Refused(ballot, None),
            6 => Refused(ballot, Some(self.ballot()?)),
            _ => return None,
        })
    }

    fn message(&mut self) -> Option<MonitorMessage> {
        Some(match self.fields.u8()? {
            0 => MonitorMessage::Test {
                number: self.fields.varint()?,
                digest: self.fields.varint()?,
            },
            1 => MonitorMessage::Reply {
                number: self.fields.varint()?,
                answer: self.fields.varint()?,
                digest: self.fields.varint()?,
                updates: self.updates()?,
            },
            2 => MonitorMessage::Counters(self.updates()?),
            3 => MonitorMessage::Events {
                origin: self.rank()?,
                number: self.fields.varint()?,
                updates: self.updates()?,
            },
            4 => MonitorMessage::Request(self.subject()?),
            5 => MonitorMessage::Vote(self.subject()?, self.vote()?),
            _ => return None,
        })
    }
}

impl MonitorMessage {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        match self {
            MonitorMessage::Test { number, digest } => {
                out.u8(0).varint(*number).varint(*digest);
            }
            MonitorMessage::Reply {
                number,
                answer,
                digest,
                updates,
            } => {
                out.u8(1).varint(*number).varint(*answer).varint(*digest);
                write_updates(&mut out, updates);
            }
            MonitorMessage::Counters(updates) => write_updates(out.u8(2), updates),
            MonitorMessage::Events {
                origin,
                number,
                updates,
            } => {
                out.u8(3).varint(origin.0).varint(*number);
                write_updates(&mut out, updates);
            }
            MonitorMessage::Request(subject) => write_subject(out.u8(4), *subject),
            MonitorMessage::Vote(subject, message) => {
                write_subject(out.u8(5), *subject);
                write_vote(&mut out, message);
            }
        }
        out.finish_checked()
    }

    /// Returns the message with these bytes, in a group of `ranks` ranks. None if the bytes are no
    /// message, or name a rank that the group does not have.
    pub fn decode(ranks: usize, bytes: &[u8]) -> Option<MonitorMessage> {
        let fields = Reader::checked(bytes)?;
        let mut reader = MessageReader { ranks, fields };
        let message = reader.message()?;
        reader.fields.end(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ballots(ranks: u32) -> impl Strategy<Value = Ballot> {
        (any::<u32>(), 0..ranks).prop_map(|(round, by)| Ballot {
            round,
            by: Rank(by),
        })
    }

    fn votes(ranks: u32) -> impl Strategy<Value = PaxosMessage> {
        use PaxosMessage::{Accept, Accepted, Prepare, Promise, Refused};
        let before = prop::option::of((ballots(ranks), any::<u64>()));
        prop_oneof![
            ballots(ranks).prop_map(Prepare),
            (ballots(ranks), before).prop_map(|(ballot, before)| Promise(ballot, before)),
            (ballots(ranks), any::<u64>()).prop_map(|(ballot, value)| Accept(ballot, value)),
            ballots(ranks).prop_map(Accepted),
            (ballots(ranks), prop::option::of(ballots(ranks)))
                .prop_map(|(ballot, promised)| Refused(ballot, promised)),
        ]
    }

    fn messages(ranks: u32) -> impl Strategy<Value = MonitorMessage> {
        let updates = || {
            let counters = prop::collection::btree_map(0..ranks, any::<u32>(), 0..ranks as usize);
            counters.prop_map(|updates| {
                updates
                    .into_iter()
                    .map(|(rank, counter)| (Rank(rank), counter))
                    .collect()
            })
        };
        let subject = || {
            let parts = (0..ranks, any::<u32>(), any::<u32>());
            parts.prop_map(|(rank, counter, voters)| RejoinSubject {
                rank: Rank(rank),
                counter,
                voters,
            })
        };
        prop_oneof![
            any::<(u64, u64)>()
                .prop_map(|(number, digest)| MonitorMessage::Test { number, digest }),
            (any::<(u64, u64, u64)>(), updates()).prop_map(
                |((number, answer, digest), updates)| {
                    MonitorMessage::Reply {
                        number,
                        answer,
                        digest,
                        updates,
                    }
                }
            ),
            updates().prop_map(MonitorMessage::Counters),
            (0..ranks, any::<u64>(), updates()).prop_map(|(origin, number, updates)| {
                MonitorMessage::Events {
                    origin: Rank(origin),
                    number,
                    updates,
                }
            }),
            subject().prop_map(MonitorMessage::Request),
            (subject(), votes(ranks))
                .prop_map(|(subject, vote)| MonitorMessage::Vote(subject, vote)),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive_a_round_trip((ranks, message) in (1_u32..50).prop_flat_map(|ranks| (Just(ranks), messages(ranks)))) {
            let bytes = message.encode();
            prop_assert_eq!(MonitorMessage::decode(ranks as usize, &bytes), Some(message));
        }

        #[test]
        fn decoding_any_bytes_ends(ranks in 0_usize..50, mut bytes: Vec<u8>) {
            MonitorMessage::decode(ranks, &bytes);
            // With a right checksum and a known kind as well.
            if let Some(kind) = bytes.first_mut() {
                *kind %= 6;
            }
            MonitorMessage::decode(ranks, &Writer::new().bytes(&bytes).finish_checked());
        }

        #[test]
        fn a_truncated_message_is_refused(message in messages(9), end: prop::sample::Index) {
            let bytes = message.encode();
            prop_assert_eq!(MonitorMessage::decode(9, &bytes[..end.index(bytes.len())]), None);
        }
    }

    #[test]
    fn a_message_that_names_a_rank_beyond_the_group_is_refused() {
        let last = Rank(5);
        let subject = |rank| RejoinSubject {
            rank,
            counter: 1,
            voters: 0,
        };
        let ballot = Ballot { round: 0, by: last };
        let messages = [
            MonitorMessage::Counters(vec![(last, 1)]),
            MonitorMessage::Events {
                origin: last,
                number: 0,
                updates: CounterUpdates::new(),
            },
            MonitorMessage::Request(subject(last)),
            MonitorMessage::Vote(subject(Rank(0)), PaxosMessage::Prepare(ballot)),
        ];
        for message in messages {
            let bytes = message.encode();
            assert_eq!(MonitorMessage::decode(5, &bytes), None);
            assert_eq!(MonitorMessage::decode(6, &bytes), Some(message));
        }
    }

    #[test]
    fn messages_are_small() {
        let test = MonitorMessage::Test {
            number: 30_000,
            digest: u64::MAX,
        };
        assert!(test.encode().len() <= 18);
        let updates = Rank::all(1024).map(|rank| (rank, 1)).collect();
        assert!(MonitorMessage::Counters(updates).encode().len() <= 2 * 1024 + 7);
    }
}

//! What monitors say to each other, as bytes. One codec for all: a kind, numbers as few bytes as they need,
//! and a checksum. Any bytes can come in; those that are no message are None.
//!
//! A test and its reply carry a digest of the counters, and the counters only where the digests differ: so
//! messages stay small, and news still travel with tests, which is how they spread in VCube's graph, and
//! how a lost broadcast is made good in the other.

use crate::members::Rank;
use crate::monitor::paxos::{self, Ballot};
use crate::monitor::syndrome::{News, decode as take_news, encode as put_news};
use crate::monitor::wire::{put, seal, take, take_u32, unseal};

/// What is decided: may a rank, whose counter is this, come back into a group?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Who.
    pub rank: Rank,
    /// Its counter, odd.
    pub counter: u32,
    /// The fingerprint of the set of voters: only those who mean the same are counted together.
    pub voters: u32,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Run the test procedure.
    Test {
        /// The tester's number for it.
        number: u64,
        /// Of the tester's counters.
        digest: u64,
    },
    /// The test procedure ran.
    Reply {
        /// The tester's number.
        number: u64,
        /// What came out.
        answer: u64,
        /// Of the tested rank's counters.
        digest: u64,
        /// The tested rank's counters, if they differ from the tester's.
        news: News,
    },
    /// The sender's counters, for one who knows less.
    Counters(News),
    /// Events, told to all.
    Events {
        /// Who noticed them.
        origin: Rank,
        /// The origin's number for them.
        number: u64,
        /// The counters from then on.
        news: News,
    },
    /// To the leader: have it decided.
    Request(Subject),
    /// Between the leader and the voters.
    Vote(Subject, paxos::Message),
}

fn put_subject(kind: u8, subject: Subject) -> Vec<u8> {
    let mut out = vec![kind];
    put(&mut out, u64::from(subject.rank.0));
    put(&mut out, u64::from(subject.counter));
    put(&mut out, u64::from(subject.voters));
    out
}

fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    put(out, u64::from(ballot.round));
    put(out, u64::from(ballot.by.0));
}

fn put_vote(out: &mut Vec<u8>, message: &paxos::Message) {
    use paxos::Message::{Accept, Accepted, Prepare, Promise, Refused};
    let (kind, ballot) = match *message {
        Prepare(ballot) => (0, ballot),
        Promise(ballot, None) => (1, ballot),
        Promise(ballot, Some(_)) => (2, ballot),
        Accept(ballot, _) => (3, ballot),
        Accepted(ballot) => (4, ballot),
        Refused(ballot, None) => (5, ballot),
        Refused(ballot, Some(_)) => (6, ballot),
    };
    out.push(kind);
    put_ballot(out, ballot);
    match *message {
        Promise(_, Some((before, value))) => {
            put_ballot(out, before);
            put(out, value);
        }
        Accept(_, value) => put(out, value),
        Refused(_, Some(promised)) => put_ballot(out, promised),
        _ => {}
    }
}

fn take_rank(ranks: usize, bytes: &mut &[u8]) -> Option<Rank> {
    let rank = take_u32(bytes)?;
    ((rank as usize) < ranks).then_some(Rank(rank))
}

fn take_subject(ranks: usize, bytes: &mut &[u8]) -> Option<Subject> {
    Some(Subject {
        rank: take_rank(ranks, bytes)?,
        counter: take_u32(bytes)?,
        voters: take_u32(bytes)?,
    })
}

fn take_ballot(ranks: usize, bytes: &mut &[u8]) -> Option<Ballot> {
    Some(Ballot {
        round: take_u32(bytes)?,
        by: take_rank(ranks, bytes)?,
    })
}

fn take_vote(ranks: usize, bytes: &mut &[u8]) -> Option<paxos::Message> {
    use paxos::Message::{Accept, Accepted, Prepare, Promise, Refused};
    let (kind, rest) = bytes.split_first()?;
    *bytes = rest;
    let ballot = take_ballot(ranks, bytes)?;
    Some(match kind {
        0 => Prepare(ballot),
        1 => Promise(ballot, None),
        2 => Promise(ballot, Some((take_ballot(ranks, bytes)?, take(bytes)?))),
        3 => Accept(ballot, take(bytes)?),
        4 => Accepted(ballot),
        5 => Refused(ballot, None),
        6 => Refused(ballot, Some(take_ballot(ranks, bytes)?)),
        _ => return None,
    })
}

impl Message {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let out = match self {
            Message::Test { number, digest } => {
                let mut out = vec![0];
                put(&mut out, *number);
                put(&mut out, *digest);
                out
            }
            Message::Reply {
                number,
                answer,
                digest,
                news,
            } => {
                let mut out = vec![1];
                for part in [number, answer, digest] {
                    put(&mut out, *part);
                }
                put_news(news, &mut out);
                out
            }
            Message::Counters(news) => {
                let mut out = vec![2];
                put_news(news, &mut out);
                out
            }
            Message::Events {
                origin,
                number,
                news,
            } => {
                let mut out = vec![3];
                put(&mut out, u64::from(origin.0));
                put(&mut out, *number);
                put_news(news, &mut out);
                out
            }
            Message::Request(subject) => put_subject(4, *subject),
            Message::Vote(subject, message) => {
                let mut out = put_subject(5, *subject);
                put_vote(&mut out, message);
                out
            }
        };
        seal(out)
    }

    /// The message that these bytes are, among so many ranks; None if they are none.
    pub fn decode(ranks: usize, bytes: &[u8]) -> Option<Message> {
        let (kind, rest) = unseal(bytes)?.split_first()?;
        let mut rest = rest;
        let bytes = &mut rest;
        let message = match kind {
            0 => Message::Test {
                number: take(bytes)?,
                digest: take(bytes)?,
            },
            1 => Message::Reply {
                number: take(bytes)?,
                answer: take(bytes)?,
                digest: take(bytes)?,
                news: take_news(ranks, bytes)?,
            },
            2 => Message::Counters(take_news(ranks, bytes)?),
            3 => Message::Events {
                origin: take_rank(ranks, bytes)?,
                number: take(bytes)?,
                news: take_news(ranks, bytes)?,
            },
            4 => Message::Request(take_subject(ranks, bytes)?),
            5 => Message::Vote(take_subject(ranks, bytes)?, take_vote(ranks, bytes)?),
            _ => return None,
        };
        rest.is_empty().then_some(message)
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

    fn votes(ranks: u32) -> impl Strategy<Value = paxos::Message> {
        use paxos::Message::{Accept, Accepted, Prepare, Promise, Refused};
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

    fn messages(ranks: u32) -> impl Strategy<Value = Message> {
        let news = || {
            let counters = prop::collection::btree_map(0..ranks, any::<u32>(), 0..ranks as usize);
            counters.prop_map(|news| {
                news.into_iter()
                    .map(|(rank, counter)| (Rank(rank), counter))
                    .collect()
            })
        };
        let subject = || {
            let parts = (0..ranks, any::<u32>(), any::<u32>());
            parts.prop_map(|(rank, counter, voters)| Subject {
                rank: Rank(rank),
                counter,
                voters,
            })
        };
        prop_oneof![
            any::<(u64, u64)>().prop_map(|(number, digest)| Message::Test { number, digest }),
            (any::<(u64, u64, u64)>(), news()).prop_map(|((number, answer, digest), news)| {
                Message::Reply {
                    number,
                    answer,
                    digest,
                    news,
                }
            }),
            news().prop_map(Message::Counters),
            (0..ranks, any::<u64>(), news()).prop_map(|(origin, number, news)| {
                Message::Events {
                    origin: Rank(origin),
                    number,
                    news,
                }
            }),
            subject().prop_map(Message::Request),
            (subject(), votes(ranks)).prop_map(|(subject, vote)| Message::Vote(subject, vote)),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive_their_encoding((ranks, message) in (1_u32..50).prop_flat_map(|ranks| (Just(ranks), messages(ranks)))) {
            prop_assert_eq!(Message::decode(ranks as usize, &message.encode()), Some(message));
        }

        #[test]
        fn any_bytes_are_survived(ranks in 0_usize..50, mut bytes: Vec<u8>) {
            Message::decode(ranks, &bytes);
            // Behind a right checksum, too, and of a kind that there is.
            if let Some(kind) = bytes.first_mut() {
                *kind %= 6;
            }
            Message::decode(ranks, &seal(bytes));
        }

        #[test]
        fn a_message_cut_short_is_none(message in messages(9), end: prop::sample::Index) {
            let bytes = message.encode();
            prop_assert_eq!(Message::decode(9, &bytes[..end.index(bytes.len())]), None);
        }
    }

    #[test]
    fn messages_are_small() {
        let test = Message::Test {
            number: 30_000,
            digest: u64::MAX,
        };
        assert!(test.encode().len() <= 18);
        let news = Rank::all(1024).map(|rank| (rank, 1)).collect();
        assert!(Message::Counters(news).encode().len() <= 2 * 1024 + 7);
    }
}

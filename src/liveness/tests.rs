//! Tests of groups of one process, which probe each other by their sockets.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use super::*;

/// Ranks of one group, which share the responder of this process.
fn ranks(count: u32) -> Vec<GroupLiveness> {
    let started = Instant::now();
    let ranks: Vec<_> = (0..count)
        .map(|rank| GroupLiveness::new(Rank(rank), started).expect("a socket"))
        .collect();
    let contacts: Vec<_> = (0..count)
        .map(Rank)
        .zip(ranks.iter().map(GroupLiveness::contact))
        .collect();
    for rank in &ranks {
        rank.meet(count as usize, &contacts);
    }
    ranks
}

/// Probes a rank until it has answered.
fn answer(from: &GroupLiveness, to: Rank) -> SignsOfLife {
    let before = from.signs_of_life(to).answered;
    for _ in 0..500 {
        from.probe(to);
        std::thread::sleep(Duration::from_millis(10));
        let signs = from.signs_of_life(to);
        if signs.answered > before {
            return signs;
        }
    }
    panic!("rank {to} does not answer");
}

#[test]
fn ranks_answer_their_activity() {
    let ranks = ranks(3);
    let signs = answer(&ranks[0], Rank(1));
    assert!(
        signs
            .at_work
            .is_some_and(|at_work| at_work == signs.answered)
    );
    let since = ranks[2].entry.now();
    ranks[2].publish(Activity::WaitingSince(since));
    let waits = |signs: SignsOfLife| {
        let at_work = signs.at_work.expect("it has answered");
        assert!(at_work >= since - 0.01, "{signs:?}");
        signs.answered - at_work >= 0.05
    };
    assert!((0..100).any(|_| waits(answer(&ranks[0], Rank(2)))));
    ranks[1].publish(Activity::Left);
    ranks[1].publish(Activity::AtWork);
    assert!(answer(&ranks[2], Rank(1)).left_since.is_some());
    assert!(answer(&ranks[0], Rank(2)).left_since.is_none());
}

/// Its address is not one of this host's interfaces.
#[test]
fn a_rank_of_another_host_is_probed_when_the_ranks_meet() {
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let socket = UdpSocket::bind((other, 0)).expect("a socket");
    let timeout = Some(Duration::from_secs(10));
    socket.set_read_timeout(timeout).expect("a timeout");
    let port = socket.local_addr().expect("an address").port();
    let contact = contact::encode(&[7; 16], port, &[other]);
    let rank = GroupLiveness::new(Rank(0), Instant::now()).expect("a socket");
    rank.meet(2, &[(Rank(1), contact)]);
    let mut bytes = [0; 64];
    let (length, _) = socket.recv_from(&mut bytes).expect("a probe");
    let probe = Message {
        token: [7; 16],
        rank: 0,
        content: Content::Probe(rank.entry.token),
    };
    assert_eq!(Message::decode(&bytes[..length]), Some(probe));
}

#[test]
fn a_group_that_has_ended_does_not_answer() {
    let mut ranks = ranks(2);
    answer(&ranks[0], Rank(1));
    drop(ranks.pop());
    // Answers to earlier probes may still arrive.
    let is_silent = (0..500).any(|_| {
        ranks[0].probe(Rank(1));
        std::thread::sleep(Duration::from_millis(20));
        ranks[0].signs_of_life(Rank(1)).unanswered >= 10
    });
    assert!(is_silent);
}

#[test]
fn a_datagram_without_the_token_gets_no_answer() {
    let ranks = ranks(2);
    let contact = ranks[1].contact();
    let (token, addresses) = contact::decode(&contact).expect("a contact");
    let port = u16::from_le_bytes([contact[16], contact[17]]);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let timeout = Some(Duration::from_millis(200));
    socket.set_read_timeout(timeout).expect("a timeout");
    let probe = |token: Token| Message {
        token,
        rank: 0,
        content: Content::Probe([5; 16]),
    };
    let mut bytes = [0; 64];
    let ask = |datagram: &[u8]| {
        socket
            .send_to(datagram, (Ipv4Addr::LOCALHOST, port))
            .expect("it is sent");
    };
    for datagram in [&probe([9; 16]).encode()[..], b"", &[0; 64], &[255; 48]] {
        ask(datagram);
        assert!(socket.recv_from(&mut bytes).is_err(), "{datagram:?}");
    }
    let timeout = Some(Duration::from_secs(10));
    socket.set_read_timeout(timeout).expect("a timeout");
    ask(&probe(token).encode());
    let (length, _) = socket.recv_from(&mut bytes).expect("an answer");
    let answer = Message::decode(&bytes[..length]).expect("a message");
    assert_eq!(
        (answer.token, answer.rank, answer.content),
        ([5; 16], 1, Content::AtWork)
    );
    assert!(addresses.len() <= 7);
}

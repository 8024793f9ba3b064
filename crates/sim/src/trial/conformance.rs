//! Cases that every transport must pass, which run on simulated ranks and on MPI.

use ftsort_core::members::{Rank, RankSet};
use ftsort_core::transport::{Agreed, Flow, Ticket, Transport};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// One case.
#[derive(Clone, Copy)]
pub struct ConformanceCase {
    /// The name of the case.
    pub name: &'static str,
    /// The number of ranks.
    pub ranks: usize,
    /// The ranks that fail.
    pub victims: &'static [u32],
    /// The program of each rank. Its error describes the error of the transport.
    pub run: fn(&mut dyn Transport) -> Result<()>,
}

/// All cases.
pub const CONFORMANCE_CASES: &[ConformanceCase] = &[
    ConformanceCase {
        name: "messages arrive complete and in order",
        ranks: 4,
        victims: &[],
        run: messages_in_order,
    },
    ConformanceCase {
        name: "receives settle before sends that no rank receives yet",
        ranks: 3,
        victims: &[],
        run: receives_before_sends,
    },
    ConformanceCase {
        name: "agreement is the AND of all flags",
        ranks: 4,
        victims: &[],
        run: agreement,
    },
    ConformanceCase {
        name: "discarded messages do not disturb later ones",
        ranks: 3,
        victims: &[],
        run: discarding,
    },
    ConformanceCase {
        name: "a failure is reported to all survivors",
        ranks: 4,
        victims: &[1],
        run: one_failure,
    },
    ConformanceCase {
        name: "a wait for a failed rank, or for a rank that waits for it, is interrupted",
        ranks: 4,
        victims: &[3],
        run: interruption,
    },
    ConformanceCase {
        name: "a message of an abandoned epoch is not received in the next epoch",
        ranks: 3,
        victims: &[2],
        run: late_message,
    },
    ConformanceCase {
        name: "a failure during a recovery is found by the next recovery",
        ranks: 5,
        victims: &[1, 2],
        run: failure_in_recovery,
    },
    ConformanceCase {
        name: "all ranks but the last fail",
        ranks: 5,
        victims: &[0, 1, 2, 3],
        run: last_one,
    },
];

/// Returns an error with this text unless the condition holds.
fn expect(holds: bool, error: &str) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(Error::new(Status::Internal, error))
    }
}

/// Makes a payload that depends on its sender and its number.
fn payload(from: Rank, number: usize, bytes: usize) -> Result<Slice> {
    let mut buffer = Buffer::zeroed(bytes)?;
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = (index + 7 * number + 31 * from.index()) as u8;
    }
    Ok(buffer.into())
}

fn others(transport: &dyn Transport) -> Vec<Rank> {
    let me = transport.me();
    Rank::all(transport.ranks())
        .filter(|rank| *rank != me)
        .collect()
}

fn messages_in_order(transport: &mut dyn Transport) -> Result<()> {
    let long = 3 * transport.eager_limit() + 5;
    let sizes = [0, 10, long, 1, transport.eager_limit()];
    let me = transport.me();
    let mut tickets = Vec::new();
    for other in others(transport) {
        for (number, bytes) in sizes.into_iter().enumerate() {
            transport.send(other, payload(me, number, bytes)?)?;
            // A short message may be shorter than its receive.
            let room = match bytes {
                1 => 100,
                bytes => bytes,
            };
            let ticket = transport.receive(other, room)?;
            tickets.push((ticket, payload(other, number, bytes)?));
        }
    }
    expect_messages(transport, tickets)?;
    expect_no_fault(transport)
}

fn receives_before_sends(transport: &mut dyn Transport) -> Result<()> {
    let me = transport.me();
    let sizes = [10, 3 * transport.eager_limit()];
    let others = others(transport);
    for other in &others {
        for (number, bytes) in sizes.into_iter().enumerate() {
            transport.send(*other, payload(me, number, bytes)?)?;
        }
    }
    let mut receive = |number: usize| -> Result<Vec<(Ticket, Slice)>> {
        let expected = others.iter().map(|other| {
            let expected = payload(*other, number, sizes[number])?;
            Ok((transport.receive(*other, sizes[number])?, expected))
        });
        let receives = expected.collect::<Result<Vec<_>>>()?;
        expect(
            transport.settle_receives()? == Flow::Done,
            "the wait was interrupted without a new failure",
        )?;
        Ok(receives)
    };
    let mut receives = receive(0)?;
    receives.extend(receive(1)?);
    expect_messages(transport, receives)?;
    expect_no_fault(transport)
}

/// Waits for the messages of these receives, and compares them.
fn expect_messages(transport: &mut dyn Transport, receives: Vec<(Ticket, Slice)>) -> Result<()> {
    expect(
        transport.settle()? == Flow::Done,
        "the wait was interrupted without a new failure",
    )?;
    for (ticket, expected) in receives {
        let got = transport.take(ticket);
        expect(
            got[..] == expected[..],
            "the received message differs from the sent one",
        )?;
    }
    Ok(())
}

fn expect_no_fault(transport: &mut dyn Transport) -> Result<()> {
    let text = "the agreement reports a failure, although no rank failed";
    expect(!transport.agree(1)?.faults, text)
}

fn agreement(transport: &mut dyn Transport) -> Result<()> {
    for round in 0..20 {
        let own = 0xffff ^ 1 << ((transport.me().0 + round) % 16);
        let all = (0..transport.ranks() as u32).fold(0xffff, |all, rank| {
            all & (0xffff ^ 1 << ((rank + round) % 16))
        });
        let expected = Agreed {
            flag: Some(all),
            faults: false,
        };
        expect(
            transport.agree(own)? == expected,
            "the result is not the AND of all flags",
        )?;
    }
    Ok(())
}

fn discarding(transport: &mut dyn Transport) -> Result<()> {
    let me = transport.me();
    let long = 2 * transport.eager_limit() + 1;
    let mut tickets = Vec::new();
    for other in others(transport) {
        transport.send(other, payload(me, 0, long)?)?;
        transport.send(other, payload(me, 1, 20)?)?;
        transport.discard(other, long)?;
        tickets.push((transport.receive(other, 20)?, payload(other, 1, 20)?));
    }
    expect_messages(transport, tickets)?;
    expect_no_fault(transport)
}

/// Agrees until all survivors know all failures. Returns the set of failed ranks.
fn find_failed(transport: &mut dyn Transport) -> Result<RankSet> {
    let mut failed = RankSet::new(transport.ranks());
    for _ in 0..1000 {
        if !transport.agree(1)?.faults {
            let print = failed.fingerprint() & 0x1fff;
            let agreed = transport.agree(print | (!print & 0x1fff) << 13)?;
            if agreed.faults {
                failed = transport.recover(&[])?;
                continue;
            }
            let is_same = |flag: u32| flag & 0x1fff == !(flag >> 13) & 0x1fff;
            let same = agreed.flag.is_some_and(is_same);
            expect(same, "survivors have different sets of failed ranks")?;
            return Ok(failed);
        }
        failed = transport.recover(&[])?;
    }
    Err(Error::new(
        Status::Internal,
        "agreements report failures without end",
    ))
}

fn expect_failed(transport: &mut dyn Transport, expected: &[u32]) -> Result<()> {
    let failed = find_failed(transport)?;
    let expected = expected.iter().map(|rank| Rank(*rank));
    let expected = RankSet::of(transport.ranks(), expected);
    expect(failed == expected, "the set of failed ranks is wrong")
}

fn fail(transport: &mut dyn Transport, victim: u32) -> Result<()> {
    if transport.me() == Rank(victim) {
        transport.crash()?;
    }
    Ok(())
}

/// Checks that every survivor can exchange a message with every other survivor.
fn exchange(transport: &mut dyn Transport, failed: &[u32], number: usize) -> Result<()> {
    let me = transport.me();
    let mut tickets = Vec::new();
    let living = others(transport);
    for other in living.into_iter().filter(|rank| !failed.contains(&rank.0)) {
        transport.send(other, payload(me, number, 1000)?)?;
        let ticket = transport.receive(other, 1000)?;
        tickets.push((ticket, payload(other, number, 1000)?));
    }
    expect_messages(transport, tickets)
}

fn one_failure(transport: &mut dyn Transport) -> Result<()> {
    fail(transport, 1)?;
    expect_failed(transport, &[1])?;
    exchange(transport, &[1], 5)?;
    expect(!transport.agree(1)?.faults, "an old failure counts as new")
}

fn interruption(transport: &mut dyn Transport) -> Result<()> {
    fail(transport, 3)?;
    // Rank 0 waits for rank 1, which waits for rank 2, which waits for the failed rank. No rank sends.
    let next = Rank(transport.me().0 + 1);
    let _ = transport.receive(next, 100)?;
    expect(
        transport.settle()? == Flow::Interrupted,
        "a message was received that no rank sent",
    )?;
    expect_failed(transport, &[3])?;
    exchange(transport, &[3], 2)
}

fn late_message(transport: &mut dyn Transport) -> Result<()> {
    fail(transport, 2)?;
    let me = transport.me();
    let long = 2 * transport.eager_limit();
    if me == Rank(0) {
        // No rank receives this message. (It is not sent if the failure is known already.)
        transport.send(Rank(1), payload(me, 9, long)?)?;
    } else {
        // No rank sends this message.
        let _ = transport.receive(Rank(2), 5)?;
    }
    expect_failed(transport, &[2])?;
    exchange(transport, &[2], 3)
}

fn failure_in_recovery(transport: &mut dyn Transport) -> Result<()> {
    fail(transport, 1)?;
    while !transport.agree(1)?.faults {}
    fail(transport, 2)?;
    let _ = transport.recover(&[])?;
    expect_failed_at_last(transport, &[1, 2])?;
    exchange(transport, &[1, 2], 4)
}

/// Does the same as [`expect_failed`] if a part of the failures may be known before.
fn expect_failed_at_last(transport: &mut dyn Transport, expected: &[u32]) -> Result<()> {
    for _ in 0..1000 {
        let _ = transport.agree(1)?;
        let failed = transport.recover(&[])?;
        if failed.len() == expected.len() {
            let known = expected.iter().all(|rank| failed.contains(Rank(*rank)));
            return expect(known, "the set of failed ranks is wrong");
        }
    }
    Err(Error::new(Status::Internal, "a failure is not found"))
}

fn last_one(transport: &mut dyn Transport) -> Result<()> {
    let last = transport.ranks() as u32 - 1;
    for victim in 0..last {
        fail(transport, victim)?;
        let failed: Vec<u32> = (0..=victim).collect();
        expect_failed_at_last(transport, &failed)?;
        exchange(transport, &failed, victim as usize)?;
        // A message of the next victim may be lost with it unless all ranks have received it. The victim may be the
        // first to learn the result and fail before the others do; then this agreement reports a failure.
        let _ = transport.agree(1)?;
    }
    Ok(())
}

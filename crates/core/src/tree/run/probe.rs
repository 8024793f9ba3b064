//! DETECT of the 1996 paper (Figures 7 and 8) over a transport that cannot cancel a message: every link of
//! the cube is tested with timed messages, and slow links are reported.
//!
//! The test finds links that are slow, and all ranks learn the result of every rank. It cannot find a link
//! that transmits nothing: a test over such a link ends only when its receiver fails, as every other message
//! there. Must never: return different links on different ranks.

use std::collections::BTreeMap;

use crate::engine::{CollectiveResult, ControlMessage, Engine, InStep, Verdict, agreed_error};
use crate::members::Rank;
use crate::tree::detect::{MissedTest, TestTimeout};
use crate::tree::faults::along;
use crate::vcube::Node;
use crate::wire::Reader;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result};

/// The number of tests of a link. A link is slow if all of them are late.
const TESTS_PER_LINK: u32 = 3;

/// The ratio of the longest timeout to the shortest.
const TIMEOUT_RATIO: u64 = 100;

/// The times of the tests with each neighbour, in microseconds.
type Times = BTreeMap<Rank, Vec<u64>>;

/// Returns the pairs of ranks between which all tests are late. A test is late if it took longer than the
/// rule of [`TestTimeout`] allows after all faster neighbours of one of the two ranks, and longer than
/// `least` microseconds; for the second test the limit is twice that, and for the third four times.
/// Collective.
pub fn slow_pairs(engine: &mut Engine<'_>, least: u64) -> CollectiveResult<Vec<(Rank, Rank)>> {
    let timeout = TestTimeout::new(
        least.max(1),
        least.max(1).saturating_mul(TIMEOUT_RATIO),
        TESTS_PER_LINK,
    );
    loop {
        let shared = match test_all(engine)? {
            Some(times) => share_slow(engine, &slow(&times, timeout.clone()))?,
            None => None,
        };
        match (engine.commit(shared.is_some(), None)?, shared) {
            (Verdict::Committed, Some(pairs)) => return Ok(pairs),
            (Verdict::Failed(status), _) => {
                return Err(agreed_error(status, None));
            }
            _ => {}
        }
    }
}

/// Tests all links of this rank. Two ranks test their links in the same order. None: a rank failed.
fn test_all(engine: &mut Engine<'_>) -> CollectiveResult<Option<Times>> {
    let me = engine.members.me();
    let cube = engine.members.cube().clone();
    let mut times = Times::new();
    for dimension in 0..cube.dimension() {
        let lower = cube.nodes().filter(|node| node.0 >> dimension & 1 == 0);
        for node in lower {
            let ends = [node, along(node, dimension)].map(|end: Node| engine.members.executor(end));
            let other = match ends {
                [one, other] if one == other => continue,
                [one, other] if one == me => other,
                [other, one] if one == me => other,
                _ => continue,
            };
            // The first exchange is not timed, because it waits until the other rank is ready.
            for test in 0..=TESTS_PER_LINK {
                let start = engine.transport.now();
                if !exchange(engine, other).or_apart()? {
                    return Ok(None);
                }
                let elapsed = (engine.transport.now() - start) * 1e6;
                if test > 0 {
                    times.entry(other).or_default().push(elapsed as u64);
                }
            }
        }
    }
    Ok(Some(times))
}

/// Exchanges an empty message with a rank. False: a rank failed.
fn exchange(engine: &mut Engine<'_>, other: Rank) -> Result<bool> {
    let me = engine.members.me();
    let messages = vec![
        ControlMessage::new(me, other, Some(Slice::default())),
        ControlMessage::new(other, me, None),
    ];
    Ok(engine.deliver(messages, 0)?.is_some())
}

/// Returns the neighbours for which all tests were late, compared with the times of the faster neighbours.
fn slow(times: &Times, mut timeout: TestTimeout) -> Vec<Rank> {
    let mut neighbours: Vec<(&Rank, &Vec<u64>)> = times.iter().collect();
    neighbours.sort_unstable_by_key(|(rank, times)| (times.iter().min().copied(), **rank));
    let mut slow = Vec::new();
    for (rank, times) in neighbours {
        let mut link = timeout.clone();
        let late = |time: &u64| {
            if *time <= link.limit() {
                link.arrived(*time);
                false
            } else {
                link.missed() == MissedTest::Faulty
            }
        };
        if times.iter().any(late) {
            slow.push(*rank)
        } else {
            timeout = link
        }
    }
    slow
}

/// Shares this rank's slow neighbours. Returns the pairs of all ranks. None: a rank failed.
fn share_slow(
    engine: &mut Engine<'_>,
    slow: &[Rank],
) -> CollectiveResult<Option<Vec<(Rank, Rank)>>> {
    let bytes = slow.iter().flat_map(|rank| rank.0.to_le_bytes()).collect();
    let ranks = engine.members.ranks();
    let limit = ranks * size_of::<u32>();
    let Some(shared) = engine.share(bytes, limit)? else {
        return Ok(None);
    };
    let mut pairs = Vec::new();
    for (reporter, bytes) in shared {
        let slow = Reader::new(&bytes).repeat_to_end(Reader::u32);
        let slow = slow.filter(|slow| slow.iter().all(|rank| (*rank as usize) < ranks));
        let undecodable = || Error::internal("a message with slow links does not decode");
        let slow = slow.ok_or_else(undecodable).or_apart()?.into_iter();
        pairs.extend(slow.map(|rank| (reporter, Rank(rank))));
    }
    Ok(Some(pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow_ranks(times: &[(u32, [u64; 3])], least: u64) -> Vec<u32> {
        let times = times
            .iter()
            .map(|(rank, times)| (Rank(*rank), times.to_vec()));
        let timeout = TestTimeout::new(least, least * TIMEOUT_RATIO, TESTS_PER_LINK);
        let slow = slow(&times.collect(), timeout);
        slow.iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn a_link_is_slow_if_all_its_tests_are_late() {
        let fine = [10, 12, 9];
        assert_eq!(
            slow_ranks(&[(1, fine), (2, fine), (4, fine)], 100),
            [0_u32; 0]
        );
        // The limits are 100, 200 and 400.
        assert_eq!(slow_ranks(&[(1, [900; 3]), (2, fine), (4, fine)], 100), [1]);
        assert_eq!(
            slow_ranks(&[(1, [900, 900, 300]), (2, fine)], 100),
            [0_u32; 0]
        );
        // One late test is not enough, and a rank on which all links are equally slow reports none.
        assert_eq!(
            slow_ranks(&[(1, fine), (2, [900, 10, 10])], 100),
            [0_u32; 0]
        );
        assert_eq!(slow_ranks(&[(1, [900; 3]), (2, [950; 3])], 100), [0_u32; 0]);
        // The longest timeout is the upper bound, which is the limit of an only link.
        assert_eq!(slow_ranks(&[(1, [10_000; 3])], 100), [0_u32; 0]);
        assert_eq!(slow_ranks(&[(1, [20_000; 3])], 100), [1]);
    }
}

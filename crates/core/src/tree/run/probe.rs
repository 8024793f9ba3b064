//! DETECT of the 1996 paper (Figures 7 and 8) over a transport that cannot give up on a message: every
//! link of the cube is tested with timed letters, and the slow ones are suspects.
//!
//! It sees links that are slow, and hears from all ranks which. It cannot see a link that carries nothing
//! at all: a test over it ends when its receiver dies, or never, as every other message there. Must
//! never: give different ranks different suspects.

use std::collections::BTreeMap;

use crate::engine::{ControlMessage, Engine, Verdict};
use crate::members::Rank;
use crate::tree::detect::{Missed, Patience};
use crate::tree::faults::along;
use crate::vcube::Node;
use ftsort_kernels::error::{Error, Result, Status};

/// How many tests a link gets; it is a suspect if all of them are late.
const TESTS: u32 = 3;

/// How many times longer than the shortest time limit the longest is.
const RANGE: u64 = 100;

/// How long tests took with each neighbour, in microseconds.
type Times = BTreeMap<Rank, Vec<u64>>;

/// The pairs of ranks between which tests are slow: each took longer than the rule of [`Patience`] allows
/// after all faster neighbours of one of the two; and longer than `least` microseconds, the second one
/// longer than twice that, the third longer than four times. Collective.
pub fn suspects(engine: &mut Engine<'_>, least: u64) -> Result<Vec<(Rank, Rank)>> {
    let timeout = Patience::new(least.max(1), least.max(1).saturating_mul(RANGE), TESTS);
    loop {
        let told = match test_all(engine)? {
            Some(times) => tell(engine, &slow(&times, timeout.clone()))?,
            None => None,
        };
        match (engine.commit(told.is_some(), None)?, told) {
            (Verdict::Committed, Some(pairs)) => return Ok(pairs),
            (Verdict::Failed(status), _) => {
                return Err(Error::new(status, "another rank could not test links"));
            }
            _ => {}
        }
    }
}

/// Tests all links of this rank; each two ranks test theirs in the same order. None: somebody died.
fn test_all(engine: &mut Engine<'_>) -> Result<Option<Times>> {
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
            // The first only waits until the other one is there.
            for test in 0..=TESTS {
                let start = engine.transport.now();
                if !exchange(engine, other)? {
                    return Ok(None);
                }
                let took = (engine.transport.now() - start) * 1e6;
                if test > 0 {
                    times.entry(other).or_default().push(took as u64);
                }
            }
        }
    }
    Ok(Some(times))
}

/// A letter there and one back. False: somebody died.
fn exchange(engine: &mut Engine<'_>, other: Rank) -> Result<bool> {
    let me = engine.members.me();
    let letter = |from, to| ControlMessage {
        from,
        to,
        payload: (from == me).then(Vec::new),
    };
    let letters = vec![letter(me, other), letter(other, me)];
    Ok(engine.deliver(letters, 0)?.is_some())
}

/// The neighbours all of whose tests were late, by what was usual with those before, fastest first.
fn slow(times: &Times, mut timeout: Patience) -> Vec<Rank> {
    let mut neighbours: Vec<(&Rank, &Vec<u64>)> = times.iter().collect();
    neighbours.sort_by_key(|(rank, times)| (times.iter().min().copied(), **rank));
    let mut slow = Vec::new();
    for (rank, times) in neighbours {
        let mut link = timeout.clone();
        let late = |time: &u64| match *time <= link.limit() {
            true => {
                link.came(*time);
                false
            }
            false => link.missed() == Missed::Faulty,
        };
        match times.iter().any(late) {
            true => slow.push(*rank),
            false => timeout = link,
        }
    }
    slow
}

/// Tells all ranks of this one's suspects; theirs and its own. None: somebody died.
fn tell(engine: &mut Engine<'_>, slow: &[Rank]) -> Result<Option<Vec<(Rank, Rank)>>> {
    let words = slow.iter().flat_map(|rank| rank.0.to_le_bytes()).collect();
    let limit = engine.members.ranks() * size_of::<u32>();
    let Some(told) = engine.share(words, limit)? else {
        return Ok(None);
    };
    let mut pairs = Vec::new();
    for (speaker, words) in told {
        for word in words.chunks_exact(size_of::<u32>()) {
            let word = word.try_into();
            let word = word.map_err(|_| Error::new(Status::Internal, "a torn word"))?;
            pairs.push((speaker, Rank(u32::from_le_bytes(word))));
        }
    }
    Ok(Some(pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(times: &[(u32, [u64; 3])], least: u64) -> Vec<u32> {
        let times = times
            .iter()
            .map(|(rank, times)| (Rank(*rank), times.to_vec()));
        let timeout = Patience::new(least, least * RANGE, TESTS);
        let slow = slow(&times.collect(), timeout);
        slow.iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn a_neighbour_is_slow_if_all_its_tests_are() {
        let fine = [10, 12, 9];
        assert_eq!(found(&[(1, fine), (2, fine), (4, fine)], 100), [0_u32; 0]);
        // 100, 200 and 400 are allowed.
        assert_eq!(found(&[(1, [900; 3]), (2, fine), (4, fine)], 100), [1]);
        assert_eq!(found(&[(1, [900, 900, 300]), (2, fine)], 100), [0_u32; 0]);
        // One late test is not enough, and everybody may be slow.
        assert_eq!(found(&[(1, fine), (2, [900, 10, 10])], 100), [0_u32; 0]);
        assert_eq!(found(&[(1, [900; 3]), (2, [950; 3])], 100), [0_u32; 0]);
        // But not without end.
        assert_eq!(found(&[(1, [20_000; 3])], 100), [1]);
    }
}

//! Is a sequence that is spread over nodes bitonic? From what each node tells of its share.

use std::cmp::Ordering;

use crate::block::Block;
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::Kernel;

/// What a node tells of its share: its ends, and how it goes up and down in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    count: u64,
    turns: Turns,
    /// The first and the last record; empty if there are none.
    first: Vec<u8>,
    last: Vec<u8>,
}

/// How a sequence goes up and down; steps to an equal record count as none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turns {
    /// The direction of the first step, and of the last: 0 if there is none, 1 up, 2 down.
    first: u8,
    last: u8,
    /// How often the direction changes; more than three times counts as three.
    changes: u8,
}

const FIXED: usize = 11;

/// The greatest size of [`Ends::encode`]'s result.
pub fn encoded_bytes(record_bytes: usize) -> usize {
    FIXED + 2 * record_bytes
}

impl Turns {
    fn step(&mut self, order: Ordering) {
        let direction = match order {
            Ordering::Less => 1,
            Ordering::Equal => return,
            Ordering::Greater => 2,
        };
        self.follow(Turns {
            first: direction,
            last: direction,
            changes: 0,
        });
    }

    /// Another sequence's turns come after these.
    fn follow(&mut self, next: Turns) {
        if next.first == 0 {
            return;
        }
        if self.first == 0 {
            *self = next;
            return;
        }
        let turn = u8::from(self.last != next.first);
        self.changes = (self.changes + turn + next.changes).min(3);
        self.last = next.last;
    }
}

impl Ends {
    /// Of a block as it was loaded.
    pub fn of(block: &Block, kernel: &dyn Kernel) -> Ends {
        let size = kernel.record_bytes();
        let mut turns = Turns::default();
        let mut ends: Option<(&[u8], &[u8])> = None;
        let mut count = 0;
        for record in block
            .runs
            .iter()
            .flat_map(|run| run.data.chunks_exact(size))
        {
            if let Some((_, last)) = ends {
                turns.step(kernel.compare(last, record));
            }
            ends = Some((ends.map_or(record, |(first, _)| first), record));
            count += 1;
        }
        let (first, last) = ends.unwrap_or_default();
        Ends {
            count,
            turns,
            first: first.to_vec(),
            last: last.to_vec(),
        }
    }

    /// As a message.
    pub fn encode(&self) -> Vec<u8> {
        let Turns {
            first,
            last,
            changes,
        } = self.turns;
        let mut out = self.count.to_le_bytes().to_vec();
        out.extend([first, last, changes]);
        out.extend(&self.first);
        out.extend(&self.last);
        out
    }

    pub(in crate::sort) fn decode(bytes: &[u8]) -> Option<Ends> {
        let (fixed, ends) = bytes.split_at_checked(FIXED)?;
        let (count, turns) = fixed.split_at(8);
        let (first, last) = ends.split_at(ends.len() / 2);
        Some(Ends {
            count: u64::from_le_bytes(count.try_into().ok()?),
            turns: Turns {
                first: turns[0],
                last: turns[1],
                changes: turns[2],
            },
            first: first.to_vec(),
            last: last.to_vec(),
        })
    }
}

/// The number of records in each share, if all shares are equal and together a bitonic sequence;
/// `Status::Argument` if not.
pub fn check(proposals: &[(Node, Slice)], kernel: &dyn Kernel) -> Result<u64> {
    let refuse = |text: String| Err(Error::new(Status::Argument, text));
    let told = proposals.iter().map(|(node, told)| {
        let broken = || Error::new(Status::Internal, "the ends of an input do not decode");
        Ok((*node, Ends::decode(told).ok_or_else(broken)?))
    });
    let told = told.collect::<Result<Vec<(Node, Ends)>>>()?;
    let count = told.first().map_or(0, |(_, ends)| ends.count);
    if let Some((node, other)) = told.iter().find(|(_, ends)| ends.count != count) {
        return refuse(format!(
            "count is {} on node {node} and {count} on node 0, but a bitonic sequence must be in \
             equal shares, on 2^d ranks",
            other.count
        ));
    }
    if count == 0 {
        return Ok(0);
    }
    let mut turns = Turns::default();
    for (index, (_, ends)) in told.iter().enumerate() {
        turns.follow(ends.turns);
        let (_, next) = &told[(index + 1) % told.len()];
        turns.step(kernel.compare(&ends.last, &next.first));
    }
    // Round the circle, from the end to the start again, the direction may change twice.
    let closing = u8::from(turns.first != turns.last);
    match turns.changes + closing {
        ..=2 => Ok(count),
        _ => refuse("input is not a bitonic sequence".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sort::testing::{block_of, kernel};
    use proptest::prelude::*;

    /// By definition: some rotation goes up and then down.
    fn is_bitonic(sequence: &[i32]) -> bool {
        (0..sequence.len().max(1)).any(|start| {
            let mut rotated = sequence.to_vec();
            rotated.rotate_left(start);
            let peak = rotated.windows(2).position(|pair| pair[0] > pair[1]);
            peak.is_none_or(|peak| rotated[peak..].is_sorted_by(|one, next| one >= next))
        })
    }

    fn found_bitonic(shares: &[&[i32]]) -> Result<u64> {
        let kernel = kernel();
        let told: Vec<(Node, Slice)> = (0..)
            .zip(shares)
            .map(|(node, share)| {
                let ends = Ends::of(&block_of(node, share), &*kernel).encode();
                assert!(ends.len() <= encoded_bytes(4));
                let ends = ftsort_kernels::buffer::Buffer::copy_of(&ends).unwrap();
                (Node(node), ends.into())
            })
            .collect();
        check(&told, &*kernel)
    }

    #[test]
    fn the_papers_examples() {
        assert_eq!(found_bitonic(&[&[2, 3], &[6, 8], &[7, 5], &[4, 1]]), Ok(2));
        assert_eq!(found_bitonic(&[&[6, 8, 7, 5], &[4, 1, 2, 3]]), Ok(4));
        let error = found_bitonic(&[&[7, 3, 6, 8], &[1, 2, 5, 4]]).unwrap_err();
        assert_eq!(error.status, Status::Argument);
        let error = found_bitonic(&[&[1, 2], &[3]]).unwrap_err();
        assert!(error.text.contains("count is 1 on node 1 and 2 on node 0"));
    }

    proptest! {
        #[test]
        fn as_by_definition(
            sequence in prop::collection::vec(0_i32..4, 0..9),
            shares in 1_usize..5,
        ) {
            let mut sequence = sequence;
            sequence.truncate(sequence.len() / shares * shares);
            let each = sequence.len() / shares;
            let split: Vec<&[i32]> = (0..shares).map(|at| &sequence[at * each..][..each]).collect();
            prop_assert_eq!(found_bitonic(&split).is_ok(), is_bitonic(&sequence));
        }
    }
}

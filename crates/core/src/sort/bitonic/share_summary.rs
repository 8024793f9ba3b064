//! Checks whether a sequence that is distributed over nodes is bitonic, from a summary of each node's share:
//! the precondition of Algorithm 3 of the 2024 paper.
//!
//! Must never: need more of a share than its summary, which has a fixed size.

use std::cmp::Ordering;

use crate::block::Block;
use crate::vcube::Node;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::kernel::Kernel;

/// A summary of a node's share: its first and last record, and the directions in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareSummary {
    count: u64,
    directions: Directions,
    /// The first and the last record; empty if the share is empty.
    first: Vec<u8>,
    last: Vec<u8>,
}

/// The directions of a sequence. A step to an equal record has no direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Directions {
    /// The directions of the first and of the last step: 0 none, 1 up, 2 down.
    first: u8,
    last: u8,
    /// The number of changes of direction, at most 3.
    changes: u8,
}

const FIXED_BYTES: usize = 11;

/// Returns the greatest size of the result of [`ShareSummary::encode`], in bytes.
pub fn encoded_bytes(record_bytes: usize) -> usize {
    FIXED_BYTES + 2 * record_bytes
}

impl Directions {
    fn step(&mut self, order: Ordering) {
        let direction = match order {
            Ordering::Less => 1,
            Ordering::Equal => return,
            Ordering::Greater => 2,
        };
        self.append(Directions {
            first: direction,
            last: direction,
            changes: 0,
        });
    }

    /// Appends the directions of another sequence.
    fn append(&mut self, next: Directions) {
        if next.first == 0 {
            return;
        }
        if self.first == 0 {
            *self = next;
            return;
        }
        let change = u8::from(self.last != next.first);
        // A message may state any number.
        let changes = self.changes.saturating_add(next.changes);
        self.changes = changes.saturating_add(change).min(3);
        self.last = next.last;
    }
}

impl ShareSummary {
    /// Summarises a block as it was loaded.
    pub fn of(block: &Block, kernel: &dyn Kernel) -> ShareSummary {
        let size = kernel.record_bytes();
        let mut directions = Directions::default();
        let mut ends: Option<(&[u8], &[u8])> = None;
        let mut count = 0;
        for record in block
            .runs
            .iter()
            .flat_map(|run| run.data.chunks_exact(size))
        {
            if let Some((_, last)) = ends {
                directions.step(kernel.compare(last, record));
            }
            ends = Some((ends.map_or(record, |(first, _)| first), record));
            count += 1;
        }
        let (first, last) = ends.unwrap_or_default();
        ShareSummary {
            count,
            directions,
            first: first.to_vec(),
            last: last.to_vec(),
        }
    }

    /// Returns the summary as a message.
    pub fn encode(&self) -> Vec<u8> {
        let Directions {
            first,
            last,
            changes,
        } = self.directions;
        let mut out = Writer::new();
        out.u64(self.count).bytes(&[first, last, changes]);
        out.bytes(&self.first).bytes(&self.last).finish()
    }

    pub(in crate::sort) fn decode(bytes: &[u8]) -> Option<ShareSummary> {
        let mut fields = Reader::new(bytes);
        let count = fields.u64()?;
        let directions = Directions {
            first: fields.u8()?,
            last: fields.u8()?,
            changes: fields.u8()?,
        };
        let ends = fields.rest();
        let (first, last) = ends.split_at(ends.len() / 2);
        Some(ShareSummary {
            count,
            directions,
            first: first.to_vec(),
            last: last.to_vec(),
        })
    }
}

/// Returns the number of records in each share. Returns `Status::Argument` if the shares differ in size, or
/// are not a bitonic sequence together.
pub fn check(proposals: &[(Node, Slice)], kernel: &dyn Kernel) -> Result<u64> {
    let summaries = proposals.iter().map(|(node, summary)| {
        let undecodable = || Error::internal("the summary of an input does not decode");
        let summary = ShareSummary::decode(summary).ok_or_else(undecodable)?;
        let record = if summary.count == 0 {
            0
        } else {
            kernel.record_bytes()
        };
        if summary.first.len() != record || summary.last.len() != record {
            return Err(undecodable());
        }
        Ok((*node, summary))
    });
    let summaries = summaries.collect::<Result<Vec<(Node, ShareSummary)>>>()?;
    let count = summaries.first().map_or(0, |(_, summary)| summary.count);
    if let Some((node, other)) = summaries.iter().find(|(_, summary)| summary.count != count) {
        return Err(Error::argument(format!(
            "count is {} on node {node} and {count} on node 0, but a bitonic sequence needs \
             equal shares, on 2^d ranks",
            other.count
        )));
    }
    if count == 0 {
        return Ok(0);
    }
    let mut directions = Directions::default();
    for (index, (_, summary)) in summaries.iter().enumerate() {
        directions.append(summary.directions);
        let (_, next) = &summaries[(index + 1) % summaries.len()];
        directions.step(kernel.compare(&summary.last, &next.first));
    }
    // On the cycle that closes the sequence from its end to its start, the direction may change twice.
    let closing = u8::from(directions.first != directions.last);
    match directions.changes + closing {
        ..=2 => Ok(count),
        _ => Err(Error::argument("the input is not a bitonic sequence")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sort::testing::{block_of, kernel};
    use ftsort_kernels::error::Status;
    use proptest::prelude::*;

    /// The definition: some rotation of the sequence rises and then falls.
    fn is_bitonic(sequence: &[i32]) -> bool {
        (0..sequence.len().max(1)).any(|start| {
            let mut rotated = sequence.to_vec();
            rotated.rotate_left(start);
            let peak = rotated.windows(2).position(|pair| pair[0] > pair[1]);
            peak.is_none_or(|peak| rotated[peak..].is_sorted_by(|one, next| one >= next))
        })
    }

    fn check_shares(shares: &[&[i32]]) -> Result<u64> {
        let kernel = kernel();
        let summaries: Vec<(Node, Slice)> = (0..)
            .zip(shares)
            .map(|(node, share)| {
                let summary = ShareSummary::of(&block_of(node, share), &*kernel).encode();
                assert!(summary.len() <= encoded_bytes(4));
                let summary = ftsort_kernels::buffer::Buffer::copy_of(&summary).unwrap();
                (Node(node), summary.into())
            })
            .collect();
        check(&summaries, &*kernel)
    }

    #[test]
    fn accepts_and_refuses_the_papers_examples() {
        assert_eq!(check_shares(&[&[2, 3], &[6, 8], &[7, 5], &[4, 1]]), Ok(2));
        assert_eq!(check_shares(&[&[6, 8, 7, 5], &[4, 1, 2, 3]]), Ok(4));
        let error = check_shares(&[&[7, 3, 6, 8], &[1, 2, 5, 4]]).unwrap_err();
        assert_eq!(error.status, Status::Argument);
        let error = check_shares(&[&[1, 2], &[3]]).unwrap_err();
        assert!(error.text.contains("count is 1 on node 1 and 2 on node 0"));
    }

    #[test]
    fn counts_any_numbers_of_changes_as_too_many() {
        let stated = |direction, changes| Directions {
            first: direction,
            last: direction,
            changes,
        };
        let mut directions = stated(1, u8::MAX);
        directions.append(stated(2, u8::MAX));
        assert_eq!(directions.changes, 3);
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            sequence in prop::collection::vec(0_i32..4, 0..9),
            shares in 1_usize..5,
        ) {
            let mut sequence = sequence;
            sequence.truncate(sequence.len() / shares * shares);
            let each = sequence.len() / shares;
            let split: Vec<&[i32]> = (0..shares).map(|at| &sequence[at * each..][..each]).collect();
            prop_assert_eq!(check_shares(&split).is_ok(), is_bitonic(&sequence));
        }
    }
}

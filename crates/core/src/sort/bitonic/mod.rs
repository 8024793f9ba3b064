//! Bitonic sort (Batcher 1968) on the hypercube, following the 2024 and 2019 papers: Algorithm 4 for any
//! input, Algorithm 3 for input that is bitonic already.
//!
//! Partners send each other their whole blocks, and each keeps the smaller or the greater half of both
//! together (a merge-split). The 2024 paper takes the minima index by index, which does not sort blocks. In
//! the stage that sorts subcubes of dimension s + 1, node k and its partner in dimension t exchange; the
//! smaller half goes to the node with equal bits s + 1 and t (Algorithm 4, line 13, prints the opposite).
//!
//! All blocks are treated as if they were as long as the longest one, filled with records that come after all
//! others, so any number of nodes with any number of records sorts. A block stays a list of runs; halves are
//! cut in the total order (key, origin, position), so the sort is stable, and the runs are merged at the end. A half
//! is a view of two whole blocks; in every second round it is copied, so that the others can be freed.
//!
//! Cost: log2(N) (log2(N) + 1) / 2 rounds with one exchange of whole blocks each; Algorithm 3 takes log2(N)
//! rounds and one round that checks its input. One decision, in the first round. The messages' sizes and
//! partners do not depend on the data. Must never: depend on failures.

mod share_summary;

use super::division::halves;
use super::sorted;
use crate::block::{Block, Run};
use crate::engine::{Algorithm, Exchange, RoundContext, Split, Step, Subcube};
use crate::vcube::Node;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::kernel::Kernel;
pub(super) use share_summary::ShareSummary;

/// The form of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Any input, sorted by Algorithm 4.
    Any,
    /// All inputs one after the other are a bitonic sequence, in equal shares, on a full cube. Algorithm 3
    /// sorts it, after a check of this precondition.
    Bitonic,
}

/// Bitonic sort on a cube of a given dimension.
#[derive(Debug)]
pub struct Bitonic<'a> {
    /// The kernel that sorts, compares and merges.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// The form of the input.
    pub shape: Shape,
}

/// The decision of the first round.
pub(super) enum InputCheck {
    /// The size of the longest block, in records.
    Longest(u64),
    /// The input does not have the form that the caller stated; the reason.
    Refused(String),
}

const INPUT_CHECK_BYTES: usize = 256;

impl InputCheck {
    /// Returns a byte for the variant, and the number or the text.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            InputCheck::Longest(longest) => Writer::new().u8(0).u64(*longest).finish(),
            InputCheck::Refused(text) => {
                let mut end = text.len().min(INPUT_CHECK_BYTES - 1);
                // The text is not cut within a character.
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                Writer::new().u8(1).bytes(&text.as_bytes()[..end]).finish()
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<InputCheck> {
        let mut fields = Reader::new(bytes);
        let mut check = || match fields.u8()? {
            0 => {
                let longest = fields.u64()?;
                fields.end(InputCheck::Longest(longest))
            }
            _ => {
                let text = String::from_utf8_lossy(fields.rest());
                Some(InputCheck::Refused(text.into_owned()))
            }
        };
        check().ok_or_else(|| Error::internal("the decision of the first round does not decode"))
    }
}

/// A merge-split along dimension t, in the stage that sorts subcubes of dimension s + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MergeSplit {
    s: u32,
    t: u32,
}

impl Bitonic<'_> {
    fn nodes(&self) -> usize {
        1 << self.dimension
    }

    /// Returns the size of the longest block, in records, from the first round's decision. Returns
    /// `Status::Argument` if the input was refused.
    pub(super) fn longest(decision: &[u8]) -> Result<usize> {
        match InputCheck::decode(decision)? {
            InputCheck::Longest(longest) => Ok(longest as usize),
            InputCheck::Refused(text) => Err(Error::argument(text)),
        }
    }

    /// Returns the merge-splits of all stages, in order.
    fn merge_splits(&self) -> Vec<MergeSplit> {
        let first = match self.shape {
            Shape::Any => 0,
            Shape::Bitonic => self.dimension.saturating_sub(1),
        };
        let stages = first..self.dimension;
        stages
            .flat_map(|s| (0..=s).rev().map(move |t| MergeSplit { s, t }))
            .collect()
    }

    /// Returns the number of rounds that check the input: 1 in Algorithm 3.
    fn check_rounds(&self) -> u32 {
        u32::from(self.shape == Shape::Bitonic)
    }

    fn merge_split(&self, round: u32) -> Option<MergeSplit> {
        let index = round.checked_sub(1 + self.check_rounds())?;
        self.merge_splits().get(index as usize).copied()
    }

    /// Whether node k keeps the smaller half.
    fn keeps_smaller(merge_split: MergeSplit, k: Node) -> bool {
        (k.0 >> (merge_split.s + 1) ^ k.0 >> merge_split.t) & 1 == 0
    }

    fn records(&self, block: &Block) -> usize {
        block.bytes() / self.kernel.record_bytes()
    }

    /// Copies the records into one buffer, and joins consecutive runs of one origin.
    fn compact(&self, block: Block) -> Result<Block> {
        let parts: Vec<&[u8]> = block.runs.iter().map(|run| &run.data[..]).collect();
        let records = Slice::from(Buffer::concatenated(&parts)?);
        let size = self.kernel.record_bytes();
        let mut runs: Vec<Run> = Vec::new();
        let (mut start, mut end) = (0, 0);
        for run in block.runs {
            let first = end;
            end += run.data.len();
            let follows = |last: &&mut Run| {
                let after = last.start + (last.data.len() / size) as u64;
                last.origin == run.origin && after == run.start
            };
            if let Some(last) = runs.last_mut().filter(follows) {
                last.data = records.part(start..end);
            } else {
                start = first;
                let data = records.part(start..end);
                runs.push(Run { data, ..run });
            }
        }
        Ok(Block::of_sorted(runs))
    }
}

impl Algorithm for Bitonic<'_> {
    fn rounds(&self) -> u32 {
        self.check_rounds() + self.merge_splits().len() as u32
    }

    fn step(&self, round: u32) -> Step {
        Step {
            scope: (round == 1).then_some(self.dimension),
            exchange: match self.merge_split(round) {
                Some(merge_split) => Exchange::Dimension(merge_split.t),
                None => Exchange::Nothing,
            },
        }
    }

    fn prepare(&self, block: Block) -> Result<Block> {
        match self.shape {
            Shape::Any => sorted(block, self.kernel),
            // The check reads the input in its original order.
            Shape::Bitonic => Ok(block),
        }
    }

    fn propose(
        &self,
        _at: &RoundContext<'_>,
        _subcube: &Subcube,
        block: &Block,
    ) -> Result<Vec<u8>> {
        let records = self.records(block) as u64;
        Ok(match self.shape {
            Shape::Any => records.to_le_bytes().to_vec(),
            Shape::Bitonic => ShareSummary::of(block, self.kernel).encode(),
        })
    }

    fn decide(
        &self,
        _at: &RoundContext<'_>,
        _subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        let longest = match self.shape {
            Shape::Any => {
                let counts = proposals
                    .iter()
                    .filter_map(|(_, count)| count[..].try_into().ok());
                counts.map(u64::from_le_bytes).max().unwrap_or(0)
            }
            Shape::Bitonic => match share_summary::check(proposals, self.kernel) {
                Ok(count) => count,
                // As a decision, the error reaches all nodes and not only the root.
                Err(error) => return Ok(InputCheck::Refused(error.text).encode()),
            },
        };
        Ok(InputCheck::Longest(longest).encode())
    }

    fn proposal_limit(&self, _round: u32) -> usize {
        share_summary::encoded_bytes(self.kernel.record_bytes())
    }

    fn decision_limit(&self, _round: u32) -> usize {
        INPUT_CHECK_BYTES
    }

    fn most_runs(&self) -> usize {
        8 * self.nodes()
    }

    fn is_recomputable(&self) -> bool {
        false
    }

    fn split(&self, _at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        Ok(Split {
            keep: block.clone(),
            give: vec![block.clone()],
        })
    }

    fn join(&self, at: &RoundContext<'_>, keep: Block, got: Block) -> Result<Block> {
        let longest = Bitonic::longest(at.decision)?;
        let Some(merge_split) = self.merge_split(at.round) else {
            return sorted(keep, self.kernel);
        };
        let first = Bitonic::keeps_smaller(merge_split, at.node);
        let both = Block::unite([keep, got]);
        let smaller = self.records(&both).min(longest);
        let (smaller, greater) = halves(both, smaller, self.kernel);
        let half = if first { smaller } else { greater };
        // After the last round the merge copies the records.
        if at.round.is_multiple_of(2) && self.merge_split(at.round + 1).is_some() {
            self.compact(half)
        } else {
            Ok(half)
        }
    }
}

#[cfg(test)]
mod tests;

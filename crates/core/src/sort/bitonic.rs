//! Bitonic sort (Batcher 1968) on the hypercube, as the 2024 and 2019 papers have it: Algorithm 4 for
//! any input, Algorithm 3 for input that is bitonic already.
//!
//! Neighbours send each other their whole blocks, and one keeps the smaller half of both together (a
//! merge-split), where the 2024 paper takes the minima index by index, which does not sort blocks. Of
//! node k and its neighbour in dimension t + 1, in the stage that sorts subcubes of dimension s + 1,
//! that one keeps the smaller half whose bits s + 1 and t are equal (Algorithm 4, line 13, prints the
//! opposite).
//!
//! All blocks count as long as the longest one, with records at the end that come after all others:
//! so any number of nodes with any number of records sorts. A block stays a list of runs; halves are
//! cut in the total order (key, origin, position), so that the sort is stable, and merged at the end.
//!
//! Cost: log2(N) (log2(N) + 1) / 2 rounds with one exchange of whole blocks each; Algorithm 3 takes
//! log2(N) and a round that checks. One decision, in the first round. Data do not influence who sends
//! how much to whom. Must never: look at who is alive.

mod ends;

use super::pivot::halves;
use super::sorted;
use crate::block::{Block, Run};
use crate::engine::{Algorithm, Exchange, RoundContext, Split, Step, Subcube};
use crate::vcube::Node;
pub(super) use ends::Ends;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::Kernel;

/// What is known of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Nothing: Algorithm 4.
    Any,
    /// All inputs one after the other are a bitonic sequence, in equal shares, on a full cube:
    /// Algorithm 3. It is checked.
    Bitonic,
}

/// Bitonic sort on a cube of some dimension.
#[derive(Debug)]
pub struct Bitonic<'a> {
    /// Sorts, compares and merges.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// What is known of the input.
    pub shape: Shape,
}

/// What the first round decides.
pub(super) enum Verdict {
    /// The size of the longest block, in records.
    Longest(u64),
    /// The input is not what it is said to be.
    Refused(String),
}

const VERDICT_BYTES: usize = 256;

impl Verdict {
    /// A byte that tells which, and the number or the text.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Verdict::Longest(longest) => [&[0][..], &longest.to_le_bytes()].concat(),
            Verdict::Refused(text) => {
                let mut end = text.len().min(VERDICT_BYTES - 1);
                // Not in the middle of a character.
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                [&[1][..], &text.as_bytes()[..end]].concat()
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Verdict> {
        let broken = || Error::new(Status::Internal, "the first decision does not decode");
        let (kind, what) = bytes.split_first().ok_or_else(broken)?;
        match kind {
            0 => {
                let longest = what.try_into().map_err(|_| broken())?;
                Ok(Verdict::Longest(u64::from_le_bytes(longest)))
            }
            _ => Ok(Verdict::Refused(String::from_utf8_lossy(what).into_owned())),
        }
    }
}

/// A merge-split: in the stage that sorts subcubes of dimension s + 1, along dimension t + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stage {
    s: u32,
    t: u32,
}

/// A block has more runs than nodes only in the middle of a stage; beyond so many times more, pieces
/// that follow each other are made one.
const RUNS_PER_NODE: usize = 2;

impl Bitonic<'_> {
    fn nodes(&self) -> usize {
        1 << self.dimension
    }

    /// The size of the longest block, in records, from the first round's decision.
    pub(super) fn longest(decision: &[u8]) -> Result<usize> {
        match Verdict::decode(decision)? {
            Verdict::Longest(longest) => Ok(longest as usize),
            Verdict::Refused(text) => Err(Error::new(Status::Argument, text)),
        }
    }

    /// The stages, in order.
    fn stages(&self) -> Vec<Stage> {
        let first = match self.shape {
            Shape::Any => 0,
            Shape::Bitonic => self.dimension.saturating_sub(1),
        };
        let stages = first..self.dimension;
        stages
            .flat_map(|s| (0..=s).rev().map(move |t| Stage { s, t }))
            .collect()
    }

    /// The round of Algorithm 3 that checks.
    fn checks(&self) -> u32 {
        u32::from(self.shape == Shape::Bitonic)
    }

    fn stage(&self, round: u32) -> Option<Stage> {
        let index = round.checked_sub(1 + self.checks())?;
        self.stages().get(index as usize).copied()
    }

    /// Does node k keep the smaller half?
    fn keeps_smaller(stage: Stage, k: Node) -> bool {
        (k.0 >> (stage.s + 1) ^ k.0 >> stage.t) & 1 == 0
    }

    fn records(&self, block: &Block) -> usize {
        block.bytes() / self.kernel.record_bytes()
    }

    /// Runs of one origin that follow each other become one.
    fn compact(&self, block: Block) -> Result<Block> {
        if block.runs.len() <= RUNS_PER_NODE * self.nodes() {
            return Ok(block);
        }
        let size = self.kernel.record_bytes();
        let mut groups: Vec<Vec<Run>> = Vec::new();
        for run in block.runs {
            let follows = |last: &Run| {
                let end = last.start + (last.data.len() / size) as u64;
                last.origin == run.origin && end == run.start
            };
            match groups.last_mut() {
                Some(group) if group.last().is_some_and(follows) => group.push(run),
                _ => groups.push(vec![run]),
            }
        }
        let runs = groups.into_iter().map(|group| one_run(&group));
        Ok(Block {
            runs: runs.collect::<Result<_>>()?,
            sorted: true,
            digest: None,
        })
    }
}

fn one_run(group: &[Run]) -> Result<Run> {
    if let [only] = group {
        return Ok(only.clone());
    }
    let bytes = group.iter().map(|run| run.data.len()).sum();
    let mut data = Buffer::unset(bytes)?;
    let mut rest = &mut data[..];
    for run in group {
        let (place, later) = rest.split_at_mut(run.data.len());
        place.copy_from_slice(&run.data);
        rest = later;
    }
    Ok(Run {
        data: data.into(),
        ..group[0].clone()
    })
}

impl Algorithm for Bitonic<'_> {
    fn rounds(&self) -> u32 {
        self.checks() + self.stages().len() as u32
    }

    fn step(&self, round: u32) -> Step {
        Step {
            scope: (round == 1).then_some(self.dimension),
            exchange: match self.stage(round) {
                Some(stage) => Exchange::Dimension(stage.t),
                None => Exchange::Nothing,
            },
        }
    }

    fn prepare(&self, block: Block) -> Result<Block> {
        match self.shape {
            Shape::Any => sorted(block, self.kernel),
            // The check looks at the input as it is.
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
            Shape::Bitonic => Ends::of(block, self.kernel).encode(),
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
            Shape::Bitonic => match ends::check(proposals, self.kernel) {
                Ok(count) => count,
                // Everybody is to return it, not the root alone.
                Err(error) => return Ok(Verdict::Refused(error.text).encode()),
            },
        };
        Ok(Verdict::Longest(longest).encode())
    }

    fn proposal_limit(&self, _round: u32) -> usize {
        ends::encoded_bytes(self.kernel.record_bytes())
    }

    fn decision_limit(&self, _round: u32) -> usize {
        VERDICT_BYTES
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
        let Some(stage) = self.stage(at.round) else {
            return sorted(keep, self.kernel);
        };
        let first = Bitonic::keeps_smaller(stage, at.node);
        let both = Block::unite([keep, got]);
        let smaller = self.records(&both).min(longest);
        let (smaller, greater) = halves(both, smaller, self.kernel);
        self.compact(if first { smaller } else { greater })
    }
}

#[cfg(test)]
mod tests;

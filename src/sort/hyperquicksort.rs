//! HyperQuickSort (Wagar 1987), as the 2024 paper has it in Section 4.1 and Algorithm 1.
//!
//! In each round the cube is cut into halves at a pivot: the lower half keeps what is below it, the
//! upper half what is above, and neighbours across the cut exchange the rest. After log2(N) rounds
//! node i holds the i-th part. Inputs are sorted once, before the first round; the pieces stay
//! sorted runs and are merged at the end, where the paper sorts the whole list again every round.
//!
//! Cost: log2(N) + 1 rounds; each exchange moves half of a node's block on average.
//! Must never: look at who is alive, but for the weights of the two halves.

use super::{finish, pivot};
use crate::block::Block;
use crate::buffer::Slice;
use crate::engine::{Algorithm, Split, Step, Subcube};
use crate::error::{Error, Result, Status};
use crate::kernel::Kernel;
use crate::vcube::Node;
use pivot::Cut;

/// How a subcube's pivot is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PivotRule {
    /// From samples of all nodes' blocks, weighted by the fault-free nodes in each half.
    Sampled,
    /// The paper's: the median of the root's own list. An empty root cuts nothing off.
    RootMedian,
}

/// HyperQuickSort on a cube of some dimension.
#[derive(Debug)]
pub struct HyperQuickSort<'a> {
    /// Sorts, compares and merges.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// How pivots are found.
    pub rule: PivotRule,
}

impl HyperQuickSort<'_> {
    fn is_last(&self, round: u32) -> bool {
        round == self.rounds()
    }
}

impl Algorithm for HyperQuickSort<'_> {
    fn rounds(&self) -> u32 {
        self.dimension + 1
    }

    fn step(&self, round: u32) -> Step {
        if self.is_last(round) {
            return Step {
                scope: self.dimension,
                exchange: None,
            };
        }
        let dimension = self.dimension + 1 - round;
        Step {
            scope: dimension,
            exchange: Some(dimension),
        }
    }

    fn prepare(&self, mut block: Block) -> Result<Block> {
        if block.sorted {
            return Ok(block);
        }
        for run in &mut block.runs {
            let empty = Slice::from(crate::buffer::Buffer::default());
            let mut buffer = std::mem::replace(&mut run.data, empty).into_buffer()?;
            self.kernel.sort(&mut buffer)?;
            run.data = buffer.into();
        }
        block.sorted = true;
        Ok(block)
    }

    fn propose(&self, round: u32, node: Node, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        Ok(match self.rule {
            _ if self.is_last(round) => finish::propose(self.kernel, block),
            PivotRule::Sampled => pivot::encode_samples(&pivot::sample(block, self.kernel)),
            PivotRule::RootMedian if node == subcube.root => pivot::median(block, self.kernel),
            PivotRule::RootMedian => Vec::new(),
        })
    }

    fn decide(
        &self,
        round: u32,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        if self.is_last(round) {
            return Ok(finish::decide(proposals));
        }
        match self.rule {
            PivotRule::Sampled => {
                Ok(pivot::balanced(proposals, subcube.fault_free, self.kernel)?.encode())
            }
            PivotRule::RootMedian => {
                let root = proposals.iter().find(|(node, _)| *node == subcube.root);
                let (_, median) =
                    root.ok_or_else(|| Error::new(Status::Internal, "the root proposed nothing"))?;
                Ok(match median.is_empty() {
                    true => Cut::AllLower.encode(),
                    false => median.to_vec(),
                })
            }
        }
    }

    fn proposal_limit(&self) -> usize {
        pivot::proposal_limit(self.kernel.record_bytes()).max(finish::COUNT_BYTES)
    }

    fn decision_limit(&self, round: u32) -> usize {
        match self.is_last(round) {
            true => finish::decision_limit(1 << self.dimension),
            false => pivot::decision_limit(self.kernel.record_bytes()),
        }
    }

    fn is_piecewise(&self) -> bool {
        true
    }

    fn split(&self, round: u32, node: Node, block: &Block, decision: &[u8]) -> Result<Split> {
        let cut = Cut::decode(decision, self.kernel.record_bytes())?;
        let (lower, upper) = cut.divide(block, self.kernel);
        let dimension = self.dimension + 1 - round;
        let in_upper_half = node.0 >> (dimension - 1) & 1 == 1;
        Ok(match in_upper_half {
            true => Split {
                keep: upper,
                give: lower,
            },
            false => Split {
                keep: lower,
                give: upper,
            },
        })
    }

    fn join(
        &self,
        round: u32,
        node: Node,
        keep: Block,
        got: Block,
        decision: &[u8],
    ) -> Result<Block> {
        if self.is_last(round) {
            return finish::join(self.kernel, node, keep, decision);
        }
        Ok(keep.union(got))
    }
}

//! HyperQuickSort (Wagar 1987), following Section 4.1 and Algorithm 1 of the 2024 paper.
//!
//! In each round every subcube is divided into two halves at a pivot. The lower half keeps the records below
//! the pivot and the upper half those above it; partners exchange the rest. After log2(N) rounds node i holds
//! the i-th part. Inputs are sorted once, before the first round. The pieces stay sorted runs and are merged
//! at the end, whereas the paper sorts the whole list again in every round.
//!
//! Cost: log2(N) rounds, each with a decision and one exchange, in which half of a node's block moves on
//! average. Must never: depend on failures, except through the weights of the two halves.

use super::pivot::{self, Cut, Division};
use super::{PivotRule, of_sorted_pieces, proposed_samples};
use crate::block::Block;
use crate::engine::{Algorithm, Exchange, Proposals, RoundContext, Split, Step, Subcube};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::kernel::Kernel;

/// HyperQuickSort on a cube of a given dimension.
#[derive(Debug)]
pub struct HyperQuickSort<'a> {
    /// The kernel that sorts, compares and merges.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// The rule that finds pivots. The papers' rule takes the median of the root's list, with all records of
    /// that key in the lower half; if the root's list is empty, all records are in the lower half.
    pub rule: PivotRule,
}

/// Splits a block at a cut into the part that the node's half of the subcube keeps and the part that it
/// sends.
pub fn split_at(
    cut: &Cut<&[u8]>,
    in_upper_half: bool,
    block: &Block,
    kernel: &dyn Kernel,
) -> Split {
    let (lower, upper) = cut.divide(block, kernel);
    if in_upper_half {
        Split {
            keep: upper,
            give: vec![lower],
        }
    } else {
        Split {
            keep: lower,
            give: vec![upper],
        }
    }
}

/// The number of parts into which a subcube is divided.
const HALVES: usize = 2;

impl HyperQuickSort<'_> {
    /// The dimension of the subcubes that a round divides.
    fn scope(&self, round: u32) -> u32 {
        self.dimension + 1 - round
    }

    fn division(&self, round: u32) -> Division {
        Division {
            nodes: 1 << self.scope(round),
            parts: HALVES,
        }
    }
}

impl Algorithm for HyperQuickSort<'_> {
    of_sorted_pieces!();

    fn rounds(&self) -> u32 {
        self.dimension
    }

    fn step(&self, round: u32) -> Step {
        let s = self.scope(round);
        Step {
            scope: Some(s),
            exchange: Exchange::Dimension(s - 1),
        }
    }

    fn propose(&self, at: &RoundContext<'_>, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        Ok(match self.rule {
            PivotRule::Sampled => {
                let samples = pivot::sample(block, self.division(at.round), self.kernel);
                proposed_samples::encode_samples(&samples)
            }
            PivotRule::Paper if at.node == subcube.root() => {
                let median = pivot::even_splitters(block, HALVES, self.kernel);
                let cut = median.into_iter().next().map_or(Cut::AllLower, Cut::At);
                Cut::encode_all(&[cut], self.kernel.record_bytes())
            }
            PivotRule::Paper => Vec::new(),
        })
    }

    fn unite_proposals(&self, _at: &RoundContext<'_>, proposals: Proposals) -> Result<Proposals> {
        match self.rule {
            PivotRule::Sampled => proposed_samples::thinned(proposals, HALVES, self.kernel),
            PivotRule::Paper => Ok(proposals),
        }
    }

    fn decide(
        &self,
        _at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        match self.rule {
            PivotRule::Sampled => {
                let shares = subcube.shares();
                let halves = shares
                    .chunks(shares.len() / 2)
                    .map(|half| half.iter().sum());
                let halves: Vec<usize> = halves.collect();
                let cuts = pivot::balanced(proposals, &halves, self.kernel)?;
                Ok(Cut::encode_all(&cuts, self.kernel.record_bytes()))
            }
            PivotRule::Paper => {
                let root = proposals.iter().find(|(node, _)| *node == subcube.root());
                let (_, median) =
                    root.ok_or_else(|| Error::internal("the root of a subcube proposed no pivot"))?;
                Ok(median.to_vec())
            }
        }
    }

    fn proposal_limit(&self, round: u32) -> usize {
        let size = self.kernel.record_bytes();
        proposed_samples::samples_limit(self.division(round), size).max(Cut::encoded_bytes(size))
    }

    fn decision_limit(&self, _round: u32) -> usize {
        Cut::encoded_bytes(self.kernel.record_bytes())
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        let cut = Cut::read(at.decision, self.kernel.record_bytes())?;
        let in_upper_half = at.node.0 >> (self.dimension - at.round) & 1 == 1;
        Ok(split_at(&cut, in_upper_half, block, self.kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sort::pivot::CutPoint;
    use crate::sort::testing::{block_of, kernel};

    /// The paper's rule: the median of the root's list, with equal keys below it.
    #[test]
    fn the_pivot_is_the_median_of_the_root() {
        let kernel = kernel();
        let mut numbers = vec![5, 1, 4, 2, 3, 3, 9];
        let algorithm = HyperQuickSort {
            kernel: &*kernel,
            dimension: 1,
            rule: PivotRule::Paper,
        };
        let block = algorithm.prepare(block_of(0, &numbers)).unwrap();
        let median = pivot::even_splitters(&block, 2, &*kernel);
        let [median]: [CutPoint; 1] = median.try_into().unwrap();
        let (lower, upper) = Cut::At(median).divide(&block, &*kernel);
        numbers.sort();
        let median = numbers[numbers.len() / 2];
        let below = numbers.iter().filter(|number| **number <= median).count();
        assert_eq!(lower.bytes() / 4, below);
        assert_eq!(lower.bytes() + upper.bytes(), block.bytes());
        assert_eq!(pivot::even_splitters(&Block::empty(), 2, &*kernel), []);
    }
}

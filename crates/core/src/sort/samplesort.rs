//! Sample sort: one exchange, or a few exchanges between fewer nodes, instead of log2(N) exchanges.
//!
//! Inputs are sorted. Samples of all inputs give N - 1 cuts with a guaranteed balance, since cuts are made in
//! the total order (key, origin, position) (Shi and Schaeffer 1992, "Parallel sorting by regular sampling",
//! with weights). Every node sends every other node its part once, and each node merges the parts that
//! arrive.
//!
//! With several levels (Axtmann et al. 2015, "Practical Massively Parallel Sorting"), the first level divides the
//! cube into parts that are subcubes, and cuts the records for these parts only; each further level does the same
//! within the parts. A node sends one message to each other part of its subcube and receives one from each. The
//! runs are not merged between the levels, so that a block still consists of pieces of inputs.
//!
//! Cost: one round with one decision for each level; with L levels about L (N^(1/L) - 1) messages per node, and
//! each record moves at most L times. Must never: depend on failures, except through the shares of the nodes.

use super::key_bytes::KeyBytes;
use super::of_sorted_pieces;
use super::pivot::{self, Cut, Division};
use super::proposed_samples;
use crate::block::Block;
use crate::engine::{Algorithm, Exchange, Proposals, RoundContext, Split, Step, Subcube};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// Sample sort on a cube of a given dimension.
#[derive(Debug)]
pub struct SampleSort<'a> {
    /// The kernel that sorts, compares and merges.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// The number of levels, at least 1. A cube of a smaller dimension has as many levels as dimensions.
    pub levels: u32,
}

/// Up to this dimension, evenly spaced samples of all nodes are so many that a cut can be at one of them.
const FEW_DIMENSIONS: u32 = 6;

/// One level: subcubes of dimension `high` are divided into parts, which are subcubes of dimension `low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    low: u32,
    high: u32,
}

impl Level {
    /// The level of a round. The dimensions are divided evenly, and the first levels get those that are left over.
    fn of(round: u32, levels: u32, dimension: u32) -> Level {
        let mut level = Level {
            low: dimension,
            high: dimension,
        };
        for done in 0..round {
            level.high = level.low;
            level.low -= level.high.div_ceil((levels - done).max(1));
        }
        level
    }

    /// The number of parts of a subcube.
    fn parts(self) -> usize {
        1 << (self.high - self.low)
    }

    /// The division of the blocks of a subcube.
    fn division(self) -> Division {
        Division {
            nodes: 1 << self.high,
            parts: self.parts(),
        }
    }

    /// The part of its subcube that a node is in.
    fn part_of(self, node: Node) -> usize {
        (node.0 >> self.low) as usize & (self.parts() - 1)
    }
}

impl SampleSort<'_> {
    fn key_bytes(&self) -> KeyBytes {
        KeyBytes::of(self.kernel)
    }

    fn level(&self, round: u32) -> Level {
        Level::of(round, self.rounds(), self.dimension)
    }
}

impl Algorithm for SampleSort<'_> {
    of_sorted_pieces!();

    fn rounds(&self) -> u32 {
        self.levels.min(self.dimension).max(1)
    }

    fn step(&self, round: u32) -> Step {
        let Level { low, high } = self.level(round);
        Step {
            scope: Some(high),
            exchange: Exchange::Parts { low, high },
        }
    }

    fn propose(&self, at: &RoundContext<'_>, _subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        let division = self.level(at.round).division();
        let samples = match self.levels {
            1 if self.dimension <= FEW_DIMENSIONS => {
                pivot::sample_once(block, division, self.kernel)
            }
            _ => pivot::scattered_samples(block, (at.node, division), self.kernel),
        };
        Ok(self.key_bytes().of_samples(&samples))
    }

    fn unite_proposals(&self, at: &RoundContext<'_>, proposals: Proposals) -> Result<Proposals> {
        let keys = self.key_bytes();
        let proposals = keys.whole_samples(&proposals)?;
        let united =
            proposed_samples::thinned(proposals, self.level(at.round).parts(), self.kernel)?;
        keys.of_whole_samples(united)
    }

    fn decide(
        &self,
        at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        let shares = subcube.shares();
        let parts = shares.chunks(1 << self.level(at.round).low);
        let share = |part: &[usize]| match mutant(Mutant::PartsWeighAlike) {
            true => 1,
            false => part.iter().sum(),
        };
        let parts: Vec<usize> = parts.map(share).collect();
        let keys = self.key_bytes();
        let proposals = keys.whole_samples(proposals)?;
        let cuts = pivot::balanced(&proposals, &parts, self.kernel)?;
        Ok(keys.of_cuts(&cuts))
    }

    fn proposal_limit(&self, round: u32) -> usize {
        let most = pivot::most_samples(self.level(round).division(), self.kernel.record_bytes());
        most * self.key_bytes().sample_bytes()
    }

    fn decision_limit(&self, round: u32) -> usize {
        self.key_bytes().cut_bytes() * self.level(round).parts()
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        let level = self.level(at.round);
        let cuts = self.key_bytes().whole_cuts(at.decision)?;
        let cuts = Cut::read_between(&cuts, level.parts(), self.kernel.record_bytes())?;
        let mut give = Cut::divide_all(&cuts, block, self.kernel);
        let keep = give.remove(level.part_of(at.node));
        Ok(Split { keep, give })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_divide_the_dimensions_evenly() {
        let levels = |levels: u32, dimension: u32| -> Vec<(u32, u32)> {
            let rounds = 1..=levels.min(dimension).max(1);
            let level = |round| Level::of(round, levels.min(dimension).max(1), dimension);
            rounds
                .map(level)
                .map(|level| (level.low, level.high))
                .collect()
        };
        assert_eq!(levels(1, 0), [(0, 0)]);
        assert_eq!(levels(1, 14), [(0, 14)]);
        assert_eq!(levels(2, 14), [(7, 14), (0, 7)]);
        assert_eq!(levels(2, 3), [(1, 3), (0, 1)]);
        assert_eq!(levels(3, 14), [(9, 14), (4, 9), (0, 4)]);
        assert_eq!(levels(3, 2), [(1, 2), (0, 1)]);
    }
}

//! Sample sort: one exchange instead of log2(N) exchanges.
//!
//! Inputs are sorted. Samples of all inputs give N - 1 cuts with a guaranteed balance, since cuts are made in
//! the total order (key, origin, position) (Shi and Schaeffer 1992, "Parallel sorting by regular sampling",
//! with weights). Every node sends every other node its part once, and each node merges the parts that
//! arrive.
//!
//! Cost: one round with one decision; N - 1 messages per node, and each record moves at most once. Must
//! never: depend on failures, except through the shares of the nodes.

use super::pivot::{self, Cut};
use super::{sorted, sorted_each};
use crate::block::Block;
use crate::engine::{Algorithm, Exchange, RoundContext, Split, Step, Subcube};
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
}

impl SampleSort<'_> {
    fn nodes(&self) -> usize {
        1 << self.dimension
    }
}

impl Algorithm for SampleSort<'_> {
    fn rounds(&self) -> u32 {
        1
    }

    fn step(&self, _round: u32) -> Step {
        Step {
            scope: Some(self.dimension),
            exchange: Exchange::All,
        }
    }

    fn prepare(&self, block: Block) -> Result<Block> {
        sorted(block, self.kernel)
    }

    fn prepare_each(&self, inputs: &mut dyn Iterator<Item = Result<Block>>) -> Vec<Result<Block>> {
        sorted_each(inputs, self.kernel)
    }

    fn propose(
        &self,
        _at: &RoundContext<'_>,
        _subcube: &Subcube,
        block: &Block,
    ) -> Result<Vec<u8>> {
        let samples = pivot::sample(block, self.nodes(), self.kernel);
        Ok(pivot::encode_samples(&samples))
    }

    fn decide(
        &self,
        _at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        let cuts = pivot::balanced(proposals, &subcube.shares(), self.kernel)?;
        Ok(Cut::encode_all(&cuts, self.kernel.record_bytes()))
    }

    fn proposal_limit(&self, _round: u32) -> usize {
        pivot::samples_limit(self.nodes(), self.kernel.record_bytes())
    }

    fn decision_limit(&self, _round: u32) -> usize {
        Cut::encoded_bytes(self.kernel.record_bytes()) << self.dimension
    }

    fn most_runs(&self) -> usize {
        self.nodes()
    }

    fn is_recomputable(&self) -> bool {
        true
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        let cuts = Cut::decode_between(at.decision, self.nodes(), self.kernel.record_bytes())?;
        let mut give = Cut::divide_all(&cuts, block, self.kernel);
        let keep = give.remove(at.node.0 as usize);
        Ok(Split { keep, give })
    }
}

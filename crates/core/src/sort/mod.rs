//! The papers' sorting algorithms and ours, written over nodes. They have no knowledge of ranks and failures.
//!
//! | algorithm | rounds | messages per node | moves of a record | use |
//! |---|---|---|---|---|
//! | [`SampleSort`] | 1 | N - 1 | once | nearly always |
//! | [`SampleSort`] in L levels | L | L (N^(1/L) - 1) | up to L times | hundreds of ranks and more |
//! | [`HyperQuickSort`] | log2 N | log2 N | log2(N) / 2 times | very many ranks with very little data |
//! | [`QuickMerge`] | log2 N | log2 N | log2(N) / 2 times | as HyperQuickSort, with one decision for all rounds |
//! | [`Bitonic`] | log2(N) (log2(N) + 1) / 2 | one per round | once per round | communication that does not depend on the data; comparison |
//! | [`SftBitonic`] | log2 N more than Bitonic | one per round | once per round, with the reports of other nodes | few records that must be correct |
//!
//! Each algorithm is followed by the rounds of [`MergeAndPlace`]: one that merges, or two for a dense result.
//! A round costs one agreement, and a decision costs two small messages per node, one in each direction. Must
//! never: depend on failures except through the weights of fault-free nodes.

#[cfg(test)]
mod any_bytes;
mod at_once;
mod bitonic;
pub mod cost;
mod division;
mod drawn_samples;
pub mod filter;
mod hyperquicksort;
mod key_bytes;
mod many;
mod merge_and_place;
mod merging;
mod method;
pub(crate) mod pivot;
mod proposed_samples;
mod quickmerge;
mod samplesort;
mod sft_bitonic;
mod shared_samples;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(feature = "testing")]
pub mod wire_formats;

pub use bitonic::{Bitonic, Shape};
pub use hyperquicksort::HyperQuickSort;
pub use many::{ArrayPlaces, ArrayTable, SortMany};
pub use merge_and_place::{MergeAndPlace, global_offset, total_records};
pub use method::{MANY_RANKS, Method};
pub use quickmerge::{QuickMerge, Splitters};
pub use samplesort::{DivideFirst, SampleSort};
pub use sft_bitonic::SftBitonic;
pub use shared_samples::samples;

use crate::block::Block;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// The rule that chooses cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PivotRule {
    /// Cuts come from samples of all nodes' blocks, weighted by the fault-free nodes on each side.
    Sampled,
    /// Cuts are chosen as in the algorithm's paper.
    Paper,
}

/// Defines the functions of an [`Algorithm`](crate::engine::Algorithm) that sorts the inputs first and then only divides
/// and unites sorted runs. The algorithm has a kernel and a dimension.
macro_rules! of_sorted_pieces {
    () => {
        fn prepare(&self, block: Block) -> Result<Block> {
            super::sorted(block, self.kernel)
        }

        fn prepare_each(
            &self,
            inputs: &mut dyn Iterator<Item = Result<Block>>,
        ) -> Vec<Result<Block>> {
            super::sorted_each(inputs, self.kernel)
        }

        fn most_runs(&self) -> usize {
            1 << self.dimension
        }

        fn is_recomputable(&self) -> bool {
            true
        }
    };
}
use of_sorted_pieces;

/// Sorts each run of a block.
fn sorted(mut block: Block, kernel: &dyn Kernel) -> Result<Block> {
    if block.sorted {
        return Ok(block);
    }
    for run in &mut block.runs {
        let mut buffer = std::mem::take(&mut run.data).into_buffer()?;
        kernel.sort(&mut buffer)?;
        run.data = buffer.into();
    }
    block.sorted = true;
    block.divided = None;
    Ok(block)
}

/// Sorts the runs of inputs, each while the next one is fetched.
fn sorted_each(
    inputs: &mut dyn Iterator<Item = Result<Block>>,
    kernel: &dyn Kernel,
) -> Vec<Result<Block>> {
    let pool = kernel.thread_pool();
    pool.map_pipelined(inputs, |input| sorted(input?, kernel))
}

//! The papers' sorting algorithms and ours, written over nodes. They know nothing of ranks and faults.
//!
//! | | rounds | a node's messages | a node's records move | choose it |
//! |---|---|---|---|---|
//! | [`SampleSort`] | 1 | N - 1 | once | nearly always |
//! | [`HyperQuickSort`] | log2 N | log2 N | log2(N) / 2 times | very many ranks with little data |
//! | [`QuickMerge`] | log2 N | log2 N | log2(N) / 2 times | as HyperQuickSort, with one decision for all rounds |
//! | [`Bitonic`] | log2(N) (log2(N) + 1) / 2 | as many | once a round | data-oblivious traffic; for comparison |
//! | [`Reliable`] | log2 N more than Bitonic | as many | once a round, and all that was heard | few records that must be right |
//!
//! To each come the rounds of [`Complete`]: one that merges, or two for a dense result. A round costs
//! one agreement; where something is decided, also two small letters to and from each node.

mod bitonic;
mod hyperquicksort;
mod merge_and_place;
mod merging;
mod method;
mod pivot;
mod quickmerge;
mod samplesort;
mod sft_bitonic;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(feature = "testing")]
pub mod wire_formats;

pub use bitonic::{Bitonic, Shape};
pub use hyperquicksort::HyperQuickSort;
pub use merge_and_place::{Complete, global_offset, total_records};
pub use method::{MANY_RANKS, Method};
pub use quickmerge::{QuickMerge, Splitters};
pub use samplesort::SampleSort;
pub use sft_bitonic::Reliable;

use crate::block::Block;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// How it is decided where to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PivotRule {
    /// From samples of all nodes' blocks, weighted by the fault-free nodes on each side.
    Sampled,
    /// As in the algorithm's paper.
    Paper,
}

/// The block with its runs sorted.
fn sorted(mut block: Block, kernel: &dyn Kernel) -> Result<Block> {
    if block.sorted {
        return Ok(block);
    }
    for run in &mut block.runs {
        let empty = Slice::from(Buffer::default());
        let mut buffer = std::mem::replace(&mut run.data, empty).into_buffer()?;
        kernel.sort(&mut buffer)?;
        run.data = buffer.into();
    }
    block.sorted = true;
    Ok(block)
}

/// Inputs with their runs sorted, each while the next is fetched.
fn sorted_each(
    inputs: &mut dyn Iterator<Item = Result<Block>>,
    kernel: &dyn Kernel,
) -> Vec<Result<Block>> {
    let pool = kernel.thread_pool();
    pool.map_pipelined(inputs, |input| sorted(input?, kernel))
}

//! The last round of every sort: runs are merged into one, and every node learns where its block
//! starts in the whole.

use crate::block::{Block, Run};
use crate::buffer::{Buffer, Slice};
use crate::error::Result;
use crate::kernel::Kernel;
use crate::members::Rank;
use crate::vcube::Node;

/// The size of what a node contributes.
pub const COUNT_BYTES: usize = 8;

/// What a node contributes: how many records it holds.
pub fn propose(kernel: &dyn Kernel, block: &Block) -> Vec<u8> {
    let records = block.bytes() / kernel.record_bytes();
    (records as u64).to_le_bytes().to_vec()
}

/// The counts of all nodes, in ascending order of node.
pub fn decide(proposals: &[(Node, Slice)]) -> Vec<u8> {
    proposals
        .iter()
        .flat_map(|(_, count)| count.to_vec())
        .collect()
}

/// The size of [`decide`]'s result for a cube of so many nodes.
pub fn decision_limit(nodes: usize) -> usize {
    nodes * COUNT_BYTES
}

/// One sorted run, whose start is the block's place in the whole.
pub fn join(kernel: &dyn Kernel, node: Node, block: Block, decision: &[u8]) -> Result<Block> {
    let start = counts(decision).take(node.0 as usize).sum();
    let data = merged(kernel, block)?;
    Ok(Block {
        runs: vec![Run {
            origin: Rank(node.0),
            start,
            data,
        }],
        sorted: true,
    })
}

fn counts(decision: &[u8]) -> impl Iterator<Item = u64> {
    let (counts, _) = decision.as_chunks::<COUNT_BYTES>();
    counts.iter().map(|count| u64::from_le_bytes(*count))
}

/// How many records all nodes have together, by the last round's decision.
pub fn total_records(decision: &[u8]) -> u64 {
    counts(decision).sum()
}

/// Where a finished block starts in the whole, and its records.
pub fn global_offset(block: &Block) -> Option<(u64, &Slice)> {
    block.runs.first().map(|run| (run.start, &run.data))
}

fn merged(kernel: &dyn Kernel, mut block: Block) -> Result<Slice> {
    if block.runs.len() == 1 {
        return Ok(block.runs.remove(0).data);
    }
    let mut out = Buffer::zeroed(block.bytes())?;
    let runs: Vec<&[u8]> = block.runs.iter().map(|run| &*run.data).collect();
    kernel.merge(&runs, &mut out)?;
    Ok(out.into())
}

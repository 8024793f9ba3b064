//! The positions of records in the sorted order, brought back to the order of the inputs.
//!
//! The nodes begin with pairs: the position of a record in the input of all ranks, and its position in the sorted order.
//! In one exchange each pair moves to the node of the rank that has the record. Must never: replay data that failed
//! with a rank; the caller starts again from the sorted blocks.

use crate::block::{Block, Run};
use crate::engine::{Algorithm, Exchange, RoundContext, Split, Step};
use crate::members::Rank;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, Status};

/// The size of a pair in bytes.
pub const PAIR_BYTES: usize = 16;
const NUMBER: usize = 8;

/// Appends a pair.
pub fn write_pair(place: &mut [u8], input: u64, sorted: u64) {
    let (first, second) = place.split_at_mut(NUMBER);
    first.copy_from_slice(&input.to_ne_bytes());
    second.copy_from_slice(&sorted.to_ne_bytes());
}

fn number(bytes: &[u8]) -> u64 {
    let mut number = [0; NUMBER];
    number.copy_from_slice(&bytes[..NUMBER]);
    u64::from_ne_bytes(number)
}

/// The exchange.
pub struct Scatter<'a> {
    /// The position of the first record of each rank in the input of all ranks, ascending.
    pub starts: &'a [u64],
    /// The number of all records.
    pub total: u64,
    /// The number of nodes.
    pub nodes: usize,
}

impl Scatter<'_> {
    /// The positions of the records that belong to a node.
    fn range(&self, node: usize) -> std::ops::Range<u64> {
        let start = |node: usize| self.starts.get(node).copied().unwrap_or(self.total);
        start(node)..start(node + 1)
    }

    fn owner(&self, position: u64) -> usize {
        self.starts
            .partition_point(|start| *start <= position)
            .saturating_sub(1)
    }
}

fn wrong_pair() -> Error {
    Error::new(
        Status::Corrupt,
        "a position is outside of its node's input: data have changed in memory or in a message",
    )
}

impl Algorithm for Scatter<'_> {
    fn rounds(&self) -> u32 {
        1
    }

    fn step(&self, _round: u32) -> Step {
        Step {
            scope: None,
            exchange: Exchange::all(self.nodes.trailing_zeros()),
        }
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        let pairs = || {
            let runs = block.runs.iter();
            runs.flat_map(|run| run.data.chunks_exact(PAIR_BYTES))
        };
        let mut counts = vec![0; self.nodes];
        for pair in pairs() {
            *counts
                .get_mut(self.owner(number(pair)))
                .ok_or_else(wrong_pair)? += 1;
        }
        let parts = counts.iter().map(|count| Buffer::unset(count * PAIR_BYTES));
        let mut parts = parts.collect::<Result<Vec<Buffer>>>()?;
        let mut filled = vec![0; self.nodes];
        for pair in pairs() {
            let owner = self.owner(number(pair));
            parts[owner][filled[owner]..][..PAIR_BYTES].copy_from_slice(pair);
            filled[owner] += PAIR_BYTES;
        }
        let parts = parts
            .into_iter()
            .map(|part| Block::of_sorted(vec![Run::new(Rank(at.node.0), 0, part.into())]));
        let mut give: Vec<Block> = parts.collect();
        let keep = give.remove(at.node.0 as usize);
        Ok(Split { keep, give })
    }

    fn join(&self, at: &RoundContext<'_>, keep: Block, got: Block) -> Result<Block> {
        let range = self.range(at.node.0 as usize);
        let count = (range.end - range.start) as usize;
        let mut positions = Buffer::zeroed(count * NUMBER)?;
        let mut found = 0;
        for run in keep.runs.iter().chain(&got.runs) {
            for pair in run.data.chunks_exact(PAIR_BYTES) {
                let input = number(pair);
                if !range.contains(&input) {
                    return Err(wrong_pair());
                }
                let place = (input - range.start) as usize * NUMBER;
                positions[place..][..NUMBER].copy_from_slice(&pair[NUMBER..]);
                found += 1;
            }
        }
        if found != count {
            return Err(wrong_pair());
        }
        let run = Run::new(Rank(at.node.0), range.start, positions.into());
        Ok(Block::of_run(run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vcube::Node;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pairs_reach_the_input_that_they_belong_to(
            counts in proptest::collection::vec(0..6_u64, 1..5),
            seed: u64,
        ) {
            let total: u64 = counts.iter().sum();
            let starts: Vec<u64> = counts.iter().scan(0, |next, count| {
                *next += count;
                Some(*next - count)
            }).collect();
            let nodes = counts.len().next_power_of_two();
            let scatter = Scatter { starts: &starts, total, nodes };
            // A permutation, of which each node has every n-th pair.
            let mut order: Vec<u64> = (0..total).collect();
            let mut random = ftsort_kernels::random::SplitMix::new(seed);
            for index in (1..order.len()).rev() {
                order.swap(index, (random.bits() % (index as u64 + 1)) as usize);
            }
            let mut arrived: Vec<Vec<Block>> = vec![Vec::new(); nodes];
            for node in 0..nodes {
                let mine: Vec<(usize, &u64)> = order.iter().enumerate().skip(node).step_by(nodes).collect();
                let mut data = Buffer::unset(mine.len() * PAIR_BYTES).unwrap();
                for (place, (sorted, input)) in data.chunks_exact_mut(PAIR_BYTES).zip(mine) {
                    write_pair(place, *input, sorted as u64);
                }
                let block = Block::input(Rank(node as u32), data.into());
                let at = RoundContext::new(1, Node(node as u32), &[]);
                let mut split = scatter.split(&at, &block).unwrap();
                split.give.insert(node, split.keep);
                for (to, part) in split.give.into_iter().enumerate() {
                    arrived[to].push(part);
                }
            }
            let mut all = Vec::new();
            for (node, parts) in arrived.into_iter().enumerate() {
                let at = RoundContext::new(1, Node(node as u32), &[]);
                let block = scatter.join(&at, Block::empty(), Block::unite(parts)).unwrap();
                let counted = counts.get(node).copied().unwrap_or(0);
                prop_assert_eq!(block.bytes() as u64, counted * 8);
                prop_assert_eq!(block.runs[0].start, all.len() as u64);
                all.extend(block.runs[0].data.chunks_exact(8).map(number));
            }
            for (input, sorted) in all.iter().enumerate() {
                prop_assert_eq!(order[*sorted as usize], input as u64);
            }
        }
    }
}

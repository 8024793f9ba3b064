//! The progress and feasibility predicates: Figures 4a and 4b of the 1989 paper, over blocks of
//! records instead of single keys ("each of the predicates scales by m", Section 5).
//!
//! A block is sorted in every node, the smallest record first. A sequence that falls over the nodes
//! is read from its last node to its first, where it rises. Blocks have the same number of records,
//! m. If the input has fewer, the missing records count as greater than all others, so they are
//! missing where the sequence is greatest.
//!
//! The paper prints both predicates with errors: progress looks one node beyond each half, where a
//! bitonic sequence may turn either way; for nodes of the upper half it starts in the middle; and
//! the bounds of the feasibility loop are off by one, and test m where u is meant.
//!
//! Must never: trust the size of a block.

use std::cmp::Ordering;
use std::ops::{Deref, Range};

use crate::vcube::{Node, first_of};
use crate::verify::sequence::Sequence;
use ftsort_kernels::kernel::Kernel;

/// The order of the records, and the size of the blocks.
#[derive(Clone, Copy, Debug)]
pub struct KeyOrder<'a> {
    /// Compares two records.
    pub kernel: &'a dyn Kernel,
    /// The paper's m: the number of records of the longest block.
    pub longest: usize,
}

/// Consecutive nodes over which a sequence rises or falls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonotoneRange {
    nodes: Range<u32>,
    /// Whether the sequence rises with the node numbers.
    rises: bool,
}

impl MonotoneRange {
    /// Returns the range of `node`'s subcube of this dimension once it is sorted, as half of a
    /// bitonic sequence of twice its length. The whole cube rises.
    pub fn sorted(node: Node, dimension: u32) -> MonotoneRange {
        let Node(first) = first_of(node, dimension);
        MonotoneRange {
            nodes: first..first + (1 << dimension),
            rises: node.0 >> dimension & 1 == 0,
        }
    }

    /// Returns the two halves of a bitonic sequence in `node`'s subcube of this dimension; the only
    /// node if the dimension is 0.
    pub fn halves(node: Node, dimension: u32) -> Vec<MonotoneRange> {
        let Node(first) = first_of(node, dimension);
        match dimension.checked_sub(1) {
            None => vec![MonotoneRange {
                nodes: first..first + 1,
                rises: true,
            }],
            Some(half) => [first, first + (1 << half)]
                .map(|first| MonotoneRange::sorted(Node(first), half))
                .to_vec(),
        }
    }

    /// Returns the nodes in the order in which the records rise.
    fn rising(&self) -> impl Iterator<Item = Node> + use<> {
        let Range { start, end } = self.nodes;
        let rises = self.rises;
        (start..end).map(move |node| {
            Node(if rises {
                node
            } else {
                start + (end - 1 - node)
            })
        })
    }
}

/// Returns whether records are sorted. Compares record by record, because a message is not aligned.
pub fn is_sorted(records: &[u8], kernel: &dyn Kernel) -> bool {
    let records = records.chunks_exact(kernel.record_bytes());
    records.is_sorted_by(|one, next| kernel.compare(one, next) != Ordering::Greater)
}

impl KeyOrder<'_> {
    /// Evaluates the progress predicate over one range: the records rise, and records are missing
    /// only after the last of them. Returns the first node that violates it.
    pub fn progress<B>(&self, sequence: &Sequence<B>, range: &MonotoneRange) -> Result<(), Node>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let size = self.kernel.record_bytes();
        let mut last: Option<&[u8]> = None;
        let mut ended = false;
        for node in range.rising() {
            let block: &[u8] = sequence.block(node).ok_or(node)?;
            let records = block.len() / size;
            let holds = records * size == block.len()
                && records <= self.longest
                && (!ended || block.is_empty())
                && is_sorted(block, self.kernel)
                && !self.falls(last, block.get(..size));
            if !holds {
                return Err(node);
            }
            ended |= records < self.longest;
            last = block
                .len()
                .checked_sub(size)
                .map(|at| &block[at..])
                .or(last);
        }
        Ok(())
    }

    fn falls(&self, one: Option<&[u8]>, next: Option<&[u8]>) -> bool {
        match (one, next) {
            (Some(one), Some(next)) => self.kernel.compare(one, next) == Ordering::Greater,
            _ => false,
        }
    }

    /// Evaluates the feasibility predicate: the records of `range` in `now` are a permutation of
    /// those of both halves in `before`. Merges the halves with one position in each. Records with
    /// equal keys may come in any order. Returns the first node that violates it.
    pub fn feasibility<B>(
        &self,
        before: &Sequence<B>,
        halves: &[MonotoneRange],
        now: &Sequence<B>,
        range: &MonotoneRange,
    ) -> Result<(), Node>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let read = |range: &MonotoneRange, sequence| self.records(range, sequence);
        let mut sources = halves.iter().map(|half| read(half, before));
        let lower = sources.next().unwrap_or_default();
        let upper = sources.next().unwrap_or_default();
        let merged = read(range, now);
        let found = self.check_merge(&lower, &upper, &merged);
        found.map_err(|index| {
            let mut left = index;
            let size = self.kernel.record_bytes();
            let mut nodes = range.rising();
            let at = nodes.find(|node| {
                let records = now.block(*node).map_or(0, |block| block.len() / size);
                let is_here = left < records;
                left = left.saturating_sub(records);
                is_here
            });
            // Records are missing at the end.
            at.or_else(|| range.rising().last())
                .unwrap_or(Node(range.nodes.start))
        })
    }

    fn records<'b, B>(&self, range: &MonotoneRange, sequence: &'b Sequence<B>) -> Vec<&'b [u8]>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let blocks = range.rising().filter_map(|node| sequence.block(node));
        blocks
            .flat_map(|block| block.chunks_exact(self.kernel.record_bytes()))
            .collect()
    }

    /// Merges from one group of equal keys to the next. Returns the index of the first record of
    /// `merged` that is in neither half, or the index of the end if records are missing.
    fn check_merge(&self, lower: &[&[u8]], upper: &[&[u8]], merged: &[&[u8]]) -> Result<(), usize> {
        let (mut l, mut u, mut m) = (0, 0, 0);
        while let Some(next) = merged.get(m) {
            let alike = |records: &[&[u8]]| {
                let equal = |record: &&&[u8]| self.kernel.compare(record, next) == Ordering::Equal;
                records.iter().take_while(equal).count()
            };
            let (from_lower, from_upper) = (alike(&lower[l..]), alike(&upper[u..]));
            let group = alike(&merged[m..]);
            if group != from_lower + from_upper {
                return Err(m + group.min(from_lower + from_upper));
            }
            let sources = [&lower[l..l + from_lower], &upper[u..u + from_upper]];
            if !same_records(sources, &merged[m..m + group]) {
                return Err(m);
            }
            l += from_lower;
            u += from_upper;
            m += group;
        }
        if (l, u) == (lower.len(), upper.len()) {
            Ok(())
        } else {
            Err(m)
        }
    }
}

/// Returns whether both hold the same records, in any order.
fn same_records(sources: [&[&[u8]]; 2], merged: &[&[u8]]) -> bool {
    if sources.iter().copied().flatten().eq(merged) {
        return true;
    }
    let (mut sources, mut merged) = (sources.concat(), merged.to_vec());
    sources.sort_unstable();
    merged.sort_unstable();
    sources == merged
}

#[cfg(test)]
mod tests;

//! Checks that a sorted result is in order across nodes, from two records per node. Each node has
//! checked its own block (`Kernel::first_disorder`). This is the sequential verification of the
//! 1989 paper (the order in Theorem 1) without its volume of data.
//!
//! Must never: need more of a block than its first and last record.

use std::cmp::Ordering;

use crate::vcube::Node;
use crate::wire::{Reader, Writer};
use ftsort_kernels::kernel::Kernel;

const NODE_BYTES: usize = 4;
const COUNT_BYTES: usize = 8;

/// The first and last record of a node's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Border<'a> {
    /// The node.
    pub node: Node,
    /// The number of records.
    pub count: u64,
    /// The first record; empty if there are none.
    pub first: &'a [u8],
    /// The last record; empty if there are none.
    pub last: &'a [u8],
}

impl<'a> Border<'a> {
    /// Returns the border of a sorted block.
    pub fn of(node: Node, block: &'a [u8], kernel: &dyn Kernel) -> Border<'a> {
        let size = kernel.record_bytes();
        let start = block.len().saturating_sub(size);
        Border {
            node,
            count: (block.len() / size) as u64,
            first: &block[..size.min(block.len())],
            last: &block[start..],
        }
    }

    /// Returns the largest number of bytes that [`Border::write`] appends.
    pub fn limit(record_bytes: usize) -> usize {
        NODE_BYTES + COUNT_BYTES + 2 * record_bytes
    }

    /// Appends the border to a message: node (u32), number of records (u64), and the two records if there
    /// are any.
    pub fn write(&self, out: &mut Writer) {
        out.u32(self.node.0).u64(self.count);
        out.bytes(self.first).bytes(self.last);
    }

    /// Takes a border of records of this size. None if the bytes are too few.
    pub fn read(fields: &mut Reader<'a>, record_bytes: usize) -> Option<Border<'a>> {
        let (node, count) = (Node(fields.u32()?), fields.u64()?);
        let size = if count == 0 { 0 } else { record_bytes };
        Some(Border {
            node,
            count,
            first: fields.bytes(size)?,
            last: fields.bytes(size)?,
        })
    }

    /// Returns whether the border has two whole records, or none if the block is empty.
    fn is_whole(&self, kernel: &dyn Kernel) -> bool {
        let size = match self.count {
            0 => 0,
            _ => kernel.record_bytes(),
        };
        self.first.len() == size && self.last.len() == size
    }

    /// Returns whether a sorted block can have this border, which is whole.
    fn is_in_order(&self, kernel: &dyn Kernel) -> bool {
        match self.count {
            0 => true,
            1 => self.first == self.last,
            _ => kernel.compare(self.first, self.last) != Ordering::Greater,
        }
    }
}

/// Returns the pairs of nodes between which the order is violated, in the order given: the last
/// record of one node is greater than the first record of the next node that has any. A node with a border
/// that no sorted block can have is paired with itself, and a border that is not whole is ignored otherwise.
pub fn violations(borders: &[Border<'_>], kernel: &dyn Kernel) -> Vec<(Node, Node)> {
    let mut found = Vec::new();
    let mut before: Option<&Border<'_>> = None;
    for border in borders {
        let is_whole = border.is_whole(kernel);
        if !is_whole || !border.is_in_order(kernel) {
            found.push((border.node, border.node));
        }
        if !is_whole || border.count == 0 {
            continue;
        }
        let falls =
            |before: &&Border<'_>| kernel.compare(before.last, border.first) == Ordering::Greater;
        if let Some(before) = before.filter(falls) {
            found.push((before.node, border.node));
        }
        before = Some(border);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::kernel::kernel_of;
    use ftsort_kernels::record::KeyKind;
    use proptest::prelude::*;

    fn kernel() -> Box<dyn Kernel> {
        kernel_of(1, KeyKind::U8)
    }

    proptest! {
        #[test]
        fn a_border_survives_a_round_trip(block: Vec<u8>, node: u32, after: Vec<u8>) {
            let border = Border::of(Node(node), &block, &*kernel());
            let mut out = Writer::new();
            border.write(&mut out);
            let length = out.len();
            prop_assert!(length <= Border::limit(1));
            let words = out.bytes(&after).finish();
            prop_assert_eq!(Border::read(&mut Reader::new(&words[..length - 1]), 1), None);
            let mut fields = Reader::new(&words);
            prop_assert_eq!(Border::read(&mut fields, 1), Some(border));
            prop_assert_eq!(fields.rest(), &after[..]);
        }

        #[test]
        fn borders_detect_whether_all_blocks_together_are_sorted(
            mut blocks: Vec<Vec<u8>>,
            sort: bool,
        ) {
            if sort {
                let mut all = blocks.concat();
                all.sort();
                let mut rest = &all[..];
                for block in &mut blocks {
                    let (piece, later) = rest.split_at(block.len());
                    *block = piece.to_vec();
                    rest = later;
                }
            }
            blocks.iter_mut().for_each(|block| block.sort());
            let kernel = kernel();
            let borders = (0..).zip(&blocks).map(|(node, block)| Border::of(Node(node), block, &*kernel));
            let found = violations(&borders.collect::<Vec<_>>(), &*kernel);
            prop_assert_eq!(found.is_empty(), blocks.concat().is_sorted());
            prop_assert!(!sort || found.is_empty());
            for (one, next) in found {
                let last = blocks[one.0 as usize].last();
                prop_assert!(last > blocks[next.0 as usize].first());
            }
        }
    }

    #[test]
    fn borders_that_no_sorted_block_has_are_found() {
        let kernel = kernel();
        let border = |node, count, first, last| Border {
            node: Node(node),
            count,
            first,
            last,
        };
        let borders = [
            border(0, 2, &[1][..], &[3][..]),
            border(1, 2, &[9], &[8]),
            border(2, 1, &[4], &[5]),
            border(3, 0, &[4], &[4]),
            border(4, 3, &[], &[]),
            border(5, 0, &[], &[]),
            border(6, 5, &[2], &[7]),
            border(7, 1, &[7], &[7]),
        ];
        let found = violations(&borders, &*kernel);
        let pairs: Vec<(u32, u32)> = found.iter().map(|(one, next)| (one.0, next.0)).collect();
        assert_eq!(pairs, [(1, 1), (2, 2), (1, 2), (3, 3), (4, 4), (2, 6)]);
    }
}

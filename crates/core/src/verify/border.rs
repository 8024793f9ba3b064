//! Is a sorted result in order across nodes? From what each node tells of its own block, which it has
//! looked at itself (`Kernel::first_disorder`). The sequential verification of the 1989 paper (Theorem
//! 1, the order) without its data: two records a node. It must never see more of a block.

use std::cmp::Ordering;

use crate::vcube::Node;
use ftsort_kernels::kernel::Kernel;

const NODE_BYTES: usize = 4;
const COUNT_BYTES: usize = 8;

/// What a node tells of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Border<'a> {
    /// The node.
    pub node: Node,
    /// How many records.
    pub count: u64,
    /// The first record; empty if there are none.
    pub first: &'a [u8],
    /// The last record; empty if there are none.
    pub last: &'a [u8],
}

impl<'a> Border<'a> {
    /// Of a sorted block.
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

    /// The most bytes of [`Border::encode`].
    pub fn limit(record_bytes: usize) -> usize {
        NODE_BYTES + COUNT_BYTES + 2 * record_bytes
    }

    /// Appends it to a message: node, count, and the two records if there are any.
    pub fn encode(&self, words: &mut Vec<u8>) {
        words.extend(self.node.0.to_le_bytes());
        words.extend(self.count.to_le_bytes());
        words.extend_from_slice(self.first);
        words.extend_from_slice(self.last);
    }

    /// The border that a message starts with, of records of this size, and the rest of the message; None
    /// if it starts with none.
    pub fn decode(words: &'a [u8], record_bytes: usize) -> Option<(Border<'a>, &'a [u8])> {
        let (node, rest) = words.split_at_checked(NODE_BYTES)?;
        let (count, rest) = rest.split_at_checked(COUNT_BYTES)?;
        let count = u64::from_le_bytes(count.try_into().ok()?);
        let size = if count == 0 { 0 } else { record_bytes };
        let (first, rest) = rest.split_at_checked(size)?;
        let (last, rest) = rest.split_at_checked(size)?;
        let border = Border {
            node: Node(u32::from_le_bytes(node.try_into().ok()?)),
            count,
            first,
            last,
        };
        Some((border, rest))
    }

    /// Does it say what a block can be: two whole records, not in the wrong order, or none?
    fn is_possible(&self, kernel: &dyn Kernel) -> bool {
        let size = match self.count {
            0 => 0,
            _ => kernel.record_bytes(),
        };
        let order = || kernel.compare(self.first, self.last);
        self.first.len() == size
            && self.last.len() == size
            && match self.count {
                0 => true,
                1 => self.first == self.last,
                _ => order() != Ordering::Greater,
            }
    }
}

/// The pairs of nodes, in the order given, between which the order is violated: the last record of the
/// one is after the first of the next that has any. A node that tells what cannot be is paired with
/// itself, and what it tells counts for nothing else.
pub fn violations(borders: &[Border<'_>], kernel: &dyn Kernel) -> Vec<(Node, Node)> {
    let mut found = Vec::new();
    let mut before: Option<&Border<'_>> = None;
    for border in borders {
        if !border.is_possible(kernel) {
            found.push((border.node, border.node));
            continue;
        }
        if border.count == 0 {
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
        fn a_border_survives_its_encoding(block: Vec<u8>, node: u32, after: Vec<u8>) {
            let border = Border::of(Node(node), &block, &*kernel());
            let mut words = Vec::new();
            border.encode(&mut words);
            let length = words.len();
            prop_assert!(length <= Border::limit(1));
            prop_assert_eq!(Border::decode(&words[..length - 1], 1), None);
            words.extend(&after);
            prop_assert_eq!(Border::decode(&words, 1), Some((border, &after[..])));
        }

        #[test]
        fn sorted_blocks_are_in_order_if_they_are_together(
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
    fn what_cannot_be_is_found() {
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
        assert_eq!(pairs, [(1, 1), (2, 2), (3, 3), (4, 4), (0, 6)]);
    }
}

//! The blocks of a subcube that a node knows: one block of sorted records for each node (the
//! paper's LBS and LLBS). Contains the consistency predicate, Figure 4c: two reports on the same
//! node must be equal.
//!
//! Must never: look into a record.

use std::ops::Deref;

use super::mask::Mask;
use crate::vcube::{Node, first_of};

/// The known blocks of a subcube's nodes. `B` holds a block's bytes and is cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence<B> {
    first: Node,
    blocks: Vec<Option<B>>,
}

/// The reason why a report is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// An earlier report on this node was different.
    Different(Node),
    /// The block of this node is missing.
    Missing(Node),
}

impl<B: Clone + Deref<Target = [u8]>> Sequence<B> {
    /// Returns the sequence of the node's subcube of this dimension, with only the node's own
    /// block.
    pub fn new(dimension: u32, node: Node, block: B) -> Sequence<B> {
        let mut sequence = Sequence {
            first: first_of(node, dimension),
            blocks: vec![None; 1 << dimension],
        };
        sequence.set_block(node, Some(block));
        sequence
    }

    /// Returns the subcube's nodes, ascending.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = Node> + use<B> {
        let Node(first) = self.first;
        (first..first + self.blocks.len() as u32).map(Node)
    }

    fn index(&self, node: Node) -> Option<usize> {
        let index = node.0.checked_sub(self.first.0)? as usize;
        (index < self.blocks.len()).then_some(index)
    }

    /// Returns a node's block, if it is known.
    pub fn block(&self, node: Node) -> Option<&B> {
        self.blocks[self.index(node)?].as_ref()
    }

    /// Replaces or removes the block of a node of the subcube. For code that builds messages.
    pub fn set_block(&mut self, node: Node, block: Option<B>) {
        if let Some(index) = self.index(node) {
            self.blocks[index] = block;
        }
    }

    /// Returns the size of all known blocks, in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().flatten().map(|block| block.len()).sum()
    }

    /// Evaluates the consistency predicate: adds the reported blocks of the nodes in `mask`. A
    /// block that is known already must be the same. Processes all nodes, and returns the first
    /// contradiction.
    pub fn merge(&mut self, report: &Sequence<B>, mask: Mask) -> Result<(), Contradiction> {
        let mut wrong = None;
        for node in mask.nodes() {
            let Some(index) = self.index(node) else {
                continue;
            };
            let result = match (&self.blocks[index], report.block(node)) {
                (_, None) => Err(Contradiction::Missing(node)),
                (Some(known), Some(block)) if known[..] != block[..] => {
                    Err(Contradiction::Different(node))
                }
                (Some(_), Some(_)) => Ok(()),
                (None, Some(block)) => {
                    self.blocks[index] = Some(block.clone());
                    Ok(())
                }
            };
            wrong = wrong.or(result.err());
        }
        wrong.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::mask::rounds;
    use proptest::prelude::*;

    type Bytes = Vec<u8>;

    fn whole(dimension: u32) -> Sequence<Bytes> {
        let mut whole = Sequence::new(dimension, Node(0), vec![0]);
        whole
            .nodes()
            .for_each(|node| whole.set_block(node, Some(vec![node.0 as u8])));
        whole
    }

    #[test]
    fn a_sequence_is_of_a_subcube() {
        let mut sequence = Sequence::new(2, Node(6), vec![6]);
        assert!(sequence.nodes().eq([4, 5, 6, 7].map(Node)));
        sequence.set_block(Node(3), Some(vec![3]));
        assert_eq!(sequence.block(Node(3)), None);
        assert_eq!(sequence.bytes(), 1);
    }

    proptest! {
        /// All rounds of a stage, with one error or none.
        #[test]
        fn a_different_block_is_detected_if_the_right_one_is_known(
            dimension in 1_u32..6,
            node: u32,
            at: u32,
            error in 0_u8..3,
        ) {
            let nodes = 1 << dimension;
            let (node, at) = (Node(node % nodes), Node(at % nodes));
            let stage = dimension - 1;
            let mut known = Sequence::new(dimension, node, vec![node.0 as u8]);
            for round in rounds(dimension).filter(|round| round.stage == stage) {
                let mut report = whole(dimension);
                match error {
                    1 => report.set_block(at, Some(vec![at.0 as u8, 0])),
                    2 => report.set_block(at, None),
                    _ => {}
                }
                let mask = round.mask(node);
                let was_known = known.block(at).is_some();
                let result = known.merge(&report, mask);
                let expected = match error {
                    1 if was_known => Err(Contradiction::Different(at)),
                    2 if mask.contains(at) => Err(Contradiction::Missing(at)),
                    _ => Ok(()),
                };
                prop_assert_eq!(result, expected);
                let held = known.nodes().filter(|node| known.block(*node).is_some());
                let expected = mask.nodes().filter(|node| error != 2 || was_known || *node != at);
                prop_assert!(held.eq(expected));
                if error == 1 && known.block(at) == Some(&vec![at.0 as u8, 0]) {
                    // The wrong block was accepted, and the next report has the same one.
                    break;
                }
            }
        }
    }
}

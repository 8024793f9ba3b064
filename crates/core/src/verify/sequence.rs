//! What a node has heard of a subcube: one block of sorted records for each node (the paper's LBS and
//! LLBS), and the consistency predicate, Figure 4c: whoever tells of a node of which one has heard
//! already must tell the same. It must never look into a record.

use std::ops::Deref;

use super::mask::Mask;
use crate::vcube::{Node, first_of};

/// The blocks of a subcube's nodes, as far as they are known. `B` is a block's bytes, cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence<B> {
    first: Node,
    blocks: Vec<Option<B>>,
}

/// Why what was told cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// Of this node something else was heard before.
    Different(Node),
    /// Of this node nothing was told.
    Missing(Node),
}

impl<B: Clone + Deref<Target = [u8]>> Sequence<B> {
    /// Of the node's subcube of this dimension, with the node's own block alone.
    pub fn new(dimension: u32, node: Node, block: B) -> Sequence<B> {
        let mut sequence = Sequence {
            first: first_of(node, dimension),
            blocks: vec![None; 1 << dimension],
        };
        sequence.set_block(node, Some(block));
        sequence
    }

    /// The subcube's nodes, ascending.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = Node> + use<B> {
        let Node(first) = self.first;
        (first..first + self.blocks.len() as u32).map(Node)
    }

    fn index(&self, node: Node) -> Option<usize> {
        let index = node.0.checked_sub(self.first.0)? as usize;
        (index < self.blocks.len()).then_some(index)
    }

    /// A node's block, if one has heard of it.
    pub fn block(&self, node: Node) -> Option<&B> {
        self.blocks[self.index(node)?].as_ref()
    }

    /// Says something else of a node of the subcube, or nothing. For those who build messages.
    pub fn set_block(&mut self, node: Node, block: Option<B>) {
        if let Some(index) = self.index(node) {
            self.blocks[index] = block;
        }
    }

    /// Has one heard of all?
    pub fn is_complete(&self) -> bool {
        self.blocks.iter().all(Option::is_some)
    }

    /// The size of all blocks that are known.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().flatten().map(|block| block.len()).sum()
    }

    /// The consistency predicate: takes what another tells of the nodes of a mask. What is new is
    /// believed, what is known must be the same. Goes on to the end, and returns the first thing wrong.
    pub fn merge(&mut self, told: &Sequence<B>, mask: Mask) -> Result<(), Contradiction> {
        let mut wrong = None;
        for node in mask.nodes() {
            let Some(index) = self.index(node) else {
                continue;
            };
            let result = match (&self.blocks[index], told.block(node)) {
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
        assert_eq!((sequence.bytes(), sequence.is_complete()), (1, false));
    }

    proptest! {
        /// Through all rounds of a stage, with one thing wrong or nothing.
        #[test]
        fn what_differs_is_found_where_it_is_known(
            dimension in 1_u32..6,
            node: u32,
            at: u32,
            what in 0_u8..3,
        ) {
            let nodes = 1 << dimension;
            let (node, at) = (Node(node % nodes), Node(at % nodes));
            let stage = dimension - 1;
            let mut known = Sequence::new(dimension, node, vec![node.0 as u8]);
            for round in rounds(dimension).filter(|round| round.stage == stage) {
                let mut told = whole(dimension);
                match what {
                    1 => told.set_block(at, Some(vec![at.0 as u8, 0])),
                    2 => told.set_block(at, None),
                    _ => {}
                }
                let mask = round.mask(node);
                let was_known = known.block(at).is_some();
                let result = known.merge(&told, mask);
                let expected = match what {
                    1 if was_known => Err(Contradiction::Different(at)),
                    2 if mask.contains(at) => Err(Contradiction::Missing(at)),
                    _ => Ok(()),
                };
                prop_assert_eq!(result, expected);
                let heard = known.nodes().filter(|node| known.block(*node).is_some());
                let told = mask.nodes().filter(|node| what != 2 || was_known || *node != at);
                prop_assert!(heard.eq(told));
                if what == 1 && known.block(at) == Some(&vec![at.0 as u8, 0]) {
                    // It was believed, and the next who tells it tells the same.
                    break;
                }
            }
        }
    }
}

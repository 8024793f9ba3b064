//! QuickMerge and modified QuickMerge (Quinn 1989), as the 2024 paper has them in Section 4.2 and
//! Algorithm 2, with its correction of the pivot index.
//!
//! As HyperQuickSort, but all N - 1 pivots ("splitters") are chosen once, before the first exchange.
//! In round q + 1 node k cuts at splitter (k and (2^d - 2^(d-q))) or 2^(d-q-1), counted from 1: the
//! same for all nodes of its subcube.
//!
//! Cost: log2(N) rounds with one exchange each, and one decision in the first. Must never: look at who
//! is alive, but for the shares that nodes are to get.

use super::hyperquicksort::halve;
use super::pivot::{self, Cut, Place};
use super::{sorted, sorted_each};
use crate::block::Block;
use crate::engine::{Algorithm, Exchange, RoundContext, Split, Step, Subcube};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// How the splitters are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Splitters {
    /// From samples of all blocks, by the shares of fault-free nodes: balanced for all keys.
    Sampled,
    /// The paper's: evenly spaced records of the root's own list (line 16). An empty root cuts nothing
    /// off.
    Root,
    /// The paper's modified QuickMerge: the averages of the corresponding entries of all nodes' lists.
    /// The average of floats is that of their places in the order of all floats, so that NaN and
    /// infinity do no harm; keys that are no numbers have no average, and the middle entry is taken.
    Averaged,
}

/// QuickMerge on a cube of some dimension.
#[derive(Debug)]
pub struct QuickMerge<'a> {
    /// Sorts, compares and merges.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// How splitters are chosen.
    pub splitters: Splitters,
}

/// Which splitter node k cuts at in this round, counted from 1: Algorithm 2, line 19, corrected.
fn splitter_index(d: u32, round: u32, k: Node) -> usize {
    let q = round - 1;
    let above = (1 << d) - (1 << (d - q));
    ((k.0 & above) | 1 << (d - q - 1)) as usize
}

impl QuickMerge<'_> {
    fn nodes(&self) -> usize {
        1 << self.dimension
    }

    fn encode(&self, places: &[Place]) -> Vec<u8> {
        let mut out = Vec::new();
        places.iter().for_each(|place| place.encode(&mut out));
        out
    }

    /// The lists of splitters that nodes proposed; those of empty nodes are not there.
    fn lists(&self, proposals: &[(Node, Slice)]) -> Result<Vec<Vec<Place>>> {
        let size = self.kernel.record_bytes();
        let lists = proposals.iter().filter(|(_, list)| !list.is_empty());
        lists
            .map(|(_, list)| {
                let places = list.chunks_exact(Place::encoded_bytes(size));
                places.map(|place| Place::decode(place, size)).collect()
            })
            .collect()
    }

    fn average(&self, lists: &[Vec<Place>], index: usize) -> Cut {
        let mut entries: Vec<&[u8]> = lists.iter().map(|list| &list[index].record[..]).collect();
        entries.sort_by(|one, other| self.kernel.compare(one, other));
        let Some(middle) = entries.get(entries.len() / 2) else {
            return Cut::AllLower;
        };
        let average = self.kernel.average(&entries);
        Cut::At(Place::behind(average.unwrap_or_else(|| middle.to_vec())))
    }
}

impl Algorithm for QuickMerge<'_> {
    fn rounds(&self) -> u32 {
        self.dimension
    }

    fn step(&self, round: u32) -> Step {
        Step {
            scope: (round == 1).then_some(self.dimension),
            exchange: Exchange::Dimension(self.dimension - round),
        }
    }

    fn prepare(&self, block: Block) -> Result<Block> {
        sorted(block, self.kernel)
    }

    fn prepare_each(&self, inputs: &mut dyn Iterator<Item = Result<Block>>) -> Vec<Result<Block>> {
        sorted_each(inputs, self.kernel)
    }

    fn propose(&self, at: &RoundContext<'_>, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        let asked = match self.splitters {
            Splitters::Sampled => {
                let samples = pivot::sample(block, self.nodes(), self.kernel);
                return Ok(pivot::encode_samples(&samples));
            }
            Splitters::Root => at.node == subcube.root(),
            Splitters::Averaged => true,
        };
        let list = match asked {
            true => pivot::even_splitters(block, self.nodes(), self.kernel),
            false => Vec::new(),
        };
        Ok(self.encode(&list))
    }

    fn decide(
        &self,
        _at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        let cuts = match self.splitters {
            Splitters::Sampled => pivot::balanced(proposals, &subcube.shares(), self.kernel)?,
            Splitters::Root | Splitters::Averaged => {
                // With a root's list alone the average is that list.
                let lists = self.lists(proposals)?;
                let indices = 0..self.nodes() - 1;
                indices.map(|index| self.average(&lists, index)).collect()
            }
        };
        Ok(Cut::encode_all(&cuts, self.kernel.record_bytes()))
    }

    fn proposal_limit(&self, _round: u32) -> usize {
        let size = self.kernel.record_bytes();
        pivot::samples_limit(self.nodes(), size).max(self.nodes() * Place::encoded_bytes(size))
    }

    fn decision_limit(&self, _round: u32) -> usize {
        self.nodes() * Cut::encoded_bytes(self.kernel.record_bytes())
    }

    fn most_runs(&self) -> usize {
        self.nodes()
    }

    fn is_recomputable(&self) -> bool {
        true
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        let cuts = Cut::decode_all(at.decision, self.kernel.record_bytes())?;
        let cut = &cuts[splitter_index(self.dimension, at.round, at.node) - 1];
        let in_upper_half = at.node.0 >> (self.dimension - at.round) & 1 == 1;
        Ok(halve(cut, in_upper_half, block, self.kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sort::testing::{block_of, kernel};

    #[test]
    fn the_pivots_of_three_dimensions_are_those_of_the_paper() {
        let chosen = |round, nodes: &[u32]| -> Vec<usize> {
            let index = |node: &u32| splitter_index(3, round, Node(*node));
            nodes.iter().map(index).collect()
        };
        assert_eq!(chosen(1, &[0, 1, 2, 3, 4, 5, 6, 7]), [4; 8]);
        assert_eq!(chosen(2, &[0, 1, 2, 3]), [2; 4]);
        assert_eq!(chosen(2, &[4, 5, 6, 7]), [6; 4]);
        assert_eq!(
            chosen(3, &[0, 1, 2, 3, 4, 5, 6, 7]),
            [1, 1, 3, 3, 5, 5, 7, 7]
        );
    }

    #[test]
    fn the_splitters_are_every_128th_of_1024() {
        let kernel = kernel();
        let numbers: Vec<i32> = (0..1024).collect();
        let mut block = block_of(0, &numbers);
        block.sorted = true;
        let list = pivot::even_splitters(&block, 8, &*kernel);
        let keys: Vec<i32> = list
            .iter()
            .map(|place| bytemuck::pod_read_unaligned(&place.record))
            .collect();
        assert_eq!(keys, [128, 256, 384, 512, 640, 768, 896]);
    }

    #[test]
    fn averages_are_taken_entry_by_entry() {
        let kernel = kernel();
        let algorithm = QuickMerge {
            kernel: &*kernel,
            dimension: 1,
            splitters: Splitters::Averaged,
        };
        let lists = |keys: &[i32]| -> Vec<Vec<Place>> {
            let list = |key: &i32| vec![Place::behind(key.to_ne_bytes().to_vec())];
            keys.iter().map(list).collect()
        };
        let average = |keys: &[i32]| match algorithm.average(&lists(keys), 0) {
            Cut::At(place) => Some(bytemuck::pod_read_unaligned::<i32>(&place.record)),
            _ => None,
        };
        assert_eq!(average(&[10, 20, 60]), Some(30));
        assert_eq!(average(&[i32::MIN, i32::MIN, 4]), Some(-1_431_655_764));
        assert_eq!(average(&[]), None);
    }
}

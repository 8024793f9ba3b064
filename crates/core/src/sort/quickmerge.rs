//! QuickMerge and modified QuickMerge (Quinn 1989), following Section 4.2 and Algorithm 2 of the 2024 paper,
//! with a corrected pivot index.
//!
//! The rounds are those of HyperQuickSort, but all N - 1 pivots ("splitters") are chosen once, before the
//! first exchange. In round q + 1 node k cuts at splitter (k and (2^d - 2^(d-q))) or 2^(d-q-1), counted from
//! 1, which is the same for all nodes of its subcube.
//!
//! Cost: log2(N) rounds with one exchange each, and one decision in the first round. Must never: depend on
//! failures, except through the shares of the nodes.

use super::hyperquicksort::split_at;
use super::of_sorted_pieces;
use super::pivot::{self, Cut, CutPoint, Division};
use super::proposed_samples;
use crate::block::Block;
use crate::engine::{Algorithm, Exchange, Proposals, RoundContext, Split, Step, Subcube};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// The rule that chooses the splitters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Splitters {
    /// From samples of all blocks, by the shares of fault-free nodes: balanced for every distribution of
    /// keys.
    Sampled,
    /// The paper's rule: evenly spaced records of the root's list (line 16). If that list is empty, all
    /// records are in the lower half.
    Root,
    /// The paper's modified QuickMerge: the averages of the corresponding entries of all nodes' lists. The
    /// average of floats is the average of their ranks in the order of all floats, so NaN and infinity are
    /// allowed. Keys that are not numbers have no average; the middle entry is taken instead.
    Averaged,
}

/// QuickMerge on a cube of a given dimension.
#[derive(Debug)]
pub struct QuickMerge<'a> {
    /// The kernel that sorts, compares and merges.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// The rule that chooses splitters.
    pub splitters: Splitters,
}

/// Returns the index, counted from 1, of the splitter at which node k cuts in this round: Algorithm 2, line
/// 19, corrected.
fn splitter_index(d: u32, round: u32, k: Node) -> usize {
    let q = round - 1;
    let above = (1 << d) - (1 << (d - q));
    ((k.0 & above) | 1 << (d - q - 1)) as usize
}

impl QuickMerge<'_> {
    fn nodes(&self) -> usize {
        1 << self.dimension
    }

    fn division(&self) -> Division {
        Division {
            nodes: self.nodes(),
            parts: self.nodes(),
        }
    }

    fn encode(&self, points: &[CutPoint]) -> Vec<u8> {
        let mut out = Vec::new();
        points.iter().for_each(|point| point.encode(&mut out));
        out
    }

    /// Decodes the lists of splitters that nodes proposed. Empty nodes have no list.
    fn lists(&self, proposals: &[(Node, Slice)]) -> Result<Vec<Vec<CutPoint>>> {
        let size = self.kernel.record_bytes();
        let lists = proposals.iter().filter(|(_, list)| !list.is_empty());
        lists
            .map(|(_, list)| {
                let points = pivot::whole_chunks(list, CutPoint::encoded_bytes(size))?;
                if points.len() + 1 != self.nodes() {
                    return Err(pivot::undecodable());
                }
                points.map(|point| CutPoint::decode(point, size)).collect()
            })
            .collect()
    }

    fn average(&self, lists: &[Vec<CutPoint>], index: usize) -> Cut {
        let mut entries: Vec<&[u8]> = lists.iter().map(|list| &list[index].record[..]).collect();
        entries.sort_unstable_by(|one, other| self.kernel.compare(one, other));
        let Some(middle) = entries.get(entries.len() / 2) else {
            return Cut::AllLower;
        };
        let average = self.kernel.average(&entries);
        Cut::At(CutPoint::after_key(
            average.unwrap_or_else(|| middle.to_vec()),
        ))
    }
}

impl Algorithm for QuickMerge<'_> {
    of_sorted_pieces!();

    fn rounds(&self) -> u32 {
        self.dimension
    }

    fn step(&self, round: u32) -> Step {
        Step {
            scope: (round == 1).then_some(self.dimension),
            exchange: Exchange::Dimension(self.dimension - round),
        }
    }

    fn propose(&self, at: &RoundContext<'_>, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        let proposes = match self.splitters {
            Splitters::Sampled => {
                let samples = pivot::sample(block, self.division(), self.kernel);
                return Ok(proposed_samples::encode_samples(&samples));
            }
            Splitters::Root => at.node == subcube.root(),
            Splitters::Averaged => true,
        };
        let list = if proposes {
            pivot::even_splitters(block, self.nodes(), self.kernel)
        } else {
            Vec::new()
        };
        Ok(self.encode(&list))
    }

    fn unite_proposals(&self, _at: &RoundContext<'_>, proposals: Proposals) -> Result<Proposals> {
        match self.splitters {
            Splitters::Sampled => proposed_samples::thinned(proposals, self.nodes(), self.kernel),
            Splitters::Root | Splitters::Averaged => Ok(proposals),
        }
    }

    fn decide(
        &self,
        _at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        let size = self.kernel.record_bytes();
        if self.splitters == Splitters::Sampled {
            let cuts = pivot::balanced(proposals, &subcube.shares(), self.kernel)?;
            return Ok(Cut::encode_all(&cuts, size));
        }
        // If only the root has a list, the average is that list.
        let lists = self.lists(proposals)?;
        let indices = 0..self.nodes() - 1;
        let cuts: Vec<Cut> = indices.map(|index| self.average(&lists, index)).collect();
        Ok(Cut::encode_all(&cuts, size))
    }

    fn proposal_limit(&self, _round: u32) -> usize {
        let size = self.kernel.record_bytes();
        proposed_samples::samples_limit(self.division(), size)
            .max(self.nodes() * CutPoint::encoded_bytes(size))
    }

    fn decision_limit(&self, _round: u32) -> usize {
        self.nodes() * Cut::encoded_bytes(self.kernel.record_bytes())
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        let cuts = Cut::read_between(at.decision, self.nodes(), self.kernel.record_bytes())?;
        let cut = &cuts[splitter_index(self.dimension, at.round, at.node) - 1];
        let in_upper_half = at.node.0 >> (self.dimension - at.round) & 1 == 1;
        Ok(split_at(cut, in_upper_half, block, self.kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::{Members, Rank};
    use crate::sort::testing::{block_of, kernel};

    #[test]
    fn splitter_indices_are_those_of_the_paper() {
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
    fn splitters_are_evenly_spaced() {
        let kernel = kernel();
        let numbers: Vec<i32> = (0..1024).collect();
        let mut block = block_of(0, &numbers);
        block.sorted = true;
        let list = pivot::even_splitters(&block, 8, &*kernel);
        let keys: Vec<i32> = list
            .iter()
            .map(|point| bytemuck::pod_read_unaligned(&point.record))
            .collect();
        assert_eq!(keys, [128, 256, 384, 512, 640, 768, 896]);
    }

    #[test]
    fn all_nodes_or_the_root_propose_splitters() {
        let kernel = kernel();
        let mut block = block_of(0, &[1, 2, 3, 4]);
        block.sorted = true;
        let subcube = Subcube::of(&Members::new(Rank(0), 4), Node(0), 2);
        for (splitters, expected) in [
            (Splitters::Averaged, [true; 4]),
            (Splitters::Root, [true, false, false, false]),
        ] {
            let algorithm = QuickMerge {
                kernel: &*kernel,
                dimension: 2,
                splitters,
            };
            let proposes = [0, 1, 2, 3].map(|node| {
                let at = RoundContext::new(1, Node(node), &[]);
                let proposal = algorithm.propose(&at, &subcube, &block);
                !proposal.unwrap().is_empty()
            });
            assert_eq!(proposes, expected, "{splitters:?}");
        }
    }

    #[test]
    fn averages_each_entry_of_the_lists() {
        let kernel = kernel();
        let algorithm = QuickMerge {
            kernel: &*kernel,
            dimension: 1,
            splitters: Splitters::Averaged,
        };
        let lists = |keys: &[i32]| -> Vec<Vec<CutPoint>> {
            let list = |key: &i32| vec![CutPoint::after_key(key.to_ne_bytes().to_vec())];
            keys.iter().map(list).collect()
        };
        let average = |keys: &[i32]| match algorithm.average(&lists(keys), 0) {
            Cut::At(point) => Some(bytemuck::pod_read_unaligned::<i32>(&point.record)),
            _ => None,
        };
        assert_eq!(average(&[10, 20, 60]), Some(30));
        assert_eq!(average(&[i32::MIN, i32::MIN, 4]), Some(-1_431_655_764));
        assert_eq!(average(&[]), None);
    }
}

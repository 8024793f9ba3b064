//! Sample sort: one exchange, or a few exchanges between fewer nodes, instead of log2(N) exchanges.
//!
//! Inputs are sorted. Samples of all inputs give N - 1 cuts with a guaranteed balance, since cuts are made in
//! the total order (key, origin, position) (Shi and Schaeffer 1992, "Parallel sorting by regular sampling",
//! with weights). Every node sends every other node its part once, and each node merges the parts that
//! arrive.
//!
//! With several levels (Axtmann et al. 2015, "Practical Massively Parallel Sorting"), the first level divides the
//! cube into parts that are subcubes, and cuts the records for these parts only; each further level does the same
//! within the parts. A node sends one message to each other part of its subcube and receives one from each. The
//! runs are not merged between the levels, so that a block still consists of pieces of inputs.
//!
//! In one level, large inputs of numbers can be divided first and sorted after the exchange, which saves the merge
//! ([`DivideFirst`]). Their samples are drawn at random. If there are such samples, a cut divides the equal keys of each
//! input in the same proportion, so that it has the same place in an input whether that is sorted or not. An input that
//! was only divided gives the same pieces as a sorted one, in another order: nodes can choose for themselves, and lost
//! pieces are made again by sorting a copy.
//!
//! Cost: one round with one decision for each level; with L levels about L (N^(1/L) - 1) messages per node, and
//! each record moves at most L times. Must never: depend on failures, except through the shares of the nodes.

use std::sync::Arc;

use super::drawn_samples::drawn_samples;
use super::key_bytes::KeyBytes;
use super::of_sorted_pieces;
use super::pivot::{self, Cut, Division};
use super::proposed_samples;
use crate::block::{Block, Divided, Run};
use crate::engine::{Algorithm, Exchange, Proposals, RoundContext, Split, Step, Subcube};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// Which inputs are divided before they are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DivideFirst {
    /// None.
    Never,
    /// Those for which it saves time.
    IfFaster,
    /// Those of at least so many bytes.
    From(usize),
}

/// Sample sort on a cube of a given dimension.
#[derive(Debug)]
pub struct SampleSort<'a> {
    /// The kernel that sorts, compares and merges.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// The number of levels, at least 1. A cube of a smaller dimension has as many levels as dimensions.
    pub levels: u32,
    /// Which inputs are divided first, if there is one level.
    pub divide_first: DivideFirst,
}

/// Up to this dimension, evenly spaced samples of all nodes are so many that a cut can be at one of them.
const FEW_DIMENSIONS: u32 = 6;

/// The size in bytes from which it saves time to divide an input first among few nodes, and the same for each of many
/// nodes: a merge of more runs takes longer, and so do samples for more cuts. For smaller inputs it takes longer to draw
/// samples than to merge.
const LEAST_OF_FEW: usize = 8 << 20;
const LEAST_FOR_EACH_OF_MANY: usize = 128 << 10;
const MANY_DIMENSIONS: u32 = 3;

/// One level: subcubes of dimension `high` are divided into parts, which are subcubes of dimension `low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    low: u32,
    high: u32,
}

impl Level {
    /// The level of a round. The dimensions are divided evenly, and the first levels get those that are left over.
    fn of(round: u32, levels: u32, dimension: u32) -> Level {
        let mut level = Level {
            low: dimension,
            high: dimension,
        };
        for done in 0..round {
            level.high = level.low;
            level.low -= level.high.div_ceil((levels - done).max(1));
        }
        level
    }

    /// The number of parts of a subcube.
    fn parts(self) -> usize {
        1 << (self.high - self.low)
    }

    /// The division of the blocks of a subcube.
    fn division(self) -> Division {
        Division {
            nodes: 1 << self.high,
            parts: self.parts(),
        }
    }

    /// The part of its subcube that a node is in.
    fn part_of(self, node: Node) -> usize {
        (node.0 >> self.low) as usize & (self.parts() - 1)
    }
}

impl SampleSort<'_> {
    fn key_bytes(&self) -> KeyBytes {
        KeyBytes::of(self.kernel)
    }

    fn level(&self, round: u32) -> Level {
        Level::of(round, self.rounds(), self.dimension)
    }

    /// Whether some inputs may be divided first.
    fn may_divide_first(&self) -> bool {
        self.divide_first != DivideFirst::Never && self.rounds() == 1
    }

    /// Returns the places of a decision's cuts in an input.
    fn places(&self, at: &RoundContext<'_>, run: &Run) -> Result<Vec<usize>> {
        let cuts = self.key_bytes().whole_cuts(at.decision)?;
        let cuts = self.cuts(at, &cuts)?;
        Ok(cuts
            .iter()
            .map(|cut| cut.records_below(run, self.kernel))
            .collect())
    }

    fn cuts<'c>(&self, at: &RoundContext<'_>, whole: &'c [u8]) -> Result<Vec<Cut<&'c [u8]>>> {
        Cut::read_between(
            whole,
            self.level(at.round).parts(),
            self.kernel.record_bytes(),
        )
    }
}

/// Returns the pieces of an input that end at these numbers of records, and the last one.
fn pieces_at(ends: &[usize], input: &Block, record_bytes: usize) -> Vec<Block> {
    let mut pieces = Vec::with_capacity(ends.len() + 1);
    let mut start = 0;
    for end in ends.iter().copied().chain([usize::MAX]) {
        let runs = input.runs.iter().map(|run| {
            // A decision of another rank may have cuts in any order.
            let end = end.min(run.data.len() / record_bytes).max(start);
            let data = run.data.part(start * record_bytes..end * record_bytes);
            let piece = Run::new(run.origin, run.start + start as u64, data);
            start = end;
            piece
        });
        let piece = Block::of_sorted(runs.collect());
        pieces.push(Block {
            sorted: input.sorted,
            ..piece
        });
    }
    pieces
}

impl Algorithm for SampleSort<'_> {
    of_sorted_pieces!();

    fn rounds(&self) -> u32 {
        self.levels.min(self.dimension).max(1)
    }

    fn step(&self, round: u32) -> Step {
        let Level { low, high } = self.level(round);
        Step {
            scope: Some(high),
            exchange: Exchange::Parts { low, high },
        }
    }

    fn waits(&self, block: &Block) -> bool {
        let [run] = &block.runs[..] else {
            return false;
        };
        let is_large = match self.divide_first {
            DivideFirst::Never => false,
            DivideFirst::IfFaster => {
                let least = match self.dimension {
                    0..MANY_DIMENSIONS => LEAST_OF_FEW,
                    dimension => LEAST_FOR_EACH_OF_MANY << dimension,
                };
                run.data.len() >= least && self.kernel.is_divided_first(&run.data)
            }
            DivideFirst::From(bytes) => run.data.len() >= bytes,
        };
        is_large && self.may_divide_first() && !block.sorted
    }

    fn divided(&self, at: &RoundContext<'_>, mut block: Block) -> Result<Block> {
        let whole = self.key_bytes().whole_cuts(at.decision)?;
        let cuts = self.cuts(at, &whole)?;
        let [run] = &mut block.runs[..] else {
            return self.prepare(block);
        };
        let mut bounds = Vec::with_capacity(cuts.len());
        for cut in &cuts {
            let Cut::At(point) = cut else {
                continue;
            };
            let Some(bound) = point.bound(run.origin) else {
                // A cut at a position is in sorted inputs only.
                return self.prepare(block);
            };
            bounds.push(bound);
        }
        let mut buffer = std::mem::take(&mut run.data).into_buffer()?;
        let records = buffer.len() / self.kernel.record_bytes();
        let mut places = self.kernel.divide(&mut buffer, &bounds)?.into_iter();
        let ends = cuts.iter().map(|cut| match cut {
            Cut::AllUpper => 0,
            Cut::AllLower => records,
            Cut::At(_) => places.next().unwrap_or(records),
        });
        let ends = ends.collect();
        run.data = buffer.into();
        let decision = at.decision.to_vec();
        block.divided = Some(Arc::new(Divided { decision, ends }));
        Ok(block)
    }

    fn propose(&self, at: &RoundContext<'_>, _subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        let division = self.level(at.round).division();
        if !block.sorted {
            let mut drawn = Block::empty();
            let at = (at.node, division);
            let samples = drawn_samples(block, at, &mut drawn, self.kernel)?;
            return Ok(self.key_bytes().of_samples(&samples));
        }
        let samples = match self.levels {
            1 if self.dimension <= FEW_DIMENSIONS => {
                pivot::sample_once(block, division, self.kernel)
            }
            _ => pivot::scattered_samples(block, (at.node, division), self.kernel),
        };
        Ok(self.key_bytes().of_samples(&samples))
    }

    fn unite_proposals(&self, at: &RoundContext<'_>, proposals: Proposals) -> Result<Proposals> {
        let keys = self.key_bytes();
        let proposals = keys.whole_samples(&proposals)?;
        let united =
            proposed_samples::thinned(proposals, self.level(at.round).parts(), self.kernel)?;
        keys.of_whole_samples(united)
    }

    fn decide(
        &self,
        at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        let shares = subcube.shares();
        let parts = shares.chunks(1 << self.level(at.round).low);
        let share = |part: &[usize]| match mutant(Mutant::PartsWeighAlike) {
            true => 1,
            false => part.iter().sum(),
        };
        let parts: Vec<usize> = parts.map(share).collect();
        let keys = self.key_bytes();
        let proposals = keys.whole_samples(proposals)?;
        let cuts = pivot::balanced(&proposals, &parts, self.kernel)?;
        Ok(keys.of_cuts(&cuts))
    }

    fn proposal_limit(&self, round: u32) -> usize {
        let most = pivot::most_samples(self.level(round).division(), self.kernel.record_bytes());
        most * self.key_bytes().sample_bytes()
    }

    fn decision_limit(&self, round: u32) -> usize {
        self.key_bytes().cut_bytes() * self.level(round).parts()
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        let level = self.level(at.round);
        let mut give = match (block.ends_by(at.decision), &block.runs[..]) {
            (Some(ends), _) => pieces_at(ends, block, self.kernel.record_bytes()),
            _ if !block.sorted => return self.split(at, &self.divided(at, block.clone())?),
            // A cut in every input needs all of its records with one key.
            (None, [run]) if self.rounds() == 1 => {
                pieces_at(&self.places(at, run)?, block, self.kernel.record_bytes())
            }
            _ => {
                let cuts = self.key_bytes().whole_cuts(at.decision)?;
                Cut::divide_all(&self.cuts(at, &cuts)?, block, self.kernel)
            }
        };
        let keep = give.remove(level.part_of(at.node));
        Ok(Split { keep, give })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{block_of, kernel};
    use super::*;
    use crate::members::{Members, Rank};
    use proptest::prelude::*;

    /// The cube of four nodes, and a sort on it in one level.
    fn on_four_nodes(kernel: &dyn Kernel, divide_first: DivideFirst) -> (Subcube, SampleSort<'_>) {
        let sort = SampleSort {
            kernel,
            dimension: 2,
            levels: 1,
            divide_first,
        };
        (Subcube::of(&Members::new(Rank(0), 4), Node(0), 2), sort)
    }

    /// What a node with this block proposes.
    fn proposal(
        sort: &SampleSort<'_>,
        subcube: &Subcube,
        node: Node,
        block: &Block,
    ) -> (Node, Slice) {
        let proposal = sort
            .propose(&RoundContext::new(1, node, &[]), subcube, block)
            .unwrap();
        (node, Slice::copy_of(&proposal).unwrap())
    }

    /// The origins, starts and sorted keys of the pieces of an input.
    fn pieces(split: Split) -> Vec<Vec<(Rank, u64, Vec<i32>)>> {
        let parts = [split.keep].into_iter().chain(split.give);
        let pieces = parts.map(|part| {
            let runs = part.runs.into_iter().map(|run| {
                let mut keys: Vec<i32> = bytemuck::pod_collect_to_vec(&run.data[..]);
                keys.sort_unstable();
                (run.origin, run.start, keys)
            });
            runs.collect()
        });
        pieces.collect()
    }

    proptest! {
        /// Some nodes sort their inputs and others only divide them: the pieces are the same for one decision, and an input
        /// that was divided by another decision is divided anew.
        #[test]
        fn divided_inputs_have_the_pieces_of_sorted_ones(
            inputs in prop::collection::vec(prop::collection::vec(0_i32..5000, 0..1500), 4),
            keys in prop::sample::select(vec![1, 3, 5000]),
        ) {
            let inputs: Vec<Vec<i32>> =
                inputs.into_iter().map(|input| input.into_iter().map(|key| key % keys).collect()).collect();
            let kernel = kernel();
            let (subcube, sort) = on_four_nodes(&*kernel, DivideFirst::From(1));
            let input = |node: usize| block_of(node as u32, &inputs[node]);
            let mut proposals = Vec::new();
            for node in 0..4 {
                let block = if node % 2 == 0 { input(node) } else { sort.prepare(input(node)).unwrap() };
                proposals.push(proposal(&sort, &subcube, Node(node as u32), &block));
            }
            let at = RoundContext::new(1, Node(0), &[]);
            let decision = sort.decide(&at, &subcube, &proposals).unwrap();
            let other = sort.decide(&at, &subcube, &proposals[..2]).unwrap();
            let mut sizes = [0; 4];
            for node in 0..4 {
                let at = RoundContext::new(1, Node(node as u32), &decision);
                let expected = pieces(sort.split(&at, &sort.prepare(input(node)).unwrap()).unwrap());
                let waiting = sort.divided(&RoundContext::new(1, at.node, &other), input(node)).unwrap();
                let divided = sort.divided(&at, waiting.clone()).unwrap();
                for block in [divided, waiting, input(node)] {
                    prop_assert_eq!(pieces(sort.split(&at, &block).unwrap()), expected.clone());
                }
                let own = sort.split(&at, &input(node)).unwrap();
                for (place, give) in own.give.iter().enumerate() {
                    sizes[place + usize::from(place >= node)] += give.bytes() / 4;
                }
                sizes[node] += own.keep.bytes() / 4;
            }
            let all = inputs.concat().len();
            // All records were drawn.
            prop_assert!(sizes.iter().all(|size| *size <= all / 4 + all / 50 + 8), "{sizes:?}");
        }
    }

    /// The errors of their samples would add up otherwise.
    #[test]
    fn nodes_with_the_same_records_draw_different_ones() {
        let kernel = kernel();
        let (subcube, sort) = on_four_nodes(&*kernel, DivideFirst::From(1));
        let block = block_of(0, &(0..100_000).collect::<Vec<i32>>());
        let [one, other] = [0, 1].map(|node| proposal(&sort, &subcube, Node(node), &block).1);
        assert_ne!(*one, *other);
    }

    /// If no input waits, equal keys are cut at positions: ranks with the same keys keep them.
    #[test]
    fn equal_keys_of_sorted_inputs_stay() {
        let kernel = kernel();
        for (divide_first, stay) in [
            (DivideFirst::From(usize::MAX), true),
            (DivideFirst::From(1), false),
        ] {
            let (subcube, sort) = on_four_nodes(&*kernel, divide_first);
            let input = |node: Node| match block_of(node.0, &[7; 4000]) {
                block if sort.waits(&block) => block,
                block => sort.prepare(block).unwrap(),
            };
            let proposals = (0..4)
                .map(Node)
                .map(|node| proposal(&sort, &subcube, node, &input(node)));
            let proposals: Vec<(Node, Slice)> = proposals.collect();
            let decision = sort
                .decide(&RoundContext::new(1, Node(0), &[]), &subcube, &proposals)
                .unwrap();
            for node in (0..4).map(Node) {
                let split = sort
                    .split(&RoundContext::new(1, node, &decision), &input(node))
                    .unwrap();
                let kept = split.keep.bytes() / 4;
                assert_eq!(kept > 3900, stay, "{kept}");
            }
        }
    }

    #[test]
    fn levels_divide_the_dimensions_evenly() {
        let levels = |levels: u32, dimension: u32| -> Vec<(u32, u32)> {
            let rounds = 1..=levels.min(dimension).max(1);
            let level = |round| Level::of(round, levels.min(dimension).max(1), dimension);
            rounds
                .map(level)
                .map(|level| (level.low, level.high))
                .collect()
        };
        assert_eq!(levels(1, 0), [(0, 0)]);
        assert_eq!(levels(1, 14), [(0, 14)]);
        assert_eq!(levels(2, 14), [(7, 14), (0, 7)]);
        assert_eq!(levels(2, 3), [(1, 3), (0, 1)]);
        assert_eq!(levels(3, 14), [(9, 14), (4, 9), (0, 4)]);
        assert_eq!(levels(3, 2), [(1, 2), (0, 1)]);
    }
}

//! A sort of all inputs at once, on a rank that has all of them: cuts by samples of all inputs, and one merge.
//!
//! Must never: depend on the rank; only on the inputs and the shares of the nodes.

use super::key_bytes::KeyBytes;
use super::merge_and_place::ResultLayout;
use super::pivot::{Cut, CutPoint};
use super::shared_samples::ends;
use crate::block::{Block, Run};
use crate::engine::{MadeAtOnce, Subcube};
use crate::members::Rank;
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// Inputs of at most this many bytes together are merged as a whole, which is faster than to look for cuts before.
const MERGED_WHOLE: usize = 8 << 10;

/// The number of samples divided by the numbers of nodes and runs. A sample is off by at most half of the records that it
/// stands for in each run, which is 5 % of a node's share in all runs together, and mostly much less.
const SAMPLES_PER_NODE_AND_RUN: usize = 10;

/// A bound is off by at most this part of a node's share. A block has two ends.
const TOLERANCE: usize = 50;

/// How many samples are tried for a bound. The second one is chosen by the number of records before the first one, and is
/// off by less than the records that a sample stands for, unless many keys are equal.
const ATTEMPTS: usize = 2;

/// Returns the blocks of `nodes` in a sort of all inputs, which are sorted. The decisions are those of sample sort with
/// cuts that give each node its share, and of the layout of the result.
pub(super) fn of_inputs(
    kernel: &dyn Kernel,
    subcube: &Subcube,
    inputs: &[&Block],
    nodes: &[Node],
) -> Result<MadeAtOnce> {
    let runs: Vec<&Run> = inputs.iter().flat_map(|input| &input.runs).collect();
    let data: Vec<&[u8]> = runs.iter().map(|run| &run.data[..]).collect();
    let size = kernel.record_bytes();
    let shares = subcube.shares();
    let samples = Samples::of(kernel, &data, shares.len())?;
    let bounds = Bounds::of(kernel, &data, &samples, &shares);
    let starts: Vec<usize> = bounds.iter().map(|bound| bound.iter().sum()).collect();
    let is_whole = samples.weight == 1;
    let merged = Slice::from(samples.sorted);
    let mut blocks = Vec::with_capacity(nodes.len());
    for node in nodes {
        let place = node.0 as usize;
        let (start, end) = (starts[place], starts[place + 1]);
        let data = if is_whole {
            merged.part(start * size..end * size)
        } else {
            let parts = bounds.at(place).iter().zip(bounds.at(place + 1)).zip(&data);
            let parts = parts.map(|((from, to), run)| &run[from * size..to * size]);
            let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
            let mut block = Buffer::unset((end - start) * size)?;
            kernel.merge(&parts, &mut block)?;
            block.into()
        };
        blocks.push(Block::of_run(Run::new(Rank(node.0), start as u64, data)));
    }
    let inner = bounds.iter().take(shares.len()).skip(1);
    let cuts: Vec<Cut<&[u8]>> = inner.map(|bound| cut_at(kernel, &runs, bound)).collect();
    let counts = starts.windows(2).map(|start| (start[1] - start[0]) as u64);
    let layout = ResultLayout::of_counts(counts);
    Ok(MadeAtOnce {
        decisions: vec![KeyBytes::of(kernel).of_cuts(&cuts), layout.encode(size)],
        blocks,
    })
}

/// The numbers of records of each run before the part of each node, and before the end of the last one.
struct Bounds {
    /// For each place one number for each run.
    numbers: Vec<usize>,
    runs: usize,
    places: usize,
}

impl Bounds {
    /// Divides runs in proportion to the nodes' shares. Records with equal keys are in the order of the runs.
    fn of(kernel: &dyn Kernel, runs: &[&[u8]], samples: &Samples, shares: &[usize]) -> Bounds {
        let size = kernel.record_bytes();
        let counts = runs.iter().map(|run| run.len() / size);
        let total: usize = counts.clone().sum();
        let places = shares.len() + 1;
        let tolerance = total / shares.len().max(1) / TOLERANCE;
        let mut numbers = Vec::with_capacity(places * runs.len());
        numbers.resize(runs.len(), 0);
        let mut last = 0;
        for target in ends(shares, total) {
            if target == last {
                numbers.extend_from_within(numbers.len() - runs.len()..);
            } else if target == total {
                numbers.extend(counts.clone());
            } else {
                push_bound(kernel, runs, samples, (target, tolerance), &mut numbers);
            }
            last = target;
        }
        Bounds {
            numbers,
            runs: runs.len(),
            places,
        }
    }

    /// The numbers of records before the part of a node.
    fn at(&self, place: usize) -> &[usize] {
        &self.numbers[place * self.runs..][..self.runs]
    }

    /// The numbers of each part, and of the end.
    fn iter(&self) -> impl Iterator<Item = &[usize]> {
        (0..self.places).map(|place| self.at(place))
    }
}

/// Sorted samples of runs, each of which stands for `weight` records.
struct Samples {
    sorted: Buffer,
    weight: usize,
}

impl Samples {
    /// All records of small runs, and some of larger ones, to be divided among so many nodes.
    fn of(kernel: &dyn Kernel, runs: &[&[u8]], nodes: usize) -> Result<Samples> {
        let size = kernel.record_bytes();
        let bytes: usize = runs.iter().map(|run| run.len()).sum();
        let most = SAMPLES_PER_NODE_AND_RUN * nodes * runs.len();
        let weight = (bytes / size).div_ceil(most.max(1));
        if bytes <= MERGED_WHOLE || weight <= 1 {
            let mut sorted = Buffer::unset(bytes)?;
            kernel.merge(runs, &mut sorted)?;
            return Ok(Samples { sorted, weight: 1 });
        }
        let samples = runs.iter().flat_map(|run| {
            let records = run.chunks_exact(size);
            records.skip(weight / 2).step_by(weight)
        });
        let mut sorted = Buffer::unset(samples.clone().count() * size)?;
        for (place, sample) in sorted.chunks_exact_mut(size).zip(samples) {
            place.copy_from_slice(sample);
        }
        kernel.sort(&mut sorted)?;
        Ok(Samples { sorted, weight })
    }

    /// The sample that has about so many records before it.
    fn near(&self, records: usize, record_bytes: usize) -> &[u8] {
        let last = self.sorted.len() - record_bytes;
        let start = (records / self.weight * record_bytes).min(last);
        &self.sorted[start..start + record_bytes]
    }
}

/// Appends to `numbers` how many records of each run are before a place that has `target` records before it, with an error of
/// at most `tolerance`.
fn push_bound(
    kernel: &dyn Kernel,
    runs: &[&[u8]],
    samples: &Samples,
    (target, tolerance): (usize, usize),
    numbers: &mut Vec<usize>,
) {
    let start = numbers.len();
    let mut wanted = target;
    for _ in 0..ATTEMPTS {
        let sample = samples.near(wanted, kernel.record_bytes());
        push_bound_near(kernel, runs, sample, target, numbers);
        let found: usize = numbers[start..].iter().sum();
        if found.abs_diff(target) <= tolerance {
            return;
        }
        numbers.truncate(start);
        wanted = (wanted + target).saturating_sub(found);
    }
    numbers.extend(kernel.select(runs, target));
}

/// Appends to `numbers` how many records of each run are before the place between records with the key of `record`, or
/// beside all of these, that is nearest to `target`.
fn push_bound_near(
    kernel: &dyn Kernel,
    runs: &[&[u8]],
    record: &[u8],
    target: usize,
    numbers: &mut Vec<usize>,
) {
    let start = numbers.len();
    numbers.extend(runs.iter().map(|run| kernel.lower_bound(run, record)));
    let bound = &mut numbers[start..];
    let mut missing = target.saturating_sub(bound.iter().sum());
    for (run, below) in runs.iter().zip(bound) {
        if missing == 0 {
            break;
        }
        let equal = kernel
            .upper_bound(run, record)
            .saturating_sub(*below)
            .min(missing);
        *below += equal;
        missing -= equal;
    }
}

/// Returns the cut before the first record that is not below a bound.
fn cut_at<'r>(kernel: &dyn Kernel, runs: &[&'r Run], bound: &[usize]) -> Cut<&'r [u8]> {
    let size = kernel.record_bytes();
    let heads = runs.iter().zip(bound);
    let heads = heads.filter(|(run, at)| *at * size < run.data.len());
    let heads = heads.map(|(run, at)| CutPoint::of(run, *at, size));
    let first = heads.min_by(|one, other| one.compare(other, kernel));
    first.map_or(Cut::AllLower, Cut::At)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{block_of, kernel, weighed};
    use super::super::{DivideFirst, MergeAndPlace, SampleSort, total_records};
    use super::*;
    use crate::engine::{Algorithm, AtOnce, RoundContext};
    use proptest::prelude::*;

    proptest! {
        /// The blocks are shares of the sorted records, and those that the rounds make with the same decisions.
        #[test]
        fn blocks_are_those_of_rounds_with_the_same_decisions(
            inputs in prop::collection::vec(prop::collection::vec(0_i32..5000, 0..1500), 1..10),
            keys in prop::sample::select(vec![1, 20, 5000]),
            weights in prop::collection::vec(0_u8..17, 10),
        ) {
            let inputs: Vec<Vec<i32>> =
                inputs.into_iter().map(|input| input.into_iter().map(|key| key % keys).collect()).collect();
            let kernel = kernel();
            let (members, subcube) = weighed(&weights[..inputs.len()]);
            let dimension = subcube.dimension;
            let sort = SampleSort { kernel: &*kernel, dimension, levels: 1, divide_first: DivideFirst::Never };
            let algorithm = MergeAndPlace { sort: &sort, kernel: &*kernel, dimension, dense: false, filter: None };
            let blocks = inputs.iter().enumerate().map(|(rank, input)| {
                algorithm.prepare(block_of(rank as u32, input)).unwrap()
            });
            let blocks: Vec<Block> = blocks.collect();
            let nodes: Vec<Node> = members.cube().nodes().collect();
            let made = algorithm.of_inputs(&subcube, &blocks.iter().collect::<Vec<_>>(), &nodes).unwrap();
            let mut expected = inputs.concat();
            expected.sort_unstable();
            let whole: Vec<u8> = made.blocks.iter().flat_map(|block| block.runs[0].data.to_vec()).collect();
            prop_assert_eq!(bytemuck::pod_collect_to_vec::<u8, i32>(&whole), &expected[..]);
            prop_assert_eq!(total_records(&made.decisions[1]), expected.len() as u64);
            let shares = subcube.shares();
            let all: usize = shares.iter().sum();
            for (block, share) in made.blocks.iter().zip(&shares) {
                let exact = expected.len() as f64 * *share as f64 / all as f64;
                let tolerance = 2.0 + 2.0 * (expected.len() / nodes.len() / TOLERANCE) as f64;
                prop_assert!((block.bytes() as f64 / 4.0 - exact).abs() <= tolerance);
            }
            for (node, block) in nodes.iter().zip(&made.blocks) {
                let pieces = blocks.iter().enumerate().map(|(rank, input)| {
                    let from = Node(rank as u32);
                    let split = algorithm.split(&RoundContext::new(1, from, &made.decisions[0]), input).unwrap();
                    if from == *node {
                        return split.keep;
                    }
                    split.give[node.0 as usize - usize::from(*node > from)].clone()
                });
                let united = Block::unite(pieces);
                let context = RoundContext::new(2, *node, &made.decisions[1]);
                let joined = algorithm.join(&context, united, Block::empty()).unwrap();
                prop_assert_eq!(&joined, block);
            }
        }
    }
}

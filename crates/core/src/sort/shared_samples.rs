//! Cuts by samples of all inputs, which every rank receives, so that each makes the same cuts by itself.
//!
//! Each sample of an input stands for the same number of records, a power of two. So those of all inputs can be made to
//! stand for the same number, and their order alone tells the cuts: regular sampling (Shi and Schaeffer 1992, "Parallel
//! sorting by regular sampling"). A cut is off by about sqrt(P) / (3.5 x S) of a node's share, with P inputs of about the
//! same size and S samples of each.
//!
//! Must never: depend on the rank; only on the samples and the shares of the nodes.

use super::key_bytes::KeyBytes;
use super::pivot::{Cut, CutPoint, undecodable};
use crate::engine::Subcube;
use crate::members::Rank;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// An input gives a sample of so many records or fewer.
const RECORDS_PER_SAMPLE: usize = 16;

/// The least number of samples of an input with more records, for each node: a cut is then off by less than 1 % of a node's
/// share in most cases.
const SAMPLES_PER_NODE: usize = 16;

/// More samples than this, times two, do not improve the cuts for few nodes.
const ENOUGH: usize = 256;

/// The size of the number of records that each sample stands for.
const WEIGHT_BYTES: usize = 8;

/// Returns the keys of evenly spaced records of a sorted input, and behind them the number of records that each stands for
/// (u64). `nodes`: the number of nodes among which the inputs are divided.
pub fn samples(kernel: &dyn Kernel, input: &[u8], nodes: usize) -> Result<Buffer> {
    let (size, key) = (kernel.record_bytes(), kernel.key_range());
    let records = input.len() / size;
    let wanted = (records / RECORDS_PER_SAMPLE).min(ENOUGH);
    let wanted = wanted.max(SAMPLES_PER_NODE * nodes);
    let weight = 1 << (records / wanted).max(1).ilog2();
    let chosen = input.chunks_exact(size).skip(weight / 2).step_by(weight);
    let mut samples = Buffer::unset(chosen.len() * key.len() + WEIGHT_BYTES)?;
    let (keys, number) = samples.split_at_mut(chosen.len() * key.len());
    for (place, record) in keys.chunks_exact_mut(key.len()).zip(chosen) {
        place.copy_from_slice(&record[key.clone()]);
    }
    number.copy_from_slice(&(weight as u64).to_le_bytes());
    Ok(samples)
}

/// Divides a message of samples into keys and their weight.
fn keys_and_weight<'s>(kernel: &dyn Kernel, message: &'s [u8]) -> Result<(&'s [u8], usize)> {
    let (keys, weight) = message.split_last_chunk().ok_or_else(undecodable)?;
    let weight = u64::from_le_bytes(*weight) as usize;
    let is_right = weight.is_power_of_two() && keys.len().is_multiple_of(kernel.key_range().len());
    is_right.then_some((keys, weight)).ok_or_else(undecodable)
}

/// Returns a size in bytes that the input of these samples does not exceed.
pub(super) fn most_bytes(kernel: &dyn Kernel, samples: &[u8]) -> Result<usize> {
    let (keys, weight) = keys_and_weight(kernel, samples)?;
    let records = (keys.len() / kernel.key_range().len() + 1).saturating_mul(weight);
    Ok(records.saturating_mul(kernel.record_bytes()))
}

/// Samples of one input, of which each stands for as many records as those of the others.
struct Samples {
    /// The owner of the input.
    owner: Rank,
    /// The samples: records of which only the keys count.
    records: Buffer,
    /// The position of the first one in the input.
    first: usize,
}

impl Samples {
    /// Takes keys of which each stands for `weight` records, one out of so many that it stands for `coarsest`.
    fn of(
        kernel: &dyn Kernel,
        (owner, keys, weight): (Rank, &[u8], usize),
        coarsest: usize,
    ) -> Result<Samples> {
        let (size, key) = (kernel.record_bytes(), kernel.key_range());
        let step = coarsest / weight;
        let chosen = keys.chunks_exact(key.len()).skip(step / 2).step_by(step);
        let mut records = Buffer::zeroed(chosen.len() * size)?;
        for (record, chosen) in records.chunks_exact_mut(size).zip(chosen) {
            record[key.clone()].copy_from_slice(chosen);
        }
        Ok(Samples {
            owner,
            records,
            first: weight / 2 + step / 2 * weight,
        })
    }
}

/// Returns for each share how many records of `total` are before its end.
pub(super) fn ends(shares: &[usize], total: usize) -> impl Iterator<Item = usize> {
    let all: usize = shares.iter().sum();
    shares.iter().scan(0, move |before, share| {
        *before += share;
        Some((total as u128 * *before as u128 / all.max(1) as u128) as usize)
    })
}

/// Returns the cuts that divide the inputs of these samples in proportion to the nodes' shares, as a decision.
pub(super) fn cuts(
    kernel: &dyn Kernel,
    subcube: &Subcube,
    samples: &[(Rank, Slice)],
) -> Result<Vec<u8>> {
    let mut coarsest = 1;
    for (_, message) in samples {
        coarsest = coarsest.max(keys_and_weight(kernel, message)?.1);
    }
    let mut thinned = Vec::with_capacity(samples.len());
    for (owner, message) in samples {
        let (keys, weight) = keys_and_weight(kernel, message)?;
        thinned.push(Samples::of(kernel, (*owner, keys, weight), coarsest)?);
    }
    let samples = thinned;
    let runs: Vec<&[u8]> = samples.iter().map(|samples| &samples.records[..]).collect();
    let mut sorted = Buffer::unset(runs.iter().map(|run| run.len()).sum())?;
    kernel.merge(&runs, &mut sorted)?;
    let (size, shares) = (kernel.record_bytes(), subcube.shares());
    let total = sorted.len() / size;
    let inner = ends(&shares, total).take(shares.len() - 1);
    let cuts = inner.map(|place| match place {
        0 => Cut::AllUpper,
        _ if place >= total => Cut::AllLower,
        _ => {
            let record = &sorted[place * size..][..size];
            let point = point_of(kernel, &samples, (record, place), coarsest);
            point.map_or(Cut::AllLower, Cut::At)
        }
    });
    Ok(KeyBytes::of(kernel).of_cuts(&cuts.collect::<Vec<_>>()))
}

/// Returns the point of the sample with this place in the order of all samples, of which `record` has the key. Each sample
/// stands for `weight` records.
fn point_of<'s>(
    kernel: &dyn Kernel,
    samples: &[Samples],
    (record, place): (&'s [u8], usize),
    weight: usize,
) -> Option<CutPoint<&'s [u8]>> {
    let lower = samples.iter();
    let lower = lower.map(|samples| kernel.lower_bound(&samples.records, record));
    let lower: Vec<usize> = lower.collect();
    let mut rest = place.checked_sub(lower.iter().sum())?;
    for (samples, lower) in samples.iter().zip(lower) {
        let equal = kernel.upper_bound(&samples.records, record) - lower;
        if rest < equal {
            return Some(CutPoint {
                record,
                origin: samples.owner.0,
                position: (lower + rest)
                    .saturating_mul(weight)
                    .saturating_add(samples.first) as u64,
            });
        }
        rest -= equal;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::testing::{block_of, kernel, weighed};
    use super::super::{DivideFirst, MergeAndPlace, SampleSort};
    use super::*;
    use crate::block::Block;
    use crate::engine::{Algorithm, AtOnce, RoundContext};
    use crate::vcube::Node;
    use proptest::prelude::*;

    proptest! {
        /// The pieces of sorted inputs at the cuts are consecutive parts of the result, the same as those of rounds with the
        /// same decisions. They differ from the nodes' shares by at most the records that a sample of each input stands for, also with few keys.
        #[test]
        fn pieces_are_consecutive_parts_of_the_result_and_about_as_large_as_the_shares(
            inputs in prop::collection::vec(prop::collection::vec(0_i32..100_000, 0..3000), 1..10),
            keys in prop::sample::select(vec![1, 20, 100_000]),
            weights in prop::collection::vec(0_u8..17, 10),
        ) {
            let kernel = kernel();
            let (_, subcube) = weighed(&weights[..inputs.len()]);
            let dimension = subcube.dimension;
            let sort = SampleSort { kernel: &*kernel, dimension, levels: 1, divide_first: DivideFirst::Never };
            let algorithm = MergeAndPlace { sort: &sort, kernel: &*kernel, dimension, dense: false, filter: None };
            let blocks = inputs.iter().enumerate().map(|(rank, input)| {
                let input: Vec<i32> = input.iter().map(|key| key % keys).collect();
                algorithm.prepare(block_of(rank as u32, &input)).unwrap()
            });
            let blocks: Vec<Block> = blocks.collect();
            let data = |block: &Block| block.runs.first().map(|run| run.data.clone()).unwrap_or_default();
            let samples = blocks.iter().enumerate().map(|(rank, block)| {
                (Rank(rank as u32), algorithm.samples(&data(block)).unwrap().into())
            });
            let samples: Vec<(Rank, Slice)> = samples.collect();
            let weights = samples.iter().map(|(_, message)| keys_and_weight(&*kernel, message).unwrap().1);
            let coarsest = weights.max().unwrap();
            let cuts = algorithm.cuts(&subcube, &samples).unwrap();
            let mut parts: Vec<Vec<Block>> = vec![Vec::new(); subcube.len()];
            for (block, (_, samples)) in blocks.iter().zip(&samples) {
                prop_assert!(algorithm.most_bytes(samples).unwrap() >= block.bytes());
                let split = algorithm.split(&RoundContext::new(1, Node(0), &cuts), block).unwrap();
                let pieces = [split.keep].into_iter().chain(split.give);
                parts.iter_mut().zip(pieces).for_each(|(part, piece)| part.push(piece));
            }
            let sizes = parts.iter().map(|part| part.iter().map(Block::bytes).sum());
            let sizes: Vec<usize> = sizes.collect();
            let layout = algorithm.layout(&sizes);
            let mut result: Vec<i32> = Vec::new();
            for (node, part) in (0..).map(Node).zip(&parts) {
                let pieces: Vec<Slice> = part.iter().map(data).collect();
                let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
                let at = RoundContext::new(2, node, &layout);
                let block = algorithm.united(&at, &pieces).unwrap();
                let joined = algorithm.join(&at, Block::unite(part.clone()), Block::empty());
                prop_assert_eq!(&joined.unwrap(), &block);
                prop_assert_eq!(block.runs.first().map_or(result.len() as u64, |run| run.start), result.len() as u64);
                result.extend(bytemuck::pod_collect_to_vec::<u8, i32>(&data(&block)));
            }
            let mut expected: Vec<i32> = inputs.concat().iter().map(|key| key % keys).collect();
            expected.sort_unstable();
            prop_assert_eq!(&result, &expected);
            let shares = subcube.shares();
            let ends = ends(&shares, expected.len());
            let mut start = 0;
            for (end, size) in ends.zip(sizes) {
                let exact = end - start;
                prop_assert!((size / 4).abs_diff(exact) <= 2 * (inputs.len() + 1) * coarsest, "{} of {exact}", size / 4);
                start = end;
            }
        }

        /// Bytes that are no samples are refused, or give cuts.
        #[test]
        fn any_bytes_are_refused_or_give_cuts(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5),
            weights in prop::collection::vec(0_u32..64, 5),
        ) {
            let kernel = kernel();
            let (_, subcube) = weighed(&[1; 4]);
            let messages = messages.into_iter().zip(weights).enumerate().map(|(rank, (mut message, weight))| {
                message.extend((1_u64 << weight).to_le_bytes());
                (Rank(rank as u32), Slice::copy_of(&message).unwrap())
            });
            let messages: Vec<(Rank, Slice)> = messages.collect();
            let is_right = messages.iter().all(|(_, message)| message.len().is_multiple_of(4));
            prop_assert_eq!(cuts(&*kernel, &subcube, &messages).is_ok(), is_right);
        }
    }

    #[test]
    fn samples_without_a_weight_or_with_a_wrong_one_are_refused() {
        let kernel = kernel();
        assert!(keys_and_weight(&*kernel, &[0; 7]).is_err());
        assert!(keys_and_weight(&*kernel, &[0; 8]).is_err());
        assert!(keys_and_weight(&*kernel, &3_u64.to_le_bytes()).is_err());
        assert!(keys_and_weight(&*kernel, &4_u64.to_le_bytes()).is_ok());
    }

    /// With fewer records than two for each sample, an input gives all of them.
    #[test]
    fn few_records_are_all_samples() {
        let kernel = kernel();
        for records in [0, 1, 8 * SAMPLES_PER_NODE, 16 * SAMPLES_PER_NODE - 1] {
            let input: Vec<u8> = (0..records as i32).flat_map(i32::to_le_bytes).collect();
            let samples = samples(&*kernel, &input, 8).unwrap();
            assert_eq!(samples[..input.len()], input[..]);
            assert_eq!(samples[input.len()..], 1_u64.to_le_bytes());
        }
    }

    #[test]
    fn more_nodes_and_more_records_give_more_samples() {
        let kernel = kernel();
        let number = |records: usize, nodes: usize| {
            let input = vec![0; 4 * records];
            (samples(&*kernel, &input, nodes).unwrap().len() - WEIGHT_BYTES) / 4
        };
        for (records, nodes) in [(1024, 8), (1500, 8), (1100, 64), (100_000, 8), (131_072, 2)] {
            let least = (records / RECORDS_PER_SAMPLE).min(ENOUGH);
            let least = least.max(SAMPLES_PER_NODE * nodes).min(records);
            let number = number(records, nodes);
            assert!(
                (least..=2 * least).contains(&number),
                "{records} {nodes}: {number}"
            );
        }
    }
}

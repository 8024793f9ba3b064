//! Cuts of blocks, at points of the total order (key, origin rank, position).
//!
//! The origin and the position distinguish equal keys, so a cut is possible anywhere and the parts are
//! balanced for every distribution of keys. Weighted samples choose the cuts (Shi and Schaeffer 1992,
//! "Parallel sorting by regular sampling"). Must never: copy the records of a block.

use std::cmp::Ordering;
use std::ops::Range;
use std::slice::ChunksExact;

use super::proposed_samples::{InOrder, all_samples, thin};
use crate::block::{Block, Run};
use crate::members::Rank;
use crate::vcube::Node;
use crate::wire::Reader;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::kernel::{Bound, Kernel};
use ftsort_kernels::random::SplitMix;

/// The number of samples for each part into which a block is cut. If one node has all records, half of the
/// distance between two samples is 2 % of a part.
pub(super) const SAMPLES_PER_PART: usize = 24;

/// The bytes that the samples of all blocks may take together where records are so large that a block has at most 16.
pub(super) const MOST_BYTES_OF_ALL: usize = 64 << 20;

/// The blocks that are cut alike, and into how many parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// The number of blocks, of which the root of the decision receives samples.
    pub nodes: usize,
    /// The number of parts.
    pub parts: usize,
}

/// Returns the greatest number of samples of one block. The estimated position of a cut then differs by about
/// sqrt(P) / (3.5 x 512) of a node's share, where P is the number of runs; if one node has all records, by 2 % of a part.
/// Blocks of very large records have fewer samples: 16 as long as those of all nodes fit into 64 MiB, and at least one.
pub fn most_samples(division: Division, record_bytes: usize) -> usize {
    const MOST_BYTES: usize = 1 << 20;
    const LEAST_SAMPLES: usize = 16;
    let of_all = MOST_BYTES_OF_ALL / record_bytes.saturating_mul(division.nodes);
    let least = of_all.clamp(1, LEAST_SAMPLES);
    let affordable = (MOST_BYTES / record_bytes).max(least);
    (SAMPLES_PER_PART * division.parts).max(512).min(affordable)
}

/// A point of the total order. The records before it belong to the lower part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutPoint<R = Vec<u8>> {
    /// A record that has the point's key.
    pub record: R,
    /// Among records with this key, those of smaller origins are before the point; or `EVERY_ORIGIN`.
    pub origin: u32,
    /// Among records with this key and origin, those at smaller positions are before the point. With `EVERY_ORIGIN`: the
    /// part of each input's records with this key that is before the point ([`Bound::share`]).
    pub position: u64,
}

/// Stands for all origins in a point at which equal keys of each input are divided alike, which does not depend on their
/// positions. Runs that are divided there have all records of their input with this key.
pub const EVERY_ORIGIN: u32 = u32::MAX;

/// The first byte of a cut in a message.
pub const ALL_UPPER: u8 = 0;
pub const ALL_LOWER: u8 = 1;
pub const AT: u8 = 2;

/// A division of records into a lower and an upper part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut<R = Vec<u8>> {
    /// All records belong to the upper part.
    AllUpper,
    /// All records belong to the lower part.
    AllLower,
    /// The records before the point belong to the lower part.
    At(CutPoint<R>),
}

/// A record that represents `weight` records around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The record and its point in the total order.
    pub point: CutPoint<&'a [u8]>,
    /// The number of records that it represents.
    pub weight: u64,
}

/// Returns the error for bytes that are no cuts.
pub fn undecodable() -> Error {
    Error::internal("a message with cuts does not decode")
}

impl<R: AsRef<[u8]>> CutPoint<R> {
    pub(crate) fn compare<S: AsRef<[u8]>>(
        &self,
        other: &CutPoint<S>,
        kernel: &dyn Kernel,
    ) -> Ordering {
        kernel
            .compare(self.record.as_ref(), other.record.as_ref())
            .then(self.origin.cmp(&other.origin))
            .then(self.position.cmp(&other.position))
    }

    /// Returns the bound at which the input of this origin is divided, if every input is divided there.
    pub fn bound(&self, origin: Rank) -> Option<Bound<'_>> {
        // Multiples of the golden ratio are spread evenly over the unit.
        const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
        (self.origin == EVERY_ORIGIN).then(|| Bound {
            record: self.record.as_ref(),
            share: self.position,
            rounding: u64::from(origin.0).wrapping_mul(GOLDEN_RATIO),
        })
    }

    /// Appends the point as a message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.record.as_ref());
        out.extend(self.origin.to_le_bytes());
        out.extend(self.position.to_le_bytes());
    }

    /// Copies the record.
    pub(crate) fn to_owned(&self) -> CutPoint {
        CutPoint {
            record: self.record.as_ref().to_vec(),
            origin: self.origin,
            position: self.position,
        }
    }

    /// Returns the number of records of a run that are before this point.
    pub fn records_before(&self, run: &Run, kernel: &dyn Kernel) -> usize {
        if let Some(bound) = self.bound(run.origin) {
            return bound.place_in(&run.data, kernel);
        }
        match run.origin.0.cmp(&self.origin) {
            Ordering::Less => kernel.upper_bound(&run.data, self.record.as_ref()),
            Ordering::Greater => kernel.lower_bound(&run.data, self.record.as_ref()),
            Ordering::Equal => {
                let first = kernel.lower_bound(&run.data, self.record.as_ref());
                let end = kernel.upper_bound(&run.data, self.record.as_ref());
                let at = self.position.saturating_sub(run.start);
                usize::try_from(at).map_or(end, |at| at.clamp(first, end))
            }
        }
    }
}

impl<'a> CutPoint<&'a [u8]> {
    /// The point at a record of a run.
    pub(super) fn of(run: &'a Run, index: usize, record_bytes: usize) -> CutPoint<&'a [u8]> {
        CutPoint {
            record: &run.data[index * record_bytes..(index + 1) * record_bytes],
            origin: run.origin.0,
            position: run.start + index as u64,
        }
    }

    /// Decodes as [`CutPoint::decode`], without a copy of the record.
    pub(super) fn read(bytes: &'a [u8], record_bytes: usize) -> Result<CutPoint<&'a [u8]>> {
        let mut fields = Reader::new(bytes);
        let mut point = || {
            let record = fields.bytes(record_bytes)?;
            let (origin, position) = (fields.u32()?, fields.u64()?);
            fields.end(CutPoint {
                record,
                origin,
                position,
            })
        };
        point().ok_or_else(undecodable)
    }
}

impl CutPoint {
    /// Decodes the result of [`CutPoint::encode`].
    pub fn decode(bytes: &[u8], record_bytes: usize) -> Result<CutPoint> {
        Ok(CutPoint::read(bytes, record_bytes)?.to_owned())
    }

    /// Returns the point after all records of this record's key.
    pub fn after_key(record: Vec<u8>) -> CutPoint {
        CutPoint {
            record,
            origin: EVERY_ORIGIN,
            position: u64::MAX,
        }
    }

    /// Returns the size of a point as a message, in bytes. A file may name records of any size.
    pub fn encoded_bytes(record_bytes: usize) -> usize {
        record_bytes.saturating_add(12)
    }
}

impl<R: AsRef<[u8]>> Cut<R> {
    /// Appends the cut as a message. All cuts of records of one size have the same size.
    pub fn encode(&self, record_bytes: usize, out: &mut Vec<u8>) {
        let end = out.len() + Cut::encoded_bytes(record_bytes);
        match self {
            Cut::AllUpper => out.push(ALL_UPPER),
            Cut::AllLower => out.push(ALL_LOWER),
            Cut::At(point) => {
                out.push(AT);
                point.encode(out);
            }
        }
        out.resize(end, 0);
    }

    /// Returns cuts as a message, one after the other.
    pub fn encode_all(cuts: &[Cut<R>], record_bytes: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(cuts.len() * Cut::encoded_bytes(record_bytes));
        cuts.iter()
            .for_each(|cut| cut.encode(record_bytes, &mut out));
        out
    }
}

impl Cut {
    /// Returns the size of a cut as a message, in bytes.
    pub fn encoded_bytes(record_bytes: usize) -> usize {
        CutPoint::encoded_bytes(record_bytes).saturating_add(1)
    }

    /// Decodes the result of [`Cut::encode`].
    pub fn decode(bytes: &[u8], record_bytes: usize) -> Result<Cut> {
        Ok(match Cut::read(bytes, record_bytes)? {
            Cut::AllUpper => Cut::AllUpper,
            Cut::AllLower => Cut::AllLower,
            Cut::At(point) => Cut::At(point.to_owned()),
        })
    }

    /// Decodes the result of [`Cut::encode_all`].
    pub fn decode_all(bytes: &[u8], record_bytes: usize) -> Result<Vec<Cut>> {
        let cuts = whole_chunks(bytes, Cut::encoded_bytes(record_bytes))?;
        cuts.map(|cut| Cut::decode(cut, record_bytes)).collect()
    }
}

impl<'a> Cut<&'a [u8]> {
    /// Decodes as [`Cut::decode`], without a copy of the record.
    pub fn read(bytes: &'a [u8], record_bytes: usize) -> Result<Cut<&'a [u8]>> {
        match bytes.split_first() {
            Some((&ALL_UPPER, _)) => Ok(Cut::AllUpper),
            Some((&ALL_LOWER, _)) => Ok(Cut::AllLower),
            Some((&AT, point)) => Ok(Cut::At(CutPoint::read(point, record_bytes)?)),
            _ => Err(undecodable()),
        }
    }

    /// Decodes as [`Cut::decode_all`] the cuts between `parts` parts, without copies of the records.
    pub fn read_between(
        bytes: &'a [u8],
        parts: usize,
        record_bytes: usize,
    ) -> Result<Vec<Cut<&'a [u8]>>> {
        let cuts = whole_chunks(bytes, Cut::encoded_bytes(record_bytes))?;
        if cuts.len() + 1 != parts {
            return Err(undecodable());
        }
        cuts.map(|cut| Cut::read(cut, record_bytes)).collect()
    }
}

/// Returns evenly spaced records of a block that is to be cut. Their weights add up to the block's size in records.
/// A small block has fewer samples, because comparing more of them would take longer than sorting the block.
pub fn sample<'a>(block: &'a Block, division: Division, kernel: &dyn Kernel) -> Vec<Sample<'a>> {
    let total = block.bytes() / kernel.record_bytes();
    at_least(total / RECORDS_PER_SAMPLE, block, division, kernel)
}

/// Returns samples as [`sample`] does, for one round in which all cuts are made. A smaller block has fewer samples: the
/// root handles those of all blocks while the other nodes wait, and balance saves less time if there are few records.
pub fn sample_once<'a>(
    block: &'a Block,
    division: Division,
    kernel: &dyn Kernel,
) -> Vec<Sample<'a>> {
    const SAMPLES_OF_SMALL: usize = 128;
    const RECORDS_PER_SAMPLE_OF_LARGE: usize = 2048;
    let total = block.bytes() / kernel.record_bytes();
    let of_small = (total / RECORDS_PER_SAMPLE).min(SAMPLES_OF_SMALL);
    let of_large = total / RECORDS_PER_SAMPLE_OF_LARGE;
    at_least(of_small.max(of_large), block, division, kernel)
}

/// A small block has a sample for so many records.
const RECORDS_PER_SAMPLE: usize = 16;

/// Returns so many samples, or more for many parts, as far as the block has records and the limit allows.
pub(super) fn at_least<'a>(
    least: usize,
    block: &'a Block,
    division: Division,
    kernel: &dyn Kernel,
) -> Vec<Sample<'a>> {
    let size = kernel.record_bytes();
    let total = block.bytes() / size;
    let enough = (SAMPLES_PER_PART * division.parts).max(least);
    let wanted = total.min(most_samples(division, size)).min(enough);
    spaced_samples(block, wanted, |_| WHOLE / 2, kernel)
}

/// Returns samples as [`sample`] does, for a cube of many nodes or a block of many runs: at places that differ between
/// nodes, so that the cuts are balanced although all nodes have the same records. Of many runs more samples are taken
/// and thinned out, because each run adds an error of its own.
pub fn scattered_samples<'a>(
    block: &'a Block,
    (node, division): (Node, Division),
    kernel: &dyn Kernel,
) -> Vec<Sample<'a>> {
    let size = kernel.record_bytes();
    let total = block.bytes() / size;
    let most = most_samples(division, size).min(total);
    let drawn = total.min(most * block.runs.len().isqrt());
    let place = |run: usize| {
        let number = SplitMix::new(u64::from(node.0) << 32 ^ run as u64).below(WHOLE.into());
        number as u32
    };
    let samples = spaced_samples(block, drawn, place, kernel);
    if samples.len() > most {
        return thin(&InOrder::of(samples, kernel), most);
    }
    samples
}

/// Returns `wanted` evenly spaced records of a block that has at least as many. Their weights add up to the block's
/// size in records. Each is at `offset` / [`WHOLE`] of the records that it represents, which may depend on the index of
/// the run in which these begin.
pub fn spaced_samples<'a>(
    block: &'a Block,
    wanted: usize,
    offset: impl Fn(usize) -> u32,
    kernel: &dyn Kernel,
) -> Vec<Sample<'a>> {
    let size = kernel.record_bytes();
    let total = (block.bytes() / size) as u64;
    let wanted = wanted as u64;
    let mut samples = Vec::with_capacity(wanted as usize);
    // The run of the record at a position of the block, and the position of the run; both grow with the position.
    let find = |from: &mut (usize, u64), at: u64| {
        while let Some(run) = block.runs.get(from.0) {
            let end = from.1 + (run.data.len() / size) as u64;
            if at < end {
                break;
            }
            *from = (from.0 + 1, end);
        }
    };
    let mut first = (0, 0);
    for index in 0..wanted {
        let from = index * total / wanted;
        let to = (index + 1) * total / wanted;
        find(&mut first, from);
        let at = from + (to - from) * u64::from(offset(first.0)) / u64::from(WHOLE);
        let mut place = first;
        find(&mut place, at);
        if let Some(run) = block.runs.get(place.0) {
            samples.push(Sample {
                point: CutPoint::of(run, (at - place.1) as usize, size),
                weight: to - from,
            });
        }
    }
    samples
}

/// Returns the parts of this size; an error if bytes are left after the last one.
pub fn whole_chunks(bytes: &[u8], size: usize) -> Result<ChunksExact<'_, u8>> {
    let chunks = bytes.chunks_exact(size);
    if chunks.remainder().is_empty() {
        Ok(chunks)
    } else {
        Err(undecodable())
    }
}

/// Returns the cuts between parts that get these shares of the records, one fewer than there are parts, at samples. A
/// part without a share gets no records: its node has failed, and its executor must not get a second part.
///
/// Samples of [`EVERY_ORIGIN`] are of blocks whose records have no positions yet. If there is one, a cut between equal keys
/// gives the same part of those of each block to the lower side.
pub fn balanced<'p>(
    proposals: &'p [(Node, Slice)],
    shares: &[usize],
    kernel: &dyn Kernel,
) -> Result<Vec<Cut<&'p [u8]>>> {
    let samples = all_samples(proposals, kernel)?;
    let is_drawn = |sample: &Sample<'_>| sample.point.origin == EVERY_ORIGIN;
    Ok(match samples.iter().any(is_drawn) {
        true => cuts_in_every(&samples, shares, kernel),
        false => cuts_at_samples(&samples, shares, None),
    })
}

/// The unit of offsets of samples, and of roundings of cuts.
pub const WHOLE: u32 = 1 << 16;

/// Returns cuts as [`balanced`] does. `rounding`: a number below [`WHOLE`]; with numbers that are spread evenly over many
/// calls, the sums of the shares are in proportion, although each cut is at a sample.
pub fn rounded<'p>(
    proposals: &'p [(Node, Slice)],
    shares: &[usize],
    rounding: Option<u32>,
    kernel: &dyn Kernel,
) -> Result<Vec<Cut<&'p [u8]>>> {
    let samples = all_samples(proposals, kernel)?;
    Ok(cuts_at_samples(&samples, shares, rounding))
}

fn cuts_at_samples<'p>(
    samples: &InOrder<'p>,
    shares: &[usize],
    rounding: Option<u32>,
) -> Vec<Cut<&'p [u8]>> {
    let mut point = |index: usize, _, _| samples.get(index).map(|sample| sample.point.clone());
    cuts_by(samples, shares, rounding, &mut point)
}

/// Returns cuts that divide every block at the same part of the records with one key ([`EVERY_ORIGIN`]).
fn cuts_in_every<'p>(
    samples: &InOrder<'p>,
    shares: &[usize],
    kernel: &dyn Kernel,
) -> Vec<Cut<&'p [u8]>> {
    const HALF: u32 = u64::BITS / 2;
    // The samples with the key of the last cut, and how many records are before these and have that key.
    let mut of_key = (0..0, 0, 0);
    let mut point = |index: usize, before: u128, target: u128| {
        let record = samples.get(index)?.point.record;
        if !of_key.0.contains(&index) {
            let is_equal = |other: &usize| {
                let other = samples.get(*other);
                other.is_some_and(|other| kernel.compare(other.point.record, record).is_eq())
            };
            let first = (0..index).rev().take_while(is_equal).last();
            let last = (index..).take_while(is_equal).last();
            let of = first.unwrap_or(index)..last.unwrap_or(index) + 1;
            let weights = |range: Range<usize>| -> u128 {
                let samples = range.filter_map(|index| samples.get(index));
                samples.map(|sample| u128::from(sample.weight)).sum()
            };
            let (lower, all) = (weights(of.start..index), weights(of.clone()));
            of_key = (of, before - lower, all);
        }
        let (of, before, equal) = &of_key;
        // One sample says little about the number of records with its key: mostly there is one.
        let share = match of.len() {
            1 => 0,
            _ => {
                let below = target.saturating_sub(2 * before);
                ((below << HALF) / (2 * equal).max(1)) << HALF
            }
        };
        Some(CutPoint {
            record,
            origin: EVERY_ORIGIN,
            position: u64::try_from(share).unwrap_or(u64::MAX),
        })
    };
    cuts_by(samples, shares, None, &mut point)
}

/// Returns the cuts between parts with these shares. `point`: returns the point of a cut at a sample, given by its index and
/// the number of records before it, that is to have so many half records before it.
fn cuts_by<'p>(
    samples: &InOrder<'p>,
    shares: &[usize],
    rounding: Option<u32>,
    point: &mut dyn FnMut(usize, u128, u128) -> Option<CutPoint<&'p [u8]>>,
) -> Vec<Cut<&'p [u8]>> {
    // If no node of the parts is fault-free, their executors are outside of the parts, which are then equal.
    let equal = vec![1; shares.len()];
    let shares = if shares.iter().all(|share| *share == 0) {
        &equal
    } else {
        shares
    };
    // The weights may be any numbers.
    let weights = samples.iter().map(|sample| sample.weight);
    let total = weights.fold(0, u64::saturating_add);
    let all_shares: usize = shares.iter().sum();
    // A sample that represents more than itself is, on average, in the middle of its records.
    let (later, earlier) = match rounding.map(u128::from) {
        None => (0, 0),
        Some(up) if total == samples.len() as u64 => (2 * up, 0),
        Some(up) => {
            let weight = u128::from(total) / samples.len().max(1) as u128;
            (0, 2 * (u128::from(WHOLE) - up) * weight)
        }
    };
    let (mut lower, mut next, mut before) = (0, 0, 0_u128);
    let (_, inner) = shares.split_last().unwrap_or((&0, &[]));
    let cuts = inner.iter().map(|share| {
        lower += share;
        if lower == 0 {
            return Cut::AllUpper;
        }
        if lower == all_shares {
            return Cut::AllLower;
        }
        // Counted in half records, because a sample is in the middle of the records that it represents.
        let exact = u128::from(total) * 2 * lower as u128 * u128::from(WHOLE);
        let target = exact / all_shares as u128;
        let target = (target + later).saturating_sub(earlier) / u128::from(WHOLE);
        while let Some(sample) = samples.get(next)
            && before * 2 + u128::from(sample.weight) < target
        {
            before += u128::from(sample.weight);
            next += 1;
        }
        point(next, before, target).map_or(Cut::AllLower, Cut::At)
    });
    cuts.collect()
}

/// Returns the papers' splitters: the records that divide a block into `parts` equal parts (2024, Algorithm
/// 2, line 16; for two parts the median of Algorithm 1, line 13). All records with the key of a splitter are
/// below its cut. Empty for an empty block.
pub fn even_splitters(block: &Block, parts: usize, kernel: &dyn Kernel) -> Vec<CutPoint> {
    let records = block.bytes() / kernel.record_bytes();
    let inner = (1..parts).filter(|_| records > 0);
    let points = inner.map(|part| {
        let index = (part as u128 * records as u128 / parts as u128) as usize;
        point_at(block, index, kernel).map(|point| CutPoint::after_key(point.record))
    });
    points.flatten().collect()
}

/// Returns the record that has `index` records before it. None if the block has no such record.
pub fn point_at(block: &Block, index: usize, kernel: &dyn Kernel) -> Option<CutPoint> {
    let size = kernel.record_bytes();
    let runs: Vec<&[u8]> = block.runs.iter().map(|run| &*run.data).collect();
    let cut = kernel.select(&runs, index);
    let heads = block.runs.iter().zip(cut);
    let heads = heads.filter(|(run, at)| at * size < run.data.len());
    heads
        .map(|(run, at)| CutPoint::of(run, at, size))
        .min_by(|one, other| one.compare(other, kernel))
        .map(|point| point.to_owned())
}

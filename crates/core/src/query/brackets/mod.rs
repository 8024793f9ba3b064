//! The search for the records at given positions of the sorted order, without a sort.
//!
//! Each step divides an interval of the order at points of a random sample that lie closely around the wanted positions
//! (Floyd and Rivest 1975, "Expected time bounds for selection"), counts the records of all ranks between the points, and
//! continues with the intervals that contain wanted positions. Points are those of the total order (key, rank,
//! position), so every interval becomes small, whatever the keys are. Must never: let the outcome depend on the rank that
//! computes it.

mod candidates;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

pub use candidates::Candidates;

use crate::sort::pivot::{CutPoint, undecodable};
use crate::wire::{Reader, Writer};
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::random::SplitMix;

/// The number of records that all ranks together sample in one step.
const SAMPLES: u64 = 1 << 14;

/// The fewest samples of an interval, if there are many intervals.
const SAMPLES_OF_INTERVAL: u64 = 1 << 10;

/// The bytes of samples of one step, for large records.
const SAMPLE_BYTES: u64 = 16 << 20;

/// The fewest samples of an interval of large records.
const FEWEST: u64 = 64;

/// If more positions are wanted, the inputs are sorted first: most records would be collected otherwise.
pub const MOST_UNSORTED: usize = 12;

/// After so many steps the number of samples is doubled, so that the search ends however unlucky the samples are.
const PATIENCE: u32 = 8;

/// An interval of the sorted order.
struct Interval {
    /// The number of records before it.
    before: u64,
    /// The number of records in it, on all ranks.
    inside: u64,
    /// The number of steps that led to it.
    steps: u32,
    /// The wanted positions in it, ascending.
    wanted: Vec<u64>,
    /// The records of this rank in it.
    mine: Vec<Candidates>,
    /// The points by which it is divided in this step. A part ends with its point.
    points: Vec<CutPoint>,
    /// For each part, which ends with a point or with the interval, the candidates that are kept: those of parts that
    /// are likely to have wanted positions.
    kept: Vec<Option<Vec<Candidates>>>,
    /// Whether a part is likely to have a wanted position.
    likely: Vec<bool>,
}

/// The search, on one rank. All ranks make the same steps: [`Search::sample`], [`Search::divide`] with the samples of all
/// ranks, [`Search::count`], [`Search::narrow`] with the counts of all ranks, until [`Search::is_over`].
pub struct Search<'k> {
    kernel: &'k dyn Kernel,
    /// The intervals with wanted positions that are divided in this step.
    intervals: Vec<Interval>,
    /// The others: the samples of all intervals at once would take too much memory.
    waiting: Vec<Interval>,
    /// The records that were found, with their positions.
    found: Vec<(u64, CutPoint)>,
    step: u32,
}

fn other_counts() -> Error {
    Error::internal("counts of records do not fit the intervals")
}

impl<'k> Search<'k> {
    /// Searches for these positions, which are ascending and below `total`, in the inputs of all ranks, of which this
    /// rank has `mine`.
    pub fn new(
        kernel: &'k dyn Kernel,
        mine: Vec<Candidates>,
        total: u64,
        wanted: Vec<u64>,
    ) -> Search<'k> {
        let whole = Interval {
            before: 0,
            inside: total,
            steps: 0,
            wanted,
            mine,
            points: Vec::new(),
            kept: Vec::new(),
            likely: Vec::new(),
        };
        let intervals = [whole].into_iter().filter(|whole| !whole.wanted.is_empty());
        Search {
            kernel,
            intervals: intervals.collect(),
            waiting: Vec::new(),
            found: Vec::new(),
            step: 0,
        }
    }

    /// Whether all records are found.
    pub fn is_over(&self) -> bool {
        self.intervals.is_empty() && self.waiting.is_empty()
    }

    /// The wanted positions and their records, ascending.
    pub fn into_found(mut self) -> Vec<(u64, CutPoint)> {
        self.found.sort_unstable_by_key(|(position, _)| *position);
        self.found
    }

    /// The size of an encoded point in bytes.
    fn point_bytes(&self) -> usize {
        CutPoint::encoded_bytes(self.kernel.record_bytes())
    }

    /// One of so many records of an interval is sampled.
    fn stride(&self, interval: &Interval) -> u64 {
        let intervals = self.intervals.len() as u64;
        let affordable = SAMPLE_BYTES / self.point_bytes() as u64 / intervals;
        let samples = (SAMPLES / intervals).max(SAMPLES_OF_INTERVAL);
        let samples = samples.min(affordable).max(FEWEST) << (interval.steps / PATIENCE).min(40);
        interval.inside.div_ceil(samples).max(1)
    }

    /// The greatest size of the message of [`Search::sample`] of a rank that has up to `inputs` inputs, in bytes.
    pub fn sample_limit(&self, inputs: usize) -> usize {
        let intervals = self.intervals.iter();
        // The last window of each input need not be whole.
        let windows = intervals.map(|interval| {
            let whole = interval.inside / self.stride(interval);
            whole as usize + inputs
        });
        self.intervals.len() * 8 + windows.sum::<usize>() * self.point_bytes()
    }

    /// Samples the records of this rank: a random one of each window, as a message.
    pub fn sample(&self) -> Vec<u8> {
        let mut message = Writer::new();
        let size = self.kernel.record_bytes();
        for (number, interval) in (0_u64..).zip(&self.intervals) {
            let stride = self.stride(interval);
            let mut points = Vec::new();
            let mut samples = 0_u64;
            for part in &interval.mine {
                let seed = (u64::from(self.step) << 32 | u64::from(part.origin)) ^ number << 48;
                let mut random = SplitMix::new(seed);
                let mut window = 0;
                let count = part.len(size) as u64;
                while window < count {
                    let index = window + random.bits() % stride;
                    // Of the last window only as many records exist.
                    if index < count {
                        part.point(index as usize, size).encode(&mut points);
                        samples += 1;
                    }
                    window += stride;
                }
            }
            message.u64(samples).bytes(&points);
        }
        message.finish()
    }

    /// Divides the intervals at points of the samples of all ranks, in any order. Intervals of which all records were
    /// sampled are done.
    ///
    /// # Errors
    /// `Status::Internal` if a message does not decode.
    pub fn divide<'m>(&mut self, messages: impl Iterator<Item = &'m [u8]>) -> Result<()> {
        let (kernel, width) = (self.kernel, self.point_bytes());
        let mut samples: Vec<Vec<CutPoint>> = vec![Vec::new(); self.intervals.len()];
        for message in messages {
            let mut fields = Reader::new(message);
            for samples in &mut samples {
                let count = fields.u64().ok_or_else(undecodable)?;
                for _ in 0..count {
                    let point = fields.bytes(width).ok_or_else(undecodable)?;
                    samples.push(CutPoint::decode(point, kernel.record_bytes())?);
                }
            }
        }
        let strides: Vec<u64> = (self.intervals.iter())
            .map(|interval| self.stride(interval))
            .collect();
        let intervals = std::mem::take(&mut self.intervals);
        for ((mut interval, mut samples), stride) in intervals.into_iter().zip(samples).zip(strides)
        {
            // Equal ones are alike.
            samples.sort_unstable_by(|one, other| one.compare(other, kernel));
            if stride == 1 {
                for position in &interval.wanted {
                    let index = (position - interval.before) as usize;
                    let point = samples.get(index).ok_or_else(other_counts)?;
                    self.found.push((*position, point.clone()));
                }
                continue;
            }
            interval.divide_at(&samples);
            self.intervals.push(interval);
        }
        Ok(())
    }

    /// The greatest size of the message of [`Search::count`] of a rank, in bytes.
    pub fn count_limit(&self) -> usize {
        let intervals = self.intervals.iter();
        intervals
            .map(|interval| 10 * (interval.points.len() + 1))
            .sum()
    }

    /// Counts the records of this rank in each part of each interval, as a message.
    ///
    /// # Errors
    /// `Status::Memory`.
    pub fn count(&mut self) -> Result<Vec<u8>> {
        let mut message = Writer::new();
        for interval in &mut self.intervals {
            let likely = interval.likely.clone();
            let (counts, kept) = interval.parted(self.kernel, &likely)?;
            interval.kept = kept;
            for count in counts {
                message.varint(count);
            }
        }
        Ok(message.finish())
    }

    /// Continues with the parts that have wanted positions, as the counts of all ranks tell.
    ///
    /// # Errors
    /// `Status::Memory`; `Status::Internal` if a message does not decode.
    pub fn narrow<'m>(&mut self, messages: impl Iterator<Item = &'m [u8]>) -> Result<()> {
        let parts = |interval: &Interval| interval.points.len() + 1;
        let mut counts: Vec<Vec<u64>> = (self.intervals.iter())
            .map(|interval| vec![0; parts(interval)])
            .collect();
        for message in messages {
            let mut fields = Reader::new(message);
            for count in counts.iter_mut().flatten() {
                *count += fields.varint().ok_or_else(undecodable)?;
            }
        }
        let intervals = std::mem::take(&mut self.intervals);
        for (interval, counts) in intervals.into_iter().zip(counts) {
            self.waiting
                .extend(interval.narrowed(self.kernel, &counts)?);
        }
        let most = SAMPLE_BYTES / (FEWEST * self.point_bytes() as u64);
        let first = self.waiting.len().min(most.max(1) as usize);
        self.intervals = self.waiting.drain(..first).collect();
        self.step += 1;
        Ok(())
    }
}

impl Interval {
    /// Chooses points of sorted samples: for each wanted position one on each side.
    fn divide_at(&mut self, samples: &[CutPoint]) {
        let count = samples.len() as u128;
        // The number of samples before a position has at most this standard deviation.
        let deviation = (samples.len() as f64).sqrt() / 2.0;
        let margin = (4.0 * deviation) as u128 + 2;
        let mut chosen = Vec::with_capacity(2 * self.wanted.len());
        for position in &self.wanted {
            let expected =
                u128::from(position - self.before) * count / u128::from(self.inside.max(1));
            chosen.extend(expected.checked_sub(margin));
            chosen.extend(Some(expected + margin).filter(|high| *high < count));
        }
        chosen.sort_unstable();
        chosen.dedup();
        let ends = chosen.iter().copied().chain([count]);
        let starts = [0].into_iter().chain(chosen.iter().copied());
        // Candidates of large parts would take as much memory as the input.
        self.likely = starts
            .zip(ends)
            .map(|(start, end)| (end - start) * 4 <= count)
            .collect();
        self.points = chosen
            .iter()
            .map(|index| samples[*index as usize].clone())
            .collect();
    }

    /// Counts the records of this rank in each part, and collects those of the `wanted` parts.
    #[expect(
        clippy::type_complexity,
        reason = "two lists, each with an element for each part"
    )]
    fn parted(
        &self,
        kernel: &dyn Kernel,
        wanted: &[bool],
    ) -> Result<(Vec<u64>, Vec<Option<Vec<Candidates>>>)> {
        let mut counts = vec![0; self.points.len() + 1];
        let mut kept: Vec<Option<Vec<Candidates>>> =
            wanted.iter().map(|wanted| wanted.then(Vec::new)).collect();
        for input in &self.mine {
            let parts = input.divided(&self.points, kernel, wanted, &mut counts)?;
            for (kept, part) in kept.iter_mut().zip(parts) {
                if let Some(kept) = kept {
                    kept.push(part);
                }
            }
        }
        Ok((counts, kept))
    }

    /// The parts that have wanted positions, with these numbers of records in each part.
    fn narrowed(mut self, kernel: &dyn Kernel, counts: &[u64]) -> Result<Vec<Interval>> {
        if counts.iter().sum::<u64>() != self.inside {
            return Err(other_counts());
        }
        let mut wanted: Vec<Vec<u64>> = vec![Vec::new(); counts.len()];
        let ends: Vec<u64> = counts
            .iter()
            .scan(self.before, |end, count| {
                *end += count;
                Some(*end)
            })
            .collect();
        for position in &self.wanted {
            let part = ends.partition_point(|end| end <= position);
            wanted
                .get_mut(part)
                .ok_or_else(other_counts)?
                .push(*position);
        }
        // Wanted positions in large parts are rare, and the records are collected again.
        let missing: Vec<bool> = wanted
            .iter()
            .zip(&self.kept)
            .map(|(wanted, kept)| !wanted.is_empty() && kept.is_none())
            .collect();
        let mut kept = std::mem::take(&mut self.kept);
        if missing.contains(&true) {
            let (_, again) = self.parted(kernel, &missing)?;
            for (kept, again) in kept.iter_mut().zip(again) {
                *kept = kept.take().or(again);
            }
        }
        let parts = wanted.into_iter().zip(kept).zip(counts.iter().zip(ends));
        let parts = parts.filter(|((wanted, _), _)| !wanted.is_empty());
        let parts = parts.map(|((wanted, kept), (count, end))| Interval {
            before: end - count,
            inside: *count,
            steps: self.steps + 1,
            wanted,
            mine: kept.unwrap_or_default(),
            points: Vec::new(),
            kept: Vec::new(),
            likely: Vec::new(),
        });
        Ok(parts.collect())
    }
}

/// Whether a record of an input is at this point of the total order or before it.
pub fn is_up_to(
    end: &CutPoint,
    kernel: &dyn Kernel,
    record: &[u8],
    origin: u32,
    position: u64,
) -> bool {
    let order = kernel.compare(record, &end.record);
    let order = order.then_with(|| origin.cmp(&end.origin));
    order.then_with(|| position.cmp(&end.position)) != Ordering::Greater
}

/// The position of a quantile among `total` records: the first for which at least this fraction of the records is not
/// behind it. `total` is not 0.
pub fn quantile_position(fraction: f64, total: u64) -> u64 {
    let last = total - 1;
    let rank = (fraction * total as f64).ceil();
    // A number beyond 2^53 is rounded; the last position is exact.
    if fraction >= 1.0 || rank >= total as f64 {
        return last;
    }
    (rank as u64).saturating_sub(1).min(last)
}

//! Sorts records that are more than a number, by partitioning from the most significant bits (MSD).
//!
//! Records are partitioned into buckets by the leading bits of their prefixes, forth and back between the block and a
//! scratch space of its size, until a bucket fits the second-level cache. For each record of a bucket a word of 64 bits
//! is made of the next bits of the prefix and the index of the record. The words are sorted, and each record moves
//! once, to its final position. Records with equal bits are sorted by whole comparisons. Records with equal prefixes
//! are sorted in runs, which are merged. All steps keep the order of equal keys. This module must never depend on the
//! kind of key.

use std::sync::{Mutex, PoisonError};

use super::cut::Order;
use super::keyed::Keyed;
use super::merge::merge;
use super::pool::{install, map_parallel};
use super::prefix::{Composed, Prefix, Prefixes};
use super::{Visitor, radix, vector};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::record::Sign;

/// The largest number of records in a bucket. Their words and, if they are small, the records fit a second-level cache.
/// Larger buckets need fewer partitions.
const BUCKET: usize = 1 << 14;

/// The largest number of records that are copied without being divided. In tests few, so that the simulator copies most
/// inputs as large ones are copied.
const LARGEST_UNDIVIDED: usize = if cfg!(feature = "testing") {
    16
} else {
    BUCKET
};

/// The smallest number of records that several threads sort.
pub const LEAST_SHARED: usize = 1 << 17;

/// Records are partitioned into at most 2^11 parts at a time.
const PARTITION_BITS: u32 = 11;

/// The number of records that are processed together, while they are in a first-level cache.
const BATCH: usize = 1 << 10;

/// The largest number of runs that are merged at a time.
const MOST_RUNS: usize = 256;

/// Evaluates an expression with an [`MsdPartition`] for records of this order. Common sizes are constants, so that one
/// or two instructions move a record.
macro_rules! with_partition {
    ($order:expr, $pool:expr, $partition:ident => $work:expr) => {{
        let (order, pool) = ($order, $pool);
        match order.prefixes() {
            Prefixes::Single(reader) => {
                with_partition!(order, *reader, pool, $partition => $work, 8 12 16 24 32)
            }
            Prefixes::Composed(keys) => {
                with_partition!(order, Composed(keys), pool, $partition => $work, 16 24 32)
            }
        }
    }};
    ($order:ident, $prefix:expr, $pool:ident, $partition:ident => $work:expr, $($size:literal)*) => {
        match $order.record_bytes() {
            $($size => {
                let $partition = MsdPartition::<_, $size>::new($order, $prefix, $pool);
                $work
            })*
            _ => {
                let $partition = MsdPartition::<_, 0>::new($order, $prefix, $pool);
                $work
            }
        }
    };
}

/// Sorts the records of a block, on the threads of the pool or on the caller's thread. `borders` are those of
/// [`Buffer::borders`]. The scratch space is as large as the largest part between two borders; on a pool as the block.
///
/// # Errors
/// `Status::Memory` if scratch space cannot be allocated.
pub fn sort(
    order: &Keyed,
    pool: Option<&rayon::ThreadPool>,
    block: &mut [u8],
    borders: &[usize],
) -> Result<()> {
    with_partition!(order, pool, partition => partition.sort(block, borders))
}

/// Copies records to `out`, which is as long, and partitions them on the way. Returns the borders in the copy, for
/// [`sort`]; without any, the records have their original order. `visit` is called with the records in their original
/// order.
pub fn copy(
    order: &Keyed,
    pool: Option<&rayon::ThreadPool>,
    records: &[u8],
    out: &mut [u8],
    visit: &mut Visitor,
) -> Vec<usize> {
    with_partition!(order, pool, partition => partition.copy_all(records, out, visit))
}

/// Sorts records of `SIZE` bytes; 0 means that the size is not a constant.
struct MsdPartition<'a, P, const SIZE: usize> {
    order: &'a Keyed,
    /// Computes the prefixes of this order.
    prefix: P,
    pool: Option<&'a rayon::ThreadPool>,
}

/// Records with prefixes that are equal but for the lowest bits.
struct Part<'a> {
    /// The records.
    records: &'a mut [u8],
    /// As much scratch space.
    scratch: &'a mut [u8],
    /// Whether the sorted records belong into `records`, and not into `scratch`.
    in_place: bool,
    /// The number of low bits in which the prefixes may differ.
    bits: u32,
}

/// Space for the words of a bucket, and as much scratch space.
struct Words(Buffer);

impl Words {
    fn new(records: usize) -> Result<Words> {
        let words = 2 * records.min(BUCKET);
        Ok(Words(Buffer::unset(words * size_of::<u64>())?))
    }

    fn halves(&mut self) -> (&mut [u64], &mut [u64]) {
        let words: &mut [u64] = bytemuck::cast_slice_mut(&mut self.0);
        words.split_at_mut(words.len() / 2)
    }
}

impl<'a> Part<'a> {
    /// Returns a part that is to be sorted in place, and of which all bits may differ.
    fn new(records: &'a mut [u8], scratch: &'a mut [u8]) -> Part<'a> {
        Part {
            records,
            scratch,
            in_place: true,
            bits: u64::BITS,
        }
    }

    /// Copies sorted records to `scratch` if they belong there.
    fn finish(self) {
        if !self.in_place {
            self.scratch.copy_from_slice(self.records);
        }
    }
}

/// Returns how many bits the index of one of `count` records has.
fn index_bits_for(count: usize) -> u32 {
    usize::BITS - count.saturating_sub(1).leading_zeros()
}

impl<'a, P: Prefix, const SIZE: usize> MsdPartition<'a, P, SIZE> {
    fn new(order: &'a Keyed, prefix: P, pool: Option<&'a rayon::ThreadPool>) -> Self {
        MsdPartition {
            order,
            prefix,
            pool,
        }
    }

    /// Returns the size of a record in bytes.
    #[inline(always)]
    fn size(&self) -> usize {
        match SIZE {
            0 => self.order.record_bytes(),
            _ => SIZE,
        }
    }

    /// Copies one record.
    #[inline(always)]
    fn copy(&self, from: &[u8], to: &mut [u8]) {
        match SIZE {
            0 => to.copy_from_slice(from),
            _ => to[..SIZE].copy_from_slice(&from[..SIZE]),
        }
    }

    /// Returns the prefixes of records.
    #[inline(always)]
    fn prefixes(&self, records: &[u8]) -> impl Iterator<Item = u64> {
        // A copy makes the loop faster.
        let prefix = self.prefix;
        let records = records.chunks_exact(self.size());
        records.map(move |record| match SIZE {
            0 => prefix.prefix(record),
            _ => prefix.prefix(&record[..SIZE]),
        })
    }

    fn sort(&self, mut block: &mut [u8], borders: &[usize]) -> Result<()> {
        let bytes = block.len();
        let count = bytes / self.size();
        let starts = [0].iter().chain(borders);
        let ends = borders.iter().chain([&bytes]);
        let lengths = starts.zip(ends).map(|(start, end)| end - start);
        let largest = lengths.clone().max().unwrap_or(0);
        let mut words = Words::new(largest / self.size())?;
        match self.pool.filter(|_| self.threads(count) > 1) {
            Some(pool) => {
                let mut scratch = Buffer::unset(bytes)?;
                let mut scratch = &mut scratch[..];
                let parts = lengths
                    .map(|length| {
                        Part::new(
                            split_off(&mut block, length),
                            split_off(&mut scratch, length),
                        )
                    })
                    .collect();
                install(pool, || self.sort_parts(count, parts, &mut words))
            }
            None => {
                let mut scratch = Buffer::unset(largest)?;
                lengths.into_iter().try_for_each(|length| {
                    let part = Part::new(split_off(&mut block, length), &mut scratch[..length]);
                    self.sort_part(part, &mut words)
                })
            }
        }
    }

    fn copy_all(&self, records: &[u8], out: &mut [u8], visit: &mut Visitor) -> Vec<usize> {
        match self.pool {
            Some(pool) => install(pool, || self.copy_here(records, out, visit)),
            None => self.copy_here(records, out, visit),
        }
    }

    /// Copies on the threads of the pool that the caller's thread belongs to.
    fn copy_here(&self, records: &[u8], out: &mut [u8], visit: &mut Visitor) -> Vec<usize> {
        let bits = match records.len() / self.size() {
            ..=LARGEST_UNDIVIDED => 0,
            _ => self.differing_bits(records, u64::BITS),
        };
        if bits == 0 {
            visit(records);
            out.copy_from_slice(records);
            return Vec::new();
        }
        let (sizes, _) = self.partition(records, out, bits, visit);
        let mut borders = prefix_sums(&sizes);
        borders.dedup();
        borders.retain(|border| (1..records.len()).contains(border));
        borders
    }

    /// Sorts the records of a part.
    fn sort_part(&self, mut part: Part, words: &mut Words) -> Result<()> {
        let count = part.records.len() / self.size();
        if count <= 1 {
            part.finish();
            return Ok(());
        }
        if count > BUCKET || part.bits + index_bits_for(count) > u64::BITS {
            part.bits = self.differing_bits(part.records, part.bits);
        }
        match part.bits {
            0 if self.order.is_decided_by_prefix() => part.finish(),
            _ if count <= BUCKET => self.sort_bucket(part, words),
            0 if self.is_sorted(part.records) => part.finish(),
            0 => self.sort_and_merge(part, words)?,
            _ => self.partition_and_sort(part, words)?,
        }
        Ok(())
    }

    /// Returns whether records with equal prefixes are sorted. If there are many, their keys are usually equal.
    fn is_sorted(&self, records: &[u8]) -> bool {
        let records = records.chunks_exact(self.size());
        records.is_sorted_by(|one, other| self.order.compare_rest(one, other).is_le())
    }

    /// Returns how many threads work on `count` records.
    fn threads(&self, count: usize) -> usize {
        match self.pool {
            Some(pool) if count >= LEAST_SHARED => pool.current_num_threads(),
            _ => 1,
        }
    }

    /// Calls `work` for each share of `count` records, on the threads of the pool if there are enough records.
    fn on_shares<T: Send, R: Send>(
        &self,
        count: usize,
        shares: impl Iterator<Item = T>,
        work: impl Fn(T) -> R + Sync + Send,
    ) -> Vec<R> {
        if self.threads(count) == 1 {
            return shares.map(work).collect();
        }
        map_parallel(shares, work)
    }

    /// Sorts parts that have `count` records together.
    fn sort_parts(&self, count: usize, parts: Vec<Part>, words: &mut Words) -> Result<()> {
        if self.threads(count) == 1 {
            let mut parts = parts.into_iter();
            return parts.try_for_each(|part| self.sort_part(part, words));
        }
        // The words that no thread uses now. In the end there is one for each thread.
        let unused = Mutex::new(Vec::new());
        let lock_unused = || unused.lock().unwrap_or_else(PoisonError::into_inner);
        let sorted = map_parallel(parts.into_iter(), |part| {
            let words = lock_unused().pop();
            let mut words = words.map_or_else(|| Words::new(count), Ok)?;
            self.sort_part(part, &mut words)?;
            lock_unused().push(words);
            Ok(())
        });
        sorted.into_iter().collect()
    }

    /// Returns how many low bits of the prefixes differ in some records, which are at most `most`.
    fn differing_bits(&self, records: &[u8], most: u32) -> u32 {
        let count = records.len() / self.size();
        let first = self.prefix.prefix(&records[..self.size()]);
        let share = count.div_ceil(self.threads(count)) * self.size();
        let differences = self.on_shares(count, records.chunks(share), |share| {
            let mut all = 0_u64;
            // Usually the first records differ in the highest of these bits.
            for batch in share.chunks(BATCH * self.size()) {
                all = self
                    .prefixes(batch)
                    .fold(all, |all, prefix| all | (prefix ^ first));
                if u64::BITS - all.leading_zeros() == most {
                    break;
                }
            }
            all
        });
        let all = differences.iter().fold(0, |all, one| all | one);
        u64::BITS - all.leading_zeros()
    }

    /// Partitions the records by the leading bits that may differ, and sorts each partition.
    fn partition_and_sort(&self, part: Part, words: &mut Words) -> Result<()> {
        let count = part.records.len() / self.size();
        let (sizes, bits) = self.partition(part.records, part.scratch, part.bits, &mut |_| ());
        let (mut records, mut scratch) = (part.scratch, part.records);
        let parts = sizes.into_iter().map(|bytes| Part {
            records: split_off(&mut records, bytes),
            scratch: split_off(&mut scratch, bytes),
            in_place: !part.in_place,
            bits,
        });
        self.sort_parts(count, parts.collect(), words)
    }

    /// Copies records to `out`, partitioned by the leading bits of the `bits` low bits that may differ. Returns the
    /// size of each partition in bytes, and how many low bits may differ within one. `visit` is called with the
    /// records.
    fn partition(
        &self,
        records: &[u8],
        out: &mut [u8],
        bits: u32,
        visit: &mut Visitor,
    ) -> (Vec<usize>, u32) {
        let size = self.size();
        let count = records.len() / size;
        let width = self.partition_width(records, bits);
        let shift = bits - width;
        let partitions = 1 << width;
        let partition_of = |prefix: u64| (prefix >> shift) as usize & (partitions - 1);
        let share = count.div_ceil(self.threads(count)) * size;
        let count_bytes = |sizes: &mut Vec<usize>, records| {
            for prefix in self.prefixes(records) {
                sizes[partition_of(prefix)] += size;
            }
        };
        let zeroes = || vec![0; partitions];
        let sizes_by_share = if self.threads(count) == 1 {
            let mut sizes = zeroes();
            for batch in records.chunks(BATCH * size) {
                count_bytes(&mut sizes, batch);
                visit(batch);
            }
            vec![sizes]
        } else {
            visit(records);
            self.on_shares(count, records.chunks(share), |share| {
                let mut sizes = zeroes();
                count_bytes(&mut sizes, share);
                sizes
            })
        };
        match &sizes_by_share[..] {
            [sizes] => {
                // A table of offsets is smaller than one of slices, and leaves more of a first-level cache to the
                // records.
                let mut next = prefix_sums(sizes);
                for (record, prefix) in records.chunks_exact(size).zip(self.prefixes(records)) {
                    let next = &mut next[partition_of(prefix)];
                    self.copy(record, &mut out[*next..][..size]);
                    *next += size;
                }
            }
            _ => {
                let shares = records.chunks(share).zip(outputs_of(out, &sizes_by_share));
                self.on_shares(count, shares, |(share, mut outputs)| {
                    let records = share.chunks_exact(size).zip(self.prefixes(share));
                    for (record, prefix) in records {
                        self.copy(record, split_off(&mut outputs[partition_of(prefix)], size));
                    }
                });
            }
        }
        let size_of =
            |partition| -> usize { sizes_by_share.iter().map(|sizes| sizes[partition]).sum() };
        ((0..partitions).map(size_of).collect(), shift)
    }

    /// Returns by how many bits to partition.
    fn partition_width(&self, records: &[u8], bits: u32) -> u32 {
        let size = self.size();
        let count = records.len() / size;
        let excess = (count / (BUCKET / 4 * 3)).max(1).ilog2() + 1;
        // All steps have about the same width, and the last one leaves partitions that are buckets.
        let width = excess.div_ceil(excess.div_ceil(PARTITION_BITS));
        let sample = records
            .chunks_exact(size)
            .step_by((count / radix::SAMPLE).max(1));
        let crowding = radix::crowding(sample.map(|record| self.prefix.prefix(record)), bits);
        (width + crowding).min(PARTITION_BITS).min(bits)
    }

    /// Sorts the records of a bucket by words that stand for them.
    fn sort_bucket(&self, part: Part, words: &mut Words) {
        let size = self.size();
        let count = part.records.len() / size;
        let (words, scratch) = words.halves();
        let words = &mut words[..count];
        let index_bits = index_bits_for(count);
        let index_mask = (1 << index_bits) - 1;
        // Without differing bits, the bits at the top are equal in all records.
        let skipped = u64::BITS - part.bits.max(1);
        let keys = self.prefixes(part.records).zip(0_u64..);
        for (word, (prefix, index)) in words.iter_mut().zip(keys) {
            *word = prefix << skipped & !index_mask | index;
        }
        match part.bits {
            0 => {}
            _ if vector::is_available::<u64>() => vector::sort(words, Sign::Unsigned),
            _ => radix::sort_with(words, scratch),
        }
        if !self.order.is_decided_by_prefix() || part.bits + index_bits > u64::BITS {
            sort_ties(self.order, words, index_mask, part.records);
        }
        let record = |word: u64| &part.records[(word & index_mask) as usize * size..][..size];
        for (to, word) in part.scratch.chunks_exact_mut(size).zip(words) {
            self.copy(record(*word), to);
        }
        if part.in_place {
            part.records.copy_from_slice(part.scratch);
        }
    }

    /// Sorts many records with equal prefixes: in runs, which it merges.
    fn sort_and_merge(&self, part: Part, words: &mut Words) -> Result<()> {
        let size = self.size();
        let count = part.records.len() / size;
        let run = count.div_ceil(count.div_ceil(BUCKET).min(MOST_RUNS)) * size;
        let pairs = part
            .records
            .chunks_mut(run)
            .zip(part.scratch.chunks_mut(run));
        let parts = pairs.map(|(records, scratch)| Part {
            records,
            scratch,
            in_place: false,
            bits: part.bits,
        });
        self.sort_parts(count, parts.collect(), words)?;
        let runs: Vec<&[u8]> = part.scratch.chunks(run).collect();
        merge(self.order, &runs, part.records, self.pool)?;
        part.finish();
        Ok(())
    }
}

/// Orders words that are equal except for the index of their record, as their records are ordered. It is not generic
/// over the size of the records, because the sort of the standard library would be compiled for each of them.
fn sort_ties(order: &Keyed, words: &mut [u64], index_mask: u64, records: &[u8]) {
    let size = order.record_bytes();
    let record = |word: u64| &records[(word & index_mask) as usize * size..][..size];
    let compare = |one: &u64, other: &u64| order.compare(record(*one), record(*other));
    for ties in words.chunk_by_mut(|one, other| (one ^ other) <= index_mask) {
        // Most ties are equal keys, which are in order already.
        if !ties.is_sorted_by(|one, other| compare(one, other).is_le()) {
            ties.sort_by(compare);
        }
    }
}

/// Splits the first `bytes` bytes off `rest` and returns them.
#[inline(always)]
fn split_off<'a>(rest: &mut &'a mut [u8], bytes: usize) -> &'a mut [u8] {
    let (first, others) = std::mem::take(rest).split_at_mut(bytes);
    *rest = others;
    first
}

/// Returns the start of each partition, given the sizes of all.
fn prefix_sums(sizes: &[usize]) -> Vec<usize> {
    let mut sum = 0;
    let start = |bytes: &usize| {
        sum += bytes;
        sum - bytes
    };
    sizes.iter().map(start).collect()
}

/// Returns for each share its output in each partition, given their sizes in bytes. In a partition the outputs of the
/// shares follow each other in order.
fn outputs_of<'a>(mut out: &'a mut [u8], sizes_by_share: &[Vec<usize>]) -> Vec<Vec<&'a mut [u8]>> {
    let partitions = sizes_by_share.first().map_or(0, Vec::len);
    let empty = sizes_by_share
        .iter()
        .map(|_| Vec::with_capacity(partitions));
    let mut outputs: Vec<Vec<_>> = empty.collect();
    for partition in 0..partitions {
        for (outputs, sizes) in outputs.iter_mut().zip(sizes_by_share) {
            outputs.push(split_off(&mut out, sizes[partition]));
        }
    }
    outputs
}

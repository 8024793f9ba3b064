//! Sorting records that are more than a number.
//!
//! Records are dealt out to buckets by the leading bits of their prefixes, forth and back between
//! the block and a scratch space of its size, until a bucket fits the second-level cache. A bucket's
//! records are then sorted by words of 64 bits, each made of the prefix's next bits and the record's
//! number, and moved once, to where they belong. Words of the same bits are put right by whole
//! comparisons. Records whose prefixes say nothing are sorted in buckets all the same, which are
//! merged. All of it keeps equal keys in order. It must never look up what a key is made of.

use std::sync::{Mutex, PoisonError};

use rayon::ThreadPool;

use super::cut::Order;
use super::keyed::Keyed;
use super::merge::merge;
use super::pool::{each, on_pool};
use super::{Seen, radix, vector};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::record::Sign;

/// A bucket has so many records at most. Their words and, if they are small, the records fit a second-level
/// cache: the fewer places there are to deal to, the better.
const BUCKET: usize = 1 << 14;

/// Blocks of fewer records are not worth sharing out to threads.
const SHARED: usize = 1 << 17;

/// Records are dealt to at most 2^11 places at a time.
const DEAL_BITS: u32 = 11;

/// So many records are looked at together.
const FEW: usize = 1 << 10;

/// So many runs at most are merged at a time.
const RUNS: usize = 256;

/// Does something with a dealer for records of this order: with a size that the compiler knows, a small record
/// is moved by an instruction or two.
macro_rules! with_dealer {
    ($order:expr, $pool:expr, $dealer:ident => $work:expr) => {
        with_dealer!($order, $pool, $dealer => $work, 8 12 16 24 32)
    };
    ($order:expr, $pool:expr, $dealer:ident => $work:expr, $($size:literal)*) => {{
        let (order, pool) = ($order, $pool);
        match order.record_bytes() {
            $($size => {
                let $dealer = MsdPartition::<$size> { order, pool };
                $work
            })*
            _ => {
                let $dealer = MsdPartition::<0> { order, pool };
                $work
            }
        }
    }};
}

/// Sorts the records of a block, on the pool's threads or the caller's alone. No record before a border comes
/// after one from it on: each part in between takes as much memory again while it is sorted.
pub fn sort(
    order: &Keyed,
    pool: Option<&ThreadPool>,
    block: &mut [u8],
    borders: &[usize],
) -> Result<()> {
    with_dealer!(order, pool, dealer => dealer.sort(block, borders))
}

/// Copies records to `out`, which is as long. Returns borders in the copy, as [`sort`] wants them; without any,
/// the records have the order that they had. `seen` is shown the records, from the first to the last.
pub fn copy(
    order: &Keyed,
    pool: Option<&ThreadPool>,
    records: &[u8],
    out: &mut [u8],
    seen: &mut Seen,
) -> Vec<usize> {
    with_dealer!(order, pool, dealer => dealer.copy_all(records, out, seen))
}

/// Sorts records of `SIZE` bytes; 0 if the compiler does not know how many.
struct MsdPartition<'a, const SIZE: usize> {
    order: &'a Keyed,
    pool: Option<&'a ThreadPool>,
}

/// Records that are alike in all bits of their prefixes but the lowest few.
struct Part<'a> {
    /// Where they are.
    records: &'a mut [u8],
    /// As much room.
    room: &'a mut [u8],
    /// Which of both they are to end in.
    stay: bool,
    /// How many of the prefixes' low bits may differ.
    bits: u32,
}

/// The words of a bucket, and as many again.
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
    /// Of a block, of which nothing else is known.
    fn new(records: &'a mut [u8], room: &'a mut [u8]) -> Part<'a> {
        Part {
            records,
            room,
            stay: true,
            bits: u64::BITS,
        }
    }

    /// For records that are in order.
    fn settle(self) {
        if !self.stay {
            self.room.copy_from_slice(self.records);
        }
    }
}

/// How many bits it takes to number so many records.
fn bits_for(count: usize) -> u32 {
    usize::BITS - count.saturating_sub(1).leading_zeros()
}

impl<const SIZE: usize> MsdPartition<'_, SIZE> {
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

    /// The prefixes of records.
    #[inline(always)]
    fn prefixes(&self, records: &[u8]) -> impl Iterator<Item = u64> {
        let prefix = self.order.prefix_maker();
        let records = records.chunks_exact(self.size());
        records.map(move |record| match SIZE {
            0 => prefix.of(record),
            _ => prefix.of(&record[..SIZE]),
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
                let mut room = Buffer::unset(bytes)?;
                let mut room = &mut room[..];
                let parts = lengths
                    .map(|length| {
                        Part::new(split_off(&mut block, length), split_off(&mut room, length))
                    })
                    .collect();
                on_pool(pool, || self.sort_parts(count, parts, &mut words))
            }
            None => {
                let mut room = Buffer::unset(largest)?;
                lengths.into_iter().try_for_each(|length| {
                    let part = Part::new(split_off(&mut block, length), &mut room[..length]);
                    self.sort_part(part, &mut words)
                })
            }
        }
    }

    fn copy_all(&self, records: &[u8], out: &mut [u8], seen: &mut Seen) -> Vec<usize> {
        match self.pool {
            Some(pool) => on_pool(pool, || self.copy_here(records, out, seen)),
            None => self.copy_here(records, out, seen),
        }
    }

    /// On the threads that this one belongs to.
    fn copy_here(&self, records: &[u8], out: &mut [u8], seen: &mut Seen) -> Vec<usize> {
        let bits = match records.len() / self.size() {
            ..=BUCKET => 0,
            _ => self.differing_bits(records, u64::BITS),
        };
        if bits == 0 {
            seen(records);
            out.copy_from_slice(records);
            return Vec::new();
        }
        let (sizes, _) = self.deal_out(records, out, bits, seen);
        let mut borders = starts_of(&sizes);
        borders.dedup();
        borders.retain(|border| (1..records.len()).contains(border));
        borders
    }

    fn sort_part(&self, mut part: Part, words: &mut Words) -> Result<()> {
        let count = part.records.len() / self.size();
        if count <= 1 {
            part.settle();
            return Ok(());
        }
        if count > BUCKET || part.bits + bits_for(count) > u64::BITS {
            part.bits = self.differing_bits(part.records, part.bits);
        }
        match part.bits {
            0 if self.order.is_decided_by_prefix() => part.settle(),
            _ if count <= BUCKET => self.sort_bucket(part, words),
            0 if self.is_sorted(part.records) => part.settle(),
            0 => self.sort_and_merge(part, words)?,
            _ => self.deal(part, words)?,
        }
        Ok(())
    }

    /// Are all keys in order? Mostly equal keys are, if they are many that have the same prefix.
    fn is_sorted(&self, records: &[u8]) -> bool {
        let records = records.chunks_exact(self.size());
        records.is_sorted_by(|one, other| self.order.compare_rest(one, other).is_le())
    }

    /// How many threads work on so many records.
    fn threads(&self, count: usize) -> usize {
        match self.pool {
            Some(pool) if count >= SHARED => pool.current_num_threads(),
            _ => 1,
        }
    }

    /// Does the same for each share of so many records.
    fn on_shares<T: Send, R: Send>(
        &self,
        count: usize,
        shares: impl Iterator<Item = T>,
        work: impl Fn(T) -> R + Sync + Send,
    ) -> Vec<R> {
        if self.threads(count) == 1 {
            return shares.map(work).collect();
        }
        each(shares, work)
    }

    /// Sorts parts of so many records.
    fn sort_parts(&self, count: usize, parts: Vec<Part>, words: &mut Words) -> Result<()> {
        if self.threads(count) == 1 {
            let mut parts = parts.into_iter();
            return parts.try_for_each(|part| self.sort_part(part, words));
        }
        // Words that no thread uses now: in the end there are as many as threads.
        let spare = Mutex::new(Vec::new());
        let take = || spare.lock().unwrap_or_else(PoisonError::into_inner);
        let sorted = each(parts.into_iter(), |part| {
            let words = take().pop();
            let mut words = words.map_or_else(|| Words::new(count), Ok)?;
            self.sort_part(part, &mut words)?;
            take().push(words);
            Ok(())
        });
        sorted.into_iter().collect()
    }

    /// How many of the prefixes' low bits it takes to tell them apart, which are not more than so many.
    fn differing_bits(&self, records: &[u8], most: u32) -> u32 {
        let count = records.len() / self.size();
        let first = self.order.prefix(&records[..self.size()]);
        let share = count.div_ceil(self.threads(count)) * self.size();
        let differences = self.on_shares(count, records.chunks(share), |share| {
            let mut all = 0_u64;
            // Mostly it is known after a few.
            for few in share.chunks(FEW * self.size()) {
                all = self
                    .prefixes(few)
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

    /// Deals the records out by the leading ones of the bits that may differ, and sorts what each
    /// place got.
    fn deal(&self, part: Part, words: &mut Words) -> Result<()> {
        let count = part.records.len() / self.size();
        let (sizes, bits) = self.deal_out(part.records, part.room, part.bits, &mut |_| ());
        let (mut records, mut room) = (part.room, part.records);
        let parts = sizes.into_iter().map(|bytes| Part {
            records: split_off(&mut records, bytes),
            room: split_off(&mut room, bytes),
            stay: !part.stay,
            bits,
        });
        self.sort_parts(count, parts.collect(), words)
    }

    /// Deals records out to places in the room by the leading ones of so many bits that may differ. Returns how
    /// many bytes each place got, and how many bits may still differ there. `seen` is shown the records.
    fn deal_out(
        &self,
        records: &[u8],
        room: &mut [u8],
        bits: u32,
        seen: &mut Seen,
    ) -> (Vec<usize>, u32) {
        let size = self.size();
        let count = records.len() / size;
        let width = self.deal_width(records, bits);
        let shift = bits - width;
        let places = 1 << width;
        let place = |prefix: u64| (prefix >> shift) as usize & (places - 1);
        let share = count.div_ceil(self.threads(count)) * size;
        let add = |tally: &mut Vec<usize>, records| {
            for prefix in self.prefixes(records) {
                tally[place(prefix)] += size;
            }
        };
        let nothing = || vec![0; places];
        let tallies = if self.threads(count) == 1 {
            let mut tally = nothing();
            for few in records.chunks(FEW * size) {
                add(&mut tally, few);
                seen(few);
            }
            vec![tally]
        } else {
            seen(records);
            self.on_shares(count, records.chunks(share), |share| {
                let mut tally = nothing();
                add(&mut tally, share);
                tally
            })
        };
        match &tallies[..] {
            [tally] => {
                // One table of offsets leaves room for the records in a first-level cache.
                let mut next = starts_of(tally);
                for (record, prefix) in records.chunks_exact(size).zip(self.prefixes(records)) {
                    let next = &mut next[place(prefix)];
                    self.copy(record, &mut room[*next..][..size]);
                    *next += size;
                }
            }
            _ => {
                let shares = records.chunks(share).zip(rooms_of(room, &tallies));
                self.on_shares(count, shares, |(share, mut rooms)| {
                    let records = share.chunks_exact(size).zip(self.prefixes(share));
                    for (record, prefix) in records {
                        self.copy(record, split_off(&mut rooms[place(prefix)], size));
                    }
                });
            }
        }
        let size_of = |place| tallies.iter().map(|tally| tally[place]).sum();
        ((0..places).map(size_of).collect(), shift)
    }

    /// By how many bits to deal.
    fn deal_width(&self, records: &[u8], bits: u32) -> u32 {
        let size = self.size();
        let count = records.len() / size;
        let excess = (count / (BUCKET / 4 * 3)).ilog2() + 1;
        // Steps of about the same width, the last of which leaves buckets that fit.
        let width = excess.div_ceil(excess.div_ceil(DEAL_BITS));
        let sample = records.chunks_exact(size).step_by(count / radix::SAMPLE);
        let crowding = radix::crowding(sample.map(|record| self.order.prefix(record)), bits);
        (width + crowding).min(DEAL_BITS).min(bits)
    }

    /// Sorts a few records by words that stand for them.
    fn sort_bucket(&self, part: Part, words: &mut Words) {
        let size = self.size();
        let count = part.records.len() / size;
        let (words, scratch) = words.halves();
        let words = &mut words[..count];
        let number_bits = bits_for(count);
        let numbers = (1 << number_bits) - 1;
        // Without bits, whatever is at the top is alike in all records.
        let skipped = u64::BITS - part.bits.max(1);
        let keys = self.prefixes(part.records).zip(0_u64..);
        for (word, (prefix, number)) in words.iter_mut().zip(keys) {
            *word = prefix << skipped & !numbers | number;
        }
        match part.bits {
            0 => {}
            _ if vector::is_available::<u64>() => vector::sort(words, Sign::Unsigned),
            _ => radix::sort_with(words, scratch),
        }
        let record = |word: u64| &part.records[(word & numbers) as usize * size..][..size];
        if !self.order.is_decided_by_prefix() || part.bits + number_bits > u64::BITS {
            let compare = |one: &u64, other: &u64| self.order.compare(record(*one), record(*other));
            for ties in words.chunk_by_mut(|one, other| (one ^ other) <= numbers) {
                // Mostly equal keys, which are in order already.
                if !ties.is_sorted_by(|one, other| compare(one, other).is_le()) {
                    ties.sort_by(compare);
                }
            }
        }
        for (to, word) in part.room.chunks_exact_mut(size).zip(words) {
            self.copy(record(*word), to);
        }
        if part.stay {
            part.records.copy_from_slice(part.room);
        }
    }

    /// Sorts many records whose prefixes say nothing.
    fn sort_and_merge(&self, part: Part, words: &mut Words) -> Result<()> {
        let size = self.size();
        let count = part.records.len() / size;
        let run = count.div_ceil(count.div_ceil(BUCKET).min(RUNS)) * size;
        let pairs = part.records.chunks_mut(run).zip(part.room.chunks_mut(run));
        let parts = pairs.map(|(records, room)| Part {
            records,
            room,
            stay: false,
            bits: part.bits,
        });
        self.sort_parts(count, parts.collect(), words)?;
        let runs: Vec<&[u8]> = part.room.chunks(run).collect();
        merge(self.order, &runs, part.records, self.pool)?;
        part.settle();
        Ok(())
    }
}

/// The first so many bytes, which are then gone from `rest`.
#[inline(always)]
fn split_off<'a>(rest: &mut &'a mut [u8], bytes: usize) -> &'a mut [u8] {
    let (first, others) = std::mem::take(rest).split_at_mut(bytes);
    *rest = others;
    first
}

/// Where the room of each place begins, given how many bytes each takes.
fn starts_of(tally: &[usize]) -> Vec<usize> {
    let mut sum = 0;
    let start = |bytes: &usize| {
        sum += bytes;
        sum - bytes
    };
    tally.iter().map(start).collect()
}

/// For each share, the room that it has at each place, given how many bytes it takes there. The
/// shares are next to each other, in their order.
fn rooms_of<'a>(mut room: &'a mut [u8], tallies: &[Vec<usize>]) -> Vec<Vec<&'a mut [u8]>> {
    let places = tallies.first().map_or(0, Vec::len);
    let mut rooms: Vec<Vec<_>> = tallies.iter().map(|_| Vec::with_capacity(places)).collect();
    for place in 0..places {
        for (rooms, tally) in rooms.iter_mut().zip(tallies) {
            rooms.push(split_off(&mut room, tally[place]));
        }
    }
    rooms
}

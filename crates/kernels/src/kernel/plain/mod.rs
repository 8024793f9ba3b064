//! The kernel for records that are plain numbers.
//!
//! Keys that the processor cannot compare as they are, are turned into unsigned words of the same order, in place or
//! when they are copied into a cache. Sorts and merges never use the comparisons of floating-point numbers, which are
//! not a total order. Vector instructions sort and merge words where the processor has them. This module must never use
//! rayon's global pool, which belongs to the program.

mod division;

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ops::Range;

use super::cut::{Order, select};
use super::merge::{FAR_BYTES, Merge, PIECE_BYTES, merge, merge_tree, merge_tree_by};
use super::pair::Destination;
use super::pool::{ThreadPool, current_threads, install, map_parallel};
use super::{
    Bound, Kernel, Visitor, copy_all, count, divide_sorted, radix, seems_monotonic, vector,
};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::record::{PlainKey, Sign, Word};
use bytemuck::{cast_slice, cast_slice_mut, pod_read_unaligned};

/// The smallest number of records that several threads sort: twice as many as a part of one thread has.
const LEAST_SHARED: usize = 2 * vector::LEAST_OF_THREAD;

/// Runs of at most this many bytes on average are not merged but sorted again, with vector instructions. Of 8 or 16 runs
/// of this size, one takes as long as the other; of shorter runs, a merge takes longer.
const SHORT_RUN_BYTES: usize = 2 << 10;

/// A block of at most this many bytes stays in a second-level cache while it is sorted.
const CACHED_BYTES: usize = 1 << 19;

/// A kernel for one type of number.
#[derive(Debug)]
pub struct Plain<T> {
    pool: ThreadPool,
    numbers: Numbers<T>,
}

/// The order of the numbers.
#[derive(Debug)]
struct Numbers<T>(PhantomData<T>);

impl<T: PlainKey> Order for Numbers<T> {
    #[inline(always)]
    fn record_bytes(&self) -> usize {
        size_of::<T>()
    }

    #[inline(always)]
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        pod_read_unaligned::<T>(one).order(pod_read_unaligned(other))
    }
}

impl<T: PlainKey> Merge for Numbers<T> {
    /// A tree with several levels needs a second buffer. Keys that cannot be compared as they are need one more for
    /// their words.
    fn scratch_bytes(&self, runs: usize) -> usize {
        match comparable::<T>() {
            Some(_) if runs <= 2 => 0,
            Some(_) => size_of::<T>(),
            None => 2 * size_of::<T>(),
        }
    }

    fn merge_piece(
        &self,
        runs: &[&[u8]],
        out: &mut [u8],
        scratch: &mut [u8],
        destination: Destination,
    ) {
        let scratch: &mut [T::Bits] = cast_slice_mut(scratch);
        let words: &mut [T::Bits] = cast_slice_mut(out);
        if let Some(sign) = comparable::<T>() {
            let runs: Vec<_> = runs.iter().map(|run| cast_slice(run)).collect();
            merge_words(&runs, words, scratch, sign, destination);
            return;
        }
        let (scratch, staged) = scratch.split_at_mut(words.len());
        let runs = copy_words::<T>(runs, staged);
        merge_words(&runs, words, scratch, Sign::Unsigned, Destination::Cache);
        words_to_keys::<T>(words);
    }
}

/// Returns how this processor compares the bits of the keys; None if they must be turned into words first.
fn comparable<T: PlainKey>() -> Option<Sign> {
    let any_sign = vector::is_available::<T::Bits>();
    T::NATIVE.filter(|sign| any_sign || *sign == Sign::Unsigned)
}

/// Sorts words on the calling thread. They must not be floating-point numbers, and signed ones need vector
/// instructions.
fn sort_words<W: Word>(words: &mut [W], sign: Sign) {
    if vector::is_available::<W>() {
        vector::sort(words, sign);
    } else {
        radix::sort(words);
    }
}

/// Merges runs of words. Signed words and floating-point numbers need vector instructions.
fn merge_words<W: Word>(
    runs: &[&[W]],
    out: &mut [W],
    scratch: &mut [W],
    sign: Sign,
    destination: Destination,
) {
    if vector::is_available::<W>() {
        let merge_two = |one: &[W], other: &[W], out: &mut [W], destination| {
            vector::merge_two(one, other, out, sign, destination);
        };
        merge_tree(runs, out, scratch, destination, merge_two);
    } else {
        merge_tree_by(runs, out, scratch, |one, other| one < other);
    }
}

/// Copies runs one after the other to `to`, as words in the order of their keys, and returns the copies.
fn copy_words<'a, T: PlainKey>(runs: &[&[u8]], mut to: &'a mut [T::Bits]) -> Vec<&'a [T::Bits]> {
    let copies = runs.iter().map(|run| {
        let run: &[T] = cast_slice(run);
        let (place, rest) = std::mem::take(&mut to).split_at_mut(run.len());
        for (word, record) in place.iter_mut().zip(run) {
            *word = record.bits();
        }
        to = rest;
        &*place
    });
    copies.collect()
}

impl<T: PlainKey> Plain<T> {
    /// Returns a kernel that works on the threads of `pool`.
    pub fn new(pool: ThreadPool) -> Plain<T> {
        Plain {
            pool,
            numbers: Numbers(PhantomData),
        }
    }

    /// Sorts records, without a check whether they are sorted.
    fn sort_all(&self, records: &mut [T]) {
        let pool = self.pool.if_large(records.len() >= LEAST_SHARED);
        if count::is_worth_it::<T>(records.len()) {
            return count::sort(records, pool.as_deref());
        }
        let done = pool.and_then(|pool| self.sort_on(&pool, records));
        if done.is_none() {
            sort_unchecked(records);
        }
    }

    /// Sorts records on the threads of the pool. Returns None, with the records in any order, if scratch space cannot
    /// be allocated.
    fn sort_on(&self, pool: &rayon::ThreadPool, records: &mut [T]) -> Option<()> {
        if !vector::is_available::<T::Bits>() {
            return self.sort_shares_on(pool, records);
        }
        let words: &mut [T::Bits] = cast_slice_mut(records);
        install(pool, || match comparable::<T>() {
            Some(sign) => vector::sort_on_threads(words, sign, &sort_keys::<T>),
            None => {
                let share = words.len().div_ceil(current_threads());
                map_parallel(words.chunks_mut(share), keys_to_words::<T>);
                let sort = |part: &mut [T::Bits]| sort_words(part, Sign::Unsigned);
                vector::sort_on_threads(words, Sign::Unsigned, &sort);
                map_parallel(words.chunks_mut(share), words_to_keys::<T>);
            }
        });
        Some(())
    }

    /// Sorts a share on every thread, and merges the shares.
    fn sort_shares_on(&self, pool: &rayon::ThreadPool, records: &mut [T]) -> Option<()> {
        let mut merged = Buffer::unset(size_of_val(records)).ok()?;
        let share = records.len().div_ceil(pool.current_num_threads());
        install(pool, || map_parallel(records.chunks_mut(share), sort_here));
        let runs: Vec<&[u8]> = records.chunks(share).map(cast_slice).collect();
        merge(&self.numbers, &runs, &mut merged, Some(pool)).ok()?;
        let merged: &[T] = cast_slice(&merged);
        let shares = records.chunks_mut(share).zip(merged.chunks(share));
        install(pool, || {
            map_parallel(shares, |(records, merged)| records.copy_from_slice(merged))
        });
        Some(())
    }
}

/// Sorts records on the calling thread.
fn sort_here<T: PlainKey>(records: &mut [T]) {
    if !sort_if_monotonic(records) {
        sort_unchecked(records);
    }
}

/// Whether runs of so many bytes together are sorted again in place of a merge. The order of equal numbers does not show.
fn are_short<T: PlainKey>(runs: &[&[u8]], bytes: usize) -> bool {
    let merged = runs.iter().filter(|run| !run.is_empty()).count();
    // Two runs take a single merge, which is fast.
    vector::is_available::<T::Bits>() && bytes <= SHORT_RUN_BYTES * merged.saturating_sub(1)
}

/// Sorts records on the calling thread, without a check whether they are sorted.
fn sort_unchecked<T: PlainKey>(records: &mut [T]) {
    sort_keys::<T>(cast_slice_mut(records));
}

/// Sorts keys, given by their bits, on the calling thread.
fn sort_keys<T: PlainKey>(keys: &mut [T::Bits]) {
    match comparable::<T>() {
        Some(Sign::Float) => sort_floats::<T>(keys, vector::depth_limit(keys.len())),
        Some(sign) => sort_words(keys, sign),
        None => sort_as_words::<T>(keys),
    }
}

fn sort_as_words<T: PlainKey>(keys: &mut [T::Bits]) {
    keys_to_words::<T>(keys);
    sort_words(keys, Sign::Unsigned);
    words_to_keys::<T>(keys);
}

/// Sorts floating-point keys. Words need fewer instructions, but the keys become words only in parts that stay in a
/// cache. No part is divided more than `depth_limit` times.
fn sort_floats<T: PlainKey>(keys: &mut [T::Bits], depth_limit: u32) {
    if size_of_val(keys) <= CACHED_BYTES || depth_limit == 0 {
        return sort_as_words::<T>(keys);
    }
    let [low, high] = vector::divide(keys, Sign::Float);
    let (lower, rest) = keys.split_at_mut(low);
    sort_floats::<T>(lower, depth_limit - 1);
    sort_floats::<T>(&mut rest[high - low..], depth_limit - 1);
}

/// Turns keys, given by their bits, into words in place.
fn keys_to_words<T: PlainKey>(keys: &mut [T::Bits]) {
    for key in keys {
        *key = bytemuck::cast::<_, T>(*key).bits();
    }
}

/// Turns words back into keys in place.
fn words_to_keys<T: PlainKey>(words: &mut [T::Bits]) {
    for word in words {
        *word = bytemuck::cast(T::from_bits(*word));
    }
}

/// Checks for ascending and descending records, which are frequent in real data, in one pass, and reverses descending
/// ones. Returns true if the records are sorted now.
fn sort_if_monotonic<T: PlainKey>(records: &mut [T]) -> bool {
    if is_ascending(records) {
        return true;
    }
    // Equal numbers consist of equal bytes, so that they need not keep their order.
    let is_descending = is_descending(records);
    if is_descending {
        records.reverse();
    }
    is_descending
}

fn is_ascending<T: PlainKey>(records: &[T]) -> bool {
    first_violation(records, |one, next| next.before(one)).is_none()
}

fn is_descending<T: PlainKey>(records: &[T]) -> bool {
    first_violation(records, |one, next| one.before(next)).is_none()
}

/// Returns the index of the first record that has the relation `is_violation` to the next one.
fn first_violation<T: PlainKey>(
    records: &[T],
    is_violation: impl Fn(T, T) -> bool,
) -> Option<usize> {
    const STRIDE: usize = 32;
    // A stride is compared without a branch, so that the compiler can vectorise the loop.
    let mut start = 0;
    while start + STRIDE < records.len() {
        let (stride, next) = (&records[start..start + STRIDE], &records[start + 1..]);
        let pairs = stride.iter().zip(next);
        if pairs.fold(false, |any, (one, next)| any | is_violation(*one, *next)) {
            break;
        }
        start += STRIDE;
    }
    let mut pairs = records[start..].windows(2);
    pairs
        .position(|pair| is_violation(pair[0], pair[1]))
        .map(|at| start + at)
}

impl<T: PlainKey> Kernel for Plain<T> {
    fn record_bytes(&self) -> usize {
        size_of::<T>()
    }

    fn key_range(&self) -> Range<usize> {
        0..self.record_bytes()
    }

    fn thread_pool(&self) -> &ThreadPool {
        &self.pool
    }

    fn prefixes(&self, records: &[u8], numbers: &mut [u64]) {
        let keys = records
            .chunks_exact(size_of::<T>())
            .map(pod_read_unaligned::<T>);
        for (number, key) in numbers.iter_mut().zip(keys) {
            *number = key.bits().widened();
        }
    }

    fn copy(&self, records: &[u8], visit: &mut Visitor) -> Result<Buffer> {
        let can = vector::is_available::<T::Bits>() && records.len() >= FAR_BYTES;
        let sign = comparable::<T>().filter(|_| can && !seems_monotonic(self, records));
        let Some(sign) = sign else {
            visit(records);
            return Buffer::copy_of(records);
        };
        let mut copy = Buffer::unset(records.len())?;
        let words: &mut [T::Bits] = cast_slice_mut(&mut copy);
        let low = vector::copy_divided(&[records], words, sign, visit);
        copy.set_borders(vec![low * size_of::<T>()]);
        Ok(copy)
    }

    fn sort_together(&self, runs: &[&[u8]], out: &mut Buffer) -> Result<()> {
        let sign = comparable::<T>().filter(|_| vector::is_available::<T::Bits>());
        division::gather::<T::Bits>(runs, out, sign);
        self.sort(out)
    }

    fn sort_part(&self, records: &mut [u8]) -> Result<()> {
        let records: &mut [T] = cast_slice_mut(records);
        if !sort_if_monotonic(records) {
            self.sort_all(records);
        }
        Ok(())
    }

    fn sort(&self, block: &mut Buffer) -> Result<()> {
        let borders = block.take_borders();
        if borders.is_empty() {
            return self.sort_part(block);
        }
        let mut records: &mut [T] = cast_slice_mut(block);
        let mut start = 0;
        for border in borders {
            let (part, rest) = records.split_at_mut((border - start) / size_of::<T>());
            self.sort_all(part);
            (records, start) = (rest, border);
        }
        self.sort_all(records);
        Ok(())
    }

    fn is_divided_first(&self, block: &[u8]) -> bool {
        let count = block.len() / size_of::<T>();
        let on_threads = self.pool.if_large(count >= LEAST_SHARED).is_some();
        comparable::<T>().is_some()
            && vector::is_available::<T::Bits>()
            && !on_threads
            && !count::is_worth_it::<T>(count)
            && !seems_monotonic(self, block)
    }

    fn divide(&self, block: &mut Buffer, bounds: &[Bound<'_>]) -> Result<Vec<usize>> {
        let sign = comparable::<T>().filter(|_| vector::is_available::<T::Bits>());
        let Some(sign) = sign else {
            return divide_sorted(self, block, bounds);
        };
        block.take_borders();
        let order = |record: &[u8]| pod_read_unaligned::<T>(record).bits().widened();
        Ok(division::divide_block::<T::Bits>(
            block, bounds, order, sign,
        ))
    }

    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        self.numbers.compare(one, other)
    }

    fn lower_bound(&self, run: &[u8], record: &[u8]) -> usize {
        self.numbers.lower_bound(run, record)
    }

    fn upper_bound(&self, run: &[u8], record: &[u8]) -> usize {
        self.numbers.upper_bound(run, record)
    }

    fn select(&self, runs: &[&[u8]], count: usize) -> Vec<usize> {
        select(&self.numbers, runs, count)
    }

    fn merge(&self, runs: &[&[u8]], out: &mut [u8]) -> Result<()> {
        if !are_short::<T>(runs, out.len()) {
            let pool = self.pool.if_large(out.len() >= PIECE_BYTES);
            return merge(&self.numbers, runs, out, pool.as_deref());
        }
        copy_all(runs, out);
        self.sort_all(cast_slice_mut(out));
        Ok(())
    }

    fn average(&self, records: &[&[u8]]) -> Option<Vec<u8>> {
        let keys = records.iter().map(|record| pod_read_unaligned::<T>(record));
        let sum: u128 = keys.map(|key| u128::from(key.bits().widened())).sum();
        let average = sum.checked_div(records.len() as u128)?;
        let average = T::from_bits(T::Bits::truncated(average as u64));
        Some(bytemuck::bytes_of(&average).to_vec())
    }

    fn first_disorder(&self, block: &[u8]) -> Option<usize> {
        first_violation(cast_slice::<u8, T>(block), |one, next| next.before(one))
    }
}

#[cfg(test)]
mod tests;

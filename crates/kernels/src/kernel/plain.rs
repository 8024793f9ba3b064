//! The kernel for records that are plain numbers.
//!
//! Keys that the processor cannot compare as they are, are turned into unsigned words of the same
//! order, in place or on their way into a cache, so that sorting and merging never meet a float's odd
//! comparisons. Words are sorted and merged with vector instructions where the processor has them. It
//! must never use rayon's global pool, which belongs to the program.

use std::cmp::Ordering;
use std::marker::PhantomData;

use bytemuck::{cast_slice, cast_slice_mut, pod_read_unaligned, try_cast_slice};
use rayon::ThreadPool;

use super::cut::{Order, select};
use super::merge::{FAR_BYTES, Merge, merge, merge_tree, merge_tree_by};
use super::pair::Reader;
use super::pool::{Crew, each, on_pool, width};
use super::{Kernel, Seen, count, radix, vector};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::record::{PlainKey, Sign, Word};

/// Blocks of fewer records are not worth sharing out to threads.
const SHARED: usize = 1 << 16;

/// What stays in a second-level cache while it is sorted.
const CACHED_BYTES: usize = 1 << 19;

/// A kernel for one type of number.
#[derive(Debug)]
pub struct Plain<T> {
    crew: Crew,
    numbers: Numbers<T>,
}

/// The order of such numbers.
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
    /// One place where the levels of the tree take turns with the output, if there are several; if the
    /// keys are not words that can be compared already, another one for the words.
    fn scratch_bytes(&self, runs: usize) -> usize {
        match comparable::<T>() {
            Some(_) if runs <= 2 => 0,
            Some(_) => size_of::<T>(),
            None => 2 * size_of::<T>(),
        }
    }

    fn merge_piece(&self, runs: &[&[u8]], out: &mut [u8], scratch: &mut [u8], reader: Reader) {
        let scratch: &mut [T::Bits] = cast_slice_mut(scratch);
        let words: &mut [T::Bits] = cast_slice_mut(out);
        if let Some(sign) = comparable::<T>() {
            let runs: Vec<_> = runs.iter().map(|run| cast_slice(run)).collect();
            merge_words(&runs, words, scratch, sign, reader);
            return;
        }
        let (scratch, staged) = scratch.split_at_mut(words.len());
        let runs = copy_words::<T>(runs, staged);
        merge_words(&runs, words, scratch, Sign::Unsigned, Reader::Soon);
        keys_of::<T>(words);
    }
}

/// How this processor compares the keys' own bits; None if they must be turned into words first.
fn comparable<T: PlainKey>() -> Option<Sign> {
    let any_sign = vector::is_available::<T::Bits>();
    T::NATIVE.filter(|sign| any_sign || *sign == Sign::Unsigned)
}

/// Sorts words on the calling thread, but no floats; signed ones only with vector instructions.
fn sort_words<W: Word>(words: &mut [W], sign: Sign) {
    match vector::is_available::<W>() {
        true => vector::sort(words, sign),
        false => radix::sort(words),
    }
}

/// Merges runs of words; those with a sign and floats only with vector instructions.
fn merge_words<W: Word>(
    runs: &[&[W]],
    out: &mut [W],
    scratch: &mut [W],
    sign: Sign,
    reader: Reader,
) {
    match vector::is_available::<W>() {
        true => merge_tree(runs, out, scratch, reader, |one, other, out, reader| {
            vector::merge_two(one, other, out, sign, reader);
        }),
        false => merge_tree_by(runs, out, scratch, |one, other| one < other),
    }
}

/// Copies runs one after the other, as words in the order of their keys; returns the copies.
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
    /// A kernel that works on the crew's threads.
    pub fn new(crew: Crew) -> Plain<T> {
        Plain {
            crew,
            numbers: Numbers(PhantomData),
        }
    }

    /// Without a look whether that is needed.
    fn sort_all(&self, records: &mut [T]) {
        let pool = match records.len() >= SHARED {
            true => self.crew.pool(),
            false => None,
        };
        if count::is_worth_it::<T>(records.len()) {
            return count::sort(records, pool.as_deref());
        }
        let on_pool = pool.and_then(|pool| self.sort_on(&pool, records));
        if on_pool.is_none() {
            sort_unseen(records);
        }
    }

    /// On the pool's threads; None if there is no room for that.
    fn sort_on(&self, pool: &ThreadPool, records: &mut [T]) -> Option<()> {
        if !vector::is_available::<T::Bits>() {
            return self.sort_shares_on(pool, records);
        }
        let words: &mut [T::Bits] = cast_slice_mut(records);
        on_pool(pool, || match comparable::<T>() {
            Some(sign) => vector::sort_on_threads(words, sign, &sort_keys::<T>),
            None => {
                let share = words.len().div_ceil(width());
                each(words.chunks_mut(share), words_of::<T>);
                let sort = |part: &mut [T::Bits]| sort_words(part, Sign::Unsigned);
                vector::sort_on_threads(words, Sign::Unsigned, &sort);
                each(words.chunks_mut(share), keys_of::<T>);
            }
        });
        Some(())
    }

    /// Every thread sorts a share; then the shares are merged.
    fn sort_shares_on(&self, pool: &ThreadPool, records: &mut [T]) -> Option<()> {
        let mut merged = Buffer::unset(size_of_val(records)).ok()?;
        let share = records.len().div_ceil(pool.current_num_threads());
        on_pool(pool, || each(records.chunks_mut(share), sort_here));
        let runs: Vec<&[u8]> = records.chunks(share).map(cast_slice).collect();
        merge(&self.numbers, &runs, &mut merged, Some(pool)).ok()?;
        let merged: &[T] = cast_slice(&merged);
        let shares = records.chunks_mut(share).zip(merged.chunks(share));
        on_pool(pool, || {
            each(shares, |(records, merged)| records.copy_from_slice(merged))
        });
        Some(())
    }
}

/// Sorts on the calling thread.
fn sort_here<T: PlainKey>(records: &mut [T]) {
    if !is_done_by_looking(records) {
        sort_unseen(records);
    }
}

/// Sorts on the calling thread, without a look whether that is needed.
fn sort_unseen<T: PlainKey>(records: &mut [T]) {
    sort_keys::<T>(cast_slice_mut(records));
}

/// Sorts keys, which are given by their bits, on the calling thread.
fn sort_keys<T: PlainKey>(keys: &mut [T::Bits]) {
    match comparable::<T>() {
        Some(Sign::Float) => sort_floats::<T>(keys, vector::timeout(keys.len())),
        Some(sign) => sort_words(keys, sign),
        None => sort_as_words::<T>(keys),
    }
}

fn sort_as_words<T: PlainKey>(keys: &mut [T::Bits]) {
    words_of::<T>(keys);
    sort_words(keys, Sign::Unsigned);
    keys_of::<T>(keys);
}

/// Sorts floats, which takes fewer instructions if they are words; they become words only where they stay in
/// a cache. No part is divided more often than `timeout` says.
fn sort_floats<T: PlainKey>(keys: &mut [T::Bits], timeout: u32) {
    if size_of_val(keys) <= CACHED_BYTES || timeout == 0 {
        return sort_as_words::<T>(keys);
    }
    let [low, high] = vector::divided(keys, Sign::Float);
    let (lower, rest) = keys.split_at_mut(low);
    sort_floats::<T>(lower, timeout - 1);
    sort_floats::<T>(&mut rest[high - low..], timeout - 1);
}

/// Turns keys, which are given by their bits, into words in their order.
fn words_of<T: PlainKey>(keys: &mut [T::Bits]) {
    for key in keys {
        *key = bytemuck::cast::<_, T>(*key).bits();
    }
}

/// Turns such words back into keys.
fn keys_of<T: PlainKey>(words: &mut [T::Bits]) {
    for word in words {
        *word = bytemuck::cast(T::from_bits(*word));
    }
}

/// One look over the records: real data often come sorted, or in reverse, and no sort is as fast as
/// finding that out.
fn is_done_by_looking<T: PlainKey>(records: &mut [T]) -> bool {
    if is_ascending(records) {
        return true;
    }
    // Equal numbers are equal bytes, so they may well change places.
    let is_descending = is_descending(records);
    if is_descending {
        records.reverse();
    }
    is_descending
}

fn is_ascending<T: PlainKey>(records: &[T]) -> bool {
    first_that(records, |one, next| next.before(one)).is_none()
}

fn is_descending<T: PlainKey>(records: &[T]) -> bool {
    first_that(records, |one, next| one.before(next)).is_none()
}

/// The index of the first record that has the bad relation to the next one.
fn first_that<T: PlainKey>(records: &[T], bad: impl Fn(T, T) -> bool) -> Option<usize> {
    const STRIDE: usize = 32;
    // A whole stride is compared without a decision in between, which can be vectorised.
    let mut start = 0;
    while start + STRIDE < records.len() {
        let (these, next) = (&records[start..start + STRIDE], &records[start + 1..]);
        let pairs = these.iter().zip(next);
        if pairs.fold(false, |any, (one, next)| any | bad(*one, *next)) {
            break;
        }
        start += STRIDE;
    }
    let mut pairs = records[start..].windows(2);
    pairs
        .position(|pair| bad(pair[0], pair[1]))
        .map(|at| start + at)
}

impl<T: PlainKey> Kernel for Plain<T> {
    fn record_bytes(&self) -> usize {
        size_of::<T>()
    }

    fn crew(&self) -> &Crew {
        &self.crew
    }

    fn copy(&self, records: &[u8], seen: &mut Seen) -> Result<Buffer> {
        let can = vector::is_available::<T::Bits>() && records.len() >= FAR_BYTES;
        let is_unsorted = |_: &Sign| {
            let keys = try_cast_slice::<u8, T>(records);
            keys.is_ok_and(|keys| !is_ascending(keys) && !is_descending(keys))
        };
        let sign = comparable::<T>().filter(|_| can).filter(is_unsorted);
        let Some(sign) = sign else {
            seen(records);
            return Buffer::copy_of(records);
        };
        let mut copy = Buffer::unset(records.len())?;
        let words: &mut [T::Bits] = cast_slice_mut(&mut copy);
        let low = vector::divided_copy(records, words, sign, seen);
        copy.set_borders(vec![low * size_of::<T>()]);
        Ok(copy)
    }

    fn sort(&self, block: &mut Buffer) -> Result<()> {
        let borders = block.take_borders();
        let mut records: &mut [T] = cast_slice_mut(block);
        if borders.is_empty() && is_done_by_looking(records) {
            return Ok(());
        }
        let mut start = 0;
        for border in borders {
            let (part, rest) = records.split_at_mut((border - start) / size_of::<T>());
            self.sort_all(part);
            (records, start) = (rest, border);
        }
        self.sort_all(records);
        Ok(())
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
        merge(&self.numbers, runs, out, self.crew.pool().as_deref())
    }

    fn average(&self, records: &[&[u8]]) -> Option<Vec<u8>> {
        let keys = records.iter().map(|record| pod_read_unaligned::<T>(record));
        let sum: u128 = keys.map(|key| u128::from(key.bits().widened())).sum();
        let average = sum.checked_div(records.len() as u128)?;
        let average = T::from_bits(T::Bits::truncated(average as u64));
        Some(bytemuck::bytes_of(&average).to_vec())
    }

    fn first_disorder(&self, block: &[u8]) -> Option<usize> {
        first_that(cast_slice::<u8, T>(block), |one, next| next.before(one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::kernel::tests::copy_seen;
    use proptest::prelude::*;

    fn alone() -> Crew {
        Crew::from(1)
    }

    /// Sorts and merges as the engine would, and compares with the standard library bit for bit.
    fn check<T: PlainKey>(runs: &[Vec<T>], threads: usize) {
        let kernel = Plain::<T>::new(Crew::from(threads));
        let sorted: Vec<Buffer> = runs
            .iter()
            .map(|run| {
                let mut block = Buffer::copy_of(cast_slice(run)).unwrap();
                kernel.sort(&mut block).unwrap();
                let mut expected = run.clone();
                expected.sort_by(|one, other| one.order(*other));
                assert_eq!(&*block, cast_slice::<T, u8>(&expected));
                block
            })
            .collect();
        let mut expected: Vec<T> = runs.concat();
        expected.sort_by(|one, other| one.order(*other));
        let mut out = Buffer::zeroed(size_of_val(&expected[..])).unwrap();
        let slices: Vec<&[u8]> = sorted.iter().map(|run| &**run).collect();
        kernel.merge(&slices, &mut out).unwrap();
        assert_eq!(&*out, cast_slice::<T, u8>(&expected));
        assert_eq!(kernel.first_disorder(&out), None);
        for record in expected.iter().step_by(expected.len() / 7 + 1) {
            let bytes = bytemuck::bytes_of(record);
            let below = expected
                .iter()
                .filter(|other| other.before(*record))
                .count();
            let not_above = expected
                .iter()
                .filter(|other| !record.before(**other))
                .count();
            assert_eq!(kernel.lower_bound(&out, bytes), below);
            assert_eq!(kernel.upper_bound(&out, bytes), not_above);
        }
    }

    fn all_types(runs: &[Vec<u64>], threads: usize) {
        fn cast<T>(runs: &[Vec<u64>], map: impl Fn(u64) -> T) -> Vec<Vec<T>> {
            runs.iter()
                .map(|run| run.iter().map(|bits| map(*bits)).collect())
                .collect()
        }
        check::<u64>(runs, threads);
        check::<i64>(&cast(runs, |bits| bits as i64), threads);
        check::<u32>(&cast(runs, |bits| bits as u32), threads);
        check::<i32>(&cast(runs, |bits| bits as i32), threads);
        check::<f64>(&cast(runs, f64::from_bits), threads);
        check::<f32>(&cast(runs, |bits| f32::from_bits(bits as u32)), threads);
    }

    fn random(length: usize, mask: u64, seed: u64) -> Vec<u64> {
        let mut state = seed | 1;
        let next = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            (state ^ state >> 29) & mask
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn long_runs_of_all_kinds() {
        for threads in [1, 2] {
            for mask in [u64::MAX, 0xff, 1, 0] {
                let runs: Vec<Vec<u64>> = (0..5)
                    .map(|seed| random(seed * 19_000, mask, seed as u64))
                    .collect();
                all_types(&runs, threads);
            }
            let ascending: Vec<u64> = (0..30_000).collect();
            let descending: Vec<u64> = (0..30_000).rev().collect();
            all_types(&[ascending, descending], threads);
        }
    }

    #[test]
    fn many_runs_and_runs_of_very_different_lengths() {
        let many: Vec<Vec<u64>> = (0..300).map(|seed| random(500, u64::MAX, seed)).collect();
        let mut uneven: Vec<Vec<u64>> = (0..9).map(|seed| random(3, u64::MAX, seed)).collect();
        uneven.insert(4, random(100_000, u64::MAX, 9));
        let apart: Vec<Vec<u64>> = (0..40_u64)
            .map(|run| (0..5_000).map(|index| (39 - run) * 5_000 + index).collect())
            .collect();
        for threads in [1, 3] {
            check::<u64>(&many, threads);
            check::<u64>(&uneven, threads);
            check::<u64>(&apart, threads);
        }
    }

    /// Whatever a copy has done on the way, and wherever from, sorting it comes to the same.
    #[test]
    fn a_copy_of_any_size_is_sorted() {
        fn check<T: PlainKey>(keys: &[T], threads: usize) -> usize {
            let kernel = Plain::<T>::new(Crew::from(threads));
            let mut expected = keys.to_vec();
            expected.sort_by(|one, other| one.order(*other));
            let bytes: &[u8] = cast_slice(keys);
            let shifted = [&[7], bytes].concat();
            let copies = [bytes, &shifted[1..]].map(|bytes| copy_seen(&kernel, bytes));
            let borders = copies[0].borders().len();
            for mut copy in copies {
                kernel.sort(&mut copy).unwrap();
                assert!(copy.borders().is_empty());
                assert!(*copy == *cast_slice::<T, u8>(&expected));
            }
            borders
        }
        let long = 2 * FAR_BYTES / size_of::<u64>();
        for (length, mask) in [
            (0, 1),
            (100, u64::MAX),
            (long, u64::MAX),
            (long, 3),
            (long, 0),
        ] {
            let numbers = random(length, mask, 5);
            let signed: Vec<i32> = numbers.iter().map(|bits| *bits as i32).collect();
            let floats: Vec<f64> = numbers.iter().map(|bits| f64::from_bits(*bits)).collect();
            for threads in [1, 2] {
                let borders = [
                    check(&numbers, threads),
                    check(&signed, threads),
                    check(&floats, threads),
                ];
                let large = length == long && mask > 0;
                let [narrow, wide] = [vector::is_available::<u32>(), vector::is_available::<u64>()];
                let divides = [wide, narrow, wide].map(|can| usize::from(can && large));
                assert_eq!(borders, divides);
            }
        }
        // What is in order already stays so, and is found to be.
        let up: Vec<u64> = (0..long as u64).collect();
        let down: Vec<u64> = (0..long as u64).rev().collect();
        assert_eq!([check(&up, 1), check(&down, 1)], [0, 0]);
    }

    #[test]
    fn the_first_disorder_is_found_wherever_it_is() {
        let kernel = Plain::<i32>::new(alone());
        for length in [0, 1, 2, 31, 32, 33, 34, 100] {
            let sorted: Vec<i32> = (0..length).map(|index| index - 50).collect();
            assert_eq!(kernel.first_disorder(cast_slice(&sorted)), None);
            for at in 1..length as usize {
                let mut block = sorted.clone();
                block[at] = i32::MIN;
                assert_eq!(kernel.first_disorder(cast_slice(&block)), Some(at - 1));
            }
        }
        let floats = [-0.0, 0.0, 0.0, -0.0];
        let kernel = Plain::<f64>::new(alone());
        assert_eq!(kernel.first_disorder(cast_slice(&floats)), Some(2));
    }

    #[test]
    fn one_record_need_not_be_aligned() {
        let kernel = Plain::<u64>::new(alone());
        let run: [u64; 4] = [1, 5, 5, 9];
        let mut bytes = [0; 9];
        bytes[1..].copy_from_slice(&5_u64.to_ne_bytes());
        assert_eq!(kernel.lower_bound(cast_slice(&run), &bytes[1..]), 1);
        assert_eq!(kernel.upper_bound(cast_slice(&run), &bytes[1..]), 3);
        assert_eq!(kernel.compare(&bytes[1..], &bytes[1..]), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn runs_of_any_length(
            runs in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..300), 0..9),
            mask in prop::sample::select(vec![u64::MAX, 7, 0]),
        ) {
            let runs: Vec<Vec<u64>> = runs
                .into_iter()
                .map(|run| run.into_iter().map(|bits| bits & mask).collect())
                .collect();
            all_types(&runs, 1);
        }
    }
}

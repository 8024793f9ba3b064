//! The kernel for records that are plain numbers.

use std::cmp::Ordering;
use std::marker::PhantomData;

use bytemuck::{TransparentWrapper, cast_slice, cast_slice_mut, pod_read_unaligned};
use rayon::ThreadPool;
use rayon::prelude::*;
use rdst::{RadixKey, RadixSort};

use super::{Kernel, merge};
use crate::buffer::Buffer;
use crate::error::Result;
use crate::record::PlainKey;

/// Below this many records a comparison sort wins over a radix sort.
const SMALL: usize = 1 << 11;

/// A kernel for one type of number.
#[derive(Debug)]
pub struct Plain<T> {
    pool: Option<ThreadPool>,
    key: PhantomData<T>,
}

/// Gives a number the radix digits of its place in the order.
#[derive(Clone, Copy, TransparentWrapper)]
#[repr(transparent)]
struct Digits<T>(T);

impl<T: PlainKey> RadixKey for Digits<T> {
    const LEVELS: usize = T::Bits::LEVELS;

    #[inline(always)]
    fn get_level(&self, level: usize) -> u8 {
        self.0.bits().get_level(level)
    }
}

impl<T: PlainKey> Plain<T> {
    /// A kernel that uses the pool's threads, or the caller's alone.
    pub fn new(pool: Option<ThreadPool>) -> Plain<T> {
        Plain {
            pool,
            key: PhantomData,
        }
    }

    /// Each thread sorts a part; the parts are merged. Without room for that, or threads: one part.
    fn radix_sort(&self, records: &mut [T]) {
        let threads = self
            .pool
            .as_ref()
            .map_or(1, ThreadPool::current_num_threads);
        let scratch = match threads {
            1 => None,
            _ => Buffer::copy_of(cast_slice(records)).ok(),
        };
        let (Some(pool), Some(mut scratch)) = (&self.pool, scratch) else {
            return radix_sort(records);
        };
        let parts: &mut [T] = cast_slice_mut(&mut scratch);
        let length = parts.len().div_ceil(threads);
        pool.install(|| parts.par_chunks_mut(length).for_each(radix_sort));
        let runs: Vec<&[T]> = parts.chunks(length).collect();
        if merge::merge(&runs, records, Some(pool)).is_err() {
            radix_sort(records);
        }
    }
}

fn radix_sort<T: PlainKey>(records: &mut [T]) {
    let digits: &mut [Digits<T>] = Digits::wrap_slice_mut(records);
    digits.radix_sort_unstable();
}

/// One look over the records: real data often come sorted, or in reverse, and no sort is as fast as
/// finding that out.
fn is_done_by_looking<T: PlainKey>(records: &mut [T]) -> bool {
    if records.is_sorted_by(|one, next| !next.before(*one)) {
        return true;
    }
    if records.is_sorted_by(|one, next| next.before(*one)) {
        records.reverse();
        return true;
    }
    false
}

impl<T: PlainKey> Kernel for Plain<T> {
    fn record_bytes(&self) -> usize {
        size_of::<T>()
    }

    fn sort(&self, block: &mut [u8]) {
        let records: &mut [T] = cast_slice_mut(block);
        if is_done_by_looking(records) {
            return;
        }
        if records.len() < SMALL {
            records.sort_unstable_by_key(|record| record.bits());
        } else {
            self.radix_sort(records);
        }
    }

    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        pod_read_unaligned::<T>(one).order(pod_read_unaligned(other))
    }

    fn lower_bound(&self, run: &[u8], record: &[u8]) -> usize {
        let record: T = pod_read_unaligned(record);
        cast_slice::<u8, T>(run).partition_point(|other| other.before(record))
    }

    fn upper_bound(&self, run: &[u8], record: &[u8]) -> usize {
        let record: T = pod_read_unaligned(record);
        cast_slice::<u8, T>(run).partition_point(|other| !record.before(*other))
    }

    fn merge(&self, runs: &[&[u8]], out: &mut [u8]) -> Result<()> {
        let runs: Vec<&[T]> = runs.iter().map(|run| cast_slice(run)).collect();
        merge::merge(&runs, cast_slice_mut(out), self.pool.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sorts and merges as the engine would, and compares with the standard library bit for bit.
    fn check<T: PlainKey>(runs: &[Vec<T>], threads: usize) {
        let pool = (threads > 1).then(|| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap()
        });
        let kernel = Plain::<T>::new(pool);
        let sorted: Vec<Buffer> = runs
            .iter()
            .map(|run| {
                let mut block = Buffer::copy_of(cast_slice(run)).unwrap();
                kernel.sort(&mut block);
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
                    .map(|seed| random(seed * 9_000, mask, seed as u64))
                    .collect();
                all_types(&runs, threads);
            }
            let ascending: Vec<u64> = (0..30_000).collect();
            let descending: Vec<u64> = (0..30_000).rev().collect();
            all_types(&[ascending, descending], threads);
        }
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

//! Sorts, searches and merges the records of one rank. The functions are pure.
//!
//! A kernel is created for one layout of records and works on blocks of bytes. A block begins with a record, in an
//! aligned buffer, and consists of whole records. So the engine never looks into a record, and only this module takes
//! time for each of them.

mod count;
mod cut;
mod keyed;
mod merge;
mod msd_partition;
mod pair;
mod plain;
mod pool;
mod prefix;
mod radix;
mod records;
#[cfg(test)]
mod tests;
mod vector;

pub use vector::factors;

use std::cmp::Ordering;
use std::ops::Range;

pub use pool::{TASKS_PER_THREAD, ThreadPool, Threads, without_signals};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::record::{Descending, KeyKind, Layout, PlainKey};
use crate::with_number;

/// A function that is called with consecutive pieces of a block, each of whole records.
pub type Visitor<'a> = dyn FnMut(&[u8]) + Send + 'a;

/// A place in the order of keys at which blocks are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound<'a> {
    /// Records with smaller keys than this record are before the bound, and records with greater keys are not. It need not
    /// be aligned.
    pub record: &'a [u8],
    /// The part of a block's records with this key that is before the bound, in units of 2^-64: none of them with 0, and
    /// all with the greatest number.
    pub share: u64,
    /// Added to that number of records before it is rounded down, in units of 2^-64. If it differs between blocks, the sum
    /// over blocks is nearer to the share.
    pub rounding: u64,
}

impl Bound<'_> {
    /// Returns how many records are before the bound in a run in which those with its key have these places.
    pub fn place_among(&self, equal: Range<usize>) -> usize {
        let share = u128::from(self.share) + u128::from(self.share == u64::MAX);
        let before = equal.len() as u128 * share + u128::from(self.rounding);
        equal.start + (before >> u64::BITS) as usize
    }

    /// Returns how many records of a run are before the bound.
    pub fn place_in(&self, run: &[u8], kernel: &dyn Kernel) -> usize {
        self.place_among(kernel.lower_bound(run, self.record)..kernel.upper_bound(run, self.record))
    }
}

/// Sorts, searches and merges records of one layout.
///
/// A *run* is a sorted block. All counts and indices are in records.
pub trait Kernel: Send + Sync + std::fmt::Debug {
    /// Returns the size of a record in bytes.
    fn record_bytes(&self) -> usize;

    /// Returns the bytes of a record that comparisons read; all bytes if a comparator of the program compares records.
    fn key_range(&self) -> Range<usize>;

    /// Returns the threads that the kernel works on.
    fn thread_pool(&self) -> &ThreadPool;

    /// Copies records, which need not be aligned, in order to sort the copy. If the first pass of the sort costs
    /// nothing during the copy, the copy is divided by keys and has [`Buffer::borders`]; equal keys keep their order.
    /// `visit` is called with the records in their original order, in pieces that are in a cache if possible.
    ///
    /// # Errors
    /// `Status::Memory` if the copy cannot be allocated.
    fn copy(&self, records: &[u8], visit: &mut Visitor) -> Result<Buffer>;

    /// Sorts a block. Equal keys keep their order, so that the result does not depend on the number of threads.
    ///
    /// # Errors
    /// `Status::Memory` if scratch space cannot be allocated, and `Status::Callback` if the comparator is not a total
    /// order. The contents of the block are undefined then.
    fn sort(&self, block: &mut Buffer) -> Result<()>;

    /// Sorts some of the records of a block, as [`Kernel::sort`] sorts all of them.
    ///
    /// # Errors
    /// As for [`Kernel::sort`].
    fn sort_part(&self, records: &mut [u8]) -> Result<()>;

    /// Returns whether it takes less time to divide this block, if it is large, and to sort its parts together with those of
    /// many other blocks than to sort it and to merge.
    fn is_divided_first(&self, _block: &[u8]) -> bool {
        false
    }

    /// Divides a block at ascending bounds: changes the order of the records so that those before a bound come before all
    /// others. Returns for each bound the number of records before it.
    ///
    /// # Errors
    /// As for [`Kernel::sort`].
    fn divide(&self, block: &mut Buffer, bounds: &[Bound<'_>]) -> Result<Vec<usize>>;

    /// Copies the records of runs, which are not sorted, to `out`, which is as long as all of them, and sorts them.
    ///
    /// # Errors
    /// As for [`Kernel::sort`].
    fn sort_together(&self, runs: &[&[u8]], out: &mut Buffer) -> Result<()> {
        copy_all(runs, out);
        self.sort(out)
    }

    /// Compares two records, which need not be aligned.
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering;

    /// Writes a number for each record to `numbers`, which has as many elements. A record with a smaller number is less;
    /// records with equal numbers may have different keys. The records need not be aligned.
    fn prefixes(&self, records: &[u8], numbers: &mut [u64]);

    /// Returns how many records of a run are less than `record`, which need not be aligned.
    fn lower_bound(&self, run: &[u8], record: &[u8]) -> usize;

    /// Returns how many records of a run are at most `record`, which need not be aligned.
    fn upper_bound(&self, run: &[u8], record: &[u8]) -> usize;

    /// Returns how many records of each run are among the first `count` of the merged runs; all records if there are
    /// not more than `count`.
    fn select(&self, runs: &[&[u8]], count: usize) -> Vec<usize>;

    /// Merges runs into `out`, which is as long as all of them together. Equal keys stay in the order of the runs.
    ///
    /// # Errors
    /// As for [`Kernel::sort`].
    fn merge(&self, runs: &[&[u8]], out: &mut [u8]) -> Result<()>;

    /// Returns a record with the average of the keys of `records` as its key. None if keys are not numbers, or there is
    /// no record.
    fn average(&self, records: &[&[u8]]) -> Option<Vec<u8>>;

    /// Returns the index of the first record that is greater than the next one; None for a sorted block.
    fn first_disorder(&self, block: &[u8]) -> Option<usize>;

    /// Returns the error of code that relies on the order and has panicked with this error: `Status::Callback` if a
    /// comparator makes the order, because only one that is not a total order can cause a panic.
    fn error_of_panic(&self, error: Error) -> Error {
        error
    }
}

/// Returns whether 64 pairs of records of a block ascend, or all descend. The records are spread evenly over the block and
/// need not be aligned. Not inlined into the code of each type.
#[inline(never)]
fn seems_monotonic(kernel: &dyn Kernel, block: &[u8]) -> bool {
    const COMPARED: usize = 64;
    let size = kernel.record_bytes();
    let count = block.len() / size;
    let record = |index: usize| {
        let start = index * count / (COMPARED + 1) * size;
        &block[start..start + size]
    };
    let orders = || (0..COMPARED).map(|index| kernel.compare(record(index), record(index + 1)));
    count > 0 && (orders().all(Ordering::is_le) || orders().all(Ordering::is_ge))
}

/// Copies runs to `out` one after the other. Not inlined into the code of each type.
#[inline(never)]
fn copy_all(runs: &[&[u8]], mut out: &mut [u8]) {
    for run in runs {
        let (place, behind) = out.split_at_mut(run.len());
        place.copy_from_slice(run);
        out = behind;
    }
}

/// Divides a block at bounds by sorting it. Not inlined into the code of each type.
#[inline(never)]
fn divide_sorted(
    kernel: &dyn Kernel,
    block: &mut Buffer,
    bounds: &[Bound<'_>],
) -> Result<Vec<usize>> {
    kernel.sort(block)?;
    let places = bounds.iter().map(|bound| bound.place_in(block, kernel));
    Ok(places.collect())
}

/// Returns a kernel for `layout` that works on the threads of `pool`. A number of threads is a pool, too: 1 is the
/// caller's thread alone.
pub fn kernel_for(layout: &Layout, pool: impl Into<ThreadPool>) -> Box<dyn Kernel> {
    kernel_on(layout, pool.into())
}

/// As [`kernel_for`]. No parameter is generic, because every crate that calls a generic function compiles it and all
/// kernels once more.
fn kernel_on(layout: &Layout, pool: ThreadPool) -> Box<dyn Kernel> {
    if !layout.is_plain_number() {
        return Box::new(records::Records::new(layout, pool));
    }
    let descending = layout.is_descending();
    with_number!(layout.kind(), T => plain::<T>(pool, descending), _ => Box::new(records::Records::new(layout, pool)))
}

/// Returns a kernel on the caller's thread for records of `record_bytes` bytes that begin with their key.
///
/// # Panics
/// If no record has this size and key.
pub fn kernel_of(record_bytes: usize, key: KeyKind) -> Box<dyn Kernel> {
    let fields = crate::record::Fields {
        record_bytes,
        key: key as i32,
        ..Default::default()
    };
    kernel_for(&Layout::new(fields).expect("a key fits its record"), 1)
}

fn plain<T: PlainKey + 'static>(pool: ThreadPool, descending: bool) -> Box<dyn Kernel> {
    if descending {
        Box::new(plain::Plain::<Descending<T>>::new(pool))
    } else {
        Box::new(plain::Plain::<T>::new(pool))
    }
}

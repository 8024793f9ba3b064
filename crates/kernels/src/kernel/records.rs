//! The kernel for records that are more than a number.
//!
//! Merges move small records as they are. For larger records, and where prefixes do not decide, they move small
//! entries, each with the prefix and the position of a record, and then move every record once. This module must never
//! use rayon's global pool, which belongs to the program.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::cut::{Order, select};
use super::keyed::Keyed;
use super::merge::{Merge, PIECE_BYTES, merge, merge_tree_by};
use super::pair::Destination;
use super::pool::ThreadPool;
use super::prefix::{Composed, PREFIX_BYTES, Prefix, Prefixes, Reader};
use super::{Bound, Kernel, Visitor, divide_sorted, kernel_for, msd_partition};
use crate::buffer::Buffer;
use crate::error::{Error, Result, Status, caught_as};
use crate::record::{Fields, Layout};
use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};

/// A kernel for records of one layout.
#[derive(Debug)]
pub struct Records {
    pool: ThreadPool,
    order: Keyed,
    layout: Layout,
    key_range: Range<usize>,
}

impl Records {
    /// Returns a kernel that works on the threads of `pool`.
    pub fn new(layout: &Layout, pool: ThreadPool) -> Records {
        Records {
            pool,
            order: Keyed::new(layout),
            layout: layout.clone(),
            key_range: layout.key_range().unwrap_or(0..layout.record_bytes()),
        }
    }

    /// The threads for a partition of this many bytes, if it is large enough for several.
    fn pool_for(&self, bytes: usize) -> Option<Arc<rayon::ThreadPool>> {
        let least = msd_partition::LEAST_SHARED;
        self.pool.if_large(bytes / self.record_bytes() >= least)
    }

    /// Runs `work` and catches a panic: the sort of the standard library panics with a comparator that is not a total
    /// order.
    fn catching_panics(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        caught_as(work, |error| self.error_of_panic(error))
    }

    /// Returns the index of the first record that has the relation `is_violation` to the next one.
    fn first_violation(
        &self,
        block: &[u8],
        is_violation: impl Fn(Ordering) -> bool,
    ) -> Option<usize> {
        match self.order.prefixes() {
            Prefixes::Single(reader) => self.first_violation_by(*reader, block, is_violation),
            Prefixes::Composed(keys) => {
                self.first_violation_by(Composed(keys), block, is_violation)
            }
        }
    }

    fn first_violation_by(
        &self,
        prefix: impl Prefix,
        block: &[u8],
        is_violation: impl Fn(Ordering) -> bool,
    ) -> Option<usize> {
        let mut records = block.chunks_exact(self.record_bytes());
        let mut last = records.next()?;
        let mut last_prefix = prefix.prefix(last);
        records.position(|record| {
            let prefix = prefix.prefix(record);
            let order = last_prefix
                .cmp(&prefix)
                .then_with(|| self.order.compare_rest(last, record));
            (last, last_prefix) = (record, prefix);
            is_violation(order)
        })
    }

    fn is_ascending(&self, block: &[u8]) -> bool {
        self.first_violation(block, Ordering::is_gt).is_none()
    }

    /// Returns whether the records are strictly descending. Only then can they be reversed: equal keys keep their
    /// order.
    fn is_descending(&self, block: &[u8]) -> bool {
        self.first_violation(block, Ordering::is_le).is_none()
    }

    /// Checks for sorted and reversed blocks in one pass, as the kernel for numbers does. Returns true if the block is
    /// sorted now.
    fn sort_if_monotonic(&self, block: &mut [u8]) -> bool {
        if self.is_ascending(block) {
            return true;
        }
        let is_descending = self.is_descending(block);
        if is_descending {
            reverse(block, self.record_bytes());
        }
        is_descending
    }
}

/// Reverses the order of records of `size` bytes.
pub fn reverse(block: &mut [u8], size: usize) {
    let records = block.len() / size;
    let (first, second) = block.split_at_mut(records / 2 * size);
    let pairs = first
        .chunks_exact_mut(size)
        .zip(second.rchunks_exact_mut(size));
    pairs.for_each(|(one, other)| one.swap_with_slice(other));
}

impl Kernel for Records {
    fn record_bytes(&self) -> usize {
        self.order.record_bytes()
    }

    fn key_range(&self) -> Range<usize> {
        self.key_range.clone()
    }

    fn thread_pool(&self) -> &ThreadPool {
        &self.pool
    }

    /// Divides the records during the copy if this is the first pass of the sort.
    fn copy(&self, records: &[u8], visit: &mut Visitor) -> Result<Buffer> {
        // A comparator may fail, and is called by the sort only.
        let is_keyed = self.layout.comparator().is_none();
        if !is_keyed || self.is_ascending(records) || self.is_descending(records) {
            visit(records);
            return Buffer::copy_of(records);
        }
        let mut copy = Buffer::unset(records.len())?;
        let pool = self.pool_for(records.len());
        let borders = msd_partition::copy(&self.order, pool.as_deref(), records, &mut copy, visit);
        copy.set_borders(borders);
        Ok(copy)
    }

    fn sort_part(&self, records: &mut [u8]) -> Result<()> {
        self.catching_panics(|| {
            if self.sort_if_monotonic(records) {
                return Ok(());
            }
            let pool = self.pool_for(records.len());
            msd_partition::sort(&self.order, pool.as_deref(), records, &[])
        })
    }

    /// Allocates as much scratch space as the block takes; on one thread and after a copy that was divided, as much as
    /// its largest part takes.
    fn sort(&self, block: &mut Buffer) -> Result<()> {
        let borders = block.take_borders();
        if borders.is_empty() {
            return self.sort_part(block);
        }
        let pool = self.pool_for(block.len());
        self.catching_panics(|| msd_partition::sort(&self.order, pool.as_deref(), block, &borders))
    }

    fn prefixes(&self, records: &[u8], numbers: &mut [u64]) {
        let records = records.chunks_exact(self.record_bytes());
        for (number, record) in numbers.iter_mut().zip(records) {
            *number = self.order.prefix(record);
        }
    }

    fn divide(&self, block: &mut Buffer, bounds: &[Bound<'_>]) -> Result<Vec<usize>> {
        divide_sorted(self, block, bounds)
    }

    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        self.order.compare(one, other)
    }

    fn lower_bound(&self, run: &[u8], record: &[u8]) -> usize {
        self.order.lower_bound(run, record)
    }

    fn upper_bound(&self, run: &[u8], record: &[u8]) -> usize {
        self.order.upper_bound(run, record)
    }

    fn select(&self, runs: &[&[u8]], count: usize) -> Vec<usize> {
        select(&self.order, runs, count)
    }

    fn merge(&self, runs: &[&[u8]], out: &mut [u8]) -> Result<()> {
        let pool = self.pool.if_large(out.len() >= PIECE_BYTES);
        self.catching_panics(|| merge(&self.order, runs, out, pool.as_deref()))
    }

    fn average(&self, records: &[&[u8]]) -> Option<Vec<u8>> {
        let bytes = self.layout.kind().natural_bytes()?;
        let number = Layout::new(Fields {
            record_bytes: bytes,
            key: self.layout.kind() as i32,
            ..Fields::default()
        });
        let key = self.layout.key_offset()..self.layout.key_offset() + bytes;
        let keys: Vec<&[u8]> = records.iter().map(|record| &record[key.clone()]).collect();
        let average = kernel_for(&number.ok()?, 1).average(&keys)?;
        let mut record = vec![0; self.record_bytes()];
        record[key].copy_from_slice(&average);
        Some(record)
    }

    fn first_disorder(&self, block: &[u8]) -> Option<usize> {
        self.first_violation(block, Ordering::is_gt)
    }

    fn error_of_panic(&self, error: Error) -> Error {
        match self.layout.comparator() {
            Some(_) => Error::new(
                Status::Callback,
                format!("record.compare is not a total order ({})", error.text),
            ),
            None => error,
        }
    }
}

/// Stands for a record while runs are merged.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Entry {
    prefix: u64,
    /// The number of the run in the high bits, the index in the run in the low bits.
    position: u64,
}

/// The number of bits for the index in the run, which leaves 24 bits for the number of the run.
const INDEX_BITS: u32 = 40;

/// Merges runs of records by their prefixes, which the reader makes, into an output, through a scratch space.
type MergeWhole = fn(Reader, &[&[u8]], &mut [u8], &mut [u8]);

impl Keyed {
    /// Returns a function that merges records as they are, and the reader of their prefixes. It exists for common sizes
    /// and offsets of a single key, if prefixes decide.
    fn merge_whole(&self) -> Option<(MergeWhole, Reader)> {
        let Prefixes::Single(reader) = *self.prefixes() else {
            return None;
        };
        let merge: MergeWhole = match (self.record_bytes(), reader.offset()) {
            _ if !self.is_decided_by_prefix() => return None,
            (8, _) => merge_whole::<8, 0>,
            (12, 0) => merge_whole::<12, 0>,
            (12, 4) => merge_whole::<12, 4>,
            (16, 0) => merge_whole::<16, 0>,
            (16, 8) => merge_whole::<16, 8>,
            _ => return None,
        };
        Some((merge, reader))
    }
}

impl Merge for Keyed {
    /// Whole records need a second buffer if the tree has several levels. Entries need three: for the input, the output
    /// and the levels of the tree.
    fn scratch_bytes(&self, runs: usize) -> usize {
        match self.merge_whole() {
            Some(_) if runs <= 2 => 0,
            Some(_) => self.record_bytes(),
            None => 3 * size_of::<Entry>(),
        }
    }

    fn merge_piece(&self, runs: &[&[u8]], out: &mut [u8], scratch: &mut [u8], _: Destination) {
        match self.merge_whole() {
            Some((merge, reader)) => merge(reader, runs, out, scratch),
            None => merge_entries(self, runs, out, scratch),
        }
    }
}

/// Merges records of `SIZE` bytes with prefixes that are made of the eight bytes at `OFFSET`.
fn merge_whole<const SIZE: usize, const OFFSET: usize>(
    reader: Reader,
    runs: &[&[u8]],
    out: &mut [u8],
    scratch: &mut [u8],
) where
    [u8; SIZE]: Pod,
{
    let runs: Vec<&[[u8; SIZE]]> = runs.iter().map(|run| cast_slice(run)).collect();
    let (scratch, out) = (cast_slice_mut(scratch), cast_slice_mut(out));
    let bytes = |record: [u8; SIZE]| {
        *record[OFFSET..]
            .first_chunk::<PREFIX_BYTES>()
            .expect("a prefix")
    };
    // The closures contain all that a comparison needs, so that the merges are compiled for each of them.
    if let Some(flip) = reader.only_flip() {
        let key = move |record| u64::from_ne_bytes(bytes(record)) ^ flip;
        merge_tree_by(&runs, out, scratch, move |one, other| key(one) < key(other));
    } else {
        let key = move |record| reader.of_bytes(bytes(record));
        merge_tree_by(&runs, out, scratch, move |one, other| key(one) < key(other));
    }
}

/// Merges records by entries that stand for them.
fn merge_entries(keyed: &Keyed, runs: &[&[u8]], out: &mut [u8], scratch: &mut [u8]) {
    let size = keyed.record_bytes();
    let scratch: &mut [Entry] = cast_slice_mut(scratch);
    let (staged, rest) = scratch.split_at_mut(out.len() / size);
    let (merged, scratch) = rest.split_at_mut(out.len() / size);
    let entries = match keyed.prefixes() {
        Prefixes::Single(reader) => stage(*reader, size, runs, staged),
        Prefixes::Composed(keys) => stage(Composed(keys), size, runs, staged),
    };
    let record = |entry: Entry| {
        let run = runs[(entry.position >> INDEX_BITS) as usize];
        let index = entry.position & ((1 << INDEX_BITS) - 1);
        keyed.record(run, index as usize)
    };
    if keyed.is_decided_by_prefix() {
        let before = |one: Entry, other: Entry| one.prefix < other.prefix;
        merge_tree_by(&entries, merged, scratch, before);
    } else {
        let before = |one: Entry, other: Entry| {
            let order = one.prefix.cmp(&other.prefix);
            let order = order.then_with(|| keyed.compare_rest(record(one), record(other)));
            order.is_lt()
        };
        merge_tree_by(&entries, merged, scratch, before);
    }
    for (to, entry) in out.chunks_exact_mut(size).zip(merged) {
        to.copy_from_slice(record(*entry));
    }
}

/// Writes an entry for every record to `to`, and returns the entries of each run.
fn stage<'a>(
    prefix: impl Prefix,
    size: usize,
    runs: &[&[u8]],
    mut to: &'a mut [Entry],
) -> Vec<&'a [Entry]> {
    let entries = runs.iter().zip(0_u64..).map(|(run, number)| {
        let (entries, rest) = std::mem::take(&mut to).split_at_mut(run.len() / size);
        let records = run.chunks_exact(size).zip(number << INDEX_BITS..);
        for (entry, (record, position)) in entries.iter_mut().zip(records) {
            let prefix = prefix.prefix(record);
            *entry = Entry { prefix, position };
        }
        to = rest;
        &*entries
    });
    entries.collect()
}

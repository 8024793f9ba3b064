//! The kernel for records that are more than a number.
//!
//! Merges move small records as they are. Of larger ones, and where prefixes do not decide, they move small
//! entries, each with a record's prefix and place, and then every record once. It must never use rayon's
//! global pool, which belongs to the program.

use std::cmp::Ordering;

use super::cut::{Order, select};
use super::keyed::{Keyed, PREFIX_BYTES, Prefix};
use super::merge::{Merge, merge, merge_tree_by};
use super::pair::Reader;
use super::pool::Crew;
use super::{Kernel, Seen, kernel_for, msd_partition};
use crate::buffer::Buffer;
use crate::error::{Error, Result, Status, caught};
use crate::record::{Fields, Layout};
use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};

/// A kernel for records of one layout.
#[derive(Debug)]
pub struct Records {
    crew: Crew,
    order: Keyed,
    layout: Layout,
}

impl Records {
    /// A kernel that works on the crew's threads.
    pub fn new(layout: &Layout, crew: Crew) -> Records {
        Records {
            crew,
            order: Keyed::new(layout),
            layout: layout.clone(),
        }
    }

    /// A comparator that contradicts itself makes the standard library's sort panic: that is the
    /// caller's fault, and not ours.
    fn guarded(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        caught(work).map_err(|error| match self.layout.comparator() {
            Some(_) if error.status == Status::Internal => Error::new(
                Status::Callback,
                format!("record.compare is no total order ({})", error.text),
            ),
            _ => error,
        })
    }

    /// The index of the first record that has the bad relation to the next one.
    fn first_that(&self, block: &[u8], bad: impl Fn(Ordering) -> bool) -> Option<usize> {
        let mut records = block.chunks_exact(self.record_bytes());
        let mut last = records.next()?;
        let mut last_prefix = self.order.prefix(last);
        records.position(|record| {
            let prefix = self.order.prefix(record);
            let order = last_prefix
                .cmp(&prefix)
                .then_with(|| self.order.compare_rest(last, record));
            (last, last_prefix) = (record, prefix);
            bad(order)
        })
    }

    fn is_ascending(&self, block: &[u8]) -> bool {
        self.first_that(block, Ordering::is_gt).is_none()
    }

    /// Equal keys must keep their order: only strictly descending records can be reversed.
    fn is_descending(&self, block: &[u8]) -> bool {
        self.first_that(block, Ordering::is_le).is_none()
    }

    /// One look over the records, as in the kernel for numbers.
    fn is_done_by_looking(&self, block: &mut [u8]) -> bool {
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

/// Puts records of this size into the opposite order.
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

    fn crew(&self) -> &Crew {
        &self.crew
    }

    /// Records are dealt out on the way, if that would be the first that is done to sort them.
    fn copy(&self, records: &[u8], seen: &mut Seen) -> Result<Buffer> {
        // A comparator is not called yet: what it does is the sort's business.
        let is_keyed = self.layout.comparator().is_none();
        if !is_keyed || self.is_ascending(records) || self.is_descending(records) {
            seen(records);
            return Buffer::copy_of(records);
        }
        let mut copy = Buffer::unset(records.len())?;
        let pool = self.crew.pool();
        let borders = msd_partition::copy(&self.order, pool.as_deref(), records, &mut copy, seen);
        copy.set_borders(borders);
        Ok(copy)
    }

    /// Takes as much memory as the block again; after such a copy, on one thread, as its largest part.
    fn sort(&self, block: &mut Buffer) -> Result<()> {
        let borders = block.take_borders();
        if borders.is_empty() && self.is_done_by_looking(block) {
            return Ok(());
        }
        let pool = self.crew.pool();
        self.guarded(|| msd_partition::sort(&self.order, pool.as_deref(), block, &borders))
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
        let pool = self.crew.pool();
        self.guarded(|| merge(&self.order, runs, out, pool.as_deref()))
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
        self.first_that(block, Ordering::is_gt)
    }
}

/// What stands for a record while runs are merged.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Entry {
    prefix: u64,
    /// The number of the run, and below it the position.
    place: u64,
}

/// Positions have so many bits, which leaves 2^24 runs.
const POSITION_BITS: u32 = 40;

/// Merges runs of records by their prefixes into a place for all of them, through a scratch space.
type MergeWhole = fn(Prefix, &[&[u8]], &mut [u8], &mut [u8]);

impl Keyed {
    /// What merges records as they are: if they have a size that the compiler knows, their keys are where it
    /// knows, too, and prefixes decide.
    fn merge_whole(&self) -> Option<MergeWhole> {
        let place = (self.record_bytes(), self.prefix_maker().at());
        Some(match place {
            _ if !self.is_decided_by_prefix() => return None,
            (8, _) => merge_whole::<8, 0>,
            (12, 0) => merge_whole::<12, 0>,
            (12, 4) => merge_whole::<12, 4>,
            (16, 0) => merge_whole::<16, 0>,
            (16, 8) => merge_whole::<16, 8>,
            _ => return None,
        })
    }
}

impl Merge for Keyed {
    /// A place where the levels of the tree take turns, if there are several; the entries, as they were and
    /// merged.
    fn scratch_bytes(&self, runs: usize) -> usize {
        match self.merge_whole() {
            Some(_) if runs <= 2 => 0,
            Some(_) => self.record_bytes(),
            None => 3 * size_of::<Entry>(),
        }
    }

    fn merge_piece(&self, runs: &[&[u8]], out: &mut [u8], scratch: &mut [u8], _: Reader) {
        match self.merge_whole() {
            Some(merge) => merge(self.prefix_maker(), runs, out, scratch),
            None => merge_entries(self, runs, out, scratch),
        }
    }
}

/// Merges records of `SIZE` bytes, whose prefixes are made of the bytes from `AT` on.
fn merge_whole<const SIZE: usize, const AT: usize>(
    prefix: Prefix,
    runs: &[&[u8]],
    out: &mut [u8],
    scratch: &mut [u8],
) where
    [u8; SIZE]: Pod,
{
    let runs: Vec<&[[u8; SIZE]]> = runs.iter().map(|run| cast_slice(run)).collect();
    let (scratch, out) = (cast_slice_mut(scratch), cast_slice_mut(out));
    let bytes = |record: [u8; SIZE]| {
        *record[AT..]
            .first_chunk::<PREFIX_BYTES>()
            .expect("a prefix")
    };
    // The merges are functions of their own: what they compare by has to be within the closures.
    if let Some(flip) = prefix.flipped_alone() {
        let key = move |record| u64::from_ne_bytes(bytes(record)) ^ flip;
        merge_tree_by(&runs, out, scratch, move |one, other| key(one) < key(other));
    } else {
        let key = move |record| prefix.of_bytes(bytes(record));
        merge_tree_by(&runs, out, scratch, move |one, other| key(one) < key(other));
    }
}

/// Merges records by entries that stand for them.
fn merge_entries(keyed: &Keyed, runs: &[&[u8]], out: &mut [u8], scratch: &mut [u8]) {
    let size = keyed.record_bytes();
    let scratch: &mut [Entry] = cast_slice_mut(scratch);
    let (staged, rest) = scratch.split_at_mut(out.len() / size);
    let (merged, scratch) = rest.split_at_mut(out.len() / size);
    let entries = stage(keyed, runs, staged);
    let record = |entry: Entry| {
        let position = entry.place & ((1 << POSITION_BITS) - 1);
        keyed.record(
            runs[(entry.place >> POSITION_BITS) as usize],
            position as usize,
        )
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

/// An entry for every record, run by run.
fn stage<'a>(order: &Keyed, runs: &[&[u8]], mut to: &'a mut [Entry]) -> Vec<&'a [Entry]> {
    let size = order.record_bytes();
    let entries = runs.iter().zip(0_u64..).map(|(run, number)| {
        let (entries, rest) = std::mem::take(&mut to).split_at_mut(run.len() / size);
        let records = run.chunks_exact(size).zip(number << POSITION_BITS..);
        for (entry, (record, place)) in entries.iter_mut().zip(records) {
            let prefix = order.prefix(record);
            *entry = Entry { prefix, place };
        }
        to = rest;
        &*entries
    });
    entries.collect()
}

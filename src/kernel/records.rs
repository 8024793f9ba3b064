//! The kernel for records that are more than a number.
//!
//! Merges move small records as they are. Of larger ones, and where prefixes do not decide, they move small
//! entries, each with a record's prefix and place, and then every record once. It must never use rayon's
//! global pool, which belongs to the program.

use std::cmp::Ordering;

use super::crew::Crew;
use super::cut::{Order, select};
use super::keyed::Keyed;
use super::merge::{Merge, merge, merge_tree_by};
use super::pair::Reader;
use super::{Kernel, deal, kernel_for};
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

    /// One look over the records, as in the kernel for numbers. Equal keys must keep their order:
    /// only a strictly descending block is reversed.
    fn is_done_by_looking(&self, block: &mut [u8]) -> bool {
        if self.first_that(block, Ordering::is_gt).is_none() {
            return true;
        }
        if self.first_that(block, Ordering::is_le).is_none() {
            reverse(block, self.record_bytes());
            return true;
        }
        false
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

    /// Takes as much memory as the block again.
    fn sort(&self, block: &mut Buffer) -> Result<()> {
        if self.is_done_by_looking(block) {
            return Ok(());
        }
        let mut scratch = Buffer::unset(block.len())?;
        let pool = self.crew.pool();
        self.guarded(|| deal::sort(&self.order, pool.as_deref(), block, &mut scratch))
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
        let average = kernel_for(&number.ok()?, 1).ok()?.average(&keys)?;
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

impl Keyed {
    /// Are records merged as they are?
    fn are_moved_whole(&self) -> bool {
        self.is_decided_by_prefix() && matches!(self.record_bytes(), 8 | 12 | 16)
    }
}

impl Merge for Keyed {
    /// A place where the levels of the tree take turns, if there are several; the entries, as they were and
    /// merged.
    fn scratch_bytes(&self, runs: usize) -> usize {
        match self.are_moved_whole() {
            true if runs <= 2 => 0,
            true => self.record_bytes(),
            false => 3 * size_of::<Entry>(),
        }
    }

    fn merge_piece(&self, runs: &[&[u8]], out: &mut [u8], scratch: &mut [u8], _: Reader) {
        match (self.are_moved_whole(), self.record_bytes()) {
            (false, _) => merge_entries(self, runs, out, scratch),
            (true, 8) => merge_whole::<8>(self, runs, out, scratch),
            (true, 12) => merge_whole::<12>(self, runs, out, scratch),
            (true, _) => merge_whole::<16>(self, runs, out, scratch),
        }
    }
}

/// Merges records of a size that the compiler knows, between which prefixes decide.
fn merge_whole<const SIZE: usize>(order: &Keyed, runs: &[&[u8]], out: &mut [u8], scratch: &mut [u8])
where
    [u8; SIZE]: Pod,
{
    let prefix = order.prefix_maker();
    let before = |one: [u8; SIZE], other: [u8; SIZE]| prefix.of(&one) < prefix.of(&other);
    let runs: Vec<&[[u8; SIZE]]> = runs.iter().map(|run| cast_slice(run)).collect();
    let (scratch, out) = (cast_slice_mut(scratch), cast_slice_mut(out));
    merge_tree_by(&runs, out, scratch, before);
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

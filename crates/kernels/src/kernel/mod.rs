//! Work on one rank's own bytes: sort, search, merge. Pure, and the only place where time is spent
//! record by record.
//!
//! A kernel is made for one layout of records and works on blocks of bytes that start at a record
//! in an aligned buffer, so that the engine need not know what a record is.

mod count;
mod cut;
mod keyed;
mod merge;
mod msd_partition;
mod pair;
mod plain;
mod pool;
mod radix;
mod records;
#[cfg(test)]
mod tests;
mod vector;

pub use vector::factors;

use std::cmp::Ordering;

pub use pool::{Crew, TASKS_PER_THREAD, Threads};

use crate::buffer::Buffer;
use crate::error::Result;
use crate::record::{Down, KeyKind, Layout, PlainKey};

/// What is shown records.
pub type Seen<'a> = dyn FnMut(&[u8]) + Send + 'a;

/// Sorts, searches and merges records of one layout.
pub trait Kernel: Send + Sync + std::fmt::Debug {
    /// The size of a record.
    fn record_bytes(&self) -> usize;

    /// The threads that it works on.
    fn crew(&self) -> &Crew;

    /// A copy of records that need not be aligned, to be sorted: in another order, in which equal keys keep
    /// theirs, if a part of the sorting costs nothing on the way ([`Buffer::borders`]). `seen` is shown them as
    /// they are, from the first to the last, in pieces that are in a cache if they can be. `Status::Memory` if
    /// there is no room for the copy.
    fn copy(&self, records: &[u8], seen: &mut Seen) -> Result<Buffer>;

    /// Sorts a block. Equal keys keep their order, so that the result depends on the block alone,
    /// and not on the number of threads. `Status::Memory` if there is no room for what that needs;
    /// what the block holds is then of no use.
    fn sort(&self, block: &mut Buffer) -> Result<()>;

    /// The order of two records, which need not be aligned.
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering;

    /// How many records of a sorted run are before `record`, which need not be aligned.
    fn lower_bound(&self, run: &[u8], record: &[u8]) -> usize;

    /// How many records of a sorted run are not after `record`, which need not be aligned.
    fn upper_bound(&self, run: &[u8], record: &[u8]) -> usize;

    /// How many records of each sorted run are among the first `count` of the merged runs; all of
    /// them if there are no more.
    fn select(&self, runs: &[&[u8]], count: usize) -> Vec<usize>;

    /// Merges sorted runs into `out`, which is as long as all of them together. Equal keys stay in
    /// the order of the runs. `Status::Memory` if there is no room for what that needs.
    fn merge(&self, runs: &[&[u8]], out: &mut [u8]) -> Result<()>;

    /// A record whose key is the average of these records' keys; None where keys are no numbers.
    fn average(&self, records: &[&[u8]]) -> Option<Vec<u8>>;

    /// The index of the first record that is after the next one: None for a sorted block.
    fn first_disorder(&self, block: &[u8]) -> Option<usize>;
}

/// A kernel for this layout, on these threads; a number of them: one is the caller's own.
pub fn kernel_for(layout: &Layout, crew: impl Into<Crew>) -> Box<dyn Kernel> {
    let crew = crew.into();
    if !layout.is_plain_number() {
        return Box::new(records::Records::new(layout, crew));
    }
    let down = layout.is_descending();
    match layout.kind() {
        KeyKind::I8 => plain::<i8>(crew, down),
        KeyKind::U8 => plain::<u8>(crew, down),
        KeyKind::I16 => plain::<i16>(crew, down),
        KeyKind::U16 => plain::<u16>(crew, down),
        KeyKind::I32 => plain::<i32>(crew, down),
        KeyKind::U32 => plain::<u32>(crew, down),
        KeyKind::I64 => plain::<i64>(crew, down),
        KeyKind::U64 => plain::<u64>(crew, down),
        KeyKind::F32 => plain::<f32>(crew, down),
        KeyKind::F64 => plain::<f64>(crew, down),
        KeyKind::Bytes | KeyKind::Compare => Box::new(records::Records::new(layout, crew)),
    }
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

fn plain<T: PlainKey + 'static>(crew: Crew, descending: bool) -> Box<dyn Kernel> {
    match descending {
        false => Box::new(plain::Plain::<T>::new(crew)),
        true => Box::new(plain::Plain::<Down<T>>::new(crew)),
    }
}

//! Work on one rank's own bytes: sort, search, merge. Pure, and the only place where time is spent
//! record by record.
//!
//! A kernel is made for one layout of records and works on blocks of bytes that start at a record
//! in an aligned buffer, so that the engine need not know what a record is.

mod cut;
mod merge;
mod pair;
mod plain;
mod radix;

use std::cmp::Ordering;

use crate::error::{Error, Result, Status};
use crate::record::{KeyKind, Layout};

/// Sorts, searches and merges records of one layout.
pub trait Kernel: Send + Sync + std::fmt::Debug {
    /// The size of a record.
    fn record_bytes(&self) -> usize;

    /// Sorts a block, ascending by key.
    fn sort(&self, block: &mut [u8]);

    /// The order of two records, which need not be aligned.
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering;

    /// How many records of a sorted run are before `record`, which need not be aligned.
    fn lower_bound(&self, run: &[u8], record: &[u8]) -> usize;

    /// How many records of a sorted run are not after `record`, which need not be aligned.
    fn upper_bound(&self, run: &[u8], record: &[u8]) -> usize;

    /// Merges sorted runs into `out`, which is as long as all of them together. Equal keys stay in
    /// the order of the runs. `Status::Memory` if there is no room for what that needs.
    fn merge(&self, runs: &[&[u8]], out: &mut [u8]) -> Result<()>;

    /// The index of the first record that is after the next one: None for a sorted block.
    fn first_disorder(&self, block: &[u8]) -> Option<usize>;
}

/// A kernel for this layout, on so many threads; one is the caller's own. `Status::Memory` if the
/// threads cannot be had.
pub fn kernel_for(layout: &Layout, threads: usize) -> Result<Box<dyn Kernel>> {
    let pool = pool_of(threads)?;
    Ok(match layout.kind() {
        KeyKind::I32 => Box::new(plain::Plain::<i32>::new(pool)),
        KeyKind::U32 => Box::new(plain::Plain::<u32>::new(pool)),
        KeyKind::I64 => Box::new(plain::Plain::<i64>::new(pool)),
        KeyKind::U64 => Box::new(plain::Plain::<u64>::new(pool)),
        KeyKind::F32 => Box::new(plain::Plain::<f32>::new(pool)),
        KeyKind::F64 => Box::new(plain::Plain::<f64>::new(pool)),
    })
}

/// A pool of our own: the global one belongs to the program.
fn pool_of(threads: usize) -> Result<Option<rayon::ThreadPool>> {
    if threads <= 1 {
        return Ok(None);
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("ftsort-{index}"))
        .build();
    pool.map(Some).map_err(|error| {
        Error::new(
            Status::Memory,
            format!("cannot start {threads} threads: {error}"),
        )
    })
}

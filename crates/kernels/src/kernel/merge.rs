//! Merges many runs: in pieces that fit the cache, each by a tree of merges of two.
//!
//! A tree of merges over whole runs would move all records through memory once for every level, and would need scratch
//! space as large as the result. So the result is cut into pieces first: the merges of a piece stay in the cache, and
//! several threads can work on different pieces. This module must never allocate memory that grows with the runs.

use super::cut::{Order, Place, advance};
use super::pair::{Destination, merge_two};
use super::pool::{TASKS_PER_THREAD, current_threads, install, map_parallel};
use crate::buffer::Buffer;
use crate::error::Result;

/// The size of a piece in bytes. The piece and its scratch space fit a second-level cache. No thread is needed for a smaller
/// output.
pub const PIECE_BYTES: usize = 1 << 18;

/// The least number of records in a piece for each run, so that cutting the runs takes little time.
const RECORDS_PER_RUN: usize = 1 << 9;

/// An output of at least this many bytes is evicted from a second-level cache before it is read.
pub const FAR_BYTES: usize = 2 << 20;

/// How pieces are merged.
pub trait Merge: Order {
    /// Returns how many bytes of scratch space the merge of a piece of `runs` runs needs for each record. 0: a piece
    /// may be as long as the result, as its merge reads and writes at a few positions only.
    fn scratch_bytes(&self, runs: usize) -> usize;

    /// Merges non-empty runs that together are as long as `out`. Equal keys keep the order of the runs.
    fn merge_piece(
        &self,
        runs: &[&[u8]],
        out: &mut [u8],
        scratch: &mut [u8],
        destination: Destination,
    );
}

/// Merges runs into `out`, which is as long as all of them together. Equal keys keep the order of the runs.
///
/// # Errors
/// `Status::Memory` if scratch space cannot be allocated.
pub fn merge(
    order: &dyn Merge,
    runs: &[&[u8]],
    out: &mut [u8],
    pool: Option<&rayon::ThreadPool>,
) -> Result<()> {
    let runs: Vec<&[u8]> = runs.iter().copied().filter(|run| !run.is_empty()).collect();
    let size = order.record_bytes();
    let scratch = order.scratch_bytes(runs.len());
    let least = (PIECE_BYTES / size.max(scratch / 2)).max(RECORDS_PER_RUN * runs.len());
    let job = Job {
        order,
        piece: if scratch == 0 { usize::MAX } else { least },
        destination: if out.len() < FAR_BYTES {
            Destination::Cache
        } else {
            Destination::Memory
        },
    };
    match (&runs[..], pool) {
        ([], _) => Ok(()),
        ([only], _) => {
            out.copy_from_slice(only);
            Ok(())
        }
        // Another thread that merges the whole output saves nothing.
        (_, Some(pool)) if out.len() / size >= 2 * least => install(pool, || {
            let tasks = current_threads() * TASKS_PER_THREAD;
            let share = (out.len() / size).div_ceil(tasks).max(least);
            let shares = cut_into_shares(order, &runs, share).into_iter();
            let tasks = shares.zip(out.chunks_mut(share * size));
            let merged = map_parallel(tasks, |(runs, out)| job.merge(&runs, out));
            merged.into_iter().collect()
        }),
        _ => job.merge(&runs, out),
    }
}

/// A merge of pieces of the result.
struct Job<'a> {
    order: &'a dyn Merge,
    /// The largest number of records in a piece.
    piece: usize,
    destination: Destination,
}

/// Cuts the result into shares of `share` records, and returns the parts of the runs that each share consists of.
fn cut_into_shares<'a>(order: &dyn Order, runs: &[&'a [u8]], share: usize) -> Vec<Vec<&'a [u8]>> {
    let size = order.record_bytes();
    let mut rest = runs.iter().map(|run| run.len()).sum::<usize>() / size;
    let mut from = vec![0; runs.len()];
    let mut to = from.clone();
    let mut shares = Vec::new();
    while rest > 0 {
        let count = share.min(rest);
        advance(order, runs, &mut to, count..=count, None);
        shares.push(parts(runs, &from, &to, size).collect());
        from.copy_from_slice(&to);
        rest -= count;
    }
    shares
}

/// Returns the parts of the runs between two cuts.
fn parts<'a>(
    runs: &[&'a [u8]],
    from: &[usize],
    to: &[usize],
    size: usize,
) -> impl Iterator<Item = &'a [u8]> {
    let cuts = from.iter().zip(to);
    runs.iter()
        .zip(cuts)
        .map(move |(run, (from, to))| &run[from * size..to * size])
}

impl Job<'_> {
    /// Merges runs, piece by piece.
    fn merge(&self, runs: &[&[u8]], mut out: &mut [u8]) -> Result<()> {
        let (order, piece) = (self.order, self.piece);
        let size = order.record_bytes();
        let longest = piece.min(out.len() / size);
        let mut scratch = Buffer::unset(longest * order.scratch_bytes(runs.len()))?;
        let mut slices = Vec::with_capacity(runs.len());
        let mut from = vec![0; runs.len()];
        let mut to = from.clone();
        let mut guess = None;
        while !out.is_empty() {
            if out.len() / size <= piece {
                // The last piece has all records that are left.
                let lengths = runs.iter().map(|run| run.len() / size);
                to.iter_mut()
                    .zip(lengths)
                    .for_each(|(to, length)| *to = length);
            } else {
                // Pieces may differ in size, so that most guesses are exact enough.
                advance(order, runs, &mut to, piece / 2..=piece, guess);
            }
            slices.clear();
            slices.extend(parts(runs, &from, &to, size).filter(|part| !part.is_empty()));
            let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
            let (now, later) = std::mem::take(&mut out).split_at_mut(bytes);
            match slices[..] {
                [only] => now.copy_from_slice(only),
                _ => order.merge_piece(&slices, now, &mut scratch, self.destination),
            }
            guess = next_cut(&from, &to, bytes / size, longest);
            from.copy_from_slice(&to);
            out = later;
        }
        Ok(())
    }
}

/// Returns a record near the next cut. It assumes that the next piece takes as much of each run as this one did, which
/// lies between the cuts `from` and `to` and has `moved` records; the record is in the run that contributed most.
fn next_cut(from: &[usize], to: &[usize], moved: usize, piece: usize) -> Option<Place> {
    let taken = |run: &usize| to[*run] - from[*run];
    let run = (0..to.len()).max_by_key(taken)?;
    let aim = piece - piece / 8;
    Some(Place {
        run,
        index: to[run] + taken(&run) * aim / moved.max(1),
    })
}

/// Merges runs into `out` by a tree of merges that is balanced by size. `merge_two` merges two runs into an output and
/// keeps their order for equal words; the last merge writes to `destination`, the others to the cache. `scratch` is at
/// least as long as `out` if there are more than two runs.
pub fn merge_tree<W: Copy>(
    runs: &[&[W]],
    out: &mut [W],
    scratch: &mut [W],
    destination: Destination,
    merge_two: impl Fn(&[W], &[W], &mut [W], Destination) + Copy,
) {
    match *runs {
        [] => {}
        [only] => out.copy_from_slice(only),
        [one, other] => merge_two(one, other, out, destination),
        _ => {
            let (left, right) = runs.split_at(middle_by_size(runs));
            let cut = left.iter().map(|run| run.len()).sum();
            // The halves are merged into the scratch space, and use `out` as theirs.
            let (scratch_left, scratch_right) = scratch[..out.len()].split_at_mut(cut);
            let (out_left, out_right) = out.split_at_mut(cut);
            let left = merge_half(left, scratch_left, out_left, merge_two);
            let right = merge_half(right, scratch_right, out_right, merge_two);
            merge_two(left, right, out, destination);
        }
    }
}

/// Merges as [`merge_tree`] does, in the order of `before` and into the cache.
pub fn merge_tree_by<W: Copy>(
    runs: &[&[W]],
    out: &mut [W],
    scratch: &mut [W],
    before: impl Fn(W, W) -> bool + Copy,
) {
    merge_tree(
        runs,
        out,
        scratch,
        Destination::Cache,
        |one, other, out, _| {
            merge_two(one, other, out, before);
        },
    );
}

/// Merges runs into `out` and returns the result. A single run is returned as it is.
fn merge_half<'a, W: Copy>(
    runs: &[&'a [W]],
    out: &'a mut [W],
    scratch: &mut [W],
    merge_two: impl Fn(&[W], &[W], &mut [W], Destination) + Copy,
) -> &'a [W] {
    match *runs {
        [only] => only,
        _ => {
            merge_tree(runs, out, scratch, Destination::Cache, merge_two);
            out
        }
    }
}

/// Returns the index at which to split a list of runs so that both sides have about as many records. Each side has at
/// least one run.
fn middle_by_size<W>(runs: &[&[W]]) -> usize {
    let total: usize = runs.iter().map(|run| run.len()).sum();
    let mut before = 0;
    for (index, run) in runs.iter().enumerate() {
        if before + run.len() / 2 >= total / 2 {
            return index.clamp(1, runs.len() - 1);
        }
        before += run.len();
    }
    runs.len() - 1
}

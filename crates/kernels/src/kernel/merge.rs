//! Merging many sorted runs: in pieces that fit the cache, each by a tree of merges of two.
//!
//! A tree of merges over whole runs would move all records through memory once for every level, and
//! need scratch space as large as the result. So the result is cut into pieces first; a piece's
//! merges then stay in the cache, and pieces can be made on several threads. It must never take
//! memory that grows with the runs.

use rayon::ThreadPool;

use super::cut::{Order, Place, advance};
use super::pair::{Reader, merge_two};
use super::pool::{TASKS_PER_THREAD, each, on_pool, width};
use crate::buffer::Buffer;
use crate::error::Result;

/// The size of a piece in bytes. Its scratch spaces and itself fit a second-level cache.
const PIECE_BYTES: usize = 1 << 18;

/// Pieces grow with the number of runs, so that finding the cuts stays cheap.
const RECORDS_PER_RUN: usize = 1 << 9;

/// More than this is not read from a second-level cache afterwards.
pub const FAR_BYTES: usize = 2 << 20;

/// How pieces are merged.
pub trait Merge: Order {
    /// How much scratch space a piece of so many runs needs for each of its records. 0: pieces may be as
    /// long as the result, since no more of it than a few places is in use at a time.
    fn scratch_bytes(&self, runs: usize) -> usize;

    /// Merges non-empty runs that together are as long as `out`, for this reader; equal keys in the order
    /// of the runs.
    fn merge_piece(&self, runs: &[&[u8]], out: &mut [u8], scratch: &mut [u8], reader: Reader);
}

/// Merges runs into `out`; equal keys in the order of the runs.
pub fn merge(
    order: &dyn Merge,
    runs: &[&[u8]],
    out: &mut [u8],
    pool: Option<&ThreadPool>,
) -> Result<()> {
    let runs: Vec<&[u8]> = runs.iter().copied().filter(|run| !run.is_empty()).collect();
    let size = order.record_bytes();
    let scratch = order.scratch_bytes(runs.len());
    let least = (PIECE_BYTES / size.max(scratch / 2)).max(RECORDS_PER_RUN * runs.len());
    let job = Job {
        order,
        piece: match scratch {
            0 => usize::MAX,
            _ => least,
        },
        reader: match out.len() < FAR_BYTES {
            true => Reader::Soon,
            false => Reader::Late,
        },
    };
    match (&runs[..], pool) {
        ([], _) => Ok(()),
        ([only], _) => {
            out.copy_from_slice(only);
            Ok(())
        }
        (_, Some(pool)) if out.len() / size > least => on_pool(pool, || {
            let tasks = width() * TASKS_PER_THREAD;
            let share = (out.len() / size).div_ceil(tasks).max(least);
            let shares = cut_into_shares(order, &runs, share).into_iter();
            let tasks = shares.zip(out.chunks_mut(share * size));
            let merged = each(tasks, |(runs, out)| job.merge(&runs, out));
            merged.into_iter().collect()
        }),
        _ => job.merge(&runs, out),
    }
}

/// How the pieces of a result are made.
struct Job<'a> {
    order: &'a dyn Merge,
    /// A piece has at most so many records.
    piece: usize,
    reader: Reader,
}

/// The runs' parts that make up each share of the result, of so many records.
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

/// What is between two cuts of the runs.
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
            let count = match out.len() / size {
                rest if rest <= piece => rest..=rest,
                // Pieces need not be of one size: most guesses are good enough.
                _ => piece / 2..=piece,
            };
            advance(order, runs, &mut to, count, guess);
            slices.clear();
            slices.extend(parts(runs, &from, &to, size).filter(|part| !part.is_empty()));
            let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
            let (now, later) = std::mem::take(&mut out).split_at_mut(bytes);
            match slices[..] {
                [only] => now.copy_from_slice(only),
                _ => order.merge_piece(&slices, now, &mut scratch, self.reader),
            }
            guess = next_cut(&from, &to, bytes / size, longest);
            from.copy_from_slice(&to);
            out = later;
        }
        Ok(())
    }
}

/// A record near the next cut, if the next piece takes as much of the runs as this one did, which
/// went `from` one cut `to` the next: in the run that this one took most of.
fn next_cut(from: &[usize], to: &[usize], moved: usize, piece: usize) -> Option<Place> {
    let taken = |run: &usize| to[*run] - from[*run];
    let run = (0..to.len()).max_by_key(taken)?;
    let aim = piece - piece / 8;
    Some(Place {
        run,
        index: to[run] + taken(&run) * aim / moved.max(1),
    })
}

/// A tree of merges, balanced by size; `scratch` is at least as long as `out`, if there are more than
/// two. `merge_two` merges two runs into a place for both, equal ones in the order of the runs, for a
/// reader: in the end this one.
pub fn merge_tree<W: Copy>(
    runs: &[&[W]],
    out: &mut [W],
    scratch: &mut [W],
    reader: Reader,
    merge_two: impl Fn(&[W], &[W], &mut [W], Reader) + Copy,
) {
    match *runs {
        [] => {}
        [only] => out.copy_from_slice(only),
        [one, other] => merge_two(one, other, out, reader),
        _ => {
            let (left, right) = runs.split_at(middle_by_size(runs));
            let cut = left.iter().map(|run| run.len()).sum();
            // The halves are made in the scratch space, and use `out` as theirs.
            let (scratch_left, scratch_right) = scratch[..out.len()].split_at_mut(cut);
            let (out_left, out_right) = out.split_at_mut(cut);
            let left = merge_half(left, scratch_left, out_left, merge_two);
            let right = merge_half(right, scratch_right, out_right, merge_two);
            merge_two(left, right, out, reader);
        }
    }
}

/// As [`merge_tree`], in the order of `before`, and for a reader in the cache.
pub fn merge_tree_by<W: Copy>(
    runs: &[&[W]],
    out: &mut [W],
    scratch: &mut [W],
    before: impl Fn(W, W) -> bool + Copy,
) {
    merge_tree(runs, out, scratch, Reader::Soon, |one, other, out, _| {
        merge_two(one, other, out, before);
    });
}

/// The runs as one: a run alone stays where it is.
fn merge_half<'a, W: Copy>(
    runs: &[&'a [W]],
    out: &'a mut [W],
    scratch: &mut [W],
    merge_two: impl Fn(&[W], &[W], &mut [W], Reader) + Copy,
) -> &'a [W] {
    match *runs {
        [only] => only,
        _ => {
            merge_tree(runs, out, scratch, Reader::Soon, merge_two);
            out
        }
    }
}

/// Where to split a list of runs so that both sides have about as many records; at least one run on
/// each.
fn middle_by_size<W>(runs: &[&[W]]) -> usize {
    let total: usize = runs.iter().map(|run| run.len()).sum();
    let mut seen = 0;
    for (index, run) in runs.iter().enumerate() {
        if seen + run.len() / 2 >= total / 2 {
            return index.clamp(1, runs.len() - 1);
        }
        seen += run.len();
    }
    runs.len() - 1
}

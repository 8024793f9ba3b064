//! Merging many sorted runs: in pieces that fit the cache, each by a tree of merges of two.
//!
//! A tree of merges over whole runs would move all records through memory once for every level, and
//! need scratch space as large as the result. So the result is cut into pieces first; a piece's
//! merges then stay in the cache, and pieces can be made on several threads. It must never take
//! memory that grows with the runs.

use std::marker::PhantomData;

use rayon::ThreadPool;
use rayon::prelude::*;

use super::cut::{Place, advance};
use super::pair::merge_two;
use crate::buffer::Buffer;
use crate::error::Result;
use crate::record::{PlainKey, Word};

/// The size of a piece in bytes. Its scratch spaces and itself fit a second-level cache.
const PIECE_BYTES: usize = 1 << 18;

/// Pieces grow with the number of runs, so that finding the cuts stays cheap.
const RECORDS_PER_RUN: usize = 1 << 9;

/// So many times as many tasks as threads, since threads are not equally fast.
const TASKS_PER_THREAD: usize = 4;

/// Merges runs into `out`; equal keys in the order of the runs.
pub fn merge<T: PlainKey>(runs: &[&[T]], out: &mut [T], pool: Option<&ThreadPool>) -> Result<()> {
    let runs: Vec<&[T]> = runs.iter().copied().filter(|run| !run.is_empty()).collect();
    let piece = (PIECE_BYTES / size_of::<T>()).max(RECORDS_PER_RUN * runs.len());
    let start = vec![0; runs.len()];
    match (&runs[..], pool) {
        ([], _) => Ok(()),
        ([only], _) => {
            out.copy_from_slice(only);
            Ok(())
        }
        (_, Some(pool)) if out.len() > piece => {
            let tasks = pool.current_num_threads() * TASKS_PER_THREAD;
            let share = out.len().div_ceil(tasks).max(piece);
            pool.install(|| {
                let shares = out.par_chunks_mut(share).enumerate();
                shares.try_for_each(|(index, out)| {
                    let mut from = start.clone();
                    advance(&runs, &mut from, index * share..=index * share, None);
                    merge_pieces(&runs, from, out, piece)
                })
            })
        }
        _ => merge_pieces(&runs, start, out, piece),
    }
}

/// Merges what follows the cut at `from`, as much as `out` can hold, in pieces of at most so many
/// records.
fn merge_pieces<T: PlainKey>(
    runs: &[&[T]],
    mut from: Vec<usize>,
    mut out: &mut [T],
    piece: usize,
) -> Result<()> {
    let mut tree = Tree::<T>::new(piece.min(out.len()), runs.len())?;
    let mut slices = Vec::with_capacity(runs.len());
    let mut to = from.clone();
    let mut guess = None;
    while !out.is_empty() {
        let count = match out.len() {
            rest if rest <= piece => rest..=rest,
            // Pieces need not be of one size: most guesses are good enough.
            _ => piece / 2..=piece,
        };
        advance(runs, &mut to, count, guess);
        slices.clear();
        for (run, (from, to)) in runs.iter().zip(from.iter().zip(&to)) {
            if from < to {
                slices.push(&run[*from..*to]);
            }
        }
        let moved = slices.iter().map(|slice| slice.len()).sum();
        let (now, later) = std::mem::take(&mut out).split_at_mut(moved);
        match slices[..] {
            [only] => now.copy_from_slice(only),
            _ => tree.merge(&slices, now),
        }
        guess = next_cut(&from, &to, moved, piece);
        from.copy_from_slice(&to);
        out = later;
    }
    Ok(())
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

/// The scratch spaces of a piece.
struct Tree<T> {
    /// The runs' keys as words that are in their order; empty if they are that already.
    staged: Buffer,
    /// Where the levels of the tree take turns with the output.
    scratch: Buffer,
    key: PhantomData<T>,
}

impl<T: PlainKey> Tree<T> {
    fn new(words: usize, runs: usize) -> Result<Tree<T>> {
        let bytes = words * size_of::<T>();
        Ok(Tree {
            staged: Buffer::zeroed(if T::IN_ORDER { 0 } else { bytes })?,
            scratch: Buffer::zeroed(if runs > 2 { bytes } else { 0 })?,
            key: PhantomData,
        })
    }

    /// Merges runs that together are as long as `out`.
    fn merge(&mut self, runs: &[&[T]], out: &mut [T]) {
        let out: &mut [T::Bits] = bytemuck::cast_slice_mut(out);
        let scratch: &mut [T::Bits] = bytemuck::cast_slice_mut(&mut self.scratch);
        if T::IN_ORDER {
            let words: Vec<_> = runs.iter().map(|run| bytemuck::cast_slice(run)).collect();
            merge_tree(&words, out, scratch);
            return;
        }
        let words = copy_words(runs, bytemuck::cast_slice_mut(&mut self.staged));
        merge_tree(&words, out, scratch);
        for word in out {
            *word = bytemuck::cast(T::from_bits(*word));
        }
    }
}

/// Copies runs one after the other, as words in the order of their keys; returns the copies.
fn copy_words<'a, T: PlainKey>(runs: &[&[T]], mut to: &'a mut [T::Bits]) -> Vec<&'a [T::Bits]> {
    let copies = runs.iter().map(|run| {
        let (place, rest) = std::mem::take(&mut to).split_at_mut(run.len());
        for (word, record) in place.iter_mut().zip(*run) {
            *word = record.bits();
        }
        to = rest;
        &*place
    });
    copies.collect()
}

/// A tree of merges, balanced by size; `scratch` is as long as `out`, if there are more than two.
fn merge_tree<W: Word>(runs: &[&[W]], out: &mut [W], scratch: &mut [W]) {
    match *runs {
        [] => {}
        [only] => out.copy_from_slice(only),
        [one, other] => merge_two(one, other, out),
        _ => {
            let (left, right) = runs.split_at(middle_by_size(runs));
            let cut = left.iter().map(|run| run.len()).sum();
            // The halves are made in the scratch space, and use `out` as theirs.
            let (scratch_left, scratch_right) = scratch[..out.len()].split_at_mut(cut);
            let (out_left, out_right) = out.split_at_mut(cut);
            let left = merge_half(left, scratch_left, out_left);
            let right = merge_half(right, scratch_right, out_right);
            merge_two(left, right, out);
        }
    }
}

/// The runs as one: a run alone stays where it is.
fn merge_half<'a, W: Word>(runs: &[&'a [W]], out: &'a mut [W], scratch: &mut [W]) -> &'a [W] {
    match *runs {
        [only] => only,
        _ => {
            merge_tree(runs, out, scratch);
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

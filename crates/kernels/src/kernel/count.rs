//! Sorting small numbers by counting how often each occurs.
//!
//! With no more than 2^16 values a block is sorted by two sweeps over it. It must never be used for
//! records that hold more than their key, since it writes the keys anew.

use rayon::ThreadPool;

use super::pool::{TASKS_PER_THREAD, each, on_pool, width};
use crate::record::{PlainKey, Word};

/// Is counting the fastest way to sort so many numbers?
pub fn is_worth_it<T: PlainKey>(length: usize) -> bool {
    T::Bits::BITS <= 16 && length >= 4 << T::Bits::BITS
}

/// Sorts numbers of 8 or 16 bits. Takes up to 2 MiB for each thread.
pub fn sort<T: PlainKey>(records: &mut [T], pool: Option<&ThreadPool>) {
    match pool {
        None => {
            let counts = occurrences(records);
            runs_of_equals(records, &counts).for_each(|(run, key)| run.fill(key));
        }
        Some(pool) => on_pool(pool, || {
            let share = records.len().div_ceil(width());
            let shares = each(records.chunks(share), occurrences).into_iter();
            let counts = shares.reduce(|mut counts, others| {
                let pairs = counts.iter_mut().zip(others);
                pairs.for_each(|(count, other)| *count += other);
                counts
            });
            let counts = counts.unwrap_or_default();
            let mut runs: Vec<_> = runs_of_equals(records, &counts).collect();
            let share = runs.len().div_ceil(width() * TASKS_PER_THREAD).max(1);
            each(runs.chunks_mut(share), |runs| {
                runs.iter_mut().for_each(|(run, key)| run.fill(*key));
            });
        }),
    }
}

/// How often each key occurs, in the order of keys.
fn occurrences<T: PlainKey>(records: &[T]) -> Vec<usize> {
    let values = 1 << T::Bits::BITS;
    // Two tables, since one would have to wait for itself when neighbours are alike.
    let mut tables = [(); 2].map(|()| vec![0_u32; values]);
    let mut counts = vec![0; values];
    // A part is short enough for its counts.
    for part in records.chunks(u32::MAX as usize) {
        let (pairs, rest) = part.as_chunks::<2>();
        for pair in pairs {
            for (table, key) in tables.iter_mut().zip(pair) {
                table[key.bits().widened() as usize] += 1;
            }
        }
        for key in rest {
            tables[0][key.bits().widened() as usize] += 1;
        }
        for table in &mut tables {
            for (count, seen) in counts.iter_mut().zip(table) {
                *count += std::mem::take(seen) as usize;
            }
        }
    }
    counts
}

/// The part of the sorted block that each key takes, and the key.
fn runs_of_equals<'a, T: PlainKey>(
    mut rest: &'a mut [T],
    counts: &[usize],
) -> impl Iterator<Item = (&'a mut [T], T)> {
    let keys = (0_u64..).map(|value| T::from_bits(T::Bits::truncated(value)));
    let runs = counts.iter().zip(keys).map(move |(count, key)| {
        let (run, later) = std::mem::take(&mut rest).split_at_mut(*count);
        rest = later;
        (run, key)
    });
    runs.filter(|(run, _)| !run.is_empty())
}

//! Counting sort: sorts numbers of at most 16 bits by counting how often each value occurs.
//!
//! Two passes over a block sort it. The second pass writes the keys anew, so that this module must never be used for
//! records that consist of more than their key.

use super::pool::{TASKS_PER_THREAD, current_threads, install, map_parallel};
use crate::record::{PlainKey, Word};

/// Returns whether counting is the fastest way to sort `length` numbers.
pub fn is_worth_it<T: PlainKey>(length: usize) -> bool {
    T::Bits::BITS <= 16 && length >= 4 << T::Bits::BITS
}

/// Sorts numbers of 8 or 16 bits. Allocates up to 2 MiB for each thread.
pub fn sort<T: PlainKey>(records: &mut [T], pool: Option<&rayon::ThreadPool>) {
    match pool {
        None => {
            let counts = occurrences(records);
            runs_of_equals(records, &counts).for_each(|(run, key)| run.fill(key));
        }
        Some(pool) => install(pool, || {
            let share = records.len().div_ceil(current_threads());
            let shares = map_parallel(records.chunks(share), occurrences).into_iter();
            let counts = shares.reduce(|mut counts, others| {
                let pairs = counts.iter_mut().zip(others);
                pairs.for_each(|(count, other)| *count += other);
                counts
            });
            let counts = counts.unwrap_or_default();
            let mut runs: Vec<_> = runs_of_equals(records, &counts).collect();
            let share = runs
                .len()
                .div_ceil(current_threads() * TASKS_PER_THREAD)
                .max(1);
            map_parallel(runs.chunks_mut(share), |runs| {
                runs.iter_mut().for_each(|(run, key)| run.fill(*key));
            });
        }),
    }
}

/// Returns how often each key occurs, in the order of keys.
fn occurrences<T: PlainKey>(records: &[T]) -> Vec<usize> {
    let values = 1 << T::Bits::BITS;
    // Neighbours are counted in different tables: an addition to the counter that was changed last has to wait.
    let mut tables = [(); 2].map(|()| vec![0_u32; values]);
    let mut counts = vec![0; values];
    // A counter of 32 bits suffices for each part.
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
            for (count, part) in counts.iter_mut().zip(table) {
                *count += std::mem::take(part) as usize;
            }
        }
    }
    counts
}

/// Returns the part of the sorted block that each key fills, and the key; without empty parts.
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

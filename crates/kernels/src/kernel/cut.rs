//! Cuts runs at a position of their merged order, without merging them.
//!
//! A cut is a position in each run: all records below it come before all records above it. Equal keys are ordered by
//! run and by position in the run. So every number of records defines exactly one cut, and the pieces of a merge can be
//! merged independently and have any size. This module must never move a record.

use std::cmp::Ordering;
use std::ops::{Range, RangeInclusive};

/// The order of records by their keys.
pub trait Order: Sync {
    /// Returns the size of a record in bytes.
    fn record_bytes(&self) -> usize;

    /// Compares two records, which need not be aligned.
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering;

    /// Returns the record of a block with this index.
    #[inline(always)]
    fn record<'a>(&self, block: &'a [u8], index: usize) -> &'a [u8] {
        let size = self.record_bytes();
        &block[index * size..][..size]
    }

    /// Returns how many records of a run are less than `record`.
    fn lower_bound(&self, run: &[u8], record: &[u8]) -> usize {
        partition_point(0..run.len() / self.record_bytes(), |index| {
            self.compare(self.record(run, index), record).is_lt()
        })
    }

    /// Returns how many records of a run are at most `record`.
    fn upper_bound(&self, run: &[u8], record: &[u8]) -> usize {
        partition_point(0..run.len() / self.record_bytes(), |index| {
            self.compare(self.record(run, index), record).is_le()
        })
    }
}

/// Returns the first index of the range for which `is_below` is false; it must be true for all indices before.
fn partition_point(range: Range<usize>, is_below: impl Fn(usize) -> bool) -> usize {
    let Range { mut start, mut end } = range;
    while start < end {
        let middle = start + (end - start) / 2;
        if is_below(middle) {
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    start
}

/// The position of a record.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The number of the run.
    pub run: usize,
    /// The index of the record in the run.
    pub index: usize,
}

/// Returns how many records of each run are among the first `count` of the merged runs.
pub fn select(order: &dyn Order, runs: &[&[u8]], count: usize) -> Vec<usize> {
    let total: usize = runs.iter().map(|run| run.len()).sum();
    let count = count.min(total / order.record_bytes());
    let mut cut = vec![0; runs.len()];
    advance(order, runs, &mut cut, count..=count, None);
    cut
}

/// Moves the cut `from` up by a number of records within `count`. The runs must have at least `count.start()` records
/// above the cut. The function is fast if `guess` is close to the first record above the new cut.
pub fn advance(
    order: &dyn Order,
    runs: &[&[u8]],
    from: &mut [usize],
    count: RangeInclusive<usize>,
    guess: Option<Place>,
) {
    let start: usize = from.iter().sum();
    // The new cut is never below `low` nor above `high`.
    let low = from;
    let pairs = runs.iter().zip(&*low);
    let mut high: Vec<usize> = pairs
        .map(|(run, low)| (run.len() / order.record_bytes()).min(low + count.end()))
        .collect();
    let mut trial = low.to_vec();
    let mut place = guess.filter(|place| (low[place.run]..high[place.run]).contains(&place.index));
    while low.iter().sum::<usize>() - start < *count.start() {
        let pivot = place.take().or_else(|| middle_of(order, runs, low, &high));
        let Some(pivot) = pivot else {
            let missing = count.start() + start - low.iter().sum::<usize>();
            take_any(order, runs, low, missing);
            return;
        };
        cut_below(order, runs, pivot, (low, &high), &mut trial);
        let moved = trial.iter().sum::<usize>() - start;
        if moved > *count.end() {
            high.copy_from_slice(&trial);
        } else {
            low.copy_from_slice(&trial);
            if moved < *count.start() {
                low[pivot.run] = pivot.index + 1;
            }
        }
    }
}

/// Moves `low` up by `missing` records of any runs. A comparator that is not a total order may rule out every cut; then
/// any cut is used, so that no record is lost.
fn take_any(order: &dyn Order, runs: &[&[u8]], low: &mut [usize], mut missing: usize) {
    for (run, low) in runs.iter().zip(low) {
        let taken = missing.min(run.len() / order.record_bytes() - *low);
        *low += taken;
        missing -= taken;
    }
}

/// Sets `cut` to the cut directly below a record, clamped to `low` and `high`.
fn cut_below(
    order: &dyn Order,
    runs: &[&[u8]],
    place: Place,
    (low, high): (&[usize], &[usize]),
    cut: &mut [usize],
) {
    let pivot = order.record(runs[place.run], place.index);
    for (number, run) in runs.iter().enumerate() {
        let window = low[number]..high[number];
        let compare = |index| order.compare(order.record(run, index), pivot);
        cut[number] = match number.cmp(&place.run) {
            Ordering::Less => partition_point(window, |index| compare(index).is_le()),
            Ordering::Equal => place.index,
            Ordering::Greater => partition_point(window, |index| compare(index).is_lt()),
        };
    }
}

/// Returns the median of the middle records of all windows between `low` and `high`, weighted by the sizes of the
/// windows. On whichever side of it the cut is, a quarter of the records in the windows is ruled out. None if all
/// windows are empty.
fn middle_of(order: &dyn Order, runs: &[&[u8]], low: &[usize], high: &[usize]) -> Option<Place> {
    let windows = low.iter().zip(high).enumerate();
    let mut middles: Vec<(Place, usize)> = windows
        .filter(|(_, (low, high))| low < high)
        .map(|(run, (low, high))| {
            let index = low + (high - low) / 2;
            (Place { run, index }, high - low)
        })
        .collect();
    let record = |place: &Place| order.record(runs[place.run], place.index);
    middles.sort_unstable_by(|(one, _), (other, _)| {
        let by_record = order.compare(record(one), record(other));
        by_record.then(one.run.cmp(&other.run))
    });
    let half = middles.iter().map(|(_, weight)| weight).sum::<usize>() / 2;
    let mut sum = 0;
    let median = middles.into_iter().find(|(_, weight)| {
        sum += weight;
        sum > half
    });
    median.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Numbers;

    impl Order for Numbers {
        fn record_bytes(&self) -> usize {
            4
        }

        fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
            let number = bytemuck::pod_read_unaligned::<u32>;
            number(one).cmp(&number(other))
        }
    }

    /// Every record is greater than every record.
    struct AlwaysGreater;

    impl Order for AlwaysGreater {
        fn record_bytes(&self) -> usize {
            1
        }

        fn compare(&self, _: &[u8], _: &[u8]) -> Ordering {
            Ordering::Greater
        }
    }

    #[test]
    fn a_comparator_without_a_total_order_loses_no_record() {
        let runs: [&[u8]; 3] = [&[1; 50], &[2; 9], &[3; 70]];
        for count in 0..=129 {
            let cut = select(&AlwaysGreater, &runs, count);
            assert_eq!(cut.iter().sum::<usize>(), count);
        }
    }

    proptest! {
        #[test]
        fn a_cut_has_exactly_the_first_records_below_it(
            runs in prop::collection::vec(prop::collection::vec(0_u32..20, 0..40), 1..6),
            first in 0.0_f64..=1.0,
            second in 0.0_f64..=1.0,
            guess: Option<(prop::sample::Index, prop::sample::Index)>,
            slack in 0_usize..20,
        ) {
            let runs: Vec<Vec<u32>> = runs
                .into_iter()
                .map(|mut run| { run.sort_unstable(); run })
                .collect();
            let slices: Vec<&[u8]> = runs.iter().map(|run| bytemuck::cast_slice(run)).collect();
            let mut order: Vec<(u32, usize, usize)> = Vec::new();
            for (number, run) in runs.iter().enumerate() {
                order.extend(run.iter().enumerate().map(|(index, key)| (*key, number, index)));
            }
            order.sort_unstable();
            let cut_at = |count: usize| {
                let mut cut = vec![0; runs.len()];
                order[..count].iter().for_each(|(_, run, _)| cut[*run] += 1);
                cut
            };
            let before = (order.len() as f64 * first) as usize;
            let count = ((order.len() - before) as f64 * second) as usize;
            let guess = guess.map(|(run, index)| Place {
                run: run.index(runs.len()),
                index: index.index(40),
            });
            let mut exact = cut_at(before);
            advance(&Numbers, &slices, &mut exact, count..=count, guess);
            prop_assert_eq!(&exact, &cut_at(before + count));
            prop_assert_eq!(&exact, &select(&Numbers, &slices, before + count));
            let mut rough = cut_at(before);
            advance(&Numbers, &slices, &mut rough, count.saturating_sub(slack)..=count, guess);
            let reached: usize = rough.iter().sum();
            prop_assert!(reached <= before + count && reached + slack >= before + count);
            prop_assert_eq!(rough, cut_at(reached));
        }
    }
}

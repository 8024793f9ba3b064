//! Cutting sorted runs at a place of their merged order, without merging them.
//!
//! Equal keys are in the order of the runs, then of their positions, so that every place is a cut of
//! its own and pieces of a merge can be made apart, of any size, whatever the data. A cut is a
//! position in each run; of two cuts one is never above the other in every run. It must never move
//! a record.

use std::cmp::Ordering;
use std::ops::{Range, RangeInclusive};

/// The order of records by their keys.
pub trait Order: Sync {
    /// The size of a record.
    fn record_bytes(&self) -> usize;

    /// The order of two records, which need not be aligned.
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering;

    /// A record of a block.
    #[inline(always)]
    fn record<'a>(&self, block: &'a [u8], index: usize) -> &'a [u8] {
        let size = self.record_bytes();
        &block[index * size..][..size]
    }

    /// How many records of a sorted run are before `record`.
    fn lower_bound(&self, run: &[u8], record: &[u8]) -> usize {
        partition_point(0..run.len() / self.record_bytes(), |index| {
            self.compare(self.record(run, index), record).is_lt()
        })
    }

    /// How many records of a sorted run are not after `record`.
    fn upper_bound(&self, run: &[u8], record: &[u8]) -> usize {
        partition_point(0..run.len() / self.record_bytes(), |index| {
            self.compare(self.record(run, index), record).is_le()
        })
    }
}

/// The first index for which that is no longer so.
fn partition_point(range: Range<usize>, is_so: impl Fn(usize) -> bool) -> usize {
    let Range { mut start, mut end } = range;
    while start < end {
        let middle = start + (end - start) / 2;
        match is_so(middle) {
            true => start = middle + 1,
            false => end = middle,
        }
    }
    start
}

/// A record, by the number of its run and its position.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The number of the run.
    pub run: usize,
    /// The position in the run.
    pub index: usize,
}

/// How many records of each run are among the first `count` of all.
pub fn select(order: &dyn Order, runs: &[&[u8]], count: usize) -> Vec<usize> {
    let total: usize = runs.iter().map(|run| run.len()).sum();
    let count = count.min(total / order.record_bytes());
    let mut cut = vec![0; runs.len()];
    advance(order, runs, &mut cut, count..=count, None);
    cut
}

/// Moves the cut `from` up until there are as many records below it, more than before, as `count`
/// allows. There must be as many in the runs. A good `guess` for the record that comes next after
/// the new cut makes it fast.
pub fn advance(
    order: &dyn Order,
    runs: &[&[u8]],
    from: &mut [usize],
    count: RangeInclusive<usize>,
    guess: Option<Place>,
) {
    let start: usize = from.iter().sum();
    // The cut that is looked for is never below `low` nor above `high`.
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

/// A comparator that contradicts itself may rule out every cut. Any will do then, as long as no
/// record is lost.
fn take_any(order: &dyn Order, runs: &[&[u8]], low: &mut [usize], mut missing: usize) {
    for (run, low) in runs.iter().zip(low) {
        let taken = missing.min(run.len() / order.record_bytes() - *low);
        *low += taken;
        missing -= taken;
    }
}

/// The cut right below a record, as far as it is within `low` and `high`.
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

/// The median of the windows' middles, weighted by their sizes: whichever side of it the cut is on,
/// a quarter of all that is between `low` and `high` is ruled out.
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
    middles.sort_by(|(one, _), (other, _)| order.compare(record(one), record(other)));
    let half = middles.iter().map(|(_, weight)| weight).sum::<usize>() / 2;
    let mut seen = 0;
    let median = middles.into_iter().find(|(_, weight)| {
        seen += weight;
        seen > half
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

    /// Says that whatever it is shown is in disorder.
    struct Contrary;

    impl Order for Contrary {
        fn record_bytes(&self) -> usize {
            1
        }

        fn compare(&self, _: &[u8], _: &[u8]) -> Ordering {
            Ordering::Greater
        }
    }

    #[test]
    fn a_comparator_that_contradicts_itself_loses_no_record() {
        let runs: [&[u8]; 3] = [&[1; 50], &[2; 9], &[3; 70]];
        for count in 0..=129 {
            let cut = select(&Contrary, &runs, count);
            assert_eq!(cut.iter().sum::<usize>(), count);
        }
    }

    proptest! {
        #[test]
        fn a_cut_has_all_that_comes_first_and_nothing_else(
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

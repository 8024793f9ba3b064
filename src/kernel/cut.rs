//! Cutting sorted runs at a place of their merged order, without merging them.
//!
//! Equal keys are in the order of the runs, then of their positions, so that every place is a cut of
//! its own and pieces of a merge can be made apart, of any size, whatever the data. A cut is a
//! position in each run; of two cuts one is never above the other in every run. It must never move
//! a record.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use crate::record::PlainKey;

/// A record, by the number of its run and its position.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The number of the run.
    pub run: usize,
    /// The position in the run.
    pub index: usize,
}

/// Moves the cut `from` up until there are as many records below it, more than before, as `count`
/// allows. There must be as many in the runs. A good `guess` for the record that comes next after
/// the new cut makes it fast.
pub fn advance<T: PlainKey>(
    runs: &[&[T]],
    from: &mut [usize],
    count: RangeInclusive<usize>,
    guess: Option<Place>,
) {
    let start: usize = from.iter().sum();
    // The cut that is looked for is never below `low` nor above `high`.
    let low = from;
    let pairs = runs.iter().zip(&*low);
    let mut high: Vec<usize> = pairs
        .map(|(run, low)| run.len().min(low + count.end()))
        .collect();
    let mut trial = low.to_vec();
    let mut place = guess.filter(|place| (low[place.run]..high[place.run]).contains(&place.index));
    while low.iter().sum::<usize>() - start < *count.start() {
        let Some(pivot) = place.take().or_else(|| middle_of(runs, low, &high)) else {
            return;
        };
        cut_below(runs, pivot, (low, &high), &mut trial);
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

/// The cut right below a record, as far as it is within `low` and `high`.
fn cut_below<T: PlainKey>(
    runs: &[&[T]],
    place: Place,
    (low, high): (&[usize], &[usize]),
    cut: &mut [usize],
) {
    let pivot = runs[place.run][place.index];
    for (number, run) in runs.iter().enumerate() {
        let window = &run[low[number]..high[number]];
        let below = match number.cmp(&place.run) {
            Ordering::Less => window.partition_point(|record| !pivot.before(*record)),
            Ordering::Equal => place.index - low[number],
            Ordering::Greater => window.partition_point(|record| record.before(pivot)),
        };
        cut[number] = low[number] + below;
    }
}

/// The median of the windows' middles, weighted by their sizes: whichever side of it the cut is on,
/// a quarter of all that is between `low` and `high` is ruled out.
fn middle_of<T: PlainKey>(runs: &[&[T]], low: &[usize], high: &[usize]) -> Option<Place> {
    let windows = low.iter().zip(high).enumerate();
    let mut middles: Vec<(Place, usize)> = windows
        .filter(|(_, (low, high))| low < high)
        .map(|(run, (low, high))| {
            let index = low + (high - low) / 2;
            (Place { run, index }, high - low)
        })
        .collect();
    middles.sort_by(|(one, _), (other, _)| {
        runs[one.run][one.index].order(runs[other.run][other.index])
    });
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
            let slices: Vec<&[u32]> = runs.iter().map(|run| &run[..]).collect();
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
            advance(&slices, &mut exact, count..=count, guess);
            prop_assert_eq!(&exact, &cut_at(before + count));
            let mut rough = cut_at(before);
            advance(&slices, &mut rough, count.saturating_sub(slack)..=count, guess);
            let reached: usize = rough.iter().sum();
            prop_assert!(reached <= before + count && reached + slack >= before + count);
            prop_assert_eq!(rough, cut_at(reached));
        }
    }
}

//! Merges two runs of words, or of small entries that stand for records, from four positions at once.
//!
//! A merge with a branch for each comparison mispredicts every other branch on random data. A merge that turns each
//! comparison into an index has to wait for the load, the comparison and the addition of every step. So the output is
//! cut in the middle, and each half is written from both of its ends: four chains of steps that do not depend on each
//! other keep the processor busy. The inner loop must never branch on the result of a comparison.

use std::hint::select_unpredictable;

/// Outputs of at most this many words are merged one word after the other.
const SHORT: usize = 32;

/// If one run is more than this many times as long as the other, it is copied in long pieces.
const LOPSIDED: usize = 16;

/// Where the output of a merge goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the cache, from which the next merge reads it.
    Cache,
    /// To memory: it is not read before the cache has evicted it.
    Memory,
}

/// Merges two runs that are sorted in the order of `before` into `out`, which is as long as both. Of equal words those
/// of `one` come first.
pub fn merge_two<W: Copy>(
    one: &[W],
    other: &[W],
    out: &mut [W],
    before: impl Fn(W, W) -> bool + Copy,
) {
    if one.is_empty() {
        out.copy_from_slice(other);
    } else if other.is_empty() {
        out.copy_from_slice(one);
    } else if one.len() > LOPSIDED * other.len() || other.len() > LOPSIDED * one.len() {
        merge_around_middle(one, other, out, before);
    } else if out.len() <= SHORT {
        merge_by_steps(one, other, out, before);
    } else {
        merge_from_four_positions(one, other, out, before);
    }
}

/// Writes the middle word of the shorter run to its position, and merges the words before and after it separately.
fn merge_around_middle<W: Copy>(
    one: &[W],
    other: &[W],
    out: &mut [W],
    before: impl Fn(W, W) -> bool + Copy,
) {
    let (i, j) = if one.len() < other.len() {
        let i = one.len() / 2;
        (i, other.partition_point(|word| before(*word, one[i])))
    } else {
        let j = other.len() / 2;
        (one.partition_point(|word| !before(other[j], *word)), j)
    };
    let (start, end) = out.split_at_mut(i + j);
    merge_two(&one[..i], &other[..j], start, before);
    // The middle word is the first of its run now, and precedes all others that are left.
    let (i, j) = if one.len() < other.len() {
        end[0] = one[i];
        (i + 1, j)
    } else {
        end[0] = other[j];
        (i, j + 1)
    };
    merge_two(&one[i..], &other[j..], &mut end[1..], before);
}

/// Returns how many words of `one` are among the first `length` of the merged runs.
pub fn cut_of_one<W: Copy>(
    one: &[W],
    other: &[W],
    length: usize,
    before: impl Fn(W, W) -> bool,
) -> usize {
    let (mut low, mut high) = (length.saturating_sub(other.len()), length.min(one.len()));
    while low < high {
        let middle = (low + high) / 2;
        let is_below_cut = !before(other[length - middle - 1], one[middle]);
        low = select_unpredictable(is_below_cut, middle + 1, low);
        high = select_unpredictable(is_below_cut, high, middle);
    }
    low
}

fn merge_by_steps<W: Copy>(
    one: &[W],
    other: &[W],
    out: &mut [W],
    before: impl Fn(W, W) -> bool + Copy,
) {
    let (mut i, mut j) = (0, 0);
    for place in &mut *out {
        if i == one.len() || j == other.len() {
            break;
        }
        let from_other = before(other[j], one[i]);
        *place = select_unpredictable(from_other, other[j], one[i]);
        i += usize::from(!from_other);
        j += usize::from(from_other);
    }
    let (left, right) = out[i + j..].split_at_mut(one.len() - i);
    left.copy_from_slice(&one[i..]);
    right.copy_from_slice(&other[j..]);
}

/// A position in each of the two runs. Both move up or down from a cut of the merged runs.
#[derive(Clone, Copy)]
struct Cursors {
    /// The index in the first run.
    i: usize,
    /// The index in the second run.
    j: usize,
}

impl Cursors {
    /// Moves up by one word, and returns it.
    #[inline(always)]
    fn up<W: Copy>(&mut self, one: &[W], other: &[W], before: impl Fn(W, W) -> bool) -> W {
        let (first, second) = (one[self.i], other[self.j]);
        let from_other = before(second, first);
        self.i += usize::from(!from_other);
        self.j += usize::from(from_other);
        select_unpredictable(from_other, second, first)
    }

    /// Moves down by one word, and returns it.
    #[inline(always)]
    fn down<W: Copy>(&mut self, one: &[W], other: &[W], before: impl Fn(W, W) -> bool) -> W {
        let (first, second) = (one[self.i - 1], other[self.j - 1]);
        let from_one = before(second, first);
        self.i -= usize::from(from_one);
        self.j -= usize::from(!from_one);
        select_unpredictable(from_one, first, second)
    }

    /// Returns how many steps down stay within the runs for any words.
    fn room_below(self) -> usize {
        self.i.min(self.j)
    }

    /// Returns whether neither run is read beyond the other position.
    fn is_at_most(self, other: Cursors) -> bool {
        self.i <= other.i && self.j <= other.j
    }
}

fn merge_from_four_positions<W: Copy>(
    one: &[W],
    other: &[W],
    out: &mut [W],
    before: impl Fn(W, W) -> bool + Copy,
) {
    let middle = out.len() / 2;
    let i = cut_of_one(one, other, middle, before);
    let cut = Cursors { i, j: middle - i };
    let mut from_start = Cursors { i: 0, j: 0 };
    let (mut below_cut, mut above_cut) = (cut, cut);
    let mut from_end = Cursors {
        i: one.len(),
        j: other.len(),
    };
    // No chain leaves the runs in this many steps, although a chain may cross the cut in one of the runs.
    let steps = (middle / 2)
        .min(one.len().min(other.len()))
        .min(cut.room_below())
        .min((one.len() - cut.i).min(other.len() - cut.j));
    let (lower, upper) = out.split_at_mut(middle);
    let (lower_start, lower_end) = ends_of(lower, steps);
    let (upper_start, upper_end) = ends_of(upper, steps);
    for (((to_lower_start, to_lower_end), to_upper_start), to_upper_end) in lower_start
        .iter_mut()
        .zip(lower_end.iter_mut().rev())
        .zip(upper_start)
        .zip(upper_end.iter_mut().rev())
    {
        *to_lower_start = from_start.up(one, other, before);
        *to_lower_end = below_cut.down(one, other, before);
        *to_upper_start = above_cut.up(one, other, before);
        *to_upper_end = from_end.down(one, other, before);
    }
    // If the runs are not sorted or `before` is not an order, only a single chain of steps writes each word once.
    if !(from_start.is_at_most(below_cut) && above_cut.is_at_most(from_end)) {
        return merge_by_steps(one, other, out, before);
    }
    // Few words are left in the middles of the halves, unless the data are skewed.
    let rest = |low: Cursors, high: Cursors, out: &mut [W]| {
        let end = out.len() - steps;
        merge_two(
            &one[low.i..high.i],
            &other[low.j..high.j],
            &mut out[steps..end],
            before,
        );
    };
    rest(from_start, below_cut, lower);
    rest(above_cut, from_end, upper);
}

/// Returns the first and the last `length` words.
fn ends_of<W>(words: &mut [W], length: usize) -> (&mut [W], &mut [W]) {
    let (start, end) = words.split_at_mut(words.len() / 2);
    let skipped = end.len() - length;
    (&mut start[..length], &mut end[skipped..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Merges keys with tags for run and position, and compares with the result of a stable sort.
    fn check(mut one: Vec<u32>, mut other: Vec<u32>) {
        one.sort_unstable();
        other.sort_unstable();
        let mut tag = 0;
        let mut tagged = |keys: &[u32]| -> Vec<(u32, u32)> {
            let words = keys.iter().map(|key| {
                tag += 1;
                (*key, tag)
            });
            words.collect()
        };
        let (one, other) = (tagged(&one), tagged(&other));
        let mut expected = [&one[..], &other[..]].concat();
        expected.sort_by_key(|(key, _)| *key);
        let mut out = vec![(0, 0); expected.len()];
        merge_two(&one, &other, &mut out, |one, other| one.0 < other.0);
        assert_eq!(out, expected);
    }

    #[test]
    fn merges_runs_with_little_or_no_overlap() {
        for length in [1, 31, 32, 33, 1000] {
            let low: Vec<u32> = (0..length).collect();
            let high: Vec<u32> = (length - 1..3 * length).collect();
            check(low.clone(), high.clone());
            check(high, low.clone());
            check(vec![7; length as usize], vec![7; 3 * length as usize]);
            check(low, vec![length / 2; 40 * length as usize]);
        }
    }

    proptest! {
        #[test]
        fn equal_words_keep_the_order_of_the_runs(
            one in prop::collection::vec(any::<u32>(), 0..600),
            other in prop::collection::vec(any::<u32>(), 0..600),
            keys in prop::sample::select(vec![1, 2, 10, 300, u32::MAX]),
            skew in 0_u32..3,
        ) {
            let narrow = |list: Vec<u32>, by: u32| -> Vec<u32> {
                list.into_iter().map(|key| (key % keys) >> by).collect()
            };
            check(narrow(one, 0), narrow(other, skew * 4));
        }

        #[test]
        fn no_word_is_lost_if_the_runs_are_not_sorted_or_the_order_is_none(
            words in prop::collection::vec(0..300_u32, 0..600),
            length_of_one in 0..600_usize,
            modulus in 1..300_u32,
            is_order in any::<bool>(),
        ) {
            let (one, other) = words.split_at(length_of_one.min(words.len()));
            let mut out = vec![u32::MAX; words.len()];
            merge_two(one, other, &mut out, |one, other| {
                if is_order { one < other } else { (one * 31 + other) % modulus < modulus / 2 }
            });
            let mut expected = words.clone();
            out.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(out, expected);
        }
    }
}

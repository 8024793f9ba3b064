//! Merging two runs of words, or of small entries that stand for records, from four places at once.
//!
//! A merge that decides by a branch mispredicts every other time on random data; one that turns each
//! comparison into an index waits for the load, the comparison and the addition of every step. So
//! the output is cut in the middle, and each half is made from both of its ends: four chains of
//! steps that do not depend on each other keep the processor busy. Its inner loop must never branch
//! on how a comparison came out.

use std::hint::select_unpredictable;

/// Shorter outputs are merged step by step.
const SHORT: usize = 32;

/// If one run is so many times longer than the other, it is copied in long pieces.
const LOPSIDED: usize = 16;

/// Who reads what a merge writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The next merge, from the cache.
    Soon,
    /// Somebody, when it is no longer in the cache.
    Late,
}

/// Merges two runs that are sorted in the order of `before` into `out`, which is as long as both; of
/// equal words those of `one` come first.
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
        merge_from_four_places(one, other, out, before);
    }
}

/// Puts the middle of the shorter run to its place; what is before and after it are two merges.
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
    // The middle is the first of its run now, and nothing comes before it.
    let (i, j) = if one.len() < other.len() {
        end[0] = one[i];
        (i + 1, j)
    } else {
        end[0] = other[j];
        (i, j + 1)
    };
    merge_two(&one[i..], &other[j..], &mut end[1..], before);
}

/// How many words of `one` are among the first `length` of the merged runs.
pub fn share_of_one<W: Copy>(
    one: &[W],
    other: &[W],
    length: usize,
    before: impl Fn(W, W) -> bool,
) -> usize {
    let (mut low, mut high) = (length.saturating_sub(other.len()), length.min(one.len()));
    while low < high {
        let middle = (low + high) / 2;
        let is_in = !before(other[length - middle - 1], one[middle]);
        low = select_unpredictable(is_in, middle + 1, low);
        high = select_unpredictable(is_in, high, middle);
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

/// Two cursors into the runs, which move up or down from a cut of the merged runs.
#[derive(Clone, Copy)]
struct Cursors {
    i: usize,
    j: usize,
}

impl Cursors {
    /// The next word upwards.
    #[inline(always)]
    fn up<W: Copy>(&mut self, one: &[W], other: &[W], before: impl Fn(W, W) -> bool) -> W {
        let (a, b) = (one[self.i], other[self.j]);
        let from_other = before(b, a);
        self.i += usize::from(!from_other);
        self.j += usize::from(from_other);
        select_unpredictable(from_other, b, a)
    }

    /// The next word downwards.
    #[inline(always)]
    fn down<W: Copy>(&mut self, one: &[W], other: &[W], before: impl Fn(W, W) -> bool) -> W {
        let (a, b) = (one[self.i - 1], other[self.j - 1]);
        let from_one = before(b, a);
        self.i -= usize::from(from_one);
        self.j -= usize::from(!from_one);
        select_unpredictable(from_one, a, b)
    }

    /// How many steps downwards stay within the runs, whatever the words are.
    fn room_below(self) -> usize {
        self.i.min(self.j)
    }
}

fn merge_from_four_places<W: Copy>(
    one: &[W],
    other: &[W],
    out: &mut [W],
    before: impl Fn(W, W) -> bool + Copy,
) {
    let middle = out.len() / 2;
    let i = share_of_one(one, other, middle, before);
    let cut = Cursors { i, j: middle - i };
    let mut from_start = Cursors { i: 0, j: 0 };
    let (mut below_cut, mut above_cut) = (cut, cut);
    let mut from_end = Cursors {
        i: one.len(),
        j: other.len(),
    };
    // No chain can leave the runs in so many steps; it may well cross the cut in one of them.
    let steps = (middle / 2)
        .min(one.len().min(other.len()))
        .min(cut.room_below())
        .min((one.len() - cut.i).min(other.len() - cut.j));
    let (lower, upper) = out.split_at_mut(middle);
    let (a, b) = ends_of(lower, steps);
    let (c, d) = ends_of(upper, steps);
    for (((a, b), c), d) in a
        .iter_mut()
        .zip(b.iter_mut().rev())
        .zip(c)
        .zip(d.iter_mut().rev())
    {
        *a = from_start.up(one, other, before);
        *b = below_cut.down(one, other, before);
        *c = above_cut.up(one, other, before);
        *d = from_end.down(one, other, before);
    }
    // Little is left in the middles of the halves, unless the data are skewed.
    let rest = |low: Cursors, high: Cursors, out: &mut [W]| {
        let left = out.len() - steps;
        merge_two(
            &one[low.i..high.i],
            &other[low.j..high.j],
            &mut out[steps..left],
            before,
        );
    };
    rest(from_start, below_cut, lower);
    rest(above_cut, from_end, upper);
}

/// The first and the last `length` words.
fn ends_of<W>(words: &mut [W], length: usize) -> (&mut [W], &mut [W]) {
    let (start, end) = words.split_at_mut(words.len() / 2);
    let skipped = end.len() - length;
    (&mut start[..length], &mut end[skipped..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Merges keys that are tagged by run and position, and expects a stable sort's result.
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
    fn runs_that_do_not_overlap_or_hardly_do() {
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
        fn equal_words_stay_in_the_order_of_the_runs(
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
    }
}

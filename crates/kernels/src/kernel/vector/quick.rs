//! A quicksort that partitions a register at a time, in place.
//!
//! Some registers are read from both ends first, which leaves room to write there. Then the next registers are read
//! from the side with less room. The words of each register that are less than the pivot are written to the left side
//! and the others to the right side, a whole register to each: there is always room for one. If a sample has several
//! words equal to the pivot, a second pass separates these, and they are not sorted further. If pivots are bad so often
//! that it cannot be chance, the sort of the standard library takes over, because its worst case is bounded.
//! This module must never allocate memory that grows with the block.

use std::hint::select_unpredictable;

use super::lanes::{AHEAD_BYTES, Lanes};
use super::network;
use crate::random::SplitMix;

/// The largest number of registers that are read at a time: a quarter of the registers of a sorting network, since a
/// partition needs three times as many.
const MOST_UNROLLED: usize = 4;

/// The smallest number of words for which the pivot is chosen from the larger sample.
const LONG: usize = 1 << 12;

/// A part of the words that is to be sorted.
#[derive(Clone, Copy, Default)]
struct Part {
    start: usize,
    length: usize,
    /// The number of times that it may still be divided.
    depth_limit: u32,
}

/// Returns how many times a block of `length` words may be divided before its pivots count as bad.
pub fn depth_limit(length: usize) -> u32 {
    2 * (length | 1).ilog2()
}

/// Sorts words in ascending order. No part is divided more than `depth_limit` times.
///
/// # Safety
/// The processor has such registers.
#[inline(always)]
pub unsafe fn sort<V: Lanes>(words: &mut [V::Word], depth_limit: u32) {
    let base = words.as_mut_ptr();
    let mut random = SplitMix::new(words.len() as u64);
    // The longer part waits while the shorter one is sorted, so that at most one part for each bit of a length waits.
    let mut waiting = [Part::default(); usize::BITS as usize];
    let mut waiting_count = 0;
    let mut part = Part {
        start: 0,
        length: words.len(),
        depth_limit,
    };
    loop {
        // SAFETY: every part lies within the words.
        let halves = unsafe { divide_part::<V>(base.add(part.start), part, &mut random) };
        let (shorter, longer) = match halves {
            [one, other] if one.length < other.length => (one, other),
            [one, other] => (other, one),
        };
        part = match (shorter.length, longer.length) {
            (0, 0) if waiting_count == 0 => return,
            (0, 0) => {
                waiting_count -= 1;
                waiting[waiting_count]
            }
            (0, _) => longer,
            _ => {
                waiting[waiting_count] = longer;
                waiting_count += 1;
                shorter
            }
        };
    }
}

/// Divides words by one of them, and returns two indices: all words before the first index are less than all words from
/// the second index on, and the words between are equal. `at`: the word at which they are divided; then both indices are the same. None: one of them.
///
/// # Safety
/// The processor has such registers.
#[inline(always)]
pub unsafe fn divide<V: Lanes>(words: &mut [V::Word], at: Option<V::Word>) -> [usize; 2] {
    let length = words.len();
    assert!(length > V::ROWS * V::LANES);
    let words = words.as_mut_ptr();
    // SAFETY: the caller's contract; enough words are partitioned.
    unsafe {
        let (pivot, has_equals) = match at {
            Some(word) => (V::splat(word), None),
            None => {
                let (pivot, has_equals) =
                    pivot::<V>(words, length, &mut SplitMix::new(length as u64));
                (pivot, Some(has_equals))
            }
        };
        divide_by::<V>(words, length, (pivot, has_equals))
    }
}

/// Divides words by a pivot, and returns indices as [`divide`] does. `has_equals`: whether the sample has the pivot more
/// than once; None: words equal to the pivot are not separated.
#[inline(always)]
unsafe fn divide_by<V: Lanes>(
    words: *mut V::Word,
    length: usize,
    (pivot, has_equals): (V, Option<bool>),
) -> [usize; 2] {
    // SAFETY: the caller's contract; enough words are partitioned.
    unsafe {
        let low = partition::<V, false>(words, length, pivot);
        // If no word is less than the pivot, only the second pass makes the part shorter.
        let separates_equals = has_equals.is_some_and(|has_equals| has_equals || low == 0)
            && length - low > V::ROWS * V::LANES;
        let done = if separates_equals {
            partition::<V, true>(words.add(low), length - low, pivot)
        } else {
            0
        };
        [low, low + done]
    }
}

/// Divides a part into two parts: all words of the first one are less than all words of the second one. Or sorts it,
/// and returns two empty parts.
#[inline(always)]
unsafe fn divide_part<V: Lanes>(
    words: *mut V::Word,
    part: Part,
    random: &mut SplitMix,
) -> [Part; 2] {
    let Part {
        start,
        length,
        depth_limit,
    } = part;
    // SAFETY: the caller's contract; enough words are partitioned.
    unsafe {
        if length <= V::ROWS * V::LANES {
            network::sort::<V>(words, length);
            return Default::default();
        }
        if depth_limit == 0 {
            std::slice::from_raw_parts_mut(words, length).sort_unstable();
            return Default::default();
        }
        let (pivot, has_equals) = pivot::<V>(words, length, random);
        let [low, equal] = divide_by::<V>(words, length, (pivot, Some(has_equals)));
        let part = |start, length| Part {
            start,
            length,
            depth_limit: depth_limit - 1,
        };
        [part(start, low), part(start + equal, length - equal)]
    }
}

/// Returns a word near the median in all lanes, and whether the sample has it more than once.
///
/// # Safety
/// The processor has such registers, and `length` words, at least a register of them, can be read. They need not be
/// aligned.
#[inline(always)]
pub unsafe fn pivot<V: Lanes>(
    words: *const V::Word,
    length: usize,
    random: &mut SplitMix,
) -> (V, bool) {
    // SAFETY: a register of words follows each of these starts.
    let mut some = || unsafe {
        let starts = length - V::LANES + 1;
        V::load(words.add(random.below(starts as u64) as usize))
    };
    let sample = if length >= LONG {
        median(
            median(some(), some(), some()),
            median(some(), some(), some()),
            median(some(), some(), some()),
        )
    } else {
        median(some(), some(), some())
    };
    // To sort the sample would take as long as to partition a few hundred words, as each step waits for the one before.
    // The median of three medians of three lanes is nearly as good.
    let medians = median(sample, sample.swap::<1>(), sample.swap::<2>());
    let pivot = median(medians, medians.swap::<4>(), medians.reversed()).first_everywhere();
    (pivot, sample.equals(pivot) > 1)
}

/// Returns the median in each lane.
#[inline(always)]
fn median<V: Lanes>(one: V, other: V, third: V) -> V {
    one.min(other).max(one.max(other).min(third))
}

/// Moves the words that are less than the pivot (or equal to it, if `UP_TO`) before the others, and returns how many
/// they are.
///
/// # Safety
/// The processor has such registers, and `length` words, more than `ROWS` registers of them, can be read and written.
#[inline(always)]
unsafe fn partition<V: Lanes, const UP_TO: bool>(
    words: *mut V::Word,
    length: usize,
    pivot: V,
) -> usize {
    let unrolled = V::ROWS / 4;
    let block = unrolled * V::LANES;
    debug_assert!(length >= 3 * block);
    let rest = length % V::LANES;
    let ahead = AHEAD_BYTES / size_of::<V::Word>();
    // SAFETY: all reads and writes are between both ends; see Cursors for the room to write.
    unsafe {
        // The words that have not been read are between these two.
        let (mut start, mut end) = (2 * block, length - rest - block);
        let first = read::<V>(words);
        let last = read::<V>(words.add(end));
        let mut next = read::<V>(words.add(block));
        let rest_words = V::load_first(words.add(length - rest), rest);
        let mut cursors = Cursors::between(words, 0, length);
        while end - start >= block {
            // The next registers are read before the last ones are written, so that the loads need not wait for the
            // stores.
            let from_start = start - cursors.left <= cursors.right() - end;
            let from = select_unpredictable(from_start, start, end - block);
            start += block * usize::from(from_start);
            end -= block * usize::from(!from_start);
            let later = select_unpredictable(
                from_start,
                from.wrapping_add(ahead),
                from.wrapping_sub(ahead),
            );
            for register in 0..unrolled {
                V::prefetch(words.wrapping_add(later.wrapping_add(register * V::LANES)));
            }
            let now = std::mem::replace(&mut next, read::<V>(words.add(from)));
            for register in &now[..unrolled] {
                cursors.put::<V, UP_TO>(*register, pivot);
            }
        }
        while start < end {
            let from_start = start - cursors.left <= cursors.right() - end;
            let from = select_unpredictable(from_start, start, end - V::LANES);
            start += V::LANES * usize::from(from_start);
            end -= V::LANES * usize::from(!from_start);
            cursors.put::<V, UP_TO>(V::load(words.add(from)), pivot);
        }
        let others = next[..unrolled].iter().chain(&first[..unrolled]);
        for register in others.chain(&last[1..unrolled]) {
            cursors.put::<V, UP_TO>(*register, pivot);
        }
        cursors.put_exactly::<V, UP_TO>(last[0], V::LANES, pivot);
        cursors.put_exactly::<V, UP_TO>(rest_words, rest, pivot);
        cursors.left
    }
}

/// Loads the registers that are read at a time.
#[inline(always)]
unsafe fn read<V: Lanes>(words: *const V::Word) -> [V; MOST_UNROLLED] {
    // SAFETY: the caller's contract.
    unsafe {
        let mut registers = [V::load(words); MOST_UNROLLED];
        for (index, register) in registers.iter_mut().enumerate().take(V::ROWS / 4) {
            *register = V::load(words.add(index * V::LANES));
        }
        registers
    }
}

/// The positions at which the next words are written: behind the words of the left side, and before those of the right
/// side.
///
/// The words that have not been read are in the gap between them and must not be overwritten. There is room for three
/// blocks in total, and the next block is read from the side with less room. So both sides have room for at least a
/// block, and for one register less after each register that is written. Once all words have been read, the gap is room
/// for both sides: for two whole registers, until one is left.
struct Cursors<W> {
    words: *mut W,
    left: usize,
    /// The number of words between the two sides. It shrinks by the number of words that are written to either side.
    gap: usize,
}

impl<W: Copy> Cursors<W> {
    /// Returns the cursors for words of which those before `left` and from `right` on are written.
    fn between(words: *mut W, left: usize, right: usize) -> Cursors<W> {
        Cursors {
            words,
            left,
            gap: right - left,
        }
    }

    #[inline(always)]
    fn right(&self) -> usize {
        self.left + self.gap
    }

    /// Writes the words of a register to both sides: a whole register to each, of which some words are overwritten
    /// later.
    #[inline(always)]
    unsafe fn put<V: Lanes<Word = W>, const UP_TO: bool>(&mut self, register: V, pivot: V) {
        let (low, to_left, to_right) = register.split::<UP_TO>(V::LANES, pivot);
        self.gap -= V::LANES;
        // SAFETY: there is room for a register on each side.
        unsafe {
            to_left.store(self.words.add(self.left));
            to_right.store(self.words.add(self.right()));
        }
        self.left += low;
    }

    /// Writes the first `count` words of a register to both sides, and no other words.
    ///
    /// # Safety
    /// There is room for `count` words between both sides.
    #[inline(always)]
    unsafe fn put_exactly<V: Lanes<Word = W>, const UP_TO: bool>(
        &mut self,
        register: V,
        count: usize,
        pivot: V,
    ) {
        let (low, to_left, to_right) = register.split::<UP_TO>(count, pivot);
        let end = self.right();
        self.gap -= count;
        // SAFETY: there is room for `count` words between the sides. A whole register that ends there may begin before
        // the first word, so that the pointer may wrap.
        unsafe {
            to_left.store_some(self.words.add(self.left), 0, low);
            let to = self.words.add(end).wrapping_sub(V::LANES);
            to_right.store_some(to, V::LANES - (count - low), V::LANES);
        }
        self.left += low;
    }
}

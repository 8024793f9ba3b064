//! Quicksort that partitions a register at a time, in place.
//!
//! Some registers at both ends are read first, which leaves room there. Then the side with less room
//! gives the next registers, and of each the words before the pivot go left and the others right, a
//! whole register to each side: there is always room for one. Where a sample shows words equal to the
//! pivot, these are put together and are done. Should the pivots be bad for so long that it cannot be
//! chance, the standard library's sort, whose worst case is bounded, takes over. It must never need
//! memory that grows with the block.

use std::hint::select_unpredictable;

use super::lanes::{AHEAD_BYTES, Lanes};
use super::network;
use crate::random::SplitMix;

/// At most so many registers are read at a time: a quarter of those that are sorted in registers, since
/// three times as many are partitioned at least.
const MOST_UNROLLED: usize = 4;

/// The pivot of a part with so many words comes from the larger sample.
const LONG: usize = 1 << 12;

/// A part of the words that is to be sorted.
#[derive(Clone, Copy, Default)]
struct Part {
    start: usize,
    length: usize,
    /// How often it may still be divided.
    timeout: u32,
}

/// How often a block of so many words may be divided, before its pivots count as bad ones.
pub fn timeout(length: usize) -> u32 {
    2 * (length | 1).ilog2()
}

/// Sorts words, ascending, dividing no part more often than `timeout` says.
///
/// # Safety
/// The processor has such registers.
#[inline(always)]
pub unsafe fn sort<V: Lanes>(words: &mut [V::Word], timeout: u32) {
    let base = words.as_mut_ptr();
    let mut random = SplitMix::new(words.len() as u64);
    // The longer part waits while the shorter one is sorted, so that there are never more than bits in
    // a length.
    let mut waiting = [Part::default(); usize::BITS as usize];
    let mut waiters = 0;
    let mut part = Part {
        start: 0,
        length: words.len(),
        timeout,
    };
    loop {
        // SAFETY: every part lies within the words.
        let halves = unsafe { divide::<V>(base.add(part.start), part, &mut random) };
        let (shorter, longer) = match halves {
            [one, other] if one.length < other.length => (one, other),
            [one, other] => (other, one),
        };
        part = match (shorter.length, longer.length) {
            (0, 0) if waiters == 0 => return,
            (0, 0) => {
                waiters -= 1;
                waiting[waiters]
            }
            (0, _) => longer,
            _ => {
                waiting[waiters] = longer;
                waiters += 1;
                shorter
            }
        };
    }
}

/// Puts words around one of them: all of the first so many are before all from the second place on, and
/// those between are equal.
///
/// # Safety
/// The processor has such registers.
#[inline(always)]
pub unsafe fn divided<V: Lanes>(words: &mut [V::Word]) -> [usize; 2] {
    let length = words.len();
    assert!(length > V::ROWS * V::LANES);
    let whole = Part {
        start: 0,
        length,
        timeout: 1,
    };
    let mut random = SplitMix::new(length as u64);
    // SAFETY: the part is all words.
    let [low, high] = unsafe { divide::<V>(words.as_mut_ptr(), whole, &mut random) };
    [low.length, high.start]
}

/// Divides a part into two, all words of one before all of the other, or sorts it: both are empty
/// then.
#[inline(always)]
unsafe fn divide<V: Lanes>(words: *mut V::Word, part: Part, random: &mut SplitMix) -> [Part; 2] {
    let Part {
        start,
        length,
        timeout,
    } = part;
    // SAFETY: as promised by the caller; partition() is called for enough words only.
    unsafe {
        if length <= V::ROWS * V::LANES {
            network::sort::<V>(words, length);
            return Default::default();
        }
        if timeout == 0 {
            std::slice::from_raw_parts_mut(words, length).sort_unstable();
            return Default::default();
        }
        let (pivot, has_equals) = pivot::<V>(words, length, random);
        let low = partition::<V, false>(words, length, pivot);
        // With no word before the pivot there would be no end of it otherwise.
        let done = match has_equals || low == 0 {
            true if length - low > V::ROWS * V::LANES => {
                partition::<V, true>(words.add(low), length - low, pivot)
            }
            _ => 0,
        };
        let part = |start, length| Part {
            start,
            length,
            timeout: timeout - 1,
        };
        let equal = low + done;
        [part(start, low), part(start + equal, length - equal)]
    }
}

/// A word that about as many are before as after, in all lanes, and whether it seems to be there several
/// times.
///
/// # Safety
/// The processor has such registers; so many words, a register of them at least, can be read, and need not be
/// aligned.
#[inline(always)]
pub unsafe fn pivot<V: Lanes>(
    words: *const V::Word,
    length: usize,
    random: &mut SplitMix,
) -> (V, bool) {
    // SAFETY: a register is read at a place that has as many words behind it.
    let mut some = || unsafe {
        let places = length - V::LANES + 1;
        V::load(words.add(random.below(places as u64) as usize))
    };
    let sample = match length >= LONG {
        true => median(
            median(some(), some(), some()),
            median(some(), some(), some()),
            median(some(), some(), some()),
        ),
        false => median(some(), some(), some()),
    };
    // To sort the sample takes as long as to partition a few hundred words, since each step waits for the
    // one before. The median of three medians of three lanes is nearly as good.
    let medians = median(sample, sample.swap::<1>(), sample.swap::<2>());
    let pivot = median(medians, medians.swap::<4>(), medians.reversed()).first_everywhere();
    (pivot, sample.equals(pivot) > 1)
}

/// The median in each lane.
#[inline(always)]
fn median<V: Lanes>(one: V, other: V, third: V) -> V {
    one.min(other).max(one.max(other).min(third))
}

/// Puts the words before the pivot (`UP_TO`: and those equal to it) before the others, and returns how
/// many they are.
///
/// # Safety
/// The processor has such registers; there are more than `ROWS` registers of words.
#[inline(always)]
unsafe fn partition<V: Lanes, const UP_TO: bool>(
    words: *mut V::Word,
    length: usize,
    pivot: V,
) -> usize {
    let unrolled = V::ROWS / 4;
    let block = unrolled * V::LANES;
    debug_assert!(length >= 3 * block);
    let odd = length % V::LANES;
    let ahead = AHEAD_BYTES / size_of::<V::Word>();
    // SAFETY: what is read or written lies between both ends; see Cursors for the room to write.
    unsafe {
        // Words to be read are between these two.
        let (mut start, mut end) = (2 * block, length - odd - block);
        let first = read::<V>(words);
        let last = read::<V>(words.add(end));
        let mut next = read::<V>(words.add(block));
        let odd_words = V::load_first(words.add(length - odd), odd);
        let mut sides = Cursors::between(words, 0, length);
        while end - start >= block {
            // Read before the last ones have been put, which need not be waited for then.
            let from_start = start - sides.left <= sides.right() - end;
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
                sides.put::<V, UP_TO>(*register, pivot);
            }
        }
        while start < end {
            let from_start = start - sides.left <= sides.right() - end;
            let from = select_unpredictable(from_start, start, end - V::LANES);
            start += V::LANES * usize::from(from_start);
            end -= V::LANES * usize::from(!from_start);
            sides.put::<V, UP_TO>(V::load(words.add(from)), pivot);
        }
        let others = next[..unrolled].iter().chain(&first[..unrolled]);
        for register in others.chain(&last[1..unrolled]) {
            sides.put::<V, UP_TO>(*register, pivot);
        }
        sides.put_exactly::<V, UP_TO>(last[0], V::LANES, pivot);
        sides.put_exactly::<V, UP_TO>(odd_words, odd, pivot);
        sides.left
    }
}

/// As many registers as are read at a time.
#[inline(always)]
unsafe fn read<V: Lanes>(words: *const V::Word) -> [V; MOST_UNROLLED] {
    // SAFETY: as promised by the caller.
    unsafe {
        let mut registers = [V::load(words); MOST_UNROLLED];
        for (index, register) in registers.iter_mut().enumerate().take(V::ROWS / 4) {
            *register = V::load(words.add(index * V::LANES));
        }
        registers
    }
}

/// Where the next words go: on the left behind those that are there, on the right before them.
///
/// What was not read yet lies in the gap between them and must not be written. Of room for three blocks
/// in all, the side with less gets one more by reading, so that both have room for a block at least,
/// and for a register less after each that is put. Once all has been read, the gap is room for both
/// sides: for two whole registers, until one is left.
pub struct Cursors<W> {
    words: *mut W,
    left: usize,
    /// From the left to the right side: it shrinks by what is put, wherever that goes.
    gap: usize,
}

impl<W: Copy> Cursors<W> {
    /// Those of words that are there already: before `left`, and from `right` on.
    pub fn between(words: *mut W, left: usize, right: usize) -> Cursors<W> {
        Cursors {
            words,
            left,
            gap: right - left,
        }
    }

    /// How many words are on the left side.
    pub fn left(&self) -> usize {
        self.left
    }

    #[inline(always)]
    fn right(&self) -> usize {
        self.left + self.gap
    }

    /// Puts the words of a register to both sides: as many as it has are written to each, of which
    /// some do not count.
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

    /// Puts the first `count` words of a register to both sides, and writes nothing else.
    ///
    /// # Safety
    /// There is room for so many between both sides.
    #[inline(always)]
    pub unsafe fn put_exactly<V: Lanes<Word = W>, const UP_TO: bool>(
        &mut self,
        register: V,
        count: usize,
        pivot: V,
    ) {
        let (low, to_left, to_right) = register.split::<UP_TO>(count, pivot);
        let end = self.right();
        self.gap -= count;
        // SAFETY: there is room for so many words between the sides. A whole register that ends there may
        // begin before all words.
        unsafe {
            to_left.store_some(self.words.add(self.left), 0, low);
            let to = self.words.add(end).wrapping_sub(V::LANES);
            to_right.store_some(to, V::LANES - (count - low), V::LANES);
        }
        self.left += low;
    }
}

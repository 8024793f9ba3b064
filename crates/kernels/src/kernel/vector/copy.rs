//! Copies words and divides them on the way: the first pass of a quicksort, without reading and writing the words once
//! more.
//!
//! The words for each end of the copy are collected in a stage in the cache, and are written in whole cache lines that
//! bypass it: a cache would read these lines first, although they are overwritten. This module must never write words
//! that it has not read.

use std::ops::Range;
use std::slice;

use super::lanes::{AHEAD_BYTES, Lanes, MOST_LANES};
use super::quick::pivot;
use crate::kernel::Visitor;
use crate::random::SplitMix;

/// The number of words that are collected for each end.
const STAGED: usize = 512;

/// The visitor is called after this many bytes have been copied: they are in a first-level cache then.
const VISIT_BYTES: usize = 1 << 14;

/// The number of registers that are divided between two checks whether a stage is full.
const AT_ONCE: usize = 4;

/// The capacity of a stage in words: room for the registers that are divided between two checks, and for the rest of
/// the last register that is written.
const CAPACITY: usize = STAGED + (AT_ONCE + 1) * MOST_LANES;

/// Words on their way to one end of the copy.
#[repr(align(64))]
struct Stage<W>([W; CAPACITY]);

/// The copy, the stages of its two ends, and the numbers of words in each of them. Both stages are filled towards the
/// middle, as the copy is.
struct Stages<W> {
    low: *mut W,
    high: *mut W,
    lows: usize,
    highs: usize,
    out: *mut W,
    length: usize,
    left: usize,
    right: usize,
}

impl<W: Copy> Stages<W> {
    /// Puts the first `count` words of a register into the stages. The last register of the stages must have room.
    #[inline(always)]
    unsafe fn put<V: Lanes<Word = W>>(&mut self, register: V, count: usize, pivot: V) {
        let (low, to_low, to_high) = register.split::<false>(count, pivot);
        // SAFETY: there is room for the register in both stages. The high words are its last ones.
        unsafe {
            to_low.store(self.low.add(self.lows));
            to_high.store(self.high.add(CAPACITY - self.highs - V::LANES));
        }
        self.lows += low;
        self.highs += count - low;
    }

    /// Writes the stages that are full.
    #[inline(always)]
    unsafe fn write_full<V: Lanes<Word = W>>(&mut self) {
        // SAFETY: the words that have not been written have room between both ends of the copy.
        unsafe {
            if self.lows >= STAGED {
                for at in (0..STAGED).step_by(V::LANES) {
                    V::load(self.low.add(at)).store_bypassing(self.out.add(self.left + at));
                }
                self.left += STAGED;
                self.lows -= STAGED;
                std::ptr::copy(self.low.add(STAGED), self.low, self.lows);
            }
            if self.highs >= STAGED {
                for at in (0..STAGED).step_by(V::LANES) {
                    let register = V::load(self.high.add(CAPACITY - STAGED + at));
                    let to = self.right - STAGED + at;
                    let target = self.out.add(to);
                    if to + V::LANES <= self.length {
                        register.store_bypassing(target);
                    } else {
                        register.store_some(target, 0, self.length - to);
                    }
                }
                self.right -= STAGED;
                self.highs -= STAGED;
                let rest = CAPACITY - STAGED - self.highs;
                let to = self.high.add(CAPACITY - self.highs);
                std::ptr::copy(self.high.add(rest), to, self.highs);
            }
        }
    }

    /// Writes the words that are left, and returns how many words the low end has.
    unsafe fn write_rest<V: Lanes<Word = W>>(self) -> usize {
        V::fence();
        let end = self.right.min(self.length);
        let highs = self.highs - (self.right - end);
        let rest = CAPACITY - (self.right - end) - highs;
        // SAFETY: all words have been put into the stages, and those that are left fill the copy.
        unsafe {
            std::ptr::copy_nonoverlapping(self.low, self.out.add(self.left), self.lows);
            std::ptr::copy_nonoverlapping(self.high.add(rest), self.out.add(end - highs), highs);
        }
        self.left + self.lows
    }
}

/// Copies the words of runs to `out`, one run after the other, and divides them. Returns an index: all words of the copy
/// before it are less than all others. `visit` is called with the bytes of the words in their original order.
///
/// # Safety
/// The processor has such registers. The runs have as many words as `out`, and one has at least a register of them; they
/// need not be aligned. `out` begins at a cache line.
#[inline(always)]
pub unsafe fn copy_divided<V: Lanes>(
    runs: &[&[u8]],
    out: &mut [V::Word],
    visit: &mut Visitor,
) -> usize {
    let length = out.len();
    let size = size_of::<V::Word>();
    let block = AT_ONCE * V::LANES;
    let ahead = AHEAD_BYTES / size;
    let longest = runs
        .iter()
        .max_by_key(|run| run.len())
        .copied()
        .unwrap_or_default();
    // SAFETY: all reads and writes are within the words, the stages and the copy.
    unsafe {
        let mut random = SplitMix::new(length as u64);
        let (pivot, _) = pivot::<V>(longest.as_ptr().cast(), longest.len() / size, &mut random);
        let mut low = Stage([V::LAST; CAPACITY]);
        let mut high = Stage([V::LAST; CAPACITY]);
        // The lanes of the last register that are behind the copy count as filled from the beginning, so that all other
        // registers are stored as a whole.
        let behind = length.next_multiple_of(V::LANES) - length;
        let mut stages = Stages {
            low: low.0.as_mut_ptr(),
            high: high.0.as_mut_ptr(),
            lows: 0,
            highs: behind,
            out: out.as_mut_ptr(),
            length,
            left: 0,
            right: length + behind,
        };
        for run in runs {
            let words: *const V::Word = run.as_ptr().cast();
            let length = run.len() / size;
            let (mut from, mut visited) = (0, 0);
            while from < length {
                if length - from >= block {
                    for register in 0..AT_ONCE {
                        V::prefetch(words.wrapping_add(from + ahead + register * V::LANES));
                    }
                    for register in 0..AT_ONCE {
                        let register = V::load(words.add(from + register * V::LANES));
                        stages.put(register, V::LANES, pivot);
                    }
                    from += block;
                } else {
                    let count = V::LANES.min(length - from);
                    stages.put(V::load_first(words.add(from), count), count, pivot);
                    from += count;
                }
                if size * (from - visited) >= VISIT_BYTES || from == length {
                    visit_words::<V>(words, visited..from, visit);
                    visited = from;
                }
                stages.write_full::<V>();
            }
        }
        stages.write_rest::<V>()
    }
}

/// Calls the visitor with the bytes of words.
///
/// # Safety
/// The words can be read.
unsafe fn visit_words<V: Lanes>(words: *const V::Word, range: Range<usize>, visit: &mut Visitor) {
    // SAFETY: the caller's contract.
    let words = unsafe {
        slice::from_raw_parts(
            words.add(range.start).cast(),
            size_of::<V::Word>() * range.len(),
        )
    };
    visit(words);
}

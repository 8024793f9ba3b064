//! Copies words and divides them on the way: the first pass of a quicksort, without reading and writing the words once
//! more.
//!
//! The words for each end of the copy are collected in a stage in the cache, and are written in whole cache lines that
//! bypass it: a cache would read these lines first, although they are overwritten. This module must never write words
//! that it has not read.

use std::ops::Range;
use std::slice;

use super::lanes::{AHEAD_BYTES, Lanes, MOST_LANES};
use super::quick::{Cursors, pivot};
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

/// Copies words to `out` and divides them. Returns an index: all words of the copy before it are less than all others.
/// `visit` is called with the bytes of the words in their original order.
///
/// # Safety
/// The processor has such registers. As many words as `out` has, at least a register of them, can be read at `words`;
/// they need not be aligned. `out` begins at a cache line.
#[inline(always)]
pub unsafe fn copy_divided<V: Lanes>(
    words: *const V::Word,
    out: &mut [V::Word],
    visit: &mut Visitor,
) -> usize {
    let length = out.len();
    let block = AT_ONCE * V::LANES;
    let ahead = AHEAD_BYTES / size_of::<V::Word>();
    // SAFETY: all reads and writes are within the words, the stages and the copy.
    unsafe {
        let (pivot, _) = pivot::<V>(words, length, &mut SplitMix::new(length as u64));
        let mut low = Stage([V::LAST; CAPACITY]);
        let mut high = Stage([V::LAST; CAPACITY]);
        let (low, high) = (low.0.as_mut_ptr(), high.0.as_mut_ptr());
        // Both stages are filled towards the middle, as the copy is. The lanes of the last register that are behind the
        // copy count as filled from the beginning, so that all other registers are stored as a whole.
        let behind = length.next_multiple_of(V::LANES) - length;
        let (mut lows, mut highs) = (0, behind);
        let (mut left, mut right) = (0, length + behind);
        let (mut from, mut visited) = (0, 0);
        while length - from >= block {
            for register in 0..AT_ONCE {
                V::prefetch(words.wrapping_add(from + ahead + register * V::LANES));
            }
            for register in 0..AT_ONCE {
                let register = V::load(words.add(from + register * V::LANES));
                let (count, to_low, to_high) = register.split::<false>(V::LANES, pivot);
                highs += V::LANES - count;
                to_low.store(low.add(lows));
                // The high words are the last ones of the register.
                to_high.store(high.add(CAPACITY - highs - count));
                lows += count;
            }
            from += block;
            if size_of::<V::Word>() * (from - visited) >= VISIT_BYTES {
                visit_words::<V>(words, visited..from, visit);
                visited = from;
            }
            if lows >= STAGED {
                for at in (0..STAGED).step_by(V::LANES) {
                    V::load(low.add(at)).store_bypassing(out.as_mut_ptr().add(left + at));
                }
                left += STAGED;
                lows -= STAGED;
                std::ptr::copy(low.add(STAGED), low, lows);
            }
            if highs >= STAGED {
                for at in (0..STAGED).step_by(V::LANES) {
                    let register = V::load(high.add(CAPACITY - STAGED + at));
                    let to = right - STAGED + at;
                    let target = out.as_mut_ptr().add(to);
                    if to + V::LANES <= length {
                        register.store_bypassing(target);
                    } else {
                        register.store_some(target, 0, length - to);
                    }
                }
                right -= STAGED;
                highs -= STAGED;
                let rest = CAPACITY - STAGED - highs;
                std::ptr::copy(high.add(rest), high.add(CAPACITY - highs), highs);
            }
        }
        V::fence();
        visit_words::<V>(words, visited..length, visit);
        let end = right.min(length);
        let highs = highs - (right - end);
        std::ptr::copy_nonoverlapping(low, out.as_mut_ptr().add(left), lows);
        let rest = CAPACITY - (right - end) - highs;
        std::ptr::copy_nonoverlapping(high.add(rest), out.as_mut_ptr().add(end - highs), highs);
        let mut cursors = Cursors::between(out.as_mut_ptr(), left + lows, end - highs);
        while from < length {
            let count = V::LANES.min(length - from);
            let register = V::load_first(words.add(from), count);
            cursors.put_exactly::<V, false>(register, count, pivot);
            from += count;
        }
        cursors.left()
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

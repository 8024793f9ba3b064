//! A copy that is divided on the way: the first pass of a quicksort, for which the words need not be read
//! and written once more.
//!
//! Words for each end of the copy are put together in the cache, and go on in whole lines past it: it
//! would read these lines only for them to be overwritten. It must never write what was not read.

use std::ops::Range;
use std::slice;

use super::lanes::{AHEAD_BYTES, Lanes, MOST_LANES};
use super::quick::{Cursors, pivot};
use crate::kernel::Seen;
use crate::random::SplitMix;

/// So many words are put together for each end.
const STAGED: usize = 512;

/// So many bytes are shown once they are copied: they are in a first-level cache still.
const SHOWN_BYTES: usize = 1 << 14;

/// As many registers as are divided before it is looked whether so many are there.
const AT_ONCE: usize = 4;

/// With room for words beyond `STAGED` that come at once, and for the register that is written with the last
/// of them.
const ROOM: usize = STAGED + (AT_ONCE + 1) * MOST_LANES;

/// Words on their way to one end of the copy.
#[repr(align(64))]
struct Stage<W>([W; ROOM]);

/// Copies words to `out`, which is as long, and returns a number of them: so many of the copies come before
/// all others. `seen` is shown the words' bytes, from the first to the last.
///
/// # Safety
/// The processor has such registers; as many words as `out` has, at least a register of them, can be read,
/// which need not be aligned. `out` begins at a cache line.
#[inline(always)]
pub unsafe fn divided_copy<V: Lanes>(
    words: *const V::Word,
    out: &mut [V::Word],
    seen: &mut Seen,
) -> usize {
    let length = out.len();
    let block = AT_ONCE * V::LANES;
    let ahead = AHEAD_BYTES / size_of::<V::Word>();
    // SAFETY: what is read or written lies within the words, the stages and the copy.
    unsafe {
        let (pivot, _) = pivot::<V>(words, length, &mut SplitMix::new(length as u64));
        let mut low = Stage([V::LAST; ROOM]);
        let mut high = Stage([V::LAST; ROOM]);
        let (low, high) = (low.0.as_mut_ptr(), high.0.as_mut_ptr());
        // Both stages are filled towards the middle, as the copy is. What would be behind the copy in its
        // last register counts as there from the beginning, so that all others can be stored whole.
        let behind = length.next_multiple_of(V::LANES) - length;
        let (mut lows, mut highs) = (0, behind);
        let (mut left, mut right) = (0, length + behind);
        let (mut from, mut shown) = (0, 0);
        while length - from >= block {
            for register in 0..AT_ONCE {
                V::prefetch(words.wrapping_add(from + ahead + register * V::LANES));
            }
            for register in 0..AT_ONCE {
                let register = V::load(words.add(from + register * V::LANES));
                let (count, to_low, to_high) = register.split::<false>(V::LANES, pivot);
                highs += V::LANES - count;
                to_low.store(low.add(lows));
                // The words of this register that are no high ones lie before those that are.
                to_high.store(high.add(ROOM - highs - count));
                lows += count;
            }
            from += block;
            if size_of::<V::Word>() * (from - shown) >= SHOWN_BYTES {
                show::<V>(words, shown..from, seen);
                shown = from;
            }
            if lows >= STAGED {
                for at in (0..STAGED).step_by(V::LANES) {
                    V::load(low.add(at)).store_past(out.as_mut_ptr().add(left + at));
                }
                left += STAGED;
                lows -= STAGED;
                std::ptr::copy(low.add(STAGED), low, lows);
            }
            if highs >= STAGED {
                for at in (0..STAGED).step_by(V::LANES) {
                    let register = V::load(high.add(ROOM - STAGED + at));
                    let to = right - STAGED + at;
                    match to + V::LANES <= length {
                        true => register.store_past(out.as_mut_ptr().add(to)),
                        false => register.store_some(out.as_mut_ptr().add(to), 0, length - to),
                    }
                }
                right -= STAGED;
                highs -= STAGED;
                let rest = ROOM - STAGED - highs;
                std::ptr::copy(high.add(rest), high.add(ROOM - highs), highs);
            }
        }
        V::settle();
        show::<V>(words, shown..length, seen);
        let end = right.min(length);
        let highs = highs - (right - end);
        std::ptr::copy_nonoverlapping(low, out.as_mut_ptr().add(left), lows);
        let rest = ROOM - (right - end) - highs;
        std::ptr::copy_nonoverlapping(high.add(rest), out.as_mut_ptr().add(end - highs), highs);
        let mut sides = Cursors::between(out.as_mut_ptr(), left + lows, end - highs);
        while from < length {
            let count = V::LANES.min(length - from);
            let register = V::load_first(words.add(from), count);
            sides.put_exactly::<V, false>(register, count, pivot);
            from += count;
        }
        sides.left()
    }
}

/// Shows words.
///
/// # Safety
/// They can be read.
unsafe fn show<V: Lanes>(words: *const V::Word, range: Range<usize>, seen: &mut Seen) {
    // SAFETY: as promised by the caller.
    let words = unsafe {
        slice::from_raw_parts(
            words.add(range.start).cast(),
            size_of::<V::Word>() * range.len(),
        )
    };
    seen(words);
}

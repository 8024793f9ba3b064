//! Sorting and merging words of 32 or 64 bits with the vector instructions of the processor at hand.
//!
//! Sorting is a quicksort that partitions a vector at a time in place (Bramas 2017, "A Novel Hybrid
//! Quicksort Algorithm Vectorized using AVX-512"), down to a few hundred words, which a sorting
//! network takes in registers (Wassenberg et al. 2022, "Vectorized and performance-portable
//! Quicksort"). Merging is the bitonic merge of Chhugani et al. 2008, on several pairs of runs in
//! turns. Whether the processor can is asked when a block is sorted, not when the library is built:
//! where it cannot, the caller has other ways. Products of records for digests are here, too. It must
//! never look at what a word stands for.

use crate::buffer::ALIGNMENT;
use crate::kernel::Seen;
use crate::kernel::pair::Reader;
use crate::kernel::pool::{TASKS_PER_THREAD, both, width};
use crate::record::{Sign, Word};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod chains;
mod copy;
mod lanes;
mod network;
mod product;
mod quick;
#[cfg(test)]
mod tests;

pub use product::factors;
pub use quick::timeout;

/// The instructions that a processor may have, the best ones last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
enum Level {
    Avx2,
    Avx512,
}

/// The best that the processor here has.
fn level() -> Option<Level> {
    #[cfg(target_arch = "x86_64")]
    {
        if avx512::is_there() {
            return Some(Level::Avx512);
        }
        if avx2::is_there() {
            return Some(Level::Avx2);
        }
    }
    None
}

impl Level {
    /// Can such words be sorted and merged with it?
    fn knows<W: Word>(self) -> bool {
        match self {
            Level::Avx2 => W::BITS == 32,
            Level::Avx512 => W::BITS >= 32,
        }
    }
}

/// Is there a processor here that can do this for such words?
pub fn is_available<W: Word>() -> bool {
    level().is_some_and(Level::knows::<W>)
}

/// Sorts words, ascending, which are no floats' bits. There must be a processor that can.
pub fn sort<W: Word>(words: &mut [W], sign: Sign) {
    let timeout = timeout(words.len());
    sort_at(level(), words, sign, timeout);
}

/// Sorts words with these instructions, which must be there, dividing no part more often than
/// `timeout` says.
fn sort_at<W: Word>(level: Option<Level>, words: &mut [W], sign: Sign, timeout: u32) {
    match level {
        // SAFETY: the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Some(Level::Avx512) => unsafe { avx512::sort(words, sign, timeout) },
        // SAFETY: as before.
        #[cfg(target_arch = "x86_64")]
        Some(Level::Avx2) => unsafe { avx2::sort(words, sign, timeout) },
        _ => unreachable!("no vector instructions, {sign:?}, timeout {timeout}"),
    }
}

/// Divides words until there are parts enough for the threads of the pool that this is called in, and has
/// each of them sorted by `sort`. There must be a processor that can.
pub fn sort_on_threads<W: Word>(words: &mut [W], sign: Sign, sort: &(dyn Fn(&mut [W]) + Sync)) {
    const LEAST: usize = 1 << 16;
    let least = words.len() / (TASKS_PER_THREAD * width());
    let timeout = timeout(words.len());
    sort_parts_at(level(), words, sign, least.max(LEAST), timeout, sort);
}

/// Divides words until there are so few of them, and sorts both parts at the same time.
fn sort_parts_at<W: Word>(
    level: Option<Level>,
    words: &mut [W],
    sign: Sign,
    least: usize,
    timeout: u32,
    sort: &(dyn Fn(&mut [W]) + Sync),
) {
    if words.len() <= least || timeout == 0 {
        return sort(words);
    }
    let [low, high] = divided_at(level, words, sign);
    let (lower, rest) = words.split_at_mut(low);
    let upper = &mut rest[high - low..];
    both(
        &mut || sort_parts_at(level, lower, sign, least, timeout - 1, sort),
        &mut || sort_parts_at(level, upper, sign, least, timeout - 1, sort),
    );
}

/// Puts words around one of them: all of the first so many are before all from the second place on, and
/// those between are equal. There must be a processor that can, and some hundred words.
pub fn divided<W: Word>(words: &mut [W], sign: Sign) -> [usize; 2] {
    divided_at(level(), words, sign)
}

/// Divides with these instructions, which must be there.
fn divided_at<W: Word>(level: Option<Level>, words: &mut [W], sign: Sign) -> [usize; 2] {
    match level {
        // SAFETY: the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Some(Level::Avx512) => unsafe { avx512::divided(words, sign) },
        // SAFETY: as before.
        #[cfg(target_arch = "x86_64")]
        Some(Level::Avx2) => unsafe { avx2::divided(words, sign) },
        _ => unreachable!("no vector instructions, {sign:?}, {} words", words.len()),
    }
}

/// Copies words, which are given by their bytes, to where a cache line begins, and returns a number of them:
/// so many of the copies come before all others. There must be a processor that can, and some hundred
/// words. `seen` is shown the words' bytes, from the first to the last.
pub fn divided_copy<W: Word>(words: &[u8], out: &mut [W], sign: Sign, seen: &mut Seen) -> usize {
    divided_copy_at(level(), words, out, sign, seen)
}

/// Copies with these instructions, which must be there.
fn divided_copy_at<W: Word>(
    level: Option<Level>,
    words: &[u8],
    out: &mut [W],
    sign: Sign,
    seen: &mut Seen,
) -> usize {
    assert_eq!(words.len(), size_of_val(out));
    assert!(out.len() >= lanes::MOST_LANES && out.as_ptr().align_offset(ALIGNMENT) == 0);
    match level {
        // SAFETY: the processor has these instructions; enough words, and where they go, are there.
        #[cfg(target_arch = "x86_64")]
        Some(Level::Avx512) => unsafe { avx512::divided_copy(words, out, sign, seen) },
        // SAFETY: as before.
        #[cfg(target_arch = "x86_64")]
        Some(Level::Avx2) => unsafe { avx2::divided_copy(words, out, sign, seen) },
        _ => unreachable!("no vector instructions, {sign:?}, {} words", out.len()),
    }
}

/// Merges two sorted runs into `out`, which is as long as both, for a reader. There must be a processor
/// that can.
pub fn merge_two<W: Word>(one: &[W], other: &[W], out: &mut [W], sign: Sign, reader: Reader) {
    merge_two_at(level(), one, other, out, sign, reader);
}

/// Merges with these instructions, which must be there.
fn merge_two_at<W: Word>(
    level: Option<Level>,
    one: &[W],
    other: &[W],
    out: &mut [W],
    sign: Sign,
    reader: Reader,
) {
    assert_eq!(one.len() + other.len(), out.len());
    match level {
        // SAFETY: the processor has these instructions, and the lengths fit.
        #[cfg(target_arch = "x86_64")]
        Some(Level::Avx512) => unsafe { avx512::merge_two(one, other, out, sign, reader) },
        // SAFETY: as before.
        #[cfg(target_arch = "x86_64")]
        Some(Level::Avx2) => unsafe { avx2::merge_two(one, other, out, sign, reader) },
        _ => unreachable!("no vector instructions, {sign:?}, {reader:?}"),
    }
}

//! Sorts and merges words of 32 or 64 bits with the vector instructions of the processor.
//!
//! The sort is a quicksort that partitions a register at a time in place (Bramas 2017, "A Novel Hybrid Quicksort
//! Algorithm Vectorized using AVX-512"), down to a few hundred words, which a network sorts in registers (Wassenberg et
//! al. 2022, "Vectorized and performance-portable Quicksort"). The merge is the bitonic merge of Chhugani et al. 2008,
//! on several pairs of runs in turns. The instructions are detected when a block is sorted, not when the library is
//! built; callers have other algorithms for processors without them. The products of records for digests are computed
//! here, too. This module must never depend on the meaning of a word.

use crate::buffer::ALIGNMENT;
use crate::kernel::Visitor;
use crate::kernel::pair::Destination;
use crate::kernel::pool::{TASKS_PER_THREAD, current_threads, join};
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
pub use quick::depth_limit;

/// Sets of vector instructions, the best one last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
enum Level {
    Avx2,
    Avx512,
}

/// Returns the best instructions that this processor has.
fn level() -> Option<Level> {
    #[cfg(target_arch = "x86_64")]
    {
        if avx512::is_supported() && is_enabled(Level::Avx512) {
            return Some(Level::Avx512);
        }
        if avx2::is_supported() && is_enabled(Level::Avx2) {
            return Some(Level::Avx2);
        }
    }
    None
}

#[cfg(all(target_arch = "x86_64", test))]
use tests::is_enabled;

/// Tests can disable instructions.
#[cfg(all(target_arch = "x86_64", not(test)))]
const fn is_enabled(_: Level) -> bool {
    true
}

impl Level {
    /// Returns whether these instructions sort and merge such words.
    fn supports<W: Word>(self) -> bool {
        match self {
            Level::Avx2 => W::BITS == 32,
            Level::Avx512 => W::BITS >= 32,
        }
    }
}

/// Calls an entry point with the instructions of a level, which the processor must have.
macro_rules! at_level {
    ($level:ident, $function:ident($($argument:ident),*)) => {
        match $level {
            #[cfg(target_arch = "x86_64")]
            Some(Level::Avx512) => {
                // SAFETY: the processor has these instructions, and the caller has checked the arguments.
                unsafe { avx512::$function($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            Some(Level::Avx2) => {
                // SAFETY: as above.
                unsafe { avx2::$function($($argument),*) }
            }
            _ => {
                // Other processors do not use the arguments.
                let _ = ($(&$argument,)*);
                unreachable!("no vector instructions")
            }
        }
    };
}

/// Returns whether this processor can sort and merge such words. The other functions of this module need that.
pub fn is_available<W: Word>() -> bool {
    level().is_some_and(Level::supports::<W>)
}

/// Sorts words in ascending order. They must not be the bits of floating-point numbers.
pub fn sort<W: Word>(words: &mut [W], sign: Sign) {
    let depth_limit = depth_limit(words.len());
    sort_at(level(), words, sign, depth_limit);
}

/// Sorts words with the instructions of `level`, which the processor must have. No part is divided more than
/// `depth_limit` times.
fn sort_at<W: Word>(level: Option<Level>, words: &mut [W], sign: Sign, depth_limit: u32) {
    at_level!(level, sort(words, sign, depth_limit))
}

/// The number of words up to which one thread sorts alone.
pub const LEAST_OF_THREAD: usize = 1 << 16;

/// Divides words until there are enough parts for the threads of the pool that the caller's thread belongs to, and
/// sorts each part with `sort`.
pub fn sort_on_threads<W: Word>(words: &mut [W], sign: Sign, sort: &(dyn Fn(&mut [W]) + Sync)) {
    let share = words.len() / (TASKS_PER_THREAD * current_threads());
    let least = share.max(LEAST_OF_THREAD);
    let depth_limit = depth_limit(words.len());
    sort_parts_at(level(), words, sign, least, depth_limit, sort);
}

/// Sorts both parts of divided words at the same time, until a part has at most `least` words.
fn sort_parts_at<W: Word>(
    level: Option<Level>,
    words: &mut [W],
    sign: Sign,
    least: usize,
    depth_limit: u32,
    sort: &(dyn Fn(&mut [W]) + Sync),
) {
    if words.len() <= least || depth_limit == 0 {
        return sort(words);
    }
    let [low, high] = divide_at(level, words, None, sign);
    let (lower, rest) = words.split_at_mut(low);
    let upper = &mut rest[high - low..];
    join(
        &mut || sort_parts_at(level, lower, sign, least, depth_limit - 1, sort),
        &mut || sort_parts_at(level, upper, sign, least, depth_limit - 1, sort),
    );
}

/// Divides words by one of them, and returns two indices: all words before the first index are less than all words from
/// the second index on, and the words between are equal. There must be more words than [`MOST_OF_NETWORK`].
pub fn divide<W: Word>(words: &mut [W], sign: Sign) -> [usize; 2] {
    divide_at(level(), words, None, sign)
}

/// Divides words with the instructions of `level`, which the processor must have.
fn divide_at<W: Word>(
    level: Option<Level>,
    words: &mut [W],
    at: Option<W>,
    sign: Sign,
) -> [usize; 2] {
    at_level!(level, divide(words, at, sign))
}

/// Moves the words that are less than `pivot` before the others, and returns how many they are. There must be more words
/// than [`MOST_OF_NETWORK`].
pub fn separate<W: Word>(words: &mut [W], pivot: W, sign: Sign) -> usize {
    divide_at(level(), words, Some(pivot), sign)[0]
}

/// The number of words that a network sorts at most.
pub const MOST_OF_NETWORK: usize = 256;

/// Copies words of runs, given by their bytes, to `out` and divides them on the way. Returns an index: all words of the copy
/// before it are less than all others. `visit` is called with the bytes in their original order.
///
/// # Panics
/// If `out` does not have as many bytes as the runs, does not begin at a cache line, or no run has 16 words.
pub fn copy_divided<W: Word>(
    runs: &[&[u8]],
    out: &mut [W],
    sign: Sign,
    visit: &mut Visitor,
) -> usize {
    copy_divided_at(level(), runs, out, sign, visit)
}

/// Copies and divides words with the instructions of `level`, which the processor must have.
fn copy_divided_at<W: Word>(
    level: Option<Level>,
    runs: &[&[u8]],
    out: &mut [W],
    sign: Sign,
    visit: &mut Visitor,
) -> usize {
    let bytes: usize = runs.iter().map(|run| run.len()).sum();
    let longest = runs.iter().map(|run| run.len()).max();
    assert_eq!(bytes, size_of_val(out));
    assert!(
        runs.iter()
            .all(|run| run.len().is_multiple_of(size_of::<W>()))
    );
    assert!(longest >= Some(lanes::MOST_LANES * size_of::<W>()));
    assert!(out.as_ptr().align_offset(ALIGNMENT) == 0);
    at_level!(level, copy_divided(runs, out, sign, visit))
}

/// Merges two sorted runs into `out`.
///
/// # Panics
/// If `out` is not as long as both runs together.
pub fn merge_two<W: Word>(
    one: &[W],
    other: &[W],
    out: &mut [W],
    sign: Sign,
    destination: Destination,
) {
    merge_two_at(level(), one, other, out, sign, destination);
}

/// Merges with the instructions of `level`, which the processor must have.
fn merge_two_at<W: Word>(
    level: Option<Level>,
    one: &[W],
    other: &[W],
    out: &mut [W],
    sign: Sign,
    destination: Destination,
) {
    assert_eq!(one.len() + other.len(), out.len());
    at_level!(level, merge_two(one, other, out, sign, destination))
}

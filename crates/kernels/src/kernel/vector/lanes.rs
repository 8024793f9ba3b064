//! The operations of a vector register that the vectorised kernels need.

use std::cmp::Ordering;

use bytemuck::{Pod, Zeroable};

/// The largest number of words in a register.
pub const MOST_LANES: usize = 16;

/// Words are prefetched this many bytes before they are read: the processor's own prefetching stops at the end of a
/// page.
pub const AHEAD_BYTES: usize = 4096;

/// A register of words, in the form in which the processor compares them, which may differ from that in memory. A value
/// exists only on a processor that has such registers. Therefore only the functions that create one are unsafe.
///
/// Every method must be inlined into a function that is compiled for that processor.
pub trait Lanes: Copy {
    /// The words in memory, with their order.
    type Word: Pod + Ord;

    /// The number of words in a register: 8 or [`MOST_LANES`].
    const LANES: usize;

    /// The number of registers that a sorting network sorts: half of those that the processor has, 8 or 16.
    const ROWS: usize;

    /// The greatest word. It has the same form in a register and in memory.
    const LAST: Self::Word;

    /// Returns a register with the same word in all lanes.
    ///
    /// # Safety
    /// The processor has such registers.
    unsafe fn splat(word: Self::Word) -> Self;

    /// Loads words, which need not be aligned.
    ///
    /// # Safety
    /// The processor has such registers, and `LANES` words can be read at `from`.
    unsafe fn load(from: *const Self::Word) -> Self;

    /// Prefetches the words at an address, which need not be valid.
    fn prefetch(from: *const Self::Word);

    /// Loads `count` words into the first lanes, and `LAST` into the others.
    ///
    /// # Safety
    /// The processor has such registers, and `count` words, at most `LANES`, can be read at `from`.
    unsafe fn load_first(from: *const Self::Word, count: usize) -> Self;

    /// Stores the words at an address, which need not be aligned.
    ///
    /// # Safety
    /// `LANES` words can be written at `to`.
    unsafe fn store(self, to: *mut Self::Word);

    /// Stores the words as [`Lanes::store`] does, but bypasses the caches. Other threads see the words after
    /// [`Lanes::fence`].
    ///
    /// # Safety
    /// `LANES` words can be written at `to`, which is aligned to the size of a register.
    unsafe fn store_bypassing(self, to: *mut Self::Word);

    /// Waits until other threads see all words that were stored with [`Lanes::store_bypassing`].
    fn fence();

    /// Stores the words of the lanes from `start` to before `end`, each at the address at which [`Lanes::store`] stores
    /// it.
    ///
    /// # Safety
    /// The words from `start` to before `end` can be written behind `to`.
    unsafe fn store_some(self, to: *mut Self::Word, start: usize, end: usize);

    /// Returns the smaller word in each lane.
    fn min(self, other: Self) -> Self;

    /// Returns the greater word in each lane.
    fn max(self, other: Self) -> Self;

    /// Returns the words of `self` in the lanes with the bit `BIT` in their number, and those of `other` in the others.
    fn blend<const BIT: usize>(self, other: Self) -> Self;

    /// Returns the word of lane i XOR `MASK` in lane i.
    fn swap<const MASK: usize>(self) -> Self;

    /// Returns the words in reverse order.
    fn reversed(self) -> Self;

    /// Interleaves the words of both registers, and returns the first and the second half of the sequence.
    fn interleave(self, other: Self) -> (Self, Self);

    /// Returns the word of the first lane in all lanes.
    fn first_everywhere(self) -> Self;

    /// Returns in how many lanes both registers have the same word.
    fn equals(self, other: Self) -> usize;

    /// Divides the first `count` words into low ones, which are less than the pivot (or equal to it, if `UP_TO`), and
    /// high ones. Returns the number of low words, a register with them in its lowest lanes, and a register with the
    /// high words in its highest lanes.
    fn split<const UP_TO: bool>(self, count: usize, pivot: Self) -> (usize, Self, Self);
}

/// The bits of a floating-point number, ordered by the total order of IEEE 754.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct FloatBits<I>(pub I);

macro_rules! float_bits {
    ($($bits:ty),*) => {$(
        impl FloatBits<$bits> {
            /// Returns a signed number with the same order: all bits of a negative number but the sign are flipped, so
            /// that greater magnitudes come first. The function is its own inverse.
            #[inline(always)]
            pub fn toggled(self) -> $bits {
                self.0 ^ (self.0 >> (<$bits>::BITS - 1) & <$bits>::MAX)
            }
        }

        impl Ord for FloatBits<$bits> {
            #[inline(always)]
            fn cmp(&self, other: &Self) -> Ordering {
                self.toggled().cmp(&other.toggled())
            }
        }

        impl PartialOrd for FloatBits<$bits> {
            #[inline(always)]
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
    )*};
}

float_bits!(i32, i64);

/// For each set of low lanes out of 8: the numbers of these lanes in ascending order, then those of the others.
static LOW_FIRST: [[u8; 8]; 256] = {
    let mut orders = [[0; 8]; 256];
    let mut low = 0;
    while low < 256 {
        let mut index = 0;
        let mut lane = 0;
        while lane < 16 {
            // The first eight steps find the low lanes, the others the high ones.
            if (low >> (lane % 8) & 1 == 1) == (lane < 8) {
                orders[low][index] = lane as u8 % 8;
                index += 1;
            }
            lane += 1;
        }
        low += 1;
    }
    orders
};

/// Returns the numbers of the lanes in the set `low`, then those of the others.
#[inline(always)]
pub fn low_first(low: u8) -> &'static [u8; 8] {
    &LOW_FIRST[usize::from(low)]
}

/// Defines the entry points of a module: the generic kernels, compiled for processors with `$features`, with registers
/// for unsigned, signed and floating-point words of each number of bits.
macro_rules! entry_points {
    ($features:literal, $(($bits:literal, $unsigned:ident, $signed:ident, $float:ident)),*) => {
        /// Sorts words in ascending order. No part is divided more than `depth_limit` times. Callers turn
        /// floating-point numbers into words before, which takes fewer instructions.
        ///
        /// # Safety
        /// The processor has these instructions.
        #[target_feature(enable = $features)]
        pub unsafe fn sort<W: Word>(words: &mut [W], sign: Sign, depth_limit: u32) {
            use bytemuck::cast_slice_mut as cast;
            // SAFETY: the caller's contract.
            unsafe {
                match (W::BITS, sign) {
                    $(
                        ($bits, Sign::Unsigned) => quick::sort::<$unsigned>(cast(words), depth_limit),
                        ($bits, Sign::Signed) => quick::sort::<$signed>(cast(words), depth_limit),
                    )*
                    (bits, _) => unreachable!("words of {bits} bits, {sign:?}"),
                }
            }
        }

        /// Divides words as [`quick::divide`] does.
        ///
        /// # Safety
        /// The processor has these instructions.
        #[target_feature(enable = $features)]
        pub unsafe fn divide<W: Word>(words: &mut [W], at: Option<W>, sign: Sign) -> [usize; 2] {
            use bytemuck::{cast as cast_word, cast_slice_mut as cast};
            // SAFETY: the caller's contract.
            unsafe {
                match (W::BITS, sign) {
                    $(
                        ($bits, Sign::Unsigned) => quick::divide::<$unsigned>(cast(words), at.map(cast_word)),
                        ($bits, Sign::Signed) => quick::divide::<$signed>(cast(words), at.map(cast_word)),
                        ($bits, Sign::Float) => quick::divide::<$float>(cast(words), at.map(cast_word)),
                    )*
                    (bits, _) => unreachable!("words of {bits} bits"),
                }
            }
        }

        /// Copies and divides words, given by their bytes, as [`copy::copy_divided`] does.
        ///
        /// # Safety
        /// The processor has these instructions. `runs` and `out` have the same number of bytes, one run has at least a
        /// register of them, and `out` begins at a cache line.
        #[target_feature(enable = $features)]
        pub unsafe fn copy_divided<W: Word>(
            runs: &[&[u8]],
            out: &mut [W],
            sign: Sign,
            visit: &mut Visitor,
        ) -> usize {
            use bytemuck::cast_slice_mut as cast;
            // SAFETY: the caller's contract.
            unsafe {
                match (W::BITS, sign) {
                    $(
                        ($bits, Sign::Unsigned) => {
                            copy::copy_divided::<$unsigned>(runs, cast(out), visit)
                        }
                        ($bits, Sign::Signed) => {
                            copy::copy_divided::<$signed>(runs, cast(out), visit)
                        }
                        ($bits, Sign::Float) => {
                            copy::copy_divided::<$float>(runs, cast(out), visit)
                        }
                    )*
                    (bits, _) => unreachable!("words of {bits} bits"),
                }
            }
        }

        /// Merges two sorted runs.
        ///
        /// # Safety
        /// The processor has these instructions, and `out` is as long as both runs.
        #[target_feature(enable = $features)]
        pub unsafe fn merge_two<W: Word>(
            one: &[W],
            other: &[W],
            out: &mut [W],
            sign: Sign,
            destination: Destination,
        ) {
            use bytemuck::{cast_slice as cast, cast_slice_mut as cast_mut};
            // SAFETY: the caller's contract.
            unsafe {
                match (W::BITS, sign) {
                    $(
                        ($bits, Sign::Unsigned) => {
                            let (one, other, out) = (cast(one), cast(other), cast_mut(out));
                            chains::merge_two::<$unsigned>(one, other, out, destination);
                        }
                        ($bits, Sign::Signed) => {
                            let (one, other, out) = (cast(one), cast(other), cast_mut(out));
                            chains::merge_two::<$signed>(one, other, out, destination);
                        }
                        ($bits, Sign::Float) => {
                            let (one, other, out) = (cast(one), cast(other), cast_mut(out));
                            chains::merge_two::<$float>(one, other, out, destination);
                        }
                    )*
                    (bits, _) => unreachable!("words of {bits} bits"),
                }
            }
        }
    };
}

pub(super) use entry_points;

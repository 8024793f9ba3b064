//! What the vectorised kernels ask of a vector register.

use std::cmp::Ordering;

use bytemuck::{Pod, Zeroable};

/// No register holds more words.
pub const MOST_LANES: usize = 16;

/// Words are fetched into the cache so many bytes before they are read: the processor foresees by itself
/// what is read next, but stops where a page ends.
pub const AHEAD_BYTES: usize = 4096;

/// A register of words, all of which are worked on at once: in the form in which the processor compares them,
/// which need not be that in memory. A value exists only on a processor that has such registers: that is
/// why only what makes one is unsafe.
///
/// Every method must be inlined into a function that is compiled for that processor.
pub trait Lanes: Copy {
    /// The words as they are in memory, and their order.
    type Word: Pod + Ord;

    /// How many words it holds: 8, or `MOST_LANES`.
    const LANES: usize;

    /// How many registers are sorted in registers: half as many as there are; 8 or 16.
    const ROWS: usize;

    /// No word is after this one, which has the same form in both places.
    const LAST: Self::Word;

    /// The same word in all lanes.
    ///
    /// # Safety
    /// The processor has such registers.
    unsafe fn splat(word: Self::Word) -> Self;

    /// Words from memory, which need not be aligned.
    ///
    /// # Safety
    /// The processor has such registers, and `LANES` words can be read at `from`.
    unsafe fn load(from: *const Self::Word) -> Self;

    /// Asks for the words there, which are read later; any place will do.
    fn prefetch(from: *const Self::Word);

    /// The first `count` words from memory, `LAST` in the other lanes.
    ///
    /// # Safety
    /// The processor has such registers, and `count` words, at most `LANES`, can be read at `from`.
    unsafe fn load_first(from: *const Self::Word, count: usize) -> Self;

    /// Puts the words into memory, which need not be aligned.
    ///
    /// # Safety
    /// `LANES` words can be written at `to`.
    unsafe fn store(self, to: *mut Self::Word);

    /// As [`Lanes::store`], past the caches; others see the words after [`Lanes::settle`].
    ///
    /// # Safety
    /// As before, and `to` is aligned to what a register holds.
    unsafe fn store_past(self, to: *mut Self::Word);

    /// Waits until what was stored past the caches is where others see it.
    fn settle();

    /// Puts the words of the lanes from `start` to before `end` into memory, each where
    /// [`Lanes::store`] would put it.
    ///
    /// # Safety
    /// These words can be written behind `to`.
    unsafe fn store_some(self, to: *mut Self::Word, start: usize, end: usize);

    /// The smaller word in each lane.
    fn min(self, other: Self) -> Self;

    /// The larger word in each lane.
    fn max(self, other: Self) -> Self;

    /// Words from `self` in the lanes whose number has the bit `BIT`, from `other` in the others.
    fn blend<const BIT: usize>(self, other: Self) -> Self;

    /// Lane i gets what lane i XOR `MASK` has.
    fn swap<const MASK: usize>(self) -> Self;

    /// The last word in the first lane, and so on.
    fn reversed(self) -> Self;

    /// The words of both by turns: the first half of them, and the second.
    fn interleave(self, other: Self) -> (Self, Self);

    /// The word of the first lane in all lanes.
    fn first_everywhere(self) -> Self;

    /// In how many lanes both have the same word.
    fn equals(self, other: Self) -> usize;

    /// Tells, of the first `count` words, those before the pivot (`UP_TO`: and those equal to it) from the
    /// others: how many they are, a register with them in its lowest lanes, and one with the others in
    /// its highest.
    fn split<const UP_TO: bool>(self, count: usize, pivot: Self) -> (usize, Self, Self);
}

/// The bits of a float, in IEEE 754's total order.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct FloatBits<I>(pub I);

macro_rules! float_bits {
    ($($bits:ty),*) => {$(
        impl FloatBits<$bits> {
            /// A number with a sign that has the order of the floats: of negative ones all bits but the
            /// sign are turned over, so that greater magnitudes come first. Done twice, it is undone.
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

/// For each set of low lanes out of 8: these in ascending order, then the others.
static LOW_FIRST: [[u8; 8]; 256] = {
    let mut orders = [[0; 8]; 256];
    let mut low = 0;
    while low < 256 {
        let mut place = 0;
        let mut lane = 0;
        while lane < 16 {
            // First the low lanes, then the others.
            if (low >> (lane % 8) & 1 == 1) == (lane < 8) {
                orders[low][place] = lane as u8 % 8;
                place += 1;
            }
            lane += 1;
        }
        low += 1;
    }
    orders
};

/// The numbers of the lanes that are in a set, and then of the others.
#[inline(always)]
pub fn low_first(low: u8) -> &'static [u8; 8] {
    &LOW_FIRST[usize::from(low)]
}

/// The entry points of a module with registers for words of so many bits, without and with a sign: the
/// generic kernels, compiled for processors with these features.
macro_rules! entry_points {
    ($features:literal, $(($bits:literal, $unsigned:ident, $signed:ident, $float:ident)),*) => {
        /// Sorts words, ascending, dividing no part more often than `timeout` says. No floats: to turn
        /// these into words takes fewer instructions.
        ///
        /// # Safety
        /// The processor has these instructions.
        #[target_feature(enable = $features)]
        pub unsafe fn sort<W: Word>(words: &mut [W], sign: Sign, timeout: u32) {
            use bytemuck::cast_slice_mut as cast;
            // SAFETY: as promised by the caller.
            unsafe {
                match (W::BITS, sign) {
                    $(
                        ($bits, Sign::Unsigned) => quick::sort::<$unsigned>(cast(words), timeout),
                        ($bits, Sign::Signed) => quick::sort::<$signed>(cast(words), timeout),
                    )*
                    (bits, _) => unreachable!("words of {bits} bits, {sign:?}"),
                }
            }
        }

        /// As [`quick::divided`].
        ///
        /// # Safety
        /// The processor has these instructions.
        #[target_feature(enable = $features)]
        pub unsafe fn divided<W: Word>(words: &mut [W], sign: Sign) -> [usize; 2] {
            use bytemuck::cast_slice_mut as cast;
            // SAFETY: as promised by the caller.
            unsafe {
                match (W::BITS, sign) {
                    $(
                        ($bits, Sign::Unsigned) => quick::divided::<$unsigned>(cast(words)),
                        ($bits, Sign::Signed) => quick::divided::<$signed>(cast(words)),
                        ($bits, Sign::Float) => quick::divided::<$float>(cast(words)),
                    )*
                    (bits, _) => unreachable!("words of {bits} bits"),
                }
            }
        }

        /// As [`copy::divided_copy`], of words that are given by their bytes.
        ///
        /// # Safety
        /// The processor has these instructions; there are as many bytes as in `out`, a register of them at
        /// least, and `out` begins at a cache line.
        #[target_feature(enable = $features)]
        pub unsafe fn divided_copy<W: Word>(
            words: &[u8],
            out: &mut [W],
            sign: Sign,
            seen: &mut Seen,
        ) -> usize {
            use bytemuck::cast_slice_mut as cast;
            let words = words.as_ptr();
            // SAFETY: as promised by the caller.
            unsafe {
                match (W::BITS, sign) {
                    $(
                        ($bits, Sign::Unsigned) => {
                            copy::divided_copy::<$unsigned>(words.cast(), cast(out), seen)
                        }
                        ($bits, Sign::Signed) => {
                            copy::divided_copy::<$signed>(words.cast(), cast(out), seen)
                        }
                        ($bits, Sign::Float) => {
                            copy::divided_copy::<$float>(words.cast(), cast(out), seen)
                        }
                    )*
                    (bits, _) => unreachable!("words of {bits} bits"),
                }
            }
        }

        /// Merges two sorted runs.
        ///
        /// # Safety
        /// The processor has these instructions; `out` is as long as both runs.
        #[target_feature(enable = $features)]
        pub unsafe fn merge_two<W: Word>(
            a: &[W],
            b: &[W],
            out: &mut [W],
            sign: Sign,
            reader: Reader,
        ) {
            use bytemuck::{cast_slice as cast, cast_slice_mut as cast_mut};
            // SAFETY: as promised by the caller.
            unsafe {
                match (W::BITS, sign) {
                    $(
                        ($bits, Sign::Unsigned) => {
                            let (a, b, out) = (cast(a), cast(b), cast_mut(out));
                            chains::merge_two::<$unsigned>(a, b, out, reader);
                        }
                        ($bits, Sign::Signed) => {
                            let (a, b, out) = (cast(a), cast(b), cast_mut(out));
                            chains::merge_two::<$signed>(a, b, out, reader);
                        }
                        ($bits, Sign::Float) => {
                            let (a, b, out) = (cast(a), cast(b), cast_mut(out));
                            chains::merge_two::<$float>(a, b, out, reader);
                        }
                    )*
                    (bits, _) => unreachable!("words of {bits} bits"),
                }
            }
        }
    };
}

pub(super) use entry_points;

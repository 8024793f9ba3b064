//! Vector registers of 256 bits (AVX2), and the kernels compiled for them, for words of 32 bits only. A register holds
//! four words of 64 bits, and an unsigned comparison of these takes three instructions: the radix sort is faster.

use std::arch::x86_64::*;
use std::convert::identity;

use super::lanes::{FloatBits, Lanes, entry_points, low_first};
use super::{chains, copy, quick};
use crate::kernel::Visitor;
use crate::kernel::pair::Destination;
use crate::record::{Sign, Word};

/// Returns whether the processor has AVX2.
pub fn is_supported() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

entry_points!("avx2,popcnt", (32, U32, I32, F32));

/// The number of each lane.
static NUMBERS: [i32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Returns a register with all bits set in the lanes from `start` to before `end`.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn between(start: usize, end: usize) -> __m256i {
    // SAFETY: the caller's contract; the table has as many numbers as a register has lanes.
    unsafe {
        let numbers = _mm256_loadu_si256(NUMBERS.as_ptr().cast());
        let before_start = _mm256_cmpgt_epi32(_mm256_set1_epi32(start as i32), numbers);
        let before_end = _mm256_cmpgt_epi32(_mm256_set1_epi32(end as i32), numbers);
        _mm256_andnot_si256(before_start, before_end)
    }
}

/// Returns a register with all bits set in the lanes where the unsigned word of `one` is greater than that of `other`.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn above_unsigned(one: __m256i, other: __m256i) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe {
        let sign = _mm256_set1_epi32(i32::MIN);
        _mm256_cmpgt_epi32(_mm256_xor_si256(one, sign), _mm256_xor_si256(other, sign))
    }
}

/// Returns a bit for each lane: its highest bit.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn lanes_of(lanes: __m256i) -> u8 {
    // SAFETY: the caller's contract.
    unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u8 }
}

/// Moves the words of the lanes in `low` to the lowest lanes, and the others to the highest.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn ordered(words: __m256i, low: u8) -> __m256i {
    // SAFETY: the caller's contract; an entry of the table has as many bytes as are read.
    unsafe {
        let order = _mm_loadl_epi64(low_first(low).as_ptr().cast());
        _mm256_permutevar8x32_epi32(words, _mm256_cvtepu8_epi32(order))
    }
}

/// Computes [`FloatBits::toggled`] in each lane: turns the bits of floating-point numbers into signed words and back.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn toggled(words: __m256i) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe {
        let signs = _mm256_srai_epi32::<31>(words);
        _mm256_xor_si256(words, _mm256_and_si256(signs, _mm256_set1_epi32(i32::MAX)))
    }
}

macro_rules! lanes {
    (
        [$(
            $(#[$doc:meta])* $name:ident, $word:ty, $last:expr, $lane:expr, $form:ident;
        )+],
        $above:ident, $min:ident, $max:ident
    ) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name(__m256i);

        // SAFETY of the calls below: a value of this type exists only where the processor has AVX2, and the caller of a
        // function that creates one guarantees this.
        #[allow(clippy::undocumented_unsafe_blocks, reason = "one reason for all of them")]
        impl Lanes for $name {
            type Word = $word;

            const LANES: usize = 8;

            const ROWS: usize = 8;

            const LAST: $word = $last;

            #[inline(always)]
            unsafe fn splat(word: $word) -> Self {
                unsafe { Self(_mm256_set1_epi32($lane(word))) }
            }

            #[inline(always)]
            unsafe fn load(from: *const $word) -> Self {
                unsafe { Self($form(_mm256_loadu_si256(from.cast()))) }
            }

            #[inline(always)]
            fn prefetch(from: *const $word) {
                unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
            }

            #[inline(always)]
            unsafe fn load_first(from: *const $word, count: usize) -> Self {
                unsafe {
                    let first = between(0, count);
                    let words = $form(_mm256_maskload_epi32(from.cast(), first));
                    Self(_mm256_blendv_epi8(Self::splat(Self::LAST).0, words, first))
                }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $word) {
                unsafe { _mm256_storeu_si256(to.cast(), $form(self.0)) }
            }

            #[inline(always)]
            unsafe fn store_bypassing(self, to: *mut $word) {
                unsafe { _mm256_stream_si256(to.cast(), $form(self.0)) }
            }

            #[inline(always)]
            fn fence() {
                unsafe { _mm_sfence() }
            }

            #[inline(always)]
            unsafe fn store_some(self, to: *mut $word, start: usize, end: usize) {
                unsafe { _mm256_maskstore_epi32(to.cast(), between(start, end), $form(self.0)) }
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                unsafe { Self($min(self.0, other.0)) }
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                unsafe { Self($max(self.0, other.0)) }
            }

            #[inline(always)]
            fn blend<const BIT: usize>(self, other: Self) -> Self {
                unsafe {
                    Self(match BIT {
                        1 => _mm256_blend_epi32::<0b1010_1010>(other.0, self.0),
                        2 => _mm256_blend_epi32::<0b1100_1100>(other.0, self.0),
                        4 => _mm256_blend_epi32::<0b1111_0000>(other.0, self.0),
                        _ => other.0,
                    })
                }
            }

            #[inline(always)]
            fn swap<const MASK: usize>(self) -> Self {
                let from = const {
                    let mut from = [0_u32; 8];
                    let mut lane = 0;
                    while lane < 8 {
                        from[lane] = ((lane ^ MASK) % 8) as u32;
                        lane += 1;
                    }
                    from
                };
                unsafe {
                    let from = _mm256_loadu_si256(from.as_ptr().cast());
                    Self(_mm256_permutevar8x32_epi32(self.0, from))
                }
            }

            #[inline(always)]
            fn reversed(self) -> Self {
                self.swap::<7>()
            }

            #[inline(always)]
            fn interleave(self, other: Self) -> (Self, Self) {
                unsafe {
                    // The words are interleaved within each half.
                    let low = _mm256_unpacklo_epi32(self.0, other.0);
                    let high = _mm256_unpackhi_epi32(self.0, other.0);
                    let first = _mm256_permute2x128_si256::<0x20>(low, high);
                    let second = _mm256_permute2x128_si256::<0x31>(low, high);
                    (Self(first), Self(second))
                }
            }

            #[inline(always)]
            fn first_everywhere(self) -> Self {
                unsafe { Self(_mm256_broadcastd_epi32(_mm256_castsi256_si128(self.0))) }
            }

            #[inline(always)]
            fn equals(self, other: Self) -> usize {
                unsafe { lanes_of(_mm256_cmpeq_epi32(self.0, other.0)).count_ones() as usize }
            }

            #[inline(always)]
            fn split<const UP_TO: bool>(self, count: usize, pivot: Self) -> (usize, Self, Self) {
                unsafe {
                    let before = if UP_TO {
                        !lanes_of($above(self.0, pivot.0))
                    } else {
                        lanes_of($above(pivot.0, self.0))
                    };
                    let valid = ((1_u32 << count) - 1) as u8;
                    let low = before & valid;
                    let left = ordered(self.0, low);
                    let right = match count {
                        8 => left,
                        // Words behind the first `count` go to the low side.
                        _ => ordered(self.0, before | !valid),
                    };
                    (low.count_ones() as usize, Self(left), Self(right))
                }
            }
        }
    )+};
}

lanes! {
    [
        /// 8 unsigned words of 32 bits.
        U32, u32, u32::MAX, u32::cast_signed, identity;
    ],
    above_unsigned, _mm256_min_epu32, _mm256_max_epu32
}

lanes! {
    [
        /// 8 signed words of 32 bits.
        I32, i32, i32::MAX, identity, identity;
        /// 8 floating-point numbers of 32 bits.
        F32, FloatBits<i32>, FloatBits(i32::MAX), FloatBits::<i32>::toggled, toggled;
    ],
    _mm256_cmpgt_epi32, _mm256_min_epi32, _mm256_max_epi32
}

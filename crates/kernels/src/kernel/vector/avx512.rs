//! Vector registers of 512 bits (AVX-512F), and the kernels compiled for them.

use std::arch::x86_64::*;
use std::convert::identity;

use super::lanes::{FloatBits, Lanes, entry_points, low_first};
use super::{chains, copy, quick};
use crate::kernel::Visitor;
use crate::kernel::pair::Destination;
use crate::record::{Sign, Word};

/// Returns whether the processor has AVX-512F.
pub fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt")
}

entry_points!("avx512f,popcnt", (32, U32, I32, F32), (64, U64, I64, F64));

/// Returns a mask of the lanes from `start` to before `end`.
#[inline(always)]
fn between(start: usize, end: usize) -> u32 {
    (1 << end) - (1 << start)
}

/// Returns a mask of the lanes with the bit `bit` in their number.
const fn lanes_with(bit: usize) -> u32 {
    let mut mask = 0;
    let mut lane = 0;
    while lane < 16 {
        mask |= (((lane & bit) != 0) as u32) << lane;
        lane += 1;
    }
    mask
}

/// Computes [`FloatBits::toggled`] in each lane of 32 bits: turns the bits of floating-point numbers into signed words
/// and back.
///
/// # Safety
/// The processor has AVX-512F.
#[inline(always)]
unsafe fn toggled_32(words: __m512i) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let signs = _mm512_srai_epi32::<31>(words);
        // The first operand, XOR the second AND the third.
        _mm512_ternarylogic_epi32::<0x78>(words, signs, _mm512_set1_epi32(i32::MAX))
    }
}

/// Computes [`FloatBits::toggled`] in each lane of 64 bits.
///
/// # Safety
/// The processor has AVX-512F.
#[inline(always)]
unsafe fn toggled_64(words: __m512i) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let signs = _mm512_srai_epi64::<63>(words);
        _mm512_ternarylogic_epi64::<0x78>(words, signs, _mm512_set1_epi64(i64::MAX))
    }
}

/// Implements the registers of words of one width; the comparisons are those of unsigned or of signed words.
macro_rules! lanes {
    (
        $lanes:literal, $mask:ty, $index:ty,
        $splat:ident, $load_some:ident, $store_some:ident, $blend:ident, $permute:ident,
        $permute_two:ident, $broadcast:ident, $compress:ident, $same:ident;
        $(
            $min:ident, $max:ident, $before:ident, $up_to:ident: [$(
                $(#[$doc:meta])* $name:ident, $word:ty, $last:expr, $lane:expr, $form:ident;
            )+]
        )+
    ) => {$($(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name(__m512i);

        // SAFETY of the calls below: a value of this type exists only where the processor has AVX-512F, and the caller
        // of a function that creates one guarantees this.
        #[allow(clippy::undocumented_unsafe_blocks, reason = "one reason for all of them")]
        impl Lanes for $name {
            type Word = $word;

            const LANES: usize = $lanes;

            const ROWS: usize = 16;

            const LAST: $word = $last;

            #[inline(always)]
            unsafe fn splat(word: $word) -> Self {
                unsafe { Self($splat($lane(word))) }
            }

            #[inline(always)]
            unsafe fn load(from: *const $word) -> Self {
                unsafe { Self($form(_mm512_loadu_si512(from.cast()))) }
            }

            #[inline(always)]
            fn prefetch(from: *const $word) {
                unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
            }

            #[inline(always)]
            unsafe fn load_first(from: *const $word, count: usize) -> Self {
                unsafe {
                    let last = $splat($lane(Self::LAST));
                    Self($form($load_some(last, between(0, count) as $mask, from.cast())))
                }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $word) {
                unsafe { _mm512_storeu_si512(to.cast(), $form(self.0)) }
            }

            #[inline(always)]
            unsafe fn store_bypassing(self, to: *mut $word) {
                unsafe { _mm512_stream_si512(to.cast(), $form(self.0)) }
            }

            #[inline(always)]
            fn fence() {
                unsafe { _mm_sfence() }
            }

            #[inline(always)]
            unsafe fn store_some(self, to: *mut $word, start: usize, end: usize) {
                unsafe { $store_some(to.cast(), between(start, end) as $mask, $form(self.0)) }
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
                unsafe { Self($blend(const { lanes_with(BIT) } as $mask, other.0, self.0)) }
            }

            #[inline(always)]
            fn swap<const MASK: usize>(self) -> Self {
                let from = const {
                    let mut from = [0 as $index; $lanes];
                    let mut lane = 0;
                    while lane < $lanes {
                        from[lane] = ((lane ^ MASK) % $lanes) as $index;
                        lane += 1;
                    }
                    from
                };
                unsafe { Self($permute(_mm512_loadu_si512(from.as_ptr().cast()), self.0)) }
            }

            #[inline(always)]
            fn reversed(self) -> Self {
                self.swap::<{ $lanes - 1 }>()
            }

            #[inline(always)]
            fn interleave(self, other: Self) -> (Self, Self) {
                // The lanes of the second register have the numbers behind those of the first.
                let halves = const {
                    let mut halves = [[0 as $index; $lanes]; 2];
                    let mut lane = 0;
                    while lane < 2 * $lanes {
                        let from = lane / 2 + (lane % 2) * $lanes;
                        halves[lane / $lanes][lane % $lanes] = from as $index;
                        lane += 1;
                    }
                    halves
                };
                unsafe {
                    let half = |from: &[$index; $lanes]| {
                        let from = _mm512_loadu_si512(from.as_ptr().cast());
                        Self($permute_two(self.0, from, other.0))
                    };
                    (half(&halves[0]), half(&halves[1]))
                }
            }

            #[inline(always)]
            fn first_everywhere(self) -> Self {
                unsafe { Self($broadcast(_mm512_castsi512_si128(self.0))) }
            }

            #[inline(always)]
            fn equals(self, other: Self) -> usize {
                unsafe { $same(self.0, other.0).count_ones() as usize }
            }

            #[inline(always)]
            fn split<const UP_TO: bool>(self, count: usize, pivot: Self) -> (usize, Self, Self) {
                unsafe {
                    let before = if UP_TO {
                        $up_to(self.0, pivot.0)
                    } else {
                        $before(self.0, pivot.0)
                    };
                    if $lanes == 8 && count == $lanes {
                        let both = Self(ordered(self.0, before as u8));
                        return (before.count_ones() as usize, both, both);
                    }
                    // The words are compressed in registers: a store that compresses takes more than a hundred cycles
                    // on some processors.
                    let valid = between(0, count) as $mask;
                    let low = before & valid;
                    let left = Self($compress(low, self.0));
                    let right = Self($compress(valid & !before, self.0)).reversed();
                    (low.count_ones() as usize, left, right)
                }
            }
        }
    )+)+};
}

/// Moves the words of 64 bits in the lanes of `low` to the lowest lanes, and the others to the highest. A table has the
/// order for every set of lanes.
///
/// # Safety
/// The processor has AVX-512F.
#[inline(always)]
unsafe fn ordered(words: __m512i, low: u8) -> __m512i {
    // SAFETY: the caller's contract; an entry of the table has as many bytes as are read.
    unsafe {
        let order = _mm_loadl_epi64(low_first(low).as_ptr().cast());
        _mm512_permutexvar_epi64(_mm512_cvtepu8_epi64(order), words)
    }
}

lanes! {
    16, __mmask16, u32,
    _mm512_set1_epi32, _mm512_mask_loadu_epi32, _mm512_mask_storeu_epi32, _mm512_mask_blend_epi32,
    _mm512_permutexvar_epi32, _mm512_permutex2var_epi32, _mm512_broadcastd_epi32,
    _mm512_maskz_compress_epi32, _mm512_cmpeq_epi32_mask;

    _mm512_min_epu32, _mm512_max_epu32, _mm512_cmplt_epu32_mask, _mm512_cmple_epu32_mask: [
        /// 16 unsigned words of 32 bits.
        U32, u32, u32::MAX, u32::cast_signed, identity;
    ]
    _mm512_min_epi32, _mm512_max_epi32, _mm512_cmplt_epi32_mask, _mm512_cmple_epi32_mask: [
        /// 16 signed words of 32 bits.
        I32, i32, i32::MAX, identity, identity;
        /// 16 floating-point numbers of 32 bits.
        F32, FloatBits<i32>, FloatBits(i32::MAX), FloatBits::<i32>::toggled, toggled_32;
    ]
}

lanes! {
    8, __mmask8, u64,
    _mm512_set1_epi64, _mm512_mask_loadu_epi64, _mm512_mask_storeu_epi64, _mm512_mask_blend_epi64,
    _mm512_permutexvar_epi64, _mm512_permutex2var_epi64, _mm512_broadcastq_epi64,
    _mm512_maskz_compress_epi64, _mm512_cmpeq_epi64_mask;

    _mm512_min_epu64, _mm512_max_epu64, _mm512_cmplt_epu64_mask, _mm512_cmple_epu64_mask: [
        /// 8 unsigned words of 64 bits.
        U64, u64, u64::MAX, u64::cast_signed, identity;
    ]
    _mm512_min_epi64, _mm512_max_epi64, _mm512_cmplt_epi64_mask, _mm512_cmple_epi64_mask: [
        /// 8 signed words of 64 bits.
        I64, i64, i64::MAX, identity, identity;
        /// 8 floating-point numbers of 64 bits.
        F64, FloatBits<i64>, FloatBits(i64::MAX), FloatBits::<i64>::toggled, toggled_64;
    ]
}

//! Products of numbers modulo p = 2^61 - 1, in all lanes of the registers: each lane is multiplied by
//! r + x for every record x that falls to it, and whoever wants one product multiplies the lanes. Where a
//! lane begins and ends does not matter, since the product is the same in any order and on any processor.
//!
//! A lane a has 63 bits at most, and a factor b comes eight times as large as it is, 8b below 2^64. With
//! a = a1 2^32 + a0 and 8b = b1 2^32 + b0 there is, as 2^61 counts as 1,
//!
//! a b = a0 b0 / 8 + (a0 b1 + a1 b0) 2^29 + a1 b1
//!
//! where b0 / 8 is a whole number, and m 2^29 is (m mod 2^32) 2^29 + m / 2^32. Four products of words of 32
//! bits are all that it takes, and no carry: with b up to 2^59 + 2^56, and a1 up to 3 2^29, the middle sum is
//! below 2^64, and what comes out is below 3 2^61 again. Of larger factors, up to 1.5 2^60, the lanes have to be
//! brought below 2^61 + 8 after each step.

use super::{Level, level};

/// What is left to be multiplied, each below 2^63.
pub type Factors = [u64; 32];

/// Blocks of fewer bytes than this are not worth the lanes' own multiplication.
const LEAST_BYTES: usize = 2048;

/// Numbers whose product is, modulo p, that of all records in the first so many bytes of the block; None if
/// there is no processor here that can, or the block is short.
///
/// Records of 1, 2 or 4 bytes count for themselves and `points[0]` / 8, at most 2^59; those of 8 bytes for
/// their lower 60 bits, and that one of 16 points which the upper 4 choose.
pub fn factors(block: &[u8], size: usize, points: &[u64]) -> Option<(Factors, usize)> {
    factors_at(level(), block, size, points)
}

/// With these instructions, which must be there.
pub(super) fn factors_at(
    level: Option<Level>,
    block: &[u8],
    size: usize,
    points: &[u64],
) -> Option<(Factors, usize)> {
    if block.len() < LEAST_BYTES {
        return None;
    }
    match level? {
        // SAFETY: the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { wide::factors(block, size, points) },
        // SAFETY: as before.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { narrow::factors(block, size, points) },
        #[cfg(not(target_arch = "x86_64"))]
        level => unreachable!("{level:?}, {size} bytes, {points:?}"),
    }
}

/// The step, and the loop over short records, with registers of so many lanes.
#[cfg(target_arch = "x86_64")]
macro_rules! products {
    (
        $features:literal, $lanes:literal, $register:ty,
        $add:ident, $multiply:ident, $left:ident, $right:ident, $splat:ident, $store:ident
    ) => {
        /// So many registers side by side, none of which waits for another.
        const CHAINS: usize = 4;

        #[inline]
        #[target_feature(enable = $features)]
        fn step(lanes: $register, factors: $register) -> $register {
            let (upper, above) = ($right::<32>(lanes), $right::<32>(factors));
            let middle = $add($multiply(lanes, above), $multiply(upper, factors));
            let low = $right::<3>($multiply(lanes, factors));
            let turned = $right::<3>($left::<32>(middle));
            let carried = $add($right::<32>(middle), $multiply(upper, above));
            $add($add(low, turned), carried)
        }

        #[target_feature(enable = $features)]
        fn told(chains: [$register; CHAINS]) -> Factors {
            let mut out = [1; 32];
            for (place, chain) in out.chunks_exact_mut($lanes).zip(chains) {
                // SAFETY: the place has as many lanes.
                unsafe { $store(place.as_mut_ptr().cast(), chain) };
            }
            out
        }

        #[target_feature(enable = $features)]
        pub fn factors(block: &[u8], size: usize, points: &[u64]) -> Option<(Factors, usize)> {
            match (size, points) {
                (1, &[point]) => Some(short::<1>(block, point)),
                (2, &[point]) => Some(short::<2>(block, point)),
                (4, &[point]) => Some(short::<4>(block, point)),
                (8, points) => words(block, points.first_chunk()?),
                _ => None,
            }
        }

        #[target_feature(enable = $features)]
        fn short<const SIZE: usize>(block: &[u8], point: u64) -> (Factors, usize) {
            let point = $splat(point as i64);
            let mut chains = [$splat(1); CHAINS];
            let groups = block.chunks_exact(CHAINS * $lanes * SIZE);
            let done = block.len() - groups.remainder().len();
            for group in groups {
                for (chain, part) in chains.iter_mut().zip(group.chunks_exact($lanes * SIZE)) {
                    let factors = $add(point, $left::<3>(numbers::<SIZE>(part)));
                    *chain = step(*chain, factors);
                }
            }
            (told(chains), done)
        }
    };
}

/// With AVX-512F.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::Factors;

    products!(
        "avx512f",
        8,
        __m512i,
        _mm512_add_epi64,
        _mm512_mul_epu32,
        _mm512_slli_epi64,
        _mm512_srli_epi64,
        _mm512_set1_epi64,
        _mm512_storeu_si512
    );

    /// Eight records as numbers.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn numbers<const SIZE: usize>(part: &[u8]) -> __m512i {
        assert_eq!(part.len(), 8 * SIZE);
        // SAFETY: so many bytes are there.
        unsafe {
            match SIZE {
                1 => _mm512_cvtepu8_epi64(_mm_loadl_epi64(part.as_ptr().cast())),
                2 => _mm512_cvtepu16_epi64(_mm_loadu_si128(part.as_ptr().cast())),
                4 => _mm512_cvtepu32_epi64(_mm256_loadu_si256(part.as_ptr().cast())),
                _ => _mm512_loadu_si512(part.as_ptr().cast()),
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    fn words(block: &[u8], points: &[u64; 16]) -> Option<(Factors, usize)> {
        let modulus = _mm512_set1_epi64((1 << 61) - 1);
        let (few, more) = points.split_at(8);
        // SAFETY: each half has eight.
        let (few, more) = unsafe {
            (
                _mm512_loadu_si512(few.as_ptr().cast()),
                _mm512_loadu_si512(more.as_ptr().cast()),
            )
        };
        let mut chains = [_mm512_set1_epi64(1); CHAINS];
        let groups = block.chunks_exact(CHAINS * 64);
        let done = block.len() - groups.remainder().len();
        for group in groups {
            for (chain, part) in chains.iter_mut().zip(group.chunks_exact(64)) {
                let number = numbers::<8>(part);
                let point = _mm512_permutex2var_epi64(few, _mm512_srli_epi64::<60>(number), more);
                let low = _mm512_srli_epi64::<1>(_mm512_slli_epi64::<4>(number));
                let product = step(*chain, _mm512_add_epi64(point, low));
                let rest = _mm512_and_si512(product, modulus);
                *chain = _mm512_add_epi64(rest, _mm512_srli_epi64::<61>(product));
            }
        }
        Some((told(chains), done))
    }
}

/// With AVX2.
#[cfg(target_arch = "x86_64")]
mod narrow {
    use std::arch::x86_64::*;

    use super::Factors;

    products!(
        "avx2",
        4,
        __m256i,
        _mm256_add_epi64,
        _mm256_mul_epu32,
        _mm256_slli_epi64,
        _mm256_srli_epi64,
        _mm256_set1_epi64x,
        _mm256_storeu_si256
    );

    /// To choose among 16 points takes as long as it saves.
    fn words(_: &[u8], _: &[u64; 16]) -> Option<(Factors, usize)> {
        None
    }

    /// Four records as numbers.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn numbers<const SIZE: usize>(part: &[u8]) -> __m256i {
        assert_eq!(part.len(), 4 * SIZE);
        // SAFETY: so many bytes are there.
        unsafe {
            match SIZE {
                1 => _mm256_cvtepu8_epi64(_mm_loadu_si32(part.as_ptr().cast())),
                2 => _mm256_cvtepu16_epi64(_mm_loadl_epi64(part.as_ptr().cast())),
                4 => _mm256_cvtepu32_epi64(_mm_loadu_si128(part.as_ptr().cast())),
                _ => _mm256_loadu_si256(part.as_ptr().cast()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const P: u128 = (1 << 61) - 1;

    fn levels() -> Vec<Level> {
        let all = [Level::Avx2, Level::Avx512];
        let there = |level: &Level| super::level().is_some_and(|best| *level as u8 <= best as u8);
        all.into_iter().filter(there).collect()
    }

    /// One after the other, by its definition.
    fn plain(block: &[u8], size: usize, points: &[u64]) -> u128 {
        let number = |record: &[u8]| {
            let mut whole = [0; 8];
            whole[..size].copy_from_slice(record);
            u64::from_le_bytes(whole)
        };
        let factors = block.chunks_exact(size).map(|record| match size {
            8 => {
                let number = number(record);
                let point = points[(number >> 60) as usize] >> 3;
                u128::from(point + (number & ((1 << 60) - 1)))
            }
            _ => u128::from((points[0] >> 3) + number(record)),
        });
        factors.fold(1, |product, factor| product * factor % P)
    }

    fn agrees(block: &[u8], size: usize, points: &[u64]) {
        for level in levels() {
            let Some((factors, done)) = factors_at(Some(level), block, size, points) else {
                assert!(block.len() < LEAST_BYTES || (level, size) == (Level::Avx2, 8));
                continue;
            };
            assert!(done <= block.len() && done % size == 0 && block.len() - done < 256);
            assert!(factors.iter().all(|factor| factor >> 63 == 0));
            let product =
                (factors.iter()).fold(1, |all, one| all * u128::from(*one % P as u64) % P);
            assert_eq!(product, plain(&block[..done], size, points), "{level:?}");
        }
    }

    proptest! {
        #[test]
        fn lanes_multiply_to_the_product_of_all(
            which in 0_usize..4,
            records in 0_usize..3000,
            points in prop::array::uniform16(1_u64..=1 << 59),
            seed: u64,
            extreme in prop::option::of(any::<u8>()),
        ) {
            let size = [1, 2, 4, 8][which];
            let points = points.map(|point| point << 3);
            let points = &points[..if size == 8 { 16 } else { 1 }];
            let mut draw = crate::random::SplitMix::new(seed);
            let mut byte = || extreme.unwrap_or_else(|| draw.bits() as u8);
            let block: Vec<u8> = (0..records * size).map(|_| byte()).collect();
            agrees(&block, size, points);
        }
    }

    #[test]
    fn the_largest_numbers_do_not_run_over() {
        for (size, points) in [(1, 1), (2, 1), (4, 1), (8, 16)] {
            for point in [1 << 3, 1 << 62] {
                for byte in [0, 0x7f, 0x80, 0xef, 0xff] {
                    agrees(&[byte; 1 << 14], size, &[point; 16][..points]);
                }
            }
        }
    }
}

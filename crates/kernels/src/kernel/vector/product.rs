//! Products of numbers modulo p = 2^61 - 1, in all lanes of vector registers.
//!
//! Each lane is multiplied by the factor r + x of each of its records x, and the caller multiplies the lanes. A product
//! is the same in any order, so that it does not depend on the processor which records a lane gets.
//!
//! A lane a has at most 63 bits. A factor b is given multiplied by eight, with 8b below 2^64. With a = a1 2^32 + a0 and
//! 8b = b1 2^32 + b0 the product is, as 2^61 equals 1 modulo p,
//!
//! a b = a0 b0 / 8 + (a0 b1 + a1 b0) 2^29 + a1 b1
//!
//! where b0 / 8 is an integer, and m 2^29 equals (m mod 2^32) 2^29 + m / 2^32. So a step takes four products of words
//! of 32 bits, and no carry occurs: with b up to 2^59 + 2^56 and a1 up to 3 2^29, the middle sum is below 2^64, and the
//! result is below 3 2^61 again. For larger factors, up to 1.5 2^60, each step has to reduce the lanes below 2^61 + 8.

use super::{Level, level};

/// Numbers below 2^63. The result is their product.
pub type Factors = [u64; 32];

/// The smallest block in bytes for which the multiplication of the lanes at the end is worth its time.
const LEAST_BYTES: usize = 2048;

/// Returns numbers with a product modulo p that is the product of the factors of all records in a prefix of the
/// block, and the length of the prefix in bytes. None if the processor lacks the instructions, the block is
/// short, or `size` is not 1, 2, 4 or 8.
///
/// The factor of a record of 1, 2 or 4 bytes is its value plus `points[0]` / 8, which is at most 2^59. The factor of a
/// record of 8 bytes is the value of its low 60 bits plus an eighth of the one of 16 points that its high 4 bits
/// select.
pub fn factors(block: &[u8], size: usize, points: &[u64]) -> Option<(Factors, usize)> {
    factors_at(level(), block, size, points)
}

/// Computes the numbers with the instructions of `level`, which the processor must have.
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
        // SAFETY: the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { narrow::factors(block, size, points) },
        #[cfg(not(target_arch = "x86_64"))]
        level => unreachable!("{level:?}, {size} bytes, {points:?}"),
    }
}

/// Defines one step and the loop over short records, for registers with `$lanes` lanes.
#[cfg(target_arch = "x86_64")]
macro_rules! products {
    (
        $features:literal, $lanes:literal, $register:ty,
        $add:ident, $multiply:ident, $left:ident, $right:ident, $splat:ident, $store:ident
    ) => {
        /// The number of registers. Their products do not depend on each other.
        const CHAINS: usize = 4;

        /// Multiplies the lanes by factors, which are given multiplied by eight.
        #[inline]
        #[target_feature(enable = $features)]
        fn step(lanes: $register, factors: $register) -> $register {
            let (lanes_high, factors_high) = ($right::<32>(lanes), $right::<32>(factors));
            let middle = $add(
                $multiply(lanes, factors_high),
                $multiply(lanes_high, factors),
            );
            let low = $right::<3>($multiply(lanes, factors));
            let middle_low = $right::<3>($left::<32>(middle));
            let high = $add($right::<32>(middle), $multiply(lanes_high, factors_high));
            $add($add(low, middle_low), high)
        }

        #[target_feature(enable = $features)]
        fn stored(chains: [$register; CHAINS]) -> Factors {
            let mut out = [1; 32];
            for (words, chain) in out.chunks_exact_mut($lanes).zip(chains) {
                // SAFETY: there are as many words as lanes.
                unsafe { $store(words.as_mut_ptr().cast(), chain) };
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
            (stored(chains), done)
        }
    };
}

/// The products with AVX-512F.
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

    /// Returns the values of eight records.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn numbers<const SIZE: usize>(part: &[u8]) -> __m512i {
        assert_eq!(part.len(), 8 * SIZE);
        // SAFETY: the length has been checked.
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
        let (first, second) = points.split_at(8);
        // SAFETY: each half has eight points.
        let (first, second) = unsafe {
            (
                _mm512_loadu_si512(first.as_ptr().cast()),
                _mm512_loadu_si512(second.as_ptr().cast()),
            )
        };
        let mut chains = [_mm512_set1_epi64(1); CHAINS];
        let groups = block.chunks_exact(CHAINS * 64);
        let done = block.len() - groups.remainder().len();
        for group in groups {
            for (chain, part) in chains.iter_mut().zip(group.chunks_exact(64)) {
                let number = numbers::<8>(part);
                let point =
                    _mm512_permutex2var_epi64(first, _mm512_srli_epi64::<60>(number), second);
                let low = _mm512_srli_epi64::<1>(_mm512_slli_epi64::<4>(number));
                let product = step(*chain, _mm512_add_epi64(point, low));
                let rest = _mm512_and_si512(product, modulus);
                *chain = _mm512_add_epi64(rest, _mm512_srli_epi64::<61>(product));
            }
        }
        Some((stored(chains), done))
    }
}

/// The products with AVX2.
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

    /// Returns None: without AVX-512 the selection among 16 points takes as long as the vector product saves.
    fn words(_: &[u8], _: &[u64; 16]) -> Option<(Factors, usize)> {
        None
    }

    /// Returns the values of four records.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn numbers<const SIZE: usize>(part: &[u8]) -> __m256i {
        assert_eq!(part.len(), 4 * SIZE);
        // SAFETY: the length has been checked.
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
        let is_supported = |level: &Level| super::level().is_some_and(|best| *level <= best);
        all.into_iter().filter(is_supported).collect()
    }

    /// Multiplies one factor after the other, by the definition.
    fn product_by_definition(block: &[u8], size: usize, points: &[u64]) -> u128 {
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

    fn check(block: &[u8], size: usize, points: &[u64]) {
        for level in levels() {
            let Some((factors, done)) = factors_at(Some(level), block, size, points) else {
                assert!(block.len() < LEAST_BYTES || (level, size) == (Level::Avx2, 8));
                continue;
            };
            assert!(done <= block.len() && done % size == 0 && block.len() - done < 256);
            assert!(factors.iter().all(|factor| factor >> 63 == 0));
            let product =
                (factors.iter()).fold(1, |all, one| all * u128::from(*one % P as u64) % P);
            assert_eq!(
                product,
                product_by_definition(&block[..done], size, points),
                "{level:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_product_of_the_lanes_is_the_product_of_all_records(
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
            check(&block, size, points);
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        for (size, points) in [(1, 1), (2, 1), (4, 1), (8, 16)] {
            for point in [1 << 3, 1 << 62] {
                for byte in [0, 0x7f, 0x80, 0xef, 0xff] {
                    check(&[byte; 1 << 14], size, &[point; 16][..points]);
                }
            }
        }
    }
}

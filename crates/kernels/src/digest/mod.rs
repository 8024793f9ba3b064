//! A digest of a multiset of records: equal multisets have equal digests, and different ones have different digests
//! with very high probability. It follows no section of the papers: it is a cheap check in addition to the predicates
//! of the 1989 paper.
//!
//! A record x is mapped to a number f(x) modulo p = 2^61 - 1. The digest of a multiset is the product of its f(x) and
//! their count. Digests form a commutative group, except for those with a factor 0: [`Digest::combine`] multiplies, and
//! [`Digest::without`] divides. So the records before and after an exchange have the same digest, in any division and
//! any order.
//!
//! **The bound.** f(x) is a polynomial of degree 1 in the random numbers of the key. Its coefficients are made of x:
//!
//! | a record has | f(x) |
//! |---|---|
//! | up to 7 bytes | r + x |
//! | 8 bytes | r\[top\] + low |
//! | 16 bytes | r\[top, top'\] + low + s low' |
//! | any other number | r + low + sum of s\[i\] low\[i\] + sum of t\[k\] tops\[k\] |
//!
//! where low is the lower 60 bits of a word, top its upper 4 bits, and tops\[k\] the tops of 15 words. Different
//! records have different coefficients, all below p, so that their f are different polynomials. Each has degree 1 and
//! is therefore irreducible, and none is a constant multiple of another, as the coefficient of r is 1 in all. The
//! factorization of polynomials over a field is unique, so that different multisets have different products. The
//! difference of two such products has at most degree n, the larger number of records. By the lemma of Schwartz and
//! Zippel it is zero for at most a share of n / 2^59 of all keys, because their numbers are from a set of 2^59
//! elements. (For records of one number this is the classic test of Lipton, and of Wegman and Carter.) **So two
//! different multisets of up to n records have the same digest with a probability of at most n / 2^59.** If a
//! record has up to 8 bytes, no factor is 0, common factors cancel, and n counts only the records that differ.
//! The bound holds for any two multisets that are chosen without knowledge of the key, and for keys that are
//! drawn uniformly. The keys of this module are drawn from a seed of 64 bits by a good generator for which
//! uniformity is not proven.
//!
//! A sum of hashes would have an error of 2^-61 for a random function, but no family of equally fast hashes is known to
//! be that random: a sum of linear hashes does not detect +1 in one record and -1 in another, and one of quadratic
//! hashes does not distinguish {0, 3, 5, 6} from {1, 2, 4, 7}. The digest must never be an XOR, in which equal records
//! cancel.
//!
//! **The cost** is one multiplication of 64 bits for a record of up to 8 bytes, in all lanes of vector registers for 1,
//! 2, 4 and 8 bytes if the processor has them, with the same value. `benches/digest.rs` compares it with other digests,
//! and `docs/reliable.md` has the figures.

use twox_hash::XxHash3_64;

use crate::kernel;
use crate::random::SplitMix;

/// The modulus, a Mersenne prime.
const P: u64 = (1 << 61) - 1;

/// The numbers of a key are from 1 to 2^59.
const POINT_BITS: u32 = 59;

/// The number of bits in the lower part of a word.
const LOW_BITS: u32 = 60;
const LOW: u64 = (1 << LOW_BITS) - 1;

/// The number of words with upper parts that are combined to one number.
const TOPS: usize = (LOW_BITS / 4) as usize;

/// The number of products that are computed at the same time and do not depend on each other.
const LANES: usize = 6;

/// The digest of a multiset of records. The default is the digest of the empty multiset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest {
    count: u64,
    product: u64,
}

impl Default for Digest {
    fn default() -> Digest {
        Digest {
            count: 0,
            product: 1,
        }
    }
}

impl Digest {
    /// The size of an encoded digest in bytes.
    pub const BYTES: usize = 16;

    /// Returns the number of records.
    pub fn count(self) -> u64 {
        self.count
    }

    /// Returns the digest of both multisets together.
    #[must_use]
    pub fn combine(self, other: Digest) -> Digest {
        Digest {
            count: self.count.wrapping_add(other.count),
            product: times(self.product, other.product),
        }
    }

    /// Returns the digest of the multiset without the records of `part`. None if the digest of `part` has a factor 0,
    /// by which it cannot divide.
    pub fn without(self, part: Digest) -> Option<Digest> {
        (part.product != 0).then(|| Digest {
            count: self.count.wrapping_sub(part.count),
            product: times(self.product, power(part.product, P - 2)),
        })
    }

    /// Encodes the digest in little-endian byte order.
    pub fn encode(self) -> [u8; Digest::BYTES] {
        let halves = u128::from(self.count) << 64 | u128::from(self.product);
        halves.to_le_bytes()
    }

    /// Decodes the result of [`Digest::encode`]. None if the bytes are not a digest.
    pub fn decode(bytes: &[u8]) -> Option<Digest> {
        let halves = u128::from_le_bytes(bytes.try_into().ok()?);
        let (count, product) = ((halves >> 64) as u64, halves as u64);
        (product < P).then_some(Digest { count, product })
    }
}

/// A key, which computes digests of records of one size. Digests of different keys cannot be compared.
#[derive(Clone, Debug)]
pub struct DigestKey {
    record_bytes: usize,
    /// The seed, for digests of byte sequences instead of multisets.
    ordered: Option<u64>,
    /// The numbers r; an index selects one of 16 or 256. For records of up to 8 bytes they are multiplied by eight,
    /// which saves an instruction for each record.
    points: Vec<u64>,
    /// The numbers s, with a t after every 15 of them; none for short records.
    scales: Vec<u64>,
}

impl DigestKey {
    /// Returns the key of a seed, for records of `record_bytes` bytes.
    ///
    /// # Panics
    /// If `record_bytes` is 0.
    pub fn new(seed: u64, record_bytes: usize) -> DigestKey {
        assert!(record_bytes > 0, "a record has at least one byte");
        let words = record_bytes.div_ceil(8);
        let (points, scales) = match record_bytes {
            ..8 => (1, 0),
            8 => (16, 0),
            16 => (256, 1),
            _ => (1, words + words.div_ceil(TOPS)),
        };
        let scale = if record_bytes <= 8 { 3 } else { 0 };
        let mut draw = SplitMix::new(seed);
        let mut number = || 1 + draw.below(1 << POINT_BITS);
        let mut key = DigestKey {
            record_bytes,
            ordered: None,
            points: (0..points).map(|_| number() << scale).collect(),
            scales: (0..scales).map(|_| number()).collect(),
        };
        if record_bytes > 16 || (9..16).contains(&record_bytes) {
            key.scales[0] = 1;
        }
        key
    }

    /// Returns a key for byte sequences. Their digests depend on the order of the bytes. The digest of a
    /// sequence cannot be combined from those of its parts. It is a hash (xxh3 with a seed) for which no bound
    /// is proven; two different sequences are expected to have the same digest with a probability of about
    /// 2^-61.
    pub fn ordered(seed: u64) -> DigestKey {
        DigestKey {
            ordered: Some(seed),
            ..DigestKey::new(seed, 1)
        }
    }

    /// Returns the size of a record in bytes.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Returns the digest of a block of records, which need not be aligned. Digests of pieces that fit into a cache can
    /// be combined.
    ///
    /// # Panics
    /// If the size of the block is not a multiple of the record size.
    pub fn digest(&self, block: &[u8]) -> Digest {
        if let Some(seed) = self.ordered {
            return Digest {
                count: block.len() as u64,
                product: XxHash3_64::oneshot_with_seed(seed, block) % P,
            };
        }
        let records = block.len() / self.record_bytes;
        assert_eq!(
            records * self.record_bytes,
            block.len(),
            "{} bytes are not a multiple of the record size of {} bytes",
            block.len(),
            self.record_bytes
        );
        let numbers = kernel::factors(block, self.record_bytes, &self.points);
        let (begun, rest) = match &numbers {
            Some((lanes, done)) => {
                let lanes = lanes.iter().map(|lane| reduced(*lane));
                (lanes.fold(1, times), &block[*done..])
            }
            None => (1, block),
        };
        Digest {
            count: records as u64,
            product: times(begun, self.product_one_by_one(rest)),
        }
    }

    /// Computes the product without vector instructions.
    fn product_one_by_one(&self, block: &[u8]) -> u64 {
        match self.record_bytes {
            1 => self.product_of_short::<1>(block),
            2 => self.product_of_short::<2>(block),
            3 => self.product_of_short::<3>(block),
            4 => self.product_of_short::<4>(block),
            5 => self.product_of_short::<5>(block),
            6 => self.product_of_short::<6>(block),
            7 => self.product_of_short::<7>(block),
            8 => self.product_of_words(block),
            16 => self.product_of_pairs(block),
            // The loops for these common sizes are unrolled.
            12 => self.product_of_long(block, 12),
            24 => self.product_of_long(block, 24),
            32 => self.product_of_long(block, 32),
            100 => self.product_of_long(block, 100),
            size => self.product_of_long(block, size),
        }
    }

    fn product_of_short<const SIZE: usize>(&self, block: &[u8]) -> u64 {
        let point = self.points[0];
        product::<SIZE, false>(block, |record| point + (word(&record) << 3))
    }

    fn product_of_words(&self, block: &[u8]) -> u64 {
        let points: [u64; 16] = std::array::from_fn(|top| self.points[top]);
        product::<8, false>(block, |record| {
            let number = u64::from_le_bytes(record);
            points[(number >> LOW_BITS) as usize] + ((number & LOW) << 3)
        })
    }

    fn product_of_pairs(&self, block: &[u8]) -> u64 {
        let points: [u64; 256] = std::array::from_fn(|tops| self.points[tops]);
        let scale = self.scales[0] << 3;
        product::<16, true>(block, |record| {
            let both = u128::from_le_bytes(record);
            let (one, other) = (both as u64, (both >> 64) as u64);
            let tops = one >> LOW_BITS | other >> LOW_BITS << 4;
            // The three terms are less than 2^61 + 2^58, 2^60 and 2^59: the first reduction of the sum is below 2^61.
            let sum = step(other & LOW, scale) + (one & LOW) + points[tops as usize];
            nearly_reduced(sum) << 3
        })
    }

    #[inline(always)]
    fn product_of_long(&self, block: &[u8], size: usize) -> u64 {
        let mut lanes = [1; LANES];
        for group in block.chunks(LANES * size) {
            for (lane, record) in lanes.iter_mut().zip(group.chunks_exact(size)) {
                *lane = nearly_reduced(step(*lane, self.factor(record) << 3));
            }
        }
        lanes.into_iter().map(reduced).fold(1, times)
    }

    /// Returns f of a long record.
    #[inline(always)]
    fn factor(&self, record: &[u8]) -> u64 {
        let mut sum = self.points[0];
        let (words, _) = record.as_chunks::<8>();
        // The bytes behind the whole words are the upper ones of the last eight bytes.
        let rest = 8 * (record.len() % 8) as u32;
        let last = record
            .last_chunk()
            .map_or(0, |end| u64::from_le_bytes(*end));
        let mut last = (rest > 0).then(|| last >> (u64::BITS - rest));
        let mut parts = words.chunks(TOPS);
        for scales in self.scales.chunks(TOPS + 1) {
            let part = parts.next().unwrap_or_default();
            let mut sums = (0, 0);
            for (number, scale) in part.iter().zip(scales) {
                sums = with_word(sums, u64::from_le_bytes(*number), *scale);
            }
            let mut used = part.len();
            if used < TOPS
                && let Some(number) = last.take()
            {
                sums = with_word(sums, number, scales[used]);
                used += 1;
            }
            let (products, tops) = sums;
            let products = products + u128::from(tops >> 4) * u128::from(scales[used]);
            sum = reduced(sum + remainder(products));
        }
        sum
    }
}

/// Adds a word to the sum of products, and its top to the others as the highest bits. 16 products below 2^120 do not
/// overflow.
#[inline(always)]
fn with_word((products, tops): (u128, u64), number: u64, scale: u64) -> (u128, u64) {
    let product = u128::from(number & LOW) * u128::from(scale);
    (products + product, tops >> 4 | number & !LOW)
}

/// Returns up to eight bytes as a number.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}

/// Returns the product of the factors of all records. `factor` returns them multiplied by eight. Factors are at most
/// three quarters of 2^61, so that lanes stay below 2^63; or below 2^61 if `LARGE`.
#[inline(always)]
fn product<const SIZE: usize, const LARGE: bool>(
    block: &[u8],
    factor: impl Fn([u8; SIZE]) -> u64,
) -> u64 {
    let (records, _) = block.as_chunks::<SIZE>();
    let (groups, rest) = records.as_chunks::<LANES>();
    let mut lanes = [1; LANES];
    let multiply = |lane: &mut u64, record: &[u8; SIZE]| {
        let product = step(*lane, factor(*record));
        *lane = if LARGE {
            nearly_reduced(product)
        } else {
            product
        };
    };
    for group in groups {
        for (lane, record) in lanes.iter_mut().zip(group) {
            multiply(lane, record);
        }
    }
    for (lane, record) in lanes.iter_mut().zip(rest) {
        multiply(lane, record);
    }
    lanes.into_iter().map(reduced).fold(1, times)
}

/// Returns a number that equals the product modulo p, but need not be below p. `eightfold` is the second factor
/// multiplied by eight: the upper word of the product is the product of the factors divided by 2^61, and the lower word
/// is eight times the remainder of this division.
#[inline(always)]
fn step(one: u64, eightfold: u64) -> u64 {
    let product = u128::from(one) * u128::from(eightfold);
    (product >> 64) as u64 + (product as u64 >> 3)
}

/// Returns a number below 2^61 + 8 that equals this one modulo p.
#[inline(always)]
fn nearly_reduced(number: u64) -> u64 {
    (number & P) + (number >> 61)
}

/// Returns the smallest number that equals this one modulo p.
#[inline(always)]
fn reduced(number: u64) -> u64 {
    let number = nearly_reduced(number);
    if number >= P { number - P } else { number }
}

/// Returns the smallest number that equals this one, which is below 2^124, modulo p. 2^64 equals 8. A shift of both
/// words together would have the same result, but is slow on some processors.
#[inline(always)]
fn remainder(number: u128) -> u64 {
    let (upper, lower) = ((number >> 64) as u64, number as u64);
    reduced((upper << 3) + nearly_reduced(lower))
}

/// Returns the product modulo p of two numbers below p.
#[inline(always)]
fn times(one: u64, other: u64) -> u64 {
    reduced(step(one, other << 3))
}

/// Returns a power modulo p of a number below p.
fn power(base: u64, exponent: u64) -> u64 {
    let bits = (0..u64::BITS - exponent.leading_zeros()).rev();
    bits.fold(1, |result, bit| {
        let square = times(result, result);
        match exponent >> bit & 1 {
            1 => times(square, base),
            _ => square,
        }
    })
}

#[cfg(test)]
mod tests;

//! A digest of a multiset of records: equal multisets have equal digests, and different ones hardly
//! ever. It follows no section of the paper: it is the cheap check beside the paper's predicates.
//!
//! A record x becomes a number f(x) modulo p = 2^61 - 1, and the digest of a multiset is the product of
//! its f(x), beside their count. Digests form a commutative group but for those with a factor 0:
//! [`Digest::combine`] multiplies, [`Digest::without`] divides. So what goes into an exchange must have
//! the digest of what comes out, however it was divided and in whatever order it arrives.
//!
//! **The bound.** f(x) is a polynomial of degree 1 in the key's random numbers, with x as coefficients:
//!
//! | a record has | f(x) |
//! |---|---|
//! | up to 7 bytes | r + x |
//! | 8 bytes | r\[top\] + low |
//! | 16 bytes | r\[top, top'\] + low + s low' |
//! | any other number | r + low + sum of s\[i\] low\[i\] + sum of t\[k\] tops\[k\] |
//!
//! where low is a word's lower 60 bits, top its upper 4, and tops\[k\] the tops of 15 words. Different
//! records have different coefficients, all below p, so their f are different polynomials; each is of
//! degree 1 and so irreducible, and none is a multiple of another by a constant, as the coefficient of
//! r is 1 in all. Polynomials over a field factor in one way only, hence different multisets have
//! different products. The difference of two such products has at most degree n, the larger number
//! of records, and by the lemma of Schwartz and Zippel it is zero for at most a share of n / 2^59 of
//! all keys, whose numbers come from a set of 2^59 elements. (For records of one number this
//! is the classic test of Lipton, and of Wegman and Carter.) **So two different multisets of up to n
//! records are taken for the same with probability n / 2^59 at most**; where a record has up to 8 bytes
//! no factor is ever 0, common factors cancel, and n counts only the records that differ. This holds
//! for any two multisets that are chosen without knowledge of the key. It holds for keys drawn
//! uniformly; ours come from a seed of 64 bits by a generator that is good and not proven.
//!
//! A sum of hashes would have an error of 2^-61 for a random function, but no family that is as quick
//! is known to be that random: sums of linear hashes miss +1 here and -1 there, those of quadratic ones
//! take {0, 3, 5, 6} for {1, 2, 4, 7}. It must never be XOR, in which pairs cancel.
//!
//! **The cost** is one multiplication of 64 bits for a record of up to 8 bytes, in all lanes of vector
//! registers for 1, 2, 4 and 8 bytes where the processor has them; the value is the same. `benches/digest.rs`
//! compares it with others, and `docs/reliable.md` has the figures.

use twox_hash::XxHash3_64;

use crate::kernel;
use crate::random::SplitMix;

/// The modulus, a Mersenne prime.
const P: u64 = (1 << 61) - 1;

/// The key's numbers are from 1 to 2 to this power.
const POINT_BITS: u32 = 59;

/// A word's lower part has so many bits.
const LOW_BITS: u32 = 60;
const LOW: u64 = (1 << LOW_BITS) - 1;

/// The upper parts of so many words are one number.
const TOPS: usize = (LOW_BITS / 4) as usize;

/// So many products side by side, none of which waits for another.
const LANES: usize = 6;

/// The digest of a multiset of records. That of none is the default.
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
    /// The size of [`Digest::encode`]'s result.
    pub const BYTES: usize = 16;

    /// How many records.
    pub fn count(self) -> u64 {
        self.count
    }

    /// Of both multisets together.
    #[must_use]
    pub fn combine(self, other: Digest) -> Digest {
        Digest {
            count: self.count.wrapping_add(other.count),
            product: times(self.product, other.product),
        }
    }

    /// Of what is left when `part` is taken away; None if it has a factor 0, which can be in any
    /// multiset.
    pub fn without(self, part: Digest) -> Option<Digest> {
        (part.product != 0).then(|| Digest {
            count: self.count.wrapping_sub(part.count),
            product: times(self.product, power(part.product, P - 2)),
        })
    }

    /// As a message, the same on every machine.
    pub fn encode(self) -> [u8; Digest::BYTES] {
        let halves = u128::from(self.count) << 64 | u128::from(self.product);
        halves.to_le_bytes()
    }

    /// What [`Digest::encode`] gave; None if it is no digest.
    pub fn decode(bytes: &[u8]) -> Option<Digest> {
        let halves = u128::from_le_bytes(bytes.try_into().ok()?);
        let (count, product) = ((halves >> 64) as u64, halves as u64);
        (product < P).then_some(Digest { count, product })
    }
}

/// What makes digests of records of one size: digests of different keys have nothing in common.
#[derive(Clone, Debug)]
pub struct DigestKey {
    record_bytes: usize,
    /// Blocks are known by their bytes in their order, from this seed on; they are no multisets.
    ordered: Option<u64>,
    /// The r; of 16 or 256 of them an index chooses. For records of up to 8 bytes, eight times r:
    /// multiplying once here saves an instruction for each record.
    points: Vec<u64>,
    /// The s, and the t after every 15 of them. As long as the record, unless it is short.
    scales: Vec<u64>,
}

impl DigestKey {
    /// The key of a seed.
    ///
    /// # Panics
    /// If a record has no bytes.
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

    /// A key for blocks of any bytes in which their order counts: one block, one digest. Digests of
    /// parts do not tell that of the whole. By a hash (xxh3 with a seed) that is good, and for which
    /// nothing is proven; two blocks are taken for the same with a probability of about 2^-61.
    pub fn ordered(seed: u64) -> DigestKey {
        DigestKey {
            ordered: Some(seed),
            ..DigestKey::new(seed, 1)
        }
    }

    /// The size of a record.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// The digest of a block of records, which need not be aligned. Pieces of a block that fit into a
    /// cache may be taken one by one, and combined.
    ///
    /// # Panics
    /// If the block does not end with a record.
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
            "a part of a record"
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

    /// Without vector instructions.
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
            // Loops over so many words are unrolled.
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
            // Less than 2^61 + 2^58, 2^60 and 2^59 together: the first remainder is below 2^61.
            let sum = step(other & LOW, scale) + (one & LOW) + points[tops as usize];
            nearly(sum) << 3
        })
    }

    #[inline(always)]
    fn product_of_long(&self, block: &[u8], size: usize) -> u64 {
        let mut lanes = [1; LANES];
        for group in block.chunks(LANES * size) {
            for (lane, record) in lanes.iter_mut().zip(group.chunks_exact(size)) {
                *lane = nearly(step(*lane, self.factor(record) << 3));
            }
        }
        lanes.into_iter().map(reduced).fold(1, times)
    }

    /// f of a long record.
    #[inline(always)]
    fn factor(&self, record: &[u8]) -> u64 {
        let mut sum = self.points[0];
        let (words, _) = record.as_chunks::<8>();
        // What is left after the whole words, in the upper bytes of the last eight.
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

/// Adds a word to the sum of products and to the tops, of which the last are the highest bits. 16
/// products below 2^120 do not overflow.
#[inline(always)]
fn with_word((products, tops): (u128, u64), number: u64, scale: u64) -> (u128, u64) {
    let product = u128::from(number & LOW) * u128::from(scale);
    (products + product, tops >> 4 | number & !LOW)
}

/// Up to eight bytes as a number.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}

/// The product of all records' factors, each given eight times as large as it is. Factors are at most
/// three quarters of 2^61, so that no lane gets beyond 2^63; or, if they are `LARGE`, below 2^61.
#[inline(always)]
fn product<const SIZE: usize, const LARGE: bool>(
    block: &[u8],
    factor: impl Fn([u8; SIZE]) -> u64,
) -> u64 {
    let (records, _) = block.as_chunks::<SIZE>();
    let (groups, rest) = records.as_chunks::<LANES>();
    let mut lanes = [1; LANES];
    let go = |lane: &mut u64, record: &[u8; SIZE]| {
        let product = step(*lane, factor(*record));
        *lane = if LARGE { nearly(product) } else { product };
    };
    for group in groups {
        for (lane, record) in lanes.iter_mut().zip(group) {
            go(lane, record);
        }
    }
    for (lane, record) in lanes.iter_mut().zip(rest) {
        go(lane, record);
    }
    lanes.into_iter().map(reduced).fold(1, times)
}

/// A product modulo p, though not the smallest number: the upper word of `one` times eight times the
/// other is the product divided by 2^61, and the lower word eight times the rest of that division.
#[inline(always)]
fn step(one: u64, eightfold: u64) -> u64 {
    let product = u128::from(one) * u128::from(eightfold);
    (product >> 64) as u64 + (product as u64 >> 3)
}

/// A number equal to this one modulo p, of hardly more than 61 bits.
#[inline(always)]
fn nearly(number: u64) -> u64 {
    (number & P) + (number >> 61)
}

/// The smallest number equal to this one modulo p.
#[inline(always)]
fn reduced(number: u64) -> u64 {
    let number = nearly(number);
    if number >= P { number - P } else { number }
}

/// The smallest number equal to this one, below 2^124, modulo p: 2^64 counts as 8. A shift of both words
/// together would do as well, but is slow on some processors.
#[inline(always)]
fn remainder(number: u128) -> u64 {
    let (upper, lower) = ((number >> 64) as u64, number as u64);
    reduced((upper << 3) + nearly(lower))
}

/// The product of two numbers below p.
#[inline(always)]
fn times(one: u64, other: u64) -> u64 {
    reduced(step(one, other << 3))
}

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

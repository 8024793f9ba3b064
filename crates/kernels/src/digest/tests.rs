//! Compares the digest with its definition, and tests it on changes that other digests do not detect.

use super::*;
use proptest::prelude::*;

/// Record sizes for every formula, with and without a partial word at the end.
const SIZES: [usize; 20] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 32, 100, 119, 120, 121, 250,
];

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut draw = SplitMix::new(seed);
    (0..length).map(|_| draw.bits() as u8).collect()
}

fn slow_times(one: u64, other: u64) -> u64 {
    (u128::from(one) * u128::from(other) % u128::from(P)) as u64
}

/// Computes f as the table defines it.
fn slow_factor(key: &DigestKey, record: &[u8]) -> u64 {
    let words: Vec<u64> = record.chunks(8).map(word).collect();
    let low = |index: usize| words[index] % (1 << LOW_BITS);
    let top = |index: usize| words[index] >> LOW_BITS;
    let sum = match record.len() {
        ..8 => key.points[0] / 8 + words[0],
        8 => key.points[top(0) as usize] / 8 + low(0),
        16 => {
            let point = key.points[(top(1) * 16 + top(0)) as usize];
            point + low(0) % P + slow_times(key.scales[0], low(1))
        }
        _ => {
            let mut sum = key.points[0];
            let parts = (0..words.len()).collect::<Vec<_>>();
            for (part, scales) in parts.chunks(15).zip(key.scales.chunks(16)) {
                let mut tops = 0;
                for (index, scale) in part.iter().zip(scales) {
                    sum = (sum + slow_times(low(*index), *scale)) % P;
                    tops = tops / 16 + (top(*index) << 56);
                }
                sum = (sum + slow_times(tops, scales[part.len()])) % P;
            }
            sum
        }
    };
    sum % P
}

fn slow_digest(key: &DigestKey, block: &[u8]) -> Digest {
    let records = block.chunks(key.record_bytes());
    Digest {
        count: records.len() as u64,
        product: records.fold(1, |product, record| {
            slow_times(product, slow_factor(key, record))
        }),
    }
}

/// Returns whether two blocks have the same multiset of records.
fn same(one: &[u8], other: &[u8], size: usize) -> bool {
    let sorted = |block: &[u8]| {
        let mut records: Vec<Vec<u8>> = block.chunks(size).map(<[u8]>::to_vec).collect();
        records.sort();
        records
    };
    sorted(one) == sorted(other)
}

proptest! {
    #[test]
    fn digests_of_every_record_size_match_the_definition(seed: u64, count in 0_usize..40, extreme in 0_u8..3) {
        for size in SIZES {
            let mut block = bytes(seed ^ 1, count * size);
            match extreme {
                0 => block.fill(0xff),
                1 => block.fill(0),
                _ => {}
            }
            let key = DigestKey::new(seed, size);
            prop_assert_eq!(key.digest(&block), slow_digest(&key, &block), "{} bytes", size);
        }
    }

    #[test]
    fn digests_do_not_depend_on_order_and_division(seed: u64, count in 0_usize..60, at: prop::sample::Index) {
        for size in SIZES {
            let block = bytes(seed, count * size);
            let key = DigestKey::new(seed, size);
            let whole = key.digest(&block);
            let (one, other) = block.split_at(at.index(count + 1) * size);
            let (one, other) = (key.digest(one), key.digest(other));
            prop_assert_eq!(one.combine(other), whole);
            prop_assert_eq!(other.combine(one), whole);
            prop_assert_eq!(whole.combine(Digest::default()), whole);
            prop_assert_eq!(whole.without(one), Some(other));
            let mut records: Vec<&[u8]> = block.chunks(size).collect();
            records.reverse();
            records.sort_by_key(|record| record[0] % 3);
            prop_assert_eq!(key.digest(&records.concat()), whole);
            prop_assert_eq!(Digest::decode(&whole.encode()), Some(whole));
        }
    }

    #[test]
    fn detects_changed_and_missing_records(seed: u64, count in 2_usize..30, at: prop::sample::Index, bit in 0_u32..8) {
        for size in SIZES {
            let block = bytes(seed, count * size);
            let key = DigestKey::new(seed, size);
            let whole = key.digest(&block);
            let at = at.index(block.len());
            let mut changed = block.clone();
            changed[at] ^= 1_u8 << bit;
            prop_assert_ne!(key.digest(&changed), whole);
            // The same bit of two records is flipped, which XOR does not detect.
            changed[(at + size) % block.len()] ^= 1_u8 << bit;
            prop_assert_eq!(key.digest(&changed) == whole, same(&changed, &block, size));
            // One record occurs twice instead of two different ones, which a count does not detect.
            let mut double = block.clone();
            double.copy_within(size..2 * size, 0);
            prop_assert_eq!(key.digest(&double) == whole, same(&double, &block, size));
            prop_assert_ne!(key.digest(&block[size..]), whole);
        }
    }

    #[test]
    fn detects_changes_that_keep_the_sum_of_a_record(seed: u64, one in 0_u64..1 << 58, other in 1_u64 << 58..1 << 59) {
        for size in SIZES.into_iter().filter(|size| *size >= 16) {
            let key = DigestKey::new(seed, size);
            let digest = |one: u64, other: u64| {
                let mut record = bytes(seed, size);
                record[..8].copy_from_slice(&one.to_le_bytes());
                record[8..16].copy_from_slice(&other.to_le_bytes());
                key.digest(&record)
            };
            let whole = digest(one, other);
            prop_assert_ne!(digest(other, one), whole, "{} bytes", size);
            prop_assert_ne!(digest(one + 1, other - 1), whole, "{} bytes", size);
        }
    }

    #[test]
    fn detects_multisets_with_equal_moments(seed: u64, base in 0_u32..1 << 30, factor in 1_u32..1 << 20) {
        // A solution of the Prouhet-Tarry-Escott problem: equal sums, sums of squares and sums of cubes.
        let digest = |numbers: [u32; 8]| {
            let numbers = numbers.map(|number| (base + factor * number).to_le_bytes());
            DigestKey::new(seed, 4).digest(numbers.as_flattened())
        };
        prop_assert_ne!(
            digest([0, 3, 5, 6, 9, 10, 12, 15]),
            digest([1, 2, 4, 7, 8, 11, 13, 14])
        );
    }
}

proptest! {
    #[test]
    fn digests_are_equal_with_and_without_vector_instructions(
        seed: u64,
        size in 1_usize..18,
        count in 0_usize..4000,
        extreme in prop::option::of(any::<u8>()),
    ) {
        let mut block = bytes(seed, size * count);
        if let Some(byte) = extreme {
            block.fill(byte);
        }
        let key = DigestKey::new(seed, size);
        let digest = key.digest(&block);
        prop_assert_eq!(digest.product, key.product_one_by_one(&block));
        // With another assignment of records to lanes.
        let (one, other) = block.split_at(count / 3 * size);
        prop_assert_eq!(digest, key.digest(other).combine(key.digest(one)));
    }
}

#[test]
fn rejects_bytes_that_are_not_a_digest() {
    assert_eq!(Digest::decode(&[0; 15]), None);
    let mut bytes = Digest::default().encode();
    bytes[..8].copy_from_slice(&P.to_le_bytes());
    assert_eq!(Digest::decode(&bytes), None);
    let none = Digest {
        count: 1,
        product: 0,
    };
    assert_eq!(Digest::default().without(none), None);
}

/// The low bits of different digests are equal as rarely as those of random numbers.
#[test]
fn keys_distribute_digests_evenly() {
    let one = bytes(1, 64);
    let mut other = one.clone();
    other[5] ^= 1;
    for size in [1, 2, 4, 8, 16, 32] {
        let seeds = 0..20_000;
        let alike = seeds.filter(|seed| {
            let key = DigestKey::new(*seed, size);
            let bits = |block: &[u8]| key.digest(block).product % 64;
            bits(&one) == bits(&other)
        });
        // The expected number is 312, with a standard deviation of 18.
        let alike = alike.count();
        assert!((212..412).contains(&alike), "{size} bytes: {alike}");
    }
}

#[test]
#[should_panic(expected = "not a multiple of the record size")]
fn panics_for_a_partial_record() {
    DigestKey::new(1, 4).digest(&[0; 6]);
}

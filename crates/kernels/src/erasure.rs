//! The arithmetic of erasure codes: sums of bytes in the field of 256 elements, and a code of which any lost parts can
//! be solved for from as many shares (a Cauchy matrix; Blömer et al. 1995, "An XOR-based erasure-resilient coding
//! scheme"). The first share is the exclusive or of the parts.
//!
//! Must never: allocate, or know the ranks that have the parts.

/// The polynomial of the field without its highest term: x^8 + x^4 + x^3 + x^2 + 1.
const POLYNOMIAL: u8 = 0x1d;

/// The greatest number of parts and shares together.
pub const MOST_PARTS: usize = 256;

/// Doubles an element: multiplies it by x.
const fn doubled(element: u8) -> u8 {
    (element << 1) ^ (POLYNOMIAL & ((element as i8) >> 7) as u8)
}

/// Returns the product of two elements.
pub const fn product(one: u8, other: u8) -> u8 {
    let mut sum = 0;
    let mut bit = 8;
    while bit > 0 {
        bit -= 1;
        sum = doubled(sum);
        if other >> bit & 1 == 1 {
            sum ^= one;
        }
    }
    sum
}

/// Returns the inverse of an element; 0 for 0. The elements but 0 are a group of 255.
pub const fn inverse(element: u8) -> u8 {
    let mut power = element;
    let mut result = 1;
    // 254 = 2 + 4 + ... + 128.
    let mut step = 0;
    while step < 7 {
        power = product(power, power);
        result = product(result, power);
        step += 1;
    }
    result
}

/// Adds `factor` times the `piece` to the beginning of the sum.
///
/// # Panics
/// If the piece is longer than the sum.
pub fn add_scaled(sum: &mut [u8], piece: &[u8], factor: u8) {
    let sum = &mut sum[..piece.len()];
    match factor {
        0 => {}
        1 => add(sum, piece),
        _ => {
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has these instructions.
                return unsafe { add_product_avx2(sum, piece, &products_of_halves(factor)) };
            }
            add_product(sum, piece, &products_of_halves(factor));
        }
    }
}

fn add(sum: &mut [u8], piece: &[u8]) {
    for (sum, byte) in sum.iter_mut().zip(piece) {
        *sum ^= byte;
    }
}

/// The products with each number of 4 bits, in the low and in the high half of a byte.
type Products = [[u8; 16]; 2];

fn products_of_halves(factor: u8) -> Products {
    [0, 4].map(|shift| std::array::from_fn(|value| product(factor, (value as u8) << shift)))
}

/// As [`add_product`], 32 bytes at a time (Plank, Greenan and Miller 2013, "Screaming fast Galois field arithmetic using
/// Intel SIMD instructions").
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_product_avx2(sum: &mut [u8], piece: &[u8], products: &Products) {
    use std::arch::x86_64::{
        __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
        _mm256_loadu_si256, _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi64,
        _mm256_storeu_si256, _mm256_xor_si256,
    };
    const LANES: usize = 32;
    // SAFETY: each table has 16 bytes.
    let [low, high] = products.each_ref().map(|table| unsafe {
        _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()))
    });
    let half = _mm256_set1_epi8(0xf);
    let (sums, last_sum) = sum.as_chunks_mut::<LANES>();
    let (pieces, last_piece) = piece.as_chunks::<LANES>();
    for (sum, piece) in sums.iter_mut().zip(pieces) {
        let place: *mut __m256i = sum.as_mut_ptr().cast();
        // SAFETY: both chunks have 32 bytes.
        unsafe {
            let bytes = _mm256_loadu_si256(piece.as_ptr().cast());
            let below = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, half));
            let above = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), half);
            let scaled = _mm256_xor_si256(below, _mm256_shuffle_epi8(high, above));
            _mm256_storeu_si256(place, _mm256_xor_si256(_mm256_loadu_si256(place), scaled));
        }
    }
    add_product(last_sum, last_piece, products);
}

/// Adds the products of the bytes of the piece: that of a byte is the sum of those of its halves.
fn add_product(sum: &mut [u8], piece: &[u8], products: &Products) {
    for (sum, byte) in sum.iter_mut().zip(piece) {
        *sum ^= products[0][usize::from(byte & 0xf)] ^ products[1][usize::from(byte >> 4)];
    }
}

/// Returns the factor of a part in a share of a code with so many shares.
///
/// # Panics
/// If the parts and shares are more than [`MOST_PARTS`].
pub fn factor(share: usize, part: usize, shares: usize) -> u8 {
    assert!(share < shares && shares + part < MOST_PARTS);
    // The entry of the Cauchy matrix, divided by that of the first share: all factors of the first share are 1.
    let column = (shares + part) as u8;
    product(column, inverse(share as u8 ^ column))
}

/// Returns, for the part `wanted` among the `lost` parts, the factors of as many `shares` with which their sum gives
/// that part, once the other parts have been subtracted from the shares. `of`: the number of shares of the code.
///
/// # Panics
/// If there are not as many shares as lost parts, or `wanted` is not lost.
pub fn solution(lost: &[usize], shares: &[usize], wanted: usize, of: usize) -> Vec<u8> {
    assert!(lost.len() == shares.len() && lost.contains(&wanted));
    let size = lost.len();
    // Each row has the factors of the lost parts in one share, and then those of the shares in the result.
    let row = |index: usize| {
        let parts = lost.iter().map(|part| factor(shares[index], *part, of));
        parts
            .chain((0..size).map(|column| u8::from(column == index)))
            .collect()
    };
    let mut rows: Vec<Vec<u8>> = (0..size).map(row).collect();
    for column in 0..size {
        // A square part of a Cauchy matrix can be inverted, so such a row exists.
        let pivot = (column..size).find(|row| rows[*row][column] != 0);
        rows.swap(column, pivot.unwrap_or(column));
        let scale = inverse(rows[column][column]);
        rows[column]
            .iter_mut()
            .for_each(|entry| *entry = product(*entry, scale));
        let pivot = rows[column].clone();
        for (index, row) in rows.iter_mut().enumerate() {
            let scale = row[column];
            if index != column {
                add_scaled(row, &pivot, scale);
            }
        }
    }
    let place = lost.iter().position(|part| *part == wanted).unwrap_or(0);
    rows[place].split_off(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_element_has_an_inverse_and_the_first_share_is_an_exclusive_or() {
        for element in 1..=255 {
            assert_eq!(product(element, inverse(element)), 1);
            assert_eq!(product(element, 1), element);
        }
        for shares in 1..20 {
            assert!((0..100).all(|part| factor(0, part, shares) == 1));
        }
    }

    proptest! {
        #[test]
        fn scaled_pieces_are_added(
            piece in prop::collection::vec(any::<u8>(), 0..400),
            factor: u8,
            longer in 0_usize..80,
            start: u8,
        ) {
            let mut sum = vec![start; piece.len() + longer];
            let mut portable = sum.clone();
            add_scaled(&mut sum, &piece, factor);
            add_product(&mut portable, &piece, &products_of_halves(factor));
            prop_assert_eq!(&sum, &portable);
            for (index, byte) in sum.into_iter().enumerate() {
                let added = piece.get(index).map_or(0, |byte| product(factor, *byte));
                prop_assert_eq!(byte, start ^ added);
            }
        }

        #[test]
        fn lost_parts_are_solved_for(
            (parts, shares, order) in (1_usize..30, 1_usize..6).prop_flat_map(|(parts, shares)| {
                let order = Just((0..parts + shares).collect::<Vec<usize>>()).prop_shuffle();
                (prop::collection::vec(any::<u8>(), parts), Just(shares), order)
            }),
        ) {
            let count = parts.len();
            // As many of the parts and shares as there are shares are erased.
            let erased: Vec<usize> = order[..shares].to_vec();
            let lost: Vec<usize> = (0..count).filter(|part| erased.contains(part)).collect();
            let left: Vec<usize> = (0..shares).filter(|share| !erased.contains(&(count + share))).collect();
            let used = &left[..lost.len()];
            for wanted in &lost {
                let factors = solution(&lost, used, *wanted, shares);
                let mut sum = 0;
                for (share, scale) in used.iter().zip(&factors) {
                    let mut left = 0;
                    for part in &lost {
                        left ^= product(factor(*share, *part, shares), parts[*part]);
                    }
                    sum ^= product(*scale, left);
                }
                prop_assert_eq!(sum, parts[*wanted]);
            }
        }
    }
}

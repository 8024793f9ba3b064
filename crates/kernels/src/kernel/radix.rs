//! Radix sort of words on the calling thread, in place.
//!
//! A large block is first partitioned in place into buckets by the most significant digit (an American flag sort),
//! until the buckets fit the first-level cache. A bucket is then sorted by as many of its leading bits as its size can
//! make use of, from the least significant digit up (LSD), through a small scratch space. Words that agree in all of
//! these bits are few, unless the data are skewed, and are sorted separately afterwards. This module must never start a
//! thread, nor allocate memory that grows with the block.

use crate::buffer::Buffer;
use crate::record::Word;

/// Up to this many words the comparison sort of the standard library is faster.
const SMALL: usize = 160;

/// The size of the scratch space in words. Together with a bucket it is about as large as a first-level cache.
pub const BUCKET: usize = 1 << 13;

/// The largest number of bits of a digit.
const DIGIT_BITS: u32 = 8;
const DIGITS: usize = 1 << DIGIT_BITS;

/// A bucket is sorted by at least this many bits more than its words can be numbered with. Few words of random data
/// then agree in all of these bits, and to sort these separately costs less than another digit.
const SPARE_BITS: u32 = 3;

/// A large block is partitioned into 2^6 buckets at a time: the pages of more buckets do not fit the first-level
/// translation cache, and each step then costs four times as much.
const PARTITION_BITS: u32 = 6;

/// The pages of a block of at most this many bytes fit the second-level translation cache, so that it can be
/// partitioned into more buckets.
const TRANSLATED_BYTES: usize = 1 << 22;

/// Sorts words in ascending order.
pub fn sort<W: Word>(words: &mut [W]) {
    if words.len() <= SMALL {
        words.sort_unstable();
        return;
    }
    match Buffer::zeroed(BUCKET.min(words.len()) * size_of::<W>()) {
        Ok(mut scratch) => sort_with(words, bytemuck::cast_slice_mut(&mut scratch)),
        // A comparison sort needs no scratch space.
        Err(_) => words.sort_unstable(),
    }
}

/// Sorts words in ascending order, through a scratch space of at most `scratch.len()` words.
pub fn sort_with<W: Word>(words: &mut [W], scratch: &mut [W]) {
    if words.len() <= SMALL {
        words.sort_unstable();
        return;
    }
    let bits = differing_bits(words);
    if bits == 0 {
        return;
    }
    if words.len() > scratch.len() {
        partition_and_sort(words, scratch, bits);
        return;
    }
    let wanted = words.len().ilog2() + SPARE_BITS + crowding(sample(words), bits);
    let window = bits.min(wanted.next_multiple_of(DIGIT_BITS));
    let undecided = bits - window;
    sort_by_window(words, scratch, undecided, window);
    if undecided > 0 {
        sort_groups(words, scratch, undecided);
    }
}

/// Returns how many of the low bits differ in some words.
fn differing_bits<W: Word>(words: &[W]) -> u32 {
    let first = words[0];
    let differences = words
        .iter()
        .fold(W::zeroed(), |all, word| all | (*word ^ first));
    differences.significant_bits()
}

/// The number of words in the sample for [`crowding`].
pub const SAMPLE: usize = 64;

/// Returns how many bits of the leading digit carry no information because some of its values occur more often than
/// others. The estimate counts the pairs of equal values in a sample.
pub fn crowding<W: Word>(sample: impl Iterator<Item = W>, bits: u32) -> u32 {
    const PAIRS_IF_EVEN: u32 = (SAMPLE * (SAMPLE - 1) / 2 / DIGITS) as u32 + 1;
    let shift = bits.saturating_sub(DIGIT_BITS);
    let mut counts = [0_u32; DIGITS];
    let mut pairs = 0;
    for word in sample.take(SAMPLE) {
        let count = &mut counts[usize::from(word.digit(shift))];
        pairs += *count;
        *count += 1;
    }
    (pairs / PAIRS_IF_EVEN).max(1).ilog2()
}

fn sample<W: Word>(words: &[W]) -> impl Iterator<Item = W> {
    words.iter().step_by(words.len() / SAMPLE).copied()
}

/// Partitions the words into buckets by their leading bits, and sorts the buckets.
fn partition_and_sort<W: Word>(words: &mut [W], scratch: &mut [W], bits: u32) {
    let widest = match size_of_val(words) {
        ..=TRANSLATED_BYTES => DIGIT_BITS,
        _ => PARTITION_BITS,
    };
    // All steps have about the same width, and the last one leaves buckets that fit the scratch space.
    let fitting = scratch.len() / 4 * 3;
    let excess = (words.len() / fitting).ilog2() + 1;
    let width = excess.div_ceil(excess.div_ceil(widest));
    // Empty buckets cost nothing.
    let width = (width + crowding(sample(words), bits))
        .min(DIGIT_BITS)
        .min(bits);
    let ends = partition_in_place(words, bits - width);
    let (mut rest, mut done) = (words, 0);
    for end in ends {
        let (bucket, others) = std::mem::take(&mut rest).split_at_mut(end - done);
        sort_with(bucket, scratch);
        (rest, done) = (others, end);
    }
}

/// Partitions the words by the digit that starts at bit `shift`, and returns the end of each bucket. The bits above
/// that digit must be equal in all words.
fn partition_in_place<W: Word>(words: &mut [W], shift: u32) -> [usize; DIGITS] {
    let bucket_of = |word: W| usize::from(word.digit(shift));
    // Neighbours are counted in different tables: an addition to the counter that was changed last has to wait.
    let mut counts = [[0_usize; DIGITS]; 2];
    let (pairs, rest) = words.as_chunks::<2>();
    for [one, other] in pairs {
        counts[0][bucket_of(*one)] += 1;
        counts[1][bucket_of(*other)] += 1;
    }
    for word in rest {
        counts[0][bucket_of(*word)] += 1;
    }
    let mut next = [0; DIGITS];
    let mut ends = [0; DIGITS];
    let mut sum = 0;
    for bucket in 0..DIGITS {
        next[bucket] = sum;
        sum += counts[0][bucket] + counts[1][bucket];
        ends[bucket] = sum;
    }
    // A pass over a bucket swaps each word with the next word of the bucket that it belongs to. The word that comes
    // back may belong to a third bucket, so that another pass over far fewer words may follow: independent swaps are
    // faster than cycles of dependent ones.
    let mut is_complete = false;
    while !is_complete {
        is_complete = true;
        for bucket in 0..DIGITS {
            for from in next[bucket]..ends[bucket] {
                let word = words[from];
                let to = &mut next[bucket_of(word)];
                words[from] = words[*to];
                words[*to] = word;
                *to += 1;
            }
            is_complete &= next[bucket] == ends[bucket];
        }
    }
    ends
}

/// Sorts by the `window` bits from bit `shift` on. The bits above must be equal in all words.
fn sort_by_window<W: Word>(words: &mut [W], scratch: &mut [W], shift: u32, window: u32) {
    let passes = window.div_ceil(DIGIT_BITS);
    let width = window.div_ceil(passes);
    let scratch = &mut scratch[..words.len()];
    let mut in_place = true;
    for pass in 0..passes {
        let low = shift + pass * width;
        let width = width.min(shift + window - low);
        if in_place {
            distribute(words, scratch, low, width);
        } else {
            distribute(scratch, words, low, width);
        }
        in_place = !in_place;
    }
    if !in_place {
        words.copy_from_slice(scratch);
    }
}

/// Copies the words of `from` to `to` in the order of one digit. Words with equal digits keep their order.
fn distribute<W: Word>(from: &[W], to: &mut [W], shift: u32, width: u32) {
    let mask = u8::MAX >> (DIGIT_BITS - width);
    let digit = |word: W| usize::from(word.digit(shift) & mask);
    let mut counts = [[0_u32; DIGITS]; 2];
    let (pairs, rest) = from.as_chunks::<2>();
    for [one, other] in pairs {
        counts[0][digit(*one)] += 1;
        counts[1][digit(*other)] += 1;
    }
    for word in rest {
        counts[0][digit(*word)] += 1;
    }
    let [next, others] = &mut counts;
    let mut sum = 0;
    for (next, other) in next.iter_mut().zip(others).take(1 << width) {
        let count = *next + *other;
        *next = sum;
        sum += count;
    }
    for word in from {
        let index = &mut next[digit(*word)];
        to[*index as usize] = *word;
        *index += 1;
    }
}

/// Sorts those groups of words with equal bits above the `undecided` low bits that are not sorted.
fn sort_groups<W: Word>(words: &mut [W], scratch: &mut [W], undecided: u32) {
    let mut start = 0;
    while let Some(descent) = words[start..].windows(2).position(|pair| pair[0] > pair[1]) {
        let seed = words[start + descent];
        let is_other_group = |word: &W| (*word ^ seed).significant_bits() > undecided;
        let (before, after) = words.split_at(start + descent);
        let first = before
            .iter()
            .rposition(is_other_group)
            .map_or(0, |last| last + 1);
        let end = before.len() + after.iter().position(is_other_group).unwrap_or(after.len());
        sort_with(&mut words[first..end], scratch);
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check<W: Word>(mut words: Vec<W>) {
        let mut expected = words.clone();
        expected.sort_unstable();
        sort(&mut words);
        assert!(words == expected, "{} words", words.len());
    }

    /// Returns pseudo-random numbers, changed by `shape`.
    fn shaped(length: usize, shape: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut state = 88_172_645_463_325_252_u64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            shape(state)
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn sorts_all_shapes_with_lengths_around_the_limits() {
        let shapes: [fn(u64) -> u64; 9] = [
            |r| r,
            |r| r % 1000,
            |r| r & 1,
            |r| r >> (r % 64),
            |r| 1 << (r % 64),
            |r| r << 56 | 77,
            |r| if r.is_multiple_of(1000) { r } else { 5 },
            |r| (r as i64 as f64).to_bits(),
            |r| r & 0xff00_0000_0000_00ff,
        ];
        let fitting = BUCKET / 4 * 3;
        for shape in shapes {
            for limit in [SMALL, 500, fitting, BUCKET, 2 * fitting, 20 * BUCKET] {
                for length in [limit - 1, limit, limit + 1] {
                    let words = shaped(length, shape);
                    check(words.iter().map(|word| (*word >> 11) as u32).collect());
                    check(words);
                }
            }
        }
    }

    #[test]
    fn sorts_more_words_than_the_caches_hold() {
        for shape in [|r| r, |r| r >> (r % 40)] {
            check(shaped(TRANSLATED_BYTES / 8 * 3, shape));
        }
    }

    proptest! {
        #[test]
        fn sorts_any_words(
            words in prop::collection::vec(any::<u64>(), 0..2000),
            mask in prop::sample::select(vec![u64::MAX, 0xffff, 3 << 40 | 1, 0]),
        ) {
            let words: Vec<u64> = words.into_iter().map(|word| word & mask).collect();
            check(words.iter().map(|word| *word as u32).collect());
            check(words);
        }
    }
}

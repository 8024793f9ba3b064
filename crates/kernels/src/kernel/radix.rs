//! Sorting words on the calling thread, in place: radix sort from the top, cache by cache.
//!
//! A large block is first dealt out in place to a few buckets (an American flag sort), until the
//! buckets fit the first-level cache. A bucket is then sorted by as many of its leading bits as its
//! size can make use of, from the lowest digit up (LSD), through a small scratch space; words that
//! agree in all of these bits are few, unless the data are skewed, and are sorted among themselves
//! afterwards. It must never start a thread, nor need memory that grows with the block.

use crate::buffer::Buffer;
use crate::record::Word;

/// Up to this many words the standard library's comparison sort wins.
const SMALL: usize = 160;

/// The scratch space: this many words. With the bucket it hardly exceeds a first-level cache.
pub const BUCKET: usize = 1 << 13;

/// Digits have eight bits at most.
const DIGIT_BITS: u32 = 8;
const DIGITS: usize = 1 << DIGIT_BITS;

/// So many bits more than it takes to number a bucket's words are sorted by, at least: in random
/// data few words then have to be put right afterwards, which costs less than another digit.
const SPARE_BITS: u32 = 3;

/// Words are dealt to 2^6 places at a time: more pages than that do not fit the first-level
/// translation cache, and each step then costs four times as much...
const DEAL_BITS: u32 = 6;

/// ...unless all pages together fit the second-level one.
const TRANSLATED_BYTES: usize = 1 << 22;

/// Sorts words, ascending.
pub fn sort<W: Word>(words: &mut [W]) {
    if words.len() <= SMALL {
        words.sort_unstable();
        return;
    }
    match Buffer::zeroed(BUCKET.min(words.len()) * size_of::<W>()) {
        Ok(mut scratch) => sort_with(words, bytemuck::cast_slice_mut(&mut scratch)),
        // A comparison sort needs no memory.
        Err(_) => words.sort_unstable(),
    }
}

/// Sorts words, ascending, through a scratch space of its own size.
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
        deal(words, scratch, bits);
        return;
    }
    let wanted = words.len().ilog2() + SPARE_BITS + crowding(sample(words), bits);
    let window = bits.min(wanted.next_multiple_of(DIGIT_BITS));
    let undecided = bits - window;
    sort_by_window(words, scratch, undecided, window);
    if undecided > 0 {
        settle_groups(words, scratch, undecided);
    }
}

/// How many of the low bits it takes to tell the words apart.
fn differing_bits<W: Word>(words: &[W]) -> u32 {
    let first = words[0];
    let differences = words
        .iter()
        .fold(W::zeroed(), |all, word| all | (*word ^ first));
    differences.significant_bits()
}

/// How many words [`crowding`] wants to see.
pub const SAMPLE: usize = 64;

/// How many bits of the leading digit are wasted, since some of its values occur more often than
/// others: estimated from the pairs of equal ones in a sample.
pub fn crowding<W: Word>(sample: impl Iterator<Item = W>, bits: u32) -> u32 {
    const PAIRS_IF_EVEN: u32 = (SAMPLE * (SAMPLE - 1) / 2 / DIGITS) as u32 + 1;
    let shift = bits.saturating_sub(DIGIT_BITS);
    let mut seen = [0_u32; DIGITS];
    let mut pairs = 0;
    for word in sample.take(SAMPLE) {
        let seen = &mut seen[usize::from(word.digit(shift))];
        pairs += *seen;
        *seen += 1;
    }
    (pairs / PAIRS_IF_EVEN).max(1).ilog2()
}

fn sample<W: Word>(words: &[W]) -> impl Iterator<Item = W> {
    words.iter().step_by(words.len() / SAMPLE).copied()
}

/// Deals the words out to buckets by their leading bits, and sorts the buckets.
fn deal<W: Word>(words: &mut [W], scratch: &mut [W], bits: u32) {
    let widest = match size_of_val(words) {
        ..=TRANSLATED_BYTES => DIGIT_BITS,
        _ => DEAL_BITS,
    };
    // Steps of about the same width, the last of which leaves buckets that fit.
    let roomy = scratch.len() / 4 * 3;
    let excess = (words.len() / roomy).ilog2() + 1;
    let width = excess.div_ceil(excess.div_ceil(widest));
    // Places that nobody goes to cost nothing.
    let width = (width + crowding(sample(words), bits))
        .min(DIGIT_BITS)
        .min(bits);
    let ends = deal_in_place(words, bits - width);
    let (mut rest, mut done) = (words, 0);
    for end in ends {
        let (bucket, others) = std::mem::take(&mut rest).split_at_mut(end - done);
        sort_with(bucket, scratch);
        (rest, done) = (others, end);
    }
}

/// Puts the words in the order of the digit that starts at `shift`; returns where each bucket ends.
/// The bits above that digit are alike in all words.
fn deal_in_place<W: Word>(words: &mut [W], shift: u32) -> [usize; DIGITS] {
    let place = |word: W| usize::from(word.digit(shift));
    // Two tables, since one would have to wait for itself when neighbours are alike.
    let mut counts = [[0_usize; DIGITS]; 2];
    let (pairs, rest) = words.as_chunks::<2>();
    for [one, other] in pairs {
        counts[0][place(*one)] += 1;
        counts[1][place(*other)] += 1;
    }
    for word in rest {
        counts[0][place(*word)] += 1;
    }
    let mut next = [0; DIGITS];
    let mut ends = [0; DIGITS];
    let mut sum = 0;
    for bucket in 0..DIGITS {
        next[bucket] = sum;
        sum += counts[0][bucket] + counts[1][bucket];
        ends[bucket] = sum;
    }
    // A sweep over a bucket sends each word home, and takes in exchange what lies there. That need
    // not belong here, so that another sweep may follow, over far fewer words: independent swaps are
    // faster than following one word after the other home.
    let mut open = true;
    while open {
        open = false;
        for bucket in 0..DIGITS {
            for from in next[bucket]..ends[bucket] {
                let word = words[from];
                let home = &mut next[place(word)];
                words[from] = words[*home];
                words[*home] = word;
                *home += 1;
            }
            open |= next[bucket] < ends[bucket];
        }
    }
    ends
}

/// Sorts by `window` bits from `shift` on, those above being alike in all words.
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

/// One pass: `to` gets the words of `from` in the order of one digit, equal ones in the order that
/// they had.
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
        let place = &mut next[digit(*word)];
        to[*place as usize] = *word;
        *place += 1;
    }
}

/// Sorts groups of words that differ in the `undecided` low bits only, where they need it.
fn settle_groups<W: Word>(words: &mut [W], scratch: &mut [W], undecided: u32) {
    let mut start = 0;
    while let Some(descent) = words[start..].windows(2).position(|pair| pair[0] > pair[1]) {
        let seed = words[start + descent];
        let other = |word: &W| (*word ^ seed).significant_bits() > undecided;
        let (before, after) = words.split_at(start + descent);
        let first = before.iter().rposition(other).map_or(0, |last| last + 1);
        let end = before.len() + after.iter().position(other).unwrap_or(after.len());
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

    /// Pseudo-random numbers, shaped.
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
    fn all_lengths_around_the_limits_and_all_shapes() {
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
        let roomy = BUCKET / 4 * 3;
        for shape in shapes {
            for limit in [SMALL, 500, roomy, BUCKET, 2 * roomy, 20 * BUCKET] {
                for length in [limit - 1, limit, limit + 1] {
                    let words = shaped(length, shape);
                    check(words.iter().map(|word| (*word >> 11) as u32).collect());
                    check(words);
                }
            }
        }
    }

    #[test]
    fn more_than_the_caches_hold() {
        for shape in [|r| r, |r| r >> (r % 40)] {
            check(shaped(TRANSLATED_BYTES / 8 * 3, shape));
        }
    }

    proptest! {
        #[test]
        fn any_words(
            words in prop::collection::vec(any::<u64>(), 0..2000),
            mask in prop::sample::select(vec![u64::MAX, 0xffff, 3 << 40 | 1, 0]),
        ) {
            let words: Vec<u64> = words.into_iter().map(|word| word & mask).collect();
            check(words.iter().map(|word| *word as u32).collect());
            check(words);
        }
    }
}

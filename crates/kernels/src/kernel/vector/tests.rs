//! All lengths, shapes and types against the standard library.

use super::*;
use crate::buffer::Buffer;
use proptest::prelude::*;

/// All that the processor here has: the best one, and what others would have to do with.
fn levels<W: Word>() -> impl Iterator<Item = Level> {
    let best = level();
    [Level::Avx2, Level::Avx512]
        .into_iter()
        .filter(move |level| best.is_some_and(|best| *level as u8 <= best as u8))
        .filter(|level| level.knows::<W>())
}

/// Sorts words in all four ways, and compares with the standard library's sort.
fn check_sort(words: &[u64]) {
    fn check<W: Word, O: Ord>(words: Vec<W>, sign: Sign, order: impl Fn(W) -> O) {
        let mut expected = words.clone();
        expected.sort_unstable_by_key(|word| order(*word));
        for level in levels::<W>() {
            let mut sorted = words.clone();
            sort_at(Some(level), &mut sorted, sign, quick::timeout(words.len()));
            assert!(
                sorted == expected,
                "{} words, {sign:?}, {level:?}",
                words.len()
            );
        }
    }
    let narrow: Vec<u32> = words.iter().map(|word| *word as u32).collect();
    check(words.to_vec(), Sign::Unsigned, |word| word);
    check(words.to_vec(), Sign::Signed, |word| word as i64);
    check(narrow.clone(), Sign::Unsigned, |word| word);
    check(narrow, Sign::Signed, |word| word as i32);
}

/// The order of floats with these bits.
fn float(bits: u64) -> i64 {
    bits as i64 ^ (bits as i64 >> 63 & i64::MAX)
}

fn narrow_float(bits: u32) -> i64 {
    i64::from(bits as i32 ^ (bits as i32 >> 31 & i32::MAX))
}

/// Merges two runs in all six ways.
fn check_merge(one: &[u64], other: &[u64]) {
    fn check<W: Word, O: Ord>(one: Vec<W>, other: Vec<W>, sign: Sign, order: impl Fn(W) -> O) {
        let [one, other] = [one, other].map(|mut run| {
            run.sort_unstable_by_key(|word| order(*word));
            run
        });
        let mut expected = [&one[..], &other].concat();
        expected.sort_unstable_by_key(|word| order(*word));
        for level in levels::<W>() {
            // Wherever the place for both begins.
            for (start, reader) in [(0, Reader::Soon), (1, Reader::Late), (8, Reader::Late)] {
                let mut out = vec![W::zeroed(); start + expected.len()];
                let out = &mut out[start..];
                merge_two_at(Some(level), &one, &other, out, sign, reader);
                let lengths = (one.len(), other.len());
                assert!(out == expected, "{lengths:?}, {sign:?}, {level:?}, {start}");
            }
        }
    }
    let narrow = |run: &[u64]| -> Vec<u32> { run.iter().map(|word| *word as u32).collect() };
    let [short_one, short_other] = [narrow(one), narrow(other)];
    check(one.to_vec(), other.to_vec(), Sign::Unsigned, |word| word);
    check(one.to_vec(), other.to_vec(), Sign::Signed, |word| {
        word as i64
    });
    check(one.to_vec(), other.to_vec(), Sign::Float, float);
    let check = |sign, order: fn(u32) -> i64| {
        check(short_one.clone(), short_other.clone(), sign, order);
    };
    check(Sign::Unsigned, i64::from);
    check(Sign::Signed, |word| i64::from(word as i32));
    check(Sign::Float, narrow_float);
}

/// Copies words in all six ways, from any place.
fn check_copy(words: &[u64]) {
    fn check<W: Word, O: Ord>(words: &[W], sign: Sign, order: impl Fn(W) -> O) {
        let bytes = bytemuck::cast_slice(words);
        let mut expected = words.to_vec();
        expected.sort_unstable_by_key(|word| order(*word));
        for level in levels::<W>() {
            for shift in [0, 1] {
                let source = [&vec![7; shift][..], bytes].concat();
                let mut copy = Buffer::zeroed(bytes.len()).unwrap();
                let copy: &mut [W] = bytemuck::cast_slice_mut(&mut copy);
                let mut shown = Vec::new();
                let mut seen = |bytes: &[u8]| shown.extend_from_slice(bytes);
                let low = divided_copy_at(Some(level), &source[shift..], copy, sign, &mut seen);
                assert!(shown == bytes);
                let text = || format!("{low} of {} words, {sign:?}, {level:?}", words.len());
                let (low, high) = copy.split_at(low);
                let last = low.iter().map(|word| order(*word)).max();
                let first = high.iter().map(|word| order(*word)).min();
                assert!(first.is_some() && last < first, "{}", text());
                copy.sort_unstable_by_key(|word| order(*word));
                assert!(copy == expected, "{}", text());
            }
        }
    }
    let narrow: Vec<u32> = words.iter().map(|word| *word as u32).collect();
    check(words, Sign::Unsigned, |word| word);
    check(words, Sign::Signed, |word| word as i64);
    check(words, Sign::Float, float);
    check(&narrow, Sign::Unsigned, |word| word);
    check(&narrow, Sign::Signed, |word| word as i32);
    check(&narrow, Sign::Float, narrow_float);
}

/// Pseudo-random numbers, shaped.
fn shaped(length: usize, seed: u64, shape: impl Fn(u64) -> u64) -> Vec<u64> {
    let mut random = crate::random::SplitMix::new(seed);
    (0..length).map(|_| shape(random.bits())).collect()
}

const SHAPES: [fn(u64) -> u64; 8] = [
    |r| r,
    |r| r % 1000,
    |r| r & 1,
    |_| 7,
    |_| u64::MAX,
    |r| if r % 3 == 0 { u64::MAX } else { r },
    |r| if r.is_multiple_of(1000) { r } else { 5 << 31 },
    |r| r >> (r % 64),
];

/// By the 0-1 principle a network that sorts all sequences of zeros and ones sorts everything; here
/// in every column, and after all merges.
#[test]
fn the_networks_sort_zeros_and_ones() {
    for rows in [1, 2, 3, 4, 7, 8] {
        for bits in 0..1_u64 << rows {
            let words: Vec<u64> = (0..rows * 8).map(|at| bits >> (at / 8) & 1).collect();
            check_sort(&words);
        }
    }
    for bits in 0..1_u64 << 16 {
        let words: Vec<u64> = (0..16 * 16).map(|at| bits >> (at / 16) & 1).collect();
        check_sort(&words);
    }
}

#[test]
fn every_length_around_the_limits() {
    for shape in SHAPES {
        for length in (0..=530).chain([4095, 4096, 4097, 10_000]) {
            check_sort(&shaped(length, length as u64, shape));
        }
    }
}

#[test]
fn long_blocks_of_every_shape() {
    for shape in SHAPES {
        check_sort(&shaped(200_003, 1, shape));
    }
    let up: Vec<u64> = (0..100_000).collect();
    let pipe: Vec<u64> = up.iter().chain(up.iter().rev()).copied().collect();
    let saw: Vec<u64> = (0..100_000).map(|index| index % 317).collect();
    [up, pipe, saw].iter().for_each(|words| check_sort(words));
}

#[test]
fn parts_that_are_sorted_at_the_same_time() {
    let check = |least: usize, timeout: u32, words: &[u64]| {
        for level in levels::<u64>() {
            let mut sorted = words.to_vec();
            let sort = |part: &mut [u64]| part.sort_unstable();
            sort_parts_at(
                Some(level),
                &mut sorted,
                Sign::Unsigned,
                least,
                timeout,
                &sort,
            );
            assert!(sorted.is_sorted() && sorted.len() == words.len());
            let mut expected = words.to_vec();
            expected.sort_unstable();
            assert!(sorted == expected, "{level:?}, {least}, {timeout}");
        }
    };
    for shape in SHAPES {
        let words = shaped(20_011, 5, shape);
        for (least, timeout) in [(1000, 40), (20_010, 40), (1000, 3), (1000, 0)] {
            check(least, timeout, &words);
        }
    }
    if is_available::<u64>() {
        let mut words = shaped(1 << 20, 6, |r| r);
        sort_on_threads(&mut words, Sign::Unsigned, &|part| {
            sort(part, Sign::Unsigned)
        });
        assert!(words.is_sorted());
    }
}

#[test]
fn copies_are_divided_whatever_their_length_and_shape() {
    for shape in SHAPES {
        // Around registers, what is read at a time, and what is put together before it goes on.
        let around = [512, 576, 1024, 1100]
            .into_iter()
            .flat_map(|at| at - 20..at + 20);
        for length in (16..150).chain(around).chain([4999, 20_003]) {
            check_copy(&shaped(length, length as u64, shape));
        }
    }
    // All words to one end.
    let up: Vec<u64> = (0..5000).collect();
    let down: Vec<u64> = (0..5000).rev().collect();
    let mostly_low: Vec<u64> = (0..5000).map(|at| u64::from(at % 1000 == 0)).collect();
    [up, down, mostly_low]
        .iter()
        .for_each(|words| check_copy(words));
}

/// A part whose timeout is at its end still gets sorted.
#[test]
fn bad_pivots_end_somewhere() {
    let words: Vec<u32> = shaped(3000, 9, |r| r)
        .iter()
        .map(|word| *word as u32)
        .collect();
    let mut expected = words.clone();
    expected.sort_unstable();
    for level in levels::<u32>() {
        let mut sorted = words.clone();
        sort_at(Some(level), &mut sorted, Sign::Unsigned, 1);
        assert_eq!(sorted, expected, "{level:?}");
    }
}

#[test]
fn runs_of_all_lengths_and_shapes() {
    for shape in SHAPES {
        for one in [0, 1, 15, 16, 17, 130, 300, 1000, 5000] {
            for other in [0, 1, 16, 31, 129, 257, 700, 6000] {
                check_merge(&shaped(one, 3, shape), &shaped(other, 4, shape));
            }
        }
        let low: Vec<u64> = (0..3000).collect();
        let high: Vec<u64> = (2990..6000).collect();
        check_merge(&low, &high);
        check_merge(&high, &low);
    }
}

proptest! {
    #[test]
    fn any_words_are_sorted(
        words in prop::collection::vec(any::<u64>(), 0..3000),
        mask in prop::sample::select(vec![u64::MAX, 0xffff, 3 << 31, 0]),
    ) {
        let words: Vec<u64> = words.into_iter().map(|word| word & mask).collect();
        check_sort(&words);
    }

    #[test]
    fn any_runs_are_merged(
        one in prop::collection::vec(any::<u64>(), 0..1500),
        other in prop::collection::vec(any::<u64>(), 0..1500),
        mask in prop::sample::select(vec![u64::MAX, 0xffff, 3 << 31, 0]),
    ) {
        let [one, other] = [one, other].map(|run| -> Vec<u64> {
            run.into_iter().map(|word| word & mask).collect()
        });
        check_merge(&one, &other);
    }
}

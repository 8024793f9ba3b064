//! Compares the vectorised kernels with the standard library, for all lengths, shapes and types.

use std::process::Command;
use std::sync::LazyLock;

use super::*;
use crate::buffer::Buffer;
use crate::test_size::sized;
use proptest::prelude::*;

/// The environment variable with the name of the best instructions that a process may use. Without it, all are used.
const HIGHEST_LEVEL: &str = "FTSORT_TEST_LEVEL";

/// Returns whether this process may use these instructions.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
pub fn is_enabled(level: Level) -> bool {
    static HIGHEST: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(HIGHEST_LEVEL).ok());
    match HIGHEST.as_deref() {
        None => true,
        Some("Avx2") => level <= Level::Avx2,
        Some(_) => false,
    }
}

/// The kernels choose other algorithms for processors with fewer instructions. The level is that of a process, because the
/// threads of a pool need it, too.
#[test]
fn kernels_sort_on_processors_with_fewer_instructions() {
    let quick = [
        "kernel::plain::tests::merges_many_",
        "kernel::tests::sorts_long_",
        "kernel::tests::sorts_skewed_",
    ];
    let tests = sized(&quick[..], &["kernel::plain::", "kernel::tests::sorts_"]);
    for highest in ["Avx2", "none"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(HIGHEST_LEVEL, highest).args(tests);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && !text.contains(" 0 passed"),
            "{highest}: {text}"
        );
    }
}

/// Returns the instruction sets of this processor that support such words.
fn levels<W: Word>() -> impl Iterator<Item = Level> {
    let best = level();
    [Level::Avx2, Level::Avx512]
        .into_iter()
        .filter(move |level| best.is_some_and(|best| *level <= best))
        .filter(|level| level.supports::<W>())
}

/// Sorts words as unsigned and signed words of both sizes, and compares with the standard library.
fn check_sort(words: &[u64]) {
    fn check<W: Word, O: Ord>(words: Vec<W>, sign: Sign, order: impl Fn(W) -> O) {
        let mut expected = words.clone();
        expected.sort_unstable_by_key(|word| order(*word));
        for level in levels::<W>() {
            let mut sorted = words.clone();
            sort_at(
                Some(level),
                &mut sorted,
                sign,
                quick::depth_limit(words.len()),
            );
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

/// Returns a number with the order of the floating-point number with these bits.
fn float_order(bits: u64) -> i64 {
    bits as i64 ^ (bits as i64 >> 63 & i64::MAX)
}

/// Returns a number with the order of the floating-point number with these bits.
fn float_order_32(bits: u32) -> i64 {
    i64::from(bits as i32 ^ (bits as i32 >> 31 & i32::MAX))
}

/// Merges two runs as unsigned, signed and floating-point words of both sizes, and compares with the standard library.
fn check_merge(one: &[u64], other: &[u64]) {
    fn check<W: Word, O: Ord>(one: Vec<W>, other: Vec<W>, sign: Sign, order: impl Fn(W) -> O) {
        let [one, other] = [one, other].map(|mut run| {
            run.sort_unstable_by_key(|word| order(*word));
            run
        });
        let mut expected = [&one[..], &other].concat();
        expected.sort_unstable_by_key(|word| order(*word));
        for level in levels::<W>() {
            use Destination::{Cache, Memory};
            // With different alignments of the output.
            for (start, destination) in [(0, Cache), (1, Memory), (8, Memory)] {
                let mut out = vec![W::zeroed(); start + expected.len()];
                let out = &mut out[start..];
                merge_two_at(Some(level), &one, &other, out, sign, destination);
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
    check(one.to_vec(), other.to_vec(), Sign::Float, float_order);
    let check = |sign, order: fn(u32) -> i64| {
        check(short_one.clone(), short_other.clone(), sign, order);
    };
    check(Sign::Unsigned, i64::from);
    check(Sign::Signed, |word| i64::from(word as i32));
    check(Sign::Float, float_order_32);
}

/// Calls a generic function with unsigned, signed and floating-point words of both sizes, and their order.
macro_rules! check_all_words {
    ($words:ident, $check:ident) => {
        let narrow: Vec<u32> = $words.iter().map(|word| *word as u32).collect();
        $check($words, Sign::Unsigned, |word| word);
        $check($words, Sign::Signed, |word| word as i64);
        $check($words, Sign::Float, float_order);
        $check(&narrow, Sign::Unsigned, |word| word);
        $check(&narrow, Sign::Signed, |word| word as i32);
        $check(&narrow, Sign::Float, float_order_32);
    };
}

/// Copies and divides unsigned, signed and floating-point words of both sizes, from different alignments.
fn check_copy(words: &[u64]) {
    fn check<W: Word, O: Ord>(words: &[W], sign: Sign, order: impl Fn(W) -> O) {
        let bytes = bytemuck::cast_slice(words);
        let mut expected = words.to_vec();
        expected.sort_unstable_by_key(|word| order(*word));
        // The last run is the longest one, and has a register of words.
        let third = words.len() / 3;
        let second = if words.len() - third >= lanes::MOST_LANES {
            third.max(1)
        } else {
            0
        };
        let ends = [0, second.min(1), second, words.len()].map(|words| words * size_of::<W>());
        for level in levels::<W>() {
            for (shift, is_one_run) in [(0, true), (1, true), (1, false)] {
                let source = [&vec![7; shift][..], bytes].concat();
                let runs: Vec<&[u8]> = match is_one_run {
                    true => vec![&source[shift..]],
                    false => ends
                        .windows(2)
                        .map(|part| &source[shift + part[0]..shift + part[1]])
                        .collect(),
                };
                let mut copy = Buffer::zeroed(bytes.len()).unwrap();
                let copy: &mut [W] = bytemuck::cast_slice_mut(&mut copy);
                let mut visited = Vec::new();
                let mut visit = |bytes: &[u8]| visited.extend_from_slice(bytes);
                let low = copy_divided_at(Some(level), &runs, copy, sign, &mut visit);
                assert!(visited == bytes);
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
    check_all_words!(words, check);
}

/// Divides unsigned, signed and floating-point words of both sizes.
fn check_divide(words: &[u64]) {
    fn check<W: Word, O: Ord + Copy>(words: &[W], sign: Sign, order: impl Fn(W) -> O) {
        let in_order = |words: &[W]| {
            let mut orders: Vec<O> = words.iter().map(|word| order(*word)).collect();
            orders.sort_unstable();
            orders
        };
        let (expected, end) = (in_order(words), words.len());
        for level in levels::<W>() {
            let mut divided = words.to_vec();
            let [low, high] = divide_at(Some(level), &mut divided, None, sign);
            let parts = [0..low, low..high, high..end].map(|part| in_order(&divided[part]));
            let text = format!("{low}, {high} of {end} words, {sign:?}, {level:?}");
            assert!(parts.concat() == expected, "{text}");
            assert!(parts[1].first() == parts[1].last(), "{text}");
            let is_divided = |high: &O| low == 0 || expected[low - 1] < *high;
            assert!(expected.get(high).is_none_or(is_divided), "{text}");
        }
    }
    check_all_words!(words, check);
}

/// Returns pseudo-random numbers, changed by `shape`.
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

/// Sorts blocks of which each register has zeros or ones only. `network::zero_one` proves the networks with all inputs
/// that the 0-1 principle needs.
#[test]
fn sorts_registers_of_zeros_and_ones() {
    for rows in [1, 2, 3, 4, 7, 8] {
        for bits in 0..1_u64 << rows {
            let words: Vec<u64> = (0..rows * 8).map(|at| bits >> (at / 8) & 1).collect();
            check_sort(&words);
        }
    }
    for bits in (0..1_u64 << 16).step_by(sized(17, 1)) {
        let words: Vec<u64> = (0..16 * 16).map(|at| bits >> (at / 16) & 1).collect();
        check_sort(&words);
    }
}

#[test]
fn sorts_every_length_around_the_limits() {
    for shape in SHAPES {
        for length in (0..=530).chain([4095, 4096, 4097, 10_000]) {
            check_sort(&shaped(length, length as u64, shape));
        }
    }
}

#[test]
fn sorts_long_blocks_of_every_shape() {
    for shape in SHAPES {
        check_sort(&shaped(200_003, 1, shape));
    }
    let up: Vec<u64> = (0..100_000).collect();
    let pipe: Vec<u64> = up.iter().chain(up.iter().rev()).copied().collect();
    let saw: Vec<u64> = (0..100_000).map(|index| index % 317).collect();
    [up, pipe, saw].iter().for_each(|words| check_sort(words));
}

#[test]
fn sorts_parts_on_several_threads() {
    fn check<W: Word>(words: &[W]) {
        let mut expected = words.to_vec();
        expected.sort_unstable();
        for (least, depth_limit) in [(1000, 40), (20_010, 40), (1000, 3), (1000, 0)] {
            for level in levels::<W>().map(Some) {
                let mut sorted = words.to_vec();
                let sort = |part: &mut [W]| part.sort_unstable();
                sort_parts_at(
                    level,
                    &mut sorted,
                    Sign::Unsigned,
                    least,
                    depth_limit,
                    &sort,
                );
                assert!(sorted == expected, "{level:?}, {least}, {depth_limit}");
            }
        }
    }
    for shape in SHAPES {
        let words = shaped(20_011, 5, shape);
        check(&words.iter().map(|word| *word as u32).collect::<Vec<_>>());
        check(&words);
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
fn divides_words_and_copies_of_every_length_and_shape() {
    for shape in SHAPES {
        // Lengths around registers, batches of registers, and full stages.
        let around = [512, 576, 1024, 1100]
            .into_iter()
            .flat_map(|at| (at - 20..at + 20).step_by(sized(3, 1)));
        for length in (16..150)
            .step_by(sized(3, 1))
            .chain(around)
            .chain([4999, 20_003])
        {
            let words = shaped(length, length as u64, shape);
            check_copy(&words);
            // A network sorts fewer words.
            if (257..5000).contains(&length) {
                check_divide(&words);
            }
        }
    }
    // All or most words go to one end.
    let up: Vec<u64> = (0..5000).collect();
    let down: Vec<u64> = (0..5000).rev().collect();
    let mostly_low: Vec<u64> = (0..5000).map(|at| u64::from(at % 1000 == 0)).collect();
    for words in [up, down, mostly_low] {
        check_copy(&words);
        check_divide(&words);
    }
}

#[test]
fn sorts_a_part_at_its_depth_limit() {
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
fn merges_runs_of_all_lengths_and_shapes() {
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
    fn sorts_any_words(
        words in prop::collection::vec(any::<u64>(), 0..3000),
        mask in prop::sample::select(vec![u64::MAX, 0xffff, 3 << 31, 0]),
    ) {
        let words: Vec<u64> = words.into_iter().map(|word| word & mask).collect();
        check_sort(&words);
    }

    #[test]
    fn merges_any_runs(
        one in prop::collection::vec(any::<u64>(), 0..1500),
        other in prop::collection::vec(any::<u64>(), 0..1500),
        mask in prop::sample::select(vec![u64::MAX, 0xffff, 3 << 31, 0]),
    ) {
        let [one, other] = [one, other].map(|run| -> Vec<u64> {
            run.into_iter().map(|word| word & mask).collect()
        });
        check_merge(&one, &other);
    }

    #[test]
    fn merges_of_runs_that_are_not_sorted_keep_all_words(
        one in prop::collection::vec(any::<u64>(), 0..1500),
        other in prop::collection::vec(any::<u64>(), 0..1500),
        bits in 1_u32..64,
    ) {
        fn check<W: Word>(one: &[W], other: &[W]) {
            let mut expected = [one, other].concat();
            expected.sort_unstable();
            for level in levels::<W>() {
                let mut out = vec![W::zeroed(); expected.len()];
                merge_two_at(Some(level), one, other, &mut out, Sign::Unsigned, Destination::Cache);
                out.sort_unstable();
                assert!(out == expected, "{level:?}");
            }
        }
        let [one, other] = [one, other].map(|run| -> Vec<u64> {
            run.into_iter().map(|word| word >> (64 - bits)).collect()
        });
        check(&one, &other);
        let [one, other] = [one, other].map(|run| -> Vec<u32> {
            run.into_iter().map(|word| word as u32).collect()
        });
        check(&one, &other);
    }
}

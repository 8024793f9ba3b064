//! Sorts, merges, divides and searches numbers of all types, and compares with the standard library.

use super::*;
use crate::buffer::Buffer;
use crate::kernel::tests::copy_and_check_visits;
use crate::test_size::sized;
use proptest::prelude::*;

fn one_thread() -> ThreadPool {
    ThreadPool::from(1)
}

/// Sorts and merges as the engine does, and compares with the standard library bit for bit.
fn check<T: PlainKey>(runs: &[Vec<T>], threads: usize) {
    let kernel = Plain::<T>::new(ThreadPool::from(threads));
    let sorted: Vec<Buffer> = runs
        .iter()
        .map(|run| {
            let mut block = Buffer::copy_of(cast_slice(run)).unwrap();
            kernel.sort(&mut block).unwrap();
            let mut expected = run.clone();
            expected.sort_by(|one, other| one.order(*other));
            assert_eq!(&*block, cast_slice::<T, u8>(&expected));
            block
        })
        .collect();
    let mut expected: Vec<T> = runs.concat();
    expected.sort_by(|one, other| one.order(*other));
    let mut out = Buffer::zeroed(size_of_val(&expected[..])).unwrap();
    let slices: Vec<&[u8]> = sorted.iter().map(|run| &**run).collect();
    kernel.merge(&slices, &mut out).unwrap();
    assert_eq!(&*out, cast_slice::<T, u8>(&expected));
    // Runs that are not sorted, and begin at any word.
    let whole = runs.concat();
    let mut rest = &whole[..];
    let unsorted = runs
        .iter()
        .filter_map(|run| rest.split_off(..run.len()).map(cast_slice));
    let unsorted: Vec<&[u8]> = unsorted.collect();
    let mut together = Buffer::zeroed(out.len()).unwrap();
    kernel.sort_together(&unsorted, &mut together).unwrap();
    assert_eq!(*together, *out);
    assert_eq!(kernel.first_disorder(&out), None);
    for record in expected.iter().step_by(expected.len() / 7 + 1) {
        let bytes = bytemuck::bytes_of(record);
        let below = expected
            .iter()
            .filter(|other| other.before(*record))
            .count();
        let not_above = expected
            .iter()
            .filter(|other| !record.before(**other))
            .count();
        assert_eq!(kernel.lower_bound(&out, bytes), below);
        assert_eq!(kernel.upper_bound(&out, bytes), not_above);
    }
    check_division(&kernel, &runs.concat(), &expected);
}

/// Divides keys at some of them, and at keys that are not among them, and compares with the sorted keys.
fn check_division<T: PlainKey>(kernel: &Plain<T>, keys: &[T], sorted: &[T]) {
    let shares = [0, 1 << 62, u64::MAX - 1, u64::MAX];
    let others = [
        T::from_bits(T::Bits::truncated(77)),
        T::from_bits(T::Bits::truncated(3)),
    ];
    let chosen = sorted.iter().step_by(sorted.len() / 5 + 1).chain(&others);
    for shares in [&shares[..1], &shares] {
        let mut bounds: Vec<Bound<'_>> = chosen
            .clone()
            .flat_map(|key| {
                let record = bytemuck::bytes_of(key);
                shares
                    .iter()
                    .map(move |share| bound(record, *share, share / 3))
            })
            .collect();
        bounds.sort_by(|one, other| {
            kernel
                .compare(one.record, other.record)
                .then(one.share.cmp(&other.share))
        });
        let mut block = Buffer::copy_of(cast_slice(keys)).unwrap();
        let places = kernel.divide(&mut block, &bounds).unwrap();
        let expected = bounds
            .iter()
            .map(|bound| bound.place_in(cast_slice(sorted), kernel));
        assert_eq!(places, expected.collect::<Vec<usize>>());
        let records: &mut [T] = cast_slice_mut(&mut block);
        let mut start = 0;
        for end in places.into_iter().chain([keys.len()]) {
            records[start..end].sort_by(|one, other| one.order(*other));
            start = end;
        }
        assert_eq!(&*block, cast_slice::<T, u8>(sorted));
    }
}

fn bound(record: &[u8], share: u64, rounding: u64) -> Bound<'_> {
    Bound {
        record,
        share,
        rounding,
    }
}

#[test]
fn a_share_of_equal_records_is_before_a_bound() {
    let place = |share, rounding, equal| bound(&[], share, rounding).place_among(equal);
    for rounding in [0, u64::MAX] {
        assert_eq!(place(0, rounding, 3..10), 3);
        assert_eq!(place(u64::MAX, rounding, 3..10), 10);
        assert_eq!(place(u64::MAX, rounding, 3..3), 3);
    }
    assert_eq!(place(1 << 63, 0, 3..10), 6);
    assert_eq!(place(1 << 63, 1 << 63, 3..10), 7);
    assert_eq!(place(u64::MAX - 1, 0, 3..10), 9);
}

/// Sorted blocks are sorted first, and those that several threads sort.
#[test]
fn blocks_of_unsorted_numbers_are_divided_first() {
    let numbers = random(LEAST_SHARED, u64::MAX, 3);
    let is_divided = |numbers: &[u64], threads: usize| {
        let kernel = Plain::<u64>::new(ThreadPool::from(threads));
        kernel.is_divided_first(cast_slice(numbers))
    };
    let can = vector::is_available::<u64>();
    assert_eq!(is_divided(&numbers, 1), can);
    assert!(!is_divided(&numbers, 2));
    assert_eq!(is_divided(&numbers[1..], 2), can);
    let mut sorted = numbers;
    sorted.sort_unstable();
    assert!(!is_divided(&sorted, 1));
    sorted.reverse();
    assert!(!is_divided(&sorted, 1));
    let kernel = Plain::<u8>::new(one_thread());
    assert!(!kernel.is_divided_first(cast_slice(&sorted)));
}

fn check_all_types(runs: &[Vec<u64>], threads: usize) {
    fn cast<T>(runs: &[Vec<u64>], map: impl Fn(u64) -> T) -> Vec<Vec<T>> {
        runs.iter()
            .map(|run| run.iter().map(|bits| map(*bits)).collect())
            .collect()
    }
    check::<u64>(runs, threads);
    check::<i64>(&cast(runs, |bits| bits as i64), threads);
    check::<u32>(&cast(runs, |bits| bits as u32), threads);
    check::<i32>(&cast(runs, |bits| bits as i32), threads);
    check::<f64>(&cast(runs, f64::from_bits), threads);
    check::<f32>(&cast(runs, |bits| f32::from_bits(bits as u32)), threads);
}

fn random(length: usize, mask: u64, seed: u64) -> Vec<u64> {
    let mut state = seed | 1;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        (state ^ state >> 29) & mask
    };
    (0..length).map(next).collect()
}

#[test]
fn sorts_and_merges_long_runs_of_all_types() {
    for threads in [1, 2] {
        for mask in sized(&[u64::MAX, 1][..], &[u64::MAX, 0xff, 1, 0]) {
            let runs: Vec<Vec<u64>> = (0..5)
                .map(|seed| random(seed * 19_000, *mask, seed as u64))
                .collect();
            check_all_types(&runs, threads);
        }
        let ascending: Vec<u64> = (0..30_000).collect();
        let descending: Vec<u64> = (0..30_000).rev().collect();
        check_all_types(&[ascending, descending], threads);
    }
    // Many of the greatest key of each type.
    let greatest = [i32::MAX as u64, i64::MAX as u64, u64::MAX];
    let equal = greatest.map(|key| vec![key; 1_000]);
    check_all_types(&[&equal[..], &[random(1_000, u64::MAX, 7)]].concat(), 1);
}

#[test]
fn merges_many_runs_and_runs_of_very_different_lengths() {
    let many: Vec<Vec<u64>> = (0..300).map(|seed| random(500, u64::MAX, seed)).collect();
    let mut uneven: Vec<Vec<u64>> = (0..9).map(|seed| random(3, u64::MAX, seed)).collect();
    uneven.insert(4, random(100_000, u64::MAX, 9));
    let apart: Vec<Vec<u64>> = (0..40_u64)
        .map(|run| (0..5_000).map(|index| (39 - run) * 5_000 + index).collect())
        .collect();
    for threads in [1, 3] {
        check::<u64>(&many, threads);
        check::<u64>(&uneven, threads);
        check::<u64>(&apart, threads);
    }
}

/// Divided or not, and from any alignment, a copy has the same result when it is sorted.
#[test]
fn sorts_divided_and_plain_copies_of_any_size() {
    fn check<T: PlainKey>(keys: &[T], threads: usize) -> usize {
        let kernel = Plain::<T>::new(ThreadPool::from(threads));
        let mut expected = keys.to_vec();
        expected.sort_by(|one, other| one.order(*other));
        let bytes: &[u8] = cast_slice(keys);
        let shifted = [&[7], bytes].concat();
        let copies = [bytes, &shifted[1..]].map(|bytes| copy_and_check_visits(&kernel, bytes));
        let borders = copies[0].borders().len();
        for mut copy in copies {
            kernel.sort(&mut copy).unwrap();
            assert!(copy.borders().is_empty());
            assert!(*copy == *cast_slice::<T, u8>(&expected));
        }
        borders
    }
    let long = 2 * FAR_BYTES / size_of::<u64>();
    for (length, mask) in [
        (0, 1),
        (100, u64::MAX),
        (long, u64::MAX),
        (long, 3),
        (long, 0),
    ] {
        let numbers = random(length, mask, 5);
        let signed: Vec<i32> = numbers.iter().map(|bits| *bits as i32).collect();
        let floats: Vec<f64> = numbers.iter().map(|bits| f64::from_bits(*bits)).collect();
        for threads in [1, 2] {
            let borders = [
                check(&numbers, threads),
                check(&signed, threads),
                check(&floats, threads),
            ];
            let large = length == long && mask > 0;
            let [narrow, wide] = [vector::is_available::<u32>(), vector::is_available::<u64>()];
            let expected = [wide, narrow, wide].map(|can| usize::from(can && large));
            assert_eq!(borders, expected);
        }
    }
    // Monotonic records are found, and are not divided.
    let up: Vec<u64> = (0..long as u64).collect();
    let down: Vec<u64> = (0..long as u64).rev().collect();
    assert_eq!([check(&up, 1), check(&down, 1)], [0, 0]);
}

#[test]
fn finds_the_first_disorder_at_every_index() {
    let kernel = Plain::<i32>::new(one_thread());
    for length in [0, 1, 2, 31, 32, 33, 34, 100] {
        let sorted: Vec<i32> = (0..length).map(|index| index - 50).collect();
        assert_eq!(kernel.first_disorder(cast_slice(&sorted)), None);
        for at in 1..length as usize {
            let mut block = sorted.clone();
            block[at] = i32::MIN;
            assert_eq!(kernel.first_disorder(cast_slice(&block)), Some(at - 1));
        }
    }
    let floats = [-0.0, 0.0, 0.0, -0.0];
    let kernel = Plain::<f64>::new(one_thread());
    assert_eq!(kernel.first_disorder(cast_slice(&floats)), Some(2));
}

#[test]
fn a_record_argument_need_not_be_aligned() {
    let kernel = Plain::<u64>::new(one_thread());
    let run: [u64; 4] = [1, 5, 5, 9];
    let mut bytes = [0; 9];
    bytes[1..].copy_from_slice(&5_u64.to_ne_bytes());
    assert_eq!(kernel.lower_bound(cast_slice(&run), &bytes[1..]), 1);
    assert_eq!(kernel.upper_bound(cast_slice(&run), &bytes[1..]), 3);
    assert_eq!(kernel.compare(&bytes[1..], &bytes[1..]), Ordering::Equal);
}

proptest! {
    #[test]
    fn sorts_and_merges_runs_of_any_length(
        runs in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..300), 0..9),
        mask in prop::sample::select(vec![u64::MAX, 7, 0]),
    ) {
        let runs: Vec<Vec<u64>> = runs
            .into_iter()
            .map(|run| run.into_iter().map(|bits| bits & mask).collect())
            .collect();
        check_all_types(&runs, 1);
    }
}

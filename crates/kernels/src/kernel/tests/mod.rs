//! Compares every kernel with the stable sort of the standard library, bit for bit.

mod lists;
#[cfg(feature = "testing")]
mod refusals;

use std::cmp::Ordering;

use proptest::prelude::*;

use super::{Kernel, kernel_for};
use crate::buffer::Buffer;
use crate::error::Status;
use crate::record::{Comparator, Fields, KeyKind, Layout, PartFields};
use crate::test_size::{all_tests, sized};

/// Compares two records as simply as possible.
fn reference(fields: &Fields, one: &[u8], other: &[u8]) -> Ordering {
    let order = match KeyKind::from_code(fields.key).unwrap() {
        KeyKind::Compare => fields.compare.as_ref().unwrap().compare(one, other),
        KeyKind::List => {
            let orders = fields
                .parts
                .iter()
                .map(|part| compare_parts(part, one, other));
            orders.fold(Ordering::Equal, Ordering::then)
        }
        _ => {
            let key = PartFields {
                offset: fields.key_offset,
                bytes: fields.key_bytes,
                key: fields.key,
                descending: false,
            };
            compare_parts(&key, one, other)
        }
    };
    if fields.descending {
        order.reverse()
    } else {
        order
    }
}

/// Compares one key of two records.
fn compare_parts(part: &PartFields, one: &[u8], other: &[u8]) -> Ordering {
    macro_rules! number {
        ($type:ty, $compare:expr) => {{
            let read = |record: &[u8]| {
                let key = &record[part.offset..][..size_of::<$type>()];
                <$type>::from_ne_bytes(key.try_into().unwrap())
            };
            $compare(&read(one), &read(other))
        }};
    }
    macro_rules! text {
        ($unit:ty) => {{
            let read = |record: &[u8]| -> Vec<$unit> {
                let units = record[part.offset..][..part.bytes].chunks_exact(size_of::<$unit>());
                let units = units.map(|unit| <$unit>::from_ne_bytes(unit.try_into().unwrap()));
                units.take_while(|unit| *unit != 0).collect()
            };
            read(one).cmp(&read(other))
        }};
    }
    let key = part.offset..part.offset + part.bytes;
    let order = match KeyKind::from_code(part.key).unwrap() {
        KeyKind::I8 => number!(i8, Ord::cmp),
        KeyKind::U8 => number!(u8, Ord::cmp),
        KeyKind::I16 => number!(i16, Ord::cmp),
        KeyKind::U16 => number!(u16, Ord::cmp),
        KeyKind::I32 => number!(i32, Ord::cmp),
        KeyKind::U32 => number!(u32, Ord::cmp),
        KeyKind::I64 => number!(i64, Ord::cmp),
        KeyKind::U64 => number!(u64, Ord::cmp),
        KeyKind::F32 => number!(f32, f32::total_cmp),
        KeyKind::F64 => number!(f64, f64::total_cmp),
        KeyKind::Bytes => one[key.clone()].cmp(&other[key]),
        KeyKind::Text => text!(u8),
        KeyKind::Text16 => text!(u16),
        KeyKind::Text32 => text!(u32),
        KeyKind::Compare | KeyKind::List => unreachable!("no part of a list"),
    };
    if part.descending {
        order.reverse()
    } else {
        order
    }
}

/// Sorts a block with the standard library.
fn stably_sorted(fields: &Fields, block: &[u8]) -> Vec<u8> {
    let mut records: Vec<&[u8]> = block.chunks_exact(fields.record_bytes).collect();
    records.sort_by(|one, other| reference(fields, one, other));
    records.concat()
}

/// Copies records with the kernel, and checks that the visitor is called with all of them in order.
pub fn copy_and_check_visits(kernel: &dyn Kernel, records: &[u8]) -> Buffer {
    let mut visited = Vec::new();
    let copy = kernel.copy(records, &mut |piece| {
        assert_eq!(piece.len() % kernel.record_bytes(), 0);
        visited.extend_from_slice(piece);
    });
    assert!(visited == records);
    copy.unwrap()
}

/// Sorts, searches, selects and merges as the engine does.
fn check(fields: &Fields, runs: &[Vec<u8>], threads: usize) {
    let layout = Layout::new(fields.clone()).unwrap();
    let kernel = kernel_for(&layout, threads);
    let sorted: Vec<Buffer> = runs
        .iter()
        .map(|run| {
            // The caller's records need not be aligned.
            let shifted = [&[0], &run[..]].concat();
            let mut copy = copy_and_check_visits(&*kernel, &shifted[1..]);
            let mut block = Buffer::copy_of(run).unwrap();
            for block in [&mut copy, &mut block] {
                kernel.sort(block).unwrap();
                assert!(block.borders().is_empty());
            }
            assert!(*block == stably_sorted(fields, run), "{fields:?}");
            assert!(*block == *copy, "{fields:?}");
            assert_eq!(kernel.first_disorder(&block), None);
            block
        })
        .collect();
    let slices: Vec<&[u8]> = sorted.iter().map(|run| &**run).collect();
    let expected = stably_sorted(fields, &slices.concat());
    let mut out = Buffer::zeroed(expected.len()).unwrap();
    kernel.merge(&slices, &mut out).unwrap();
    assert!(*out == expected, "{fields:?}");
    check_searches(&*kernel, &out);
    check_selections(fields, &*kernel, &slices);
}

/// Checks the bounds of a few records in a sorted block.
fn check_searches(kernel: &dyn Kernel, block: &[u8]) {
    let size = kernel.record_bytes();
    let records: Vec<&[u8]> = block.chunks_exact(size).collect();
    for record in records.iter().step_by(records.len() / 3 + 1) {
        // One record need not be aligned.
        let shifted = [&[0], *record].concat();
        let count = |is_wanted: fn(Ordering) -> bool| {
            let orders = records.iter().map(|other| kernel.compare(other, record));
            orders.filter(|order| is_wanted(*order)).count()
        };
        assert_eq!(
            kernel.lower_bound(block, &shifted[1..]),
            count(Ordering::is_lt)
        );
        assert_eq!(
            kernel.upper_bound(block, &shifted[1..]),
            count(Ordering::is_le)
        );
    }
}

/// Checks a few cuts of sorted runs.
fn check_selections(fields: &Fields, kernel: &dyn Kernel, runs: &[&[u8]]) {
    let size = kernel.record_bytes();
    let mut all: Vec<(&[u8], usize)> = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        all.extend(run.chunks_exact(size).map(|record| (record, number)));
    }
    all.sort_by(|(one, _), (other, _)| reference(fields, one, other));
    for count in [0, 1, all.len() / 3, all.len()] {
        let count = count.min(all.len());
        let mut cut = vec![0; runs.len()];
        all[..count].iter().for_each(|(_, run)| cut[*run] += 1);
        assert_eq!(kernel.select(runs, count), cut);
    }
    let lengths: Vec<usize> = runs.iter().map(|run| run.len() / size).collect();
    assert_eq!(kernel.select(runs, usize::MAX), lengths);
}

/// Compares letters regardless of case.
fn ignoring_case() -> Comparator {
    Comparator::new(|one, other| {
        let folded = |record: &[u8]| record.to_ascii_lowercase();
        folded(one).cmp(&folded(other))
    })
}

/// Compares the last byte in ascending order, then the first byte in descending order.
fn by_two_fields() -> Comparator {
    Comparator::new(|one, other| {
        one.last()
            .cmp(&other.last())
            .then(other.first().cmp(&one.first()))
    })
}

/// Returns any layout of small records.
fn any_layout() -> impl Strategy<Value = Fields> {
    let sizes = (0_usize..18, 0_usize..18, 1_usize..21);
    let kinds = KeyKind::ALL
        .into_iter()
        .filter(|kind| *kind != KeyKind::List);
    let kinds = prop::sample::select(kinds.collect::<Vec<_>>());
    (kinds, sizes, any::<[bool; 3]>()).prop_map(|(kind, sizes, [descending, first, is_plain])| {
        let (before, after, length) = sizes;
        let (before, after) = if is_plain { (0, 0) } else { (before, after) };
        let compare = match (kind, first) {
            (KeyKind::Compare, true) => Some(ignoring_case()),
            (KeyKind::Compare, false) => Some(by_two_fields()),
            _ => None,
        };
        let key_bytes = match kind {
            KeyKind::Bytes => length,
            _ => match kind.unit_bytes() {
                Some(unit) => length.next_multiple_of(unit),
                None => kind.natural_bytes().unwrap_or(0),
            },
        };
        Fields {
            record_bytes: (before + key_bytes + after).max(1),
            key_offset: if kind == KeyKind::Compare { 0 } else { before },
            key_bytes,
            key: kind as i32,
            descending,
            compare,
            parts: Vec::new(),
        }
    })
}

/// Returns a generator of pseudo-random numbers.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Functions that make the bytes of records from random numbers.
const SHAPES: [fn(u64) -> u8; 6] = [
    |r| (r >> 20) as u8,
    |r| (r >> 20 & 1) as u8,
    |r| b"aAbB"[(r >> 20 & 3) as usize],
    // Infinities, NaNs and zeros of both signs.
    |r| [0x00, 0x80, 0x7f, 0xff, 0xf0, 0xf8][(r >> 20) as usize % 6],
    |_| 7,
    // Zeros end texts at any unit, and differ in the bytes behind them.
    |r| [0, 0, 0, 0, 1, 0xff][(r >> 20) as usize % 6],
];

fn block(records: usize, size: usize, shape: fn(u64) -> u8, seed: u64) -> Vec<u8> {
    let mut next = random(seed);
    (0..records * size).map(|_| shape(next())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn sorts_records_of_all_layouts(
        fields in any_layout(),
        lengths in prop::collection::vec(prop_oneof![0_usize..3, 0_usize..300], 0..7),
        shape in prop::sample::select(SHAPES.to_vec()),
        seed: u64,
    ) {
        let runs = lengths.iter().zip(seed..).map(|(length, seed)| {
            block(*length, fields.record_bytes, shape, seed)
        });
        check(&fields, &runs.collect::<Vec<_>>(), 1);
    }
}

fn fields(record_bytes: usize, key_offset: usize, key_bytes: usize, key: KeyKind) -> Fields {
    Fields {
        record_bytes,
        key_offset,
        key_bytes,
        key: key as i32,
        ..Fields::default()
    }
}

/// Layouts for large blocks, which are partitioned, or sorted in runs and merged.
fn layouts_for_large_blocks() -> Vec<Fields> {
    vec![
        fields(16, 0, 0, KeyKind::U64),
        fields(16, 8, 0, KeyKind::F64),
        fields(13, 5, 0, KeyKind::I32),
        fields(20, 1, 10, KeyKind::Bytes),
        fields(3, 0, 2, KeyKind::Bytes),
        Fields {
            descending: true,
            ..fields(12, 4, 0, KeyKind::U32)
        },
        Fields {
            compare: Some(by_two_fields()),
            ..fields(9, 0, 0, KeyKind::Compare)
        },
    ]
}

#[test]
fn sorts_large_blocks() {
    for (fields, index) in layouts_for_large_blocks().into_iter().zip(0..) {
        // Every shape has a layout in the quick tests, and every layout a shape.
        let selected = |seed: &u64| all_tests() || (seed + index).is_multiple_of(3);
        for (shape, seed) in SHAPES
            .into_iter()
            .zip(0..)
            .filter(|(_, seed)| selected(seed))
        {
            let runs = [70_000, 17_000, 0, 16_385]
                .map(|records| block(records, fields.record_bytes, shape, seed + records as u64));
            check(&fields, &runs, if seed % 2 == 0 { 3 } else { 1 });
        }
    }
}

/// A copy is partitioned if and only if a partition is the first pass of the sort.
#[test]
fn partitions_copies_of_large_unsorted_blocks_with_keys() {
    for fields in layouts_for_large_blocks() {
        let size = fields.record_bytes;
        let has_prefix = fields.compare.is_none();
        let layout = Layout::new(fields.clone()).unwrap();
        for threads in [1, 3] {
            let kernel = kernel_for(&layout, threads);
            let borders =
                |records: &[u8]| copy_and_check_visits(&*kernel, records).borders().to_vec();
            let records = block(140_000, size, SHAPES[0], 1);
            let partitioned = borders(&records);
            assert_eq!(partitioned.is_empty(), !has_prefix, "{fields:?}");
            assert!(partitioned.iter().all(|border| border % size == 0));
            assert!(partitioned.is_sorted_by(|one, other| one < other));
            assert!(borders(&records[..size * 16]).is_empty());
            assert!(borders(&block(20_000, size, SHAPES[4], 1)).is_empty());
            let mut in_order = stably_sorted(&fields, &records[..size * 20_000]);
            assert!(borders(&in_order).is_empty());
            super::records::reverse(&mut in_order, size);
            let is_strict = kernel.first_disorder(&in_order).is_some()
                && in_order
                    .chunks_exact(size)
                    .is_sorted_by(|one, other| kernel.compare(one, other).is_gt());
            assert!(!is_strict || borders(&in_order).is_empty());
        }
    }
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    for fields in layouts_for_large_blocks().into_iter().step_by(sized(3, 1)) {
        let input = block(140_000, fields.record_bytes, |r| (r >> 20) as u8 & 0xc3, 5);
        let layout = Layout::new(fields).unwrap();
        let sorted = [1, 2, 3, 8].map(|threads| {
            let kernel = kernel_for(&layout, threads);
            let mut block = Buffer::copy_of(&input).unwrap();
            let mut copy = copy_and_check_visits(&*kernel, &input);
            kernel.sort(&mut block).unwrap();
            kernel.sort(&mut copy).unwrap();
            assert!(*block == *copy);
            block.to_vec()
        });
        assert!(sorted.iter().all(|block| *block == sorted[0]));
    }
}

#[test]
fn sorts_skewed_prefixes() {
    // One record differs from all others in the highest bits; keys share a beginning that is longer than the prefix.
    let numbers = fields(16, 0, 0, KeyKind::U64);
    let mut next = random(3);
    let mut block: Vec<u8> = (0..40_000_u64)
        .flat_map(|index| [(next() % 30_000).to_ne_bytes(), index.to_ne_bytes()])
        .flatten()
        .collect();
    block[..8].fill(0xff);
    check(&numbers, &[block], 1);
    let text = fields(14, 0, 13, KeyKind::Bytes);
    let block: Vec<u8> = (0..30_000)
        .flat_map(|_| format!("common-be{:05}", next() % 5_000).into_bytes())
        .collect();
    check(&text, std::slice::from_ref(&block), 3);
    check(&text, &[block], 1);
}

#[test]
fn sorts_small_numbers_by_counting() {
    for (kind, size) in [
        (KeyKind::I8, 1),
        (KeyKind::U8, 1),
        (KeyKind::I16, 2),
        (KeyKind::U16, 2),
    ] {
        for descending in [false, true] {
            let fields = Fields {
                descending,
                ..fields(size, 0, 0, kind)
            };
            let runs = [(270_000, 1), (70_000, 2), (1_024, 3), (300, 4)];
            let runs = runs.map(|(records, seed)| block(records, size, SHAPES[0], seed));
            let one_of_both = if descending { [3] } else { [1] };
            for threads in sized(&one_of_both[..], &[1, 3]) {
                check(&fields, &runs, *threads);
            }
        }
    }
}

/// So many numbers are divided into parts first. They are too few to be sorted by counting, also with 16 bits.
#[test]
fn sorts_long_blocks_of_numbers_in_both_directions() {
    for (kind, descending, threads) in [
        (KeyKind::U16, false, 3),
        (KeyKind::I32, true, 3),
        (KeyKind::F32, false, 1),
        (KeyKind::F32, true, 3),
        (KeyKind::F64, true, 3),
    ] {
        let size = kind.natural_bytes().unwrap();
        let fields = Fields {
            descending,
            ..fields(size, 0, 0, kind)
        };
        check(&fields, &[block(140_000, size, SHAPES[0], 1)], threads);
    }
}

#[test]
fn sorts_sorted_and_reversed_blocks() {
    for fields in layouts_for_large_blocks() {
        let size = fields.record_bytes;
        let sorted = stably_sorted(&fields, &block(500, size, SHAPES[0], 1));
        let mut reversed = sorted.clone();
        super::records::reverse(&mut reversed, size);
        let mut nearly = sorted.clone();
        nearly[..size].fill(0xee);
        check(&fields, &[sorted, reversed, nearly], 1);
    }
}

#[test]
fn merges_many_runs_and_runs_of_very_different_lengths() {
    for fields in layouts_for_large_blocks() {
        let size = fields.record_bytes;
        let many: Vec<_> = (0..300)
            .map(|seed| block(60, size, SHAPES[0], seed))
            .collect();
        let mut uneven: Vec<_> = (0..9).map(|seed| block(3, size, SHAPES[2], seed)).collect();
        uneven.insert(4, block(30_000, size, SHAPES[2], 9));
        check(&fields, &many, 3);
        check(&fields, &uneven, 1);
    }
}

#[test]
fn finds_the_first_disorder() {
    for fields in layouts_for_large_blocks() {
        let sorted = stably_sorted(&fields, &block(40, fields.record_bytes, SHAPES[0], 1));
        let records: Vec<&[u8]> = sorted.chunks_exact(fields.record_bytes).collect();
        let layout = Layout::new(fields.clone()).unwrap();
        let kernel = kernel_for(&layout, 1);
        for at in 1..records.len() {
            let mut swapped = records.clone();
            swapped.swap(0, at);
            let expected = swapped
                .windows(2)
                .position(|pair| reference(&fields, pair[0], pair[1]).is_gt());
            assert_eq!(kernel.first_disorder(&swapped.concat()), expected);
        }
    }
}

/// A comparator that is not a total order causes an error at most.
#[test]
fn reports_a_comparator_without_a_total_order_as_a_callback_error() {
    let hash = |record: &[u8]| {
        record
            .iter()
            .fold(7_u32, |hash, byte| hash * 31 % 1009 + u32::from(*byte))
    };
    let contradictory =
        move |one: &[u8], other: &[u8]| (hash(one) * hash(other) % 7 < 3).cmp(&true);
    let always_greater = |_: &[u8], _: &[u8]| Ordering::Greater;
    for compare in [
        Comparator::new(contradictory),
        Comparator::new(always_greater),
    ] {
        let fields = Fields {
            record_bytes: 8,
            key: KeyKind::Compare as i32,
            compare: Some(compare),
            ..Fields::default()
        };
        for (length, threads) in [(10, 1), (100, 1), (5_000, 1), (5_000, 3), (100_000, 3)] {
            let kernel = kernel_for(&Layout::new(fields.clone()).unwrap(), threads);
            let mut one = Buffer::copy_of(&block(length, 8, SHAPES[0], 1)).unwrap();
            let other = block(length, 8, SHAPES[0], 2);
            let mut both = Buffer::zeroed(2 * one.len()).unwrap();
            let sorted = kernel.sort(&mut one);
            let merged = kernel.merge(&[&one, &other], &mut both);
            for error in [sorted.err(), merged.err()].into_iter().flatten() {
                assert_eq!(error.status, Status::Callback, "{error}");
            }
        }
    }
}

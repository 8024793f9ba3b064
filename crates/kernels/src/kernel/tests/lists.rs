//! Compares kernels for lists of keys, and for texts, with the stable sort of the standard library.

use super::*;
use crate::record::tests::{list, part};

/// The kinds that a list may have.
fn part_kinds() -> Vec<KeyKind> {
    let is_part = |kind: &KeyKind| !matches!(kind, KeyKind::Compare | KeyKind::List);
    KeyKind::ALL.into_iter().filter(is_part).collect()
}

fn descending(offset: usize, bytes: usize, kind: KeyKind) -> PartFields {
    PartFields {
        descending: true,
        ..part(offset, bytes, kind)
    }
}

/// Returns one key within a record.
fn any_part(record_bytes: usize) -> impl Strategy<Value = PartFields> {
    let fits =
        move |kind: &KeyKind| kind.natural_bytes().or(kind.unit_bytes()) <= Some(record_bytes);
    let kinds = part_kinds().into_iter().filter(fits).collect::<Vec<_>>();
    let kinds = prop::sample::select(kinds);
    (kinds, 1_usize..14, any::<u16>(), any::<[bool; 2]>()).prop_map(
        move |(kind, length, place, [descending, is_named])| {
            let unit = kind.unit_bytes().unwrap_or(1);
            let most = record_bytes / unit * unit;
            let length = length.next_multiple_of(unit).min(most);
            let bytes = kind.natural_bytes().unwrap_or(length);
            PartFields {
                offset: usize::from(place) % (record_bytes - bytes + 1),
                bytes: if kind.natural_bytes().is_some() && !is_named {
                    0
                } else {
                    bytes
                },
                key: kind as i32,
                descending,
            }
        },
    )
}

/// Returns a list of keys, which may overlap.
fn any_list() -> impl Strategy<Value = Fields> {
    (1_usize..34, any::<bool>()).prop_flat_map(|(record_bytes, descending)| {
        let parts = prop::collection::vec(any_part(record_bytes), 1..7);
        parts.prop_map(move |parts| Fields {
            descending,
            ..list(record_bytes, &parts)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn sorts_records_by_lists_of_keys(
        fields in any_list(),
        lengths in prop::collection::vec(prop_oneof![0_usize..3, 0_usize..300], 0..6),
        shape in prop::sample::select(SHAPES.to_vec()),
        seed: u64,
    ) {
        let runs = lengths.iter().zip(seed..).map(|(length, seed)| {
            block(*length, fields.record_bytes, shape, seed)
        });
        check(&fields, &runs.collect::<Vec<_>>(), 1);
    }
}

/// Lists with fewer, exactly as many and more bits than a prefix has.
fn lists_for_large_blocks() -> Vec<Fields> {
    use KeyKind::*;
    vec![
        list(8, &[descending(4, 0, U32), part(0, 0, I32)]),
        list(16, &[part(8, 0, I64)]),
        list(
            12,
            &[part(0, 0, I16), descending(2, 3, Text), part(5, 3, Bytes)],
        ),
        list(13, &[part(0, 0, U8), descending(5, 0, F64)]),
        list(24, &[descending(0, 0, F32), part(4, 17, Text)]),
        list(
            20,
            &[
                part(0, 2, Text16),
                part(4, 16, Text32),
                descending(2, 0, U16),
            ],
        ),
        Fields {
            descending: true,
            ..list(9, &[part(1, 8, Bytes), descending(0, 9, Text)])
        },
    ]
}

#[test]
fn sorts_large_blocks_by_lists_of_keys() {
    for (fields, index) in lists_for_large_blocks().into_iter().zip(0..) {
        let selected = |seed: &u64| all_tests() || (seed + index).is_multiple_of(3);
        for (shape, seed) in SHAPES
            .into_iter()
            .zip(0..)
            .filter(|(_, seed)| selected(seed))
        {
            let runs = [70_000, 17_000, 0, 16_385]
                .map(|records| block(records, fields.record_bytes, shape, seed + records as u64));
            check(&fields, &runs, if (seed + index) % 2 == 0 { 3 } else { 1 });
        }
    }
}

#[test]
fn the_result_of_a_list_does_not_depend_on_the_number_of_threads() {
    for fields in lists_for_large_blocks() {
        let input = block(140_000, fields.record_bytes, SHAPES[5], 5);
        let layout = Layout::new(fields).unwrap();
        let sorted = [1, 3].map(|threads| {
            let kernel = kernel_for(&layout, threads);
            let mut copy = copy_and_check_visits(&*kernel, &input);
            kernel.sort(&mut copy).unwrap();
            copy.to_vec()
        });
        assert!(sorted[0] == sorted[1]);
    }
}

#[test]
fn finds_the_first_disorder_of_lists() {
    for fields in lists_for_large_blocks() {
        let sorted = stably_sorted(&fields, &block(30, fields.record_bytes, SHAPES[0], 1));
        let records: Vec<&[u8]> = sorted.chunks_exact(fields.record_bytes).collect();
        let kernel = kernel_for(&Layout::new(fields.clone()).unwrap(), 1);
        for at in 1..records.len() {
            let mut swapped = records.clone();
            swapped.swap(0, at);
            let is_disorder = |pair: &[&[u8]]| reference(&fields, pair[0], pair[1]).is_gt();
            let expected = swapped.windows(2).position(is_disorder);
            assert_eq!(kernel.first_disorder(&swapped.concat()), expected);
        }
    }
}

/// Bytes behind the terminator have no effect, at any length around that of a prefix.
#[test]
fn texts_end_at_their_terminators() {
    for (kind, unit) in [
        (KeyKind::Text, 1),
        (KeyKind::Text16, 2),
        (KeyKind::Text32, 4),
    ] {
        for units in 1..20 {
            let bytes = units * unit;
            let kernel = kernel_for(&Layout::new(fields(bytes, 0, bytes, kind)).unwrap(), 1);
            for end in 0..units {
                let mut one: Vec<u8> = vec![1; bytes];
                one[end * unit..][..unit].fill(0);
                let mut other = one.clone();
                other[(end + 1) * unit..].fill(0xff);
                assert_eq!(kernel.compare(&one, &other), Ordering::Equal);
                other[end * unit..].fill(1);
                assert_eq!(kernel.compare(&one, &other), Ordering::Less);
                assert_eq!(kernel.compare(&other, &one), Ordering::Greater);
            }
        }
    }
}

/// Only keys that are numbers have an average.
#[test]
fn texts_and_lists_have_no_average() {
    let number = kernel_for(&Layout::new(fields(8, 0, 0, KeyKind::U32)).unwrap(), 1);
    assert!(number.average(&[&[2; 8], &[4; 8]]).is_some());
    let texts = [KeyKind::Text, KeyKind::Text16, KeyKind::Text32];
    let mut all: Vec<Fields> = texts.map(|kind| fields(8, 0, 4, kind)).to_vec();
    all.push(list(8, &[part(0, 0, KeyKind::U32)]));
    for fields in all {
        let kernel = kernel_for(&Layout::new(fields).unwrap(), 1);
        assert_eq!(kernel.average(&[&[2; 8], &[4; 8]]), None);
    }
}

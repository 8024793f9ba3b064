//! Tests of layouts: refusals, fields, moves and fingerprints.

use super::*;
use crate::error::Status;

fn number(record_bytes: usize, key_offset: usize, key_bytes: usize, key: i32) -> Fields {
    Fields {
        record_bytes,
        key_offset,
        key_bytes,
        key,
        ..Fields::default()
    }
}

fn compared(record_bytes: usize) -> Fields {
    Fields {
        record_bytes,
        key: KeyKind::Compare as i32,
        compare: Some(Comparator::new(<[u8]>::cmp)),
        ..Fields::default()
    }
}

#[test]
fn rejects_an_invalid_layout_and_names_the_field() {
    let (i32, bytes) = (KeyKind::I32 as i32, KeyKind::Bytes as i32);
    let invalid_comparators = [
        Fields {
            key_offset: 1,
            ..compared(4)
        },
        Fields {
            key_bytes: 4,
            ..compared(4)
        },
        Fields {
            compare: None,
            ..compared(4)
        },
        Fields {
            key: i32,
            ..compared(4)
        },
    ];
    let [offset, length, missing, superfluous] = invalid_comparators;
    for (fields, text) in [
        (number(4, 0, 0, 0), "record.key is 0"),
        (number(4, 0, 0, 17), "record.key is 17"),
        (number(4, 0, 0, 77), "record.key is 77"),
        (number(0, 0, 0, i32), "record.record_bytes is 0"),
        (number(1 << 40, 0, 0, i32), "record.record_bytes is 10"),
        (number(3, 0, 0, i32), "record.record_bytes is 3"),
        (number(4, 0, 8, i32), "record.key_bytes is 8"),
        (number(4, 1, 0, i32), "record.key_offset is 1"),
        (number(9, 6, 4, i32), "record.key_offset is 6"),
        (number(9, usize::MAX, 4, i32), "record.key_offset is"),
        (number(9, 0, 0, bytes), "record.key_bytes is 0"),
        (number(9, 0, 10, bytes), "record.record_bytes is 9"),
        (number(9, 7, 3, bytes), "record.key_offset is 7"),
        (compared(0), "record.record_bytes is 0"),
        (offset, "record.key_offset is 1"),
        (length, "record.key_bytes is 4"),
        (missing, "record.compare is NULL"),
        (superfluous, "record.compare is not NULL"),
    ] {
        let error = Layout::new(fields).unwrap_err();
        assert_eq!(error.status, Status::Argument);
        assert!(error.text.contains(text), "{}", error.text);
    }
}

#[test]
fn a_layout_returns_its_fields() {
    for kind in KeyKind::ALL {
        assert_eq!(KeyKind::from_code(kind as i32), Some(kind));
        let Some(natural) = kind.natural_bytes() else {
            continue;
        };
        let layout = Layout::new(number(natural, 0, 0, kind as i32)).unwrap();
        assert_eq!(layout.kind(), kind);
        assert_eq!(layout.key_bytes(), natural);
        assert!(layout.is_plain_number());
        let layout = Layout::new(number(natural + 5, 5, natural, kind as i32)).unwrap();
        assert_eq!(layout.key_offset(), 5);
        assert_eq!(layout.record_bytes(), natural + 5);
        assert!(!layout.is_plain_number());
    }
    let layout = Layout::new(compared(7)).unwrap();
    let compare = layout.comparator().unwrap();
    assert_eq!(compare.compare(b"a", b"b"), Ordering::Less);
    assert_eq!(layout.key_bytes(), 0);
}

#[test]
fn a_fingerprint_covers_every_field() {
    let mut layouts = vec![
        number(16, 0, 0, KeyKind::U64 as i32),
        number(24, 0, 0, KeyKind::U64 as i32),
        number(16, 8, 0, KeyKind::U64 as i32),
        number(16, 0, 0, KeyKind::I64 as i32),
        number(16, 0, 7, KeyKind::Bytes as i32),
        number(16, 0, 8, KeyKind::Bytes as i32),
        number(16, 0, 8, KeyKind::Text as i32),
        number(16, 0, 8, KeyKind::Text16 as i32),
        number(16, 0, 8, KeyKind::Text32 as i32),
        list(16, &[part(0, 0, KeyKind::U64)]),
        list(16, &[part(8, 0, KeyKind::U64)]),
        list(16, &[part(0, 0, KeyKind::I64)]),
        list(16, &[part(0, 7, KeyKind::Bytes)]),
        list(16, &[part(0, 8, KeyKind::Bytes)]),
        list(16, &[part(0, 0, KeyKind::U64), part(8, 0, KeyKind::U64)]),
        list(16, &[part(8, 0, KeyKind::U64), part(0, 0, KeyKind::U64)]),
        list(
            16,
            &[PartFields {
                descending: true,
                ..part(0, 0, KeyKind::U64)
            }],
        ),
        compared(16),
    ];
    layouts.extend(layouts.clone().into_iter().map(|fields| Fields {
        descending: true,
        ..fields
    }));
    for (index, one) in layouts.iter().enumerate() {
        let one = Layout::new(one.clone()).unwrap();
        assert!(one.is_same(&one.clone()));
        let others = layouts[index + 1..].iter();
        assert!(
            others
                .cloned()
                .all(|other| !one.is_same(&Layout::new(other).unwrap()))
        );
    }
    let fingerprints = || {
        let layouts = layouts
            .iter()
            .map(|fields| Layout::new(fields.clone()).unwrap());
        let of_types =
            layouts.flat_map(|layout| [0, 1, 2].map(|id| layout.clone().with_type_id(id)));
        of_types
            .map(|layout| layout.fingerprint())
            .collect::<Vec<_>>()
    };
    let mut all = fingerprints();
    assert_eq!(all, fingerprints());
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 3 * layouts.len());
}

pub(crate) fn part(offset: usize, bytes: usize, kind: KeyKind) -> PartFields {
    PartFields {
        offset,
        bytes,
        key: kind as i32,
        descending: false,
    }
}

pub(crate) fn list(record_bytes: usize, parts: &[PartFields]) -> Fields {
    Fields {
        record_bytes,
        key: KeyKind::List as i32,
        parts: parts.to_vec(),
        ..Fields::default()
    }
}

fn refusal(fields: Fields) -> String {
    let error = Layout::new(fields).unwrap_err();
    assert_eq!(error.status, Status::Argument);
    error.text
}

#[test]
fn rejects_an_invalid_list_and_names_the_part() {
    let fine = part(0, 0, KeyKind::U32);
    let third = |wrong| list(32, &[fine, fine, wrong]);
    let unknown = PartFields { key: 77, ..fine };
    for (fields, text) in [
        (list(32, &[]), "record.part_count is 0"),
        (list(32, &[fine; 65]), "record.part_count is 65"),
        (
            Fields {
                key: KeyKind::U32 as i32,
                ..list(32, &[fine])
            },
            "record.part_count is 1, but record.key is 6",
        ),
        (
            Fields {
                key_offset: 3,
                ..list(32, &[fine])
            },
            "record.key_offset is 3, but must be 0 with a list",
        ),
        (
            Fields {
                key_bytes: 4,
                ..list(32, &[fine])
            },
            "record.key_bytes is 4, but must be 0 with a list",
        ),
        (
            Fields {
                compare: Some(Comparator::new(<[u8]>::cmp)),
                ..list(32, &[fine])
            },
            "record.compare is not NULL",
        ),
        (third(unknown), "record.parts[2].key is 77, which"),
        (
            third(part(0, 0, KeyKind::Compare)),
            "record.parts[2].key is 12",
        ),
        (
            third(part(0, 0, KeyKind::List)),
            "record.parts[2].key is 16",
        ),
        (
            third(part(0, 3, KeyKind::U32)),
            "record.parts[2].bytes is 3",
        ),
        (
            third(part(0, 0, KeyKind::Text)),
            "record.parts[2].bytes is 0",
        ),
        (
            third(part(0, 5, KeyKind::Text16)),
            "record.parts[2].bytes is 5",
        ),
        (
            third(part(0, 6, KeyKind::Text32)),
            "record.parts[2].bytes is 6",
        ),
        (
            third(part(40, 0, KeyKind::U32)),
            "record.parts[2].offset is 40, but 4 bytes there are not within the record of 32",
        ),
        (
            third(part(0, 33, KeyKind::Bytes)),
            "record.parts[2].offset is 0, but 33",
        ),
        (
            third(part(usize::MAX, 0, KeyKind::U8)),
            "record.parts[2].offset is 18446744073709551615",
        ),
    ] {
        let found = refusal(fields);
        assert!(found.contains(text), "{found}");
    }
    for (bytes, kind) in [(3, KeyKind::Text16), (6, KeyKind::Text32)] {
        let found = refusal(number(9, 0, bytes, kind as i32));
        assert!(
            found.contains(&format!("record.key_bytes is {bytes}")),
            "{found}"
        );
    }
    Layout::new(list(4, &[fine; 64])).unwrap();
}

#[test]
fn a_list_has_a_range_and_directions() {
    let descending = PartFields {
        descending: true,
        ..part(5, 3, KeyKind::Text)
    };
    let fields = list(32, &[part(20, 0, KeyKind::I16), descending]);
    let layout = Layout::new(fields.clone()).unwrap();
    assert_eq!(layout.key_range(), Some(5..22));
    assert_eq!((layout.key_offset(), layout.key_bytes()), (0, 0));
    let directions =
        |layout: &Layout| -> Vec<bool> { layout.keys().iter().map(|key| key.descending).collect() };
    assert_eq!(directions(&layout), [false, true]);
    let reversed = Layout::new(Fields {
        descending: true,
        ..fields
    });
    assert_eq!(directions(&reversed.unwrap()), [true, false]);
    assert_eq!(layout.parts()[0].bytes, 2);
    let single = Layout::new(number(16, 3, 0, KeyKind::U32 as i32)).unwrap();
    assert_eq!(single.key_range(), Some(3..7));
    assert!(single.parts().is_empty() && single.keys().len() == 1);
    let compared = Layout::new(compared(7)).unwrap();
    assert_eq!(compared.key_range(), None);
    assert!(compared.keys().is_empty());
}

#[test]
fn a_layout_moves_to_records_of_another_size() {
    let fields = Fields {
        descending: true,
        ..list(32, &[part(20, 0, KeyKind::I16), part(8, 3, KeyKind::Text)])
    };
    let layout = Layout::new(fields.clone()).unwrap();
    let moved = layout.moved(14, -8).unwrap();
    let expected = Fields {
        record_bytes: 14,
        parts: vec![part(12, 2, KeyKind::I16), part(0, 3, KeyKind::Text)],
        ..fields
    };
    assert!(moved.is_same(&Layout::new(expected).unwrap()));
    let numbered = moved.with_type_id(7);
    assert!(numbered.moved(32, 8).unwrap().is_same(&layout));
    let single = Layout::new(number(16, 3, 5, KeyKind::Bytes as i32)).unwrap();
    let moved = single.moved(5, -3).unwrap();
    assert_eq!((moved.record_bytes(), moved.key_range()), (5, Some(0..5)));
    for (layout, record_bytes, shift, text) in [
        (
            &layout,
            32,
            -9,
            "record.parts[1].offset is 8, and cannot be moved by -9",
        ),
        (&layout, 13, -8, "record.parts[0].offset is 12, but 2 bytes"),
        (
            &single,
            16,
            -4,
            "record.key_offset is 3, and cannot be moved by -4",
        ),
        (&single, 16, 9, "record.key_offset is 12, but 5 bytes"),
        (&single, 0, 0, "record.record_bytes is 0"),
        (
            &Layout::new(compared(7)).unwrap(),
            8,
            0,
            "record.compare is not NULL",
        ),
    ] {
        let error = layout.moved(record_bytes, shift).unwrap_err();
        assert!(error.text.contains(text), "{}", error.text);
    }
}

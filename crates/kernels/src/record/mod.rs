//! The layout of records: their size, the position of their keys, and the order of keys.
//!
//! Keys are integers, floating-point numbers in the total order of IEEE 754 (2019 edition, section 5.10), or bytes; or
//! a comparator compares whole records. This module must never read more than two records: kernels sort.

mod numbers;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use twox_hash::XxHash3_64;

pub use numbers::{Descending, PlainKey, Sign, Word};

use crate::error::{Error, Result, Status};

/// The largest size of a record in bytes. Samples, cuts and digest keys are a few times as large as a record; they must
/// fit into memory on ranks without any record, too.
const MOST_RECORD_BYTES: usize = 1 << 28;

/// The kinds of keys. The numbers are those of `ftsort_key` in the C interface.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Signed, 8 bits.
    I8 = 1,
    /// Unsigned, 8 bits.
    U8 = 2,
    /// Signed, 16 bits.
    I16 = 3,
    /// Unsigned, 16 bits.
    U16 = 4,
    /// Signed, 32 bits.
    I32 = 5,
    /// Unsigned, 32 bits.
    U32 = 6,
    /// Signed, 64 bits.
    I64 = 7,
    /// Unsigned, 64 bits.
    U64 = 8,
    /// IEEE 754 binary32, in the total order.
    F32 = 9,
    /// IEEE 754 binary64, in the total order.
    F64 = 10,
    /// A fixed number of bytes, compared as unsigned numbers one after the other, as by `memcmp`.
    Bytes = 11,
    /// Whole records, compared by the caller's comparator.
    Compare = 12,
}

impl KeyKind {
    /// All kinds.
    pub const ALL: [KeyKind; 12] = [
        KeyKind::I8,
        KeyKind::U8,
        KeyKind::I16,
        KeyKind::U16,
        KeyKind::I32,
        KeyKind::U32,
        KeyKind::I64,
        KeyKind::U64,
        KeyKind::F32,
        KeyKind::F64,
        KeyKind::Bytes,
        KeyKind::Compare,
    ];

    /// Returns the kind with this number, if there is one.
    pub fn from_code(code: i32) -> Option<KeyKind> {
        KeyKind::ALL.into_iter().find(|kind| *kind as i32 == code)
    }

    /// Returns the size of a key in bytes if it is a number, and None otherwise.
    pub fn natural_bytes(self) -> Option<usize> {
        match self {
            KeyKind::I8 | KeyKind::U8 => Some(1),
            KeyKind::I16 | KeyKind::U16 => Some(2),
            KeyKind::I32 | KeyKind::U32 | KeyKind::F32 => Some(4),
            KeyKind::I64 | KeyKind::U64 | KeyKind::F64 => Some(8),
            KeyKind::Bytes | KeyKind::Compare => None,
        }
    }
}

type Compare = dyn Fn(&[u8], &[u8]) -> Ordering + Send + Sync;

/// A function that compares two whole records, which need not be aligned. It must be pure and a total preorder, and may
/// be called on any thread.
#[derive(Clone)]
pub struct Comparator(Arc<Compare>);

impl Comparator {
    /// Returns a comparator that calls `order`.
    pub fn new(order: impl Fn(&[u8], &[u8]) -> Ordering + Send + Sync + 'static) -> Comparator {
        Comparator(Arc::new(order))
    }

    /// Compares two records.
    pub fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        (self.0)(one, other)
    }
}

impl fmt::Debug for Comparator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Comparator")
    }
}

/// The layout of records as a caller describes it. [`Layout::new`] checks it.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// The size of a record in bytes.
    pub record_bytes: usize,
    /// The offset of the key in a record, in bytes.
    pub key_offset: usize,
    /// The size of the key in bytes. 0: the size of the number.
    pub key_bytes: usize,
    /// The number of a [`KeyKind`].
    pub key: i32,
    /// Whether the greatest key comes first.
    pub descending: bool,
    /// The comparator, for [`KeyKind::Compare`] only.
    pub compare: Option<Comparator>,
}

/// The layout of records in memory, and their order.
#[derive(Clone, Debug)]
pub struct Layout {
    record_bytes: usize,
    key_offset: usize,
    key_bytes: usize,
    kind: KeyKind,
    descending: bool,
    comparator: Option<Comparator>,
}

impl Layout {
    /// Checks a layout.
    ///
    /// # Errors
    /// `Status::Argument`; the text names the field and its value.
    pub fn new(fields: Fields) -> Result<Layout> {
        let key = fields.key;
        let kind = KeyKind::from_code(key).ok_or_else(|| {
            invalid(format!(
                "record.key is {key}, which is not an FTSORT_KEY_ value of this version"
            ))
        })?;
        let Fields {
            record_bytes,
            key_offset,
            ..
        } = fields;
        if !(1..=MOST_RECORD_BYTES).contains(&record_bytes) {
            return Err(invalid(format!(
                "record.record_bytes is {record_bytes}, but a record has from 1 to {MOST_RECORD_BYTES} bytes"
            )));
        }
        check_comparator(&fields, kind)?;
        let key_bytes = key_size(&fields, kind)?;
        if key_bytes > record_bytes {
            return Err(invalid(format!(
                "record.record_bytes is {record_bytes}, but the key has {key_bytes} bytes"
            )));
        }
        if key_offset > record_bytes - key_bytes {
            return Err(invalid(format!(
                "record.key_offset is {key_offset}, but {key_bytes} bytes there are not within the record of {record_bytes}"
            )));
        }
        Ok(Layout {
            record_bytes,
            key_offset,
            key_bytes,
            kind,
            descending: fields.descending,
            comparator: fields.compare,
        })
    }

    /// Returns the size of a record in bytes.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Returns the offset of the key in a record, in bytes.
    pub fn key_offset(&self) -> usize {
        self.key_offset
    }

    /// Returns the size of the key in bytes; 0 if a comparator compares whole records.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Returns the kind of key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Returns whether the greatest key comes first. Equal keys keep their order in both directions.
    pub fn is_descending(&self) -> bool {
        self.descending
    }

    /// Returns the caller's comparator, for [`KeyKind::Compare`].
    pub fn comparator(&self) -> Option<&Comparator> {
        self.comparator.as_ref()
    }

    /// Returns whether a record consists of a number only.
    pub fn is_plain_number(&self) -> bool {
        self.kind.natural_bytes() == Some(self.record_bytes)
    }

    /// Returns whether two layouts have the same fields and the same comparator.
    pub fn is_same(&self, other: &Layout) -> bool {
        let comparators = (&self.comparator, &other.comparator);
        let is_same_comparator = match comparators {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(&one.0, &other.0),
            _ => false,
        };
        is_same_comparator && self.fields() == other.fields()
    }

    fn fields(&self) -> [u64; 5] {
        [
            self.record_bytes as u64,
            self.key_offset as u64,
            self.key_bytes as u64,
            self.kind as u64,
            u64::from(self.descending),
        ]
    }

    /// Returns a hash of the layout. It depends on whether there is a comparator, but not on which.
    pub fn fingerprint(&self) -> u64 {
        XxHash3_64::oneshot(self.fields().map(u64::to_le_bytes).as_flattened())
    }
}

fn invalid(text: String) -> Error {
    Error::new(Status::Argument, text)
}

/// Checks that there is a comparator if and only if the kind of key needs one, and no key with it.
fn check_comparator(fields: &Fields, kind: KeyKind) -> Result<()> {
    let is_needed = kind == KeyKind::Compare;
    if is_needed != fields.compare.is_some() {
        let actual = if is_needed { "NULL" } else { "not NULL" };
        return Err(invalid(format!(
            "record.compare is {actual}, but record.key is {}",
            fields.key
        )));
    }
    let part = [
        ("key_offset", fields.key_offset),
        ("key_bytes", fields.key_bytes),
    ]
    .into_iter()
    .find(|(_, value)| is_needed && *value != 0);
    match part {
        Some((name, value)) => Err(invalid(format!(
            "record.{name} is {value}, but must be 0 with a comparator, which compares whole records"
        ))),
        None => Ok(()),
    }
}

/// Returns the size of the key in bytes, which may be left out for numbers.
fn key_size(fields: &Fields, kind: KeyKind) -> Result<usize> {
    let given = fields.key_bytes;
    match kind.natural_bytes() {
        Some(natural) if given != 0 && given != natural => Err(invalid(format!(
            "record.key_bytes is {given}, but a key of this kind has {natural} bytes"
        ))),
        Some(natural) => Ok(natural),
        None if kind == KeyKind::Bytes && given == 0 => Err(invalid(
            "record.key_bytes is 0, but must be given for a key of bytes".into(),
        )),
        None => Ok(given),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (number(4, 0, 0, 13), "record.key is 13"),
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
        let fingerprint = |fields: &Fields| Layout::new(fields.clone()).unwrap().fingerprint();
        let mut all: Vec<u64> = layouts.iter().map(fingerprint).collect();
        assert_eq!(all, layouts.iter().map(fingerprint).collect::<Vec<_>>());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), layouts.len());
    }
}

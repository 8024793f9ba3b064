//! The layout of records: their size, the position of their keys, and the order of keys.
//!
//! Keys are integers, floating-point numbers in the total order of IEEE 754 (2019 edition, section 5.10), bytes, texts,
//! or lists of these; or a comparator compares whole records. This module must never read more than two records: kernels sort.

mod check;
mod kind;
mod numbers;
#[cfg(test)]
pub(crate) mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use twox_hash::XxHash3_64;

pub use check::check_part_count;
pub use kind::{KeyKind, KeyPart, PartFields};
pub use numbers::{Descending, PlainKey, Sign, Word};

use crate::error::{Error, Result, Status};

/// The largest size of a record in bytes. Samples, cuts and digest keys are a few times as large as a record; they must
/// fit into memory on ranks without any record, too.
pub const MOST_RECORD_BYTES: usize = 1 << 28;

/// The largest number of keys in a list.
const MOST_PARTS: usize = 64;

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
    /// The keys, for [`KeyKind::List`] only. The first one decides; among equal ones the second, and so on. They may
    /// overlap. `descending` reverses their whole order.
    pub parts: Vec<PartFields>,
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
    parts: Arc<[KeyPart]>,
    /// The caller's number for the type of the records; 0: none.
    type_id: u64,
}

impl Layout {
    /// Checks a layout.
    ///
    /// # Errors
    /// `Status::Argument`; the text names the field and its value.
    pub fn new(fields: Fields) -> Result<Layout> {
        let kind = check::kind_of("record", fields.key)?;
        let record_bytes = fields.record_bytes;
        if !(1..=MOST_RECORD_BYTES).contains(&record_bytes) {
            return Err(check::invalid(format!(
                "record.record_bytes is {record_bytes}, but a record has from 1 to {MOST_RECORD_BYTES} bytes"
            )));
        }
        check::comparator(&fields, kind)?;
        let parts = check::parts(&fields, kind)?;
        let key_bytes = check::single_key(&fields, kind)?;
        Ok(Layout {
            record_bytes,
            key_offset: fields.key_offset,
            key_bytes,
            kind,
            descending: fields.descending,
            comparator: fields.compare,
            parts,
            type_id: 0,
        })
    }

    /// Returns the layout with the same keys in records of another size, in which the offsets of all keys are greater
    /// by `shift`. The records are of another type, so the new layout has no number of [`Layout::with_type_id`].
    ///
    /// # Errors
    /// `Status::Argument` if a key is not within the new record, or if a comparator compares whole records.
    pub fn moved(&self, record_bytes: usize, shift: isize) -> Result<Layout> {
        if self.comparator.is_some() {
            return Err(check::invalid(
                "record.compare is not NULL, but compares whole records, so it cannot compare their keys alone: \
                 describe the keys by record.parts"
                    .into(),
            ));
        }
        let moved = |name: String, offset: usize| {
            offset.checked_add_signed(shift).ok_or_else(|| {
                check::invalid(format!(
                    "{name} is {offset}, and cannot be moved by {shift}"
                ))
            })
        };
        let mut parts = Vec::with_capacity(self.parts.len());
        for (index, part) in self.parts.iter().enumerate() {
            parts.push(PartFields {
                offset: moved(format!("record.parts[{index}].offset"), part.offset)?,
                bytes: part.bytes,
                key: part.kind as i32,
                descending: part.descending,
            });
        }
        // With a list there is no key to move.
        let key_offset = match self.kind {
            KeyKind::List => 0,
            _ => moved("record.key_offset".into(), self.key_offset)?,
        };
        Layout::new(Fields {
            record_bytes,
            key_offset,
            key_bytes: self.key_bytes,
            key: self.kind as i32,
            descending: self.descending,
            compare: None,
            parts,
        })
    }

    /// The same layout of records with this number for their type, which is a part of its fingerprint; 0: none.
    #[must_use]
    pub fn with_type_id(self, type_id: u64) -> Layout {
        Layout { type_id, ..self }
    }

    /// `Status::Argument` if the order is that of a comparator without a number, so that another job could not tell it from
    /// another order.
    pub fn check_known_order(&self) -> Result<()> {
        if self.kind != KeyKind::Compare || self.type_id != 0 {
            return Ok(());
        }
        let text = "record.type_id is 0 with a comparator, which a later job could not tell from another one: set it to a \
                    number for this order, or choose another key";
        Err(Error::new(Status::Argument, text))
    }

    /// Returns the size of a record in bytes.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Returns the offset of the key in a record, in bytes; 0 for a list of keys.
    pub fn key_offset(&self) -> usize {
        self.key_offset
    }

    /// Returns the size of the key in bytes; 0 for a list of keys, and if a comparator
    /// compares whole records.
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

    /// Returns the keys of a list as they were described, for [`KeyKind::List`] only; otherwise nothing.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Returns all keys, the one that decides first, each with its direction in the order of the records. Nothing if a
    /// comparator compares whole records.
    pub fn keys(&self) -> Vec<KeyPart> {
        let single = KeyPart {
            offset: self.key_offset,
            bytes: self.key_bytes,
            kind: self.kind,
            descending: self.descending,
        };
        match self.kind {
            KeyKind::Compare => Vec::new(),
            KeyKind::List => {
                let directed = |part: &KeyPart| KeyPart {
                    descending: part.descending != self.descending,
                    ..*part
                };
                self.parts.iter().map(directed).collect()
            }
            _ => vec![single],
        }
    }

    /// Returns the smallest range of bytes in a record that contains the bytes of all keys. None if a comparator
    /// compares whole records.
    pub fn key_range(&self) -> Option<Range<usize>> {
        let keys = self.keys();
        let start = keys.iter().map(|key| key.offset).min()?;
        let end = keys.iter().map(|key| key.offset + key.bytes).max()?;
        Some(start..end)
    }

    /// Returns whether a record consists of a number only.
    pub fn is_plain_number(&self) -> bool {
        self.kind.natural_bytes() == Some(self.record_bytes)
    }

    /// Returns whether two layouts have the same fields, the same keys and the same comparator.
    pub fn is_same(&self, other: &Layout) -> bool {
        let comparators = (&self.comparator, &other.comparator);
        let is_same_comparator = match comparators {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(&one.0, &other.0),
            _ => false,
        };
        is_same_comparator && self.numbers() == other.numbers()
    }

    /// Returns the fields of the layout and of its keys as numbers.
    fn numbers(&self) -> Vec<u64> {
        let mut numbers = vec![
            self.record_bytes as u64,
            self.key_offset as u64,
            self.key_bytes as u64,
            self.kind as u64,
            u64::from(self.descending),
        ];
        for part in &*self.parts {
            let (offset, bytes) = (part.offset as u64, part.bytes as u64);
            numbers.extend([offset, bytes, part.kind as u64, u64::from(part.descending)]);
        }
        // Stored results have the fingerprints of layouts.
        if self.type_id != 0 {
            numbers.push(self.type_id);
        }
        numbers
    }

    /// Returns a hash of the layout. It depends on whether there is a comparator, but not on which.
    pub fn fingerprint(&self) -> u64 {
        let numbers = self.numbers().into_iter().map(u64::to_le_bytes);
        XxHash3_64::oneshot(numbers.collect::<Vec<_>>().as_flattened())
    }
}

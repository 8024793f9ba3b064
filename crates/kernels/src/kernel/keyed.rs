//! The order of records that are more than a number: by a key within the record, or by a comparator.
//!
//! The leading bytes of a key are turned into a number of 64 bits, the prefix. Records with different prefixes have the
//! order of their prefixes; only records with equal prefixes are compared. This module must never read beyond one
//! record.

use std::cmp::Ordering;
use std::ops::Range;

use super::cut::Order;
use crate::record::{Comparator, KeyKind, Layout};

/// The number of bytes that a prefix is made of.
pub const PREFIX_BYTES: usize = 8;
const SIGN: u64 = 1 << 63;

/// The order of records of one layout.
#[derive(Clone, Debug)]
pub struct Keyed {
    record_bytes: usize,
    prefix: Prefix,
    rest: Rest,
    descending: bool,
}

/// Computes prefixes: reads eight bytes of the record, shifts them so that the key starts at the top bit, clears bytes
/// that do not belong to the key, and flips bits so that the numbers have the order of the keys.
#[derive(Clone, Copy, Debug)]
pub struct Prefix {
    offset: usize,
    big_endian: bool,
    shift: u32,
    mask: u64,
    /// The bits that are flipped if the top bit is set.
    flip_negative: u64,
    /// The bits that are always flipped.
    flip: u64,
}

/// The part of the order that decides between records with equal prefixes.
#[derive(Clone, Debug)]
enum Rest {
    Nothing,
    Bytes(Range<usize>),
    Comparator(Comparator),
}

impl Keyed {
    /// Returns the order of a layout.
    pub fn new(layout: &Layout) -> Keyed {
        let (start, length) = (layout.key_offset(), layout.key_bytes());
        let key = start..start + length;
        let rest = match layout.comparator() {
            Some(comparator) => Rest::Comparator(comparator.clone()),
            None if length > PREFIX_BYTES => Rest::Bytes(start + PREFIX_BYTES..key.end),
            None => Rest::Nothing,
        };
        Keyed {
            record_bytes: layout.record_bytes(),
            prefix: Prefix::new(layout, key),
            rest,
            descending: layout.is_descending(),
        }
    }

    /// Returns the prefix of a record. Different keys may have equal prefixes.
    #[inline(always)]
    pub fn prefix(&self, record: &[u8]) -> u64 {
        self.prefix.of(record)
    }

    /// Returns a copy of the object that computes prefixes, which makes loops faster.
    pub fn prefix_maker(&self) -> Prefix {
        self.prefix
    }

    /// Returns whether records with equal prefixes have equal keys.
    pub fn is_decided_by_prefix(&self) -> bool {
        matches!(self.rest, Rest::Nothing)
    }

    /// Compares two records with equal prefixes.
    pub fn compare_rest(&self, one: &[u8], other: &[u8]) -> Ordering {
        let ascending = match &self.rest {
            Rest::Nothing => Ordering::Equal,
            Rest::Bytes(range) => one[range.clone()].cmp(&other[range.clone()]),
            Rest::Comparator(comparator) => comparator.compare(one, other),
        };
        if self.descending {
            ascending.reverse()
        } else {
            ascending
        }
    }
}

impl Order for Keyed {
    #[inline(always)]
    fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    #[inline(always)]
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        self.prefix(one)
            .cmp(&self.prefix(other))
            .then_with(|| self.compare_rest(one, other))
    }
}

impl Prefix {
    fn new(layout: &Layout, key: Range<usize>) -> Prefix {
        let kind = layout.kind();
        let big_endian = cfg!(target_endian = "big") || kind == KeyKind::Bytes;
        // If the key is at one end of the record, the eight bytes are, too: the merges are compiled for these offsets.
        let last = layout.record_bytes().saturating_sub(PREFIX_BYTES);
        let offset = match key.end {
            ..=PREFIX_BYTES => 0,
            _ => key.start.min(last),
        };
        let bits = key.len().min(PREFIX_BYTES) as u32 * u8::BITS;
        let skipped = (key.start - offset) as u32 * u8::BITS;
        let shift = if big_endian {
            skipped
        } else {
            let unused = u64::BITS - bits;
            unused.saturating_sub(skipped).min(u64::BITS - 1)
        };
        let mask = u64::MAX.checked_shl(u64::BITS - bits).unwrap_or(0);
        let (flip_negative, flip) = match kind {
            KeyKind::I8 | KeyKind::I16 | KeyKind::I32 | KeyKind::I64 => (0, SIGN),
            KeyKind::F32 | KeyKind::F64 => (mask ^ SIGN, SIGN),
            _ => (0, 0),
        };
        Prefix {
            offset,
            big_endian,
            shift,
            mask,
            flip_negative,
            flip: if layout.is_descending() {
                flip ^ mask
            } else {
                flip
            },
        }
    }

    /// Returns the offset in a record of the eight bytes that its prefix is made of.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the bits that are flipped in these eight bytes, read as a number in the processor's byte order, if
    /// flipping them is all that makes the prefix.
    pub fn only_flip(&self) -> Option<u64> {
        let is_native = self.big_endian == cfg!(target_endian = "big") && self.shift == 0;
        (is_native && self.mask == u64::MAX && self.flip_negative == 0).then_some(self.flip)
    }

    /// Returns the prefix of a record.
    #[inline(always)]
    pub fn of(&self, record: &[u8]) -> u64 {
        let mut bytes = [0; PREFIX_BYTES];
        match record.len() {
            // The eight bytes are within the record.
            PREFIX_BYTES.. => bytes.copy_from_slice(&record[self.offset..][..PREFIX_BYTES]),
            short => bytes[..short].copy_from_slice(record),
        }
        self.of_bytes(bytes)
    }

    /// Returns the prefix of a record that has these bytes at [`Prefix::offset`].
    #[inline(always)]
    pub fn of_bytes(&self, bytes: [u8; PREFIX_BYTES]) -> u64 {
        let raw = if self.big_endian {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        };
        let key = raw << self.shift & self.mask;
        let negative = (key as i64 >> (u64::BITS - 1)) as u64;
        key ^ (negative & self.flip_negative) ^ self.flip
    }
}

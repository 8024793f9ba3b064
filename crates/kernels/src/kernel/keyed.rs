//! The order of records that are more than a number: by a key somewhere within, or by a comparator.
//!
//! Whatever the key is, its leading bytes are turned into a number of 64 bits, the prefix, whose
//! order is the key's; only where that does not decide are two records looked at. It must never read
//! beyond one record.

use std::cmp::Ordering;
use std::ops::Range;

use super::cut::Order;
use crate::record::{Comparator, KeyKind, Layout};

/// A prefix is made of so many bytes.
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

/// How a record's prefix is made: eight bytes are read and shifted so that the key starts at the top
/// bit, the bytes of others are masked out, and the bits are changed so that their order is the
/// key's.
#[derive(Clone, Copy, Debug)]
pub struct Prefix {
    at: usize,
    big_endian: bool,
    shift: u32,
    mask: u64,
    /// What is flipped if the top bit is set.
    flip_negative: u64,
    /// What is always flipped.
    flip: u64,
}

/// What decides between records of the same prefix.
#[derive(Clone, Debug)]
enum Rest {
    Nothing,
    Bytes(Range<usize>),
    Comparator(Comparator),
}

impl Keyed {
    /// The order that a layout asks for.
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

    /// A number in whose order keys are, though different keys may have the same.
    #[inline(always)]
    pub fn prefix(&self, record: &[u8]) -> u64 {
        self.prefix.of(record)
    }

    /// What makes prefixes: for loops, which are faster with a copy of it.
    pub fn prefix_maker(&self) -> Prefix {
        self.prefix
    }

    /// Do records of the same prefix have the same key?
    pub fn is_decided_by_prefix(&self) -> bool {
        matches!(self.rest, Rest::Nothing)
    }

    /// The order of two records of the same prefix.
    pub fn compare_rest(&self, one: &[u8], other: &[u8]) -> Ordering {
        let ascending = match &self.rest {
            Rest::Nothing => Ordering::Equal,
            Rest::Bytes(range) => one[range.clone()].cmp(&other[range.clone()]),
            Rest::Comparator(comparator) => comparator.compare(one, other),
        };
        match self.descending {
            true => ascending.reverse(),
            false => ascending,
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
        // At one end of the record, if the key is there: that is what loops are made for.
        let last = layout.record_bytes().saturating_sub(PREFIX_BYTES);
        let at = match key.end {
            ..=PREFIX_BYTES => 0,
            _ => key.start.min(last),
        };
        let bits = key.len().min(PREFIX_BYTES) as u32 * u8::BITS;
        let skipped = (key.start - at) as u32 * u8::BITS;
        let shift = match big_endian {
            true => skipped,
            false => (u64::BITS - bits)
                .saturating_sub(skipped)
                .min(u64::BITS - 1),
        };
        let mask = u64::MAX.checked_shl(u64::BITS - bits).unwrap_or(0);
        let (flip_negative, flip) = match kind {
            KeyKind::I8 | KeyKind::I16 | KeyKind::I32 | KeyKind::I64 => (0, SIGN),
            KeyKind::F32 | KeyKind::F64 => (mask ^ SIGN, SIGN),
            _ => (0, 0),
        };
        Prefix {
            at,
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

    /// Where a record has the eight bytes that its prefix is made of.
    pub fn at(&self) -> usize {
        self.at
    }

    /// What is flipped in these bytes, as a number of this processor, if nothing else is done with them.
    pub fn flipped_alone(&self) -> Option<u64> {
        let as_they_are = self.big_endian == cfg!(target_endian = "big") && self.shift == 0;
        (as_they_are && self.mask == u64::MAX && self.flip_negative == 0).then_some(self.flip)
    }

    /// The prefix of a record.
    #[inline(always)]
    pub fn of(&self, record: &[u8]) -> u64 {
        let mut bytes = [0; PREFIX_BYTES];
        match record.len() {
            // The key starts at most so many bytes after `at`.
            PREFIX_BYTES.. => bytes.copy_from_slice(&record[self.at..][..PREFIX_BYTES]),
            short => bytes[..short].copy_from_slice(record),
        }
        self.of_bytes(bytes)
    }

    /// The prefix of a record that has these bytes from [`Prefix::at`] on.
    #[inline(always)]
    pub fn of_bytes(&self, bytes: [u8; PREFIX_BYTES]) -> u64 {
        let raw = match self.big_endian {
            true => u64::from_be_bytes(bytes),
            false => u64::from_le_bytes(bytes),
        };
        let key = raw << self.shift & self.mask;
        let negative = (key as i64 >> (u64::BITS - 1)) as u64;
        key ^ (negative & self.flip_negative) ^ self.flip
    }
}

//! The order of records that are more than a number: by one or several keys within the record, or by a comparator.
//!
//! The leading bytes of the keys make a number of 64 bits, the prefix. Records with different prefixes have the order of
//! their prefixes; only records with equal prefixes are compared, by the keys that the prefix does not contain as a
//! whole. This module must never read beyond one record.

use std::cmp::Ordering;
use std::ops::Range;

use super::cut::Order;
use super::prefix::{Component, Composed, PREFIX_BYTES, Prefix, Prefixes, Reader, Unit};
use crate::record::{Comparator, KeyKind, KeyPart, Layout};

/// The order of records of one layout.
#[derive(Clone, Debug)]
pub struct Keyed {
    record_bytes: usize,
    prefixes: Prefixes,
    rest: Rest,
}

/// The part of the order that decides between records with equal prefixes.
#[derive(Clone, Debug)]
enum Rest {
    Nothing,
    Keys(Box<[Key]>),
    Comparator {
        comparator: Comparator,
        descending: bool,
    },
}

/// A key, or the bytes of it that the prefix does not contain.
#[derive(Clone, Debug)]
enum Key {
    Number(Reader),
    Bytes {
        range: Range<usize>,
        descending: bool,
    },
    Text {
        range: Range<usize>,
        unit: Unit,
        descending: bool,
    },
}

impl Keyed {
    /// Returns the order of a layout.
    pub fn new(layout: &Layout) -> Keyed {
        let record_bytes = layout.record_bytes();
        let keys = layout.keys();
        let mut components = Vec::new();
        let mut rest = Vec::new();
        let mut above = 0_usize;
        for key in &keys {
            if above < PREFIX_BYTES {
                let bits = above as u32 * u8::BITS;
                components.push(Component::new(record_bytes, key, bits));
            }
            let covered = PREFIX_BYTES.saturating_sub(above);
            if key.bytes > covered {
                rest.push(Key::new(record_bytes, key, covered));
            }
            above = above.saturating_add(key.bytes);
        }
        let only_reader = match &components[..] {
            // Without keys all prefixes are 0.
            [] => Some(Reader::new(record_bytes, &NO_KEY)),
            [component] => component.only_reader(),
            _ => None,
        };
        let composed = || Prefixes::Composed(components.into());
        let rest = match layout.comparator() {
            Some(comparator) => Rest::Comparator {
                comparator: comparator.clone(),
                descending: layout.is_descending(),
            },
            None if rest.is_empty() => Rest::Nothing,
            None => Rest::Keys(rest.into()),
        };
        Keyed {
            record_bytes,
            prefixes: only_reader.map_or_else(composed, Prefixes::Single),
            rest,
        }
    }

    /// Returns the prefix of a record. Different keys may have equal prefixes.
    #[inline(always)]
    pub fn prefix(&self, record: &[u8]) -> u64 {
        match &self.prefixes {
            Prefixes::Single(reader) => reader.of(record),
            Prefixes::Composed(components) => composed_prefix(components, record),
        }
    }

    /// Returns how prefixes are computed. A loop over records makes the distinction once.
    pub fn prefixes(&self) -> &Prefixes {
        &self.prefixes
    }

    /// Returns whether records with equal prefixes have equal keys.
    pub fn is_decided_by_prefix(&self) -> bool {
        matches!(self.rest, Rest::Nothing)
    }

    /// Compares two records with equal prefixes.
    pub fn compare_rest(&self, one: &[u8], other: &[u8]) -> Ordering {
        match &self.rest {
            Rest::Nothing => Ordering::Equal,
            Rest::Keys(keys) => {
                let mut orders = keys.iter().map(|key| key.compare(one, other));
                orders
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            }
            Rest::Comparator {
                comparator,
                descending,
            } => directed(comparator.compare(one, other), *descending),
        }
    }
}

/// Not inlined, so that comparisons by a single key stay short.
#[inline(never)]
fn composed_prefix(components: &[Component], record: &[u8]) -> u64 {
    Composed(components).prefix(record)
}

/// The key of records that a comparator compares.
const NO_KEY: KeyPart = KeyPart {
    offset: 0,
    bytes: 0,
    kind: KeyKind::Compare,
    descending: false,
};

impl Key {
    /// Returns a key, of which the prefix contains the first `covered` bytes.
    fn new(record_bytes: usize, key: &KeyPart, covered: usize) -> Key {
        let end = key.offset + key.bytes;
        let descending = key.descending;
        match Unit::of(key.kind) {
            // The text may end within the prefix.
            Some(unit) => Key::Text {
                range: key.offset..end,
                unit,
                descending,
            },
            None if key.kind == KeyKind::Bytes => Key::Bytes {
                range: key.offset + covered..end,
                descending,
            },
            None => Key::Number(Reader::new(record_bytes, key)),
        }
    }

    #[inline]
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            Key::Number(reader) => reader.of(one).cmp(&reader.of(other)),
            Key::Bytes { range, descending } => {
                let order = one[range.clone()].cmp(&other[range.clone()]);
                directed(order, *descending)
            }
            Key::Text {
                range,
                unit,
                descending,
            } => {
                let order = compare_texts(&one[range.clone()], &other[range.clone()], *unit);
                directed(order, *descending)
            }
        }
    }
}

/// Compares two texts of the same size up to their terminators.
fn compare_texts(one: &[u8], other: &[u8], unit: Unit) -> Ordering {
    let pairs = one.chunks(PREFIX_BYTES).zip(other.chunks(PREFIX_BYTES));
    for pair in pairs {
        let words = [pair.0, pair.1].map(|chunk| {
            let mut bytes = [0; PREFIX_BYTES];
            bytes[..chunk.len()].copy_from_slice(chunk);
            unit.terminated(u64::from_be_bytes(bytes))
        });
        match words[0].cmp(&words[1]) {
            Ordering::Equal if unit.is_ended(words[0]) => return Ordering::Equal,
            Ordering::Equal => {}
            order => return order,
        }
    }
    Ordering::Equal
}

fn directed(ascending: Ordering, descending: bool) -> Ordering {
    if descending {
        ascending.reverse()
    } else {
        ascending
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

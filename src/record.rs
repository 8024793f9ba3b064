//! What a record is: its size, where its key is, and the order of keys.
//!
//! Keys are numbers, floats in IEEE 754's total order (2019 edition, section 5.10). Pure layout
//! and order; it must never look at more than one record, and sorting is the kernel's business.

use std::cmp::Ordering;
use std::ops::{BitOr, BitXor};

use bytemuck::Pod;

use crate::error::{Error, Result, Status};

/// The kinds of keys, with the numbers of the C interface's `ftsort_key`.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Signed, 32 bits.
    I32 = 5,
    /// Unsigned, 32 bits.
    U32 = 6,
    /// Signed, 64 bits.
    I64 = 7,
    /// Unsigned, 64 bits.
    U64 = 8,
    /// IEEE 754 binary32, in total order.
    F32 = 9,
    /// IEEE 754 binary64, in total order.
    F64 = 10,
}

impl KeyKind {
    const ALL: [KeyKind; 6] = [
        KeyKind::I32,
        KeyKind::U32,
        KeyKind::I64,
        KeyKind::U64,
        KeyKind::F32,
        KeyKind::F64,
    ];

    /// The kind with this number.
    pub fn from_code(code: i32) -> Option<KeyKind> {
        KeyKind::ALL.into_iter().find(|kind| *kind as i32 == code)
    }

    /// The size of such a key in bytes.
    pub fn bytes(self) -> usize {
        match self {
            KeyKind::I32 | KeyKind::U32 | KeyKind::F32 => 4,
            KeyKind::I64 | KeyKind::U64 | KeyKind::F64 => 8,
        }
    }
}

/// How records lie in memory, and what they are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    record_bytes: usize,
    kind: KeyKind,
}

impl Layout {
    /// Checks a layout: `key` is the number of a [`KeyKind`]; `key_bytes` 0 means its natural size.
    /// In this version a record is its key. `Status::Argument` naming the field and its value.
    pub fn new(
        record_bytes: usize,
        key_offset: usize,
        key_bytes: usize,
        key: i32,
    ) -> Result<Layout> {
        let refuse = |text: String| Err(Error::new(Status::Argument, text));
        let Some(kind) = KeyKind::from_code(key) else {
            return refuse(format!(
                "record.key is {key}, which is no FTSORT_KEY_ of this version"
            ));
        };
        let natural = kind.bytes();
        if key_bytes != 0 && key_bytes != natural {
            return refuse(format!(
                "record.key_bytes is {key_bytes}, but such a key has {natural}"
            ));
        }
        if record_bytes != natural {
            return refuse(format!(
                "record.record_bytes is {record_bytes}, but in this version a record is its key, of {natural} bytes"
            ));
        }
        if key_offset != 0 {
            return refuse(format!(
                "record.key_offset is {key_offset}, but in this version a record is its key"
            ));
        }
        Ok(Layout { record_bytes, kind })
    }

    /// The size of a record.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// What the key is.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Equal for equal layouts, and for no others.
    pub fn fingerprint(&self) -> u64 {
        (self.record_bytes as u64) << 8 | self.kind as u64
    }
}

/// An unsigned number, the form in which keys are compared, merged and taken apart into digits.
pub trait Word:
    Pod + Ord + Send + Sync + std::fmt::Debug + BitXor<Output = Self> + BitOr<Output = Self>
{
    /// The lowest eight bits after a shift to the right.
    fn digit(self, shift: u32) -> u8;

    /// How many bits there are below and at the highest one that is set.
    fn significant_bits(self) -> u32;
}

macro_rules! word {
    ($($word:ty),*) => {$(
        impl Word for $word {
            #[inline(always)]
            fn digit(self, shift: u32) -> u8 {
                (self >> shift) as u8
            }

            #[inline(always)]
            fn significant_bits(self) -> u32 {
                <$word>::BITS - self.leading_zeros()
            }
        }
    )*};
}

word!(u32, u64);

/// A plain number that records can be sorted by.
pub trait PlainKey: Pod + Send + Sync + std::fmt::Debug {
    /// An unsigned number of the same size whose order is the key's.
    type Bits: Word;

    /// Are the key's own bits already in that order, so that [`PlainKey::bits`] changes nothing?
    const IN_ORDER: bool;

    /// The key in that order.
    fn bits(self) -> Self::Bits;

    /// The opposite of [`PlainKey::bits`].
    fn from_bits(bits: Self::Bits) -> Self;

    /// The order of keys: that of numbers; for floats IEEE 754's total order, in which
    /// -NaN < -infinity < ... < -0.0 < +0.0 < ... < +infinity < +NaN.
    fn order(self, other: Self) -> Ordering {
        self.bits().cmp(&other.bits())
    }

    /// `self` sorts before `other`.
    #[inline(always)]
    fn before(self, other: Self) -> bool {
        self.bits() < other.bits()
    }
}

macro_rules! plain_key {
    ($($key:ty, $bits:ty, $in_order:literal, $to:expr, $from:expr;)*) => {$(
        impl PlainKey for $key {
            type Bits = $bits;
            const IN_ORDER: bool = $in_order;

            #[inline(always)]
            fn bits(self) -> $bits {
                const TO: fn($key) -> $bits = $to;
                TO(self)
            }

            #[inline(always)]
            fn from_bits(bits: $bits) -> $key {
                const FROM: fn($bits) -> $key = $from;
                FROM(bits)
            }
        }
    )*};
}

const SIGN_32: u32 = 1 << 31;
const SIGN_64: u64 = 1 << 63;

// Negative floats: all bits flipped, so that greater magnitudes come first; others: the sign alone.
plain_key! {
    u32, u32, true, |key| key, |bits| bits;
    u64, u64, true, |key| key, |bits| bits;
    i32, u32, false, |key| key as u32 ^ SIGN_32, |bits| (bits ^ SIGN_32) as i32;
    i64, u64, false, |key| key as u64 ^ SIGN_64, |bits| (bits ^ SIGN_64) as i64;
    f32, u32, false,
        |key| { let raw = key.to_bits(); raw ^ ((raw as i32 >> 31) as u32 | SIGN_32) },
        |bits| f32::from_bits(bits ^ ((!bits as i32 >> 31) as u32 | SIGN_32));
    f64, u64, false,
        |key| { let raw = key.to_bits(); raw ^ ((raw as i64 >> 63) as u64 | SIGN_64) },
        |bits| f64::from_bits(bits ^ ((!bits as i64 >> 63) as u64 | SIGN_64));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_layout_that_cannot_be_is_refused_by_name() {
        for (layout, name) in [
            (Layout::new(4, 0, 0, 77), "record.key is 77"),
            (Layout::new(8, 0, 0, 5), "record.record_bytes is 8"),
            (Layout::new(4, 2, 0, 5), "record.key_offset is 2"),
            (Layout::new(4, 0, 8, 5), "record.key_bytes is 8"),
        ] {
            let error = layout.unwrap_err();
            assert_eq!(error.status, Status::Argument);
            assert!(error.text.contains(name), "{}", error.text);
        }
        for kind in KeyKind::ALL {
            let layout = Layout::new(kind.bytes(), 0, 0, kind as i32).unwrap();
            assert_eq!(layout.kind(), kind);
            assert_eq!(layout.record_bytes(), kind.bytes());
        }
    }

    const SPECIAL: [f64; 12] = [
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::MIN,
        f64::MAX,
        f64::MIN_POSITIVE,
        -f64::MIN_POSITIVE,
    ];

    #[test]
    fn floats_are_in_total_order() {
        for one in SPECIAL {
            for other in SPECIAL {
                assert_eq!(one.order(other), one.total_cmp(&other), "{one} {other}");
                let (one, other) = (one as f32, other as f32);
                assert_eq!(one.order(other), one.total_cmp(&other), "{one} {other}");
            }
        }
    }

    fn comes_back<T: PlainKey>(raw: T::Bits) -> bool {
        let key: T = bytemuck::cast(raw);
        let back: T::Bits = bytemuck::cast(T::from_bits(key.bits()));
        back == raw && (!T::IN_ORDER || key.bits() == raw)
    }

    proptest! {
        #[test]
        fn keys_come_back_from_their_bits(raw: u64) {
            prop_assert!(comes_back::<u64>(raw) && comes_back::<i64>(raw) && comes_back::<f64>(raw));
            let raw = raw as u32;
            prop_assert!(comes_back::<u32>(raw) && comes_back::<i32>(raw) && comes_back::<f32>(raw));
        }

        #[test]
        fn the_order_is_that_of_the_type(a: u64, b: u64) {
            prop_assert_eq!(a.order(b), a.cmp(&b));
            prop_assert_eq!((a as i64).order(b as i64), (a as i64).cmp(&(b as i64)));
            prop_assert_eq!((a as i32).order(b as i32), (a as i32).cmp(&(b as i32)));
            prop_assert_eq!((a as u32).order(b as u32), (a as u32).cmp(&(b as u32)));
            let (c, d) = (f64::from_bits(a), f64::from_bits(b));
            prop_assert_eq!(c.order(d), c.total_cmp(&d));
            let (c, d) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            prop_assert_eq!(c.order(d), c.total_cmp(&d));
        }
    }
}

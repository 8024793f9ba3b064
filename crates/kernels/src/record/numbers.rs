//! Keys that are numbers: their order, and unsigned words that have the same order. It must never know where in a
//! record a key is.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{BitOr, BitXor, Not};

use bytemuck::{Pod, Zeroable};

/// An unsigned number: the form in which keys are compared, merged and divided into digits.
pub trait Word:
    Pod
    + Ord
    + Send
    + Sync
    + fmt::Debug
    + BitXor<Output = Self>
    + BitOr<Output = Self>
    + Not<Output = Self>
{
    /// The number of bits.
    const BITS: u32;

    /// Returns the number with 64 bits.
    fn widened(self) -> u64;

    /// Returns the low bits of a number.
    fn truncated(number: u64) -> Self;

    /// Returns the lowest eight bits after a shift to the right.
    fn digit(self, shift: u32) -> u8;

    /// Returns the number of bits without the leading zeros.
    fn significant_bits(self) -> u32;
}

macro_rules! word {
    ($($word:ty),*) => {$(
        impl Word for $word {
            const BITS: u32 = <$word>::BITS;

            #[inline(always)]
            fn widened(self) -> u64 {
                u64::from(self)
            }

            #[inline(always)]
            fn truncated(number: u64) -> $word {
                number as $word
            }

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

word!(u8, u16, u32, u64);

/// How words are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// As unsigned numbers.
    Unsigned,
    /// As signed numbers in two's complement.
    Signed,
    /// As the bits of floating-point numbers, in the total order of IEEE 754.
    Float,
}

/// A number by which records can be sorted.
pub trait PlainKey: Pod + Send + Sync + fmt::Debug {
    /// An unsigned number of the same size. Its order is that of the keys.
    type Bits: Word;

    /// How the bits of the key have to be compared as they are; None if no comparison of a processor fits.
    const NATIVE: Option<Sign>;

    /// Whether [`PlainKey::bits`] returns the bits of the key as they are.
    const IN_ORDER: bool = matches!(Self::NATIVE, Some(Sign::Unsigned));

    /// Returns the word for this key.
    fn bits(self) -> Self::Bits;

    /// Returns the key for this word: the inverse of [`PlainKey::bits`].
    fn from_bits(bits: Self::Bits) -> Self;

    /// Compares two keys: as numbers, or in the total order of IEEE 754, in which
    /// -NaN < -infinity < ... < -0.0 < +0.0 < ... < +infinity < +NaN.
    fn order(self, other: Self) -> Ordering {
        self.bits().cmp(&other.bits())
    }

    /// Returns whether `self` is less than `other`.
    #[inline(always)]
    fn before(self, other: Self) -> bool {
        self.bits() < other.bits()
    }
}

macro_rules! plain_key {
    ($($key:ty, $bits:ty, $native:expr, $to:expr, $from:expr;)*) => {$(
        impl PlainKey for $key {
            type Bits = $bits;
            const NATIVE: Option<Sign> = $native;

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

const SIGN_8: u8 = 1 << 7;
const SIGN_16: u16 = 1 << 15;
const SIGN_32: u32 = 1 << 31;
const SIGN_64: u64 = 1 << 63;

// Of a negative floating-point number all bits are flipped, so that greater magnitudes come first; of others the sign.
plain_key! {
    u8, u8, Some(Sign::Unsigned), |key| key, |bits| bits;
    u16, u16, Some(Sign::Unsigned), |key| key, |bits| bits;
    u32, u32, Some(Sign::Unsigned), |key| key, |bits| bits;
    u64, u64, Some(Sign::Unsigned), |key| key, |bits| bits;
    i8, u8, Some(Sign::Signed), |key| key as u8 ^ SIGN_8, |bits| (bits ^ SIGN_8) as i8;
    i16, u16, Some(Sign::Signed), |key| key as u16 ^ SIGN_16, |bits| (bits ^ SIGN_16) as i16;
    i32, u32, Some(Sign::Signed), |key| key as u32 ^ SIGN_32, |bits| (bits ^ SIGN_32) as i32;
    i64, u64, Some(Sign::Signed), |key| key as u64 ^ SIGN_64, |bits| (bits ^ SIGN_64) as i64;
    f32, u32, Some(Sign::Float),
        |key| { let raw = key.to_bits(); raw ^ ((raw as i32 >> 31) as u32 | SIGN_32) },
        |bits| f32::from_bits(bits ^ ((!bits as i32 >> 31) as u32 | SIGN_32));
    f64, u64, Some(Sign::Float),
        |key| { let raw = key.to_bits(); raw ^ ((raw as i64 >> 63) as u64 | SIGN_64) },
        |bits| f64::from_bits(bits ^ ((!bits as i64 >> 63) as u64 | SIGN_64));
}

/// A key in descending order: the greatest key comes first.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Descending<T>(pub T);

impl<T: PlainKey> PlainKey for Descending<T> {
    type Bits = T::Bits;
    const NATIVE: Option<Sign> = None;

    #[inline(always)]
    fn bits(self) -> T::Bits {
        !self.0.bits()
    }

    #[inline(always)]
    fn from_bits(bits: T::Bits) -> Descending<T> {
        Descending(T::from_bits(!bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn floating_point_keys_have_the_total_order() {
        for one in SPECIAL {
            for other in SPECIAL {
                assert_eq!(one.order(other), one.total_cmp(&other), "{one} {other}");
                let (one, other) = (one as f32, other as f32);
                assert_eq!(one.order(other), one.total_cmp(&other), "{one} {other}");
            }
        }
    }

    fn round_trips<T: PlainKey>(raw: T::Bits) -> bool {
        let key: T = bytemuck::cast(raw);
        let back: T::Bits = bytemuck::cast(T::from_bits(key.bits()));
        let descending = Descending(key);
        let back_descending: T::Bits =
            bytemuck::cast(Descending::<T>::from_bits(descending.bits()));
        back == raw && back_descending == raw && (!T::IN_ORDER || key.bits() == raw)
    }

    proptest! {
        #[test]
        fn keys_round_trip_through_their_words(raw: u64) {
            prop_assert!(round_trips::<u64>(raw) && round_trips::<i64>(raw) && round_trips::<f64>(raw));
            let raw = raw as u32;
            prop_assert!(round_trips::<u32>(raw) && round_trips::<i32>(raw) && round_trips::<f32>(raw));
            let raw = raw as u16;
            prop_assert!(round_trips::<u16>(raw) && round_trips::<i16>(raw));
            let raw = raw as u8;
            prop_assert!(round_trips::<u8>(raw) && round_trips::<i8>(raw));
        }

        #[test]
        fn keys_have_the_order_of_their_type(a: u64, b: u64) {
            prop_assert_eq!(a.order(b), a.cmp(&b));
            prop_assert_eq!((a as i64).order(b as i64), (a as i64).cmp(&(b as i64)));
            prop_assert_eq!((a as i32).order(b as i32), (a as i32).cmp(&(b as i32)));
            prop_assert_eq!((a as u32).order(b as u32), (a as u32).cmp(&(b as u32)));
            prop_assert_eq!((a as i16).order(b as i16), (a as i16).cmp(&(b as i16)));
            prop_assert_eq!((a as i8).order(b as i8), (a as i8).cmp(&(b as i8)));
            prop_assert_eq!(Descending(a).order(Descending(b)), b.cmp(&a));
            let (c, d) = (f64::from_bits(a), f64::from_bits(b));
            prop_assert_eq!(c.order(d), c.total_cmp(&d));
            let (c, d) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            prop_assert_eq!(c.order(d), c.total_cmp(&d));
        }
    }
}

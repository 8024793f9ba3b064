//! Prefixes: the leading bytes of the keys of a record, as one number of 64 bits.
//!
//! Records with different prefixes have the order of their prefixes. The prefix of a single key is computed without a
//! branch. The prefix of several keys is composed of as many keys as fit, the first one at the top; the last of them
//! may be cut. This module must never read beyond one record.

use crate::record::{KeyKind, KeyPart};

/// The number of bytes that a prefix is made of.
pub const PREFIX_BYTES: usize = 8;
const SIGN: u64 = 1 << 63;

/// Reads the leading bytes of a key: reads eight bytes of the record, shifts them so that the key starts at the top
/// bit, clears bytes that do not belong to the key, and flips bits so that the numbers have the order of the keys.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    offset: usize,
    big_endian: bool,
    shift: u32,
    mask: u64,
    /// The bits that are flipped if the top bit is set.
    flip_negative: u64,
    /// The bits that are always flipped.
    flip: u64,
}

impl Reader {
    /// Returns a reader of a key in records of `record_bytes` bytes.
    pub fn new(record_bytes: usize, key: &KeyPart) -> Reader {
        let end = key.offset + key.bytes;
        let is_number = key.kind.natural_bytes().is_some();
        let big_endian = cfg!(target_endian = "big") || !is_number;
        // If the key is at one end of the record, the eight bytes are, too: the merges are compiled for these offsets.
        let last = record_bytes.saturating_sub(PREFIX_BYTES);
        let offset = match end {
            ..=PREFIX_BYTES => 0,
            _ => key.offset.min(last),
        };
        let bits = key.bytes.min(PREFIX_BYTES) as u32 * u8::BITS;
        let skipped = (key.offset - offset) as u32 * u8::BITS;
        let shift = if big_endian {
            skipped
        } else {
            let unused = u64::BITS - bits;
            unused.saturating_sub(skipped).min(u64::BITS - 1)
        };
        let mask = u64::MAX.checked_shl(u64::BITS - bits).unwrap_or(0);
        let (flip_negative, flip) = match key.kind {
            KeyKind::I8 | KeyKind::I16 | KeyKind::I32 | KeyKind::I64 => (0, SIGN),
            KeyKind::F32 | KeyKind::F64 => (mask ^ SIGN, SIGN),
            _ => (0, 0),
        };
        Reader {
            offset,
            big_endian,
            shift,
            mask,
            flip_negative,
            flip: if key.descending { flip ^ mask } else { flip },
        }
    }

    /// Returns the offset in a record of the eight bytes that are read.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the bits that are flipped in these eight bytes, read as a number in the processor's byte order, if
    /// flipping them is all that makes the result.
    pub fn only_flip(&self) -> Option<u64> {
        let is_native = self.big_endian == cfg!(target_endian = "big") && self.shift == 0;
        (is_native && self.mask == u64::MAX && self.flip_negative == 0).then_some(self.flip)
    }

    /// Returns the leading bytes of the key of a record, as a number in the order of the keys.
    #[inline(always)]
    pub fn of(&self, record: &[u8]) -> u64 {
        self.of_bytes(self.bytes(record))
    }

    /// Returns the number for a record that has these bytes at [`Reader::offset`].
    #[inline(always)]
    pub fn of_bytes(&self, bytes: [u8; PREFIX_BYTES]) -> u64 {
        self.ordered(self.key(bytes))
    }

    #[inline(always)]
    fn bytes(&self, record: &[u8]) -> [u8; PREFIX_BYTES] {
        let mut bytes = [0; PREFIX_BYTES];
        match record.len() {
            // The eight bytes are within the record.
            PREFIX_BYTES.. => bytes.copy_from_slice(&record[self.offset..][..PREFIX_BYTES]),
            short => bytes[..short].copy_from_slice(record),
        }
        bytes
    }

    /// Moves the key to the top, and clears the other bytes.
    #[inline(always)]
    fn key(&self, bytes: [u8; PREFIX_BYTES]) -> u64 {
        let raw = if self.big_endian {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        };
        raw << self.shift & self.mask
    }

    /// Flips bits.
    #[inline(always)]
    fn ordered(&self, key: u64) -> u64 {
        let negative = (key as i64 >> (u64::BITS - 1)) as u64;
        key ^ (negative & self.flip_negative) ^ self.flip
    }
}

/// The units of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Of 8 bits.
    Byte,
    /// Of 16 bits.
    Half,
    /// Of 32 bits.
    Word,
}

impl Unit {
    /// Returns the units of a kind of text, and None for other kinds.
    pub fn of(kind: KeyKind) -> Option<Unit> {
        match kind {
            KeyKind::Text => Some(Unit::Byte),
            KeyKind::Text16 => Some(Unit::Half),
            KeyKind::Text32 => Some(Unit::Word),
            _ => None,
        }
    }

    /// Clears the units behind the first 0 in eight bytes of a text, of which the first byte is at the top. Returns the
    /// units as numbers, the first one at the top, so that the results have the order of the texts.
    #[inline]
    pub fn terminated(self, text: u64) -> u64 {
        // All bits but the top one of each unit. A carry into the top bit shows that one of them is set.
        let low = match self {
            Unit::Byte => 0x7f7f_7f7f_7f7f_7f7f,
            Unit::Half => 0x7fff_7fff_7fff_7fff,
            Unit::Word => 0x7fff_ffff_7fff_ffff,
        };
        let zeros = !(((text & low) + low) | text | low);
        let behind = u64::MAX.checked_shr(zeros.leading_zeros()).unwrap_or(0);
        self.in_order(text & !behind)
    }

    /// Returns whether the result of [`Unit::terminated`] contains the end of the text.
    #[inline]
    pub fn is_ended(self, terminated: u64) -> bool {
        match self {
            Unit::Byte => terminated as u8 == 0,
            Unit::Half => terminated as u16 == 0,
            Unit::Word => terminated as u32 == 0,
        }
    }

    /// Turns the bytes of each unit from native byte order into a number.
    #[inline]
    fn in_order(self, text: u64) -> u64 {
        const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
        match self {
            _ if cfg!(target_endian = "big") => text,
            Unit::Byte => text,
            Unit::Half => (text & EVEN) << u8::BITS | text >> u8::BITS & EVEN,
            Unit::Word => text.swap_bytes().rotate_left(u32::BITS),
        }
    }
}

/// One of the keys that a prefix is composed of.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    reader: Reader,
    unit: Option<Unit>,
    /// The number of bits of the keys before this one.
    above: u32,
}

impl Component {
    /// Returns a component for a key in records of `record_bytes` bytes, below `above` bits of other keys.
    pub fn new(record_bytes: usize, key: &KeyPart, above: u32) -> Component {
        Component {
            reader: Reader::new(record_bytes, key),
            unit: Unit::of(key.kind),
            above,
        }
    }

    /// Returns the reader if its result is the prefix.
    pub fn only_reader(&self) -> Option<Reader> {
        (self.unit.is_none() && self.above == 0).then_some(self.reader)
    }

    #[inline]
    fn of(&self, record: &[u8]) -> u64 {
        let key = self.reader.key(self.reader.bytes(record));
        let key = match self.unit {
            Some(unit) => unit.terminated(key),
            None => key,
        };
        self.reader.ordered(key) >> self.above
    }
}

/// How the prefixes of records are computed.
#[derive(Clone, Debug)]
pub enum Prefixes {
    /// By a reader of the key.
    Single(Reader),
    /// They are composed of several keys, or made of a text.
    Composed(Box<[Component]>),
}

/// Computes the prefixes of records. Loops over records are compiled for each implementation, because a branch for each
/// record costs several percent of a sort.
pub trait Prefix: Copy + Send + Sync {
    /// Returns the prefix of a record.
    fn prefix(self, record: &[u8]) -> u64;
}

impl Prefix for Reader {
    #[inline(always)]
    fn prefix(self, record: &[u8]) -> u64 {
        self.of(record)
    }
}

/// Computes prefixes that are composed of several keys, or made of a text.
#[derive(Clone, Copy, Debug)]
pub struct Composed<'a>(pub &'a [Component]);

impl Prefix for Composed<'_> {
    #[inline]
    fn prefix(self, record: &[u8]) -> u64 {
        let keys = self.0.iter().map(|component| component.of(record));
        keys.fold(0, |prefix, key| prefix | key)
    }
}

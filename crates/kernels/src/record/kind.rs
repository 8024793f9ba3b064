//! The kinds of keys, and the parts of a list of keys. This module must never read a record.

/// The kinds of keys. The numbers are those of `ftsort_key` in the C interface.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Unsigned bytes up to the first 0, compared as by `strncmp`. Bytes behind the first 0 have no effect.
    Text = 13,
    /// Unsigned numbers of 16 bits in native byte order, such as UTF-16, up to the first 0.
    Text16 = 14,
    /// Unsigned numbers of 32 bits in native byte order, such as UTF-32, up to the first 0.
    Text32 = 15,
    /// Several keys: among records with an equal first key the second one decides, and so on.
    List = 16,
}

/// Evaluates an expression with a type that stands for the number type of a kind, or another expression for a kind that is no
/// number: `with_number!(kind, T => size_of::<T>(), _ => 0)`.
#[macro_export]
macro_rules! with_number {
    ($kind:expr, $number:ident => $of_number:expr, _ => $other:expr) => {
        $crate::with_number!(@ $kind, $number, $of_number, $other;
            I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, F32 f32, F64 f64)
    };
    (@ $kind:expr, $number:ident, $of_number:expr, $other:expr; $($name:ident $type:ty),*) => {
        match $kind {
            $($crate::record::KeyKind::$name => {
                type $number = $type;
                $of_number
            })*
            _ => $other,
        }
    };
}

impl KeyKind {
    /// All kinds.
    pub const ALL: [KeyKind; 16] = [
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
        KeyKind::Text,
        KeyKind::Text16,
        KeyKind::Text32,
        KeyKind::List,
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
            KeyKind::Bytes
            | KeyKind::Compare
            | KeyKind::Text
            | KeyKind::Text16
            | KeyKind::Text32
            | KeyKind::List => None,
        }
    }

    /// Returns the size in bytes of the units of a text, and None for other kinds.
    pub fn unit_bytes(self) -> Option<usize> {
        match self {
            KeyKind::Text => Some(1),
            KeyKind::Text16 => Some(2),
            KeyKind::Text32 => Some(4),
            _ => None,
        }
    }
}

/// One of several keys as a caller describes it. [`super::Layout::new`] checks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartFields {
    /// The offset of the key in a record, in bytes.
    pub offset: usize,
    /// The size of the key in bytes. 0: the size of the number.
    pub bytes: usize,
    /// The number of a [`KeyKind`], but not of [`KeyKind::Compare`] and [`KeyKind::List`].
    pub key: i32,
    /// Whether the greatest key comes first.
    pub descending: bool,
}

/// One of several keys, within its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// The offset of the key in a record, in bytes.
    pub offset: usize,
    /// The size of the key in bytes.
    pub bytes: usize,
    /// The kind of key, which is neither [`KeyKind::Compare`] nor [`KeyKind::List`].
    pub kind: KeyKind,
    /// Whether the greatest key comes first.
    pub descending: bool,
}

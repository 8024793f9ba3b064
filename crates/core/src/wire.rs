//! Fields of messages and records, as bytes: the one place that fixes byte order and checks lengths.
//!
//! Integers and floating-point numbers are little-endian. A *varint* takes seven bits of a number per
//! byte, the lowest bits first; the eighth bit says that another byte follows. A [`Reader`] gets bytes
//! that another rank sent, or that a file held, so a missing or malformed field is None.
//!
//! Must never: panic on any input, or allocate more memory than the input has bytes for.

/// The greatest size of a varint of 64 bits, in bytes.
pub const VARINT_BYTES: usize = 10;
/// As [`VARINT_BYTES`], of 32 bits.
pub const VARINT_U32_BYTES: usize = 5;

/// Appends fields to a buffer. The calls can be chained.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Returns an empty writer.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Returns an empty writer with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Writer {
        Writer {
            bytes: Vec::with_capacity(bytes),
        }
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Writer {
        self.bytes.push(value);
        self
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends four bytes.
    pub fn f32(&mut self, value: f32) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends eight bytes.
    pub fn f64(&mut self, value: f64) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends one to ten bytes, fewer for smaller numbers.
    pub fn varint(&mut self, value: impl Into<u64>) -> &mut Writer {
        let mut value = value.into();
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8)
    }

    /// Appends these bytes as they are, without their number.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Returns the number of bytes written.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes, and leaves the writer empty.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Returns the bytes followed by their checksum of four bytes, for [`Reader::checked`]. Leaves the
    /// writer empty.
    pub fn finish_checked(&mut self) -> Vec<u8> {
        let sum = checksum(&self.bytes);
        self.u32(sum).finish()
    }
}

/// Takes fields off the front of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader at the start of these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Returns a reader of the bytes before the checksum that [`Writer::finish_checked`] appended. None
    /// if the checksum is missing or does not match.
    pub fn checked(bytes: &'a [u8]) -> Option<Reader<'a>> {
        let (bytes, sum) = bytes.split_last_chunk()?;
        (checksum(bytes) == u32::from_le_bytes(*sum)).then_some(Reader { rest: bytes })
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*chunk)
    }

    /// Takes one byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.chunk().map(u8::from_le_bytes)
    }

    /// Takes four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    /// Takes eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    /// Takes four bytes.
    pub fn f32(&mut self) -> Option<f32> {
        self.chunk().map(f32::from_le_bytes)
    }

    /// Takes eight bytes.
    pub fn f64(&mut self) -> Option<f64> {
        self.chunk().map(f64::from_le_bytes)
    }

    /// Takes a varint. None if it does not fit 64 bits, or has more bytes than its number needs.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return None;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return (byte > 0 || shift == 0).then_some(value);
            }
        }
        None
    }

    /// Takes a varint. None if it does not fit 32 bits.
    pub fn varint_u32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    /// Takes `count` bytes as they are.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    /// Takes `count` fields or groups of fields, each with `read`, which must take at least one byte.
    pub fn repeat<T>(
        &mut self,
        count: usize,
        mut read: impl FnMut(&mut Reader<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let possible = count <= self.rest.len();
        possible.then(|| (0..count).map(|_| read(self)).collect())?
    }

    /// Takes fields or groups of fields, each with `read`, until no bytes are left.
    pub fn repeat_to_end<T>(
        &mut self,
        mut read: impl FnMut(&mut Reader<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut values = Vec::new();
        while !self.is_empty() {
            let before = self.rest.len();
            values.push(read(self)?);
            if self.rest.len() == before {
                return None;
            }
        }
        Some(values)
    }

    /// Returns whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns `value` if no bytes are left. The last call of a function that decodes a whole message.
    pub fn end<T>(&self, value: T) -> Option<T> {
        self.is_empty().then_some(value)
    }
}

/// Returns the FNV-1a checksum, which detects that a message was changed on its way.
fn checksum(bytes: &[u8]) -> u32 {
    let fold = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, fold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_survive_a_round_trip(numbers: Vec<u64>) {
            let mut writer = Writer::new();
            numbers.iter().for_each(|number| {
                writer.varint(*number);
            });
            let bytes = writer.finish_checked();
            let mut reader = Reader::checked(&bytes).expect("the checksum matches");
            let read = reader.repeat(numbers.len(), Reader::varint);
            prop_assert_eq!(read, Some(numbers));
            prop_assert_eq!(reader.varint(), None);
        }

        #[test]
        fn fixed_fields_survive_a_round_trip(
            fields: (u8, u32, u64, f32, f64),
            tail: Vec<u8>,
            cut: prop::sample::Index,
        ) {
            let mut writer = Writer::with_capacity(25);
            writer.u8(fields.0).u32(fields.1).u64(fields.2).f32(fields.3).f64(fields.4);
            prop_assert_eq!(writer.len(), 25);
            let bytes = writer.bytes(&tail).finish();
            let read = |bytes: &[u8]| {
                let mut reader = Reader::new(bytes);
                let (a, b, c) = (reader.u8()?, reader.u32()?, reader.u64()?);
                let (d, e) = (reader.f32()?, reader.f64()?);
                Some(((a, b, c, d.to_bits(), e.to_bits()), reader.rest().to_vec()))
            };
            let (a, b, c, d, e) = fields;
            prop_assert_eq!(read(&bytes), Some(((a, b, c, d.to_bits(), e.to_bits()), tail)));
            prop_assert_eq!(read(&bytes[..cut.index(25)]), None);
        }

        #[test]
        fn repeated_fields_survive_a_round_trip(numbers: Vec<u32>, extra in 1_usize..4) {
            let mut writer = Writer::new();
            for number in &numbers {
                writer.u32(*number);
            }
            let bytes = writer.finish();
            let count = numbers.len();
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.repeat(count + 1, Reader::u32), None);
            let all = Reader::new(&bytes).repeat_to_end(Reader::u32);
            prop_assert_eq!(all.and_then(|all| Reader::new(&[]).end(all)), Some(numbers));
            let torn = writer.bytes(&bytes).bytes(&[0; 4][..extra]).finish();
            prop_assert_eq!(Reader::new(&torn).repeat_to_end(Reader::u32), None);
        }

        #[test]
        fn reading_any_bytes_ends(bytes: Vec<u8>, count: usize) {
            let mut reader = Reader::new(&bytes);
            while reader.varint().is_some() {}
            Reader::checked(&bytes);
            let read = Reader::new(&bytes).repeat(count, Reader::varint_u32);
            prop_assert!(read.is_none_or(|read| read.len() == count));
        }

        #[test]
        fn a_changed_byte_fails_the_checksum(mut bytes: Vec<u8>, at: prop::sample::Index, by in 1_u8..) {
            bytes = Writer::new().bytes(&bytes).finish_checked();
            let at = at.index(bytes.len());
            bytes[at] ^= by;
            prop_assert_eq!(Reader::checked(&bytes), None);
        }
    }

    #[test]
    fn a_varint_of_too_many_bytes_is_none() {
        assert_eq!(Reader::new(&[0]).varint(), Some(0));
        assert_eq!(Reader::new(&[0x80, 0]).varint(), None);
        assert_eq!(Reader::new(&[0x85, 0x80, 0]).varint(), None);
    }

    #[test]
    fn too_large_a_varint_is_none() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(Reader::new(&bytes).varint(), None);
        let bytes = [0xff, 0xff, 0xff, 0xff, 0x1f];
        assert_eq!(Reader::new(&bytes).varint_u32(), None);
        assert_eq!(Reader::new(&bytes).varint(), Some((1 << 33) - 1));
    }

    #[test]
    fn an_endless_repetition_is_none() {
        assert_eq!(Reader::new(&[1]).repeat_to_end(|_| Some(())), None);
        assert_eq!(Reader::new(&[1]).end(()), None);
    }
}

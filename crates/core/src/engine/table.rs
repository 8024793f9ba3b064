//! A key-value table in one control message: contributions by rank, or decisions by subcube.

use crate::wire::{Reader, VARINT_BYTES, VARINT_U32_BYTES, Writer};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result};

/// The most bytes before each entry's value: its key and the value's length.
pub const PER_ENTRY: usize = VARINT_U32_BYTES + VARINT_BYTES;

/// Encodes entries one after the other, each with the difference of its key to the one before (modulo 2^32) and its
/// length as varints. Keys in ascending order take the fewest bytes.
pub fn write<'w>(entries: impl Iterator<Item = (u32, &'w [u8])>) -> Vec<u8> {
    let mut table = Writer::new();
    let mut before = 0;
    for (number, words) in entries {
        table.varint(u32::wrapping_sub(number, before));
        table.varint(words.len() as u64).bytes(words);
        before = number;
    }
    table.finish()
}

/// Decodes a table that [`write()`] made.
pub fn read(table: &Slice) -> Result<Vec<(u32, Slice)>> {
    let mut fields = Reader::new(table);
    let mut before = 0_u32;
    let entries = fields.repeat_to_end(|fields| {
        before = before.wrapping_add(fields.varint_u32()?);
        let length = usize::try_from(fields.varint()?).ok()?;
        let start = table.len() - fields.rest().len();
        fields.bytes(length)?;
        Some((before, table.part(start..start + length)))
    });
    entries.ok_or_else(|| Error::internal("a table of control messages cannot be decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slice(bytes: &[u8]) -> Slice {
        Slice::copy_of(bytes).unwrap()
    }

    proptest! {
        #[test]
        fn reads_or_refuses_any_bytes(bytes in prop::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..60)) {
            if let Ok(entries) = read(&slice(&bytes)) {
                let entries = entries.iter().map(|(number, payload)| (*number, &payload[..]));
                prop_assert_eq!(write(entries), bytes);
            }
        }

        #[test]
        fn reads_written_tables_and_rejects_truncated_ones(
            entries in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 0..9)), 0..9),
            cut in 1_usize..8,
        ) {
            let table = write(entries.iter().map(|(number, payload)| (*number, &payload[..])));
            let back = read(&slice(&table)).unwrap();
            let back: Vec<(u32, Vec<u8>)> =
                back.into_iter().map(|(number, payload)| (number, payload.to_vec())).collect();
            prop_assert_eq!(&back, &entries);
            let but_last = entries.iter().take(entries.len().saturating_sub(1));
            let but_last = write(but_last.map(|(number, payload)| (*number, &payload[..])));
            let last = table.len() - but_last.len();
            prop_assert!(last <= PER_ENTRY + entries.last().map_or(0, |(_, payload)| payload.len()));
            if cut < last {
                prop_assert!(read(&slice(&table[..table.len() - cut])).is_err());
            }
        }
    }
}

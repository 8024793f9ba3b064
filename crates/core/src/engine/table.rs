//! A key-value table in one control message: contributions by rank, or decisions by subcube.

use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};

/// The bytes before each entry's value: its key and the value's length.
pub const PER_ENTRY: usize = 8;

/// Encodes entries one after the other, each with its key (u32) and length (u32), little-endian.
pub fn write<'w>(entries: impl Iterator<Item = (u32, &'w [u8])>) -> Vec<u8> {
    let mut table = Vec::new();
    for (number, words) in entries {
        table.extend(number.to_le_bytes());
        table.extend((words.len() as u32).to_le_bytes());
        table.extend_from_slice(words);
    }
    table
}

/// Decodes a table that [`write()`] made.
pub fn read(table: &Slice) -> Result<Vec<(u32, Slice)>> {
    let broken = || {
        Error::new(
            Status::Internal,
            "a table of control messages cannot be decoded",
        )
    };
    let number = |at: usize| -> Option<u32> {
        let bytes = table.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let mut entries = Vec::new();
    let mut at = 0;
    while at < table.len() {
        let (Some(entry), Some(length)) = (number(at), number(at + 4)) else {
            return Err(broken());
        };
        let start = at + PER_ENTRY;
        at = start + length as usize;
        if at > table.len() {
            return Err(broken());
        }
        entries.push((entry, table.part(start..at)));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::buffer::Buffer;
    use proptest::prelude::*;

    fn slice(bytes: &[u8]) -> Slice {
        Buffer::copy_of(bytes).unwrap().into()
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
            let last = entries.last().map_or(0, |(_, payload)| PER_ENTRY + payload.len());
            if cut < last {
                prop_assert!(read(&slice(&table[..table.len() - cut])).is_err());
            }
        }
    }
}

//! The footer of a run: the fixed fields at the end of its file.
//!
//! In a scratch directory that several ranks share, each rank finds the runs of all of them. Each rank reads the
//! footers of all runs, and the rank that uses a run reads its index too. So the fields have a checksum of their own.
//! They determine the size of the file and that of the index.

use crate::wire::{Reader, Writer};

/// The first bytes of a footer; the last one is the version of the format.
const MAGIC: [u8; 8] = *b"ftsrun\0\x02";

/// The size of the fields with their checksum.
const FIELD_BYTES: usize = 72;

/// The size of a footer: the fields with their checksum, and the checksum of the index and the fields.
pub const FOOTER_BYTES: usize = FIELD_BYTES + 4;

/// The fixed fields of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFooter {
    /// The number of the job that made the run.
    pub job: u64,
    /// The chunk of the source.
    pub chunk: u32,
    /// The number of records of the chunk.
    pub records: u64,
    /// The records before this position are not stored: they were in the output when the run was made.
    pub first: u64,
    /// The number of records of all runs that were in the output then.
    pub done: u64,
    /// The number of records of a block.
    pub block: u64,
    /// The checksum of the whole run, also of the records that are not stored.
    pub digest: u64,
    /// The size of a record in bytes.
    pub record_bytes: usize,
}

impl RunFooter {
    /// Returns the fields and their checksum as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(FIELD_BYTES);
        out.bytes(&MAGIC)
            .u64(self.job)
            .u32(self.chunk)
            .u64(self.records)
            .u64(self.first)
            .u64(self.done)
            .u64(self.block)
            .u64(self.digest)
            .u64(self.record_bytes as u64);
        out.finish_checked()
    }

    /// Decodes the last bytes of a file of `size` bytes. None if the fields are damaged, or are those of a file of
    /// another size.
    pub fn decode(end: &[u8; FOOTER_BYTES], size: u64) -> Option<RunFooter> {
        let mut fields = Reader::checked(&end[..FIELD_BYTES])?;
        if fields.bytes(MAGIC.len())? != MAGIC {
            return None;
        }
        let footer = RunFooter {
            job: fields.u64()?,
            chunk: fields.u32()?,
            records: fields.u64()?,
            first: fields.u64()?,
            done: fields.u64()?,
            block: fields.u64()?,
            digest: fields.u64()?,
            record_bytes: usize::try_from(fields.u64()?).ok()?,
        };
        let index_bytes = footer.index_bytes()? as u64;
        let whole = footer.stored_bytes()?.checked_add(index_bytes)?;
        (footer.record_bytes > 0 && whole == size).then_some(footer)
    }

    /// Returns the number of blocks. None if the fields are not those of a run.
    pub fn blocks(&self) -> Option<usize> {
        let stored = self.records.checked_sub(self.first)?;
        let whole = stored.checked_div(self.block)?;
        let blocks = whole + u64::from(!stored.is_multiple_of(self.block));
        usize::try_from(blocks).ok()
    }

    /// Returns the size of the stored records in bytes, which is the position of the index in the file. None if the
    /// fields are not those of a run.
    pub fn stored_bytes(&self) -> Option<u64> {
        let stored = self.records.checked_sub(self.first)?;
        stored.checked_mul(self.record_bytes as u64)
    }

    /// Returns the size of the index and the footer in bytes. None if the fields are not those of a run.
    pub fn index_bytes(&self) -> Option<usize> {
        let of_block = self.record_bytes.checked_add(8)?;
        let index = self.blocks()?.checked_mul(of_block)?;
        index.checked_add(FOOTER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FOOTER: RunFooter = RunFooter {
        job: 5,
        chunk: 1,
        records: 10,
        first: 3,
        done: 9,
        block: 4,
        digest: 99,
        record_bytes: 3,
    };

    /// The end of a file with this footer, without the checksum of the index.
    fn end_of(footer: &RunFooter) -> [u8; FOOTER_BYTES] {
        let mut end = footer.encode();
        end.resize(FOOTER_BYTES, 0);
        end.try_into().expect("a footer")
    }

    #[test]
    fn fields_determine_the_size_of_the_file() {
        // Seven records, and two blocks.
        let size = 7 * 3 + 2 * 11 + FOOTER_BYTES as u64;
        let end = end_of(&FOOTER);
        assert_eq!(RunFooter::decode(&end, size), Some(FOOTER));
        for other in [0, size - 1, size + 1, 1 << 50, u64::MAX] {
            assert_eq!(RunFooter::decode(&end, other), None, "{other}");
        }
    }

    proptest! {
        /// A rank that reported a damaged digest would make the others conclude that the source has changed.
        #[test]
        fn damaged_fields_are_refused(at in 0..FIELD_BYTES, bit in 0..8) {
            let size = 7 * 3 + 2 * 11 + FOOTER_BYTES as u64;
            let mut end = end_of(&FOOTER);
            end[at] ^= 1_u8 << bit;
            prop_assert_eq!(RunFooter::decode(&end, size), None);
        }

        /// The fields of a file may have any values with a right checksum.
        #[test]
        fn an_index_of_more_bytes_than_the_file_has_is_refused(
            fields: [u64; 5],
            shifts in prop::array::uniform5(0..64_u32),
            size: u64,
        ) {
            let field = |index: usize| fields[index] >> shifts[index];
            let footer = RunFooter {
                records: field(0),
                first: field(1),
                block: field(2),
                record_bytes: field(3) as usize,
                ..FOOTER
            };
            let end = end_of(&footer);
            let right = footer.stored_bytes().zip(footer.index_bytes());
            let right = right.and_then(|(stored, index)| stored.checked_add(index as u64));
            for size in [size, field(4), 1 << 40].into_iter().chain(right) {
                let decoded = RunFooter::decode(&end, size);
                prop_assert!(decoded.is_none() || decoded == Some(footer) && Some(size) == right);
                let index_bytes = decoded.and_then(|footer| footer.index_bytes());
                prop_assert!(index_bytes.is_none_or(|bytes| bytes as u64 <= size));
            }
        }
    }

    #[test]
    fn fields_that_are_not_those_of_a_run_are_refused() {
        let wrong: [fn(&mut RunFooter); 5] = [
            |footer| footer.block = 0,
            |footer| footer.record_bytes = 0,
            |footer| footer.first = 11,
            |footer| footer.record_bytes = usize::MAX,
            |footer| (footer.records, footer.block) = (u64::MAX, 1),
        ];
        for change in wrong {
            let mut footer = FOOTER;
            change(&mut footer);
            let end = end_of(&footer);
            for size in [0, 7 * 3 + 2 * 11 + FOOTER_BYTES as u64, u64::MAX] {
                assert_eq!(RunFooter::decode(&end, size), None, "{footer:?}");
            }
        }
    }
}

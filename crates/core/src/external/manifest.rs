//! The committed state of an external sort, from which another job can continue.

use super::geometry::Geometry;
use super::parts::OutputParts;
use crate::sort::pivot::Cut;
use crate::wire::{Reader, Writer};
use ftsort_kernels::record::MOST_RECORD_BYTES;

/// The first bytes of a manifest; the last one is the version of the format.
const MAGIC: [u8; 8] = *b"ftsext\0\x03";

/// The size of all fields without the cut, and of the checksum.
const FIELD_BYTES: usize = 125;

/// The size of the first fields, up to the size of a record.
pub const HEAD_BYTES: usize = 40;

/// The identity of the data of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The fingerprint of the records' layout.
    pub layout: u64,
    /// The size of a record in bytes.
    pub record_bytes: usize,
    /// The size of the source in bytes.
    pub bytes: u64,
    /// A number that changes if the source does.
    pub source: u64,
    /// The position of the first record in each file of the output.
    pub output_offset: u64,
    /// The number of numbered files of the output; 0: one file without a number.
    pub output_parts: u64,
}

/// The committed state of an external sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The number of the job, which its runs have. A job that resumes another one has its number.
    pub job: u64,
    /// The number of the call that wrote the manifest.
    pub writer: u64,
    /// The data.
    pub identity: Identity,
    /// The chunks of the source.
    pub geometry: Geometry,
    /// The number of records of a block of a run.
    pub block: u64,
    /// The number of records in the output.
    pub done: u64,
    /// All records before it are in the output.
    pub cut: Cut,
    /// The output is complete and has its name.
    pub is_finished: bool,
}

impl Manifest {
    /// Whether all records are in the output, which need not have its name yet.
    pub fn is_written(&self) -> bool {
        self.cut == Cut::AllLower
    }

    /// The content of a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        let identity = &self.identity;
        out.bytes(&MAGIC)
            .u64(self.job)
            .u64(self.writer)
            .u64(identity.layout)
            .u64(identity.record_bytes as u64)
            .u64(identity.bytes)
            .u64(identity.source)
            .u64(identity.output_offset)
            .u64(identity.output_parts);
        self.geometry.encode(&mut out);
        out.u64(self.block)
            .u64(self.done)
            .u8(self.is_finished.into());
        let mut cut = Vec::new();
        self.cut.encode(identity.record_bytes, &mut cut);
        out.bytes(&cut);
        out.finish_checked()
    }

    /// Returns the size in bytes of the manifest whose first [`HEAD_BYTES`] bytes are `head`. None if these are not
    /// those of a manifest of this version.
    pub fn encoded_bytes(head: &[u8]) -> Option<u64> {
        let mut fields = Reader::new(head);
        if fields.bytes(MAGIC.len())? != MAGIC {
            return None;
        }
        let (_job, _writer, _layout) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let record_bytes = usize::try_from(fields.u64()?).ok()?;
        let is_possible = (1..=MOST_RECORD_BYTES).contains(&record_bytes);
        is_possible.then(|| (FIELD_BYTES + Cut::encoded_bytes(record_bytes)) as u64)
    }

    /// Decodes the result of [`Manifest::encode`]; None if it is damaged or has another version.
    pub fn decode(bytes: &[u8]) -> Option<Manifest> {
        let mut fields = Reader::checked(bytes)?;
        if fields.bytes(MAGIC.len())? != MAGIC {
            return None;
        }
        let (job, writer) = (fields.u64()?, fields.u64()?);
        let identity = Identity {
            layout: fields.u64()?,
            record_bytes: usize::try_from(fields.u64()?).ok()?,
            bytes: fields.u64()?,
            source: fields.u64()?,
            output_offset: fields.u64()?,
            output_parts: fields.u64()?,
        };
        let geometry = Geometry::decode(&mut fields)?;
        let (block, done) = (fields.u64()?, fields.u64()?);
        let is_finished = fields.u8()? != 0;
        let cut = Cut::decode(fields.rest(), identity.record_bytes).ok()?;
        let is_whole = fields.rest().len() == Cut::encoded_bytes(identity.record_bytes);
        let record_bytes = identity.record_bytes as u64;
        let is_valid = is_whole
            && identity.has_places()
            && block > 0
            && done <= geometry.records
            && geometry.records.checked_mul(record_bytes) == Some(identity.bytes);
        is_valid.then_some(Manifest {
            job,
            writer,
            identity,
            geometry,
            block,
            done,
            cut,
            is_finished,
        })
    }
}

impl Identity {
    /// Whether the output has so many files, and each ends before 2^64 bytes.
    pub fn has_places(&self) -> bool {
        let end = self.output_offset.checked_add(self.bytes);
        end.is_some() && self.record_bytes > 0 && self.output_parts <= OutputParts::MOST
    }

    /// The first property in which another sort differs, in words; None if there is none.
    pub fn difference(&self, other: &Identity) -> Option<String> {
        if self.record_bytes != other.record_bytes {
            return Some(format!(
                "records of {} bytes instead of {}",
                other.record_bytes, self.record_bytes
            ));
        }
        if self.bytes != other.bytes {
            return Some(format!(
                "a source of {} bytes instead of {}",
                other.bytes, self.bytes
            ));
        }
        if self.output_offset != other.output_offset {
            return Some(format!(
                "{} bytes before the first record of the output instead of {}",
                other.output_offset, self.output_offset
            ));
        }
        if self.output_parts != other.output_parts {
            return Some(format!(
                "{} numbered files of the output instead of {}",
                other.output_parts, self.output_parts
            ));
        }
        if self.layout != other.layout {
            return Some("another key".into());
        }
        (self.source != other.source).then(|| "a source that has changed since".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sort::pivot::CutPoint;
    use proptest::prelude::*;

    fn manifest(records: u64, done: u64, cut: Cut) -> Manifest {
        Manifest {
            job: 5,
            writer: 8,
            identity: Identity {
                layout: 9,
                record_bytes: 3,
                bytes: 3 * records,
                source: 77,
                output_offset: 6,
                output_parts: 2,
            },
            geometry: Geometry::new(records, 3, 64, 4),
            block: 8,
            done: done % (records + 1),
            cut,
            is_finished: done.is_multiple_of(2),
        }
    }

    proptest! {
        #[test]
        fn decodes_as_it_was_and_detects_damage(
            records in 0..10_000_u64,
            done: u64,
            key: [u8; 3],
            position: u64,
            at: usize,
        ) {
            let point = CutPoint { record: key.to_vec(), origin: 3, position };
            for cut in [Cut::AllUpper, Cut::AllLower, Cut::At(point)] {
                let manifest = manifest(records, done, cut);
                let mut bytes = manifest.encode();
                let size = Manifest::encoded_bytes(&bytes[..HEAD_BYTES]);
                prop_assert_eq!(size, Some(bytes.len() as u64));
                prop_assert_eq!(Manifest::encoded_bytes(&bytes[..at % HEAD_BYTES]), None);
                prop_assert_eq!(Manifest::decode(&bytes), Some(manifest));
                prop_assert_eq!(Manifest::decode(&bytes[..at % bytes.len()]), None);
                let at = at % bytes.len();
                bytes[at] ^= 1;
                prop_assert_eq!(Manifest::decode(&bytes), None);
            }
        }
    }

    /// Files that other programs wrote may have a right checksum.
    #[test]
    fn refuses_outputs_without_places() {
        let wrong: [fn(&mut Identity); 3] = [
            |identity| identity.output_offset = u64::MAX,
            |identity| identity.output_parts = OutputParts::MOST + 1,
            |identity| (identity.record_bytes, identity.bytes) = (0, 0),
        ];
        for change in wrong {
            let mut manifest = manifest(10, 0, Cut::AllUpper);
            change(&mut manifest.identity);
            assert_eq!(Manifest::decode(&manifest.encode()), None);
        }
    }

    /// A size that no record has would allow a manifest of any size.
    #[test]
    fn the_size_of_a_manifest_is_that_of_its_record() {
        let size_with = |record_bytes: usize| {
            let mut manifest = manifest(10, 0, Cut::AllUpper);
            manifest.identity.record_bytes = record_bytes;
            let mut head = manifest.encode();
            head.truncate(HEAD_BYTES);
            Manifest::encoded_bytes(&head)
        };
        assert_eq!(size_with(1), Some(FIELD_BYTES as u64 + 14));
        let most = (FIELD_BYTES + 13 + MOST_RECORD_BYTES) as u64;
        assert_eq!(size_with(MOST_RECORD_BYTES), Some(most));
        for record_bytes in [0, MOST_RECORD_BYTES + 1] {
            assert_eq!(size_with(record_bytes), None);
        }
        assert_eq!(Manifest::encoded_bytes(&[0; HEAD_BYTES]), None);
    }

    #[test]
    fn names_the_difference_between_sorts() {
        let one = manifest(10, 0, Cut::AllUpper).identity;
        assert_eq!(one.difference(&one), None);
        let texts = [
            Identity {
                record_bytes: 4,
                ..one
            },
            Identity { bytes: 33, ..one },
            Identity {
                output_offset: 0,
                ..one
            },
            Identity {
                output_parts: 0,
                ..one
            },
            Identity { layout: 1, ..one },
            Identity { source: 1, ..one },
        ];
        let texts = texts.map(|other| one.difference(&other).unwrap());
        assert_eq!(
            texts,
            [
                "records of 4 bytes instead of 3",
                "a source of 33 bytes instead of 30",
                "0 bytes before the first record of the output instead of 6",
                "0 numbered files of the output instead of 2",
                "another key",
                "a source that has changed since",
            ]
        );
    }
}

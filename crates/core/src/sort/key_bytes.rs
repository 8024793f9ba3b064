//! Samples and cuts as messages that have the keys of records and not whole records.
//!
//! The bytes that no comparison reads are left out, and are zeroes after the way back. Numbers are varints, because most
//! of them are small.

use std::ops::Range;

use super::pivot::{ALL_LOWER, ALL_UPPER, AT, Cut, CutPoint, Sample, decode_samples, undecodable};
use crate::vcube::Node;
use crate::wire::{Reader, VARINT_BYTES, VARINT_U32_BYTES, Writer};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::memory;

/// The bytes of a record that comparisons read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBytes {
    record_bytes: usize,
    range: Range<usize>,
}

impl KeyBytes {
    /// The key bytes of a kernel's records.
    pub fn of(kernel: &dyn Kernel) -> KeyBytes {
        KeyBytes {
            record_bytes: kernel.record_bytes(),
            range: kernel.key_range(),
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns samples as a message.
    pub fn of_samples(&self, samples: &[Sample<'_>]) -> Vec<u8> {
        let mut message = Writer::new();
        for Sample { point, weight } in samples {
            self.write_point(point, &mut message);
            message.varint(*weight);
        }
        message.finish()
    }

    /// Returns proposals of samples with whole records, as [`encode_samples`](super::pivot::encode_samples) writes them.
    pub fn whole_samples(&self, packed: Vec<(Node, Slice)>) -> Result<Vec<(Node, Slice)>> {
        each(packed, |packed| {
            let mut whole = Vec::new();
            let samples = Reader::new(packed).repeat_to_end(|fields| {
                self.read_point(fields, &mut whole)?;
                whole.extend(fields.varint()?.to_le_bytes());
                Some(())
            });
            samples.map(|_| whole).ok_or_else(undecodable)
        })
    }

    /// Returns proposals of samples with whole records as messages.
    pub fn of_whole_samples(&self, whole: Vec<(Node, Slice)>) -> Result<Vec<(Node, Slice)>> {
        let pack = |whole: &[u8]| Ok(self.of_samples(&decode_samples(whole, self.record_bytes)?));
        each(whole, pack)
    }

    /// Returns cuts as a message.
    pub fn of_cuts<R: AsRef<[u8]>>(&self, cuts: &[Cut<R>]) -> Vec<u8> {
        let mut message = Writer::new();
        for cut in cuts {
            match cut {
                Cut::AllUpper => drop(message.u8(ALL_UPPER)),
                Cut::AllLower => drop(message.u8(ALL_LOWER)),
                Cut::At(point) => self.write_point(point, message.u8(AT)),
            }
        }
        message.finish()
    }

    /// Returns the cuts between `parts` parts.
    pub fn cuts_between(&self, packed: &[u8], parts: usize) -> Result<Vec<Cut>> {
        Cut::decode_between(&self.whole_cuts(packed)?, parts, self.record_bytes)
    }

    /// Returns cuts with whole records, as [`Cut::encode_all`] writes them.
    pub fn whole_cuts(&self, packed: &[u8]) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        let cuts = Reader::new(packed).repeat_to_end(|fields| {
            let end = whole.len() + Cut::encoded_bytes(self.record_bytes);
            let kind = fields.u8()?;
            whole.push(kind);
            if kind == AT {
                self.read_point(fields, &mut whole)?;
            }
            whole.resize(end, 0);
            Some(())
        });
        cuts.map(|_| whole).ok_or_else(undecodable)
    }

    /// The greatest size of a sample as a message, in bytes.
    pub fn sample_bytes(&self) -> usize {
        self.point_bytes() + VARINT_BYTES
    }

    /// The greatest size of a cut as a message, in bytes.
    pub fn cut_bytes(&self) -> usize {
        1 + self.point_bytes()
    }

    fn point_bytes(&self) -> usize {
        self.len() + VARINT_U32_BYTES + VARINT_BYTES
    }

    fn write_point<R: AsRef<[u8]>>(&self, point: &CutPoint<R>, message: &mut Writer) {
        message.bytes(&point.record.as_ref()[self.range.clone()]);
        message.varint(point.origin).varint(point.position);
    }

    /// Takes a point, and appends it as [`CutPoint::encode`] does.
    fn read_point(&self, fields: &mut Reader<'_>, whole: &mut Vec<u8>) -> Option<()> {
        let key = fields.bytes(self.len())?;
        let start = whole.len();
        whole.resize(start + self.record_bytes, 0);
        whole[start..][self.range.clone()].copy_from_slice(key);
        whole.extend(fields.varint_u32()?.to_le_bytes());
        whole.extend(fields.varint()?.to_le_bytes());
        Some(())
    }
}

/// Changes the samples of each proposal.
fn each(
    proposals: Vec<(Node, Slice)>,
    change: impl Fn(&[u8]) -> Result<Vec<u8>>,
) -> Result<Vec<(Node, Slice)>> {
    let changed = proposals.into_iter().map(|(node, samples)| {
        let changed = change(&samples)?;
        // These are control messages.
        let changed = memory::without_limit(|| Buffer::copy_of(&changed))?;
        Ok((node, changed.into()))
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key_bytes() -> impl Strategy<Value = KeyBytes> {
        (1_usize..40)
            .prop_flat_map(|size| (Just(size), 0..size))
            .prop_flat_map(|(size, start)| (Just(size), Just(start), start + 1..=size))
            .prop_map(|(record_bytes, start, end)| KeyBytes {
                record_bytes,
                range: start..end,
            })
    }

    proptest! {
        #[test]
        fn keys_places_and_weights_survive(
            key_bytes in key_bytes(),
            fields in prop::collection::vec((any::<u8>(), any::<u32>(), any::<u64>(), any::<u64>()), 0..9),
        ) {
            let records: Vec<Vec<u8>> =
                fields.iter().map(|(byte, ..)| vec![*byte; key_bytes.record_bytes]).collect();
            let point = |index: usize| {
                let (_, origin, position, _) = fields[index];
                CutPoint { record: &records[index][..], origin, position }
            };
            let samples: Vec<Sample<'_>> = (0..fields.len())
                .map(|index| Sample { point: point(index), weight: fields[index].3 })
                .collect();
            let packed = key_bytes.of_samples(&samples);
            prop_assert!(packed.len() <= samples.len() * key_bytes.sample_bytes());
            let proposal = vec![(Node(3), Buffer::copy_of(&packed).unwrap().into())];
            let whole = key_bytes.whole_samples(proposal).unwrap();
            let back = decode_samples(&whole[0].1, key_bytes.record_bytes).unwrap();
            prop_assert_eq!(back.len(), samples.len());
            for (sample, back) in samples.iter().zip(back) {
                let place = |sample: &Sample<'_>| (sample.point.origin, sample.point.position, sample.weight);
                prop_assert_eq!(place(sample), place(&back));
                let range = key_bytes.range.clone();
                prop_assert_eq!(&sample.point.record[range.clone()], &back.point.record[range]);
            }
            let again = key_bytes.of_whole_samples(whole.clone()).unwrap();
            prop_assert_eq!(&again[0].1[..], &packed[..]);
            let mut cuts: Vec<Cut> = (0..fields.len()).map(|index| Cut::At(point(index).to_owned())).collect();
            cuts.extend([Cut::AllLower, Cut::AllUpper]);
            let packed = key_bytes.of_cuts(&cuts);
            prop_assert!(packed.len() <= cuts.len() * key_bytes.cut_bytes());
            let back = key_bytes.cuts_between(&packed, cuts.len() + 1).unwrap();
            // The other bytes are zeroes, so that a second way back changes nothing.
            prop_assert_eq!(key_bytes.of_cuts(&back), packed);
        }

        #[test]
        fn any_bytes_are_samples_and_cuts_or_refused(
            key_bytes in key_bytes(),
            bytes in prop::collection::vec(prop_oneof![4 => 0..3_u8, 1 => any::<u8>()], 0..200),
            parts in 1_usize..60,
        ) {
            if let Ok(whole) = key_bytes.whole_cuts(&bytes)
                && let Ok(cuts) = Cut::decode_all(&whole, key_bytes.record_bytes)
            {
                prop_assert_eq!(key_bytes.of_cuts(&cuts), &bytes[..]);
                let between = key_bytes.cuts_between(&bytes, parts);
                prop_assert_eq!(between.is_ok(), parts == cuts.len() + 1);
            }
            let proposal = vec![(Node(3), Buffer::copy_of(&bytes).unwrap().into())];
            if let Ok(whole) = key_bytes.whole_samples(proposal) {
                let again = key_bytes.of_whole_samples(whole).unwrap();
                prop_assert_eq!(&again[0].1[..], &bytes[..]);
            }
        }
    }
}

//! Samples and cuts as messages that have the keys of records and not whole records.
//!
//! The bytes that no comparison reads are left out, and are zeroes after the way back. Numbers are varints, because most
//! of them are small.

use std::ops::Range;

use super::pivot::{ALL_LOWER, ALL_UPPER, AT, Cut, CutPoint, Sample, undecodable};
use super::proposed_samples::{decode_samples, sample_bytes};
use crate::engine::Proposals;
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

    /// Returns proposals of samples with whole records, as [`encode_samples`](super::proposed_samples::encode_samples)
    /// writes them.
    ///
    /// # Errors
    /// `Status::Memory`: whole records may take much more memory than their keys.
    pub fn whole_samples(&self, packed: &[(Node, Slice)]) -> Result<Proposals> {
        let point_bytes = CutPoint::encoded_bytes(self.record_bytes);
        let whole = packed.iter().map(|(node, packed)| {
            let skip = |fields: &mut Reader<'_>| self.skip_point(fields).and(fields.varint());
            let count = count_of(packed, skip)?;
            let mut whole = Buffer::zeroed(count * sample_bytes(self.record_bytes))?;
            let mut fields = Reader::new(packed);
            for sample in whole.chunks_exact_mut(sample_bytes(self.record_bytes)) {
                let (point, weight) = sample.split_at_mut(point_bytes);
                let read = self.read_point(&mut fields, point).and(fields.varint());
                weight.copy_from_slice(&read.ok_or_else(undecodable)?.to_le_bytes());
            }
            Ok((*node, whole.into()))
        });
        whole.collect()
    }

    /// Returns proposals of samples with whole records as messages.
    pub fn of_whole_samples(&self, whole: Proposals) -> Result<Proposals> {
        let packed = whole.into_iter().map(|(node, whole)| {
            let packed = self.of_samples(&decode_samples(&whole, self.record_bytes)?);
            // These are control messages.
            let packed = memory::without_limit(|| Buffer::copy_of(&packed))?;
            Ok((node, packed.into()))
        });
        packed.collect()
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

    /// Returns cuts with whole records, as [`Cut::encode_all`] writes them.
    ///
    /// # Errors
    /// `Status::Memory`: whole records may take much more memory than their keys.
    pub fn whole_cuts(&self, packed: &[u8]) -> Result<Buffer> {
        let skip = |fields: &mut Reader<'_>| match fields.u8()? {
            AT => self.skip_point(fields),
            _ => Some(()),
        };
        let count = count_of(packed, skip)?;
        let mut whole = Buffer::zeroed(count * Cut::encoded_bytes(self.record_bytes))?;
        let mut fields = Reader::new(packed);
        for cut in whole.chunks_exact_mut(Cut::encoded_bytes(self.record_bytes)) {
            let (kind, point) = cut.split_at_mut(1);
            kind[0] = fields.u8().ok_or_else(undecodable)?;
            if kind[0] == AT {
                self.read_point(&mut fields, point)
                    .ok_or_else(undecodable)?;
            }
        }
        Ok(whole)
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

    /// Takes a point, and writes it as [`CutPoint::encode`] does into as many bytes, which are zeroes.
    fn read_point(&self, fields: &mut Reader<'_>, whole: &mut [u8]) -> Option<()> {
        let key = fields.bytes(self.len())?;
        let (record, numbers) = whole.split_at_mut_checked(self.record_bytes)?;
        record[self.range.clone()].copy_from_slice(key);
        let (origin, position) = numbers.split_at_mut_checked(size_of::<u32>())?;
        origin.copy_from_slice(&fields.varint_u32()?.to_le_bytes());
        position.copy_from_slice(&fields.varint()?.to_le_bytes());
        Some(())
    }

    /// Takes a point.
    fn skip_point(&self, fields: &mut Reader<'_>) -> Option<()> {
        fields.bytes(self.len())?;
        fields.varint_u32()?;
        fields.varint().map(drop)
    }
}

/// The number of entries of a message, each of which `skip` takes.
fn count_of<T>(packed: &[u8], skip: impl FnMut(&mut Reader<'_>) -> Option<T>) -> Result<usize> {
    let entries = Reader::new(packed).repeat_to_end(skip);
    Ok(entries.ok_or_else(undecodable)?.len())
}

#[cfg(test)]
mod tests {
    use super::super::pivot::{Division, most_samples};
    use super::*;
    use ftsort_kernels::error::{Error, Status};
    use ftsort_kernels::memory::MemoryBudget;
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

    /// 64 nodes, and records of 1 MiB with keys of 8 bytes.
    #[test]
    fn samples_and_cuts_of_large_records_are_few_and_count_against_the_limit() {
        let (nodes, record_bytes) = (64, 1 << 20);
        let division = Division {
            nodes,
            parts: nodes,
        };
        let samples = nodes * most_samples(division, record_bytes);
        assert!((nodes..=2 * nodes).contains(&samples), "{samples}");
        let few = Division { nodes: 4, parts: 4 };
        assert_eq!(most_samples(few, record_bytes), 16);
        let key_bytes = KeyBytes {
            record_bytes,
            range: 0..8,
        };
        let record = vec![7; record_bytes];
        let point = CutPoint {
            record: &record[..],
            origin: 1,
            position: 2,
        };
        let sample = Sample {
            point: point.clone(),
            weight: 3,
        };
        let proposal = key_bytes.of_samples(&[sample]);
        let proposal = (Node(0), Slice::copy_of(&proposal).unwrap());
        let proposals = vec![proposal; 64];
        let cuts = key_bytes.of_cuts(&vec![Cut::At(point); nodes - 1]);
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        budget.start_peak();
        drop(key_bytes.whole_samples(&proposals).unwrap());
        drop(key_bytes.whole_cuts(&cuts).unwrap());
        assert!((60 << 20..68 << 20).contains(&budget.peak()));
        budget.set_limit(32 << 20);
        let status = |error: Error| error.status;
        let refused = key_bytes.whole_samples(&proposals).map(drop);
        assert_eq!(refused.map_err(status), Err(Status::Memory));
        let refused = key_bytes.whole_cuts(&cuts).map(drop);
        assert_eq!(refused.map_err(status), Err(Status::Memory));
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
            let proposal = vec![(Node(3), Slice::copy_of(&packed).unwrap())];
            let whole = key_bytes.whole_samples(&proposal).unwrap();
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
            let whole = key_bytes.whole_cuts(&packed).unwrap();
            let back = Cut::read_between(&whole, cuts.len() + 1, key_bytes.record_bytes).unwrap();
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
                let between = Cut::read_between(&whole, parts, key_bytes.record_bytes);
                prop_assert_eq!(between.is_ok(), parts == cuts.len() + 1);
            }
            let proposal = vec![(Node(3), Slice::copy_of(&bytes).unwrap())];
            if let Ok(whole) = key_bytes.whole_samples(&proposal) {
                let again = key_bytes.of_whole_samples(whole).unwrap();
                prop_assert_eq!(&again[0].1[..], &bytes[..]);
            }
        }
    }
}

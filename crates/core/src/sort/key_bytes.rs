//! Samples and cuts as messages that have the keys of records and not whole records.
//!
//! The bytes that no comparison reads are left out, and are zeroes after the way back.

use std::borrow::Cow;
use std::ops::Range;

use super::pivot::{Cut, Sample, encode_samples, sample_bytes, whole_chunks};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;
use ftsort_kernels::memory;

/// The bytes of a sample after its record: its place and its weight.
const AFTER_RECORD_OF_SAMPLE: usize = 20;

/// The bytes of a cut before its record, and after it.
const BEFORE_RECORD_OF_CUT: usize = 1;
const AFTER_RECORD_OF_CUT: usize = 12;

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
        self.pack(encode_samples(samples), 0, AFTER_RECORD_OF_SAMPLE)
    }

    /// Returns proposals of samples with whole records.
    pub fn whole_samples(&self, packed: Vec<(Node, Slice)>) -> Result<Vec<(Node, Slice)>> {
        self.each(packed, |packed| {
            self.unpack(packed, 0, AFTER_RECORD_OF_SAMPLE)
        })
    }

    /// Returns proposals of samples with whole records as messages.
    pub fn of_whole_samples(&self, whole: Vec<(Node, Slice)>) -> Result<Vec<(Node, Slice)>> {
        let pack = |whole: &[u8]| Ok(self.pack(whole.to_vec(), 0, AFTER_RECORD_OF_SAMPLE));
        self.each(whole, pack)
    }

    fn each(
        &self,
        proposals: Vec<(Node, Slice)>,
        change: impl Fn(&[u8]) -> Result<Vec<u8>>,
    ) -> Result<Vec<(Node, Slice)>> {
        if self.is_whole() {
            return Ok(proposals);
        }
        let changed = proposals.into_iter().map(|(node, samples)| {
            let changed = change(&samples)?;
            // These are control messages.
            let changed = memory::without_limit(|| Buffer::copy_of(&changed))?;
            Ok((node, changed.into()))
        });
        changed.collect()
    }

    /// Returns cuts as a message.
    pub fn of_cuts<R: AsRef<[u8]>>(&self, cuts: &[Cut<R>]) -> Vec<u8> {
        let cuts = Cut::encode_all(cuts, self.record_bytes);
        self.pack(cuts, BEFORE_RECORD_OF_CUT, AFTER_RECORD_OF_CUT)
    }

    /// Returns the cuts between `parts` parts.
    pub fn cuts_between(&self, packed: &[u8], parts: usize) -> Result<Vec<Cut>> {
        Cut::decode_between(&self.whole_cuts(packed)?, parts, self.record_bytes)
    }

    /// Returns cuts with whole records, as [`Cut::encode_all`] writes them.
    pub fn whole_cuts<'p>(&self, packed: &'p [u8]) -> Result<Cow<'p, [u8]>> {
        if self.is_whole() {
            return Ok(packed.into());
        }
        let cuts = self.unpack(packed, BEFORE_RECORD_OF_CUT, AFTER_RECORD_OF_CUT)?;
        Ok(cuts.into())
    }

    /// The size of a sample as a message, in bytes.
    pub fn sample_bytes(&self) -> usize {
        sample_bytes(self.len())
    }

    /// The size of a cut as a message, in bytes.
    pub fn cut_bytes(&self) -> usize {
        Cut::encoded_bytes(self.len())
    }

    fn is_whole(&self) -> bool {
        self.len() == self.record_bytes
    }

    fn pack(&self, entries: Vec<u8>, before: usize, after: usize) -> Vec<u8> {
        if self.is_whole() {
            return entries;
        }
        let stride = before + self.record_bytes + after;
        let mut packed = Vec::with_capacity(entries.len() / stride * (before + self.len() + after));
        for entry in entries.chunks_exact(stride) {
            let (before, record) = entry.split_at(before);
            let (record, after) = record.split_at(self.record_bytes);
            packed.extend(before);
            packed.extend(&record[self.range.clone()]);
            packed.extend(after);
        }
        packed
    }

    fn unpack(&self, packed: &[u8], before: usize, after: usize) -> Result<Vec<u8>> {
        let entries = whole_chunks(packed, before + self.len() + after)?;
        let mut whole = Vec::with_capacity(entries.len() * (before + self.record_bytes + after));
        for entry in entries {
            let (before, key) = entry.split_at(before);
            let (key, after) = key.split_at(self.len());
            let start = whole.len() + before.len();
            whole.extend(before);
            whole.resize(start + self.record_bytes, 0);
            let first = start + self.range.start;
            whole[first..first + key.len()].copy_from_slice(key);
            whole.extend(after);
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sort::pivot::{CutPoint, decode_samples};
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
            prop_assert_eq!(packed.len(), samples.len() * key_bytes.sample_bytes());
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
            prop_assert_eq!(packed.len(), cuts.len() * key_bytes.cut_bytes());
            let back = key_bytes.cuts_between(&packed, cuts.len() + 1).unwrap();
            // The other bytes are zeroes, so that a second way back changes nothing.
            prop_assert_eq!(key_bytes.of_cuts(&back), packed);
        }

        #[test]
        fn any_bytes_are_cuts_or_refused(key_bytes in key_bytes(), bytes in prop::collection::vec(0..3_u8, 0..200)) {
            if let Ok(cuts) = key_bytes.cuts_between(&bytes, bytes.len() / key_bytes.cut_bytes() + 1) {
                prop_assert_eq!(key_bytes.of_cuts(&cuts).len(), bytes.len());
            }
        }
    }
}

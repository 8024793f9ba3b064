//! The samples of many blocks: as messages, in the order of their points, and thinned out.
//!
//! Must never: change the sum of the weights.

use super::pivot::{
    CutPoint, Division, MOST_BYTES_OF_ALL, SAMPLES_PER_PART, Sample, most_samples, undecodable,
    whole_chunks,
};
use crate::engine::Proposals;
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// Returns samples as a message.
pub fn encode_samples(samples: &[Sample<'_>]) -> Vec<u8> {
    let record_bytes = samples.first().map_or(0, |first| first.point.record.len());
    let mut out = Vec::with_capacity(samples.len() * sample_bytes(record_bytes));
    for sample in samples {
        sample.point.encode(&mut out);
        out.extend(sample.weight.to_le_bytes());
    }
    out
}

/// Returns the size of a sample as a message, in bytes.
pub fn sample_bytes(record_bytes: usize) -> usize {
    CutPoint::encoded_bytes(record_bytes) + 8
}

/// Returns the greatest size of samples as a message, in bytes.
pub fn samples_limit(division: Division, record_bytes: usize) -> usize {
    most_samples(division, record_bytes) * sample_bytes(record_bytes)
}

/// Decodes the result of [`encode_samples`].
pub fn decode_samples(bytes: &[u8], record_bytes: usize) -> Result<Vec<Sample<'_>>> {
    read_samples(bytes, record_bytes)?.collect()
}

fn read_samples(
    bytes: &[u8],
    record_bytes: usize,
) -> Result<impl Iterator<Item = Result<Sample<'_>>>> {
    let point = CutPoint::encoded_bytes(record_bytes);
    let chunks = whole_chunks(bytes, sample_bytes(record_bytes))?;
    Ok(chunks.map(move |bytes| {
        let (point, weight) = bytes.split_at(point);
        Ok(Sample {
            point: CutPoint::read(point, record_bytes)?,
            weight: u64::from_le_bytes(weight.try_into().map_err(|_| undecodable())?),
        })
    }))
}

/// Returns samples of many blocks that are to be cut into `parts` parts, thinned out if they are very many: then each
/// represents about the same number of records. Their weights add up to the same number as before.
///
/// Thinning out once moves a cut by less than half of a sample's weight, mostly by much less. The errors of several
/// ranks that thin out are independent of each other.
pub fn thinned(proposals: Proposals, parts: usize, kernel: &dyn Kernel) -> Result<Proposals> {
    let size = kernel.record_bytes();
    let bytes: usize = proposals.iter().map(|(_, samples)| samples.len()).sum();
    let most = most_united_samples(parts, size);
    let are_many = bytes > most * sample_bytes(size);
    let Some(&(first, _)) = proposals.first().filter(|_| are_many) else {
        return Ok(proposals);
    };
    let thinned = thin(&all_samples(&proposals, kernel)?, most);
    let samples = Buffer::copy_of(&encode_samples(&thinned))?;
    Ok(vec![(first, samples.into())])
}

/// Returns `most` of these samples at most, each of which represents about the same number of records.
pub(super) fn thin<'s>(samples: &InOrder<'s>, most: usize) -> Vec<Sample<'s>> {
    let weights = samples.iter().map(|sample| u128::from(sample.weight));
    let total: u128 = weights.sum();
    let bound = |index: usize| total * index as u128 / most as u128;
    // Each sample that is kept is in the middle of the records that it represents from then on. Divisions of such numbers
    // take long, so there are few.
    let middle = |index: usize| match index < most {
        true => (bound(index) + bound(index + 1)) / 2,
        false => u128::MAX,
    };
    let mut thinned: Vec<Sample<'s>> = Vec::with_capacity(most);
    let (mut before, mut index, mut next) = (0, 0, middle(0));
    for sample in samples.iter() {
        before += u128::from(sample.weight);
        let from = index;
        while next < before {
            index += 1;
            next = middle(index);
        }
        if index > from {
            let weight = bound(index) - bound(from);
            thinned.push(Sample {
                weight: u64::try_from(weight).unwrap_or(u64::MAX),
                ..sample.clone()
            });
        }
    }
    thinned
}

/// The greatest number of samples of many blocks together. A cut then differs by less than 0.5 % of a part (standard
/// deviation), and the samples of the children of a rank take less than 1 MB if records are small.
fn most_united_samples(parts: usize, record_bytes: usize) -> usize {
    const MOST_BYTES: usize = 1 << 19;
    let affordable = MOST_BYTES / sample_bytes(record_bytes);
    let least = MOST_BYTES_OF_ALL / sample_bytes(record_bytes);
    (SAMPLES_PER_PART * parts)
        .max(2048)
        .min(affordable.max(least.clamp(parts, 4 * parts)))
}

/// Decodes the samples of all proposals.
pub(super) fn all_samples<'p>(
    proposals: &'p [(Node, Slice)],
    kernel: &dyn Kernel,
) -> Result<InOrder<'p>> {
    let size = kernel.record_bytes();
    let bytes: usize = proposals.iter().map(|(_, samples)| samples.len()).sum();
    let mut samples = Vec::with_capacity(bytes / sample_bytes(size));
    for (_, proposal) in proposals {
        for sample in read_samples(proposal, size)? {
            samples.push(sample?);
        }
    }
    Ok(InOrder::of(samples, kernel))
}

/// Samples, and their indices in the order of their points.
pub(super) struct InOrder<'s> {
    samples: Vec<Sample<'s>>,
    /// With the prefix of each.
    order: Vec<(u64, usize)>,
}

impl<'s> InOrder<'s> {
    /// Numbers are compared in place of records where they differ, because comparisons of all records would take as long as
    /// the rest of a sort of few records. A stable sort is fast for long stretches that ascend, as those of each block.
    pub fn of(samples: Vec<Sample<'s>>, kernel: &dyn Kernel) -> InOrder<'s> {
        let prefix = |sample: &Sample<'_>| {
            let mut number = 0;
            kernel.prefixes(sample.point.record, std::slice::from_mut(&mut number));
            number
        };
        let mut order: Vec<(u64, usize)> = samples.iter().map(prefix).zip(0..).collect();
        order.sort_by_key(|(prefix, _)| *prefix);
        for equal in order.chunk_by_mut(|one, other| one.0 == other.0) {
            equal.sort_unstable_by(|one, other| {
                let points = [one, other].map(|(_, index)| &samples[*index].point);
                points[0]
                    .compare(points[1], kernel)
                    .then(one.1.cmp(&other.1))
            });
        }
        InOrder { samples, order }
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// The sample that comes after so many others.
    pub fn get(&self, index: usize) -> Option<&Sample<'s>> {
        let (_, index) = self.order.get(index)?;
        Some(&self.samples[*index])
    }

    pub fn iter(&self) -> impl Iterator<Item = &Sample<'s>> {
        self.order.iter().map(|(_, index)| &self.samples[*index])
    }
}

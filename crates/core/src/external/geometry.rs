//! The chunks of a source.
//!
//! A source that is sorted already has all small records in its first part. If chunks were contiguous, one rank would
//! read nearly all records of a batch. So the records are divided into stripes, and a series of chunks takes the stripes
//! of a part of the source in turn.

use std::ops::Range;

use crate::wire::{Reader, Writer};

/// The number of stripes of a chunk.
const STRIPES: u64 = 32;

/// The size of the smallest stripe in bytes, so that reads are not dominated by their latency.
const LEAST_STRIPE: u64 = 1 << 18;

/// A division of the records of a source into chunks, each of which fits into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The number of records of the source.
    pub records: u64,
    /// The number of records of a stripe.
    pub stripe: u64,
    /// The number of stripes of a chunk.
    pub stripes: u64,
    /// The number of chunks that take stripes in turn.
    pub series: u64,
}

impl Geometry {
    /// Divides `records` records of `record_bytes` bytes into chunks of at most `chunk_bytes` bytes, but of at least
    /// one record, for so many ranks.
    pub fn new(records: u64, record_bytes: usize, chunk_bytes: usize, ranks: usize) -> Geometry {
        let record_bytes = record_bytes as u64;
        let chunk = (chunk_bytes as u64 / record_bytes).max(1);
        let least = (LEAST_STRIPE / record_bytes).max(1);
        let stripes = (chunk / least).clamp(1, STRIPES);
        Geometry {
            records,
            stripe: chunk / stripes,
            stripes,
            series: ranks.max(1) as u64,
        }
    }

    /// The number of chunks. The last ones may be empty.
    pub fn chunks(&self) -> u64 {
        let series = self.stripe * self.stripes * self.series;
        self.records.div_ceil(series) * self.series
    }

    /// The ranges of records of a chunk, in ascending order.
    pub fn ranges(&self, chunk: u64) -> impl Iterator<Item = Range<u64>> {
        let geometry = *self;
        let (series, turn) = (chunk / geometry.series, chunk % geometry.series);
        let first = series * geometry.series * geometry.stripes;
        (0..geometry.stripes)
            .map(move |stripe| {
                let start = (first + stripe * geometry.series + turn) * geometry.stripe;
                start..(start + geometry.stripe).min(geometry.records)
            })
            .filter(|range| range.start < range.end)
    }

    /// The number of records of a chunk.
    pub fn chunk_records(&self, chunk: u64) -> u64 {
        self.ranges(chunk)
            .map(|range| range.end - range.start)
            .sum()
    }

    /// The chunks that are not empty, in ascending order.
    pub fn whole_chunks(&self) -> impl Iterator<Item = u64> {
        let geometry = *self;
        (0..self.chunks()).filter(move |chunk| geometry.ranges(*chunk).next().is_some())
    }

    /// The number of records of the largest chunk.
    pub fn most_records(&self) -> u64 {
        (self.stripe * self.stripes).min(self.records)
    }

    /// Appends the division as fields.
    pub fn encode(&self, out: &mut Writer) {
        out.u64(self.records)
            .u64(self.stripe)
            .u64(self.stripes)
            .u64(self.series);
    }

    /// Decodes the result of [`Geometry::encode`]; None if it is no division of a source.
    pub fn decode(fields: &mut Reader<'_>) -> Option<Geometry> {
        let mut next = || fields.u64();
        let geometry = Geometry {
            records: next()?,
            stripe: next()?,
            stripes: next()?,
            series: next()?,
        };
        let series = geometry
            .stripe
            .checked_mul(geometry.stripes)?
            .checked_mul(geometry.series)?;
        let is_valid = series > 0
            && geometry.records.checked_add(series).is_some()
            && u32::try_from(geometry.chunks()).is_ok();
        is_valid.then_some(geometry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_record_is_in_one_chunk(
            records in 0..5000_u64,
            record_bytes in 1..1_usize << 18,
            chunk_bytes in 1..1_usize << 24,
            ranks in 1..9_usize,
        ) {
            let geometry = Geometry::new(records, record_bytes, chunk_bytes, ranks);
            let mut all = Vec::new();
            for chunk in 0..geometry.chunks() {
                let ranges: Vec<_> = geometry.ranges(chunk).collect();
                let count: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                prop_assert_eq!(count, geometry.chunk_records(chunk));
                prop_assert!(count <= geometry.most_records());
                prop_assert!(count as usize * record_bytes <= chunk_bytes.max(record_bytes));
                all.extend(ranges.into_iter().flatten());
            }
            all.sort_unstable();
            prop_assert_eq!(all, (0..records).collect::<Vec<_>>());
            let mut encoded = Writer::new();
            geometry.encode(&mut encoded);
            let encoded = encoded.finish();
            prop_assert_eq!(Geometry::decode(&mut Reader::new(&encoded)), Some(geometry));
        }

        #[test]
        fn chunks_of_a_series_cover_the_same_part_of_the_source(
            series in 1..6_u64,
            ranks in 2..9_usize,
        ) {
            // 1 MiB chunks of 8-byte records have four stripes.
            let chunk = 1 << 20;
            let records = (chunk as u64 / 8) * ranks as u64 * series;
            let geometry = Geometry::new(records, 8, chunk, ranks);
            prop_assert_eq!(geometry.chunks(), ranks as u64 * series);
            for chunk in 0..geometry.chunks() {
                let first = geometry.ranges(chunk).next().unwrap().start;
                let last = geometry.ranges(chunk).last().unwrap().end;
                let part = records / series;
                prop_assert!(first - chunk / ranks as u64 * part <= part / 4);
                prop_assert!(last >= part * (chunk / ranks as u64) + 3 * part / 4);
            }
        }
    }

    #[test]
    fn refuses_fields_that_are_no_division() {
        let encode = |fields: [u64; 4]| {
            let mut out = Writer::new();
            fields.into_iter().for_each(|field| {
                out.u64(field);
            });
            out.finish()
        };
        for fields in [
            [10, 0, 1, 1],
            [10, 1, 0, 1],
            [10, 1, 1, 0],
            [10, u64::MAX, 2, 1],
            [u64::MAX, 1, 1, 1],
        ] {
            assert_eq!(Geometry::decode(&mut Reader::new(&encode(fields))), None);
        }
        assert_eq!(Geometry::decode(&mut Reader::new(&[1, 2, 3])), None);
    }
}

//! The chunks of a source.
//!
//! A source that is sorted already has all small records in its first part. If chunks were contiguous, one rank would
//! read nearly all records of a batch. So the records are divided into stripes, and a series of chunks takes the stripes
//! of a part of the source in turn.
//!
//! A chunk fits into memory if the blocks of all runs then have a useful size (two passes). Otherwise it is as large as
//! several *pieces* that fit into memory, and its run is made by a merge of sorted pieces (three passes). The pieces are
//! consecutive parts of the chunk, and sorts are stable. So a run does not depend on their size, and each job chooses it.

use std::ops::Range;

use crate::wire::{Reader, Writer};

/// The number of stripes of a chunk.
const STRIPES: u64 = 32;

/// The size of the smallest stripe in bytes, so that reads are not dominated by their latency.
const LEAST_STRIPE: u64 = 1 << 18;

/// The size of a block of a run in bytes, at most.
const BLOCK_BYTES: u64 = 1 << 16;

/// Two passes have blocks of at least so many bytes, unless memory for [`LEAST_BLOCKS`] of them is missing.
const PAGE_BYTES: u64 = 1 << 12;

/// The number of blocks for which a rank has memory, at least.
const LEAST_BLOCKS: u64 = 64;

/// The size of a chunk in bytes if the memory has no limit.
const MOST_CHUNK_BYTES: u64 = 1 << 44;

/// A division of the records of a source into chunks.
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
        let chunk = (chunk_bytes as u64).min(MOST_CHUNK_BYTES) / record_bytes;
        let chunk = chunk.max(1);
        let least = (LEAST_STRIPE / record_bytes).max(1);
        let stripes = (chunk / least).clamp(1, STRIPES);
        Geometry {
            records,
            stripe: chunk / stripes,
            stripes,
            series: ranks.max(1) as u64,
        }
    }

    /// Chooses the chunks of a source for ranks that each sort `share` bytes at once, and the number of records of a
    /// block of a run. A rank has room for a block of every run, in case it is the last survivor, and for a block of
    /// every piece of a chunk. None: `share` is too small.
    pub fn fitting(
        records: u64,
        record_bytes: usize,
        share: usize,
        ranks: usize,
    ) -> Option<(Geometry, u64)> {
        let one_piece = Geometry::new(records, record_bytes, share, ranks);
        let with_pieces = |pieces: u64| {
            let geometry = Geometry {
                stripes: one_piece.stripes.checked_mul(pieces)?,
                ..one_piece
            };
            Some(geometry).filter(Geometry::is_computable)
        };
        let with_block = |geometry: Geometry| {
            u32::try_from(geometry.chunks()).ok()?;
            let block = block_records(share, record_bytes, geometry.most_runs())?;
            Some((geometry, block))
        };
        let two_passes = with_pieces(1).and_then(with_block);
        let least = (share as u64 / LEAST_BLOCKS).min(PAGE_BYTES) / record_bytes as u64;
        if two_passes.is_some_and(|(_, block)| block >= least) {
            return two_passes;
        }
        // With more pieces the blocks of runs grow, and those of pieces shrink.
        let most = (share / record_bytes) as u64;
        let mut larger = (2..=most).map_while(|pieces| Some((pieces, with_pieces(pieces)?)));
        let three_passes = larger.find_map(|(pieces, geometry)| {
            let of_pieces = block_records(share, record_bytes, pieces)?;
            with_block(geometry).filter(|(_, block)| *block >= of_pieces)
        });
        // The number of chunks cannot fall below that of ranks.
        match (two_passes, three_passes) {
            (Some(two), Some(three)) if three.1 <= two.1 => Some(two),
            (two, three) => three.or(two),
        }
    }

    /// The number of bytes with which [`Geometry::fitting`] succeeds in any case; it may do so with less.
    pub fn sufficient_share(records: u64, record_bytes: usize, ranks: usize) -> u64 {
        // As many pieces, runs, and records that fit into memory; chunks may be smaller by half.
        let most = (records as f64).cbrt() * 1.5 + ranks as f64 + 1.0;
        most.ceil() as u64 * record_bytes as u64
    }

    /// The least number of bytes that a rank must be able to sort at once to resume a sort with runs in blocks of
    /// `block` records.
    pub fn least_share(&self, record_bytes: usize, block: u64) -> u64 {
        let blocks = self.most_runs().saturating_mul(block);
        // As many pieces as records in a piece.
        let most = self.most_records();
        let root = most.isqrt();
        let pieces = root + u64::from(root * root < most);
        blocks.max(pieces).saturating_mul(record_bytes as u64)
    }

    /// The number of chunks. The last ones may be empty.
    pub fn chunks(&self) -> u64 {
        let series = self.stripe * self.stripes * self.series;
        self.records.div_ceil(series) * self.series
    }

    /// The number of runs is at most this: a chunk without records has none.
    fn most_runs(&self) -> u64 {
        self.chunks().min(self.records)
    }

    /// The ranges of records of a chunk, in ascending order.
    pub fn ranges(&self, chunk: u64) -> impl Iterator<Item = Range<u64>> {
        self.ranges_of_part(chunk, 0..self.stripe * self.stripes)
    }

    /// As [`Geometry::ranges`], of the records of a chunk that have these positions in it.
    pub fn ranges_of_part(&self, chunk: u64, part: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let geometry = *self;
        let (series, turn) = (chunk / geometry.series, chunk % geometry.series);
        let first = series * geometry.series * geometry.stripes;
        let stripes = part.start / geometry.stripe..part.end.div_ceil(geometry.stripe);
        stripes
            .map(move |stripe| {
                let start = (first + stripe * geometry.series + turn) * geometry.stripe;
                let before = stripe * geometry.stripe;
                let from = part.start.saturating_sub(before);
                let to = (part.end - before).min(geometry.stripe);
                start + from..(start + to).min(geometry.records)
            })
            .filter(|range| range.start < range.end)
    }

    /// The positions of the pieces of a chunk that consist of at most `most` records each.
    pub fn pieces(&self, chunk: u64, most: u64) -> impl Iterator<Item = Range<u64>> {
        let records = self.chunk_records(chunk);
        let pieces = records.div_ceil(most);
        let piece = records.div_ceil(pieces.max(1));
        (0..pieces)
            .map(move |index| (index * piece).min(records)..((index + 1) * piece).min(records))
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
        Some(geometry).filter(Geometry::is_valid)
    }

    /// Whether it is a division of a source whose chunks have numbers of 32 bits.
    fn is_valid(&self) -> bool {
        self.is_computable() && u32::try_from(self.chunks()).is_ok()
    }

    /// Whether it is a division of a source, and the positions of all chunks have 64 bits.
    fn is_computable(&self) -> bool {
        let series = self.stripe.checked_mul(self.stripes);
        let series = series.and_then(|chunk| chunk.checked_mul(self.series));
        series.is_some_and(|series| series > 0 && self.records.checked_add(series).is_some())
    }
}

/// The number of records of a block of each of `runs` runs, so that `share` bytes have room for a block of each. None if
/// they have no room for a record of each.
pub fn block_records(share: usize, record_bytes: usize, runs: u64) -> Option<u64> {
    let (share, record_bytes, runs) = (share as u64, record_bytes as u64, runs.max(1));
    let most = (share / runs).min(share / LEAST_BLOCKS).min(BLOCK_BYTES);
    let has_room = runs.saturating_mul(record_bytes) <= share;
    has_room.then_some((most / record_bytes).max(1))
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

        #[test]
        fn every_record_is_in_one_chunk_and_one_piece(
            records in 0..30_000_u64,
            record_bytes in 1..300_usize,
            most in 1..200_usize,
            spare in 0..300_usize,
            ranks in 1..9_usize,
            other in 0..200_u64,
        ) {
            let share = most * record_bytes + spare % record_bytes;
            let Some((geometry, block)) = Geometry::fitting(records, record_bytes, share, ranks) else {
                let sufficient = Geometry::sufficient_share(records, record_bytes, ranks);
                prop_assert!((share as u64) < sufficient, "{} bytes", sufficient);
                return Ok(());
            };
            // A rank has room for a block of each run, also if it resumes the sort.
            let blocks = geometry.chunks() * block * record_bytes as u64;
            prop_assert!(blocks <= share as u64);
            prop_assert!(geometry.least_share(record_bytes, block) <= share as u64);
            let least = geometry.least_share(record_bytes, block) / record_bytes as u64;
            let mut all = Vec::new();
            for chunk in 0..geometry.chunks() {
                // A job that resumes this one has other memory.
                for (job, most) in [most as u64, least + other].into_iter().enumerate() {
                    let mut of_chunk = Vec::new();
                    let pieces: Vec<_> = geometry.pieces(chunk, most).collect();
                    prop_assert!(pieces.len() as u64 <= most);
                    for piece in pieces {
                        let size = piece.end - piece.start;
                        let ranges = geometry.ranges_of_part(chunk, piece);
                        let before = of_chunk.len();
                        of_chunk.extend(ranges.flatten());
                        prop_assert_eq!((of_chunk.len() - before) as u64, size);
                        prop_assert!(0 < size && size <= most);
                    }
                    let whole: Vec<u64> = geometry.ranges(chunk).flatten().collect();
                    prop_assert!(of_chunk == whole, "chunk {}", chunk);
                    if job == 0 {
                        all.extend(of_chunk);
                    }
                }
            }
            all.sort_unstable();
            prop_assert!(all == (0..records).collect::<Vec<_>>());
            prop_assert!(geometry.whole_chunks().count() as u64 <= geometry.chunks());
        }

        #[test]
        fn a_sufficient_share_suffices(
            records in 0..u64::MAX >> 24,
            record_bytes in 1..1_usize << 20,
            ranks in 1..5000_usize,
        ) {
            let share = Geometry::sufficient_share(records, record_bytes, ranks);
            let fitting = Geometry::fitting(records, record_bytes, share as usize, ranks);
            prop_assert!(fitting.is_some());
        }
    }

    #[test]
    fn numbers_of_any_size_are_divided_or_refused() {
        let fitting = |records, share| Geometry::fitting(records, 1, share, 5000);
        assert!(fitting(1000, usize::MAX / 5).is_some());
        assert!(fitting(u64::MAX >> 1, usize::MAX / 5).is_some());
        assert_eq!(fitting(u64::MAX, usize::MAX / 5), None);
        assert_eq!(fitting(u64::MAX, 1 << 20), None);
    }

    /// The passes, the bytes of a block of a run, and the pieces of a chunk, of records of 100 bytes.
    fn passes(bytes: u64, memory: usize) -> (u64, u64, u64) {
        let share = memory / 5;
        let (geometry, block) = Geometry::fitting(bytes / 100, 100, share, 16).unwrap();
        let pieces = geometry.most_records().div_ceil(share as u64 / 100);
        (if pieces > 1 { 3 } else { 2 }, block * 100, pieces)
    }

    #[test]
    fn two_passes_are_preferred_if_blocks_have_a_page() {
        let (gb, tb) = (1_000_000_000, 1_000_000_000_000);
        assert_eq!(passes(gb, 750_000_000), (2, 65_500, 1));
        assert_eq!(passes(gb, 16_000_000), (2, 10_000, 1));
        assert_eq!(passes(gb, 8_000_000).0, 3);
        assert_eq!(passes(10 * tb, 1_100_000_000).0, 2);
        let (passes, block, pieces) = passes(10 * tb, 200_000_000);
        assert_eq!((passes, block), (3, 65_500));
        assert!((300..900).contains(&pieces), "{pieces}");
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

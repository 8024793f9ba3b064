//! The format of a sorted run in a scratch file, and cuts of runs.
//!
//! A file has the records of a run in order, then an index with the first record and the checksum of every block of
//! records, and then the [footer](super::footer). The rank that uses a run keeps its index in memory: it tells the
//! block in which a point of the total order lies, so that a cut reads one block, and how many records a rank has
//! before a point.

use std::cmp::Ordering;
use std::ops::Range;

use super::footer::{FOOTER_BYTES, RunFooter};
use crate::block::Run;
use crate::members::Rank;
use crate::sort::pivot::{Cut, CutPoint};
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::checksum::Checksum;
use ftsort_kernels::error::Result;
use ftsort_kernels::kernel::Kernel;

/// The index of a run, and its fixed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunIndex {
    /// The fixed fields.
    pub footer: RunFooter,
    /// The checksums of the blocks.
    sums: Vec<u64>,
    /// The first record of each block.
    firsts: Vec<u8>,
}

impl RunIndex {
    /// Makes the index of a sorted chunk, in blocks of `block` records. The first `first` records, and `done` records of
    /// all runs, are in the output.
    pub fn new(
        (job, chunk): (u64, u32),
        sorted: &[u8],
        (first, done): (u64, u64),
        block: u64,
        record_bytes: usize,
    ) -> RunIndex {
        let mut index = IndexBuilder::new((job, chunk), done, block, record_bytes);
        index.add(sorted, first);
        index.finish()
    }

    /// Returns the bytes behind the records of the file: the index and the footer.
    pub fn encode(&self) -> Vec<u8> {
        let index_bytes = self.firsts.len() + 8 * self.sums.len() + FOOTER_BYTES;
        let mut out = Writer::with_capacity(index_bytes);
        for sum in &self.sums {
            out.u64(*sum);
        }
        out.bytes(&self.firsts).bytes(&self.footer.encode());
        out.finish_checked()
    }

    /// Decodes the result of [`RunIndex::encode`]. None if it is damaged, or if its footer is another one.
    pub fn decode(bytes: &[u8], footer: &RunFooter) -> Option<RunIndex> {
        let mut fields = Reader::checked(bytes)?;
        let blocks = footer.blocks()?;
        let sums = fields.repeat(blocks, Reader::u64)?;
        let firsts = fields.bytes(blocks.checked_mul(footer.record_bytes)?)?;
        (fields.rest() == footer.encode()).then(|| RunIndex {
            footer: *footer,
            sums,
            firsts: firsts.to_vec(),
        })
    }

    /// The bytes of the file that have these records.
    pub fn file_range(&self, records: &Range<u64>) -> Range<u64> {
        let at = |position: u64| (position - self.footer.first) * self.footer.record_bytes as u64;
        at(records.start)..at(records.end)
    }

    /// The position of the first record of a block, or the end. A file may name blocks of any size.
    fn start(&self, block: usize) -> u64 {
        let before = (block as u64).saturating_mul(self.footer.block);
        let position = self.footer.first.saturating_add(before);
        position.min(self.footer.records)
    }

    /// The first record of a block as a point.
    fn point(&self, block: usize) -> CutPoint<&[u8]> {
        let record_bytes = self.footer.record_bytes;
        CutPoint {
            record: &self.firsts[block * record_bytes..][..record_bytes],
            origin: self.footer.chunk,
            position: self.start(block),
        }
    }

    /// The first block that begins behind this position.
    fn block_behind(&self, position: u64) -> usize {
        let blocks = position.saturating_sub(self.footer.first) / self.footer.block + 1;
        self.sums.len().min(blocks as usize)
    }

    /// The number of records before a cut. `read`: reads some records, which are those of one block.
    pub fn cut(
        &self,
        cut: &Cut,
        kernel: &dyn Kernel,
        read: impl FnOnce(Range<u64>) -> Result<Option<Slice>>,
    ) -> Result<Option<u64>> {
        let point = match cut {
            Cut::AllUpper => return Ok(Some(self.footer.first)),
            Cut::AllLower => return Ok(Some(self.footer.records)),
            Cut::At(point) => point,
        };
        let (mut low, mut high) = (0, self.sums.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.point(middle).compare(point, kernel) {
                Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        let Some(block) = low.checked_sub(1) else {
            return Ok(Some(self.footer.first));
        };
        let records = self.start(block)..self.start(block + 1);
        let start = records.start;
        let data = read(records)?;
        Ok(data.map(|data| {
            let run = Run::new(Rank(self.footer.chunk), start, data);
            start + point.records_before(&run, kernel) as u64
        }))
    }

    /// Whether these stored bytes, from a position on, have the checksums of the blocks that are whole in them.
    pub fn is_intact(&self, start: u64, bytes: &[u8]) -> bool {
        let record_bytes = self.footer.record_bytes;
        let end = start + (bytes.len() / record_bytes) as u64;
        let first = (start - self.footer.first).div_ceil(self.footer.block) as usize;
        (first..self.sums.len())
            .take_while(|block| self.start(block + 1) <= end)
            .all(|block| {
                let range = self.start(block) - start..self.start(block + 1) - start;
                let range = range.start as usize * record_bytes..range.end as usize * record_bytes;
                Checksum::of(&bytes[range]) == self.sums[block]
            })
    }
}

/// Makes the index of a run whose records come in ascending order, one portion after the other.
pub struct IndexBuilder {
    /// Its numbers and blocks so far.
    index: RunIndex,
    digest: Checksum,
    /// The checksum of the last block, which has `open` records so far and is not in the index.
    sum: Checksum,
    open: u64,
}

impl IndexBuilder {
    /// Starts the index of a chunk's run, in blocks of `block` records; `done` records of all runs are in the output.
    pub fn new(
        (job, chunk): (u64, u32),
        done: u64,
        block: u64,
        record_bytes: usize,
    ) -> IndexBuilder {
        IndexBuilder {
            index: RunIndex {
                footer: RunFooter {
                    job,
                    chunk,
                    records: 0,
                    first: 0,
                    done,
                    block,
                    digest: 0,
                    record_bytes,
                },
                sums: Vec::new(),
                firsts: Vec::new(),
            },
            digest: Checksum::default(),
            sum: Checksum::default(),
            open: 0,
        }
    }

    /// The chunk of the run.
    pub fn chunk(&self) -> u32 {
        self.index.footer.chunk
    }

    /// The number of records that have been added.
    pub fn records(&self) -> u64 {
        self.index.footer.records
    }

    /// Adds the next records, of which the first `in_output` are in the output and are not stored.
    pub fn add(&mut self, sorted: &[u8], in_output: u64) {
        let record_bytes = self.index.footer.record_bytes;
        self.digest.add(sorted);
        self.index.footer.records += (sorted.len() / record_bytes) as u64;
        self.index.footer.first += in_output;
        let mut stored = &sorted[in_output as usize * record_bytes..];
        while !stored.is_empty() {
            if self.open == 0 {
                self.index.firsts.extend(&stored[..record_bytes]);
            }
            let missing = (self.index.footer.block - self.open) as usize * record_bytes;
            let (part, later) = stored.split_at(missing.min(stored.len()));
            self.sum.add(part);
            self.open += (part.len() / record_bytes) as u64;
            if self.open == self.index.footer.block {
                self.close_block();
            }
            stored = later;
        }
    }

    fn close_block(&mut self) {
        self.index.sums.push(std::mem::take(&mut self.sum).finish());
        self.open = 0;
    }

    /// The index of all records.
    pub fn finish(mut self) -> RunIndex {
        if self.open > 0 {
            self.close_block();
        }
        self.index.footer.digest = self.digest.finish();
        self.index
    }
}

/// Returns the greatest cut, among those that the indexes tell, before which at most `most` records of these runs are,
/// each from a position on. None: every cut has more.
pub fn farthest_cut(runs: &[(&RunIndex, u64)], most: u64, kernel: &dyn Kernel) -> Option<Cut> {
    // For each run, the first block that begins behind the cut.
    let mut next: Vec<usize> = runs
        .iter()
        .map(|(run, position)| run.block_behind(*position))
        .collect();
    let heads = runs.iter().zip(&next);
    let mut load: u64 = heads
        .map(|((run, position), block)| run.start(*block) - position)
        .sum();
    if load > most {
        return None;
    }
    loop {
        let mut least: Option<usize> = None;
        for (index, (run, _)) in runs.iter().enumerate() {
            if next[index] == run.sums.len() {
                continue;
            }
            let is_less = |least: usize| {
                let (other, _) = runs[least];
                let other = other.point(next[least]);
                run.point(next[index]).compare(&other, kernel) == Ordering::Less
            };
            if least.is_none_or(is_less) {
                least = Some(index);
            }
        }
        let Some(index) = least else {
            return Some(Cut::AllLower);
        };
        let (run, _) = runs[index];
        let block = next[index];
        load += run.start(block + 1) - run.start(block);
        if load > most {
            return Some(Cut::At(run.point(block).to_owned()));
        }
        next[index] += 1;
    }
}

/// Returns the first of the cuts; the records before it are before all of them.
pub fn first_cut(cuts: impl IntoIterator<Item = Cut>, kernel: &dyn Kernel) -> Cut {
    let cuts = cuts.into_iter();
    cuts.reduce(|one, other| match (&one, &other) {
        (Cut::At(first), Cut::At(second)) => {
            if first.compare(second, kernel) == Ordering::Greater {
                other
            } else {
                one
            }
        }
        (Cut::AllUpper, _) | (_, Cut::AllLower) => one,
        _ => other,
    })
    .unwrap_or(Cut::AllLower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::kernel::kernel_of;
    use ftsort_kernels::record::KeyKind;
    use proptest::prelude::*;

    fn bytes_of(keys: &[u16]) -> Vec<u8> {
        keys.iter().flat_map(|key| key.to_ne_bytes()).collect()
    }

    fn runs_of(mut chunks: Vec<Vec<u16>>, block: u64) -> Vec<(Vec<u16>, RunIndex)> {
        chunks.iter_mut().for_each(|chunk| chunk.sort_unstable());
        let runs = (0..).zip(chunks).map(|(chunk, keys)| {
            let index = RunIndex::new((7, chunk), &bytes_of(&keys), (0, 0), block, 2);
            (keys, index)
        });
        runs.collect()
    }

    fn cut(keys: &[u16], index: &RunIndex, cut: &Cut) -> u64 {
        let kernel = kernel_of(2, KeyKind::U16);
        let read = |range: Range<u64>| {
            assert!(range.end - range.start <= index.footer.block);
            let data = bytes_of(&keys[range.start as usize..range.end as usize]);
            Ok(Some(Slice::copy_of(&data)?))
        };
        index.cut(cut, &*kernel, read).unwrap().unwrap()
    }

    proptest! {
        #[test]
        fn cuts_divide_runs_in_the_total_order(
            chunks in proptest::collection::vec(proptest::collection::vec(0..20_u16, 1..40), 1..6),
            block in 1..9_u64,
            chunk in 0..6_usize,
            at in 0..40_usize,
        ) {
            let runs = runs_of(chunks, block);
            let mut all: Vec<(u16, u32, u64)> = Vec::new();
            for (keys, index) in &runs {
                all.extend((0..).zip(keys).map(|(at, key)| (*key, index.footer.chunk, at)));
            }
            let (keys, index) = &runs[chunk % runs.len()];
            let at = at % keys.len();
            let point = (keys[at], index.footer.chunk, at as u64);
            let record = keys[at].to_ne_bytes().to_vec();
            let wanted = Cut::At(CutPoint { record, origin: point.1, position: point.2 });
            for (keys, index) in &runs {
                let before = all.iter().filter(|other| other.1 == index.footer.chunk && **other < point);
                prop_assert_eq!(cut(keys, index, &wanted), before.count() as u64);
                prop_assert_eq!(cut(keys, index, &Cut::AllUpper), 0);
                prop_assert_eq!(cut(keys, index, &Cut::AllLower), keys.len() as u64);
            }
        }

        #[test]
        fn batches_take_all_records_and_stay_below_their_limit(
            chunks in proptest::collection::vec(proptest::collection::vec(0..20_u16, 1..40), 1..6),
            block in 1..9_u64,
            spare in 1..30_u64,
        ) {
            let kernel = kernel_of(2, KeyKind::U16);
            let runs = runs_of(chunks, block);
            let most = runs.len() as u64 * block + spare;
            let mut positions = vec![0; runs.len()];
            let mut sorted: Vec<u16> = Vec::new();
            loop {
                let from: Vec<_> = runs.iter().map(|(_, index)| index).zip(positions.clone()).collect();
                let next = farthest_cut(&from, most, &*kernel).expect("room for a block of each run");
                let mut batch: Vec<u16> = Vec::new();
                for ((keys, index), position) in runs.iter().zip(&mut positions) {
                    let end = cut(keys, index, &next);
                    prop_assert!(end >= *position);
                    batch.extend(&keys[*position as usize..end as usize]);
                    *position = end;
                }
                prop_assert!(batch.len() as u64 <= most);
                prop_assert!(!batch.is_empty() || next == Cut::AllLower);
                batch.sort_unstable();
                sorted.extend(batch);
                if next == Cut::AllLower {
                    break;
                }
            }
            let mut all: Vec<u16> = runs.into_iter().flat_map(|(keys, _)| keys).collect();
            all.sort_unstable();
            prop_assert_eq!(sorted, all);
        }

        #[test]
        fn an_index_decodes_as_it_was_and_detects_damage(
            mut keys in proptest::collection::vec(any::<u16>(), 1..60),
            block in 1..9_u64,
            first in 0..60_u64,
            at: usize,
        ) {
            keys.sort_unstable();
            let first = first % keys.len() as u64;
            let sorted = bytes_of(&keys);
            let index = RunIndex::new((3, 4), &sorted, (first, 9), block, 2);
            let stored = &sorted[2 * first as usize..];
            let encoded = index.encode();
            let footer = index.footer;
            prop_assert_eq!(footer.stored_bytes(), Some(stored.len() as u64));
            prop_assert_eq!(footer.index_bytes(), Some(encoded.len()));
            let size = (stored.len() + encoded.len()) as u64;
            prop_assert_eq!(RunFooter::decode(encoded.last_chunk().unwrap(), size), Some(footer));
            prop_assert_eq!(RunIndex::decode(&encoded, &footer), Some(index.clone()));
            let others = [
                RunFooter { digest: !footer.digest, ..footer },
                RunFooter { records: footer.records + block, ..footer },
            ];
            for other in others {
                prop_assert_eq!(RunIndex::decode(&encoded, &other), None);
            }
            let mut damaged = encoded.clone();
            damaged[at % encoded.len()] ^= 4;
            prop_assert_eq!(RunIndex::decode(&damaged, &footer), None);
            prop_assert!(index.is_intact(first, stored));
            let mut damaged = stored.to_vec();
            let place = at % damaged.len();
            damaged[place] ^= 4;
            prop_assert!(!index.is_intact(first, &damaged));
        }
    }

    proptest! {
        #[test]
        fn an_index_of_portions_is_that_of_the_whole_run(
            keys in proptest::collection::vec(any::<u16>(), 1..60),
            lengths in proptest::collection::vec(0..20_usize, 0..20),
            block in 1..9_u64,
            first in 0..61_usize,
        ) {
            let first = first % (keys.len() + 1);
            let sorted = bytes_of(&keys);
            let at_once = (first as u64, 9);
            let whole = RunIndex::new((3, 4), &sorted, at_once, block, 2);
            // The definition.
            let blocks = sorted[2 * first..].chunks(2 * block as usize);
            prop_assert_eq!(&whole.sums, &blocks.clone().map(Checksum::of).collect::<Vec<_>>());
            prop_assert_eq!(&whole.firsts, &blocks.flat_map(|block| &block[..2]).copied().collect::<Vec<_>>());
            prop_assert_eq!(whole.footer.digest, Checksum::of(&sorted));
            prop_assert_eq!((whole.footer.records, whole.footer.first), (keys.len() as u64, first as u64));
            let mut builder = IndexBuilder::new((3, 4), 9, block, 2);
            let mut at = 0;
            for length in lengths.into_iter().chain([keys.len()]) {
                let end = (at + length).min(keys.len());
                prop_assert_eq!(builder.records(), at as u64);
                builder.add(&sorted[2 * at..2 * end], (first.clamp(at, end) - at) as u64);
                at = end;
            }
            prop_assert_eq!(builder.finish(), whole);
        }
    }

    #[test]
    fn blocks_that_are_not_whole_are_not_compared() {
        let sorted = bytes_of(&[1, 2, 3, 4, 5, 6, 7]);
        let index = RunIndex::new((1, 0), &sorted, (0, 0), 3, 2);
        assert!(index.is_intact(1, &bytes_of(&[9, 9, 4, 5, 6, 7])));
        assert!(!index.is_intact(1, &bytes_of(&[9, 9, 4, 5, 9, 7])));
        assert!(index.is_intact(4, &bytes_of(&[9])));
    }

    #[test]
    fn too_little_room_for_a_block_of_each_run_has_no_cut() {
        let runs = runs_of(vec![vec![1; 10], vec![2; 10]], 4);
        let kernel = kernel_of(2, KeyKind::U16);
        let from: Vec<_> = runs.iter().map(|(_, index)| (index, 0)).collect();
        assert_eq!(farthest_cut(&from, 7, &*kernel), None);
        assert!(farthest_cut(&from, 8, &*kernel).is_some());
    }

    #[test]
    fn the_first_cut_is_before_the_others() {
        let kernel = kernel_of(2, KeyKind::U16);
        let at = |key: u16, origin| {
            let record = key.to_ne_bytes().to_vec();
            Cut::At(CutPoint {
                record,
                origin,
                position: 1,
            })
        };
        let first = |cuts: &[Cut]| first_cut(cuts.iter().cloned(), &*kernel);
        assert_eq!(first(&[]), Cut::AllLower);
        assert_eq!(first(&[Cut::AllLower, at(3, 0), at(2, 5)]), at(2, 5));
        assert_eq!(first(&[at(2, 1), at(2, 0), Cut::AllLower]), at(2, 0));
        assert_eq!(first(&[at(2, 1), Cut::AllUpper]), Cut::AllUpper);
    }
}

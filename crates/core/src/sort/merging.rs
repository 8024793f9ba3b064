//! Merges the runs of a block into one run, in little more memory than the runs take; or sorts them together, if they are
//! not sorted.
//!
//! The result is produced in chunks. As soon as a chunk is done, the memory of the records that were read for
//! it is recycled for the next chunks, unless another owner still needs it. The runs of blocks that are
//! merged one after the other may lie in the same buffers. Must never: read a record twice.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::block::{Block, Run};
use crate::mutants::{Mutant, mutant};
use ftsort_kernels::buffer::{Buffer, Slice, UNIT};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::{Kernel, TASKS_PER_THREAD};

/// The smallest and the largest size of a chunk in bytes. A chunk is a multiple of the smallest size, because
/// memory is recycled in units of that size; it is large because each chunk needs its own search for cuts.
const SMALLEST_CHUNK: usize = UNIT;
const LARGEST_CHUNK: usize = 32 << 20;

/// A buffer that has no other owner, and the ranges of it that are still to be read.
struct UniqueBuffer {
    buffer: Buffer,
    unread: Vec<Range<usize>>,
}

impl UniqueBuffer {
    /// Makes the memory outside of the unread ranges available for recycling.
    fn release_read(&mut self) {
        let unread = || self.unread.iter().filter(|part| !part.is_empty());
        let end = self.buffer.len();
        let from = unread().map(|part| part.start).min();
        let to = unread().map(|part| part.end).max();
        self.buffer
            .release_around(from.unwrap_or(end)..to.unwrap_or(end));
    }
}

/// The location of the unread part of a run.
enum RunSource {
    /// The index of the buffer, and the index of the run's unread range in it.
    Unique {
        buffer: usize,
        part: usize,
    },
    Shared(Slice),
}

/// The runs of the blocks that are still to be merged.
struct MergeQueue {
    buffers: Vec<UniqueBuffer>,
    /// The sources of the runs of each block, and whether these are sorted.
    sources: VecDeque<(Vec<RunSource>, bool)>,
}

impl MergeQueue {
    fn of(blocks: Vec<Block>) -> MergeQueue {
        let mut views: BTreeMap<usize, Vec<(usize, usize, Slice)>> = BTreeMap::new();
        let mut sources: Vec<(Vec<Option<RunSource>>, bool)> = Vec::new();
        for (block, Block { runs, sorted, .. }) in blocks.into_iter().enumerate() {
            sources.push((runs.iter().map(|_| None).collect(), sorted));
            for (run, Run { data: slice, .. }) in runs.into_iter().enumerate() {
                let views = views.entry(slice.buffer_address()).or_default();
                views.push((block, run, slice));
            }
        }
        let mut buffers = Vec::new();
        for views in views.into_values() {
            let (at, slices): (Vec<_>, Vec<_>) = (views.into_iter())
                .map(|(block, run, slice)| ((block, run), slice))
                .unzip();
            let of_buffer: Vec<RunSource> = match Slice::into_unique_parts(slices) {
                Err(slices) => slices.into_iter().map(RunSource::Shared).collect(),
                Ok((buffer, unread)) => {
                    let source = |part| RunSource::Unique {
                        buffer: buffers.len(),
                        part,
                    };
                    let of_buffer = (0..unread.len()).map(source).collect();
                    let mut unique = UniqueBuffer { buffer, unread };
                    unique.release_read();
                    buffers.push(unique);
                    of_buffer
                }
            };
            for ((block, run), source) in at.into_iter().zip(of_buffer) {
                sources[block].0[run] = Some(source);
            }
        }
        MergeQueue {
            buffers,
            sources: (sources.into_iter())
                .map(|(runs, sorted)| (runs.into_iter().flatten().collect(), sorted))
                .collect(),
        }
    }

    /// Returns the unread part of each run of the first block.
    fn unread_runs(&self) -> Vec<&[u8]> {
        let sources = self.sources.front().into_iter().flat_map(|(runs, _)| runs);
        let rest = sources.map(|source| match source {
            RunSource::Unique { buffer, part } => {
                let UniqueBuffer { buffer, unread } = &self.buffers[*buffer];
                &buffer[unread[*part].clone()]
            }
            RunSource::Shared(slice) => slice,
        });
        rest.collect()
    }

    /// Removes the given number of bytes from the start of each run of the first block.
    fn advance(&mut self, read: impl Iterator<Item = usize>) {
        let sources = self
            .sources
            .front_mut()
            .into_iter()
            .flat_map(|(runs, _)| runs);
        for (source, read) in sources.zip(read) {
            match source {
                RunSource::Unique { buffer, part } => {
                    self.buffers[*buffer].unread[*part].start += read
                }
                RunSource::Shared(slice) => *slice = slice.part(read..slice.len()),
            }
        }
        self.buffers.iter_mut().for_each(UniqueBuffer::release_read);
    }

    /// Returns the number of recyclable bytes that the first block's result may take, if each block takes an
    /// equal part.
    fn recyclable(&self) -> usize {
        let all = self.buffers.iter().map(|unique| unique.buffer.donatable());
        all.sum::<usize>() / self.sources.len().max(1)
    }

    /// Returns the number of recyclable bytes that need not be read any more.
    fn released(&self) -> usize {
        let released = self.buffers.iter().map(|unique| {
            let unread = || unique.unread.iter().filter(|part| !part.is_empty());
            let from = unread().map(|part| part.start).min().unwrap_or(0);
            let to = unread().map(|part| part.end).max().unwrap_or(0);
            // Both ends share a unit with memory that is released.
            unique
                .buffer
                .donatable()
                .saturating_sub(to - from + 2 * UNIT)
        });
        released.sum()
    }

    /// Merges the runs of the first block, or sorts them, and removes the block from the queue.
    fn merge(&mut self, kernel: &dyn Kernel) -> Result<Slice> {
        let is_sorted = self.sources.front().is_none_or(|(_, sorted)| *sorted);
        let is_sorted = is_sorted || mutant(Mutant::DividedPiecesMerged);
        let bytes = self.unread_runs().iter().map(|run| run.len()).sum();
        if !is_sorted {
            match self.sort_together(bytes, kernel) {
                // A merge takes less memory.
                Err(error) if error.status == Status::Memory => self.sort_each(kernel)?,
                sorted => return sorted,
            }
        }
        let (mut out, chunk_bytes) = match self.recyclable() {
            0 => (Buffer::unset(bytes)?, bytes),
            recyclable => (
                Buffer::reserved(bytes, recyclable)?,
                chunk_size(bytes, kernel),
            ),
        };
        let size = kernel.record_bytes();
        let mut written = 0;
        while written < bytes {
            let count = (chunk_bytes / size).clamp(1, (bytes - written) / size);
            let end = written + count * size;
            let inputs = self.buffers.iter_mut().map(|unique| &mut unique.buffer);
            out.commit(end, &mut inputs.collect::<Vec<_>>());
            let rest = self.unread_runs();
            let counts = if end < bytes {
                kernel.select(&rest, count)
            } else {
                rest.iter().map(|rest| rest.len() / size).collect()
            };
            let parts = rest.iter().zip(&counts);
            let parts: Vec<&[u8]> = parts.map(|(rest, counts)| &rest[..counts * size]).collect();
            kernel.merge(&parts, &mut out[written..end])?;
            self.advance(counts.into_iter().map(|counts| counts * size));
            written = end;
        }
        self.sources.pop_front();
        Ok(out.into())
    }

    /// Sorts the runs of the first block together, and removes it from the queue. If the memory for all of its `bytes` is
    /// refused, the runs stay.
    fn sort_together(&mut self, bytes: usize, kernel: &dyn Kernel) -> Result<Slice> {
        let mut out = match self.released() {
            0 => Buffer::unset(bytes)?,
            released => Buffer::reserved(bytes, released)?,
        };
        let inputs = self.buffers.iter_mut().map(|unique| &mut unique.buffer);
        out.commit(bytes, &mut inputs.collect::<Vec<_>>());
        let runs = self.unread_runs();
        let read: Vec<usize> = runs.iter().map(|run| run.len()).collect();
        kernel.sort_together(&runs, &mut out)?;
        self.advance(read.into_iter());
        self.sources.pop_front();
        Ok(out.into())
    }

    /// Sorts each run of the first block by itself. A run with another owner is copied.
    fn sort_each(&mut self, kernel: &dyn Kernel) -> Result<()> {
        let sources = self.sources.front_mut().into_iter();
        for source in sources.flat_map(|(runs, _)| runs) {
            match source {
                RunSource::Unique { buffer, part } => {
                    let UniqueBuffer { buffer, unread } = &mut self.buffers[*buffer];
                    kernel.sort_part(&mut buffer[unread[*part].clone()])?;
                }
                RunSource::Shared(run) => {
                    let mut copy = Buffer::copy_of(run)?;
                    kernel.sort(&mut copy)?;
                    *run = copy.into();
                }
            }
        }
        Ok(())
    }
}

/// Returns the size of a chunk of a result of `bytes` bytes: 1/32 of it. With several threads, which divide
/// each chunk into tasks, a chunk is large enough for the tasks of all threads.
fn chunk_size(bytes: usize, kernel: &dyn Kernel) -> usize {
    const SMALLEST_TASK: usize = 1 << 20;
    let chunk_bytes =
        (bytes / 32).clamp(SMALLEST_CHUNK, LARGEST_CHUNK) / SMALLEST_CHUNK * SMALLEST_CHUNK;
    match kernel.thread_pool().thread_count() {
        1 => chunk_bytes,
        threads => chunk_bytes.max(threads * TASKS_PER_THREAD * SMALLEST_TASK),
    }
}

/// Brings the records of each block into one sorted run, block after block. Records with equal keys keep the order of
/// the runs.
pub(super) fn merged_each(kernel: &dyn Kernel, blocks: Vec<Block>) -> Result<Vec<Slice>> {
    // A block of one run is not copied.
    let is_one_run = |block: &Block| block.runs.len() == 1;
    let alone: Vec<bool> = blocks.iter().map(is_one_run).collect();
    let (one_run, several): (Vec<Block>, Vec<Block>) = blocks.into_iter().partition(is_one_run);
    let mut one_run = one_run.into_iter().peekable();
    let mut several = MergeQueue::of(several);
    let mut merged = Vec::with_capacity(alone.len());
    for is_alone in alone {
        merged.push(match one_run.next_if(|_| is_alone) {
            Some(block) => super::sorted(block, kernel)?.into_records(),
            None => several.merge(kernel)?,
        });
    }
    Ok(merged)
}

/// Merges a block's records into one run. Records with equal keys keep the order of the runs.
pub(super) fn merged(kernel: &dyn Kernel, block: Block) -> Result<Slice> {
    let mut merged = merged_each(kernel, vec![block])?;
    merged
        .pop()
        .ok_or_else(|| Error::internal("merging one block returned no block"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::Rank;
    use ftsort_kernels::kernel::kernel_of;
    use ftsort_kernels::memory::MemoryBudget;
    use ftsort_kernels::record::KeyKind;

    fn pairs_by_first() -> Box<dyn Kernel> {
        kernel_of(8, KeyKind::U32)
    }

    /// Returns runs of pairs with few different keys; the second numbers count all records in the order of
    /// the runs.
    fn runs(lengths: &[usize]) -> Vec<Vec<u8>> {
        let mut next = 0_u32;
        let run = |len: &usize| {
            let mut keys: Vec<u32> = (0..*len as u32)
                .map(|n| n.wrapping_mul(2654435761) >> 20)
                .collect();
            keys.sort_unstable();
            let records = keys.iter().flat_map(|key| {
                next += 1;
                [key.to_ne_bytes(), next.to_ne_bytes()].concat()
            });
            records.collect()
        };
        lengths.iter().map(run).collect()
    }

    /// Merges runs of the given lengths, each of which lies between other data in its buffer, and compares
    /// the result. The runs in `shared` have a second owner, which must still see its records. Returns the
    /// size of the result in bytes.
    fn check_merged(lengths: &[usize], shared: &[usize]) -> usize {
        const OTHER_DATA: usize = (5 << 20) + 8;
        let runs = runs(lengths);
        let mut expected: Vec<[u8; 8]> = runs.concat().as_chunks().0.to_vec();
        expected.sort_by_key(|record| u32::from_ne_bytes(*record.first_chunk().unwrap()));
        let slices = runs.iter().enumerate().map(|(index, run)| {
            let (before, behind) = [(0, 0), (OTHER_DATA, 0), (OTHER_DATA, OTHER_DATA)][index % 3];
            let mut buffer = Buffer::zeroed(before + run.len() + behind).unwrap();
            buffer[before..][..run.len()].copy_from_slice(run);
            Slice::from(buffer).part(before..before + run.len())
        });
        let slices: Vec<Slice> = slices.collect();
        let held: Vec<Slice> = shared.iter().map(|run| slices[*run].clone()).collect();
        let runs_of_ranks = (0..).zip(slices);
        let runs_of_ranks = runs_of_ranks.map(|(rank, data)| Run::new(Rank(rank), 0, data));
        let block = Block::of_sorted(runs_of_ranks.collect());
        let kernel = pairs_by_first();
        let out = merged(&*kernel, block).unwrap();
        assert!(*out == *expected.as_flattened());
        for (run, slice) in shared.iter().zip(&held) {
            assert!(**slice == *runs[*run]);
        }
        out.len()
    }

    /// The result takes the memory of other data in the buffers of the runs, and new memory beyond that. If there is too
    /// little, the runs are sorted in place and merged, which those of another owner cannot be.
    #[test]
    fn the_result_of_runs_that_are_not_sorted_counts_against_the_limit() {
        const LEN: usize = 8 * UNIT;
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        let kernel = kernel_of(8, KeyKind::U64);
        let keys: Vec<u64> = (0..2 * LEN as u64 / 8)
            .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        let mut expected = keys.clone();
        expected.sort_unstable();
        // Returns how much more memory was in use at the most; None if the limit did not suffice.
        let peak_within = |other_data: usize, is_shared: bool, limit: usize| {
            budget.set_limit(usize::MAX);
            let runs = (0..).zip(keys.chunks(LEN / 8)).map(|(rank, keys)| {
                let mut buffer = Buffer::zeroed(other_data + LEN).unwrap();
                buffer[other_data..].copy_from_slice(bytemuck::cast_slice(keys));
                let data = Slice::from(buffer).part(other_data..other_data + LEN);
                Run::new(Rank(rank), 0, data)
            });
            let block = Block {
                sorted: false,
                ..Block::of_sorted(runs.collect())
            };
            let _other_owner = is_shared.then(|| block.clone());
            let before = budget.used();
            budget.set_limit(before + limit);
            budget.start_peak();
            let sorted = merged(&*kernel, block);
            let sorted = sorted.inspect_err(|error| assert_eq!(error.status, Status::Memory));
            assert!(bytemuck::cast_slice::<u8, u64>(&sorted.ok()?) == expected);
            Some(budget.peak() - before)
        };
        for (other_data, limit) in [(0, 2 * LEN), (0, LEN), (LEN, 2 * UNIT)] {
            let peak = peak_within(other_data, false, limit);
            assert!(peak.is_some_and(|peak| peak <= limit), "{peak:?} {limit}");
        }
        assert!(peak_within(0, true, 2 * LEN).is_some());
        assert_eq!(peak_within(0, true, 2 * LEN - UNIT), None);
    }

    /// Three sorted buffers each have a part in each of four blocks.
    #[test]
    fn merges_blocks_that_share_buffers_in_order() {
        const PART: usize = 3 << 20;
        let kernel = kernel_of(4, KeyKind::U32);
        let keys = |of: usize| (0..PART as u32).map(move |n| n * 3 + of as u32);
        let buffer = |of: usize| {
            Slice::copy_of(&keys(of).flat_map(u32::to_ne_bytes).collect::<Vec<u8>>()).unwrap()
        };
        let buffers: Vec<Slice> = (0..3).map(buffer).collect();
        let run = |(rank, buffer): (u32, &Slice), part: usize| {
            Run::new(Rank(rank), 0, buffer.part(part * PART..(part + 1) * PART))
        };
        let block = |part: usize| {
            let runs = (0..).zip(&buffers).map(|of| run(of, part));
            Block::of_sorted(runs.collect())
        };
        let mut blocks: Vec<Block> = (0..4).map(block).collect();
        // A single run is not copied, so its buffer is kept.
        blocks[2].runs.truncate(1);
        drop(buffers);
        let merged = merged_each(&*kernel, blocks).unwrap();
        for (part, merged) in (0..).zip(&merged) {
            let each = if part == 2 { 3 } else { 1 };
            let first = part * (PART as u32 / 4) * 3;
            let count = PART as u32 / 4 * 3 / each;
            let expected = (0..count).flat_map(|n| (first + n * each).to_ne_bytes());
            assert!(merged.iter().copied().eq(expected), "{part}");
        }
    }

    #[test]
    fn merges_records_that_are_larger_than_a_chunk() {
        const RECORD: usize = SMALLEST_CHUNK + (1 << 20);
        let runs = (0..2_u32).map(|run| {
            let mut buffer = Buffer::zeroed(3 * RECORD).unwrap();
            for (record, key) in buffer.chunks_exact_mut(RECORD).zip((run..).step_by(2)) {
                record[..4].copy_from_slice(&key.to_ne_bytes());
            }
            Run::new(Rank(run), 0, buffer.into())
        });
        let block = Block::of_sorted(runs.collect());
        let out = merged(&*kernel_of(RECORD, KeyKind::U32), block).unwrap();
        let key = |record: &[u8]| u32::from_ne_bytes(*record.first_chunk().unwrap());
        assert!(out.chunks_exact(RECORD).map(key).eq(0..6));
    }

    #[test]
    fn merges_runs_of_any_size_and_keeps_shared_runs() {
        const MANY: usize = (6 << 20) / 8;
        check_merged(&[], &[]);
        check_merged(&[5, 0, 700], &[]);
        check_merged(&[MANY, MANY + 77, 3, MANY], &[]);
        check_merged(&[MANY, 2 * MANY, 1, MANY], &[0, 3]);
        check_merged(&[MANY, MANY], &[0, 1]);
        assert_eq!(check_merged(&[MANY, 3 * MANY], &[1]), 4 * MANY * 8);
    }
}

//! The runs of a block become one, in little more memory than the runs have.
//!
//! The merge goes on in shares of the result. As soon as one is done, what was read for it gives its
//! memory to the next ones, unless somebody else holds on to it; blocks that are merged one after the other
//! may have their runs in the same buffers. Must never: read a record twice.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::block::Block;
use ftsort_kernels::buffer::{Buffer, Slice, UNIT};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::{Kernel, TASKS_PER_THREAD};

/// A share is not smaller nor larger than this, and a multiple of the least: cuts are looked for anew in each, and
/// memory comes in units of that size.
const LEAST: usize = UNIT;
const MOST: usize = 32 << 20;

/// A buffer of which nobody else needs anything, and what of it is still to be read.
struct UniqueBuffer {
    buffer: Buffer,
    left: Vec<Range<usize>>,
}

impl UniqueBuffer {
    /// What has been read may serve others.
    fn spend(&mut self) {
        let left = || self.left.iter().filter(|part| !part.is_empty());
        let end = self.buffer.len();
        let from = left().map(|part| part.start).min();
        let to = left().map(|part| part.end).max();
        self.buffer
            .release_around(from.unwrap_or(end)..to.unwrap_or(end));
    }
}

/// Where what is left of a run is.
enum Place {
    /// In this buffer, as this part of what is left of it.
    UniqueBuffer {
        buffer: usize,
        part: usize,
    },
    Shared(Slice),
}

/// The runs of the blocks that are to be merged.
struct Runs {
    buffers: Vec<UniqueBuffer>,
    /// Block by block.
    places: VecDeque<Vec<Place>>,
}

impl Runs {
    fn of(blocks: Vec<Vec<Slice>>) -> Runs {
        let mut views: BTreeMap<usize, Vec<(usize, usize, Slice)>> = BTreeMap::new();
        let mut places: Vec<Vec<Option<Place>>> = Vec::new();
        for (block, runs) in blocks.into_iter().enumerate() {
            places.push(runs.iter().map(|_| None).collect());
            for (run, slice) in runs.into_iter().enumerate() {
                let views = views.entry(slice.buffer_address()).or_default();
                views.push((block, run, slice));
            }
        }
        let mut buffers = Vec::new();
        for views in views.into_values() {
            let (at, slices): (Vec<_>, Vec<_>) = (views.into_iter())
                .map(|(block, run, slice)| ((block, run), slice))
                .unzip();
            let found: Vec<Place> = match Slice::into_unique_parts(slices) {
                Err(slices) => slices.into_iter().map(Place::Shared).collect(),
                Ok((buffer, left)) => {
                    let place = |part| Place::UniqueBuffer {
                        buffer: buffers.len(),
                        part,
                    };
                    let found = (0..left.len()).map(place).collect();
                    let mut sole = UniqueBuffer { buffer, left };
                    sole.spend();
                    buffers.push(sole);
                    found
                }
            };
            for ((block, run), place) in at.into_iter().zip(found) {
                places[block][run] = Some(place);
            }
        }
        Runs {
            buffers,
            places: (places.into_iter())
                .map(|runs| runs.into_iter().flatten().collect())
                .collect(),
        }
    }

    /// What is left of each run of the first block.
    fn rest(&self) -> Vec<&[u8]> {
        let places = self.places.front().into_iter().flatten();
        let rest = places.map(|place| match place {
            Place::UniqueBuffer { buffer, part } => {
                let UniqueBuffer { buffer, left } = &self.buffers[*buffer];
                &buffer[left[*part].clone()]
            }
            Place::Shared(slice) => slice,
        });
        rest.collect()
    }

    /// So many bytes of each run of the first block have been read.
    fn advance(&mut self, read: impl Iterator<Item = usize>) {
        let places = self.places.front_mut().into_iter().flatten();
        for (place, read) in places.zip(read) {
            match place {
                Place::UniqueBuffer { buffer, part } => {
                    self.buffers[*buffer].left[*part].start += read
                }
                Place::Shared(slice) => *slice = slice.part(read..slice.len()),
            }
        }
        self.buffers.iter_mut().for_each(UniqueBuffer::spend);
    }

    /// How many bytes of memory the first block's result can get of what is read for it, if each block has an
    /// equal part of that.
    fn to_spend(&self) -> usize {
        let all = self.buffers.iter().map(|sole| sole.buffer.donatable());
        all.sum::<usize>() / self.places.len().max(1)
    }

    /// Merges the runs of the first block, so that the next one is the first.
    fn merge(&mut self, kernel: &dyn Kernel) -> Result<Slice> {
        let bytes = self.rest().iter().map(|run| run.len()).sum();
        let (mut out, share) = match self.to_spend() {
            0 => (Buffer::unset(bytes)?, bytes),
            to_spend => (Buffer::reserved(bytes, to_spend)?, share_of(bytes, kernel)),
        };
        let size = kernel.record_bytes();
        let mut written = 0;
        while written < bytes {
            let count = (share / size).clamp(1, (bytes - written) / size);
            let end = written + count * size;
            let spent = self.buffers.iter_mut().map(|sole| &mut sole.buffer);
            out.commit(end, &mut spent.collect::<Vec<_>>());
            let rest = self.rest();
            let taken = match end < bytes {
                true => kernel.select(&rest, count),
                false => rest.iter().map(|rest| rest.len() / size).collect(),
            };
            let parts = rest.iter().zip(&taken);
            let parts: Vec<&[u8]> = parts.map(|(rest, taken)| &rest[..taken * size]).collect();
            kernel.merge(&parts, &mut out[written..end])?;
            self.advance(taken.into_iter().map(|taken| taken * size));
            written = end;
        }
        self.places.pop_front();
        Ok(out.into())
    }
}

/// How many bytes of a result of so many are one share: a thirty-second, but on several threads, where each share is
/// cut into tasks, as many as are worth that.
fn share_of(bytes: usize, kernel: &dyn Kernel) -> usize {
    const LEAST_TASK: usize = 1 << 20;
    let share = (bytes / 32).clamp(LEAST, MOST) / LEAST * LEAST;
    match kernel.thread_pool().thread_count() {
        1 => share,
        threads => share.max(threads * TASKS_PER_THREAD * LEAST_TASK),
    }
}

/// The records of each block as one run, for one block after the other; equal keys in the order of the runs.
pub(super) fn merged_each(kernel: &dyn Kernel, blocks: Vec<Block>) -> Result<Vec<Slice>> {
    let runs = blocks.into_iter().map(|block| {
        let runs = block.runs.into_iter().map(|run| run.data);
        runs.collect::<Vec<Slice>>()
    });
    let runs: Vec<Vec<Slice>> = runs.collect();
    // What is one run already stays where it is.
    let single: Vec<Option<Slice>> = (runs.iter())
        .map(|runs| match &runs[..] {
            [run] => Some(run.clone()),
            _ => None,
        })
        .collect();
    let several = runs.into_iter().filter(|runs| runs.len() != 1).collect();
    let mut several = Runs::of(several);
    let merged = single.into_iter().map(|single| match single {
        Some(run) => Ok(run),
        None => several.merge(kernel),
    });
    merged.collect()
}

/// A block's records as one run; equal keys in the order of the runs.
pub(super) fn merged(kernel: &dyn Kernel, block: Block) -> Result<Slice> {
    let mut merged = merged_each(kernel, vec![block])?;
    merged
        .pop()
        .ok_or_else(|| Error::new(Status::Internal, "a block is gone"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Run;
    use crate::members::Rank;
    use ftsort_kernels::kernel::kernel_of;
    use ftsort_kernels::record::KeyKind;

    fn pairs_by_first() -> Box<dyn Kernel> {
        kernel_of(8, KeyKind::U32)
    }

    /// Runs of pairs with few different keys; the second numbers count all records in the order of the
    /// runs.
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

    /// Each run lies between others in its buffer.
    fn merged_as_expected(lengths: &[usize], shared: &[usize]) -> usize {
        const BESIDE: usize = (5 << 20) + 8;
        let runs = runs(lengths);
        let mut expected: Vec<[u8; 8]> = runs.concat().as_chunks().0.to_vec();
        expected.sort_by_key(|record| u32::from_ne_bytes(*record.first_chunk().unwrap()));
        let slices = runs.iter().enumerate().map(|(index, run)| {
            let (before, behind) = [(0, 0), (BESIDE, 0), (BESIDE, BESIDE)][index % 3];
            let mut buffer = Buffer::zeroed(before + run.len() + behind).unwrap();
            buffer[before..][..run.len()].copy_from_slice(run);
            Slice::from(buffer).part(before..before + run.len())
        });
        let slices: Vec<Slice> = slices.collect();
        let held: Vec<Slice> = shared.iter().map(|run| slices[*run].clone()).collect();
        let block = Block {
            runs: (0..)
                .zip(slices)
                .map(|(rank, data)| Run {
                    origin: Rank(rank),
                    start: 0,
                    data,
                })
                .collect(),
            sorted: true,
            digest: None,
        };
        let kernel = pairs_by_first();
        let out = merged(&*kernel, block).unwrap();
        assert!(*out == *expected.as_flattened());
        for (run, slice) in shared.iter().zip(&held) {
            assert!(**slice == *runs[*run]);
        }
        out.len()
    }

    /// Each of three buffers, sorted, has a part in each of four blocks.
    #[test]
    fn blocks_that_share_buffers_are_merged_one_after_the_other() {
        const PART: usize = 3 << 20;
        let kernel = kernel_of(4, KeyKind::U32);
        let keys = |of: usize| (0..PART as u32).map(move |n| n * 3 + of as u32);
        let buffer = |of: usize| {
            Slice::from(
                Buffer::copy_of(&keys(of).flat_map(u32::to_ne_bytes).collect::<Vec<u8>>()).unwrap(),
            )
        };
        let buffers: Vec<Slice> = (0..3).map(buffer).collect();
        let run = |(rank, buffer): (u32, &Slice), part: usize| Run {
            origin: Rank(rank),
            start: 0,
            data: buffer.part(part * PART..(part + 1) * PART),
        };
        let block = |part: usize| {
            let runs = (0..).zip(&buffers).map(|of| run(of, part));
            Block::of_sorted(runs.collect())
        };
        let mut blocks: Vec<Block> = (0..4).map(block).collect();
        // A run alone stays where it is, and its buffer with it.
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
    fn runs_of_any_size_become_one_and_shared_ones_stay() {
        const MANY: usize = (6 << 20) / 8;
        merged_as_expected(&[], &[]);
        merged_as_expected(&[5, 0, 700], &[]);
        merged_as_expected(&[MANY, MANY + 77, 3, MANY], &[]);
        merged_as_expected(&[MANY, 2 * MANY, 1, MANY], &[0, 3]);
        merged_as_expected(&[MANY, MANY], &[0, 1]);
        assert_eq!(merged_as_expected(&[MANY, 3 * MANY], &[1]), 4 * MANY * 8);
    }
}

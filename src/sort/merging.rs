//! The runs of a block become one, in little more memory than the runs have.
//!
//! The merge goes on in shares of the result. As soon as one is done, what was read for it gives its
//! memory to the next ones, unless somebody else holds on to it. Must never: read a record twice.

use std::ops::{Deref, Range};

use crate::block::Block;
use crate::buffer::{Buffer, Slice};
use crate::error::Result;
use crate::kernel::Kernel;

/// A share is a thirty-second of the result, but not smaller nor larger than this, and a multiple of the least:
/// cuts are looked for anew in each, and memory comes in units of that size.
const LEAST: usize = 2 << 20;
const MOST: usize = 32 << 20;

/// The bytes of a run.
enum Source {
    /// This part of a buffer, of which nobody else needs anything.
    Sole(Buffer, Range<usize>),
    Shared(Slice),
}

impl From<Slice> for Source {
    fn from(slice: Slice) -> Source {
        match slice.sole_part() {
            Err(shared) => Source::Shared(shared),
            Ok((mut buffer, part)) => {
                if part != (0..buffer.len()) {
                    buffer.spend_around(part.clone());
                }
                Source::Sole(buffer, part)
            }
        }
    }
}

impl Deref for Source {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Source::Sole(buffer, part) => &buffer[part.clone()],
            Source::Shared(slice) => slice,
        }
    }
}

impl Source {
    fn sole(&mut self) -> Option<&mut Buffer> {
        match self {
            Source::Sole(buffer, _) => Some(buffer),
            Source::Shared(_) => None,
        }
    }

    /// So many bytes have been read.
    fn spend(&mut self, read: usize) {
        if let Source::Sole(buffer, part) = self {
            buffer.spend(part.start + read);
        }
    }
}

/// A block's records as one run; equal keys in the order of the runs.
pub(super) fn merged(kernel: &dyn Kernel, mut block: Block) -> Result<Slice> {
    if block.runs.len() == 1 {
        return Ok(block.runs.remove(0).data);
    }
    let bytes = block.bytes();
    let mut runs: Vec<Source> = block.runs.into_iter().map(|run| run.data.into()).collect();
    let to_spend = runs.iter_mut().filter_map(Source::sole);
    let to_spend = to_spend.map(|run| run.spendable()).sum();
    let (mut out, share) = match to_spend {
        0 => (Buffer::unset(bytes)?, bytes),
        _ => (
            Buffer::later(bytes, to_spend)?,
            (bytes / 32).clamp(LEAST, MOST) / LEAST * LEAST,
        ),
    };
    let size = kernel.record_bytes();
    let mut read = vec![0; runs.len()];
    let mut written = 0;
    while written < bytes {
        let count = (share / size).clamp(1, (bytes - written) / size);
        let end = written + count * size;
        let mut sole: Vec<&mut Buffer> = runs.iter_mut().filter_map(Source::sole).collect();
        out.reach(end, &mut sole);
        let rest = runs.iter().zip(&read).map(|(run, read)| &run[*read..]);
        let rest: Vec<&[u8]> = rest.collect();
        let taken = match end < bytes {
            true => kernel.select(&rest, count),
            false => rest.iter().map(|rest| rest.len() / size).collect(),
        };
        let parts = rest.iter().zip(&taken);
        let parts: Vec<&[u8]> = parts.map(|(rest, taken)| &rest[..taken * size]).collect();
        kernel.merge(&parts, &mut out[written..end])?;
        for ((run, read), taken) in runs.iter_mut().zip(&mut read).zip(taken) {
            *read += taken * size;
            run.spend(*read);
        }
        written = end;
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Run;
    use crate::kernel::kernel_of;
    use crate::members::Rank;
    use crate::record::KeyKind;

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

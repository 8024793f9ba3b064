//! Many arrays sorted in one job: each by itself, with the rounds, messages and agreements of one sort.
//!
//! The input of a rank consists of its parts of all arrays, one after the other. All ranks know how many records of
//! each array each rank has ([`ArrayTable`]), so the origin and the start of a run tell its array, and blocks look as
//! those of other sorts do. Every array is cut as sample sort cuts it, merged and placed. A proposal or a decision
//! consists of those of all arrays, and a part that is sent consists of the parts of all arrays.
//!
//! A node proposes about [`SAMPLES`] samples, of each array in proportion to its records there, and at least
//! [`LEAST_SAMPLES`] of each. Nodes take their samples at different places, which differ between arrays, and cuts of
//! different arrays are rounded differently, so that the shares of all arrays together are in proportion, and the
//! records of arrays with fewer records than nodes are spread over all nodes. A block of the result has one run for each
//! array. Must never: compare records of two arrays, or move a record from one array to another.

use std::sync::Arc;

use super::key_bytes::KeyBytes;
use super::merge_and_place::{block_start, block_starts, encoded_cuts, total_records};
use super::pivot::{self, Cut, Division, WHOLE};
use super::{DivideFirst, MergeAndPlace, SampleSort};
use crate::block::{Block, Run};
use crate::engine::{Algorithm, RoundContext, Split, Step, Subcube};
use crate::members::Rank;
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::Kernel;

/// The number of samples of a node, of all arrays together.
const SAMPLES: usize = 1 << 14;

/// The least number of samples of an array on a node that has so many of its records.
const LEAST_SAMPLES: usize = 16;

/// Arrays are sorted and merged in tasks of about this many bytes.
const TASK_BYTES: usize = 1 << 18;

/// The arrays of a job: the order of each, and how many records each rank has of it.
#[derive(Debug)]
pub struct ArrayTable {
    /// The index of the kernel of each array.
    orders: Vec<usize>,
    /// The size of a record of any array.
    record_bytes: usize,
    /// For each rank the position of each array in its input, in records, and the end of the input. Empty for a rank
    /// without an input.
    starts: Vec<Vec<u64>>,
}

impl ArrayTable {
    /// Makes a table of arrays, at least one, of which `orders` has the index of the kernel. `counts`: the records of
    /// each array on each rank; empty for a rank without an input.
    pub fn new(
        orders: Vec<usize>,
        record_bytes: usize,
        counts: impl IntoIterator<Item = Vec<u64>>,
    ) -> ArrayTable {
        let starts = |counts: Vec<u64>| {
            let mut start = 0;
            let ends = counts.iter().map(|count| {
                start = u64::saturating_add(start, *count);
                start
            });
            let first = (!counts.is_empty()).then_some(0);
            first.into_iter().chain(ends).collect()
        };
        ArrayTable {
            orders,
            record_bytes,
            starts: counts.into_iter().map(starts).collect(),
        }
    }

    /// The number of arrays.
    pub fn len(&self) -> usize {
        self.orders.len()
    }

    /// Whether there is no array.
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// The number of bytes of all arrays of each rank.
    pub fn sizes(&self) -> Arc<[u64]> {
        let records = self.starts.iter().map(|starts| starts.last());
        let records = records.map(|records| records.copied().unwrap_or_default());
        let size = self.record_bytes as u64;
        records
            .map(|records| records.saturating_mul(size))
            .collect()
    }

    /// The origin of a run that has records of one array from several ranks: a number that no rank has.
    fn merged_origin(&self, array: usize) -> Rank {
        Rank((self.starts.len() + array) as u32)
    }

    /// Returns the records of each array in a block, whose runs may contain records of several arrays.
    fn by_array(&self, block: &Block) -> Result<Vec<Block>> {
        let size = self.record_bytes;
        let mut arrays = vec![Block::empty(); self.len()];
        let (mut origin, mut array) = (None, 0);
        for run in &block.runs {
            if let Some(merged) = run.origin.index().checked_sub(self.starts.len()) {
                let array = arrays.get_mut(merged).ok_or_else(not_in_table)?;
                array.runs.push(run.clone());
                continue;
            }
            let starts = self.starts.get(run.origin.index());
            let starts = starts.map_or(&[][..], |starts| starts);
            if origin != Some(run.origin) || starts.get(array).is_none_or(|at| *at > run.start) {
                (origin, array) = (Some(run.origin), 0);
            }
            let records = run.data.len() / size;
            let mut taken = 0;
            while taken < records {
                let at = run.start.checked_add(taken as u64);
                let at = at.ok_or_else(not_in_table)?;
                while *starts.get(array + 1).ok_or_else(not_in_table)? <= at {
                    array += 1;
                }
                let rest = usize::try_from(starts[array + 1] - at).unwrap_or(usize::MAX);
                let end = records.min(taken.saturating_add(rest));
                arrays[array].runs.push(Run::new(
                    run.origin,
                    at,
                    run.data.part(taken * size..end * size),
                ));
                taken = end;
            }
        }
        Ok(arrays)
    }
}

fn not_in_table() -> Error {
    Error::internal("a block has more records than its ranks have in the table of arrays")
}

/// The size of the length of an entry.
const LENGTH_BYTES: usize = 4;

/// Encodes a message that consists of one for each array: the length of each (u32), and then each. `Status::Memory` if one
/// is longer than 4 GiB.
fn pack(messages: &[Vec<u8>]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for message in messages {
        let length = u32::try_from(message.len()).map_err(|_| {
            let text = format!("the samples of an array take {} bytes", message.len());
            Error::new(Status::Memory, text)
        })?;
        out.extend(length.to_le_bytes());
    }
    messages.iter().for_each(|message| out.extend(message));
    Ok(out)
}

/// Returns the range of each array's message in one that [`pack`] made for this number of arrays. There is an empty
/// message for each in an empty one, which holds before the first decision.
fn unpack(message: &[u8], arrays: usize) -> Result<Vec<std::ops::Range<usize>>> {
    let undecodable = || Error::internal("a message of several arrays does not decode");
    if message.is_empty() {
        return Ok(vec![0..0; arrays]);
    }
    let mut end = arrays * LENGTH_BYTES;
    let lengths = message.get(..end).ok_or_else(undecodable)?;
    let lengths = lengths.as_chunks::<LENGTH_BYTES>().0.iter();
    let ranges: Vec<_> = lengths
        .map(|length| {
            let start = end;
            end += u32::from_le_bytes(*length) as usize;
            start..end
        })
        .collect();
    (end == message.len())
        .then_some(ranges)
        .ok_or_else(undecodable)
}

/// The sort of all arrays of a table, each by itself.
pub struct SortMany<'a> {
    /// The arrays.
    pub arrays: &'a ArrayTable,
    /// A kernel for each order.
    pub kernels: &'a [Box<dyn Kernel>],
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// Whether the shares of each array are equal to one record.
    pub dense: bool,
}

impl SortMany<'_> {
    fn nodes(&self) -> usize {
        1 << self.dimension
    }

    /// The order of an array.
    fn kernel(&self, array: usize) -> &dyn Kernel {
        &*self.kernels[self.arrays.orders[array]]
    }

    /// The order of each array.
    pub fn orders(&self) -> Vec<&dyn Kernel> {
        let arrays = 0..self.arrays.len();
        arrays.map(|array| self.kernel(array)).collect()
    }

    /// Passes the sort of one array to `work`.
    fn sort_of<R>(&self, array: usize, work: impl FnOnce(&dyn Algorithm) -> R) -> R {
        let kernel = self.kernel(array);
        let sort = SampleSort {
            kernel,
            dimension: self.dimension,
            levels: 1,
            divide_first: DivideFirst::Never,
        };
        work(&MergeAndPlace {
            sort: &sort,
            kernel,
            dimension: self.dimension,
            dense: self.dense,
            filter: None,
        })
    }

    /// The sum of a limit over all arrays, with the length of each part. Keys of other arrays may be longer.
    fn sum_of_limits(&self, limit: impl Fn(&dyn Algorithm) -> usize) -> usize {
        let arrays = 0..self.arrays.len();
        let limits = arrays.map(|array| LENGTH_BYTES + self.sort_of(array, &limit));
        limits.sum()
    }

    /// As [`SortMany::sort_of`], for any array: all have the same number of rounds and of runs.
    fn any_sort<R>(&self, work: impl FnOnce(&dyn Algorithm) -> R) -> R {
        self.sort_of(0, work)
    }

    /// Calls `work` with the number, the context and the records of each array.
    fn for_each<R>(
        &self,
        at: &RoundContext<'_>,
        block: &Block,
        mut work: impl FnMut(usize, &RoundContext<'_>, Block) -> Result<R>,
    ) -> Result<Vec<R>> {
        let decisions = unpack(at.decision, self.arrays.len())?;
        let parts = self.arrays.by_array(block)?;
        let arrays = decisions.into_iter().zip(parts).enumerate();
        let results = arrays.map(|(array, (decision, part))| {
            let at = RoundContext::new(at.round, at.node, &at.decision[decision]);
            work(array, &at, part)
        });
        results.collect()
    }

    /// The number of samples of an array on a node that has `records` records of it and `total` records of all.
    fn samples(&self, records: usize, total: usize) -> usize {
        let proportional = records as u128 * SAMPLES as u128 / total.max(1) as u128;
        let division = Division {
            nodes: self.nodes(),
            parts: self.nodes(),
        };
        let most = pivot::most_samples(division, self.arrays.record_bytes);
        records.min((proportional as usize).clamp(LEAST_SAMPLES.min(most), most))
    }

    /// Merges the runs of each array into one. The runs of the result share a buffer.
    fn merged(&self, block: Block) -> Result<Block> {
        let arrays = self.arrays.by_array(&block)?;
        if arrays.iter().all(|array| array.runs.len() <= 1) {
            return Ok(block);
        }
        let sizes: Vec<usize> = arrays.iter().map(Block::bytes).collect();
        let mut out = Buffer::unset(block.bytes())?;
        let tasks = tasks(&mut out, sizes.iter().copied(), &arrays);
        let pool = self.kernel(0).thread_pool();
        let merged = pool.map(tasks, |task| {
            task.into_iter().try_for_each(|(array, part, out)| {
                let runs: Vec<&[u8]> = part.runs.iter().map(|run| &*run.data).collect();
                self.kernel(array).merge(&runs, out)
            })
        });
        merged.into_iter().collect::<Result<()>>()?;
        let out = Slice::from(out);
        let mut end = 0;
        let runs = sizes.into_iter().enumerate().map(|(array, size)| {
            let start = end;
            end += size;
            Run::new(self.arrays.merged_origin(array), 0, out.part(start..end))
        });
        Ok(Block::of_sorted(runs.collect()))
    }

    /// Sorts the parts of a rank's input in place.
    fn sort_parts(&self, input: &mut [u8], starts: &[u64]) -> Result<()> {
        let size = self.arrays.record_bytes;
        let records = starts.last().copied().unwrap_or(0);
        if records.checked_mul(size as u64) != Some(input.len() as u64) {
            return Err(not_in_table());
        }
        let sizes = starts
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as usize * size);
        let arrays = vec![(); self.arrays.len()];
        let tasks = tasks(input, sizes, &arrays);
        let pool = self.kernel(0).thread_pool();
        let sorted = pool.map(tasks, |task| {
            let mut parts = task.into_iter();
            parts.try_for_each(|(array, (), part)| self.kernel(array).sort_part(part))
        });
        sorted.into_iter().collect()
    }
}

/// The number of an array, a value that belongs to it, and its place in a buffer.
type Part<'a, T> = (usize, &'a T, &'a mut [u8]);

/// Divides a buffer into parts of these sizes, one for each array, and groups the parts into tasks.
fn tasks<'a, T>(
    mut buffer: &'a mut [u8],
    sizes: impl Iterator<Item = usize>,
    arrays: &'a [T],
) -> Vec<Vec<Part<'a, T>>> {
    let mut tasks = Vec::new();
    let (mut task, mut bytes) = (Vec::new(), 0);
    for (index, (size, array)) in sizes.zip(arrays).enumerate() {
        let (part, rest) = std::mem::take(&mut buffer).split_at_mut(size);
        task.push((index, array, part));
        (buffer, bytes) = (rest, bytes + size);
        if bytes >= TASK_BYTES {
            tasks.push(std::mem::take(&mut task));
            bytes = 0;
        }
    }
    tasks.push(task);
    tasks
}

/// Returns numbers below [`WHOLE`] that are spread evenly: the fractions of the multiples of the golden ratio.
fn spread(index: usize) -> u32 {
    const GOLDEN: u32 = 40_503;
    (index as u32).wrapping_mul(GOLDEN) % WHOLE
}

impl Algorithm for SortMany<'_> {
    fn error_of_panic(&self, error: Error) -> Error {
        let kernels = self.kernels.iter();
        kernels.fold(error, |error, kernel| kernel.error_of_panic(error))
    }

    fn rounds(&self) -> u32 {
        self.any_sort(|sort| sort.rounds())
    }

    fn step(&self, round: u32) -> Step {
        self.any_sort(|sort| sort.step(round))
    }

    fn prepare(&self, mut block: Block) -> Result<Block> {
        if block.sorted {
            return Ok(block);
        }
        for run in &mut block.runs {
            let starts = self.arrays.starts.get(run.origin.index());
            let mut input = std::mem::take(&mut run.data).into_buffer()?;
            self.sort_parts(&mut input, starts.map_or(&[][..], |starts| starts))?;
            run.data = input.into();
        }
        block.sorted = true;
        Ok(block)
    }

    fn propose(&self, at: &RoundContext<'_>, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        let total = block.bytes() / self.arrays.record_bytes;
        let proposals = self.for_each(at, block, |array, at, part| {
            if at.round > 1 {
                return self.sort_of(array, |sort| sort.propose(at, subcube, &part));
            }
            let kernel = self.kernel(array);
            let wanted = self.samples(part.bytes() / kernel.record_bytes(), total);
            let place = spread(at.node.0 as usize + array);
            let samples = pivot::spaced_samples(&part, wanted, |_| place, kernel);
            Ok(KeyBytes::of(kernel).of_samples(&samples))
        })?;
        pack(&proposals)
    }

    fn decide(
        &self,
        at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        let ranges = proposals.iter();
        let ranges = ranges.map(|(_, proposal)| unpack(proposal, self.arrays.len()));
        let ranges = ranges.collect::<Result<Vec<_>>>()?;
        let decisions = self.for_each(at, &Block::empty(), |array, at, _| {
            let of_array = proposals.iter().zip(&ranges);
            let of_array: Vec<(Node, Slice)> = of_array
                .map(|((node, proposal), ranges)| (*node, proposal.part(ranges[array].clone())))
                .collect();
            if at.round > 1 {
                return self.sort_of(array, |sort| sort.decide(at, subcube, &of_array));
            }
            let kernel = self.kernel(array);
            let rounding = Some(spread(array));
            let keys = KeyBytes::of(kernel);
            let of_array = keys.whole_samples(&of_array)?;
            let cuts = pivot::rounded(&of_array, &subcube.shares(), rounding, kernel)?;
            Ok(keys.of_cuts(&cuts))
        })?;
        pack(&decisions)
    }

    fn proposal_limit(&self, round: u32) -> usize {
        self.sum_of_limits(|sort| sort.proposal_limit(round))
    }

    fn decision_limit(&self, round: u32) -> usize {
        self.sum_of_limits(|sort| sort.decision_limit(round))
    }

    fn most_runs(&self) -> usize {
        self.arrays.len() * self.any_sort(|sort| sort.most_runs())
    }

    fn most_runs_of_input(&self) -> usize {
        self.arrays.len()
    }

    fn is_recomputable(&self) -> bool {
        true
    }

    fn finishes_locally(&self) -> bool {
        !self.dense
    }

    fn promised(&self, decision: &[u8]) -> Option<u64> {
        let decisions = unpack(decision, self.arrays.len()).ok()?;
        let totals = decisions
            .into_iter()
            .map(|range| total_records(&decision[range]));
        // The decisions may be corrupted.
        Some(totals.fold(0, u64::wrapping_add))
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        let mut parts = vec![Vec::new(); self.nodes()];
        self.for_each(at, block, |array, at, part| {
            let kernel = self.kernel(array);
            let whole;
            let cuts = match at.round {
                1 => {
                    whole = KeyBytes::of(kernel).whole_cuts(at.decision)?;
                    &whole[..]
                }
                _ => encoded_cuts(at.decision, self.nodes())?,
            };
            let cuts = Cut::read_between(cuts, self.nodes(), kernel.record_bytes())?;
            for run in part.runs {
                Cut::divide_run_at_all(&cuts, run, &mut parts, kernel);
            }
            Ok(())
        })?;
        let parts = parts.into_iter().map(Block::of_sorted);
        let mut give: Vec<Block> = parts.map(|part| Block::unite([part])).collect();
        let keep = give.remove(at.node.0 as usize);
        Ok(Split { keep, give })
    }

    fn condensed(&self, round: u32, blocks: Vec<Block>) -> Result<Vec<Block>> {
        if round < self.rounds() || self.dense {
            return Ok(blocks);
        }
        blocks.into_iter().map(|block| self.merged(block)).collect()
    }

    fn join(&self, at: &RoundContext<'_>, keep: Block, got: Block) -> Result<Block> {
        let block = Block::unite([keep, got]);
        if at.round < self.rounds() {
            return Ok(block);
        }
        let block = self.merged(block)?;
        let runs = self.for_each(at, &block, |array, at, part| {
            // An array without records on this node has a run of its own, too.
            Ok(Run::new(
                self.arrays.merged_origin(array),
                block_start(at.decision, at.node)?,
                part.into_records(),
            ))
        })?;
        Ok(Block {
            runs,
            ..Block::empty()
        })
    }
}

/// The places of all shares of the arrays of a finished job.
#[derive(Debug)]
pub struct ArrayPlaces {
    nodes: usize,
    /// The origin of the first array's run in a block of the result.
    first_origin: Rank,
    totals: Vec<u64>,
    /// The position of each node's share in each array.
    starts: Vec<u64>,
}

impl ArrayPlaces {
    /// Reads the decision of the last round of [`SortMany`].
    pub fn read(decision: &[u8], arrays: &ArrayTable, nodes: usize) -> Result<ArrayPlaces> {
        let decisions = unpack(decision, arrays.len())?;
        let decisions: Vec<&[u8]> = decisions
            .into_iter()
            .map(|range| &decision[range])
            .collect();
        let starts = decisions
            .iter()
            .map(|decision| block_starts(decision, nodes));
        let starts: Vec<Vec<u64>> = starts.collect::<Result<_>>()?;
        Ok(ArrayPlaces {
            nodes,
            first_origin: arrays.merged_origin(0),
            starts: starts.concat(),
            totals: decisions
                .iter()
                .map(|decision| total_records(decision))
                .collect(),
        })
    }

    /// The number of records of an array on all ranks.
    pub fn total(&self, array: usize) -> u64 {
        self.totals[array]
    }

    /// Returns the position of a node's share in the sorted array, and its records in the node's block. A block that was
    /// moved has no run for an empty share.
    pub fn share(&self, array: usize, node: Node, block: &Block) -> (u64, Slice) {
        let start = self.starts[array * self.nodes + node.0 as usize];
        let origin = Rank(self.first_origin.0 + array as u32);
        let run = (block.runs).binary_search_by_key(&origin, |run| run.origin);
        let records = run.map(|run| block.runs[run].data.clone());
        (start, records.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;

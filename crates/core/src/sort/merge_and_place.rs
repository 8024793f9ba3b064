//! The last rounds of every sort: they merge each block's runs into one, and compute where each block starts
//! in the whole result.
//!
//! For a dense result the nodes first share their record counts in a round of its own. In the last round the
//! cuts between equal parts, one part for each node that is fault-free now, are found in the blocks that
//! contain them; all nodes send the records that belong to other nodes, and merge those that arrive. If a
//! rank fails in that round, the replayed round computes other parts. Must never: compare records except with
//! the kernel.

use super::at_once::of_inputs;
use super::division::halves;
use super::filter::Filter;
use super::merging::{merged, merged_each};
use super::pivot::{self, Cut, CutPoint};
use super::shared_samples;
use crate::block::{Block, Run};
use crate::engine::{
    Algorithm, AtOnce, Exchange, MadeAtOnce, Proposals, RoundContext, Split, Step, Subcube,
};
use crate::members::Rank;
use crate::vcube::Node;
use crate::wire::{Reader, VARINT_BYTES, Writer};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::kernel::Kernel;

/// A sort followed by its last rounds.
pub struct MergeAndPlace<'a> {
    /// The rounds that move records to their nodes.
    pub sort: &'a dyn Algorithm,
    /// The kernel that compares and merges.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// Whether the result is dense: fault-free nodes get equal parts, and the other nodes none.
    pub dense: bool,
    /// The records that are sorted; None: all of them.
    pub filter: Option<&'a Filter>,
}

/// The position of the result's blocks, decided in the last round.
pub(super) struct ResultLayout {
    total: u64,
    /// The position at which each node's block starts, in records.
    starts: Vec<u64>,
    /// The position at which each node's block started before a dense result moved it.
    old_starts: Vec<u64>,
    /// The cuts between the blocks of a dense result, one fewer than there are nodes; empty if the algorithm
    /// does not split each run by itself.
    cuts: Vec<Cut>,
}

/// The size of the number of a part in a proposal.
const PART_BYTES: usize = 8;

/// The fields of an encoded layout before the starts: the total, and whether blocks move.
const TOTAL_BYTES: usize = 8;
const FIXED_BYTES: usize = TOTAL_BYTES + 1;
const IN_PLACE: u8 = 0;
const MOVED: u8 = 1;

fn undecodable() -> Error {
    Error::internal("the layout of the result does not decode")
}

/// Returns the position at which each node's part starts if the fault-free nodes share all records evenly.
fn even_starts(subcube: &Subcube, total: u64) -> Vec<u64> {
    let parts = subcube.fault_free().count().max(1) as u128;
    let mut fault_free = subcube.fault_free().peekable();
    let mut before = 0_u128;
    let starts = (subcube.first.0..).take(subcube.len()).map(|node| {
        let start = u128::from(total) * before / parts;
        before += u128::from(fault_free.next_if_eq(&Node(node)).is_some());
        start as u64
    });
    starts.collect()
}

impl ResultLayout {
    /// Encodes the layout: the total (u64), whether blocks move (u8), the starts, and, unless all blocks stay where they
    /// are, the old starts and the cuts. Starts ascend, so that their differences are short varints.
    pub(super) fn encode(&self, record_bytes: usize) -> Vec<u8> {
        let is_in_place = self.old_starts == self.starts && self.cuts.is_empty();
        let mut out = Writer::with_capacity(FIXED_BYTES + 3 * self.starts.len());
        out.u64(self.total);
        out.u8(if is_in_place { IN_PLACE } else { MOVED });
        write_starts(&self.starts, &mut out);
        if !is_in_place {
            write_starts(&self.old_starts, &mut out);
            out.bytes(&Cut::encode_all(&self.cuts, record_bytes));
        }
        out.finish()
    }

    pub(super) fn decode(bytes: &[u8], nodes: usize, record_bytes: usize) -> Result<ResultLayout> {
        let (mut fields, is_in_place) = starts_in(bytes).ok_or_else(undecodable)?;
        let mut starts = || {
            fields
                .repeat(nodes, start_after_start())
                .ok_or_else(undecodable)
        };
        let new = starts()?;
        let old_starts = match is_in_place {
            true => new.clone(),
            false => starts()?,
        };
        let cuts = Cut::decode_all(fields.rest(), record_bytes)?;
        if !cuts.is_empty() && (is_in_place || cuts.len() + 1 != nodes) {
            return Err(undecodable());
        }
        Ok(ResultLayout {
            total: total_records(bytes),
            starts: new,
            old_starts,
            cuts,
        })
    }

    /// Divides a node's block into the parts that belong to each node, by their positions in the result.
    fn divide(&self, node: Node, block: &Block, kernel: &dyn Kernel) -> Vec<Block> {
        let records = (block.bytes() / kernel.record_bytes()) as u64;
        let start = self.old_starts[node.0 as usize];
        let mut rest = block.clone();
        let mut taken = 0;
        let mut parts = Vec::with_capacity(self.starts.len());
        for next in self.starts[1..].iter().chain([&self.total]) {
            // The positions come from counts that other ranks reported, and may descend.
            let end = next.saturating_sub(start).min(records).max(taken);
            let (part, later) = halves(rest, (end - taken) as usize, kernel);
            parts.push(part);
            (rest, taken) = (later, end);
        }
        parts
    }

    /// Computes the layout of blocks that stay on their nodes, from the record count of each node.
    fn in_place(counts: &[u8], nodes: usize) -> Result<ResultLayout> {
        let mut fields = Reader::new(counts);
        let counts = fields.repeat(nodes, Reader::varint);
        let counts = counts.and_then(|counts| fields.end(counts));
        let counts = counts.ok_or_else(undecodable)?;
        Ok(ResultLayout::of_counts(counts.into_iter()))
    }

    /// The layout of blocks with these record counts, which stay on their nodes.
    pub(super) fn of_counts(counts: impl Iterator<Item = u64>) -> ResultLayout {
        let mut total = 0;
        let starts = counts.map(|count| {
            let start = total;
            // Counts of other ranks may be corrupted. The verification finds a result that is wrong because
            // of them.
            total = u64::wrapping_add(total, count);
            start
        });
        let starts: Vec<u64> = starts.collect();
        ResultLayout {
            old_starts: starts.clone(),
            starts,
            total,
            cuts: Vec::new(),
        }
    }
}

fn write_starts(starts: &[u64], out: &mut Writer) {
    let mut before = 0;
    for start in starts {
        out.varint(start.wrapping_sub(before));
        before = *start;
    }
}

/// Returns a function that takes one start after the other.
fn start_after_start() -> impl FnMut(&mut Reader<'_>) -> Option<u64> {
    let mut start = 0_u64;
    move |fields| {
        start = start.wrapping_add(fields.varint()?);
        Some(start)
    }
}

/// Returns the starts and the fields after them of an encoded layout, and whether blocks stay where they are.
fn starts_in(decision: &[u8]) -> Option<(Reader<'_>, bool)> {
    let mut fields = Reader::new(decision);
    fields.bytes(TOTAL_BYTES)?;
    match fields.u8()? {
        IN_PLACE => Some((fields, true)),
        MOVED => Some((fields, false)),
        _ => None,
    }
}

/// Returns the number of records of the whole result, from the decision of the last round.
pub fn total_records(decision: &[u8]) -> u64 {
    Reader::new(decision).u64().unwrap_or(0)
}

/// Returns the position at which a node's block starts in the whole result, from the decision of the last round.
pub fn block_start(decision: &[u8], node: Node) -> Result<u64> {
    let start = || {
        let (mut fields, _) = starts_in(decision)?;
        let mut next = start_after_start();
        (0..=node.0).try_fold(0, |_, _| next(&mut fields))
    };
    start().ok_or_else(undecodable)
}

/// Returns the positions at which the blocks of all nodes start, as [`block_start`].
pub fn block_starts(decision: &[u8], nodes: usize) -> Result<Vec<u64>> {
    let starts = || starts_in(decision)?.0.repeat(nodes, start_after_start());
    starts().ok_or_else(undecodable)
}

/// Returns the cuts between the blocks of a dense result as a message, from the decision of the last round.
pub fn encoded_cuts(decision: &[u8], nodes: usize) -> Result<&[u8]> {
    let cuts = || {
        let (mut fields, is_in_place) = starts_in(decision)?;
        let lists = if is_in_place { 1 } else { 2 };
        fields.repeat(lists * nodes, Reader::varint)?;
        Some(fields.rest())
    };
    cuts().ok_or_else(undecodable)
}

/// Returns the position at which a finished block starts in the whole result, and its records.
pub fn global_offset(block: &Block) -> Option<(u64, &Slice)> {
    block.runs.first().map(|run| (run.start, &run.data))
}

impl MergeAndPlace<'_> {
    fn nodes(&self) -> usize {
        1 << self.dimension
    }

    fn layout(&self, decision: &[u8]) -> Result<ResultLayout> {
        ResultLayout::decode(decision, self.nodes(), self.kernel.record_bytes())
    }

    /// Whether this round decides the layout of the result and produces it.
    fn is_last(&self, round: u32) -> bool {
        round == self.rounds()
    }

    fn filtered(&self, block: Block) -> Result<Block> {
        match self.filter {
            None => Ok(block),
            Some(filter) => filter.apply(block, self.kernel),
        }
    }

    fn count(&self, block: &Block) -> Vec<u8> {
        let records = block.bytes() / self.kernel.record_bytes();
        Writer::new().varint(records as u64).finish()
    }

    /// Returns the cuts that fall into this node's block: for each the node (u64) of the part that starts
    /// there, and the point.
    fn propose_cuts(
        &self,
        node: Node,
        subcube: &Subcube,
        block: &Block,
        counts: &[u8],
    ) -> Result<Vec<u8>> {
        let layout = ResultLayout::in_place(counts, self.nodes())?;
        let start = layout.starts[node.0 as usize];
        let end = start.saturating_add((block.bytes() / self.kernel.record_bytes()) as u64);
        let mut out = Vec::new();
        for (other, at) in (0_u64..).zip(even_starts(subcube, layout.total)).skip(1) {
            if (start..end).contains(&at)
                && let Some(point) = pivot::point_at(block, (at - start) as usize, self.kernel)
            {
                out.extend(other.to_le_bytes());
                point.encode(&mut out);
            }
        }
        Ok(out)
    }

    fn decide_cuts(
        &self,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
        counts: &[u8],
    ) -> Result<ResultLayout> {
        let ResultLayout {
            total, old_starts, ..
        } = ResultLayout::in_place(counts, self.nodes())?;
        let size = self.kernel.record_bytes();
        // A part that starts behind the last record is empty.
        let mut cuts = vec![Cut::AllLower; self.nodes() - 1];
        for (_, proposed) in proposals {
            for proposal in proposed.chunks_exact(PART_BYTES + CutPoint::encoded_bytes(size)) {
                let (node, point) = proposal.split_at(PART_BYTES);
                let node = Reader::new(node).u64().ok_or_else(undecodable)? as usize;
                let point = CutPoint::decode(point, size)?;
                let before = node.checked_sub(1).ok_or_else(undecodable)?;
                *cuts.get_mut(before).ok_or_else(undecodable)? = Cut::At(point);
            }
        }
        Ok(ResultLayout {
            starts: even_starts(subcube, total),
            old_starts,
            total,
            cuts,
        })
    }
}

impl AtOnce for MergeAndPlace<'_> {
    fn of_inputs(
        &self,
        subcube: &Subcube,
        inputs: &[&Block],
        nodes: &[Node],
    ) -> Result<MadeAtOnce> {
        of_inputs(self.kernel, subcube, inputs, nodes)
    }

    fn samples(&self, input: &[u8]) -> Result<Buffer> {
        shared_samples::samples(self.kernel, input, self.nodes())
    }

    fn cuts(&self, subcube: &Subcube, samples: &[(Rank, Slice)]) -> Result<Vec<u8>> {
        shared_samples::cuts(self.kernel, subcube, samples)
    }

    fn most_bytes(&self, samples: &[u8]) -> Result<usize> {
        shared_samples::most_bytes(self.kernel, samples)
    }

    fn layout(&self, sizes: &[usize]) -> Vec<u8> {
        let size = self.kernel.record_bytes();
        let counts = sizes.iter().map(|bytes| (bytes / size) as u64);
        ResultLayout::of_counts(counts).encode(size)
    }

    fn united(&self, at: &RoundContext<'_>, pieces: &[&[u8]]) -> Result<Block> {
        let mut merged = Buffer::unset(pieces.iter().map(|piece| piece.len()).sum())?;
        self.kernel.merge(pieces, &mut merged)?;
        let start = block_start(at.decision, at.node)?;
        Ok(Block::of_run(Run::new(
            Rank(at.node.0),
            start,
            merged.into(),
        )))
    }
}

impl Algorithm for MergeAndPlace<'_> {
    fn error_of_panic(&self, error: Error) -> Error {
        self.kernel.error_of_panic(error)
    }

    fn rounds(&self) -> u32 {
        self.sort.rounds() + 1 + u32::from(self.dense)
    }

    fn promised(&self, decision: &[u8]) -> Option<u64> {
        Some(total_records(decision))
    }

    fn step(&self, round: u32) -> Step {
        if round <= self.sort.rounds() {
            return self.sort.step(round);
        }
        Step {
            scope: Some(self.dimension),
            exchange: if self.dense && self.is_last(round) {
                Exchange::all(self.dimension)
            } else {
                Exchange::Nothing
            },
        }
    }

    fn prepare(&self, block: Block) -> Result<Block> {
        self.sort.prepare(self.filtered(block)?)
    }

    fn prepare_each(&self, inputs: &mut dyn Iterator<Item = Result<Block>>) -> Vec<Result<Block>> {
        let mut inputs = inputs.map(|input| self.filtered(input?));
        self.sort.prepare_each(&mut inputs)
    }

    fn waits(&self, block: &Block) -> bool {
        self.sort.waits(block)
    }

    fn divided(&self, at: &RoundContext<'_>, block: Block) -> Result<Block> {
        self.sort.divided(at, block)
    }

    fn propose(&self, at: &RoundContext<'_>, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        if at.round <= self.sort.rounds() {
            return self.sort.propose(at, subcube, block);
        }
        if !(self.dense && self.is_last(at.round)) {
            return Ok(self.count(block));
        }
        if !self.is_recomputable() {
            return Ok(Vec::new());
        }
        self.propose_cuts(at.node, subcube, block, at.decision)
    }

    fn unite_proposals(&self, at: &RoundContext<'_>, proposals: Proposals) -> Result<Proposals> {
        if at.round <= self.sort.rounds() {
            return self.sort.unite_proposals(at, proposals);
        }
        Ok(proposals)
    }

    fn decide(
        &self,
        at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        if at.round <= self.sort.rounds() {
            return self.sort.decide(at, subcube, proposals);
        }
        let size = self.kernel.record_bytes();
        if self.dense && self.is_last(at.round) {
            return Ok(self
                .decide_cuts(subcube, proposals, at.decision)?
                .encode(size));
        }
        let counts: Vec<u8> = proposals
            .iter()
            .flat_map(|(_, count)| count.to_vec())
            .collect();
        Ok(if self.dense {
            counts
        } else {
            ResultLayout::in_place(&counts, self.nodes())?.encode(size)
        })
    }

    fn proposal_limit(&self, round: u32) -> usize {
        if round <= self.sort.rounds() {
            return self.sort.proposal_limit(round);
        }
        let cut = PART_BYTES + CutPoint::encoded_bytes(self.kernel.record_bytes());
        if self.dense && self.is_last(round) {
            self.nodes() * cut
        } else {
            VARINT_BYTES
        }
    }

    fn decision_limit(&self, round: u32) -> usize {
        if round <= self.sort.rounds() {
            return self.sort.decision_limit(round);
        }
        let cut = Cut::encoded_bytes(self.kernel.record_bytes());
        FIXED_BYTES + self.nodes() * (2 * VARINT_BYTES + cut)
    }

    fn most_runs(&self) -> usize {
        self.sort.most_runs()
    }

    fn is_recomputable(&self) -> bool {
        self.sort.is_recomputable()
    }

    fn finishes_locally(&self) -> bool {
        !self.dense
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        if at.round <= self.sort.rounds() {
            return self.sort.split(at, block);
        }
        let layout = self.layout(at.decision)?;
        let mut give = if self.is_recomputable() {
            if layout.cuts.len() + 1 != self.nodes() {
                return Err(undecodable());
            }
            Cut::divide_all(&layout.cuts, block, self.kernel)
        } else {
            layout.divide(at.node, block, self.kernel)
        };
        let keep = give.remove(at.node.0 as usize);
        Ok(Split { keep, give })
    }

    fn condensed(&self, round: u32, blocks: Vec<Block>) -> Result<Vec<Block>> {
        if round <= self.sort.rounds() {
            return self.sort.condensed(round, blocks);
        }
        // A dense result first needs the counts, and then splits each run by itself.
        if self.dense {
            return Ok(blocks);
        }
        let merged = merged_each(self.kernel, blocks)?.into_iter();
        let blocks = merged.map(|data| Block::of_sorted(vec![Run::new(Rank(0), 0, data)]));
        Ok(blocks.collect())
    }

    fn join(&self, at: &RoundContext<'_>, keep: Block, got: Block) -> Result<Block> {
        if at.round <= self.sort.rounds() {
            return self.sort.join(at, keep, got);
        }
        let block = Block::unite([keep, got]);
        if !self.is_last(at.round) {
            return Ok(block);
        }
        let start = block_start(at.decision, at.node)?;
        let merged = merged(self.kernel, block)?;
        Ok(Block::of_run(Run::new(Rank(at.node.0), start, merged)))
    }
}

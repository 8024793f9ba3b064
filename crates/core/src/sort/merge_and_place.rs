//! The last rounds of every sort: runs are merged into one, and everybody learns where each block
//! starts in the whole.
//!
//! For a dense result the counts are told in a round of their own. In the last round then the cuts
//! between equal parts, one for each node that is fault-free now, are found in the blocks that they
//! fall into, everybody sends what belongs elsewhere, and what came is merged. If somebody dies in it,
//! it starts again with other parts. Must never: compare records but by way of the kernel.

use super::merging::{merged, merged_each};
use super::pivot::{self, Cut, Place};
use crate::block::{Block, Run};
use crate::engine::{Algorithm, Exchange, RoundContext, Split, Step, Subcube};
use crate::members::Rank;
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::Kernel;

/// A sort with its last rounds.
pub struct Complete<'a> {
    /// The rounds that bring records to their nodes.
    pub sort: &'a dyn Algorithm,
    /// Compares and merges.
    pub kernel: &'a dyn Kernel,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// Fault-free nodes get equal parts, and the others nothing.
    pub dense: bool,
}

/// How the result lies on the nodes: what the last round decides.
pub(super) struct Plan {
    total: u64,
    /// Where each node's block starts.
    starts: Vec<u64>,
    /// For a dense result: where it started before.
    started: Vec<u64>,
    /// For a dense result of an algorithm whose runs are split each by itself: the cuts between the
    /// blocks, one fewer than there are nodes.
    cuts: Vec<Cut>,
}

const COUNT_BYTES: usize = 8;

fn number(bytes: &[u8], index: usize) -> Option<u64> {
    let (numbers, _) = bytes.as_chunks::<COUNT_BYTES>();
    numbers.get(index).map(|number| u64::from_le_bytes(*number))
}

fn broken() -> Error {
    Error::new(Status::Internal, "the plan of the result does not decode")
}

/// Where the part of a node starts, if the fault-free nodes share all evenly.
fn even_start(subcube: &Subcube, node: usize, total: u64) -> u64 {
    let parts = subcube.fault_free.len().max(1) as u128;
    let before = subcube.fault_free_before(node) as u128;
    (u128::from(total) * before / parts) as u64
}

impl Plan {
    pub(super) fn encode(&self, record_bytes: usize) -> Vec<u8> {
        let numbers = [&[self.total][..], &self.starts, &self.started].concat();
        let mut out: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        out.extend(Cut::encode_all(&self.cuts, record_bytes));
        out
    }

    pub(super) fn decode(bytes: &[u8], nodes: usize, record_bytes: usize) -> Result<Plan> {
        let numbers = |from| {
            let numbers = (from..from + nodes).map(|index| number(bytes, index));
            numbers.collect::<Option<Vec<u64>>>().ok_or_else(broken)
        };
        let cuts = bytes
            .get(COUNT_BYTES * (1 + 2 * nodes)..)
            .ok_or_else(broken)?;
        Ok(Plan {
            total: total_records(bytes),
            starts: numbers(1)?,
            started: numbers(1 + nodes)?,
            cuts: Cut::decode_all(cuts, record_bytes)?,
        })
    }

    /// The parts of a node's block that belong to each node, by how many records are before them.
    fn divide(&self, node: Node, block: &Block, kernel: &dyn Kernel) -> Vec<Block> {
        let records = (block.bytes() / kernel.record_bytes()) as u64;
        let start = self.started[node.0 as usize];
        let mut rest = block.clone();
        let mut taken = 0;
        let mut parts = Vec::with_capacity(self.starts.len());
        for next in self.starts[1..].iter().chain([&self.total]) {
            let end = next.saturating_sub(start).min(records);
            let (part, later) = pivot::halves(rest, (end - taken) as usize, kernel);
            parts.push(part);
            (rest, taken) = (later, end);
        }
        parts
    }

    /// Blocks stay where they are.
    fn in_place(counts: &[u8]) -> Plan {
        let (counts, _) = counts.as_chunks::<COUNT_BYTES>();
        let mut total = 0;
        let starts = counts.iter().map(|count| {
            let start = total;
            // What others say may be any number; a result that is wrong for it is found later.
            total = u64::wrapping_add(total, u64::from_le_bytes(*count));
            start
        });
        let starts: Vec<u64> = starts.collect();
        Plan {
            started: starts.clone(),
            starts,
            total,
            cuts: Vec::new(),
        }
    }
}

/// How many records the whole result has, by what the last round decided.
pub fn total_records(decision: &[u8]) -> u64 {
    number(decision, 0).unwrap_or(0)
}

/// Where a finished block starts in the whole, and its records.
pub fn global_offset(block: &Block) -> Option<(u64, &Slice)> {
    block.runs.first().map(|run| (run.start, &run.data))
}

impl Complete<'_> {
    fn nodes(&self) -> usize {
        1 << self.dimension
    }

    fn plan(&self, decision: &[u8]) -> Result<Plan> {
        Plan::decode(decision, self.nodes(), self.kernel.record_bytes())
    }

    /// The round that decides how the result lies on the nodes, and makes it.
    fn is_last(&self, round: u32) -> bool {
        round == self.rounds()
    }

    fn count(&self, block: &Block) -> Vec<u8> {
        let records = block.bytes() / self.kernel.record_bytes();
        (records as u64).to_le_bytes().to_vec()
    }

    /// Before which of this node's records other nodes' parts start: node (u64) and place for each.
    fn propose_cuts(&self, node: Node, subcube: &Subcube, block: &Block, counts: &[u8]) -> Vec<u8> {
        let plan = Plan::in_place(counts);
        let start = plan.starts[node.0 as usize];
        let end = start.saturating_add((block.bytes() / self.kernel.record_bytes()) as u64);
        let mut out = Vec::new();
        for other in 1..self.nodes() {
            let at = even_start(subcube, other, plan.total);
            if (start..end).contains(&at)
                && let Some(place) = pivot::place_at(block, (at - start) as usize, self.kernel)
            {
                out.extend((other as u64).to_le_bytes());
                place.encode(&mut out);
            }
        }
        out
    }

    fn decide_cuts(
        &self,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
        counts: &[u8],
    ) -> Result<Plan> {
        let Plan { total, started, .. } = Plan::in_place(counts);
        let size = self.kernel.record_bytes();
        let starts = (0..self.nodes()).map(|node| even_start(subcube, node, total));
        // What starts behind the last record starts nowhere.
        let mut cuts = vec![Cut::AllLower; self.nodes() - 1];
        for (_, proposed) in proposals {
            for proposal in proposed.chunks_exact(COUNT_BYTES + Place::encoded_bytes(size)) {
                let node = number(proposal, 0).ok_or_else(broken)? as usize;
                let place = Place::decode(&proposal[COUNT_BYTES..], size)?;
                let before = node.checked_sub(1).ok_or_else(broken)?;
                *cuts.get_mut(before).ok_or_else(broken)? = Cut::At(place);
            }
        }
        Ok(Plan {
            starts: starts.collect(),
            started,
            total,
            cuts,
        })
    }
}

impl Algorithm for Complete<'_> {
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
            exchange: match self.dense && self.is_last(round) {
                true => Exchange::All,
                false => Exchange::Nothing,
            },
        }
    }

    fn prepare(&self, block: Block) -> Result<Block> {
        self.sort.prepare(block)
    }

    fn prepare_each(&self, inputs: &mut dyn Iterator<Item = Result<Block>>) -> Vec<Result<Block>> {
        self.sort.prepare_each(inputs)
    }

    fn propose(&self, at: &RoundContext<'_>, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        if at.round <= self.sort.rounds() {
            return self.sort.propose(at, subcube, block);
        }
        Ok(match self.dense && self.is_last(at.round) {
            true if self.is_recomputable() => {
                self.propose_cuts(at.node, subcube, block, at.decision)
            }
            true => Vec::new(),
            false => self.count(block),
        })
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
        Ok(match self.dense {
            true => counts,
            false => Plan::in_place(&counts).encode(size),
        })
    }

    fn proposal_limit(&self, round: u32) -> usize {
        if round <= self.sort.rounds() {
            return self.sort.proposal_limit(round);
        }
        let cut = COUNT_BYTES + Place::encoded_bytes(self.kernel.record_bytes());
        match self.dense && self.is_last(round) {
            true => self.nodes() * cut,
            false => COUNT_BYTES,
        }
    }

    fn decision_limit(&self, round: u32) -> usize {
        if round <= self.sort.rounds() {
            return self.sort.decision_limit(round);
        }
        let cut = Cut::encoded_bytes(self.kernel.record_bytes());
        COUNT_BYTES + self.nodes() * (2 * COUNT_BYTES + cut)
    }

    fn most_runs(&self) -> usize {
        self.sort.most_runs()
    }

    fn is_recomputable(&self) -> bool {
        self.sort.is_recomputable()
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        if at.round <= self.sort.rounds() {
            return self.sort.split(at, block);
        }
        let plan = self.plan(at.decision)?;
        let mut give = match self.is_recomputable() {
            true => Cut::divide_all(&plan.cuts, block, self.kernel),
            false => plan.divide(at.node, block, self.kernel),
        };
        let keep = give.remove(at.node.0 as usize);
        Ok(Split { keep, give })
    }

    fn condensed(&self, round: u32, blocks: Vec<Block>) -> Result<Vec<Block>> {
        if round <= self.sort.rounds() {
            return self.sort.condensed(round, blocks);
        }
        // For a dense result runs are counted first, and then split each by itself.
        if self.dense {
            return Ok(blocks);
        }
        let merged = merged_each(self.kernel, blocks)?.into_iter();
        let blocks = merged.map(|data| {
            Block::of_sorted(vec![Run {
                origin: Rank(0),
                start: 0,
                data,
            }])
        });
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
        let plan = self.plan(at.decision)?;
        let start = plan.starts.get(at.node.0 as usize).ok_or_else(broken)?;
        Ok(Block {
            runs: vec![Run {
                origin: Rank(at.node.0),
                start: *start,
                data: merged(self.kernel, block)?,
            }],
            sorted: true,
            digest: None,
        })
    }
}

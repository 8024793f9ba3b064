//! One traversal of a tree: each rank sends and receives, step by step, the scheduled messages of the nodes
//! that it executes. Follows FTTC (1996 paper, Section 3.2), where nodes send, forward and merge.
//!
//! A rank with an error still sends its messages, without data. Must never: decide whether a traversal is
//! committed, which the agreement after it does; send a message after an interruption.

use std::collections::BTreeMap;

use super::choose::TreeRoute;
use crate::block::{Block, Run};
use crate::engine::{CollectiveResult, Delivery, Engine, Transfer};
use crate::faults::Point;
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::tree::fold::Concatenate;
use crate::tree::plan::Fraction;
use crate::tree::schedule::{LinkMessage, TreeSchedule};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, caught};

/// An operation that merges two partial results. Must be pure: the same bytes for the same bytes, on every
/// rank.
pub trait MergeOperator {
    /// Merges two partial results. Neither is empty, because an empty contribution counts as none.
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer>;

    /// Whether `low` must come from smaller nodes than `high`, with no contributing node in between.
    fn is_ordered(&self) -> bool;

    /// Copies a contribution in the form that a result has. `Status::Argument` if it cannot be merged.
    fn taken(&self, contribution: &[u8]) -> Result<Slice> {
        Ok(Buffer::copy_of(contribution)?.into())
    }

    /// How partial results can be divided into parts, each of which is merged by itself. Only the results of an
    /// operation without an order can be divided.
    fn division(&self) -> Division {
        Division::Whole
    }
}

/// The parts of a partial result: the paper's partition of a node's data (1996 paper, Section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// It cannot be divided.
    Whole,
    /// After any multiple of this number of bytes, as a sorted list between two records. Any two parts can be merged.
    Anywhere(usize),
    /// In the same way, and the parts keep their places, as ranges of an array: elements in the same place are merged.
    InPlace(usize),
}

impl Division {
    /// The number of bytes of a unit, which is never cut. None: there is no division.
    fn unit(self) -> Option<usize> {
        match self {
            Division::Whole => None,
            Division::Anywhere(unit) | Division::InPlace(unit) => Some(unit),
        }
    }
}

/// The merged contributions of consecutive positions. Positions are nodes, or positions in a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first position.
    pub first: u64,
    /// The number of positions.
    pub span: u32,
    /// The merged data; not empty.
    pub data: Slice,
}

/// Returns segments as a block to be sent, one run for each segment. The run's start is the segment's first
/// position, and its origin is the number of positions.
fn block_of(segments: Vec<Segment>) -> Block {
    let runs = segments
        .into_iter()
        .map(|segment| Run::new(Rank(segment.span), segment.first, segment.data));
    Block::of_sorted(runs.collect())
}

fn segments_of(block: Block) -> impl Iterator<Item = Segment> {
    block.runs.into_iter().map(|run| Segment {
        first: run.start,
        span: run.origin.0,
        data: run.data,
    })
}

/// Returns the steps of a schedule from the sink: every hop in the opposite direction, the last one first. If each node
/// sends all its data to one node, then in this direction each node receives from one node.
pub fn downwards(schedule: &TreeSchedule) -> Vec<Vec<LinkMessage>> {
    let mut steps = schedule.steps().to_vec();
    steps.reverse();
    for hop in steps.iter_mut().flatten() {
        (hop.from, hop.to) = (hop.to, hop.from);
        let sends_own = hop.delivered.then_some(Fraction::ALL);
        hop.delivered = hop.fraction.is_some();
        hop.fraction = sends_own;
    }
    steps
}

/// The data of the nodes that this rank executes, during a traversal.
pub struct NodeData<'m> {
    merge: &'m dyn MergeOperator,
    /// Whether a sender keeps a copy of the data that it sends.
    keeps: bool,
    /// How nodes divide their data; [`Division::Whole`] if the plan divides none.
    division: Division,
    own: BTreeMap<Node, Vec<Segment>>,
    /// The data of nodes that have sent some of the parts, and the number of parts that are left.
    dividing: BTreeMap<Node, (Vec<Segment>, u32)>,
    forwarding: BTreeMap<(Node, u32), Block>,
    /// The reason for which this rank cannot do its part.
    pub error: Option<Error>,
    /// Whether all messages so far have arrived.
    all_arrived: bool,
}

impl<'m> NodeData<'m> {
    /// Creates an empty store. `keeps`: whether a sender keeps a copy of the data that it sends.
    pub fn new(merge: &'m dyn MergeOperator, keeps: bool) -> NodeData<'m> {
        NodeData {
            merge,
            keeps,
            division: Division::Whole,
            own: BTreeMap::new(),
            dividing: BTreeMap::new(),
            forwarding: BTreeMap::new(),
            error: None,
            all_arrived: true,
        }
    }

    /// Divides the data of nodes in the way of the operation, for a plan that does so.
    pub fn divided(mut self) -> NodeData<'m> {
        self.division = self.merge.division();
        self
    }

    /// Adds the contribution of a node.
    pub fn contribute(&mut self, node: Node, data: Slice) {
        let segment = match self.division {
            // The place of the first element, and the number of elements of the whole array.
            Division::InPlace(unit) => Segment {
                first: 0,
                span: u32::try_from(data.len() / unit).unwrap_or_else(|_| {
                    let text = format!(
                        "bytes is {}: pass less than 2^32 numbers to a merge with FTSORT_TREE_PARTITION",
                        data.len()
                    );
                    self.error.get_or_insert(Error::argument(text));
                    u32::MAX
                }),
                data,
            },
            Division::Whole | Division::Anywhere(_) => Segment {
                first: node.0.into(),
                span: 1,
                data,
            },
        };
        self.put(node, segment);
    }

    /// Removes all data before the next traversal.
    pub fn restart(&mut self) {
        if !mutant(Mutant::ContributionMergedTwice) {
            self.own.clear();
        }
        self.forwarding.clear();
        self.dividing.clear();
        self.error = None;
        self.all_arrived = true;
    }

    /// Adds a segment to the data of a node.
    pub fn put(&mut self, node: Node, segment: Segment) {
        let segments = self.own.entry(node).or_default();
        if !segment.data.is_empty() {
            segments.push(segment);
        }
        let segments_here = std::mem::take(segments);
        let joined = match self.division {
            Division::InPlace(unit) => join_in_place(&segments_here, unit, self.merge),
            Division::Whole | Division::Anywhere(_) => join(segments_here, self.merge),
        };
        match joined {
            Ok(joined) => *segments = joined,
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }

    /// Removes the data of a node and returns it, merged into one segment. None if the merge fails.
    pub fn result(&mut self, node: Node) -> Option<Slice> {
        let mut segments = self.own.remove(&node).unwrap_or_default().into_iter();
        let Some(first) = segments.next() else {
            return Some(Slice::default());
        };
        let merged = segments.try_fold(first.data, |low, high| {
            merge_two(self.merge, &low, &high.data)
        });
        match merged.and_then(aligned) {
            Ok(merged) => Some(merged),
            Err(error) => {
                self.error.get_or_insert(error);
                None
            }
        }
    }

    /// Whether this rank has done its part without an error.
    pub fn is_complete(&self) -> bool {
        self.all_arrived && self.error.is_none()
    }

    /// Records that a message has not arrived.
    pub fn miss(&mut self) {
        self.all_arrived = false;
    }

    fn take(&mut self, hop: &LinkMessage) -> Option<Block> {
        if !self.is_complete() {
            return None;
        }
        let Some(fraction) = hop.fraction else {
            return self.forwarding.remove(&(hop.from, hop.message));
        };
        if fraction.of > 1 {
            return Some(block_of(self.take_part(hop.from, fraction)));
        }
        let segments = if self.keeps {
            self.own.get(&hop.from).cloned()
        } else {
            self.own.remove(&hop.from)
        };
        Some(block_of(segments.unwrap_or_default()))
    }

    /// Returns a part of a node's data. All parts are of the data that the node had when the first one left.
    fn take_part(&mut self, node: Node, fraction: Fraction) -> Vec<Segment> {
        let whole = || (self.own.remove(&node).unwrap_or_default(), fraction.of);
        let (segments, left) = self.dividing.remove(&node).unwrap_or_else(whole);
        let unit = self.division.unit().unwrap_or(1);
        let parts = segments.iter().map(|segment| {
            let fraction = if mutant(Mutant::PartsNotDivided) {
                Fraction::ALL
            } else {
                fraction
            };
            let range = fraction.range(segment.data.len() / unit);
            let first = match self.division {
                // The places of other ranks may be any numbers.
                Division::InPlace(_) => segment.first.saturating_add(range.start as u64),
                Division::Whole | Division::Anywhere(_) => segment.first,
            };
            Segment {
                first,
                span: segment.span,
                data: segment.data.part(range.start * unit..range.end * unit),
            }
        });
        let parts = parts.filter(|part| !part.data.is_empty()).collect();
        if left > 1 {
            self.dividing.insert(node, (segments, left - 1));
        }
        parts
    }

    /// The largest number of segments of a message.
    fn most_segments(&self, nodes: usize) -> usize {
        match self.division {
            Division::InPlace(_) => nodes,
            _ if self.merge.is_ordered() => nodes,
            Division::Whole | Division::Anywhere(_) => 1,
        }
    }

    /// Returns a block that has arrived for this rank.
    pub fn received(&mut self, delivery: Delivery<Block>) -> Option<Block> {
        self.all_arrived &= !matches!(delivery, Delivery::Nothing);
        delivery.got()
    }

    fn keep(&mut self, hop: &LinkMessage, block: Block) {
        if hop.delivered {
            segments_of(block).for_each(|segment| self.put(hop.to, segment))
        } else {
            self.forwarding.insert((hop.to, hop.message), block);
        }
    }
}

/// Returns data at a multiple of 8, copied if necessary: those that were never merged lie anywhere in a message.
fn aligned(data: Slice) -> Result<Slice> {
    if data.as_ptr().addr().is_multiple_of(8) {
        Ok(data)
    } else {
        Slice::copy_of(&data)
    }
}

/// Merges two segments, unless one is empty because a merge has returned nothing.
fn merge_two(merge: &dyn MergeOperator, low: &Slice, high: &Slice) -> Result<Slice> {
    match (low.is_empty(), high.is_empty()) {
        (true, _) => Ok(high.clone()),
        (_, true) => Ok(low.clone()),
        _ => caught(|| merge.merge(low, high)).map(Slice::from),
    }
}

/// Joins segments: all of them if the order does not matter, otherwise those without a gap in between.
/// Returns them in ascending order.
fn join(mut segments: Vec<Segment>, merge: &dyn MergeOperator) -> Result<Vec<Segment>> {
    segments.sort_unstable_by_key(|segment| segment.first);
    let mut joined: Vec<Segment> = Vec::with_capacity(segments.len());
    for segment in segments {
        match joined.last_mut() {
            Some(last)
                if !merge.is_ordered()
                    || last.first.checked_add(last.span.into()) == Some(segment.first) =>
            {
                last.data = merge_two(merge, &last.data, &segment.data)?;
                // The positions and sizes of other ranks may be any numbers.
                last.span = last.span.saturating_add(segment.span);
            }
            _ => joined.push(segment),
        }
    }
    Ok(joined)
}

/// Joins ranges of arrays: elements that several segments have are merged, and ranges without a gap in between become one
/// segment. `span` is the number of elements of the whole array, which is the same for all contributions.
fn join_in_place(
    segments: &[Segment],
    unit: usize,
    merge: &dyn MergeOperator,
) -> Result<Vec<Segment>> {
    let Some(span) = segments.first().map(|segment| segment.span) else {
        return Ok(Vec::new());
    };
    if let Some(other) = segments.iter().find(|segment| segment.span != span) {
        let text = format!(
            "bytes is that of {span} numbers on one rank and of {} on another: pass arrays of the same length, or 0 bytes",
            other.span
        );
        return Err(Error::argument(text));
    }
    let end_of = |segment: &Segment| {
        segment
            .first
            .saturating_add((segment.data.len() / unit) as u64)
    };
    let ends = segments
        .iter()
        .flat_map(|segment| [segment.first, end_of(segment)]);
    let mut cuts: Vec<u64> = ends.collect();
    cuts.sort_unstable();
    cuts.dedup();
    // The merged ranges from one cut to the next, joined with the range before if there is no gap.
    let mut stretches: Vec<(u64, Vec<Buffer>)> = Vec::new();
    let mut last_end = None;
    for (start, end) in cuts.iter().zip(&cuts[1..]) {
        let covers = |segment: &&Segment| segment.first <= *start && *end <= end_of(segment);
        let mut pieces = segments.iter().filter(covers).map(|segment| {
            let [from, to] = [start, end].map(|cut| (cut - segment.first) as usize * unit);
            &segment.data[from..to]
        });
        let Some(first) = pieces.next() else {
            continue;
        };
        let merged = pieces.try_fold(Buffer::copy_of(first)?, |low, high| {
            caught(|| merge.merge(&low, high))
        })?;
        match stretches.last_mut() {
            Some((_, pieces)) if last_end == Some(*start) => pieces.push(merged),
            _ => stretches.push((*start, vec![merged])),
        }
        last_end = Some(*end);
    }
    let joined = stretches.into_iter().map(|(first, pieces)| {
        let data = pieces
            .into_iter()
            .try_fold(Buffer::default(), |all, piece| {
                if all.is_empty() {
                    Ok(piece)
                } else {
                    Concatenate.merge(&all, &piece)
                }
            })?;
        let data = data.into();
        Ok(Segment { first, span, data })
    });
    joined.collect()
}

/// Sends and receives the messages of all steps. The result is in `node_data`. A rank that is interrupted by
/// a failure sends no further messages; then the result is false.
pub fn traverse(
    engine: &mut Engine<'_>,
    route: &TreeRoute,
    steps: &[Vec<LinkMessage>],
    node_data: &mut NodeData<'_>,
) -> CollectiveResult<bool> {
    let me = engine.members.me();
    let most_runs = node_data.most_segments(engine.members.cube().len());
    for step in steps {
        let (mut transfers, mut mine) = (Vec::new(), Vec::new());
        for hop in step {
            let (from, to) = (route.executor(hop.from), route.executor(hop.to));
            if from == me || to == me {
                let block = if from == me {
                    node_data.take(hop)
                } else {
                    None
                };
                transfers.push(Transfer { from, to, block });
                mine.push(hop);
            }
        }
        if mine.is_empty() {
            continue;
        }
        let Some(deliveries) = engine.transfer(transfers, most_runs, &mut node_data.error)? else {
            node_data.all_arrived = false;
            return Ok(false);
        };
        for (hop, delivery) in mine.into_iter().zip(deliveries) {
            if let Some(block) = node_data.received(delivery) {
                node_data.keep(hop, block);
            }
        }
        engine.inject_crash(Point::Send)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests;

//! One traversal of a tree: each rank sends and receives, step by step, the scheduled messages of the nodes
//! that it executes. Follows FTTC (1996 paper, Section 3.2), where nodes send, forward and merge.
//!
//! A rank with an error still sends its messages, without data. Must never: decide whether a traversal is
//! committed, which the agreement after it does; send a message after an interruption.

use std::collections::BTreeMap;

use super::choose::TreeRoute;
use crate::block::{Block, Run};
use crate::engine::{Delivery, Engine, Transfer};
use crate::faults::Point;
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
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
    let runs = segments.into_iter().map(|segment| Run {
        origin: Rank(segment.span),
        start: segment.first,
        data: segment.data,
    });
    Block::of_sorted(runs.collect())
}

fn segments_of(block: Block) -> impl Iterator<Item = Segment> {
    block.runs.into_iter().map(|run| Segment {
        first: run.start,
        span: run.origin.0,
        data: run.data,
    })
}

/// One hop, in the direction in which the data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    message: u32,
    from: Node,
    to: Node,
    /// Whether the sender sends its own data; otherwise it forwards a message.
    is_own: bool,
    /// Whether the receiver keeps the data; otherwise it forwards the message.
    delivered: bool,
}

/// Returns the hops of a schedule, towards the sink.
pub fn upwards(schedule: &TreeSchedule) -> Vec<Vec<Hop>> {
    let up = |transfer: &LinkMessage| Hop {
        message: transfer.message,
        from: transfer.from,
        to: transfer.to,
        is_own: transfer.fraction.is_some(),
        delivered: transfer.delivered,
    };
    let steps = schedule.steps().iter();
    steps.map(|step| step.iter().map(up).collect()).collect()
}

/// Returns the hops from the sink: every hop in the opposite direction, the last one first. If each node
/// sends all its data to one node, then in this direction each node receives from one node.
pub fn downwards(schedule: &TreeSchedule) -> Vec<Vec<Hop>> {
    let mut steps = upwards(schedule);
    steps.reverse();
    for hop in steps.iter_mut().flatten() {
        (hop.from, hop.to) = (hop.to, hop.from);
        (hop.is_own, hop.delivered) = (hop.delivered, hop.is_own);
    }
    steps
}

/// The data of the nodes that this rank executes, during a traversal.
pub struct NodeData<'m> {
    merge: &'m dyn MergeOperator,
    /// Whether a sender keeps a copy of the data that it sends.
    keeps: bool,
    own: BTreeMap<Node, Vec<Segment>>,
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
            own: BTreeMap::new(),
            forwarding: BTreeMap::new(),
            error: None,
            all_arrived: true,
        }
    }

    /// Removes all data before the next traversal.
    pub fn restart(&mut self) {
        if !mutant(Mutant::ContributionMergedTwice) {
            self.own.clear();
        }
        self.forwarding.clear();
        self.error = None;
        self.all_arrived = true;
    }

    /// Adds a segment to the data of a node.
    pub fn put(&mut self, node: Node, segment: Segment) {
        let segments = self.own.entry(node).or_default();
        if !segment.data.is_empty() {
            segments.push(segment);
        }
        let joined = join(std::mem::take(segments), self.merge);
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
            return Some(Buffer::default().into());
        };
        let merged = segments.try_fold(first.data, |low, high| {
            caught(|| self.merge.merge(&low, &high.data)).map(Slice::from)
        });
        match merged {
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

    fn take(&mut self, hop: &Hop) -> Option<Block> {
        if !self.is_complete() {
            return None;
        }
        if !hop.is_own {
            return self.forwarding.remove(&(hop.from, hop.message));
        }
        let segments = if self.keeps {
            self.own.get(&hop.from).cloned()
        } else {
            self.own.remove(&hop.from)
        };
        Some(block_of(segments.unwrap_or_default()))
    }

    fn receive(&mut self, hop: &Hop, block: Block) {
        if hop.delivered {
            segments_of(block).for_each(|segment| self.put(hop.to, segment))
        } else {
            self.forwarding.insert((hop.to, hop.message), block);
        }
    }
}

/// Joins segments: all of them if the order does not matter, otherwise those without a gap in between.
/// Returns them in ascending order.
fn join(mut segments: Vec<Segment>, merge: &dyn MergeOperator) -> Result<Vec<Segment>> {
    segments.sort_by_key(|segment| segment.first);
    let mut joined: Vec<Segment> = Vec::with_capacity(segments.len());
    for segment in segments {
        match joined.last_mut() {
            Some(last)
                if !merge.is_ordered()
                    || last.first.checked_add(last.span.into()) == Some(segment.first) =>
            {
                last.data = caught(|| merge.merge(&last.data, &segment.data))?.into();
                // The positions and sizes of other ranks may be any numbers.
                last.span = last.span.saturating_add(segment.span);
            }
            _ => joined.push(segment),
        }
    }
    Ok(joined)
}

/// Sends and receives the messages of all steps. The result is in `node_data`. A rank that is interrupted by
/// a failure sends no further messages; then the result is false.
pub fn traverse(
    engine: &mut Engine<'_>,
    route: &TreeRoute,
    steps: &[Vec<Hop>],
    node_data: &mut NodeData<'_>,
) -> Result<bool> {
    let me = engine.members.me();
    let most_runs = if node_data.merge.is_ordered() {
        engine.members.cube().len()
    } else {
        1
    };
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
            match delivery {
                Delivery::Got(block) => node_data.receive(hop, block),
                Delivery::Nothing => node_data.all_arrived = false,
                Delivery::NotMine => {}
            }
        }
        engine.inject_crash(Point::Send)?;
    }
    Ok(true)
}

//! One walk along a tree: each rank does, step by step, what the schedule says for the nodes that it
//! executes. Follows FTTC (1996 paper, Section 3.2), where nodes send, pass on and merge.
//!
//! A rank in trouble still plays its part, with empty hands. Must never: decide whether a walk counts,
//! which is for the agreement after it; send anything after it was interrupted.

use std::collections::BTreeMap;

use super::choose::Route;
use crate::block::{Block, Run};
use crate::engine::{Delivery, Engine, Transfer};
use crate::faults::Point;
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::tree::schedule::{LinkMessage, Schedule};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, caught};

/// Makes one partial result of two. Pure: the same bytes for the same bytes, on every rank.
pub trait Merge {
    /// The two together. Neither is empty: no bytes are no contribution.
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer>;

    /// `low` must be of smaller nodes than `high`, with no node in between that contributes.
    fn is_ordered(&self) -> bool;
}

/// What was contributed at consecutive places, merged. Places are nodes, or positions in a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first place.
    pub first: u64,
    /// How many places.
    pub span: u32,
    /// What is there; not empty.
    pub data: Slice,
}

/// A block that travels has a run for each piece: where it starts, and, in place of an origin, how many
/// places it spans.
fn block_of(pieces: Vec<Piece>) -> Block {
    let runs = pieces.into_iter().map(|piece| Run {
        origin: Rank(piece.span),
        start: piece.first,
        data: piece.data,
    });
    Block::of_sorted(runs.collect())
}

fn pieces_of(block: Block) -> impl Iterator<Item = Piece> {
    block.runs.into_iter().map(|run| Piece {
        first: run.start,
        span: run.origin.0,
        data: run.data,
    })
}

/// One hop, in the direction in which it is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    message: u32,
    from: Node,
    to: Node,
    /// The sender takes it from what it holds; else it passes on what came.
    takes: bool,
    /// The receiver keeps it; else it passes it on.
    lands: bool,
}

/// To the sink.
pub fn upwards(schedule: &Schedule) -> Vec<Vec<Hop>> {
    let up = |transfer: &LinkMessage| Hop {
        message: transfer.message,
        from: transfer.from,
        to: transfer.to,
        takes: transfer.takes.is_some(),
        lands: transfer.lands,
    };
    let steps = schedule.steps().iter();
    steps.map(|step| step.iter().map(up).collect()).collect()
}

/// From the sink: every hop backwards, the last first. Where each node sends everything to one other,
/// backwards each hears from one.
pub fn downwards(schedule: &Schedule) -> Vec<Vec<Hop>> {
    let mut steps = upwards(schedule);
    steps.reverse();
    for hop in steps.iter_mut().flatten() {
        (hop.from, hop.to) = (hop.to, hop.from);
        (hop.takes, hop.lands) = (hop.lands, hop.takes);
    }
    steps
}

/// What this rank's nodes have during a walk.
pub struct Desk<'m> {
    merge: &'m dyn Merge,
    /// Who sends keeps what it has, too.
    keeps: bool,
    held: BTreeMap<Node, Vec<Piece>>,
    passing: BTreeMap<(Node, u32), Block>,
    /// Why this rank cannot do its part.
    pub trouble: Option<Error>,
    /// Everything came.
    whole: bool,
}

impl<'m> Desk<'m> {
    /// Empty. `keeps`: who sends keeps what it has, too.
    pub fn new(merge: &'m dyn Merge, keeps: bool) -> Desk<'m> {
        Desk {
            merge,
            keeps,
            held: BTreeMap::new(),
            passing: BTreeMap::new(),
            trouble: None,
            whole: true,
        }
    }

    /// Empty again, for the next walk.
    pub fn restart(&mut self) {
        if !mutant(Mutant::ContributesTwice) {
            self.held.clear();
        }
        self.passing.clear();
        self.trouble = None;
        self.whole = true;
    }

    /// Gives a node something to hold.
    pub fn put(&mut self, node: Node, piece: Piece) {
        let pieces = self.held.entry(node).or_default();
        if !piece.data.is_empty() {
            pieces.push(piece);
        }
        let joined = join(std::mem::take(pieces), self.merge);
        match joined {
            Ok(joined) => *pieces = joined,
            Err(error) => {
                self.trouble.get_or_insert(error);
            }
        }
    }

    /// All that a node holds, merged.
    pub fn result(&mut self, node: Node) -> Option<Slice> {
        let mut pieces = self.held.remove(&node).unwrap_or_default().into_iter();
        let Some(first) = pieces.next() else {
            return Some(Buffer::default().into());
        };
        let whole = pieces.try_fold(first.data, |low, high| {
            caught(|| self.merge.merge(&low, &high.data)).map(Slice::from)
        });
        match whole {
            Ok(whole) => Some(whole),
            Err(error) => {
                self.trouble.get_or_insert(error);
                None
            }
        }
    }

    /// Did this rank do its part?
    pub fn is_complete(&self) -> bool {
        self.whole && self.trouble.is_none()
    }

    fn take(&mut self, hop: &Hop) -> Option<Block> {
        if !self.is_complete() {
            return None;
        }
        if !hop.takes {
            return self.passing.remove(&(hop.from, hop.message));
        }
        let pieces = match self.keeps {
            true => self.held.get(&hop.from).cloned(),
            false => self.held.remove(&hop.from),
        };
        Some(block_of(pieces.unwrap_or_default()))
    }

    fn land(&mut self, hop: &Hop, block: Block) {
        match hop.lands {
            true => pieces_of(block).for_each(|piece| self.put(hop.to, piece)),
            false => {
                self.passing.insert((hop.to, hop.message), block);
            }
        }
    }
}

/// Pieces as few as they get: all in one where the order does not matter, else those without a gap
/// between them; ascending.
fn join(mut pieces: Vec<Piece>, merge: &dyn Merge) -> Result<Vec<Piece>> {
    pieces.sort_by_key(|piece| piece.first);
    let mut joined: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match joined.last_mut() {
            Some(last)
                if !merge.is_ordered() || last.first + u64::from(last.span) == piece.first =>
            {
                last.data = caught(|| merge.merge(&last.data, &piece.data))?.into();
                last.span += piece.span;
            }
            _ => joined.push(piece),
        }
    }
    Ok(joined)
}

/// Walks; what came of it is on the desk. Whoever is interrupted sends nothing more.
pub fn walk(
    engine: &mut Engine<'_>,
    route: &Route,
    steps: &[Vec<Hop>],
    desk: &mut Desk<'_>,
) -> Result<()> {
    let me = engine.members.me();
    let most_runs = match desk.merge.is_ordered() {
        true => engine.members.cube().len(),
        false => 1,
    };
    for step in steps {
        let (mut transfers, mut mine) = (Vec::new(), Vec::new());
        for hop in step {
            let (from, to) = (route.executor(hop.from), route.executor(hop.to));
            if from == me || to == me {
                let block = match from == me {
                    true => desk.take(hop),
                    false => None,
                };
                transfers.push(Transfer { from, to, block });
                mine.push(hop);
            }
        }
        if mine.is_empty() {
            continue;
        }
        let Some(deliveries) = engine.transfer(transfers, most_runs, &mut desk.trouble)? else {
            desk.whole = false;
            return Ok(());
        };
        for (hop, delivery) in mine.into_iter().zip(deliveries) {
            match delivery {
                Delivery::Got(block) => desk.land(hop, block),
                Delivery::Nothing => desk.whole = false,
                Delivery::NotMine => {}
            }
        }
        engine.inject_crash(Point::Send)?;
    }
    Ok(())
}

//! Bitonic sort that checks itself: algorithm S_FT of McMillin and Ni (1989, Section 3 and Figure 3),
//! run by the engine, with our repaired rule ([`ConsistencyRule::Repeated`]).
//!
//! Records go the same way as in [`Bitonic`]. Beside its own records a node's block has what the node
//! has heard of the others: in this stage (the paper's LBS) and in the stage before (LLBS). So what is
//! heard is stored, covered and brought back with the block. A run belongs to one of three kinds:
//!
//! | origin | start | records |
//! |---|---|---|
//! | whose input | position there, below 2^62 | of the node's own |
//! | a node | 2^62 ([`HEARD`]) | all of that node at the start of this stage, merged |
//! | a node | 2^63 ([`BEFORE`]) | all of that node at the start of the stage before, merged |
//!
//! Of whom a node has heard before a round is known ([`SftRound::mask_before`]), so that a run that is not
//! there is a node without records. Version 0, and the version after the last round, have the first
//! kind alone. A message leaves out what the receiver does not look at: what was heard in the stage
//! before, where it is not compared, and the own records in the last stage, in which none move.
//!
//! Beyond the paper: a node's own records at the start of a stage are also among those heard, and both
//! are compared where a message brings both, and at the very end; a message that is changed in the
//! first round of a stage is so found before it is believed.
//!
//! Memory and messages grow to two times all records of all nodes. Must never: say that somebody
//! certainly did it; accuse where nobody has changed anything.

use std::cmp::Ordering;

use super::bitonic::{Bitonic, Shape};
use super::merging::merged;
use crate::block::{Block, Run};
use crate::engine::{Algorithm, Exchange, RoundContext, Split, Step, Subcube};
use crate::members::Rank;
use crate::vcube::Node;
use crate::verify::mask::{Mask, SftRound, rounds};
use crate::verify::peer_view::{ConsistencyRule, PeerView, ReportKind, SftChecks, ViewReport};
use crate::verify::predicates::KeyOrder;
use crate::verify::sequence::Sequence;
use crate::verify::violation::{Predicate, PredicateViolation};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Finding, Result, Status};
use ftsort_kernels::kernel::Kernel;

/// Bitonic sort of any input, with the checks of 1989.
#[derive(Debug)]
pub struct Reliable<'a> {
    sort: Bitonic<'a>,
}

/// Where runs start that are records heard in this stage, and in the stage before.
const HEARD: u64 = 1 << 62;
const BEFORE: u64 = 1 << 63;

/// What a block says, before some round.
struct State {
    own: Block,
    heard: Sequence<Slice>,
    before: Option<Sequence<Slice>>,
}

fn nothing() -> Slice {
    Buffer::default().into()
}

fn corrupt(violation: &PredicateViolation) -> Error {
    let finding = match violation.predicate {
        Predicate::Progress => Finding::Progress,
        Predicate::Feasibility => Finding::Feasibility,
        Predicate::Consistency => Finding::Consistency,
        Predicate::Absence => Finding::Absence,
    };
    Error::corrupt(finding, violation.to_string())
}

/// A node finds something wrong with what it was given, or has itself.
fn accused(by: Node, round: SftRound, predicate: Predicate, place: Node) -> Error {
    corrupt(&PredicateViolation {
        found_by: by,
        round,
        predicate,
        node: place,
        suspects: vec![place],
    })
}

impl<'a> Reliable<'a> {
    /// On a cube of this dimension.
    pub fn new(kernel: &'a dyn Kernel, dimension: u32) -> Reliable<'a> {
        let shape = Shape::Any;
        Reliable {
            sort: Bitonic {
                kernel,
                dimension,
                shape,
            },
        }
    }

    fn round(&self, number: u32) -> Result<SftRound> {
        let found = rounds(self.sort.dimension).nth(number.saturating_sub(1) as usize);
        found.ok_or_else(|| Error::new(Status::Internal, "there is no such round"))
    }

    /// Reads a block of `node`, as it is before the round or as it comes in its messages, on behalf of
    /// `by`.
    fn state(&self, round: SftRound, node: Node, by: Node, block: Block) -> Result<State> {
        let is_first = is_first(round);
        let own: Vec<Run> = (block.runs.iter())
            .filter(|run| run.start < HEARD)
            .cloned()
            .collect();
        let size = self.sort.kernel.record_bytes();
        let whole = |run: &Run| run.data.len().is_multiple_of(size) && self.rises(&run.data);
        if !own.iter().all(whole) {
            return Err(accused(by, round, Predicate::Progress, node));
        }
        let own = Block::of_sorted(own);
        // The first message of all has no room for lies: what is heard is what moves.
        let fresh = is_first && round.stage == 0;
        let told = |kind: u64, of: Node| {
            let mut runs = block.runs.iter();
            let run = runs.find(|run| (run.origin, run.start) == (Rank(of.0), kind));
            run.map_or_else(nothing, |run| run.data.clone())
        };
        let sequence = |kind: u64, dimension: u32, mask: Mask| {
            let mut sequence = Sequence::new(dimension, node, told(kind, node));
            for of in mask.nodes() {
                sequence.set_block(of, Some(told(kind, of)));
            }
            sequence
        };
        let heard = match fresh {
            true => Sequence::new(1, node, merged(self.sort.kernel, own.clone())?),
            false => sequence(HEARD, round.dimension(), round.mask_before(node)),
        };
        let mask = Mask::subcube(node, round.stage);
        let before = (round.stage > 0).then(|| sequence(BEFORE, round.stage, mask));
        Ok(State { own, heard, before })
    }

    /// Record by record, since a message is not aligned.
    fn rises(&self, data: &[u8]) -> bool {
        let kernel = self.sort.kernel;
        let mut records = data.chunks_exact(kernel.record_bytes());
        let Some(mut last) = records.next() else {
            return true;
        };
        records.all(|next| {
            let rises = kernel.compare(last, next) != Ordering::Greater;
            last = next;
            rises
        })
    }

    /// At the start of a stage, and in all of the last one, a node's records are those that are told
    /// of it.
    fn verify_own(&self, round: SftRound, node: Node, by: Node, state: &State) -> Result<()> {
        let own = merged(self.sort.kernel, state.own.clone())?;
        let told = state.heard.block(node);
        match told.is_some_and(|told| told[..] == own[..]) {
            true => Ok(()),
            false => Err(accused(by, round, Predicate::Consistency, node)),
        }
    }
}

/// The first of its stage.
fn is_first(round: SftRound) -> bool {
    round.step + 1 == round.dimension()
}

/// The state as a block.
fn block_of(own: Block, view: &PeerView<Slice>) -> Block {
    let runs = |kind: u64, sequence: &Sequence<Slice>| -> Vec<Run> {
        let heard = sequence.nodes();
        heard
            .filter_map(|node| {
                Some(Run {
                    origin: Rank(node.0),
                    start: kind,
                    data: sequence.block(node)?.clone(),
                })
            })
            .collect()
    };
    let heard = runs(HEARD, view.current());
    let before = view.previous().map(|before| runs(BEFORE, before));
    let heard = Block::of_sorted(heard);
    let before = Block::of_sorted(before.unwrap_or_default());
    Block {
        digest: None,
        ..Block::unite([own, heard, before])
    }
}

impl Algorithm for Reliable<'_> {
    fn rounds(&self) -> u32 {
        rounds(self.sort.dimension).count() as u32
    }

    fn step(&self, round: u32) -> Step {
        Step {
            scope: (round == 1).then_some(self.sort.dimension),
            exchange: match self.round(round) {
                Ok(round) => Exchange::Dimension(round.step),
                Err(_) => Exchange::Nothing,
            },
        }
    }

    fn prepare(&self, block: Block) -> Result<Block> {
        self.sort.prepare(block)
    }

    fn propose(&self, at: &RoundContext<'_>, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        self.sort.propose(at, subcube, block)
    }

    fn decide(
        &self,
        at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        self.sort.decide(at, subcube, proposals)
    }

    fn proposal_limit(&self, round: u32) -> usize {
        self.sort.proposal_limit(round)
    }

    fn decision_limit(&self, round: u32) -> usize {
        self.sort.decision_limit(round)
    }

    fn most_runs(&self) -> usize {
        self.sort.most_runs() + (2 << self.sort.dimension)
    }

    fn is_recomputable(&self) -> bool {
        false
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        let round = self.round(at.round)?;
        let looked_at = |run: &&Run| match run.start {
            BEFORE.. => round.is_within(),
            HEARD.. => true,
            _ => !round.is_last || is_first(round),
        };
        let given = block.runs.iter().filter(looked_at).cloned().collect();
        Ok(Split {
            keep: block.clone(),
            give: vec![Block::of_sorted(given)],
        })
    }

    fn join(&self, at: &RoundContext<'_>, keep: Block, got: Block) -> Result<Block> {
        let round = self.round(at.round)?;
        let partner = round.partner(at.node);
        let checks = SftChecks {
            dimension: self.sort.dimension,
            key_order: KeyOrder {
                kernel: self.sort.kernel,
                longest: Bitonic::longest(at.decision)?,
            },
            rule: ConsistencyRule::Repeated,
        };
        let mine = self.state(round, at.node, at.node, keep)?;
        let theirs = self.state(round, partner, at.node, got)?;
        if is_first(round) {
            self.verify_own(round, at.node, at.node, &mine)?;
            self.verify_own(round, partner, at.node, &theirs)?;
        }
        let ends = round.step == 0;
        if ends && round.is_last {
            // What they say from now on is compared with nothing any more.
            self.verify_own(round, at.node, at.node, &mine)?;
        }
        let mut view = PeerView::from_sequences(at.node, mine.heard, mine.before);
        let told = ViewReport {
            current: theirs.heard,
            previous: theirs.before.filter(|_| round.is_within()),
        };
        let heard = checks.receive(round, &mut view, &told, ReportKind::First);
        heard.map_err(|violation| corrupt(&violation))?;
        if round.is_last {
            if !ends {
                return Ok(block_of(mine.own, &view));
            }
            let verified = checks.verify(round, &view);
            verified.map_err(|violation| corrupt(&violation))?;
            return Ok(mine.own);
        }
        let own = self.sort.join(at, mine.own, theirs.own)?;
        if ends {
            let block = merged(self.sort.kernel, own.clone())?;
            let closed = checks.end_stage(round, &mut view, block);
            closed.map_err(|violation| corrupt(&violation))?;
        }
        Ok(block_of(own, &view))
    }
}

#[cfg(test)]
mod tests;

//! Bitonic sort with checks: algorithm S_FT of McMillin and Ni (1989, Section 3 and Figure 3), run by the
//! engine, with the corrected rule [`Rule::Repeated`].
//!
//! Records move as in [`Bitonic`]. Besides its own records, a node's block contains the blocks that other
//! nodes have reported: those of this stage (the paper's LBS) and those of the stage before (LLBS). Reports
//! are therefore stored, taken over and restored with the block. A run is of one of three kinds:
//!
//! | origin | start | records |
//! |---|---|---|
//! | owner of the input | position in it, below 2^62 | the node's own records |
//! | a node | 2^62 ([`CURRENT`]) | all records of that node at the start of this stage, merged |
//! | a node | 2^63 ([`PREVIOUS`]) | all records of that node at the start of the stage before, merged |
//!
//! The set of nodes that have reported before a round is known ([`Round::mask_before`]), so a run that is
//! absent belongs to a node without records. Version 0, and the version after the last round, have runs of
//! the first kind only. A message omits runs that its receiver does not read: reports of the stage before,
//! where they are not compared, and the own records in the last stage, in which no record moves.
//!
//! Beyond the paper: a node's own records at the start of a stage are also part of the reports. Both are
//! compared where a message contains both, and at the end of the sort. A message that is changed in the first
//! round of a stage is therefore detected before its content is used.
//!
//! Memory and messages grow to twice the records of all nodes. Must never: state an accusation as certain;
//! accuse a node if no data was changed.

use super::bitonic::{Bitonic, Shape};
use super::merging::merged;
use crate::block::{Block, Run};
use crate::engine::{Algorithm, Exchange, RoundContext, Split, Step, Subcube};
use crate::members::Rank;
use crate::vcube::Node;
use crate::verify::mask::{Mask, SftRound, rounds};
use crate::verify::peer_view::{
    ConsistencyRule, PeerView, Predicates, ReportKind, SftChecks, ViewReport,
};
use crate::verify::predicates::{KeyOrder, is_sorted};
use crate::verify::sequence::Sequence;
use crate::verify::violation::{Predicate, PredicateViolation};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Finding, Result};
use ftsort_kernels::kernel::Kernel;

/// Bitonic sort of any input, with the checks of the 1989 paper.
#[derive(Debug)]
pub struct SftBitonic<'a> {
    sort: Bitonic<'a>,
}

/// The starts of runs that hold reports of this stage, and of the stage before.
const CURRENT: u64 = 1 << 62;
const PREVIOUS: u64 = 1 << 63;

/// The content of a block before a round.
struct NodeState {
    own: Block,
    current: Sequence<Slice>,
    previous: Option<Sequence<Slice>>,
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

/// Returns the error of node `by`, which finds wrong data of node `place` in a message or in its own block.
fn accusation_of(by: Node, round: SftRound, predicate: Predicate, place: Node) -> Error {
    corrupt(&PredicateViolation {
        found_by: by,
        round,
        predicate,
        node: place,
        suspects: vec![place],
    })
}

impl<'a> SftBitonic<'a> {
    /// Creates the sort for a cube of this dimension.
    pub fn new(kernel: &'a dyn Kernel, dimension: u32) -> SftBitonic<'a> {
        let shape = Shape::Any;
        SftBitonic {
            sort: Bitonic {
                kernel,
                dimension,
                shape,
            },
        }
    }

    fn round(&self, number: u32) -> Result<SftRound> {
        let found = rounds(self.sort.dimension).nth(number.saturating_sub(1) as usize);
        found.ok_or_else(|| Error::internal("the sort has no such round"))
    }

    /// Reads a block of `node`, as it is before the round or as it arrives in the round's message, on behalf
    /// of node `by`.
    fn state(&self, round: SftRound, node: Node, by: Node, block: Block) -> Result<NodeState> {
        let is_first = is_first(round);
        let own: Vec<Run> = (block.runs.iter())
            .filter(|run| run.start < CURRENT)
            .cloned()
            .collect();
        let kernel = self.sort.kernel;
        let whole = |run: &Run| {
            run.data.len().is_multiple_of(kernel.record_bytes()) && is_sorted(&run.data, kernel)
        };
        if !own.iter().all(whole) {
            return Err(accusation_of(by, round, Predicate::Progress, node));
        }
        let own = Block::of_sorted(own);
        // The first message of all has no reports: the records that move are the report.
        let without_reports = is_first && round.stage == 0;
        let reported = |kind: u64, of: Node| {
            let mut runs = block.runs.iter();
            let run = runs.find(|run| (run.origin, run.start) == (Rank(of.0), kind));
            run.map_or_else(Slice::default, |run| run.data.clone())
        };
        let sequence = |kind: u64, dimension: u32, mask: Mask| {
            let mut sequence = Sequence::new(dimension, node, reported(kind, node));
            for of in mask.nodes() {
                sequence.set_block(of, Some(reported(kind, of)));
            }
            sequence
        };
        let current = if without_reports {
            Sequence::new(1, node, merged(self.sort.kernel, own.clone())?)
        } else {
            sequence(CURRENT, round.dimension(), round.mask_before(node))
        };
        let mask = Mask::subcube(node, round.stage);
        let previous = (round.stage > 0).then(|| sequence(PREVIOUS, round.stage, mask));
        Ok(NodeState {
            own,
            current,
            previous,
        })
    }

    /// Checks that a node's records equal the report about it, which holds at the start of a stage and in the
    /// whole last stage.
    fn verify_own(&self, round: SftRound, node: Node, by: Node, state: &NodeState) -> Result<()> {
        let own = merged(self.sort.kernel, state.own.clone())?;
        let reported = state.current.block(node);
        if reported.is_some_and(|reported| reported[..] == own[..]) {
            Ok(())
        } else {
            Err(accusation_of(by, round, Predicate::Consistency, node))
        }
    }
}

/// Whether the round is the first of its stage.
fn is_first(round: SftRound) -> bool {
    round.step + 1 == round.dimension()
}

/// Returns the state as a block.
fn block_of(own: Block, view: &PeerView<Slice>) -> Block {
    let runs = |kind: u64, sequence: &Sequence<Slice>| -> Vec<Run> {
        let nodes = sequence.nodes();
        nodes
            .filter_map(|node| Some(Run::new(Rank(node.0), kind, sequence.block(node)?.clone())))
            .collect()
    };
    let current = runs(CURRENT, &view.current);
    let previous = view
        .previous
        .as_ref()
        .map(|previous| runs(PREVIOUS, previous));
    let current = Block::of_sorted(current);
    let previous = Block::of_sorted(previous.unwrap_or_default());
    Block {
        digest: None,
        ..Block::unite([own, current, previous])
    }
}

impl Algorithm for SftBitonic<'_> {
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
        let is_read = |run: &&Run| match run.start {
            PREVIOUS.. => round.is_within(),
            CURRENT.. => true,
            _ => !round.is_last || is_first(round),
        };
        let sent = block.runs.iter().filter(is_read).cloned().collect();
        Ok(Split {
            keep: block.clone(),
            give: vec![Block::of_sorted(sent)],
        })
    }

    fn join(&self, at: &RoundContext<'_>, keep: Block, got: Block) -> Result<Block> {
        let round = self.round(at.round)?;
        let partner = round.partner(at.node);
        let checks = SftChecks {
            predicates: Predicates::ALL,
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
        let ends_stage = round.step == 0;
        if ends_stage && round.is_last {
            // The own records are not compared with a report after this round.
            self.verify_own(round, at.node, at.node, &mine)?;
        }
        let mut view = PeerView {
            node: at.node,
            current: mine.current,
            previous: mine.previous,
        };
        let report = ViewReport {
            current: theirs.current,
            previous: theirs.previous.filter(|_| round.is_within()),
        };
        let received = checks.receive(round, &mut view, &report, ReportKind::First);
        received.map_err(|violation| corrupt(&violation))?;
        if round.is_last {
            if !ends_stage {
                return Ok(block_of(mine.own, &view));
            }
            let verified = checks.verify(round, &view);
            verified.map_err(|violation| corrupt(&violation))?;
            return Ok(mine.own);
        }
        let own = self.sort.join(at, mine.own, theirs.own)?;
        if ends_stage {
            let block = merged(self.sort.kernel, own.clone())?;
            let closed = checks.end_stage(round, &mut view, block);
            closed.map_err(|violation| corrupt(&violation))?;
        }
        Ok(block_of(own, &view))
    }
}

#[cfg(test)]
mod tests;

//! A node's part in algorithm S_FT besides sorting (Figure 3 of the 1989 paper): it adds the blocks
//! that it knows to the messages of the sort, merges the blocks that its partners report, and at
//! the end of a stage verifies the sequence it then knows. The functions are pure: the same calls
//! give the same results, for any node.
//!
//! **The paper's rule and ours.** The messages of a stage bring a node every block only once, and
//! over only one path ([`SftRound::path`]). The paper's masks compare nothing but the echo of a
//! block that the node has just sent, and the "vertex-disjoint paths" of the paper do not exist. So
//! one faulty node can permanently report one key to one half of the nodes and another key to the
//! other half; `docs/reliable.md` has the example. [`ConsistencyRule::Repeated`] corrects this
//! without further messages: along the dimensions of the previous stage, neighbours also report
//! that stage's whole sequence, and it must be the same.
//!
//! With this rule, assume that in each subcube of dimension d >= 2 at most d - 1 nodes are faulty,
//! and that the first exchange is correct. Then either an honest node reports a violation, or all
//! honest nodes end with the correct result. Proof: a hypercube of dimension d stays connected
//! without any d - 1 of its nodes. So in each subcube all honest nodes know the same sequence, or
//! two neighbours among them differ and report it. By induction over the stages this sequence is
//! correct: each half has an honest node, which has verified that half against the sequence that
//! all honest nodes of the half knew. At the end the result of each node is determined by a
//! sequence that is known to be correct.
//!
//! Must never: move records, or decide how to treat a suspect.

use std::ops::Deref;

use crate::vcube::Node;
use crate::verify::mask::{Mask, SftRound};
use crate::verify::predicates::{KeyOrder, MonotoneRange};
use crate::verify::sequence::{Contradiction, Sequence};
use crate::verify::violation::{Predicate, PredicateViolation};

/// The reports that neighbours compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsistencyRule {
    /// As the paper prints it: reports on nodes with blocks that are known from the same stage.
    Paper,
    /// Also the whole sequence of the previous stage.
    Repeated,
}

/// The predicates that a sort evaluates. The absence of a report is a violation in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicates {
    /// Phi_P.
    pub progress: bool,
    /// Phi_F.
    pub feasibility: bool,
    /// Phi_C.
    pub consistency: bool,
}

impl Predicates {
    /// The constraint predicate of the paper: all three.
    pub const ALL: Predicates = Predicates {
        progress: true,
        feasibility: true,
        consistency: true,
    };
}

/// The checks of one sort.
#[derive(Clone, Copy, Debug)]
pub struct SftChecks<'a> {
    /// The predicates that are evaluated. Only all three together satisfy the theorem.
    pub predicates: Predicates,
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// The order of the records, and the size of the blocks.
    pub key_order: KeyOrder<'a>,
    /// The reports that neighbours compare.
    pub rule: ConsistencyRule,
}

/// The blocks that a node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView<B> {
    /// The node.
    pub node: Node,
    /// Blocks at the start of this stage: the paper's LBS.
    pub current: Sequence<B>,
    /// Blocks at the start of the previous stage, verified: the paper's LLBS. None in the first
    /// stage.
    pub previous: Option<Sequence<B>>,
}

/// The part of a message that the checks need, besides the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewReport<B> {
    /// The blocks that the sender knows from this stage.
    pub current: Sequence<B>,
    /// The blocks that the sender knows from the previous stage.
    pub previous: Option<Sequence<B>>,
}

/// Whether the sender of a report has received the receiver's report of this round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportKind {
    /// It has not: the sender is the first, or both send at once.
    First,
    /// It has: the report is an answer, and must contain the blocks that the receiver has just
    /// reported.
    Answer,
}

impl<B: Clone + Deref<Target = [u8]>> PeerView<B> {
    /// Returns the view of a node with this sorted block, before the first round.
    pub fn new(node: Node, block: B) -> PeerView<B> {
        PeerView {
            node,
            current: Sequence::new(1, node, block),
            previous: None,
        }
    }
}

impl SftChecks<'_> {
    /// Returns the report that goes with a node's message of this round.
    pub fn report<B>(&self, round: SftRound, view: &PeerView<B>) -> ViewReport<B>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let repeats = self.rule == ConsistencyRule::Repeated && round.is_within();
        ViewReport {
            current: view.current.clone(),
            previous: view.previous.clone().filter(|_| repeats),
        }
    }

    /// Merges the report of the partner of this round. Processes all of it, and returns the first
    /// violation.
    pub fn receive<B>(
        &self,
        round: SftRound,
        view: &mut PeerView<B>,
        report: &ViewReport<B>,
        reorder: ReportKind,
    ) -> Result<(), PredicateViolation>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let partner = round.partner(view.node);
        let mask = match reorder {
            ReportKind::First => round.mask_before(partner),
            ReportKind::Answer => round.mask(partner),
        };
        let mut result = view.current.merge(&report.current, mask);
        if self.rule == ConsistencyRule::Repeated
            && round.is_within()
            && let Some(previous) = &mut view.previous
        {
            let repeated = match &report.previous {
                Some(report) => previous.merge(report, Mask::subcube(view.node, round.stage)),
                None => Err(Contradiction::Missing(partner)),
            };
            result = result.and(repeated);
        }
        if !self.predicates.consistency && matches!(result, Err(Contradiction::Different(_))) {
            return Ok(());
        }
        result.map_err(|contradiction| {
            let (predicate, place) = match contradiction {
                Contradiction::Different(place) => (Predicate::Consistency, place),
                Contradiction::Missing(place) => (Predicate::Absence, place),
            };
            PredicateViolation {
                found_by: view.node,
                round,
                predicate,
                node: place,
                suspects: vec![partner],
            }
        })
    }

    /// Ends a stage after its last round, with the node's new block: verifies the known sequence,
    /// and starts a new one. The next stage starts even if a predicate is violated.
    pub fn end_stage<B>(
        &self,
        round: SftRound,
        view: &mut PeerView<B>,
        block: B,
    ) -> Result<(), PredicateViolation>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let result = self.verify(round, view);
        let dimension = self.dimension.min(round.stage + 2);
        let fresh = Sequence::new(dimension, view.node, block);
        view.previous = Some(std::mem::replace(&mut view.current, fresh));
        result
    }

    /// Procedure bit_compare: evaluates progress of the known sequence, and feasibility of the
    /// node's own half of it, or of the whole sequence in the last stage.
    pub fn verify<B>(&self, round: SftRound, view: &PeerView<B>) -> Result<(), PredicateViolation>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        // In the first stage no sequence has been sorted yet.
        let Some(previous) = &view.previous else {
            return Ok(());
        };
        let own = MonotoneRange::sorted(view.node, round.stage);
        let ranges = if round.is_last {
            vec![own.clone()]
        } else {
            MonotoneRange::halves(view.node, round.dimension())
        };
        let accuse = |predicate, place| {
            let mut suspects = vec![place];
            suspects.extend(round.path(place, view.node));
            PredicateViolation {
                found_by: view.node,
                round,
                predicate,
                node: place,
                suspects,
            }
        };
        for range in ranges.iter().filter(|_| self.predicates.progress) {
            let found = self.key_order.progress(&view.current, range);
            found.map_err(|place| accuse(Predicate::Progress, place))?;
        }
        if !self.predicates.feasibility {
            return Ok(());
        }
        let halves = MonotoneRange::halves(view.node, round.stage);
        let found = self
            .key_order
            .feasibility(previous, &halves, &view.current, &own);
        found.map_err(|place| accuse(Predicate::Feasibility, place))
    }
}

#[cfg(test)]
mod tests;

//! What a node does beside sorting in algorithm S_FT (Figure 3 of the 1989 paper): it tells what it has
//! heard in the messages that the sort sends anyway, hears what others tell, and at the end of a stage
//! verifies the sequence it has then. Pure: the same calls give the same results, for any node.
//!
//! **The paper's rule and ours.** A stage's messages bring a node everybody's block once, and by one way
//! only ([`SftRound::way`]); the paper's masks compare nothing but the echo of what one has just sent, and
//! its "vertex-disjoint paths" are not there. So one faulty node can show one half of the nodes another
//! key than the others, for ever: `docs/reliable.md` has the example. [`ConsistencyRule::Repeated`] mends it
//! without a message more: along the dimensions of the stage before, neighbours also tell each other
//! that stage's whole sequence, and it must be the same.
//!
//! Then, if in each subcube of dimension d >= 2 at most d - 1 nodes are faulty, and all is well in the
//! first exchange, either an honest node accuses somebody or all honest nodes end with what they must.
//! For a hypercube of dimension d stays connected without any d - 1 of its nodes; so in each subcube
//! all honest nodes know the same sequence, or two neighbours among them differ and say so. By
//! induction over the stages it is right: each half has an honest node, which has verified that half
//! against what all honest nodes of the half knew. In the end the result of each node is determined by
//! a sequence that is known to be right.
//!
//! Must never: move records, or decide what happens to who is accused.

use std::ops::Deref;

use crate::vcube::Node;
use crate::verify::mask::{Mask, SftRound};
use crate::verify::predicates::{KeyOrder, MonotoneRange};
use crate::verify::sequence::{Contradiction, Sequence};
use crate::verify::violation::{Predicate, PredicateViolation};

/// What neighbours compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsistencyRule {
    /// As the paper prints it: what a node is told of nodes that it has heard of in the same stage.
    Paper,
    /// Also the whole sequence of the stage before.
    Repeated,
}

/// The checks of one sort.
#[derive(Clone, Copy, Debug)]
pub struct SftChecks<'a> {
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// What is compared how.
    pub key_order: KeyOrder<'a>,
    /// What neighbours compare.
    pub rule: ConsistencyRule,
}

/// What a node has heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView<B> {
    node: Node,
    /// In this stage: the paper's LBS.
    heard: Sequence<B>,
    /// In the stage before, and verified: the paper's LLBS. None in the first.
    before: Option<Sequence<B>>,
}

/// What travels with the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewReport<B> {
    /// What the sender has heard in this stage.
    pub heard: Sequence<B>,
    /// What it had heard in the stage before.
    pub before: Option<Sequence<B>>,
}

/// Has the sender of a message heard what the receiver has to tell in this round?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportKind {
    /// Not yet: it is the first, or both send at once.
    First,
    /// It answers, and what it has just been told must come back.
    Answer,
}

impl<B: Clone + Deref<Target = [u8]>> PeerView<B> {
    /// Before the first round, of a node with this sorted block.
    pub fn new(node: Node, block: B) -> PeerView<B> {
        PeerView {
            node,
            heard: Sequence::new(1, node, block),
            before: None,
        }
    }

    /// Of a node that has heard this in the stage, and this in the stage before.
    pub fn from_sequences(
        node: Node,
        heard: Sequence<B>,
        before: Option<Sequence<B>>,
    ) -> PeerView<B> {
        PeerView {
            node,
            heard,
            before,
        }
    }

    /// Whose it is.
    pub fn node(&self) -> Node {
        self.node
    }

    /// What it has heard in this stage.
    pub fn heard(&self) -> &Sequence<B> {
        &self.heard
    }

    /// What it had heard in the stage before.
    pub fn before(&self) -> Option<&Sequence<B>> {
        self.before.as_ref()
    }
}

impl SftChecks<'_> {
    /// What goes along with a node's message of this round.
    pub fn report<B>(&self, round: SftRound, view: &PeerView<B>) -> ViewReport<B>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let repeats = self.rule == ConsistencyRule::Repeated && round.is_within();
        ViewReport {
            heard: view.heard.clone(),
            before: view.before.clone().filter(|_| repeats),
        }
    }

    /// Takes what the partner of this round tells. Goes on to the end, and returns the first thing wrong.
    pub fn receive<B>(
        &self,
        round: SftRound,
        view: &mut PeerView<B>,
        told: &ViewReport<B>,
        turn: ReportKind,
    ) -> Result<(), PredicateViolation>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let partner = round.partner(view.node);
        let mask = match turn {
            ReportKind::First => round.mask_before(partner),
            ReportKind::Answer => round.mask(partner),
        };
        let mut result = view.heard.merge(&told.heard, mask);
        if self.rule == ConsistencyRule::Repeated
            && round.is_within()
            && let Some(before) = &mut view.before
        {
            let repeated = match &told.before {
                Some(told) => before.merge(told, Mask::subcube(view.node, round.stage)),
                None => Err(Contradiction::Missing(partner)),
            };
            result = result.and(repeated);
        }
        result.map_err(|contradiction| {
            let (predicate, place) = match contradiction {
                Contradiction::Different(place) => (Predicate::Consistency, place),
                Contradiction::Missing(place) => (Predicate::Absence, place),
            };
            PredicateViolation {
                by: view.node,
                round,
                predicate,
                place,
                suspects: vec![partner],
            }
        })
    }

    /// Ends a stage, of which this was the last round, with the block that the node has then: verifies
    /// what was heard, and starts to hear anew. The next stage starts even if something is wrong.
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
        view.before = Some(std::mem::replace(&mut view.heard, fresh));
        result
    }

    /// Procedure bit_compare: progress of the sequence heard, and feasibility of the node's own half of
    /// it, or of the whole sequence in the last stage.
    pub fn verify<B>(&self, round: SftRound, view: &PeerView<B>) -> Result<(), PredicateViolation>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        // In the first stage nothing has been sorted yet.
        let Some(before) = &view.before else {
            return Ok(());
        };
        let own = MonotoneRange::sorted(view.node, round.stage);
        let slopes = if round.is_last {
            vec![own.clone()]
        } else {
            MonotoneRange::halves(view.node, round.dimension())
        };
        let accuse = |predicate, place| {
            let mut suspects = vec![place];
            suspects.extend(round.way(place, view.node));
            PredicateViolation {
                by: view.node,
                round,
                predicate,
                place,
                suspects,
            }
        };
        for slope in &slopes {
            let found = self.key_order.progress(&view.heard, slope);
            found.map_err(|place| accuse(Predicate::Progress, place))?;
        }
        let halves = MonotoneRange::halves(view.node, round.stage);
        let found = self
            .key_order
            .feasibility(before, &halves, &view.heard, &own);
        found.map_err(|place| accuse(Predicate::Feasibility, place))
    }
}

#[cfg(test)]
mod tests;

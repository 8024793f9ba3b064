//! What a node does beside sorting in algorithm S_FT (Figure 3 of the 1989 paper): it tells what it has
//! heard in the messages that the sort sends anyway, hears what others tell, and at the end of a stage
//! verifies the sequence it has then. Pure: the same calls give the same results, for any node.
//!
//! **The paper's rule and ours.** A stage's messages bring a node everybody's block once, and by one way
//! only ([`Round::way`]); the paper's masks compare nothing but the echo of what one has just sent, and
//! its "vertex-disjoint paths" are not there. So one faulty node can show one half of the nodes another
//! key than the others, for ever: `docs/reliable.md` has the example. [`Rule::Repeated`] mends it
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

use super::accusation::{Accusation, Predicate};
use super::mask::{Mask, Round};
use super::predicates::{KeyOrder, Slope};
use super::sequence::{Contradiction, Sequence};
use crate::vcube::Node;

/// What neighbours compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// As the paper prints it: what a node is told of nodes that it has heard of in the same stage.
    Paper,
    /// Also the whole sequence of the stage before.
    Repeated,
}

/// The checks of one sort.
#[derive(Clone, Copy, Debug)]
pub struct Checks<'a> {
    /// log2 of the number of nodes.
    pub dimension: u32,
    /// What is compared how.
    pub key_order: KeyOrder<'a>,
    /// What neighbours compare.
    pub rule: Rule,
}

/// What a node has heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness<B> {
    node: Node,
    /// In this stage: the paper's LBS.
    heard: Sequence<B>,
    /// In the stage before, and verified: the paper's LLBS. None in the first.
    before: Option<Sequence<B>>,
}

/// What travels with the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told<B> {
    /// What the sender has heard in this stage.
    pub heard: Sequence<B>,
    /// What it had heard in the stage before.
    pub before: Option<Sequence<B>>,
}

/// Has the sender of a message heard what the receiver has to tell in this round?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// Not yet: it is the first, or both send at once.
    First,
    /// It answers, and what it has just been told must come back.
    Answer,
}

impl<B: Clone + Deref<Target = [u8]>> Witness<B> {
    /// Before the first round, of a node with this sorted block.
    pub fn new(node: Node, block: B) -> Witness<B> {
        Witness {
            node,
            heard: Sequence::new(1, node, block),
            before: None,
        }
    }

    /// Of a node that has heard this in the stage, and this in the stage before.
    pub fn of(node: Node, heard: Sequence<B>, before: Option<Sequence<B>>) -> Witness<B> {
        Witness {
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

impl Checks<'_> {
    /// What goes along with a node's message of this round.
    pub fn tell<B>(&self, round: Round, witness: &Witness<B>) -> Told<B>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let repeats = self.rule == Rule::Repeated && round.is_within();
        Told {
            heard: witness.heard.clone(),
            before: witness.before.clone().filter(|_| repeats),
        }
    }

    /// Takes what the partner of this round tells. Goes on to the end, and returns the first thing wrong.
    pub fn hear<B>(
        &self,
        round: Round,
        witness: &mut Witness<B>,
        told: &Told<B>,
        turn: Turn,
    ) -> Result<(), Accusation>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let partner = round.partner(witness.node);
        let mask = match turn {
            Turn::First => round.mask_before(partner),
            Turn::Answer => round.mask(partner),
        };
        let mut result = witness.heard.hear(&told.heard, mask);
        if self.rule == Rule::Repeated
            && round.is_within()
            && let Some(before) = &mut witness.before
        {
            let repeated = match &told.before {
                Some(told) => before.hear(told, Mask::subcube(witness.node, round.stage)),
                None => Err(Contradiction::Missing(partner)),
            };
            result = result.and(repeated);
        }
        result.map_err(|contradiction| {
            let (predicate, place) = match contradiction {
                Contradiction::Different(place) => (Predicate::Consistency, place),
                Contradiction::Missing(place) => (Predicate::Absence, place),
            };
            Accusation {
                by: witness.node,
                round,
                predicate,
                place,
                suspects: vec![partner],
            }
        })
    }

    /// Ends a stage, of which this was the last round, with the block that the node has then: verifies
    /// what was heard, and starts to hear anew. The next stage starts even if something is wrong.
    pub fn close<B>(
        &self,
        round: Round,
        witness: &mut Witness<B>,
        block: B,
    ) -> Result<(), Accusation>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        let result = self.verify(round, witness);
        let dimension = self.dimension.min(round.stage + 2);
        let fresh = Sequence::new(dimension, witness.node, block);
        witness.before = Some(std::mem::replace(&mut witness.heard, fresh));
        result
    }

    /// Procedure bit_compare: progress of the sequence heard, and feasibility of the node's own half of
    /// it, or of the whole sequence in the last stage.
    pub fn verify<B>(&self, round: Round, witness: &Witness<B>) -> Result<(), Accusation>
    where
        B: Clone + Deref<Target = [u8]>,
    {
        // In the first stage nothing has been sorted yet.
        let Some(before) = &witness.before else {
            return Ok(());
        };
        let own = Slope::sorted(witness.node, round.stage);
        let slopes = match round.is_last {
            true => vec![own.clone()],
            false => Slope::halves(witness.node, round.dimension()),
        };
        let accuse = |predicate, place| {
            let mut suspects = vec![place];
            suspects.extend(round.way(place, witness.node));
            Accusation {
                by: witness.node,
                round,
                predicate,
                place,
                suspects,
            }
        };
        for slope in &slopes {
            let found = self.key_order.progress(&witness.heard, slope);
            found.map_err(|place| accuse(Predicate::Progress, place))?;
        }
        let halves = Slope::halves(witness.node, round.stage);
        let found = self
            .key_order
            .feasibility(before, &halves, &witness.heard, &own);
        found.map_err(|place| accuse(Predicate::Feasibility, place))
    }
}

#[cfg(test)]
mod tests;

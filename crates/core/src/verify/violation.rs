//! What a node says that has found something wrong (the paper's ERROR signal, Section 3): what, where,
//! and who must have done it or passed it on. It must never act on it.

use std::fmt;

use super::mask::SftRound;
use crate::vcube::Node;

/// The part of the constraint predicate that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Predicate {
    /// A sequence does not go up, or down, as it must at the end of a stage.
    Progress,
    /// A sequence is no permutation of those that it was made from.
    Feasibility,
    /// Two say different things of the same.
    Consistency,
    /// A message, or a part of one that must be there, is missing or of the wrong size.
    Absence,
}

/// Something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredicateViolation {
    /// Who found it.
    pub by: Node,
    /// When.
    pub round: SftRound,
    /// What does not hold.
    pub predicate: Predicate,
    /// The node whose records it is about.
    pub place: Node,
    /// Who may have done it, in the order in which the records went from hand to hand; the first is
    /// accused. All others are cleared only if at most one node is faulty.
    pub suspects: Vec<Node>,
}

impl PredicateViolation {
    /// The first suspect.
    pub fn prime_suspect(&self) -> Option<Node> {
        self.suspects.first().copied()
    }
}

impl fmt::Display for PredicateViolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PredicateViolation {
            by,
            round,
            predicate,
            place,
            ..
        } = self;
        write!(
            out,
            "node {by}, {round}: {predicate:?} does not hold at node {place}"
        )?;
        match self.prime_suspect() {
            Some(accused) => write!(out, ", accused: node {accused}"),
            None => Ok(()),
        }
    }
}

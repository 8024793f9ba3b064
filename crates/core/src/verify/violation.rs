//! The report of a predicate that does not hold (the paper's ERROR signal, Section 3): the
//! predicate, the node with wrong records, and the nodes that may have changed them.
//!
//! Must never: act on the report.

use std::fmt;

use super::mask::SftRound;
use crate::vcube::Node;

/// A part of the constraint predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Predicate {
    /// A sequence is sorted as it must be at the end of a stage.
    Progress,
    /// A sequence is a permutation of the sequences that it was made from.
    Feasibility,
    /// Two reports on the same node are equal.
    Consistency,
    /// A message is present and complete, with blocks of the right size.
    Absence,
}

/// A predicate that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredicateViolation {
    /// The node that found it.
    pub found_by: Node,
    /// The round in which it was found.
    pub round: SftRound,
    /// The predicate that does not hold.
    pub predicate: Predicate,
    /// The node with wrong records.
    pub node: Node,
    /// The nodes that may have changed the records, in the order in which they forwarded them. The
    /// others are cleared only if at most one node is faulty.
    pub suspects: Vec<Node>,
}

impl PredicateViolation {
    /// Returns the first suspect.
    pub fn prime_suspect(&self) -> Option<Node> {
        self.suspects.first().copied()
    }
}

impl fmt::Display for PredicateViolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PredicateViolation {
            found_by,
            round,
            predicate,
            node,
            ..
        } = self;
        write!(
            out,
            "node {found_by}, {round}: {predicate:?} does not hold at node {node}"
        )?;
        match self.prime_suspect() {
            Some(accused) => write!(out, ", accused: node {accused}"),
            None => Ok(()),
        }
    }
}

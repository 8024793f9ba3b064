//! Progress of a job's transaction: the committed version and how it came about.
//!
//! Changed by commits and recoveries only; it must never hold anything that the survivors have not agreed on.

use std::collections::BTreeMap;

use super::decision::Decisions;
use super::job::RoundResult;
use crate::block::Block;
use crate::members::{Members, Membership, Rank};
use crate::mutants::{Mutant, mutant};
use crate::store::VersionId;
use crate::vcube::Node;
use ftsort_kernels::error::{Error, Result};

/// The committed state of a job, as far as this rank has it. The default is that of a job of which nothing is committed.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The committed version, with the failed ranks that were known when it was made.
    pub version: VersionId,
    /// That version of the blocks of the nodes that this rank executes.
    pub blocks: BTreeMap<Node, Block>,
    /// The membership when that version was committed: it tells which rank executed each node, and which
    /// ranks hold copies. None before the inputs are committed.
    pub membership: Option<Membership>,
    /// The decisions of the committed rounds, from round 1 on.
    pub log: Vec<Decisions>,
}

impl Progress {
    /// Returns to the state before the first commit.
    pub fn restart(&mut self) {
        *self = Progress::default();
    }

    /// Forgets the decisions, so that the job continues from the inputs.
    pub fn rewind(&mut self) {
        self.version = VersionId::INPUT;
        self.log.clear();
    }

    /// Makes the result of a round, which has just been committed, the state.
    pub fn commit(
        &mut self,
        round: u32,
        blocks: BTreeMap<Node, Block>,
        decisions: Decisions,
        members: &Members,
    ) {
        self.blocks = blocks;
        self.version = VersionId::INPUT;
        if round > 0 {
            if !mutant(Mutant::DecisionLoggedBeforeCommit) {
                self.log.push(decisions);
            }
            self.version = VersionId::new(round, members.faulty());
        }
        self.membership = Some(members.membership().clone());
    }

    /// Takes over the blocks that a recovery, which has just been committed, brought to this rank, and drops
    /// those of nodes that other ranks execute from now on.
    pub fn recover(&mut self, recovered: &mut RoundResult, members: &Members) {
        self.blocks.append(&mut recovered.blocks);
        let mine = members.my_nodes();
        self.blocks.retain(|node, _| mine.contains(node));
        if !mutant(Mutant::OldFailureSetAfterRecovery) {
            self.membership = Some(members.membership().clone());
        }
    }

    /// The decision that held for a node in the last committed round; empty before the first.
    pub fn last_decision(&self, node: Node) -> &[u8] {
        let last = self.log.last().and_then(|last| last.of(node));
        last.map_or(&[], |decision| decision)
    }

    /// The decision of a committed round that held for a node.
    pub fn decision(&self, round: u32, node: Node) -> Result<&[u8]> {
        let decisions = self.log.get(round as usize - 1);
        let decision = decisions.and_then(|decisions| decisions.of(node));
        decision.map(|decision| &decision[..]).ok_or_else(|| {
            let text = format!("the decision of round {round} at node {node} is not logged");
            Error::internal(text)
        })
    }

    /// The rank that had the node's block when the last version was committed; None before the inputs are
    /// committed.
    pub fn last_executor(&self, node: Node, members: &Members) -> Option<Rank> {
        let membership = self.membership.as_ref()?;
        if mutant(Mutant::LostNodesByCurrentFailures) {
            return Some(members.executor(node));
        }
        let executor = membership.executor(node)?;
        if mutant(Mutant::CurrentSuccessorsAsked) {
            return Some(members.last_successor(executor));
        }
        Some(executor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::buffer::Slice;

    fn decided(text: &[u8]) -> Decisions {
        Decisions::of_cube(2, Slice::copy_of(text).unwrap())
    }

    /// Decisions that came from corrupt data would cut other pieces than the blocks have.
    #[test]
    fn a_job_that_continues_from_the_inputs_has_the_decisions_since_then() {
        let members = Members::new(Rank(0), 4);
        let mut progress = Progress::default();
        progress.commit(0, BTreeMap::new(), Decisions::default(), &members);
        progress.commit(1, BTreeMap::new(), decided(b"corrupt"), &members);
        progress.rewind();
        assert_eq!(progress.version, VersionId::INPUT);
        assert!(progress.decision(1, Node(3)).is_err());
        progress.commit(1, BTreeMap::new(), decided(b"right"), &members);
        assert_eq!(progress.decision(1, Node(3)).unwrap(), b"right");
        assert_eq!(progress.last_decision(Node(3)), b"right");
        assert!(progress.decision(2, Node(3)).is_err());
    }
}

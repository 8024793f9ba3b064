//! The committed states of a loop of the caller's own, and the outcome of a commit ([`checkpoints`](super::checkpoints)).

use std::collections::BTreeMap;

use crate::block::{Block, Run};
use crate::members::Rank;
use crate::store::directory::Directory;
use crate::store::{Store, VersionId};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;

/// The origin of the run with a note, which is no rank.
pub(super) const NOTE: Rank = Rank(u32::MAX);

/// The entry of a state that was never put. A state of no bytes is an unsorted block.
pub(super) fn nothing() -> Block {
    Block::empty()
}

/// The outcome of a commit of states.
#[must_use]
pub struct StatesCommit {
    /// Whether the states that were put are the committed ones.
    pub is_committed: bool,
    /// The error for which the committed states of a rank that failed during the commit did not move.
    pub moved: Result<()>,
}

impl StatesCommit {
    pub(super) const NONE: StatesCommit = StatesCommit {
        is_committed: false,
        moved: Ok(()),
    };

    /// Returns whether the states are committed; an error if they are, but did not move.
    pub fn into_result(self) -> Result<bool> {
        self.moved.map(|()| self.is_committed)
    }
}

/// The states of one version, as this rank can read them.
pub struct CommittedStates {
    /// Those that this rank has in its memory.
    pub(super) here: BTreeMap<Node, Block>,
    /// Those of all ranks; None: they are not in files.
    pub(super) files: Option<Directory>,
    pub(super) version_id: VersionId,
}

impl CommittedStates {
    /// Returns the state of a node, and its note; None if it was never put, or its file is missing or damaged.
    pub fn get(&self, node: Node) -> Result<Option<(Slice, Option<Slice>)>> {
        let block = match (self.here.get(&node), &self.files) {
            (Some(block), _) => Some(block.clone()),
            (None, Some(files)) => files.get(self.version_id, node)?,
            (None, None) => None,
        };
        Ok(block.filter(|block| *block != nothing()).map(|block| {
            let (notes, state): (Vec<Run>, Vec<Run>) =
                (block.runs.into_iter()).partition(|run| run.origin == NOTE);
            let first = |runs: Vec<Run>| runs.into_iter().next().map(|run| run.data);
            let state = first(state).unwrap_or_default();
            (state, first(notes))
        }))
    }
}

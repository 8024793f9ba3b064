//! The redundancy that makes blocks recoverable: copies of inputs and lineage, or stored versions, and the
//! placement of both.
//!
//! Before anything else, [`protect`] brings each input to another rank or to a file. Three users share the
//! further steps (plan transfers, move, keep, renew): [`lineage`] recomputes blocks from copies of inputs,
//! [`versions`] stores the blocks of every round, and [`checkpoints`] keeps the states of loops of the caller's
//! own with the steps of `versions`. [`parity`] keeps shares of a code in place of copies, for both; after a
//! failure, [`inventory`] tells which of them are left, and [`solve`] finds the lost data. Redundancy stays after the
//! end of a job for inputs that are sorted later ([`held`]) and for results ([`retained`]). [`update`] replaces protected
//! inputs.

pub mod checkpoints;
pub mod committed;
pub mod held;
pub mod holders;
mod inventory;
mod lineage;
mod parity;
mod plan;
mod protect;
pub mod retained;
mod solve;
pub mod update;
pub mod versions;

pub(super) use versions::retire_before;

use std::collections::{BTreeMap, BTreeSet};

use crate::block::Block;
use crate::members::{Membership, Rank, RankSet};
use crate::store::{Store, StoreScope, VersionId};
use crate::vcube::Node;

/// The store of a job, and this rank's knowledge of its contents.
pub(super) struct Redundancy<'a> {
    pub store: &'a mut dyn Store,
    /// The owners of the inputs in this rank's store.
    pub held: RankSet,
    /// Copies of inputs that arrived before the job, and are still to be put into the store.
    pub gathered: Vec<(Rank, Block)>,
    /// How many ranks besides its owner are known to hold each input in this attempt at round 0; files count as
    /// one.
    pub in_place: usize,
    /// The membership with which all holders had their copies before the job; used in the first attempt.
    pub whole_with: Option<Membership>,
    /// The holders had their copies before the job with another membership.
    pub has_moved: bool,
    /// This rank's own input is counted in `held`, but its memory was released: its owner copies it again.
    pub released: bool,
    /// The inputs, as their owners passed them, that this rank contributes to parity: its own, and those that it has
    /// found after failures.
    pub raw: BTreeMap<Node, Block>,
    /// The parity of the inputs must be made again in this step; the same on all ranks.
    pub renews: bool,
    /// The inputs stay protected after the job.
    pub outlives_job: bool,
    /// The redundancy is kept after the end of the job.
    pub retains: bool,
    /// The job has ended, and its result is recovered.
    pub of_result: bool,
    /// Versions are stored, although blocks could be recomputed from inputs.
    pub has_versions: bool,
    /// The last version that was stored.
    pub stored: VersionId,
    /// The pieces of this rank's own input, released or not, that belong to nodes of the other ranks that hold it.
    pub kept: BTreeMap<Node, Block>,
    /// The membership with which they were chosen.
    pub kept_with: Option<Membership>,
    /// The pieces that all survivors keep in that way, by owner and node. Known in the recovery of a result.
    pub kept_by: BTreeSet<(Rank, Node)>,
    /// The owners of the data that cannot be recovered, as far as this rank knows.
    pub lost: RankSet,
}

impl<'a> Redundancy<'a> {
    /// A store that nothing was put into yet, in a group of so many ranks, and copies of inputs that have arrived.
    pub fn new(
        store: &'a mut dyn Store,
        ranks: usize,
        gathered: Vec<(Rank, Block)>,
    ) -> Redundancy<'a> {
        Redundancy {
            store,
            held: RankSet::new(ranks),
            gathered,
            in_place: 0,
            whole_with: None,
            has_moved: false,
            released: false,
            raw: BTreeMap::new(),
            renews: false,
            outlives_job: false,
            retains: false,
            of_result: false,
            has_versions: false,
            stored: VersionId::INPUT,
            kept: BTreeMap::new(),
            kept_with: None,
            kept_by: BTreeSet::new(),
            lost: RankSet::new(ranks),
        }
    }

    /// Returns whether redundancy is in the memory of ranks, as copies or parity, and not in files that all ranks see.
    pub fn keeps_copies(&self) -> bool {
        let scope = self.store.scope();
        matches!(scope, StoreScope::Copies(_) | StoreScope::Parity(_))
    }
}

//! The redundancy that makes blocks recoverable: copies of inputs and lineage, or stored versions, and the
//! placement of both.
//!
//! Before anything else, [`protect`] brings each input to another rank or to a file. Three users share the
//! further steps (plan transfers, move, keep, renew): [`lineage`] recomputes blocks from copies of inputs,
//! [`versions`] stores the blocks of every round, and [`checkpoints`] keeps the states of loops of the caller's
//! own with the steps of `versions`.

pub mod checkpoints;
pub mod holders;
mod lineage;
mod protect;
pub mod versions;

pub(super) use versions::retire_before;

use std::collections::BTreeMap;

use crate::members::{Rank, RankSet};
use crate::store::{Store, StoreScope};

/// The holders of each input, by its owner.
type Holdings = BTreeMap<Rank, Vec<Rank>>;

/// The store of a job, and this rank's knowledge of its contents.
pub(super) struct Redundancy<'a> {
    pub store: &'a mut dyn Store,
    /// The owners of the inputs in this rank's store.
    pub held: RankSet,
    /// The protection of the inputs ended in this attempt at round 0, and no failure interrupted it.
    pub protected: bool,
    /// This rank's own input is counted in `held`, but its memory was released: its owner copies it again.
    pub released: bool,
    /// The owners of the data that cannot be recovered, as far as this rank knows.
    pub lost: RankSet,
}

impl<'a> Redundancy<'a> {
    /// A store that nothing was put into yet, in a group of so many ranks.
    pub fn new(store: &'a mut dyn Store, ranks: usize) -> Redundancy<'a> {
        Redundancy {
            store,
            held: RankSet::new(ranks),
            protected: false,
            released: false,
            lost: RankSet::new(ranks),
        }
    }

    /// Returns whether redundancy is copies in the memory of ranks, and not files that all ranks see.
    pub fn keeps_copies(&self) -> bool {
        matches!(self.store.scope(), StoreScope::Copies(_))
    }
}

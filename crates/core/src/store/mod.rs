//! Stores of versions of blocks, from which another rank can continue.
//!
//! A store keeps and returns bytes on this rank; the engine moves copies between ranks, knows their holders,
//! and decides when a version is committed.

pub mod directory;
pub mod disk;
pub mod memory;
pub mod named;
pub mod overlay;
pub mod parity;

use std::fmt;

use self::directory::Series;
use self::parity::{Covered, Encoding, ParityShape};
use crate::block::Block;
use crate::members::RankSet;
use crate::vcube::Node;
use ftsort_kernels::error::Result;

/// The ranks that can read the entries of a rank's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreScope {
    /// Every rank: the store is shared.
    Shared,
    /// Only the rank itself; the engine sends copies to this many other ranks, which put them into their
    /// stores.
    Copies(usize),
    /// Only the rank itself; the engine keeps the shares of an erasure code in the stores of other ranks.
    Parity(ParityShape),
}

/// Identifies a state of all blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionId {
    /// The number of rounds before it.
    pub version: u32,
    /// The fingerprint of the failed ranks that were known. A rank that is behind, or that is cut off and
    /// takes the others for failed, may still write blocks of a round that the others have abandoned: its
    /// decisions differ, and so must its names.
    pub faults: u32,
}

impl VersionId {
    /// The inputs, which do not depend on failures.
    pub const INPUT: VersionId = VersionId {
        version: 0,
        faults: 0,
    };

    /// The blocks after so many rounds, of a rank that knows these failures.
    pub fn new(version: u32, faulty: &RankSet) -> VersionId {
        VersionId {
            version,
            faults: faulty.fingerprint(),
        }
    }
}

/// Keeps versions of nodes' blocks.
pub trait Store: fmt::Debug {
    /// The ranks that can read the entries.
    fn scope(&self) -> StoreScope;

    /// The files that later entries go to; None: they are in memory.
    fn series(&self) -> Option<Series> {
        None
    }

    /// Stores `block` as that of `node` at `version_id`, and replaces an older entry. Either all of it is
    /// stored, or `Status::Store` or `Status::Memory` gives the reason.
    fn put(&mut self, version_id: VersionId, node: Node, block: &Block) -> Result<()>;

    /// Stores an input that was copied to this rank, for as long as the inputs are protected.
    fn hold(&mut self, owner: Node, input: &Block) -> Result<()> {
        self.put(VersionId::INPUT, owner, input)
    }

    /// Removes a copy of an input that is wrong or not needed any more. It has no effect on stores without copies of inputs.
    fn discard(&mut self, _owner: Node) {}

    /// Returns a stored block; None if there is none or it is damaged. `Status::Memory` if there is no memory
    /// for it.
    fn get(&self, version_id: VersionId, node: Node) -> Result<Option<Block>>;

    /// Returns an input as [`Store::hold`] got it, although the job has stored a sorted one above it.
    fn held(&self, owner: Node) -> Result<Option<Block>> {
        self.get(VersionId::INPUT, owner)
    }

    /// Returns this rank's part in the committed encoding of these data, if there is one.
    fn encoding(&self, _covered: Covered) -> Option<&Encoding> {
        None
    }

    /// Replaces the encoding of these data. It has no effect on stores without parity.
    fn set_encoding(&mut self, _covered: Covered, _encoding: Option<Encoding>) {}

    /// Removes versions older than `version`, which no rank needs any more. Never fails: an entry that cannot
    /// be removed now is removed at the end.
    fn retire(&mut self, version: u32);

    /// Removes everything: the sort has ended, with or without success, and later entries belong to the next.
    fn clear(&mut self);

    /// As `clear`, but entries that other ranks may still read stay in a shared store until `sweep`.
    fn leave(&mut self) {
        self.clear();
    }

    /// Removes the files that failed ranks left from past sorts in a shared store, except those of detached
    /// entries that this rank still has. Called on one rank after `clear`, when no rank reads them any more.
    fn sweep(&mut self) {}

    /// Moves all entries into a store of their own, which outlives the sort, and continues as after `clear`. When
    /// that store is dropped it releases its entries for `remove_released`, if it `removes` them; otherwise `sweep`
    /// removes them later.
    fn detach(&mut self, removes: bool) -> Box<dyn Store>;

    /// Lets `sweep` remove the files of detached entries too: no rank will read them any more.
    fn give_up_detached(&mut self) {}

    /// Removes the files of detached stores that were dropped. Called after an agreement of a later call: before
    /// it, other ranks may have found this rank failed in the last agreement, and recover the result.
    fn remove_released(&mut self) {}

    /// This rank is separated from the others, which may still need its files: detached entries are not removed.
    fn set_apart(&mut self) {}
}

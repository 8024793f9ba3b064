//! Where versions of blocks live, so that another rank can go on from them.
//!
//! A store keeps and gives bytes on this rank; the engine moves copies between ranks, knows who
//! holds what, and decides when a version is committed.

pub mod directory;
pub mod disk;
pub mod memory;

use crate::block::Block;
use crate::vcube::Node;
use ftsort_kernels::error::Result;

/// Who else can get at what a rank puts into its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreScope {
    /// Every rank: the store is shared.
    Everyone,
    /// Nobody; the engine sends copies to this many other ranks, which put them into theirs.
    Copies(usize),
}

/// Names a state of all blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionId {
    /// After how many rounds.
    pub version: u32,
    /// The fingerprint of the ranks that were known to be dead. A rank that was left behind, or is
    /// cut off and takes the others for dead, may still write what belongs to an attempt that others
    /// have given up: its decisions differ, and so must its names.
    pub faults: u32,
}

impl VersionId {
    /// The inputs, which are the same whoever is dead.
    pub const INPUT: VersionId = VersionId {
        version: 0,
        faults: 0,
    };
}

/// Keeps versions of nodes' blocks.
pub trait Store {
    /// Who can get at what is put here.
    fn scope(&self) -> StoreScope;

    /// Keeps `block` as what `node` has at `version_id`, in place of what was kept under these names.
    /// Either all of it is kept, or `Status::Store` (or `Status::Memory`) says why not.
    fn put(&mut self, version_id: VersionId, node: Node, block: &Block) -> Result<()>;

    /// What was kept. None if it is not there, or damaged. `Status::Memory` if there is no room.
    fn get(&self, version_id: VersionId, node: Node) -> Result<Option<Block>>;

    /// Forgets versions older than `version`, which nobody needs any more. Never fails: what cannot be
    /// removed now is removed at the end.
    fn retire(&mut self, version: u32);

    /// Forgets everything: the sort is over, well or not, and what is put from now on belongs to the
    /// next.
    fn clear(&mut self);

    /// As `clear`, but what others may still read stays in a shared store, for `sweep` to remove.
    fn leave(&mut self);

    /// Removes what dead ranks left behind of past sorts in a shared store. Called on one rank, when
    /// nobody reads it any more, after `clear`.
    fn sweep(&mut self);
}

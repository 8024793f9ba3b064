//! Where versions of blocks live, so that another rank can go on from them.
//!
//! A store keeps and gives bytes on this rank; the engine moves copies between ranks, knows who
//! holds what, and decides when a version is committed.

pub mod directory;
pub mod disk;
pub mod memory;

use crate::block::Block;
use crate::error::Result;
use crate::vcube::Node;

/// Who else can get at what a rank puts into its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every rank: the store is shared.
    Everyone,
    /// Nobody; the engine sends copies to this many other ranks, which put them into theirs.
    Copies(usize),
}

/// Keeps versions of nodes' blocks.
pub trait Store {
    /// Who can get at what is put here.
    fn reach(&self) -> Reach;

    /// Keeps `block` as `version` of `node`, in place of what was kept under these names. Either
    /// all of it is kept, or `Status::Store` (or `Status::Memory`) says why not.
    fn put(&mut self, version: u32, node: Node, block: &Block) -> Result<()>;

    /// What was kept. None if it is not there, or damaged. `Status::Memory` if there is no room.
    fn get(&self, version: u32, node: Node) -> Result<Option<Block>>;

    /// Forgets versions older than `version`: a newer one is committed. Never fails: what cannot be
    /// removed now is removed at the end.
    fn retire(&mut self, version: u32);

    /// Forgets everything: the sort is over, well or not.
    fn clear(&mut self);

    /// Removes what dead ranks left behind in a shared store. Called on one rank, after all
    /// survivors have cleared.
    fn sweep(&mut self);
}

//! The store in this rank's memory, for copies of other ranks' blocks; without copies it is the store `none`.

use std::collections::BTreeMap;

use super::{Store, StoreScope, VersionId};
use crate::block::Block;
use crate::vcube::Node;
use ftsort_kernels::error::Result;

/// Blocks in memory, shared and not copied.
#[derive(Debug, Default)]
pub struct Memory {
    replicas: usize,
    blocks: BTreeMap<(VersionId, Node), Block>,
}

impl Memory {
    /// A store with copies of each block on `replicas` other ranks; 0: a failure loses data.
    pub fn new(replicas: usize) -> Memory {
        Memory {
            replicas,
            blocks: BTreeMap::new(),
        }
    }
}

impl Store for Memory {
    fn scope(&self) -> StoreScope {
        StoreScope::Copies(self.replicas)
    }

    fn put(&mut self, version_id: VersionId, node: Node, block: &Block) -> Result<()> {
        self.blocks.insert((version_id, node), block.clone());
        Ok(())
    }

    fn discard(&mut self, owner: Node) {
        self.blocks.remove(&(VersionId::INPUT, owner));
    }

    fn get(&self, version_id: VersionId, node: Node) -> Result<Option<Block>> {
        Ok(self.blocks.get(&(version_id, node)).cloned())
    }

    fn retire(&mut self, version: u32) {
        self.blocks.retain(|(kept, _), _| kept.version >= version);
    }

    fn clear(&mut self) {
        self.blocks.clear();
    }

    fn detach(&mut self, _removes: bool) -> Box<dyn Store> {
        Box::new(Memory {
            replicas: self.replicas,
            blocks: std::mem::take(&mut self.blocks),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(version: u32) -> VersionId {
        VersionId { version, faults: 1 }
    }

    #[test]
    fn retires_older_versions_and_keeps_newer_ones() {
        let mut store = Memory::new(1);
        for version in 0..3 {
            store.put(at(version), Node(5), &Block::empty()).unwrap();
        }
        store.retire(2);
        assert_eq!(store.get(at(1), Node(5)), Ok(None));
        assert_eq!(store.get(at(2), Node(5)), Ok(Some(Block::empty())));
        store.clear();
        assert_eq!(store.get(at(2), Node(5)), Ok(None));
    }
}

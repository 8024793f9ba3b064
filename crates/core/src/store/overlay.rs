//! A store above another one: inputs that were protected by an earlier call are read from the store below, to which
//! new copies of inputs are added; all other entries of the present job go into the store above. Where a job replaces
//! inputs, the store below stays as it is, so that it has the old inputs until the new ones are committed.

use super::parity::{Covered, Encoding};
use super::{Store, StoreScope, VersionId};
use crate::block::Block;
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;
use ftsort_kernels::error::Result;

/// The store of a job over protected inputs.
#[derive(Debug)]
pub struct Overlay<'a> {
    /// Has the inputs.
    pub below: &'a mut dyn Store,
    /// Has the entries of the job. An input here replaces the one below.
    pub above: &'a mut dyn Store,
    /// The owners of the inputs that are read from below, where the job replaces the others; None: all are.
    pub unchanged: Option<RankSet>,
}

impl Overlay<'_> {
    /// Whether an encoding belongs to the store below. One of inputs that are replaced is new.
    fn is_encoded_below(&self, covered: Covered) -> bool {
        let is_replaced = self.unchanged.is_some() && !mutant(Mutant::ParityUpdatedInPlace);
        covered == Covered::Inputs && !is_replaced
    }

    fn is_below(&self, owner: Node) -> bool {
        let unchanged = self.unchanged.as_ref();
        unchanged.is_none_or(|owners| owners.contains(Rank(owner.0)))
    }
}

impl Store for Overlay<'_> {
    fn scope(&self) -> StoreScope {
        self.above.scope()
    }

    fn put(&mut self, version_id: VersionId, node: Node, block: &Block) -> Result<()> {
        self.above.put(version_id, node, block)
    }

    fn hold(&mut self, owner: Node, input: &Block) -> Result<()> {
        if self.unchanged.is_some() && !mutant(Mutant::UpdatedInPlace) {
            return self.put(VersionId::INPUT, owner, input);
        }
        // An entry of this job, which is read first, would hide the new copy.
        if self.above.get(VersionId::INPUT, owner)?.is_some() {
            self.put(VersionId::INPUT, owner, input)?;
        }
        self.below.hold(owner, input)
    }

    fn discard(&mut self, owner: Node) {
        self.above.discard(owner);
        // An input that is replaced stays until the new one is committed.
        if self.unchanged.is_none() {
            self.below.discard(owner);
        }
    }

    fn get(&self, version_id: VersionId, node: Node) -> Result<Option<Block>> {
        match self.above.get(version_id, node)? {
            None if version_id == VersionId::INPUT && self.is_below(node) => {
                self.below.get(version_id, node)
            }
            found => Ok(found),
        }
    }

    fn held(&self, owner: Node) -> Result<Option<Block>> {
        let is_below = self.is_below(owner) && !mutant(Mutant::SortedInputCopied);
        let below = is_below.then(|| self.below.held(owner)).transpose()?;
        match below.flatten() {
            None => self.get(VersionId::INPUT, owner),
            found => Ok(found),
        }
    }

    fn encoding(&self, covered: Covered) -> Option<&Encoding> {
        match self.is_encoded_below(covered) {
            true => self.below.encoding(covered),
            false => self.above.encoding(covered),
        }
    }

    fn set_encoding(&mut self, covered: Covered, encoding: Option<Encoding>) {
        match self.is_encoded_below(covered) {
            true => self.below.set_encoding(covered, encoding),
            false => self.above.set_encoding(covered, encoding),
        }
    }

    fn retire(&mut self, version: u32) {
        self.above.retire(version);
    }

    fn clear(&mut self) {
        self.above.clear();
    }

    fn leave(&mut self) {
        self.above.leave();
    }

    fn sweep(&mut self) {
        self.above.sweep();
    }

    fn remove_released(&mut self) {
        self.above.remove_released();
    }

    fn set_apart(&mut self) {
        self.below.set_apart();
        self.above.set_apart();
    }

    fn detach(&mut self, removes: bool) -> Box<dyn Store> {
        self.above.detach(removes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Run;
    use crate::members::Rank;
    use crate::store::memory::Memory;
    use ftsort_kernels::buffer::Slice;

    fn block(byte: u8) -> Block {
        Block::of_run(Run::new(Rank(0), 0, Slice::copy_of(&[byte]).unwrap()))
    }

    #[test]
    fn reads_inputs_from_below_and_adds_only_copies_to_it() {
        let later = VersionId {
            version: 1,
            faults: 0,
        };
        let (mut below, mut above) = (Memory::new(1), Memory::new(1));
        below.put(VersionId::INPUT, Node(0), &block(1)).unwrap();
        below.put(later, Node(0), &block(9)).unwrap();
        let mut overlay = Overlay {
            below: &mut below,
            above: &mut above,
            unchanged: None,
        };
        let input = |overlay: &Overlay<'_>| overlay.get(VersionId::INPUT, Node(0)).unwrap();
        assert_eq!(input(&overlay), Some(block(1)));
        assert_eq!(overlay.get(later, Node(0)).unwrap(), None);
        overlay.put(VersionId::INPUT, Node(0), &block(2)).unwrap();
        assert_eq!(input(&overlay), Some(block(2)));
        // A copy that is made again replaces both.
        overlay.hold(Node(0), &block(4)).unwrap();
        assert_eq!(input(&overlay), Some(block(4)));
        overlay.clear();
        assert_eq!(input(&overlay), Some(block(4)));
        overlay.hold(Node(1), &block(3)).unwrap();
        assert_eq!(overlay.get(VersionId::INPUT, Node(1)), Ok(Some(block(3))));
        overlay.discard(Node(0));
        assert_eq!(overlay.get(VersionId::INPUT, Node(0)), Ok(None));
        assert_eq!(above.get(VersionId::INPUT, Node(1)), Ok(None));
        assert_eq!(below.get(VersionId::INPUT, Node(1)), Ok(Some(block(3))));
    }

    #[test]
    fn keeps_the_old_inputs_below_while_others_replace_them() {
        let (mut below, mut above) = (Memory::new(1), Memory::new(1));
        below.put(VersionId::INPUT, Node(0), &block(1)).unwrap();
        below.put(VersionId::INPUT, Node(1), &block(2)).unwrap();
        let mut overlay = Overlay {
            below: &mut below,
            above: &mut above,
            unchanged: Some(RankSet::of(2, [Rank(1)])),
        };
        assert_eq!(overlay.get(VersionId::INPUT, Node(0)), Ok(None));
        assert_eq!(overlay.get(VersionId::INPUT, Node(1)), Ok(Some(block(2))));
        overlay.hold(Node(0), &block(3)).unwrap();
        overlay.hold(Node(1), &block(2)).unwrap();
        assert_eq!(overlay.get(VersionId::INPUT, Node(0)), Ok(Some(block(3))));
        overlay.discard(Node(0));
        assert_eq!(overlay.get(VersionId::INPUT, Node(0)), Ok(None));
        assert_eq!(below.get(VersionId::INPUT, Node(0)), Ok(Some(block(1))));
        assert_eq!(above.get(VersionId::INPUT, Node(1)), Ok(Some(block(2))));
    }
}

//! An algorithm that continues with states which were stored after one of its rounds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use super::{Round, Rounds, Task};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};

/// The note that is stored beside the state of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The fingerprint of the algorithm.
    pub fingerprint: u64,
    /// The number of the call that stored it.
    pub call: u64,
    /// The number of rounds before the state.
    pub round: u32,
    /// The value that the node shared last.
    pub shared: Vec<u8>,
}

impl Note {
    /// The shared value in the note of a node that has no state before the rounds, because the algorithm makes it.
    pub const BEGIN: &[u8] = &[1];

    /// Whether the algorithm makes the state of the node. No value is shared before the rounds.
    pub fn is_of_begin(&self) -> bool {
        self.round == 0 && self.shared == Note::BEGIN
    }

    /// The note as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u64(self.fingerprint).u64(self.call).u32(self.round);
        out.bytes(&self.shared).finish()
    }

    /// Decodes the result of [`Note::encode`].
    pub fn decode(bytes: &[u8]) -> Option<Note> {
        let mut fields = Reader::new(bytes);
        Some(Note {
            fingerprint: fields.u64()?,
            call: fields.u64()?,
            round: fields.u32()?,
            shared: fields.rest().to_vec(),
        })
    }
}

/// The state of a node that was stored, and the value that the node shared last; None: there is none.
type Stored<'a> = dyn Fn(Node) -> Result<Option<(Slice, Vec<u8>)>> + 'a;

/// An algorithm that continues with stored states. Its rounds are those of the whole algorithm, of which the engine
/// runs a part.
pub struct Continued<'a> {
    rounds: &'a dyn Rounds,
    /// The number of rounds before the states.
    round: u32,
    /// The first round of the part that shares a value.
    first_sharing: Option<u32>,
    stored: &'a Stored<'a>,
    /// The values of nodes that were asked for.
    shared: RefCell<BTreeMap<Node, Vec<u8>>>,
}

impl<'a> Continued<'a> {
    /// The algorithm with this plan, from the states before a part of its rounds on.
    pub fn new(
        rounds: &'a dyn Rounds,
        plan: &[Round],
        part: &Range<u32>,
        stored: &'a Stored<'a>,
    ) -> Continued<'a> {
        let mut entries = part.clone().zip(&plan[part.start as usize..]);
        let first = entries.find(|(_, entry)| entry.share.is_some());
        Continued {
            rounds,
            round: part.start,
            first_sharing: first.map(|(before, _)| before + 1),
            stored,
            shared: RefCell::default(),
        }
    }

    fn stored(&self, node: Node) -> Result<Option<Slice>> {
        Ok((self.stored)(node)?.map(|(state, shared)| {
            self.shared.borrow_mut().insert(node, shared);
            state
        }))
    }

    /// Returns the value that a node had shared last when the states were stored.
    pub fn shared_before(&self, node: Node) -> Result<Vec<u8>> {
        if self.round == 0 {
            return Ok(Vec::new());
        }
        if !self.shared.borrow().contains_key(&node) {
            self.stored(node)?;
        }
        Ok(self.shared.borrow().get(&node).cloned().unwrap_or_default())
    }

    /// Whether the nodes have shared a value since the states, in rounds up to this one.
    pub fn has_shared(&self, until: u32) -> bool {
        let is_shared = self.first_sharing.is_some_and(|first| first <= until);
        is_shared || mutant(Mutant::SharedValueNotContinued)
    }

    /// Calls a function with a task that has the value which a node shared last, in rounds up to `until`.
    fn with_shared<R>(
        &self,
        task: &Task<'_>,
        node: Node,
        until: u32,
        function: impl FnOnce(&Task<'_>) -> Result<R>,
    ) -> Result<R> {
        if self.has_shared(until) {
            return function(task);
        }
        let shared = self.shared_before(node)?;
        function(&Task {
            shared: &shared,
            ..*task
        })
    }
}

impl Rounds for Continued<'_> {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        self.rounds.plan(dimension)
    }

    fn init(&self, node: Node) -> Result<Slice> {
        match self.stored(node)? {
            Some(state) => Ok(state),
            None if self.round == 0 => self.rounds.init(node),
            None => {
                let text = format!(
                    "the stored state of node {node} after round {} is missing or damaged",
                    self.round
                );
                Err(Error::new(Status::Store, text))
            }
        }
    }

    fn inits_all(&self) -> bool {
        true
    }

    fn propose(&self, task: &Task<'_>) -> Result<Slice> {
        self.with_shared(task, task.node, task.round - 1, |task| {
            self.rounds.propose(task)
        })
    }

    fn decide(&self, task: &Task<'_>, proposals: &[(Node, Slice)]) -> Result<Slice> {
        // As the engine, which does not depend on which node is the root.
        let first = task.subcube.map_or(task.node, |subcube| subcube.first);
        self.with_shared(task, first, task.round - 1, |task| {
            self.rounds.decide(task, proposals)
        })
    }

    fn share_limit(&self) -> usize {
        self.rounds.share_limit()
    }

    fn emit(&self, task: &Task<'_>) -> Result<Slice> {
        self.with_shared(task, task.node, task.round, |task| self.rounds.emit(task))
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        self.with_shared(task, task.node, task.round, |task| {
            self.rounds.absorb(task, inbox)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Subcube;
    use crate::rounds::bytes;
    use crate::vcube::NodeSet;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Decides on the value that was shared last, with a limit that is not the default.
    struct SharedBefore;

    impl Rounds for SharedBefore {
        fn decide(&self, task: &Task<'_>, _: &[(Node, Slice)]) -> Result<Slice> {
            bytes(task.shared)
        }

        fn share_limit(&self) -> usize {
            10_000
        }

        fn absorb(&self, _: &Task<'_>, _: Slice) -> Result<Slice> {
            unreachable!("only decides")
        }
    }

    #[test]
    fn a_decision_continues_with_the_value_of_the_first_node() {
        let stored = |node: Node| Ok(Some((bytes(&[])?, vec![node.0 as u8])));
        let plan = vec![Round::local().sharing(0), Round::local().sharing(2)];
        let continued = Continued::new(&SharedBefore, &plan, &(1..2), &stored);
        let failed = NodeSet::of(4, [Node(0)]);
        let subcube = Subcube::of_equal_nodes(Node(1), 2, Arc::new(failed));
        let task = Task {
            node: subcube.root(),
            nodes: 4,
            round: 2,
            rounds: 2,
            dimension: None,
            state: &Slice::default(),
            shared: &[],
            subcube: Some(&subcube),
        };
        assert_eq!(task.node, Node(1));
        assert_eq!(*continued.decide(&task, &[]).unwrap(), [0]);
        assert_eq!(continued.share_limit(), 10_000);
    }

    proptest! {
        #[test]
        fn notes_decode_as_they_were(
            fingerprint: u64, call: u64, round: u32,
            shared in prop::collection::vec(any::<u8>(), 0..100),
            garbage in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let note = Note { fingerprint, call, round, shared };
            prop_assert_eq!(Note::decode(&note.encode()), Some(note));
            prop_assert_eq!(Note::decode(&garbage).is_some(), garbage.len() >= 20);
        }
    }
}

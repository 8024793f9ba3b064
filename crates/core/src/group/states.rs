//! States of nodes that the caller's own loop keeps: the papers' checkpoint and readCheckpoint.

use super::config::{agree_on_equal, hash_of};
use super::{Argument, Group, StoreChoice};
use crate::engine::{CollectiveResult, StatesCommit};
use crate::mutants::{Mutant, mutant};
use crate::store::VersionId;
use crate::store::named::NamedStates;
use crate::transport::Transport;
use crate::vcube::Node;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Result, refuse};

/// A version of the states of a group. After the states were discarded, others get the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredVersion {
    clears: u64,
    version_id: VersionId,
}

impl<T: Transport> Group<T> {
    /// Puts the state of a node that this rank executes aside for the next [`Group::commit_states`]. Local.
    pub fn put_state(&mut self, node: Node, state: &[u8]) -> Result<()> {
        self.local_call(|group| {
            group.check_executed(node)?;
            group.states.put(node, Buffer::copy_of(state)?.into());
            Ok(())
        })
    }

    /// The committed state of a node that this rank executes; None if none was committed, or it is lost. Local.
    pub fn state(&self, node: Node) -> Result<Option<&[u8]>> {
        self.check_poison()?;
        self.check_executed(node)?;
        Ok(self.states.get(node))
    }

    /// Ends a round of the caller's own loop. Commits the states that were put if all survivors are `done` and no
    /// failure was found since the round began; returns whether it did. Otherwise the states of failed ranks move to
    /// their new executors. Either way the next round begins. Collective.
    ///
    /// # Errors
    /// `Status::DataLost` where states of failed ranks cannot be recovered: [`Group::lost_ranks`] names the ranks. If a
    /// rank fails while the commit of states with a name ends, an error may follow the commit:
    /// [`Group::commit_states_checked`] tells.
    pub fn commit_states(&mut self, done: bool) -> Result<bool> {
        self.commit_states_checked(done, Ok(()))?.into_result()
    }

    /// As [`Group::commit_states`], for a caller that may have found an argument wrong: then the states that were put
    /// stay, for a repetition of the call.
    pub fn commit_states_checked(
        &mut self,
        done: bool,
        arguments: Result<()>,
    ) -> Result<StatesCommit> {
        self.call_with_limit(|group| {
            group.forget_losses();
            group.on_states(|states, engine, lost| states.commit(engine, done, arguments, lost))
        })
    }

    /// Gives the states a name in the directory of the store, under which another job finds them; before any state
    /// is put. The states that an earlier job has committed under the name become the committed ones. Returns whether
    /// there are any. Collective.
    ///
    /// # Errors
    /// `Status::Argument` where the store is no directory, for a name that is not allowed or differs between ranks,
    /// and for states of another number of nodes; `Status::State` where the group has states already;
    /// `Status::Store` where files cannot be read or written, or are damaged.
    pub fn open_states<'n>(&mut self, name: impl Argument<&'n str>) -> Result<bool> {
        let me = self.members.me();
        let named = name.into_result().and_then(|name| match &self.config.store {
            StoreChoice::Directory(open) => Ok((NamedStates::new(open(), name, me)?, hash_of(name))),
            _ => refuse(
                "states with a name need a directory: set config.store to FTSORT_STORE_DIRECTORY, and \
                 config.store_directory",
            ),
        });
        self.call(|group| {
            group.forget_losses();
            group.on_states(|states, engine, lost| {
                let (named, hash) = engine.all_or_none(named)?;
                agree_on_equal(engine, &[("name", hash)])?;
                states.open(engine, named, lost)
            })
        })
    }

    /// Discards all states, and the name under which another job would find them until the next commit. Collective.
    pub fn clear_states(&mut self) -> Result<()> {
        self.call(Group::discard_states)
    }

    /// As [`Group::clear_states`], as a part of another call. Collective.
    pub(super) fn discard_states(&mut self) -> CollectiveResult<()> {
        let cleared = self.on_states(|states, engine, _| {
            // States in memory are discarded without an agreement of their own.
            engine.check_faults()?;
            states.clear(engine)
        });
        let is_empty = self.states.version_id() == VersionId::INPUT;
        if is_empty && !mutant(Mutant::StatesAfterClearUsed) {
            self.clears += 1;
        }
        cleared.map(drop)
    }

    /// The committed version of the states, which no later states have.
    pub(super) fn stored_version(&self) -> StoredVersion {
        StoredVersion {
            clears: self.clears,
            version_id: self.states.version_id(),
        }
    }

    /// `Status::Argument` unless this rank executes the node.
    fn check_executed(&self, node: Node) -> Result<()> {
        let nodes = self.members.cube().len();
        if node.0 as usize >= nodes {
            return refuse(format!(
                "node is {node}, but the hypercube has the nodes 0 to {}",
                nodes - 1
            ));
        }
        let executor = self.members.executor(node);
        if executor != self.members.me() {
            return refuse(format!(
                "node is {node}, which rank {executor} executes: pass a node that this rank executes"
            ));
        }
        Ok(())
    }
}

//! States of nodes that the caller's own loop keeps: the papers' checkpoint and readCheckpoint.

use super::Group;
use crate::transport::Transport;
use crate::vcube::Node;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, Status};

impl<T: Transport> Group<T> {
    /// Puts the state of a node that this rank executes aside for the next [`Group::commit_states`]. Local.
    pub fn put_state(&mut self, node: Node, state: &[u8]) -> Result<()> {
        self.call(|group| {
            group.check_executed(node)?;
            let copy = match state {
                [] => Buffer::default(),
                state => Buffer::copy_of(state)?,
            };
            group.states.put(node, copy.into());
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
    /// `Status::DataLost` where states of failed ranks cannot be recovered: [`Group::lost_ranks`] names the ranks.
    pub fn commit_states(&mut self, done: bool) -> Result<bool> {
        self.commit_states_checked(done, Ok(()))
    }

    /// As [`Group::commit_states`], for a caller that may have found an argument wrong.
    pub fn commit_states_checked(&mut self, done: bool, arguments: Result<()>) -> Result<bool> {
        self.call(|group| {
            group.forget_losses();
            group.on_states(|states, engine, lost| states.commit(engine, done, arguments, lost))
        })
    }

    /// Discards all states. Collective.
    pub fn clear_states(&mut self) -> Result<()> {
        self.call(|group| group.on_states(|states, engine, _| states.clear(engine)))
    }

    /// `Status::Argument` unless this rank executes the node.
    fn check_executed(&self, node: Node) -> Result<()> {
        let refuse = |text: String| Err(Error::new(Status::Argument, text));
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

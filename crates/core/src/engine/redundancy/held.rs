//! Protected inputs on one rank, from the job that protected them until they are released.
//!
//! Must never: remove a file of an input that another rank may still read.

use std::collections::BTreeMap;

use super::holders::nodes_held_by;

use crate::engine::inputs::InputHash;
use crate::engine::{CollectiveResult, Engine};
use crate::members::{Members, Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::{Store, StoreScope, VersionId};

/// Inputs that were protected, on one rank.
#[derive(Debug)]
pub struct HeldInputs {
    /// The inputs of this rank and copies of those of others, or files that all ranks see.
    pub(super) store: Box<dyn Store>,
    pub(super) state: HeldState,
}

/// Which inputs are protected, and where.
#[derive(Clone, Debug)]
pub(in crate::engine) struct HeldState {
    /// The owners of the inputs in this rank's store.
    pub(super) held: RankSet,
    /// The ranks that have no input.
    pub(super) absent: RankSet,
    pub(super) hashes: BTreeMap<Rank, InputHash>,
    /// The membership with which all holders had their copies.
    pub(super) membership: Membership,
}

impl HeldInputs {
    /// The store and its state, for a job that sorts the inputs and may add copies.
    pub(in crate::engine) fn lend(&mut self) -> (HeldState, &mut dyn Store) {
        (self.state.clone(), &mut *self.store)
    }

    /// Takes over the copies that a job has added after failures. `members`: those at the end of the job if it succeeded, so
    /// that all holders have their copies. `before`: the membership with which it began.
    pub(in crate::engine) fn after_job(&mut self, members: Option<&Members>, before: &Membership) {
        if let Some(members) = members
            && !mutant(Mutant::MovedCopiesKept)
        {
            self.discard_others(members, before);
        }
        let has_copies = self.store.scope() != StoreScope::Shared;
        if has_copies && !mutant(Mutant::AddedCopiesForgotten) {
            let has = |owner: &Rank| {
                let input = self.store.get(VersionId::INPUT, owner.home());
                input.is_ok_and(|input| input.is_some())
            };
            let ranks = self.state.held.ranks();
            self.state.held = RankSet::of(ranks, Rank::all(ranks).filter(has));
        }
        if let Some(members) = members {
            self.state.membership = members.membership().clone();
        }
    }

    /// Removes the copies that this rank has to hold neither now nor with the membership `before`, which the next job may begin
    /// with again: slow ranks are excluded in each job anew.
    fn discard_others(&mut self, members: &Members, before: &Membership) {
        let StoreScope::Copies(copies) = self.store.scope() else {
            return;
        };
        let held_with = |membership| nodes_held_by(members.me(), members, membership, copies);
        let (now, then) = (held_with(members.membership()), held_with(before));
        let others = Rank::all(members.ranks()).filter(|rank| *rank != members.me());
        for node in others.map(Rank::home) {
            if !now.contains(&node) && !then.contains(&node) {
                self.store.discard(node);
            }
        }
    }

    /// Removes the inputs, once no rank will read them any more, and returns the `result` of the steps that used them.
    /// `jobs`: the store of the group's jobs. Collective, unless the result's error separates this rank from the others.
    ///
    /// The first rank that learns the commit of the last step may fail before the others learn it. They then repeat the
    /// step, with its input.
    pub fn release_after<R>(
        mut self,
        engine: &mut Engine<'_>,
        jobs: &mut dyn Store,
        result: CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        if matches!(&result, Err(error) if error.status.sets_apart()) {
            self.store.set_apart();
            return result;
        }
        let is_over = if mutant(Mutant::RemovedWithoutAgreement) {
            Ok(true)
        } else {
            engine.is_over(&*self.store)
        };
        match is_over {
            Ok(true) => {
                drop(self);
                jobs.remove_released();
                if engine.members.lowest_survivor() == engine.members.me() {
                    jobs.sweep();
                }
            }
            Ok(false) => self.store.leave(),
            Err(error) => {
                self.store.set_apart();
                return Err(error);
            }
        }
        result
    }

    /// Continues without the inputs of these ranks, which are lost.
    pub fn give_up(&mut self, lost: &RankSet) {
        self.state.absent.extend(lost);
    }
}

//! User-defined algorithms on the virtual hypercube.

use std::collections::BTreeMap;

use super::config::{hash_of, unequal};
use super::job::JobSetup;
use super::results::Safety;
use super::stored_rounds::StoredRun;
use super::{Group, JobKind, LastRun};
use crate::block::Block;
use crate::engine::{Algorithm, CollectiveError, CollectiveResult, FinishedRounds, InStep};
use crate::members::RankSet;
use crate::rounds::purity::PurityCheck;
use crate::rounds::{Hypercube, Rounds, state_of};
use crate::transport::{Comparison, Transport};
use crate::tree::run::choose::contributing_nodes;
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status, caught};

/// A rank's arguments for [`Group::run_rounds`].
#[derive(Clone, Copy)]
pub struct RoundsInput<'a> {
    /// The algorithm; the same on all ranks.
    pub rounds: &'a dyn Rounds,
    /// The state of this rank's node before the first round. It is ignored if the algorithm initialises all nodes.
    pub state: &'a [u8],
    /// A hash of further properties that must be the same on all ranks.
    pub caller_fingerprint: u64,
    /// The states are stored under the name of the group's states after so many rounds, and the run continues with the
    /// states that were stored; 0: neither.
    pub store_every: u32,
}

impl RoundsInput<'_> {
    fn copied(&self) -> Result<Buffer> {
        if self.rounds.inits_all() {
            return Ok(Buffer::default());
        }
        Buffer::copy_of(self.state)
    }

    /// A hash of the properties by which runs that continue each other are the same.
    fn fingerprint(&self, dimension: u32) -> u64 {
        let limits = (self.rounds.share_limit(), self.rounds.inits_all());
        hash_of((self.rounds.plan(dimension), limits, self.caller_fingerprint))
    }
}

/// The final states of the nodes that this rank executes. It may outlive its group.
#[derive(Debug)]
pub struct FinalStates {
    states: Vec<(Node, Slice)>,
    rounds: u32,
    pub(super) safety: Safety,
    /// States that other ranks list since a recovery. Pointers to them stay valid.
    _moved: Vec<Slice>,
}

impl FinalStates {
    /// The states, in ascending order of node.
    pub fn iter(&self) -> impl Iterator<Item = (Node, &Slice)> {
        self.states.iter().map(|(node, state)| (*node, state))
    }

    /// The number of states.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether this rank has no state.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// A state by its index.
    pub fn get(&self, index: usize) -> Option<(Node, &Slice)> {
        let (node, state) = self.states.get(index)?;
        Some((*node, state))
    }

    /// The number of ranks of the group that made it.
    pub fn ranks(&self) -> usize {
        self.safety.ranks()
    }

    pub(super) fn algorithm(&self) -> FinishedRounds {
        FinishedRounds {
            rounds: self.rounds,
        }
    }

    /// A result that lists no states yet.
    pub(super) fn new(rounds: u32, safety: Safety) -> FinalStates {
        FinalStates {
            states: Vec::new(),
            rounds,
            safety,
            _moved: Vec::new(),
        }
    }

    fn list(&mut self, blocks: &BTreeMap<Node, Block>) {
        let listed = blocks.iter().map(|(node, block)| (*node, state_of(block)));
        self.list_states(listed.collect());
    }

    /// Lists these states, in ascending order of node. Pointers to those that were listed stay valid.
    pub(super) fn list_states(&mut self, states: Vec<(Node, Slice)>) {
        let before = std::mem::replace(&mut self.states, states);
        let listed = |old: &Slice| {
            self.states
                .iter()
                .any(|(_, new)| new.as_ptr() == old.as_ptr())
        };
        let moved = before.into_iter().map(|(_, state)| state);
        self._moved.extend(moved.filter(|state| !listed(state)));
    }

    /// Lists the states that the redundancy has for this rank now.
    pub(super) fn relist(&mut self) {
        if let Some(retained) = self.safety.retained.take() {
            self.list(retained.blocks());
            self.safety.retained = Some(retained);
        }
    }
}

/// Different algorithms pass for the same with probability 2^-39. More bits would take another agreement, and a
/// call may be short.
const FINGERPRINT_BITS: u32 = Comparison::bits_in(2);

impl<T: Transport> Group<T> {
    /// Runs a user-defined algorithm. Returns the final states of the nodes that this rank executes, in ascending
    /// order of node. Collective.
    ///
    /// # Errors
    /// As [`Group::sort`]; `Status::Callback` where a function of the algorithm fails or is not pure.
    pub fn run_rounds(&mut self, rounds: &dyn Rounds, state: &[u8]) -> Result<FinalStates> {
        self.run_rounds_checked(Ok(RoundsInput {
            rounds,
            state,
            caller_fingerprint: 0,
            store_every: 0,
        }))
    }

    /// As [`Group::run_rounds`], for a caller that may have found an argument wrong.
    pub fn run_rounds_checked(&mut self, input: Result<RoundsInput<'_>>) -> Result<FinalStates> {
        self.job(JobKind::Rounds, |group, absent| {
            group.run_rounds_prepared(absent, input)
        })
    }

    fn run_rounds_prepared(
        &mut self,
        absent: RankSet,
        input: Result<RoundsInput<'_>>,
    ) -> CollectiveResult<FinalStates> {
        let dimension = self.members.cube().dimension();
        let provided = contributing_nodes(&self.members, &self.members.without_input());
        let (input, copy, fingerprint) = self.agree_on_rounds(input, &provided)?;
        let seed = self.draw_seed();
        let key = self.config.checks.digest.then(|| DigestKey::ordered(seed));
        let twice = PurityCheck(input.rounds);
        let rounds: &dyn Rounds = if self.config.checks.purity {
            &twice
        } else {
            input.rounds
        };
        self.last_run = Some(LastRun::Rounds);
        let algorithm = Hypercube::new(rounds, dimension, provided).or_apart()?;
        if input.store_every > 0 && algorithm.rounds() > 0 {
            let run = StoredRun {
                rounds,
                whole: &algorithm,
                fingerprint,
                every: input.store_every,
                state: copy.into(),
                key: key.as_ref(),
                call: seed,
            };
            return self.run_stored_rounds(&run);
        }
        let setup = JobSetup {
            input: copy.into(),
            key: key.as_ref(),
            record_bytes: 1,
            starts_empty: input.rounds.inits_all(),
            // Without a round, states come from the caller's functions, which are not called again.
            retains: algorithm.rounds() > 0 && !self.config.release_after_run,
            ..JobSetup::default()
        };
        let finished = self.run_job(absent, setup, &algorithm);
        self.stats.merge_into_exchange();
        let finished = finished?;
        let placed = (finished.retained, finished.membership);
        let safety = Safety::new((self.id, seed), &self.members, placed, key);
        let mut result = FinalStates::new(algorithm.rounds(), safety);
        if algorithm.rounds() > 0 {
            result.list(&finished.blocks);
            return Ok(result);
        }
        let states = finished.blocks.iter();
        let states = states.map(|(node, block)| {
            let state = caught(|| algorithm.finished(*node, block))?;
            Ok((*node, state))
        });
        let states: Result<Vec<_>> = states.collect();
        // The caller's functions may fail on one rank.
        result.states = self.apart_from_jobs(|engine| engine.all_or_none(states))?;
        Ok(result)
    }

    /// Checks the input on each rank, and agrees on it. Returns it with a copy of the state and its fingerprint.
    fn agree_on_rounds<'a>(
        &mut self,
        input: Result<RoundsInput<'a>>,
        provided: &NodeSet,
    ) -> CollectiveResult<(RoundsInput<'a>, Buffer, u64)> {
        let dimension = self.members.cube().dimension();
        let prepared = input.and_then(|input| {
            if input.store_every > 0 && !self.states.has_name() {
                let text = format!(
                    "rounds.store_every is {}, but the stored states have no name: call ftsort_store_open first",
                    input.store_every
                );
                return Err(Error::new(Status::State, text));
            }
            let copy = input.copied()?;
            self.check_spare("the size of state", copy.len())?;
            // An impossible plan is refused before anything is done.
            Hypercube::new(input.rounds, dimension, provided.clone())?;
            let fingerprint = input.fingerprint(dimension);
            Ok((input, copy, fingerprint))
        });
        self.on_engine(|engine| {
            let (input, copy, fingerprint) = engine.all_or_none(prepared)?;
            let same = hash_of((fingerprint, input.store_every));
            let equal = engine.all_equal_in(same, FINGERPRINT_BITS)?;
            if equal {
                Ok((input, copy, fingerprint))
            } else {
                Err(CollectiveError::alike(unequal(&["rounds"])))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::{Members, Rank};
    use ftsort_kernels::memory::MemoryBudget;

    /// A caller may have a pointer to the state.
    #[test]
    fn a_state_that_moves_to_another_rank_stays_allocated() {
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        let members = Members::new(Rank(0), 2);
        let placed = (None, members.membership().clone());
        let mut states = FinalStates::new(1, Safety::new((0, 0), &members, placed, None));
        let state = Slice::copy_of(&[7; 100]).unwrap();
        let used = budget.used();
        states.list_states(vec![(Node(0), state)]);
        states.list_states(Vec::new());
        assert_eq!(budget.used(), used);
        drop(states);
        assert_eq!(budget.used(), 0);
    }
}

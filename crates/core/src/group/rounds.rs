//! User-defined algorithms on the virtual hypercube.

use std::hash::{Hash, Hasher};

use twox_hash::XxHash3_64;

use super::config::unequal;
use super::job::{JobSetup, JobStart};
use super::{Group, JobKind, LastRun};
use crate::engine::Algorithm;
use crate::members::{Members, Rank};
use crate::rounds::purity::PurityCheck;
use crate::rounds::{Hypercube, Rounds};
use crate::transport::{Comparison, Transport};
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Result, caught};
use ftsort_kernels::memory::MemoryBudget;

/// A rank's arguments for [`Group::run_rounds`].
#[derive(Clone, Copy)]
pub struct RoundsInput<'a> {
    /// The algorithm; the same on all ranks.
    pub rounds: &'a dyn Rounds,
    /// The state of this rank's node before the first round. It is ignored if the algorithm initialises all nodes.
    pub state: &'a [u8],
    /// A hash of further properties that must be the same on all ranks.
    pub caller_fingerprint: u64,
}

impl RoundsInput<'_> {
    fn copied(&self) -> Result<Buffer> {
        if self.state.is_empty() || self.rounds.inits_all() {
            return Ok(Buffer::default());
        }
        Buffer::copy_of(self.state)
    }

    fn fingerprint(&self, dimension: u32) -> u64 {
        let mut hasher = XxHash3_64::new();
        self.rounds.plan(dimension).hash(&mut hasher);
        (self.rounds.share_limit(), self.rounds.inits_all()).hash(&mut hasher);
        self.caller_fingerprint.hash(&mut hasher);
        hasher.finish()
    }
}

/// Different algorithms pass for the same with probability 2^-43. More bits would take another agreement, and a
/// call may be short.
const FINGERPRINT_BITS: u32 = Comparison::bits_in(2);

/// The nodes with home ranks that provide a state.
fn provided(members: &Members) -> NodeSet {
    let mut nodes = NodeSet::new(members.cube().len());
    for rank in Rank::all(members.ranks()) {
        if !members.is_faulty(rank) && !members.is_idle_spare(rank) {
            nodes.insert(rank.home());
        }
    }
    nodes
}

impl<T: Transport> Group<T> {
    /// Runs a user-defined algorithm. Returns the final states of the nodes that this rank executes, in ascending
    /// order of node. Collective.
    ///
    /// # Errors
    /// As [`Group::sort`]; `Status::Callback` where a function of the algorithm fails or is not pure.
    pub fn run_rounds(&mut self, rounds: &dyn Rounds, state: &[u8]) -> Result<Vec<(Node, Slice)>> {
        self.run_rounds_checked(Ok(RoundsInput {
            rounds,
            state,
            caller_fingerprint: 0,
        }))
    }

    /// As [`Group::run_rounds`], for a caller that may have found an argument wrong.
    pub fn run_rounds_checked(
        &mut self,
        input: Result<RoundsInput<'_>>,
    ) -> Result<Vec<(Node, Slice)>> {
        self.call(|group| {
            group.job(JobKind::Rounds, |group, start| {
                MemoryBudget::current().start_peak();
                group.run_rounds_prepared(start, input)
            })
        })
    }

    fn run_rounds_prepared(
        &mut self,
        start: JobStart,
        input: Result<RoundsInput<'_>>,
    ) -> Result<Vec<(Node, Slice)>> {
        let dimension = self.members.cube().dimension();
        let provided = provided(&self.members);
        let prepared = input.and_then(|input| {
            let copy = input.copied()?;
            self.check_spare("the size of state", copy.len())?;
            // An impossible plan is refused before anything is done.
            Hypercube::new(input.rounds, dimension, provided.clone())?;
            Ok((input, copy))
        });
        let ((input, copy), _) = self.on_engine(|engine| {
            let (input, copy) = engine.all_or_none(prepared)?;
            let equal = engine.all_equal_in(input.fingerprint(dimension), FINGERPRINT_BITS)?;
            if equal {
                Ok((input, copy))
            } else {
                Err(unequal("rounds"))
            }
        })?;
        let seed = self.draw_seed();
        let key = self.config.checks.digest.then(|| DigestKey::ordered(seed));
        let twice = PurityCheck(input.rounds);
        let rounds: &dyn Rounds = if self.config.checks.purity {
            &twice
        } else {
            input.rounds
        };
        let algorithm = Hypercube::new(rounds, dimension, provided)?;
        self.last_run = Some(LastRun::Rounds);
        let setup = JobSetup {
            input: copy.into(),
            key: key.as_ref(),
            record_bytes: 1,
            starts_empty: input.rounds.inits_all(),
            ..JobSetup::default()
        };
        let finished = self.run_job(start, setup, &algorithm);
        self.stats.merge_into_exchange();
        let blocks = finished?.blocks;
        let states = blocks.iter();
        let states = states.map(|(node, block)| {
            let state = caught(|| algorithm.finished(*node, block))?;
            Ok((*node, state))
        });
        let states: Result<Vec<_>> = states.collect();
        if algorithm.rounds() > 0 {
            return states;
        }
        // Without a round, the states of nodes come from the caller's functions, which may fail on one rank.
        Ok(self.apart_from_jobs(|engine| engine.all_or_none(states))?.0)
    }
}

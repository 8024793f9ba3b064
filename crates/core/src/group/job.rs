//! Jobs: their set-up, the timers of injected failures, and inputs that are read again.

use std::any::Any;

use super::input::{InputCopies, InputOrigin};
use super::{Group, JobKind, Reload, StepSetup};
use crate::engine::{
    Algorithm, Checks, CollectiveResult, Engine, Finished, Gathered, HeldInputs, InputHash,
    JobParts, LoadOnly, Source, Stats, run_job, update_inputs,
};
use crate::members::{Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::memory::Memory;
use crate::transport::Transport;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::memory::MemoryBudget;

/// The parts of a job beside its algorithm.
#[derive(Default)]
pub(super) struct JobSetup<'a> {
    /// This rank's input.
    pub input: Slice,
    /// Makes the copies of it that are sorted; None: it is given away.
    pub copies: Option<InputCopies<'a>>,
    /// Blocks are checked by digests with this key.
    pub key: Option<&'a DigestKey>,
    /// Blocks are checked as those of sorts are.
    pub checks: Option<&'a Checks<'a>>,
    /// The size of a record; 1 for blocks without records.
    pub record_bytes: usize,
    /// Inputs are empty, so that they can always be provided again.
    pub starts_empty: bool,
    /// The inputs that were protected before, in place of `input`.
    pub held: Option<&'a mut HeldInputs>,
    /// The redundancy is kept after the end.
    pub retains: bool,
    /// Inputs of other ranks that have arrived already.
    pub gathered: Gathered,
    /// How the input follows from that of a reload.
    pub origin: InputOrigin,
    /// The input has no redundancy: it follows from blocks that have.
    pub unprotected: bool,
    /// A placement, with the exclusions that the job keeps; None: that of the policy.
    pub placement: Option<Membership>,
}

impl<T: Transport> Group<T> {
    /// Runs a call that is a job: a span of the observer's, with a fresh budget, figures and timers. `work` also receives
    /// the ranks without an input: those that have failed by then, and idle spares.
    pub(super) fn job<R>(
        &mut self,
        kind: JobKind,
        work: impl FnOnce(&mut Group<T>, RankSet) -> CollectiveResult<R>,
    ) -> Result<R> {
        self.call_with_limit(|group| {
            MemoryBudget::current().start_peak();
            let begin = group.transport.now();
            group.services.observer.job_begins(kind, begin);
            let before = (group.stats, group.choice);
            let _timer = group.begin_job();
            let absent = group.members.without_input();
            let result = work(group, absent);
            let end = group.transport.now();
            group.stats.total_seconds = end - begin;
            // Some calls go on after their last engine job, which has set it.
            group.stats.peak_bytes = MemoryBudget::current().peak() as u64;
            if let Err(error) = &result
                && error.status.is_of_arguments()
            {
                (group.stats, group.choice) = before;
            }
            let status = (result.as_ref().err()).map_or(Status::Ok, |error| error.status);
            group.services.observer.job_ends(status, end);
            result
        })
    }

    /// Runs the steps of a call that sorts first. If a later step has lost blocks of ranks that failed in the call, and a
    /// callback can load their inputs again, all steps are run again: results of some sorts cannot be made again from inputs
    /// alone. Collective.
    pub(super) fn in_steps<R>(
        &mut self,
        absent: &RankSet,
        mut steps: impl FnMut(&mut Group<T>, RankSet) -> CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        let mut failed = self.known_failures();
        loop {
            let result = steps(self, absent.clone());
            let before = std::mem::replace(&mut failed, self.known_failures());
            let is_lost = matches!(&result, Err(error) if error.status == Status::DataLost);
            let can_reload = self.services.reload.is_some() && !mutant(Mutant::StepsNotRepeated);
            if !is_lost || failed == before || !can_reload {
                return result;
            }
            self.forget_losses();
        }
    }

    /// Begins a further job of the same call. Its figures are added to those of the jobs before. Returns the ranks
    /// without an input.
    pub(super) fn begin_next_job(&mut self) -> RankSet {
        self.forget_losses();
        self.members.without_input()
    }

    /// Returns the timer of an injected failure, which stops when it is dropped.
    fn begin_job(&mut self) -> Option<Box<dyn Any>> {
        self.stats = Stats::default();
        self.choice = None;
        self.forget_losses();
        // Timers do not depend on the number of rounds.
        let timers = self.config.failures.resolve(self.members.ranks(), 1);
        let timer = timers.timer(self.members.me());
        timer.map(self.services.kill_timer)
    }

    /// Runs an algorithm to its end. Collective.
    pub(super) fn run_job(
        &mut self,
        absent: RankSet,
        setup: JobSetup<'_>,
        algorithm: &dyn Algorithm,
    ) -> CollectiveResult<Finished> {
        self.run_with(
            absent,
            setup,
            algorithm.rounds_in_all(),
            |engine, parts, lost| run_job(engine, algorithm, parts, lost),
        )
    }

    /// Replaces protected inputs by those of the set-up. Collective.
    pub(super) fn run_update(
        &mut self,
        absent: RankSet,
        setup: JobSetup<'_>,
        inputs: &mut HeldInputs,
    ) -> CollectiveResult<()> {
        self.run_with(absent, setup, LoadOnly.rounds(), |engine, parts, lost| {
            update_inputs(engine, inputs, parts, lost)
        })
    }

    /// Runs a job of so many rounds after the first. `run`: receives its engine, its parts, and the set of the owners
    /// of lost data.
    fn run_with<R>(
        &mut self,
        absent: RankSet,
        setup: JobSetup<'_>,
        rounds: u32,
        run: impl FnOnce(&mut Engine<'_>, JobParts<'_>, &mut RankSet) -> CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        // The ranks have agreed on the arguments of this call.
        self.store.remove_released();
        let schedule = (self.config.failures).resolve(self.members.ranks(), rounds + 1);
        match (&setup.placement, &self.policy) {
            (Some(placement), _) => self.members.exclude_as(placement),
            (None, Some(policy)) => drop(self.members.exclude(policy.excluded())),
            (None, None) => {}
        }
        let step = StepSetup {
            schedule: Some(&schedule),
            follows_policy: setup.placement.is_none(),
            record_bytes: setup.record_bytes,
            key: setup.key,
        };
        let finished = self.engage(step, |engine, beside| {
            let mut inputs = Inputs {
                copies: setup.copies,
                reload: beside.reload,
                origin: setup.origin,
            };
            let mut nothing = Memory::new(0);
            let parts = JobParts {
                store: if setup.unprotected {
                    &mut nothing
                } else {
                    beside.store
                },
                source: if setup.starts_empty {
                    &mut EmptyInputs
                } else {
                    &mut inputs
                },
                input: setup.input,
                absent,
                checks: setup.checks,
                held: setup.held,
                retains: setup.retains,
                gathered: setup.gathered,
            };
            run(engine, parts, beside.lost)
        });
        // A rank that was excluded in this job may have been corrupted by chance.
        self.members.readmit_all();
        finished
    }
}

/// Copies this rank's input again, and reloads inputs of other ranks. The default can do neither.
#[derive(Default)]
pub(super) struct Inputs<'a> {
    pub copies: Option<InputCopies<'a>>,
    pub reload: Option<&'a mut (dyn Reload + 'static)>,
    pub origin: InputOrigin,
}

impl Source for Inputs<'_> {
    fn has_own(&self) -> bool {
        self.copies.is_some()
    }

    fn own(&mut self) -> Result<Buffer> {
        match &mut self.copies {
            Some(copies) => copies.copy(),
            None => Err(Error::internal("the input of this rank is given away")),
        }
    }

    fn sends_copy(&self) -> bool {
        self.copies.as_ref().is_some_and(|copies| copies.is_sent)
    }

    fn known_by(&self, input: &[u8]) -> InputHash {
        let known = self.copies.as_ref().and_then(|copies| copies.hash);
        known.unwrap_or_else(|| InputHash::of(input))
    }

    fn can_reload(&self) -> bool {
        self.reload.is_some() && !matches!(self.origin, InputOrigin::Derived)
    }

    fn reload(&mut self, rank: Rank) -> Result<Buffer> {
        match (&mut self.reload, &self.origin) {
            (Some(reload), InputOrigin::Caller) => reload.reload(rank),
            (Some(reload), InputOrigin::Arrays(sizes)) => {
                let arrays = reload.reload(rank)?;
                let size = sizes.get(rank.index()).copied().unwrap_or_default();
                // The places of the arrays follow from their sizes.
                if arrays.len() as u64 == size || mutant(Mutant::ReloadNotVerified) {
                    return Ok(arrays);
                }
                let text = format!(
                    "the reload callback gave {} bytes for rank {rank}, but its arrays have {size} together",
                    arrays.len()
                );
                Err(Error::new(Status::Callback, text))
            }
            (Some(reload), InputOrigin::Zipped(zip)) => {
                zip.zip_reloaded(rank, &reload.reload(rank)?)
            }
            _ => Err(Error::internal("there is no reload callback")),
        }
    }
}

/// Provides inputs that are empty.
struct EmptyInputs;

impl Source for EmptyInputs {
    fn can_reload(&self) -> bool {
        true
    }

    fn reload(&mut self, _rank: Rank) -> Result<Buffer> {
        Ok(Buffer::default())
    }
}

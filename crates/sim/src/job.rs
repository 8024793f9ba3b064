//! A job of one simulated rank: its algorithm, its inputs, and the redundancy that it uses or keeps.

// The trials alone use the checkpoints and the kept redundancy.
#![cfg_attr(not(feature = "trials"), allow(dead_code))]

use std::cell::Cell;

use crate::harness::StoreKind;
use crate::refusal::callback_allowed;
use ftsort_core::block::Block;
use ftsort_core::engine::{
    Algorithm, AtOnce, Checks, CollectiveResult, Engine, Event, Finished, Gathered, HeldInputs,
    JobParts, RetainedResult, RoundContext, Source, Split, Step, Subcube, finish_gathered, run_job,
    update_inputs,
};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::store::Store;
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::Result;

/// Everything that a job uses on one rank.
pub struct JobContext<'j, 'e> {
    /// The engine.
    pub engine: &'j mut Engine<'e>,
    /// The store of the rank's jobs.
    pub store: &'j mut dyn Store,
    /// The kind of the store.
    pub kind: StoreKind,
    /// The ranks that had failed before the job began, and therefore have no input.
    pub absent: &'j RankSet,
    /// Receives the owners of the lost data.
    pub lost: &'j mut RankSet,
    /// Once set, later commits are not recorded.
    pub ignore_commits: &'j Cell<bool>,
    /// Keeps results until the rank has run all jobs.
    pub results: &'j mut Vec<RetainedResult>,
}

/// The inputs of a job, and the use of their redundancy.
pub struct JobRun<'r> {
    /// The source of inputs that are copied or loaded again.
    pub source: InputSource<'r>,
    /// The input of this rank; ignored if inputs are held.
    pub input: Slice,
    /// The detection of changed data.
    pub checks: Option<&'r Checks<'r>>,
    /// The inputs that were protected before.
    pub held: Option<&'r mut HeldInputs>,
    /// Whether the redundancy is kept after the job.
    pub retains: bool,
    /// The inputs of other ranks that have arrived already.
    pub gathered: Gathered,
}

impl<'r> JobRun<'r> {
    /// A job without checks whose inputs were not protected before, and whose redundancy ends with it.
    pub fn new(source: InputSource<'r>, input: Slice) -> JobRun<'r> {
        JobRun {
            source,
            input,
            checks: None,
            held: None,
            retains: false,
            gathered: Gathered::default(),
        }
    }

    fn parts<'p>(&'p mut self, store: &'p mut dyn Store, absent: RankSet) -> JobParts<'p> {
        JobParts {
            store,
            source: &mut self.source,
            input: std::mem::take(&mut self.input),
            absent,
            checks: self.checks,
            held: self.held.as_deref_mut(),
            retains: self.retains,
            gathered: std::mem::take(&mut self.gathered),
        }
    }
}

impl JobContext<'_, '_> {
    /// Runs an algorithm on the ranks' inputs.
    pub fn run(&mut self, algorithm: &dyn Algorithm, mut run: JobRun<'_>) -> Result<Finished> {
        let stored = StoresVersions(algorithm);
        let algorithm: &dyn Algorithm = match self.kind {
            StoreKind::Versions(_) if algorithm.rounds() > 0 => &stored,
            _ => algorithm,
        };
        let parts = run.parts(self.store, self.absent.clone());
        Ok(run_job(self.engine, algorithm, parts, self.lost)?)
    }

    /// Finishes a job with the inputs of all ranks. None: a rank failed.
    pub fn finish(
        &mut self,
        algorithm: &dyn AtOnce,
        source: InputSource<'_>,
        gathered: &Gathered,
        retains: bool,
    ) -> Result<Option<Finished>> {
        let mut run = JobRun {
            retains,
            ..JobRun::new(source, Slice::default())
        };
        let parts = run.parts(self.store, self.absent.clone());
        let finished = finish_gathered(self.engine, algorithm, parts, gathered, self.lost)?;
        Ok(finished)
    }

    /// Replaces protected inputs by those of a run.
    pub fn update(
        &mut self,
        inputs: &mut HeldInputs,
        absent: RankSet,
        mut run: JobRun<'_>,
    ) -> Result<()> {
        let parts = run.parts(self.store, absent);
        Ok(update_inputs(self.engine, inputs, parts, self.lost)?)
    }

    /// Returns the result of a step of the engine. As a group does, a rank that is separated from the others leaves its
    /// files to them: those of inputs and results that it still has, too.
    pub fn noted<R>(&mut self, result: CollectiveResult<R>) -> Result<R> {
        if result
            .as_ref()
            .is_err_and(|error| error.status.sets_apart())
        {
            self.store.set_apart();
        }
        Ok(result?)
    }

    /// Finds failures.
    pub fn find_failures(&mut self) -> Result<()> {
        let found = self.engine.check_faults();
        self.noted(found)
    }

    /// Recovers a result after failures.
    pub fn recover(
        &mut self,
        algorithm: &dyn Algorithm,
        mut source: InputSource<'_>,
        retained: &mut RetainedResult,
    ) -> Result<()> {
        self.find_failures()?;
        if retained.is_whole(self.engine.members()) {
            return Ok(());
        }
        let stored = StoresVersions(algorithm);
        let algorithm: &dyn Algorithm = match self.kind {
            StoreKind::Versions(_) => &stored,
            _ => algorithm,
        };
        retained.recover(self.engine, algorithm, &mut source, self.lost)?;
        self.engine.tell(Event::Renewed);
        Ok(())
    }
}

/// The inputs of a job.
pub struct InputSource<'a> {
    /// Returns the input of a rank.
    pub read: &'a dyn Fn(Rank) -> Result<Buffer>,
    /// The rank that can copy its own input again, if it can.
    pub own: Option<Rank>,
    /// Whether the inputs of other ranks can be loaded again.
    pub can_reload: bool,
    /// Whether they are wrong then.
    pub lies: bool,
}

impl Source for InputSource<'_> {
    fn has_own(&self) -> bool {
        self.own.is_some()
    }

    fn own(&mut self) -> Result<Buffer> {
        (self.read)(self.own.unwrap_or(Rank(0)))
    }

    /// Every other rank, so that trials have both ways.
    fn sends_copy(&self) -> bool {
        self.own.is_some_and(|rank| rank.0 % 2 == 1)
    }

    fn can_reload(&self) -> bool {
        self.can_reload
    }

    fn reload(&mut self, rank: Rank) -> Result<Buffer> {
        callback_allowed()?;
        let mut input = (self.read)(rank)?;
        if self.lies
            && let Some(byte) = input.first_mut()
        {
            *byte ^= 1;
        }
        Ok(input)
    }
}

/// An algorithm that declares its blocks not to be recomputable from inputs, so that every version is stored.
struct StoresVersions<'a>(&'a dyn Algorithm);

impl Algorithm for StoresVersions<'_> {
    fn rounds(&self) -> u32 {
        self.0.rounds()
    }
    fn step(&self, round: u32) -> Step {
        self.0.step(round)
    }
    fn prepare(&self, block: Block) -> Result<Block> {
        self.0.prepare(block)
    }
    fn propose(&self, at: &RoundContext<'_>, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        self.0.propose(at, subcube, block)
    }
    fn decide(
        &self,
        at: &RoundContext<'_>,
        subcube: &Subcube,
        proposals: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        self.0.decide(at, subcube, proposals)
    }
    fn proposal_limit(&self, round: u32) -> usize {
        self.0.proposal_limit(round)
    }
    fn decision_limit(&self, round: u32) -> usize {
        self.0.decision_limit(round)
    }
    fn most_runs(&self) -> usize {
        self.0.most_runs()
    }
    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        self.0.split(at, block)
    }
    fn join(&self, at: &RoundContext<'_>, keep: Block, got: Block) -> Result<Block> {
        self.0.join(at, keep, got)
    }
}

//! A job: the inputs are loaded, then round follows round, each a transaction.

use std::collections::BTreeMap;

use super::commit::{CollectiveError, CollectiveResult, agreed_error};
use super::decision::Decisions;
use super::exchange::Delivery;
use super::gather::Gathered;
use super::inputs::{InputHash, Inputs};
use super::integrity::{Checks, InputDigests, Integrity};
use super::progress::Progress;
use super::redundancy::held::HeldInputs;
use super::redundancy::retained::RetainedResult;
use super::redundancy::{Redundancy, retire_before};
use super::{Algorithm, Engine, Event, Phase, Source, Verdict};
use crate::block::Block;
use crate::faults::Point;
use crate::members::{Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::overlay::Overlay;
use crate::store::parity::{Covered, Encoding};
use crate::store::{Store, VersionId};
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::memory::MemoryBudget;

/// One algorithm run on one set of inputs. Each part of its state has an owner: the committed version
/// (`Progress`), the inputs (`Inputs`), the store with its contents (`Redundancy`), and the detection of
/// changed data (`Integrity`).
pub struct Job<'a, 'e> {
    pub(super) engine: &'a mut Engine<'e>,
    pub(super) algorithm: &'a dyn Algorithm,
    pub(super) progress: Progress,
    pub(super) inputs: Inputs<'a>,
    pub(super) redundancy: Redundancy<'a>,
    pub(super) integrity: Integrity<'a>,
}

/// The outcome of a job on this rank.
#[derive(Debug)]
pub struct Finished {
    /// The final blocks of the nodes that this rank executes.
    pub blocks: BTreeMap<Node, Block>,
    /// The decisions that held in the last round.
    pub decisions: Decisions,
    /// The redundancy, if the job keeps it.
    pub retained: Option<RetainedResult>,
    /// The membership at the end of the job, with which all blocks are on the executors of their nodes.
    pub membership: Membership,
}

impl Finished {
    /// The decision of the last round for node 0; if its scope is the whole cube, for all nodes.
    pub fn decision(&self) -> Slice {
        let decision = self.decisions.of(Node(0)).cloned();
        decision.unwrap_or_default()
    }
}

/// The point from which a job continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// From the committed version.
    Continue,
    /// From the inputs, which are in their places.
    RestartFromInputs,
    /// From the inputs, which are loaded again.
    Restart,
}

/// The outcome of this rank's part in a step.
#[derive(Default)]
pub(super) struct RoundResult {
    /// The new version of the blocks of this rank's nodes.
    pub blocks: BTreeMap<Node, Block>,
    /// The decisions of the round.
    pub decisions: Decisions,
    /// Hashes of inputs, if they were shared.
    pub digests: BTreeMap<Rank, InputHash>,
    /// Digests of all inputs, if they were shared.
    pub input_digests: InputDigests,
    /// Nodes with blocks that this rank has restored, and the rank that sent the block, if there was one.
    pub restored: Vec<(Node, Option<Rank>)>,
    /// This rank's part in the encodings of the step.
    pub encodings: Vec<(Covered, Encoding)>,
    /// Nodes with blocks that no rank has, as far as this rank can tell.
    pub lost: Vec<Node>,
    /// Every part of the step was done.
    pub complete: bool,
    /// No rank holds some of the data, but all inputs can be reloaded.
    pub starts_over: bool,
    /// The step was abandoned because a rank failed. Only then may a rank leave others waiting for its
    /// messages, because they detect the failure too.
    pub interrupted: bool,
    /// The reason why it is not complete, if it lies on this rank.
    pub error: Option<Error>,
}

impl RoundResult {
    pub fn new() -> RoundResult {
        RoundResult {
            complete: true,
            ..RoundResult::default()
        }
    }

    /// Marks the step as abandoned because a rank failed.
    pub fn interrupted(mut self) -> RoundResult {
        self.complete = false;
        self.interrupted = true;
        self
    }

    /// Adds the decisions of the round.
    pub fn with(mut self, decisions: Decisions) -> RoundResult {
        self.decisions = decisions;
        self
    }

    /// Records a block that a store had, or did not have.
    pub fn restored_from(&mut self, node: Node, found: Result<Option<Block>>, from: Option<Rank>) {
        match self.check(found) {
            Some(Some(block)) => {
                self.blocks.insert(node, block);
                self.restored.push((node, from));
            }
            Some(None) => self.lost.push(node),
            None => {}
        }
    }

    /// Returns a block that has arrived for this rank. If it should have, the step is not complete.
    pub fn received(&mut self, delivery: Delivery<Block>) -> Option<Block> {
        self.complete &= !matches!(delivery, Delivery::Nothing);
        delivery.got()
    }

    /// Records a block that came from another rank to the executor of its node, if it has arrived.
    pub fn moved_from(&mut self, node: Node, from: Rank, delivery: Delivery<Block>) {
        if let Some(block) = self.received(delivery) {
            self.blocks.insert(node, block);
            self.restored.push((node, Some(from)));
        }
    }

    /// Returns the value; or records the error if it is this rank's first.
    pub fn check<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.complete = false;
                self.error.get_or_insert(error);
                None
            }
        }
    }
}

/// The parts of a job besides its engine and its algorithm.
pub struct JobParts<'a> {
    /// Keeps the redundancy.
    pub store: &'a mut dyn Store,
    /// Gives inputs again.
    pub source: &'a mut dyn Source,
    /// This rank's input. Where the source can copy it, it is only protected, and the copy is sorted.
    pub input: Slice,
    /// The ranks that had failed before the job or are idle spares, and have no input.
    pub absent: RankSet,
    /// The detection of changed data, on all ranks or on none; its key is the engine's.
    pub checks: Option<&'a Checks<'a>>,
    /// The inputs that were protected before, in place of `input` and `absent`; on all ranks or on none.
    pub held: Option<&'a mut HeldInputs>,
    /// The redundancy is kept after the job; on all ranks or on none.
    pub retains: bool,
    /// Inputs of other ranks that have arrived already ([`Engine::gather`]).
    pub gathered: Gathered,
}

impl<'a> JobParts<'a> {
    /// The parts of a job without checks that keeps no redundancy, and without inputs that have arrived before.
    pub fn new(
        store: &'a mut dyn Store,
        source: &'a mut dyn Source,
        input: Slice,
        absent: RankSet,
    ) -> JobParts<'a> {
        JobParts {
            store,
            source,
            input,
            absent,
            checks: None,
            held: None,
            retains: false,
            gathered: Gathered::default(),
        }
    }
}

/// Runs an algorithm on the inputs of all ranks. Collective; all survivors return the same status. After
/// `Status::DataLost`, `lost` has the owners of the data that cannot be recovered, the same on all survivors.
pub fn run_job(
    engine: &mut Engine<'_>,
    algorithm: &dyn Algorithm,
    mut parts: JobParts<'_>,
    lost: &mut RankSet,
) -> CollectiveResult<Finished> {
    let Some(held) = parts.held.take() else {
        return Job::new(engine, algorithm, parts).run(lost);
    };
    let (state, below) = held.lend();
    let mut store = Overlay {
        below,
        above: parts.store,
        unchanged: None,
    };
    let parts = JobParts {
        checks: parts.checks,
        retains: parts.retains,
        gathered: parts.gathered,
        ..JobParts::new(&mut store, parts.source, parts.input, parts.absent)
    };
    let before = engine.members().membership().clone();
    let job = Job::new(engine, algorithm, parts);
    let finished = job.with_held(state).run(lost);
    held.after_job(finished.is_ok().then(|| engine.members()), &before);
    finished
}

impl<'a, 'e> Job<'a, 'e> {
    /// Makes a job of its parts, but for inputs that were protected before.
    pub(super) fn new<'p: 'a>(
        engine: &'a mut Engine<'e>,
        algorithm: &'a dyn Algorithm,
        parts: JobParts<'p>,
    ) -> Job<'a, 'e> {
        let (me, ranks) = (engine.members.me(), engine.members.ranks());
        let gathered = parts.gathered.into_copies(me);
        let job = Job {
            engine,
            algorithm,
            progress: Progress::default(),
            inputs: Inputs::new(parts.source, parts.input, parts.absent),
            redundancy: Redundancy::new(parts.store, ranks, gathered),
            integrity: Integrity::new(parts.checks),
        };
        job.retaining(parts.retains)
    }

    /// Runs the job; see [`run_job`]. Collective.
    pub(super) fn run(mut self, lost: &mut RankSet) -> CollectiveResult<Finished> {
        let result = self.run_rounds();
        self.finish(result, lost)
    }

    /// Ends the job after its last commit or an error on which all survivors have agreed. Collective.
    pub(super) fn finish(
        mut self,
        result: CollectiveResult<()>,
        lost: &mut RankSet,
    ) -> CollectiveResult<Finished> {
        let result = match result {
            Err(error) if error.status == Status::DataLost => {
                // A rank that is separated from the others needs no list.
                Err(self.share_losses().err().unwrap_or(error))
            }
            other => other,
        };
        let apart = |error: &CollectiveError| error.status.sets_apart();
        // Releases copies that no later step needs.
        drop(self.engine.take_arrived());
        if result.as_ref().is_err_and(apart) {
            self.redundancy.store.set_apart();
        }
        let mut is_over = true;
        let retains = self.redundancy.retains && result.is_ok();
        if retains {
            is_over = self.engine.is_over(self.redundancy.store)?;
        } else if !result.as_ref().is_err_and(apart) {
            self.engine.clear(self.redundancy.store)?;
        }
        self.engine.stats.peak_bytes = MemoryBudget::current().peak() as u64;
        if let Err(error) = result {
            if error.status == Status::DataLost {
                *lost = self.redundancy.lost;
            }
            return Err(error);
        }
        Ok(Finished {
            blocks: self.progress.blocks.clone(),
            decisions: self.progress.log.last().cloned().unwrap_or_default(),
            membership: self.engine.members.membership().clone(),
            retained: retains.then(|| self.into_retained(is_over)),
        })
    }

    fn run_rounds(&mut self) -> CollectiveResult<()> {
        let before = self.algorithm.rounds_before();
        self.engine.rounds = self.algorithm.rounds_in_all() + 1;
        // The policies have not been asked since the last job.
        self.engine.reconsider = true;
        self.regroup()?;
        let mut round = 0;
        while round <= self.algorithm.rounds() {
            self.engine.round = before + round;
            let flow = match self.transact(round)? {
                NextStep::Continue => {
                    self.retire(round);
                    if round > 0 || before == 0 {
                        self.engine.stats.rounds += 1;
                        self.engine.tell(Event::Round);
                    }
                    if round < self.algorithm.rounds() {
                        self.regroup()?
                    } else {
                        NextStep::Continue
                    }
                }
                back => back,
            };
            round = match flow {
                NextStep::Continue => round + 1,
                NextStep::RestartFromInputs => 1,
                NextStep::Restart => 0,
            };
        }
        Ok(())
    }

    /// Releases versions that no rank needs after the commit of this round.
    fn retire(&mut self, round: u32) {
        if !self.recomputes() {
            let is_stored = round < self.algorithm.rounds() || self.stores_result();
            let last =
                if self.redundancy.retains && !is_stored && !mutant(Mutant::LastVersionRetired) {
                    round - 1
                } else {
                    round
                };
            retire_before(self.redundancy.store, last);
        }
    }

    /// Returns whether the version after the last round is stored.
    fn stores_result(&self) -> bool {
        if self.parity().is_some() {
            // The inputs end with the call, and the version before the result with the result.
            return self.redundancy.retains && self.algorithm.rounds() > 0;
        }
        self.redundancy.retains && !self.recomputes() && !self.algorithm.finishes_locally()
    }

    /// Runs the round until it is committed, or until the job must continue from an earlier point.
    fn transact(&mut self, round: u32) -> CollectiveResult<NextStep> {
        loop {
            self.engine.inject_crash(Point::Begin)?;
            if mutant(Mutant::VersionDroppedBeforeCommit) {
                self.redundancy.store.retire(round);
            }
            if mutant(Mutant::StoreClearedBeforeCommit) && round == self.algorithm.rounds() {
                self.redundancy.store.clear();
            }
            let mut result = self.execute_round(round)?;
            result.error = self.suspected(result.error);
            if mutant(Mutant::DecisionLoggedBeforeCommit) {
                self.progress.log.push(result.decisions.clone());
            }
            let verdict = self.engine.commit(result.complete, result.error.as_ref())?;
            match self.confirmed(round, verdict)? {
                Verdict::Committed => {
                    self.accept(round, result);
                    return Ok(NextStep::Continue);
                }
                Verdict::Failed(status) if status.get() == Status::Corrupt => {
                    self.engine.stats.rounds_replayed += 1;
                    let flow = self.retry(status, result.error)?;
                    self.engine.tell(Event::Replay);
                    if flow != NextStep::Continue {
                        return Ok(flow);
                    }
                }
                Verdict::Failed(status) => return Err(agreed_error(status, result.error)),
                Verdict::Replay => {
                    self.engine.stats.rounds_replayed += 1;
                    if mutant(Mutant::AbortedBlocksKept) {
                        self.progress.blocks.extend(result.blocks);
                    }
                    let recovered = if mutant(Mutant::RecoverySkipped) {
                        NextStep::Continue
                    } else {
                        self.recover()?
                    };
                    self.engine.tell(Event::Replay);
                    if recovered != NextStep::Continue {
                        return Ok(recovered);
                    }
                }
            }
        }
    }

    /// Agrees again on the commit of the last round. A rank that fails after its part in the first agreement, in
    /// which it may wait long for slower ranks, takes its part of the result along: then the round is replayed as
    /// long as the inputs are kept. In the second agreement no rank waits for work.
    fn confirmed(&mut self, round: u32, verdict: Verdict) -> CollectiveResult<Verdict> {
        if verdict != Verdict::Committed || round < self.algorithm.rounds() {
            return Ok(verdict);
        }
        let confirmed = self.engine.commit(true, None)?;
        Ok(match mutant(Mutant::LastFailureIgnored) {
            true => verdict,
            false => confirmed,
        })
    }

    /// Runs the round and stores its result.
    fn execute_round(&mut self, round: u32) -> CollectiveResult<RoundResult> {
        let result = match round {
            0 => self.timed_protection()?,
            _ => self.play(round)?,
        };
        if result.interrupted {
            return Ok(result);
        }
        self.engine.inject_crash(Point::Store)?;
        let start = self.engine.transport.now();
        let version_id = VersionId::new(round, self.engine.members.faulty());
        let result = match result {
            result if round == 0 && self.recomputes() => self.load_inputs(result)?,
            result if round == 0 => self.load_version(result)?,
            result if round == self.algorithm.rounds() => {
                let result = self.verify_result(result)?;
                if self.stores_result() && !result.interrupted {
                    self.save_version(version_id, result)?
                } else {
                    result
                }
            }
            result if self.recomputes() => result,
            result => self.save_version(version_id, result)?,
        };
        self.engine.spent(Phase::Store, start);
        self.engine.inject_crash(Point::Stored)?;
        Ok(result)
    }

    fn timed_protection(&mut self) -> CollectiveResult<RoundResult> {
        let start = self.engine.transport.now();
        let result = self.protect_inputs();
        self.engine.spent(Phase::Protect, start);
        result
    }

    /// Forgets all that was done, but not the digests of the inputs.
    pub(super) fn start_over(&mut self) {
        self.redundancy.store.clear();
        self.redundancy.raw.clear();
        self.progress.restart();
        self.inputs.own_is_here = false;
        self.integrity.distrusted = false;
    }

    /// Makes the result of a round, which has just been committed, the state of the job.
    fn accept(&mut self, round: u32, result: RoundResult) {
        self.inputs.hashes.extend(result.digests);
        self.integrity.input_digests.extend(result.input_digests);
        self.inputs.release_own();
        self.progress
            .commit(round, result.blocks, result.decisions, self.engine.members);
        self.accept_encodings(result.encodings);
        if round < self.algorithm.rounds() || self.stores_result() {
            self.redundancy.stored = self.progress.version;
        }
    }

    /// Returns whether lost blocks are recomputed from inputs, so that versions are not stored.
    pub(super) fn recomputes(&self) -> bool {
        let from_inputs = self.redundancy.keeps_copies() && self.algorithm.is_recomputable();
        from_inputs && !self.redundancy.has_versions
    }

    /// Returns the node's home if it exists and has an input.
    pub(super) fn home_with_input(&self, node: Node) -> Option<Rank> {
        self.inputs.home(node, self.engine.members.ranks())
    }
}

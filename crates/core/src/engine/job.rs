//! One sort: load, then round after round, each a transaction.

use std::collections::BTreeMap;

use super::checks::{Checks, InputDigests};
use super::commit::agreed_error;
use super::decision::Decisions;
use super::reload::InputHash;
use super::versions::retire_before;
use super::{Algorithm, Engine, Event, Phase, Source, Verdict};
use crate::block::Block;
use crate::faults::Point;
use crate::members::{Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::{Store, StoreScope, VersionId};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::memory::MemoryBudget;

/// One algorithm run on one set of inputs.
pub struct Job<'a, 'e> {
    pub(super) engine: &'a mut Engine<'e>,
    pub(super) algorithm: &'a dyn Algorithm,
    pub(super) store: &'a mut dyn Store,
    pub(super) source: &'a mut dyn Source,
    /// This rank's own input, as it was loaded; empty as soon as it is committed.
    pub(super) input: Slice,
    /// It is there: the sort was not started over.
    pub(super) input_is_here: bool,
    /// The ranks that were dead when the sort began, and so have no input.
    pub(super) absent: RankSet,
    /// The committed version, and who was dead when it was made.
    pub(super) version_id: VersionId,
    /// That version of the blocks of the nodes that this rank executes.
    pub(super) blocks: BTreeMap<Node, Block>,
    /// How the ranks stood when that version was committed: it tells who executed what, and who holds
    /// copies. None before the inputs are committed.
    pub(super) committed_with: Option<Membership>,
    /// What the committed rounds decided, from round 1 on.
    pub(super) log: Vec<Decisions>,
    /// Whose inputs are in this rank's store.
    pub(super) held: RankSet,
    /// But its own is not there: it can be had of its owner.
    pub(super) released: bool,
    /// What the inputs are known by, where they may be asked for again.
    pub(super) digests: BTreeMap<Rank, InputHash>,
    /// Whose data cannot be got back, as far as this rank knows.
    pub(super) lost: RankSet,
    /// What is checked by; None: nothing is checked.
    pub(super) checks: Option<&'a Checks<'a>>,
    /// What every node's input is known by, where blocks are checked.
    pub(super) input_digests: InputDigests,
    /// How often something wrong was found, and by how much each rank was to blame.
    pub(super) mended: u32,
    pub(super) strikes: BTreeMap<Rank, u32>,
    /// Blocks were forgotten that their executors had.
    pub(super) distrusted: bool,
}

/// What a job leaves.
#[derive(Debug)]
pub struct Finished {
    /// The final blocks of the nodes that this rank executes.
    pub blocks: BTreeMap<Node, Block>,
    /// What the last round decided for node 0; where its scope is the whole cube, for all nodes.
    pub decision: Slice,
}

/// Where a sort goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// From the committed version.
    Onward,
    /// From the inputs, which are in their places.
    FromTheInputs,
    /// From the inputs, which are loaded again.
    FromTheStart,
}

/// What came of this rank's part in a step.
pub(super) struct RoundResult {
    /// The new version of this rank's nodes' blocks.
    pub blocks: BTreeMap<Node, Block>,
    /// What was decided.
    pub decisions: Decisions,
    /// What inputs are known by, if that was shared.
    pub digests: BTreeMap<Rank, InputHash>,
    /// What every node's input is known by, if that was shared.
    pub input_digests: InputDigests,
    /// Nodes whose blocks this rank got back, and from which rank, if it was one.
    pub restored: Vec<(Node, Option<Rank>)>,
    /// Nodes whose blocks nobody has, as far as this rank can see.
    pub lost: Vec<Node>,
    /// Every part of it was done.
    pub complete: bool,
    /// Data are lost that nobody holds, but all inputs can be had again.
    pub starts_over: bool,
    /// It was given up because somebody died. Only then may a rank leave others waiting for its
    /// messages: they see the death too.
    pub interrupted: bool,
    /// Why it is not complete, where the reason lies on this rank.
    pub trouble: Option<Error>,
}

impl RoundResult {
    pub fn new() -> RoundResult {
        RoundResult {
            blocks: BTreeMap::new(),
            decisions: Decisions::default(),
            digests: BTreeMap::new(),
            input_digests: InputDigests::new(),
            restored: Vec::new(),
            lost: Vec::new(),
            complete: true,
            starts_over: false,
            interrupted: false,
            trouble: None,
        }
    }

    /// Given up, because somebody died.
    pub fn interrupted(mut self) -> RoundResult {
        self.complete = false;
        self.interrupted = true;
        self
    }

    /// With what was decided in it.
    pub fn with(mut self, decisions: Decisions) -> RoundResult {
        self.decisions = decisions;
        self
    }

    /// Keeps a block that a store had, or did not have.
    pub fn got_back(&mut self, node: Node, found: Result<Option<Block>>, from: Option<Rank>) {
        match self.check(found) {
            Some(Some(block)) => {
                self.blocks.insert(node, block);
                self.restored.push((node, from));
            }
            Some(None) => self.lost.push(node),
            None => {}
        }
    }

    /// Keeps the value; or the error, as this rank's trouble, if it is the first.
    pub fn check<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.complete = false;
                self.trouble.get_or_insert(error);
                None
            }
        }
    }
}

impl<'a, 'e> Job<'a, 'e> {
    /// A sort of this rank's `input` together with those of the others. `absent`: the ranks that
    /// were known to be dead when the sort began; they have no input. `checks`: on all ranks or none, and
    /// then `engine.key` is theirs.
    pub fn new(
        engine: &'a mut Engine<'e>,
        algorithm: &'a dyn Algorithm,
        store: &'a mut dyn Store,
        source: &'a mut dyn Source,
        input: Buffer,
        absent: RankSet,
        checks: Option<&'a Checks<'a>>,
    ) -> Job<'a, 'e> {
        let ranks = engine.members.ranks();
        Job {
            engine,
            algorithm,
            store,
            source,
            input: input.into(),
            input_is_here: true,
            absent,
            version_id: VersionId::INPUT,
            blocks: BTreeMap::new(),
            committed_with: None,
            log: Vec::new(),
            held: RankSet::new(ranks),
            released: false,
            digests: BTreeMap::new(),
            lost: RankSet::new(ranks),
            checks,
            input_digests: InputDigests::new(),
            mended: 0,
            strikes: BTreeMap::new(),
            distrusted: false,
        }
    }

    /// Runs it to its end. Collective; all survivors return the same status. After
    /// `Status::DataLost`, `lost` has the ranks whose data cannot be got back, the same on all.
    pub fn run(mut self, lost: &mut RankSet) -> Result<Finished> {
        let result = match self.run_rounds() {
            Err(error) if error.status == Status::DataLost => {
                // Without the others there is no use in knowing.
                Err(self.tell_losses().err().unwrap_or(error))
            }
            other => other,
        };
        let apart = |error: &Error| error.status.sets_apart();
        if !result.as_ref().is_err_and(apart) {
            self.engine.clear(self.store)?;
        }
        self.engine.stats.peak_bytes = MemoryBudget::current().peak() as u64;
        if let Err(error) = result {
            if error.status == Status::DataLost {
                *lost = self.lost;
            }
            return Err(error);
        }
        let last = self.log.last().and_then(|last| last.of(Node(0)).cloned());
        Ok(Finished {
            blocks: self.blocks,
            decision: last.unwrap_or_else(|| Buffer::default().into()),
        })
    }

    fn run_rounds(&mut self) -> Result<()> {
        self.engine.rounds = self.algorithm.rounds() + 1;
        // Advisers have not been asked since the last sort.
        self.engine.reconsider = true;
        self.regroup()?;
        let mut round = 0;
        while round <= self.algorithm.rounds() {
            self.engine.round = round;
            let flow = match self.transact(round)? {
                Flow::Onward => {
                    self.retire(round);
                    self.engine.stats.rounds += 1;
                    self.engine.tell(Event::Round);
                    match round < self.algorithm.rounds() {
                        true => self.regroup()?,
                        false => Flow::Onward,
                    }
                }
                back => back,
            };
            round = match flow {
                Flow::Onward => round + 1,
                Flow::FromTheInputs => 1,
                Flow::FromTheStart => 0,
            };
        }
        Ok(())
    }

    /// Forgets what nobody needs any more after the commit of this round.
    fn retire(&mut self, round: u32) {
        if !self.retains() {
            retire_before(self.store, round);
        }
    }

    /// Tries the round until it is committed, or everything has to be loaded again.
    fn transact(&mut self, round: u32) -> Result<Flow> {
        loop {
            self.engine.inject_crash(Point::Begin)?;
            if mutant(Mutant::RetiredTooEarly) {
                self.store.retire(round);
            }
            if mutant(Mutant::ClearedTooEarly) && round == self.algorithm.rounds() {
                self.store.clear();
            }
            let mut attempt = self.attempt(round)?;
            attempt.trouble = self.suspected(attempt.trouble);
            if mutant(Mutant::LoggedTooEarly) {
                self.log.push(attempt.decisions.clone());
            }
            let verdict = self
                .engine
                .commit(attempt.complete, attempt.trouble.as_ref())?;
            match verdict {
                Verdict::Committed => {
                    self.accept(round, attempt);
                    return Ok(Flow::Onward);
                }
                Verdict::Failed(Status::Corrupt) => {
                    self.engine.stats.rounds_replayed += 1;
                    let flow = self.mend(attempt.trouble)?;
                    self.engine.tell(Event::Replay);
                    if flow != Flow::Onward {
                        return Ok(flow);
                    }
                }
                Verdict::Failed(status) => return Err(agreed_error(status, attempt.trouble)),
                Verdict::Replay => {
                    self.engine.stats.rounds_replayed += 1;
                    if mutant(Mutant::AttemptIsKept) {
                        self.blocks.extend(attempt.blocks);
                    }
                    let recovered = match mutant(Mutant::RecoveryIsSkipped) {
                        true => Flow::Onward,
                        false => self.recover()?,
                    };
                    self.engine.tell(Event::Replay);
                    if recovered != Flow::Onward {
                        return Ok(recovered);
                    }
                }
            }
        }
    }

    /// The round's work, and its result in the store.
    fn attempt(&mut self, round: u32) -> Result<RoundResult> {
        let attempt = match round {
            0 => None,
            _ => match self.play(round)? {
                given_up if given_up.interrupted => return Ok(given_up),
                attempt => Some(attempt),
            },
        };
        self.engine.inject_crash(Point::Store)?;
        let start = self.engine.transport.now();
        let version_id = VersionId {
            version: round,
            faults: self.engine.members.faulty().fingerprint(),
        };
        let attempt = match attempt {
            None if self.retains() => self.load_retained()?,
            None => self.load_version()?,
            // The result is in the caller's hands as soon as it is committed.
            Some(attempt) if round == self.algorithm.rounds() => self.verify_result(attempt)?,
            Some(attempt) if self.retains() => attempt,
            Some(attempt) => self.save_version(version_id, attempt)?,
        };
        self.engine.spent(Phase::Store, start);
        self.engine.inject_crash(Point::Stored)?;
        Ok(attempt)
    }

    /// Forgets all that was done, but not what the inputs are known by.
    pub(super) fn start_over(&mut self) {
        self.store.clear();
        self.version_id = VersionId::INPUT;
        self.blocks.clear();
        self.committed_with = None;
        self.log.clear();
        self.input_is_here = false;
    }

    /// It is committed: the attempt is the state.
    fn accept(&mut self, round: u32, attempt: RoundResult) {
        self.blocks = attempt.blocks;
        self.digests.extend(attempt.digests);
        self.input_digests.extend(attempt.input_digests);
        self.version_id = match round {
            0 => VersionId::INPUT,
            version => {
                if !mutant(Mutant::LoggedTooEarly) {
                    self.log.push(attempt.decisions);
                }
                VersionId {
                    version,
                    faults: self.engine.members.faulty().fingerprint(),
                }
            }
        };
        self.committed_with = Some(self.engine.members.membership().clone());
        self.input = Buffer::default().into();
    }

    /// Are blocks made again from inputs?
    pub(super) fn retains(&self) -> bool {
        matches!(self.store.scope(), StoreScope::Copies(_)) && self.algorithm.is_recomputable()
    }

    /// The node's home, if there is one that brought an input.
    pub(super) fn home_with_input(&self, node: Node) -> Option<Rank> {
        let home = Rank(node.0);
        let there = home.index() < self.engine.members.ranks();
        let absent = self.absent.contains(home) && !mutant(Mutant::AbsentHaveInputs);
        (there && !absent).then_some(home)
    }
}

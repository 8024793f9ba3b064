//! Redundancy that outlives its job: of inputs that are sorted later, and of results until they are released.
//!
//! A sort keeps the copies of the inputs and the logged decisions, which cost no time. The block of a rank that
//! fails later consists of one piece of each input. A rank's own sorted input has become its result, so each rank
//! keeps, besides the copies of the inputs of others, those pieces of its own input that belong to nodes of the
//! holders of its copies. Then every piece of a lost block is left after up to as many failures at once as there
//! are copies: if the failed rank held no copy of the piece's input, not all holders of that input have failed.
//! If it did, the owner of the input keeps the piece; and if the owner has failed as well, again not all holders
//! have failed.
//!
//! After the first recovery the blocks themselves are copied to other ranks, and the inputs are released:
//! later recoveries fetch lost blocks and renew their copies. Where every version is stored, in files or as
//! copies, the last version is kept from the beginning.

use std::collections::{BTreeMap, BTreeSet};

use super::held::{HeldInputs, HeldState};
use crate::block::Block;
use crate::engine::algorithm::{Algorithm, Exchange, RoundContext, Split, Step, attempt};
use crate::engine::commit::agreed_error;
use crate::engine::job::{Job, JobParts, RoundResult};
use crate::engine::progress::Progress;
use crate::engine::{CollectiveResult, Engine, Source, Verdict};
use crate::members::{Members, Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::memory::Memory;
use crate::store::parity::Covered;
use crate::store::{Store, StoreScope, VersionId};
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};

/// The redundancy of a result on one rank.
#[derive(Debug)]
pub struct RetainedResult {
    /// Copies of inputs, or versions of blocks.
    inputs: HeldInputs,
    /// The committed result and how it came about.
    progress: Progress,
    /// See [`Redundancy::kept`](super::Redundancy::kept).
    kept: BTreeMap<Node, Block>,
    /// Versions of the blocks are in the store, and not copies of the inputs.
    has_versions: bool,
    /// Lost blocks were recomputed, and the blocks are still to be copied to other ranks.
    lacks_copies: bool,
}

impl RetainedResult {
    /// The blocks of the result on this rank.
    pub fn blocks(&self) -> &BTreeMap<Node, Block> {
        &self.progress.blocks
    }

    /// Returns whether all blocks are on their executors, and all copies in their places.
    pub fn is_whole(&self, members: &Members) -> bool {
        let is_in_place = |membership: &Membership| {
            let mut members = members.clone();
            members.exclude_as(membership);
            members.membership() == membership
        };
        !self.lacks_copies && self.progress.membership.as_ref().is_some_and(is_in_place)
    }

    /// Excludes the survivors that were excluded when the result was made, so that its blocks are on the executors of
    /// their nodes.
    pub fn exclude_again(&self, engine: &mut Engine<'_>) {
        if let Some(membership) = &self.progress.membership {
            engine.members.exclude_as(membership);
        }
    }

    /// The inputs alone, for a job that only loaded them, or to release all redundancy.
    pub fn into_inputs(self) -> HeldInputs {
        self.inputs
    }
}

/// Loads and protects inputs, and does nothing else with them.
pub struct LoadOnly;

impl Algorithm for LoadOnly {
    fn rounds(&self) -> u32 {
        0
    }

    fn step(&self, _round: u32) -> Step {
        Step {
            scope: None,
            exchange: Exchange::Nothing,
        }
    }

    fn is_recomputable(&self) -> bool {
        true
    }

    fn split(&self, _at: &RoundContext<'_>, _block: &Block) -> Result<Split> {
        Err(Error::internal("inputs are only loaded"))
    }
}

/// Stands for a finished algorithm of the caller's. Its functions are not called again: its final states are stored
/// as they are.
pub struct FinishedRounds {
    /// The number of its rounds.
    pub rounds: u32,
}

impl Algorithm for FinishedRounds {
    fn rounds(&self) -> u32 {
        self.rounds
    }

    fn step(&self, round: u32) -> Step {
        LoadOnly.step(round)
    }

    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        LoadOnly.split(at, block)
    }
}

impl<'a, 'e> Job<'a, 'e> {
    /// Lets the job use inputs that were protected before, in place of an input that the caller passes.
    pub(in crate::engine) fn with_held(mut self, held: HeldState) -> Job<'a, 'e> {
        let members = &self.engine.members;
        self.redundancy.whole_with = Some(held.membership);
        self.redundancy.outlives_job = true;
        self.redundancy.held = held.held;
        // The job makes a copy of this rank's own input.
        self.redundancy.held.remove(members.me());
        self.inputs.passed = self.inputs.given.take();
        let encoding = self.redundancy.store.encoding(Covered::Inputs);
        let raw = encoding.into_iter().flat_map(|encoding| &encoding.mine);
        self.redundancy.raw = raw.cloned().collect();
        self.inputs.absent = held.absent;
        self.inputs.hashes = held.hashes;
        self
    }

    /// Keeps the redundancy after the end of the job. The same on all ranks.
    pub(in crate::engine) fn retaining(mut self, retains: bool) -> Job<'a, 'e> {
        let is_redundant = match self.redundancy.store.scope() {
            StoreScope::Copies(0) => {
                self.inputs.source.can_reload() && self.algorithm.is_recomputable()
            }
            _ => true,
        };
        self.redundancy.retains = retains && (is_redundant || self.algorithm.rounds() == 0);
        self
    }

    /// Takes the redundancy out of the job, which has ended. `is_over`: all ranks know it. Local.
    pub(in crate::engine) fn into_retained(mut self, is_over: bool) -> RetainedResult {
        let me = self.engine.members.me();
        let mut held = self.redundancy.held.clone();
        let has_parity = self.parity().is_some();
        let store: Box<dyn Store> = match self.redundancy.store.scope() {
            StoreScope::Copies(copies) if self.algorithm.is_recomputable() => {
                if self.redundancy.released {
                    held.remove(me);
                }
                let mut store = Memory::new(copies);
                for origin in held.clone().iter() {
                    let input = self.redundancy.store.get(VersionId::INPUT, origin.home());
                    let kept = input.and_then(|input| match input {
                        Some(input) => store.put(VersionId::INPUT, origin.home(), &input),
                        None => Err(Error::internal("a held input is missing")),
                    });
                    // The store is in memory, which always has the inputs that it holds, and takes more.
                    if kept.is_err() {
                        held.remove(origin);
                    }
                }
                self.redundancy.store.clear();
                Box::new(store)
            }
            StoreScope::Parity(_) if self.algorithm.rounds() > 0 => {
                // The inputs have become the result, and refer to the caller's arrays.
                let store = &mut self.redundancy.store;
                let blocks = store.encoding(Covered::Blocks).cloned();
                let mut kept = store.detach(is_over);
                kept.clear();
                kept.set_encoding(Covered::Blocks, blocks);
                kept
            }
            StoreScope::Parity(_) => {
                // Those of failed ranks may be in the store below.
                for origin in held.clone().iter() {
                    let store = &mut self.redundancy.store;
                    let input = store.get(VersionId::INPUT, origin.home());
                    if let Ok(Some(input)) = input
                        && store.hold(origin.home(), &input).is_err()
                    {
                        held.remove(origin);
                    }
                }
                self.redundancy.store.detach(is_over)
            }
            _ => self.redundancy.store.detach(is_over),
        };
        let mut progress = self.progress;
        let has_versions =
            !self.redundancy.keeps_copies() || !self.algorithm.is_recomputable() || has_parity;
        if has_versions {
            progress.version = self.redundancy.stored;
        }
        RetainedResult {
            inputs: HeldInputs {
                store,
                state: HeldState {
                    held,
                    absent: self.inputs.absent,
                    hashes: self.inputs.hashes,
                    membership: self.engine.members.membership().clone(),
                },
            },
            progress,
            kept: self.redundancy.kept,
            has_versions,
            lacks_copies: false,
        }
    }
}

impl RetainedResult {
    /// Brings the block of every node to its present executor after failures, and renews the redundancy. A failure
    /// in the meantime makes it start again. Ranks that were excluded when the result was made stay excluded, so that
    /// the blocks of survivors stay where they are. `algorithm`: that of the job. Collective; after
    /// `Status::DataLost`, `lost` has the ranks with blocks that cannot be recovered, the same on all survivors.
    pub fn recover(
        &mut self,
        engine: &mut Engine<'_>,
        algorithm: &dyn Algorithm,
        source: &mut dyn Source,
        lost: &mut RankSet,
    ) -> CollectiveResult<()> {
        if !mutant(Mutant::BlocksOfResultMoved) {
            self.exclude_again(engine);
        }
        let HeldInputs { store, state } = &mut self.inputs;
        let absent = state.absent.clone();
        let parts = JobParts::new(&mut **store, source, Slice::default(), absent);
        let mut job = Job::new(engine, algorithm, parts);
        job.engine.round = algorithm.rounds();
        job.engine.rounds = algorithm.rounds() + 1;
        // Lends the state to the job, and takes it back.
        let mut exchange = |job: &mut Job<'_, '_>| {
            std::mem::swap(&mut job.progress, &mut self.progress);
            std::mem::swap(&mut job.redundancy.held, &mut state.held);
            std::mem::swap(&mut job.redundancy.kept, &mut self.kept);
            std::mem::swap(&mut job.inputs.hashes, &mut state.hashes);
        };
        exchange(&mut job);
        job.redundancy.of_result = true;
        job.redundancy.has_versions = self.has_versions;
        let recovered = job.recover_result(&mut self.lacks_copies);
        if let Err(error) = &recovered {
            if error.status.sets_apart() {
                job.redundancy.store.set_apart();
            }
            if error.status == Status::DataLost {
                *lost = job.failed_executors();
            }
        }
        exchange(&mut job);
        self.has_versions = job.redundancy.has_versions;
        recovered
    }
}

impl Job<'_, '_> {
    fn recover_result(&mut self, lacks_copies: &mut bool) -> CollectiveResult<()> {
        loop {
            let is_copied = self.recomputes() && self.copies() > 0;
            let is_copied = is_copied && !mutant(Mutant::ResultNotCopiedAgain);
            let at_once = is_copied && !mutant(Mutant::BlockGivenUpBeforeCopies);
            let present = self.engine.members.membership();
            let in_place = self.progress.membership.as_ref() == Some(present);
            if in_place && !*lacks_copies {
                return Ok(());
            }
            let verdict = match in_place {
                true => self.copy_result()?,
                false => match self.restore_result(at_once) {
                    Err(error) if is_copied && error.status == Status::Memory => {
                        // There may be memory for the blocks, and not for copies of them.
                        while self.restore_result(false)? != Verdict::Committed {}
                        *lacks_copies = true;
                        return Err(error);
                    }
                    restored => restored?,
                },
            };
            if verdict == Verdict::Committed {
                *lacks_copies = !in_place && at_once != is_copied;
            }
        }
    }

    /// Brings the blocks of failed ranks to their present executors. `is_copied`: all blocks are copied to other ranks in the
    /// same transaction, because a rank gives up a block that another one executes from now on.
    fn restore_result(&mut self, is_copied: bool) -> CollectiveResult<Verdict> {
        let mut result = match self.progress.membership.clone() {
            _ if self.recomputes() => match self.share_kept()? {
                Some(kept_by) => {
                    self.redundancy.kept_by = kept_by;
                    let mut result = RoundResult::new();
                    result.check(self.discard_changed());
                    self.restore_lineage(result)?
                }
                None => RoundResult::new().interrupted(),
            },
            Some(held_with) => self.restore_version(&held_with)?,
            None => RoundResult::new(),
        };
        self.finish_restored(&mut result);
        // All ranks know of a loss.
        let is_lost = !self.redundancy.lost.is_empty();
        if is_copied && !result.interrupted && !is_lost {
            result = self.copy_blocks(result)?;
        }
        self.end_transaction(result, is_copied)
    }

    /// Ends a transaction of a result with a commit.
    fn end_transaction(
        &mut self,
        result: RoundResult,
        is_copied: bool,
    ) -> CollectiveResult<Verdict> {
        let verdict = self.engine.commit(result.complete, result.error.as_ref())?;
        match verdict {
            Verdict::Committed if result.starts_over => {
                // The next attempt recomputes lost blocks from inputs that are loaded again, and needs no copies of blocks.
                self.redundancy.has_versions = false;
                self.redundancy.store.clear();
                return Ok(Verdict::Replay);
            }
            Verdict::Committed => {
                self.accept_recovered(result);
                if is_copied {
                    self.release_inputs();
                }
            }
            Verdict::Replay => {}
            Verdict::Failed(status) if status.get() == Status::Corrupt => {
                // Changed inputs were discarded, and a message is sent again.
                self.report_corruption(status, result.error)?;
                return Ok(Verdict::Replay);
            }
            Verdict::Failed(status) => return Err(agreed_error(status, result.error)),
        }
        Ok(verdict)
    }

    /// Discards the inputs and pieces in this rank's store that do not have their digests. Then the next attempt does
    /// not count on them.
    fn discard_changed(&mut self) -> Result<()> {
        if self.engine.key.is_none() || mutant(Mutant::RecoveryUnchecked) {
            return Ok(());
        }
        let mut outcome = Ok(());
        for origin in self.redundancy.held.clone().iter() {
            // An input that cannot be read is not held.
            let input = self.redundancy.store.get(VersionId::INPUT, origin.home());
            let input = input.ok().flatten().unwrap_or_else(Block::empty);
            let checked = self.verify_own(&input);
            if checked.is_err() {
                self.redundancy.held.remove(origin);
                outcome = checked;
            }
        }
        for (node, piece) in std::mem::take(&mut self.redundancy.kept) {
            match self.verify_own(&piece) {
                Ok(()) => drop(self.redundancy.kept.insert(node, piece)),
                changed => outcome = changed,
            }
        }
        outcome
    }

    /// Runs the last round for the blocks that were restored as they were before it. A block of the result stays
    /// as it is.
    fn finish_restored(&mut self, result: &mut RoundResult) {
        if mutant(Mutant::RestoredBlockNotFinished) {
            return;
        }
        let algorithm = self.algorithm;
        for (node, block) in std::mem::take(&mut result.blocks) {
            let decision = self.progress.last_decision(node);
            let at = RoundContext::new(algorithm.rounds(), node, decision);
            let digest = block.digest;
            let finished = attempt(algorithm, || algorithm.join(&at, block, Block::empty()));
            let Some(block) = result.check(finished) else {
                continue;
            };
            let block = Block { digest, ..block };
            if !mutant(Mutant::RecoveryUnchecked) {
                result.check(self.verify_own(&block));
            }
            result.blocks.insert(node, block);
        }
    }

    /// Copies the blocks to other ranks, and releases the inputs.
    fn copy_result(&mut self) -> CollectiveResult<Verdict> {
        let result = self.copy_blocks(RoundResult::new())?;
        self.end_transaction(result, true)
    }

    /// The version of the blocks that are copied after a recovery.
    fn version_of_result(&self) -> VersionId {
        VersionId::new(self.algorithm.rounds(), self.engine.members.faulty())
    }

    /// Copies the blocks of this rank's nodes to other ranks: those of `result`, and those that were here before.
    fn copy_blocks(&mut self, mut result: RoundResult) -> CollectiveResult<RoundResult> {
        for node in self.engine.members.my_nodes() {
            let block = result.blocks.get(&node);
            let block = block.or_else(|| self.progress.blocks.get(&node)).cloned();
            let block = block.unwrap_or_else(Block::empty);
            // Copies of a changed block would be as wrong as the block.
            result.check(self.verify_own(&block));
            result.blocks.insert(node, block);
        }
        self.save_version(self.version_of_result(), result)
    }

    /// Goes over from the inputs to the copies of the blocks, which have been committed.
    fn release_inputs(&mut self) {
        self.progress.version = self.version_of_result();
        self.redundancy.has_versions = true;
        let version = self.progress.version.version;
        self.redundancy.store.retire(version);
        self.redundancy.held = RankSet::new(self.engine.members.ranks());
        self.redundancy.kept.clear();
    }

    /// Shares the pieces of own inputs that the survivors keep. None: a rank failed.
    fn share_kept(&mut self) -> CollectiveResult<Option<BTreeSet<(Rank, Node)>>> {
        let nodes = self.engine.members.cube().len();
        let mine = NodeSet::of(nodes, self.redundancy.kept.keys().copied());
        let mine = mine.to_bytes();
        let limit = mine.len();
        let reports = self.engine.share(mine, limit)?;
        Ok(reports.map(|reports| {
            let kept = reports.iter().flat_map(|(owner, words)| {
                let kept = NodeSet::from_bytes(nodes, words);
                kept.iter().map(|node| (*owner, node)).collect::<Vec<_>>()
            });
            kept.collect()
        }))
    }

    /// The failed ranks that had blocks of the committed version.
    fn failed_executors(&self) -> RankSet {
        let members = &self.engine.members;
        let nodes = members.cube().nodes();
        let last = nodes.filter_map(|node| self.progress.last_executor(node, members));
        let failed = last.filter(|rank| members.is_faulty(*rank));
        RankSet::of(members.ranks(), failed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::holders::holders;
    use super::*;
    use crate::members::Members;
    use proptest::prelude::*;

    proptest! {
        /// After at most as many failures as there are copies, each piece of a lost block is at a holder of its input,
        /// or at its owner.
        #[test]
        fn every_piece_of_a_lost_block_is_left(
            ranks in 2_usize..40,
            copies in 1_usize..5,
            before in prop::collection::vec(1_u32..40, 0..20),
            failed in prop::collection::vec(1_u32..40, 1..5),
            hosts in prop::collection::vec(0_u64..4, 40),
        ) {
            let within = |some: Vec<u32>, most: usize| {
                let some = some.into_iter().filter(|rank| (*rank as usize) < ranks);
                RankSet::of(ranks, some.take(most).map(Rank))
            };
            let mut members = Members::new(Rank(0), ranks);
            members.set_hosts(hosts[..ranks].to_vec());
            members.absorb(&within(before, ranks));
            let failed = within(failed, copies);
            let is_left = |rank: &Rank| !failed.contains(*rank);
            for owner in members.survivors() {
                let mut others = holders(owner.home(), &members, members.membership(), copies);
                others.retain(|rank| *rank != owner);
                for node in failed.iter().flat_map(|rank| members.nodes_of(rank)) {
                    let executor = members.executor(node);
                    let at_owner = is_left(&owner) && others.contains(&executor);
                    prop_assert!(others.iter().any(is_left) || at_owner, "{owner}: {node}");
                }
            }
        }
    }
}

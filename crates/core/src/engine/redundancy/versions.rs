//! Storage of every version: in a store that all ranks see, or as copies in the memory of other ranks.
//!
//! For algorithms with blocks that cannot be recomputed from inputs, and for the papers' way of storing each
//! round.

use std::collections::BTreeMap;

use super::holders::{Holdings, holders, nearest};
use crate::block::Block;
use crate::engine::exchange::{Delivery, Transfer};
use crate::engine::job::{Job, RoundResult};
use crate::engine::{CollectiveResult, Engine};
use crate::faults::Target;
use crate::members::{Membership, Rank};
use crate::mutants::{Mutant, mutant};
use crate::store::{Store, StoreScope, VersionId};
use crate::vcube::Node;
use ftsort_kernels::error::{Error, Result, Status, listed};

impl<'e> Job<'_, 'e> {
    /// Loads every node's input as the first version.
    pub(in crate::engine) fn load_version(
        &mut self,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let me = self.engine.members.me();
        if self.inputs.own_is_here && result.check(self.inputs.own()).is_some() {
            self.redundancy.held.insert(me);
        }
        let Some(holdings) = self.holdings_of_versions()? else {
            return Ok(result.interrupted());
        };
        let Some(mut brought) = self.bring_inputs(&holdings, &mut result)? else {
            return Ok(result.interrupted());
        };
        // The executor is one of the holders of the input from now on, also if a rank fails before the commit.
        let keeps_copies = self.redundancy.keeps_copies() && !mutant(Mutant::BroughtInputNotHeld);
        let is_held = self.redundancy.outlives_job || keeps_copies;
        for node in self.engine.members.my_nodes() {
            let block = match brought.remove(&node).map(Delivery::got) {
                Some(Some(block)) if is_held => {
                    let held = self.redundancy.store.hold(node, &block);
                    held.map(|()| {
                        self.redundancy.held.insert(Rank(node.0));
                        block
                    })
                }
                Some(block) => block.ok_or_else(|| not_brought(node)),
                None => self.input_of(node),
            };
            if let Some(block) = result.check(block) {
                let block = self.with_digest(Rank(node.0), block);
                result.blocks.insert(node, block);
            }
        }
        let result = self.renew_parity_of_inputs(result)?;
        let own_input = self.own_as_passed(me.home());
        let mut versions = self.versions();
        (versions.in_place, versions.own_input) = (holdings, own_input);
        let result = versions.save(VersionId::INPUT, result)?;
        if self.redundancy.keeps_copies() {
            for origin in Rank::all(self.engine.members.ranks()) {
                let stored = self.redundancy.store.get(VersionId::INPUT, origin.home());
                if stored.is_ok_and(|input| input.is_some()) {
                    self.redundancy.held.insert(origin);
                }
            }
        }
        let result = self.share_digests(result)?;
        self.share_input_digests(result)
    }

    /// The ranks that hold each input beside files that all ranks see; a file counts as held by the rank that
    /// wrote it in this attempt. None: a rank failed.
    fn holdings_of_versions(&mut self) -> CollectiveResult<Option<Holdings>> {
        let me = self.engine.members.me();
        match self.redundancy.store.scope() {
            _ if !self.inputs.own_is_here => Ok(Some(Holdings::default())),
            StoreScope::Shared if self.redundancy.in_place > 0 => {
                Ok(Some(Holdings::with_listed(None, [(me, vec![me])])))
            }
            StoreScope::Shared => Ok(Some(Holdings::default())),
            StoreScope::Copies(_) | StoreScope::Parity(_) => self.share_holdings(),
        }
    }

    /// Moves inputs to the ranks that execute their nodes, from their owners or other holders. None: a rank
    /// failed.
    fn bring_inputs(
        &mut self,
        holdings: &Holdings,
        result: &mut RoundResult,
    ) -> CollectiveResult<Option<BTreeMap<Node, Delivery<Block>>>> {
        let me = self.engine.members.me();
        let (mut nodes, mut transfers) = (Vec::new(), Vec::new());
        for node in self.engine.members.cube().nodes() {
            let to = self.engine.members.executor(node);
            let home = self.home_with_input(node).filter(|home| *home != to);
            let Some(home) = home.filter(|_| self.inputs.own_is_here) else {
                continue;
            };
            let mut held = holdings.of(home, self.engine.members);
            if held.is_empty() && !self.engine.members.is_faulty(home) {
                held.push(home);
            }
            let is_here = held.is_empty() || held.contains(&to);
            let from = nearest(home, &held);
            if is_here || from != me && to != me {
                continue;
            }
            let passed = self.own_as_passed(node);
            let block = if from == me {
                passed.or_else(|| result.check(self.input_of(node)))
            } else {
                None
            };
            let block = block.map(|block| self.with_digest(home, block));
            transfers.push(Transfer { from, to, block });
            nodes.push(node);
        }
        if nodes.is_empty() || mutant(Mutant::BlocksNotMoved) {
            return Ok(Some(BTreeMap::new()));
        }
        let origins: Vec<Rank> = nodes.iter().map(|node| Rank(node.0)).collect();
        let moved = self
            .engine
            .transfer_inputs(&origins, transfers, &mut result.error)?;
        let brought = moved.map(|deliveries| nodes.into_iter().zip(deliveries));
        Ok(brought.map(|brought| {
            let mine = brought.filter(|(_, one)| !matches!(one, Delivery::NotMine));
            mine.collect()
        }))
    }

    /// Returns the input of a node: of this rank, from the store, or from the source.
    fn input_of(&mut self, node: Node) -> Result<Block> {
        let Some(home) = self.home_with_input(node) else {
            return Ok(Block::empty());
        };
        if home == self.engine.members.me() && self.inputs.own_is_here {
            return Ok(Block::input(home, self.inputs.own()?));
        }
        if let Some(block) = self.redundancy.store.get(VersionId::INPUT, node)? {
            return Ok(block);
        }
        if self.inputs.source.can_reload() {
            return self.inputs.reload(home, self.engine.record_bytes);
        }
        self.redundancy.lost.insert(home);
        Err(Error::new(
            Status::DataLost,
            format!("no surviving rank has the input of rank {home}"),
        ))
    }

    /// Stores a new version, through other ranks where the store keeps copies there.
    pub(in crate::engine) fn save_version(
        &mut self,
        version_id: VersionId,
        result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        if self.parity().is_some() {
            return self.encode_blocks(result);
        }
        self.versions().save(version_id, result)
    }

    /// Returns whether lost blocks can be recomputed from inputs that are loaded again.
    fn can_start_over(&self) -> bool {
        let is_running = !self.redundancy.of_result;
        // With parity, a result has shares of its blocks, and no lineage.
        let can_remake = self.algorithm.is_recomputable()
            && self.parity().is_none()
            && !mutant(Mutant::RecoveredResultNotRemade);
        let keeps_copies = self.redundancy.keeps_copies();
        (is_running || can_remake) && keeps_copies && self.inputs.source.can_reload()
    }

    /// Brings the committed version of every node from the store to its present executor.
    pub(in crate::engine) fn restore_version(
        &mut self,
        held_with: &Membership,
    ) -> CollectiveResult<RoundResult> {
        let mut result = match self.parity() {
            Some(_) => self.restore_by_parity(held_with)?,
            None => self.versions().restore(held_with)?,
        };
        if result.lost.is_empty() {
            return Ok(result);
        }
        if self.can_start_over() {
            result.starts_over = true;
            return Ok(result);
        }
        for node in &result.lost {
            // The block of a node without an input is lost with the rank that executed it, or with one that had
            // written it before.
            let faulty = self.engine.members.faulty();
            let executor = held_with.executor(*node);
            let executor = executor.filter(|rank| faulty.contains(*rank));
            let writer = || {
                faulty
                    .iter()
                    .find(|rank| !self.inputs.absent.contains(*rank))
            };
            let owner = self.home_with_input(*node).or(executor).or_else(writer);
            owner.map(|owner| self.redundancy.lost.insert(owner));
        }
        result.check::<()>(Err(lost(&result.lost)));
        Ok(result)
    }

    pub(super) fn versions(&mut self) -> Versions<'_, 'e> {
        Versions {
            engine: self.engine,
            store: self.redundancy.store,
            blocks: &self.progress.blocks,
            version_id: self.progress.version,
            most_runs: self.algorithm.most_runs(),
            in_place: Holdings::default(),
            own_input: None,
            in_part: false,
            afresh: self.integrity.distrusted,
            strikes: &self.integrity.strikes,
        }
    }
}

/// The parts that storing and restoring versions needs.
pub(in crate::engine) struct Versions<'v, 'e> {
    pub engine: &'v mut Engine<'e>,
    pub store: &'v mut dyn Store,
    /// The committed version of the blocks of the nodes that this rank executes.
    pub blocks: &'v BTreeMap<Node, Block>,
    pub version_id: VersionId,
    /// The greatest number of runs of a block.
    pub most_runs: usize,
    /// The ranks that hold a copy of a block already, by its home.
    pub in_place: Holdings,
    /// This rank's own input for other ranks, if it differs from its block.
    pub own_input: Option<Block>,
    /// The remainder of a version is useful although some of it is lost.
    pub in_part: bool,
    /// Executors have discarded their own blocks.
    pub afresh: bool,
    /// The accused ranks. Their copies may be wrong.
    pub strikes: &'v BTreeMap<Rank, u32>,
}

/// The copies that a renewal makes, as far as they concern this rank.
#[derive(Default)]
struct Renewal {
    /// The node, the rank that sends its block, and the receiver.
    moves: Vec<(Node, Rank, Rank)>,
    /// The nodes with blocks that this rank had as the executor and keeps as copies for others.
    kept: Vec<Node>,
    /// The nodes with blocks that no rank has; the same on all ranks.
    lost: Vec<Node>,
}

impl Versions<'_, '_> {
    /// Stores a new version, through other ranks where the store keeps copies there.
    pub fn save(
        &mut self,
        version_id: VersionId,
        result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        match self.store.scope() {
            StoreScope::Shared => Ok(self.put_own(version_id, result)),
            // The job encodes its versions.
            StoreScope::Copies(0) | StoreScope::Parity(_) => Ok(result),
            StoreScope::Copies(_) if mutant(Mutant::VersionsNotReplicated) => Ok(result),
            StoreScope::Copies(copies) => self.put_copies(version_id, copies, result),
        }
    }

    fn put_own(&mut self, version_id: VersionId, mut result: RoundResult) -> RoundResult {
        if !result.complete {
            return result;
        }
        for (node, block) in std::mem::take(&mut result.blocks) {
            let skipped = mutant(Mutant::InputNotStored) && version_id == VersionId::INPUT;
            if !skipped && !self.is_in_place(node, self.engine.members.me()) {
                self.put_one(version_id, node, &block, &mut result);
            }
            result.blocks.insert(node, block);
        }
        result
    }

    /// Writes a block to the store that all ranks see.
    pub fn put_one(
        &mut self,
        version_id: VersionId,
        node: Node,
        block: &Block,
        result: &mut RoundResult,
    ) {
        let stored = self.engine.corrupt(Target::Stored, block.clone());
        let put = self.store.put(version_id, node, &stored);
        if result.check(put).is_some() {
            self.engine.stats.bytes_stored += block.bytes() as u64;
        }
    }

    fn is_in_place(&self, node: Node, rank: Rank) -> bool {
        let held = self.in_place.of(Rank(node.0), self.engine.members);
        held.contains(&rank)
    }

    fn put_copies(
        &mut self,
        version_id: VersionId,
        copies: usize,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let members = &self.engine.members;
        let me = members.me();
        let mut transfers = Vec::new();
        let mut nodes = Vec::new();
        for node in members.cube().nodes() {
            let from = members.executor(node);
            // An owner has its input outside of its store.
            let is_copied = |to: Rank| to != Rank(node.0) && self.is_in_place(node, to);
            for to in holders(node, members, members.membership(), copies) {
                if to != from && (from == me || to == me) && !is_copied(to) {
                    let own = self.own_input.as_ref().filter(|_| node == me.home());
                    let block = own.or_else(|| result.blocks.get(&node));
                    let block = block.filter(|_| from == me).cloned();
                    transfers.push(Transfer { from, to, block });
                    nodes.push(node);
                }
            }
        }
        let error = &mut result.error;
        let moved = if version_id == VersionId::INPUT {
            let origins: Vec<Rank> = nodes.iter().map(|node| Rank(node.0)).collect();
            self.engine.transfer_inputs(&origins, transfers, error)?
        } else {
            self.engine.transfer(transfers, self.most_runs, error)?
        };
        let Some(deliveries) = moved else {
            return Ok(result.interrupted());
        };
        for (node, delivery) in nodes.into_iter().zip(deliveries) {
            if let Some(block) = self.arrived(delivery, &mut result) {
                let put = match version_id {
                    VersionId::INPUT => self.store.hold(node, &block),
                    later => self.store.put(later, node, &block),
                };
                result.check(put);
            }
        }
        Ok(result)
    }

    /// Returns a copy for this rank's store, if it has arrived.
    pub fn arrived(
        &mut self,
        delivery: Delivery<Block>,
        result: &mut RoundResult,
    ) -> Option<Block> {
        let block = result.received(delivery)?;
        self.engine.stats.bytes_stored += block.bytes() as u64;
        Some(self.engine.corrupt(Target::Replica, block))
    }

    /// Brings the committed version of every node from the store to its present executor. `lost` gets the
    /// nodes with a block that no rank has.
    pub fn restore(&mut self, held_with: &Membership) -> CollectiveResult<RoundResult> {
        match self.store.scope() {
            StoreScope::Shared => Ok(self.read_lost_blocks()),
            StoreScope::Parity(_) => self.renew_copies(0, held_with),
            StoreScope::Copies(copies) => self.renew_copies(copies, held_with),
        }
    }

    /// Reads lost blocks from a store that all ranks see.
    fn read_lost_blocks(&mut self) -> RoundResult {
        let mut result = RoundResult::new();
        for node in self.engine.members.my_nodes() {
            if self.blocks.contains_key(&node) {
                continue;
            }
            let found = self.store.get(self.version_id, node);
            // A file that was written from a corrupt block counts as absent.
            let is_right =
                |block: &Block| self.engine.is_intact(block) || mutant(Mutant::CorruptFilesUsed);
            let found = found.map(|block| block.filter(is_right));
            result.restored_from(node, found, None);
        }
        result
    }

    /// Restores blocks from the live holder of each that was accused least often, the first one of several, and renews
    /// the copies of the new executor, of failed holders, and of accused ones.
    fn renew_copies(
        &mut self,
        copies: usize,
        held_with: &Membership,
    ) -> CollectiveResult<RoundResult> {
        let mut result = RoundResult::new();
        let me = self.engine.members.me();
        let renewal = self.renewal(copies, held_with);
        result.lost = renewal.lost;
        if !result.lost.is_empty() && !self.in_part {
            // All ranks come to the same conclusion, so no rank waits for a message.
            return Ok(result);
        }
        for node in renewal.kept {
            if let Some(block) = self.blocks.get(&node) {
                let put = self.store.put(self.version_id, node, block);
                result.check(put);
            }
        }
        let transfers = renewal.moves.iter().map(|&(node, from, to)| {
            let own = self.blocks.get(&node).cloned();
            let block = if from == me {
                own.or_else(|| result.check(self.store.get(self.version_id, node))?)
            } else {
                None
            };
            Transfer { from, to, block }
        });
        let transfers = transfers.collect();
        let moved = self
            .engine
            .transfer(transfers, self.most_runs, &mut result.error)?;
        let Some(deliveries) = moved else {
            return Ok(result.interrupted());
        };
        for ((node, ..), delivery) in renewal.moves.into_iter().zip(deliveries) {
            if let Some(block) = self.arrived(delivery, &mut result) {
                // An input that outlives the job is not replaced: this one may be sorted already, by the key of the job.
                let put = match self.version_id {
                    VersionId::INPUT if mutant(Mutant::SortedInputHeld) => {
                        self.store.hold(node, &block)
                    }
                    version_id => self.store.put(version_id, node, &block),
                };
                result.check(put);
            }
        }
        self.take_over(&mut result);
        Ok(result)
    }

    /// Plans the renewal of copies that the holders had with this membership.
    fn renewal(&self, copies: usize, held_with: &Membership) -> Renewal {
        let mut renewal = Renewal::default();
        let members = &self.engine.members;
        let me = members.me();
        let held_with = if mutant(Mutant::CurrentHoldersAsked) {
            members.membership()
        } else {
            held_with
        };
        for node in members.cube().nodes() {
            let held = holders(node, members, held_with, copies);
            let executor = members.executor(node);
            let has_it = |rank: &&Rank| {
                let forgot = self.afresh && **rank == held[0];
                !forgot && !members.is_faulty(**rank)
            };
            let strikes = |rank: &Rank| match mutant(Mutant::AccusedCopyUsed) {
                true => 0,
                false => self.strikes.get(rank).copied().unwrap_or(0),
            };
            let is_accused = |rank: &Rank| strikes(rank) > 0;
            let live = held.iter().filter(has_it);
            let Some(keeper) = live.min_by_key(|rank| strikes(rank)) else {
                renewal.lost.push(node);
                continue;
            };
            for to in holders(node, members, members.membership(), copies) {
                if to == me && *keeper == me && executor != me {
                    renewal.kept.push(node);
                }
                // The former executor has discarded its block, and stays a holder if the node moves.
                let has_discarded = to == held[0] && !mutant(Mutant::DiscardedBlockCounts);
                let keeps_block = to == executor && to == held[0];
                let refreshes = self.afresh && (to == executor || has_discarded)
                    || is_accused(&to) && !keeps_block;
                let wants = !held.contains(&to) || refreshes && to != *keeper;
                if wants && (*keeper == me || to == me) {
                    renewal.moves.push((node, *keeper, to));
                }
            }
        }
        renewal
    }

    /// Takes the copies that this rank holds of blocks that it executes from now on.
    fn take_over(&mut self, result: &mut RoundResult) {
        let me = self.engine.members.me();
        for node in self.engine.members.my_nodes() {
            let here = self.blocks.contains_key(&node);
            if here || !result.complete || result.lost.contains(&node) {
                continue;
            }
            let version_id = if mutant(Mutant::OldVersionTakenOver) {
                VersionId::INPUT
            } else {
                self.version_id
            };
            let copy = self.store.get(version_id, node);
            // Not reported as lost, because other ranks would not come to that conclusion: the copy was here,
            // or was sent.
            let copy = copy.and_then(|block| block.ok_or_else(|| lost(&[node])));
            result.restored_from(node, copy.map(Some), Some(me));
        }
    }
}

/// Releases versions that no rank needs after the commit of this version. The coordinator of an agreement
/// learns the decision first and may fail before the others learn it: then they go back to the version
/// before, and a rank's files outlive it.
pub(in crate::engine) fn retire_before(store: &mut dyn Store, version: u32) {
    let shared = store.scope() == StoreScope::Shared;
    store.retire(if shared && !mutant(Mutant::VersionDroppedAtCommit) {
        version.saturating_sub(1)
    } else {
        version
    });
}

fn not_brought(node: Node) -> Error {
    Error::new(
        Status::Memory,
        format!("no memory for the input of node {node}"),
    )
}

fn lost(nodes: &[Node]) -> Error {
    let text = format!("no copy of the block of node {} is left", listed(nodes));
    Error::new(Status::DataLost, text)
}

//! Keeping every version: in a store that all see, or as copies in the memory of other ranks. For
//! algorithms whose blocks cannot be made again from inputs, and for the papers' way of storing each
//! round.

use std::collections::BTreeMap;

use super::holders::holders;
use crate::block::Block;
use crate::engine::Engine;
use crate::engine::exchange::{Delivery, Transfer};
use crate::engine::job::{Job, RoundResult};
use crate::faults::Target;
use crate::members::{Membership, Rank};
use crate::mutants::{Mutant, mutant};
use crate::store::{Store, StoreScope, VersionId};
use crate::vcube::Node;
use ftsort_kernels::error::{Error, Result, Status};

impl<'e> Job<'_, 'e> {
    /// Every node's input, for the first version.
    pub(in crate::engine) fn load_version(&mut self) -> Result<RoundResult> {
        let mut attempt = RoundResult::new();
        let Some(mut brought) = self.bring_inputs(&mut attempt)? else {
            return Ok(attempt.interrupted());
        };
        for node in self.engine.members.my_nodes() {
            let block = match brought.remove(&node) {
                Some(delivery) => delivery.got().ok_or_else(|| not_brought(node)),
                None => self.input_of(node),
            };
            if let Some(block) = attempt.check(block) {
                let block = self.with_digest(Rank(node.0), block);
                attempt.blocks.insert(node, block);
            }
        }
        let attempt = self.save_version(VersionId::INPUT, attempt)?;
        let attempt = self.share_digests(attempt)?;
        self.share_ledger(attempt)
    }

    /// The inputs of living ranks whose nodes others execute, to them. None: somebody died.
    fn bring_inputs(
        &mut self,
        attempt: &mut RoundResult,
    ) -> Result<Option<BTreeMap<Node, Delivery<Block>>>> {
        let members = &self.engine.members;
        let me = members.me();
        let (mut nodes, mut transfers) = (Vec::new(), Vec::new());
        for node in members.cube().nodes().filter(|_| self.inputs.own_is_here) {
            let to = members.executor(node);
            let home = self.home_with_input(node).filter(|home| *home != to);
            let living = home.filter(|home| !members.is_faulty(*home));
            let Some(from) = living.filter(|home| *home == me || to == me) else {
                continue;
            };
            let own = (from == me).then(|| Block::input(me, self.inputs.own.clone()));
            let block = own.map(|block| self.with_digest(me, block));
            transfers.push(Transfer { from, to, block });
            nodes.push(node);
        }
        if nodes.is_empty() || mutant(Mutant::BlocksAreNotMoved) {
            return Ok(Some(BTreeMap::new()));
        }
        let shipped = self.engine.ship(transfers, 1, &mut attempt.trouble)?;
        let brought = shipped.map(|deliveries| nodes.into_iter().zip(deliveries));
        Ok(brought.map(|brought| {
            let mine = brought.filter(|(_, one)| !matches!(one, Delivery::NotMine));
            mine.collect()
        }))
    }

    /// The input of a node: of its home, if that lived long enough to show it to somebody.
    fn input_of(&mut self, node: Node) -> Result<Block> {
        let Some(home) = self.home_with_input(node) else {
            return Ok(Block::empty());
        };
        if home == self.engine.members.me() && self.inputs.own_is_here {
            return Ok(Block::input(home, self.inputs.own.clone()));
        }
        if let Some(block) = self.redundancy.store.get(VersionId::INPUT, node)? {
            return Ok(block);
        }
        if self.inputs.source.can_reload() {
            return self.inputs.reload(home);
        }
        self.redundancy.lost.insert(home);
        Err(Error::new(
            Status::DataLost,
            format!("rank {home} died before its input was in the store"),
        ))
    }

    /// Puts a new version into the store, by way of other ranks where it keeps copies there.
    pub(in crate::engine) fn save_version(
        &mut self,
        version_id: VersionId,
        attempt: RoundResult,
    ) -> Result<RoundResult> {
        self.versions().save(version_id, attempt)
    }

    /// The committed version of every node to its executor of now, from the store.
    pub(in crate::engine) fn restore_version(
        &mut self,
        held_with: &Membership,
    ) -> Result<RoundResult> {
        let mut attempt = self.versions().restore(held_with)?;
        if attempt.lost.is_empty() {
            return Ok(attempt);
        }
        if self.redundancy.keeps_copies() && self.inputs.source.can_reload() {
            attempt.starts_over = true;
            return Ok(attempt);
        }
        for node in attempt.lost.clone() {
            self.lose_node(node);
        }
        attempt.check::<()>(Err(lost(&attempt.lost)));
        Ok(attempt)
    }

    /// Puts a copy that came into this rank's store.
    pub(in crate::engine) fn keep_delivery(
        &mut self,
        version_id: VersionId,
        node: Node,
        delivery: Delivery<Block>,
        attempt: &mut RoundResult,
    ) {
        self.versions()
            .keep_delivery(version_id, node, delivery, attempt);
    }

    fn versions(&mut self) -> Versions<'_, 'e> {
        Versions {
            engine: self.engine,
            store: self.redundancy.store,
            blocks: &self.progress.blocks,
            version_id: self.progress.version,
            most_runs: self.algorithm.most_runs(),
            in_part: false,
            afresh: self.integrity.distrusted,
        }
    }

    fn lose_node(&mut self, node: Node) {
        if node.0 < self.engine.members.ranks() as u32 {
            self.redundancy.lost.insert(Rank(node.0));
        }
    }
}

/// What keeping versions needs, and getting them back.
pub(in crate::engine) struct Versions<'v, 'e> {
    pub engine: &'v mut Engine<'e>,
    pub store: &'v mut dyn Store,
    /// The committed version of the blocks of the nodes that this rank executes.
    pub blocks: &'v BTreeMap<Node, Block>,
    pub version_id: VersionId,
    /// The most runs that a block has.
    pub most_runs: usize,
    /// What is left of a version is of use, though some of it is lost.
    pub in_part: bool,
    /// Executors do not have their own blocks any more.
    pub afresh: bool,
}

impl Versions<'_, '_> {
    /// Puts a new version into the store, by way of other ranks where it keeps copies there.
    pub fn save(&mut self, version_id: VersionId, attempt: RoundResult) -> Result<RoundResult> {
        match self.store.scope() {
            StoreScope::Everyone => Ok(self.put_own(version_id, attempt)),
            StoreScope::Copies(0) => Ok(attempt),
            StoreScope::Copies(_) if mutant(Mutant::VersionsNotCopied) => Ok(attempt),
            StoreScope::Copies(copies) => self.put_copies(version_id, copies, attempt),
        }
    }

    fn put_own(&mut self, version_id: VersionId, mut attempt: RoundResult) -> RoundResult {
        if !attempt.complete {
            return attempt;
        }
        for (node, block) in std::mem::take(&mut attempt.blocks) {
            if mutant(Mutant::InputNotStored) && version_id == VersionId::INPUT {
                attempt.blocks.insert(node, block);
                continue;
            }
            let stored = self.engine.corrupt(Target::Stored, block.clone());
            let put = stored.and_then(|stored| self.store.put(version_id, node, &stored));
            if attempt.check(put).is_some() {
                self.engine.stats.bytes_stored += block.bytes() as u64;
            }
            attempt.blocks.insert(node, block);
        }
        attempt
    }

    fn put_copies(
        &mut self,
        version_id: VersionId,
        copies: usize,
        mut attempt: RoundResult,
    ) -> Result<RoundResult> {
        let members = &self.engine.members;
        let me = members.me();
        let mut transfers = Vec::new();
        let mut nodes = Vec::new();
        for node in members.cube().nodes() {
            let from = members.executor(node);
            for to in holders(node, members, members.membership(), copies) {
                if to != from && (from == me || to == me) {
                    let block = attempt.blocks.get(&node).filter(|_| from == me).cloned();
                    transfers.push(Transfer { from, to, block });
                    nodes.push(node);
                }
            }
        }
        let shipped = self
            .engine
            .ship(transfers, self.most_runs, &mut attempt.trouble)?;
        let Some(deliveries) = shipped else {
            return Ok(attempt.interrupted());
        };
        for (node, delivery) in nodes.into_iter().zip(deliveries) {
            self.keep_delivery(version_id, node, delivery, &mut attempt);
        }
        Ok(attempt)
    }

    /// Puts a copy that came into this rank's store.
    pub fn keep_delivery(
        &mut self,
        version_id: VersionId,
        node: Node,
        delivery: Delivery<Block>,
        attempt: &mut RoundResult,
    ) {
        match delivery {
            Delivery::Got(block) => {
                let block = match self.engine.corrupt(Target::Replica, block) {
                    Ok(block) => block,
                    Err(error) => return attempt.check(Err(error)).unwrap_or_default(),
                };
                self.engine.stats.bytes_stored += block.bytes() as u64;
                let put = self.store.put(version_id, node, &block);
                attempt.check(put);
            }
            Delivery::Nothing => attempt.complete = false,
            Delivery::NotMine => {}
        }
    }

    /// The committed version of every node to its executor of now, from the store. What is nowhere is
    /// told in `lost`.
    pub fn restore(&mut self, held_with: &Membership) -> Result<RoundResult> {
        match self.store.scope() {
            StoreScope::Everyone => Ok(self.read_lost_blocks()),
            StoreScope::Copies(copies) => self.renew_copies(copies, held_with),
        }
    }

    /// From a store that everybody sees.
    fn read_lost_blocks(&mut self) -> RoundResult {
        let mut attempt = RoundResult::new();
        for node in self.engine.members.my_nodes() {
            if self.blocks.contains_key(&node) {
                continue;
            }
            let found = self.store.get(self.version_id, node);
            // A file that was written of a wrong block is no better than none.
            let found = found.map(|block| block.filter(|block| self.engine.is_intact(block)));
            attempt.got_back(node, found, None);
        }
        attempt
    }

    /// From the copy that the first of the holders has who lives; and new copies from it to the new
    /// executor, and to ranks that take the place of dead holders.
    fn renew_copies(&mut self, copies: usize, held_with: &Membership) -> Result<RoundResult> {
        let mut attempt = RoundResult::new();
        let members = &self.engine.members;
        let me = members.me();
        let mut moves = Vec::new();
        // What this rank had as the executor, and is to keep for another one.
        let mut becomes_copy = Vec::new();
        let held_with = match mutant(Mutant::HoldersOfNow) {
            true => members.membership(),
            false => held_with,
        };
        for node in members.cube().nodes() {
            let held = holders(node, members, held_with, copies);
            let executor = members.executor(node);
            let has_it = |rank: &&Rank| {
                let forgot = self.afresh && **rank == held[0];
                !forgot && !members.is_faulty(**rank)
            };
            let Some(keeper) = held.iter().find(has_it) else {
                attempt.lost.push(node);
                continue;
            };
            for to in holders(node, members, members.membership(), copies) {
                if to == me && *keeper == me && executor != me {
                    becomes_copy.push(node);
                }
                let wants = !held.contains(&to) || self.afresh && to == executor && to != *keeper;
                if wants && (*keeper == me || to == me) {
                    moves.push((node, *keeper, to));
                }
            }
        }
        if !attempt.lost.is_empty() && !self.in_part {
            // Everybody comes to the same conclusion, so nobody waits for a message.
            return Ok(attempt);
        }
        for node in becomes_copy {
            if let Some(block) = self.blocks.get(&node) {
                let put = self.store.put(self.version_id, node, block);
                attempt.check(put);
            }
        }
        let transfers = moves.iter().map(|(node, from, to)| {
            let own = self.blocks.get(node).cloned();
            let block = match *from == me {
                true => own.or_else(|| attempt.check(self.store.get(self.version_id, *node))?),
                false => None,
            };
            Transfer {
                from: *from,
                to: *to,
                block,
            }
        });
        let transfers = transfers.collect();
        let shipped = self
            .engine
            .ship(transfers, self.most_runs, &mut attempt.trouble)?;
        let Some(deliveries) = shipped else {
            return Ok(attempt.interrupted());
        };
        for ((node, ..), delivery) in moves.into_iter().zip(deliveries) {
            self.keep_delivery(self.version_id, node, delivery, &mut attempt);
        }
        self.take_over(&mut attempt);
        Ok(attempt)
    }

    /// The copies that this rank holds of blocks that it executes from now on.
    fn take_over(&mut self, attempt: &mut RoundResult) {
        let me = self.engine.members.me();
        for node in self.engine.members.my_nodes() {
            let here = self.blocks.contains_key(&node);
            if here || !attempt.complete || attempt.lost.contains(&node) {
                continue;
            }
            let version_id = match mutant(Mutant::TakesOverTheInput) {
                true => VersionId::INPUT,
                false => self.version_id,
            };
            let copy = self.store.get(version_id, node);
            // Not to be told as lost, which others would not come to: it was here, or was sent.
            let copy = copy.and_then(|block| block.ok_or_else(|| lost(&[node])));
            attempt.got_back(node, copy.map(Some), Some(me));
        }
    }
}

/// Forgets what nobody needs any more after the commit of this version. Who leads the agreement hears
/// first what was decided, and can be lost before the others hear: they go back to the version before,
/// and a rank's files outlive it.
pub(in crate::engine) fn retire_before(store: &mut dyn Store, version: u32) {
    let shared = store.scope() == StoreScope::Everyone;
    store.retire(match shared && !mutant(Mutant::RetiredAtCommit) {
        true => version.saturating_sub(1),
        false => version,
    });
}

fn not_brought(node: Node) -> Error {
    Error::new(
        Status::Memory,
        format!("there was no room for the input of node {node}"),
    )
}

fn lost(nodes: &[Node]) -> Error {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    Error::new(
        Status::DataLost,
        format!("no copy of the block of node {} is left", names.join(", ")),
    )
}

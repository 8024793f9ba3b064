//! States that a loop of the caller's own keeps for the nodes: the papers' `checkpoint` and
//! `readCheckpoint`, as transactions.
//!
//! What the executors of all nodes have put becomes the committed version together, or not at all.
//! After faults the committed states of the dead come to the nodes' new executors. Needs no sort and no
//! algorithm; sorts keep their versions elsewhere.

use std::collections::BTreeMap;

use super::versions::{Versions, retire_before};
use crate::block::Block;
use crate::engine::commit::agreed_error;
use crate::engine::job::RoundResult;
use crate::engine::{Engine, Event, Verdict};
use crate::members::{Members, Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::{Store, StoreScope, VersionId};
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};

/// The states of one group's nodes.
pub struct Checkpoints {
    store: Box<dyn Store>,
    /// The committed version; 0: there is none yet.
    version_id: VersionId,
    /// That version of the nodes that this rank executes.
    blocks: BTreeMap<Node, Block>,
    /// Put since then.
    staged: BTreeMap<Node, Block>,
    /// How the ranks stood when the version was committed, or its copies were made again.
    committed_with: Membership,
    /// How many were dead when the present round began.
    begun_without: usize,
}

impl Checkpoints {
    /// None yet, of these members. `store` is used for nothing else.
    pub fn new(store: Box<dyn Store>, members: &Members) -> Checkpoints {
        Checkpoints {
            store,
            version_id: VersionId::INPUT,
            blocks: BTreeMap::new(),
            staged: BTreeMap::new(),
            committed_with: members.membership().clone(),
            begun_without: members.faulty().len(),
        }
    }

    /// Puts a state of a node that this rank executes, for the next commit. Local.
    pub fn put(&mut self, node: Node, state: Slice) {
        let home = Rank(node.0);
        self.staged.insert(node, Block::input(home, state));
    }

    /// The committed state of a node that this rank executes; None if nothing was kept. Local.
    pub fn get(&self, node: Node) -> Option<&[u8]> {
        let block = self.blocks.get(&node)?;
        let kept = *block != nothing();
        kept.then(|| block.runs.first().map_or(&[][..], |run| &run.data))
    }

    /// How many times something was committed.
    fn version(&self) -> u32 {
        self.version_id.version
    }

    /// A round begins: what was put is forgotten, and after faults the committed states come to where
    /// they belong. `Status::DataLost` where some are nowhere: these are as if they had never been kept,
    /// `lost` has their homes, and all others are there. Collective.
    pub fn begin(&mut self, engine: &mut Engine<'_>, lost: &mut RankSet) -> Result<()> {
        self.staged.clear();
        let recovered = self.recover(engine, lost);
        self.begun_without = engine.members.faulty().len();
        recovered
    }

    /// Makes what was put, where all ranks are `done` and nobody was found dead since the round
    /// began, the committed version; states of other nodes stay as they are. Begins the next round, as
    /// [`Checkpoints::begin`]. Is it committed? `sound`: what is wrong with this rank's call, if anything;
    /// then all fail. Collective.
    pub fn commit(
        &mut self,
        engine: &mut Engine<'_>,
        done: bool,
        sound: Result<()>,
        lost: &mut RankSet,
    ) -> Result<bool> {
        let same_faults = engine.members.faulty().len() == self.begun_without;
        let is_sound = same_faults && self.is_whole(engine);
        if !is_sound && !mutant(Mutant::RoundsSpanFaults) {
            // Everybody knows, so that there is nothing to agree on.
            self.begin(engine, lost)?;
            return Ok(false);
        }
        engine.round = self.version() + 1;
        let version_id = VersionId {
            version: self.version() + 1,
            faults: engine.members.faulty().fingerprint(),
        };
        let mut attempt = RoundResult::new();
        attempt.complete = done;
        attempt.check(sound);
        for node in engine.members.my_nodes() {
            let staged = self.staged.remove(&node);
            let block = staged.or_else(|| self.blocks.get(&node).cloned());
            attempt.blocks.insert(node, block.unwrap_or_else(nothing));
        }
        let attempt = self.versions(engine).save(version_id, attempt)?;
        match engine.commit(attempt.complete, attempt.trouble.as_ref())? {
            Verdict::Committed => {
                self.version_id = version_id;
                self.blocks = attempt.blocks;
                retire_before(&mut *self.store, version_id.version);
                engine.tell(Event::Round);
                self.staged.clear();
                Ok(true)
            }
            Verdict::Replay => {
                self.begin(engine, lost)?;
                Ok(false)
            }
            Verdict::Failed(status) => {
                self.begin(engine, lost)?;
                Err(agreed_error(status, attempt.trouble))
            }
        }
    }

    /// Forgets everything. Collective.
    pub fn clear(&mut self, engine: &mut Engine<'_>) -> Result<()> {
        self.staged.clear();
        self.blocks.clear();
        self.version_id = VersionId::INPUT;
        engine.clear(&mut *self.store)
    }

    /// The committed states are where they belong, and so are their copies.
    fn is_whole(&self, engine: &Engine<'_>) -> bool {
        self.version() == 0 || self.committed_with == *engine.members.membership()
    }

    fn recover(&mut self, engine: &mut Engine<'_>, lost: &mut RankSet) -> Result<()> {
        let mut result = Ok(());
        engine.round = self.version() + 1;
        while !self.is_whole(engine) {
            if mutant(Mutant::CheckpointsStay) {
                self.committed_with = engine.members.membership().clone();
                break;
            }
            let held_with = self.committed_with.clone();
            let mut attempt = self.versions(engine).restore(&held_with)?;
            let mut gone = NodeSet::new(engine.members.cube().len());
            if !attempt.interrupted {
                match told_by_all(engine, &attempt.lost)? {
                    Some(nodes) => nodes.into_iter().for_each(|node| gone.insert(node)),
                    None => attempt = attempt.interrupted(),
                }
            }
            match engine.commit(attempt.complete, attempt.trouble.as_ref())? {
                Verdict::Committed => {
                    self.blocks.extend(attempt.blocks);
                    for (node, from) in attempt.restored {
                        engine.tell(Event::Restored(node, from));
                    }
                    if gone.is_empty() {
                        engine.tell(Event::Replay);
                    } else {
                        self.give_up(engine, &gone);
                        result = report(&gone, &held_with, engine.members, lost);
                    }
                    self.committed_with = engine.members.membership().clone();
                }
                Verdict::Replay => {}
                Verdict::Failed(status) => return Err(agreed_error(status, attempt.trouble)),
            }
        }
        if self.version() == 0 {
            self.committed_with = engine.members.membership().clone();
        }
        result
    }

    /// From now on nothing is kept for these nodes, and whoever would have a copy has one of that.
    fn give_up(&mut self, engine: &Engine<'_>, gone: &NodeSet) {
        let mine = engine.members.my_nodes();
        for node in gone.iter() {
            let executed = mine.contains(&node);
            if executed {
                self.blocks.insert(node, nothing());
            }
            if executed || self.store.scope() != StoreScope::Everyone {
                // What cannot be written is lost once more when it is looked for.
                let _ = self.store.put(self.version_id, node, &nothing());
            }
        }
    }

    fn versions<'v, 'e>(&'v mut self, engine: &'v mut Engine<'e>) -> Versions<'v, 'e> {
        Versions {
            engine,
            store: &mut *self.store,
            blocks: &self.blocks,
            version_id: self.version_id,
            most_runs: 1,
            in_part: true,
            afresh: false,
        }
    }
}

/// The nodes that any survivor names. None: somebody died.
fn told_by_all(engine: &mut Engine<'_>, mine: &[Node]) -> Result<Option<Vec<Node>>> {
    let mine: Vec<u8> = mine.iter().flat_map(|node| node.0.to_le_bytes()).collect();
    let limit = engine.members.cube().len() * size_of::<u32>();
    let told = engine.share(mine, limit)?;
    let nodes = |words: &[u8]| -> Vec<Node> {
        let words = words.chunks_exact(size_of::<u32>());
        words
            .filter_map(|word| Some(Node(u32::from_le_bytes(word.try_into().ok()?))))
            .collect()
    };
    Ok(told.map(|told| told.iter().flat_map(|(_, words)| nodes(words)).collect()))
}

/// What stands for a state that was never put. A state of no bytes is an unsorted block.
fn nothing() -> Block {
    Block::empty()
}

/// `lost` gets the homes of the nodes; where a node has none, the rank that executed it.
fn report(
    gone: &NodeSet,
    held_with: &Membership,
    members: &Members,
    lost: &mut RankSet,
) -> Result<()> {
    let ranks = members.ranks();
    let homes = gone.iter().filter_map(|node| {
        let home = Some(node).filter(|node| (node.0 as usize) < ranks);
        home.or_else(|| members.cube().executor(node, &held_with.faulty))
    });
    *lost = RankSet::from_ranks(ranks, homes.map(|node| Rank(node.0)));
    let names: Vec<String> = gone.iter().map(|node| node.to_string()).collect();
    let text = format!("what was kept for node {} is lost", names.join(", "));
    Err(Error::new(Status::DataLost, text))
}

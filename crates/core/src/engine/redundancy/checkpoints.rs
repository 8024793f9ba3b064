//! States that a loop of the caller's own keeps for its nodes: the papers' `checkpoint` and `readCheckpoint`,
//! as transactions.
//!
//! The states that the executors of all nodes have put become the committed version together, or not at all.
//! After failures the committed states move to the nodes' new executors. This needs no sort and no algorithm;
//! sorts keep their versions elsewhere.
//!
//! States in a directory may have a name, under which another job continues them. Then a version counts as committed
//! only when its manifest is written, which takes a second agreement.

use std::collections::BTreeMap;

use super::committed::{CommittedStates, NOTE, StatesCommit, nothing};
use super::holders::Holdings;
use super::versions::{Versions, retire_before};
use crate::block::{Block, Run};
use crate::engine::commit::agreed_error;
use crate::engine::job::RoundResult;
use crate::engine::{CollectiveError, CollectiveResult, Engine, Event, InStep, Verdict};
use crate::members::{Members, Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::directory::Directory;
use crate::store::named::{NamedStates, StatesManifest};
use crate::store::{Store, StoreScope, VersionId};
use crate::vcube::{Node, NodeSet};
use crate::wire::Reader;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::checksum::Checksum;
use ftsort_kernels::error::{Error, Result, Status};

/// The states of a program have no digests, so that no rank is accused.
static NONE_ACCUSED: BTreeMap<Rank, u32> = BTreeMap::new();

/// The states of one group's nodes.
pub struct Checkpoints {
    store: Box<dyn Store>,
    /// The committed version; 0: none yet.
    version_id: VersionId,
    /// That version of the nodes that this rank executes.
    blocks: BTreeMap<Node, Block>,
    /// States that were put since then.
    staged: BTreeMap<Node, Block>,
    /// The membership when the version was committed, or when its copies were renewed.
    committed_with: Membership,
    /// The number of failed ranks when the present round began.
    begun_without: usize,
    /// The name of the states, if they have one.
    named: Option<NamedStates>,
    /// Whether the manifest may name another version, because it could not be replaced.
    is_unsure: bool,
}

impl Checkpoints {
    /// No states yet, of these members. The store must not be used for anything else.
    pub fn new(store: Box<dyn Store>, members: &Members) -> Checkpoints {
        Checkpoints {
            store,
            version_id: VersionId::INPUT,
            blocks: BTreeMap::new(),
            staged: BTreeMap::new(),
            committed_with: members.membership().clone(),
            begun_without: members.faulty().len(),
            named: None,
            is_unsure: false,
        }
    }

    /// Gives the states a name. Those that an earlier job has committed under it become the committed states. Returns
    /// whether there are any. Collective.
    ///
    /// # Errors
    /// `Status::State` if there are states already; `Status::Argument` for another number of nodes; `Status::Store`
    /// where files cannot be read or written: the states of the earlier job stay as they are.
    pub fn open(
        &mut self,
        engine: &mut Engine<'_>,
        mut named: NamedStates,
        lost: &mut RankSet,
    ) -> CollectiveResult<bool> {
        let is_new = self.version() == 0 && self.staged.is_empty() && self.named.is_none();
        let found = if is_new {
            named.read()
        } else {
            Err(Error::new(
                Status::State,
                "the group has stored states or a name for them already: choose the name first, and only once",
            ))
        };
        let found = engine.all_or_none(found)?;
        let seen = found
            .as_ref()
            .map_or(0, |manifest| Checksum::of(&manifest.encode()));
        if !engine.all_equal(seen)? {
            let text = format!("{} is not the same on all ranks", named.path());
            return Err(CollectiveError::alike(Error::new(Status::Store, text)));
        }
        let nodes = engine.members.cube().len() as u64;
        let committed = found.as_ref().filter(|manifest| manifest.has_states());
        if let Some(manifest) = committed.filter(|manifest| manifest.nodes != nodes) {
            let text = format!(
                "{} has the states of a hypercube of {} nodes, but this group has {nodes} nodes: start with a number of \
                 ranks that has {0} as its next power of two",
                named.path(),
                manifest.nodes
            );
            return Err(CollectiveError::alike(Error::argument(text)));
        }
        let states =
            committed.map(|manifest| (named.states_of(manifest.series), manifest.version_id));
        if let Some(manifest) = &found {
            named.writer = Some(manifest.series.group);
            named.change = manifest.change;
            named.left.clone_from(&manifest.left);
            named.left.push(manifest.series.group);
            // An earlier call may have announced this group's files, and been refused afterwards.
            let own = self.store.series().map(|series| series.group);
            let is_ended = |group: &u64| Some(*group) != own || mutant(Mutant::OwnFilesCountAsLeft);
            named.left.retain(is_ended);
        }
        self.named = Some(named);
        let adopted = self.take_over(engine, found.as_ref(), states.as_ref(), lost);
        if let Err(error) = adopted {
            self.staged.clear();
            self.version_id = VersionId::INPUT;
            self.blocks.clear();
            let restored = if error.status.sets_apart() {
                Ok(())
            } else {
                self.leave_to_earlier_job(engine, found.as_ref())
            };
            (self.named, self.is_unsure) = (None, false);
            return restored.and(Err(error));
        }
        Ok(states.is_some())
    }

    /// Leaves the name as it was found, and removes this group's files.
    fn leave_to_earlier_job(
        &mut self,
        engine: &mut Engine<'_>,
        found: Option<&StatesManifest>,
    ) -> CollectiveResult<()> {
        let group = self.store.series().map_or(0, |series| series.group);
        let restored = self.change_manifest(engine, |named| match found {
            Some(manifest) => named.write(manifest),
            None => named.remove(group),
        });
        match restored {
            Ok(()) => engine.clear(&mut *self.store).map(drop),
            // The manifest may name the files of this group.
            Err(error) if error.status == Status::Store => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes the name that of this group, with the states of an earlier job if there are any.
    fn take_over(
        &mut self,
        engine: &mut Engine<'_>,
        found: Option<&StatesManifest>,
        states: Option<&(Directory, VersionId)>,
        lost: &mut RankSet,
    ) -> CollectiveResult<()> {
        if mutant(Mutant::EarlierStatesRemovedFirst) {
            self.remove_left_files(engine);
        }
        match (states, found, self.store.series()) {
            (Some((states, version_id)), Some(found), Some(series)) => {
                // If this job ends now, the next one finds the files of both.
                let mut announced = found.clone();
                announced.left.push(series.group);
                self.change_manifest(engine, |named| named.write(&announced))?;
                self.adopt(engine, states, *version_id, lost)?;
            }
            // Another job finds the files of this one, although it has committed nothing.
            _ => self.publish(engine, VersionId::INPUT)?,
        }
        self.remove_left_files(engine);
        Ok(())
    }

    /// Commits the states of an earlier job as the first version of this group.
    fn adopt(
        &mut self,
        engine: &mut Engine<'_>,
        states: &Directory,
        version_id: VersionId,
        lost: &mut RankSet,
    ) -> CollectiveResult<()> {
        loop {
            let mut read = Ok(());
            for node in engine.members.my_nodes() {
                match states.get(version_id, node) {
                    Ok(Some(block)) => {
                        self.staged.insert(node, block);
                    }
                    Ok(None) => {
                        let text = format!(
                            "the state of node {node} in {} is missing or damaged",
                            states.place()
                        );
                        read = Err(Error::new(Status::Store, text));
                    }
                    Err(error) => read = Err(error),
                }
            }
            if self
                .commit(engine, true, read, lost)?
                .into_result()
                .or_alike()?
            {
                return Ok(());
            }
        }
    }

    /// Removes the files of ended jobs.
    fn remove_left_files(&mut self, engine: &Engine<'_>) {
        let is_first = engine.members.lowest_survivor() == engine.members.me();
        if let Some(named) = &mut self.named {
            if is_first {
                named.remove_left_files();
            }
            named.left.clear();
        }
    }

    /// Puts a state of a node that this rank executes, for the next commit. Local.
    pub fn put(&mut self, node: Node, state: Slice) {
        let home = Rank(node.0);
        self.staged.insert(node, Block::input(home, state));
    }

    /// As [`Checkpoints::put`], with a note beside the state. Local.
    pub fn put_with_note(&mut self, node: Node, state: Slice, note: Slice) {
        let mut block = Block::input(Rank(node.0), state);
        block.runs.push(Run::new(NOTE, 0, note));
        self.staged.insert(node, block);
    }

    /// Returns the committed state of a node that this rank executes; None if there is none. Local.
    pub fn get(&self, node: Node) -> Option<&[u8]> {
        let block = self.blocks.get(&node)?;
        let kept = *block != nothing();
        let state = block.runs.first().filter(|run| run.origin != NOTE);
        kept.then(|| state.map_or(&[][..], |run| &run.data))
    }

    /// Returns whether the states have a name.
    pub fn has_name(&self) -> bool {
        self.named.is_some()
    }

    /// Returns the committed states, of all nodes if they have a name, for as long as no other version is committed.
    /// Local.
    pub fn of_all_nodes(&self) -> CommittedStates {
        let named = self.named.as_ref().zip(self.store.series());
        CommittedStates {
            here: self.blocks.clone(),
            files: named.map(|(named, series)| named.states_of(series)),
            version_id: self.version_id,
        }
    }

    /// As [`Checkpoints::of_all_nodes`], for a version that was [`Checkpoints::next_version_id`]. Local.
    pub fn of_attempt(&self, version_id: VersionId) -> CommittedStates {
        CommittedStates {
            here: BTreeMap::new(),
            version_id,
            ..self.of_all_nodes()
        }
    }

    /// The version that a commit makes, if no failure is found before.
    pub fn next_version_id(&self, engine: &Engine<'_>) -> VersionId {
        VersionId::new(self.version() + 1, engine.members.faulty())
    }

    /// The committed version.
    pub fn version_id(&self) -> VersionId {
        self.version_id
    }

    /// The number of commits so far.
    fn version(&self) -> u32 {
        self.version_id.version
    }

    /// Begins a round: discards states that were put and not committed, and after failures moves the
    /// committed states to their executors.
    ///
    /// Returns `Status::DataLost` if no rank has some of them: those count as never kept, `lost` has their
    /// homes, and all others are in place. Collective.
    pub fn begin(&mut self, engine: &mut Engine<'_>, lost: &mut RankSet) -> CollectiveResult<()> {
        self.staged.clear();
        let recovered = self.recover(engine, lost);
        self.begun_without = engine.members.faulty().len();
        recovered
    }

    /// Makes the states that were put the committed version, if all ranks are `done` and no failure was found
    /// since the round began; states of other nodes stay as they are. Then begins the next round, as
    /// [`Checkpoints::begin`]. `sound`: the error of this rank's call, if any; then all ranks fail, and keep the states
    /// that were put if the error is one of arguments. Collective.
    pub fn commit(
        &mut self,
        engine: &mut Engine<'_>,
        done: bool,
        sound: Result<()>,
        lost: &mut RankSet,
    ) -> CollectiveResult<StatesCommit> {
        let number = self.version() + 1;
        let commit = self.commit_silently(engine, done, sound, lost)?;
        if commit.is_committed {
            engine.round = number;
            engine.tell(Event::Round);
        }
        Ok(commit)
    }

    /// As [`Checkpoints::commit`], without an event of the commit.
    pub fn commit_silently(
        &mut self,
        engine: &mut Engine<'_>,
        done: bool,
        sound: Result<()>,
        lost: &mut RankSet,
    ) -> CollectiveResult<StatesCommit> {
        // The next commit overwrites the files of a version that was not committed, so the manifest must not name it.
        if let Err(error) = self.confirm_name(engine) {
            self.begin(engine, lost)?;
            return Err(error);
        }
        let same_faults = engine.members.faulty().len() == self.begun_without;
        let is_sound = same_faults && self.is_whole(engine);
        if !is_sound && !mutant(Mutant::CallerRoundSpansFailure) {
            let agreed = if mutant(Mutant::LateCommitNotAgreedOn) {
                sound.or_alike()
            } else {
                engine.all_or_none(sound)
            };
            return match agreed {
                Ok(()) => self.begin(engine, lost).map(|()| StatesCommit::NONE),
                Err(error) => self.refused(engine, error, lost),
            };
        }
        engine.round = self.version() + 1;
        let version_id = self.next_version_id(engine);
        let mut result = RoundResult::new();
        result.complete = done || mutant(Mutant::UnfinishedCheckpointsCommitted);
        result.check(sound);
        for node in engine.members.my_nodes() {
            let block = self.staged.get(&node).or_else(|| self.blocks.get(&node));
            let block = block.cloned().unwrap_or_else(nothing);
            result.blocks.insert(node, block);
        }
        let result = self.versions(engine).save(version_id, result)?;
        if mutant(Mutant::StatesNamedBeforeCommit) {
            self.publish(engine, version_id)?;
        }
        match engine.commit(result.complete, result.error.as_ref())? {
            Verdict::Committed => {
                if let Err(error) = self.publish(engine, version_id) {
                    self.begin(engine, lost)?;
                    return Err(error);
                }
                self.version_id = version_id;
                self.blocks = result.blocks;
                retire_before(&mut *self.store, version_id.version);
                self.staged.clear();
                let mut moved = Ok(());
                if !self.is_whole(engine) && !mutant(Mutant::StatesNotMovedAfterManifest) {
                    // A rank failed while the manifest was written.
                    moved = self.begin(engine, lost);
                }
                // Such an error ends the use of the group on this rank, committed or not.
                let is_apart = |error: &CollectiveError| error.status.sets_apart();
                if moved.as_ref().is_err_and(is_apart) || mutant(Mutant::ErrorAfterCommitEndsIt) {
                    moved.clone()?;
                }
                Ok(StatesCommit {
                    is_committed: true,
                    moved: moved.map_err(Error::from),
                })
            }
            Verdict::Replay => {
                self.begin(engine, lost)?;
                Ok(StatesCommit::NONE)
            }
            Verdict::Failed(status) => {
                self.refused(engine, agreed_error(status, result.error), lost)
            }
        }
    }

    /// Ends a commit that failed on all ranks. After a wrong argument the caller repeats the call with the same states.
    fn refused(
        &mut self,
        engine: &mut Engine<'_>,
        error: CollectiveError,
        lost: &mut RankSet,
    ) -> CollectiveResult<StatesCommit> {
        let is_kept = matches!(error.status, Status::Argument | Status::PeerArgument);
        if !is_kept || mutant(Mutant::StatesOfRefusedCommitDiscarded) {
            self.begin(engine, lost)?;
        }
        Err(error)
    }

    /// Makes `version_id` the version that another job finds, if the states have a name. Collective.
    fn publish(&mut self, engine: &mut Engine<'_>, version_id: VersionId) -> CollectiveResult<()> {
        let (Some(series), Some(named)) = (self.store.series(), &self.named) else {
            return Ok(());
        };
        let manifest = StatesManifest {
            series,
            version_id,
            nodes: engine.members.cube().len() as u64,
            change: named.change,
            left: named.left.clone(),
        };
        self.change_manifest(engine, |named| named.write(&manifest))?;
        if let Some(named) = &mut self.named {
            named.writer = Some(series.group);
        }
        Ok(())
    }

    /// Changes the manifest, if there is one. Collective.
    fn change_manifest(
        &mut self,
        engine: &mut Engine<'_>,
        change: impl Fn(&mut NamedStates) -> Result<()>,
    ) -> CollectiveResult<()> {
        let Some(named) = &mut self.named else {
            return Ok(());
        };
        named.change += 1;
        let changed = engine.let_one_act(Members::lowest_survivor, || change(named));
        self.is_unsure = changed.is_err();
        changed
    }

    /// Writes the manifest again if it may name another version than the committed one. Collective.
    pub fn confirm_name(&mut self, engine: &mut Engine<'_>) -> CollectiveResult<()> {
        if self.is_unsure && !mutant(Mutant::NameNotConfirmed) {
            self.publish(engine, self.version_id)?;
        }
        Ok(())
    }

    /// The end of the group: discards everything, except committed states with a name, which other jobs may continue.
    /// Collective.
    pub fn end(&mut self, engine: &mut Engine<'_>) -> CollectiveResult<()> {
        if self.named.is_some() && self.version() > 0 {
            return self.confirm_name(engine);
        }
        while !self.clear(engine)? && !mutant(Mutant::LeavesDespiteFailure) {
            engine.check_faults()?;
        }
        Ok(())
    }

    /// Discards everything. Returns false if it has found a failure that the members do not know. Collective.
    pub fn clear(&mut self, engine: &mut Engine<'_>) -> CollectiveResult<bool> {
        // Another job must not look for states that are removed.
        self.publish(engine, VersionId::INPUT)?;
        if let Some(named) = &mut self.named {
            // A rank may remove the manifest and fail before the others know that they may do so.
            named.writer = None;
        }
        self.staged.clear();
        self.blocks.clear();
        self.version_id = VersionId::INPUT;
        let is_empty = engine.clear(&mut *self.store)?;
        if let Some(series) = self.store.series().filter(|_| is_empty) {
            self.change_manifest(engine, |named| named.remove(series.group))?;
        }
        Ok(is_empty)
    }

    /// Returns whether the committed states and their copies are in their places.
    fn is_whole(&self, engine: &Engine<'_>) -> bool {
        self.version() == 0 || self.committed_with == *engine.members.membership()
    }

    fn recover(&mut self, engine: &mut Engine<'_>, lost: &mut RankSet) -> CollectiveResult<()> {
        let mut outcome = Ok(());
        engine.round = self.version() + 1;
        while !self.is_whole(engine) {
            if mutant(Mutant::CheckpointsNotMoved) {
                self.committed_with = engine.members.membership().clone();
                break;
            }
            let held_with = self.committed_with.clone();
            let mut result = self.versions(engine).restore(&held_with)?;
            let mut gone = NodeSet::new(engine.members.cube().len());
            if !result.interrupted {
                match nodes_of_all(engine, &result.lost)? {
                    Some(nodes) => gone = nodes,
                    None => result = result.interrupted(),
                }
            }
            match engine.commit(result.complete, result.error.as_ref())? {
                Verdict::Committed => {
                    self.blocks.extend(result.blocks);
                    for (node, from) in result.restored {
                        engine.tell(Event::Restored(node, from));
                    }
                    if gone.is_empty() {
                        engine.tell(Event::Replay);
                    } else {
                        self.give_up(engine, &gone);
                        outcome = report(&gone, &held_with, engine.members, lost).or_alike();
                    }
                    self.committed_with = engine.members.membership().clone();
                }
                Verdict::Replay => {}
                Verdict::Failed(status) => return Err(agreed_error(status, result.error)),
            }
        }
        if self.version() == 0 {
            self.committed_with = engine.members.membership().clone();
        }
        outcome
    }

    /// Discards the states of these nodes: every holder gets a copy of an empty entry.
    fn give_up(&mut self, engine: &Engine<'_>, gone: &NodeSet) {
        let mine = engine.members.my_nodes();
        for node in gone.iter() {
            let executed = mine.contains(&node);
            if executed {
                self.blocks.insert(node, nothing());
            }
            let is_holder = executed || self.store.scope() != StoreScope::Shared;
            if is_holder && !mutant(Mutant::LostCheckpointsNotReplaced) {
                // An entry that cannot be written counts as lost again when it is read.
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
            in_place: Holdings::default(),
            own_input: None,
            in_part: true,
            afresh: false,
            strikes: &NONE_ACCUSED,
        }
    }
}

/// Returns the nodes that any survivor names. None: a rank failed.
fn nodes_of_all(engine: &mut Engine<'_>, mine: &[Node]) -> CollectiveResult<Option<NodeSet>> {
    let mine: Vec<u8> = mine.iter().flat_map(|node| node.0.to_le_bytes()).collect();
    let all = engine.members.cube().len();
    let reports = engine.share(mine, all * size_of::<u32>())?;
    Ok(reports.map(|reports| {
        let nodes = reports
            .iter()
            .filter_map(|(_, words)| Reader::new(words).repeat_to_end(Reader::u32));
        let nodes = nodes.flatten().filter(|node| (*node as usize) < all);
        NodeSet::of(all, nodes.map(Node))
    }))
}

/// Adds the homes of the nodes to `lost`; for a node without a home, or with an idle spare as its home, the rank
/// that executed it.
fn report(
    gone: &NodeSet,
    held_with: &Membership,
    members: &Members,
    lost: &mut RankSet,
) -> Result<()> {
    let ranks = members.ranks();
    let homes = gone.iter().filter_map(|node| {
        let home = Some(node).filter(|node| (node.0 as usize) < ranks);
        let home = home.map(|node| Rank(node.0));
        // The state of an idle spare's node was that of the executor.
        let had_node = |home: &Rank| held_with.is_executing(*home) || members.is_faulty(*home);
        home.filter(had_node).or_else(|| held_with.executor(node))
    });
    *lost = RankSet::of(ranks, homes);
    let text = format!("the state of node {gone} is lost");
    Err(Error::new(Status::DataLost, text))
}

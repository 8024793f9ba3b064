//! User-defined algorithms that store their states under the name of the group's states, so that another job can
//! continue them.
//!
//! A run consists of parts of a few rounds. Each part is a job that starts with the stored states of all nodes and keeps
//! no redundancy of its own: after a failure that takes states along it starts again. At its end its states become the
//! committed states of the group, together or not at all.

use std::ops::Range;

use super::job::JobSetup;
use super::rounds::FinalStates;
use super::{Beside, Group, StepSetup};
use crate::engine::{
    Algorithm, Checkpoints, CollectiveError, CollectiveResult, CommittedStates, Engine, InStep,
    reported_by_all,
};
use crate::members::{Members, Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::rounds::{Continued, Hypercube, Note, Rounds, bytes, state_of};
use crate::store::VersionId;
use crate::transport::Transport;
use crate::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status, caught};

/// A run that stores its states.
pub(super) struct StoredRun<'a> {
    pub rounds: &'a dyn Rounds,
    /// All rounds.
    pub whole: &'a Hypercube<'a>,
    /// The runs with this fingerprint continue each other.
    pub fingerprint: u64,
    /// The number of rounds in a part.
    pub every: u32,
    /// The initial state of this rank's node.
    pub state: Slice,
    pub key: Option<&'a DigestKey>,
    /// The same number on all ranks, and for no other call of the group.
    pub call: u64,
}

impl StoredRun<'_> {
    fn note(&self, round: u32, shared: Vec<u8>) -> Result<Slice> {
        let note = Note {
            fingerprint: self.fingerprint,
            call: self.call,
            round,
            shared,
        };
        bytes(&note.encode())
    }

    /// The entry of a node of which the algorithm makes the initial state.
    fn entry_of_begin(&self) -> Result<(Slice, Slice)> {
        Ok((bytes(&[])?, self.note(0, Note::BEGIN.to_vec())?))
    }

    /// Whether a note is of the initial states of this call.
    fn is_initial(&self, note: Option<&Slice>) -> bool {
        let note = note.and_then(|note| Note::decode(note));
        note.is_some_and(|note| {
            let is_same = note.call == self.call || mutant(Mutant::StatesOfEarlierCallUsed);
            is_same && note.fingerprint == self.fingerprint && note.round == 0
        })
    }
}

impl<T: Transport> Group<T> {
    /// Runs the rounds that follow the stored states, or all of them if none are stored. Collective.
    pub(super) fn run_stored_rounds(
        &mut self,
        run: &StoredRun<'_>,
    ) -> CollectiveResult<FinalStates> {
        loop {
            match self.continue_stored_rounds(run) {
                Err(error) if error.status == Status::DataLost && run.rounds.inits_all() => {
                    // Any rank can make all initial states again.
                    self.forget_losses();
                    self.discard_states()?;
                }
                ended => return ended,
            }
        }
    }

    /// As [`Group::run_stored_rounds`], with `Status::DataLost` where stored states are lost. Collective.
    fn continue_stored_rounds(&mut self, run: &StoredRun<'_>) -> CollectiveResult<FinalStates> {
        let found = self.on_stored(|states, engine, lost| {
            stored_round(states, engine, lost, run.fingerprint, "these rounds")
        })?;
        let mut round = match found {
            Some(round) => round,
            None => {
                if !run.rounds.inits_all() {
                    self.engage(StepSetup::default(), |engine, beside| {
                        store_first(engine, beside, run)
                    })?;
                }
                0
            }
        };
        let rounds = run.whole.rounds();
        while round < rounds {
            let until = rounds.min(round.saturating_add(run.every));
            if self.run_part(run, round..until)? {
                round = until;
            }
        }
        self.stats.merge_into_exchange();
        let mut result = FinalStates::new(rounds, self.safety_of_stored(run.call));
        self.list_stored(&mut result)?;
        Ok(result)
    }

    /// Runs some rounds from the stored states, and stores the states after them. Returns whether they are stored;
    /// otherwise a rank has failed, and the states before stay. Collective.
    fn run_part(&mut self, run: &StoredRun<'_>, part: Range<u32>) -> CollectiveResult<bool> {
        let states = self.states.of_all_nodes();
        let stored = |node: Node| -> Result<Option<(Slice, Vec<u8>)>> {
            let Some((state, note)) = states.get(node)? else {
                return Ok(None);
            };
            if is_of_begin(note.as_ref()) {
                return Ok(None);
            }
            let note = note.and_then(|note| Note::decode(&note));
            Ok(Some((
                state,
                note.map_or_else(Vec::new, |note| note.shared),
            )))
        };
        let continued = Continued::new(run.rounds, run.whole.plan(), &part, &stored);
        let algorithm = run.whole.part(&continued, part.clone());
        let setup = JobSetup {
            key: run.key,
            record_bytes: 1,
            starts_empty: true,
            unprotected: true,
            ..JobSetup::default()
        };
        let next = self.begin_next_job();
        let finished = self.run_job(next, setup, &algorithm)?;
        let has_shared = continued.has_shared(part.end);
        let committed = self.on_stored(|states, engine, lost| {
            let is_complete = begin_with(states, engine, lost, &finished.membership)?;
            if !is_complete && !mutant(Mutant::RoundsOfFailedRankStored) {
                return Ok(false);
            }
            let mut put = Ok(());
            for (node, block) in &finished.blocks {
                let shared = match finished.decisions.of(*node).filter(|_| has_shared) {
                    Some(shared) => Ok(shared.to_vec()),
                    None => continued.shared_before(*node),
                };
                match shared.and_then(|shared| run.note(part.end, shared)) {
                    Ok(note) => {
                        states.put_with_note(*node, state_of(block), note);
                    }
                    Err(error) => put = Err(error),
                }
            }
            states
                .commit_silently(engine, true, put, lost)?
                .into_result()
                .or_alike()
        });
        self.members.readmit_all();
        Ok(committed? || mutant(Mutant::UnstoredRoundsCounted))
    }

    /// Lists the stored states of the nodes that this rank executes, after they have moved to their executors.
    /// Collective.
    pub(super) fn list_stored(&mut self, result: &mut FinalStates) -> CollectiveResult<()> {
        let placed = self.on_stored(|states, engine, lost| {
            let entry = |stored: &CommittedStates, node| match stored.get(node)? {
                // Without any round, the algorithm has not made a state.
                Some((_, note)) if is_of_begin(note.as_ref()) => Ok(None),
                Some((state, _)) => Ok(Some((node, state))),
                None if mutant(Mutant::LostStatesForgotten) => Ok(None),
                None => Err(Error::new(Status::DataLost, "the state is lost")),
            };
            list_entries((states, engine, lost), entry, |members, listed| {
                result.list_states(listed);
                result.safety.absent = members.faulty().clone();
            })
        });
        result.safety.membership = placed?;
        Ok(())
    }
}

/// Moves the stored entries to the executors of their nodes, and lists those of this rank. `entry`: the entry of a node, if it is
/// listed; `Status::DataLost` if it is lost. Returns the membership with which all entries are in their places. Collective.
///
/// # Errors
/// `Status::DataLost` where entries are lost, also if they were before; the others are listed.
pub(super) fn list_entries<E>(
    (states, engine, lost): (&mut Checkpoints, &mut Engine<'_>, &mut RankSet),
    entry: impl Fn(&CommittedStates, Node) -> Result<Option<E>>,
    mut list: impl FnMut(&Members, Vec<E>),
) -> CollectiveResult<Membership> {
    loop {
        let moved = states.begin(engine, lost);
        let (mut listed, mut read) = (Vec::new(), None);
        let mut missing = RankSet::new(engine.members().ranks());
        let stored = states.of_all_nodes();
        for node in engine.members().my_nodes() {
            match entry(&stored, node) {
                Ok(found) => listed.extend(found),
                Err(error) if error.status == Status::DataLost => {
                    missing.insert(home_of(engine.members(), node));
                }
                Err(error) => read = Some(error),
            }
        }
        list(engine.members(), listed);
        let membership = engine.members().membership().clone();
        moved?;
        none_missing(engine, &missing, read, lost, |lost| {
            format!(
                "the stored data of rank {lost} are lost: call ftsort_store_clear to begin anew"
            )
        })?;
        let is_whole = *engine.members().membership() == membership;
        if is_whole || mutant(Mutant::StoredBlocksNotListedAgain) {
            return Ok(membership);
        }
    }
}

/// Whether this is the note of a node of which the algorithm makes the initial state.
fn is_of_begin(note: Option<&Slice>) -> bool {
    let note = note.and_then(|note| Note::decode(note));
    note.is_some_and(|note| note.is_of_begin())
}

/// Begins a round of the stored states with the executors of a finished job, which had this membership. Returns whether
/// its blocks are still on the executors of their nodes. Collective.
pub(super) fn begin_with(
    states: &mut Checkpoints,
    engine: &mut Engine<'_>,
    lost: &mut RankSet,
    membership: &Membership,
) -> CollectiveResult<bool> {
    if !mutant(Mutant::ExclusionsForgottenAtCommit) {
        engine.members.exclude_as(membership);
    }
    states.begin(engine, lost)?;
    Ok(engine.members().membership() == membership)
}

/// As [`reported_by_all`]; None if a rank has failed meanwhile: then the only report on the stored states may be missing.
pub(super) fn reported_without_failure(
    engine: &mut Engine<'_>,
    mine: Vec<u8>,
    error: Option<Error>,
) -> CollectiveResult<Option<Vec<(Rank, Slice)>>> {
    let known = engine.members().faulty().len();
    let reports = reported_by_all(engine, mine, error)?;
    let is_complete = engine.members().faulty().len() == known;
    Ok((is_complete || mutant(Mutant::MissingReportsCountedAsNone)).then_some(reports))
}

/// `Status::DataLost` if any survivor misses data, with `mine` as the owners of those that this rank misses: then `lost` has
/// all owners, and `text` makes the error text of them. `error`: this rank's reason to make the call fail. Collective.
pub(super) fn none_missing(
    engine: &mut Engine<'_>,
    mine: &RankSet,
    error: Option<Error>,
    lost: &mut RankSet,
    text: impl FnOnce(&RankSet) -> String,
) -> CollectiveResult<()> {
    let mut missing = RankSet::new(mine.ranks());
    for (_, report) in &reported_by_all(engine, mine.to_bytes(), error)? {
        missing.extend(&RankSet::from_bytes(mine.ranks(), report));
    }
    if missing.is_empty() {
        return Ok(());
    }
    *lost = missing;
    Err(CollectiveError::alike(Error::new(
        Status::DataLost,
        text(lost),
    )))
}

/// Moves the stored states to their executors. Returns the number of rounds before them; None if there are none.
/// Collective. `name`: that of the states in error texts.
///
/// # Errors
/// `Status::Argument` where they have another fingerprint; `Status::DataLost` where some are lost.
pub(super) fn stored_round(
    states: &mut Checkpoints,
    engine: &mut Engine<'_>,
    lost: &mut RankSet,
    fingerprint: u64,
    name: &str,
) -> CollectiveResult<Option<u32>> {
    loop {
        states.confirm_name(engine)?;
        states.begin(engine, lost)?;
        if states.version_id() == VersionId::INPUT {
            return Ok(None);
        }
        let mut mine = Found::default();
        let mut missing = RankSet::new(engine.members().ranks());
        let mut read = None;
        let stored = states.of_all_nodes();
        for node in engine.members().my_nodes() {
            match stored.get(node) {
                Ok(None) => drop(missing.insert(home_of(engine.members(), node))),
                Ok(Some((_, note))) => {
                    mine.add(note.and_then(|note| Note::decode(&note)), fingerprint);
                }
                Err(error) => read = Some(error),
            }
        }
        let mine = [mine.encode(), missing.to_bytes()].concat();
        let Some(reports) = reported_without_failure(engine, mine, read)? else {
            continue;
        };
        let mut found = Found::default();
        for (_, report) in &reports {
            let (one, theirs) = report.split_at(report.len().min(Found::BYTES));
            found = found.with(one);
            missing.extend(&RankSet::from_bytes(missing.ranks(), theirs));
        }
        if found.is_foreign {
            let text = format!(
                "the stored states are not states of {name}: call ftsort_store_clear to begin anew, or open another name"
            );
            return Err(CollectiveError::alike(Error::argument(text)));
        }
        if found.round.is_none() {
            // A commit without states.
            return Ok(None);
        }
        let begins_again = mutant(Mutant::LostStatesBegunAgain) && found.round == Some(0);
        if !missing.is_empty() && !begins_again {
            let text =
                format!("stored states of {name} are lost: call ftsort_store_clear to begin anew");
            *lost = missing;
            return Err(CollectiveError::alike(Error::new(Status::DataLost, text)));
        }
        return Ok(found.round);
    }
}

/// The owner of the state of a node: its home, or its executor if it has none.
pub(super) fn home_of(members: &Members, node: Node) -> Rank {
    let home = Rank(node.0);
    if home.index() < members.ranks() {
        home
    } else {
        members.executor(node)
    }
}

/// The stored states of some nodes.
#[derive(Default)]
struct Found {
    /// There is a state that is not of this algorithm.
    is_foreign: bool,
    /// The number of rounds before the states.
    round: Option<u32>,
}

impl Found {
    /// The size of its encoding.
    const BYTES: usize = 6;

    fn add(&mut self, note: Option<Note>, fingerprint: u64) {
        match note.filter(|note| note.fingerprint == fingerprint) {
            Some(note) => self.round = Some(note.round),
            None => self.is_foreign = true,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let flags = [self.is_foreign, self.round.is_some()];
        let round = self.round.unwrap_or(0).to_le_bytes();
        flags.map(u8::from).into_iter().chain(round).collect()
    }

    fn with(self, report: &[u8]) -> Found {
        let [foreign, has_round, round @ ..] = report else {
            return self;
        };
        let round = round.try_into().ok().map(u32::from_le_bytes);
        Found {
            is_foreign: self.is_foreign || *foreign != 0,
            round: self.round.or(round.filter(|_| *has_round != 0)),
        }
    }
}

/// Stores the initial states that the ranks provide. The state of a rank that fails meanwhile is stored if its file was
/// complete, or can be loaded again. Collective.
///
/// # Errors
/// `Status::DataLost` if a rank failed before; the set of the owners of lost data receives it. `Status::Callback` if a
/// state cannot be loaded again.
fn store_first(
    engine: &mut Engine<'_>,
    beside: Beside<'_>,
    run: &StoredRun<'_>,
) -> CollectiveResult<()> {
    let Beside {
        states,
        mut reload,
        lost,
        ..
    } = beside;
    let me = engine.members().me();
    let ranks = engine.members().ranks();
    let mut attempts: Vec<VersionId> = Vec::new();
    loop {
        // A rank may store its state and fail while the others find failures before.
        attempts.push(states.next_version_id(engine));
        let mut missing = RankSet::new(ranks);
        let mut read = Ok(());
        for node in engine.members().my_nodes() {
            if !run.whole.provided().contains(node) {
                match run.entry_of_begin() {
                    Ok((state, note)) => states.put_with_note(node, state, note),
                    Err(error) => read = Err(error),
                }
                continue;
            }
            let state = match node == me.home() {
                true => Ok(Some(run.state.clone())),
                false => of_attempts(states, &attempts, node, run),
            };
            let state = match (state, &mut reload) {
                (Ok(None), Some(reload)) if !mutant(Mutant::InitialStatesNotReloaded) => {
                    caught(|| reload.reload(Rank(node.0))).map(|state| Some(state.into()))
                }
                (state, _) => state,
            };
            let note = run.note(0, Vec::new());
            match state.and_then(|state| Ok((state, note?))) {
                Ok((Some(state), note)) => states.put_with_note(node, state, note),
                Ok((None, _)) => drop(missing.insert(Rank(node.0))),
                Err(error) => read = Err(error),
            }
        }
        none_missing(engine, &missing, None, lost, |lost| {
            format!("rank {lost} failed before its initial state was stored")
        })?;
        if states
            .commit_silently(engine, true, read, lost)?
            .into_result()
            .or_alike()?
        {
            return Ok(());
        }
    }
}

/// Returns the initial state of a node that a rank has stored in a commit that failed.
fn of_attempts(
    states: &Checkpoints,
    attempts: &[VersionId],
    node: Node,
    run: &StoredRun<'_>,
) -> Result<Option<Slice>> {
    for version_id in attempts.iter().rev() {
        if let Some((state, note)) = states.of_attempt(*version_id).get(node)?
            && run.is_initial(note.as_ref())
        {
            return Ok(Some(state));
        }
    }
    Ok(None)
}

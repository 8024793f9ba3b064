//! Protected inputs in a trial: the input is protected, and replaced as often as the trial says; and the oracle for the
//! contents that a sort of it may have.
//!
//! Must never: give a rank more information than a C program has.

use super::early_loss::{changes_copies, has_arrived, shares_chunks};
use super::oracle::Living;
use super::run::{bytes_of, input_source};
use super::{SortOutcome, StoreKind, TestRecord, Trial, TrialRun};
use crate::job::{JobContext, JobRun};
use ftsort_core::engine::{Checks, HeldInputs, LoadOnly, RetainedResult};
use ftsort_core::members::{Rank, RankSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::Digest;
use ftsort_kernels::error::{Error, Result, Status};

/// Returns a version of the input of a rank, as its program can make it again.
pub type InputOf<'a> = &'a dyn Fn(Rank, usize) -> Result<Buffer>;

/// The updates of a protected input, as one rank sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Updates {
    /// The updates that succeeded, and the ranks that had failed when they began.
    pub done: Vec<(usize, RankSet)>,
    /// The updates that failed with a data loss.
    pub refused: Vec<Refused>,
}

/// An update that failed with a data loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The version of the records that it was to bring.
    version: usize,
    /// The ranks that the error named.
    lost: Vec<Rank>,
    /// Whether a failure was found since it began.
    is_interrupted: bool,
}

impl Updates {
    /// The version of the records that the survivors have: the number of the last update that succeeded.
    pub fn version(&self) -> usize {
        self.done.last().map_or(0, |(version, _)| *version)
    }

    /// The version of the records of `rank`: that of the last update that it took part in.
    pub fn version_of(&self, rank: Rank) -> usize {
        let mut latest = self.done.iter().rev();
        let took_part = latest.find(|(_, failed)| !failed.contains(rank));
        took_part.map_or(0, |(version, _)| *version)
    }
}

/// A protected input of one rank.
pub struct Protected {
    /// The inputs.
    pub held: HeldInputs,
    /// The records of this rank.
    pub input: Slice,
    /// The digest of the records as the program passed them, where blocks are checked.
    pub digest: Option<Digest>,
    /// The updates so far.
    pub updates: Updates,
}

/// Protects the input of one rank, and replaces it. An update that fails leaves the records as they were.
pub fn protect(
    trial: &Trial,
    job: usize,
    context: &mut JobContext<'_, '_>,
    input_of: InputOf<'_>,
    checks: Option<&Checks<'_>>,
) -> Result<Protected> {
    let me = context.engine.members().me();
    let has_input = !context.absent.contains(me);
    let version_of = |version| {
        if !has_input {
            return Ok(Slice::from(Buffer::default()));
        }
        bytes_of(trial, &trial.version_of_records(job, me, version)).map(Slice::from)
    };
    let checks_of = |input: &Slice| {
        checks.map(|checks| Checks {
            input: checks.key.digest(input),
            ..checks.clone()
        })
    };
    let mut input = context.engine.all_or_none(version_of(0))?;
    let mut given = checks_of(&input);
    let read = |rank| input_of(rank, 0);
    let run = protection(trial, &read, &input, given.as_ref());
    let loaded = context.run(&LoadOnly, run)?;
    // The copy that this rank has from now on may have been changed by the schedule.
    let own = loaded.blocks.get(&me.home());
    input = own.map_or(input, |block| {
        let own = block.runs.first();
        own.map_or_else(Slice::default, |run| run.data.clone())
    });
    let held = loaded.retained.map(RetainedResult::into_inputs);
    let released = || Error::new(Status::Internal, "the inputs were released");
    let mut held = held.ok_or_else(released)?;
    let mut updates = Updates::default();
    for version in 1..=trial.update_count() {
        let members = context.engine.members();
        let (failed, absent) = (members.faulty().clone(), members.without_input());
        let new = context.engine.all_or_none(version_of(version));
        let new = context.noted(new)?;
        let given_now = checks_of(&new);
        let read = |rank| match failed.contains(rank) {
            true => input_of(rank, updates.version_of(rank)),
            false => input_of(rank, version),
        };
        let run = protection(trial, &read, &new, given_now.as_ref());
        match context.update(&mut held, absent, run) {
            Ok(()) => {
                updates.done.push((version, failed));
                (input, given) = (new, given_now);
            }
            Err(error) if error.status == Status::DataLost => {
                let lost = std::mem::replace(context.lost, RankSet::new(trial.ranks));
                updates.refused.push(Refused {
                    version,
                    lost: lost.iter().collect(),
                    is_interrupted: *context.engine.members().faulty() != failed,
                });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Protected {
        held,
        input,
        digest: given.map(|checks| checks.input),
        updates,
    })
}

/// The set-up of a job that protects this input.
fn protection<'r>(
    trial: &Trial,
    read: &'r dyn Fn(Rank) -> Result<Buffer>,
    input: &Slice,
    checks: Option<&'r Checks<'r>>,
) -> JobRun<'r> {
    JobRun {
        checks,
        retains: true,
        ..JobRun::new(input_source(trial, read, None), input.clone())
    }
}

/// Returns the sorted inputs of all ranks that a result may consist of, one list for each possibility: the survivors have the
/// same version of the records, and a failed rank that of the last update that it took part in. It has none if an update
/// reported its loss, and more ranks failed than there are copies.
pub(super) fn possible_inputs(
    trial: &Trial,
    job: usize,
    present: &[Rank],
    first: &SortOutcome,
) -> Vec<Vec<TestRecord>> {
    let updates = first.result.as_ref().map(|result| &result.updates);
    let agreed = updates.map_or(0, Updates::version);
    let reported = |rank: &Rank| {
        let mut refused = updates.iter().flat_map(|updates| &updates.refused);
        refused.any(|refused| refused.lost.contains(rank))
    };
    let may_lose = may_lose(trial, first);
    let mut possible = vec![Vec::new()];
    for rank in present {
        let version = match (updates, first.failed.contains(rank)) {
            (Ok(updates), true) => updates.version_of(*rank),
            _ => agreed,
        };
        let more = trial.version_of_records(job, *rank, version);
        let longer = |records: &Vec<TestRecord>| [&records[..], &more].concat();
        let with_records: Vec<_> = possible.iter().map(longer).collect();
        possible.retain(|_| may_lose && reported(rank));
        possible.extend(with_records);
    }
    // The sort is stable: equal keys stay in the order of ranks and positions.
    for records in &mut possible {
        records.sort_by_key(|record| record.key);
    }
    possible
}

/// Whether more ranks failed, and copies or shares were changed, than the store can do without. A change that is repeated
/// may be made to all of them.
fn may_lose(trial: &Trial, first: &SortOutcome) -> bool {
    let redundant = trial.store.replicas().unwrap_or(0);
    let failed = first.failed.iter();
    let failed = failed.filter(|rank| !first.absent.contains(rank)).count();
    let changes = trial.corruptions.iter();
    let mut changes = changes.filter(|words| words.contains(".replica"));
    let is_repeated = |words: &String| words.ends_with('*');
    failed + changes.clone().count() > redundant || failed > 0 && changes.any(is_repeated)
}

/// Checks that all survivors agree on the updates, that an update is not refused without a failure or if inputs can be
/// loaded again, and that a new input counts once it has left its rank.
pub(super) fn judge_updates(
    trial: &Trial,
    run: &TrialRun,
    job: usize,
    living: &Living<'_>,
    first: &SortOutcome,
) -> Option<String> {
    let agreed = &first.result.as_ref().ok()?.updates;
    let differs = |(_, outcome): &&(Rank, &SortOutcome)| {
        let result = outcome.result.as_ref();
        result.is_ok_and(|result| result.updates != *agreed)
    };
    if let Some((rank, _)) = living.iter().find(differs) {
        return Some(format!(
            "rank {rank} has another version of its protected input"
        ));
    }
    let is_refused = |refused: &Refused| !refused.is_interrupted;
    if !may_lose(trial, first) && agreed.refused.iter().any(is_refused) {
        return Some("an update is refused although no rank has failed meanwhile".into());
    }
    let is_certain = trial.can_reload() && !trial.lies && trial.corruptions.is_empty();
    if is_certain && !agreed.refused.is_empty() {
        return Some("an update is refused although the inputs can be loaded again".into());
    }
    let keeps_copies = matches!(
        trial.store,
        StoreKind::Memory(1..) | StoreKind::Versions(1..)
    );
    if !keeps_copies {
        return None;
    }
    for Refused { version, lost, .. } in &agreed.refused {
        if lost.is_empty() {
            return Some("a lost update is reported without its owner".into());
        }
        for owner in lost {
            let records = trial.version_of_records(job, *owner, *version);
            let mut earlier =
                (0..*version).map(|before| trial.version_of_records(job, *owner, before));
            if earlier.any(|before| shares_chunks(trial, &before, &records)) {
                // The messages of the two versions cannot be told apart.
                continue;
            }
            let survivors = run.survivors.iter();
            let mut survivors = survivors.filter(|holder| !changes_copies(trial, **holder));
            if survivors.any(|holder| has_arrived(trial, run, (job, *owner, *holder), &records)) {
                return Some(format!(
                    "update {version} of rank {owner} is reported as lost, but it had reached a survivor"
                ));
            }
        }
    }
    None
}

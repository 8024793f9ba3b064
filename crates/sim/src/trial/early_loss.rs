//! The oracle's knowledge of the inputs that had left their ranks before a failure.
//!
//! The input of a rank that fails before the first commit is lost, unless all of its bytes had arrived at a survivor or
//! in a file, or it can be loaded again.

use std::collections::BTreeMap;

use super::run::{bytes_of, kernel_of, record_bytes};
use super::{SortOutcome, StoreKind, TestRecord, TreeUse, Trial, TrialRun};
use crate::harness::chunk_bytes;
use crate::transport::Received;
use ftsort_core::block::Block;
use ftsort_core::engine::{ENCLOSED_PART, FOR_HOLDERS, WHOLE, trailer};
use ftsort_core::group::many::unknown_counts;
use ftsort_core::members::{Rank, RankSet};
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::checksum::Checksum;
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::Error;

/// Checks a data loss before the first commit. The input of a rank that fails is lost unless it can be loaded again, or
/// all of it had reached a survivor or a file.
pub(super) fn judge_early_loss(
    trial: &Trial,
    run: &TrialRun,
    job: usize,
    outcome: &SortOutcome,
) -> Option<String> {
    if trial.can_reload() && trial.arrays > 0 {
        // The counts of a rank's arrays cannot be loaded again.
        return None;
    }
    if trial.can_reload() {
        return Some("data loss is reported, although inputs can be loaded again".into());
    }
    let records_of = |owner: Rank| match trial.tree {
        Some(_) => trial.sorted_records(job, owner),
        None => trial.version_of_records(job, owner, 0),
    };
    let is_held = |owner: &&Rank| {
        let survivors = run.survivors.iter();
        let mut survivors = survivors.filter(|holder| !changes_copies(trial, **holder));
        let records = records_of(**owner);
        let mut others = outcome.failed.iter().filter(|other| other != owner);
        if others.any(|other| shares_chunks(trial, &records_of(*other), &records)) {
            // The owner may have sent the input of that rank.
            return false;
        }
        survivors.any(|holder| {
            has_arrived(trial, run, (job, **owner, *holder), &records)
                || was_gathered(trial, run, job, **owner, *holder)
        })
    };
    // A file that a rank was refused to read counts as missing if no other rank can read it.
    let was_refused = |rank: &Rank| trial.refusals.iter().any(|refusal| refusal.rank == *rank);
    let may_read = run.survivors.iter().any(|rank| !was_refused(rank));
    let mut lost = outcome.lost.iter();
    let owner = match trial.store {
        // States become a version together, and the blocks of a result that is collected are in no store.
        _ if trial.custom_loop || trial.tree == Some(TreeUse::Collect) => None,
        StoreKind::Directory => {
            lost.find(|owner| may_read && was_stored(trial, run, (job, **owner), outcome))
        }
        StoreKind::Memory(1..) | StoreKind::Versions(1..) => lost.find(is_held),
        _ => None,
    };
    owner.map(|owner| {
        format!(
            "the input of rank {owner} is reported as lost, but it had reached a survivor or a file"
        )
    })
}

/// Whether the file of an input was finished in this job, or in one before it.
fn was_stored(
    trial: &Trial,
    run: &TrialRun,
    (job, owner): (usize, Rank),
    outcome: &SortOutcome,
) -> bool {
    // Jobs in which the survivors knew all counts of arrays use a store.
    let lost_counts = |outcome: &SortOutcome| {
        let lost = RankSet::of(trial.ranks, outcome.lost.iter().copied());
        let unknown = unknown_counts(&lost);
        trial.arrays > 0
            && outcome
                .result
                .as_ref()
                .is_err_and(|error| *error == unknown)
    };
    let uses_store =
        |outcomes: &&Vec<Option<SortOutcome>>| !outcomes.iter().flatten().any(lost_counts);
    if trial.tree.is_some() && job > 0 {
        // Trees before this job may have used any number of stores.
        return false;
    }
    let mut later = run.outcomes[job + 1..].iter();
    if lost_counts(outcome) && later.any(|outcomes| uses_store(&outcomes)) {
        // The files of the later job have the same names.
        return false;
    }
    let begun = run.outcomes[..job].iter().filter(uses_store).count();
    // The number of stores of inputs and results before this job.
    let stores = if trial.protects > 0 {
        begun * (1 + trial.update_count() + trial.protects)
    } else {
        begun
    };
    let name = format!("-s{stores}-v0-f00000000-n{owner}");
    run.finished_files.iter().any(|file| file.ends_with(&name))
}

/// Whether copies that arrive at this rank are changed. The rank finds that by their digests, and does not have them.
pub(super) fn changes_copies(trial: &Trial, holder: Rank) -> bool {
    let of_holder = format!("{holder}~");
    let mut words = trial.corruptions.iter();
    words.any(|words| words.starts_with(&of_holder) && words.contains(".replica"))
}

/// Returns whether a rank has received another rank's whole input, or its whole contribution to a tree, in a job. False
/// for an empty one that would travel with its header.
pub(super) fn has_arrived(
    trial: &Trial,
    run: &TrialRun,
    (job, owner, holder): (usize, Rank, Rank),
    records: &[TestRecord],
) -> bool {
    let Ok(input) = bytes_of(trial, records) else {
        return false;
    };
    if input.len() <= chunk_bytes(trial.ranks) / ENCLOSED_PART {
        let message = enclosed_in_header(trial, owner, input);
        // A message that is discarded has room for any other.
        let is_header = |room| room < chunk_bytes(trial.ranks);
        let mut rooms = rooms_of(run, (job, owner, holder), &message);
        return !records.is_empty() && rooms.any(is_header);
    }
    let mut chunks = BTreeMap::new();
    for chunk in input.chunks(chunk_bytes(trial.ranks)) {
        let received = Received {
            job,
            from: owner,
            to: holder,
            room: chunk.len(),
            checksum: Checksum::of(chunk),
        };
        *chunks.entry(received).or_insert(0) += 1;
    }
    let mut chunks = chunks.iter();
    chunks.all(|(chunk, count)| run.received.get(chunk) >= Some(count))
}

/// The first byte of a control message with a payload.
const HAS_PAYLOAD: u8 = 1;

/// The control message with a whole input, which names its owner.
fn enclosed_in_header(trial: &Trial, owner: Rank, input: Buffer) -> Vec<u8> {
    let key = trial
        .checks
        .then(|| DigestKey::new(trial.seed, record_bytes(trial)));
    let digest = key.map(|key| key.digest(&input));
    let block = Block {
        digest,
        ..Block::input(owner, input.into())
    };
    let mut message = vec![HAS_PAYLOAD];
    message.extend(block.header().encode());
    let runs = block.runs.iter();
    runs.for_each(|run| message.extend_from_slice(&run.data));
    message
}

/// Whether messages with two inputs may have the same bytes.
pub(super) fn shares_chunks(trial: &Trial, one: &[TestRecord], other: &[TestRecord]) -> bool {
    let size = chunk_bytes(trial.ranks);
    let inputs = [one, other].map(|records| bytes_of(trial, records));
    let [Ok(one), Ok(other)] = &inputs else {
        return true;
    };
    one.chunks(size)
        .any(|chunk| other.chunks(size).any(|other| chunk == other))
}

/// Returns whether a rank has received another rank's whole input in the step in which ranks gather inputs.
fn was_gathered(trial: &Trial, run: &TrialRun, job: usize, owner: Rank, holder: Rank) -> bool {
    let Ok(mut message) = sorted_bytes(trial, job, owner) else {
        return false;
    };
    let kind = if trial.is_sampler(owner) {
        FOR_HOLDERS
    } else {
        WHOLE
    };
    message.extend(trailer(trial.fingerprint(job), kind, message.len()));
    trial.may_gather()
        && rooms_of(run, (job, owner, holder), &message)
            .next()
            .is_some()
}

/// Returns the room of each receive in which a rank has received this message, as all of it or as a part.
fn rooms_of(
    run: &TrialRun,
    (job, from, to): (usize, Rank, Rank),
    message: &[u8],
) -> impl Iterator<Item = usize> {
    let checksum = Checksum::of(message);
    let received = run.received.keys();
    let received = received.filter(move |received| {
        let ends = (received.job, received.from, received.to);
        ends == (job, from, to) && received.checksum == checksum
    });
    received.map(|received| received.room)
}

/// The bytes of a rank's sorted input.
fn sorted_bytes(trial: &Trial, job: usize, rank: Rank) -> Result<Vec<u8>, Error> {
    let mut sorted = bytes_of(trial, &trial.records(job, rank))?;
    kernel_of(trial, false)?.sort(&mut sorted)?;
    Ok(sorted.to_vec())
}

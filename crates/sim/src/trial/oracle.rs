//! The oracle: compares the result of a trial with a plain sort of the same records.

use super::completeness::judge_completeness;
use super::copy_loss::judge_loss_of_copies;
use super::early_loss::judge_early_loss;
use super::many::expected;
use super::parity_loss::judge_loss_of_parity;
use super::spare_checks::{is_spare, judge_loads, members_after};
use super::tree_checks::{judge_tree, may_refuse};
use super::unreported;
use super::update::{judge_updates, possible_inputs};

use super::{
    CommitRecord, RankResult, ResultBlock, SortOutcome, StoreKind, TestRecord, Trial, TrialRun,
};
use crate::transport::{Failure, FailureMode};
use ftsort_core::members::{FULL_WEIGHT, Members, Rank};
use ftsort_core::sort::{Method, PivotRule, Shape, Splitters};
use ftsort_kernels::error::{Error, Status};

/// Returns a description of the error in the result of a trial. None: the result is correct.
pub fn judge(trial: &Trial, run: &TrialRun) -> Option<String> {
    if let Some(panic) = &run.panic {
        return Some(panic.clone());
    }
    if trial.failures.iter().any(unreported::is_endless) {
        return unreported::judge(trial, run);
    }
    if !run.hung.is_empty() {
        return Some(format!("ranks {:?} hang", run.hung));
    }
    let failures = trial.failures.len();
    let survivors = run.survivors.len();
    if survivors + failures < trial.ranks {
        return Some(format!(
            "{survivors} of {} ranks survive, although only {failures} failures were injected",
            trial.ranks
        ));
    }
    let refused = run.outcomes.iter().filter(|job| was_refused(job)).count();
    if refused > trial.refusals.len() && !trial.lies && !may_reload_another_input(trial) {
        let refusals = trial.refusals.len();
        return Some(format!(
            "{refused} jobs were refused, but only {refusals} actions"
        ));
    }
    let mut jobs = run.outcomes.iter().enumerate();
    let wrong = jobs.find_map(|(job, outcomes)| {
        let wrong = judge_job(trial, run, job, outcomes);
        wrong.map(|wrong| format!("sort {job}: {wrong}"))
    });
    // Survivors remove the files of failed ranks, unless they had finished before the failure.
    let check_files = failures == 0 && !run.survivors.is_empty();
    let file = run.leftover_files.first().filter(|_| check_files);
    wrong.or_else(|| file.map(|name| format!("the file {name} was not removed")))
}

/// The errors of a refused action.
const REFUSED: [Status; 3] = [Status::Memory, Status::Store, Status::Callback];

/// Whether a job ended with the error of a refused action on some rank.
fn was_refused(outcomes: &[Option<SortOutcome>]) -> bool {
    let mut results = outcomes.iter().flatten().map(|outcome| &outcome.result);
    results.any(|result| {
        result
            .as_ref()
            .is_err_and(|error| REFUSED.contains(&error.status))
    })
}

pub(super) type Living<'a> = [(Rank, &'a SortOutcome)];

fn judge_job(
    trial: &Trial,
    run: &TrialRun,
    job: usize,
    outcomes: &[Option<SortOutcome>],
) -> Option<String> {
    let survivors = run.survivors.iter();
    let living: Vec<(Rank, &SortOutcome)> = survivors
        .filter_map(|rank| Some((*rank, outcomes[rank.index()].as_ref()?)))
        .collect();
    let (_, first) = living.first()?;
    if let Some(difference) = judge_agreement(&living, first) {
        return Some(difference);
    }
    let injected: Vec<Rank> = trial.failures.iter().map(|failure| failure.rank).collect();
    if let Some(rank) = first.failed.iter().find(|rank| !injected.contains(rank)) {
        return Some(format!(
            "rank {rank} counts as failed, although no failure was injected"
        ));
    }
    let below_quorum = trial.ranks - first.failed.len() < trial.quorum;
    let error = match &first.result {
        Err(error) => error,
        Ok(_) if below_quorum => return Some(CONTINUES_BELOW_QUORUM.into()),
        Ok(_) if trial.tree.is_some() => return judge_tree(trial, job, &living, first),
        Ok(_) if trial.lies && has_unknown_input(run, job, first) => return None,
        Ok(_) => {
            let wrong = judge_repair(trial, first);
            let wrong = wrong.or_else(|| judge_updates(trial, run, job, &living, first));
            return wrong.or_else(|| judge_result(trial, job, &living, first));
        }
    };
    match error.status {
        Status::Excluded | Status::DataLost if below_quorum => None,
        _ if below_quorum => Some(CONTINUES_BELOW_QUORUM.into()),
        status if REFUSED.contains(&status) && !trial.refusals.is_empty() => None,
        Status::Callback if trial.lies && first.failed != first.absent => None,
        Status::Callback if may_reload_another_input(trial) => None,
        // A copy of the unknown input was right, and a wrong one took its place after the copy was lost.
        Status::Corrupt if trial.lies && has_unknown_input(run, job, first) => None,
        Status::Corrupt => judge_corruption(trial, first, error),
        // A corrupt replica counts as none.
        Status::DataLost if !trial.corruptions.is_empty() => judge_corruption(trial, first, error),
        Status::Argument if may_refuse(trial, first) => None,
        Status::DataLost => judge_data_loss(trial, run, job, first),
        _ => Some(format!("all ranks return an error: {error}")),
    }
}

/// Checks that a rank with a changed protected input got a copy of it, and goes on with its node.
fn judge_repair(trial: &Trial, first: &SortOutcome) -> Option<String> {
    let has_copies = matches!(trial.store, StoreKind::Memory(1..));
    let is_repairable = trial.protects > 0 && trial.arrays == 0 && has_copies;
    let of_an_input = |words: &String| words.contains("~0.input") && !words.ends_with('*');
    let only_changed = trial.failures.is_empty()
        && trial.exclusions.is_empty()
        && trial.corruptions.len() == 1
        && trial.corruptions.iter().all(of_an_input);
    let excluded = first.excluded.iter();
    let excluded: Vec<&Rank> = excluded.filter(|rank| !is_spare(trial, **rank)).collect();
    (is_repairable && only_changed && !excluded.is_empty())
        .then(|| format!("{excluded:?} count as wrong, although their inputs have copies"))
}

/// Whether a reloaded input may differ from the one that its owner has reported the hash of, because the owner's was
/// changed before.
fn may_reload_another_input(trial: &Trial) -> bool {
    let is_of_an_input = |words: &String| words.contains(".input");
    trial.can_reload() && trial.corruptions.iter().any(is_of_an_input)
}

/// Whether a rank failed before its input was known, so that a wrong one in place of it cannot be detected.
fn has_unknown_input(run: &TrialRun, job: usize, first: &SortOutcome) -> bool {
    let loaded = |commit: &&CommitRecord| (commit.job, commit.round) == (job, 0);
    let mut commits = run.commits.iter().map(|(_, commit)| commit);
    commits
        .find(loaded)
        .is_some_and(|commit| commit.failed != first.absent)
}

const CONTINUES_BELOW_QUORUM: &str = "the job goes on although fewer ranks than the quorum survive";

/// Checks that all survivors return the same status and have the same view of the members.
fn judge_agreement(living: &Living<'_>, first: &SortOutcome) -> Option<String> {
    for (rank, outcome) in living {
        let same_view = outcome.absent == first.absent
            && outcome.idle_spares == first.idle_spares
            && outcome.agreed_failures == first.agreed_failures
            && outcome.failed == first.failed
            && outcome.lost == first.lost
            && outcome.excluded == first.excluded
            && outcome.weights == first.weights;
        if !same_view {
            return Some(format!(
                "survivors have different views of failures or speeds: rank {rank} has failures {:?} and weights {:?}",
                outcome.failed, outcome.weights
            ));
        }
        let status =
            |outcome: &SortOutcome| outcome.result.as_ref().err().map(|error| error.status);
        if status(outcome) != status(first) {
            let result = match &outcome.result {
                Ok(_) => "success".to_string(),
                Err(error) => error.to_string(),
            };
            return Some(format!("rank {rank} returns another status: {result}"));
        }
    }
    None
}

/// Checks that more data were corrupted than can be repaired. One corruption can be repaired if there is redundancy and
/// it is detected before redundancy of the corrupt data is made.
fn judge_corruption(trial: &Trial, outcome: &SortOutcome, error: &Error) -> Option<String> {
    if trial.corruptions.is_empty() {
        return Some("corruption is reported, although none was injected".into());
    }
    if trial.algorithm == Method::SftBitonic && !trial.checks {
        return None;
    }
    let of_a_version = |words: &String| {
        words.contains(".stored") && !words.contains("~0.") && !words.ends_with('*')
    };
    if error.status == Status::Corrupt && trial.corruptions.iter().all(of_a_version) {
        return Some(format!("a corrupt file does not count as absent: {error}"));
    }
    let of_a_share = |words: &String| words.contains(".replica") && !words.ends_with('*');
    let of_a_block = |words: &String| !words.contains(".input") && !words.ends_with('*');
    // The input of a rank may be lost with it before the first commit.
    let has_copies = error.status == Status::Corrupt || outcome.failed_at_commit.is_some();
    if let StoreKind::Memory(copies) | StoreKind::Versions(copies) = trial.store
        && has_copies
        && trial.corruptions.iter().all(of_a_block)
        && trial.failures.len() + trial.corruptions.len() <= copies
        && trial.ranks > copies + trial.spares
    {
        return Some(format!("another copy was not used: {error}"));
    }
    if let (StoreKind::Parity(shape), Status::Corrupt) = (trial.store, error.status) {
        let are_few = outcome.failed.len() + trial.corruptions.len() <= shape.shares;
        let has_shares = trial.ranks - outcome.failed.len() > shape.shares;
        if are_few && has_shares && trial.corruptions.iter().all(of_a_share) {
            return Some(format!("a corrupt share was not left out: {error}"));
        }
    }
    let is_single = trial.corruptions.len() == 1 && !trial.corruptions[0].ends_with('*');
    // A protected input is replaced by a copy, but not one of many arrays.
    let is_repaired = trial.protects > 0 && trial.arrays == 0;
    let has_copy = is_repaired && matches!(trial.store, StoreKind::Memory(1..));
    let of_an_input = !has_copy
        && trial
            .corruptions
            .iter()
            .any(|words| words.contains("input"));
    let has_redundancy = match trial.store {
        StoreKind::Memory(copies) | StoreKind::Versions(copies) => copies > 0,
        StoreKind::Parity(shape) => trial.ranks > shape.shares,
        StoreKind::Directory => true,
        StoreKind::None | StoreKind::Reload => false,
    };
    let has_redundancy = has_redundancy || trial.can_reload();
    let one_rank = trial.ranks - outcome.failed.len() == 1;
    let is_repairable =
        trial.failures.is_empty() && is_single && has_redundancy && !of_an_input && !one_rank;
    is_repairable.then(|| format!("a corruption was not repaired: {error}"))
}

/// Checks that every block is correct and on its executor, and that all records are there. The blocks of a rank that
/// failed after the end of the job are missing.
pub(super) fn judge_result(
    trial: &Trial,
    job: usize,
    living: &Living<'_>,
    first: &SortOutcome,
) -> Option<String> {
    let mut members = members_after(trial, living[0].0, first);
    for rank in &first.excluded {
        members.excluded_for_corruption(*rank);
    }
    (0..trial.arrays.max(1))
        .find_map(|array| judge_array(trial, job, living, (first, &members), array))
}

/// Checks the result of one of the arrays, or of the only one.
fn judge_array(
    trial: &Trial,
    job: usize,
    living: &Living<'_>,
    (first, members): (&SortOutcome, &Members),
    array: usize,
) -> Option<String> {
    let present = Rank::all(trial.ranks).filter(|rank| has_input(first, *rank));
    let present: Vec<Rank> = present.collect();
    let possibilities = match trial.arrays {
        0 => possible_inputs(trial, job, &present, first),
        _ => vec![expected(trial, job, &present, array)],
    };
    let mut wrong = None;
    for expected in possibilities {
        wrong = judge_contents(trial, living, (first, members), (array, &expected));
        if wrong.is_none() {
            break;
        }
    }
    wrong
}

/// As [`judge_array`], for one possibility of its sorted records.
fn judge_contents(
    trial: &Trial,
    living: &Living<'_>,
    (first, members): (&SortOutcome, &Members),
    (array, expected): (usize, &[TestRecord]),
) -> Option<String> {
    let results = living.iter().map(|(rank, outcome)| {
        let result = outcome.result.as_ref().ok()?;
        Some((*rank, result.of_array(array)))
    });
    let results = results.collect::<Option<Vec<(Rank, &RankResult)>>>()?;
    let wrong = results
        .iter()
        .find_map(|result| judge_rank(trial, members, first, *result, expected));
    let wrong = wrong.or_else(|| judge_shares(trial, &results, expected.len()));
    let wrong = wrong.or_else(|| judge_loads(trial, &results, first, expected.len()));
    if wrong.is_some() {
        return wrong;
    }
    let all_here = living.len() == members.survivors().count();
    let incomplete = judge_completeness(trial, &results, expected, all_here);
    incomplete.map(|text| format!("array {array}: {text}"))
}

/// Whether the rank was alive and no idle spare when the job began.
pub(super) fn has_input(first: &SortOutcome, rank: Rank) -> bool {
    !first.absent.contains(&rank) && !first.idle_spares.contains(&rank)
}

fn records_of(result: &RankResult) -> usize {
    result.blocks.iter().map(|block| block.records.len()).sum()
}

/// Checks the blocks of one rank.
fn judge_rank(
    trial: &Trial,
    members: &Members,
    first: &SortOutcome,
    (rank, result): (Rank, &RankResult),
    expected: &[TestRecord],
) -> Option<String> {
    let total = expected.len();
    // In a loop of the program's own, a rank without nodes has no state from which it could learn the total.
    let knows_total = !trial.custom_loop || !result.blocks.is_empty();
    if knows_total && result.total != total as u64 {
        return Some(format!(
            "rank {rank} reports a total of {} records instead of {total}",
            result.total
        ));
    }
    let survivors = members.survivors().count() - first.excluded.len();
    let equal_shares = [total / survivors, total.div_ceil(survivors)];
    let share = records_of(result);
    let undisturbed = trial.failures.is_empty() && trial.exclusions.is_empty();
    let is_restored = trial.recoveries > 0 && !undisturbed;
    if trial.dense
        && !is_restored
        && !first.excluded.contains(&rank)
        && !equal_shares.contains(&share)
    {
        return Some(format!(
            "rank {rank} has {share} records instead of {} or {}",
            equal_shares[0], equal_shares[1]
        ));
    }
    let nodes: Vec<_> = result.blocks.iter().map(|block| block.node).collect();
    if nodes != members.nodes_of(rank) {
        return Some(format!("rank {rank} has the blocks of nodes {nodes:?}"));
    }
    let mut blocks = result.blocks.iter();
    blocks.find_map(|block| wrong_record(trial, block, expected))
}

/// Checks that each rank's share is in proportion to its weight. This holds if all speeds were known from the start,
/// no rank was excluded or failed, and the records are so few that samples are exact.
fn judge_shares(trial: &Trial, results: &[(Rank, &RankResult)], total: usize) -> Option<String> {
    let undisturbed =
        trial.failures.is_empty() && trial.exclusions.is_empty() && trial.corruptions.is_empty();
    let mut observations = trial.speeds.iter().map(|speed| speed.observation);
    let known_from_start = observations
        .all(|observation| observation.commit <= 1 && observation.observer.index() < trial.ranks);
    let exact = total <= MAX_JUDGED && BY_SAMPLES.contains(&trial.algorithm);
    if !undisturbed || !known_from_start || trial.custom_loop || trial.dense || !exact {
        return None;
    }
    let weight = |rank: Rank| {
        let speeds = trial.speeds.iter();
        let of_rank = speeds.filter(|speed| speed.observation.rank == rank);
        usize::from(
            of_rank
                .map(|speed| speed.weight)
                .max()
                .unwrap_or(FULL_WEIGHT),
        )
    };
    let mut weights: Vec<usize> = Rank::all(trial.ranks).map(weight).collect();
    let spares = trial.spares.min(trial.ranks - 1);
    weights.truncate(trial.ranks - spares);
    if weights.iter().all(|weight| *weight == 0) {
        weights.fill(1);
    }
    weights.resize(trial.ranks, 0);
    let all: usize = weights.iter().sum();
    let tolerance = share_tolerance(trial, trial.ranks, total);
    results.iter().find_map(|(rank, result)| {
        let share = records_of(result);
        let expected = total * weights[rank.index()] / all;
        (share.abs_diff(expected) > tolerance).then(|| {
            format!("rank {rank} has {share} records instead of about {expected} by the weights {weights:?}")
        })
    })
}

/// The sorts that divide records by samples.
pub const BY_SAMPLES: [Method; 5] = [
    Method::SampleSort(1),
    Method::SampleSort(2),
    Method::SampleSort(3),
    Method::HyperQuickSort(PivotRule::Sampled),
    Method::QuickMerge(Splitters::Sampled),
];

/// The number of records up to which shares are judged.
pub const MAX_JUDGED: usize = 512;

/// The smallest number of samples of a larger block.
const MIN_SAMPLES: usize = 48;

/// The number of records for each rank up to which a node shows every record of its block, although some blocks are
/// larger than others.
const FULL_SAMPLES: usize = 24;

/// The number of records by which a share among so many working ranks may be off: each cut by less than the records that
/// a sample stands for, and the errors of bisections add up.
pub fn share_tolerance(trial: &Trial, working: usize, total: usize) -> usize {
    let sample = if total <= FULL_SAMPLES * working {
        1
    } else {
        1 + total / MIN_SAMPLES
    };
    2 + sample * trial.ranks.next_power_of_two().ilog2() as usize
}

/// Returns a text about the first wrong record of a block.
fn wrong_record(trial: &Trial, block: &ResultBlock, expected: &[TestRecord]) -> Option<String> {
    let ResultBlock { node, records, .. } = block;
    let (start, all) = (block.offset as usize, expected.len());
    let end = start + records.len();
    let Some(expected) = expected.get(start..end) else {
        return Some(format!("node {node} has records {start} to {end} of {all}"));
    };
    if may_swap_arrays(trial) {
        return None;
    }
    let keys_only = keeps_order_of_keys_only(trial);
    let is_wrong =
        |one: &TestRecord, other: &TestRecord| one.key != other.key || !keys_only && one != other;
    let mut pairs = records.iter().zip(expected).zip(start..);
    let ((found, expected), place) = pairs.find(|((one, other), _)| is_wrong(one, other))?;
    Some(format!(
        "record {place} of {all}, of node {node}, is {found:?} instead of {expected:?}"
    ))
}

/// Whether records of different arrays may be exchanged, because the digest of a block is one for all arrays.
pub(super) fn may_swap_arrays(trial: &Trial) -> bool {
    let swaps = |words: &String| words.contains("swap");
    trial.arrays > 1 && trial.corruptions.iter().any(swaps)
}

/// Whether records with equal keys may be in any order.
pub(super) fn keeps_order_of_keys_only(trial: &Trial) -> bool {
    // The checks detect a wrong order of keys, and not of records with equal keys.
    let changes_order = |words: &String| words.contains("order") || words.contains("swap");
    // The bitonic merge is not stable.
    trial.algorithm == Method::Bitonic(Shape::Bitonic)
        || trial.corruptions.iter().any(changes_order)
}

/// Checks that more ranks failed at once than the store protects against. The ranks that failed after the last commit
/// count, because every commit leaves all replicas in their places.
fn judge_data_loss(
    trial: &Trial,
    run: &TrialRun,
    job: usize,
    outcome: &SortOutcome,
) -> Option<String> {
    if outcome.lost.is_empty() {
        return Some("data loss is reported without the owner of the lost data".into());
    }
    // A loop of the program's own keeps its states, also those of a failed rank's node, from job to job.
    let mut lost = outcome.lost.iter().filter(|_| !trial.custom_loop);
    if let Some(rank) = lost.find(|rank| outcome.absent.contains(rank)) {
        return Some(format!(
            "the data of rank {rank} are reported as lost, although it had none in this job"
        ));
    }
    if outcome.failed.len() == outcome.absent.len() {
        return Some("data loss is reported, although no rank failed in this job".into());
    }
    let partitioned =
        |failure: &Failure| failure.mode == FailureMode::Partition && trial.quorum <= 1;
    let unsynced = trial.power && !trial.sync;
    let may_lose_files = trial.store == StoreKind::Directory
        && (trial.damage || unsynced || trial.failures.iter().any(partitioned));
    if may_lose_files && trial.spares > 0 {
        // The file of a node that moves from a survivor to its home, a spare, may be lost.
        return None;
    }
    // The data of an excluded rank may be lost with their executor.
    let is_survivor = |rank: &&Rank| !outcome.failed.contains(rank);
    let survivor = outcome.lost.iter().find(is_survivor);
    if let Some(rank) = survivor.filter(|_| trial.exclusions.is_empty()) {
        return Some(format!(
            "the data of rank {rank} are reported as lost, although it survives"
        ));
    }
    if may_lose_files {
        // A partitioned rank that sees itself as the last survivor removes all files at its end.
        return None;
    }
    if trial.store == StoreKind::None && trial.protects > 1 {
        // A sort can end although a rank that had handed its block over has failed, and the next one misses its input.
        return None;
    }
    let is_recomputable = trial.is_recomputable();
    if trial.store == StoreKind::Reload && trial.recoveries > 0 && !is_recomputable {
        // The result of such a sort cannot be made again from inputs.
        return None;
    }
    let Some(known) = &outcome.failed_at_commit else {
        return judge_early_loss(trial, run, job, outcome);
    };
    // A result that is not made again from inputs is one of blocks.
    let has_blocks =
        !is_recomputable || matches!(trial.store, StoreKind::Parity(_) | StoreKind::Versions(_));
    let is_of_result = trial.recoveries > 0 && has_blocks;
    if trial.reloads && trial.arrays == 0 && !is_of_result {
        return Some("data loss is reported, although inputs can be loaded again".into());
    }
    let at_once = outcome.failed.len() - known.len();
    // States of a loop of the program's own are replicas.
    if let (StoreKind::Parity(shape), false) = (trial.store, trial.custom_loop) {
        return judge_loss_of_parity(trial, shape, known, outcome);
    }
    let protected = match trial.store {
        StoreKind::Directory | StoreKind::Reload => trial.ranks,
        store => store.replicas().unwrap_or(0),
    };
    if at_once <= protected {
        return Some(format!(
            "data loss is reported, although only {at_once} ranks failed at once"
        ));
    }
    let copies = trial.store.replicas()?;
    judge_loss_of_copies(trial, copies, known, outcome)
}

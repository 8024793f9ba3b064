//! The oracle's checks of the results of trees, and of the refusal of a tree.

use super::oracle::{Living, has_input};
use super::{SortOutcome, TestRecord, TreeUse, Trial};
use ftsort_core::members::{Members, Rank, RankSet};

/// Checks that the result of a tree is on the rank at which the tree ends and nowhere else, or, for a broadcast, on all
/// ranks.
pub fn judge_tree(
    trial: &Trial,
    job: usize,
    living: &Living<'_>,
    first: &SortOutcome,
) -> Option<String> {
    let on_all_ranks = trial.tree == Some(TreeUse::Broadcast);
    let root = trial.tree_request().sink.unwrap_or(Rank(0));
    let present = Rank::all(trial.ranks).filter(|rank| has_input(first, *rank));
    let contributing = present.filter(|rank| !on_all_ranks || *rank == root);
    let records = contributing.flat_map(|rank| trial.sorted_records(job, rank));
    let mut expected: Vec<TestRecord> = records.collect();
    if trial.tree == Some(TreeUse::Merge) {
        expected.sort_by_key(|record| record.key);
    }
    let holder = first.result.as_ref().ok()?.total;
    for (rank, outcome) in living {
        let result = outcome.result.as_ref().ok()?;
        if result.total != holder {
            return Some(format!(
                "the tree ends at rank {} according to rank {rank}, and at rank {holder} according to another",
                result.total
            ));
        }
        let has_result = on_all_ranks || result.total == u64::from(rank.0);
        match &result.blocks[..] {
            [] if !has_result => {}
            [block] if has_result && block.records == expected => {}
            [block] if has_result => {
                return Some(format!(
                    "rank {rank} has {} records that differ from the expected {}",
                    block.records.len(),
                    expected.len()
                ));
            }
            blocks => return Some(format!("rank {rank} has {} results", blocks.len())),
        }
    }
    None
}

/// Checks whether a tree may be refused. This holds if the faulty links separate some ranks, for some set of the
/// failed ranks, or if the root of a broadcast had failed before.
pub fn may_refuse(trial: &Trial, outcome: &SortOutcome) -> bool {
    let Some(tree) = trial.tree else { return false };
    let request = trial.tree_request();
    let root = request.sink.unwrap_or(Rank(0));
    if tree == TreeUse::Broadcast && !has_input(outcome, root) {
        return true;
    }
    if trial.spares > 0 {
        // The executors depend on the order of the failures.
        return !request.links.is_empty();
    }
    // It is not known which of the later failures were known when the tree was chosen.
    let absent = &outcome.absent;
    let late = outcome.failed.iter().filter(|rank| !absent.contains(rank));
    let late: Vec<Rank> = late.copied().collect();
    if late.len() > MAX_LATE {
        return !request.links.is_empty();
    }
    (0..1_u32 << late.len()).any(|subset| {
        let chosen = (0..).zip(&late).filter(|(bit, _)| subset >> bit & 1 == 1);
        let failed = absent.iter().chain(chosen.map(|(_, rank)| rank));
        let failed = RankSet::of(trial.ranks, failed.copied());
        let survivor = Rank::all(trial.ranks).find(|rank| !failed.contains(*rank));
        let Some(survivor) = survivor else {
            return false;
        };
        let mut members = Members::new(survivor, trial.ranks);
        members.absorb(&failed);
        let faults = request.faults(&members);
        faults.largest_component().len() < faults.len()
    })
}

/// The number of failures of which all subsets are tried.
const MAX_LATE: usize = 8;

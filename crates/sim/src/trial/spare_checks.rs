//! Checks of the results of trials with spares. They use the definition of spares alone, and not the code that assigns
//! nodes to ranks.

use super::oracle::{BY_SAMPLES, MAX_JUDGED, share_tolerance};
use super::{RankResult, SortOutcome, Trial};
use ftsort_core::members::{Members, Rank, RankSet};
use ftsort_core::sort::{Method, Shape};

/// The members as the survivors know them after a job.
pub fn members_after(trial: &Trial, survivor: Rank, outcome: &SortOutcome) -> Members {
    let mut members = new_members(trial, survivor);
    for (_, failed) in &outcome.agreed_failures {
        members.absorb(&RankSet::of(trial.ranks, failed.iter().copied()));
    }
    members
}

/// The members before any failure.
pub fn new_members(trial: &Trial, survivor: Rank) -> Members {
    let mut members = Members::new(survivor, trial.ranks);
    members.set_spares(trial.spares.min(trial.ranks - 1));
    let hosts = Rank::all(trial.ranks).map(|rank| trial.host(rank));
    members.set_hosts(hosts.collect::<Vec<u64>>());
    members
}

/// The sorts that divide records evenly among the working nodes, whatever the input is.
fn is_balanced(trial: &Trial) -> bool {
    let is_bitonic = trial.algorithm == Method::Bitonic(Shape::Any);
    trial.dense || is_bitonic || BY_SAMPLES.contains(&trial.algorithm)
}

/// Checks that no survivor carries double load while not more ranks have failed than there are spares: each has at most
/// one block with records, and a share as if no rank had failed. Both hold for the job in which a rank fails, too.
pub fn judge_loads(
    trial: &Trial,
    results: &[(Rank, &RankResult)],
    first: &SortOutcome,
    total: usize,
) -> Option<String> {
    let undisturbed = trial.exclusions.is_empty()
        && trial.speeds.is_empty()
        && trial.corruptions.is_empty()
        && first.excluded.iter().all(|rank| is_spare(trial, *rank));
    let enough = first.failed.len() <= trial.spares && trial.spares < trial.ranks;
    if trial.spares == 0 || trial.custom_loop || !undisturbed || !enough || !is_balanced(trial) {
        return None;
    }
    let working = trial.ranks - trial.spares;
    let most = total / working + share_tolerance(trial, working, total);
    let exact = trial.algorithm != Method::Bitonic(Shape::Any) && total <= MAX_JUDGED;
    results.iter().find_map(|(rank, result)| {
        let blocks = result.blocks.iter();
        let full: Vec<_> = blocks.filter(|block| !block.records.is_empty()).collect();
        let records: usize = full.iter().map(|block| block.records.len()).sum();
        if full.len() > 1 {
            let nodes: Vec<_> = full.iter().map(|block| block.node).collect();
            return Some(format!(
                "rank {rank} has the records of nodes {nodes:?}, although there were enough spares"
            ));
        }
        (exact && records > most).then(|| {
            format!(
                "rank {rank} has {records} records of {total}, although there were enough spares"
            )
        })
    })
}

/// Whether the rank is one of the spares.
pub fn is_spare(trial: &Trial, rank: Rank) -> bool {
    rank.index() + trial.spares >= trial.ranks
}

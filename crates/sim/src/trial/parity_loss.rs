//! The oracle's knowledge of the ranks that parity groups can lose.

use super::spare_checks::new_members;
use super::{SortOutcome, Trial};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::store::parity::{ParityShape, grouping};

/// Checks that some parity group has lost more ranks since the last commit than it has shares. `known`: the ranks that
/// had failed when a commit was last observed.
pub(super) fn judge_loss_of_parity(
    trial: &Trial,
    shape: ParityShape,
    known: &[Rank],
    outcome: &SortOutcome,
) -> Option<String> {
    let blocks_may_be_elsewhere = !trial.is_recomputable() || !trial.exclusions.is_empty();
    if trial.protects > 1 && blocks_may_be_elsewhere && outcome.failed.len() > shape.shares {
        // The first sort can end although an input is lost, if the blocks of its versions are not, as empty ones and those
        // of an excluded rank.
        return None;
    }
    let ranks = |ranks: &[Rank]| RankSet::of(trial.ranks, ranks.iter().copied());
    let (known, failed) = (ranks(known), ranks(&outcome.failed));
    let is_beyond = |known: &RankSet, failed: &RankSet| {
        let groups = groups_without(trial, shape, known, outcome);
        groups.iter().any(|group| {
            let lost = group.iter().filter(|rank| failed.contains(**rank)).count();
            lost > shape.shares.min(group.len() - 1)
        })
    };
    if is_beyond(&known, &failed) {
        return None;
    }
    // An executor that gets a node before the inputs are committed gets its input, too.
    let moves_blocks =
        !trial.speeds.is_empty() || trial.exclusions.iter().any(|change| change.commit > 1);
    if moves_blocks {
        // Ranks that fail between two commits may be told by several agreements.
        let earlier = outcome.failed_at_earlier_commits.iter();
        let mut before = ranks(&outcome.absent);
        for after in earlier.map(|failed| ranks(failed)).chain([known.clone()]) {
            if is_beyond(&before, &after) {
                return None;
            }
            before = after;
        }
    }
    // A new placement brings blocks to other ranks.
    let places_anew = !trial.exclusions.is_empty() || !trial.speeds.is_empty();
    let mut before = ranks(&outcome.absent);
    for (_, more) in outcome.agreed_failures.iter().filter(|_| places_anew) {
        let mut after = before.clone();
        after.extend(&ranks(more));
        // The job goes on without an input if its block is elsewhere, and misses the input after the next failure.
        let went_on = is_beyond(&before, &after);
        // A recovery after a new placement is committed without an event that all ranks observe, and divides the
        // survivors into new groups.
        let is_later = known.iter().all(|rank| after.contains(rank));
        if went_on || is_later && is_beyond(&after, &failed) {
            return None;
        }
        before = after;
    }
    let groups = groups_without(trial, shape, &known, outcome);
    Some(format!(
        "data loss is reported, although no group of {groups:?} lost more ranks than it has shares"
    ))
}

/// Returns the parity groups of the ranks but the `known` failed ones.
fn groups_without(
    trial: &Trial,
    shape: ParityShape,
    known: &RankSet,
    outcome: &SortOutcome,
) -> Vec<Vec<Rank>> {
    let survivor = Rank::all(trial.ranks).find(|rank| !outcome.failed.contains(rank));
    let mut members = new_members(trial, survivor.unwrap_or(Rank(0)));
    members.absorb(known);
    grouping(&members, shape).groups
}

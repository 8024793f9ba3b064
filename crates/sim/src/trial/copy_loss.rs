//! The oracle's knowledge of the data that are lost although each has copies in other ranks' memory.

use super::spare_checks::new_members;
use super::{SortOutcome, StoreKind, Trial};
use ftsort_core::engine::holders;
use ftsort_core::members::{Members, Rank, RankSet};

/// Checks that some rank has failed together with all ranks that held its data, or data that were moved to it, since the
/// last commit. `known`: the ranks that had failed when a commit was last observed.
pub(super) fn judge_loss_of_copies(
    trial: &Trial,
    copies: usize,
    known: &[Rank],
    outcome: &SortOutcome,
) -> Option<String> {
    if !trial.exclusions.is_empty() || !trial.speeds.is_empty() {
        // The holders depend on the rounds in which ranks were excluded.
        return None;
    }
    let has_blocks = has_blocks(trial);
    if !has_blocks && trial.recoveries > 0 {
        // After its job a rank has only the pieces of its input that were for the holders of its copies.
        return None;
    }
    let survivor = Rank::all(trial.ranks).find(|rank| !outcome.failed.contains(rank))?;
    let mut members = new_members(trial, survivor);
    let failed = RankSet::of(trial.ranks, outcome.failed.iter().copied());
    let mut is_possible = false;
    for (_, more) in &outcome.agreed_failures {
        let mut after = members.faulty().clone();
        after.extend(&RankSet::of(trial.ranks, more.iter().copied()));
        // The job goes on without an input if its block is elsewhere, and misses the input after the next failure.
        let went_on = loses(&members, &after, (copies, has_blocks));
        let is_later = known.iter().all(|rank| members.is_faulty(*rank));
        is_possible |= went_on || is_later && loses(&members, &failed, (copies, has_blocks));
        members.absorb(&after);
    }
    (!is_possible).then(|| {
        format!(
            "data loss is reported, although a holder of the data of each of {:?} survives",
            outcome.failed
        )
    })
}

/// Whether the blocks of all nodes are copied in each round, and not only the inputs.
fn has_blocks(trial: &Trial) -> bool {
    !trial.is_recomputable() || trial.custom_loop || matches!(trial.store, StoreKind::Versions(_))
}

/// Whether all holders of some data have failed, if the data had the places that these members give them. `has_blocks`:
/// nodes without a rank of their own have data, too.
fn loses(members: &Members, failed: &RankSet, (copies, has_blocks): (usize, bool)) -> bool {
    let mut nodes = members.cube().nodes();
    nodes.any(|node| {
        let has_data = has_blocks || (node.0 as usize) < members.ranks();
        let holders = holders(node, members, members.membership(), copies);
        has_data && holders.iter().all(|holder| failed.contains(*holder))
    })
}

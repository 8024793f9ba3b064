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
    let has_blocks = has_blocks(trial);
    let copies = Copies {
        number: copies,
        of_blocks: has_blocks,
        // After its job a rank has only the pieces of its input that were for the holders of its copies.
        of_pieces: !has_blocks && trial.recoveries > 0,
    };
    let placements = possible_exclusions(trial);
    let survivor = Rank::all(trial.ranks).find(|rank| !outcome.failed.contains(rank))?;
    let mut members = new_members(trial, survivor);
    let failed = RankSet::of(trial.ranks, outcome.failed.iter().copied());
    let mut is_possible = false;
    for (_, more) in &outcome.agreed_failures {
        let mut after = members.faulty().clone();
        after.extend(&RankSet::of(trial.ranks, more.iter().copied()));
        if more.iter().all(|rank| outcome.absent.contains(rank)) {
            // A failure before this job lost no data of it.
            members.absorb(&after);
            continue;
        }
        let is_later = known.iter().all(|rank| members.is_faulty(*rank));
        is_possible |= placements.iter().any(|excluded| {
            let mut placed = members.clone();
            placed.exclude(excluded);
            // The job goes on without an input if its block is elsewhere, and misses the input after the next failure.
            let went_on = copies.are_lost(&placed, &after);
            went_on || is_later && copies.are_lost(&placed, &failed)
        });
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

/// The sets of ranks that may be excluded as slow at some time: the ranks that are observed to change can be slow or not.
fn possible_exclusions(trial: &Trial) -> Vec<RankSet> {
    let mut ranks: Vec<Rank> = trial.exclusions.iter().map(|change| change.rank).collect();
    ranks.sort();
    ranks.dedup();
    let subset = |chosen: u32| {
        let chosen = (0..).zip(&ranks).filter(|(bit, _)| chosen >> bit & 1 == 1);
        RankSet::of(trial.ranks, chosen.map(|(_, rank)| *rank))
    };
    (0..1 << ranks.len()).map(subset).collect()
}

/// The data that have copies.
struct Copies {
    /// The number of copies of each.
    number: usize,
    /// Whether the blocks of all nodes have copies, also of nodes without a rank of their own, and not only the inputs.
    of_blocks: bool,
    /// Whether an owner has given its input up, except for the pieces that were for the holders of its copies.
    of_pieces: bool,
}

impl Copies {
    /// Whether all holders of some data have failed, if the data had the places that these members give them.
    fn are_lost(&self, members: &Members, failed: &RankSet) -> bool {
        let nodes = members.cube().nodes();
        let mut nodes = nodes.filter(|node| self.of_blocks || (node.0 as usize) < members.ranks());
        nodes.any(|node| {
            let holders = holders(node, members, members.membership(), self.number);
            let Some((owner, others)) = holders.split_first() else {
                return false;
            };
            let others_failed = others.iter().all(|holder| failed.contains(*holder));
            // Of the pieces that failed ranks received, the owner has only those for the holders.
            let is_missing =
                |receiver: &Rank| failed.contains(*receiver) && !others.contains(receiver);
            let receivers = members.membership().executing();
            let misses_pieces = || receivers.iter().any(|receiver| is_missing(&receiver));
            others_failed && (failed.contains(*owner) || self.of_pieces && misses_pieces())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::error::{Error, Status};

    #[test]
    fn failures_before_a_job_do_not_excuse_a_loss_in_it() {
        let trial = Trial {
            ranks: 8,
            ..Trial::default()
        };
        let ranks = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect::<Vec<Rank>>();
        let judged = |absent: &[u32], lost: u32| {
            let outcome = SortOutcome {
                result: Err(Error::new(Status::DataLost, "")),
                absent: ranks(absent),
                idle_spares: Vec::new(),
                agreed_failures: vec![(1, ranks(&[0, 1])), (2, ranks(&[3, 6]))],
                failed: ranks(&[0, 1, 3, 6]),
                failed_at_commit: Some(ranks(&[0, 1])),
                failed_at_earlier_commits: Vec::new(),
                lost: ranks(&[lost]),
                excluded: Vec::new(),
                weights: Vec::new(),
            };
            judge_loss_of_copies(&trial, 1, &ranks(&[0, 1]), &outcome)
        };
        assert_eq!(judged(&[], 0), None);
        let wrong = judged(&[0, 1], 3).unwrap();
        assert!(wrong.contains("a holder of the data"), "{wrong}");
    }
}

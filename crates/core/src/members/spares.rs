//! Spare ranks, and the ranks that take over from failed ranks.
//!
//! Goes beyond the papers, in which the cover of a failed rank's node executes two nodes from then on. Pure: the
//! result follows from the sequence of agreed failures alone, so that all survivors come to the same one. Must
//! never depend on exclusions, which a placement policy takes back.

use std::collections::BTreeMap;

use super::{Members, Rank, RankSet};
use crate::mutants::{Mutant, mutant};

/// The spares of a group: the ranks from `working` on.
#[derive(Clone, Debug)]
pub(super) struct Spares {
    /// The number of ranks that have a node at first.
    working: usize,
    /// The live spares that have not taken over yet.
    idle: RankSet,
    /// The spare that took over from a failed rank. A spare that took over and failed has an entry too.
    successors: BTreeMap<Rank, Rank>,
}

impl Spares {
    /// The `spares` highest of `ranks` ranks are idle spares.
    pub fn new(ranks: usize, spares: usize) -> Spares {
        let working = ranks.saturating_sub(spares);
        let mut idle = RankSet::all(ranks);
        idle.retain_range(working..ranks);
        Spares {
            working,
            idle,
            successors: BTreeMap::new(),
        }
    }

    /// The number of ranks that have a node at first.
    pub fn working(&self) -> usize {
        self.working
    }

    /// The live spares that have not taken over yet.
    pub fn idle(&self) -> &RankSet {
        &self.idle
    }

    /// The lowest idle spare takes over from each rank that failed while it had a node, in the order of the list.
    /// `failed`: the ranks of one agreement, ascending.
    pub fn replace(&mut self, failed: &[Rank]) {
        let idle_before = self.idle.clone();
        if !mutant(Mutant::FailedSpareActivated) {
            failed.iter().for_each(|rank| self.idle.remove(*rank));
        }
        for rank in failed.iter().filter(|rank| !idle_before.contains(**rank)) {
            let Some(spare) = self.idle.iter().next() else {
                break;
            };
            self.idle.remove(spare);
            self.successors.insert(*rank, spare);
        }
        failed.iter().for_each(|rank| self.idle.remove(*rank));
    }

    /// The failed ranks from which spares took over, ascending.
    pub fn replaced(&self) -> impl Iterator<Item = Rank> + '_ {
        self.successors.keys().copied()
    }

    /// Returns the rank that has taken over from this rank, and from that one in turn; the rank itself if none has.
    pub fn last_successor(&self, rank: Rank) -> Rank {
        let next = |rank: &Rank| self.successors.get(rank).copied();
        std::iter::successors(Some(rank), next)
            .last()
            .unwrap_or(rank)
    }

    /// Breaks the rules at the end of a job, where a mutant says so.
    pub fn end_job(&mut self) {
        if mutant(Mutant::SparesReadmitted) {
            self.idle = RankSet::of(0, []);
        }
        if mutant(Mutant::SuccessorsForgotten) {
            self.successors.clear();
        }
    }
}

impl Members {
    /// Returns whether a rank has had a node: all have but spares that have not taken over.
    pub fn has_had_node(&self, rank: Rank) -> bool {
        let mut successors = self.spares.successors.values();
        rank.index() < self.spares.working || successors.any(|spare| *spare == rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vcube::Node;

    fn idle(spares: &Spares) -> Vec<u32> {
        spares.idle().iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn the_lowest_spare_takes_over_and_can_fail_itself() {
        let mut spares = Spares::new(7, 3);
        assert_eq!((spares.working(), idle(&spares)), (4, vec![4, 5, 6]));
        spares.replace(&[Rank(2)]);
        assert_eq!(spares.last_successor(Rank(2)), Rank(4));
        assert_eq!(idle(&spares), [5, 6]);
        // A spare that has taken over fails, together with an idle one.
        spares.replace(&[Rank(4), Rank(5)]);
        assert_eq!(spares.last_successor(Rank(2)), Rank(6));
        assert_eq!(spares.last_successor(Rank(4)), Rank(6));
        assert_eq!(idle(&spares), []);
        // No spare is left.
        spares.replace(&[Rank(0)]);
        assert_eq!(spares.last_successor(Rank(0)), Rank(0));
        assert_eq!(spares.last_successor(Rank(1)), Rank(1));
    }

    /// A rank may fail while the group is created, before the number of spares is agreed on.
    #[test]
    fn a_spare_takes_over_from_a_rank_that_failed_before() {
        let mut members = Members::new(Rank(0), 4);
        members.absorb(&RankSet::of(4, [Rank(1)]));
        members.set_spares(1);
        assert_eq!(members.executor(Node(1)), Rank(3));
        assert!(!members.is_idle_spare(Rank(3)));
    }

    #[test]
    fn ranks_that_fail_together_are_replaced_in_their_order() {
        let mut spares = Spares::new(6, 2);
        spares.replace(&[Rank(1), Rank(3)]);
        assert_eq!(spares.last_successor(Rank(1)), Rank(4));
        assert_eq!(spares.last_successor(Rank(3)), Rank(5));
    }
}

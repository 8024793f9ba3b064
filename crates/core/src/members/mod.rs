//! Membership of a group: ranks, the nodes that they execute, the failed ranks, and the epoch.
//!
//! A rank is a process's rank in the communicator given to `ftsort_init` and never changes; its rank in a
//! shrunk communicator is a [`Slot`], a different type on purpose. Pure: it learns failures from the
//! transport's agreement, and must never detect them by itself.

mod membership;
mod rank;
mod spares;

pub use membership::Membership;
pub use rank::{Rank, RankSet, Slot};

use std::sync::Arc;

use self::spares::Spares;
use crate::mutants::{Mutant, mutant};
use crate::vcube::{Node, NodeSet, VCube};
use ftsort_kernels::error::{Error, Result, Status};

/// The weight of a rank at full speed: the unit of shares.
pub const FULL_WEIGHT: u8 = 16;

/// The membership as all survivors agreed.
#[derive(Clone, Debug)]
pub struct Members {
    me: Rank,
    ranks: usize,
    cube: VCube,
    faulty: RankSet,
    spares: Spares,
    /// Live ranks that were excluded for corruption for the rest of a sort.
    stopped: RankSet,
    /// Ranks that a placement policy excludes, as long as others are left.
    excluded: RankSet,
    /// Each rank's share of the work, up to `FULL_WEIGHT`, as a placement policy wants it; empty: all have
    /// `FULL_WEIGHT`.
    weights: Vec<u8>,
    membership: Membership,
    epoch: u32,
    /// The host of each rank; empty: unknown, and treated as if each rank were on its own host.
    hosts: Arc<[u64]>,
    one_host: bool,
    /// The number of survivors on this rank's host.
    living_here: usize,
    /// The number of processors that every rank may use, if all are on one host.
    processors: usize,
    /// The number of ranks that must be left.
    quorum: usize,
}

impl Members {
    /// A group of `ranks` live ranks. Nodes without a home count as faulty from the start.
    pub fn new(me: Rank, ranks: usize) -> Members {
        let cube = VCube::for_ranks(ranks);
        let mut members = Members {
            me,
            ranks,
            membership: Membership {
                faulty: Arc::new(NodeSet::new(cube.len())),
                idle: Arc::new(NodeSet::new(cube.len())),
                reserve: Arc::new(NodeSet::new(cube.len())),
                executing: Arc::new(RankSet::new(ranks)),
                nodes: cube.len() as u32,
                moved: Arc::default(),
            },
            cube,
            faulty: RankSet::new(ranks),
            spares: Spares::new(ranks, 0),
            stopped: RankSet::new(ranks),
            excluded: RankSet::new(ranks),
            weights: Vec::new(),
            epoch: 0,
            hosts: Arc::new([]),
            one_host: false,
            living_here: 1,
            processors: 1,
            quorum: 1,
        };
        members.assign_nodes();
        members
    }

    /// Makes the highest ranks spares: they execute no node until they take over from failed ranks. Ranks that have
    /// failed already count as if they failed now. The same on all ranks; before the first job.
    pub fn set_spares(&mut self, spares: usize) {
        self.spares = Spares::new(self.ranks, spares);
        let failed: Vec<Rank> = self.faulty.iter().collect();
        self.spares.replace(&failed);
        self.assign_nodes();
    }

    /// Returns the ranks that may execute nodes. If no rank would be left, the ranks that a policy excludes are
    /// readmitted, and as a last resort those excluded for corruption. At least one survivor is no idle spare,
    /// because each failed rank that was none activates one.
    fn ranks_to_execute(&self) -> RankSet {
        let apart: [&[&RankSet]; 3] = [&[&self.stopped, &self.excluded], &[&self.stopped], &[]];
        let able = self.survivors_but(self.spares.idle());
        let executing = |apart: &[&RankSet]| -> RankSet {
            let mut executing = able.clone();
            apart.iter().for_each(|set| executing.remove_all(set));
            executing
        };
        let mut choices = apart.into_iter().map(executing);
        let choice = choices.find(|some| !some.is_empty());
        choice.unwrap_or_else(|| RankSet::new(self.ranks))
    }

    /// Recomputes the executor of each node. Takes time for the nodes that their home does not execute; the others
    /// are only bits in sets.
    fn assign_nodes(&mut self) {
        let executing = self.ranks_to_execute();
        // The rank that has the node, if it executes nodes.
        let holder = |node: Node| {
            let home = Some(Rank(node.0)).filter(|home| home.index() < self.ranks)?;
            Some(self.spares.last_successor(home)).filter(|rank| executing.contains(*rank))
        };
        let faulty = self.nodes_without_share(&executing, holder);
        let executor = |node: Node| {
            let cover = || self.cube.cover(node, &faulty).and_then(holder);
            // This rank is alive, so there always is one.
            holder(node).or_else(cover).unwrap_or(self.me)
        };
        let replaced = self.spares.replaced().map(Rank::home);
        let candidates = faulty.iter().chain(replaced);
        let moved = candidates.map(|node| (node, executor(node)));
        let moved = moved.filter(|(node, rank)| rank.home() != *node).collect();
        let mut idle = NodeSet::new(self.cube.len());
        let mut reserve = NodeSet::new(self.cube.len());
        for rank in self.survivors_but(&executing).iter() {
            if self.is_idle_spare(rank) {
                idle.insert(rank.home());
            } else if !self.stopped.contains(rank) {
                reserve.insert(rank.home());
            }
        }
        self.membership = Membership {
            faulty: Arc::new(faulty),
            idle: Arc::new(idle),
            reserve: Arc::new(reserve),
            executing: Arc::new(executing),
            nodes: self.cube.len() as u32,
            moved: Arc::new(moved),
        };
    }

    /// Returns the nodes that get no share of the records: those beyond the working ranks, and those without a
    /// holder.
    fn nodes_without_share(
        &self,
        executing: &RankSet,
        holder: impl Fn(Node) -> Option<Rank>,
    ) -> NodeSet {
        let mut faulty = NodeSet::all(self.cube.len());
        faulty.remove_below(executing, self.spares.working());
        for rank in self.spares.replaced() {
            if rank.index() < self.spares.working() && holder(rank.home()).is_some() {
                faulty.remove(rank.home());
            } else {
                faulty.insert(rank.home());
            }
        }
        faulty
    }

    /// The present snapshot of the membership.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// This process.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// The number of ranks at the start.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The cube of the ranks' nodes.
    pub fn cube(&self) -> &VCube {
        &self.cube
    }

    /// Sets the host of each rank: ranks with the same number are on the same host.
    pub fn set_hosts(&mut self, hosts: impl Into<Arc<[u64]>>) {
        self.hosts = hosts.into();
        let here = self.host(self.me);
        let is_here = |rank: &Rank| self.host(*rank) == here;
        self.living_here = self.survivors().filter(is_here).count();
        self.one_host = self.living_here == self.survivors().count();
    }

    /// Returns whether all ranks that had not failed when the hosts became known are on one host, as far as is known.
    pub fn is_one_host(&self) -> bool {
        self.one_host
    }

    /// The host of a rank, as a number that ranks of the same host share.
    pub fn host(&self, rank: Rank) -> u64 {
        let host = self.hosts.get(rank.index()).copied();
        host.unwrap_or(u64::from(rank.0))
    }

    /// Sets the number of ranks that must be left for the group to continue.
    pub fn set_quorum(&mut self, quorum: usize) {
        self.quorum = quorum;
    }

    /// Returns `Status::Excluded` if fewer ranks are left than required.
    pub fn check_quorum(&self) -> Result<()> {
        let left = self.ranks - self.faulty.len();
        if left >= self.quorum {
            Ok(())
        } else {
            Err(Error::new(
                Status::Excluded,
                format!(
                    "{left} of {} ranks are left, as far as this one can see; {} must be",
                    self.ranks, self.quorum
                ),
            ))
        }
    }

    /// Sets the number of processors that every rank may use.
    pub fn set_processors(&mut self, processors: usize) {
        self.processors = processors.max(1);
    }

    /// The number of ranks that share a processor. It counts as half of all ranks if they are on several hosts, where they
    /// share links, and is at most that: a rank may see a processor of its own only.
    pub fn ranks_per_processor(&self) -> usize {
        let half = (self.ranks() / 2).max(1);
        let seen = if self.one_host { self.processors } else { 1 };
        self.ranks().div_ceil(seen).min(half)
    }

    /// The number of survivors on this rank's host, itself included.
    pub fn living_here(&self) -> usize {
        self.living_here
    }

    /// The number of recoveries and changes of executors so far.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The failed ranks.
    pub fn faulty(&self) -> &RankSet {
        &self.faulty
    }

    /// The nodes that get no share of the records.
    pub fn faulty_nodes(&self) -> &NodeSet {
        &self.membership.faulty
    }

    /// Excludes a live rank for corruption: it executes no node, unless it is the only one left. The epoch
    /// grows by one if the exclusion is new.
    pub fn excluded_for_corruption(&mut self, rank: Rank) {
        let before = self.membership.clone();
        self.stopped.insert(rank);
        self.assign_nodes();
        self.epoch += u32::from(before != self.membership);
    }

    /// Returns whether a live rank was excluded for corruption.
    pub fn is_excluded_for_corruption(&self, rank: Rank) -> bool {
        self.stopped.contains(rank)
    }

    /// Excludes these ranks and readmits those that were excluded before, unless no other rank is left.
    /// Returns true if the executors change; then the epoch grows by one.
    pub fn exclude(&mut self, ranks: &RankSet) -> bool {
        let before = self.membership.clone();
        self.excluded = ranks.clone();
        self.assign_nodes();
        let changed = before != self.membership;
        self.epoch += u32::from(changed);
        changed
    }

    /// Excludes the survivors that this membership excludes, for the same reasons, and readmits all others.
    pub fn exclude_as(&mut self, membership: &Membership) {
        let is_reserve = |rank: &Rank| membership.reserve.contains(rank.home());
        let is_stopped = |rank: &Rank| {
            !membership.is_executing(*rank)
                && !membership.idle.contains(rank.home())
                && !is_reserve(rank)
        };
        let of = |excluded: &dyn Fn(&Rank) -> bool| {
            RankSet::of(self.ranks, self.survivors().filter(excluded))
        };
        let (stopped, reserve) = (of(&is_stopped), of(&is_reserve));
        self.stopped = stopped;
        self.exclude(&reserve);
    }

    /// The ranks of the last exclusion by a policy.
    pub fn excluded(&self) -> &RankSet {
        &self.excluded
    }

    /// Sets the shares of the ranks, in proportion to each other, where an algorithm supports shares. Ranks
    /// beyond the list, and all if it is empty, have `FULL_WEIGHT`.
    pub fn weigh(&mut self, weights: &[u8]) {
        let weights = weights.iter().take(self.ranks);
        self.weights = weights.map(|weight| FULL_WEIGHT.min(*weight)).collect();
    }

    /// Returns whether ranks may have other weights than `FULL_WEIGHT`.
    pub fn has_weights(&self) -> bool {
        !self.weights.is_empty()
    }

    /// The weight of a rank, as all have agreed.
    pub fn weight(&self, rank: Rank) -> u8 {
        let weight = self.weights.get(rank.index()).copied();
        weight.unwrap_or(FULL_WEIGHT)
    }

    /// The weights of all ranks, as all have agreed.
    pub fn weights(&self) -> Vec<u8> {
        Rank::all(self.ranks)
            .map(|rank| self.weight(rank))
            .collect()
    }

    /// Returns the survivors that are not in a set.
    pub fn survivors_but(&self, others: &RankSet) -> RankSet {
        let mut survivors = RankSet::all(self.ranks);
        survivors.remove_all(&self.faulty);
        survivors.remove_all(others);
        survivors
    }

    /// Returns the survivors that execute no node.
    pub fn survivors_without_nodes(&self) -> RankSet {
        self.survivors_but(&self.membership.executing)
    }

    /// The spares that are alive and have not taken over from failed ranks.
    pub fn idle_spares(&self) -> &RankSet {
        self.spares.idle()
    }

    /// Returns whether it is a live rank that executes no node.
    pub fn is_excluded(&self, rank: Rank) -> bool {
        !self.is_faulty(rank) && !self.membership.is_executing(rank)
    }

    /// Returns whether it is a spare that is alive and has not taken over from a failed rank.
    pub fn is_idle_spare(&self, rank: Rank) -> bool {
        self.spares.idle().contains(rank)
    }

    /// The ranks without an input of their own: those that have failed, and idle spares.
    pub fn without_input(&self) -> RankSet {
        let mut ranks = self.faulty.clone();
        ranks.extend(self.spares.idle());
        ranks
    }

    /// Returns the node for which this rank gets a share of the records: its home node, or that of the failed rank
    /// from which it took over. None for a rank that executes nothing.
    pub fn working_node(&self) -> Option<Node> {
        let mut nodes = self.my_nodes().into_iter();
        nodes.find(|node| !self.membership.faulty.contains(*node))
    }

    /// Readmits all live ranks that were excluded, with equal weights. Idle spares stay idle.
    pub fn readmit_all(&mut self) {
        self.spares.end_job();
        self.weigh(&[]);
        self.stopped = RankSet::new(self.ranks);
        self.exclude(&RankSet::new(self.ranks));
    }

    /// Returns whether the rank has failed.
    pub fn is_faulty(&self, rank: Rank) -> bool {
        self.faulty.contains(rank)
    }

    /// The survivors, ascending.
    pub fn survivors(&self) -> impl Iterator<Item = Rank> + '_ {
        Rank::all(self.ranks).filter(|rank| !self.faulty.contains(*rank))
    }

    /// The survivor with the smallest number.
    pub fn lowest_survivor(&self) -> Rank {
        self.survivors().next().unwrap_or(self.me)
    }

    /// The survivor with the smallest number that executes nodes.
    pub fn lowest_executor(&self) -> Rank {
        self.membership.executing.iter().next().unwrap_or(self.me)
    }

    /// The survivors that execute nodes.
    pub fn executing(&self) -> RankSet {
        RankSet::clone(&self.membership.executing)
    }

    /// Adds failed ranks; returns those that are new, ascending. The epoch grows by one if there are any.
    /// This rank itself is never counted, because it is running.
    pub fn absorb(&mut self, failed: &RankSet) -> Vec<Rank> {
        debug_assert!(!failed.contains(self.me));
        let mut newly_failed = Vec::new();
        let here = self.host(self.me);
        if mutant(Mutant::StaleExecutors) {
            self.assign_nodes();
        }
        for rank in failed.iter().filter(|rank| *rank != self.me) {
            if mutant(Mutant::OneFailureAtATime) && !newly_failed.is_empty() {
                break;
            }
            if self.faulty.insert(rank) {
                newly_failed.push(rank);
                self.living_here -= usize::from(self.host(rank) == here);
            }
        }
        self.spares.replace(&newly_failed);
        if !mutant(Mutant::StaleExecutors) {
            self.assign_nodes();
        }
        if !newly_failed.is_empty() {
            self.epoch += 1;
        }
        newly_failed
    }

    /// Returns the rank that executes a node: its home, the spare that took over from its home, or the rank that
    /// executes its cover.
    pub fn executor(&self, node: Node) -> Rank {
        self.membership.executor(node).unwrap_or(self.me)
    }

    /// Returns the rank that has taken over from this rank; the rank itself if none has.
    pub fn last_successor(&self, rank: Rank) -> Rank {
        self.spares.last_successor(rank)
    }

    /// Returns the nodes that a rank executes, ascending; none for a failed one.
    pub fn nodes_of(&self, rank: Rank) -> Vec<Node> {
        self.membership.nodes_of(rank)
    }

    /// Returns the nodes that this rank executes, ascending.
    pub fn my_nodes(&self) -> Vec<Node> {
        self.nodes_of(self.me)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nodes_without_a_home_rank_have_an_executor_from_the_start() {
        let members = Members::new(Rank(2), 3);
        assert_eq!(members.cube().len(), 4);
        assert_eq!(members.executor(Node(3)), Rank(2));
        assert_eq!(members.my_nodes(), [Node(2), Node(3)]);
        assert!(members.faulty().is_empty());
    }

    /// They share the memory of the host. The hosts of ranks that failed before are not known.
    #[test]
    fn the_survivors_on_the_host_of_a_rank_are_counted() {
        let mut members = Members::new(Rank(1), 5);
        members.set_hosts(vec![7, 8, 8, 8, 7]);
        members.absorb(&RankSet::of(5, [Rank(0), Rank(3)]));
        assert_eq!((members.living_here(), members.is_one_host()), (2, false));
        members.set_hosts(vec![0, 8, 8, 0, 8]);
        assert_eq!((members.living_here(), members.is_one_host()), (3, true));
    }

    #[test]
    fn places_in_a_set_are_consecutive() {
        let set = RankSet::of(6, [1, 4, 5].map(Rank));
        assert_eq!(set.place_of(Rank(4)), Some(1));
        assert_eq!(set.place_of(Rank(2)), None);
    }

    proptest! {
        #[test]
        fn survivors_execute_all_nodes(
            ranks in 1_usize..200,
            me: u32,
            failures in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..40), 0..6),
        ) {
            let me = Rank(me % ranks as u32);
            let mut members = Members::new(me, ranks);
            for wave in failures {
                let failed: Vec<Rank> = wave
                    .into_iter()
                    .map(|rank| Rank(rank % ranks as u32))
                    .filter(|rank| *rank != me)
                    .collect();
                let before = (members.epoch(), members.faulty().len());
                let newly_failed = members.absorb(&RankSet::of(ranks, failed));
                prop_assert_eq!(members.faulty().len(), before.1 + newly_failed.len());
                prop_assert_eq!(members.epoch(), before.0 + u32::from(!newly_failed.is_empty()));
            }
            let mut all: Vec<Node> = members.survivors().flat_map(|rank| members.nodes_of(rank)).collect();
            all.sort();
            prop_assert_eq!(all, members.cube().nodes().collect::<Vec<_>>());
            for failed in members.faulty().iter() {
                prop_assert!(members.nodes_of(failed).is_empty());
            }
            for rank in members.survivors() {
                prop_assert!(members.nodes_of(rank).contains(&rank.home()));
            }
        }

        #[test]
        fn every_node_has_an_executor_after_exclusions_and_failures(
            ranks in 1_usize..40,
            steps in prop::collection::vec((0_u32..4, prop::collection::vec(0_u32..40, 0..40)), 1..12),
        ) {
            let mut members = Members::new(Rank(0), ranks);
            for (action, some) in steps {
                let some = some.into_iter().filter(|rank| (*rank as usize) < ranks).map(Rank);
                match action {
                    0 => drop(members.absorb(&RankSet::of(ranks, some.filter(|rank| rank.0 > 0)))),
                    1 => drop(members.exclude(&RankSet::of(ranks, some))),
                    2 => some.for_each(|rank| members.excluded_for_corruption(rank)),
                    _ => members.readmit_all(),
                }
                let executing: Vec<Rank> = members.executing().iter().collect();
                prop_assert!(!executing.is_empty());
                prop_assert_eq!(executing[0], members.lowest_executor());
                let mut all: Vec<Node> = executing.iter().flat_map(|rank| members.nodes_of(*rank)).collect();
                all.sort();
                prop_assert_eq!(all, members.cube().nodes().collect::<Vec<_>>());
                let doubt = |one| if members.stopped.contains(one) { 2 } else { u8::from(members.excluded.contains(one)) };
                let least = members.survivors().map(doubt).min();
                prop_assert!(members.survivors().filter(|rank| Some(doubt(*rank)) == least).eq(executing));
            }
            members.readmit_all();
            prop_assert!(members.survivors().all(|rank| !members.is_excluded(rank)));
        }

        /// While not more ranks have failed than there are spares, each working node has an executor of its own, and a
        /// rank that executes nodes has one working node, whatever fails together.
        #[test]
        fn spares_replace_failed_ranks(
            ranks in 2_usize..40,
            spares in 0_usize..8,
            waves in prop::collection::vec(prop::collection::vec(0_u32..40, 0..4), 0..6),
        ) {
            let spares = spares.min(ranks - 1);
            let me = Rank(0);
            let mut members = Members::new(me, ranks);
            members.set_spares(spares);
            let working = ranks - spares;
            for wave in waves {
                let wave = wave.into_iter().filter(|rank| *rank > 0 && (*rank as usize) < ranks);
                members.absorb(&RankSet::of(ranks, wave.map(Rank)));
                members.readmit_all();
                let mut all: Vec<Node> = members.survivors().flat_map(|rank| members.nodes_of(rank)).collect();
                all.sort();
                prop_assert_eq!(all, members.cube().nodes().collect::<Vec<_>>());
                for rank in members.survivors() {
                    let nodes = members.nodes_of(rank);
                    prop_assert_eq!(nodes.is_empty(), members.is_idle_spare(rank));
                    prop_assert!(nodes.is_empty() || nodes.contains(&rank.home()));
                    let shares = nodes.iter().filter(|node| !members.faulty_nodes().contains(**node));
                    prop_assert_eq!(shares.count(), usize::from(!members.is_idle_spare(rank)));
                }
                let with_share = members.cube().len() - members.faulty_nodes().len();
                let with_node = members.survivors().filter(|rank| !members.is_idle_spare(*rank)).count();
                prop_assert_eq!(with_share, with_node);
                if members.faulty().len() <= spares {
                    prop_assert_eq!(with_share, working);
                }
            }
        }

        #[test]
        fn decodes_an_encoded_set(ranks in 1_usize..200, members: Vec<u32>) {
            let members = members.into_iter().map(|rank| Rank(rank % ranks as u32));
            let set = RankSet::of(ranks, members);
            let bytes = set.to_bytes();
            prop_assert_eq!(bytes.len(), RankSet::new(ranks).to_bytes().len());
            prop_assert_eq!(RankSet::from_bytes(ranks, &bytes), set);
        }

        #[test]
        fn fingerprints_of_different_sets_differ(ranks in 1_usize..200, one: u32, other: u32) {
            let set = |rank: u32| RankSet::of(ranks, [Rank(rank % ranks as u32)]);
            let equal = one % ranks as u32 == other % ranks as u32;
            prop_assert_eq!(set(one).fingerprint() == set(other).fingerprint(), equal);
        }
    }
}

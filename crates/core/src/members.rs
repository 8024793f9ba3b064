//! Membership of a group: ranks, the nodes that they execute, the failed ranks, and the epoch.
//!
//! A rank is a process's rank in the communicator given to `ftsort_init` and never changes; its rank in a
//! shrunk communicator is a [`Slot`], a different type on purpose. Pure: it learns failures from the
//! transport's agreement, and must never detect them by itself.

use std::collections::BTreeMap;
use std::fmt;

use twox_hash::XxHash3_64;

use crate::mutants::{Mutant, mutant};
use crate::vcube::{Node, NodeSet, VCube};
use ftsort_kernels::bits::Bits;
use ftsort_kernels::error::{Error, Result, Status};

/// A process, by its rank in the communicator given to `ftsort_init`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// Returns all ranks of a group of `ranks` ranks, ascending.
    pub fn all(ranks: usize) -> impl Iterator<Item = Rank> {
        (0..ranks as u32).map(Rank)
    }

    /// The rank as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The node that has this rank as its home.
    pub fn home(self) -> Node {
        Node(self.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A process, by its rank in a shrunk communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// A set of ranks of one group, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankSet(Bits);

impl RankSet {
    /// The empty set, for a group of `ranks` ranks.
    pub fn new(ranks: usize) -> RankSet {
        RankSet(Bits::new(ranks))
    }

    /// The set of these ranks.
    pub fn from_ranks(ranks: usize, members: impl IntoIterator<Item = Rank>) -> RankSet {
        let mut set = RankSet::new(ranks);
        for rank in members {
            set.insert(rank);
        }
        set
    }

    /// The number of ranks of the group.
    pub fn ranks(&self) -> usize {
        self.0.length()
    }

    /// Adds a rank; false if it was in the set.
    ///
    /// # Panics
    ///
    /// If the group has no such rank.
    pub fn insert(&mut self, rank: Rank) -> bool {
        self.0.insert(rank.index())
    }

    /// Removes a rank.
    pub fn remove(&mut self, rank: Rank) {
        self.0.remove(rank.index());
    }

    /// Returns whether the rank is in the set.
    pub fn contains(&self, rank: Rank) -> bool {
        self.0.contains(rank.index())
    }

    /// The number of ranks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ranks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.0.iter().map(|index| Rank(index as u32))
    }

    /// Adds all ranks of another set of the same group.
    pub fn extend(&mut self, other: &RankSet) {
        for rank in other.iter() {
            self.insert(rank);
        }
    }

    /// Encodes the set with one bit for each rank; all sets of a group have the same size.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// Decodes a set that [`RankSet::to_bytes`] made; ranks that the group does not have are ignored.
    pub fn from_bytes(ranks: usize, bytes: &[u8]) -> RankSet {
        RankSet(Bits::from_bytes(ranks, bytes))
    }

    /// Returns a number that is the same for equal sets and rarely the same for others; each 16 bits of it
    /// can be used alone.
    pub fn fingerprint(&self) -> u32 {
        self.hash() as u32
    }

    /// Returns a hash of the set.
    pub fn hash(&self) -> u64 {
        XxHash3_64::oneshot(&self.to_bytes())
    }
}

/// The weight of a rank at full speed: the unit of shares.
pub const FULL_WEIGHT: u8 = 16;

/// A snapshot of the membership: the nodes with an executor of their own, and the ranks that could keep
/// copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The nodes with a home that has failed or executes nothing, and the nodes without a home.
    pub faulty: NodeSet,
    /// The faulty nodes with a home that is alive and only excluded.
    pub reserve: NodeSet,
}

/// The membership as all survivors agreed.
#[derive(Clone, Debug)]
pub struct Members {
    me: Rank,
    ranks: usize,
    cube: VCube,
    faulty: RankSet,
    /// Live ranks that were excluded for corruption for the rest of a sort.
    stopped: RankSet,
    /// Ranks that a placement policy excludes, as long as others are left.
    excluded: RankSet,
    /// Each rank's share of the work, up to `FULL_WEIGHT`, as a placement policy wants it.
    weights: Vec<u8>,
    membership: Membership,
    epoch: u32,
    /// The host of each rank; empty: unknown, and treated as if each rank were on its own host.
    hosts: Vec<u64>,
    one_host: bool,
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
                faulty: NodeSet::new(cube.len()),
                reserve: NodeSet::new(cube.len()),
            },
            cube,
            faulty: RankSet::new(ranks),
            stopped: RankSet::new(ranks),
            excluded: RankSet::new(ranks),
            weights: vec![FULL_WEIGHT; ranks],
            epoch: 0,
            hosts: Vec::new(),
            one_host: false,
            quorum: 1,
        };
        members.assign_nodes();
        members
    }

    /// Recomputes the faulty nodes. If no rank would be left to execute nodes, the ranks that a policy
    /// excludes are readmitted, and as a last resort those excluded for corruption.
    fn assign_nodes(&mut self) {
        let apart: [&[&RankSet]; 3] = [&[&self.stopped, &self.excluded], &[&self.stopped], &[]];
        let executing = |apart: &[&RankSet]| -> Vec<Rank> {
            let idle = |rank: &Rank| apart.iter().any(|set| set.contains(*rank));
            self.survivors().filter(|rank| !idle(rank)).collect()
        };
        let executing = apart.into_iter().map(executing);
        let executing = executing.into_iter().find(|some| !some.is_empty());
        let mut faulty = NodeSet::new(self.cube.len());
        for node in self.cube.nodes() {
            faulty.insert(node);
        }
        for rank in executing.unwrap_or_default() {
            faulty.remove(rank.home());
        }
        let mut reserve = NodeSet::new(self.cube.len());
        let fit = self
            .survivors()
            .filter(|rank| !self.stopped.contains(*rank));
        for node in fit.map(Rank::home).filter(|node| faulty.contains(*node)) {
            reserve.insert(node);
        }
        self.membership = Membership { faulty, reserve };
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
    pub fn set_hosts(&mut self, hosts: Vec<u64>) {
        self.one_host = hosts.windows(2).all(|pair| pair[0] == pair[1]);
        self.hosts = hosts;
    }

    /// Returns whether all ranks are on one host, as far as is known.
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

    /// The number of survivors on this rank's host, itself included.
    pub fn living_here(&self) -> usize {
        let here = self.host(self.me);
        let survivors = self.survivors();
        survivors.filter(|rank| self.host(*rank) == here).count()
    }

    /// The number of recoveries so far.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The failed ranks.
    pub fn faulty(&self) -> &RankSet {
        &self.faulty
    }

    /// The nodes with a home that has failed or executes nothing, and the nodes without a home.
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

    /// The ranks of the last exclusion by a policy.
    pub fn excluded(&self) -> &RankSet {
        &self.excluded
    }

    /// Sets the shares of the ranks, in proportion to each other, where an algorithm supports shares. Ranks
    /// beyond the list, and all if it is empty, have `FULL_WEIGHT`.
    pub fn weigh(&mut self, weights: &[u8]) {
        let weight = |rank: Rank| weights.get(rank.index()).copied();
        self.weights = Rank::all(self.ranks)
            .map(|rank| weight(rank).unwrap_or(FULL_WEIGHT).min(FULL_WEIGHT))
            .collect();
    }

    /// The weights of the ranks, as all have agreed.
    pub fn weights(&self) -> &[u8] {
        &self.weights
    }

    /// Returns whether it is a live rank that executes no node.
    pub fn is_excluded(&self, rank: Rank) -> bool {
        !self.is_faulty(rank) && self.membership.faulty.contains(rank.home())
    }

    /// Readmits all live ranks, with equal weights.
    pub fn readmit_all(&mut self) {
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
        self.executing().iter().next().unwrap_or(self.me)
    }

    /// The survivors that execute nodes.
    pub fn executing(&self) -> RankSet {
        let homes = self.survivors().filter(|rank| !self.is_excluded(*rank));
        RankSet::from_ranks(self.ranks, homes)
    }

    /// Adds failed ranks; returns those that are new, ascending. The epoch grows by one if there are any.
    /// This rank itself is never counted, because it is running.
    pub fn absorb(&mut self, dead: &RankSet) -> Vec<Rank> {
        debug_assert!(!dead.contains(self.me));
        let mut newly_dead = Vec::new();
        if mutant(Mutant::StaleExecutors) {
            self.assign_nodes();
        }
        for rank in dead.iter().filter(|rank| *rank != self.me) {
            if mutant(Mutant::OneFailureAtATime) && !newly_dead.is_empty() {
                break;
            }
            if self.faulty.insert(rank) {
                newly_dead.push(rank);
            }
        }
        if !mutant(Mutant::StaleExecutors) {
            self.assign_nodes();
        }
        if !newly_dead.is_empty() {
            self.epoch += 1;
        }
        newly_dead
    }

    /// Returns the rank that executes a node: its home, or the home of its cover.
    pub fn executor(&self, node: Node) -> Rank {
        // This rank is alive, so there always is one.
        let executor = self.cube.executor(node, &self.membership.faulty);
        executor.map_or(self.me, |node| Rank(node.0))
    }

    /// Returns the nodes that a rank executes, ascending; none for a failed one.
    pub fn nodes_of(&self, rank: Rank) -> Vec<Node> {
        let nodes = self.cube.nodes();
        nodes.filter(|node| self.executor(*node) == rank).collect()
    }

    /// Returns the nodes that this rank executes, ascending.
    pub fn my_nodes(&self) -> Vec<Node> {
        self.nodes_of(self.me)
    }
}

/// The positions of the survivors in a shrunk communicator.
#[derive(Clone, Debug)]
pub struct SlotMap {
    slots: BTreeMap<Rank, Slot>,
}

impl SlotMap {
    /// A communicator with these ranks, in this order.
    pub fn new(survivors: impl IntoIterator<Item = Rank>) -> SlotMap {
        SlotMap {
            slots: survivors.into_iter().zip((0..).map(Slot)).collect(),
        }
    }

    /// Returns the rank's position; None if it is not in the communicator.
    pub fn slot_of(&self, rank: Rank) -> Option<Slot> {
        self.slots.get(&rank).copied()
    }

    /// The number of ranks in the communicator.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the communicator has no rank.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
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

    #[test]
    fn slots_are_consecutive() {
        let slots = SlotMap::new([Rank(1), Rank(4), Rank(5)]);
        assert_eq!(slots.slot_of(Rank(4)), Some(Slot(1)));
        assert_eq!(slots.slot_of(Rank(2)), None);
        assert_eq!(slots.len(), 3);
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
                let newly_failed = members.absorb(&RankSet::from_ranks(ranks, failed));
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
                    0 => drop(members.absorb(&RankSet::from_ranks(ranks, some.filter(|rank| rank.0 > 0)))),
                    1 => drop(members.exclude(&RankSet::from_ranks(ranks, some))),
                    2 => some.for_each(|rank| members.excluded_for_corruption(rank)),
                    _ => members.readmit_all(),
                }
                let executing: Vec<Rank> = members.executing().iter().collect();
                prop_assert!(!executing.is_empty());
                prop_assert_eq!(executing[0], members.lowest_executor());
                let mut all: Vec<Node> = executing.iter().flat_map(|rank| members.nodes_of(*rank)).collect();
                all.sort();
                prop_assert_eq!(all, members.cube().nodes().collect::<Vec<_>>());
                let allowed = |rank: &Rank| !members.stopped.contains(*rank) && !members.excluded.contains(*rank);
                let allowed: Vec<Rank> = members.survivors().filter(allowed).collect();
                prop_assert!(allowed.is_empty() || allowed == executing);
            }
            members.readmit_all();
            prop_assert!(members.survivors().all(|rank| !members.is_excluded(rank)));
        }

        #[test]
        fn decodes_an_encoded_set(ranks in 1_usize..200, members: Vec<u32>) {
            let members = members.into_iter().map(|rank| Rank(rank % ranks as u32));
            let set = RankSet::from_ranks(ranks, members);
            let bytes = set.to_bytes();
            prop_assert_eq!(bytes.len(), RankSet::new(ranks).to_bytes().len());
            prop_assert_eq!(RankSet::from_bytes(ranks, &bytes), set);
        }

        #[test]
        fn fingerprints_of_different_sets_differ(ranks in 1_usize..200, one: u32, other: u32) {
            let set = |rank: u32| RankSet::from_ranks(ranks, [Rank(rank % ranks as u32)]);
            let equal = one % ranks as u32 == other % ranks as u32;
            prop_assert_eq!(set(one).fingerprint() == set(other).fingerprint(), equal);
        }
    }
}

//! Ranks, sets of ranks, and their positions in a shrunk communicator.
//!
//! Must never: know which ranks have failed.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use twox_hash::XxHash3_64;

use crate::vcube::Node;
use ftsort_kernels::bits::Bits;

/// A process, by its rank in the communicator given to `ftsort_init`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// Returns all ranks of a group of `ranks` ranks, ascending.
    pub fn all(ranks: usize) -> impl Iterator<Item = Rank> + Clone {
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

    /// Returns a number by which this rank orders the ranks that it sends to in one step: ascending from the rank after
    /// it, itself last. If all ranks do, none receives from all others at once while the others wait.
    pub fn turn_of(self, receiver: Rank) -> u32 {
        receiver.0.wrapping_sub(self.0).wrapping_sub(1)
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

    /// The set of all ranks of a group of `ranks` ranks.
    pub fn all(ranks: usize) -> RankSet {
        RankSet(Bits::all(ranks))
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

    /// Removes all ranks of another set.
    pub fn remove_all(&mut self, other: &RankSet) {
        self.0.remove_all(&other.0);
    }

    /// Removes the ranks with numbers that are not in a range.
    pub fn retain_range(&mut self, range: Range<usize>) {
        self.0.retain_range(range);
    }

    /// The set as bits, one for each rank.
    pub(crate) fn bits(&self) -> &Bits {
        &self.0
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

    /// The place of a rank of the set in ascending order. None: the set does not have it.
    pub fn place_of(&self, rank: Rank) -> Option<usize> {
        self.contains(rank)
            .then(|| self.0.count_below(rank.index()))
    }

    /// The rank at a place in ascending order.
    pub fn at(&self, place: usize) -> Option<Rank> {
        self.0.at(place).map(|index| Rank(index as u32))
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

/// Lists the ranks, ascending, with commas between them.
impl fmt::Display for RankSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.iter().map(|rank| rank.to_string()).collect();
        out.write_str(&names.join(", "))
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

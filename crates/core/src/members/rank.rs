//! Ranks, sets of ranks, and their positions in a shrunk communicator.
//!
//! Must never: know which ranks have failed.

use std::fmt;

use twox_hash::XxHash3_64;

use crate::set::{Set, SetMember};
use crate::vcube::Node;

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

impl SetMember for Rank {
    fn of_number(number: usize) -> Rank {
        Rank(number as u32)
    }

    fn number(self) -> usize {
        self.index()
    }
}

/// A set of ranks of one group, in ascending order. Its length is the number of ranks of the group.
pub type RankSet = Set<Rank>;

impl RankSet {
    /// The number of ranks of the group.
    pub fn ranks(&self) -> usize {
        self.length()
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

//! The parity store: in place of copies of other ranks' data, each rank keeps shares of an erasure code over the data of
//! its group. The engine encodes and decodes; this module knows the groups, the stripes, and the contents.

mod grouping;
mod stripes;

pub use grouping::{Grouping, grouping};
pub use stripes::{Stripes, Summand};

use std::collections::{BTreeMap, BTreeSet};

use super::memory::Memory;
use super::{Store, StoreScope, VersionId};
use crate::block::{Block, Header};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::checksum::Checksum;
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::memory;

/// The number of shares, and the size of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParityShape {
    /// The number of shares of each stripe, at least one: as many failures of one group lose nothing.
    pub shares: usize,
    /// The number of ranks of a group, more than `shares`.
    pub group: usize,
}

impl ParityShape {
    /// The greatest size of a group that can be asked for. Groups may be up to twice as large.
    pub const LARGEST_GROUP: usize = 64;

    /// `Status::Argument` unless a group has more ranks than shares, and at most [`ParityShape::LARGEST_GROUP`].
    pub fn new(shares: usize, group: usize) -> Result<ParityShape> {
        if (1..group).contains(&shares) && group <= ParityShape::LARGEST_GROUP {
            return Ok(ParityShape { shares, group });
        }
        let text = format!(
            "config.parity is {shares} and config.parity_group is {group}: set config.parity_group to more than \
             config.parity, and to at most {}",
            ParityShape::LARGEST_GROUP
        );
        Err(Error::argument(text))
    }
}

/// The data that an encoding covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Covered {
    /// The inputs, byte for byte as their owners passed them.
    Inputs,
    /// The committed version of all blocks.
    Blocks,
}

/// Blocks with their nodes, in the order in which their bytes are encoded.
pub type Contents<B> = Vec<(Node, B)>;

/// A share of the code.
#[derive(Clone, Debug)]
pub struct Share {
    /// Its bytes.
    pub bytes: Slice,
    /// Their checksum when they were made, where data are checked.
    pub checksum: Option<u64>,
}

/// This rank's part in the encoding of the data of all ranks.
#[derive(Clone, Debug)]
pub struct Encoding {
    /// The number of recoveries when it was made.
    pub epoch: u32,
    /// The shape of its groups.
    pub shape: ParityShape,
    /// The ranks of each group.
    pub groups: Vec<Vec<Rank>>,
    /// The blocks that each rank contributed.
    pub contents: BTreeMap<Rank, Contents<Header>>,
    /// Those of this rank. They share their memory with the data in use.
    pub mine: Contents<Block>,
    /// The shares that this rank holds, by number.
    pub shares: Vec<Share>,
}

impl Encoding {
    /// The ranks that took part.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + '_ {
        self.groups.iter().flatten().copied()
    }

    /// Returns whether the encoding has these groups.
    pub fn is_of(&self, grouping: &Grouping) -> bool {
        self.groups == grouping.groups
    }

    /// The stripes of a group.
    pub fn stripes(&self, group: &[Rank]) -> Stripes {
        let lengths = group.iter().map(|rank| self.bytes_of(*rank));
        Stripes::new(self.shape, lengths.collect())
    }

    /// The length of a rank's data.
    pub fn bytes_of(&self, rank: Rank) -> usize {
        let headers = self.contents.get(&rank).into_iter().flatten();
        headers.map(|(_, header)| header.bytes()).sum()
    }

    /// Returns the ranks with data that cannot be had any more, where only the data of the ranks in `available` are
    /// left, and no shares of the ranks in `shareless`.
    pub fn beyond_repair(&self, available: &RankSet, shareless: &RankSet) -> Vec<Rank> {
        // A rank that is not trusted is in no group, and no share has its data.
        let covered: BTreeSet<Rank> = self.ranks().collect();
        let outside = self.contents.keys().copied();
        let outside = outside.filter(|rank| !covered.contains(rank) && self.bytes_of(*rank) > 0);
        let mut lost: Vec<Rank> = outside.filter(|rank| !available.contains(*rank)).collect();
        if mutant(Mutant::UncoveredDataRebuilt) {
            lost.clear();
        }
        for group in &self.groups {
            let stripes = self.stripes(group);
            let is_erased = |place: usize| !available.contains(group[place]);
            let has_share = |place: usize| !shareless.contains(group[place]);
            for wanted in (0..group.len()).filter(|place| is_erased(*place)) {
                let with_chunk = |stripe: &usize| !stripes.chunk(wanted, *stripe).is_empty();
                let mut needed = (0..group.len()).filter(with_chunk);
                let unsolvable = |stripe| {
                    stripes
                        .solve(stripe, wanted, is_erased, has_share)
                        .is_none()
                };
                if needed.any(unsolvable) {
                    lost.push(group[wanted]);
                }
            }
        }
        lost
    }

    /// Returns whether this rank has all of its shares.
    pub fn is_finished(&self, me: Rank) -> bool {
        let group = self.groups.iter().find(|group| group.contains(&me));
        group.is_none_or(|group| self.shares.len() == self.stripes(group).shares())
    }

    /// Returns whether the shares of this rank are as they were made.
    pub fn has_intact_shares(&self) -> bool {
        self.shares.iter().all(|share| {
            let known = share.checksum;
            known.is_none_or(|known| Checksum::of(&share.bytes) == known)
        })
    }
}

/// Returns a range of the bytes of blocks, one after the other; without a copy if it is within one run.
pub fn part_of(blocks: &Contents<Block>, range: std::ops::Range<usize>) -> Result<Slice> {
    let mut start = 0;
    let mut parts = Vec::new();
    for run in blocks.iter().flat_map(|(_, block)| &block.runs) {
        let end = start + run.data.len();
        let (first, last) = (range.start.max(start), range.end.min(end));
        if first < last {
            parts.push(run.data.part(first - start..last - start));
        }
        start = end;
    }
    if let [only] = &parts[..] {
        return Ok(only.clone());
    }
    let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    // Other ranks wait for these bytes, so the memory limit does not apply to them.
    Ok(memory::for_messages(|| Buffer::concatenated(&parts))?.into())
}

/// Divides the bytes of a rank's data into its blocks. Each run is aligned for any record.
pub fn divided(headers: &Contents<Header>, data: Slice) -> Result<Contents<Block>> {
    const ALIGNED: usize = 64;
    let mut start = 0;
    let mut blocks = Vec::with_capacity(headers.len());
    for (node, header) in headers {
        let mut parts = Vec::with_capacity(header.runs.len());
        for (_, _, bytes) in &header.runs {
            let part = data.part(start..start + bytes);
            parts.push(match start % ALIGNED {
                0 => part,
                _ => Slice::copy_of(&part)?,
            });
            start += bytes;
        }
        blocks.push((*node, Block::from_parts(header, parts)));
    }
    Ok(blocks)
}

/// Shares in memory, with the blocks that the rank has for other reasons.
#[derive(Debug)]
pub struct Parity {
    shape: ParityShape,
    blocks: Memory,
    encodings: BTreeMap<Covered, Encoding>,
}

impl Parity {
    /// An empty store.
    pub fn new(shape: ParityShape) -> Parity {
        Parity {
            shape,
            blocks: Memory::new(0),
            encodings: BTreeMap::new(),
        }
    }
}

impl Store for Parity {
    fn scope(&self) -> StoreScope {
        StoreScope::Parity(self.shape)
    }

    fn put(&mut self, version_id: VersionId, node: Node, block: &Block) -> Result<()> {
        self.blocks.put(version_id, node, block)
    }

    fn get(&self, version_id: VersionId, node: Node) -> Result<Option<Block>> {
        self.blocks.get(version_id, node)
    }

    fn encoding(&self, covered: Covered) -> Option<&Encoding> {
        self.encodings.get(&covered)
    }

    fn set_encoding(&mut self, covered: Covered, encoding: Option<Encoding>) {
        match encoding {
            Some(encoding) => self.encodings.insert(covered, encoding),
            None => self.encodings.remove(&covered),
        };
    }

    fn retire(&mut self, version: u32) {
        self.blocks.retire(version);
    }

    fn clear(&mut self) {
        self.blocks.clear();
        self.encodings.clear();
    }

    fn detach(&mut self, _removes: bool) -> Box<dyn Store> {
        Box::new(std::mem::replace(self, Parity::new(self.shape)))
    }

    fn set_apart(&mut self) {
        // The encoding of inputs refers to the caller's arrays.
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of a rank in no group are lost with the rank, unless another rank has them or there are none.
    #[test]
    fn data_outside_of_all_groups_cannot_be_rebuilt() {
        let header = |rank: u32, bytes| {
            let data = Buffer::zeroed(bytes).expect("memory");
            Block::input(Rank(rank), data.into()).header()
        };
        for (bytes, is_there, lost) in [(8, false, true), (8, true, false), (0, false, false)] {
            let contents = [(0, 8), (1, 8), (2, bytes)];
            let contents = contents.map(|(rank, bytes)| {
                let node = Rank(rank).home();
                (Rank(rank), vec![(node, header(rank, bytes))])
            });
            let encoding = Encoding {
                epoch: 0,
                shape: ParityShape {
                    shares: 1,
                    group: 3,
                },
                groups: vec![vec![Rank(0), Rank(1)]],
                contents: contents.into(),
                mine: Contents::new(),
                shares: Vec::new(),
            };
            let there = [Rank(0), Rank(1), Rank(2)].into_iter();
            let there = there.filter(|rank| is_there || *rank != Rank(2));
            let available = RankSet::of(3, there);
            let found = encoding.beyond_repair(&available, &RankSet::new(3));
            let expected: &[Rank] = if lost { &[Rank(2)] } else { &[] };
            assert_eq!(found, expected, "{bytes} bytes, {is_there}");
        }
    }
}

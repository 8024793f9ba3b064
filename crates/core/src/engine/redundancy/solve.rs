//! Solving for the data of failed ranks, from the data and shares that the other ranks of their groups have.
//!
//! Each stripe is solved by another rank of the group, in parallel, and the rank that needs the data receives them from
//! all of these. All ranks know the same facts, so that none asks another.

use std::collections::{BTreeMap, BTreeSet};

use super::inventory::{Erased, Inventory};
use crate::block::Block;
use crate::engine::job::{Job, RoundResult};
use crate::engine::sums::{Sum, Term};
use crate::engine::{CollectiveResult, InStep};
use crate::members::{Rank, RankSet};
use crate::store::parity::{Contents, Covered, Encoding, Stripes, Summand, divided, part_of};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Finding, Result};
use ftsort_kernels::memory;

/// The data that were found after failures, as all survivors know it.
#[derive(Default)]
pub(super) struct Found {
    /// The rank that has the block of a node.
    pub places: BTreeMap<Node, Rank>,
    /// The blocks that were brought to this rank.
    pub here: BTreeMap<Node, Block>,
}

/// The ranks from which the data of an encoding come.
#[derive(Clone, Copy)]
struct Sources<'s> {
    encoding: &'s Encoding,
    erased: &'s Erased,
    /// The ranks that have the data of each rank.
    owners: &'s BTreeMap<Rank, Rank>,
}

impl Job<'_, '_> {
    /// Finds the blocks of an encoding: those of erased ranks are solved for on the ranks of their groups, and brought
    /// to the ranks that execute the home nodes of the erased ranks, if a block that `is_wanted` is among them. None: a
    /// rank failed.
    pub(super) fn find(
        &mut self,
        encoding: &Encoding,
        (covered, inventory): (Covered, &Inventory),
        is_wanted: impl Fn(Node) -> bool,
        result: &mut RoundResult,
    ) -> CollectiveResult<Option<Found>> {
        let erased = inventory.erased(covered);
        let no_finders = BTreeMap::new();
        let finders = match covered {
            Covered::Inputs => &inventory.finders,
            Covered::Blocks => &no_finders,
        };
        let mut found = Found::default();
        let mut owners = BTreeMap::new();
        let mut wanted = BTreeSet::new();
        for (rank, blocks) in &encoding.contents {
            let mut of_blocks = blocks.iter().map(|(node, _)| finders.get(node).copied());
            let finder = of_blocks.next().flatten();
            let finder = finder.filter(|finder| of_blocks.all(|other| other == Some(*finder)));
            let is_there = !erased.data.contains(*rank);
            if let Some(owner) = Some(*rank).filter(|_| is_there).or(finder) {
                owners.insert(*rank, owner);
                let places = blocks.iter().map(|(node, _)| (*node, owner));
                found.places.extend(places);
            } else if blocks.iter().any(|(node, _)| is_wanted(*node)) {
                wanted.insert(*rank);
            }
        }
        let ranks = self.engine.members.ranks();
        let available = RankSet::of(ranks, owners.keys().copied());
        for rank in encoding.beyond_repair(&available, &erased.shares) {
            wanted.remove(&rank);
        }
        for rank in &wanted {
            let to = self.engine.members.executor(rank.home());
            let blocks = &encoding.contents[rank];
            let places = blocks.iter().map(|(node, _)| (*node, to));
            found.places.extend(places);
        }
        let sources = Sources {
            encoding,
            erased,
            owners: &owners,
        };
        let rebuilt = self.rebuild(sources, &wanted, result).or_apart()?;
        Ok(rebuilt.map(|rebuilt| {
            let rebuilt = rebuilt.into_iter();
            let rebuilt = rebuilt.filter(|(node, _)| !finders.contains_key(node));
            found.here = rebuilt.collect();
            found
        }))
    }

    /// Solves for the data of the `wanted` ranks, and returns those that belong to this rank. None: a rank failed.
    fn rebuild(
        &mut self,
        sources: Sources<'_>,
        wanted: &BTreeSet<Rank>,
        result: &mut RoundResult,
    ) -> Result<Option<Contents<Block>>> {
        let me = self.engine.members.me();
        let (owned, sums) = self.chunks_of(sources, wanted)?;
        // The memory limit does not apply to sums that other ranks wait for. They are short parts of their data.
        let solved = memory::without_limit(|| self.engine.add_up(&sums, &mut result.error))?;
        let Some(solved) = solved else {
            return Ok(None);
        };
        let mut moves = Vec::with_capacity(sums.len());
        for ((sum, rank), solved) in sums.iter().zip(&owned).zip(solved) {
            moves.push(Sum {
                to: self.engine.members.executor(rank.home()),
                bytes: sum.bytes,
                terms: vec![Term {
                    from: sum.to,
                    bytes: sum.bytes,
                    factor: 1,
                    piece: solved.map(Slice::from),
                }],
            });
        }
        let Some(moved) = self.engine.add_up(&moves, &mut result.error)? else {
            return Ok(None);
        };
        let mut rebuilt = Contents::new();
        for rank in wanted {
            if self.engine.members.executor(rank.home()) != me {
                continue;
            }
            let chunks = owned.iter().zip(&moved).filter(|(owner, _)| *owner == rank);
            let chunks: Option<Vec<&[u8]>> = chunks.map(|(_, chunk)| chunk.as_deref()).collect();
            let Some(chunks) = chunks else {
                // There was no memory for one of them.
                continue;
            };
            let joined = Buffer::concatenated(&chunks).map(Slice::from);
            let blocks = joined.and_then(|data| divided(&sources.encoding.contents[rank], data));
            for (node, block) in result.check(blocks).unwrap_or_default() {
                if self.engine.is_intact(&block) {
                    rebuilt.push((node, block));
                } else {
                    let error = self.engine.accuse(None, Finding::Memory);
                    result.check::<()>(Err(error));
                }
            }
        }
        Ok(Some(rebuilt))
    }

    /// Lists the chunks of the `wanted` ranks, in ascending order for each: their ranks, and the sums that they are.
    fn chunks_of(
        &self,
        sources: Sources<'_>,
        wanted: &BTreeSet<Rank>,
    ) -> Result<(Vec<Rank>, Vec<Sum>)> {
        let (mut owned, mut sums) = (Vec::new(), Vec::new());
        for group in &sources.encoding.groups {
            let stripes = sources.encoding.stripes(group);
            let is_left = |rank: &Rank| !sources.erased.data.contains(*rank);
            let solvers: Vec<Rank> = group.iter().copied().filter(is_left).collect();
            let solver = |stripe: usize| solvers.get(stripe % solvers.len().max(1)).copied();
            let is_erased = |place: usize| !sources.owners.contains_key(&group[place]);
            let has_share = |place: usize| !sources.erased.shares.contains(group[place]);
            for (place, rank) in group.iter().enumerate() {
                if !wanted.contains(rank) {
                    continue;
                }
                for stripe in 0..group.len() {
                    let bytes = stripes.chunk(place, stripe).len();
                    if bytes == 0 {
                        continue;
                    }
                    // It can be solved, because the rank is not beyond repair.
                    let summands = stripes.solve(stripe, place, is_erased, has_share);
                    let mut terms = Vec::new();
                    for summand in summands.into_iter().flatten() {
                        let stripe = (&stripes, stripe);
                        terms.push(self.term_of(sources, (group, stripe), summand, bytes)?);
                    }
                    let executor = self.engine.members.executor(rank.home());
                    owned.push(*rank);
                    sums.push(Sum {
                        to: solver(stripe).unwrap_or(executor),
                        bytes,
                        terms,
                    });
                }
            }
        }
        Ok((owned, sums))
    }

    /// Returns a piece of a lost chunk of so many bytes.
    fn term_of(
        &self,
        sources: Sources<'_>,
        (group, (stripes, stripe)): (&[Rank], (&Stripes, usize)),
        summand: Summand,
        bytes: usize,
    ) -> Result<Term> {
        let encoding = sources.encoding;
        let rank = group[summand.place];
        let chunk = stripes.chunk(summand.place, stripe);
        let (from, length) = match summand.share {
            Some(_) => (rank, stripes.share_bytes(stripe)),
            None => (sources.owners[&rank], chunk.len()),
        };
        let length = length.min(bytes);
        let piece = match summand.share {
            _ if from != self.engine.members.me() => None,
            Some(share) => {
                let share = encoding.shares.get(share);
                share.map(|share| share.bytes.part(0..length))
            }
            None => {
                let blocks = self.data_of(encoding, rank);
                Some(part_of(&blocks, chunk.start..chunk.start + length)?)
            }
        };
        Ok(Term {
            from,
            bytes: length,
            factor: summand.factor,
            piece,
        })
    }

    /// Returns the data of a rank, which this rank contributed or has found.
    fn data_of(&self, encoding: &Encoding, rank: Rank) -> Contents<Block> {
        if rank == self.engine.members.me() {
            return encoding.mine.clone();
        }
        let headers = encoding.contents.get(&rank).into_iter().flatten();
        let found = headers.filter_map(|(node, _)| {
            let block = self.redundancy.raw.get(node)?;
            Some((*node, block.clone()))
        });
        found.collect()
    }
}

//! Collects a whole sorted result at one rank, in order and in bounded memory: one window after the other is
//! sent along the tree, and each is passed to the caller before the next one is sent.
//!
//! If a rank fails before its block was passed on completely, or the rank that collects fails, a run ends with an error
//! on all survivors. After the recovery of the result another run continues where that one ended, or from the
//! beginning if the rank that collected has failed. Must never: pass a record on twice to a rank, or before all ranks
//! agree that its window has arrived.

use std::collections::BTreeSet;
use std::ops::Range;

use super::choose::{ChosenTree, TreeRequest, TreeRoute};
use super::traverse::{NodeData, Segment, traverse};
use crate::engine::{CollectiveResult, Engine, InStep, Verdict, agreed_error};
use crate::faults::Point;
use crate::members::{Members, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::tree::fold::Concatenate;
use crate::vcube::{Node, NodeSet};
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Finding, Result, Status, caught};

/// The part of a result that a rank holds.
#[derive(Clone, Debug)]
pub struct LocalResult {
    /// Its blocks: the node, the position of the first record, and the records.
    pub blocks: Vec<(Node, u64, Slice)>,
    /// The size of a record in bytes.
    pub record_bytes: usize,
    /// The number of records on all ranks.
    pub total: u64,
    /// The ranks that had failed when the result was made.
    pub absent: RankSet,
}

/// A block of the result, in a table that is the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlockEntry {
    start: u64,
    count: u64,
    node: u32,
    owner: Rank,
}

/// One collective call.
pub struct Collect<'c, 'e> {
    /// The engine of the group.
    pub engine: &'c mut Engine<'e>,
    /// The caller's request.
    pub request: &'c TreeRequest,
    /// The blocks of this rank.
    pub local: &'c LocalResult,
    /// The approximate size of a window, in bytes.
    pub window: usize,
    /// The ranks with lost records.
    pub lost: &'c mut RankSet,
    /// The progress of the call; the same on all ranks.
    pub progress: &'c mut Progress,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The number of records that were passed on.
    at: u64,
    /// The sink of the tree, and the rank that executes it, once they were chosen.
    sink: Option<(Node, Rank)>,
}

impl Progress {
    /// Begins again if another rank executes the sink, because the rank that collected has failed: it has nothing yet.
    pub fn continue_with(&mut self, members: &Members) {
        if let Some((sink, rank)) = self.sink
            && members.executor(sink) != rank
        {
            *self = Progress {
                at: 0,
                sink: Some((sink, members.executor(sink))),
            };
        }
    }
}

const ENTRY_BYTES: usize = 8 + 8 + 4;
const FIXED_BYTES: usize = 8 + 8 + 4;

impl Collect<'_, '_> {
    /// Passes all records to `consume` on the rank that executes the tree's sink. Collective.
    pub fn run(
        mut self,
        consume: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> CollectiveResult<ChosenTree> {
        let table = self.table()?;
        let all_owners = self.owners(table.iter());
        let mut request = self.request.undivided();
        let chosen = TreeRoute::new(self.engine.members, &request, &all_owners)
            .or_alike()?
            .chosen;
        let (sink, sink_rank) =
            *(self.progress.sink).get_or_insert((chosen.tree.sink(), chosen.sink_rank));
        // The sink stays the same: another rank would have to start again, with records that were passed on
        // already.
        request.sink = Some(Rank(sink.0));
        let step = (self.window / self.local.record_bytes).clamp(1, u32::MAX as usize) as u64;
        let mut consume_error = None;
        let (mut at, mut last) = (self.progress.at, chosen);
        while at < self.local.total {
            let window = at..(at + step).min(self.local.total);
            let within =
                |entry: &&BlockEntry| entry.start < window.end && entry.start + entry.count > at;
            let owners = self.owners(table.iter().filter(within));
            let route = TreeRoute::new(self.engine.members, &request, &owners).or_alike()?;
            let mut node_data = NodeData::new(&Concatenate, false);
            node_data.error = consume_error.clone();
            let records = self.send_window((&table, &window), &route, &mut node_data)?;
            let complete = node_data.is_complete();
            match self.engine.commit(complete, node_data.error.as_ref())? {
                Verdict::Committed => {
                    if let Some(records) = records {
                        consume_error = caught(|| consume(&records)).err();
                    }
                    (at, last) = (window.end, route.chosen);
                    self.progress.at = at;
                }
                Verdict::Failed(status) => return Err(agreed_error(status, node_data.error)),
                Verdict::Replay => self.check(&table, at, (sink, sink_rank)).or_alike()?,
            }
        }
        let consumed = consume_error.map_or(Ok(()), Err);
        self.engine.all_or_none(consumed)?;
        self.check(&table, at, (sink, sink_rank)).or_alike()?;
        Ok(last)
    }

    /// Sends one window along the tree. Returns its records on the rank that collects.
    fn send_window(
        &mut self,
        (table, window): (&[BlockEntry], &Range<u64>),
        route: &TreeRoute,
        node_data: &mut NodeData<'_>,
    ) -> CollectiveResult<Option<Slice>> {
        self.put(node_data, table, window);
        self.engine.round = super::TREE_ROUND;
        self.engine.inject_crash(Point::Begin)?;
        traverse(self.engine, route, route.schedule.steps(), node_data)?;
        let own = route.chosen.sink_rank == self.engine.members.me();
        Ok(if own && node_data.is_complete() {
            node_data.result(route.chosen.tree.sink())
        } else {
            None
        })
    }

    /// Returns the nodes of these blocks, which their owners execute.
    fn owners<'t>(&self, entries: impl Iterator<Item = &'t BlockEntry>) -> NodeSet {
        let nodes = entries.map(|entry| Node(entry.node));
        NodeSet::of(self.engine.members.cube().len(), nodes)
    }

    fn put(&self, node_data: &mut NodeData<'_>, table: &[BlockEntry], window: &Range<u64>) {
        let size = self.local.record_bytes;
        for (_, start, data) in &self.local.blocks {
            let entry = table.binary_search_by_key(start, |entry| entry.start);
            // The table has no blocks without records.
            let Some(entry) = entry.ok().filter(|_| !data.is_empty()) else {
                continue;
            };
            let end = start + (data.len() / size) as u64;
            let part = window.start.clamp(*start, end)..window.end.clamp(*start, end);
            let bytes = (part.start - start) as usize * size..(part.end - start) as usize * size;
            let segment = Segment {
                first: part.start,
                span: (part.end - part.start) as u32,
                data: data.part(bytes),
            };
            node_data.put(Node(table[entry].node), segment);
        }
    }

    /// Returns the table of all blocks, which is the same on all ranks, after a check that no records are
    /// missing.
    fn table(&mut self) -> CollectiveResult<Vec<BlockEntry>> {
        let mine = self.encoded();
        let limit = FIXED_BYTES + self.engine.members.cube().len() * ENTRY_BYTES;
        let tables = self.engine.share_committed(mine.clone(), limit, None)?;
        let mut table = Vec::new();
        for (owner, bytes) in tables {
            let mut fields = Reader::new(&bytes);
            let is_same = fields.bytes(FIXED_BYTES) == Some(&mine[..FIXED_BYTES]);
            let entries = fields.repeat_to_end(|fields| {
                Some(BlockEntry {
                    start: fields.u64()?,
                    count: fields.u64()?,
                    node: fields.u32()?,
                    owner,
                })
            });
            let entries = entries.filter(|_| is_same);
            table.extend(entries.ok_or_else(different_results).or_alike()?);
        }
        table.sort_unstable();
        self.check_table(&table).or_alike()?;
        let members = &self.engine.members;
        for entry in &mut table {
            let node = node_of_block(members, Node(entry.node), entry.owner);
            entry.node = node.map_or(entry.node, |node| node.0);
        }
        Ok(table)
    }

    /// Checks that every record is in one block, and that the block's owner can send it.
    fn check_table(&mut self, table: &[BlockEntry]) -> Result<()> {
        let members = &self.engine.members;
        let nodes = members.cube().len();
        let (end, gaps) = extent(table).ok_or_else(inconsistent_blocks)?;
        let is_misplaced = |entry: &BlockEntry| members.executor(Node(entry.node)) != entry.owner;
        let is_refused = mutant(Mutant::MovedBlockRefused) && table.iter().any(is_misplaced);
        let is_unknown = |entry: &BlockEntry| entry.node as usize >= nodes;
        if end > self.local.total || table.iter().any(is_unknown) || is_refused {
            return Err(inconsistent_blocks());
        }
        let can_be_sent =
            |entry: &BlockEntry| node_of_block(members, Node(entry.node), entry.owner).is_some();
        if !gaps && end == self.local.total && table.iter().all(can_be_sent) {
            return Ok(());
        }
        let faulty = members.faulty().iter();
        let newly_failed = faulty.filter(|rank| !self.local.absent.contains(*rank));
        let newly_failed: Vec<Rank> = newly_failed.collect();
        Err(match newly_failed.is_empty() {
            true => inconsistent_blocks(),
            false => self.loss(newly_failed),
        })
    }

    /// Returns the message for the table: the values that must be the same on all ranks, and the blocks that
    /// are not empty.
    fn encoded(&self) -> Vec<u8> {
        let size = self.local.record_bytes;
        let mut out = Writer::new();
        out.u64(size as u64).u64(self.local.total);
        out.u32(self.local.absent.fingerprint());
        for (node, start, data) in &self.local.blocks {
            if !data.is_empty() {
                out.u64(*start).u64((data.len() / size) as u64).u32(node.0);
            }
        }
        out.finish()
    }

    /// Checks that the owners of all records that are not passed on yet are alive and execute the nodes of these, and that
    /// the rank that collects still executes the sink. A spare that takes over a node from a failed rank also executes its
    /// home node from then on, which has a block of another rank.
    fn check(&mut self, table: &[BlockEntry], at: u64, (sink, by): (Node, Rank)) -> Result<()> {
        let members = &self.engine.members;
        let left = table.iter().filter(|entry| entry.start + entry.count > at);
        let needed = left.clone().map(|entry| (Node(entry.node), entry.owner));
        let needed = needed.chain([(sink, by)]);
        let owners = needed.clone().map(|(_, owner)| owner);
        let mut failed: BTreeSet<Rank> = owners.filter(|rank| members.is_faulty(*rank)).collect();
        let mut moved = needed.filter(|(node, owner)| members.executor(*node) != *owner);
        if moved.any(|(node, _)| node == sink || !mutant(Mutant::MovedNodeIgnored)) {
            let absent = &self.local.absent;
            let faulty = members.faulty().iter();
            failed.extend(faulty.filter(|rank| !absent.contains(*rank)));
        }
        if failed.is_empty() {
            Ok(())
        } else {
            Err(self.loss(failed.into_iter().collect()))
        }
    }

    fn loss(&mut self, ranks: Vec<Rank>) -> Error {
        *self.lost = RankSet::of(self.engine.members.ranks(), ranks);
        let text = format!(
            "rank {} failed, and its part of the result is lost",
            self.lost
        );
        Error::new(Status::DataLost, text)
    }
}

/// Returns the node with which a block is sent by the rank that has it; None if this rank executes no node. It is the
/// block's own node, unless a spare executes that now: the block of an excluded rank had moved before the rank failed.
fn node_of_block(members: &Members, node: Node, owner: Rank) -> Option<Node> {
    if members.executor(node) == owner {
        return Some(node);
    }
    let mut others = members.nodes_of(owner).into_iter();
    others.next().filter(|_| !mutant(Mutant::MovedBlockLost))
}

/// Returns the end of the last block, and whether records are missing before it. None if blocks overlap or a
/// number overflows.
fn extent(table: &[BlockEntry]) -> Option<(u64, bool)> {
    let (mut end, mut gaps) = (0, false);
    for entry in table {
        if entry.start < end {
            return None;
        }
        gaps |= entry.start > end;
        end = entry.start.checked_add(entry.count)?;
    }
    Some((end, gaps))
}

fn different_results() -> Error {
    Error::argument("the ranks pass results that are not of one sort of this group")
}

/// The error of blocks that overlap, or that leave a gap without a failure.
fn inconsistent_blocks() -> Error {
    let text = "a block of the result does not begin where the block before it ends: since the sort, `compare` or `reload` \
                has returned something else, or records in memory have changed";
    Error::corrupt(Finding::Order, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_finds_gaps_and_overlaps() {
        let extent = |blocks: &[(u64, u64)]| {
            let entry = |&(start, count): &(u64, u64)| BlockEntry {
                start,
                count,
                node: 0,
                owner: Rank(0),
            };
            extent(&blocks.iter().map(entry).collect::<Vec<_>>())
        };
        assert_eq!(extent(&[]), Some((0, false)));
        assert_eq!(extent(&[(0, 5), (5, 2)]), Some((7, false)));
        assert_eq!(extent(&[(0, 5), (6, 2)]), Some((8, true)));
        assert_eq!(extent(&[(0, 5), (4, 2)]), None);
        assert_eq!(
            extent(&[(0, 5), (6, u64::MAX - 5)]),
            None,
            "the end overflows"
        );
    }
}

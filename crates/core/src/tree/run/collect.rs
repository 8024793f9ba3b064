//! A whole sorted result at one rank, in order, in bounded memory: window after window goes along the
//! tree, and each is handed out before the next one sets out.
//!
//! Blocks of a result belong to their ranks, and nothing is kept for them: if a rank dies whose block
//! was not handed out to its end, or the rank that it is handed out to, the call fails on all survivors.
//! Must never: hand a record out twice, or before all agree that its window came.

use std::collections::BTreeSet;
use std::ops::Range;

use super::carry::{Desk, Piece, upwards, walk};
use super::choose::{Chosen, Route, Wish};
use crate::engine::{Engine, Verdict, agreed_error};
use crate::faults::Point;
use crate::members::{Rank, RankSet};
use crate::tree::fold::Concatenate;
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};

/// What a rank holds of a result.
#[derive(Clone, Debug)]
pub struct Holding {
    /// Its blocks: the node, where the block starts in records, and the records.
    pub blocks: Vec<(Node, u64, Slice)>,
    /// The size of a record.
    pub record_bytes: usize,
    /// How many records there are on all ranks.
    pub total: u64,
    /// Who was dead when the result was made.
    pub absent: RankSet,
}

/// A block as all ranks know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    start: u64,
    count: u64,
    node: u32,
    owner: Rank,
}

/// One collective call.
pub struct Collect<'c, 'e> {
    /// The group.
    pub engine: &'c mut Engine<'e>,
    /// What the caller wants.
    pub wish: &'c Wish,
    /// What this rank holds.
    pub holding: &'c Holding,
    /// How many bytes go at once, about.
    pub window: usize,
    /// Whose records are lost.
    pub lost: &'c mut RankSet,
}

const PER_ENTRY: usize = 8 + 8 + 4;
const FIXED: usize = 8 + 8;

impl Collect<'_, '_> {
    /// Hands all records to `consume` on the rank that the tree leads to. Collective.
    pub fn run(mut self, consume: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Chosen> {
        let table = self.table()?;
        let everybody = self.owners(table.iter());
        let mut wish = self.wish.clone();
        let chosen = Route::new(self.engine.members, &wish, &everybody)?.chosen;
        let holder = chosen.holder;
        // Its cover would have to begin anew, with what is handed out already.
        wish.sink = Some(Rank(chosen.tree.sink().0));
        let step = (self.window / self.holding.record_bytes).clamp(1, u32::MAX as usize) as u64;
        let mut trouble = None;
        let (mut at, mut last) = (0, chosen);
        while at < self.holding.total {
            let window = at..(at + step).min(self.holding.total);
            let within =
                |entry: &&Entry| entry.start < window.end && entry.start + entry.count > at;
            let owners = self.owners(table.iter().filter(within));
            let route = Route::new(self.engine.members, &wish, &owners)?;
            let mut desk = Desk::new(&Concatenate, false);
            desk.trouble = trouble.take();
            let came = self.bring(&window, &route, &mut desk)?;
            let complete = desk.is_complete();
            match self.engine.commit(complete, desk.trouble.as_ref())? {
                Verdict::Committed => {
                    if let Some(records) = came {
                        trouble = consume(&records).err();
                    }
                    (at, last) = (window.end, route.chosen);
                }
                Verdict::Failed(status) => return Err(agreed_error(status, desk.trouble)),
                Verdict::Replay => self.check(&table, at, holder)?,
            }
        }
        let handed_out = trouble.map_or(Ok(()), Err);
        self.engine.all_or_none(handed_out)?;
        self.check(&table, at, holder)?;
        Ok(last)
    }

    /// One window; the records, on the rank that gets them.
    fn bring(
        &mut self,
        window: &Range<u64>,
        route: &Route,
        desk: &mut Desk<'_>,
    ) -> Result<Option<Slice>> {
        self.put(desk, window);
        self.engine.round = super::CARRYING;
        self.engine.inject_crash(Point::Begin)?;
        walk(self.engine, route, &upwards(&route.schedule), desk)?;
        let own = route.chosen.holder == self.engine.members.me();
        Ok(match own && desk.is_complete() {
            true => desk.result(route.chosen.tree.sink()),
            false => None,
        })
    }

    /// The nodes through whose executors these blocks set out. A rank executes the nodes of its blocks
    /// as long as it lives.
    fn owners<'t>(&self, entries: impl Iterator<Item = &'t Entry>) -> NodeSet {
        let mut nodes = NodeSet::new(self.engine.members.cube().len());
        entries.for_each(|entry| nodes.insert(Node(entry.node)));
        nodes
    }

    fn put(&self, desk: &mut Desk<'_>, window: &Range<u64>) {
        let size = self.holding.record_bytes;
        for (node, start, data) in &self.holding.blocks {
            let end = start + (data.len() / size) as u64;
            let part = window.start.clamp(*start, end)..window.end.clamp(*start, end);
            let bytes = (part.start - start) as usize * size..(part.end - start) as usize * size;
            let piece = Piece {
                first: part.start,
                span: (part.end - part.start) as u32,
                data: data.part(bytes),
            };
            desk.put(*node, piece);
        }
    }

    /// Who holds what, the same on all ranks; and all of it is there.
    fn table(&mut self) -> Result<Vec<Entry>> {
        let mine = self.encoded();
        let limit = FIXED + self.engine.members.cube().len() * PER_ENTRY;
        let told = loop {
            let told = self.engine.share(mine.clone(), limit)?;
            match (self.engine.commit(told.is_some(), None)?, told) {
                (Verdict::Committed, Some(told)) => break told,
                (Verdict::Failed(status), _) => return Err(agreed_error(status, None)),
                _ => {}
            }
        };
        let mut table = Vec::new();
        for (owner, words) in told {
            let (fixed, entries) = words.split_at_checked(FIXED).ok_or_else(other)?;
            if *fixed != mine[..FIXED] {
                return Err(other());
            }
            table.extend(entries.chunks_exact(PER_ENTRY).filter_map(|words| {
                Some(Entry {
                    start: u64::from_le_bytes(words[..8].try_into().ok()?),
                    count: u64::from_le_bytes(words[8..16].try_into().ok()?),
                    node: u32::from_le_bytes(words[16..].try_into().ok()?),
                    owner,
                })
            }));
        }
        table.sort_unstable();
        self.check_table(&table)?;
        Ok(table)
    }

    /// Every record is in one block, which its owner still executes.
    fn check_table(&mut self, table: &[Entry]) -> Result<()> {
        let members = &self.engine.members;
        let alien = |entry: &Entry| {
            entry.node as usize >= members.cube().len()
                || members.executor(Node(entry.node)) != entry.owner
        };
        if table.iter().any(alien) {
            return Err(other());
        }
        let (end, gaps) = extent(table).ok_or_else(other)?;
        if !gaps && end == self.holding.total {
            return Ok(());
        }
        let faulty = members.faulty().iter();
        let late = faulty.filter(|rank| !self.holding.absent.contains(*rank));
        let late: Vec<Rank> = late.collect();
        Err(match late.is_empty() || end > self.holding.total {
            true => other(),
            false => self.loss(late),
        })
    }

    /// The blocks that are not empty, after what must be the same on all ranks.
    fn encoded(&self) -> Vec<u8> {
        let size = self.holding.record_bytes;
        let mut words = (size as u64).to_le_bytes().to_vec();
        words.extend(self.holding.total.to_le_bytes());
        for (node, start, data) in &self.holding.blocks {
            if !data.is_empty() {
                words.extend(start.to_le_bytes());
                words.extend(((data.len() / size) as u64).to_le_bytes());
                words.extend(node.0.to_le_bytes());
            }
        }
        words
    }

    /// What is still to be handed out is there, and so is the rank that gets it.
    fn check(&mut self, table: &[Entry], at: u64, holder: Rank) -> Result<()> {
        let members = &self.engine.members;
        let left = table.iter().filter(|entry| entry.start + entry.count > at);
        let needed = left.map(|entry| entry.owner).chain([holder]);
        let gone: BTreeSet<Rank> = needed.filter(|rank| members.is_faulty(*rank)).collect();
        match gone.is_empty() {
            true => Ok(()),
            false => Err(self.loss(gone.into_iter().collect())),
        }
    }

    fn loss(&mut self, ranks: Vec<Rank>) -> Error {
        let names: Vec<String> = ranks.iter().map(|rank| rank.to_string()).collect();
        *self.lost = RankSet::from_ranks(self.engine.members.ranks(), ranks);
        let text = format!(
            "rank {} died, and took its part of the result along",
            names.join(", ")
        );
        Error::new(Status::DataLost, text)
    }
}

/// Where the last block ends, and whether records are missing before or between; None if blocks overlap,
/// or say what cannot be.
fn extent(table: &[Entry]) -> Option<(u64, bool)> {
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

fn other() -> Error {
    let text = "the ranks' results are not of one sort of this group";
    Error::new(Status::Argument, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other_or_leave_gaps() {
        let extent = |blocks: &[(u64, u64)]| {
            let entry = |&(start, count): &(u64, u64)| Entry {
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
            "round the end of numbers"
        );
    }
}

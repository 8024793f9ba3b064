//! Control messages along trees, so that no rank exchanges messages with all others.
//!
//! Few ranks exchange with the root of the tree directly, as in a star. Many form a tree in which every rank has at most
//! [`fan_out`](crate::transport::Transport::fan_out) children, and each inner rank unites the tables of its children
//! with its own before it sends them on. A rank that fails interrupts the step on every rank, so no rank waits for the
//! messages of a branch that does not come.

use super::exchange::{ControlMessage, Delivery};
use super::{Engine, table};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::memory;

/// The entries of a table of control messages, by rank or node.
pub type Entries = Vec<(u32, Slice)>;

/// A tree of ranks. All of its ranks compute the same tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayTree {
    /// The ranks, the root first. The last ones are leaves.
    ranks: Vec<Rank>,
    fan_out: usize,
}

impl RelayTree {
    /// A tree of these ranks, each of which is listed once, with the first one as its root.
    pub fn new(ranks: Vec<Rank>, fan_out: usize) -> RelayTree {
        let fan_out = fan_out.max(1);
        // One step with so many messages takes as long as two steps.
        let is_star = ranks.len() <= fan_out * fan_out + 1;
        RelayTree {
            fan_out: if is_star { ranks.len().max(1) } else { fan_out },
            ranks,
        }
    }

    fn parent(&self, place: usize) -> Option<usize> {
        Some(place.checked_sub(1)? / self.fan_out)
    }

    fn children(&self, place: usize) -> &[Rank] {
        let first = (place * self.fan_out + 1).min(self.ranks.len());
        &self.ranks[first..(first + self.fan_out).min(self.ranks.len())]
    }

    fn place_of(&self, rank: Rank) -> Option<usize> {
        self.ranks.iter().position(|other| *other == rank)
    }

    /// The number of ranks in the largest branch below a place.
    fn largest_branch(&self, place: usize) -> usize {
        let mut size = 0;
        let mut row = place * self.fan_out + 1..place * self.fan_out + 2;
        while row.start < self.ranks.len() {
            size += row.end.min(self.ranks.len()) - row.start;
            row = row.start * self.fan_out + 1..row.end * self.fan_out + 1;
        }
        size
    }
}

/// A copy for messages, to which the memory limit does not apply: the other ranks wait for them.
pub(super) fn message_of(bytes: &[u8]) -> Result<Slice> {
    Ok(memory::without_limit(|| Buffer::copy_of(bytes))?.into())
}

impl Engine<'_> {
    /// Gives the payload of each survivor, at most `limit` bytes, to all of them, through the coordinator; in
    /// ascending order of rank. None: a rank failed.
    pub fn share(&mut self, mine: Vec<u8>, limit: usize) -> Result<Option<Vec<(Rank, Slice)>>> {
        let survivors: Vec<Rank> = self.members.survivors().collect();
        let total = survivors.len() * limit;
        self.by_way_of_coordinator(&survivors, mine, (limit, total))
    }

    /// As [`Engine::share`], but only `speakers` contribute, at most `limit` bytes each and `total` bytes
    /// together; all survivors receive it.
    pub fn by_way_of_coordinator(
        &mut self,
        speakers: &[Rank],
        mine: Vec<u8>,
        (limit, total): (usize, usize),
    ) -> Result<Option<Vec<(Rank, Slice)>>> {
        let tree = self.tree_of_survivors();
        let me = self.members.me();
        let asked = RankSet::from_ranks(self.members.ranks(), speakers.iter().copied());
        let mine = asked.contains(me).then_some(mine);
        let gathered = if speakers.len() <= tree.fan_out {
            self.gather_from(speakers, tree.ranks[0], mine, limit)?
        } else {
            let own = mine.map(|mine| table::write([(me.0, &mine[..])].into_iter()));
            self.gather_along(&tree, Some(own.unwrap_or_default()), limit, Some)?
        };
        let Some(gathered) = gathered else {
            return Ok(None);
        };
        let longest = speakers.len() * table::PER_ENTRY + total;
        let Some(Some(reports)) = self.spread_along(&tree, gathered, longest)? else {
            return Ok(None);
        };
        let reports = table::read(&reports)?.into_iter();
        let mut reports: Vec<(Rank, Slice)> =
            reports.map(|(rank, words)| (Rank(rank), words)).collect();
        // The rank numbers become indices, so they must be those of ranks that were asked.
        let is_asked = |rank: Rank| rank.index() < asked.ranks() && asked.contains(rank);
        if reports.iter().any(|(rank, _)| !is_asked(*rank)) {
            let text = "a message names a rank that contributes nothing";
            return Err(Error::new(Status::Internal, text));
        }
        reports.sort_unstable_by_key(|(rank, _)| *rank);
        Ok(Some(reports))
    }

    /// A tree of all survivors with the coordinator as its root. Ranks that are excluded could be slow, so they are its
    /// last ones.
    fn tree_of_survivors(&self) -> RelayTree {
        let coordinator = match mutant(Mutant::CoordinatorIsRankZero) {
            true => Rank(0),
            false => self.members.lowest_executor(),
        };
        let (mut ranks, mut last) = (vec![coordinator], Vec::new());
        let is_in_tree =
            |rank: &Rank| !self.members.is_faulty(*rank) || mutant(Mutant::FailedRanksInTree);
        let others = Rank::all(self.members.ranks()).filter(|rank| *rank != coordinator);
        for rank in others.filter(is_in_tree) {
            match self.members.is_excluded(rank) {
                true => last.push(rank),
                false => ranks.push(rank),
            }
        }
        ranks.append(&mut last);
        RelayTree::new(ranks, self.transport.fan_out())
    }

    /// Gives the payloads of a few ranks to `root` directly, as a table. The outer None: a rank failed. The inner None:
    /// this is not the root.
    fn gather_from(
        &mut self,
        speakers: &[Rank],
        root: Rank,
        mine: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<Option<Option<Vec<u8>>>> {
        let me = self.members.me();
        let mut mine = mine;
        let messages = speakers.iter().map(|speaker| ControlMessage {
            from: *speaker,
            to: root,
            payload: if *speaker == me { mine.take() } else { None },
        });
        let messages = messages.collect();
        let Some(received) = self.deliver(messages, limit)? else {
            return Ok(None);
        };
        let received: Vec<(Rank, Slice)> = (speakers.iter().zip(received))
            .filter_map(|(speaker, words)| Some((*speaker, words.got()?)))
            .collect();
        let entries = received
            .iter()
            .map(|(speaker, words)| (speaker.0, &words[..]));
        Ok(Some((root == me).then(|| table::write(entries))))
    }

    /// Unites the tables of all ranks of a tree at its root. `own`: None if this rank has an error. `limit`: of the
    /// entries of one rank, in bytes. `unite`: returns the entries that an inner rank sends on in place of those of its
    /// branch; None after an error. The outer None: a rank failed. The inner None: this is not the root, or a rank of
    /// the tree has an error.
    pub(super) fn gather_along(
        &mut self,
        tree: &RelayTree,
        own: Option<Vec<u8>>,
        limit: usize,
        mut unite: impl FnMut(Entries) -> Option<Entries>,
    ) -> Result<Option<Option<Vec<u8>>>> {
        let me = self.members.me();
        let Some(place) = tree.place_of(me) else {
            return Ok(Some(None));
        };
        let longest = |place| tree.largest_branch(place) * (table::PER_ENTRY + limit);
        let children = tree.children(place);
        let mut table = own;
        if !children.is_empty() {
            let messages = children.iter().map(|child| ControlMessage {
                from: *child,
                to: me,
                payload: None,
            });
            let Some(received) = self.deliver(messages.collect(), longest(place))? else {
                return Ok(None);
            };
            let mut is_complete = table.is_some();
            let mut entries = table::read(&message_of(&table.take().unwrap_or_default())?)?;
            for table in received {
                match table.got() {
                    Some(_) if mutant(Mutant::BranchesNotRelayed) && place > 0 => {}
                    Some(table) => entries.extend(table::read(&table)?),
                    None => is_complete = false,
                }
            }
            let united = match place {
                0 => Some(entries),
                _ => unite(entries),
            };
            table = united.filter(|_| is_complete).map(|entries| {
                let entries = entries.iter();
                table::write(entries.map(|(key, words)| (*key, &words[..])))
            });
        }
        let Some(parent) = tree.parent(place) else {
            return Ok(Some(table));
        };
        let message = ControlMessage {
            from: me,
            to: tree.ranks[parent],
            payload: table,
        };
        let sent = self.deliver(vec![message], longest(parent))?;
        Ok(sent.map(|_| None))
    }

    /// Gives the message of the root of a tree to all of its ranks. The outer None: a rank failed. The inner None: the
    /// root has an error.
    pub(super) fn spread_along(
        &mut self,
        tree: &RelayTree,
        message: Option<Vec<u8>>,
        longest: usize,
    ) -> Result<Option<Option<Slice>>> {
        let me = self.members.me();
        let Some(place) = tree.place_of(me) else {
            return Ok(Some(None));
        };
        let mut message: Option<Slice> = message.map(|bytes| message_of(&bytes)).transpose()?;
        if let Some(parent) = tree.parent(place) {
            let awaited = ControlMessage {
                from: tree.ranks[parent],
                to: me,
                payload: None,
            };
            let Some(received) = self.deliver(vec![awaited], longest)? else {
                return Ok(None);
            };
            message = received.into_iter().find_map(Delivery::got);
        }
        let messages = tree.children(place).iter().map(|child| ControlMessage {
            from: me,
            to: *child,
            payload: message.as_ref().map(|message| message.to_vec()),
        });
        let messages: Vec<ControlMessage> = messages.collect();
        if !messages.is_empty() && self.deliver(messages, longest)?.is_none() {
            return Ok(None);
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_rank_has_a_path_to_the_root(ranks in 1_u32..200, fan_out in 0_usize..9) {
            let tree = RelayTree::new((0..ranks).map(|rank| Rank(rank * 3)).collect(), fan_out);
            let mut sizes = vec![1; ranks as usize];
            for place in (1..ranks as usize).rev() {
                let parent = tree.parent(place).unwrap();
                prop_assert!(parent < place && tree.children(parent).contains(&Rank(place as u32 * 3)));
                sizes[parent] += sizes[place];
            }
            prop_assert_eq!(sizes[0], ranks as usize);
            for place in 0..ranks as usize {
                let children = tree.children(place);
                let branches = children.iter().map(|child| sizes[child.0 as usize / 3]);
                prop_assert_eq!(tree.largest_branch(place), branches.max().unwrap_or(0));
                let is_star = children.len() + 1 == ranks as usize && place == 0;
                prop_assert!(children.len() <= fan_out.max(1) || is_star && children.len() <= fan_out.max(1).pow(2));
            }
        }
    }
}

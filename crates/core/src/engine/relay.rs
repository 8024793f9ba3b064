//! Control messages along trees, so that no rank exchanges messages with all others.
//!
//! Few ranks exchange with the root of the tree directly, as in a star. Many form a tree in which every rank has at most
//! [`fan_out`](crate::transport::Transport::fan_out) children, and each inner rank unites the tables of its children
//! with its own before it sends them on. A rank that fails interrupts the step on every rank, so no rank waits for the
//! messages of a branch that does not come.

use super::exchange::{ControlMessage, Delivery};
use super::{Engine, table};
use crate::engine::{CollectiveResult, InStep};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result};
use ftsort_kernels::memory;

/// The entries of a table of control messages, by rank or node.
pub type Entries = Vec<(u32, Slice)>;

/// A tree of ranks, as one of them sees it. All of its ranks compute the same tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayTree {
    /// The number of ranks.
    ranks: usize,
    fan_out: usize,
    root: Rank,
    /// This rank's place. None: it is not in the tree.
    place: Option<usize>,
    parent: Option<Rank>,
    children: Vec<Rank>,
}

impl RelayTree {
    /// A tree of a root and the ranks of some sets, as `me` sees it. No rank but the root is in two sets. The ranks of the
    /// last set have the last places, which are leaves.
    pub fn new<const SETS: usize>(
        root: Rank,
        mut sets: [RankSet; SETS],
        me: Rank,
        fan_out: usize,
    ) -> RelayTree {
        // Places are found by words of the sets: lists of all ranks on each of them would take the time of their square.
        let mut count = 1;
        let mut place = (me == root).then_some(0);
        for set in &mut sets {
            set.remove(root);
            place = place.or_else(|| Some(count + set.place_of(me)?));
            count += set.len();
        }
        let at = |place: usize| {
            let mut before = 1;
            let mut found = (place == 0).then_some(root);
            for set in &sets {
                found = found.or_else(|| set.at(place.checked_sub(before)?));
                before += set.len();
            }
            found
        };
        let fan_out = fan_out.max(1);
        // One step with so many messages takes as long as two steps.
        let is_star = count <= fan_out * fan_out + 1;
        let fan_out = if is_star { count.max(1) } else { fan_out };
        let parent = place.and_then(|place| Some(place.checked_sub(1)? / fan_out));
        let first_child = place.map_or(count, |place| place * fan_out + 1);
        RelayTree {
            ranks: count,
            fan_out,
            root,
            place,
            parent: parent.and_then(&at),
            children: (first_child..count).take(fan_out).filter_map(&at).collect(),
        }
    }

    /// The number of ranks in the largest branch below a place.
    fn largest_branch(&self, place: usize) -> usize {
        let mut size = 0;
        let mut row = place * self.fan_out + 1..place * self.fan_out + 2;
        while row.start < self.ranks {
            size += row.end.min(self.ranks) - row.start;
            row = row.start * self.fan_out + 1..row.end * self.fan_out + 1;
        }
        size
    }
}

/// A copy for messages, to which the memory limit does not apply: the other ranks wait for them.
pub(super) fn message_of(bytes: &[u8]) -> Result<Slice> {
    memory::for_messages(|| Slice::copy_of(bytes))
}

impl Engine<'_> {
    /// Gives the payload of each survivor, at most `limit` bytes, to all of them, through the coordinator; in
    /// ascending order of rank. None: a rank failed.
    pub fn share(
        &mut self,
        mine: Vec<u8>,
        limit: usize,
    ) -> CollectiveResult<Option<Vec<(Rank, Slice)>>> {
        self.share_some(Some(mine), limit)
    }

    /// As [`Engine::share`]; a rank with no payload is not among those that are returned.
    pub(super) fn share_some(
        &mut self,
        mine: Option<Vec<u8>>,
        limit: usize,
    ) -> CollectiveResult<Option<Vec<(Rank, Slice)>>> {
        let survivors = self.members.survivors_but(&RankSet::new(0));
        let total = survivors.len() * limit;
        self.by_way_of_coordinator(&survivors, mine, (limit, total))
            .or_apart()
    }

    /// As [`Engine::share`], but only `speakers` contribute, at most `limit` bytes each and `total` bytes
    /// together; all survivors receive it.
    pub fn by_way_of_coordinator(
        &mut self,
        speakers: &RankSet,
        mine: Option<Vec<u8>>,
        (limit, total): (usize, usize),
    ) -> Result<Option<Vec<(Rank, Slice)>>> {
        let tree = self.tree_of_survivors();
        let me = self.members.me();
        let mine = mine.filter(|_| speakers.contains(me));
        let gathered = if speakers.len() <= tree.fan_out {
            self.gather_from(speakers, tree.root, mine, limit)?
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
        if reports.iter().any(|(rank, _)| !speakers.contains(*rank)) {
            return Err(Error::internal(
                "a message names a rank that contributes nothing",
            ));
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
        let members = &*self.members;
        let mut working = members.executing();
        let excluded = members.survivors_without_nodes();
        if mutant(Mutant::FailedRanksInTree) {
            working.extend(members.faulty());
        }
        let sets = [working, excluded];
        RelayTree::new(coordinator, sets, members.me(), self.transport.fan_out())
    }

    /// Gives the payloads of a few ranks to `root` directly, as a table. The outer None: a rank failed. The inner None:
    /// this is not the root.
    fn gather_from(
        &mut self,
        speakers: &RankSet,
        root: Rank,
        mine: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<Option<Option<Vec<u8>>>> {
        let me = self.members.me();
        let mut mine = mine.map(|mine| message_of(&mine)).transpose()?;
        let messages = speakers.iter().map(|speaker| {
            let payload = mine.take_if(|_| speaker == me);
            ControlMessage::new(speaker, root, payload)
        });
        let messages = messages.collect();
        let Some(received) = self.deliver(messages, limit)? else {
            return Ok(None);
        };
        let received: Vec<(Rank, Slice)> = (speakers.iter().zip(received))
            .filter_map(|(speaker, words)| Some((speaker, words.got()?)))
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
        let Some(place) = tree.place else {
            return Ok(Some(None));
        };
        let longest = |place| tree.largest_branch(place) * (table::PER_ENTRY + limit);
        let mut table = own;
        if !tree.children.is_empty() {
            let children = tree.children.iter();
            let messages = children.map(|child| ControlMessage::new(*child, me, None));
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
            table = united.filter(|_| is_complete).map(|mut entries| {
                // A table is short if its keys ascend.
                entries.sort_unstable_by_key(|(key, _)| *key);
                let entries = entries.iter();
                table::write(entries.map(|(key, words)| (*key, &words[..])))
            });
        }
        let Some(parent) = tree.parent else {
            return Ok(Some(table));
        };
        let payload = table.map(|table| message_of(&table)).transpose()?;
        let message = ControlMessage::new(me, parent, payload);
        let sent = self.deliver(vec![message], longest((place - 1) / tree.fan_out))?;
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
        if tree.place.is_none() {
            return Ok(Some(None));
        }
        let mut message: Option<Slice> = message.map(|bytes| message_of(&bytes)).transpose()?;
        if let Some(parent) = tree.parent {
            let awaited = ControlMessage::new(parent, me, None);
            let Some(received) = self.deliver(vec![awaited], longest)? else {
                return Ok(None);
            };
            message = received.into_iter().find_map(Delivery::got);
        }
        let children = tree.children.iter();
        let messages = children.map(|child| ControlMessage::new(me, *child, message.clone()));
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
        fn every_rank_has_a_path_to_the_root(
            ranks in 1_u32..200,
            split: prop::sample::Index,
            fan_out in 0_usize..9,
        ) {
            // The root and the ranks of two sets.
            let all: Vec<Rank> = (0..ranks).map(|rank| Rank(rank * 3)).collect();
            let sets = all.split_at(split.index(all.len()));
            let sets: [&[Rank]; 2] = sets.into();
            let sets = sets.map(|set| RankSet::of(600, set.iter().copied()));
            let tree = |me| RelayTree::new(Rank(0), sets.clone(), me, fan_out);
            let trees: Vec<RelayTree> = all.iter().map(|me| tree(*me)).collect();
            let mut sizes = vec![1; ranks as usize];
            for place in (1..ranks as usize).rev() {
                let parent = trees[place].parent.unwrap().0 as usize / 3;
                prop_assert!(parent < place);
                prop_assert!(trees[parent].children.contains(&Rank(place as u32 * 3)));
                sizes[parent] += sizes[place];
            }
            prop_assert_eq!((sizes[0], trees[0].parent), (ranks as usize, None));
            for (place, tree) in trees.iter().enumerate() {
                prop_assert_eq!((tree.root, tree.place), (Rank(0), Some(place)));
                let branches = tree.children.iter().map(|child| sizes[child.0 as usize / 3]);
                prop_assert_eq!(tree.largest_branch(place), branches.max().unwrap_or(0));
                let children = tree.children.len();
                let is_star = children + 1 == ranks as usize && place == 0;
                prop_assert!(children <= fan_out.max(1) || is_star && children <= fan_out.max(1).pow(2));
            }
            prop_assert_eq!(tree(Rank(1)).place, None);
        }
    }
}

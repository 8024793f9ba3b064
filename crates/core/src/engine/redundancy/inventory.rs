//! The data and shares of an erasure code that survivors have after a failure.

use std::collections::BTreeMap;

use super::solve::Found;
use crate::block::Block;
use crate::engine::CollectiveResult;
use crate::engine::job::{Job, RoundResult};
use crate::members::{Membership, Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::VersionId;
use crate::store::parity::{Contents, Covered, Encoding, grouping};
use crate::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::Result;

/// The data and shares that survivors have after a failure, as all of them know it.
pub(super) struct Inventory {
    of: BTreeMap<Covered, Erased>,
    /// The ranks that have an input as its owner passed it. The owner is one of them.
    pub finders: BTreeMap<Node, Rank>,
}

/// The ranks without a usable part in an encoding. They have failed or are not trusted, or their part has changed or was
/// never there.
pub(super) struct Erased {
    /// The ranks without their data.
    pub data: RankSet,
    /// The ranks without their shares.
    pub shares: RankSet,
}

impl Inventory {
    pub fn erased(&self, covered: Covered) -> &Erased {
        &self.of[&covered]
    }
}

/// The bits of a report for each kind of data: this rank has an encoding, with intact data, and with intact shares.
const HAS_ENCODING: u8 = 1;
const HAS_DATA: u8 = 2;
const HAS_SHARES: u8 = 4;
const PER_KIND: u32 = 3;

const KINDS: [Covered; 2] = [Covered::Inputs, Covered::Blocks];

impl Job<'_, '_> {
    /// Shares the data and shares that each survivor has. None: a rank failed.
    pub(super) fn take_inventory(&mut self) -> CollectiveResult<Option<Inventory>> {
        let nodes = self.engine.members.cube().len();
        self.forget_unfilled();
        self.answer_for_failed_owners();
        let engine = &self.engine;
        // An input that has changed is not found any more.
        self.redundancy
            .raw
            .retain(|_, block| engine.is_intact(block));
        let mut flags = 0;
        for (kind, covered) in (0..).zip(KINDS) {
            let encoding = self.redundancy.store.encoding(covered);
            let of_kind = encoding.map_or(0, |encoding| self.condition_of(encoding));
            flags |= of_kind << (kind * PER_KIND);
        }
        let inputs = self.redundancy.store.encoding(Covered::Inputs);
        let epoch = inputs.map_or(0, |encoding| encoding.epoch);
        let raw = NodeSet::of(nodes, self.redundancy.raw.keys().copied());
        let mine = [&[flags][..], &epoch.to_le_bytes(), &raw.to_bytes()].concat();
        let limit = mine.len();
        let Some(reports) = self.engine.share(mine, limit)? else {
            return Ok(None);
        };
        Ok(Some(self.inventory_of(&reports)))
    }

    /// Forgets the inputs that this rank was to hold when an error came in between.
    fn forget_unfilled(&mut self) {
        for origin in self.redundancy.held.clone().iter() {
            let held = self.redundancy.store.get(VersionId::INPUT, origin.home());
            let is_own = origin == self.engine.members.me();
            if !is_own && !held.is_ok_and(|held| held.is_some()) {
                self.redundancy.held.remove(origin);
            }
        }
    }

    /// Takes over the inputs that came here from ranks that have failed since, for example when this rank was to execute
    /// the node of an excluded rank: no other rank encodes them. Later than the first commit held inputs may be sorted,
    /// and the shares have these inputs as they were.
    fn answer_for_failed_owners(&mut self) {
        if self.progress.membership.is_some() || mutant(Mutant::InputsOfFailedOwnersNotEncoded) {
            return;
        }
        for origin in self.redundancy.held.iter() {
            let node = origin.home();
            let has_failed = self.engine.members.is_faulty(origin);
            if !has_failed || self.redundancy.raw.contains_key(&node) {
                continue;
            }
            if let Ok(Some(input)) = self.redundancy.store.held(node) {
                self.redundancy.raw.insert(node, input);
            }
        }
    }

    /// Adds to `found` the inputs that the shares do not have any more, but the executors of their nodes had at the last
    /// commit. Returns those of this rank in the form in which it has them, for the next encoding.
    pub(super) fn adopt_inputs(
        &self,
        held_with: &Membership,
        found: &mut Found,
        result: &mut RoundResult,
    ) -> Contents<Block> {
        let mut adopted = Contents::new();
        let is_of_inputs = self.recomputes() || self.progress.version.version == 0;
        if self.integrity.distrusted || !is_of_inputs || mutant(Mutant::ExecutedInputsNotEncoded) {
            return adopted;
        }
        let me = self.engine.members.me();
        let encoding = self.redundancy.store.encoding(Covered::Inputs);
        let contents = encoding
            .iter()
            .flat_map(|encoding| encoding.contents.values());
        for (node, _) in contents.flatten() {
            let last = held_with.executor(*node);
            let last = last.filter(|rank| !self.engine.members.is_faulty(*rank));
            let Some(last) = last.filter(|_| !found.places.contains_key(node)) else {
                continue;
            };
            found.places.insert(*node, last);
            let block = match last == me {
                true => result.check(self.input_here(*node)).flatten(),
                false => None,
            };
            adopted.extend(block.map(|block| (*node, block)));
        }
        adopted
    }

    /// Returns an input that this rank has as the executor of its node; as its owner passed it, if it stays protected:
    /// later jobs may sort it by another key.
    fn input_here(&self, node: Node) -> Result<Option<Block>> {
        let stays = self.redundancy.outlives_job && !mutant(Mutant::SortedInputAdopted);
        let held = match self.recomputes() || stays {
            true => self.redundancy.store.held(node)?,
            false => None,
        };
        if held.is_some() || self.recomputes() {
            return Ok(held);
        }
        let block = self.progress.blocks.get(&node).cloned();
        Ok(block.map(|block| Block {
            sorted: block.sorted && !stays,
            ..block
        }))
    }

    /// Returns the bits that describe this rank's part in an encoding.
    fn condition_of(&self, encoding: &Encoding) -> u8 {
        let is_intact = |(_, block): &(Node, Block)| self.engine.is_intact(block);
        let is_checked = self.engine.key.is_some() && !mutant(Mutant::CorruptSharesUsed);
        let mut condition = HAS_ENCODING;
        if encoding.mine.iter().all(is_intact) {
            condition |= HAS_DATA;
        }
        let me = self.engine.members.me();
        let is_finished = encoding.is_finished(me) || mutant(Mutant::UnfinishedSharesUsed);
        if is_finished && (!is_checked || encoding.has_intact_shares()) {
            condition |= HAS_SHARES;
        }
        condition
    }

    /// Reads the reports of all survivors. The first encoding of the inputs is dropped unless all of them have it.
    fn inventory_of(&mut self, reports: &[(Rank, Slice)]) -> Inventory {
        let members = &self.engine.members;
        let (ranks, nodes) = (members.ranks(), members.cube().len());
        let epoch_of = |words: &Slice| words.get(1..5).map(<[u8]>::to_vec);
        let first = reports.first().map(|(_, words)| epoch_of(words));
        let is_shared = reports
            .iter()
            .all(|(_, words)| words[0] & HAS_ENCODING != 0 && Some(epoch_of(words)) == first);
        if !is_shared {
            self.redundancy.store.set_encoding(Covered::Inputs, None);
        }
        let trusted: RankSet = match self.parity() {
            Some(shape) => {
                let groups = grouping(self.engine.members, shape).groups;
                RankSet::of(ranks, groups.into_iter().flatten())
            }
            None => RankSet::new(ranks),
        };
        let reports = reports.iter().filter(|(rank, _)| trusted.contains(*rank));
        let mut inventory = Inventory {
            of: BTreeMap::new(),
            finders: BTreeMap::new(),
        };
        for (kind, covered) in (0..).zip(KINDS) {
            let without = |bit: u8| {
                let has = |words: &Slice| words[0] >> (kind * PER_KIND) & bit != 0;
                let having = reports.clone().filter(|(_, words)| has(words));
                let having = RankSet::of(ranks, having.map(|(rank, _)| *rank));
                let without = Rank::all(ranks).filter(|rank| !having.contains(*rank));
                RankSet::of(ranks, without)
            };
            let erased = Erased {
                data: without(HAS_DATA),
                shares: without(HAS_SHARES),
            };
            inventory.of.insert(covered, erased);
        }
        for (rank, words) in reports {
            for node in NodeSet::from_bytes(nodes, &words[5..]).iter() {
                inventory.finders.entry(node).or_insert(*rank);
            }
        }
        inventory
    }
}

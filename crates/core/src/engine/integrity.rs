//! Detects, reports and repairs data corruption.
//!
//! Every block has a digest that is computed from the data that went in and never from data that have been in
//! memory: an input's from the caller's own records, a piece's by division, a joined block's by
//! multiplication. A block that arrives must have the digest that its sender states; a block that is made of
//! pieces must have theirs; all results together must have the digest of all inputs, and be in order. So a
//! change by memory, a network, a file or a defect is detected at the latest before the result is committed,
//! mostly where it happened.
//!
//! Then nothing is committed. All survivors learn the accused rank, discard their blocks, and start again
//! from the inputs, or from the last version where only versions are stored, out of copies that are intact. A
//! rank that is accused a second time executes no node any more: the 1989 paper's faulty processors become
//! processors that stop.

use std::collections::{BTreeMap, BTreeSet};

use super::commit::{AgreedStatus, CollectiveResult, agreed_error};
use super::job::{Job, NextStep, RoundResult};
use super::{Engine, Event};
use crate::block::Block;
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::store::{StoreScope, VersionId};
use crate::vcube::Node;
use crate::verify::border::{Border, violations};
use crate::wire::{Reader, Writer};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::digest::{Digest, DigestKey};
use ftsort_kernels::error::{Error, Finding, Result, Status};
use ftsort_kernels::kernel::Kernel;

/// The checks of a sort.
#[derive(Clone)]
pub struct Checks<'a> {
    /// The key of the digests; the same on all ranks.
    pub key: &'a DigestKey,
    /// The order of each array, at least one: a block of the result has one run for each. All have one record size.
    pub orders: Vec<&'a dyn Kernel>,
    /// The digest of this rank's input, computed from the caller's array.
    pub input: Digest,
}

/// A report of a corruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Accusation {
    /// The accused rank; None if it is unknown.
    pub accused: Option<Rank>,
    /// The kind of corruption.
    pub finding: Finding,
}

impl Accusation {
    const BYTES: usize = 5;

    pub(super) fn encode(self) -> Vec<u8> {
        let rank = self.accused.map_or(u32::MAX, |rank| rank.0);
        Writer::new().u8(self.finding as u8).u32(rank).finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Accusation> {
        let mut fields = Reader::new(bytes);
        let finding = Finding::from_code(fields.u8()?)?;
        let accused = Some(fields.u32()?).filter(|rank| *rank != u32::MAX);
        let accused = accused.map(Rank);
        fields.end(Accusation { accused, finding })
    }
}

/// A job recovers from at most this many corruptions; a rank stops after this many accusations in one job.
const MOST_RECOVERIES: u32 = 8;
const STRIKES_TO_STOP: u32 = 2;

/// Detection and recovery of changed data in one job.
#[derive(Default)]
pub(super) struct Integrity<'a> {
    /// The checks; None: data are trusted.
    pub checks: Option<&'a Checks<'a>>,
    /// The digest of every node's input, where blocks are checked.
    pub input_digests: InputDigests,
    /// How many corruptions the job has recovered from.
    pub recoveries: u32,
    /// How many times each rank was accused. Its copies of blocks are used only if no other rank has one.
    pub strikes: BTreeMap<Rank, u32>,
    /// Blocks were discarded on ranks that execute their nodes: they must be restored.
    pub distrusted: bool,
}

impl<'a> Integrity<'a> {
    /// The state at the start of a job.
    pub fn new(checks: Option<&'a Checks<'a>>) -> Integrity<'a> {
        Integrity {
            checks,
            ..Integrity::default()
        }
    }
}

impl Engine<'_> {
    /// Records an accusation, and returns the error that prevents the commit.
    pub(super) fn accuse(&mut self, accused: Option<Rank>, finding: Finding) -> Error {
        self.accusations.push(Accusation { accused, finding });
        let accusation =
            accused.map_or_else(String::new, |rank| format!(", rank {rank} is accused"));
        Error::corrupt(finding, format!("{}{accusation}", finding.text()))
    }

    /// Classifies the error of an algorithm: if its own checks failed, no rank is accused, because they do
    /// not reliably tell which one is faulty.
    pub(super) fn classify<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && let Some(finding) = error.finding
        {
            let accused = None;
            self.accusations.push(Accusation { accused, finding });
        }
        result
    }

    /// Returns the block as it is sent: with a digest, where blocks are checked.
    pub(super) fn sealed(&self, block: Block) -> Block {
        match self.key {
            Some(key) if block.digest.is_none() => block.sealed(key),
            _ => block,
        }
    }

    /// Returns whether a block that arrived has the digest that its sender states.
    pub(super) fn is_intact(&self, block: &Block) -> bool {
        let intact = || self.key.is_none_or(|key| block.is_intact(key));
        mutant(Mutant::VerificationSkipped) || intact()
    }
}

impl Job<'_, '_> {
    /// Returns the error of this rank's part of a step. Where blocks are checked, an internal error most
    /// likely comes from changed records, because algorithms rely on their order: the rank accuses itself.
    pub(super) fn suspected(&mut self, error: Option<Error>) -> Option<Error> {
        error.map(|error| match self.integrity.checks {
            Some(_) if error.status == Status::Internal => {
                let me = self.engine.members.me();
                self.engine.accuse(Some(me), Finding::Memory)
            }
            _ => error,
        })
    }

    /// Checks a block that this rank made or kept; if its digest differs, the rank accuses itself.
    pub(super) fn verify_own(&mut self, block: &Block) -> Result<()> {
        if self.engine.is_intact(block) {
            Ok(())
        } else {
            let me = self.engine.members.me();
            Err(self.engine.accuse(Some(me), Finding::Memory))
        }
    }

    /// Returns an input with its digest: that of the caller's array if it is this rank's own.
    pub(super) fn with_digest(&self, home: Rank, block: Block) -> Block {
        let own = home == self.engine.members.me() && self.inputs.own_is_here;
        match self.integrity.checks {
            Some(checks) if own => Block {
                digest: Some(checks.input),
                ..block
            },
            _ => self.engine.sealed(block),
        }
    }

    /// Shares the digests of all inputs. A rank with an error takes part too, because the others wait for it.
    pub(super) fn share_input_digests(
        &mut self,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        if result.interrupted
            || self.integrity.checks.is_none()
            || !self.integrity.input_digests.is_empty()
        {
            return Ok(result);
        }
        let mut mine = Writer::new();
        for (node, block) in &result.blocks {
            mine.u32(node.0)
                .bytes(&block.digest.unwrap_or_default().encode());
        }
        let limit = self.engine.members.cube().len() * (4 + Digest::BYTES);
        let Some(reports) = self.engine.share(mine.finish(), limit)? else {
            return Ok(result.interrupted());
        };
        let entries = reports.iter().filter_map(|(_, words)| {
            Reader::new(words).repeat_to_end(|fields| {
                let node = Node(fields.u32()?);
                Some((node, Digest::decode(fields.bytes(Digest::BYTES)?)?))
            })
        });
        result.input_digests = entries.flatten().collect();
        Ok(result)
    }

    /// Checks that the result consists of all inputs and is in order, as far as all survivors together can
    /// tell.
    pub(super) fn verify_result(
        &mut self,
        mut result: RoundResult,
    ) -> CollectiveResult<RoundResult> {
        let skipped = result.interrupted || mutant(Mutant::VerificationSkipped);
        let Some(checks) = self.integrity.checks.filter(|_| !skipped) else {
            return Ok(result);
        };
        let mut total = Digest::default();
        let mut reports = Writer::new();
        let mut in_order = true;
        for (node, block) in &result.blocks {
            total = total.combine(block.digest.unwrap_or_default());
            write_report(*node, block, &checks.orders, &mut reports);
            let mut runs = block.runs.iter().zip(&checks.orders);
            in_order &= runs.all(|(run, order)| order.first_disorder(&run.data).is_none());
        }
        if !in_order {
            let me = self.engine.members.me();
            result.check::<()>(Err(self.engine.accuse(Some(me), Finding::Order)));
        }
        let known = self.integrity.input_digests.values();
        let known = known.fold(Digest::default(), |all, digest| all.combine(*digest));
        let promises = (result.blocks.keys())
            .filter_map(|node| self.algorithm.promised(result.decisions.of(*node)?));
        let mut promises = promises.filter(|records| *records != known.count());
        if promises.next().is_some() && result.complete {
            // The records were counted when blocks had other records than now.
            result.check::<()>(Err(self.engine.accuse(None, Finding::Whole)));
        }
        let mut mine = Writer::new();
        mine.u8(result.complete.into()).bytes(&total.encode());
        mine.bytes(&reports.finish());
        let nodes = self.engine.members.cube().len();
        let record_bytes = checks
            .orders
            .first()
            .map_or(0, |order| order.record_bytes());
        let blocks = nodes * checks.orders.len();
        let limit = 1 + Digest::BYTES + blocks * (START_BYTES + Border::limit(record_bytes));
        let Some(reports) = self.engine.share(mine.finish(), limit)? else {
            return Ok(result.interrupted());
        };
        if let Some((finding, node)) = judged(&reports, known, &checks.orders) {
            let node = node.filter(|node| (node.0 as usize) < nodes);
            let accused = node.map(|node| self.engine.members.executor(node));
            result.check::<()>(Err(self.engine.accuse(accused, finding)));
        }
        Ok(result)
    }

    /// Continues after an agreement that data are corrupt: all ranks learn the accusations and discard blocks
    /// and inputs that may be wrong. If there is nothing to restore them from, or corruptions do not end, all
    /// give up. Collective.
    pub(super) fn recover_from_corruption(
        &mut self,
        status: AgreedStatus,
        own: Option<Error>,
    ) -> CollectiveResult<()> {
        for rank in self.report_corruption(status, own)? {
            self.exclude_accused(rank);
        }
        self.distrust();
        Ok(())
    }

    /// The first part of [`Job::recover_from_corruption`]: returns the accused ranks. Collective.
    pub(super) fn report_corruption(
        &mut self,
        status: AgreedStatus,
        own: Option<Error>,
    ) -> CollectiveResult<BTreeSet<Rank>> {
        let found = self.share_accusations()?;
        self.engine.stats.corruptions += 1;
        for (by, accusation) in &found {
            let Accusation { accused, finding } = *accusation;
            self.engine.tell(Event::Corrupt(accused, *by, finding));
        }
        let accused: BTreeSet<Rank> = found.iter().filter_map(|(_, one)| one.accused).collect();
        for rank in &accused {
            *self.integrity.strikes.entry(*rank).or_insert(0) += 1;
        }
        self.integrity.recoveries += 1;
        let has_copies = self.redundancy.store.scope() != StoreScope::Copies(0)
            || self.inputs.source.can_reload();
        if self.integrity.recoveries > MOST_RECOVERIES || !has_copies {
            return Err(agreed_error(status, own));
        }
        Ok(accused)
    }

    /// As [`Job::recover_from_corruption`]; then restores the blocks from intact copies.
    pub(super) fn retry(
        &mut self,
        status: AgreedStatus,
        own: Option<Error>,
    ) -> CollectiveResult<NextStep> {
        self.recover_from_corruption(status, own)?;
        if self.progress.membership.is_none() {
            return Ok(NextStep::Continue);
        }
        Ok(match self.recover()? {
            NextStep::Continue if self.recomputes() => NextStep::RestartFromInputs,
            other => other,
        })
    }

    /// Returns the accusations of all survivors, each once. Collective.
    fn share_accusations(&mut self) -> CollectiveResult<Vec<(Rank, Accusation)>> {
        let nodes = self.engine.members.cube().len();
        let mut mine = std::mem::take(&mut self.engine.accusations);
        mine.sort_unstable();
        mine.dedup();
        mine.truncate(nodes);
        let words: Vec<u8> = mine.iter().flat_map(|one| one.encode()).collect();
        let limit = nodes * Accusation::BYTES;
        let reports = self.engine.share_committed(words, limit, None)?;
        let ranks = self.engine.members.ranks();
        let exists = |one: &Accusation| one.accused.is_none_or(|rank| rank.index() < ranks);
        let all = reports.iter().flat_map(|(by, words)| {
            let read = words.chunks_exact(Accusation::BYTES);
            let read = read.filter_map(Accusation::decode).filter(exists);
            read.map(|accusation| (*by, accusation))
        });
        Ok(all.collect())
    }

    /// Excludes an accused rank if it was accused before, as long as another rank is left.
    fn exclude_accused(&mut self, rank: Rank) {
        if self.integrity.strikes[&rank] >= STRIKES_TO_STOP {
            let before = self.engine.members.membership().clone();
            self.engine.members.excluded_for_corruption(rank);
            self.engine.report_executors(&before);
        }
    }

    /// Discards all blocks, and those inputs in this rank's store that have a different digest.
    fn distrust(&mut self) {
        if mutant(Mutant::CorruptBlocksReused) {
            return;
        }
        if self.progress.membership.is_some() {
            self.integrity.distrusted = true;
            self.progress.blocks.clear();
        }
        if self.recomputes() && !mutant(Mutant::DecisionsKeptAfterCorruption) {
            // The decisions may have come from wrong data too.
            self.progress.rewind();
        }
        // Jobs that store versions use inputs until they are loaded, and renew the copies of protected ones.
        let has_copies = matches!(self.redundancy.store.scope(), StoreScope::Copies(_));
        let is_loading = self.progress.membership.is_none();
        let copies_inputs = is_loading || self.redundancy.outlives_job;
        let recomputes = self.recomputes();
        let Some(checks) = self
            .integrity
            .checks
            .filter(|_| recomputes || has_copies && copies_inputs)
        else {
            return;
        };
        let me = self.engine.members.me();
        let own_is_right = !recomputes || self.redundancy.released;
        for origin in self.redundancy.held.clone().iter() {
            if origin == me && own_is_right {
                // The owner's input is that of the caller.
                continue;
            }
            let is_loaded_again = is_loading && origin == me;
            let is_sorted_copy = recomputes && self.redundancy.outlives_job && !is_loaded_again;
            let store = &mut *self.redundancy.store;
            let known = self.integrity.input_digests.get(&origin.home()).copied();
            // An input that cannot be read is not held. The store is in memory, which always takes a block.
            let intact = |stored: Result<Option<Block>>| {
                stored.ok().flatten().filter(|block| {
                    let known = known.or(block.digest);
                    known.is_none_or(|known| block.digest_now(checks.key) == known)
                })
            };
            let mut right = intact(store.get(VersionId::INPUT, origin.home())).is_some();
            if !right
                && is_sorted_copy
                && !mutant(Mutant::ProtectedCopyGivenUp)
                && let Some(input) = intact(store.held(origin.home()))
            {
                // The copy that the job has sorted, or was about to sort, is wrong, and not the input of which it was made.
                right = store.put(VersionId::INPUT, origin.home(), &input).is_ok();
            }
            let is_of_caller = recomputes && origin == me && self.inputs.source.has_own();
            if !right && is_of_caller && !self.redundancy.outlives_job {
                let own = self.inputs.source.own();
                let own = own.map(|own| Some(Block::input(me, own.into())));
                if let Some(own) = intact(own) {
                    right = store.put(VersionId::INPUT, me.home(), &own).is_ok();
                }
            }
            if is_loaded_again {
                if !right {
                    self.inputs.load_again();
                }
                // The input is there, because it was held.
                let Ok(own) = self.inputs.own() else { continue };
                let own = self.with_digest(me, Block::input(me, own));
                let _ = self.redundancy.store.put(VersionId::INPUT, me.home(), &own);
                self.progress.blocks.insert(me.home(), own);
            } else if !right {
                // Where versions are stored, a loaded input is the first one, and all ranks expect its copy here.
                if recomputes {
                    let _ = store.put(VersionId::INPUT, origin.home(), &Block::empty());
                } else if is_loading {
                    store.discard(origin.home());
                }
                self.redundancy.held.remove(origin);
            }
        }
    }
}

/// The size of the start of a block's part of an array, which precedes its border in a report.
const START_BYTES: usize = 8;

/// Appends the start and the border of each array in a block.
fn write_report(node: Node, block: &Block, orders: &[&dyn Kernel], out: &mut Writer) {
    for (array, order) in orders.iter().enumerate() {
        let run = block.runs.get(array);
        let data = run.map_or(&[][..], |run| &run.data);
        out.u64(run.map_or(0, |run| run.start));
        Border::of(node, data, *order).write(out);
    }
}

/// A border of a block, and its start in the whole array.
type PlacedBorder<'r> = (Border<'r>, u64);

/// Returns the borders in a rank's report, one for each array of each block; None if it cannot be read.
fn read_reports<'r>(
    mut fields: Reader<'r>,
    orders: &[&dyn Kernel],
) -> Option<Vec<Vec<PlacedBorder<'r>>>> {
    let mut borders = vec![Vec::new(); orders.len()];
    while !fields.is_empty() {
        for (order, borders) in orders.iter().zip(&mut borders) {
            let start = fields.u64()?;
            borders.push((Border::read(&mut fields, order.record_bytes())?, start));
        }
    }
    Some(borders)
}

/// Compares the reports of all survivors; returns the first violation and the node, or None if all is right.
pub(super) fn judged(
    reports: &[(Rank, Slice)],
    known: Digest,
    orders: &[&dyn Kernel],
) -> Option<(Finding, Option<Node>)> {
    let mut total = Digest::default();
    let mut borders = vec![Vec::new(); orders.len()];
    let mut complete = true;
    for (rank, words) in reports {
        let read = || {
            let mut fields = Reader::new(words);
            let part = fields.u8()?;
            let digest = Digest::decode(fields.bytes(Digest::BYTES)?)?;
            Some((part, digest, read_reports(fields, orders)?))
        };
        let Some((part, digest, read)) = read() else {
            return Some((Finding::Whole, Some(rank.home())));
        };
        complete &= part == 1;
        total = total.combine(digest);
        for (all, of_rank) in borders.iter_mut().zip(read) {
            all.extend(of_rank);
        }
    }
    let mut arrays = borders.into_iter().zip(orders);
    let violation = arrays.find_map(|(borders, order)| misplaced(borders, complete, *order));
    // A rank with an error has reported less than there is.
    violation.or_else(|| (complete && total != known).then_some((Finding::Whole, None)))
}

/// Returns the first violation of the order of one array, and the node. `complete`: all blocks are there.
fn misplaced(
    mut borders: Vec<PlacedBorder<'_>>,
    complete: bool,
    order: &dyn Kernel,
) -> Option<(Finding, Option<Node>)> {
    borders.sort_unstable_by_key(|(border, _)| border.node);
    let (borders, starts): (Vec<_>, Vec<_>) = borders.into_iter().unzip();
    if let Some((one, other)) = violations(&borders, order).first() {
        // Between two neighbours either may be wrong, and its own digest tells.
        return Some((Finding::Order, Some(*one).filter(|one| one == other)));
    }
    let mut place = 0;
    for (border, start) in borders.iter().zip(starts) {
        if complete && border.count > 0 && start != place {
            return Some((Finding::Order, None));
        }
        // Reported numbers may have any value.
        place = u64::wrapping_add(place, border.count);
    }
    None
}

/// The digests of the inputs, by the home node of each.
pub type InputDigests = BTreeMap<Node, Digest>;

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::buffer::Buffer;
    use ftsort_kernels::kernel::kernel_of;
    use ftsort_kernels::record::KeyKind;

    #[test]
    fn accepts_reported_numbers_of_any_size() {
        let kernel = kernel_of(1, KeyKind::U8);
        let report = |node: u32, start: u64, count: u64| {
            let mut message = Writer::new();
            message.u8(1).bytes(&Digest::default().encode()).u64(start);
            let border = Border {
                node: Node(node),
                count,
                first: b"a",
                last: b"a",
            };
            border.write(&mut message);
            let message = Buffer::copy_of(&message.finish()).unwrap();
            (Rank(node), Slice::from(message))
        };
        let judged = |reports: &[_]| judged(reports, Digest::default(), &[&*kernel]);
        assert_eq!(judged(&[report(0, 0, 2), report(1, 2, 1)]), None);
        let wrong = Some((Finding::Order, None));
        assert_eq!(judged(&[report(0, 0, 2), report(1, 3, 1)]), wrong);
        let most = u64::MAX;
        assert_eq!(judged(&[report(0, 0, most), report(1, 3, 9)]), wrong);
        assert_eq!(judged(&[report(0, 0, most), report(1, most, most)]), None);
    }
}

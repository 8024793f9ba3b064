//! Replacement of protected inputs: a job protects the new ones beside the old ones, and its last commit makes all
//! survivors go over to the new ones, or none. Must never: change the old inputs before that commit.
//!
//! Repair of protected inputs: a rank with records that have changed since they were protected gets a copy back.

use std::collections::BTreeMap;

use super::held::HeldInputs;
use super::holders::nearest;
use super::retained::LoadOnly;
use crate::block::Block;
use crate::engine::commit::agreed_error;
use crate::engine::job::{Job, JobParts, run_job};
use crate::engine::{
    Checks, CollectiveResult, Delivery, Engine, Event, InStep, Source, Transfer, Verdict,
    reported_by_all,
};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::VersionId;
use crate::store::overlay::Overlay;
use crate::store::parity::Covered;
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::Digest;
use ftsort_kernels::error::{Error, Finding, Result, Status};

/// Replaces the protected inputs of the survivors by the inputs in `parts`. Inputs of failed ranks that are absent in
/// `parts` stay, and copies or parity that failed with their ranks are made again. A failed rank that is not absent there has failed
/// in this call, so its new input is needed. After an error all survivors have the old inputs, except those of failed
/// ranks that cannot be recovered.
/// Collective; after `Status::DataLost`, `lost` has the owners of the inputs that cannot be protected, the same on
/// all survivors.
pub fn update_inputs(
    engine: &mut Engine<'_>,
    inputs: &mut HeldInputs,
    mut parts: JobParts<'_>,
    lost: &mut RankSet,
) -> CollectiveResult<()> {
    let ranks = engine.members.ranks();
    let mut replaced = RankSet::new(ranks);
    if let Err(error) = recover_inputs(engine, inputs, &mut parts, (&mut replaced, lost)) {
        inputs.state.absent.remove_all(&replaced);
        return Err(error);
    }
    let (state, below) = inputs.lend();
    let is_unchanged = |rank: &Rank| {
        let has_none = state.absent.contains(*rank) || mutant(Mutant::FailedInputsForgotten);
        let had_failed = parts.absent.contains(*rank) || mutant(Mutant::InputsOfTwoVersions);
        engine.members.is_faulty(*rank) && had_failed && !has_none
    };
    let unchanged = RankSet::of(ranks, Rank::all(ranks).filter(is_unchanged));
    let without_new = parts.absent.iter();
    let absent = without_new.filter(|rank| !unchanged.contains(*rank));
    let absent = RankSet::of(ranks, absent);
    let encoded = below.encoding(Covered::Inputs).into_iter();
    let encoded = encoded.flat_map(|encoding| encoding.mine.clone());
    let is_kept = |(node, _): &(Node, Block)| {
        unchanged.contains(Rank(node.0)) && !mutant(Mutant::FailedInputsNotEncoded)
    };
    let raw = encoded.filter(is_kept).collect();
    let mut store = Overlay {
        below,
        above: parts.store,
        unchanged: Some(unchanged.clone()),
    };
    let parts = JobParts {
        checks: parts.checks,
        retains: true,
        ..JobParts::new(&mut store, parts.source, parts.input, absent)
    };
    let mut job = Job::new(engine, &LoadOnly, parts);
    let held = state.held.iter().filter(|rank| unchanged.contains(*rank));
    job.redundancy.held = RankSet::of(ranks, held);
    job.redundancy.raw = raw;
    let hashes = state.hashes.into_iter();
    let of_unchanged = hashes.filter(|(owner, _)| unchanged.contains(*owner));
    // To collect a map sorts, which takes some KB of code for each type.
    let mut hashes = BTreeMap::new();
    hashes.extend(of_unchanged);
    if !mutant(Mutant::UnchangedInputsNotVerified) {
        job.inputs.unchanged = hashes.clone();
    }
    let has_parity = job.parity().is_some();
    let updated = match job.run(lost) {
        Ok(finished) => finished.retained,
        Err(error) => {
            // The others among the lost ranks still have their old inputs, and so have all with the old parity.
            let unchanged = unchanged.iter().filter(|rank| lost.contains(*rank));
            let is_loss = error.status == Status::DataLost && !has_parity;
            let gone = RankSet::of(ranks, unchanged.filter(|_| is_loss));
            inputs.give_up(&gone);
            // The next call that needs the old inputs reports their loss.
            inputs.state.absent.remove_all(&replaced);
            return Err(error);
        }
    };
    let released = || Error::internal("the new inputs were released");
    let mut updated = updated.ok_or_else(released).or_apart()?.into_inputs();
    updated.state.hashes.extend(hashes);
    *inputs = updated;
    Ok(())
}

/// Brings inputs with parity to the executors of the ranks that have failed since, and encodes them again. `replaced`
/// receives the ranks that fail in this call and have no old input any more, but a new one that a callback can load.
/// Collective.
fn recover_inputs(
    engine: &mut Engine<'_>,
    inputs: &mut HeldInputs,
    parts: &mut JobParts<'_>,
    (replaced, lost): (&mut RankSet, &mut RankSet),
) -> CollectiveResult<()> {
    loop {
        let Some(encoding) = inputs.store.encoding(Covered::Inputs) else {
            return Ok(());
        };
        let is_whole = inputs.state.membership == *engine.members.membership();
        if is_whole || mutant(Mutant::InputsReplacedBeforeRecovery) {
            return Ok(());
        }
        let home = engine.members.me().home();
        let mut mine = encoding.mine.iter();
        let own = mine.find(|(node, _)| *node == home);
        let own = own.map_or_else(Slice::default, |(_, block)| block.clone().into_records());
        let checks = parts.checks.map(|checks| Checks {
            input: checks.key.digest(&own),
            ..checks.clone()
        });
        let mut source = OldInput {
            own: own.clone(),
            others: parts.source,
            reloadable: &parts.absent,
        };
        let none = RankSet::new(engine.members.ranks());
        let recovery = JobParts {
            checks: checks.as_ref(),
            held: Some(inputs),
            ..JobParts::new(parts.store, &mut source, own, none)
        };
        let Err(error) = run_job(engine, &LoadOnly, recovery, lost) else {
            return Ok(());
        };
        if error.status != Status::DataLost {
            return Err(error);
        }
        inputs.give_up(lost);
        let have_new =
            parts.source.can_reload() && lost.iter().all(|rank| !parts.absent.contains(rank));
        if !have_new || mutant(Mutant::OldInputsNeeded) {
            return Err(error);
        }
        replaced.extend(lost);
        *lost = RankSet::new(lost.ranks());
    }
}

/// Copies this rank's old input, and reloads those of ranks that had failed before the call: of the others the callback
/// gives the new ones.
struct OldInput<'s> {
    own: Slice,
    others: &'s mut dyn Source,
    /// The ranks with old inputs that can be reloaded.
    reloadable: &'s RankSet,
}

impl Source for OldInput<'_> {
    fn has_own(&self) -> bool {
        true
    }

    fn own(&mut self) -> Result<Buffer> {
        Buffer::copy_of(&self.own)
    }

    fn can_reload(&self) -> bool {
        self.others.can_reload()
    }

    fn can_reload_of(&self, rank: Rank) -> bool {
        self.can_reload() && self.reloadable.contains(rank)
    }

    fn reload(&mut self, rank: Rank) -> Result<Buffer> {
        self.others.reload(rank)
    }
}

/// Returns this rank's protected input: `own`, or a copy from another rank if `own` does not have its digest any more.
/// If no copy is intact, a sort of the input detects it. Collective, where blocks are checked.
pub fn repair_inputs(
    engine: &mut Engine<'_>,
    inputs: &mut HeldInputs,
    own: Slice,
    digest: Digest,
) -> CollectiveResult<Slice> {
    let me = engine.members.me();
    let is_intact = |own: &Slice| engine.key.is_none_or(|key| key.digest(own) == digest);
    let is_changed = !is_intact(&own) && !mutant(Mutant::ChangedInputsNotRepaired);
    let ranks = engine.members.ranks();
    loop {
        let mut report = vec![u8::from(is_changed)];
        report.extend(inputs.state.held.to_bytes());
        let reports = reported_by_all(engine, report, None)?;
        let (mut changed, mut holders) = (Vec::new(), Vec::new());
        for (rank, words) in &reports {
            let Some((flag, held)) = words.split_first() else {
                continue;
            };
            if *flag == 1 {
                changed.push(*rank);
            }
            holders.push((*rank, RankSet::from_bytes(ranks, held)));
        }
        if changed.is_empty() {
            return Ok(own);
        }
        let mut transfers = Vec::new();
        for &to in &changed {
            let others = holders.iter();
            let others = others.filter(|(rank, held)| *rank != to && held.contains(to));
            let others: Vec<Rank> = others.map(|(rank, _)| *rank).collect();
            let from = nearest(to, &others);
            if !others.is_empty() && (to == me || from == me) {
                let copy = inputs.store.get(VersionId::INPUT, to.home());
                let block = copy.ok().flatten().filter(|_| from == me);
                transfers.push(Transfer { from, to, block });
            }
        }
        let mut error = None;
        let moved = engine.transfer(transfers, 1, &mut error)?;
        let got = moved.map(|deliveries| deliveries.into_iter().find_map(Delivery::got));
        match engine.commit(got.is_some(), error.as_ref())? {
            Verdict::Committed => {
                engine.stats.corruptions += 1;
                for rank in changed {
                    engine.tell(Event::Corrupt(Some(rank), rank, Finding::Memory));
                }
                return Ok(got.flatten().map_or(own, Block::into_records));
            }
            Verdict::Replay => {}
            Verdict::Failed(status) if status.get() == Status::Corrupt => {
                engine.accusations.clear();
                return Ok(own);
            }
            Verdict::Failed(status) => return Err(agreed_error(status, error)),
        }
    }
}

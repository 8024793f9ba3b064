//! Replacement of protected inputs: a job protects the new ones beside the old ones, and its last commit makes all
//! survivors go over to the new ones, or none. Must never: change the old inputs before that commit.

use super::retained::{HeldInputs, LoadOnly};
use crate::engine::Engine;
use crate::engine::job::{Job, JobParts};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::overlay::Overlay;
use ftsort_kernels::error::{Error, Result, Status};

/// Replaces the protected inputs of the survivors by the inputs in `parts`. Inputs of ranks that had failed before
/// stay, and copies that failed with their ranks are made again. After an error all survivors have the old inputs,
/// except those of failed ranks that cannot be recovered.
/// Collective; after `Status::DataLost`, `lost` has the owners of the inputs that cannot be protected, the same on
/// all survivors.
pub fn update_inputs(
    engine: &mut Engine<'_>,
    inputs: &mut HeldInputs,
    parts: JobParts<'_>,
    lost: &mut RankSet,
) -> Result<()> {
    let (state, below) = inputs.lend();
    let is_unchanged = |rank: &Rank| {
        let has_none = state.absent.contains(*rank) || mutant(Mutant::FailedInputsForgotten);
        engine.members.is_faulty(*rank) && !has_none
    };
    let ranks = engine.members.ranks();
    let unchanged = RankSet::from_ranks(ranks, Rank::all(ranks).filter(is_unchanged));
    let without_new = parts.absent.iter();
    let absent = without_new.filter(|rank| !unchanged.contains(*rank));
    let absent = RankSet::from_ranks(ranks, absent);
    let mut store = Overlay {
        below,
        above: parts.store,
        unchanged: Some(unchanged.clone()),
    };
    let mut job = Job::new(
        engine,
        &LoadOnly,
        &mut store,
        parts.source,
        parts.input,
        absent,
        parts.checks,
    );
    let held = state.held.iter().filter(|rank| unchanged.contains(*rank));
    job.redundancy.held = RankSet::from_ranks(ranks, held);
    let updated = match job.retaining(true).run(lost) {
        Ok(finished) => finished.retained,
        Err(error) => {
            // The others among the lost ranks still have their old inputs.
            let unchanged = unchanged.iter().filter(|rank| lost.contains(*rank));
            let is_loss = error.status == Status::DataLost;
            let gone = RankSet::from_ranks(ranks, unchanged.filter(|_| is_loss));
            inputs.give_up(&gone);
            return Err(error);
        }
    };
    let released = || Error::new(Status::Internal, "the new inputs were released");
    let mut updated = updated.ok_or_else(released)?.into_inputs();
    let hashes = state.hashes.into_iter();
    let hashes = hashes.filter(|(owner, _)| unchanged.contains(*owner));
    updated.state.hashes.extend(hashes);
    *inputs = updated;
    Ok(())
}

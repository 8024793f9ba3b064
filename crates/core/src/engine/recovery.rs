//! Recovery: a transaction that restores the blocks of failed executors, and moves blocks of live ranks to
//! new executors.

use super::commit::{CollectiveResult, agreed_error};
use super::job::{Job, NextStep, RoundResult};
use super::{Event, Phase, Verdict};
use crate::faults::Point;
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use crate::store::{StoreScope, VersionId};
use ftsort_kernels::error::Status;

impl Job<'_, '_> {
    /// Brings the committed version of every node to its present executor, and renews copies. A failure in
    /// the meantime makes it start again.
    pub(super) fn recover(&mut self) -> CollectiveResult<NextStep> {
        let mut flow = NextStep::Continue;
        loop {
            self.engine.inject_crash(Point::Recover)?;
            let Some(held_with) = self.progress.membership.clone() else {
                // Nothing is committed yet; loading handles the inputs of failed ranks.
                return Ok(NextStep::Continue);
            };
            let start = self.engine.transport.now();
            let mut result = if self.recomputes() && self.parity().is_some() {
                self.restore_by_parity(&held_with)?
            } else if self.recomputes() {
                self.restore_lineage(RoundResult::new())?
            } else {
                let result = self.restore_version(&held_with)?;
                if self.redundancy.outlives_job
                    && self.redundancy.keeps_copies()
                    && self.parity().is_none()
                {
                    self.renew_inputs(result)?
                } else {
                    result
                }
            };
            result.error = self.suspected(result.error);
            self.engine.spent(Phase::Repair, start);
            let verdict = if mutant(Mutant::RecoveryNotAgreed) && result.complete {
                Verdict::Committed
            } else {
                self.engine.commit(result.complete, result.error.as_ref())?
            };
            match verdict {
                Verdict::Committed if result.starts_over => {
                    self.start_over();
                    return Ok(NextStep::Restart);
                }
                Verdict::Committed => {
                    self.accept_recovered(result);
                    self.integrity.distrusted = false;
                    return Ok(flow);
                }
                Verdict::Replay => {}
                Verdict::Failed(status) if status.get() == Status::Corrupt => {
                    self.recover_from_corruption(status, result.error)?;
                    if self.recomputes() {
                        flow = NextStep::RestartFromInputs;
                    }
                }
                Verdict::Failed(status) => {
                    return Err(agreed_error(status, result.error));
                }
            }
        }
    }

    /// Takes over the blocks and encodings of a recovery, which has just been committed.
    pub(super) fn accept_recovered(&mut self, mut result: RoundResult) {
        self.progress.recover(&mut result, self.engine.members);
        self.accept_encodings(result.encodings);
        for (node, from) in result.restored {
            self.engine.tell(Event::Restored(node, from));
        }
    }

    /// Shares the lost ranks after an agreed loss of data. Collective.
    pub(super) fn share_losses(&mut self) -> CollectiveResult<()> {
        if mutant(Mutant::LossesNotReported) {
            return Ok(());
        }
        let ranks = self.engine.members.ranks();
        let mut held = RankSet::new(ranks);
        loop {
            held.extend(&self.inputs_here()?);
            let mine = [self.redundancy.lost.to_bytes(), held.to_bytes()].concat();
            let limit = mine.len();
            let reports = self.engine.share(mine, limit)?;
            for (_, words) in reports.iter().flatten() {
                let (lost, here) = words.split_at(limit / 2);
                let lost = RankSet::from_bytes(ranks, lost);
                self.redundancy.lost.extend(&lost);
                held.extend(&RankSet::from_bytes(ranks, here));
            }
            if self.engine.commit(reports.is_some(), None)? == Verdict::Committed {
                break;
            }
        }
        if self.redundancy.lost.is_empty() {
            // The ranks that missed data have failed too.
            let before = self.progress.membership.as_ref();
            let was_lost = |rank: &Rank| before.is_some_and(|before| !before.is_executing(*rank));
            let failed = self.engine.members.faulty().iter();
            let suspects =
                failed.filter(|rank| !was_lost(rank) && !self.inputs.absent.contains(*rank));
            let (held, missing): (Vec<Rank>, Vec<Rank>) =
                suspects.partition(|rank| held.contains(*rank));
            // A damaged file may be readable at some times only.
            let lost = if missing.is_empty() { held } else { missing };
            self.redundancy.lost = RankSet::of(ranks, lost);
        }
        Ok(())
    }

    /// The owners of inputs from which this rank could restore the blocks of failed ranks.
    fn inputs_here(&mut self) -> CollectiveResult<RankSet> {
        let ranks = self.engine.members.ranks();
        let is_loading = self.progress.membership.is_none();
        self.hold_arrived(&mut RoundResult::new())?;
        Ok(match self.redundancy.store.scope() {
            StoreScope::Copies(_) | StoreScope::Parity(_) if is_loading || self.recomputes() => {
                self.redundancy.held.clone()
            }
            StoreScope::Shared if is_loading => {
                let faulty = self.engine.members.faulty().iter();
                let store = &self.redundancy.store;
                let is_readable = |owner: &Rank| {
                    let input = store.get(VersionId::INPUT, owner.home());
                    input.is_ok_and(|input| input.is_some())
                };
                RankSet::of(ranks, faulty.filter(is_readable))
            }
            _ => RankSet::new(ranks),
        })
    }
}

//! After faults: what died with its executors comes back, as a transaction; and what living ranks have
//! that others are to execute goes there.

use super::commit::agreed_error;
use super::job::{Job, NextStep};
use super::{Event, Phase, Verdict};
use crate::faults::Point;
use crate::members::RankSet;
use crate::mutants::{Mutant, mutant};
use ftsort_kernels::error::{Result, Status};

impl Job<'_, '_> {
    /// Brings the committed version of every node to its executor of now, and copies to as many
    /// ranks as before. Ranks that die meanwhile make it start again.
    pub(super) fn recover(&mut self) -> Result<NextStep> {
        let mut flow = NextStep::Continue;
        loop {
            self.engine.inject_crash(Point::Recover)?;
            let Some(held_with) = self.progress.membership.clone() else {
                // Nothing is committed yet; loading sees to the inputs of the dead.
                return Ok(NextStep::Continue);
            };
            let start = self.engine.transport.now();
            let mut attempt = match self.recomputes() {
                true => self.restore_lineage()?,
                false => self.restore_version(&held_with)?,
            };
            attempt.trouble = self.suspected(attempt.trouble);
            self.engine.spent(Phase::Repair, start);
            let verdict = match mutant(Mutant::RecoveryIsNotAgreed) && attempt.complete {
                true => Verdict::Committed,
                false => self
                    .engine
                    .commit(attempt.complete, attempt.trouble.as_ref())?,
            };
            match verdict {
                Verdict::Committed if attempt.starts_over => {
                    self.start_over();
                    return Ok(NextStep::Restart);
                }
                Verdict::Committed => {
                    self.progress.recover(&mut attempt, self.engine.members);
                    self.integrity.distrusted = false;
                    for (node, from) in attempt.restored {
                        self.engine.tell(Event::Restored(node, from));
                    }
                    return Ok(flow);
                }
                Verdict::Replay => {}
                Verdict::Failed(Status::Corrupt) => {
                    self.recover_from_corruption(attempt.trouble)?;
                    if self.recomputes() {
                        flow = NextStep::RestartFromInputs;
                    }
                }
                Verdict::Failed(status) => {
                    return Err(agreed_error(status, attempt.trouble));
                }
            }
        }
    }

    /// After an agreed loss of data: everybody learns what is lost.
    pub(super) fn tell_losses(&mut self) -> Result<()> {
        if mutant(Mutant::LossesUntold) {
            return Ok(());
        }
        let ranks = self.engine.members.ranks();
        loop {
            let mine = self.redundancy.lost.to_bytes();
            let limit = mine.len();
            let told = self.engine.share(mine, limit)?;
            for (_, words) in told.iter().flatten() {
                self.redundancy
                    .lost
                    .extend(&RankSet::from_bytes(ranks, words));
            }
            if self.engine.commit(told.is_some(), None)? == Verdict::Committed {
                break;
            }
        }
        if self.redundancy.lost.is_empty() {
            // Whoever missed something has died too.
            for rank in self.engine.members.faulty().iter() {
                let node = rank.home();
                let before = self.progress.membership.as_ref();
                if !before.is_some_and(|before| before.faulty.contains(node))
                    && !self.inputs.absent.contains(rank)
                {
                    self.redundancy.lost.insert(rank);
                }
            }
        }
        Ok(())
    }
}

//! The agreement of the survivors on the set of failed ranks.

use super::Protocol;
use super::agreement::MARKED_BITS;
use super::counts::{CountExchange, PeerCounts};
use super::pending::count_tag;
use crate::members::RankSet;
use crate::mutants::{Mutant, mutant};
use crate::transport::mpi_api::{MpiApi, Outcome};
use crate::transport::{Agreed, Comparison};
use ftsort_kernels::error::{Error, Result, Status};

/// Marks the purpose of an agreement. A rank that learns the decision first may enter the next agreement and
/// fail there, while the others decide again and enter another one: then the failed rank's contribution to
/// one can be counted in the other, and neither bit is left.
const ON_A_FLAG: u32 = 1 << (MARKED_BITS - 1);
const ON_FAILURES: u32 = 1 << (MARKED_BITS - 2);

impl<F: MpiApi> Protocol<F> {
    /// Agrees; a failure that is not acknowledged yet is reported to all alike.
    pub(super) fn agree_alone(&mut self, flag: u32) -> Result<Agreed> {
        let own = flag & !ON_FAILURES | ON_A_FLAG;
        let (outcome, agreed) = self.agree_watched(own)?;
        let mixed = agreed & ON_A_FLAG == 0 && !mutant(Mutant::AgreementsNotDistinguished);
        Ok(Agreed {
            flag: (!mixed).then_some(agreed & !ON_A_FLAG),
            faults: outcome == Outcome::Failed || mixed,
        })
    }

    /// Agrees after a barrier, with which the papers' FaultDetection begins. The barrier may succeed on some
    /// ranks and fail on others, so it decides nothing: a rank on which it failed says so in the agreement.
    pub(super) fn agree_after_barrier(&mut self, flag: u32) -> Result<Agreed> {
        const BARRIER_PASSED: u32 = ON_A_FLAG;
        let passed = match self.mpi.barrier()? {
            Outcome::Fine => BARRIER_PASSED,
            Outcome::Failed => {
                // Other ranks may still wait in it.
                self.mpi.revoke()?;
                0
            }
        };
        if mutant(Mutant::BarrierReplacesAgreement) && passed != 0 {
            return Ok(Agreed {
                flag: Some(flag),
                faults: false,
            });
        }
        let own = flag & !BARRIER_PASSED | passed;
        let (outcome, agreed) = self.agree_watched(own)?;
        Ok(Agreed {
            flag: Some(agreed & !BARRIER_PASSED),
            faults: outcome == Outcome::Failed || agreed & BARRIER_PASSED == 0,
        })
    }

    /// Acknowledges the failures that each rank has seen until all survivors have seen the same.
    pub(super) fn agree_on_failures(&mut self) -> Result<()> {
        const ATTEMPTS: usize = 100_000;
        for _ in 0..ATTEMPTS {
            let seen = self.mpi.acknowledge()?;
            if self.is_agreed_on(&seen)? || mutant(Mutant::LocalFailureSet) {
                if !mutant(Mutant::FailuresNotAcknowledged) {
                    self.known_failures = seen.len();
                }
                if !mutant(Mutant::StaleMessagesKept) && !self.drain(&seen)? {
                    continue;
                }
                self.failed.extend(&seen);
                return Ok(());
            }
        }
        Err(Error::new(
            Status::Mpi,
            "the survivors do not come to see the same failed ranks",
        ))
    }

    /// Returns whether all survivors have seen and acknowledged these failures and no others; the same on all.
    fn is_agreed_on(&mut self, seen: &RankSet) -> Result<bool> {
        let mut comparison = Comparison::of_set(seen, self.mpi.ranks());
        loop {
            let own = ON_FAILURES | comparison.word();
            let (outcome, agreed) = self.agree_watched(own)?;
            if outcome == Outcome::Failed {
                return Ok(false);
            }
            if mutant(Mutant::FailureSetsNotCompared) {
                return Ok(true);
            }
            if agreed & ON_FAILURES == 0 {
                return Ok(false);
            }
            if let Some(same) = comparison.learn(agreed) {
                return Ok(same);
            }
        }
    }

    /// Clears the epoch. Returns false, the same on all survivors, if another rank failed before all of them knew the
    /// numbers of messages that they have to clear.
    fn drain(&mut self, newly_failed: &RankSet) -> Result<bool> {
        let me = self.mpi.me();
        let mut live = RankSet::all(self.mpi.ranks());
        live.remove_all(newly_failed);
        live.remove_all(&self.failed);
        live.remove(me);
        let Some(theirs) = self.exchange_counts(&live)? else {
            return Ok(false);
        };
        self.pending
            .drain(&mut self.mpi, &live, &theirs, self.epoch, &mut self.watch)?;
        Ok(true)
    }

    /// Returns the number of messages that each live peer has sent to this rank in this epoch. None, the same on all
    /// survivors: another rank failed, and numbers that went through it are missing.
    fn exchange_counts(&mut self, live: &RankSet) -> Result<Option<PeerCounts>> {
        const ALL_ARRIVED: u32 = ON_FAILURES - 1;
        // Messages of an exchange that was given up may arrive during the next one.
        self.count_exchanges = self.count_exchanges.wrapping_add(1);
        let exchange = CountExchange {
            mpi: &mut self.mpi,
            watch: &mut self.watch,
            peers: live,
            counts: self.pending.sends(),
            tag: count_tag(match mutant(Mutant::CountTagsReused) {
                true => self.epoch,
                false => self.count_exchanges,
            }),
        };
        // Up to here a rank exchanges control messages with all others directly, too. A routed exchange that is given up
        // leaves messages, whose numbers the next transport uses again.
        if live.len() <= self.config.fan_out.pow(2) || exchange.mpi.is_reused() {
            return exchange.directly().map(Some);
        }
        let counts = exchange.routed(self.known_failures)?;
        // The word has neither mark of a purpose, so that it spoils any other agreement in which it is counted by
        // mistake; a word of another agreement can only make an exchange count as given up.
        let own = if counts.is_some() { ALL_ARRIVED } else { 0 };
        let (_, agreed) = self.agree_watched(own)?;
        let is_complete = agreed & ALL_ARRIVED == ALL_ARRIVED;
        if !is_complete && !mutant(Mutant::MissingCountsNotAgreedOn) {
            return Ok(None);
        }
        Ok(Some(counts.unwrap_or_default()))
    }

    /// Revokes, acknowledges, shrinks, and restores the survivors' ranks.
    pub(super) fn shrink_to_survivors(&mut self) -> Result<()> {
        self.mpi.revoke()?;
        self.pending.abandon(&mut self.mpi, &mut self.watch)?;
        let seen = self.mpi.acknowledge()?;
        let mut failed = self.mpi.shrink()?;
        if mutant(Mutant::FailuresBeforeShrinking) {
            failed = self.failed.clone();
            failed.extend(&seen);
        }
        self.failed = failed;
        self.known_failures = 0;
        Ok(())
    }
}

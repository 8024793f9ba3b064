//! The agreement that ends a round, and its consequences.

mod collective;

pub use collective::{AgreedStatus, CollectiveError, CollectiveResult, InStep, agreed_error};

use super::arrivals::Arriving;
use super::integrity::Accusation;
use super::{Event, MessageEvent, Observer, Occasion, Phase, PlacementPolicy, Span, Stats};
use crate::faults::{Point, Schedule};
use crate::members::{Members, Membership, Rank};
use crate::mutants::{Mutant, mutant};
use crate::store::{Store, StoreScope};
use crate::transport::{Agreed, Comparison, Ticket, Transport, WORD_BITS};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status};

/// The decision of all survivors, the same on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// All ranks finished, and none failed.
    Committed,
    /// A rank failed, or could not finish because another one failed. The members are up to date.
    Replay,
    /// A rank has an error that a replay does not remove.
    Failed(AgreedStatus),
}

/// Set by a rank that finished its part of the round.
const COMPLETE: u32 = 1;
/// Set by a rank with a placement policy that wants no change. It does not affect the commit.
const NO_CHANGE: u32 = 2;
/// Set by a rank that agrees to a question that is asked beside the outcome of the step.
const CONSENT: u32 = 1 << (WORD_BITS - 1);

/// Returns the bit of a status. The agreement is a bitwise AND, so a set bit means that no rank has an error
/// of this kind.
fn bit_of(status: Status) -> u32 {
    let place = Status::BY_GRAVITY.iter().position(|other| *other == status);
    place.map_or(0, |place| 4 << place)
}

fn all_clear() -> u32 {
    Status::BY_GRAVITY
        .iter()
        .fold(COMPLETE, |flag, status| flag | bit_of(*status))
}

/// The parts of a group that an [`Engine`] works with. All are borrowed for one job.
pub struct EngineContext<'a> {
    /// Moves messages.
    pub transport: &'a mut dyn Transport,
    /// The ranks, which of them live, and the nodes that they execute.
    pub members: &'a mut Members,
    /// Receives events.
    pub observer: &'a mut dyn Observer,
    /// Receives figures.
    pub stats: &'a mut Stats,
    /// The failures to inject, in tests.
    pub schedule: &'a Schedule,
    /// Proposes which ranks execute nothing, and the shares of the others; on all ranks or on none.
    pub policy: Option<&'a mut dyn PlacementPolicy>,
}

/// The means by which the ranks of a group act together: messages, agreements, and one view of the members.
pub struct Engine<'a> {
    pub(crate) transport: &'a mut dyn Transport,
    pub(crate) members: &'a mut Members,
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) stats: &'a mut Stats,
    pub(crate) schedule: &'a Schedule,
    pub(crate) policy: Option<&'a mut dyn PlacementPolicy>,
    /// All survivors know that a placement policy wants a change.
    pub(crate) reconsider: bool,
    /// Makes the digests of blocks; None: blocks are not checked.
    pub(crate) key: Option<&'a DigestKey>,
    /// Corruptions that this rank has found since the last report to all ranks.
    pub(crate) accusations: Vec<Accusation>,
    /// Entries of the schedule that happen once and have happened.
    pub(crate) corrupted: Vec<usize>,
    /// Inputs that may arrive although a failure interrupted the step.
    pub(super) arriving: Vec<Arriving>,
    /// Receives of messages that count although a failure interrupted the step.
    pub(super) late_messages: Vec<Ticket>,
    /// The size of a record in bytes; 1 for blocks without records.
    pub(crate) record_bytes: usize,
    /// The present round; for events.
    pub(crate) round: u32,
    /// The number of rounds; for events.
    pub(crate) rounds: u32,
}

impl<'a> Engine<'a> {
    /// Makes an engine for one job of a group. The blocks consist of bytes that are not checked.
    pub fn new(context: EngineContext<'a>) -> Engine<'a> {
        Engine {
            transport: context.transport,
            members: context.members,
            observer: context.observer,
            stats: context.stats,
            schedule: context.schedule,
            policy: context.policy,
            reconsider: false,
            key: None,
            accusations: Vec::new(),
            corrupted: Vec::new(),
            arriving: Vec::new(),
            late_messages: Vec::new(),
            record_bytes: 1,
            round: 0,
            rounds: 0,
        }
    }

    /// Sets the size of a record in bytes, and the key of the digests by which blocks are checked; None: they
    /// are not checked. The same on all ranks.
    pub fn set_records(&mut self, record_bytes: usize, key: Option<&'a DigestKey>) {
        self.record_bytes = record_bytes;
        self.key = key;
    }

    /// Sets the number of rounds that events report.
    pub fn set_rounds(&mut self, rounds: u32) {
        self.rounds = rounds;
    }

    /// The members as this rank knows them.
    pub fn members(&self) -> &Members {
        self.members
    }

    /// Readmits all live ranks that were excluded in a job, after its end. Collective.
    pub fn readmit_all(&mut self) {
        self.members.readmit_all();
    }
}

impl Engine<'_> {
    /// Agrees with all survivors on the outcome of the present step. `complete`: this rank did its part;
    /// `error`: its own reason if it could not. After anything but [`Verdict::Committed`] no message is in
    /// transit any more. Collective.
    pub fn commit(&mut self, complete: bool, error: Option<&Error>) -> CollectiveResult<Verdict> {
        Ok(self.commit_with(complete, error, true)?.0)
    }

    /// As [`Engine::commit`]; also returns whether all ranks consent. The answer is the same on all survivors.
    pub(crate) fn commit_with(
        &mut self,
        complete: bool,
        error: Option<&Error>,
        consent: bool,
    ) -> CollectiveResult<(Verdict, bool)> {
        self.members.check_quorum().or_apart()?;
        let mut flag = all_clear();
        if !complete || error.is_some() {
            flag &= !COMPLETE;
        }
        if let Some(error) = error
            && !mutant(Mutant::ErrorNotShared)
        {
            flag &= !bit_of(error.status);
        }
        if mutant(Mutant::SkipsAgreementOnSuccess) && flag == all_clear() {
            return Ok((Verdict::Committed, consent));
        }
        if consent {
            flag |= CONSENT;
        }
        let (members, now) = (&self.members, self.transport.now());
        let wants_change = |policy: &&mut dyn PlacementPolicy| policy.wants_change(members, now);
        if !self.policy.as_ref().is_some_and(wants_change) {
            flag |= NO_CHANGE;
        }
        let (flag, faults) = self.agree_on_word(flag)?;
        self.reconsider |= flag & NO_CHANGE == 0;
        let consent = flag & CONSENT != 0;
        let flag = flag & all_clear();
        let finished = flag == all_clear() || mutant(Mutant::CommitsIncompleteRound);
        if finished && (!faults || mutant(Mutant::CommitsDespiteFailure)) {
            self.inject_crash(Point::Commit)?;
            return Ok((Verdict::Committed, consent));
        }
        self.timed(Phase::Repair, Engine::learn_of_failures)?;
        let gravest = Status::BY_GRAVITY
            .into_iter()
            .find(|status| flag & bit_of(*status) == 0);
        let verdict = gravest.map_or(Verdict::Replay, |status| {
            Verdict::Failed(AgreedStatus::of_agreement(status))
        });
        Ok((verdict, consent))
    }

    /// Agrees until the contributions of all survivors are known, so that no error is forgotten. Returns them, and
    /// whether a rank has failed.
    fn agree_on_word(&mut self, own: u32) -> CollectiveResult<(u32, bool)> {
        let mut failures = false;
        loop {
            let agreed = self.timed(Phase::Commit, |engine| engine.agree(own))?;
            failures |= agreed.faults;
            let lost = mutant(Mutant::LostWordsIgnored).then_some(!0);
            if let Some(flag) = agreed.flag.or(lost) {
                return Ok((flag, failures));
            }
            self.timed(Phase::Repair, Engine::learn_of_failures)?;
        }
    }

    /// Returns the value if every survivor has one; otherwise all fail alike, with their own error where it
    /// has the agreed status. Collective.
    pub fn all_or_none<T>(&mut self, own: Result<T>) -> CollectiveResult<T> {
        Ok(self.all_or_none_with(own, true)?.0)
    }

    /// As [`Engine::all_or_none`]; also returns whether all ranks consent. Collective.
    pub fn all_or_none_with<T>(
        &mut self,
        own: Result<T>,
        consent: bool,
    ) -> CollectiveResult<(T, bool)> {
        let error = own.as_ref().err().cloned();
        loop {
            match self.commit_with(error.is_none(), error.as_ref(), consent)? {
                // No rank has an error.
                (Verdict::Committed, all) => return Ok((own.or_apart()?, all)),
                (Verdict::Failed(status), _) => return Err(agreed_error(status, error)),
                (Verdict::Replay, _) => {}
            }
        }
    }

    /// Lets one rank act, and another one if it fails, until all survivors know that the action is done. It may be done
    /// several times. `chosen`: the rank, the same on all ranks. Fails on all ranks alike. Collective.
    pub fn let_one_act(
        &mut self,
        chosen: fn(&Members) -> Rank,
        mut act: impl FnMut() -> Result<()>,
    ) -> CollectiveResult<()> {
        loop {
            let acts = chosen(self.members) == self.members.me();
            let done = if acts { act() } else { Ok(()) };
            match self.commit(true, done.as_ref().err())? {
                Verdict::Committed => return Ok(()),
                Verdict::Replay if mutant(Mutant::ActionOfFailedRank) => return Ok(()),
                Verdict::Replay => {}
                Verdict::Failed(status) => return Err(agreed_error(status, done.err())),
            }
        }
    }

    /// Detects failures: afterwards all survivors know the same failed ranks. Collective.
    pub fn check_faults(&mut self) -> CollectiveResult<()> {
        while self.commit(true, None)? != Verdict::Committed {}
        Ok(())
    }

    /// Returns the bitwise AND of the survivors' values; afterwards all know the same failed ranks.
    /// Collective.
    pub fn agree_on(&mut self, value: u32) -> CollectiveResult<u32> {
        loop {
            let known = self.members.faulty().len();
            let low = self.agree_on_bits(value & 0xffff)?;
            let high = self.agree_on_bits(value >> 16)?;
            // A rank that failed in between has contributed one half.
            if self.members.faulty().len() == known || mutant(Mutant::HalfNumbersAgreed) {
                return Ok(high << 16 | low);
            }
        }
    }

    fn agree(&mut self, flag: u32) -> CollectiveResult<Agreed> {
        self.transport.agree(flag).or_apart()
    }

    /// As [`Engine::agree_on`], for values of at most [`WORD_BITS`] bits.
    fn agree_on_bits(&mut self, value: u32) -> CollectiveResult<u32> {
        loop {
            let agreed = self.agree(value)?;
            if let (Some(flag), false) = (agreed.flag, agreed.faults) {
                return Ok(flag);
            }
            self.timed(Phase::Repair, Engine::learn_of_failures)?;
        }
    }

    /// Returns whether all survivors have the same value. Collective.
    pub fn all_equal(&mut self, value: u64) -> CollectiveResult<bool> {
        self.all_equal_in(value, u64::BITS)
    }

    /// As [`Engine::all_equal`], for the lowest `bits` bits of the value. Collective.
    pub fn all_equal_in(&mut self, value: u64, bits: u32) -> CollectiveResult<bool> {
        let mut comparison = Comparison::new(value.into(), bits);
        loop {
            let agreed = self.agree_on_bits(comparison.word())?;
            if let Some(equal) = comparison.learn(agreed) {
                return Ok(equal);
            }
        }
    }

    /// Returns whether no rank will read the store of a job any more to continue the job, as far as all ranks
    /// know. Collective.
    pub(super) fn is_over(&mut self, store: &dyn Store) -> CollectiveResult<bool> {
        if store.scope() != StoreScope::Shared || mutant(Mutant::StoreClearedAtCommit) {
            return Ok(true);
        }
        // An agreement that ends without failures proves that all ranks have learnt the result of the one
        // before. A rank that has failed in between took its part of the result along; the next call finds
        // that.
        Ok(!self.agree(0)?.faults || mutant(Mutant::StoreClearedAlone))
    }

    /// Empties the store once no rank will read it any more. Returns whether it did. Collective.
    pub(super) fn clear(&mut self, store: &mut dyn Store) -> CollectiveResult<bool> {
        if !self.is_over(store)? {
            store.leave();
            return Ok(false);
        }
        store.clear();
        if self.members.lowest_survivor() == self.members.me() {
            store.sweep();
        }
        Ok(true)
    }

    /// Makes new failures known to the members and the observer.
    fn learn_of_failures(&mut self) -> CollectiveResult<()> {
        let keep = self.late_tickets();
        let failed = self.transport.recover(&keep).or_apart()?;
        let before = self.members.membership().clone();
        let newly_failed = self.members.absorb(&failed);
        self.stats.faults += newly_failed.len() as u64;
        for rank in newly_failed {
            self.tell(Event::Failure(rank));
        }
        self.report_executors(&before);
        self.members.check_quorum().or_apart()
    }

    /// Reports the nodes that have a new executor.
    pub(super) fn report_executors(&mut self, before: &Membership) {
        for node in self.members.membership().clone().moved_since(before) {
            self.tell(Event::Executor(node, self.members.executor(node)));
        }
    }

    /// Runs `work` and adds its time to a phase.
    pub fn timed<T>(&mut self, phase: Phase, work: impl FnOnce(&mut Self) -> T) -> T {
        let start = self.transport.now();
        let result = work(self);
        self.spent(phase, start);
        result
    }

    /// Adds the time from `start` until now to a phase.
    pub(super) fn spent(&mut self, phase: Phase, start: f64) {
        let seconds = self.transport.now() - start;
        self.stats.add(phase, seconds);
        self.observer.span(Span {
            phase,
            start,
            seconds,
            round: self.round,
            epoch: self.members.epoch(),
        });
    }

    /// Reports a message to the observer.
    pub(super) fn emit_message(&mut self, from: Rank, to: Rank, bytes: usize) {
        let message = self.message_event(from, to, bytes);
        self.observer.message(message);
    }

    /// Reports records that travel in one message with the header of their block.
    pub(super) fn emit_enclosed(&mut self, from: Rank, to: Rank, bytes: usize) {
        let message = self.message_event(from, to, bytes);
        self.observer.enclosed_message(message);
    }

    fn message_event(&self, from: Rank, to: Rank, bytes: usize) -> MessageEvent {
        MessageEvent {
            from,
            to,
            bytes,
            round: self.round,
            epoch: self.members.epoch(),
        }
    }

    /// Reports an event to the observer.
    pub fn tell(&mut self, event: Event) {
        self.observer.event(Occasion {
            event,
            round: self.round,
            rounds: self.rounds,
            epoch: self.members.epoch(),
            speaker: self.members.lowest_survivor(),
            living_here: self.members.living_here(),
        });
    }

    /// Crashes this process here if the schedule says so.
    pub fn inject_crash(&mut self, point: Point) -> CollectiveResult<()> {
        if self.schedule.crashes(self.members.me(), self.round, point) {
            self.transport.crash().or_apart()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_own_bit_below_the_reserved_ones() {
        let bits: Vec<u32> = Status::BY_GRAVITY.map(bit_of).to_vec();
        let all = bits
            .iter()
            .fold(COMPLETE | NO_CHANGE | CONSENT, |all, bit| {
                assert_eq!(bit.count_ones(), 1);
                assert_eq!(all & bit, 0);
                all | bit
            });
        assert_eq!(all, all_clear() | NO_CHANGE | CONSENT);
        // The transport and the sign bit of MPI's int use the top bits.
        assert!(all < 1 << 30);
    }
}

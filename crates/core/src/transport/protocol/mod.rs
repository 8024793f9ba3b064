//! The protocol: a transport built from MPI's calls as they behave when processes fail.
//!
//! One communicator is created once and never repaired. Survivors agree on it, acknowledge failures on it,
//! and keep their ranks. Nothing is created, revoked or shrunk while ranks fail, because Open MPI's
//! communicator creation crashes survivors when a failure notice arrives within it. The papers' own sequence
//! (2024, Section 5.1), which shrinks at every failure, is available too ([`Repair::Shrink`]), for
//! comparison.
//!
//! Must never: receive from any source, send to a rank that is known to have failed, or conclude from its own
//! view that other ranks have the same view.

mod agreement;
mod counts;
mod pending;
mod repair;

use std::convert::Infallible;

use super::mpi_api::{MpiApi, Outcome};
use super::watch::{Activity, Contact, Timeout, Watch};
use super::{Agreed, Flow, Ticket, Transport};
use crate::members::{Rank, RankSet};
use crate::mutants::{Mutant, mutant};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result};
use pending::Pending;

/// The number of bits of a word without the marks of its purpose, of which [`repair`] has two.
pub(super) const WORD_BITS: u32 = agreement::MARKED_BITS - 2;

/// The way in which the survivors agree on the failed ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Agree and acknowledge on one communicator that is never replaced.
    Agree,
    /// The papers' FaultDetection: barrier, agree, revoke, acknowledge, shrink, same identities.
    Shrink,
}

/// The configuration of a [`Protocol`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtocolConfig {
    /// See [`Repair`].
    pub repair: Repair,
    /// The greatest size in bytes of the messages in which payloads travel.
    pub chunk: usize,
    /// When waits end with `Status::Mpi`.
    pub timeout: Timeout,
    /// See [`Transport::fan_out`].
    pub fan_out: usize,
}

impl ProtocolConfig {
    /// The usual fan-out: up to 65 ranks exchange control messages with one of them directly.
    pub const FAN_OUT: usize = 8;
}

/// A transport over an implementation of [`MpiApi`].
pub struct Protocol<F> {
    mpi: F,
    config: ProtocolConfig,
    pending: Pending,
    watch: Watch,
    /// The number of agreements that have ended.
    agreements: u32,
    /// No message was posted since the last of them.
    is_agreed: bool,
    failed: RankSet,
    /// The number of failures in the present communicator that all ranks know.
    known_failures: usize,
    /// A message was not sent because a rank has failed; the next wait reports it.
    unsent: bool,
    /// The number of recoveries so far: separates the messages of different epochs.
    epoch: u32,
    /// The number of exchanges of message counts so far: separates their messages.
    count_exchanges: u32,
}

impl<F: MpiApi> Protocol<F> {
    /// The transport of one rank.
    pub fn new(mpi: F, config: ProtocolConfig) -> Protocol<F> {
        let absent = mpi.absent();
        let timeout = match config.repair {
            Repair::Agree => config.timeout,
            Repair::Shrink => Timeout::Never,
        };
        Protocol {
            watch: Watch::new(timeout, mpi.me(), &absent, mpi.ranks()),
            agreements: 0,
            is_agreed: false,
            failed: absent,
            pending: Pending::new(config.chunk),
            mpi,
            config,
            known_failures: 0,
            unsent: false,
            epoch: 0,
            count_exchanges: 0,
        }
    }

    /// The underlying implementation.
    pub fn mpi(&self) -> &F {
        &self.mpi
    }

    fn refuse_failed(&self, rank: Rank) -> Result<()> {
        if rank.index() < self.mpi.ranks() && !self.failed.contains(rank) {
            Ok(())
        } else {
            Err(Error::internal(format!(
                "rank {rank} has failed, but a message names it"
            )))
        }
    }

    /// Waits until all receives are complete, and all sends too if these count, or a rank fails.
    fn wait_for_messages(&mut self, sends: bool) -> Result<Flow> {
        if self.unsent {
            return Ok(Flow::Interrupted);
        }
        self.watch.begin(self.mpi.now());
        let flow = self.poll_messages(sends)?;
        self.watch.end(&mut self.mpi);
        Ok(flow)
    }

    fn poll_messages(&mut self, sends: bool) -> Result<Flow> {
        let mut tests_all = true;
        while !self.pending.is_settled(sends) {
            let before = self.pending.open();
            if self.pending.poll(&mut self.mpi, tests_all)? == Outcome::Failed {
                return Ok(Flow::Interrupted);
            }
            let now = self.mpi.now();
            if self.pending.open() < before {
                self.watch.progress(now);
                continue;
            }
            tests_all = self.watch.is_due(now);
            if tests_all {
                if self.sees_new_failures(None)? && !mutant(Mutant::WaitIgnoresFailures) {
                    return Ok(Flow::Interrupted);
                }
                self.watch.look(&mut self.mpi, now)?;
            }
            self.mpi.rest()?;
        }
        Ok(Flow::Done)
    }

    /// Returns whether this rank sees failures that are not agreed on yet. `receiver`: see [`MpiApi::failures`].
    fn sees_new_failures(&mut self, receiver: Option<Rank>) -> Result<bool> {
        Ok(self.mpi.failures(receiver)? > self.known_failures)
    }
}

impl<F: MpiApi> Transport for Protocol<F> {
    fn keeps_borrowed(&self) -> bool {
        self.mpi.keeps_borrowed()
    }

    fn me(&self) -> Rank {
        self.mpi.me()
    }

    fn ranks(&self) -> usize {
        self.mpi.ranks()
    }

    fn now(&self) -> f64 {
        self.mpi.now()
    }

    fn send(&mut self, to: Rank, payload: Slice) -> Result<()> {
        self.is_agreed = false;
        self.refuse_failed(to)?;
        // Open MPI drops its endpoint to a process that it has seen fail, and dereferences NULL in a large
        // send to it. It learns of failures only while it makes progress, so nothing changes between this
        // test and the send.
        self.unsent |= self.sees_new_failures(Some(to))?;
        if self.unsent && !mutant(Mutant::SendsToFailedRanks) {
            return Ok(());
        }
        self.pending.send(&mut self.mpi, to, self.epoch, &payload)
    }

    fn receive(&mut self, from: Rank, capacity: usize) -> Result<Ticket> {
        self.is_agreed = false;
        self.refuse_failed(from)?;
        self.pending
            .receive(&mut self.mpi, from, self.epoch, capacity)
    }

    fn discard(&mut self, from: Rank, length: usize) -> Result<()> {
        self.is_agreed = false;
        self.refuse_failed(from)?;
        self.pending
            .discard(&mut self.mpi, from, self.epoch, length)
    }

    fn eager_limit(&self) -> usize {
        self.config.chunk
    }

    fn fan_out(&self) -> usize {
        self.config.fan_out
    }

    fn settle(&mut self) -> Result<Flow> {
        self.wait_for_messages(true)
    }

    fn settle_receives(&mut self) -> Result<Flow> {
        self.wait_for_messages(false)
    }

    fn is_complete(&self, ticket: Ticket) -> bool {
        self.pending.is_complete(ticket)
    }

    fn take(&mut self, ticket: Ticket) -> Slice {
        self.pending.take(&mut self.mpi, ticket)
    }

    fn agree(&mut self, flag: u32) -> Result<Agreed> {
        match self.config.repair {
            Repair::Agree => self.agree_alone(flag),
            Repair::Shrink => self.agree_after_barrier(flag),
        }
    }

    fn agreement(&self) -> Option<u32> {
        self.is_agreed.then_some(self.agreements)
    }

    fn recover(&mut self, keep: &[Ticket]) -> Result<RankSet> {
        match self.config.repair {
            Repair::Agree => self.agree_on_failures()?,
            Repair::Shrink => self.shrink_to_survivors()?,
        }
        self.pending.forget(&mut self.mpi, keep);
        self.watch.forget(&self.failed);
        self.epoch = self.epoch.wrapping_add(1);
        self.unsent = false;
        Ok(self.failed.clone())
    }

    fn failed(&self) -> &RankSet {
        &self.failed
    }

    fn repair_by(&mut self, repair: Repair) {
        self.config.repair = repair;
        if repair == Repair::Shrink {
            self.watch.turn_off();
        }
    }

    fn contact(&self) -> Contact {
        self.mpi.contact()
    }

    fn meet(&mut self, contacts: &[(Rank, Contact)]) {
        if self.watch.is_on() {
            self.mpi.meet(contacts);
            self.watch.contacts_are_known();
        }
    }

    fn leave(&mut self) {
        self.mpi.publish(Activity::Left);
    }

    fn crash(&mut self) -> Result<Infallible> {
        self.mpi.crash()
    }
}

//! A simulated rank's access to the shared state, and its steps.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::Range;
use std::rc::Rc;

use corosensei::Yielder;

use super::SimStep;
use super::buffers::SimBuffer;
use super::calls::{CallResult, CollectiveCall};
use super::state::SimState;
use super::trace::TraceEvent;
use super::traffic::Traffic;
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::transport::mpi_api::{Look, MpiApi, Outcome, RecvBuffer, Request, Tag};
use ftsort_core::transport::watch::{
    Activity, CONTACT_BYTES, Contact, Liveness, SignsOfLife, Watch,
};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::memory::{self, MemoryBudget};

/// The reason why a rank returns to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Other ranks may continue.
    Busy,
    /// The rank waits until something changes.
    Waiting,
}

/// The message-passing interface of one simulated rank.
pub struct SimMpi<'y> {
    handle: RankHandle,
    yielder: &'y Yielder<(), Pause>,
}

/// A handle with which other actions of a rank, such as writing files, count as its steps.
#[derive(Clone)]
pub struct RankHandle {
    rank: Rank,
    state: Rc<RefCell<SimState>>,
}

impl RankHandle {
    /// Counts a step. Returns an error if the rank fails at it, or has failed before.
    pub fn step(&self, kind: SimStep) -> Result<()> {
        self.state.borrow_mut().step(self.rank, kind);
        self.check()
    }

    /// Returns an error if the rank does not run any more.
    pub fn check(&self) -> Result<()> {
        if self.state.borrow().is_running(self.rank) {
            Ok(())
        } else {
            Err(has_failed())
        }
    }

    /// Draws a number below `limit` from the seed.
    pub fn chance(&self, limit: u64) -> u64 {
        self.state.borrow_mut().draw.below(limit)
    }

    /// Adds an event to the trace, if one is recorded.
    pub fn trace(&self, event: impl FnOnce() -> TraceEvent) {
        self.state.borrow_mut().trace(Some(self.rank), event);
    }

    /// Counts messages that this rank receives from now on to a job.
    pub fn begin_job(&self, number: usize) {
        self.state.borrow_mut().process(self.rank).job = number;
    }

    /// Whether another rank has not failed.
    pub fn is_alive(&self, rank: Rank) -> bool {
        self.state.borrow().is_alive(rank)
    }

    /// Whether another rank still runs, which includes ranks that were reported as failed too early.
    pub fn is_running(&self, rank: Rank) -> bool {
        self.state.borrow().is_running(rank)
    }

    /// Announces that the next bytes that the rank sends are records.
    pub fn announce_records(&self, bytes: usize) {
        let mut state = self.state.borrow_mut();
        state.process(self.rank).traffic.announce_records(bytes);
    }

    /// Notes that records have come with a control message.
    pub fn enclose(&self, bytes: usize) {
        let mut state = self.state.borrow_mut();
        state.process(self.rank).traffic.enclose(bytes);
        state.add_enclosed(self.rank, bytes);
    }

    /// The messages of the rank so far.
    pub fn traffic(&self) -> Traffic {
        let mut state = self.state.borrow_mut();
        let traffic = &mut state.process(self.rank).traffic;
        traffic.end_step();
        *traffic
    }

    /// The time of the rank by the network clock in seconds; 0 without a network clock.
    pub fn time(&self) -> f64 {
        self.state.borrow_mut().time_of(self.rank)
    }

    /// The activity that the rank has published.
    pub fn activity(&self) -> Activity {
        self.state.borrow_mut().process(self.rank).activity
    }

    /// The number of steps that the rank has taken.
    pub fn own_steps(&self) -> u32 {
        self.state.borrow_mut().process(self.rank).steps
    }

    /// The number of steps that all ranks have taken together.
    pub fn steps(&self) -> usize {
        self.state.borrow().steps
    }

    /// The rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }
}

fn has_failed() -> Error {
    Error::new(Status::Internal, "this simulated rank has failed")
}

impl<'y> SimMpi<'y> {
    pub(super) fn new(
        rank: Rank,
        state: Rc<RefCell<SimState>>,
        yielder: &'y Yielder<(), Pause>,
    ) -> SimMpi<'y> {
        SimMpi {
            handle: RankHandle { rank, state },
            yielder,
        }
    }

    /// A handle for the rank's other actions.
    pub fn handle(&self) -> RankHandle {
        self.handle.clone()
    }

    /// Counts a step. Sometimes other ranks continue within it.
    fn step(&self, kind: SimStep) -> Result<()> {
        self.handle.step(kind)?;
        if self.state(|state| state.network.is_some() || state.in_batches) {
            return Ok(());
        }
        if self.state(|state| state.is_held(self.handle.rank)) {
            self.yielder.suspend(Pause::Busy);
        }
        if self.state(|state| state.draw.once_in(3)) {
            self.yielder.suspend(Pause::Busy);
        }
        self.handle.check()
    }

    fn state<T>(&self, work: impl FnOnce(&mut SimState) -> T) -> T {
        work(&mut self.handle.state.borrow_mut())
    }

    /// Waits for the result of a collective call.
    fn call_result(&mut self, mut watch: Option<&mut Watch>) -> Result<CallResult> {
        loop {
            self.handle.check()?;
            let result = self.state(|state| {
                let process = state.process(self.handle.rank);
                process.result.take().inspect(|_| process.inside = None)
            });
            if let Some(result) = result {
                return Ok(result);
            }
            if let Some(watch) = &mut watch {
                let now = self.now();
                if watch.is_due(now) {
                    watch.look(self, now)?;
                }
            }
            self.yielder.suspend(Pause::Waiting);
        }
    }

    fn leave(&self, call: CollectiveCall, outcome: Outcome) {
        self.handle.trace(|| TraceEvent::Leaves {
            call,
            failed: outcome == Outcome::Failed,
        });
    }
}

fn unexpected_result() -> Error {
    Error::new(
        Status::Internal,
        "a collective call returned the result of another kind of call",
    )
}

impl Liveness for SimMpi<'_> {
    fn contact(&self) -> Contact {
        [0; CONTACT_BYTES]
    }

    fn meet(&mut self, contacts: &[(Rank, Contact)]) {
        // The ranks met before the run began.
        let me = self.handle.rank;
        self.state(|state| {
            let now = state.clock;
            let signs = &mut state.process(me).signs;
            signs.extend(contacts.iter().map(|(rank, _)| {
                let met = SignsOfLife {
                    at_work: Some(now),
                    ..SignsOfLife::default()
                };
                (*rank, met)
            }));
        });
    }

    fn publish(&mut self, activity: Activity) {
        self.state(|state| state.publish(self.handle.rank, activity));
    }

    fn probe(&mut self, rank: Rank) {
        self.state(|state| state.probe(self.handle.rank, rank));
    }

    fn signs_of_life(&self, rank: Rank) -> SignsOfLife {
        self.state(|state| state.signs_of_life(self.handle.rank, rank))
    }

    fn seen_failures(&mut self) -> Result<RankSet> {
        self.handle.check()?;
        Ok(self.state(|state| RankSet::clone(state.failures(self.handle.rank).0)))
    }
}

impl MpiApi for SimMpi<'_> {
    fn me(&self) -> Rank {
        self.handle.rank
    }

    fn ranks(&self) -> usize {
        self.state(|state| state.ranks())
    }

    fn absent(&self) -> RankSet {
        self.state(|state| state.absent(self.handle.rank))
    }

    fn now(&self) -> f64 {
        // Each call advances the clock by a second, so that every interval has always passed: the clock
        // does not wake a rank that waits.
        self.state(|state| {
            state.time += 1;
            if state.timed {
                state.look_at_clock()
            } else {
                state.time as f64
            }
        })
    }

    fn add_buffer(&mut self, bytes: usize) -> Result<RecvBuffer> {
        let is_shared = self.state(|state| state.forgets);
        let buffer = SimBuffer::new(bytes, is_shared)?;
        let rank = self.handle.rank;
        Ok(self.state(|state| state.process(rank).recv_buffers.add(buffer)))
    }

    fn take_buffer(&mut self, buffer: RecvBuffer, bytes: usize) -> Slice {
        self.state(|state| state.take_buffer(self.handle.rank, buffer, bytes))
    }

    fn release(&mut self, buffer: RecvBuffer) {
        self.state(|state| state.release(self.handle.rank, buffer));
    }

    fn keeps_borrowed(&self) -> bool {
        false
    }

    fn send(&mut self, to: Rank, tag: Tag, payload: Slice) -> Result<Request> {
        self.step(SimStep::Sending)?;
        // A message may stay in transit after its sender has failed, and with it the end of the sender's call. MPI makes no
        // such copy, so a test that refuses memory to the rank must not refuse it.
        let copy = || {
            let own = payload.clone().into_buffer();
            own.or_else(|_| {
                let _entered = MemoryBudget::new().enter();
                payload.clone().into_buffer()
            })
        };
        let payload = match payload.is_borrowed() {
            true => memory::without_limit(copy)?.into(),
            false => payload,
        };
        let request = self.state(|state| state.send(self.handle.rank, to, tag, payload));
        self.step(SimStep::Sent)?;
        Ok(request)
    }

    fn receive(
        &mut self,
        from: Rank,
        tag: Tag,
        buffer: RecvBuffer,
        range: Range<usize>,
    ) -> Result<Request> {
        self.step(SimStep::Receiving)?;
        Ok(self.state(|state| state.receive(self.handle.rank, from, tag, buffer, range)))
    }

    fn test(&mut self, request: Request) -> Result<Look> {
        self.handle.check()?;
        let look = self.state(|state| state.test(self.handle.rank, request));
        if look != Look::Pending {
            self.step(SimStep::Received)?;
        }
        Ok(look)
    }

    fn cancel(&mut self, request: Request) -> Result<()> {
        self.handle.check()?;
        self.state(|state| state.cancel(self.handle.rank, request));
        Ok(())
    }

    fn abandon(&mut self, request: Request) {
        self.state(|state| state.abandon(self.handle.rank, request));
    }

    fn rest(&mut self) -> Result<()> {
        let changed =
            self.state(|state| std::mem::take(&mut state.process(self.handle.rank).changed));
        self.yielder
            .suspend(if changed { Pause::Busy } else { Pause::Waiting });
        self.handle.check()
    }

    fn failures(&mut self, _receiver: Option<Rank>) -> Result<usize> {
        self.handle.check()?;
        Ok(self.state(|state| state.failures(self.handle.rank).1))
    }

    fn acknowledge(&mut self) -> Result<RankSet> {
        self.step(SimStep::Acknowledging)?;
        Ok(self.state(|state| state.acknowledge(self.handle.rank)))
    }

    fn agree(&mut self, flag: u32, watch: Option<&mut Watch>) -> Result<(Outcome, u32)> {
        self.step(SimStep::Agreeing)?;
        self.state(|state| state.enter(self.handle.rank, CollectiveCall::Agree, flag));
        self.step(SimStep::Waiting)?;
        let CallResult::Agreed(outcome, flag) = self.call_result(watch)? else {
            return Err(unexpected_result());
        };
        self.leave(CollectiveCall::Agree, outcome);
        self.step(SimStep::Agreed)?;
        Ok((outcome, flag))
    }

    fn barrier(&mut self) -> Result<Outcome> {
        self.step(SimStep::Entering)?;
        self.state(|state| state.enter(self.handle.rank, CollectiveCall::Barrier, 0));
        self.step(SimStep::Waiting)?;
        let CallResult::Passed(outcome) = self.call_result(None)? else {
            return Err(unexpected_result());
        };
        self.leave(CollectiveCall::Barrier, outcome);
        self.step(SimStep::Left)?;
        Ok(outcome)
    }

    fn revoke(&mut self) -> Result<()> {
        self.step(SimStep::Revoking)?;
        self.state(|state| state.revoke(self.handle.rank));
        Ok(())
    }

    fn shrink(&mut self) -> Result<RankSet> {
        self.step(SimStep::Shrinking)?;
        self.state(|state| state.enter(self.handle.rank, CollectiveCall::Shrink, 0));
        self.step(SimStep::Waiting)?;
        let CallResult::Shrunk(comm) = self.call_result(None)? else {
            return Err(unexpected_result());
        };
        self.state(|state| {
            let ranks = state.ranks();
            state.process(self.handle.rank).join(comm, ranks);
        });
        self.leave(CollectiveCall::Shrink, Outcome::Fine);
        self.step(SimStep::Shrunk)?;
        Ok(self.absent())
    }

    fn crash(&mut self) -> Result<Infallible> {
        self.state(|state| state.kill(self.handle.rank));
        Err(has_failed())
    }
}

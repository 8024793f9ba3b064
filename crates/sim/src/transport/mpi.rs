//! A simulated rank's view of the world, and its steps.

use std::cell::RefCell;
use std::convert::Infallible;
use std::ops::Range;
use std::rc::Rc;

use corosensei::Yielder;

use super::SimStep;
use super::calls::{Answer, Call};
use super::state::World;
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::transport::mpi_api::{Look, MpiApi, Outcome, RecvBuffer, Request, Tag};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// Why a rank goes back to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Let others go on.
    Busy,
    /// Until something changes.
    Waiting,
}

/// One simulated rank's mpi.
pub struct SimMpi<'y> {
    probe: Probe,
    yielder: &'y Yielder<(), Pause>,
}

/// Lets other things that a rank does, such as writing files, count as its steps.
#[derive(Clone)]
pub struct Probe {
    rank: Rank,
    world: Rc<RefCell<World>>,
}

impl Probe {
    /// Counts a step. An error if the rank is lost in it, or was lost before.
    pub fn step(&self, deed: SimStep) -> Result<()> {
        self.world.borrow_mut().step(self.rank, deed);
        self.check()
    }

    /// Does the rank still run?
    pub fn check(&self) -> Result<()> {
        match self.world.borrow().runs(self.rank) {
            true => Ok(()),
            false => Err(gone()),
        }
    }

    /// A number below `limit`, decided by the script.
    pub fn chance(&self, limit: u64) -> u64 {
        self.world.borrow_mut().draw.below(limit)
    }

    /// Writes down what happens.
    pub fn note(&self, text: impl FnOnce() -> String) {
        self.world.borrow_mut().note(Some(self.rank), text);
    }

    /// Is another rank alive?
    pub fn lives(&self, rank: Rank) -> bool {
        self.world.borrow().is_alive(rank)
    }

    /// How many steps all ranks have taken.
    pub fn steps(&self) -> usize {
        self.world.borrow().taken.len()
    }

    /// Who it is.
    pub fn rank(&self) -> Rank {
        self.rank
    }
}

fn gone() -> Error {
    Error::new(Status::Internal, "this simulated rank is dead")
}

impl<'y> SimMpi<'y> {
    pub(super) fn new(
        rank: Rank,
        world: Rc<RefCell<World>>,
        yielder: &'y Yielder<(), Pause>,
    ) -> SimMpi<'y> {
        SimMpi {
            probe: Probe { rank, world },
            yielder,
        }
    }

    /// For what else the rank does.
    pub fn probe(&self) -> Probe {
        self.probe.clone()
    }

    /// A step; now and then somebody else goes on in it.
    fn step(&self, deed: SimStep) -> Result<()> {
        self.probe.step(deed)?;
        if self.world(|world| world.draw.once_in(3)) {
            self.yielder.suspend(Pause::Busy);
        }
        self.probe.check()
    }

    fn world<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        work(&mut self.probe.world.borrow_mut())
    }

    /// Waits for the answer of a collective call.
    fn answer(&self) -> Result<Answer> {
        loop {
            self.probe.check()?;
            let answer = self.world(|world| {
                let process = world.process(self.probe.rank);
                process.answer.take().inspect(|_| process.inside = None)
            });
            if let Some(answer) = answer {
                return Ok(answer);
            }
            self.yielder.suspend(Pause::Waiting);
        }
    }
}

fn confused() -> Error {
    Error::new(Status::Internal, "an answer to another question")
}

impl MpiApi for SimMpi<'_> {
    fn me(&self) -> Rank {
        self.probe.rank
    }

    fn ranks(&self) -> usize {
        self.world(|world| world.ranks())
    }

    fn absent(&self) -> RankSet {
        self.world(|world| world.absent(self.probe.rank))
    }

    fn now(&self) -> f64 {
        // Each look at the clock takes a second, so that it is always time to look at everything: a
        // rank that rests is not woken by the clock.
        self.world(|world| {
            world.time += 1;
            world.time as f64
        })
    }

    fn land(&mut self, bytes: usize) -> Result<RecvBuffer> {
        let buffer = Buffer::unset(bytes)?;
        Ok(self.world(|world| world.land(self.probe.rank, buffer)))
    }

    fn lift(&mut self, buffer: RecvBuffer) -> Buffer {
        self.world(|world| world.lift(self.probe.rank, buffer))
    }

    fn release(&mut self, buffer: RecvBuffer) {
        self.world(|world| world.release(self.probe.rank, buffer));
    }

    fn send(&mut self, to: Rank, tag: Tag, payload: Slice) -> Result<Request> {
        self.step(SimStep::Sending)?;
        let request = self.world(|world| {
            let bytes = payload.len();
            world.note(Some(self.probe.rank), || {
                format!("sends {bytes} bytes to {to}")
            });
            world.send(self.probe.rank, to, tag, payload)
        });
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
        Ok(self.world(|world| world.receive(self.probe.rank, from, tag, buffer, range)))
    }

    fn test(&mut self, request: Request) -> Result<Look> {
        self.probe.check()?;
        let look = self.world(|world| world.test(self.probe.rank, request));
        if look != Look::Pending {
            self.step(SimStep::Received)?;
        }
        Ok(look)
    }

    fn cancel(&mut self, request: Request) -> Result<()> {
        self.probe.check()?;
        self.world(|world| world.cancel(self.probe.rank, request));
        Ok(())
    }

    fn abandon(&mut self, request: Request) {
        self.world(|world| world.abandon(self.probe.rank, request));
    }

    fn rest(&mut self) -> Result<()> {
        let changed =
            self.world(|world| std::mem::take(&mut world.process(self.probe.rank).changed));
        self.yielder.suspend(match changed {
            true => Pause::Busy,
            false => Pause::Waiting,
        });
        self.probe.check()
    }

    fn failures(&mut self) -> Result<usize> {
        self.probe.check()?;
        Ok(self.world(|world| world.failures(self.probe.rank).len()))
    }

    fn acknowledge(&mut self) -> Result<RankSet> {
        self.step(SimStep::Acknowledging)?;
        Ok(self.world(|world| world.acknowledge(self.probe.rank)))
    }

    fn agree(&mut self, flag: u32, _patience: Option<f64>) -> Result<(Outcome, u32)> {
        self.step(SimStep::Agreeing)?;
        self.world(|world| {
            world.note(Some(self.probe.rank), || format!("agrees with {flag:#x}"));
            world.enter(self.probe.rank, Call::Agree, flag);
        });
        self.step(SimStep::Waiting)?;
        let Answer::Agreed(outcome, flag) = self.answer()? else {
            return Err(confused());
        };
        self.step(SimStep::Agreed)?;
        Ok((outcome, flag))
    }

    fn barrier(&mut self) -> Result<Outcome> {
        self.step(SimStep::Entering)?;
        self.world(|world| world.enter(self.probe.rank, Call::Barrier, 0));
        self.step(SimStep::Waiting)?;
        let Answer::Passed(outcome) = self.answer()? else {
            return Err(confused());
        };
        self.step(SimStep::Left)?;
        Ok(outcome)
    }

    fn revoke(&mut self) -> Result<()> {
        self.step(SimStep::Revoking)?;
        self.world(|world| world.revoke(self.probe.rank));
        Ok(())
    }

    fn shrink(&mut self) -> Result<RankSet> {
        self.step(SimStep::Shrinking)?;
        self.world(|world| world.enter(self.probe.rank, Call::Shrink, 0));
        self.step(SimStep::Waiting)?;
        let Answer::Shrunk(comm) = self.answer()? else {
            return Err(confused());
        };
        self.world(|world| {
            let ranks = world.ranks();
            world.process(self.probe.rank).join(comm, ranks);
        });
        self.step(SimStep::Shrunk)?;
        Ok(self.absent())
    }

    fn crash(&mut self) -> Result<Infallible> {
        self.world(|world| world.kill(self.probe.rank));
        Err(gone())
    }
}

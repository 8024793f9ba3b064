//! The interface between a group and the program around it: host, memory, events, reloaded inputs.
//!
//! The core asks neither the system nor a clock. A program implements these traits; [`Services::default`] is
//! enough for tests.

use std::any::Any;
use std::time::Duration;

use crate::engine::{MessageEvent, Observer, Occasion, Span};
use crate::members::Rank;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Result, Status};
use ftsort_kernels::kernel::Threads;
use ftsort_kernels::memory::MemoryBudget;

/// The kind of a job, which is a span around its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// A sort.
    Sort,
    /// A user-defined algorithm.
    Rounds,
    /// The protection of inputs that are sorted later.
    Protect,
}

/// How serious a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// The group works with a restriction.
    Warning,
    /// For information.
    Information,
}

/// Receives the events of a group, and the begin and end of its calls.
pub trait GroupObserver: Observer {
    /// A collective call begins; on all ranks alike.
    fn call_begins(&mut self) {}

    /// A job begins at this time of the transport's clock.
    fn job_begins(&mut self, _kind: JobKind, _now: f64) {}

    /// The job has ended with this status.
    fn job_ends(&mut self, _status: Status, _now: f64) {}

    /// Receives a line for people, without a newline.
    fn log(&mut self, _level: LogLevel, _line: &str) {}
}

/// Ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn event(&mut self, _occasion: Occasion) {}
}

impl GroupObserver for NoObserver {}

/// The part of its host's memory and processors that a rank may use.
///
/// Each group has its own.
pub trait HostBudget {
    /// The budget to which the buffers of the group's calls are charged; None: the budget that is current for the
    /// calling thread.
    fn memory(&self) -> Option<&MemoryBudget> {
        None
    }

    /// The threads of a group that uses its share of the host's processors ([`Threads::OfGroup`]).
    fn threads(&self) -> Threads {
        Threads::Fixed(1)
    }

    /// Returns whether other processes of the host get all bytes of an array of the program earlier from a copy that is made
    /// now than from the array itself.
    fn copies_are_read_faster(&self, _bytes: usize) -> bool {
        false
    }

    /// A job begins: its buffers may take `limit` bytes, or, if that is 0, this rank's share of the host's
    /// memory.
    fn begin_job(&mut self, limit: usize, survivors_here: usize);

    /// This many survivors share the host from now on.
    fn set_survivors_here(&mut self, survivors_here: usize);
}

/// Sets no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl HostBudget for Unlimited {
    fn begin_job(&mut self, _limit: usize, _survivors_here: usize) {}

    fn set_survivors_here(&mut self, _survivors_here: usize) {}
}

/// Provides inputs of other ranks again.
pub trait Reload {
    /// Returns the input of `rank`, byte for byte as that rank passed it. Give an error [`Status::Callback`].
    fn reload(&mut self, rank: Rank) -> Result<Buffer>;
}

impl<F: FnMut(Rank) -> Result<Buffer>> Reload for F {
    fn reload(&mut self, rank: Rank) -> Result<Buffer> {
        self(rank)
    }
}

/// Ends this process after a time, unless the returned value is dropped before: an injected failure.
pub type KillTimer = fn(Duration) -> Box<dyn Any>;

/// The services of the program around a group.
pub struct Services {
    /// A number that is the same on all ranks of a host.
    pub host: u64,
    /// A number that hardly any other group has.
    pub nonce: u64,
    /// The number of processors that this rank may use, which it may share with other ranks.
    pub processors: usize,
    /// Receives events and log lines.
    pub observer: Box<dyn GroupObserver>,
    /// Limits memory and threads.
    pub budget: Box<dyn HostBudget>,
    /// Provides lost inputs again, on all ranks or on none.
    pub reload: Option<Box<dyn Reload>>,
    /// Starts the timers of injected failures.
    pub kill_timer: KillTimer,
}

impl Default for Services {
    fn default() -> Services {
        Services {
            host: 0,
            nonce: 0,
            processors: 1,
            observer: Box::new(NoObserver),
            budget: Box::new(Unlimited),
            reload: None,
            kill_timer: |_| Box::new(()),
        }
    }
}

/// Passes events on, and keeps the budget up to date.
pub(super) struct BudgetedObserver<'a> {
    pub observer: &'a mut dyn GroupObserver,
    pub budget: &'a mut dyn HostBudget,
}

impl Observer for BudgetedObserver<'_> {
    fn event(&mut self, occasion: Occasion) {
        self.budget.set_survivors_here(occasion.living_here);
        self.observer.event(occasion);
    }

    fn span(&mut self, span: Span) {
        self.observer.span(span);
    }

    fn message(&mut self, message: MessageEvent) {
        self.observer.message(message);
    }
}

//! One rank's monitor, as the thread that serves it, the placement policy and any observing thread share it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::members::{FULL_WEIGHT, Rank};
use crate::monitor::{Action, DEFAULT_LIMIT, Foreground, Monitor, MonitorView, count_primes};
use ftsort_kernels::error::{Error, Result, caught};

/// The test procedure: returns a number that is the same on all ranks.
pub type TestProcedure = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Messages beside the group's own: they may get lost, and no rank waits for one.
pub trait Datagrams {
    /// The clock of the group, in seconds.
    fn now(&self) -> f64;

    /// Sends a message.
    fn send(&mut self, to: Rank, message: Vec<u8>) -> Result<()>;

    /// Returns a message that has arrived, and its sender.
    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>>;
}

pub(super) enum MonitorKind {
    Background(Box<Monitor>),
    Foreground(Box<Foreground>),
}

/// One rank's monitor, as the thread that serves it and any observing thread share it.
pub struct MonitorState {
    pub(super) ranks: usize,
    pub(super) kind: Mutex<MonitorKind>,
    /// The weights that all ranks agreed on; empty: all the same.
    pub(super) weights: Mutex<Vec<u8>>,
    stop: AtomicBool,
    sent: AtomicU64,
    answered: AtomicU64,
    /// The error that ended the thread, until it is logged.
    failure: Mutex<Option<Error>>,
    has_failed: AtomicBool,
    pub(super) test: Option<TestProcedure>,
}

pub(super) fn locked<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MonitorState {
    pub(super) fn new(
        ranks: usize,
        kind: MonitorKind,
        test: Option<TestProcedure>,
    ) -> MonitorState {
        MonitorState {
            ranks,
            kind: Mutex::new(kind),
            weights: Mutex::default(),
            stop: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            failure: Mutex::default(),
            has_failed: AtomicBool::new(false),
            test,
        }
    }

    /// The number of ranks of the group.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns the knowledge of this monitor about a rank; None if there is no such rank.
    pub fn view(&self, rank: Rank) -> Option<MonitorView> {
        if rank.index() >= self.ranks {
            return None;
        }
        Some(match &*locked(&self.kind) {
            MonitorKind::Background(monitor) => monitor.view(rank),
            MonitorKind::Foreground(foreground) => foreground.view(rank),
        })
    }

    /// A rank's share of the work in proportion to that of a rank at full speed, as all ranks agreed.
    pub fn weight(&self, rank: Rank) -> f64 {
        let weights = locked(&self.weights);
        f64::from(weights.get(rank.index()).copied().unwrap_or(FULL_WEIGHT))
            / f64::from(FULL_WEIGHT)
    }

    /// Whether it needs a thread that calls [`MonitorState::run`].
    pub fn is_background(&self) -> bool {
        matches!(&*locked(&self.kind), MonitorKind::Background(_))
    }

    /// The number of messages sent.
    pub fn messages_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The number of tests answered.
    pub fn tests_answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Asks the thread to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Serves the monitor in the caller's thread until it is stopped; calls `idle` where there is nothing to do. If an
    /// error or a panic ends it, the group logs the error, and all ranks treat this rank as healthy from then on.
    pub fn run(&self, datagrams: &mut dyn Datagrams, mut idle: impl FnMut()) {
        let served = caught(|| {
            while !self.stop.load(Ordering::Relaxed) {
                if self.serve(datagrams)? {
                    idle();
                }
            }
            Ok(())
        });
        if let Err(error) = served {
            self.fail(error);
        }
    }

    /// Reports that the thread has ended because of an error: the group logs it at its next call.
    pub(super) fn fail(&self, error: Error) {
        locked(&self.failure).get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
    }

    /// Whether the thread has ended because of an error.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    pub(super) fn take_failure(&self) -> Option<Error> {
        if self.has_failed() {
            locked(&self.failure).take()
        } else {
            None
        }
    }

    /// Runs the test procedure. `Internal` if it panics.
    pub(super) fn answer(&self) -> Result<u64> {
        match &self.test {
            Some(test) => caught(|| Ok(test())),
            None => Ok(count_primes(DEFAULT_LIMIT)),
        }
    }

    /// Handles the messages that have arrived, and sends what is due. Returns whether there was nothing to do.
    fn serve(&self, datagrams: &mut dyn Datagrams) -> Result<bool> {
        let mut actions = Vec::new();
        while let Some((from, message)) = datagrams.receive()? {
            if let MonitorKind::Background(monitor) = &mut *locked(&self.kind) {
                actions.extend(monitor.receive(datagrams.now(), from, &message));
            }
        }
        if let MonitorKind::Background(monitor) = &mut *locked(&self.kind) {
            actions.extend(monitor.tick(datagrams.now()));
        }
        let idle = actions.is_empty();
        while let Some(action) = actions.pop() {
            match action {
                Action::Send { to, message } => {
                    self.sent.fetch_add(1, Ordering::Relaxed);
                    datagrams.send(to, message)?;
                }
                Action::RunTest { to, number } => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    let answer = self.answer()?;
                    if let MonitorKind::Background(monitor) = &mut *locked(&self.kind) {
                        actions.extend(monitor.test_done(datagrams.now(), to, number, answer));
                    }
                }
            }
        }
        Ok(idle)
    }
}

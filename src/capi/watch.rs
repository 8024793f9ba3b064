//! A monitor at work: on a thread of its own, or at the commits; and what it advises the group.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::monitor::{ftsort_monitor, ftsort_test_fn};
use crate::engine::{Adviser, Load};
use crate::error::{Result, caught};
use crate::members::{Rank, RankSet};
use crate::monitor::{Action, DEFAULT_LIMIT, Foreground, Monitor, View, count_primes};
use crate::transport::ulfm::Courier;

/// The test procedure.
#[derive(Clone, Copy)]
pub(super) struct Procedure {
    pub run: ftsort_test_fn,
    pub user: *mut c_void,
}

// SAFETY: the user's function may be called by the monitor's thread, as its documentation says.
unsafe impl Send for Procedure {}

impl Procedure {
    pub fn answer(self) -> u64 {
        match self.run {
            // SAFETY: the user's callback with the user's pointer.
            Some(run) => unsafe { run(self.user) },
            None => count_primes(DEFAULT_LIMIT),
        }
    }
}

/// Who keeps the group.
pub(super) enum Mind {
    Background(Box<Monitor>),
    Foreground(Box<Foreground>),
}

impl ftsort_monitor {
    fn mind(&self) -> MutexGuard<'_, Mind> {
        self.mind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn view(&self, rank: Rank) -> View {
        match &*self.mind() {
            Mind::Background(monitor) => monitor.view(rank),
            Mind::Foreground(foreground) => foreground.view(rank),
        }
    }

    pub(super) fn is_background(&self) -> bool {
        matches!(&*self.mind(), Mind::Background(_))
    }
}

/// One rank's monitor.
pub(super) struct Watch {
    shared: Arc<ftsort_monitor>,
    thread: Option<JoinHandle<()>>,
    procedure: Procedure,
    me: Rank,
    /// In seconds; in the foreground, at least so much is between two tests.
    interval: f64,
    /// The counters that all ranks have agreed on: what the group goes by.
    agreed: Vec<u32>,
    told: Told,
}

/// When this rank told the others last how it is, and what it had used by then.
#[derive(Clone, Copy, Default)]
struct Told {
    at: f64,
    processor: f64,
}

/// A foreground monitor's figure says nothing.
const NOTHING: f64 = f64::NAN;

impl Watch {
    /// `courier`: for a monitor in the background.
    pub fn start(
        (me, ranks): (Rank, usize),
        (mind, interval): (Mind, f64),
        procedure: Procedure,
        courier: Option<Courier>,
        now: f64,
    ) -> Watch {
        let shared = Arc::new(ftsort_monitor {
            ranks,
            mind: Mutex::new(mind),
            stop: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        });
        let thread = courier.map(|courier| {
            let shared = Arc::clone(&shared);
            // What may fail in it is for the user to see in the views: no more tests.
            std::thread::spawn(move || {
                let _ = caught(|| attend(&shared, courier, procedure, interval));
            })
        });
        Watch {
            shared,
            thread,
            procedure,
            me,
            interval,
            agreed: vec![0; ranks],
            told: Told {
                at: now,
                processor: processor_seconds(),
            },
        }
    }

    pub fn shared(&self) -> &ftsort_monitor {
        &self.shared
    }

    /// Whom all ranks agreed to leave out.
    pub fn left_out(&self) -> RankSet {
        odd(&self.agreed)
    }

    /// How many seconds have passed for each that this rank had a processor; or how long the user's test
    /// took. NaN: too little time has passed to tell.
    fn figure(&mut self, now: f64) -> f64 {
        if now - self.told.at < self.interval {
            return NOTHING;
        }
        let processor = processor_seconds();
        let share = (processor - self.told.processor) / (now - self.told.at);
        self.told = Told { at: now, processor };
        match self.procedure.run {
            None => 1.0 / share.clamp(1e-3, 1.0),
            Some(_) => {
                let start = monotonic_seconds();
                self.procedure.answer();
                (monotonic_seconds() - start).max(1e-9)
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic, and nothing could be done about it.
            let _ = thread.join();
        }
    }
}

fn odd(counters: &[u32]) -> RankSet {
    let ranks = Rank::all(counters.len());
    RankSet::from_ranks(
        counters.len(),
        ranks.filter(|rank| counters[rank.index()] % 2 == 1),
    )
}

const FIGURE_BYTES: usize = 8;

impl Adviser for Watch {
    fn is_content(&self, left_out: &RankSet, now: f64) -> bool {
        match &*self.shared.mind() {
            // What a rank outside of the group knows counts for nothing.
            Mind::Background(_) if left_out.contains(self.me) => true,
            Mind::Background(monitor) => {
                let mut counters = monitor.counters().iter().zip(&self.agreed);
                let no_news = counters.all(|(seen, agreed)| seen <= agreed);
                no_news || odd(monitor.counters()) == *left_out
            }
            Mind::Foreground(_) => now - self.told.at < self.interval,
        }
    }

    fn testimony(&mut self, load: &Load) -> Vec<u8> {
        let seen = match &*self.shared.mind() {
            Mind::Background(monitor) => Some(monitor.counters().to_vec()),
            Mind::Foreground(_) => None,
        };
        let (counters, figure) = match seen {
            Some(counters) => (counters, NOTHING),
            None => (self.agreed.clone(), self.figure(load.now)),
        };
        let mut words: Vec<u8> = counters.iter().flat_map(|one| one.to_le_bytes()).collect();
        words.extend(figure.to_le_bytes());
        words
    }

    fn settle(&mut self, told: &[(Rank, &[u8])], group: &RankSet) -> RankSet {
        let ranks = self.agreed.len();
        let living = RankSet::from_ranks(ranks, told.iter().map(|(rank, _)| *rank));
        let dead = Rank::all(ranks).filter(|rank| !living.contains(*rank));
        let dead = RankSet::from_ranks(ranks, dead);
        let mut figures = Vec::new();
        for (rank, words) in told {
            let (counters, figure) = words.split_at(words.len().saturating_sub(FIGURE_BYTES));
            let figure = figure.try_into().map_or(NOTHING, f64::from_le_bytes);
            figures.extend((!figure.is_nan()).then_some((*rank, figure)));
            if group.contains(*rank) {
                for (mine, theirs) in self.agreed.iter_mut().zip(counters.chunks_exact(4)) {
                    let theirs = u32::from_le_bytes([theirs[0], theirs[1], theirs[2], theirs[3]]);
                    *mine = theirs.max(*mine);
                }
            }
        }
        match &mut *self.shared.mind() {
            Mind::Background(monitor) => {
                monitor.absorb_dead(&dead);
                monitor.adopt(&self.agreed);
            }
            Mind::Foreground(foreground) => {
                foreground.absorb_dead(&dead);
                foreground.interval(&figures);
                self.agreed = foreground.counters().to_vec();
            }
        }
        self.left_out()
    }
}

/// The monitor's thread: hears, answers, asks, until it is told to stop.
fn attend(
    shared: &ftsort_monitor,
    mut courier: Courier,
    procedure: Procedure,
    interval: f64,
) -> Result<()> {
    let nap = Duration::from_secs_f64((interval / 100.0).clamp(2e-4, 2e-3));
    while !shared.stop.load(Ordering::Relaxed) {
        let mut actions = Vec::new();
        while let Some((from, message)) = courier.receive()? {
            if let Mind::Background(monitor) = &mut *shared.mind() {
                actions.extend(monitor.hear(courier.now(), from, &message));
            }
        }
        if let Mind::Background(monitor) = &mut *shared.mind() {
            actions.extend(monitor.tick(courier.now()));
        }
        let idle = actions.is_empty();
        while let Some(action) = actions.pop() {
            match action {
                Action::Send { to, message } => {
                    shared.sent.fetch_add(1, Ordering::Relaxed);
                    courier.send(to, message)?;
                }
                Action::RunTest { to, number } => {
                    shared.answered.fetch_add(1, Ordering::Relaxed);
                    let answer = procedure.answer();
                    if let Mind::Background(monitor) = &mut *shared.mind() {
                        actions.extend(monitor.answered(courier.now(), to, number, answer));
                    }
                }
            }
        }
        if idle {
            std::thread::sleep(nap);
        }
    }
    Ok(())
}

fn seconds_of(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a place for one time; both clocks are always there.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// How long this process has had processors.
fn processor_seconds() -> f64 {
    seconds_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn monotonic_seconds() -> f64 {
    seconds_of(libc::CLOCK_MONOTONIC)
}

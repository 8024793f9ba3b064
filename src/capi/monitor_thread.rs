//! A monitor at work: on a thread of its own, or at the commits; and what it advises the group.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::monitor::{ftsort_monitor, ftsort_test_fn};
use crate::ulfm::DatagramChannel;
use ftsort_core::engine::{Load, Placement, PlacementPolicy};
use ftsort_core::members::{FULL_WEIGHT, Rank, RankSet};
use ftsort_core::monitor::group_view::not_recommended;
use ftsort_core::monitor::{
    Action, DEFAULT_LIMIT, Foreground, GroupView, Monitor, MonitorOptions, MonitorView, Report,
    TestTimer, count_primes,
};
use ftsort_kernels::error::{Result, caught};

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

    pub(super) fn view(&self, rank: Rank) -> MonitorView {
        match &*self.mind() {
            Mind::Background(monitor) => monitor.view(rank),
            Mind::Foreground(foreground) => foreground.view(rank),
        }
    }

    pub(super) fn is_background(&self) -> bool {
        matches!(&*self.mind(), Mind::Background(_))
    }

    /// A rank's share of the work in proportion to that of one at full speed, as all have agreed on.
    pub(super) fn weight(&self, rank: Rank) -> f64 {
        let weights = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        f64::from(weights.get(rank.index()).copied().unwrap_or(FULL_WEIGHT))
            / f64::from(FULL_WEIGHT)
    }
}

/// One rank's monitor.
pub(super) struct Watch {
    shared: Arc<ftsort_monitor>,
    thread: Option<JoinHandle<()>>,
    procedure: Procedure,
    me: Rank,
    /// When it tells the others how it is, though it has no news.
    test_timer: TestTimer,
    /// What all ranks have agreed on: what the group goes by.
    group_view: GroupView,
    /// Since when its share of a processor counts.
    since: Moment,
}

/// A moment, and how long this process had had processors by then, in seconds.
#[derive(Clone, Copy)]
struct Moment {
    at: f64,
    processor: f64,
}

impl Watch {
    /// `datagram`: for a monitor in the background.
    pub fn start(
        (me, ranks): (Rank, usize),
        (mind, options): (Mind, &MonitorOptions),
        procedure: Procedure,
        datagram: Option<DatagramChannel>,
        now: f64,
    ) -> Watch {
        let interval = options.interval;
        let shared = Arc::new(ftsort_monitor {
            ranks,
            mind: Mutex::new(mind),
            weights: Mutex::default(),
            stop: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        });
        let thread = datagram.map(|datagram| {
            let shared = Arc::clone(&shared);
            // What may fail in it is for the user to see in the views: no more tests.
            std::thread::spawn(move || {
                let _ = caught(|| attend(&shared, datagram, procedure, interval));
            })
        });
        Watch {
            shared,
            thread,
            procedure,
            me,
            test_timer: TestTimer::new(interval, now),
            group_view: GroupView::new(ranks, options),
            since: Moment {
                at: now,
                processor: processor_seconds(),
            },
        }
    }

    pub fn shared(&self) -> &ftsort_monitor {
        &self.shared
    }

    /// Whom all ranks agreed to leave out.
    pub fn excluded(&self) -> &RankSet {
        &self.group_view.placement().excluded
    }

    /// How many seconds have passed until now for each that this rank had a processor; or how long the user's
    /// test takes.
    fn measurement(&self, now: Moment) -> f64 {
        let share = (now.processor - self.since.processor) / (now.at - self.since.at);
        match self.procedure.run {
            None => 1.0 / share.clamp(1e-3, 1.0),
            Some(_) => {
                let start = monotonic_seconds();
                self.procedure.answer();
                (monotonic_seconds() - start).max(1e-9)
            }
        }
    }

    /// What this rank knows, for all others.
    fn tell(&mut self, now: Moment) -> Report {
        match &*self.shared.mind() {
            Mind::Background(monitor) => {
                self.test_timer.restart(now.at);
                Report {
                    counters: monitor.counters().to_vec(),
                    reply_times: match self.group_view.needs_reply_times() {
                        true => monitor.reply_times(),
                        false => Vec::new(),
                    },
                    ..Report::default()
                }
            }
            Mind::Foreground(_) => {
                let is_due = self.test_timer.is_due(now.at);
                let measurement = self
                    .test_timer
                    .report(now.at)
                    .then(|| self.measurement(now));
                if measurement.is_some() {
                    self.since = now;
                }
                Report {
                    counters: self.group_view.counters().to_vec(),
                    is_due,
                    measurement,
                    ..Report::default()
                }
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

impl PlacementPolicy for Watch {
    fn wants_change(&self, excluded: &RankSet, _weights: &[u8], now: f64) -> bool {
        match &*self.shared.mind() {
            Mind::Foreground(_) => self.test_timer.has_report(now),
            _ if self.group_view.may_change() && self.test_timer.is_due(now) => true,
            // The observations of a rank outside of the group are not used.
            Mind::Background(_) if excluded.contains(self.me) => false,
            Mind::Background(monitor) => {
                let agreed = self.group_view.counters();
                let mut counters = monitor.counters().iter().zip(agreed);
                let has_news = counters.any(|(seen, agreed)| seen > agreed);
                has_news && not_recommended(monitor.counters()) != *excluded
            }
        }
    }

    fn local_report(&mut self, load: &Load) -> Vec<u8> {
        let now = Moment {
            at: load.now,
            processor: processor_seconds(),
        };
        self.tell(now).with_load(load).encode()
    }

    fn settle(&mut self, told: &[(Rank, &[u8])], group: &RankSet) -> Placement {
        let ranks = self.group_view.counters().len();
        let living = RankSet::from_ranks(ranks, told.iter().map(|(rank, _)| *rank));
        let dead = Rank::all(ranks).filter(|rank| !living.contains(*rank));
        let dead = RankSet::from_ranks(ranks, dead);
        let told = told.iter();
        let told: Vec<(Rank, Report)> = told
            .filter_map(|(rank, words)| Some((*rank, Report::decode(ranks, words)?)))
            .collect();
        self.group_view.merge_counters(&told, group);
        let reply_times = match &mut *self.shared.mind() {
            Mind::Background(monitor) => {
                monitor.mark_failed(&dead);
                monitor.adopt_counters(self.group_view.counters());
                self.group_view.reply_times(&told)
            }
            Mind::Foreground(foreground) => {
                self.test_timer
                    .all_reported(told.iter().any(|(_, told)| told.is_due));
                let measurements = told.iter();
                let measurements =
                    measurements.filter_map(|(rank, told)| Some((*rank, told.measurement?)));
                foreground.mark_failed(&dead);
                foreground.end_interval(&measurements.collect::<Vec<_>>());
                self.group_view.set_counters(foreground.counters());
                foreground.reply_times()
            }
        };
        let advice = self.group_view.decide(&told, &reply_times, group).clone();
        let mut weights = self
            .shared
            .weights
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        weights.clone_from(&advice.weights);
        drop(weights);
        advice
    }
}

/// The monitor's thread: hears, answers, asks, until it is told to stop.
fn attend(
    shared: &ftsort_monitor,
    mut datagram: DatagramChannel,
    procedure: Procedure,
    interval: f64,
) -> Result<()> {
    let nap = Duration::from_secs_f64((interval / 100.0).clamp(2e-4, 2e-3));
    while !shared.stop.load(Ordering::Relaxed) {
        let mut actions = Vec::new();
        while let Some((from, message)) = datagram.receive()? {
            if let Mind::Background(monitor) = &mut *shared.mind() {
                actions.extend(monitor.receive(datagram.now(), from, &message));
            }
        }
        if let Mind::Background(monitor) = &mut *shared.mind() {
            actions.extend(monitor.tick(datagram.now()));
        }
        let idle = actions.is_empty();
        while let Some(action) = actions.pop() {
            match action {
                Action::Send { to, message } => {
                    shared.sent.fetch_add(1, Ordering::Relaxed);
                    datagram.send(to, message)?;
                }
                Action::RunTest { to, number } => {
                    shared.answered.fetch_add(1, Ordering::Relaxed);
                    let answer = procedure.answer();
                    if let Mind::Background(monitor) = &mut *shared.mind() {
                        actions.extend(monitor.test_done(datagram.now(), to, number, answer));
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

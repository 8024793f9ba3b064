//! Placement by speed: a monitor of the group's ranks, and the policy that follows from it (2018 paper).
//!
//! A monitor in the background tests other ranks with messages of its own, on a thread that the program around the
//! group provides ([`MonitorState::serve`]). A monitor in the foreground compares figures that ranks report at
//! commits. If a background monitor stops because of an error, its rank can no longer answer tests. It reports that
//! at the next commit, and all ranks treat it as healthy from then on: missing replies say nothing about its speed.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use twox_hash::XxHash3_64;

use super::config::agree_on_equal;
use super::{Group, LogLevel};
use crate::engine::{Load, Placement, PlacementPolicy};
use crate::members::{FULL_WEIGHT, Rank, RankSet};
use crate::monitor::{
    Action, DEFAULT_LIMIT, Foreground, GroupView, Monitor, Options, Rhythm, Told, View,
    count_primes,
};
use crate::transport::Transport;
use ftsort_kernels::error::{Error, Result, Status};

/// How a monitor runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MonitorMode {
    /// In the background where all ranks allow several threads, otherwise in the foreground.
    #[default]
    Auto,
    /// In the background; an error where a rank does not allow several threads.
    Background,
    /// In the foreground.
    Foreground,
}

/// The configuration of a monitor; the same on all ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonitorConfig {
    /// Timeouts, intervals, and the consequences of slowness.
    pub options: Options,
    /// How it runs.
    pub mode: MonitorMode,
}

impl MonitorConfig {
    fn fingerprint(&self) -> u64 {
        let mut hasher = XxHash3_64::new();
        (format!("{:?}", self.options), self.mode).hash(&mut hasher);
        hasher.finish()
    }
}

/// The test procedure: returns a number that is the same on all ranks.
pub type TestProcedure = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The clocks of a rank, in seconds from any instant.
pub trait Clocks {
    /// The time for which this process has had processors.
    fn processor_seconds(&self) -> f64;

    /// A monotonic clock.
    fn seconds(&self) -> f64;
}

/// Messages beside the group's own: they may get lost, and no rank waits for one.
pub trait Datagrams {
    /// The clock of the group, in seconds.
    fn now(&self) -> f64;

    /// Sends a message.
    fn send(&mut self, to: Rank, message: Vec<u8>) -> Result<()>;

    /// Returns a message that has arrived, and its sender.
    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>>;
}

enum Mind {
    Background(Box<Monitor>),
    Foreground(Box<Foreground>),
}

/// One rank's monitor, as the thread that serves it and any observing thread share it.
pub struct MonitorState {
    ranks: usize,
    mind: Mutex<Mind>,
    /// The weights that all ranks agreed on; empty: all the same.
    weights: Mutex<Vec<u8>>,
    stop: AtomicBool,
    sent: AtomicU64,
    answered: AtomicU64,
    /// The error that ended the thread, until it is logged.
    failure: Mutex<Option<Error>>,
    has_failed: AtomicBool,
    test: Option<TestProcedure>,
}

fn locked<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MonitorState {
    fn new(ranks: usize, mind: Mind, test: Option<TestProcedure>) -> MonitorState {
        MonitorState {
            ranks,
            mind: Mutex::new(mind),
            weights: Mutex::default(),
            stop: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            failure: Mutex::default(),
            has_failed: AtomicBool::new(false),
            test,
        }
    }

    /// What this monitor knows of a rank; None if there is no such rank.
    pub fn view(&self, rank: Rank) -> Option<View> {
        if rank.index() >= self.ranks {
            return None;
        }
        Some(match &*locked(&self.mind) {
            Mind::Background(monitor) => monitor.view(rank),
            Mind::Foreground(foreground) => foreground.view(rank),
        })
    }

    /// A rank's share of the work in proportion to that of a rank at full speed, as all ranks agreed.
    pub fn weight(&self, rank: Rank) -> f64 {
        let weights = locked(&self.weights);
        f64::from(weights.get(rank.index()).copied().unwrap_or(FULL_WEIGHT))
            / f64::from(FULL_WEIGHT)
    }

    /// Whether it needs a thread that calls [`MonitorState::serve`].
    pub fn is_background(&self) -> bool {
        matches!(&*locked(&self.mind), Mind::Background(_))
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

    /// Whether the thread is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reports that the thread has ended because of an error: the group logs it at its next call.
    pub fn fail(&self, error: Error) {
        locked(&self.failure).get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
    }

    /// Whether the thread has ended because of an error.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    fn take_failure(&self) -> Option<Error> {
        if self.has_failed() {
            locked(&self.failure).take()
        } else {
            None
        }
    }

    fn answer(&self) -> u64 {
        match &self.test {
            Some(test) => test(),
            None => count_primes(DEFAULT_LIMIT),
        }
    }

    /// Handles the messages that have arrived, and sends what is due. Returns whether there was nothing to do.
    pub fn serve(&self, datagrams: &mut dyn Datagrams) -> Result<bool> {
        let mut actions = Vec::new();
        while let Some((from, message)) = datagrams.receive()? {
            if let Mind::Background(monitor) = &mut *locked(&self.mind) {
                actions.extend(monitor.hear(datagrams.now(), from, &message));
            }
        }
        if let Mind::Background(monitor) = &mut *locked(&self.mind) {
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
                    let answer = self.answer();
                    if let Mind::Background(monitor) = &mut *locked(&self.mind) {
                        actions.extend(monitor.answered(datagrams.now(), to, number, answer));
                    }
                }
            }
        }
        Ok(idle)
    }
}

/// A moment, and the processor time of this process by then, in seconds.
#[derive(Clone, Copy)]
struct Moment {
    at: f64,
    processor: f64,
}

/// Proposes which ranks execute nothing, and the weights of the others.
pub(super) struct MonitorPolicy {
    state: Arc<MonitorState>,
    clocks: Box<dyn Clocks>,
    me: Rank,
    /// When this rank reports although nothing has changed.
    rhythm: Rhythm,
    /// The view that all ranks agreed on.
    group_view: GroupView,
    /// The beginning of the period over which this rank's share of a processor is measured.
    since: Moment,
}

impl MonitorPolicy {
    fn new(
        me: Rank,
        state: Arc<MonitorState>,
        options: &Options,
        clocks: Box<dyn Clocks>,
        now: f64,
    ) -> MonitorPolicy {
        MonitorPolicy {
            me,
            rhythm: Rhythm::new(options.interval, now),
            group_view: GroupView::new(state.ranks, options),
            since: Moment {
                at: now,
                processor: clocks.processor_seconds(),
            },
            clocks,
            state,
        }
    }

    /// The ranks that all agreed to exclude.
    pub fn excluded(&self) -> &RankSet {
        &self.group_view.advice().excluded
    }

    /// The seconds of time for each second of processor time of this rank; with a test procedure of the caller's,
    /// the seconds that it takes.
    fn figure(&self, now: Moment) -> f64 {
        if self.state.test.is_some() {
            let start = self.clocks.seconds();
            self.state.answer();
            return (self.clocks.seconds() - start).max(1e-9);
        }
        let share = (now.processor - self.since.processor) / (now.at - self.since.at);
        1.0 / share.clamp(1e-3, 1.0)
    }

    fn report(&mut self, now: Moment) -> Told {
        match &*locked(&self.state.mind) {
            Mind::Background(monitor) => {
                self.rhythm.rest(now.at);
                Told {
                    counters: monitor.counters().to_vec(),
                    is_untestable: self.state.has_failed(),
                    paces: if self.group_view.asks_for_paces() {
                        monitor.paces()
                    } else {
                        Vec::new()
                    },
                    ..Told::default()
                }
            }
            Mind::Foreground(_) => {
                let is_due = self.rhythm.is_due(now.at);
                let figure = self.rhythm.tell(now.at).then(|| self.figure(now));
                if figure.is_some() {
                    self.since = now;
                }
                Told {
                    counters: self.group_view.counters().to_vec(),
                    is_due,
                    figure,
                    ..Told::default()
                }
            }
        }
    }
}

impl PlacementPolicy for MonitorPolicy {
    fn is_content(&self, excluded: &RankSet, _weights: &[u8], now: f64) -> bool {
        let is_news = self.state.has_failed() && !self.group_view.is_untestable(self.me);
        match &*locked(&self.state.mind) {
            Mind::Foreground(_) => !self.rhythm.has_news(now),
            Mind::Background(_) if is_news => false,
            _ if self.group_view.may_change() && self.rhythm.is_due(now) => false,
            // The observations of an excluded rank do not count.
            Mind::Background(_) if excluded.contains(self.me) => true,
            Mind::Background(monitor) => {
                let agreed = self.group_view.counters();
                let mut counters = monitor.counters().iter().zip(agreed);
                let no_news = counters.all(|(seen, agreed)| seen <= agreed);
                no_news || self.group_view.suspects_by(monitor.counters()) == *excluded
            }
        }
    }

    fn local_report(&mut self, load: &Load) -> Vec<u8> {
        let now = Moment {
            at: load.now,
            processor: self.clocks.processor_seconds(),
        };
        self.report(now).with(load).encode()
    }

    fn settle(&mut self, told: &[(Rank, &[u8])], group: &RankSet) -> Placement {
        let ranks = self.group_view.counters().len();
        let living = RankSet::from_ranks(ranks, told.iter().map(|(rank, _)| *rank));
        let failed = Rank::all(ranks).filter(|rank| !living.contains(*rank));
        let failed = RankSet::from_ranks(ranks, failed);
        let reports = told.iter();
        let reports: Vec<(Rank, Told)> = reports
            .filter_map(|(rank, bytes)| Some((*rank, Told::decode(ranks, bytes)?)))
            .collect();
        self.group_view.hear(&reports, group);
        let paces = match &mut *locked(&self.state.mind) {
            Mind::Background(monitor) => {
                monitor.absorb_dead(&failed);
                monitor.adopt(self.group_view.counters());
                self.group_view.paces(&reports)
            }
            Mind::Foreground(foreground) => {
                self.rhythm
                    .heard(reports.iter().any(|(_, told)| told.is_due));
                let figures = reports.iter();
                let figures = figures.filter_map(|(rank, told)| Some((*rank, told.figure?)));
                foreground.absorb_dead(&failed);
                foreground.interval(&figures.collect::<Vec<_>>());
                self.group_view.set_counters(foreground.counters());
                foreground.paces()
            }
        };
        let placement = self.group_view.decide(&reports, &paces, group).clone();
        locked(&self.state.weights).clone_from(&placement.weights);
        placement
    }
}

impl<T: Transport> Group<T> {
    /// Starts a monitor that proposes the placement of later jobs. Collective.
    ///
    /// `threads`: whether this rank allows several threads. In the background, `open` opens the datagrams for messages
    /// of a size, and the caller lets a thread serve the state with them; in the foreground it is not called.
    ///
    /// # Errors
    /// `Status::State` if the group has a monitor; `Status::Argument` where the configuration differs between ranks.
    pub fn start_monitor<D: Datagrams>(
        &mut self,
        wanted: Result<MonitorConfig>,
        threads: Result<bool>,
        test: Option<TestProcedure>,
        clocks: Box<dyn Clocks>,
        open: impl FnOnce(&T, usize) -> Result<D>,
    ) -> Result<(Arc<MonitorState>, Option<D>)> {
        self.call(|group| {
            let has_monitor = group.policy.is_some();
            let wanted = wanted.and_then(|wanted| {
                if has_monitor {
                    let text = "the group has a monitor already";
                    return Err(Error::new(Status::State, text));
                }
                Ok((wanted, threads?))
            });
            let ((wanted, threads), _) = group.on_engine(|engine| {
                let (wanted, threads) = engine.all_or_none(wanted)?;
                agree_on_equal(engine, wanted.fingerprint(), "config")?;
                let threads = engine.agree_on(u32::from(threads))? != 0;
                Ok((wanted, threads))
            })?;
            if wanted.mode == MonitorMode::Background && !threads {
                return Err(Error::new(
                    Status::Argument,
                    "config.mode is FTSORT_MONITOR_THREAD, but not all ranks were granted \
                     MPI_THREAD_MULTIPLE by MPI_Init_thread",
                ));
            }
            let in_background = threads && wanted.mode != MonitorMode::Foreground;
            let (me, ranks) = (group.members.me(), group.members.ranks());
            let failed = group.members.faulty();
            let options = wanted.options;
            let (mind, datagrams) = if in_background {
                let datagrams = open(&group.transport, message_limit(ranks))?;
                let mut monitor = Monitor::new(me, ranks, options.clone(), datagrams.now());
                monitor.absorb_dead(failed);
                (Mind::Background(Box::new(monitor)), Some(datagrams))
            } else {
                let mut foreground = Foreground::new(ranks, options.clone());
                foreground.absorb_dead(failed);
                (Mind::Foreground(Box::new(foreground)), None)
            };
            let state = MonitorState::new(ranks, mind, test);
            if in_background {
                let answer = state.answer();
                if let Mind::Background(monitor) = &mut *locked(&state.mind) {
                    monitor.set_answer(answer);
                }
            }
            let state = Arc::new(state);
            let now = group.transport.now();
            let shared = Arc::clone(&state);
            group.policy = Some(MonitorPolicy::new(me, shared, &options, clocks, now));
            Ok((state, datagrams))
        })
    }

    /// Ends the influence of the monitor: all survivors execute their nodes again. The caller stops the thread that
    /// serves it. Collective.
    pub fn stop_monitor(&mut self) -> Result<()> {
        self.call(|group| {
            group.policy = None;
            group.on_engine(|engine| engine.check_faults()).map(|_| ())
        })
    }

    /// Logs the end of the monitor's thread, once.
    pub(super) fn log_monitor_failure(&mut self) {
        let policy = self.policy.as_ref();
        if let Some(error) = policy.and_then(|policy| policy.state.take_failure()) {
            let text = format!(
                "the monitor of this rank has stopped, and the rank counts as healthy from now on: {error}"
            );
            self.log(LogLevel::Warning, &text);
        }
    }
}

/// The longest message of a monitor: the counters of all ranks, and a header.
fn message_limit(ranks: usize) -> usize {
    256 + 16 * ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    struct StoppedClocks;

    impl Clocks for StoppedClocks {
        fn processor_seconds(&self) -> f64 {
            0.0
        }

        fn seconds(&self) -> f64 {
            0.0
        }
    }

    fn policy(me: u32, ranks: usize) -> MonitorPolicy {
        let options = Options::default();
        let monitor = Monitor::new(Rank(me), ranks, options.clone(), 0.0);
        let mind = Mind::Background(Box::new(monitor));
        let state = Arc::new(MonitorState::new(ranks, mind, None));
        MonitorPolicy::new(Rank(me), state, &options, Box::new(StoppedClocks), 0.0)
    }

    fn settle(policies: &mut [MonitorPolicy]) -> Vec<Placement> {
        let ranks = policies.len();
        let reports: Vec<Vec<u8>> = policies
            .iter_mut()
            .map(|policy| policy.local_report(&Load::default()))
            .collect();
        let told: Vec<(Rank, &[u8])> = (Rank::all(ranks).zip(&reports))
            .map(|(rank, report)| (rank, &report[..]))
            .collect();
        let all = RankSet::from_ranks(ranks, Rank::all(ranks));
        let placements = policies.iter_mut();
        placements
            .map(|policy| policy.settle(&told, &all))
            .collect()
    }

    fn suspect(policy: &MonitorPolicy, rank: usize) {
        let mut counters = vec![0; policy.state.ranks];
        counters[rank] = 1;
        if let Mind::Background(monitor) = &mut *locked(&policy.state.mind) {
            monitor.adopt(&counters);
        }
    }

    #[test]
    fn a_suspected_rank_is_excluded() {
        let mut policies: Vec<MonitorPolicy> = (0..3).map(|rank| policy(rank, 3)).collect();
        suspect(&policies[0], 2);
        assert!(!policies[0].is_content(&RankSet::new(3), &[], 0.0));
        for placement in settle(&mut policies) {
            assert!(placement.excluded.contains(Rank(2)));
        }
    }

    #[test]
    fn a_rank_whose_monitor_has_stopped_is_not_excluded() {
        let mut policies: Vec<MonitorPolicy> = (0..3).map(|rank| policy(rank, 3)).collect();
        let error = Error::new(Status::Mpi, "no more messages");
        policies[2].state.fail(error.clone());
        assert!(!policies[2].is_content(&RankSet::new(3), &[], 0.0));
        suspect(&policies[0], 2);
        for placement in settle(&mut policies) {
            assert!(placement.excluded.is_empty());
        }
        let none = RankSet::new(3);
        assert!(
            policies
                .iter()
                .all(|policy| policy.is_content(&none, &[], 0.0))
        );
        assert_eq!(policies[2].state.take_failure(), Some(error));
        assert_eq!(policies[2].state.take_failure(), None);
    }

    #[test]
    fn an_excluded_rank_returns_when_its_monitor_stops() {
        let mut policies: Vec<MonitorPolicy> = (0..3).map(|rank| policy(rank, 3)).collect();
        suspect(&policies[0], 2);
        let excluded = settle(&mut policies).remove(0).excluded;
        assert!(excluded.contains(Rank(2)));
        policies[2]
            .state
            .fail(Error::new(Status::Mpi, "no more messages"));
        assert!(!policies[2].is_content(&excluded, &[], 0.0));
        for placement in settle(&mut policies) {
            assert!(placement.excluded.is_empty());
        }
    }
}

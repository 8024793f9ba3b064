//! The placement policy that follows from a monitor.

use std::sync::Arc;

use super::state::{MonitorKind, MonitorState, locked};
use crate::engine::{Load, Placement, PlacementPolicy};
use crate::members::{Members, Rank, RankSet};
use crate::monitor::{GroupView, MonitorOptions, Report, TestTimer};

/// The clocks of a rank, in seconds from any instant.
pub trait Clocks {
    /// The time for which this process has had processors.
    fn processor_seconds(&self) -> f64;

    /// A monotonic clock.
    fn seconds(&self) -> f64;
}

/// A moment, and the processor time of this process by then, in seconds.
#[derive(Clone, Copy)]
struct Moment {
    at: f64,
    processor: f64,
}

/// Proposes which ranks execute nothing, and the weights of the others.
pub(in crate::group) struct MonitorPolicy {
    pub(super) state: Arc<MonitorState>,
    clocks: Box<dyn Clocks>,
    me: Rank,
    /// When this rank reports although nothing has changed.
    test_timer: TestTimer,
    /// The view that all ranks agreed on.
    group_view: GroupView,
    /// The beginning of the period over which this rank's share of a processor is measured.
    since: Moment,
}

impl MonitorPolicy {
    pub(super) fn new(
        me: Rank,
        state: Arc<MonitorState>,
        options: &MonitorOptions,
        clocks: Box<dyn Clocks>,
        now: f64,
    ) -> MonitorPolicy {
        MonitorPolicy {
            me,
            test_timer: TestTimer::new(options.interval, now),
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
        &self.group_view.placement().excluded
    }

    /// The seconds of time for each second of processor time of this rank; with a test procedure of the caller's,
    /// the seconds that it takes. None if that panics: the group logs the error, and the rank counts as healthy.
    fn figure(&self, now: Moment) -> Option<f64> {
        if self.state.test.is_some() {
            let start = self.clocks.seconds();
            let answer = self.state.answer();
            let seconds = (self.clocks.seconds() - start).max(1e-9);
            return match answer {
                Ok(_) => Some(seconds),
                Err(error) => {
                    self.state.fail(error);
                    None
                }
            };
        }
        let share = (now.processor - self.since.processor) / (now.at - self.since.at);
        Some(1.0 / share.clamp(1e-3, 1.0))
    }

    fn report(&mut self, now: Moment) -> Report {
        if let MonitorKind::Background(monitor) = &*locked(&self.state.kind) {
            self.test_timer.restart(now.at);
            return Report {
                counters: monitor.counters().to_vec(),
                monitor_ended: self.state.has_failed(),
                reply_times: if self.group_view.needs_reply_times() {
                    monitor.reply_times()
                } else {
                    Vec::new()
                },
                ..Report::default()
            };
        }
        // Other threads read the views while the caller's test runs.
        let is_due = self.test_timer.is_due(now.at);
        let figure = match self.test_timer.report(now.at) {
            true => self.figure(now),
            false => None,
        };
        if figure.is_some() {
            self.since = now;
        }
        Report {
            counters: self.group_view.counters().to_vec(),
            is_due,
            measurement: figure,
            ..Report::default()
        }
    }
}

impl PlacementPolicy for MonitorPolicy {
    fn wants_change(&self, members: &Members, now: f64) -> bool {
        let is_untold = self.state.has_failed() && !self.group_view.is_untestable(self.me);
        match &*locked(&self.state.kind) {
            MonitorKind::Foreground(_) => self.test_timer.has_report(now),
            MonitorKind::Background(_) if is_untold => true,
            _ if self.group_view.may_change() && self.test_timer.is_due(now) => true,
            // The observations of a rank that executes nothing do not count.
            MonitorKind::Background(_) if members.is_excluded(self.me) => false,
            MonitorKind::Background(monitor) => {
                let agreed = self.group_view.counters();
                let mut counters = monitor.counters().iter().zip(agreed);
                let has_news = counters.any(|(seen, agreed)| seen > agreed);
                has_news && self.group_view.suspects_by(monitor.counters()) != *members.excluded()
            }
        }
    }

    fn local_report(&mut self, load: &Load) -> Vec<u8> {
        let now = Moment {
            at: load.now,
            processor: self.clocks.processor_seconds(),
        };
        self.report(now).with_load(load).encode()
    }

    fn settle(&mut self, told: &[(Rank, &[u8])], group: &RankSet) -> Placement {
        let ranks = self.group_view.counters().len();
        let living = RankSet::of(ranks, told.iter().map(|(rank, _)| *rank));
        let failed = Rank::all(ranks).filter(|rank| !living.contains(*rank));
        let failed = RankSet::of(ranks, failed);
        let reports = told.iter();
        let reports: Vec<(Rank, Report)> = reports
            .filter_map(|(rank, bytes)| Some((*rank, Report::decode(ranks, bytes)?)))
            .collect();
        self.group_view.merge_counters(&reports, group);
        let reply_times = match &mut *locked(&self.state.kind) {
            MonitorKind::Background(monitor) => {
                monitor.mark_failed(&failed);
                monitor.adopt_counters(self.group_view.counters());
                self.group_view.reply_times(&reports)
            }
            MonitorKind::Foreground(foreground) => {
                self.test_timer
                    .all_reported(reports.iter().any(|(_, report)| report.is_due));
                let figures = reports.iter();
                let figures =
                    figures.filter_map(|(rank, report)| Some((*rank, report.measurement?)));
                foreground.mark_failed(&failed);
                foreground.end_interval(&figures.collect::<Vec<_>>());
                self.group_view.set_counters(foreground.counters());
                foreground.reply_times()
            }
        };
        let placement = self
            .group_view
            .decide(&reports, &reply_times, group)
            .clone();
        locked(&self.state.weights).clone_from(&placement.weights);
        placement
    }
}

//! Placement by speed: a monitor of the group's ranks, and the policy that follows from it (2018 paper).
//!
//! A monitor in the background tests other ranks with messages of its own, on a thread that the program around the
//! group provides ([`MonitorState::run`]). A monitor in the foreground compares figures that ranks report at
//! commits. If a background monitor stops because of an error, its rank can no longer answer tests. It reports that
//! at the next commit, and all ranks treat it as healthy from then on: missing replies say nothing about its speed.

mod policy;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::config::{agree_on_equal, hash_of};
use super::{Group, LogLevel};
use crate::engine::CollectiveError;
use crate::monitor::{Foreground, Monitor, MonitorOptions};
use crate::transport::Transport;
use ftsort_kernels::error::{Error, Result, Status};
pub use policy::Clocks;
pub(super) use policy::MonitorPolicy;
pub use state::{Datagrams, MonitorState, TestProcedure};
use state::{MonitorKind, locked};

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
    pub options: MonitorOptions,
    /// How it runs.
    pub mode: MonitorMode,
}

impl MonitorConfig {
    fn fingerprint(&self) -> u64 {
        hash_of((format!("{:?}", self.options), self.mode))
    }
}

impl<T: Transport> Group<T> {
    /// Starts a monitor that proposes the placement of later jobs. Collective.
    ///
    /// `threads`: whether this rank allows several threads. In the background, `open` opens the datagrams for messages
    /// of a size, and `serve` starts a thread that serves the state with them until the returned value is dropped; in
    /// the foreground neither is called.
    ///
    /// # Errors
    /// `Status::State` if the group has a monitor; `Status::Argument` for options that cannot be used, and where the
    /// configuration differs between ranks; the status of `open` or `serve` where one of them fails on some rank. The
    /// group stays usable after all of these, without a monitor.
    pub fn start_monitor<D: Datagrams, S>(
        &mut self,
        wanted: Result<MonitorConfig>,
        threads: Result<bool>,
        test: Option<TestProcedure>,
        clocks: Box<dyn Clocks>,
        open: impl FnOnce(&T, usize) -> Result<D>,
        serve: impl FnOnce(&Arc<MonitorState>, D) -> Result<S>,
    ) -> Result<(Arc<MonitorState>, Option<S>)> {
        self.call(|group| {
            let has_monitor = group.policy.is_some();
            let has_test = test.is_some();
            let wanted = wanted.and_then(|wanted| {
                if has_monitor {
                    let text = "the group has a monitor already";
                    return Err(Error::new(Status::State, text));
                }
                wanted.options.check().map_err(|error| Error {
                    text: format!("options.{}", error.text),
                    ..error
                })?;
                Ok((wanted, threads?))
            });
            let (wanted, threads) = group.apart_from_jobs(|engine| {
                let (wanted, threads) = engine.all_or_none(wanted)?;
                let same = hash_of((wanted.fingerprint(), has_test));
                agree_on_equal(engine, &[("options", same)])?;
                let threads = engine.agree_on(u32::from(threads))? != 0;
                Ok((wanted, threads))
            })?;
            if wanted.mode == MonitorMode::Background && !threads {
                let text = "options.mode is FTSORT_MONITOR_THREAD, but not all ranks were granted \
                            MPI_THREAD_MULTIPLE by MPI_Init_thread";
                return Err(CollectiveError::alike(Error::argument(text)));
            }
            let in_background = threads && wanted.mode != MonitorMode::Foreground;
            let (me, ranks) = (group.members.me(), group.members.ranks());
            let failed = group.members.faulty();
            let options = wanted.options;
            let (state, server) = if in_background {
                let started = open(&group.transport, message_limit(ranks)).and_then(|datagrams| {
                    let mut monitor = Monitor::new(me, ranks, options.clone(), datagrams.now());
                    monitor.mark_failed(failed);
                    let kind = MonitorKind::Background(Box::new(monitor));
                    let state = Arc::new(MonitorState::new(ranks, kind, test));
                    let answer = state.answer()?;
                    if let MonitorKind::Background(monitor) = &mut *locked(&state.kind) {
                        monitor.set_answer(answer);
                    }
                    let server = serve(&state, datagrams)?;
                    Ok((state, Some(server)))
                });
                // A rank without a thread would not answer the tests of the others.
                group.apart_from_jobs(|engine| engine.all_or_none(started))?
            } else {
                let mut foreground = Foreground::new(ranks, options.clone());
                foreground.mark_failed(failed);
                let kind = MonitorKind::Foreground(Box::new(foreground));
                (Arc::new(MonitorState::new(ranks, kind, test)), None)
            };
            let now = group.transport.now();
            let shared = Arc::clone(&state);
            group.policy = Some(MonitorPolicy::new(me, shared, &options, clocks, now));
            Ok((state, server))
        })
    }

    /// Ends the influence of the monitor: all survivors execute their nodes again. The caller drops the value that
    /// `serve` returned. Collective.
    pub fn stop_monitor(&mut self) -> Result<()> {
        self.call(|group| {
            group.policy = None;
            group.apart_from_jobs(|engine| engine.check_faults())
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

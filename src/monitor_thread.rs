//! The thread of a monitor in the background, and the clocks that a monitor reads.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::ulfm::DatagramChannel;
use ftsort_core::group::{Clocks, Datagrams, MonitorState};
use ftsort_core::members::Rank;
use ftsort_kernels::error::{Result, caught};

/// Serves a monitor until it is dropped.
pub(crate) struct MonitorThread {
    state: Arc<MonitorState>,
    thread: Option<JoinHandle<()>>,
}

impl MonitorThread {
    /// Serves the monitor in the background; a monitor in the foreground has no datagrams and needs no thread.
    pub fn start(
        state: &Arc<MonitorState>,
        datagrams: Option<DatagramChannel>,
        interval: f64,
    ) -> MonitorThread {
        let thread = datagrams.map(|mut datagrams| {
            let state = Arc::clone(state);
            std::thread::spawn(move || {
                // The group logs the error, and all ranks treat this rank as healthy from then on.
                if let Err(error) = caught(|| serve(&state, &mut datagrams, interval)) {
                    state.fail(error);
                }
            })
        });
        MonitorThread {
            state: Arc::clone(state),
            thread,
        }
    }
}

impl Drop for MonitorThread {
    fn drop(&mut self) {
        self.state.stop();
        if let Some(thread) = self.thread.take() {
            // Panics are caught within the thread.
            let _ = thread.join();
        }
    }
}

fn serve(state: &MonitorState, datagrams: &mut DatagramChannel, interval: f64) -> Result<()> {
    let nap = Duration::from_secs_f64((interval / 100.0).clamp(2e-4, 2e-3));
    while !state.is_stopped() {
        if state.serve(datagrams)? {
            std::thread::sleep(nap);
        }
    }
    Ok(())
}

impl Datagrams for DatagramChannel {
    fn now(&self) -> f64 {
        DatagramChannel::now(self)
    }

    fn send(&mut self, to: Rank, message: Vec<u8>) -> Result<()> {
        DatagramChannel::send(self, to, message)
    }

    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>> {
        DatagramChannel::receive(self)
    }
}

/// The clocks of the system.
pub(crate) struct SystemClocks;

impl Clocks for SystemClocks {
    fn processor_seconds(&self) -> f64 {
        seconds_of(libc::CLOCK_PROCESS_CPUTIME_ID)
    }

    fn seconds(&self) -> f64 {
        seconds_of(libc::CLOCK_MONOTONIC)
    }
}

fn seconds_of(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a place for one time; both clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

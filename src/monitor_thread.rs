//! The thread of a monitor in the background, and the clocks that a monitor reads.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::ulfm::DatagramChannel;
use ftsort_core::group::{Clocks, MonitorState};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::without_signals;

/// The thread that runs a monitor until it is dropped.
pub(crate) struct MonitorThread {
    state: Arc<MonitorState>,
    thread: Option<JoinHandle<()>>,
}

impl MonitorThread {
    /// Starts a monitor in the background. `Status::Memory` if the system refuses a thread.
    pub fn start(
        state: &Arc<MonitorState>,
        mut datagrams: DatagramChannel,
        interval: f64,
    ) -> Result<MonitorThread> {
        let served = Arc::clone(state);
        let nap = Duration::from_secs_f64((interval / 100.0).clamp(2e-4, 2e-3));
        let run = move || served.run(&mut datagrams, || std::thread::sleep(nap));
        let builder = std::thread::Builder::new().name("ftsort monitor".into());
        let thread = without_signals(|| builder.spawn(run)).map_err(|error| {
            let text = format!(
                "the system refuses a thread for the monitor: {error}; raise its limits, or use the foreground"
            );
            Error::new(Status::Memory, text)
        })?;
        Ok(MonitorThread {
            state: Arc::clone(state),
            thread: Some(thread),
        })
    }
}

impl Drop for MonitorThread {
    fn drop(&mut self) {
        self.state.stop();
        if let Some(thread) = self.thread.take() {
            // The thread itself catches panics.
            let _ = thread.join();
        }
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
    // SAFETY: `time` is valid for one value, and both clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

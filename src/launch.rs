//! Settings for fault tolerance before MPI starts, and the end of a process after failures.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use crate::ulfm::leave;
use ftsort_kernels::error::{Error, Result, Status, caught};
use ftsort_kernels::kernel::without_signals;

/// Settings of Open MPI without which survivors hang or crash, with the values that prevent it.
///
/// - Without asynchronous finalisation survivors wait in MPI_Finalize for failed ranks.
/// - Messages to failed ranks use up the free list of the shared-memory transport, and the agreement does not
///   check whether the list is empty.
/// - Cancelled receives send the TCP transport's "put" protocol into an endless loop.
/// - If the root of an agreement fails while it sends the decision, its successor in the tree can wait without end
///   for the answer of a rank that has received the decision. In a star the successor receives it first, so this
///   needs two failures. (In Open MPI 5.0 the star is number 3 and the string number 2, contrary to the parameter's
///   description.)
const SETTINGS: [(&str, &str); 4] = [
    ("OMPI_MCA_async_mpi_finalize", "1"),
    ("OMPI_MCA_btl_sm_free_list_max", "-1"),
    ("OMPI_MCA_btl_tcp_flags", "send,inplace"),
    ("OMPI_MCA_coll_ftagree_era_topology", "3"),
];

/// The longest time that a process which ends waits for its streams.
const FLUSH_TIME: Duration = Duration::from_secs(10);

/// Whether this program lets the environment inject failures.
static FAULTS_ALLOWED: AtomicBool = AtomicBool::new(false);

/// Lets the environment variable FTSORT_FAULTS inject failures into groups that are created from now on. Without
/// this call the variable has no effect, so that it cannot kill the ranks of a job that is no test.
pub(crate) fn allow_faults() {
    FAULTS_ALLOWED.store(true, Ordering::Relaxed);
}

/// Returns the schedule of failures in the environment, and whether the program allows it. None: there is none.
pub(crate) fn faults_of_environment() -> Option<(String, bool)> {
    let faults = std::env::var("FTSORT_FAULTS").ok();
    let faults = faults.filter(|faults| !faults.is_empty())?;
    Some((faults, FAULTS_ALLOWED.load(Ordering::Relaxed)))
}

/// Returns the settings that this process's environment lacks.
pub(crate) fn missing_settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS
        .into_iter()
        .filter(|(name, _)| std::env::var_os(name).is_none())
}

/// Sets environment variables for fault tolerance that MPI reads when it starts, unless they are set already,
/// and ignores SIGPIPE if its action is the default. Call it before MPI_Init. `Status::State` if MPI is
/// initialised already; nothing is set then.
///
/// # Safety
/// The process has one thread.
pub unsafe fn prepare() -> Result<()> {
    let mut initialized: c_int = 0;
    // SAFETY: MPI_Initialized may be called at any time.
    unsafe { mpi_sys::MPI_Initialized(&mut initialized) };
    if initialized != 0 {
        return Err(Error::new(Status::State, "MPI is initialised already"));
    }
    for (name, value) in missing_settings() {
        // SAFETY: the process has one thread, by this function's contract.
        unsafe { std::env::set_var(name, value) };
    }
    // SAFETY: `old` is filled in by the call before it is read.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut old);
        if old.sa_sigaction == libc::SIG_DFL {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
    }
    Ok(())
}

/// Returns whether Open MPI 5.0 would hang in `MPI_Finalize` although no rank has failed. If its heartbeats
/// have a thread, each rank waits for the last message of the rank that it observes.
pub(crate) fn heartbeats_have_a_thread() -> bool {
    let value = std::env::var("OMPI_MCA_mpi_ft_detector_thread").unwrap_or_default();
    !matches!(
        value.to_lowercase().as_str(),
        "" | "0" | "false" | "no" | "off" | "disabled"
    )
}

/// Ends the process: with `MPI_Finalize` and `exit` if that cannot hang, otherwise with `_exit`. Calls
/// `release` to end the group before MPI is finalised.
pub(crate) fn end_process(
    may_finalize: bool,
    release: impl FnOnce() -> Result<()>,
    exit_code: c_int,
) -> ! {
    let finalized = caught(|| {
        if !may_finalize {
            return Err(Error::new(Status::State, "MPI_Finalize may hang"));
        }
        release()?;
        // Monitors of other groups end, and other threads wait.
        leave();
        // SAFETY: MPI is initialised, because a group existed.
        unsafe { mpi_sys::MPI_Finalize() };
        Ok(())
    });
    // SAFETY: ends this process.
    unsafe {
        if finalized.is_ok() {
            libc::exit(exit_code);
        }
        flush_streams();
        libc::_exit(exit_code)
    }
}

/// Flushes all streams of C, for at most [`FLUSH_TIME`]: `fflush` waits for the lock of each stream, and a thread of
/// the program that reads stdin may hold one without end.
fn flush_streams() {
    // SAFETY: flushes all streams.
    let flush = || unsafe { libc::fflush(std::ptr::null_mut()) };
    let (end, ended) = channel::<()>();
    let builder = Builder::new().name("ftsort flush".into());
    let thread = without_signals(|| {
        builder.spawn(move || {
            flush();
            drop(end);
        })
    });
    if thread.is_ok() {
        // The error tells either that the thread has ended or that the time is over.
        let _ = ended.recv_timeout(FLUSH_TIME);
    } else {
        flush();
    }
}

/// Kills this process after a time unless the timer is dropped earlier: an injected failure at any instant.
pub(crate) struct KillTimer {
    _cancel: Sender<()>,
}

impl KillTimer {
    /// Starts the timer.
    pub fn start(time: Duration) -> KillTimer {
        let (cancel, cancelled) = channel::<()>();
        let kill = move || {
            if cancelled.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                // SAFETY: the signal goes to this process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        };
        let builder = Builder::new().name("ftsort kill".into());
        // If the system refuses a thread, the failure is not injected.
        let _ = without_signals(|| builder.spawn(kill));
        KillTimer { _cancel: cancel }
    }
}

//! Before and after MPI: the settings that surviving needs, and the way out after faults.

use std::ffi::c_int;

use super::group::free;
use super::guard::{keep_text, require_mpi};
use super::handle::{Handle, on_group};
use super::one_call::detach;
use super::status::ftsort_status;
use super::trace::Trace;
use ftsort_kernels::error::{Error, Status, caught};

/// Settings of Open MPI without which survivors hang or crash; each with the value that holds.
///
/// - Without asynchronous finalisation survivors wait in MPI_Finalize for the dead.
/// - Messages to the dead use up the shared-memory transport's free list, and the agreement does not
///   check for its end.
/// - Cancelled receives send the TCP transport's "put" protocol into an endless loop.
/// - When a rank dies that passes an agreement's decision on, those below it in the tree can wait for
///   ever: in 3 of 2500 runs. In a star nobody is below anybody but the root. (In Open MPI 5.0 the
///   star is number 3 and the string number 2, contrary to the parameter's description.)
const SETTINGS: [(&str, &str); 4] = [
    ("OMPI_MCA_async_mpi_finalize", "1"),
    ("OMPI_MCA_btl_sm_free_list_max", "-1"),
    ("OMPI_MCA_btl_tcp_flags", "send,inplace"),
    ("OMPI_MCA_coll_ftagree_era_topology", "3"),
];

/// The settings that this process's environment lacks.
pub(super) fn missing_settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    SETTINGS
        .into_iter()
        .filter(|(name, _)| std::env::var_os(name).is_none())
}

/// Sets what MPI needs to survive failures; call it before MPI_Init, while the process has one thread. [L]
///
/// Sets the environment variables of Open MPI that are not set yet, and ignores SIGPIPE if its action is the
/// default (a TCP connection to a failed process raises it). The `ftsort-mpirun` wrapper and the MCA parameter
/// file of ftsort do the same from outside, so this call is optional. Other MPI libraries ignore the variables.
/// No other function of ftsort changes the environment or the action of a signal.
///
/// \return FTSORT_OK; FTSORT_ERR_STATE if MPI is initialised already, and nothing was set
#[unsafe(no_mangle)]
pub extern "C" fn ftsort_prepare() -> ftsort_status {
    let mut initialized: c_int = 0;
    // SAFETY: MPI_Initialized may be called at any time.
    unsafe { mpi_sys::MPI_Initialized(&mut initialized) };
    if initialized != 0 {
        return Status::State as ftsort_status;
    }
    for (name, value) in missing_settings() {
        // SAFETY: documented: before MPI_Init, with one thread.
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
    Status::Ok as ftsort_status
}

/// With a thread for its heartbeats Open MPI 5.0 hangs in `MPI_Finalize` when nobody has died: each
/// rank waits for the goodbye of the one that it watches.
fn heartbeats_have_a_thread() -> bool {
    let value = std::env::var("OMPI_MCA_mpi_ft_detector_thread").unwrap_or_default();
    !matches!(
        value.to_lowercase().as_str(),
        "" | "0" | "false" | "no" | "off" | "disabled"
    )
}

/// Ends the process; replaces ftsort_free, MPI_Finalize and exit. [C]
///
/// After failures survivors can hang in MPI_Finalize, where they wait for failed ranks. This function waits for
/// the other survivors. If no rank has failed (and the heartbeat detector of Open MPI has no thread, with which
/// MPI_Finalize hangs in any case), it releases the group and calls MPI_Finalize and exit. Otherwise it flushes
/// the C streams and calls _exit, without MPI_Finalize and atexit handlers. The exit status of mpirun does not
/// prove success: with `--with-ft ulfm` it can be 0 although ranks failed. With `ftsort_config.trace` the lowest
/// survivor merges the trace files of all ranks.
///
/// \param group      a group, even one that an error made unusable, or a group of ftsort_group_of
/// \param exit_code  the exit status of the process
/// \return only on an error: FTSORT_ERR_ARGUMENT for NULL; FTSORT_ERR_STATE if MPI is finalised already, and in
///         a callback of the group
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_leave(group: *mut Handle, exit_code: c_int) -> ftsort_status {
    let begun = on_leaving(group);
    let trace = match begun {
        Ok(trace) => trace,
        Err(status) => return status as ftsort_status,
    };
    let mut may_finalize = false;
    on_group(group, |group| {
        group.check_faults()?;
        group.with_checkpoints(|checkpoints, engine, _| checkpoints.clear(engine))?;
        group.watch = None;
        may_finalize = group.members.faulty().is_empty() && !heartbeats_have_a_thread();
        Ok(())
    });
    // SAFETY: not NULL, and live by this function's contract.
    let handle = unsafe { &*group };
    // Without a merged file the files of the ranks remain.
    let _ = caught(|| {
        if let Some(group) = handle.acquire() {
            group.merge_traces(trace);
        }
        Ok(())
    });
    let finalized = caught(|| {
        if !may_finalize {
            return Err(Error::new(Status::State, "MPI_Finalize may hang"));
        }
        // SAFETY: `group` is live and not used again; MPI is initialised, for the group is.
        unsafe {
            match handle.owner {
                None => free(group),
                Some(comm) => detach(comm)?,
            }
            mpi_sys::MPI_Finalize();
        }
        Ok(())
    });
    // SAFETY: ends this process.
    unsafe {
        if finalized.is_ok() {
            libc::exit(exit_code);
        }
        libc::fflush(std::ptr::null_mut());
        libc::_exit(exit_code)
    }
}

/// Checks that a process can leave, and takes the trace: after the agreements that follow all ranks have
/// written their files, so that the merged file is complete.
fn on_leaving(group: *mut Handle) -> Result<Option<Trace>, Status> {
    // SAFETY: the exported functions demand NULL or a live group.
    let handle = unsafe { group.as_ref() }.ok_or(Status::Argument)?;
    if let Err(error) = require_mpi() {
        keep_text(&error.to_string());
        return Err(error.status);
    }
    let mut group = handle.acquire().ok_or(Status::State)?;
    Ok(group.trace.take())
}

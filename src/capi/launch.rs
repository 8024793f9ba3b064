//! Before and after MPI: the settings that surviving needs, and the way out after faults.

use std::ffi::c_int;

use super::group::ftsort;
use super::guard::on_group;
use super::status::ftsort_status;
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

/// Sets what surviving needs and MPI reads when it starts: call it before `MPI_Init`, while the
/// process has one thread. Sets environment variables of Open MPI that are not set yet, and ignores
/// SIGPIPE if its action is the default (a TCP connection to a dead process raises it). Optional: the
/// `ftsort-mpirun` wrapper and the MCA parameter file that come with ftsort do the same from outside.
/// Other MPI libraries ignore these variables. No other function of ftsort touches the environment or
/// a signal's action. [L]
///
/// \return `FTSORT_OK`; `FTSORT_ERR_STATE` if MPI is initialised already, and nothing was set.
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

/// Leaves the process: instead of `ftsort_free`, `MPI_Finalize` and `exit`. [C]
///
/// After faults survivors can hang in `MPI_Finalize`, waiting for the dead. This function waits for
/// the other survivors; if nobody has died (and Open MPI's heartbeat detector has no thread, with which
/// `MPI_Finalize` hangs even then), it frees the group, calls `MPI_Finalize` and `exit`;
/// else it flushes the C streams and ends the process with `_exit`, without `MPI_Finalize` and
/// without `atexit` handlers. `mpirun`'s own exit status proves nothing either way: with
/// `--with-ft ulfm` it can be 0 although ranks died, so leave a mark of success of your own.
/// With `ftsort_config.trace` the lowest survivor merges what all ranks have written.
///
/// \param[in] group a live group, even a poisoned one; it is gone afterwards.
/// \param[in] exit_code the status of the process.
/// \return does not return, but for `FTSORT_ERR_ARGUMENT` if `group` is NULL.
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_leave(group: *mut ftsort, exit_code: c_int) -> ftsort_status {
    if group.is_null() {
        return Status::Argument as ftsort_status;
    }
    let mut may_finalize = false;
    // After the agreements that follow all ranks have written what they write, so that nothing is missed
    // when it is merged.
    // SAFETY: live, by this function's contract.
    let trace = unsafe { (*group).trace.take() };
    on_group(group, |group| {
        group.check_faults()?;
        group.with_checkpoints(|checkpoints, engine, _| checkpoints.clear(engine))?;
        group.watch = None;
        may_finalize = group.members.faulty().is_empty() && !heartbeats_have_a_thread();
        Ok(())
    });
    // Without a merged file there are still those of the ranks.
    let _ = caught(|| {
        // SAFETY: as above.
        unsafe { (*group).merge_traces(trace) };
        Ok(())
    });
    let finalized = caught(|| {
        if !may_finalize {
            return Err(Error::new(Status::State, "MPI_Finalize may hang"));
        }
        // SAFETY: `group` is live and not used again; MPI is initialised, for the group is.
        unsafe {
            drop(Box::from_raw(group));
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

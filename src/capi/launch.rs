//! Settings for fault tolerance before MPI starts, and the end of a process after failures.

use std::ffi::c_int;

use super::group::free;
use super::guard::{caught_silently, without_group};
use super::handle::{Handle, on_any_group, on_group};
use super::one_call::detach;
use super::status::ftsort_status;
use crate::launch::{allow_faults, end_process, prepare};
use crate::ulfm::require_mpi;
use ftsort_kernels::error::Status;

/// Sets variables with which MPI tolerates failures; call it before MPI_Init, while the process has one thread. [L]
///
/// Sets the environment variables of Open MPI that are not set yet, and ignores SIGPIPE if its action is the
/// default (a TCP connection to a failed process raises it). `ftsort-mpirun` does the same from outside, so that
/// this call is optional; the MCA parameter file sets the variables only. Other MPI libraries ignore them.
///
/// \return FTSORT_OK; FTSORT_ERR_STATE if MPI is initialised already, and nothing was set
#[unsafe(no_mangle)]
pub extern "C" fn ftsort_prepare() -> ftsort_status {
    // SAFETY: documented: before MPI_Init, with one thread.
    without_group(|| unsafe { prepare() })
}

/// Lets FTSORT_FAULTS inject failures into later groups, in tests: see docs/fault-injection.md. [L]
#[unsafe(no_mangle)]
pub extern "C" fn ftsort_allow_faults() {
    allow_faults();
}

/// Ends the process; replaces ftsort_free, MPI_Finalize and exit. [C]
///
/// Survivors can hang in MPI_Finalize, where they wait for failed ranks. This function waits for the other
/// survivors. If no rank has failed (and the heartbeat detector of Open MPI has no thread, with which
/// MPI_Finalize hangs), it releases the group and calls MPI_Finalize and exit. Otherwise it flushes the C
/// streams for at most 10 seconds and calls _exit, without MPI_Finalize and atexit handlers. A zero exit status
/// of mpirun proves nothing.
///
/// \param group      a group, even an unusable one, or a group of ftsort_group_of
/// \param exit_code  the exit status of the process. Not 0 on several ranks, it can hang mpirun
/// \return only on an error: FTSORT_ERR_ARGUMENT for NULL; FTSORT_ERR_STATE if MPI is finalised already, and in
///         a callback of the group
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_leave(group: *mut Handle, exit_code: c_int) -> ftsort_status {
    let mut trace = None;
    // After the agreements that follow all ranks have written their files, so that the merged file is complete.
    let begun = on_any_group(group, |group| {
        require_mpi()?;
        trace = group.trace.take();
        Ok(())
    });
    if begun != Status::Ok as ftsort_status {
        return begun;
    }
    let mut may_finalize = false;
    on_group(group, |group| {
        may_finalize = group.group.finish_before_exit()?;
        Ok(())
    });
    // SAFETY: not NULL, and live by this function's contract.
    let handle = unsafe { &*group };
    // Without a merged file the files of the ranks remain.
    let _ = caught_silently(|| {
        if let Some(call) = handle.begin() {
            call.group.merge_traces(trace);
        }
        Ok(())
    });
    let release = || {
        match handle.owner {
            // SAFETY: `group` is live and not used again.
            None => unsafe { free(group) },
            Some(comm) => detach(comm)?,
        }
        Ok(())
    };
    end_process(may_finalize, release, exit_code)
}

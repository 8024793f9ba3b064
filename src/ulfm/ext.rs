//! The `MPIX_*` functions of ULFM, with the same signatures whether MPI has them or not.
//!
//! Without ULFM a failure is never reported, an agreement is a plain reduction and a shrunk communicator is a
//! duplicate: sorting works, and no failure is tolerated. A blocking reduction does not match a nonblocking one, so all
//! ranks must agree by the same function then.

use std::ffi::c_int;

#[cfg(ftsort_ulfm)]
#[allow(missing_docs, non_upper_case_globals, non_snake_case)]
mod mpix {
    include!(concat!(env!("OUT_DIR"), "/mpix.rs"));

    // mpi-sys does not detect that the MPI behind `mpicc` has changed; a library with halves for different MPI
    // versions would link and then misbehave.
    const _: () = assert!(FTSORT_MPI_VERSION == mpi_sys::MPI_VERSION as i32);
    const _: () = assert!(FTSORT_MPI_ERR_LASTCODE == mpi_sys::MPI_ERR_LASTCODE as i32);
}

/// The library was compiled with ULFM.
pub const COMPILED_IN: bool = cfg!(ftsort_ulfm);

#[cfg(ftsort_ulfm)]
mod real {
    use super::*;

    pub const ERR_PROC_FAILED: c_int = mpix::FTSORT_MPI_ERR_PROC_FAILED;
    pub const ERR_REVOKED: c_int = mpix::FTSORT_MPI_ERR_REVOKED;
    /// The attribute that says whether fault tolerance is switched on; -1: this MPI has none.
    pub const FT_KEYVAL: c_int = mpix::FTSORT_MPI_FT;

    pub use mpix::{
        MPIX_Comm_agree as agree, MPIX_Comm_failure_ack as failure_ack,
        MPIX_Comm_failure_get_acked as failure_get_acked, MPIX_Comm_get_failed as get_failed,
        MPIX_Comm_iagree as iagree, MPIX_Comm_is_revoked as is_revoked, MPIX_Comm_revoke as revoke,
        MPIX_Comm_shrink as shrink,
    };
}

#[cfg(not(ftsort_ulfm))]
mod real {
    use super::*;
    use mpi_sys::{MPI_Comm, MPI_Group, MPI_Request};

    pub const ERR_PROC_FAILED: c_int = -1;
    pub const ERR_REVOKED: c_int = -1;
    pub const FT_KEYVAL: c_int = -1;
    const SUCCESS: c_int = 0;

    pub unsafe fn agree(comm: MPI_Comm, flag: &mut c_int) -> c_int {
        let mine = *flag;
        // SAFETY: the caller passes a live communicator; the buffers are one int each.
        unsafe {
            mpi_sys::MPI_Allreduce(
                std::ptr::from_ref(&mine).cast(),
                std::ptr::from_mut(flag).cast(),
                1,
                mpi_sys::RSMPI_INT32_T,
                mpi_sys::RSMPI_BAND,
                comm,
            )
        }
    }
    pub unsafe fn iagree(comm: MPI_Comm, flags: *mut c_int, out: &mut MPI_Request) -> c_int {
        // SAFETY: the caller passes a live communicator, and two flags that stay in place.
        unsafe {
            mpi_sys::MPI_Iallreduce(
                flags.add(1).cast(),
                flags.cast(),
                1,
                mpi_sys::RSMPI_INT32_T,
                mpi_sys::RSMPI_BAND,
                comm,
                out,
            )
        }
    }
    pub unsafe fn revoke(_comm: MPI_Comm) -> c_int {
        SUCCESS
    }
    pub unsafe fn is_revoked(_comm: MPI_Comm, flag: &mut c_int) -> c_int {
        *flag = 0;
        SUCCESS
    }
    pub unsafe fn shrink(comm: MPI_Comm, out: &mut MPI_Comm) -> c_int {
        // SAFETY: the caller passes a live communicator.
        unsafe { super::super::comm::duplicate(comm, out) }
    }
    pub unsafe fn get_failed(_comm: MPI_Comm, out: &mut MPI_Group) -> c_int {
        // SAFETY: a constant of the MPI library.
        *out = unsafe { mpi_sys::RSMPI_GROUP_EMPTY };
        SUCCESS
    }
    pub unsafe fn failure_ack(_comm: MPI_Comm) -> c_int {
        SUCCESS
    }
    pub unsafe fn failure_get_acked(comm: MPI_Comm, out: &mut MPI_Group) -> c_int {
        // SAFETY: as the caller of this function promises.
        unsafe { get_failed(comm, out) }
    }
}

pub use real::*;

//! The handle that a C program holds as `ftsort *`: a group that only one call uses at a time.
//!
//! A callback runs while its group is in use. If it calls ftsort with that group, the lock is taken, and the
//! call is refused, so that it cannot change the group during the outer call.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use mpi_sys::MPI_Comm;

use super::group::ftsort;
use super::guard::{c_text, caught_silently, keep_text, text_without_group};
use super::status::ftsort_status;
use crate::ulfm::require_mpi;
use ftsort_kernels::error::{Error, Result, Status};

/// A group of ranks: the ranks of a communicator, with the knowledge which of them have failed.
///
/// One call at a time may use a group. A call by a callback of the group or by a second thread returns
/// FTSORT_ERR_STATE, and a getter its neutral value (as for NULL); ftsort_rank, ftsort_ranks and ftsort_dimension always
/// answer. MPI is called from the thread of the call. Several threads may use one group each if MPI_Init_thread granted
/// MPI_THREAD_MULTIPLE; they create groups, communicators and monitors one at a time, in the same order on all ranks, and
/// meanwhile no other thread calls MPI itself. While a group exists, the process keeps buffers of at most one sort for
/// the next one; on Linux the system takes them back when memory is short.
pub struct Handle {
    group: Mutex<ftsort>,
    /// Whether a call is using the group. A getter does not count as one, so that a collective call waits for it: it
    /// would otherwise fail on this rank alone.
    is_in_call: AtomicBool,
    /// The communicator that owns the group, if one does.
    pub(super) owner: Option<MPI_Comm>,
    /// Fixed for the life of the group, so that they can be read while it is busy.
    pub(super) rank: i32,
    pub(super) ranks: i32,
    pub(super) dimension: u32,
}

/// The text of `ftsort_last_error` while the group is in use.
const BUSY: &CStr =
    c"the group is busy: a callback called ftsort with the group that called it, or two \
threads use the group at once; call ftsort after the callback has returned";

impl Handle {
    pub(super) fn new(group: ftsort, owner: Option<MPI_Comm>) -> Box<Handle> {
        let members = group.group.members();
        Box::new(Handle {
            rank: members.me().0 as i32,
            ranks: members.ranks() as i32,
            dimension: members.cube().dimension(),
            owner,
            group: Mutex::new(group),
            is_in_call: AtomicBool::new(false),
        })
    }

    /// Begins a call that uses the group, once no getter uses it. None while another call does.
    pub(super) fn begin(&self) -> Option<Call<'_>> {
        if self.is_in_call.swap(true, Ordering::Acquire) {
            return None;
        }
        // Panics are caught before the lock is released.
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Call {
            group,
            is_in_call: &self.is_in_call,
        })
    }

    /// Returns the group to a getter, once no other getter uses it. None while a call does.
    fn acquire(&self) -> Option<MutexGuard<'_, ftsort>> {
        // A call that begins does not compete with getters that are called again and again.
        while !self.is_in_call.load(Ordering::Relaxed) {
            match self.group.try_lock() {
                Ok(group) => return Some(group),
                // Panics are caught before the lock is released.
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                // Another getter is about to end, because none waits or calls back; or a call has begun.
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
        None
    }

    /// The group itself, unless a call is using it; then the handle is left as it is.
    ///
    /// # Safety
    /// `handle` came from [`Handle::new`] and is not used again if a group is returned.
    pub(super) unsafe fn release(handle: *mut Handle) -> Option<ftsort> {
        // SAFETY: live, by the contract.
        drop(unsafe { &*handle }.begin()?);
        // SAFETY: as above.
        let handle = unsafe { Box::from_raw(handle) };
        Some(
            handle
                .group
                .into_inner()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }
}

/// A call that uses a group.
pub(super) struct Call<'a> {
    pub(super) group: MutexGuard<'a, ftsort>,
    is_in_call: &'a AtomicBool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.is_in_call.store(false, Ordering::Release);
    }
}

/// Runs a function that may call MPI on a group. Refuses a busy or poisoned group and a finalised MPI, keeps
/// the error's text, and poisons the group if the ranks may no longer be in step.
pub(super) fn on_group(
    handle: *const Handle,
    work: impl FnOnce(&mut ftsort) -> Result<()>,
) -> ftsort_status {
    on_group_locally(handle, |group| {
        require_mpi()?;
        work(group)
    })
}

/// As [`on_group`], for functions that give the caller a pointer, which is NULL after every error. `work` gets the error
/// of a missing place, for the other ranks.
///
/// # Safety
/// `place` is NULL or valid.
pub(super) unsafe fn on_group_for<T>(
    handle: *const Handle,
    name: &str,
    place: *mut *mut T,
    work: impl FnOnce(&mut ftsort, Result<()>) -> Result<*mut T>,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe { clear(place) };
    on_group(handle, |group| {
        // A rank without a place takes part, so that the others do not wait for it.
        // SAFETY: as above.
        unsafe {
            let refusal = place_of(name, place).map(drop);
            set(place, work(group, refusal)?);
        }
        Ok(())
    })
}

/// As [`on_group`], for functions that never call MPI.
pub(super) fn on_group_locally(
    handle: *const Handle,
    work: impl FnOnce(&mut ftsort) -> Result<()>,
) -> ftsort_status {
    // SAFETY: the exported functions demand NULL or a live group.
    let Some(handle) = (unsafe { live(handle) }) else {
        return Status::Argument as ftsort_status;
    };
    let Some(mut call) = handle.begin() else {
        return Status::State as ftsort_status;
    };
    noted(&mut call.group, |group| {
        group.group.check_poison()?;
        work(group)
    })
}

/// As [`on_group_locally`], for functions that only read, even from a poisoned group.
pub(super) fn on_any_group(
    handle: *const Handle,
    work: impl FnOnce(&mut ftsort) -> Result<()>,
) -> ftsort_status {
    // SAFETY: the exported functions demand NULL or a live group.
    let Some(handle) = (unsafe { live(handle) }) else {
        return Status::Argument as ftsort_status;
    };
    let Some(mut group) = handle.acquire() else {
        return Status::State as ftsort_status;
    };
    noted(&mut group, work)
}

/// Returns the handle of a group, or None, with the text of the error, for NULL.
///
/// # Safety
/// `handle` is NULL or live.
unsafe fn live<'a>(handle: *const Handle) -> Option<&'a Handle> {
    // SAFETY: this function's contract.
    let handle = unsafe { handle.as_ref() };
    if handle.is_none() {
        keep_text("group is NULL: pass a group of ftsort_init or ftsort_group_of");
    }
    handle
}

/// Runs a function on a group, and keeps the text of its error.
fn noted(group: &mut ftsort, work: impl FnOnce(&mut ftsort) -> Result<()>) -> ftsort_status {
    match caught_silently(|| work(group)) {
        Ok(()) => Status::Ok as ftsort_status,
        Err(error) => {
            group.last_error = c_text(&error.to_string());
            group.group.note_failure(&error);
            error.status as ftsort_status
        }
    }
}

/// Reads from a group. Returns `otherwise` for NULL and while the group is busy.
///
/// # Safety
/// `handle` is NULL or live.
pub(super) unsafe fn look<T>(
    handle: *const Handle,
    otherwise: T,
    read: impl FnOnce(&ftsort) -> T,
) -> T {
    // SAFETY: this function's contract.
    let group = unsafe { handle.as_ref() }.and_then(Handle::acquire);
    group.map_or(otherwise, |group| read(&group))
}

/// Returns the text of the last error of a group, or of this thread's last call without one.
///
/// # Safety
/// `handle` is NULL or live.
pub(super) unsafe fn last_error(handle: *const Handle) -> *const c_char {
    // SAFETY: this function's contract.
    match unsafe { handle.as_ref() } {
        None => text_without_group(),
        Some(handle) => match handle.acquire() {
            Some(group) => group.last_error.as_ptr(),
            None => BUSY.as_ptr(),
        },
    }
}

/// Sets a place for a pointer to NULL, at the beginning of a call.
///
/// # Safety
/// `place` is NULL or valid.
pub(super) unsafe fn clear<T>(place: *mut *mut T) {
    // SAFETY: this function's contract.
    unsafe { set(place, std::ptr::null_mut()) };
}

/// Writes a value to a place, unless it is NULL.
///
/// # Safety
/// `place` is NULL or valid.
pub(super) unsafe fn set<T>(place: *mut T, value: T) {
    // SAFETY: this function's contract.
    if let Some(place) = unsafe { place.as_mut() } {
        *place = value;
    }
}

/// The place for a result, or the error that names the argument.
///
/// # Safety
/// `place` is NULL or valid for as long as it is used.
pub(super) unsafe fn place_of<'a, T>(name: &str, place: *mut T) -> Result<&'a mut T> {
    // SAFETY: this function's contract.
    unsafe { place.as_mut() }
        .ok_or_else(|| Error::argument(format!("{name} is NULL: pass the address of a variable")))
}

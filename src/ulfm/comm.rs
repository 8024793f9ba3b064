//! An MPI communicator that the library owns: created once, freed once, with errors returned as values.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use mpi_sys::{MPI_Comm, MPI_Errhandler, MPI_Group, MPI_Request};

use super::turn::{self, Creation, Turn};
use super::{among_threads, ext};
use ftsort_core::transport::mpi_api::Outcome;
use ftsort_kernels::error::{Error, Result, Status};

/// Whether all communicators of this process are left to MPI_Finalize.
static ALL_LEFT_TO_MPI: AtomicBool = AtomicBool::new(false);

/// Frees no communicator from now on, also of later groups: this process has left a group, and may free its other groups
/// while other ranks still use them.
pub fn leave_all_to_mpi() {
    ALL_LEFT_TO_MPI.store(true, Ordering::Relaxed);
}

/// Classifies the return value of an MPI call: success, a failed process, or an error of another class.
pub fn outcome(code: c_int, call: &str) -> Result<Outcome> {
    if code == mpi_sys::MPI_SUCCESS as c_int {
        return Ok(Outcome::Fine);
    }
    let mut class: c_int = 0;
    // SAFETY: `class` is a valid place for one int.
    unsafe { mpi_sys::MPI_Error_class(code, &mut class) };
    if class == ext::ERR_PROC_FAILED || class == ext::ERR_REVOKED {
        return Ok(Outcome::Failed);
    }
    Err(Error::new(
        Status::Mpi,
        format!("{call}: {}", error_string(code)),
    ))
}

/// As `outcome`, for calls that must not report a failed process.
pub fn check(code: c_int, call: &str) -> Result<()> {
    match outcome(code, call)? {
        Outcome::Fine => Ok(()),
        Outcome::Failed => Err(Error::new(
            Status::Mpi,
            format!("{call}: {}", error_string(code)),
        )),
    }
}

fn error_string(code: c_int) -> String {
    // SAFETY: the buffer has the length that MPI demands.
    let (_, text) = text_of(mpi_sys::MPI_MAX_ERROR_STRING, |text, length| unsafe {
        mpi_sys::MPI_Error_string(code, text, length)
    });
    text.to_string_lossy().into_owned()
}

/// Returns the return value of an MPI call, and the text that it writes to a buffer of `most` characters and one more
/// for the end. The call also receives a place for the length of the text.
pub fn text_of(most: u32, call: impl FnOnce(*mut c_char, &mut c_int) -> c_int) -> (c_int, CString) {
    let (mut text, mut length) = (vec![0_u8; most as usize + 1], 0);
    let code = call(text.as_mut_ptr().cast(), &mut length);
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    (code, text.into())
}

/// Lets MPI return the errors of a caller's communicator as values, and sets the caller's error handler again at the end.
///
/// The default handler ends the whole job, also if MPI fails on one rank alone.
#[derive(Debug)]
pub struct ErrorsReturned {
    comm: MPI_Comm,
    /// The error handler of the caller.
    handler: MPI_Errhandler,
}

impl ErrorsReturned {
    /// Begins with a communicator that lives until the end. Local.
    pub fn of(comm: MPI_Comm) -> Result<ErrorsReturned> {
        // SAFETY: a constant of the MPI library.
        let returned = unsafe { mpi_sys::RSMPI_ERRORS_RETURN };
        let mut handler = returned;
        // SAFETY: `comm` is live by the contract of the callers, and `handler` is a place for one handle.
        let code = unsafe { mpi_sys::MPI_Comm_get_errhandler(comm, &mut handler) };
        check(code, "MPI_Comm_get_errhandler")?;
        let errors = ErrorsReturned { comm, handler };
        // SAFETY: as above.
        let code = unsafe { mpi_sys::MPI_Comm_set_errhandler(comm, returned) };
        check(code, "MPI_Comm_set_errhandler")?;
        Ok(errors)
    }
}

impl Drop for ErrorsReturned {
    fn drop(&mut self) {
        let mut finalized: c_int = 0;
        // SAFETY: before MPI_Finalize `comm` is live, and the handler is a reference that MPI_Comm_get_errhandler has made.
        unsafe {
            mpi_sys::MPI_Finalized(&mut finalized);
            if finalized == 0 {
                mpi_sys::MPI_Comm_set_errhandler(self.comm, self.handler);
                mpi_sys::MPI_Errhandler_free(&mut self.handler);
            }
        }
    }
}

/// A communicator that the library owns or uses alone, with MPI_ERRORS_RETURN.
#[derive(Debug)]
pub struct Comm {
    raw: MPI_Comm,
    /// Whether it is freed when dropped.
    free: bool,
    /// Whether other threads may call MPI too.
    among_threads: bool,
    /// Of a communicator of the caller, which returns its errors until the end.
    _errors: Option<ErrorsReturned>,
}

/// Makes a communicator of the same processes, without the attributes of `parent`, as shrinking does: MPI_Comm_dup would
/// call functions of the caller.
///
/// # Safety
/// `parent` is live.
pub unsafe fn duplicate(parent: MPI_Comm, out: &mut MPI_Comm) -> c_int {
    let mut rank: c_int = 0;
    // SAFETY: this function's contract; MPI_Comm_rank does not fail then.
    unsafe {
        mpi_sys::MPI_Comm_rank(parent, &mut rank);
        mpi_sys::MPI_Comm_split(parent, 0, rank, out)
    }
}

/// Returns the processes of a live communicator that this rank has seen fail.
pub fn failed_of(raw: MPI_Comm) -> Result<Group> {
    let mut group = Group::null();
    // SAFETY: `raw` is live.
    let code = unsafe { ext::get_failed(raw, &mut group.raw) };
    check(code, "MPIX_Comm_get_failed")?;
    Ok(group)
}

impl Comm {
    /// Uses a communicator of the caller itself, with errors returned. It is not freed.
    pub fn of_caller(raw: MPI_Comm, errors: ErrorsReturned) -> Result<Comm> {
        Ok(Comm {
            raw,
            free: false,
            among_threads: among_threads()?,
            _errors: Some(errors),
        })
    }

    /// Makes a communicator of the survivors of `parent`, which is the user's and is not changed. Collective
    /// over the survivors.
    ///
    /// It shrinks instead of duplicating, because shrinking is the one creation that succeeds on a
    /// communicator with failures.
    pub fn survivors_of(parent: MPI_Comm, ulfm: bool, name: &CStr) -> Result<Comm> {
        if ulfm {
            agree_before_creation(parent, 0)?;
        }
        Comm::create(parent, ulfm, name)
    }

    /// As [`Comm::survivors_of`], after [`agree_before_creation`].
    pub fn create(parent: MPI_Comm, ulfm: bool, name: &CStr) -> Result<Comm> {
        // SAFETY: a constant of the MPI library.
        let mut raw = unsafe { mpi_sys::RSMPI_COMM_NULL };
        let among_threads = among_threads()?;
        let creation = (ulfm && among_threads).then(Creation::begin);
        // SAFETY: `parent` is a live communicator by the contract of the callers.
        unsafe {
            if ulfm {
                check(ext::shrink(parent, &mut raw), "MPIX_Comm_shrink")?;
            } else {
                check(duplicate(parent, &mut raw), "MPI_Comm_split")?;
            }
        }
        // After an error on this rank alone, the other ranks have theirs, and freeing it is collective.
        let mut comm = Comm {
            raw,
            free: false,
            among_threads,
            _errors: None,
        };
        drop(creation);
        // SAFETY: `raw` was just made. The name is for debuggers, so the communicator does without it.
        unsafe {
            check(
                mpi_sys::MPI_Comm_set_errhandler(raw, mpi_sys::RSMPI_ERRORS_RETURN),
                "MPI_Comm_set_errhandler",
            )?;
            mpi_sys::MPI_Comm_set_name(raw, name.as_ptr());
        }
        comm.free = true;
        Ok(comm)
    }

    /// The handle, still owned by this object.
    pub fn raw(&self) -> MPI_Comm {
        self.raw
    }

    /// Whether other threads may call MPI too.
    pub fn among_threads(&self) -> bool {
        self.among_threads
    }

    /// Takes this thread's turn to make progress, if other threads may call MPI too.
    pub fn turn(&self) -> Option<Turn> {
        self.among_threads.then(turn::take)
    }

    /// Leaves it to MPI_Finalize instead of freeing it: at that time no process can fail in the middle of it
    /// any more.
    pub fn leave_to_mpi(&mut self) {
        self.free = false;
    }

    /// Returns, for each of the `ranks` processes of `reference`, its rank in this communicator, if it has
    /// one.
    pub fn positions_of(&self, reference: &Group, ranks: usize) -> Result<Vec<Option<c_int>>> {
        let mine = Group::of(self.raw)?;
        let from: Vec<c_int> = (0..ranks as c_int).collect();
        Ok(reference
            .translate(&from, &mine)?
            .into_iter()
            .map(|rank| (rank >= 0).then_some(rank))
            .collect())
    }

    /// Returns the processes that this rank has seen fail.
    pub fn failed(&self) -> Result<Group> {
        failed_of(self.raw)
    }

    /// Acknowledges the failures that this rank has seen, and returns the failed processes.
    pub fn acknowledge(&self) -> Result<Group> {
        let mut group = Group::null();
        // SAFETY: `raw` is live.
        unsafe {
            check(ext::failure_ack(self.raw), "MPIX_Comm_failure_ack")?;
            check(
                ext::failure_get_acked(self.raw, &mut group.raw),
                "MPIX_Comm_failure_get_acked",
            )?;
        }
        Ok(group)
    }

    /// Calls `MPIX_Comm_agree`: returns the bitwise AND over the survivors, and whether there are new
    /// failures.
    pub fn agree(&self, flag: u32) -> Result<(Outcome, u32)> {
        let mut value = flag as c_int;
        // SAFETY: `raw` is live, `value` is one int.
        let code = unsafe { ext::agree(self.raw, &mut value) };
        Ok((outcome(code, "MPIX_Comm_agree")?, value as u32))
    }

    /// Starts the agreement of [`Comm::agree`] without waiting for it. The communicator cannot be used any more if
    /// the agreement is dropped before its end.
    pub fn start_agreement(&self, flag: u32) -> Result<Agreement> {
        Agreement::start(self.raw, flag)
    }

    /// Calls `MPI_Barrier`. With MPI_THREAD_MULTIPLE, Open MPI returns MPI_ERR_OTHER after a failure.
    pub fn barrier(&self) -> Result<Outcome> {
        // SAFETY: `raw` is live.
        let outcome = outcome(unsafe { mpi_sys::MPI_Barrier(self.raw) }, "MPI_Barrier");
        match outcome {
            Err(_) if self.failed()?.len()? > 0 || is_revoked(self.raw)? => Ok(Outcome::Failed),
            outcome => outcome,
        }
    }

    /// Calls `MPIX_Comm_revoke`: every pending and future operation on it fails on all ranks.
    pub fn revoke(&self) -> Result<()> {
        // SAFETY: `raw` is live.
        check(unsafe { ext::revoke(self.raw) }, "MPIX_Comm_revoke")
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if !self.free || ALL_LEFT_TO_MPI.load(Ordering::Relaxed) {
            return;
        }
        let mut finalized: c_int = 0;
        let _turn = self.turn();
        // SAFETY: MPI_Finalized may be called at any time; `raw` is owned and freed only here. The return
        // value of MPI_Comm_free cannot be used in a destructor.
        unsafe {
            mpi_sys::MPI_Finalized(&mut finalized);
            if finalized == 0 && self.raw != mpi_sys::RSMPI_COMM_NULL {
                mpi_sys::MPI_Comm_free(&mut self.raw);
            }
        }
    }
}

/// Returns whether this rank knows that a live communicator was revoked.
pub fn is_revoked(comm: MPI_Comm) -> Result<bool> {
    let mut flag: c_int = 0;
    // SAFETY: `comm` is live by the contract of the callers, and `flag` is one int.
    let code = unsafe { ext::is_revoked(comm, &mut flag) };
    check(code, "MPIX_Comm_is_revoked")?;
    Ok(flag != 0)
}

/// Waits until all survivors of a live communicator call this function, also those that do not let several threads call
/// MPI. Returns the AND of their words. Collective; other threads of this process get turns meanwhile.
pub fn agree_before_creation(comm: MPI_Comm, word: u32) -> Result<u32> {
    let among_threads = among_threads()?;
    let turn = || among_threads.then(turn::take_as_creator);
    let begun = turn();
    let mut agreement = Agreement::start(comm, word)?;
    drop(begun);
    loop {
        let looking = turn();
        if let Some((_, agreed)) = agreement.test()? {
            return Ok(agreed);
        }
        drop(looking);
        std::thread::yield_now();
    }
}

/// An agreement in progress.
pub struct Agreement {
    request: MPI_Request,
    /// Two copies of the flag; the first has the agreed value when the request is complete. Leaked if the agreement does
    /// not end, because MPI may still write to them.
    flags: *mut [c_int; 2],
    is_done: bool,
}

impl Agreement {
    fn start(comm: MPI_Comm, flag: u32) -> Result<Agreement> {
        let mut agreement = Agreement {
            flags: Box::into_raw(Box::new([flag as c_int; 2])),
            is_done: false,
            // SAFETY: a constant of the MPI library.
            request: unsafe { mpi_sys::RSMPI_REQUEST_NULL },
        };
        // SAFETY: `comm` is live; the flags are freed only when the request is complete.
        let code = unsafe { ext::iagree(comm, agreement.flags.cast(), &mut agreement.request) };
        let _ = outcome(code, "MPIX_Comm_iagree")?;
        Ok(agreement)
    }

    /// Makes progress. Returns the bitwise AND over the survivors, and whether there are new failures, once the
    /// agreement has ended.
    ///
    /// # Panics
    ///
    /// If it had ended before.
    pub fn test(&mut self) -> Result<Option<(Outcome, u32)>> {
        assert!(!self.is_done, "an agreement that has ended is tested");
        let mut done: c_int = 0;
        // SAFETY: the request belongs to this object.
        let code = unsafe {
            mpi_sys::MPI_Test(&mut self.request, &mut done, mpi_sys::RSMPI_STATUS_IGNORE)
        };
        let agreed = outcome(code, "MPI_Test")?;
        if done == 0 && agreed == Outcome::Fine {
            return Ok(None);
        }
        self.is_done = true;
        // SAFETY: the flags came from Box::into_raw, the request is complete, and this is the only time.
        let flags = unsafe { Box::from_raw(self.flags) };
        Ok(Some((agreed, flags[0] as u32)))
    }
}

/// A group of processes that the library owns.
#[derive(Debug)]
pub struct Group {
    raw: MPI_Group,
}

impl Group {
    fn null() -> Group {
        Group {
            // SAFETY: a constant of the MPI library.
            raw: unsafe { mpi_sys::RSMPI_GROUP_NULL },
        }
    }

    /// Returns the processes of a communicator.
    pub fn of(comm: MPI_Comm) -> Result<Group> {
        let mut group = Group::null();
        // SAFETY: `comm` is live by the contract of the callers.
        let code = unsafe { mpi_sys::MPI_Comm_group(comm, &mut group.raw) };
        check(code, "MPI_Comm_group")?;
        Ok(group)
    }

    /// The number of processes.
    pub fn len(&self) -> Result<usize> {
        let mut size: c_int = 0;
        // SAFETY: `raw` is a live group.
        let code = unsafe { mpi_sys::MPI_Group_size(self.raw, &mut size) };
        check(code, "MPI_Group_size")?;
        Ok(size as usize)
    }

    /// Returns the ranks in `to` of the processes that have the ranks `from` here; below 0 where absent.
    pub fn translate(&self, from: &[c_int], to: &Group) -> Result<Vec<c_int>> {
        let mut out = vec![-1; from.len()];
        if from.is_empty() {
            return Ok(out);
        }
        // SAFETY: both arrays have `from.len()` elements, both groups are live.
        let code = unsafe {
            mpi_sys::MPI_Group_translate_ranks(
                self.raw,
                from.len() as c_int,
                from.as_ptr(),
                to.raw,
                out.as_mut_ptr(),
            )
        };
        check(code, "MPI_Group_translate_ranks")?;
        Ok(out)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut finalized: c_int = 0;
        // SAFETY: `raw` is owned; the predefined groups must not be freed.
        unsafe {
            mpi_sys::MPI_Finalized(&mut finalized);
            if finalized == 0
                && self.raw != mpi_sys::RSMPI_GROUP_NULL
                && self.raw != mpi_sys::RSMPI_GROUP_EMPTY
            {
                mpi_sys::MPI_Group_free(&mut self.raw);
            }
        }
    }
}

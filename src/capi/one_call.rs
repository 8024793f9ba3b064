//! Sorting with one call: a group that belongs to the communicator of the caller.
//!
//! The group is an attribute of the communicator. MPI deletes it when the communicator is freed, and never
//! copies it to a duplicate. MPI does not promise to delete the attributes of MPI_COMM_WORLD, but it deletes
//! those of MPI_COMM_SELF at the start of MPI_Finalize: an attribute there deletes the group of
//! MPI_COMM_WORLD.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use mpi_sys::{MPI_Comm, MPI_Datatype};

use super::datatype::record_of;
use super::group::{free, ftsort, make_group, require_intra_communicator};
use super::guard::{keep_text, without_group};
use super::handle::{Handle, clear, last_error, place_of};
use super::record::read_layout;
use super::result::ftsort_result;
use super::run::sort_on;
use super::status::ftsort_status;
use crate::group::apart_from_group;
use crate::ulfm::{ErrorsReturned, check};
use ftsort_kernels::error::{Error, Result, Status};

/// Sorts the elements of all ranks of `comm`. [C]
///
/// Uses the group of `comm` with the default configuration, which ftsort_group_of describes.
///
/// \param comm    an intra-communicator; all of its ranks call this function
/// \param data    `count` elements of `type` on this rank, as for ftsort_run; NULL if `count` is 0
/// \param count   the number of elements on this rank; may differ between ranks
/// \param type    an integer or floating-point type of MPI, or any type that ftsort_record_of_type accepts
/// \param result  receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an
///                error
/// \return FTSORT_OK; FTSORT_ERR_DATA_LOST if data of failed ranks cannot be recovered (ftsort_lost_ranks names
///         the ranks); another status of ftsort_init or of ftsort_run
///
/// # Safety
/// `type` is a datatype; the pointers are NULL or valid, `data` for `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_sort(
    comm: MPI_Comm,
    data: *const c_void,
    count: usize,
    r#type: MPI_Datatype,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    let mut group = std::ptr::null_mut();
    // SAFETY: this function's contract; a local variable.
    let status = unsafe {
        clear(result);
        ftsort_group_of(comm, &mut group)
    };
    if status != Status::Ok as ftsort_status {
        return status;
    }
    // SAFETY: this function's contract, with that of ftsort_run.
    let sort = |group: &mut ftsort, input| unsafe { group.group.sort_checked(input) };
    // SAFETY: this function's contract; a live group, and a text that ends.
    unsafe {
        // A record is a plain number or struct, without a callback.
        let wanted = || read_layout(&record_of(r#type)?);
        let status = sort_on(group, wanted, data, count, result, sort);
        if status != Status::Ok as ftsort_status {
            let text = std::ffi::CStr::from_ptr(last_error(group));
            keep_text(&text.to_string_lossy());
        }
        status
    }
}

/// Returns the group that ftsort_sort uses on `comm`, and creates it at the first call. [C]
///
/// The group has the default configuration and is attached to `comm` as an attribute. MPI_Comm_free of `comm`
/// releases it; for MPI_COMM_WORLD and MPI_COMM_SELF MPI_Finalize does, or ftsort_leave, which is needed
/// after failures. MPI_Comm_dup does not copy it. ftsort_free has no effect on it. If a rank cannot attach it,
/// all return FTSORT_ERR_STATE, no rank keeps it, and the next call tries again. A group that has become
/// unusable (FTSORT_ERR_MPI, FTSORT_ERR_INTERNAL, FTSORT_ERR_EXCLUDED) stays attached: leave it, or free `comm`.
///
/// \param comm   an intra-communicator; all of its ranks call this function
/// \param group  receives the group, which belongs to `comm`; NULL after an error
/// \return as ftsort_init; if the group exists, the call is local, and NULL is an error on this rank alone
///
/// # Safety
/// `group` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_group_of(comm: MPI_Comm, group: *mut *mut Handle) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe { clear(group) };
    without_group(|| {
        // SAFETY: this function's contract.
        let place = unsafe { place_of("group", group) };
        require_intra_communicator(comm)?;
        // A rank that cannot look for the attribute has none, and then no rank has one.
        let found = match attached(comm) {
            Ok(Some(found)) => found,
            _ => attach(comm, place.as_ref().err().cloned())?,
        };
        *place? = found;
        Ok(())
    })
}

/// The key of the attribute that holds a group, and of the one that releases the group of MPI_COMM_WORLD.
struct Keys {
    group: c_int,
    at_finalize: c_int,
}

fn keys() -> Result<&'static Keys> {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    if let Some(keys) = KEYS.get() {
        return Ok(keys);
    }
    let made = Keys {
        group: new_key(release)?,
        at_finalize: new_key(finalize)?,
    };
    Ok(KEYS.get_or_init(|| made))
}

type DeleteFunction = unsafe extern "C" fn(MPI_Comm, c_int, *mut c_void, *mut c_void) -> c_int;

fn new_key(delete: DeleteFunction) -> Result<c_int> {
    let mut key: c_int = 0;
    // SAFETY: two functions of the required types, and a place for one int; MPI is initialised.
    let code = unsafe {
        mpi_sys::MPI_Comm_create_keyval(
            Some(not_copied),
            Some(delete),
            &mut key,
            std::ptr::null_mut(),
        )
    };
    check(code, "MPI_Comm_create_keyval")?;
    Ok(key)
}

/// A duplicate of a communicator has no group.
unsafe extern "C" fn not_copied(
    _comm: MPI_Comm,
    _key: c_int,
    _extra: *mut c_void,
    _value: *mut c_void,
    _copy: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes a place for one int.
    unsafe { *flag = 0 };
    mpi_sys::MPI_SUCCESS as c_int
}

/// MPI frees a communicator that has a group. Calls no collective function of MPI except MPI_Comm_free of the
/// private communicators, as ftsort_free does.
unsafe extern "C" fn release(
    _comm: MPI_Comm,
    _key: c_int,
    value: *mut c_void,
    _extra: *mut c_void,
) -> c_int {
    // SAFETY: the value is a handle of `attach`, and the attribute was its only owner.
    unsafe { free(value.cast()) };
    mpi_sys::MPI_SUCCESS as c_int
}

/// MPI_Finalize begins.
unsafe extern "C" fn finalize(
    _comm: MPI_Comm,
    _key: c_int,
    _value: *mut c_void,
    _extra: *mut c_void,
) -> c_int {
    // SAFETY: a constant of the MPI library, which is still initialised.
    let world = unsafe { mpi_sys::RSMPI_COMM_WORLD };
    // A callback of MPI has no caller that could act on an error.
    if let Ok(Some(_)) = attached(world) {
        let _ = detach(world);
    }
    mpi_sys::MPI_SUCCESS as c_int
}

/// The group that is attached to a communicator, if there is one. Local.
fn attached(comm: MPI_Comm) -> Result<Option<*mut Handle>> {
    let (mut value, mut found): (*mut c_void, c_int) = (std::ptr::null_mut(), 0);
    let key = keys()?.group;
    // SAFETY: a live communicator, and places for a pointer and an int.
    let code = unsafe {
        mpi_sys::MPI_Comm_get_attr(comm, key, std::ptr::from_mut(&mut value).cast(), &mut found)
    };
    check(code, "MPI_Comm_get_attr")?;
    Ok((found != 0).then_some(value.cast()))
}

/// Creates a group and attaches it. Collective: after it all survivors have the attribute, or none has.
fn attach(comm: MPI_Comm, refusal: Option<Error>) -> Result<*mut Handle> {
    // SAFETY: no configuration; the communicator was checked.
    let mut group = unsafe { make_group(comm, std::ptr::null(), refusal)? };
    let apart = |error| apart_from_group(&error, "attach the group to comm");
    let prepared = keys().map_err(apart);
    // The ranks that could attach the group wait here for those that could not: a rank without the attribute
    // would create a group in the next call, while the others sort.
    group.group.all_or_none(prepared.map(drop))?;
    let handle = Box::into_raw(Handle::new(group, Some(comm)));
    let stored = store(comm, handle).map_err(apart);
    // SAFETY: just made, and used by this call only.
    let agreed = unsafe { &*handle }.begin().map(|mut call| {
        let stored = stored.clone();
        call.group.group.all_or_none(stored)
    });
    let error = match agreed {
        Some(Ok(_)) => return Ok(handle),
        Some(Err(error)) => error,
        None => Error::internal("a new group is in use"),
    };
    if stored.is_err() {
        // SAFETY: nothing refers to the handle.
        unsafe { free(handle) };
    } else if error.status.sets_apart() {
        // Other ranks may have the attribute, and this rank must not create another group beside theirs.
        // SAFETY: just made, and used by this call only.
        if let Some(mut call) = unsafe { &*handle }.begin() {
            call.group.group.note_failure(&error);
        }
    } else {
        detach(comm)?;
    }
    Err(error)
}

/// Makes a group an attribute of its communicator. Local.
fn store(comm: MPI_Comm, handle: *mut Handle) -> Result<()> {
    let keys = keys()?;
    // The default error handler ends the whole job.
    let _errors = ErrorsReturned::of(comm)?;
    // SAFETY: constants of the MPI library and a live communicator; the values are pointers that MPI keeps.
    unsafe {
        if comm == mpi_sys::RSMPI_COMM_WORLD {
            let _errors = ErrorsReturned::of(mpi_sys::RSMPI_COMM_SELF)?;
            let code = mpi_sys::MPI_Comm_set_attr(
                mpi_sys::RSMPI_COMM_SELF,
                keys.at_finalize,
                std::ptr::null_mut(),
            );
            check(code, "MPI_Comm_set_attr")?;
        }
        let code = mpi_sys::MPI_Comm_set_attr(comm, keys.group, handle.cast());
        check(code, "MPI_Comm_set_attr")
    }
}

/// Releases the group of a communicator, which has one. Local.
pub(super) fn detach(comm: MPI_Comm) -> Result<()> {
    let key = keys()?.group;
    // SAFETY: a live communicator with the attribute.
    let code = unsafe { mpi_sys::MPI_Comm_delete_attr(comm, key) };
    check(code, "MPI_Comm_delete_attr")
}

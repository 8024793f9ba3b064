//! The statuses and their texts, as C sees them.

#![allow(non_camel_case_types)]

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use super::guard::c_text;
use ftsort_kernels::error::Status;

/// What a call returned: one of `ftsort_status_code`. Later versions may add codes, so treat every
/// value below zero as a failure.
pub type ftsort_status = i32;

/// The values of `ftsort_status`.
///
/// A collective call returns the same status on all surviving ranks, with one exception: where an
/// argument is wrong on some ranks only, these get `FTSORT_ERR_ARGUMENT` and the others
/// `FTSORT_ERR_PEER_ARGUMENT`. `ftsort_last_error` gives the text that goes with it.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_status_code {
    /// Success.
    FTSORT_OK = 0,
    /// An argument is wrong. Fix the call; nothing changed.
    FTSORT_ERR_ARGUMENT = -1,
    /// An argument is wrong on another rank. Nothing changed.
    FTSORT_ERR_PEER_ARGUMENT = -2,
    /// The group is poisoned, or the call came at a time when it is not allowed. Nothing changed.
    FTSORT_ERR_STATE = -3,
    /// MPI was built without ULFM, or started without it (`mpirun --with-ft ulfm`), and the
    /// configuration does not accept that.
    FTSORT_ERR_NO_ULFM = -20,
    /// A rank ran out of memory. The group stays usable.
    FTSORT_ERR_MEMORY = -21,
    /// A rank could not write or read the store. The group stays usable.
    FTSORT_ERR_STORE = -22,
    /// A callback refused on some rank. The group stays usable.
    FTSORT_ERR_CALLBACK = -23,
    /// Data of crashed ranks cannot be got back: the store held too few copies of it. This result
    /// is lost; the group stays usable.
    FTSORT_ERR_DATA_LOST = -40,
    /// Data were found changed (see `ftsort_check`), and there is nothing to get them back from, or no
    /// end of it. No wrong result is given out. The group stays usable.
    FTSORT_ERR_CORRUPT = -41,
    /// Fewer ranks are left, as far as this one can see, than `min_survivors` of the configuration asks
    /// for: the others are dead, or this rank is cut off from them. The group is poisoned: only free it.
    FTSORT_ERR_EXCLUDED = -60,
    /// MPI failed in a way that is not a crashed process. The group is poisoned: only free it.
    FTSORT_ERR_MPI = -61,
    /// A defect in ftsort. The group is poisoned: only free it.
    FTSORT_ERR_INTERNAL = -62,
}

/// One English sentence for a status. [L]
///
/// \param[in] status any number; an unknown one gives "unknown status".
/// \return a static, NUL-terminated string; never NULL. Any thread may call this at any time.
#[unsafe(no_mangle)]
pub extern "C" fn ftsort_status_text(status: ftsort_status) -> *const c_char {
    // C wants a pointer that never dies, and an end.
    static TEXTS: OnceLock<BTreeMap<i32, CString>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let known = std::iter::once(Status::Ok).chain(Status::BY_GRAVITY);
        known
            .map(|status| (status as i32, c_text(status.text())))
            .collect()
    });
    texts
        .get(&status)
        .map_or(c"unknown status", |text| text.as_c_str())
        .as_ptr()
}

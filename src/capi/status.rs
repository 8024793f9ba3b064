//! The statuses and their texts, as C sees them.

#![allow(non_camel_case_types)]

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use super::guard::c_text;
use ftsort_kernels::error::Status;

/// The status that a call returns: one of `ftsort_status_code`. Later versions may add codes, so treat every
/// negative value as an error.
pub type ftsort_status = i32;

/// The values of `ftsort_status`; ftsort_last_error returns the text of an error. After -1 to -3 nothing has changed,
/// after -20 to -41 the group stays usable, and after -60 to -62 it is unusable: leave or free it.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_status_code {
    /// Success.
    FTSORT_OK = 0,
    /// An argument of this rank is invalid, or differs from other ranks.
    FTSORT_ERR_ARGUMENT = -1,
    /// An argument of another rank is invalid.
    FTSORT_ERR_PEER_ARGUMENT = -2,
    /// The group is busy or unusable, or MPI is not running.
    FTSORT_ERR_STATE = -3,
    /// MPI was built without ULFM or started without it (`mpirun --with-ft ulfm`).
    FTSORT_ERR_NO_ULFM = -20,
    /// A rank ran out of memory or reached its memory limit.
    FTSORT_ERR_MEMORY = -21,
    /// A rank could not write or read the store.
    FTSORT_ERR_STORE = -22,
    /// A callback refused, or `compare` contradicts itself.
    FTSORT_ERR_CALLBACK = -23,
    /// The store has too few copies to recover data of failed ranks.
    FTSORT_ERR_DATA_LOST = -40,
    /// Data corruption was detected and could not be repaired.
    FTSORT_ERR_CORRUPT = -41,
    /// Fewer than `min_survivors` ranks are left, as far as this rank can see.
    FTSORT_ERR_EXCLUDED = -60,
    /// MPI failed in another way than by a failed process.
    FTSORT_ERR_MPI = -61,
    /// A defect in ftsort.
    FTSORT_ERR_INTERNAL = -62,
}

/// Returns one English sentence about a status, or "unknown status"; any thread may call it. [L]
#[unsafe(no_mangle)]
pub extern "C" fn ftsort_status_text(status: ftsort_status) -> *const c_char {
    // C needs a pointer that stays valid, to a text that ends with a NUL.
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

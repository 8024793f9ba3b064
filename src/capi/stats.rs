//! Figures of the last sort, and what the library is.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use super::group::ftsort;
use super::settings::write_sized;
use super::status::ftsort_status;
use crate::ulfm;
use ftsort_core::engine::Phase;
use ftsort_kernels::error::Status;

/// Figures of the last `ftsort_run` or `ftsort_rounds_run` on this rank. Later versions append fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_stats {
    /// `sizeof(ftsort_stats)`, set by the caller.
    pub struct_size: usize,
    /// Seconds from the call to the result.
    pub total_seconds: f64,
    /// Seconds of local sorting.
    pub sort_seconds: f64,
    /// Seconds of deciding on pivots, splitting, and exchanging with neighbours; of an algorithm of the
    /// caller's, of sharing, exchanging, and its callbacks.
    pub exchange_seconds: f64,
    /// Seconds of making the result out of sorted runs.
    pub merge_seconds: f64,
    /// Seconds of keeping versions in the store, copies to other ranks included.
    pub store_seconds: f64,
    /// Seconds of agreeing at the ends of rounds, which includes waiting for slower ranks.
    pub commit_seconds: f64,
    /// Seconds of agreeing on the dead and getting lost blocks back.
    pub repair_seconds: f64,
    /// Bytes sent to other ranks.
    pub bytes_sent: u64,
    /// Bytes put into the store on this rank.
    pub bytes_stored: u64,
    /// Rounds committed, loading and making the result included.
    pub rounds: u64,
    /// Times that a round started again.
    pub rounds_replayed: u64,
    /// Ranks found dead.
    pub faults: u64,
    /// The most bytes that ftsort's blocks and messages took at once in this process, the copy of
    /// the input and the result included.
    pub peak_bytes: u64,
    /// One of `ftsort_algorithm`: which one sorted; -1: it was `ftsort_rounds_run`.
    pub algorithm: i32,
    /// Times that data were found changed.
    pub corruptions: u64,
    /// Times that data of this rank were changed because `ftsort_config.faults` says so.
    pub injected: u64,
}

/// Gives the figures of the last `ftsort_run` or `ftsort_rounds_run`. [L]
///
/// \param[in] group a live group.
/// \param[in,out] out set `struct_size` before; that many bytes are filled in.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL, or a `struct_size` too small to hold itself.
///
/// # Safety
/// `group` is NULL or live; `out` is NULL or valid for its `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_get_stats(
    group: *const ftsort,
    out: *mut ftsort_stats,
) -> ftsort_status {
    // SAFETY: this function's contract.
    let Some(group) = (unsafe { group.as_ref() }) else {
        return Status::Argument as ftsort_status;
    };
    let stats = &group.stats;
    let full = |struct_size| ftsort_stats {
        struct_size,
        total_seconds: stats.total_seconds,
        sort_seconds: stats.phase(Phase::Sort),
        exchange_seconds: stats.phase(Phase::Exchange),
        merge_seconds: stats.phase(Phase::Merge),
        store_seconds: stats.phase(Phase::Store),
        commit_seconds: stats.phase(Phase::Commit),
        repair_seconds: stats.phase(Phase::Repair),
        bytes_sent: stats.bytes_sent,
        bytes_stored: stats.bytes_stored,
        rounds: stats.rounds,
        rounds_replayed: stats.rounds_replayed,
        faults: stats.faults,
        peak_bytes: stats.peak_bytes,
        algorithm: group.algorithm,
        corruptions: stats.corruptions,
        injected: stats.corrupted,
    };
    // SAFETY: this function's contract.
    unsafe { write_sized(out, full) as ftsort_status }
}

/// The version of the library that is loaded, which may differ from the header's macros. [L]
///
/// \param[out] major may be NULL, as the others.
/// \param[out] minor for 0.x versions this one changes with the ABI.
/// \param[out] patch the rest.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) {
    let parts = env!("CARGO_PKG_VERSION").split(['.', '-']);
    let parts = parts.map(|part| part.parse().unwrap_or(0));
    for (place, part) in [major, minor, patch].into_iter().zip(parts) {
        // SAFETY: this function's contract.
        if let Some(place) = unsafe { place.as_mut() } {
            *place = part;
        }
    }
}

/// What the library was built from: its version, the Rust compiler, the MPI compiler wrapper and the
/// MPI library, and whether that has ULFM. For bug reports. [L]
///
/// \return a static, NUL-terminated line.
#[unsafe(no_mangle)]
pub extern "C" fn ftsort_build_info() -> *const c_char {
    static INFO: OnceLock<CString> = OnceLock::new();
    let info = INFO.get_or_init(|| {
        let ulfm = match ulfm::COMPILED_IN {
            true => "ULFM",
            false => "no ULFM",
        };
        let text = format!(
            "ftsort {}, {}, {}, {ulfm}",
            env!("CARGO_PKG_VERSION"),
            env!("FTSORT_RUSTC"),
            ulfm::library_version(),
        );
        CString::new(text).unwrap_or_default()
    });
    CStr::as_ptr(info)
}

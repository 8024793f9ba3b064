//! Figures of the last sort, and the version of the library.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use super::handle::{Handle, on_any_group, set};
use super::settings::write_sized;
use super::status::ftsort_status;
use crate::ulfm;
use ftsort_core::engine::Phase;

/// Figures of the last sort, search, protection or rounds on this rank. Later versions append members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_stats {
    /// `sizeof(ftsort_stats)`, set by the caller.
    pub struct_size: usize,
    /// Seconds from the call to the result.
    pub total_seconds: f64,
    /// Seconds of local sorting.
    pub sort_seconds: f64,
    /// Seconds of pivots, partitioning and exchanges; of rounds also of callbacks.
    pub exchange_seconds: f64,
    /// Seconds of merging sorted runs into the result.
    pub merge_seconds: f64,
    /// Seconds of protecting inputs and storing versions, with copies to other ranks.
    pub store_seconds: f64,
    /// Seconds of agreements at the ends of rounds, including waits.
    pub commit_seconds: f64,
    /// Seconds of agreeing on failed ranks and restoring lost blocks.
    pub repair_seconds: f64,
    /// Bytes sent to other ranks.
    pub bytes_sent: u64,
    /// Bytes put into the store on this rank.
    pub bytes_stored: u64,
    /// Committed rounds, including loading and the result.
    pub rounds: u64,
    /// Rounds that were replayed.
    pub rounds_replayed: u64,
    /// Ranks that were found failed.
    pub failures: u64,
    /// The peak bytes of blocks and messages of the group in this process, input copy and result included.
    pub peak_bytes: u64,
    /// The algorithm that sorted, one of `ftsort_algorithm`; -1 for ftsort_rounds_run.
    pub algorithm: i32,
    /// Detected data corruptions.
    pub corruptions: u64,
    /// Changes of data of this rank by `ftsort_config.faults`.
    pub injected: u64,
    /// Predicted seconds of exchanges, if FTSORT_AUTO chose; otherwise 0.
    pub predicted_seconds: f64,
    /// The least prediction for another algorithm.
    pub other_seconds: f64,
}

/// Returns the figures of the last sort, search, protection or rounds, and the `algorithm` of the last sort or rounds;
/// other calls leave them. `stats` receives as many bytes as its `struct_size` says (FTSORT_STATS_INIT). Returns
/// FTSORT_OK; FTSORT_ERR_ARGUMENT for NULL or a small `struct_size`; FTSORT_ERR_STATE for a busy group. [L]
///
/// # Safety
/// `group` is NULL or live; `stats` is NULL or valid for its `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_get_stats(
    group: *const Handle,
    stats: *mut ftsort_stats,
) -> ftsort_status {
    on_any_group(group, |group| {
        let figures = group.group.stats();
        let choice = group.group.choice();
        let full = |struct_size| ftsort_stats {
            struct_size,
            total_seconds: figures.total_seconds,
            sort_seconds: figures.phase(Phase::Sort),
            exchange_seconds: figures.phase(Phase::Exchange),
            merge_seconds: figures.phase(Phase::Merge),
            store_seconds: figures.phase(Phase::Protect) + figures.phase(Phase::Store),
            commit_seconds: figures.phase(Phase::Commit),
            repair_seconds: figures.phase(Phase::Repair),
            bytes_sent: figures.bytes_sent,
            bytes_stored: figures.bytes_stored,
            rounds: figures.rounds,
            rounds_replayed: figures.rounds_replayed,
            failures: figures.faults,
            peak_bytes: figures.peak_bytes,
            algorithm: group.last_algorithm(),
            corruptions: figures.corruptions,
            injected: figures.corrupted,
            predicted_seconds: choice.map_or(0.0, |choice| choice.seconds),
            other_seconds: choice.map_or(0.0, |choice| choice.other_seconds),
        };
        // SAFETY: this function's contract.
        unsafe { write_sized("stats", stats, full) }
    })
}

/// Returns the version of the loaded library, which may differ from the macros of the header. Every minor version of
/// 0.x has its own ABI. Each argument may be NULL. [L]
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) {
    let parts = env!("CARGO_PKG_VERSION").split(['.', '-']);
    let parts = parts.map(|part| part.parse().unwrap_or(0));
    for (place, part) in [major, minor, patch].into_iter().zip(parts) {
        // SAFETY: this function's contract.
        unsafe { set(place, part) };
    }
}

/// Returns a static line for bug reports: the versions of ftsort, compiler and MPI, and whether it has ULFM. [L]
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

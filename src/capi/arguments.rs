//! The checks of the C functions' arguments without the functions, which need MPI: for tests. Only with
//! the feature `simulator`; nothing of it is exported to C.

use std::ffi::c_void;

use super::config::ftsort_config;
use super::guard::without_group;
use super::record::ftsort_record;
use super::run::{Learn, prepare};
use super::settings::Settings;
use super::status::ftsort_status;
use super::tree::{Options, ftsort_tree_options};
use super::verify::Arguments;
use ftsort_kernels::kernel::ThreadPool;

/// What `ftsort_init` says of a configuration before it looks at the communicator.
///
/// # Safety
/// As for `ftsort_init`.
pub unsafe fn check_config(config: *const ftsort_config) -> ftsort_status {
    // SAFETY: this function's contract.
    without_group(|| unsafe { Settings::read(config) }.map(drop))
}

/// What `ftsort_run` says of its arguments.
///
/// # Safety
/// As for `ftsort_run`.
pub unsafe fn check_run(
    record: *const ftsort_record,
    input: *const c_void,
    count: usize,
    has_out: bool,
) -> ftsort_status {
    without_group(|| {
        // SAFETY: this function's contract.
        unsafe {
            prepare(
                record,
                input,
                count,
                has_out,
                &ThreadPool::from(1),
                Learn::default(),
            )
        }
        .map(drop)
    })
}

/// What `ftsort_verify` says of its arguments.
///
/// # Safety
/// As for `ftsort_verify`.
pub unsafe fn check_verify(
    record: *const ftsort_record,
    input: *const c_void,
    count: usize,
    has_place: bool,
) -> ftsort_status {
    // SAFETY: this function's contract.
    without_group(|| unsafe { Arguments::read(record, input, count, has_place) }.map(drop))
}

/// What the tree functions say of their options in a group of so many ranks.
///
/// # Safety
/// As for `ftsort_tree_merge`.
pub unsafe fn check_tree(options: *const ftsort_tree_options, ranks: usize) -> ftsort_status {
    // SAFETY: this function's contract.
    without_group(|| unsafe { Options::read(options, ranks)?.fold(&ThreadPool::from(1)) }.map(drop))
}

//! The argument checks of the C functions without the functions themselves, which need MPI: for tests. Only
//! with the feature `testing`; it is not exported to C.

use std::ffi::c_void;

use super::config::ftsort_config;
use super::guard::without_group;
use super::handle::place_of;
use super::record::{ftsort_record, read_layout};
use super::run::input_of;
use super::settings::Settings;
use super::status::ftsort_status;
use super::tree::{Options, ftsort_tree_options};
pub use super::verify::check_array;
use ftsort_core::group::input::Prepared;
use ftsort_kernels::kernel::ThreadPool;

/// Checks a configuration as `ftsort_init` does before it reads the communicator.
///
/// # Safety
/// As for `ftsort_init`.
pub unsafe fn check_config(config: *const ftsort_config) -> ftsort_status {
    // SAFETY: this function's contract.
    without_group(|| unsafe { Settings::read(config) }.map(drop))
}

/// Checks the arguments of `ftsort_run`.
///
/// # Safety
/// As for `ftsort_run`.
pub unsafe fn check_run(
    record: *const ftsort_record,
    input: *const c_void,
    count: usize,
    has_place: bool,
) -> ftsort_status {
    without_group(|| {
        let mut place = ();
        let place = if has_place {
            std::ptr::from_mut(&mut place)
        } else {
            std::ptr::null_mut()
        };
        // SAFETY: this function's contract; a local variable.
        unsafe {
            place_of("result", place)?;
            let wanted = read_layout(record)?;
            Prepared::new(
                input_of(wanted, input, count, "data")?,
                &ThreadPool::from(1),
            )
            .map(drop)
        }
    })
}

/// Checks the options of the tree functions in a group of `ranks` ranks.
///
/// # Safety
/// As for `ftsort_tree_merge`.
pub unsafe fn check_tree(options: *const ftsort_tree_options, ranks: usize) -> ftsort_status {
    // SAFETY: this function's contract.
    without_group(|| unsafe { Options::read(options, ranks)?.operation() }.map(drop))
}

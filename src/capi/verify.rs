//! Verifies sorted data: results of a sort, and arrays of other programs.

use std::ffi::c_void;

#[cfg(feature = "testing")]
use super::guard::without_group;
use super::handle::{Handle, clear, on_group, on_group_locally, place_of, set};
use super::record::{ftsort_record, read_layout};
use super::result::{ftsort_result, hand_over};
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_core::group::{Sorted, Verification};
use ftsort_kernels::error::{Result, refuse};
use ftsort_kernels::record::Layout;

/// Verifies that a result is in order and consists of the records that were sorted. [C]
///
/// Compares every pair of neighbours, within a block and from block to block, and the result with the inputs as
/// multisets, by digests with a new key: a difference among n records is missed with a probability of at most n / 2^59
/// (McMillin and Ni 1989, Theorem 1; docs/reliable.md). Records with equal keys may be in any order. If no rank passes
/// an `input`, only the order and the number of records are verified, of an array only the order. After failures a
/// survivor must also pass the inputs of the failed ranks. If a rank with a block has failed, its block is missing,
/// which is a violation: recover, and verify again.
///
/// \param result      the result of this rank, of ftsort_sort, ftsort_run or ftsort_result_of_array; not changed.
///                    The records of other inputs, such as all of those of which ftsort_top returned a part, count as
///                    missing
/// \param input       the records that this rank passed to the sort, in any order; NULL if `count` is 0
/// \param count       the number of records at `input`
/// \param violations  receives the number of places where the result is wrong, the same on all survivors; 0 if
///                    it is right
/// \return FTSORT_OK, for a right result and for a wrong one; FTSORT_ERR_ARGUMENT also for a result of rounds
///         or of a tree, for positions and groups (ftsort_argsort, ftsort_positions, ftsort_unique,
///         ftsort_group_by), and for results of different sorts; or another status of "Collective calls"
///
/// # Safety
/// The pointers are NULL or valid, `input` for `count` records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_verify(
    group: *mut Handle,
    result: *const ftsort_result,
    input: *const c_void,
    count: usize,
    violations: *mut u64,
) -> ftsort_status {
    on_group(group, |group| {
        let ranks = group.group.members().ranks();
        let prepare = || {
            // SAFETY: this function's contract.
            let result = unsafe { place_of("violations", violations).map(|_| result.as_ref())? };
            let Some(result) = result else {
                return refuse("result is NULL: pass the result of this rank");
            };
            result.require_ranks(ranks)?;
            let (layout, parts, sorted) = result.records()?;
            // SAFETY: this function's contract.
            let input = unsafe { input_of(input, count, layout)? };
            let layout = layout.clone();
            Ok(Verification {
                layout,
                parts,
                input,
                total: sorted.map(Sorted::total),
                id: sorted.map(Sorted::id),
            })
        };
        let found = group.group.verify_checked(prepare())?;
        // SAFETY: this function's contract.
        unsafe { set(violations, found) };
        Ok(())
    })
}

/// Wraps a part of an array that another program sorted, to be verified with ftsort_result_verify. [L]
///
/// Copies nothing: `data` must stay valid and unchanged until the result is released. The order of the parts
/// is the order of ranks.
///
/// \param group   the group of the ranks that hold the parts; not changed
/// \param record  the layout of the records; borrowed for the call, except `compare` and `user`, which are
///                used by ftsort_result_verify
/// \param data    the part of this rank, aligned as an array of such records is; NULL if `count` is 0
/// \param count   the number of records at `data`
/// \param result  receives a result with one block, this part; release it with ftsort_result_free
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT; FTSORT_ERR_STATE
///
/// # Safety
/// The pointers are NULL or valid, `data` for `count` records until the result is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_of_array(
    group: *const Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe { clear(result) };
    on_group_locally(group, |group| {
        // SAFETY: this function's contract.
        unsafe {
            let place = place_of("result", result)?;
            let layout = read_array(record, data, count)?;
            let (node, ranks) = (
                group.group.members().me().home(),
                group.group.members().ranks(),
            );
            *place = hand_over(ftsort_result::array(layout, data, count, node, ranks));
        }
        Ok(())
    })
}

/// Checks the arguments of [`ftsort_result_of_array`].
///
/// # Safety
/// As for that function.
unsafe fn read_array(
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
) -> Result<Layout> {
    // SAFETY: this function's contract.
    let layout = unsafe { read_layout(record)? }.layout;
    let size = layout.record_bytes();
    // SAFETY: this function's contract.
    unsafe { CArray::of_records("data", data, count, size).bytes()? };
    let alignment = size.min(8);
    if count > 0 && size.is_power_of_two() && !data.addr().is_multiple_of(alignment) {
        return refuse(format!(
            "data is at {data:p}, but records of {size} bytes are aligned to {alignment}: pass an aligned array"
        ));
    }
    Ok(layout)
}

/// Checks the arguments of [`ftsort_result_of_array`] without a group.
///
/// # Safety
/// As for that function.
#[cfg(feature = "testing")]
pub unsafe fn check_array(
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
) -> ftsort_status {
    // SAFETY: this function's contract.
    without_group(|| unsafe { read_array(record, data, count) }.map(drop))
}

/// The records that were sorted; None if the caller passes none.
///
/// # Safety
/// `input` is NULL or valid for `count` records of this layout for as long as they are used.
unsafe fn input_of<'a>(
    input: *const c_void,
    count: usize,
    layout: &Layout,
) -> Result<Option<&'a [u8]>> {
    // SAFETY: this function's contract.
    let bytes =
        unsafe { CArray::of_records("input", input, count, layout.record_bytes()).bytes()? };
    Ok((!input.is_null()).then_some(bytes))
}

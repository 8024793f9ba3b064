//! The function that sorts.

use std::ffi::c_void;

use super::group::ftsort;
use super::handle::{Handle, on_group_for};
use super::record::{ftsort_record, read_layout};
use super::result::{ftsort_result, hand_over};
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_core::group::protected::Order;
use ftsort_core::group::{SortInput, Sorted};
use ftsort_kernels::error::Result;

/// Sorts the records of all ranks. [C]
///
/// The result is the same multiset in ascending order, from block to block in ascending order of node. Each
/// survivor receives the blocks of the nodes that it executes: its own, and those of failed ranks that it
/// stands in for. Ranks may fail at any moment, all but one of them; the store decides how many failures the
/// data survive (see `ftsort_store`). A rank that was known to have failed before the call contributes
/// nothing. If a rank fails after the call and before the result is released, ftsort_result_recover rebuilds its
/// blocks.
///
/// \param record  the layout of the records, the same on all ranks; borrowed for the call, except `compare` and
///                `user`, which ftsort_result_verify uses again
/// \param data    `count` records of this rank, of any alignment; NULL if `count` is 0. They must stay unchanged until
///                the call returns, and after FTSORT_ERR_MPI or FTSORT_ERR_INTERNAL until the process ends
/// \param count   the number of records of this rank; may differ between ranks
/// \param result  receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an
///                error
/// \return FTSORT_OK; FTSORT_ERR_DATA_LOST if data of failed ranks cannot be recovered (ftsort_lost_ranks names
///         the ranks); FTSORT_ERR_CORRUPT; FTSORT_ERR_CALLBACK if `reload` refuses or `compare` contradicts
///         itself; FTSORT_ERR_ARGUMENT on all ranks if `record` differs between ranks; or another status of
///         "Collective calls"
///
/// # Safety
/// The pointers are NULL or valid, `data` for `count` records, as long as its description says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_run(
    group: *mut Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    // SAFETY: this function's contract.
    let sort = |group: &mut ftsort, input| unsafe { group.group.sort_checked(input) };
    // SAFETY: this function's contract.
    unsafe { sort_on(group, || read_layout(record), data, count, result, sort) }
}

/// Reads the records of the caller, sorts them by `sort`, and hands the result to the caller.
///
/// # Safety
/// As for [`ftsort_run`].
pub(super) unsafe fn sort_on<'a>(
    group: *mut Handle,
    order: impl FnOnce() -> Result<Order>,
    data: *const c_void,
    count: usize,
    result: *mut *mut ftsort_result,
    sort: impl FnOnce(&mut ftsort, Result<SortInput<'a>>) -> Result<Sorted>,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe {
        on_group_for(group, "result", result, |group, refusal| {
            let input = refusal
                .and_then(|()| order())
                .and_then(|order| input_of(order, data, count, "data"));
            Ok(hand_over(ftsort_result::sorted(sort(group, input)?)))
        })
    }
}

/// The records of the caller as the input of a sort. `name`: that of `data` for error texts.
///
/// # Safety
/// `data` is NULL, or valid for `count` records and unchanged as long as the input is used.
pub(super) unsafe fn input_of<'a>(
    order: Order,
    data: *const c_void,
    count: usize,
    name: &str,
) -> Result<SortInput<'a>> {
    let Order { layout, stable } = order;
    let array = CArray::of_records(name, data, count, layout.record_bytes());
    Ok(SortInput {
        // SAFETY: this function's contract.
        records: unsafe { array.bytes()? },
        layout,
        stable,
    })
}

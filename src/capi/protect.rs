//! Inputs that are protected before they are sorted.

use std::ffi::c_void;

use super::handle::{Handle, on_group, on_group_for};
use super::record::{ftsort_record, read_layout};
use super::result::{ftsort_result, hand_over};
use super::run::input_of;
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_core::group::ProtectedInput;
use ftsort_core::group::protected::Order;
use ftsort_kernels::error::{Result, refuse};

/// A protected input: the records of this rank and the redundancy that this rank keeps for other ranks.
///
/// Belongs to the caller, and is used with the group that made it.
pub struct ftsort_input {
    input: ProtectedInput,
}

/// Protects an input before it is sorted. [C]
///
/// Copies the records of this rank and stores the redundancy that the configured store provides. Once this function
/// has returned, the input survives the failure of its rank, and the array of the caller is not needed any more. Call
/// it as early as the data exist, for example after reading a file. ftsort_input_update (ftsort_store.h) replaces the
/// records. An input takes the memory of one copy of the records, and of its replicas or parity shares.
///
/// \param record  the layout of the records, the same on all ranks; borrowed for the call, except `compare` and
///                `user`, which are used again by the sorts of the input
/// \param data    `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
/// \param count   the number of records of this rank; may differ between ranks
/// \param input   receives the protected input; release it with ftsort_input_free; NULL after an error
/// \return FTSORT_OK; FTSORT_ERR_DATA_LOST if a rank failed before its records were protected (ftsort_lost_ranks
///         names the ranks); another status of ftsort_run
///
/// # Safety
/// The pointers are NULL or valid, `data` for `count` records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_protect(
    group: *mut Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    input: *mut *mut ftsort_input,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe {
        on_group_for(group, "input", input, |group, refusal| {
            let given = refusal
                .and_then(|()| read_layout(record))
                .and_then(|wanted| input_of(wanted, data, count, "data"));
            let input = group.group.protect(given)?;
            Ok(Box::into_raw(Box::new(ftsort_input { input })))
        })
    }
}

/// Sorts a protected input. [C]
///
/// As ftsort_run, but no moment of the call is unprotected. The input stays as it is and can be sorted again without
/// new copies, also by another key. If ranks have failed, their records are sorted all the same, and copies that
/// failed with them are renewed. After FTSORT_ERR_DATA_LOST the input continues without the lost records.
///
/// \param input   a protected input of this group, the same on all ranks
/// \param record  the layout for this sort, the same on all ranks and with the record size of the input; NULL: that
///                of ftsort_protect
/// \param result  receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an error
/// \return as ftsort_run
///
/// # Safety
/// `input` is NULL or live; the other pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_run_protected(
    group: *mut Handle,
    input: *mut ftsort_input,
    record: *const ftsort_record,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe {
        on_group_for(group, "result", result, |group, refusal| {
            let mut order = None;
            let input = refusal.and_then(|()| {
                let input = protected_input(input)?;
                order = read_order(record)?;
                Ok(input)
            });
            let sorted = group.group.sort_protected(input, order)?;
            Ok(hand_over(ftsort_result::sorted(sorted)))
        })
    }
}

/// Replaces the records of this rank in a protected input. [C]
///
/// All survivors pass their new records, in the layout of ftsort_protect; the counts may change. The new records are
/// protected beside the old ones, and then all ranks go over to the new ones or none: a failure during the call leaves
/// either the old or the new records on all ranks. Records of ranks whose failure a call before this one has found stay
/// in the input. During the call the input takes twice its memory. Results of earlier sorts stay valid. With
/// FTSORT_STORE_PARITY the inputs of ranks that have failed are brought to their executors first.
///
/// \param input  a protected input of this group, the same on all ranks; not in use by another thread
/// \param data   `count` records of this rank, of any alignment; copied; NULL if `count` is 0
/// \param count  the number of records of this rank; may differ between ranks
/// \return FTSORT_OK; FTSORT_ERR_DATA_LOST if a rank failed before its new records had left it (ftsort_lost_ranks names
///         it; its old records stay in the input, and the next call succeeds), or if old records of failed ranks cannot
///         be recovered (these leave the input); FTSORT_ERR_CALLBACK; FTSORT_ERR_CORRUPT; FTSORT_ERR_ARGUMENT on all
///         ranks for different inputs; or another status of "Collective calls". After an error the input has all other
///         old records on all ranks
///
/// # Safety
/// `input` is NULL or live; `data` is valid for `count` records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_input_update(
    group: *mut Handle,
    input: *mut ftsort_input,
    data: *const c_void,
    count: usize,
) -> ftsort_status {
    on_group(group, |group| {
        let mut records: &[u8] = &[];
        // SAFETY: this function's contract.
        let input = unsafe { protected_input(input) }.and_then(|input| {
            let size = input.layout().record_bytes();
            // SAFETY: this function's contract.
            records = unsafe { CArray::of_records("data", data, count, size).bytes()? };
            Ok(input)
        });
        group.group.update(input, records)
    })
}

/// # Safety
/// `input` is NULL or live.
unsafe fn protected_input<'i>(input: *mut ftsort_input) -> Result<&'i mut ProtectedInput> {
    // SAFETY: this function's contract.
    match unsafe { input.as_mut() } {
        Some(input) => Ok(&mut input.input),
        None => refuse("input is NULL: pass the input of ftsort_protect"),
    }
}

/// # Safety
/// As for [`ftsort_run_protected`].
unsafe fn read_order(record: *const ftsort_record) -> Result<Option<Order>> {
    // SAFETY: this function's contract.
    let order = (!record.is_null()).then(|| unsafe { read_layout(record) });
    order.transpose()
}

/// Releases a protected input and its redundancy; NULL is allowed. Results of its sorts stay valid. [L]
///
/// # Safety
/// `input` is NULL or live, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_input_free(input: *mut ftsort_input) {
    if !input.is_null() {
        // SAFETY: it came from Box::into_raw, and the caller gives it back once.
        drop(unsafe { Box::from_raw(input) });
    }
}

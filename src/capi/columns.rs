//! Sorts with columns: values beside keys, the order of records as positions, and the columns of results.

use std::ffi::c_void;

use super::group::ftsort;
use super::guard::keep_text;
use super::handle::{Handle, on_group_for, set};
use super::record::{ftsort_record, read_layout};
use super::result::{address_of, ftsort_result, hand_over};
use super::run::{input_of, sort_on};
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_core::group::SortInput;
use ftsort_core::group::columns::KeysAndValues;
use ftsort_kernels::error::{Result, Status};

/// Sorts keys, and moves the value beside each key along. [C]
///
/// As ftsort_run for the keys. Column 0 of the result has the keys, column 1 the values (ftsort_result_column). A
/// `reload` callback provides the keys of its rank, followed by the values. The call takes the memory of a further copy
/// of the keys and values.
///
/// \param record       the layout of the keys, the same on all ranks; as for ftsort_run
/// \param keys         `count` keys of this rank, of any alignment; NULL if `count` is 0; not changed
/// \param values       `count` values of this rank, of any alignment; NULL if `count` or `value_bytes` is 0; not changed
/// \param value_bytes  the size of a value in bytes, the same on all ranks
/// \param count        the number of keys and of values of this rank; may differ between ranks
/// \param result       receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an error
/// \return as ftsort_run
///
/// # Safety
/// The pointers are NULL or valid, `keys` and `values` for `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_sort_by_key(
    group: *mut Handle,
    record: *const ftsort_record,
    keys: *const c_void,
    values: *const c_void,
    value_bytes: usize,
    count: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    let sort = |group: &mut ftsort, refusal: Result<()>| {
        let input = refusal.and_then(|()| {
            // Values without bytes are not read.
            let values = if value_bytes == 0 { keys } else { values };
            let values = CArray::of_records("values", values, count, value_bytes);
            Ok(KeysAndValues {
                // SAFETY: this function's contract.
                keys: unsafe { records_of(record, keys, count, "keys")? },
                // SAFETY: this function's contract.
                values: unsafe { values.bytes()? },
                value_bytes,
            })
        });
        let sorted = group.group.sort_by_key(input)?;
        Ok(hand_over(ftsort_result::sorted(sorted)))
    };
    // SAFETY: this function's contract.
    unsafe { on_group_for(group, "result", result, sort) }
}

/// Sorts the positions of records by the records. [C]
///
/// The result has, in sorted order, the position of each record in the input of all ranks, rank by rank: column 0, of
/// `uint64_t`. Records with equal keys keep their order. Otherwise as ftsort_run. Only keys are moved, not whole records.
///
/// \param record  the layout of the records, the same on all ranks; as for ftsort_run
/// \param data    `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
/// \param count   the number of records of this rank; may differ between ranks
/// \param result  receives the blocks of this rank; release it with ftsort_result_free; NULL after an error
/// \return as ftsort_run; FTSORT_ERR_DATA_LOST also if a rank fails before the others know how many records it has;
///         FTSORT_ERR_ARGUMENT on all ranks also with FTSORT_BITONIC_MERGE, which does not keep the order of equal keys
///
/// # Safety
/// The pointers are NULL or valid, `data` for `count` records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_argsort(
    group: *mut Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    let sort = |group: &mut ftsort, input| group.group.argsort(input);
    // SAFETY: this function's contract.
    unsafe { sort_on(group, || read_layout(record), data, count, result, sort) }
}

/// Computes the position of each record in the sorted order. [C]
///
/// The block of node v has the positions of the records that rank v passed, in their order: column 0, of `uint64_t`. A
/// survivor also receives the blocks of the failed ranks that it stands in for. Records with equal keys have ascending
/// positions in the order of ranks and positions. `offset` of a block is the number of records of lower ranks.
///
/// \param record  the layout of the records, the same on all ranks; as for ftsort_run
/// \param data    `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
/// \param count   the number of records of this rank; may differ between ranks
/// \param result  receives the blocks of this rank; release it with ftsort_result_free; NULL after an error
/// \return as ftsort_argsort
///
/// # Safety
/// The pointers are NULL or valid, `data` for `count` records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_positions(
    group: *mut Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    let sort = |group: &mut ftsort, input| group.group.positions(input);
    // SAFETY: this function's contract.
    unsafe { sort_on(group, || read_layout(record), data, count, result, sort) }
}

/// Returns the number of columns of a result: 1 but for ftsort_sort_by_key, ftsort_unique and ftsort_group_by; 0 for
/// NULL. [L]
///
/// # Safety
/// `result` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_columns(result: *const ftsort_result) -> usize {
    // SAFETY: this function's contract.
    unsafe { result.as_ref() }.map_or(0, ftsort_result::columns)
}

/// Describes a column of block `index` of a result. [L]
///
/// A column has as many elements as the block (ftsort_block.count); column 0 is ftsort_block.data.
///
/// \param data           receives the address of the column, aligned to 64 bytes if it is not column 0 of a sort; it
///                       lives as long as the result
/// \param element_bytes  receives the size of an element in bytes; may be NULL
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT for NULL, a large `index`, or a large `column`
///
/// # Safety
/// `result` is NULL or live; the other pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_column(
    result: *const ftsort_result,
    index: usize,
    column: usize,
    data: *mut *const c_void,
    element_bytes: *mut usize,
) -> ftsort_status {
    // SAFETY: this function's contract.
    let (result, place) = unsafe { (result.as_ref(), data.as_mut()) };
    let found = result.and_then(|result| result.column(index, column));
    let (Some((bytes, width)), Some(place)) = (found, place) else {
        let (count, columns) = result.map_or((0, 0), |result| (result.count(), result.columns()));
        keep_text(&format!(
            "result or data is NULL, or index is {index} and column is {column}, but the result has {count} blocks \
             of {columns} columns"
        ));
        return Status::Argument as ftsort_status;
    };
    *place = address_of(bytes);
    // SAFETY: as above.
    unsafe { set(element_bytes, width) };
    Status::Ok as ftsort_status
}

/// The records of the caller as an input, with the name of the array for error texts.
///
/// # Safety
/// As for [`ftsort_argsort`].
pub(super) unsafe fn records_of<'a>(
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    name: &str,
) -> Result<SortInput<'a>> {
    // SAFETY: this function's contract.
    unsafe { input_of(read_layout(record)?, data, count, name) }
}

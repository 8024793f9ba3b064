//! Records at given positions of the sorted order, without a sort of all records.

use std::ffi::c_void;

use super::columns::records_of;
use super::handle::{Handle, on_group, place_of, refuse};
use super::record::ftsort_record;
use super::result::ftsort_result;
use super::run::{give_sorted, has_place};
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_kernels::error::Result;

/// Finds the records at given positions of the sorted order. [C]
///
/// Position 0 is that of the first record; records with equal keys have the order of ranks and positions. The inputs are
/// protected as by ftsort_protect, and are searched without a sort: a few passes over the records, and samples of about
/// 2^14 records. All survivors receive the same records, also if ranks fail.
///
/// \param record          the layout of the records, the same on all ranks; as for ftsort_run
/// \param data            `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
/// \param count           the number of records of this rank; may differ between ranks
/// \param positions       `position_count` positions in any order, the same on all ranks; NULL if there are none
/// \param position_count  the number of positions
/// \param records         receives `position_count` records, in the order of `positions`; unchanged after an error
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks for a position that no record has, or if `positions` differ between
///         ranks; another status of ftsort_protect
///
/// # Safety
/// The pointers are NULL or valid, each for its number of elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_select(
    group: *mut Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    positions: *const u64,
    position_count: usize,
    records: *mut c_void,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let input = unsafe { records_of(record, data, count, "data") };
        let size = input
            .as_ref()
            .map_or(1, |input| input.layout.record_bytes());
        let arguments = input.and_then(|input| {
            require_place(records, position_count, size, "position_count")?;
            // SAFETY: this function's contract.
            let positions =
                unsafe { numbers("positions", positions, position_count, "position_count")? };
            Ok((input, positions))
        });
        let found = group.group.select_checked(arguments)?;
        // SAFETY: this function's contract; the place was checked.
        unsafe { write_records(records, &found) };
        Ok(())
    })
}

/// Finds the records of quantiles. [C]
///
/// As ftsort_select at the position max(0, ceil(f n) - 1) for a fraction f and n records on all ranks: the first record
/// such that at least the fraction f of all records is not behind it (NumPy's `inverted_cdf`). No numbers are
/// interpolated. A fraction of 0.5 is the lower median.
///
/// \param record          the layout of the records, the same on all ranks; as for ftsort_run
/// \param data            `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
/// \param count           the number of records of this rank; may differ between ranks
/// \param fractions       `fraction_count` numbers from 0 to 1, the same on all ranks; NULL if there are none
/// \param fraction_count  the number of fractions
/// \param records         receives `fraction_count` records, in the order of `fractions`; unchanged after an error
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks if no rank has a record, or if `fractions` differ between ranks;
///         another status of ftsort_protect
///
/// # Safety
/// The pointers are NULL or valid, each for its number of elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_quantiles(
    group: *mut Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    fractions: *const f64,
    fraction_count: usize,
    records: *mut c_void,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let input = unsafe { records_of(record, data, count, "data") };
        let size = input
            .as_ref()
            .map_or(1, |input| input.layout.record_bytes());
        let arguments = input.and_then(|input| {
            require_place(records, fraction_count, size, "fraction_count")?;
            // SAFETY: this function's contract.
            let fractions =
                unsafe { numbers("fractions", fractions, fraction_count, "fraction_count")? };
            Ok((input, fractions))
        });
        let found = group.group.quantiles_checked(arguments)?;
        // SAFETY: this function's contract; the place was checked.
        unsafe { write_records(records, &found) };
        Ok(())
    })
}

/// Sorts the first records of the sorted order of all ranks. [C]
///
/// As ftsort_run, but the result has only the first `top` records, or all if there are fewer: the `top` smallest, or for
/// `record->descending` the greatest. The other records are not sorted; they are searched as by ftsort_select.
///
/// \param record  the layout of the records, the same on all ranks; as for ftsort_run
/// \param data    `count` records of this rank, of any alignment; NULL if `count` is 0; not changed
/// \param count   the number of records of this rank; may differ between ranks
/// \param top     the number of records of the result, the same on all ranks
/// \param result  receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an error
/// \return as ftsort_run; FTSORT_ERR_ARGUMENT on all ranks also if `top` differs between ranks
///
/// # Safety
/// The pointers are NULL or valid, `data` for `count` records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_top(
    group: *mut Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    top: u64,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let place = unsafe { place_of("result", result) };
        let arguments = has_place(&place).and_then(|()| {
            // SAFETY: this function's contract.
            Ok((unsafe { records_of(record, data, count, "data")? }, top))
        });
        give_sorted(place, group.group.top_checked(arguments))
    })
}

/// Checks the place for records.
fn require_place(
    records: *mut c_void,
    count: usize,
    record_bytes: usize,
    count_name: &str,
) -> Result<()> {
    let place = CArray {
        name: "records",
        data: records.cast_const(),
        count_name,
        count,
        element_bytes: record_bytes,
    };
    place.check()
}

/// # Safety
/// `numbers` is NULL, or valid for `count` numbers as long as the slice is used.
unsafe fn numbers<'a, T>(
    name: &str,
    numbers: *const T,
    count: usize,
    count_name: &str,
) -> Result<&'a [T]> {
    let array = CArray {
        name,
        data: numbers.cast(),
        count_name,
        count,
        element_bytes: size_of::<T>(),
    };
    array.check()?;
    if count == 0 {
        return Ok(&[]);
    }
    if !numbers.is_aligned() {
        return refuse(format!(
            "{name} is not aligned to {} bytes: pass an array of numbers",
            align_of::<T>()
        ));
    }
    // SAFETY: not NULL, aligned, and valid by this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(numbers, count) })
}

/// # Safety
/// `place` is valid for these bytes if there are any.
unsafe fn write_records(place: *mut c_void, records: &[u8]) {
    if !records.is_empty() {
        // SAFETY: this function's contract; the library's records do not overlap those of the caller.
        unsafe { std::ptr::copy_nonoverlapping(records.as_ptr(), place.cast(), records.len()) };
    }
}

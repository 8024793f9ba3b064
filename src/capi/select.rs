//! Records at given positions of the sorted order, without a sort of all records.

use std::ffi::c_void;

use super::columns::records_of;
use super::group::ftsort;
use super::handle::{Handle, on_group};
use super::record::{ftsort_record, read_layout};
use super::result::ftsort_result;
use super::run::sort_on;
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_core::group::SortInput;
use ftsort_kernels::error::{Result, refuse};

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
        let wanted = Numbers(("positions", positions), ("position_count", position_count));
        // SAFETY: this function's contract.
        unsafe {
            find(
                group,
                records_of(record, data, count, "data"),
                wanted,
                records,
                |group, input, wanted| group.group.select(input, wanted),
            )
        }
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
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT also for a number outside of 0 to 1, and on all ranks if no rank has a record,
///         or if `fractions` differ between ranks; another status of ftsort_protect
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
        let wanted = Numbers(("fractions", fractions), ("fraction_count", fraction_count));
        // SAFETY: this function's contract.
        unsafe {
            find(
                group,
                records_of(record, data, count, "data"),
                wanted,
                records,
                |group, input, wanted| group.group.quantiles(input, wanted),
            )
        }
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
/// \return as ftsort_run; FTSORT_ERR_ARGUMENT on all ranks also if `top` differs between ranks, and with
///         FTSORT_BITONIC_MERGE, which sorts whole bitonic sequences
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
    let sort = |group: &mut ftsort, input: Result<_>| group.group.top(input, top);
    // SAFETY: this function's contract.
    unsafe { sort_on(group, || read_layout(record), data, count, result, sort) }
}

/// Numbers that the caller passes, and how many they are, with the names of both arguments for error texts.
struct Numbers<'n, T>((&'n str, *const T), (&'n str, usize));

impl<T> Numbers<'_, T> {
    /// The numbers, and that `records` has a place for as many records of this size.
    ///
    /// # Safety
    /// The numbers are NULL or valid as long as the slice is used.
    unsafe fn read<'a>(&self, records: *mut c_void, record_bytes: usize) -> Result<&'a [T]> {
        let Numbers((name, data), (count_name, count)) = *self;
        let places = CArray {
            element_bytes: record_bytes,
            ..CArray::of(("records", records.cast_const()), (count_name, count))
        };
        places.check()?;
        CArray::of((name, data), (count_name, count)).check()?;
        if count == 0 {
            return Ok(&[]);
        }
        if !data.is_aligned() {
            return refuse(format!(
                "{name} is not aligned to {} bytes: pass an array of numbers",
                align_of::<T>()
            ));
        }
        // SAFETY: not NULL, aligned, and valid by this function's contract.
        Ok(unsafe { std::slice::from_raw_parts(data, count) })
    }
}

/// Finds one record for each number, and writes them to `records`.
///
/// # Safety
/// The numbers and `records` are NULL, or valid for as many elements.
unsafe fn find<'a, T: 'a>(
    group: &mut ftsort,
    input: Result<SortInput<'a>>,
    wanted: Numbers<'_, T>,
    records: *mut c_void,
    find: impl FnOnce(&mut ftsort, Result<SortInput<'a>>, &[T]) -> Result<Vec<u8>>,
) -> Result<()> {
    let mut numbers: &[T] = &[];
    let input = input.and_then(|input| {
        // SAFETY: this function's contract.
        numbers = unsafe { wanted.read(records, input.layout.record_bytes())? };
        Ok(input)
    });
    let found = find(group, input, numbers)?;
    if !found.is_empty() {
        // SAFETY: the place was checked; the library's records do not overlap those of the caller.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), records.cast(), found.len()) };
    }
    Ok(())
}

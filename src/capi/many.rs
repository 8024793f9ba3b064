//! The function that sorts many arrays.

use std::ffi::c_void;

use super::handle::{Handle, on_group};
use super::record::{ftsort_record, read_layout};
use super::result::{ftsort_result, hand_over};
use super::run::input_of;
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_core::group::SortInput;
use ftsort_core::group::protected::Order;
use ftsort_kernels::error::{Error, Result};

/// One array of ftsort_run_many, as the arguments of ftsort_run describe it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_array {
    /// The layout. Arrays may differ in key and order, but not in `record_bytes`.
    pub record: *const ftsort_record,
    /// `count` records of this rank; NULL if `count` is 0.
    pub data: *const c_void,
    /// The number of records of this rank.
    pub count: usize,
}

/// Sorts several arrays, each by itself, with the messages and agreements of one sort. [C]
///
/// As ftsort_run for each array, for example for each cell or field of a simulation, but many small arrays take much
/// less time. Each array is divided over all ranks (docs/sorting.md states how evenly), and has a result of its own,
/// to be recovered and released in any order. The algorithm is FTSORT_SAMPLESORT. A `reload` callback provides all
/// arrays of its rank, one after the other.
///
/// \param arrays       `array_count` arrays, in the same order and of the same layouts on all ranks
/// \param array_count  the number of arrays, the same on all ranks
/// \param results      receives `array_count` results; release each with ftsort_result_free; all NULL after an error
/// \return as ftsort_run; FTSORT_ERR_DATA_LOST also if a rank fails before the others know its counts
///
/// # Safety
/// The pointers are NULL or valid, `arrays` and `results` for `array_count` elements, and each `data` for its `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_run_many(
    group: *mut Handle,
    arrays: *const ftsort_array,
    array_count: usize,
    results: *mut *mut ftsort_result,
) -> ftsort_status {
    // SAFETY: this function's contract.
    let mut places = unsafe { places_of(results, array_count) };
    if let Ok(places) = &mut places {
        places.fill(std::ptr::null_mut());
    }
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let arrays = unsafe { arrays_of(arrays, array_count) };
        let error = places.as_ref().err().cloned();
        let inputs = error.map_or(arrays, Err);
        // An error of this call tells more than one of `results`: MPI may still read the arrays.
        let sorted = group.group.sort_many(inputs)?;
        for (place, sorted) in places?.iter_mut().zip(sorted) {
            *place = hand_over(ftsort_result::sorted(sorted));
        }
        Ok(())
    })
}

/// The places of the results.
///
/// # Safety
/// `results` is NULL, or valid for `count` pointers as long as the slice is used.
unsafe fn places_of<'a>(
    results: *mut *mut ftsort_result,
    count: usize,
) -> Result<&'a mut [*mut ftsort_result]> {
    CArray::of(("results", results.cast_const()), ("array_count", count)).check()?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: not NULL, valid by this function's contract, and no longer than the address space.
    Ok(unsafe { std::slice::from_raw_parts_mut(results, count) })
}

/// The arrays of the caller.
///
/// # Safety
/// `arrays` is NULL, or valid for `count` arrays, each of which is as [`input_of`] demands.
unsafe fn arrays_of<'a>(arrays: *const ftsort_array, count: usize) -> Result<Vec<SortInput<'a>>> {
    CArray::of(("arrays", arrays), ("array_count", count)).check()?;
    let mut inputs: Vec<SortInput<'a>> = Vec::new();
    let mut last = None;
    for index in 0..count {
        // SAFETY: not NULL, and valid by this function's contract.
        let array = unsafe { arrays.add(index).read() };
        let named = |error: Error| Error {
            text: format!("arrays[{index}]: {}", error.text),
            ..error
        };
        // Most arrays have the record of the one before.
        let known = inputs.last().filter(|_| last == Some(array.record));
        let order = match known {
            Some(known) => Order {
                layout: known.layout.clone(),
                stable: known.stable,
            },
            // SAFETY: this function's contract.
            None => unsafe { read_layout(array.record) }.map_err(named)?,
        };
        last = Some(array.record);
        // SAFETY: this function's contract.
        let input = unsafe { input_of(order, array.data, array.count, "data") };
        inputs.push(input.map_err(named)?);
    }
    Ok(inputs)
}

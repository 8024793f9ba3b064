//! Groups of records with equal keys.

use std::ffi::c_void;

use super::group::ftsort;
use super::handle::Handle;
use super::record::{ftsort_record, read_layout};
use super::result::ftsort_result;
use super::run::sort_on;
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_core::group::SortInput;
use ftsort_core::query::groups::{Aggregate, Aggregation};
use ftsort_kernels::error::{Error, Result, refuse};
use ftsort_kernels::record::KeyKind;

/// The greatest number of aggregates of a call.
const MOST_AGGREGATES: usize = 1 << 10;

/// The number that an aggregate computes for each key.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_aggregation {
    /// The number of records: `uint64_t`.
    FTSORT_COUNT = 1,
    /// The sum: `int64_t` for signed integers and `uint64_t` for unsigned ones, both modulo 2^64; `double` for
    /// floating-point numbers, added in sorted order within a node, so that its last digits depend on the nodes' parts.
    FTSORT_SUM = 2,
    /// The first number in the order of its kind (`ftsort_key`), of this kind.
    FTSORT_LEAST = 3,
    /// The last number in the order of its kind, of this kind.
    FTSORT_GREATEST = 4,
}

/// An aggregate of the records with one key, for ftsort_group_by.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_aggregate {
    /// One of `ftsort_aggregation`.
    pub aggregation: i32,
    /// The kind of number: FTSORT_KEY_I8 to FTSORT_KEY_F64; ignored by FTSORT_COUNT.
    pub kind: i32,
    /// The position of the number in a record in bytes, of any alignment; ignored by FTSORT_COUNT.
    pub offset: usize,
}

/// Finds the distinct keys of all ranks, in order, and the number of records of each. [C]
///
/// Column 0 of the result has the first record of each key, in the order of ranks and positions; column 1 the number of
/// records with this key, of `uint64_t`. ftsort_result_total returns the number of distinct keys. Otherwise as ftsort_run.
///
/// \param record  the layout of the records, the same on all ranks; as for ftsort_run
/// \param data    as for ftsort_run
/// \param count   the number of records of this rank; may differ between ranks
/// \param result  receives the blocks of this rank; release it with ftsort_result_free; NULL after an error
/// \return as ftsort_run; FTSORT_ERR_ARGUMENT on all ranks also with FTSORT_BITONIC_MERGE, which does not keep the order of
///         equal keys
///
/// # Safety
/// The pointers are NULL or valid, `data` for `count` records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_unique(
    group: *mut Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    let sort = |group: &mut ftsort, input: Result<_>| {
        // SAFETY: this function's contract, with that of ftsort_run.
        unsafe { group.group.group_by_checked(input, &[Aggregate::COUNT]) }
    };
    // SAFETY: this function's contract.
    unsafe { sort_on(group, || read_layout(record), data, count, result, sort) }
}

/// Combines the records with equal keys. [C]
///
/// As ftsort_unique, but column 1 + i of the result has aggregate i of all records with the key.
///
/// \param record           the layout of the records, the same on all ranks; as for ftsort_run
/// \param aggregates       `aggregate_count` aggregates, the same on all ranks; NULL if `aggregate_count` is 0
/// \param aggregate_count  the number of aggregates, at most 1024
/// \param data             as for ftsort_run
/// \param count            the number of records of this rank; may differ between ranks
/// \param result           receives the blocks of this rank; release it with ftsort_result_free; NULL after an error
/// \return as ftsort_run; FTSORT_ERR_ARGUMENT on all ranks also if `aggregates` differ between ranks, and
///         with FTSORT_BITONIC_MERGE
///
/// # Safety
/// The pointers are NULL or valid, `aggregates` and `data` for their numbers of elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_group_by(
    group: *mut Handle,
    record: *const ftsort_record,
    aggregates: *const ftsort_aggregate,
    aggregate_count: usize,
    data: *const c_void,
    count: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    let sort = |group: &mut ftsort, input: Result<SortInput<'_>>| {
        let mut wanted = Vec::new();
        let input = input.and_then(|input| {
            let size = input.layout.record_bytes();
            // SAFETY: this function's contract.
            wanted = unsafe { aggregates_of(aggregates, aggregate_count, size)? };
            Ok(input)
        });
        // SAFETY: this function's contract, with that of ftsort_run.
        unsafe { group.group.group_by_checked(input, &wanted) }
    };
    // SAFETY: this function's contract.
    unsafe { sort_on(group, || read_layout(record), data, count, result, sort) }
}

/// # Safety
/// `aggregates` is NULL, or valid for `count` elements.
unsafe fn aggregates_of(
    aggregates: *const ftsort_aggregate,
    count: usize,
    record_bytes: usize,
) -> Result<Vec<Aggregate>> {
    if count > MOST_AGGREGATES {
        return refuse(format!(
            "aggregate_count is {count}, but a call has at most {MOST_AGGREGATES} aggregates"
        ));
    }
    CArray::of(("aggregates", aggregates), ("aggregate_count", count)).check()?;
    let aggregate = |index: usize| {
        // SAFETY: not NULL, and valid by this function's contract.
        let given = unsafe { aggregates.add(index).read() };
        let Some(function) = Aggregation::from_code(given.aggregation) else {
            return refuse(format!(
                "aggregates[{index}].aggregation is {}, which is not one of ftsort_aggregation",
                given.aggregation
            ));
        };
        let kind = match function {
            Aggregation::Count => Some(KeyKind::U64),
            _ => KeyKind::from_code(given.kind),
        };
        let Some(kind) = kind else {
            return refuse(format!(
                "aggregates[{index}].kind is {}, which is not an FTSORT_KEY_ value of this version",
                given.kind
            ));
        };
        Aggregate::new(function, kind, given.offset, record_bytes).map_err(|error| Error {
            text: format!("aggregates[{index}].{}", error.text),
            ..error
        })
    };
    (0..count).map(aggregate).collect()
}

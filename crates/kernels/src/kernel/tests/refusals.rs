//! Sorts and merges that are refused memory. They must never return wrong records as if they were right.

use super::*;
use crate::error::Result;
use crate::memory::MemoryBudget;

/// Runs `work` on a copy of `input` once for each of its allocations, which is refused. The copy is as `expected` then, or
/// the error is that of the refusal.
fn check_refusals(input: &[u8], expected: &[u8], work: impl Fn(&mut Buffer) -> Result<()>) {
    for action in 1.. {
        let mut block = Buffer::copy_of(input).unwrap();
        // The next buffer of this size has these bytes, and not the right ones of the action before.
        drop(Buffer::copy_of(input));
        let budget = MemoryBudget::new();
        budget.refuse(action..action + 1);
        let result = {
            let _entered = budget.enter();
            work(&mut block)
        };
        let is_refused = budget.actions() >= action;
        match result {
            Ok(()) => assert!(*block == *expected, "action {action}"),
            Err(error) => assert!(is_refused && error.status == Status::Memory, "{error}"),
        }
        if !is_refused {
            assert!(action > 1, "no allocation");
            return;
        }
    }
}

/// Several threads sort and merge so many records.
const RECORDS: usize = 140_000;

#[test]
fn a_refused_sort_or_merge_of_records_is_an_error_or_right() {
    // The prefixes are equal, so that the records are sorted in runs, which are merged.
    let fields = fields(14, 0, 13, KeyKind::Bytes);
    let records = (0..RECORDS).map(|number| format!("common-be{:05}", number / 2).into_bytes());
    let expected: Vec<u8> = records.flatten().collect();
    let (low, high) = expected.split_at(expected.len() / 2);
    let input = [high, low].concat();
    let kernel = kernel_for(&Layout::new(fields).unwrap(), 3);
    check_refusals(&input, &expected, |block| kernel.sort(block));
    check_refusals(&input, &expected, |out| kernel.merge(&[low, high], out));
}

#[test]
fn a_refused_sort_of_small_numbers_needs_no_memory() {
    let fields = fields(2, 0, 0, KeyKind::U16);
    let input = block(RECORDS, 2, SHAPES[0], 1);
    let kernel = kernel_for(&Layout::new(fields.clone()).unwrap(), 3);
    check_refusals(&input, &stably_sorted(&fields, &input), |block| {
        assert_eq!(kernel.sort(block), Ok(()));
        Ok(())
    });
}

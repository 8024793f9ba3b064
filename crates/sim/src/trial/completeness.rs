//! The oracle's checks that every record of a result is there once.

use super::oracle::{keeps_order_of_keys_only, may_swap_arrays};
use super::{RankResult, ResultBlock, TestRecord, Trial};
use ftsort_core::members::Rank;

/// Checks that the blocks are consecutive parts of the whole result, in the order of their nodes, and that no record
/// took the place of another one with the same key. `all_here`: no block is missing.
pub(super) fn judge_completeness(
    trial: &Trial,
    results: &[(Rank, &RankResult)],
    expected: &[TestRecord],
    all_here: bool,
) -> Option<String> {
    let blocks = results.iter().flat_map(|(_, result)| &result.blocks);
    let mut blocks: Vec<&ResultBlock> = blocks.collect();
    blocks.sort_by_key(|block| block.node);
    let mut end = 0;
    for block in &blocks {
        let (node, offset) = (block.node, block.offset as usize);
        if offset < end || all_here && offset > end {
            return Some(format!(
                "the block of node {node} begins at record {offset}, although the one before ends at {end}"
            ));
        }
        end = offset + block.records.len();
    }
    if !all_here {
        return None;
    }
    if end != expected.len() {
        let all = expected.len();
        return Some(format!("the result ends after {end} of {all} records"));
    }
    if !keeps_order_of_keys_only(trial) || may_swap_arrays(trial) {
        // The blocks are compared with the expected records one by one, or not at all.
        return None;
    }
    let mut found: Vec<&TestRecord> = blocks.iter().flat_map(|block| &block.records).collect();
    let mut expected: Vec<&TestRecord> = expected.iter().collect();
    found.sort();
    expected.sort();
    let mut pairs = found.into_iter().zip(expected);
    let (found, expected) = pairs.find(|(found, expected)| found != expected)?;
    Some(format!(
        "in the order of keys and tags, {found:?} is in the place of {expected:?}"
    ))
}

//! Messages, blocks and copies that change. Where digests are compared, the change is found, and an intact copy is used.

use super::redundancy::fail_in;
use super::*;

/// Sorts one input of a rank.
type SortOfKeys = fn(&mut SimGroup<'_>, &[i32]) -> Result<Sorted>;

const ONE: SortOfKeys = |group, keys| group.sort_keys(keys);

const MANY: SortOfKeys = |group, keys| {
    let mut results = group.sort_many(vec![SortInput::of_keys(keys)])?;
    Ok(results.remove(0))
};

/// Every input has two copies, of which one may change. With a chosen method, sorts with and without digests take the
/// same rounds.
fn config(digest: bool) -> GroupConfig {
    GroupConfig {
        method: Some(Method::HyperQuickSort(PivotRule::Sampled)),
        store: StoreChoice::Memory(2),
        checks: DataChecks {
            digest,
            purity: false,
        },
        ..GroupConfig::default()
    }
}

/// Returns whether all survivors succeed, and have the keys of all ranks in order.
fn is_sorted(outcomes: Vec<Option<Result<Blocks>>>) -> bool {
    let blocks: Result<Vec<Blocks>> = outcomes.into_iter().flatten().collect();
    let mut blocks = blocks.unwrap_or_default().concat();
    blocks.sort();
    let found: Vec<i32> = blocks.into_iter().flat_map(|(_, keys)| keys).collect();
    found == all_keys(4)
}

/// Recovers a result after the failure of rank 1. Rank 0 is the nearest holder of its input, and a record of this copy
/// changes in the sort, which does not use the copy. Record 4 is in the block of rank 1, which must be made again.
fn is_recovered(sort: SortOfKeys, digest: bool) -> bool {
    let plan = "0~0.replica/4* 1@20";
    let outcomes = play_group(4, 1, config(digest), plan, move |rank, group| {
        let mut sorted = sort(group, &keys(rank))?;
        fail_in(group, 20, 1)?;
        group.recover(&mut sorted)?;
        Ok(parts(&sorted))
    });
    is_sorted(outcomes)
}

#[test]
fn a_changed_copy_of_an_input_is_not_used_for_a_recovery() {
    for (name, sort) in [("one", ONE), ("many", MANY)] {
        assert!(is_recovered(sort, true), "{name}");
        assert!(!is_recovered(sort, false), "{name}");
    }
}

#[test]
fn arrays_are_sorted_although_data_change() {
    let is_right = |plan: &str, digest| {
        let outcomes = play_group(4, 1, config(digest), plan, |rank, group| {
            Ok(parts(&MANY(group, &keys(rank))?))
        });
        is_sorted(outcomes)
    };
    // In the last one, the failure of a rank makes the sort use the changed copy.
    for plan in ["2~1.message", "2~1.block", "0~0.replica* 1@1"] {
        assert!(is_right(plan, true), "{plan}");
        assert!(!is_right(plan, false), "{plan}");
    }
}

/// Sorts an input that was replaced, after the failure of rank 1. The copies of the new inputs that rank 0 holds change.
/// The old inputs are empty, so that the change does not occur before the update.
fn is_sorted_after_an_update(digest: bool) -> bool {
    let plan = "0~0.replica* 1@20";
    let outcomes = play_group(4, 1, config(digest), plan, |rank, group| {
        let mut input = group.protect(SortInput::of_keys::<i32>(&[]))?;
        group.update(&mut input, bytemuck::cast_slice(&keys(rank)))?;
        fail_in(group, 20, 1)?;
        Ok(parts(&group.sort_protected(&mut input, None)?))
    });
    is_sorted(outcomes)
}

#[test]
fn a_changed_copy_of_a_replaced_input_is_not_used() {
    assert!(is_sorted_after_an_update(true));
    assert!(!is_sorted_after_an_update(false));
}

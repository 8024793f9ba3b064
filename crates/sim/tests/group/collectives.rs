//! Tree collectives, verification and gathering.

use ftsort_core::group::{GroupConfig, MergeOperation, SortInput, TreeMerge, TreeOptions};
use ftsort_core::members::Rank;
use ftsort_kernels::error::Status;

use crate::{SEEDS, all_keys, keys, play_group, statuses};

#[test]
fn a_tree_merges_the_contributions_of_all_ranks() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "2@2", |rank, group| {
            let merged = group.tree_merge(TreeMerge {
                options: TreeOptions::default(),
                operation: MergeOperation::Sorted {
                    layout: SortInput::of_keys::<u8>(&[]).layout,
                    ordered: false,
                },
                contribution: &[rank.0 as u8, 10 + rank.0 as u8],
            })?;
            let holder = group.last_tree().expect("a tree").sink_rank;
            assert_eq!(merged.is_some(), holder == rank);
            Ok(merged.map(|merged| merged.to_vec()))
        });
        let merged: Vec<Vec<u8>> = outcomes
            .into_iter()
            .flatten()
            .filter_map(|merged| merged.expect("survivors succeed"))
            .collect();
        assert_eq!(merged, [[0, 1, 2, 3, 10, 11, 12, 13]], "seed {seed}");
    }
}

#[test]
fn an_unsorted_contribution_is_refused() {
    let outcomes = play_group(2, 1, GroupConfig::default(), "", |rank, group| {
        let contribution: &[u8] = if rank == Rank(1) { &[2, 1] } else { &[1, 2] };
        let merged = group.tree_merge(TreeMerge {
            options: TreeOptions::default(),
            operation: MergeOperation::Sorted {
                layout: SortInput::of_keys::<u8>(&[]).layout,
                ordered: false,
            },
            contribution,
        });
        merged.map(drop)
    });
    use Status::{Argument, PeerArgument};
    assert_eq!(statuses(&outcomes), [Some(PeerArgument), Some(Argument)]);
}

#[test]
fn a_broadcast_reaches_all_ranks() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "1@2", |rank, group| {
            let own = [rank.0 as u8; 3];
            let bytes = group.tree_broadcast(TreeOptions::default(), Rank(2), &own)?;
            Ok(bytes.to_vec())
        });
        assert_eq!(outcomes.iter().flatten().count(), 3);
        for outcome in outcomes.into_iter().flatten() {
            assert_eq!(outcome.unwrap(), [2; 3]);
        }
    }
}

#[test]
fn a_result_is_verified_and_gathered() {
    for seed in SEEDS {
        let outcomes = play_group(3, seed, GroupConfig::default(), "", |rank, group| {
            let mine = keys(rank);
            let input = SortInput::of_keys(&mine);
            let sorted = group.sort(input.clone())?;
            let violations = group.verify(&input.layout, &sorted, Some(input.records))?;
            assert_eq!(violations, 0);
            // The input of one rank is missing: the multisets differ.
            let part = if rank == Rank(1) { &[] } else { input.records };
            assert_eq!(group.verify(&input.layout, &sorted, Some(part))?, 1);
            let mut whole: Vec<i32> = Vec::new();
            group.gather(TreeOptions::default(), &sorted, &mut |records| {
                whole.extend(bytemuck::cast_slice::<u8, i32>(records));
                Ok(())
            })?;
            Ok(whole)
        });
        let wholes: Vec<Vec<i32>> = outcomes.into_iter().flatten().map(|w| w.unwrap()).collect();
        let received = wholes.iter().filter(|whole| !whole.is_empty()).count();
        assert_eq!((received, wholes.concat()), (1, all_keys(3)), "seed {seed}");
    }
}

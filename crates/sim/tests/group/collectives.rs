//! States, user-defined algorithms, tree collectives, verification and gathering.

use super::redundancy::{fail_in, whole};
use super::*;
use ftsort_core::group::{MergeOperation, TreeMerge, TreeOptions, Verification};
use ftsort_core::rounds::bytes;
use ftsort_core::tree::fold::{Elementwise, Operation};
use ftsort_core::tree::plan::Remedy;
use ftsort_core::tree::run::choose::TreeRequest;

/// A loop that adds its round to a state for each node, and survives failures.
pub fn count_rounds(group: &mut SimGroup<'_>) -> Result<Vec<(u32, u8)>> {
    let mut round = 0;
    while round < 3 {
        group.inject(round)?;
        for node in group.members().my_nodes() {
            let before = group.state(node)?.map_or(0, |state| state[0]);
            group.put_state(node, &[before + 1])?;
        }
        round += u32::from(group.commit_states(true)?);
    }
    let nodes = group.members().my_nodes().into_iter();
    let states = nodes.map(|node| Ok((node.0, group.state(node)?.expect("a state")[0])));
    states.collect()
}

#[test]
fn committed_states_survive_failures() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "1@1 2@2", |_, group| {
            count_rounds(group)
        });
        let mut states: Vec<(u32, u8)> = survivors(outcomes).flatten().collect();
        states.sort_unstable();
        assert_eq!(states, [(0, 3), (1, 3), (2, 3), (3, 3)], "seed {seed}");
    }
}

#[test]
fn states_are_kept_in_a_directory() {
    for seed in SEEDS {
        let files = SharedFiles::default();
        let shared = Rc::clone(&files);
        let outcomes = play(3, seed, move |rank, transport, handle| {
            let config = GroupConfig {
                store: store_in(&shared, &handle, FileModel::default()),
                failures: Plan::parse("1@1")?,
                ..GroupConfig::default()
            };
            let mut group = Group::new(transport, config, services(rank))?;
            let states = count_rounds(&mut group)?;
            Ok((states.len(), group.finish()?))
        });
        let mut nodes = 0;
        for outcome in outcomes.into_iter().flatten() {
            let outcome: Result<(usize, bool)> = outcome;
            let (states, no_failures) = outcome.expect("survivors succeed");
            assert!(!no_failures);
            nodes += states;
        }
        assert_eq!(nodes, 4);
        assert_eq!(files.borrow().names().len(), 0, "seed {seed}");
    }
}

#[test]
fn a_state_of_another_ranks_node_is_refused() {
    let outcomes = play_group(2, 1, GroupConfig::default(), "", |rank, group| {
        let other = Node(1 - rank.0);
        assert_eq!(group.state(other).unwrap_err().status, Status::Argument);
        group.put_state(Node(9), &[1])
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 2]);
    let refused = Err(Error::new(Status::Argument, "committed is NULL"));
    let outcomes = play_group(2, 1, GroupConfig::default(), "", move |rank, group| {
        let arguments = if rank == Rank(0) {
            Ok(())
        } else {
            refused.clone()
        };
        group.commit_states_checked(true, arguments).map(drop)
    });
    use Status::{Argument, PeerArgument};
    assert_eq!(statuses(&outcomes), [Some(PeerArgument), Some(Argument)]);
}

/// Every node ends with the sum of all nodes' bytes.
pub struct Sum;

impl Rounds for Sum {
    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        bytes(&[task.state.first().unwrap_or(&0) + inbox.first().unwrap_or(&0)])
    }
}

#[test]
fn rounds_run_although_a_rank_fails() {
    for seed in SEEDS {
        let outcomes = play_group(
            4,
            seed,
            GroupConfig::default(),
            "3@1.send",
            |rank, group| {
                let states = group.run_rounds(&Sum, &[1 << rank.0])?;
                assert_eq!(group.last_run(), Some(LastRun::Rounds));
                let states = states.iter().map(|(_, state)| state[0]);
                Ok(states.collect::<Vec<u8>>())
            },
        );
        let states: Vec<u8> = survivors(outcomes).flatten().collect();
        assert_eq!(states, [15; 4], "seed {seed}");
    }
}

/// The node of rank 3 has no home rank, and rank 9 is beyond the hypercube.
#[test]
fn trees_with_ranks_that_the_group_does_not_have_are_refused() {
    let mut wrong = vec![TreeOptions::default(); 4];
    wrong[0].request.sink = Some(Rank(3));
    wrong[1].request.sink = Some(Rank(9));
    wrong[2].request.links.push((Rank(1), Rank(3)));
    wrong[3].request.links.push((Rank(9), Rank(0)));
    let outcomes = play_group(3, 1, GroupConfig::default(), "", move |rank, group| {
        let mut sorted = group.sort_keys(&keys(rank))?;
        for options in &wrong {
            let merge = TreeMerge {
                options: options.clone(),
                operation: MergeOperation::Concatenate,
                contribution: &[1],
            };
            let errors = [
                refusal(group.tree_share(options, 7))?,
                refusal(group.tree_merge(merge))?,
                refusal(group.tree_broadcast(options.clone(), Rank(0), &[1]))?,
                refusal(group.gather(options.clone(), &mut sorted, &mut |_| Ok(())))?,
            ];
            for error in errors {
                assert_eq!(error.status, Status::Argument);
                let expected = "but the group has the ranks 0 to 2";
                assert!(error.text.ends_with(expected), "{error}");
            }
        }
        group.agree(1).map(drop)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Ok); 3]);
}

/// Also if only one rank contributes, alone or beside others.
#[test]
fn truth_values_of_a_tree_are_0_and_1() {
    for ranks in [1, 2, 3] {
        for operation in [Operation::And, Operation::Or] {
            let outcomes = play_group(ranks, 1, GroupConfig::default(), "", move |rank, group| {
                let merged = group.tree_merge(TreeMerge {
                    options: TreeOptions::default(),
                    operation: MergeOperation::Numbers(Elementwise {
                        kind: KeyKind::U8,
                        operation,
                        ordered: false,
                    }),
                    contribution: if rank.0 == 0 { &[2, 0, 255] } else { &[] },
                })?;
                Ok(merged.map(|merged| merged.to_vec()))
            });
            let mut merged = outcomes.into_iter().flatten();
            let merged = merged.find_map(|merged| merged.expect("no rank fails"));
            assert_eq!(merged, Some(vec![1, 0, 1]), "{ranks} {operation:?}");
        }
    }
}

/// A merge of sorted numbers with the default options.
pub fn sorted_merge<K: Key>(contribution: &[u8]) -> TreeMerge<'_> {
    TreeMerge {
        options: TreeOptions::default(),
        operation: MergeOperation::Sorted {
            layout: SortInput::of_keys::<K>(&[]).layout,
            ordered: false,
        },
        contribution,
    }
}

#[test]
fn a_tree_merges_the_contributions_of_all_ranks() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "2@2", |rank, group| {
            let own = [rank.0 as u8, 10 + rank.0 as u8];
            let merged = group.tree_merge(sorted_merge::<u8>(&own))?;
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

/// Node 1 cannot send to node 0. Its neighbours 3 and 5 can pass its data on.
#[test]
fn each_remedy_leads_around_a_faulty_link_in_its_way() {
    for (remedy, delegated, detours) in [
        (Remedy::Delegate, 1, 0),
        (Remedy::Partition, 2, 0),
        (Remedy::Reroute, 0, 1),
    ] {
        let outcomes = play_group(8, 1, GroupConfig::default(), "", move |rank, group| {
            let own = [rank.0 as u8, 10 + rank.0 as u8];
            let mut merge = sorted_merge::<u8>(&own);
            merge.options.request = TreeRequest {
                sink: Some(Rank(0)),
                links: vec![(Rank(0), Rank(1))],
                remedy,
                ..TreeRequest::any()
            };
            let merged = group.tree_merge(merge)?;
            let tree = group.last_tree().expect("a tree");
            let figures = (tree.faulty_links, tree.delegated, tree.detours);
            assert_eq!(figures, (1, delegated, detours), "{remedy:?}");
            Ok(merged.map(|merged| merged.to_vec()))
        });
        let merged: Vec<Vec<u8>> = survivors(outcomes).flatten().collect();
        assert_eq!(merged, [(0..8).chain(10..18).collect::<Vec<u8>>()]);
    }
}

/// A contribution may have any address, also an empty one.
#[test]
fn a_sorted_contribution_need_not_be_aligned() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let keys = [rank.0 as i32, 10].map(i32::to_ne_bytes);
        let unaligned = [&[0], keys.as_flattened()].concat();
        let contribution: &[u8] = if rank == Rank(1) {
            &[]
        } else {
            &unaligned[1..]
        };
        let merged = group.tree_merge(sorted_merge::<i32>(contribution))?;
        Ok(merged.map(|merged| merged.to_vec()))
    });
    let merged: Vec<Vec<u8>> = outcomes
        .into_iter()
        .filter_map(|merged| merged.expect("no rank fails").expect("no error"))
        .collect();
    assert_eq!(
        merged,
        [[0, 2, 10, 10].map(i32::to_ne_bytes).as_flattened()]
    );
}

#[test]
fn an_unsorted_contribution_is_refused() {
    let outcomes = play_group(2, 1, GroupConfig::default(), "", |rank, group| {
        let contribution: &[u8] = if rank == Rank(1) { &[2, 1] } else { &[1, 2] };
        let merged = group.tree_merge(sorted_merge::<u8>(contribution));
        merged.map(drop)
    });
    use Status::{Argument, PeerArgument};
    assert_eq!(statuses(&outcomes), [Some(PeerArgument), Some(Argument)]);
}

#[test]
fn a_broadcast_reaches_all_ranks() {
    for seed in SEEDS {
        let outcomes = play_group(4, seed, GroupConfig::default(), "1@1", |rank, group| {
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
            let mut sorted = group.sort(input.clone())?;
            let violations = group.verify(&input.layout, &sorted, Some(input.records))?;
            assert_eq!(violations, 0);
            // The input of one rank is missing: the multisets differ.
            let part = if rank == Rank(1) { &[] } else { input.records };
            assert_eq!(group.verify(&input.layout, &sorted, Some(part))?, 1);
            let mut whole: Vec<i32> = Vec::new();
            group.gather(TreeOptions::default(), &mut sorted, &mut |records| {
                whole.extend(bytemuck::cast_slice::<u8, i32>(records));
                Ok(())
            })?;
            Ok(whole)
        });
        let wholes: Vec<Vec<i32>> = survivors(outcomes).collect();
        let received = wholes.iter().filter(|whole| !whole.is_empty()).count();
        assert_eq!((received, wholes.concat()), (1, all_keys(3)), "seed {seed}");
    }
}

/// A window has 512 bytes in tests, and at least one record.
#[test]
fn records_that_are_larger_than_a_window_are_gathered() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        let records = [6, 3, 0].map(|key| [key + rank.0 as i32; 150]);
        let fields = Fields {
            record_bytes: size_of::<[i32; 150]>(),
            key: KeyKind::I32 as i32,
            ..Fields::default()
        };
        let mut sorted = group.sort(SortInput {
            layout: Layout::new(fields)?,
            stable: false,
            records: bytemuck::cast_slice(records.as_flattened()),
        })?;
        whole(group, &mut sorted)
    });
    let expected: Vec<i32> = (0..9).flat_map(|key| [key; 150]).collect();
    assert_eq!(survivors(outcomes).collect::<Vec<_>>().concat(), expected);
}

#[test]
fn a_verification_without_inputs_finds_that_records_of_a_failed_rank_are_missing() {
    let outcomes = play_group(3, 1, GroupConfig::default(), "1@10", |rank, group| {
        let mine = keys(rank);
        let input = SortInput::of_keys(&mine);
        let sorted = group.sort(input.clone())?;
        fail_in(group, 10, 1)?;
        group.verify(&input.layout, &sorted, None)
    });
    assert_eq!(outcomes, [Some(Ok(1)), None, Some(Ok(1))]);
}

#[test]
fn verifies_empty_parts_and_refuses_misaligned_numbers() {
    let outcomes = play_group(1, 1, GroupConfig::default(), "", |_, group| {
        let layout = SortInput::of_keys::<f32>(&[]).layout;
        let verification = |part: &'static [u8]| Verification {
            layout: layout.clone(),
            parts: vec![(Node(0), part)],
            input: None,
            total: None,
            id: None,
        };
        static NUMBERS: [u64; 2] = [0; 2];
        let bytes: &[u8] = bytemuck::cast_slice(&NUMBERS);
        assert_eq!(group.verify_checked(Ok(verification(&bytes[1..1])))?, 0);
        assert_eq!(group.verify_checked(Ok(verification(&bytes[..8])))?, 0);
        group
            .verify_checked(Ok(verification(&bytes[1..9])))
            .map(drop)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument)]);
}

//! Options that must be the same on all ranks or in later jobs, and options with an effect that no failure shows.

use std::cmp::Ordering;

use super::named::World;
use super::*;
use ftsort_core::group::{MergeOperation, TreeMerge, TreeOptions};
use ftsort_core::rounds::{Round, bytes, upwards};
use ftsort_core::tree::fold::{Elementwise, Operation};
use ftsort_core::tree::run::choose::TreeRequest;
use ftsort_core::tree::run::traverse::MergeOperator;
use ftsort_kernels::record::Comparator;

/// The sum of all bytes, by rounds with other properties on rank 1.
struct Limited(usize, bool);

impl Rounds for Limited {
    fn absorb(&self, task: &Task<'_>, _: Slice) -> Result<Slice> {
        Ok(task.state.clone())
    }

    fn share_limit(&self) -> usize {
        self.0
    }

    fn inits_all(&self) -> bool {
        self.1
    }

    fn init(&self, _: Node) -> Result<Slice> {
        bytes(&[0])
    }
}

#[test]
fn rounds_with_other_properties_on_a_rank_are_refused() {
    for other in [Limited(8, false), Limited(16, true)] {
        let other = Rc::new(other);
        let outcomes = play_group(2, 1, GroupConfig::default(), "", move |rank, group| {
            let usual = Limited(16, false);
            let rounds = if rank == Rank(1) { &*other } else { &usual };
            group.run_rounds(rounds, &[1]).map(drop)
        });
        assert_eq!(statuses(&outcomes), [Some(Status::Argument); 2]);
    }
}

/// Rounds along the dimensions from the lowest up, or from the highest down.
struct Ordered {
    is_upwards: bool,
}

impl Rounds for Ordered {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        let mut plan = upwards(dimension);
        if !self.is_upwards {
            plan.reverse();
        }
        plan
    }

    fn absorb(&self, task: &Task<'_>, _: Slice) -> Result<Slice> {
        Ok(task.state.clone())
    }
}

#[test]
fn rounds_with_another_plan_on_a_rank_are_refused() {
    let outcomes = play_group(4, 1, GroupConfig::default(), "", |rank, group| {
        let rounds = Ordered {
            is_upwards: rank == Rank(1),
        };
        group.run_rounds(&rounds, &[1]).map(drop)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 4]);
}

/// A rank that requires more survivors than the others must not leave before they agree.
#[test]
fn other_numbers_of_required_survivors_are_refused_although_a_rank_fails() {
    for step in 1..60 {
        let outcomes = try_play(3, (1, &[crash(2, step)]), |rank, mpi, _| {
            let config = GroupConfig {
                min_survivors: if rank == Rank(0) { 3 } else { 0 },
                ..GroupConfig::default()
            };
            Group::new(transport(mpi), config, services(rank)).map(drop)
        });
        let outcomes = outcomes.expect("no rank waits");
        let expected = [Some(Status::Argument); 2];
        assert_eq!(statuses(&outcomes)[..2], expected, "step {step}");
    }
}

/// A rank that fails before the required number is known is missing too.
#[test]
fn a_group_with_too_few_survivors_is_not_created() {
    for step in 1..60 {
        let outcomes = try_play(3, (1, &[crash(2, step)]), |rank, mpi, _| {
            let config = GroupConfig {
                min_survivors: 3,
                ..GroupConfig::default()
            };
            let group = Group::new(transport(mpi), config, services(rank))?;
            Result::Ok(group.members().survivors().count())
        });
        for outcome in outcomes.expect("no rank waits").into_iter().flatten() {
            match outcome {
                Ok(survivors) => assert_eq!(survivors, 3, "step {step}"),
                Err(error) => assert_eq!(error.status, Status::Excluded, "step {step}"),
            }
        }
    }
}

/// A refused layout has not been agreed on.
#[test]
fn arrays_of_other_types_are_refused_again() {
    let outcomes = play_group(2, 1, GroupConfig::default(), "", |rank, group| {
        for _ in 0..2 {
            let sorted = match rank {
                Rank(1) => group.sort_many(vec![SortInput::of_keys(&[2_u32, 1])]),
                _ => group.sort_many(vec![SortInput::of_keys(&[2_i32, 1])]),
            };
            assert_eq!(refusal(sorted.map(drop))?.status, Status::Argument);
        }
        Ok(())
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Ok); 2]);
}

/// A result without the order of equal keys is not that of a stable sort.
#[test]
fn a_stable_sort_does_not_find_another_result() {
    let world = World::default();
    let outcomes = world.job(2, (1, &[]), |rank, group, _| {
        group.open_states("result")?;
        group
            .sort_stored(SortInput::of_keys(&keys(rank)))
            .map(drop)?;
        let mine = keys(rank);
        let stable = SortInput {
            stable: true,
            ..SortInput::of_keys(&mine)
        };
        Err::<(), _>(refusal(group.sort_stored(stable).map(drop))?)
    });
    assert_eq!(statuses(&outcomes.unwrap()), [Some(Status::Argument); 2]);
}

/// A later job could not tell the order of a comparator without a number from another order.
#[test]
fn a_stored_sort_needs_the_number_of_its_comparator() {
    let compare: fn(&[u8], &[u8]) -> Ordering = |one, other| one.cmp(other);
    for (type_id, expected) in [(0, Status::Argument), (5, Status::Ok)] {
        let layout = Layout::new(Fields {
            record_bytes: 4,
            key: KeyKind::Compare as i32,
            compare: Some(Comparator::new(compare)),
            ..Fields::default()
        });
        let layout = layout.expect("a layout").with_type_id(type_id);
        let outcomes = World::default().job(2, (1, &[]), move |_, group, _| {
            group.open_states("result")?;
            let input = SortInput {
                layout: layout.clone(),
                stable: false,
                records: &[7; 4 * 30],
            };
            group.sort_stored(input).map(drop)
        });
        assert_eq!(statuses(&outcomes.unwrap()), [Some(expected); 2]);
    }
}

/// A result in which the nodes may have different shares is not that of a dense sort.
#[test]
fn a_dense_sort_does_not_find_another_result() {
    let world = World::default();
    let sort = |world: &World| {
        let outcomes = world.job(2, (1, &[]), |rank, group, _| {
            group.open_states("result")?;
            group.sort_stored(SortInput::of_keys(&keys(rank))).map(drop)
        });
        statuses(&outcomes.expect("no hang"))
    };
    assert_eq!(sort(&world), [Some(Status::Ok); 2]);
    let mut dense = world.clone();
    dense.dense = true;
    assert_eq!(sort(&dense), [Some(Status::Argument); 2]);
}

/// A comparator sees the records as they were passed, and not the positions behind them.
#[test]
fn a_comparator_of_whole_slices_keeps_the_order_of_equal_keys() {
    let compare: fn(&[u8], &[u8]) -> Ordering = |one, other| one.cmp(other);
    let layout = Layout::new(Fields {
        record_bytes: 4,
        key: KeyKind::Compare as i32,
        compare: Some(Comparator::new(compare)),
        ..Fields::default()
    });
    let layout = layout.expect("a layout");
    let outcomes = play_group(2, 1, GroupConfig::default(), "", move |_, group| {
        let input = SortInput {
            layout: layout.clone(),
            stable: true,
            records: &[7; 4 * 300],
        };
        let sorted = group.argsort(input)?;
        let positions = sorted.blocks().flat_map(|block| block.records.to_vec());
        Ok(positions.collect::<Vec<u8>>())
    });
    let positions: Vec<u8> = outcomes
        .into_iter()
        .flat_map(|positions| positions.expect("no rank fails").expect("no error"))
        .collect();
    let expected: Vec<u8> = (0..600_u64).flat_map(u64::to_ne_bytes).collect();
    assert!(positions == expected);
}

fn tree_over(links: &[(u32, u32)], detect_ms: u32) -> TreeOptions {
    let links = links.iter().map(|(one, other)| (Rank(*one), Rank(*other)));
    TreeOptions {
        request: TreeRequest {
            sink: Some(Rank(0)),
            links: links.collect(),
            ..TreeRequest::any()
        },
        detect_ms,
        caller_fingerprint: 0,
    }
}

fn numbers(kind: KeyKind, operation: Operation, ordered: bool) -> MergeOperation<'static> {
    MergeOperation::Numbers(Elementwise {
        kind,
        operation,
        ordered,
    })
}

fn merged(layout: Layout, ordered: bool) -> MergeOperation<'static> {
    MergeOperation::Sorted { layout, ordered }
}

/// Merges two contributions to the first of them.
struct First {
    is_ordered: bool,
}

impl MergeOperator for First {
    fn merge(&self, low: &[u8], _: &[u8]) -> Result<Buffer> {
        Buffer::copy_of(low)
    }

    fn is_ordered(&self) -> bool {
        self.is_ordered
    }
}

/// The arguments of one rank, which may differ from those of the others.
type TreeArguments = fn(bool) -> (TreeOptions, MergeOperation<'static>);

const TREES: [TreeArguments; 10] = [
    |other| {
        let links: &[_] = if other { &[(0, 1)] } else { &[] };
        (tree_over(links, 0), MergeOperation::Concatenate)
    },
    |other| {
        let mut options = TreeOptions::default();
        options.request.sink = Some(Rank(u32::from(other)));
        (options, MergeOperation::Concatenate)
    },
    |other| {
        (
            tree_over(&[], u32::from(other)),
            MergeOperation::Concatenate,
        )
    },
    |other| {
        let operation = if other {
            Operation::Greatest
        } else {
            Operation::Sum
        };
        (
            TreeOptions::default(),
            numbers(KeyKind::U8, operation, false),
        )
    },
    |other| {
        let kind = if other { KeyKind::I8 } else { KeyKind::U8 };
        (TreeOptions::default(), numbers(kind, Operation::Sum, false))
    },
    |other| {
        (
            TreeOptions::default(),
            numbers(KeyKind::U8, Operation::Sum, other),
        )
    },
    |other| {
        let unsigned = SortInput::of_keys::<u8>(&[]).layout;
        let signed = SortInput::of_keys::<i8>(&[]).layout;
        let layout = if other { signed } else { unsigned };
        (TreeOptions::default(), merged(layout, false))
    },
    |other| {
        let layout = SortInput::of_keys::<u8>(&[]).layout;
        (TreeOptions::default(), merged(layout, other))
    },
    |other| {
        (
            TreeOptions::default(),
            MergeOperation::Call(Box::new(First { is_ordered: other })),
        )
    },
    |other| match other {
        true => (
            TreeOptions::default(),
            numbers(KeyKind::U8, Operation::Sum, false),
        ),
        false => (TreeOptions::default(), MergeOperation::Concatenate),
    },
];

#[test]
fn trees_with_other_arguments_on_a_rank_are_refused() {
    for (index, arguments) in TREES.into_iter().enumerate() {
        let outcomes = play_group(3, 1, GroupConfig::default(), "", move |rank, group| {
            let (options, operation) = arguments(rank == Rank(1));
            let merged = group.tree_merge(TreeMerge {
                options,
                operation,
                contribution: &[1],
            });
            merged.map(drop)
        });
        assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3], "{index}");
    }
}

/// Links that the caller names are an argument, also if links are tested besides.
#[test]
fn links_of_the_caller_that_leave_no_path_are_a_wrong_argument() {
    for detect_ms in [0, 1000] {
        let outcomes = play_group(3, 1, GroupConfig::default(), "", move |_, group| {
            let merged = group.tree_merge(TreeMerge {
                options: tree_over(&[(0, 1), (0, 2)], detect_ms),
                operation: MergeOperation::Concatenate,
                contribution: &[1],
            });
            merged.map(drop)
        });
        assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
    }
}

/// An idle spare is outside of the tree, and gets the bytes of a broadcast over a link that works.
#[test]
fn a_broadcast_reaches_a_spare_over_links_that_work() {
    let config = GroupConfig {
        spares: 1,
        ..GroupConfig::default()
    };
    let outcomes = play_group(3, 1, config, "", |rank, group| {
        let own = [rank.0 as u8; 3];
        let bytes = group.tree_broadcast(tree_over(&[(0, 2)], 0), Rank(0), &own)?;
        assert_eq!(bytes.to_vec(), [0; 3]);
        // A pair counts in both directions.
        let all = tree_over(&[(2, 0), (2, 1)], 0);
        Err::<(), _>(refusal(group.tree_broadcast(all, Rank(0), &own).map(drop))?)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
}

//! Tests one traversal with all nodes in one process: the data that a node merges, divides and sends.

use super::*;
use crate::tree::faults::Faults;
use crate::tree::fold::{Elementwise, Operation, Sorted};
use crate::tree::plan::{MessagePurpose, Remedy, TreePlan};
use crate::tree::schedule::{LinkModel, Ports, StageStart};
use crate::tree::shape::Tree;
use crate::tree::testing::{cases, figure_14};
use ftsort_kernels::error::Status;
use ftsort_kernels::kernel::kernel_of;
use ftsort_kernels::record::KeyKind;
use proptest::prelude::*;

const SUM: Elementwise = Elementwise {
    kind: KeyKind::I32,
    operation: Operation::Sum,
    ordered: false,
};

fn slice(numbers: &[i32]) -> Slice {
    Buffer::copy_of(bytemuck::cast_slice(numbers))
        .unwrap()
        .into()
}

fn numbers(data: &[u8]) -> Vec<i32> {
    bytemuck::pod_collect_to_vec(data)
}

/// Runs a plan for all nodes in one process. Returns the result at the sink, and the largest number of segments of
/// a message.
fn run(
    plan: &TreePlan,
    merge: &dyn MergeOperator,
    list_of: &dyn Fn(Node) -> Vec<i32>,
) -> (Vec<i32>, usize) {
    let machine = LinkModel::new(Ports::One, StageStart::PerNode);
    let schedule = TreeSchedule::new(plan, machine);
    let mut node_data = NodeData::new(merge, false).divided();
    for node in plan.contributors().iter() {
        node_data.contribute(node, slice(&list_of(node)));
    }
    let mut most = 0;
    for step in schedule.steps() {
        let blocks: Vec<Option<Block>> = step.iter().map(|hop| node_data.take(hop)).collect();
        for (hop, block) in step.iter().zip(blocks) {
            let block = block.expect("no error");
            most = most.max(block.runs.len());
            node_data.keep(hop, block);
        }
    }
    assert!(most <= node_data.most_segments(1 << plan.tree().dimensions()));
    assert!(node_data.is_complete(), "{:?}", node_data.error);
    let result = node_data.result(plan.tree().sink()).expect("a result");
    (numbers(&result), most)
}

fn planned(tree: &Tree, faults: &Faults) -> TreePlan {
    let all = faults.connected(tree.sink());
    TreePlan::new(tree, faults, &all, Remedy::Partition).expect("connected")
}

#[test]
fn ranges_of_an_array_are_merged_in_their_places() {
    let part = |first: u64, data: &[i32]| Segment {
        first,
        span: 9,
        data: slice(data),
    };
    let joined = |segments: &[Segment]| -> Vec<(u64, Vec<i32>)> {
        let joined = join_in_place(segments, 4, &SUM).expect("the same array");
        joined
            .iter()
            .map(|one| (one.first, numbers(&one.data)))
            .collect()
    };
    assert_eq!(joined(&[]), []);
    let apart = [part(5, &[50, 60]), part(1, &[10, 20])];
    assert_eq!(joined(&apart), [(1, vec![10, 20]), (5, vec![50, 60])]);
    let overlapping = [part(0, &[1, 2, 3]), part(2, &[10, 20]), part(4, &[7])];
    assert_eq!(joined(&overlapping), [(0, vec![1, 2, 13, 20, 7])]);
    let longer = Segment {
        span: 8,
        ..part(0, &[1])
    };
    let error = join_in_place(&[part(0, &[1]), longer], 4, &SUM).unwrap_err();
    assert_eq!(error.status, Status::Argument);
}

/// Example 3: node 1011 sends one half to each of two neighbours.
#[test]
fn example_3_divides_an_array_and_a_list() {
    let plan = planned(&Tree::simple(4), &figure_14());
    assert_eq!(plan.count(MessagePurpose::Delegated), 2);
    let (sums, _) = run(&plan, &SUM, &|node| vec![node.0 as i32, 1, 2, 3, 4]);
    assert_eq!(sums, [120, 16, 32, 48, 64]);
    let kernel = kernel_of(4, KeyKind::I32);
    let sorted = Sorted {
        kernel: &*kernel,
        ordered: false,
    };
    let (list, _) = run(&plan, &sorted, &|node| {
        vec![node.0 as i32, 100 + node.0 as i32]
    });
    assert_eq!(list, (0..16).chain(100..116).collect::<Vec<i32>>());
}

proptest! {
    /// Every datum arrives once, for any faults, and lists and arrays of any length.
    #[test]
    fn divided_data_arrive_once((faults, tree) in cases(0..=5), length in 0_usize..9, lists in any::<u64>()) {
        let plan = planned(&tree, &faults);
        // A faulty sink has no data, and no other node reaches it.
        prop_assume!(!plan.contributors().is_empty());
        let number = |node: Node, index: usize| (node.0 as i32 * 31 + index as i32 * 7) % 101;
        let array = |node: Node| (0..length).map(|index| number(node, index)).collect::<Vec<i32>>();
        let (sums, _) = run(&plan, &SUM, &array);
        let expected = (0..length).map(|index| plan.contributors().iter().map(|node| number(node, index)).sum());
        prop_assert_eq!(sums, expected.collect::<Vec<i32>>());
        let kernel = kernel_of(4, KeyKind::I32);
        let sorted = Sorted { kernel: &*kernel, ordered: false };
        let list = |node: Node| {
            let mut list: Vec<i32> = (0..(lists >> (node.0 % 60) & 7) as usize).map(|at| number(node, at)).collect();
            list.sort_unstable();
            list
        };
        let (merged, _) = run(&plan, &sorted, &list);
        let mut expected: Vec<i32> = plan.contributors().iter().flat_map(list).collect();
        expected.sort_unstable();
        prop_assert_eq!(merged, expected);
    }
}

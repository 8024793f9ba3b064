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

/// Floating-point numbers, of which another order gives another sum.
#[test]
fn ordered_sums_are_computed_in_the_order_of_nodes() {
    let number = |node: Node| [1e8_f32, 1.0, -1e8, 1.0][node.0 as usize % 4];
    let ordered = Elementwise {
        kind: KeyKind::F32,
        ordered: true,
        ..SUM
    };
    // The neighbours along dimension 2 are not adjacent, so that their contributions stay apart.
    let tree = Tree::new(Node(0), vec![2, 1, 0]).expect("a tree");
    let plan = planned(&tree, &Faults::none(3));
    let (sums, most) = run(&plan, &ordered, &|node| vec![number(node).to_bits() as i32]);
    assert_eq!((f32::from_bits(sums[0] as u32), most), (1.0, 4));
}

/// Returns the numbers that both contributions have, of which there may be none.
struct Common;

impl MergeOperator for Common {
    fn merge(&self, low: &[u8], high: &[u8]) -> Result<Buffer> {
        assert!(!low.is_empty() && !high.is_empty());
        let (mut common, high) = (numbers(low), numbers(high));
        common.retain(|number| high.contains(number));
        Buffer::copy_of(bytemuck::cast_slice(&common))
    }

    fn is_ordered(&self) -> bool {
        true
    }
}

#[test]
fn an_empty_result_of_a_merge_is_not_merged() {
    // The merge for the sink has no result, and lies before or after the other one.
    for sink in [Node(0), Node(3)] {
        let tree = Tree::new(sink, vec![0, 1]).expect("a tree");
        let plan = planned(&tree, &Faults::none(2));
        let list_of = |node: Node| match node.0 ^ sink.0 {
            apart @ (0 | 1) => vec![apart as i32],
            _ => vec![7],
        };
        assert_eq!(run(&plan, &Common, &list_of).0, [7]);
    }
}

#[test]
fn a_traversal_that_starts_again_sends_no_parts_of_the_one_before() {
    let mut node_data = NodeData::new(&SUM, false).divided();
    let hop = |index| LinkMessage {
        message: 0,
        from: Node(1),
        to: Node(0),
        fraction: Some(Fraction { index, of: 2 }),
        delivered: true,
    };
    node_data.contribute(Node(1), slice(&[1, 2]));
    node_data.take(&hop(0)).expect("the first part");
    node_data.restart();
    node_data.contribute(Node(1), slice(&[5, 6]));
    let mut part = |index| node_data.take(&hop(index)).expect("a part").into_records();
    assert_eq!((numbers(&part(0)), numbers(&part(1))), (vec![5], vec![6]));
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

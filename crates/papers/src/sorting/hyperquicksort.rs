//! Algorithm 1 of the 2024 paper (HyperQuickSort) as printed and corrected, with failures, and the messages of its
//! Algorithm 2 (QuickMerge).
//!
//! Must never: correct an error of the paper, except by a field of [`Reading`].

use std::collections::BTreeMap;

use ftsort_core::vcube::{Node, NodeSet, VCube};

use super::Lists;

/// The parts of Algorithm 1 that are read as printed (false) or corrected (true).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// A committed round replaces L_k. As printed line 9 takes L_k in each round, and no line assigns it.
    pub keeps_lists: bool,
    /// An executor that runs both nodes of a pair exchanges their lists with itself. As printed a node without a
    /// fault-free node in c(k,d) has no partner and keeps its list, and a node with its own executor as partner
    /// receives its own message.
    pub exchanges_with_itself: bool,
    /// Line 28 sorts the lists of all nodes that a rank executes. As printed it follows the loop over k, and sorts
    /// the last list.
    pub sorts_all_lists: bool,
}

impl Reading {
    /// Algorithm 1 to the letter.
    pub const PRINTED: Reading = Reading {
        keeps_lists: false,
        exchanges_with_itself: false,
        sorts_all_lists: false,
    };

    /// Algorithm 1 with all corrections.
    pub const CORRECTED: Reading = Reading {
        keeps_lists: true,
        exchanges_with_itself: true,
        sorts_all_lists: true,
    };
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The list of each node at the end.
    pub lists: Lists,
    /// The number of times that the body of the loop of line 3 was run.
    pub executions: u32,
}

/// Runs Algorithm 1. `failing[e]` are the nodes that fail during execution e of the loop's body, counted from 0. At
/// least one node never fails.
pub fn hyperquicksort(inputs: &Lists, failing: &[&[u32]], reading: Reading) -> Outcome {
    let cube = VCube::for_ranks(inputs.len());
    let mut faulty = NodeSet::new(cube.len());
    let (mut stored, mut lists) = (inputs.clone(), inputs.clone());
    let (mut d, mut executions) = (cube.dimension(), 0);
    while d > 0 {
        lists = round(&cube, &stored, d - 1, &faulty, reading);
        let failed = failing.get(executions as usize).copied().unwrap_or(&[]);
        for node in failed {
            faulty.insert(Node(*node));
        }
        executions += 1;
        // Lines 25 to 27: F = F', or the round is run again.
        if failed.is_empty() {
            d -= 1;
            if reading.keeps_lists {
                stored = lists.clone();
            }
        }
    }
    sort_at_the_end(&cube, &mut lists, &faulty, reading);
    Outcome { lists, executions }
}

/// Line 28.
fn sort_at_the_end(cube: &VCube, lists: &mut Lists, faulty: &NodeSet, reading: Reading) {
    let executors: Vec<Option<Node>> = cube.nodes().map(|k| cube.executor(k, faulty)).collect();
    for (index, list) in lists.iter_mut().enumerate() {
        let is_last = !executors[index + 1..].contains(&executors[index]);
        if reading.sorts_all_lists || is_last {
            list.sort_unstable();
        }
    }
}

/// Lines 8 to 24 for all nodes, in dimension s (counted from 0).
fn round(cube: &VCube, stored: &Lists, s: u32, faulty: &NodeSet, reading: Reading) -> Lists {
    let mut sorted = stored.clone();
    sorted.iter_mut().for_each(|list| list.sort_unstable());
    let split = |k: Node| {
        let list = &sorted[k.0 as usize];
        // Lines 11 to 15.
        let fault_free = cube.subcube(k, s + 1).find(|node| !faulty.contains(*node));
        let root = match fault_free {
            None if reading.exchanges_with_itself => cube.subcube(k, s + 1).next(),
            root => root,
        };
        let keys = root.map_or(&[][..], |root| &sorted[root.0 as usize]);
        // The list of the root may be empty; then all keys are in the lower list.
        let pivot = keys.get(keys.len() / 2).copied().unwrap_or(i32::MAX);
        list.split_at(list.partition_point(|key| *key <= pivot))
    };
    let joined = cube.nodes().map(|k| {
        let other = cube.neighbour(k, s);
        let executor = cube.executor(k, faulty);
        let partner = cube.partner(k, s, faulty);
        let exchanges = reading.exchanges_with_itself || (partner.is_some() && partner != executor);
        if !exchanges {
            return sorted[k.0 as usize].clone();
        }
        // Lines 17 to 24. The partner executes the node across and sends the list of that node.
        if k.0 >> s & 1 == 1 {
            [split(k).1, split(other).1].concat()
        } else {
            [split(k).0, split(other).0].concat()
        }
    });
    joined.collect()
}

/// The index in lines 18, 21 and 25 of Algorithm 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuickMergeIndex {
    /// i, the rank, as printed.
    Rank,
    /// k, the node that the rank executes, as in Algorithm 1.
    Node,
}

/// Returns the ranks that wait for a message which no rank sends, with the rank from which they expect it, in one round
/// of Algorithm 2 in dimension s (counted from 0).
pub fn quickmerge_waits(
    cube: &VCube,
    s: u32,
    faulty: &NodeSet,
    index: QuickMergeIndex,
) -> Vec<(Node, Node)> {
    // The number of messages that are sent, less those that are received, by sender and receiver.
    let mut balance: BTreeMap<(Node, Node), i32> = BTreeMap::new();
    for k in cube.nodes() {
        let Some(rank) = cube.executor(k, faulty) else {
            continue;
        };
        let of = match index {
            QuickMergeIndex::Rank => rank,
            QuickMergeIndex::Node => k,
        };
        if let Some(partner) = cube.partner(of, s, faulty).filter(|node| *node != rank) {
            *balance.entry((rank, partner)).or_default() += 1;
            *balance.entry((partner, rank)).or_default() -= 1;
        }
    }
    let missing = balance.into_iter().filter(|(_, rest)| *rest < 0);
    missing.map(|((from, to), _)| (to, from)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{draw, is_sorted};
    use super::*;

    fn all_keys(lists: &Lists) -> Vec<i32> {
        let mut keys = lists.concat();
        keys.sort_unstable();
        keys
    }

    fn sorts(inputs: &Lists, failing: &[&[u32]], reading: Reading) -> bool {
        let outcome = hyperquicksort(inputs, failing, reading);
        assert_eq!(all_keys(&outcome.lists), all_keys(inputs));
        is_sorted(&outcome.lists)
    }

    #[test]
    fn algorithm_1_corrected_sorts_after_every_set_of_failures_in_every_round() {
        let inputs = draw(8, 20, 1);
        for mask in 0..255_u32 {
            let failed: Vec<u32> = (0..8).filter(|node| mask >> node & 1 == 1).collect();
            for execution in 0..3 {
                let mut failing: Vec<&[u32]> = vec![&[]; execution];
                failing.push(&failed);
                assert!(sorts(&inputs, &failing, Reading::CORRECTED), "{failing:?}");
            }
        }
    }

    /// Line 9 loads the list with which the program began.
    #[test]
    fn algorithm_1_as_printed_forgets_all_rounds_but_the_last() {
        let printed = Reading {
            keeps_lists: false,
            ..Reading::CORRECTED
        };
        assert!(sorts(&draw(2, 20, 2), &[], printed));
        assert!(!sorts(&draw(4, 20, 2), &[], printed));
        assert!(!sorts(&draw(4, 20, 2), &[], Reading::PRINTED));
        // The last round is that of dimension 0 on the inputs: the upper half has got nothing from the lower.
        let inputs = vec![vec![8], vec![7], vec![2], vec![1]];
        let outcome = hyperquicksort(&inputs, &[], printed);
        assert_eq!(all_keys(&outcome.lists[..2].to_vec()), [7, 8]);
    }

    /// Theorem 1's own case: all nodes of one half have failed.
    #[test]
    fn algorithm_1_as_printed_does_not_sort_if_a_whole_half_has_failed() {
        let printed = Reading {
            exchanges_with_itself: false,
            ..Reading::CORRECTED
        };
        let inputs = draw(8, 20, 3);
        assert!(sorts(&inputs, &[], printed));
        for half in [[0, 1, 2, 3], [4, 5, 6, 7]] {
            assert!(!sorts(&inputs, &[&half], printed));
            assert!(sorts(&inputs, &[&half], Reading::CORRECTED));
        }
        // The basis of the induction, two nodes: the survivor has both lists, and does not exchange them.
        let outcome = hyperquicksort(&vec![vec![2, 4], vec![1, 3]], &[&[1]], printed);
        assert_eq!(outcome.lists, [vec![2, 4], vec![1, 3]]);
    }

    /// In the round of dimension 0 a half is a single node, so one failure is enough. After log N rounds it is too
    /// late to do harm.
    #[test]
    fn algorithm_1_as_printed_does_not_sort_after_any_single_failure() {
        let printed = Reading {
            exchanges_with_itself: false,
            ..Reading::CORRECTED
        };
        let inputs = draw(8, 20, 4);
        for node in 0..8 {
            for execution in 0..3 {
                let mut failing: Vec<&[u32]> = vec![&[]; execution];
                let failed = [node];
                failing.push(&failed);
                assert!(!sorts(&inputs, &failing, printed), "{failing:?}");
            }
        }
    }

    #[test]
    fn line_28_as_printed_leaves_lists_of_covered_nodes_unsorted() {
        let printed = Reading {
            sorts_all_lists: false,
            ..Reading::CORRECTED
        };
        let inputs = draw(4, 20, 5);
        assert!(sorts(&inputs, &[], printed));
        assert!(!sorts(&inputs, &[&[1]], printed));
    }

    /// Theorem 1 says log N rounds. A round in which a node fails is run again, so up to N - 1 more are executed.
    #[test]
    fn each_failure_can_cost_one_more_round() {
        let inputs = draw(8, 20, 6);
        let one_by_one: [&[u32]; 7] = [&[0], &[1], &[2], &[3], &[4], &[5], &[6]];
        let run = |failing: &[&[u32]]| hyperquicksort(&inputs, failing, Reading::CORRECTED);
        assert_eq!(run(&[]).executions, 3);
        assert_eq!(run(&one_by_one).executions, 3 + 7);
        assert_eq!(run(&[&[0, 1, 2, 3, 4, 5, 6]]).executions, 3 + 1);
        assert!(is_sorted(&run(&one_by_one).lists));
    }

    /// Rank 0 executes node 1, and sends both messages to rank 2; rank 3 waits for the one of node 1.
    #[test]
    fn algorithm_2_as_printed_waits_after_a_failure() {
        let cube = VCube::for_ranks(4);
        let mut faulty = NodeSet::new(4);
        let waits = |faulty: &NodeSet, index| quickmerge_waits(&cube, 1, faulty, index);
        assert_eq!(waits(&faulty, QuickMergeIndex::Rank), []);
        faulty.insert(Node(1));
        let expected = [(Node(3), Node(0)), (Node(0), Node(2))];
        assert_eq!(waits(&faulty, QuickMergeIndex::Rank), expected);
        assert_eq!(waits(&faulty, QuickMergeIndex::Node), []);
    }
}

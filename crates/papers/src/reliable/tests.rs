//! Compares the cost formulas with runs, and counts missed faults within and beyond the bound.

use super::ExchangeOrder;
use super::*;
use ftsort_core::vcube::Node;
use ftsort_kernels::kernel::{kernel_for, kernel_of};
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::{Comparator, Fields, KeyKind, Layout};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};

fn kernel() -> Box<dyn Kernel> {
    kernel_of(4, KeyKind::U32)
}

/// Returns a kernel that counts its comparisons.
fn counting() -> (Box<dyn Kernel>, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counter = count.clone();
    let order = move |one: &[u8], other: &[u8]| {
        counter.fetch_add(1, Atomic::Relaxed);
        one.iter().rev().cmp(other.iter().rev())
    };
    let fields = Fields {
        record_bytes: 4,
        key: KeyKind::Compare as i32,
        compare: Some(Comparator::new(order)),
        ..Fields::default()
    };
    (kernel_for(&Layout::new(fields).unwrap(), 1), count)
}

fn inputs(dimension: u32, block: usize, seed: u64) -> Vec<SortedRecords> {
    let mut random = SplitMix::new(seed);
    let blocks = (0..1 << dimension).map(|_| {
        let mut keys: Vec<u32> = (0..block).map(|_| random.bits() as u32).collect();
        keys.sort_unstable();
        keys.iter().flat_map(|key| key.to_le_bytes()).collect()
    });
    blocks.collect()
}

const VARIANTS: [(ConsistencyRule, ExchangeOrder); 4] = [
    (ConsistencyRule::Paper, ExchangeOrder::Sequential),
    (ConsistencyRule::Paper, ExchangeOrder::Simultaneous),
    (ConsistencyRule::Repeated, ExchangeOrder::Sequential),
    (ConsistencyRule::Repeated, ExchangeOrder::Simultaneous),
];

#[test]
fn the_formulas_equal_the_counts_of_a_run() {
    for (rule, order) in VARIANTS {
        for (dimension, block) in [(1, 1), (2, 3), (3, 1), (4, 8), (5, 2)] {
            let (kernel, count) = counting();
            let setup = ReliableSetup {
                kernel: &*kernel,
                dimension,
                longest: block,
                rule,
                order,
                predicates: Predicates::ALL,
            };
            let nodes = 1 << dimension;
            let byzantine_nodes = (0..nodes).map(|_| None).collect();
            let outcome = run_sft(
                &setup,
                &inputs(dimension, block, 1),
                byzantine_nodes,
                Vec::new(),
            );
            assert_eq!(outcome.violation, None);
            let cost = cost(
                SortMethod::Reliable {
                    rule,
                    order,
                    whole: false,
                },
                dimension,
                block,
            );
            assert_eq!(
                outcome.messages as f64, cost.messages,
                "{rule:?} {order:?} {dimension}"
            );
            assert_eq!(
                outcome.bytes as f64,
                4.0 * cost.records,
                "{rule:?} {order:?} {dimension}"
            );
            // The formula bounds the work of one chain. All nodes together do at most as much as
            // equally many chains, and not much less. The model's own check of every received block
            // is included in the count only.
            let counted = count.load(Atomic::Relaxed) as f64;
            assert!(counted <= 4.0 * nodes as f64 * cost.chain_work, "{counted}");
            assert!(
                counted >= 0.25 * nodes as f64 * cost.chain_work - 8.0,
                "{counted}"
            );
        }
    }
}

#[test]
fn the_papers_sort_sends_further_messages_only_in_the_last_stage() {
    for dimension in 1..=10 {
        let plain = cost(SortMethod::Plain, dimension, 1);
        for (name, method) in SortMethod::ALL {
            let cost = cost(method, dimension, 1);
            let last = f64::from(dimension << dimension);
            match method {
                SortMethod::Reliable { .. } => {
                    assert_eq!(cost.messages, plain.messages + last, "{name}")
                }
                SortMethod::Host => assert_eq!(cost.messages, f64::from(2 << dimension)),
                _ => assert!(cost.messages >= plain.messages),
            }
        }
    }
}

fn trials(
    kernel: &dyn Kernel,
    dimension: u32,
    rule: ConsistencyRule,
    order: ExchangeOrder,
    byzantine_nodes: usize,
) -> ByzantineTrials<'_> {
    ByzantineTrials {
        kernel,
        dimension,
        longest: 1,
        rule,
        order,
        byzantine_nodes,
        in_links: false,
        predicates: Predicates::ALL,
        anywhere: false,
    }
}

fn table(trials: &ByzantineTrials<'_>, seeds: u64) -> Vec<TrialCounts> {
    let mut counts = vec![TrialCounts::default(); ByzantineFault::ALL.len()];
    for seed in 0..seeds {
        let (fault, row) = run_trial(trials, seed);
        counts[fault as usize] += row;
    }
    counts
}

#[test]
fn runs_without_byzantine_nodes_report_no_violation() {
    let kernel = kernel();
    for (rule, order) in VARIANTS {
        for dimension in 1..=4 {
            let counts = table(&trials(&*kernel, dimension, rule, order, 0), 300);
            assert!(counts.iter().all(|row| row.harmless == row.injected));
        }
    }
}

#[test]
fn the_repeated_rule_misses_no_fault_within_its_bound() {
    let kernel = kernel();
    for order in [ExchangeOrder::Sequential, ExchangeOrder::Simultaneous] {
        for dimension in 2..=4 {
            for byzantine_nodes in 1..dimension {
                let trials = trials(
                    &*kernel,
                    dimension,
                    ConsistencyRule::Repeated,
                    order,
                    byzantine_nodes as usize,
                );
                for (fault, row) in ByzantineFault::ALL.iter().zip(table(&trials, 4000)) {
                    assert_eq!(row.missed, 0, "{fault:?} {trials:?}");
                    assert_eq!(row.detected + row.harmless, row.injected);
                    assert!(row.detected > 0, "{fault:?} is never detected: {trials:?}");
                }
            }
        }
    }
}

#[test]
fn the_papers_rule_misses_split_views_and_faults_beyond_the_bound_are_missed() {
    let kernel = kernel();
    let trials = trials(
        &*kernel,
        3,
        ConsistencyRule::Paper,
        ExchangeOrder::Sequential,
        1,
    );
    let counts = table(&trials, 4000);
    assert!(counts[ByzantineFault::SplitView as usize].missed > 0);
    let beyond = ByzantineTrials {
        rule: ConsistencyRule::Repeated,
        byzantine_nodes: 2,
        anywhere: true,
        ..trials
    };
    let missed: u64 = table(&beyond, 20_000).iter().map(|row| row.missed).sum();
    assert!(missed > 0);
}

/// The counterexample of docs/reliable.md, in Figure 3's order: the upper node of a pair sends first, and the
/// lower node divides the records and answers with the blocks that it knows.
#[test]
fn one_faulty_node_passes_the_papers_rule_in_the_order_of_figure_3() {
    let kernel = kernel();
    let record = |key: u32| key.to_le_bytes().to_vec();
    let inputs: Vec<SortedRecords> = [5, 20, 9, 7].map(|key| record(key).into()).to_vec();
    for (rule, is_found) in [
        (ConsistencyRule::Paper, false),
        (ConsistencyRule::Repeated, true),
    ] {
        let setup = ReliableSetup {
            kernel: &*kernel,
            dimension: 2,
            longest: 1,
            rule,
            order: ExchangeOrder::Sequential,
            predicates: Predicates::ALL,
        };
        // Node 1 shows its key 20 to node 0, and 21 to nodes 2 and 3.
        let split_view = SplitView {
            true_record: record(20),
            forged_record: record(21),
            sees_true: vec![true, true, false, false],
        };
        let byzantine = ByzantineNode::new(ByzantineFault::SplitView, Node(1), 1, split_view, 1);
        let nodes = vec![None, Some(byzantine), None, None];
        let outcome = run_sft(&setup, &inputs, nodes, Vec::new());
        assert!(outcome.deviated);
        assert_eq!(outcome.violation.is_some(), is_found, "{rule:?}");
        if !is_found {
            let keys: Vec<u8> = outcome.blocks.iter().map(|block| block[0]).collect();
            assert_eq!(keys, [5, 7, 9, 21], "20 is lost");
        }
    }
}

/// Definition 3, case 2: one link of a node is faulty, or several. The node counts as faulty, and the theorem
/// holds.
#[test]
fn faulty_links_count_as_their_declared_ends() {
    let kernel = kernel();
    for order in [ExchangeOrder::Sequential, ExchangeOrder::Simultaneous] {
        for dimension in 2..=4 {
            for declared in 1..dimension {
                let repeated = ConsistencyRule::Repeated;
                let trials = ByzantineTrials {
                    in_links: true,
                    ..trials(&*kernel, dimension, repeated, order, declared as usize)
                };
                let counts = table(&trials, 3000);
                for fault in ByzantineFault::OF_LINKS {
                    let row = counts[fault as usize];
                    assert_eq!(row.missed, 0, "{fault:?} {trials:?}");
                    assert!(row.detected > 0, "{fault:?} is never detected: {trials:?}");
                }
            }
        }
    }
}

/// Each predicate finds faults that the other two together miss, so none of them can be left out; and each alone
/// misses faults.
#[test]
fn each_predicate_is_needed_and_none_is_enough() {
    let kernel = kernel();
    let [progress, feasibility, consistency] = [0, 1, 2].map(|only| Predicates {
        progress: only == 0,
        feasibility: only == 1,
        consistency: only == 2,
    });
    let without = |alone: Predicates| Predicates {
        progress: !alone.progress,
        feasibility: !alone.feasibility,
        consistency: !alone.consistency,
    };
    let counts = |predicates| {
        let trials = ByzantineTrials {
            predicates,
            ..trials(
                &*kernel,
                3,
                ConsistencyRule::Repeated,
                ExchangeOrder::Simultaneous,
                2,
            )
        };
        let rows = table(&trials, 6000);
        let sum = |count: fn(&TrialCounts) -> u64| rows.iter().map(count).sum::<u64>();
        (sum(|row| row.detected), sum(|row| row.missed))
    };
    assert_eq!(counts(Predicates::ALL).1, 0);
    for alone in [progress, feasibility, consistency] {
        let (found, missed) = counts(alone);
        assert!(found > 0 && missed > 0, "{alone:?}: {found}, {missed}");
        let (_, missed) = counts(without(alone));
        assert!(missed > 0, "nothing is missed without {alone:?}");
    }
}

proptest! {
    #[test]
    fn the_bound_is_counted_in_every_subcube(faulty in prop::collection::vec(any::<bool>(), 16)) {
        let kernel = kernel();
        let trials = trials(&*kernel, 4, ConsistencyRule::Repeated, ExchangeOrder::Simultaneous, 0);
        let count = |node: u32, dimension: u32| {
            let faulty = (0..16_u32).zip(&faulty);
            faulty.filter(|(at, faulty)| **faulty && at >> dimension == node >> dimension).count()
        };
        let mut nodes = 0..16;
        let is_within = nodes.all(|node| (2..=4).all(|dimension| count(node, dimension) < dimension as usize));
        prop_assert_eq!(trials.is_within_bound(&faulty), is_within);
    }

    #[test]
    fn a_trial_depends_on_its_seed_alone(seed: u64, dimension in 2_u32..4) {
        let kernel = kernel();
        let trials = trials(&*kernel, dimension, ConsistencyRule::Repeated, ExchangeOrder::Sequential, 1);
        prop_assert_eq!(run_trial(&trials, seed), run_trial(&trials, seed));
    }
}

#[test]
fn the_sender_of_a_missing_message_is_the_first_suspect() {
    let kernel = kernel();
    let setup = ReliableSetup {
        kernel: &*kernel,
        dimension: 2,
        longest: 1,
        rule: ConsistencyRule::Paper,
        order: ExchangeOrder::Simultaneous,
        predicates: Predicates::ALL,
    };
    let split_view = SplitView {
        true_record: vec![0; 4],
        forged_record: vec![0; 4],
        sees_true: vec![false; 4],
    };
    let byzantine = ByzantineNode::new(ByzantineFault::Omission, Node(3), 1, split_view, 1);
    let outcome = run_sft(
        &setup,
        &inputs(2, 1, 1),
        vec![None, None, None, Some(byzantine)],
        Vec::new(),
    );
    let violation = outcome.violation.expect("the missing message is detected");
    assert_eq!(
        (violation.predicate, violation.prime_suspect()),
        (Predicate::Absence, Some(Node(3)))
    );
    assert!(outcome.deviated);
}

//! Lemmas 7 to 9 and Theorem 4 of the 1989 paper, by counts of the steps of its procedures (Figures 4a to 4c). Must
//! never: decide whether a sequence is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ExchangeOrder, SortMethod, cost};
use ftsort_core::vcube::Node;
use ftsort_core::verify::mask::SftRound;
use ftsort_core::verify::peer_view::ConsistencyRule;
use ftsort_core::verify::predicates::{KeyOrder, MonotoneRange};
use ftsort_core::verify::sequence::Sequence;
use ftsort_kernels::kernel::kernel_for;
use ftsort_kernels::record::{Comparator, Fields, KeyKind, Layout};

/// Returns the number of calls of vect_mask(i, j) in Figure 4c, and the number of nodes in its result. As printed apart
/// from d, which is 2^j.
fn vect_mask(i: u32, j: u32, node: u32) -> (u64, Vec<u32>) {
    let other = node ^ 1 << j;
    if j == i {
        return (1, vec![node, other]);
    }
    let (calls, mut mask) = vect_mask(i, j + 1, other);
    let (more, nodes) = vect_mask(i, j + 1, node);
    mask.extend(nodes);
    (1 + calls + more, mask)
}

fn round(i: u32, j: u32) -> SftRound {
    SftRound {
        stage: i,
        step: j,
        is_last: false,
    }
}

/// Lemma 7: O(2^(i-j)).
#[test]
fn vect_mask_is_called_fewer_than_two_times_two_to_the_i_minus_j() {
    for i in 0..12 {
        for j in 0..=i {
            let (calls, mask) = vect_mask(i, j, 0);
            assert_eq!(calls, (2 << (i - j)) - 1);
            assert_eq!(mask.len(), 2 << (i - j));
            // ftsort's closed form has the same nodes, and no recursion.
            assert_eq!(round(i, j).mask(Node(0)).count(), mask.len());
        }
    }
}

/// Lemma 8: the three passes of bit_compare take less than 3 * 2^i steps, since Phi_F reads one half of LBS.
#[test]
fn bit_compare_takes_fewer_than_three_times_two_to_the_i_steps() {
    for i in 1..12 {
        let half = 1_u64 << i;
        let rising: Vec<u64> = (0..half).map(|at| 2 * at).collect();
        let falling: Vec<u64> = (0..half).rev().map(|at| 2 * at + 1).collect();
        let (mut steps, mut errors) = (0, 0);
        // Figure 4a, corrected: neighbours within each half.
        for pair in rising.windows(2) {
            steps += 1;
            errors += u64::from(pair[1] < pair[0]);
        }
        for pair in falling.windows(2) {
            steps += 1;
            errors += u64::from(pair[1] > pair[0]);
        }
        // Figure 4b, corrected: the own half is merged from both halves of LLBS.
        let lower = rising.iter().step_by(2);
        let upper = rising.iter().skip(1).step_by(2).rev();
        let before: Vec<u64> = lower.chain(upper).copied().collect();
        let (mut l, mut u) = (0, before.len());
        for key in &rising {
            steps += 1;
            if l < before.len() / 2 && before[l] == *key {
                l += 1;
            } else if u > before.len() / 2 && before[u - 1] == *key {
                u -= 1;
            } else {
                errors += 1;
            }
        }
        assert_eq!((errors, l, u), (0, before.len() / 2, before.len() / 2));
        assert_eq!(steps, 3 * half - 2);
    }
}

/// Returns the comparisons of ftsort's progress and feasibility, with one key in each of 2^i nodes.
fn comparisons(i: u32) -> [u64; 2] {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let layout = Layout::new(Fields {
        record_bytes: 4,
        key: KeyKind::Compare as i32,
        compare: Some(Comparator::new(move |one, other| {
            counted.fetch_add(1, Ordering::Relaxed);
            one.cmp(other)
        })),
        ..Fields::default()
    });
    let kernel = kernel_for(&layout.expect("a valid layout"), 1);
    let order = KeyOrder {
        kernel: &*kernel,
        longest: 1,
    };
    let nodes = 1_u32 << i;
    let sequence = |key: &dyn Fn(u32) -> u32| {
        let mut sequence = Sequence::new(i, Node(0), Vec::new());
        for node in 0..nodes {
            sequence.set_block(Node(node), Some(key(node).to_be_bytes().to_vec()));
        }
        sequence
    };
    let sorted = sequence(&|node| node);
    let half = nodes / 2;
    let bitonic = sequence(&|node| match node < half {
        true => 2 * node,
        false => 2 * (nodes - node) - 1,
    });
    let halves = MonotoneRange::halves(Node(0), i);
    for range in &halves {
        assert_eq!(order.progress(&bitonic, range), Ok(()));
    }
    let progress = calls.swap(0, Ordering::Relaxed);
    let whole = MonotoneRange::sorted(Node(0), i);
    assert_eq!(
        order.feasibility(&bitonic, &halves, &sorted, &whole),
        Ok(())
    );
    [progress, calls.load(Ordering::Relaxed)]
}

/// Lemma 8 for ftsort's predicates, O(2^i): one comparison for each neighbour within a half, and at most six for each key
/// that is merged.
#[test]
fn the_predicates_compare_in_proportion_to_two_to_the_i() {
    for i in 1..12 {
        let [progress, feasibility] = comparisons(i);
        assert_eq!(progress, (1 << i) - 2);
        assert!(
            (2 << i..=6 << i).contains(&feasibility),
            "{i}: {feasibility}"
        );
    }
}

/// Lemma 9, O(2^(j+1) + 2^(i-j)), does not hold for Figure 4c: its loop visits all 2^(i+1) entries of LBS in each step.
/// It holds if the loop visits the entries of the mask, of which there are 2^(i-j+1), and not 2^(j+1).
#[test]
fn phi_c_visits_all_entries_as_printed_and_few_with_a_mask() {
    let lemma = |i: u32, j: u32| (2_u64 << j) + (1 << (i - j));
    let printed_loop = |i: u32| 2_u64 << i;
    let by_mask = |i, j| round(i, j).mask(Node(0)).count() as u64;
    for i in 0..16 {
        for j in 0..=i {
            assert_eq!(by_mask(i, j), 2 << (i - j));
            assert!(by_mask(i, j) <= 2 * lemma(i, j));
        }
        assert!(by_mask(i, 0) > 2 || i == 0);
    }
    // In the middle of a stage the printed loop exceeds every multiple of the lemma's bound.
    let excess = |i: u32| printed_loop(i) / lemma(i, i / 2);
    assert!(excess(4) < excess(8) && excess(8) < excess(16) && excess(16) > 150);
}

/// Theorem 4: O(N) steps. With the loop of Figure 4c they are O(N log N).
#[test]
fn s_ft_takes_steps_in_proportion_to_n_with_masks_only() {
    let method = SortMethod::Reliable {
        rule: ConsistencyRule::Paper,
        order: ExchangeOrder::Sequential,
        whole: false,
    };
    let by_mask = |n: u32| cost(method, n, 1).chain_work / f64::from(n).exp2();
    // Two executions in each step, in n stages and the last one.
    let printed = |n: u32| {
        let stage = |dimension: u32| 2.0 * f64::from(dimension) * f64::from(dimension).exp2();
        let all: f64 = (1..=n).map(stage).sum::<f64>() + stage(n);
        all / f64::from(n).exp2()
    };
    assert!(
        by_mask(20) < 1.1 * by_mask(10),
        "{} {}",
        by_mask(10),
        by_mask(20)
    );
    assert!(
        printed(20) > 1.9 * printed(10),
        "{} {}",
        printed(10),
        printed(20)
    );
}

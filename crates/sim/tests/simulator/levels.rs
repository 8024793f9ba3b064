//! Sorts in several levels, and control messages that go along trees.

use super::{every_crash, every_single_crash, every_single_failure, expect_correct, range};
use ftsort_core::sort::Method;
use ftsort_kernels::test_size::sized_search;
use ftsort_sim::trial::{StoreKind, TrialRange, draw};
use rayon::prelude::*;

/// Two levels of four nodes: one message to the other part, and one within the part.
#[test]
fn crashes_of_three_and_four_ranks_that_sort_in_two_levels() {
    for store in ["memory:1", "reload", "parity:1:8", "directory"] {
        every_crash(&format!(
            "ranks=3 records=6 tagged=1 store={store} algorithm=samplesort_2"
        ));
    }
    every_single_failure("ranks=4 algorithm=samplesort_2 keys=1 hosts=2");
    every_single_crash("ranks=4 algorithm=samplesort_2 dense=1 store=versions:1");
}

#[test]
fn every_crash_of_one_of_eight_ranks_that_sort_in_levels() {
    every_single_crash("ranks=8 records=6 algorithm=samplesort_2");
    every_single_crash("ranks=6 records=6 algorithm=samplesort_3 fan_out=2");
}

/// A chain, in which each rank waits for the next one, and a tree with inner ranks.
#[test]
fn every_failure_of_ranks_that_relay_control_messages() {
    for line in [
        "ranks=4 fan_out=1 algorithm=samplesort",
        "ranks=3 fan_out=1 algorithm=samplesort_2 dense=1 checks=1",
        "ranks=4 fan_out=1 algorithm=quickmerge_modified store=reload",
    ] {
        every_single_failure(&format!("{line} records=6 tagged=1"));
    }
    every_single_crash("ranks=7 fan_out=2 records=6 algorithm=samplesort");
}

/// With a fan-out of 1 three ranks route their message counts. A second failure meets the recovery from the first.
#[test]
fn every_pair_of_crashes_of_ranks_that_route_message_counts() {
    every_crash("ranks=4 fan_out=1 records=2 tagged=1 store=reload algorithm=samplesort");
}

/// Random failures of 16 ranks as 4 x 4, and of other numbers of ranks.
#[test]
fn random_failures_of_ranks_that_sort_in_levels() {
    let seeds = sized_search(100, 400, 1_000_u64);
    let failures = (1..=seeds).into_par_iter().map(|seed| {
        let range = TrialRange {
            stores: vec![
                StoreKind::Memory(1),
                StoreKind::Memory(2),
                StoreKind::Directory,
            ],
            algorithms: vec![Method::SampleSort(2), Method::SampleSort(3)],
            ..range(if seed % 3 == 0 { 5 } else { 16 }, 16)
        };
        let trial = draw(seed, &range);
        expect_correct(&trial);
        trial.failures.len()
    });
    assert!(failures.sum::<usize>() > seeds as usize);
}

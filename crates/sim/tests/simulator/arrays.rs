//! Sorts of many arrays in one job, under failures.

use super::{
    STORES, combinations, every_crash, every_single_crash, every_single_failure, expect_correct,
    parse,
};
use ftsort_kernels::test_size::{all_tests, sized};

#[test]
fn crashes_of_three_ranks_with_many_arrays() {
    for store in STORES {
        every_crash(&format!(
            "ranks=3 records=12 arrays=5 tagged=1 algorithm=samplesort store={store}"
        ));
    }
}

#[test]
fn crashes_of_three_ranks_with_dense_results_of_many_arrays() {
    for store in ["memory:1", "directory", "reload"] {
        every_crash(&format!(
            "ranks=3 records=12 arrays=4 dense=1 algorithm=samplesort store={store}"
        ));
    }
}

#[test]
fn every_failure_before_and_after_a_sort_of_many_arrays() {
    let variants = [
        "",
        "checks=1",
        "dense=1 spares=1",
        "protects=1 hosts=2",
        "spares=1 tagged=1",
        "sorts=2",
    ];
    // Without early reports and partitions in the quick tests, which have them for one array.
    let every: fn(&str) = match all_tests() {
        true => every_single_failure,
        false => every_single_crash,
    };
    for (store, variant) in combinations(&variants) {
        every(&format!(
            "ranks=4 records=15 arrays=6 recoveries=2 algorithm=samplesort store={store} {variant}"
        ));
    }
}

/// The headers of blocks with so many runs are longer than a message of unknown length may be.
#[test]
fn blocks_of_hundreds_of_arrays_move() {
    for (ranks, arrays) in [(3, 700), (8, 1500)].into_iter().take(sized(1, 2)) {
        for more in ["", "dense=1", "checks=1 recoveries=1"] {
            for failures in ["", "failures=1@60", "failures=0@90,2@140"] {
                expect_correct(&parse(&format!(
                    "ranks={ranks} records=9000 arrays={arrays} algorithm=samplesort store=memory:2 {more} {failures}"
                )));
            }
        }
    }
}

/// After some failures only a few ranks have a block to move; all ranks must expect headers of the same size.
#[test]
fn blocks_of_many_arrays_move_between_some_ranks() {
    expect_correct(&parse(
        "ranks=24 seed=506094 records=0 keys=4 algorithm=samplesort store=memory:1 repair=agree hosts=24 sorts=1 arrays=40 \
         dense=1 tagged=1 checks=1 spares=1 damage=1 failures=2@428,1@619z,12@560,19@887,21@1032,10@742",
    ));
}

/// A change of any record is found, although the arrays share a digest.
#[test]
fn a_corruption_of_one_array_is_repaired() {
    let targets = ["message", "block", "result", "order", "swap"];
    for (target, change) in targets.iter().flat_map(|target| {
        let places = ["", ".flip/3", ".key/17", ".drop/30", ".double/11"];
        places.map(|place| (*target, place))
    }) {
        for (round, store) in [(1, "memory:1"), (2, "reload")] {
            expect_correct(&parse(&format!(
                "ranks=3 records=40 arrays=4 checks=1 algorithm=samplesort store={store} \
                 corrupt=1~{round}.{target}{change}"
            )));
        }
    }
}

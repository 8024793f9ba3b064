//! Parity in place of copies: crashes of as many ranks of a group as it has shares, and of more; groups of different
//! hosts; corrupt shares.

use super::{
    every_crash, every_crash_of_long_trial, every_single_crash, expect_correct, first_outcome,
    parse, search, steps_after,
};
use ftsort_core::members::Rank;
use ftsort_kernels::error::Status;
use ftsort_kernels::test_size::{sized, sized_search};
use ftsort_sim::StoreKind;
use ftsort_sim::trial::{TrialRange, draw, judge, run};
use rayon::prelude::*;

#[test]
fn crashes_with_every_algorithm() {
    for job in [
        "store=parity:1:8 algorithm=samplesort",
        "store=parity:1:8 algorithm=hyperquicksort dense=1",
        "store=parity:2:8 algorithm=quickmerge",
        "store=parity:1:8 algorithm=bitonic",
        "store=parity:2:3 algorithm=bitonic dense=1",
        "store=parity:1:2 algorithm=samplesort spares=1",
    ] {
        every_crash(&format!("ranks=3 records=20 tagged=1 {job}"));
    }
}

#[test]
fn crashes_with_protected_inputs_and_kept_results() {
    let line = "ranks=3 records=6 tagged=1 store=parity:1:8";
    for job in [
        "recoveries=2 algorithm=samplesort",
        "protects=1 recoveries=1 arrays=3 algorithm=samplesort",
    ] {
        every_crash(&format!("{line} {job}"));
    }
    for job in [
        "protects=2 algorithm=samplesort",
        "protects=2 algorithm=bitonic",
        "recoveries=2 algorithm=bitonic",
    ] {
        every_crash_of_long_trial(&format!("{line} {job}"));
    }
}

/// Four ranks in two groups lose one rank each, in every order and at every step.
#[test]
fn pairs_of_crashes_in_different_groups() {
    let most = sized(20, usize::MAX);
    for first in (10..).step_by(sized(12, 4)).take(most.min(40)) {
        let line = format!("ranks=4 records=6 store=parity:1:2 failures=0@{first}");
        search(&line, 2, false, false);
    }
}

#[test]
fn crashes_while_blocks_move_between_live_ranks() {
    for job in [
        "algorithm=bitonic exclusions=1/0@1",
        "algorithm=bitonic protects=2 exclusions=1/0@1",
        "algorithm=samplesort exclusions=1/0@2,2/3@4 recoveries=1",
    ] {
        every_single_crash(&format!("ranks=4 records=6 store=parity:1:8 {job}"));
    }
}

/// Ranks 0 and 2 are on one host. They are in different groups, so that both can fail at once.
#[test]
fn the_loss_of_a_host_takes_one_rank_of_each_group_along() {
    let line =
        "ranks=4 records=20 store=parity:1:8 hosts=2 algorithm=samplesort failures=1@32,3@33";
    let outcome = first_outcome(line);
    assert!(outcome.result.is_ok());
    assert_eq!(outcome.failed, [Rank(1), Rank(3)]);
}

/// More ranks of a group fail at once than it has shares. The other group has lost none.
#[test]
fn names_the_ranks_of_a_group_that_lost_too_many() {
    let line = "ranks=8 seed=2 records=40 store=parity:1:4 algorithm=samplesort failures=2@40,4@41";
    let outcome = first_outcome(line);
    let status = outcome.result.map_err(|error| error.status);
    assert_eq!(status.err(), Some(Status::DataLost));
    assert_eq!(outcome.lost, [Rank(2), Rank(4)]);
}

#[test]
fn a_corrupt_share_is_left_out() {
    for rank in 0..4 {
        every_single_crash(&format!(
            "ranks=4 records=40 keys=1000 store=parity:2:8 checks=1 corrupt={rank}~0.replica"
        ));
    }
}

/// The recovery after an exclusion makes the changed share again.
#[test]
fn a_corrupt_share_is_made_again() {
    let line = "ranks=4 seed=3 records=40 keys=1000 store=parity:1:8 algorithm=samplesort checks=1 \
                corrupt=0~0.replica exclusions=1/3@2";
    for step in steps_after(line, Rank(2), |commit| commit.round == 1) {
        let outcome = first_outcome(&format!("{line} failures=2@{step}"));
        assert!(outcome.result.is_ok(), "step {step}: {:?}", outcome.result);
    }
}

/// The copy of the input of rank 2 that a recovery finds changes in the memory of rank 3, which finds the input again.
#[test]
fn a_corrupt_copy_of_a_found_input_is_found_again() {
    let line = "ranks=4 seed=3 records=40 keys=1000 store=parity:1:8 algorithm=samplesort checks=1 \
                corrupt=3~1.replica";
    for step in steps_after(line, Rank(2), |commit| commit.round == 0) {
        let outcome = first_outcome(&format!("{line} failures=2@{step}"));
        assert!(outcome.result.is_ok(), "step {step}: {:?}", outcome.result);
    }
}

#[test]
fn corruptions_of_any_data_never_give_a_wrong_result() {
    let rounds = (0..=6_u32).flat_map(|round| {
        ["message", "block", "input", "replica", "result"].map(|target| (round, target))
    });
    let rounds: Vec<_> = rounds.collect();
    rounds.par_iter().for_each(|(round, target)| {
        for sort in [
            "algorithm=samplesort",
            "algorithm=bitonic",
            "algorithm=samplesort failures=2@120",
        ] {
            for rank in 0..sized(2, 4) {
                expect_correct(&parse(&format!(
                    "ranks=4 seed=3 records=40 keys=1000 tagged=1 {sort} store=parity:1:4 checks=1 \
                     corrupt={rank}~{round}.{target}"
                )));
            }
        }
    });
}

#[test]
fn random_trials_of_many_ranks() {
    let shapes = ["parity:1:8", "parity:2:8", "parity:3:5"];
    let stores = shapes.map(|shape| StoreKind::parse(shape).expect("a shape is a store"));
    let range = TrialRange {
        fewest: 1,
        most: sized_search(24, 32, 64),
        stores: stores.to_vec(),
        algorithms: Vec::new(),
        mutant: None,
    };
    (1..=sized_search(40_u64, 100, 500))
        .into_par_iter()
        .for_each(|seed| {
            let trial = draw(seed, &range);
            if let Some(wrong) = judge(&trial, &run(&trial, false)) {
                super::fail(&trial, &wrong);
            }
        });
}

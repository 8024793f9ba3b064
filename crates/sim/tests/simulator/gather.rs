//! Sorts of small inputs, for which every rank receives all of them or samples: crashes and refusals at every step, and
//! inputs of which some are too large.

use super::refusals::every_refusal;
use super::{every_single_failure, search};
use ftsort_kernels::test_size::{sized, sized_search};

const SORT: &str = "algorithm=samplesort gathers=1";

#[test]
fn crashes_of_three_ranks_that_gather_inputs() {
    for job in [
        "store=memory:1 tagged=1",
        "store=memory:1 recoveries=2",
        "store=memory:2 recoveries=1 sorts=2",
        "store=none recoveries=1",
        "store=memory:1 repair=shrink",
        "store=memory:1 tagged=1 samplers=1",
        "store=memory:1 recoveries=1 samplers=2",
        // Both other ranks hold copies of each input.
        "store=memory:2 recoveries=1 samplers=1",
        "store=none samplers=1",
    ] {
        // There are so few steps that all pairs can be tried.
        let line = format!("ranks=3 records=6 {SORT} {job}");
        assert!(search(&line, 2, false, false) > 500, "{line}");
    }
}

#[test]
fn failures_of_four_ranks_that_gather_inputs() {
    for job in [
        "store=memory:1 hosts=2 recoveries=1",
        "store=memory:1 spares=1 recoveries=1",
        "store=memory:2 quorum=3",
        "store=none",
        "store=memory:1 hosts=2 recoveries=1 samplers=1",
        "store=memory:1 spares=1 recoveries=1 samplers=1",
        "store=memory:2 quorum=3 samplers=3",
        "store=memory:1 repair=shrink samplers=1",
    ] {
        let sorts = sized(1, 2);
        every_single_failure(&format!("ranks=4 records=6 sorts={sorts} {SORT} {job}"));
    }
}

/// Messages to ranks that hold no copies are sent in two parts, if their sizes are in some range.
#[test]
fn failures_while_inputs_are_sent_in_parts() {
    for seed in 1..=sized_search(6, 6, 12) {
        for job in [
            "store=none",
            "store=memory:1 recoveries=1",
            "store=memory:1 samplers=2",
        ] {
            let line = format!("ranks=3 seed={seed} records=63 {SORT} {job}");
            search(&line, sized(1, 2), false, false);
        }
    }
    every_refusal(&format!("ranks=3 seed=3 records=63 {SORT} store=none"), 1);
}

/// The ranks learn in the step that some inputs are too large, and take rounds without an agreement.
#[test]
fn failures_while_some_inputs_are_too_large_to_be_gathered() {
    for seed in 1..=sized_search(3, 20, 40) {
        let samplers = seed % 3;
        let line = format!(
            "ranks=3 seed={seed} records=9000 samplers={samplers} {SORT} store=memory:1 recoveries=1"
        );
        every_single_failure(&line);
    }
}

#[test]
fn refusals_while_inputs_are_gathered() {
    for samplers in [0, 1] {
        let line = format!(
            "ranks=3 records=6 sorts=2 samplers={samplers} {SORT} store=memory:1 recoveries=1"
        );
        assert!(every_refusal(&line, sized(0, 1)) > 10);
        every_refusal(&format!("{line} failures=1@5"), 0);
    }
}

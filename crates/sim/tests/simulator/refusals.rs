//! Refused allocations, accesses to files and callbacks: a refusal on one rank is an error on all ranks, or on none, and
//! the next job of the group is right.

use super::{STORES, fail, parse, sized};
use ftsort_sim::trial::{ExhaustiveSearch, exhaust};

/// Every refusal of an action, with up to so many crashes. Returns the number of runs.
pub fn every_refusal(line: &str, failures: usize) -> u64 {
    let search = ExhaustiveSearch {
        trial: parse(line),
        failures,
        memo: false,
        all_modes: false,
        refusals: true,
        progress: &|| {},
    };
    exhaust(&search).unwrap_or_else(|failing| fail(&failing.0, &failing.1))
}

#[test]
fn refusals_of_three_ranks_in_every_store_and_job() {
    // At the smaller size a store has every other job, and the next store has the others.
    for (index, store) in STORES.into_iter().enumerate() {
        let jobs = [
            "records=6 algorithm=samplesort",
            "records=6 algorithm=bitonic",
            "records=6 checks=1",
            "records=6 speeds=1/0@2:3 exclusions=2/1@2",
            "records=3000 algorithm=quickmerge",
            "records=6 tree=merge",
            "records=6 tree=broadcast hosts=2",
            "records=6 tree=collect",
        ];
        let first = index % sized(2, 1);
        for job in jobs.into_iter().skip(first).step_by(sized(2, 1)) {
            let runs = every_refusal(&format!("ranks=3 sorts=2 store={store} {job}"), 0);
            assert!(runs > 10, "{store} {job}: {runs} runs");
        }
    }
}

/// Inputs are reloaded, and states are read from files, after failures only. Inputs that are divided are copied.
#[test]
fn refusals_after_failures() {
    for line in [
        "ranks=3 store=reload failures=1@40",
        "ranks=3 store=directory failures=1@60",
        "ranks=3 store=directory loop=1 failures=1@60",
        "ranks=3 store=memory:1 algorithm=samplesort divides=1",
        "ranks=3 store=memory:1 algorithm=samplesort divides=1 failures=1@40",
        "ranks=3 store=reload algorithm=samplesort divides=1 failures=1@40",
        "ranks=4 store=memory:1 failures=1@40,2@70",
        "ranks=4 store=versions:1 algorithm=bitonic failures=1@80",
        "ranks=4 store=memory:1 tree=merge failures=1@60",
        "ranks=4 store=memory:1 checks=1 corrupt=2~1.message",
    ] {
        let runs = every_refusal(&format!("{line} sorts=2 records=6"), 0);
        assert!(runs > 10, "{line}: {runs} runs");
    }
}

#[test]
fn refusals_and_crashes_of_three_ranks() {
    let most = sized(1, 5);
    for job in [
        "store=memory:1",
        "store=directory tree=merge",
        "store=reload",
        "store=directory",
        "store=versions:1 checks=1",
    ]
    .into_iter()
    .take(most)
    {
        every_refusal(&format!("ranks=3 records=6 {job}"), 1);
    }
}

//! Spares: the node of a failed rank goes to a spare, in that job and in all later ones, and spares fail themselves.

use ftsort_core::members::Rank;
use ftsort_kernels::test_size::{all_tests, sized};
use ftsort_sim::trial::{draw, judge, run};
use rayon::prelude::*;

use super::{
    every_crash, every_crash_of_long_trial, every_single_failure, expect_correct, parse, range,
    search,
};

/// The stores with redundancy.
const STORES: [&str; 4] = ["memory:1", "directory", "reload", "versions:1"];

#[test]
fn every_failure_of_three_and_four_working_ranks() {
    let jobs = [
        "samplesort",
        "hyperquicksort",
        "quickmerge dense=1",
        "bitonic",
    ];
    let jobs = STORES.into_iter().zip(jobs);
    for (index, (working, spares)) in [(3, 1), (4, 1), (4, 2)].into_iter().enumerate() {
        // In the quick size, each store appears once.
        let all = jobs.clone().enumerate();
        let chosen = all.filter(|(job, _)| all_tests() || job % 3 == index);
        for (_, (store, algorithm)) in chosen {
            let (ranks, sorts) = (working + spares, sized(1, 2));
            every_single_failure(&format!(
                "ranks={ranks} spares={spares} records=6 store={store} algorithm={algorithm} sorts={sorts}"
            ));
        }
    }
}

#[test]
fn crashes_with_a_spare_in_every_job() {
    for store in ["memory:1", "directory"].into_iter().take(sized(1, 2)) {
        let line = format!("ranks=4 spares=1 records=6 store={store}");
        for job in [
            "algorithm=hyperquicksort checks=1",
            "loop=1",
            "tree=merge tagged=1 sorts=2",
            "tree=broadcast sink=1 sorts=2",
            "tree=collect sorts=2",
        ] {
            every_crash(&format!("{line} {job}"));
        }
        for job in [
            "algorithm=samplesort dense=1 sorts=2",
            "algorithm=hyperquicksort tagged=1 sorts=2",
        ] {
            every_crash_of_long_trial(&format!("{line} {job}"));
        }
    }
}

/// Two failures of working ranks, of a spare that has taken over, of idle spares, and of both together.
#[test]
fn pairs_of_crashes_with_two_spares() {
    for (store, algorithm) in [
        ("reload", "samplesort"),
        ("memory:2", "hyperquicksort"),
        ("directory", "samplesort dense=1"),
    ]
    .into_iter()
    .take(sized(1, 3))
    {
        let (records, sorts) = sized((3, 1), (6, 2));
        let line = format!(
            "ranks=4 spares=2 records={records} store={store} algorithm={algorithm} sorts={sorts}"
        );
        let runs = search(&line, 2, true, false);
        assert!(runs > 1_000, "{line}: {runs} runs");
    }
}

#[test]
fn every_failure_while_a_policy_excludes_ranks_and_spares() {
    let policies = ["exclusions=1/0@2,4/3@4", "exclusions=2/0@1 speeds=1/0@1:8"];
    let sorts = sized(1, 2);
    for policy in policies.into_iter().take(sorts) {
        every_single_failure(&format!(
            "ranks=5 spares=1 records=6 store=memory:1 algorithm=samplesort sorts={sorts} {policy}"
        ));
    }
}

#[test]
fn random_trials_with_spares() {
    let range = range(2, 9);
    let seeds = 100_000..sized(100_300_u64, 102_000);
    let trials = seeds.into_par_iter().map(|seed| draw(seed, &range));
    let tried = trials.filter(|trial| trial.spares > 0);
    let tried = tried.map(|trial| expect_correct(&trial)).count();
    assert!(tried > 50, "{tried} trials");
}

/// Without failures a spare gets no records; after one, it has the share of the failed rank, and passes its input.
#[test]
fn a_spare_takes_over_the_share_of_a_failed_rank() {
    let line = "ranks=5 spares=1 records=40 algorithm=samplesort sorts=3 store=memory:1";
    let records = |line: &str| -> Vec<Vec<usize>> {
        let trial = parse(line);
        let result = run(&trial, false);
        assert_eq!(judge(&trial, &result), None, "{line}");
        let outcomes = result.outcomes.into_iter();
        let of_rank = |job: Vec<Option<_>>| {
            let count = |outcome: Option<ftsort_sim::trial::SortOutcome>| {
                let blocks = outcome.map(|outcome| outcome.result.expect("a result").blocks);
                let blocks = blocks.into_iter().flatten();
                blocks.map(|block| block.records.len()).sum()
            };
            job.into_iter().map(count).collect()
        };
        outcomes.map(of_rank).collect()
    };
    for job in records(line) {
        assert!(job[0] > 0 && job[4] == 0, "{job:?}");
    }
    for job in records(&format!("{line} failures=2@60")) {
        assert!(job[2] == 0 && job[4] > 0, "{job:?}");
        let largest = job.iter().max().expect("five ranks");
        let total: usize = job.iter().sum();
        assert!(*largest <= total.div_ceil(4) + 1, "{job:?}");
    }
}

/// The root of a broadcast fails, and the spare that takes over is the only rank that is left.
#[test]
fn a_spare_has_the_broadcast_of_the_rank_whose_node_it_executes() {
    for job in ["store=memory:1", "store=directory"] {
        every_single_failure(&format!("ranks=2 spares=1 records=6 tree=broadcast {job}"));
    }
}

/// If a spare fails before it took over, nothing is lost, although the store keeps no copies.
#[test]
fn the_failure_of_an_idle_spare_loses_nothing() {
    for step in 1..sized(60, 200) {
        let line = format!("ranks=4 spares=1 records=6 store=none sorts=2 failures=3@{step}");
        let trial = parse(&line);
        let result = run(&trial, false);
        assert_eq!(judge(&trial, &result), None, "{line}");
        let first = result.outcomes[0][0].as_ref().expect("rank 0 survives");
        assert!(first.result.is_ok(), "{line}: {:?}", first.result);
        assert_eq!(first.idle_spares, [Rank(3)], "{line}");
    }
}

//! Ranks that stop, hang or are slow without a report, in runs with the default timeout.

use super::{expect_correct, fail, parse, range};
use ftsort_core::members::Rank;
use ftsort_kernels::error::Status;
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::test_size::sized;
use ftsort_sim::transport::{Failure, FailureMode};
use ftsort_sim::trial::{Trial, draw, judge, run};
use rayon::prelude::*;

/// The trials with one such fault at each step of each rank.
fn with_each(line: &str, mode: FailureMode) -> Vec<Trial> {
    let trial = parse(&format!("{line} timed=1"));
    let steps = run(&trial, false).steps;
    assert!(steps.len() > 50, "{trial}: {} steps", steps.len());
    let failures = steps.iter().map(|record| Failure {
        rank: record.rank,
        step: record.step,
        mode,
    });
    failures
        .map(|failure| Trial {
            failures: vec![failure],
            ..trial.clone()
        })
        .collect()
}

/// The number of ranks that returned an error of MPI in a trial, after the trial was judged.
fn gave_up(trial: &Trial) -> usize {
    let result = run(trial, false);
    if let Some(wrong) = judge(trial, &result) {
        fail(trial, &wrong);
    }
    let outcomes = result.outcomes.iter().flatten().flatten();
    let errors = outcomes.filter_map(|outcome| outcome.result.as_ref().err());
    errors.filter(|error| error.status == Status::Mpi).count()
}

const JOBS: [&str; 6] = [
    "ranks=3 store=memory:1",
    "ranks=4 store=directory algorithm=samplesort sorts=2",
    "ranks=3 store=reload algorithm=bitonic dense=1",
    "ranks=4 records=6 store=memory:1 tree=merge links=0-1 sink=1",
    "ranks=3 records=9000 store=memory:2 algorithm=samplesort",
    "ranks=5 store=none loop=1",
];

#[test]
fn the_others_give_up_a_rank_that_is_stopped_at_any_step() {
    for line in JOBS.iter().take(sized(4, JOBS.len())) {
        let trials = with_each(line, FailureMode::Stop);
        let counts: Vec<usize> = trials.par_iter().map(gave_up).collect();
        // Only a rank that is stopped after its part in the last agreement holds up no rank.
        let all = trials[0].ranks - 1;
        let most = counts.iter().filter(|count| **count == all).count();
        assert!(
            2 * most > counts.len(),
            "{line}: {most} of {}",
            counts.len()
        );
    }
}

#[test]
fn no_rank_waits_for_ever_if_a_collective_call_hangs() {
    for line in JOBS.iter().take(sized(3, JOBS.len())) {
        let trials = with_each(line, FailureMode::Hang);
        let counts: Vec<usize> = trials.par_iter().map(gave_up).collect();
        // Only a rank that makes no collective call afterwards does not hang.
        let none = counts.iter().filter(|count| **count == 0).count();
        assert!(10 * none < counts.len(), "{line}: {counts:?}");
    }
}

/// It works for longer than three times the timeout, at any step.
#[test]
fn no_rank_gives_up_a_slow_rank() {
    for line in JOBS.iter().take(sized(4, JOBS.len())) {
        let trials = with_each(line, FailureMode::Slow);
        let slow = trials.par_iter().filter(|trial| {
            assert_eq!(gave_up(trial), 0, "{trial}");
            run(trial, false).seconds > 200.0
        });
        // The others end without waiting for a rank that is slow after its last step.
        let slow = slow.count();
        assert!(10 * slow > 9 * trials.len(), "{slow} of {}", trials.len());
    }
}

/// Without a timeout, too, the ranks refuse a tree with these links.
#[test]
fn a_tree_without_a_path_to_its_sink_is_refused_although_a_rank_hangs() {
    let line = "ranks=2 records=1 store=memory:2 tree=merge links=0-1 timed=1";
    for failure in ["0@45s", "0@62h", "1@36s"] {
        expect_correct(&parse(&format!("{line} failures={failure}")));
    }
}

/// A rank fails or is slow, and another is stopped.
#[test]
fn random_faults_together_end_in_a_result_or_an_error() {
    let seeds = 1..sized(150_u64, 3_000);
    seeds.into_par_iter().for_each(|seed| {
        let mut draws = SplitMix::new(seed);
        let mut trial = Trial {
            timed: true,
            repair: parse("repair=agree").repair,
            quorum: 1,
            corruptions: Vec::new(),
            refusals: Vec::new(),
            damage: false,
            failures: Vec::new(),
            ..draw(seed, &range(2, 8))
        };
        let modes = [
            FailureMode::Stop,
            FailureMode::Hang,
            FailureMode::Slow,
            FailureMode::Slow,
            FailureMode::Crash,
        ];
        for _ in 0..1 + draws.below(3) {
            let steps = run(&trial, false).steps;
            let at = steps[draws.below(steps.len() as u64) as usize];
            if trial.failures.iter().any(|other| other.rank == at.rank) {
                continue;
            }
            trial.failures.push(Failure {
                rank: at.rank,
                step: at.step,
                mode: modes[draws.below(5) as usize],
            });
        }
        expect_correct(&trial);
    });
}

/// A failure that MPI reports does not count as silence, however long the survivors work.
#[test]
fn a_failure_and_a_slow_survivor_are_survived() {
    for step in 1..sized(40, 120) {
        expect_correct(&parse(&format!(
            "ranks=4 store=memory:1 timed=1 failures=1@{step},2@30w,3@45w"
        )));
    }
}

#[test]
fn a_fault_is_parsed_from_its_text() {
    for text in ["3@7", "3@7z", "3@7c", "3@7s", "3@7w", "3@7h"] {
        let failure = Failure::parse(text).expect(text);
        assert_eq!((failure.rank, failure.step), (Rank(3), 7));
        assert_eq!(failure.to_string(), text);
    }
}

//! The oracle for trials in which a rank stops or hangs without a report: no other rank hangs.
//!
//! The ranks may return different statuses, because a rank that gives up cannot ask the others. A result must be right
//! all the same.

use super::oracle::{Living, judge_result};
use super::tree_checks::{judge_tree, may_refuse};
use super::{SortOutcome, Trial, TrialRun};
use crate::transport::{Failure, FailureMode, SLOW_SECONDS};
use ftsort_core::members::Rank;
use ftsort_core::transport::watch::DEFAULT_SECONDS;
use ftsort_kernels::error::Status;

/// Whether the other ranks wait for the rank of this failure for ever, unless there is a timeout.
pub fn is_endless(failure: &Failure) -> bool {
    matches!(failure.mode, FailureMode::Stop | FailureMode::Hang)
}

/// The time after which every rank must have returned: the ranks notice one failure after another.
fn time_limit(trial: &Trial) -> f64 {
    let failures = trial.failures.len() as f64;
    (1.0 + failures) * (1.2 * DEFAULT_SECONDS + 20.0) + failures * SLOW_SECONDS
}

/// Returns a description of the error in the result of a trial. None: the result is correct.
pub fn judge(trial: &Trial, run: &TrialRun) -> Option<String> {
    let is_stopped = |rank: &Rank| {
        let mut failures = trial.failures.iter();
        failures.any(|failure| failure.rank == *rank && failure.mode == FailureMode::Stop)
    };
    if let Some(rank) = run.hung.iter().find(|rank| !is_stopped(rank)) {
        return Some(format!("rank {rank} hangs"));
    }
    let limit = time_limit(trial);
    if run.seconds > limit {
        let seconds = run.seconds;
        return Some(format!(
            "the run took {seconds} seconds instead of at most {limit}"
        ));
    }
    let mut jobs = run.outcomes.iter().enumerate();
    jobs.find_map(|(job, outcomes)| {
        let wrong = judge_job(trial, job, outcomes);
        wrong.map(|wrong| format!("sort {job}: {wrong}"))
    })
}

fn judge_job(trial: &Trial, job: usize, outcomes: &[Option<SortOutcome>]) -> Option<String> {
    let mut crashes = trial.failures.iter();
    let crashes = crashes.any(|failure| failure.mode == FailureMode::Crash);
    let outcomes = Rank::all(trial.ranks).zip(outcomes);
    let returned: Vec<(Rank, &SortOutcome)> = outcomes
        .filter_map(|(rank, outcome)| Some((rank, outcome.as_ref()?)))
        .collect();
    let unexpected = returned.iter().find_map(|(rank, outcome)| {
        let error = outcome.result.as_ref().err()?;
        let is_expected = match error.status {
            Status::Mpi => true,
            Status::DataLost => crashes,
            Status::Argument => may_refuse(trial, outcome),
            _ => false,
        };
        (!is_expected).then(|| format!("rank {rank} returns another error: {error}"))
    });
    if unexpected.is_some() {
        return unexpected;
    }
    let right = returned.into_iter();
    let right: Vec<_> = right
        .filter(|(_, outcome)| outcome.result.is_ok())
        .collect();
    let right: &Living<'_> = &right;
    let (_, first) = right.first()?;
    match trial.tree {
        Some(_) => judge_tree(trial, job, right, first),
        None => judge_result(trial, job, right, first),
    }
}

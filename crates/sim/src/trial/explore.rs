//! The search for trials with wrong results: at random, or with every failure.

use std::collections::BTreeSet;
use std::sync::{Mutex, Once};

use rayon::prelude::*;

use super::{CommitRecord, Refusal, Trial, TrialRange, TrialRun, draw, judge, run};
use crate::simulate::{steps_until_last, with_one_more};
use crate::transport::FailureMode;
use ftsort_core::members::Rank;
use ftsort_core::mutants::{Mutant, any_mutant};

/// Suppresses the messages of panics that a mutant causes. These panics are caught and judged.
fn suppress_panic_messages_of_mutants() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !any_mutant() {
                print(panic);
            }
        }));
    });
}

/// Searches random trials for one that detects a mutant. Returns it with the description of its error.
pub fn catch(mutant: Mutant, range: &TrialRange, seeds: u64) -> Option<(Trial, String)> {
    let range = TrialRange {
        mutant: Some(mutant),
        ..range.clone()
    };
    suppress_panic_messages_of_mutants();
    (1..=seeds).find_map(|seed| {
        let trial = draw(seed, &range);
        let wrong = judge(&trial, &run(&trial, false))?;
        Some((trial, wrong))
    })
}

/// A trial with a wrong result, and a description of the error.
pub type FailingTrial = Box<(Trial, String)>;

/// The settings of an exhaustive search.
pub struct ExhaustiveSearch<'a> {
    /// The trial without failures.
    pub trial: Trial,
    /// The largest number of failures.
    pub failures: usize,
    /// Whether to skip the steps after a committed state that was searched before. A committed state depends only
    /// on the round and the set of failed ranks.
    pub memo: bool,
    /// Whether to inject early reports and partitions besides crashes, or in timed trials ranks that are stopped, are
    /// slow, or hang.
    pub all_modes: bool,
    /// Whether to refuse each action of each rank in turn besides the failures: that action alone, and together
    /// with all later ones of the job. Then no steps are skipped.
    pub refusals: bool,
    /// Called after every run, from several threads.
    pub progress: &'a (dyn Fn() + Sync),
}

/// Runs a trial with every sequence of failures at every step of every rank, on all processors. A run with one more
/// failure is the same up to that failure, so the failure is injected at each step after the last failure of the run
/// without it. Returns the number of runs, or a trial with a wrong result.
pub fn exhaust(search: &ExhaustiveSearch<'_>) -> Result<u64, FailingTrial> {
    // The number of a refused action depends on more than the committed state.
    let memo = search.memo && !search.refusals;
    let seen = memo.then(Mutex::default);
    descend(search, seen.as_ref(), &search.trial)
}

/// The trials with one refusal, of each action of each rank.
fn with_each_refusal(trial: &Trial, result: &TrialRun) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (rank, actions) in Rank::all(trial.ranks).zip(&result.actions) {
        for (action, lasts) in (1..=*actions).flat_map(|action| [(action, false), (action, true)]) {
            let refusal = Refusal {
                rank,
                action,
                lasts,
            };
            trials.push(Trial {
                refusals: vec![refusal],
                ..trial.clone()
            });
        }
    }
    trials
}

/// The committed states that were searched.
type Seen = Mutex<BTreeSet<CommitRecord>>;

fn descend(
    search: &ExhaustiveSearch<'_>,
    seen: Option<&Seen>,
    trial: &Trial,
) -> Result<u64, FailingTrial> {
    let result = run(trial, false);
    (search.progress)();
    if let Some(wrong) = judge(trial, &result) {
        return Err(Box::new((trial.clone(), wrong)));
    }
    let mut more = Vec::new();
    if trial.failures.len() < search.failures {
        more = with_each_failure(search, seen, trial, &result);
    }
    if search.refusals && trial.refusals.is_empty() {
        more.extend(with_each_refusal(trial, &result));
    }
    let below = more
        .par_iter()
        .map(|trial| descend(search, seen, trial))
        .try_reduce(|| 0, |one, other| Ok(one + other))?;
    Ok(1 + below)
}

/// The trials with one more failure, at each step that was not searched before.
fn with_each_failure(
    search: &ExhaustiveSearch<'_>,
    seen: Option<&Seen>,
    trial: &Trial,
    result: &TrialRun,
) -> Vec<Trial> {
    let modes: &[FailureMode] = if search.all_modes && trial.timed {
        &[
            FailureMode::Crash,
            FailureMode::Stop,
            FailureMode::Slow,
            FailureMode::Hang,
        ]
    } else if search.all_modes {
        &[
            FailureMode::Crash,
            FailureMode::EarlyReport,
            FailureMode::Partition,
        ]
    } else {
        &[FailureMode::Crash]
    };
    let steps = &result.steps[fresh_steps(trial, result, seen)];
    let more = modes
        .iter()
        .flat_map(|mode| with_one_more(&trial.failures, steps, *mode));
    more.map(|failures| Trial {
        failures,
        ..trial.clone()
    })
    .collect()
}

/// The steps after the trial's last failure. With `seen`: only those up to the first commit after this failure, if
/// that state was searched before.
fn fresh_steps(trial: &Trial, result: &TrialRun, seen: Option<&Seen>) -> std::ops::Range<usize> {
    let end = result.steps.len();
    let start = steps_until_last(&result.steps, &trial.failures);
    if trial.failures.is_empty() {
        return start..end;
    }
    let knows = |commit: &CommitRecord| {
        let mut failures = trial.failures.iter();
        failures.all(|failure| commit.failed.contains(&failure.rank))
    };
    let commits = result.commits.iter();
    let first = commits
        .filter(|(at, commit)| *at >= start && knows(commit))
        .min();
    let Some((at, commit)) = first else {
        return start..end;
    };
    let is_new = seen.is_none_or(|seen| {
        let mut seen = seen.lock().unwrap_or_else(|poison| poison.into_inner());
        seen.insert(commit.clone())
    });
    if is_new { start..end } else { start..*at }
}

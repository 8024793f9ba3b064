//! Makes a failing trial smaller.

use super::{Trial, judge, run};

/// Whether the trial has a wrong result.
fn fails(trial: &Trial) -> bool {
    judge(trial, &run(trial, false)).is_some()
}

/// Returns the smallest trial found that still has a wrong result: with fewer failures, ranks, jobs, records and keys,
/// and with earlier failures.
pub fn shrink(trial: &Trial) -> Trial {
    let mut best = trial.clone();
    loop {
        let smaller = candidates(&best).into_iter().find(fails);
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// The trials that are one change smaller.
fn candidates(trial: &Trial) -> Vec<Trial> {
    let mut found = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Trial)| {
        let mut smaller = trial.clone();
        change(&mut smaller);
        if smaller != *trial {
            found.push(smaller);
        }
    };
    for index in 0..trial.failures.len() {
        offer(&|smaller| {
            smaller.failures.remove(index);
        });
    }
    for index in 0..trial.exclusions.len() {
        offer(&|smaller| {
            smaller.exclusions.remove(index);
        });
    }
    for index in 0..trial.speeds.len() {
        offer(&|smaller| {
            smaller.speeds.remove(index);
        });
    }
    for index in 0..trial.refusals.len() {
        offer(&|smaller| {
            smaller.refusals.remove(index);
        });
    }
    offer(&|smaller| smaller.gain = false);
    for index in 0..trial.links.len() {
        offer(&|smaller| {
            smaller.links.remove(index);
        });
    }
    offer(&|smaller| smaller.sorts = 1);
    offer(&|smaller| smaller.gathers = false);
    offer(&|smaller| smaller.samplers = 0);
    offer(&|smaller| smaller.divides = 0);
    offer(&|smaller| smaller.protects = smaller.protects.saturating_sub(1));
    offer(&|smaller| smaller.updates = smaller.updates.saturating_sub(1));
    offer(&|smaller| smaller.recoveries = smaller.recoveries.saturating_sub(1));
    for spares in [0, trial.spares.saturating_sub(1)] {
        offer(&|smaller| smaller.spares = spares);
    }
    for records in [0, 1, trial.records / 2, trial.records.saturating_sub(1)] {
        offer(&|smaller| smaller.records = records.min(smaller.records));
    }
    for arrays in [1, trial.arrays / 2, trial.arrays.saturating_sub(1)] {
        offer(&|smaller| smaller.arrays = arrays.min(smaller.arrays));
    }
    for keys in [1, trial.keys / 2] {
        offer(&|smaller| smaller.keys = keys.clamp(1, smaller.keys));
    }
    let failing = trial.failures.iter().map(|failure| failure.rank);
    let refusing = trial.refusals.iter().map(|refusal| refusal.rank);
    let most = failing.chain(refusing).map(|rank| rank.index() + 1).max();
    for ranks in most.unwrap_or(1).max(1)..trial.ranks {
        offer(&|smaller| smaller.ranks = ranks);
    }
    for index in 0..trial.failures.len() {
        for step in [
            trial.failures[index].step / 2,
            trial.failures[index].step - 1,
        ] {
            offer(&|smaller| smaller.failures[index].step = step.max(1));
        }
    }
    found
}

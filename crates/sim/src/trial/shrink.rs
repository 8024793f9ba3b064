//! A failing trial made as small as it goes.

use super::{Trial, judge, run};

/// Does it fail?
fn fails(trial: &Trial) -> bool {
    judge(trial, &run(trial, false)).is_some()
}

/// The smallest trial found that still fails: with fewer faults, ranks, sorts, records and keys, and
/// earlier faults.
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

fn candidates(trial: &Trial) -> Vec<Trial> {
    let mut found = Vec::new();
    let mut offer = |change: &dyn Fn(&mut Trial)| {
        let mut smaller = trial.clone();
        change(&mut smaller);
        if smaller != *trial {
            found.push(smaller);
        }
    };
    for index in 0..trial.losses.len() {
        offer(&|smaller| {
            smaller.losses.remove(index);
        });
    }
    for index in 0..trial.turns.len() {
        offer(&|smaller| {
            smaller.turns.remove(index);
        });
    }
    for index in 0..trial.speeds.len() {
        offer(&|smaller| {
            smaller.speeds.remove(index);
        });
    }
    offer(&|smaller| smaller.gain = false);
    for index in 0..trial.links.len() {
        offer(&|smaller| {
            smaller.links.remove(index);
        });
    }
    offer(&|smaller| smaller.sorts = 1);
    for records in [0, 1, trial.records / 2, trial.records.saturating_sub(1)] {
        offer(&|smaller| smaller.records = records.min(smaller.records));
    }
    for keys in [1, trial.keys / 2] {
        offer(&|smaller| smaller.keys = keys.clamp(1, smaller.keys));
    }
    let most = trial.losses.iter().map(|loss| loss.rank.index() + 1).max();
    for ranks in most.unwrap_or(1).max(1)..trial.ranks {
        offer(&|smaller| smaller.ranks = ranks);
    }
    for index in 0..trial.losses.len() {
        for step in [trial.losses[index].step / 2, trial.losses[index].step - 1] {
            offer(&|smaller| smaller.losses[index].step = step.max(1));
        }
    }
    found
}

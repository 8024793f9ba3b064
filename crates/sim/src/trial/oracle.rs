//! Is what came of a trial right? Compared with a plain sort of the same records.

use super::rank_main::Part;
use super::{Keeping, Outcome, Record, Run, Trial, Use};
use crate::transport::{Loss, Manner};
use ftsort_core::members::{FULL_WEIGHT, Members, Rank, RankSet};
use ftsort_core::sort::{Method, PivotRule, Shape, Splitters};
use ftsort_kernels::error::Status;

/// None if it is right, else what is wrong with it.
pub fn judge(trial: &Trial, run: &Run) -> Option<String> {
    if let Some(panic) = &run.panic {
        return Some(panic.clone());
    }
    if !run.hung.is_empty() {
        return Some(format!("ranks {:?} hang", run.hung));
    }
    let lost = trial.losses.len();
    let survivors = run.survivors.len();
    if survivors + lost < trial.ranks {
        return Some(format!(
            "{survivors} of {} survive, {lost} were lost",
            trial.ranks
        ));
    }
    let mut sorts = run.outcomes.iter().enumerate();
    let wrong = sorts.find_map(|(sort, outcomes)| {
        let wrong = judge_sort(trial, run, sort, outcomes);
        wrong.map(|wrong| format!("sort {sort}: {wrong}"))
    });
    let litter = || match run.survivors.is_empty() || lost > 0 {
        // What the dead leave is removed by survivors, unless they were done before.
        true => None,
        false => run
            .litter
            .first()
            .map(|name| format!("the file {name} is left")),
    };
    wrong.or_else(litter)
}

fn judge_sort(
    trial: &Trial,
    run: &Run,
    sort: usize,
    outcomes: &[Option<Outcome>],
) -> Option<String> {
    let survivors = run.survivors.iter();
    let living: Vec<(Rank, &Outcome)> = survivors
        .filter_map(|rank| Some((*rank, outcomes[rank.index()].as_ref()?)))
        .collect();
    let (_, first) = living.first()?;
    for (rank, outcome) in &living {
        let seen = |outcome: &Outcome| {
            let Outcome {
                absent,
                faulty,
                lost,
                aside,
                weights,
                ..
            } = outcome.clone();
            (absent, faulty, lost, aside, weights)
        };
        if seen(outcome) != seen(first) {
            return Some(format!(
                "ranks see other faults or speeds: {rank} sees {:?}, {:?}",
                outcome.faulty, outcome.weights
            ));
        }
        let status = |outcome: &Outcome| outcome.parts.as_ref().err().map(|error| error.status);
        if status(outcome) != status(first) {
            return Some(format!("rank {rank} returns {:?}", outcome.parts));
        }
    }
    let lost: Vec<Rank> = trial.losses.iter().map(|loss| loss.rank).collect();
    if let Some(rank) = first.faulty.iter().find(|rank| !lost.contains(rank)) {
        return Some(format!("rank {rank} is taken for dead"));
    }
    let excluded = trial.ranks - first.faulty.len() < trial.quorum;
    match &first.parts {
        Err(error) if excluded && [Status::Excluded, Status::DataLost].contains(&error.status) => {
            None
        }
        _ if excluded => Some("goes on although too few are left".into()),
        Ok(_) if trial.tree.is_some() => judge_tree(trial, sort, &living, first),
        Ok(_) => judge_result(trial, sort, &living, first),
        Err(error) if error.status == Status::Corrupt => judge_corruption(trial, first),
        // Copies that are wrong are none.
        Err(error) if error.status == Status::DataLost && !trial.spoils.is_empty() => {
            judge_corruption(trial, first)
        }
        Err(error) if error.status == Status::Argument && may_refuse(trial, first) => None,
        Err(error) if error.status == Status::DataLost => judge_loss(trial, run, sort, first),
        Err(error) => Some(format!("fails: {error}")),
    }
}

/// Was there more wrong than can be made good? One change alone can, if there are copies, and if it is
/// found before copies are made of it.
fn judge_corruption(trial: &Trial, outcome: &Outcome) -> Option<String> {
    if trial.spoils.is_empty() {
        return Some("something wrong is found where nothing is".into());
    }
    if trial.algorithm == Method::SftBitonic && !trial.checks {
        return None;
    }
    let alone = trial.spoils.len() == 1 && !trial.spoils[0].ends_with('*');
    let at_home = trial.spoils.iter().any(|words| words.contains("input"));
    let has_copies = matches!(trial.store, Keeping::Memory(1..) | Keeping::Reload);
    let one_rank = trial.ranks - outcome.faulty.len() == 1;
    let fine = trial.losses.is_empty() && alone && has_copies && !at_home && !one_rank;
    fine.then(|| format!("not made good: {:?}", outcome.parts))
}

/// Every part where it belongs, and all of it there but for what executors took along that died
/// after the end.
fn judge_result(
    trial: &Trial,
    sort: usize,
    living: &[(Rank, &Outcome)],
    first: &Outcome,
) -> Option<String> {
    let present = Rank::all(trial.ranks).filter(|rank| !first.absent.contains(rank));
    let mut expected: Vec<Record> = present.flat_map(|rank| trial.records(sort, rank)).collect();
    // Equal keys stay in the order of ranks, and of their places there.
    expected.sort_by_key(|record| record.key);
    let mut members = Members::new(living[0].0, trial.ranks);
    members.absorb(&RankSet::from_ranks(
        trial.ranks,
        first.faulty.iter().copied(),
    ));
    first
        .aside
        .iter()
        .for_each(|rank| members.excluded_for_corruption(*rank));
    let mut covered = 0;
    for (rank, outcome) in living {
        if outcome.total != expected.len() as u64 {
            return Some(format!(
                "a total of {}, not {}",
                outcome.total,
                expected.len()
            ));
        }
        let parts = outcome.parts.as_ref().ok()?;
        let survivors = members.survivors().count() - first.aside.len();
        let even = [
            expected.len() / survivors,
            expected.len().div_ceil(survivors),
        ];
        let share = parts.iter().map(|part| part.records.len()).sum();
        if trial.dense && !first.aside.contains(rank) && !even.contains(&share) {
            return Some(format!("rank {rank} has {share} records, not {even:?}"));
        }
        let nodes: Vec<_> = parts.iter().map(|part| part.node).collect();
        if nodes != members.nodes_of(*rank) {
            return Some(format!("rank {rank} has the blocks of {nodes:?}"));
        }
        for part in parts {
            covered += part.records.len();
            if !belongs(trial, part, &expected) {
                return Some(format!("the block of {} is wrong: {part:?}", part.node));
            }
        }
    }
    if let Some(wrong) = judge_shares(trial, living, expected.len()) {
        return Some(wrong);
    }
    let survivors = members.survivors().count();
    let all_here = living.len() == survivors;
    (all_here && covered != expected.len())
        .then(|| format!("{covered} of {} records", expected.len()))
}

/// Where all speeds were known from the start, nobody was left out or died, and samples stand for few records:
/// is each rank's share in proportion to its weight?
fn judge_shares(trial: &Trial, living: &[(Rank, &Outcome)], total: usize) -> Option<String> {
    let weighs = [
        Method::SampleSort,
        Method::HyperQuickSort(PivotRule::Sampled),
        Method::QuickMerge(Splitters::Sampled),
    ];
    let disturbed = !(trial.losses.is_empty() && trial.turns.is_empty() && trial.spoils.is_empty());
    let late = trial.speeds.iter().any(|speed| speed.turn.commit > 1);
    let known = |rank: Rank| rank.index() < trial.ranks;
    let unseen = trial.speeds.iter().any(|speed| !known(speed.turn.witness));
    let close = total <= MOST_JUDGED && weighs.contains(&trial.algorithm);
    if disturbed || late || unseen || trial.own || trial.dense || !close {
        return None;
    }
    let weight = |rank: Rank| {
        let of = trial.speeds.iter().filter(|speed| speed.turn.rank == rank);
        usize::from(of.map(|speed| speed.weight).max().unwrap_or(FULL_WEIGHT))
    };
    let mut weights: Vec<usize> = Rank::all(trial.ranks).map(weight).collect();
    if weights.iter().all(|weight| *weight == 0) {
        weights.fill(1);
    }
    let all: usize = weights.iter().sum();
    // Each cut is off by less than what a sample stands for, and those of halves add up.
    let sample = match total <= OWN_SAMPLES * trial.ranks {
        true => 1,
        false => 1 + total / FEWEST_SAMPLES,
    };
    let most_off = 2 + sample * trial.ranks.next_power_of_two().ilog2() as usize;
    living.iter().find_map(|(rank, outcome)| {
        let parts = outcome.parts.as_ref().ok()?.iter();
        let share: usize = parts.map(|part| part.records.len()).sum();
        let due = total * weights[rank.index()] / all;
        (share.abs_diff(due) > most_off)
            .then(|| format!("rank {rank} has {share} records, not about {due} by {weights:?}"))
    })
}

/// Larger sorts are not judged by their shares.
const MOST_JUDGED: usize = 512;

/// What a node shows of a larger block at least.
const FEWEST_SAMPLES: usize = 48;

/// Where there are no more records for each rank, a node shows every record of its block, although some blocks are
/// larger than others.
const OWN_SAMPLES: usize = 24;

/// The result is on the rank that the tree leads to, and nowhere else; or on all, if it comes from there.
fn judge_tree(
    trial: &Trial,
    sort: usize,
    living: &[(Rank, &Outcome)],
    first: &Outcome,
) -> Option<String> {
    let all = trial.tree == Some(Use::Broadcast);
    let root = trial.tree_request().sink.unwrap_or(Rank(0));
    let present = Rank::all(trial.ranks).filter(|rank| !first.absent.contains(rank));
    let contributing = present.filter(|rank| !all || *rank == root);
    let records = contributing.flat_map(|rank| trial.sorted_records(sort, rank));
    let mut expected: Vec<Record> = records.collect();
    if trial.tree == Some(Use::Merge) {
        expected.sort_by_key(|record| record.key);
    }
    for (rank, outcome) in living {
        if outcome.total != first.total {
            return Some(format!("rank {rank} takes {} for the end", outcome.total));
        }
        let parts = outcome.parts.as_ref().ok()?;
        match &parts[..] {
            [] if !all && outcome.total != u64::from(rank.0) => {}
            [part] if all || outcome.total == u64::from(rank.0) => {
                if part.records != expected {
                    return Some(format!(
                        "rank {rank} has {} records, not the right {}",
                        part.records.len(),
                        expected.len()
                    ));
                }
            }
            parts => return Some(format!("rank {rank} has {} results", parts.len())),
        }
    }
    None
}

/// Do the faulty links leave no way for somebody, with some of the dead that are known in the end; or is
/// the rank dead that the tree was to come from?
fn may_refuse(trial: &Trial, outcome: &Outcome) -> bool {
    let Some(what) = trial.tree else { return false };
    let request = trial.tree_request();
    let root = request.sink.unwrap_or(Rank(0));
    if what == Use::Broadcast && outcome.absent.contains(&root) {
        return true;
    }
    // Who of the others was dead when the tree was chosen is not known.
    let absent = &outcome.absent;
    let late = outcome.faulty.iter().filter(|rank| !absent.contains(rank));
    let late: Vec<Rank> = late.copied().collect();
    if late.len() > MOST_LATE {
        return !request.links.is_empty();
    }
    (0..1_u32 << late.len()).any(|some| {
        let chosen = (0..).zip(&late).filter(|(bit, _)| some >> bit & 1 == 1);
        let dead = absent.iter().chain(chosen.map(|(_, rank)| rank));
        let dead = RankSet::from_ranks(trial.ranks, dead.copied());
        let alive = Rank::all(trial.ranks).find(|rank| !dead.contains(*rank));
        let Some(alive) = alive else { return false };
        let mut members = Members::new(alive, trial.ranks);
        members.absorb(&dead);
        let faults = request.faults(&members);
        faults.largest_component().len() < faults.len()
    })
}

/// For so many all sets of them are tried.
const MOST_LATE: usize = 8;

fn belongs(trial: &Trial, part: &Part, expected: &[Record]) -> bool {
    let start = part.offset as usize;
    let Some(expected) = expected.get(start..start + part.records.len()) else {
        return false;
    };
    // It is the order of keys that is checked.
    let moves = |words: &String| words.contains("order") || words.contains("swap");
    let corrupted = trial.spoils.iter().any(moves);
    match trial.algorithm {
        // It does not keep the order of equal keys.
        _ if corrupted => same_keys(&part.records, expected),
        Method::Bitonic(Shape::Bitonic) => same_keys(&part.records, expected),
        _ => expected == part.records,
    }
}

fn same_keys(some: &[Record], others: &[Record]) -> bool {
    let mut pairs = some.iter().zip(others);
    pairs.all(|(one, other)| one.key == other.key)
}

/// Was more lost than the store keeps? Counted are the ranks that died after the last commit, since
/// every commit finds all copies where they belong.
fn judge_loss(trial: &Trial, run: &Run, sort: usize, outcome: &Outcome) -> Option<String> {
    if outcome.lost.is_empty() {
        return Some("data are lost, but nobody's".into());
    }
    // Of one that was left out, its cover may have lost them.
    if let Some(rank) = outcome
        .lost
        .iter()
        .find(|rank| !outcome.faulty.contains(rank) && trial.turns.is_empty())
    {
        return Some(format!("the data of {rank} are lost, who lives"));
    }
    let cut_off = |loss: &Loss| loss.manner == Manner::CutOff && trial.quorum <= 1;
    let corrupted = trial.rot || trial.losses.iter().any(cut_off);
    if corrupted && trial.store == Keeping::Directory {
        // Who is cut off and takes itself for the last one tidies up in the end.
        return None;
    }
    let Some(absorbed) = &outcome.absorbed else {
        // Who dies before its input is committed takes it along, unless it can be got again.
        let was_there = |rank: &&Rank| {
            let name = format!("-s{sort}-v0-f00000000-n{rank}");
            run.finished.iter().any(|file| file.ends_with(&name))
        };
        return match trial.store {
            Keeping::Reload => Some("data lost that can be reloaded".into()),
            // Who found out may have died and left the others with all who might be meant.
            _ if outcome.lost.iter().all(|rank| was_there(&rank)) => {
                Some(format!("{:?} are lost, but were in files", outcome.lost))
            }
            _ => None,
        };
    };
    let at_once = outcome.faulty.len() - absorbed.len();
    let survived = match trial.store {
        Keeping::None => 0,
        Keeping::Memory(copies) | Keeping::Versions(copies) => copies,
        Keeping::Directory | Keeping::Reload => trial.ranks,
    };
    (at_once <= survived).then(|| format!("data lost, but only {at_once} died at once"))
}

//! Looking for trials that fail: at random, or one after the other without leaving any out.

use std::collections::BTreeSet;
use std::sync::{Mutex, Once};

use rayon::prelude::*;

use super::{Commit, Keeping, METHODS, Run, Speed, Trial, Turn, Use, judge, run};
use crate::transport::{Loss, Manner, Taken};
use ftsort_core::members::{FULL_WEIGHT, Rank};
use ftsort_core::mutants::{Mutant, any_mutant};
use ftsort_core::sort::{Method, PivotRule, Shape};
use ftsort_core::transport::Repair;
use ftsort_kernels::random::SplitMix;

/// What random trials are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// From how many ranks.
    pub fewest: usize,
    /// To how many.
    pub most: usize,
    /// The stores to choose from; empty: all.
    pub stores: Vec<Keeping>,
    /// The sorts to choose from; empty: all.
    pub algorithms: Vec<Method>,
    /// A defect to be mutant.
    pub set_mutant: Option<Mutant>,
}

/// The trial of a seed.
pub fn draw(seed: u64, range: &Range) -> Trial {
    let mut draw = SplitMix::new(seed);
    let ranks = range.fewest + draw.below((range.most - range.fewest + 1) as u64) as usize;
    let records = [0, 1, 5, 40, 40, 300, 9000][draw.below(7) as usize];
    let stores = match &range.stores[..] {
        [] => vec![
            Keeping::None,
            Keeping::Memory(1),
            Keeping::Memory(1),
            Keeping::Memory(2),
            Keeping::Versions(1),
            Keeping::Versions(2),
            Keeping::Reload,
            Keeping::Memory(ranks),
            Keeping::Directory,
        ],
        some => some.to_vec(),
    };
    let algorithms = match &range.algorithms[..] {
        [] => METHODS.map(|(method, _)| method).to_vec(),
        some => some.to_vec(),
    };
    // The papers' way seldom.
    let repairs = [Repair::Agree, Repair::Agree, Repair::Agree, Repair::Shrink];
    let mut trial = Trial {
        ranks,
        seed,
        records,
        keys: [1, 4, 50, 1 << 30][draw.below(4) as usize],
        algorithm: algorithms[draw.below(algorithms.len() as u64) as usize],
        dense: draw.once_in(4),
        tagged: draw.once_in(2),
        store: stores[draw.below(stores.len() as u64) as usize],
        repair: repairs[draw.below(4) as usize],
        hosts: [1, 2, ranks][draw.below(3) as usize],
        sorts: 1 + usize::from(draw.once_in(3)),
        own: false,
        checks: draw.once_in(3),
        spoils: Vec::new(),
        turns: Vec::new(),
        speeds: Vec::new(),
        gain: false,
        tree: None,
        sink: None,
        links: Vec::new(),
        quorum: if draw.once_in(3) { ranks / 2 + 1 } else { 1 },
        rot: draw.once_in(4),
        set_mutant: range.set_mutant,
        losses: Vec::new(),
    };
    if trial.algorithm == Method::Bitonic(Shape::Bitonic) {
        // It needs equal shares on a full cube, which a second sort without the dead has not got.
        trial.ranks = 1 << trial.ranks.ilog2();
        trial.quorum = trial.quorum.min(trial.ranks);
        trial.sorts = 1;
    }
    if trial.algorithm == Method::SftBitonic {
        // Everybody is told everything.
        trial.records = trial.records.min(300);
    }
    // It has no input to be got again, and leaves what was lost to its caller.
    trial.own = draw.once_in(6) && trial.store != Keeping::Reload;
    if trial.own {
        trial.dense = false;
        trial.checks = false;
        trial.algorithm = Method::HyperQuickSort(PivotRule::Sampled);
    }
    if trial.checks && draw.once_in(2) {
        trial.spoils = (0..1 + draw.below(3))
            .map(|_| corrupt(&mut draw, ranks))
            .collect();
    }
    if trial.algorithm == Method::SftBitonic && !trial.checks && draw.once_in(2) {
        trial.spoils.extend(lie(&mut draw, ranks));
    }
    if !trial.own && trial.store != Keeping::Reload && draw.once_in(6) {
        draw_tree(&mut draw, &mut trial);
    }
    if !trial.own && trial.tree.is_none() && draw.once_in(3) {
        let mut rank = || Rank(draw.below(trial.ranks as u64) as u32);
        let pairs: Vec<_> = (0..4).map(|_| (rank(), rank())).collect();
        let turns = pairs.into_iter().take(1 + draw.below(4) as usize);
        let turn = |(rank, witness)| Turn {
            rank,
            witness,
            commit: 1 + draw.below(12) as u32,
        };
        trial.turns = turns.map(turn).collect();
    }
    if !trial.own && trial.tree.is_none() && draw.once_in(3) {
        draw_speeds(&mut draw, &mut trial);
    }
    let victims = draw.below(trial.ranks as u64) as usize;
    let victims = if draw.once_in(2) {
        victims.min(2)
    } else {
        victims
    };
    let mut everyone: Vec<Rank> = Rank::all(trial.ranks).collect();
    let mut played = run(&trial, false);
    for index in 0..victims {
        let victim = draw.draw_at(&mut everyone, index);
        trial
            .losses
            .extend(inject_crash(&mut draw, victim, &trial, &played));
        if index < INFORMED {
            played = run(&trial, false);
        }
    }
    if trial.algorithm == Method::SftBitonic && !trial.checks {
        // Then the last message of a node may be a copy of what it has checked already.
        let last = format!("~{}.message", checked_rounds(ranks));
        let moved = !trial.losses.is_empty() || !trial.turns.is_empty();
        trial
            .spoils
            .retain(|words| !moved || !words.contains(&last));
    }
    trial
}

/// Ranks of other speeds than full, known from the start or seen some time.
fn draw_speeds(draw: &mut SplitMix, trial: &mut Trial) {
    let from_the_start = draw.once_in(2);
    for _ in 0..1 + draw.below(4) {
        let mut rank = || Rank(draw.below(trial.ranks as u64) as u32);
        let (rank, witness) = (rank(), rank());
        let commit = if from_the_start {
            1
        } else {
            1 + draw.below(12) as u32
        };
        let weight = draw.below(u64::from(FULL_WEIGHT) + 1) as u8;
        let turn = Turn {
            rank,
            witness,
            commit,
        };
        trial.speeds.push(Speed { turn, weight });
    }
    trial.gain = draw.once_in(2);
}

/// Something of somebody's that is changed in some round.
fn corrupt(draw: &mut SplitMix, ranks: usize) -> String {
    let targets = [
        "message", "block", "input", "replica", "stored", "result", "order", "swap",
    ];
    let target = targets[draw.below(targets.len() as u64) as usize];
    let rank = draw.below(ranks as u64);
    let round = match target {
        "input" | "replica" => 0,
        _ => draw.below(7),
    };
    let how = change(draw);
    let again = if draw.once_in(4) { "*" } else { "" };
    format!("{rank}~{round}.{target}{how}{again}")
}

/// How it is changed, and where.
fn change(draw: &mut SplitMix) -> String {
    let changes = ["", ".flip", ".key", ".copy", ".drop", ".double"];
    let change = changes[draw.below(changes.len() as u64) as usize];
    match draw.once_in(3) {
        true => change.to_string(),
        false => format!("{change}/{}", draw.below(1 << 20)),
    }
}

/// A tree in place of the sort, around links that are faulty; with few enough all are connected
/// mostly.
fn draw_tree(draw: &mut SplitMix, trial: &mut Trial) {
    let ranks = trial.ranks as u64;
    trial.algorithm = Method::HyperQuickSort(PivotRule::Sampled);
    trial.checks = false;
    trial.spoils.clear();
    trial.tree =
        Some([Use::Merge, Use::Merge, Use::Broadcast, Use::Collect][draw.below(4) as usize]);
    if draw.once_in(2) {
        trial.sink = Some(Rank(draw.below(ranks) as u32));
    }
    let most = draw.below(ranks + 1);
    for _ in 0..most {
        let one = draw.below(ranks) as u32;
        let other = one ^ 1 << draw.below(u64::from(ranks.ilog2()) + 1);
        if u64::from(other) < ranks {
            trial.links.push((Rank(one), Rank(other)));
        }
    }
}

/// One thing that the checks of 1989 must find alone: in a message of any of their rounds, or of a block
/// in any but the first, where a lie about one's own input is as good as the truth.
fn lie(draw: &mut SplitMix, ranks: usize) -> Option<String> {
    let rounds = checked_rounds(ranks);
    let (target, first) = match draw.once_in(2) {
        true => ("message", 1),
        false => ("block", 2),
    };
    let rank = draw.below(ranks as u64);
    let round = (rounds > 0).then(|| first + draw.below(rounds - first + 1))?;
    Some(format!("{rank}~{round}.{target}{}", change(draw)))
}

/// The rounds of the sort of 1989.
fn checked_rounds(ranks: usize) -> u64 {
    let dimension = ranks.next_power_of_two().ilog2();
    u64::from(dimension * (dimension + 3) / 2)
}

/// For so many losses it is looked up what their predecessors brought about.
const INFORMED: usize = 3;

/// A loss of `victim`, after those that the trial has already: soon after them, or at any time.
fn inject_crash(draw: &mut SplitMix, victim: Rank, trial: &Trial, played: &Run) -> Option<Loss> {
    let last = trial.losses.last().and_then(|last| place_of(played, last));
    let start = match last {
        Some(last) if draw.once_in(2) => last,
        _ => 0,
    };
    let theirs = played.taken[start..]
        .iter()
        .filter(|taken| taken.rank == victim);
    let theirs: Vec<u32> = theirs.map(|taken| taken.step).collect();
    let soon = if start > 0 && draw.once_in(2) {
        12
    } else {
        theirs.len()
    };
    let pick = draw.below(theirs.len().min(soon) as u64) as usize;
    Some(Loss {
        rank: victim,
        step: *theirs.get(pick)?,
        manner: match draw.below(12) {
            0 => Manner::CutOff,
            1 | 2 => Manner::Outlive,
            3..=6 if trial.quorum > 1 => Manner::CutOff,
            _ => Manner::Crash,
        },
    })
}

/// Where in a run a loss strikes.
fn place_of(played: &Run, loss: &Loss) -> Option<usize> {
    let struck = |taken: &Taken| taken.rank == loss.rank && taken.step == loss.step;
    played.taken.iter().position(struck)
}

/// Panics that mutant defects bring about are caught and judged; thousands of them need not be
/// printed.
fn keep_quiet_about_defects() {
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

/// The first of so many random trials that fails with a defect mutant.
pub fn catch(defect: Mutant, range: &Range, seeds: u64) -> Option<(Trial, String)> {
    let range = Range {
        set_mutant: Some(defect),
        ..range.clone()
    };
    keep_quiet_about_defects();
    (1..=seeds).find_map(|seed| {
        let trial = draw(seed, &range);
        let wrong = judge(&trial, &run(&trial, false))?;
        Some((trial, wrong))
    })
}

/// A trial that fails, and what is wrong with it.
pub type Failing = Box<(Trial, String)>;

/// Every fault of a trial, and how far to go.
pub struct Exhaustion<'a> {
    /// The trial without faults.
    pub trial: Trial,
    /// How many ranks may be lost, at most.
    pub losses: usize,
    /// Do not look twice at what follows a committed state: what is committed depends on the round
    /// and the fault set alone, however they came about.
    pub memo: bool,
    /// Ranks may outlive their own deaths, too.
    pub outlive: bool,
    /// Is told of every run, from several threads.
    pub progress: &'a (dyn Fn() + Sync),
}

/// Plays every sequence of up to so many crashes at every step of every rank, on all processors. A
/// run with one crash more is the same up to that crash, so the steps at which it can inject_crash are
/// those that its predecessor took after its own last crash. Returns how many runs there were, or a
/// trial that fails.
pub fn exhaust(search: &Exhaustion<'_>) -> Result<u64, Failing> {
    let seen = search.memo.then(Mutex::default);
    descend(search, seen.as_ref(), &search.trial)
}

/// The states that were met, of those that are not to be looked at twice.
type Seen = Mutex<BTreeSet<Commit>>;

fn descend(search: &Exhaustion<'_>, seen: Option<&Seen>, trial: &Trial) -> Result<u64, Failing> {
    let played = run(trial, false);
    (search.progress)();
    if let Some(wrong) = judge(trial, &played) {
        return Err(Box::new((trial.clone(), wrong)));
    }
    if trial.losses.len() >= search.losses {
        return Ok(1);
    }
    let steps = fresh_steps(trial, &played, seen);
    let config: &[Manner] = match search.outlive {
        true => &[Manner::Crash, Manner::Outlive, Manner::CutOff],
        false => &[Manner::Crash],
    };
    let config = config.iter();
    let more: Vec<Trial> = config
        .flat_map(|manner| one_more(trial, &played.taken[steps.clone()], *manner))
        .collect();
    let below = more
        .par_iter()
        .map(|trial| descend(search, seen, trial))
        .try_reduce(|| 0, |one, other| Ok(one + other))?;
    Ok(1 + below)
}

/// The steps after a trial's last crash; with `seen`, only up to the first commit that knows of the
/// crash, if that state was met before.
fn fresh_steps(trial: &Trial, played: &Run, seen: Option<&Seen>) -> std::ops::Range<usize> {
    let end = played.taken.len();
    let Some(last) = trial.losses.last() else {
        return 0..end;
    };
    let struck = |taken: &Taken| taken.rank == last.rank && taken.step == last.step;
    let start = played
        .taken
        .iter()
        .position(struck)
        .map_or(end, |at| at + 1);
    let knows = |commit: &Commit| {
        let mut losses = trial.losses.iter();
        losses.all(|loss| commit.faulty.contains(&loss.rank))
    };
    let commits = played.commits.iter();
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
    match is_new {
        true => start..end,
        false => start..*at,
    }
}

/// The trial with one loss more, at each of these steps.
fn one_more(trial: &Trial, steps: &[Taken], manner: Manner) -> impl Iterator<Item = Trial> {
    let lost = |rank| trial.losses.iter().any(|loss| loss.rank == rank);
    let steps = steps.iter().filter(move |taken| !lost(taken.rank));
    steps.map(move |taken| {
        let mut more = trial.clone();
        more.losses.push(Loss {
            rank: taken.rank,
            step: taken.step,
            manner,
        });
        more
    })
}

//! Random trials: the seed draws the group, the job, the corruptions, and the failures.

use super::line::METHODS;
use super::{Observation, Refusal, SpeedChange, StoreKind, TreeUse, Trial, TrialRun, run};
use crate::simulate::{position_of, steps_of};
use crate::transport::{Failure, FailureMode};
use ftsort_core::members::{FULL_WEIGHT, Rank};
use ftsort_core::mutants::Mutant;
use ftsort_core::sort::{Method, PivotRule, Shape};
use ftsort_core::store::parity::ParityShape;
use ftsort_core::transport::{ProtocolConfig, Repair};
use ftsort_kernels::random::SplitMix;

/// The values from which random trials are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialRange {
    /// The smallest number of ranks.
    pub fewest: usize,
    /// The largest number of ranks.
    pub most: usize,
    /// The stores. Empty: all.
    pub stores: Vec<StoreKind>,
    /// The sorts. Empty: all.
    pub algorithms: Vec<Method>,
    /// The mutant that is switched on.
    pub mutant: Option<Mutant>,
}

/// Draws the trial of a seed.
pub fn draw(seed: u64, range: &TrialRange) -> Trial {
    let mut draw = SplitMix::new(seed);
    let ranks = range.fewest + draw.below((range.most - range.fewest + 1) as u64) as usize;
    let records = [0, 1, 5, 40, 40, 300, 9000][draw.below(7) as usize];
    let stores = stores_of(range, ranks);
    let algorithms = match &range.algorithms[..] {
        [] => METHODS.map(|(method, _)| method).to_vec(),
        some => some.to_vec(),
    };
    // Shrinking, which the papers' programs use, is drawn less often.
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
        fan_out: [1, 2, ProtocolConfig::FAN_OUT]
            [SplitMix::new(!seed.rotate_left(8)).below(3) as usize],
        hosts: [1, 2, ranks][draw.below(3) as usize],
        sorts: 1 + usize::from(draw.once_in(3)),
        gathers: SplitMix::new(seed.rotate_left(16)).once_in(2),
        samplers: SplitMix::new(seed.rotate_left(24)).below(3) as usize,
        divides: SplitMix::new(seed.rotate_left(40)).below(4) as usize,
        checks: draw.once_in(3),
        quorum: if draw.once_in(3) { ranks / 2 + 1 } else { 1 },
        spares: draw_spares(seed, ranks),
        damage: draw.once_in(4),
        mutant: range.mutant,
        ..Trial::default()
    };
    if range.stores.is_empty() {
        draw_parity(seed, &mut trial);
    }
    let has_wrong_words = SplitMix::new(seed.rotate_left(48)).once_in(8);
    trial.wrong_words = trial.repair == Repair::Agree && has_wrong_words;
    meet_needs_of_algorithm(&mut trial);
    // The loop cannot load its input again, and leaves data loss to the program.
    trial.custom_loop = draw.once_in(6) && trial.store != StoreKind::Reload;
    if trial.custom_loop {
        trial.dense = false;
        trial.checks = false;
        trial.algorithm = Method::HyperQuickSort(PivotRule::Sampled);
    }
    draw_arrays(seed, &mut trial);
    if trial.checks && draw.once_in(2) {
        trial.corruptions = (0..1 + draw.below(3))
            .map(|_| corruption(&mut draw, ranks))
            .collect();
    }
    if trial.algorithm == Method::SftBitonic && !trial.checks && draw.once_in(2) {
        trial
            .corruptions
            .extend(undigested_corruption(&mut draw, ranks));
    }
    if !trial.custom_loop && trial.store != StoreKind::Reload && draw.once_in(6) {
        draw_tree(&mut draw, &mut trial);
    }
    if !trial.custom_loop && trial.tree.is_none() && draw.once_in(3) {
        draw_exclusions(&mut draw, &mut trial);
    }
    if !trial.custom_loop && trial.tree.is_none() && draw.once_in(3) {
        draw_speeds(&mut draw, &mut trial);
    }
    draw_redundancy(seed, &mut trial);
    draw_reloads(seed, &mut trial);
    if trial.store == StoreKind::Directory {
        (trial.power, trial.sync) = (draw.once_in(2), draw.once_in(2));
    }
    draw_failures(&mut draw, &mut trial);
    remove_copies_of_messages(&mut trial, ranks);
    if draw.once_in(6) {
        draw_refusal(&mut draw, &mut trial);
    }
    trial
}

/// Removes corruptions that no rank can detect.
fn remove_copies_of_messages(trial: &mut Trial, ranks: usize) {
    if trial.algorithm == Method::SftBitonic && !trial.checks {
        // After a move the first message of a node may be a copy of an input that no other rank knows, and the last
        // one a copy of data that it has checked already.
        let copies = [1, checked_rounds(ranks)].map(|round| format!("~{round}.message"));
        let moved = !trial.failures.is_empty() || !trial.exclusions.is_empty();
        let may_be_copied = |words: &String| copies.iter().any(|copy| words.contains(copy));
        trial
            .corruptions
            .retain(|words| !moved || !may_be_copied(words));
    }
}

/// The stores of which one is drawn. Some are named twice.
fn stores_of(range: &TrialRange, ranks: usize) -> Vec<StoreKind> {
    match &range.stores[..] {
        [] => vec![
            StoreKind::None,
            StoreKind::Memory(1),
            StoreKind::Memory(1),
            StoreKind::Memory(2),
            StoreKind::Versions(1),
            StoreKind::Versions(2),
            StoreKind::Reload,
            StoreKind::Memory(ranks),
            StoreKind::Directory,
        ],
        some => some.to_vec(),
    }
}

fn meet_needs_of_algorithm(trial: &mut Trial) {
    if trial.algorithm == Method::Bitonic(Shape::Bitonic) {
        // It needs equal inputs on a full cube, which a second sort after a failure does not have.
        trial.ranks = 1 << trial.ranks.ilog2();
        trial.quorum = trial.quorum.min(trial.ranks);
        trial.spares = 0;
        trial.sorts = 1;
    }
    if trial.algorithm == Method::SftBitonic {
        // Every node receives the records of all nodes.
        trial.records = trial.records.min(300);
    }
}

/// Gives one trial in six a store with parity. The draws of the other values do not depend on it.
fn draw_parity(seed: u64, trial: &mut Trial) {
    let mut draw = SplitMix::new(!seed.rotate_left(16));
    if draw.once_in(6) {
        let shares = 1 + draw.below(2) as usize;
        let group = shares + 1 + draw.below(7) as usize;
        trial.store = StoreKind::Parity(ParityShape { shares, group });
    }
}

/// Lets some sorts protect their inputs before, or recover their results afterwards. The draws of the other values
/// do not depend on it.
fn draw_redundancy(seed: u64, trial: &mut Trial) {
    let mut draw = SplitMix::new(seed.rotate_left(32));
    if trial.custom_loop || trial.tree.is_some() || !draw.once_in(3) {
        return;
    }
    trial.protects = draw.below(3) as usize;
    trial.recoveries = draw.below(3) as usize;
    // A changed input need not be a bitonic sequence any more, and a protected one is not copied again.
    if trial.protects > 0 && trial.algorithm == Method::Bitonic(Shape::Bitonic) {
        trial.corruptions.clear();
    }
    // The records of all updates must be a bitonic sequence.
    let is_possible = trial.protects > 0 && trial.algorithm != Method::Bitonic(Shape::Bitonic);
    if is_possible && draw.once_in(2) {
        trial.updates = 1 + draw.below(2) as usize;
    }
}

/// Lets a callback load the inputs of some sorts again, beside their store, or return wrong ones. The draws of the other values
/// do not depend on it.
fn draw_reloads(seed: u64, trial: &mut Trial) {
    let mut draw = SplitMix::new(!seed.rotate_left(48));
    let is_sort = !trial.custom_loop && trial.tree.is_none();
    let has_redundancy = matches!(
        trial.store,
        StoreKind::Memory(1..) | StoreKind::Versions(1..) | StoreKind::Parity(_)
    );
    if is_sort && has_redundancy {
        trial.reloads = draw.once_in(4);
    }
    // Wrong records of an update may not be known as such, and need not be a bitonic sequence.
    let is_known = trial.updates == 0 && trial.algorithm != Method::Bitonic(Shape::Bitonic);
    if is_sort && is_known && trial.can_reload() && trial.corruptions.is_empty() {
        trial.lies = draw.once_in(4);
    }
}

/// Lets some sample sorts sort many arrays. The draws of the other values do not depend on it.
fn draw_arrays(seed: u64, trial: &mut Trial) {
    let mut draw = SplitMix::new(!seed.rotate_left(32));
    if trial.algorithm == Method::SampleSort(1) && draw.once_in(2) {
        trial.arrays = [1, 2, 3, 7, 40][draw.below(5) as usize];
    }
}

/// Draws the number of spares: none in two of three trials. Apart from the other values, so that a seed without spares
/// draws the same trial as it did before there were any.
fn draw_spares(seed: u64, ranks: usize) -> usize {
    let mut draw = SplitMix::new(!seed);
    if draw.once_in(3) {
        draw.below(ranks as u64).min(1 + draw.below(3)) as usize
    } else {
        0
    }
}

/// Draws an action of some rank that is refused. Another job shows that the group can still be used.
fn draw_refusal(draw: &mut SplitMix, trial: &mut Trial) {
    let actions = run(trial, false).actions;
    let rank = Rank(draw.below(trial.ranks as u64) as u32);
    let of_rank = actions.get(rank.index()).copied().unwrap_or(0);
    let action = 1 + draw.below(u64::from(of_rank.max(1))) as u32;
    let lasts = draw.once_in(2);
    trial.refusals.push(Refusal {
        rank,
        action,
        lasts,
    });
    if trial.algorithm != Method::Bitonic(Shape::Bitonic) {
        trial.sorts = 2;
    }
}

/// Draws ranks that are excluded as slow, and may return.
fn draw_exclusions(draw: &mut SplitMix, trial: &mut Trial) {
    let mut rank = || Rank(draw.below(trial.ranks as u64) as u32);
    let pairs: Vec<_> = (0..4).map(|_| (rank(), rank())).collect();
    let exclusions = pairs.into_iter().take(1 + draw.below(4) as usize);
    let observation = |(rank, observer)| Observation {
        rank,
        observer,
        commit: 1 + draw.below(12) as u32,
    };
    trial.exclusions = exclusions.map(observation).collect();
}

/// Draws ranks that are slower than others, from the start or from some commit on.
fn draw_speeds(draw: &mut SplitMix, trial: &mut Trial) {
    let from_the_start = draw.once_in(2);
    for _ in 0..1 + draw.below(4) {
        let mut rank = || Rank(draw.below(trial.ranks as u64) as u32);
        let (rank, observer) = (rank(), rank());
        let commit = if from_the_start {
            1
        } else {
            1 + draw.below(12) as u32
        };
        let weight = draw.below(u64::from(FULL_WEIGHT) + 1) as u8;
        let observation = Observation {
            rank,
            observer,
            commit,
        };
        trial.speeds.push(SpeedChange {
            observation,
            weight,
        });
    }
    trial.gain = draw.once_in(2);
}

/// Draws a corruption of a rank's data in some round.
fn corruption(draw: &mut SplitMix, ranks: usize) -> String {
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

/// Draws the way in which data are changed, and the place.
fn change(draw: &mut SplitMix) -> String {
    let changes = ["", ".flip", ".key", ".copy", ".drop", ".double"];
    let change = changes[draw.below(changes.len() as u64) as usize];
    if draw.once_in(3) {
        change.to_string()
    } else {
        format!("{change}/{}", draw.below(1 << 20))
    }
}

/// Replaces the sort by a tree with faulty links. The links are few, so that most ranks stay connected.
fn draw_tree(draw: &mut SplitMix, trial: &mut Trial) {
    let ranks = trial.ranks as u64;
    trial.algorithm = Method::HyperQuickSort(PivotRule::Sampled);
    trial.arrays = 0;
    trial.checks = false;
    trial.corruptions.clear();
    trial.tree = Some(
        [
            TreeUse::Merge,
            TreeUse::Merge,
            TreeUse::Broadcast,
            TreeUse::Collect,
        ][draw.below(4) as usize],
    );
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
    trial.gain = draw.once_in(3);
}

/// Draws a corruption that the checks of the 1989 paper must detect without digests: of a message in any round, or
/// of a block in any round but the first, in which a changed input cannot be told from an original one.
fn undigested_corruption(draw: &mut SplitMix, ranks: usize) -> Option<String> {
    let rounds = checked_rounds(ranks);
    let (target, first) = if draw.once_in(2) {
        ("message", 1)
    } else {
        ("block", 2)
    };
    let rank = draw.below(ranks as u64);
    let round = (rounds > 0).then(|| first + draw.below(rounds - first + 1))?;
    Some(format!("{rank}~{round}.{target}{}", change(draw)))
}

/// The number of rounds of the 1989 paper's sort.
fn checked_rounds(ranks: usize) -> u64 {
    let dimension = ranks.next_power_of_two().ilog2();
    u64::from(dimension * (dimension + 3) / 2)
}

/// Draws failures of some ranks, one after the other.
fn draw_failures(draw: &mut SplitMix, trial: &mut Trial) {
    let victims = draw.below(trial.ranks as u64) as usize;
    let victims = if draw.once_in(2) {
        victims.min(2)
    } else {
        victims
    };
    let mut candidates: Vec<Rank> = Rank::all(trial.ranks).collect();
    let mut result = run(trial, false);
    for index in 0..victims {
        let victim = draw.draw_at(&mut candidates, index);
        trial
            .failures
            .extend(draw_failure(draw, victim, trial, &result));
        if index < INFORMED {
            result = run(trial, false);
        }
    }
}

/// The number of failures for which the run with the failures before is taken into account.
const INFORMED: usize = 3;

/// Draws a failure of `victim`: soon after the trial's last failure, or at any time.
fn draw_failure(
    draw: &mut SplitMix,
    victim: Rank,
    trial: &Trial,
    result: &TrialRun,
) -> Option<Failure> {
    let last = trial
        .failures
        .last()
        .and_then(|last| position_of(&result.steps, last));
    let start = match last {
        Some(last) if draw.once_in(2) => last,
        _ => 0,
    };
    let steps = steps_of(&result.steps[start..], victim);
    let soon = if start > 0 && draw.once_in(2) {
        12
    } else {
        steps.len()
    };
    let pick = draw.below(steps.len().min(soon) as u64) as usize;
    Some(Failure {
        rank: victim,
        step: *steps.get(pick)?,
        mode: match draw.below(12) {
            0 => FailureMode::Partition,
            1 | 2 => FailureMode::EarlyReport,
            3..=6 if trial.quorum > 1 => FailureMode::Partition,
            _ => FailureMode::Crash,
        },
    })
}

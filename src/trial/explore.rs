//! Looking for trials that fail: at random, or one after the other without leaving any out.

use super::{Keeping, Run, Trial, judge, run};
use crate::members::Rank;
use crate::random::SplitMix;
use crate::sort::PivotRule;
use crate::transport::Repair;
use crate::transport::sim::{Loss, Manner};

/// What random trials are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// From how many ranks.
    pub fewest: usize,
    /// To how many.
    pub most: usize,
    /// The stores to choose from; empty: all.
    pub stores: Vec<Keeping>,
    /// The ways of repair to choose from; empty: both, the papers' seldom.
    pub repairs: Vec<Repair>,
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
    let repairs = match &range.repairs[..] {
        [] => vec![Repair::Agree, Repair::Agree, Repair::Agree, Repair::Shrink],
        some => some.to_vec(),
    };
    let mut trial = Trial {
        ranks,
        seed,
        records,
        keys: [1, 4, 50, 1 << 30][draw.below(4) as usize],
        pivot: [PivotRule::Sampled, PivotRule::RootMedian][usize::from(draw.once_in(4))],
        store: stores[draw.below(stores.len() as u64) as usize],
        repair: repairs[draw.below(repairs.len() as u64) as usize],
        hosts: [1, 2, ranks][draw.below(3) as usize],
        sorts: 1 + usize::from(draw.once_in(3)),
        losses: Vec::new(),
    };
    let victims = draw.below(ranks as u64) as usize;
    let victims = if draw.once_in(2) {
        victims.min(2)
    } else {
        victims
    };
    // How many steps there are shows only in a run without faults; recovery takes more.
    let quiet = run(&trial, false);
    let mut everyone: Vec<u32> = (0..ranks as u32).collect();
    for index in 0..victims {
        let other = index + draw.below((ranks - index) as u64) as usize;
        everyone.swap(index, other);
        let rank = Rank(everyone[index]);
        let steps = quiet
            .taken
            .iter()
            .filter(|taken| taken.rank == rank)
            .count() as u64;
        trial.losses.push(Loss {
            rank,
            step: 1 + draw.below(steps + steps / 3) as u32,
            manner: [Manner::Crash, Manner::Outlive][usize::from(draw.once_in(5))],
        });
    }
    trial
}

/// Every fault of a trial, and how far it went.
pub struct Exhaustion<'a> {
    /// The trial without faults.
    pub trial: Trial,
    /// How many ranks may be lost, at most.
    pub losses: usize,
    /// Is told of each run; false: stop.
    pub progress: &'a mut dyn FnMut(&Trial, u64) -> bool,
}

/// Plays every sequence of up to so many crashes at every step of every rank. A run with one crash
/// more is the same up to that crash, so the steps at which it can strike are those that its
/// predecessor took after its own last crash. Returns how many runs there were, or the first trial
/// that fails.
pub fn exhaust(search: Exhaustion<'_>) -> Result<u64, (Trial, String)> {
    let mut runs = 0;
    let mut waiting = vec![search.trial.clone()];
    while let Some(trial) = waiting.pop() {
        let played = run(&trial, false);
        runs += 1;
        if let Some(wrong) = judge(&trial, &played) {
            return Err((trial, wrong));
        }
        if !(search.progress)(&trial, runs) {
            return Ok(runs);
        }
        if trial.losses.len() < search.losses {
            waiting.extend(one_more(&trial, &played));
        }
    }
    Ok(runs)
}

/// The trial with one crash more, at each step after its last one.
fn one_more<'a>(trial: &'a Trial, played: &'a Run) -> impl Iterator<Item = Trial> + 'a {
    let last = trial.losses.last().map_or(0, |last| {
        let struck = |taken: &&_| is_at(taken, last);
        let steps = played.taken.iter();
        steps.take_while(|taken| !struck(taken)).count() + 1
    });
    let lost = |rank| trial.losses.iter().any(|loss| loss.rank == rank);
    let steps = played.taken.iter().skip(last);
    steps.filter(move |taken| !lost(taken.rank)).map(|taken| {
        let mut more = trial.clone();
        more.losses.push(Loss {
            rank: taken.rank,
            step: taken.step,
            manner: Manner::Crash,
        });
        more
    })
}

fn is_at(taken: &crate::transport::sim::Taken, loss: &Loss) -> bool {
    taken.rank == loss.rank && taken.step == loss.step
}

//! Trials: whole sorts on simulated ranks, with faults, judged. Only with the feature `simulator`.
//!
//! A [`Trial`] is a value: all that decides a run, in one line that can be printed, read, made
//! smaller and put into a test. [`run`] plays it, [`judge`] says whether what came of it is right,
//! and the rest looks for trials that are not: by seeds, or by going through every fault.

mod body;
mod conformance;
mod drawer;
mod explore;
mod judge;
mod shrink;

use std::fmt;

use crate::defects::Defect;
use crate::members::Rank;
use crate::random::SplitMix;
use crate::sort::PivotRule;
use crate::transport::Repair;
use crate::transport::sim::Loss;

pub use body::{Commit, Outcome, Run, run};
pub use conformance::{CASES, Case};
pub use explore::{Exhaustion, Range, catch, draw, exhaust};
pub use judge::judge;
pub use shrink::shrink;

/// Where versions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Nowhere.
    None,
    /// Inputs in the memory of so many other ranks.
    Memory(usize),
    /// Every version in the memory of so many other ranks.
    Versions(usize),
    /// Nowhere, but inputs can be got again.
    Reload,
    /// In files that everybody sees.
    Directory,
}

/// All that decides a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// How many ranks.
    pub ranks: usize,
    /// Decides the inputs and every interleaving.
    pub seed: u64,
    /// The most records of a rank.
    pub records: usize,
    /// How many different keys.
    pub keys: u32,
    /// How pivots are found.
    pub pivot: PivotRule,
    /// The store.
    pub store: Keeping,
    /// How faults are repaired.
    pub repair: Repair,
    /// On how many hosts the ranks are, in turn.
    pub hosts: usize,
    /// How many sorts, one after the other, with one group.
    pub sorts: usize,
    /// How many ranks must be left.
    pub quorum: usize,
    /// Files of lost ranks may be damaged.
    pub rot: bool,
    /// A defect that is planted.
    pub plant: Option<Defect>,
    /// The faults.
    pub losses: Vec<Loss>,
}

impl Trial {
    /// The records that a rank brings to one of the sorts: some none, some few, some all alike.
    pub fn input(&self, sort: usize, rank: Rank) -> Vec<i32> {
        let mut draw = SplitMix::new(self.seed ^ (sort as u64 + 1) << 32 ^ u64::from(rank.0) << 40);
        let most = self.records as u64 + 1;
        let count = match draw.below(4) {
            0 => draw.below(most.min(3)),
            1 => most - 1,
            _ => draw.below(most),
        };
        let key = |draw: &mut SplitMix| draw.below(u64::from(self.keys)) as i32 - 3;
        (0..count).map(|_| key(&mut draw)).collect()
    }

    /// Reads what `to_string` gave.
    pub fn parse(text: &str) -> Option<Trial> {
        let mut trial = Trial::default();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=')?;
            match name {
                "ranks" => trial.ranks = value.parse().ok()?,
                "seed" => trial.seed = value.parse().ok()?,
                "records" => trial.records = value.parse().ok()?,
                "keys" => trial.keys = value.parse().ok()?,
                "hosts" => trial.hosts = value.parse().ok()?,
                "plant" => {
                    let name = |defect: &&Defect| format!("{defect:?}") == value;
                    trial.plant = Some(*Defect::ALL.iter().find(name)?);
                }
                "quorum" => trial.quorum = value.parse().ok()?,
                "rot" => trial.rot = value == "1",
                "sorts" => trial.sorts = value.parse().ok()?,
                "pivot" => trial.pivot = named(&PIVOTS, value)?,
                "repair" => trial.repair = named(&REPAIRS, value)?,
                "store" => trial.store = read_keeping(value)?,
                "lose" => {
                    let losses = value.split(',').map(Loss::parse);
                    trial.losses = losses.collect::<Option<_>>()?;
                }
                _ => return None,
            }
        }
        Some(trial)
    }
}

impl Default for Trial {
    fn default() -> Trial {
        Trial {
            ranks: 4,
            seed: 1,
            records: 20,
            keys: 30,
            pivot: PivotRule::Sampled,
            store: Keeping::Memory(1),
            repair: Repair::Agree,
            hosts: 1,
            sorts: 1,
            quorum: 1,
            rot: false,
            plant: None,
            losses: Vec::new(),
        }
    }
}

const PIVOTS: [(PivotRule, &str); 2] = [
    (PivotRule::Sampled, "sampled"),
    (PivotRule::RootMedian, "root_median"),
];
const REPAIRS: [(Repair, &str); 2] = [(Repair::Agree, "agree"), (Repair::Shrink, "shrink")];

fn named<T: Copy>(names: &[(T, &str)], text: &str) -> Option<T> {
    let found = names.iter().find(|(_, name)| *name == text);
    found.map(|(value, _)| *value)
}

fn name_of<T: PartialEq>(names: &[(T, &'static str)], value: T) -> &'static str {
    let found = names.iter().find(|(other, _)| *other == value);
    found.map_or("?", |(_, name)| name)
}

/// Reads the name of a store, as in a trial's line.
pub fn read_keeping(text: &str) -> Option<Keeping> {
    Some(match text.split_once(':') {
        Some(("memory", copies)) => Keeping::Memory(copies.parse().ok()?),
        Some(("versions", copies)) => Keeping::Versions(copies.parse().ok()?),
        None if text == "reload" => Keeping::Reload,
        None if text == "none" => Keeping::None,
        None if text == "directory" => Keeping::Directory,
        _ => return None,
    })
}

impl fmt::Display for Keeping {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keeping::None => out.write_str("none"),
            Keeping::Memory(copies) => write!(out, "memory:{copies}"),
            Keeping::Versions(copies) => write!(out, "versions:{copies}"),
            Keeping::Reload => out.write_str("reload"),
            Keeping::Directory => out.write_str("directory"),
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "ranks={} seed={} records={} keys={} pivot={} store={} repair={} hosts={} sorts={}",
            self.ranks,
            self.seed,
            self.records,
            self.keys,
            name_of(&PIVOTS, self.pivot),
            self.store,
            name_of(&REPAIRS, self.repair),
            self.hosts,
            self.sorts,
        )?;
        if let Some(defect) = self.plant {
            write!(out, " plant={defect:?}")?;
        }
        if self.quorum > 1 {
            write!(out, " quorum={}", self.quorum)?;
        }
        if self.rot {
            out.write_str(" rot=1")?;
        }
        for (index, loss) in self.losses.iter().enumerate() {
            let before = if index == 0 { " lose=" } else { "," };
            write!(out, "{before}{loss}")?;
        }
        Ok(())
    }
}

//! Trials: whole sorts on simulated ranks, with faults, judged. Only with the feature `simulator`.
//!
//! A [`Trial`] is a value: all that decides a run, in one line that can be printed, read, made
//! smaller and put into a test. [`run`] plays it, [`judge`] says whether what came of it is right,
//! and the rest looks for trials that are not: by seeds, or by going through every fault. Apart from
//! all that, [`tree`] counts what a paper claims of its trees.

mod conformance;
mod custom_loop;
mod explore;
mod oracle;
mod rank_main;
mod scripted_policy;
mod shrink;
mod tree_op;

use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::transport::Loss;
use ftsort_core::members::Rank;
use ftsort_core::mutants::Mutant;
use ftsort_core::sort::{Method, PivotRule, Shape, Splitters};
use ftsort_core::transport::Repair;
use ftsort_kernels::random::SplitMix;

pub use conformance::{CASES, Case};
pub use explore::{Exhaustion, Failing, Range, catch, draw, exhaust};
pub use oracle::judge;
pub use rank_main::{Commit, Outcome, Run, run};
pub use scripted_policy::{Speed, Turn};
pub use shrink::shrink;
pub use tree_op::Use;

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

/// A record of a trial. Those that are not tagged are their keys alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
pub struct Record {
    /// What it is sorted by.
    pub key: i32,
    /// Where it comes from.
    pub tag: u32,
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
    /// The sort.
    pub algorithm: Method,
    /// Survivors are to get equal parts.
    pub dense: bool,
    /// Records are more than their keys: a tag tells where each comes from.
    pub tagged: bool,
    /// The store.
    pub store: Keeping,
    /// How faults are repaired.
    pub repair: Repair,
    /// On how many hosts the ranks are, in turn.
    pub hosts: usize,
    /// How many sorts, one after the other, with one group.
    pub sorts: usize,
    /// Instead of a sort, a loop of the caller's own that sorts with checkpoints.
    pub own: bool,
    /// Blocks are checked by digests.
    pub checks: bool,
    /// What is changed of the data, in the words of a schedule of faults.
    pub spoils: Vec<String>,
    /// Who is left out and taken back, if there are advisers.
    pub turns: Vec<Turn>,
    /// How work is shared, if there are advisers.
    pub speeds: Vec<Speed>,
    /// Who is slow is left out only where that pays.
    pub gain: bool,
    /// Instead of a sort, a tree.
    pub tree: Option<Use>,
    /// The rank that the tree leads to, or comes from.
    pub sink: Option<Rank>,
    /// The pairs of ranks between which the tree must not send.
    pub links: Vec<(Rank, Rank)>,
    /// How many ranks must be left.
    pub quorum: usize,
    /// Files of lost ranks may be damaged.
    pub rot: bool,
    /// A defect that is mutant.
    pub set_mutant: Option<Mutant>,
    /// The faults.
    pub losses: Vec<Loss>,
}

impl Trial {
    /// The records that a rank brings to one of the sorts.
    pub fn records(&self, sort: usize, rank: Rank) -> Vec<Record> {
        let keys = self.input(sort, rank).into_iter();
        let tag = |index: usize| match self.tagged {
            true => rank.0 << 20 | index as u32,
            false => 0,
        };
        keys.enumerate()
            .map(|(index, key)| Record {
                key,
                tag: tag(index),
            })
            .collect()
    }

    /// Their keys: some none, some few, some all alike; where
    /// they must be a bitonic sequence, equally many.
    fn input(&self, sort: usize, rank: Rank) -> Vec<i32> {
        if self.algorithm == Method::Bitonic(Shape::Bitonic) {
            let all = (self.records * self.ranks) as u64;
            let start = (self.records * rank.index()) as u64;
            // Up to the middle, and down again; the beginning is somewhere.
            let place = |index: u64| (index + start + self.seed % (all + 1)) % all;
            let height =
                |index: u64| place(index).min(all - place(index)) * u64::from(self.keys) / all;
            return (0..self.records as u64)
                .map(|index| height(index) as i32)
                .collect();
        }
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
                "set_mutant" => {
                    let name = |defect: &&Mutant| format!("{defect:?}") == value;
                    trial.set_mutant = Some(*Mutant::ALL.iter().find(name)?);
                }
                "quorum" => trial.quorum = value.parse().ok()?,
                "checks" => trial.checks = value == "1",
                "corrupt" => trial.spoils = value.split(',').map(str::to_string).collect(),
                "turns" => {
                    let turns = value.split(',').map(Turn::parse);
                    trial.turns = turns.collect::<Option<_>>()?;
                }
                "speeds" => {
                    let speeds = value.split(',').map(Speed::parse);
                    trial.speeds = speeds.collect::<Option<_>>()?;
                }
                "gain" => trial.gain = value == "1",
                "own" => trial.own = value == "1",
                "tree" => trial.tree = Some(named(&USES, value)?),
                "sink" => trial.sink = Some(Rank(value.parse().ok()?)),
                "links" => {
                    let links = value.split(',').map(read_link);
                    trial.links = links.collect::<Option<_>>()?;
                }
                "rot" => trial.rot = value == "1",
                "sorts" => trial.sorts = value.parse().ok()?,
                "algorithm" => trial.algorithm = named(&METHODS, value)?,
                "dense" => trial.dense = value == "1",
                "tagged" => trial.tagged = value == "1",
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
            algorithm: Method::HyperQuickSort(PivotRule::Sampled),
            dense: false,
            tagged: false,
            store: Keeping::Memory(1),
            repair: Repair::Agree,
            hosts: 1,
            sorts: 1,
            own: false,
            checks: false,
            spoils: Vec::new(),
            turns: Vec::new(),
            speeds: Vec::new(),
            gain: false,
            tree: None,
            sink: None,
            links: Vec::new(),
            quorum: 1,
            rot: false,
            set_mutant: None,
            losses: Vec::new(),
        }
    }
}

const METHODS: [(Method, &str); 9] = [
    (Method::SampleSort, "samplesort"),
    (Method::HyperQuickSort(PivotRule::Sampled), "hyperquicksort"),
    (
        Method::HyperQuickSort(PivotRule::Paper),
        "hyperquicksort_paper",
    ),
    (Method::QuickMerge(Splitters::Sampled), "quickmerge"),
    (Method::QuickMerge(Splitters::Root), "quickmerge_paper"),
    (
        Method::QuickMerge(Splitters::Averaged),
        "quickmerge_modified",
    ),
    (Method::Bitonic(Shape::Any), "bitonic"),
    (Method::Bitonic(Shape::Bitonic), "bitonic_merge"),
    (Method::SftBitonic, "reliable"),
];
const USES: [(Use, &str); 3] = [
    (Use::Merge, "merge"),
    (Use::Broadcast, "broadcast"),
    (Use::Collect, "collect"),
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

fn read_link(text: &str) -> Option<(Rank, Rank)> {
    let (one, other) = text.split_once('-')?;
    Some((Rank(one.parse().ok()?), Rank(other.parse().ok()?)))
}

/// Reads the name of a sort, as in a trial's line.
pub fn read_method(text: &str) -> Option<Method> {
    named(&METHODS, text)
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
            "ranks={} seed={} records={} keys={} algorithm={} store={} repair={} hosts={} sorts={}",
            self.ranks,
            self.seed,
            self.records,
            self.keys,
            name_of(&METHODS, self.algorithm),
            self.store,
            name_of(&REPAIRS, self.repair),
            self.hosts,
            self.sorts,
        )?;
        if let Some(defect) = self.set_mutant {
            write!(out, " set_mutant={defect:?}")?;
        }
        if self.dense {
            out.write_str(" dense=1")?;
        }
        if self.tagged {
            out.write_str(" tagged=1")?;
        }
        if self.checks {
            out.write_str(" checks=1")?;
        }
        if !self.spoils.is_empty() {
            write!(out, " corrupt={}", self.spoils.join(","))?;
        }
        for (index, turn) in self.turns.iter().enumerate() {
            let before = if index == 0 { " turns=" } else { "," };
            write!(out, "{before}{turn}")?;
        }
        for (index, speed) in self.speeds.iter().enumerate() {
            let before = if index == 0 { " speeds=" } else { "," };
            write!(out, "{before}{speed}")?;
        }
        if self.gain {
            out.write_str(" gain=1")?;
        }
        if self.own {
            out.write_str(" own=1")?;
        }
        if let Some(what) = self.tree {
            write!(out, " tree={}", name_of(&USES, what))?;
        }
        if let Some(sink) = self.sink {
            write!(out, " sink={sink}")?;
        }
        for (index, (one, other)) in self.links.iter().enumerate() {
            let before = if index == 0 { " links=" } else { "," };
            write!(out, "{before}{one}-{other}")?;
        }
        if self.quorum != 1 {
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

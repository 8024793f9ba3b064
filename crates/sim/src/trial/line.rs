//! A trial as one line of words `NAME=VALUE`.
//!
//! Older names of words are still read: `lose` for `failures`, `turns` for `exclusions`, `own` for `loop`, `rot` for
//! `damage`, `spoil` for `corrupt`, and `plant` or `set_mutant` for `mutant`.

use std::fmt;

use super::{Observation, Refusal, SpeedChange, StoreKind, TreeUse, Trial};
use crate::transport::Failure;
use ftsort_core::members::Rank;
use ftsort_core::mutants::Mutant;
use ftsort_core::sort::{Method, PivotRule, Shape, Splitters};
use ftsort_core::transport::{ProtocolConfig, Repair};

pub const METHODS: [(Method, &str); 11] = [
    (Method::SampleSort(1), "samplesort"),
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
    (Method::SampleSort(2), "samplesort_2"),
    (Method::SampleSort(3), "samplesort_3"),
];
const TREE_USES: [(TreeUse, &str); 3] = [
    (TreeUse::Merge, "merge"),
    (TreeUse::Broadcast, "broadcast"),
    (TreeUse::Collect, "collect"),
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

/// Returns the name of a sort, as it is written in a trial's line.
pub fn method_name(method: Method) -> &'static str {
    name_of(&METHODS, method)
}

/// Parses the name of a sort, as it is written in a trial's line.
pub fn read_method(text: &str) -> Option<Method> {
    named(&METHODS, text)
}

fn read_link(text: &str) -> Option<(Rank, Rank)> {
    let (one, other) = text.split_once('-')?;
    Some((Rank(one.parse().ok()?), Rank(other.parse().ok()?)))
}

fn read_mutant(text: &str) -> Option<Mutant> {
    let has_name = |mutant: &&Mutant| format!("{mutant:?}") == text;
    Mutant::ALL.iter().find(has_name).copied()
}

/// Parses a list that is separated by commas.
fn read_list<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    text.split(',').map(read).collect()
}

/// The words that are written.
const WORDS: &str = "ranks, seed, records, arrays, keys, algorithm, store, repair, fan_out, hosts, sorts, protects, \
                     updates, recoveries, gathers, samplers, divides, mutant, dense, tagged, checks, reloads, lies, corrupt, \
                     exclusions, speeds, gain, loop, tree, sink, links, quorum, spares, damage, power, sync, timed, \
                     wrong_words, refuse, failures";

/// The words that are only read.
const OLD_WORDS: &str = "lose, turns, own, rot, spoil, plant, set_mutant";

impl Trial {
    /// Parses the form that `to_string` writes. The error names the word that is not understood.
    pub fn parse(text: &str) -> Result<Trial, String> {
        let mut trial = Trial::default();
        for word in text.split_whitespace() {
            let Some((name, value)) = word.split_once('=') else {
                return Err(format!("trial: {word:?} is not of the form NAME=VALUE"));
            };
            let is_in = |words: &str| words.split(", ").any(|word| word == name);
            if !is_in(WORDS) && !is_in(OLD_WORDS) {
                return Err(format!("trial: {name:?} is not one of {WORDS}"));
            }
            let read = trial.read(name, value);
            read.ok_or_else(|| format!("trial: {value:?} is not a value of {name}"))?;
        }
        Ok(trial)
    }

    fn read(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "ranks" => self.ranks = value.parse().ok()?,
            "seed" => self.seed = value.parse().ok()?,
            "records" => self.records = value.parse().ok()?,
            "arrays" => self.arrays = value.parse().ok()?,
            "keys" => self.keys = value.parse().ok()?,
            "algorithm" => self.algorithm = named(&METHODS, value)?,
            "store" => self.store = StoreKind::parse(value)?,
            "repair" => self.repair = named(&REPAIRS, value)?,
            "fan_out" => self.fan_out = value.parse().ok()?,
            "hosts" => self.hosts = value.parse().ok()?,
            "sorts" => self.sorts = value.parse().ok()?,
            "protects" => self.protects = value.parse().ok()?,
            "updates" => self.updates = value.parse().ok()?,
            "recoveries" => self.recoveries = value.parse().ok()?,
            "gathers" => self.gathers = value == "1",
            "samplers" => self.samplers = value.parse().ok()?,
            "divides" => self.divides = value.parse().ok()?,
            "mutant" | "set_mutant" | "plant" => self.mutant = Some(read_mutant(value)?),
            "dense" => self.dense = value == "1",
            "tagged" => self.tagged = value == "1",
            "checks" => self.checks = value == "1",
            "reloads" => self.reloads = value == "1",
            "lies" => self.lies = value == "1",
            "corrupt" | "spoil" => {
                self.corruptions = value.split(',').map(str::to_string).collect();
            }
            "exclusions" | "turns" => self.exclusions = read_list(value, Observation::parse)?,
            "speeds" => self.speeds = read_list(value, SpeedChange::parse)?,
            "gain" => self.gain = value == "1",
            "loop" | "own" => self.custom_loop = value == "1",
            "tree" => self.tree = Some(named(&TREE_USES, value)?),
            "sink" => self.sink = Some(Rank(value.parse().ok()?)),
            "links" => self.links = read_list(value, read_link)?,
            "spares" => self.spares = value.parse().ok()?,
            "quorum" => self.quorum = value.parse().ok()?,
            "damage" | "rot" => self.damage = value == "1",
            "power" => self.power = value == "1",
            "sync" => self.sync = value == "1",
            "timed" => self.timed = value == "1",
            "wrong_words" => self.wrong_words = value == "1",
            "refuse" => self.refusals = read_list(value, Refusal::parse)?,
            "failures" | "lose" => self.failures = read_list(value, Failure::parse)?,
            _ => return None,
        }
        Some(())
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
        for (name, count) in [
            ("arrays", self.arrays),
            ("protects", self.protects),
            ("updates", self.updates),
            ("recoveries", self.recoveries),
            ("samplers", self.samplers),
            ("divides", self.divides),
        ] {
            if count > 0 {
                write!(out, " {name}={count}")?;
            }
        }
        if self.fan_out != ProtocolConfig::FAN_OUT {
            write!(out, " fan_out={}", self.fan_out)?;
        }
        write_flag(out, "gathers", self.gathers)?;
        if let Some(mutant) = self.mutant {
            write!(out, " mutant={mutant:?}")?;
        }
        write_flag(out, "dense", self.dense)?;
        write_flag(out, "tagged", self.tagged)?;
        write_flag(out, "checks", self.checks)?;
        write_flag(out, "reloads", self.reloads)?;
        write_flag(out, "lies", self.lies)?;
        write_list(out, "corrupt", &self.corruptions)?;
        write_list(out, "exclusions", &self.exclusions)?;
        write_list(out, "speeds", &self.speeds)?;
        write_flag(out, "gain", self.gain)?;
        write_flag(out, "loop", self.custom_loop)?;
        if let Some(tree) = self.tree {
            write!(out, " tree={}", name_of(&TREE_USES, tree))?;
        }
        if let Some(sink) = self.sink {
            write!(out, " sink={sink}")?;
        }
        let links = self
            .links
            .iter()
            .map(|(one, other)| format!("{one}-{other}"));
        write_list(out, "links", &links.collect::<Vec<_>>())?;
        if self.quorum != 1 {
            write!(out, " quorum={}", self.quorum)?;
        }
        if self.spares != 0 {
            write!(out, " spares={}", self.spares)?;
        }
        write_flag(out, "damage", self.damage)?;
        write_flag(out, "power", self.power)?;
        write_flag(out, "sync", self.sync)?;
        write_flag(out, "timed", self.timed)?;
        write_flag(out, "wrong_words", self.wrong_words)?;
        write_list(out, "refuse", &self.refusals)?;
        write_list(out, "failures", &self.failures)
    }
}

fn write_flag(out: &mut fmt::Formatter<'_>, name: &str, flag: bool) -> fmt::Result {
    if flag {
        write!(out, " {name}=1")?;
    }
    Ok(())
}

fn write_list<T: fmt::Display>(
    out: &mut fmt::Formatter<'_>,
    name: &str,
    values: &[T],
) -> fmt::Result {
    for (index, value) in values.iter().enumerate() {
        if index == 0 {
            write!(out, " {name}={value}")?;
        } else {
            write!(out, ",{value}")?;
        }
    }
    Ok(())
}

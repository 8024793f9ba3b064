//! The configuration of a group, and the agreement on it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use twox_hash::XxHash3_64;

use crate::engine::{CollectiveError, CollectiveResult, Engine};
use crate::faults::Plan;
use crate::sort::{DivideFirst, Method};
use crate::store::directory::Files;
use crate::store::parity::ParityShape;
use crate::transport::{Repair, Timeout};
use ftsort_kernels::error::{Error, Result, refuse};
use ftsort_kernels::kernel::Threads;

/// Opens the directory that all ranks see. Called once for each kind of data that a group stores.
pub type OpenDirectory = Rc<dyn Fn() -> Box<dyn Files>>;

/// Where the redundancy of inputs, versions and states is kept.
#[derive(Clone)]
pub enum StoreChoice {
    /// In the memory of this many other ranks; 0 stores nothing.
    Memory(usize),
    /// As shares of an erasure code over groups of ranks, in their memory.
    Parity(ParityShape),
    /// In files of a directory that all ranks see.
    Directory(OpenDirectory),
}

impl fmt::Debug for StoreChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreChoice::Memory(replicas) => write!(out, "Memory({replicas})"),
            StoreChoice::Parity(shape) => write!(out, "{shape:?}"),
            StoreChoice::Directory(_) => out.write_str("Directory"),
        }
    }
}

/// Which data are checked against corruption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DataChecks {
    /// Every block is compared with a digest of its records, from the input to the result.
    pub digest: bool,
    /// The functions of user-defined algorithms are called twice and must return the same bytes.
    pub purity: bool,
}

/// How a group works. The default sorts with the best algorithm and keeps one replica of every input.
///
/// `method`, `store` (but for the directory's path), `repair`, `dense`, `checks`, `min_survivors`, `spares`,
/// `release_after_run`, and whether there is a timeout are the same on all ranks; the rest may differ.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// The sorting algorithm; None: the fastest for the number of ranks and the size.
    pub method: Option<Method>,
    /// Where redundancy is kept.
    pub store: StoreChoice,
    /// How the survivors come to know the same failed ranks.
    pub repair: Repair,
    /// Each survivor gets one block, all of the same size but for one record.
    pub dense: bool,
    /// Which data are checked.
    pub checks: DataChecks,
    /// The threads for local work.
    pub threads: Threads,
    /// When a call gives ranks up that show no sign of life, with [`Status::Mpi`](ftsort_kernels::error::Status::Mpi).
    pub timeout: Timeout,
    /// Bytes that blocks and messages of this group may take; 0: the rank's share of its host's memory.
    pub memory_limit: usize,
    /// The group goes on only as long as this many ranks survive; 0 and 1: one.
    pub min_survivors: usize,
    /// The redundancy of a job is released at its end, so that a rank that fails later takes its part of the result
    /// along.
    pub release_after_run: bool,
    /// The highest ranks execute no node and have no input, until they take over from failed ranks.
    pub spares: usize,
    /// Which inputs sample sort divides before it sorts them: a matter of time alone. None where blocks are checked.
    pub divide_first: DivideFirst,
    /// Failures to inject, for tests and experiments.
    pub failures: Plan,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            method: None,
            store: StoreChoice::Memory(1),
            repair: Repair::Agree,
            dense: false,
            checks: DataChecks::default(),
            threads: Threads::Fixed(1),
            timeout: Timeout::Default,
            memory_limit: 0,
            min_survivors: 0,
            release_after_run: false,
            spares: 0,
            divide_first: DivideFirst::IfFaster,
            failures: Plan::default(),
        }
    }
}

impl GroupConfig {
    /// `Status::Argument` if the members contradict each other, or a group of this many ranks.
    pub fn check(&self, ranks: usize) -> Result<()> {
        if self.min_survivors > ranks {
            return refuse(format!(
                "config.min_survivors is {}, but comm has {ranks} ranks",
                self.min_survivors
            ));
        }
        if self.spares >= ranks {
            return refuse(format!(
                "config.spares is {}, but comm has {ranks} ranks, of which at least one must have a node: set \
                 config.spares to at most {}",
                self.spares,
                ranks - 1
            ));
        }
        if let StoreChoice::Parity(shape) = self.store {
            ParityShape::new(shape.shares, shape.group)?;
        }
        self.timeout.check()?;
        if let Timeout::Seconds(timeout) = self.timeout
            && self.repair == Repair::Shrink
        {
            return refuse(format!(
                "the timeout is {timeout} seconds, but the barriers of Repair::Shrink have none: use Timeout::Never or Repair::Agree"
            ));
        }
        Ok(())
    }

    /// The members that must be the same on all ranks, as hashes.
    pub(super) fn shared(&self, reloads: bool) -> Vec<(&'static str, u64)> {
        let store = match &self.store {
            StoreChoice::Memory(replicas) => hash_of(replicas),
            StoreChoice::Parity(shape) => hash_of(shape),
            StoreChoice::Directory(_) => hash_of(usize::MAX),
        };
        vec![
            (
                "config.algorithm, config.pivot or the checks of 1989 in config.checks",
                hash_of(self.method),
            ),
            ("config.store, replicas, parity or parity_group", store),
            ("the presence of config.reload", u64::from(reloads)),
            ("config.repair", self.repair as u64),
            ("config.dense", u64::from(self.dense)),
            ("config.checks", hash_of(self.checks)),
            ("config.min_survivors", self.min_survivors.max(1) as u64),
            ("config.spares", self.spares as u64),
            (
                "the presence of a timeout",
                u64::from(self.timeout == Timeout::Never),
            ),
            (
                "config.release_after_run",
                u64::from(self.release_after_run),
            ),
        ]
    }
}

/// A hash that is the same on all ranks for equal values.
pub fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = XxHash3_64::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Fails on all ranks alike unless all hold the same values, and names the arguments that differ. Collective.
pub(super) fn agree_on_equal(
    engine: &mut Engine<'_>,
    values: &[(&str, u64)],
) -> CollectiveResult<()> {
    let whole = match values {
        [(_, value)] => *value,
        _ => hash_of(values.iter().map(|(_, value)| *value).collect::<Vec<_>>()),
    };
    if engine.all_equal(whole)? {
        return Ok(());
    }
    let mut different = Vec::new();
    for (name, value) in values.iter().filter(|_| values.len() > 1) {
        if !engine.all_equal(*value)? {
            different.push(*name);
        }
    }
    if different.is_empty() {
        // There is only one, or the rank with another value has failed since.
        different = values.iter().map(|(name, _)| *name).collect();
    }
    Err(CollectiveError::alike(unequal(&different)))
}

/// The error of a call with arguments that differ between ranks.
pub(super) fn unequal(names: &[&str]) -> Error {
    let verb = if names.len() > 1 { "are" } else { "is" };
    Error::argument(format!(
        "{} {verb} not the same on all ranks",
        names.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_kernels::error::Status;
    use std::collections::BTreeSet;

    #[test]
    fn a_timeout_is_a_time() {
        let checked = |seconds| {
            let timeout = Timeout::Seconds(seconds);
            let config = GroupConfig {
                timeout,
                ..GroupConfig::default()
            };
            config.check(2).map_err(|error| error.status)
        };
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(checked(seconds), Err(Status::Argument), "{seconds}");
        }
        assert_eq!(checked(1e-3), Ok(()));
    }

    #[test]
    fn every_setting_that_ranks_share_is_compared() {
        let with = |change: fn(&mut GroupConfig)| {
            let mut config = GroupConfig::default();
            change(&mut config);
            config
        };
        let configs = [
            with(|_| {}),
            with(|config| config.method = Some(Method::SampleSort(1))),
            with(|config| config.repair = Repair::Shrink),
            with(|config| config.dense = true),
            with(|config| config.checks.digest = true),
            with(|config| config.checks.purity = true),
            with(|config| config.min_survivors = 2),
            with(|config| config.spares = 1),
            with(|config| config.timeout = Timeout::Never),
            with(|config| config.release_after_run = true),
            with(|config| config.store = StoreChoice::Memory(2)),
            with(|config| config.store = StoreChoice::Parity(ParityShape::new(1, 8).unwrap())),
            with(|config| config.store = StoreChoice::Directory(Rc::new(|| unreachable!()))),
        ];
        let mut shared: BTreeSet<_> = configs.iter().map(|one| one.shared(false)).collect();
        shared.insert(configs[0].shared(true));
        assert_eq!(shared.len(), configs.len() + 1);
        // 0 and 1 survivors have the same meaning.
        let least = with(|config| config.min_survivors = 1);
        assert_eq!(least.shared(false), configs[0].shared(false));
    }
}

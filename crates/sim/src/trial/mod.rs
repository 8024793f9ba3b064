//! Trials: whole jobs on simulated ranks, with failures, and an oracle for their results.
//!
//! A [`Trial`] is one value that decides everything that happens in a run. It is written as one line, which can be
//! printed, parsed, made smaller and put into a test. [`run`] runs it and [`judge`] says whether the result is
//! correct. [`draw`] and [`exhaust`] look for trials with wrong results: with random seeds, or with every failure.

mod completeness;
mod conformance;
mod copy_loss;
mod custom_loop;
mod disordered;
mod draw;
mod early_loss;
mod explore;
mod line;
mod many;
mod oracle;
#[cfg(test)]
mod oracle_tests;
mod parity_loss;
mod run;
mod scripted_policy;
mod shrink;
mod spare_checks;
mod tree_checks;
mod tree_op;
mod unreported;
mod update;

use bytemuck::{Pod, Zeroable};

use crate::transport::Failure;
use ftsort_core::members::Rank;
use ftsort_core::mutants::Mutant;
use ftsort_core::sort::{DivideFirst, Method, PivotRule, Shape};
use ftsort_core::transport::{ProtocolConfig, Repair};
use ftsort_kernels::random::SplitMix;

pub use crate::harness::{CommitRecord, StoreKind};
pub use crate::refusal::Refusal;
pub use conformance::{CONFORMANCE_CASES, ConformanceCase};
pub use draw::{TrialRange, draw};
pub use explore::{ExhaustiveSearch, FailingTrial, catch, exhaust};
pub use line::{method_name, read_method};
pub use oracle::judge;
pub use run::{RankResult, ResultBlock, SortOutcome, TrialRun, run};
pub use scripted_policy::{Observation, SpeedChange};
pub use shrink::shrink;
pub use tree_op::TreeUse;

/// A record of a trial. If the trial's records are not tagged, only the key is sorted.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
pub struct TestRecord {
    /// The sort key.
    pub key: i32,
    /// The rank and the position of the record in the input.
    pub tag: u32,
}

/// The values that decide a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The number of ranks.
    pub ranks: usize,
    /// Decides the inputs and every interleaving.
    pub seed: u64,
    /// The largest number of records of a rank.
    pub records: usize,
    /// The number of arrays that are sorted in one job; 0: an ordinary sort.
    pub arrays: usize,
    /// The number of different keys.
    pub keys: u32,
    /// The sort.
    pub algorithm: Method,
    /// Whether the survivors get equal parts of the result. For a tree: whether messages take detours where a
    /// neighbour could help.
    pub dense: bool,
    /// Whether records have a tag besides their key. For a tree: whether the order of nodes matters.
    pub tagged: bool,
    /// The store.
    pub store: StoreKind,
    /// The way in which failures are repaired.
    pub repair: Repair,
    /// The number of ranks with which a rank exchanges control messages in one step, where they go along trees.
    pub fan_out: usize,
    /// The number of hosts, to which the ranks are assigned in turn. With more than one, a tree tests its links
    /// first.
    pub hosts: usize,
    /// The number of jobs that the group runs one after the other.
    pub sorts: usize,
    /// How many times each sort runs on an input that is protected before; 0: the input is not protected before.
    pub protects: usize,
    /// How many times the protected input is replaced before it is sorted.
    pub updates: usize,
    /// How many times the result of each sort is recovered after failures.
    pub recoveries: usize,
    /// Whether the ranks give their inputs to all others first, and need no rounds if none fails. It has an effect only
    /// where a group would do so ([`Trial::may_gather`]).
    pub gathers: bool,
    /// Of the ranks that gather inputs, those whose number is a multiple of this give samples to the ranks that hold no
    /// copies; 0: none.
    pub samplers: usize,
    /// The ranks whose number is a multiple of this divide their inputs before they sort them; 0: none. It has an effect only
    /// where a group would do so ([`Trial::divide_first`]).
    pub divides: usize,
    /// Whether the job is a loop of the program's own that sorts with checkpoints.
    pub custom_loop: bool,
    /// Whether blocks are checked by digests.
    pub checks: bool,
    /// Whether a callback loads inputs again, beside a store with redundancy.
    pub reloads: bool,
    /// Whether the callback that loads inputs again returns wrong ones.
    pub lies: bool,
    /// The corruptions to inject, each in the words of a schedule.
    pub corruptions: Vec<String>,
    /// The observations at which a rank begins to count as slow, or as fast again, for a placement policy.
    pub exclusions: Vec<Observation>,
    /// The changes of the ranks' speeds, for a placement policy.
    pub speeds: Vec<SpeedChange>,
    /// Whether a slow rank is excluded only if that saves time. In a tree: whether nodes divide their data among
    /// neighbours.
    pub gain: bool,
    /// The use of a tree in place of a sort.
    pub tree: Option<TreeUse>,
    /// The rank at which a tree ends, or begins.
    pub sink: Option<Rank>,
    /// The pairs of ranks between which a tree must not send.
    pub links: Vec<(Rank, Rank)>,
    /// The number of ranks that must survive.
    pub quorum: usize,
    /// The number of spares, the highest ranks; at least one rank has a node.
    pub spares: usize,
    /// Whether files of failed ranks may be damaged.
    pub damage: bool,
    /// Whether every rank is a host whose power fails with it: files that it has not synced may be lost.
    pub power: bool,
    /// Whether ranks sync their files.
    pub sync: bool,
    /// Whether waits end by the default timeout.
    pub timed: bool,
    /// Whether agreements have wrong results at times, as in programs with threads, the same on all ranks.
    pub wrong_words: bool,
    /// The mutant that is switched on.
    pub mutant: Option<Mutant>,
    /// The failures to inject.
    pub failures: Vec<Failure>,
    /// The actions that are refused: allocations, accesses to files, and callbacks.
    pub refusals: Vec<Refusal>,
}

/// More than the number of jobs of a trial.
const OTHER_RECORDS: usize = 1000;

impl Trial {
    /// The host of a rank.
    pub fn host(&self, rank: Rank) -> u64 {
        (rank.index() % self.hosts.max(1)) as u64
    }

    /// Whether inputs can be loaded again.
    pub fn can_reload(&self) -> bool {
        self.reloads || self.store == StoreKind::Reload
    }

    /// Whether lost blocks can be made again from inputs.
    pub fn is_recomputable(&self) -> bool {
        !matches!(self.algorithm, Method::Bitonic(_) | Method::SftBitonic)
    }

    /// Whether the ranks gather their inputs.
    pub fn may_gather(&self) -> bool {
        let has_copies = matches!(self.store, StoreKind::None | StoreKind::Memory(_));
        let is_plain_sort = self.algorithm == Method::SampleSort(1)
            && !(self.dense || self.checks || self.custom_loop)
            && self.tree.is_none();
        let has_policy = !(self.exclusions.is_empty() && self.speeds.is_empty());
        let is_injected = !self.corruptions.is_empty();
        self.gathers
            && has_copies
            && !self.reloads
            && is_plain_sort
            && self.protects == 0
            && self.arrays == 0
            && !has_policy
            && !is_injected
    }

    /// Whether a rank that gathers inputs gives samples to the ranks that hold no copies of its input.
    pub fn is_sampler(&self, rank: Rank) -> bool {
        self.samplers > 0 && rank.index().is_multiple_of(self.samplers)
    }

    /// Which inputs a rank divides before it sorts them.
    pub fn divide_first(&self, rank: Rank) -> DivideFirst {
        let needs_order = self.dense || self.tagged || self.checks || self.arrays > 0;
        if self.divides == 0 || needs_order || !self.corruptions.is_empty() {
            return DivideFirst::Never;
        }
        match rank.index().is_multiple_of(self.divides) {
            true => DivideFirst::From(1),
            false => DivideFirst::From(usize::MAX),
        }
    }

    /// The fingerprint of a job in which ranks gather inputs.
    pub fn fingerprint(&self, job: usize) -> u64 {
        !self.seed.rotate_left(job as u32)
    }

    /// The input of a rank in one of the jobs.
    pub fn records(&self, job: usize, rank: Rank) -> Vec<TestRecord> {
        let keys = self.keys(job, rank).into_iter();
        let tag = |index: usize| {
            if self.tagged {
                rank.0 << 20 | index as u32
            } else {
                0
            }
        };
        keys.enumerate()
            .map(|(index, key)| TestRecord {
                key,
                tag: tag(index),
            })
            .collect()
    }

    /// A version of a rank's protected input; the last one is the input of the job.
    pub fn version_of_records(&self, job: usize, rank: Rank, version: usize) -> Vec<TestRecord> {
        self.records(job + OTHER_RECORDS * (self.update_count() - version), rank)
    }

    /// The number of updates; 0 unless the input is protected.
    pub fn update_count(&self) -> usize {
        match self.protects {
            0 => 0,
            _ => self.updates,
        }
    }

    /// The keys of a rank's input. Some inputs are empty and some keys repeat. For the bitonic merge, the inputs
    /// have equal sizes and form a bitonic sequence.
    fn keys(&self, job: usize, rank: Rank) -> Vec<i32> {
        if self.algorithm == Method::Bitonic(Shape::Bitonic) {
            let all = (self.records * self.ranks) as u64;
            let start = (self.records * rank.index()) as u64;
            // The keys ascend up to the middle and descend after it. The sequence is rotated by the seed.
            let place = |index: u64| (index + start + self.seed % (all + 1)) % all;
            let height =
                |index: u64| place(index).min(all - place(index)) * u64::from(self.keys) / all;
            return (0..self.records as u64)
                .map(|index| height(index) as i32)
                .collect();
        }
        let mut draw = SplitMix::new(self.seed ^ (job as u64 + 1) << 32 ^ u64::from(rank.0) << 40);
        let most = self.records as u64 + 1;
        let count = match draw.below(4) {
            0 => draw.below(most.min(3)),
            1 => most - 1,
            _ => draw.below(most),
        };
        let key = |draw: &mut SplitMix| draw.below(u64::from(self.keys)) as i32 - 3;
        (0..count).map(|_| key(&mut draw)).collect()
    }
}

impl Default for Trial {
    fn default() -> Trial {
        Trial {
            ranks: 4,
            seed: 1,
            records: 20,
            arrays: 0,
            keys: 30,
            algorithm: Method::HyperQuickSort(PivotRule::Sampled),
            dense: false,
            tagged: false,
            store: StoreKind::Memory(1),
            repair: Repair::Agree,
            fan_out: ProtocolConfig::FAN_OUT,
            hosts: 1,
            sorts: 1,
            protects: 0,
            updates: 0,
            recoveries: 0,
            gathers: false,
            samplers: 0,
            divides: 0,
            custom_loop: false,
            checks: false,
            reloads: false,
            lies: false,
            corruptions: Vec::new(),
            exclusions: Vec::new(),
            speeds: Vec::new(),
            gain: false,
            tree: None,
            sink: None,
            links: Vec::new(),
            quorum: 1,
            spares: 0,
            damage: false,
            power: false,
            sync: false,
            timed: false,
            wrong_words: false,
            mutant: None,
            failures: Vec::new(),
            refusals: Vec::new(),
        }
    }
}

//! A group of ranks: the safe interface of this crate, over any [`Transport`].
//!
//! All survivors call the collective methods of [`Group`] in the same order, and all of them return the same
//! status. A wrong argument is [`Status::Argument`] on the rank that passed it and [`Status::PeerArgument`] on
//! the others. A caller that has found any argument wrong passes the error in place of an [`Argument`], or of the argument
//! of a method with a name that ends in `_checked`, and the method tells the other ranks.
//!
//! | file | content |
//! |---|---|
//! | [`config`], [`services`] | the configuration; the program around the group |
//! | `argument` | arguments that may be wrong |
//! | `create` | creation: handshake, agreement on the configuration, stores |
//! | `failures` | failure checks, agreement on numbers, injected failures |
//! | `job`, [`input`] | jobs: set-up, timers, reloaded inputs; the copy of a rank's input |
//! | [`protected`], `results` | inputs that are protected before they are sorted; recovery of results |
//! | [`sort`], `gathered`, [`many`] | sorts of one array; the short way for small inputs; sorts of many arrays in one job |
//! | [`columns`], `aggregate`, `select` | keys and values, argsort and positions; groups of equal keys; records at given positions |
//! | [`external`] | sorts of more data than memory |
//! | `rounds`, [`tree`], `gather` | user-defined algorithms, tree collectives, results at one rank |
//! | `states`, `stored_rounds`, `stored_sort` | states of the caller's own loop; user-defined algorithms and sorts that store theirs there |
//! | [`verify`] | verification of results |
//! | [`monitor`] | placement by speed |
//!
//! Must never: name MPI or C, look at a clock or at the system, or leave a rank out of an agreement because its
//! own argument is wrong.

mod aggregate;
mod argument;
pub mod columns;
pub mod config;
mod create;
pub mod external;
mod failures;
mod gather;
mod gathered;
pub mod input;
mod job;
pub mod many;
pub mod monitor;
pub mod protected;
mod results;
mod rounds;
mod select;
pub mod services;
pub mod sort;
mod states;
mod stored_rounds;
mod stored_sort;
pub mod tree;
pub mod verify;

pub use crate::store::parity::ParityShape;
pub use argument::Argument;
pub use config::{DataChecks, GroupConfig, OpenDirectory, StoreChoice};
pub use external::{ExternalSort, ExternalStats};
pub use input::{Key, SortInput};
pub use monitor::{Clocks, Datagrams, MonitorConfig, MonitorMode, MonitorState, TestProcedure};
pub use protected::ProtectedInput;
pub use rounds::{FinalStates, RoundsInput};
pub use services::{
    GroupObserver, HostBudget, JobKind, LogLevel, NoObserver, Reload, Services, Unlimited,
};
pub use sort::{Sorted, SortedBlock};
pub use tree::{MergeOperation, TreeMerge, TreeOptions};
pub use verify::Verification;

use crate::engine::{Checkpoints, CollectiveResult, Engine, EngineContext, PlacementPolicy, Stats};
use crate::faults::Schedule;
use crate::members::{Members, Rank, RankSet};
use crate::sort::Method;
use crate::sort::cost::Choice;
use crate::store::Store;
use crate::transport::Transport;
use crate::tree::run::choose::ChosenTree;
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status, caught, refuse};
use ftsort_kernels::kernel::ThreadPool;
use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::pages;
use ftsort_kernels::random::SplitMix;
use monitor::MonitorPolicy;
use services::BudgetedObserver;

/// A group of ranks of which some may fail.
///
/// After [`Status::Mpi`], [`Status::Excluded`] or [`Status::Internal`] the ranks may be out of step: the group is
/// poisoned, and every later call returns [`Status::State`].
pub struct Group<T: Transport> {
    transport: T,
    members: Members,
    config: GroupConfig,
    services: Services,
    /// The threads for local work.
    threads: ThreadPool,
    /// Keeps inputs and versions of jobs.
    store: Box<dyn Store>,
    /// States of the caller's own loop.
    states: Checkpoints,
    /// How often the states were discarded.
    clears: u64,
    /// The same number on all ranks, and on no other group.
    id: u64,
    /// Known to all ranks and to nothing else: the keys of digests are drawn from it.
    seed: u64,
    /// The fingerprint of the layout on which all ranks agreed last.
    agreed_layout: Option<u64>,
    last_run: Option<LastRun>,
    choice: Option<Choice>,
    last_tree: Option<ChosenTree>,
    stats: Stats,
    /// The owners of the data that the last call lost.
    lost: RankSet,
    policy: Option<MonitorPolicy>,
    /// The ranks that had not failed when the group was created.
    founders: Vec<Rank>,
    poison: Option<Error>,
    /// Keeps large buffers from one job to the next.
    _recycled: pages::Retention,
}

/// The algorithm of the last job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRun {
    /// A sort.
    Sort(Method),
    /// A user-defined algorithm.
    Rounds,
}

/// The properties of a collective step on the engine.
#[derive(Default)]
struct StepSetup<'a> {
    /// The failures to inject; None: none.
    schedule: Option<&'a Schedule>,
    /// Placement follows the monitor.
    follows_policy: bool,
    /// The size of a record; 0: blocks consist of bytes.
    record_bytes: usize,
    /// Blocks are checked by digests with this key.
    key: Option<&'a DigestKey>,
}

/// The parts of a group beside those that an engine works with.
struct Beside<'a> {
    store: &'a mut dyn Store,
    states: &'a mut Checkpoints,
    reload: Option<&'a mut (dyn Reload + 'static)>,
    lost: &'a mut RankSet,
}

impl<T: Transport> Group<T> {
    /// The ranks, which of them survive, and the nodes that they execute; as of the last collective call.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The configuration.
    pub fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// A number that is the same on all ranks, and that hardly any other group has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The figures of the last job on this rank.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The algorithm of the last job; None: there was none yet.
    pub fn last_run(&self) -> Option<LastRun> {
        self.last_run
    }

    /// The sort that the library chose for the last job, and the reason; None: there was nothing to choose.
    pub fn choice(&self) -> Option<Choice> {
        self.choice
    }

    /// The tree of the last tree collective that succeeded.
    pub fn last_tree(&self) -> Option<&ChosenTree> {
        self.last_tree.as_ref()
    }

    /// The owners of the data that the last call could not recover; the same on all survivors.
    pub fn lost_ranks(&self) -> &RankSet {
        &self.lost
    }

    /// The ranks that had not failed when the group was created.
    pub fn founders(&self) -> &[Rank] {
        &self.founders
    }

    /// Passes a line to the observer's log.
    pub fn log(&mut self, level: LogLevel, line: &str) {
        self.services.observer.log(level, line);
    }

    /// `Status::State` if the group is poisoned.
    pub fn check_poison(&self) -> Result<()> {
        match &self.poison {
            None => Ok(()),
            Some(error) => Err(poisoned(error)),
        }
    }

    /// Poisons the group if an error of this status leaves the ranks out of step.
    pub fn note_failure(&mut self, error: &Error) {
        if error.status.sets_apart() && self.poison.is_none() {
            self.poison = Some(error.clone());
            self.store.set_apart();
            self.transport.leave();
        }
    }

    /// Runs one collective call. No rank returns before all survivors have agreed, unless its error sets it apart: a
    /// rank that returned alone would leave the others waiting for its messages. A call that breaks this rule is a
    /// defect, and its error tells the others that the rank has left.
    fn call<R>(&mut self, work: impl FnOnce(&mut Group<T>) -> CollectiveResult<R>) -> Result<R> {
        let before = self.transport.agreement();
        self.local_call(|group| {
            let result = work(group).map_err(Error::from);
            let sets_apart = matches!(&result, Err(error) if error.status.sets_apart());
            let last = group.transport.agreement();
            if sets_apart || last.is_some() && last != before {
                return result;
            }
            let text = "a collective call ended without an agreement";
            Err(Error::internal(text))
        })
    }

    /// Runs one call: refuses a poisoned group, turns a panic into an error, and poisons the group where the
    /// ranks may be out of step afterwards.
    fn local_call<R>(&mut self, work: impl FnOnce(&mut Group<T>) -> Result<R>) -> Result<R> {
        self.check_poison()?;
        self.log_monitor_failure();
        let memory = self.services.budget.memory().cloned();
        let _entered = memory.as_ref().map(MemoryBudget::enter);
        let result = caught(|| work(&mut *self));
        if let Err(error) = &result {
            self.note_failure(error);
        }
        self.log_monitor_failure();
        result
    }

    /// Runs a collective step on the engine. `work` also receives the parts of the group that the engine does not
    /// use.
    fn engage<R>(
        &mut self,
        step: StepSetup<'_>,
        work: impl FnOnce(&mut Engine<'_>, Beside<'_>) -> CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        self.services.observer.call_begins();
        let mut observer = BudgetedObserver {
            observer: &mut *self.services.observer,
            budget: &mut *self.services.budget,
        };
        let policy = self.policy.as_mut().filter(|_| step.follows_policy);
        let schedule = Schedule::default();
        let mut engine = Engine::new(EngineContext {
            transport: &mut self.transport,
            members: &mut self.members,
            observer: &mut observer,
            stats: &mut self.stats,
            schedule: step.schedule.unwrap_or(&schedule),
            policy: policy.map(|policy| policy as &mut dyn PlacementPolicy),
        });
        engine.set_records(step.record_bytes.max(1), step.key);
        let beside = Beside {
            store: &mut *self.store,
            states: &mut self.states,
            reload: self.services.reload.as_deref_mut(),
            lost: &mut self.lost,
        };
        work(&mut engine, beside)
    }

    /// Runs a collective step on the engine.
    fn on_engine<R>(
        &mut self,
        work: impl FnOnce(&mut Engine<'_>) -> CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        self.engage(StepSetup::default(), |engine, _| work(engine))
    }

    /// Runs a collective step of the present job on the states of the group. `work` also receives the set of the owners
    /// of lost data.
    fn on_stored<R>(
        &mut self,
        work: impl FnOnce(&mut Checkpoints, &mut Engine<'_>, &mut RankSet) -> CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        self.engage(StepSetup::default(), |engine, beside| {
            work(beside.states, engine, beside.lost)
        })
    }

    /// As [`Group::on_stored`], for a step of the caller's own loop: the statistics stay those of the last job.
    fn on_states<R>(
        &mut self,
        work: impl FnOnce(&mut Checkpoints, &mut Engine<'_>, &mut RankSet) -> CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        self.keeping_stats(|group| group.on_stored(work))
    }

    /// Runs a step that is not part of a job: the statistics stay those of the last job.
    fn apart_from_jobs<R>(
        &mut self,
        work: impl FnOnce(&mut Engine<'_>) -> CollectiveResult<R>,
    ) -> CollectiveResult<R> {
        self.keeping_stats(|group| group.on_engine(work))
    }

    fn keeping_stats<R>(&mut self, work: impl FnOnce(&mut Group<T>) -> R) -> R {
        let stats = self.stats;
        let result = work(self);
        self.stats = stats;
        result
    }

    /// Runs a call with the memory limit of a job on its buffers.
    fn call_with_limit<R>(
        &mut self,
        work: impl FnOnce(&mut Group<T>) -> CollectiveResult<R>,
    ) -> Result<R> {
        self.call(|group| {
            group.limit_memory();
            work(group)
        })
    }

    /// Sets the limit of the buffers of this call and of the local calls after it.
    fn limit_memory(&mut self) {
        let here = self.members.living_here();
        let limit = self.config.memory_limit;
        self.services.budget.begin_job(limit, here);
    }

    /// `Status::Argument` if this rank is an idle spare and passes data: `name` is `amount`.
    fn check_spare(&self, name: &str, amount: usize) -> Result<()> {
        let me = self.members.me();
        if amount == 0 || !self.members.is_idle_spare(me) {
            return Ok(());
        }
        refuse(format!(
            "{name} is {amount}, but rank {me} is an idle spare, which has no input: pass 0 until the rank has \
             taken over from a failed rank"
        ))
    }

    /// The number of ranks that are known to have failed.
    fn known_failures(&self) -> usize {
        self.members.faulty().len()
    }

    fn forget_losses(&mut self) {
        self.lost = RankSet::new(self.members.ranks());
    }

    /// Draws another seed, on all ranks alike, so that digests reveal nothing about later ones.
    fn draw_seed(&mut self) -> u64 {
        self.seed = SplitMix::new(self.seed).bits();
        self.seed
    }
}

#[cold]
fn poisoned(error: &Error) -> Error {
    let text =
        format!("the group cannot be used since an earlier call failed: {error}; leave or free it");
    Error::new(Status::State, text)
}

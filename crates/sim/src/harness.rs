//! Runs jobs on simulated ranks: builds each rank's transport, members, store and engine, runs the rank's jobs, and
//! collects the results and the commits.
//!
//! [`simulate`](crate::simulate) uses it for user-defined algorithms, and the trials for sorts and trees.
//!
//! Must never: decide anything that depends on the algorithm.

// The trials alone use the commits, the files and the checkpoints.
#![cfg_attr(not(feature = "trials"), allow(dead_code))]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::directory::{FileModel, InMemoryDirectory, SharedFiles};
use crate::job::JobContext;
use crate::refusal::Refusal;
use crate::transport::{RankHandle, SimConfig, SimMpi, SimResult, SimStep, TraceEvent, run_ranks};
use ftsort_core::engine::{
    Engine, EngineContext, Event, MessageEvent, Observer, Occasion, PlacementPolicy,
    RetainedResult, Stats,
};
use ftsort_core::faults::Schedule;
use ftsort_core::members::{Members, Rank, RankSet};
use ftsort_core::store::Store;
use ftsort_core::store::directory::Directory;
use ftsort_core::store::memory::Memory;
use ftsort_core::store::parity::{Parity, ParityShape};
use ftsort_core::transport::watch::CONTACT_BYTES;
use ftsort_core::transport::{Protocol, ProtocolConfig, Repair, Timeout, Transport};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::Result;
use ftsort_kernels::memory::MemoryBudget;

/// The stores of simulated ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// No redundancy.
    None,
    /// Replicas in the memory of this many other ranks: of the inputs where blocks can be recomputed from them,
    /// of every version otherwise.
    Memory(usize),
    /// Replicas of every version in the memory of this many other ranks, even where inputs would do.
    Versions(usize),
    /// No redundancy, but inputs can be loaded again.
    Reload,
    /// Files that all ranks can read.
    Directory,
    /// Shares of an erasure code, in the memory of the ranks of a group.
    Parity(ParityShape),
}

impl StoreKind {
    /// Parses the form that `to_string` writes.
    pub fn parse(text: &str) -> Option<StoreKind> {
        Some(match text.split_once(':') {
            Some(("memory", replicas)) => StoreKind::Memory(replicas.parse().ok()?),
            Some(("parity", shape)) => {
                let (shares, group) = shape.split_once(':')?;
                let shape = ParityShape::new(shares.parse().ok()?, group.parse().ok()?);
                StoreKind::Parity(shape.ok()?)
            }
            Some(("versions", replicas)) => StoreKind::Versions(replicas.parse().ok()?),
            None if text == "reload" => StoreKind::Reload,
            None if text == "none" => StoreKind::None,
            None if text == "directory" => StoreKind::Directory,
            _ => return None,
        })
    }

    /// The number of replicas or shares of states in the memory of other ranks. None: there are files instead.
    pub(crate) fn replicas(self) -> Option<usize> {
        match self {
            StoreKind::None | StoreKind::Reload => Some(0),
            StoreKind::Memory(replicas) | StoreKind::Versions(replicas) => Some(replicas),
            StoreKind::Parity(shape) => Some(shape.shares),
            StoreKind::Directory => None,
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreKind::None => out.write_str("none"),
            StoreKind::Memory(replicas) => write!(out, "memory:{replicas}"),
            StoreKind::Versions(replicas) => write!(out, "versions:{replicas}"),
            StoreKind::Parity(shape) => write!(out, "parity:{}:{}", shape.shares, shape.group),
            StoreKind::Reload => out.write_str("reload"),
            StoreKind::Directory => out.write_str("directory"),
        }
    }
}

/// A commit that a rank learned of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitRecord {
    /// The number of the job, from 0.
    pub job: usize,
    /// The committed round. A recovery has the number of the round that is replayed.
    pub round: u32,
    /// Whether it was a recovery.
    pub recovery: bool,
    /// The failed ranks that were known at the commit.
    pub failed: Vec<Rank>,
}

/// The number of steps of all ranks when the first rank learned of a commit, with the commit.
pub type CommitLog = Vec<(usize, CommitRecord)>;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Harness {
    /// The number of ranks.
    pub ranks: usize,
    /// The seed and the failures.
    pub config: SimConfig,
    /// The store of every rank.
    pub store: StoreKind,
    /// The behaviour of files when ranks fail.
    pub files: FileModel,
    /// The way in which failures are repaired.
    pub repair: Repair,
    /// The number of ranks with which a rank exchanges control messages in one step, where they go along trees.
    pub fan_out: usize,
    /// The number of hosts, to which the ranks are assigned in turn.
    pub hosts: usize,
    /// The number of ranks that must survive.
    pub quorum: usize,
    /// The number of spares; at least one rank has a node.
    pub spares: usize,
    /// The actions that are refused.
    pub refusals: Vec<Refusal>,
}

/// The result of a run.
pub struct HarnessRun<T> {
    /// The ranks' return values, the steps and the trace.
    pub sim: SimResult<T>,
    /// The commits, in the order in which the first rank learned of them.
    pub commits: CommitLog,
    /// The names of the files that were left in the shared directory.
    pub files: Vec<String>,
    /// The names of all files that were complete at some time.
    pub finished_files: Vec<String>,
    /// The number of actions of each rank that could be refused.
    pub actions: Vec<u32>,
}

impl Harness {
    /// The settings for these ranks with the defaults for everything else.
    pub fn new(ranks: usize, config: SimConfig, store: StoreKind) -> Harness {
        Harness {
            ranks,
            config,
            store,
            files: FileModel::default(),
            repair: Repair::Agree,
            fan_out: ProtocolConfig::FAN_OUT,
            hosts: 1,
            quorum: 1,
            spares: 0,
            refusals: Vec::new(),
        }
    }

    /// Runs `rank_main` on every rank.
    ///
    /// # Panics
    /// If the system has no memory for the ranks' stacks, or `rank_main` panics.
    pub fn run<T: 'static>(
        &self,
        rank_main: impl Fn(&mut SimRank<'_>) -> T + 'static,
    ) -> HarnessRun<T> {
        let files = SharedFiles::default();
        let commits = Rc::new(RefCell::new(CommitLog::new()));
        let budgets: Vec<MemoryBudget> = (0..self.ranks).map(|_| MemoryBudget::new()).collect();
        #[cfg(feature = "trials")]
        for refusal in &self.refusals {
            if let Some(budget) = budgets.get(refusal.rank.index()) {
                budget.refuse(refusal.actions());
            }
        }
        let (harness, shared, log) = (self.clone(), Rc::clone(&files), Rc::clone(&commits));
        let of_ranks = budgets.clone();
        let hosts = (0..self.ranks).map(|rank| (rank % self.hosts) as u64);
        let hosts: Arc<[u64]> = hosts.collect();
        let run_rank = move |rank: Rank, mpi: SimMpi<'_>| {
            let mut rank_state = SimRank::new(&harness, mpi, &hosts, &shared, &log).ok()?;
            rank_state.budget = of_ranks[rank.index()].clone();
            let mut lasting = harness.refusals.iter().filter(|refusal| refusal.lasts);
            let lasting = lasting.find(|refusal| refusal.rank == rank);
            rank_state.lasting_refusal = lasting.map(|refusal| refusal.action);
            Some(rank_main(&mut rank_state))
        };
        let mut sim = run_ranks(self.ranks, &self.config, run_rank);
        let outcomes = std::mem::take(&mut sim.outcomes).into_iter();
        let files = files.take();
        HarnessRun {
            sim: sim.with_outcomes(outcomes.map(Option::flatten).collect()),
            commits: commits.take(),
            files: files.names(),
            finished_files: files.finished(),
            #[cfg(feature = "trials")]
            actions: budgets.iter().map(MemoryBudget::actions).collect(),
            #[cfg(not(feature = "trials"))]
            actions: Vec::new(),
        }
    }
}

/// One simulated rank, ready to run jobs one after the other.
pub struct SimRank<'y> {
    /// The rank's view of the members.
    pub members: Members,
    transport: Protocol<SimMpi<'y>>,
    /// The memory of the rank's jobs.
    budget: MemoryBudget,
    /// The number of the first action of a refusal that lasts until the end of its job.
    lasting_refusal: Option<u32>,
    store: Box<dyn Store>,
    handle: RankHandle,
    kind: StoreKind,
    file_model: FileModel,
    files: SharedFiles,
    commits: Rc<RefCell<CommitLog>>,
    /// The results of the jobs, until the rank has run all of them.
    results: Vec<RetainedResult>,
    /// The failed ranks of each agreement so far, with its epoch.
    agreed_failures: Vec<(u32, Vec<Rank>)>,
}

impl<'y> SimRank<'y> {
    fn new(
        harness: &Harness,
        mpi: SimMpi<'y>,
        hosts: &Arc<[u64]>,
        files: &SharedFiles,
        commits: &Rc<RefCell<CommitLog>>,
    ) -> Result<SimRank<'y>> {
        let handle = mpi.handle();
        let config = ProtocolConfig {
            repair: harness.repair,
            chunk: chunk_bytes(harness.ranks),
            timeout: if harness.config.timed {
                Timeout::Default
            } else {
                Timeout::Never
            },
            fan_out: harness.fan_out,
        };
        let mut transport = Protocol::new(mpi, config);
        if harness.config.timed {
            let others = Rank::all(harness.ranks).filter(|rank| *rank != handle.rank());
            let contacts: Vec<_> = others.map(|rank| (rank, [0; CONTACT_BYTES])).collect();
            transport.meet(&contacts);
        }
        let mut members = Members::new(handle.rank(), harness.ranks);
        members.set_hosts(Arc::clone(hosts));
        members.set_quorum(harness.quorum);
        members.set_spares(harness.spares.min(harness.ranks - 1));
        let directory = || InMemoryDirectory::new(files, &handle, harness.files);
        let store: Box<dyn Store> = match (harness.store, harness.store.replicas()) {
            (StoreKind::Parity(shape), _) => Box::new(Parity::new(shape)),
            (_, Some(replicas)) => Box::new(Memory::new(replicas)),
            (_, None) => Box::new(Directory::open(Box::new(directory()), 1, handle.rank())?),
        };
        Ok(SimRank {
            members,
            transport,
            budget: MemoryBudget::new(),
            lasting_refusal: None,
            store,
            handle,
            kind: harness.store,
            file_model: harness.files,
            files: Rc::clone(files),
            commits: Rc::clone(commits),
            results: Vec::new(),
            agreed_failures: Vec::new(),
        })
    }

    /// Creates a store of the same kind for checkpoints, apart from that of the jobs.
    pub fn checkpoint_store(&self) -> Box<dyn Store> {
        match self.kind.replicas() {
            Some(replicas) => Box::new(Memory::new(replicas)),
            None => {
                let files = InMemoryDirectory::new(&self.files, &self.handle, self.file_model);
                Box::new(Directory::new(Box::new(files), 2, self.handle.rank()))
            }
        }
    }

    /// A handle for the rank's other actions.
    pub fn handle(&self) -> &RankHandle {
        &self.handle
    }

    /// Whether the rank still runs.
    pub fn is_running(&self) -> bool {
        self.handle.check().is_ok()
    }

    /// Releases the results, after an agreement of all ranks that have any.
    pub fn release_results(&mut self) {
        if self.results.is_empty() {
            return;
        }
        let options = JobOptions {
            number: usize::MAX,
            ..JobOptions::default()
        };
        self.run_job(options, |mut context| {
            context.ignore_commits.set(true);
            context.find_failures()
        });
        self.results.clear();
    }

    /// Runs one job with an engine of its own.
    pub fn run_job<T>(
        &mut self,
        options: JobOptions<'_>,
        job: impl FnOnce(JobContext<'_, '_>) -> Result<T>,
    ) -> JobReport<T> {
        self.handle.begin_job(options.number);
        let _entered = self.budget.enter();
        let ranks = self.members.ranks();
        let failed_before = self.members.faulty().clone();
        let without_input = self.members.without_input();
        let idle_spares = self.members.idle_spares().iter().collect();
        let ignore_commits = Rc::new(Cell::new(false));
        let mut observer = CommitObserver {
            handle: self.handle.clone(),
            job: options.number,
            commits: Rc::clone(&self.commits),
            failed: failed_before.iter().collect(),
            agreed_failures: &mut self.agreed_failures,
            failed_at_commit: None,
            failed_at_earlier_commits: Vec::new(),
            ignore_commits: Rc::clone(&ignore_commits),
        };
        let mut stats = Stats::default();
        let mut lost = RankSet::new(ranks);
        let no_corruptions = Schedule::default();
        let mut engine = Engine::new(EngineContext {
            transport: &mut self.transport,
            members: &mut self.members,
            observer: &mut observer,
            stats: &mut stats,
            schedule: options.schedule.unwrap_or(&no_corruptions),
            policy: match options.policy {
                Some(policy) => Some(policy),
                None => None,
            },
        });
        if let Some(record_bytes) = options.record_bytes {
            engine.set_records(record_bytes, options.digest_key);
        }
        let result = job(JobContext {
            engine: &mut engine,
            store: &mut *self.store,
            kind: self.kind,
            absent: &without_input,
            lost: &mut lost,
            ignore_commits: &ignore_commits,
            results: &mut self.results,
        });
        let failed_at_commit = observer.failed_at_commit.take();
        let failed_at_earlier_commits = std::mem::take(&mut observer.failed_at_earlier_commits);
        let excluded = self.members.survivors_without_nodes().iter().collect();
        let weights = self.members.weights();
        self.members.readmit_all();
        #[cfg(feature = "trials")]
        if self
            .lasting_refusal
            .is_some_and(|action| self.budget.actions() >= action)
        {
            self.budget.refuse(0..0);
        }
        JobReport {
            result,
            absent: failed_before.iter().collect(),
            idle_spares,
            agreed_failures: self.agreed_failures.clone(),
            failed: self.members.faulty().iter().collect(),
            failed_at_commit,
            failed_at_earlier_commits,
            lost: lost.iter().collect(),
            excluded,
            weights,
        }
    }
}

/// The largest message, in bytes: small enough that jobs with some thousand records need several messages for a block,
/// and so large that the cuts of some hundred ranks fit into one.
pub fn chunk_bytes(ranks: usize) -> usize {
    (256 * ranks).clamp(16 << 10, 512 << 10)
}

/// The options of one job.
#[derive(Default)]
pub struct JobOptions<'a> {
    /// The number of the job on its rank, from 0.
    pub number: usize,
    /// The corruptions to inject. None: none.
    pub schedule: Option<&'a Schedule>,
    /// Proposes the ranks to exclude and the shares of the others.
    pub policy: Option<&'a mut dyn PlacementPolicy>,
    /// The size of a record, if blocks consist of records.
    pub record_bytes: Option<usize>,
    /// The key of the digests by which blocks are checked, if they are.
    pub digest_key: Option<&'a DigestKey>,
}

/// The result of a job on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobReport<T> {
    /// The return value of the job.
    pub result: Result<T>,
    /// The ranks that had failed before the job began.
    pub absent: Vec<Rank>,
    /// The spares that were alive and had not taken over from a failed rank when the job began.
    pub idle_spares: Vec<Rank>,
    /// The failed ranks of each agreement until the end of the job, with its epoch.
    pub agreed_failures: Vec<(u32, Vec<Rank>)>,
    /// The failed ranks that the rank knows of after the job.
    pub failed: Vec<Rank>,
    /// The failed ranks that were known when a version or a recovery was last committed. None: nothing was
    /// committed.
    pub failed_at_commit: Option<Vec<Rank>>,
    /// The same for the commits before, if a rank had failed since then.
    pub failed_at_earlier_commits: Vec<Vec<Rank>>,
    /// The owners of the lost data.
    pub lost: Vec<Rank>,
    /// The survivors that were excluded at the end of the job.
    pub excluded: Vec<Rank>,
    /// The shares of the ranks at the end of the job.
    pub weights: Vec<u8>,
}

/// Adds events to the trace, and counts a commit as a step.
struct CommitObserver<'o> {
    handle: RankHandle,
    job: usize,
    commits: Rc<RefCell<CommitLog>>,
    failed: Vec<Rank>,
    agreed_failures: &'o mut Vec<(u32, Vec<Rank>)>,
    failed_at_commit: Option<Vec<Rank>>,
    failed_at_earlier_commits: Vec<Vec<Rank>>,
    ignore_commits: Rc<Cell<bool>>,
}

impl Observer for CommitObserver<'_> {
    fn message(&mut self, message: MessageEvent) {
        if message.from == self.handle.rank() {
            self.handle.announce_records(message.bytes);
        }
    }

    fn enclosed_message(&mut self, message: MessageEvent) {
        if message.to == self.handle.rank() {
            self.handle.enclose(message.bytes);
        }
    }

    fn event(&mut self, occasion: Occasion) {
        let Occasion {
            event,
            round,
            rounds,
            epoch,
            ..
        } = occasion;
        self.handle.trace(|| TraceEvent::Reports {
            event,
            round,
            rounds,
        });
        let is_commit = match event {
            Event::Failure(rank) => {
                self.failed.push(rank);
                match self.agreed_failures.last_mut() {
                    Some((last, ranks)) if *last == epoch => ranks.push(rank),
                    _ => self.agreed_failures.push((epoch, vec![rank])),
                }
                false
            }
            Event::Round | Event::Renewed => true,
            // Nothing is committed before the inputs are.
            Event::Replay => round > 0,
            _ => false,
        };
        if !is_commit || self.ignore_commits.get() {
            return;
        }
        let before = self.failed_at_commit.replace(self.failed.clone());
        let before = before.filter(|before| *before != self.failed);
        self.failed_at_earlier_commits.extend(before);
        let commit = CommitRecord {
            job: self.job,
            round,
            recovery: event != Event::Round,
            failed: self.failed.clone(),
        };
        let mut commits = self.commits.borrow_mut();
        if !commits.iter().any(|(_, other)| *other == commit) {
            commits.push((self.handle.steps(), commit));
        }
        drop(commits);
        // If the rank fails at this step, its next call to the transport returns the error.
        let _ = self.handle.step(SimStep::Committing);
    }
}

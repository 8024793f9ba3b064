//! What one simulated rank does in a trial: the same that a program does through the C interface.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::custom_loop::Loop;
use super::scripted_policy::ScriptedPolicy;
use super::tree_op::Tree;
use super::{Keeping, Record, Trial};
use crate::simulate::directory::{InMemoryDirectory, Shared};
use crate::transport::{Entry, Played, Probe, Script, SimMpi, SimStep, Taken, play};
use ftsort_core::block::Block;
use ftsort_core::engine::{
    Algorithm, Checkpoints, Checks, Engine, EngineContext, Event, Job, Observer, Occasion,
    PlacementPolicy, RoundContext, Source, Split, Stats, Step, Subcube,
};
use ftsort_core::faults::Plan;
use ftsort_core::members::{Members, Rank, RankSet};
use ftsort_core::mutants::set_mutant;
use ftsort_core::sort::{Complete, global_offset, total_records};
use ftsort_core::store::Store;
use ftsort_core::store::directory::Directory;
use ftsort_core::store::memory::Memory;
use ftsort_core::transport::{Protocol, ProtocolConfig, Transport};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status, caught};
use ftsort_kernels::kernel::{Kernel, kernel_for};
use ftsort_kernels::record::{Fields, KeyKind, Layout};

/// One block of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The node whose block it is.
    pub node: Node,
    /// Where it starts in the whole, in records.
    pub offset: u64,
    /// The records.
    pub records: Vec<Record>,
}

/// What one sort gave one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The blocks, or why there are none.
    pub parts: std::result::Result<Vec<Part>, Error>,
    /// How many records there are in all; for a tree the rank that it leads to.
    pub total: u64,
    /// The dead that the rank knew of when it began.
    pub absent: Vec<Rank>,
    /// The dead that it knows of now.
    pub faulty: Vec<Rank>,
    /// Those of them that were known when a version, or a recovery, was committed for the last time;
    /// None: that never was.
    pub absorbed: Option<Vec<Rank>>,
    /// Whose data were lost.
    pub lost: Vec<Rank>,
    /// Who lives, but was stopped in this sort.
    pub aside: Vec<Rank>,
    /// How work was shared at its end.
    pub weights: Vec<u8>,
}

/// A commit that some rank heard of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Commit {
    /// In which sort.
    pub sort: usize,
    /// Of which round; a recovery counts for the round that starts again.
    pub round: u32,
    /// It was a recovery.
    pub recovery: bool,
    /// Who was known to be dead.
    pub faulty: Vec<Rank>,
}

/// What came of a trial.
#[derive(Debug)]
pub struct Run {
    /// For each sort what each rank got; None: it died before its end, or hung.
    pub outcomes: Vec<Vec<Option<Outcome>>>,
    /// Which ranks lived to the end.
    pub survivors: Vec<Rank>,
    /// All steps, in order.
    pub taken: Vec<Taken>,
    /// The commits, each with how many steps had been taken when the first rank heard of it.
    pub commits: Vec<(usize, Commit)>,
    /// What happened, where it was asked for.
    pub entries: Vec<Entry>,
    /// Ranks that hang.
    pub hung: Vec<Rank>,
    /// Names of files that were left in the shared directory.
    pub litter: Vec<String>,
    /// Names of files that once were whole.
    pub finished: Vec<String>,
    /// Something went so wrong that the run ended at once.
    pub panic: Option<String>,
}

/// Messages are cut into pieces of this size: above that of the greatest decision, and small enough
/// for trials with some thousand records to need several.
fn chunk(ranks: usize) -> usize {
    (16 << 10).max(256 * ranks)
}

/// Plays a trial.
pub fn run(trial: &Trial, record: bool) -> Run {
    let script = Script {
        seed: trial.seed,
        losses: trial.losses.clone(),
        record,
    };
    let files = Shared::default();
    let commits = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&commits);
    let diary: Rc<RefCell<Vec<Vec<Option<Outcome>>>>> =
        Rc::new(RefCell::new(vec![vec![None; trial.ranks]; trial.sorts]));
    let (own, shared, results) = (trial.clone(), Rc::clone(&files), Rc::clone(&diary));
    let played = caught(|| {
        set_mutant(trial.set_mutant);
        Ok(play(trial.ranks, &script, move |rank, mpi| {
            let mut take = |sort: usize, outcome| {
                results.borrow_mut()[sort][rank.index()] = Some(outcome);
            };
            live(&own, mpi, &shared, &heard, &mut take)
        }))
    });
    set_mutant(None);
    let (played, panic) = match played {
        Ok(mut played) => {
            let misuse = played.misuse.take();
            (played, misuse)
        }
        Err(error) => (Played::default(), Some(error.text)),
    };
    let lived = |rank: &Rank| played.outcomes.get(rank.index()) == Some(&Some(true));
    let files = files.take();
    let litter = files.files.into_keys().collect();
    Run {
        outcomes: diary.take(),
        survivors: Rank::all(trial.ranks).filter(lived).collect(),
        taken: played.taken,
        commits: commits.take(),
        entries: played.entries,
        hung: played.hung,
        litter,
        finished: files.finished.into_iter().collect(),
        panic,
    }
}

/// All sorts of one rank. False: it died.
fn live(
    trial: &Trial,
    mpi: SimMpi<'_>,
    files: &Shared,
    commits: &Commits,
    take: &mut dyn FnMut(usize, Outcome),
) -> bool {
    let probe = mpi.probe();
    let config = ProtocolConfig {
        repair: trial.repair,
        chunk: chunk(trial.ranks),
        timeout: None,
    };
    let mut transport = Protocol::new(mpi, config);
    let mut members = Members::new(transport.me(), transport.ranks());
    let Ok(mut store) = open_store(trial, files, &probe) else {
        return false;
    };
    let mut kept = Checkpoints::new(store_of_loops(trial, files, &probe), &members);
    members.set_hosts(
        (0..trial.ranks)
            .map(|rank| (rank % trial.hosts) as u64)
            .collect(),
    );
    members.set_quorum(trial.quorum);
    for sort in 0..trial.sorts {
        let mut sorting = Sorting {
            trial,
            sort,
            transport: &mut transport,
            members: &mut members,
            store: &mut *store,
            kept: &mut kept,
            probe: &probe,
            commits,
        };
        let outcome = sorting.run();
        if probe.check().is_err() {
            return false;
        }
        let excluded = |error: &Error| error.status == Status::Excluded;
        let over = outcome.parts.as_ref().is_err_and(excluded);
        take(sort, outcome);
        if over {
            break;
        }
    }
    true
}

fn open_store(trial: &Trial, files: &Shared, probe: &Probe) -> Result<Box<dyn Store>> {
    Ok(match copies(trial.store) {
        Some(copies) => Box::new(Memory::new(copies)),
        None => Box::new(Directory::open(
            directory(trial, files, probe),
            1,
            probe.rank(),
        )?),
    })
}

/// For what a loop of the caller's own keeps.
fn store_of_loops(trial: &Trial, files: &Shared, probe: &Probe) -> Box<dyn Store> {
    match copies(trial.store) {
        Some(copies) => Box::new(Memory::new(copies)),
        None => Box::new(Directory::new(
            directory(trial, files, probe),
            2,
            probe.rank(),
        )),
    }
}

/// How many copies other ranks hold; None: there are files instead.
fn copies(store: Keeping) -> Option<usize> {
    match store {
        Keeping::None | Keeping::Reload => Some(0),
        Keeping::Memory(copies) | Keeping::Versions(copies) => Some(copies),
        Keeping::Directory => None,
    }
}

fn directory(trial: &Trial, files: &Shared, probe: &Probe) -> Box<InMemoryDirectory> {
    Box::new(InMemoryDirectory::new(
        Rc::clone(files),
        probe.clone(),
        trial.rot,
    ))
}

/// What all ranks hear of commits.
type Commits = Rc<RefCell<Vec<(usize, Commit)>>>;

/// Writes events down, and counts a commit as a step.
struct Witness {
    probe: Probe,
    sort: usize,
    commits: Commits,
    heard: Vec<Rank>,
    absorbed: Option<Vec<Rank>>,
    /// What follows is of no account.
    over: Rc<Cell<bool>>,
}

impl Observer for Witness {
    fn event(&mut self, occasion: Occasion) {
        let Occasion { event, round, .. } = occasion;
        self.probe.note(|| format!("round {round}: {event:?}"));
        let committed = match event {
            Event::Fault(rank) => {
                self.heard.push(rank);
                false
            }
            Event::Round => true,
            // Before the inputs are committed nothing is.
            Event::Replay => round > 0,
            _ => false,
        };
        if committed && !self.over.get() {
            self.absorbed = Some(self.heard.clone());
            let commit = Commit {
                sort: self.sort,
                round,
                recovery: event == Event::Replay,
                faulty: self.heard.clone(),
            };
            let mut commits = self.commits.borrow_mut();
            if !commits.iter().any(|(_, other)| *other == commit) {
                commits.push((self.probe.steps(), commit));
            }
            drop(commits);
            // Whether the rank dies of it shows at its next step.
            let _ = self.probe.step(SimStep::Committing);
        }
    }
}

/// Gives a rank's own input again, and all others if the trial allows it.
struct Library<'a>(&'a Trial, usize, Rank);

impl Source for Library<'_> {
    fn has_own(&self) -> bool {
        true
    }

    fn own(&mut self) -> Result<Buffer> {
        bytes_of(self.0, self.1, self.2)
    }

    fn can_reload(&self) -> bool {
        self.0.store == Keeping::Reload
    }

    fn reload(&mut self, rank: Rank) -> Result<Buffer> {
        bytes_of(self.0, self.1, rank)
    }
}

fn bytes_of(trial: &Trial, sort: usize, rank: Rank) -> Result<Buffer> {
    let records = trial.records(sort, rank);
    if trial.tagged {
        return Buffer::copy_of(bytemuck::cast_slice(&records));
    }
    let keys: Vec<i32> = records.iter().map(|record| record.key).collect();
    Buffer::copy_of(bytemuck::cast_slice(&keys))
}

/// Bytes as records.
pub fn records_in(trial: &Trial, bytes: &[u8]) -> Vec<Record> {
    if trial.tagged {
        return bytemuck::cast_slice(bytes).to_vec();
    }
    let keys: &[i32] = bytemuck::cast_slice(bytes);
    keys.iter()
        .map(|key| Record { key: *key, tag: 0 })
        .collect()
}

fn kernel(trial: &Trial) -> Result<Box<dyn Kernel>> {
    let fields = Fields {
        record_bytes: match trial.tagged {
            true => size_of::<Record>(),
            false => size_of::<i32>(),
        },
        key: KeyKind::I32 as i32,
        ..Fields::default()
    };
    Ok(kernel_for(&Layout::new(fields)?, 1))
}

/// An algorithm of which nobody knows that its blocks can be made again.
struct Opaque<'a>(&'a dyn Algorithm);

impl Algorithm for Opaque<'_> {
    fn rounds(&self) -> u32 {
        self.0.rounds()
    }
    fn step(&self, round: u32) -> Step {
        self.0.step(round)
    }
    fn prepare(&self, block: Block) -> Result<Block> {
        self.0.prepare(block)
    }
    fn propose(&self, at: &RoundContext<'_>, subcube: &Subcube, block: &Block) -> Result<Vec<u8>> {
        self.0.propose(at, subcube, block)
    }
    fn decide(
        &self,
        at: &RoundContext<'_>,
        subcube: &Subcube,
        said: &[(Node, Slice)],
    ) -> Result<Vec<u8>> {
        self.0.decide(at, subcube, said)
    }
    fn proposal_limit(&self, round: u32) -> usize {
        self.0.proposal_limit(round)
    }
    fn decision_limit(&self, round: u32) -> usize {
        self.0.decision_limit(round)
    }
    fn most_runs(&self) -> usize {
        self.0.most_runs()
    }
    fn is_recomputable(&self) -> bool {
        false
    }
    fn split(&self, at: &RoundContext<'_>, block: &Block) -> Result<Split> {
        self.0.split(at, block)
    }
    fn join(&self, at: &RoundContext<'_>, keep: Block, got: Block) -> Result<Block> {
        self.0.join(at, keep, got)
    }
}

/// One sort of one rank.
struct Sorting<'a> {
    trial: &'a Trial,
    sort: usize,
    transport: &'a mut dyn Transport,
    members: &'a mut Members,
    store: &'a mut dyn Store,
    kept: &'a mut Checkpoints,
    probe: &'a Probe,
    commits: &'a Commits,
}

impl Sorting<'_> {
    fn run(&mut self) -> Outcome {
        let absent = self.members.faulty().clone();
        let mut witness = Witness {
            probe: self.probe.clone(),
            sort: self.sort,
            commits: Rc::clone(self.commits),
            heard: absent.iter().collect(),
            absorbed: None,
            over: Rc::default(),
        };
        let mut lost = RankSet::new(self.trial.ranks);
        let result = self.result(&absent, &mut witness, &mut lost);
        let (parts, total) = match result {
            Ok((parts, total)) => (Ok(parts), total),
            Err(error) => (Err(error), 0),
        };
        let living = self.members.survivors();
        let aside = living
            .filter(|rank| self.members.is_excluded(*rank))
            .collect();
        let weights = self.members.weights().to_vec();
        self.members.readmit_all();
        Outcome {
            weights,
            parts,
            total,
            aside,
            absent: absent.iter().collect(),
            faulty: self.members.faulty().iter().collect(),
            absorbed: witness.absorbed,
            lost: lost.iter().collect(),
        }
    }

    fn result(
        &mut self,
        absent: &RankSet,
        witness: &mut Witness,
        lost: &mut RankSet,
    ) -> Result<(Vec<Part>, u64)> {
        let input = bytes_of(self.trial, self.sort, self.members.me())?;
        let over = Rc::clone(&witness.over);
        let schedule = Plan::parse(&self.trial.spoils.join(" "))?;
        let schedule = schedule.resolve(self.trial.ranks, 1);
        let mut stats = Stats::default();
        let mut policy = ScriptedPolicy::of(self.trial, self.members.me());
        let mut engine = Engine::new(EngineContext {
            transport: &mut *self.transport,
            members: &mut *self.members,
            observer: witness,
            stats: &mut stats,
            schedule: &schedule,
            policy: policy
                .as_mut()
                .map(|policy| policy as &mut dyn PlacementPolicy),
        });
        if self.trial.own {
            let mut own = Loop {
                trial: self.trial,
                engine: &mut engine,
                kept: self.kept,
                absent,
                over: &over,
            };
            return own.run(input, lost);
        }
        let kernel = engine.all_or_none(kernel(self.trial))?;
        if let Some(what) = self.trial.tree {
            let (trial, sort, kept) = (self.trial, self.sort, &mut *self.kept);
            let tree = Tree::new((trial, sort), &mut engine, kept, absent, &*kernel);
            return tree.run(what, input, lost);
        }
        let dimension = engine.members().cube().dimension();
        let sort = self.trial.algorithm.on(&*kernel, dimension);
        let algorithm = Complete {
            sort: &*sort,
            kernel: &*kernel,
            dimension,
            dense: self.trial.dense,
        };
        let opaque = Opaque(&algorithm);
        let algorithm: &dyn Algorithm = match self.trial.store {
            Keeping::Versions(_) => &opaque,
            _ => &algorithm,
        };
        let mut source = Library(self.trial, self.sort, engine.members().me());
        let absent = absent.clone();
        let key = DigestKey::new(self.trial.seed, kernel.record_bytes());
        let checks = self.trial.checks.then(|| Checks {
            key: &key,
            kernel: &*kernel,
            input: key.digest(&input),
        });
        engine.set_records(
            kernel.record_bytes(),
            checks.as_ref().map(|checks| checks.key),
        );
        let job = Job::new(
            &mut engine,
            algorithm,
            &mut *self.store,
            &mut source,
            input,
            absent,
            checks.as_ref(),
        );
        let finished = job.run(lost)?;
        let parts = finished.blocks.iter().filter_map(|(node, block)| {
            let (offset, data) = global_offset(block)?;
            Some(Part {
                node: *node,
                offset,
                records: records_in(self.trial, data),
            })
        });
        Ok((parts.collect(), total_records(&finished.decision)))
    }
}

//! What one simulated rank does in a trial: the same that a program does through the C interface.

use std::cell::RefCell;
use std::rc::Rc;

use super::drawer::{Drawer, Shared};
use super::{Keeping, Trial};
use crate::buffer::Buffer;
use crate::engine::{Engine, Event, Job, Observer, Occasion, Source, Stats};
use crate::error::{Error, Result, caught};
use crate::faults::Schedule;
use crate::kernel::{Kernel, kernel_for};
use crate::members::{Members, Rank};
use crate::record::Layout;
use crate::sort::{HyperQuickSort, global_offset, total_records};
use crate::store::Store;
use crate::store::directory::Directory;
use crate::store::memory::Memory;
use crate::transport::sim::{Deed, Entry, Played, Probe, Script, SimFabric, Taken, play};
use crate::transport::{Manners, Protocol, Transport};
use crate::vcube::Node;

/// One block of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The node whose block it is.
    pub node: Node,
    /// Where it starts in the whole, in records.
    pub offset: u64,
    /// The records.
    pub records: Vec<i32>,
}

/// What one sort gave one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The blocks, or why there are none.
    pub parts: std::result::Result<Vec<Part>, Error>,
    /// How many records there are in all.
    pub total: u64,
    /// The dead that the rank knew of when it began.
    pub absent: Vec<Rank>,
    /// The dead that it knows of now.
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
    /// What happened, where it was asked for.
    pub entries: Vec<Entry>,
    /// Ranks that hang.
    pub hung: Vec<Rank>,
    /// Names of files that were left in the shared directory.
    pub litter: Vec<String>,
    /// Something went so wrong that the run ended at once.
    pub panic: Option<String>,
}

/// Messages are cut into pieces of this size: above that of the greatest decision, and small enough
/// for trials with some thousand records to need several.
const CHUNK: usize = 16 << 10;

/// Plays a trial.
pub fn run(trial: &Trial, record: bool) -> Run {
    let script = Script {
        seed: trial.seed,
        losses: trial.losses.clone(),
        record,
    };
    let files = Shared::default();
    let diary: Rc<RefCell<Vec<Vec<Option<Outcome>>>>> =
        Rc::new(RefCell::new(vec![vec![None; trial.ranks]; trial.sorts]));
    let (own, shared, results) = (trial.clone(), Rc::clone(&files), Rc::clone(&diary));
    let played = caught(|| {
        Ok(play(trial.ranks, &script, move |rank, fabric| {
            let mut take = |sort: usize, outcome| {
                results.borrow_mut()[sort][rank.index()] = Some(outcome);
            };
            live(&own, fabric, &shared, &mut take)
        }))
    });
    let (played, panic) = match played {
        Ok(mut played) => {
            let misuse = played.misuse.take();
            (played, misuse)
        }
        Err(error) => (Played::default(), Some(error.text)),
    };
    let everyone = (0..trial.ranks as u32).map(Rank);
    let lived = |rank: &Rank| played.outcomes.get(rank.index()) == Some(&Some(true));
    let litter = files.borrow().keys().cloned().collect();
    Run {
        outcomes: diary.take(),
        survivors: everyone.filter(lived).collect(),
        taken: played.taken,
        entries: played.entries,
        hung: played.hung,
        litter,
        panic,
    }
}

/// All sorts of one rank. False: it died.
fn live(
    trial: &Trial,
    fabric: SimFabric<'_>,
    files: &Shared,
    take: &mut dyn FnMut(usize, Outcome),
) -> bool {
    let probe = fabric.probe();
    let manners = Manners {
        repair: trial.repair,
        chunk: CHUNK,
        patience: None,
    };
    let mut transport = Protocol::new(fabric, manners);
    let mut members = Members::new(transport.me(), transport.ranks());
    let Ok(mut store) = open_store(trial, files, &probe) else {
        return false;
    };
    for sort in 0..trial.sorts {
        let absent = members.faulty().iter().collect();
        let parts = sort_once(
            trial,
            sort,
            &mut transport,
            &mut members,
            &mut *store,
            &probe,
        );
        if probe.check().is_err() {
            return false;
        }
        let (parts, total) = match parts {
            Ok((parts, total)) => (Ok(parts), total),
            Err(error) => (Err(error), 0),
        };
        let faulty = members.faulty().iter().collect();
        take(
            sort,
            Outcome {
                parts,
                total,
                absent,
                faulty,
            },
        );
    }
    true
}

fn open_store(trial: &Trial, files: &Shared, probe: &Probe) -> Result<Box<dyn Store>> {
    Ok(match trial.store {
        Keeping::None => Box::new(Memory::new(0)),
        Keeping::Memory(copies) => Box::new(Memory::new(copies)),
        Keeping::Directory => {
            let drawer = Drawer::new(Rc::clone(files), probe.clone());
            Box::new(Directory::open(Box::new(drawer), 1, probe.rank())?)
        }
    })
}

/// Writes events down, and counts a commit as a step.
struct Witness(Probe);

impl Observer for Witness {
    fn event(&mut self, occasion: Occasion) {
        let Occasion { event, round, .. } = occasion;
        self.0.note(|| format!("round {round}: {event:?}"));
        if event == Event::Round {
            // Whether the rank dies of it shows at its next step.
            let _ = self.0.step(Deed::Committing);
        }
    }
}

struct Nothing;

impl Source for Nothing {
    fn reload(&mut self, _: Rank) -> Option<Result<Buffer>> {
        None
    }
}

fn kernel() -> Result<Box<dyn Kernel>> {
    kernel_for(&Layout::new(4, 0, 0, 5)?, 1)
}

fn sort_once(
    trial: &Trial,
    sort: usize,
    transport: &mut dyn Transport,
    members: &mut Members,
    store: &mut dyn Store,
    probe: &Probe,
) -> Result<(Vec<Part>, u64)> {
    let input = trial.input(sort, members.me());
    let input = Buffer::copy_of(bytemuck::cast_slice(&input))?;
    let absent = members.faulty().clone();
    let mut witness = Witness(probe.clone());
    let schedule = Schedule::default();
    let mut engine = Engine {
        transport,
        members,
        observer: &mut witness,
        stats: &mut Stats::default(),
        schedule: &schedule,
        round: 0,
        rounds: 0,
    };
    let kernel = engine.all_or_none(kernel())?;
    let algorithm = HyperQuickSort {
        kernel: &*kernel,
        dimension: engine.members.cube().dimension(),
        rule: trial.pivot,
    };
    let mut source = Nothing;
    let job = Job::new(&mut engine, &algorithm, store, &mut source, input, absent);
    let finished = job.run()?;
    let parts = finished.blocks.iter().filter_map(|(node, block)| {
        let (offset, data) = global_offset(block)?;
        Some(Part {
            node: *node,
            offset,
            records: bytemuck::cast_slice(data).to_vec(),
        })
    });
    Ok((parts.collect(), total_records(&finished.decision)))
}

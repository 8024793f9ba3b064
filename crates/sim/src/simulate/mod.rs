//! Callers' algorithms on simulated ranks that crash: the same engine as on MPI, in one thread, where a
//! seed decides every interleaving and every crash. Only with the feature `simulation`.
//!
//! [`Check`] tries an algorithm under many seeds, or under every crash there can be, and compares what
//! the survivors get with what all nodes come to without faults:
//!
//! ```no_run
//! use ftsort::{buffer::Slice, error::Result, rounds::{Rounds, Task, bytes}, simulate::Check};
//!
//! #[derive(Clone)]
//! struct Xor; // of all nodes' bytes, at each of them
//! impl Rounds for Xor {
//!     fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
//!         bytes(&[task.state.first().unwrap_or(&0) ^ inbox.first().unwrap_or(&0)])
//!     }
//! }
//! let check = Check::new(Xor, vec![vec![1], vec![2], vec![4]]).unwrap();
//! println!("{}", check.seeds(0..1000, 2).unwrap()); // two of three ranks die
//! println!("{}", check.every_crash(2).unwrap()); // at every pair of steps
//! ```
//!
//! Must never: let anything but the seed decide what happens.

#[cfg(feature = "trials")]
mod check;
pub mod directory;
#[cfg(all(test, feature = "trials"))]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

#[cfg(feature = "trials")]
pub use check::{Check, Failing, Tally};

use crate::transport::{Loss, Manner, Probe, Script, SimMpi, SimStep, Taken, play_with_room};
use directory::{InMemoryDirectory, Shared};
use ftsort_core::engine::{Engine, EngineContext, Event, Job, Observer, Occasion, Source, Stats};
use ftsort_core::faults::Schedule;
use ftsort_core::members::{Members, Rank, RankSet};
use ftsort_core::rounds::purity::PurityCheck;
use ftsort_core::rounds::{Hypercube, Rounds};
use ftsort_core::store::Store;
use ftsort_core::store::directory::Directory;
use ftsort_core::store::memory::Memory;
use ftsort_core::transport::{Protocol, ProtocolConfig, Repair, Transport};
use ftsort_core::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Result, caught};
use ftsort_kernels::random::SplitMix;

/// Where the ranks keep the states of every round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Nowhere.
    Nowhere,
    /// In the memory of so many other ranks.
    Memory(usize),
    /// In files that everybody sees.
    Directory,
}

impl fmt::Display for Keeping {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keeping::Nowhere => out.write_str("none"),
            Keeping::Memory(copies) => write!(out, "memory:{copies}"),
            Keeping::Directory => out.write_str("directory"),
        }
    }
}

/// All that decides a run, beside the algorithm and what the ranks bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Decides every interleaving.
    pub seed: u64,
    /// The store.
    pub keeping: Keeping,
    /// What ranks brought can be got again; as where they bring nothing ([`Rounds::inits_all`]).
    pub reload: bool,
    /// Who dies, and at which of its steps.
    pub losses: Vec<Loss>,
}

impl fmt::Display for Setting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "seed={} store={}", self.seed, self.keeping)?;
        if self.reload {
            out.write_str(" reload")?;
        }
        for (index, loss) in self.losses.iter().enumerate() {
            let before = if index == 0 { " lose=" } else { "," };
            write!(out, "{before}{loss}")?;
        }
        Ok(())
    }
}

/// What a rank got.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The states of the nodes that it executes in the end, or why there are none.
    pub states: Result<Vec<(Node, Slice)>>,
    /// The dead that it knows of.
    pub faulty: Vec<Rank>,
    /// How many of them were known when something was committed last; None: nothing ever was.
    pub absorbed: Option<usize>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Ended {
    /// What each rank got; None: it died, or hangs.
    pub outcomes: Vec<Option<Outcome>>,
    /// All steps, in order.
    pub taken: Vec<Taken>,
    /// Ranks that hang.
    pub hung: Vec<Rank>,
    /// The network was used in a way in which it must not be.
    pub misuse: Option<String>,
}

/// Messages are cut into pieces of this size.
const CHUNK: usize = 16 << 10;

/// Runs an algorithm on as many simulated ranks as there are inputs. Each step is run twice
/// ([`PurityCheck`]), so that what is not pure is found.
///
/// # Panics
/// If the system has no memory for the ranks' stacks, or the engine has a defect.
pub fn run(rounds: &Rc<dyn Rounds>, inputs: &Rc<Vec<Vec<u8>>>, setting: &Setting) -> Ended {
    let script = Script {
        seed: setting.seed,
        losses: setting.losses.clone(),
        record: false,
    };
    let files = Shared::default();
    let (rounds, inputs) = (Rc::clone(rounds), Rc::clone(inputs));
    let setting = setting.clone();
    let played = play_with_room(inputs.len(), &script, move |_, mpi| {
        let life = Life {
            rounds: &*rounds,
            inputs: &inputs,
            setting: &setting,
            files: &files,
        };
        life.live(mpi)
    });
    Ended {
        outcomes: played.outcomes,
        taken: played.taken,
        hung: played.hung,
        misuse: played.misuse,
    }
}

/// As [`run`], where so many ranks die at instants that the seed draws, each soon after the one before,
/// or at any time. Also gives who they were.
///
/// # Panics
/// As [`run`].
pub fn run_with_deaths(
    rounds: &Rc<dyn Rounds>,
    inputs: &Rc<Vec<Vec<u8>>>,
    setting: &Setting,
    deaths: usize,
) -> (Ended, Vec<Loss>) {
    let mut draw = SplitMix::new(setting.seed);
    let mut setting = setting.clone();
    let mut everyone: Vec<Rank> = Rank::all(inputs.len()).collect();
    let mut ended = run(rounds, inputs, &setting);
    for index in 0..deaths.min(inputs.len().saturating_sub(1)) {
        let victim = draw.draw_at(&mut everyone, index);
        let last = setting.losses.last();
        let last = last.and_then(|last| place_of(&ended, last)).unwrap_or(0);
        let start = if draw.once_in(2) { last } else { 0 };
        let theirs = ended.taken[start..]
            .iter()
            .filter(|taken| taken.rank == victim);
        let theirs: Vec<u32> = theirs.map(|taken| taken.step).collect();
        let pick = draw.below(theirs.len() as u64) as usize;
        if let Some(step) = theirs.get(pick) {
            setting.losses.push(Loss {
                rank: victim,
                step: *step,
                manner: Manner::Crash,
            });
            ended = run(rounds, inputs, &setting);
        }
    }
    (ended, setting.losses)
}

/// Where in a run somebody dies.
fn place_of(ended: &Ended, loss: &Loss) -> Option<usize> {
    let struck = |taken: &Taken| taken.rank == loss.rank && taken.step == loss.step;
    ended.taken.iter().position(struck)
}

/// What all ranks of a run know.
struct Life<'a> {
    rounds: &'a dyn Rounds,
    inputs: &'a [Vec<u8>],
    setting: &'a Setting,
    files: &'a Shared,
}

impl Life<'_> {
    /// What one rank does: the same as a program does through the C interface.
    fn live(&self, mpi: SimMpi<'_>) -> Outcome {
        let probe = mpi.probe();
        let config = ProtocolConfig {
            repair: Repair::Agree,
            chunk: CHUNK.max(256 * self.inputs.len()),
            timeout: None,
        };
        let mut transport = Protocol::new(mpi, config);
        let mut members = Members::new(transport.me(), transport.ranks());
        let witness = Rc::new(RefCell::new(Witness::default()));
        let states = self.states(&mut transport, &mut members, &probe, &witness);
        Outcome {
            states,
            faulty: members.faulty().iter().collect(),
            absorbed: witness.borrow().absorbed,
        }
    }

    fn states(
        &self,
        transport: &mut dyn Transport,
        members: &mut Members,
        probe: &Probe,
        witness: &Rc<RefCell<Witness>>,
    ) -> Result<Vec<(Node, Slice)>> {
        let ranks = self.inputs.len();
        let mut store = self.store(probe)?;
        let mut observer = Listener(Rc::clone(witness), probe.clone());
        let (mut stats, schedule) = (Stats::default(), Schedule::default());
        let input = Buffer::copy_of(&self.inputs[members.me().index()])?;
        let mut brought = NodeSet::new(members.cube().len());
        Rank::all(ranks).for_each(|rank| brought.insert(rank.home()));
        let dimension = members.cube().dimension();
        let mut engine = Engine::new(EngineContext {
            transport,
            members,
            observer: &mut observer,
            stats: &mut stats,
            schedule: &schedule,
            policy: None,
        });
        let twice = PurityCheck(self.rounds);
        let algorithm = caught(|| Hypercube::new(&twice, dimension, brought));
        let algorithm = engine.all_or_none(algorithm)?;
        let mut source = Library(self.inputs, self.setting.reload);
        let absent = RankSet::new(ranks);
        let job = Job::new(
            &mut engine,
            &algorithm,
            &mut *store,
            &mut source,
            input,
            absent,
            None,
        );
        let finished = job.run(&mut RankSet::new(ranks))?;
        let blocks = finished.blocks.iter();
        blocks
            .map(|(node, block)| Ok((*node, algorithm.finished(*node, block)?)))
            .collect()
    }

    fn store(&self, probe: &Probe) -> Result<Box<dyn Store>> {
        Ok(match self.setting.keeping {
            Keeping::Nowhere => Box::new(Memory::new(0)),
            Keeping::Memory(copies) => Box::new(Memory::new(copies)),
            Keeping::Directory => {
                let files = InMemoryDirectory::new(Rc::clone(self.files), probe.clone(), false);
                Box::new(Directory::open(Box::new(files), 1, probe.rank())?)
            }
        })
    }
}

/// What a rank has seen of commits.
#[derive(Default)]
struct Witness {
    heard: usize,
    absorbed: Option<usize>,
}

struct Listener(Rc<RefCell<Witness>>, Probe);

impl Observer for Listener {
    fn event(&mut self, occasion: Occasion) {
        let mut witness = self.0.borrow_mut();
        let committed = match occasion.event {
            Event::Fault(_) => {
                witness.heard += 1;
                false
            }
            Event::Round => true,
            // Before the inputs are committed nothing is.
            Event::Replay => occasion.round > 0,
            _ => false,
        };
        if committed {
            witness.absorbed = Some(witness.heard);
            // Whether the rank dies of it shows at its next step.
            let _ = self.1.step(SimStep::Committing);
        }
    }
}

/// Gives what ranks brought again, if that is allowed.
struct Library<'a>(&'a [Vec<u8>], bool);

impl Source for Library<'_> {
    fn can_reload(&self) -> bool {
        self.1
    }

    fn reload(&mut self, rank: Rank) -> Result<Buffer> {
        Buffer::copy_of(&self.0[rank.index()])
    }
}

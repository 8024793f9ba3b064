//! The scheduler: ranks are coroutines, and the seed decides which of them continues.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult};

use super::clock::{Due, NetworkClock};
use super::mpi::{Pause, SimMpi};
use super::ready::ReadySet;
use super::state::SimState;
use super::{Received, SimConfig, StepRecord, TraceEntry};
use ftsort_core::members::Rank;
use ftsort_kernels::memory::ThreadBudget;

/// The result of a run.
#[derive(Debug)]
pub struct SimResult<T> {
    /// The return value of each rank. None: the rank failed or hangs.
    pub outcomes: Vec<Option<T>>,
    /// All steps, in the order in which they were taken.
    pub steps: Vec<StepRecord>,
    /// The trace, if the configuration asks for it.
    pub trace: Vec<TraceEntry>,
    /// The messages that arrived at receives, and how many of each there were.
    pub received: BTreeMap<Received, usize>,
    /// Ranks that wait for something that cannot happen any more.
    pub hung: Vec<Rank>,
    /// A use of the network that its interface forbids.
    pub misuse: Option<String>,
    /// The seconds that a timed run took.
    pub seconds: f64,
}

impl<T> SimResult<T> {
    /// The same run with other return values.
    pub fn with_outcomes<U>(self, outcomes: Vec<Option<U>>) -> SimResult<U> {
        SimResult {
            outcomes,
            steps: self.steps,
            trace: self.trace,
            received: self.received,
            hung: self.hung,
            misuse: self.misuse,
            seconds: self.seconds,
        }
    }
}

/// The stack of a rank that runs the engine in a build without optimisation.
const STACK_BYTES: usize = 256 << 10;

/// The stack of a rank that runs callbacks of a program. Memory is used only as far as it is touched.
const LARGE_STACK_BYTES: usize = 8 << 20;

/// The number of turns after which a run counts as hanging: twice as many as sorts of twelve ranks have needed.
fn max_turns(ranks: usize) -> u64 {
    let ranks = ranks as u64 + 2;
    20_000 * ranks * ranks
}

thread_local! {
    /// Stacks are reused, because creating one costs more than a run.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

type RankCoroutine = Coroutine<(), Pause, ()>;

struct RankTask {
    rank: Rank,
    coroutine: RankCoroutine,
    /// The rank's budget while other ranks run.
    budget: ThreadBudget,
    waiting: bool,
}

impl RankTask {
    /// Lets the rank continue with its own memory budget.
    fn resume(&mut self) -> CoroutineResult<Pause, ()> {
        struct Switched<'b>(&'b mut ThreadBudget);
        impl Drop for Switched<'_> {
            fn drop(&mut self) {
                self.0.exchange();
            }
        }
        self.budget.exchange();
        let _switched = Switched(&mut self.budget);
        self.coroutine.resume(())
    }
}

/// Runs `rank_main` on every rank until all ranks have returned or no rank can continue.
///
/// # Panics
/// If the system has no memory for the ranks' stacks, or `rank_main` panics.
pub fn run_ranks<T: 'static>(
    ranks: usize,
    config: &SimConfig,
    rank_main: impl Fn(Rank, SimMpi<'_>) -> T + 'static,
) -> SimResult<T> {
    let returned = (0..ranks).map(|_| None).collect();
    let returned: Rc<RefCell<Vec<Option<T>>>> = Rc::new(RefCell::new(returned));
    let kept = Rc::clone(&returned);
    let rank_main: RankMain = Rc::new(move |rank, mpi| {
        let outcome = rank_main(rank, mpi);
        kept.borrow_mut()[rank.index()] = Some(outcome);
    });
    let run = run_tasks(ranks, config, &rank_main);
    let survived = run.outcomes.iter().zip(returned.take());
    let outcomes = survived.map(|(survived, outcome)| survived.and(outcome));
    let outcomes = outcomes.collect();
    run.with_outcomes(outcomes)
}

/// The program of each rank.
type RankMain = Rc<dyn Fn(Rank, SimMpi<'_>)>;

/// As [`run_ranks`], without return values: so it is compiled once, and not for each program.
fn run_tasks(ranks: usize, config: &SimConfig, rank_main: &RankMain) -> SimResult<()> {
    let stack_bytes = if config.large_stacks {
        LARGE_STACK_BYTES
    } else {
        STACK_BYTES
    };
    let state = Rc::new(RefCell::new(SimState::new(ranks, config)));
    let tasks: Vec<RankTask> = (0..ranks as u32)
        .map(|rank| {
            let (rank, state, rank_main) = (Rank(rank), Rc::clone(&state), Rc::clone(rank_main));
            let coroutine = Coroutine::with_stack(stack(stack_bytes), move |yielder: &_, ()| {
                rank_main(rank, SimMpi::new(rank, state, yielder))
            });
            RankTask {
                rank,
                coroutine,
                budget: ThreadBudget::default(),
                waiting: false,
            }
        })
        .collect();
    let mut scheduler = Scheduler {
        woken: Rc::clone(&state.borrow().woken),
        state: Rc::clone(&state),
        outcomes: vec![None; ranks],
        positions: (0..ranks).map(Some).collect(),
        ready: ReadySet::all(ranks),
        tasks,
    };
    Rank::all(ranks).for_each(|rank| state.borrow_mut().queue_turn(rank));
    let mut turns = 0;
    while !scheduler.tasks.is_empty() && turns < max_turns(ranks) && scheduler.take_turn() {
        turns += 1;
    }
    let Scheduler {
        tasks, outcomes, ..
    } = scheduler;
    let hung = tasks.iter().map(|task| task.rank).collect();
    // The ranks that hang find that they do not run any more, and return.
    state.borrow_mut().closed = true;
    for mut task in tasks {
        while matches!(task.resume(), CoroutineResult::Yield(_)) {}
        keep_stack(task.coroutine);
    }
    let mut state = state.borrow_mut();
    SimResult {
        outcomes,
        steps: std::mem::take(&mut state.step_records),
        trace: std::mem::take(&mut state.trace),
        received: std::mem::take(&mut state.received),
        hung,
        misuse: state.misuse.take(),
        seconds: state.clock,
    }
}

fn stack(bytes: usize) -> DefaultStack {
    let fits = |stack: &DefaultStack| stack.base().get() - stack.limit().get() >= bytes;
    let used = STACKS.with_borrow_mut(|stacks| {
        let index = stacks.iter().rposition(fits)?;
        Some(stacks.swap_remove(index))
    });
    used.unwrap_or_else(|| DefaultStack::new(bytes).expect("memory for a rank's stack"))
}

fn keep_stack(coroutine: RankCoroutine) {
    STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()));
}

/// The tasks of a run, and which of them can continue.
struct Scheduler {
    state: Rc<RefCell<SimState>>,
    /// The ranks for which something has changed since the last turn.
    woken: Rc<RefCell<Vec<Rank>>>,
    tasks: Vec<RankTask>,
    /// Whether each rank has returned as a survivor.
    outcomes: Vec<Option<()>>,
    /// The position of each rank's task. None: it has ended.
    positions: Vec<Option<usize>>,
    /// The positions of the tasks that can continue.
    ready: ReadySet,
}

impl Scheduler {
    /// Applies one event, or lets one rank continue. Returns false if neither is possible.
    fn take_turn(&mut self) -> bool {
        self.update_ready();
        let mut now = self.state.borrow_mut();
        now.time += 1;
        if now.network.is_some() {
            drop(now);
            return self.take_turn_by_clock();
        }
        let ready = self.ready.len();
        if ready == 0 && now.events.is_empty() {
            return now.timed && now.let_time_pass(self.tasks.iter().map(|task| task.rank));
        }
        if now.in_batches {
            if ready == 0 {
                now.apply_all();
            } else {
                drop(now);
                self.resume(self.ready.kth(0));
            }
            return true;
        }
        if let Some(event) = now.next_event(ready) {
            now.apply(event);
            return true;
        }
        let rank_at = |index: usize| self.tasks[self.ready.kth(index)].rank;
        let index = self.ready.kth(now.next_rank(ready, rank_at));
        drop(now);
        self.resume(index);
        true
    }

    /// Lets the rank or the event with the smallest time continue. Returns false if there is none.
    fn take_turn_by_clock(&mut self) -> bool {
        let mut now = self.state.borrow_mut();
        let next = now.network.as_mut().and_then(NetworkClock::next);
        match next {
            None => return false,
            Some(Due::Event(event)) => now.apply(event),
            Some(Due::Rank(rank)) => {
                now.process(rank).clock.is_queued = false;
                drop(now);
                if let Some(index) = self.positions[rank.index()] {
                    self.resume(index);
                }
            }
        }
        true
    }

    /// Lets the task at a position continue.
    fn resume(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        if task.waiting {
            self.state.borrow_mut().process(task.rank).changed = false;
        }
        let rank = task.rank;
        let end = task.resume();
        // Computation before the pause belongs to this rank.
        self.state.borrow_mut().time_of(rank);
        match end {
            CoroutineResult::Yield(pause) => {
                task.waiting = pause == Pause::Waiting;
                self.update(rank);
            }
            CoroutineResult::Return(()) => self.end(index),
        }
    }

    /// Notes which tasks can continue, after changes since the last turn.
    fn update_ready(&mut self) {
        loop {
            let woken = self.woken.borrow_mut().pop();
            let Some(rank) = woken else { break };
            self.update(rank);
        }
        // The clock moves.
        let held = self.state.borrow().held.clone();
        held.into_iter().for_each(|rank| self.update(rank));
    }

    /// Notes whether a rank's task can continue.
    fn update(&mut self, rank: Rank) {
        let Some(position) = self.positions[rank.index()] else {
            return;
        };
        let mut now = self.state.borrow_mut();
        let can_continue = !self.tasks[position].waiting || now.processes[rank.index()].changed;
        if can_continue {
            now.queue_turn(rank);
        }
        self.ready.set(position, can_continue && !now.is_held(rank));
    }

    /// Removes a task that has ended. The last task takes its position.
    fn end(&mut self, index: usize) {
        self.ready.set(self.tasks.len() - 1, false);
        let task = self.tasks.swap_remove(index);
        self.positions[task.rank.index()] = None;
        if let Some(moved) = self.tasks.get(index).map(|task| task.rank) {
            self.positions[moved.index()] = Some(index);
            self.update(moved);
        }
        let mut now = self.state.borrow_mut();
        now.process(task.rank).ended = true;
        // A rank that was reported as failed is not a survivor, even if it returns.
        self.outcomes[task.rank.index()] = now.is_alive(task.rank).then_some(());
        drop(now);
        keep_stack(task.coroutine);
    }
}

//! The scheduler: ranks are coroutines, and the script's seed says who goes on.

use std::cell::RefCell;
use std::rc::Rc;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult};

use super::mpi::{Pause, SimMpi};
use super::state::World;
use super::{Entry, Script, Taken};
use ftsort_core::members::Rank;

/// What came of a run.
#[derive(Debug)]
pub struct Played<T> {
    /// What each rank returned; None: it died, or hung.
    pub outcomes: Vec<Option<T>>,
    /// All steps, in the order in which they were taken.
    pub taken: Vec<Taken>,
    /// What happened, where the script wants it written down.
    pub entries: Vec<Entry>,
    /// Ranks that wait for something that will never come, while nothing else can happen.
    pub hung: Vec<Rank>,
    /// The network was used in a way in which it must not be.
    pub misuse: Option<String>,
}

impl<T> Default for Played<T> {
    fn default() -> Played<T> {
        Played {
            outcomes: Vec::new(),
            taken: Vec::new(),
            entries: Vec::new(),
            hung: Vec::new(),
            misuse: None,
        }
    }
}

/// Enough for the engine in a build without optimisation.
const STACK_BYTES: usize = 256 << 10;

/// Enough for what callers do elsewhere; memory is used as far as it is touched.
const LARGE_STACK_BYTES: usize = 8 << 20;

/// A run that takes longer goes round in circles.
fn most_turns(ranks: usize) -> u64 {
    let ranks = ranks as u64 + 2;
    10_000 * ranks * ranks
}

thread_local! {
    /// Stacks are used again: making one costs more than a run.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

type Body<T> = Coroutine<(), Pause, T>;

struct Member<T> {
    rank: Rank,
    body: Body<T>,
    waiting: bool,
}

/// Runs `body` on every one of so many ranks, to the end or until nothing moves any more.
///
/// # Panics
/// If the system has no memory for the ranks' stacks, or a body panics.
pub fn play<T: 'static>(
    ranks: usize,
    script: &Script,
    body: impl Fn(Rank, SimMpi<'_>) -> T + 'static,
) -> Played<T> {
    play_on(STACK_BYTES, ranks, script, body)
}

/// As [`play`], with stacks on which bodies may run what they do not know.
///
/// # Panics
/// As [`play`].
pub fn play_with_room<T: 'static>(
    ranks: usize,
    script: &Script,
    body: impl Fn(Rank, SimMpi<'_>) -> T + 'static,
) -> Played<T> {
    play_on(LARGE_STACK_BYTES, ranks, script, body)
}

fn play_on<T: 'static>(
    stack_bytes: usize,
    ranks: usize,
    script: &Script,
    body: impl Fn(Rank, SimMpi<'_>) -> T + 'static,
) -> Played<T> {
    let world = Rc::new(RefCell::new(World::new(ranks, script)));
    let body = Rc::new(body);
    let mut members: Vec<Member<T>> = (0..ranks as u32)
        .map(|rank| {
            let (rank, world, body) = (Rank(rank), Rc::clone(&world), Rc::clone(&body));
            let run = Coroutine::with_stack(stack(stack_bytes), move |yielder: &_, ()| {
                body(rank, SimMpi::new(rank, world, yielder))
            });
            Member {
                rank,
                body: run,
                waiting: false,
            }
        })
        .collect();
    let mut outcomes: Vec<Option<T>> = (0..ranks).map(|_| None).collect();
    let mut turns = 0;
    while !members.is_empty()
        && turns < most_turns(ranks)
        && turn(&world, &mut members, &mut outcomes)
    {
        turns += 1;
    }
    let hung = members.iter().map(|member| member.rank).collect();
    // They find themselves dead, and end.
    world.borrow_mut().closed = true;
    for mut member in members {
        while matches!(member.body.resume(()), CoroutineResult::Yield(_)) {}
        keep(member.body);
    }
    let mut world = world.borrow_mut();
    Played {
        outcomes,
        taken: std::mem::take(&mut world.taken),
        entries: std::mem::take(&mut world.entries),
        hung,
        misuse: world.misuse.take(),
    }
}

fn stack(bytes: usize) -> DefaultStack {
    let fits = |stack: &DefaultStack| stack.base().get() - stack.limit().get() >= bytes;
    let used = STACKS.with_borrow_mut(|stacks| {
        let at = stacks.iter().rposition(fits)?;
        Some(stacks.swap_remove(at))
    });
    used.unwrap_or_else(|| DefaultStack::new(bytes).expect("memory for a rank's stack"))
}

fn keep<T>(body: Body<T>) {
    STACKS.with_borrow_mut(|stacks| stacks.push(body.into_stack()));
}

/// One thing happens. False: nothing can.
fn turn<T>(
    world: &Rc<RefCell<World>>,
    members: &mut Vec<Member<T>>,
    outcomes: &mut [Option<T>],
) -> bool {
    let mut now = world.borrow_mut();
    now.time += 1;
    let ready: Vec<usize> = (0..members.len())
        .filter(|index| !members[*index].waiting || now.process(members[*index].rank).changed)
        .collect();
    if ready.is_empty() && now.events.is_empty() {
        return false;
    }
    if let Some(event) = now.next_event(ready.len()) {
        now.happen(event);
        return true;
    }
    let index = ready[now.next_rank(ready.len(), |at| members[ready[at]].rank)];
    let member = &mut members[index];
    if member.waiting {
        now.process(member.rank).changed = false;
    }
    drop(now);
    match member.body.resume(()) {
        CoroutineResult::Yield(pause) => member.waiting = pause == Pause::Waiting,
        CoroutineResult::Return(outcome) => {
            let member = members.swap_remove(index);
            // Who was declared dead is none of the survivors, whatever it believes.
            let lives = world.borrow().is_alive(member.rank);
            outcomes[member.rank.index()] = lives.then_some(outcome);
            keep(member.body);
        }
    }
    true
}

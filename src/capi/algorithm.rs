//! What an algorithm of the caller's on the virtual hypercube is, as C says it: its rounds and callbacks.

use std::ffi::{c_int, c_void};
use std::hash::{Hash, Hasher};

use twox_hash::XxHash3_64;

use super::buffer::{Offer, ftsort_buffer};
use super::settings::read_sized;
use ftsort_core::rounds::{self, Round, Rounds, Task};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::{self, Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// A node's part of a round, or of what comes before it. Valid during the callback only, with all that it
/// points to, which must not be written to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_task {
    /// `sizeof(ftsort_task)` of the library; later versions append fields.
    pub struct_size: usize,
    /// Whose part it is; where something is decided, the root of the subcube.
    pub node: i32,
    /// `node` xor 2^`dimension`; -1 in rounds that exchange nothing.
    pub partner: i32,
    /// Not 0: `node` is the greater of the two.
    pub is_upper: i32,
    /// Not 0: `node` is the root of the subcube that shares something: its fault-free node with the
    /// smallest number (2024 paper, Section 4.1). For `propose` and `decide`.
    pub is_root: i32,
    /// How many nodes there are.
    pub nodes: u32,
    /// Which round, from 1 on, as in events and fault schedules.
    pub round: u32,
    /// Of how many.
    pub rounds: u32,
    /// Of the round, from 0 on; `FTSORT_NO_EXCHANGE`.
    pub dimension: u32,
    /// The node's state before the round; for `decide` nothing. Aligned to 64 bytes; not NULL, also if there
    /// are none.
    pub state: *const c_void,
    /// Its size.
    pub state_bytes: usize,
    /// What the node's subcube shared last, in this round or before; for `propose` and `decide`, before it.
    /// Aligned as `state`.
    pub shared: *const c_void,
    /// Its size; 0 before anything was shared.
    pub shared_bytes: usize,
}

/// What a node contributes to what its subcube shares. Valid during the callback only.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_proposal {
    /// Whose.
    pub node: i32,
    /// Not 0: the rank that is the node's home is dead, or there is none; its executor speaks for it.
    pub is_failed: i32,
    /// The bytes, aligned to 64; not NULL, also if there are none.
    pub data: *const c_void,
    /// How many.
    pub bytes: usize,
}

/// Makes the state before the first round of a node whose home brings none: where the number of ranks is
/// no power of two, or a rank was known to be dead before the call; with `begin_all` that of every node.
/// Pure, as all of these callbacks: the same bytes for the same arguments, on every rank, at any time,
/// any number of times; nothing kept from call to call, no clock, no random numbers, no communication.
/// Called for any node, on any rank, by the thread that called ftsort. Returns 0, or anything else to
/// refuse, which ends the run with `FTSORT_ERR_CALLBACK` on all ranks. Must not throw, longjmp, or call
/// ftsort or MPI, but for the functions of `ftsort_buffer`.
pub type ftsort_begin_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, node: i32, state: *mut ftsort_buffer) -> c_int>;

/// Says what a node contributes to what its subcube shares. Where there is no `decide`, only roots are
/// asked. The same rules as for `ftsort_begin_fn`.
pub type ftsort_propose_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        task: *const ftsort_task,
        proposal: *mut ftsort_buffer,
    ) -> c_int,
>;

/// Makes of the proposals of all nodes of a subcube, in ascending order of node, what they share. The same
/// rules as for `ftsort_begin_fn`.
pub type ftsort_decide_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        task: *const ftsort_task,
        proposals: *const ftsort_proposal,
        count: usize,
        shared: *mut ftsort_buffer,
    ) -> c_int,
>;

/// Says what a node sends to its partner. The same rules as for `ftsort_begin_fn`.
pub type ftsort_emit_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        task: *const ftsort_task,
        outbox: *mut ftsort_buffer,
    ) -> c_int,
>;

/// Makes a node's state after the round of its state before and of what its partner sent: `bytes` bytes
/// at `inbox`, aligned to 64, not NULL; none in rounds that exchange nothing. What is put into `next` is
/// the state; nothing put there is a state of no bytes. The same rules as for `ftsort_begin_fn`.
pub type ftsort_absorb_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        task: *const ftsort_task,
        inbox: *const c_void,
        bytes: usize,
        next: *mut ftsort_buffer,
    ) -> c_int,
>;

/// What one round is like.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_round {
    /// Every node exchanges with node xor 2^dimension; `FTSORT_NO_EXCHANGE`: nobody sends anything, and
    /// `absorb` alone is called.
    pub dimension: u32,
    /// The nodes that differ in the lowest so many bits alone share something before they act: more than
    /// `dimension` if they exchange. `FTSORT_SHARE_ALL`: all nodes. 0: what was shared last holds on.
    pub share: u32,
}

/// An algorithm on the virtual hypercube. Start from `FTSORT_ROUNDS_INIT`; zero always means the default.
/// Later versions append fields. The same on all ranks, but for `user`. Borrowed for the call, with all
/// that it points to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_rounds {
    /// `sizeof(ftsort_rounds)`.
    pub struct_size: usize,
    /// The rounds, `round_count` of them. NULL: one for each dimension, from the highest down, as in the
    /// papers; if there is a `propose`, in each of them the nodes that are to exchange from then on share
    /// something (in the round along dimension s the subcubes of s + 1 dimensions), as in
    /// HyperQuickSort.
    pub plan: *const ftsort_round,
    /// How many rounds `plan` has; 0 if that is NULL.
    pub round_count: usize,
    /// Not 0: with no `plan`, the rounds go from the lowest dimension up.
    pub ascending: i32,
    /// Not 0: `begin` makes every node's first state, and what ranks bring is not looked at: for inputs that
    /// anybody can make or read again. Nothing is ever lost then: what too few copies are left of is
    /// done again from the start.
    pub begin_all: i32,
    /// The most bytes of a proposal, and of what is shared; 0: 4096. All ranks learn, and keep to the end,
    /// what every subcube shares.
    pub share_limit: u32,
    /// See `ftsort_begin_fn`; NULL: a state of no bytes.
    pub begin: ftsort_begin_fn,
    /// See `ftsort_propose_fn`; NULL: nothing is shared.
    pub propose: ftsort_propose_fn,
    /// See `ftsort_decide_fn`; NULL: what the subcube's root proposes is shared.
    pub decide: ftsort_decide_fn,
    /// See `ftsort_emit_fn`; NULL: a node sends all of its state, which costs no copy.
    pub emit: ftsort_emit_fn,
    /// See `ftsort_absorb_fn`; not NULL.
    pub absorb: ftsort_absorb_fn,
    /// Passed to the callbacks as it is; never read. What it points to is constant during the call.
    pub user: *mut c_void,
}

/// At an address that any type can be at.
fn aligned(bytes: Slice) -> Result<Slice> {
    match bytes.as_ptr().addr() % buffer::ALIGNMENT {
        0 => Ok(bytes),
        _ => Ok(Buffer::copy_of(&bytes)?.into()),
    }
}

/// An algorithm of which the callbacks are C functions.
#[derive(Clone)]
pub(super) struct Caller {
    plan: Option<Vec<Round>>,
    given: ftsort_rounds,
}

impl Caller {
    /// # Safety
    /// `rounds` is NULL or valid, and so is what it points to, as long as the callbacks are called.
    pub(super) unsafe fn read(rounds: *const ftsort_rounds) -> Result<Caller> {
        let refuse = |text: &str| Err(Error::new(Status::Argument, text));
        // SAFETY: the caller's contract; the struct holds numbers, pointers and optional functions.
        let Some(given) = (unsafe { read_sized(rounds, "rounds")? }) else {
            return refuse("rounds is NULL");
        };
        if given.absorb.is_none() {
            return refuse("rounds.absorb is NULL");
        }
        if given.begin.is_none() && given.begin_all != 0 {
            return refuse("rounds.begin_all is set, but rounds.begin is NULL");
        }
        if given.propose.is_none() && given.decide.is_some() {
            return refuse("rounds.decide is set, but rounds.propose is NULL");
        }
        if given.plan.is_null() != (given.round_count == 0) {
            let text = format!(
                "rounds.round_count is {}, but rounds.plan is {}",
                given.round_count,
                if given.plan.is_null() { "NULL" } else { "set" }
            );
            return refuse(&text);
        }
        if given.round_count > MOST_ROUNDS {
            let text = format!(
                "rounds.round_count is {}, more than {MOST_ROUNDS}",
                given.round_count
            );
            return refuse(&text);
        }
        let plan = (!given.plan.is_null()).then(|| {
            // SAFETY: not NULL, and valid for so many rounds by the caller's contract.
            let plan = unsafe { std::slice::from_raw_parts(given.plan, given.round_count) };
            plan.iter().map(|round| Round {
                dimension: (round.dimension != FTSORT_NO_EXCHANGE).then_some(round.dimension),
                share: (round.share != 0).then_some(round.share),
            })
        });
        let plan: Option<Vec<Round>> = plan.map(Iterator::collect);
        let shares = plan.iter().flatten().any(|round| round.share.is_some());
        if shares && given.propose.is_none() {
            return refuse("rounds.plan shares something, but rounds.propose is NULL");
        }
        Ok(Caller { plan, given })
    }

    /// The same on all ranks.
    pub(super) fn fingerprint(&self, dimension: u32) -> u64 {
        let mut hasher = XxHash3_64::new();
        self.plan(dimension).hash(&mut hasher);
        let given = &self.given;
        (given.share_limit, given.begin_all != 0).hash(&mut hasher);
        let callbacks = [
            given.begin.is_some(),
            given.propose.is_some(),
            given.decide.is_some(),
            given.emit.is_some(),
        ];
        callbacks.hash(&mut hasher);
        hasher.finish()
    }
}

/// Both are in the header by name.
const FTSORT_NO_EXCHANGE: u32 = u32::MAX;
const FTSORT_SHARE_ALL: u32 = u32::MAX;
const MOST_ROUNDS: usize = 1 << 30;

fn refused(what: &str, code: c_int, (node, round): (Node, u32)) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::new(
            Status::Callback,
            format!("the {what} callback returned {code} for node {node} in round {round}"),
        )),
    }
}

/// A task as C sees it. `shared` is the task's, aligned.
fn told(task: &Task<'_>, state: &Slice, shared: &Slice) -> ftsort_task {
    ftsort_task {
        struct_size: size_of::<ftsort_task>(),
        node: task.node.0 as i32,
        partner: task.partner().map_or(-1, |partner| partner.0 as i32),
        is_upper: task.is_upper().into(),
        is_root: task.is_root().into(),
        nodes: task.nodes as u32,
        round: task.round,
        rounds: task.rounds,
        dimension: task.dimension.unwrap_or(FTSORT_NO_EXCHANGE),
        state: state.as_ptr().cast(),
        state_bytes: state.len(),
        shared: shared.as_ptr().cast(),
        shared_bytes: shared.len(),
    }
}

impl Rounds for Caller {
    fn plan(&self, dimension: u32) -> Vec<Round> {
        if let Some(plan) = &self.plan {
            let whole = |share: u32| match share {
                FTSORT_SHARE_ALL => dimension,
                share => share,
            };
            let plan = plan.iter().map(|round| Round {
                share: round.share.map(whole),
                ..*round
            });
            return plan.collect();
        }
        let plan = match self.given.ascending != 0 {
            true => rounds::upwards(dimension),
            false => rounds::downwards(dimension),
        };
        let shares = self.given.propose.is_some();
        let share = |round: &Round| round.dimension.filter(|_| shares).map(|bit| bit + 1);
        plan.iter()
            .map(|round| Round {
                share: share(round),
                ..*round
            })
            .collect()
    }

    fn init(&self, node: Node) -> Result<Slice> {
        let mut out = ftsort_buffer::empty();
        if let Some(begin) = self.given.begin {
            // SAFETY: the user's function with the user's pointer; `out` lives during the call.
            let code = unsafe { begin(self.given.user, node.0 as i32, &mut out) };
            refused("begin", code, (node, 1))?;
        }
        Ok(out.into_slice())
    }

    fn inits_all(&self) -> bool {
        self.given.begin_all != 0
    }

    fn propose(&self, task: &Task<'_>) -> Result<Slice> {
        let mut out = ftsort_buffer::empty();
        let wanted = self.given.decide.is_some() || task.is_root();
        if let Some(propose) = self.given.propose.filter(|_| wanted) {
            let (state, shared) = (aligned(task.state.clone())?, rounds::bytes(task.shared)?);
            let told = told(task, &state, &shared);
            // SAFETY: the user's function with the user's pointer; all bytes live during the call.
            let code = unsafe { propose(self.given.user, &told, &mut out) };
            refused("propose", code, (task.node, task.round))?;
        }
        Ok(out.into_slice())
    }

    fn decide(&self, task: &Task<'_>, proposals: &[(Node, Slice)]) -> Result<Slice> {
        let Some(decide) = self.given.decide else {
            let root = proposals.iter().find(|(node, _)| *node == task.node);
            return Ok(root.map_or_else(|| Buffer::default().into(), |(_, words)| words.clone()));
        };
        let faulty = |node: Node| {
            let subcube = task.subcube;
            !subcube.is_some_and(|subcube| subcube.fault_free.contains(&node))
        };
        let words: Vec<Slice> = proposals
            .iter()
            .map(|(_, words)| aligned(words.clone()))
            .collect::<Result<_>>()?;
        let told_of: Vec<ftsort_proposal> = proposals
            .iter()
            .zip(&words)
            .map(|((node, _), words)| ftsort_proposal {
                node: node.0 as i32,
                is_failed: faulty(*node).into(),
                data: words.as_ptr().cast(),
                bytes: words.len(),
            })
            .collect();
        let (state, shared) = (aligned(task.state.clone())?, rounds::bytes(task.shared)?);
        let told = told(task, &state, &shared);
        let mut out = ftsort_buffer::empty();
        // SAFETY: the user's function with the user's pointer; all bytes live during the call.
        let code = unsafe {
            let count = told_of.len();
            decide(self.given.user, &told, told_of.as_ptr(), count, &mut out)
        };
        refused("decide", code, (task.node, task.round))?;
        Ok(out.into_slice())
    }

    fn share_limit(&self) -> usize {
        match self.given.share_limit {
            0 => rounds::SHARE_LIMIT,
            limit => limit as usize,
        }
    }

    fn emit(&self, task: &Task<'_>) -> Result<Slice> {
        let Some(emit) = self.given.emit else {
            return Ok(task.state.clone());
        };
        let (state, shared) = (aligned(task.state.clone())?, rounds::bytes(task.shared)?);
        let told = told(task, &state, &shared);
        let mut out = ftsort_buffer::offering(Offer::State(state.clone()));
        // SAFETY: the user's function with the user's pointer; all bytes live during the call.
        let code = unsafe { emit(self.given.user, &told, &mut out) };
        refused("emit", code, (task.node, task.round))?;
        Ok(out.into_slice())
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        let absorb = self.given.absorb;
        let absorb = absorb.ok_or_else(|| Error::new(Status::Argument, "rounds.absorb is NULL"))?;
        let (state, shared) = (aligned(task.state.clone())?, rounds::bytes(task.shared)?);
        let told = told(task, &state, &shared);
        let inbox = aligned(inbox)?;
        let (data, bytes) = (inbox.as_ptr(), inbox.len());
        let mut out = ftsort_buffer::offering(Offer::Message(inbox));
        // SAFETY: the user's function with the user's pointer; all bytes live during the call.
        let code = unsafe { absorb(self.given.user, &told, data.cast(), bytes, &mut out) };
        refused("absorb", code, (task.node, task.round))?;
        Ok(out.into_slice())
    }
}

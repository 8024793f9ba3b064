//! The algorithm of a caller on the virtual hypercube, as C describes it: its rounds and its callbacks.

use std::ffi::{c_int, c_void};

use super::buffer::{Offer, ftsort_buffer};
use super::settings::read_sized;
use ftsort_core::group::config::hash_of;
use ftsort_core::rounds::{self, Round, Rounds, Task};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::{self, Buffer, Slice};
use ftsort_kernels::error::{Error, Result, refuse};

/// The part of one node in a round, as the callbacks see it. Valid during the callback, with all that it points
/// to, which must not be written to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_task {
    /// `sizeof(ftsort_task)` of the library; later versions append members.
    pub struct_size: usize,
    /// The node; for `decide` the root of the subcube.
    pub node: i32,
    /// `node` xor 2^`dimension`; -1 in a round without an exchange.
    pub partner: i32,
    /// Not 0: `node` is greater than `partner`.
    pub is_upper: i32,
    /// Not 0: `node` is the root of the subcube that shares a value: its fault-free node with the smallest number
    /// (2024 paper, Section 4.1). For `propose` and `decide`.
    pub is_root: i32,
    /// The number of nodes of the hypercube.
    pub nodes: u32,
    /// The round, from 1, as in events and fault schedules.
    pub round: u32,
    /// The number of rounds.
    pub rounds: u32,
    /// The dimension of the round, from 0, or FTSORT_NO_EXCHANGE.
    pub dimension: u32,
    /// The state of the node before the round; empty for `decide`. Aligned to 64 bytes; not NULL, even if empty.
    pub state: *const c_void,
    /// The size of `state`.
    pub state_bytes: usize,
    /// The value that the subcube of the node shared last, in this round or before; for `propose` and `decide`
    /// before this round, and for `decide` that of the first node of the subcube. Aligned as `state`.
    pub shared: *const c_void,
    /// The size of `shared`; 0 before any value was shared.
    pub shared_bytes: usize,
}

/// The proposal of one node for the value that its subcube shares. Valid during the callback.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_proposal {
    /// The node.
    pub node: i32,
    /// Not 0: the home rank of the node has failed and no spare took over, or is a spare, or does not exist, or a
    /// monitor excludes it; the proposal is of the executor.
    pub is_failed: i32,
    /// The bytes, aligned to 64; not NULL, even if empty.
    pub data: *const c_void,
    /// The number of bytes.
    pub bytes: usize,
}

/// Creates the initial state of a node if its home rank provides none: if the number of ranks is not a power of
/// two, or if the rank had failed before the call; with `begin_all` the initial state of every node.
///
/// This callback and the next four must be pure: the same bytes for the same arguments, on every rank, at any
/// time, any number of times; no memory of earlier calls, no clock, no random numbers, no communication. They
/// are called for any node, on any rank, by the thread that called ftsort. They return 0, or any other number
/// to refuse, which ends the run with FTSORT_ERR_CALLBACK on all ranks. They must not throw, longjmp, or call
/// ftsort or MPI, except the functions ftsort_buffer_.
pub type ftsort_begin_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, node: i32, state: *mut ftsort_buffer) -> c_int>;

/// Creates the proposal of a node for the value that its subcube shares. Without `decide` only roots are asked.
pub type ftsort_propose_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        task: *const ftsort_task,
        proposal: *mut ftsort_buffer,
    ) -> c_int,
>;

/// Combines the proposals of all nodes of a subcube, in ascending order of node, into the shared value.
pub type ftsort_decide_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        task: *const ftsort_task,
        proposals: *const ftsort_proposal,
        count: usize,
        shared: *mut ftsort_buffer,
    ) -> c_int,
>;

/// Creates the message of a node to its partner.
pub type ftsort_emit_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        task: *const ftsort_task,
        outbox: *mut ftsort_buffer,
    ) -> c_int,
>;

/// Creates the state of a node after the round, in `next`, from its state before and the message of its partner:
/// `bytes` bytes at `inbox`, aligned to 64, not NULL; empty in a round without an exchange. A `next` that is not
/// filled is an empty state.
pub type ftsort_absorb_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        task: *const ftsort_task,
        inbox: *const c_void,
        bytes: usize,
        next: *mut ftsort_buffer,
    ) -> c_int,
>;

/// One round of an algorithm.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_round {
    /// Every node exchanges with node xor 2^dimension. FTSORT_NO_EXCHANGE: no node sends, and only `absorb` is
    /// called.
    pub dimension: u32,
    /// Nodes that differ only in the lowest `share` bits share a value before they act; more than `dimension` if
    /// they exchange. FTSORT_SHARE_ALL: all nodes. 0: the last shared value stays in force.
    pub share: u32,
}

/// An algorithm on the virtual hypercube. Start from FTSORT_ROUNDS_INIT; zero selects the default of every
/// member. The same on all ranks, except `user`. Borrowed for the call, with all that it points to. Later
/// versions append members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_rounds {
    /// `sizeof(ftsort_rounds)`.
    pub struct_size: usize,
    /// `round_count` rounds. NULL: one round for each dimension, from the highest down, as in the papers; with
    /// `propose` the nodes that exchange from then on share a value in each (in the round of dimension s the
    /// subcubes of s + 1 dimensions), as in HyperQuickSort.
    pub plan: *const ftsort_round,
    /// The number of rounds of `plan`; 0 if it is NULL.
    pub round_count: usize,
    /// Not 0: without `plan`, the rounds go from the lowest dimension up.
    pub ascending: i32,
    /// Not 0: `begin` creates every initial state, and the states of the ranks are not read. For inputs that any
    /// rank can create or read again: no data are ever lost, because a run with too few copies starts again (not with
    /// FTSORT_STORE_DIRECTORY, whose files can be lost).
    pub begin_all: i32,
    /// The largest size of a proposal and of a shared value in bytes; 0: 4096. All ranks receive the values of
    /// all subcubes, and keep them until the end.
    pub share_limit: u32,
    /// See `ftsort_begin_fn`; NULL: an empty state.
    pub begin: ftsort_begin_fn,
    /// See `ftsort_propose_fn`; NULL: no value is shared.
    pub propose: ftsort_propose_fn,
    /// See `ftsort_decide_fn`; NULL: the proposal of the root is the shared value.
    pub decide: ftsort_decide_fn,
    /// See `ftsort_emit_fn`; NULL: a node sends its whole state, without a copy.
    pub emit: ftsort_emit_fn,
    /// See `ftsort_absorb_fn`; not NULL.
    pub absorb: ftsort_absorb_fn,
    /// Passed to the callbacks and never read. The data that it points to must not change during the call.
    pub user: *mut c_void,
    /// Not 0: the states after every `store_every` rounds, and after the last one, are stored under the name of
    /// ftsort_store_open. A run continues with the stored states, also of another job, and returns those of the last
    /// round at once. 1 stores every round; a greater number writes less, and repeats more rounds after a failure
    /// that takes states along.
    pub store_every: u32,
}

/// Returns the bytes at an address that is aligned for every type.
fn aligned(bytes: Slice) -> Result<Slice> {
    match bytes.as_ptr().addr() % buffer::ALIGNMENT {
        0 => Ok(bytes),
        _ => Ok(Buffer::copy_of(&bytes)?.into()),
    }
}

/// A user-defined algorithm with C functions as callbacks.
#[derive(Clone)]
pub(super) struct Caller {
    plan: Option<Vec<Round>>,
    given: ftsort_rounds,
}

impl Caller {
    /// # Safety
    /// `rounds` is NULL or valid, and so are its pointers, as long as the callbacks are called.
    pub(super) unsafe fn read(rounds: *const ftsort_rounds) -> Result<Caller> {
        // SAFETY: the caller's contract; the struct holds numbers, pointers and optional functions.
        let Some(given) = (unsafe { read_sized(rounds, "rounds")? }) else {
            return refuse("rounds is NULL: start from FTSORT_ROUNDS_INIT");
        };
        if given.absorb.is_none() {
            return refuse("rounds.absorb is NULL: set the callback that makes the next state");
        }
        if given.begin.is_none() && given.begin_all != 0 {
            return refuse(
                "rounds.begin_all is set, but rounds.begin is NULL: set both or neither",
            );
        }
        if given.propose.is_none() && given.decide.is_some() {
            return refuse("rounds.decide is set, but rounds.propose is NULL: set propose");
        }
        if given.plan.is_null() != (given.round_count == 0) {
            let text = format!(
                "rounds.round_count is {}, but rounds.plan is {}: set both or neither",
                given.round_count,
                if given.plan.is_null() { "NULL" } else { "set" }
            );
            return refuse(&text);
        }
        if given.round_count > MOST_ROUNDS {
            let text = format!(
                "rounds.round_count is {}: at most {MOST_ROUNDS} rounds are possible",
                given.round_count
            );
            return refuse(&text);
        }
        let plan = (!given.plan.is_null()).then(|| {
            // SAFETY: `plan` is not NULL, and valid for `round_count` rounds by the caller's contract.
            let plan = unsafe { std::slice::from_raw_parts(given.plan, given.round_count) };
            plan.iter().map(|round| Round {
                dimension: (round.dimension != FTSORT_NO_EXCHANGE).then_some(round.dimension),
                share: (round.share != 0).then_some(round.share),
            })
        });
        let plan: Option<Vec<Round>> = plan.map(Iterator::collect);
        let shares = plan.iter().flatten().any(|round| round.share.is_some());
        if shares && given.propose.is_none() {
            return refuse("rounds.plan shares a value, but rounds.propose is NULL: set propose");
        }
        Ok(Caller { plan, given })
    }

    /// The number of rounds after which states are stored; 0: they are not.
    pub(super) fn store_every(&self) -> u32 {
        self.given.store_every
    }

    /// Returns a hash that must be the same on all ranks.
    pub(super) fn fingerprint(&self, dimension: u32) -> u64 {
        let given = &self.given;
        let callbacks = [
            given.begin.is_some(),
            given.propose.is_some(),
            given.decide.is_some(),
            given.emit.is_some(),
        ];
        let limits = (given.share_limit, given.begin_all != 0);
        hash_of((self.plan(dimension), limits, callbacks))
    }
}

/// The header defines this constant and the next one as macros.
const FTSORT_NO_EXCHANGE: u32 = u32::MAX;
const FTSORT_SHARE_ALL: u32 = u32::MAX;
const MOST_ROUNDS: usize = 1 << 30;

/// Returns the bytes of a callback, or its error.
fn answer(
    what: &str,
    code: c_int,
    (node, round): (Node, u32),
    out: ftsort_buffer,
) -> Result<Slice> {
    match code {
        0 => Ok(out.into_slice()),
        code => Err(out.into_refusal(format!(
            "the {what} callback returned {code} for node {node} in round {round}"
        ))),
    }
}

/// Returns a task in the form for C. `shared` is the shared value of the task, aligned.
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
            return answer("begin", code, (node, 1), out);
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
            return answer("propose", code, (task.node, task.round), out);
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
            !subcube.is_some_and(|subcube| subcube.fault_free().any(|other| other == node))
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
        answer("decide", code, (task.node, task.round), out)
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
        answer("emit", code, (task.node, task.round), out)
    }

    fn absorb(&self, task: &Task<'_>, inbox: Slice) -> Result<Slice> {
        let absorb = self.given.absorb;
        let absorb = absorb.ok_or_else(|| Error::argument("rounds.absorb is NULL"))?;
        let (state, shared) = (aligned(task.state.clone())?, rounds::bytes(task.shared)?);
        let told = told(task, &state, &shared);
        let inbox = aligned(inbox)?;
        let (data, bytes) = (inbox.as_ptr(), inbox.len());
        let mut out = ftsort_buffer::offering(Offer::Message(inbox));
        // SAFETY: the user's function with the user's pointer; all bytes live during the call.
        let code = unsafe { absorb(self.given.user, &told, data.cast(), bytes, &mut out) };
        answer("absorb", code, (task.node, task.round), out)
    }
}

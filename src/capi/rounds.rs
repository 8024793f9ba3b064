//! Algorithms of the caller's on the virtual hypercube, made fault-tolerant: the run, and what it gives.

use std::ffi::c_void;

use super::algorithm::{Caller, ftsort_rounds};
use super::config::ftsort_check;
use super::group::ftsort;
use super::guard::on_group;
use super::host::limit_memory;
use super::run::Work;
use super::settings::unequal;
use super::status::ftsort_status;
use super::trace::Whole;
use ftsort_core::members::{Members, Rank};
use ftsort_core::rounds::purity::PurityCheck;
use ftsort_core::rounds::{Hypercube, Rounds};
use ftsort_core::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::random::SplitMix;

/// The states of the nodes that a rank executes in the end: its own, and one for each node that it covers,
/// in ascending order of node. Owned by the caller; may outlive its group. May be read by several threads
/// at once.
pub struct ftsort_rounds_result {
    pub(super) states: Vec<(Node, Slice)>,
}

/// The state of one node. Borrowed from its result.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_state {
    /// Whose state it is.
    pub node: i32,
    /// The bytes, aligned to 64; not NULL, also if there are none.
    pub data: *const c_void,
    /// How many.
    pub bytes: usize,
}

/// Runs an algorithm of the caller's on the virtual hypercube, fault-tolerantly. [C]
///
/// Each rank brings the state of its own node. Then, round after round, the algorithm's callbacks are called
/// for every node, on the rank that executes it, and ftsort moves what they send, keeps every round's states
/// as `ftsort_config.store` says (FTSORT_STORE_RELOAD: the states that ranks brought, from which all is done
/// again), commits the round by an agreement, and after faults gets the states of the dead back and plays
/// the round again: as `ftsort_run` does, with the same events, statistics, fault schedules, timeouts and
/// limits. In fault schedules round 0 loads, and rounds 1 to R are the caller's. Any number of ranks, not
/// only a power of two. (The API that the 2024 paper leaves to future work in Section 6.)
///
/// Put all rounds of an algorithm into one call: between calls nothing is kept. Once this function has
/// returned `FTSORT_OK` the states are the caller's to look after, as the result of `ftsort_run`.
///
/// \param[in,out] group a live group.
/// \param[in] rounds the algorithm; borrowed for the call.
/// \param[in] state the state of this rank's node before the first round; copied; any alignment. NULL if
/// `bytes` is 0. With `rounds.begin_all` not looked at.
/// \param[in] bytes its size; may differ between ranks.
/// \param[out] out the states of the nodes that this rank executes in the end, to be freed with
/// `ftsort_rounds_result_free`; NULL after a failure.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (also where `rounds` is not the same on all ranks),
/// `FTSORT_ERR_PEER_ARGUMENT`, `FTSORT_ERR_STATE`, `FTSORT_ERR_MEMORY`, `FTSORT_ERR_STORE`,
/// `FTSORT_ERR_CALLBACK` (a callback or `reload` refused, shared too much, or is found not to be pure: the
/// text names it, the node and the round), `FTSORT_ERR_DATA_LOST`, `FTSORT_ERR_CORRUPT`,
/// `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// The pointers are NULL or valid, `state` for `bytes` bytes; the callbacks do what they promise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_rounds_run(
    group: *mut ftsort,
    rounds: *const ftsort_rounds,
    state: *const c_void,
    bytes: usize,
    out: *mut *mut ftsort_rounds_result,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let mut out = unsafe { out.as_mut() };
        if let Some(out) = &mut out {
            **out = std::ptr::null_mut();
        }
        limit_memory(group.settings.memory_limit, group.members.living_here());
        MemoryBudget::current().start_peak();
        let prepare = || {
            if out.is_none() {
                return Err(Error::new(Status::Argument, "out is NULL"));
            }
            // SAFETY: this function's contract.
            unsafe {
                let caller = Caller::read(rounds)?;
                let input = match caller.inits_all() {
                    true => Buffer::default(),
                    false => copied(state, bytes)?,
                };
                Ok((caller, input))
            }
        };
        let states = group.whole(Whole::Rounds, |group| {
            let work = group.begin();
            group.play_rounds(work, prepare())
        })?;
        if let Some(out) = out {
            *out = Box::into_raw(Box::new(ftsort_rounds_result { states }));
        }
        Ok(())
    })
}

/// # Safety
/// `state` is NULL, or valid for so many bytes.
unsafe fn copied(state: *const c_void, bytes: usize) -> Result<Buffer> {
    if state.is_null() && bytes > 0 {
        let text = format!("state is NULL, but bytes is {bytes}");
        return Err(Error::new(Status::Argument, text));
    }
    if bytes > isize::MAX as usize {
        let text = format!("bytes is {bytes}, more than memory can hold");
        return Err(Error::new(Status::Argument, text));
    }
    match bytes {
        0 => Ok(Buffer::default()),
        // SAFETY: not NULL, and valid by this function's contract.
        _ => Buffer::copy_of(unsafe { std::slice::from_raw_parts(state.cast(), bytes) }),
    }
}

/// The nodes whose homes bring a state.
fn brought(members: &Members) -> NodeSet {
    let mut nodes = NodeSet::new(members.cube().len());
    for rank in Rank::all(members.ranks()) {
        if !members.is_faulty(rank) {
            nodes.insert(rank.home());
        }
    }
    nodes
}

impl ftsort {
    fn play_rounds(
        &mut self,
        work: Work<'static>,
        prepared: Result<(Caller, Buffer)>,
    ) -> Result<Vec<(Node, Slice)>> {
        let checked = |check: ftsort_check| self.settings.checks & check as u32 != 0;
        let is_pure = !checked(ftsort_check::FTSORT_CHECK_PURITY);
        let is_digested = checked(ftsort_check::FTSORT_CHECK_DIGEST);
        let dimension = self.members.cube().dimension();
        let brought = brought(&self.members);
        let prepared = prepared.and_then(|(caller, input)| {
            // What cannot be is refused before anything is done.
            Hypercube::new(&caller, dimension, brought.clone())?;
            Ok((caller, input))
        });
        let ((caller, input), _) = self.together(|engine| {
            let (caller, input) = engine.all_or_none(prepared)?;
            // A call may be short, so few agreements have to do.
            let equal = engine.all_equal_in(caller.fingerprint(dimension), FINGERPRINT_BITS)?;
            match equal {
                true => Ok((caller, input)),
                false => Err(unequal("rounds")),
            }
        })?;
        self.seed = SplitMix::new(self.seed).bits();
        let key = is_digested.then(|| DigestKey::ordered(self.seed));
        let twice = PurityCheck(&caller);
        let algorithm = match is_pure {
            true => Hypercube::new(&caller, dimension, brought)?,
            false => Hypercube::new(&twice, dimension, brought)?,
        };
        // No longer than what it borrows.
        let mut work: Work<'_> = work;
        work.key = key.as_ref();
        work.input = input;
        work.is_born = caller.inits_all();
        self.algorithm = NO_SORT;
        let finished = self.finish(work, &algorithm);
        self.stats.merge_into_exchange();
        let blocks = finished?.blocks;
        let states = blocks.iter();
        states
            .map(|(node, block)| Ok((*node, algorithm.finished(*node, block)?)))
            .collect()
    }
}

/// Of other rounds on another rank one in 2^30 is missed.
const FINGERPRINT_BITS: u32 = 30;

/// In `ftsort_stats.algorithm`.
const NO_SORT: i32 = -1;

/// How many states this rank has. [L]
///
/// \param[in] result a result; NULL has none.
///
/// # Safety
/// `result` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_rounds_result_states(result: *const ftsort_rounds_result) -> usize {
    // SAFETY: this function's contract.
    unsafe { result.as_ref() }.map_or(0, |result| result.states.len())
}

/// One state of this rank's. [L]
///
/// \param[in] result a live result.
/// \param[in] index below `ftsort_rounds_result_states`; states are in ascending order of node.
/// \param[out] out the state; its data live as long as the result.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL or an index that is too great.
///
/// # Safety
/// `result` is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_rounds_result_state(
    result: *const ftsort_rounds_result,
    index: usize,
    out: *mut ftsort_state,
) -> ftsort_status {
    // SAFETY: this function's contract.
    let (result, out) = unsafe { (result.as_ref(), out.as_mut()) };
    let (Some(result), Some(out)) = (result, out) else {
        return Status::Argument as ftsort_status;
    };
    let Some((node, state)) = result.states.get(index) else {
        return Status::Argument as ftsort_status;
    };
    *out = ftsort_state {
        node: node.0 as i32,
        data: state.as_ptr().cast(),
        bytes: state.len(),
    };
    Status::Ok as ftsort_status
}

/// Frees a result and the states in it. [L]
///
/// \param[in] result a result; NULL is a no-op. It must not be used again.
///
/// # Safety
/// `result` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_rounds_result_free(result: *mut ftsort_rounds_result) {
    if !result.is_null() {
        // SAFETY: it came from Box::into_raw, and the caller gives it back once.
        drop(unsafe { Box::from_raw(result) });
    }
}

//! Algorithms of the caller's on the virtual hypercube, made fault-tolerant: the run, and what it gives.

use std::ffi::c_void;

use super::algorithm::{Caller, ftsort_rounds};
use super::config::ftsort_check;
use super::group::ftsort;
use super::handle::{Handle, on_group, place_of};
use super::host::limit_memory;
use super::result::{ftsort_result, hand_over};
use super::run::Work;
use super::settings::unequal;
use super::slices::CArray;
use super::status::ftsort_status;
use super::trace::Whole;
use ftsort_core::members::{Members, Rank};
use ftsort_core::rounds::twice::Twice;
use ftsort_core::rounds::{Hypercube, Rounds};
use ftsort_core::vcube::{Node, NodeSet};
use ftsort_kernels::buffer::{self, Buffer, Slice};
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::error::Result;
use ftsort_kernels::random::SplitMix;

/// Runs an algorithm of the caller on the virtual hypercube, and tolerates failures. [C]
///
/// Each rank provides the initial state of its own node. Then, round after round, the callbacks of the
/// algorithm are called for every node on its executor, and ftsort moves the messages, keeps the states of
/// every round in the configured store, and commits the round by an agreement. After a failure it restores
/// the states of failed ranks and replays the round. Events, statistics, fault schedules, timeouts and limits
/// are those of ftsort_run. In fault schedules round 0 loads, and rounds 1 to R are those of the algorithm.
/// Works for any number of ranks. (The interface that the 2024 paper leaves to future work in Section 6.)
///
/// Put all rounds of an algorithm into one call, because nothing is kept between calls. With
/// FTSORT_STORE_RELOAD `reload` returns the initial state of a rank, and the run restarts from these.
///
/// \param group   a group
/// \param rounds  the algorithm, the same on all ranks except `user`; borrowed for the call
/// \param state   the initial state of the node of this rank; copied; any alignment; NULL if `bytes` is 0; not
///                read with `rounds.begin_all`
/// \param bytes   the size of `state`; may differ between ranks
/// \param result  receives the final states of the nodes that this rank executes: the elements of a block are
///                the bytes of a state; release it with ftsort_result_free; NULL after an error
/// \return FTSORT_OK; FTSORT_ERR_CALLBACK if a callback or `reload` refuses, shares more than `share_limit`, or
///         is not pure (the text names the callback, the node and the round); FTSORT_ERR_DATA_LOST;
///         FTSORT_ERR_CORRUPT; FTSORT_ERR_ARGUMENT on all ranks if `rounds` differs between ranks; or another
///         status of "Collective calls"
///
/// # Safety
/// The pointers are NULL or valid, `state` for `bytes` bytes; the callbacks do what they promise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_rounds_run(
    group: *mut Handle,
    rounds: *const ftsort_rounds,
    state: *const c_void,
    bytes: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let mut place = unsafe { result.as_mut() };
        if let Some(place) = &mut place {
            **place = std::ptr::null_mut();
        }
        limit_memory(group.settings.memory_limit, group.members.living_here());
        buffer::start_peak();
        let prepare = || {
            // SAFETY: this function's contract.
            unsafe {
                place_of("result", result)?;
                let caller = Caller::read(rounds)?;
                let input = if caller.inits_all() {
                    Buffer::default()
                } else {
                    CArray::of_bytes("state", state, bytes).copied()?
                };
                Ok((caller, input))
            }
        };
        let states = group.whole(Whole::Rounds, |group| {
            let work = group.begin();
            group.play_rounds(work, prepare())
        })?;
        if let Some(place) = place {
            *place = hand_over(ftsort_result::states(states, group.members.ranks()));
        }
        Ok(())
    })
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
        let twice = Twice(&caller);
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

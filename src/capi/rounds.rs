//! User-defined algorithms on the virtual hypercube with fault tolerance.

use std::ffi::c_void;

use super::algorithm::{Caller, ftsort_rounds};
use super::group::ftsort;
use super::handle::{Handle, on_group_for};
use super::result::{ftsort_result, hand_over};
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_core::group::RoundsInput;
use ftsort_core::rounds::Rounds;
use ftsort_kernels::error::{Error, Result};

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
/// With `rounds.store_every` the states are stored under the name of ftsort_store_open, as by ftsort_store_commit.
/// If all processes of the job end, the same call of the next job continues with the stored states, and does not
/// use `state`, which may then be NULL with `bytes` 0. After the last round ftsort_store_get returns the final
/// states, a further call returns them at once, and ftsort_result_recover takes them from there;
/// ftsort_store_clear discards them. Rounds continue only if
/// `plan`, `share_limit`, `begin_all` and the set of callbacks are the same; the program has to change the name when
/// the callbacks compute something else. One rank has no rounds without a plan, and stores nothing.
///
/// \param rounds  the algorithm, the same on all ranks except `user`; borrowed for the call
/// \param state   the initial state of the node of this rank; copied; any alignment; NULL if `bytes` is 0; not
///                read with `rounds.begin_all`
/// \param bytes   the size of `state`; may differ between ranks
/// \param result  receives the final states of the nodes that this rank executes: the elements of a block are
///                the bytes of a state; release it with ftsort_result_free; NULL after an error
/// \return FTSORT_OK; FTSORT_ERR_CALLBACK if a callback or `reload` refuses, shares more than `share_limit`, or
///         is not pure (the text names the callback, the node and the round); FTSORT_ERR_DATA_LOST;
///         FTSORT_ERR_CORRUPT; FTSORT_ERR_ARGUMENT on all ranks if `rounds` differs between ranks, or if the stored
///         states are not of these rounds; FTSORT_ERR_STATE also for `store_every` without ftsort_store_open; or
///         another status of "Collective calls". After an error the stored states stay
///
/// # Safety
/// The pointers are NULL or valid, `state` for `bytes` bytes; the callbacks keep their contracts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_rounds_run(
    group: *mut Handle,
    rounds: *const ftsort_rounds,
    state: *const c_void,
    bytes: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    let run = |group: &mut ftsort, refusal: Result<()>| {
        // SAFETY: this function's contract.
        let caller = unsafe { Caller::read(rounds) };
        let dimension = group.group.members().cube().dimension();
        let prepare = || {
            refusal?;
            let caller = caller.as_ref().map_err(Error::clone)?;
            let array = CArray::of_bytes("state", state, bytes);
            Ok(RoundsInput {
                rounds: caller,
                state: if caller.inits_all() {
                    &[]
                } else {
                    // SAFETY: this function's contract.
                    unsafe { array.bytes()? }
                },
                caller_fingerprint: caller.fingerprint(dimension),
                store_every: caller.store_every(),
            })
        };
        let states = group.group.run_rounds_checked(prepare())?;
        Ok(hand_over(ftsort_result::states(states)))
    };
    // SAFETY: this function's contract.
    unsafe { on_group_for(group, "result", result, run) }
}

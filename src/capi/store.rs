//! States of nodes in a loop of the caller: checkpoint and readCheckpoint of the papers.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::group::ftsort;
use super::handle::{Handle, on_group, on_group_locally, place_of, set};
use super::record::{ftsort_record, read_layout};
use super::result::{address_of, ftsort_result};
use super::run::sort_on;
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_core::vcube::Node;
use ftsort_kernels::error::{Error, Result, refuse};

/// Converts a number from C to a node. A negative number becomes an invalid node, which the group refuses.
fn node_of(node: i32) -> Result<Node> {
    let found = u32::try_from(node).map(Node);
    found.map_err(|_| {
        Error::argument(format!(
            "node is {node}, but the nodes of the hypercube start from 0"
        ))
    })
}

/// Gives the stored states a name in `store_directory`, under which another job finds them. [C]
///
/// Call it before the first ftsort_store_put. States that an earlier job has committed under the name and not
/// discarded become the committed states of this group: ftsort_store_get returns them, and the loop continues with
/// the next round. So a program can be started again after all its processes have ended (a time limit, a power
/// failure, SIGKILL), on a number of ranks that has as many nodes: 5 to 8 ranks continue the states of 5 to 8 ranks.
///
/// From now on each ftsort_store_commit takes a second agreement. One that returns 1 is final for later jobs too;
/// `store_sync` is necessary for that after a power failure. The states stay in the directory until
/// ftsort_store_clear, also when the group is released. One job at a time may use a name: after another job has
/// opened it, a commit returns FTSORT_ERR_STORE.
///
/// \param name   1 to 64 letters, digits, and characters of "-_."; the same on all ranks; not kept
/// \param found  receives 1 if there are states of an earlier job, or 0; the same on all survivors; 0 after an error
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT also without FTSORT_STORE_DIRECTORY, and for states of another number of
///         nodes; FTSORT_ERR_STATE also if the group has stored states or a name for them already; FTSORT_ERR_STORE
///         if files are damaged, or cannot be read or written (the states of the earlier job stay as they are); or
///         another status of "Collective calls". After an error the states have no name
///
/// # Safety
/// `group` is NULL or live; `name` is NULL or NUL-terminated; `found` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_open(
    group: *mut Handle,
    name: *const c_char,
    found: *mut c_int,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe { set(found, 0) };
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let name = unsafe { place_of("found", found).and_then(|_| name_of(name)) };
        let is_found = group.group.open_states(name)?;
        // SAFETY: this function's contract.
        unsafe { set(found, is_found.into()) };
        Ok(())
    })
}

/// # Safety
/// `name` is NULL or NUL-terminated.
unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a str> {
    if name.is_null() {
        return refuse("name is NULL: pass the name of the states");
    }
    // SAFETY: this function's contract.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str()
        .or_else(|_| refuse(format!("name is {name:?}, which is not text in UTF-8")))
}

/// Stages the state of a node for the next ftsort_store_commit: checkpoint of the papers. [L]
///
/// States are bytes of any size, which may differ between nodes and rounds. A staged state takes effect when
/// all survivors have agreed on it. ftsort_fault_check, ftsort_store_clear, ftsort_run_stored, ftsort_rounds_run with
/// `store_every`, and the recovery of a result of these two discard it. States are independent of the data of ftsort_run.
///
/// \param node   a node that this rank executes: ftsort_executor(group, node) == ftsort_rank(group)
/// \param state  the state; copied; any alignment; NULL if `bytes` is 0
/// \param bytes  the size of `state`
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT also for a node that another rank executes; FTSORT_ERR_MEMORY;
///         FTSORT_ERR_STATE
///
/// # Safety
/// `group` is NULL or live; `state` is valid for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_put(
    group: *mut Handle,
    node: i32,
    state: *const c_void,
    bytes: usize,
) -> ftsort_status {
    on_group_locally(group, |group| {
        let node = node_of(node)?;
        // SAFETY: this function's contract.
        let state = unsafe { CArray::of_bytes("state", state, bytes).bytes()? };
        group.group.put_state(node, state)
    })
}

/// Returns the committed state of a node: readCheckpoint of the papers. [L]
///
/// After a failure the states of the nodes that this rank executes from then on are present as soon as
/// ftsort_fault_check or ftsort_store_commit has returned.
///
/// \param node   a node that this rank executes: ftsort_executor(group, node) == ftsort_rank(group)
/// \param state  receives the address of the bytes, aligned to 64; valid until the next ftsort_fault_check,
///               ftsort_store_commit, ftsort_store_clear, ftsort_run_stored, ftsort_rounds_run with
///               `store_every`, or ftsort_result_recover of a result of these two, or until the group is
///               released. NULL if no state of this node was committed, if it is lost, and after an error
/// \param bytes  receives the size, 0 without a state; may be NULL
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT also for a node that another rank executes; FTSORT_ERR_STATE
///
/// # Safety
/// `group` is NULL or live; `state` and `bytes` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_get(
    group: *mut Handle,
    node: i32,
    state: *mut *const c_void,
    bytes: *mut usize,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe {
        set(state, std::ptr::null());
        set(bytes, 0);
    }
    on_group_locally(group, |group| {
        // SAFETY: this function's contract.
        let place = unsafe { place_of("state", state)? };
        let kept = group.group.state(node_of(node)?)?;
        *place = kept.map_or(std::ptr::null(), address_of);
        // SAFETY: this function's contract.
        unsafe { set(bytes, kept.map_or(0, <[u8]>::len)) };
        Ok(())
    })
}

/// Commits a round of a loop of the caller. [C]
///
/// If all survivors are done and no rank was found failed since the round began (with the last
/// ftsort_fault_check or ftsort_store_commit), the staged states become the committed states, all at once;
/// nodes without a staged state keep theirs. Otherwise the staged states are discarded, the states of failed
/// ranks move to the executors of their nodes, and the caller repeats the round: "if F = F' then d = d - 1" of
/// the papers. In both cases the next round begins.
///
/// \param done       not 0 if this rank did its part of the round; 0 on any rank prevents the commit
/// \param committed  receives 1 or 0, the same on all survivors
/// \return FTSORT_OK, committed or not; FTSORT_ERR_MEMORY or FTSORT_ERR_STORE if a rank could not keep its
///         states or their name, and the round is not committed; FTSORT_ERR_DATA_LOST if states of the ranks that
///         ftsort_lost_ranks names cannot be recovered (not committed either; all other states are in place);
///         or another status of "Collective calls". After FTSORT_ERR_ARGUMENT and FTSORT_ERR_PEER_ARGUMENT the
///         staged states stay, and the call can be repeated. If the states have a name and a rank fails while
///         the commit ends, `committed` is 1 beside FTSORT_ERR_MEMORY, _STORE or _DATA_LOST if the states of
///         that rank cannot be moved or recovered; ftsort_fault_check tries to move them again
///
/// # Safety
/// `group` is NULL or live; `committed` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_commit(
    group: *mut Handle,
    done: c_int,
    committed: *mut c_int,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe { set(committed, 0) };
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let refusal = unsafe { place_of("committed", committed) }.map(drop);
        let commit = group.group.commit_states_checked(done != 0, refusal)?;
        // SAFETY: as above.
        unsafe { set(committed, commit.is_committed.into()) };
        commit.moved
    })
}

/// Discards all stored states and removes their files. [C]
///
/// For the end of a loop whose group is used further or released with ftsort_free; ftsort_leave does it too, unless
/// the states have a name (ftsort_store_open). The next job that opens the name finds nothing.
///
/// \return FTSORT_OK; FTSORT_ERR_STORE if a file of the name cannot be written or removed; or another status of
///         "Collective calls"
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_clear(group: *mut Handle) -> ftsort_status {
    on_group(group, |group| group.group.clear_states())
}

/// As ftsort_run, and stores the result under the name of ftsort_store_open, so that it survives the end of the job. [C]
///
/// If the name has the result of a sort of the same records, the function returns it at once, without sorting. So a
/// program that is started again after all its processes have ended calls the same function with the same records, and
/// gets the result of the job before, if that had stored it. The records may be divided among the ranks in another
/// way, also among fewer ranks, which pass all of them; the blocks, and the order of equal keys, are those of the job
/// that sorted. The records are compared by a digest of all of them. Those of a rank that has failed cannot be
/// compared: then the input of each other rank must be the same as in the job that sorted, which must have had an input
/// of a rank that fails in the call and is no idle spare. Otherwise the function returns FTSORT_ERR_DATA_LOST, or
/// FTSORT_ERR_ARGUMENT if the failed rank had failed before the call.
///
/// The blocks are the stored states of their nodes, as of ftsort_store_commit: ftsort_result_recover takes them from there
/// for as long as they are stored, ftsort_store_clear discards them, and a group stores one result at a time.
///
/// \param record  as for ftsort_run; with `compare`, `type_id` must be a number for this order
/// \param data    as for ftsort_run
/// \param count   as for ftsort_run
/// \param result  as for ftsort_run
/// \return as ftsort_run; FTSORT_ERR_STATE also if the states have no name; FTSORT_ERR_ARGUMENT also if the stored states
///         are not the result of a sort of these records, or `record` or `config.dense` was another one: the text says
///         how to discard them; FTSORT_ERR_STORE if files cannot be read or written: then another job may find the states
///         before this call or the new result. After other errors a result that was stored before stays, unless blocks of
///         it are lost
///
/// # Safety
/// As for [`ftsort_run`](super::run::ftsort_run).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_run_stored(
    group: *mut Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    // SAFETY: this function's contract.
    let sort = |group: &mut ftsort, input| unsafe { group.group.sort_stored_checked(input) };
    // SAFETY: this function's contract.
    unsafe { sort_on(group, || read_layout(record), data, count, result, sort) }
}

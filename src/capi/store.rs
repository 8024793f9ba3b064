//! States of nodes that a loop of the caller's own keeps: the papers' checkpoint and readCheckpoint.

use std::ffi::{c_int, c_void};

use super::group::{Keeping, ftsort};
use super::handle::{Handle, on_group, on_group_locally, place_of};
use super::result::address_of;
use super::slices::CArray;
use super::status::ftsort_status;
use ftsort_core::engine::{Checkpoints, Engine};
use ftsort_core::faults::Schedule;
use ftsort_core::members::RankSet;
use ftsort_core::vcube::Node;
use ftsort_kernels::error::{Error, Result, Status};

impl ftsort {
    /// Does something collective with what loops of the caller's own keep.
    pub(super) fn with_checkpoints<T>(
        &mut self,
        work: impl FnOnce(&mut Checkpoints, &mut Engine<'_>, &mut RankSet) -> Result<T>,
    ) -> Result<T> {
        self.beside_sorts(Keeping::Loops, &Schedule::default(), work)
    }

    /// A node of the cube that this rank executes.
    fn executed(&self, node: i32) -> Result<Node> {
        let refuse = |text: String| Err(Error::new(Status::Argument, text));
        let nodes = self.members.cube().len();
        let Some(found) = u32::try_from(node).ok().filter(|n| (*n as usize) < nodes) else {
            return refuse(format!(
                "node is {node}, but the hypercube has the nodes 0 to {}",
                nodes - 1
            ));
        };
        let executor = self.members.executor(Node(found));
        match executor == self.members.me() {
            true => Ok(Node(found)),
            false => refuse(format!(
                "node is {node}, which rank {executor} executes: pass a node whose ftsort_executor is this rank"
            )),
        }
    }
}

/// Stages the state of a node for the next ftsort_store_commit: checkpoint of the papers. [L]
///
/// States are bytes of any size, which may differ between nodes and rounds. A staged state takes effect when
/// all survivors have agreed on it. States are independent of the data of ftsort_run.
///
/// \param group  a group
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
        let node = group.executed(node)?;
        // SAFETY: this function's contract.
        let copy = unsafe { CArray::of_bytes("state", state, bytes).copied_slice()? };
        group.checkpoints.put(node, copy);
        Ok(())
    })
}

/// Returns the committed state of a node: readCheckpoint of the papers. [L]
///
/// After a failure the states of the nodes that this rank executes from then on are present as soon as
/// ftsort_fault_check or ftsort_store_commit has returned.
///
/// \param group  a group
/// \param node   a node that this rank executes: ftsort_executor(group, node) == ftsort_rank(group)
/// \param state  receives the address of the bytes, aligned to 64; valid until the next ftsort_fault_check,
///               ftsort_store_commit or ftsort_store_clear, or until the group is released. NULL if no state
///               of this node was committed, or if it is lost
/// \param bytes  receives the size; may be NULL
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
    on_group_locally(group, |group| {
        // SAFETY: this function's contract.
        let (place, bytes) = unsafe { (place_of("state", state)?, bytes.as_mut()) };
        let kept = group.checkpoints.get(group.executed(node)?);
        *place = kept.map_or(std::ptr::null(), address_of);
        if let Some(bytes) = bytes {
            *bytes = kept.map_or(0, <[u8]>::len);
        }
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
/// \param group      a group
/// \param done       not 0 if this rank did its part of the round; 0 on any rank prevents the commit
/// \param committed  receives 1 or 0, the same on all survivors
/// \return FTSORT_OK, committed or not; FTSORT_ERR_MEMORY or FTSORT_ERR_STORE if a rank could not keep its
///         states, and the round is not committed; FTSORT_ERR_DATA_LOST if states of the ranks that
///         ftsort_lost_ranks names cannot be recovered (not committed either; all other states are in place);
///         or another status of "Collective calls"
///
/// # Safety
/// `group` is NULL or live; `committed` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_commit(
    group: *mut Handle,
    done: c_int,
    committed: *mut c_int,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let (place, has_place) = match unsafe { place_of("committed", committed) } {
            Ok(place) => (Some(place), Ok(())),
            Err(error) => (None, Err(error)),
        };
        group.lost = RankSet::new(group.members.ranks());
        let agreed = group.with_checkpoints(|checkpoints, engine, lost| {
            checkpoints.commit(engine, done != 0, has_place, lost)
        })?;
        if let Some(place) = place {
            *place = agreed.into();
        }
        Ok(())
    })
}

/// Discards all stored states and removes their files. [C]
///
/// For the end of a loop whose group is used further or released with ftsort_free; ftsort_leave does it too.
///
/// \param group  a group
/// \return FTSORT_OK, or a status of "Collective calls"
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_clear(group: *mut Handle) -> ftsort_status {
    on_group(group, |group| {
        group.with_checkpoints(|checkpoints, engine, _| checkpoints.clear(engine))
    })
}

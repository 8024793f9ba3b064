//! States of nodes that a loop of the caller's own keeps: the papers' checkpoint and readCheckpoint.

use std::ffi::{c_int, c_void};

use super::group::{Keeping, ftsort};
use super::guard::on_group;
use super::status::ftsort_status;
use ftsort_core::engine::{Checkpoints, Engine};
use ftsort_core::faults::Schedule;
use ftsort_core::members::RankSet;
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, Status};

/// Where a state of no bytes is: aligned as all others are.
#[repr(align(64))]
struct Nowhere;
static NOWHERE: Nowhere = Nowhere;

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
                "node is {node}, but the cube has nodes 0 to {}",
                nodes - 1
            ));
        };
        let executor = self.members.executor(Node(found));
        match executor == self.members.me() {
            true => Ok(Node(found)),
            false => refuse(format!("node is {node}, which rank {executor} executes")),
        }
    }
}

/// Puts the state of a node that this rank executes (its own, or one that it covers) aside for the next
/// `ftsort_store_commit`: the papers' checkpoint, but that nothing counts before all survivors have
/// agreed on it. States are bytes of any size, which may differ from node to node and from round to
/// round; where they go is `ftsort_config.store`, and what they survive is said there. They are apart
/// from what `ftsort_run` keeps. [L]
///
/// \param[in,out] group a live group.
/// \param[in] node with `ftsort_executor(group, node) == ftsort_rank(group)`.
/// \param[in] state copied; NULL if `bytes` is 0.
/// \param[in] bytes its size.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL, or a node that another rank executes;
/// `FTSORT_ERR_MEMORY`; `FTSORT_ERR_STATE`.
///
/// # Safety
/// `group` is NULL or live; `state` is valid for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_put(
    group: *mut ftsort,
    node: i32,
    state: *const c_void,
    bytes: usize,
) -> ftsort_status {
    on_group(group, |group| {
        let node = group.executed(node)?;
        if state.is_null() && bytes > 0 {
            let text = format!("state is NULL, but bytes is {bytes}");
            return Err(Error::new(Status::Argument, text));
        }
        let copy = match bytes {
            0 => Buffer::default(),
            // SAFETY: not NULL, and valid by this function's contract.
            _ => Buffer::copy_of(unsafe { std::slice::from_raw_parts(state.cast(), bytes) })?,
        };
        group.checkpoints.put(node, copy.into());
        Ok(())
    })
}

/// Gives the committed state of a node that this rank executes: the papers' readCheckpoint. After a
/// fault the states of the nodes that this rank covers from then on are here as soon as
/// `ftsort_fault_check` or `ftsort_store_commit` has returned. [L]
///
/// \param[in,out] group a live group.
/// \param[in] node with `ftsort_executor(group, node) == ftsort_rank(group)`.
/// \param[out] state the bytes, aligned to 64; valid until the next `ftsort_fault_check`,
/// `ftsort_store_commit` or `ftsort_store_clear`, or the group's end. NULL if nothing was ever committed
/// for this node, or what was is lost.
/// \param[out] bytes its size; may be NULL.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL, or a node that another rank executes;
/// `FTSORT_ERR_STATE`.
///
/// # Safety
/// `group` is NULL or live; `state` and `bytes` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_get(
    group: *mut ftsort,
    node: i32,
    state: *mut *const c_void,
    bytes: *mut usize,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let (state, bytes) = unsafe { (state.as_mut(), bytes.as_mut()) };
        let state = state.ok_or_else(|| Error::new(Status::Argument, "state is NULL"))?;
        let kept = group.checkpoints.get(group.executed(node)?);
        *state = match kept {
            None => std::ptr::null(),
            Some([]) => std::ptr::from_ref(&NOWHERE).cast(),
            Some(kept) => kept.as_ptr().cast(),
        };
        if let Some(bytes) = bytes {
            *bytes = kept.map_or(0, <[u8]>::len);
        }
        Ok(())
    })
}

/// Ends a round of a loop of the caller's own: if all survivors say that they are done, and nobody has
/// been found dead since the round began (with the last `ftsort_fault_check` or
/// `ftsort_store_commit`), what they have put becomes the committed states of the nodes, all at once.
/// Nodes for which nothing was put keep theirs. Otherwise what was put is forgotten, the states of the
/// dead are brought to the ranks that cover them, and the round is to be done again: the papers'
/// "if F = F' then d = d - 1". Either way the next round begins. [C]
///
/// \param[in,out] group a live group.
/// \param[in] done not 0: this rank did its part of the round. 0 on any rank: the round is not
/// committed.
/// \param[out] committed 1 or 0, the same on all survivors.
/// \return `FTSORT_OK`, committed or not; `FTSORT_ERR_ARGUMENT` for NULL (also on the other ranks, as
/// `FTSORT_ERR_PEER_ARGUMENT`, if it is `committed`), `FTSORT_ERR_STATE`, `FTSORT_ERR_MEMORY` or
/// `FTSORT_ERR_STORE` where a rank could not keep its states, and the round is not committed;
/// `FTSORT_ERR_DATA_LOST`: also not, and states of dead ranks that `ftsort_lost_ranks` names are nowhere,
/// all others being in place; `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// `group` is NULL or live; `committed` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_commit(
    group: *mut ftsort,
    done: c_int,
    committed: *mut c_int,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let committed = unsafe { committed.as_mut() };
        let has_place = match committed {
            Some(_) => Ok(()),
            None => Err(Error::new(Status::Argument, "committed is NULL")),
        };
        group.lost = RankSet::new(group.members.ranks());
        let agreed = group.with_checkpoints(|checkpoints, engine, lost| {
            checkpoints.commit(engine, done != 0, has_place, lost)
        })?;
        if let Some(committed) = committed {
            *committed = agreed.into();
        }
        Ok(())
    })
}

/// Forgets all states that were kept, and removes their files. For the end of a loop whose group goes
/// on, or ends with `ftsort_free`; `ftsort_leave` does it by itself. [C]
///
/// \param[in,out] group a live group.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL, `FTSORT_ERR_STATE`, `FTSORT_ERR_EXCLUDED`,
/// `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_store_clear(group: *mut ftsort) -> ftsort_status {
    on_group(group, |group| {
        group.with_checkpoints(|checkpoints, engine, _| checkpoints.clear(engine))
    })
}

//! Who lives, who covers whom, who is whose partner: for algorithms of the caller's own. Local, and
//! as of the last collective call.

use std::ffi::c_int;

use super::group::ftsort;
use ftsort_core::members::Rank;
use ftsort_core::vcube::{Node, cluster};

/// Reads from a group; `otherwise` for a NULL one.
///
/// # Safety
/// `group` is NULL or live.
unsafe fn of<T>(group: *const ftsort, otherwise: T, read: impl FnOnce(&ftsort) -> T) -> T {
    // SAFETY: the caller's contract.
    unsafe { group.as_ref() }.map_or(otherwise, read)
}

/// A number from C as a node of the group's cube.
fn node_of(group: &ftsort, node: i32) -> Option<Node> {
    let node = u32::try_from(node).ok()?;
    ((node as usize) < group.members.cube().len()).then_some(Node(node))
}

/// This process's rank: for ever the one in the communicator given to `ftsort_init`. -1 for NULL. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_rank(group: *const ftsort) -> i32 {
    // SAFETY: this function's contract.
    unsafe { of(group, -1, |group| group.members.me().0 as i32) }
}

/// How many ranks there were at `ftsort_init`, the dead included. 0 for NULL. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_ranks(group: *const ftsort) -> i32 {
    // SAFETY: this function's contract.
    unsafe { of(group, 0, |group| group.members.ranks() as i32) }
}

/// d: the virtual hypercube has 2^d nodes, the least power of two that is at least the number of
/// ranks. 0 for NULL. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_dimension(group: *const ftsort) -> u32 {
    // SAFETY: this function's contract.
    unsafe { of(group, 0, |group| group.members.cube().dimension()) }
}

/// 1 if node `rank` is faulty, that is: the rank is dead, or there is no such rank; else 0. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_is_failed(group: *const ftsort, rank: i32) -> c_int {
    // SAFETY: this function's contract.
    unsafe {
        of(group, 1, |group| {
            let node = node_of(group, rank);
            node.is_none_or(|node| group.members.faulty_nodes().contains(node))
                .into()
        })
    }
}

/// The rank that executes `node`: itself if it is fault-free, else its cover, the first fault-free
/// node of c(node,1), c(node,2), ... (2024 paper, Section 3). -1 if the cube has no such node. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_executor(group: *const ftsort, node: i32) -> i32 {
    // SAFETY: this function's contract.
    unsafe {
        of(group, -1, |group| {
            node_of(group, node).map_or(-1, |node| group.members.executor(node).0 as i32)
        })
    }
}

/// The papers' partner of `node` in dimension `s` (from 1 to d): the first fault-free node of
/// c(node,s). -1 if there is none, or the cube has no such node or dimension. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_partner(group: *const ftsort, node: i32, s: u32) -> i32 {
    // SAFETY: this function's contract.
    unsafe {
        of(group, -1, |group| {
            let members = &group.members;
            if !(1..=members.cube().dimension()).contains(&s) {
                return -1;
            }
            node_of(group, node)
                .and_then(|node| members.cube().partner(node, s - 1, members.faulty_nodes()))
                .map_or(-1, |partner| partner.0 as i32)
        })
    }
}

/// c(node,s): the nodes of the s-th cluster of a node, in the order in which it turns to them (2024
/// paper, Table 1). Depends on no group. [L]
///
/// \param[in] node from 0 on.
/// \param[in] s from 1 to 31.
/// \param[out] out receives the first `capacity` nodes; may be NULL if `capacity` is 0.
/// \return how many nodes the cluster has, 2^(s-1); 0 for a node or an s that cannot be.
///
/// # Safety
/// `out` is valid for `capacity` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_cluster(
    node: i32,
    s: u32,
    out: *mut i32,
    capacity: usize,
) -> usize {
    let Ok(node) = u32::try_from(node) else {
        return 0;
    };
    if !(1..=31).contains(&s) {
        return 0;
    }
    let size = 1 << (s - 1);
    if !out.is_null() {
        for (index, member) in cluster(Node(node), s - 1).take(capacity).enumerate() {
            // SAFETY: index < capacity.
            unsafe { out.add(index).write(member.0 as i32) };
        }
    }
    size
}

/// The rank of `rank` in the communicator of the last `ftsort_comm`; `MPI_PROC_NULL` if it is not in
/// it, or there is none yet. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_comm_rank(group: *const ftsort, rank: i32) -> c_int {
    // SAFETY: a constant of the MPI library.
    let nowhere = unsafe { mpi_sys::RSMPI_PROC_NULL };
    // SAFETY: this function's contract.
    unsafe {
        of(group, nowhere, |group| {
            let rank = u32::try_from(rank).ok().map(Rank);
            let slot = rank.and_then(|rank| group.survivors.as_ref()?.slot(rank));
            slot.map_or(nowhere, |slot| slot.0 as c_int)
        })
    }
}

/// Whose data the last `ftsort_run`, `ftsort_rounds_run`, `ftsort_fault_check`, `ftsort_store_commit` or
/// call that takes a tree could not get back: the ranks behind its `FTSORT_ERR_DATA_LOST`, the same on
/// all survivors. [L]
///
/// \param[in] group a live group; NULL has none.
/// \param[out] ranks filled with up to `capacity` ranks, ascending; may be NULL if `capacity` is 0.
/// \param[in] capacity how many fit.
/// \return how many there are, which may be more than `capacity`; 0 if the last of
/// these calls lost nothing.
///
/// # Safety
/// `group` is NULL or live; `ranks` is valid for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_lost_ranks(
    group: *const ftsort,
    ranks: *mut i32,
    capacity: usize,
) -> usize {
    // SAFETY: this function's contract.
    unsafe {
        of(group, 0, |group| {
            if !ranks.is_null() {
                for (index, rank) in group.lost.iter().take(capacity).enumerate() {
                    ranks.add(index).write(rank.0 as i32);
                }
            }
            group.lost.len()
        })
    }
}

//! Questions about a group: which rank executes a node, which nodes are partners, which ranks have failed.
//! Local, and as of the last collective call.

use std::ffi::c_int;

use super::group::ftsort;
use super::handle::{Handle, look};
use ftsort_core::members::Rank;
use ftsort_core::vcube::{Node, cluster};

/// The number of dimensions of the largest hypercube.
const MOST_DIMENSIONS: u32 = 31;

/// A number from C as a node of the group's hypercube.
fn node_of(group: &ftsort, node: i32) -> Option<Node> {
    let node = u32::try_from(node).ok()?;
    ((node as usize) < group.group.members().cube().len()).then_some(Node(node))
}

/// Returns the rank of this process in the communicator of the group; it never changes; -1 for NULL. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_rank(group: *const Handle) -> i32 {
    // SAFETY: this function's contract.
    unsafe { group.as_ref() }.map_or(-1, |handle| handle.rank)
}

/// Returns the number of ranks of the group, failed ranks included; 0 for NULL. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_ranks(group: *const Handle) -> i32 {
    // SAFETY: this function's contract.
    unsafe { group.as_ref() }.map_or(0, |handle| handle.ranks)
}

/// Returns d, the number of dimensions of the virtual hypercube; 0 for NULL. [L]
///
/// The hypercube has 2^d nodes, the smallest power of two that is not less than the number of ranks.
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_dimension(group: *const Handle) -> u32 {
    // SAFETY: this function's contract.
    unsafe { group.as_ref() }.map_or(0, |handle| handle.dimension)
}

/// Returns 1 if `rank` has failed or does not exist, else 0; 1 for NULL and while the group is busy. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_is_failed(group: *const Handle, rank: i32) -> c_int {
    // SAFETY: this function's contract.
    unsafe {
        look(group, 1, |group| {
            let members = group.group.members();
            let rank = u32::try_from(rank).ok().map(Rank);
            let rank = rank.filter(|rank| rank.index() < members.ranks());
            rank.is_none_or(|rank| members.is_faulty(rank)).into()
        })
    }
}

/// Returns 1 if `rank` is a live spare (`ftsort_config.spares`) that has not taken over from a failed rank, else 0. [L]
///
/// Such a rank has no node and must pass no input. 0 for NULL and while the group is busy.
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_is_spare(group: *const Handle, rank: i32) -> c_int {
    // SAFETY: this function's contract.
    unsafe {
        look(group, 0, |group| {
            let rank = u32::try_from(rank).ok().map(Rank);
            let members = group.group.members();
            rank.is_some_and(|rank| members.is_idle_spare(rank)).into()
        })
    }
}

/// Returns the rank that executes `node`; -1 for a node that does not exist, NULL, or a busy group. [L]
///
/// That is the rank `node` or its spare, unless it has failed or is an idle spare; otherwise the executor of the first
/// fault-free node of c(node,s), s = 0, 1, ... (*cover* of the 2024 paper, Section 3, which counts s from 1).
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_executor(group: *const Handle, node: i32) -> i32 {
    // SAFETY: this function's contract.
    unsafe {
        look(group, -1, |group| {
            node_of(group, node).map_or(-1, |node| group.group.members().executor(node).0 as i32)
        })
    }
}

/// Returns the partner of `node` in dimension `s`: the first fault-free node of c(node,s). With spares it may be the node
/// of a spare that took over, or node xor 2^s. [L]
///
/// Its executor (ftsort_executor) executes node xor 2^s too; it is the rank with that number, unless a spare took over
/// from it. If no node of the cluster is fault-free, the executor of node xor 2^s may be another rank than that of `node`.
///
/// \param node   a node
/// \param s      a dimension, from 0 to ftsort_dimension(group) - 1
/// \return the node; -1 if no node of the cluster is fault-free, for a node or a dimension that does not exist,
///         for NULL, and while the group is busy
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_partner(group: *const Handle, node: i32, s: u32) -> i32 {
    // SAFETY: this function's contract.
    unsafe {
        look(group, -1, |group| {
            let members = group.group.members();
            if s >= members.cube().dimension() {
                return -1;
            }
            node_of(group, node)
                .and_then(|node| members.membership().partner(members.cube(), node, s))
                .map_or(-1, |partner| partner.0 as i32)
        })
    }
}

/// Lists c(node,s): the nodes of cluster `s` of `node`, in the order in which `node` prefers them. [L]
///
/// Table 1 of the 2024 paper, which counts s from 1. Depends on no group.
///
/// \param node      a node, 0 or more
/// \param s         a dimension, from 0 to 30
/// \param nodes     receives the first `capacity` nodes; may be NULL if `capacity` is 0
/// \param capacity  the number of elements at `nodes`
/// \return the number of nodes of the cluster, 2^s; 0 for a negative node or an `s` above 30
///
/// # Safety
/// `nodes` is NULL or valid for `capacity` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_cluster(
    node: i32,
    s: u32,
    nodes: *mut i32,
    capacity: usize,
) -> usize {
    let Ok(node) = u32::try_from(node) else {
        return 0;
    };
    if s >= MOST_DIMENSIONS {
        return 0;
    }
    if !nodes.is_null() {
        for (index, member) in cluster(Node(node), s).take(capacity).enumerate() {
            // SAFETY: index < capacity.
            unsafe { nodes.add(index).write(member.0 as i32) };
        }
    }
    1 << s
}

/// Returns the number of `rank` in the communicator of the last ftsort_comm; MPI_PROC_NULL if it has none. [L]
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_comm_rank(group: *const Handle, rank: i32) -> c_int {
    // SAFETY: a constant of the MPI library.
    let nowhere = unsafe { mpi_sys::RSMPI_PROC_NULL };
    // SAFETY: this function's contract.
    unsafe {
        look(group, nowhere, |group| {
            let rank = u32::try_from(rank).ok().map(Rank);
            let slot = rank.and_then(|rank| group.group.survivor_slot(rank));
            slot.map_or(nowhere, |slot| slot.0 as c_int)
        })
    }
}

/// Lists the ranks of the data that the last call could not recover. [L]
///
/// They are the ranks behind FTSORT_ERR_DATA_LOST of the last call that can return it, the same on all survivors.
///
/// \param ranks     receives the first `capacity` ranks, ascending; may be NULL if `capacity` is 0
/// \param capacity  the number of elements at `ranks`
/// \return the number of these ranks, which may exceed `capacity`; 0 for none, for NULL, and for a busy group
///
/// # Safety
/// `group` is NULL or live; `ranks` is NULL or valid for `capacity` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_lost_ranks(
    group: *const Handle,
    ranks: *mut i32,
    capacity: usize,
) -> usize {
    // SAFETY: this function's contract.
    unsafe {
        look(group, 0, |group| {
            if !ranks.is_null() {
                for (index, rank) in group.group.lost_ranks().iter().take(capacity).enumerate() {
                    ranks.add(index).write(rank.0 as i32);
                }
            }
            group.group.lost_ranks().len()
        })
    }
}

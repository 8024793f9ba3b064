//! Results: the blocks that a sort, rounds or a tree leave on a rank.

use std::ffi::c_void;

use super::group::ftsort;
use super::guard::keep_text;
use super::handle::{Handle, on_group};
use super::status::ftsort_status;
use ftsort_core::group::{FinalStates, Sorted};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Result, Status, refuse};
use ftsort_kernels::record::Layout;

/// The blocks that a sort, rounds or a tree leave on this rank, in ascending order of node.
///
/// Belongs to the caller, and remains valid after its group is released. Several threads may read it at once.
pub struct ftsort_result {
    content: Content,
    /// The size of the group.
    ranks: usize,
}

enum Content {
    Sorted(Sorted),
    /// The states of a rounds algorithm: bytes.
    States(FinalStates),
    /// Bytes without redundancy: the result of a tree, or of simulated ranks.
    Bytes(Vec<(Node, Slice)>),
    /// A part of an array that the caller sorted by other means, and lends.
    Array(Array),
}

struct Array {
    layout: Layout,
    node: Node,
    data: *const c_void,
    count: usize,
}

impl Array {
    fn bytes(&self) -> &[u8] {
        match self.count {
            0 => &[],
            // SAFETY: checked when the result was made; the caller keeps the array until the result is
            // released.
            count => unsafe {
                std::slice::from_raw_parts(self.data.cast(), count * self.layout.record_bytes())
            },
        }
    }
}

/// One block of a result. Borrowed from the result.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_block {
    /// The node of the block.
    pub node: i32,
    /// Records in order, aligned as in an array that starts at a multiple of 16, or the bytes of a state or tree result,
    /// aligned to 8. Not NULL, even if `count` is 0.
    pub data: *const c_void,
    /// The number of elements: records, or bytes.
    pub count: usize,
    /// The position of the first record in the global order, in records; 0 for bytes.
    pub offset: u64,
}

/// Bytes of an empty array: aligned as all others are.
#[repr(align(64))]
struct Nowhere;
static NOWHERE: Nowhere = Nowhere;

/// Returns the address of bytes, also of an empty array.
pub(super) fn address_of(bytes: &[u8]) -> *const c_void {
    match bytes {
        [] => std::ptr::from_ref(&NOWHERE).cast(),
        bytes => bytes.as_ptr().cast(),
    }
}

/// A node and the bytes of its records.
type NodeRecords<'r> = (Node, &'r [u8]);

impl ftsort_result {
    /// The result of a sort.
    pub(super) fn sorted(sorted: Sorted) -> ftsort_result {
        ftsort_result {
            ranks: sorted.ranks(),
            content: Content::Sorted(sorted),
        }
    }

    /// The final states of nodes.
    pub(super) fn states(states: FinalStates) -> ftsort_result {
        ftsort_result {
            ranks: states.ranks(),
            content: Content::States(states),
        }
    }

    /// Bytes of nodes in a group of this size.
    pub(super) fn bytes(bytes: Vec<(Node, Slice)>, ranks: usize) -> ftsort_result {
        ftsort_result {
            content: Content::Bytes(bytes),
            ranks,
        }
    }

    /// A lent array, as the block of a node.
    ///
    /// # Safety
    /// `data` is valid for `count` records as long as the result is used, or `count` is 0.
    pub(super) unsafe fn array(
        layout: Layout,
        data: *const c_void,
        count: usize,
        node: Node,
        ranks: usize,
    ) -> ftsort_result {
        ftsort_result {
            content: Content::Array(Array {
                layout,
                node,
                data,
                count,
            }),
            ranks,
        }
    }

    /// Checks that the result is of a group of this size.
    pub(super) fn require_ranks(&self, ranks: usize) -> Result<()> {
        if self.ranks != ranks {
            return refuse(format!(
                "result is of a group of {} ranks, but group has {ranks}: pass the group that made it",
                self.ranks
            ));
        }
        Ok(())
    }

    /// The result of a sort, to be handed to one rank.
    pub(super) fn of_sort_mut(&mut self) -> Result<&mut Sorted> {
        match &mut self.content {
            Content::Sorted(sorted) => Ok(sorted),
            _ => refuse("result is not of a sort: pass a result of ftsort_sort or ftsort_run"),
        }
    }

    /// The layout of the records, the records by node, and the result of a sort that they are, if they are one.
    pub(super) fn records(&self) -> Result<(&Layout, Vec<NodeRecords<'_>>, Option<&Sorted>)> {
        match &self.content {
            Content::Sorted(sorted) => match sorted.listed_layout() {
                Some(layout) => {
                    let parts = sorted.parts(sorted.record_bytes())?;
                    Ok((layout, parts, Some(sorted)))
                }
                None => refuse(
                    "result holds positions or groups: pass a result of ftsort_run or ftsort_sort_by_key",
                ),
            },
            Content::Array(array) => Ok((&array.layout, vec![(array.node, array.bytes())], None)),
            Content::States(_) | Content::Bytes(_) => refuse(
                "result holds bytes of rounds or of a tree: pass a result of a sort or of ftsort_result_of_array",
            ),
        }
    }

    /// The number of columns of each block.
    pub(super) fn columns(&self) -> usize {
        match &self.content {
            Content::Sorted(sorted) => sorted.columns(),
            _ => 1,
        }
    }

    /// A column of a block, and the size of its elements.
    pub(super) fn column(&self, index: usize, column: usize) -> Option<(&[u8], usize)> {
        match &self.content {
            Content::Sorted(sorted) => sorted.column(index, column),
            _ => {
                let (_, data, element_bytes, _) = self.part(index).filter(|_| column == 0)?;
                Some((data, element_bytes))
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        match &self.content {
            Content::Sorted(sorted) => sorted.len(),
            Content::States(states) => states.len(),
            Content::Bytes(bytes) => bytes.len(),
            Content::Array(_) => 1,
        }
    }

    fn total(&self) -> u64 {
        match &self.content {
            Content::Sorted(sorted) => sorted.total(),
            _ => {
                let blocks = (0..self.count()).filter_map(|index| self.block(index));
                blocks.map(|block| block.count as u64).sum()
            }
        }
    }

    /// The node and the bytes of a block, the size of an element, and the place of the first one in the whole result.
    fn part(&self, index: usize) -> Option<(Node, &[u8], usize, u64)> {
        match &self.content {
            Content::Sorted(sorted) => {
                let block = sorted.block(index)?;
                Some((
                    block.node,
                    block.records,
                    sorted.record_bytes(),
                    block.offset,
                ))
            }
            Content::States(states) => {
                let (node, state) = states.get(index)?;
                Some((node, state, 1, 0))
            }
            Content::Bytes(bytes) => {
                let (node, bytes) = bytes.get(index)?;
                Some((*node, bytes, 1, 0))
            }
            Content::Array(array) => {
                let part = (array.node, array.bytes(), array.layout.record_bytes(), 0);
                Some(part).filter(|_| index == 0)
            }
        }
    }

    fn block(&self, index: usize) -> Option<ftsort_block> {
        let (node, data, element_bytes, offset) = self.part(index)?;
        Some(ftsort_block {
            node: node.0 as i32,
            data: address_of(data),
            count: data.len() / element_bytes,
            offset,
        })
    }
}

/// Returns the number of blocks on this rank: one for each node that it executes, or 0 for NULL. [L]
///
/// # Safety
/// `result` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_count(result: *const ftsort_result) -> usize {
    // SAFETY: this function's contract.
    unsafe { result.as_ref() }.map_or(0, ftsort_result::count)
}

/// Describes block `index`, valid as long as the result; FTSORT_ERR_ARGUMENT for NULL or a large `index`. [L]
///
/// # Safety
/// `result` is NULL or live; `block` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_block(
    result: *const ftsort_result,
    index: usize,
    block: *mut ftsort_block,
) -> ftsort_status {
    // SAFETY: this function's contract.
    let (result, place) = unsafe { (result.as_ref(), block.as_mut()) };
    let found = result.and_then(|result| result.block(index));
    let (Some(found), Some(place)) = (found, place) else {
        let count = result.map_or(0, ftsort_result::count);
        keep_text(&format!(
            "result or block is NULL, or index is {index} and the result has {count} blocks"
        ));
        return Status::Argument as ftsort_status;
    };
    *place = found;
    Status::Ok as ftsort_status
}

/// Returns the number of records of a sort over all ranks; of other results the elements on this rank. [L]
///
/// # Safety
/// `result` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_total(result: *const ftsort_result) -> u64 {
    // SAFETY: this function's contract.
    unsafe { result.as_ref() }.map_or(0, ftsort_result::total)
}

/// Recovers the blocks of ranks that have failed since the result was made. [C]
///
/// All survivors pass the results of the same call. Lost blocks are rebuilt on the executors of their nodes, and the
/// redundancy of the result is renewed, so that the result tolerates as many failures at once as the store (see
/// `ftsort_store`), and any number one after another, until a rank releases it. Blocks of survivors stay where they
/// are; a spare that takes over may get some of them. Pointers to blocks stay valid. Without failures the
/// call only finds that there are none. `compare` and, but with FTSORT_STORE_PARITY, `reload` are used again. With
/// FTSORT_STORE_RELOAD, bitonic sorts and rounds cannot be recovered. FTSORT_CHECK_DIGEST covers the recovery.
///
/// \param group   the group that made the result
/// \param result  the result of this rank, of a sort or of ftsort_rounds_run; it receives the rebuilt blocks
/// \return FTSORT_OK, with failures or without; FTSORT_ERR_DATA_LOST if blocks cannot be rebuilt (ftsort_lost_ranks
///         names the failed ranks with blocks; those of survivors stay valid); FTSORT_ERR_CALLBACK if `reload`
///         refuses; FTSORT_ERR_CORRUPT; FTSORT_ERR_ARGUMENT also for another kind of result, and on all ranks for
///         results of different calls; or another status of "Collective calls" (after FTSORT_ERR_MEMORY, call again)
///
/// # Safety
/// `result` is NULL or live, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_recover(
    group: *mut Handle,
    result: *mut ftsort_result,
) -> ftsort_status {
    // SAFETY: this function's contract.
    on_group(group, |group| unsafe { recover_on(group, result) })
}

/// # Safety
/// As for [`ftsort_result_recover`].
unsafe fn recover_on(group: &mut ftsort, result: *mut ftsort_result) -> Result<()> {
    // SAFETY: this function's contract.
    let result = unsafe { result.as_mut() };
    let refused = match result.map(|result| &mut result.content) {
        Some(Content::Sorted(sorted)) => return group.group.recover(sorted),
        Some(Content::States(states)) => return group.group.recover_states(states),
        Some(Content::Bytes(_) | Content::Array(_)) => {
            refuse("result is of a tree or an array: pass a result of a sort or of rounds")
        }
        None => refuse("result is NULL: pass the result of this rank"),
    };
    group.group.recover(refused)
}

/// Releases a result, its blocks and its redundancy; NULL is allowed. [L]
///
/// # Safety
/// `result` is NULL or live, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_free(result: *mut ftsort_result) {
    if !result.is_null() {
        // SAFETY: it came from Box::into_raw, and the caller gives it back once.
        drop(unsafe { Box::from_raw(result) });
    }
}

/// Hands a result to the caller.
pub(super) fn hand_over(result: ftsort_result) -> *mut ftsort_result {
    Box::into_raw(Box::new(result))
}

//! Tree collectives: merging the contributions of all ranks on one rank, and copying the bytes of one rank to
//! all ranks; the shares of data that ranks can contribute.

use std::ffi::c_void;

use super::group::ftsort;
use super::handle::{Handle, on_any_group, on_group, on_group_for, place_of, set};
use super::result::{ftsort_result, hand_over};
use super::settings::write_sized;
use super::slices::CArray;
use super::status::ftsort_status;
use super::tree::{Options, ftsort_tree_options, rank_of};
use ftsort_core::group::TreeMerge;
use ftsort_core::tree::run::choose::ChosenTree;
use ftsort_kernels::error::Result;

/// Returns the share of this rank if items are divided among the ranks that can contribute to a tree. [L]
///
/// This is the uniform data distribution (UDD) of Leu and Kuo 1996, Sections 3.2 and 3.3, for ranks: each rank that has
/// not failed and that `options->links` do not separate from the sink of the tree gets a share. A failed rank, a
/// separated rank and a spare without a node get none. The shares cover all items, in the order of ranks, and their
/// sizes differ by at most 1.
///
/// The shares follow from `options` and from the failed ranks that this rank knows. All survivors know the same failed
/// ranks when a collective call returns, such as ftsort_init, ftsort_fault_check or ftsort_tree_merge, also after an
/// error. If a rank fails before its share has left it, ftsort_tree_merge returns FTSORT_ERR_DATA_LOST: call
/// ftsort_tree_share again, which divides the items among the other ranks, and repeat. ftsort_tree_merge returns
/// FTSORT_ERR_ARGUMENT if the executor of a rank that fails during the call is separated, because it has that rank's
/// contribution: repeat then, too, if more ranks have failed (ftsort_is_failed) than before the call.
///
/// \param options  borrowed for the call, the same on all ranks; NULL selects all defaults. `links` and the sink have an
///                 effect; links are not tested (`detect_ms`)
/// \param total    the number of items
/// \param first    receives the first item of this rank
/// \param count    receives the number of its items; 0 if it has none
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT for a NULL `group`, `first` or `count`, or invalid `options` (then `first` and `count` receive 0);
///         FTSORT_ERR_STATE while the group is busy
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_share(
    group: *const Handle,
    options: *const ftsort_tree_options,
    total: u64,
    first: *mut u64,
    count: *mut u64,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe {
        set(first, 0);
        set(count, 0);
    }
    on_any_group(group, |group| {
        let ranks = group.group.members().ranks();
        // SAFETY: this function's contract.
        unsafe {
            let options = Options::read(options, ranks)?;
            place_of("first", first)?;
            place_of("count", count)?;
            let share = group.group.tree_share(&options.tree, total)?;
            set(first, share.start);
            set(count, share.end - share.start);
        }
        Ok(())
    })
}

/// Merges a contribution of every rank along a tree, and leaves the result on one rank. [C]
///
/// The tree avoids faulty links (Leu and Kuo 1996, Sections 3.1 and 3.2, FIND_TREE and FTTC). Contributions
/// are merged where they meet, so the result must fit into the memory of one rank. To bring the result of a
/// sort to one rank without that limit, use ftsort_gather_sorted.
///
/// Tolerates failures at any moment: every contribution is first protected by the configured store (nothing is
/// kept with FTSORT_STORE_RELOAD and FTSORT_STORE_NONE). After a failure the survivors choose a tree again and
/// start over with the contributions of the failed ranks. A copy counts as soon as its holder has all of it. If a
/// rank fails before that, the call returns FTSORT_ERR_DATA_LOST, and a second call proceeds without that rank. A
/// rank that was known to have failed before the call contributes nothing. `options->links` concerns the tree
/// only; agreements and copies use any link. In fault schedules round 0 protects contributions, and round 1
/// carries them.
///
/// Ranks that `options->links` separate from the sink are left out if they contribute 0 bytes, as ftsort_tree_share
/// distributes the data. Without `options->has_sink` the sink is in the largest connected part of the hypercube. After
/// a failure the executor has the links of more nodes: a separated rank may be connected then, and a contribution may
/// be separated that was not before.
///
/// \param options  borrowed for the call; NULL selects all defaults, and concatenation
/// \param state    the contribution of this rank; copied; any alignment; NULL if `bytes` is 0
/// \param bytes    the size of `state`; a contribution of 0 bytes is not merged with anything
/// \param result   receives, on the rank that executes the sink of the tree (`ftsort_tree_info.executor`), a
///                 result with one block of bytes; release it with ftsort_result_free. Receives
///                 NULL on all other ranks and after an error
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks if `options` differs between ranks or if
///         `options->links` separates a contribution of more than 0 bytes from the sink (the text names the separated
///         ranks), and on the rank that meets arrays of different lengths; FTSORT_ERR_STATE also if links that
///         `options->detect_ms` found separate one; FTSORT_ERR_CALLBACK; FTSORT_ERR_DATA_LOST; or another status
///         of "Collective calls"
///
/// # Safety
/// The pointers are NULL or valid, `state` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_merge(
    group: *mut Handle,
    options: *const ftsort_tree_options,
    state: *const c_void,
    bytes: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    let merge = |group: &mut ftsort, refusal: Result<()>| {
        let ranks = group.group.members().ranks();
        let prepare = || {
            refusal?;
            // SAFETY: this function's contract.
            unsafe {
                let options = Options::read(options, ranks)?;
                Ok(TreeMerge {
                    operation: options.operation()?,
                    options: options.tree,
                    contribution: CArray::of_bytes("state", state, bytes).bytes()?,
                })
            }
        };
        let merged = group.group.tree_merge(prepare())?;
        let sink = group.group.last_tree().map(|chosen| chosen.tree.sink());
        Ok(match (merged, sink) {
            (Some(merged), Some(sink)) => {
                hand_over(ftsort_result::bytes(vec![(sink, merged)], ranks))
            }
            _ => std::ptr::null_mut(),
        })
    };
    // SAFETY: this function's contract.
    unsafe { on_group_for(group, "result", result, merge) }
}

/// Copies bytes of one rank to all ranks, along a tree. [C]
///
/// The tree avoids faulty links. Tolerates failures at any moment, as ftsort_tree_merge does; `root` may fail
/// as soon as a copy of its bytes is kept. In fault schedules round 0 protects the bytes, and round 1 carries them.
/// Every survivor receives the bytes, so that no rank can be left out as in ftsort_tree_merge.
///
/// \param options  borrowed for the call; NULL selects all defaults. The sink and the operation have no effect,
///                 but must be the same on all ranks
/// \param root     a surviving rank, the same on all ranks
/// \param buffer   on `root` the bytes to copy; on the other ranks it is written to and not read, and an error
///                 leaves it unchanged; NULL if `bytes` is 0
/// \param bytes    the size of `buffer`, the same on all ranks
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks if `root` was known to have failed, if `options` or
///         `bytes` differs between ranks, or if `options->links` separates a rank (the text names it);
///         FTSORT_ERR_STATE also if links that `options->detect_ms` found separate a rank;
///         FTSORT_ERR_DATA_LOST if `root` failed before its bytes were kept; or another status of "Collective
///         calls"
///
/// # Safety
/// The pointers are NULL or valid, `buffer` for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_broadcast(
    group: *mut Handle,
    options: *const ftsort_tree_options,
    root: i32,
    buffer: *mut c_void,
    bytes: usize,
) -> ftsort_status {
    on_group(group, |group| {
        let members = group.group.members();
        let (me, ranks) = (members.me(), members.ranks());
        let prepare = || {
            // SAFETY: this function's contract.
            unsafe {
                let options = Options::read(options, ranks)?;
                let root = rank_of("root", root, ranks)?;
                let array = CArray::of_bytes("buffer", buffer, bytes);
                let told: &[u8] = if root == me {
                    array.bytes()?
                } else {
                    // The buffer of a rank other than the root need not be initialised.
                    array.check()?;
                    &[]
                };
                Ok((options.tree, root, told))
            }
        };
        let prepared = prepare();
        let is_root = prepared.as_ref().is_ok_and(|(_, root, _)| *root == me);
        let told = group.group.tree_broadcast_checked(prepared, bytes)?;
        if bytes > 0 && !is_root {
            // SAFETY: `buffer` is not NULL, which was checked, and valid by this function's contract.
            unsafe { std::ptr::copy_nonoverlapping(told.as_ptr(), buffer.cast(), bytes) };
        }
        Ok(())
    })
}

/// The tree of the last ftsort_tree_merge, ftsort_tree_broadcast or ftsort_gather_sorted that succeeded, the
/// same on all survivors. Later versions append members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_tree_info {
    /// `sizeof(ftsort_tree_info)`, set by the caller.
    pub struct_size: usize,
    /// The node that the tree leads to; -1 if no such call has succeeded yet.
    pub sink: i32,
    /// The rank that executed that node, and received the result; -1 as above.
    pub executor: i32,
    /// The number of dimensions of the hypercube.
    pub dimension_count: u32,
    /// The dimensions in the order in which data cross them on the way to the sink (1996 paper, Section
    /// 2.2); `dimension_count` of them.
    pub dimensions: [u32; 32],
    /// The number of faulty links of the tree, all of which were avoided.
    pub faulty_links: u32,
    /// The number of messages that went to another neighbour, which passed them on with its own.
    pub helps: u64,
    /// The number of messages that took a route over other nodes.
    pub detours: u64,
}

/// Describes the tree of the last call that used one. [L]
///
/// \param info   set `struct_size` before (FTSORT_TREE_INFO_INIT); receives that many bytes
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT for NULL or a `struct_size` that is too small; FTSORT_ERR_STATE while
///         the group is busy
///
/// # Safety
/// `group` is NULL or live; `info` is NULL or valid for its `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_tree_get_info(
    group: *const Handle,
    info: *mut ftsort_tree_info,
) -> ftsort_status {
    on_any_group(group, |group| {
        let chosen = group.group.last_tree();
        let full = |struct_size| described(chosen, struct_size);
        // SAFETY: this function's contract.
        unsafe { write_sized("info", info, full) }
    })
}

fn described(chosen: Option<&ChosenTree>, struct_size: usize) -> ftsort_tree_info {
    let mut info = ftsort_tree_info {
        struct_size,
        sink: -1,
        executor: -1,
        dimension_count: 0,
        dimensions: [0; 32],
        faulty_links: 0,
        helps: 0,
        detours: 0,
    };
    if let Some(chosen) = chosen {
        let order = chosen.tree.order();
        info.sink = chosen.tree.sink().0 as i32;
        info.executor = chosen.sink_rank.0 as i32;
        info.dimension_count = order.len() as u32;
        for (place, dimension) in info.dimensions.iter_mut().zip(order) {
            *place = *dimension;
        }
        info.faulty_links = chosen.faulty_links;
        info.helps = chosen.delegated as u64;
        info.detours = chosen.detours as u64;
    }
    info
}

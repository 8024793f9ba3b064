//! Gathers the whole result of a sort on one rank, in order and in pieces.

use std::ffi::{c_int, c_void};

use super::handle::{Handle, on_group};
use super::result::ftsort_result;
use super::status::ftsort_status;
use super::tree::{Options, ftsort_tree_options};
use ftsort_core::group::TreeOptions;
use ftsort_kernels::error::{Error, Status, refuse};

/// Receives the next `count` records of a sorted result. Called on the rank that receives them, by the thread
/// that called ftsort. `records` is aligned as in a block, and valid during the callback. Returns 0, or any
/// other number to refuse, and then ftsort_gather_sorted returns FTSORT_ERR_CALLBACK. Must not throw, longjmp,
/// or call ftsort with this group.
pub type ftsort_consume_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, records: *const c_void, count: usize) -> c_int>;

/// Hands the whole result of a sort to one rank, in order, in pieces of about 4 MiB. [C]
///
/// The pieces travel along a tree that avoids faulty links. Unlike ftsort_tree_merge, which merges arbitrary
/// contributions and holds the merged whole in the memory of one rank, this function needs memory for a few
/// pieces on any rank, and takes the blocks of a result, which are already in order. Of a result with columns
/// (ftsort_query.h) it hands over the first one.
///
/// Each record is handed over once, after all survivors have agreed that its piece arrived. After failures the
/// call recovers the result, as ftsort_result_recover does, and continues. If the receiving rank fails, the rank
/// that executes the sink then receives all records from the first one on. A rank that was excluded when the result
/// was made executes no sink, so that another rank receives the records in its place. In fault schedules every piece
/// is round 1.
///
/// \param options  borrowed for the call; NULL selects all defaults. The sink of the tree receives the records
///                 (`ftsort_tree_info.executor`), and is no spare without a node. The operation has no effect, but
///                 must be the same on all ranks
/// \param result   the result of this rank of a sort of this group, of the same sort on all ranks; it receives
///                 blocks that are rebuilt
/// \param consume  see `ftsort_consume_fn`; not NULL on any rank, because any rank may receive the records
/// \param user     passed to `consume` and never read
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks if `options` differs between ranks, if `options->links`
///         separates a rank with records, if the sink is a spare without a node, or if the results are not of one sort;
///         FTSORT_ERR_STATE also if links that `options->detect_ms` found separate a rank; FTSORT_ERR_DATA_LOST if the
///         result cannot be recovered; FTSORT_ERR_CORRUPT also if blocks that were rebuilt do not fit the others, because
///         `compare` or `reload` has returned something else since the sort; FTSORT_ERR_CALLBACK; or another status of
///         "Collective calls". Blocks that were rebuilt stay in the result, also if links separate their ranks then
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_gather_sorted(
    group: *mut Handle,
    options: *const ftsort_tree_options,
    result: *mut ftsort_result,
    consume: ftsort_consume_fn,
    user: *mut c_void,
) -> ftsort_status {
    on_group(group, |group| {
        let ranks = group.group.members().ranks();
        let mut tree = TreeOptions::default();
        let mut prepare = || {
            if consume.is_none() {
                return refuse("consume is NULL: pass a function on every rank");
            }
            // SAFETY: this function's contract.
            let (result, options) = unsafe { (result.as_mut(), Options::read(options, ranks)?) };
            let Some(result) = result else {
                return refuse("result is NULL: pass the result of this rank");
            };
            result.require_ranks(ranks)?;
            tree = options.tree;
            result.of_sort_mut()
        };
        let sorted = prepare();
        let record_bytes = (sorted.as_ref()).map_or(1, |sorted| sorted.record_bytes());
        group.group.gather(tree, sorted, &mut |records| {
            // If the function is missing, the call has already failed at this point.
            consume.map_or(Ok(()), |consume| {
                let count = records.len() / record_bytes;
                // SAFETY: the user's function with the user's pointer; the records live during the call.
                match unsafe { consume(user, records.as_ptr().cast(), count) } {
                    0 => Ok(()),
                    code => {
                        let text = format!("the consume callback returned {code}");
                        Err(Error::new(Status::Callback, text))
                    }
                }
            })
        })
    })
}

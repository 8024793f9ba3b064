//! What a sort gives: a list of blocks.

use std::ffi::c_void;

use super::status::ftsort_status;
use ftsort_core::engine::Finished;
use ftsort_core::members::{Members, RankSet};
use ftsort_core::sort::{global_offset, total_records};
use ftsort_core::tree::run::collect::LocalResult;
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};

/// The sorted blocks that this rank holds: its own, and one for each node that it covers, in
/// ascending order of node. Owned by the caller; may outlive its group. May be read by several
/// threads at once.
pub struct ftsort_result {
    blocks: Vec<(Node, u64, Slice)>,
    record_bytes: usize,
    total: u64,
    /// Who was dead when it was made.
    absent: RankSet,
    ranks: usize,
}

/// One sorted block. Borrowed from its result.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_block {
    /// The node whose block it is.
    pub node: i32,
    /// The records, in order; those of numbers are aligned to their size. Not NULL, also if `count` is 0.
    pub data: *const c_void,
    /// How many records.
    pub count: usize,
    /// Where the block starts in the global order, in records.
    pub offset: u64,
}

impl ftsort_result {
    pub(super) fn new(finished: Finished, record_bytes: usize, members: &Members) -> ftsort_result {
        let total = total_records(&finished.decision);
        let blocks = finished.blocks.into_iter().filter_map(|(node, block)| {
            let (offset, data) = global_offset(&block)?;
            Some((node, offset, data.clone()))
        });
        ftsort_result {
            blocks: blocks.collect(),
            record_bytes,
            total,
            absent: members.faulty().clone(),
            ranks: members.ranks(),
        }
    }

    /// Of how many ranks the group was.
    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// What there is to be handed to somebody.
    pub(super) fn holding(&self) -> LocalResult {
        LocalResult {
            blocks: self.blocks.clone(),
            record_bytes: self.record_bytes,
            total: self.total,
            absent: self.absent.clone(),
        }
    }

    /// The blocks, by node, if records have this size.
    pub(super) fn parts(&self, record_bytes: usize) -> Result<Vec<(Node, &[u8])>> {
        if record_bytes != self.record_bytes {
            let text = format!(
                "record.record_bytes is {record_bytes}, but the result has records of {} bytes",
                self.record_bytes
            );
            return Err(Error::new(Status::Argument, text));
        }
        let blocks = self.blocks.iter();
        Ok(blocks.map(|(node, _, data)| (*node, &data[..])).collect())
    }
}

/// How many blocks this rank holds. [L]
///
/// \param[in] result a result; NULL has none.
///
/// # Safety
/// `result` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_count(result: *const ftsort_result) -> usize {
    // SAFETY: this function's contract.
    unsafe { result.as_ref() }.map_or(0, |result| result.blocks.len())
}

/// One block of this rank's. [L]
///
/// \param[in] result a live result.
/// \param[in] index below `ftsort_result_count`; blocks are in ascending order of node.
/// \param[out] out the block; its data live as long as the result.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL or an index that is too great.
///
/// # Safety
/// `result` is NULL or live; `out` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_block(
    result: *const ftsort_result,
    index: usize,
    out: *mut ftsort_block,
) -> ftsort_status {
    // SAFETY: this function's contract.
    let (result, out) = unsafe { (result.as_ref(), out.as_mut()) };
    let (Some(result), Some(out)) = (result, out) else {
        return Status::Argument as ftsort_status;
    };
    let Some((node, offset, data)) = result.blocks.get(index) else {
        return Status::Argument as ftsort_status;
    };
    *out = ftsort_block {
        node: node.0 as i32,
        data: data.as_ptr().cast(),
        count: data.len() / result.record_bytes,
        offset: *offset,
    };
    Status::Ok as ftsort_status
}

/// How many records the whole result has, over all ranks. [L]
///
/// \param[in] result a result; NULL has none.
///
/// # Safety
/// `result` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_total(result: *const ftsort_result) -> u64 {
    // SAFETY: this function's contract.
    unsafe { result.as_ref() }.map_or(0, |result| result.total)
}

/// Frees a result and the blocks in it. [L]
///
/// \param[in] result a result; NULL is a no-op. It must not be used again.
///
/// # Safety
/// `result` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_result_free(result: *mut ftsort_result) {
    if !result.is_null() {
        // SAFETY: it came from Box::into_raw in ftsort_run, and the caller gives it back once.
        drop(unsafe { Box::from_raw(result) });
    }
}

//! What is sorted, as C sees it.

use super::settings::read_sized;
use crate::error::{Error, Result, Status};
use crate::record::{Fields, Layout};

/// What the key of a record is.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_key {
    /// `int32_t`.
    FTSORT_KEY_I32 = 5,
    /// `uint32_t`.
    FTSORT_KEY_U32 = 6,
    /// `int64_t`.
    FTSORT_KEY_I64 = 7,
    /// `uint64_t`.
    FTSORT_KEY_U64 = 8,
    /// `float`, in IEEE 754's total order: -NaN, -infinity, ..., -0.0, +0.0, ..., +infinity, +NaN.
    FTSORT_KEY_F32 = 9,
    /// `double`, in the same order.
    FTSORT_KEY_F64 = 10,
}

/// What a record is: contiguous bytes of a fixed size that may be copied freely. For plain numbers
/// use `FTSORT_RECORD_PLAIN`. Later versions append fields. The same on all ranks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_record {
    /// `sizeof(ftsort_record)`.
    pub struct_size: usize,
    /// The size of a record in bytes; in this version that of its key.
    pub record_bytes: usize,
    /// Where the key starts in a record; in this version 0.
    pub key_offset: usize,
    /// The size of the key in bytes; 0: the natural one.
    pub key_bytes: usize,
    /// One of `ftsort_key`.
    pub key: i32,
}

/// # Safety
/// As for [`read_sized`].
pub(super) unsafe fn read_layout(record: *const ftsort_record) -> Result<Layout> {
    // SAFETY: the caller's contract; the struct holds numbers only.
    let record = unsafe { read_sized(record, "record")? };
    let record = record.ok_or_else(|| Error::new(Status::Argument, "record is NULL"))?;
    Layout::new(Fields {
        record_bytes: record.record_bytes,
        key_offset: record.key_offset,
        key_bytes: record.key_bytes,
        key: record.key,
        ..Fields::default()
    })
}

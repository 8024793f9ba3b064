//! The layout of records, as C describes it.

use std::cmp::Ordering;
use std::ffi::{c_int, c_void};

use super::settings::read_sized;
use ftsort_core::group::protected::Order;
use ftsort_kernels::error::{Error, Result, refuse};
use ftsort_kernels::record::{Comparator, Fields, Layout, PartFields, check_part_count};

/// The type of a key.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_key {
    /// `int8_t`.
    FTSORT_KEY_I8 = 1,
    /// `uint8_t`.
    FTSORT_KEY_U8 = 2,
    /// `int16_t`.
    FTSORT_KEY_I16 = 3,
    /// `uint16_t`.
    FTSORT_KEY_U16 = 4,
    /// `int32_t`.
    FTSORT_KEY_I32 = 5,
    /// `uint32_t`.
    FTSORT_KEY_U32 = 6,
    /// `int64_t`.
    FTSORT_KEY_I64 = 7,
    /// `uint64_t`.
    FTSORT_KEY_U64 = 8,
    /// `float`, in the total order of IEEE 754: -NaN, -infinity, ..., -0.0, +0.0, ..., +infinity, +NaN.
    FTSORT_KEY_F32 = 9,
    /// `double`, in the same order.
    FTSORT_KEY_F64 = 10,
    /// `key_bytes` bytes, in the order of memcmp.
    FTSORT_KEY_BYTES = 11,
    /// The order of `compare`.
    FTSORT_KEY_COMPARE = 12,
    /// `key_bytes` bytes up to the first 0, in the order of strncmp on unsigned bytes.
    FTSORT_KEY_TEXT = 13,
    /// `uint16_t` up to the first 0, by number: UTF-16 in native byte order.
    FTSORT_KEY_TEXT16 = 14,
    /// `uint32_t` up to the first 0, by number: UTF-32 in native byte order, NumPy `U`.
    FTSORT_KEY_TEXT32 = 15,
    /// The keys at `parts`: the first decides, among equal ones the second, and so on.
    FTSORT_KEY_LIST = 16,
}

/// Compares two records, as for qsort: returns a number below, equal to or above 0. Must be pure and a total order of
/// keys, the same on all ranks and threads, or calls return FTSORT_ERR_CALLBACK, or lose records. Called by several
/// threads at once. Must not throw, longjmp, or call ftsort or MPI. Records are aligned as in a block.
pub type ftsort_compare_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, a: *const c_void, b: *const c_void) -> c_int>;

/// One of several keys of a record. Keys may overlap.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_key_part {
    /// The position in a record, in bytes; any alignment.
    pub offset: usize,
    /// The size in bytes; 0 for the natural size of a number.
    pub bytes: usize,
    /// One of `ftsort_key`, but not FTSORT_KEY_COMPARE and not FTSORT_KEY_LIST.
    pub key: i32,
    /// Not 0: descending order.
    pub descending: i32,
}

/// The layout of a record: contiguous bytes of a fixed size without pointers, because records move to other
/// processes. Start from an FTSORT_RECORD_ macro. The same on all ranks. Later versions append members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_record {
    /// `sizeof(ftsort_record)`.
    pub struct_size: usize,
    /// The size in bytes with padding, which counts as data; up to 2^28.
    pub record_bytes: usize,
    /// The position of the key, in bytes; any alignment. 0 without a single key.
    pub key_offset: usize,
    /// Its size in bytes; 0: the natural size of a number, or no single key.
    pub key_bytes: usize,
    /// One of `ftsort_key`.
    pub key: i32,
    /// Not 0: descending order; of a list the reverse of its whole order.
    pub descending: i32,
    /// Not 0: records with equal keys must keep the order of ranks and positions, also in descending order. All
    /// algorithms keep it, except FTSORT_BITONIC_MERGE, which then returns FTSORT_ERR_ARGUMENT.
    pub stable: i32,
    /// FTSORT_KEY_COMPARE only; ftsort_result_verify uses it too.
    pub compare: ftsort_compare_fn,
    /// Passed to `compare` and never read.
    pub user: *mut c_void,
    /// FTSORT_KEY_LIST only: `part_count` keys, borrowed for the call.
    pub parts: *const ftsort_key_part,
    /// The number of keys at `parts`: 1 to 64 for FTSORT_KEY_LIST, otherwise 0.
    pub part_count: usize,
    /// A number of the type and the order of `compare` on all ranks; 0: none.
    pub type_id: u64,
}

/// # Safety
/// As for [`read_sized`]; `parts` is NULL or valid for `part_count` keys; `compare` keeps its contract as long as the layout exists.
pub(super) unsafe fn read_layout(record: *const ftsort_record) -> Result<Order> {
    // SAFETY: the caller's contract; the struct holds numbers, pointers and an optional function.
    let record = unsafe { read_sized(record, "record")? };
    let record = record
        .ok_or_else(|| Error::argument("record is NULL: start from an FTSORT_RECORD_ macro"))?;
    let record_bytes = record.record_bytes;
    let compare = record.compare.map(|function| {
        let caller = Caller {
            function,
            user: record.user,
        };
        Comparator::new(move |one, other| caller.compare(one, other))
    });
    // SAFETY: this function's contract.
    let parts = unsafe { parts_of(&record)? };
    let layout = Layout::new(Fields {
        record_bytes,
        key_offset: record.key_offset,
        key_bytes: record.key_bytes,
        key: record.key,
        descending: record.descending != 0,
        compare,
        parts,
    })?;
    Ok(Order {
        layout: layout.with_type_id(record.type_id),
        stable: record.stable != 0,
    })
}

/// Returns the keys of a list.
///
/// # Safety
/// `parts` is NULL or valid for `part_count` keys.
unsafe fn parts_of(record: &ftsort_record) -> Result<Vec<PartFields>> {
    let count = record.part_count;
    // No list is read that is longer than any valid one.
    check_part_count(count)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    if record.parts.is_null() {
        return refuse(format!(
            "record.parts is NULL, but record.part_count is {count}: pass {count} keys"
        ));
    }
    // SAFETY: not NULL, and valid by this function's contract.
    let parts = unsafe { std::slice::from_raw_parts(record.parts, count) };
    let fields = |part: &ftsort_key_part| PartFields {
        offset: part.offset,
        bytes: part.bytes,
        key: part.key,
        descending: part.descending != 0,
    };
    Ok(parts.iter().map(fields).collect())
}

/// The user's comparator.
struct Caller {
    function: unsafe extern "C" fn(*mut c_void, *const c_void, *const c_void) -> c_int,
    user: *mut c_void,
}

// SAFETY: by its contract the function may be called from any thread with this pointer, and no other code
// reads the pointer.
unsafe impl Send for Caller {}
// SAFETY: as above; the contract also allows calls by several threads at once.
unsafe impl Sync for Caller {}

/// Aligned space for a record.
type Place = Vec<u128>;

impl Caller {
    fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        let mut places = [Place::new(), Place::new()];
        let [first, second] = &mut places;
        let (one, other) = (aligned(one, first), aligned(other, second));
        // SAFETY: the user's function with the user's pointer, and two whole records.
        let order = unsafe { (self.function)(self.user, one.cast(), other.cast()) };
        order.cmp(&0)
    }
}

/// Returns the record in place if its address could occur in an array that starts at a multiple of 16;
/// otherwise copies it to `place`.
fn aligned(record: &[u8], place: &mut Place) -> *const u8 {
    let alignment = 1 << record.len().trailing_zeros().min(4);
    if (record.as_ptr() as usize).is_multiple_of(alignment) {
        return record.as_ptr();
    }
    place.resize(record.len().div_ceil(size_of::<u128>()), 0);
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(place);
    bytes[..record.len()].copy_from_slice(record);
    bytes.as_ptr()
}

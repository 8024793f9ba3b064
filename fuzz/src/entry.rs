//! The C functions return a status for any arguments before MPI is initialized, and do not crash. Pointers are NULL,
//! or valid for the sizes in the structs, because no function can check more. `tests/c/arguments.c` tests the functions
//! that need a communicator.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};

use ftsort::capi::arguments::{check_array, check_config, check_run, check_tree};
use ftsort::capi::buffer::{ftsort_buffer, ftsort_buffer_resize};
use ftsort::capi::choice::ftsort_set_algorithm;
use ftsort::capi::config::ftsort_config;
use ftsort::capi::gather::ftsort_gather_sorted;
use ftsort::capi::group::{
    ftsort_agree, ftsort_comm, ftsort_fault_check, ftsort_free, ftsort_init, ftsort_inject,
    ftsort_last_error,
};
use ftsort::capi::merge::{
    ftsort_tree_broadcast, ftsort_tree_get_info, ftsort_tree_merge, ftsort_tree_share,
};
use ftsort::capi::protect::{
    ftsort_input_free, ftsort_input_update, ftsort_protect, ftsort_run_protected,
};
use ftsort::capi::query::{
    ftsort_cluster, ftsort_executor, ftsort_is_failed, ftsort_lost_ranks, ftsort_partner,
};
use ftsort::capi::record::{ftsort_key_part, ftsort_record};
use ftsort::capi::result::{
    ftsort_result_block, ftsort_result_count, ftsort_result_free, ftsort_result_recover,
    ftsort_result_total,
};
use ftsort::capi::run::ftsort_run;
use ftsort::capi::stats::{ftsort_get_stats, ftsort_version};
use ftsort::capi::status::{ftsort_status, ftsort_status_text};
use ftsort::capi::store::{
    ftsort_run_stored, ftsort_store_clear, ftsort_store_commit, ftsort_store_get,
    ftsort_store_open, ftsort_store_put,
};
use ftsort::capi::tree::ftsort_tree_options;
use ftsort::capi::verify::{ftsort_result_of_array, ftsort_result_verify};

const OK: ftsort_status = 0;
const ARGUMENT: ftsort_status = -1;
const STATE: ftsort_status = -3;
const MEMORY: ftsort_status = -21;

/// Takes values from the bytes, and zeros after their end.
struct Values<'d>(&'d [u8]);

impl Values<'_> {
    fn byte(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (now, later) = self.0.split_at(self.0.len().min(N));
        self.0 = later;
        let mut bytes = [0; N];
        bytes[..now.len()].copy_from_slice(now);
        bytes
    }

    /// A number that is small, near a limit, or any.
    fn number(&mut self) -> u64 {
        match self.byte() {
            255 => u64::from_le_bytes(self.bytes()),
            254 => u64::MAX - u64::from(self.byte()),
            253 => i64::MAX as u64 + 2 - u64::from(self.byte() % 4),
            252 => 1 << (self.byte() % 64),
            251 => u64::from(u32::from_le_bytes(self.bytes())),
            small => u64::from(small % 32),
        }
    }

    fn size(&mut self) -> usize {
        self.number() as usize
    }

    fn int(&mut self) -> i32 {
        self.number() as i32
    }

    /// A text of a few bytes; `None` stands for NULL.
    fn text(&mut self) -> Option<CString> {
        let length = self.byte();
        if length.is_multiple_of(4) {
            return None;
        }
        let (text, later) = self.0.split_at(self.0.len().min(usize::from(length / 4)));
        self.0 = later;
        let text: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0).collect();
        CString::new(text).ok()
    }
}

/// The first bytes of a struct in memory that ends after them, as in a program that was compiled with another header.
/// `struct_size` says how many bytes there are. If it is not a possible size, only the size itself is there.
struct Sized {
    place: Vec<u64>,
    short: bool,
}

impl Sized {
    fn new<T: Copy>(full: &T, values: &mut Values<'_>) -> Sized {
        let size = match values.byte() % 8 {
            0 => values.size(),
            1 => values.size() % (size_of::<T>() + 1),
            _ => size_of::<T>(),
        };
        let words = size_of::<T>() / 8;
        let kept = match size <= size_of::<T>() {
            true => size.div_ceil(8).max(1),
            false => 1,
        };
        let mut place = vec![0_u64; kept];
        // SAFETY: plain data; both have this number of whole words, because the structs are aligned to 8.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(full).cast::<u64>(),
                place.as_mut_ptr(),
                kept.min(words),
            );
        }
        place[0] = size as u64;
        Sized {
            place,
            short: (8..=size_of::<T>()).contains(&size) && size.is_multiple_of(8),
        }
    }

    fn address<T>(&self) -> *const T {
        self.place.as_ptr().cast()
    }
}

unsafe extern "C" fn reload(_: *mut c_void, _: i32, _: *mut ftsort_buffer) -> c_int {
    1
}

unsafe extern "C" fn compare(_: *mut c_void, _: *const c_void, _: *const c_void) -> c_int {
    0
}

fn one_of(status: ftsort_status, allowed: &[ftsort_status]) {
    assert!(allowed.contains(&status), "{status} is not in {allowed:?}");
    // SAFETY: a static text, and one that lives until the next call without a group.
    unsafe {
        let text = CStr::from_ptr(ftsort_status_text(status));
        assert_ne!(text.to_bytes(), b"unknown status");
        if status != OK {
            let error = CStr::from_ptr(ftsort_last_error(null()));
            assert!(!error.to_bytes().is_empty(), "{status} without a text");
        }
    }
}

fn configs(values: &mut Values<'_>) {
    let texts = [values.text(), values.text()];
    let [directory, faults] = &texts;
    let pointer = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
    let config = ftsort_config {
        struct_size: size_of::<ftsort_config>(),
        algorithm: values.int(),
        store: values.int(),
        pivot: values.int(),
        repair: values.int(),
        dense: values.int(),
        replicas: values.number() as u32,
        threads: values.number() as u32,
        accept_no_ulfm: values.int(),
        timeout_ms: values.number() as u32,
        min_survivors: values.number() as u32,
        memory_limit: values.size(),
        store_directory: pointer(directory),
        faults: pointer(faults),
        reload: (values.byte() % 2 == 1).then_some(reload as _),
        on_event: None,
        on_log: None,
        user: null_mut(),
        checks: values.number() as u32,
        trace: pointer(directory),
        store_sync: 0,
        group_access: 0,
        spares: values.number() as u32,
        release_after_run: 0,
        parity: values.number() as u32,
        parity_group: values.number() as u32,
        keep_comm: values.int(),
    };
    let given = Sized::new(&config, values);
    let mut group = null_mut();
    // SAFETY: pointers are NULL or valid; MPI_COMM_NULL or any other, MPI is not initialised.
    unsafe {
        let allowed = [&[ARGUMENT][..], &[OK, ARGUMENT]];
        one_of(
            check_config(given.address()),
            allowed[usize::from(given.short)],
        );
        let status = ftsort_init(std::mem::zeroed(), given.address(), &mut group);
        one_of(status, &[STATE]);
        assert!(group.is_null());
        one_of(
            ftsort_init(std::mem::zeroed(), given.address(), null_mut()),
            &[STATE],
        );
    }
}

fn any_parts(values: &mut Values<'_>) -> [ftsort_key_part; 3] {
    std::array::from_fn(|_| ftsort_key_part {
        offset: values.size(),
        bytes: values.size(),
        key: values.int(),
        descending: values.int(),
    })
}

/// The record is valid as long as the parts.
fn any_record(values: &mut Values<'_>, parts: &[ftsort_key_part; 3]) -> ftsort_record {
    let has_parts = values.byte() % 2 == 1;
    ftsort_record {
        struct_size: size_of::<ftsort_record>(),
        record_bytes: values.size(),
        key_offset: values.size(),
        key_bytes: values.size(),
        key: values.int(),
        descending: values.int(),
        stable: values.int(),
        compare: (values.byte() % 2 == 1).then_some(compare as _),
        user: null_mut(),
        parts: if has_parts { parts.as_ptr() } else { null() },
        // At most the existing number if there are parts; any number if there are none.
        part_count: match has_parts {
            true => values.size() % (parts.len() + 1),
            false => values.size(),
        },
        type_id: values.size() as u64,
    }
}

fn records(values: &mut Values<'_>) {
    let parts = any_parts(values);
    let record = any_record(values, &parts);
    let given = Sized::new(&record, values);
    let input = [0_u64; 128];
    let asked = values.size();
    // A pointer is passed only if it is valid for all records that are asked for.
    let fits = asked
        .checked_mul(record.record_bytes)
        .is_some_and(|bytes| bytes <= size_of_val(&input));
    let input = match fits && !values.byte().is_multiple_of(4) {
        true => input.as_ptr().cast(),
        false => null(),
    };
    let has_place = !values.byte().is_multiple_of(8);
    // SAFETY: as above.
    unsafe {
        let allowed = [&[ARGUMENT][..], &[OK, ARGUMENT, MEMORY]];
        let allowed = allowed[usize::from(given.short && has_place)];
        one_of(check_run(given.address(), input, asked, has_place), allowed);
        let allowed = [&[ARGUMENT][..], &[OK, ARGUMENT]];
        let allowed = allowed[usize::from(given.short)];
        one_of(check_array(given.address(), input, asked), allowed);
    }
    let group = null_mut();
    let (mut result, mut wrong) = (null_mut(), 0);
    // SAFETY: no group, and places.
    unsafe {
        let record = given.address();
        assert_eq!(
            ftsort_run(group, record, input, asked, &mut result),
            ARGUMENT
        );
        let status = ftsort_result_of_array(group, record, input, asked, &mut result);
        assert_eq!(status, ARGUMENT);
        let status = ftsort_result_verify(group, result, input, asked, &mut wrong);
        assert_eq!(status, ARGUMENT);
    }
}

unsafe extern "C" fn merge(
    _: *mut c_void,
    _: *const c_void,
    _: usize,
    _: *const c_void,
    _: usize,
    _: *mut ftsort_buffer,
) -> c_int {
    0
}

fn trees(values: &mut Values<'_>) {
    let links: [i32; 8] = std::array::from_fn(|_| values.int());
    let parts = any_parts(values);
    let record = any_record(values, &parts);
    let has_links = !values.byte().is_multiple_of(4);
    let options = ftsort_tree_options {
        struct_size: size_of::<ftsort_tree_options>(),
        has_sink: values.int(),
        sink: values.int(),
        operation: values.int(),
        key: values.int(),
        ordered: values.int(),
        reroute: values.int(),
        detect_ms: values.number() as u32,
        // At most the existing number if there are links; any number if there are none.
        link_count: match has_links {
            true => values.size() % (links.len() / 2 + 1),
            false => values.size(),
        },
        links: if has_links { links.as_ptr() } else { null() },
        record: if !values.byte().is_multiple_of(4) {
            &record
        } else {
            null()
        },
        merge: (values.byte() % 2 == 1).then_some(merge as _),
        user: null_mut(),
    };
    let given = Sized::new(&options, values);
    let bytes = values.size() % 64;
    let mut state = [0_u64; 8];
    let mut result = null_mut();
    // SAFETY: no group; pointers are NULL or valid.
    unsafe {
        let options = given.address();
        let allowed = [&[ARGUMENT][..], &[OK, ARGUMENT]];
        one_of(
            check_tree(options, 1 + bytes),
            allowed[usize::from(given.short)],
        );
        let (group, state) = (null_mut(), state.as_mut_ptr().cast());
        let status = ftsort_tree_merge(group, options, state, bytes, &mut result);
        assert_eq!(status, ARGUMENT);
        let (mut first, mut count) = (1, 1);
        let status = ftsort_tree_share(group, options, 9, &mut first, &mut count);
        assert_eq!((status, first, count), (ARGUMENT, 0, 0));
        let status = ftsort_tree_broadcast(group, options, 0, state, bytes);
        assert_eq!(status, ARGUMENT);
        let status = ftsort_gather_sorted(group, options, null_mut(), None, null_mut());
        assert_eq!(status, ARGUMENT);
        ftsort_result_free(result);
        assert_eq!(ftsort_tree_get_info(group, null_mut()), ARGUMENT);
    }
}

/// Functions without a group or a result, and those that need none.
fn others(values: &mut Values<'_>) {
    let (node, s, bytes) = (values.int(), values.number() as u32, values.size());
    let mut nodes = vec![-7; values.size() % 300];
    let room = nodes.len();
    let (mut stats, mut state, mut committed) = (Default::default(), null(), 0);
    let stats: &mut [u64; 32] = &mut stats;
    stats[0] = values.size() as u64;
    // SAFETY: NULL groups, inputs and results; the arrays have the given sizes.
    unsafe {
        let (group, mut input, mut result) = (null_mut(), null_mut(), null_mut());
        let protected = ftsort_protect(group, null(), null(), bytes, &mut input);
        let sorted = ftsort_run_protected(group, null_mut(), null(), &mut result);
        let stored = ftsort_run_stored(group, null(), null(), bytes, &mut result);
        let recovered = ftsort_result_recover(group, null_mut());
        let updated = ftsort_input_update(group, null_mut(), null(), bytes);
        assert_eq!(
            [protected, sorted, stored, recovered, updated],
            [ARGUMENT; 5]
        );
        assert_eq!(ftsort_set_algorithm(group, node, node), ARGUMENT);
        ftsort_input_free(input);
        ftsort_result_free(result);
        let size = ftsort_cluster(node, s, nodes.as_mut_ptr(), room);
        assert!(size == 0 || size.is_power_of_two());
        assert!(nodes[..size.min(room)].iter().all(|member| *member >= 0));
        assert!(nodes[size.min(room)..].iter().all(|member| *member == -7));
        assert_eq!(ftsort_cluster(node, s, null_mut(), bytes), size);
        assert!(!ftsort_status_text(node).is_null());
        assert_eq!(ftsort_executor(null(), node), -1);
        assert_eq!(ftsort_partner(null(), node, s), -1);
        assert_eq!(ftsort_is_failed(null(), node), 1);
        assert_eq!(ftsort_lost_ranks(null(), nodes.as_mut_ptr(), room), 0);
        assert_eq!(
            ftsort_get_stats(null(), stats.as_mut_ptr().cast()),
            ARGUMENT
        );
        assert_eq!(
            ftsort_store_open(null_mut(), null(), &mut committed),
            ARGUMENT
        );
        assert_eq!(ftsort_store_put(null_mut(), node, null(), bytes), ARGUMENT);
        assert_eq!(
            ftsort_store_get(null_mut(), node, &mut state, null_mut()),
            ARGUMENT
        );
        assert_eq!(
            ftsort_store_commit(null_mut(), node, &mut committed),
            ARGUMENT
        );
        assert_eq!(ftsort_store_clear(null_mut()), ARGUMENT);
        assert_eq!(ftsort_inject(null_mut(), s), ARGUMENT);
        assert_eq!(ftsort_fault_check(null_mut(), null_mut()), ARGUMENT);
        assert_eq!(ftsort_agree(null_mut(), null_mut(), null_mut()), ARGUMENT);
        assert_eq!(ftsort_comm(null_mut(), null_mut()), ARGUMENT);
        assert_eq!(ftsort_result_block(null(), bytes, null_mut()), ARGUMENT);
        assert_eq!(ftsort_result_count(null()), 0);
        assert_eq!(ftsort_result_total(null()), 0);
        assert!(ftsort_buffer_resize(null_mut(), bytes).is_null());
        ftsort_result_free(null_mut());
        ftsort_free(null_mut());
        ftsort_version(null_mut(), null_mut(), null_mut());
    }
}

/// The first byte selects the functions; the rest are their arguments.
pub fn check(data: &[u8]) {
    let mut values = Values(data);
    match values.byte() % 4 {
        0 => configs(&mut values),
        1 => records(&mut values),
        2 => others(&mut values),
        _ => trees(&mut values),
    }
}

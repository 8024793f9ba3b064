//! The memory of dropped buffers that the process retains. In a process of its own, since all buffers of a process have it in
//! common.

use std::sync::{Mutex, PoisonError};

use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::pages::ProcessPages;

/// More than the system must keep of retained buffers.
const LEN: usize = 48 << 20;

/// One test at a time has buffers.
static ALONE: Mutex<()> = Mutex::new(());

fn drop_filled_buffer() {
    let mut buffer = Buffer::unset(LEN).unwrap();
    buffer.fill(1);
}

fn retained() -> usize {
    ProcessPages::get().retained_bytes()
}

/// Returns how many bytes of this process the system must keep; None if it does not tell. It may reclaim the others that it
/// counts as `LazyFree`.
fn kept_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let kilobytes = |name: &str| -> Option<usize> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse().ok()
    };
    Some((kilobytes("Anonymous:")? - kilobytes("LazyFree:")?) << 10)
}

#[test]
fn dropped_buffers_are_retained_until_the_last_retention_ends() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    drop_filled_buffer();
    assert_eq!(retained(), 0);
    let one = ProcessPages::get().retain();
    let other = ProcessPages::get().retain();
    let before = kept_bytes();
    drop_filled_buffer();
    assert!(retained() >= LEN);
    let added = kept_bytes()
        .zip(before)
        .map(|(now, then)| now.saturating_sub(then));
    assert!(added.is_none_or(|bytes| bytes < LEN / 4), "{added:?}");
    // Together with buffers in use they do not exceed what was in use at once.
    let larger = Buffer::zeroed(2 * LEN).unwrap();
    assert_eq!(retained(), 0);
    drop(larger);
    drop(one);
    assert!(retained() >= 2 * LEN);
    drop(other);
    assert_eq!(retained(), 0);
    drop_filled_buffer();
    assert_eq!(retained(), 0);
}

#[test]
fn retained_memory_is_given_back_before_memory_is_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _retention = ProcessPages::get().retain();
    drop_filled_buffer();
    assert!(retained() >= LEN);
    let budget = MemoryBudget::new();
    // A system that does not count retained memory as available.
    budget.set_measured_limit(0, |used| used + if retained() == 0 { LEN } else { 0 });
    let _entered = budget.enter();
    let _buffer = Buffer::zeroed(LEN / 2).unwrap();
    assert_eq!(retained(), 0);
}

/// The sizes of a sort, of which some are almost the same. A buffer that is a little longer than its piece adds memory to it.
#[test]
fn buffers_of_the_same_sizes_use_the_same_memory_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _retention = ProcessPages::get().retain();
    let sizes = [2_097_152, 2_097_152, 1_046_528, 1_046_464];
    let round = |order: [usize; 4]| -> Vec<usize> {
        let buffers = order.map(|index| Buffer::unset(sizes[index]).unwrap());
        let mut addresses = buffers.map(|buffer| buffer.as_ptr().addr());
        addresses.sort_unstable();
        addresses.to_vec()
    };
    let first = round([0, 1, 2, 3]);
    for order in [[3, 2, 1, 0], [0, 3, 1, 2], [2, 0, 3, 1], [0, 1, 2, 3]] {
        assert_eq!(round(order), first, "{order:?}");
    }
}

#[test]
fn a_small_reserved_buffer_takes_a_retained_one() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _retention = ProcessPages::get().retain();
    let address = |buffer: &Buffer| buffer.as_ptr().addr();
    let before = address(&Buffer::unset(1 << 20).unwrap());
    let mut reserved = Buffer::reserved(1 << 20, 1 << 20).unwrap();
    assert_eq!(address(&reserved), before);
    reserved.commit(1 << 20, &mut []);
    reserved.fill(1);
    assert_eq!(reserved.len(), 1 << 20);
}

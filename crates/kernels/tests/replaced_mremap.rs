//! A communication library that replaces `mremap` and drops its last argument, as some versions do that watch memory
//! for registered buffers. One test in a process of its own, since the function is the process's.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use ftsort_kernels::buffer::{Buffer, UNIT};

static MOVES: AtomicUsize = AtomicUsize::new(0);

/// Moves memory to an address that the system chooses, whatever target was asked for.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    _target: *mut c_void,
) -> *mut c_void {
    if flags & libc::MREMAP_FIXED != 0 {
        MOVES.fetch_add(1, Ordering::Relaxed);
    }
    let flags = flags & !libc::MREMAP_FIXED;
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags) as *mut c_void }
}

#[test]
fn memory_is_not_moved_where_mremap_drops_its_target() {
    const UNITS: usize = 8;
    let len = UNITS * UNIT;
    let mut source = Buffer::zeroed(len).unwrap();
    source.fill(7);
    let mut out = Buffer::reserved(len, len).unwrap();
    let kept = len - UNIT..len;
    source.release_around(kept.clone());
    let before = resident_bytes();
    out.commit(len, &mut [&mut source]);
    out.fill(9);
    assert!(out.iter().all(|byte| *byte == 9));
    assert!(source[kept].iter().all(|byte| *byte == 7));
    // One attempt, on a small mapping; then the released units go back to the system.
    assert_eq!(MOVES.load(Ordering::Relaxed), 1);
    let after = resident_bytes();
    assert!(after <= before + 3 * UNIT, "{before} bytes, then {after}");
}

/// Returns how many bytes of this process are in memory.
fn resident_bytes() -> usize {
    let statistics = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statistics.split(' ').nth(1).unwrap().parse().unwrap();
    // SAFETY: the call has no preconditions.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize
}

//! A system that fails to move memory after it has unmapped the target, as Linux does if a limit refuses the move
//! (`ENOMEM`). One test in a process of its own, since the replaced function is the process's.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use ftsort_kernels::buffer::{Buffer, UNIT};

static FAILURES: AtomicUsize = AtomicUsize::new(0);

/// Moves small pieces, and fails for a unit: unmaps the target and leaves the source as it is.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe {
        if flags & libc::MREMAP_FIXED != 0 && new_len >= UNIT {
            FAILURES.fetch_add(1, Ordering::Relaxed);
            libc::munmap(target, new_len);
            *libc::__errno_location() = libc::ENOMEM;
            return libc::MAP_FAILED;
        }
        libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags, target) as *mut c_void
    }
}

#[test]
fn a_move_that_fails_leaves_no_hole() {
    const UNITS: usize = 8;
    let len = UNITS * UNIT;
    let mut source = Buffer::zeroed(len).unwrap();
    source.fill(7);
    let mut out = Buffer::reserved(len, len).unwrap();
    let kept = len - UNIT..len;
    source.release_around(kept.clone());
    out.commit(len, &mut [&mut source]);
    // Without the repair, this write hits an unmapped page.
    out.fill(9);
    assert!(out.iter().all(|byte| *byte == 9));
    assert!(source[kept].iter().all(|byte| *byte == 7));
    // After the first failure, the released units go back to the system instead.
    assert_eq!(FAILURES.load(Ordering::Relaxed), 1);
    let committed = (source.donatable() + out.donatable()) / UNIT;
    assert!(committed <= UNITS + 2, "{committed} units");
}

//! A merge's output at the limit of the address space: memory cannot be moved there, and the system call that fails
//! leaves its target unmapped. One test in a process of its own, since the limit is the process's.
#![cfg(target_os = "linux")]

use ftsort_kernels::buffer::{Buffer, UNIT};

#[test]
fn a_move_that_fails_leaves_no_hole() {
    const UNITS: usize = 8;
    let len = UNITS * UNIT;
    let mut source = Buffer::zeroed(len).unwrap();
    source.fill(7);
    let mut out = Buffer::reserved(len, len).unwrap();
    let kept = len - UNIT..len;
    limit_address_space(UNIT / 2);
    source.release_around(kept.clone());
    out.commit(len, &mut [&mut source]);
    // Without the repair, this write hits an unmapped page.
    out.fill(9);
    assert!(out.iter().all(|byte| *byte == 9));
    assert!(source[kept].iter().all(|byte| *byte == 7));
    // The released units went back to the system.
    let committed = donatable_units(&source) + donatable_units(&out);
    assert!(committed <= UNITS + 2, "{committed} units");
}

fn donatable_units(buffer: &Buffer) -> usize {
    buffer.donatable() / UNIT
}

/// Limits the address space of this process to `extra` bytes more than it has.
fn limit_address_space(extra: usize) {
    let statistics = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statistics.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: the call has no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let limit = libc::rlimit {
        rlim_cur: (pages * page_bytes + extra) as libc::rlim_t,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the structure lives during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

//! A system that refuses to start more threads than four at a time. One test in a process of its own, since the replaced
//! function is the process's.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};

use ftsort_kernels::kernel::ThreadPool;

/// The threads that were started since the last refusal.
static STARTED: AtomicUsize = AtomicUsize::new(0);

static REFUSALS: AtomicUsize = AtomicUsize::new(0);

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

type Create =
    unsafe extern "C" fn(*mut libc::pthread_t, *const c_void, Start, *mut c_void) -> c_int;

/// Starts a thread, unless four were started since the last refusal.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const c_void,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if STARTED.fetch_add(1, Ordering::Relaxed) >= 4 {
        STARTED.store(0, Ordering::Relaxed);
        REFUSALS.fetch_add(1, Ordering::Relaxed);
        return libc::EAGAIN;
    }
    // SAFETY: the C library has a function of this name and type; the caller's contract.
    unsafe {
        let create = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
        transmute::<*mut c_void, Create>(create)(thread, attributes, start, argument)
    }
}

#[test]
fn half_as_many_threads_are_used_where_the_system_refuses_more() {
    STARTED.store(0, Ordering::Relaxed);
    let pool = ThreadPool::from(8);
    assert_eq!(pool.thread_count(), 4);
    let squares = pool.map((0..100).collect(), |number: u32| number * number);
    assert!(
        squares
            .into_iter()
            .eq((0..100).map(|number| number * number))
    );
    assert_eq!(pool.thread_count(), 4);
    assert_eq!(REFUSALS.load(Ordering::Relaxed), 1);
}

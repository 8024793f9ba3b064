//! The turns in which the threads of a process call MPI.
//!
//! Open MPI confuses agreements if a thread agrees while another makes progress (docs/open-mpi.md, section 10). So in a
//! program with MPI_THREAD_MULTIPLE, one thread at a time makes a call that may progress. No such call waits for other
//! ranks, except the creation of a communicator, which begins when all survivors are ready for it, and during which no
//! other thread has a turn.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use ftsort_kernels::error::{Error, Result, Status};

/// Held during a turn. The number of threads that create a communicator.
static CREATORS: Mutex<usize> = Mutex::new(0);

/// Notified after a creation.
static CREATED: Condvar = Condvar::new();

/// The number of threads with a group that wait for their turn. The mutex may go to a monitor again and again, which looks
/// at many requests one after the other, so monitors let these threads go first.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Ends a turn when dropped.
pub type Turn = MutexGuard<'static, usize>;

/// The thread that ends the process, as [`this_thread`] names it.
static LEAVING: OnceLock<usize> = OnceLock::new();

thread_local! {
    /// Has an address of its own in each thread, until the very end of the thread.
    static MARK: Cell<u8> = const { Cell::new(0) };
}

/// Waits for a turn of a thread with a group.
pub fn take() -> Turn {
    let turn = CREATORS.try_lock().ok().filter(|creators| **creators == 0);
    until_over(turn.unwrap_or_else(|| before_monitors(lock_after_creations)))
}

/// Waits for a turn of a thread that is about to create a communicator. It does not wait for other creations, because ranks
/// may begin several of them in different orders.
pub fn take_as_creator() -> Turn {
    let turn = CREATORS.try_lock();
    until_over(turn.unwrap_or_else(|_| before_monitors(lock)))
}

/// Waits for a turn of a monitor. `Status::State` if the process ends.
pub fn take_as_monitor() -> Result<Turn> {
    let turn = lock_after_creations();
    if is_over() {
        return Err(Error::new(Status::State, "the process ends"));
    }
    Ok(turn)
}

/// Lets only this thread call MPI from now on, because it ends the process. Others that want a turn wait for the end.
pub fn leave() {
    let _ = LEAVING.set(this_thread());
    drop(lock());
}

fn is_over() -> bool {
    LEAVING
        .get()
        .is_some_and(|leaving| *leaving != this_thread())
}

fn this_thread() -> usize {
    MARK.with(|mark| mark.as_ptr().addr())
}

fn until_over(turn: Turn) -> Turn {
    if is_over() {
        drop(turn);
        loop {
            thread::park();
        }
    }
    turn
}

fn before_monitors(take: impl FnOnce() -> Turn) -> Turn {
    WAITING.fetch_add(1, Ordering::Relaxed);
    let turn = take();
    WAITING.fetch_sub(1, Ordering::Relaxed);
    turn
}

fn lock_after_creations() -> Turn {
    let turn = CREATED.wait_while(lock(), |creators| *creators > 0);
    turn.unwrap_or_else(PoisonError::into_inner)
}

fn lock() -> Turn {
    CREATORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a thread with a group waits for its turn.
pub fn is_awaited() -> bool {
    WAITING.load(Ordering::Relaxed) > 0
}

/// The creation of a communicator.
pub struct Creation(());

impl Creation {
    /// Waits for the end of the present turn. All survivors are about to create the communicator.
    pub fn begin() -> Creation {
        *lock() += 1;
        Creation(())
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        *lock() -= 1;
        CREATED.notify_all();
    }
}

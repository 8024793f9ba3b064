//! The turns in which the threads of a process call MPI.
//!
//! Open MPI confuses agreements if a thread agrees while another makes progress (docs/open-mpi.md, section 10). So in a
//! program with MPI_THREAD_MULTIPLE, one thread at a time makes a call that may progress. No such call waits for other
//! ranks, except the creation of a communicator, which begins when all survivors are ready for it, and during which no
//! other thread has a turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Held during a turn. The number of threads that create a communicator.
static CREATORS: Mutex<usize> = Mutex::new(0);

/// Notified after a creation.
static CREATED: Condvar = Condvar::new();

/// The number of threads with a group that wait for their turn. The mutex may go to a monitor again and again, which looks
/// at many requests one after the other, so monitors let these threads go first.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Ends a turn when dropped.
pub type Turn = MutexGuard<'static, usize>;

/// Waits for a turn of a thread with a group.
pub fn take() -> Turn {
    let turn = CREATORS.try_lock().ok().filter(|creators| **creators == 0);
    turn.unwrap_or_else(|| {
        WAITING.fetch_add(1, Ordering::Relaxed);
        let turn = take_as_monitor();
        WAITING.fetch_sub(1, Ordering::Relaxed);
        turn
    })
}

/// Waits for a turn of a monitor.
pub fn take_as_monitor() -> Turn {
    let turn = CREATORS.lock().unwrap_or_else(PoisonError::into_inner);
    let turn = CREATED.wait_while(turn, |creators| *creators > 0);
    turn.unwrap_or_else(PoisonError::into_inner)
}

/// Whether a thread with a group waits for its turn.
pub fn is_awaited() -> bool {
    WAITING.load(Ordering::Relaxed) > 0
}

/// The creation of a communicator. Several threads may create one at once, because ranks may do so in different orders.
pub struct Creation(());

impl Creation {
    /// Waits for the end of the present turn. All survivors are about to create the communicator.
    pub fn begin() -> Creation {
        *CREATORS.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Creation(())
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        *CREATORS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        CREATED.notify_all();
    }
}

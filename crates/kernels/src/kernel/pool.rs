//! The threads that a kernel works on.
//!
//! Their number may grow while a sort runs: failed ranks leave their processors to the ranks that take over their
//! work. The functions here take closures by reference where that avoids a copy of rayon's code for each kernel. This
//! module must never use rayon's global pool, which belongs to the program.
//!
//! Work on another thread uses the memory budget of the thread that called.

use std::fmt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use crate::memory::MemoryBudget;

/// The number of tasks for each thread, as neither tasks nor threads are equally fast.
pub const TASKS_PER_THREAD: usize = 4;

/// The number of threads of a pool.
#[derive(Clone)]
pub enum Threads {
    /// This number. 0 means 1: the thread that calls.
    Fixed(usize),
    /// The number that this function returns when there is work.
    Measured(Arc<dyn Fn() -> usize + Send + Sync>),
    /// A group's share of the processors, which the group replaces by another of these values. Outside of a group 1.
    OfGroup,
}

impl Threads {
    /// Returns as many threads as `measure` returns when there is work.
    pub fn measured(measure: impl Fn() -> usize + Send + Sync + 'static) -> Threads {
        Threads::Measured(Arc::new(measure))
    }

    fn number(&self) -> usize {
        match self {
            Threads::Fixed(number) => *number,
            Threads::Measured(measure) => measure(),
            Threads::OfGroup => 1,
        }
    }
}

impl From<usize> for Threads {
    fn from(number: usize) -> Threads {
        Threads::Fixed(number)
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::Fixed(number) => write!(out, "Fixed({number})"),
            Threads::Measured(_) => out.write_str("Measured"),
            Threads::OfGroup => out.write_str("OfGroup"),
        }
    }
}

/// A pool of threads. It starts them for the first work that several threads can share, and ends them when its last
/// clone is dropped.
#[derive(Clone, Debug)]
pub struct ThreadPool {
    threads: Threads,
    pool: Arc<Mutex<Pool>>,
}

/// The threads of a pool that were started.
#[derive(Debug)]
struct Pool {
    /// None: the caller works alone.
    started: Option<Arc<rayon::ThreadPool>>,
    /// The most threads that the system has not refused.
    most: usize,
}

impl<T: Into<Threads>> From<T> for ThreadPool {
    fn from(threads: T) -> ThreadPool {
        ThreadPool {
            threads: threads.into(),
            pool: Arc::new(Mutex::new(Pool {
                started: None,
                most: usize::MAX,
            })),
        }
    }
}

impl ThreadPool {
    /// Returns the threads; None if the caller works alone. If the system refuses a number of threads, half as many are
    /// started.
    pub fn rayon_pool(&self) -> Option<Arc<rayon::ThreadPool>> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let started = pool.started.as_ref();
        let present = started.map_or(1, |pool| pool.current_num_threads());
        let mut wanted = self.threads.number().min(pool.most);
        while wanted > present {
            if let Some(larger) = new_pool(wanted) {
                pool.started = Some(Arc::new(larger));
                break;
            }
            wanted /= 2;
            pool.most = wanted;
        }
        pool.started.clone()
    }

    /// As [`ThreadPool::rayon_pool`], for work that is large enough for several threads; otherwise None, and no thread is
    /// started.
    pub fn if_large(&self, is_large: bool) -> Option<Arc<rayon::ThreadPool>> {
        is_large.then(|| self.rayon_pool()).flatten()
    }

    /// Returns the number of threads; 1 if the caller works alone.
    pub fn thread_count(&self) -> usize {
        self.rayon_pool()
            .map_or(1, |pool| pool.current_num_threads())
    }

    /// Calls `work` for each item, on the threads of the pool, and returns the results in the order of the items.
    pub fn map<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        match self.rayon_pool().filter(|_| items.len() > 1) {
            Some(pool) => install(&pool, || map_parallel(items.into_iter(), &work)),
            None => items.into_iter().map(work).collect(),
        }
    }

    /// Calls `work` for each item as soon as it is available, one after the other, and returns the results in order.
    /// Items are fetched on the caller's thread; if the pool has threads, `work` runs on one of them meanwhile.
    ///
    /// # Panics
    /// If the iterator or `work` panics.
    pub fn map_pipelined<T: Send, R: Send>(
        &self,
        items: &mut dyn Iterator<Item = T>,
        work: impl Fn(T) -> R + Sync,
    ) -> Vec<R> {
        let Some(pool) = self.rayon_pool() else {
            return items.map(work).collect();
        };
        let budget = MemoryBudget::current();
        let (sender, receiver) = channel();
        let mut results = Vec::new();
        let (done, work, budget) = (&mut results, &work, &budget);
        pool.in_place_scope(move |scope| {
            // The caller's thread is busy while it fetches: one thread of the pool leaves its processor to it.
            let (blocked_sender, blocked_receiver) = channel();
            let (fetched_sender, fetched_receiver) = channel::<()>();
            scope.spawn(move |_| {
                let _ = blocked_sender.send(());
                let _ = fetched_receiver.recv();
            });
            // The thread must be blocked before the work begins. Otherwise the thread that works could take the
            // blocking task, too.
            let _ = blocked_receiver.recv();
            scope.spawn(move |_| {
                let _entered = budget.enter();
                done.extend(receiver.into_iter().map(work));
            });
            for item in items {
                if sender.send(item).is_err() {
                    // The work has panicked. The scope panics, too, when it ends.
                    break;
                }
            }
            drop(fetched_sender);
        });
        results
    }
}

/// Runs `work` on a thread of the pool, where [`map_parallel`] and [`join`] use the pool's other threads.
pub fn install<R: Send>(pool: &rayon::ThreadPool, work: impl FnOnce() -> R + Send) -> R {
    let budget = MemoryBudget::current();
    let (mut work, mut result) = (Some(work), None);
    let mut once = || {
        let _entered = budget.enter();
        result = work.take().map(|work| work());
    };
    let once: &mut (dyn FnMut() + Send) = &mut once;
    pool.install(once);
    result.expect("the pool has run the work")
}

/// Calls `work` for each item, on the threads of the pool that the caller's thread belongs to, and returns the results
/// in the order of the items.
pub fn map_parallel<T: Send, R: Send>(
    items: impl Iterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let budget = MemoryBudget::current();
    let items: Vec<T> = items.collect();
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let (work, budget) = (&work, &budget);
    let pairs = items.into_iter().zip(&mut results);
    let tasks = pairs.map(|(item, result)| -> Task {
        Box::new(move || {
            let _entered = budget.enter();
            *result = Some(work(item));
        })
    });
    run_all(tasks.collect());
    results.into_iter().flatten().collect()
}

type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

fn run_all(tasks: Vec<Task>) {
    tasks.into_par_iter().for_each(|task| task());
}

/// Runs both closures at the same time, on the threads of the pool that the caller's thread belongs to.
pub fn join(one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
    let budget = MemoryBudget::current();
    // The first closure runs on this thread, the second one here or on another.
    rayon::join(one, || {
        let _entered = budget.enter();
        other();
    });
}

/// Returns the number of threads of the pool that the caller's thread belongs to.
pub fn current_threads() -> usize {
    rayon::current_num_threads()
}

fn new_pool(threads: usize) -> Option<rayon::ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("ftsort-{index}"));
    without_signals(|| pool.build()).ok()
}

/// Starts threads that receive no signals, so that the program's handlers run on its own threads.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are filled in before they are used.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn threads_of_a_pool_run_no_signal_handlers() {
        let is_blocked = || {
            // SAFETY: the set is filled in before it is read.
            unsafe {
                let mut mask: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask);
                libc::sigismember(&mask, libc::SIGTERM) == 1
            }
        };
        let before = is_blocked();
        let pool = new_pool(2).unwrap();
        assert!(install(&pool, is_blocked));
        assert_eq!(is_blocked(), before);
    }

    #[test]
    fn every_item_is_processed_once_and_results_are_in_order() {
        let pool = new_pool(3).unwrap();
        let count = AtomicUsize::new(0);
        let squares = install(&pool, || {
            assert_eq!(current_threads(), 3);
            map_parallel(0..100_usize, |number| {
                count.fetch_add(1, Ordering::Relaxed);
                number * number
            })
        });
        assert_eq!(
            squares,
            (0..100).map(|number| number * number).collect::<Vec<_>>()
        );
        assert_eq!(count.into_inner(), 100);
        let (mut one, mut other) = (0, 0);
        install(&pool, || join(&mut || one += 1, &mut || other += 2));
        assert_eq!((one, other), (1, 2));
    }

    #[test]
    fn pipelined_items_are_fetched_here_and_processed_on_another_thread_in_order() {
        let here = std::thread::current().id();
        for threads in [1, 2, 3] {
            let pool = ThreadPool::from(threads);
            let mut items = (0..50_u32).inspect(|_| assert_eq!(std::thread::current().id(), here));
            let squares = pool.map_pipelined(&mut items, |number| {
                assert_eq!(std::thread::current().id() == here, threads == 1);
                number * number
            });
            assert!(
                squares
                    .into_iter()
                    .eq((0..50).map(|number| number * number))
            );
            assert!(
                pool.map_pipelined(&mut std::iter::empty::<u32>(), |number| number)
                    .is_empty()
            );
        }
    }

    #[test]
    fn a_panic_on_either_side_is_reported_and_leaves_no_thread_blocked() {
        let pool = ThreadPool::from(2);
        for (fetch, work) in [(3, 100), (100, 3), (5, 5)] {
            let panicked = crate::error::caught(|| {
                let mut items = (0..50).inspect(|number| assert_ne!(*number, fetch));
                Ok(pool.map_pipelined(&mut items, |number| assert_ne!(number, work)))
            });
            assert_eq!(panicked.unwrap_err().status, crate::error::Status::Internal);
        }
        assert_eq!(pool.map_pipelined(&mut (0..3), |number| number), [0, 1, 2]);
    }

    #[test]
    fn a_fixed_number_of_threads_stays() {
        for (wanted, found) in [(0, 1), (1, 1), (3, 3)] {
            assert_eq!(ThreadPool::from(wanted).thread_count(), found);
        }
    }

    #[test]
    fn a_pool_grows_with_the_measured_number_and_never_shrinks() {
        let number = Arc::new(AtomicUsize::new(1));
        let measured = Arc::clone(&number);
        let pool = ThreadPool::from(Threads::measured(move || measured.load(Ordering::Relaxed)));
        for (wanted, found) in [(1, 1), (2, 2), (4, 4), (3, 4)] {
            number.store(wanted, Ordering::Relaxed);
            assert_eq!(pool.thread_count(), found);
        }
    }

    #[test]
    fn every_thread_uses_the_budget_of_the_caller() {
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        budget.set_limit(17);
        let is_current = || MemoryBudget::current().limit() == 17;
        let pool = ThreadPool::from(3);
        let threads = pool.rayon_pool().unwrap();
        install(&threads, || {
            assert!(is_current());
            assert!(
                map_parallel(0..100, |_| is_current())
                    .into_iter()
                    .all(|is| is)
            );
            join(&mut || assert!(is_current()), &mut || assert!(is_current()));
        });
        assert!(
            pool.map_pipelined(&mut (0..3), |_| is_current())
                .into_iter()
                .all(|is| is)
        );
        threads.install(|| assert!(!is_current()));
    }
}

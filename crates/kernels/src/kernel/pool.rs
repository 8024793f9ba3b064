//! The threads that a kernel works on.
//!
//! How many there are may grow while a sort runs: the dead leave their processors to those who do
//! their work. What threads do is compiled once and not for each kernel that has something to do. Must never use
//! rayon's global pool, which belongs to the program.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::ThreadPool;
use rayon::prelude::*;

/// So many times as many tasks as threads, since neither tasks nor threads are alike.
pub const TASKS_PER_THREAD: usize = 4;

/// How many threads.
#[derive(Clone, Copy, Debug)]
pub enum Threads {
    /// So many; 0 is 1, the caller's own.
    Fixed(usize),
    /// As many as this says when there is work.
    Now(fn() -> usize),
}

impl Threads {
    fn number(self) -> usize {
        match self {
            Threads::Fixed(number) => number,
            Threads::Now(number) => number(),
        }
    }
}

impl From<usize> for Threads {
    fn from(number: usize) -> Threads {
        Threads::Fixed(number)
    }
}

/// A pool of that many threads, which is there from the first work on that more than the caller's own have to
/// do until the last clone of it is gone.
#[derive(Clone, Debug)]
pub struct Crew {
    threads: Threads,
    pool: Arc<Mutex<Option<Arc<ThreadPool>>>>,
}

impl<T: Into<Threads>> From<T> for Crew {
    fn from(threads: T) -> Crew {
        Crew {
            threads: threads.into(),
            pool: Arc::default(),
        }
    }
}

impl Crew {
    /// The pool; None: the caller works alone. Threads that cannot be had are done without.
    pub fn pool(&self) -> Option<Arc<ThreadPool>> {
        let number = self.threads.number();
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let there = pool.as_ref().map_or(1, |pool| pool.current_num_threads());
        if number > there
            && let Some(larger) = pool_of(number)
        {
            *pool = Some(Arc::new(larger));
        }
        pool.clone()
    }

    /// How many threads there are to work on.
    pub fn threads(&self) -> usize {
        self.pool().map_or(1, |pool| pool.current_num_threads())
    }

    /// Does the same for each item as soon as it is there, for one after the other. Returns what comes of each,
    /// in their order. Items are fetched on the caller's thread; where there is a pool, it works meanwhile.
    pub fn as_they_come<T: Send, R: Send>(
        &self,
        items: &mut dyn Iterator<Item = T>,
        work: impl Fn(T) -> R + Sync,
    ) -> Vec<R> {
        let Some(pool) = self.pool() else {
            return items.map(work).collect();
        };
        let (sender, receiver) = channel();
        let mut results = Vec::new();
        let (done, work) = (&mut results, &work);
        pool.in_place_scope(move |scope| {
            // As long as it fetches, the caller's thread works too: one of the others leaves it its processor.
            let (resting, rests) = channel();
            let (last_is_there, is_last_there) = channel::<()>();
            scope.spawn(move |_| {
                let _ = resting.send(());
                let _ = is_last_there.recv();
            });
            // Not before: whoever does the work could take the rest on itself.
            let _ = rests.recv();
            scope.spawn(move |_| done.extend(receiver.into_iter().map(work)));
            for item in items {
                if sender.send(item).is_err() {
                    // The work has panicked, and goes on to do so as soon as the scope ends.
                    break;
                }
            }
            drop(last_is_there);
        });
        results
    }
}

/// Work on one of the pool's threads, where [`each`] and [`both`] find the others.
pub fn on_pool<R: Send>(pool: &ThreadPool, work: impl FnOnce() -> R + Send) -> R {
    let (mut work, mut result) = (Some(work), None);
    let mut once = || result = work.take().map(|work| work());
    let once: &mut (dyn FnMut() + Send) = &mut once;
    pool.install(once);
    result.expect("work that is done")
}

/// Does the same for each item, on the threads of the pool that this one belongs to. Returns what comes of each,
/// in their order.
pub fn each<T: Send, R: Send>(
    items: impl Iterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let items: Vec<T> = items.collect();
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let work = &work;
    let pairs = items.into_iter().zip(&mut results);
    let tasks = pairs.map(|(item, result)| -> Task { Box::new(|| *result = Some(work(item))) });
    do_all(tasks.collect());
    results.into_iter().flatten().collect()
}

type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

fn do_all(tasks: Vec<Task>) {
    tasks.into_par_iter().for_each(|task| task());
}

/// Does both at the same time, on the threads of the pool that this one belongs to.
pub fn both(one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
    rayon::join(one, other);
}

/// How many threads that pool has.
pub fn width() -> usize {
    rayon::current_num_threads()
}

fn pool_of(threads: usize) -> Option<ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("ftsort-{index}"));
    pool.build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn everything_is_done_once_and_comes_back_in_order() {
        let pool = pool_of(3).unwrap();
        let count = AtomicUsize::new(0);
        let squares = on_pool(&pool, || {
            assert_eq!(width(), 3);
            each(0..100_usize, |number| {
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
        on_pool(&pool, || both(&mut || one += 1, &mut || other += 2));
        assert_eq!((one, other), (1, 2));
    }

    #[test]
    fn items_are_fetched_here_and_worked_on_elsewhere_in_their_order() {
        let here = std::thread::current().id();
        for threads in [1, 2, 3] {
            let crew = Crew::from(threads);
            let mut items = (0..50_u32).inspect(|_| assert_eq!(std::thread::current().id(), here));
            let squares = crew.as_they_come(&mut items, |number| {
                assert_eq!(std::thread::current().id() == here, threads == 1);
                number * number
            });
            assert!(
                squares
                    .into_iter()
                    .eq((0..50).map(|number| number * number))
            );
            assert!(
                crew.as_they_come(&mut std::iter::empty::<u32>(), |number| number)
                    .is_empty()
            );
        }
    }

    #[test]
    fn a_panic_on_either_side_comes_out_and_leaves_no_thread_waiting() {
        let crew = Crew::from(2);
        for (fetch, work) in [(3, 100), (100, 3), (5, 5)] {
            let panicked = crate::error::caught(|| {
                let mut items = (0..50).inspect(|number| assert_ne!(*number, fetch));
                Ok(crew.as_they_come(&mut items, |number| assert_ne!(number, work)))
            });
            assert_eq!(panicked.unwrap_err().status, crate::error::Status::Internal);
        }
        assert_eq!(crew.as_they_come(&mut (0..3), |number| number), [0, 1, 2]);
    }

    #[test]
    fn a_fixed_number_stays() {
        for (asked, found) in [(0, 1), (1, 1), (3, 3)] {
            assert_eq!(Crew::from(asked).threads(), found);
        }
    }

    #[test]
    fn it_grows_with_what_there_is_and_never_shrinks() {
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let crew = Crew::from(Threads::Now(|| NUMBER.load(Ordering::Relaxed)));
        for (number, found) in [(1, 1), (2, 2), (4, 4), (3, 4)] {
            NUMBER.store(number, Ordering::Relaxed);
            assert_eq!(crew.threads(), found);
        }
    }
}

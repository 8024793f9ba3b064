//! Memory budgets: how much memory the buffers of one group use, and how much they may use.
//!
//! A group owns a [`MemoryBudget`] and makes it current for its thread while a call runs ([`MemoryBudget::enter`]).
//! Every buffer is charged to the budget that is current when it is allocated, and stays charged to it wherever it is
//! dropped. So groups in different threads of a process neither share a limit nor a peak. A kernel's threads use the
//! budget of the thread that called the kernel. Buffers that are allocated outside of any group are charged to the
//! budget of the process, which has no limit unless one is set.
//!
//! A system that promises more memory than it has kills processes that use it. So the limit is checked before memory
//! is allocated. Small buffers may exceed it by a little, so that control messages get through.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::{Error, Result, Status};
use crate::pages::ProcessPages;

/// Allocations of at most this many bytes may exceed the limit, together by [`EXCESS`].
const SMALL: usize = 1 << 20;

/// The number of bytes by which small allocations may exceed the limit.
const EXCESS: usize = 16 << 20;

/// Returns a limit in bytes, given how many bytes the budget's buffers use.
type Measure = dyn Fn(usize) -> usize + Send + Sync;

/// The memory that the buffers of one group use and may use. Clones are the same budget.
#[derive(Clone)]
pub struct MemoryBudget(Arc<Account>);

struct Account {
    used: AtomicUsize,
    peak: AtomicUsize,
    limit: AtomicUsize,
    measure: Mutex<Option<Arc<Measure>>>,
    #[cfg(feature = "testing")]
    refusals: refusals::Refusals,
}

thread_local! {
    /// The budget that is current for this thread. None: the budget of the process. Without a destructor, so that it can be
    /// used while the thread ends.
    static CURRENT: RefCell<ManuallyDrop<Option<MemoryBudget>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };

    /// The number of nested calls of [`without_limit`] on this thread.
    static WITHOUT_LIMIT: Cell<u32> = const { Cell::new(0) };
}

/// The budget and the limits that hold for one thread of execution. A scheduler that runs several of them on one
/// thread of the system exchanges these at each switch.
#[derive(Debug, Default)]
pub struct ThreadBudget {
    current: Option<MemoryBudget>,
    without_limit: u32,
}

impl ThreadBudget {
    /// Exchanges this state with that of the present thread.
    pub fn exchange(&mut self) {
        self.current = exchange_current(self.current.take());
        self.without_limit = WITHOUT_LIMIT.replace(self.without_limit);
    }
}

/// Makes a budget current for this thread, and returns the one before.
fn exchange_current(budget: Option<MemoryBudget>) -> Option<MemoryBudget> {
    ManuallyDrop::into_inner(CURRENT.replace(ManuallyDrop::new(budget)))
}

/// Runs `work`. The buffers that it allocates on this thread are counted, but not limited.
pub fn without_limit<T>(work: impl FnOnce() -> T) -> T {
    struct Nested {
        before: u32,
    }
    impl Drop for Nested {
        fn drop(&mut self) {
            // Not decreased: another thread of execution than the one that began this may unwind it.
            WITHOUT_LIMIT.set(self.before);
        }
    }
    let before = WITHOUT_LIMIT.get();
    WITHOUT_LIMIT.set(before + 1);
    let _nested = Nested { before };
    work()
}

/// Runs `work` as [`without_limit`] does, for messages that other ranks wait for. A refusal of the system cannot be agreed
/// on then, so it becomes `Status::Mpi`, which separates this rank from the others.
pub fn for_messages<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    without_limit(work).map_err(|error| match error.status {
        Status::Memory => Error::new(
            Status::Mpi,
            format!(
                "the system has no memory for a message that other ranks wait for: {}",
                error.text
            ),
        ),
        _ => error,
    })
}

/// Makes a budget current for a thread until it is dropped; then the budget before it is current again.
#[derive(Debug)]
#[must_use = "the budget is current only as long as this exists"]
pub struct EnteredBudget {
    before: Option<MemoryBudget>,
    /// It belongs to the thread.
    _not_send: PhantomData<*const ()>,
}

impl Drop for EnteredBudget {
    fn drop(&mut self) {
        exchange_current(self.before.take());
    }
}

impl MemoryBudget {
    /// Creates a budget without a limit.
    pub fn new() -> MemoryBudget {
        MemoryBudget(Arc::new(Account {
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            measure: Mutex::new(None),
            #[cfg(feature = "testing")]
            refusals: refusals::Refusals::default(),
        }))
    }

    /// Returns the budget of buffers that are allocated outside of any group.
    pub fn of_process() -> MemoryBudget {
        static OF_PROCESS: OnceLock<MemoryBudget> = OnceLock::new();
        OF_PROCESS.get_or_init(MemoryBudget::new).clone()
    }

    /// Returns the budget that is current for this thread.
    pub fn current() -> MemoryBudget {
        let entered = CURRENT.with_borrow(|current| Option::clone(current));
        entered.unwrap_or_else(MemoryBudget::of_process)
    }

    /// Makes this budget current for the thread as long as the returned guard exists. Guards must be dropped in the
    /// opposite order of their creation.
    pub fn enter(&self) -> EnteredBudget {
        EnteredBudget {
            before: exchange_current(Some(self.clone())),
            _not_send: PhantomData,
        }
    }

    /// Limits the bytes that the budget's buffers may use together from now on. `usize::MAX` is no limit.
    pub fn set_limit(&self, bytes: usize) {
        self.set(bytes, None);
    }

    /// Limits the bytes that the budget's buffers may use together to `bytes`, and to the result of `measure` as soon
    /// as an allocation would exceed that. `measure` returns a limit in bytes, given how many bytes are used; it is
    /// called on the thread that allocates, must not allocate a buffer, and must not own this budget.
    pub fn set_measured_limit(
        &self,
        bytes: usize,
        measure: impl Fn(usize) -> usize + Send + Sync + 'static,
    ) {
        self.set(bytes, Some(Arc::new(measure)));
    }

    fn measure(&self) -> Option<Arc<Measure>> {
        let measure = self
            .0
            .measure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        measure.clone()
    }

    fn set(&self, bytes: usize, measure: Option<Arc<Measure>>) {
        let mut current = self
            .0
            .measure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.0.limit.store(bytes, Ordering::Relaxed);
        *current = measure;
    }

    /// Returns the limit in bytes; `usize::MAX` if there is none.
    pub fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// As [`MemoryBudget::limit`], measured anew if it can be.
    pub fn measured_limit(&self) -> usize {
        match self.measure() {
            Some(measure) => measure(self.used()),
            None => self.limit(),
        }
    }

    /// Returns how many bytes the budget's buffers use.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Begins a new measurement of [`MemoryBudget::peak`].
    pub fn start_peak(&self) {
        self.0.peak.store(self.used(), Ordering::Relaxed);
    }

    /// Returns the most bytes that the budget's buffers used together since [`MemoryBudget::start_peak`].
    pub fn peak(&self) -> usize {
        self.0.peak.load(Ordering::Relaxed)
    }

    /// Checks whether `bytes` more bytes may be used; `Status::Memory` if they would exceed the limit.
    pub(crate) fn check(&self, bytes: usize) -> Result<()> {
        let is_exempt = WITHOUT_LIMIT.get() > 0;
        #[cfg(feature = "testing")]
        if self.refuses_memory(is_exempt) {
            let text = format!("the test refuses {bytes} bytes");
            return Err(Error::new(Status::Memory, text));
        }
        if is_exempt {
            return Ok(());
        }
        if bytes <= SMALL && self.used() <= self.limit().saturating_add(EXCESS) {
            return Ok(());
        }
        match self.exceeded_limit(bytes) {
            None => Ok(()),
            Some(limit) => Err(Error::new(
                Status::Memory,
                format!(
                    "{bytes} bytes more than the {} in use would exceed the limit of {limit} bytes ({})",
                    self.used(),
                    match self.measure() {
                        Some(_) => "the free memory, because config.memory_limit is 0",
                        None => "config.memory_limit",
                    }
                ),
            )),
        }
    }

    /// Returns the limit, measured anew if it can be, if `bytes` more bytes would exceed it.
    fn exceeded_limit(&self, bytes: usize) -> Option<usize> {
        let exceeds = |limit: usize| self.used().saturating_add(bytes) > limit;
        let limit = self.limit();
        if !exceeds(limit) {
            return None;
        }
        let Some(measure) = self.measure() else {
            return Some(limit);
        };
        let mut limit = measure(self.used());
        // Not every system counts retained pages as available memory.
        if exceeds(limit) && ProcessPages::get().release_retained() {
            limit = measure(self.used());
        }
        self.0.limit.store(limit, Ordering::Relaxed);
        exceeds(limit).then_some(limit)
    }
}

/// Refusals that a test asks for. Every allocation that is not exempt from limits counts as an action, however small. Those
/// that are exempt, which the system alone refuses, are counted apart.
#[cfg(feature = "testing")]
mod refusals {
    use std::ops::Range;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::MemoryBudget;

    #[derive(Default)]
    struct Counted {
        actions: AtomicU32,
        /// The numbers of the actions to refuse: the first, and the one after the last.
        start: AtomicU32,
        end: AtomicU32,
    }

    impl Counted {
        fn refuse(&self, numbers: Range<u32>) {
            self.start.store(numbers.start, Ordering::Relaxed);
            self.end.store(numbers.end, Ordering::Relaxed);
        }

        fn refuses(&self) -> bool {
            let number = self.actions.fetch_add(1, Ordering::Relaxed) + 1;
            let start = self.start.load(Ordering::Relaxed);
            (start..self.end.load(Ordering::Relaxed)).contains(&number)
        }
    }

    #[derive(Default)]
    pub struct Refusals {
        limited: Counted,
        exempt: Counted,
    }

    impl MemoryBudget {
        /// Makes the actions with these numbers fail, counted from 1 since the budget was created, and no others.
        pub fn refuse(&self, numbers: Range<u32>) {
            self.0.refusals.limited.refuse(numbers);
        }

        /// As [`MemoryBudget::refuse`], for allocations that are exempt from limits.
        pub fn refuse_exempt(&self, numbers: Range<u32>) {
            self.0.refusals.exempt.refuse(numbers);
        }

        /// Counts an action, and returns whether it must fail. The caller may be another resource than memory.
        pub fn refuses(&self) -> bool {
            self.0.refusals.limited.refuses()
        }

        pub(super) fn refuses_memory(&self, is_exempt: bool) -> bool {
            match is_exempt {
                true => self.0.refusals.exempt.refuses(),
                false => self.refuses(),
            }
        }

        /// Returns the number of actions so far.
        pub fn actions(&self) -> u32 {
            self.0.refusals.limited.actions.load(Ordering::Relaxed)
        }

        /// Returns the number of allocations so far that were exempt from limits.
        pub fn exempt_actions(&self) -> u32 {
            self.0.refusals.exempt.actions.load(Ordering::Relaxed)
        }
    }
}

impl Default for MemoryBudget {
    fn default() -> MemoryBudget {
        MemoryBudget::new()
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MemoryBudget({} bytes used)", self.used())
    }
}

/// The bytes that one buffer uses of a budget, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    /// None: nothing has been charged.
    budget: Option<MemoryBudget>,
    bytes: usize,
}

impl Charge {
    /// Returns a charge of 0 bytes to `budget`.
    pub fn new(budget: MemoryBudget) -> Charge {
        Charge {
            budget: Some(budget),
            bytes: 0,
        }
    }

    /// Changes the charge to `bytes` bytes.
    pub fn change(&mut self, bytes: usize) {
        let Some(MemoryBudget(account)) = &self.budget else {
            return;
        };
        if bytes < self.bytes {
            account
                .used
                .fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let more = bytes - self.bytes;
            let before = account.used.fetch_add(more, Ordering::Relaxed);
            account.peak.fetch_max(before + more, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.change(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::buffer::Buffer;
    use crate::kernel::kernel_of;
    use crate::record::KeyKind;

    const LARGE: usize = 3 << 20;

    #[test]
    fn budgets_in_two_threads_have_their_own_limits_and_peaks() {
        let budgets = [MemoryBudget::new(), MemoryBudget::new()];
        budgets[0].set_limit(2 * LARGE);
        budgets[1].set_limit(4 * LARGE);
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            for (budget, fitting) in budgets.iter().zip([2, 4]) {
                let barrier = &barrier;
                scope.spawn(move || {
                    let _entered = budget.enter();
                    budget.start_peak();
                    barrier.wait();
                    let buffers: Vec<_> = (0..5).map(|_| Buffer::zeroed(LARGE)).collect();
                    // Both threads hold their buffers now.
                    barrier.wait();
                    let allocated = buffers.iter().filter(|buffer| buffer.is_ok()).count();
                    assert_eq!(allocated, fitting);
                    assert_eq!(budget.used(), fitting * LARGE);
                    let refused = buffers.into_iter().find_map(|buffer| buffer.err()).unwrap();
                    assert_eq!(refused.status, Status::Memory);
                    assert!(refused.text.contains(&(fitting * LARGE).to_string()));
                    assert_eq!((budget.used(), budget.peak()), (0, fitting * LARGE));
                });
            }
        });
    }

    #[test]
    fn a_buffer_stays_charged_to_its_budget_on_another_thread() {
        let (one, other) = (MemoryBudget::new(), MemoryBudget::new());
        let buffer = {
            let _entered = one.enter();
            Buffer::zeroed(LARGE).unwrap()
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let _entered = other.enter();
                assert_eq!((one.used(), other.used()), (LARGE, 0));
                drop(buffer);
                assert_eq!((one.used(), other.used()), (0, 0));
            });
        });
        assert_eq!((one.peak(), other.peak()), (LARGE, 0));
    }

    #[test]
    fn the_threads_of_a_kernel_charge_the_callers_budget() {
        let numbers: Vec<u8> = (0..16 << 20).map(|index: u32| (index * 7) as u8).collect();
        let pairs = KeyKind::Bytes;
        let sort = |budget: &MemoryBudget| {
            let _entered = budget.enter();
            let layout = crate::record::Layout::new(crate::record::Fields {
                record_bytes: 16,
                key_bytes: 12,
                key: pairs as i32,
                ..Default::default()
            });
            let kernel = crate::kernel::kernel_for(&layout.unwrap(), 3);
            let mut block = Buffer::copy_of(&numbers).unwrap();
            budget.start_peak();
            kernel.sort(&mut block).unwrap();
            let mut out = Buffer::zeroed(numbers.len()).unwrap();
            let (one, other) = block.split_at(numbers.len() / 2);
            kernel.merge(&[one, other], &mut out).unwrap();
        };
        let alone = MemoryBudget::new();
        sort(&alone);
        let budgets = [MemoryBudget::new(), MemoryBudget::new()];
        thread::scope(|scope| {
            for budget in &budgets {
                scope.spawn(|| sort(budget));
            }
        });
        for budget in budgets.iter().chain([&alone]) {
            assert_eq!(budget.used(), 0);
            // The block, as much scratch space, and small buffers on each thread.
            let peak = 2 * numbers.len()..3 * numbers.len();
            assert!(peak.contains(&budget.peak()), "{}", budget.peak());
        }
    }

    #[cfg(feature = "testing")]
    #[test]
    fn a_test_refuses_actions_that_are_not_exempt() {
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        budget.refuse(2..3);
        assert!(Buffer::zeroed(1).is_ok());
        assert!(without_limit(|| Buffer::zeroed(1)).is_ok());
        let refused = Buffer::zeroed(1).err();
        assert_eq!(refused.map(|error| error.status), Some(Status::Memory));
        assert!(Buffer::zeroed(1).is_ok());
        assert!(!budget.refuses());
        assert_eq!(budget.actions(), 4);
        budget.refuse(5..7);
        assert!(budget.refuses() && budget.refuses() && !budget.refuses());
        assert_eq!(budget.exempt_actions(), 1);
        budget.refuse_exempt(2..4);
        let refused = without_limit(|| Buffer::zeroed(1)).err();
        assert_eq!(refused.map(|error| error.status), Some(Status::Memory));
        let refused = for_messages(|| Buffer::zeroed(1)).err();
        assert_eq!(refused.map(|error| error.status), Some(Status::Mpi));
        assert!(for_messages(|| Buffer::zeroed(1)).is_ok());
    }

    #[test]
    fn small_buffers_exceed_the_limit_by_a_little() {
        let budget = MemoryBudget::new();
        budget.set_limit(LARGE);
        let _entered = budget.enter();
        let small: Vec<_> = (0..100).map(|_| Buffer::zeroed(SMALL / 2)).collect();
        let refused = small.iter().filter(|buffer| buffer.is_err()).count();
        assert!(refused > 0);
        assert!((LARGE + EXCESS..LARGE + EXCESS + SMALL).contains(&budget.used()));
        drop(small);
        assert!(Buffer::zeroed(SMALL).is_ok());
    }

    #[test]
    fn nested_budgets_end_in_the_opposite_order() {
        let (outer, inner) = (MemoryBudget::new(), MemoryBudget::new());
        let _outer = outer.enter();
        let first = Buffer::zeroed(100).unwrap();
        {
            let _inner = inner.enter();
            let _second = Buffer::zeroed(1000).unwrap();
            assert!(inner.used() >= 1000 && outer.used() < 1000);
        }
        assert_eq!(inner.used(), 0);
        let _third = Buffer::zeroed(5000).unwrap();
        assert!(outer.used() >= 5100);
        drop(first);
    }

    #[test]
    fn two_threads_of_execution_on_one_thread_have_their_own_limits() {
        let budget = MemoryBudget::new();
        budget.set_limit(0);
        let mut other = ThreadBudget::default();
        let _entered = budget.enter();
        without_limit(|| {
            other.exchange();
            assert!(Buffer::zeroed(LARGE).is_ok());
            let in_other = budget.enter();
            assert!(Buffer::zeroed(LARGE).is_err());
            drop(in_other);
            other.exchange();
            assert!(Buffer::zeroed(LARGE).is_ok());
        });
        assert!(Buffer::zeroed(LARGE).is_err());
    }

    #[test]
    fn a_measured_limit_is_asked_for_when_it_is_exceeded() {
        let budget = MemoryBudget::new();
        let _entered = budget.enter();
        budget.set_measured_limit(0, |used| used + LARGE);
        let first = Buffer::zeroed(LARGE).unwrap();
        let second = Buffer::zeroed(LARGE).unwrap();
        assert_eq!(budget.used(), 2 * LARGE);
        assert!(Buffer::zeroed(2 * LARGE).is_err());
        assert!(without_limit(|| Buffer::zeroed(2 * LARGE)).is_ok());
        budget.set_limit(0);
        assert!(Buffer::zeroed(LARGE).is_err());
        // Small buffers are not limited.
        assert!(Buffer::zeroed(SMALL).is_ok());
        drop((first, second));
    }

    #[test]
    fn a_thread_without_a_group_uses_the_budget_of_the_process() {
        let kernel = kernel_of(8, KeyKind::U64);
        let before = MemoryBudget::of_process();
        let buffer = kernel.copy(&[7; 64], &mut |_| ()).unwrap();
        assert!(Arc::ptr_eq(&before.0, &MemoryBudget::current().0));
        assert!(before.used() >= 64);
        drop(buffer);
    }
}

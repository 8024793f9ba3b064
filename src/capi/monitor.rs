//! Watching the ranks of a group: who is fast enough to be given work.

use std::ffi::{c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::group::ftsort;
use super::guard::on_group;
use super::monitor_thread::{Mind, Procedure, Watch};
use super::settings::{agree_on_equal, read_sized, write_sized};
use super::status::ftsort_status;
use crate::ulfm::among_threads;
use ftsort_core::members::Rank;
use ftsort_core::monitor::{Assignment, Foreground, Monitor, MonitorOptions, Suspicion};
use ftsort_core::transport::Transport;
use ftsort_kernels::error::{Error, Result, Status};

/// How a monitor runs.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_monitor_mode {
    /// `FTSORT_MONITOR_THREAD` where all ranks were granted MPI_THREAD_MULTIPLE, else
    /// `FTSORT_MONITOR_FOREGROUND`.
    FTSORT_MONITOR_AUTO = 0,
    /// A thread of its own on each rank, which tests others and answers tests on a private communicator at
    /// any time. Needs MPI_THREAD_MULTIPLE.
    FTSORT_MONITOR_THREAD = 1,
    /// At the commits of a sort, at most once an interval, each rank tells all how it has been: how long
    /// `test` takes it, or without one which part of the time it had a processor. Needs no thread and no
    /// messages of its own. What is lost: nothing is noticed between sorts, nor while a round goes on; and
    /// a rank is trusted to tell the truth about itself. Figures are compared with the median of all.
    FTSORT_MONITOR_FOREGROUND = 2,
}

/// Who tests whom.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_monitor_assignment {
    /// Everybody everybody (the 2018 paper).
    FTSORT_TEST_ALL = 0,
    /// Each rank the first recommended one of each of its clusters c(i,s): N log2 N tests, and news scope
    /// all within log2 N intervals. For many ranks.
    FTSORT_TEST_VCUBE = 1,
}

/// What becomes of a slow rank's work.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_monitor_sharing {
    /// All or nothing (the 2018 paper): who is not recommended executes no node.
    FTSORT_SHARING_EXCLUDE = 0,
    /// Past the paper: nobody is left out, and each rank's share of the result is in proportion to its
    /// speed, in sixteenths: one at half speed gets half a share, one that is more than 32 times as slow
    /// none. Speed is how long tests have taken of late (`alpha`), as all ranks tell each other at a commit
    /// once an interval; up to a quarter more than full speed is full speed, which is the median of the
    /// faster half. Whoever is recommended or not is still told, and changes nothing. It holds for sample
    /// sort, HyperQuickSort and QuickMerge with `FTSORT_PIVOT_SAMPLED`, in the exchanges after the commit;
    /// the papers' pivots, bitonic sorts, dense results and `ftsort_rounds_run` have the shares that they
    /// have without a monitor. Each rank still sorts its own input, whatever its share of the result.
    FTSORT_SHARING_WEIGHTS = 1,
}

/// The test procedure: some work as the application does it, in the time that it takes where all is
/// well. Gives a number that is the same on all ranks; any other one than the tester's own fails the test.
/// Called on the monitor's thread, and on the thread that calls ftsort; must not call MPI or ftsort, throw,
/// or longjmp.
pub type ftsort_test_fn = Option<unsafe extern "C" fn(user: *mut c_void) -> u64>;

/// How ranks are watched. Start from `FTSORT_MONITOR_OPTIONS_INIT`; zero always means the default. Later versions
/// append fields. The same on all ranks, but for `test` and `user`. Borrowed for the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_monitor_options {
    /// `sizeof(ftsort_monitor_options)`.
    pub struct_size: usize,
    /// One of `ftsort_monitor_mode`.
    pub mode: i32,
    /// One of `ftsort_monitor_assignment`; nothing in the foreground.
    pub assignment: i32,
    /// Milliseconds between tests; 0: 1000.
    pub interval_ms: u32,
    /// After how many good tests in a row a rank may come back; 0: 5 (the paper's zeta).
    pub zeta: u32,
    /// The weight of what was in the means of Algorithm 1, from 0 to below 1; 0: 0.9.
    pub alpha: f64,
    /// How many deviations a timeout is above the mean; 0: 4.
    pub beta: f64,
    /// A reply is late after so many times the timeout ...; 0: 2.5.
    pub factor: f64,
    /// ... and so many milliseconds more. In the foreground a fraction of the median instead, as 1000.
    pub plus_ms: f64,
    /// The threshold of a rank's first tests, in milliseconds; 0: 8000. In the foreground multiples of the
    /// median, as 1000.
    pub first_ms: f64,
    /// Above 0: a reply is late by phi instead, the negative decimal logarithm of the probability that one
    /// takes even longer; up to 300.
    pub phi: f64,
    /// Not 0: a tester that sees most of its peers late at once, or was itself woken late, takes itself for
    /// the slow one and reports nothing.
    pub self_doubt: i32,
    /// Not 0: late replies do not enter the means, so that testers do not get used to a slow rank.
    pub unforgiving: i32,
    /// The test procedure; NULL: the paper's, primes up to 1000 (and see `FTSORT_MONITOR_FOREGROUND`).
    pub test: ftsort_test_fn,
    /// Passed to `test` as it is; never read.
    pub user: *mut c_void,
    /// One of `ftsort_monitor_sharing`.
    pub sharing: i32,
    /// Not 0: a rank is left out only where that is expected to save time, by how slow it has been of late
    /// (as `FTSORT_SHARING_WEIGHTS` knows it): its own part of the rounds to come against its cover's two, and
    /// one more round for moving its blocks. So never one that is at most twice as slow as its cover. Who is
    /// out comes back as without this. Nothing with `FTSORT_SHARING_WEIGHTS`.
    pub gain: i32,
}

/// What one rank's monitor knows of another rank. Later versions append fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_monitor_view {
    /// `sizeof(ftsort_monitor_view)`, set by the caller.
    pub struct_size: usize,
    /// 1: the rank is in the Dynamic Group of Recommended Processes; 0: it is not.
    pub recommended: i32,
    /// Events so far: even for a recommended rank, odd for another one.
    pub counter: u32,
    /// Good tests in a row, by this rank, since the rank left the group.
    pub good_in_row: u32,
    /// Seconds until its last reply to this rank; below 0: there was none. In the foreground this, and all
    /// times that follow, are multiples of the median.
    pub last_reply: f64,
    /// Algorithm 1's mean of these.
    pub mean: f64,
    /// Algorithm 1's variance.
    pub variance: f64,
    /// Algorithm 1's timeout.
    pub timeout: f64,
    /// How long the next reply may take.
    pub threshold: f64,
    /// How suspicious the last test was, from 0 on.
    pub phi: f64,
    /// Its share of the work in proportion to that of a rank at full speed, from 0 to 1, as all ranks have
    /// agreed on at a commit; 1 without `FTSORT_SHARING_WEIGHTS`.
    pub weight: f64,
}

/// A monitor of a group's ranks. Belongs to its group; looked at by any thread.
pub struct ftsort_monitor {
    pub(super) ranks: usize,
    pub(super) mind: Mutex<Mind>,
    /// As all have agreed on; empty: all the same.
    pub(super) weights: Mutex<Vec<u8>>,
    pub(super) stop: AtomicBool,
    /// Messages sent.
    pub(super) sent: AtomicU64,
    /// Tests answered.
    pub(super) answered: AtomicU64,
}

/// What a configuration says, checked.
struct Wanted {
    options: MonitorOptions,
    mode: i32,
    procedure: Procedure,
}

impl Wanted {
    /// # Safety
    /// `config` is NULL or valid.
    unsafe fn read(config: *const ftsort_monitor_options) -> Result<Wanted> {
        // SAFETY: the caller's contract; the struct holds numbers, a pointer and an optional function.
        let given = unsafe { read_sized(config, "config")? };
        let mut wanted = Wanted {
            options: MonitorOptions::default(),
            mode: ftsort_monitor_mode::FTSORT_MONITOR_AUTO as i32,
            procedure: Procedure {
                run: None,
                user: std::ptr::null_mut(),
            },
        };
        let Some(given) = given else {
            return Ok(wanted);
        };
        let refuse = |name: &str, value: i32| {
            Err(Error::new(
                Status::Argument,
                format!("config.{name} is {value}, which there is not"),
            ))
        };
        if !(0..=2).contains(&given.mode) {
            return refuse("mode", given.mode);
        }
        let options = &mut wanted.options;
        options.assignment = match given.assignment {
            0 => Assignment::AllToAll,
            1 => Assignment::VCube,
            other => return refuse("assignment", other),
        };
        let or = |value: f64, default: f64| if value == 0.0 { default } else { value };
        options.interval = or(f64::from(given.interval_ms) / 1e3, options.interval);
        options.zeta = if given.zeta == 0 {
            options.zeta
        } else {
            given.zeta
        };
        options.alpha = or(given.alpha, options.alpha);
        options.beta = or(given.beta, options.beta);
        options.multiple = or(given.factor, options.multiple);
        options.plus = given.plus_ms / 1e3;
        options.first_threshold = or(given.first_ms / 1e3, options.first_threshold);
        if given.phi != 0.0 {
            options.suspicion = Suspicion::Phi(given.phi);
        }
        options.self_doubt = given.self_doubt != 0;
        options.learn_late = given.unforgiving == 0;
        options.gain = given.gain != 0;
        options.weights = match given.sharing {
            0 => false,
            1 => true,
            other => return refuse("sharing", other),
        };
        options.check().map_err(|error| Error {
            text: format!("config.{}", error.text),
            ..error
        })?;
        wanted.mode = given.mode;
        wanted.procedure = Procedure {
            run: given.test,
            user: given.user,
        };
        Ok(wanted)
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (format!("{:?}", self.options), self.mode).hash(&mut hasher);
        hasher.finish()
    }
}

impl ftsort {
    fn watch(&mut self, wanted: Result<Wanted>) -> Result<()> {
        let there = self.watch.is_some();
        let wanted = wanted.and_then(|wanted| match there {
            true => Err(Error::new(Status::State, "the group has a monitor already")),
            false => Ok((wanted, among_threads()?)),
        });
        let ((wanted, threads), _) = self.together(|engine| {
            let (wanted, threads) = engine.all_or_none(wanted)?;
            agree_on_equal(engine, wanted.fingerprint(), "config")?;
            let threads = engine.agree_on(u32::from(threads))? != 0;
            Ok((wanted, threads))
        })?;
        use ftsort_monitor_mode::{FTSORT_MONITOR_FOREGROUND, FTSORT_MONITOR_THREAD};
        if wanted.mode == FTSORT_MONITOR_THREAD as i32 && !threads {
            return Err(Error::new(
                Status::Argument,
                "config.mode is FTSORT_MONITOR_THREAD, but not all ranks were granted \
                 MPI_THREAD_MULTIPLE by MPI_Init_thread",
            ));
        }
        let in_background = threads && wanted.mode != FTSORT_MONITOR_FOREGROUND as i32;
        let (me, ranks) = (self.members.me(), self.members.ranks());
        let options = wanted.options.clone();
        let now = self.transport.now();
        let (mind, datagram) = match in_background {
            true => {
                let datagram = self.transport.mpi().datagram(message_limit(ranks))?;
                let mut monitor = Monitor::new(me, ranks, wanted.options, datagram.now());
                monitor.set_answer(wanted.procedure.answer());
                monitor.mark_failed(self.members.faulty());
                (Mind::Background(Box::new(monitor)), Some(datagram))
            }
            false => {
                let mut foreground = Foreground::new(ranks, wanted.options);
                foreground.mark_failed(self.members.faulty());
                (Mind::Foreground(Box::new(foreground)), None)
            }
        };
        self.watch = Some(Watch::start(
            (me, ranks),
            (mind, &options),
            wanted.procedure,
            datagram,
            now,
        ));
        Ok(())
    }
}

/// The longest message of a monitor: news of all ranks, and what goes before them.
fn message_limit(ranks: usize) -> usize {
    256 + 16 * ranks
}

/// Watches the ranks of a group from now on, and advises its sorts: the Dynamic Group of Recommended
/// Processes (2018 paper). At every commit of `ftsort_run` and `ftsort_rounds_run` the survivors agree on
/// who is recommended; who is not executes no node from then on, as if it had crashed, but its blocks are
/// moved, not lost, and once it is recommended again its nodes come back to it (`FTSORT_EVENT_EXCLUDED`,
/// `FTSORT_EVENT_REJOINED`). If nobody is recommended, all work. A rank that is left out still takes part
/// in every collective call: one that is stopped altogether keeps the others waiting, and leaving it out
/// shortens only its work. [C]
///
/// \param[in,out] group a live group without a monitor.
/// \param[in] config borrowed for the call; NULL: all defaults.
/// \param[out] out the monitor, for the functions that look at it; it belongs to the group and is valid
/// until `ftsort_monitor_stop`, `ftsort_leave` or `ftsort_free`. May be NULL.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` naming the field, or where `config` is not the same on all
/// ranks; `FTSORT_ERR_PEER_ARGUMENT`; `FTSORT_ERR_STATE` if there is a monitor; `FTSORT_ERR_EXCLUDED`;
/// `FTSORT_ERR_MEMORY`; `FTSORT_ERR_MPI`; `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// `group` is NULL or live; `config` and `out` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_monitor_start(
    group: *mut ftsort,
    config: *const ftsort_monitor_options,
    out: *mut *const ftsort_monitor,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let out = unsafe { out.as_mut() };
        // SAFETY: as above.
        let started = group.watch(unsafe { Wanted::read(config) });
        if let Some(out) = out {
            let watch = group.watch.as_ref().filter(|_| started.is_ok());
            *out = watch.map_or(std::ptr::null(), |watch| watch.shared());
        }
        started
    })
}

/// Ends what `ftsort_monitor_start` began: from now on all living ranks execute their nodes. A private
/// communicator that it had stays until `MPI_Finalize`, for messages may still be on their way. [C]
///
/// \param[in,out] group a live group; without a monitor nothing happens.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for a NULL group; `FTSORT_ERR_STATE`;
/// `FTSORT_ERR_EXCLUDED`; `FTSORT_ERR_MPI`; `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// `group` is NULL or live; nobody looks at its monitor any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_monitor_stop(group: *mut ftsort) -> ftsort_status {
    on_group(group, |group| {
        group.watch = None;
        group.together(|engine| engine.check_faults()).map(|_| ())
    })
}

/// What this rank's monitor knows of a rank. May be called by any thread at any time, also while another
/// one is in `ftsort_run`. [L]
///
/// \param[in] monitor from `ftsort_monitor_start`.
/// \param[in] rank one of the group's.
/// \param[in,out] out set `struct_size` before; that many bytes are filled in.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` for NULL, a rank that there is not, or a `struct_size` too
/// small to hold itself.
///
/// # Safety
/// `monitor` is NULL or valid; `out` is NULL or valid for its `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_monitor_get_view(
    monitor: *const ftsort_monitor,
    rank: i32,
    out: *mut ftsort_monitor_view,
) -> ftsort_status {
    // SAFETY: this function's contract.
    let Some(monitor) = (unsafe { monitor.as_ref() }) else {
        return Status::Argument as ftsort_status;
    };
    let rank = u32::try_from(rank).ok().map(Rank);
    let Some(rank) = rank.filter(|rank| rank.index() < monitor.ranks) else {
        return Status::Argument as ftsort_status;
    };
    let view = monitor.view(rank);
    let full = |struct_size| ftsort_monitor_view {
        struct_size,
        recommended: i32::from(view.recommended),
        counter: view.counter,
        good_in_row: view.good_in_row,
        last_reply: view.last_reply.unwrap_or(-1.0),
        mean: view.mean,
        variance: view.variance,
        timeout: view.timeout,
        threshold: view.threshold,
        phi: view.phi,
        weight: monitor.weight(rank),
    };
    // SAFETY: this function's contract.
    unsafe { write_sized(out, full) as ftsort_status }
}

/// What a monitor has cost this rank so far. May be called by any thread at any time. [L]
///
/// \param[in] monitor from `ftsort_monitor_start`.
/// \param[out] sent messages sent; may be NULL. 0 in the foreground.
/// \param[out] answered tests answered; may be NULL. 0 in the foreground.
/// \return 1 if it has a thread of its own, 0 if it runs in the foreground; -1 for NULL.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_monitor_cost(
    monitor: *const ftsort_monitor,
    sent: *mut u64,
    answered: *mut u64,
) -> c_int {
    // SAFETY: this function's contract.
    let (monitor, sent, answered) = unsafe { (monitor.as_ref(), sent.as_mut(), answered.as_mut()) };
    let Some(monitor) = monitor else { return -1 };
    if let Some(sent) = sent {
        *sent = monitor.sent.load(Ordering::Relaxed);
    }
    if let Some(answered) = answered {
        *answered = monitor.answered.load(Ordering::Relaxed);
    }
    c_int::from(monitor.is_background())
}

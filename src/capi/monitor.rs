//! Monitoring: which ranks of a group are fast enough to be given work.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::guard::without_group;
use super::handle::{Handle, on_group, set};
use super::settings::{choice_of, read_or_default, write_sized};
use super::status::ftsort_status;
use super::tree::rank_of;
use ftsort_core::group::{MonitorConfig, MonitorMode, MonitorState, TestProcedure};
use ftsort_core::monitor::{Assignment, Suspicion};
use ftsort_kernels::error::{Result, refuse};

/// The way in which a monitor runs.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_monitor_mode {
    /// FTSORT_MONITOR_THREAD if all ranks were granted MPI_THREAD_MULTIPLE, else FTSORT_MONITOR_FOREGROUND.
    FTSORT_MONITOR_AUTO = 0,
    /// A thread on each rank that sends and answers tests on a private communicator at any time. Needs
    /// MPI_THREAD_MULTIPLE.
    FTSORT_MONITOR_THREAD = 1,
    /// At the commits of a sort, at most once per interval, each rank reports how fast it has been: the time of
    /// `test`, or without one the share of the time since its last report in which it had a processor. A rank that
    /// sleeps or waits for files between sorts, while others wait in calls of ftsort, seems slow without a `test`. Needs
    /// neither a thread nor messages of its own. Detects nothing between sorts or within a round, and trusts the reports. Figures are compared
    /// with the median of all ranks. A rank returns after `zeta` good tests in a row without the 2018 paper's
    /// consensus: the agreement of the commit takes its place (docs/dgrp.md).
    FTSORT_MONITOR_FOREGROUND = 2,
}

/// The assignment of tests.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_monitor_assignment {
    /// Every rank tests every other rank (2018 paper).
    FTSORT_TEST_ALL = 0,
    /// Each rank tests the first recommended rank of each of its clusters c(i,s): N log2(N) tests, and all ranks
    /// learn of a change within log2(N) intervals. For many ranks.
    FTSORT_TEST_VCUBE = 1,
}

/// The work of a slow rank.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ftsort_monitor_sharing {
    /// All or nothing (2018 paper): a rank that is not recommended executes no node.
    FTSORT_SHARING_EXCLUDE = 0,
    /// An extension of the paper: no rank is excluded, and the share of each rank in the result is proportional to
    /// its speed, in sixteenths: half a share at half the speed, none below 1/32 of full speed. The speed comes from
    /// the recent times of tests (`alpha`), which all ranks report at a commit once per interval; a speed within a
    /// quarter of full speed counts as full speed, which is the median of the faster half. Recommendations are still
    /// reported, and change nothing. Applies to sample sort, and to HyperQuickSort and QuickMerge with
    /// FTSORT_PIVOT_SAMPLED, from the exchange after the commit; not to the pivots of the papers, bitonic sorts, dense
    /// results and ftsort_rounds_run. Each rank still sorts its own input.
    FTSORT_SHARING_WEIGHTS = 1,
}

/// The test procedure: a piece of work like that of the application. Returns a number that is the same on all ranks;
/// a number that differs from the result of the tester fails the test, but not with FTSORT_MONITOR_FOREGROUND, which
/// only measures its time. Called by the thread of the monitor and by the thread that calls ftsort. Must not call MPI
/// or ftsort, throw, or longjmp.
pub type ftsort_test_fn = Option<unsafe extern "C" fn(user: *mut c_void) -> u64>;

/// Options of a monitor. Start from FTSORT_MONITOR_OPTIONS_INIT; zero selects the default of every member. The same
/// on all ranks, except `user` and the address of `test`, which all ranks set or none. Borrowed for the call. Later versions append members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_monitor_options {
    /// `sizeof(ftsort_monitor_options)`.
    pub struct_size: usize,
    /// One of `ftsort_monitor_mode`.
    pub mode: i32,
    /// One of `ftsort_monitor_assignment`; no effect in the foreground.
    pub assignment: i32,
    /// Milliseconds between tests. 0: 1000.
    pub interval_ms: u32,
    /// The number of consecutive passed tests after which a rank is recommended again. 0: 5 (zeta of the paper).
    pub zeta: u32,
    /// The weight of earlier values in the means of Algorithm 1, from 0 to below 1. 0: 0.9.
    pub alpha: f64,
    /// The number of deviations between the mean and the timeout. 0: 4.
    pub beta: f64,
    /// A reply is late after `factor` times the timeout plus `plus_ms`. 0: 2.5.
    pub factor: f64,
    /// Milliseconds, see `factor`. In the foreground thousandths of the median.
    pub plus_ms: f64,
    /// The threshold of the first tests of a rank in milliseconds. 0: 8000. In the foreground thousandths of the
    /// median.
    pub first_ms: f64,
    /// Above 0, up to 300: a reply is late by phi instead, the negative decimal logarithm of the probability that a
    /// reply takes even longer.
    pub phi: f64,
    /// Not 0: a tester that finds most of its peers late at once, or was itself woken late, considers itself slow and
    /// reports nothing.
    pub self_doubt: i32,
    /// Not 0: late replies do not enter the means, so that testers do not adapt to a slow rank.
    pub unforgiving: i32,
    /// See `ftsort_test_fn`. NULL: the test of the paper, prime numbers up to 1000 (see also
    /// FTSORT_MONITOR_FOREGROUND).
    pub test: ftsort_test_fn,
    /// Passed to `test` and never read.
    pub user: *mut c_void,
    /// One of `ftsort_monitor_sharing`.
    pub sharing: i32,
    /// Not 0: a rank is excluded only if that is expected to save time, given its recent speed: its part of the
    /// remaining rounds is compared with two parts of its executor and one more round for moving its blocks. So a rank
    /// that is at most twice as slow as its executor, and has at most as many records, is never excluded. Readmission
    /// is unchanged. No effect with FTSORT_SHARING_WEIGHTS.
    pub gain: i32,
}

/// The knowledge of the monitor of this rank about another rank. Later versions append members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ftsort_monitor_view {
    /// `sizeof(ftsort_monitor_view)`, set by the caller.
    pub struct_size: usize,
    /// 1: the rank is in the Dynamic Group of Recommended Processes; 0: it is not.
    pub recommended: i32,
    /// The number of changes so far: even for a recommended rank, odd for another.
    pub counter: u32,
    /// The number of consecutive tests by this rank that the rank has passed. Starts again at 0 when the rank leaves the
    /// group.
    pub good_in_row: u32,
    /// Seconds until its last reply to this rank; negative without a reply. In the foreground this and the following
    /// times are multiples of the median.
    pub last_reply: f64,
    /// The mean of Algorithm 1, in seconds.
    pub mean: f64,
    /// The variance of Algorithm 1.
    pub variance: f64,
    /// The timeout of Algorithm 1, in seconds.
    pub timeout: f64,
    /// The time after which the next reply is late, in seconds.
    pub threshold: f64,
    /// The suspicion of the last test, from 0.
    pub phi: f64,
    /// The share of the rank in the work, relative to a rank at full speed, from 0 to 1, as agreed at a commit; 1
    /// without FTSORT_SHARING_WEIGHTS.
    pub weight: f64,
}

/// The monitor of a group. Belongs to the group; any thread may read it.
pub struct ftsort_monitor {
    state: Arc<MonitorState>,
}

/// The test procedure of the program.
struct Procedure {
    run: unsafe extern "C" fn(user: *mut c_void) -> u64,
    user: *mut c_void,
}

// SAFETY: the function may be called by the monitor's thread, as its documentation says.
unsafe impl Send for Procedure {}
// SAFETY: as above; the monitor's thread and the thread that calls ftsort do not change the pointer.
unsafe impl Sync for Procedure {}

impl Procedure {
    fn answer(&self) -> u64 {
        // SAFETY: the user's callback with the user's pointer.
        unsafe { (self.run)(self.user) }
    }
}

/// Checks the numbers that have other units and names in the library.
fn check_times(given: &ftsort_monitor_options) -> Result<()> {
    for (name, value) in [
        ("factor", given.factor),
        ("plus_ms", given.plus_ms),
        ("first_ms", given.first_ms),
    ] {
        if !value.is_finite() || value < 0.0 {
            return refuse(format!(
                "options.{name} is {value}: pass a finite number of at least 0"
            ));
        }
    }
    Ok(())
}

/// Reads the options of a monitor, of which the core checks the numbers.
///
/// # Safety
/// `options` is NULL or valid.
unsafe fn read_options(
    options: *const ftsort_monitor_options,
) -> Result<(MonitorConfig, Option<TestProcedure>)> {
    // SAFETY: the caller's contract; the struct holds numbers, a pointer and an optional function.
    let given = unsafe { read_or_default(options, "options")? };
    use MonitorMode::{Auto, Background, Foreground};
    let modes = [Auto, Background, Foreground];
    let mut config = MonitorConfig {
        mode: choice_of("mode", given.mode, &modes, "one of ftsort_monitor_mode")?,
        ..MonitorConfig::default()
    };
    let options = &mut config.options;
    let assignments = [Assignment::AllToAll, Assignment::VCube];
    let expected = "one of ftsort_monitor_assignment";
    options.assignment = choice_of("assignment", given.assignment, &assignments, expected)?;
    check_times(&given)?;
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
    let expected = "one of ftsort_monitor_sharing";
    options.weights = choice_of("sharing", given.sharing, &[false, true], expected)?;
    let test = given.test.map(|run| {
        let user = given.user;
        let procedure = Procedure { run, user };
        Arc::new(move || procedure.answer()) as TestProcedure
    });
    Ok((config, test))
}

/// Starts to monitor the ranks of a group: the Dynamic Group of Recommended Processes (2018 paper). [C]
///
/// At every commit of ftsort_run and ftsort_rounds_run the survivors agree on the recommended ranks. A rank that is
/// not recommended executes no node from then on; its blocks move to another rank, and its nodes return once it is
/// recommended again (FTSORT_EVENT_EXCLUDED, FTSORT_EVENT_REJOINED). If no rank is recommended, all ranks work. An
/// excluded rank still takes part in every collective call, so a rank that is stopped altogether keeps the others
/// waiting.
///
/// \param group    a group without a monitor
/// \param options  borrowed for the call; NULL selects all defaults
/// \param monitor  receives the monitor, which belongs to the group and is valid until ftsort_monitor_stop,
///                 ftsort_leave or ftsort_free; NULL after an error; may be NULL
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT naming the member, and on all ranks if `options` differs between ranks;
///         FTSORT_ERR_STATE also if the group has a monitor; or another status of "Collective calls"
///
/// # Safety
/// `group` is NULL or live; `options` and `monitor` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_monitor_start(
    group: *mut Handle,
    options: *const ftsort_monitor_options,
    monitor: *mut *const ftsort_monitor,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe { set(monitor, std::ptr::null()) };
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let (config, test) = match unsafe { read_options(options) } {
            Ok((config, test)) => (Ok(config), test),
            Err(error) => (Err(error), None),
        };
        let state = group.group.start_monitor(config, test)?;
        let started = group.monitor.insert(Box::new(ftsort_monitor { state }));
        // SAFETY: this function's contract.
        unsafe { set(monitor, &**started) };
        Ok(())
    })
}

/// Stops the monitor of a group: from now on all survivors execute their nodes. [C]
///
/// The private communicator of a monitor with a thread remains until MPI_Finalize, because messages may still be on
/// their way.
///
/// \param group  a group; without a monitor the call has no effect
/// \return FTSORT_OK, or a status of "Collective calls"
///
/// # Safety
/// `group` is NULL or live; its monitor is not read any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_monitor_stop(group: *mut Handle) -> ftsort_status {
    on_group(group, |group| {
        group.monitor = None;
        group.group.stop_monitor()
    })
}

/// Returns the knowledge of the monitor of this rank about `rank`. [L]
///
/// Any thread may call it at any time, also while another thread is in ftsort_run.
///
/// \param monitor  a monitor of ftsort_monitor_start
/// \param rank     a rank of the group
/// \param view     set `struct_size` before (FTSORT_MONITOR_VIEW_INIT); receives that many bytes
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT for NULL, a rank that does not exist, or a `struct_size` that is too small
///
/// # Safety
/// `monitor` is NULL or valid; `view` is NULL or valid for its `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_monitor_get_view(
    monitor: *const ftsort_monitor,
    rank: i32,
    view: *mut ftsort_monitor_view,
) -> ftsort_status {
    // SAFETY: this function's contract.
    without_group(|| unsafe { get_view(monitor, rank, view) })
}

/// # Safety
/// As for [`ftsort_monitor_get_view`].
unsafe fn get_view(
    monitor: *const ftsort_monitor,
    rank: i32,
    place: *mut ftsort_monitor_view,
) -> Result<()> {
    // SAFETY: this function's contract.
    let Some(monitor) = (unsafe { monitor.as_ref() }) else {
        return refuse("monitor is NULL: pass a monitor of ftsort_monitor_start");
    };
    let rank = rank_of("rank", rank, monitor.state.ranks())?;
    let Some(view) = monitor.state.view(rank) else {
        return refuse("rank is not in the group");
    };
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
        weight: monitor.state.weight(rank),
    };
    // SAFETY: this function's contract.
    unsafe { write_sized("view", place, full) }
}

/// Returns the cost of a monitor on this rank so far; any thread may call it at any time. [L]
///
/// \param monitor   a monitor of ftsort_monitor_start
/// \param sent      receives the number of messages sent, 0 in the foreground; may be NULL
/// \param answered  receives the number of tests answered, 0 in the foreground; may be NULL
/// \return 1 if the monitor has a thread, 0 if it runs in the foreground; -1 for NULL
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
    let Some(monitor) = (unsafe { monitor.as_ref() }) else {
        return -1;
    };
    // SAFETY: this function's contract.
    unsafe {
        set(sent, monitor.state.messages_sent());
        set(answered, monitor.state.tests_answered());
    }
    c_int::from(monitor.state.is_background())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftsort_core::monitor::MonitorOptions;

    #[test]
    fn the_members_of_options_are_those_of_the_monitor() {
        // SAFETY: numbers, pointers and optional functions may all be zero.
        let zero: ftsort_monitor_options = unsafe { std::mem::zeroed() };
        let given = ftsort_monitor_options {
            struct_size: size_of::<ftsort_monitor_options>(),
            mode: ftsort_monitor_mode::FTSORT_MONITOR_FOREGROUND as i32,
            assignment: ftsort_monitor_assignment::FTSORT_TEST_VCUBE as i32,
            interval_ms: 500,
            zeta: 3,
            alpha: 0.5,
            beta: 2.0,
            factor: 3.0,
            plus_ms: 250.0,
            first_ms: 4000.0,
            phi: 6.0,
            self_doubt: 1,
            unforgiving: 1,
            sharing: ftsort_monitor_sharing::FTSORT_SHARING_WEIGHTS as i32,
            gain: 1,
            ..zero
        };
        // SAFETY: the struct has its size.
        let (config, test) = unsafe { read_options(&given) }.expect("right options");
        let options = MonitorOptions {
            interval: 0.5,
            alpha: 0.5,
            beta: 2.0,
            multiple: 3.0,
            plus: 0.25,
            first_threshold: 4.0,
            first_tests: MonitorOptions::default().first_tests,
            zeta: 3,
            assignment: Assignment::VCube,
            suspicion: Suspicion::Phi(6.0),
            self_doubt: true,
            learn_late: false,
            gain: true,
            weights: true,
        };
        let mode = MonitorMode::Foreground;
        assert_eq!(config, MonitorConfig { options, mode });
        assert!(test.is_none());
        // SAFETY: NULL selects all defaults.
        let (config, _) = unsafe { read_options(std::ptr::null()) }.expect("the defaults");
        assert_eq!(config, MonitorConfig::default());
    }
}

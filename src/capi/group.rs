//! A group of ranks: made from a communicator, asked about faults, freed.

use std::ffi::{CString, c_char, c_int};
use std::rc::Rc;

use mpi_sys::MPI_Comm;

use super::choice::SortChoice;
use super::config::{ftsort_algorithm, ftsort_config};
use super::guard::{caught_silently, without_group};
use super::handle::{Handle, clear, last_error, on_group, on_group_locally, place_of, set};
use super::monitor::ftsort_monitor;
use super::settings::Settings;
use super::status::ftsort_status;
use super::trace::{Place, Reporter, SharedTrace, Trace};
use crate::group::{Config, Group};
use crate::ulfm::require_mpi;
use ftsort_core::group::{LastRun, Reload};
use ftsort_core::sort::{Method, Shape, Splitters};
use ftsort_core::transport::Transport;
use ftsort_kernels::error::{Error, Result, Status, refuse};

/// A group of MPI processes, with the additional state for C programs.
pub struct ftsort {
    pub(super) group: Group,
    /// The sort that is configured, or was selected later.
    pub(super) sort: SortChoice,
    /// The trace, which the group's observer writes.
    pub(super) trace: SharedTrace,
    pub(super) monitor: Option<Box<ftsort_monitor>>,
    pub(super) last_error: CString,
}

/// Returns the algorithm that a sort used.
fn name_of(method: Method) -> ftsort_algorithm {
    use ftsort_algorithm::*;
    match method {
        Method::HyperQuickSort(_) => FTSORT_HYPERQUICKSORT,
        Method::QuickMerge(Splitters::Averaged) => FTSORT_QUICKMERGE_MODIFIED,
        Method::QuickMerge(_) => FTSORT_QUICKMERGE,
        Method::Bitonic(Shape::Bitonic) => FTSORT_BITONIC_MERGE,
        Method::Bitonic(Shape::Any) | Method::SftBitonic => FTSORT_BITONIC,
        Method::SampleSort(0 | 1) => FTSORT_SAMPLESORT,
        Method::SampleSort(2) => FTSORT_SAMPLESORT_2,
        Method::SampleSort(_) => FTSORT_SAMPLESORT_3,
    }
}

impl ftsort {
    /// The number of the last algorithm in `ftsort_algorithm`; -1 for rounds.
    pub(super) fn last_algorithm(&self) -> i32 {
        const ROUNDS: i32 = -1;
        match self.group.last_run() {
            None => ftsort_algorithm::FTSORT_AUTO as i32,
            Some(LastRun::Rounds) => ROUNDS,
            // Some algorithms have two names.
            Some(LastRun::Sort(method)) if self.group.config().method == Some(method) => {
                self.sort.algorithm
            }
            Some(LastRun::Sort(method)) => name_of(method) as i32,
        }
    }

    /// Ends a trace. The lowest survivor makes one file of those of all ranks.
    pub(super) fn merge_traces(&self, trace: Option<Trace>) {
        let members = self.group.members();
        if let Some(trace) = trace
            && members.lowest_survivor() == members.me()
        {
            trace.merge(self.group.founders());
        }
    }
}

/// Creates a group of the ranks of `comm`. [C]
///
/// The group communicates on a private communicator. `comm` is not kept, and its error handler is neither
/// called nor changed. If a rank fails while the communicator is created, the job may end. `config.keep_comm`
/// avoids that: the group communicates on `comm` itself, which must live until the group is released, and
/// meanwhile returns errors and is not used by the program; after FTSORT_ERR_MPI it can only be freed. `comm`
/// may contain failed ranks: they count as failed from the start, and only the survivors call this function.
///
/// \param comm    an intra-communicator; its ranks are the ranks of the group and never change
/// \param config  borrowed for the call; NULL selects all defaults
/// \param group   receives the group; release it with ftsort_free or ftsort_leave; NULL after an error
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks for an inter-communicator, and if a member of `config`
///         that must agree differs between ranks; FTSORT_ERR_NO_ULFM; FTSORT_ERR_STORE if the store
///         directory cannot be used; FTSORT_ERR_STATE if MPI is not running; or another status of
///         "Collective calls". With MPI_COMM_NULL this rank returns at once, and the others wait for it
///
/// # Safety
/// `config` and `group` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_init(
    comm: MPI_Comm,
    config: *const ftsort_config,
    group: *mut *mut Handle,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe { clear(group) };
    without_group(|| {
        // SAFETY: this function's contract.
        let place = unsafe { place_of("group", group) };
        require_intra_communicator(comm)?;
        // A rank with a wrong argument takes part until the others know.
        let refusal = place.as_ref().err().cloned();
        // SAFETY: this function's contract.
        let made = unsafe { make_group(comm, config, refusal)? };
        *place? = Box::into_raw(Handle::new(made, None));
        Ok(())
    })
}

/// Checks the communicator of a new group. Local, with the same outcome on all of its ranks.
pub(super) fn require_intra_communicator(comm: MPI_Comm) -> Result<()> {
    require_mpi()?;
    // SAFETY: a constant of the MPI library.
    if comm == unsafe { mpi_sys::RSMPI_COMM_NULL } {
        return refuse("comm is MPI_COMM_NULL: pass an intra-communicator");
    }
    let mut is_inter: c_int = 0;
    // SAFETY: a live communicator by the contract of the exported functions, and a place for one int.
    let code = unsafe { mpi_sys::MPI_Comm_test_inter(comm, &mut is_inter) };
    if code != mpi_sys::MPI_SUCCESS as c_int {
        return Err(Error::new(
            Status::Mpi,
            "MPI_Comm_test_inter failed for comm",
        ));
    }
    if is_inter != 0 {
        return refuse(
            "comm is an inter-communicator: pass an intra-communicator, for example of MPI_Intercomm_merge",
        );
    }
    Ok(())
}

/// Makes a group. With a `refusal` the call fails on all ranks.
///
/// # Safety
/// `config` is NULL or valid; `comm` passed [`require_intra_communicator`].
pub(super) unsafe fn make_group(
    comm: MPI_Comm,
    config: *const ftsort_config,
    refusal: Option<Error>,
) -> Result<ftsort> {
    // SAFETY: this function's contract.
    let (settings, refusal) = match unsafe { Settings::read(config) } {
        Ok(settings) => (settings, refusal),
        // This rank takes part with defaults until the others know.
        Err(error) => (Settings::stopgap()?, Some(error)),
    };
    let shared = SharedTrace::default();
    let config = Config {
        group: settings.group,
        accept_no_ulfm: settings.accept_no_ulfm,
        keep_comm: settings.keep_comm,
        observer: Box::new(Reporter::new(settings.listener, Rc::clone(&shared))),
        reload: settings
            .reload
            .map(|reload| Box::new(reload) as Box<dyn Reload>),
    };
    let mut opened = None;
    // SAFETY: this function's contract.
    let group = unsafe {
        Group::create(comm, config, refusal, |transport, observer| {
            if let Some(prefix) = settings.trace {
                let clock = || transport.now();
                let place = Place::of(&prefix, settings.files).ok_or_else(|| {
                    Error::argument(format!(
                        "config.trace (or FTSORT_TRACE) is {prefix:?}, but the part behind the last slash must be UTF-8"
                    ))
                })?;
                let listener = settings.listener;
                opened = Some(Trace::open(place, transport.me(), listener, clock)?);
            }
            Ok(observer)
        })?
    };
    *shared.borrow_mut() = opened.map(|trace| trace.of_group(group.id()));
    Ok(ftsort {
        group,
        sort: settings.sort,
        trace: shared,
        monitor: None,
        last_error: CString::default(),
    })
}

/// Finds failed ranks: FaultDetection of the papers. [C]
///
/// Afterwards all survivors know the same failed ranks, and ftsort_is_failed, ftsort_executor and
/// ftsort_partner answer accordingly; the number of a rank never changes. A loop that keeps states with
/// ftsort_store_put (ftsort_store.h) calls this function at the start of each round: it discards states
/// that were put and not committed, and moves the states of failed ranks to the executors of their nodes.
///
/// \param new_failures  receives the number of ranks that this call found failed; may be NULL
/// \return FTSORT_OK, with new failures or without; FTSORT_ERR_DATA_LOST if stored states cannot be recovered
///         (all others are in place, and ftsort_lost_ranks names the ranks); FTSORT_ERR_MEMORY or
///         FTSORT_ERR_STORE if states could not be moved (the next call tries again); or another status of
///         "Collective calls"
///
/// # Safety
/// `group` is NULL or live; `new_failures` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_fault_check(
    group: *mut Handle,
    new_failures: *mut usize,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe { set(new_failures, 0) };
    on_group(group, |group| {
        let known = group.group.members().faulty().len();
        let checked = group.group.fault_check();
        let found = group.group.members().faulty().len() - known;
        // SAFETY: this function's contract.
        unsafe { set(new_failures, found) };
        checked.map(drop)
    })
}

/// Agrees on a number: combines the `flags` of all survivors with a bitwise AND. [C]
///
/// For decisions of the caller, such as whether every rank has written its part. Afterwards all survivors hold the same
/// number and know the same failed ranks. Unlike ftsort_fault_check it leaves stored states (ftsort_store.h) where they
/// are: if it finds failures, call ftsort_fault_check before the next ftsort_store_get.
///
/// \param flags         in: the number of this rank; out: the agreed number. The number of a rank that fails
///                      during the call is included or not, on all survivors alike
/// \param new_failures  receives the number of ranks that this call found failed; may be NULL
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT for a NULL `flags`, which counts as 0 for the other ranks, and they
///         return FTSORT_OK; or another status of "Collective calls"
///
/// # Safety
/// `group` is NULL or live; `flags` is NULL or valid; `new_failures` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_agree(
    group: *mut Handle,
    flags: *mut u32,
    new_failures: *mut usize,
) -> ftsort_status {
    // SAFETY: this function's contract.
    unsafe { set(new_failures, 0) };
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let flags = unsafe { place_of("flags", flags) };
        // A rank with a wrong argument takes part, so that the others do not wait for it.
        let own = flags.as_ref().map_or(0, |flags| **flags);
        let (agreed, found) = group.group.agree(own)?;
        // SAFETY: this function's contract.
        unsafe { set(new_failures, found) };
        *flags? = agreed;
        Ok(())
    })
}

/// Kills this process with SIGKILL if the fault schedule names this rank and `round`. [L]
///
/// FaultInject of the papers, for a loop of the caller; sorts follow the schedule by themselves. See
/// docs/fault-injection.md.
///
/// \param round  the round that the loop begins; random schedules draw from the rounds 0 to log2(N) + 1
/// \return FTSORT_OK if this rank goes on; FTSORT_ERR_ARGUMENT; FTSORT_ERR_STATE
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_inject(group: *mut Handle, round: u32) -> ftsort_status {
    on_group_locally(group, |group| group.group.inject(round))
}

/// Lends a communicator of the survivors, in ascending order of rank. [C]
///
/// Its error handler is MPI_ERRORS_RETURN. It is created again only if ranks failed since the last call. MPI
/// libraries survive failures worst while they create a communicator: call this function as seldom as possible.
///
/// \param survivors  receives the communicator, which belongs to the group: do not free it. It is valid until
///                   the group is released, or until the next ftsort_comm that finds new failures
/// \return FTSORT_OK; FTSORT_ERR_STATE also if MPI cannot make the communicator on some rank; or another status of
///         "Collective calls"
///
/// # Safety
/// `group` is NULL or live; `survivors` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_comm(
    group: *mut Handle,
    survivors: *mut MPI_Comm,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let refusal = unsafe { place_of("survivors", survivors) }.map(drop);
        let comm = group.group.survivor_comm_checked(refusal)?;
        // SAFETY: as above.
        unsafe { set(survivors, comm) };
        Ok(())
    })
}

/// Releases a group, which must not be used afterwards. [L]
///
/// Every survivor calls it before MPI_Finalize; it does not communicate. Results remain valid; files of released
/// ones are removed: call ftsort_agree first if others may recover them. Does nothing for NULL, for a group of
/// ftsort_group_of, which belongs to its communicator, and in a callback of the group.
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_free(group: *mut Handle) {
    // SAFETY: this function's contract.
    unsafe {
        if group.as_ref().is_some_and(|handle| handle.owner.is_none()) {
            free(group);
        }
    }
}

/// Ends a group, with or without an owner, unless a call is using it.
///
/// # Safety
/// `handle` came from [`Handle::new`] and is not used again.
pub(super) unsafe fn free(handle: *mut Handle) {
    // SAFETY: this function's contract.
    let Some(call) = (unsafe { handle.as_ref() }).and_then(Handle::begin) else {
        return;
    };
    // An error while a group ends has no caller that could act on it.
    let _ = caught_silently(|| {
        // `on_log` may ask the group, which exists until then.
        let trace = call.group.trace.take();
        call.group.merge_traces(trace);
        Ok(())
    });
    drop(call);
    // SAFETY: this function's contract.
    let group = unsafe { Handle::release(handle) };
    let _ = caught_silently(|| {
        drop(group);
        Ok(())
    });
}

/// Returns the reason of the last error: the argument and its value, the file, or the rank. [L]
///
/// \param group  a group; NULL for the last failing call of this thread that has no group, such as ftsort_sort,
///               ftsort_init, ftsort_result_block and calls with a NULL group
/// \return a NUL-terminated text, valid until the next call with this group (for NULL, until the next failing
///         call of this thread without a group); empty if no call failed; never NULL
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_last_error(group: *const Handle) -> *const c_char {
    // SAFETY: this function's contract.
    unsafe { last_error(group) }
}

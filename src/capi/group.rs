//! A group of ranks: made from a communicator, asked about faults, freed.

use std::ffi::{CStr, CString, c_char, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use mpi_sys::MPI_Comm;

use super::config::ftsort_config;
use super::guard::{require_mpi, without_group};
use super::handle::{
    Handle, last_error, on_group, on_group_locally, place_of, refuse, without_figures,
};
use super::host::share_host;
use super::monitor_thread::Watch;
use super::settings::{Settings, agree_on_settings, open_store, store_beside, warn_of_settings};
use super::status::ftsort_status;
use super::trace::{Reporter, Trace, Whole};
use crate::ulfm::{CHUNK, Mpi, SurvivorComm, Ulfm, ulfm_state};
use ftsort_core::engine::{
    Checkpoints, Engine, EngineContext, Handshake, Observer, Stats, handshake,
};
use ftsort_core::faults::{Point, Schedule};
use ftsort_core::members::{Members, Rank, RankSet};
use ftsort_core::store::Store;
use ftsort_core::store::memory::Memory;
use ftsort_core::transport::{Protocol, ProtocolConfig, Repair, Transport};
use ftsort_core::tree::run::choose::Chosen;
use ftsort_kernels::error::{Error, Result, Status, caught};
use ftsort_kernels::pages;

/// A group of ranks as the library uses it; a C program holds a [`Handle`] around it.
pub struct ftsort {
    /// Ends before what it uses.
    pub(super) watch: Option<Watch>,
    pub(super) transport: Protocol<Mpi>,
    pub(super) members: Members,
    pub(super) store: Box<dyn Store>,
    /// What loops of the caller's own keep.
    pub(super) checkpoints: Checkpoints,
    /// All ranks know it, and nobody else: digests are drawn from it.
    pub(super) seed: u64,
    /// What the records are that all have agreed on last.
    pub(super) agreed_record: Option<u64>,
    /// What trees are to bring.
    pub(super) contributions: Checkpoints,
    /// The last one.
    pub(super) tree: Option<Chosen>,
    pub(super) settings: Settings,
    pub(super) stats: Stats,
    /// Which of `ftsort_algorithm` the last sort was.
    pub(super) algorithm: i32,
    /// Whose data the last sort lost.
    pub(super) lost: RankSet,
    pub(super) survivors: Option<SurvivorComm>,
    pub(super) poisoned: Option<Error>,
    pub(super) last_error: CString,
    /// Where the time goes, if that is to be written down.
    pub(super) trace: Option<Trace>,
    /// Who was there when the group was made: others have left no trace, but perhaps one of another run.
    pub(super) founders: Vec<Rank>,
    /// From one job to the next, until all else is gone.
    pub(super) _pages: pages::Keeping,
}

impl ftsort {
    /// The means of the group for one collective call.
    pub(super) fn engine<'a>(
        transport: &'a mut Protocol<Mpi>,
        members: &'a mut Members,
        observer: &'a mut dyn Observer,
        stats: &'a mut Stats,
        schedule: &'a Schedule,
    ) -> Engine<'a> {
        Engine::new(EngineContext {
            transport,
            members,
            observer,
            stats,
            schedule,
            policy: None,
        })
    }

    /// How many ranks are found dead that were not known to be. Whoever is here will read no file of
    /// past sorts, so that what dead ranks left of them can go.
    pub(super) fn check_faults(&mut self) -> Result<usize> {
        let ((), found) = self.together(|engine| engine.check_faults())?;
        if self.members.lowest_survivor() == self.members.me() {
            self.store.sweep();
        }
        Ok(found)
    }

    /// Does something collective; also gives how many ranks it found dead.
    pub(super) fn together<T>(
        &mut self,
        work: impl FnOnce(&mut Engine<'_>) -> Result<T>,
    ) -> Result<(T, usize)> {
        let known = self.members.faulty().len();
        let schedule = Schedule::default();
        let mut reporter = Reporter::new(self.settings.listener, &mut self.trace);
        let value = work(&mut ftsort::engine(
            &mut self.transport,
            &mut self.members,
            &mut reporter,
            &mut self.stats,
            &schedule,
        ))?;
        Ok((value, self.members.faulty().len() - known))
    }

    /// Does something collective with what is kept apart from sorts, and with whose of it is lost.
    pub(super) fn beside_sorts<T>(
        &mut self,
        keeping: Keeping,
        schedule: &Schedule,
        work: impl FnOnce(&mut Checkpoints, &mut Engine<'_>, &mut RankSet) -> Result<T>,
    ) -> Result<T> {
        let kept = match keeping {
            Keeping::Loops => &mut self.checkpoints,
            Keeping::Trees => &mut self.contributions,
        };
        let mut reporter = Reporter::new(self.settings.listener, &mut self.trace);
        // The group's are those of the last sort.
        let mut stats = Stats::default();
        let mut engine = ftsort::engine(
            &mut self.transport,
            &mut self.members,
            &mut reporter,
            &mut stats,
            schedule,
        );
        work(kept, &mut engine, &mut self.lost)
    }

    /// Does a whole job, a span of the trace.
    pub(super) fn whole<T>(
        &mut self,
        job: Whole,
        work: impl FnOnce(&mut ftsort) -> Result<T>,
    ) -> Result<T> {
        if let Some(trace) = &mut self.trace {
            trace.job_begins(job, self.transport.now());
        }
        let result = work(self);
        if let Some(trace) = &mut self.trace {
            let status = result
                .as_ref()
                .err()
                .map_or(Status::Ok, |error| error.status);
            trace.job_ends(status, self.transport.now());
        }
        result
    }

    /// Nothing more is traced. One rank makes one file of all.
    pub(super) fn merge_traces(&self, trace: Option<Trace>) {
        if let Some(trace) = trace
            && self.members.lowest_survivor() == self.members.me()
        {
            trace.merge(&self.founders);
        }
    }
}

/// What is kept apart from sorts.
#[derive(Clone, Copy)]
pub(super) enum Keeping {
    /// States of loops of the caller's own.
    Loops,
    /// What trees are to bring.
    Trees,
}

/// Creates a group of the ranks of `comm`. [C]
///
/// The group communicates on a private communicator. `comm` is not kept, and its error handler is not
/// changed. `comm` may contain failed ranks: they count as failed from the start, and only the survivors
/// call this function. A rank that fails during this call may end the job, because MPI libraries do not
/// survive every failure while they create a communicator.
///
/// \param comm    an intra-communicator; its ranks are the ranks of the group and never change
/// \param config  borrowed for the call; NULL selects all defaults
/// \param group   receives the group; release it with ftsort_free or ftsort_leave; NULL after an error
/// \return FTSORT_OK; FTSORT_ERR_ARGUMENT on all ranks for an inter-communicator, and if a member of `config`
///         that must agree differs between ranks; FTSORT_ERR_NO_ULFM; FTSORT_ERR_STORE if the store
///         directory cannot be used; FTSORT_ERR_STATE if MPI is not initialised, or finalised; or another
///         status of "Collective calls". ftsort_last_error(NULL) has the text. With a NULL `group` or
///         MPI_COMM_NULL this rank returns at once, and the other ranks wait for it.
///
/// # Safety
/// `config` and `group` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_init(
    comm: MPI_Comm,
    config: *const ftsort_config,
    group: *mut *mut Handle,
) -> ftsort_status {
    without_group(|| {
        // SAFETY: this function's contract.
        let place = unsafe { place_of("group", group)? };
        *place = std::ptr::null_mut();
        require_intra_communicator(comm)?;
        // SAFETY: this function's contract.
        let made = unsafe { make_group(comm, config)? };
        *place = Box::into_raw(Handle::new(made, None));
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
        return Err(Error::new(Status::Mpi, "MPI_Comm_test_inter failed for comm"));
    }
    if is_inter != 0 {
        return refuse(
            "comm is an inter-communicator: pass an intra-communicator, for example of MPI_Intercomm_merge",
        );
    }
    Ok(())
}

/// # Safety
/// `config` is NULL or valid; `comm` passed [`require_intra_communicator`].
pub(super) unsafe fn make_group(comm: MPI_Comm, config: *const ftsort_config) -> Result<ftsort> {
    // SAFETY: this function's contract.
    let (settings, trouble) = match unsafe { Settings::read(config) } {
        Ok(settings) => (settings, None),
        // Play along with defaults until the others know.
        Err(error) => (Settings::stopgap()?, Some(error)),
    };
    let ulfm = ulfm_state()?;
    // SAFETY: this function's contract.
    let mpi = unsafe { Mpi::new(comm, ulfm)? };
    let config = ProtocolConfig {
        // Until it is known that all want the same: whoever waits in a barrier waits in vain for
        // ranks with other settings, or with wrong ones.
        repair: Repair::Agree,
        chunk: CHUNK,
        timeout: settings.timeout,
    };
    let transport = Protocol::new(mpi, config);
    let mut members = Members::new(transport.me(), transport.ranks());
    members.absorb(transport.dead());
    let trouble = trouble.or_else(|| misfit(&settings, members.ranks(), ulfm));
    let (trace, trouble) = match (&settings.trace, trouble) {
        (Some(prefix), None) => {
            match Trace::open(prefix, members.me(), settings.listener, || transport.now()) {
                Ok(trace) => (Some(trace), None),
                Err(error) => (None, Some(error)),
            }
        }
        (_, trouble) => (None, trouble),
    };
    if settings.min_survivors <= members.ranks() {
        members.set_quorum(settings.min_survivors);
    }
    let mut group = ftsort {
        watch: None,
        transport,
        store: Box::new(Memory::new(0)),
        checkpoints: Checkpoints::new(Box::new(Memory::new(0)), &members),
        seed: 0,
        agreed_record: None,
        contributions: Checkpoints::new(Box::new(Memory::new(0)), &members),
        tree: None,
        stats: Stats::default(),
        algorithm: 0,
        lost: RankSet::new(members.ranks()),
        survivors: None,
        poisoned: None,
        last_error: CString::default(),
        trace: None,
        founders: members.survivors().collect(),
        members,
        settings,
        _pages: pages::Keeping::new(),
    };
    group.meet(trouble)?;
    group.trace = trace.map(|trace| trace.of_group(group.seed));
    warn_of_settings(&group.settings.listener, ulfm);
    Ok(group)
}

/// What does not fit the communicator or the MPI library.
fn misfit(settings: &Settings, ranks: usize, ulfm: Ulfm) -> Option<Error> {
    if settings.min_survivors > ranks {
        let text = format!(
            "config.min_survivors is {}, but comm has {ranks} ranks",
            settings.min_survivors
        );
        return Some(Error::new(Status::Argument, text));
    }
    (ulfm != Ulfm::On && !settings.accept_no_ulfm).then(|| no_ulfm(ulfm))
}

impl ftsort {
    /// Gets to know the others, if they want the same; with `trouble` it fails on all. Then a store is
    /// opened that all of them see. Collective.
    fn meet(&mut self, trouble: Option<Error>) -> Result<()> {
        let ((mine, heard), _) = self.together(|engine| {
            let mine = introduce_oneself(engine);
            Ok((mine, handshake(engine, mine, trouble)?))
        })?;
        let fingerprint = self.settings.fingerprint();
        self.together(|engine| agree_on_settings(engine, fingerprint))?;
        self.transport.repair_by(self.settings.repair);
        self.seed = heard
            .first()
            .map_or(mine.nonce, |(_, handshake)| handshake.nonce);
        let (seed, choice) = (self.seed, self.settings.store.clone());
        (self.store, _) = self.together(|engine| open_store(engine, &choice, seed))?;
        let kept = |name| {
            let beside = store_beside(&choice, name, self.members.me());
            Checkpoints::new(beside, &self.members)
        };
        (self.checkpoints, self.contributions) = (kept(seed), kept(seed.rotate_left(32)));
        let mut hosts = vec![0; self.members.ranks()];
        for (rank, handshake) in &heard {
            hosts[rank.index()] = handshake.host;
        }
        self.members.set_hosts(hosts);
        share_host(self.members.living_here());
        Ok(())
    }
}

fn no_ulfm(ulfm: Ulfm) -> Error {
    let reason = match ulfm {
        Ulfm::SwitchedOff => "start the program with `mpirun --with-ft ulfm`",
        _ => "this library was built with an MPI that has no ULFM",
    };
    Error::new(
        Status::NoUlfm,
        format!("{reason}; or set config.accept_no_ulfm to sort without tolerating failures"),
    )
}

fn introduce_oneself(engine: &Engine<'_>) -> Handshake {
    let mut host = [0 as c_char; 256];
    // SAFETY: the buffer has the size that is passed, and its last byte stays NUL.
    let host = unsafe {
        libc::gethostname(host.as_mut_ptr(), host.len() - 1);
        CStr::from_ptr(host.as_ptr()).to_owned()
    };
    let mut hasher = DefaultHasher::new();
    host.hash(&mut hasher);
    let host = hasher.finish();
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos());
    (time, std::process::id(), engine.members().me()).hash(&mut hasher);
    Handshake {
        host,
        nonce: hasher.finish(),
    }
}

/// Finds failed ranks: FaultDetection of the papers. [C]
///
/// Afterwards all survivors know the same failed ranks, and ftsort_is_failed, ftsort_executor and
/// ftsort_partner answer accordingly; the number of a rank never changes. A loop that keeps states with
/// ftsort_store_put (ftsort_store.h) calls this function at the start of each round: it discards states
/// that were put and not committed, and moves the states of failed ranks to the executors of their nodes.
///
/// By default the survivors agree on one communicator that is never repaired. With FTSORT_REPAIR_SHRINK the
/// steps are barrier, agree, revoke, acknowledge and shrink (2024 paper, Section 5.1).
///
/// \param group         a group
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
    on_group(group, |group| {
        group.lost = RankSet::new(group.members.ranks());
        let found = without_figures(group, ftsort::check_faults)?;
        // SAFETY: this function's contract.
        if let Some(new_failures) = unsafe { new_failures.as_mut() } {
            *new_failures = found;
        }
        group.with_checkpoints(Checkpoints::begin)
    })
}

/// Agrees on a number: combines the `flags` of all survivors with a bitwise AND. [C]
///
/// For decisions of the caller, such as whether every rank has written its part. Afterwards all survivors
/// hold the same number and know the same failed ranks, as after ftsort_fault_check. Unlike that function it
/// leaves stored states where they are (ftsort_store.h): if it finds failures, call ftsort_fault_check before
/// the next ftsort_store_get.
///
/// \param group         a group
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
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let flags = unsafe { place_of("flags", flags) };
        // A rank with a wrong argument takes part, so that the others do not wait for it.
        let own = flags.as_ref().map_or(0, |flags| **flags);
        let (agreed, found) = without_figures(group, |group| {
            group.together(|engine| engine.agree_on(own))
        })?;
        // SAFETY: this function's contract.
        if let Some(new_failures) = unsafe { new_failures.as_mut() } {
            *new_failures = found;
        }
        *flags? = agreed;
        Ok(())
    })
}

/// Kills this process with SIGKILL if the fault schedule names this rank and `round`. [L]
///
/// FaultInject of the papers, for a loop of the caller; sorts follow the schedule by themselves. See
/// docs/fault-injection.md.
///
/// \param group  a group
/// \param round  the round that the loop begins; random schedules draw from the rounds 0 to log2(N) + 1
/// \return FTSORT_OK if this rank goes on; FTSORT_ERR_ARGUMENT; FTSORT_ERR_STATE
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_inject(group: *mut Handle, round: u32) -> ftsort_status {
    on_group_locally(group, |group| {
        let rounds = group.members.cube().dimension() + 2;
        let schedule = group.settings.plan.resolve(group.members.ranks(), rounds);
        if schedule.strikes(group.members.me(), round, Point::Begin) {
            group.transport.crash()?;
        }
        Ok(())
    })
}

/// Lends a communicator of the survivors, in ascending order of rank. [C]
///
/// Its error handler is MPI_ERRORS_RETURN. It is created again only if ranks failed since the last call. MPI
/// libraries survive failures worst while they create a communicator, so call this function when no failure
/// is expected, and no more often than needed.
///
/// \param group      a group
/// \param survivors  receives the communicator, which belongs to the group: do not free it. It is valid until
///                   the group is released, or until the next ftsort_comm that finds new failures
/// \return FTSORT_OK, or a status of "Collective calls". With a NULL `survivors` this rank returns at once
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
        let place = unsafe { place_of("survivors", survivors)? };
        let stale = group.survivors.as_ref().is_none_or(|comm| {
            let survivors = group.members.survivors();
            comm.len() != survivors.count()
        });
        if stale {
            let fresh = group.transport.mpi().shrunk()?;
            if let Some(mut old) = group.survivors.replace(fresh) {
                old.leave_to_mpi();
            }
        }
        if let Some(comm) = &group.survivors {
            *place = comm.raw();
        }
        Ok(())
    })
}

/// Releases a group. [L]
///
/// Every survivor calls it before MPI_Finalize; it does not communicate. Results remain valid. Does nothing
/// for NULL, for a group of ftsort_group_of, which belongs to its communicator, and in a callback of the
/// group. With `ftsort_config.trace` the lowest survivor merges the trace files of all ranks as far as they
/// are written.
///
/// \param group  a group; it must not be used afterwards
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

/// Ends a group, whoever owns it, unless a call is using it.
///
/// # Safety
/// `handle` came from [`Handle::new`] and is not used again.
pub(super) unsafe fn free(handle: *mut Handle) {
    // SAFETY: this function's contract.
    let Some(mut group) = (unsafe { Handle::release(handle) }) else {
        return;
    };
    // An error while a group ends has no caller that could act on it.
    let _ = caught(|| {
        let trace = group.trace.take();
        group.merge_traces(trace);
        drop(group);
        Ok(())
    });
}

/// Returns the reason of the last error: the argument and its value, the file, or the rank. [L]
///
/// \param group  a group; NULL for the last failing call of this thread that has no group (ftsort_sort,
///               ftsort_group_of, ftsort_init, ftsort_record_of_type, ftsort_rounds_simulate)
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

//! A group of ranks: made from a communicator, asked about faults, freed.

use std::ffi::{CStr, CString, c_char, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use mpi_sys::MPI_Comm;

use super::config::ftsort_config;
use super::guard::{on_group, text_without_group, without_group};
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
use ftsort_core::tree::run::choose::ChosenTree;
use ftsort_kernels::error::{Error, Result, Status, caught};
use ftsort_kernels::pages;

/// A group of ranks, and who of them lives. Made by `ftsort_init`, freed by `ftsort_free`. May be
/// used by any thread, by one at a time; MPI is called from that thread. Several groups may be used by
/// several threads at once if MPI grants MPI_THREAD_MULTIPLE; make them one after the other, in the
/// same order on all ranks (Open MPI 5.0's agreements go wrong where several threads agree at once;
/// ftsort keeps its own apart, but cannot while MPI makes a communicator).
///
/// While there is a group, the process keeps the large buffers of past jobs for the next one, since new
/// memory costs as much time as the rest of a sort: never more, with those in use, than one job used at
/// once, and on Linux so that the system takes them whenever it is short (MADV_FREE), though tools may
/// count them as used until then.
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
    pub(super) tree: Option<ChosenTree>,
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
    pub(super) _pages: pages::Retention,
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

/// Makes a group of the ranks of `comm`. [C]
///
/// The group communicates on a private communicator. `comm` stays the caller's; it is not kept and
/// its error handler is not touched. It may already contain failures: the dead count as faulty from
/// the start, and only the survivors call this function. Faults during this call are survived only
/// in part: MPI libraries crash when a process dies while a communicator is made.
///
/// \param[in] comm an intra-communicator. A rank of the group is a rank in it, for ever.
/// \param[in] config borrowed for the call; NULL: all defaults.
/// \param[out] out the group, to be freed with `ftsort_free`; NULL after a failure.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` or `FTSORT_ERR_PEER_ARGUMENT`;
/// `FTSORT_ERR_NO_ULFM`; `FTSORT_ERR_STORE` where the store directory cannot be used;
/// `FTSORT_ERR_MEMORY`; `FTSORT_ERR_MPI`; `FTSORT_ERR_INTERNAL`. `ftsort_last_error(NULL)` has the
/// text. Where `out` is NULL or `comm` is `MPI_COMM_NULL` the call fails on this rank at once, and
/// the others wait for it.
///
/// # Safety
/// `config` and `out` are NULL or valid; MPI is initialised and not finalised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_init(
    comm: MPI_Comm,
    config: *const ftsort_config,
    out: *mut *mut ftsort,
) -> ftsort_status {
    without_group(|| {
        // SAFETY: NULL or a place for one pointer.
        let out = unsafe { out.as_mut() };
        let out = out.ok_or_else(|| Error::new(Status::Argument, "out is NULL"))?;
        *out = std::ptr::null_mut();
        // SAFETY: this function's contract.
        let group = unsafe { make_group(comm, config)? };
        *out = Box::into_raw(Box::new(group));
        Ok(())
    })
}

/// # Safety
/// As for [`ftsort_init`].
unsafe fn make_group(comm: MPI_Comm, config: *const ftsort_config) -> Result<ftsort> {
    require_mpi()?;
    // SAFETY: a constant of the MPI library.
    if comm == unsafe { mpi_sys::RSMPI_COMM_NULL } {
        return Err(Error::new(Status::Argument, "comm is MPI_COMM_NULL"));
    }
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
        _pages: pages::ProcessPages::get().retain(),
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

fn require_mpi() -> Result<()> {
    let (mut initialized, mut finalized): (c_int, c_int) = (0, 0);
    // SAFETY: both may be called at any time.
    unsafe {
        mpi_sys::MPI_Initialized(&mut initialized);
        mpi_sys::MPI_Finalized(&mut finalized);
    }
    match (initialized != 0, finalized != 0) {
        (true, false) => Ok(()),
        (false, _) => Err(Error::new(Status::State, "MPI is not initialised")),
        (_, true) => Err(Error::new(Status::State, "MPI is finalised")),
    }
}

fn no_ulfm(ulfm: Ulfm) -> Error {
    let reason = match ulfm {
        Ulfm::SwitchedOff => "start the program with `mpirun --with-ft ulfm`",
        _ => "this library was built with an MPI that has no ULFM",
    };
    Error::new(
        Status::NoUlfm,
        format!("{reason}; or set config.accept_no_ulfm to sort without surviving faults"),
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

/// Finds new faults: the papers' FaultDetection. Afterwards all survivors know the same faulty
/// ranks, and every rank keeps its identity; `ftsort_is_failed`, `ftsort_executor` and
/// `ftsort_partner` answer by it. Needs no sort: a loop of the caller's own calls it each round. Where
/// such a loop keeps states (`ftsort_store_put`), a round of it begins here: what was put and not
/// committed is forgotten, and the states of the dead come to the ranks that cover them. [C]
///
/// By default the survivors agree and acknowledge on one communicator for life. With
/// `FTSORT_REPAIR_SHRINK`: barrier, agree, revoke, acknowledge, shrink (2024 paper, Section 5.1).
///
/// \param[in,out] group a live group.
/// \param[out] new_faults how many ranks this call found dead; those that `ftsort_run` found are in
/// its statistics and events. May be NULL.
/// \return `FTSORT_OK`, whether there are new faults or not; `FTSORT_ERR_STATE`;
/// `FTSORT_ERR_ARGUMENT` for a NULL group; `FTSORT_ERR_DATA_LOST` where states that were kept are nowhere
/// (the others are in place, and `ftsort_lost_ranks` says whose are lost), `FTSORT_ERR_MEMORY` or
/// `FTSORT_ERR_STORE` where they could not be brought (the next call tries again);
/// `FTSORT_ERR_EXCLUDED`; `FTSORT_ERR_MPI`; `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// `group` is NULL or live; `new_faults` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_fault_check(
    group: *mut ftsort,
    new_faults: *mut usize,
) -> ftsort_status {
    on_group(group, |group| {
        let found = group.check_faults()?;
        // SAFETY: this function's contract.
        if let Some(new_faults) = unsafe { new_faults.as_mut() } {
            *new_faults = found;
        }
        group.with_checkpoints(Checkpoints::begin)
    })
}

/// Agrees on a number: afterwards all survivors hold the bitwise AND of what they brought, and know
/// the same faulty ranks. For decisions of the caller's own, such as whether everybody has written
/// its part. Includes `ftsort_fault_check`. [C]
///
/// \param[in,out] group a live group.
/// \param[in,out] flags this rank's number; then the agreed one. What ranks brought that died
/// meanwhile may be in it or not, but it is so on all survivors alike.
/// \param[out] new_faults how many ranks this call found dead; may be NULL.
/// \return `FTSORT_OK`; `FTSORT_ERR_STATE`; `FTSORT_ERR_ARGUMENT` for NULL; `FTSORT_ERR_MPI`;
/// `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// `group` is NULL or live; `flags` is valid; `new_faults` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_agree(
    group: *mut ftsort,
    flags: *mut u32,
    new_faults: *mut usize,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let flags = unsafe { flags.as_mut() };
        // Nobody may wait in vain for a rank with a wrong argument.
        let own = flags.as_ref().map_or(0, |flags| **flags);
        let (agreed, found) = group.together(|engine| engine.agree_on(own))?;
        // SAFETY: this function's contract.
        if let Some(new_faults) = unsafe { new_faults.as_mut() } {
            *new_faults = found;
        }
        *flags.ok_or_else(|| Error::new(Status::Argument, "flags is NULL"))? = agreed;
        Ok(())
    })
}

/// Kills this process with SIGKILL if the fault schedule says that this rank dies at the start of
/// `round`: the papers' FaultInject, for a loop of the caller's own. (In `ftsort_run` the schedule
/// is followed by itself.) [L]
///
/// \param[in] group a live group.
/// \param[in] round the caller's round; scenarios draw from the rounds 0 to log2(N) + 1.
/// \return `FTSORT_OK` if this rank lives on; `FTSORT_ERR_ARGUMENT`, `FTSORT_ERR_STATE`.
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_inject(group: *mut ftsort, round: u32) -> ftsort_status {
    on_group(group, |group| {
        let rounds = group.members.cube().dimension() + 2;
        let schedule = group.settings.plan.resolve(group.members.ranks(), rounds);
        if schedule.crashes(group.members.me(), round, Point::Begin) {
            group.transport.crash()?;
        }
        Ok(())
    })
}

/// Lends a communicator of the survivors, in ascending order of rank, with MPI_ERRORS_RETURN. Made
/// anew only if faults are new since the last call. Communicator creation is what MPI libraries
/// survive worst: call it at a quiet point, and not more often than needed. [C]
///
/// \param[in,out] group a live group.
/// \param[out] out the communicator; it stays the group's and is valid until the next
/// `ftsort_comm` that finds new faults, or `ftsort_free`. Do not free it.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT`, `FTSORT_ERR_STATE`, `FTSORT_ERR_MPI`,
/// `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// `group` is NULL or live; `out` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_comm(group: *mut ftsort, out: *mut MPI_Comm) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let out = unsafe { out.as_mut() };
        let out = out.ok_or_else(|| Error::new(Status::Argument, "out is NULL"))?;
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
            *out = comm.raw();
        }
        Ok(())
    })
}

/// Frees a group. Not collective, but every survivor does it, before `MPI_Finalize`. Results may
/// outlive their group. With `ftsort_config.trace` the lowest survivor merges what the ranks have
/// written by then; the others may still be writing. [L]
///
/// \param[in] group a group; NULL is a no-op. It must not be used again.
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_free(group: *mut ftsort) {
    if group.is_null() {
        return;
    }
    // SAFETY: it came from Box::into_raw in ftsort_init, and the caller gives it back once.
    let mut group = unsafe { Box::from_raw(group) };
    // What a failing destructor has to say interests nobody any more.
    let _ = caught(|| {
        let trace = group.trace.take();
        group.merge_traces(trace);
        drop(group);
        Ok(())
    });
}

/// Why the last failing call with this group failed: names the argument and the value, the file, or
/// the rank. [L]
///
/// \param[in] group a group; NULL: the last failing `ftsort_init` or `ftsort_record_of_type` of
/// this thread.
/// \return a NUL-terminated string, valid until the next call with this group (or, for NULL, the
/// next of these calls of this thread); empty if nothing failed; never NULL.
///
/// # Safety
/// `group` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_last_error(group: *const ftsort) -> *const c_char {
    // SAFETY: this function's contract.
    match unsafe { group.as_ref() } {
        Some(group) => group.last_error.as_ptr(),
        None => text_without_group(),
    }
}

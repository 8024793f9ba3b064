//! Groups of MPI processes: the Rust interface.
//!
//! [`Group`] is the group of the core over MPI. It is created from a communicator of mpi-sys (rsmpi's
//! `communicator.as_raw()`), and its methods are those of [`ftsort_core::group::Group`]:
//!
//! ```no_run
//! # fn main() -> ftsort::Result<()> {
//! // SAFETY: the process has one thread.
//! unsafe { ftsort::prepare()? };
//! // SAFETY: MPI is initialised once.
//! unsafe { mpi_sys::MPI_Init(std::ptr::null_mut(), std::ptr::null_mut()) };
//! let mut group = ftsort::Group::world()?;
//! let keys = vec![3.0, 1.0, 2.0];
//! let sorted = group.sort_keys(&keys)?; // ranks may fail in here
//! for block in sorted.blocks() {
//!     println!("{}: {:?}", block.offset, block.keys::<f64>()?);
//! }
//! group.leave(0)
//! # }
//! ```

use std::ffi::c_int;
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use mpi_sys::MPI_Comm;

use crate::host::{HostShare, identity, processors};
use crate::launch::{KillTimer, end_process, heartbeats_have_a_thread, missing_settings};
use crate::monitor_thread::{MonitorThread, SystemClocks};
use crate::ulfm::{
    CHUNK, Mpi, SurvivorComm, Ulfm, among_threads, processor_name, require_mpi, ulfm_state,
};
use ftsort_core::group::{
    Argument, Group as CoreGroup, GroupConfig, GroupObserver, LogLevel, MonitorConfig,
    MonitorState, NoObserver, Reload, Services, StoreChoice, TestProcedure,
};
use ftsort_core::members::{Rank, Slot};
use ftsort_core::store::disk::{Disk, FileOptions};
use ftsort_core::transport::mpi_api::MpiApi;
use ftsort_core::transport::{Protocol, ProtocolConfig, Repair, Timeout, Transport};
use ftsort_kernels::error::{Error, Result, Status, refuse};
use ftsort_kernels::kernel::Threads;

/// The transport of a [`Group`].
pub type MpiTransport = Protocol<Mpi>;

/// The configuration of a [`Group`] of MPI processes.
///
/// ```
/// use ftsort::{Config, GroupConfig, Method, PivotRule, Threads};
/// let config = Config {
///     group: GroupConfig {
///         dense: true,
///         method: Some(Method::HyperQuickSort(PivotRule::Sampled)),
///         threads: Threads::Fixed(2),
///         ..GroupConfig::default()
///     },
///     ..Config::default()
/// };
/// let config = config.store_in("/scratch/checkpoints");
/// assert!(config.group.dense);
/// ```
pub struct Config {
    /// The algorithm, the store, limits and checks.
    pub group: GroupConfig,
    /// Accepts an MPI without ULFM; failures are then not tolerated.
    pub accept_no_ulfm: bool,
    /// Communicates on the communicator of the caller, which does not use it until the end of the group, and makes no other
    /// one. So ranks may fail while the group is created. The same on all ranks; not with [`Repair::Shrink`], which would
    /// revoke it.
    pub keep_comm: bool,
    /// Receives events and log lines.
    pub observer: Box<dyn GroupObserver>,
    /// Provides lost inputs again; on all ranks or on none.
    pub reload: Option<Box<dyn Reload>>,
}

impl Default for Config {
    /// The default of [`GroupConfig`], with this rank's share of the processors of its host as threads.
    fn default() -> Config {
        Config {
            group: GroupConfig {
                threads: Threads::OfGroup,
                ..GroupConfig::default()
            },
            accept_no_ulfm: false,
            keep_comm: false,
            observer: Box::new(NoObserver),
            reload: None,
        }
    }
}

impl Config {
    /// Stores versions and states in a directory that all ranks see.
    #[must_use]
    pub fn store_in(self, directory: impl AsRef<Path>) -> Config {
        self.store_in_with(directory, FileOptions::default())
    }

    /// As [`Config::store_in`], with options for the files.
    #[must_use]
    pub fn store_in_with(mut self, directory: impl AsRef<Path>, options: FileOptions) -> Config {
        self.group.store = directory_store(directory.as_ref(), options);
        self
    }

    /// `Status::Argument` if the members contradict each other.
    fn check(&self) -> Result<()> {
        if !self.keep_comm || self.group.repair != Repair::Shrink {
            return Ok(());
        }
        refuse(
            "config.keep_comm is set, but config.repair is FTSORT_REPAIR_SHRINK, which revokes comm at a failure: set \
             config.keep_comm to 0, or config.repair to FTSORT_REPAIR_AGREE",
        )
    }
}

/// A store in a directory of the file system.
pub(crate) fn directory_store(directory: &Path, options: FileOptions) -> StoreChoice {
    let disk = Disk::new(directory, options);
    StoreChoice::Directory(Rc::new(move || Box::new(disk.clone())))
}

/// A group of the processes of an MPI communicator, of which some may fail.
///
/// It communicates on a private communicator and leaves that of the caller unchanged, except with
/// [`Config::keep_comm`]. Its methods are those of [`ftsort_core::group::Group`], and those for MPI below.
pub struct Group {
    /// The monitor must end before the transport.
    monitor: Option<MonitorThread>,
    survivors: Option<SurvivorComm>,
    core: CoreGroup<MpiTransport>,
}

impl Deref for Group {
    type Target = CoreGroup<MpiTransport>;

    fn deref(&self) -> &CoreGroup<MpiTransport> {
        &self.core
    }
}

impl DerefMut for Group {
    fn deref_mut(&mut self) -> &mut CoreGroup<MpiTransport> {
        &mut self.core
    }
}

impl Group {
    /// Creates a group of all processes (MPI_COMM_WORLD) with the default configuration. Collective.
    ///
    /// # Errors
    /// `Status::State` unless MPI is initialised and not finalised; `Status::NoUlfm` without fault tolerance.
    pub fn world() -> Result<Group> {
        Group::world_with_config(Config::default())
    }

    /// As [`Group::world`], with a configuration.
    pub fn world_with_config(config: Config) -> Result<Group> {
        require_mpi()?;
        // SAFETY: a constant of the MPI library, which is initialised.
        unsafe { Group::with_config(mpi_sys::RSMPI_COMM_WORLD, config) }
    }

    /// Creates a group of the ranks of a communicator with the default configuration. Collective.
    ///
    /// # Safety
    /// `comm` is a live intra-communicator, and MPI is not finalised as long as the group exists. With
    /// [`Config::keep_comm`], `comm` lives as long.
    pub unsafe fn new(comm: MPI_Comm) -> Result<Group> {
        // SAFETY: this function's contract.
        unsafe { Group::with_config(comm, Config::default()) }
    }

    /// As [`Group::new`], with a configuration.
    ///
    /// # Safety
    /// As for [`Group::new`].
    pub unsafe fn with_config(comm: MPI_Comm, config: Config) -> Result<Group> {
        // SAFETY: this function's contract.
        unsafe { Group::create(comm, config, None, |_, observer| Ok(observer)) }
    }

    /// As [`Group::with_config`]. With a `refusal` the call fails on all ranks. `observe` may replace the observer
    /// as soon as there is a clock.
    ///
    /// # Safety
    /// As for [`Group::new`].
    pub(crate) unsafe fn create(
        comm: MPI_Comm,
        config: Config,
        refusal: Option<Error>,
        observe: impl FnOnce(&MpiTransport, Box<dyn GroupObserver>) -> Result<Box<dyn GroupObserver>>,
    ) -> Result<Group> {
        require_mpi()?;
        let ulfm = ulfm_state()?;
        // A rank with a wrong configuration uses the communicator that the others use, until they know.
        let keep = refusal.is_none().then_some(config.keep_comm);
        // SAFETY: this function's contract.
        let mut mpi = unsafe { Mpi::new(comm, ulfm, keep)? };
        let is_kept = mpi.is_reused();
        let protocol = protocol_before_agreement(&config.group);
        let answers = if protocol.timeout == Timeout::Never || mpi.ranks() == 1 {
            Ok(())
        } else {
            mpi.answer_probes()
        };
        let mut transport = Protocol::new(mpi, protocol);
        if is_kept {
            // The caller may have acknowledged failures, and agreements report only others.
            let _ = transport.recover(&[])?;
        }
        let checked = refusal.map_or_else(|| config.check(), Err);
        let checked = checked.and_then(|()| config.group.check(transport.ranks()));
        let checked = checked.and_then(|()| {
            let is_missing = ulfm != Ulfm::On && !config.accept_no_ulfm;
            if is_missing {
                Err(no_ulfm(ulfm))
            } else {
                Ok(())
            }
        });
        let observed = checked.and_then(|()| observe(&transport, config.observer));
        let (observer, refusal): (Box<dyn GroupObserver>, _) = match observed {
            Ok(observer) => (observer, None),
            Err(error) => (Box::new(NoObserver), Some(error)),
        };
        let (name, refusal) = match processor_name() {
            Ok(name) => (name, refusal),
            Err(error) => (String::new(), refusal.or(Some(error))),
        };
        let (host, nonce) = identity(&name, transport.me());
        let services = Services {
            host,
            nonce,
            processors: processors(),
            observer,
            budget: Box::new(HostShare::new()),
            reload: config.reload,
            kill_timer: |time| Box::new(KillTimer::start(time)),
        };
        let mut core = CoreGroup::new_checked(transport, config.group, services, refusal)?;
        log_settings(&mut core, ulfm);
        if let Err(error) = answers {
            let text = format!(
                "a stopped rank is noticed only by a timeout that is set: {}",
                error.text
            );
            core.log(LogLevel::Warning, &text);
        }
        Ok(Group {
            monitor: None,
            survivors: None,
            core,
        })
    }

    /// Lends a communicator of the survivors, in ascending order of rank. It is created anew only after new
    /// failures, and stays valid until then. Collective.
    ///
    /// # Errors
    /// `Status::State` where MPI cannot make it on some rank. The group stays usable.
    pub fn survivor_comm(&mut self) -> Result<MPI_Comm> {
        self.survivor_comm_checked(Ok(()))
    }

    /// As [`Group::survivor_comm`], for a caller that may have found an invalid argument.
    pub(crate) fn survivor_comm_checked(&mut self, argument: Result<()>) -> Result<MPI_Comm> {
        self.core.all_or_none(argument)?;
        loop {
            // A rank may have failed after the creation, and before the agreement on it.
            let survivors = self.core.members().survivors().count();
            if let Some(current) = &self.survivors
                && current.len() == survivors
            {
                return Ok(current.raw());
            }
            if let Some(mut old) = self.survivors.take() {
                old.leave_to_mpi();
            }
            let fresh = self.core.transport().mpi().shrunk();
            let outcome = fresh.as_ref().map(|_| ());
            let outcome = outcome.map_err(|error| apart_from_group(error, ANOTHER_COMM));
            match (self.core.all_or_none(outcome), fresh) {
                (Ok(()), fresh) => self.survivors = Some(fresh?),
                (Err(error), fresh) => {
                    // Freeing it is collective, and a rank has none.
                    let _ = fresh.map(|mut fresh| fresh.leave_to_mpi());
                    return Err(error);
                }
            }
        }
    }

    /// Returns the rank of a group's rank in the last communicator of survivors.
    pub fn survivor_slot(&self, rank: Rank) -> Option<Slot> {
        self.survivors.as_ref()?.slot(rank)
    }

    /// Starts a monitor that proposes the placement of later jobs. `test` replaces the paper's test procedure.
    /// Collective.
    pub fn start_monitor(
        &mut self,
        config: impl Argument<MonitorConfig>,
        test: Option<TestProcedure>,
    ) -> Result<Arc<MonitorState>> {
        let config = config.into_result();
        let interval = config
            .as_ref()
            .map_or(0.0, |config| config.options.interval);
        let (state, thread) = self.core.start_monitor(
            config,
            among_threads(),
            test,
            Box::new(SystemClocks),
            |transport, limit| {
                let datagrams = transport.mpi().datagram(limit);
                datagrams.map_err(|error| apart_from_group(&error, ANOTHER_COMM))
            },
            |state, datagrams| MonitorThread::start(state, datagrams, interval),
        )?;
        self.monitor = thread;
        Ok(state)
    }

    /// Stops the monitor: all survivors execute their nodes again. Collective.
    pub fn stop_monitor(&mut self) -> Result<()> {
        self.monitor = None;
        self.core.stop_monitor()
    }

    /// Waits for the other survivors, removes the stored data of the group, and stops the monitor. Returns
    /// whether MPI_Finalize returns. Collective.
    pub(crate) fn finish_before_exit(&mut self) -> Result<bool> {
        let no_failures = self.core.finish()?;
        self.monitor = None;
        if !no_failures {
            return Ok(false);
        }
        // MPI_Finalize waits for ranks outside of the group too. Other ranks wait for this agreement.
        let sees_failures = self.core.transport().mpi().has_world_failures();
        let may_finalize = !sees_failures.unwrap_or(true) && !heartbeats_have_a_thread();
        // A rank may fail in the agreement itself.
        let (all_may, failures) = self.core.agree(may_finalize.into())?;
        Ok(all_may == 1 && failures == 0)
    }

    /// Ends the process. It replaces `exit` and MPI_Finalize, which can wait for failed ranks without end.
    /// Collective.
    pub fn leave(mut self, exit_code: i32) -> ! {
        let may_finalize = self.finish_before_exit().unwrap_or(false);
        let _ = std::io::stdout().flush();
        let release = || {
            drop(self);
            Ok(())
        };
        end_process(may_finalize, release, exit_code as c_int)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(survivors) = &mut self.survivors
            && self.core.transport().mpi().is_faulty()
        {
            survivors.leave_to_mpi();
        }
    }
}

/// See [`apart_from_group`].
const ANOTHER_COMM: &str = "make another communicator";

/// Returns the error of a call of MPI that does not use the communicator of the group. The group's own communication goes
/// on, so an error of MPI does not separate this rank from the others. `purpose`: what MPI cannot do.
pub(crate) fn apart_from_group(error: &Error, purpose: &str) -> Error {
    match error.status {
        Status::Mpi => Error::new(
            Status::State,
            format!("MPI cannot {purpose}: {}", error.text),
        ),
        _ => error.clone(),
    }
}

/// The settings of the protocol as long as the ranks have not agreed on the configuration.
fn protocol_before_agreement(config: &GroupConfig) -> ProtocolConfig {
    ProtocolConfig {
        // In a barrier, a rank would wait without end for ranks with another configuration.
        repair: Repair::Agree,
        chunk: CHUNK,
        timeout: match config.repair {
            // The ranks agree on the refusal of a timeout that is no time.
            Repair::Agree if config.timeout.check().is_err() => Timeout::Default,
            Repair::Agree => config.timeout,
            Repair::Shrink => Timeout::Never,
        },
        fan_out: ProtocolConfig::FAN_OUT,
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

/// Logs the settings for fault tolerance that are missing, as far as this process can see.
fn log_settings(group: &mut CoreGroup<MpiTransport>, ulfm: Ulfm) {
    if ulfm != Ulfm::On {
        group.log(LogLevel::Warning, "this MPI does not tolerate failures");
        return;
    }
    for (name, value) in missing_settings() {
        let text = format!(
            "the environment lacks {name}={value}: unless a parameter file has it, ranks may hang or crash after \
             a failure; call ftsort_prepare before MPI_Init, or start with ftsort-mpirun"
        );
        group.log(LogLevel::Warning, &text);
    }
    group.log(LogLevel::Information, "the group is ready");
}

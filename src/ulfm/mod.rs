//! The implementation of [`MpiApi`] over MPI with ULFM: each call is one or two calls of MPI, made safe.
//!
//! Must never: touch the user's communicator after it was copied, or look at anything but the class of an MPI
//! error.

mod comm;
mod ext;

mod datagram;
mod requests;
mod seen_failures;
mod turn;

pub use comm::{ErrorsReturned, check, text_of};
pub use datagram::DatagramChannel;
pub use ext::COMPILED_IN;
pub use turn::leave;

use std::convert::Infallible;
use std::ffi::c_int;
use std::ops::Range;
use std::time::Instant;

use mpi_sys::MPI_Comm;

use crate::liveness::GroupLiveness;
use comm::{Comm, Group};
use ftsort_core::members::{Rank, RankSet, Slot};
use ftsort_core::transport::mpi_api::{Look, MpiApi, Outcome, RecvBuffer, Request, Tag};
use ftsort_core::transport::watch::{
    Activity, CONTACT_BYTES, Contact, Liveness, SignsOfLife, Watch,
};
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status, refuse};
use requests::{Peer, Requests};
use seen_failures::SeenFailures;

/// The greatest size of the messages in which payloads travel: far below the limit of MPI's int counts, and
/// the size at which the exchange between two ranks is fastest.
pub const CHUNK: usize = 4 << 20;

/// Whether this MPI, in this run, tolerates failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ulfm {
    /// Compiled in and switched on.
    On,
    /// Compiled in, but `mpirun` was started without it.
    SwitchedOff,
    /// Not available when the library was built.
    Absent,
}

/// One rank's view of an MPI communicator.
pub struct Mpi {
    me: Rank,
    ulfm: Ulfm,
    /// The processes of the user's communicator, the reference for ranks.
    everyone: Group,
    ranks: usize,
    comm: Comm,
    /// Whether the caller may use the communicator for another group later.
    is_kept: bool,
    /// Communicators from before a shrink. Freeing one right after a recovery crashes survivors.
    retired: Vec<Comm>,
    /// The position of each rank in `comm`, if it has one.
    position: Vec<Option<c_int>>,
    /// A rank has failed since the communicator was made.
    faulty: bool,
    requests: Requests,
    seen: SeenFailures,
    started: Instant,
    /// None: other ranks cannot probe this one.
    liveness: Option<GroupLiveness>,
}

/// Returns whether fault tolerance is available. MPI must be initialised.
pub fn ulfm_state() -> Result<Ulfm> {
    if !ext::COMPILED_IN {
        return Ok(Ulfm::Absent);
    }
    if ext::FT_KEYVAL < 0 {
        return Ok(Ulfm::On);
    }
    let mut value: *mut c_int = std::ptr::null_mut();
    let mut found: c_int = 0;
    // SAFETY: MPI_Comm_get_attr stores a pointer to an int for the predefined attributes.
    let code = unsafe {
        mpi_sys::MPI_Comm_get_attr(
            mpi_sys::RSMPI_COMM_WORLD,
            ext::FT_KEYVAL,
            std::ptr::from_mut(&mut value).cast(),
            &mut found,
        )
    };
    check(code, "MPI_Comm_get_attr")?;
    // SAFETY: where `found` is set, `value` points to an int of the MPI library's.
    let on = found != 0 && !value.is_null() && unsafe { *value } != 0;
    Ok(if on { Ulfm::On } else { Ulfm::SwitchedOff })
}

fn thread_level() -> Result<c_int> {
    let mut level: c_int = 0;
    // SAFETY: a place for one int; MPI is initialised.
    let code = unsafe { mpi_sys::MPI_Query_thread(&mut level) };
    check(code, "MPI_Query_thread")?;
    Ok(level)
}

/// Returns whether several threads may call MPI at once.
pub fn among_threads() -> Result<bool> {
    Ok(thread_level()? == mpi_sys::MPI_THREAD_MULTIPLE as c_int)
}

/// Checks that MPI can be called. `Status::State` before MPI_Init and after MPI_Finalize.
pub fn require_mpi() -> Result<()> {
    let (mut initialized, mut finalized): (c_int, c_int) = (0, 0);
    // SAFETY: both may be called at any time.
    unsafe {
        mpi_sys::MPI_Initialized(&mut initialized);
        mpi_sys::MPI_Finalized(&mut finalized);
    }
    let refused = |text: &str| Err(Error::new(Status::State, text));
    if initialized == 0 {
        refused("MPI is not initialised: call MPI_Init or MPI_Init_thread first")
    } else if finalized != 0 {
        refused("MPI is finalised: call this function before MPI_Finalize")
    } else {
        Ok(())
    }
}

/// The name of this process's host, as MPI knows it: the same on all ranks of a host.
pub fn processor_name() -> Result<String> {
    // SAFETY: the buffer has the length that MPI demands.
    let (code, name) = text_of(mpi_sys::MPI_MAX_PROCESSOR_NAME, |name, length| unsafe {
        mpi_sys::MPI_Get_processor_name(name, length)
    });
    check(code, "MPI_Get_processor_name")?;
    Ok(name.to_string_lossy().into_owned())
}

/// Returns the first line of the MPI library's version text.
pub fn library_version() -> String {
    let most = mpi_sys::MPI_MAX_LIBRARY_VERSION_STRING;
    // SAFETY: the buffer has the length that MPI demands; the call is allowed at any time.
    let (_, text) = text_of(most, |text, length| unsafe {
        mpi_sys::MPI_Get_library_version(text, length)
    });
    let text = text.to_string_lossy();
    text.lines().next().unwrap_or_default().trim().to_string()
}

impl Mpi {
    /// Returns whether this rank has seen a process of MPI_COMM_WORLD fail, which may be in no group of this rank.
    pub fn has_world_failures(&self) -> Result<bool> {
        if self.ulfm != Ulfm::On {
            return Ok(false);
        }
        let _turn = self.comm.turn();
        // SAFETY: a constant of the MPI library.
        let world = unsafe { mpi_sys::RSMPI_COMM_WORLD };
        Ok(comm::failed_of(world)?.len()? > 0)
    }

    /// Makes a private communicator of the survivors of `comm`, or keeps `comm` itself; of its members all are taken for
    /// survivors then. `keep`: None for what the other ranks do. Collective over the survivors.
    ///
    /// # Errors
    /// `Status::Argument` on all ranks if some keep `comm` and others do not, or it is to be kept and was revoked.
    ///
    /// # Safety
    ///
    /// MPI is initialised and not finalised; `comm` is a live intra-communicator. If it is kept, it lives until the end, and
    /// the caller does not use it.
    pub unsafe fn new(comm: MPI_Comm, ulfm: Ulfm, keep: Option<bool>) -> Result<Mpi> {
        const KEEP: u32 = 1;
        const COPY: u32 = 2;
        const ANY: u32 = KEEP | COPY;
        let (mut rank, mut ranks): (c_int, c_int) = (0, 0);
        // SAFETY: the caller's contract.
        unsafe {
            check(mpi_sys::MPI_Comm_rank(comm, &mut rank), "MPI_Comm_rank")?;
            check(mpi_sys::MPI_Comm_size(comm, &mut ranks), "MPI_Comm_size")?;
        }
        let everyone = Group::of(comm)?;
        let errors = ErrorsReturned::of(comm)?;
        let wish = match keep {
            Some(true) if comm::is_revoked(comm)? => 0,
            Some(true) => KEEP,
            Some(false) => COPY,
            None => ANY,
        };
        let agreed = comm::agree_before_creation(comm, wish)?;
        let own = match agreed {
            KEEP => Comm::of_caller(comm, errors)?,
            COPY | ANY => Comm::create(comm, ulfm == Ulfm::On, c"ftsort")?,
            _ => {
                return refuse(
                    "config.keep_comm differs between ranks, or is not 0 although comm was revoked: set it to 0 on all \
                     ranks, or on none",
                );
            }
        };
        let position = own.positions_of(&everyone, ranks as usize)?;
        Ok(Mpi {
            me: Rank(rank as u32),
            ulfm,
            everyone,
            ranks: ranks as usize,
            comm: own,
            is_kept: agreed == KEEP,
            retired: Vec::new(),
            position,
            faulty: false,
            requests: Requests::default(),
            seen: SeenFailures::new(ranks as usize),
            started: Instant::now(),
            liveness: None,
        })
    }

    /// Whether a rank has failed since the communicator was made. Then communicators are left to MPI_Finalize at the end,
    /// because freeing one right after a recovery crashes survivors.
    pub fn is_faulty(&self) -> bool {
        self.faulty
    }

    /// Lets other ranks probe this one, once they have its contact. `Status::State` if the system refuses it.
    pub fn answer_probes(&mut self) -> Result<()> {
        self.liveness = Some(GroupLiveness::new(self.me, self.started)?);
        Ok(())
    }

    /// Makes a communicator of the survivors for the user, with the position of each survivor in it.
    /// Collective; to be called at a quiet point, right after an agreement.
    pub fn shrunk(&self) -> Result<SurvivorComm> {
        let mut comm = Comm::survivors_of(self.comm.raw(), ext::COMPILED_IN, c"ftsort survivors")?;
        let position = comm.positions_of(&self.everyone, self.ranks);
        let position = position.inspect_err(|_| comm.leave_to_mpi())?;
        let survivors = Rank::all(self.ranks).filter(|rank| position[rank.index()].is_some());
        Ok(SurvivorComm {
            survivors: RankSet::of(self.ranks, survivors),
            comm,
        })
    }

    fn peer(&self, rank: Rank, tag: Tag) -> Result<Peer> {
        let place = self.position.get(rank.index()).copied().flatten();
        let place = place.ok_or_else(|| {
            Error::internal(format!(
                "rank {rank} is not in the communicator, but a message names it"
            ))
        })?;
        Ok(Peer {
            place,
            tag: tag.0 as c_int,
        })
    }

    fn ranks_of(&self, group: &Group) -> Result<RankSet> {
        let positions: Vec<c_int> = (0..group.len()? as c_int).collect();
        let ranks = group.translate(&positions, &self.everyone)?;
        let known = ranks.into_iter().filter(|rank| *rank >= 0);
        Ok(RankSet::of(self.ranks, known.map(|rank| Rank(rank as u32))))
    }
}

/// A communicator of survivors, lent to the user.
pub struct SurvivorComm {
    comm: Comm,
    survivors: RankSet,
}

impl SurvivorComm {
    /// The handle, still owned by this object.
    pub fn raw(&self) -> MPI_Comm {
        self.comm.raw()
    }

    /// The number of survivors in it.
    pub fn len(&self) -> usize {
        self.survivors.len()
    }

    /// Returns false: the rank that made it is in it.
    pub fn is_empty(&self) -> bool {
        self.survivors.is_empty()
    }

    /// Leaves it to MPI_Finalize: other ranks may still use it, or fail.
    pub fn leave_to_mpi(&mut self) {
        self.comm.leave_to_mpi();
    }

    /// The rank's position in it.
    pub fn slot(&self, rank: Rank) -> Option<Slot> {
        let place = self.survivors.place_of(rank);
        place.map(|place| Slot(place as u32))
    }
}

impl Liveness for Mpi {
    fn contact(&self) -> Contact {
        let liveness = self.liveness.as_ref();
        liveness.map_or([0; CONTACT_BYTES], GroupLiveness::contact)
    }

    fn meet(&mut self, contacts: &[(Rank, Contact)]) {
        if let Some(liveness) = &self.liveness {
            liveness.meet(self.ranks, contacts);
        }
    }

    fn publish(&mut self, activity: Activity) {
        if activity == Activity::Left {
            comm::leave_all_to_mpi();
        }
        if let Some(liveness) = &self.liveness {
            liveness.publish(activity);
        }
    }

    fn probe(&mut self, rank: Rank) {
        if let Some(liveness) = &self.liveness {
            liveness.probe(rank);
        }
    }

    fn signs_of_life(&self, rank: Rank) -> SignsOfLife {
        let liveness = self.liveness.as_ref();
        liveness.map_or(SignsOfLife::default(), |liveness| {
            liveness.signs_of_life(rank)
        })
    }

    fn seen_failures(&mut self) -> Result<RankSet> {
        let turn = self.comm.turn();
        let failed = self.comm.failed()?;
        drop(turn);
        self.ranks_of(&failed)
    }
}

impl MpiApi for Mpi {
    fn me(&self) -> Rank {
        self.me
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn absent(&self) -> RankSet {
        RankSet::of(
            self.ranks,
            Rank::all(self.ranks).filter(|rank| self.position[rank.index()].is_none()),
        )
    }

    fn is_reused(&self) -> bool {
        self.is_kept
    }

    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn add_buffer(&mut self, bytes: usize) -> Result<RecvBuffer> {
        self.requests.add_buffer(bytes)
    }

    fn take_buffer(&mut self, buffer: RecvBuffer, bytes: usize) -> Slice {
        let mut buffer = self.requests.take_buffer(buffer);
        buffer.truncate(bytes);
        buffer.into()
    }

    fn release(&mut self, buffer: RecvBuffer) {
        self.requests.release(buffer);
    }

    fn send(&mut self, to: Rank, tag: Tag, payload: Slice) -> Result<Request> {
        let peer = self.peer(to, tag)?;
        self.seen.addressed(to);
        let _turn = self.comm.turn();
        self.requests.send(&self.comm, peer, payload)
    }

    fn receive(
        &mut self,
        from: Rank,
        tag: Tag,
        buffer: RecvBuffer,
        range: Range<usize>,
    ) -> Result<Request> {
        let peer = self.peer(from, tag)?;
        self.seen.addressed(from);
        let _turn = self.comm.turn();
        self.requests.receive(&self.comm, peer, buffer, range)
    }

    fn test(&mut self, request: Request) -> Result<Look> {
        self.seen.progressed();
        let _turn = self.comm.turn();
        self.requests.test(request)
    }

    fn cancel(&mut self, request: Request) -> Result<()> {
        self.seen.progressed();
        let _turn = self.comm.turn();
        self.requests.cancel(request)
    }

    fn abandon(&mut self, request: Request) {
        self.requests.abandon(request);
    }

    fn rest(&mut self) -> Result<()> {
        // With more ranks than processors, the process that sends the awaited message needs this one.
        std::thread::yield_now();
        Ok(())
    }

    fn failures(&mut self, receiver: Option<Rank>) -> Result<usize> {
        let known = match receiver {
            Some(rank) => self.seen.before_send(rank),
            None => self.seen.while_waiting(self.now()),
        };
        if let Some(count) = known {
            return Ok(count);
        }
        let turn = self.comm.turn();
        let began = self.now();
        let count = self.comm.failed()?.len()?;
        drop(turn);
        // Another thread of the program may make progress at any time.
        let for_sends = receiver.is_some() && !self.comm.among_threads();
        self.seen.store(count, (began, self.now()), for_sends);
        Ok(count)
    }

    fn acknowledge(&mut self) -> Result<RankSet> {
        self.seen.progressed();
        let turn = self.comm.turn();
        let failed = self.comm.acknowledge()?;
        drop(turn);
        let failed = self.ranks_of(&failed)?;
        self.faulty |= !failed.is_empty();
        Ok(failed)
    }

    fn agree(&mut self, flag: u32, mut watch: Option<&mut Watch>) -> Result<(Outcome, u32)> {
        const SPINS: u32 = 100;
        self.seen.progressed();
        // Without a timeout, the blocking call is used, with which MPI libraries are tested. Without ULFM the two calls are
        // reductions that do not match each other, and other ranks may have a timeout or threads.
        if watch.is_none() && !self.comm.among_threads() && self.ulfm == Ulfm::On {
            return self.comm.agree(flag);
        }
        let turn = self.comm.turn();
        let mut agreement = self.comm.start_agreement(flag)?;
        drop(turn);
        let mut tests = 0;
        loop {
            let turn = self.comm.turn();
            let agreed = agreement.test()?;
            drop(turn);
            if let Some(agreed) = agreed {
                return Ok(agreed);
            }
            // Most agreements end within microseconds, and MPI itself yields if there are more ranks than processors.
            tests += 1;
            if tests < SPINS {
                continue;
            }
            if let Some(watch) = &mut watch {
                let now = self.now();
                if watch.is_due(now) {
                    watch.look(self, now)?;
                }
            }
            std::thread::yield_now();
        }
    }

    fn barrier(&mut self) -> Result<Outcome> {
        self.seen.progressed();
        self.comm.barrier()
    }

    fn revoke(&mut self) -> Result<()> {
        self.seen.progressed();
        let _turn = self.comm.turn();
        self.comm.revoke()
    }

    fn shrink(&mut self) -> Result<RankSet> {
        let smaller = Comm::survivors_of(self.comm.raw(), true, c"ftsort")?;
        self.position = smaller.positions_of(&self.everyone, self.ranks)?;
        self.retired
            .push(std::mem::replace(&mut self.comm, smaller));
        self.seen = SeenFailures::new(self.ranks);
        self.faulty = true;
        Ok(self.absent())
    }

    fn crash(&mut self) -> Result<Infallible> {
        // SAFETY: a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        loop {
            std::thread::park();
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if self.is_faulty() {
            self.retired.iter_mut().for_each(Comm::leave_to_mpi);
            self.comm.leave_to_mpi();
        }
    }
}

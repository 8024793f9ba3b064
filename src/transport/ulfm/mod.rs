//! The transport over MPI with ULFM: protocol C.
//!
//! One communicator is made once and never repaired. Survivors agree on it, acknowledge failures on
//! it, and keep their ranks. Nothing is created, revoked or shrunk while ranks die, because Open
//! MPI's communicator creation crashes survivors when a failure notice arrives within it. The
//! papers' own sequence, which shrinks at every fault, is here too ([`Repair::Shrink`]), for
//! comparison.
//!
//! Must never: receive from any source, send to a rank known to be dead, touch the user's
//! communicator after it was copied, or look at anything but the class of an MPI error.

mod comm;
mod ext;

pub use ext::COMPILED_IN;

mod repair;
mod requests;

use std::convert::Infallible;
use std::ffi::{CStr, c_char, c_int};
use std::time::Instant;

use mpi_sys::MPI_Comm;

use crate::buffer::{Buffer, Slice};
use crate::error::{Error, Result, Status};
use crate::members::{Rank, RankSet, Slot, SlotMap};
use crate::transport::{Agreed, Flow, Ticket, Transport};
use comm::{Comm, Group};
use requests::Requests;

/// Payloads travel in messages of at most this size: one short of MPI's int counts by far, and the
/// size at which the exchange between two ranks is fastest.
const CHUNK: usize = 4 << 20;

/// How the survivors come to know the same dead ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Agree and acknowledge on one communicator for life.
    Agree,
    /// The papers' FaultDetection: barrier, agree, revoke, acknowledge, shrink, same identities.
    Shrink,
}

/// Whether this MPI, in this run, survives faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ulfm {
    /// Compiled in and switched on.
    On,
    /// Compiled in, but `mpirun` was started without it.
    SwitchedOff,
    /// Not there when the library was built.
    Absent,
}

/// The transport over one MPI communicator.
pub struct Mpi {
    me: Rank,
    /// The processes of the user's communicator, the reference for ranks.
    everyone: Group,
    ranks: usize,
    comm: Comm,
    /// Communicators from before a shrink. Freeing one right after a repair crashes survivors.
    retired: Vec<Comm>,
    /// Where each rank is in `comm`; None: dead.
    position: Vec<Option<c_int>>,
    dead: RankSet,
    /// The failures in `comm` that everybody knows of already.
    known_failures: usize,
    /// A message was not sent because somebody is dead; the next wait says so.
    unsent: bool,
    /// Repairs so far: keeps the messages of different epochs apart.
    epoch: u32,
    repair: Repair,
    requests: Requests,
    started: Instant,
}

/// Is fault tolerance there? MPI must be initialised.
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
    comm::check(code, "MPI_Comm_get_attr")?;
    // SAFETY: where `found` is set, `value` points to an int of the MPI library's.
    let on = found != 0 && !value.is_null() && unsafe { *value } != 0;
    Ok(if on { Ulfm::On } else { Ulfm::SwitchedOff })
}

/// The first line of what the MPI library says of itself.
pub fn library_version() -> String {
    let mut text = [0 as c_char; mpi_sys::MPI_MAX_LIBRARY_VERSION_STRING as usize + 1];
    let mut length: c_int = 0;
    // SAFETY: the buffer is as long as MPI demands, with one character more for the end; the call is
    // allowed at any time.
    let text = unsafe {
        mpi_sys::MPI_Get_library_version(text.as_mut_ptr(), &mut length);
        CStr::from_ptr(text.as_ptr())
    };
    let text = text.to_string_lossy();
    text.lines().next().unwrap_or_default().trim().to_string()
}

impl Mpi {
    /// A private communicator of the survivors of `comm`. Collective over them.
    ///
    /// # Safety
    /// MPI is initialised and not finalised; `comm` is a live intra-communicator.
    pub unsafe fn new(comm: MPI_Comm, ulfm: Ulfm, repair: Repair) -> Result<Mpi> {
        let (mut rank, mut ranks): (c_int, c_int) = (0, 0);
        // SAFETY: the caller's contract.
        unsafe {
            comm::check(mpi_sys::MPI_Comm_rank(comm, &mut rank), "MPI_Comm_rank")?;
            comm::check(mpi_sys::MPI_Comm_size(comm, &mut ranks), "MPI_Comm_size")?;
        }
        let everyone = Group::of(comm)?;
        let own = Comm::survivors_of(comm, ulfm == Ulfm::On, c"ftsort")?;
        let position = own.positions_of(&everyone, ranks as usize)?;
        Ok(Mpi {
            me: Rank(rank as u32),
            dead: dead_in(&position),
            everyone,
            ranks: ranks as usize,
            comm: own,
            retired: Vec::new(),
            position,
            known_failures: 0,
            unsent: false,
            epoch: 0,
            repair,
            requests: Requests::new(CHUNK),
            started: Instant::now(),
        })
    }

    /// The ranks that were dead before this transport was made.
    pub fn dead(&self) -> &RankSet {
        &self.dead
    }

    /// A communicator of the survivors for the user, and which slot each of them has in it.
    /// Collective; call it at a quiet point, right after an agreement.
    pub fn shrunk(&self) -> Result<SurvivorComm> {
        let comm = Comm::survivors_of(self.comm.raw(), ext::COMPILED_IN, c"ftsort survivors")?;
        let position = comm.positions_of(&self.everyone, self.ranks)?;
        let survivors = (0..self.ranks as u32)
            .map(Rank)
            .filter(|rank| position[rank.index()].is_some());
        Ok(SurvivorComm {
            slots: SlotMap::new(survivors),
            comm,
        })
    }

    /// Where a rank that the engine believes to be alive is in the communicator.
    fn position_of(&self, rank: Rank) -> Result<c_int> {
        self.position
            .get(rank.index())
            .copied()
            .flatten()
            .ok_or_else(|| {
                Error::new(
                    Status::Internal,
                    format!("rank {rank} is dead, but a message names it"),
                )
            })
    }

    /// Failures that this rank sees and that are not agreed on yet.
    fn sees_new_failures(&self) -> Result<bool> {
        Ok(self.comm.failed()?.len()? > self.known_failures)
    }
}

/// The ranks that have no place in a communicator.
fn dead_in(position: &[Option<c_int>]) -> RankSet {
    let ranks = (0..position.len() as u32).map(Rank);
    RankSet::from_ranks(
        position.len(),
        ranks.filter(|rank| position[rank.index()].is_none()),
    )
}

/// A communicator of survivors, lent to the user.
pub struct SurvivorComm {
    comm: Comm,
    slots: SlotMap,
}

impl SurvivorComm {
    /// The handle; it stays ours.
    pub fn raw(&self) -> MPI_Comm {
        self.comm.raw()
    }

    /// How many survivors are in it.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Never: who made it is in it.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Do not free it; others may still use it, or die.
    pub fn leave_to_mpi(&mut self) {
        self.comm.leave_to_mpi();
    }

    /// The rank's place in it.
    pub fn slot(&self, rank: Rank) -> Option<Slot> {
        self.slots.slot_of(rank)
    }
}

impl Transport for Mpi {
    fn me(&self) -> Rank {
        self.me
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn send(&mut self, to: Rank, payload: Slice) -> Result<()> {
        let place = self.position_of(to)?;
        // Open MPI has forgotten the way to a process that it has seen die, and dereferences NULL in
        // a large send to it. It learns of deaths only while it makes progress, so between this look
        // and the send nothing changes.
        self.unsent |= self.sees_new_failures()?;
        if self.unsent {
            return Ok(());
        }
        self.requests
            .send(&self.comm, to, place, self.epoch, payload)
    }

    fn receive(&mut self, from: Rank, capacity: usize) -> Result<Ticket> {
        let place = self.position_of(from)?;
        self.requests
            .receive(&self.comm, from, place, self.epoch, capacity)
    }

    fn discard(&mut self, from: Rank, length: usize) -> Result<()> {
        let place = self.position_of(from)?;
        self.requests
            .discard(&self.comm, from, place, self.epoch, length)
    }

    fn longest_short(&self) -> usize {
        CHUNK
    }

    fn settle(&mut self) -> Result<Flow> {
        const LOOK_EVERY: f64 = 0.001;
        if self.unsent {
            return Ok(Flow::Interrupted);
        }
        let mut looked = self.now();
        while !self.requests.is_settled() {
            let before = self.requests.open();
            if self.requests.poll()? == comm::Outcome::Failed {
                return Ok(Flow::Interrupted);
            }
            if self.requests.open() < before {
                continue;
            }
            if self.now() - looked > LOOK_EVERY {
                looked = self.now();
                if self.sees_new_failures()? {
                    return Ok(Flow::Interrupted);
                }
            }
            // With more ranks than processors somebody else has the message.
            std::thread::yield_now();
        }
        Ok(Flow::Done)
    }

    fn take(&mut self, ticket: Ticket) -> Buffer {
        self.requests.take(ticket)
    }

    fn agree(&mut self, flag: u32) -> Result<Agreed> {
        match self.repair {
            Repair::Agree => repair::agree(&self.comm, flag),
            Repair::Shrink => repair::agree_after_barrier(&self.comm, flag),
        }
    }

    fn recover(&mut self) -> Result<RankSet> {
        match self.repair {
            Repair::Agree => self.agree_on_the_dead()?,
            Repair::Shrink => self.shrink_to_survivors()?,
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.unsent = false;
        Ok(self.dead.clone())
    }

    fn crash(&mut self) -> Result<Infallible> {
        // SAFETY: a signal to this very process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        loop {
            std::thread::park();
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // A communicator in which ranks have died is safer left to MPI_Finalize.
        if !self.dead.is_empty() {
            self.retired.iter_mut().for_each(Comm::leave_to_mpi);
            self.comm.leave_to_mpi();
        }
    }
}

//! The sort itself.

use std::ffi::{c_int, c_void};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::config::{ftsort_buffer, ftsort_reload_fn};
use super::group::ftsort;
use super::guard::on_group;
use super::memory::limit_memory;
use super::record::{ftsort_record, read_layout};
use super::result::ftsort_result;
use super::settings::agree_on_equal;
use super::status::ftsort_status;
use crate::buffer::{self, Buffer};
use crate::engine::{Job, Source, Stats};
use crate::error::{Error, Result, Status};
use crate::kernel::kernel_for;
use crate::members::{Rank, RankSet};
use crate::record::Layout;
use crate::sort::HyperQuickSort;
use crate::transport::Transport;

/// Sorts the records of all ranks together. [C]
///
/// The result is the same multiset in ascending order: it goes on from block to block in ascending
/// order of node, and each survivor gets the blocks of the nodes that it executes: its own, and
/// those of the nodes that it covers. Ranks may die at any moment, up to all but one; what is lost
/// then depends on the store (see `ftsort_store`): `FTSORT_ERR_DATA_LOST` on every survivor, and
/// `ftsort_lost_ranks` says whose. The group stays usable, after any status but `FTSORT_ERR_MPI` and
/// `FTSORT_ERR_INTERNAL`. A rank that was known to be dead before the call has no input: the
/// survivors divide the work anew before they call again. Once this function has returned `FTSORT_OK`
/// the result is the caller's to look after: a rank that dies afterwards takes its blocks with it.
///
/// \param[in,out] group a live group.
/// \param[in] record what is sorted; borrowed for the call.
/// \param[in] input this rank's records; not changed; any alignment. NULL if `count` is 0.
/// \param[in] count how many records; may differ between ranks.
/// \param[out] out the result, to be freed with `ftsort_result_free`; NULL after a failure.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (also where `record` is not the same on all ranks),
/// `FTSORT_ERR_PEER_ARGUMENT`, `FTSORT_ERR_STATE`, `FTSORT_ERR_MEMORY`, `FTSORT_ERR_STORE`,
/// `FTSORT_ERR_CALLBACK`, `FTSORT_ERR_DATA_LOST`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
///
/// # Safety
/// The pointers are NULL or valid, `input` for `count` records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_run(
    group: *mut ftsort,
    record: *const ftsort_record,
    input: *const c_void,
    count: usize,
    out: *mut *mut ftsort_result,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        let out = unsafe { out.as_mut() };
        limit_memory(group.settings.memory_limit, group.settings.ranks_on_host);
        // SAFETY: this function's contract.
        let prepared = unsafe { prepare(record, input, count, out.is_some()) };
        let result = group.sort(prepared);
        if let Some(out) = out {
            *out = std::ptr::null_mut();
            *out = Box::into_raw(Box::new(result?));
            return Ok(());
        }
        result.map(|_| ())
    })
}

/// The arguments, checked, and a copy of the input.
struct Prepared {
    layout: Layout,
    input: Buffer,
}

/// # Safety
/// As for [`ftsort_run`].
unsafe fn prepare(
    record: *const ftsort_record,
    input: *const c_void,
    count: usize,
    has_out: bool,
) -> Result<Prepared> {
    let refuse = |text: String| Error::new(Status::Argument, text);
    if !has_out {
        return Err(refuse("out is NULL".into()));
    }
    // SAFETY: the caller's contract.
    let layout = unsafe { read_layout(record)? };
    let bytes = count
        .checked_mul(layout.record_bytes())
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or_else(|| refuse(format!("count is {count}, more than memory can hold")))?;
    if input.is_null() && count > 0 {
        return Err(refuse(format!("input is NULL, but count is {count}")));
    }
    buffer::start_peak();
    let input = match bytes {
        0 => Buffer::default(),
        // SAFETY: not NULL, and valid for `count` records by the caller's contract.
        _ => Buffer::copy_of(unsafe { std::slice::from_raw_parts(input.cast(), bytes) })?,
    };
    Ok(Prepared { layout, input })
}

impl ftsort {
    fn sort(&mut self, prepared: Result<Prepared>) -> Result<ftsort_result> {
        self.stats = Stats::default();
        self.lost = RankSet::new(self.members.ranks());
        let absent = self.members.faulty().clone();
        let start = self.transport.now();
        let rounds = self.members.cube().dimension() + 2;
        let schedule = self.settings.plan.resolve(self.members.ranks(), rounds);
        // Ends when this function does.
        let _timer = schedule.timer(self.members.me()).map(Timer::start);
        let mut listener = self.settings.listener;
        let mut source = Reloader {
            reload: self.settings.reload,
            user: listener.user(),
        };
        let mut engine = ftsort::engine(
            &mut self.transport,
            &mut self.members,
            &mut listener,
            &mut self.stats,
            &schedule,
        );
        let kernel = prepared.and_then(|prepared| {
            let kernel = kernel_for(&prepared.layout, self.settings.threads)?;
            Ok((prepared, kernel))
        });
        let (prepared, kernel) = engine.all_or_none(kernel)?;
        agree_on_equal(&mut engine, prepared.layout.fingerprint(), "record")?;
        let algorithm = HyperQuickSort {
            kernel: &*kernel,
            dimension: engine.members.cube().dimension(),
            rule: self.settings.pivot,
        };
        let job = Job::new(
            &mut engine,
            &algorithm,
            &mut *self.store,
            &mut source,
            prepared.input,
            absent,
        );
        let finished = job.run(&mut self.lost);
        self.stats.total_seconds = self.transport.now() - start;
        let finished = finished?;
        Ok(ftsort_result::new(finished, prepared.layout.record_bytes()))
    }
}

/// Asks the user's callback for inputs.
struct Reloader {
    reload: ftsort_reload_fn,
    user: *mut c_void,
}

impl Source for Reloader {
    fn can_reload(&self) -> bool {
        self.reload.is_some()
    }

    fn reload(&mut self, rank: Rank) -> Result<Buffer> {
        let reload = self
            .reload
            .ok_or_else(|| Error::new(Status::Internal, "there is no reload callback"))?;
        let mut out = ftsort_buffer {
            bytes: Buffer::default(),
        };
        // SAFETY: the user's callback with the user's pointer; `out` lives during the call.
        let refused: c_int = unsafe { reload(self.user, rank.0 as i32, &mut out) };
        match refused {
            0 => Ok(out.bytes),
            code => Err(Error::new(
                Status::Callback,
                format!("the reload callback returned {code} for rank {rank}"),
            )),
        }
    }
}

/// Kills this process after a time, unless it is dropped before: a fault at any instant.
struct Timer {
    _cancel: Sender<()>,
}

impl Timer {
    fn start(time: Duration) -> Timer {
        let (cancel, cancelled) = channel::<()>();
        std::thread::spawn(move || {
            if cancelled.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                // SAFETY: a signal to this very process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        });
        Timer { _cancel: cancel }
    }
}

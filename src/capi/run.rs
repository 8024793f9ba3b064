//! The sort itself.

use std::ffi::{c_int, c_void};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::buffer::ftsort_buffer;
use super::config::{ftsort_algorithm, ftsort_check, ftsort_reload_fn};
use super::group::ftsort;
use super::handle::{Handle, on_group, place_of};
use super::host::limit_memory;
use super::record::{Wanted, ftsort_record, read_layout};
use super::result::{ftsort_result, hand_over};
use super::settings::agree_on_equal;
use super::slices::CArray;
use super::status::ftsort_status;
use super::trace::{Reporter, Whole};
use ftsort_core::engine::{
    Algorithm, Checks, Engine, EngineContext, Finished, InputHash, InputHasher, Job, PlacementPolicy,
    Source, Stats, sum,
};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::sort::{Complete, MANY_RANKS, Method, Shape};
use ftsort_core::transport::Transport;
use ftsort_kernels::buffer::{self, Buffer};
use ftsort_kernels::digest::{Digest, DigestKey};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::{Crew, Kernel, kernel_for};
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::Layout;

/// Sorts the records of all ranks. [C]
///
/// The result is the same multiset in ascending order, from block to block in ascending order of node. Each
/// survivor receives the blocks of the nodes that it executes: its own, and those of failed ranks that it
/// stands in for. Ranks may fail at any moment, all but one of them; the store decides how many failures the
/// data survive (see `ftsort_store`). A rank that was known to have failed before the call contributes
/// nothing. After FTSORT_OK the result belongs to the caller: the blocks of a rank that fails later are lost.
///
/// \param group   a group
/// \param record  the layout of the records, the same on all ranks; borrowed for the call, except `compare` and
///                `user`, which ftsort_result_verify uses again
/// \param data    `count` records of this rank, of any alignment; NULL if `count` is 0; not changed. They must
///                not change before the function returns, because a late failure makes it read them again
/// \param count   the number of records of this rank; may differ between ranks
/// \param result  receives the sorted blocks of this rank; release it with ftsort_result_free; NULL after an
///                error
/// \return FTSORT_OK; FTSORT_ERR_DATA_LOST if data of failed ranks cannot be recovered (ftsort_lost_ranks names
///         the ranks); FTSORT_ERR_CORRUPT; FTSORT_ERR_CALLBACK if `reload` refuses or `compare` contradicts
///         itself; FTSORT_ERR_ARGUMENT on all ranks if `record` differs between ranks; or another status of
///         "Collective calls"
///
/// # Safety
/// The pointers are NULL or valid, `data` for `count` records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftsort_run(
    group: *mut Handle,
    record: *const ftsort_record,
    data: *const c_void,
    count: usize,
    result: *mut *mut ftsort_result,
) -> ftsort_status {
    on_group(group, |group| {
        // SAFETY: this function's contract.
        unsafe {
            let wanted = read_layout(record);
            run_on(group, wanted, data, count, result)
        }
    })
}

/// Sorts on a group that is in use by this call.
///
/// # Safety
/// As for [`ftsort_run`].
pub(super) unsafe fn run_on(
    group: &mut ftsort,
    wanted: Result<Wanted>,
    data: *const c_void,
    count: usize,
    result: *mut *mut ftsort_result,
) -> Result<()> {
    // SAFETY: this function's contract.
    let place = unsafe { place_of("result", result) };
    limit_memory(group.settings.memory_limit, group.members.living_here());
    let sorted = group.whole(Whole::Sort, |group| {
        let work = group.begin();
        // Another seed for every sort, so that an earlier one reveals nothing about it.
        group.seed = SplitMix::new(group.seed).bits();
        let wants_digest = group.settings.checks & ftsort_check::FTSORT_CHECK_DIGEST as u32 != 0;
        let learn = Learn {
            hash: group.settings.reload.is_some(),
            digest: wants_digest.then_some(group.seed),
        };
        // SAFETY: this function's contract.
        let prepared = unsafe {
            has_place(&place)
                .and(wanted)
                .and_then(|wanted| prepare(wanted, data, count, &group.settings.crew, learn))
        };
        group.sort(work, prepared)
    });
    let place = place?;
    *place = std::ptr::null_mut();
    *place = hand_over(sorted?);
    Ok(())
}

/// A copy of the error of a missing place, for the other ranks.
fn has_place<T>(place: &Result<T>) -> Result<()> {
    match place {
        Ok(_) => Ok(()),
        Err(error) => Err(error.clone()),
    }
}

/// The arguments, checked, and a copy of the input.
pub(super) struct Prepared<'a> {
    layout: Layout,
    stable: bool,
    kernel: Box<dyn Kernel>,
    /// The caller's records, and as the kernel has copied them.
    given: &'a [u8],
    input: Buffer,
    /// What the caller's records are known by in their order.
    hash: Option<InputHash>,
    /// And in any order, with what makes such digests.
    digest: Option<(DigestKey, Digest)>,
}

/// What is learned of the caller's records while they are copied: not from the copy, which may have been
/// changed on the way.
#[derive(Clone, Copy, Default)]
pub(super) struct Learn {
    /// What reload knows them by.
    pub hash: bool,
    /// A digest of this seed's key.
    pub digest: Option<u64>,
}

/// # Safety
/// As for [`ftsort_run`]; the caller's records stay as they are while the returned value exists.
pub(super) unsafe fn prepare<'a>(
    wanted: Wanted,
    data: *const c_void,
    count: usize,
    crew: &Crew,
    learn: Learn,
) -> Result<Prepared<'a>> {
    let Wanted { layout, stable } = wanted;
    let records = CArray {
        name: "data",
        data,
        count_name: "count",
        count,
        element_bytes: layout.record_bytes(),
    };
    // SAFETY: this function's contract.
    let given: &'a [u8] = unsafe { records.bytes()? };
    buffer::start_peak();
    let kernel = kernel_for(&layout, crew.clone());
    let mut hasher = learn.hash.then(InputHasher::default);
    let key = learn
        .digest
        .map(|seed| DigestKey::new(seed, layout.record_bytes()));
    let mut digest = key.map(|key| (key, Digest::default()));
    let input = kernel.copy(given, &mut |records| {
        if let Some(hasher) = &mut hasher {
            hasher.add(records);
        }
        if let Some((key, sum)) = &mut digest {
            *sum = sum.combine(key.digest(records));
        }
    })?;
    Ok(Prepared {
        given,
        input,
        layout,
        stable,
        kernel,
        hash: hasher.map(InputHasher::finish),
        digest,
    })
}

/// What a job needs, beside its algorithm.
pub(super) struct Work<'a> {
    /// This rank's input.
    pub input: Buffer,
    /// Makes a copy of it again.
    pub own: Option<&'a dyn Fn() -> Result<Buffer>>,
    /// What it is known by, if that is known already.
    pub hash: Option<InputHash>,
    /// Blocks are known by digests of this key.
    pub key: Option<&'a DigestKey>,
    /// And are checked as sorts are.
    pub checks: Option<&'a Checks<'a>>,
    /// The size of a record.
    pub record_bytes: usize,
    /// Inputs are empty, so that they can always be had again.
    pub is_born: bool,
    /// Who was dead when it began.
    absent: RankSet,
    /// When that was.
    start: f64,
    /// Ends when the job does.
    _timer: Option<Timer>,
}

impl ftsort {
    /// A job begins: with fresh figures, and timers of the fault schedule.
    pub(super) fn begin(&mut self) -> Work<'static> {
        self.stats = Stats::default();
        self.lost = RankSet::new(self.members.ranks());
        // Timers do not depend on the number of rounds.
        let timers = self.settings.plan.resolve(self.members.ranks(), 1);
        Work {
            input: Buffer::default(),
            own: None,
            hash: None,
            key: None,
            checks: None,
            record_bytes: 1,
            is_born: false,
            absent: self.members.faulty().clone(),
            start: self.transport.now(),
            _timer: timers.timer(self.members.me()).map(Timer::start),
        }
    }

    /// Runs a job to its end. Collective.
    pub(super) fn finish(&mut self, work: Work<'_>, algorithm: &dyn Algorithm) -> Result<Finished> {
        let ranks = self.members.ranks();
        let schedule = self.settings.plan.resolve(ranks, algorithm.rounds() + 1);
        let mut reporter = Reporter::new(self.settings.listener, &mut self.trace);
        let mut reloader = Reloader {
            reload: self.settings.reload,
            user: self.settings.listener.user(),
            hash: work.hash,
            own: work.own,
        };
        if let Some(watch) = &self.watch {
            self.members.exclude(watch.excluded());
        }
        let source: &mut dyn Source = match work.is_born {
            true => &mut Nothing,
            false => &mut reloader,
        };
        let mut engine = Engine::new(EngineContext {
            transport: &mut self.transport,
            members: &mut self.members,
            observer: &mut reporter,
            stats: &mut self.stats,
            schedule: &schedule,
            policy: self
                .watch
                .as_mut()
                .map(|watch| watch as &mut dyn PlacementPolicy),
        });
        engine.set_records(work.record_bytes, work.key);
        let job = Job::new(
            &mut engine,
            algorithm,
            &mut *self.store,
            source,
            work.input,
            work.absent,
            work.checks,
        );
        let finished = job.run(&mut self.lost);
        // Who was stopped in this job may have been struck by chance.
        self.members.take_back_all();
        self.stats.total_seconds = self.transport.now() - work.start;
        finished
    }

    fn sort(
        &mut self,
        work: Work<'static>,
        prepared: Result<Prepared<'_>>,
    ) -> Result<ftsort_result> {
        let prepared = self.agree_on_input(prepared)?;
        let kernel = &*prepared.kernel;
        let (method, code) = self.choose(prepared.input.len())?;
        self.algorithm = code;
        let dimension = self.members.cube().dimension();
        let sort = method.on(kernel, dimension);
        let algorithm = Complete {
            sort: &*sort,
            kernel,
            dimension,
            dense: self.settings.dense,
        };
        let checks = prepared.digest.as_ref().map(|(key, input)| Checks {
            key,
            kernel,
            input: *input,
        });
        // No longer than what it borrows.
        let mut work: Work<'_> = work;
        work.key = checks.as_ref().map(|checks| checks.key);
        work.checks = checks.as_ref();
        work.input = prepared.input;
        let (kernel, given) = (&*prepared.kernel, prepared.given);
        let own = || kernel.copy(given, &mut |_| {});
        work.own = Some(&own);
        work.hash = prepared.hash;
        work.record_bytes = prepared.layout.record_bytes();
        let mut finished = self.finish(work, &algorithm)?;
        if self.settings.dense {
            // The others are empty.
            let own = self.members.me().home();
            finished.blocks.retain(|node, _| *node == own);
        }
        Ok(ftsort_result::sorted(
            finished,
            prepared.layout.clone(),
            &self.members,
        ))
    }

    /// All ranks' arguments are right, and their records alike.
    fn agree_on_input<'a>(&mut self, prepared: Result<Prepared<'a>>) -> Result<Prepared<'a>> {
        let method = self.settings.algorithm;
        let prepared = prepared.and_then(|prepared| {
            if prepared.stable && method == Some(Method::Bitonic(Shape::Bitonic)) {
                return Err(Error::new(
                    Status::Argument,
                    "record.stable is set, but FTSORT_BITONIC_MERGE does not keep the order of equal \
                     keys",
                ));
            }
            Ok(prepared)
        });
        let fingerprint = |prepared: &Prepared<'_>| prepared.layout.fingerprint();
        // What all have agreed on they have not to agree on again.
        let before = self.agreed_record;
        let again = prepared.as_ref().map(fingerprint).ok() == before;
        let (prepared, _) = self.together(|engine| {
            let (prepared, again) = engine.all_or_none_with(prepared, again)?;
            if !again {
                agree_on_equal(engine, fingerprint(&prepared), "record")?;
            }
            Ok(prepared)
        })?;
        self.agreed_record = Some(fingerprint(&prepared));
        Ok(prepared)
    }

    /// The sort, and its number in `ftsort_algorithm`.
    fn choose(&mut self, input_bytes: usize) -> Result<(Method, i32)> {
        if let Some(method) = self.settings.algorithm {
            return Ok((method, self.settings.algorithm_code));
        }
        let ranks = self.members.ranks();
        let total = match ranks >= MANY_RANKS {
            true => self.together(|engine| sum(engine, input_bytes as u64))?.0,
            false => 0,
        };
        let method = Method::best(ranks, total);
        let code = match method {
            Method::SampleSort => ftsort_algorithm::FTSORT_SAMPLESORT,
            _ => ftsort_algorithm::FTSORT_HYPERQUICKSORT,
        };
        Ok((method, code as i32))
    }
}

/// Makes copies of the caller's own records, and asks the user's callback for inputs of others.
struct Reloader<'a> {
    own: Option<&'a dyn Fn() -> Result<Buffer>>,
    reload: ftsort_reload_fn,
    user: *mut c_void,
    hash: Option<InputHash>,
}

impl Source for Reloader<'_> {
    fn has_own(&self) -> bool {
        self.own.is_some()
    }

    fn own(&mut self) -> Result<Buffer> {
        let own = self.own;
        own.ok_or_else(|| Error::new(Status::Internal, "nobody has the input"))?()
    }

    fn known_by(&self, input: &[u8]) -> InputHash {
        self.hash.unwrap_or_else(|| InputHash::of(input))
    }

    fn can_reload(&self) -> bool {
        self.reload.is_some()
    }

    fn reload(&mut self, rank: Rank) -> Result<Buffer> {
        let reload = self
            .reload
            .ok_or_else(|| Error::new(Status::Internal, "there is no reload callback"))?;
        let mut out = ftsort_buffer::empty();
        // SAFETY: the user's callback with the user's pointer; `out` lives during the call.
        let refused: c_int = unsafe { reload(self.user, rank.0 as i32, &mut out) };
        match refused {
            0 => Ok(out.into_bytes()),
            code => Err(Error::new(
                Status::Callback,
                format!("the reload callback returned {code} for rank {rank}"),
            )),
        }
    }
}

/// Gives inputs again that are empty.
struct Nothing;

impl Source for Nothing {
    fn can_reload(&self) -> bool {
        true
    }

    fn reload(&mut self, _rank: Rank) -> Result<Buffer> {
        Ok(Buffer::default())
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

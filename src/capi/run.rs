//! The sort itself.

use std::ffi::{c_int, c_void};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::buffer::ftsort_buffer;
use super::config::{ftsort_algorithm, ftsort_check, ftsort_reload_fn};
use super::group::ftsort;
use super::guard::on_group;
use super::host::limit_memory;
use super::record::{Wanted, ftsort_record, read_layout};
use super::result::ftsort_result;
use super::settings::agree_on_equal;
use super::status::ftsort_status;
use super::trace::{Reporter, Whole};
use ftsort_core::engine::{
    Algorithm, Checks, Engine, EngineContext, Finished, InputHash, InputHasher, Job,
    PlacementPolicy, Source, Stats, sum,
};
use ftsort_core::members::{Rank, RankSet};
use ftsort_core::sort::{MANY_RANKS, MergeAndPlace, Method, Shape};
use ftsort_core::transport::Transport;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::digest::{Digest, DigestKey};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::{Kernel, ThreadPool, kernel_for};
use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::random::SplitMix;
use ftsort_kernels::record::Layout;

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
/// \param[in] input this rank's records; not changed; any alignment. NULL if `count` is 0. They must stay what
/// they are until the function returns: after a late fault they are read again.
/// \param[in] count how many records; may differ between ranks.
/// \param[out] out the result, to be freed with `ftsort_result_free`; NULL after a failure.
/// \return `FTSORT_OK`; `FTSORT_ERR_ARGUMENT` (also where `record` is not the same on all ranks),
/// `FTSORT_ERR_PEER_ARGUMENT`, `FTSORT_ERR_STATE`, `FTSORT_ERR_MEMORY`, `FTSORT_ERR_STORE`,
/// `FTSORT_ERR_CALLBACK` (`reload` refused, or `compare` contradicts itself), `FTSORT_ERR_DATA_LOST`,
/// `FTSORT_ERR_CORRUPT`, `FTSORT_ERR_EXCLUDED`, `FTSORT_ERR_MPI`, `FTSORT_ERR_INTERNAL`.
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
        limit_memory(group.settings.memory_limit, group.members.living_here());
        let result = group.whole(Whole::Sort, |group| {
            let work = group.begin();
            // Another for every sort, so that nothing can be learned of it.
            group.seed = SplitMix::new(group.seed).bits();
            let wants_digest =
                group.settings.checks & ftsort_check::FTSORT_CHECK_DIGEST as u32 != 0;
            let learn = Learn {
                hash: group.settings.reload.is_some(),
                digest: wants_digest.then_some(group.seed),
            };
            // SAFETY: this function's contract.
            let prepared = unsafe {
                prepare(
                    record,
                    input,
                    count,
                    out.is_some(),
                    &group.settings.crew,
                    learn,
                )
            };
            group.sort(work, prepared)
        });
        if let Some(out) = out {
            *out = std::ptr::null_mut();
            *out = Box::into_raw(Box::new(result?));
            return Ok(());
        }
        result.map(|_| ())
    })
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
/// As for [`ftsort_run`]; the caller's records stay what they are as long as what is returned is there.
pub(super) unsafe fn prepare<'a>(
    record: *const ftsort_record,
    input: *const c_void,
    count: usize,
    has_out: bool,
    crew: &ThreadPool,
    learn: Learn,
) -> Result<Prepared<'a>> {
    let refuse = |text: String| Error::new(Status::Argument, text);
    if !has_out {
        return Err(refuse("out is NULL".into()));
    }
    // SAFETY: the caller's contract.
    let Wanted { layout, stable } = unsafe { read_layout(record)? };
    let bytes = count
        .checked_mul(layout.record_bytes())
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or_else(|| refuse(format!("count is {count}, more than memory can hold")))?;
    if input.is_null() && count > 0 {
        return Err(refuse(format!("input is NULL, but count is {count}")));
    }
    MemoryBudget::current().start_peak();
    let given: &'a [u8] = match bytes {
        0 => &[],
        // SAFETY: not NULL, and valid for `count` records by the caller's contract.
        _ => unsafe { std::slice::from_raw_parts(input.cast(), bytes) },
    };
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
        self.members.readmit_all();
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
        let algorithm = MergeAndPlace {
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
        Ok(ftsort_result::new(
            finished,
            prepared.layout.record_bytes(),
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
        own.ok_or_else(|| Error::new(Status::Internal, "the input of this rank is not available"))?(
        )
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

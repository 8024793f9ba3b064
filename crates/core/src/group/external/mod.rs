//! Sorts of more data than memory: the collective steps ([`external`](crate::external) has the parts of one rank).
//!
//! The source is the redundancy. If a rank fails, its runs are missing, unless the survivors see them in a directory that
//! they share. The survivors divide the chunks of missing runs, read and sort them again, and repeat the batches that are
//! not committed. A batch is committed as soon as all ranks have written their blocks of it and no rank has failed since
//! the runs of all chunks were found. Then a manifest beside the output names it, for a job that resumes this one.
//!
//! | file | content |
//! |---|---|
//! | `begin` | agrees on the arguments and the state from which the sort continues |
//! | `job` | the runs and batches of one rank |
//! | `making` | makes runs |
//! | `reading` | reads runs |
//! | `output` | the output and the manifest |
//!
//! Must never: write records into the output before the place of a committed batch, or read a batch of which a rank
//! does not have its runs.

mod begin;
mod job;
mod making;
mod output;
mod reading;

use self::job::ExternalJob;
use self::reading::Reading;
use super::config::hash_of;
use super::input::{InputOrigin, Prepared};
use super::{Argument, Group, JobKind, Sorted};
use crate::engine::{CollectiveError, CollectiveResult, InStep, reported_by_all};
use crate::external::places::{ExternalFiles, Transfer};
use crate::external::run::first_cut;
use crate::members::{Members, Rank};
use crate::mutants::{Mutant, mutant};
use crate::sort::pivot::Cut;
use crate::transport::Transport;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::record::Layout;

/// The part of its memory that a rank uses for one piece of a chunk, or for its part of a batch: three are being read,
/// sorted and written at the same time, and a sort takes its input, a copy, and space for the result.
const PARTS_OF_MEMORY: usize = 5;

/// An external sort, as a rank passes it.
pub struct ExternalSort {
    /// The records' size and key; the same on all ranks.
    pub layout: Layout,
    /// The source, the scratch directories and the directory of the output.
    pub files: ExternalFiles,
    /// The name of the output in its directory; the same on all ranks.
    pub output: String,
    /// The position of the first record in each file of the output; the same on all ranks.
    pub output_offset: u64,
    /// The number of files among which the records of the output are divided, each with the name of the output and a
    /// number; 0: one file with this name. The same on all ranks.
    pub output_parts: u64,
    /// The bytes that the buffers of the sort may take on this rank; 0: half of the memory limit of a job.
    pub memory_bytes: usize,
    /// Continues an earlier job with the same output, and leaves the state of this one for a later job; the same on
    /// all ranks.
    pub resume: bool,
}

/// The figures of an external sort on this rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExternalStats {
    /// The number of records of the source.
    pub records: u64,
    /// The number of records that an earlier job had put into the output.
    pub resumed_records: u64,
    /// The runs of an earlier job that this rank found in its scratch directories.
    pub resumed_runs: u64,
    /// The runs that this rank made.
    pub runs: u64,
    /// The committed batches.
    pub batches: u64,
    /// How often a failure, or a run that could not be read, made the ranks begin again with the first batch that was not
    /// committed.
    pub restarts: u64,
    /// The bytes of the records that this rank read from the source, and from runs for batches and merges.
    pub bytes_read: u64,
    /// The bytes that this rank wrote to runs, with their indexes, and to the output.
    pub bytes_written: u64,
}

/// A batch that is being written.
struct Written {
    transfer: Transfer<()>,
    /// The number of its records on all ranks.
    records: u64,
    end: Cut,
}

impl ExternalSort {
    /// A hash of all that must be the same on all ranks.
    fn fingerprint(&self) -> u64 {
        let has_file = self.files.places.output.keeps_files();
        hash_of((
            self.layout.fingerprint(),
            &self.output,
            self.resume,
            has_file,
        ))
    }
}

impl<T: Transport> Group<T> {
    /// Sorts the records of a source that need not fit into memory into one file or several. All ranks can read all of the
    /// source, and its content must not change during the call. Equal keys may change their order. Collective.
    ///
    /// # Errors
    /// `Status::Store` where a file cannot be read or written, or the source has changed. `Status::Memory` where the memory
    /// is too small for the source. `Status::Argument` where the arguments are wrong or differ between ranks, or another
    /// sort than the present one is to be resumed. `Status::Callback` where a callback of a source or comparator fails. After
    /// these the group stays usable, and no file is left, unless the sort may be resumed. `Status::Mpi` and
    /// `Status::Excluded` leave all files.
    pub fn external_sort(&mut self, sort: impl Argument<ExternalSort>) -> Result<ExternalStats> {
        self.job(JobKind::Sort, |group, _| {
            let mut job = group.begin_external(sort.into_result())?;
            job.files.flushes = !group.members.is_one_host();
            if job.manifest.is_finished {
                // The earlier job may have ended before it removed these, and may not have synced the output.
                job.remove_runs();
                group.on_writer(|| {
                    job.remove_manifest_draft();
                    job.name_output()
                })?;
                return Ok(job.stats);
            }
            let sorted = group.external_attempts(&mut job);
            group.clean_up(&mut job, &sorted)?;
            sorted.map(|()| job.stats)
        })
    }

    /// Removes the files of a sort that has ended, unless another rank or a later job may need them. Collective.
    fn clean_up(
        &mut self,
        job: &mut ExternalJob,
        sorted: &CollectiveResult<()>,
    ) -> CollectiveResult<()> {
        if matches!(sorted, Err(error) if error.status.sets_apart() || job.resume) {
            return Ok(());
        }
        // A job that continues this one may use the runs.
        if !self.owns_files(job)? {
            return Ok(());
        }
        job.remove_runs();
        if job.resume {
            return Ok(());
        }
        // All ranks have removed their runs, and have looked for names, before the manifest is removed.
        let removes = sorted.is_ok() || !job.is_named();
        let removes = self.agrees(removes)?;
        if sorted.is_ok() {
            return self.on_writer(|| {
                job.remove_manifest();
                Ok(())
            });
        }
        if removes {
            job.remove_incomplete();
        }
        Ok(())
    }

    /// Whether the files are still those of this job, and not of another one that has begun to write the same output.
    /// Collective.
    fn owns_files(&mut self, job: &mut ExternalJob) -> CollectiveResult<bool> {
        loop {
            let known = self.known_failures();
            if self.is_writer() {
                // A manifest that cannot be read names no other job.
                let _ = job.find_writer();
            }
            let owns = self.agrees(!job.is_replaced)?;
            if self.known_failures() == known {
                return Ok(owns);
            }
        }
    }

    /// Whether all ranks consent. Collective.
    fn agrees(&mut self, consent: bool) -> CollectiveResult<bool> {
        let agreed = self.on_engine(|engine| engine.all_or_none_with(Ok(()), consent))?;
        Ok(agreed.1)
    }

    /// Returns the value if all ranks have one. Collective.
    fn on_all<V>(&mut self, mine: Result<V>) -> CollectiveResult<V> {
        self.on_engine(|engine| engine.all_or_none(mine))
    }

    /// The payloads of all survivors; the agreed error if any rank has one. Collective.
    fn reports(
        &mut self,
        mine: Vec<u8>,
        error: Option<Error>,
    ) -> CollectiveResult<Vec<(Rank, Slice)>> {
        self.on_engine(|engine| reported_by_all(engine, mine, error))
    }

    /// Whether this rank writes the manifest.
    fn is_writer(&self) -> bool {
        self.members.lowest_executor() == self.members.me()
    }

    /// Lets the writer do `work`, and again if a rank fails meanwhile, which may be the writer. Collective.
    fn on_writer(&mut self, work: impl FnMut() -> Result<()>) -> CollectiveResult<()> {
        self.on_engine(|engine| engine.let_one_act(Members::lowest_executor, work))
    }

    /// Attempts until the output is complete. Collective.
    fn external_attempts(&mut self, job: &mut ExternalJob) -> CollectiveResult<()> {
        loop {
            let known = self.known_failures();
            if !job.manifest.is_written() {
                self.begin_output(job)?;
                if !self.find_or_make_runs(job, known)? {
                    if self.known_failures() > known {
                        // The survivors may see runs of the ranks that failed.
                        self.find_runs(job);
                    }
                    continue;
                }
                if self.known_failures() != known || !self.external_batches(job, known)? {
                    job.stats.restarts += 1;
                    self.find_runs(job);
                    continue;
                }
            }
            self.on_all(job.check_source())?;
            // Another rank may name files and then fail, also before this rank knows that all consent.
            job.may_be_named |= !self.is_writer() || self.known_failures() != known;
            self.on_writer(|| job.finish_output())?;
            if self.known_failures() == known {
                return Ok(());
            }
        }
    }

    /// Makes the files of the output and writes the manifest; the first time, makes sure that all ranks see it. Collective.
    fn begin_output(&mut self, job: &mut ExternalJob) -> CollectiveResult<()> {
        self.on_writer(|| {
            // A file that is missing later has lost the records of earlier batches.
            if !job.is_begun && job.manifest.done == 0 {
                job.ensure_output()?;
            }
            job.write_manifest()
        })?;
        if job.is_begun {
            return Ok(());
        }
        job.is_begun = true;
        self.on_all(job.check_directory())
    }

    /// Makes the runs that no rank has. Returns whether all were there already; false also if a rank has failed since
    /// `known` ranks had. Collective.
    fn find_or_make_runs(&mut self, job: &mut ExternalJob, known: usize) -> CollectiveResult<bool> {
        let reports = self.reports(job.holdings(), None)?;
        if self.known_failures() > known {
            return Ok(false);
        }
        let (ranks, digests): (Vec<Rank>, Vec<Slice>) = reports.into_iter().unzip();
        let me = self.members.me();
        let mine = ranks
            .iter()
            .position(|rank| *rank == me)
            .unwrap_or(ranks.len());
        // The same reports have the same error on all ranks.
        let (counts, missing) = job.learn_holdings(&digests, mine).or_alike()?;
        if missing.is_empty() {
            return Ok(true);
        }
        let executing = self.members.executing();
        let workers = ranks.into_iter().zip(counts);
        let mut workers: Vec<(usize, Rank)> = workers
            .filter(|(rank, _)| executing.contains(*rank))
            .map(|(rank, count)| (count, rank))
            .collect();
        let mut chunks = Vec::new();
        for chunk in missing {
            // The reports may not have a rank that executes nodes since a failure.
            let Some(worker) = workers.iter_mut().min() else {
                break;
            };
            worker.0 += 1;
            if worker.1 == me {
                chunks.push(chunk);
            }
        }
        let made = job.attempt(|job| job.make_runs(&chunks));
        self.on_all(made)?;
        Ok(false)
    }

    /// Sorts the batches that are not committed. Returns whether all are; otherwise a rank failed or gave up a run.
    /// Collective. `known`: the number of failed ranks when the runs of all chunks were found.
    fn external_batches(&mut self, job: &mut ExternalJob, known: usize) -> CollectiveResult<bool> {
        let rewound = job.attempt(ExternalJob::rewind);
        let unreadable = self.on_all(rewound)?;
        let first = match self.start_batch(job, unreadable)? {
            Some(reading) if self.known_failures() == known => reading,
            _ => return Ok(false),
        };
        let (mut ahead, mut behind) = (Some(first), None::<Written>);
        while let Some(reading) = ahead.take() {
            let end = reading.end.clone();
            let (records, unreadable) = match job.finish_batch(reading) {
                Ok(records) => (records, Vec::new()),
                Err(unreadable) => (Slice::default(), unreadable),
            };
            let is_last = end == Cut::AllLower;
            let gave_up = if is_last {
                self.any_gave_up(job, &unreadable, None)?
            } else {
                ahead = self.start_batch(job, unreadable)?;
                ahead.is_none()
            };
            let sorted = match gave_up {
                true => None,
                false => self.sort_batch(job, records, known)?,
            };
            if !self.finish_written(job, behind.take(), known)? {
                return Ok(false);
            }
            let Some(sorted) = sorted else {
                return Ok(false);
            };
            let done = job.manifest.done;
            if sorted.total == 0 && !is_last {
                return Err(CollectiveError::alike(job.no_progress()));
            }
            let blocks = sorted.blocks.into_iter();
            let blocks = blocks.map(|(_, offset, records)| (offset, records));
            if mutant(Mutant::ManifestBeforeCommit) && self.is_writer() {
                let committed = job.manifest.clone();
                job.manifest.done += sorted.total;
                job.manifest.cut = end.clone();
                let _ = job.write_manifest();
                job.manifest = committed;
            }
            behind = Some(Written {
                transfer: job.start_output(done, blocks.collect()),
                records: sorted.total,
                end,
            });
        }
        self.finish_written(job, behind, known)
    }

    /// Starts to read the next batch. None: a rank gave up a run. Collective. `unreadable`: runs that this rank cannot
    /// read.
    fn start_batch(
        &mut self,
        job: &mut ExternalJob,
        unreadable: Vec<u32>,
    ) -> CollectiveResult<Option<Reading>> {
        let gave_up = job.give_up(&unreadable);
        let proposal = gave_up.and_then(|()| job.attempt(|job| job.propose_end()));
        let record_bytes = job.layout.record_bytes();
        let mut message = vec![u8::from(!unreadable.is_empty())];
        let cut = proposal.as_ref().unwrap_or(&Cut::AllUpper);
        cut.encode(record_bytes, &mut message);
        let reports = self.reports(message, proposal.err())?;
        let mut cuts = Vec::new();
        for (_, report) in &reports {
            let (gave_up, cut) = report.split_first().unwrap_or((&1, &[]));
            if *gave_up != 0 {
                return Ok(None);
            }
            cuts.push(Cut::decode(cut, record_bytes).or_apart()?);
        }
        let started = job.attempt(|job| job.start_batch(first_cut(cuts, &*job.kernel)));
        let (reading, unreadable, error) = match started {
            Ok(Ok(reading)) => (Some(reading), Vec::new(), None),
            Ok(Err(unreadable)) => (None, unreadable, None),
            Err(error) => (None, Vec::new(), Some(error)),
        };
        let gave_up = self.any_gave_up(job, &unreadable, error)?;
        Ok(reading.filter(|_| !gave_up))
    }

    /// Gives up runs, and returns whether any rank does; the agreed error if any rank has one. Collective.
    fn any_gave_up(
        &mut self,
        job: &mut ExternalJob,
        unreadable: &[u32],
        error: Option<Error>,
    ) -> CollectiveResult<bool> {
        let error = error.or(job.give_up(unreadable).err());
        let reports = self.reports(vec![u8::from(!unreadable.is_empty())], error)?;
        Ok(reports.iter().any(|(_, report)| report[..] != [0]))
    }

    /// Sorts the records of a batch. None: a rank failed. Collective.
    fn sort_batch(
        &mut self,
        job: &ExternalJob,
        records: Slice,
        known: usize,
    ) -> CollectiveResult<Option<Sorted>> {
        let absent = self.begin_next_job();
        let layout = job.layout.clone();
        let prepared = Prepared::of_made(layout, &records, InputOrigin::Derived, &self.threads);
        let prepared = prepared.map(|prepared| Prepared {
            unprotected: true,
            ..prepared
        });
        match self.sort_prepared(absent, prepared, None, None) {
            Ok(sorted) => Ok(Some(sorted)),
            Err(error) if error.status == Status::DataLost && self.known_failures() > known => {
                self.forget_losses();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Commits a batch as soon as all ranks have written it. Returns whether no rank has failed. Collective.
    fn finish_written(
        &mut self,
        job: &mut ExternalJob,
        written: Option<Written>,
        known: usize,
    ) -> CollectiveResult<bool> {
        let Some(written) = written else {
            self.on_all(Ok(()))?;
            return Ok(self.known_failures() == known);
        };
        let records = job.manifest.done..job.manifest.done + written.records;
        let done = (written.transfer.wait()).and_then(|()| job.sync_output(records.clone()));
        self.on_all(done)?;
        if self.known_failures() != known && !mutant(Mutant::BatchOfFailedRankCommitted) {
            return Ok(false);
        }
        job.manifest.done = records.end;
        job.manifest.cut = written.end;
        job.stats.batches += 1;
        self.on_writer(|| job.write_manifest())?;
        Ok(true)
    }
}

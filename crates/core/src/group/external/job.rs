//! One rank's part of an external sort between two agreements: its runs, the output, and the manifest.
//!
//! Must never: communicate.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{ExternalSort, ExternalStats, PARTS_OF_MEMORY};
use crate::block::Run;
use crate::external::geometry::Geometry;
use crate::external::manifest::{Identity, Manifest};
use crate::external::places::{Extent, ExternalFiles, Place, Transfer};
use crate::external::run::{RunIndex, TAIL_BYTES, farthest_cut};
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::sort::pivot::Cut;
use crate::store::directory::refusal;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::{Kernel, ThreadPool, kernel_for};
use ftsort_kernels::record::Layout;

/// The size of a block of a run in bytes, at most.
const BLOCK_BYTES: u64 = 1 << 16;

/// The number of blocks of a chunk, at least.
const LEAST_BLOCKS: usize = 64;

/// A run in a scratch file of this rank.
pub(super) struct HeldRun {
    pub index: RunIndex,
    /// The scratch directory.
    directory: usize,
    /// The number of records of the run that belong to batches that were read.
    pub position: u64,
}

/// The files and the state of an external sort on this rank.
pub(super) struct ExternalJob {
    pub layout: Layout,
    pub kernel: Box<dyn Kernel>,
    pub files: ExternalFiles,
    pub manifest: Manifest,
    /// The bytes of a chunk, and of this rank's part of a batch.
    pub share: usize,
    pub stats: ExternalStats,
    pub held: BTreeMap<u32, HeldRun>,
    /// The digests of the runs of all ranks; 0: not known.
    digests: Vec<u64>,
    pub resume: bool,
    /// The name of the output.
    pub output: String,
    /// The number of runs that this rank could not read back.
    losses: usize,
}

/// A run that is being written.
struct Draft {
    index: RunIndex,
    directory: usize,
    name: String,
    transfer: Transfer<()>,
}

/// The records of a batch that this rank reads.
pub(super) struct Reading {
    /// The end of the batch.
    pub end: Cut,
    /// For each run, the records that belong to the batch.
    parts: Vec<(u32, Range<u64>)>,
    transfer: Transfer<Buffer>,
}

impl HeldRun {
    fn new(index: RunIndex, directory: usize) -> HeldRun {
        HeldRun {
            position: index.first,
            index,
            directory,
        }
    }

    /// The name of its file.
    fn name(&self) -> String {
        run_name(self.index.job, self.index.chunk)
    }
}

/// The beginning of the names of a job's runs.
fn run_prefix(job: u64) -> String {
    format!("ftsort-run-{job:016x}-")
}

fn run_name(job: u64, chunk: u32) -> String {
    format!("{}{chunk}", run_prefix(job))
}

impl ExternalJob {
    /// The state of a job at its beginning.
    pub fn new(
        sort: ExternalSort,
        manifest: Manifest,
        share: usize,
        threads: &ThreadPool,
    ) -> ExternalJob {
        let ExternalSort {
            layout,
            files,
            output,
            resume,
            ..
        } = sort;
        let chunks = manifest.geometry.chunks() as usize;
        ExternalJob {
            kernel: kernel_for(&layout, threads.clone()),
            layout,
            files,
            share,
            stats: ExternalStats {
                records: manifest.geometry.records,
                resumed_records: manifest.done,
                ..ExternalStats::default()
            },
            held: BTreeMap::new(),
            digests: vec![0; chunks],
            resume,
            output,
            losses: 0,
            manifest,
        }
    }

    fn record_bytes(&self) -> usize {
        self.layout.record_bytes()
    }

    /// The name of the output until it is complete.
    pub fn draft_of_output(&self) -> String {
        super::output::draft_name(&self.output)
    }

    /// The number of records of this rank's part of a batch.
    fn most_records(&self) -> u64 {
        (self.share / self.record_bytes()).max(1) as u64
    }

    /// Takes the runs that are in the scratch directories and that this rank does not have: of an earlier job over the
    /// same data, or of a rank that has failed and used the same directory.
    pub fn find_runs(&mut self) {
        let prefix = run_prefix(self.manifest.job);
        for directory in 0..self.files.places.scratch.len() {
            let names = self.files.places.scratch[directory].list();
            for name in names.unwrap_or_default() {
                let Some(chunk) = name.strip_prefix(&prefix) else {
                    continue;
                };
                // A draft has a longer name.
                let Ok(chunk) = chunk.parse::<u32>() else {
                    continue;
                };
                if self.held.contains_key(&chunk) {
                    continue;
                }
                if let Some(index) = self.read_index(directory, &name, chunk) {
                    self.held.insert(chunk, HeldRun::new(index, directory));
                }
            }
        }
    }

    /// None: the run is damaged or does not have the records that are missing in the output.
    fn read_index(&self, directory: usize, name: &str, chunk: u32) -> Option<RunIndex> {
        let files = &self.files.places.scratch[directory];
        let (size, _) = files.read(name).ok()?;
        let mut tail = [0; TAIL_BYTES as usize];
        let end = size.checked_sub(TAIL_BYTES)?;
        files.read_at(name, end, &mut tail).ok()?;
        let length = RunIndex::encoded_bytes(tail, size)?;
        let mut index = vec![0; usize::try_from(length).ok()?];
        files.read_at(name, end - length, &mut index).ok()?;
        let index = RunIndex::decode(&index, size)?;
        let Manifest {
            job,
            geometry,
            block,
            identity,
            done,
            ..
        } = &self.manifest;
        let is_whole = u64::from(chunk) < geometry.chunks()
            && index.records == geometry.chunk_records(chunk.into());
        let is_same = (index.job, index.chunk, index.block) == (*job, chunk, *block)
            && index.record_bytes() == identity.record_bytes;
        // The manifest may be older than the run.
        let has_all = index.done <= *done || mutant(Mutant::RunOfLaterBatchUsed);
        (is_whole && is_same && has_all).then_some(index)
    }

    /// The digests of this rank's runs as a message; 0: it does not have the run.
    pub fn holdings(&self) -> Vec<u8> {
        let chunks = 0..self.digests.len() as u32;
        let digests = chunks.map(|chunk| {
            let run = self.held.get(&chunk);
            run.map_or(0, |run| run.index.digest.max(1))
        });
        digests.flat_map(u64::to_le_bytes).collect()
    }

    /// Learns the runs of all ranks, and returns the number of runs of each rank and the chunks without a run. Of
    /// several ranks that see the run of a chunk, the one with the fewest runs uses it. `me`: the index of this rank's
    /// report.
    pub fn learn_holdings(
        &mut self,
        reports: &[Slice],
        me: usize,
    ) -> Result<(Vec<usize>, Vec<u32>)> {
        let mut counts = vec![0; reports.len()];
        let mut missing = Vec::new();
        for chunk in self.manifest.geometry.whole_chunks() {
            let digest = |report: &Slice| {
                let bytes = report.get(8 * chunk as usize..8 * chunk as usize + 8);
                bytes.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
            };
            let holders = (0..).zip(reports).filter_map(|(index, report)| {
                let digest = digest(report).filter(|digest| *digest != 0)?;
                Some((index, digest))
            });
            let holder = holders.min_by_key(|(index, _)| counts[*index]);
            let known = &mut self.digests[chunk as usize];
            match holder {
                None => missing.push(chunk as u32),
                Some((index, digest)) => {
                    counts[index] += 1;
                    if *known != 0 && *known != digest && !mutant(Mutant::ChangedSourceAccepted) {
                        let text = format!(
                            "the source has changed: chunk {chunk} is not the same as when it was read first"
                        );
                        return Err(Error::new(Status::Store, text));
                    }
                    *known = digest;
                    if index != me {
                        self.held.remove(&(chunk as u32));
                    }
                }
            }
        }
        Ok((counts, missing))
    }

    /// Reads these chunks, sorts each of them, and writes it as a run.
    pub fn make_runs(&mut self, chunks: &[u32]) -> Result<()> {
        let mut chunks = chunks.iter().copied();
        let mut next = match chunks.next() {
            None => return Ok(()),
            Some(chunk) => Some((chunk, self.start_chunk(chunk)?)),
        };
        let mut draft: Option<Draft> = None;
        while let Some((chunk, transfer)) = next {
            let mut records = transfer.wait()?;
            next = match chunks.next() {
                None => None,
                Some(chunk) => Some((chunk, self.start_chunk(chunk)?)),
            };
            self.kernel.sort(&mut records)?;
            let started = self.start_run(chunk, records.into());
            if let Some(draft) = draft.take() {
                self.finish_run(draft)?;
            }
            draft = Some(started?);
        }
        draft.map_or(Ok(()), |draft| self.finish_run(draft))
    }

    fn start_chunk(&mut self, chunk: u32) -> Result<Transfer<Buffer>> {
        let record_bytes = self.record_bytes();
        let ranges = self.manifest.geometry.ranges(chunk.into());
        let extents = ranges.map(|range| Extent {
            place: Place::Source,
            at: range.start * record_bytes as u64,
            bytes: (range.end - range.start) as usize * record_bytes,
        });
        let extents: Vec<Extent> = extents.collect();
        let into = Buffer::unset(extents.iter().map(|extent| extent.bytes).sum())?;
        self.stats.bytes_read += into.len() as u64;
        Ok(self.files.start_read(extents, into))
    }

    /// Starts to write a sorted chunk, without the records that are in the output.
    fn start_run(&mut self, chunk: u32, sorted: Slice) -> Result<Draft> {
        let record_bytes = self.record_bytes();
        let (job, block) = (self.manifest.job, self.manifest.block);
        let first = records_before(&self.manifest.cut, chunk, &sorted, &*self.kernel);
        let in_output = (first as u64, self.manifest.done);
        let index = RunIndex::new((job, chunk), &sorted, in_output, block, record_bytes);
        let directory = chunk as usize % self.files.places.scratch.len();
        let name = format!("{}.draft", run_name(job, chunk));
        let files = &mut self.files.places.scratch[directory];
        // A process that was killed may have left it.
        let _ = files.remove(&name);
        let created = files.write(&name, &[]);
        created.map_err(|error| refusal("create", &**files, &name, &error))?;
        let stored = sorted.part(first * record_bytes..sorted.len());
        let encoded: Slice = Buffer::copy_of(&index.encode())?.into();
        let extents = [(0, stored.len()), (stored.len(), encoded.len())];
        let extents = extents.map(|(at, bytes)| Extent {
            place: Place::Scratch(directory, name.clone()),
            at: at as u64,
            bytes,
        });
        self.stats.bytes_written += (stored.len() + encoded.len()) as u64;
        let transfer = self
            .files
            .start_write(extents.to_vec(), vec![stored, encoded]);
        Ok(Draft {
            index,
            directory,
            name,
            transfer,
        })
    }

    fn finish_run(&mut self, draft: Draft) -> Result<()> {
        draft.transfer.wait()?;
        let run = HeldRun::new(draft.index, draft.directory);
        let name = run.name();
        let files = &mut self.files.places.scratch[run.directory];
        files
            .sync(&draft.name)
            .and_then(|()| files.rename(&draft.name, &name))
            .and_then(|()| files.sync_names())
            .map_err(|error| refusal("write", &**files, &name, &error))?;
        self.stats.runs += 1;
        self.held.insert(run.index.chunk, run);
        Ok(())
    }

    /// Gives up runs that cannot be read back, so that they are made again.
    pub fn give_up(&mut self, chunks: &[u32]) -> Result<()> {
        for chunk in chunks {
            if let Some(run) = self.held.remove(chunk) {
                let _ = self.files.places.scratch[run.directory].remove(&run.name());
            }
        }
        self.losses += chunks.len();
        let most = 3 * self.digests.len();
        if self.losses <= most {
            return Ok(());
        }
        let text = format!(
            "{} runs could not be read back from {}: use another scratch directory",
            self.losses,
            self.files.places.scratch[0].place()
        );
        Err(Error::new(Status::Store, text))
    }

    /// The number of records of each of this rank's runs before a cut, and the runs that cannot be read.
    fn positions(&mut self, cut: &Cut) -> Result<(BTreeMap<u32, u64>, Vec<u32>)> {
        let (mut positions, mut unreadable) = (BTreeMap::new(), Vec::new());
        for (chunk, run) in &self.held {
            let read = |records: Range<u64>| {
                let range = run.index.file_range(&records);
                let mut block = Buffer::unset((range.end - range.start) as usize)?;
                let extent = extent(run, &records);
                if self.files.places.read(&[extent], &mut block).is_err() {
                    return Ok(None);
                }
                let is_intact = run.index.is_intact(records.start, &block);
                Ok(is_intact.then(|| block.into()))
            };
            match run.index.cut(cut, &*self.kernel, read)? {
                Some(position) => {
                    positions.insert(*chunk, position);
                }
                None => unreadable.push(*chunk),
            }
        }
        Ok((positions, unreadable))
    }

    /// Proposes the end of the next batch.
    pub fn propose_end(&self) -> Result<Cut> {
        let runs = self.held.values().map(|run| (&run.index, run.position));
        let runs: Vec<_> = runs.collect();
        farthest_cut(&runs, self.most_records(), &*self.kernel).ok_or_else(|| {
            let text = format!(
                "memory_bytes is too small for {} runs of this source: give the sort more memory, or use more ranks",
                runs.len()
            );
            Error::new(Status::Memory, text)
        })
    }

    /// Sets the positions of all runs to the committed cut. Returns the runs that cannot be read.
    pub fn rewind(&mut self) -> Result<Vec<u32>> {
        let cut = self.manifest.cut.clone();
        let (positions, unreadable) = self.positions(&cut)?;
        for (chunk, position) in positions {
            if let Some(run) = self.held.get_mut(&chunk) {
                run.position = position;
            }
        }
        Ok(unreadable)
    }

    /// Starts to read this rank's records of a batch. Returns the runs that cannot be read, if there are any.
    pub fn start_batch(&mut self, end: Cut) -> Result<std::result::Result<Reading, Vec<u32>>> {
        let (positions, unreadable) = self.positions(&end)?;
        if !unreadable.is_empty() {
            return Ok(Err(unreadable));
        }
        let (mut parts, mut extents) = (Vec::new(), Vec::new());
        for (chunk, position) in positions {
            let Some(run) = self.held.get_mut(&chunk) else {
                continue;
            };
            let records = run.position..position.max(run.position);
            run.position = records.end;
            if !records.is_empty() {
                extents.push(extent(run, &records));
                parts.push((chunk, records));
            }
        }
        let into = Buffer::unset(extents.iter().map(|extent| extent.bytes).sum())?;
        self.stats.bytes_read += into.len() as u64;
        let transfer = self.files.start_read(extents, into);
        Ok(Ok(Reading {
            end,
            parts,
            transfer,
        }))
    }

    /// Waits for the records of a batch. Returns the runs that cannot be read, if there are any.
    pub fn finish_batch(&mut self, reading: Reading) -> std::result::Result<Slice, Vec<u32>> {
        let of_all = |parts: &[(u32, Range<u64>)]| parts.iter().map(|(chunk, _)| *chunk).collect();
        let Ok(records) = reading.transfer.wait() else {
            return Err(of_all(&reading.parts));
        };
        let mut unreadable = Vec::new();
        let mut rest = &records[..];
        for (chunk, range) in &reading.parts {
            let bytes = (range.end - range.start) as usize * self.record_bytes();
            let (part, later) = rest.split_at(bytes);
            rest = later;
            let run = self.held.get(chunk);
            let is_intact = run.is_some_and(|run| run.index.is_intact(range.start, part));
            if !is_intact && !mutant(Mutant::DamagedRunUsed) {
                unreadable.push(*chunk);
            }
        }
        if unreadable.is_empty() {
            Ok(records.into())
        } else {
            Err(unreadable)
        }
    }

    /// Starts to write blocks to their places in the output, of which `done` records are written before.
    pub fn start_output(&mut self, done: u64, blocks: Vec<(u64, Slice)>) -> Transfer<()> {
        let record_bytes = self.record_bytes() as u64;
        let name = self.draft_of_output();
        let extents = blocks.iter().map(|(offset, records)| Extent {
            place: Place::Output(name.clone()),
            at: self.manifest.identity.output_offset + (done + offset) * record_bytes,
            bytes: records.len(),
        });
        let extents: Vec<Extent> = extents.collect();
        let blocks: Vec<Slice> = blocks.into_iter().map(|(_, records)| records).collect();
        self.stats.bytes_written += blocks.iter().map(|block| block.len() as u64).sum::<u64>();
        self.files.start_write(extents, blocks)
    }
}

/// The bytes of these records in a run's file.
fn extent(run: &HeldRun, records: &Range<u64>) -> Extent {
    let range = run.index.file_range(records);
    Extent {
        place: Place::Scratch(run.directory, run.name()),
        at: range.start,
        bytes: (range.end - range.start) as usize,
    }
}

/// The number of records of a sorted chunk before a cut.
fn records_before(cut: &Cut, chunk: u32, sorted: &Slice, kernel: &dyn Kernel) -> usize {
    let run = Run {
        origin: Rank(chunk),
        start: 0,
        data: sorted.clone(),
    };
    match cut {
        Cut::AllUpper => 0,
        Cut::AllLower => sorted.len() / kernel.record_bytes(),
        Cut::At(point) => point.records_before(&run, kernel),
    }
}

/// Removes the runs of a job.
pub(super) fn remove_runs(files: &mut ExternalFiles, job: u64) {
    for files in &mut files.places.scratch {
        for name in files.list().unwrap_or_default() {
            if name.starts_with(&run_prefix(job)) {
                let _ = files.remove(&name);
            }
        }
    }
}

/// The chunks of a source of these properties for so many ranks, each with `share` bytes for a chunk; and the number of
/// records of a block of a run. If only one rank survives, it has room for a block of every run.
pub(super) fn geometry(identity: &Identity, share: usize, ranks: usize) -> Result<(Geometry, u64)> {
    let (bytes, record_bytes) = (identity.bytes, identity.record_bytes as u64);
    let geometry = Geometry::new(bytes / record_bytes, identity.record_bytes, share, ranks);
    let chunks = geometry.chunks().max(1);
    let most = (share as u64 / chunks).min((share / LEAST_BLOCKS) as u64);
    let block = most.min(BLOCK_BYTES) / record_bytes;
    let has_room = chunks.saturating_mul(record_bytes) <= share as u64;
    if has_room && u32::try_from(chunks).is_ok() {
        return Ok((geometry, block.max(1)));
    }
    // So large that there are not more chunks than records in one of them.
    let least =
        (bytes as f64 * record_bytes as f64).sqrt() * 1.5 + (record_bytes * ranks as u64) as f64;
    let text = format!(
        "memory_bytes is too small for a source of {bytes} bytes in records of {record_bytes}: give each rank {} bytes",
        least.ceil() as u64 * PARTS_OF_MEMORY as u64
    );
    Err(Error::new(Status::Memory, text))
}

//! One rank's part of an external sort between two agreements: the runs that it has, and batches of them.
//!
//! Must never: communicate.

use std::collections::BTreeMap;

use super::making::run_prefix;
use super::reading::{FoundRun, HeldRun, HeldRuns, Intact, Reading, ScratchFile};
use super::{ExternalSort, ExternalStats, PARTS_OF_MEMORY};
use crate::external::footer::{FOOTER_BYTES, RunFooter};
use crate::external::geometry::Geometry;
use crate::external::manifest::{Identity, Manifest};
use crate::external::parts::OutputParts;
use crate::external::places::{Extent, ExternalFiles, Place, Transfer};
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::sort::pivot::Cut;
use ftsort_kernels::buffer::Slice;
use ftsort_kernels::error::{Error, Result, Status, caught};
use ftsort_kernels::kernel::{Kernel, ThreadPool, kernel_for};
use ftsort_kernels::record::Layout;

/// The files and the state of an external sort on this rank.
pub(super) struct ExternalJob {
    /// This rank.
    pub me: Rank,
    pub layout: Layout,
    pub kernel: Box<dyn Kernel>,
    pub files: ExternalFiles,
    pub manifest: Manifest,
    /// The bytes of a piece, and of this rank's part of a batch.
    pub share: usize,
    pub stats: ExternalStats,
    /// The runs of chunks that this rank uses, with their indexes.
    pub held: HeldRuns,
    /// The runs of chunks that this rank has found in its scratch directories, without their indexes. Other ranks may
    /// use them.
    pub found: BTreeMap<u32, FoundRun>,
    /// The digests of the runs of all ranks; 0: not known.
    digests: Vec<u64>,
    pub resume: bool,
    /// The files of the output.
    pub output: OutputParts,
    /// The number of runs that this rank could not read back.
    losses: usize,
    /// The writers of the manifests that this call continues.
    pub before: Vec<u64>,
    /// All ranks know that this call has written its first manifest.
    pub is_begun: bool,
    /// This rank has found that another job writes the output. Only the writer of the manifest looks during the sort.
    pub is_replaced: bool,
    /// An earlier job, or an earlier attempt of this call, may have given files of the output their names.
    pub may_be_named: bool,
}

impl ExternalJob {
    /// The state of a job at its beginning.
    pub fn new(
        sort: ExternalSort,
        manifest: Manifest,
        share: usize,
        (me, threads): (Rank, &ThreadPool),
    ) -> ExternalJob {
        let chunks = manifest.geometry.chunks() as usize;
        ExternalJob {
            me,
            kernel: kernel_for(&sort.layout, threads.clone()),
            layout: sort.layout,
            files: sort.files,
            share,
            stats: ExternalStats {
                records: manifest.geometry.records,
                resumed_records: manifest.done,
                ..ExternalStats::default()
            },
            held: HeldRuns::default(),
            found: BTreeMap::new(),
            digests: vec![0; chunks],
            resume: sort.resume,
            output: OutputParts::new(&sort.output, &manifest.identity),
            losses: 0,
            before: Vec::new(),
            is_begun: false,
            is_replaced: false,
            may_be_named: manifest.is_written(),
            manifest,
        }
    }

    pub fn record_bytes(&self) -> usize {
        self.layout.record_bytes()
    }

    /// The number of records of a piece, and of this rank's part of a batch, at most.
    pub fn most_records(&self) -> u64 {
        (self.share / self.record_bytes()).max(1) as u64
    }

    /// Finds the runs that are in the scratch directories and that this rank does not have: of an earlier job over the
    /// same data, or of another rank that uses the same directory. Reads only their footers, because each run is used
    /// by one of the ranks that see it. Removes files that they did not complete. No rank makes runs meanwhile.
    pub fn find_runs(&mut self) {
        let prefix = run_prefix(self.manifest.job);
        for directory in 0..self.files.places.scratch.len() {
            let names = self.files.places.scratch[directory].list();
            for name in names.unwrap_or_default() {
                let Some(chunk) = name.strip_prefix(&prefix) else {
                    continue;
                };
                // A draft or a piece has a longer name.
                let Ok(chunk) = chunk.parse::<u32>() else {
                    let _ = self.files.places.scratch[directory].remove(&name);
                    continue;
                };
                if self.held.contains_key(&chunk) || self.found.contains_key(&chunk) {
                    continue;
                }
                if let Some(footer) = self.read_footer(directory, &name, chunk) {
                    let file = ScratchFile { directory, name };
                    self.found.insert(chunk, FoundRun { footer, file });
                }
            }
        }
    }

    /// None: the run is damaged or does not have the records that are missing in the output.
    fn read_footer(&self, directory: usize, name: &str, chunk: u32) -> Option<RunFooter> {
        let files = &self.files.places.scratch[directory];
        let (size, _) = files.read(name).ok()?;
        let mut end = [0; FOOTER_BYTES];
        let at = size.checked_sub(FOOTER_BYTES as u64)?;
        files.read_at(name, at, &mut end).ok()?;
        let footer = RunFooter::decode(&end, size)?;
        let manifest = &self.manifest;
        // These fields determine the size of the index, which is read later.
        let is_whole = u64::from(chunk) < manifest.geometry.chunks()
            && footer.records == manifest.geometry.chunk_records(chunk.into());
        let is_same = (footer.job, footer.chunk, footer.block)
            == (manifest.job, chunk, manifest.block)
            && footer.record_bytes == manifest.identity.record_bytes;
        // The manifest may be older than the run.
        let has_all = footer.done <= manifest.done || mutant(Mutant::RunOfLaterBatchUsed);
        (is_whole && is_same && has_all).then_some(footer)
    }

    /// Reads the indexes of the runs that were found and that other ranks do not use. Returns the runs whose index
    /// cannot be read or is damaged.
    fn read_indexes(&mut self) -> Vec<u32> {
        let mut unreadable = Vec::new();
        for (chunk, run) in std::mem::take(&mut self.found) {
            if let Some(index) = run.read_index(&self.files.places) {
                self.held.hold(HeldRun::new(index, run.file));
            } else if !mutant(Mutant::DamagedIndexIgnored) {
                unreadable.push(chunk);
                self.found.insert(chunk, run);
            }
        }
        unreadable
    }

    /// The digests of this rank's runs as a message; 0: it does not have the run.
    pub fn holdings(&self) -> Vec<u8> {
        let chunks = 0..self.digests.len() as u32;
        let digests = chunks.map(|chunk| {
            let held = self.held.get(&chunk).map(|run| &run.index.footer);
            let footer = held.or_else(|| self.found.get(&chunk).map(|run| &run.footer));
            footer.map_or(0, |footer| footer.digest.max(1))
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
                        self.found.remove(&(chunk as u32));
                    }
                }
            }
        }
        Ok((counts, missing))
    }

    /// Gives up runs that cannot be read back, so that they are made again.
    pub fn give_up(&mut self, chunks: &[u32]) -> Result<()> {
        for chunk in chunks {
            let held = self.held.remove(chunk).map(|run| run.file);
            let found = self.found.remove(chunk).map(|run| run.file);
            for ScratchFile { directory, name } in held.into_iter().chain(found) {
                let _ = self.files.places.scratch[directory].remove(&name);
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
            self.scratch_places()
        );
        Err(Error::new(Status::Store, text))
    }

    /// The scratch directories for error texts.
    pub fn scratch_places(&self) -> String {
        let places = self.files.places.scratch.iter();
        places
            .map(|files| files.place())
            .collect::<Vec<_>>()
            .join(" or ")
    }

    /// Runs a step, and returns a panic of a comparator as an error on which ranks can agree.
    pub fn attempt<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        caught(|| Ok(step(self))).unwrap_or_else(|panic| Err(self.kernel.error_of_panic(panic)))
    }

    /// The error of records that are read up to a cut before which there is none: only a comparator that contradicts
    /// itself proposes such a cut, and may do so without end.
    pub fn no_progress(&self) -> Error {
        let error = Error::internal("no record is before the next cut");
        self.kernel.error_of_panic(error)
    }

    /// Proposes the end of the next batch.
    pub fn propose_end(&self) -> Result<Cut> {
        self.held.farthest_end(self.most_records(), &*self.kernel)
    }

    /// Reads the indexes that are missing, and sets the positions of all runs to the committed cut. Returns the runs
    /// that cannot be read.
    pub fn rewind(&mut self) -> Result<Vec<u32>> {
        let mut unreadable = self.read_indexes();
        let (cut, places) = (&self.manifest.cut, &self.files.places);
        let rewound = self.held.rewind(cut, places, &*self.kernel)?;
        unreadable.extend(rewound.err().unwrap_or_default());
        Ok(unreadable)
    }

    /// Starts to read this rank's records of a batch. Returns the runs that cannot be read, if there are any.
    pub fn start_batch(&mut self, end: Cut) -> Result<Intact<Reading>> {
        let reading = self
            .held
            .start_reading(end, &mut self.files, &*self.kernel)?;
        self.count(&reading);
        Ok(reading)
    }

    /// Counts the bytes of records that are read.
    pub fn count(&mut self, reading: &Intact<Reading>) {
        if let Ok(reading) = reading {
            self.stats.bytes_read += reading.bytes(self.record_bytes());
        }
    }

    /// Waits for the records of a batch. Returns the runs that cannot be read, if there are any.
    pub fn finish_batch(&mut self, reading: Reading) -> Intact<Slice> {
        let records = self.held.finish_reading(reading, Mutant::DamagedRunUsed)?;
        Ok(records.into())
    }

    /// Starts to write blocks to their places in the output, of which `done` records are written before.
    pub fn start_output(&mut self, done: u64, blocks: Vec<(u64, Slice)>) -> Transfer<()> {
        let (mut extents, mut pieces) = (Vec::new(), Vec::new());
        for (offset, records) in blocks {
            self.stats.bytes_written += records.len() as u64;
            for portion in self.output.divide(done + offset, records.len()) {
                extents.push(Extent {
                    place: Place::Output(self.output.draft_of(portion.part)),
                    at: portion.at,
                    bytes: portion.bytes.len(),
                });
                pieces.push(records.part(portion.bytes));
            }
        }
        self.files.start_write(extents, pieces)
    }
}

/// The chunks of a source of these properties for so many ranks, each with `share` bytes for a piece; and the number of
/// records of a block of a run.
pub(super) fn geometry(identity: &Identity, share: usize, ranks: usize) -> Result<(Geometry, u64)> {
    let (bytes, record_bytes) = (identity.bytes, identity.record_bytes);
    let records = bytes / record_bytes as u64;
    Geometry::fitting(records, record_bytes, share, ranks).ok_or_else(|| {
        let least = Geometry::sufficient_share(records, record_bytes, ranks);
        let text = format!(
            "memory_bytes is too small for a source of {bytes} bytes in records of {record_bytes}: give each rank {} bytes",
            least.saturating_mul(PARTS_OF_MEMORY as u64)
        );
        Error::new(Status::Memory, text)
    })
}

//! Makes the runs of chunks.
//!
//! A chunk that fits into memory is read, sorted and written as a run. A larger chunk is divided into pieces that fit.
//! Each piece is sorted and written to a scratch file, and the pieces are merged, one portion that fits into memory after
//! the other. The pieces are consecutive parts of the chunk and every sort is stable, so a run has the same bytes however
//! its chunk is divided.
//!
//! Must never: communicate, or use a piece that this process did not write.

use std::ops::Range;

use super::job::ExternalJob;
use super::reading::{HeldRun, HeldRuns, Intact, Reading, ScratchFile};
use crate::block::Run;
use crate::external::geometry::block_records;
use crate::external::manifest::Manifest;
use crate::external::places::{Extent, ExternalFiles, Place, Transfer};
use crate::external::run::{IndexBuilder, RunIndex};
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::sort::pivot::Cut;
use crate::store::directory::refusal;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::error::{Error, Result, Status};

/// How often the pieces of a chunk are made before the sort ends with an error, because pieces cannot be read back.
const ATTEMPTS: usize = 3;

/// A part of a chunk that fits into memory.
struct Part {
    chunk: u32,
    /// The number of the piece; 0 for a whole chunk.
    piece: u32,
    /// The positions of its records in the chunk.
    records: Range<u64>,
}

/// A run or a piece that is being written.
struct Draft {
    index: RunIndex,
    file: ScratchFile,
    transfer: Transfer<()>,
}

/// The beginning of the names of a job's runs, drafts of runs, and pieces.
pub(super) fn run_prefix(job: u64) -> String {
    format!("ftsort-run-{job:016x}-")
}

fn run_name(job: u64, chunk: u32) -> String {
    format!("{}{chunk}", run_prefix(job))
}

/// Removes the files of a job in the scratch directories.
pub(super) fn remove_runs(files: &mut ExternalFiles, job: u64) {
    for files in &mut files.places.scratch {
        for name in files.list().unwrap_or_default() {
            if name.starts_with(&run_prefix(job)) {
                let _ = files.remove(&name);
            }
        }
    }
}

impl ExternalJob {
    /// Makes the runs of these chunks.
    pub fn make_runs(&mut self, chunks: &[u32]) -> Result<()> {
        let (geometry, most) = (self.manifest.geometry, self.most_records());
        let sized = chunks
            .iter()
            .map(|chunk| (*chunk, geometry.chunk_records((*chunk).into())));
        let (small, large): (Vec<_>, Vec<_>) = sized.partition(|(_, records)| *records <= most);
        let whole = small.into_iter().map(|(chunk, records)| Part {
            chunk,
            piece: 0,
            records: 0..records,
        });
        self.sort_parts(whole, Self::start_run, Self::finish_run)?;
        large
            .into_iter()
            .try_for_each(|(chunk, _)| self.make_run_of_pieces(chunk))
    }

    /// Reads and sorts these parts of the source. `start` starts to write a sorted part, and `finish` waits for it.
    fn sort_parts(
        &mut self,
        mut parts: impl Iterator<Item = Part>,
        start: impl Fn(&mut Self, Part, Slice) -> Result<Draft>,
        mut finish: impl FnMut(&mut Self, Draft) -> Result<()>,
    ) -> Result<()> {
        let mut next = match parts.next() {
            None => return Ok(()),
            Some(part) => Some(self.start_part(part)?),
        };
        let mut draft: Option<Draft> = None;
        while let Some((part, transfer)) = next {
            let mut records = transfer.wait()?;
            next = match parts.next() {
                None => None,
                Some(part) => Some(self.start_part(part)?),
            };
            self.kernel.sort(&mut records)?;
            let started = start(self, part, records.into());
            if let Some(draft) = draft.take() {
                finish(self, draft)?;
            }
            draft = Some(started?);
        }
        draft.map_or(Ok(()), |draft| finish(self, draft))
    }

    /// Starts to read a part of the source.
    fn start_part(&mut self, part: Part) -> Result<(Part, Transfer<Buffer>)> {
        let record_bytes = self.record_bytes();
        let geometry = &self.manifest.geometry;
        let ranges = geometry.ranges_of_part(part.chunk.into(), part.records.clone());
        let extents = ranges.map(|range| Extent {
            place: Place::Source,
            at: range.start * record_bytes as u64,
            bytes: (range.end - range.start) as usize * record_bytes,
        });
        let extents: Vec<Extent> = extents.collect();
        let into = Buffer::unset(extents.iter().map(|extent| extent.bytes).sum())?;
        self.stats.bytes_read += into.len() as u64;
        Ok((part, self.files.start_read(extents, into)))
    }

    /// Starts to write a sorted chunk as a run, without the records that are in the output.
    fn start_run(&mut self, part: Part, sorted: Slice) -> Result<Draft> {
        let mut index = self.index_of_run(part.chunk);
        let stored = self.add_to_run(&mut index, sorted);
        let file = self.create_run(part.chunk)?;
        self.append_index(index.finish(), file, 0, stored)
    }

    fn index_of_run(&self, chunk: u32) -> IndexBuilder {
        let manifest = &self.manifest;
        let key = (manifest.job, chunk);
        IndexBuilder::new(key, manifest.done, manifest.block, self.record_bytes())
    }

    /// Adds the next records to the index of a run, and returns those that are not in the output.
    fn add_to_run(&self, index: &mut IndexBuilder, sorted: Slice) -> Slice {
        let run = Run {
            origin: Rank(index.chunk()),
            start: if mutant(Mutant::PortionsCutAsRuns) {
                0
            } else {
                index.records()
            },
            data: sorted,
        };
        let in_output = self.manifest.cut.records_below(&run, &*self.kernel);
        index.add(&run.data, in_output as u64);
        let sorted = run.data;
        sorted.part(in_output * self.record_bytes()..sorted.len())
    }

    /// A name that no other rank and no other call uses: a process that was stopped may continue after the others have
    /// declared it failed, or while a later job resumes the sort, and rename or remove its files.
    fn temporary_name(&self, chunk: u32, kind: &str) -> String {
        let Manifest { job, writer, .. } = self.manifest;
        format!("{}.{kind}.{writer:016x}.{}", run_name(job, chunk), self.me)
    }

    /// Creates the file of a run under its temporary name.
    fn create_run(&mut self, chunk: u32) -> Result<ScratchFile> {
        self.create(ScratchFile {
            directory: chunk as usize % self.files.places.scratch.len(),
            name: self.temporary_name(chunk, "draft"),
        })
    }

    fn create(&mut self, file: ScratchFile) -> Result<ScratchFile> {
        let files = &mut self.files.places.scratch[file.directory];
        // An earlier attempt may have left it.
        let _ = files.remove(&file.name);
        let created = files.write(&file.name, &[]);
        created.map_err(|error| refusal("create", &**files, &file.name, &error))?;
        Ok(file)
    }

    /// Starts to write the last records of a run, at `at` in its file, and the index behind them.
    fn append_index(
        &mut self,
        index: RunIndex,
        file: ScratchFile,
        at: u64,
        stored: Slice,
    ) -> Result<Draft> {
        let encoded: Slice = Buffer::copy_of(&index.encode())?.into();
        let end = at + stored.len() as u64;
        let extents = vec![
            file.extent(at, stored.len()),
            file.extent(end, encoded.len()),
        ];
        self.stats.bytes_written += (stored.len() + encoded.len()) as u64;
        let transfer = self.files.start_write(extents, vec![stored, encoded]);
        Ok(Draft {
            index,
            file,
            transfer,
        })
    }

    /// Waits until a run is written, and gives it its name.
    fn finish_run(&mut self, draft: Draft) -> Result<()> {
        draft.transfer.wait()?;
        let footer = &draft.index.footer;
        let name = run_name(footer.job, footer.chunk);
        let files = &mut self.files.places.scratch[draft.file.directory];
        files
            .sync(&draft.file.name)
            .and_then(|()| files.rename(&draft.file.name, &name))
            .and_then(|()| files.sync_names())
            .map_err(|error| refusal("write", &**files, &name, &error))?;
        self.stats.runs += 1;
        let file = ScratchFile { name, ..draft.file };
        self.held.hold(HeldRun::new(draft.index, file));
        Ok(())
    }

    /// Makes the run of a chunk that does not fit into memory. Pieces that cannot be read back are made again.
    fn make_run_of_pieces(&mut self, chunk: u32) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let mut pieces = self.make_pieces(chunk)?;
            let draft = self.merge(chunk, &mut pieces)?;
            for piece in pieces.values() {
                let ScratchFile { directory, name } = &piece.file;
                let _ = self.files.places.scratch[*directory].remove(name);
            }
            if let Some(draft) = draft {
                return self.finish_run(draft);
            }
        }
        let text = format!(
            "parts of chunk {chunk} could not be read back from {} in {ATTEMPTS} attempts: use another scratch directory",
            self.scratch_places()
        );
        Err(Error::new(Status::Store, text))
    }

    /// Sorts the pieces of a chunk into scratch files.
    fn make_pieces(&mut self, chunk: u32) -> Result<HeldRuns> {
        let geometry = &self.manifest.geometry;
        let pieces: Vec<_> = geometry.pieces(chunk.into(), self.most_records()).collect();
        let mut numbers: Vec<u32> = (0..pieces.len() as u32).collect();
        if mutant(Mutant::PiecesMergedBackwards) {
            numbers.reverse();
        }
        let parts = numbers.into_iter().zip(pieces);
        let parts = parts.map(|(piece, records)| Part {
            chunk,
            piece,
            records,
        });
        let parts: Vec<Part> = parts.collect();
        // A merge refuses blocks for which there is no memory.
        let block = block_records(self.share, self.record_bytes(), parts.len() as u64).unwrap_or(1);
        let mut made = HeldRuns::default();
        self.sort_parts(
            parts.into_iter(),
            |job, part, sorted| job.start_piece(&part, block, sorted),
            |_, draft| {
                draft.transfer.wait()?;
                made.hold(HeldRun::new(draft.index, draft.file));
                Ok(())
            },
        )?;
        Ok(made)
    }

    /// Starts to write a sorted piece. Its index stays in memory, because no other process uses the file.
    fn start_piece(&mut self, part: &Part, block: u64, sorted: Slice) -> Result<Draft> {
        let Part { chunk, piece, .. } = *part;
        let job = self.manifest.job;
        let index = RunIndex::new((job, piece), &sorted, (0, 0), block, self.record_bytes());
        let file = self.create(ScratchFile {
            directory: (chunk as usize + piece as usize) % self.files.places.scratch.len(),
            name: self.temporary_name(chunk, &format!("piece{piece}")),
        })?;
        let extent = file.extent(0, sorted.len());
        self.stats.bytes_written += sorted.len() as u64;
        let transfer = self.files.start_write(vec![extent], vec![sorted]);
        Ok(Draft {
            index,
            file,
            transfer,
        })
    }

    /// Merges the pieces of a chunk into a run. None: a piece cannot be read back.
    fn merge(&mut self, chunk: u32, pieces: &mut HeldRuns) -> Result<Option<Draft>> {
        let file = self.create_run(chunk)?;
        let mut index = self.index_of_run(chunk);
        let mut written = 0;
        let mut behind: Option<Transfer<()>> = None;
        let mut ahead = self.start_portion(pieces)?;
        loop {
            let portion = ahead.and_then(|reading| {
                let is_last = reading.end == Cut::AllLower;
                let records = pieces.finish_reading(reading, Mutant::DamagedPieceUsed)?;
                Ok((records, is_last))
            });
            let Ok((mut records, is_last)) = portion else {
                // The next attempt writes to the same file.
                return behind.map_or(Ok(()), Transfer::wait).map(|()| None);
            };
            ahead = if is_last {
                Err(Vec::new())
            } else {
                self.start_portion(pieces)?
            };
            if records.is_empty() && !is_last {
                return Err(self.no_progress());
            }
            // The records of each piece are in order, and the pieces are in theirs.
            self.kernel.sort(&mut records)?;
            let stored = self.add_to_run(&mut index, records.into());
            behind.take().map_or(Ok(()), Transfer::wait)?;
            if is_last {
                let draft = self.append_index(index.finish(), file, written, stored)?;
                return Ok(Some(draft));
            }
            let extent = file.extent(written, stored.len());
            written += stored.len() as u64;
            self.stats.bytes_written += stored.len() as u64;
            behind = Some(self.files.start_write(vec![extent], vec![stored]));
        }
    }

    /// Starts to read the next records of the pieces that fit into memory. Returns the pieces that cannot be read, if
    /// there are any.
    fn start_portion(&mut self, pieces: &mut HeldRuns) -> Result<Intact<Reading>> {
        let end = pieces.farthest_end(self.most_records(), &*self.kernel)?;
        let reading = pieces.start_reading(end, &mut self.files, &*self.kernel)?;
        self.count(&reading);
        Ok(reading)
    }
}

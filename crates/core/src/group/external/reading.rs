//! Sorted runs in the scratch files of one rank, and reads of the records that are next in order: of its runs for a batch,
//! and of the pieces of a chunk for a merge.
//!
//! Must never: communicate.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut, Range};

use crate::external::footer::RunFooter;
use crate::external::places::{Extent, ExternalFiles, Place, Places, Transfer};
use crate::external::run::{RunIndex, farthest_cut};
use crate::mutants::{Mutant, mutant};
use crate::sort::pivot::Cut;
use ftsort_kernels::buffer::Buffer;
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_kernels::kernel::Kernel;

/// A file in a scratch directory.
pub(super) struct ScratchFile {
    /// The index of the directory.
    pub directory: usize,
    pub name: String,
}

impl ScratchFile {
    /// These bytes of the file.
    pub fn extent(&self, at: u64, bytes: usize) -> Extent {
        Extent {
            place: Place::Scratch(self.directory, self.name.clone()),
            at,
            bytes,
        }
    }
}

/// A run in a scratch file of this rank.
pub(super) struct HeldRun {
    pub index: RunIndex,
    pub file: ScratchFile,
    /// The number of records of the run that have been read.
    position: u64,
}

/// A run in a scratch file, of which this rank has read only the footer.
pub(super) struct FoundRun {
    pub footer: RunFooter,
    pub file: ScratchFile,
}

/// Runs by their numbers: runs of chunks, or pieces of one chunk.
#[derive(Default)]
pub(super) struct HeldRuns(BTreeMap<u32, HeldRun>);

/// Records that are being read.
pub(super) struct Reading {
    /// The records before this cut, and not before the one of the last reading, are read.
    pub end: Cut,
    /// For each run, the records that are read.
    parts: Vec<(u32, Range<u64>)>,
    transfer: Transfer<Buffer>,
}

/// A value, or the runs that cannot be read or are damaged.
pub(super) type Intact<T> = std::result::Result<T, Vec<u32>>;

impl HeldRun {
    pub fn new(index: RunIndex, file: ScratchFile) -> HeldRun {
        HeldRun {
            position: index.footer.first,
            index,
            file,
        }
    }

    /// The bytes of these records in the file.
    fn extent(&self, records: &Range<u64>) -> Extent {
        let range = self.index.file_range(records);
        let bytes = (range.end - range.start) as usize;
        self.file.extent(range.start, bytes)
    }
}

impl FoundRun {
    /// Reads the index of the run. None if it cannot be read, is damaged, or is not that of the footer any more.
    pub fn read_index(&self, places: &Places) -> Option<RunIndex> {
        let (at, bytes) = (self.footer.stored_bytes()?, self.footer.index_bytes()?);
        let mut index = vec![0; bytes];
        let files = &places.scratch[self.file.directory];
        files.read_at(&self.file.name, at, &mut index).ok()?;
        RunIndex::decode(&index, &self.footer)
    }
}

impl Deref for HeldRuns {
    type Target = BTreeMap<u32, HeldRun>;

    fn deref(&self) -> &BTreeMap<u32, HeldRun> {
        &self.0
    }
}

impl DerefMut for HeldRuns {
    fn deref_mut(&mut self) -> &mut BTreeMap<u32, HeldRun> {
        &mut self.0
    }
}

impl HeldRuns {
    /// Adds a run.
    pub fn hold(&mut self, run: HeldRun) {
        self.0.insert(run.index.footer.chunk, run);
    }

    /// Returns the farthest cut before which at most `most` records are that have not been read.
    ///
    /// # Errors
    /// `Status::Memory` if `most` is less than a block of each run.
    pub fn farthest_end(&self, most: u64, kernel: &dyn Kernel) -> Result<Cut> {
        let runs = self.values().map(|run| (&run.index, run.position));
        let runs: Vec<_> = runs.collect();
        farthest_cut(&runs, most, kernel).ok_or_else(|| {
            let text = format!(
                "memory_bytes is too small for {} runs of this source: give the sort more memory, or use more ranks",
                runs.len()
            );
            Error::new(Status::Memory, text)
        })
    }

    /// The number of records of each run before a cut.
    fn positions(
        &self,
        cut: &Cut,
        places: &Places,
        kernel: &dyn Kernel,
    ) -> Result<Intact<BTreeMap<u32, u64>>> {
        let (mut positions, mut unreadable) = (BTreeMap::new(), Vec::new());
        for (number, run) in &self.0 {
            let read = |records: Range<u64>| {
                let extent = run.extent(&records);
                let mut block = Buffer::unset(extent.bytes)?;
                if places.read(&[extent], &mut block).is_err() {
                    return Ok(None);
                }
                let is_intact = run.index.is_intact(records.start, &block);
                Ok(is_intact.then(|| block.into()))
            };
            match run.index.cut(cut, kernel, read)? {
                Some(position) => {
                    positions.insert(*number, position);
                }
                None => unreadable.push(*number),
            }
        }
        Ok(if unreadable.is_empty() {
            Ok(positions)
        } else {
            Err(unreadable)
        })
    }

    /// Sets the positions of all runs to a cut.
    pub fn rewind(
        &mut self,
        cut: &Cut,
        places: &Places,
        kernel: &dyn Kernel,
    ) -> Result<Intact<()>> {
        let positions = self.positions(cut, places, kernel)?;
        Ok(positions.map(|positions| {
            for (number, position) in positions {
                if let Some(run) = self.0.get_mut(&number) {
                    run.position = position;
                }
            }
        }))
    }

    /// Starts to read the records before a cut that have not been read, ordered by their runs.
    pub fn start_reading(
        &mut self,
        end: Cut,
        files: &mut ExternalFiles,
        kernel: &dyn Kernel,
    ) -> Result<Intact<Reading>> {
        let positions = match self.positions(&end, &files.places, kernel)? {
            Ok(positions) => positions,
            Err(unreadable) => return Ok(Err(unreadable)),
        };
        let (mut parts, mut extents) = (Vec::new(), Vec::new());
        for (number, position) in positions {
            let Some(run) = self.0.get_mut(&number) else {
                continue;
            };
            let records = run.position..position.max(run.position);
            run.position = records.end;
            if !records.is_empty() {
                extents.push(run.extent(&records));
                parts.push((number, records));
            }
        }
        let into = Buffer::unset(extents.iter().map(|extent| extent.bytes).sum())?;
        let transfer = files.start_read(extents, into);
        Ok(Ok(Reading {
            end,
            parts,
            transfer,
        }))
    }

    /// Waits for records that are read. `ignores_damage`: the mutant that uses damaged records.
    pub fn finish_reading(&self, reading: Reading, ignores_damage: Mutant) -> Intact<Buffer> {
        let Ok(records) = reading.transfer.wait() else {
            return Err(reading.parts.iter().map(|(number, _)| *number).collect());
        };
        let mut unreadable = Vec::new();
        let mut rest = &records[..];
        for (number, range) in &reading.parts {
            let run = self.0.get(number);
            let bytes = run.map_or(0, |run| run.extent(range).bytes);
            let (part, later) = rest.split_at(bytes);
            rest = later;
            let is_intact = run.is_some_and(|run| run.index.is_intact(range.start, part));
            if !is_intact && !mutant(ignores_damage) {
                unreadable.push(*number);
            }
        }
        if unreadable.is_empty() {
            Ok(records)
        } else {
            Err(unreadable)
        }
    }
}

impl Reading {
    /// The number of bytes.
    pub fn bytes(&self, record_bytes: usize) -> u64 {
        let parts = self.parts.iter();
        let records: u64 = parts.map(|(_, range)| range.end - range.start).sum();
        records * record_bytes as u64
    }
}

//! The begin of an external sort: its arguments, the memory, and the state from which it continues.

use super::job::{ExternalJob, geometry};
use super::making::remove_runs;
use super::output::{
    LeftState, check_same_sort, check_source_names, identity_of, left_state, remove_drafts,
};
use super::{ExternalSort, PARTS_OF_MEMORY};
use crate::engine::{CollectiveError, CollectiveResult, InStep};
use crate::external::manifest::{Identity, Manifest};
use crate::external::parts::OutputParts;
use crate::group::Group;
use crate::group::config::agree_on_equal;
use crate::mutants::{Mutant, mutant};
use crate::sort::pivot::Cut;
use crate::transport::Transport;
use crate::wire::Reader;
use ftsort_kernels::error::{Error, Result, Status, refuse};
use ftsort_kernels::memory::MemoryBudget;

impl<T: Transport> Group<T> {
    /// Agrees on the arguments, the memory, and the state from which the sort continues. Collective.
    pub(super) fn begin_external(
        &mut self,
        sort: Result<ExternalSort>,
    ) -> CollectiveResult<ExternalJob> {
        let checked = sort.and_then(|sort| {
            if self.expects_bitonic() {
                return refuse(
                    "FTSORT_BITONIC_MERGE sorts bitonic sequences, and an external sort has none",
                );
            }
            if sort.resume {
                sort.layout.check_known_order()?;
            }
            check_source_names(&sort)?;
            let identity = identity_of(&sort)?;
            Ok((sort, identity))
        });
        let (sort, identity) = self.on_all(checked)?;
        let facts = [
            ("record, output or resume", sort.fingerprint()),
            ("the size of the source", identity.bytes),
            ("the source", identity.source),
            ("output_offset", identity.output_offset),
            ("output_parts", identity.output_parts),
        ];
        self.on_engine(|engine| agree_on_equal(engine, &facts))?;
        let memory = match sort.memory_bytes {
            0 => MemoryBudget::current().measured_limit() / 2,
            bytes => bytes,
        };
        let share = memory / PARTS_OF_MEMORY;
        let reports = self.reports(share.to_le_bytes().to_vec(), None)?;
        let shares = reports
            .iter()
            .filter_map(|(_, share)| share[..].try_into().ok());
        let share = shares.map(usize::from_le_bytes).min().unwrap_or(share);
        let (left, writers) = self.shared_manifest(&sort)?;
        let writer = self.draw_seed();
        let left = match left {
            Some(LeftState {
                manifest,
                continues: true,
            }) => manifest,
            left => {
                let left = left.map(|left| left.manifest);
                return self.begin_anew(sort, identity, left, (share, writer));
            }
        };
        check_same_sort(&left, &identity, &sort.output).or_alike()?;
        let manifest = Manifest { writer, ..left };
        let geometry = &manifest.geometry;
        let least = geometry.least_share(identity.record_bytes, manifest.block);
        if (share as u64) < least && !manifest.is_written() {
            let text = format!(
                "the sort to resume has {} runs, and a rank has memory for blocks of {share} bytes in all: give it {} bytes",
                geometry.chunks(),
                least.saturating_mul(PARTS_OF_MEMORY as u64)
            );
            return Err(CollectiveError::alike(Error::new(Status::Memory, text)));
        }
        let mut job = ExternalJob::new(sort, manifest, share, (self.members.me(), &self.threads));
        job.before = writers;
        self.find_runs(&mut job);
        job.stats.resumed_runs = job.found.len() as u64;
        Ok(job)
    }

    /// Begins a sort with its first batch. `left`: the manifest of an earlier sort, of which it removes the files. Collective.
    fn begin_anew(
        &mut self,
        mut sort: ExternalSort,
        identity: Identity,
        left: Option<Manifest>,
        (share, writer): (usize, u64),
    ) -> CollectiveResult<ExternalJob> {
        let ranks = self.members.executing().len();
        let (geometry, block) = geometry(&identity, share, ranks).or_alike()?;
        let manifest = Manifest {
            job: writer,
            writer,
            identity,
            geometry,
            block,
            done: 0,
            cut: Cut::AllUpper,
            is_finished: false,
        };
        let drafts_left = left.map(|left| {
            remove_runs(&mut sort.files, left.job);
            OutputParts::new(&sort.output, &left.identity)
        });
        let mut job = ExternalJob::new(sort, manifest, share, (self.members.me(), &self.threads));
        // Nothing of an earlier output may be behind the records of a shorter one.
        self.on_writer(|| {
            if let Some(left) = &drafts_left {
                remove_drafts(&mut *job.files.places.output, left)?;
            }
            job.remove_output()
        })?;
        Ok(job)
    }

    /// Finds the runs in the scratch directories of this rank. An idle spare adds no records to a batch, so it must not
    /// report runs of an earlier job.
    pub(super) fn find_runs(&self, job: &mut ExternalJob) {
        if !self.members.is_idle_spare(self.members.me()) || mutant(Mutant::RunsOfSparesUsed) {
            job.find_runs();
        }
    }

    /// The state that an earlier job has left, whether it is continued, and the writers of all manifests that ranks see; the
    /// same on all ranks. Collective.
    fn shared_manifest(
        &mut self,
        sort: &ExternalSort,
    ) -> CollectiveResult<(Option<LeftState>, Vec<u64>)> {
        let (mine, error) = match left_state(sort) {
            Ok(mine) => (mine, None),
            // A sort that is not resumed begins anew.
            Err(_) if !sort.resume || mutant(Mutant::UnreadableStateIgnored) => (None, None),
            Err(error) => (None, Some(error)),
        };
        let (mine, continues) = mine.map_or_else(Default::default, |left| {
            (left.manifest.encode(), left.continues)
        });
        let length = (mine.len() as u64).to_le_bytes();
        // The manifest of a sort of larger records is longer.
        let lengths = self.reports(length.to_vec(), error)?;
        let lengths = lengths
            .iter()
            .filter_map(|(_, report)| Reader::new(report).u64());
        let longest = lengths.max().unwrap_or(0);
        let mut message = [&length[..], &[u8::from(continues)], &mine].concat();
        message.resize(length.len() + 1 + longest as usize, 0);
        let reports = self.reports(message, None)?;
        let states = reports.iter().filter_map(|(_, report)| {
            let mut fields = Reader::new(report);
            let (length, continues) = (fields.u64()?, fields.u8()? != 0);
            let manifest = Manifest::decode(fields.rest().get(..length as usize)?)?;
            Some(LeftState {
                manifest,
                continues,
            })
        });
        let states: Vec<LeftState> = states.collect();
        let writers = states.iter().map(|left| left.manifest.writer).collect();
        // A rank may see an older version.
        let newest = states.into_iter().max_by_key(|left| {
            let Manifest {
                done, is_finished, ..
            } = left.manifest;
            (left.continues, done, is_finished)
        });
        Ok((newest, writers))
    }
}

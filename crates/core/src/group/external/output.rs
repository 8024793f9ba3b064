//! The output of an external sort and its manifest, as one rank reads and writes them.
//!
//! The files of the output have temporary names until it is complete. The manifest beside it is replaced as a whole after
//! each batch.
//!
//! Must never: communicate.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

use super::ExternalSort;
use super::job::ExternalJob;
use super::making::remove_runs;
use crate::external::manifest::{HEAD_BYTES, Identity, Manifest};
use crate::external::parts::{OutputParts, draft_name, is_part_of, is_state_of, manifest_name};
use crate::mutants::{Mutant, mutant};
use crate::sort::pivot::Cut;
use crate::store::directory::{Files, refusal};
use ftsort_kernels::error::{Error, Result, Status, refuse};

impl ExternalJob {
    /// Syncs the files of the output with these records, if files are synced.
    pub fn sync_output(&mut self, records: Range<u64>) -> Result<()> {
        let files = &mut self.files.places.output;
        for part in self.output.of_records(records) {
            let name = self.output.draft_of(part);
            let synced = files.sync(&name);
            synced.map_err(|error| refusal("sync", &**files, &name, &error))?;
        }
        Ok(())
    }

    /// `Status::Store` if the source is not the one with which the sort began, as far as that is known without reading
    /// it.
    pub fn check_source(&self) -> Result<()> {
        let source = &self.files.places.source;
        let identity = &self.manifest.identity;
        if (source.bytes()?, source.identity()?) == (identity.bytes, identity.source) {
            return Ok(());
        }
        let text = "the source has changed since the sort began: sort it again";
        Err(Error::new(Status::Store, text))
    }

    /// Removes the files of an output that is not complete, unless they are those of another job.
    pub fn remove_incomplete(&mut self) {
        let _ = self.find_writer();
        if !self.is_replaced {
            let _ = self.remove_output();
        }
    }

    /// Removes the files that an earlier job has left beside the output.
    pub fn remove_output(&mut self) -> Result<()> {
        remove_drafts(&mut *self.files.places.output, &self.output)
    }

    /// Makes the files of the output under their temporary names, unless they exist.
    pub fn ensure_output(&mut self) -> Result<()> {
        let files = &mut self.files.places.output;
        for part in self.output.all() {
            let name = self.output.draft_of(part);
            let made = match files.write(&name, &[]) {
                // Opening a file finds whether it belongs to another user.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    files.read(&name).map(|_| ())
                }
                made => made,
            };
            made.map_err(|error| refusal("create", &**files, &name, &error))?;
        }
        Ok(())
    }

    /// Writes the manifest. `Status::Store` if another job has begun to write the same output.
    pub fn write_manifest(&mut self) -> Result<()> {
        let name = manifest_name(self.output.name());
        let draft = draft_name(&name);
        let bytes = self.manifest.encode();
        let files = &mut *self.files.places.output;
        ensure_removed(files, &draft)?;
        files
            .write_draft(&draft, &[&bytes])
            .map_err(|error| refusal("write", files, &draft, &error))?;
        if self.files.flushes {
            let flushed = files.flush(&draft);
            flushed.map_err(|error| refusal("sync", files, &draft, &error))?;
        }
        // After a change of the directory a client of a network file system sees names as they are.
        self.check_writer()
            .inspect_err(|_| self.remove_manifest_draft())?;
        let files = &mut *self.files.places.output;
        files
            .name_draft(&draft, &name)
            .map_err(|error| refusal("write", files, &name, &error))
    }

    /// `Status::Store` if the manifest is that of another job, or was removed by one.
    fn check_writer(&mut self) -> Result<()> {
        self.find_writer()?;
        if !self.is_replaced {
            return Ok(());
        }
        let text = format!(
            "another job has replaced {}/{}: one job at a time may write an output",
            self.files.places.output.place(),
            manifest_name(self.output.name())
        );
        Err(Error::new(Status::Store, text))
    }

    /// Notes whether the manifest is that of another job, or was removed by one.
    pub fn find_writer(&mut self) -> Result<()> {
        let files = &*self.files.places.output;
        // An output that is not in files has none that another job could write.
        if !files.keeps_files() || mutant(Mutant::OtherJobIgnored) {
            return Ok(());
        }
        let found = read_manifest(files, &manifest_name(self.output.name()))?;
        self.is_replaced |=
            found.map_or(self.is_begun, |found| !self.is_known_writer(found.writer));
        Ok(())
    }

    /// `Status::Store` if this rank does not see the manifest that this call has written: it may have another directory
    /// of the same path, with files of an earlier job.
    pub fn check_directory(&mut self) -> Result<()> {
        let files = &mut *self.files.places.output;
        if !files.keeps_files() {
            return Ok(());
        }
        let name = manifest_name(self.output.name());
        let writer = self.manifest.writer;
        let is_seen = |files: &dyn Files| -> Result<bool> {
            let found = read_manifest(files, &name)?;
            Ok(found.is_some_and(|found| found.writer == writer))
        };
        if is_seen(files)? {
            return Ok(());
        }
        let _ = files.see_changes();
        if is_seen(files)? {
            return Ok(());
        }
        let text = format!(
            "{}/{name} is not the file that this sort has written: all ranks must see the directory of the output, and \
             one job at a time may write it",
            files.place()
        );
        Err(Error::new(Status::Store, text))
    }

    /// Whether this call or one that it continues wrote a manifest.
    fn is_known_writer(&self, writer: u64) -> bool {
        writer == self.manifest.writer || self.before.contains(&writer)
    }

    /// Gives the files of the output their names, if another rank has not done so. Then the manifest of a sort that may
    /// be resumed states that the sort is finished.
    pub fn finish_output(&mut self) -> Result<()> {
        // The names are not given to files of another job.
        self.write_manifest()?;
        self.name_output()?;
        self.manifest.is_finished = true;
        if self.resume {
            return self.write_manifest();
        }
        if mutant(Mutant::ManifestRemovedBeforeRuns) {
            self.remove_manifest();
        }
        Ok(())
    }

    /// Removes the manifest, unless it is that of another job. Until then a later job knows the runs.
    pub fn remove_manifest(&mut self) {
        let manifest = manifest_name(self.output.name());
        match read_manifest(&*self.files.places.output, &manifest) {
            Ok(Some(found)) if !self.is_known_writer(found.writer) => return,
            _ => {}
        }
        let _ = self.files.places.output.remove(&manifest);
        self.remove_manifest_draft();
    }

    /// Gives the files of the output their names where they have not got them, and syncs them.
    pub fn name_output(&mut self) -> Result<()> {
        let may_be_named = std::mem::replace(&mut self.may_be_named, true);
        let files = &mut self.files.places.output;
        for part in self.output.all() {
            let (name, draft) = (self.output.name_of(part), self.output.draft_of(part));
            // An earlier job may not have synced its batches.
            match files.sync(&draft) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(refusal("sync", &**files, &draft, &error));
                }
                _ => {}
            }
            let renamed = match files.rename(&draft, &name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if !may_be_named {
                        return Err(self.lost_draft(&draft, &error));
                    }
                    if mutant(Mutant::NamedFileEndsNaming) {
                        break;
                    }
                    // An earlier job that gave the file its name may not have synced it.
                    (files.read(&name).map(drop)).and_then(|()| files.sync(&name))
                }
                renamed => renamed,
            };
            renamed.map_err(|error| refusal("write", &**files, &name, &error))?;
        }
        files.sync_names().map_err(|error| {
            let text = format!("cannot sync the directory {}: {error}", files.place());
            Error::new(Status::Store, text)
        })
    }

    /// The error of a file of the output that another program has removed. A file of the same name may be an earlier
    /// output, which a later job must not take for this one: it begins anew.
    fn lost_draft(&mut self, draft: &str, error: &io::Error) -> Error {
        let lost = refusal("rename", &*self.files.places.output, draft, error);
        (self.manifest.done, self.manifest.cut) = (0, Cut::AllUpper);
        self.write_manifest().err().unwrap_or(lost)
    }

    /// Removes the temporary file of a manifest that a killed process has left.
    pub fn remove_manifest_draft(&mut self) {
        let draft = draft_name(&manifest_name(self.output.name()));
        let _ = self.files.places.output.remove(&draft);
    }

    /// Whether a file of the output has its name, which may have replaced the source. Files have their names in the order
    /// of their numbers.
    pub fn is_named(&self) -> bool {
        let first = self.output.all().next();
        let is_draft = |part| {
            let draft = self.files.places.output.read(&self.output.draft_of(part));
            draft.map_or_else(|error| error.kind() != ErrorKind::NotFound, |_| true)
        };
        !mutant(Mutant::NamedFilesRemoved)
            && self.manifest.is_written()
            && !first.is_some_and(is_draft)
    }

    /// Removes the runs of this job.
    pub fn remove_runs(&mut self) {
        remove_runs(&mut self.files, self.manifest.job);
    }
}

/// Removes the files of an output that is not complete, and its manifest.
pub(super) fn remove_drafts(files: &mut dyn Files, output: &OutputParts) -> Result<()> {
    let manifest = manifest_name(output.name());
    let drafts = output.all().map(|part| output.draft_of(part));
    for name in drafts.chain([draft_name(&manifest), manifest]) {
        ensure_removed(files, &name)?;
    }
    Ok(())
}

/// Removes a file, unless there is none.
fn ensure_removed(files: &mut dyn Files, name: &str) -> Result<()> {
    match files.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(refusal("remove", files, name, &error))
        }
        _ => Ok(()),
    }
}

/// `Status::Argument` if the sort would overwrite or remove a file of its source before the output is complete.
pub(super) fn check_source_names(sort: &ExternalSort) -> Result<()> {
    let (source, output) = (&sort.files.places.source, &sort.output);
    if let Some(path) = source.beside_output(&|name| is_state_of(output, name)) {
        return refuse(format!(
            "the source {path} has the name of a temporary file of the output {output}, which the sort \
             removes: rename the source, or name another output"
        ));
    }
    let is_part = |name: &str| is_part_of(output, sort.output_parts, name);
    if let Some(path) = source.beside_output(&is_part) {
        return refuse(format!(
            "the source {path} is a file of the output {output}, whose {} files cannot be replaced all at once: \
             name another output",
            sort.output_parts
        ));
    }
    Ok(())
}

/// The properties of the data of a sort.
pub(super) fn identity_of(sort: &ExternalSort) -> Result<Identity> {
    let (bytes, record_bytes) = (
        sort.files.places.source.bytes()?,
        sort.layout.record_bytes(),
    );
    if !bytes.is_multiple_of(record_bytes as u64) {
        return refuse(format!(
            "the source has {bytes} bytes, not a multiple of the record size {record_bytes}"
        ));
    }
    let identity = Identity {
        layout: sort.layout.fingerprint(),
        record_bytes,
        bytes,
        source: sort.files.places.source.identity()?,
        output_offset: sort.output_offset,
        output_parts: sort.output_parts,
    };
    if !identity.has_places() {
        return refuse(match sort.output_parts {
            0..=OutputParts::MOST => format!(
                "output_offset is {}, with which the output ends beyond 2^64 bytes",
                sort.output_offset
            ),
            parts => format!(
                "output_parts is {parts}, expected at most {}",
                OutputParts::MOST
            ),
        });
    }
    Ok(identity)
}

/// `Status::Argument` if the manifest of an earlier sort is not of this one.
pub(super) fn check_same_sort(left: &Manifest, identity: &Identity, output: &str) -> Result<()> {
    let Some(difference) = left.identity.difference(identity) else {
        return Ok(());
    };
    let name = manifest_name(output);
    let source = |of: &Identity| (of.bytes, of.source);
    if left.is_written() && source(&left.identity) != source(identity) {
        // The output may have replaced a source, which must not be sorted into it again.
        return refuse(format!(
            "{name} is the state of a sort that is complete, with {difference}: unless the output has \
             replaced its source, remove it to sort the present source"
        ));
    }
    refuse(format!(
        "{name} is the state of another sort, with {difference}: remove it, or do not resume"
    ))
}

/// The state that an earlier job has left.
pub(super) struct LeftState {
    /// Its manifest, which names the files of that job.
    pub manifest: Manifest,
    /// Whether this job continues it.
    pub continues: bool,
}

/// Returns the state of an earlier job; None if there is none, or if it is damaged. `Status::Store` if a file cannot be read
/// for another reason, as it may be readable later.
pub(super) fn left_state(sort: &ExternalSort) -> Result<Option<LeftState>> {
    let files = &*sort.files.places.output;
    let Some(manifest) = read_manifest(files, &manifest_name(&sort.output))? else {
        return Ok(None);
    };
    let continues = sort.resume && has_output(sort, &manifest)?;
    Ok(Some(LeftState {
        manifest,
        continues,
    }))
}

/// Whether the output of an earlier job is there as far as it was written. `Status::Store` as for [`left_state`].
fn has_output(sort: &ExternalSort, manifest: &Manifest) -> Result<bool> {
    let files = &*sort.files.places.output;
    let output = OutputParts::new(&sort.output, &manifest.identity);
    let searched = match mutant(Mutant::FirstFileOnlyFound) {
        true => 0..1,
        false => output.all(),
    };
    for part in searched {
        let written = output.size_of(part, manifest.done);
        // The program may have written bytes before the first record of a file without records.
        let is_whole = |size: u64| size == written || (manifest.is_finished && written == 0);
        let size = |name: String| -> Result<Option<u64>> {
            Ok(found(files, &name)?.map(|(size, _)| size))
        };
        let has_draft =
            || size(output.draft_of(part)).map(|size| size.is_some_and(|size| size >= written));
        let has_name = || size(output.name_of(part)).map(|size| size.is_some_and(is_whole));
        let is_left =
            (!manifest.is_finished && has_draft()?) || (manifest.is_written() && has_name()?);
        if !is_left {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the manifest of this name; None if there is none, or if it is damaged. Reads only the first fields of a file
/// that does not have the size of a manifest, because such a file may be larger than the memory.
fn read_manifest(files: &dyn Files, name: &str) -> Result<Option<Manifest>> {
    let Some((size, content)) = found(files, name)? else {
        return Ok(None);
    };
    let failed = |error| refusal("read", files, name, &error);
    let mut bytes = Vec::new();
    let mut head = content.take(HEAD_BYTES as u64);
    head.read_to_end(&mut bytes).map_err(failed)?;
    if Manifest::encoded_bytes(&bytes) != Some(size) {
        return Ok(None);
    }
    let mut rest = head.into_inner().take(size - HEAD_BYTES as u64);
    rest.read_to_end(&mut bytes).map_err(failed)?;
    Ok(Manifest::decode(&bytes))
}

/// The size and the content of a file; None if there is none.
fn found<'f>(files: &'f dyn Files, name: &str) -> Result<Option<(u64, Box<dyn Read + 'f>)>> {
    match files.read(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read
            .map(Some)
            .map_err(|error| refusal("read", files, name, &error)),
    }
}

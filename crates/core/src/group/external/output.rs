//! The output of an external sort and its manifest, as one rank reads and writes them.
//!
//! The output has a temporary name until it is complete. The manifest beside it is replaced as a whole after each batch.
//!
//! Must never: communicate.

use std::io::{ErrorKind, Read};

use super::ExternalSort;
use super::job::ExternalJob;
use super::making::remove_runs;
use crate::external::manifest::{Identity, Manifest};
use crate::store::directory::refusal;
use ftsort_kernels::error::{Error, Result, Status};

impl ExternalJob {
    /// Syncs the output, if the files are synced.
    pub fn sync_output(&mut self) -> Result<()> {
        let name = self.draft_of_output();
        let files = &mut self.files.places.output;
        let synced = files.sync(&name);
        synced.map_err(|error| refusal("sync", &**files, &name, &error))
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

    /// Removes the files that an earlier job has left beside the output.
    pub fn remove_output(&mut self) -> Result<()> {
        let manifest = manifest_name(&self.output);
        for name in [self.draft_of_output(), draft_name(&manifest), manifest] {
            let files = &mut self.files.places.output;
            match files.remove(&name) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(refusal("remove", &**files, &name, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the file of the output under its temporary name, unless it exists.
    pub fn ensure_output(&mut self) -> Result<()> {
        let name = self.draft_of_output();
        let files = &mut self.files.places.output;
        match files.write(&name, &[]) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(refusal("create", &**files, &name, &error))
            }
            _ => Ok(()),
        }
    }

    /// Writes the manifest.
    pub fn write_manifest(&mut self) -> Result<()> {
        let name = manifest_name(&self.output);
        let draft = draft_name(&name);
        let bytes = self.manifest.encode();
        let files = &mut self.files.places.output;
        let _ = files.remove(&draft);
        files
            .replace(&draft, &name, &[&bytes])
            .map_err(|error| refusal("write", &**files, &name, &error))
    }

    /// Gives the output its name, if another rank has not done so. Then the manifest of a sort that may be resumed
    /// states that the sort is finished; otherwise there is no manifest any more.
    pub fn finish_output(&mut self) -> Result<()> {
        let (draft, output) = (self.draft_of_output(), self.output.clone());
        let files = &mut self.files.places.output;
        let renamed = match files.rename(&draft, &output) {
            Err(error) if error.kind() == ErrorKind::NotFound => files.read(&output).map(|_| ()),
            renamed => renamed,
        };
        let named = renamed.and_then(|()| {
            files.sync_names().inspect_err(|_| {
                // A sort that fails leaves no output.
                let _ = files.rename(&output, &draft);
            })
        });
        named.map_err(|error| refusal("write", &**files, &output, &error))?;
        self.manifest.is_finished = true;
        if self.resume {
            return self.write_manifest();
        }
        let manifest = manifest_name(&output);
        for name in [draft_name(&manifest), manifest] {
            let _ = self.files.places.output.remove(&name);
        }
        Ok(())
    }

    /// Removes the runs of this job. `fails`: also the output under its temporary name and the manifest.
    pub fn clean_up(&mut self, fails: bool) {
        remove_runs(&mut self.files, self.manifest.job);
        if fails {
            let _ = self.remove_output();
        }
    }
}

/// The name of a file that is not complete.
pub(super) fn draft_name(name: &str) -> String {
    format!("{name}.partial")
}

/// The name of the manifest of an output.
pub(super) fn manifest_name(output: &str) -> String {
    format!("{output}.ftsort")
}

/// The properties of the data of a sort.
pub(super) fn identity_of(sort: &ExternalSort) -> Result<Identity> {
    let (bytes, record_bytes) = (
        sort.files.places.source.bytes()?,
        sort.layout.record_bytes(),
    );
    if !bytes.is_multiple_of(record_bytes as u64) {
        let text = format!(
            "the source has {bytes} bytes, not a multiple of the record size {record_bytes}"
        );
        return Err(Error::new(Status::Argument, text));
    }
    if sort.output_offset.checked_add(bytes).is_none() {
        let text = format!(
            "output_offset is {}, with which the output ends beyond 2^64 bytes",
            sort.output_offset
        );
        return Err(Error::new(Status::Argument, text));
    }
    Ok(Identity {
        layout: sort.layout.fingerprint(),
        record_bytes,
        bytes,
        source: sort.files.places.source.identity()?,
        output_offset: sort.output_offset,
    })
}

/// Returns the manifest of an earlier job; None if there is none, if it is damaged, or if its output is missing.
pub(super) fn left_manifest(sort: &ExternalSort) -> Option<Manifest> {
    let files = &sort.files.places.output;
    let (size, mut content) = files.read(&manifest_name(&sort.output)).ok()?;
    let mut bytes = Vec::with_capacity(usize::try_from(size).ok()?.min(1 << 20));
    content.read_to_end(&mut bytes).ok()?;
    let manifest = Manifest::decode(&bytes)?;
    let identity = &manifest.identity;
    let end_of = |bytes: u64| match bytes {
        // The bytes before the first record appear with it.
        0 => Some(0),
        bytes => identity.output_offset.checked_add(bytes),
    };
    let whole = end_of(identity.bytes)?;
    let written = end_of(manifest.done * identity.record_bytes as u64)?;
    let is_empty = identity.bytes == 0;
    let names = [draft_name(&sort.output), sort.output.clone()];
    let (draft, output) = (&names[0], &names[1]);
    let size = |name: &String| files.read(name).ok().map(|(size, _)| size);
    let is_left = if manifest.is_finished {
        size(output).is_some_and(|size| size == whole || is_empty)
    } else {
        size(draft).is_some_and(|size| size >= written)
            || (manifest.is_written() && size(output) == Some(written))
    };
    is_left.then_some(manifest)
}

//! States with a name, which another job can continue: the manifest, a file that names the committed version.
//!
//! The states themselves are files of a [`Directory`]. The manifest is replaced after a version was committed, and
//! before the files of the version before it are removed, so that it always names a version with all its files. A job
//! writes it before its first commit too, so that the next job can remove its files.
//!
//! A rank that was declared failed may still run, and change the manifest after the survivors have. All ranks count the
//! changes alike, and the manifest has the number of its change, so that no rank replaces a later one. No file system
//! compares and renames in one step, so each rank has a draft of its own, and removes those of others after its change:
//! a rank that compared before cannot rename its draft any more. A manifest that others have removed is not written
//! again. Must never: compare the manifest before the draft is written, or end a change without having read the manifest
//! after the removal of all drafts.

use std::io::{ErrorKind, Read};

use super::VersionId;
use super::directory::{Directory, Files, Series, refusal};
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::wire::{Reader, Writer};
use ftsort_kernels::error::{Error, Result, Status};

/// The first bytes of a manifest; the last one is the version of the format.
const MAGIC: [u8; 8] = *b"ftstat\0\x02";

/// The largest manifest in bytes.
const MOST_BYTES: u64 = 1 << 10;

/// The greatest number of groups in [`StatesManifest::left`].
const MOST_LEFT: usize = 64;

/// Stands between the name of the manifest's file and the numbers in the name of a draft of it.
const DRAFT: &str = ".draft.";

/// The largest length of a name in bytes.
pub const NAME_LIMIT: usize = 64;

/// The committed states of a job, and its other files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatesManifest {
    /// The files of the states.
    pub series: Series,
    /// The version of the states; 0: none are committed.
    pub version_id: VersionId,
    /// The number of nodes of the hypercube.
    pub nodes: u64,
    /// The number of changes of the manifest up to this one, which [`NamedStates::write`] sets.
    pub change: u64,
    /// Groups of ended jobs that may have left files.
    pub left: Vec<u64>,
}

impl StatesManifest {
    /// Whether there are states.
    pub fn has_states(&self) -> bool {
        self.version_id != VersionId::INPUT
    }

    /// The content of a file.
    pub fn encode(&self) -> Vec<u8> {
        let StatesManifest {
            series,
            version_id,
            nodes,
            change,
            left,
        } = self;
        let mut out = Writer::new();
        out.bytes(&MAGIC)
            .u64(series.group)
            .u32(series.sort)
            .u32(version_id.version)
            .u32(version_id.faults)
            .u64(*nodes)
            .u64(*change);
        // Jobs end seldom; files of the first of so many stay.
        for group in &left[left.len().saturating_sub(MOST_LEFT)..] {
            out.u64(*group);
        }
        out.finish_checked()
    }

    /// Decodes the result of [`StatesManifest::encode`]; None if it is damaged or has another version.
    pub fn decode(bytes: &[u8]) -> Option<StatesManifest> {
        let mut fields = Reader::checked(bytes)?;
        if fields.bytes(MAGIC.len())? != MAGIC {
            return None;
        }
        let series = Series {
            group: fields.u64()?,
            sort: fields.u32()?,
        };
        let version_id = VersionId {
            version: fields.u32()?,
            faults: fields.u32()?,
        };
        let nodes = fields.u64()?;
        let change = fields.u64()?;
        let (left, end) = fields.rest().as_chunks();
        end.is_empty().then(|| StatesManifest {
            series,
            version_id,
            nodes,
            change,
            left: left
                .iter()
                .map(|group| u64::from_le_bytes(*group))
                .collect(),
        })
    }
}

/// The manifest of the states of one name.
pub struct NamedStates {
    files: Box<dyn Files>,
    /// The name of the manifest's file.
    file: String,
    me: Rank,
    /// The group that wrote the manifest; None: there need not be a manifest.
    pub writer: Option<u64>,
    /// The number of the present change of the manifest, or of the last one; the same on all ranks.
    pub change: u64,
    /// Groups of ended jobs that may have left files.
    pub left: Vec<u64>,
    /// No rank of an earlier job has left a draft.
    is_clean: bool,
}

impl NamedStates {
    /// The states of this name in a directory. `Status::Argument` unless the name consists of 1 to [`NAME_LIMIT`]
    /// letters, digits, and the characters `-`, `_` and `.`.
    pub fn new(files: Box<dyn Files>, name: &str, me: Rank) -> Result<NamedStates> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=NAME_LIMIT).contains(&name.len()) && name.bytes().all(is_allowed);
        if !is_name {
            let text = format!(
                "name is {name:?}: pass 1 to {NAME_LIMIT} characters, of the letters A to Z and a to z, the digits, and \
                 the characters - _ ."
            );
            return Err(Error::argument(text));
        }
        Ok(NamedStates {
            files,
            file: format!("ftsort-{name}.states"),
            me,
            writer: None,
            change: 0,
            left: Vec::new(),
            is_clean: false,
        })
    }

    /// The path of the manifest, for error texts.
    pub fn path(&self) -> String {
        format!("{}/{}", self.files.place(), self.file)
    }

    /// Returns the manifest; None if there is none.
    pub fn read(&self) -> Result<Option<StatesManifest>> {
        let failed = |error| refusal("read", &*self.files, &self.file, &error);
        let mut content = match self.files.read(&self.file) {
            Ok((_, content)) => content.take(MOST_BYTES),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).map_err(failed)?;
        let manifest = StatesManifest::decode(&bytes).ok_or_else(|| {
            let text = format!(
                "{} is damaged, or of another version of ftsort: remove it to begin anew, or choose another name",
                self.path()
            );
            Error::new(Status::Store, text)
        })?;
        Ok(Some(manifest))
    }

    /// Replaces the manifest, unless a group other than that of `manifest` and the last writer has done so, or a later
    /// change, or others have removed it.
    pub fn write(&mut self, manifest: &StatesManifest) -> Result<()> {
        let manifest = StatesManifest {
            change: self.change,
            ..manifest.clone()
        };
        let group = manifest.series.group;
        let draft = self.draft(group);
        loop {
            self.begin_change(&draft, &manifest.encode(), (group, self.writer.is_none()))?;
            if let Err(error) = self.files.name_draft(&draft, &self.file) {
                if error.kind() == ErrorKind::NotFound {
                    // A rank that counts as failed, and has been stopped, removes the drafts of all groups.
                    continue;
                }
                let _ = self.files.remove(&draft);
                return Err(refusal("write", &*self.files, &self.file, &error));
            }
            self.remove_drafts();
            // Another rank may have renamed its draft in between, and cannot do so again.
            let found = self.read()?;
            if found.is_some_and(|found| found.change >= self.change)
                || mutant(Mutant::ManifestNotReadAgain)
            {
                return Ok(());
            }
        }
    }

    /// Removes the manifest, unless a group other than `group` and the last writer has replaced it, or a later change.
    pub fn remove(&mut self, group: u64) -> Result<()> {
        let draft = self.draft(group);
        // The rank that acted before may have removed it, and failed.
        self.begin_change(&draft, &[], (group, true))?;
        let removed = self.files.remove(&self.file);
        let _ = self.files.remove(&draft);
        self.remove_drafts();
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(refusal("remove", &*self.files, &self.file, &error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a draft, and then compares the manifest: clients of a network file system see the names as they are once
    /// they have changed the directory. Leaves no draft after an error. `may_be_missing`: there need not be a manifest.
    fn begin_change(
        &mut self,
        draft: &str,
        content: &[u8],
        (group, may_be_missing): (u64, bool),
    ) -> Result<()> {
        // Left by a change that failed.
        let _ = self.files.remove(draft);
        let written = self.files.write_draft(draft, &[content]);
        let checked = written
            .map_err(|error| refusal("write", &*self.files, draft, &error))
            .and_then(|()| self.check_writer(group, may_be_missing));
        if checked.is_err() {
            let _ = self.files.remove(draft);
        }
        checked
    }

    /// The name of this rank's draft. A rank of another job has another one.
    fn draft(&self, group: u64) -> String {
        format!("{}{DRAFT}{group:016x}.{}", self.file, self.me)
    }

    /// Removes the drafts of all ranks, also of jobs that were killed.
    fn remove_drafts(&mut self) {
        // The lowest survivor acts, so no rank has acted before rank 0. A directory may have many files.
        let has_none = self.is_clean && self.me == Rank(0);
        if has_none || mutant(Mutant::DraftsOfOthersKept) {
            return;
        }
        self.is_clean = true;
        let mut drafts = self.files.list().unwrap_or_default();
        drafts.retain(|name| self.is_draft(name));
        for draft in drafts {
            // Another rank may have removed or renamed it.
            let _ = self.files.remove(&draft);
        }
    }

    /// Whether a file is a draft of this manifest. Files of states with a longer name may begin alike, but their names
    /// have other letters than the numbers in that of a draft.
    fn is_draft(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.file);
        let numbers = rest.and_then(|rest| rest.strip_prefix(DRAFT));
        let is_number = |byte: u8| byte.is_ascii_hexdigit() || byte == b'.';
        numbers.is_some_and(|numbers| numbers.bytes().all(is_number))
    }

    /// `Status::Store` if another job continues these states, or the survivors of this one without this rank.
    fn check_writer(&self, group: u64, may_be_missing: bool) -> Result<()> {
        let refuse = |text: String| Err(Error::new(Status::Store, text));
        let Some(found) = self.read()? else {
            if may_be_missing || mutant(Mutant::RemovedManifestWritten) {
                return Ok(());
            }
            return refuse(format!(
                "{} is missing: another job has removed it, or the other ranks go on without rank {}",
                self.path(),
                self.me
            ));
        };
        let writer = Some(found.series.group);
        if writer != Some(group) && writer != self.writer && !mutant(Mutant::OtherWriterIgnored) {
            return refuse(format!(
                "another job has replaced {}: one job at a time may use a name",
                self.path()
            ));
        }
        if found.change > self.change && !mutant(Mutant::LaterChangeIgnored) {
            return refuse(format!(
                "{} has change {} of its states, but rank {} makes change {}: the other ranks go on without this rank",
                self.path(),
                found.change,
                self.me,
                self.change
            ));
        }
        Ok(())
    }

    /// The states in these files.
    pub fn states_of(&self, series: Series) -> Directory {
        Directory::of_series(self.files.another(), series, self.me)
    }

    /// Removes the files that ended jobs have left.
    pub fn remove_left_files(&self) {
        for group in &self.left {
            // The sorts of a group have the complement of the number of its states.
            for group in [*group, !group] {
                Directory::new(self.files.another(), group, self.me).remove_all();
            }
        }
    }
}

#[cfg(test)]
mod tests;

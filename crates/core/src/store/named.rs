//! States with a name, which another job can continue: the manifest, a file that names the committed version.
//!
//! The states themselves are files of a [`Directory`]. The manifest is replaced after a version was committed, and
//! before the files of the version before it are removed, so that it always names a version with all its files. A job
//! writes it before its first commit too, so that the next job can remove its files.

use std::io::{ErrorKind, Read};

use super::VersionId;
use super::directory::{Directory, Files, Series, refusal};
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::wire::{Reader, Writer};
use ftsort_kernels::error::{Error, Result, Status};

/// The first bytes of a manifest; the last one is the version of the format.
const MAGIC: [u8; 8] = *b"ftstat\0\x01";

/// The largest manifest in bytes.
const MOST_BYTES: u64 = 1 << 10;

/// The greatest number of groups in [`StatesManifest::left`].
const MOST_LEFT: usize = 64;

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
            left,
        } = self;
        let mut out = Writer::new();
        out.bytes(&MAGIC)
            .u64(series.group)
            .u32(series.sort)
            .u32(version_id.version)
            .u32(version_id.faults)
            .u64(*nodes);
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
        let (left, end) = fields.rest().as_chunks();
        end.is_empty().then(|| StatesManifest {
            series,
            version_id,
            nodes,
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
    /// The group that wrote the manifest; None: there is no manifest.
    pub writer: Option<u64>,
    /// Groups of ended jobs that may have left files.
    pub left: Vec<u64>,
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
            return Err(Error::new(Status::Argument, text));
        }
        Ok(NamedStates {
            files,
            file: format!("ftsort-{name}.states"),
            me,
            writer: None,
            left: Vec::new(),
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

    /// Replaces the manifest, unless a group other than that of `manifest` and the last writer has done so.
    pub fn write(&mut self, manifest: &StatesManifest) -> Result<()> {
        self.check_writer(manifest.series.group)?;
        let draft = format!("{}.draft", self.file);
        // Left by a process that was killed.
        let _ = self.files.remove(&draft);
        self.files
            .replace(&draft, &self.file, &[&manifest.encode()])
            .map_err(|error| refusal("write", &*self.files, &self.file, &error))
    }

    /// Removes the manifest, unless a group other than `group` and the last writer has replaced it.
    pub fn remove(&mut self, group: u64) -> Result<()> {
        self.check_writer(group)?;
        match self.files.remove(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(refusal("remove", &*self.files, &self.file, &error))
            }
            _ => Ok(()),
        }
    }

    /// `Status::Store` if another job continues these states.
    fn check_writer(&self, group: u64) -> Result<()> {
        let Some(found) = self.read()? else {
            return Ok(());
        };
        let writer = Some(found.series.group);
        if writer == Some(group) || writer == self.writer || mutant(Mutant::OtherWriterIgnored) {
            return Ok(());
        }
        let text = format!(
            "another job has replaced {}: one job at a time may use a name",
            self.path()
        );
        Err(Error::new(Status::Store, text))
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
                Directory::new(self.files.another(), group, self.me).remove_all_but(&[]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::{Disk, FileOptions};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decodes_as_it_was_and_detects_damage(
            group: u64, sort: u32, version: u32, faults: u32, nodes: u64, at: usize,
            left in prop::collection::vec(any::<u64>(), 0..100),
        ) {
            let left = left[left.len().saturating_sub(MOST_LEFT)..].to_vec();
            let manifest = StatesManifest {
                series: Series { group, sort },
                version_id: VersionId { version, faults },
                nodes,
                left,
            };
            let mut bytes = manifest.encode();
            prop_assert!(bytes.len() as u64 <= MOST_BYTES);
            prop_assert_eq!(StatesManifest::decode(&bytes), Some(manifest));
            let at = at % bytes.len();
            prop_assert_eq!(StatesManifest::decode(&bytes[..at]), None);
            bytes[at] ^= 1;
            prop_assert_eq!(StatesManifest::decode(&bytes), None);
        }
    }

    #[test]
    fn the_last_groups_with_files_are_kept() {
        let groups: Vec<u64> = (0..MOST_LEFT as u64 + 9).collect();
        let manifest = StatesManifest {
            series: Series { group: 1, sort: 1 },
            version_id: VersionId::INPUT,
            nodes: 1,
            left: groups.clone(),
        };
        let decoded = StatesManifest::decode(&manifest.encode()).unwrap();
        assert_eq!(decoded.left, groups[9..]);
    }

    #[test]
    fn names_cannot_leave_the_directory() {
        let open = |name: &str| {
            let disk = Disk::new(&std::env::temp_dir(), FileOptions::default());
            NamedStates::new(Box::new(disk), name, Rank(0)).map(|states| states.file)
        };
        let longest = "n".repeat(NAME_LIMIT);
        for name in ["heat", "a", "run-2.b_3", &longest] {
            assert_eq!(open(name).unwrap(), format!("ftsort-{name}.states"));
        }
        let long = "n".repeat(NAME_LIMIT + 1);
        for name in ["", "a/b", "a b", "\u{e9}", "a\0", &long] {
            let error = open(name).unwrap_err();
            assert_eq!(error.status, Status::Argument);
            assert!(error.text.contains("pass 1 to 64 characters"), "{error}");
        }
    }
}

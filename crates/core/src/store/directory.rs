//! The store in a directory that all ranks see: each version of a node's block is one file.
//!
//! A file is written under a temporary name and renamed, so that a reader sees all of it or nothing; it ends
//! with a checksum, so that damage by the file system is detected. If files are to survive the loss of a host,
//! their contents and names are synced before the commit that relies on them. The papers' programs write their
//! checkpoints in place. [`Files`] defines the operations on files.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Store, StoreScope, VersionId};
use crate::block::{Block, Header};
use crate::members::Rank;
use crate::mutants::{Mutant, mutant};
use crate::vcube::Node;
use ftsort_kernels::buffer::{Buffer, Slice};
use ftsort_kernels::checksum::Checksum;
use ftsort_kernels::error::{Error, Result, Status};

/// The first bytes of every file; the last one is the version of the format.
const MAGIC: [u8; 8] = *b"ftsort\0\x03";

/// The files of one directory, by name.
pub trait Files {
    /// Returns another access to the same directory.
    fn another(&self) -> Box<dyn Files>;

    /// The name of the directory for error texts.
    fn place(&self) -> String;

    /// Creates a file from these parts, one after the other. `AlreadyExists` if there is a file of that name.
    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()>;

    /// Fills `into` with the bytes of a file from `at`. `UnexpectedEof` if the file is shorter.
    fn read_at(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes these bytes into an existing file, from `at` on.
    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns once the content of a file survives the loss of this host, if the files are to survive it.
    fn sync(&mut self, name: &str) -> io::Result<()>;

    /// As [`Files::sync`], also if the files need not survive the loss of this host. A client of a file system may keep
    /// written data after the file was closed, and other hosts need them if this one is lost.
    fn flush(&mut self, name: &str) -> io::Result<()> {
        self.sync(name)
    }

    /// As [`Files::sync`], for the names of all files.
    fn sync_names(&mut self) -> io::Result<()>;

    /// Renames a file atomically, and replaces a file of the new name.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Opens a file; returns its size and content.
    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)>;

    /// Creates a file under the name `draft`, and renames it to `name` as soon as it is complete and, if files are to
    /// survive the loss of this host, synced. Replaces a file of that name.
    fn replace(&mut self, draft: &str, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        self.write_draft(draft, parts)?;
        self.name_draft(draft, name)
    }

    /// The first part of [`Files::replace`].
    fn write_draft(&mut self, draft: &str, parts: &[&[u8]]) -> io::Result<()> {
        self.write(draft, parts)?;
        if mutant(Mutant::SyncLeftOut) {
            return Ok(());
        }
        self.sync(draft)
    }

    /// The second part of [`Files::replace`].
    fn name_draft(&mut self, draft: &str, name: &str) -> io::Result<()> {
        self.rename(draft, name)?;
        if mutant(Mutant::SyncLeftOut) {
            return Ok(());
        }
        self.sync_names()
    }

    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Returns whether files can be read after they were written. Otherwise the program receives the bytes.
    fn keeps_files(&self) -> bool {
        true
    }

    /// Makes files visible to this host that another one has named. A client of a network file system may remember for a
    /// while that a name did not exist.
    fn see_changes(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error of an access to a file. `action`: for example "read".
pub fn refusal(action: &str, files: &dyn Files, name: &str, error: &io::Error) -> Error {
    let text = format!("cannot {action} {}/{name}: {error}", files.place());
    Error::new(Status::Store, text)
}

/// The files of one sort of one group, or of one loop of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// The number that all ranks of the group know, and that no other group has.
    pub group: u64,
    /// The number of finished sorts: files of one sort must not be taken for those of the next, in which a
    /// rank may fail before it has written anything.
    pub sort: u32,
}

/// Files of one group in a directory.
pub struct Directory {
    files: Box<dyn Files>,
    /// The present files.
    series: Series,
    /// Distinguishes files that ranks write at the same time.
    me: Rank,
    /// The entries that this rank has put and not removed yet.
    mine: Vec<(VersionId, Node)>,
    detached: Arc<Mutex<Detached>>,
    /// The entries are detached, and this is their store.
    is_detached: bool,
}

/// Shared by the store of a group and the stores of its detached entries, which may be dropped by other threads.
#[derive(Default)]
struct Detached {
    /// The numbers of the sorts with detached entries that this rank still has.
    sorts: BTreeSet<u32>,
    /// The files of detached entries that were dropped.
    released: Vec<String>,
    /// This rank is separated from the others, which may still need the files.
    is_apart: bool,
    /// The group has ended.
    has_ended: bool,
}

impl Directory {
    /// A store in a directory for the group that all ranks know by the number `group`.
    pub fn new(files: Box<dyn Files>, group: u64, me: Rank) -> Directory {
        Directory::of_series(files, Series { group, sort: 0 }, me)
    }

    /// As [`Directory::new`], for files of a certain sort.
    pub fn of_series(files: Box<dyn Files>, series: Series, me: Rank) -> Directory {
        Directory {
            files,
            series,
            me,
            mine: Vec::new(),
            detached: Arc::default(),
            is_detached: false,
        }
    }

    fn detached(&self) -> MutexGuard<'_, Detached> {
        self.detached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Directory::new`], but first tries to write there: `Status::Store` with the system's reason if
    /// that fails.
    pub fn open(files: Box<dyn Files>, group: u64, me: Rank) -> Result<Directory> {
        let mut store = Directory::new(files, group, me);
        let probe = format!("{}probe.{me}", store.prefix());
        let written = store.files.write(&probe, &[]);
        written
            .and_then(|()| store.files.remove(&probe))
            .map_err(|error| {
                let text = format!("store directory {}: {error}", store.files.place());
                Error::new(Status::Store, text)
            })?;
        Ok(store)
    }

    /// Creates a file that ranks which see the same directory find with [`Directory::sees_sign`].
    pub fn leave_sign(&mut self) -> Result<()> {
        let sign = self.sign();
        // The host of a failed rank that has left it may lose it.
        let _ = self.files.remove(&sign);
        match self.files.write(&sign, &[]) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(refusal("create", &*self.files, &sign, &error))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether that file exists.
    pub fn sees_sign(&self) -> bool {
        self.files.read(&self.sign()).is_ok()
    }

    /// The name of the directory for error texts.
    pub fn place(&self) -> String {
        self.files.place()
    }

    /// Removes all files of the group.
    pub fn remove_all(&mut self) {
        self.remove_all_but(|_| false);
    }

    /// Removes all files of the group, except those of sorts for which `is_kept` returns true.
    fn remove_all_but(&mut self, is_kept: impl Fn(u32) -> bool) {
        let prefix = self.prefix();
        for name in self.files.list().unwrap_or_default() {
            let Some(rest) = name.strip_prefix(&prefix) else {
                continue;
            };
            if !sort_in(rest).is_some_and(&is_kept) {
                let _ = self.files.remove(&name);
            }
        }
    }

    /// The beginning of the name of every file of this group, and of no other group.
    fn prefix(&self) -> String {
        format!("ftsort-{:016x}-", self.series.group)
    }

    /// The beginning of the names of this sort's files, as [`sort_in`] reads them.
    fn sort_prefix(&self) -> String {
        let sort = if mutant(Mutant::FilesOfOtherSortsUsed) {
            0
        } else {
            self.series.sort
        };
        format!("{}s{sort}-", self.prefix())
    }

    fn sign(&self) -> String {
        format!("{}sign", self.prefix())
    }

    fn name(&self, version_id: VersionId, node: Node) -> String {
        let VersionId { version, faults } = version_id;
        format!("{}v{version}-f{faults:08x}-n{node}", self.sort_prefix())
    }

    /// Writes a block under the name `draft`, and renames the file.
    fn write(&mut self, draft: &str, name: &str, block: &Block) -> io::Result<()> {
        let header = block.header().encode();
        let length = (header.len() as u64).to_le_bytes();
        let mut parts: Vec<&[u8]> = vec![&MAGIC, &length, &header];
        parts.extend(block.runs.iter().map(|run| &*run.data));
        let mut sum = Checksum::default();
        parts.iter().for_each(|part| sum.add(part));
        let sum = sum.finish().to_le_bytes();
        parts.push(&sum);
        self.files.replace(draft, name, &parts)
    }

    /// Returns None if the file is torn, truncated or damaged.
    fn read(&self, name: &str) -> io::Result<Option<Result<Block>>> {
        let (size, mut file) = self.files.read(name)?;
        let mut sum = Checksum::default();
        let mut fixed = [0_u8; 16];
        file.read_exact(&mut fixed)?;
        sum.add(&fixed);
        let (magic, length) = fixed.split_at(8);
        let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
        if magic != MAGIC || length > size {
            return Ok(None);
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header)?;
        sum.add(&header);
        let Some(header) = Header::decode(&header) else {
            return Ok(None);
        };
        // The sizes in a damaged file may add up to any number, or overflow.
        let mut sizes = header.runs.iter().map(|(_, _, bytes)| *bytes as u64);
        if sizes.try_fold(length + 24, u64::checked_add) != Some(size) {
            return Ok(None);
        }
        let mut parts: Vec<Slice> = Vec::with_capacity(header.runs.len());
        for (_, _, bytes) in &header.runs {
            let mut buffer = match Buffer::unset(*bytes) {
                Ok(buffer) => buffer,
                Err(error) => return Ok(Some(Err(error))),
            };
            file.read_exact(&mut buffer)?;
            sum.add(&buffer);
            parts.push(buffer.into());
        }
        let mut expected = [0_u8; 8];
        file.read_exact(&mut expected)?;
        let intact =
            sum.finish() == u64::from_le_bytes(expected) || mutant(Mutant::ChecksumIgnored);
        Ok(intact.then(|| Ok(Block::from_parts(&header, parts))))
    }

    /// A detached store has the entries of one sort only.
    fn begin_next_sort(&mut self) {
        self.series.sort += u32::from(!self.is_detached);
    }
}

/// The sort of a file, from its name after the group's prefix. None for files of no sort.
fn sort_in(rest: &str) -> Option<u32> {
    let (sort, _) = rest.strip_prefix('s')?.split_once('-')?;
    sort.parse().ok()
}

impl Store for Directory {
    fn scope(&self) -> StoreScope {
        StoreScope::Shared
    }

    fn series(&self) -> Option<Series> {
        Some(self.series)
    }

    fn put(&mut self, version_id: VersionId, node: Node, block: &Block) -> Result<()> {
        let name = self.name(version_id, node);
        // Two ranks may write the same version after a recovery; each has its own temporary name.
        let draft = if mutant(Mutant::WritesInPlace) {
            name.clone()
        } else {
            format!("{name}.draft.{}", self.me)
        };
        if let Err(error) = self.write(&draft, &name, block) {
            let _ = self.files.remove(&draft);
            return Err(refusal("write", &*self.files, &name, &error));
        }
        if !self.mine.contains(&(version_id, node)) {
            self.mine.push((version_id, node));
        }
        Ok(())
    }

    fn get(&self, version_id: VersionId, node: Node) -> Result<Option<Block>> {
        let name = self.name(version_id, node);
        match self.read(&name) {
            Ok(Some(block)) => block.map(Some),
            Ok(None) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(refusal("read", &*self.files, &name, &error)),
        }
    }

    fn retire(&mut self, version: u32) {
        let (old, kept) = self
            .mine
            .iter()
            .partition(|(mine, _)| mine.version < version);
        self.mine = kept;
        let old: Vec<(VersionId, Node)> = old;
        for (version_id, node) in old {
            // Another rank may have removed it, and a leftover does no harm.
            let _ = self.files.remove(&self.name(version_id, node));
        }
    }

    fn clear(&mut self) {
        self.retire(u32::MAX);
        self.begin_next_sort();
    }

    fn leave(&mut self) {
        self.mine.clear();
        self.begin_next_sort();
    }

    fn sweep(&mut self) {
        let detached = self.detached().sorts.clone();
        // Other ranks may have begun the next sort, and also later ones if they take this rank for failed.
        let next = self.series.sort;
        self.remove_all_but(|sort| sort >= next || detached.contains(&sort));
    }

    fn detach(&mut self, removes: bool) -> Box<dyn Store> {
        self.detached().sorts.insert(self.series.sort);
        if !removes {
            self.mine.clear();
        }
        let detached = Directory {
            files: self.files.another(),
            series: self.series,
            me: self.me,
            mine: std::mem::take(&mut self.mine),
            detached: Arc::clone(&self.detached),
            is_detached: true,
        };
        self.series.sort += 1;
        Box::new(detached)
    }

    fn give_up_detached(&mut self) {
        self.detached().sorts.clear();
    }

    fn remove_released(&mut self) {
        let released = {
            let mut detached = self.detached();
            if detached.is_apart {
                return;
            }
            std::mem::take(&mut detached.released)
        };
        for name in released {
            // Another rank may have removed it, and a leftover does no harm.
            let _ = self.files.remove(&name);
        }
    }

    fn set_apart(&mut self) {
        self.detached().is_apart = true;
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "Directory({}/{})",
            self.files.place(),
            self.sort_prefix()
        )
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.is_detached {
            self.detached().has_ended = true;
            self.remove_released();
            return;
        }
        let names: Vec<String> = self
            .mine
            .iter()
            .map(|(id, node)| self.name(*id, *node))
            .collect();
        let has_ended = {
            let mut detached = self.detached();
            detached.sorts.remove(&self.series.sort);
            detached.released.extend(names);
            detached.has_ended
        };
        if has_ended || mutant(Mutant::ReleasedFilesRemovedAtOnce) {
            self.remove_released();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::block::Run;
    use crate::members::RankSet;
    use crate::store::disk::{Disk, FileOptions};

    fn open(folder: &Path, group: u64) -> Result<Directory> {
        let disk = Disk::new(folder, FileOptions::default());
        Directory::open(Box::new(disk), group, Rank(0))
    }

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("ftsort-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn at(version: u32) -> VersionId {
        VersionId { version, faults: 2 }
    }

    fn sample() -> Block {
        let run = |origin, bytes: &[u8]| Run::new(Rank(origin), 7, Slice::copy_of(bytes).unwrap());
        Block::of_sorted(vec![run(1, &[1; 100]), run(4, &[2; 3000])])
    }

    #[test]
    fn finds_a_stored_block_until_it_is_retired() {
        let folder = folder("put");
        let mut store = open(&folder, 1).unwrap();
        store.put(at(3), Node(2), &sample()).unwrap();
        let other = open(&folder, 1).unwrap();
        assert_eq!(other.get(at(3), Node(2)).unwrap(), Some(sample()));
        assert_eq!(other.get(at(4), Node(2)).unwrap(), None);
        let other_group = open(&folder, 2).unwrap();
        assert_eq!(other_group.get(at(3), Node(2)).unwrap(), None);
        store.retire(4);
        assert_eq!(other.get(at(3), Node(2)).unwrap(), None);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(&folder).unwrap();
    }

    /// A rank that the others take for failed may still write its blocks of a round that they run again without it.
    #[test]
    fn keeps_blocks_apart_that_were_made_with_other_failed_ranks() {
        let folder = folder("faults");
        let mut store = open(&folder, 1).unwrap();
        let with_failed = |rank: u32| VersionId {
            version: 3,
            faults: RankSet::of(4, [Rank(rank)]).fingerprint(),
        };
        store.put(with_failed(1), Node(2), &sample()).unwrap();
        assert_eq!(store.get(with_failed(2), Node(2)).unwrap(), None);
        store.put(with_failed(2), Node(2), &Block::empty()).unwrap();
        assert_eq!(store.get(with_failed(1), Node(2)).unwrap(), Some(sample()));
        store.clear();
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn treats_a_truncated_or_corrupted_file_as_absent() {
        let folder = folder("truncated");
        let mut store = open(&folder, 1).unwrap();
        store.put(at(0), Node(0), &sample()).unwrap();
        let path = folder.join(store.name(at(0), Node(0)));
        let content_before = fs::read(&path).unwrap();
        for length in 0..content_before.len() {
            fs::write(&path, &content_before[..length]).unwrap();
            assert_eq!(store.get(at(0), Node(0)).unwrap(), None, "cut at {length}");
        }
        for position in 0..content_before.len() {
            let mut corrupted = content_before.clone();
            corrupted[position] ^= 0x10;
            fs::write(&path, &corrupted).unwrap();
            assert_eq!(
                store.get(at(0), Node(0)).unwrap(),
                None,
                "corrupted at {position}"
            );
        }
        fs::write(&path, &content_before).unwrap();
        assert_eq!(store.get(at(0), Node(0)).unwrap(), Some(sample()));
        store.clear();
        store.sweep();
        fs::remove_dir(&folder).unwrap();
    }

    /// A rank may be stopped while it sweeps, and continue after the others have taken it for failed.
    #[test]
    fn keeps_files_of_later_sorts_that_other_ranks_have_begun() {
        let folder = folder("stale");
        let mut stale = open(&folder, 1).unwrap();
        stale.put(at(0), Node(0), &sample()).unwrap();
        stale.leave();
        stale.leave_sign().unwrap();
        let disk = Disk::new(&folder, FileOptions::default());
        let ahead = Series { group: 1, sort: 2 };
        let mut other = Directory::of_series(Box::new(disk), ahead, Rank(1));
        other.put(at(0), Node(0), &sample()).unwrap();
        stale.sweep();
        assert_eq!(other.get(at(0), Node(0)).unwrap(), Some(sample()));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        other.clear();
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn rejects_run_sizes_that_overflow_to_the_right_sum() {
        let folder = folder("sizes");
        let mut store = open(&folder, 1).unwrap();
        store.put(at(0), Node(0), &sample()).unwrap();
        let path = folder.join(store.name(at(0), Node(0)));
        let mut file = fs::read(&path).unwrap();
        let header = sample().header().encode();
        for (run, size) in [(0, u64::MAX - 99), (1, 3200)] {
            let offset = 16 + header.len() - 40 + run * 20 + 12;
            file[offset..offset + 8].copy_from_slice(&size.to_le_bytes());
        }
        let content = file.len() - 8;
        let sum = Checksum::of(&file[..content]).to_le_bytes();
        file[content..].copy_from_slice(&sum);
        fs::write(&path, &file).unwrap();
        assert_eq!(store.get(at(0), Node(0)).unwrap(), None);
        store.clear();
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn names_a_directory_that_cannot_be_written() {
        let error = open(Path::new("/nowhere/at/all"), 1).err().unwrap();
        assert_eq!(error.status, Status::Store);
        assert!(error.text.contains("/nowhere/at/all"), "{}", error.text);
    }
}

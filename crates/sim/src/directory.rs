//! A directory that simulated ranks share: files in memory, of which a part is written if a rank fails while it
//! writes, and which a host may lose that fails before they are synced.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;

use crate::refusal::is_refused;
use crate::transport::{RankHandle, SimStep};
use ftsort_core::members::Rank;
use ftsort_core::mutants::{Mutant, mutant};
use ftsort_core::store::directory::Files;
use ftsort_kernels::error::Result;

/// The behaviour of files when ranks fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileModel {
    /// Whether files of failed ranks may be damaged.
    pub damage: bool,
    /// Whether every rank is a host whose power fails with it: files that it has not synced may be lost.
    pub power: bool,
    /// Whether ranks sync their files.
    pub sync: bool,
}

/// A file as all ranks see it.
#[derive(Clone)]
struct StoredFile {
    content: Vec<u8>,
    writer: Rank,
    /// Whether the content is on stable storage.
    is_synced: bool,
    /// The content as of the last sync.
    synced: Vec<u8>,
    /// Whether the name is on stable storage.
    is_name_synced: bool,
    /// The file that had the name before, and has it again if the new one is lost.
    replaced: Option<Box<StoredFile>>,
}

/// The files that all ranks see.
#[derive(Default)]
pub struct SharedDirectory {
    files: BTreeMap<String, StoredFile>,
    /// The names of all files that were complete at some time, and synced if the ranks do that.
    finished: BTreeSet<String>,
}

impl SharedDirectory {
    /// The names of the files that are left.
    pub fn names(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    /// The content of a file.
    pub fn content(&self, name: &str) -> Option<&[u8]> {
        Some(&self.files.get(name)?.content)
    }

    /// The content of a file, to change it as a defect of a disk would.
    pub fn content_mut(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        Some(&mut self.files.get_mut(name)?.content)
    }

    /// Removes a file, as a program that does not sort would.
    pub fn remove(&mut self, name: &str) {
        self.files.remove(name);
    }

    /// The names of all files that were complete at some time, and synced if the ranks do that.
    pub fn finished(&self) -> Vec<String> {
        self.finished.iter().cloned().collect()
    }

    /// Decides which files survive a power failure of all hosts. `chance` draws a number below its argument.
    pub fn lose_power(&mut self, mut chance: impl FnMut(u64) -> u64) {
        for name in self.names() {
            self.lose_unsynced(&name, |_| false, &mut chance);
        }
    }

    /// Removes or cuts the unsynced parts of a file if its writer has lost power.
    fn lose_unsynced(
        &mut self,
        name: &str,
        has_power: impl Fn(Rank) -> bool,
        mut chance: impl FnMut(u64) -> u64,
    ) {
        let files = &mut self.files;
        while let Some(file) = files.get_mut(name) {
            if has_power(file.writer) {
                return;
            }
            if !file.is_name_synced && chance(2) == 0 {
                match file.replaced.take() {
                    Some(before) => *file = *before,
                    None => {
                        files.remove(name);
                    }
                }
                continue;
            }
            if !file.is_synced && chance(2) == 0 {
                let length = file.content.len() as u64;
                let kept = (chance(length) as usize).max(file.synced.len());
                file.content.truncate(kept);
                file.content[..file.synced.len()].copy_from_slice(&file.synced);
            }
            (file.is_synced, file.is_name_synced) = (true, true);
            file.synced.clone_from(&file.content);
            return;
        }
    }
}

/// The directory as all ranks share it.
pub type SharedFiles = Rc<RefCell<SharedDirectory>>;

/// One rank's access to the directory.
pub struct InMemoryDirectory {
    shared: SharedFiles,
    handle: RankHandle,
    model: FileModel,
}

impl InMemoryDirectory {
    /// Opens the directory for the rank of `handle`.
    pub fn new(shared: &SharedFiles, handle: &RankHandle, model: FileModel) -> InMemoryDirectory {
        InMemoryDirectory {
            shared: Rc::clone(shared),
            handle: handle.clone(),
            model,
        }
    }

    fn step(&self, kind: SimStep) -> io::Result<()> {
        io_result(self.handle.step(kind))
    }

    /// As [`SharedDirectory::lose_unsynced`], if the writer has failed.
    fn lose_after_failure(&self, name: &str) {
        let mut shared = self.shared.borrow_mut();
        let has_power = |writer| !self.model.power || self.handle.is_running(writer);
        shared.lose_unsynced(name, has_power, |limit| self.handle.chance(limit));
    }
}

/// An error if the trial refuses this access.
fn file_allowed() -> io::Result<()> {
    if is_refused() {
        return Err(io::Error::other("the trial refuses the access"));
    }
    Ok(())
}

fn io_result(result: Result<()>) -> io::Result<()> {
    result.map_err(|error| io::Error::other(error.text))
}

impl Files for InMemoryDirectory {
    fn another(&self) -> Box<dyn Files> {
        let InMemoryDirectory {
            shared,
            handle,
            model,
        } = self;
        Box::new(InMemoryDirectory::new(shared, handle, *model))
    }

    fn place(&self) -> String {
        "the directory".into()
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        file_allowed()?;
        self.step(SimStep::Storing)?;
        if self.shared.borrow().files.contains_key(name) && !mutant(Mutant::WritesInPlace) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let whole = parts.concat();
        let written = self.handle.chance(whole.len() as u64) as usize;
        let put = |bytes: &[u8]| {
            let file = StoredFile {
                content: bytes.to_vec(),
                writer: self.handle.rank(),
                is_synced: false,
                synced: Vec::new(),
                is_name_synced: false,
                replaced: None,
            };
            let files = &mut self.shared.borrow_mut().files;
            files.insert(name.to_string(), file);
        };
        put(&whole[..written]);
        io_result(self.handle.step(SimStep::Tearing))?;
        put(&whole);
        self.step(SimStep::Stored)
    }

    fn read_at(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        let (_, mut content) = self.read(name)?;
        io::copy(&mut content.by_ref().take(at), &mut io::sink())?;
        content.read_exact(into)
    }

    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        file_allowed()?;
        self.step(SimStep::Storing)?;
        let written = self.handle.chance(bytes.len() as u64) as usize;
        let put = |bytes: &[u8]| {
            let files = &mut self.shared.borrow_mut().files;
            let file = files.get_mut(name).ok_or(ErrorKind::NotFound)?;
            let at = at as usize;
            let length = file.content.len().max(at + bytes.len());
            file.content.resize(length, 0);
            file.content[at..at + bytes.len()].copy_from_slice(bytes);
            file.writer = self.handle.rank();
            file.is_synced = false;
            io::Result::Ok(())
        };
        put(&bytes[..written])?;
        io_result(self.handle.step(SimStep::Tearing))?;
        put(bytes)?;
        self.step(SimStep::Stored)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        file_allowed()?;
        if !self.model.sync {
            return Ok(());
        }
        io_result(self.handle.check())?;
        let files = &mut self.shared.borrow_mut().files;
        let file = files.get_mut(name).ok_or(ErrorKind::NotFound)?;
        file.is_synced = true;
        file.synced.clone_from(&file.content);
        self.step(SimStep::Synced)
    }

    fn sync_names(&mut self) -> io::Result<()> {
        file_allowed()?;
        if !self.model.sync {
            return Ok(());
        }
        io_result(self.handle.check())?;
        let mut shared = self.shared.borrow_mut();
        let SharedDirectory { files, finished } = &mut *shared;
        for (name, file) in files {
            if file.writer == self.handle.rank() {
                (file.is_name_synced, file.replaced) = (true, None);
                finished.insert(name.clone());
            }
        }
        drop(shared);
        self.step(SimStep::Synced)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        file_allowed()?;
        io_result(self.handle.check())?;
        let mut shared = self.shared.borrow_mut();
        let mut file = shared.files.remove(from).ok_or(ErrorKind::NotFound)?;
        file.replaced = shared.files.remove(to).map(Box::new);
        shared.files.insert(to.to_string(), file);
        if !self.model.sync {
            shared.finished.insert(to.to_string());
        }
        drop(shared);
        self.step(SimStep::Stored)
    }

    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        file_allowed()?;
        self.step(SimStep::Fetching)?;
        self.lose_after_failure(name);
        let file = self.shared.borrow().files.get(name).cloned();
        let file = file.ok_or(ErrorKind::NotFound)?;
        let (mut content, writer) = (file.content, file.writer);
        let may_change = self.model.damage && !content.is_empty();
        if may_change && !self.handle.is_alive(writer) && self.handle.chance(2) == 0 {
            let at = self.handle.chance(content.len() as u64) as usize;
            match self.handle.chance(2) {
                0 => content.truncate(at),
                _ => content[at] ^= 1 << self.handle.chance(8),
            }
        }
        Ok((content.len() as u64, Box::new(io::Cursor::new(content))))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.step(SimStep::Removing)?;
        let removed = self.shared.borrow_mut().files.remove(name);
        removed.map(|_| ()).ok_or(ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        io_result(self.handle.check())?;
        Ok(self.shared.borrow().names())
    }
}

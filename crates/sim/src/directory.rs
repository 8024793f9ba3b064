//! A directory that simulated ranks share: files in memory, of which a part is written if a rank fails while it
//! writes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;

use crate::refusal::is_refused;
use crate::transport::{RankHandle, SimStep};
use ftsort_core::members::Rank;
use ftsort_core::store::directory::Files;
use ftsort_kernels::error::Result;

/// The files that all ranks see.
#[derive(Default)]
pub struct SharedDirectory {
    /// The contents of the files by name, each with the rank that wrote the file.
    pub files: BTreeMap<String, (Vec<u8>, Rank)>,
    /// The names of all files that were complete at some time.
    pub finished: BTreeSet<String>,
}

/// The directory as all ranks share it.
pub type SharedFiles = Rc<RefCell<SharedDirectory>>;

/// One rank's access to the directory.
pub struct InMemoryDirectory {
    shared: SharedFiles,
    handle: RankHandle,
    /// Whether files of failed ranks may be damaged.
    damage: bool,
}

impl InMemoryDirectory {
    /// Opens the directory for the rank of `handle`. `damage`: whether files of failed ranks may be damaged.
    pub fn new(shared: &SharedFiles, handle: &RankHandle, damage: bool) -> InMemoryDirectory {
        InMemoryDirectory {
            shared: Rc::clone(shared),
            handle: handle.clone(),
            damage,
        }
    }

    fn step(&self, kind: SimStep) -> io::Result<()> {
        io_result(self.handle.step(kind))
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
    fn place(&self) -> String {
        "the directory".into()
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        file_allowed()?;
        self.step(SimStep::Storing)?;
        let whole = parts.concat();
        let written = self.handle.chance(whole.len() as u64) as usize;
        let put = |bytes: &[u8]| {
            let files = &mut self.shared.borrow_mut().files;
            files.insert(name.to_string(), (bytes.to_vec(), self.handle.rank()));
        };
        put(&whole[..written]);
        io_result(self.handle.step(SimStep::Tearing))?;
        put(&whole);
        self.step(SimStep::Stored)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        file_allowed()?;
        io_result(self.handle.check())?;
        let mut shared = self.shared.borrow_mut();
        let content = shared.files.remove(from).ok_or(ErrorKind::NotFound)?;
        shared.files.insert(to.to_string(), content);
        shared.finished.insert(to.to_string());
        drop(shared);
        self.step(SimStep::Stored)
    }

    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        file_allowed()?;
        self.step(SimStep::Fetching)?;
        let content = self.shared.borrow().files.get(name).cloned();
        let (mut content, writer) = content.ok_or(ErrorKind::NotFound)?;
        if self.damage && !self.handle.is_alive(writer) && self.handle.chance(2) == 0 {
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
        Ok(self.shared.borrow().files.keys().cloned().collect())
    }
}

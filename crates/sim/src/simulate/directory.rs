//! A directory that simulated ranks share: files in memory, torn where a rank dies while it writes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;

use crate::transport::{Probe, SimStep};
use ftsort_core::members::Rank;
use ftsort_core::store::directory::Files;
use ftsort_kernels::error::Result;

/// What all ranks see.
#[derive(Default)]
pub struct SharedDirectory {
    /// The files, by name, each with the rank that wrote it.
    pub files: BTreeMap<String, (Vec<u8>, Rank)>,
    /// The names under which there once was a whole file.
    pub finished: BTreeSet<String>,
}

/// One for all ranks.
pub type Shared = Rc<RefCell<SharedDirectory>>;

/// One rank's view of them.
pub struct InMemoryDirectory {
    shared: Shared,
    probe: Probe,
    /// Files of lost ranks may be damaged.
    rot: bool,
}

impl InMemoryDirectory {
    /// A rank's view, by the rank's probe. `rot`: files of lost ranks may be damaged.
    pub fn new(shared: Shared, probe: Probe, rot: bool) -> InMemoryDirectory {
        InMemoryDirectory { shared, probe, rot }
    }

    fn step(&self, deed: SimStep) -> io::Result<()> {
        lost(self.probe.step(deed))
    }
}

fn lost(result: Result<()>) -> io::Result<()> {
    result.map_err(|error| io::Error::other(error.text))
}

impl Files for InMemoryDirectory {
    fn place(&self) -> String {
        "the directory".into()
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        self.step(SimStep::Storing)?;
        let whole = parts.concat();
        let torn = self.probe.chance(whole.len() as u64) as usize;
        let put = |bytes: &[u8]| {
            let files = &mut self.shared.borrow_mut().files;
            files.insert(name.to_string(), (bytes.to_vec(), self.probe.rank()));
        };
        put(&whole[..torn]);
        lost(self.probe.step(SimStep::Tearing))?;
        put(&whole);
        self.step(SimStep::Stored)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        lost(self.probe.check())?;
        let mut shared = self.shared.borrow_mut();
        let content = shared.files.remove(from).ok_or(ErrorKind::NotFound)?;
        shared.files.insert(to.to_string(), content);
        shared.finished.insert(to.to_string());
        drop(shared);
        self.step(SimStep::Stored)
    }

    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        self.step(SimStep::Fetching)?;
        let content = self.shared.borrow().files.get(name).cloned();
        let (mut content, writer) = content.ok_or(ErrorKind::NotFound)?;
        if self.rot && !self.probe.lives(writer) && self.probe.chance(2) == 0 {
            let at = self.probe.chance(content.len() as u64) as usize;
            match self.probe.chance(2) {
                0 => content.truncate(at),
                _ => content[at] ^= 1 << self.probe.chance(8),
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
        lost(self.probe.check())?;
        Ok(self.shared.borrow().files.keys().cloned().collect())
    }
}

//! A directory that simulated ranks share: files in memory, torn where a rank dies while it writes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;

use crate::error::Result;
use crate::store::directory::Files;
use crate::transport::sim::{Deed, Probe};

/// The files, by name.
pub type Shared = Rc<RefCell<BTreeMap<String, Vec<u8>>>>;

/// One rank's view of them.
pub struct Drawer {
    shared: Shared,
    probe: Probe,
}

impl Drawer {
    pub fn new(shared: Shared, probe: Probe) -> Drawer {
        Drawer { shared, probe }
    }

    fn step(&self, deed: Deed) -> io::Result<()> {
        lost(self.probe.step(deed))
    }
}

fn lost(result: Result<()>) -> io::Result<()> {
    result.map_err(|error| io::Error::other(error.text))
}

impl Files for Drawer {
    fn place(&self) -> String {
        "the drawer".into()
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        self.step(Deed::Storing)?;
        let whole = parts.concat();
        let torn = self.probe.chance(whole.len() as u64) as usize;
        let put = |bytes: &[u8]| {
            let mut files = self.shared.borrow_mut();
            files.insert(name.to_string(), bytes.to_vec());
        };
        put(&whole[..torn]);
        lost(self.probe.step(Deed::Tearing))?;
        put(&whole);
        self.step(Deed::Stored)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        lost(self.probe.check())?;
        let mut files = self.shared.borrow_mut();
        let content = files.remove(from).ok_or(ErrorKind::NotFound)?;
        files.insert(to.to_string(), content);
        drop(files);
        self.step(Deed::Stored)
    }

    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        self.step(Deed::Fetching)?;
        let content = self.shared.borrow().get(name).cloned();
        let content = content.ok_or(ErrorKind::NotFound)?;
        Ok((content.len() as u64, Box::new(io::Cursor::new(content))))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.step(Deed::Removing)?;
        let removed = self.shared.borrow_mut().remove(name);
        removed.map(|_| ()).ok_or(ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        lost(self.probe.check())?;
        Ok(self.shared.borrow().keys().cloned().collect())
    }
}

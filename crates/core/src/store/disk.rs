//! The files of a real directory: the only module of the crate that accesses a file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::directory::Files;

/// A directory of the file system.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// The directory at this path, which need not exist yet.
    pub fn new(folder: &Path) -> Disk {
        Disk {
            folder: folder.to_path_buf(),
        }
    }

    /// Opens a file for appending; it is created if it does not exist, and emptied if `fresh`. Each write
    /// stays contiguous even if other processes append to the same file.
    pub fn append(&self, name: &str, fresh: bool) -> io::Result<Box<dyn Write + Send>> {
        let path = self.folder.join(name);
        if fresh {
            File::create(&path)?;
        }
        let mut options = OpenOptions::new();
        Ok(Box::new(options.append(true).create(true).open(path)?))
    }
}

impl Files for Disk {
    fn place(&self) -> String {
        self.folder.display().to_string()
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let mut file = File::create(self.folder.join(name))?;
        parts.iter().try_for_each(|part| file.write_all(part))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.folder.join(from), self.folder.join(to))
    }

    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        let file = File::open(self.folder.join(name))?;
        Ok((file.metadata()?.len(), Box::new(file)))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.folder)?.flatten();
        Ok(entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect())
    }
}

//! The store in a directory that all ranks see: each version of a node's block is one file.
//!
//! A file is written under a temporary name and renamed, so that a reader sees all of it or
//! nothing; it ends with a checksum, so that what a file system lost or spoiled is noticed. The
//! papers' programs write their checkpoints in place. The only module that touches files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::{Reach, Store};
use crate::block::{Block, Header};
use crate::buffer::{Buffer, Slice};
use crate::error::{Error, Result, Status};
use crate::members::Rank;
use crate::vcube::Node;

/// Starts every file; the last byte is the version of the format.
const MAGIC: [u8; 8] = *b"ftsort\0\x01";

/// Files of one group in a directory.
#[derive(Debug)]
pub struct Directory {
    folder: PathBuf,
    /// Starts the name of every file of this group, and of no other.
    prefix: String,
    /// Tells the files that ranks write at the same time apart.
    me: Rank,
    /// What this rank has put and not removed yet.
    mine: Vec<(u32, Node)>,
}

impl Directory {
    /// A store in `folder` for the group that all ranks know under the number `group`. Tries at
    /// once to write there: `Status::Store` with the system's reason if it cannot.
    pub fn open(folder: &Path, group: u64, me: Rank) -> Result<Directory> {
        let store = Directory {
            folder: folder.to_path_buf(),
            prefix: format!("ftsort-{group:016x}-"),
            me,
            mine: Vec::new(),
        };
        let probe = store.folder.join(format!("{}probe.{me}", store.prefix));
        File::create(&probe)
            .and_then(|_| fs::remove_file(&probe))
            .map_err(|error| refusal("store directory", &store.folder, &error))?;
        Ok(store)
    }

    /// Leaves a sign that ranks which see the same directory find with [`Directory::sees_sign`].
    pub fn leave_sign(&self) -> Result<()> {
        let sign = self.sign();
        File::create(&sign)
            .map(|_| ())
            .map_err(|error| refusal("cannot create", &sign, &error))
    }

    /// Is the sign there?
    pub fn sees_sign(&self) -> bool {
        self.sign().exists()
    }

    fn sign(&self) -> PathBuf {
        self.folder.join(format!("{}sign", self.prefix))
    }

    fn path(&self, version: u32, node: Node) -> PathBuf {
        self.folder
            .join(format!("{}v{version}-n{node}", self.prefix))
    }

    fn write(&self, path: &Path, block: &Block) -> io::Result<()> {
        let mut out = Summed {
            inner: BufWriter::new(File::create(path)?),
            sum: Xxh3::new(),
        };
        let header = block.header().encode();
        out.write_all(&MAGIC)?;
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for run in &block.runs {
            out.write_all(&run.data)?;
        }
        let sum = out.sum.digest();
        out.inner.write_all(&sum.to_le_bytes())?;
        out.inner.into_inner()?.flush()
    }

    /// None: torn, truncated or spoiled.
    fn read(path: &Path) -> io::Result<Option<Result<Block>>> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut sum = Xxh3::new();
        let mut fixed = [0_u8; 16];
        file.read_exact(&mut fixed)?;
        sum.update(&fixed);
        let (magic, length) = fixed.split_at(8);
        let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
        if magic != MAGIC || length > size {
            return Ok(None);
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header)?;
        sum.update(&header);
        let Some(header) = Header::decode(&header) else {
            return Ok(None);
        };
        let claimed: u64 = header.runs.iter().map(|(_, _, bytes)| *bytes as u64).sum();
        if claimed.checked_add(length + 24) != Some(size) {
            return Ok(None);
        }
        let mut parts: Vec<Slice> = Vec::with_capacity(header.runs.len());
        for (_, _, bytes) in &header.runs {
            let mut buffer = match Buffer::zeroed(*bytes) {
                Ok(buffer) => buffer,
                Err(error) => return Ok(Some(Err(error))),
            };
            file.read_exact(&mut buffer)?;
            sum.update(&buffer);
            parts.push(buffer.into());
        }
        let mut expected = [0_u8; 8];
        file.read_exact(&mut expected)?;
        let intact = sum.digest() == u64::from_le_bytes(expected);
        Ok(intact.then(|| Ok(Block::from_parts(&header, parts))))
    }

    fn remove(&self, version: u32, node: Node) {
        // Another rank may have removed it, and a leftover does no harm.
        let _ = fs::remove_file(self.path(version, node));
    }
}

/// Sums up what passes through.
struct Summed<W> {
    inner: W,
    sum: Xxh3,
}

impl<W: Write> Summed<W> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.inner.write_all(bytes)
    }
}

fn refusal(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(Status::Store, format!("{what} {}: {error}", path.display()))
}

impl Store for Directory {
    fn reach(&self) -> Reach {
        Reach::Everyone
    }

    fn put(&mut self, version: u32, node: Node, block: &Block) -> Result<()> {
        let path = self.path(version, node);
        // Two ranks may write the same version after a repair; each has a temporary name.
        let draft = path.with_extension(format!("draft.{}", self.me));
        let written = self
            .write(&draft, block)
            .and_then(|()| fs::rename(&draft, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&draft);
            return Err(refusal("cannot write", &path, &error));
        }
        if !self.mine.contains(&(version, node)) {
            self.mine.push((version, node));
        }
        Ok(())
    }

    fn get(&self, version: u32, node: Node) -> Result<Option<Block>> {
        match Directory::read(&self.path(version, node)) {
            Ok(Some(block)) => block.map(Some),
            Ok(None) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(refusal("cannot read", &self.path(version, node), &error)),
        }
    }

    fn retire(&mut self, version: u32) {
        let (old, kept) = self.mine.iter().partition(|(mine, _)| *mine < version);
        self.mine = kept;
        let old: Vec<(u32, Node)> = old;
        for (version, node) in old {
            self.remove(version, node);
        }
    }

    fn clear(&mut self) {
        self.retire(u32::MAX);
    }

    fn sweep(&mut self) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(&self.prefix) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Run;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("ftsort-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn sample() -> Block {
        let run = |origin, bytes: &[u8]| Run {
            origin: Rank(origin),
            start: 7,
            data: Buffer::copy_of(bytes).unwrap().into(),
        };
        Block {
            runs: vec![run(1, &[1; 100]), run(4, &[2; 3000])],
            sorted: true,
        }
    }

    #[test]
    fn what_was_put_is_found_until_it_is_retired() {
        let folder = folder("put");
        let mut store = Directory::open(&folder, 1, Rank(0)).unwrap();
        store.put(3, Node(2), &sample()).unwrap();
        let other = Directory::open(&folder, 1, Rank(0)).unwrap();
        assert_eq!(other.get(3, Node(2)).unwrap(), Some(sample()));
        assert_eq!(other.get(4, Node(2)).unwrap(), None);
        let stranger = Directory::open(&folder, 2, Rank(0)).unwrap();
        assert_eq!(stranger.get(3, Node(2)).unwrap(), None);
        store.retire(4);
        assert_eq!(other.get(3, Node(2)).unwrap(), None);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_torn_or_spoiled_file_counts_as_absent() {
        let folder = folder("torn");
        let mut store = Directory::open(&folder, 1, Rank(0)).unwrap();
        store.put(0, Node(0), &sample()).unwrap();
        let path = store.path(0, Node(0));
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(store.get(0, Node(0)).unwrap(), None, "cut at {length}");
        }
        for position in 0..whole.len() {
            let mut spoiled = whole.clone();
            spoiled[position] ^= 0x10;
            fs::write(&path, &spoiled).unwrap();
            assert_eq!(
                store.get(0, Node(0)).unwrap(),
                None,
                "spoiled at {position}"
            );
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(store.get(0, Node(0)).unwrap(), Some(sample()));
        store.sweep();
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_refused_by_name() {
        let error = Directory::open(Path::new("/nowhere/at/all"), 1, Rank(0)).unwrap_err();
        assert_eq!(error.status, Status::Store);
        assert!(error.text.contains("/nowhere/at/all"), "{}", error.text);
    }
}

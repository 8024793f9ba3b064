//! The reader of the store's files returns nothing, or the block in the file, for any content. It uses no more memory
//! than the file has bytes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Cursor, ErrorKind, Read};
use std::rc::Rc;

use ftsort_core::block::{Block, Header, Run};
use ftsort_core::members::Rank;
use ftsort_core::store::directory::{Directory, Files};
use ftsort_core::store::{Store, VersionId};
use ftsort_core::vcube::Node;
use ftsort_kernels::buffer::{self, Buffer};
use ftsort_kernels::checksum::Checksum;
use ftsort_kernels::digest::DigestKey;
use ftsort_kernels::memory::MemoryBudget;

const MAGIC: &[u8; 8] = b"ftsort\0\x03";

type Shelf = Rc<RefCell<BTreeMap<String, Vec<u8>>>>;

/// Files in memory.
struct Shelved(Shelf);

impl Files for Shelved {
    fn another(&self) -> Box<dyn Files> {
        Box::new(Shelved(Rc::clone(&self.0)))
    }

    fn place(&self) -> String {
        "a shelf".into()
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        self.0.borrow_mut().insert(name.into(), parts.concat());
        Ok(())
    }

    fn read_at(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        let (_, mut content) = self.read(name)?;
        io::copy(&mut content.by_ref().take(at), &mut io::sink())?;
        content.read_exact(into)
    }

    fn write_at(&mut self, _: &str, _: u64, _: &[u8]) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let content = self.0.borrow_mut().remove(from);
        let content = content.ok_or(ErrorKind::NotFound)?;
        self.0.borrow_mut().insert(to.into(), content);
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        let content = self.0.borrow().get(name).cloned();
        let content = content.ok_or(ErrorKind::NotFound)?;
        Ok((content.len() as u64, Box::new(Cursor::new(content))))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let removed = self.0.borrow_mut().remove(name);
        removed.map(drop).ok_or(ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.borrow().keys().cloned().collect())
    }
}

const NODE: Node = Node(3);

fn put(block: &Block) -> (Shelf, Directory) {
    let shelf = Shelf::default();
    let mut store = Directory::new(Box::new(Shelved(shelf.clone())), 7, Rank(1));
    let put = store.put(VersionId::INPUT, NODE, block);
    put.expect("there is room on the shelf");
    assert_eq!(shelf.borrow().len(), 1, "one block, one file");
    (shelf, store)
}

/// The block that the reader finds in a file with these bytes.
fn read(file: &[u8]) -> Option<Block> {
    let (shelf, store) = put(&Block::empty());
    shelf
        .borrow_mut()
        .values_mut()
        .for_each(|content| *content = file.to_vec());
    let budget = MemoryBudget::current();
    budget.start_peak();
    let before = budget.used();
    let found = store.get(VersionId::INPUT, NODE);
    // A buffer is a whole number of cache lines. Each run has a buffer, and at least twenty bytes in the header.
    let most = file.len() + buffer::ALIGNMENT * (file.len() / 20 + 1);
    assert!(budget.peak() - before <= most, "more than the file has");
    found.expect("the file is small enough for any memory")
}

/// The content of a file, read by a second implementation; `None` if the file is not valid.
fn said(file: &[u8]) -> Option<(Header, Vec<u8>)> {
    let (content, sum) = file.split_last_chunk::<8>()?;
    let rest = content.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, records) = rest.split_at_checked(length)?;
    let header = Header::decode(header)?;
    let all = header.runs.iter().map(|(_, _, bytes)| *bytes as u128);
    let is_whole = all.sum::<u128>() == records.len() as u128;
    let is_intact = Checksum::of(content) == u64::from_le_bytes(*sum);
    (is_whole && is_intact).then(|| (header, records.to_vec()))
}

fn agrees(file: &[u8]) {
    let found = read(file).map(|block| {
        let records: Vec<u8> = block
            .runs
            .iter()
            .flat_map(|run| run.data.to_vec())
            .collect();
        (block.header(), records)
    });
    let expected = said(file).map(|(mut header, records)| {
        header.runs.retain(|(_, _, bytes)| *bytes > 0);
        (header, records)
    });
    assert_eq!(found, expected);
}

/// A file with this header and these records, in which the magic number, the length and the checksum are valid.
fn framed(header: &[u8], records: &[u8]) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    let mut file = [MAGIC, &length[..], header, records].concat();
    file.extend(Checksum::of(&file).to_le_bytes());
    file
}

/// Makes a block from bytes: the first ones are the lengths of its runs.
fn block_of(data: &[u8]) -> Block {
    let (lengths, mut rest) = data.split_at(data.len().min(4));
    let mut runs = Vec::new();
    for (index, length) in lengths.iter().enumerate() {
        let (records, later) = rest.split_at(rest.len().min(usize::from(*length)));
        rest = later;
        let records = Buffer::copy_of(records).expect("a few bytes");
        runs.push(Run {
            origin: Rank(index as u32),
            start: u64::from(*length) << 40,
            data: records.into(),
        });
    }
    let block = Block::of_sorted(runs);
    match lengths.first() {
        Some(first) if first % 2 == 1 => block.sealed(&DigestKey::new(1, 1)),
        _ => block,
    }
}

/// A file is read as the block that was written. With one change of any kind it is refused, or read as the same
/// block.
fn mutated(data: &[u8]) {
    let Some((change, rest)) = data.split_first_chunk::<4>() else {
        return;
    };
    let block = block_of(rest);
    let (shelf, _) = put(&block);
    let mut file = shelf.borrow().values().next().cloned().unwrap_or_default();
    assert_eq!(read(&file), Some(block.clone()));
    let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % file.len();
    match change[2] % 5 {
        0 => file[at] ^= 1 << (change[3] % 8),
        1 => file[at] = change[3],
        2 => file.truncate(at),
        3 => file.insert(at, change[3]),
        _ => {
            file.remove(at);
        }
    }
    let found = read(&file);
    assert!(found.is_none_or(|found| found == block), "another block");
    agrees(&file);
}

/// The first byte selects the use of the rest: as a file; as the header and records of a file that is valid otherwise,
/// because no fuzzer guesses a checksum; or as a block with a file that is changed afterwards.
pub fn check(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else {
        return agrees(data);
    };
    match kind % 3 {
        0 => agrees(rest),
        1 => {
            let Some((length, rest)) = rest.split_first() else {
                return;
            };
            let (header, records) = rest.split_at(rest.len().min(usize::from(*length)));
            agrees(&framed(header, records));
        }
        _ => mutated(rest),
    }
}

//! Ranks on several hosts, each of which keeps written data until they are flushed.

use std::io::{self, Read};

use super::*;
use ftsort_core::store::directory::Files;

/// A directory of a host that is lost with all data that were not flushed.
struct Cached {
    files: InMemoryDirectory,
    /// The data that have not left the host: the name of a file, a position, and bytes.
    kept: Vec<(String, u64, Vec<u8>)>,
}

impl Files for Cached {
    delegate_to_files! {
        fn another(&self) -> Box<dyn Files>;
        fn place(&self) -> String;
        fn read_at(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()>;
        fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
        fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)>;
        fn list(&self) -> io::Result<Vec<String>>;
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        self.files.write(name, &[])?;
        self.write_at(name, 0, &parts.concat())
    }

    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.kept.push((name.into(), at, bytes.to_vec()));
        Ok(())
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self, name: &str) -> io::Result<()> {
        for (file, at, bytes) in std::mem::take(&mut self.kept) {
            if file == name {
                self.files.write_at(name, at, &bytes)?;
            } else {
                self.kept.push((file, at, bytes));
            }
        }
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.kept.retain(|(file, _, _)| file != name);
        self.files.remove(name)
    }
}

/// Sorts on ranks of which each has a host. The output has only the data that were flushed.
fn sorted_on_hosts(world: &World, failures: &[Failure]) -> std::result::Result<usize, String> {
    let files = world.clone();
    let outcomes = try_play(RANKS, (1, failures), move |rank, mpi, handle| {
        let services = Services {
            host: rank.index() as u64,
            ..services(rank)
        };
        let mut group = Group::new(transport(mpi), GroupConfig::default(), services)?;
        let mut sort = sort_of(&files, rank, &handle, false);
        sort.files.places.output = Box::new(Cached {
            files: InMemoryDirectory::new(&files.output, &handle, FileModel::default()),
            kept: Vec::new(),
        });
        group.external_sort(sort)
    });
    survivors_of(world, outcomes, false)
}

#[test]
fn committed_batches_outlive_their_hosts() {
    for parts in [0, 3] {
        for rank in 0..RANKS {
            for step in (1..).step_by(5) {
                let world = World::new(143).in_files(parts);
                match sorted_on_hosts(&world, &[crash(rank, step)]) {
                    Ok(RANKS) => break,
                    sorted => assert_eq!(sorted, Ok(RANKS - 1), "{rank}@{step}"),
                }
            }
        }
    }
}

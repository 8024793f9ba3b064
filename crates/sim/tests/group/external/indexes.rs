//! Reads of indexes of runs: those of other ranks, damaged ones, and files of a size that no run or manifest has.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};

use super::*;
use ftsort_core::external::footer::{FOOTER_BYTES, RunFooter};
use ftsort_core::external::manifest::HEAD_BYTES;
use ftsort_core::store::directory::Files;

/// A file that claims to be larger than its content, which is repeated up to its end.
struct Claim {
    name: String,
    content: Vec<u8>,
    bytes: u64,
}

/// A read of a file.
struct NotedRead {
    rank: Rank,
    at: u64,
    bytes: u64,
}

/// The reads of a directory, and its files that are not what they seem.
#[derive(Default)]
struct Watch {
    /// The reads of each file.
    reads: RefCell<BTreeMap<String, Vec<NotedRead>>>,
    /// Until a rank replaces or removes the file.
    claim: RefCell<Option<Claim>>,
    /// A read of the bytes behind the records of a run is refused, once.
    refuses: Cell<bool>,
}

impl Watch {
    /// The size and the content of a file that claims to be larger.
    fn claimed(&self, name: &str) -> Option<(u64, Vec<u8>)> {
        let claim = self.claim.borrow();
        let claim = claim.as_ref().filter(|claim| claim.name == name)?;
        Some((claim.bytes, claim.content.clone()))
    }

    /// The file has another content now.
    fn end_claim(&self, name: &str) {
        let mut claim = self.claim.borrow_mut();
        claim.take_if(|claim| claim.name == name);
    }

    fn note(&self, name: &str, rank: Rank, at: u64, bytes: usize) {
        let mut reads = self.reads.borrow_mut();
        let bytes = bytes as u64;
        let reads = reads.entry(name.into()).or_default();
        reads.push(NotedRead { rank, at, bytes });
    }
}

/// A directory of which all reads are noted.
struct Watched {
    files: InMemoryDirectory,
    rank: Rank,
    watch: Rc<Watch>,
}

/// The content of a file that claims to be larger. Reads are noted, and end with an error before they fill the memory.
struct Claimed<'w> {
    content: Vec<u8>,
    name: String,
    rank: Rank,
    at: u64,
    watch: &'w Watch,
}

impl Read for Claimed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at > 1 << 20 {
            return Err(ErrorKind::OutOfMemory.into());
        }
        self.watch.note(&self.name, self.rank, self.at, into.len());
        for byte in &mut *into {
            *byte = self.content[self.at as usize % self.content.len()];
            self.at += 1;
        }
        Ok(into.len())
    }
}

impl Files for Watched {
    delegate_to_files! {
        fn another(&self) -> Box<dyn Files>;
        fn place(&self) -> String;
        fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()>;
        fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;
        fn sync(&mut self, name: &str) -> io::Result<()>;
        fn sync_names(&mut self) -> io::Result<()>;
        fn list(&self) -> io::Result<Vec<String>>;
    }

    fn read_at(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.watch.note(name, self.rank, at, into.len());
        if let Some((bytes, content)) = self.watch.claimed(name) {
            if into.len() > 1 << 20 {
                return Err(ErrorKind::OutOfMemory.into());
            }
            // The content is repeated so that a copy of it ends at the end of the file.
            let phase = content.len() as u64 - bytes % content.len() as u64;
            for (index, byte) in (at + phase..).zip(into) {
                *byte = content[(index % content.len() as u64) as usize];
            }
            return Ok(());
        }
        let is_index = into.len() > FOOTER_BYTES && !name.contains(".piece");
        if is_index && self.watch.refuses.take() {
            return Err(ErrorKind::Other.into());
        }
        self.files.read_at(name, at, into)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.watch.end_claim(to);
        self.files.rename(from, to)
    }

    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        let Some((bytes, content)) = self.watch.claimed(name) else {
            return self.files.read(name);
        };
        let content = Claimed {
            content,
            name: name.into(),
            rank: self.rank,
            at: 0,
            watch: &self.watch,
        };
        Ok((bytes, Box::new(content)))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.watch.end_claim(name);
        self.files.remove(name)
    }
}

/// Sorts, and notes the reads of the scratch directories and of the output.
fn watched_job(
    world: &World,
    failures: &[Failure],
    resume: bool,
    watch: &Rc<Watch>,
) -> std::result::Result<Outcomes, String> {
    let watch = Rc::clone(watch);
    try_job(
        world,
        RANKS,
        (1, failures),
        move |group, rank, handle, world| {
            let watched = |shared: &SharedFiles| -> Box<dyn Files> {
                Box::new(Watched {
                    files: InMemoryDirectory::new(shared, handle, world.model),
                    rank,
                    watch: Rc::clone(&watch),
                })
            };
            let mut sort = sort_of(world, rank, handle, resume);
            sort.files.places.scratch = vec![watched(&world.scratch[rank.index()])];
            sort.files.places.output = watched(&world.output);
            group.external_sort(sort)
        },
    )
}

/// The sums of the runs and of the restarts of the survivors.
fn runs_and_restarts(outcomes: &Outcomes) -> (u64, u64) {
    let stats: Vec<_> = outcomes.iter().flatten().flatten().collect();
    let runs = stats.iter().map(|stats| stats.runs).sum();
    let restarts = stats.iter().map(|stats| stats.restarts);
    (runs, restarts.max().unwrap_or(0))
}

/// The files of a job that has ended when all runs were made, in one scratch directory.
fn ended_world() -> World {
    let world = World::with_shared_scratch(143);
    let late = [0, 1, 2].map(|rank| crash(rank, steps(1) * 3 / 4));
    job(&world, RANKS, (1, &late), true).expect("no hang");
    assert_eq!(world.scratch[0].borrow().names().len(), 8);
    world
}

/// The footers of the runs in the scratch directory.
fn footers(world: &World) -> BTreeMap<String, RunFooter> {
    let files = world.scratch[0].borrow();
    let names = files.names().into_iter();
    let runs = names.map(|name| {
        let content = files.content(&name).expect("a file of the list");
        let end = content.last_chunk().expect("a footer");
        let footer = RunFooter::decode(end, content.len() as u64);
        (name, footer.expect("a whole run"))
    });
    runs.collect()
}

/// The reads of bytes behind the records of a run: the ranks, and the numbers of bytes.
fn reads_behind_records(watch: &Watch, name: &str, footer: &RunFooter) -> Vec<(Rank, u64)> {
    let reads = watch.reads.borrow();
    let behind = footer.stored_bytes().expect("a run");
    let reads = reads.get(name).into_iter().flatten();
    let reads = reads.filter(|read| read.at >= behind);
    reads.map(|read| (read.rank, read.bytes)).collect()
}

/// Of the runs in a directory that all ranks see, each rank reads the indexes of those that it uses.
#[test]
fn a_resumed_job_reads_each_index_on_one_rank() {
    let world = ended_world();
    let runs = footers(&world);
    let watch = Rc::default();
    let outcomes = watched_job(&world, &[], true, &watch).unwrap();
    assert_eq!(runs_and_restarts(&outcomes), (0, 0));
    assert_eq!(survivors_of(&world, Ok(outcomes), true), Ok(RANKS));
    for (name, footer) in &runs {
        let (of_footer, of_index) = (FOOTER_BYTES as u64, footer.index_bytes().unwrap() as u64);
        let mut bytes = vec![0; RANKS];
        for (rank, read) in reads_behind_records(&watch, name, footer) {
            bytes[rank.index()] += read;
        }
        bytes.sort_unstable();
        assert_eq!(
            bytes,
            [of_footer, of_footer, of_footer + of_index],
            "{name}"
        );
    }
}

/// After a failure one rank at most reads the index of a run, and the others its footer.
#[test]
fn an_index_is_read_on_one_rank_after_a_failure() {
    let runs = footers(&ended_world());
    let mut read = 0;
    for step in (steps(1) / 2..steps(1)).step_by(9) {
        let world = World::with_shared_scratch(143);
        let watch = Rc::default();
        let outcomes = watched_job(&world, &[crash(1, step)], false, &watch);
        let survivors = survivors_of(&world, outcomes, false);
        assert!(survivors.is_ok(), "{step}: {survivors:?}");
        for (name, footer) in &runs {
            let of_index = footer.index_bytes().unwrap() as u64;
            let mut reads = reads_behind_records(&watch, name, footer);
            reads.retain(|(_, bytes)| *bytes != FOOTER_BYTES as u64);
            let is_one = reads.iter().all(|(_, bytes)| *bytes == of_index) && reads.len() <= 1;
            assert!(is_one, "{step} {name}: {reads:?}");
            read += reads.len();
        }
    }
    assert!(read > 0);
}

/// Changes a bit at `back` bytes before the end of one run, or lets the read of an index fail, and resumes the job. The
/// run is made again. Returns the number of restarts, or an error.
fn resumed_with_damage(back: Option<usize>) -> std::result::Result<u64, String> {
    let world = ended_world();
    let watch = Rc::<Watch>::default();
    watch.refuses.set(back.is_none());
    if let Some(back) = back {
        let mut files = world.scratch[0].borrow_mut();
        let name = files.names().remove(3);
        let content = files.content_mut(&name).expect("a file of the list");
        let at = content.len() - back;
        content[at] ^= 4;
    }
    let outcomes = watched_job(&world, &[], true, &watch)?;
    let (runs, restarts) = runs_and_restarts(&outcomes);
    match survivors_of(&world, Ok(outcomes), true)? {
        RANKS if runs == 1 && world.runs() == 0 => Ok(restarts),
        survivors => Err(format!("{survivors} survivors, {runs} runs")),
    }
}

/// A rank finds the damage when the run was assigned to it.
pub fn runs_with_damaged_indexes_are_made_again() -> std::result::Result<(), String> {
    // A checksum, the last byte of the index, and one of its first bytes; or none can be read.
    for back in [Some(1), Some(FOOTER_BYTES + 1), Some(300), None] {
        match resumed_with_damage(back)? {
            1 => {}
            restarts => return Err(format!("{back:?}: {restarts} restarts")),
        }
    }
    Ok(())
}

#[test]
fn a_damaged_index_is_given_up_when_it_is_read() {
    assert_eq!(runs_with_damaged_indexes_are_made_again(), Ok(()));
}

/// A rank does not report a run with a damaged footer, of which it does not know the digest.
#[test]
fn a_damaged_footer_is_not_reported() {
    for back in (5..=FOOTER_BYTES).step_by(if all_tests() { 1 } else { 7 }) {
        assert_eq!(resumed_with_damage(Some(back)), Ok(0), "{back}");
    }
}

/// A file with the name of a run claims to have a large index. No rank reads more of it than the size of a footer.
#[test]
fn an_index_that_no_run_of_the_chunk_has_is_not_read() {
    let (name, footer) = footers(&ended_world()).pop_first().expect("a run");
    let bytes = |footer: &RunFooter| {
        let mut end = footer.encode();
        end.resize(FOOTER_BYTES, 0);
        let size = footer.stored_bytes().unwrap() + footer.index_bytes().unwrap() as u64;
        (end, size)
    };
    let many_records = RunFooter {
        records: 1 << 24,
        ..footer
    };
    let large_records = RunFooter {
        record_bytes: 1 << 24,
        ..footer
    };
    for (content, size) in [
        // A number that might be the size of an index.
        ((1_u64 << 32).to_le_bytes().to_vec(), 1 << 50),
        bytes(&many_records),
        bytes(&large_records),
        (bytes(&footer).0, 1 << 40),
    ] {
        let world = ended_world();
        let watch = Rc::<Watch>::default();
        watch.claim.replace(Some(Claim {
            name: name.clone(),
            content,
            bytes: size,
        }));
        let outcomes = watched_job(&world, &[], true, &watch).unwrap();
        assert_eq!(runs_and_restarts(&outcomes), (1, 0), "{size} bytes");
        assert_eq!(survivors_of(&world, Ok(outcomes), true), Ok(RANKS));
        let reads = watch.reads.borrow();
        let longest = reads[&name].iter().map(|read| read.bytes).max();
        let most = footer.stored_bytes().unwrap();
        assert!(
            longest <= Some(most.max(FOOTER_BYTES as u64)),
            "{longest:?}"
        );
    }
}

/// A file with the name of the manifest, of any size, counts as damaged. The ranks read only its first fields.
#[test]
fn a_large_file_with_the_name_of_a_manifest_is_not_read() {
    let with_records_of = |record_bytes: u64| {
        let world = ended_world();
        let files = world.output.borrow();
        let content = files.content("sorted.ftsort").expect("a manifest");
        let mut content = content.to_vec();
        content[HEAD_BYTES - 8..HEAD_BYTES].copy_from_slice(&record_bytes.to_le_bytes());
        content
    };
    let large = 50 << 30;
    for (content, size) in [
        (vec![0], large),
        (with_records_of(RECORD_BYTES as u64), large),
        (with_records_of(1 << 20), large),
        // As large as its record would make it.
        (with_records_of(1 << 40), (1 << 40) + 138),
    ] {
        for resume in [false, true] {
            let world = ended_world();
            let watch = Rc::<Watch>::default();
            watch.claim.replace(Some(Claim {
                name: "sorted.ftsort".into(),
                content: content.clone(),
                bytes: size,
            }));
            let outcomes = watched_job(&world, &[], resume, &watch).unwrap();
            assert_eq!(runs_and_restarts(&outcomes), (8, 0), "{size} bytes");
            assert_eq!(survivors_of(&world, Ok(outcomes), resume), Ok(RANKS));
            let reads = watch.reads.borrow();
            let claimed = reads["sorted.ftsort"].iter();
            let read: u64 = claimed.map(|read| read.bytes).sum();
            // Each rank looks for the manifest of an earlier job.
            assert_eq!(read, (RANKS * HEAD_BYTES) as u64);
        }
    }
}

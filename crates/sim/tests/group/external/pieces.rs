//! Sorts with too little memory for two passes: runs that are merged from pieces, also by jobs with other memory, and
//! pieces that cannot be read back.

use std::io::{self, ErrorKind, Read};

use super::resumed::{damage_some_runs, jobs_of_world_ended};
use super::*;
use ftsort_core::store::directory::Files;

#[test]
fn reads_and_writes_every_byte_three_times() {
    // With five ranks every rank has one chunk, and with one rank it has six.
    for ranks in 1..6 {
        let (read, written) = multiples(&World::with_memory(143, LITTLE_MEMORY), ranks);
        assert_eq!(read, 3.0);
        // Blocks of one record have an index that is larger than they are.
        assert!((3.0..7.0).contains(&written), "{written}");
    }
}

/// Blocks of several records, which do not end where portions do.
#[test]
fn sorts_with_blocks_of_several_records() {
    for ranks in [1, 2, 4] {
        let world = World::with_memory(10_000, memory_for(130));
        let outcomes = job(&world, ranks, (1, &[]), false).unwrap();
        let runs = outcomes.iter().flatten().flatten();
        let runs: u64 = runs.map(|stats| stats.runs).sum();
        // 77 chunks would fit into memory.
        assert!(runs <= 40, "{runs}");
        assert_eq!(survivors_of(&world, Ok(outcomes), false), Ok(ranks));
        assert_eq!(world.runs(), 0);
    }
}

#[test]
fn survives_a_failure_at_every_step_of_three_passes() {
    let stride = if all_tests() { 1 } else { 3 };
    for seed in 1..3 {
        let failure = failures_at_every_step(with_little_memory, seed, stride);
        assert_eq!(failure, None);
    }
}

#[test]
fn runs_of_pieces_in_a_shared_directory_are_not_made_again() {
    for step in (1..).step_by(5) {
        let mut survivors = Vec::new();
        for rank in 0..RANKS {
            let world = World::with_shared_scratch(143);
            world.memory.set(LITTLE_MEMORY);
            let outcomes = job(&world, RANKS, (1, &[crash(rank, step)]), false);
            survivors.push(survivors_of(&world, outcomes, false));
            assert_eq!(world.runs(), 0, "{rank}@{step}");
        }
        assert!(
            survivors.iter().all(|survivors| survivors.is_ok()),
            "{step}: {survivors:?}"
        );
        if survivors.iter().all(|survivors| *survivors == Ok(RANKS)) {
            break;
        }
    }
}

/// The memory of a job, and of the jobs that resume it.
const OF_JOBS: [(usize, &[usize]); 2] = [
    // Pieces of other sizes, and chunks that fit.
    (6, &[6, 7, 11, 24, 100]),
    // Chunks that do not fit any more.
    (20, &[9, 13, 20]),
];

/// Ends jobs at all steps, and resumes them with other ranks and other memory. Returns the first error, and the number of
/// runs that the jobs resumed.
pub fn resumed_with_other_memory(seed: u64, stride: usize) -> std::result::Result<u64, String> {
    let mut found = 0;
    for (memory, others) in OF_JOBS {
        let next = Cell::new(0);
        let change_memory = |world: &World| {
            let other = others[next.get() % others.len()];
            next.set(next.get() + 1);
            world.memory.set(memory_for(other));
        };
        let (runs, _) = jobs_of_world_ended(
            &|| World::with_memory(143, memory_for(memory)),
            (seed, stride),
            &change_memory,
        )?;
        found += runs;
    }
    Ok(found)
}

#[test]
fn a_job_is_resumed_with_other_memory() {
    let stride = if all_tests() { 1 } else { 3 };
    for seed in 1..4 {
        assert!(resumed_with_other_memory(seed, stride).unwrap() > 0);
    }
}

#[test]
fn damaged_runs_of_pieces_are_made_again() {
    let salt = Cell::new(0);
    let damage = |world: &World| {
        salt.set(salt.get() + 1);
        damage_some_runs(world, salt.get());
    };
    let runs = (1..4).map(|seed| {
        let ended = jobs_of_world_ended(&with_little_memory, (seed, 7), &damage);
        ended.unwrap().0
    });
    assert!(runs.sum::<u64>() > 0);
}

#[test]
fn a_job_with_too_little_memory_does_not_resume() {
    let world = World::new(143);
    let failures = [0, 1, 2].map(|rank| crash(rank, steps(1) * 3 / 4));
    job(&world, RANKS, (1, &failures), true).unwrap();
    world.memory.set(memory_for(8));
    let outcomes = job(&world, 2, (1, &[]), true).unwrap();
    assert_eq!(statuses(&outcomes), [Some(Status::Memory); 2]);
    let error: &Error = outcomes[0].as_ref().unwrap().as_ref().unwrap_err();
    let text = "the sort to resume has 9 runs, and a rank has memory for blocks of 64 bytes in all: give it 360 bytes";
    assert_eq!(error.text, text);
    world.memory.set(360);
    let outcomes = job(&world, 2, (1, &[]), true);
    assert_eq!(survivors_of(&world, outcomes, true), Ok(2));
}

/// A defect of the scratch directory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Defect {
    /// A bit of a piece changes.
    Bit,
    /// Part of a piece is not written.
    Short,
    /// A piece cannot be read.
    Unreadable,
    /// Another user has made a file with the temporary name of the output.
    Foreign,
    /// The manifest cannot be read.
    Manifest,
    /// The names of the files of a complete output do not reach the storage.
    Names,
    /// The host does not see the manifest until it asks for changes.
    Unseen,
}

/// Part of the names of pieces.
const PIECE: &str = ".piece";

/// Part of the names of runs while they are written.
const RUN: &str = ".draft";

/// A directory in which accesses to pieces or runs go wrong, from one on.
struct Defective {
    files: InMemoryDirectory,
    defect: Defect,
    /// Part of the names of the files of which accesses go wrong.
    damaged: &'static str,
    /// The accesses before the first that goes wrong, and those that go wrong.
    left: Rc<Cell<(u32, u32)>>,
}

impl Defective {
    fn goes_wrong(&self, name: &str, is_write: bool) -> bool {
        if !name.contains(self.damaged) || is_write == (self.defect == Defect::Unreadable) {
            return false;
        }
        let (before, wrong) = self.left.get();
        let is_wrong = before == 0 && wrong > 0;
        self.left.set(if is_wrong {
            (0, wrong - 1)
        } else {
            (before.saturating_sub(1), wrong)
        });
        is_wrong
    }

    fn is_unseen(&self, name: &str) -> bool {
        self.defect == Defect::Unseen && name == "sorted.ftsort" && self.left.get().1 == 0
    }

    fn is_foreign(&self, name: &str) -> bool {
        self.defect == Defect::Foreign && name == "sorted.partial"
    }
}

impl Files for Defective {
    delegate_to_files! {
        fn another(&self) -> Box<dyn Files>;
        fn place(&self) -> String;
        fn sync(&mut self, name: &str) -> io::Result<()>;
        fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
        fn remove(&mut self, name: &str) -> io::Result<()>;
        fn list(&self) -> io::Result<Vec<String>>;
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        if self.is_foreign(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        // A change of its own shows the host all names.
        self.see_changes()?;
        self.files.write(name, parts)
    }

    fn read_at(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        if self.goes_wrong(name, false) {
            return Err(ErrorKind::Other.into());
        }
        self.files.read_at(name, at, into)
    }

    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.goes_wrong(name, true) {
            return self.files.write_at(name, at, bytes);
        }
        let mut bytes = bytes.to_vec();
        let middle = bytes.len() / 2;
        if self.defect == Defect::Bit {
            // The number of a record, and not its key.
            bytes[middle / RECORD_BYTES * RECORD_BYTES + 5] ^= 1;
        } else {
            bytes.truncate(middle);
        }
        self.files.write_at(name, at, &bytes)
    }

    fn sync_names(&mut self) -> io::Result<()> {
        if self.defect == Defect::Names && self.files.read("sorted.00001").is_ok() {
            return Err(ErrorKind::Other.into());
        }
        self.files.sync_names()
    }

    fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)> {
        if self.is_foreign(name) || (self.defect == Defect::Manifest && name == "sorted.ftsort") {
            return Err(ErrorKind::PermissionDenied.into());
        }
        if self.is_unseen(name) {
            return Err(ErrorKind::NotFound.into());
        }
        self.files.read(name)
    }

    fn see_changes(&mut self) -> io::Result<()> {
        if self.defect == Defect::Unseen {
            self.left.set((0, 1));
        }
        Ok(())
    }
}

/// Sorts while accesses of rank 1 to its files of this name go wrong: `wrong` of them after `before`. Returns the outcomes, and
/// whether all of them have gone wrong.
fn sorted_with_defects(
    world: &World,
    (defect, damaged): (Defect, &'static str),
    (before, wrong): (u32, u32),
) -> std::result::Result<(Outcomes, bool), String> {
    let left = Rc::new(Cell::new((before, wrong)));
    let of_rank = Rc::clone(&left);
    let outcomes = try_job(world, 2, (1, &[]), move |group, rank, handle, world| {
        let mut sort = sort_of(world, rank, handle, false);
        if rank == Rank(1) {
            let files = InMemoryDirectory::new(&world.scratch[1], handle, FileModel::default());
            sort.files.places.scratch[0] = Box::new(Defective {
                files,
                defect,
                damaged,
                left: Rc::clone(&of_rank),
            });
        }
        group.external_sort(sort)
    })?;
    Ok((outcomes, left.get().1 == 0))
}

/// Damages pieces, or refuses to read them, at every `stride`-th access to a piece. Returns the first error.
pub fn damaged_pieces(stride: usize) -> std::result::Result<(), String> {
    for defect in [Defect::Bit, Defect::Short, Defect::Unreadable] {
        for before in (0..).step_by(stride) {
            let world = World::with_memory(143, LITTLE_MEMORY);
            let (outcomes, has_defect) = sorted_with_defects(&world, (defect, PIECE), (before, 1))?;
            let runs = outcomes.iter().flatten().flatten().map(|stats| stats.runs);
            let runs: u64 = runs.sum();
            let name = format!("{defect:?} {before}");
            let survivors = survivors_of(&world, Ok(outcomes), false);
            let survivors = survivors.map_err(|text| format!("{name}: {text}"))?;
            let left = world.runs();
            if (survivors, runs, left) != (2, 6, 0) {
                return Err(format!(
                    "{name}: {survivors} survivors, {runs} runs, {left} files"
                ));
            }
            if !has_defect {
                assert!(before > 10, "{name}");
                break;
            }
        }
    }
    Ok(())
}

#[test]
fn damaged_pieces_are_made_again() {
    let stride = if all_tests() { 1 } else { 2 };
    assert_eq!(damaged_pieces(stride), Ok(()));
}

#[test]
fn a_directory_that_damages_all_pieces_is_an_error() {
    for defect in [Defect::Bit, Defect::Short, Defect::Unreadable] {
        let world = World::with_memory(143, LITTLE_MEMORY);
        let (outcomes, _) = sorted_with_defects(&world, (defect, PIECE), (5, u32::MAX)).unwrap();
        assert_eq!(statuses(&outcomes), [Some(Status::Store); 2]);
        let error = outcomes[1].as_ref().unwrap().as_ref().unwrap_err();
        let text = "could not be read back from the directory in 3 attempts: use another scratch directory";
        assert!(error.text.contains(text), "{error}");
        assert_eq!(world.runs(), 0);
        assert_eq!(world.output.borrow().names(), [""; 0]);
    }
}

/// A sort that made runs again without end would succeed after the last damage.
#[test]
fn a_directory_that_damages_all_runs_is_an_error() {
    for defect in [Defect::Bit, Defect::Short] {
        let world = World::new(143);
        let outcomes = sorted_with_defects(&world, (defect, RUN), (0, 1000));
        let (outcomes, _) = outcomes.expect("no hang");
        assert_eq!(statuses(&outcomes), [Some(Status::Store); 2]);
        let error = outcomes[1].as_ref().unwrap().as_ref().unwrap_err();
        let text = "runs could not be read back from the directory: use another scratch directory";
        assert!(error.text.contains(text), "{error}");
        assert_eq!(world.runs(), 0);
    }
}

/// Sorts into a directory with a defect.
fn sorted_into(world: &World, defect: Defect, resume: bool) -> Outcomes {
    let outcomes = try_job(world, 2, (1, &[]), move |group, rank, handle, world| {
        let mut sort = sort_of(world, rank, handle, resume);
        sort.files.places.output = Box::new(Defective {
            files: InMemoryDirectory::new(&world.output, handle, FileModel::default()),
            defect,
            damaged: PIECE,
            left: Rc::default(),
        });
        group.external_sort(sort)
    });
    outcomes.unwrap()
}

/// The manifest of a complete sort cannot be read in a later job. Returns whether it stays.
pub fn state_that_cannot_be_read_stays() -> bool {
    let world = World::new(143);
    assert_eq!(
        survivors_of(&world, job(&world, 2, (1, &[]), true), true),
        Ok(2)
    );
    let refused = statuses(&sorted_into(&world, Defect::Manifest, true));
    refused == [Some(Status::Store); 2] && world.check(true) == Ok(())
}

#[test]
fn a_state_that_cannot_be_read_is_an_error() {
    assert!(state_that_cannot_be_read_stays());
}

/// The files have their names, which do not reach the storage. An error unless a later job completes the output.
pub fn sorted_without_synced_names() -> std::result::Result<(), String> {
    let world = World::new(143).in_files(2);
    let outcomes = sorted_into(&world, Defect::Names, false);
    assert_eq!(statuses(&outcomes), [Some(Status::Store); 2]);
    world.check(true)?;
    let completed = job(&world, 2, (1, &[]), true);
    for stats in completed.iter().flatten().flatten().flatten() {
        assert_eq!(stats.resumed_records, 143);
    }
    assert_eq!(survivors_of(&world, completed, true), Ok(2));
    Ok(())
}

#[test]
fn files_with_a_name_are_not_removed() {
    assert_eq!(sorted_without_synced_names(), Ok(()));
}

#[test]
fn a_manifest_that_a_host_sees_late_is_found() {
    let world = World::new(143);
    let outcomes = sorted_into(&world, Defect::Unseen, false);
    assert_eq!(survivors_of(&world, Ok(outcomes), false), Ok(2));
}

#[test]
fn the_output_is_not_written_to_a_file_of_another_user() {
    let outcomes = sorted_into(&World::new(143), Defect::Foreign, true);
    assert_eq!(statuses(&outcomes), [Some(Status::Store); 2]);
    let error = outcomes[0].as_ref().unwrap().as_ref().unwrap_err();
    let text = "cannot create the directory/sorted.partial: permission denied";
    assert_eq!(error.text, text);
}

//! Outputs of several files.

use super::resumed::jobs_of_world_ended;
use super::*;

impl World {
    /// The same, with an output of so many files.
    pub fn in_files(self, parts: u64) -> World {
        self.parts.set(parts);
        self
    }
}

/// A world in which every batch has records of several files.
pub fn in_files() -> World {
    World::new(143).in_files(4)
}

#[test]
fn outputs_of_all_numbers_of_files_are_sorted() {
    for count in [0, 1, 2, 61, 143] {
        for parts in [1, 2, 3, 10, 64] {
            for resume in [false, true] {
                let world = World::new(count).in_files(parts);
                let outcomes = job(&world, RANKS, (1, &[]), resume);
                let survivors = survivors_of(&world, outcomes, resume);
                assert_eq!(survivors, Ok(RANKS), "{count} records in {parts} files");
            }
        }
    }
}

#[test]
fn several_files_survive_a_failure_at_every_step() {
    let stride = if all_tests() { 1 } else { 5 };
    assert_eq!(failures_at_every_step(in_files, 1, stride), None);
}

#[test]
fn a_job_with_several_files_is_resumed() {
    let stride = if all_tests() { 1 } else { 5 };
    for seed in 1..3 {
        let (runs, records) = jobs_of_world_ended(&in_files, (seed, stride), &|_| {}).unwrap();
        assert!(runs > 0 && records > 0, "{runs} runs, {records} records");
    }
}

/// Ends jobs, empties one file of the output, and resumes them: the sort begins again. Returns the first error.
pub fn resumed_without_a_file() -> std::result::Result<(), String> {
    let empty = |world: &World| {
        let mut output = world.output.borrow_mut();
        for name in [".00002", ".00002.partial"] {
            if let Some(content) = output.content_mut(&format!("{OUTPUT}{name}")) {
                content.clear();
            }
        }
    };
    jobs_of_world_ended(&in_files, (1, 7), &empty).map(|_| ())
}

#[test]
fn a_sort_with_a_file_that_is_too_short_begins_again() {
    assert_eq!(resumed_without_a_file(), Ok(()));
}

#[test]
fn a_sort_into_other_files_is_not_resumed() {
    let world = in_files();
    let failures = [0, 1, 2].map(|rank| crash(rank, steps(1) * 3 / 4));
    job(&world, RANKS, (1, &failures), true).unwrap();
    world.parts.set(3);
    let outcomes = job(&world, 2, (1, &[]), true).unwrap();
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 2]);
    let error: &Error = outcomes[0].as_ref().unwrap().as_ref().unwrap_err();
    let text = "3 numbered files of the output instead of 4";
    assert!(error.text.contains(text), "{error}");
    // A new sort leaves no files of the earlier one.
    let outcomes = job(&world, 2, (1, &[]), false);
    assert_eq!(survivors_of(&world, outcomes, false), Ok(2));
}

/// A source in a file beside the output with this name.
struct Beside(MemorySource, &'static str);

impl Source for Beside {
    fn bytes(&self) -> Result<u64> {
        self.0.bytes()
    }

    fn identity(&self) -> Result<u64> {
        self.0.identity()
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.0.read_at(at, into)
    }

    fn beside_output(&self, is_name: &dyn Fn(&str) -> bool) -> Option<String> {
        is_name(self.1).then(|| self.1.into())
    }
}

#[test]
fn a_source_that_is_a_file_of_the_output_is_refused() {
    for (parts, status) in [(3, Status::Argument), (1, Status::Ok)] {
        let world = World::new(20).in_files(parts);
        let outcomes = try_job(&world, RANKS, (1, &[]), |group, rank, handle, world| {
            let mut sort = sort_of(world, rank, handle, false);
            let source = MemorySource(Rc::clone(&world.source));
            sort.files.places.source = Box::new(Beside(source, "sorted.00001"));
            group.external_sort(sort)
        });
        let found = statuses(&outcomes.unwrap());
        assert_eq!(found, [Some(status); RANKS], "{parts} files");
    }
}

/// The program may write before the first record of a file also if the file has no records.
#[test]
fn a_finished_sort_is_not_repeated_for_bytes_in_an_empty_file() {
    let world = World::new(1).in_files(3);
    let outcomes = job(&world, RANKS, (1, &[]), true);
    assert_eq!(survivors_of(&world, outcomes, true), Ok(RANKS));
    let write = |files: &SharedFiles| {
        let mut files = files.borrow_mut();
        let content = files.content_mut("sorted.00000").expect("a file");
        assert!(content.is_empty());
        content.extend(*b"title");
    };
    write(&world.output);
    let outcomes = job(&world, RANKS, (1, &[]), true).unwrap();
    for outcome in &outcomes {
        let stats = outcome.as_ref().unwrap().as_ref().unwrap();
        assert_eq!((stats.batches, stats.bytes_read), (0, 0));
    }
    let output = world.output.borrow();
    assert_eq!(output.content("sorted.00000"), Some(&b"title"[..]));
}

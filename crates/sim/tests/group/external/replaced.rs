//! Files that change during a sort or differ between ranks: the manifest of another job, another source, and options that
//! are not the same on all ranks.

use super::*;
use crate::with_mutant;

/// The source of a [`World`], of which a read does something else besides.
struct Interrupted {
    source: MemorySource,
    reads: Cell<u32>,
    /// The number of the read.
    at: u32,
    act: Rc<dyn Fn()>,
    /// The same read fails.
    fails: bool,
}

impl Source for Interrupted {
    fn bytes(&self) -> Result<u64> {
        self.source.bytes()
    }

    fn identity(&self) -> Result<u64> {
        self.source.identity()
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.reads.set(self.reads.get() + 1);
        if self.reads.get() == self.at {
            (self.act)();
            if self.fails {
                return Err(Error::new(Status::Callback, "the source cannot be read"));
            }
        }
        self.source.read_at(at, into)
    }
}

const MANIFEST: &str = "sorted.ftsort";

/// Gives the manifest another writer, as another job does that has begun to write the same output.
fn replace_manifest(world: &World) {
    let mut output = world.output.borrow_mut();
    let content = output.content_mut(MANIFEST).expect("a manifest");
    let mut manifest = Manifest::decode(content).expect("a whole manifest");
    manifest.writer ^= 1;
    *content = manifest.encode();
}

/// Sorts while another job changes the files by `act`, at a read of rank 1, which may fail.
fn sorted_beside_another_job(
    world: &World,
    (resume, at, fails): (bool, u32, bool),
    act: fn(&World),
) -> Outcomes {
    let outcomes = try_job(world, RANKS, (1, &[]), move |group, rank, handle, world| {
        let mut sort = sort_of(world, rank, handle, resume);
        if rank == Rank(1) {
            let replaced = world.clone();
            sort.files.places.source = Box::new(Interrupted {
                source: MemorySource(Rc::clone(&world.source)),
                reads: Cell::new(0),
                at,
                act: Rc::new(move || act(&replaced)),
                fails,
            });
        }
        let sorted = group.external_sort(sort);
        assert_eq!(group.sort_keys(&[2, 1])?.total(), 2 * RANKS as u64);
        sorted
    });
    outcomes.expect("no hang")
}

/// Whether every rank has runs.
fn have_runs(world: &World) -> bool {
    let mut scratch = world.scratch[..RANKS].iter();
    scratch.all(|files| !files.borrow().names().is_empty())
}

/// Ranks sort while another job replaces their manifest at a read of rank 1. Returns whether they all notice it, and leave
/// the files of the other job, and the runs that it may have in common with them.
fn another_job_is_noticed(resume: bool, at: u32) -> bool {
    let world = World::new(143);
    let outcomes = sorted_beside_another_job(&world, (resume, at, false), replace_manifest);
    let errors = outcomes
        .iter()
        .flatten()
        .filter_map(|outcome| outcome.as_ref().err());
    let has_text = errors
        .clone()
        .any(|error| error.text.contains("another job has replaced"));
    let is_refused =
        has_text && errors.filter(|error| error.status == Status::Store).count() == RANKS;
    let mut names = world.output.borrow().names();
    names.sort();
    let has_files = names == [MANIFEST, "sorted.partial"];
    is_refused && has_files && have_runs(&world)
}

#[test]
fn the_output_of_another_job_is_not_written() {
    for resume in [false, true] {
        for at in 1..4 {
            assert!(another_job_is_noticed(resume, at), "read {at}");
        }
    }
    let is_noticed = with_mutant(Mutant::OtherJobIgnored, || another_job_is_noticed(false, 1));
    assert!(!is_noticed);
}

/// The writer of the manifest learns of another job only when the ranks clean up after an error.
#[test]
fn an_error_leaves_the_files_of_another_job() {
    // The other job has made its files, and not its manifest.
    let remove_manifest: fn(&World) = |world| world.output.borrow_mut().remove(MANIFEST);
    for (act, left) in [
        (
            replace_manifest as fn(&World),
            vec![MANIFEST, "sorted.partial"],
        ),
        (remove_manifest, vec!["sorted.partial"]),
    ] {
        let world = World::new(143);
        let outcomes = sorted_beside_another_job(&world, (false, 3, true), act);
        assert_eq!(statuses(&outcomes), [Some(Status::Callback); RANKS]);
        assert_eq!(world.output.borrow().names(), left);
        assert!(have_runs(&world));
    }
}

/// Sorts on ranks of which rank 1 has another directory for the output than the others.
fn sorted_in_two_directories(world: &World, other: &World, resume: bool) -> Outcomes {
    let other = other.clone();
    let outcomes = try_job(world, RANKS, (1, &[]), move |group, rank, handle, world| {
        let mut sort = sort_of(world, rank, handle, resume);
        if rank == Rank(1) {
            sort.files.places.output = other.files(rank, handle).places.output;
        }
        group.external_sort(sort)
    });
    outcomes.expect("no hang")
}

#[test]
fn a_rank_that_sees_another_directory_is_an_error() {
    for resume in [false, true] {
        let world = World::new(143);
        // The files that an earlier job has left.
        let other = World::new(143);
        let late = [0, 1, 2].map(|rank| crash(rank, steps(1) * 3 / 4));
        job(&other, RANKS, (1, &late), true).expect("no hang");
        if resume {
            // All simulated groups draw the same numbers.
            replace_manifest(&other);
        } else {
            other.output.borrow_mut().remove(MANIFEST);
        }
        let left = |world: &World| {
            let files = world.output.borrow();
            let content = |name: String| (files.content(&name).map(<[u8]>::to_vec), name);
            files.names().into_iter().map(content).collect::<Vec<_>>()
        };
        let before = left(&other);
        assert!(before.iter().any(|(_, name)| name == "sorted.partial"));
        let outcomes = sorted_in_two_directories(&world, &other, resume);
        assert_eq!(statuses(&outcomes), [Some(Status::Store); RANKS]);
        let error: &Error = outcomes[1].as_ref().unwrap().as_ref().unwrap_err();
        let text = "the directory/sorted.ftsort is not the file that this sort has written: all ranks must see the \
                    directory of the output";
        assert!(error.text.starts_with(text), "{error}");
        assert_eq!(left(&other), before);
        assert_eq!(world.output.borrow().names().is_empty(), !resume);
    }
}

/// A source with an identity that changes after its first reads.
struct Exchanged {
    source: MemorySource,
    reads: Cell<u32>,
    identities: [u64; 2],
}

impl Source for Exchanged {
    fn bytes(&self) -> Result<u64> {
        self.source.bytes()
    }

    fn identity(&self) -> Result<u64> {
        Ok(self.identities[usize::from(self.reads.get() > 0)])
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.reads.set(self.reads.get() + 1);
        self.source.read_at(at, into)
    }
}

/// Sorts on ranks of which each has a source with these identities, and returns their statuses.
fn statuses_with_identities(identities: [[u64; 2]; RANKS]) -> Vec<Option<Status>> {
    let outcomes = try_job(
        &World::new(143),
        RANKS,
        (1, &[]),
        move |group, rank, handle, world| {
            let mut sort = sort_of(world, rank, handle, false);
            sort.files.places.source = Box::new(Exchanged {
                source: MemorySource(Rc::clone(&world.source)),
                reads: Cell::new(0),
                identities: identities[rank.index()],
            });
            group.external_sort(sort)
        },
    );
    statuses(&outcomes.expect("no hang"))
}

#[test]
fn a_source_of_equal_size_is_told_from_another() {
    let same = [[1, 1]; RANKS];
    assert_eq!(statuses_with_identities(same), [Some(Status::Ok); RANKS]);
    let exchanged = [[1, 2]; RANKS];
    let found = statuses_with_identities(exchanged);
    assert_eq!(found, [Some(Status::Store); RANKS]);
    let of_one_rank = [[1, 1], [2, 2], [1, 1]];
    let found = statuses_with_identities(of_one_rank);
    assert_eq!(found, [Some(Status::Argument); RANKS]);
}

#[test]
fn resume_must_be_the_same_on_all_ranks() {
    let world = World::new(143);
    let outcomes = try_job(&world, RANKS, (1, &[]), |group, rank, handle, world| {
        group.external_sort(sort_of(world, rank, handle, rank == Rank(1)))
    });
    let found = statuses(&outcomes.expect("no hang"));
    assert_eq!(found, [Some(Status::Argument); RANKS]);
    assert!(world.output.borrow().names().is_empty());
}

/// The numbers of runs and batches of a sort on ranks with memory for so many records.
fn runs_and_batches(records: [usize; 2]) -> (u64, u64) {
    let world = World::new(143);
    let outcomes = try_job(&world, 2, (1, &[]), move |group, rank, handle, world| {
        group.external_sort(ExternalSort {
            memory_bytes: memory_for(records[rank.index()]),
            ..sort_of(world, rank, handle, false)
        })
    });
    let outcomes = outcomes.expect("no hang");
    let stats: Vec<ExternalStats> = outcomes.iter().flatten().flatten().copied().collect();
    assert_eq!(survivors_of(&world, Ok(outcomes), false), Ok(2));
    let runs = stats.iter().map(|stats| stats.runs).sum();
    (runs, stats[0].batches)
}

#[test]
fn the_smallest_memory_counts() {
    let least = runs_and_batches([20, 20]);
    assert_ne!(least, runs_and_batches([60, 60]));
    assert_eq!(least, runs_and_batches([20, 60]));
    assert_eq!(least, runs_and_batches([60, 20]));
}

/// Each rank has two directories for runs.
#[test]
fn runs_are_read_from_their_directories() {
    let world = World::new(143);
    let outcomes = try_job(&world, RANKS, (1, &[]), |group, rank, handle, world| {
        let mut sort = sort_of(world, rank, handle, false);
        // Those of the ranks that do not exist.
        let other = &world.scratch[RANKS + rank.index()];
        let other = InMemoryDirectory::new(other, handle, FileModel::default());
        sort.files.places.scratch.push(Box::new(other));
        group.external_sort(sort)
    });
    let outcomes = outcomes.expect("no hang");
    let restarts: Vec<u64> = outcomes
        .iter()
        .flatten()
        .flatten()
        .map(|stats| stats.restarts)
        .collect();
    assert_eq!(restarts, [0; RANKS]);
    assert_eq!(survivors_of(&world, Ok(outcomes), false), Ok(RANKS));
    let left = world
        .scratch
        .iter()
        .map(|files| files.borrow().names().len());
    assert_eq!(left.sum::<usize>(), 0);
}

/// Cuts and removes files that are not on the storage.
fn lose_power(world: &World) {
    let mut state = world.output.borrow().names().len() as u64;
    let mut chance = move |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % limit.max(1)
    };
    for files in world.scratch.iter().chain([&world.output]) {
        files.borrow_mut().lose_power(&mut chance);
    }
}

#[test]
fn synced_batches_survive_a_loss_of_power() {
    let stride = if all_tests() { 1 } else { 5 };
    let world = || World::new(143).synced().in_files(3);
    for seed in 1..4 {
        let (_, records) =
            resumed::jobs_of_world_ended(&world, (seed, stride), &lose_power).unwrap();
        assert!(records > 0);
    }
}

/// A job that does not sync its files ends at each of its steps. A job that syncs its files completes the
/// output, and then all hosts lose power. Returns the first error.
fn completed_with_syncs() -> Option<String> {
    for step in (1..).step_by(3) {
        let world = World::new(143).in_files(3);
        let first = job(&world, 1, (1, &[crash(0, step)]), true).expect("no hang");
        if first[0].is_some() {
            break;
        }
        let world = world.synced();
        let completed = job(&world, 1, (2, &[]), true);
        let checked = survivors_of(&world, completed, true).and_then(|_| {
            lose_power(&world);
            world.check(true)
        });
        if let Err(text) = checked {
            return Some(format!("step {step}: {text}"));
        }
    }
    None
}

#[test]
fn batches_of_a_job_without_syncs_are_synced_later() {
    assert_eq!(completed_with_syncs(), None);
}

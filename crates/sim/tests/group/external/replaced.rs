//! Files that change during a sort or differ between ranks: the manifest of another job, another source, and options that
//! are not the same on all ranks.

use std::collections::BTreeSet;
use std::io::{self, Read};

use super::*;
use crate::with_mutant;
use ftsort_core::store::directory::Files;

/// The source of a [`World`], of which a read does something else besides.
struct Interrupted {
    source: MemorySource,
    reads: Cell<u32>,
    /// The number of the read; 0: not a read, but the question for the identity after the reads.
    at: u32,
    act: Rc<dyn Fn()>,
    /// The read, or the question, fails.
    fails: bool,
}

impl Interrupted {
    fn interrupt(&self) -> Result<()> {
        (self.act)();
        if self.fails {
            return Err(Error::new(Status::Callback, "the source cannot be read"));
        }
        Ok(())
    }
}

impl Source for Interrupted {
    fn bytes(&self) -> Result<u64> {
        self.source.bytes()
    }

    fn identity(&self) -> Result<u64> {
        if self.at == 0 && self.reads.get() > 0 {
            self.interrupt()?;
        }
        self.source.identity()
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.reads.set(self.reads.get() + 1);
        if self.reads.get() == self.at {
            self.interrupt()?;
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

/// The source of this rank, of which a read does something else besides.
fn interrupted(world: &World, (at, fails): (u32, bool), act: fn(&World)) -> Box<dyn Source> {
    let replaced = world.clone();
    Box::new(Interrupted {
        source: MemorySource(Rc::clone(&world.source)),
        reads: Cell::new(0),
        at,
        act: Rc::new(move || act(&replaced)),
        fails,
    })
}

/// Sorts while another job changes the files by `act`, at a read of rank 1, which may fail.
pub fn sorted_beside_another_job(
    world: &World,
    (resume, at, fails): (bool, u32, bool),
    act: fn(&World),
) -> Outcomes {
    let outcomes = try_job(world, RANKS, (1, &[]), move |group, rank, handle, world| {
        let mut sort = sort_of(world, rank, handle, resume);
        if rank == Rank(1) {
            sort.files.places.source = interrupted(world, (at, fails), act);
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
        for at in 0..4 {
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

#[test]
fn an_error_leaves_the_runs_of_a_sort_that_may_be_resumed() {
    let world = World::new(143);
    let outcomes = sorted_beside_another_job(&world, (true, 3, true), |_| {});
    assert_eq!(statuses(&outcomes), [Some(Status::Callback); RANKS]);
    assert!(have_runs(&world));
    let resumed = job(&world, RANKS, (1, &[]), true).expect("no hang");
    let stats = resumed.iter().flatten().flatten();
    assert!(stats.map(|stats| stats.resumed_runs).sum::<u64>() > 0);
    assert_eq!(survivors_of(&world, Ok(resumed), true), Ok(RANKS));
}

/// The writer of the manifest may find another job, and fail before the others know.
#[test]
fn runs_of_another_job_are_left_after_a_failure_of_the_writer() {
    let mut left = 0;
    for step in 1.. {
        let world = World::new(143);
        let failures = [crash(0, step)];
        let program = |group: &mut SimGroup<'_>, rank, handle: &_, world: &_| {
            let mut sort = sort_of(world, rank, handle, false);
            if rank == Rank(1) {
                sort.files.places.source = interrupted(world, (3, true), |world| {
                    if world.output.borrow().content(MANIFEST).is_some() {
                        replace_manifest(world);
                    }
                });
            }
            group.external_sort(sort)
        };
        let outcomes = try_job(&world, RANKS, (1, &failures), program);
        let found = statuses(&outcomes.expect("no hang"));
        if found[1..] == [Some(Status::Callback); 2] {
            assert!(!world.scratch[1].borrow().names().is_empty(), "step {step}");
            left += 1;
        }
        if found[0].is_some() {
            break;
        }
    }
    assert!(left > 10, "{left}");
}

/// A directory in which something happens before a list, and before a file is created or renamed.
struct Watched {
    files: InMemoryDirectory,
    /// Receives the name of the file, or an empty one before a list.
    act: Rc<dyn Fn(&str)>,
}

impl Files for Watched {
    delegate_to_files! {
        fn another(&self) -> Box<dyn Files>;
        fn place(&self) -> String;
        fn read_at(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()>;
        fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()>;
        fn sync(&mut self, name: &str) -> io::Result<()>;
        fn sync_names(&mut self) -> io::Result<()>;
        fn read(&self, name: &str) -> io::Result<(u64, Box<dyn Read + '_>)>;
        fn remove(&mut self, name: &str) -> io::Result<()>;
    }

    fn write(&mut self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        (self.act)(name);
        self.files.write(name, parts)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        (self.act)(from);
        self.files.rename(from, to)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        (self.act)("");
        self.files.list()
    }
}

/// Another job writes its manifest while rank 1 removes its runs, after the ranks have looked for one.
#[test]
fn files_of_another_job_are_not_removed_behind_the_runs() {
    for (fails, status, output) in [
        (false, Status::Ok, "sorted"),
        (true, Status::Callback, "sorted.partial"),
    ] {
        let world = World::new(143);
        let outcomes = try_job(
            &world,
            RANKS,
            (1, &[]),
            move |group, rank, handle, world| {
                let mut sort = sort_of(world, rank, handle, false);
                if rank == Rank(1) {
                    let replaced = world.clone();
                    sort.files.places.source = interrupted(world, (3, fails), |_| {});
                    sort.files.places.scratch[0] = Box::new(Watched {
                        files: InMemoryDirectory::new(&world.scratch[1], handle, world.model),
                        act: Rc::new(move |name| {
                            if name.is_empty() {
                                replace_manifest(&replaced);
                            }
                        }),
                    });
                }
                group.external_sort(sort)
            },
        );
        let found = statuses(&outcomes.expect("no hang"));
        assert_eq!(found, [Some(status); RANKS]);
        let mut names = world.output.borrow().names();
        names.sort();
        let mut wanted = [MANIFEST, output];
        wanted.sort();
        assert_eq!(names, wanted);
        assert_eq!(world.runs(), 0);
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
pub fn lose_power(world: &World) {
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

/// A rank that was stopped continues after the others have declared it failed, and renames a run of which the name
/// tells only the job and the chunk.
#[test]
fn a_rank_that_continues_does_not_rename_runs_of_others() {
    let world = World::with_shared_scratch(143);
    let outcomes = try_job(&world, RANKS, (1, &[]), |group, rank, handle, world| {
        let mut sort = sort_of(world, rank, handle, false);
        let open = || InMemoryDirectory::new(&world.scratch[0], handle, world.model);
        let continued = RefCell::new(open());
        sort.files.places.scratch[0] = Box::new(Watched {
            files: open(),
            act: Rc::new(move |name| {
                if let Some((run, _)) = name.split_once(".draft") {
                    let _ = continued.borrow_mut().rename(&format!("{run}.draft"), run);
                }
            }),
        });
        group.external_sort(sort)
    });
    assert_eq!(survivors_of(&world, outcomes, false), Ok(RANKS));
}

/// Ranks and jobs make the same runs and pieces, one after the other.
#[test]
fn temporary_files_of_runs_have_different_names() {
    let late = steps(1) * 3 / 4;
    let ended = [0, 1, 2].map(|rank| crash(rank, late));
    for failures in [&ended[1..2], &ended] {
        let world = World::with_memory(143, LITTLE_MEMORY);
        let names = Rc::new(RefCell::new(BTreeSet::new()));
        for (number, failures) in [failures, &[]].into_iter().enumerate() {
            let names = Rc::clone(&names);
            let program = move |group: &mut SimGroup<'_>, rank: Rank, handle: &_, world: &World| {
                // All simulated groups draw the same numbers.
                (0..number).try_for_each(|_| group.sort_keys(&[2, 1]).map(drop))?;
                let mut sort = sort_of(world, rank, handle, true);
                let names = Rc::clone(&names);
                let act = move |name: &str| {
                    if !name.is_empty() {
                        names.borrow_mut().insert((name.to_string(), number, rank));
                    }
                };
                sort.files.places.scratch[0] = Box::new(Watched {
                    files: InMemoryDirectory::new(
                        &world.scratch[rank.index()],
                        handle,
                        world.model,
                    ),
                    act: Rc::new(act),
                });
                group.external_sort(sort)
            };
            try_job(&world, RANKS, (1, failures), program).expect("no hang");
            // The runs of the next job are made again.
            for files in &world.scratch {
                files.take();
            }
        }
        let names = names.take();
        let different: BTreeSet<&str> = names.iter().map(|(name, ..)| &name[..]).collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
        let is_same = |kind| {
            let of_kind = different.iter().filter(|name| name.contains(kind));
            let made: Vec<&str> = of_kind.filter_map(|name| name.split(kind).next()).collect();
            made.len() > made.iter().collect::<BTreeSet<_>>().len()
        };
        assert!(is_same(".draft") && is_same(".piece0"), "{names:?}");
    }
}

/// Another program removes the temporary file of the output before it gets its name, and an earlier output has this
/// name. A later job begins anew.
#[test]
fn an_earlier_output_is_not_taken_for_one_that_is_missing() {
    for resume in [false, true] {
        let world = World::new(143);
        let earlier = job(&world, RANKS, (1, &[]), false);
        assert_eq!(survivors_of(&world, earlier, false), Ok(RANKS));
        world.source.borrow_mut().reverse();
        let outcomes = try_job(
            &world,
            RANKS,
            (1, &[]),
            move |group, rank, handle, world| {
                let mut sort = sort_of(world, rank, handle, resume);
                let removed = world.clone();
                sort.files.places.output = Box::new(Watched {
                    files: InMemoryDirectory::new(&world.output, handle, world.model),
                    act: Rc::new(move |name| {
                        if name == "sorted.partial" {
                            removed.output.borrow_mut().remove(name);
                        }
                    }),
                });
                group.external_sort(sort)
            },
        );
        let outcomes = outcomes.expect("no hang");
        assert_eq!(statuses(&outcomes), [Some(Status::Store); RANKS]);
        let error: &Error = outcomes[0].as_ref().unwrap().as_ref().unwrap_err();
        let text = "cannot rename the directory/sorted.partial: ";
        assert!(error.text.starts_with(text), "{error}");
        let outcomes = job(&world, RANKS, (1, &[]), true);
        assert_eq!(survivors_of(&world, outcomes, true), Ok(RANKS));
        assert_eq!(world.runs(), 0);
    }
}

//! External sorts on simulated ranks: failures of ranks and of the whole job at any step, resumed jobs, damaged and refused
//! files, and the mutants of their code.

/// Implements functions of [`Files`](ftsort_core::store::directory::Files) by those of the member `files`.
macro_rules! delegate_to_files {
    () => {};
    (fn $name:ident(&mut $self:ident $(, $argument:ident: $kind:ty)*) -> $result:ty; $($rest:tt)*) => {
        fn $name(&mut $self $(, $argument: $kind)*) -> $result {
            $self.files.$name($($argument),*)
        }
        delegate_to_files! { $($rest)* }
    };
    (fn $name:ident(&$self:ident $(, $argument:ident: $kind:ty)*) -> $result:ty; $($rest:tt)*) => {
        fn $name(&$self $(, $argument: $kind)*) -> $result {
            $self.files.$name($($argument),*)
        }
        delegate_to_files! { $($rest)* }
    };
}

mod hosts;
mod indexes;
mod memory;
mod parts;
mod pieces;
mod random;
mod refused;
mod replaced;
mod resumed;

use std::cell::Cell;

use super::*;
use ftsort_core::external::manifest::Manifest;
use ftsort_core::external::places::{ExternalFiles, Places, Source};
use ftsort_core::group::{ExternalSort, ExternalStats};
use ftsort_kernels::checksum::Checksum;
use ftsort_kernels::memory::MemoryBudget;

const RANKS: usize = 3;

const RECORD_BYTES: usize = 8;

/// A chunk has 20 records.
const MEMORY: usize = memory_for(20);

/// A piece has 6 records, which is too little for two passes over more than 36 records.
const LITTLE_MEMORY: usize = memory_for(6);

/// The memory with which a rank can sort so many records at once.
const fn memory_for(records: usize) -> usize {
    records * RECORD_BYTES * 5
}

const OUTPUT: &str = "sorted";

/// The position of the first record in the output.
const OUTPUT_OFFSET: u64 = 5;

/// The files that jobs leave to each other.
#[derive(Clone)]
struct World {
    source: Rc<RefCell<Vec<u8>>>,
    output: SharedFiles,
    /// A local directory for each rank.
    scratch: Vec<SharedFiles>,
    /// The memory of each rank of the next job.
    memory: Cell<usize>,
    /// The number of files of the output of the next job; 0: one without a number.
    parts: Cell<u64>,
    model: FileModel,
}

/// Records with many equal keys, and numbers that tell them apart.
fn records(count: usize) -> Vec<u8> {
    let record = |index: u32| {
        let key = (index.wrapping_mul(7919) >> 3) % 17;
        [key.to_ne_bytes(), index.to_ne_bytes()].concat()
    };
    (0..count as u32).flat_map(record).collect()
}

impl World {
    fn new(count: usize) -> World {
        World {
            source: Rc::new(RefCell::new(records(count))),
            output: SharedFiles::default(),
            scratch: (0..8).map(|_| SharedFiles::default()).collect(),
            memory: Cell::new(MEMORY),
            parts: Cell::new(0),
            model: FileModel::default(),
        }
    }

    /// The same files, which the ranks sync.
    fn synced(self) -> World {
        let model = FileModel {
            damage: false,
            power: false,
            sync: true,
        };
        World { model, ..self }
    }

    /// Files of jobs with other memory.
    fn with_memory(count: usize, memory: usize) -> World {
        let world = World::new(count);
        world.memory.set(memory);
        world
    }

    /// Files with one scratch directory, which all ranks see.
    fn with_shared_scratch(count: usize) -> World {
        let mut world = World::new(count);
        world.scratch.fill(SharedFiles::default());
        world
    }

    fn files(&self, rank: Rank, handle: &RankHandle) -> ExternalFiles {
        let open =
            |shared: &SharedFiles| Box::new(InMemoryDirectory::new(shared, handle, self.model));
        ExternalFiles::at_once(Places {
            source: Box::new(MemorySource(Rc::clone(&self.source))),
            scratch: vec![open(&self.scratch[rank.index()])],
            output: open(&self.output),
        })
    }

    /// The names of the files of the output.
    fn output_names(&self) -> Vec<String> {
        match self.parts.get() {
            0 => vec![OUTPUT.into()],
            parts => (0..parts)
                .map(|part| format!("{OUTPUT}.{part:05}"))
                .collect(),
        }
    }

    /// An error unless the output is the sorted source, in files with equal numbers of records, and there is no other file.
    fn check(&self, resume: bool) -> std::result::Result<(), String> {
        let output = self.output.borrow();
        let mut wanted = self.output_names();
        if resume {
            wanted.push(format!("{OUTPUT}.ftsort"));
        }
        let mut names = output.names();
        wanted.sort();
        names.sort();
        if names != wanted {
            return Err(format!("files {names:?}"));
        }
        let mut found = Vec::new();
        let (files, all) = (
            self.output_names(),
            self.source.borrow().len() / RECORD_BYTES,
        );
        for (part, name) in files.iter().enumerate() {
            let content = output.content(name).expect("a file of the output");
            let (before, content) = content.split_at((OUTPUT_OFFSET as usize).min(content.len()));
            if before.iter().any(|byte| *byte != 0) {
                return Err(format!("{before:?} before the first record of {name}"));
            }
            let share = (part + 1) * all / files.len() - part * all / files.len();
            if content.len() != share * RECORD_BYTES {
                return Err(format!(
                    "{name} has {} bytes instead of {share} records",
                    content.len()
                ));
            }
            found.extend_from_slice(content);
        }
        let order = |bytes: &[u8]| {
            let records = bytes.chunks_exact(RECORD_BYTES);
            let mut records: Vec<(u32, u32)> = records.map(numbers).collect();
            let keys: Vec<u32> = records.iter().map(|(key, _)| *key).collect();
            records.sort_unstable();
            (keys, records)
        };
        let (keys, found) = order(&found);
        let (_, expected) = order(&self.source.borrow());
        if found != expected {
            return Err(format!("{found:?} instead of {expected:?}"));
        }
        if !keys.is_sorted() {
            return Err(format!("not in order: {keys:?}"));
        }
        Ok(())
    }

    fn runs(&self) -> usize {
        let names = self
            .scratch
            .iter()
            .take(RANKS)
            .map(|files| files.borrow().names());
        names.map(|names| names.len()).sum()
    }
}

fn numbers(record: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().unwrap());
    (number(0), number(4))
}

struct MemorySource(Rc<RefCell<Vec<u8>>>);

impl Source for MemorySource {
    fn bytes(&self) -> Result<u64> {
        Ok(self.0.borrow().len() as u64)
    }

    fn identity(&self) -> Result<u64> {
        Ok(1)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        into.copy_from_slice(&self.0.borrow()[at as usize..][..into.len()]);
        Ok(())
    }
}

fn layout() -> Layout {
    layout_of(RECORD_BYTES)
}

fn layout_of(record_bytes: usize) -> Layout {
    let fields = Fields {
        record_bytes,
        key: KeyKind::U32 as i32,
        ..Fields::default()
    };
    Layout::new(fields).expect("a layout")
}

fn sort_of(world: &World, rank: Rank, handle: &RankHandle, resume: bool) -> ExternalSort {
    ExternalSort {
        layout: layout(),
        files: world.files(rank, handle),
        output: OUTPUT.into(),
        output_offset: OUTPUT_OFFSET,
        output_parts: world.parts.get(),
        memory_bytes: world.memory.get(),
        resume,
    }
}

type Outcomes = Vec<Option<Result<ExternalStats>>>;

/// Runs one job. An error if it hangs.
fn try_job(
    world: &World,
    ranks: usize,
    run: (u64, &[Failure]),
    program: impl Fn(&mut SimGroup<'_>, Rank, &RankHandle, &World) -> Result<ExternalStats> + 'static,
) -> std::result::Result<Outcomes, String> {
    let world = world.clone();
    try_play(ranks, run, move |rank, mpi, handle| {
        let mut group = Group::new(transport(mpi), GroupConfig::default(), services(rank))?;
        program(&mut group, rank, &handle, &world)
    })
}

fn job(
    world: &World,
    ranks: usize,
    run: (u64, &[Failure]),
    resume: bool,
) -> std::result::Result<Outcomes, String> {
    try_job(world, ranks, run, move |group, rank, handle, world| {
        group.external_sort(sort_of(world, rank, handle, resume))
    })
}

/// The number of survivors of a run in which all survivors succeed and the output is right; otherwise the reason.
fn survivors_of(
    world: &World,
    outcomes: std::result::Result<Outcomes, String>,
    resume: bool,
) -> std::result::Result<usize, String> {
    let found: Vec<Status> = statuses(&outcomes?).into_iter().flatten().collect();
    if found.iter().any(|status| *status != Status::Ok) {
        return Err(format!("statuses {found:?}"));
    }
    if !found.is_empty() {
        world.check(resume)?;
    }
    Ok(found.len())
}

#[test]
fn sorts_sources_of_all_sizes() {
    for (count, seed) in [0, 1, 19, 20, 61, 143].into_iter().zip(SEEDS) {
        for ranks in 1..6 {
            for resume in [false, true] {
                for memory in [MEMORY, LITTLE_MEMORY] {
                    let world = World::with_memory(count, memory);
                    let outcomes = job(&world, ranks, (seed, &[]), resume).unwrap();
                    for outcome in &outcomes {
                        let stats = outcome.as_ref().unwrap().as_ref().unwrap();
                        assert_eq!((stats.records, stats.restarts), (count as u64, 0));
                    }
                    let survivors = survivors_of(&world, Ok(outcomes), resume);
                    assert_eq!(survivors, Ok(ranks), "{count} records");
                    assert_eq!(world.runs(), 0);
                }
            }
        }
    }
}

/// Rank 2 is excluded as slow, and another rank may fail.
#[test]
fn sorts_while_a_rank_is_excluded() {
    for memory in [MEMORY, LITTLE_MEMORY] {
        for (seed, step) in SEEDS.zip([0, 40, 160, 320]) {
            let failures = [crash(0, step)];
            let failures = &failures[..usize::from(step > 0)];
            let world = World::with_memory(143, memory);
            let program = |group: &mut SimGroup<'_>, rank, handle: &_, world: &_| {
                super::exclusions::start_monitor(group)?;
                group.external_sort(sort_of(world, rank, handle, false))
            };
            let outcomes = try_job(&world, RANKS, (seed, failures), program);
            let survivors = survivors_of(&world, outcomes, false);
            assert_eq!(
                survivors,
                Ok(RANKS - failures.len()),
                "failures {failures:?}"
            );
        }
    }
}

/// The bytes that all ranks read and write, in multiples of the source.
fn multiples(world: &World, ranks: usize) -> (f64, f64) {
    let outcomes = job(world, ranks, (1, &[]), false).unwrap();
    let stats = outcomes.iter().flatten().flatten();
    let (read, written) = stats.fold((0, 0), |(read, written), stats| {
        (read + stats.bytes_read, written + stats.bytes_written)
    });
    let bytes = world.source.borrow().len() as f64;
    (read as f64 / bytes, written as f64 / bytes)
}

/// Every rank reads each byte of the source, and of the runs, once on average.
#[test]
fn reads_and_writes_every_byte_twice() {
    let (read, written) = multiples(&World::new(380), 4);
    assert_eq!(read, 2.0);
    // Blocks of one record have an index that is larger than they are.
    assert!((2.0..6.0).contains(&written));
}

fn with_much_memory() -> World {
    World::new(143)
}

fn with_little_memory() -> World {
    World::with_memory(143, LITTLE_MEMORY)
}

/// Lets each rank fail at each of its steps. Returns the first error.
fn failures_at_every_step(world: fn() -> World, seed: u64, stride: usize) -> Option<String> {
    for rank in 0..RANKS {
        for step in (1..).step_by(stride) {
            let world = world();
            let outcomes = job(&world, RANKS, (seed, &[crash(rank, step)]), false);
            match survivors_of(&world, outcomes, false) {
                Ok(RANKS) => break,
                Ok(_) => {}
                Err(text) => return Some(format!("seed {seed} failures {rank}@{step}: {text}")),
            }
        }
    }
    None
}

#[test]
fn survives_a_failure_at_every_step() {
    let stride = if all_tests() { 1 } else { 3 };
    for seed in 1..3 {
        assert_eq!(failures_at_every_step(with_much_memory, seed, stride), None);
    }
}

/// The survivors see the runs of a rank that failed, and do not make them again.
#[test]
fn runs_in_a_shared_directory_are_not_made_again() {
    let late = steps(1) * 3 / 4;
    let runs_of_survivors = |world: World| {
        let outcomes = job(&world, RANKS, (1, &[crash(1, late)]), false).unwrap();
        let stats = outcomes.iter().flatten().flatten();
        let runs = stats.map(|stats| stats.runs).sum::<u64>();
        assert_eq!(survivors_of(&world, Ok(outcomes), false), Ok(RANKS - 1));
        assert_eq!(world.runs(), 0);
        runs
    };
    // Of eight chunks, rank 1 had three.
    assert_eq!(runs_of_survivors(World::with_shared_scratch(143)), 5);
    let local = World::new(143);
    let with_local = job(&local, RANKS, (1, &[crash(1, late)]), false).unwrap();
    let runs = with_local
        .iter()
        .flatten()
        .flatten()
        .map(|stats| stats.runs);
    assert_eq!(runs.sum::<u64>(), 8);
    for step in (1..steps(1)).step_by(7) {
        for rank in 0..RANKS {
            let world = World::with_shared_scratch(143);
            let outcomes = job(&world, RANKS, (1, &[crash(rank, step)]), false);
            let survivors = survivors_of(&world, outcomes, false);
            assert!(survivors.is_ok(), "{rank}@{step}: {survivors:?}");
        }
    }
}

/// A rank fails while it makes its three runs: those that it has made are not made again.
#[test]
fn runs_in_a_shared_directory_outlive_a_failure_while_runs_are_made() {
    let mut made = std::collections::BTreeSet::new();
    for step in (1..).step_by(3) {
        let world = World::with_shared_scratch(143);
        let outcomes = job(&world, RANKS, (1, &[crash(1, step)]), false).unwrap();
        if outcomes.iter().all(Option::is_some) {
            break;
        }
        let stats = outcomes.iter().flatten().flatten();
        made.insert(stats.map(|stats| stats.runs).sum::<u64>());
        let survivors = survivors_of(&world, Ok(outcomes), false);
        assert_eq!(survivors, Ok(RANKS - 1), "{step}");
    }
    // Of eight chunks the survivors make those without a run, and all after a failure at the beginning.
    assert!(made.contains(&7) && made.last() == Some(&8), "{made:?}");
}

/// The number of steps of a rank without failures.
fn steps(rank: usize) -> u32 {
    let is_over = |step: &u32| {
        let world = World::new(143);
        let outcomes = job(&world, RANKS, (1, &[crash(rank, *step)]), false);
        survivors_of(&world, outcomes, false) == Ok(RANKS)
    };
    (1..).step_by(20).find(is_over).expect("a sort ends")
}

#[test]
fn survives_pairs_of_failures() {
    let most = steps(1);
    let (stride, other_stride) = if all_tests() { (5, 11) } else { (31, 67) };
    for one in (1..most).step_by(stride) {
        for other in (1 + one % 7..2 * most).step_by(other_stride) {
            for (first, second) in [(0, 1), (1, 2), (2, 0)] {
                let failures = [crash(first, one), crash(second, other)];
                let world = World::new(143);
                let outcomes = job(&world, RANKS, (1, &failures), false);
                let survivors = survivors_of(&world, outcomes, false);
                assert!(
                    survivors.is_ok(),
                    "{first}@{one} {second}@{other}: {survivors:?}"
                );
            }
        }
    }
}

/// The source changes, and then a rank fails: its chunks are read again. Returns whether the survivors notice.
fn a_changed_source_is_noticed(step: u32) -> bool {
    let world = World::new(143);
    let outcomes = try_job(
        &world,
        RANKS,
        (1, &[crash(1, step)]),
        |group, rank, handle, world| {
            struct Changing(MemorySource, RefCell<u32>, u32);
            impl Source for Changing {
                fn bytes(&self) -> Result<u64> {
                    self.0.bytes()
                }
                fn identity(&self) -> Result<u64> {
                    self.0.identity()
                }
                fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
                    self.0.read_at(at, into)?;
                    *self.1.borrow_mut() += 1;
                    // The chunks of this rank alone are read as they were.
                    if *self.1.borrow() > self.2 {
                        into[0] ^= 1;
                    }
                    Ok(())
                }
            }
            let mut sort = sort_of(world, rank, handle, false);
            let own = MemorySource(Rc::clone(&world.source));
            sort.files.places.source = Box::new(Changing(own, RefCell::new(0), 3));
            group.external_sort(sort)
        },
    );
    let found = statuses(&outcomes.unwrap());
    found[0] == Some(Status::Store) && found[0] == found[2]
}

#[test]
fn a_source_that_changes_is_an_error() {
    assert!(a_changed_source_is_noticed(steps(1) * 5 / 8));
}

/// The mutants of external sorts, and the test that detects each.
#[test]
fn every_mutant_of_an_external_sort_is_detected() {
    let detected: [(Mutant, Detects); 15] = [
        (Mutant::ActionOfFailedRank, || {
            failures_at_every_step(resumed::with_a_longer_output, 1, 1).is_some()
        }),
        (Mutant::RunsOfSparesUsed, || {
            (0..100).any(|seed| random::play_jobs(seed).is_some())
        }),
        (Mutant::BatchOfFailedRankCommitted, || {
            (1..9).any(|seed| failures_at_every_step(with_much_memory, seed, 1).is_some())
        }),
        (Mutant::ManifestBeforeCommit, || {
            (1..9).any(|seed| resumed::jobs_ended_at_every_step(seed, 1, &|_| {}).is_err())
        }),
        (Mutant::DamagedRunUsed, || {
            (1..9).any(|seed| {
                resumed::jobs_ended_at_every_step(seed, 7, &resumed::damage_runs).is_err()
            })
        }),
        (Mutant::DamagedIndexIgnored, || {
            indexes::runs_with_damaged_indexes_are_made_again().is_err()
        }),
        (Mutant::DamagedPieceUsed, || {
            pieces::damaged_pieces(1).is_err()
        }),
        (Mutant::PortionsCutAsRuns, || {
            (1..9).any(|seed| failures_at_every_step(with_little_memory, seed, 1).is_some())
        }),
        (Mutant::PiecesMergedBackwards, || {
            (1..9).any(|seed| pieces::resumed_with_other_memory(seed, 1).is_err())
        }),
        (Mutant::RunOfLaterBatchUsed, || {
            resumed::resumed_with_an_older_manifest().is_some()
        }),
        (Mutant::NamedFileEndsNaming, || {
            (1..9).any(|seed| failures_at_every_step(parts::in_files, seed, 1).is_some())
        }),
        (Mutant::NamedFilesRemoved, || {
            pieces::sorted_without_synced_names().is_err()
        }),
        (Mutant::UnreadableStateIgnored, || {
            !pieces::state_that_cannot_be_read_stays()
        }),
        (Mutant::FirstFileOnlyFound, || {
            parts::resumed_without_a_file().is_err()
        }),
        (Mutant::ChangedSourceAccepted, || {
            !a_changed_source_is_noticed(steps(1) * 5 / 8)
        }),
    ];
    assert_detected(&detected);
}

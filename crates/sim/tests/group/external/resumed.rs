//! Jobs that end at any step, and jobs that resume them, also after runs or the manifest were damaged.

use std::sync::OnceLock;

use super::replaced::{lose_power, sorted_beside_another_job};
use super::*;
use crate::with_mutant;

/// Ends a job at a step of every rank, lets `between` change the files, and resumes it with other ranks. Returns the
/// figures of the second job, or an error.
fn ended_and_resumed(
    world: World,
    (seed, step, ranks): (u64, u32, usize),
    between: &dyn Fn(&World),
) -> std::result::Result<Option<ExternalStats>, String> {
    let failures: Vec<Failure> = (0..RANKS)
        .map(|rank| crash(rank, step + (11 * seed as u32 * rank as u32) % 37))
        .collect();
    let outcomes = job(&world, RANKS, (seed, &failures), true)?;
    let has_ended = outcomes.iter().any(Option::is_some);
    between(&world);
    let outcomes = job(&world, ranks, (seed + 1, &[]), true)?;
    let stats = outcomes.iter().flatten().flatten().copied().next();
    survivors_of(&world, Ok(outcomes), true)?;
    // Only the ranks of this job see their directories.
    for (rank, files) in world.scratch.iter().enumerate().take(ranks) {
        let left = files.borrow().names();
        if !left.is_empty() {
            return Err(format!("rank {rank} has left {left:?}"));
        }
    }
    // A finished sort is not repeated, and needs no memory.
    world.memory.set(memory_for(1));
    let again = job(&world, 1, (seed, &[]), true)?;
    let again_stats = again.iter().flatten().flatten().copied().next();
    survivors_of(&world, Ok(again), true)?;
    if again_stats.is_none_or(|stats| stats.runs + stats.batches + stats.bytes_read > 0) {
        return Err(format!("a finished sort was repeated: {again_stats:?}"));
    }
    Ok(stats.filter(|_| !has_ended))
}

/// Ends jobs at all steps. Returns the first error, and the numbers of runs and records that the jobs resumed.
pub fn jobs_ended_at_every_step(
    seed: u64,
    stride: usize,
    between: &dyn Fn(&World),
) -> std::result::Result<(u64, u64), String> {
    jobs_of_world_ended(&with_much_memory, (seed, stride), between)
}

/// As [`jobs_ended_at_every_step`], of jobs that begin with these files.
pub fn jobs_of_world_ended(
    world: &dyn Fn() -> World,
    (seed, stride): (u64, usize),
    between: &dyn Fn(&World),
) -> std::result::Result<(u64, u64), String> {
    let (mut runs, mut records) = (0, 0);
    for step in (1..).step_by(stride) {
        let ranks = [3, 2, 4, 1][step as usize % 4];
        let resumed = ended_and_resumed(world(), (seed, step, ranks), between);
        match resumed.map_err(|text| format!("seed {seed} step {step} ranks {ranks}: {text}"))? {
            None => break,
            Some(stats) => {
                runs += stats.resumed_runs;
                records += stats.resumed_records;
            }
        }
    }
    Ok((runs, records))
}

#[test]
fn a_job_that_ended_at_any_step_is_resumed() {
    let stride = if all_tests() { 1 } else { 3 };
    for seed in 1..4 {
        let (runs, records) = jobs_ended_at_every_step(seed, stride, &|_| {}).unwrap();
        assert!(runs > 0 && records > 0, "{runs} runs, {records} records");
    }
}

/// A source that is shorter than the output of a job that ended while it wrote.
pub fn with_a_longer_output() -> World {
    static LATE: OnceLock<u32> = OnceLock::new();
    let ended_at = |step: u32| {
        let world = World::new(143);
        let failures: Vec<Failure> = (0..RANKS).map(|rank| crash(rank, step)).collect();
        job(&world, RANKS, (1, &failures), false).expect("no hang");
        world
    };
    let has_a_long_output = |world: &World| {
        let files = world.output.borrow();
        let left = files.content("sorted.partial").map(<[u8]>::len);
        left.is_some_and(|left| left > 60 * RECORD_BYTES)
    };
    let late = LATE.get_or_init(|| {
        let mut steps = (1..=steps(0)).rev();
        let late = steps.find(|step| has_a_long_output(&ended_at(*step)));
        late.expect("a job that ends while it writes")
    });
    let world = ended_at(*late);
    assert!(has_a_long_output(&world));
    *world.source.borrow_mut() = records(40);
    world
}

#[test]
fn no_record_of_a_longer_output_is_left() {
    let stride = if all_tests() { 1 } else { 3 };
    assert_eq!(
        failures_at_every_step(with_a_longer_output, 1, stride),
        None
    );
}

/// Changes a bit of every other run.
pub fn damage_runs(world: &World) {
    damage_some_runs(world, 0);
}

/// As [`damage_runs`], of other runs and other bits for another `salt`.
pub fn damage_some_runs(world: &World, salt: usize) {
    for (number, files) in world.scratch.iter().enumerate() {
        let mut files = files.borrow_mut();
        for name in files.names() {
            let random =
                (Checksum::of(name.as_bytes()) as usize).wrapping_add(number + 7919 * salt);
            let content = files.content_mut(&name).expect("a file of the list");
            if random.is_multiple_of(2) && !content.is_empty() {
                let at = random / 2 % content.len();
                content[at] ^= 1 << (random % 8);
            }
        }
    }
}

#[test]
fn damaged_runs_are_made_again() {
    for seed in 1..4 {
        let (runs, _) = jobs_ended_at_every_step(seed, 7, &damage_runs).unwrap();
        assert!(runs > 0);
    }
}

/// The manifest of a job of which all ranks end at a step, if it names a batch.
fn manifest_after_a_batch(step: u32) -> Option<Vec<u8>> {
    let world = World::new(360);
    let failures: Vec<Failure> = (0..RANKS).map(|rank| crash(rank, step)).collect();
    job(&world, RANKS, (1, &failures), true).expect("no hang");
    let output = world.output.borrow();
    let content = output.content("sorted.ftsort")?;
    let has_batch = Manifest::decode(content).is_some_and(|manifest| manifest.done > 0);
    has_batch.then(|| content.to_vec())
}

/// A job finds an older manifest than that of the last batch, after a loss of power; some runs were made without the
/// records of batches that are not in it. Returns the first error.
pub fn resumed_with_an_older_manifest() -> Option<String> {
    let most = steps(1);
    let (step, manifest) = (most / 3..2 * most)
        .find_map(|step| Some((step, manifest_after_a_batch(step)?)))
        .expect("a batch is committed before the end");
    let mut resumed = 0;
    // The jobs are the same until a rank fails.
    for failed in (step + 1..4 * most).step_by(23) {
        for end in (failed..5 * most).step_by(37) {
            let world = World::new(360);
            let failures = [crash(1, failed), crash(0, end), crash(2, end)];
            let ended = job(&world, RANKS, (1, &failures), true);
            if ended.is_ok_and(|outcomes| outcomes.iter().any(Option::is_some)) {
                break;
            }
            resumed += 1;
            // The host of the rank that failed is lost.
            world.scratch[1].take();
            if let Some(content) = world.output.borrow_mut().content_mut("sorted.ftsort") {
                content.clone_from(&manifest);
            }
            let outcomes = job(&world, RANKS, (2, &[]), true);
            if let Err(text) = survivors_of(&world, outcomes, true) {
                return Some(format!("failed {failed} end {end}: {text}"));
            }
        }
    }
    assert!(resumed > 20, "{resumed}");
    None
}

#[test]
fn runs_without_records_of_later_batches_are_made_again() {
    assert_eq!(resumed_with_an_older_manifest(), None);
}

/// A job may end when all records are in the output, before the output has its name.
#[test]
fn a_written_output_needs_no_memory_for_its_name() {
    let mut resumed = 0;
    for step in 1.. {
        let world = World::new(143);
        let outcomes = job(&world, 1, (1, &[crash(0, step)]), true).expect("no hang");
        if outcomes[0].is_some() {
            break;
        }
        let output = world.output.borrow();
        let manifest = output.content("sorted.ftsort").and_then(Manifest::decode);
        drop(output);
        if manifest.is_some_and(|manifest| manifest.is_written() && !manifest.is_finished) {
            resumed += 1;
            world.memory.set(memory_for(1));
            let outcomes = job(&world, 2, (2, &[]), true);
            assert_eq!(survivors_of(&world, outcomes, true), Ok(2), "step {step}");
        }
    }
    assert!(resumed > 0);
}

/// The state of a sort of larger records is longer than that of a sort of smaller ones.
#[test]
fn a_sort_of_larger_records_is_not_resumed() {
    let world = World::with_memory(144, memory_for(60));
    let larger = |group: &mut SimGroup<'_>, rank, handle: &_, world: &_| {
        group.external_sort(ExternalSort {
            layout: layout_of(4 * RECORD_BYTES),
            ..sort_of(world, rank, handle, true)
        })
    };
    let outcomes = try_job(&world, RANKS, (1, &[]), larger).unwrap();
    assert_eq!(statuses(&outcomes), [Some(Status::Ok); RANKS]);
    let files = || {
        let files = world.output.borrow();
        let content = |name: String| files.content(&name).map(<[u8]>::to_vec);
        files.names().into_iter().map(content).collect::<Vec<_>>()
    };
    let before = files();
    let outcomes = job(&world, 2, (1, &[]), true).unwrap();
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 2]);
    let error: &Error = outcomes[0].as_ref().unwrap().as_ref().unwrap_err();
    assert!(
        error.text.contains("records of 8 bytes instead of 32"),
        "{error}"
    );
    assert_eq!(files(), before);
}

#[test]
fn another_sort_is_not_resumed() {
    let world = World::new(143);
    let failures = [0, 1, 2].map(|rank| crash(rank, steps(1) * 3 / 4));
    job(&world, RANKS, (1, &failures), true).unwrap();
    *world.source.borrow_mut() = records(142);
    let outcomes = job(&world, 2, (1, &[]), true).unwrap();
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 2]);
    let error: &Error = outcomes[0].as_ref().unwrap().as_ref().unwrap_err();
    assert!(
        error
            .text
            .contains("a source of 1136 bytes instead of 1144"),
        "{error}"
    );
    // A new sort takes its place.
    let outcomes = job(&world, 2, (1, &[]), false);
    assert_eq!(survivors_of(&world, outcomes, false), Ok(2));
}

/// The steps of two ranks before the end of a job, one pair after the other.
fn last_steps() -> Vec<[Failure; 2]> {
    let last = |rank| {
        let survives = |step: &u32| {
            let ended = job(&World::new(61), 2, (1, &[crash(rank, *step)]), false).unwrap();
            ended[rank].is_some()
        };
        (1..).find(survives).expect("the job ends")
    };
    let (one, other) = (last(0), last(1));
    let pairs = (1..20).flat_map(|back| (1..20).map(move |other_back| (back, other_back)));
    let failures = |(back, other_back)| [crash(0, one - back), crash(1, other - other_back)];
    pairs.map(failures).collect()
}

/// Removes the output of a job that has ended, and sorts anew. Returns the runs that are left.
fn runs_left_without_output(resume: bool) -> usize {
    let world = World::new(143);
    let failures = [0, 1, 2].map(|rank| crash(rank, steps(1) * 3 / 4));
    job(&world, RANKS, (1, &failures), true).unwrap();
    assert!(world.runs() > 0);
    world.output.borrow_mut().remove("sorted.partial");
    let outcomes = try_job(
        &world,
        RANKS,
        (1, &[]),
        move |group, rank, handle, world| {
            // So that this job has another number.
            group.sort_keys(&[2, 1])?;
            group.external_sort(sort_of(world, rank, handle, resume))
        },
    );
    assert_eq!(survivors_of(&world, outcomes, resume), Ok(RANKS));
    world.runs()
}

#[test]
fn runs_of_a_job_without_its_output_are_removed() {
    for resume in [false, true] {
        assert_eq!(runs_left_without_output(resume), 0, "resume: {resume}");
    }
}

/// A job without `resume` ends at one of its last steps. Returns whether a manifest is left where runs are, so that a later
/// job removes them.
fn runs_that_are_left_are_known() -> bool {
    last_steps().into_iter().all(|failures| {
        let world = World::new(61);
        let ended = job(&world, 2, (1, &failures), false).unwrap();
        let has_manifest = || {
            world
                .output
                .borrow()
                .names()
                .contains(&"sorted.ftsort".into())
        };
        ended.iter().any(Option::is_some) || world.runs() == 0 || has_manifest()
    })
}

#[test]
fn a_manifest_is_left_as_long_as_runs_are() {
    assert!(runs_that_are_left_are_known());
    let are_known = with_mutant(
        Mutant::ManifestRemovedBeforeRuns,
        runs_that_are_left_are_known,
    );
    assert!(!are_known);
}

/// A sort ends with an error behind its last batch, and then all hosts lose power: the later job finds all runs.
#[test]
fn synced_runs_survive_a_loss_of_power() {
    let world = World::new(143).synced();
    let outcomes = sorted_beside_another_job(&world, (true, 0, true), |_| {});
    assert_eq!(statuses(&outcomes), [Some(Status::Callback); RANKS]);
    assert_eq!(world.runs(), 8);
    lose_power(&world);
    let resumed = job(&world, RANKS, (1, &[]), true).expect("no hang");
    let stats = resumed.iter().flatten().flatten();
    assert_eq!(stats.map(|stats| stats.resumed_runs).sum::<u64>(), 8);
    assert_eq!(survivors_of(&world, Ok(resumed), true), Ok(RANKS));
}

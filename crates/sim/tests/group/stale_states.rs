//! States with a name, in a group with a rank that was declared failed but runs on: it changes nothing that the survivors
//! have written.

use std::cell::Cell;

use super::named::{MANIFEST, RANKS, World, finished_world, put};
use super::*;
use ftsort_core::store::directory::Files;
use ftsort_core::store::named::StatesManifest;

/// A group that only the manifest of the survivors names.
const MARK: u64 = 99;

/// Whether a rank leaves a manifest that the survivors have written without it. It commits states, or discards them.
fn later_manifest_is_left(discards: bool) -> bool {
    let world = finished_world();
    let outcomes = world.job(RANKS, (1, &[]), move |rank, group, world| {
        assert!(group.open_states("loop")?);
        if rank == Rank(0) {
            let mut files = world.files.borrow_mut();
            let content = files.content_mut(MANIFEST).expect("a manifest");
            let found = StatesManifest::decode(content).expect("it is intact");
            let later = StatesManifest {
                change: found.change + 3,
                left: vec![MARK],
                ..found
            };
            *content = later.encode();
        }
        group.agree(1)?;
        if discards {
            return group.clear_states();
        }
        put(group, 1)?;
        group.commit_states(true).map(drop)
    });
    let Ok(outcomes) = outcomes else { return false };
    let files = world.files.borrow();
    let left = files.content(MANIFEST).and_then(StatesManifest::decode);
    let is_left = left.is_some_and(|manifest| manifest.left == [MARK]);
    is_left && statuses(&outcomes) == [Some(Status::Store); RANKS]
}

#[test]
fn a_rank_that_is_behind_leaves_the_manifest_of_the_survivors() {
    for discards in [false, true] {
        assert!(later_manifest_is_left(discards));
        let is_left = with_mutant(Mutant::LaterChangeIgnored, || {
            later_manifest_is_left(discards)
        });
        assert!(!is_left);
    }
}

/// Opens states, of which another job removes the manifest, and commits or discards others. Returns the status of each rank,
/// and whether there is a manifest in the end.
fn commit_without_manifest(discards: bool) -> (Vec<Option<Status>>, bool) {
    let world = finished_world();
    let outcomes = world.job(RANKS, (1, &[]), move |rank, group, world| {
        assert!(group.open_states("loop")?);
        if rank == Rank(0) {
            world.files.borrow_mut().remove(MANIFEST);
        }
        group.agree(1)?;
        put(group, 1)?;
        if discards {
            return group.clear_states();
        }
        group.commit_states(true).map(drop)
    });
    let is_written = world.names().iter().any(|name| name == MANIFEST);
    (statuses(&outcomes.expect("no rank hangs")), is_written)
}

#[test]
fn a_manifest_that_another_job_has_removed_is_not_written_again() {
    let refused = (vec![Some(Status::Store); RANKS], false);
    for discards in [false, true] {
        assert_eq!(commit_without_manifest(discards), refused);
    }
    let is_detected = || commit_without_manifest(false) != refused;
    assert!(with_mutant(Mutant::RemovedManifestWritten, is_detected));
}

/// Commits states after others were discarded, while rank 0, which removes the manifest, fails at one of its steps. With this
/// seed it fails at a step when the others do not know yet that they may remove it. Returns the status of each rank.
fn commit_after_clear(step: u32) -> Vec<Option<Status>> {
    let world = finished_world();
    let outcomes = world.job(RANKS, (29, &[crash(0, step)]), |_, group, _| {
        assert!(group.open_states("loop")?);
        group.clear_states()?;
        put(group, 1)?;
        while !group.commit_states(true)? {
            put(group, 1)?;
        }
        Ok(())
    });
    assert!(world.names().iter().any(|name| name == MANIFEST));
    statuses(&outcomes.expect("no rank hangs"))
}

#[test]
fn states_are_committed_after_others_were_discarded() {
    let fine = Some(Status::Ok);
    let last = (1..)
        .map(commit_after_clear)
        .find(|found| *found != [None, fine, fine]);
    assert_eq!(last, Some(vec![fine; RANKS]));
}

/// Opens states of which rank 1 finds the manifest in another directory than its files.
fn open_with_two_manifests(world: &World, other: &World) -> Vec<Option<Result<bool>>> {
    let worlds = [world.clone(), other.clone()];
    let outcomes = try_play(RANKS, (1, &[]), move |rank, mpi, handle| {
        let is_created = Rc::new(Cell::new(false));
        let after_creation = Rc::clone(&is_created);
        let (worlds, owner) = (worlds.clone(), handle.clone());
        let open = move || -> Box<dyn Files> {
            let world = &worlds[usize::from(after_creation.get())];
            Box::new(InMemoryDirectory::new(&world.files, &owner, world.model))
        };
        let config = GroupConfig {
            store: StoreChoice::Directory(Rc::new(open)),
            ..GroupConfig::default()
        };
        let services = Services {
            nonce: 9000 + u64::from(rank.0),
            ..services(rank)
        };
        let mut group = Group::new(transport(mpi), config, services)?;
        is_created.set(rank == Rank(1));
        group.open_states("loop")
    });
    outcomes.expect("no rank hangs")
}

#[test]
fn a_manifest_that_differs_between_ranks_is_an_error() {
    let (world, other) = (finished_world(), World::default());
    let stored = other.job(RANKS, (1, &[]), |_, group, _| {
        group.open_states("loop")?;
        put(group, 1)?;
        group.commit_states(true)
    });
    assert_eq!(
        stored.unwrap(),
        [Some(Ok(true)), Some(Ok(true)), Some(Ok(true))]
    );
    let outcomes = open_with_two_manifests(&world, &other);
    assert_eq!(statuses(&outcomes), [Some(Status::Store); RANKS]);
    let error = outcomes[1].as_ref().unwrap().as_ref().unwrap_err();
    let text = "ftsort-loop.states is not the same on all ranks";
    assert!(error.text.contains(text), "{error}");
    // The states are left to a later job.
    assert_eq!(world.continued(RANKS, (2, &[])), Ok(RANKS));
}

/// Each rank is reported as failed at every `stride`-th of its steps, and goes on for a while. Returns the first error of
/// a job that continues the states.
fn reports_at_every_step(seed: u64, stride: usize) -> Option<String> {
    for rank in 0..RANKS {
        for step in (1..).step_by(stride) {
            let reported = Failure {
                mode: FailureMode::EarlyReport,
                ..crash(rank, step)
            };
            let world = World::default();
            let survivors = world.continued(RANKS, (seed, &[reported]));
            let continued = survivors.and_then(|survivors| {
                let all = world.continued(RANKS, (seed + 1, &[]))?;
                Ok(survivors < all)
            });
            match continued {
                Ok(true) => {}
                Ok(false) => break,
                Err(text) => return Some(format!("seed {seed}, {reported}: {text}")),
            }
        }
    }
    None
}

#[test]
fn a_rank_that_is_reported_as_failed_too_early_changes_no_states() {
    let (seeds, stride) = sized_search((8, 3), (20, 1), (40, 1));
    for seed in 1..=seeds {
        assert_eq!(reports_at_every_step(seed, stride), None);
    }
}

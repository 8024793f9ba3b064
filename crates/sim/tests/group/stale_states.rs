//! States with a name, in a group with a rank that was declared failed but runs on: it changes nothing that the survivors
//! have written.

use super::named::{MANIFEST, RANKS, World, finished_world, put};
use super::*;
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
    let (seeds, stride) = if all_tests() { (1..40, 1) } else { (1..9, 3) };
    for seed in seeds {
        assert_eq!(reports_at_every_step(seed, stride), None);
    }
}

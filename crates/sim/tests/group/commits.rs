//! Commits of states of the caller's own loop that are refused or interrupted, and agreements on numbers.

use super::named::World;
use super::*;
use ftsort_core::engine::StatesCommit;

/// Commits states after one rank has refused the first commit. Returns whether the states are the new ones.
fn committed_after_a_refusal(seed: u64) -> bool {
    let outcomes = play_group(3, seed, GroupConfig::default(), "", |rank, group| {
        let node = rank.home();
        group.put_state(node, &[1])?;
        assert!(group.commit_states(true)?);
        group.put_state(node, &[2])?;
        let arguments = match rank {
            Rank(1) => Err(Error::new(Status::Argument, "committed is NULL")),
            _ => Ok(()),
        };
        let refused = group.commit_states_checked(true, arguments);
        let status = refused.map_or_else(|error| error.status, |_| Status::Ok);
        let expected = match rank {
            Rank(1) => Status::Argument,
            _ => Status::PeerArgument,
        };
        assert_eq!(status, expected);
        assert!(group.commit_states(true)?);
        Ok(group.state(node)? == Some(&[2]))
    });
    outcomes.into_iter().flatten().all(|right| right.unwrap())
}

#[test]
fn states_stay_put_after_a_refused_commit() {
    assert!(SEEDS.into_iter().all(committed_after_a_refusal));
    let mutant = Mutant::StatesOfRefusedCommitDiscarded;
    assert!(!with_mutant(mutant, || committed_after_a_refusal(1)));
}

/// Runs a program on three ranks, of which two fail, the first one at every step. Returns the first outcome of a survivor that
/// is not right.
fn first_wrong<R: std::fmt::Debug + 'static>(
    seed: u64,
    spread: u32,
    program: impl Fn(Rank, &mut SimGroup<'_>) -> Result<R> + Copy + 'static,
    is_right: impl Fn(&R) -> bool,
) -> Option<String> {
    for step in 1.. {
        let failures = [crash(0, step), crash(2, step + spread)];
        let world = World::default();
        let job = world.job(3, (seed, &failures), move |rank, group, _| {
            program(rank, group)
        });
        let outcomes = job.unwrap_or_else(|text| panic!("{failures:?}: {text}"));
        if outcomes.iter().all(Option::is_some) {
            break;
        }
        for outcome in outcomes.into_iter().flatten() {
            let outcome = outcome.unwrap_or_else(|error| panic!("{failures:?}: {error}"));
            if !is_right(&outcome) {
                return Some(format!("{failures:?}: {outcome:?}"));
            }
        }
    }
    None
}

/// A rank that fails contributes 0, and all others contribute ones.
fn first_half_number(seed: u64) -> Option<String> {
    let agree = |rank: Rank, group: &mut SimGroup<'_>| {
        let (agreed, _) = group.agree(if rank == Rank(0) { 0 } else { u32::MAX })?;
        Ok(agreed)
    };
    first_wrong(seed, 1000, agree, |agreed| [0, u32::MAX].contains(agreed))
}

#[test]
fn a_number_counts_whole_or_not_at_all() {
    let found = || SEEDS.into_iter().find_map(first_half_number);
    assert_eq!(found(), None);
    assert!(with_mutant(Mutant::HalfNumbersAgreed, found).is_some());
}

/// Two ranks fail at every step, the second one perhaps while the states of the first one move.
#[test]
fn fault_checks_count_each_failure_once() {
    let check = |rank: Rank, group: &mut SimGroup<'_>| {
        group.put_state(rank.home(), &[rank.0 as u8])?;
        let mut known = group.members().faulty().len();
        if !group.commit_states(true)? {
            known = group.members().faulty().len();
        }
        let mut counts = Vec::new();
        for _ in 0..3 {
            // A state may be lost with its two copies.
            let found = match group.fault_check() {
                Err(error) if error.status == Status::DataLost => {
                    group.members().faulty().len() - known
                }
                found => found?,
            };
            known += found;
            counts.push((known, group.members().faulty().len()));
        }
        Ok(counts)
    };
    for spread in [1, 3, 5, 8, 12, 20] {
        let wrong = first_wrong(1, spread, check, |counts| {
            counts.iter().all(|(counted, failed)| counted == failed)
        });
        assert_eq!(wrong, None, "spread {spread}");
    }
}

/// A rank fails in the commit of states with a name, and some actions of the other ranks are refused meanwhile. Returns
/// whether an error followed a commit; an error for states that are not those of the outcome.
fn committed_with_refusals(step: u32, action: u32) -> std::result::Result<bool, String> {
    let world = World::default();
    let job = world.job(3, (1, &[crash(2, step)]), move |rank, group, world| {
        group.open_states("loop")?;
        for node in group.members().my_nodes() {
            group.put_state(node, &[1])?;
        }
        if !group.commit_states(true)? {
            return Ok((true, false));
        }
        for node in group.members().my_nodes() {
            group.put_state(node, &[2])?;
        }
        group.agree(1)?;
        let known = group.members().faulty().len();
        if rank == Rank(0) {
            let now = world.budget.actions();
            world.budget.refuse(now + action..now + action + 3);
        }
        let commit = group.commit_states_checked(true, Ok(()));
        // The rank that has failed leaves the refusals to the others.
        if commit
            .as_ref()
            .is_err_and(|error| error.status.sets_apart())
        {
            return commit?.into_result().map(|_| (true, false));
        }
        world.budget.refuse(0..0);
        let (is_committed, has_error) = match &commit {
            Ok(StatesCommit {
                is_committed,
                moved,
            }) => (*is_committed, moved.is_err()),
            Err(_) => (false, false),
        };
        let has_failure = group.members().faulty().len() > known;
        group.fault_check()?;
        let expected = if is_committed { 2 } else { 1 };
        let mut nodes = group.members().my_nodes().into_iter();
        let is_right = nodes.all(|node| group.state(node).ok().flatten() == Some(&[expected]));
        Ok((is_right, is_committed && has_error && has_failure))
    });
    let mut found = false;
    for outcome in job?.into_iter().flatten() {
        let (is_right, after) = outcome.map_err(|error| error.to_string())?;
        if !is_right {
            return Err(format!("step {step} action {action}"));
        }
        found |= after;
    }
    Ok(found)
}

/// Returns the first wrong outcome, and whether an error followed a commit. The steps are those around the agreement on
/// the manifest.
fn first_wrong_commit() -> (Option<String>, bool) {
    let mut found = false;
    for step in if all_tests() { 60..120 } else { 84..94 } {
        for action in 0..40 {
            match committed_with_refusals(step, action) {
                Ok(one) => found |= one,
                Err(text) => return (Some(text), found),
            }
        }
    }
    (None, found)
}

#[test]
fn an_error_after_the_commit_of_states_does_not_hide_it() {
    assert_eq!(first_wrong_commit(), (None, true));
    let (wrong, _) = with_mutant(Mutant::ErrorAfterCommitEndsIt, first_wrong_commit);
    assert!(wrong.is_some());
}

/// Ranks 3 and 2 of four fail in the commit of states with a name, in a group that needs three ranks. Returns the
/// number of ranks that the commit separates, which cannot use their group any more.
fn separated_in_commit(step: u32, spread: u32) -> usize {
    let world = World::default();
    let failures = [crash(3, step), crash(2, step + spread)];
    let outcomes = try_play(4, (1, &failures), move |rank, mpi, handle| {
        let config = GroupConfig {
            min_survivors: 3,
            ..world.config(&handle)
        };
        let mut group = Group::new(transport(mpi), config, services(rank))?;
        group.open_states("loop")?;
        for node in group.members().my_nodes() {
            group.put_state(node, &[1])?;
        }
        let committed = group.commit_states(true);
        let is_apart = committed.is_err_and(|error| error.status.sets_apart());
        assert!(
            !is_apart || group.check_poison().is_err(),
            "step {step}+{spread}"
        );
        Result::Ok(is_apart)
    });
    let outcomes = outcomes.expect("no rank waits").into_iter();
    let apart = outcomes.flatten().flatten();
    apart.filter(|is_apart| *is_apart).count()
}

/// The second rank may fail while states move after the manifest was written. The steps are those around the agreement
/// on it.
#[test]
fn a_rank_that_is_separated_in_a_commit_cannot_use_its_group() {
    let steps = (50..85).flat_map(|step| (1..30).step_by(3).map(move |spread| (step, spread)));
    let found: usize = steps
        .map(|(step, spread)| separated_in_commit(step, spread))
        .sum();
    assert!(found > 0);
}

//! Inputs that are loaded again or copied again after ranks have failed or were excluded.

use std::cell::Cell;

use super::exclusions::start_monitor;
use super::redundancy::fail_in;
use super::refusals::limited;
use super::*;
use ftsort_kernels::memory::MemoryBudget;

/// A configuration without copies.
fn reloaded() -> GroupConfig {
    GroupConfig {
        store: StoreChoice::Memory(0),
        failures: Plan::parse("1@10").expect("a failure schedule"),
        ..GroupConfig::default()
    }
}

/// Rank 1 fails with its protected input, and the others update theirs, while the callback gives wrong bytes for rank 1.
/// Returns the statuses of the update.
fn updates_with_a_wrong_input() -> Vec<Option<Status>> {
    let outcomes = try_play(3, (1, &[]), |rank, mpi, _| {
        let services = Services {
            reload: Some(Box::new(|rank: Rank| {
                let mut keys = keys(rank);
                keys[0] ^= 1;
                Buffer::copy_of(bytemuck::cast_slice(&keys))
            })),
            ..services(rank)
        };
        let mut group = Group::new(transport(mpi), reloaded(), services)?;
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        fail_in(&mut group, 10, 1)?;
        group.update(&mut input, bytemuck::cast_slice(&[rank.0, 7]))
    });
    statuses(&outcomes.expect("no rank hangs"))
}

#[test]
fn an_input_that_stays_in_an_update_is_compared_with_its_hash() {
    let refused = [Some(Status::Callback), None, Some(Status::Callback)];
    assert_eq!(updates_with_a_wrong_input(), refused);
    let found = with_mutant(
        Mutant::UnchangedInputsNotVerified,
        updates_with_a_wrong_input,
    );
    assert_ne!(found, refused);
}

/// Rank 1 fails before an update, and rank 0, which has loaded its input again, after it. Then the callback gives wrong bytes
/// for rank 1. Returns the statuses of a sort.
fn sorts_a_wrong_input_after_an_update() -> Vec<Option<Status>> {
    let outcomes = try_play(4, (1, &[]), |rank, mpi, _| {
        let is_wrong = Rc::new(Cell::new(false));
        let wrong = Rc::clone(&is_wrong);
        let services = Services {
            reload: Some(Box::new(move |rank: Rank| {
                let mut keys = keys(rank);
                keys[0] ^= i32::from(wrong.get());
                match rank {
                    Rank(1) => Buffer::copy_of(bytemuck::cast_slice(&keys)),
                    updated => Buffer::copy_of(bytemuck::cast_slice(&[updated.0, 7])),
                }
            })),
            ..services(rank)
        };
        let config = GroupConfig {
            failures: Plan::parse("1@10 0@11")?,
            ..reloaded()
        };
        let mut group = Group::new(transport(mpi), config, services)?;
        let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
        fail_in(&mut group, 10, 1)?;
        group.update(&mut input, bytemuck::cast_slice(&[rank.0, 7]))?;
        fail_in(&mut group, 11, 0)?;
        is_wrong.set(true);
        group.sort_protected(&mut input, None)
    });
    statuses(&outcomes.expect("no rank hangs"))
}

#[test]
fn an_input_that_stayed_in_an_update_is_compared_with_its_hash_later() {
    let refused = Some(Status::Callback);
    assert_eq!(
        sorts_a_wrong_input_after_an_update(),
        [None, None, refused, refused]
    );
}

/// Rank 1 fails at each of its steps in an argsort of an odd number of long keys, and rank 0 fails after it. Returns the
/// number of results that were recovered; None: an input was refused.
fn positions_recovered_from_reloaded_inputs() -> Option<usize> {
    let input = |rank: Rank| -> Vec<u64> { (0..7 + 2 * u64::from(rank.0)).collect() };
    let mut recovered = 0;
    for step in 1.. {
        let outcomes = try_play(4, (1, &[crash(1, step)]), move |rank, mpi, _| {
            let config = GroupConfig {
                failures: Plan::parse("0@20").expect("a failure schedule"),
                ..reloaded()
            };
            let services = Services {
                reload: Some(Box::new(move |rank: Rank| {
                    Buffer::copy_of(bytemuck::cast_slice(&input(rank)))
                })),
                ..services(rank)
            };
            let mut group = Group::new(transport(mpi), config, services)?;
            let mut sorted = group.argsort(SortInput::of_keys(&input(rank)))?;
            group.inject(20)?;
            group.recover(&mut sorted)
        });
        let found = statuses(&outcomes.expect("no rank hangs"));
        match found[2..] {
            _ if found[1].is_some() => break,
            [Some(Status::Ok), Some(Status::Ok)] => recovered += 1,
            // The number of records of the failed rank is not known yet.
            [Some(Status::DataLost), Some(Status::DataLost)] => {}
            [Some(Status::Callback), Some(Status::Callback)] => return None,
            _ => panic!("step {step}: {found:?}"),
        }
    }
    Some(recovered)
}

#[test]
fn inputs_of_positions_are_whole_records() {
    let recovered = positions_recovered_from_reloaded_inputs();
    assert!(
        recovered.is_some_and(|recovered| recovered > 10),
        "{recovered:?}"
    );
    let found = with_mutant(
        Mutant::InputsOfColumnWidth,
        positions_recovered_from_reloaded_inputs,
    );
    assert_eq!(found, None);
}

const RANKS: usize = 8;

/// The number of records of each rank.
const MANY: usize = 20_000;

/// Sorts a protected input while rank 2 is excluded. Returns the bytes that all ranks send, and those that they have in memory
/// after it.
fn sort_with_an_excluded_rank() -> (u64, usize) {
    let budget = MemoryBudget::default();
    let shared = budget.clone();
    let outcomes = try_play(RANKS, (1, &[]), move |rank, mpi, _| {
        let services = limited(rank, &shared);
        let mut group = Group::new(transport(mpi), GroupConfig::default(), services)?;
        let many: Vec<i32> = keys(rank).into_iter().cycle().take(MANY).collect();
        let mut input = group.protect(SortInput::of_keys(&many))?;
        start_monitor(&mut group)?;
        // This sort finds that rank 2 is slow.
        group.sort_keys(&keys(rank))?;
        drop(group.sort_protected(&mut input, None)?);
        let sent = group.stats().bytes_sent;
        group.agree(1)?;
        let used = shared.used();
        group.agree(1)?;
        Ok::<_, Error>((sent, used))
    });
    let outcomes = outcomes.expect("no rank hangs").into_iter().flatten();
    let found: Vec<(u64, usize)> = outcomes.map(|found| found.expect("a result")).collect();
    (found.iter().map(|(sent, _)| sent).sum(), found[0].1)
}

/// The input of the excluded rank and the copies that it held move to other ranks. All other copies stay.
#[test]
fn copies_stay_in_their_places_while_a_rank_is_excluded() {
    let (sent, used) = sort_with_an_excluded_rank();
    let input = MANY * size_of::<i32>();
    let (more_sent, _) = with_mutant(Mutant::MovedCopiesSentAgain, sort_with_an_excluded_rank);
    assert!(more_sent > sent + input as u64, "{more_sent} {sent}");
    let (_, more_used) = with_mutant(Mutant::MovedCopiesKept, sort_with_an_excluded_rank);
    assert!(more_used >= used + input, "{more_used} {used}");
}

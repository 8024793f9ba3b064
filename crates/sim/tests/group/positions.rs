//! Positions of records in the sorted order, and the first records of equal keys, by bitonic sorts.

use std::cell::Cell;

use super::exclusions::start_monitor;
use super::redundancy::fail_in;
use super::*;
use ftsort_core::query::groups::Aggregate;

type Query = fn(&mut SimGroup<'_>, SortInput<'_>) -> Result<Sorted>;

const ARGSORT: Query = |group, input| group.argsort(input);
const POSITIONS: Query = |group, input| group.positions(input);
const GROUPS: Query = |group, input| group.group_by(input, &[Aggregate::COUNT]);

/// A bitonic merge does not keep the order of equal keys, on which these results depend.
#[test]
fn a_bitonic_merge_gives_no_positions() {
    for query in [ARGSORT, POSITIONS, GROUPS] {
        let config = GroupConfig {
            method: Some(Method::Bitonic(Shape::Bitonic)),
            ..GroupConfig::default()
        };
        let outcomes = play_group(4, 1, config, "", move |rank, group| {
            let key = [1, 1, 0, 2][rank.index()];
            let refused = refusal(query(group, SortInput::of_keys(&[key])))?;
            assert!(refused.text.contains("FTSORT_BITONIC_MERGE"), "{refused}");
            group.sort_keys(&[key])?;
            Err::<(), _>(refused)
        });
        assert_eq!(statuses(&outcomes), [Some(Status::Argument); 4]);
    }
}

/// Lets rank 1 fail at each of its steps in a call with inputs that can be reloaded. Returns a step at which data are lost,
/// although they were not at an earlier one: then all ranks know how many records each of them has.
fn lost_after_counts(query: Query, seed: u64) -> Option<u32> {
    let mut has_succeeded = false;
    for step in 1.. {
        let outcomes = try_play(3, (seed, &[crash(1, step)]), move |rank, mpi, _| {
            let config = GroupConfig {
                store: StoreChoice::Memory(0),
                method: Some(Method::Bitonic(Shape::Any)),
                ..GroupConfig::default()
            };
            let mut group = Group::new(transport(mpi), config, reloading(rank))?;
            let total = query(&mut group, SortInput::of_keys(&keys(rank)))?.total();
            Result::Ok((total, group.members().is_faulty(Rank(1))))
        });
        let outcomes = outcomes.expect("no rank hangs");
        if outcomes[1].is_some() {
            break;
        }
        match outcomes[0].as_ref().expect("rank 0 survives") {
            Ok((300, is_known)) => has_succeeded |= is_known,
            Err(error) if error.status == Status::DataLost => {
                if has_succeeded {
                    return Some(step);
                }
            }
            // Rank 1 failed before the call.
            Ok((200, true)) if !has_succeeded => {}
            outcome => panic!("step {step}: {outcome:?}"),
        }
    }
    assert!(has_succeeded);
    None
}

/// Without copies the blocks of a bitonic sort cannot be made again, but all can be sorted again.
#[test]
fn positions_are_computed_again_from_reloaded_inputs() {
    for query in [ARGSORT, POSITIONS] {
        for seed in SEEDS.take(3) {
            assert_eq!(lost_after_counts(query, seed), None);
        }
    }
    let is_lost = with_mutant(Mutant::StepsNotRepeated, || {
        SEEDS
            .into_iter()
            .any(|seed| lost_after_counts(POSITIONS, seed).is_some())
    });
    assert!(is_lost);
}

/// Recovers positions that were made before rank 2 became slow, after a failure of rank 1. Returns whether the positions of
/// the survivors stay.
fn positions_stay(seed: u64) -> bool {
    let outcomes = play_group(4, seed, GroupConfig::default(), "1@10", |rank, group| {
        let mut sorted = group.positions(SortInput::of_keys(&keys(rank)))?;
        let made = parts(&sorted);
        start_monitor(group)?;
        fail_in(group, 10, 1)?;
        group.recover(&mut sorted)?;
        let now = parts(&sorted);
        Ok((made.iter().all(|part| now.contains(part)), now))
    });
    let outcomes: Vec<_> = survivors(outcomes).collect();
    let records = |(_, parts): &(bool, Blocks)| -> usize {
        parts.iter().map(|(_, positions)| positions.len()).sum()
    };
    // A position has the size of two keys.
    assert_eq!(outcomes.iter().map(records).sum::<usize>(), 2 * 400);
    outcomes.iter().all(|(stay, _)| *stay)
}

#[test]
fn positions_of_survivors_stay() {
    for seed in SEEDS.take(8) {
        assert!(positions_stay(seed), "seed {seed}");
    }
    let stay = with_mutant(Mutant::PositionsMoved, || positions_stay(1));
    assert!(!stay);
}

/// The number of rounds in a recovery of positions without a failure.
fn rounds_of_a_recovery() -> usize {
    struct Counted(Rc<Cell<usize>>);
    impl Observer for Counted {
        fn event(&mut self, occasion: Occasion) {
            let is_round = matches!(occasion.event, Event::Round);
            self.0.set(self.0.get() + usize::from(is_round));
        }
    }
    impl GroupObserver for Counted {}
    let outcomes = play(3, 1, |rank, transport, _| {
        let rounds = Rc::new(Cell::new(0));
        let services = Services {
            observer: Box::new(Counted(Rc::clone(&rounds))),
            ..services(rank)
        };
        let mut group = Group::new(transport, GroupConfig::default(), services)?;
        let mut sorted = group.positions(SortInput::of_keys(&keys(rank)))?;
        let before = rounds.get();
        group.recover(&mut sorted)?;
        Ok(rounds.get() - before)
    });
    survivors(outcomes).sum()
}

#[test]
fn a_recovery_without_failures_exchanges_no_positions() {
    assert_eq!(rounds_of_a_recovery(), 0);
    let rounds = with_mutant(Mutant::PositionsSentAgain, rounds_of_a_recovery);
    assert!(rounds > 0);
}

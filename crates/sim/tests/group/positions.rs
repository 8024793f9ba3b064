//! Positions of records in the sorted order, and the first records of equal keys, by bitonic sorts.

use std::cell::Cell;

use super::exclusions::{start_monitor, start_monitor_with};
use super::redundancy::{fail_in, is_repeated_after_refusals, whole};
use super::*;
use ftsort_core::group::Clocks;
use ftsort_core::query::groups::Aggregate;

/// Makes a result of one input.
pub type Query = fn(&mut SimGroup<'_>, SortInput<'_>) -> Result<Sorted>;

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

/// The blocks of the sort are recovered before the positions are exchanged again, which needs memory too.
#[test]
fn a_recovery_of_positions_is_repeated_after_a_refusal() {
    assert!(is_repeated_after_refusals(POSITIONS, size_of::<u64>()));
}

/// The position of each record of four ranks in the sorted order, as numbers of half its size.
fn all_positions() -> Vec<i32> {
    let keys: Vec<i32> = Rank::all(4).flat_map(keys).collect();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|place| keys[*place]);
    let mut positions = vec![0_u64; keys.len()];
    for (position, place) in (0..).zip(order) {
        positions[place] = position;
    }
    bytemuck::cast_slice(&positions).to_vec()
}

/// The clocks of a rank that changes its speed once.
struct ClocksOfOneChange {
    is_slow: Cell<bool>,
    /// The number of readings before the change.
    left: Cell<u32>,
    used: Cell<f64>,
}

impl Clocks for ClocksOfOneChange {
    fn processor_seconds(&self) -> f64 {
        let left = self.left.get();
        self.is_slow.set(self.is_slow.get() != (left == 0));
        self.left.set(left.wrapping_sub(1));
        let more = if self.is_slow.get() { 0.0 } else { 1e9 };
        self.used.set(self.used.get() + more);
        self.used.get()
    }

    fn seconds(&self) -> f64 {
        0.0
    }
}

/// The change of rank 2 from slow to fast, or from fast to slow, at a reading of its clocks.
#[derive(Clone, Copy, Debug)]
struct SpeedChange {
    starts_slow: bool,
    reading: u32,
}

/// A change at each reading of the clocks in a computation of positions.
fn speed_changes() -> impl Iterator<Item = SpeedChange> {
    let change = |starts_slow| {
        move |reading| SpeedChange {
            starts_slow,
            reading,
        }
    };
    let starts = [false, true].into_iter();
    starts.flat_map(move |starts_slow| (1..7).map(change(starts_slow)))
}

/// Computes positions while rank 2 changes its speed: the sort and the exchange of positions may have different executors.
fn positions_with(group: &mut SimGroup<'_>, change: SpeedChange) -> Result<Sorted> {
    let me = group.members().me();
    let changes = me == Rank(2);
    let clocks = ClocksOfOneChange {
        is_slow: Cell::new(changes && change.starts_slow),
        left: Cell::new(if changes { change.reading } else { u32::MAX }),
        used: Cell::new(0.0),
    };
    start_monitor_with(group, Box::new(clocks), 1)?;
    let sorted = group.positions(SortInput::of_keys(&keys(me)))?;
    group.stop_monitor()?;
    Ok(sorted)
}

/// Notes whether a rank is excluded or rejoins after the last round of the first job.
struct ChangesBetweenJobs {
    is_between: bool,
    found: Rc<Cell<bool>>,
}

impl Observer for ChangesBetweenJobs {
    fn event(&mut self, occasion: Occasion) {
        match occasion.event {
            Event::Round => self.is_between |= occasion.round + 1 == occasion.rounds,
            Event::Excluded(_) | Event::Rejoined(_) if self.is_between => self.found.set(true),
            _ => {}
        }
    }
}

impl GroupObserver for ChangesBetweenJobs {}

/// Gathers positions that were made while rank 2 changed its speed, and recovers them after a failure of rank 1.
/// `recovers_at_once`: recovers them before, too. Returns whether the exchange had other executors than the sort.
fn executors_differ(change: SpeedChange, recovers_at_once: bool) -> bool {
    let found = Rc::new(Cell::new(false));
    let noted = Rc::clone(&found);
    let outcomes = play(4, 1, move |rank, transport, _| {
        let config = GroupConfig {
            failures: Plan::parse("1@10")?,
            ..GroupConfig::default()
        };
        let observer = ChangesBetweenJobs {
            is_between: false,
            found: Rc::clone(&noted),
        };
        let services = Services {
            observer: Box::new(observer),
            ..services(rank)
        };
        let mut group = Group::new(transport, config, services)?;
        let mut sorted = positions_with(&mut group, change)?;
        let made = parts(&sorted);
        if recovers_at_once {
            group.recover(&mut sorted)?;
        }
        let before = whole(&mut group, &mut sorted)?;
        fail_in(&mut group, 10, 1)?;
        group.recover(&mut sorted)?;
        let now = parts(&sorted);
        assert!(made.iter().all(|part| now.contains(part)), "{change:?}");
        Ok([before, whole(&mut group, &mut sorted)?])
    });
    let gathered: Vec<_> = survivors(outcomes).collect();
    for number in 0..2 {
        let wholes = gathered.iter().map(|wholes| &wholes[number][..]);
        let positions = wholes.collect::<Vec<_>>().concat();
        assert!(positions == all_positions(), "{change:?}");
    }
    found.get()
}

/// Each node can have its block of the sort on one rank, and its positions on another.
#[test]
fn positions_stay_on_the_executors_of_their_exchange() {
    for recovers_at_once in [false, true] {
        let changes = speed_changes();
        let found: Vec<SpeedChange> = changes
            .filter(|change| executors_differ(*change, recovers_at_once))
            .collect();
        let is_tried = |starts_slow| found.iter().any(|change| change.starts_slow == starts_slow);
        assert!(is_tried(false) && is_tried(true), "{found:?}");
    }
}

/// Rank 2 fails, and the positions have no redundancy.
#[test]
fn positions_without_redundancy_are_lost_with_their_rank_although_the_sort_excluded_it() {
    for change in speed_changes() {
        let config = GroupConfig {
            release_after_run: true,
            ..GroupConfig::default()
        };
        let outcomes = play_group(4, 1, config, "2@10", move |_, group| {
            let mut sorted = positions_with(group, change)?;
            fail_in(group, 10, 2)?;
            let status = group.recover(&mut sorted).err().map(|error| error.status);
            let bytes: usize = sorted.blocks().map(|block| block.records.len()).sum();
            let lost: Vec<Rank> = group.lost_ranks().iter().collect();
            Ok((bytes, (status, lost)))
        });
        let (bytes, ends): (Vec<usize>, Vec<_>) = survivors(outcomes).unzip();
        let expected = match bytes.iter().sum::<usize>() / size_of::<u64>() {
            // Another rank executed node 2.
            400 => (None, vec![]),
            _ => (Some(Status::DataLost), vec![Rank(2)]),
        };
        assert_eq!(ends, vec![expected; 3], "{change:?}");
    }
}

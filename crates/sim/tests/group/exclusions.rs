//! Results that are made while a rank is excluded as slow.

use std::cell::Cell;

use super::monitors::NoDatagrams;
use super::redundancy::{fail_in, whole};
use super::spares::keys_beside;
use super::*;
use ftsort_core::group::protected::Order;
use ftsort_core::group::{Clocks, MonitorConfig, MonitorMode};
use ftsort_core::monitor::MonitorOptions;

/// The clocks of a rank that gets a whole processor, or next to nothing.
struct UnevenClocks {
    is_slow: bool,
    used: Cell<f64>,
}

impl Clocks for UnevenClocks {
    fn processor_seconds(&self) -> f64 {
        self.used
            .set(self.used.get() + if self.is_slow { 0.0 } else { 1e9 });
        self.used.get()
    }

    fn seconds(&self) -> f64 {
        0.0
    }
}

/// Starts a monitor in the foreground that finds rank 2 slow at its first test.
pub fn start_monitor(group: &mut SimGroup<'_>) -> Result<()> {
    let clocks = UnevenClocks {
        is_slow: group.members().me() == Rank(2),
        used: Cell::new(0.0),
    };
    start_monitor_with(group, Box::new(clocks), MonitorOptions::default().zeta)
}

/// Starts a monitor in the foreground with the clocks of this rank. A slow rank returns after `zeta` good tests.
pub fn start_monitor_with(
    group: &mut SimGroup<'_>,
    clocks: Box<dyn Clocks>,
    zeta: u32,
) -> Result<()> {
    let config = MonitorConfig {
        options: MonitorOptions {
            interval: 1e-9,
            zeta,
            ..MonitorOptions::default()
        },
        mode: MonitorMode::Foreground,
    };
    let open = |_: &_, _| Ok(NoDatagrams);
    let started = group.start_monitor(Ok(config), Ok(true), None, clocks, open, |_, _| Ok(()));
    started.map(drop)
}

/// A monitor that starts after a failure, in the foreground or in the background.
#[test]
fn a_rank_that_failed_before_the_monitor_is_not_recommended() {
    for mode in [MonitorMode::Foreground, MonitorMode::Background] {
        let outcomes = play_group(4, 1, GroupConfig::default(), "1@10", move |rank, group| {
            fail_in(group, 10, 1)?;
            let clocks = Box::new(UnevenClocks {
                is_slow: false,
                used: Cell::new(0.0),
            });
            let config = MonitorConfig {
                mode,
                ..MonitorConfig::default()
            };
            let open = |_: &_, _| Ok(NoDatagrams);
            let (state, _) =
                group.start_monitor(Ok(config), Ok(true), None, clocks, open, |_, _| Ok(()))?;
            for other in Rank::all(4) {
                let view = state.view(other).expect("a rank of the group");
                assert_eq!(view.recommended, other != Rank(1), "{mode:?}");
                assert_eq!(view.counter, u32::from(other == Rank(1)));
            }
            let mut sorted = group.sort_keys(&keys(rank))?;
            whole(group, &mut sorted).map(|whole| whole.len())
        });
        let gathered: usize = survivors(outcomes).sum();
        assert_eq!(gathered, 300, "{mode:?}");
    }
}

/// A recovery moves no block of a survivor, also not back to the home of its node, and the result can be gathered.
#[test]
fn blocks_stay_on_the_ranks_that_sorted_them() {
    for (seed, release) in SEEDS.zip([false, true].into_iter().cycle()) {
        let config = GroupConfig {
            release_after_run: release,
            ..GroupConfig::default()
        };
        let outcomes = play_group(4, seed, config, "", |rank, group| {
            start_monitor(group)?;
            let mut sorted = group.sort_keys(&keys(rank))?;
            let made = addresses(&sorted);
            let is_empty = sorted.blocks().all(|block| block.records.is_empty());
            assert_eq!(is_empty, rank == Rank(2), "rank 2 is excluded");
            group.recover(&mut sorted)?;
            assert_eq!(addresses(&sorted), made);
            let gathered = whole(group, &mut sorted)?;
            group.recover(&mut sorted)?;
            assert_eq!(addresses(&sorted), made);
            group.stop_monitor()?;
            Ok(gathered)
        });
        let wholes = survivors(outcomes);
        assert_eq!(
            wholes.collect::<Vec<_>>().concat(),
            all_keys(4),
            "seed {seed}"
        );
    }
}

/// Gathers a result without redundancy. It was made while rank 2 was excluded, which has failed since, and a spare executes
/// its node.
fn gathered_beside_a_spare() -> Vec<Result<Vec<i32>>> {
    let config = GroupConfig {
        spares: 1,
        release_after_run: true,
        // The node of the excluded rank has records, too.
        method: Some(Method::Bitonic(Shape::Any)),
        ..GroupConfig::default()
    };
    let outcomes = play_group(4, 1, config, "2@10", |rank, group| {
        start_monitor(group)?;
        let mut sorted = group.sort_keys(&keys_beside(Rank(3), rank))?;
        assert!(rank != Rank(2) || sorted.blocks().all(|block| block.records.is_empty()));
        fail_in(group, 10, 2)?;
        assert_eq!(group.members().executor(Node(2)), Rank(3));
        whole(group, &mut sorted)
    });
    outcomes.into_iter().flatten().collect()
}

#[test]
fn a_moved_block_is_gathered_although_a_spare_executes_its_node() {
    let gathered: Result<Vec<Vec<i32>>> = gathered_beside_a_spare().into_iter().collect();
    assert_eq!(gathered.unwrap().concat(), all_keys(3));
    for outcome in with_mutant(Mutant::MovedBlockLost, gathered_beside_a_spare) {
        assert_eq!(outcome.unwrap_err().status, Status::DataLost);
    }
}

/// A rank without work has no block that could be lost with it.
#[test]
fn a_failed_rank_that_was_excluded_loses_no_result() {
    let config = GroupConfig {
        release_after_run: true,
        ..GroupConfig::default()
    };
    let outcomes = play_group(4, 1, config, "2@10", |rank, group| {
        start_monitor(group)?;
        let mut sorted = group.sort_keys(&keys(rank))?;
        assert_eq!(
            sorted.blocks().all(|block| block.records.is_empty()),
            rank == Rank(2)
        );
        fail_in(group, 10, 2)?;
        group.recover(&mut sorted)?;
        assert!(group.lost_ranks().is_empty());
        Ok(parts(&sorted))
    });
    assert_eq!(joined(outcomes), all_keys(4));
}

/// Sorts with a slow rank, and recovers and gathers the result after a failure. Returns whether a survivor has given up a
/// block.
fn recover_after_exclusion(seed: u64) -> bool {
    let outcomes = play_group(4, seed, GroupConfig::default(), "1@10", |rank, group| {
        start_monitor(group)?;
        let mut sorted = group.sort_keys(&keys(rank))?;
        let made = addresses(&sorted);
        fail_in(group, 10, 1)?;
        group.recover(&mut sorted)?;
        let now = addresses(&sorted);
        let has_moved = !made.iter().all(|address| now.contains(address));
        Ok((has_moved, parts(&sorted), whole(group, &mut sorted)?))
    });
    let outcomes: Vec<_> = survivors(outcomes).collect();
    let blocks = outcomes
        .iter()
        .map(|(_, blocks, _)| Some(Ok(blocks.clone())));
    assert_eq!(joined(blocks.collect()), all_keys(4), "seed {seed}");
    let wholes = outcomes.iter().map(|(.., whole)| &whole[..]);
    assert_eq!(
        wholes.collect::<Vec<_>>().concat(),
        all_keys(4),
        "seed {seed}"
    );
    outcomes.iter().any(|(has_moved, ..)| *has_moved)
}

/// The block of a failed rank goes to another rank, and the blocks of the survivors stay.
#[test]
fn a_result_of_an_exclusion_is_recovered_and_gathered() {
    for seed in SEEDS {
        assert!(!recover_after_exclusion(seed), "seed {seed}");
    }
    let has_moved = with_mutant(Mutant::BlocksOfResultMoved, || recover_after_exclusion(1));
    assert!(has_moved);
}

/// The descending order of keys.
fn descending_order() -> Order {
    let layout = Layout::new(Fields {
        record_bytes: size_of::<i32>(),
        key: KeyKind::I32 as i32,
        descending: true,
        ..Fields::default()
    });
    Order {
        layout: layout.expect("a number is its own key"),
        stable: false,
    }
}

/// An input that moved to another rank with the node of an excluded rank is still protected for later sorts, also of ones
/// by other keys, and after failures.
#[test]
fn a_protected_input_is_sorted_by_two_keys_after_an_exclusion_and_failures() {
    for seed in SEEDS {
        let order = descending_order();
        let failures = "3@10 2@11";
        let outcomes = play_group(
            4,
            seed,
            GroupConfig::default(),
            failures,
            move |rank, group| {
                let mut input = group.protect(SortInput::of_keys(&keys(rank)))?;
                start_monitor(group)?;
                drop(group.sort_protected(&mut input, Some(order.clone()))?);
                for (round, failed) in [(10, 3), (11, 2)] {
                    fail_in(group, round, failed)?;
                    drop(group.sort_protected(&mut input, Some(order.clone()))?);
                }
                Ok(parts(&group.sort_protected(&mut input, None)?))
            },
        );
        assert_eq!(joined(outcomes), all_keys(4), "seed {seed}");
    }
}

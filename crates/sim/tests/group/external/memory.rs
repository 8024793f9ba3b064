//! The memory of external sorts: that of the rank with the least, and the default.

use super::*;
use crate::refusals::limited;

/// The numbers of runs and batches of a sort on ranks with these values of `memory_bytes`, and a limit for all memory; 0:
/// none.
fn runs_and_batches(memory_bytes: [usize; 2], memory_limit: usize) -> (u64, u64) {
    let world = World::new(143);
    let of_ranks = world.clone();
    let outcomes = try_play(2, (1, &[]), move |rank, mpi, handle| {
        let config = GroupConfig {
            memory_limit,
            ..GroupConfig::default()
        };
        let budget = MemoryBudget::new();
        let mut group = Group::new(transport(mpi), config, limited(rank, &budget))?;
        group.external_sort(ExternalSort {
            memory_bytes: memory_bytes[rank.index()],
            ..sort_of(&of_ranks, rank, &handle, false)
        })
    });
    let outcomes = outcomes.expect("no hang");
    let stats: Vec<ExternalStats> = outcomes.iter().flatten().flatten().copied().collect();
    assert_eq!(survivors_of(&world, Ok(outcomes), false), Ok(2));
    let runs = stats.iter().map(|stats| stats.runs).sum();
    (runs, stats[0].batches)
}

#[test]
fn the_smallest_memory_counts() {
    let (small, large) = (memory_for(20), memory_for(60));
    let least = runs_and_batches([small, small], 0);
    assert_ne!(least, runs_and_batches([large, large], 0));
    assert_eq!(least, runs_and_batches([small, large], 0));
    assert_eq!(least, runs_and_batches([large, small], 0));
}

#[test]
fn the_default_memory_is_half_of_the_limit() {
    let small = memory_for(20);
    let expected = runs_and_batches([small, small], 0);
    assert_eq!(runs_and_batches([0, 0], 2 * small), expected);
}

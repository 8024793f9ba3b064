//! Errors on one rank alone: a rank that refuses a call takes part in the agreement, and the group stays usable.

use super::{SimGroup, services, statuses, transport_with};
use ftsort_core::group::{
    Group, GroupConfig, HostBudget, MergeOperation, Services, TreeMerge, TreeOptions,
};
use ftsort_core::members::Rank;
use ftsort_kernels::error::{Result, Status};
use ftsort_kernels::memory::MemoryBudget;
use ftsort_sim::transport::{SimConfig, SimMpi, SimResult, run_ranks_on_large_stacks};

/// Seeds of the interleavings that each test tries.
const SEEDS: std::ops::Range<u64> = 1..6;

const MIB: usize = 1 << 20;

/// The number of keys in 8 MiB.
const KEYS: usize = 2 * MIB;

/// A budget with the limit of the configuration.
#[derive(Default)]
struct Limited(MemoryBudget);

impl HostBudget for Limited {
    fn memory(&self) -> Option<&MemoryBudget> {
        Some(&self.0)
    }

    fn begin_job(&mut self, limit: usize, _survivors_here: usize) {
        self.0
            .set_limit(if limit == 0 { usize::MAX } else { limit });
    }

    fn set_survivors_here(&mut self, _survivors_here: usize) {}
}

/// Runs a program on ranks of which the last one has a memory limit, with messages as long as those over MPI.
fn play_limited(
    ranks: u32,
    seed: u64,
    limit: usize,
    program: impl Fn(Rank, &mut SimGroup<'_>) -> Result<()> + 'static,
) -> Vec<Option<Status>> {
    let config = SimConfig {
        seed,
        failures: Vec::new(),
        record: false,
    };
    let rank_main = move |rank: Rank, mpi: SimMpi<'_>| {
        let config = GroupConfig {
            memory_limit: if rank.0 == ranks - 1 { limit } else { 0 },
            ..GroupConfig::default()
        };
        let services = Services {
            budget: Box::<Limited>::default(),
            ..services(rank)
        };
        let mut group = Group::new(transport_with(mpi, 4 * MIB), config, services)?;
        program(rank, &mut group)
    };
    let run: SimResult<Result<()>> = run_ranks_on_large_stacks(ranks as usize, &config, rank_main);
    assert_eq!(run.hung, [], "seed {seed}, limit {limit}");
    statuses(&run.outcomes)
}

/// Sorts a few keys after the call with this result, which it returns.
fn used_again<R>(group: &mut SimGroup<'_>, result: Result<R>) -> Result<()> {
    let total = group.sort_keys(&[3, 1, 2])?.total();
    assert_eq!(total, 3 * group.members().survivors().count() as u64);
    result.map(drop)
}

#[test]
fn a_refused_sort_is_agreed_on() {
    for (seed, limit) in SEEDS.zip([9, 9, 12, 17, 18]) {
        let outcomes = play_limited(2, seed, limit * MIB, |rank, group| {
            let keys: Vec<u32> = (0..KEYS as u32)
                .map(|index| index.wrapping_mul(2_654_435_761) ^ rank.0)
                .collect();
            let result = group.sort_keys(&keys);
            used_again(group, result)
        });
        assert_eq!(outcomes, [Some(Status::Memory); 2], "limit {limit} MiB");
    }
}

#[test]
fn a_refused_tree_is_agreed_on() {
    for (seed, limit) in SEEDS.zip([7, 9, 15, 18, 22]) {
        let outcomes = play_limited(2, seed, limit * MIB, |rank, group| {
            let contribution = vec![rank.0 as u8; 8 * MIB];
            let mut options = TreeOptions::default();
            options.request.sink = Some(Rank(1));
            let merged = group.tree_merge(TreeMerge {
                options,
                operation: MergeOperation::Concatenate,
                contribution: &contribution,
            });
            used_again(group, merged)
        });
        assert_eq!(outcomes, [Some(Status::Memory); 2], "limit {limit} MiB");
        let outcomes = play_limited(2, seed, limit * MIB, |rank, group| {
            let bytes = vec![rank.0 as u8; 8 * MIB];
            let received = group.tree_broadcast(TreeOptions::default(), Rank(0), &bytes);
            used_again(group, received)
        });
        let expected = outcomes[0];
        assert_eq!(outcomes, [expected; 2], "limit {limit} MiB");
    }
}

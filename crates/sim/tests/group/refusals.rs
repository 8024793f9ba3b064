//! Errors on one rank alone: a rank that refuses a call takes part in the agreement, and the group stays usable.

use std::ops::Range;

use super::collectives::Sum;
use super::monitors::{NoDatagrams, StoppedClocks};
use super::redundancy::fail_in;
use super::*;
use ftsort_core::group::columns::KeysAndValues;
use ftsort_core::group::{
    HostBudget, MergeOperation, MonitorConfig, MonitorMode, ParityShape, TreeMerge, TreeOptions,
    Verification,
};
use ftsort_core::query::groups::Aggregate;
use ftsort_core::rounds::{Round, bytes};
use ftsort_core::transport::watch::Activity;
use ftsort_kernels::memory::MemoryBudget;
use ftsort_kernels::test_size::sized;

/// Seeds of the interleavings that each test tries.
const SEEDS: std::ops::Range<u64> = 1..6;

const MIB: usize = 1 << 20;

/// The number of keys in 8 MiB.
const KEYS: usize = 2 * MIB;

/// A budget with the limit of the configuration.
#[derive(Default)]
pub struct Limited(pub MemoryBudget);

impl HostBudget for Limited {
    fn memory(&self) -> Option<&MemoryBudget> {
        Some(&self.0)
    }

    /// Some of the inputs, so that tests have both ways.
    fn copies_are_read_faster(&self, bytes: usize) -> bool {
        bytes / size_of::<i32>() % 2 == 1
    }

    fn begin_job(&mut self, limit: usize, _survivors_here: usize) {
        self.0
            .set_limit(if limit == 0 { usize::MAX } else { limit });
    }

    fn set_survivors_here(&mut self, _survivors_here: usize) {}
}

/// The services of a rank with this memory budget.
pub fn limited(rank: Rank, budget: &MemoryBudget) -> Services {
    Services {
        budget: Box::new(Limited(budget.clone())),
        ..services(rank)
    }
}

/// Runs a program on ranks of which the last one has a memory limit, with messages as long as those over MPI.
fn play_limited(
    ranks: u32,
    seed: u64,
    limit: usize,
    program: impl Fn(Rank, &mut SimGroup<'_>) -> Result<()> + 'static,
) -> Vec<Option<Status>> {
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
    let run: SimResult<Result<()>> = run_ranks(ranks as usize, &sim_config(seed, &[]), rank_main);
    assert_eq!(run.hung, [], "seed {seed}, limit {limit}");
    statuses(&run.outcomes)
}

/// Sorts a few keys after the call with this result, which it returns.
pub fn used_again<R>(group: &mut SimGroup<'_>, result: Result<R>) -> Result<()> {
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

/// The columns are made after the sort of the records that consist of them.
#[test]
fn the_peak_of_a_call_includes_its_last_step() {
    let outcomes = play(2, 1, |rank, transport, _| {
        let budget = MemoryBudget::new();
        let services = limited(rank, &budget);
        let mut group = Group::new(transport, GroupConfig::default(), services)?;
        let keys: Vec<i32> = (0..100_000).collect();
        let wanted: Vec<u64> = (0..20).collect();
        group.select(SortInput::of_keys(&keys), &wanted)?;
        let select = group.stats().peak_bytes;
        assert_eq!(select, budget.peak() as u64);
        let ordered = group.argsort(SortInput::of_keys(&keys))?;
        assert_eq!(group.stats().peak_bytes, budget.peak() as u64);
        drop(ordered);
        group.sort_keys(&[3, 1, 2])?;
        assert!(group.stats().peak_bytes < select);
        Result::Ok(())
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Ok); 2]);
}

/// A rank may lack the memory for columns, pairs, candidates or a filtered input, of which the other ranks have enough.
#[test]
fn refused_queries_are_agreed_on() {
    type Query = fn(&mut SimGroup<'_>, SortInput<'_>) -> Result<()>;
    let queries: [Query; 6] = [
        |group, input| group.argsort(input).map(drop),
        |group, input| group.positions(input).map(drop),
        |group, input| group.group_by(input, &[Aggregate::COUNT]).map(drop),
        |group, input| group.select(input, &[0, 700_000]).map(drop),
        |group, input| group.top(input, 900_000).map(drop),
        |group, input| {
            let values = input.records;
            let columns = KeysAndValues {
                keys: input.clone(),
                values,
                value_bytes: 4,
            };
            group.sort_by_key(columns).map(drop)
        },
    ];
    let (mut refused, mut runs) = (0, 0);
    for query in queries {
        for limit in (2..44).step_by(sized(9, 3)) {
            let outcomes = play_limited(2, 1, limit * MIB, move |rank, group| {
                let key = |index: u32| index.wrapping_mul(2_654_435_761) ^ rank.0;
                let keys: Vec<u32> = (0..MIB as u32 / 2).map(key).collect();
                let result = query(group, SortInput::of_keys(&keys));
                used_again(group, result)
            });
            assert!(
                outcomes[0].is_some() && outcomes[0] == outcomes[1],
                "{limit} MiB: {outcomes:?}"
            );
            refused += usize::from(outcomes[0] == Some(Status::Memory));
            runs += 1;
        }
    }
    // Some limits are too low, and some are not.
    assert!((6..runs - 6).contains(&refused), "{refused} of {runs}");
}

#[test]
fn states_are_limited_before_the_first_job() {
    for seed in SEEDS {
        let outcomes = play_limited(2, seed, 4 * MIB, |rank, group| {
            let put = group.put_state(Node(rank.0), &vec![1; 8 * MIB]);
            assert_eq!(put.is_err(), rank == Rank(1));
            let committed = group.commit_states_checked(true, put);
            used_again(group, committed)
        });
        assert_eq!(outcomes, [Some(Status::Memory); 2]);
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

/// States that are made without a round, which a rank may fail to do.
struct Initial {
    fails: bool,
}

impl Rounds for Initial {
    fn plan(&self, _dimension: u32) -> Vec<Round> {
        Vec::new()
    }

    fn init(&self, node: Node) -> Result<Slice> {
        if self.fails {
            return Err(Error::new(Status::Callback, "no state"));
        }
        bytes(&[node.0 as u8])
    }

    fn inits_all(&self) -> bool {
        true
    }

    fn absorb(&self, task: &Task<'_>, _inbox: Slice) -> Result<Slice> {
        Ok(task.state.clone())
    }
}

#[test]
fn a_failed_first_state_is_agreed_on() {
    for seed in SEEDS {
        let outcomes = play_group(3, seed, GroupConfig::default(), "", |rank, group| {
            let fails = rank == Rank(2);
            let result = group.run_rounds(&Initial { fails }, &[]);
            used_again(group, result)
        });
        assert_eq!(statuses(&outcomes), [Some(Status::Callback); 3]);
    }
}

#[test]
fn the_gravest_error_of_all_ranks_is_agreed_on() {
    let is_reported = |status: &Status| !status.sets_apart() && *status != Status::PeerArgument;
    let reported: Vec<Status> = (Status::BY_GRAVITY.into_iter())
        .filter(is_reported)
        .collect();
    for pair in reported.windows(2) {
        let [graver, lesser] = [pair[0], pair[1]];
        let outcomes = play_group(3, 1, GroupConfig::default(), "", move |rank, group| {
            let own = match rank.0 {
                0 => Err(Error::new(lesser, "refused")),
                1 => Err(Error::new(graver, "refused")),
                _ => Ok(()),
            };
            let committed = group.commit_states_checked(true, own);
            used_again(group, committed)
        });
        assert_eq!(statuses(&outcomes), [Some(graver); 3]);
    }
}

#[test]
fn too_many_parts_to_verify_are_refused() {
    for seed in SEEDS {
        let outcomes = play_group(2, seed, GroupConfig::default(), "", |rank, group| {
            let count = if rank == Rank(1) { 500 } else { 1 };
            let found = group.verify_checked(Ok(Verification {
                layout: SortInput::of_keys::<u8>(&[]).layout,
                parts: (0..count)
                    .map(|index| (Node(index), &[1_u8; 4][..]))
                    .collect(),
                input: None,
                total: None,
                id: None,
            }));
            used_again(group, found)
        });
        use Status::{Argument, PeerArgument};
        assert_eq!(statuses(&outcomes), [Some(PeerArgument), Some(Argument)]);
    }
}

#[test]
fn results_of_different_sorts_are_refused_on_all_ranks() {
    for seed in SEEDS {
        // Three ranks have two keys each, and then two ranks have three each.
        let failures = "2@3.begin";
        let outcomes = play_group(3, seed, GroupConfig::default(), failures, |rank, group| {
            let first = group.sort_keys(&[1, 2][..])?;
            group.inject(3)?;
            while !group.members().is_faulty(Rank(2)) {
                group.fault_check()?;
            }
            let mut second = group.sort_keys(&[1, 2, 3][..])?;
            assert_eq!(first.total(), second.total());
            let mut to_itself = TreeOptions::default();
            to_itself.request.sink = Some(rank);
            let refused = refusal(group.gather(to_itself, &mut second, &mut |_| Ok(())))?;
            assert!(
                refused.text.contains("options is not the same"),
                "{refused}"
            );
            let mut passed = if rank == Rank(0) { first } else { second };
            let gathered = group.gather(TreeOptions::default(), &mut passed, &mut |_| Ok(()));
            assert!(group.lost_ranks().is_empty());
            used_again(group, gathered)
        });
        let refused = Some(Status::Argument);
        assert_eq!(statuses(&outcomes), [refused, refused, None]);
    }
}

/// Makes every kind of collective call. Returns the status of each, the same list on all ranks.
fn every_call(rank: Rank, group: &mut SimGroup<'_>) -> Vec<Status> {
    let mut statuses = Vec::new();
    let mut note = |result: Result<()>| {
        statuses.push(result.err().map_or(Status::Ok, |error| error.status));
    };
    let keys: Vec<u32> = (0..40).map(|index| (index * 7919 + rank.0) % 97).collect();
    let layout = SortInput::of_keys::<u32>(&[]).layout;
    let mut sorted = group.sort_keys(&keys);
    note(sorted.as_ref().map(|_| ()).map_err(Clone::clone));
    if let Ok(sorted) = &mut sorted {
        note(group.recover(&mut *sorted));
        note(group.verify(&layout, sorted, None).map(drop));
        note(group.gather(TreeOptions::default(), sorted, &mut |_| Ok(())));
    }
    let mut input = group.protect(SortInput::of_keys(&keys));
    note(input.as_ref().map(|_| ()).map_err(Clone::clone));
    if let Ok(input) = &mut input {
        note(group.sort_protected(input, None).map(drop));
    }
    let counts = [Aggregate::COUNT];
    note(group.group_by(SortInput::of_keys(&keys), &counts).map(drop));
    note(group.argsort(SortInput::of_keys(&keys)).map(drop));
    note(group.positions(SortInput::of_keys(&keys)).map(drop));
    note(group.select(SortInput::of_keys(&keys), &[7, 60]).map(drop));
    note(group.top(SortInput::of_keys(&keys), 50).map(drop));
    note(group.run_rounds(&Sum, &[1]).map(drop));
    let initial = Initial { fails: false };
    note(group.run_rounds(&initial, &[]).map(drop));
    let merge = TreeMerge {
        options: TreeOptions {
            detect_ms: 1000,
            ..TreeOptions::default()
        },
        operation: MergeOperation::Concatenate,
        contribution: &[rank.0 as u8; 100],
    };
    note(group.tree_merge(merge).map(drop));
    let bytes = [rank.0 as u8; 100];
    let received = group.tree_broadcast(TreeOptions::default(), Rank(1), &bytes);
    note(received.map(drop));
    let put = group.put_state(Node(rank.0), &[1, 2]);
    note(group.commit_states_checked(true, put).map(drop));
    note(group.fault_check().map(drop));
    note(group.agree(7).map(drop));
    let foreground = MonitorConfig {
        mode: MonitorMode::Foreground,
        ..MonitorConfig::default()
    };
    let open = |_: &_, _| Ok(NoDatagrams);
    let clocks = Box::new(StoppedClocks);
    let started = group.start_monitor(Ok(foreground), Ok(true), None, clocks, open, |_, _| Ok(()));
    note(started.map(drop));
    note(group.sort_keys(&keys).map(drop));
    note(group.stop_monitor());
    note(group.clear_states());
    note(group.finish().map(drop));
    statuses
}

/// Runs every call with refused actions on the last of 3 ranks. Returns the statuses of all ranks, and the number of
/// actions of that rank.
fn refused_calls(in_files: bool, refused: Range<u32>) -> (Vec<Vec<Status>>, u32) {
    let files = SharedFiles::default();
    let budget = MemoryBudget::new();
    budget.refuse(refused);
    let of_last = budget.clone();
    let outcomes = play(3, 1, move |rank, transport, handle| {
        let store = if in_files {
            store_in(&files, &handle, FileModel::default())
        } else {
            StoreChoice::Memory(1)
        };
        let config = GroupConfig {
            store,
            ..GroupConfig::default()
        };
        let budget = if rank == Rank(2) {
            Limited(of_last.clone())
        } else {
            Limited::default()
        };
        let services = Services {
            budget: Box::new(budget),
            ..services(rank)
        };
        match Group::new(transport, config, services) {
            Ok(mut group) => every_call(rank, &mut group),
            Err(error) => vec![error.status],
        }
    });
    (outcomes.into_iter().flatten().collect(), budget.actions())
}

#[test]
fn every_refusal_in_every_collective_call_is_agreed_on() {
    for in_files in [false, true] {
        let (fine, actions) = refused_calls(in_files, 0..0);
        assert!(fine.concat().iter().all(|status| *status == Status::Ok));
        assert!(fine[0].len() == 23 && actions > 20, "{actions} actions");
        let mut without_error = 0;
        for action in 1..=actions {
            for end in [action + 1, u32::MAX] {
                let (statuses, _) = refused_calls(in_files, action..end);
                let refused = statuses[0].iter().filter(|status| **status != Status::Ok);
                let lasts = end == u32::MAX;
                let refused = refused.count();
                without_error += usize::from(refused == 0);
                assert!(lasts || refused <= 1, "{action}: {statuses:?}");
                assert_eq!(statuses, vec![statuses[0].clone(); 3], "{action} to {end}");
                let apart = |status: &Status| status.sets_apart() || *status == Status::State;
                assert!(!statuses[0].iter().any(apart), "{action}: {statuses:?}");
            }
        }
        // A sort of small inputs that has no memory for one more copy takes rounds. Four of the calls are such sorts; two
        // of them sort records with positions, whose copy is sorted with two buffers of scratch.
        assert_eq!(without_error, if in_files { 0 } else { 8 });
    }
}

/// Makes every call on 4 ranks, of which rank 1 fails in the first sort, or on 3 ranks, while the system refuses memory to
/// the last rank that is exempt from limits. Returns the statuses of the survivors, and the number of such allocations.
fn calls_without_memory(
    (fails, store): (bool, &StoreChoice),
    refused: Range<u32>,
) -> (Vec<Vec<Status>>, u32) {
    let store = store.clone();
    let ranks = if fails { 4 } else { 3 };
    let budget = MemoryBudget::new();
    budget.refuse_exempt(refused.clone());
    let of_last = budget.clone();
    let rank_main = move |rank: Rank, mpi: SimMpi<'_>| {
        let handle = mpi.handle();
        let protocol = ProtocolConfig {
            repair: Repair::Agree,
            chunk: 16 << 10,
            timeout: Timeout::Default,
            fan_out: ProtocolConfig::FAN_OUT,
        };
        // Small inputs take no rounds by default.
        let rounds = Method::HyperQuickSort(PivotRule::Sampled);
        let config = GroupConfig {
            method: fails.then_some(rounds),
            store: store.clone(),
            failures: Plan::parse(if fails { "1@1.send" } else { "" }).expect("a schedule"),
            ..GroupConfig::default()
        };
        let budget = match rank.index() == ranks - 1 {
            true => Limited(of_last.clone()),
            false => Limited::default(),
        };
        let services = Services {
            budget: Box::new(budget),
            ..services(rank)
        };
        let statuses = match Group::new(Protocol::new(mpi, protocol), config, services) {
            Ok(mut group) => {
                let statuses = every_call(rank, &mut group);
                // The ranks that probe it learn that it takes part in no agreement any more.
                let is_apart = statuses.iter().any(|status| status.sets_apart());
                assert_eq!(handle.activity() == Activity::Left, is_apart);
                statuses
            }
            Err(error) => vec![error.status],
        };
        handle.check().is_ok().then_some(statuses)
    };
    let config = SimConfig {
        timed: true,
        ..sim_config(1, &[])
    };
    let run = run_ranks(ranks, &config, rank_main);
    assert_eq!(run.hung, [], "{refused:?}");
    let survivors = run.outcomes.into_iter().flatten().flatten();
    (survivors.collect(), budget.exempt_actions())
}

/// Whether all ranks return the same statuses up to a call in which the last one leaves the others with an error that they
/// return in that call or in the next one. True as well if it never leaves them.
fn is_told(statuses: &[Vec<Status>]) -> bool {
    let (last, others) = statuses.split_last().expect("some ranks");
    let leaves = |list: &[Status]| list.iter().position(|status| *status == Status::Mpi);
    let Some(left) = leaves(last) else {
        return others.iter().all(|list| list == last) && !last.contains(&Status::State);
    };
    others.iter().all(|list| {
        let end = leaves(list).unwrap_or(list.len());
        (left..=left + 1).contains(&end) && list[..left] == last[..left]
    })
}

#[test]
fn a_rank_without_memory_for_a_message_leaves_the_others_with_an_error() {
    let memory = StoreChoice::Memory(1);
    let parity = StoreChoice::Parity(ParityShape::new(1, 8).expect("a shape"));
    for (fails, store) in [(false, &memory), (true, &memory), (true, &parity)] {
        let (fine, allocations) = calls_without_memory((fails, store), 0..0);
        assert_eq!(fine.len(), 3);
        assert!(is_told(&fine) && allocations > 100, "{allocations}");
        let mut left = 0;
        let step = sized(3, 1);
        for first in (1..=allocations).step_by(step) {
            for end in [first + 1, u32::MAX] {
                let (statuses, _) = calls_without_memory((fails, store), first..end);
                assert!(is_told(&statuses), "{fails} {first} {end}: {statuses:?}");
                left += usize::from(statuses[2].contains(&Status::Mpi));
            }
        }
        assert!(left > 50 / step, "{left} of {allocations}");
    }
}

/// Recovers the order of records after a failure, while an action is refused, and gathers it. Returns whether the recovery was
/// refused, or the error of the gather.
fn gathered_after_refusal(action: u32) -> std::result::Result<bool, String> {
    let budget = MemoryBudget::new();
    let outcomes = play(4, 1, move |rank, transport, _| {
        let config = GroupConfig {
            failures: Plan::parse("2@10")?,
            ..GroupConfig::default()
        };
        let mut group = Group::new(transport, config, limited(rank, &budget))?;
        let mut order = group.argsort(SortInput::of_keys(&keys(rank)))?;
        fail_in(&mut group, 10, 2)?;
        if rank == Rank(0) {
            let before = budget.actions();
            budget.refuse(before + action..before + action + 1);
        }
        let recovered = group.recover(&mut order);
        budget.refuse(0..0);
        let mut gathered = 0;
        group.gather(TreeOptions::default(), &mut order, &mut |positions| {
            gathered += positions.len() / size_of::<u64>();
            Ok(())
        })?;
        Ok((recovered.is_err(), gathered))
    });
    let outcomes: Result<Vec<(bool, usize)>> = outcomes.into_iter().flatten().collect();
    let outcomes = outcomes.map_err(|error| error.to_string())?;
    let gathered: usize = outcomes.iter().map(|(_, gathered)| gathered).sum();
    match gathered {
        400 => Ok(outcomes[0].0),
        _ => Err(format!("{gathered} of 400 positions")),
    }
}

/// A result whose recovery was refused still lacks the blocks of the failed rank, and a gather recovers it.
#[test]
fn a_result_is_gathered_after_a_refused_recovery() {
    let outcomes: Vec<_> = (1..150).map(gathered_after_refusal).collect();
    let wrong = outcomes.iter().find(|outcome| outcome.is_err());
    assert_eq!(wrong, None);
    assert!(outcomes.contains(&Ok(true)));
}

#[test]
fn a_result_of_another_group_is_refused() {
    let results = play_group(3, 1, GroupConfig::default(), "", |rank, group| {
        group.sort_keys(&keys(rank))
    });
    let results: Vec<Option<Sorted>> = survivors(results).map(Some).collect();
    let results = RefCell::new(results);
    let outcomes = play(3, 1, move |rank, transport, _| {
        let services = Services {
            nonce: 2000,
            ..services(rank)
        };
        let mut group = Group::new(transport, GroupConfig::default(), services)?;
        let mut other = results.borrow_mut()[rank.index()].take().expect("a result");
        let gathered = group.gather(TreeOptions::default(), &mut other, &mut |_| Ok(()));
        assert_eq!(refusal(gathered)?.status, Status::Argument);
        let recovered = group.recover(&mut other);
        used_again(&mut group, recovered)
    });
    assert_eq!(statuses(&outcomes), [Some(Status::Argument); 3]);
}

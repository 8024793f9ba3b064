//! The safe `Group` of the core on simulated ranks: creation, sorts, wrong arguments, failures, agreement, states,
//! user-defined algorithms, tree collectives and verification.

mod agreement;
mod collectives;
mod creation;
mod sorts;
mod states;

use ftsort_core::faults::Plan;
use ftsort_core::group::{Group, GroupConfig, Services, Sorted};
use ftsort_core::members::Rank;
use ftsort_core::transport::{Protocol, ProtocolConfig, Repair};
use ftsort_kernels::error::{Error, Result, Status};
use ftsort_sim::transport::{RankHandle, SimConfig, SimMpi, SimResult, run_ranks_on_large_stacks};

type SimGroup<'y> = Group<Protocol<SimMpi<'y>>>;

/// Seeds of the interleavings that each test tries.
const SEEDS: std::ops::Range<u64> = 1..21;

fn transport(mpi: SimMpi<'_>) -> Protocol<SimMpi<'_>> {
    let config = ProtocolConfig {
        repair: Repair::Agree,
        chunk: 16 << 10,
        timeout: None,
    };
    Protocol::new(mpi, config)
}

/// Runs a program on all ranks under one seed. Returns what each rank returned; None: it failed.
fn play<R: 'static>(
    ranks: usize,
    seed: u64,
    program: impl Fn(Rank, Protocol<SimMpi<'_>>, RankHandle) -> R + 'static,
) -> Vec<Option<R>> {
    let config = SimConfig {
        seed,
        failures: Vec::new(),
        record: false,
    };
    let run: SimResult<Option<R>> = run_ranks_on_large_stacks(ranks, &config, move |rank, mpi| {
        let handle = mpi.handle();
        let result = program(rank, transport(mpi), handle.clone());
        handle.check().is_ok().then_some(result)
    });
    assert_eq!(run.hung, [], "seed {seed}");
    assert_eq!(run.misuse, None, "seed {seed}");
    run.outcomes.into_iter().map(Option::flatten).collect()
}

/// As [`play`], with a group of a configuration, and injected failures.
fn play_group<R: 'static>(
    ranks: usize,
    seed: u64,
    config: GroupConfig,
    failures: &str,
    program: impl Fn(Rank, &mut SimGroup<'_>) -> Result<R> + 'static,
) -> Vec<Option<Result<R>>> {
    let failures = Plan::parse(failures).expect("a failure schedule");
    play(ranks, seed, move |rank, transport, _| {
        let config = GroupConfig {
            failures: failures.clone(),
            ..config.clone()
        };
        let mut group = Group::new(transport, config, services(rank))?;
        program(rank, &mut group)
    })
}

fn services(rank: Rank) -> Services {
    Services {
        nonce: 1000 + u64::from(rank.0),
        ..Services::default()
    }
}

fn keys(rank: Rank) -> Vec<i32> {
    (0..100)
        .map(|index: i32| {
            index
                .wrapping_mul(7919)
                .wrapping_add(rank.0 as i32 * 104_729)
                % 1000
        })
        .collect()
}

fn all_keys(ranks: usize) -> Vec<i32> {
    let mut all: Vec<i32> = Rank::all(ranks).flat_map(keys).collect();
    all.sort_unstable();
    all
}

fn parts(sorted: &Sorted) -> Vec<(u64, Vec<i32>)> {
    let blocks = sorted.blocks();
    blocks
        .map(|block| (block.offset, block.keys::<i32>().unwrap().to_vec()))
        .collect()
}

/// The blocks of all ranks, put together by their offsets.
fn joined(outcomes: Vec<Option<Result<Vec<(u64, Vec<i32>)>>>>) -> Vec<i32> {
    let mut blocks: Vec<(u64, Vec<i32>)> = outcomes
        .into_iter()
        .flatten()
        .flat_map(|parts| parts.expect("survivors succeed"))
        .collect();
    blocks.sort();
    let mut all = Vec::new();
    for (offset, block) in blocks.into_iter().filter(|(_, block)| !block.is_empty()) {
        assert_eq!(offset, all.len() as u64);
        all.extend(block);
    }
    all
}

fn statuses<R>(outcomes: &[Option<Result<R>>]) -> Vec<Option<Status>> {
    let status = |outcome: &Result<R>| match outcome {
        Ok(_) => Status::Ok,
        Err(error) => error.status,
    };
    let outcomes = outcomes.iter();
    outcomes
        .map(|outcome| outcome.as_ref().map(status))
        .collect()
}

/// The error of a call that must fail. A rank that failed itself only returns.
fn refusal<R>(result: Result<R>) -> Result<Error> {
    let error = result.map(drop).expect_err("the call must fail");
    if error.text.contains("this simulated rank is dead") {
        return Err(error);
    }
    Ok(error)
}

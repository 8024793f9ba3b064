//! Runs programs on simulated ranks.
//!
//! A program is put into a box, so that most of this is compiled once for all programs with the same result.

use super::*;

/// Seeds of the interleavings that each test tries.
pub const SEEDS: std::ops::Range<u64> = 1..21;

pub fn transport(mpi: SimMpi<'_>) -> Protocol<SimMpi<'_>> {
    transport_with(mpi, 16 << 10)
}

/// A transport with messages of at most `chunk` bytes.
pub fn transport_with(mpi: SimMpi<'_>, chunk: usize) -> Protocol<SimMpi<'_>> {
    let config = ProtocolConfig {
        repair: Repair::Agree,
        chunk,
        timeout: Timeout::Never,
        fan_out: ProtocolConfig::FAN_OUT,
    };
    Protocol::new(mpi, config)
}

pub fn sim_config(seed: u64, failures: &[Failure]) -> SimConfig {
    SimConfig {
        seed,
        failures: failures.to_vec(),
        large_stacks: true,
        ..SimConfig::default()
    }
}

/// Runs a program on all ranks under one seed. Returns the value of each rank; None: it failed.
pub fn play<R: 'static>(
    ranks: usize,
    seed: u64,
    program: impl Fn(Rank, Protocol<SimMpi<'_>>, RankHandle) -> R + 'static,
) -> Vec<Option<R>> {
    play_with(ranks, seed, 16 << 10, program)
}

/// As [`play`], with messages of at most `chunk` bytes.
pub fn play_with<R: 'static>(
    ranks: usize,
    seed: u64,
    chunk: usize,
    program: impl Fn(Rank, Protocol<SimMpi<'_>>, RankHandle) -> R + 'static,
) -> Vec<Option<R>> {
    let outcomes = try_play(ranks, (seed, &[]), move |rank, mpi, handle| {
        program(rank, transport_with(mpi, chunk), handle)
    });
    outcomes.unwrap_or_else(|text| panic!("seed {seed}: {text}"))
}

/// Runs a program on all ranks under one seed, with failures. Returns the value of each rank; None: it failed. An error if
/// a rank hangs or uses the network in a way that its interface forbids.
pub fn try_play<R: 'static>(
    ranks: usize,
    (seed, failures): (u64, &[Failure]),
    program: impl Fn(Rank, SimMpi<'_>, RankHandle) -> R + 'static,
) -> std::result::Result<Vec<Option<R>>, String> {
    run_program(ranks, (seed, failures), Box::new(program))
}

/// A program of ranks.
type Program<R> = Box<dyn Fn(Rank, SimMpi<'_>, RankHandle) -> R>;

fn run_program<R: 'static>(
    ranks: usize,
    (seed, failures): (u64, &[Failure]),
    program: Program<R>,
) -> std::result::Result<Vec<Option<R>>, String> {
    let config = sim_config(seed, failures);
    let run: SimResult<Option<R>> = run_ranks(ranks, &config, move |rank, mpi| {
        let handle = mpi.handle();
        let result = program(rank, mpi, handle.clone());
        handle.check().is_ok().then_some(result)
    });
    if !run.hung.is_empty() || run.misuse.is_some() {
        return Err(format!("hung {:?}, misuse {:?}", run.hung, run.misuse));
    }
    Ok(run.outcomes.into_iter().map(Option::flatten).collect())
}

/// The failure of a rank at one of its steps.
pub fn crash(rank: usize, step: u32) -> Failure {
    Failure {
        rank: Rank(rank as u32),
        step,
        mode: FailureMode::Crash,
    }
}

/// As [`play`], with a group of a configuration, and injected failures.
pub fn play_group<R: 'static>(
    ranks: usize,
    seed: u64,
    config: GroupConfig,
    failures: &str,
    program: impl Fn(Rank, &mut SimGroup<'_>) -> Result<R> + 'static,
) -> Vec<Option<Result<R>>> {
    run_group_program(ranks, seed, config, failures, Box::new(program))
}

/// A program of ranks in one group.
type GroupProgram<R> = Box<dyn Fn(Rank, &mut SimGroup<'_>) -> Result<R>>;

fn run_group_program<R: 'static>(
    ranks: usize,
    seed: u64,
    config: GroupConfig,
    failures: &str,
    program: GroupProgram<R>,
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

pub fn services(rank: Rank) -> Services {
    Services {
        nonce: 1000 + u64::from(rank.0),
        ..Services::default()
    }
}

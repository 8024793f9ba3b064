//! Queries of which ranks fail at any step, with copies in memory and in files, and the mutants of their code.

use std::cell::Cell;

use super::super::{
    SimGroup, crash, detecting_seed, services, statuses, transport, try_play, with_mutant,
};
use super::*;

/// The configuration of a run. The redundancy is in files where it is `in_files`.
#[derive(Clone, Default)]
struct Setup {
    config: GroupConfig,
    in_files: bool,
}

impl Setup {
    /// The configuration of a rank, with the files of the run.
    fn config_of(&self, files: &SharedFiles, handle: RankHandle) -> GroupConfig {
        let mut config = self.config.clone();
        if self.in_files {
            config.store = store_in(files, &handle, FileModel::default());
        }
        config
    }
}

/// The outcome of a run with failures.
fn verdict(query: Query, setup: &Setup, seed: u64, failures: &[Failure]) -> Outcome {
    const RANKS: usize = 3;
    let (setup, files) = (setup.clone(), SharedFiles::default());
    // The ranks without an input, the number of ranks known to have failed, and the rows.
    type Answer = Result<((Vec<Rank>, usize), Rows)>;
    let answers = try_play(
        RANKS,
        (seed, failures),
        move |rank, mpi, handle| -> Answer {
            let config = setup.config_of(&files, handle);
            let mut group = Group::new(transport(mpi), config, services(rank))?;
            // A rank that was known to have failed before the call has no input.
            let absent: Vec<Rank> = group.members().faulty().iter().collect();
            let known = Cell::new(None);
            let recover = |group: &mut SimGroup<'_>, sorted: &mut Sorted| {
                if !setup.config.release_after_run {
                    recovered(group, sorted)?;
                }
                known.set(Some(group.members().faulty().len()));
                if setup.in_files {
                    // No rank removes its files before all have recovered their results.
                    group.agree(1)?;
                }
                Ok(())
            };
            let rows = run(query, &mut group, rank, &recover)?;
            let known = known
                .get()
                .unwrap_or_else(|| group.members().faulty().len());
            Ok(((absent, known), rows))
        },
    );
    let outcomes = match answers {
        Ok(outcomes) => outcomes,
        Err(text) => return Outcome::Wrong(text),
    };
    let found: Vec<Status> = statuses(&outcomes).into_iter().flatten().collect();
    let has_failed = outcomes.len() - found.len();
    match found.first() {
        Some(first) if found.iter().any(|status| status != first) => {
            Outcome::Wrong(format!("statuses {found:?}"))
        }
        Some(Status::Ok) => {
            let survivors = outcomes.iter().flatten().flatten();
            let view = survivors.map(|(view, _)| view.clone()).next();
            let (absent, known) = view.unwrap_or_default();
            let rows =
                |outcome: Option<Answer>| outcome.map(|outcome| outcome.map(|(_, rows)| rows));
            let outcomes: Vec<_> = outcomes.into_iter().map(rows).collect();
            let found = std::panic::catch_unwind(|| joined(&outcomes));
            let expected = expected_without(query, RANKS, &absent);
            match found {
                Ok(found) if found == expected => Outcome::Right { has_failed },
                // A rank that fails after the last agreement takes its block along.
                Ok(found)
                    if known < has_failed && found.iter().all(|row| expected.contains(row)) =>
                {
                    Outcome::Right { has_failed }
                }
                found => Outcome::Wrong(format!("{found:?} instead of {expected:?}")),
            }
        }
        Some(Status::DataLost) => Outcome::Lost,
        Some(other) => Outcome::Wrong(format!("status {other:?}")),
        None => Outcome::Right { has_failed },
    }
}

enum Outcome {
    Right { has_failed: usize },
    Lost,
    Wrong(String),
}

/// Lets each rank fail at each of its steps. Returns the first error.
fn failures_at_every_step(query: Query, setup: &Setup, seed: u64) -> Option<String> {
    // The data are protected within this percentage of the steps. Messages of a rank that fails arrive or do not.
    let protected = match query {
        Query::Argsort => 70,
        Query::ByKey => 66,
        // Without the steps of a recovery.
        _ if setup.config.release_after_run => 66,
        _ => 58,
    };
    for rank in 0..3 {
        let mut last_loss = 0;
        for step in 1.. {
            let name = || format!("{query:?} seed {seed} failures {rank}@{step}");
            match verdict(query, setup, seed, &[crash(rank, step)]) {
                Outcome::Right { has_failed: 0 } if 100 * last_loss > protected * step => {
                    return Some(format!("{}: lost at step {last_loss}", name()));
                }
                Outcome::Right { has_failed: 0 } => break,
                Outcome::Right { .. } => {}
                Outcome::Lost => last_loss = step,
                Outcome::Wrong(text) => return Some(format!("{}: {text}", name())),
            }
        }
    }
    None
}

#[test]
fn queries_survive_a_failure_at_every_step() {
    for query in QUERIES {
        for seed in 1..4 {
            let error = failures_at_every_step(query, &Setup::default(), seed);
            assert_eq!(error, None);
        }
    }
}

/// The number of steps of a rank without failures.
fn steps(query: Query, setup: &Setup, rank: usize) -> u32 {
    let is_over = |step: &u32| {
        let outcome = verdict(query, setup, 1, &[crash(rank, *step)]);
        matches!(outcome, Outcome::Right { has_failed: 0 })
    };
    (1..).find(is_over).expect("a query ends")
}

/// Two failures, with two replicas of each input: every pair of steps with FTSORT_TESTS=explore, otherwise some.
#[test]
fn queries_survive_pairs_of_failures() {
    let mut setup = Setup::default();
    setup.config.store = StoreChoice::Memory(2);
    for (query, first) in QUERIES.into_iter().zip([0, 1, 2].into_iter().cycle()) {
        let second = (first + 1) % 3;
        let most = steps(query, &setup, first);
        for one in (1..most).step_by(sized_search(5, 2, 1)) {
            let stride = sized_search(23, 1, 1);
            for other in (1 + one % stride..2 * most).step_by(stride as usize) {
                let failures = [crash(first, one), crash(second, other)];
                if let Outcome::Wrong(text) = verdict(query, &setup, 1, &failures) {
                    panic!("{query:?} {first}@{one} {second}@{other}: {text}");
                }
            }
        }
    }
}

/// The last step of a call that uses files may be committed on a rank alone, which fails before the others learn it.
fn failures_with_files(query: Query, releases: bool, seed: u64) -> Option<String> {
    let mut setup = Setup {
        in_files: true,
        ..Setup::default()
    };
    setup.config.release_after_run = releases;
    failures_at_every_step(query, &setup, seed)
}

#[test]
fn queries_that_use_files_survive_a_failure_at_every_step() {
    let seeds = 1..sized_search(4, 8, 30);
    for (query, seed) in QUERIES
        .into_iter()
        .flat_map(|query| seeds.clone().map(move |seed| (query, seed)))
    {
        for releases in [false, true] {
            assert_eq!(failures_with_files(query, releases, seed), None);
        }
    }
}

#[test]
fn files_of_queries_are_not_removed_before_all_ranks_have_learned_the_last_commit() {
    let mutant = Mutant::RemovedWithoutAgreement;
    // With the seed that detected it before.
    for (query, before) in [
        (Query::ByKey, 24),
        (Query::Argsort, 5),
        (Query::Positions, 4),
        (Query::GroupBy, 13),
    ] {
        let fails = |seed| failures_with_files(query, true, seed).is_some();
        detecting_seed(mutant, before, 30, fails);
    }
}

/// The mutants of queries, and the query in which each is detected.
#[test]
fn every_mutant_of_a_query_is_detected() {
    for (mutant, query) in [
        (Mutant::PositionsNotRecovered, Query::Positions),
        (Mutant::SummariesMissing, Query::Unique),
        (Mutant::SearchNotCommitted, Query::Select),
        (Mutant::ResultReleasedTooEarly, Query::Unique),
    ] {
        let mut setup = Setup::default();
        setup.config.release_after_run = mutant == Mutant::ResultReleasedTooEarly;
        assert_eq!(failures_at_every_step(query, &setup, 1), None);
        let fails = |seed| failures_at_every_step(query, &setup, seed).is_some();
        assert!(with_mutant(mutant, || (1..30).any(fails)), "{mutant:?}");
    }
}

//! Explores failures on simulated ranks and replays them.

// This is a command-line program, unlike the library.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod scale;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use ftsort_core::mutants::Mutant;
use ftsort_core::sort::Method;
use ftsort_sim::StoreKind;
use ftsort_sim::svg::draw_diagram;
use ftsort_sim::timeline::{TimelineLine, is_about_a_message};
use ftsort_sim::trial::{
    ExhaustiveSearch, Trial, TrialRange, TrialRun, catch, draw, exhaust, judge, read_method, run,
    shrink,
};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

/// Thousands of ranks use little memory each, and all of it in turn: this allocator takes half of the time of the system's
/// allocator then, and less memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs distributed sorts on simulated ranks, injects failures at any step, and checks the results.
///
/// A trial is one simulated job. It is written as one line, such as "ranks=4 seed=7 store=memory:1 failures=2@60",
/// which repeats it exactly. `failures=2@60` makes rank 2 fail at its step 60.
#[derive(Parser)]
#[command(name = "ftsort-sim", version)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run random trials, one for each seed, on all processors. The first trial with a wrong result is made smaller
    /// and printed.
    Explore {
        /// First seed
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Number of seeds
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
        #[command(flatten)]
        range: RangeOptions,
    },
    /// Run one trial with every sequence of failures, at every step of every rank.
    Exhaust {
        /// The trial without failures, such as "ranks=4 store=memory:1"
        #[arg(default_value = "ranks=3")]
        trial: String,
        /// Largest number of failures [default: all ranks but one]
        #[arg(long, alias = "losses")]
        failures: Option<usize>,
        /// Skip the steps after a committed state that was searched before
        #[arg(long)]
        memo: bool,
        /// Inject early failure reports and partitions besides crashes
        #[arg(long, alias = "outlive")]
        all_modes: bool,
        /// Refuse each allocation, access to a file and callback of each rank in turn, alone and with all later ones of
        /// the job, besides the failures
        #[arg(long)]
        refusals: bool,
    },
    /// Switch on one mutant (a defect of the protocol) after the other. Random trials must detect each of them.
    Mutants {
        /// Largest number of seeds for each mutant
        #[arg(long, default_value_t = 100_000)]
        seeds: u64,
        #[command(flatten)]
        range: RangeOptions,
    },
    /// Run one sort on many ranks, and print its figures: time, memory, messages, bytes, control data, the largest share
    /// of the result, and the time by a network clock
    Scale(scale::ScaleOptions),
    /// Repeat one trial and print its timeline: one line with the time, the rank and a sentence for each event.
    Replay {
        /// The trial, as another command printed it
        trial: String,
        /// Print every message, too
        #[arg(long)]
        messages: bool,
        /// Write a space-time diagram of the trial to this SVG file
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
}

#[derive(Args)]
struct RangeOptions {
    /// Number of ranks: N, or MIN-MAX
    #[arg(long, default_value = "1-8", value_parser = read_ranks)]
    ranks: RangeInclusive<usize>,
    /// Store: none, memory:REPLICAS, versions:REPLICAS, parity:SHARES:RANKS, directory or reload. May be repeated
    /// [default: all]
    #[arg(long, value_parser = read_store)]
    store: Vec<StoreKind>,
    /// Sort: samplesort, hyperquicksort, hyperquicksort_paper, quickmerge, quickmerge_paper, quickmerge_modified,
    /// bitonic, bitonic_merge or reliable. May be repeated [default: all]
    #[arg(long, value_parser = read_algorithm)]
    algorithm: Vec<Method>,
}

impl RangeOptions {
    fn range(&self) -> TrialRange {
        TrialRange {
            fewest: *self.ranks.start(),
            most: *self.ranks.end(),
            stores: self.store.clone(),
            algorithms: self.algorithm.clone(),
            mutant: None,
        }
    }
}

fn read_algorithm(text: &str) -> Result<Method, String> {
    read_method(text)
        .ok_or_else(|| format!("{text:?} is not a sort; use one of the names that --help lists"))
}

fn read_ranks(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (fewest, most) = text.split_once('-').unwrap_or((text, text));
    match (fewest.parse(), most.parse()) {
        (Ok(fewest), Ok(most)) if 1 <= fewest && fewest <= most && most <= 1024 => {
            Ok(fewest..=most)
        }
        _ => Err(format!(
            "{text:?} is not a number of ranks; use N or MIN-MAX with numbers from 1 to 1024"
        )),
    }
}

fn read_store(text: &str) -> Result<StoreKind, String> {
    StoreKind::parse(text).ok_or_else(|| {
        format!(
            "{text:?} is not a store; use none, memory:REPLICAS, versions:REPLICAS, parity:SHARES:RANKS, directory or reload"
        )
    })
}

fn progress_bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{pos}/{len} {wide_bar} {per_sec} {eta}");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn main() -> ExitCode {
    let passed = match Options::parse().command {
        Command::Explore { from, seeds, range } => Ok(explore(from, seeds, &range.range())),
        Command::Exhaust {
            trial,
            failures,
            memo,
            all_modes,
            refusals,
        } => every_failure(&trial, failures, |search| ExhaustiveSearch {
            memo,
            all_modes,
            refusals,
            ..search
        }),
        Command::Mutants { seeds, range } => Ok(mutants(seeds, &range.range())),
        Command::Scale(options) => scale::scale(&options),
        Command::Replay {
            trial,
            messages,
            svg,
        } => replay(&trial, messages, svg.as_deref()),
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn explore(from: u64, seeds: u64, range: &TrialRange) -> bool {
    let bar = progress_bar(seeds);
    let failed = (from..from + seeds).into_par_iter().find_map_any(|seed| {
        let trial = draw(seed, range);
        let wrong = judge(&trial, &run(&trial, false));
        bar.inc(1);
        wrong.map(|wrong| (trial, wrong))
    });
    bar.finish_and_clear();
    match &failed {
        None => println!(
            "{seeds} trials with the seeds {from} to {}: all results are correct",
            from + seeds - 1
        ),
        Some((trial, wrong)) => report(trial, wrong),
    }
    failed.is_none()
}

/// Prints a trial with a wrong result, a smaller one, and the command that repeats it.
fn report(trial: &Trial, wrong: &str) {
    println!("{trial}\n  {wrong}");
    let small = shrink(trial);
    if small != *trial {
        let wrong = judge(&small, &run(&small, false)).unwrap_or_default();
        println!("a smaller trial:\n{small}\n  {wrong}");
    }
    print_replay_command(&small);
}

fn print_replay_command(trial: &Trial) {
    println!("  to replay it: ftsort-sim replay --svg trial.svg \"{trial}\"");
}

fn every_failure(
    line: &str,
    failures: Option<usize>,
    set: impl Fn(ExhaustiveSearch<'_>) -> ExhaustiveSearch<'_>,
) -> Result<bool, String> {
    let trial = Trial::parse(line)?;
    let most = trial.ranks.saturating_sub(1);
    let failures = failures.unwrap_or(most).min(most);
    let style = ProgressStyle::with_template("{pos} runs {per_sec} {elapsed}");
    let bar = ProgressBar::new_spinner();
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let progress = || bar.inc(1);
    let result = exhaust(&set(ExhaustiveSearch {
        trial: trial.clone(),
        failures,
        memo: false,
        all_modes: false,
        refusals: false,
        progress: &progress,
    }));
    bar.finish_and_clear();
    match &result {
        Ok(runs) => {
            println!(
                "{trial}: {runs} runs with up to {failures} failures: all results are correct"
            );
        }
        Err(failing) => report(&failing.0, &failing.1),
    }
    Ok(result.is_ok())
}

fn mutants(seeds: u64, range: &TrialRange) -> bool {
    let bar = progress_bar(Mutant::ALL.len() as u64);
    let search = |mutant: &Mutant| {
        let caught = catch(*mutant, range, seeds);
        bar.inc(1);
        caught
    };
    let caught: Vec<_> = Mutant::ALL.par_iter().map(search).collect();
    bar.finish_and_clear();
    for (mutant, caught) in Mutant::ALL.iter().zip(&caught) {
        match caught {
            Some((trial, wrong)) => {
                println!("{mutant:?}: {wrong}");
                print_replay_command(trial);
            }
            None => println!("{mutant:?}: NOT DETECTED"),
        }
    }
    let missed = caught.iter().filter(|caught| caught.is_none()).count();
    println!("{} mutants, {missed} not detected", Mutant::ALL.len());
    missed == 0
}

fn replay(line: &str, messages: bool, svg: Option<&Path>) -> Result<bool, String> {
    let trial = Trial::parse(line)?;
    let run = run(&trial, true);
    for entry in &run.trace {
        if messages || !is_about_a_message(&entry.event) {
            println!("{}", TimelineLine(entry));
        }
    }
    print_results(&run);
    let wrong = judge(&trial, &run);
    match &wrong {
        None => println!("The result is correct."),
        Some(wrong) => println!("The result is wrong: {wrong}"),
    }
    if let Some(path) = svg {
        let picture = draw_diagram(trial.ranks, &run.trace);
        std::fs::write(path, picture)
            .map_err(|error| format!("--svg {}: cannot write the file: {error}", path.display()))?;
    }
    Ok(wrong.is_none())
}

fn print_results(run: &TrialRun) {
    for (sort, outcomes) in run.outcomes.iter().enumerate() {
        for (rank, outcome) in outcomes.iter().enumerate() {
            let end = match outcome {
                None => "does not return".to_string(),
                Some(outcome) => match &outcome.result {
                    Ok(result) => {
                        let nodes: Vec<String> = (result.blocks.iter())
                            .map(|block| {
                                format!("{} ({} records)", block.node, block.records.len())
                            })
                            .collect();
                        format!("returns the blocks of nodes {}", nodes.join(", "))
                    }
                    Err(error) => format!("returns an error: {error}"),
                },
            };
            println!("Sort {sort}: rank {rank} {end}.");
        }
    }
}

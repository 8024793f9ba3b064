//! Explores failures on simulated ranks and replays them.

// This is a program for people, unlike the library.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::ops::RangeInclusive;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use ftsort_core::mutants::Mutant;
use ftsort_core::sort::Method;
use ftsort_sim::trial::{
    Exhaustion, Keeping, Range, Trial, catch, draw, exhaust, judge, read_keeping, read_method, run,
    shrink,
};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

/// Sorts on simulated ranks, loses them at any step, and judges what comes of it.
#[derive(Parser)]
#[command(name = "ftsort-sim")]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Random trials, one for each seed, on all processors; the first that fails is made smaller.
    Explore {
        /// The first seed
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// How many seeds
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
        #[command(flatten)]
        range: RangeOptions,
    },
    /// Every sequence of up to so many crashes, at every step of every rank.
    Exhaust {
        /// The trial without faults, such as "ranks=4 store=memory:1"
        #[arg(default_value = "ranks=3")]
        trial: String,
        /// How many ranks may be lost; all but one if not given
        #[arg(long)]
        losses: Option<usize>,
        /// Do not look twice at what follows a committed state
        #[arg(long)]
        memo: bool,
        /// Ranks may also go on for a while after they were declared dead
        #[arg(long)]
        outlive: bool,
    },
    /// Plants one defect after the other; random trials must find each.
    Mutants {
        /// How many seeds for each, at most
        #[arg(long, default_value_t = 100_000)]
        seeds: u64,
        #[command(flatten)]
        range: RangeOptions,
    },
    /// Plays one trial, given as the line that another command printed, and shows what happened when.
    Replay {
        /// The line
        trial: String,
        /// Messages too, not only rounds, faults and commits
        #[arg(long)]
        messages: bool,
    },
}

#[derive(Args)]
struct RangeOptions {
    /// How many ranks: N, or FEWEST-MOST
    #[arg(long, default_value = "1-8", value_parser = read_ranks)]
    ranks: RangeInclusive<usize>,
    /// none, memory:COPIES, versions:COPIES, directory, reload; several times for several; all if
    /// not given
    #[arg(long, value_parser = read_store)]
    store: Vec<Keeping>,
    /// samplesort, hyperquicksort, hyperquicksort_paper, quickmerge, quickmerge_paper,
    /// quickmerge_modified, bitonic, bitonic_merge; several times for several; all if not given
    #[arg(long, value_parser = read_algorithm)]
    algorithm: Vec<Method>,
}

impl RangeOptions {
    fn range(&self) -> Range {
        Range {
            fewest: *self.ranks.start(),
            most: *self.ranks.end(),
            stores: self.store.clone(),
            algorithms: self.algorithm.clone(),
            set_mutant: None,
        }
    }
}

fn read_algorithm(text: &str) -> Result<Method, String> {
    read_method(text).ok_or_else(|| format!("{text}: no such algorithm"))
}

fn read_ranks(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (fewest, most) = text.split_once('-').unwrap_or((text, text));
    match (fewest.parse(), most.parse()) {
        (Ok(fewest), Ok(most)) if 1 <= fewest && fewest <= most && most <= 1024 => {
            Ok(fewest..=most)
        }
        _ => Err(format!("{text}: expected N or FEWEST-MOST, from 1 to 1024")),
    }
}

fn read_store(text: &str) -> Result<Keeping, String> {
    read_keeping(text).ok_or_else(|| format!("{text} is no store"))
}

fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{pos}/{len} {wide_bar} {per_sec} {eta}");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn main() -> ExitCode {
    let fine = match Options::parse().what {
        What::Explore { from, seeds, range } => explore(from, seeds, &range.range()),
        What::Exhaust {
            trial,
            losses,
            memo,
            outlive,
        } => all_faults(&trial, losses, memo, outlive),
        What::Mutants { seeds, range } => mutants(seeds, &range.range()),
        What::Replay { trial, messages } => replay(&trial, messages),
    };
    match fine {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn explore(from: u64, seeds: u64, range: &Range) -> bool {
    let bar = bar(seeds);
    let failed = (from..from + seeds).into_par_iter().find_map_any(|seed| {
        let trial = draw(seed, range);
        let wrong = judge(&trial, &run(&trial, false));
        bar.inc(1);
        wrong.map(|wrong| (trial, wrong))
    });
    bar.finish_and_clear();
    match &failed {
        None => println!("{seeds} seeds from {from} on: all right"),
        Some((trial, wrong)) => report(trial, wrong),
    }
    failed.is_none()
}

fn report(trial: &Trial, wrong: &str) {
    println!("{trial}\n  {wrong}\nsmaller:");
    let small = shrink(trial);
    let wrong = judge(&small, &run(&small, false)).unwrap_or_default();
    println!("{small}\n  {wrong}");
}

fn all_faults(line: &str, losses: Option<usize>, memo: bool, outlive: bool) -> bool {
    let Some(trial) = Trial::parse(line) else {
        println!("not a trial: {line}");
        return false;
    };
    let losses = losses.unwrap_or(trial.ranks - 1).min(trial.ranks - 1);
    let style = ProgressStyle::with_template("{pos} runs {per_sec} {elapsed}");
    let bar = ProgressBar::new_spinner();
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let result = exhaust(&Exhaustion {
        trial: trial.clone(),
        losses,
        memo,
        outlive,
        progress: &|| bar.inc(1),
    });
    bar.finish_and_clear();
    match &result {
        Ok(runs) => println!("{trial}: {runs} runs with up to {losses} losses, all right"),
        Err(failing) => report(&failing.0, &failing.1),
    }
    result.is_ok()
}

fn mutants(seeds: u64, range: &Range) -> bool {
    let bar = bar(Mutant::ALL.len() as u64);
    let search = |defect: &Mutant| {
        let caught = catch(*defect, range, seeds);
        bar.inc(1);
        caught
    };
    let caught: Vec<_> = Mutant::ALL.par_iter().map(search).collect();
    bar.finish_and_clear();
    for (defect, caught) in Mutant::ALL.iter().zip(&caught) {
        match caught {
            Some((trial, wrong)) => println!("{defect:?}: {wrong}\n  {trial}"),
            None => println!("{defect:?}: NOT CAUGHT"),
        }
    }
    let missed = caught.iter().filter(|caught| caught.is_none()).count();
    println!("{} defects, {missed} not caught", Mutant::ALL.len());
    missed == 0
}

fn replay(line: &str, messages: bool) -> bool {
    let Some(trial) = Trial::parse(line) else {
        println!("not a trial: {line}");
        return false;
    };
    let run = run(&trial, true);
    for entry in &run.entries {
        let rank = entry.rank.map_or("-".to_string(), |rank| rank.to_string());
        if messages || !entry.text.starts_with("sends ") {
            println!("{:>8}  {rank:>4}  {}", entry.time, entry.text);
        }
    }
    for (sort, outcomes) in run.outcomes.iter().enumerate() {
        for (rank, outcome) in outcomes.iter().enumerate() {
            let end = match outcome {
                None => "does not return".to_string(),
                Some(outcome) => match &outcome.parts {
                    Ok(parts) => format!("returns {} blocks", parts.len()),
                    Err(error) => format!("returns {error}"),
                },
            };
            println!("sort {sort}, rank {rank}: {end}");
        }
    }
    let wrong = judge(&trial, &run);
    println!("{}", wrong.as_deref().unwrap_or("right"));
    wrong.is_none()
}

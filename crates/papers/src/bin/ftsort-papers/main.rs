//! Prints the tables of the papers' models as comma-separated values.

// This is a program for people, unlike the library.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod dgrp;
mod reliable;

use std::ops::RangeInclusive;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ftsort_papers::tree::trials::{CellSummary, FaultCell, PatternSample, examine};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

/// Recomputes tables and figures of the papers.
#[derive(Parser)]
#[command(name = "ftsort-papers")]
struct Cli {
    #[command(subcommand)]
    table: Table,
}

#[derive(Subcommand)]
enum Table {
    /// The 1989 paper's reliable sort with liars among the nodes: what is noticed, as CSV.
    Byzantine(reliable::ByzantineArgs),
    /// What the 1989 paper's reliable sort costs beside others, counted, as CSV.
    Reliable(reliable::CostArgs),
    /// The 2018 paper's group of recommended processes, on made-up hosts, as CSV files.
    #[command(subcommand)]
    Dgrp(dgrp::DgrpCommand),
    /// Counts what tree communication costs around random faults, as comma-separated values; patterns
    /// for which a theorem does not hold are told on stderr.
    Tree {
        /// Of the hypercube: N, or FEWEST-MOST
        #[arg(long, default_value = "3-10", value_parser = read_dimensions)]
        dimensions: RangeInclusive<u32>,
        /// How many patterns for each number of faulty links and nodes
        #[arg(long, default_value_t = 1000)]
        patterns: u64,
        /// Decides the patterns
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Looks for the best trees in cubes of up to so many dimensions
        #[arg(long, default_value_t = 7)]
        optimum: u32,
    },
}

fn read_dimensions(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (fewest, most) = text.split_once('-').unwrap_or((text, text));
    match (fewest.parse(), most.parse()) {
        (Ok(fewest), Ok(most)) if 1 <= fewest && fewest <= most && most <= 12 => Ok(fewest..=most),
        _ => Err(format!("{text}: expected N or FEWEST-MOST, from 1 to 12")),
    }
}

fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{pos}/{len} {wide_bar} {per_sec} {eta}");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn main() -> ExitCode {
    let complete = match Cli::parse().table {
        Table::Byzantine(options) => reliable::byzantine_table(&options),
        Table::Reliable(options) => reliable::cost_table(&options),
        Table::Dgrp(table) => dgrp::run(&table),
        Table::Tree {
            dimensions,
            patterns,
            seed,
            optimum,
        } => trees(dimensions, patterns, seed, optimum),
    };
    if complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn trees(dimensions: RangeInclusive<u32>, patterns: u64, seed: u64, optimum: u32) -> bool {
    let cells = FaultCell::all(dimensions);
    let bar = bar(cells.len() as u64 * patterns);
    let mut header = true;
    let mut wrong = 0;
    for cell in cells {
        let of_one = |index: u64| {
            let sample = examine(&cell.draw(seed, index), cell.dimensions <= optimum);
            bar.inc(1);
            sample
        };
        let samples: Vec<PatternSample> =
            (0..patterns).into_par_iter().filter_map(of_one).collect();
        for (index, sample) in samples.iter().enumerate() {
            if let Some(text) = &sample.wrong {
                bar.suspend(|| eprintln!("{cell:?}, pattern {index}: {text}"));
                wrong += 1;
            }
        }
        for summary in CellSummary::of(cell, &samples) {
            if std::mem::take(&mut header) {
                println!("{}", summary.header());
            }
            println!("{summary}");
        }
    }
    bar.finish_and_clear();
    wrong == 0
}

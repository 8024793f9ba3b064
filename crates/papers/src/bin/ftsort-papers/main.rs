//! Prints the tables of the papers' models as comma-separated values. Must never: contain a model
//! itself.

// Unlike the library, this is a program that prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod dgrp;
mod reliable;

use std::ops::RangeInclusive;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ftsort_papers::sorting::balance::{PivotScheme, largest_deviation};
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
    /// Detection of Byzantine nodes by the 1989 paper's reliable sort (Section 4), as CSV.
    Byzantine(reliable::ByzantineArgs),
    /// Cost of the 1989 paper's reliable sort and of other methods (Section 5), as CSV.
    Reliable(reliable::CostArgs),
    /// The 2018 paper's group of recommended processes on simulated hosts, as CSV files.
    #[command(subcommand)]
    Dgrp(dgrp::DgrpCommand),
    /// Expected balance of the 2024 paper's pivots (Section 5.2), as CSV: the largest deviation of a
    /// share from the ideal one, in percent.
    Balance {
        /// log2 of the number of keys
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(10..=60))]
        size: u32,
        /// Number of sorts of which the worst counts
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
        repetitions: u32,
    },
    /// Cost of tree communication with random faulty links (1996), as CSV. Patterns for which a
    /// theorem does not hold are reported on stderr.
    Tree {
        /// Dimensions of the hypercube: N, or FEWEST-MOST
        #[arg(long, default_value = "3-10", value_parser = read_dimensions)]
        dimensions: RangeInclusive<u32>,
        /// Number of patterns for each number of faulty links and nodes
        #[arg(long, default_value_t = 1000)]
        patterns: u64,
        /// Seed of the patterns
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Largest dimension of a hypercube for which the best trees are searched
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
        Table::Balance { size, repetitions } => balance(size, repetitions),
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

fn balance(size: u32, repetitions: u32) -> bool {
    println!("log2_count,nodes,hyperquicksort,quickmerge,quickmerge_modified");
    for dimension in 2..=5 {
        let percents = PivotScheme::ALL
            .map(|scheme| largest_deviation(scheme, size, dimension, repetitions, 20_000));
        let percents = percents.map(|percent| format!("{percent:.4}"));
        println!("{size},{},{}", 1 << dimension, percents.join(","));
    }
    true
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

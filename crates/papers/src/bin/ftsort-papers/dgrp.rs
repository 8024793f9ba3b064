//! The subcommands of `ftsort-papers dgrp`, which write CSV files: the 2018 paper's experiments on
//! monitoring, and larger groups beyond it. Must never: decide whether a result is right.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use ftsort_core::members::Rank;
use ftsort_core::monitor::{Assignment, MonitorOptions, Suspicion};
use ftsort_papers::dgrp::Distribution;
use ftsort_papers::dgrp::cluster::{self, ClusterRun, TABLE_3};
use ftsort_papers::dgrp::foreground;
use ftsort_papers::dgrp::hyperquicksort::{MeanInterval, SortModel, Tolerance, mean_interval};
use ftsort_papers::dgrp::large_group::{self, LargeGroupConfig, LargeGroupStats, SLOWDOWNS};
use rayon::prelude::*;

/// The experiments on monitoring.
#[derive(Subcommand)]
pub enum DgrpCommand {
    /// 18 hosts with the paper's loads: samples.csv, changes.csv, sizes.csv, states.csv
    Cluster(ClusterArgs),
    /// HyperQuickSort on 16 processors in virtual time, over ULFM and over DGRP: sorts.csv (Figure 14)
    Sort(SortArgs),
    /// A large group with VCube's testing graph: large_DISTRIBUTION.csv
    Large(LargeArgs),
    /// A group of 16 ranks: one is permanently slow (slow.csv); monitors in the foreground
    /// (foreground.csv)
    Small(SmallArgs),
}

/// Options of `cluster`.
#[derive(Args)]
pub struct ClusterArgs {
    /// Number of testing intervals of one second
    #[arg(long, default_value_t = 30_000)]
    intervals: u32,
    /// Seed of the run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the files
    #[arg(long)]
    out: PathBuf,
}

/// A distribution of test times.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum DistributionArg {
    /// Lognormal with sigma 0.5
    Lognormal,
    /// Pareto with alpha 2.5
    Pareto,
}

impl DistributionArg {
    fn value(self) -> Distribution {
        match self {
            DistributionArg::Lognormal => Distribution::Lognormal(0.5),
            DistributionArg::Pareto => Distribution::Pareto(2.5),
        }
    }

    fn name(self) -> &'static str {
        match self {
            DistributionArg::Lognormal => "lognormal",
            DistributionArg::Pareto => "pareto",
        }
    }
}

/// Options of `sort`.
#[derive(Args)]
pub struct SortArgs {
    /// Number of repetitions of each cell
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..))]
    repetitions: u64,
    /// Factor by which a victim computes slower while it replies late
    #[arg(long, default_value_t = 1.0)]
    work_factor: f64,
    /// Folder for the files
    #[arg(long)]
    out: PathBuf,
}

/// Options of `small`.
#[derive(Args)]
pub struct SmallArgs {
    /// Seed of the run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the files
    #[arg(long)]
    out: PathBuf,
}

/// A part of the rules that `large` compares.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RuleSet {
    /// Thresholds with several factors
    Threshold,
    /// The same with self-doubt
    Doubt,
    /// Several limits of phi
    Phi,
}

impl RuleSet {
    fn name(self) -> &'static str {
        match self {
            RuleSet::Threshold => "threshold",
            RuleSet::Doubt => "doubt",
            RuleSet::Phi => "phi",
        }
    }
}

/// Options of `large`.
#[derive(Args)]
pub struct LargeArgs {
    /// Distribution of test times
    #[arg(long, value_enum, default_value = "lognormal")]
    distribution: DistributionArg,
    /// Number of ranks
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=4096))]
    ranks: u32,
    /// Only these rules; their name is appended to the name of the file
    #[arg(long, value_enum)]
    rules: Option<RuleSet>,
    /// Number of seconds that are counted, after 40 that are not
    #[arg(long, default_value_t = 120)]
    seconds: u32,
    /// Seed of the run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the files
    #[arg(long)]
    out: PathBuf,
}

/// Runs an experiment and writes its files. Returns false, after a message on stderr, if they
/// cannot be written.
pub fn run(command: &DgrpCommand) -> bool {
    let done = match command {
        DgrpCommand::Cluster(options) => cluster_tables(options),
        DgrpCommand::Sort(options) => sort_table(options),
        DgrpCommand::Large(options) => large_table(options),
        DgrpCommand::Small(options) => slow_table(options).and_then(|()| foreground_table(options)),
    };
    if let Err(error) = &done {
        eprintln!("cannot write the tables: {error}");
    }
    done.is_ok()
}

/// Writes the mean time of each scenario and way, with its 95 % confidence interval.
fn sort_table(options: &SortArgs) -> io::Result<()> {
    let model = SortModel {
        work_factor: options.work_factor,
        ..SortModel::default()
    };
    let mut file = table(
        &options.out,
        "sorts.csv",
        "victims,tolerance,mean_seconds,half_width",
    )?;
    for victims in [0, 1, 8, 15] {
        for tolerance in Tolerance::ALL {
            let runs = (0..options.repetitions).into_par_iter();
            let seconds: Vec<f64> = runs
                .map(|seed| model.seconds(tolerance, victims, seed))
                .collect();
            let interval = mean_interval(&seconds);
            let MeanInterval { mean, half_width } = interval;
            writeln!(file, "{victims},{tolerance:?},{mean:.2},{half_width:.2}")?;
        }
    }
    file.flush()
}

/// Creates a file with this name and first line.
fn table(folder: &Path, name: &str, header: &str) -> io::Result<io::BufWriter<fs::File>> {
    fs::create_dir_all(folder)?;
    let mut file = io::BufWriter::new(fs::File::create(folder.join(name))?);
    writeln!(file, "{header}")?;
    Ok(file)
}

/// Returns the paper's options, and three variants beyond it.
fn variants() -> [(&'static str, MonitorOptions); 4] {
    let paper = MonitorOptions::default();
    let doubt = MonitorOptions {
        self_doubt: true,
        ..paper.clone()
    };
    let strict = MonitorOptions {
        learn_late: false,
        ..doubt.clone()
    };
    let vcube = MonitorOptions {
        assignment: Assignment::VCube,
        ..paper.clone()
    };
    [
        ("paper", paper),
        ("self_doubt", doubt),
        ("self_doubt_strict", strict),
        ("vcube", vcube),
    ]
}

fn pair(tester: u32, tested: u32) -> (Rank, Rank) {
    (Rank(tester), Rank(tested))
}

fn samples(folder: &Path, run: &ClusterRun) -> io::Result<()> {
    let header = "tester,tested,seconds,reply_ms,threshold_ms,passed_in_row,counter";
    let mut file = table(folder, "samples.csv", header)?;
    for sample in &run.samples {
        writeln!(
            file,
            "{},{},{:.3},{:.3},{:.3},{},{}",
            sample.tester,
            sample.tested,
            sample.time,
            1e3 * sample.reply,
            1e3 * sample.threshold,
            sample.passes,
            sample.counter
        )?;
    }
    file.flush()
}

fn cluster_tables(options: &ClusterArgs) -> io::Result<()> {
    let folder = &options.out;
    let watched = [pair(11, 2), pair(6, 2), pair(0, 11), pair(1, 0)];
    let bar = super::bar(variants().len() as u64);
    let runs: Vec<(&str, ClusterRun)> = variants()
        .into_par_iter()
        .map(|(name, rules)| {
            let run = cluster::run(&rules, options.intervals, &watched, options.seed);
            bar.inc(1);
            (name, run)
        })
        .collect();
    bar.finish_and_clear();
    samples(folder, &runs[0].1)?;
    let mut changes = table(folder, "changes.csv", "variant,seconds,by,rank,counter")?;
    let mut sizes = table(folder, "sizes.csv", "variant,interval,size")?;
    let header = "variant,host,jobs,paper_counter,counter,messages_per_rank_and_second";
    let mut states = table(folder, "states.csv", header)?;
    for (name, run) in &runs {
        for change in &run.changes {
            let (by, rank) = (change.by, change.rank);
            writeln!(
                changes,
                "{name},{:.3},{by},{rank},{}",
                change.time, change.counter
            )?;
        }
        let mut before = None;
        for (interval, size) in (1..).zip(&run.sizes) {
            if before.replace(size) != Some(size) {
                writeln!(sizes, "{name},{interval},{size}")?;
            }
        }
        let rate = run.messages as f64 / f64::from(options.intervals) / TABLE_3.len() as f64;
        for (host, ((jobs, paper), counter)) in TABLE_3.iter().zip(&run.counters).enumerate() {
            writeln!(states, "{name},{host},{jobs},{paper},{counter},{rate:.2}")?;
        }
    }
    changes.flush()?;
    sizes.flush()?;
    states.flush()
}

/// Returns the mean and the 95th percentile.
fn summary(times: &[f64]) -> (f64, f64) {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
    let late = sorted
        .get(sorted.len() * 19 / 20)
        .or(sorted.last())
        .copied();
    (mean, late.unwrap_or_default())
}

const MULTIPLES: [f64; 7] = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0];
const PHIS: [f64; 7] = [1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0];

fn configurations(options: &LargeArgs) -> Vec<(&'static str, f64, LargeGroupConfig)> {
    let paper = MonitorOptions {
        assignment: Assignment::VCube,
        ..MonitorOptions::default()
    };
    let wanted = |some: RuleSet| options.rules.is_none_or(|rules| rules == some);
    let mut rules = Vec::new();
    let doubts = [(RuleSet::Threshold, false), (RuleSet::Doubt, true)];
    for (_, self_doubt) in doubts.into_iter().filter(|(some, _)| wanted(*some)) {
        rules.extend(MULTIPLES.map(|multiple| {
            let options = MonitorOptions {
                multiple,
                self_doubt,
                ..paper.clone()
            };
            ("threshold", multiple, options)
        }));
    }
    rules.extend(
        PHIS.into_iter()
            .filter(|_| wanted(RuleSet::Phi))
            .map(|limit| {
                let options = MonitorOptions {
                    suspicion: Suspicion::Phi(limit),
                    ..paper.clone()
                };
                ("phi", limit, options)
            }),
    );
    let config = |(kind, value, rules): (&'static str, f64, MonitorOptions)| {
        let config = LargeGroupConfig {
            ranks: options.ranks as usize,
            options: rules,
            distribution: options.distribution.value(),
            stalls_per_second: 1.0 / 600.0,
            warm_up: 40,
            counted: options.seconds,
            seed: options.seed,
        };
        (kind, value, config)
    };
    rules.into_iter().map(config).collect()
}

fn large_table(options: &LargeArgs) -> io::Result<()> {
    let configurations = configurations(options);
    let bar = super::bar(configurations.len() as u64);
    let all_stats: Vec<LargeGroupStats> = configurations
        .par_iter()
        .map(|(.., config)| {
            let stats = large_group::run(config);
            bar.inc(1);
            stats
        })
        .collect();
    bar.finish_and_clear();
    let header = "distribution,rule,value,self_doubt,rank_hours,false_exclusions,stalled,outside,\
                  messages_per_rank_and_second,slowdown,slowed,detected,detect_mean_s,detect_late_s,\
                  known_mean_s,known_late_s";
    let distribution = options.distribution.name();
    let part = options
        .rules
        .map_or_else(String::new, |rules| format!("_{}", rules.name()));
    let mut file = table(
        &options.out,
        &format!("large_{distribution}{part}.csv"),
        header,
    )?;
    for ((rule, value, config), stats) in configurations.iter().zip(&all_stats) {
        for (slowdown, times) in SLOWDOWNS.iter().zip(&stats.by_slowdown) {
            let (detected, detected_late) = summary(&times.detected);
            let (known, known_late) = summary(&times.known);
            writeln!(
                file,
                "{distribution},{rule},{value},{},{:.3},{},{},{:.5},{:.2},{slowdown},{},{},{detected:.3},\
                 {detected_late:.3},{known:.3},{known_late:.3}",
                config.options.self_doubt,
                stats.rank_hours,
                stats.false_exclusions,
                stats.stalled,
                stats.outside,
                stats.messages,
                times.count,
                times.detected.len(),
            )?;
        }
    }
    file.flush()
}

fn foreground_table(options: &SmallArgs) -> io::Result<()> {
    let rules: Vec<(&str, f64, MonitorOptions)> = MULTIPLES
        .iter()
        .map(|multiple| {
            let options = MonitorOptions {
                multiple: *multiple,
                ..MonitorOptions::default()
            };
            ("threshold", *multiple, options)
        })
        .chain(PHIS.iter().map(|limit| {
            let options = MonitorOptions {
                suspicion: Suspicion::Phi(*limit),
                ..MonitorOptions::default()
            };
            ("phi", *limit, options)
        }))
        .collect();
    let header = "distribution,rule,value,rank_intervals,false_exclusions,slowdown,slowed,detected";
    let mut file = table(&options.out, "foreground.csv", header)?;
    for times in [DistributionArg::Lognormal, DistributionArg::Pareto] {
        let (name, distribution) = (times.name(), times.value());
        for (rule, value, rules) in &rules {
            let stats = foreground::run(rules, 16, distribution, 20_000, options.seed);
            let by_slowdown = foreground::SLOWDOWNS
                .iter()
                .zip(stats.by_slowdown)
                .zip(stats.detected);
            for ((slowdown, slowed), detected) in by_slowdown {
                let (intervals, errors) = (stats.rank_intervals, stats.false_exclusions);
                writeln!(
                    file,
                    "{name},{rule},{value},{intervals},{errors},{slowdown},{slowed},{detected}"
                )?;
            }
        }
    }
    file.flush()
}

fn slow_table(options: &SmallArgs) -> io::Result<()> {
    let slowdowns = [1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0];
    let distribution = Distribution::Lognormal(0.2);
    let cells: Vec<(bool, f64)> = [true, false]
        .into_iter()
        .flat_map(|learn_late| slowdowns.map(|slowdown| (learn_late, slowdown)))
        .collect();
    let rows: Vec<f64> = cells
        .par_iter()
        .map(|(learn_late, slowdown)| {
            let rules = MonitorOptions {
                learn_late: *learn_late,
                ..MonitorOptions::default()
            };
            large_group::recommended_share_when_slow(
                &rules,
                *slowdown,
                distribution,
                1000,
                options.seed,
            )
        })
        .collect();
    let mut file = table(
        &options.out,
        "slow.csv",
        "learn_late,slowdown,recommended_share",
    )?;
    for ((learn_late, slowdown), share) in cells.iter().zip(rows) {
        writeln!(file, "{learn_late},{slowdown},{share:.4}")?;
    }
    file.flush()
}

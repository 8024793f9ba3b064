//! The group of recommended processes on made-up hosts, as subcommands that write CSV: the 2018 paper's
//! experiments on monitoring, and a crowd past it. They must never judge: a table is for people.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use ftsort_core::members::Rank;
use ftsort_core::monitor::{Assignment, MonitorOptions, Suspicion};
use ftsort_papers::dgrp::Distribution;
use ftsort_papers::dgrp::cluster::{self, ClusterRun, TABLE_3};
use ftsort_papers::dgrp::foreground;
use ftsort_papers::dgrp::large_group::{self, LargeGroupConfig, LargeGroupStats, SLOWDOWNS};
use rayon::prelude::*;

/// DgrpCommand is played.
#[derive(Subcommand)]
pub enum DgrpCommand {
    /// 18 hosts with the paper's loads: samples.csv, changes.csv, sizes.csv, states.csv
    Cluster(Cluster),
    /// A thousand ranks in VCube's graph: crowd_SPREAD.csv
    Large(Large),
    /// 16 ranks of which one is slow for good: slow.csv; and 16 that tell each other their measurements:
    /// rounds.csv
    Small(Small),
}

/// MonitorOptions of `cluster`.
#[derive(Args)]
pub struct Cluster {
    /// How many testing intervals of one second
    #[arg(long, default_value_t = 30_000)]
    intervals: u32,
    /// Decides everything
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder that the files are for
    #[arg(long)]
    out: PathBuf,
}

/// How times are distribution.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum DistributionArg {
    /// Sigma 0.5
    Lognormal,
    /// Alpha 2.5
    Pareto,
}

impl DistributionArg {
    fn distribution(self) -> Distribution {
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

/// MonitorOptions of `few`.
#[derive(Args)]
pub struct Small {
    /// Decides everything
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder that the files are for
    #[arg(long)]
    out: PathBuf,
}

/// Some of the rules that a crowd is played with.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RuleSet {
    /// Thresholds by factor
    Threshold,
    /// The same with self-doubt
    Doubt,
    /// Limits of phi
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

/// MonitorOptions of `crowd`.
#[derive(Args)]
pub struct Large {
    /// How the times of tests are distribution
    #[arg(long, value_enum, default_value = "lognormal")]
    distribution: DistributionArg,
    /// How many ranks
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=4096))]
    ranks: u32,
    /// Only these rules, into a file with their name at its end
    #[arg(long, value_enum)]
    rules: Option<RuleSet>,
    /// How many seconds are counted, after 40 that are not
    #[arg(long, default_value_t = 120)]
    seconds: u32,
    /// Decides everything
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder that the files are for
    #[arg(long)]
    out: PathBuf,
}

/// Plays, and writes the files; false, with a word on it, if they could not be written.
pub fn run(what: &DgrpCommand) -> bool {
    let done = match what {
        DgrpCommand::Cluster(options) => cluster_tables(options),
        DgrpCommand::Large(options) => large_table(options),
        DgrpCommand::Small(options) => slow_table(options).and_then(|()| foreground_table(options)),
    };
    if let Err(error) = &done {
        println!("cannot write: {error}");
    }
    done.is_ok()
}

/// A file of this name, with this first line.
fn table(folder: &Path, name: &str, header: &str) -> io::Result<io::BufWriter<fs::File>> {
    fs::create_dir_all(folder)?;
    let mut file = io::BufWriter::new(fs::File::create(folder.join(name))?);
    writeln!(file, "{header}")?;
    Ok(file)
}

/// The paper's rules, and past them.
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
    let header = "tester,tested,seconds,reply_ms,threshold_ms,good_in_row,counter";
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
            sample.good,
            sample.counter
        )?;
    }
    file.flush()
}

fn cluster_tables(options: &Cluster) -> io::Result<()> {
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

/// The mean, and what 19 in 20 are below.
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

fn settings(options: &Large) -> Vec<(&'static str, f64, LargeGroupConfig)> {
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
            distribution: options.distribution.distribution(),
            stalls_per_second: 1.0 / 600.0,
            warm: 40,
            counted: options.seconds,
            seed: options.seed,
        };
        (kind, value, config)
    };
    rules.into_iter().map(config).collect()
}

fn large_table(options: &Large) -> io::Result<()> {
    let settings = settings(options);
    let bar = super::bar(settings.len() as u64);
    let all_stats: Vec<LargeGroupStats> = settings
        .par_iter()
        .map(|(.., config)| {
            let stats = large_group::run(config);
            bar.inc(1);
            stats
        })
        .collect();
    bar.finish_and_clear();
    let header = "distribution,rule,value,self_doubt,rank_hours,false_exclusions,stalled,outside,\
                  messages_per_rank_and_second,slowdown,kind,noticed,notice_mean_s,notice_late_s,\
                  known_mean_s,known_late_s";
    let distribution = options.distribution.name();
    let part = options
        .rules
        .map_or_else(String::new, |rules| format!("_{}", rules.name()));
    let mut file = table(
        &options.out,
        &format!("crowd_{distribution}{part}.csv"),
        header,
    )?;
    for ((rule, value, config), stats) in settings.iter().zip(&all_stats) {
        for (slowdown, kind) in SLOWDOWNS.iter().zip(&stats.by_slowdown) {
            let (noticed, noticed_late) = summary(&kind.noticed);
            let (known, known_late) = summary(&kind.known);
            writeln!(
                file,
                "{distribution},{rule},{value},{},{:.3},{},{},{:.5},{:.2},{slowdown},{},{},{noticed:.3},\
                 {noticed_late:.3},{known:.3},{known_late:.3}",
                config.options.self_doubt,
                stats.rank_hours,
                stats.false_exclusions,
                stats.stalled,
                stats.outside,
                stats.messages,
                kind.count,
                kind.noticed.len(),
            )?;
        }
    }
    file.flush()
}

fn foreground_table(options: &Small) -> io::Result<()> {
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
    let header = "distribution,rule,value,rank_intervals,false_exclusions,slowdown,kind,noticed";
    let mut file = table(&options.out, "rounds.csv", header)?;
    for times in [DistributionArg::Lognormal, DistributionArg::Pareto] {
        let (name, distribution) = (times.name(), times.distribution());
        for (rule, value, rules) in &rules {
            let stats = foreground::run(rules, 16, distribution, 20_000, options.seed);
            let by_slowdown = foreground::SLOWDOWNS
                .iter()
                .zip(stats.by_slowdown)
                .zip(stats.noticed);
            for ((slowdown, kind), noticed) in by_slowdown {
                let (of, errors) = (stats.rank_intervals, stats.false_exclusions);
                writeln!(
                    file,
                    "{name},{rule},{value},{of},{errors},{slowdown},{kind},{noticed}"
                )?;
            }
        }
    }
    file.flush()
}

fn slow_table(options: &Small) -> io::Result<()> {
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
            large_group::slow_for_good(&rules, *slowdown, distribution, 1000, options.seed)
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

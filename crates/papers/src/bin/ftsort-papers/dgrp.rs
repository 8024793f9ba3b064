//! The group of recommended processes on made-up hosts, as subcommands that write CSV: the 2018 paper's
//! experiments on monitoring, and a crowd past it. They must never judge: a table is for people.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use ftsort_core::members::Rank;
use ftsort_core::monitor::{Assignment, Options, Suspicion};
use ftsort_papers::dgrp::Spread;
use ftsort_papers::dgrp::cluster::{self, Run, TABLE_3};
use ftsort_papers::dgrp::crowd::{self, ILLS, Setting, Tally};
use ftsort_papers::dgrp::rounds;
use rayon::prelude::*;

/// What is played.
#[derive(Subcommand)]
pub enum What {
    /// 18 hosts with the paper's loads: samples.csv, changes.csv, sizes.csv, states.csv
    Cluster(Cluster),
    /// A thousand ranks in VCube's graph: crowd_SPREAD.csv
    Crowd(Crowd),
    /// 16 ranks of which one is slow for good: slow.csv; and 16 that tell each other their figures:
    /// rounds.csv
    Few(Few),
}

/// Options of `cluster`.
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

/// How times are spread.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Times {
    /// Sigma 0.5
    Lognormal,
    /// Alpha 2.5
    Pareto,
}

impl Times {
    fn spread(self) -> Spread {
        match self {
            Times::Lognormal => Spread::Lognormal(0.5),
            Times::Pareto => Spread::Pareto(2.5),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Times::Lognormal => "lognormal",
            Times::Pareto => "pareto",
        }
    }
}

/// Options of `few`.
#[derive(Args)]
pub struct Few {
    /// Decides everything
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder that the files are for
    #[arg(long)]
    out: PathBuf,
}

/// Some of the rules that a crowd is played with.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rules {
    /// Thresholds by factor
    Threshold,
    /// The same with self-doubt
    Doubt,
    /// Limits of phi
    Phi,
}

impl Rules {
    fn name(self) -> &'static str {
        match self {
            Rules::Threshold => "threshold",
            Rules::Doubt => "doubt",
            Rules::Phi => "phi",
        }
    }
}

/// Options of `crowd`.
#[derive(Args)]
pub struct Crowd {
    /// How the times of tests are spread
    #[arg(long, value_enum, default_value = "lognormal")]
    spread: Times,
    /// How many ranks
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..=4096))]
    ranks: u32,
    /// Only these rules, into a file with their name at its end
    #[arg(long, value_enum)]
    rules: Option<Rules>,
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
pub fn play(what: &What) -> bool {
    let done = match what {
        What::Cluster(options) => cluster_tables(options),
        What::Crowd(options) => crowd_table(options),
        What::Few(options) => slow_table(options).and_then(|()| rounds_table(options)),
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
fn variants() -> [(&'static str, Options); 4] {
    let paper = Options::default();
    let doubt = Options {
        self_doubt: true,
        ..paper.clone()
    };
    let strict = Options {
        learn_late: false,
        ..doubt.clone()
    };
    let vcube = Options {
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

fn samples(folder: &Path, run: &Run) -> io::Result<()> {
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
    let runs: Vec<(&str, Run)> = variants()
        .into_par_iter()
        .map(|(name, rules)| {
            let run = cluster::play(&rules, options.intervals, &watched, options.seed);
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

fn settings(options: &Crowd) -> Vec<(&'static str, f64, Setting)> {
    let paper = Options {
        assignment: Assignment::VCube,
        ..Options::default()
    };
    let wanted = |some: Rules| options.rules.is_none_or(|rules| rules == some);
    let mut rules = Vec::new();
    let doubts = [(Rules::Threshold, false), (Rules::Doubt, true)];
    for (_, self_doubt) in doubts.into_iter().filter(|(some, _)| wanted(*some)) {
        rules.extend(MULTIPLES.map(|multiple| {
            let options = Options {
                multiple,
                self_doubt,
                ..paper.clone()
            };
            ("threshold", multiple, options)
        }));
    }
    rules.extend(
        PHIS.into_iter()
            .filter(|_| wanted(Rules::Phi))
            .map(|limit| {
                let options = Options {
                    suspicion: Suspicion::Phi(limit),
                    ..paper.clone()
                };
                ("phi", limit, options)
            }),
    );
    let setting = |(kind, value, rules): (&'static str, f64, Options)| {
        let setting = Setting {
            ranks: options.ranks as usize,
            options: rules,
            spread: options.spread.spread(),
            stalls: 1.0 / 600.0,
            warm: 40,
            counted: options.seconds,
            seed: options.seed,
        };
        (kind, value, setting)
    };
    rules.into_iter().map(setting).collect()
}

fn crowd_table(options: &Crowd) -> io::Result<()> {
    let settings = settings(options);
    let bar = super::bar(settings.len() as u64);
    let tallies: Vec<Tally> = settings
        .par_iter()
        .map(|(.., setting)| {
            let tally = crowd::play(setting);
            bar.inc(1);
            tally
        })
        .collect();
    bar.finish_and_clear();
    let header = "spread,rule,value,self_doubt,rank_hours,false_exclusions,stalled,outside,\
                  messages_per_rank_and_second,slowdown,ill,noticed,notice_mean_s,notice_late_s,\
                  known_mean_s,known_late_s";
    let spread = options.spread.name();
    let part = options
        .rules
        .map_or_else(String::new, |rules| format!("_{}", rules.name()));
    let mut file = table(&options.out, &format!("crowd_{spread}{part}.csv"), header)?;
    for ((rule, value, setting), tally) in settings.iter().zip(&tallies) {
        for (slowdown, ill) in ILLS.iter().zip(&tally.ills) {
            let (noticed, noticed_late) = summary(&ill.noticed);
            let (known, known_late) = summary(&ill.known);
            writeln!(
                file,
                "{spread},{rule},{value},{},{:.3},{},{},{:.5},{:.2},{slowdown},{},{},{noticed:.3},\
                 {noticed_late:.3},{known:.3},{known_late:.3}",
                setting.options.self_doubt,
                tally.rank_hours,
                tally.false_exclusions,
                tally.stalled,
                tally.outside,
                tally.messages,
                ill.count,
                ill.noticed.len(),
            )?;
        }
    }
    file.flush()
}

fn rounds_table(options: &Few) -> io::Result<()> {
    let rules: Vec<(&str, f64, Options)> = MULTIPLES
        .iter()
        .map(|multiple| {
            let options = Options {
                multiple: *multiple,
                ..Options::default()
            };
            ("threshold", *multiple, options)
        })
        .chain(PHIS.iter().map(|limit| {
            let options = Options {
                suspicion: Suspicion::Phi(*limit),
                ..Options::default()
            };
            ("phi", *limit, options)
        }))
        .collect();
    let header = "spread,rule,value,rank_intervals,false_exclusions,slowdown,ill,noticed";
    let mut file = table(&options.out, "rounds.csv", header)?;
    for times in [Times::Lognormal, Times::Pareto] {
        let (name, spread) = (times.name(), times.spread());
        for (rule, value, rules) in &rules {
            let tally = rounds::play(rules, 16, spread, 20_000, options.seed);
            let ills = rounds::ILLS.iter().zip(tally.ills).zip(tally.noticed);
            for ((slowdown, ill), noticed) in ills {
                let (of, errors) = (tally.rank_intervals, tally.false_exclusions);
                writeln!(
                    file,
                    "{name},{rule},{value},{of},{errors},{slowdown},{ill},{noticed}"
                )?;
            }
        }
    }
    file.flush()
}

fn slow_table(options: &Few) -> io::Result<()> {
    let slowdowns = [1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0];
    let spread = Spread::Lognormal(0.2);
    let cells: Vec<(bool, f64)> = [true, false]
        .into_iter()
        .flat_map(|learn_late| slowdowns.map(|slowdown| (learn_late, slowdown)))
        .collect();
    let rows: Vec<f64> = cells
        .par_iter()
        .map(|(learn_late, slowdown)| {
            let rules = Options {
                learn_late: *learn_late,
                ..Options::default()
            };
            crowd::slow_for_good(&rules, *slowdown, spread, 1000, options.seed)
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

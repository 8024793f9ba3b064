//! The subcommand that runs one sort on many ranks.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use ftsort_core::sort::Method;
use ftsort_sim::StoreKind;
use ftsort_sim::scale::{
    Distribution, ScaleReport, ScaleSetting, draw_failures, predicted_seconds, run_scale,
};
use ftsort_sim::transport::NetworkModel;

#[derive(Args)]
pub struct ScaleOptions {
    /// Number of ranks: up to 65536, and up to 1048576 with --predict
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    ranks: u32,
    /// Records of each rank
    #[arg(long, default_value_t = 64)]
    records: usize,
    /// Size of a record in bytes: a multiple of 8
    #[arg(long, default_value_t = 8, value_parser = read_record_bytes)]
    record_bytes: usize,
    /// Keys: uniform, duplicates, zipf or sorted
    #[arg(long, default_value = "uniform", value_parser = read_distribution)]
    distribution: Distribution,
    /// Sort: a name of `ftsort-sim explore --help`
    #[arg(long, default_value = "samplesort_2", value_parser = super::read_algorithm)]
    algorithm: Method,
    /// Seed of the inputs, the failures and the interleaving
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Store: none, memory:REPLICAS or parity:SHARES:RANKS
    #[arg(long, default_value = "memory:1", value_parser = super::read_store)]
    store: StoreKind,
    /// Number of failures at random steps. The sort runs without failures first
    #[arg(long, default_value_t = 0)]
    failures: usize,
    /// File with the parameters of a network, as in crates/sim/networks. Without it time is not simulated
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// Number of records for which one record stands by the network clock
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Print the time by the formula alone, without a simulation
    #[arg(long, requires = "network")]
    predict: bool,
    /// Append the figures to this CSV file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn read_record_bytes(text: &str) -> Result<usize, String> {
    let bytes: Option<usize> = text.parse().ok();
    let bytes = bytes.filter(|bytes| *bytes > 0 && bytes % 8 == 0);
    bytes.ok_or_else(|| format!("{text:?} is not a size of records; use a multiple of 8"))
}

fn read_distribution(text: &str) -> Result<Distribution, String> {
    let names = Distribution::ALL.map(|(_, name)| name).join(", ");
    Distribution::parse(text)
        .ok_or_else(|| format!("{text:?} is not a distribution; use one of {names}"))
}

/// The greatest number of ranks that is simulated.
const MOST_SIMULATED: u32 = 1 << 16;

/// The names of the columns of the CSV file.
const COLUMNS: [&str; 20] = [
    "ranks",
    "records",
    "record_bytes",
    "algorithm",
    "store",
    "scale",
    "failures",
    "failed",
    "wall_seconds",
    "peak_megabytes",
    "messages_mean",
    "messages_most",
    "bytes_mean",
    "bytes_most",
    "control_mean",
    "control_most",
    "control_step",
    "largest_share",
    "simulated_seconds",
    "predicted_seconds",
];

/// Runs the sort, without failures and then with failures. Returns whether all results are right.
pub fn scale(options: &ScaleOptions) -> Result<bool, String> {
    let network = match &options.network {
        Some(path) => Some(NetworkModel {
            scale: options.scale,
            ..read_network(path)?
        }),
        None => None,
    };
    let setting = ScaleSetting {
        ranks: options.ranks as usize,
        records: options.records,
        record_bytes: options.record_bytes,
        distribution: options.distribution,
        method: options.algorithm,
        seed: options.seed,
        store: options.store,
        network,
    };
    if let Some(network) = network.filter(|_| options.predict) {
        let seconds = predicted_seconds(&setting, &network);
        println!("predicted time {:.3} ms", seconds * 1e3);
        return Ok(true);
    }
    if options.ranks > MOST_SIMULATED {
        return Err(format!(
            "--ranks {}: at most {MOST_SIMULATED} ranks are simulated; add --predict for the formula alone",
            options.ranks
        ));
    }
    let timed = |failures: &[_]| {
        let start = Instant::now();
        let report = run_scale(&setting, failures);
        let seconds = start.elapsed().as_secs_f64();
        print(&setting, &report, seconds);
        (report, seconds)
    };
    let (first, seconds) = timed(&[]);
    write_row(options, &setting, &first, seconds)?;
    let mut is_right = first.wrong.is_none();
    if options.failures > 0 && is_right {
        let failures = draw_failures(&setting, &first, options.failures);
        let (report, seconds) = timed(&failures);
        is_right = report.wrong.is_none();
        if report.lost {
            return Ok(true);
        }
        write_row(options, &setting, &report, seconds)?;
        if setting.network.is_some() {
            let more = report.seconds - first.seconds;
            println!("  the failures take {:.3} ms more", more * 1e3);
        }
    }
    Ok(is_right)
}

/// Says whether the result of a sort is right.
fn outcome_of(report: &ScaleReport) -> &str {
    match &report.wrong {
        Some(wrong) => wrong,
        None if report.lost => "data are lost: a rank failed before its input was protected",
        None => "the result is right",
    }
}

fn read_network(path: &Path) -> Result<NetworkModel, String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!(
            "--network {}: cannot read the file: {error}",
            path.display()
        )
    })?;
    NetworkModel::parse(&text)
}

fn print(setting: &ScaleSetting, report: &ScaleReport, seconds: f64) {
    let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    println!(
        "{} ranks, {} records of {} bytes, failures [{}]: {seconds:.1} s, {} MB at most; messages {:.0} (at most {}), \
         bytes {:.0} ({}), control bytes received {:.0} ({}), in one step {}; largest share {:.4}; {}",
        setting.ranks,
        setting.records,
        setting.record_bytes,
        failures.join(","),
        peak_megabytes(),
        report.messages.mean,
        report.messages.most,
        report.bytes.mean,
        report.bytes.most,
        report.control.mean,
        report.control.most,
        report.control_step,
        report.largest_share,
        outcome_of(report),
    );
    if let Some(network) = setting.network {
        println!(
            "  simulated time {:.3} ms, without failures {:.3} ms by the formula",
            report.seconds * 1e3,
            predicted_seconds(setting, &network) * 1e3
        );
    }
}

fn write_row(
    options: &ScaleOptions,
    setting: &ScaleSetting,
    report: &ScaleReport,
    seconds: f64,
) -> Result<(), String> {
    let Some(path) = &options.csv else {
        return Ok(());
    };
    let failed =
        |error: std::io::Error| format!("--csv {}: cannot write the file: {error}", path.display());
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(failed)?;
    if file.metadata().map_err(failed)?.len() == 0 {
        writeln!(file, "{}", COLUMNS.join(",")).map_err(failed)?;
    }
    let row = [
        options.ranks.to_string(),
        options.records.to_string(),
        options.record_bytes.to_string(),
        ftsort_sim::trial::method_name(options.algorithm).to_string(),
        options.store.to_string(),
        options.scale.to_string(),
        report.failures.len().to_string(),
        report.failed.to_string(),
        format!("{seconds:.2}"),
        peak_megabytes().to_string(),
        format!("{:.1}", report.messages.mean),
        report.messages.most.to_string(),
        format!("{:.0}", report.bytes.mean),
        report.bytes.most.to_string(),
        format!("{:.0}", report.control.mean),
        report.control.most.to_string(),
        report.control_step.to_string(),
        format!("{:.4}", report.largest_share),
        format!("{:.6}", report.seconds),
        match setting.network {
            Some(network) => format!("{:.6}", predicted_seconds(setting, &network)),
            None => String::new(),
        },
    ];
    writeln!(file, "{}", row.join(",")).map_err(failed)
}

/// The largest memory of this process so far in megabytes; 0 where the system does not tell.
fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1000
}

//! One set of cases for both implementations of the transport's calls: simulated ranks, over many seeds, and
//! MPI with SIGKILL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ftsort_core::transport::{Protocol, ProtocolConfig, Repair, Timeout};
use ftsort_kernels::test_size::sized;
use ftsort_sim::transport::{SimConfig, run_ranks};
use ftsort_sim::trial::{CONFORMANCE_CASES, ConformanceCase};

/// The number of seeds: with FTSORT_TESTS=all more than by default.
fn seeds() -> u64 {
    sized(60, 300)
}

/// The message of an mpirun that gives up before it has started any rank, about once in a thousand runs.
const NOT_STARTED: &str = "PMIx server's listener thread failed to start";

const LIMIT_SECONDS: &str = "60";

fn survivors(case: &ConformanceCase) -> impl Iterator<Item = usize> + '_ {
    (0..case.ranks).filter(|rank| !case.victims.contains(&(*rank as u32)))
}

#[test]
fn simulated_ranks_conform() {
    for case in CONFORMANCE_CASES {
        for seed in 0..seeds() {
            let script = SimConfig {
                seed,
                ..SimConfig::default()
            };
            for repair in [Repair::Agree, Repair::Shrink] {
                let run = case.run;
                let result = run_ranks(case.ranks, &script, move |_, mpi| {
                    let config = ProtocolConfig {
                        repair,
                        chunk: 500,
                        timeout: Timeout::Never,
                        fan_out: ProtocolConfig::FAN_OUT,
                    };
                    run(&mut Protocol::new(mpi, config))
                });
                let context = format!("{}, seed {seed}, {repair:?}", case.name);
                assert_eq!(result.hung, [], "{context}");
                assert_eq!(result.misuse, None, "{context}");
                for rank in survivors(case) {
                    assert_eq!(
                        result.outcomes[rank],
                        Some(Ok(())),
                        "{context}, rank {rank}"
                    );
                }
            }
        }
    }
}

/// Runs a case once, and returns the exit status and the errors that were printed.
fn run_on_mpi(number: usize, case: &ConformanceCase, folder: &Path) -> String {
    let mpirun = std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".into());
    let output = Command::new("timeout")
        .args(["-k", "2", LIMIT_SECONDS, "env", "--block-signal=PIPE"])
        .arg(mpirun)
        .args(["--with-ft", "ulfm", "--oversubscribe", "-np"])
        .arg(case.ranks.to_string())
        .arg(env!("CARGO_BIN_EXE_ftsort-conform"))
        .arg(number.to_string())
        .arg(folder)
        .env("OMPI_MCA_btl_sm_backing_directory", folder)
        .stdin(Stdio::null())
        .output()
        .expect("timeout and mpirun are installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}\n{errors}", output.status)
}

fn on_mpi(number: usize, case: &ConformanceCase, folder: &Path) {
    const TRIES: usize = 3;
    // An earlier process with the same number may have left it.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).expect("a folder");
    let mut text = String::new();
    for _ in 0..TRIES {
        text = run_on_mpi(number, case, folder);
        if !text.contains(NOT_STARTED) {
            break;
        }
    }
    for rank in 0..case.ranks {
        let left = fs::read_to_string(folder.join(rank.to_string())).ok();
        let dies = case.victims.contains(&(rank as u32));
        let expected = (!dies).then_some("ok");
        assert_eq!(
            left.as_deref(),
            expected,
            "{}, rank {rank}: {text}",
            case.name
        );
    }
    fs::remove_dir_all(folder).expect("a folder");
}

/// Two cases run at a time, because MPI's start and end take most of the time of a case. Each has its shared memory in a
/// folder of its own (docs/open-mpi.md, section 16).
#[test]
fn mpi_conforms() {
    let memory = PathBuf::from("/dev/shm");
    let place = if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    };
    std::thread::scope(|scope| {
        for first in 0..2 {
            let place = &place;
            scope.spawn(move || {
                let cases = CONFORMANCE_CASES.iter().enumerate();
                for (number, case) in cases.skip(first).step_by(2) {
                    let name = format!("ftsort-conform-{}-{number}", std::process::id());
                    on_mpi(number, case, &place.join(name));
                }
            });
        }
    });
}

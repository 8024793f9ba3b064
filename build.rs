//! Finds MPI through its compiler wrapper, probes it for ULFM, generates the `MPIX_*` bindings with the types of
//! mpi-sys, and sets how the library is linked. Writes to OUT_DIR only.
//!
//! | variable | meaning |
//! |---|---|
//! | `MPICC` | the MPI compiler wrapper; default `mpicc` from PATH |
//! | `FTSORT_ULFM` | `auto` (default): use ULFM if it is Open MPI and has it; `on`: fail if ULFM is absent; `off`: never use it |

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// Uses all functions that the library calls; an MPI with which it does not compile and link counts as without
/// ULFM. scripts/setup.py uses the same file.
const ULFM_PROBE: &str = include_str!("src/ulfm/probe.c");

/// The input of bindgen. The constants get names of their own, because MPI libraries define them in different
/// ways (macro, enumerator), and not all have the run-time switch `MPIX_FT`.
const ULFM_HEADER: &str = r"
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
static const int FTSORT_MPI_ERR_PROC_FAILED = MPIX_ERR_PROC_FAILED;
static const int FTSORT_MPI_ERR_REVOKED = MPIX_ERR_REVOKED;
static const int FTSORT_MPI_VERSION = MPI_VERSION;
static const int FTSORT_MPI_ERR_LASTCODE = MPI_ERR_LASTCODE;
#ifdef MPIX_FT
static const int FTSORT_MPI_FT = MPIX_FT;
#else
static const int FTSORT_MPI_FT = -1;
#endif
";

/// Constants that are enumerators of a named enum in MPICH, where mpi-sys gives them other names than in Open MPI.
const COMBINERS: &str = r"
#include <mpi.h>
static const int COMBINER_NAMED = MPI_COMBINER_NAMED;
static const int COMBINER_DUP = MPI_COMBINER_DUP;
static const int COMBINER_CONTIGUOUS = MPI_COMBINER_CONTIGUOUS;
static const int COMBINER_RESIZED = MPI_COMBINER_RESIZED;
static const int COMBINER_STRUCT = MPI_COMBINER_STRUCT;
static const int COMBINER_F90_INTEGER = MPI_COMBINER_F90_INTEGER;
static const int COMBINER_F90_REAL = MPI_COMBINER_F90_REAL;
static const int COMBINER_F90_COMPLEX = MPI_COMBINER_F90_COMPLEX;
";

/// Ends with one clear line instead of a panic's backtrace.
fn refuse(text: &str) -> ! {
    println!("cargo::error={text}");
    exit(1)
}

struct Wrapper {
    mpicc: String,
    flags: Vec<String>,
}

impl Wrapper {
    fn find() -> Wrapper {
        let mpicc = env::var("MPICC").unwrap_or_else(|_| "mpicc".into());
        let shown = match Command::new(&mpicc).arg("-show").output() {
            Ok(output) if output.status.success() => output.stdout,
            _ => refuse(&format!(
                "`{mpicc} -show` does not run: install an MPI library, or set MPICC to its C compiler wrapper"
            )),
        };
        let flags = String::from_utf8_lossy(&shown)
            .split_whitespace()
            .map(|flag| flag.trim_matches(['\'', '"']).to_string())
            .collect();
        Wrapper { mpicc, flags }
    }

    fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.flags
            .iter()
            .filter_map(move |flag| flag.strip_prefix(prefix))
    }

    /// Compiles and links, because some MPI libraries declare functions that they do not define.
    fn links(&self, options: &[&str], out_dir: &Path) -> Result<(), String> {
        let file = out_dir.join("ulfm_probe.c");
        fs::write(&file, ULFM_PROBE).expect("OUT_DIR is writable");
        let output = Command::new(&self.mpicc)
            .args(options)
            .arg(&file)
            .arg("-o")
            .arg(out_dir.join("ulfm_probe"))
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

fn has_ulfm(wrapper: &Wrapper, out_dir: &Path) -> bool {
    let wanted = env::var("FTSORT_ULFM").unwrap_or_else(|_| "auto".into());
    match wanted.as_str() {
        "off" => false,
        // MPICH has the functions, but the job ends when a process fails: used only on demand.
        "auto" => wrapper.links(&["-DREQUIRE_OPEN_MPI"], out_dir).is_ok(),
        "on" => match wrapper.links(&[], out_dir) {
            Ok(()) => true,
            Err(why) => refuse(&format!(
                "FTSORT_ULFM=on, but {} has no complete ULFM: {}",
                wrapper.mpicc,
                why.lines().next().unwrap_or("the probe does not link")
            )),
        },
        other => refuse(&format!(
            "FTSORT_ULFM is {other:?}, expected auto, on or off"
        )),
    }
}

/// Starts the generation of bindings for a header with this text.
fn bindings(wrapper: &Wrapper, text: &str, out_dir: &Path, name: &str) -> bindgen::Builder {
    let header = out_dir.join(name);
    fs::write(&header, text).expect("OUT_DIR is writable");
    bindgen::builder()
        .header(header.to_str().expect("OUT_DIR is UTF-8"))
        .clang_args(
            wrapper
                .with_prefix("-I")
                .map(|folder| format!("-I{folder}")),
        )
}

fn write(builder: bindgen::Builder, file: &Path) {
    let bindings = builder
        .generate()
        .unwrap_or_else(|error| refuse(&format!("cannot make bindings of MPI: {error}")));
    bindings.write_to_file(file).expect("OUT_DIR is writable");
}

fn write_combiners(wrapper: &Wrapper, out_dir: &Path) {
    let builder = bindings(wrapper, COMBINERS, out_dir, "combiners.h");
    let builder = builder.allowlist_var("COMBINER_.*");
    write(builder, &out_dir.join("combiners.rs"));
}

fn write_ulfm(wrapper: &Wrapper, out_dir: &Path) {
    // The types of mpi-sys are used, so that the crate has one MPI_Comm.
    let builder = bindings(wrapper, ULFM_HEADER, out_dir, "ulfm.h")
        .allowlist_function(
            "MPIX_Comm_(agree|iagree|revoke|is_revoked|shrink|get_failed|failure_ack|failure_get_acked)",
        )
        .allowlist_var("FTSORT_MPI_.*")
        .allowlist_recursively(false)
        .blocklist_type("MPI_.*")
        .raw_line("use mpi_sys::{MPI_Comm, MPI_Group, MPI_Request};");
    write(builder, &out_dir.join("mpix.rs"));
}

/// Directories that the dynamic loader searches anyway need no RUNPATH.
fn is_usual_folder(folder: &str) -> bool {
    ["/lib", "/usr/lib", "/usr/local/lib"]
        .iter()
        .any(|usual| folder == *usual || folder.starts_with(&format!("{usual}/")))
}

fn main() {
    for name in [
        "MPICC",
        "FTSORT_ULFM",
        "LIBCLANG_PATH",
        "BINDGEN_EXTRA_CLANG_ARGS",
    ] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/ulfm/probe.c");
    println!("cargo::rustc-check-cfg=cfg(ftsort_ulfm)");

    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let wrapper = Wrapper::find();
    if has_ulfm(&wrapper, &out_dir) {
        println!("cargo::rustc-cfg=ftsort_ulfm");
        write_ulfm(&wrapper, &out_dir);
    }
    write_combiners(&wrapper, &out_dir);

    // For 0.x versions every minor version may change the ABI.
    let major = env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets it");
    let minor = env::var("CARGO_PKG_VERSION_MINOR").expect("cargo sets it");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libftsort.so.{major}.{minor}");

    // mpi-sys links MPI but does not set where the loader finds it.
    if env::var_os("CARGO_FEATURE_NO_RPATH").is_none() {
        for folder in wrapper
            .with_prefix("-L")
            .filter(|folder| !is_usual_folder(folder))
        {
            println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
        }
    }

    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .map(|output| output.stdout);
    let version = version.unwrap_or_default();
    println!(
        "cargo::rustc-env=FTSORT_RUSTC={}",
        String::from_utf8_lossy(&version).trim()
    );
}

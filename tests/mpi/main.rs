//! Runs programs in C, C++ and Fortran against the library on real MPI, and kills real processes.
//!
//! Each case is one `mpirun` with a time limit; a case that exceeds it fails. Two cases run at a time, because
//! MPI's start and end take most of the time of a case. The cases of `monitors` measure which rank is slow, so
//! they run one at a time. They run first, so that the failures of all other cases end the output.
//!
//! Environment variables:
//! - `FTSORT_TESTS`: `quick`, the default, runs the cases that their tables mark as quick, which together cover
//!   every C function, store, algorithm and kind of failure; `all` runs all cases.
//! - `FTSORT_LIBRARY_DIR`: the folder of the `libftsort.so` to be tested; by default the one that cargo has just
//!   built beside this program.
//! - `FTSORT_MPI_LIMIT`: the time limit of a run in seconds, 180 by default; a busy machine needs a higher one.
//! - `FTSORT_MPI_TIMES`: a file to which each case adds a line with its time in seconds and its name.
//! - `FTSORT_SANITIZER`: `address`, for example: compiles the C and C++ programs with this sanitizer.
//! - `MPICC`, `MPICXX`, `FC` and `MPIRUN`: other commands for `mpicc`, `mpicxx`, `gfortran` and `mpirun`. Cases in
//!   Fortran are skipped if there is no compiler for it.

mod bindings;
mod case;
mod contract;
mod corruption;
mod examples;
mod failures;
mod harness;
mod interface;
mod launch;
mod monitors;
mod originals;
mod redundancy;
mod rounds;
mod sorter;
mod sorts;
mod spares;
mod traces;
mod trees;

use case::{Case, Selection};
use libtest_mimic::{Arguments, Trial};

/// How many cases run at a time if the command line does not say it.
const CASES_AT_A_TIME: usize = 2;

fn trials(cases: impl IntoIterator<Item = Case>) -> Vec<Trial> {
    let selection = Selection::from_environment();
    let selected = cases.into_iter().filter(|case| selection.includes(case));
    selected.map(Case::into_trial).collect()
}

fn main() {
    let mut arguments = Arguments::from_args();
    let side_by_side = [
        interface::cases(),
        bindings::cases(),
        contract::cases(),
        examples::cases(),
        trees::cases(),
        rounds::cases(),
        originals::cases(),
        sorts::cases(),
        corruption::cases(),
        failures::cases(),
        spares::cases(),
        redundancy::cases(),
        traces::cases(),
    ];
    let side_by_side = trials(side_by_side.into_iter().flatten());
    let alone = trials(monitors::cases());
    let usual = arguments.test_threads.unwrap_or(CASES_AT_A_TIME);
    arguments.test_threads = Some(1);
    let mut conclusion = libtest_mimic::run(&arguments, alone);
    if !conclusion.has_failed() {
        arguments.test_threads = Some(usual);
        conclusion = libtest_mimic::run(&arguments, side_by_side);
    }
    harness::remove_memory_folders();
    conclusion.exit();
}

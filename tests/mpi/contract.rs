//! Promises of the C interface: one call that sorts, groups of communicators, callbacks that call back, an MPI that
//! is not running, and the figures and lost ranks of the last call.

use std::fs;

use libtest_mimic::Failed;

use crate::case::{Case, number, table};
use crate::harness::{Scratch, job, launch, program, require, run};

/// Part of tests/c/contract.c, ranks, failures, and what it checks.
const PARTS: &str = "
 quick | sort      | 2 |     | one call sorts on a group of the communicator
 all   | sort      | 3 |     | one call sorts on a group of the communicator
 quick | callbacks | 2 |     | a callback that calls back gets a status
 all   | callbacks | 1 |     | a callback that calls back gets a status
 quick | figures   | 2 |     | only sorts and rounds change the figures
 all   | figures   | 3 |     | only sorts and rounds change the figures
 quick | failure   | 3 | 1@2 | a fault check that loses nothing names no lost rank
";

fn part(name: &str, ranks: usize, failures: &str) -> Result<(), Failed> {
    let text = launch(ranks, failures, &program("tests/c/contract.c")?, &[name])?;
    require(text.contains("contract: fine"), "the output", &text)
}

/// MPI_Finalize must release the group of MPI_COMM_WORLD, which then merges the traces.
fn finalize_releases_the_group() -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let mut command = job(2, "", &program("tests/c/contract.c")?, &["world"]);
    let text = run(command.env("FTSORT_TRACE", folder.path().join("t")))?;
    require(text.contains("contract: fine"), "the output", &text)?;
    let merged = fs::read_to_string(folder.path().join("t.json")).unwrap_or_default();
    require(merged.contains("whole sort"), "the merged trace", &merged)?;
    folder.remove()
}

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = table(PARTS)
        .map(|row| {
            let [name, ranks, failures, title] = row.cells();
            let ranks = number(ranks);
            let title = format!("{title}, {ranks} ranks");
            Case::new(row.is_quick, title, move || part(name, ranks, failures))
        })
        .collect();
    let title = "MPI_Finalize releases the group of MPI_COMM_WORLD".to_string();
    cases.push(Case::new(true, title, finalize_releases_the_group));
    cases
}

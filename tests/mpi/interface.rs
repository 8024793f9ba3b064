//! The C functions from outside: valid, invalid and random arguments, every kind of record, several groups, errors on
//! one rank alone, and an MPI that is started without ULFM.

use std::fs;

use libtest_mimic::Failed;

use crate::case::{Case, number, table};
use crate::harness::{Scratch, job_without_ulfm, program, require, run, self_checking};
use crate::sorter::sort_with;

/// Program of tests/c, ranks, arguments, and what it checks. The seed of `arguments` is fixed: another seed may
/// find another defect, which would not be the fault of the change that is tested.
const PROGRAMS: &str = "
 quick | api       | 2 | DIR     | functions and their errors as documented
 all   | api       | 3 | DIR     | functions and their errors as documented
 quick | states    | 2 | DIR     | states of a loop, with and without a name, as documented
 all   | states    | 4 | DIR     | states of a loop, with and without a name, as documented
 all   | arguments | 1 | DIR 1 1 | random arguments get a status and do no harm
 quick | arguments | 3 | DIR 3 1 | random arguments get a status and do no harm
 all   | records   | 1 |         | records of every kind by every algorithm
 quick | records   | 2 | few     | records of every kind by every algorithm with the memory store
 all   | records   | 3 |         | records of every kind by every algorithm
 all   | records   | 4 |         | records of every kind by every algorithm
 quick | stars     | 4 | 1 0     | structs by a number and a text, and a rank that is killed
 all   | stars     | 3 | 2 1     | structs by a number and a text of 16 bits, and a rank that is killed
 all   | stars     | 4 | 4 4     | structs by a number and a text of 32 bits, and a rank that is killed
 quick | queries   | 4 | by_key -1    | keys and values, and a rank that is killed
 all   | queries   | 3 | argsort -1   | the order of records, and a rank that is killed
 quick | queries   | 3 | positions -2 | positions of records, and a rank that is killed
 all   | queries   | 4 | positions -1 | positions of records, and a rank that is killed
 quick | queries   | 4 | unique -2    | groups of equal keys, and a rank that is killed
 all   | queries   | 5 | group_by -1  | aggregates of groups, and a rank that is killed
 all   | queries   | 4 | select 0     | records at given positions
 all   | queries   | 3 | quantiles 0  | quantiles
 quick | queries   | 4 | top -1       | the first records, and a rank that is killed
 all   | queries   | 4 | gather 1000  | a gather, and a rank that is killed
 quick | queries   | 4 | gather_to_killed 1000 | a gather, and the rank that receives the records is killed
 all   | queries   | 5 | merge 0      | a tree merge of sorted lists in the order of ranks
 all   | external  | 1 | DIR 0   | sorts of files and callbacks with little memory
 quick | external  | 3 | DIR 0   | sorts of files and callbacks with little memory
 quick | external  | 3 | DIR 2   | sorts of files and callbacks with little memory, and a rank that is killed while it reads
 all   | external  | 4 | DIR -2  | sorts of files and callbacks with little memory, and a rank that is killed while it writes
 quick | refusals  | 2 | memory  | a memory limit on one rank is an error on all
 all   | refusals  | 4 | memory  | a memory limit on one rank is an error on all
 quick | refusals  | 2 | comm    | a communicator that fails on one rank fails on all
 all   | refusals  | 4 | comm    | a communicator that fails on one rank fails on all
 all   | refusals  | 2 | monitor | a monitor that fails on one rank fails on all
 quick | refusals  | 3 | monitor | a monitor that fails on one rank fails on all
 quick | refusals  | 3 | init    | a rank on which MPI fails leaves the group to the others
 quick | at_exit   | 2 |         | calls at the end of a thread and of the process
 quick | at_exit   | 2 | leave   | calls after the end by ftsort_leave
 quick | at_exit   | 3 | outside | an end by a group without the rank that has failed
 quick | at_exit   | 2 | reading | an end by ftsort_leave while a thread reads from stdin
 quick | kept_comm | 3 | 0       | groups on the communicator of the caller
 all   | kept_comm | 4 | 1       | a rank is killed while a group is made on the communicator of the caller: at the first call
 quick | kept_comm | 4 | 9       | a rank is killed while a group is made on the communicator of the caller
 all   | kept_comm | 3 | 20      | a rank is killed while a group is made on the communicator of the caller: later
 all   | groups    | 2 | turns   | two groups in turns
 all   | groups    | 2 | part    | groups of a part of the ranks
 all   | groups    | 2 | relay   | a group for each thread, one after the other
 quick | groups    | 2 | threads | a group for each thread, all at once
 all   | groups    | 4 | turns   | two groups in turns
 quick | groups    | 4 | creations 1 | groups are made while a monitor and another thread's group are at work
 all   | groups    | 4 | creations 3 | groups are made while monitors and the groups of three threads are at work
 quick | groups    | 2 | getters | a thread asks a group about its ranks during its calls
 quick | groups    | 3 | leave   | a process ends while the monitor of another group has a thread
 quick | groups    | 4 | part    | groups of a part of the ranks
 all   | groups    | 4 | relay   | a group for each thread, one after the other
 all   | groups    | 4 | threads | a group for each thread, all at once
";

/// Option of tests/c/sorter.c, and what the status of rank 0 must start with and contain.
const WITHOUT_ULFM: &str = "
 quick | -      | status=-20 | --with-ft ulfm
 all   | accept | status=0   |
";

/// Starts MPI without fault tolerance. A refused program aborts, after it has written its status.
fn without_ulfm(option: &'static str, start: &str, phrase: &str) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let place = folder.argument();
    let mut sort = sort_with(option, "");
    sort.count = "10";
    sort.algorithm = "auto";
    let sorter = program("tests/c/sorter.c")?;
    let _ = run(&mut job_without_ulfm(2, &sorter, &sort.arguments(&place)));
    let status = fs::read_to_string(folder.path().join("status.0"))?;
    let is_right = status.starts_with(&format!("{start} ")) && status.contains(phrase);
    require(is_right, "the status of rank 0", &status)?;
    folder.remove()
}

/// Ranks without a timeout and others must make the same agreements, which are reductions without ULFM.
fn timeouts_apart_without_ulfm() -> Result<(), Failed> {
    let timeouts = program("tests/c/timeouts.c")?;
    let text = run(&mut job_without_ulfm(3, &timeouts, &["apart"]))?;
    require(text.contains("timeouts: fine"), "the output", &text)
}

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = table(PROGRAMS)
        .map(|row| {
            let [program, ranks, arguments, title] = row.cells();
            let name = format!("{title}, {ranks} ranks");
            let ranks = number(ranks);
            let body = move || self_checking(program, ranks, arguments);
            Case::skippable(row.is_quick, name, body)
        })
        .collect();
    cases.extend(table(WITHOUT_ULFM).map(|row| {
        let [option, start, phrase] = row.cells();
        let name = format!("without --with-ft ulfm, option {option}: {start}");
        Case::new(row.is_quick, name, move || {
            without_ulfm(option, start, phrase)
        })
    }));
    let title = "without --with-ft ulfm, ranks without a timeout are refused";
    cases.push(Case::new(true, title, timeouts_apart_without_ulfm));
    cases
}

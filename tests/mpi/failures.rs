//! Sorts in which ranks are killed: at every point of every round, several at once, and one after another.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

use crate::case::{Case, number, table};
use crate::harness::{Scratch, job, launch, program, require, self_checking};
use crate::sorter::{sort_with, sorts};

/// One rank at each point of each round. A rank that is killed after the agreement on the last round takes its
/// result with it.
const POINTS: &str = "
 quick | store=memory    | 0@0.begin  | right
 all   | store=memory    | 2@0.store  | right
 quick | store=directory | 3@0.stored | right
 all   | store=memory    | 0@0.commit | right
 all   | store=memory    | 1@1.begin  | right
 quick | store=directory | 2@1.send   | right
 quick | store=memory    | 3@1.store  | right
 all   | store=directory | 0@1.stored | right
 quick | store=memory    | 1@1.commit | right
 all   | store=memory    | 2@2.begin  | right
 all   | store=directory | 3@2.send   | right
 all   | store=memory    | 0@2.store  | right
 all   | store=directory | 1@2.stored | right
 all   | store=memory    | 2@2.commit | right
 all   | store=memory    | 3@3.begin  | right
 all   | store=memory    | 1@3.store  | right
 all   | store=directory | 2@3.stored | right
 all   | store=memory    | 3@3.commit | ends
";

const SEVERAL: &str = "
 quick | ranks=4 store=directory:0 | 0@0 1@0 2@0 | right
 all   | ranks=5 store=directory:0 | 0@1 1@1.recover 2@2.send 3@2.recover | right
 all   | ranks=8 store=directory:0 | 7@1 6@1 5@1.send 4@2.stored 3@2.recover 2@3 1@4 | right
 quick | ranks=8 store=memory:7    | 7@1 6@1 5@1.send 4@2.stored 3@2.recover 2@3 1@4 | right
 all   | ranks=4 store=memory:1    | 0@1 1@2 2@3 | right
 quick | ranks=7 store=memory:2    | 0@1.recover 3@1 6@2 | right
 all   | ranks=4 store=reload      | 2@0.stored | right
 quick | ranks=4 store=reload      | 0@1 1@2 2@3 | right
 all   | ranks=5 store=reload      | 1@1.send 2@1.send 3@1.recover | right
";

const ALGORITHMS: &str = "
 all   | algorithm=samplesort store=memory          | 1@0.stored | right
 all   | algorithm=samplesort store=memory          | 2@1.begin  | right
 quick | algorithm=samplesort store=memory          | 0@1.send   | right
 all   | algorithm=samplesort store=directory       | 0@1.stored 3@2 | right
 all   | algorithm=samplesort:dense store=memory    | 3@1.commit | right
 quick | algorithm=samplesort:dense store=directory | 1@3.send 2@3.recover | right
 quick | algorithm=quickmerge store=memory          | 0@1        | right
 quick | algorithm=quickmerge_modified:paper store=reload | 1@2.send 2@2.send | right
 all   | algorithm=bitonic store=memory             | 2@2.send   | right
 quick | algorithm=bitonic store=directory          | 0@1 1@2.stored 2@4 | right
 all   | algorithm=bitonic:dense store=reload       | 3@3.send 0@3.send | right
 all   | algorithm=hyperquicksort:dense store=memory | 1@4.begin | right
";

/// Groups of four ranks on eight ranks are 0, 2, 4, 6 and 1, 3, 5, 7, those of three on six 0, 2, 4 and 1, 3, 5. Each
/// loses no data with as many failures at once as it has shares.
const PARITY: &str = "
 quick | ranks=8 store=parity:1/4 algorithm=samplesort option=- | 2@1 3@1 | right
 quick | ranks=8 store=parity:1/4 algorithm=samplesort option=- | 2@1 4@1 | -40: lost=2,4,; rank 2, 4
 all   | ranks=8 store=parity:1/4 algorithm=bitonic option=-    | 0@2.send 7@2.send | right
 quick | ranks=8 store=parity:1/4 algorithm=bitonic option=-    | 1@2.send 7@2.send | -40: lost=1,7
 quick | ranks=8 store=parity:2/8 option=-            | 2@1.send 5@1.send | right
 all   | ranks=8 store=parity:2/8 algorithm=quickmerge option=- | 1@1 2@1.recover 5@2.send 6@2.recover | right
 all   | ranks=8 store=parity:2/8 algorithm=bitonic option=- | 7@1 6@1.recover 5@1.stored 4@2.send 3@2.recover 2@3 1@4 | right
 quick | ranks=8 store=parity:2/8 option=-            | 2@2 3@2 5@2       | -40: lost=2,3,5,
 all   | ranks=6 store=parity:1/3 algorithm=samplesort:dense option=- | 0@1 1@1 | right
 all   | ranks=4 store=parity:1/8 algorithm=hyperquicksort:checked option=- | 3@0.stored 1@2.send | right
 quick | ranks=4 store=parity:1/8 algorithm=samplesort:checked option=- | 1@1 2@1.recover | -40: lost=1,2,
 all   | ranks=5 store=parity:2/5                     | 1@1 2@1 3@1       | right
 quick | ranks=8 store=parity:2/8 algorithm=samplesort option=kill=5 | 1@1 3@1 7@1 | right
 quick | ranks=2 store=parity:1/8 algorithm=samplesort option=- | 1@1 | right
";

/// Failures and limits that end in an error on all survivors, and options that must not.
const OPTIONS: &str = "
 quick | store=none option=-             | 1@2             | -40: lost=1,; rank 1
 quick | option=-                        | 2@2 3@2         | -40: lost=2,3,; rank 2, 3
 quick | store=reload option=liar        | 1@2             | -23: for rank 1; but their values differ
 quick | count=3000000 option=memory=20000000 |             | -21: would exceed the limit of 20000000
 quick | store=directory option=quorum=3 | 0@1 2@2.send    | -60: 2 of 4 ranks are left; 3 must be
 all   | store=directory option=timeout=20000 | 0@1 3@2.send 1@2.recover | right
 quick | repair=shrink                   | 1@2             | right
 all   | repair=shrink:threads store=reload | 1@1 2@2       | right
 all   | ranks=6 repair=shrink:threads store=reload | 1@1 2@2 4@3 | right
 quick | ranks=3 algorithm=bitonic_merge shape=bitonic | | -1: equal shares, on 2^d ranks
";

/// The arguments of tests/c/timeouts.c, the number of ranks, and a description of the check.
const TIMEOUTS: &str = "
 quick | slow   | 4 | no rank gives up a rank that computes longer than the timeout
 all   | late   | 4 | no rank gives up a rank that calls later than the timeout
 quick | thread | 3 | the thread for signs of life exists as long as a group, and does not run without need
 all   | apart  | 3 | ranks without a timeout are refused
 quick | kill   | 2 | the thread of an injected failure runs no signal handlers
";

/// Stops rank 1 with a signal that MPI does not notice. The others must give up after the timeout, and say why. The
/// program then ends by ftsort_leave.
fn gives_up_a_stopped_rank() -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let place = folder.argument();
    let mut sort = sort_with("stop", "");
    // A sort of small inputs has no rounds.
    sort.algorithm = "hyperquicksort";
    let sorter = program("tests/c/sorter.c")?;
    let log = fs::File::create(folder.path().join("log"))?;
    let mut mpirun = job(4, "", &sorter, &sort.arguments(&place))
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let statuses = [0, 2, 3].map(|rank| folder.path().join(format!("status.{rank}")));
    let stopped = folder.path().join("stopped");
    let start = Instant::now();
    while !stopped.exists() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let start = Instant::now();
    while !statuses.iter().all(|file| file.exists()) && start.elapsed() < Duration::from_secs(40) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let seconds = start.elapsed().as_secs_f64();
    // mpirun does not return as long as a stopped process exists.
    if let Ok(pid) = fs::read_to_string(stopped) {
        Command::new("kill").args(["-KILL", pid.trim()]).status()?;
    }
    mpirun.wait()?;
    let log = fs::read_to_string(folder.path().join("log"))?;
    for file in statuses {
        let status = fs::read_to_string(&file).unwrap_or_default();
        let is_right =
            status.starts_with("status=-61 ") && status.contains("rank 1 showed no sign of life");
        require(is_right, file.display(), &format!("{status}\n{log}"))?;
    }
    let is_timely = (1.9..30.0).contains(&seconds);
    require(
        is_timely,
        "after a timeout of 2 seconds",
        &format!("{seconds} seconds\n{log}"),
    )?;
    folder.remove()
}

/// Ranks are killed one after another between the sorts of a protected input, with FTSORT_REPAIR_SHRINK and
/// MPI_THREAD_MULTIPLE.
fn kills_between_sorts_of_a_program_with_threads() -> Result<(), Failed> {
    let slowdown = program("c_examples/slowdown.c")?;
    let text = launch(4, "", &slowdown, &["ulfm", "3", "14", "12", "10", "1"])?;
    require(
        text.contains("slowdown mode=ulfm victims=3"),
        "no result",
        &text,
    )
}

/// Arguments of tests/c/redundancy.c, and ranks.
const REDUNDANCY: &str = "
 quick | result memory 0       | 4 | a result is recovered
 all   | result directory 0    | 4 | a result is recovered
 all   | result reload 0       | 3 | a result is recovered
 all   | result memory dense   | 5 | a result is recovered
 all   | result memory 4       | 4 | a result is recovered
 quick | many memory 0         | 4 | the results of many arrays are recovered
 all   | many directory 0      | 3 | the results of many arrays are recovered
 all   | many reload 0         | 4 | the results of many arrays are recovered
 all   | many memory dense     | 5 | the results of many arrays are recovered
 quick | input memory 0        | 3 | a protected input is sorted
 all   | input directory 0     | 4 | a protected input is sorted
 all   | states memory 0       | 4 | final states are recovered
 all   | gather memory 0       | 4 | a recovered result is gathered
";

pub fn cases() -> Vec<Case> {
    let mut cases = sorts("survives a failure at every point", POINTS);
    cases.extend(sorts("survives several failures", SEVERAL));
    cases.extend(sorts("survives failures with every algorithm", ALGORITHMS));
    cases.extend(sorts("survives failures by parity", PARITY));
    cases.extend(sorts("keeps to its options and limits", OPTIONS));
    let name = "gives up a stopped rank after the timeout";
    cases.push(Case::new(true, name, gives_up_a_stopped_rank));
    let name = "kills between sorts of a program with threads, repair=shrink";
    cases.push(Case::new(
        true,
        name,
        kills_between_sorts_of_a_program_with_threads,
    ));
    cases.extend(table(REDUNDANCY).map(|row| {
        let [arguments, ranks, title] = row.cells();
        let name = format!("{title} after kills, {ranks} ranks, {arguments}");
        let arguments = format!("DIR {arguments}");
        let body = move || self_checking("redundancy", number(ranks), &arguments);
        Case::skippable(row.is_quick, name, body)
    }));
    cases.extend(table(TIMEOUTS).map(|row| {
        let [arguments, ranks, title] = row.cells();
        let body = move || self_checking("timeouts", number(ranks), arguments);
        Case::skippable(row.is_quick, title, body)
    }));
    cases
}

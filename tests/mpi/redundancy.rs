//! Protected inputs and kept results, while ranks are killed, one after the other or two at once.

use libtest_mimic::Failed;

use crate::case::{Case, number, table};
use crate::harness::{launch, program, require, self_checking};

/// Mode, store (for "killed" the microseconds until the kill), algorithm and corruption of tests/c/redundancy.c, and
/// the number of ranks.
const CASES: &str = "
 quick | result memory 6        | 4
 all   | result memory 4        | 4
 all   | result directory 1     | 4
 all   | result reload dense    | 3
 quick | result parity 6        | 4
 all   | result parity 4        | 4
 all   | result parity dense    | 3
 quick | input parity 0         | 4
 all   | input parity 4         | 4
 quick | input memory 0         | 4
 all   | input directory 4      | 3
 quick | input memory 0 1~0.input.drop | 4
 quick | keys memory 0          | 4
 all   | keys memory 4          | 4
 all   | keys parity 0          | 4
 all   | keys directory 0       | 4
 quick | update memory 0        | 4
 quick | update directory 0     | 3
 quick | update parity 0        | 4
 all   | update parity 4        | 4
 all   | update memory 4        | 4
 quick | killed 20000 0         | 4
 quick | killed 50000 late      | 4
 all   | killed 1000 0          | 3
 all   | killed 5000 0          | 4
 all   | killed 40000 0         | 4
 all   | killed 80000 0         | 4
 all   | states memory 0        | 4
 quick | states memory 0 0~2.replica | 4
 all   | gather memory 0        | 4
";

/// A result or a protected input that has moved after failures.
pub fn recoveries(mode: &str, ranks: usize) -> Result<(), Failed> {
    let text = launch(ranks, "", &program("tests/c/recoveries.c")?, &[mode])?;
    let line = "recoveries: rank 0 right";
    require(text.lines().any(|found| found == line), line, &text)
}

pub fn cases() -> Vec<Case> {
    let cases = table(CASES).map(|row| {
        let [arguments, ranks] = row.cells();
        let name = format!("keeps inputs and results, {ranks} ranks: {arguments}");
        let (ranks, arguments) = (number(ranks), format!("DIR {arguments}"));
        let body = move || self_checking("redundancy", ranks, &arguments);
        Case::skippable(row.is_quick, name, body)
    });
    let modes = [
        ("spare", 3),
        ("reload", 4),
        ("gather", 3),
        ("orders", 4),
        ("comm", 3),
    ];
    let again = modes.map(|(mode, ranks)| {
        let name = format!("results and inputs that moved after failures: {mode}");
        Case::new(true, name, move || recoveries(mode, ranks))
    });
    let stored = ["discarded", "reload"].map(|mode| {
        let name = format!("stored results and states after a failure: {mode}");
        let body = move || self_checking("stored_again", 3, &format!("DIR {mode}"));
        Case::skippable(true, name, body)
    });
    cases.chain(again).chain(stored).collect()
}

//! Groups with spares, while ranks kill themselves: a spare takes over from a failed rank, and the shares stay equal.

use libtest_mimic::Failed;

use crate::case::{Case, number, table};
use crate::harness::{Scratch, launch, program, require, victims};

/// Ranks, spares, store, kills (RANK@SORT), and the executor of each working node at the end. A working rank is killed
/// in the first row, also the spare that took over from it in the second, and an idle spare in the third.
const SORTS: &str = "
 quick | 5 | 1 | memory    | 1@0     | 0 4 2 3
 quick | 5 | 2 | memory    | 2@0 3@2 | 0 1 4
 quick | 4 | 1 | directory | 3@0     | 0 1 2
 all   | 6 | 2 | memory    | 0@0 4@1 | 5 1 2 3
 all   | 6 | 2 | directory | 0@1 3@2 | 4 1 2 5
 all   | 8 | 3 | memory    | 1@0 5@1 6@2 | 0 7 2 3 4
";

fn sorts(
    (ranks, spares): (usize, &str),
    store: &str,
    kills: &str,
    executors: &str,
) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let place = folder.argument();
    let mut arguments = vec![spares, store, &place, "5"];
    arguments.extend(kills.split(' '));
    let text = launch(ranks, "", &program("tests/c/spares.c")?, &arguments)?;
    let victims = victims(kills);
    for rank in (0..ranks).filter(|rank| !victims.contains(rank)) {
        let line = format!("spares: rank {rank} right, executors {executors}");
        let is_there = text.lines().any(|found| found == line);
        require(is_there, line, &text)?;
    }
    folder.remove_empty(&text)
}

pub fn cases() -> Vec<Case> {
    let cases = table(SORTS).map(|row| {
        let [ranks, spares, store, kills, executors] = row.cells();
        let name = format!("{spares} spares of {ranks} ranks, {store}, kills {kills}");
        let ranks = number(ranks);
        let body = move || sorts((ranks, spares), store, kills, executors);
        Case::new(row.is_quick, name, body)
    });
    cases.collect()
}

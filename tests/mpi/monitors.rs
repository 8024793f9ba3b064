//! Monitors: a slow rank is excluded from sorts or gets a smaller share, and comes back; it or its executor is
//! killed meanwhile. These cases measure times, so that nothing else may run beside them.

use crate::case::{Case, number, table};
use crate::harness::self_checking;
use crate::redundancy::recoveries;

/// Ranks, arguments of tests/c/monitor.c: mode, part of the program, slow rank. Of two ranks each tests only the
/// other, and a slow tester takes the other rank for slow: so the modes of `weights` are not the same.
const MONITOR: &str = "
 all   | 1 | thread arguments
 quick | 3 | thread arguments
 all   | 2 | thread slow 1
 quick | 4 | thread slow 0
 all   | 5 | thread slow 2
 all   | 4 | thread weights 2
 all   | 1 | foreground arguments
 all   | 3 | foreground arguments
 quick | 2 | foreground slow 1
 all   | 4 | foreground slow 0
 all   | 5 | foreground slow 2
 quick | 4 | foreground weights 0
 all   | 2 | foreground weights 1
 all   | 4 | foreground gain 1
";

/// Ranks, arguments of tests/c/monitor_kills.c: mode, slow rank, rank that is killed (the slow one or its
/// executor), and the number of the round after the exclusion in which it is killed.
const KILLS: &str = "
 all   | 4 | thread 2 2 1
 quick | 4 | thread 2 3 1
 all   | 4 | thread 1 0 2
 all   | 5 | thread 4 0 7
 all   | 3 | thread 0 0 9
 all   | 2 | thread 1 0 3
 quick | 4 | foreground 2 2 1
 all   | 4 | foreground 2 3 1
 all   | 4 | foreground 1 0 2
 all   | 5 | foreground 4 0 7
 all   | 3 | foreground 0 0 9
 all   | 2 | foreground 1 0 3
";

fn programs(program: &'static str, text: &'static str) -> Vec<Case> {
    let cases = table(text).map(|row| {
        let [ranks, arguments] = row.cells();
        let name = format!("{program} {arguments}, {ranks} ranks");
        let ranks = number(ranks);
        let body = move || self_checking(program, ranks, arguments);
        Case::skippable(row.is_quick, name, body)
    });
    cases.collect()
}

pub fn cases() -> Vec<Case> {
    let mut cases = programs("monitor", MONITOR);
    cases.extend(programs("monitor_kills", KILLS));
    let name = "a result that moved after the exclusion and the failure of a rank";
    cases.push(Case::new(true, name, || recoveries("moved", 4)));
    cases
}

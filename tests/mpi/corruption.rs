//! Data that are changed on the way must be found, and replaced where an intact copy exists.

use libtest_mimic::Failed;

use crate::case::{Case, number, table};
use crate::harness::{Scratch, launch, program, require, words};
use crate::sorter::sorts;

/// With digests or the predicates of 1989. Changes to blocks that are believed before they are found are in the
/// replicas too: then the sort must be refused.
const CHANGES: &str = "
 quick | algorithm=hyperquicksort:checked        | 1~1.message     | right: corruptions=1
 all   | algorithm=hyperquicksort:checked        | 2~1.message*    | right: corruptions=2
 quick | algorithm=hyperquicksort:checked        | 3~2.block       | right: corruptions=1
 quick | algorithm=auto:checked                  | 0~1.block       | right: corruptions=1
 all   | algorithm=auto:checked                  | 0~0.input       | right: corruptions=1
 quick | algorithm=hyperquicksort:checked        | 2~3.result      | right: corruptions=1
 quick | algorithm=hyperquicksort:checked:dense store=reload | 1~4.order | right: corruptions=1
 all   | algorithm=bitonic:checked               | 1~2.message     | right: corruptions=1
 all   | algorithm=bitonic:checked store=memory:2 | 0~2.replica 1@3.begin | right: corruptions=1
 all   | algorithm=bitonic:checked store=memory:2 | 0~0.replica 1@1.begin | right: corruptions=1
 all   | algorithm=bitonic:reliable              | 1~2.message     | right: corruptions=1
 quick | algorithm=hyperquicksort:checked store=memory:2 | 1~1.message 2@1.recover | right: corruptions=1
 quick | algorithm=hyperquicksort:checked store=none option=- | 1~1.message | -41: rank 1 is accused
 all   | algorithm=bitonic:reliable count=50 option=- | 1~4.message | right: corruptions=1 found=consistency,
 all   | algorithm=bitonic:reliable count=50 option=- | 0~5.message | right: corruptions=1 found=feasibility,
 quick | algorithm=bitonic:reliable count=50 option=- | 2~3.message | -41: corruptions=9 found=consistency,
 quick | algorithm=bitonic:reliable              | 2-3~1.message   | right: corruptions=1
 all   | algorithm=hyperquicksort:checked        | 1-3~1.message*  | right: corruptions=2
 all   | algorithm=auto:checked                  |                 | right: corruptions=0
 all   | algorithm=bitonic:reliable              |                 | right: corruptions=0
";

/// Six steps of exchanges on eight nodes, each of which repeats the messages of other nodes.
const FAILURES_WITH_ALL_CHECKS: &str = "
all   | ranks=8 count=200 algorithm=bitonic:reliable:checked store=memory:2 | 5@3.send | right: corruptions=0
quick | ranks=8 count=200 algorithm=bitonic:reliable:checked store=memory:2 | 0@1.stored 6@5.begin|right: corruptions=0
all   | ranks=8 count=200 algorithm=bitonic:reliable:checked store=memory:2 | 1~2.message 4@4.send | right:corruptions=1
";

/// Ranks, and further arguments of tests/c/injections.c.
const MANY_CHANGES: &str = "
 quick | 3 | 0 100 DIR
 all   | 2 | 400 250 DIR
 all   | 4 | 400 250 DIR
 all   | 3 | 400 250 DIR
 all   | 4 | 400 250 DIR clean
";

fn many_changes(ranks: usize, arguments: &str) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let arguments = words(arguments, &folder);
    let text = launch(ranks, "", &program("tests/c/injections.c")?, &arguments)?;
    let mut lines = (text.lines())
        .filter(|line| line.starts_with("injections "))
        .peekable();
    let is_right =
        lines.peek().is_some() && lines.all(|line| line.ends_with(" missed=0 alarms=0 failed=0"));
    require(is_right, "a missed change or a false alarm", &text)?;
    folder.remove()
}

pub fn cases() -> Vec<Case> {
    let mut cases = sorts("finds corruption", CHANGES);
    cases.extend(sorts(
        "finds corruption beside failures",
        FAILURES_WITH_ALL_CHECKS,
    ));
    cases.extend(table(MANY_CHANGES).map(|row| {
        let [ranks, arguments] = row.cells();
        let name = format!("many sorts with one change each, {ranks} ranks, {arguments}");
        let ranks = number(ranks);
        Case::new(row.is_quick, name, move || many_changes(ranks, arguments))
    }));
    cases
}

//! Tree collectives: the examples, which check their results themselves, and the functions from outside.

use libtest_mimic::Failed;

use crate::case::{Case, examples, number, table};
use crate::harness::{launch, program, require_lines, self_checking};

/// Example, ranks, arguments, failures.
const EXAMPLES: &str = "
 all   | tree_sort     | 1 | 5000                  |
 all   | tree_sort     | 4 | 50000                 |
 all   | tree_sort     | 5 | 20000 0-1,2-3,1-3 4   |
 quick | tree_sort     | 4 | 50000                 | 2@1.send
 all   | tree_sort     | 4 | 50000 0-1             | 2@1
 quick | tree_sort     | 6 | 20000 0-1,0-2 5       | 3@0 5@1 1@1.send
 all   | tree_sort     | 4 | 50000 - 2             | 2@1
 all   | tree_sort     | 4 | 50000                 | 0@0 1@0
 quick | tree_sort     | 8 | 9001 0-1 0 partition  |
 all   | tree_sort     | 8 | 9001 0-1 0 partition  | 1@1.send
 all   | tree_sort     | 8 | 9001 0-1,0-2 0 partition | 3@1 5@1.send
 all   | tree_sort     | 7 | 9001 0-4 0 partition  | 6@0.stored 4@1
 all   | tree_sort     | 8 | 9001 0-1 0 reroute    | 1@1.send
 all   | matrix_vector | 1 | 64                    |
 all   | matrix_vector | 4 | 256                   |
 all   | matrix_vector | 8 | 300 0-4,1-3,2-6       |
 quick | matrix_vector | 4 | 256 0-2               | 1@1.send
 all   | matrix_vector | 6 | 100                   | 0@0 4@1.send
 all   | matrix_vector | 8 | 256 4-5,2-3           | 0@1 7@1.send
 all   | matrix_vector | 4 | 250 - shares          |
 quick | matrix_vector | 4 | 250 1-3,2-3 shares    |
 quick | matrix_vector | 4 | 250 1-3,2-3 shares    | 1@1.send
 all   | matrix_vector | 4 | 250 1-3,2-3 shares    | 1@0
 all   | matrix_vector | 4 | 250 1-3,2-3 shares    | 0@1
 all   | matrix_vector | 4 | 250 1-3,2-3 shares    | 3@0 2@1
 all   | matrix_vector | 4 | 250 0-3,1-3,2-3 shares | 2@1
 all   | matrix_vector | 5 | 99 4-0,4-1,4-2,4-3 shares | 0@0 3@1
 all   | matrix_vector | 8 | 200 7-3,7-5,7-6 shares | 6@1 0@0.stored
";

/// Ranks on which tests/c/tree.c calls the functions with valid and invalid arguments.
const FUNCTIONS: &str = "
 all   | 2
 quick | 3
 all   | 4
";

/// The rank that fails while a result is handed out piece by piece, how many survivors there are, and the line
/// that each of them prints.
const GATHER: &str = "
 all   | none  | 4 | gather: status=0 lost=-1
 all   | sink  | 3 | gather: status=0 lost=-1
 quick | owner | 3 | gather: status=0 lost=-1
";

/// The failures while contributions are merged, how many ranks there are and survive, and the line that each survivor
/// prints. A contribution that has left its rank is not lost.
const MERGES: &str = "
 quick | 2@0.store           | 4 | 3 | merge: status=0 lost=-1
 all   | 0@0.store           | 3 | 2 | merge: status=0 lost=-1
 all   | 3@0.stored          | 4 | 3 | merge: status=0 lost=-1
 all   | 1@0.commit          | 4 | 3 | merge: status=0 lost=-1
 quick | 1@1 2@1.send 3@1.commit | 5 | 2 | merge: status=0 lost=-1
 all   | 2@0                 | 4 | 3 | merge: status=-40 lost=2
";

fn example(name: &str, ranks: usize, arguments: &str, faults: &str) -> Result<(), Failed> {
    let program = program(&format!("c_examples/{name}.c"))?;
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let text = launch(ranks, faults, &program, &arguments)?;
    require_lines(1, "results are right", &text, |line| {
        line.ends_with(", right")
    })
}

fn gather(victim: &str, survivors: usize, expected: &str) -> Result<(), Failed> {
    let text = launch(4, "", &program("tests/c/tree.c")?, &["gather", victim])?;
    all_print(survivors, expected, &text)
}

fn merge(faults: &str, ranks: usize, survivors: usize, expected: &str) -> Result<(), Failed> {
    let text = launch(ranks, faults, &program("tests/c/tree.c")?, &["merge"])?;
    all_print(survivors, expected, &text)
}

fn all_print(survivors: usize, expected: &str, text: &str) -> Result<(), Failed> {
    let what = format!("survivors print {expected}");
    require_lines(survivors, &what, text, |line| line == expected)
}

pub fn cases() -> Vec<Case> {
    let mut cases = examples(EXAMPLES, example);
    cases.extend(table(FUNCTIONS).map(|row| {
        let [ranks] = row.cells();
        let name = format!("tree functions on {ranks} ranks");
        let ranks = number(ranks);
        Case::skippable(row.is_quick, name, move || {
            self_checking("tree", ranks, "args")
        })
    }));
    cases.extend(table(MERGES).map(|row| {
        let [faults, ranks, survivors, line] = row.cells();
        let name = format!("merges contributions on {ranks} ranks, failures {faults:?}");
        let (ranks, survivors) = (number(ranks), number(survivors));
        let body = move || merge(faults, ranks, survivors, line);
        Case::new(row.is_quick, name, body)
    }));
    cases.extend(table(GATHER).map(|row| {
        let [victim, survivors, line] = row.cells();
        let name = format!("gathers a result piece by piece, failure of: {victim}");
        let survivors = number(survivors);
        Case::new(row.is_quick, name, move || gather(victim, survivors, line))
    }));
    cases
}

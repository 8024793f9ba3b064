//! Round-based algorithms of a caller: the examples, which check their results themselves, and the functions from
//! outside.

use libtest_mimic::Failed;

use crate::case::{Case, examples, number, table};
use crate::harness::{Scratch, launch, program, require, require_lines, self_checking};

/// Example, ranks, arguments, failures. One failure in a round: a state has one replica, and a failure of its rank
/// and of the replica's rank at once would lose it. `PROGRAM` is the file of the example itself, as input.
const EXAMPLES: &str = "
 all   | prefix_sum   | 1 | 1000         |
 quick | prefix_sum   | 4 | 300000       | 1@1.send 2@2.store
 all   | prefix_sum   | 5 | 200000       | 0@1 4@2.send 2@3.store
 quick | transpose    | 4 | 100          | 3@1.stored 0@2.send
 all   | transpose    | 6 | 60           | 5@1.send 0@2.store 3@3.commit
 quick | fft          | 3 | 15           | one seed=5 window=10ms
 all   | fft          | 4 | 15           | 1@1.store 2@2.send
 all   | fft          | 4 | 10           | 0@1.send 1@2.send 3@3
 quick | kmeans       | 4 | PROGRAM 5 30 | 0@2.send 3@5.store
 all   | kmeans       | 5 | PROGRAM 3 20 | 4@1 1@3.send 2@4.store
 quick | bitonic_sort | 4 | 50000        | 2@1.send 1@2.store 0@3.send
 all   | mesh         | 1 | 9 3 0        |
 all   | mesh         | 2 | 9 3 1        | 1@2.send
 quick | mesh         | 4 | 30 6 0       | 2@3.send 0@8
 all   | mesh         | 4 | 30 6 1       | 3@1 1@4.stored 0@9.commit
 all   | mesh         | 8 | 20 5 1       | 2@3.send 7@6.store 0@11.send 5@14
 all   | mesh         | 7 | 20 5 0       | 6@2.send 1@2.recover 3@9
 all   | bitonic_sort | 6 | 20000        | 5@1.store 3@2.send 1@4.stored
";

/// Ranks on which tests/c/rounds.c calls the functions with valid and invalid arguments.
const FUNCTIONS: &str = "
 quick | 2
 all   | 5
";

/// Algorithm of tests/c/rounds.c, store, ranks, failures.
const WITH_FAILURES: &str = "
 all   | gather | memory    | 4 | 2@1.send
 quick | gather | memory    | 5 | 4@0 0@2.stored 1@3.recover
 quick | gather | directory | 4 | 0@1 1@1.recover 2@2.stored
 quick | gather | reload    | 3 | 1@2.store
 quick | gather | parity    | 4 | 0@1 1@1.recover 2@2.stored
 all   | sort   | parity    | 4 | 0@1.store 2@2.send
 quick | gather | checked   | 4 | 1~1.message 3~2.block
 all   | sort   | memory    | 4 | 1@1.send 3@2
 quick | sort   | directory | 3 | 0@1.store 2@2.send
";

fn example(name: &str, ranks: usize, arguments: &str, faults: &str) -> Result<(), Failed> {
    let program = program(&format!("c_examples/{name}.c"))?;
    let arguments = arguments.replace("PROGRAM", &program.display().to_string());
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let text = launch(ranks, faults, &program, &arguments)?;
    lines_of_nodes(&text, ranks).map(drop)
}

/// Returns the line about each node, in the order of nodes. There must be exactly one, and it must be right.
fn lines_of_nodes(text: &str, ranks: usize) -> Result<Vec<&str>, Failed> {
    let nodes = 0..ranks.next_power_of_two();
    let lines = nodes.map(|node| {
        let start = format!("node {node}");
        let mut lines = text.lines().filter(|line| {
            let rest = line.strip_prefix(&start);
            rest.is_some_and(|rest| rest.starts_with([' ', ':']))
        });
        match (lines.next(), lines.next()) {
            (Some(line), None) if line.contains(": right") => Ok(line),
            _ => Err(format!("node {node}: {text}").into()),
        }
    });
    lines.collect()
}

fn with_failures(algorithm: &str, store: &str, ranks: usize, faults: &str) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let place = folder.argument();
    let program = program("tests/c/rounds.c")?;
    let text = launch(ranks, faults, &program, &[algorithm, store, &place])?;
    folder.remove_empty(&text)?;
    let lines = lines_of_nodes(&text, ranks)?;
    if algorithm == "sort" {
        all_numbers_are_in_order(&lines, ranks, &text)?;
    }
    Ok(())
}

/// Checks the lines "node V: right, K numbers from A to B": in order from node to node, and all numbers.
fn all_numbers_are_in_order(lines: &[&str], ranks: usize, text: &str) -> Result<(), Failed> {
    let (mut total, mut last) = (0, i64::MIN);
    for line in lines {
        let words = line.split(' ').filter_map(|word| word.parse().ok());
        let numbers: Vec<i64> = words.collect();
        let [count, first, end] = numbers[..] else {
            return Err(text.into());
        };
        if count > 0 {
            require(first >= last, "not in order from node to node", text)?;
            last = end;
        }
        total += count;
    }
    let inputs = (0..ranks as i64).map(|rank| if rank == 2 { 0 } else { 500 + 37 * rank });
    let expected = inputs.sum::<i64>();
    require(total == expected, format!("{total} numbers"), text)
}

/// Every survivor must get the status of a data loss.
fn without_a_store() -> Result<(), Failed> {
    let program = program("tests/c/rounds.c")?;
    let text = launch(3, "1@2.send", &program, &["gather", "none"])?;
    require_lines(2, "survivors report the loss", &text, |line| {
        line.starts_with("status=-40")
    })
}

/// The plain MPI program from which prefix_sum.c is made.
fn plain_prefix_sum() -> Result<(), Failed> {
    let text = launch(4, "", &program("c_examples/prefix_sum_mpi.c")?, &["1000"])?;
    require_lines(4, "ranks are right", &text, |line| {
        line.ends_with(": right")
    })
}

pub fn cases() -> Vec<Case> {
    let mut cases = examples(EXAMPLES, example);
    cases.push(Case::new(
        false,
        "example prefix_sum_mpi on 4 ranks",
        plain_prefix_sum,
    ));
    cases.extend(table(FUNCTIONS).map(|row| {
        let [ranks] = row.cells();
        let name = format!("round functions on {ranks} ranks");
        let ranks = number(ranks);
        Case::skippable(row.is_quick, name, move || {
            self_checking("rounds", ranks, "args DIR")
        })
    }));
    cases.extend(table(WITH_FAILURES).map(|row| {
        let [algorithm, store, ranks, faults] = row.cells();
        let name = format!("rounds that {algorithm}, {store}, {ranks} ranks, failures {faults}");
        let ranks = number(ranks);
        let body = move || with_failures(algorithm, store, ranks, faults);
        Case::new(row.is_quick, name, body)
    }));
    let name = "rounds without a store report the data loss";
    cases.push(Case::new(true, name, without_a_store));
    cases
}

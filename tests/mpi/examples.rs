//! The examples for C programs that sort, and the header alone: each example checks its result itself.

use std::{fs, iter};

use libtest_mimic::Failed;

use crate::case::{Case, Row, examples, number, table};
use crate::harness::{
    Scratch, compiler, job, launch, program, require, require_lines, root, run, victims, words,
};
use crate::launch::output_of;
use crate::originals::{bytes, random_keys};

/// Example, ranks, arguments, failures.
const EXAMPLES: &str = "
 all   | hello      | 1 |           |
 all   | hello      | 3 |           |
 quick | hello      | 4 |           | 2@1
 all   | hello      | 4 |           | 0@0.stored 3@2
 all   | fault_loop | 1 |           |
 all   | fault_loop | 4 |           |
 all   | fault_loop | 4 |           | 1@0 2@1
 quick | fault_loop | 6 |           | 0@1 3@1 5@2
 all   | workflow   | 1 | 20000     |
 all   | workflow   | 4 | 20000     |
 all   | workflow   | 3 | 20000     | 1@0
 all   | workflow   | 4 | 20000     | 1@0 2@1
 all   | workflow   | 4 | 20000 DIR | 0@0 1@0 2@0
 quick | workflow   | 6 | 20000 DIR | 0@1 3@1 5@2
 all   | workflow   | 8 | 20000 DIR | 0@0 7@0 3@1 4@1 5@2 6@2 1@2
 all   | records    | 3 |           |
 all   | records    | 4 |           |
 quick | records    | 4 |           | 1@1.send
 all   | records    | 4 |           | 0@1.stored
 all   | cells      | 1 |           |
 quick | cells      | 4 |           | 1@0.stored
 all   | cells      | 3 |           |
 all   | cells      | 5 |           | 0@1.send 3@2
";

fn check(example: &str, ranks: usize, faults: &str, text: &str) -> Result<(), Failed> {
    let survivors = ranks - victims(faults).len();
    let lines = text.lines();
    match example {
        "hello" => {
            // "rank R of P: ... blocks: B, in order" of each survivor.
            let sorted = lines.filter(|line| line.ends_with(", in order"));
            let counts = sorted.filter_map(|line| line.split("blocks: ").nth(1)?.split(',').next());
            let blocks: usize = counts.filter_map(|count| count.parse::<usize>().ok()).sum();
            let expected = ranks.next_power_of_two();
            require(blocks == expected, format!("{blocks} blocks"), text)
        }
        "fault_loop" => {
            let is_right = |line: &str| line.starts_with("survivor") && line.ends_with("right");
            require_lines(survivors, "survivors are right", text, is_right)
        }
        "workflow" => require_lines(survivors, "survivors are right", text, |line| {
            line.ends_with("tries, right")
        }),
        // The cells of all ranks are in order, and complete.
        "cells" => require_lines(1, "lists of cells are right", text, |line| {
            line.ends_with("right")
        }),
        "records" => {
            // A line for each sort, of the lowest survivor; the last result is dense.
            let sorts: Vec<&str> = lines.filter(|line| line.contains(" stars from ")).collect();
            let blocks = if faults.is_empty() { 1 } else { 2 };
            let expected = [blocks, blocks, blocks, blocks, 1];
            let is_right = |(line, blocks): (&&str, i32)| {
                line.contains(&format!("blocks here: {blocks}, ")) && line.ends_with(", in order")
            };
            let right = sorts.len() == 5 && sorts.iter().zip(expected).all(is_right);
            require(right, "the results are not as expected", text)
        }
        _ => panic!("no check for {example}"),
    }
}

fn run_example(example: &str, ranks: usize, arguments: &str, faults: &str) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let arguments = words(arguments, &folder);
    let program = program(&format!("c_examples/{example}.c"))?;
    let text = launch(ranks, faults, &program, &arguments)?;
    check(example, ranks, faults, &text)?;
    folder.remove_empty(&text)
}

/// Sorts a file while two ranks fail, and checks the file and the lines about the failures.
fn sort_file(options: &str) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let (input, output) = (folder.path().join("input"), folder.path().join("output"));
    let mut keys = random_keys(7, 100_003);
    fs::write(&input, bytes(&keys))?;
    // A job that was killed left this file. It must not replace the output.
    fs::write(folder.path().join("output.part"), "old")?;
    keys.sort_unstable();
    let program = program("c_examples/sort_file.c")?;
    let mut arguments = words(options, &folder);
    arguments.extend([&input, &output].map(|path| path.display().to_string()));
    let text = launch(5, "3@1.send 0@2", &program, &arguments)?;
    let sorted = fs::read(&output)? == bytes(&keys);
    require(sorted, "the output is not sorted", &text)?;
    for line in [
        "rank 3 has failed, 4 of 5",
        "rank 0 has failed, 3 of 5",
        "output is complete",
    ] {
        require(text.contains(line), format!("no line says: {line}"), &text)?;
    }
    folder.remove()
}

/// Ranks, failures in the sort, kills while the output is written (see `tests/c/sort_file_killed.c`), whether the
/// survivors sort again, options. They do if more ranks fail at once than there are copies of a recovered result.
const KILLED_WRITERS: &str = "
 quick | 5 |          | 2@write.1                                         | once |
 all   | 4 |          | 0@write.1                                         | once |
 quick | 4 |          | 2@write.1 3@write.2                               | once |
 all   | 5 |          | 2@write.1 3@write.1                               | once |
 all   | 4 | 1@1.send | 0@write.1 3@write.1                               | any  |
 all   | 8 |          | 1@write.1 2@write.1 6@write.1 7@write.1 5@write.2 | once |
 all   | 4 |          | 1@write.1 2@write.1 3@write.1                     | any  |
 all   | 4 |          | 2@write.1 3@write.2 0@before                      | once |
 quick | 4 |          | 0@before                                          | once |
 all   | 4 |          | 0@after                                           | once |
 all   | 4 |          | 2@write.1 3@write.2                               | once | --store directory --directory DIR
 all   | 4 |          | 2@write.1 3@write.2                               | once | --store reload
 all   | 4 |          | 2@write.1 3@write.2                               | once | --algorithm bitonic
 all   | 4 |          | 2@write.1                                         | any  | --algorithm bitonic --store reload
";

/// Sorts a file while ranks are killed that write the output.
fn write_while_ranks_fail(
    ranks: usize,
    [faults, kills, sorts, options]: [&str; 4],
) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let (input, output) = (folder.path().join("input"), folder.path().join("output"));
    let mut keys = random_keys(11, 100_003);
    fs::write(&input, bytes(&keys))?;
    keys.sort_unstable();
    let program = program("tests/c/sort_file_killed.c")?;
    let mut arguments = words(options, &folder);
    arguments.extend([input, output.clone()].map(|path| path.display().to_string()));
    let text = run(job(ranks, faults, &program, &arguments).env("KILLS", kills))?;
    let sorted = fs::read(&output)? == bytes(&keys);
    require(sorted, "the output is not sorted", &text)?;
    let count = |words: [&str; 2]| {
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        text.lines().filter(has_all).count()
    };
    let failed = count(["rank ", " has failed, "]);
    let expected = victims(faults).len() + victims(kills).len();
    require(
        failed == expected,
        format!("{failed} ranks have failed"),
        &text,
    )?;
    if sorts == "once" {
        let sorts = count(["round 2 of ", " committed"]);
        require(sorts == 1, format!("{sorts} sorts"), &text)?;
        let recovered = count(["the blocks of failed ranks are recovered", ""]) > 0;
        let needed = kills.contains("write");
        require(
            recovered == needed,
            format!("recovered: {recovered}"),
            &text,
        )?;
    }
    folder.remove()
}

fn killed_writers(row: &Row) -> Case {
    let [ranks, cells @ ..] = row.cells::<5>();
    let [faults, kills, _, options] = cells;
    let name = format!(
        "example sort_file {options} on {ranks} ranks, failures {faults:?}, killed writers {kills:?}"
    );
    let ranks = number(ranks);
    let body = move || write_while_ranks_fail(ranks, cells);
    Case::new(row.is_quick, name, body)
}

/// The example; the ranks and failures of the first job, in which all ranks fail at last; the state with which the second
/// job continues; its ranks and failures. A failure of restart.c is before the round with that number from 0, one of
/// restart_rounds.c at the start of the round with that number from 1, and one of restart_sort.c with the number 3 after
/// the sort.
const RESTARTS: &str = "
 quick | restart        | 4 | 0@2 1@2 2@2 3@2 | after round 2 | 3 |
 all   | restart        | 4 | 2@1 0@3 1@3 3@3 | after round 3 | 4 | 1@3
 all   | restart        | 3 | 0@0 1@0 2@0     |               | 4 |
 all   | restart        | 1 | 0@1             | after round 1 | 1 |
 all   | restart        | 5 | 4@0 0@1 1@3 2@3 3@3 | after round 3 | 8 |
 quick | restart_rounds | 4 | 0@3 1@3 2@3 3@3 | after round 2 | 3 |
 all   | restart_rounds | 4 | 2@2 0@8 1@8 3@8 | after round 7 | 4 | 1@8
 all   | restart_rounds | 3 | 0@0 1@0 2@0     |               | 4 |
 all   | restart_rounds | 1 | 0@2             | after round 1 | 1 |
 all   | restart_rounds | 5 | 4@1 0@1 1@5 2@5 3@5 | after round 4 | 8 | 2@5 3@7
 quick | restart_sort   | 4 | 0@3 1@3 2@3 3@3 | with the stored result | 3 | 1@3
 all   | restart_sort   | 4 | 2@1.send 0@3 1@3 3@3 | with the stored result | 4 |
 all   | restart_sort   | 3 | 0@1 1@1 2@1     |               | 4 | 2@1.send
 all   | restart_sort   | 5 | 0@3 1@3 2@3 3@3 4@3 | with the stored result | 8 | 2@3 5@3 0@3
";

/// Ends a job with all its processes, and starts another one, which continues the states of the first.
fn restart([example, ranks, faults, state, then, later_faults]: [&str; 6]) -> Result<(), Failed> {
    let (folder, other) = (Scratch::new()?, Scratch::new()?);
    let program = program(&format!("c_examples/{example}.c"))?;
    let result = |text: &str| {
        let mut lines = text.lines();
        let is_result =
            |line: &&str| line.starts_with("pi is") || line.starts_with("the median is");
        lines.find(is_result).map(str::to_string)
    };
    let arguments = |folder: &Scratch| -> Vec<String> {
        let work: &[&str] = match example {
            "restart_sort" => &["60000"],
            _ => &["6", "1000"],
        };
        let place = folder.path().display().to_string();
        let work = work.iter().map(|word| (*word).to_owned());
        iter::once(place).chain(work).collect()
    };
    let run_in = |folder: &Scratch, ranks: usize, faults: &str| {
        let arguments = arguments(folder);
        job(ranks, faults, &program, &arguments)
    };
    let first = output_of(&mut run_in(&folder, number(ranks), faults))?.output;
    require(result(&first).is_none(), "the first job ended", &first)?;
    // It cannot be repeated: it removes the states at its end.
    let ended = output_of(&mut run_in(&folder, number(then), later_faults))?;
    let second = ended.output.clone() + &ended.errors;
    require(ended.may_have_status(0), ended.status, &second)?;
    let continues = second
        .lines()
        .find_map(|line| line.strip_prefix("continues "));
    let has_continued = continues.unwrap_or_default() == state;
    require(has_continued, format!("continues {continues:?}"), &second)?;
    let whole = run(&mut run_in(&other, number(then), ""))?;
    let is_right = result(&second).is_some() && result(&second) == result(&whole);
    require(is_right, format!("not {:?}", result(&whole)), &second)?;
    folder.remove_empty(&second)?;
    other.remove_empty(&whole)
}

fn restarted(row: &Row) -> Case {
    let cells = row.cells::<6>();
    let [example, ranks, faults, _, then, later_faults] = cells;
    let name = format!(
        "example {example} on {ranks} ranks, failures {faults:?}, then on {then} ranks, failures {later_faults:?}"
    );
    Case::new(row.is_quick, name, move || restart(cells))
}

/// Runs restart.c with a rank that cannot put its state in the third round. All ranks leave without the round, and the
/// next job continues with it.
fn refused_state() -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let place = folder.argument();
    let arguments = [place.as_str(), "6", "1000"];
    let refused = program("tests/c/restart_refused.c")?;
    let ended = output_of(&mut job(4, "", &refused, &arguments))?;
    require(ended.may_have_status(1), ended.status, &ended.errors)?;
    let next = program("c_examples/restart.c")?;
    let second = run(&mut job(4, "", &next, &arguments))?;
    let is_right = second.contains("continues after round 2") && second.contains("of 24000 points");
    require(is_right, "the next job does not continue", &second)?;
    folder.remove_empty(&second)
}

/// The language standards in which the header and all examples must compile without a warning.
const STANDARDS: &str = "
 quick | c99
 all   | c11
 all   | c17
 all   | c++11
 quick | c++17
";

/// Compiles a program that only includes the header, and all examples.
fn header_and_examples_compile(standard: &str) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let source = folder.path().join("only_the_header.c");
    let text = "#include \"ftsort.h\"\nint main(void) { return 0; }\n";
    fs::write(&source, text)?;
    let mut sources = vec![source];
    for folder in ["c_examples", "c_examples/original"] {
        for entry in fs::read_dir(root().join(folder))? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "c") {
                sources.push(path);
            }
        }
    }
    let language = if standard.starts_with("c++") {
        "c++"
    } else {
        "c"
    };
    for source in &sources {
        let mut command = compiler(standard);
        command.args(["-x", language, "-fsyntax-only"]).arg(source);
        run(&mut command)?;
    }
    folder.remove()
}

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = table(STANDARDS)
        .map(|row| {
            let [standard] = row.cells();
            let name = format!("the header and the examples compile in {standard}");
            Case::new(row.is_quick, name, move || {
                header_and_examples_compile(standard)
            })
        })
        .collect();
    cases.extend(examples(EXAMPLES, run_example));
    for options in ["", "--memory 1"] {
        let name = format!("example sort_file {options} on 5 ranks, failures \"3@1.send 0@2\"");
        cases.push(Case::new(true, name, || sort_file(options)));
    }
    cases.extend(table(RESTARTS).map(|row| restarted(&row)));
    let name = "example restart on 4 ranks, a state is refused";
    cases.push(Case::new(true, name, refused_state));
    cases.extend(table(KILLED_WRITERS).map(|row| killed_writers(&row)));
    cases
}

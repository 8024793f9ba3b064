//! The drop-in replacements of the authors' programs: their arguments and files, in all four scenarios.

use std::fs;

use libtest_mimic::Failed;

use crate::case::{Case, number, table};
use crate::harness::{Launch, Scratch, program, require, run};

/// Program, ranks, number of keys.
const PROGRAMS: &str = "
 all   | hyperquicksort      | 4 | 100000
 all   | hyperquicksort      | 5 | 100003
 all   | quickmerge          | 4 | 100000
 all   | quickmerge          | 5 | 100003
 quick | quickmerge_modified | 4 | 100000
 all   | quickmerge_modified | 5 | 100003
 all   | bitonic             | 4 | 100000
 all   | bitonic             | 5 | 100003
 quick | hyperquicksort_dgrp | 4 | 100000
 all   | hyperquicksort_dgrp | 5 | 100003
";

const SCENARIOS: [&str; 4] = ["0", "1", "2", "3"];

/// Draws the same keys in every run, others for each seed.
pub fn random_keys(seed: u64, count: usize) -> Vec<i32> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 32) as i32
    };
    (0..count).map(|_| draw()).collect()
}

/// The keys as a file has them.
pub fn bytes(keys: &[i32]) -> Vec<u8> {
    keys.iter().flat_map(|key| key.to_ne_bytes()).collect()
}

fn all_scenarios(name: &str, ranks: usize, count: usize) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let mut keys = random_keys((name.len() + count) as u64, count);
    fs::write(folder.path().join("Entrada.dat"), bytes(&keys))?;
    keys.sort_unstable();
    let sorted = bytes(&keys);
    for scenario in SCENARIOS {
        one_scenario(&folder, name, ranks, count, scenario, &sorted)?;
    }
    folder.remove()
}

/// Runs a program, and joins the lists of all ranks, which must be the sorted keys.
fn one_scenario(
    folder: &Scratch,
    name: &str,
    ranks: usize,
    count: usize,
    scenario: &str,
    sorted: &[u8],
) -> Result<(), Failed> {
    let program = program(&format!("c_examples/original/{name}.c"))?;
    // The bitonic program knows the name of its file, and is given the number of keys.
    let first = match name {
        "bitonic" => count.to_string(),
        _ => "Entrada.dat".to_string(),
    };
    let launch = Launch {
        ranks,
        faults: "",
        ulfm: true,
    };
    let mut command = launch.command(&program, &[&first, scenario, "11"]);
    let text = run(command.current_dir(folder.path()))?;
    let mut lists = Vec::new();
    for rank in 0..ranks.next_power_of_two() {
        let list = folder.path().join(format!("saveRank{rank}.dat"));
        lists.extend(fs::read(&list)?);
        fs::remove_file(list)?;
    }
    let left = folder.file_names()?;
    let scenario = format!("scenario {scenario}");
    require(lists == sorted, format!("{scenario}: not sorted"), &text)?;
    require(
        left.len() == 1,
        format!("{scenario}: {left:?} are left"),
        &text,
    )?;
    let timed = text.contains("Total time: ");
    require(timed, format!("{scenario}: no time"), &text)
}

/// Ranks, failures, and the number of committed rounds that the files must show. The failures of the first case end the
/// whole job, so its files are those of a sort that is not complete.
const CHECKPOINT_FILES: &str = "
 quick | 4 | 0@1 1@1 2@1 3@1 | 1
 all   | 4 | 1@0 2@1         | 2
 all   | 8 | 3@1 4@1 5@2     | 3
";

/// Algorithm 1 with the papers' names writes each list under the authors' name when its round is committed. After so
/// many rounds, the lists of two subcubes do not overlap.
fn checkpoint_files(ranks: usize, faults: &str, rounds: u32) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let program = program("c_examples/workflow.c")?;
    let launch = Launch {
        ranks,
        faults,
        ulfm: true,
    };
    let mut command = launch.command(&program, &["20000", "store", "files"]);
    fs::create_dir(folder.path().join("store"))?;
    let output = command.current_dir(folder.path()).output()?;
    let printed = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let text = format!("{}\n{}", output.status, printed.concat());
    let mut lists = Vec::new();
    for rank in 0..ranks {
        let bytes = fs::read(folder.path().join(format!("saveRank{rank}.dat")))?;
        let keys = bytes
            .chunks_exact(4)
            .map(|key| i32::from_ne_bytes([key[0], key[1], key[2], key[3]]));
        lists.push(keys.collect::<Vec<i32>>());
    }
    let keys = lists.iter().map(Vec::len).sum::<usize>();
    require(
        keys == 20_000 * ranks,
        format!("{keys} keys in the files"),
        &text,
    )?;
    let subcubes: Vec<Vec<i32>> = lists.chunks(ranks >> rounds).map(<[_]>::concat).collect();
    let ordered = subcubes
        .windows(2)
        .all(|two| two[0].iter().max() <= two[1].iter().min());
    require(ordered, "the lists of two subcubes overlap", &text)?;
    let unfinished: Vec<&[Vec<i32>]> = lists
        .chunks(ranks >> rounds)
        .filter(|lists| lists.len() > 1)
        .collect();
    let overlaps = unfinished
        .iter()
        .all(|lists| lists[0].iter().max() > lists[1].iter().min());
    require(overlaps, "more rounds are complete than expected", &text)?;
    folder.remove()
}

pub fn cases() -> Vec<Case> {
    let files = table(CHECKPOINT_FILES).map(|row| {
        let [ranks, faults, rounds] = row.cells();
        let name =
            format!("checkpoints under the authors' names, {ranks} ranks, failures {faults}");
        let (ranks, rounds) = (number(ranks), number(rounds) as u32);
        Case::new(row.is_quick, name, move || {
            checkpoint_files(ranks, faults, rounds)
        })
    });
    let cases = table(PROGRAMS).map(|row| {
        let [program, ranks, count] = row.cells();
        let name = format!("the authors' program {program}, {ranks} ranks, all scenarios");
        let (ranks, count) = (number(ranks), number(count));
        Case::new(row.is_quick, name, move || {
            all_scenarios(program, ranks, count)
        })
    });
    files.chain(cases).collect()
}

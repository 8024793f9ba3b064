//! The drop-in replacements of the authors' programs: their arguments and files, in all four scenarios.

use std::fs;

use libtest_mimic::Failed;

use crate::case::{Case, number, table};
use crate::harness::{Scratch, job, program, require, run, self_checking, words};
use crate::launch::output_of;

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
    let mut command = job(ranks, "", &program, &[first.as_str(), scenario, "11"]);
    let text = run(command.current_dir(folder.path()))?;
    sorted_lists(folder, ranks, sorted).map_err(|error| {
        let error = error.message().unwrap_or("failed");
        format!("scenario {scenario}: {error}: {text}")
    })?;
    let timed = text.contains("Total time: ");
    require(timed, format!("scenario {scenario}: no time"), &text)
}

/// Joins the lists of all ranks, which must be the sorted keys, and removes them. No other file may be left beside the
/// input.
fn sorted_lists(folder: &Scratch, ranks: usize, sorted: &[u8]) -> Result<(), Failed> {
    let mut lists = Vec::new();
    for rank in 0..ranks.next_power_of_two() {
        let list = folder.path().join(format!("saveRank{rank}.dat"));
        lists.extend(fs::read(&list)?);
        fs::remove_file(list)?;
    }
    let difference = format!("{} of {} bytes", lists.len(), sorted.len());
    require(lists == sorted, "not sorted", &difference)?;
    let left = folder.file_names()?;
    require(left.len() == 1, "files are left", &format!("{left:?}"))
}

/// Ranks, and kills between two sorts (see `tests/c/original_killed.c`). A rank that fails after it has written its
/// lists makes the survivors sort again, and then its executor fails before its input is stored.
const KILLED_BETWEEN_SORTS: &str = "
 quick | 4 | 1@saved.1 0@sort.2
 all   | 4 | 1@saved.1 0@sort.2 2@saved.2
 all   | 5 | 3@saved.1 2@sort.2
 all   | 4 | 0@saved.1 1@saved.1 2@sort.2
";

fn killed_between_sorts(ranks: usize, kills: &str) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let mut keys = random_keys(5, 10_003);
    fs::write(folder.path().join("numbers"), bytes(&keys))?;
    keys.sort_unstable();
    let program = program("tests/c/original_killed.c")?;
    let mut command = job(ranks, "", &program, &["numbers", "0", "1"]);
    let text = run(command.current_dir(folder.path()).env("KILLS", kills))?;
    sorted_lists(&folder, ranks, &bytes(&keys)).map_err(|error| {
        let error = error.message().unwrap_or("failed");
        format!("{error}: {text}")
    })?;
    folder.remove()
}

/// Size of the file in bytes, arguments, and the words of the refusal.
const REFUSALS: &str = "
 quick | 4002 | numbers 0   | 4002 bytes
 all   | 4000 | numbers 1 x | SEED is x
 all   | 4000 | numbers 4   | usage
 all   | 4000 | none 0      | cannot read none
";

fn refusal(size: usize, arguments: &str, words: &str) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    fs::write(folder.path().join("numbers"), vec![0; size])?;
    let program = program("c_examples/original/hyperquicksort.c")?;
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let mut command = job(2, "", &program, &arguments);
    let text = output_of(command.current_dir(folder.path()))?.errors;
    // The exit status of mpirun proves nothing.
    require(
        text.contains(words),
        format!("no refusal says: {words}"),
        &text,
    )?;
    let left = folder.file_names()?;
    require(left.len() == 1, format!("{left:?} are left"), &text)?;
    folder.remove()
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
    let mut command = job(ranks, faults, &program, &["20000", "store", "files"]);
    fs::create_dir(folder.path().join("store"))?;
    let ended = output_of(command.current_dir(folder.path()))?;
    let text = format!("{}\n{}{}", ended.status, ended.output, ended.errors);
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

/// A list that cannot be written is an error on all ranks, and its draft is removed.
fn refused_list(source: &str, arguments: &str) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    fs::write(folder.path().join("numbers"), vec![0; 4000])?;
    // A list cannot replace a folder.
    fs::create_dir(folder.path().join("saveRank1.dat"))?;
    let program = program(source)?;
    let arguments = words(arguments, &folder);
    let mut command = job(4, "", &program, &arguments);
    let ended = output_of(command.current_dir(folder.path()))?;
    let text = &ended.errors;
    let is_reported = ended.may_have_status(1) && text.contains("cannot write saveRank1.dat");
    require(is_reported, ended.status, text)?;
    let left = folder.file_names()?;
    let drafts = left.iter().filter(|name| name.matches('.').count() > 1);
    require(drafts.count() == 0, format!("{left:?} are left"), text)?;
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
    let killed = table(KILLED_BETWEEN_SORTS).map(|row| {
        let [ranks, kills] = row.cells();
        let name = format!("the authors' program hyperquicksort, {ranks} ranks, kills {kills}");
        let ranks = number(ranks);
        Case::new(row.is_quick, name, move || {
            killed_between_sorts(ranks, kills)
        })
    });
    let refusals = table(REFUSALS).map(|row| {
        let [size, arguments, words] = row.cells();
        let name = format!("the authors' program refuses {arguments}, {size} bytes: {words}");
        let size = number(size);
        Case::new(row.is_quick, name, move || refusal(size, arguments, words))
    });
    let lists = [
        ("c_examples/original/hyperquicksort.c", "numbers 0"),
        ("c_examples/workflow.c", "2000 DIR files"),
    ];
    let lists = lists.map(|(source, arguments)| {
        let name = format!("{source} with a list that cannot be written");
        Case::new(true, name, move || refused_list(source, arguments))
    });
    let name = "rounds of ftsort_original.h count once, 4 ranks";
    let rounds = Case::skippable(true, name, || self_checking("original_loop", 4, ""));
    files
        .chain(cases)
        .chain(killed)
        .chain(refusals)
        .chain(lists)
        .chain([rounds])
        .collect()
}

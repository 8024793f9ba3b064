//! Traces: the times that each rank writes down, in the format of Chrome's trace viewer.

use std::fs;

use libtest_mimic::Failed;

use crate::case::{Case, table};
use crate::harness::{Scratch, job, program, require, run, victims};
use crate::sorter::sort_with;

const RANKS: usize = 4;

/// Failures of a sort on four ranks.
const FAILURES: &str = "
 all   |
 quick | 2@2.send
 all   | 0@1.stored
";

/// The text behind `\"name\":` in a line of a trace, without quotation marks.
fn member<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.split_once(&format!("\"{name}\":"))?.1;
    let rest = rest.trim_start_matches('"');
    rest.split(['"', ',', '}']).next()
}

fn number(line: &str, name: &str) -> u64 {
    let text = member(line, name).and_then(|text| text.parse().ok());
    text.unwrap_or_else(|| panic!("no {name} in {line}"))
}

fn is_named(line: &str, name: &str) -> bool {
    member(line, "name") == Some(name)
}

/// Spans must follow each other, and be within the whole sort; events come after them.
fn spans_are_disjoint(lines: &[&str]) -> Result<(), Failed> {
    let (mut end, mut begun) = (0, false);
    for line in lines {
        match member(line, "ph") {
            Some("B") => begun = true,
            Some("X") if member(line, "bind_id").is_none() => {
                let start = number(line, "ts");
                if start < end {
                    return Err(format!("{line} begins before {end}").into());
                }
                end = start + number(line, "dur");
            }
            // The time of an event is read from another clock, but after the phase before it.
            Some("i") if number(line, "ts") + 20 < end => {
                return Err(format!("{line} is before {end}").into());
            }
            Some("E") if begun && number(line, "ts") >= end => begun = false,
            Some("E") => return Err(format!("{line} ends without a beginning").into()),
            _ => {}
        }
    }
    Ok(())
}

/// Checks the trace of one rank.
fn rank_trace_is_right(text: &str, rank: usize, failed: &[usize]) -> Result<(), Failed> {
    let lines: Vec<&str> = text.lines().collect();
    let events = &lines[1..];
    let has = |name: &str| lines.iter().any(|line| is_named(line, name));
    let is_complete = |line: &&str| line.starts_with('{') && line.ends_with("}},");
    require(lines[0] == "[", "the first line", text)?;
    require(events.iter().all(is_complete), "complete lines", text)?;
    let name = format!("\"args\":{{\"name\":\"rank {rank}\"}}");
    require(events[0].contains(&name), "the name of the rank", text)?;
    let has_pid = |line: &&str| member(line, "pid") == Some(&rank.to_string());
    require(events.iter().all(has_pid), "the pid", text)?;
    spans_are_disjoint(&lines)?;

    let survives = !failed.contains(&rank);
    for name in ["whole sort", "sort", "store", "commit", "round committed"] {
        require(has(name), name, text)?;
    }
    for name in ["exchange", "merge", "send", "receive"] {
        require(has(name) || !survives, name, text)?;
    }
    for name in ["failure", "executor", "replay", "repair"] {
        let expected = survives && !failed.is_empty();
        require(has(name) == expected, name, text)?;
    }
    let has_end = lines.iter().any(|line| member(line, "ph") == Some("E"));
    require(has_end == survives, "the end of the sort", text)?;
    let failures = lines.iter().filter(|line| is_named(line, "failure"));
    let told: Vec<usize> = failures.map(|line| number(line, "rank") as usize).collect();
    let all_told = told.len() == failed.len() || !survives;
    let right = all_told && told.iter().all(|rank| failed.contains(rank));
    require(right, "the failed ranks", text)
}

/// Traces a sort, and checks the file of each rank and the merged file.
fn trace_is_right(faults: &'static str) -> Result<(), Failed> {
    let folder = Scratch::new()?;
    let place = folder.argument();
    let arguments = sort_with("-", faults).arguments(&place);
    let mut command = job(RANKS, faults, &program("tests/c/sorter.c")?, &arguments);
    run(command.env("FTSORT_TRACE", folder.path().join("t")))?;
    let failed = victims(faults);
    let mut all = Vec::new();
    for rank in 0..RANKS {
        let text = fs::read_to_string(folder.path().join(format!("t.{rank}.json")))?;
        rank_trace_is_right(&text, rank, &failed)?;
        let events = text.lines().skip(1);
        all.extend(events.map(|line| line.trim_end_matches(',').to_string()));
    }
    let merged = fs::read_to_string(folder.path().join("t.json"))?;
    let expected = format!("[\n{}\n]\n", all.join(",\n"));
    require(merged == expected, "the merged file", &merged)?;
    arrows_have_two_ends(&merged, failed.is_empty())?;
    is_json(&folder)?;
    folder.remove()
}

/// No message may be sent or received twice. Unless a rank has failed, all that were sent must be received.
fn arrows_have_two_ends(merged: &str, all: bool) -> Result<(), Failed> {
    let ids = |name: &str| {
        let lines = merged.lines().filter(|line| is_named(line, name));
        let id = |line| {
            let id: &str = member(line, "bind_id").unwrap_or_default();
            (id, number(line, "bytes"))
        };
        let mut ids: Vec<(&str, u64)> = lines.map(id).collect();
        ids.sort_unstable();
        ids
    };
    let (sent, received) = (ids("send"), ids("receive"));
    let is_unique = |ids: &[(&str, u64)]| ids.windows(2).all(|pair| pair[0].0 != pair[1].0);
    let known = received.iter().all(|id| sent.binary_search(id).is_ok());
    let unique = is_unique(&sent) && is_unique(&received);
    let complete = !sent.is_empty() && (!all || sent == received);
    let text = format!("sent {sent:?}, received {received:?}");
    require(unique && known && complete, "the arrows", &text)
}

/// Has the merged file read by another program's parser.
fn is_json(folder: &Scratch) -> Result<(), Failed> {
    let check = "import json, sys; assert len(json.load(open(sys.argv[1]))) > 9";
    let mut python = std::process::Command::new("python3");
    let command = python.args(["-c", check]);
    run(command.arg(folder.path().join("t.json"))).map(drop)
}

pub fn cases() -> Vec<Case> {
    let cases = table(FAILURES).map(|row| {
        let [faults] = row.cells();
        let name = format!("a trace shows all events, failures {faults:?}");
        Case::new(row.is_quick, name, move || trace_is_right(faults))
    });
    cases.collect()
}

//! Tests of the lines in trace files.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::super::config::ftsort_config;
use super::super::settings::Settings;
use super::*;
use ftsort_core::store::disk::FileOptions;
use ftsort_core::vcube::Node;
use ftsort_kernels::error::Finding;

/// Records the written texts, one entry for each write. Writes fail after a given number of entries.
#[derive(Clone)]
struct Paper(Arc<Mutex<Vec<String>>>, usize);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.0.lock().expect("no other test has it");
        if written.len() == self.1 {
            return Err(io::Error::other("full"));
        }
        written.push(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Paper {
    fn new(room: usize) -> Paper {
        Paper(Arc::default(), room)
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no other test has it").clone()
    }
}

fn place(prefix: &str) -> Place {
    Place::of(Path::new(prefix), FileOptions::default()).expect("UTF-8")
}

fn trace_on(paper: &Paper, rank: Rank) -> Trace {
    Trace {
        place: place("nowhere/at/all"),
        rank,
        file: Some(Box::new(paper.clone())),
        // SAFETY: NULL is allowed.
        listener: Settings::stopgap()
            .expect("the defaults are right")
            .listener,
        origin: 1e15,
        group: 7,
        call: 1,
        job: None,
        messages: MessageEvents::default(),
    }
}

fn occasion(event: Event) -> Occasion {
    Occasion {
        event,
        round: 2,
        rounds: 4,
        epoch: 1,
        speaker: Rank(0),
        living_here: 3,
    }
}

/// Returns a line without its time.
fn timeless(line: &str) -> String {
    let (before, after) = line.split_once("\"ts\":").expect("it has a time");
    let time = after.find(',').expect("something follows");
    format!("{before}{}", &after[time + 1..])
}

#[test]
fn spans_are_lines_with_whole_microseconds() {
    let paper = Paper::new(99);
    let mut trace = trace_on(&paper, Rank(3));
    let span = |phase| Span {
        phase,
        start: 2.0,
        seconds: 0.5,
        round: 1,
        epoch: 0,
    };
    trace.begin();
    trace.job_begins(JobKind::Sort, 1.0);
    trace.span(span(Phase::Merge));
    trace.job_ends(Status::DataLost, 3.0);
    trace.job_begins(JobKind::Rounds, 4.0);
    trace.span(span(Phase::Merge));
    let wanted = [
        "[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":3,\"tid\":0,\"args\":{\"name\":\"rank 3\"}},\n\
         {\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":3,\"tid\":0,\"args\":{\"name\":\"main\"}},\n",
        "{\"ph\":\"B\",\"name\":\"whole sort\",\"pid\":3,\"tid\":0,\"ts\":1000000001000000,\"args\":{\"call\":1}},\n",
        "{\"ph\":\"X\",\"name\":\"merge\",\"pid\":3,\"tid\":0,\"ts\":1000000002000000,\"dur\":500000,\"args\":{\"round\":1,\"epoch\":0}},\n",
        "{\"ph\":\"E\",\"name\":\"whole sort\",\"pid\":3,\"tid\":0,\"ts\":1000000003000000,\"args\":{\"status\":-40}},\n",
        "{\"ph\":\"B\",\"name\":\"whole rounds\",\"pid\":3,\"tid\":0,\"ts\":1000000004000000,\"args\":{\"call\":1}},\n",
        "{\"ph\":\"X\",\"name\":\"exchange\",\"pid\":3,\"tid\":0,\"ts\":1000000002000000,\"dur\":500000,\"args\":{\"round\":1,\"epoch\":0}},\n",
    ];
    assert_eq!(paper.lines(), wanted);
}

#[test]
fn spans_that_touch_do_not_overlap() {
    let trace = trace_on(&Paper::new(0), Rank(0));
    let mut end = 0;
    let mut time = 0.1;
    for step in 1..5000 {
        let next = time + 1.7e-7 * f64::from(step % 9);
        let start = trace.at(time);
        assert!(start >= end);
        end = trace.at(next);
        assert!(end >= start);
        time = next;
    }
}

#[test]
fn events_carry_their_arguments() {
    let paper = Paper::new(99);
    let mut trace = trace_on(&paper, Rank(0));
    let events = [
        (Event::Round, "round committed", ""),
        (Event::Failure(Rank(2)), "failure", ",\"rank\":2"),
        (
            Event::Executor(Node(2), Rank(3)),
            "executor",
            ",\"node\":2,\"by\":3",
        ),
        (
            Event::Restored(Node(2), None),
            "restored",
            ",\"node\":2,\"from\":-1",
        ),
        (
            Event::Restored(Node(2), Some(Rank(1))),
            "restored",
            ",\"node\":2,\"from\":1",
        ),
        (Event::Replay, "replay", ""),
        (Event::Excluded(Rank(1)), "excluded", ",\"rank\":1"),
        (Event::Rejoined(Rank(1)), "rejoined", ",\"rank\":1"),
        (
            Event::Corrupt(Some(Rank(1)), Rank(0), Finding::Order),
            "corrupt",
            ",\"accused\":1,\"by\":0,\"finding\":\"a block of the result is not sorted\"",
        ),
        (
            Event::Corrupt(None, Rank(0), Finding::Order),
            "corrupt",
            ",\"accused\":-1,\"by\":0,\"finding\":\"a block of the result is not sorted\"",
        ),
    ];
    for (event, name, about) in events {
        trace.event(occasion(event));
        let line = paper.lines().pop().expect("a line");
        assert_eq!(
            timeless(&line),
            format!(
                "{{\"ph\":\"i\",\"name\":\"{name}\",\"pid\":0,\"tid\":0,\"s\":\"t\",\
                 \"args\":{{\"round\":2,\"rounds\":4,\"epoch\":1{about}}}}},\n"
            )
        );
    }
}

/// Returns the identifiers of messages as this rank computes them.
fn ids(rank: Rank, messages: &[(u64, MessageEvent)]) -> Vec<String> {
    let paper = Paper::new(99);
    let mut trace = trace_on(&paper, rank);
    for (call, message) in messages {
        trace.call = *call;
        trace.message(*message);
    }
    let id = |line: &String| {
        Some(
            line.split("\"bind_id\":\"")
                .nth(1)?
                .split('"')
                .next()?
                .into(),
        )
    };
    paper.lines().iter().filter_map(id).collect()
}

#[test]
fn both_ends_of_a_message_have_the_same_unique_id() {
    let message = |from, to, round, epoch| MessageEvent {
        from: Rank(from),
        to: Rank(to),
        bytes: 5,
        round,
        epoch,
    };
    let messages = [
        (1, message(0, 1, 1, 0)),
        (1, message(0, 1, 1, 0)),
        (1, message(1, 0, 1, 0)),
        (1, message(0, 1, 1, 1)),
        (1, message(0, 1, 2, 1)),
        (2, message(0, 1, 1, 0)),
    ];
    let both = [ids(Rank(0), &messages), ids(Rank(1), &messages)];
    assert_eq!(both[0], both[1]);
    let different: BTreeSet<&String> = both[0].iter().collect();
    assert_eq!(different.len(), messages.len());
    // Viewers expect 64 bits in hexadecimal.
    assert!(
        both[0]
            .iter()
            .all(|id| id.len() == 18 && id.starts_with("0x"))
    );
}

unsafe extern "C" fn count(user: *mut c_void, _level: c_int, _line: *const c_char) {
    // SAFETY: `user` is the counter of the test, which lives as long as its trace.
    unsafe { *user.cast::<u32>() += 1 };
}

#[test]
fn a_write_error_is_logged_once_and_stops_the_trace() {
    let mut told = 0_u32;
    // SAFETY: numbers, pointers and optional functions may all be zero.
    let config: ftsort_config = unsafe { std::mem::zeroed() };
    let config = ftsort_config {
        struct_size: size_of::<ftsort_config>(),
        faults: c"".as_ptr(),
        trace: c"".as_ptr(),
        on_log: Some(count),
        user: std::ptr::from_mut(&mut told).cast(),
        ..config
    };
    // SAFETY: the struct has its size, and its strings end with a NUL.
    let settings = unsafe { Settings::read(&config) }.expect("the defaults are right");
    assert!(settings.trace.is_none());
    let paper = Paper::new(2);
    let mut trace = Trace {
        listener: settings.listener,
        ..trace_on(&paper, Rank(0))
    };
    for _ in 0..5 {
        trace.event(occasion(Event::Round));
    }
    assert!(trace.file.is_none());
    assert_eq!(paper.lines().len(), 2);
    drop(trace);
    assert_eq!(told, 1);
}

#[test]
fn a_file_that_cannot_be_created_is_an_invalid_argument() {
    // SAFETY: NULL is allowed.
    let listener = Settings::stopgap()
        .expect("the defaults are right")
        .listener;
    let error = Trace::open(place("/nowhere/at/all"), Rank(0), listener, || 0.0)
        .err()
        .expect("there is no such folder");
    assert_eq!(error.status, Status::Argument);
    assert!(error.text.contains("config.trace"), "{}", error.text);
    assert!(error.text.contains("\"/nowhere/at/all\""), "{}", error.text);
}

//! Timelines of all ranks as files for a trace viewer: `ftsort_config.trace`.
//!
//! The format is Chrome's, of trace events as a JSON array, which Perfetto and chrome://tracing read. Each
//! rank writes a file of its own, an event a line, each line at once: viewers need neither the array's end
//! nor that of a span, so that the file of a killed rank shows its work until then. At the end
//! one of the ranks makes one file of all.
//!
//! Times are whole microseconds since 1970, the same on all ranks of a host. (Viewers read times as doubles.
//! A fraction would be rounded, and adjacent spans would then overlap.)

mod files;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io::Write;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use twox_hash::XxHash3_64;

pub(super) use self::files::Place;
use super::settings::Listener;
use ftsort_core::engine::{Event, MessageEvent, Observer, Occasion, Phase, Span};
use ftsort_core::group::{GroupObserver, JobKind, LogLevel};
use ftsort_core::members::Rank;
use ftsort_kernels::error::{Error, Result, Status};

/// Returns the name of the span around the phases of a job.
fn name_of(job: JobKind) -> &'static str {
    match job {
        JobKind::Sort => "whole sort",
        JobKind::Rounds => "whole rounds",
        JobKind::Protect => "whole protection",
    }
}

/// The trace of one rank.
pub(super) struct Trace {
    place: Place,
    rank: Rank,
    /// None after a write error.
    file: Option<Box<dyn Write + Send>>,
    listener: Listener,
    /// Microseconds since 1970 at the transport's time 0. One for all, so that spans that do not
    /// overlap by the transport's clock do not overlap here, even if the system's clock is set.
    origin: f64,
    /// The identifier of the group: the same on all its ranks, and different from that of any other group.
    group: u64,
    /// The number of collective calls that the group has begun.
    call: u64,
    job: Option<JobKind>,
    messages: MessageEvents,
}

/// Counts the messages from one rank to another in the current call, round and epoch.
#[derive(Default)]
struct MessageEvents {
    when: (u64, u32, u32),
    counts: BTreeMap<(Rank, Rank), u64>,
}

impl MessageEvents {
    /// Returns the number of the next message, from 0.
    fn next(&mut self, when: (u64, u32, u32), from: Rank, to: Rank) -> u64 {
        if self.when != when {
            self.when = when;
            self.counts.clear();
        }
        let count = self.counts.entry((from, to)).or_default();
        *count += 1;
        *count - 1
    }
}

impl Trace {
    /// Creates the file of this rank in its place. `clock` is the transport's clock.
    pub fn open(
        mut place: Place,
        rank: Rank,
        listener: Listener,
        clock: impl Fn() -> f64,
    ) -> Result<Trace> {
        let (file, fresh) = place.open(rank).map_err(|error| {
            Error::argument(format!(
                "config.trace (or FTSORT_TRACE) is {:?}, but {}: {error}",
                place.prefix(),
                place.path_of(rank).display()
            ))
        })?;
        let mut trace = Trace {
            place,
            rank,
            file: Some(file),
            listener,
            origin: origin_of(clock),
            group: 0,
            call: 0,
            job: None,
            messages: MessageEvents::default(),
        };
        if fresh {
            trace.begin();
        }
        Ok(trace)
    }

    fn begin(&mut self) {
        let rank = self.rank;
        let members = format!("\"pid\":{rank},\"tid\":0,\"args\"");
        // One write for all of it, because viewers reject a file that has only the start of the array.
        self.put(&format!(
            "[\n{{\"ph\":\"M\",\"name\":\"process_name\",{members}:{{\"name\":\"rank {rank}\"}}}},\n\
             {{\"ph\":\"M\",\"name\":\"thread_name\",{members}:{{\"name\":\"main\"}}}},\n"
        ));
    }

    /// Assigns the trace to a group.
    pub fn of_group(self, group: u64) -> Trace {
        Trace { group, ..self }
    }

    /// Counts the start of a collective call; called on all ranks alike.
    pub fn call(&mut self) {
        self.call += 1;
    }

    /// Records the start of a whole job.
    pub fn job_begins(&mut self, job: JobKind, now: f64) {
        self.job = Some(job);
        let call = self.call;
        self.line(
            'B',
            name_of(job),
            self.at(now),
            format_args!("\"call\":{call}"),
        );
    }

    /// Records the end of the job with its status.
    pub fn job_ends(&mut self, status: Status, now: f64) {
        let Some(job) = self.job.take() else {
            return;
        };
        let status = status as i32;
        self.line(
            'E',
            name_of(job),
            self.at(now),
            format_args!("\"status\":{status}"),
        );
    }

    /// Makes one file of the files of these ranks, as far as this rank can read them.
    pub fn merge(mut self, ranks: &[Rank]) {
        self.file = None;
        if let Err(error) = self.place.merge(ranks) {
            let text = format!("the ranks' traces cannot be merged: {error}");
            self.listener.log(LogLevel::Warning, &text);
        }
    }

    /// Converts a time of the transport's clock to microseconds since 1970.
    fn at(&self, time: f64) -> u64 {
        (self.origin + time * 1e6) as u64
    }

    /// Writes the line of an event.
    fn line(&mut self, kind: char, name: &str, at: u64, arguments: Arguments<'_>) {
        self.long_line(kind, name, at, format_args!(""), arguments);
    }

    /// Writes the line of an event with additional members for this kind of event.
    fn long_line(
        &mut self,
        kind: char,
        name: &str,
        at: u64,
        members: Arguments<'_>,
        arguments: Arguments<'_>,
    ) {
        if self.file.is_none() {
            return;
        }
        let rank = self.rank;
        self.put(&format!(
            "{{\"ph\":\"{kind}\",\"name\":\"{name}\",\"pid\":{rank},\"tid\":0,\"ts\":{at}{members},\"args\":{{{arguments}}}}},\n"
        ));
    }

    fn put(&mut self, text: &str) {
        let Some(file) = &mut self.file else {
            return;
        };
        if let Err(error) = file.write_all(text.as_bytes()) {
            self.file = None;
            let path = self.place.path_of(self.rank);
            let text = format!("{}: {error}; tracing stops", path.display());
            self.listener.log(LogLevel::Warning, &text);
        }
    }

    fn event(&mut self, occasion: Occasion) {
        let number = |rank: Option<Rank>| rank.map_or(-1, |rank| i64::from(rank.0));
        let of_rank = |rank: Rank| format!(",\"rank\":{rank}");
        let (name, about) = match occasion.event {
            Event::Round => ("round committed", String::new()),
            Event::Failure(rank) => ("failure", of_rank(rank)),
            Event::Executor(node, by) => ("executor", format!(",\"node\":{},\"by\":{by}", node.0)),
            Event::Restored(node, from) => {
                let from = number(from);
                ("restored", format!(",\"node\":{},\"from\":{from}", node.0))
            }
            Event::Replay => ("replay", String::new()),
            Event::Renewed => ("renewed", String::new()),
            Event::Excluded(rank) => ("excluded", of_rank(rank)),
            Event::Rejoined(rank) => ("rejoined", of_rank(rank)),
            Event::Corrupt(accused, by, finding) => {
                let (accused, text) = (number(accused), finding.text());
                let about = format!(",\"accused\":{accused},\"by\":{by},\"finding\":\"{text}\"");
                ("corrupt", about)
            }
        };
        let (round, rounds, epoch) = (occasion.round, occasion.rounds, occasion.epoch);
        self.long_line(
            'i',
            name,
            system_time() as u64,
            format_args!(",\"s\":\"t\""),
            format_args!("\"round\":{round},\"rounds\":{rounds},\"epoch\":{epoch}{about}"),
        );
    }

    fn span(&mut self, span: Span) {
        let name = match span.phase {
            Phase::Sort => "sort",
            Phase::Exchange => "exchange",
            // User-defined rounds merge nothing, so this time counts as exchange, as it does in the
            // statistics.
            Phase::Merge if self.job == Some(JobKind::Rounds) => "exchange",
            Phase::Merge => "merge",
            Phase::Protect => "protect",
            Phase::Store => "store",
            Phase::Commit => "commit",
            Phase::Repair => "repair",
        };
        let (start, end) = (self.at(span.start), self.at(span.start + span.seconds));
        let (length, round, epoch) = (end - start, span.round, span.epoch);
        self.long_line(
            'X',
            name,
            start,
            format_args!(",\"dur\":{length}"),
            format_args!("\"round\":{round},\"epoch\":{epoch}"),
        );
    }

    /// Writes an event without duration. An identifier connects it to the event at the other end of the
    /// message.
    fn message(&mut self, message: MessageEvent) {
        let MessageEvent {
            from,
            to,
            bytes,
            round,
            epoch,
        } = message;
        let number = self.messages.next((self.call, round, epoch), from, to);
        let id = self.id_of(message, number);
        let (name, direction, peer) = match from == self.rank {
            true => ("send", "flow_out", to),
            false => ("receive", "flow_in", from),
        };
        self.long_line(
            'X',
            name,
            system_time() as u64,
            format_args!(
                ",\"dur\":0,\"cat\":\"message\",\"bind_id\":\"{id:#018x}\",\"{direction}\":true"
            ),
            format_args!(
                "\"peer\":{peer},\"bytes\":{bytes},\"round\":{round},\"epoch\":{epoch},\"number\":{number}"
            ),
        );
    }

    /// Returns the identifier of a message, the same at both ends. Viewers support at most 64 bits, so the
    /// probability that two of n messages have the same identifier is n^2 / 2^65.
    fn id_of(&self, message: MessageEvent, number: u64) -> u64 {
        let words = [
            self.group,
            self.call,
            message.round.into(),
            message.epoch.into(),
            message.from.0.into(),
            message.to.0.into(),
            number,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        XxHash3_64::oneshot(&bytes)
    }
}

/// Returns the time of the system's clock in microseconds since 1970.
fn system_time() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64() * 1e6)
}

/// Returns the time 0 of a clock in microseconds since 1970. It is the smallest of several measurements: in
/// the others more time passed between the readings of the two clocks.
fn origin_of(clock: impl Fn() -> f64) -> f64 {
    let tries = (0..8).map(|_| {
        let time = clock();
        system_time() - time * 1e6
    });
    tries.fold(f64::INFINITY, f64::min)
}

/// A trace that the group's observer and the handle share. None: tracing is off.
pub(super) type SharedTrace = Rc<RefCell<Option<Trace>>>;

/// Passes events to the callbacks of the caller, and to the trace if there is one.
pub(super) struct Reporter {
    listener: Listener,
    trace: SharedTrace,
}

impl Reporter {
    pub fn new(listener: Listener, trace: SharedTrace) -> Reporter {
        Reporter { listener, trace }
    }

    fn traced(&self, work: impl FnOnce(&mut Trace)) {
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            work(trace);
        }
    }
}

impl Observer for Reporter {
    fn event(&mut self, occasion: Occasion) {
        // The trace comes first, because the callback may take long or not return.
        self.traced(|trace| trace.event(occasion));
        self.listener.event(occasion);
    }

    fn span(&mut self, span: Span) {
        self.traced(|trace| trace.span(span));
    }

    fn message(&mut self, message: MessageEvent) {
        self.traced(|trace| trace.message(message));
    }
}

impl GroupObserver for Reporter {
    fn call_begins(&mut self) {
        self.traced(Trace::call);
    }

    fn job_begins(&mut self, job: JobKind, now: f64) {
        self.traced(|trace| trace.job_begins(job, now));
    }

    fn job_ends(&mut self, status: Status, now: f64) {
        self.traced(|trace| trace.job_ends(status, now));
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        self.listener.log(level, line);
    }
}

//! The places of the events in a space-time diagram.

use std::collections::BTreeMap;

use crate::timeline::moment;
use crate::transport::{CollectiveCall, FailureMode, TraceEntry, TraceEvent};
use ftsort_core::engine::Event;

/// A message from one rank to another.
pub struct Arrow {
    pub from: usize,
    pub to: usize,
    pub sent: usize,
    /// The column of the receive. None: the message was lost.
    pub received: Option<usize>,
}

/// The time of one rank in a collective call.
pub struct Segment {
    pub rank: usize,
    pub start: usize,
    pub end: usize,
    /// Whether the call reports a failure.
    pub failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    Fails,
    Learns,
    Commits,
    Restores,
    Replays,
    /// A text without a symbol.
    Text,
}

/// A symbol on the line of a rank, with a text below it.
pub struct Mark {
    pub kind: MarkKind,
    pub rank: usize,
    pub column: usize,
    pub text: String,
    /// The row of the text, from 0.
    pub row: usize,
}

/// A text above all ranks.
pub struct Label {
    pub column: usize,
    pub row: usize,
    pub text: String,
}

/// The columns at which a rank is reported as failed, and stops.
#[derive(Clone, Default)]
pub struct Lifetime {
    pub reported: Option<usize>,
    pub stopped: Option<usize>,
}

/// The places of all events.
pub struct Layout {
    pub ranks: usize,
    pub columns: usize,
    pub lifetimes: Vec<Lifetime>,
    pub messages: Vec<Arrow>,
    pub agreements: Vec<Segment>,
    pub marks: Vec<Mark>,
    pub labels: Vec<Label>,
    /// The number of rows of labels.
    pub label_rows: usize,
}

/// The column of a message's sending, and its sender and receiver.
type Sent = (usize, usize, usize);

struct Builder {
    layout: Layout,
    with_messages: bool,
    /// The last column of each rank.
    last: Vec<usize>,
    /// Messages that were sent and have not arrived.
    sent: BTreeMap<u64, Sent>,
    /// The number of collective calls that each rank has entered.
    calls: Vec<usize>,
    /// The largest column at which a rank entered each call.
    entered: BTreeMap<usize, usize>,
    /// The column at which each rank entered its present call.
    inside: Vec<Option<usize>>,
    /// The end of the last label in each row, in letters.
    rows: Vec<usize>,
    /// The same for the texts of each rank.
    text_rows: Vec<[usize; 3]>,
    /// The events with a label that each rank has reported. The first rank that reports one adds the label.
    reported: Vec<Vec<(Event, u32)>>,
    /// The labels, each with how often one rank has reported its event.
    labelled: Vec<(Event, u32, usize)>,
}

/// The number of letters that take the width of a column.
const LETTERS_PER_COLUMN: usize = 2;

impl Layout {
    /// Places the events of a trace.
    pub fn of(ranks: usize, trace: &[TraceEntry], with_messages: bool) -> Layout {
        let mut builder = Builder {
            layout: Layout {
                ranks,
                columns: 0,
                lifetimes: vec![Lifetime::default(); ranks],
                messages: Vec::new(),
                agreements: Vec::new(),
                marks: Vec::new(),
                labels: Vec::new(),
                label_rows: 0,
            },
            with_messages,
            last: vec![0; ranks],
            sent: BTreeMap::new(),
            calls: vec![0; ranks],
            entered: BTreeMap::new(),
            inside: vec![None; ranks],
            rows: Vec::new(),
            text_rows: vec![[0; 3]; ranks],
            reported: vec![Vec::new(); ranks],
            labelled: Vec::new(),
        };
        for entry in trace {
            match entry.rank {
                Some(rank) => builder.add(rank.index(), &entry.event),
                None => builder.add_network(&entry.event),
            }
        }
        builder.layout.columns = builder.last.iter().copied().max().unwrap_or(0);
        builder.layout.label_rows = builder.rows.len();
        builder.layout
    }
}

impl Builder {
    fn advance(&mut self, rank: usize, after: usize) -> usize {
        let column = self.last[rank].max(after) + 1;
        self.last[rank] = column;
        column
    }

    fn add_network(&mut self, event: &TraceEvent) {
        if let TraceEvent::Loses { message } = event
            && let Some((sent, from, to)) = self.sent.remove(message)
        {
            self.layout.messages.push(Arrow {
                from,
                to,
                sent,
                received: None,
            });
        }
    }

    fn add(&mut self, rank: usize, event: &TraceEvent) {
        match event {
            TraceEvent::Sends { message, to, .. } if self.with_messages => {
                let column = self.advance(rank, 0);
                self.sent.insert(*message, (column, rank, to.index()));
            }
            TraceEvent::Receives { message, .. } => {
                if let Some((sent, from, to)) = self.sent.remove(message) {
                    let received = self.advance(rank, sent);
                    self.layout.messages.push(Arrow {
                        from,
                        to,
                        sent,
                        received: Some(received),
                    });
                }
            }
            TraceEvent::Fails { mode, step } => {
                let column = self.advance(rank, 0);
                let text = match mode {
                    FailureMode::Crash => "fails",
                    FailureMode::EarlyReport => "is reported as failed",
                    FailureMode::Partition => "is separated from the others",
                    FailureMode::Stop => "is stopped",
                    FailureMode::Slow => "works for 200 seconds",
                    FailureMode::Hang => "hangs in its next collective call",
                };
                let text = format!("rank {rank} {text} {}", moment(*step));
                self.mark(MarkKind::Fails, rank, column, text);
                let lifetime = &mut self.layout.lifetimes[rank];
                match mode {
                    FailureMode::Crash | FailureMode::Stop => lifetime.stopped = Some(column),
                    FailureMode::EarlyReport | FailureMode::Partition => {
                        lifetime.reported = Some(column);
                    }
                    FailureMode::Slow | FailureMode::Hang => {}
                }
                self.close_call(rank, column, false);
            }
            TraceEvent::Stops => {
                let column = self.advance(rank, 0);
                self.mark(MarkKind::Fails, rank, column, String::new());
                self.layout.lifetimes[rank].stopped = Some(column);
                self.close_call(rank, column, false);
            }
            TraceEvent::Learns { .. } => {
                let column = self.advance(rank, 0);
                self.mark(MarkKind::Learns, rank, column, String::new());
            }
            TraceEvent::Enters { .. } => {
                let column = self.advance(rank, 0);
                self.calls[rank] += 1;
                let entered = self.entered.entry(self.calls[rank]).or_insert(0);
                *entered = column.max(*entered);
                self.inside[rank] = Some(column);
            }
            TraceEvent::Leaves { call, failed } => self.leave(rank, *call, *failed),
            TraceEvent::Reports { event, round, .. } => self.report(rank, *event, *round),
            _ => {}
        }
    }

    fn leave(&mut self, rank: usize, call: CollectiveCall, failed: bool) {
        let entered = self.entered.get(&self.calls[rank]).copied().unwrap_or(0);
        let end = self.advance(rank, entered);
        if call == CollectiveCall::Agree {
            self.close_call(rank, end, failed);
        } else {
            self.inside[rank] = None;
        }
    }

    /// Ends the segment of a rank that leaves a collective call, or fails in it.
    fn close_call(&mut self, rank: usize, end: usize, failed: bool) {
        if let Some(start) = self.inside[rank].take() {
            self.layout.agreements.push(Segment {
                rank,
                start,
                end,
                failed,
            });
        }
    }

    fn report(&mut self, rank: usize, event: Event, round: u32) {
        match event {
            Event::Round => {
                let column = self.advance(rank, 0);
                self.mark(MarkKind::Commits, rank, column, String::new());
                let text = if round == 0 {
                    "inputs committed".to_string()
                } else {
                    format!("round {round} committed")
                };
                self.label(rank, (event, round), column, text);
            }
            Event::Replay => {
                let column = self.advance(rank, 0);
                self.mark(MarkKind::Replays, rank, column, String::new());
                let text = format!("recovery committed, round {round} is replayed");
                self.label(rank, (event, round), column, text);
            }
            Event::Restored(node, from) => {
                let column = self.advance(rank, 0);
                let text = match from {
                    Some(from) if from.index() == rank => {
                        format!("restores node {node} from its replica")
                    }
                    Some(from) => format!("restores node {node} from rank {from}"),
                    None => format!("restores node {node} from the store"),
                };
                self.mark(MarkKind::Restores, rank, column, text);
            }
            Event::Executor(node, executor) if executor.index() == rank => {
                let column = self.advance(rank, 0);
                self.mark(
                    MarkKind::Text,
                    rank,
                    column,
                    format!("executes node {node}, too"),
                );
            }
            _ => {}
        }
    }

    fn mark(&mut self, kind: MarkKind, rank: usize, column: usize, text: String) {
        let start = column * LETTERS_PER_COLUMN;
        let rows = &mut self.text_rows[rank];
        let row = rows.iter().position(|end| *end <= start).unwrap_or(0);
        if !text.is_empty() {
            rows[row] = start + text.chars().count() + 2;
        }
        self.layout.marks.push(Mark {
            kind,
            rank,
            column,
            text,
            row,
        });
    }

    /// Adds a label above all ranks, unless another rank has reported the same event.
    fn label(&mut self, rank: usize, (event, round): (Event, u32), column: usize, text: String) {
        self.reported[rank].push((event, round));
        let same = self.reported[rank].iter();
        let count = same.filter(|other| **other == (event, round)).count();
        if self.labelled.contains(&(event, round, count)) {
            return;
        }
        self.labelled.push((event, round, count));
        let start = column * LETTERS_PER_COLUMN;
        let row = self.rows.iter().position(|end| *end <= start);
        let row = row.unwrap_or_else(|| {
            self.rows.push(0);
            self.rows.len() - 1
        });
        self.rows[row] = start + text.chars().count() + 2;
        self.layout.labels.push(Label { column, row, text });
    }
}

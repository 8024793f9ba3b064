//! The trace of a run as a space-time diagram in SVG.
//!
//! Each rank is a horizontal line, and logical time goes from left to right. An event is placed one column after the
//! events that it depends on: the previous event of its rank, the sending of a message, and the entries of all ranks
//! into an agreement. The picture depends on the trace alone.

mod layout;

use std::fmt::Write;

use crate::transport::TraceEntry;
use layout::{Layout, Mark, MarkKind, Segment};

/// The largest size of a picture, in bytes.
const MAX_BYTES: usize = 190_000;

const COLUMN: usize = 13;
const ROW: usize = 84;
const LEFT: usize = 72;
const RIGHT: usize = 40;
const LABEL_ROW: usize = 15;
/// The average width of a letter, in tenths of a pixel.
const LETTER: usize = 62;
const LEGEND_COLUMN: usize = 290;

const STYLE: &str = "\
text{font:11px 'DejaVu Sans',Verdana,sans-serif;fill:#1f2328;paint-order:stroke;\
stroke:#ffffff;stroke-width:3px}\
.back{fill:#ffffff}\
.rank{stroke:#57606a;stroke-width:1.5}\
.early{stroke:#57606a;stroke-width:1.5;stroke-dasharray:3 3}\
.message{stroke:#0969da;stroke-width:1;fill:none}\
.lost{stroke:#cf222e;stroke-width:1;stroke-dasharray:3 2;fill:none}\
.head{fill:#0969da}\
.agree{stroke:#8c959f;stroke-width:7;stroke-linecap:round;opacity:.75}\
.alarm{stroke:#d4720b;stroke-width:7;stroke-linecap:round;opacity:.85}\
.commit{stroke:#1a7f37;stroke-width:1;stroke-dasharray:4 3;fill:none}\
.dot{fill:#1a7f37}\
.cross{stroke:#cf222e;stroke-width:3}\
.learn{fill:#ffffff;stroke:#d4720b;stroke-width:2}\
.restore{fill:#8250df}\
.replay{fill:#8250df}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3;stroke:#0d1117}.back{fill:#0d1117}.learn{fill:#0d1117}\
.rank,.early{stroke:#8b949e}.message{stroke:#58a6ff}.head{fill:#58a6ff}.commit{stroke:#3fb950}.dot{fill:#3fb950}\
.cross,.lost{stroke:#ff7b72}.agree{stroke:#6e7681}.restore,.replay{fill:#bc8cff}}";

/// Draws the trace of a run of this many ranks. A trace that does not fit into 190,000 bytes is drawn without messages,
/// and if it still does not fit, only its first part is drawn. The picture says so.
pub fn draw_diagram(ranks: usize, trace: &[TraceEntry]) -> String {
    let picture = draw(ranks, trace, true, None);
    if picture.len() <= MAX_BYTES {
        return picture;
    }
    let mut length = trace.len();
    loop {
        let note = if length == trace.len() {
            "Messages are left out.".to_string()
        } else {
            format!(
                "Messages are left out, and only the first {length} of {} events are shown.",
                trace.len()
            )
        };
        let picture = draw(ranks, &trace[..length], false, Some(&note));
        if picture.len() <= MAX_BYTES || length < 100 {
            return picture;
        }
        length = length * 3 / 4;
    }
}

fn draw(ranks: usize, trace: &[TraceEntry], messages: bool, note: Option<&str>) -> String {
    let layout = Layout::of(ranks, trace, messages);
    let mut canvas = Canvas::new(&layout, note);
    canvas.rank_lines(&layout);
    canvas.agreements(&layout);
    canvas.messages(&layout);
    canvas.commit_lines(&layout);
    canvas.marks(&layout);
    canvas.legend();
    canvas.finish()
}

struct Canvas {
    out: String,
    width: usize,
    top: usize,
    ranks: usize,
}

fn x_of(column: usize) -> usize {
    LEFT + COLUMN * column
}

fn text_width(text: &str) -> usize {
    text.chars().count() * LETTER / 10
}

impl Canvas {
    fn new(layout: &Layout, note: Option<&str>) -> Canvas {
        let labels_end = layout
            .labels
            .iter()
            .map(|label| x_of(label.column) + text_width(&label.text));
        let lines_end = x_of(layout.columns + 1);
        let content = labels_end
            .chain([lines_end, LEFT + 3 * LEGEND_COLUMN])
            .max();
        let width = content.unwrap_or(0) + RIGHT;
        let top = 56 + LABEL_ROW * layout.label_rows;
        let per_row = ((width - 24) / LEGEND_COLUMN).max(1);
        let legend_rows = LEGEND.len().div_ceil(per_row);
        let height = top + ROW * layout.ranks + 20 + 22 * legend_rows + 10;
        let mut canvas = Canvas {
            out: String::new(),
            width,
            top,
            ranks: layout.ranks,
        };
        let title = "Space-time diagram of a simulated run";
        let _ = write!(
            canvas.out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto\"><path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n\
             <rect class=\"back\" width=\"{width}\" height=\"{height}\"/>\n"
        );
        let text = "Each line is a rank. Logical time goes from left to right.";
        canvas.text(12, 22, &[text, note.unwrap_or("")].join(" "));
        canvas
    }

    fn y_of(&self, rank: usize) -> usize {
        self.top + 20 + ROW * rank
    }

    fn text(&mut self, x: usize, y: usize, text: &str) {
        let text = text.trim().replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(self.out, "<text x=\"{x}\" y=\"{y}\">{text}</text>");
    }

    fn line(&mut self, class: &str, (x1, y1): (usize, usize), (x2, y2): (usize, usize)) {
        let _ = writeln!(
            self.out,
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        );
    }

    fn rank_lines(&mut self, layout: &Layout) {
        for rank in 0..layout.ranks {
            let y = self.y_of(rank);
            self.text(12, y + 4, &format!("rank {rank}"));
            let lifetime = &layout.lifetimes[rank];
            let end = lifetime.stopped.unwrap_or(layout.columns + 1);
            let reported = lifetime.reported.unwrap_or(end).min(end);
            self.line("rank", (x_of(0), y), (x_of(reported), y));
            if reported < end {
                self.line("early", (x_of(reported), y), (x_of(end), y));
            }
        }
    }

    fn commit_lines(&mut self, layout: &Layout) {
        let bottom = self.y_of(self.ranks - 1) + 12;
        for label in &layout.labels {
            let (x, y) = (x_of(label.column), 44 + LABEL_ROW * label.row);
            self.text(x + 3, y, &label.text);
            self.line("commit", (x, y + 3), (x, bottom));
        }
    }

    fn agreements(&mut self, layout: &Layout) {
        for Segment {
            rank,
            start,
            end,
            failed,
        } in &layout.agreements
        {
            let y = self.y_of(*rank);
            let class = if *failed { "alarm" } else { "agree" };
            self.line(class, (x_of(*start), y), (x_of(*end), y));
        }
    }

    fn messages(&mut self, layout: &Layout) {
        for message in &layout.messages {
            let (from, to) = (self.y_of(message.from), self.y_of(message.to));
            let start = x_of(message.sent);
            let (class, head, (x, y)) = match message.received {
                Some(column) => ("message", " marker-end=\"url(#head)\"", (x_of(column), to)),
                // A lost message ends at a third of its way.
                None => ("lost", "", (start + COLUMN / 2, (2 * from + to) / 3)),
            };
            let _ = writeln!(
                self.out,
                "<path class=\"{class}\"{head} d=\"M{start} {from}L{x} {y}\"/>"
            );
            if message.received.is_none() {
                self.cross(x, y, 3);
            }
        }
    }

    fn cross(&mut self, x: usize, y: usize, half: usize) {
        let (left, right, above, below) = (x - half, x + half, y - half, y + half);
        let _ = writeln!(
            self.out,
            "<path class=\"cross\" d=\"M{left} {above}L{right} {below}M{left} {below}L{right} {above}\"/>"
        );
    }

    fn circle(&mut self, class: &str, x: usize, y: usize) {
        let _ = writeln!(
            self.out,
            "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"4\"/>"
        );
    }

    fn mark(&mut self, kind: MarkKind, x: usize, y: usize) {
        match kind {
            MarkKind::Fails => self.cross(x, y, 7),
            MarkKind::Commits => self.circle("dot", x, y),
            MarkKind::Learns => self.circle("learn", x, y),
            MarkKind::Restores => {
                let (left, top) = (x - 5, y - 5);
                let _ = writeln!(
                    self.out,
                    "<rect class=\"restore\" x=\"{left}\" y=\"{top}\" width=\"10\" height=\"10\"/>"
                );
            }
            MarkKind::Replays => {
                let (left, right, above, below) = (x - 6, x + 5, y - 6, y + 6);
                let _ = writeln!(
                    self.out,
                    "<path class=\"replay\" d=\"M{right} {above}L{right} {below}L{left} {y}z\"/>"
                );
            }
            MarkKind::Text => {}
        }
    }

    fn marks(&mut self, layout: &Layout) {
        for Mark {
            kind,
            rank,
            column,
            text,
            row,
        } in &layout.marks
        {
            let (x, y) = (x_of(*column), self.y_of(*rank));
            self.mark(*kind, x, y);
            if !text.is_empty() {
                self.text(x + 4, y + 20 + LABEL_ROW * row, text);
            }
        }
    }

    fn legend(&mut self) {
        let per_row = ((self.width - 24) / LEGEND_COLUMN).max(1);
        let start = self.top + ROW * self.ranks + 20;
        for (index, (item, text)) in LEGEND.iter().enumerate() {
            let x = 12 + LEGEND_COLUMN * (index % per_row);
            let y = start + 22 * (index / per_row);
            match item {
                LegendItem::Line(class, head) => {
                    let head = if *head {
                        " marker-end=\"url(#head)\""
                    } else {
                        ""
                    };
                    let end = x + 26;
                    let _ = writeln!(
                        self.out,
                        "<path class=\"{class}\"{head} d=\"M{x} {y}L{end} {y}\"/>"
                    );
                }
                LegendItem::Mark(kind) => self.mark(*kind, x + 14, y),
            }
            self.text(x + 36, y + 4, text);
        }
    }

    fn finish(mut self) -> String {
        self.out.push_str("</svg>\n");
        self.out
    }
}

enum LegendItem {
    /// A line of this class, with an arrow head or without.
    Line(&'static str, bool),
    Mark(MarkKind),
}

const LEGEND: [(LegendItem, &str); 9] = [
    (LegendItem::Line("message", true), "message"),
    (
        LegendItem::Line("lost", false),
        "message lost by the failure of its sender",
    ),
    (
        LegendItem::Line("agree", false),
        "agreement: no new failure",
    ),
    (
        LegendItem::Line("alarm", false),
        "agreement that reports a failure",
    ),
    (
        LegendItem::Mark(MarkKind::Commits),
        "the rank learns of the commit",
    ),
    (LegendItem::Mark(MarkKind::Fails), "failure"),
    (
        LegendItem::Mark(MarkKind::Learns),
        "the rank learns of a failure",
    ),
    (
        LegendItem::Mark(MarkKind::Restores),
        "the rank restores a block",
    ),
    (
        LegendItem::Mark(MarkKind::Replays),
        "the rank replays the round",
    ),
];

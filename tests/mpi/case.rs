//! Cases, and the tables from which they are made.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Instant;

use ftsort_kernels::test_size::sized;
use libtest_mimic::{Completion, Failed, Trial};

type Body = Box<dyn FnOnce() -> Result<Completion, Failed> + Send>;

/// A test: a name, whether it belongs to the quick group, and the function that runs it.
pub struct Case {
    name: String,
    is_quick: bool,
    body: Body,
}

impl Case {
    pub fn new(
        is_quick: bool,
        name: impl Into<String>,
        body: impl FnOnce() -> Result<(), Failed> + Send + 'static,
    ) -> Self {
        Self::skippable(is_quick, name, || body().map(|()| Completion::Completed))
    }

    /// Makes a case that may find that this MPI cannot run it.
    pub fn skippable(
        is_quick: bool,
        name: impl Into<String>,
        body: impl FnOnce() -> Result<Completion, Failed> + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            is_quick,
            body: Box::new(body),
        }
    }

    pub fn into_trial(self) -> Trial {
        let name = self.name.clone();
        Trial::ignorable_test(self.name, move || {
            let start = Instant::now();
            let outcome = (self.body)();
            note_time(start.elapsed().as_secs_f64(), &name)?;
            outcome
        })
    }
}

fn note_time(seconds: f64, name: &str) -> Result<(), Failed> {
    if let Some(path) = std::env::var_os("FTSORT_MPI_TIMES") {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(format!("{seconds:.1} {name}\n").as_bytes())?;
    }
    Ok(())
}

/// Which cases run.
#[derive(Clone, Copy)]
pub enum Selection {
    Quick,
    All,
}

impl Selection {
    pub fn from_environment() -> Self {
        sized(Self::Quick, Self::All)
    }

    pub fn includes(self, case: &Case) -> bool {
        matches!(self, Self::All) || case.is_quick
    }
}

/// The cases of a table of examples: name, ranks, arguments, failures.
pub fn examples(
    text: &'static str,
    run: fn(&str, usize, &str, &str) -> Result<(), Failed>,
) -> Vec<Case> {
    let cases = table(text).map(|row| {
        let [example, ranks, arguments, faults] = row.cells();
        let name = format!("example {example} {arguments} on {ranks} ranks, failures {faults:?}");
        let ranks = number(ranks);
        let body = move || run(example, ranks, arguments, faults);
        Case::new(row.is_quick, name, body)
    });
    cases.collect()
}

/// A line of a table.
pub struct Row {
    pub is_quick: bool,
    cells: Vec<&'static str>,
    line: &'static str,
}

impl Row {
    /// Returns the cells after the first one. A line with another number of cells is a mistake in the
    /// table.
    pub fn cells<const N: usize>(&self) -> [&'static str; N] {
        let cells = self.cells.clone().try_into();
        cells.unwrap_or_else(|_| panic!("the row needs {N} cells after the first: {}", self.line))
    }
}

/// Reads a table: each line is a case, with `|` between its cells. The first cell is `quick` for a case of the quick
/// group, or `all` for one that runs only with all others.
pub fn table(text: &'static str) -> impl Iterator<Item = Row> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let mut cells = line.split('|').map(str::trim);
        let is_quick = match cells.next() {
            Some("quick") => true,
            Some("all") => false,
            _ => panic!("the row must begin with quick or all: {line}"),
        };
        let cells = cells.collect();
        Row {
            is_quick,
            cells,
            line,
        }
    })
}

pub fn number(cell: &str) -> usize {
    cell.parse()
        .unwrap_or_else(|_| panic!("{cell:?} must be a number"))
}

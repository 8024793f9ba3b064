//! One run of tests/c/sorter.c: its arguments, and the check of the survivors' statuses and of the result.

use std::path::Path;

use libtest_mimic::Failed;

use crate::case::{Case, Row, number, table};
use crate::harness::{Scratch, launch, program, require, run, single, victims};

/// The arguments of tests/c/sorter.c, where they are described.
#[derive(Clone, Copy)]
pub struct Sort {
    pub ranks: usize,
    pub count: &'static str,
    pub kind: &'static str,
    pub shape: &'static str,
    pub store: &'static str,
    pub replicas: &'static str,
    pub repair: &'static str,
    pub algorithm: &'static str,
    pub option: &'static str,
    /// The schedule of failures.
    pub faults: &'static str,
}

const DEFAULT: Sort = Sort {
    ranks: 4,
    count: "20000",
    kind: "i32",
    shape: "random",
    store: "memory",
    replicas: "1",
    repair: "agree",
    algorithm: "hyperquicksort",
    option: "reload",
    faults: "",
};

/// The outcome that a sort must have.
enum Expected {
    /// All survivors succeed, their statuses contain these phrases, and the output is sorted.
    Right(Vec<&'static str>),
    /// All survivors get this status, and that of at least one contains these phrases.
    Error(&'static str, Vec<&'static str>),
    /// The survivors end; the output may lack the blocks of a rank that failed after its result was released.
    Ends,
}

impl Expected {
    /// Reads a cell: `right`, `ends` or a status, and after a colon the phrases, separated by semicolons.
    fn read(cell: &'static str) -> Self {
        let (outcome, phrases) = cell.split_once(':').unwrap_or((cell, ""));
        let phrases = phrases.split(';').map(str::trim);
        let phrases = phrases.filter(|phrase| !phrase.is_empty()).collect();
        match outcome {
            "right" => Self::Right(phrases),
            "ends" => Self::Ends,
            status => Self::Error(status, phrases),
        }
    }
}

/// Whether the text has the phrase, and not as a part of longer words or numbers.
fn contains_phrase(text: &str, phrase: &str) -> bool {
    let is_apart = |next: Option<char>| next.is_none_or(|next| !next.is_alphanumeric());
    text.match_indices(phrase).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + phrase.len()..].chars().next();
        is_apart(before) && is_apart(after)
    })
}

impl Sort {
    /// Reads the settings of a sort, as in `ranks=8 store=memory:7`; all others have their default.
    fn read(settings: &'static str, faults: &'static str) -> Self {
        let mut sort = Self { faults, ..DEFAULT };
        for setting in settings.split(' ').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting
                .split_once('=')
                .unwrap_or_else(|| panic!("{setting:?} must be NAME=VALUE"));
            match name {
                "ranks" => sort.ranks = number(value),
                "count" => sort.count = value,
                "kind" => sort.kind = value,
                "shape" => sort.shape = value,
                "store" => {
                    (sort.store, sort.replicas) = value.split_once(':').unwrap_or((value, "1"));
                }
                "repair" => sort.repair = value,
                "algorithm" => sort.algorithm = value,
                "option" => sort.option = value,
                _ => panic!("no setting {name}"),
            }
        }
        sort
    }

    /// The arguments of a run.
    pub fn arguments<'a>(&self, folder: &'a str) -> [&'a str; 10] {
        [
            "run",
            folder,
            self.count,
            self.kind,
            self.shape,
            self.store,
            self.replicas,
            self.repair,
            self.algorithm,
            self.option,
        ]
    }

    /// Checks that exactly the victims of the schedule and of the option have failed, and returns the survivors' statuses.
    fn statuses(&self, folder: &Path) -> Result<Vec<String>, Failed> {
        let mut victims = victims(self.faults);
        let killed = self.option.strip_prefix("kill=");
        victims.extend(killed.and_then(|rank| rank.parse::<usize>().ok()));
        let mut statuses = Vec::new();
        for rank in 0..self.ranks {
            let status = std::fs::read_to_string(folder.join(format!("status.{rank}")));
            if status.is_ok() == victims.contains(&rank) {
                return Err(
                    format!("{}: the status of rank {rank}: {status:?}", self.faults).into(),
                );
            }
            statuses.extend(status);
        }
        Ok(statuses)
    }

    /// Compares the output with all inputs, sorted, bit for bit.
    fn check_output(&self, folder: &Scratch) -> Result<(), Failed> {
        let place = folder.argument();
        let ranks = self.ranks.to_string();
        let arguments = ["check", &place, self.count, self.kind, self.shape, &ranks];
        run(single(&program("tests/c/sorter.c")?).args(arguments))?;
        let files = folder.file_names()?;
        let is_of_store = |name: &String| name.starts_with("ftsort-");
        require(
            !files.iter().any(is_of_store),
            format!("{}: the store has left files", self.faults),
            &files.join(" "),
        )
    }

    fn run(self, expected: &Expected) -> Result<(), Failed> {
        let folder = Scratch::new()?;
        let sorter = program("tests/c/sorter.c")?;
        let place = folder.argument();
        launch(self.ranks, self.faults, &sorter, &self.arguments(&place))?;
        let statuses = self.statuses(folder.path())?;
        let text = statuses.concat();
        let all_have = |status: &str| {
            let start = format!("status={status} ");
            let right = statuses.iter().all(|line| line.starts_with(&start));
            require(right, format!("{}: not {start}", self.faults), &text)
        };
        match expected {
            Expected::Right(phrases) => {
                all_have("0")?;
                for phrase in phrases {
                    let right = statuses.iter().all(|line| contains_phrase(line, phrase));
                    require(right, format!("{}: no {phrase:?}", self.faults), &text)?;
                }
                self.check_output(&folder)?;
            }
            Expected::Error(status, phrases) => {
                all_have(status)?;
                // The reason is in the text of the rank that has found it.
                let is_told =
                    |line: &String| phrases.iter().all(|word| contains_phrase(line, word));
                let told = statuses.iter().any(is_told);
                require(told, format!("{}: no {phrases:?}", self.faults), &text)?;
            }
            Expected::Ends => {}
        }
        folder.remove()
    }
}

fn case(title: &str, row: &Row) -> Case {
    let [settings, faults, expected] = row.cells();
    let sort = Sort::read(settings, faults);
    let expected = Expected::read(expected);
    let words = [title, settings, faults];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    Case::new(row.is_quick, words.join(", "), move || sort.run(&expected))
}

/// The cases of a table of sorts: settings, schedule of failures, and expected outcome.
pub fn sorts(title: &str, text: &'static str) -> Vec<Case> {
    table(text).map(|row| case(title, &row)).collect()
}

/// A sort with default settings, but for the option and the schedule of failures.
pub fn sort_with(option: &'static str, faults: &'static str) -> Sort {
    Sort {
        option,
        faults,
        ..DEFAULT
    }
}

//! Adds many small changes to source files, each of which can be switched on when the program runs.
//!
//! `ftsort-mutate --skip NUMBERS ROOT FILE...` rewrites the files below ROOT. Number N is active if the function
//! `crate::changes::active(N)` of their crate returns true; otherwise the program behaves as before. One build therefore
//! serves for all changes. The changes are printed as a JSON array with number, file, lines, function and description.
//! NUMBERS, separated by commas, are left out: changes that do not compile. The others keep their numbers.
//!
//! Lines keep their places, so that errors of the compiler name the lines of the changes. Tests, constants, and the
//! arguments of macros are not changed.

mod changes;
mod edits;

use std::collections::BTreeSet;
use std::path::Path;

use changes::Changes;

fn main() {
    let mut skipped = BTreeSet::new();
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--skip") {
        let numbers = arguments
            .drain(..2)
            .next_back()
            .expect("numbers follow --skip");
        skipped.extend(
            numbers
                .split(',')
                .filter(|number| !number.is_empty())
                .map(|number| {
                    number
                        .parse::<usize>()
                        .expect("the numbers after --skip are separated by commas")
                }),
        );
    }
    let [root, files @ ..] = arguments.as_slice() else {
        panic!("usage: ftsort-mutate [--skip NUMBERS] ROOT FILE...");
    };
    let mut list = Vec::new();
    let mut next = 0;
    for file in files {
        let path = Path::new(root).join(file);
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parsed =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let changes = Changes::of(&parsed, next, &skipped);
        next = changes.next;
        std::fs::write(&path, changes.edits.apply(&text))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        list.extend(changes.list.into_iter().map(|change| {
            serde_json::json!({
                "number": change.number, "file": file, "first": change.lines.0, "last": change.lines.1,
                "function": change.function, "change": change.text,
            })
        }));
    }
    println!("{}", serde_json::Value::from(list));
}

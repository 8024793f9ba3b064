//! The layers hold: imports point downwards, and each kind of trouble stays in its own module.

use std::fs;
use std::path::{Path, PathBuf};

/// From the ground up. A module may import what stands before it, and what stands beside it in the
/// same line if the line says so by holding only parts of one layer.
const LAYERS: [&[&str]; 10] = [
    &["error", "bits", "checksum", "random", "defects", "pages"],
    &["buffer", "vcube", "record"],
    &["kernel", "members"],
    &["verify"],
    &["block", "faults"],
    &["transport", "store"],
    &["engine"],
    &["sort", "tree", "rounds", "monitor"],
    &["simulate"],
    &["capi", "trial"],
];

/// Words that only some modules may use, and which.
const RESERVED: [(&str, &[&str]); 9] = [
    ("mpi_sys", &["transport/ulfm", "capi"]),
    (
        "unsafe",
        &["transport/ulfm", "capi", "kernel/vector", "pages"],
    ),
    ("corosensei", &["transport/sim"]),
    ("std::fs", &["store/disk.rs"]),
    ("Instant", &["transport/ulfm"]),
    ("SystemTime", &["capi"]),
    ("std::env", &["capi"]),
    ("println!", &[]),
    ("HashMap", &[]),
];

const LONGEST_FILE: usize = 600;

fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("src is readable") {
            let path = entry.expect("src is readable").path();
            match path.is_dir() {
                true => walk(&path, found),
                false => found.push(path),
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    walk(&root, &mut found);
    found.sort();
    assert!(found.len() > 20, "the sources are not where they were");
    found
        .into_iter()
        .map(|path| {
            let name = path
                .strip_prefix(&root)
                .expect("below src")
                .display()
                .to_string();
            (name, fs::read_to_string(&path).expect("a source is text"))
        })
        .collect()
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// The top-level module of a file; None for the crate's root.
fn module_of(file: &str) -> Option<&str> {
    let module = file.split('/').next()?.trim_end_matches(".rs");
    // Programs stand above everything, and are no part of the library.
    (module != "lib" && module != "bin").then_some(module)
}

/// The code of a file: without its comments, and without its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn imports_point_downwards() {
    for (file, text) in sources() {
        let Some(module) = module_of(&file) else {
            continue;
        };
        let layer = layer_of(module).unwrap_or_else(|| panic!("{file} is in no layer"));
        for import in code(&text).split("crate::").skip(1) {
            let imported: String = import
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let Some(below) = layer_of(&imported) else {
                panic!("{file} imports crate::{imported}, which is in no layer");
            };
            assert!(
                imported == module || below < layer,
                "{file} imports crate::{imported}, which is not below it"
            );
        }
    }
}

#[test]
fn reserved_words_stay_where_they_belong() {
    for (file, text) in sources() {
        if file.starts_with("bin/") {
            continue;
        }
        for (word, places) in RESERVED {
            if !places.iter().any(|place| file.starts_with(place)) {
                let line = code(&text)
                    .lines()
                    .find(|line| line.contains(word))
                    .map(str::to_string);
                assert_eq!(line, None, "{file} uses {word}");
            }
        }
    }
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    for (file, text) in sources() {
        assert!(
            text.lines().count() <= LONGEST_FILE,
            "{file} is longer than {LONGEST_FILE} lines"
        );
        assert!(
            text.starts_with("//! "),
            "{file} does not say what it is for"
        );
        for word in ["TODO", "FIXME", "XXX", "todo!", "unimplemented!"] {
            assert!(!text.contains(word), "{file} leaves something open: {word}");
        }
    }
}

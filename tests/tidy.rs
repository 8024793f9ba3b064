//! The sources keep their form: short files that say what they are for, nothing left open, imports that point
//! downwards, and plain technical English.

// The test prints the rates of words for the developer.
#![allow(clippy::print_stdout)]

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LONGEST_FILE: usize = 600;

/// Files of other projects that documents name as if they were paths of the repository.
const FOREIGN_FILES: [&str; 1] = ["coll_ftagree_earlyreturning.c"];

/// The modules of `crates/core` from the ground up. A module imports only modules of earlier lines and itself.
const CORE_LAYERS: [&[&str]; 11] = [
    &["mutants", "set"],
    &["vcube"],
    &["members"],
    &["wire"],
    &["verify"],
    &["block", "faults"],
    &["transport", "store"],
    &["engine"],
    &["sort", "tree", "rounds", "monitor"],
    &["query", "external"],
    &["group"],
];

/// Words of the dialect in which the project was once written, and how often each group may occur in 1,000
/// words of prose.
const DIALECT: [(&[&str], f64); 3] = [
    (&["what"], 1.5),
    (&["who", "whoever", "whose", "whom"], 0.5),
    (&["nobody", "somebody", "everybody", "anybody"], 0.5),
];

/// Names that gave way to terms of the field; see docs/glossary.md.
const RETIRED: [&str; 40] = [
    "Fabric",
    "Landing",
    "Landings",
    "Manners",
    "Shipment",
    "Parcel",
    "Courier",
    "Adviser",
    "Counsel",
    "Standing",
    "Stamp",
    "Liar",
    "Game",
    "Party",
    "Exhibit",
    "Yardstick",
    "Ledger",
    "Crew",
    "Dealer",
    "Deed",
    "Drawer",
    "Cabinet",
    "Errand",
    "planted",
    "heed",
    "stands_by",
    "face_corruption",
    "offences",
    "scribe",
    "presidents",
    "testimony",
    "longest_short",
    "keepers",
    "ftsort_self",
    "ftsort_is_faulty",
    "ftsort_cover",
    "ftsort_slot",
    "ftsort_result_blocks",
    "ftsort_rounds_result",
    "ftsort_tree_result",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names of all files of the repository.
fn names() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files of the repository");
    let listed = String::from_utf8(listed.stdout).expect("file names are UTF-8");
    let names = listed.lines().filter(|name| root().join(name).is_file());
    names.map(str::to_string).collect()
}

fn has_ending(name: &str, endings: &[&str]) -> bool {
    let ending = Path::new(name).extension().and_then(OsStr::to_str);
    ending.is_some_and(|ending| endings.contains(&ending))
}

/// The files of the repository with one of these endings.
fn files(endings: &[&str]) -> Vec<(String, String)> {
    let names = names().into_iter();
    let found: Vec<_> = names
        .filter(|name| has_ending(name, endings))
        .map(|name| {
            let text = fs::read_to_string(root().join(&name)).expect("a source is text");
            (name, text)
        })
        .collect();
    assert!(!found.is_empty(), "no file ends in {endings:?}");
    found
}

/// Returns the prose of a file: comments of a source, or the text of a document without its code.
fn prose(name: &str, text: &str) -> String {
    let mut kept = Vec::new();
    let (mut in_block, mut in_docstring) = (false, false);
    for line in text.lines() {
        let trimmed = line.trim_start();
        let is_prose = match name.rsplit('.').next() {
            Some("md") => {
                let fence = trimmed.starts_with("```");
                in_block ^= fence;
                !in_block && !fence
            }
            Some("rs") => trimmed.starts_with("//"),
            Some("c" | "h" | "cpp" | "hpp") => {
                in_block |= trimmed.contains("/*");
                let inside = in_block || trimmed.contains("//");
                in_block &= !trimmed.contains("*/");
                inside
            }
            Some("py") => {
                let quotes = trimmed.matches("\"\"\"").count();
                let inside = in_docstring || quotes > 0 || trimmed.starts_with('#');
                in_docstring ^= quotes % 2 == 1;
                inside
            }
            _ => true,
        };
        if is_prose {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// How often words of each group of [`DIALECT`] occur, and the number of all words.
fn count(prose: &str) -> ([usize; 3], usize) {
    let (mut counts, mut all) = ([0; 3], 0);
    for word in prose.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'') {
        if word.is_empty() {
            continue;
        }
        all += 1;
        let word = word.to_lowercase();
        for (count, (group, _)) in counts.iter_mut().zip(DIALECT) {
            *count += usize::from(group.contains(&word.as_str()));
        }
    }
    (counts, all)
}

#[test]
fn prose_is_plain_technical_english() {
    let mut problems = Vec::new();
    let areas: [(&str, &[&str]); 4] = [
        ("Rust comments", &["rs"]),
        ("documents", &["md"]),
        ("C and C++ comments", &["c", "h", "cpp", "hpp"]),
        ("Python comments", &["py"]),
    ];
    for (area, endings) in areas {
        let (mut counts, mut words) = ([0; 3], 0);
        let mut worst: Vec<(usize, String)> = Vec::new();
        for (name, text) in files(endings) {
            if name == "tests/tidy.rs" {
                continue;
            }
            let (found, all) = count(&prose(&name, &text));
            counts
                .iter_mut()
                .zip(found)
                .for_each(|(sum, one)| *sum += one);
            words += all;
            worst.push((found.iter().sum(), name));
        }
        worst.sort_by(|a, b| b.cmp(a));
        for (count, (group, limit)) in counts.iter().zip(DIALECT) {
            let rate = *count as f64 * 1000.0 / words as f64;
            println!("{area}: {group:?} {rate:.2} in 1,000 words (limit {limit})");
            if rate > limit {
                worst.truncate(8);
                problems.push(format!(
                    "{area}: {group:?} {rate:.2} > {limit}; most in {worst:?}"
                ));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn retired_names_do_not_come_back() {
    let mut found = Vec::new();
    for (name, text) in files(&["rs", "md", "c", "h", "cpp", "hpp", "f90", "py", "toml"]) {
        if name == "tests/tidy.rs" || name == "CHANGELOG.md" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            for word in words.filter(|word| RETIRED.contains(word)) {
                found.push(format!("{name}:{}: {word}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "retired names:\n{}", found.join("\n"));
}

/// Returns the words in backticks that have the form of a path: those with the ending of a source, and those that
/// begin with a folder of the repository. A pattern stands for its folder.
fn named_paths<'a>(prose: &'a str, known: &HashSet<&str>) -> Vec<&'a str> {
    let is_path = |word: &str| {
        let sources = ["rs", "c", "h", "py", "md", "toml", "sh", "csv", "svg"];
        let (top, rest) = word.split_once('/').unwrap_or((word, ""));
        let inside = !top.is_empty() && !rest.is_empty() && known.contains(top);
        let plain = |c: char| c.is_alphanumeric() || "_./-*".contains(c);
        word.chars().all(plain) && (inside || has_ending(word, &sources))
    };
    let words = prose.split('`').skip(1).step_by(2);
    words
        .filter(|word| is_path(word))
        .map(|word| {
            let folder = word.split('*').next().unwrap_or(word);
            folder.trim_end_matches('/')
        })
        .collect()
}

#[test]
fn paths_in_documents_exist() {
    let names = names();
    let known: HashSet<&str> = names
        .iter()
        .flat_map(|name| Path::new(name).ancestors())
        .filter_map(Path::to_str)
        .collect();
    // A document may leave out the first folders: `commit.rs`, `engine/commit.rs`.
    let endings: HashSet<&str> = known
        .iter()
        .flat_map(|path| path.match_indices('/').map(|(at, _)| &path[at + 1..]))
        .chain(known.iter().copied())
        .collect();
    let mut stale = Vec::new();
    for (name, text) in files(&["md"]) {
        // The list of changes names files as they were.
        if name == "CHANGELOG.md" {
            continue;
        }
        let folder = Path::new(&name).parent().expect("a file is in a folder");
        let text = prose(&name, &text);
        let paths = named_paths(&text, &known).into_iter();
        stale.extend(
            paths
                .filter(|path| !endings.contains(path) && !FOREIGN_FILES.contains(path))
                .map(|path| format!("{name}: `{path}`")),
        );
        let targets = text.split("](").skip(1);
        let targets = targets.filter_map(|rest| rest.split([')', '#', ' ']).next());
        stale.extend(
            targets
                .filter(|path| !path.contains(':') && !root().join(folder).join(path).exists())
                .map(|path| format!("{name}: link to {path}")),
        );
    }
    assert!(
        stale.is_empty(),
        "these are not in the repository; correct the documents:\n{}",
        stale.join("\n")
    );
}

#[test]
fn files_are_short_and_state_their_purpose() {
    for (name, text) in files(&["rs", "c", "h", "cpp", "hpp", "f90", "py"]) {
        let generated = name.starts_with("include/") && name.ends_with(".h")
            || name.starts_with("bindings/fortran/");
        assert!(
            generated || text.lines().count() <= LONGEST_FILE,
            "{name} is longer than {LONGEST_FILE} lines"
        );
        assert!(
            !name.ends_with(".rs") || text.starts_with("//! ") || name.starts_with("fuzz/targets/"),
            "{name} does not state its purpose"
        );
        for word in ["TODO", "FIXME", "XXX", "todo!", "unimplemented!"] {
            let open = text.lines().any(|line| line.contains(word));
            assert!(
                !open || name == "tests/tidy.rs",
                "{name} leaves something open: {word}"
            );
        }
    }
}

/// A test that no target runs cannot fail.
#[test]
fn every_test_program_has_a_target() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("a Makefile");
    let makefile = makefile.replace("\\\n", " ");
    let commands: Vec<Vec<&str>> = makefile
        .lines()
        .filter(|line| line.contains("cargo test"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let has_pair = |words: &[&str], pair: [&str; 2]| words.windows(2).any(|words| words == pair);
    // A command that names neither runs all tests of its packages.
    let is_whole = |words: &[&str]| !words.iter().any(|word| ["--lib", "--test"].contains(word));
    for name in names() {
        let parts: Vec<&str> = name.split('/').collect();
        let (package, file) = match parts[..] {
            ["tests", file] | ["tests", file, "main.rs"] => ("", file),
            ["crates", package, "tests", file] | ["crates", package, "tests", file, "main.rs"] => {
                (package, file)
            }
            _ => continue,
        };
        let test = file.strip_suffix(".rs").unwrap_or(file);
        let package = format!("ftsort-{package}");
        let runs = commands.iter().any(|words| {
            has_pair(words, ["--test", test])
                || has_pair(words, ["-p", &package]) && is_whole(words)
        });
        assert!(runs, "no target of the Makefile runs {name}");
    }
}

#[test]
fn modules_with_a_folder_are_its_mod_file() {
    let names = names();
    let folders: HashSet<&Path> = names
        .iter()
        .filter_map(|name| Path::new(name).parent())
        .collect();
    for name in names.iter().filter(|name| has_ending(name, &["rs"])) {
        let folder = Path::new(name).with_extension("");
        assert!(
            !folders.contains(folder.as_path()),
            "{name} is beside its folder; move it to {}/mod.rs (main.rs of a test)",
            folder.display()
        );
    }
}

#[test]
fn imports_of_core_point_downwards() {
    let layer_of = |module: &str| CORE_LAYERS.iter().position(|layer| layer.contains(&module));
    for (name, text) in files(&["rs"]) {
        let Some(inner) = name.strip_prefix("crates/core/src/") else {
            continue;
        };
        let module = PathBuf::from(inner);
        let module = module
            .components()
            .next()
            .and_then(|part| part.as_os_str().to_str());
        let module = module.unwrap_or_default().trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let layer = layer_of(module).unwrap_or_else(|| panic!("{name} is in no layer"));
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for import in code.collect::<Vec<_>>().join("\n").split("crate::").skip(1) {
            let imported: String = import
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let below = layer_of(&imported).unwrap_or_else(|| panic!("{name}: crate::{imported}?"));
            assert!(
                imported == module || below < layer,
                "{name} imports crate::{imported}, which is not below it"
            );
        }
    }
}

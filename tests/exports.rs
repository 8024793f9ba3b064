//! The shared library exports the functions that the headers declare, and no other symbol.

use std::path::{Path, PathBuf};
use std::process::Command;

fn library() -> PathBuf {
    // `cargo test` leaves the shared library beside the test programs.
    let program = std::env::current_exe().expect("a test has a path");
    program.with_file_name("libftsort.so")
}

/// All headers of the include folder, one after another.
fn headers() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let entries = std::fs::read_dir(folder).expect("there are headers");
    let paths = entries.map(|entry| entry.expect("the folder is readable").path());
    let headers = paths.filter(|path| path.extension().is_some_and(|end| end == "h"));
    let texts = headers.map(|path| std::fs::read_to_string(path).expect("a header is text"));
    texts.collect()
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("binutils are installed");
    assert!(output.status.success(), "{command:?} failed");
    String::from_utf8(output.stdout).expect("names are text")
}

/// The dynamic symbols that the library defines, as `nm` prints them.
fn symbols() -> String {
    let mut nm = Command::new("nm");
    output(nm.args(["-D", "--defined-only"]).arg(library()))
}

#[test]
fn only_declared_functions_are_exported() {
    let symbols = symbols();
    let names = symbols
        .lines()
        .filter_map(|line| line.split(' ').next_back());
    let names: Vec<&str> = names.collect();
    assert!(names.contains(&"ftsort_run"), "{names:?}");
    let headers = headers();
    for name in names {
        assert!(name.starts_with("ftsort_"), "{name} is exported");
        assert!(
            headers.contains(&format!("{name}(")),
            "{name} is exported, but not declared"
        );
    }
}

#[test]
fn every_declared_function_is_exported() {
    let symbols = symbols();
    let headers = headers();
    let is_code = |line: &&str| !line.trim_start().starts_with(['*', '/', '#']);
    let code = headers.lines().filter(is_code);
    let calls = code.filter(|line| line.contains("ftsort_") && line.contains('('));
    for line in calls {
        let before = line.split('(').next().unwrap_or_default();
        let name = before.rsplit([' ', '*']).next().unwrap_or_default();
        if name.starts_with("ftsort_") {
            assert!(
                symbols.contains(&format!(" T {name}\n")),
                "{name} is declared, but not exported"
            );
        }
    }
}

#[test]
fn the_soname_has_the_abi_version() {
    let dynamic = output(Command::new("readelf").arg("-d").arg(library()));
    let abi = format!(
        "[libftsort.so.{}.{}]",
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR")
    );
    assert!(dynamic.contains(&abi), "no SONAME {abi} in {dynamic}");
}

#[test]
fn the_header_has_the_version_of_the_crate() {
    let header = include_str!("../include/ftsort.h");
    for (name, value) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        assert!(
            header.contains(&format!("#define FTSORT_VERSION_{name} {value}\n")),
            "{name}"
        );
    }
}

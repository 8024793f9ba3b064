//! The shared library shows the world its own names, and no others.

use std::path::PathBuf;
use std::process::Command;

fn library() -> PathBuf {
    // `cargo test` leaves the shared library beside the test programs.
    let program = std::env::current_exe().expect("a test has a path");
    program.with_file_name("libftsort.so")
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("binutils are installed");
    assert!(output.status.success(), "{command:?} failed");
    String::from_utf8(output.stdout).expect("names are text")
}

#[test]
fn only_ftsort_names_are_exported() {
    let names = output(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library()),
    );
    let names: Vec<&str> = names
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    assert!(names.contains(&"ftsort_run"), "{names:?}");
    let header = include_str!("../include/ftsort.h");
    for name in names {
        assert!(name.starts_with("ftsort_"), "{name} is exported");
        assert!(
            header.contains(&format!("{name}(")),
            "{name} is exported, but not declared"
        );
    }
}

#[test]
fn every_declared_function_is_exported() {
    let names = output(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library()),
    );
    let header = include_str!("../include/ftsort.h");
    let code = header
        .lines()
        .filter(|line| !line.trim_start().starts_with(['*', '/', '#']));
    for line in code.filter(|line| line.contains("ftsort_") && line.contains('(')) {
        let before = line.split('(').next().unwrap_or_default();
        let name = before.rsplit([' ', '*']).next().unwrap_or_default();
        if name.starts_with("ftsort_") {
            assert!(
                names.contains(&format!(" T {name}\n")),
                "{name} is declared, but not exported"
            );
        }
    }
}

#[test]
fn the_soname_tells_the_abi() {
    let dynamic = output(Command::new("readelf").arg("-d").arg(library()));
    let abi = format!(
        "[libftsort.so.{}.{}]",
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR")
    );
    assert!(dynamic.contains(&abi), "no SONAME {abi} in {dynamic}");
}

#[test]
fn the_header_has_the_crates_version() {
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

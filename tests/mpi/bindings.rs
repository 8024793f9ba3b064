//! The interfaces for C++ and Fortran: every function of the headers is called through them, ranks are killed in programs
//! of each language, and the C++ headers compile without warnings with every compiler that is installed.

use std::process::Command;

use libtest_mimic::{Completion, Failed};

use crate::case::{Case, number, table};
use crate::harness::{
    compiler, fortran_object, has_fortran, launch, program, require, root, run, self_checking,
};

/// Program of tests, ranks, and the checked property.
const PROGRAMS: &str = "
 quick | cpp/objects.cpp   | 3 | every C++ function
 all   | cpp/objects.cpp   | 2 | every C++ function
 all   | cpp/objects.cpp   | 4 | every C++ function
 all   | cpp/borrowed.cpp  | 2 | monitors of communicators
 all   | fortran/calls.f90 | 2 | every Fortran function
 all   | fortran/calls.f90 | 3 | every Fortran function
 all   | fortran/calls.f90 | 4 | every Fortran function
";

/// Program, ranks, argument, failures, the phrase of a correct part of the output, and how often it must occur.
const KILLS: &str = "
 quick | tests/cpp/survivors.cpp      | 4 | sort    | 1@2 | survivors: fine | 3
 all   | tests/cpp/survivors.cpp      | 5 | sort    | 1@1 3@2 | survivors: fine | 3
 all   | tests/cpp/survivors.cpp      | 4 | parity  | 1@2 | survivors: fine | 3
 all   | tests/cpp/survivors.cpp      | 4 | argsort | 1@1 | survivors: fine | 3
 all   | tests/cpp/survivors.cpp      | 4 | states  | 1@2 | survivors: fine | 3
 all   | tests/cpp/survivors.cpp      | 4 | lost    | 1@1 | survivors: fine | 3
 all   | tests/cpp/survivors.cpp      | 4 | lost_on_comm | 1@0 | survivors: fine | 3
 all   | tests/cpp/survivors.cpp      | 4 | recover |     | survivors: fine | 3
 all   | examples/languages/hello.c   | 4 |         | 1@1 | , in order      | 4
 all   | examples/languages/hello.cpp | 4 |         | 1@1 | , in order      | 3
 all   | examples/languages/hello.f90 | 4 |         | 1@1 | , in order      | 4
";

const NO_FORTRAN: &str = "gfortran is not installed";

/// Whether a program cannot be compiled on this machine.
fn is_skipped(source: &str) -> bool {
    source.ends_with(".f90") && !has_fortran()
}

fn kill(
    source: &str,
    ranks: usize,
    argument: &str,
    faults: &str,
    phrase: &str,
    count: usize,
) -> Result<Completion, Failed> {
    if is_skipped(source) {
        return Ok(Completion::ignored_with(NO_FORTRAN));
    }
    let arguments: Vec<&str> = argument.split_whitespace().collect();
    let text = launch(ranks, faults, &program(source)?, &arguments)?;
    let found = text.matches(phrase).count();
    require(
        found == count,
        format!("{found} of {count} parts are right"),
        &text,
    )?;
    Ok(Completion::Completed)
}

/// The functions that the C headers declare.
fn functions() -> Result<Vec<String>, Failed> {
    let list = run(Command::new("python3").arg(root().join("scripts/header_api.py")))?;
    let functions = list
        .lines()
        .filter_map(|line| line.strip_prefix("  function"));
    let names = functions.filter_map(|line| {
        line.split_whitespace()
            .find(|word| word.starts_with("ftsort_"))
    });
    Ok(names
        .map(|name| name.trim_end_matches(':').to_string())
        .collect())
}

/// Requires that compiled files call every function of the headers, under its name or with another prefix.
fn calls_every_function(files: &[std::path::PathBuf], prefixes: &[&str]) -> Result<(), Failed> {
    let symbols = run(Command::new("nm").arg("-u").args(files))?;
    let called: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let functions = functions()?;
    require(
        functions.len() > 60,
        "the headers declare few functions",
        &functions.join(" "),
    )?;
    let is_called = |name: &str| {
        let rest = name.trim_start_matches("ftsort_");
        prefixes
            .iter()
            .any(|prefix| called.contains(&format!("{prefix}{rest}").as_str()))
    };
    let missing: Vec<String> = functions
        .into_iter()
        .filter(|name| !is_called(name))
        .collect();
    require(missing.is_empty(), "no test calls", &missing.join(" "))
}

fn cpp_parity() -> Result<(), Failed> {
    let programs = [
        program("tests/cpp/objects.cpp")?,
        program("tests/cpp/survivors.cpp")?,
    ];
    calls_every_function(&programs, &["ftsort_"])
}

fn fortran_parity() -> Result<Completion, Failed> {
    let source = "tests/fortran/calls.f90";
    if is_skipped(source) {
        return Ok(Completion::ignored_with(NO_FORTRAN));
    }
    program(source)?;
    calls_every_function(&[fortran_object(source)], &["ftsort_", "ftsort_fortran_"])?;
    Ok(Completion::Completed)
}

/// Compiles a C++ program with one compiler without linking it.
fn cpp_compiles(source: &str, name: &str, standard: &str, option: &str) -> Result<String, Failed> {
    let mut command = compiler(standard);
    command.env("OMPI_CXX", name).env("MPICH_CXX", name);
    // The wrapper passes options of the linker too, which clang++ would warn of.
    command.args([
        "-Wshadow",
        "-Wno-unused-command-line-argument",
        "-fsyntax-only",
        option,
    ]);
    run(command.arg(root().join(source)))
}

/// The C++ headers and a program that uses all of them compile without warnings; the group that throws is refused
/// without exceptions, by a text that names the other one.
fn cpp_compilers() -> Result<(), Failed> {
    let is_installed = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    for name in ["g++", "clang++"].into_iter().filter(is_installed) {
        for standard in ["c++17", "c++20"] {
            for option in ["-fexceptions", "-fno-exceptions"] {
                cpp_compiles("tests/cpp/objects.cpp", name, standard, option)?;
            }
            let Err(refused) = cpp_compiles(
                "examples/languages/hello.cpp",
                name,
                standard,
                "-fno-exceptions",
            ) else {
                return Err("ftsort::group compiles without exceptions".into());
            };
            let text = refused.message().unwrap_or_default();
            require(
                text.contains("use ftsort::nothrow_group"),
                "no remedy",
                text,
            )?;
        }
    }
    Ok(())
}

/// Orders by the address of a pointer or an array, and by a `long double`, are refused, by a text that names the remedy,
/// and so are lists in place of views; others compile.
fn cpp_refusals() -> Result<(), Failed> {
    let compiles = |refused: usize| {
        let option = format!("-DREFUSED={refused}");
        cpp_compiles("tests/cpp/refused.cpp", "g++", "c++17", &option)
    };
    compiles(0)?;
    for refused in 1..=8 {
        let Err(error) = compiles(refused) else {
            return Err(format!("case {refused} compiles").into());
        };
        let text = error.message().unwrap_or_default();
        let reason = match refused {
            1..=5 => "compare the addresses",
            6..=7 => "long double has no order",
            _ => "no matching function",
        };
        require(
            text.contains(reason),
            format!("case {refused} is refused for another reason"),
            text,
        )?;
    }
    Ok(())
}

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = table(PROGRAMS)
        .map(|row| {
            let [program, ranks, title] = row.cells();
            let ranks = number(ranks);
            Case::skippable(row.is_quick, format!("{title}, {ranks} ranks"), move || {
                if is_skipped(program) {
                    return Ok(Completion::ignored_with(NO_FORTRAN));
                }
                self_checking(program, ranks, "")
            })
        })
        .collect();
    cases.extend(table(KILLS).map(|row| {
        let [program, ranks, argument, faults, phrase, count] = row.cells();
        let name = format!("{program} {argument} on {ranks} ranks, failures {faults:?}");
        let (ranks, count) = (number(ranks), number(count));
        Case::skippable(row.is_quick, name, move || {
            kill(program, ranks, argument, faults, phrase, count)
        })
    }));
    cases.push(Case::new(
        true,
        "the C++ tests call every function",
        cpp_parity,
    ));
    cases.push(Case::skippable(
        false,
        "the Fortran tests call every function",
        fortran_parity,
    ));
    cases.push(Case::new(
        false,
        "the C++ headers compile without warnings",
        cpp_compilers,
    ));
    cases.push(Case::new(
        true,
        "C++ orders by addresses and long doubles do not compile",
        cpp_refusals,
    ));
    cases
}

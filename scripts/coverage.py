#!/usr/bin/env python3
"""Measures which lines of the protocol the unit tests and the simulator's trials execute.

Builds the tests with the compiler's coverage counters, runs them with cargo-tarpaulin, and prints the share of the
lines of each module that were executed. Each line that was not executed is in target/coverage/unreached.txt, with its
text. Trials with a mutant do not count: the bodies of conditions on mutants are left out.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

import tools

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = "crates/core/src"
MODULES = ["engine", "engine/redundancy", "transport", "store", "members", "group", "rounds", "tree", "faults.rs"]
VERSION = "0.37.5"
FOLDER = ROOT / "target" / "coverage"
# Tests that switch on mutants.
SKIPPED = ["every_mutant_is_detected"]


def measure(jobs):
    """Runs the tests and returns the executions of each line, by file."""
    command = [
        tools.installed("cargo-tarpaulin", VERSION), "tarpaulin", "--engine", "llvm", "--skip-clean",
        "--target-dir", FOLDER, "--output-dir", FOLDER,
        "--out", "json", "--jobs", str(jobs), "--timeout", "3600", "--include-files", f"{SOURCES}/*",
        "--no-fail-fast",
        "-p", "ftsort-core", "-p", "ftsort-sim", "--features", "ftsort-core/testing",
        "--lib", "--test", "simulator", "--test", "group", "--",
    ]
    command += [word for name in SKIPPED for word in ("--skip", name)]
    (FOLDER / "tarpaulin-report.json").unlink(missing_ok=True)
    done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
    # The counters of build scripts.
    (ROOT / "build_rs_cov.profraw").unlink(missing_ok=True)
    path = FOLDER / "tarpaulin-report.json"
    if not path.exists():
        sys.exit(f"coverage: cargo-tarpaulin ended with status {done.returncode}; its output has the reason")
    if done.returncode != 0:
        print("coverage: a test failed, so that the figures may be too low", file=sys.stderr)
    report = json.loads(path.read_text(encoding="utf-8"))
    files = {}
    for one in report["files"]:
        path = pathlib.Path(*one["path"])
        if path.is_relative_to(ROOT / SOURCES):
            lines = {trace["line"]: trace["stats"]["Line"] for trace in one["traces"]}
            files[path.relative_to(ROOT / SOURCES).as_posix()] = lines
    return files


def of_tests_or_mutants(text):
    """Returns the numbers of the lines of a source that belong to unit tests or to the body of a mutant."""
    left_out = set()
    lines = text.splitlines()
    end = None
    for number, line in enumerate(lines, 1):
        indent = len(line) - len(line.lstrip())
        if end is None and line == "#[cfg(test)]":
            return left_out | set(range(number, len(lines) + 1))
        if end is None and re.search(r"\bif mutant\(.*\{$", line):
            end = indent
        elif end is not None:
            if line.strip() and indent <= end:
                end = None
            else:
                left_out.add(number)
        elif number > 1 and "match mutant(" in lines[number - 2]:
            left_out.add(number)
    return left_out


def module_of(path):
    """Returns the module for which a file counts; None for other modules and for helpers of unit tests."""
    if path.endswith("/testing.rs"):
        return None
    fitting = [module for module in MODULES if path == module or path.startswith(module + "/")]
    return max(fitting, key=len, default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes of the compiler at a time")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    totals = collections.defaultdict(lambda: [0, 0])
    unreached = []
    for path, lines in sorted(measure(options.jobs).items()):
        module = module_of(path)
        if module is None:
            continue
        text = (ROOT / SOURCES / path).read_text(encoding="utf-8")
        left_out = of_tests_or_mutants(text)
        for line, executions in sorted(lines.items()):
            if line in left_out:
                continue
            totals[module][0] += executions > 0
            totals[module][1] += 1
            if executions == 0:
                unreached.append(f"{SOURCES}/{path}:{line}: {text.splitlines()[line - 1].strip()}")
    (FOLDER / "unreached.txt").write_text("".join(line + "\n" for line in unreached), encoding="utf-8")
    print("| module | lines | executed | share |\n|---|---|---|---|")
    for module in MODULES:
        executed, lines = totals[module]
        print(f"| `{module}` | {lines} | {executed} | {100 * executed / max(lines, 1):.1f} % |")
    print(f"\n{len(unreached)} lines were not executed: see {(FOLDER / 'unreached.txt').relative_to(ROOT)}")


if __name__ == "__main__":
    main()

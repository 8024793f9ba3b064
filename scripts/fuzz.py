#!/usr/bin/env python3
"""Builds the fuzz targets and runs one after the other, each for some minutes.

libFuzzer guides the inputs by coverage. The stable compiler is sufficient, since flags ask for the instrumentation.
Inputs that cover new code go to `fuzz/found/TARGET`, which is not committed; inputs that fail go to `fuzz/failures`.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FUZZ = ROOT / "fuzz"
TARGETS = ["file", "header", "manifest", "schedule", "trial", "entry"]
# The flags for coverage among those that cargo-fuzz passes.
FLAGS = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
]
LONGEST = {"file": 4096, "header": 1024, "manifest": 512, "schedule": 256, "trial": 512, "entry": 512}


def host():
    text = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    return re.search(r"^host: (\S+)$", text, re.M).group(1)


def build():
    """Builds the fuzz targets and returns the folder of the programs."""
    machine = host()
    # With --target, the flags do not apply to build scripts and macros.
    command = ["cargo", "build", "--release", "--target", machine, "--manifest-path", FUZZ / "Cargo.toml"]
    subprocess.run(command, check=True, env={**os.environ, "RUSTFLAGS": " ".join(FLAGS)})
    target = os.environ.get("CARGO_TARGET_DIR", FUZZ / "target")
    return pathlib.Path(target) / machine / "release"


def fuzz(program, target, seconds, quiet):
    """Runs one target; returns the number of executions, or None after a failure."""
    found, failures = FUZZ / "found" / target, FUZZ / "failures"
    found.mkdir(parents=True, exist_ok=True)
    failures.mkdir(exist_ok=True)
    command = [
        program, found, FUZZ / "corpus" / target, f"-max_total_time={seconds}", f"-max_len={LONGEST[target]}",
        "-timeout=10", "-malloc_limit_mb=256", "-rss_limit_mb=2048", "-print_final_stats=1",
        f"-artifact_prefix={failures / target}-",
    ]
    executions = 0
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        lines = []
        for line in process.stderr:
            lines = (lines + [line])[-60:]
            if match := re.match(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+)", line):
                executions = int(match[1])
                if not quiet and sys.stdout.isatty():
                    print(f"\r{target}: {executions} executions, {match[2]} edges ", end="", flush=True)
            if match := re.match(r"stat::number_of_executed_units:\s*(\d+)", line):
                executions = int(match[1])
    failed = process.returncode != 0
    print(f"\r{target}: {executions} executions in {seconds} s: {'FAILED' if failed else 'no failure'}", flush=True)
    if failed:
        sys.stdout.write("".join(lines))
    return None if failed else executions


def shrink(program, target):
    """Replaces the corpus by the fewest files that cover the same code as the corpus and the found inputs."""
    corpus, fresh = FUZZ / "corpus" / target, FUZZ / "found" / f"{target}.small"
    fresh.mkdir(parents=True, exist_ok=True)
    command = [program, "-merge=1", fresh, corpus, FUZZ / "found" / target]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    shutil.rmtree(corpus)
    fresh.rename(corpus)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET", help=" ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=1, help="minutes for each target")
    parser.add_argument("--shrink", action="store_true", help="do not fuzz; make the corpus as small as possible")
    options = parser.parse_args()
    folder = build()
    if options.shrink:
        for target in options.targets:
            shrink(folder / target, target)
        return
    seconds = max(1, round(options.minutes * 60))
    done = [fuzz(folder / target, target, seconds, False) for target in options.targets]
    sys.exit(1 if None in done else 0)


if __name__ == "__main__":
    main()

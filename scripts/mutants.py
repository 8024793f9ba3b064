#!/usr/bin/env python3
"""Changes the protocol in many small ways, one at a time, and counts the changes that the tests detect.

cargo-mutants generates the changes: a function returns at once, an operator is replaced, a negation is removed. For
each, the unit tests of the protocol's modules and a part of the simulator's tests run. The program prints the share
of the changes that a test detected and lists the others; target/mutants.out has the logs. About 1000 changes take
hours, so that a run covers one of several shards.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import tools

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = "27.1.0"
TARGET = ROOT / "target"
FILES = [
    "engine/commit.rs", "engine/recovery.rs", "engine/redundancy/*.rs", "engine/job.rs", "engine/round.rs",
    "engine/exchange.rs", "engine/arrivals.rs", "transport/protocol/*.rs", "transport/comparison.rs", "members/*.rs",
]
# Values that exist for few types: most of these changes would not compile.
EXCLUDED = [r"with .*::(new|from_iter)\(", r"Default::default\(\)"]
# Parts of the names of the tests that run: unit tests by module, then tests of the simulator and of the group.
TESTS = [
    "engine::", "members::", "transport::", "store::",
    "points::", "collectives::", "the_observer", "redundancy::a_", "redundancy::files_", "redundancy::crashes_while",
    "redundancy::crashes_from", "redundancy::trials", "corruption::a_", "refusals_of_three_ranks",
    "crashes_of_three_ranks_in_every_store", "crashes_of_three_ranks_in_every_algorithm", "crashes_with_a_spare",
    "a_spare_takes_over", "the_failure_of_an_idle_spare", "random_trials_of_up_to_eight_ranks",
    "the_trials_for_mutants_are_correct_without_them", "trials_that_had_wrong_results",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shard", default="0/16", help="the changes to try: every N-th from the K-th, as K/N")
    parser.add_argument("--only", help="a regular expression: tries the changes with a name that it matches")
    parser.add_argument("--timeout", type=int, default=90, help="seconds after which tests count as failed")
    options = parser.parse_args()
    command = [
        tools.installed("cargo-mutants", VERSION), "mutants", "--package", "ftsort-core",
        "--test-package", "ftsort-core,ftsort-sim",
        "--features", "ftsort-core/testing", "--output", TARGET, "--timeout", str(options.timeout),
        "--build-timeout", "600", "--baseline", "skip", "--colors", "never", "--no-shuffle",
    ]
    command += [word for name in FILES for word in ("--file", f"crates/core/src/{name}")]
    command += [word for pattern in EXCLUDED for word in ("--exclude-re", pattern)]
    if options.only:
        command += ["--re", options.only]
    else:
        command += ["--shard", options.shard, "--sharding", "round-robin"]
    command += ["--", "--lib", "--test", "group", "--test", "simulator", "--", *TESTS]
    # The copy of the sources in which cargo-mutants works uses the compiled dependencies again.
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET / "mutants"), "FTSORT_TESTS": "quick"}
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    # 2: some changes were missed; 3: tests timed out.
    if status not in (0, 2, 3):
        sys.exit(f"mutants: cargo-mutants ended with status {status}; its output has the reason")
    outcomes = json.loads((TARGET / "mutants.out" / "outcomes.json").read_text(encoding="utf-8"))
    killed = outcomes["caught"] + outcomes["timeout"]
    tried = killed + outcomes["missed"]
    print(f"{killed} of {tried} changes were detected ({100 * killed / max(tried, 1):.1f} %), {outcomes['timeout']} of "
          f"them by the time limit; {outcomes['unviable']} more did not compile")
    missed = (TARGET / "mutants.out" / "missed.txt").read_text(encoding="utf-8")
    print(f"not detected:\n{missed}" if missed else "")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Kills rank 1 during operations of ftsort_query.h and ftsort_tree.h, at instants drawn uniformly, many times over.

Each run is one mpirun of tests/c/queries.c, which compares the whole result with its own computation. Outcomes:

  right  the survivors have the right result, after a recovery where the rank was killed later
  lost   all survivors returned FTSORT_ERR_DATA_LOST: the rank was killed before its input was protected
  wrong  any other result, or a crash
  hang   the run did not end within the time limit

Runs that are wrong or hang are failures and are printed with the command that repeats the kill at the same time. The
inputs are small, so a large part of the time of a call is unprotected; scripts/random_kills.py measures that part.
"""

import argparse
import pathlib
import random
import sys
import tempfile

import launch

OPERATIONS = ["by_key", "argsort", "positions", "unique", "group_by", "select", "quantiles", "top",
              "gather", "gather_to_killed", "merge"]
OUTCOMES = ["right", "lost", "wrong", "hang"]


def outcome_of(run):
    """Returns the outcome of a run of tests/c/queries.c."""
    if run.hung:
        return "hang"
    if "queries: fine" in run.output:
        return "right"
    return "lost" if "queries: lost" in run.output else "wrong"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", default=OPERATIONS, metavar="OPERATION", help=" ".join(OPERATIONS))
    parser.add_argument("--runs", type=int, default=25, help="runs of each operation")
    parser.add_argument("--ranks", type=int, default=4, help="the number of ranks, from 2 to 8")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=40000, help="the latest kill, in microseconds after the start of the call")
    parser.add_argument("--limit", type=float, default=60, help="seconds after which a run counts as hung")
    parser.add_argument("--profile", default="release", help="cargo's profile of the library")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    bad = 0
    print(f"{'operation':<16}" + "".join(f"{outcome:>8}" for outcome in OUTCOMES))
    with tempfile.TemporaryDirectory(prefix="ftsort-query-kills-") as folder:
        program = launch.build_c(launch.ROOT / "tests/c/queries.c", pathlib.Path(folder), options.profile)
        for operation in options.operations:
            counts = dict.fromkeys(OUTCOMES, 0)
            for _ in range(options.runs):
                command = [program, operation, draw.randint(1, options.most)]
                run = launch.launch(options.ranks, command, options.limit)
                outcome = outcome_of(run)
                counts[outcome] += 1
                if outcome in ("wrong", "hang"):
                    bad += 1
                    print(f"{outcome}: {launch.shown(options.ranks, command, '')}\n{run.output}", file=sys.stderr)
            print(f"{operation:<16}" + "".join(f"{counts[outcome]:>8}" for outcome in OUTCOMES), flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Injects data corruption into sorts on MPI, and counts the injections that are detected.

Runs tests/c/injections.c in slices. Each slice is one mpirun; half of them are on two ranks, half on four, and as many
sorts have no injection. Writes paper-out/reliable/injections.csv and prints the tables of docs/reliable.md. The script
can be stopped at any time and started again: slices in the file are not repeated. The exit status is 1 if a wrong
result was returned, or if corruption was reported where there was none.
"""

import argparse
import collections
import sys
import tempfile

import launch
import tables

OUT = launch.ROOT / "paper-out" / "reliable"
COUNTS = ["runs", "absent", "injected", "harmless", "detected", "corrected", "refused", "missed", "alarms", "failed"]
FIELDS = ["ranks", "first", "count", "checks", "target", "change", *COUNTS]
RANKS = [2, 4]
CLEAN = "none"
TARGETS = {
    "message": "a message, for each receiver differently", "block": "a block in memory", "input": "an input in memory",
    "replica": "a replica at another rank", "stored": "a block that is being written to a file",
    "result": "a result in memory", "order": "the order of a result", "swap": "a record, swapped with one of another block",
    "file": "a bit of a file", "several": "several of these at once",
}


def run_slice(program, ranks, first, count, clean, limit):
    """Runs one mpirun and returns its rows."""
    with tempfile.TemporaryDirectory() as folder:
        words = [program, first, count, folder] + (["clean"] if clean else [])
        ran = launch.launch(ranks, words, limit)
    rows = [dict(word.split("=") for word in line.split()[1:])
            for line in ran.output.splitlines() if line.startswith("injections ")]
    bad = [line for line in ran.output.splitlines() if line.startswith("trial ")]
    print(*bad, sep="\n", end="\n" if bad else "", file=sys.stderr)
    if ran.hung or sum(int(row["runs"]) for row in rows) != count:
        sys.exit(f"{ranks} ranks, from {first}: {'not finished' if ran.hung else ran.output[-2000:]}")
    return [dict(row, ranks=ranks, first=first, count=count) for row in rows]


def run_all(options):
    """Runs the slices that are not in the file yet, and returns all rows of the file."""
    with tempfile.TemporaryDirectory() as folder, tables.Appender(OUT / "injections.csv", FIELDS) as file:
        done = {(int(row["ranks"]), int(row["first"]), row["target"] == CLEAN) for row in file.rows}
        todo = [(ranks, first, clean) for first in range(0, options.count // len(RANKS), options.slice)
                for ranks in RANKS for clean in (False, True) if (ranks, first, clean) not in done]
        program = launch.build_c(launch.ROOT / "tests" / "c" / "injections.c", folder)
        for ranks, first, clean in todo[:options.most]:
            count = min(options.slice, options.count // len(RANKS) - first)
            print(f"{ranks} ranks, {'clean sorts' if clean else 'injections'} from {first}", file=sys.stderr, flush=True)
            file.add(*run_slice(program, ranks, first, count, clean, options.limit))
        return file.rows


def print_table(rows, title, name):
    """Prints the sums of the rows by `name(row)`."""
    sums = collections.defaultdict(collections.Counter)
    for row in rows:
        sums[name(row)].update({count: int(row[count]) for count in COUNTS})
    shown = ["injected", "harmless", "detected", "corrected", "refused", "missed"]
    body = [[group, *(counts[count] for count in shown)] for group, counts in sums.items()]
    print(tables.markdown([title, *shown], body, ["---", *["---:"] * len(shown)]), end="\n\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200000, help="sorts with injections, and as many without")
    parser.add_argument("--slice", type=int, default=10000, help="sorts in one mpirun")
    parser.add_argument("--most", type=int, help="run at most this many slices now")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a slice")
    options = parser.parse_args()
    rows = run_all(options)
    clean = [row for row in rows if row["target"] == CLEAN]
    changed = [row for row in rows if row["target"] != CLEAN]
    digests = [row for row in changed if row["checks"] != "1989"]
    order = list(TARGETS)
    digests.sort(key=lambda row: order.index(row["target"]))
    print_table(digests, "with digests", lambda row: TARGETS[row["target"]])
    print_table([row for row in changed if row["checks"] == "1989"], "with the checks of 1989 alone",
          lambda row: TARGETS[row["target"]])
    print_table([row for row in changed if row["target"] not in ("order", "swap", "file", "several")], "change",
          lambda row: row["change"])
    of = {count: sum(int(row[count]) for row in rows) for count in COUNTS}
    runs = sum(int(row["runs"]) for row in clean)
    print(f"{of['injected']} injections, {of['missed']} missed, {of['failed']} failed; {of['absent'] - runs} times "
          f"the target did not exist; {of['alarms']} false alarms in {runs} sorts without an injection")
    sys.exit(1 if of["missed"] or of["failed"] or of["alarms"] else 0)


if __name__ == "__main__":
    main()

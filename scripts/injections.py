#!/usr/bin/env python3
"""Wrong data by the thousand on MPI: tests/c/injections.c in slices, each one mpirun, half of them on two
ranks, and half on four; and as many sorts in which nothing is changed. Writes paper-out/reliable/injections.csv
and prints the tables of docs/reliable.md. May be stopped at any time and started again with more: slices that
are in the file are not run again. Exits with 1 if a wrong result was given out, or something found where
nothing was wrong.
"""

import argparse
import collections
import csv
import sys
import tempfile

import launch

OUT = launch.ROOT / "paper-out" / "reliable"
COUNTS = ["runs", "absent", "injected", "harmless", "detected", "corrected", "refused", "missed", "alarms", "failed"]
FIELDS = ["ranks", "first", "count", "checks", "target", "change", *COUNTS]
RANKS = [2, 4]
CLEAN = "none"
WHAT = {
    "message": "a message: each listener may hear another thing", "block": "a block in memory", "input": "an input in memory",
    "replica": "a copy at another rank", "stored": "a block on its way into a file", "result": "a result in memory",
    "order": "the order of a result", "swap": "a record swapped with another block's", "file": "a bit of a file",
    "several": "several of these at once",
}


def play(program, ranks, first, count, clean, limit):
    """The rows of one mpirun."""
    with tempfile.TemporaryDirectory() as folder:
        words = [program, first, count, folder] + (["clean"] if clean else [])
        ran = launch.launch(ranks, words, limit)
    rows = [dict(word.split("=") for word in line.split()[1:])
            for line in ran.output.splitlines() if line.startswith("injections ")]
    bad = [line for line in ran.output.splitlines() if line.startswith("trial ")]
    print(*bad, sep="\n", end="\n" if bad else "", file=sys.stderr)
    if ran.hung or sum(int(row["runs"]) for row in rows) != count:
        sys.exit(f"{ranks} ranks, from {first}: {'no end' if ran.hung else ran.output[-2000:]}")
    return [dict(row, ranks=ranks, first=first, count=count) for row in rows]


def play_all(options):
    """All rows, those of former runs among them."""
    OUT.mkdir(parents=True, exist_ok=True)
    path, rows = OUT / "injections.csv", []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    done = {(int(row["ranks"]), int(row["first"]), row["target"] == CLEAN) for row in rows}
    todo = [(ranks, first, clean) for first in range(0, options.count // len(RANKS), options.slice)
            for ranks in RANKS for clean in (False, True) if (ranks, first, clean) not in done]
    with tempfile.TemporaryDirectory() as folder, path.open("a", newline="", encoding="utf-8") as file:
        program = launch.build_c(launch.ROOT / "tests" / "c" / "injections.c", folder)
        writer = csv.DictWriter(file, FIELDS)
        if not rows:
            writer.writeheader()
        for ranks, first, clean in todo[:options.most]:
            count = min(options.slice, options.count // len(RANKS) - first)
            print(f"{ranks} ranks, {'clean' if clean else 'injections'} from {first}", file=sys.stderr, flush=True)
            fresh = play(program, ranks, first, count, clean, options.limit)
            writer.writerows(fresh)
            file.flush()
            rows += fresh
    return rows


def table(rows, title, name):
    sums = collections.defaultdict(collections.Counter)
    for row in rows:
        sums[name(row)].update({count: int(row[count]) for count in COUNTS})
    shown = ["injected", "harmless", "detected", "corrected", "refused", "missed"]
    print(f"| {title} | {' | '.join(shown)} |\n|---|{'---:|' * len(shown)}")
    for what, sum_of in sums.items():
        print(f"| {what} | {' | '.join(str(sum_of[count]) for count in shown)} |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200000, help="sorts with changes, and as many without")
    parser.add_argument("--slice", type=int, default=10000, help="sorts in one mpirun")
    parser.add_argument("--most", type=int, help="so many slices now, and no more")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a slice")
    options = parser.parse_args()
    rows = play_all(options)
    clean = [row for row in rows if row["target"] == CLEAN]
    lies = [row for row in rows if row["target"] != CLEAN]
    digests = [row for row in lies if row["checks"] != "1989"]
    order = list(WHAT)
    digests.sort(key=lambda row: order.index(row["target"]))
    table(digests, "with digests", lambda row: WHAT[row["target"]])
    table([row for row in lies if row["checks"] == "1989"], "with the checks of 1989 alone",
          lambda row: WHAT[row["target"]])
    table([row for row in lies if row["target"] not in ("order", "swap", "file", "several")], "how",
          lambda row: row["change"])
    of = {count: sum(int(row[count]) for row in rows) for count in COUNTS}
    runs = sum(int(row["runs"]) for row in clean)
    print(f"{of['injected']} injections, {of['missed']} missed, {of['failed']} failed; {of['absent'] - runs} times there was "
          f"nothing to be changed; {of['alarms']} false alarms, {runs} clean sorts")
    sys.exit(1 if of["missed"] or of["failed"] or of["alarms"] else 0)


if __name__ == "__main__":
    main()

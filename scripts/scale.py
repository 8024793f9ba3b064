#!/usr/bin/env python3
"""Simulates sorts of 16 to 16,384 ranks by a model of a network, and prints the tables of docs/scale.md.

Runs `ftsort-sim scale` for each number of ranks, number of levels and size of an input. The figures go to a CSV file
(default: docs/data/scale.csv). Runs that are in the file already are left out, so that the program can be stopped and
continued; --tables prints the tables of the file alone. One level of P ranks takes P^2 messages, so that more than
--most-in-one-level ranks get only the time by the formula. 16,384 ranks take 9 GB of memory.
"""

import argparse
import pathlib
import re
import subprocess
import sys

import launch
import tables

DATA = launch.ROOT / "docs" / "data" / "scale.csv"
NETWORK = launch.ROOT / "crates" / "sim" / "networks" / "infiniband.toml"
RANKS = [16, 64, 256, 1024, 4096, 16384]
# A simulated rank has so few records, each of which stands for `scale` records on the network clock.
RECORDS = 64
SIZES = [2**10, 2**14, 2**17, 2**20]
# The size for which failures are simulated, too.
SIZE_WITH_FAILURES = 2**17
SORTS = {"samplesort": 1, "samplesort_2": 2, "samplesort_3": 3}


def command_of(options, sort, ranks, size):
    """Returns the command that simulates a sort."""
    program = launch.target_dir() / "release" / "ftsort-sim"
    return [program, "scale", "--ranks", ranks, "--records", RECORDS, "--algorithm", sort,
            "--network", options.network, "--scale", size // RECORDS]


def run(command):
    """Runs a command and returns its output. Ends this program if the command fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} fails: {done.stdout}{done.stderr}")
    return done.stdout


def is_simulated(options, sort, ranks):
    """Returns whether a sort is simulated and not only computed by the formula."""
    return ranks <= (options.most_in_one_level if SORTS[sort] == 1 else options.most)


def simulate(options):
    """Simulates all sorts that are not in the file."""
    for ranks in options.ranks:
        for size in SIZES:
            for sort in SORTS:
                known = tables.chosen(tables.read(options.csv), algorithm=sort, ranks=str(ranks),
                                      scale=str(size // RECORDS))
                if known or not is_simulated(options, sort, ranks):
                    continue
                failures = 3 if size == SIZE_WITH_FAILURES and ranks <= options.most_with_failures else 0
                more = ["--csv", options.csv, "--failures", failures]
                print(run([*command_of(options, sort, ranks, size), *more]), end="", flush=True)


def formula(options, sort, ranks, size):
    """Returns the time of a sort by the formula, in seconds."""
    text = run([*command_of(options, sort, ranks, size), "--predict"])
    return float(re.search(r"predicted time ([0-9.]+) ms", text)[1]) / 1000


def milliseconds(seconds):
    """Returns a time in milliseconds with three digits."""
    return f"{seconds * 1000:#.3g}".rstrip(".") if seconds < 1 else f"{seconds * 1000:.0f}"


def time_table(options, rows):
    """The simulated time in milliseconds, and in brackets that of the formula."""
    lines = []
    for ranks in options.ranks + options.formula_ranks:
        for size in SIZES:
            cells = []
            for sort in SORTS:
                found = tables.chosen(rows, ranks=ranks, algorithm=sort, scale=size / RECORDS, failures=0)
                predicted = formula(options, sort, ranks, size)
                simulated = milliseconds(found[0]["simulated_seconds"]) + " " if found else ""
                cells.append(f"{simulated}({milliseconds(predicted)})")
            lines.append([f"{ranks:,}", f"2^{size.bit_length() - 1}", *cells])
    header = ["ranks", "records of a rank", "one level", "two levels", "three levels"]
    return tables.markdown(header, lines, ["--:"] * len(header))


def traffic_table(rows):
    """The messages and the control data of a rank, and the balance."""
    lines = []
    for row in tables.chosen(rows, scale=SIZE_WITH_FAILURES / RECORDS, failures=0):
        lines.append([f"{row['ranks']:,.0f}", SORTS[row["algorithm"]], f"{row['messages_mean']:.0f}",
                      f"{row['control_mean'] / 1000:.0f}", f"{row['control_most'] / 1000:.0f}",
                      f"{row['control_step'] / 1000:.0f}", f"{row['largest_share']:.3f}"])
    header = ["ranks", "levels", "messages", "control (kB)", "at most (kB)", "in one step (kB)", "largest share"]
    return tables.markdown(header, lines, ["--:"] * len(header))


def failure_table(rows):
    """The time that three failures add."""
    lines = []
    for row in tables.chosen(rows, failures=3):
        before = tables.chosen(rows, ranks=row["ranks"], algorithm=row["algorithm"], scale=row["scale"], failures=0)[0]
        more = row["simulated_seconds"] - before["simulated_seconds"]
        lines.append([f"{row['ranks']:,.0f}", SORTS[row["algorithm"]], milliseconds(before["simulated_seconds"]),
                      milliseconds(more), f"{row['messages_mean']:.0f}", f"{row['wall_seconds']:.1f}",
                      f"{row['peak_megabytes']:.0f}"])
    header = ["ranks", "levels", "without failures (ms)", "three failures add (ms)", "messages", "wall time (s)",
              "memory (MB)"]
    return tables.markdown(header, lines, ["--:"] * len(header))


def note_command(path):
    """Puts the command that made the file into its first line."""
    text = path.read_text(encoding="utf-8")
    if not text.startswith("#"):
        path.write_text(f"# Made by: scripts/scale.py, tables of docs/scale.md\n{text}", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS, help="numbers of ranks (default: %(default)s)")
    parser.add_argument("--most", type=int, default=16384, help="most ranks that are simulated")
    parser.add_argument("--most-in-one-level", type=int, default=1024, help="most ranks that sort in one level")
    parser.add_argument("--most-with-failures", type=int, default=16384, help="most ranks with failures")
    parser.add_argument("--formula-ranks", type=int, nargs="*", default=[2**17, 2**20],
                        help="numbers of ranks for the formula alone (default: %(default)s)")
    parser.add_argument("--network", type=pathlib.Path, default=NETWORK, help="file with the parameters of the network")
    parser.add_argument("--csv", type=pathlib.Path, default=DATA, help="file with the figures")
    parser.add_argument("--tables", action="store_true", help="print the tables without simulating")
    options = parser.parse_args()
    if not options.tables:
        simulate(options)
    note_command(options.csv)
    rows = tables.read_numbers(options.csv)
    print(time_table(options, rows), traffic_table(rows), failure_table(rows), sep="\n\n")


if __name__ == "__main__":
    main()

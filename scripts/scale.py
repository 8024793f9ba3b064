#!/usr/bin/env python3
"""Simulates sorts by a model of a network: of 16 to 16,384 ranks for the tables of docs/scale.md, or with other stores.

Runs `ftsort-sim scale` for each number of ranks, number of levels and size of an input. The figures go to a CSV file
(default: docs/data/scale.csv). Runs that are in the file already are left out, so that the program can be stopped and
continued; --tables prints the tables of the file alone. One level of P ranks takes P^2 messages, so that more than
--most-in-one-level ranks get only the time by the formula. 16,384 ranks take 5 GB of memory.

With --stores it compares replicas and parity on 4 and 8 ranks and prints the table of docs/performance.md: the time of
a sort relative to one without a store, and the time that the failure of a rank at a random step adds. The medians are
over the seeds from 1 to --seeds. The figures go to scale_stores.csv in the target folder unless --csv is there.
"""

import argparse
import pathlib
import re
import statistics
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
STORES = ["none", "memory:1", "parity:1:8", "memory:2", "parity:2:8"]
# The size of the sorts that compare stores: 8 MiB of each rank.
STORES_SIZE = 2**20


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


def simulate_stores(options):
    """Simulates sorts with each store, and with a failure where a store survives it. Replaces the file."""
    options.csv.unlink(missing_ok=True)
    for ranks in (4, 8):
        for store in STORES:
            for seed in range(1, options.seeds + 1):
                more = ["--store", store, "--seed", seed, "--csv", options.csv, "--failures", int(store != "none")]
                run([*command_of(options, "samplesort", ranks, STORES_SIZE), *more])


def store_table(rows):
    """The times of sorts relative to those without a store, and the time that a failure adds."""
    def median(ranks, store, failures):
        found = tables.chosen(rows, ranks=ranks, store=store, failures=failures)
        return statistics.median(row["simulated_seconds"] for row in found)

    lines = []
    for store in STORES:
        plain = [median(ranks, store, 0) for ranks in (4, 8)]
        ratios = [f"{time / median(ranks, 'none', 0):.2f}" for ranks, time in zip((4, 8), plain)]
        with_failure = [median(ranks, store, 1) for ranks in (4, 8) if store != "none"]
        added = [milliseconds(more - time) for more, time in zip(with_failure, plain)]
        lines.append([store, ", ".join(map(milliseconds, plain)), ", ".join(ratios), ", ".join(added)])
    header = ["store; 4, 8 ranks", "time (ms)", "relative to no store", "a failure adds (ms)"]
    return tables.markdown(header, lines, ["---", "--:", "--:", "--:"])


def note_command(path, arguments):
    """Puts the command that made the file into its first line."""
    text = path.read_text(encoding="utf-8")
    if not text.startswith("#"):
        path.write_text(f"# Made by: scripts/scale.py{arguments}\n{text}", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS, help="numbers of ranks (default: %(default)s)")
    parser.add_argument("--most", type=int, default=16384, help="most ranks that are simulated")
    parser.add_argument("--most-in-one-level", type=int, default=1024, help="most ranks that sort in one level")
    parser.add_argument("--most-with-failures", type=int, default=16384, help="most ranks with failures")
    parser.add_argument("--formula-ranks", type=int, nargs="*", default=[2**17, 2**20],
                        help="numbers of ranks for the formula alone (default: %(default)s)")
    parser.add_argument("--network", type=pathlib.Path, default=NETWORK, help="file with the parameters of the network")
    parser.add_argument("--csv", type=pathlib.Path, help="file with the figures")
    parser.add_argument("--tables", action="store_true", help="print the tables without simulating")
    parser.add_argument("--stores", action="store_true", help="compare replicas and parity")
    parser.add_argument("--seeds", type=int, default=41, help="seeds for --stores (default: %(default)s)")
    options = parser.parse_args()
    options.csv = options.csv or (launch.target_dir() / "scale_stores.csv" if options.stores else DATA)
    if options.stores:
        if not options.tables:
            simulate_stores(options)
        note_command(options.csv, f" --stores --network {options.network.name}")
        print(store_table(tables.read_numbers(options.csv)))
        return
    if not options.tables:
        simulate(options)
    note_command(options.csv, ", tables of docs/scale.md")
    rows = tables.read_numbers(options.csv)
    print(time_table(options, rows), traffic_table(rows), failure_table(rows), sep="\n\n")


if __name__ == "__main__":
    main()

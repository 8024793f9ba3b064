#!/usr/bin/env python3
"""Measures Figures 6 and 8 of the 1989 paper on MPI.

Runs c_examples/reliable.c: bitonic sort without and with checks, and sorting or verifying on one host. Writes mpi.csv
and the figures (SVG and PNG) to paper-out/reliable. The script can be stopped at any time and started again: cases in
mpi.csv are not repeated.
"""

import argparse
import sys
import tempfile

import launch
import plots
import tables

OUT = launch.ROOT / "paper-out" / "reliable"
RANKS = [4, 8, 16, 32]
# Records of a rank, the name and title of the figure, and the repetitions of each sort.
BLOCKS = [
    (1, "figure6_mpi", "Figure 6 on MPI, one record on each rank", 101),
    (8, "figure8_mpi", "Figure 8 on MPI, 8 records on each rank", 101),
    (1 << 16, "figure8_large_mpi", "Like Figure 8, 2^16 records on each rank", 15),
]
NAMES = {
    "by_hand": "bitonic sort, no fault tolerance (S_NR)",
    "plain": "bitonic sort, survives failures",
    "checked": "with the checks of 1989 (S_FT, corrected)",
    "digest": "with digests",
    "host": "the host sorts",
    "host_verifies": "the host verifies",
}
FIELDS = ["plan", "ranks", "block", "copies", "repetitions", "median", "least", "most"]


def measure(program, ranks, block, repetitions, limit):
    """Runs the program once and returns its rows."""
    ran = launch.launch(ranks, [program, "-b", block, "-n", repetitions], limit)
    rows = [dict(word.split("=") for word in line.split()[1:])
            for line in ran.output.splitlines() if line.startswith("reliable plan=")]
    if ran.hung or len(rows) != len(NAMES):
        sys.exit(f"{ranks} ranks, {block} records: {'not finished' if ran.hung else ran.output[-500:]}")
    return rows


def measure_all(limit, scale):
    """Measures the cases that are not in mpi.csv yet, and returns all rows."""
    with tempfile.TemporaryDirectory() as folder, tables.Appender(OUT / "mpi.csv", FIELDS) as file:
        done = {(int(row["ranks"]), int(row["block"])) for row in file.rows}
        todo = [(ranks, block, repetitions) for block, _, _, repetitions in BLOCKS for ranks in RANKS
                if (ranks, block) not in done]
        program = launch.build_c(launch.ROOT / "c_examples" / "reliable.c", folder) if todo else None
        for index, (ranks, block, repetitions) in enumerate(todo):
            print(f"on MPI: {index + 1} of {len(todo)}, {ranks} ranks, {block} records each", file=sys.stderr)
            file.add(*measure(program, ranks, block, max(1, int(repetitions * scale)), limit))
        return file.rows


class Times:
    """The measured times in milliseconds: medians, and the smallest and largest ones."""

    def __init__(self, rows):
        self.rows = {(row["plan"], int(row["ranks"]), int(row["block"])): row for row in rows}

    def of(self, plan, ranks, block, column="median"):
        return 1e3 * float(self.rows[plan, ranks, block][column])

    def ratios(self, plan, to, block):
        """Returns the ratios from the smallest to the largest number of ranks, as text."""
        ratios = [self.of(plan, ranks, block) / self.of(to, ranks, block) for ranks in RANKS]
        return ", ".join(f"{ratio:.2g}" for ratio in ratios)


def figure(times, block, title, name):
    drawing, axes = plots.axes("ranks N", "milliseconds, median (shaded: smallest to largest)", title, (7.6, 5.2),
                               xscale="log", yscale="log")
    for plan, label in NAMES.items():
        line, = axes.plot(RANKS, [times.of(plan, ranks, block) for ranks in RANKS], marker="o", label=label)
        axes.fill_between(RANKS, [times.of(plan, ranks, block, "least") for ranks in RANKS],
                          [times.of(plan, ranks, block, "most") for ranks in RANKS],
                          color=line.get_color(), alpha=0.08, linewidth=0)
    plots.powers_of_two(axes.xaxis, RANKS)
    drawing.legend(loc="outside lower center", ncols=2)
    plots.save(drawing, OUT, name)


def draw(rows):
    """Draws all figures; returns the name and a description of each."""
    times, drawn = Times(rows), []
    for block, name, title, _ in BLOCKS:
        figure(times, block, title, name)
        drawn.append((name, f"{title}, on {', '.join(map(str, RANKS))} ranks: with the checks of 1989 a "
                      f"sort takes {times.ratios('checked', 'plain', block)} times as long as without checks, with digests "
                      f"{times.ratios('digest', 'plain', block)} times as long; sorting on the host takes "
                      f"{times.ratios('host', 'checked', block)} of the time with checks."))
    return drawn


def print_table(rows):
    """Prints the table of docs/reliable.md."""
    times = Times(rows)
    body = [[block, ranks, *(f"{times.of(plan, ranks, block):.3g}" for plan in NAMES)]
            for block, *_ in BLOCKS for ranks in RANKS]
    print(tables.markdown(["block", "ranks", *NAMES.values()], body, ["---:"] * (2 + len(NAMES))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=600, help="seconds for one number of ranks and records")
    parser.add_argument("--scale", type=float, default=1, help="a factor for the repetitions")
    options = parser.parse_args()
    rows = measure_all(options.limit, options.scale)
    for name, text in draw(rows):
        print(f"{OUT / name}: {text}")
    print_table(rows)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The 1989 paper's Figures 6 and 8 measured on MPI, with c_examples/reliable.c: bitonic sort without and
with checks, and the host that sorts or verifies. Writes mpi.csv and the figures (SVG and PNG) into
paper-out/reliable/. May be stopped at any time and started again: what is in mpi.csv is not run again.
"""

import argparse
import csv
import pathlib
import sys
import tempfile

import plots

plots.ensure()

import matplotlib  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402

import launch  # noqa: E402

OUT = launch.ROOT / "paper-out" / "reliable"
RANKS = [4, 8, 16, 32]
# Records of a rank, the figure, and how often each sort is run.
BLOCKS = [
    (1, "figure6_mpi", "Figure 6 on MPI, one record on each rank", 101),
    (8, "figure8_mpi", "Figure 8 on MPI, 8 records on each rank", 101),
    (1 << 16, "figure8_large_mpi", "As Figure 8, 2^16 records on each rank", 15),
]
NAMES = {
    "by_hand": "bitonic sort by hand, survives nothing (S_NR)",
    "plain": "bitonic sort, survives crashes",
    "checked": "with the checks of 1989 (S_FT, mended)",
    "digest": "with digests",
    "host": "the host sorts",
    "host_verifies": "the host verifies",
}
FIELDS = ["plan", "ranks", "block", "copies", "repetitions", "median", "least", "most"]


def measure(program, ranks, block, repetitions, limit):
    """The rows of one run of the program."""
    ran = launch.launch(ranks, [program, "-b", block, "-n", repetitions], limit)
    rows = [dict(word.split("=") for word in line.split()[1:])
            for line in ran.output.splitlines() if line.startswith("reliable plan=")]
    if ran.hung or len(rows) != len(NAMES):
        sys.exit(f"{ranks} ranks, {block} records: {'no end' if ran.hung else ran.output[-500:]}")
    return rows


def measure_all(limit, scale):
    """All rows, those of former runs among them."""
    OUT.mkdir(parents=True, exist_ok=True)
    path, rows = OUT / "mpi.csv", []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    done = {(int(row["ranks"]), int(row["block"])) for row in rows}
    todo = [(ranks, block, repetitions) for block, _, _, repetitions in BLOCKS for ranks in RANKS
            if (ranks, block) not in done]
    if not todo:
        return rows
    with tempfile.TemporaryDirectory() as folder, path.open("a", newline="", encoding="utf-8") as file:
        program = launch.build_c(launch.ROOT / "c_examples" / "reliable.c", folder)
        writer = csv.DictWriter(file, FIELDS)
        if not rows:
            writer.writeheader()
        for index, (ranks, block, repetitions) in enumerate(todo):
            print(f"on MPI: {index + 1} of {len(todo)}, {ranks} ranks, {block} records each", file=sys.stderr)
            fresh = measure(program, ranks, block, max(1, int(repetitions * scale)), limit)
            writer.writerows(fresh)
            file.flush()
            rows += fresh
    return rows


class Times:
    """In milliseconds: the medians, and between what the times lie."""

    def __init__(self, rows):
        self.rows = {(row["plan"], int(row["ranks"]), int(row["block"])): row for row in rows}

    def of(self, plan, ranks, block, column="median"):
        return 1e3 * float(self.rows[plan, ranks, block][column])

    def ratios(self, plan, to, block):
        """From the smallest to the largest number of ranks, in words."""
        ratios = [self.of(plan, ranks, block) / self.of(to, ranks, block) for ranks in RANKS]
        return ", ".join(f"{ratio:.2g}" for ratio in ratios)


def figure(times, block, title, name):
    drawing, axes = pyplot.subplots(figsize=(7.6, 4.6), layout="constrained")
    for plan, label in NAMES.items():
        line, = axes.plot(RANKS, [times.of(plan, ranks, block) for ranks in RANKS], marker="o", label=label)
        axes.fill_between(RANKS, [times.of(plan, ranks, block, "least") for ranks in RANKS],
                          [times.of(plan, ranks, block, "most") for ranks in RANKS],
                          color=line.get_color(), alpha=0.08, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(RANKS, [str(ranks) for ranks in RANKS])
    axes.set_xlabel("ranks N")
    axes.set_ylabel("milliseconds, median (shaded: least to most)")
    axes.set_title(title)
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    plots.save(drawing, OUT, name)


def draw(rows):
    """Draws all; returns (file name, what it shows)."""
    times, drawn = Times(rows), []
    for block, name, title, _ in BLOCKS:
        figure(times, block, title, name)
        drawn.append((f"{name}.svg", f"{title}, on {', '.join(map(str, RANKS))} ranks: the checks of 1989 take "
                      f"{times.ratios('checked', 'plain', block)} times as long as without, digests "
                      f"{times.ratios('digest', 'plain', block)} times; the host sorts in "
                      f"{times.ratios('host', 'checked', block)} of the time with checks."))
    return drawn


def table(rows):
    """For docs/reliable.md."""
    times = Times(rows)
    print("| block | ranks | " + " | ".join(NAMES) + " |\n|---:|---:|" + "---:|" * len(NAMES))
    for block, *_ in BLOCKS:
        for ranks in RANKS:
            print(f"| {block} | {ranks} | " + " | ".join(f"{times.of(plan, ranks, block):.3g}" for plan in NAMES) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=600, help="seconds for one number of ranks and records")
    parser.add_argument("--scale", type=float, default=1, help="times the usual repetitions")
    options = parser.parse_args()
    rows = measure_all(options.limit, options.scale)
    for name, text in draw(rows):
        print(f"{OUT / name}: {text}")
    table(rows)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Sorts while ranks are slow by turns (2018 paper, Figure 14), with and without a monitor: CSV and a plot.

Runs c_examples/slowdown.c for each mode and number of slow ranks, in turns so that what else the machine
does falls on all alike, and writes medians into paper-out/dgrp-mpi.
"""

import argparse
import csv
import pathlib
import statistics
import sys
import tempfile

import plots

plots.ensure()

import matplotlib  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402

import launch  # noqa: E402

MODES = {
    "none": "no monitor",
    "threads": "no monitor, MPI_THREAD_MULTIPLE",
    "foreground-forever": "at the commits, never back",
    "foreground": "at the commits",
    "thread-forever": "thread, never back",
    "thread": "thread",
}
FIELDS = ["mode", "victims", "ranks", "log2", "sorts", "percent", "seconds", "demoted", "rejoined"]


def measure(options):
    """One row for each run that came to its end."""
    with tempfile.TemporaryDirectory(prefix="ftsort-slowdown-") as folder:
        program = launch.build_c(launch.ROOT / "c_examples/slowdown.c", folder)
        for repetition in range(options.repetitions):
            for victims in sorted({0, 1, options.ranks // 2, options.ranks - 1}):
                for mode in MODES:
                    command = [program, mode, victims, options.size, options.sorts, options.percent]
                    run = launch.launch(options.ranks, command, 600)
                    line = next((text for text in run.output.splitlines() if text.startswith("slowdown ")), None)
                    if line is None:
                        sys.exit(f"{mode}, {victims} slow: {run.output[-2000:]}")
                    row = dict(word.split("=") for word in line.split()[1:])
                    print(f"{repetition}: {MODES[mode]:<32} {victims} slow {float(row['seconds']):8.2f} s, "
                          f"{row['demoted']} demoted, {row['rejoined']} back", flush=True)
                    yield row


def draw(table, folder):
    figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    victims = sorted({victims for _, victims in table})
    width = 0.8 / len(MODES)
    for index, (mode, label) in enumerate(MODES.items()):
        places = [place + width * (index - (len(MODES) - 1) / 2) for place in range(len(victims))]
        axes.bar(places, [table[mode, count] for count in victims], width, label=label)
    axes.set_xticks(range(len(victims)), [str(count) for count in victims])
    axes.set_xlabel("ranks that are slow half of the time")
    axes.set_ylabel("seconds, median")
    axes.legend()
    plots.save(figure, folder, "figure14_slowdown")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", type=int, default=24, help="log2 of the number of records")
    parser.add_argument("--sorts", type=int, default=40)
    parser.add_argument("--percent", type=int, default=10, help="of its processor that a slow rank gets")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=launch.ROOT / "paper-out" / "dgrp-mpi")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    with (options.out / "slowdown.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for row in measure(options):
            writer.writerow(row)
            file.flush()
            rows.append(row)
    table = {}
    for mode, victims in {(row["mode"], int(row["victims"])) for row in rows}:
        found = [row for row in rows if (row["mode"], int(row["victims"])) == (mode, victims)]
        table[mode, victims] = statistics.median(float(row["seconds"]) for row in found)
    for mode, label in MODES.items():
        counts = sorted(victims for other, victims in table if other == mode)
        cells = [f"{table[mode, count]:8.2f} ({table[mode, count] / table['none', count]:4.2f})" for count in counts]
        print(f"{label:<34}" + "".join(f"{cell:>18}" for cell in cells))
    draw(table, options.out)
    print(options.out / "slowdown.csv")


if __name__ == "__main__":
    main()

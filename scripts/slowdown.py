#!/usr/bin/env python3
"""Sorts while ranks are slow by turns (2018 paper, Figure 14), with and without a monitor: CSV and a plot.

Runs c_examples/slowdown.c for each mode and number of slow ranks, in turns so that what else the machine
does falls on all alike, and writes medians into paper-out/dgrp-mpi. Ranks are slow by signals (SIGSTOP and
SIGCONT), or by a quota of their control group, where this process may make one. --cost measures instead what a
monitor costs where nobody is slow (c_examples/monitor_cost.c).
"""

import argparse
import contextlib
import csv
import os
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
    "thread-doubt": "thread, self-doubt",
    "foreground-gain": "at the commits, if it pays",
    "foreground-weights": "at the commits, weights",
    "thread-weights": "thread, weights",
}
FIELDS = ["kind", "mode", "victims", "ranks", "log2", "sorts", "percent", "seconds", "demoted", "rejoined", "least"]
COSTS = {
    "none": "no monitor",
    "threads": "no monitor, MPI_THREAD_MULTIPLE",
    "foreground": "at the commits",
    "thread": "thread",
    "vcube": "thread, VCube's graph",
}
COST_FIELDS = ["mode", "ranks", "seconds", "interval_ms", "processor_percent", "sent", "answered", "log2", "pairs",
               "without_ms", "with_ms"]
CONTROLLER = pathlib.Path("/sys/fs/cgroup/cpu")


class NotPermitted(Exception):
    """Why there can be no control groups."""


@contextlib.contextmanager
def control_group():
    """A folder for control groups with quotas; it is removed with what is below it."""
    folder = CONTROLLER / f"ftsort-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NotPermitted(f"cgroup version 1, cpu controller: {error}") from error
    try:
        if not (folder / "cpu.cfs_quota_us").exists():
            raise NotPermitted(f"{folder} has no quota")
        yield folder
    finally:
        for below in folder.iterdir():
            if below.is_dir():
                below.rmdir()
        folder.rmdir()


def parse(run, word):
    """The line of a program that begins with this word, as a row."""
    line = next((text for text in run.output.splitlines() if text.startswith(f"{word} ")), None)
    if line is None:
        sys.exit(run.output[-2000:])
    return dict(field.split("=") for field in line.split()[1:])


def measure_cost(options):
    """One row for each mode and number of ranks."""
    with tempfile.TemporaryDirectory(prefix="ftsort-cost-") as folder:
        program = launch.build_c(launch.ROOT / "c_examples/monitor_cost.c", folder)
        for mode in COSTS:
            command = [program, mode, options.idle, options.interval, options.size, options.pairs]
            row = parse(launch.launch(options.ranks, command, 600), "monitor_cost")
            print(f"{COSTS[mode]:<32} {row['processor_percent']} % of a processor, {row['sent']} messages/s; sorts "
                  f"{row['without_ms']} ms without and {row['with_ms']} ms with", flush=True)
            yield row


def measure(options):
    """One row for each run that came to its end."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ftsort-slowdown-"))
        groups = [] if options.kind == "stop" else [stack.enter_context(control_group())]
        program = launch.build_c(launch.ROOT / "c_examples/slowdown.c", folder)
        for repetition in range(options.repetitions):
            for victims in options.victims or sorted({0, 1, options.ranks // 2, options.ranks - 1}):
                for mode in options.modes or MODES:
                    command = [program, mode, victims, options.size, options.sorts, options.percent, *groups]
                    run = launch.launch(options.ranks, command, 600)
                    line = next((text for text in run.output.splitlines() if text.startswith("slowdown ")), None)
                    if line is None:
                        sys.exit(f"{mode}, {victims} slow: {run.output[-2000:]}")
                    row = {"kind": options.kind, **dict(word.split("=") for word in line.split()[1:])}
                    print(f"{repetition}: {MODES[mode]:<32} {victims} slow {float(row['seconds']):8.2f} s, "
                          f"{row['demoted']} demoted, {row['rejoined']} back, {row['least']} % the least share of "
                          "the last rank", flush=True)
                    yield row


def draw(table, folder, kind):
    figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    victims = sorted({victims for _, victims in table})
    shown = {mode: label for mode, label in MODES.items() if any(other == mode for other, _ in table)}
    width = 0.8 / len(shown)
    for index, (mode, label) in enumerate(shown.items()):
        places = [place + width * (index - (len(shown) - 1) / 2) for place in range(len(victims))]
        axes.bar(places, [table[mode, count] for count in victims], width, label=label)
    axes.set_xticks(range(len(victims)), [str(count) for count in victims])
    axes.set_xlabel("ranks that are slow half of the time")
    axes.set_ylabel("seconds, median")
    axes.legend()
    plots.save(figure, folder, f"figure14_{kind}")


def write(path, fields, rows):
    """All rows, each as soon as it is there; returns them."""
    kept = []
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        for row in rows:
            writer.writerow(row)
            file.flush()
            kept.append(row)
    print(path)
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", type=int, default=24, help="log2 of the number of records")
    parser.add_argument("--sorts", type=int, default=40)
    parser.add_argument("--percent", type=int, default=10, help="of its processor that a slow rank gets")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--kind", choices=["stop", "cgroup"], default="stop", help="how ranks are made slow")
    parser.add_argument("--modes", nargs="*", choices=MODES, help="only these")
    parser.add_argument("--victims", nargs="*", type=int, help="only so many slow ranks")
    parser.add_argument("--cost", action="store_true", help="what a monitor costs where nobody is slow")
    parser.add_argument("--idle", type=int, default=60, help="seconds that --cost lets all ranks sleep")
    parser.add_argument("--interval", type=int, default=1000, help="milliseconds between tests, for --cost")
    parser.add_argument("--pairs", type=int, default=20, help="sorts without and with a monitor, for --cost")
    parser.add_argument("--out", type=pathlib.Path, default=launch.ROOT / "paper-out" / "dgrp-mpi")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.cost:
        write(options.out / f"cost_{options.interval}.csv", COST_FIELDS, measure_cost(options))
        return
    try:
        rows = write(options.out / f"slowdown_{options.kind}.csv", FIELDS, measure(options))
    except NotPermitted as reason:
        print(f"skipped: {reason}")
        return
    table = {}
    for mode, victims in {(row["mode"], int(row["victims"])) for row in rows}:
        found = [row for row in rows if (row["mode"], int(row["victims"])) == (mode, victims)]
        table[mode, victims] = statistics.median(float(row["seconds"]) for row in found)
    for mode, label in MODES.items():
        counts = sorted(victims for other, victims in table if other == mode)
        base = {count: table.get(("none", count), float("nan")) for count in counts}
        cells = [f"{table[mode, count]:8.2f} ({table[mode, count] / base[count]:4.2f})" for count in counts]
        if cells:
            print(f"{label:<34}" + "".join(f"{cell:>18}" for cell in cells))
    draw(table, options.out, options.kind)


if __name__ == "__main__":
    main()

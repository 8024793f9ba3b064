#!/usr/bin/env python3
"""Measures sorts while ranks are slow in turn (2018 paper, Figure 14), with and without a monitor.

Runs c_examples/slowdown.c for each mode and number of slow ranks, in turns, so that other load of the machine affects
all of them, and writes a table and a plot to paper-out/dgrp-mpi. Ranks are slowed down by signals (SIGSTOP and
SIGCONT), or by a quota of their control group, if this process may create one. With --cost the script measures the cost
of a monitor without slow ranks instead (c_examples/monitor_cost.c).
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile

import launch
import plots
import tables
from plots import numpy

MODES = {
    "none": "no monitor",
    "threads": "no monitor, MPI_THREAD_MULTIPLE",
    "foreground-forever": "at the commits, exclusion is final",
    "foreground": "at the commits",
    "thread-forever": "thread, exclusion is final",
    "thread": "thread",
    "thread-doubt": "thread, self-doubt",
    "foreground-gain": "at the commits, only with a gain",
    "foreground-weights": "at the commits, weights",
    "thread-weights": "thread, weights",
    "ulfm": "no monitor, slow ranks are killed",
    "paper-forever": "constants of the paper, exclusion is final",
    "paper": "constants of the paper",
}
# The modes that are measured if none are chosen.
USUAL = [mode for mode in MODES if mode != "ulfm" and not mode.startswith("paper")]
FIELDS = ["kind", "algorithm", "mode", "victims", "ranks", "log2", "sorts", "percent", "seconds", "excluded", "rejoined", "least"]
COSTS = {
    "none": "no monitor",
    "threads": "no monitor, MPI_THREAD_MULTIPLE",
    "foreground": "at the commits",
    "thread": "thread",
    "vcube": "thread, graph of VCube",
}
COST_FIELDS = ["mode", "ranks", "seconds", "interval_ms", "processor_percent", "sent", "answered", "log2", "pairs",
               "without_ms", "with_ms"]
# The quantiles of Student's t distribution for an interval of 95 %, with 1 to 9 degrees of freedom.
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]
CONTROLLER = pathlib.Path("/sys/fs/cgroup/cpu")


class NotPermitted(Exception):
    """The reason why this process cannot create control groups."""


@contextlib.contextmanager
def control_group():
    """Creates a folder for control groups with quotas, and removes it with the groups in it."""
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
    """Returns the output line that begins with this word, as a row."""
    line = next((text for text in run.output.splitlines() if text.startswith(f"{word} ")), None)
    if line is None:
        sys.exit(run.output[-2000:])
    return dict(field.split("=") for field in line.split()[1:])


def measure_cost(options):
    """Yields one row for each mode."""
    with tempfile.TemporaryDirectory(prefix="ftsort-cost-") as folder:
        program = launch.build_c(launch.ROOT / "c_examples/monitor_cost.c", folder)
        for mode in COSTS:
            command = [program, mode, options.idle, options.interval, options.size, options.pairs]
            row = parse(launch.launch(options.ranks, command, 600), "monitor_cost")
            print(f"{COSTS[mode]:<32} {row['processor_percent']} % of a processor, {row['sent']} messages/s; sorts "
                  f"{row['without_ms']} ms without and {row['with_ms']} ms with", flush=True)
            yield row


def measure(options):
    """Yields one row for each run."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ftsort-slowdown-"))
        groups = [] if options.kind == "stop" else [stack.enter_context(control_group())]
        program = launch.build_c(launch.ROOT / "c_examples/slowdown.c", folder)
        for repetition in range(options.repetitions):
            for victims in options.victims or sorted({0, 1, options.ranks // 2, options.ranks - 1}):
                for mode in options.modes or USUAL:
                    command = [program, mode, victims, options.size, options.sorts, options.percent,
                               launch.ALGORITHMS[options.algorithm], *groups]
                    run = launch.launch(options.ranks, command, 600)
                    row = {"kind": options.kind, "algorithm": options.algorithm, **parse(run, "slowdown")}
                    print(f"{repetition}: {MODES[mode]:<32} {victims} slow {float(row['seconds']):8.2f} s, "
                          f"{row['excluded']} excluded, {row['rejoined']} admitted again, smallest share of the last rank "
                          f"{row['least']} %", flush=True)
                    yield row


def mean_with_interval(values):
    """Returns the mean of some values, with its 95 % confidence interval if there are 2 to 10 of them, as text."""
    mean = f"{statistics.mean(values):.2f}"
    if not 2 <= len(values) <= len(T95) + 1:
        return mean
    half = T95[len(values) - 2] * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean} +- {half:.2f}"


def draw(table, folder, kind):
    figure, axes = plots.axes("ranks that are slow half of the time", "seconds, median", size=(7.2, 4.2))
    victims = sorted({victims for _, victims in table})
    shown = {mode: label for mode, label in MODES.items() if any(other == mode for other, _ in table)}
    plots.grouped_bars(axes, victims, [(label, [table.get((mode, count), numpy.nan) for count in victims])
                                       for mode, label in shown.items()])
    figure.legend(loc="outside lower center", ncols=2)
    plots.save(figure, folder, f"figure14_{kind}")


def write(path, fields, rows):
    """Writes all rows, each as soon as it is measured, and returns them."""
    with tables.Appender(path, fields, fresh=True) as file:
        for row in rows:
            file.add(row)
    print(path)
    return file.rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", type=int, default=24, help="log2 of the number of records")
    parser.add_argument("--sorts", type=int, default=40)
    parser.add_argument("--percent", type=int, default=10, help="share of its processor that a slow rank gets, in percent")
    parser.add_argument("--algorithm", choices=launch.ALGORITHMS, default="auto")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--kind", choices=["stop", "cgroup"], default="stop", help="method by which ranks are slowed down")
    parser.add_argument("--modes", nargs="*", choices=MODES, help="only these modes")
    parser.add_argument("--victims", nargs="*", type=int, help="only these numbers of slow ranks")
    parser.add_argument("--cost", action="store_true", help="measure the cost of a monitor without slow ranks")
    parser.add_argument("--idle", type=int, default=60, help="seconds for which all ranks sleep with --cost")
    parser.add_argument("--interval", type=int, default=1000, help="milliseconds between tests, for --cost")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of sorts without and with a monitor, for --cost")
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
    table, means = {}, {}
    for mode, victims in {(row["mode"], int(row["victims"])) for row in rows}:
        found = [float(row["seconds"]) for row in rows if (row["mode"], int(row["victims"])) == (mode, victims)]
        table[mode, victims] = statistics.median(found)
        means[mode, victims] = mean_with_interval(found)
    victims = sorted({victims for _, victims in table})
    print(f"{'seconds: median (relative), mean':<34}" + "".join(f"{count:>25} slow" for count in victims))
    for mode, label in MODES.items():
        counts = sorted(victims for other, victims in table if other == mode)
        base = {count: table.get(("none", count), float("nan")) for count in counts}
        cells = [f"{table[mode, count]:.2f} ({table[mode, count] / base[count]:.2f}), {means[mode, count]}" for count in counts]
        if cells:
            print(f"{label:<34}" + "".join(f"{cell:>30}" for cell in cells))
    draw(table, options.out, options.kind)


if __name__ == "__main__":
    main()

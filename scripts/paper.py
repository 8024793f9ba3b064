#!/usr/bin/env python3
"""Repeats the sorting experiments of the papers: Figures 5 to 9 of 2024, Figure 4 of 2019, and the balance.

Runs the ftsort versions of the authors' programs (c_examples/original) for each algorithm, number of processes, scenario
and repetition, and checks every result bit for bit. Writes to paper-out/sorting: results.csv, the figures (SVG and PNG),
comparison.csv and index.html, which have the values of the papers beside ours. The script can be stopped at any time and
started again: runs in results.csv are not repeated.

With --stores memory,reload the cells are sorted in memory, by c_examples/bench.c with the papers' pivots: no file is read
or written, and the time is that of ftsort_run on the slowest survivor. With files the system writes everything that it
still has to write before each cell, and each new input is sorted once before the first cell, so that no cell pays for
the writing and reading of the input. The cells of a repetition run in random order. The cells of the papers are

  scripts/paper.py --sizes 29,30 --stores memory,reload --repetitions 3
  scripts/paper.py --sizes 30 --ranks 4,32 --scenarios 0,1 --repetitions 1
"""

import argparse
import collections
import csv
import os
import pathlib
import random
import statistics
import sys
import time

import launch
import plots
import tables
from plots import numpy

ALGORITHMS = {
    "hyperquicksort": "HyperQuickSort",
    "quickmerge": "QuickMerge",
    "quickmerge_modified": "modified QuickMerge",
    "bitonic": "Bitonic Sort",
}
SCENARIOS = ["none", "one", "half", "all but one"]
STORES = ["files", "memory", "reload"]
Cell = collections.namedtuple("Cell", "store log2_count algorithm ranks scenario repetition")
FIELDS = ["store", "log2_count", "algorithm", "ranks", "scenario", "repetition", "seed", "outcome", "seconds",
          "wall_seconds", "deviation_percent"]

# (log2 of the number of integers in the paper, algorithm, ranks, scenario): seconds, from the texts of the papers.
PAPER = {
    (30, "hyperquicksort", 4, "none"): 150, (30, "hyperquicksort", 32, "none"): 72,
    (30, "hyperquicksort", 4, "one"): 178, (30, "hyperquicksort", 32, "one"): 92,
    (30, "hyperquicksort", 4, "half"): 201, (30, "hyperquicksort", 32, "half"): 116,
    (30, "quickmerge", 4, "none"): 253, (30, "quickmerge_modified", 4, "none"): 167,
    (30, "bitonic", 8, "none"): 437, (30, "bitonic", 8, "one"): 465,
    (30, "bitonic", 8, "half"): 550, (30, "bitonic", 8, "all but one"): 821,
    (30, "bitonic", 4, "none"): 377, (30, "bitonic", 4, "half"): 442,
    (29, "bitonic", 4, "none"): 183, (29, "bitonic", 4, "half"): 216,
}


def cells(options):
    """Yields all runs, ordered by repetition, so that an interrupted experiment has about as many runs in each cell.

    The cells of a repetition are in random order, so that no cell always follows the same other one, which may leave data
    that the system still has to write.
    """
    for repetition in range(options.repetitions):
        for store in options.stores:
            for log2_count in options.sizes:
                # One copy of each input in another rank's memory tolerates one failure.
                scenarios = [name for name in options.scenarios if store != "memory" or name in ("none", "one")]
                these = [Cell(store, log2_count, algorithm, ranks, scenario, repetition)
                         for ranks in options.ranks for algorithm in options.algorithms for scenario in scenarios]
                yield from random.Random(f"{store} {log2_count} {repetition}").sample(these, len(these))


def key_of(row):
    return Cell(row["store"], int(row["log2_count"]), row["algorithm"], int(row["ranks"]), row["scenario"],
                int(row["repetition"]))


class Sample:
    """The input of one repetition: uniformly distributed 32-bit integers."""

    def __init__(self, folder, log2_count, repetition):
        self.folder, self.count = folder, 1 << log2_count
        self.name = (log2_count, repetition)
        generator = numpy.random.default_rng([log2_count, repetition])
        keys = generator.integers(-1 << 31, 1 << 31, self.count, dtype=numpy.int32)
        keys.tofile(folder / "Entrada.dat")
        keys.sort()
        keys.tofile(folder / "sorted.dat")

    def warm_up(self, program, algorithm, limit):
        """Sorts the input once, after it is on the disk, so that the first cell starts like all others."""
        os.sync()
        launch.launch(4, sort_command(self, program, algorithm, "none", 1), limit)

    def check(self, ranks):
        """Returns the error in the saved lists, or None, and the number of keys of each process."""
        expected = numpy.memmap(self.folder / "sorted.dat", numpy.int32, "r")
        at, shares = 0, []
        for rank in range(1 << (ranks - 1).bit_length()):
            path = self.folder / f"saveRank{rank}.dat"
            if not path.exists():
                return f"{path.name} is missing", shares
            size = path.stat().st_size // 4
            if size and not numpy.array_equal(numpy.memmap(path, numpy.int32, "r"), expected[at : at + size]):
                return f"{path.name} is wrong", shares
            at += size
            shares.append(size)
        return (None if at == self.count else f"{at} of {self.count} keys"), shares


def sort_command(sample, program, algorithm, scenario, seed):
    first = str(sample.count) if algorithm == "bitonic" else "Entrada.dat"
    return ["env", "-C", sample.folder, program, first, SCENARIOS.index(scenario), seed]


def run_files(programs, sample, cell, limit):
    """Runs one cell with the authors' files and returns its row."""
    seed = hash_of(cell[1:])
    for old in sample.folder.glob("saveRank*"):
        old.unlink()
    os.sync()
    command = sort_command(sample, programs[cell.algorithm], cell.algorithm, cell.scenario, seed)
    ran = launch.launch(cell.ranks, command, limit)
    times = [line.split()[2] for line in ran.output.splitlines() if line.startswith("Total time: ")]
    problem, shares = sample.check(cell.ranks)
    if not problem and len(times) != 1:
        problem = "no time in the output: " + " ".join(ran.output.split())[:200]
    deviation = ""
    if cell.scenario == "none" and not problem:
        ideal = sample.count / cell.ranks
        deviation = f"{100 * max(abs(share - ideal) for share in shares) / ideal:.4f}"
    return row_of(cell, seed, ran, limit, problem, times, deviation)


def run_in_memory(bench, cell, limit):
    """Runs one cell without files and returns its row. bench.c checks the result, and warms up by a first sort.

    A rank that fails before its input has left its memory takes the input along, which cannot happen with the papers'
    files. Then the cell runs again, with the next seed.
    """
    survivors = cell.ranks - [0, 1, cell.ranks // 2, cell.ranks - 1][SCENARIOS.index(cell.scenario)]
    has_failures = cell.scenario != "none"
    prefix, expected = ("ftsort-suffered", survivors) if has_failures else ("ftsort-bench", 1)
    for seed in range(hash_of(cell), hash_of(cell) + 20):
        command = [bench, "-k", cell.log2_count, "-s", cell.store, "-a", launch.ALGORITHMS[cell.algorithm], "-p", "-n", 1]
        if has_failures:
            command += ["-f", f"{cell.scenario.replace(' ', '-')} seed={seed}"]
        ran = launch.launch(cell.ranks, command, limit)
        lines = [line.split()[1:] for line in ran.output.splitlines() if line.startswith(prefix)]
        lines = [dict(word.split("=") for word in line) for line in lines]
        wrong = [line for line in lines if line.get("outcome", "right") != "right"]
        if cell.store != "memory" or len(wrong) != expected:
            break
    problem = None
    if len(lines) != expected or wrong:
        problem = f"{len(lines)} of {expected} lines, {len(wrong)} wrong: " + " ".join(ran.output.split())[:200]
    times = [] if problem else [max(float(line["total"]) for line in lines)]
    deviation = ""
    if not problem and not has_failures:
        deviation = f"{100 * int(lines[0]['off']) * cell.ranks / 2**cell.log2_count:.4f}"
    return row_of(cell, seed, ran, limit, problem, times, deviation)


def row_of(cell, seed, ran, limit, problem, times, deviation):
    if ran.hung:
        problem = f"not finished within {limit} seconds"
    return {
        **cell._asdict(), "seed": seed, "outcome": problem or "right",
        "seconds": times[0] if len(times) == 1 else "", "wall_seconds": f"{ran.seconds:.3f}",
        "deviation_percent": deviation,
    }


def hash_of(cell):
    """Returns the seed of a cell, a hash of its name."""
    value = 0xCBF29CE484222325
    for byte in "/".join(map(str, cell)).encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value >> 32


def run_all(options, folder):
    """Runs the cells that are not in results.csv yet, and returns all rows by cell."""
    with tables.Appender(folder / "results.csv", FIELDS) as file:
        done = {key_of(row) for row in file.rows}
        todo = [cell for cell in cells(options) if cell not in done]
        if todo:
            scratch = (options.scratch or folder / "scratch").absolute()
            scratch.mkdir(exist_ok=True, parents=True)
            run_cells(options, todo, scratch, file)
            for old in scratch.iterdir():
                old.unlink()
            scratch.rmdir()
    return {key_of(row): row for row in file.rows}


def run_cells(options, todo, scratch, file):
    examples = launch.ROOT / "c_examples"
    programs = {name: launch.build_c(examples / "original" / f"{name}.c", scratch) for name in options.algorithms}
    bench = launch.build_c(examples / "bench.c", scratch)
    start, total = time.monotonic(), sum(1 << cell.log2_count for cell in todo)
    sample, weight = None, 0
    for index, cell in enumerate(todo):
        if cell.store != "files":
            row = run_in_memory(bench, cell, options.limit)
        else:
            if sample is None or sample.name != (cell.log2_count, cell.repetition):
                sample = Sample(scratch, cell.log2_count, cell.repetition)
                sample.warm_up(programs[cell.algorithm], cell.algorithm, options.limit)
            row = run_files(programs, sample, cell, options.limit)
        file.add(row)
        weight += 1 << cell.log2_count
        left = (time.monotonic() - start) / weight * (total - weight)
        show_progress(index + 1, len(todo), left, row)
    print(file=sys.stderr)


def show_progress(done, total, left, row):
    bar = "#" * (30 * done // total)
    cell = f"{row['store']} 2^{row['log2_count']} {row['algorithm']} N={row['ranks']} {row['scenario']}"
    line = f"[{bar:30}] {done}/{total}, {int(left) // 60} min {int(left) % 60} s left; {cell}: {row['outcome']}"
    end = "\n" if row["outcome"] != "right" or not sys.stderr.isatty() else "\r"
    print(f"{line[:150]:150}", end=end, file=sys.stderr, flush=True)


class Table:
    """The times of the correct runs by cell."""

    def __init__(self, rows):
        self.times, self.failed, self.deviation = {}, {}, {}
        for row in rows.values():
            cell = key_of(row)[:5]
            if row["outcome"] != "right":
                self.failed.setdefault(cell, []).append(row)
                continue
            self.times.setdefault(cell, []).append(float(row["seconds"]))
            if row["deviation_percent"]:
                self.deviation.setdefault(cell[:4], []).append(float(row["deviation_percent"]))

    def mean(self, cell):
        times = self.times.get(cell)
        return statistics.mean(times) if times else None

    def runs(self, cell):
        return len(self.times.get(cell, [])), len(self.failed.get(cell, []))


def line_figure(title, series, ranks, folder, name):
    """Draws seconds over the number of processes. `series`: label, our means, the scaled values of the paper."""
    figure, axes = plots.axes("processes N (x: values of the paper, scaled to ours at the first of its points)",
                              "seconds, mean", title, size=(6.4, 4.2))
    places = range(len(ranks))
    for label, means, theirs in series:
        line, = axes.plot(places, [numpy.nan if mean is None else mean for mean in means], marker="o", label=label)
        known = [(place, value) for place, value in zip(places, theirs) if value is not None]
        if known:
            axes.plot(*zip(*known), linestyle="", marker="x", markersize=9, color=line.get_color())
    axes.set_xticks(places, [str(n) for n in ranks])
    axes.set_ylim(bottom=0)
    axes.legend()
    plots.save(figure, folder, name)


def scaled(table, store, log2_count, algorithm):
    """Returns the values of the paper for an algorithm, scaled so that the first one equals ours."""
    base = next(((cell, value) for cell, value in PAPER.items()
                 if cell[0] == 30 and cell[1] == algorithm and table.mean((store, log2_count, *cell[1:]))), None)
    if base is None:
        return lambda ranks, scenario: None
    factor = table.mean((store, log2_count, *base[0][1:])) / base[1]

    def value(ranks, scenario):
        theirs = PAPER.get((30, algorithm, ranks, scenario))
        return theirs and theirs * factor

    return value


def figures(table, options, folder):
    """Draws all figures; returns the file name and a description of each."""
    drawn = []
    for store in options.stores:
        for log2_count in options.sizes:
            drawn += figures_of(table, store, log2_count, options, folder)
    return drawn


def figures_of(table, store, log2_count, options, folder):
    """Draws the figures of one store and size."""
    drawn, where = [], f"2^{log2_count} integers, {store}"
    suffix = f"2_{log2_count}" if store == "files" else f"2_{log2_count}_{store}"
    numbers = {"hyperquicksort": "5", "quickmerge": "6", "quickmerge_modified": "7", "bitonic": "9"}
    for algorithm in options.algorithms:
        theirs = scaled(table, store, log2_count, algorithm)
        series = [(scenario, [table.mean((store, log2_count, algorithm, n, scenario)) for n in options.ranks],
                   [theirs(n, scenario) for n in options.ranks]) for scenario in options.scenarios]
        name = f"figure{numbers[algorithm]}_{algorithm}_{suffix}"
        line_figure(f"{ALGORITHMS[algorithm]}, {where}", series, options.ranks, folder, name)
        drawn.append((name, f"2024, Figure {numbers[algorithm]}: {ALGORITHMS[algorithm]} without failures and "
                      f"with one, half and all but one of the processes failing; {where}."))
    compared = [a for a in ("hyperquicksort", "quickmerge", "quickmerge_modified") if a in options.algorithms]
    if compared:
        series = [(ALGORITHMS[a], [table.mean((store, log2_count, a, n, "none")) for n in options.ranks],
                   [None] * len(options.ranks)) for a in compared]
        name = f"figure8_compared_{suffix}"
        line_figure(f"No failures, {where}", series, options.ranks, folder, name)
        drawn.append((name, f"2024, Figure 8: the three algorithms without failures; {where}."))
    if "bitonic" in options.algorithms:
        name = f"figure4_2019_bitonic_{suffix}"
        bars(table, store, log2_count, options, folder, name)
        drawn.append((name, f"2019, Figure 4: Bitonic Sort by scenario; {where}."))
    if any(cell[:2] == (store, log2_count) for cell in table.deviation):
        name = f"balance_{suffix}"
        balance(table, store, log2_count, options, folder, name)
        drawn.append((name, "2024, Section 5.2: the largest deviation of the list of a process from the ideal "
                      f"size, over all repetitions; {where}."))
    return drawn


def bars(table, store, log2_count, options, folder, name):
    figure, axes = plots.axes("processes that fail", "seconds, mean", f"Bitonic Sort, 2^{log2_count} integers, {store}",
                              (6.4, 4.2))
    plots.grouped_bars(axes, options.scenarios, [
        (f"N = {ranks}", [table.mean((store, log2_count, "bitonic", ranks, s)) or 0 for s in options.scenarios])
        for ranks in options.ranks])
    axes.legend()
    plots.save(figure, folder, name)


def balance(table, store, log2_count, options, folder, name):
    figure, axes = plots.axes("processes N", "largest deviation, % of the ideal share",
                              f"Balance, 2^{log2_count} integers, {store}", (6.4, 4.2), yscale="log")
    for algorithm in options.algorithms:
        worst = [max(table.deviation.get((store, log2_count, algorithm, n), [numpy.nan])) for n in options.ranks]
        axes.plot(range(len(options.ranks)), [max(w, 1e-3) for w in worst], marker="o", label=ALGORITHMS[algorithm])
    axes.set_xticks(range(len(options.ranks)), [str(n) for n in options.ranks])
    axes.legend()
    plots.save(figure, folder, name)


def comparison(table, options):
    """Returns the values of the papers, each beside ours of every store and size that was measured."""
    body = []
    for store in options.stores:
        for log2_count in options.sizes:
            for (size, algorithm, ranks, scenario), theirs in PAPER.items():
                ours = table.mean((store, log2_count, algorithm, ranks, scenario))
                if ours is None:
                    continue
                base = next(cell for cell in PAPER if cell[:2] == (size, algorithm))
                ours_base = table.mean((store, log2_count, *base[1:]))
                runs = table.runs((store, log2_count, algorithm, ranks, scenario))[0]
                body.append([ALGORITHMS[algorithm], ranks, scenario, f"2^{size}", theirs, store, f"2^{log2_count}",
                             f"{ours:.2f}", runs, f"{theirs / PAPER[base]:.2f}",
                             f"{ours / ours_base:.2f}" if ours_base else ""])
    return body


COMPARED = ["algorithm", "N", "failures", "paper's size", "paper, s", "store", "size", "ftsort, s", "runs", "paper, relative",
            "ftsort, relative"]


def write_page(table, drawn, options, folder):
    page = plots.Page(folder, "The experiments of the papers, with ftsort")
    total = sum(map(len, table.times.values())) + sum(map(len, table.failed.values()))
    failed = [row for rows in table.failed.values() for row in rows]
    page.text(f"{total} runs, {len(failed)} failed.")
    for row in failed:
        page.text("Failed: " + ", ".join(f"{name} {value}" for name, value in row.items() if value))
    for name, sentence in drawn:
        page.image(name, sentence)
    page.heading("Comparison with the values of the papers")
    page.text("The papers sort 2^30 (or 2^29) integers on 32 processors. The last two columns are relative to the first row "
              "of the same algorithm.")
    compared = comparison(table, options)
    page.table(COMPARED, compared)
    with (folder / "comparison.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COMPARED, *compared])
    page.heading("All means")
    body = []
    for store in options.stores:
        for log2_count in options.sizes:
            for algorithm in options.algorithms:
                for ranks in options.ranks:
                    means = [table.mean((store, log2_count, algorithm, ranks, s)) for s in options.scenarios]
                    body.append([store, f"2^{log2_count}", ALGORITHMS[algorithm], ranks,
                                 *("" if mean is None else f"{mean:.3f}" for mean in means)])
    page.table(["store", "size", "algorithm", "N", *options.scenarios], body)
    return page.write()


def numbers(text):
    return [int(word) for word in text.split(",")]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=numbers, default=[24, 26], help="log2 of the numbers of integers (default: 24,26)")
    parser.add_argument("--ranks", type=numbers, default=[4, 8, 16, 32], help="numbers of processes (default: 4,8,16,32)")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--algorithms", type=lambda text: text.split(","), default=list(ALGORITHMS))
    parser.add_argument("--scenarios", type=numbers, default=[0, 1, 2, 3], help="numbers of the scenarios (default: 0,1,2,3)")
    parser.add_argument("--stores", type=lambda text: text.split(","), default=["files"],
                        help="files, memory or reload (default: files)")
    parser.add_argument("--scratch", type=pathlib.Path, help="folder for inputs and lists (default: below --out)")
    parser.add_argument("--limit", type=int, default=600, help="seconds for one run")
    parser.add_argument("--out", type=pathlib.Path, default=launch.ROOT / "paper-out" / "sorting")
    parser.add_argument("--draw", action="store_true", help="only draw the results of earlier runs")
    options = parser.parse_args()
    unknown = [name for name in options.algorithms if name not in ALGORITHMS]
    if unknown:
        parser.error(f"there is no algorithm {unknown[0]}")
    unknown = [name for name in options.stores if name not in STORES]
    if unknown:
        parser.error(f"there is no store {unknown[0]}")
    options.scenarios = [SCENARIOS[number] for number in options.scenarios]
    if options.draw:
        options.repetitions = 0
    return options


def main():
    options = read_options()
    folder = options.out.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    table = Table(run_all(options, folder))
    page = write_page(table, figures(table, options, folder), options, folder)
    failed = sum(map(len, table.failed.values()))
    print(f"{page}: {sum(map(len, table.times.values()))} correct runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

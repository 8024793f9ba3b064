#!/usr/bin/env python3
"""Repeats the sorting experiments of the papers: Figures 5 to 9 of 2024, Figure 4 of 2019, and the balance.

Runs the ftsort versions of the authors' programs (c_examples/original) for each algorithm, number of processes, scenario
and repetition, and checks every result bit for bit. Writes to paper-out/sorting: results.csv, the figures (SVG and PNG),
and index.html, which compares them with the values of the papers. The script can be stopped at any time and started
again: runs in results.csv are not repeated.
"""

import argparse
import pathlib
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
FIELDS = ["log2_count", "algorithm", "ranks", "scenario", "repetition", "seed", "outcome", "seconds",
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
    """Yields all runs, ordered by repetition, so that an interrupted experiment has about as many runs in each cell."""
    for repetition in range(options.repetitions):
        for log2_count in options.sizes:
            for ranks in options.ranks:
                for algorithm in options.algorithms:
                    for scenario in options.scenarios:
                        yield log2_count, algorithm, ranks, scenario, repetition


def key_of(row):
    return (int(row["log2_count"]), row["algorithm"], int(row["ranks"]), row["scenario"], int(row["repetition"]))


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


def run_cell(programs, sample, cell, limit):
    """Runs one cell and returns its row."""
    log2_count, algorithm, ranks, scenario, repetition = cell
    seed = hash_of(cell)
    for old in sample.folder.glob("saveRank*"):
        old.unlink()
    first = str(sample.count) if algorithm == "bitonic" else "Entrada.dat"
    command = ["env", "-C", sample.folder, programs[algorithm], first, SCENARIOS.index(scenario), seed]
    ran = launch.launch(ranks, command, limit)
    times = [line.split()[2] for line in ran.output.splitlines() if line.startswith("Total time: ")]
    problem, shares = sample.check(ranks)
    if ran.hung:
        problem = f"not finished within {limit} seconds"
    elif len(times) != 1:
        problem = "no time in the output: " + " ".join(ran.output.split())[:200]
    deviation = ""
    if scenario == "none" and not problem:
        ideal = sample.count / ranks
        deviation = f"{100 * max(abs(share - ideal) for share in shares) / ideal:.4f}"
    return {
        "log2_count": log2_count, "algorithm": algorithm, "ranks": ranks, "scenario": scenario,
        "repetition": repetition, "seed": seed, "outcome": problem or "right",
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
            scratch = folder / "scratch"
            scratch.mkdir(exist_ok=True)
            run_cells(options, todo, scratch, file)
            for old in scratch.iterdir():
                old.unlink()
            scratch.rmdir()
    return {key_of(row): row for row in file.rows}


def run_cells(options, todo, scratch, file):
    programs = {name: launch.build_c(launch.ROOT / "c_examples" / "original" / f"{name}.c", scratch)
                for name in options.algorithms}
    start, total = time.monotonic(), sum(1 << cell[0] for cell in todo)
    sample, weight = None, 0
    for index, cell in enumerate(todo):
        if sample is None or sample.name != (cell[0], cell[4]):
            sample = Sample(scratch, cell[0], cell[4])
        row = run_cell(programs, sample, cell, options.limit)
        file.add(row)
        weight += 1 << cell[0]
        left = (time.monotonic() - start) / weight * (total - weight)
        show_progress(index + 1, len(todo), left, row)
    print(file=sys.stderr)


def show_progress(done, total, left, row):
    bar = "#" * (30 * done // total)
    cell = f"2^{row['log2_count']} {row['algorithm']} N={row['ranks']} {row['scenario']}"
    line = f"[{bar:30}] {done}/{total}, {int(left) // 60} min {int(left) % 60} s left; {cell}: {row['outcome']}"
    end = "\n" if row["outcome"] != "right" or not sys.stderr.isatty() else "\r"
    print(f"{line[:150]:150}", end=end, file=sys.stderr, flush=True)


class Table:
    """The times of the correct runs by cell."""

    def __init__(self, rows):
        self.times, self.failed, self.deviation = {}, {}, {}
        for row in rows.values():
            cell = key_of(row)[:4]
            if row["outcome"] != "right":
                self.failed.setdefault(cell, []).append(row)
                continue
            self.times.setdefault(cell, []).append(float(row["seconds"]))
            if row["deviation_percent"]:
                self.deviation.setdefault(cell[:3], []).append(float(row["deviation_percent"]))

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


def scaled(table, log2_count, algorithm, options):
    """Returns the values of the paper for an algorithm, scaled so that the first one equals ours."""
    base = next(((cell, value) for cell, value in PAPER.items()
                 if cell[0] == 30 and cell[1] == algorithm and table.mean((log2_count, *cell[1:]))), None)
    if base is None:
        return lambda ranks, scenario: None
    factor = table.mean((log2_count, *base[0][1:])) / base[1]

    def value(ranks, scenario):
        theirs = PAPER.get((30, algorithm, ranks, scenario))
        return theirs and theirs * factor

    return value


def figures(table, options, folder):
    """Draws all figures; returns the file name and a description of each."""
    drawn = []
    numbers = {"hyperquicksort": "5", "quickmerge": "6", "quickmerge_modified": "7", "bitonic": "9"}
    for log2_count in options.sizes:
        for algorithm in options.algorithms:
            theirs = scaled(table, log2_count, algorithm, options)
            series = [(scenario, [table.mean((log2_count, algorithm, n, scenario)) for n in options.ranks],
                       [theirs(n, scenario) for n in options.ranks]) for scenario in options.scenarios]
            name = f"figure{numbers[algorithm]}_{algorithm}_2^{log2_count}".replace("^", "_")
            line_figure(f"{ALGORITHMS[algorithm]}, 2^{log2_count} integers", series, options.ranks, folder, name)
            drawn.append((name, f"2024, Figure {numbers[algorithm]}: {ALGORITHMS[algorithm]} without failures and "
                          f"with one, half and all but one of the processes failing; 2^{log2_count} integers."))
        compared = [a for a in ("hyperquicksort", "quickmerge", "quickmerge_modified") if a in options.algorithms]
        if compared:
            series = [(ALGORITHMS[a], [table.mean((log2_count, a, n, "none")) for n in options.ranks],
                       [None] * len(options.ranks)) for a in compared]
            name = f"figure8_compared_2_{log2_count}"
            line_figure(f"No failures, 2^{log2_count} integers", series, options.ranks, folder, name)
            drawn.append((name, f"2024, Figure 8: the three algorithms without failures; 2^{log2_count} integers."))
        if "bitonic" in options.algorithms:
            name = f"figure4_2019_bitonic_2_{log2_count}"
            bars(table, log2_count, options, folder, name)
            drawn.append((name, f"2019, Figure 4: Bitonic Sort by scenario; 2^{log2_count} integers."))
        name = f"balance_2_{log2_count}"
        balance(table, log2_count, options, folder, name)
        drawn.append((name, "2024, Section 5.2: the largest deviation of the list of a process from the ideal "
                      f"size, over all repetitions; 2^{log2_count} integers."))
    return drawn


def bars(table, log2_count, options, folder, name):
    figure, axes = plots.axes("processes that fail", "seconds, mean", f"Bitonic Sort, 2^{log2_count} integers", (6.4, 4.2))
    plots.grouped_bars(axes, options.scenarios, [
        (f"N = {ranks}", [table.mean((log2_count, "bitonic", ranks, s)) or 0 for s in options.scenarios])
        for ranks in options.ranks])
    axes.legend()
    plots.save(figure, folder, name)


def balance(table, log2_count, options, folder, name):
    figure, axes = plots.axes("processes N", "largest deviation, % of the ideal share", f"Balance, 2^{log2_count} integers",
                              (6.4, 4.2), yscale="log")
    for algorithm in options.algorithms:
        worst = [max(table.deviation.get((log2_count, algorithm, n), [numpy.nan])) for n in options.ranks]
        axes.plot(range(len(options.ranks)), [max(w, 1e-3) for w in worst], marker="o", label=ALGORITHMS[algorithm])
    axes.set_xticks(range(len(options.ranks)), [str(n) for n in options.ranks])
    axes.legend()
    plots.save(figure, folder, name)


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
    body = []
    for log2_count in options.sizes:
        for (size, algorithm, ranks, scenario), theirs in PAPER.items():
            ours = table.mean((log2_count, algorithm, ranks, scenario))
            if ours is None:
                continue
            base = next(cell for cell in PAPER if cell[:2] == (size, algorithm))
            ours_base = table.mean((log2_count, *base[1:]))
            relative = f"{ours / ours_base:.2f}" if ours_base else ""
            runs = table.runs((log2_count, algorithm, ranks, scenario))[0]
            body.append([ALGORITHMS[algorithm], ranks, scenario, f"{theirs} (2^{size})", f"{ours:.2f} (2^{log2_count})", runs,
                         f"{theirs / PAPER[base]:.2f}", relative])
    page.table(["algorithm", "N", "failures", "paper, s", "ftsort, s", "runs", "paper, relative", "ftsort, relative"], body)
    page.heading("All means")
    body = []
    for log2_count in options.sizes:
        for algorithm in options.algorithms:
            for ranks in options.ranks:
                means = [table.mean((log2_count, algorithm, ranks, s)) for s in options.scenarios]
                body.append([f"2^{log2_count}", ALGORITHMS[algorithm], ranks,
                             *("" if mean is None else f"{mean:.3f}" for mean in means)])
    page.table(["size", "algorithm", "N", *options.scenarios], body)
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
    parser.add_argument("--limit", type=int, default=600, help="seconds for one run")
    parser.add_argument("--out", type=pathlib.Path, default=launch.ROOT / "paper-out" / "sorting")
    parser.add_argument("--draw", action="store_true", help="only draw the results of earlier runs")
    options = parser.parse_args()
    unknown = [name for name in options.algorithms if name not in ALGORITHMS]
    if unknown:
        parser.error(f"there is no algorithm {unknown[0]}")
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

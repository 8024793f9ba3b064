#!/usr/bin/env python3
"""The benchmark suite: ftsort in all modes, compared with a plain sample sort without fault tolerance.

The sections, any of which can be chosen:
  floor       each type, size and number of ranks: ftsort with each store, and the plain sample sort with the same
              local kernel (benches/floor.rs), with that of the standard library, and with one copy of each input
              by plain MPI
  stores      sorts with a store and sorts without one, alternating in the same processes
  parity      replicas and parity: the time relative to no store, alternating in the same processes, and the memory
  algorithms  the algorithms compared with each other
  checks      the cost of detecting data corruption
  faults      no failure, one, half of the ranks, all but one; and one rank that sorts everything alone
  growth      many sizes and numbers of ranks, and a cost model fitted to them
  lengths     sorts of 2^8 to 2^28 integers by ftsort and by the plain sample sort, alternating in the same processes
  small       a thousand records, compared with MPI_Allreduce of one number
  many        a thousand arrays by one ftsort_run_many, compared with one ftsort_run for each
  spares      sorts in a group with spares after failures, and without failures

The commands of a section run in turns, so that noise of the machine affects all of them. Every ratio is that of two
runs of the same turn; the median of the turns is printed. The results are CSV files, plots (SVG and PNG) and a page
in bench-out/.
"""

import argparse
import functools
import itertools
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import launch
import plots
import tables
from plots import numpy

PHASES = ["sort", "exchange", "merge", "store", "commit"]
STORES = ["none", "reload", "memory"]
# The sort without fault tolerance; the same with the sorts of the standard library; and with a copy of each input.
PLAIN = {"plain": [], "std": ["-l", "std"], "copy": ["-r", 1]}
ALGORITHMS = {"auto": 0, "HyperQuickSort": 1, "QuickMerge": 2, "modified QuickMerge": 3, "bitonic": 4}
DIGEST = 1
S_FT = 14
# Stores with redundancy of their results, and without, with the number of replicas or shares.
REDUNDANCY = {"1 replica": ("memory", 1), "1 share": ("parity", 1), "1 replica, released": ("released", 1),
              "1 share, released": ("bare", 1), "2 replicas": ("memory", 2), "2 shares": ("parity", 2),
              "2 shares, released": ("bare", 2)}
FAULTS = {"none": "none", "one": "one", "half": "half", "all but one": "all-but-one"}
LIMIT = 900


def floor_program():
    """Builds the plain sample sort if necessary, and returns its path."""
    done = subprocess.run(["cargo", "build", "--release", "--bench", "floor", "--message-format=json"],
                          capture_output=True, text=True, check=True, cwd=launch.ROOT)
    lines = [line for line in done.stdout.splitlines() if '"executable":"' in line and '"name":"floor"' in line]
    return pathlib.Path(lines[-1].split('"executable":"')[1].split('"')[0])


class Bench:
    """Runs programs, and shows how many are left and the expected time."""

    def __init__(self, folder, turns):
        self.folder, self.turns = folder, turns
        self.bench = launch.build_c(launch.ROOT / "c_examples/bench.c", folder)
        self.done, self.total, self.start = 0, 0, time.monotonic()

    @functools.cached_property
    def floor(self):
        return floor_program()

    def measure(self, ranks, command):
        """Runs a program; returns the numbers of its result line by name, and its output."""
        run = launch.launch(ranks, command, LIMIT)
        self.done += 1
        left = (time.monotonic() - self.start) / self.done * (self.total - self.done)
        if sys.stderr.isatty():
            print(f"\r{self.done} of {self.total}, {left / 60:.0f} minutes left   ", end="", file=sys.stderr)
        lines = [line for line in run.output.splitlines() if line.startswith("ftsort-bench")]
        if len(lines) != 1:
            sys.exit(f"{' '.join(map(str, command))}: {run.output[-2000:]}")
        # The word "store" occurs twice: first as the name of the store, then as the seconds of that phase.
        words = dict(word.split("=") for word in lines[0].split()[1:])
        words = {name: value for name, value in words.items() if name not in ("type", "local")}
        return {name: float(value) for name, value in words.items()}, run.output

    def ftsort(self, ranks, log2, kind="i32", store="memory", more=()):
        return self.measure(ranks, [self.bench, "-k", log2, "-t", kind, "-s", store, "-n", 3, *more])[0]

    def in_turns(self, commands):
        """Runs all commands in turns; returns the results of each by name."""
        results = {name: [] for name in commands}
        for _ in range(self.turns):
            for name, command in commands.items():
                results[name].append(command())
        return results


def median(results, name="total"):
    return statistics.median(run[name] for run in results)


def ratio(results, base, name="total"):
    """Returns the median of the ratios to `base`, each of two runs of the same turn."""
    return statistics.median(one[name] / other[name] for one, other in zip(results, base))


def floor(bench, options):
    """The time of ftsort relative to a sort without fault tolerance."""
    cases = list(itertools.product(options.types, options.sizes, options.ranks))
    bench.total += len(cases) * bench.turns * (len(PLAIN) + len(STORES))
    yield ["records", "log2", "ranks", "plain ns", "with std", "with a copy", *STORES, "memory/none", "reload/none",
           "memory / with a copy",
           *[f"{store} peak" for store in STORES], *[f"{store} resident" for store in STORES]]
    for kind, log2, ranks in cases:
        commands = {
            name: lambda more=more: bench.measure(ranks, [bench.floor, "-k", log2, "-t", kind, "-n", 3, *more])[0]
            for name, more in PLAIN.items()
        }
        for store in STORES:
            commands[store] = lambda store=store: bench.ftsort(ranks, log2, kind, store)
        results = bench.in_turns(commands)
        size = [statistics.median(run["peak"] / run["input"] for run in results[store]) for store in STORES]
        # The caller's input is not counted.
        resident = [statistics.median(run["resident"] / run["input"] - 1 for run in results[store]) for store in STORES]
        plain = results["plain"]
        yield [kind, log2, ranks, median(plain) / 2**log2 * 1e9, ratio(results["std"], plain), ratio(results["copy"], plain),
               *[ratio(results[store], plain) for store in STORES],
               ratio(results["memory"], results["none"]), ratio(results["reload"], results["none"]),
               ratio(results["memory"], results["copy"]), *size, *resident]


def stores(bench, options):
    """The cost of each store: every sort is paired with one without a store in the same processes."""
    cases = list(itertools.product(options.types, options.sizes, options.ranks))
    bench.total += len(cases) * bench.turns * len(STORES)
    yield ["records", "log2", "ranks", *[f"{store}/none" for store in STORES]]
    for kind, log2, ranks in cases:
        results = bench.in_turns({
            store: lambda store=store: bench.ftsort(ranks, log2, kind, store, ["-b", "none", "-n", 15])
            for store in STORES
        })
        yield [kind, log2, ranks, *[median(results[store], "beside") for store in STORES]]


def parity(bench, options):
    """The cost of replicas and of parity: every sort is paired with one without a store in the same processes."""
    cases = list(itertools.product(options.types, options.sizes, options.ranks))
    bench.total += len(cases) * bench.turns * len(REDUNDANCY)
    names = list(REDUNDANCY)
    yield ["records", "log2", "ranks", *[f"{name} / none" for name in names], *[f"{name} peak" for name in names]]
    for kind, log2, ranks in cases:
        results = bench.in_turns({
            name: lambda store=store, count=count: bench.ftsort(ranks, log2, kind, store,
                                                                ["-c", count, "-b", "none", "-n", 15])
            for name, (store, count) in REDUNDANCY.items()
        })
        peaks = [statistics.median(run["peak"] / run["input"] for run in results[name]) for name in names]
        yield [kind, log2, ranks, *[median(results[name], "beside") for name in names], *peaks]


def algorithms(bench, options):
    """The time of each algorithm relative to the one-exchange sort."""
    cases = list(itertools.product(options.sizes, options.ranks))
    bench.total += len(cases) * bench.turns * len(ALGORITHMS)
    yield ["log2", "ranks", "auto ns", *list(ALGORITHMS)[1:]]
    for log2, ranks in cases:
        results = bench.in_turns({
            name: lambda number=number: bench.ftsort(ranks, log2, more=["-a", number])
            for name, number in ALGORITHMS.items()
        })
        auto = results.pop("auto")
        yield [log2, ranks, median(auto) / 2**log2 * 1e9, *[ratio(runs, auto) for runs in results.values()]]


def checks(bench, options):
    """The cost of digests for the sort with one copy of each input, and of digests and the three checks of
    McMillin and Ni for bitonic sort."""
    cases = [(log2, ranks) for log2 in options.sizes for ranks in options.ranks if ranks & (ranks - 1) == 0]
    bench.total += len(cases) * bench.turns * 5
    bitonic = ["-a", ALGORITHMS["bitonic"]]
    yield ["log2", "ranks", "unchecked ns", "digest", "bitonic ns", "its digest", "S_FT"]
    for log2, ranks in cases:
        results = bench.in_turns({
            "plain": lambda: bench.ftsort(ranks, log2),
            "digest": lambda: bench.ftsort(ranks, log2, more=["-x", DIGEST]),
            "bitonic": lambda: bench.ftsort(ranks, log2, more=bitonic),
            "bitonic, digest": lambda: bench.ftsort(ranks, log2, more=[*bitonic, "-x", DIGEST]),
            "S_FT": lambda: bench.ftsort(ranks, log2, more=[*bitonic, "-x", S_FT]),
        })
        yield [log2, ranks, median(results["plain"]) / 2**log2 * 1e9, ratio(results["digest"], results["plain"]),
               median(results["bitonic"]) / 2**log2 * 1e9, ratio(results["bitonic, digest"], results["bitonic"]),
               ratio(results["S_FT"], results["bitonic"])]


def touch(size):
    """Allocates and writes `size` bytes and frees them, so that the kernel has them ready.

    In a virtual machine, memory that has been unused for a while may belong to the host, and getting it takes some
    forty times as long as zeroing it. Survivors need more memory than before the failure, and that time would be part
    of the measurement.
    """
    HUGE = 2 << 20
    size = min(size, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, size, HUGE):
            memory[page] = 1


def sort_with_failures(bench, ranks, log2, faults):
    """Runs one sort with failures; returns the times of the slowest survivor and the number of failures."""
    command = [bench.bench, "-k", log2, "-s", "reload", "-n", 1, "-f", faults]
    touch(256 << log2)
    quiet, output = bench.measure(ranks, command)
    lines = [line for line in output.splitlines() if line.startswith("ftsort-suffered")]
    found = [dict(word.split("=") for word in line.split()[1:]) for line in lines]
    if not found or any(words["outcome"] != "right" for words in found):
        sys.exit(f"{' '.join(map(str, command))}: {output[-2000:]}")
    total = max(float(words["total"]) for words in found)
    return {"total": total, "quiet": quiet["total"], "after": total - max(float(words["struck"]) for words in found),
            "made": max(float(words["made"]) for words in found),
            "faults": max(int(words["faults"]) for words in found)}


def faults(bench, options):
    """The cost of failures during a sort: their moments are drawn from the time of the sort."""
    cases = [(log2, ranks) for log2 in options.sizes for ranks in options.ranks if ranks > 2]
    bench.total += len(cases) * (3 * bench.turns * len(FAULTS) + 1)
    yield ["log2", "ranks", "none ms", "one adds ms", "half", "all but one", "alone ms", "all but one / alone",
           "after the last / alone", "of which inputs are reloaded, ms", "after the last / alone and reloading"]
    for log2, ranks in cases:
        alone = bench.measure(1, [bench.bench, "-k", log2, "-s", "none", "-n", 3])[0]["total"]
        window, results = None, {name: [] for name in FAULTS}
        for turn in range(3 * bench.turns):
            for name, words in FAULTS.items():
                schedule = words if window is None or name == "none" else f"{words} seed={turn} window={window}ms"
                results[name].append(sort_with_failures(bench, ranks, log2, schedule))
                window = window or max(1, int(results[name][0]["total"] * 800))
        quiet = results["none"]
        hit = {name: [run for run in runs if run["faults"]] for name, runs in results.items()}
        after, made = (median(hit["all but one"], name) for name in ("after", "made"))
        yield [log2, ranks, median(quiet) * 1e3, (median(hit["one"]) - median(quiet)) * 1e3,
               median(hit["half"]) / median(quiet), median(hit["all but one"]) / median(quiet), alone * 1e3,
               median(hit["all but one"]) / alone, after / alone, made * 1e3, after / (alone + made)]


def growth(bench, options):
    """The time by number of records and ranks, with one copy of each input."""
    cases = list(itertools.product(options.grow, options.crowd))
    bench.total += len(cases) * bench.turns
    yield ["log2", "ranks", "total ms", "ns per record", *PHASES, "peak"]
    for log2, ranks in cases:
        results = [bench.ftsort(ranks, log2) for _ in range(bench.turns)]
        total = median(results)
        yield [log2, ranks, total * 1e3, total / 2**log2 * 1e9,
               *[median(results, name) / 2**log2 * 1e9 for name in PHASES],
               statistics.median(run["peak"] / run["input"] for run in results)]


def lengths(bench, options):
    """The time of ftsort without a store and with one replica, relative to the plain sample sort, and that of one
    agreement, all alternating in the same processes."""
    cases = list(itertools.product(options.lengths, options.ranks))
    bench.total += len(cases) * bench.turns
    yield ["log2", "ranks", "plain us", "none / plain", "memory / plain", "agreement / plain"]
    for log2, ranks in cases:
        repetitions = 41 if log2 <= 18 else 11 if log2 <= 22 else 3
        command = [bench.floor, "-k", log2, "-c", "none,memory", "-n", repetitions]
        results = [bench.measure(ranks, command)[0] for _ in range(bench.turns)]
        yield [log2, ranks, median(results) * 1e6, median(results, "none"), median(results, "memory"),
               ratio([{"total": run["agreement"]} for run in results], results)]


def small(bench, options):
    """A thousand records, where messages take most of the time."""
    bench.total += len(options.crowd) * bench.turns * 2
    yield ["ranks", "allreduce us", "none us", "memory us", "none / allreduce", "memory / allreduce"]
    for ranks in options.crowd:
        results = bench.in_turns({
            store: lambda store=store: bench.measure(ranks, [bench.bench, "-k", 10, "-s", store, "-n", 51])[0]
            for store in ("none", "memory")
        })
        both = [median(results[store]) * 1e6 for store in results]
        allreduce = median(results["none"], "allreduce") * 1e6
        yield [ranks, allreduce, *both, *[time / allreduce for time in both]]


def many(bench, options):
    """1024 arrays of 1024 records, in total or on each rank: one ftsort_run_many and one ftsort_run for each array, in
    turns in the same processes."""
    cases = [(ranks, per_rank, store) for ranks in options.ranks if ranks & (ranks - 1) == 0
             for per_rank in (False, True) for store in ("none", "memory")]
    bench.total += len(cases) * bench.turns
    yield ["ranks", "records", "store", "each us", "many us", "each / many"]
    for ranks, per_rank, store in cases:
        log2 = 20 + (ranks.bit_length() - 1 if per_rank else 0)
        command = [bench.bench, "-k", log2, "-s", store, "-m", 1024, "-n", 5]
        results = [bench.measure(ranks, command)[0] for _ in range(bench.turns)]
        yield [ranks, "1024 a rank" if per_rank else "1024 in all", store, median(results, "each") * 1e6,
               median(results, "many") * 1e6, median(results, "ratio")]


def spares(bench, options):
    """Later sorts in a group with one spare after one failure, and without failures: speed (the time without failures
    divided by the time after the failure), both times relative to a group of the ranks with a node alone, and the largest
    block relative to an equal share. The times relative to the group alone are of the same processes, so that they
    can be compared to a thousandth."""
    program = launch.build_c(launch.ROOT / "c_examples/spares.c", bench.folder)
    cases = list(itertools.product(options.sizes, options.ranks))
    bench.total += len(cases) * bench.turns * 2
    yield ["log2", "working ranks", "without ms", "after ms", "speed", "without / alone", "after / alone", "imbalance"]
    for log2, ranks in cases:
        run = lambda failures: bench.measure(ranks + 1, [program, "-k", log2, "-n", 15, "-f", failures])[0]
        results = bench.in_turns({"without": lambda: run(0), "after": lambda: run(1)})
        without, after = results["without"], results["after"]
        figures = [median(without, "beside"), median(after, "beside"), max(run["imbalance"] for run in without + after)]
        yield [log2, ranks, median(without) * 1e3, median(after) * 1e3, ratio(without, after),
               *[f"{figure:.3f}" for figure in figures]]


SECTIONS = {"floor": floor, "stores": stores, "parity": parity, "algorithms": algorithms, "checks": checks, "faults": faults,
            "growth": growth, "lengths": lengths, "small": small, "many": many, "spares": spares}


def text(value):
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def run_section(name, bench, options):
    """Measures, prints and writes one table, and returns it."""
    measured = SECTIONS[name](bench, options)
    head = next(measured)
    rows = [head]
    line = lambda row: " ".join(f"{text(cell):>{max(7, len(label))}}" for label, cell in zip(head, row))
    print(f"\n{name}: {' '.join(SECTIONS[name].__doc__.split())}\n{line(head)}", flush=True)
    with tables.Appender(options.out / f"{name}.csv", head, fresh=True) as file:
        for row in measured:
            rows.append(row)
            file.add(dict(zip(head, row)))
            print(line(row), flush=True)
    return rows


def fit(rows):
    """Fits a simple cost model; returns its coefficients and its median relative error.

    Seconds = a n log2(n / N) / p + b n log2(N) / p + c N^2 / p + d for n records on N ranks, p of which have a
    processor. The terms stand for local sorts, for merging and waiting, for messages, and for agreements.
    """
    cpus = len(os.sched_getaffinity(0))
    table = numpy.array([[float(cell) for cell in row[:3]] for row in rows[1:]])
    count, ranks, seconds = 2 ** table[:, 0], table[:, 1], table[:, 2] / 1e3
    share = count / numpy.minimum(ranks, cpus)
    terms = numpy.stack([share * numpy.log2(count / ranks), share * numpy.log2(ranks),
                         ranks * ranks / numpy.minimum(ranks, cpus), numpy.ones_like(share)], axis=1)
    # The fit minimises relative errors, so that small sorts count too, and allows no negative cost.
    weighted, wanted = terms / seconds[:, None], numpy.ones_like(seconds)
    costs, active = numpy.zeros(4), list(range(4))
    while active:
        found = numpy.linalg.lstsq(weighted[:, active], wanted, rcond=None)[0]
        if (found >= 0).all():
            costs[active] = found
            break
        active.pop(int(found.argmin()))
    return costs, float(numpy.median(abs(weighted @ costs - 1)))


def draw(name, rows):
    """Returns a figure of a table; None for the sections without one."""
    head, body = rows[0], rows[1:]
    column = lambda label: [row[head.index(label)] for row in body]
    if name == "parity":
        figure, drawn = plots.axes("", "time relative to no store", size=(7, 4.2))
        labels = [f"{row[0]} 2^{row[1]}\nN={row[2]}" for row in body]
        shown = [name for name in REDUNDANCY if "2" not in name]
        plots.grouped_bars(drawn, labels, [(name, column(f"{name} / none")) for name in shown])
    elif name == "floor":
        figure, drawn = plots.axes("", "time relative to the plain sample sort", size=(7, 4.2))
        labels = [f"{row[0]} 2^{row[1]}\nN={row[2]}" for row in body]
        plots.grouped_bars(drawn, labels, [(store, column(store)) for store in STORES])
        drawn.axhline(1, color=plots.INK, linewidth=0.8)
        drawn.tick_params(axis="x", labelsize=6)
    elif name == "growth":
        figure, drawn = plots.axes("log2 of the number of records", "nanoseconds per record", size=(7, 4.2), yscale="log")
        counts = sorted({row[1] for row in body})
        plots.lines(drawn, [(f"{ranks} ranks", [(row[0], row[3]) for row in body if row[1] == ranks]) for ranks in counts])
    elif name == "lengths":
        figure, drawn = plots.axes("log2 of the number of records", "time relative to the plain sample sort", size=(7, 4.2))
        for store, style in (("none", "-"), ("memory", ":")):
            place = head.index(f"{store} / plain")
            series = [(f"{ranks} ranks, {store}", [(row[0], row[place]) for row in body if row[1] == ranks])
                      for ranks in sorted({row[1] for row in body})]
            plots.lines(drawn, series, linestyle=style)
        drawn.axhline(1, color=plots.INK, linewidth=0.8)
    elif name == "algorithms":
        figure, drawn = plots.axes("", "time relative to the one-exchange sort", size=(7, 4.2))
        plots.grouped_bars(drawn, [f"2^{row[0]}\nN={row[1]}" for row in body],
                           [(label, column(label)) for label in head[3:]])
    else:
        return None
    drawn.legend(fontsize=8)
    return figure


def write_page(measured, folder, notes):
    page = plots.Page(folder, "ftsort: benchmarks")
    for name, rows in measured.items():
        page.heading(name)
        page.text(" ".join(SECTIONS[name].__doc__.split()))
        figure = draw(name, rows)
        if figure is not None:
            plots.save(figure, folder, name)
            page.image(name, "")
        page.table(rows[0], [[text(cell) for cell in row] for row in rows[1:]])
        page.text(notes.get(name, ""))
    return page.write()


def main():
    numbers = lambda words: [int(word) for word in words.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", help="the sections to run; default: all")
    parser.add_argument("--types", type=lambda words: words.split(","), default=["i32", "u64", "f64", "pairs"])
    parser.add_argument("--sizes", type=numbers, default=[24], help="log2 of the numbers of records")
    parser.add_argument("--ranks", type=numbers, default=[2, 4, 8])
    parser.add_argument("--grow", type=numbers, default=[16, 18, 20, 22, 24, 26], help="sizes for growth")
    parser.add_argument("--lengths", type=numbers, default=list(range(8, 29, 2)), help="sizes for lengths")
    parser.add_argument("--crowd", type=numbers, default=[1, 2, 4, 8, 16, 32], help="ranks for growth and small")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=launch.ROOT / "bench-out")
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        sys.exit(f"there is no section {', '.join(sorted(unknown))}")
    options.out.mkdir(exist_ok=True)
    notes, measured = {}, {}
    with tempfile.TemporaryDirectory(prefix="ftsort-bench-") as folder:
        bench = Bench(folder, options.turns)
        for name in options.sections or SECTIONS:
            measured[name] = run_section(name, bench, options)
    if "growth" in measured:
        costs, error = fit(measured["growth"])
        notes["growth"] = (
            f"model: {costs[0] * 1e9:.3f} ns n log2(n/N) / p + {costs[1] * 1e9:.2f} ns n log2(N) / p + "
            f"{costs[2] * 1e6:.1f} us N^2 / p + {costs[3] * 1e6:.0f} us; median error {100 * error:.0f} %")
        print("\n" + notes["growth"])
    print(f"\n{write_page(measured, options.out, notes)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The benchmark suite: ftsort in all modes, beside a plain sample sort that survives nothing.

Sections, any of which can be chosen:
  floor       each type, size and number of ranks: the plain sample sort around the same local kernel
              (benches/floor.rs), around the standard library's, and with one copy of each input by plain MPI;
              and ftsort with each store
  stores      sorts with a store and sorts without one, one after the other in the same processes
  algorithms  the algorithms beside each other
  checks      what it costs that wrong data are found
  faults      no fault, one, half of the ranks, all but one; and one rank that sorts everything alone
  growth      many sizes and numbers of ranks, and a model of the cost fitted to them
  small       a thousand records, beside MPI_Allreduce of one number

Commands take turns, so that a noisy machine is noisy for all of them; every ratio is of two of the same
turn, and the median of these counts. Writes CSV files, plots (SVG and PNG) and a page into bench-out/.
"""

import argparse
import csv
import html
import itertools
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import plots

plots.ensure()

import matplotlib  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402
import numpy  # noqa: E402

import launch  # noqa: E402

PHASES = ["sort", "exchange", "merge", "store", "commit"]
STORES = ["none", "reload", "memory"]
# The sort that survives nothing; around the standard library's sorts; and with a copy of each input.
PLAIN = {"plain": [], "std": ["-l", "std"], "copy": ["-r", 1]}
ALGORITHMS = {"auto": 0, "HyperQuickSort": 1, "QuickMerge": 2, "modified QuickMerge": 3, "bitonic": 4}
DIGEST = 1
S_FT = 14
FAULTS = {"none": "none", "one": "one", "half": "half", "all but one": "all-but-one"}
LIMIT = 900


def floor_program():
    """The plain sample sort; built if need be."""
    told = subprocess.run(["cargo", "build", "--release", "--bench", "floor", "--message-format=json"],
                          capture_output=True, text=True, check=True, cwd=launch.ROOT)
    lines = [line for line in told.stdout.splitlines() if '"executable":"' in line and '"name":"floor"' in line]
    return pathlib.Path(lines[-1].split('"executable":"')[1].split('"')[0])


class Bench:
    """Runs programs and counts them, so that it can be said how long it takes yet."""

    def __init__(self, folder, turns):
        self.folder, self.turns = folder, turns
        self.bench = launch.build_c(launch.ROOT / "c_examples/bench.c", folder)
        self.floor = floor_program()
        self.done, self.total, self.start = 0, 0, time.monotonic()

    def measure(self, ranks, command):
        """What the line for machines says: a number for each word."""
        run = launch.launch(ranks, command, LIMIT)
        self.done += 1
        left = (time.monotonic() - self.start) / self.done * (self.total - self.done)
        if sys.stderr.isatty():
            print(f"\r{self.done} of {self.total}, {left / 60:.0f} minutes to go   ", end="", file=sys.stderr)
        lines = [line for line in run.output.splitlines() if line.startswith("ftsort-bench")]
        if len(lines) != 1:
            sys.exit(f"{' '.join(map(str, command))}: {run.output[-2000:]}")
        # The word "store" is there twice: which one, and then the seconds of that phase.
        words = dict(word.split("=") for word in lines[0].split()[1:])
        words = {name: value for name, value in words.items() if name not in ("type", "local")}
        return {name: float(value) for name, value in words.items()}, run.output

    def ftsort(self, ranks, log2, kind="i32", store="memory", more=()):
        return self.measure(ranks, [self.bench, "-k", log2, "-t", kind, "-s", store, "-n", 3, *more])[0]

    def in_turns(self, commands):
        """Runs all commands, named, by turns; for each the list of what they said."""
        told = {name: [] for name in commands}
        for _ in range(self.turns):
            for name, command in commands.items():
                told[name].append(command())
        return told


def median(told, name="total"):
    return statistics.median(run[name] for run in told)


def ratio(told, beside, name="total"):
    """The median of the ratios, each of two runs of the same turn."""
    return statistics.median(one[name] / other[name] for one, other in zip(told, beside))


def floor(bench, options):
    """How much longer ftsort takes than a sort that survives nothing."""
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
        told = bench.in_turns(commands)
        size = [statistics.median(run["peak"] / run["input"] for run in told[store]) for store in STORES]
        # The caller's own input is no part of what the sort takes.
        held = [statistics.median(run["resident"] / run["input"] - 1 for run in told[store]) for store in STORES]
        plain = told["plain"]
        yield [kind, log2, ranks, median(plain) / 2**log2 * 1e9, ratio(told["std"], plain), ratio(told["copy"], plain),
               *[ratio(told[store], plain) for store in STORES],
               ratio(told["memory"], told["none"]), ratio(told["reload"], told["none"]),
               ratio(told["memory"], told["copy"]), *size, *held]


def stores(bench, options):
    """What a store costs, sort by sort beside none in the same processes."""
    cases = list(itertools.product(options.types, options.sizes, options.ranks))
    bench.total += len(cases) * bench.turns * len(STORES)
    yield ["records", "log2", "ranks", *[f"{store}/none" for store in STORES]]
    for kind, log2, ranks in cases:
        told = bench.in_turns({
            store: lambda store=store: bench.ftsort(ranks, log2, kind, store, ["-b", "none", "-n", 15])
            for store in STORES
        })
        yield [kind, log2, ranks, *[median(told[store], "beside") for store in STORES]]


def algorithms(bench, options):
    """What each algorithm takes, beside the one-exchange sort."""
    cases = list(itertools.product(options.sizes, options.ranks))
    bench.total += len(cases) * bench.turns * len(ALGORITHMS)
    yield ["log2", "ranks", "auto ns", *list(ALGORITHMS)[1:]]
    for log2, ranks in cases:
        told = bench.in_turns({
            name: lambda number=number: bench.ftsort(ranks, log2, more=["-a", number])
            for name, number in ALGORITHMS.items()
        })
        auto = told.pop("auto")
        yield [log2, ranks, median(auto) / 2**log2 * 1e9, *[ratio(runs, auto) for runs in told.values()]]


def checks(bench, options):
    """What digests add to the sort with one copy of each input, and what they and the three checks of
    McMillin and Ni add to bitonic sort."""
    cases = [(log2, ranks) for log2 in options.sizes for ranks in options.ranks if ranks & (ranks - 1) == 0]
    bench.total += len(cases) * bench.turns * 5
    bitonic = ["-a", ALGORITHMS["bitonic"]]
    yield ["log2", "ranks", "unchecked ns", "digest", "bitonic ns", "its digest", "S_FT"]
    for log2, ranks in cases:
        told = bench.in_turns({
            "plain": lambda: bench.ftsort(ranks, log2),
            "digest": lambda: bench.ftsort(ranks, log2, more=["-x", DIGEST]),
            "bitonic": lambda: bench.ftsort(ranks, log2, more=bitonic),
            "bitonic, digest": lambda: bench.ftsort(ranks, log2, more=[*bitonic, "-x", DIGEST]),
            "S_FT": lambda: bench.ftsort(ranks, log2, more=[*bitonic, "-x", S_FT]),
        })
        yield [log2, ranks, median(told["plain"]) / 2**log2 * 1e9, ratio(told["digest"], told["plain"]),
               median(told["bitonic"]) / 2**log2 * 1e9, ratio(told["bitonic, digest"], told["bitonic"]),
               ratio(told["S_FT"], told["bitonic"])]


def touch(size):
    """Has the kernel find so many bytes, and gives them back to it.

    What nobody in a virtual machine has used for a while may be its host's, and takes some forty times as long to
    get as to zero. Survivors need more memory than before, and would be measured by that.
    """
    HUGE = 2 << 20
    size = min(size, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, size, HUGE):
            memory[page] = 1


def suffered(bench, ranks, log2, faults):
    """One sort with faults: the slowest survivor's time, and how often a round was done again."""
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
    """What faults in the middle of a sort cost: the schedule's instants are drawn from its time."""
    cases = [(log2, ranks) for log2 in options.sizes for ranks in options.ranks if ranks > 2]
    bench.total += len(cases) * (3 * bench.turns * len(FAULTS) + 1)
    yield ["log2", "ranks", "none ms", "one adds ms", "half", "all but one", "alone ms", "all but one / alone",
           "after the last / alone", "of it inputs are made again, ms", "after the last / alone and making them"]
    for log2, ranks in cases:
        alone = bench.measure(1, [bench.bench, "-k", log2, "-s", "none", "-n", 3])[0]["total"]
        window, told = None, {name: [] for name in FAULTS}
        for turn in range(3 * bench.turns):
            for name, words in FAULTS.items():
                schedule = words if window is None or name == "none" else f"{words} seed={turn} window={window}ms"
                told[name].append(suffered(bench, ranks, log2, schedule))
                window = window or max(1, int(told[name][0]["total"] * 800))
        quiet = told["none"]
        struck = {name: [run for run in runs if run["faults"]] for name, runs in told.items()}
        after, made = (median(struck["all but one"], name) for name in ("after", "made"))
        yield [log2, ranks, median(quiet) * 1e3, (median(struck["one"]) - median(quiet)) * 1e3,
               median(struck["half"]) / median(quiet), median(struck["all but one"]) / median(quiet), alone * 1e3,
               median(struck["all but one"]) / alone, after / alone, made * 1e3, after / (alone + made)]


def growth(bench, options):
    """How the time grows with the size and the ranks, with one copy of each input."""
    cases = list(itertools.product(options.grow, options.crowd))
    bench.total += len(cases) * bench.turns
    yield ["log2", "ranks", "total ms", "ns a record", *PHASES, "peak"]
    for log2, ranks in cases:
        told = [bench.ftsort(ranks, log2) for _ in range(bench.turns)]
        total = median(told)
        yield [log2, ranks, total * 1e3, total / 2**log2 * 1e9,
               *[median(told, name) / 2**log2 * 1e9 for name in PHASES],
               statistics.median(run["peak"] / run["input"] for run in told)]


def small(bench, options):
    """A thousand records: messages are all that it costs."""
    bench.total += len(options.crowd) * bench.turns * 2
    yield ["ranks", "allreduce us", "none us", "memory us", "none / allreduce", "memory / allreduce"]
    for ranks in options.crowd:
        told = bench.in_turns({
            store: lambda store=store: bench.measure(ranks, [bench.bench, "-k", 10, "-s", store, "-n", 51])[0]
            for store in ("none", "memory")
        })
        both = [median(told[store]) * 1e6 for store in told]
        allreduce = median(told["none"], "allreduce") * 1e6
        yield [ranks, allreduce, *both, *[time / allreduce for time in both]]


SECTIONS = {"floor": floor, "stores": stores, "algorithms": algorithms, "checks": checks, "faults": faults,
            "growth": growth, "small": small}


def text(value):
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def run_section(name, bench, options):
    """Measures, prints and writes one table; returns it."""
    rows = []
    with (options.out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        for row in SECTIONS[name](bench, options):
            rows.append(row)
            writer.writerow(row)
            file.flush()
            head = rows[0]
            if len(rows) == 1:
                print(f"\n{name}: {' '.join(SECTIONS[name].__doc__.split())}", flush=True)
            print(" ".join(f"{text(value):>{max(7, len(label))}}" for label, value in zip(head, row)), flush=True)
    return rows


def fit(rows):
    """The coefficients of a simple model of the growth, and by how much it is off at worst half of the time.

    Seconds = a n log2(n / N) / p + b n log2(N) / p + c N^2 / p + d, where n records are on N ranks and p of them
    have a processor: local sorts, merging and waiting for each other, messages, agreements.
    """
    cpus = len(os.sched_getaffinity(0))
    table = numpy.array([[float(cell) for cell in row[:3]] for row in rows[1:]])
    count, ranks, seconds = 2 ** table[:, 0], table[:, 1], table[:, 2] / 1e3
    share = count / numpy.minimum(ranks, cpus)
    terms = numpy.stack([share * numpy.log2(count / ranks), share * numpy.log2(ranks),
                         ranks * ranks / numpy.minimum(ranks, cpus), numpy.ones_like(share)], axis=1)
    # Relative errors count, or small sorts would not; no cost is negative.
    weighted, wanted = terms / seconds[:, None], numpy.ones_like(seconds)
    costs, active = numpy.zeros(4), list(range(4))
    while active:
        found = numpy.linalg.lstsq(weighted[:, active], wanted, rcond=None)[0]
        if (found >= 0).all():
            costs[active] = found
            break
        active.pop(int(found.argmin()))
    return costs, float(numpy.median(abs(weighted @ costs - 1)))


def draw(name, rows, folder):
    """A figure of a table, if there is something to draw."""
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    head = rows[0]
    if name == "floor":
        labels = [f"{row[0]} 2^{row[1]}\nN={row[2]}" for row in rows[1:]]
        places = numpy.arange(len(labels))
        for index, store in enumerate(STORES):
            at = head.index(store)
            axes.bar(places + 0.25 * (index - 1), [row[at] for row in rows[1:]], 0.25, label=store)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(places, labels, fontsize=6)
        axes.set_ylabel("time, in terms of the plain sample sort's")
    elif name == "growth":
        for ranks in sorted({row[1] for row in rows[1:]}):
            of_ranks = [row for row in rows[1:] if row[1] == ranks]
            axes.plot([row[0] for row in of_ranks], [row[3] for row in of_ranks], marker="o", label=f"{ranks} ranks")
        axes.set_yscale("log")
        axes.set_xlabel("log2 of the number of records")
        axes.set_ylabel("ns a record")
    elif name == "algorithms":
        labels = [f"2^{row[0]}\nN={row[1]}" for row in rows[1:]]
        places = numpy.arange(len(labels))
        for index, label in enumerate(head[3:]):
            axes.bar(places + 0.2 * (index - 1.5), [row[3 + index] for row in rows[1:]], 0.2, label=label)
        axes.set_xticks(places, labels)
        axes.set_ylabel("time, in terms of the one-exchange sort's")
    else:
        pyplot.close(figure)
        return False
    axes.legend(fontsize=8)
    figure.tight_layout()
    plots.save(figure, folder, name)
    return True


def page(tables, folder, notes):
    parts = ["<!doctype html><meta charset=utf-8><title>ftsort: benchmarks</title>",
             "<style>body{font-family:sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .6em;"
             "text-align:right}table{border-collapse:collapse;font-size:.8em}tr{border-bottom:1px solid #ccc}</style>",
             "<h1>ftsort: benchmarks</h1>"]
    for name, rows in tables.items():
        parts.append(f"<h2>{name}</h2><p>{html.escape(' '.join(SECTIONS[name].__doc__.split()))}</p>")
        if draw(name, rows, folder):
            parts.append(f"<img src={name}.svg>")
        parts.append("<table>" + "".join(
            "<tr>" + "".join(f"<{'td' if index else 'th'}>{html.escape(text(cell))}" for cell in row)
            for index, row in enumerate(rows)) + "</table>")
        parts.append(f"<p>{html.escape(notes.get(name, ''))}</p>")
    (folder / "index.html").write_text("\n".join(parts))


def main():
    numbers = lambda words: [int(word) for word in words.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", help="which ones; all of them if none is named")
    parser.add_argument("--types", type=lambda words: words.split(","), default=["i32", "u64", "f64", "pairs"])
    parser.add_argument("--sizes", type=numbers, default=[24], help="log2 of the numbers of records")
    parser.add_argument("--ranks", type=numbers, default=[2, 4, 8])
    parser.add_argument("--grow", type=numbers, default=[16, 18, 20, 22, 24, 26], help="sizes for growth")
    parser.add_argument("--crowd", type=numbers, default=[1, 2, 4, 8, 16, 32], help="ranks for growth and small")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=launch.ROOT / "bench-out")
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        sys.exit(f"there is no section {', '.join(sorted(unknown))}")
    options.out.mkdir(exist_ok=True)
    notes, tables = {}, {}
    with tempfile.TemporaryDirectory(prefix="ftsort-bench-") as folder:
        bench = Bench(folder, options.turns)
        for name in options.sections or SECTIONS:
            tables[name] = run_section(name, bench, options)
    if "growth" in tables:
        costs, error = fit(tables["growth"])
        notes["growth"] = (
            f"model: {costs[0] * 1e9:.3f} ns n log2(n/N) / p + {costs[1] * 1e9:.2f} ns n log2(N) / p + "
            f"{costs[2] * 1e6:.1f} us N^2 / p + {costs[3] * 1e6:.0f} us; median error {100 * error:.0f} %")
        print("\n" + notes["growth"])
    page(tables, options.out, notes)
    print(f"\n{options.out}/index.html")


if __name__ == "__main__":
    main()

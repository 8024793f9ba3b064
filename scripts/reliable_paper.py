#!/usr/bin/env python3
"""Makes the tables and figures on the reliable sort of the 1989 paper.

Runs ftsort-papers and writes to paper-out/reliable: byzantine.csv (detected faults of Byzantine nodes), costs.csv (the costs of
the algorithms), a figure for each of Figures 6 to 8 of the paper, and index.html. Then measures the same algorithms on
MPI (reliable_mpi.py). The script takes some minutes and prints the expected time on stderr.
"""

import argparse
import subprocess
import sys
import time

import launch
import plots
import reliable_mpi
import tables
from reliable_mpi import OUT

RULES = ["paper", "repeated", "simultaneous"]


def simulate(arguments):
    """Runs the simulator and returns the rows that it prints."""
    command = [launch.simulator(), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return tables.parse(done.stdout)


def experiments(runs, clean):
    """Yields the arguments of each simulation with faulty nodes."""
    for rule in RULES:
        for dimension, block in [(2, 1), (3, 1), (4, 1), (3, 8)]:
            for liars in range(1, dimension):
                yield rule, dimension, block, liars, False, runs
    # Beyond the bound: as many faulty nodes as Theorem 3 of the paper allows, but at any place; and one more.
    for rule in ["paper", "repeated"]:
        for dimension in (3, 4):
            for liars in (dimension - 1, dimension):
                yield rule, dimension, 1, liars, True, runs
    for rule in RULES:
        for dimension, share in [(1, 0.2), (2, 0.4), (3, 0.3), (4, 0.1)]:
            yield rule, dimension, 1, 0, False, int(clean * share)


def simulate_faults(runs, clean):
    """Runs all simulations with faulty nodes, and returns their rows."""
    rows, todo = [], list(experiments(runs, clean))
    weight = [count << (2 * dimension) for _, dimension, _, _, _, count in todo]
    start, done = time.monotonic(), 0
    for (rule, dimension, block, liars, anywhere, count), cost in zip(todo, weight):
        arguments = ["byzantine", "--rule", rule, "--dimension", dimension, "--block", block, "--byzantine", liars, "--runs", count]
        rows += simulate(arguments + ["--anywhere"] * anywhere)
        done += cost
        left = (time.monotonic() - start) * (sum(weight) - done) / done
        print(f"\rsimulation: {100 * done // sum(weight)} %, {left / 60:.1f} minutes left ", end="", file=sys.stderr)
    print(file=sys.stderr)
    return rows


def summed(rows, *names):
    """Returns the sums of the counts over the rows that agree in these columns."""
    sums = {}
    for row in rows:
        total = sums.setdefault(tuple(row[name] for name in names), [0] * 6)
        for index, column in enumerate(["injected", "detected", "harmless", "missed", "accused", "suspected"]):
            total[index] += int(row[column])
    return sums


def figure(title, series, unit):
    """Draws a line for each series {name: [(nodes, time)]}; both axes are logarithmic."""
    drawing, axes = plots.axes("nodes", unit, title, (7.2, 4.4), xscale="log", yscale="log")
    plots.lines(axes, series.items())
    nodes = sorted({point[0] for line in series.values() for point in line})
    plots.powers_of_two(axes.xaxis, nodes)
    axes.set_xticklabels([str(count) if count < 10_000 else f"2^{count.bit_length() - 1}" for count in nodes],
                         fontsize=8 if len(nodes) > 12 else 10)
    axes.legend()
    return drawing


NAMES = {
    "plain": "bitonic sort, no checks",
    "paper_whole": "S_FT as printed",
    "repeated": "S_FT, corrected",
    "host": "the host sorts",
    "host_verifies": "the host verifies",
}


def lines(rows, block, most, column, plans):
    chosen = [row for row in rows if int(row["block"]) == block and int(row["nodes"]) <= most and row[column]]
    return {NAMES[plan]: [(int(row["nodes"]), float(row[column])) for row in chosen if row["method"] == plan] for plan in plans}


def write_tables(page, rows):
    """Adds the tables on detected faults to the page."""
    bounded = [row for row in rows if row["anywhere"] == "false" and row["byzantine"] != "0"]
    counted = ["injected", "detected", "harmless", "missed", "faulty node accused", "faulty node suspected"]
    for text, chosen, names in [
        ("Within the bound, the rule of the paper misses faults of nodes that send two consistent versions of the data. "
         "The corrected rule misses none.", bounded, ["rule", "nodes", "block", "byzantine"]),
        ("By kind of fault, all numbers of nodes together: only faulty nodes that keep two consistent versions escape the "
         "rule of the paper.", bounded, ["rule", "fault"]),
        ("Beyond the bound, with faulty nodes at any place, neither rule is safe: two faulty nodes which are each other's "
         "first partner are the only ones that know their keys.", [row for row in rows if row["anywhere"] == "true"],
         ["rule", "nodes", "block", "byzantine"]),
        ("Without a faulty node no node is accused: a number in the column \"detected\" would be a false alarm.",
         [row for row in rows if row["byzantine"] == "0"], ["rule", "nodes"]),
    ]:
        head = ["faulty nodes" if name == "byzantine" else name for name in names]
        page.text(text)
        page.table([*head, *counted], [[*key, *total] for key, total in summed(chosen, *names).items()])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300_000, help="trials for each row of the tables")
    parser.add_argument("--clean", type=int, default=1_000_000, help="trials without faulty nodes, for each rule")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one number of ranks on MPI")
    options = parser.parse_args()
    costs = simulate(["reliable", "--block", 1, "--block", 8, "--block", 1 << 20, "--most", 20])
    tables.write(OUT / "costs.csv", costs)
    rows = simulate_faults(options.runs, options.clean)
    tables.write(OUT / "byzantine.csv", rows)
    page = plots.Page(OUT, "The reliable bitonic sort of 1989")
    write_tables(page, rows)
    main_plans = ["plain", "paper_whole", "repeated", "host", "host_verifies"]
    for name, text, series, unit in [
        ("figure6", "Figure 6, with the measured formulas of the paper: on 4 to 32 nodes the host is faster than S_FT.",
         lines(costs, 1, 32, "paper_ticks", ["paper_whole", "host"]), "time (ticks)"),
        ("figure7", "Figure 7, the same formulas for more nodes: S_FT slowly becomes faster than the host.",
         lines(costs, 1, 1 << 20, "paper_ticks", ["paper_whole", "host"]), "time (ticks)"),
        ("figure7_counted", "Figure 7 with counted operations: 1 us for a message, 10 GB/s, and 1 ns for a comparison.",
         lines(costs, 1, 1024, "time_ns", main_plans), "time (ns)"),
        ("figure8", "Figure 8, blocks of 8 records, with the same counted operations.",
         lines(costs, 8, 1024, "time_ns", main_plans), "time (ns)"),
        ("figure8_large", "Blocks of a million records: the corrected S_FT, which sends all data to all nodes, is not faster than the host.",
         lines(costs, 1 << 20, 1024, "time_ns", main_plans), "time (ns)"),
    ]:
        page.figure(figure(text.split(":")[0].split(",")[0], series, unit), name, text, legend=False)
    for name, text in reliable_mpi.draw(reliable_mpi.measure_all(options.limit, 1)):
        page.image(name, text)
    print(page.write())


if __name__ == "__main__":
    main()

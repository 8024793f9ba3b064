#!/usr/bin/env python3
"""Makes the tables and figures on the 1989 paper's reliable sort: runs ftsort-sim, and writes
paper-out/reliable/: liars.csv (who is noticed), costs.csv (what the algorithms cost), a figure for each of
the paper's Figures 6 to 8, and index.html. Then the same on MPI, where they can be measured (reliable_mpi.py).
Takes some minutes; says on stderr how many are left.
"""

import argparse
import csv
import html
import io
import math
import os
import pathlib
import subprocess
import sys
import time

import reliable_mpi

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "paper-out/reliable"
RULES = ["paper", "repeated", "at-once"]
COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"]


def simulator():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release/ftsort-sim"


def table(arguments):
    """The rows that a command of the simulator prints."""
    command = [simulator(), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return list(csv.DictReader(io.StringIO(done.stdout)))


def experiments(runs, clean):
    """The arguments of each run with liars, and how long it takes in terms of others."""
    for rule in RULES:
        for dimension, block in [(2, 1), (3, 1), (4, 1), (3, 8)]:
            for liars in range(1, dimension):
                yield rule, dimension, block, liars, False, runs
    # Beyond the bound: as many as the paper's Theorem 3 allows, but anywhere, and one more.
    for rule in ["paper", "repeated"]:
        for dimension in (3, 4):
            for liars in (dimension - 1, dimension):
                yield rule, dimension, 1, liars, True, runs
    for rule in RULES:
        for dimension, share in [(1, 0.2), (2, 0.4), (3, 0.3), (4, 0.1)]:
            yield rule, dimension, 1, 0, False, int(clean * share)


def lie(runs, clean):
    rows, todo = [], list(experiments(runs, clean))
    weight = [count << (2 * dimension) for _, dimension, _, _, _, count in todo]
    start, done = time.monotonic(), 0
    for (rule, dimension, block, liars, anywhere, count), cost in zip(todo, weight):
        arguments = ["liars", "--rule", rule, "--dimension", dimension, "--block", block, "--liars", liars, "--runs", count]
        rows += table(arguments + ["--anywhere"] * anywhere)
        done += cost
        left = (time.monotonic() - start) * (sum(weight) - done) / done
        print(f"\rliars: {100 * done // sum(weight)} %, {left / 60:.1f} minutes to go ", end="", file=sys.stderr)
    print(file=sys.stderr)
    return rows


def save(name, rows):
    with open(OUT / name, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def summed(rows, *names):
    """Rows that agree in these columns become one: the sums of what was counted."""
    sums = {}
    for row in rows:
        total = sums.setdefault(tuple(row[name] for name in names), [0] * 6)
        for index, column in enumerate(["injected", "detected", "harmless", "missed", "accused", "suspected"]):
            total[index] += int(row[column])
    return sums


def figure(title, series, unit):
    """A line for each series {name: [(nodes, time)]}, both axes logarithmic."""
    points = [point for line in series.values() for point in line]
    left, right, top, bottom = 70, 480, 40, 320

    def scale(values, low, high):
        least, most = math.log(min(values)), math.log(max(values))
        return lambda value: low + (high - low) * (math.log(value) - least) / ((most - least) or 1)

    x, y = scale([p[0] for p in points], left, right), scale([p[1] for p in points], bottom, top)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 370" font-family="sans-serif" font-size="12">',
           '<rect width="660" height="370" fill="white"/>', f'<text x="{left}" y="20" font-size="14">{html.escape(title)}</text>']
    for nodes in sorted({p[0] for p in points}):
        out.append(f'<line x1="{x(nodes):.1f}" y1="{top}" x2="{x(nodes):.1f}" y2="{bottom}" stroke="#eee"/>'
                   f'<text x="{x(nodes):.1f}" y="{bottom + 16}" text-anchor="middle">{short(nodes)}</text>')
    decade = 10 ** len(str(int(min(p[1] for p in points))))
    while decade < max(p[1] for p in points):
        out.append(f'<line x1="{left}" y1="{y(decade):.1f}" x2="{right}" y2="{y(decade):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y(decade) + 4:.1f}" text-anchor="end">{decade:.0e}</text>')
        decade *= 10
    for index, (name, line) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{x(nodes):.1f},{y(time):.1f}" for nodes, time in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{right + 12}" y="{top + 14 + 18 * index}" fill="{colour}">{html.escape(name)}</text>')
    out.append(f'<text x="{(left + right) / 2}" y="356" text-anchor="middle">nodes</text>')
    out.append(f'<text x="14" y="{top - 8}">{html.escape(unit)}</text></svg>')
    return "\n".join(out)


def short(nodes):
    return str(nodes) if nodes < 10_000 else f"2^{nodes.bit_length() - 1}"


NAMES = {
    "plain": "bitonic sort, no checks",
    "paper_whole": "S_FT as printed",
    "repeated": "S_FT, mended",
    "host": "the host sorts",
    "host_verifies": "the host verifies",
}


def lines(rows, block, most, column, plans):
    chosen = [row for row in rows if int(row["block"]) == block and int(row["nodes"]) <= most and row[column]]
    return {NAMES[plan]: [(int(row["nodes"]), float(row[column])) for row in chosen if row["plan"] == plan] for plan in plans}


def page(lies, figures):
    within = summed([row for row in lies if row["anywhere"] == "false" and row["liars"] != "0"], "rule", "nodes", "block", "liars")
    kinds = summed([row for row in lies if row["anywhere"] == "false" and row["liars"] != "0"], "rule", "lie")
    beyond = summed([row for row in lies if row["anywhere"] == "true"], "rule", "nodes", "block", "liars")
    clean = summed([row for row in lies if row["liars"] == "0"], "rule", "nodes")
    out = ['<!doctype html><meta charset="utf-8"><title>The reliable bitonic sort of 1989</title>',
           "<style>body{font:15px sans-serif;max-width:50em;margin:2em auto}td,th{padding:2px 10px;text-align:right}</style>",
           "<h1>The reliable bitonic sort of 1989</h1>"]
    counted = ["injected", "detected", "harmless", "missed", "liar accused", "liar suspected"]
    for text, head, sums in [
        ("Within the bound the paper's rule misses lies that a second world can tell, and the mended rule none.", ["rule", "nodes", "block", "liars"], within),
        ("By kind of lie, all numbers of nodes together: only liars that keep two worlds apart escape the paper's rule.", ["rule", "lie"], kinds),
        ("Beyond the bound, with liars anywhere, neither rule is safe: two liars who are each other's first partner alone know their keys.", ["rule", "nodes", "block", "liars"], beyond),
        ("Where nobody lies nobody is accused: \"detected\" would be false alarms.", ["rule", "nodes"], clean),
    ]:
        out.append(f"<p>{html.escape(text)}</p><table><tr>" + "".join(f"<th>{name}" for name in head + counted) + "</tr>")
        for key, total in sums.items():
            out.append("<tr>" + "".join(f"<td>{cell}" for cell in (*key, *total)) + "</tr>")
        out.append("</table>")
    for name, text in figures:
        out.append(f'<p>{html.escape(text)}</p><img src="{name}" alt="">')
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300_000, help="trials for each line of the tables")
    parser.add_argument("--clean", type=int, default=1_000_000, help="trials without liars, for each rule")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one number of ranks on MPI")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    costs = table(["reliable", "--block", 1, "--block", 8, "--block", 1 << 20, "--most", 20])
    save("costs.csv", costs)
    lies = lie(options.runs, options.clean)
    save("liars.csv", lies)
    main_plans = ["plain", "paper_whole", "repeated", "host", "host_verifies"]
    figures = []
    for name, text, series, unit in [
        ("figure6.svg", "Figure 6, the paper's measured formulas: on 4 to 32 nodes the host is quicker than S_FT.",
         lines(costs, 1, 32, "paper_ticks", ["paper_whole", "host"]), "ticks"),
        ("figure7.svg", "Figure 7, the same projected: S_FT gains on the host, and slowly.",
         lines(costs, 1, 1 << 20, "paper_ticks", ["paper_whole", "host"]), "ticks"),
        ("figure7_counted.svg", "The same counted, on a machine with 1 us for a message, 10 GB/s, and 1 ns for a comparison.",
         lines(costs, 1, 1024, "time_ns", main_plans), "ns"),
        ("figure8.svg", "Figure 8, blocks of 8 records, counted, on the same machine.",
         lines(costs, 8, 1024, "time_ns", main_plans), "ns"),
        ("figure8_large.svg", "Blocks of a million records: where everybody is told everything, the mended S_FT is no quicker than the host.",
         lines(costs, 1 << 20, 1024, "time_ns", main_plans), "ns"),
    ]:
        (OUT / name).write_text(figure(text.split(":")[0].split(",")[0], series, unit), encoding="utf-8")
        figures.append((name, text))
    figures += reliable_mpi.draw(reliable_mpi.measure_all(options.limit, 1))
    (OUT / "index.html").write_text(page(lies, figures), encoding="utf-8")
    print(OUT / "index.html")


if __name__ == "__main__":
    main()

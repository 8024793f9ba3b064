#!/usr/bin/env python3
"""Counts what the paper on tree communication (Leu and Kuo 1996) claims, with `ftsort-sim tree`, and
writes tables (CSV, Markdown), plots (SVG) and a page that shows them all: paper-out/tree/index.html.
The same seed gives the same files.
"""

import argparse
import csv
import html
import io
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLOURS = ["#1b6ca8", "#d1495b", "#2e933c", "#8d6a9f", "#e08e0b", "#4d5061", "#00a6a6", "#b5179e"]
FEW = 20  # Means of fewer patterns than this are not drawn.


def program():
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return folder / "release" / "ftsort-sim"


def count(options):
    """All rows, one run of the program for each size of cube."""
    fewest, _, most = options.dimensions.partition("-")
    sizes = range(int(fewest), int(most or fewest) + 1)
    # A cube of one dimension more has twice as many nodes, and more numbers of faults are looked at.
    weights = {n: 2.3**n for n in sizes}
    rows, begin, done = [], time.monotonic(), 0.0
    for n in sizes:
        command = [program(), "tree", "--dimensions", str(n), "--patterns", str(options.patterns)]
        command += ["--seed", str(options.seed), "--optimum", str(options.optimum)]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows += csv.DictReader(io.StringIO(run.stdout))
        done += weights[n]
        spent = time.monotonic() - begin
        left = spent / done * (sum(weights.values()) - done)
        print(f"{n} dimensions done, {spent:.0f} s; about {left:.0f} s to go", file=sys.stderr)
    return rows


class Counts:
    """The rows, by cell."""

    def __init__(self, rows):
        self.rows = [{key: self.number(value) for key, value in row.items()} for row in rows]
        self.sizes = sorted({int(row["dimensions"]) for row in self.rows})
        self.with_best = max((int(row["dimensions"]) for row in self.rows if row["tree_best"] is not None), default=None)

    @staticmethod
    def number(text):
        if text in ("paper", "anyway"):
            return text
        return float(text) if text else None

    def cell(self, n, nodes=0, sink="paper"):
        """The rows of a size, by rising number of faulty links."""
        own = [r for r in self.rows if (r["dimensions"], r["nodes"], r["sink"]) == (n, nodes, sink)]
        return sorted(own, key=lambda row: row["links"])

    def loads(self, n, nodes=0):
        own = [r for r in self.rows if (r["dimensions"], r["nodes"]) == (n, nodes)]
        return sorted({r["links_over_half"] for r in own})

    def at(self, n, load, nodes=0):
        """The row at a number of faulty links over 2^(n-1); "-" is one link fewer than that."""
        links = 2 ** (n - 1) - 1 if load == "-" else load * 2 ** (n - 1)
        return next((row for row in self.cell(n, nodes) if row["links"] == links), None)

    def found(self, n, nodes=0):
        """Points (load, share of patterns for which FIND_TREE found a sink)."""
        by_load = {row["links_over_half"]: row["patterns"] / row["of"] for row in self.cell(n, nodes)}
        return [(load, by_load.get(load, 0.0)) for load in self.loads(n, nodes)]

    def line(self, n, what, nodes=0, scale=1.0):
        """Points (load, mean) over the patterns for which FIND_TREE found a sink."""
        rows = [row for row in self.cell(n, nodes) if row["patterns"] >= FEW and row[what] is not None]
        return [(row["links_over_half"], row[what] * scale) for row in rows]


def plot(title, across, up, lines, mark=None, top=None):
    """An SVG with these lines: (name, points). `mark`: a horizontal line at this height."""
    width, height, left, bottom, right = 760, 420, 62, 48, 190
    points = [point for _, line in lines for point in line]
    if not points:
        return None
    most_x = max(x for x, _ in points)
    most_y = top or max([y for _, y in points] + [mark or 0.0]) * 1.05 or 1.0
    place_x = lambda x: left + x / most_x * (width - left - right)
    place_y = lambda y: height - bottom - y / most_y * (height - bottom - 34)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">']
    out.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    out.append(f'<text x="{left}" y="20" font-size="14">{html.escape(title)}</text>')
    for tick in ticks(most_x):
        x = place_x(tick)
        out.append(f'<line x1="{x:.1f}" y1="34" x2="{x:.1f}" y2="{height - bottom}" stroke="#eee"/>')
        out.append(f'<text x="{x:.1f}" y="{height - bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for tick in ticks(most_y):
        y = place_y(tick)
        out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - right}" y2="{y:.1f}" stroke="#eee"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    if mark is not None:
        y = place_y(mark)
        out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - right}" y2="{y:.1f}" stroke="black" stroke-dasharray="5 4"/>')
    for index, (name, line) in enumerate(lines):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{place_x(x):.1f},{place_y(min(y, most_y)):.1f}" for x, y in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{place_x(x):.1f}" cy="{place_y(min(y, most_y)):.1f}" r="2.5" fill="{colour}"/>' for x, y in line]
        y = 46 + 18 * index
        out.append(f'<line x1="{width - right + 12}" y1="{y}" x2="{width - right + 32}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{width - right + 38}" y="{y + 4}">{html.escape(name)}</text>')
    out.append(f'<text x="{(left + width - right) / 2}" y="{height - 10}" text-anchor="middle">{html.escape(across)}</text>')
    middle = (34 + height - bottom) / 2
    out.append(f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">{html.escape(up)}</text>')
    return "\n".join(out + ["</svg>\n"])


def ticks(most):
    """Some round numbers from 0 to the most."""
    step = next(s * 10**e for e in range(-3, 6) for s in (1, 2, 5) if most / (s * 10**e) <= 8)
    return [step * index for index in range(int(most / step + 1e-9) + 1)]


LINKS = "faulty links / 2^(n-1)"


def plots(counts):
    """(name, sentence, title, up, lines, mark, top) of each plot."""
    every = [(f"n = {n}", n) for n in counts.sizes]
    last, best = counts.sizes[-1], counts.with_best
    of_each = lambda what, scale=lambda n: 1.0: [(name, counts.line(n, what, scale=scale(n))) for name, n in every]
    of_last = lambda names, scale=1.0: [(name, counts.line(last, what, scale=scale)) for name, what in names]
    yield (
        "success", "How often FIND_TREE finds a node without any faulty link; Theorem 3 promises it to the left of 1.",
        "FIND_TREE finds a sink", "share of patterns", [(name, counts.found(n)) for name, n in every], None, 1.05,
    )
    eighth = 2**last // 8
    yield (
        "success_nodes", f"The same with faulty nodes, n = {last}.", f"FIND_TREE finds a sink, n = {last}", "share of patterns",
        [(f"{nodes} faulty nodes", counts.found(last, nodes)) for nodes in (0, 1, eighth)], None, 1.05,
    )
    if best:
        names = [
            ("sink 0, order 0, 1, ...", "tree_simple"), ("FIND_TREE", "tree_found"), ("cost of added links", "tree_added"),
            ("best order, same sink", "tree_same_sink"), ("EXHAUST (best)", "tree_best"),
        ]
        yield (
            "trees", f"Faulty links in the tree, mean, n = {best}: the untouched tree, the heuristics, and the optimum.",
            f"Faulty links in the tree, n = {best}", "mean", [(name, counts.line(best, what)) for name, what in names], None, None,
        )
    yield (
        "steps", f"Steps over n, mean, n = {last}, counted as the paper does: its plan, rerouting, and its formulas.",
        f"Slowdown in steps, n = {last}", "steps / n",
        of_last([
            ("FTTC", "partition_steps"), ("n + k", "n_plus_k"), ("rerouting", "reroute_steps"), ("n + 2k", "n_plus_2k"),
            ("n + 3k", "n_plus_3k"),
        ], 1 / last), 2.0, None,
    )
    yield (
        "worst", "The worst slowdown of FTTC among all patterns; Theorem 5 promises less than 2 where no detour is needed.",
        "Worst slowdown of FTTC in steps", "steps / n", of_each("partition_slowdown_most"), 2.0, None,
    )
    yield (
        "detours", "How often some node has no active neighbour that can help, the case that the paper omits.",
        "Patterns with a detour", "share of patterns", of_each("with_detour"), None, 1.05,
    )
    yield (
        "printed", "How often FTTC, to the letter of Figure 13, loses data or waits for ever.",
        "Figure 13 as printed goes wrong", "share of patterns", of_each("printed_fails"), None, 1.05,
    )
    yield (
        "cut_off", "How often nodes that are neither faulty nor isolated are cut off from the sink, which Theorem 7 forgets.",
        "Nodes cut off that are not isolated", "share of patterns", of_each("cut_off"), None, None,
    )
    for machine, name, text in [
        ("one_port", "one_port", "one message in and out of a node at a time"),
        ("alone", "alone", "all ports, nodes that go on as soon as they have their data"),
    ]:
        yield (
            name, f"Steps over n, mean, n = {last}, on another machine: {text}.", f"Slowdown in steps, n = {last}: {text}", "steps / n",
            of_last([
                ("partition (paper)", f"partition_{machine}"), ("delegate to one", f"delegate_{machine}"), ("rerouting", f"reroute_{machine}"),
            ], 1 / last), None, None,
        )
    for what, text in [("keeps", "merging keeps sizes (sums)"), ("adds", "merging adds sizes (sorted lists)")]:
        yield (
            f"time_{what}", f"Time over that without faults, mean, n = {last}, if each step lasts as long as its largest message; {text}.",
            f"Slowdown in sizes, n = {last}: {text}", "time / time without faults",
            of_last([
                ("partition (paper)", f"partition_time_{what}"), ("delegate to one", f"delegate_time_{what}"),
                ("rerouting", f"reroute_time_{what}"),
            ]), None, None,
        )


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def cells(row, *formats):
    """A row's values; a name with a digit behind the colon is a mean with so many digits, with % a share."""
    out = []
    for text in formats:
        name, _, form = text.partition(":")
        if row is None or row[name] is None:
            out.append("")
        elif form == "%":
            out.append(f"{100 * row[name]:.1f} %")
        else:
            out.append(f"{row[name]:.{form}f}")
    return out


def tables(counts):
    """(title, Markdown) of each table."""
    loads = ["-", 1, 1.5, 2, 3, 4, 5, 6]
    head = ["n"] + ["1 less" if load == "-" else f"{load:g}" for load in loads]
    rows = []
    for n in counts.sizes:
        possible = counts.loads(n)
        row = [str(n)]
        for load in loads:
            exact = 1 - 2.0 ** (1 - n) if load == "-" else load
            near = [value for value in possible if abs(value - exact) < 1e-3]
            share = dict(counts.found(n)).get(near[0]) if near else None
            row.append("" if share is None else f"{100 * share:.1f} %")
        rows.append(row)
    yield "FIND_TREE finds a sink, by faulty links over 2^(n-1)", table(head, rows)

    each = [(n, load) for n in counts.sizes for load in (0.5, "-", 2) if counts.at(n, load)]
    named = lambda load: "2^(n-1) - 1" if load == "-" else f"{load:g} * 2^(n-1)"
    body = [
        [str(n), named(load)]
        + cells(counts.at(n, load), "tree_simple:2", "tree_found:2", "tree_added:2", "tree_same_sink:2", "tree_best:2", "found_is_best:%")
        for n, load in each
        if counts.at(n, load)["tree_best"] is not None
    ]
    head = ["n", "faulty links", "untouched", "FIND_TREE", "added links", "best, same sink", "best", "FIND_TREE is best"]
    yield "Faulty links in the tree, means", table(head, body)

    columns = [
        ("k", "faulty_stages:2"), ("n + k", "n_plus_k:2"), ("FTTC", "partition_steps:2"), ("worst", "partition_steps_most:0"),
        ("worst / n", "partition_slowdown_most:2"), ("2 or more", "partition_twice:%"), ("with a detour", "with_detour:%"),
        ("rerouting", "reroute_steps:2"), ("worst", "reroute_steps_most:0"), ("n + 2k", "n_plus_2k:2"), ("n + 3k", "n_plus_3k:2"),
    ]
    body = [[str(n), named(load)] + cells(counts.at(n, load), *[form for _, form in columns]) for n, load in each]
    yield "Steps as the paper counts them", table(["n", "faulty links"] + [name for name, _ in columns], body)

    columns = [
        ("FTTC as printed waits", "printed_waits:%"), ("loses", "printed_loses:%"), ("does not hear", "printed_unheard:%"),
        ("nodes cut off, not isolated", "cut_off:%"),
    ]
    body = [[str(n), named(load)] + cells(counts.at(n, load), *[form for _, form in columns]) for n, load in each]
    yield "What the paper overlooks, shares of patterns", table(["n", "faulty links"] + [name for name, _ in columns], body)

    kinds = ["partition", "delegate", "reroute"]
    what = [("steps", "2"), ("one_port", "2"), ("alone", "2"), ("hops", "1"), ("time_keeps", "3"), ("time_adds", "3")]
    head = ["n", "faulty links", "plan", "steps", "one port", "not waiting for stages", "hops", "time, sums", "time, lists"]
    body = [
        [str(n), named(load), kind] + cells(counts.at(n, load), *[f"{kind}_{name}:{digits}" for name, digits in what])
        for n, load in each
        if n == counts.sizes[-1]
        for kind in kinds
    ]
    yield "Three plans on three machines, means", table(head, body)

    body = []
    for n in counts.sizes:
        for nodes in sorted({0, 1, 2**n // 8}):
            row = counts.at(n, "-", nodes)
            share = dict(counts.found(n, nodes)).get(row["links_over_half"], 0.0) if row else 0.0
            columns = ["faulty_stages:2", "partition_steps:2", "partition_slowdown_most:2", "with_detour:%", "reroute_steps:2"]
            body.append([str(n), str(nodes), f"{100 * share:.1f} %"] + cells(row, *columns))
    head = ["n", "faulty nodes", "FIND_TREE finds a sink", "k", "FTTC", "worst / n", "with a detour", "rerouting"]
    yield "With faulty nodes besides 2^(n-1) - 1 faulty links", table(head, body)


def write(counts, rows, out):
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "all.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    figures = []
    for name, sentence, title, up, lines, mark, top in plots(counts):
        lines = [(label, line) for label, line in lines if line]
        drawn = plot(title, LINKS, up, lines, mark, top)
        if drawn is None:
            continue
        (out / f"{name}.svg").write_text(drawn)
        with open(out / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["line", LINKS, up])
            writer.writerows([label, x, y] for label, line in lines for x, y in line)
        figures.append(f'<p>{html.escape(sentence)} (<a href="{name}.csv">numbers</a>)</p>\n<img src="{name}.svg" width="760" alt="">\n')
    texts = [f"### {title}\n\n{text}" for title, text in tables(counts)]
    (out / "tables.md").write_text("\n".join(texts))
    body = "\n".join(figures)
    page = f"""<!doctype html>
<meta charset="utf-8">
<title>Tree communication, counted</title>
<style>body {{ font-family: sans-serif; max-width: 800px; margin: 2em auto }}</style>
<h1>Tree communication, counted</h1>
<p>Random faults on a model of the machine of Leu and Kuo, 1996: all counts are in <a href="all.csv">all.csv</a>,
tables in <a href="tables.md">tables.md</a>. Means are over patterns for which FIND_TREE found a sink.</p>
{body}"""
    (out / "index.html").write_text(page)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", default="3-10", help="of the hypercube: N, or FEWEST-MOST")
    parser.add_argument("--patterns", type=int, default=1000, help="for each number of faulty links and nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--optimum", type=int, default=7, help="looks for the best trees in up to so many dimensions")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "paper-out" / "tree")
    parser.add_argument("--csv", type=pathlib.Path, help="draws these counts, an all.csv, instead of counting")
    options = parser.parse_args()
    if options.csv:
        with open(options.csv, newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        rows = count(options)
    write(Counts(rows), rows, options.out)
    print(options.out / "index.html")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks the claims of the paper on tree communication (Leu and Kuo 1996) by counting with `ftsort-papers tree`.

Writes tables (CSV, Markdown), plots (SVG, PNG) and a page that shows them all to paper-out/tree. The same seed gives the
same files.
"""

import argparse
import pathlib
import subprocess
import sys
import time

import launch
import plots
import tables

FEW = 20  # Means of fewer patterns than this are not drawn.


def count(options):
    """Runs the simulator once for each size of the hypercube, and returns all rows."""
    fewest, _, most = options.dimensions.partition("-")
    sizes = range(int(fewest), int(most or fewest) + 1)
    # Each further dimension doubles the nodes and adds numbers of faults. The weights estimate the time.
    weights = {n: 2.3**n for n in sizes}
    rows, begin, done = [], time.monotonic(), 0.0
    for n in sizes:
        command = [launch.simulator(), "tree", "--dimensions", str(n), "--patterns", str(options.patterns)]
        command += ["--seed", str(options.seed), "--optimum", str(options.optimum)]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows += tables.parse(run.stdout)
        done += weights[n]
        spent = time.monotonic() - begin
        left = spent / done * (sum(weights.values()) - done)
        print(f"{n} dimensions done, {spent:.0f} s; about {left:.0f} s left", file=sys.stderr)
    return rows


class Counts:
    """The rows of the simulator, by cell."""

    def __init__(self, rows):
        self.rows = [{name: tables.number(cell) for name, cell in row.items()} for row in rows]
        self.sizes = sorted({int(row["dimensions"]) for row in self.rows})
        self.with_best = max((int(row["dimensions"]) for row in self.rows if row["tree_best"] is not None), default=None)

    def cell(self, n, nodes=0, sink="paper"):
        """Returns the rows of a size, by increasing number of faulty links."""
        own = [r for r in self.rows if (r["dimensions"], r["nodes"], r["sink"]) == (n, nodes, sink)]
        return sorted(own, key=lambda row: row["links"])

    def loads(self, n, nodes=0):
        own = [r for r in self.rows if (r["dimensions"], r["nodes"]) == (n, nodes)]
        return sorted({r["links_over_half"] for r in own})

    def at(self, n, load, nodes=0):
        """Returns the row with `load` times 2^(n-1) faulty links; "-" stands for 2^(n-1) - 1 links."""
        links = 2 ** (n - 1) - 1 if load == "-" else load * 2 ** (n - 1)
        return next((row for row in self.cell(n, nodes) if row["links"] == links), None)

    def found(self, n, nodes=0):
        """Returns points (load, share of the patterns for which FIND_TREE found a sink)."""
        by_load = {row["links_over_half"]: row["patterns"] / row["of"] for row in self.cell(n, nodes)}
        return [(load, by_load.get(load, 0.0)) for load in self.loads(n, nodes)]

    def line(self, n, column, nodes=0, scale=1.0):
        """Returns points (load, mean of a column) over the patterns for which FIND_TREE found a sink."""
        rows = [row for row in self.cell(n, nodes) if row["patterns"] >= FEW and row[column] is not None]
        return [(row["links_over_half"], row[column] * scale) for row in rows]


def plot(title, across, up, lines, mark=None, top=None):
    """Returns a figure of the lines (name, points). `mark`: the height of a horizontal line."""
    figure, axes = plots.axes(across, up, title, (7.6, 4.2))
    plots.lines(axes, lines, markersize=3)
    if mark is not None:
        axes.axhline(mark, color=plots.INK, linestyle="--", linewidth=1)
    axes.set_xlim(left=0)
    axes.set_ylim(0, top)
    figure.legend(loc="outside right upper")
    return figure


LINKS = "faulty links / 2^(n-1)"


def figures_of(counts):
    """Yields (name, sentence, title, vertical axis, lines, mark, top) of each figure."""
    every = [(f"n = {n}", n) for n in counts.sizes]
    last, best = counts.sizes[-1], counts.with_best
    of_each = lambda column: [(name, counts.line(n, column)) for name, n in every]
    of_last = lambda names, scale=1.0: [(name, counts.line(last, column, scale=scale)) for name, column in names]
    yield (
        "success", "The share of the patterns in which FIND_TREE finds a node without a faulty link. Theorem 3 guarantees it for values below 1.",
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
            "trees", f"Faulty links in the tree, mean, n = {best}: the unchanged tree, the heuristics, and the optimum.",
            f"Faulty links in the tree, n = {best}", "mean", [(name, counts.line(best, column)) for name, column in names], None, None,
        )
    yield (
        "steps", f"Steps over n, mean, n = {last}, counted as in the paper: its plan, rerouting, and its formulas.",
        f"Slowdown in steps, n = {last}", "steps / n",
        of_last([
            ("FTTC", "partition_steps"), ("n + k", "n_plus_k"), ("rerouting", "reroute_steps"), ("n + 2k", "n_plus_2k"),
            ("n + 3k", "n_plus_3k"),
        ], 1 / last), 2.0, None,
    )
    yield (
        "worst", "The largest slowdown of FTTC over all patterns. Theorem 5 guarantees less than 2 if no detour is needed.",
        "Worst slowdown of FTTC in steps", "steps / n", of_each("partition_slowdown_most"), 2.0, None,
    )
    yield (
        "detours", "The share of the patterns in which a node has no active neighbour that can help, a case that the paper omits.",
        "Patterns with a detour", "share of patterns", of_each("with_detour"), None, 1.05,
    )
    yield (
        "printed", "The share of the patterns in which FTTC exactly as in Figure 13 loses data or waits for ever.",
        "Figure 13 as printed fails", "share of patterns", of_each("printed_fails"), None, 1.05,
    )
    yield (
        "cut_off", "The share of the patterns in which nodes that are neither faulty nor isolated cannot reach the sink, a case that Theorem 7 omits.",
        "Nodes cut off that are not isolated", "share of patterns", of_each("cut_off"), None, None,
    )
    for machine, name, text in [
        ("one_port", "one_port", "one message in and out of a node at a time"),
        ("alone", "alone", "all ports, nodes that continue as soon as they have their data"),
    ]:
        yield (
            name, f"Steps over n, mean, n = {last}, on another machine: {text}.", f"Slowdown in steps, n = {last}: {text}", "steps / n",
            of_last([
                ("partition (paper)", f"partition_{machine}"), ("delegate to one", f"delegate_{machine}"), ("rerouting", f"reroute_{machine}"),
            ], 1 / last), None, None,
        )
    for sizes, text in [("keeps", "merging keeps sizes (sums)"), ("adds", "merging adds sizes (sorted lists)")]:
        yield (
            f"time_{sizes}", f"Time relative to that without faults, mean, n = {last}, if the largest message determines the time of each step; {text}.",
            f"Slowdown in sizes, n = {last}: {text}", "time / time without faults",
            of_last([
                ("partition (paper)", f"partition_time_{sizes}"), ("delegate to one", f"delegate_time_{sizes}"),
                ("rerouting", f"reroute_time_{sizes}"),
            ]), None, None,
        )


def cells(row, *formats):
    """Returns cells of a row as text. A format is "column:digits" for a mean, or "column:%" for a share."""
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


def tables_of(counts):
    """Yields (title, Markdown) of each table."""
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
    yield "FIND_TREE finds a sink, by faulty links over 2^(n-1)", tables.markdown(head, rows)

    each = [(n, load) for n in counts.sizes for load in (0.5, "-", 2) if counts.at(n, load)]
    named = lambda load: "2^(n-1) - 1" if load == "-" else f"{load:g} * 2^(n-1)"
    body = [
        [str(n), named(load)]
        + cells(counts.at(n, load), "tree_simple:2", "tree_found:2", "tree_added:2", "tree_same_sink:2", "tree_best:2", "found_is_best:%")
        for n, load in each
        if counts.at(n, load)["tree_best"] is not None
    ]
    head = ["n", "faulty links", "unchanged", "FIND_TREE", "added links", "best, same sink", "best", "FIND_TREE is best"]
    yield "Faulty links in the tree, means", tables.markdown(head, body)

    columns = [
        ("k", "faulty_stages:2"), ("n + k", "n_plus_k:2"), ("FTTC", "partition_steps:2"), ("worst", "partition_steps_most:0"),
        ("worst / n", "partition_slowdown_most:2"), ("2 or more", "partition_twice:%"), ("with a detour", "with_detour:%"),
        ("rerouting", "reroute_steps:2"), ("worst", "reroute_steps_most:0"), ("n + 2k", "n_plus_2k:2"), ("n + 3k", "n_plus_3k:2"),
    ]
    body = [[str(n), named(load)] + cells(counts.at(n, load), *[form for _, form in columns]) for n, load in each]
    yield "Steps as the paper counts them", tables.markdown(["n", "faulty links"] + [name for name, _ in columns], body)

    columns = [
        ("FTTC as printed waits", "printed_waits:%"), ("loses", "printed_loses:%"), ("does not hear", "printed_unexpected:%"),
        ("nodes cut off, not isolated", "cut_off:%"),
    ]
    body = [[str(n), named(load)] + cells(counts.at(n, load), *[form for _, form in columns]) for n, load in each]
    yield "Cases that the paper omits, shares of the patterns", tables.markdown(["n", "faulty links"] + [name for name, _ in columns], body)

    kinds = ["partition", "delegate", "reroute"]
    columns = [("steps", "2"), ("one_port", "2"), ("alone", "2"), ("hops", "1"), ("time_keeps", "3"), ("time_adds", "3")]
    head = ["n", "faulty links", "plan", "steps", "one port", "not waiting for stages", "hops", "time, sums", "time, lists"]
    body = [
        [str(n), named(load), kind] + cells(counts.at(n, load), *[f"{kind}_{name}:{digits}" for name, digits in columns])
        for n, load in each
        if n == counts.sizes[-1]
        for kind in kinds
    ]
    yield "Three plans on three machines, means", tables.markdown(head, body)

    body = []
    for n in counts.sizes:
        for nodes in sorted({0, 1, 2**n // 8}):
            row = counts.at(n, "-", nodes)
            share = dict(counts.found(n, nodes)).get(row["links_over_half"], 0.0) if row else 0.0
            columns = ["faulty_stages:2", "partition_steps:2", "partition_slowdown_most:2", "with_detour:%", "reroute_steps:2"]
            body.append([str(n), str(nodes), f"{100 * share:.1f} %"] + cells(row, *columns))
    head = ["n", "faulty nodes", "FIND_TREE finds a sink", "k", "FTTC", "worst / n", "with a detour", "rerouting"]
    yield "With faulty nodes besides 2^(n-1) - 1 faulty links", tables.markdown(head, body)


def write(counts, rows, out):
    tables.write(out / "all.csv", rows)
    page = plots.Page(
        out, "Tree communication, counted",
        "Random faults on a model of the machine of Leu and Kuo, 1996. Means are over the patterns for which FIND_TREE found "
        "a sink.")
    page.links(["all.csv", "tables.md"])
    for name, sentence, title, up, lines, mark, top in figures_of(counts):
        lines = [(label, line) for label, line in lines if line]
        if not lines:
            continue
        tables.write(out / f"{name}.csv", [{"line": label, LINKS: x, up: y} for label, line in lines for x, y in line])
        page.figure(plot(title, LINKS, up, lines, mark, top), name, sentence, legend=False)
        page.links([f"{name}.csv"])
    texts = [f"### {title}\n\n{text}\n" for title, text in tables_of(counts)]
    (out / "tables.md").write_text("\n".join(texts), encoding="utf-8")
    return page.write()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dimensions", default="3-10", help="dimensions of the hypercube: N, or FEWEST-MOST")
    parser.add_argument("--patterns", type=int, default=1000, help="patterns for each number of faulty links and nodes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--optimum", type=int, default=7, help="search the best trees in up to this many dimensions")
    parser.add_argument("--out", type=pathlib.Path, default=launch.ROOT / "paper-out" / "tree")
    parser.add_argument("--csv", type=pathlib.Path, help="draw the counts of this all.csv instead of counting")
    options = parser.parse_args()
    if options.csv:
        rows = tables.read(options.csv)
    else:
        rows = count(options)
    print(write(Counts(rows), rows, options.out))


if __name__ == "__main__":
    main()

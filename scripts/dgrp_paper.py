#!/usr/bin/env python3
"""The 2018 paper's experiments on monitoring (Figures 7 to 13, Table 3), on made-up hosts, and what goes past
them: runs `ftsort-sim dgrp`, and writes into paper-out/dgrp its tables (CSV), the figures (SVG and PNG), and
index.html. Nothing here is time on a real machine. The same seed gives the same files. The hosts of the paper are
played with several seeds, for medians: the first seed's run has the figures.
"""

import argparse
import csv
import html
import os
import pathlib
import statistics
import subprocess
import sys

import plots

plots.ensure()

import matplotlib  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as pyplot  # noqa: E402
import numpy  # noqa: E402

VARIANTS = {
    "paper": "the paper's rules",
    "self_doubt": "with self-doubt",
    "self_doubt_strict": "with self-doubt, late replies not learnt",
    "vcube": "VCube's graph",
}
SPREADS = {"lognormal": "lognormal, sigma 0.5", "pareto": "Pareto, alpha 2.5"}


def program():
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", plots.ROOT / "target"))
    return folder / "release" / "ftsort-sim"


def seed_folder(options, seed):
    """Where the tables of a seed's cluster are: beside everything else for the first."""
    return options.out if seed == options.seed else options.out / f"seed{seed}"


def play(options):
    """Runs the simulations, unless their files are only to be drawn."""
    if options.draw:
        return
    common = ["--seed", str(options.seed), "--out", str(options.out)]
    crowd = ["crowd", "--ranks", str(options.ranks), "--seconds", str(options.seconds), "--spread"]
    for seed in range(options.seed + 1, options.seed + options.seeds):
        arguments = ["--seed", str(seed), "--out", str(seed_folder(options, seed))]
        subprocess.run([program(), "dgrp", "cluster", "--intervals", str(options.intervals), *arguments], check=True)
    for arguments in (["few"], ["cluster", "--intervals", str(options.intervals)], *([*crowd, spread] for spread in SPREADS)):
        subprocess.run([program(), "dgrp", *arguments, *common], check=True)


def number(text):
    try:
        return float(text)
    except ValueError:
        return {"true": True, "false": False}.get(text, text)


def table(folder, name):
    with open(folder / f"{name}.csv", newline="") as file:
        return [{key: number(value) for key, value in row.items()} for row in csv.DictReader(file)]


def chosen(rows, **values):
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def column(rows, name):
    return numpy.array([row[name] for row in rows], dtype=float)


class Page:
    """The figures, each with its sentence."""

    def __init__(self, folder):
        self.folder, self.parts = folder, []

    def axes(self, across, up, title, **more):
        figure, axes = pyplot.subplots(figsize=(6.8, 4.0), layout="constrained")
        axes.set(xlabel=across, ylabel=up, title=title, **more)
        axes.grid(alpha=0.3)
        return figure, axes

    def add(self, figure, name, sentence, legend=True):
        axes = figure.axes[0]
        if legend:
            axes.legend()
        plots.save(figure, self.folder, name)
        self.parts.append(f"<h2>{html.escape(sentence)}</h2><img src='{name}.svg' alt=''>")

    def write(self):
        style = ("body{font:16px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}img{max-width:100%}"
                 "table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ccc}"
                 "h2{font-size:16px}")
        head = ("<!doctype html><meta charset='utf-8'><title>DGRP on made-up hosts</title>"
                f"<style>{style}</style><h1>The group of recommended processes, on made-up hosts</h1>"
                "<p>The 2018 paper's experiments on monitoring, simulated: the numbers of jobs are the paper's Table 3, "
                "what they do to a process is made up. Not time on a real machine. All numbers: "
                + ", ".join(f"<a href='{path.name}'>{path.name}</a>" for path in sorted(self.folder.glob("*.csv")))
                + ".</p>")
        (self.folder / "index.html").write_text(head + "\n".join(self.parts))


def thinned(rows, most=3000):
    """Fewer points, but the highest of each stretch, so that no peak is lost."""
    step = max(1, len(rows) // most)
    return [max(rows[start:start + step], key=lambda row: row["reply_ms"]) for start in range(0, len(rows), step)]


def series(page, rows, name, sentence, divide=1.0):
    figure, axes = page.axes("testing interval", "ms", name.replace("_", " "))
    if not rows:
        pyplot.close(figure)
        return
    axes.plot(column(rows, "seconds"), column(rows, "reply_ms"), color="black", linewidth=0.8, label="time to test")
    axes.plot(column(rows, "seconds"), column(rows, "threshold_ms") / divide, color="#d1495b", linewidth=0.9,
              linestyle="--", label="threshold")
    top = numpy.percentile(column(rows, "threshold_ms") / divide, 99) * 1.6
    axes.set_ylim(0, top)
    late = [row for row in rows if row["reply_ms"] > row["threshold_ms"] / divide]
    if late:
        heights = numpy.minimum(column(late, "reply_ms"), 0.97 * top)
        axes.plot(column(late, "seconds"), heights, "o", mfc="none", color="#1b6ca8", label="too late")
    page.add(figure, name, sentence)


def tests(page, rows):
    of = lambda tester, tested: chosen(rows, tester=tester, tested=tested)
    quiet = [row for row in of(1, 0) if 100 <= row["seconds"] < 250]
    late = sum(row["reply_ms"] > row["threshold_ms"] / 2.5 for row in quiet)
    series(page, quiet, "figure7", "Figure 7: rank 1 tests rank 0 for 150 intervals, with a threshold that is the timeout "
           f"itself (multiple 1): {late} of {len(quiet)} replies would be too late.", 2.5)
    for name, tester, tested, text in [
        ("figure8", 11, 2, "a host with few jobs tests the one with the most"),
        ("figure9", 6, 2, "another one tests the same"),
        ("figure10", 0, 11, "a busy host's rank tests an idle one's: little variation"),
    ]:
        own = of(tester, tested)
        late = sum(row["reply_ms"] > row["threshold_ms"] for row in own)
        series(page, thinned(own), name, f"Figure {name[6:]}: rank {tester} tests rank {tested} ({text}): {late} of "
               f"{len(own)} replies came too late.")
    own = of(6, 2)
    late = [row for row in own if row["reply_ms"] > row["threshold_ms"]]
    if late:
        middle = late[0]["seconds"]
        series(page, [row for row in own if abs(row["seconds"] - middle) < 250], "figure11",
               "Figure 11: 500 intervals of Figure 9, around the first reply that came too late. Each slow reply, late "
               "or not, raises the threshold, which takes some sixty intervals to come down.")
    out = [row for row in own if row["counter"] % 2 == 1]
    if out:
        middle = out[0]["seconds"]
        near = [row for row in own if abs(row["seconds"] - middle) < 40]
        figure, axes = page.axes("testing interval", "good tests in a row", "figure12")
        axes.step(column(near, "seconds"), column(near, "good_in_row"), where="post", label="since rank 2 left or failed")
        axes.step(column(near, "seconds"), 5 * (column(near, "counter") % 2), where="post", label="5: rank 2 is out")
        axes.set_ylim(0, 12)
        page.add(figure, "figure12", "Figure 12: how rank 6 counts good tests of rank 2 from when that left the group; at "
                 "zeta = 5 the leader is asked for a decision.")


def sizes(page, rows, last):
    figure, axes = page.axes("testing interval", "ranks in the group", "figure13", ylim=(0, 18.8))
    least = {}
    for variant in ("paper", "self_doubt"):
        own = chosen(rows, variant=variant)
        across = numpy.append(column(own, "interval"), last)
        up = numpy.append(column(own, "size"), own[-1]["size"])
        axes.step(across, up, where="post", linewidth=0.9, label=VARIANTS[variant])
        least[variant] = min(own, key=lambda row: row["size"])
    page.add(figure, "figure13", "Figure 13: how many ranks are in the group; at the least "
             + ", ".join(f"{row['size']:.0f} {VARIANTS[variant]}" for variant, row in least.items()) + ".")
    middle = least["paper"]["interval"]
    figure, axes = page.axes("testing interval", "ranks in the group", "figure13 zoom", ylim=(0, 18.8))
    for variant in least:
        own = chosen(rows, variant=variant)
        at = numpy.arange(max(1, middle - 30), middle + 70)
        places = numpy.searchsorted(column(own, "interval"), at, side="right") - 1
        axes.step(at, column(own, "size")[places], where="post", label=VARIANTS[variant])
    page.add(figure, "figure13_zoom", "Figure 13, enlarged: where the group was smallest. A tester that stood still for an "
             "instant takes all others for slow; one that doubts itself reports nothing.")


def states(page, rows):
    figure, axes = page.axes("host (jobs of 32 cores)", "state counter at the end", "table3")
    paper = chosen(rows, variant="paper")
    places = numpy.arange(len(paper))
    bars = [("the paper's Table 3", column(paper, "paper_counter"))]
    bars += [(text, column(chosen(rows, variant=name), "counter")) for name, text in list(VARIANTS.items())[:2]]
    for index, (label, heights) in enumerate(bars):
        axes.bar(places + 0.27 * (index - 1), heights, 0.27, label=label)
    axes.set_xticks(places, [f"{row['host']:.0f}\n({row['jobs']:.0f})" for row in paper], fontsize=8)
    page.add(figure, "table3", "Table 3: the state counters at the end, beside the paper's.")
    header = "".join(f"<th>{text}" for text in ["host", "jobs", "Table 3", *VARIANTS.values()])
    page.parts.append(f"<table><tr>{header}")
    for row in paper:
        own = [chosen(rows, variant=name, host=row["host"])[0]["counter"] for name in VARIANTS]
        cells = [row["host"], row["jobs"], row["paper_counter"], *own]
        page.parts.append("<tr>" + "".join(f"<td>{cell:.0f}" for cell in cells))
    sums = [sum(row["counter"] for row in chosen(rows, variant=name)) for name in VARIANTS]
    rates = [chosen(rows, variant=name)[0]["messages_per_rank_and_second"] for name in VARIANTS]
    total = sum(row["paper_counter"] for row in paper)
    page.parts.append("<tr>" + "".join(f"<td>{cell}" for cell in ["sum", "", f"{total:.0f}", *(f"{s:.0f}" for s in sums)]))
    page.parts.append("<tr>" + "".join(f"<td>{cell}" for cell in ["messages", "", "", *rates]) + "</table>")


def seeds(page, options):
    """What came of the paper's hosts with each seed, and the medians."""
    header = ["seed", "variant", "sum_of_counters", "exclusions", "highest_counter", "smallest_group"]
    rows = []
    for seed in range(options.seed, options.seed + options.seeds):
        folder = seed_folder(options, seed)
        counters, groups = table(folder, "states"), table(folder, "sizes")
        for variant in VARIANTS:
            own = column(chosen(counters, variant=variant), "counter")
            least = min(row["size"] for row in chosen(groups, variant=variant))
            rows.append([seed, variant, int(own.sum()), int(numpy.ceil(own / 2).sum()), int(own.max()), int(least)])
    with open(options.out / "seeds.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    page.parts.append("<h2>The paper's hosts with several seeds: medians, and from the least to the most</h2><table><tr>"
                      + "".join(f"<th>{text}" for text in ["variant", *header[2:]]))
    for variant, text in VARIANTS.items():
        columns = list(zip(*[row[2:] for row in rows if row[1] == variant]))
        cells = [f"{statistics.median(values):g} ({min(values)} to {max(values)})" for values in columns]
        print(f"{text}, {options.seeds} seeds: " + "; ".join(f"{name} {cell}" for name, cell in zip(header[2:], cells)))
        page.parts.append(f"<tr><td>{html.escape(text)}" + "".join(f"<td>{cell}" for cell in cells))
    page.parts.append("</table>")


def once(rows):
    """One row for each setting, whatever was ill."""
    return [row for row in rows if row["slowdown"] == 3]


def errors(page, rows):
    for rule, across in [("threshold", "factor (threshold = timeout * factor)"), ("phi", "phi limit")]:
        figure, axes = page.axes(across, "false exclusions per rank-hour in the group", f"false exclusions, {rule}",
                                 yscale="log")
        for colour, (spread, text) in zip(("#1b6ca8", "#d1495b"), SPREADS.items()):
            for doubt, line in ((False, "-"), (True, "--")):
                own = once(chosen(rows, rule=rule, spread=spread, self_doubt=doubt))
                if not own:
                    continue
                up = column(own, "false_exclusions") / column(own, "rank_hours")
                axes.plot(column(own, "value"), up, line, marker="o", color=colour,
                          label=text + (", self-doubt" if doubt else ""))
        page.add(figure, f"false_{rule}", f"How often a rank is excluded that was not made slow and did not stand still, "
                 f"by the {'factor' if rule == 'threshold' else 'limit of phi'}.")
    figure, axes = page.axes("factor (threshold = timeout * factor)", "share of the ranks", "outside of the group", yscale="log")
    for spread, text in SPREADS.items():
        own = once(chosen(rows, rule="threshold", spread=spread, self_doubt=False))
        axes.plot(column(own, "value"), column(own, "outside"), marker="o", label=text)
    page.add(figure, "outside", "What share of the ranks is out, at any time, though nobody made them slow: below a factor "
             "of 2 the group falls apart.")


def latencies(page, rows):
    kinds = {3.0: "3 times as slow", 10.0: "10 times", 30.0: "30 times", float("inf"): "stopped"}
    for spread, text in SPREADS.items():
        own = chosen(rows, rule="threshold", spread=spread, self_doubt=False)
        figure, axes = page.axes("factor (threshold = timeout * factor)", "share noticed within 8 s", text, ylim=(0, 1.05))
        for slowdown, label in kinds.items():
            ill = [row for row in own if row["slowdown"] == slowdown and row["ill"] > 0]
            axes.plot(column(ill, "value"), column(ill, "noticed") / column(ill, "ill"), marker="o", label=label)
        page.add(figure, f"noticed_{spread}", f"Which share of slow ranks is noticed at all; times of tests {text}.")
    own = chosen(rows, rule="threshold", spread="lognormal", self_doubt=False)
    figure, axes = page.axes("factor (threshold = timeout * factor)", "s, mean", "latency, lognormal", ylim=(0, 6))
    for slowdown, label in kinds.items():
        ill = [row for row in own if row["slowdown"] == slowdown and row["noticed"] > 4]
        line, = axes.plot(column(ill, "value"), column(ill, "notice_mean_s"), marker="o", label=f"{label}: noticed")
        known = [row for row in ill if row["known_mean_s"] > 0]
        axes.plot(column(known, "value"), column(known, "known_mean_s"), "--", color=line.get_color())
    page.add(figure, "latency", "After how many seconds a slow rank is excluded by its first tester, and (dashed) known to "
             "all; of those that are noticed.")


def tradeoff(page, rows):
    for spread, text in SPREADS.items():
        figure, axes = page.axes("false exclusions per rank-hour in the group", "share not noticed, 10 times as slow",
                                 f"threshold against phi, {text}", xscale="symlog")
        for rule in ("threshold", "phi"):
            own = chosen(rows, rule=rule, spread=spread, self_doubt=False, slowdown=10.0)
            own = [row for row in own if row["ill"] > 10]
            across = column(own, "false_exclusions") / column(own, "rank_hours")
            up = 1 - column(own, "noticed") / column(own, "ill")
            line, = axes.plot(across, up, marker="o", label=rule)
            for row, x, y in zip(own, across, up):
                axes.annotate(f"{row['value']:g}", (x, y), textcoords="offset points", xytext=(4, 4), fontsize=8,
                              color=line.get_color())
        page.add(figure, f"tradeoff_{spread}", f"What a smaller limit buys: errors against slow ranks that are missed; {text}. "
                 "Lower and further left is better.")


def others(page, slow, rounds):
    figure, axes = page.axes("times as slow, for good", "share of the next 1000 s in the group", "slow for good",
                             xscale="log", ylim=(0, 1.05))
    for learn, text in ((True, "Algorithm 1: late replies are learnt from"), (False, "they are not")):
        own = chosen(slow, learn_late=learn)
        axes.plot(column(own, "slowdown"), column(own, "recommended_share"), marker="o", label=text)
    page.add(figure, "slow_for_good", "A rank that becomes slow for good: the paper's testers get used to it within a few "
             "tests and take it back.")
    figure, axes = page.axes("factor (threshold = timeout * factor)", "share of rank-intervals", "by figures, 16 ranks",
                             yscale="log")
    for spread, text in SPREADS.items():
        own = once(chosen(rounds, rule="threshold", spread=spread))
        axes.plot(column(own, "value"), column(own, "false_exclusions") / column(own, "rank_intervals"), marker="o",
                  label=f"false exclusions, {text}")
        own = chosen(rounds, rule="threshold", spread=spread, slowdown=10.0)
        axes.plot(column(own, "value"), 1 - column(own, "noticed") / column(own, "ill"), "--", marker="x",
                  label=f"10 times as slow, missed, {text}")
    page.add(figure, "rounds", "The same rules without messages, on figures that all ranks know (Foreground): errors, and "
             "slow ones missed.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, default=30_000, help="of the cluster, one second each")
    parser.add_argument("--ranks", type=int, default=1024, help="of the crowd")
    parser.add_argument("--seconds", type=int, default=40, help="of the crowd that are counted")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5, help="so many from --seed on, of the cluster")
    parser.add_argument("--out", type=pathlib.Path, default=plots.ROOT / "paper-out" / "dgrp")
    parser.add_argument("--draw", action="store_true", help="only draw what is there")
    options = parser.parse_args()
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    play(options)
    page = Page(options.out)
    tests(page, table(options.out, "samples"))
    sizes(page, table(options.out, "sizes"), options.intervals)
    states(page, table(options.out, "states"))
    seeds(page, options)
    crowd = [row for spread in SPREADS for row in table(options.out, f"crowd_{spread}")]
    errors(page, crowd)
    latencies(page, crowd)
    tradeoff(page, crowd)
    others(page, table(options.out, "slow"), table(options.out, "rounds"))
    page.write()
    print(options.out / "index.html")


if __name__ == "__main__":
    sys.exit(main())

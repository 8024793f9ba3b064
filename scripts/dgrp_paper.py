#!/usr/bin/env python3
"""Repeats the experiments on monitoring of the 2018 paper (Figures 7 to 13, Table 3) on simulated hosts, with extensions.

Runs `ftsort-papers dgrp` and writes its tables (CSV), the figures (SVG and PNG) and index.html to paper-out/dgrp. No time
here is a time of a real machine. The same seed gives the same files. The hosts of the paper are simulated with several
seeds, for medians; the figures are those of the first seed.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys

import launch
import plots
import tables
from plots import numpy, pyplot
from tables import chosen

VARIANTS = {
    "paper": "rules of the paper",
    "self_doubt": "with self-doubt",
    "self_doubt_strict": "with self-doubt, late replies not learned",
    "vcube": "graph of VCube",
}
SPREADS = {"lognormal": "lognormal, sigma 0.5", "pareto": "Pareto, alpha 2.5"}


def seed_folder(options, seed):
    """Returns the folder for the tables of a seed: the output folder itself for the first seed."""
    return options.out if seed == options.seed else options.out / f"seed{seed}"


def simulate(options):
    """Runs the simulations, unless --draw is given."""
    if options.draw:
        return
    common = ["--seed", str(options.seed), "--out", str(options.out)]
    large = ["large", "--ranks", str(options.ranks), "--seconds", str(options.seconds), "--distribution"]
    for seed in range(options.seed + 1, options.seed + options.seeds):
        arguments = ["--seed", str(seed), "--out", str(seed_folder(options, seed))]
        subprocess.run([launch.simulator(), "dgrp", "cluster", "--intervals", str(options.intervals), *arguments], check=True)
    cluster = ["cluster", "--intervals", str(options.intervals)]
    for arguments in (["small"], cluster, *([*large, spread] for spread in SPREADS)):
        subprocess.run([launch.simulator(), "dgrp", *arguments, *common], check=True)


def table(folder, name):
    return tables.read_numbers(folder / f"{name}.csv")


def column(rows, name):
    return numpy.array([row[name] for row in rows], dtype=float)


def thinned(rows, most=3000):
    """Returns fewer points: the highest one of each interval, so that no peak is lost."""
    step = max(1, len(rows) // most)
    return [max(rows[start:start + step], key=lambda row: row["reply_ms"]) for start in range(0, len(rows), step)]


def series(page, rows, name, sentence, divide=1.0):
    figure, axes = plots.axes("testing interval", "ms", name.replace("_", " "))
    if not rows:
        pyplot.close(figure)
        return
    axes.plot(column(rows, "seconds"), column(rows, "reply_ms"), color=plots.INK, linewidth=0.8, label="time of a test")
    axes.plot(column(rows, "seconds"), column(rows, "threshold_ms") / divide, color=plots.RED, linewidth=0.9,
              linestyle="--", label="threshold")
    top = numpy.percentile(column(rows, "threshold_ms") / divide, 99) * 1.6
    axes.set_ylim(0, top)
    late = [row for row in rows if row["reply_ms"] > row["threshold_ms"] / divide]
    if late:
        heights = numpy.minimum(column(late, "reply_ms"), 0.97 * top)
        axes.plot(column(late, "seconds"), heights, "o", mfc="none", color=plots.BLUE, label="too late")
    page.figure(figure, name, sentence)


def tests(page, rows):
    of = lambda tester, tested: chosen(rows, tester=tester, tested=tested)
    quiet = [row for row in of(1, 0) if 100 <= row["seconds"] < 250]
    late = sum(row["reply_ms"] > row["threshold_ms"] / 2.5 for row in quiet)
    series(page, quiet, "figure7", "Figure 7: rank 1 tests rank 0 for 150 intervals. With a threshold equal to the timeout "
           f"(factor 1), {late} of {len(quiet)} replies would be too late.", 2.5)
    for name, tester, tested, text in [
        ("figure8", 11, 2, "a host with few jobs tests the one with the most"),
        ("figure9", 6, 2, "another host tests the same one"),
        ("figure10", 0, 11, "a rank of a busy host tests one of an idle host: little variation"),
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
               "Figure 11: 500 intervals of Figure 9, around the first reply that was too late. Each slow reply, "
               "late or not, raises the threshold, which needs about sixty intervals to fall again.")
    out = [row for row in own if row["counter"] % 2 == 1]
    if out:
        middle = out[0]["seconds"]
        near = [row for row in own if abs(row["seconds"] - middle) < 40]
        figure, axes = plots.axes("testing interval", "successful tests in a row", "figure12")
        axes.step(column(near, "seconds"), column(near, "passed_in_row"), where="post", label="since rank 2 was excluded or failed a test")
        axes.step(column(near, "seconds"), 5 * (column(near, "counter") % 2), where="post", label="5: rank 2 is excluded")
        axes.set_ylim(0, 12)
        page.figure(figure, "figure12", "Figure 12: the number of successful tests of rank 2 by rank 6 since rank 2 was excluded. "
                    "At zeta = 5, rank 6 asks the leader for a decision.")


def sizes(page, rows, last):
    figure, axes = plots.axes("testing interval", "ranks in the group", "figure13", ylim=(0, 18.8))
    least = {}
    for variant in ("paper", "self_doubt"):
        own = chosen(rows, variant=variant)
        across = numpy.append(column(own, "interval"), last)
        up = numpy.append(column(own, "size"), own[-1]["size"])
        axes.step(across, up, where="post", linewidth=0.9, label=VARIANTS[variant])
        least[variant] = min(own, key=lambda row: row["size"])
    page.figure(figure, "figure13", "Figure 13: the number of ranks in the group. Its smallest value is "
             + ", ".join(f"{row['size']:.0f} ({VARIANTS[variant]})" for variant, row in least.items()) + ".")
    middle = least["paper"]["interval"]
    figure, axes = plots.axes("testing interval", "ranks in the group", "figure13 zoom", ylim=(0, 18.8))
    for variant in least:
        own = chosen(rows, variant=variant)
        at = numpy.arange(max(1, middle - 30), middle + 70)
        places = numpy.searchsorted(column(own, "interval"), at, side="right") - 1
        axes.step(at, column(own, "size")[places], where="post", label=VARIANTS[variant])
    page.figure(figure, "figure13_zoom", "Figure 13, enlarged around the smallest group. A tester that was stopped for an "
                "instant finds all other ranks slow. A tester with self-doubt reports nothing.")


def states(page, rows):
    figure, axes = plots.axes("host (jobs of 32 cores)", "state counter at the end", "table3")
    paper = chosen(rows, variant="paper")
    places = numpy.arange(len(paper))
    bars = [("Table 3 of the paper", column(paper, "paper_counter"))]
    bars += [(text, column(chosen(rows, variant=name), "counter")) for name, text in list(VARIANTS.items())[:2]]
    for index, (label, heights) in enumerate(bars):
        axes.bar(places + 0.27 * (index - 1), heights, 0.27, label=label)
    axes.set_xticks(places, [f"{row['host']:.0f}\n({row['jobs']:.0f})" for row in paper], fontsize=8)
    page.figure(figure, "table3", "Table 3: the state counters at the end, and those of the paper.")
    body = []
    for row in paper:
        own = [chosen(rows, variant=name, host=row["host"])[0]["counter"] for name in VARIANTS]
        body.append([f"{cell:.0f}" for cell in (row["host"], row["jobs"], row["paper_counter"], *own)])
    sums = [sum(row["counter"] for row in chosen(rows, variant=name)) for name in VARIANTS]
    total = sum(row["paper_counter"] for row in paper)
    body.append(["sum", "", *(f"{cell:.0f}" for cell in (total, *sums))])
    rates = [chosen(rows, variant=name)[0]["messages_per_rank_and_second"] for name in VARIANTS]
    body.append(["messages per rank and second", "", "", *rates])
    page.table(["host", "jobs", "Table 3", *VARIANTS.values()], body)


def seeds(page, options):
    """Writes the results for the hosts of the paper by seed, and their medians."""
    counted = ["sum_of_counters", "exclusions", "highest_counter", "smallest_group"]
    rows = []
    for seed in range(options.seed, options.seed + options.seeds):
        folder = seed_folder(options, seed)
        counters, groups = table(folder, "states"), table(folder, "sizes")
        for variant in VARIANTS:
            own = column(chosen(counters, variant=variant), "counter")
            least = min(row["size"] for row in chosen(groups, variant=variant))
            values = [own.sum(), numpy.ceil(own / 2).sum(), own.max(), least]
            rows.append({"seed": seed, "variant": variant, **dict(zip(counted, map(int, values)))})
    tables.write(options.out / "seeds.csv", rows)
    body = []
    for variant, text in VARIANTS.items():
        own = chosen(rows, variant=variant)
        columns = [[row[name] for row in own] for name in counted]
        cells = [f"{statistics.median(values):g} ({min(values)} to {max(values)})" for values in columns]
        print(f"{text}, {options.seeds} seeds: " + "; ".join(f"{name} {cell}" for name, cell in zip(counted, cells)))
        body.append([text, *cells])
    page.heading("The hosts of the paper with several seeds: median, smallest and largest value")
    page.table(["variant", *counted], body)


def once(rows):
    """Returns one row for each setting, without repetitions for other slowdowns."""
    return [row for row in rows if row["slowdown"] == 3]


def errors(page, rows):
    for rule, across in [("threshold", "factor (threshold = timeout * factor)"), ("phi", "phi limit")]:
        figure, axes = plots.axes(across, "false exclusions per rank-hour in the group", f"false exclusions, {rule}",
                                 yscale="log")
        for colour, (spread, text) in zip((plots.BLUE, plots.RED), SPREADS.items()):
            for doubt, line in ((False, "-"), (True, "--")):
                own = once(chosen(rows, rule=rule, distribution=spread, self_doubt=doubt))
                if not own:
                    continue
                up = column(own, "false_exclusions") / column(own, "rank_hours")
                axes.plot(column(own, "value"), up, line, marker="o", color=colour,
                          label=text + (", self-doubt" if doubt else ""))
        page.figure(figure, f"false_{rule}", f"False exclusions of ranks that were neither slowed down nor stopped, by the "
                    f"{'factor' if rule == 'threshold' else 'limit of phi'}.")
    figure, axes = plots.axes("factor (threshold = timeout * factor)", "share of the ranks", "outside of the group", yscale="log")
    for spread, text in SPREADS.items():
        own = once(chosen(rows, rule="threshold", distribution=spread, self_doubt=False))
        axes.plot(column(own, "value"), column(own, "outside"), marker="o", label=text)
    page.figure(figure, "outside", "The share of the ranks that are excluded at any time although they were not slowed down. With "
                "a factor below 2 the group collapses.")


def latencies(page, rows):
    kinds = {3.0: "3 times as slow", 10.0: "10 times", 30.0: "30 times", float("inf"): "stopped"}
    for spread, text in SPREADS.items():
        own = chosen(rows, rule="threshold", distribution=spread, self_doubt=False)
        figure, axes = plots.axes("factor (threshold = timeout * factor)", "share detected within 8 s", text, ylim=(0, 1.05))
        for slowdown, label in kinds.items():
            slowed = [row for row in own if row["slowdown"] == slowdown and row["slowed"] > 0]
            axes.plot(column(slowed, "value"), column(slowed, "detected") / column(slowed, "slowed"), marker="o", label=label)
        page.figure(figure, f"noticed_{spread}", f"The share of the slow ranks that are detected. Distribution of the test times: {text}.")
    own = chosen(rows, rule="threshold", distribution="lognormal", self_doubt=False)
    figure, axes = plots.axes("factor (threshold = timeout * factor)", "s, mean", "latency, lognormal", ylim=(0, 6))
    for slowdown, label in kinds.items():
        slowed = [row for row in own if row["slowdown"] == slowdown and row["detected"] > 4]
        line, = axes.plot(column(slowed, "value"), column(slowed, "detect_mean_s"), marker="o", label=f"{label}: detected")
        known = [row for row in slowed if row["known_mean_s"] > 0]
        axes.plot(column(known, "value"), column(known, "known_mean_s"), "--", color=line.get_color())
    page.figure(figure, "latency", "Seconds until a slow rank is excluded by its first tester (solid) and known to all ranks "
                "(dashed), over the ranks that are detected.")


def tradeoff(page, rows):
    for spread, text in SPREADS.items():
        figure, axes = plots.axes("false exclusions per rank-hour in the group", "share not detected, 10 times as slow",
                                 f"threshold against phi, {text}", xscale="symlog")
        for rule in ("threshold", "phi"):
            own = chosen(rows, rule=rule, distribution=spread, self_doubt=False, slowdown=10.0)
            own = [row for row in own if row["slowed"] > 10]
            across = column(own, "false_exclusions") / column(own, "rank_hours")
            up = 1 - column(own, "detected") / column(own, "slowed")
            line, = axes.plot(across, up, marker="o", label=rule)
            for row, x, y in zip(own, across, up):
                axes.annotate(f"{row['value']:g}", (x, y), textcoords="offset points", xytext=(4, 4), fontsize=8,
                              color=line.get_color())
        page.figure(figure, f"tradeoff_{spread}", f"False exclusions against missed slow ranks, {text}. Lower and further left "
                    "is better.")


def others(page, slow, rounds):
    figure, axes = plots.axes("slowdown, permanent", "share of the next 1000 s in the group", "permanently slow rank",
                             xscale="log", ylim=(0, 1.05))
    for learn, text in ((True, "Algorithm 1: late replies change the timeout"), (False, "late replies are ignored")):
        own = chosen(slow, learn_late=learn)
        axes.plot(column(own, "slowdown"), column(own, "recommended_share"), marker="o", label=text)
    page.figure(figure, "slow_for_good", "A rank that becomes slow permanently. The testers of the paper adapt to it within a few "
                "tests and admit it again.")
    figure, axes = plots.axes("factor (threshold = timeout * factor)", "share of rank-intervals", "without messages, 16 ranks",
                             yscale="log")
    for spread, text in SPREADS.items():
        own = once(chosen(rounds, rule="threshold", distribution=spread))
        axes.plot(column(own, "value"), column(own, "false_exclusions") / column(own, "rank_intervals"), marker="o",
                  label=f"false exclusions, {text}")
        own = chosen(rounds, rule="threshold", distribution=spread, slowdown=10.0)
        axes.plot(column(own, "value"), 1 - column(own, "detected") / column(own, "slowed"), "--", marker="x",
                  label=f"10 times as slow, missed, {text}")
    page.figure(figure, "rounds", "The same rules without messages, on values that all ranks know (Foreground): false exclusions, "
                "and missed slow ranks.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, default=30_000, help="testing intervals of the cluster, one second each")
    parser.add_argument("--ranks", type=int, default=1024, help="ranks of the large simulation")
    parser.add_argument("--seconds", type=int, default=40, help="counted seconds of the large simulation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds for the cluster, from --seed on")
    parser.add_argument("--out", type=pathlib.Path, default=plots.ROOT / "paper-out" / "dgrp")
    parser.add_argument("--draw", action="store_true", help="only draw the files of an earlier run")
    options = parser.parse_args()
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    simulate(options)
    page = plots.Page(
        options.out, "The group of recommended processes on simulated hosts",
        "The experiments on monitoring of the 2018 paper, simulated. The numbers of jobs are those of Table 3; their effect on "
        "a process is modelled. No time here is a time of a real machine.")
    tests(page, table(options.out, "samples"))
    sizes(page, table(options.out, "sizes"), options.intervals)
    states(page, table(options.out, "states"))
    seeds(page, options)
    large = [row for spread in SPREADS for row in table(options.out, f"large_{spread}")]
    errors(page, large)
    latencies(page, large)
    tradeoff(page, large)
    others(page, table(options.out, "slow"), table(options.out, "foreground"))
    page.heading("All numbers")
    page.links(path.name for path in sorted(options.out.glob("*.csv")))
    print(page.write())


if __name__ == "__main__":
    sys.exit(main())

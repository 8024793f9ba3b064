#!/usr/bin/env python3
"""Draws the pictures of the documentation: docs/pictures/*.svg from the tables in docs/data/*.csv.

Measures nothing. The first line of each table says which command made it. The same tables give the same files;
--check compares them with those that are there and fails if one differs.
"""

import argparse
import pathlib
import sys
import tempfile

import plots
import tables
from plots import BLUE, GREEN, GREY, INK, ORANGE, PAPER, PURPLE, RED, TEAL

DATA = plots.ROOT / "docs" / "data"
PICTURES = plots.ROOT / "docs" / "pictures"
MOST_BYTES = 100_000
PHASES = {"protect": ("protect the input", RED), "sort": ("sort the input", BLUE), "exchange": ("exchange pieces", TEAL),
          "merge": ("merge", GREEN), "store": ("store", PURPLE), "commit": ("agree and wait", GREY),
          "repair": ("recover", ORANGE)}


def labels_of(rows, name):
    """Returns a label for each row: its number of ranks, and under the middle row of three the text in `name`."""
    return [f"{row['ranks']:.0f}" + (f"\n{row[name]}".replace(" ", "\n", 1) if index % 3 == 1 else "\n")
            for index, row in enumerate(rows)]


def plain_numbers(axis):
    """Writes the numbers of a logarithmic axis without exponents."""
    axis.set_major_formatter(plots.matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))


def title_of(name, title):
    """Returns a title, with a second line if the table's comment ends with "Note: ..."."""
    _, _, note = tables.comment_of(DATA / f"{name}.csv").partition("Note: ")
    return f"{title}\n({note})" if note else title


def timeline():
    """One sort with failures: the phases of each rank over time."""
    return timeline_of("timeline", "A sort of 2^24 integers on 8 ranks, three of which are killed")


def command():
    """The tutorial of the command: half of the ranks are killed."""
    return timeline_of("command", "ftsort sort: 5 million stars on 8 ranks, four of which are killed")


def timeline_of(name, title):
    """The phases of each rank over time."""
    rows = tables.read_numbers(DATA / f"{name}.csv")
    ranks = int(max(row["rank"] for row in rows)) + 1
    figure, drawn = plots.axes("time since the start of the sort (milliseconds)", "rank",
                               title_of(name, title), size=(8.2, 4.6))
    for phase, (label, colour) in PHASES.items():
        spans = [(row["rank"], row["begin_ms"], row["end_ms"]) for row in tables.chosen(rows, kind="span", name=phase)]
        if spans:
            owner, begin, end = zip(*spans)
            drawn.barh(owner, [b - a for a, b in zip(begin, end)], 0.62, begin, color=colour, label=label, linewidth=0)
    moments = tables.chosen(rows, kind="moment")
    failed = {int(row["of"]) for row in moments if row["name"] == "failure"}
    for rank in sorted(failed):
        ends = [row["end_ms"] or row["begin_ms"] for row in rows if row["rank"] == rank]
        last = max(ends, default=0)
        drawn.plot(last, rank, "X", color=RED, markersize=10, label="killed" if rank == min(failed) else None)
        drawn.axhline(rank, color=RED, linewidth=0.8, linestyle=":", zorder=0)
    restored = [row for row in moments if row["name"] == "restored"]
    if restored:
        drawn.plot([row["begin_ms"] for row in restored], [row["rank"] for row in restored], "D", color=INK,
                   markersize=5, linestyle="", label="block restored here")
    survivor = min(set(range(ranks)) - failed)
    for index, row in enumerate(tables.chosen(moments, rank=survivor, name="commit")):
        drawn.axvline(row["begin_ms"], color=INK, linewidth=0.9, linestyle="--", zorder=3,
                      label=None if index else "round committed")
    drawn.set_yticks(range(ranks))
    drawn.invert_yaxis()
    drawn.set_xlim(left=0)
    drawn.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=5)
    return figure


def time():
    """Time over the number of records, and time per record beside the sort without fault tolerance."""
    figure, (left, right) = plots.pyplot.subplots(1, 2, figsize=(9.6, 4.2), width_ratios=[1, 1.1])
    rows = tables.read_numbers(DATA / "growth.csv")
    sizes = sorted({int(row["log2_count"]) for row in rows})
    for ranks in (1, 2, 8, 32):
        own = tables.chosen(rows, ranks=ranks)
        left.plot([2**row["log2_count"] for row in own], [row["total_ms"] for row in own], marker="o",
                  label=f"{ranks} rank{'s' * (ranks > 1)}")
    left.set(xlabel="number of records", ylabel="time of the sort (milliseconds)", xscale="log", yscale="log",
             title="32-bit integers, store: memory")
    left.set_xticks([2**size for size in sizes], [f"2^{size}" for size in sizes])
    left.minorticks_off()
    left.legend()
    plain_numbers(left.yaxis)
    rows = tables.read_numbers(DATA / "floor.csv")
    plain = [row["plain_ns_per_record"] for row in rows]
    series = [("without fault tolerance", plain)]
    series += [(f"ftsort, store: {store}", [row[store] * time for row, time in zip(rows, plain)])
               for store in ("none", "memory")]
    plots.grouped_bars(right, labels_of(rows, "records"), series)
    right.set(xlabel="number of ranks and type of the records", ylabel="time per record (nanoseconds)",
              title="2^24 records")
    right.legend()
    return figure


def stores():
    """The cost of each store, relative to a sort without a store."""
    rows = tables.read_numbers(DATA / "stores.csv")
    figure, drawn = plots.axes("number of ranks and type of the records (2^24 records)", "additional time (percent)",
                               "Cost of each store, relative to a sort without a store", size=(8.2, 4.4))
    texts = {"none": "none beside none (error of the measurement)", "reload": "reload (callback)",
             "memory": "memory, one copy"}
    for (store, text), marker, colour, shift in zip(texts.items(), "osD", (GREY, GREEN, BLUE), (-0.15, 0, 0.15)):
        drawn.plot([place + shift for place in range(len(rows))], [100 * (row[store] - 1) for row in rows], marker, color=colour,
                   label=text, markersize=7)
    drawn.axhline(0, color=INK, linewidth=1)
    drawn.set_xticks(range(len(rows)), labels_of(rows, "records"))
    for place in range(3, len(rows), 3):
        drawn.axvline(place - 0.5, color=GREY, linewidth=0.8)
    drawn.grid(axis="x", visible=False)
    drawn.set_ylim(-6, 26)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def parity():
    """The memory and the time of replicas and of parity."""
    rows = tables.read_numbers(DATA / "parity.csv")
    figure, drawn = plots.axes("peak of the memory (inputs of a rank)", "time relative to a sort without a store",
                               "Replicas and parity, 2^24 records", size=(7, 4.4))
    kinds = {"replica": ("1 replica", BLUE, "o"), "share": ("1 parity share", GREEN, "o"), "replicas": ("2 replicas", BLUE, "D"),
             "shares": ("2 parity shares", GREEN, "D")}
    for name, (text, colour, marker) in kinds.items():
        drawn.plot([row[f"{name}_peak"] for row in rows], [row[name] for row in rows], marker, color=colour, label=text,
                   markersize=7)
    drawn.set_ylim(bottom=1)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def recovery():
    """The distribution of the time from a kill to the next commit."""
    times = sorted(row["recovery_ms"] for row in tables.read_numbers(DATA / "recovery.csv"))
    figure, drawn = plots.axes("time from the kill to the next commit (milliseconds)", "share of the kills (percent)",
                               title_of("recovery", f"Recovery time of {len(times)} kills, 4 ranks with a million integers each"))
    shares = [100 * (index + 1) / len(times) for index in range(len(times))]
    drawn.step([0, *times], [0, *shares], where="post", color=BLUE, label="kills that are recovered after this time")
    for share, name in ((50, "median"), (95, "95 percent")):
        value = times[min(len(times) - 1, len(times) * share // 100)]
        drawn.plot([value, value], [0, share], color=ORANGE, linewidth=1.2, linestyle="--")
        drawn.annotate(f"{name}: {value:.0f} ms", (value, share), xytext=(8, -14), textcoords="offset points")
    drawn.set(xlim=(0, times[-1] * 1.05), ylim=(0, 104))
    return figure


def model_ms(count, ranks, processors=2):
    """The model of docs/performance.md, in milliseconds, for `count` records."""
    from math import log2

    active = min(ranks, processors)
    return (0.216e-6 * count * log2(count / ranks) / active + 3.69e-6 * count * log2(ranks) / active
            + 28e-3 * ranks**2 / active)


def scaling():
    """Time over the number of ranks, and a sort of a thousand records beside MPI_Allreduce."""
    figure, (left, right) = plots.pyplot.subplots(1, 2, figsize=(9.6, 4.6))
    rows = tables.read_numbers(DATA / "growth.csv")
    ranks = sorted({int(row["ranks"]) for row in rows})
    for size, colour in zip((28, 26, 24, 20), (BLUE, ORANGE, GREEN, PURPLE)):
        own = tables.chosen(rows, log2_count=size)
        left.plot([row["ranks"] for row in own], [row["total_ms"] for row in own], "o-", color=colour,
                  label=f"2^{size} records")
        left.plot(ranks, [model_ms(2**size, count) for count in ranks], ":", color=colour, linewidth=1.2)
    left.plot([], [], ":", color=GREY, label="model")
    left.set(title="32-bit integers on 2 processors", ylabel="time of the sort (milliseconds)", ylim=(1.2, 5000))
    left.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=9)
    rows = tables.read_numbers(DATA / "small.csv")
    for name, text in (("memory_us", "sort, store: memory"), ("none_us", "sort, store: none"),
                       ("allreduce_us", "MPI_Allreduce of one number")):
        right.plot([row["ranks"] for row in rows], [row[name] for row in rows], "o-", label=text)
    right.set(title="1024 integers on 2 processors", ylabel="time (microseconds)")
    right.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=9)
    for drawn in (left, right):
        drawn.set(xlabel="number of ranks", xscale="log", yscale="log")
        plain_numbers(drawn.yaxis)
        plots.powers_of_two(drawn.xaxis, ranks)
    return figure


def scale():
    """The simulated time of sorts in one to three levels, and the messages of a rank, over the number of ranks."""
    figure, (left, right) = plots.pyplot.subplots(1, 2, figsize=(9.6, 4.6))
    rows = tables.chosen(tables.read_numbers(DATA / "scale.csv"), failures=0, scale=2**17 / 64)
    ranks = sorted({int(row["ranks"]) for row in rows})
    sorts = (("samplesort", "one level", RED), ("samplesort_2", "two levels", BLUE), ("samplesort_3", "three levels", GREEN))
    for sort, label, colour in sorts:
        own = tables.chosen(rows, algorithm=sort)
        places = [row["ranks"] for row in own]
        left.plot(places, [row["simulated_seconds"] * 1000 for row in own], "o-", color=colour, label=label)
        left.plot(places, [row["predicted_seconds"] * 1000 for row in own], ":", color=colour, linewidth=1.2)
        right.plot(places, [row["messages_mean"] for row in own], "o-", color=colour, label=label)
    left.plot([], [], ":", color=GREY, label="formula")
    left.set(title="2^17 records of each rank", ylabel="simulated time (milliseconds)", ylim=(0, None))
    right.set(title="Messages that a rank sends", ylabel="messages", yscale="log")
    plain_numbers(right.yaxis)
    for drawn in (left, right):
        drawn.set(xlabel="number of ranks", xscale="log")
        plots.powers_of_two(drawn.xaxis, ranks)
        drawn.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=9)
    return figure


def external():
    """The bytes that the ranks of an external sort have read and written over time."""
    rows = tables.read_numbers(DATA / "external.csv")
    figure, panels = plots.pyplot.subplots(1, 2, figsize=(9.6, 4.2), sharey=True)
    share = max(row["written_mb"] for row in tables.chosen(rows, program="ftsort")) / 2000
    for drawn, program, title in zip(panels, ("ftsort", "killed"), ("No failure", "Rank 1 is killed")):
        for rank, colour in enumerate((BLUE, ORANGE)):
            own = tables.chosen(rows, program=program, rank=rank)
            seconds = [row["seconds"] for row in own]
            for column, style, verb in (("read_mb", "-", "read"), ("written_mb", ":", "written")):
                moved = [row[column] / 1000 for row in own]
                drawn.plot(seconds, moved, style, color=colour, label=f"rank {rank}, {verb}", linewidth=1.6)
                if program == "killed" and rank == 1:
                    drawn.plot(seconds[-1], moved[-1], "X", color=RED, markersize=8)
        drawn.axhline(share, color=INK, linewidth=0.9, linestyle="--")
        drawn.set(title=title, xlabel="time since the start of the sort (seconds)", xlim=(0, None))
        drawn.annotate("half of the source: the runs of a rank", (1, share), xycoords=drawn.get_yaxis_transform(), ha="right",
                       xytext=(-4, -11), textcoords="offset points", fontsize=8)
    panels[0].set(ylabel="GB", ylim=(0, None))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def lengths():
    """The time of sorts of all sizes, relative to a plain sample sort."""
    rows = tables.read_numbers(DATA / "lengths.csv")
    figure, drawn = plots.axes("number of records", "time relative to the plain sample sort",
                               "32-bit integers on 2 processors", size=(8.2, 4.4))
    for ranks, colour in zip((2, 4, 8), (BLUE, ORANGE, GREEN)):
        own = tables.chosen(rows, ranks=ranks)
        for store, style, text in (("none_plain", "o-", "no store"), ("memory_plain", "o:", "one replica")):
            drawn.plot([row["log2"] for row in own], [row[store] for row in own], style, color=colour,
                       label=f"{ranks} ranks, {text}", markersize=4)
    drawn.axhline(1, color=INK, linewidth=1)
    sizes = sorted({int(row["log2"]) for row in rows if row["log2"] % 2 == 0})
    drawn.set_xticks(sizes, [f"2^{size}" for size in sizes])
    drawn.set_ylim(0, None)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def balance():
    """The deviation of the largest block from the ideal share."""
    figure, (left, right) = plots.pyplot.subplots(1, 2, figsize=(10.4, 4.4), width_ratios=[1, 1.5])
    rows = tables.chosen(tables.read_numbers(DATA / "balance.csv"), log2_count=26)
    for name in ("QuickMerge", "HyperQuickSort", "modified QuickMerge"):
        left.plot([row["ranks"] for row in rows], [row[name] for row in rows], "o-", label=name)
    left.axhline(0.2, color=GREY, linestyle="--", linewidth=1.4, label="bound in the paper (0.2 percent)")
    left.set(xlabel="number of ranks", ylabel="largest deviation from\nthe ideal share (percent)", xscale="log",
             yscale="log", title="Pivots of the papers, 2^26 random keys")
    plain_numbers(left.yaxis)
    plots.powers_of_two(left.xaxis, [4, 8, 16, 32])
    left.legend(loc="upper center", bbox_to_anchor=(0.45, -0.16), ncols=2, fontsize=8)
    rows = tables.read_numbers(DATA / "shares.csv")
    kinds = [name for name in rows[0] if name != "algorithm"]
    shares = plots.numpy.array([[row[kind] for kind in kinds] for row in rows])
    right.pcolormesh(shares, cmap=plots.matplotlib.colors.LinearSegmentedColormap.from_list("", [GREEN, ORANGE, RED]),
                     norm=plots.matplotlib.colors.LogNorm(1, 8), edgecolor=PAPER, linewidth=1.5)
    for (row, column), share in plots.numpy.ndenumerate(shares):
        right.text(column + 0.5, row + 0.5, f"{share:.2f}", ha="center", va="center", color="#fefefe", fontsize=9)
    right.set_xticks([place + 0.5 for place in range(len(kinds))],
                     [kind.replace(" ", "\n", 1) for kind in kinds], fontsize=8)
    right.set_yticks([place + 0.5 for place in range(len(rows))],
                     [row["algorithm"].replace(", ", ",\n") for row in rows], fontsize=8)
    right.set(title="Largest share divided by the mean share, 8 ranks", xlabel="distribution of the keys")
    right.tick_params(length=0)
    right.grid(visible=False)
    right.invert_yaxis()
    return figure


def dgrp():
    """The size of the group of recommended processes over time."""
    rows = tables.read_numbers(DATA / "dgrp.csv")
    texts = {"paper": ("rules of the paper", RED), "self_doubt": ("with self-doubt", BLUE)}
    figure, panels = plots.pyplot.subplots(2, 1, figsize=(8.2, 4.8), sharex=True)
    last = 30_000
    for drawn, (variant, (text, colour)) in zip(panels, texts.items()):
        own = tables.chosen(rows, variant=variant)
        drawn.step([*[row["interval"] / 3600 for row in own], last / 3600], [*[row["size"] for row in own], own[-1]["size"]],
                   where="post", color=colour, linewidth=0.9)
        least = min(own, key=lambda row: row["size"])
        drawn.set(title=f"Group of recommended processes, {text}", ylabel="ranks in the group", ylim=(0, 19.5),
                  xlim=(0, last / 3600), yticks=[0, 6, 12, 18])
        drawn.annotate(f"smallest group: {least['size']:.0f} of 18", (least["interval"] / 3600, least["size"]),
                       xytext=(-150, 3 if least["size"] < 8 else -42), textcoords="offset points",
                       arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.8})
    panels[1].set_xlabel("simulated time (hours; one test per second)")
    return figure


def pi():
    """The times of the ranks that approximate pi again and again."""
    rows = tables.read_numbers(DATA / "pi.csv")
    figure, drawn = plots.axes("execution", "milliseconds", "100 approximations of pi, one after another", size=(8.2, 3.4))
    for name, colour in (("slowest", RED), ("fastest", BLUE)):
        drawn.plot([row["execution"] for row in rows], [1000 * row[name] for row in rows], color=colour, linewidth=1,
                   label=f"{name} rank")
    drawn.set_ylim(0)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def simulator():
    """The number of runs with which the simulator covers every schedule of few failures."""
    rows = tables.read_numbers(DATA / "simulator.csv")
    figure, drawn = plots.axes("number of simulated runs", "", "Simulated runs with failures at every step of every rank",
                               size=(8.2, 3.8), xscale="log")
    labels = list(dict.fromkeys(f"{row['ranks']:.0f} ranks, {row['store']}" for row in rows))
    series = [(1, "at most one failure", BLUE), (2, "at most two failures", ORANGE)]
    for index, (failures, text, colour) in enumerate(series):
        own = tables.chosen(rows, failures=failures)
        places = [labels.index(f"{row['ranks']:.0f} ranks, {row['store']}") + 0.38 * (index - 0.5) for row in own]
        drawn.barh(places, [row["runs"] for row in own], 0.36, color=colour, label=text)
        for place, row in zip(places, own):
            drawn.annotate(f"{row['runs']:,.0f}".replace(",", " "), (row["runs"], place), xytext=(4, 0),
                           textcoords="offset points", va="center", fontsize=8)
    drawn.set_yticks(range(len(labels)), labels)
    drawn.invert_yaxis()
    plain_numbers(drawn.xaxis)
    drawn.set_xlim(50, max(row["runs"] for row in rows) * 4)
    drawn.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


DRAWN = {function.__name__: function
         for function in (timeline, command, time, stores, parity, recovery, lengths, scaling, scale, external, balance, dgrp, pi,
                          simulator)}


def draw(names, folder, png):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        plots.save(DRAWN[name](), folder, name, png)
        size = (folder / f"{name}.svg").stat().st_size
        if size > MOST_BYTES:
            sys.exit(f"{name}.svg has {size} bytes, which is more than {MOST_BYTES}")


def check(names):
    """Returns the names of the pictures that differ from their tables."""
    with tempfile.TemporaryDirectory(prefix="ftsort-pictures-") as folder:
        folder = pathlib.Path(folder)
        draw(names, folder, False)
        pairs = ((PICTURES / f"{name}.svg", folder / f"{name}.svg") for name in names)
        return [old.name for old, new in pairs if not old.exists() or old.read_bytes() != new.read_bytes()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(DRAWN), metavar="NAME", help=" ".join(DRAWN))
    parser.add_argument("--check", action="store_true", help="compare the pictures with their tables")
    parser.add_argument("--png", type=pathlib.Path, help="write SVG and PNG files to this folder instead")
    options = parser.parse_args()
    unknown = set(options.names) - set(DRAWN)
    if unknown:
        parser.error(f"there is no picture {', '.join(sorted(unknown))}")
    if options.check:
        different = check(options.names)
        print(f"different: {', '.join(different)}" if different else "all pictures agree with their tables")
        sys.exit(1 if different else 0)
    draw(options.names, options.png or PICTURES, options.png is not None)


if __name__ == "__main__":
    main()

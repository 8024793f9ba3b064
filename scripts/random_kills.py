#!/usr/bin/env python3
"""Kills one random rank of a sort from outside, at an instant drawn uniformly from the whole call, many times over.

Each run is one mpirun of tests/c/random_kills.c with the default configuration but for the store. The length of the
call, from the entry of ftsort_run on the first rank to its return on the last, is measured by runs without a kill: some
at the start and one after every ten kills. Digests that the ranks compute of their inputs and blocks without ftsort are
combined here: counts, sums, hashes and the order between blocks must be right.

  right   all survivors have sorted, and all blocks are there
  short   all survivors returned FTSORT_OK, but the blocks of the killed rank are missing, because it was killed after
          its part in the last agreement; all other blocks are those of an independent sort
  lost    all survivors returned FTSORT_ERR_DATA_LOST and named the killed rank
  wrong   any other result: a wrong block, or survivors that disagree
  crash   a survivor ended without a status
  hang    the run did not end within the time limit
  cut     a hang of Open MPI, recognised by its queues (queues.py)
  late    the rank had returned from ftsort_run before the signal; such a run does not count as a run with a kill

Runs that are wrong, crash or hang are printed with their seed. `--measure` instead measures the share of an unprotected
input in the time of a sort: from the entry of ftsort_run to the end of the phase "protect" of the trace, the mean over
ranks, and in turns with it the share of a bare copy of the inputs by MPI_Sendrecv.
"""

import argparse
import collections
import json
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

import launch
import outside
import tables

COLUMNS = ["right", "short", "lost", "wrong", "crash", "hang", "cut", "late"]
BAD = ["wrong", "crash", "hang"]
FIELDS = ["ranks", "store", "mb", "seed", "victim", "drawn_ms", "killed_ms", "call_ms", "outcome"]
MEASURES = ["ranks", "log2", "replicas", "turn", "copy_share", "unprotected_share", "copy_ms", "unprotected_ms", "sort_ms"]
DATA_LOST = "-40"
MASK = (1 << 64) - 1
# Runs without a kill: at the start of each cell, and then one after this many kills. The length is that of the last ones.
QUIET_FIRST, QUIET_EVERY = 3, 10


class Report:
    """The lines of one run, by rank."""

    def __init__(self, output):
        self.inputs, self.enter, self.returned, self.status, self.lost = {}, {}, {}, {}, {}
        self.freed, self.blocks = set(), []
        for line in output.splitlines():
            word, *rest = line.split() or [""]
            if word == "input":
                self.inputs[int(rest[0])] = tuple(map(int, rest[1:]))
            elif word == "enter":
                self.enter[int(rest[0])] = float(rest[1])
            elif word == "return":
                self.returned[int(rest[0])], self.status[int(rest[0])] = float(rest[1]), rest[2]
            elif word == "lost":
                self.lost[int(rest[0])] = set(map(int, ",".join(rest[1:]).split(","))) if rest[1:] else set()
            elif word == "block":
                self.blocks.append(tuple(map(int, rest)))
            elif word == "free":
                self.freed.add(int(rest[0]))

    def length(self):
        """Returns the seconds from the first entry to the last return."""
        return max(self.returned.values()) - min(self.enter.values())


def combine(inputs, blocks):
    """Combines the digests of all inputs with those of the blocks that are there.

    `inputs`: (count, sum, xor) of each rank. `blocks`: (rank, node, offset, count, sum, xor, first, last, ordered).
    Returns "right", "short" or the reason why the result is wrong, and the ranges (offset, count) that are missing.
    """
    total, at, last = sum(count for count, _, _ in inputs), 0, None
    gaps = []
    nodes = [block[1] for block in blocks]
    if len(set(nodes)) < len(nodes):
        return f"a node has two blocks: {sorted(nodes)}", []
    if [block[1] for block in sorted(blocks, key=lambda block: (block[2], block[1]))] != sorted(nodes):
        return "the blocks are not in the order of their nodes", []
    for _, node, offset, count, _, _, low, high, ordered in sorted(blocks, key=lambda block: block[1]):
        if offset < at:
            return f"the block of node {node} overlaps the one before it", []
        if not ordered or (count and last is not None and low < last):
            return f"the block of node {node} is not in order", []
        if offset > at:
            gaps.append((at, offset - at))
        at, last = offset + count, high if count else last
    if at > total:
        return f"the blocks have records up to {at}, the inputs only {total}", []
    if at < total:
        gaps.append((at, total - at))
    if gaps:
        return "short", gaps
    sums = sum(digest[1] for digest in inputs) & MASK, sum(block[4] for block in blocks) & MASK
    folded = [0, 0]
    for digest in inputs:
        folded[0] ^= digest[2]
    for block in blocks:
        folded[1] ^= block[5]
    if sums[0] != sums[1] or folded[0] != folded[1]:
        return "the records are not those of the inputs", []
    return "right", []


def judge(report, ranks, victim, ranges):
    """Returns the outcome of a run that ended, and the reason if it is bad.

    `victim`: the killed rank, or None. `ranges`: returns the (offset, count, sum, xor) of ranges of an independent sort.
    """
    others = set(range(ranks)) - {victim}
    silent = others - report.freed
    if silent:
        return "crash", f"ranks {sorted(silent)} have not ended"
    statuses = set(report.status.values())
    if statuses == {DATA_LOST} and victim is not None:
        named = [report.lost.get(rank) for rank in sorted(others)]
        return ("lost", "") if all(lost == {victim} for lost in named) else ("wrong", f"lost ranks {named}")
    if statuses != {"0"}:
        return "wrong", f"statuses {sorted(statuses)}"
    if set(report.inputs) != set(range(ranks)):
        return "wrong", "an input has no digest"
    verdict, _ = combine(list(report.inputs.values()), report.blocks)
    if verdict == "right":
        return "right", ""
    if verdict != "short" or victim is None:
        return "wrong", verdict
    if any(block[1] == victim for block in report.blocks):
        return "wrong", f"records are missing, but not those of node {victim}"
    there = {block[2:6] for block in report.blocks if block[3]}
    if there != set(ranges([(offset, count) for offset, count, _, _ in there])):
        return "wrong", "a block of a short result is not that of an independent sort"
    return "short", ""


def draw(cell, seed, ranks, length):
    """Returns the victim of a run, and the seconds after the start at which it is killed: uniform in the call."""
    rng = random.Random(f"{cell} {seed}")
    return rng.randrange(ranks), rng.uniform(0, length)


class Cell:
    """A store, a number of ranks and a size."""

    def __init__(self, options, program, work, store, megabytes):
        self.options, self.program, self.work = options, program, work
        self.ranks, self.store, self.size = options.ranks, store, f"{megabytes:g}"
        self.count = int(megabytes * 1e6) // 4 // self.ranks
        self.lengths, self.kills = [], 0

    def name(self):
        return f"{self.store:<10} {self.size:>5} MB"

    def sort(self, seed, plan):
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        store, _, replicas = self.store.partition(":")
        command = [self.program, "sort", self.work, store, replicas or 0, self.count, seed]
        return outside.run(self.ranks, command, self.options.limit, plan)

    def ranges(self, seed, wanted):
        """Returns the digests of ranges of positions, from a sort by qsort."""
        words = [f"{offset}:{count}" for offset, count in wanted]
        command = [self.program, "check", self.ranks, self.count, seed, *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
        return [tuple(map(int, line.split()[1:])) for line in done.stdout.splitlines()]

    def judged(self, run, victim, seed):
        """Returns the outcome, the reason and the Report of a run."""
        report = Report(run.output)
        if run.hung:
            return *(("cut", f"queues of ranks {run.cut}") if run.cut else ("hang", "time limit")), report
        return *judge(report, self.ranks, victim, lambda wanted: self.ranges(seed, wanted)), report

    def length(self):
        """Returns the seconds of the call without a kill: the median of the last runs."""
        wanted = (1 if self.options.short else QUIET_FIRST) + self.kills // QUIET_EVERY
        while len(self.lengths) < wanted:
            run, _ = self.sort(len(self.lengths), [])
            outcome, reason, report = self.judged(run, None, len(self.lengths))
            if outcome != "right":
                sys.exit(f"{self.name()} without a kill: {outcome}: {reason}\n{run.output}{run.stacks}")
            self.lengths.append(report.length())
        return statistics.median(self.lengths[-QUIET_FIRST:])

    def kill(self, seed):
        """Runs one sort with a kill; returns its row, and the text to print if its outcome is bad."""
        length = self.length()
        self.kills += 1
        victim, instant = draw(self.name(), seed, self.ranks, length)
        run, sender = self.sort(seed, [(instant, victim, signal.SIGKILL)])
        at = sender.killed().get(victim)
        outcome, reason, report = self.judged(run, victim if at is not None else None, seed)
        if outcome in ("right", "short") and (at is None or victim in report.returned):
            outcome = "late"
        began = report.enter.get(victim, sender.start)
        killed = "" if at is None or began is None else f"{(sender.start + at - began) * 1e3:.2f}"
        row = {"ranks": self.ranks, "store": self.store, "mb": self.size, "seed": seed, "victim": victim,
               "drawn_ms": f"{instant * 1e3:.2f}", "killed_ms": killed, "call_ms": f"{length * 1e3:.2f}", "outcome": outcome}
        repeat = f"--runs 1 --seed {seed} --ranks {self.ranks} --stores {self.store} --mb {self.size}"
        text = (f"{self.name()} seed={seed} rank {victim} at {killed} ms: {outcome}: {reason}\n"
                f"    scripts/random_kills.py {repeat}")
        return row, text + f"\n{run.output}{run.stacks}" if outcome in BAD else None


def line_of(name, rows):
    """Returns the line of the table for the rows of a cell."""
    counts = collections.Counter(row["outcome"] for row in rows)
    kills = len(rows) - counts["late"] - counts["cut"]
    times = {name: [float(row["killed_ms"]) for row in rows if row["outcome"] == name and row["killed_ms"]]
             for name in ("lost", "short")}
    latest = f"{max(times['lost']):.1f}" if times["lost"] else "-"
    first = f"{min(times['short']):.1f}" if times["short"] else "-"
    call = statistics.median(float(row["call_ms"]) for row in rows)
    cells = " ".join(f"{counts[column]:>5}" for column in COLUMNS)
    return (f"{name:<20} {kills:>5} {cells}  {outside.shown_interval(counts['lost'], kills):>18} "
            f"{outside.shown_interval(counts['short'], kills):>18} {call:>8.1f} {latest:>11} {first:>11}")


def kill_all(options, program, folder):
    """Runs all cells; returns the number of bad runs."""
    print(f"{options.ranks} ranks; one random rank is killed at a uniformly drawn instant of the call")
    print(f"{'store, size':<20} kills " + " ".join(f"{column:>5}" for column in COLUMNS)
          + f"  {'lost, % (95 %)':>18} {'short, % (95 %)':>18} {'call, ms':>8} {'latest loss':>11} {'first short':>11}")
    sizes = ",".join(f"{megabytes:g}" for megabytes in options.mb)
    comment = (f"Made by: scripts/random_kills.py --runs {options.runs} --ranks {options.ranks} --seed {options.seed} "
               f"--stores {','.join(options.stores)} --mb {sizes}")
    bad = []
    with tables.Appender(options.csv, FIELDS, fresh=not options.resume, comment=comment) as file:
        for megabytes in options.mb:
            for store in options.stores:
                cell = Cell(options, program, folder / "work", store, megabytes)
                same = {"ranks": str(cell.ranks), "store": store, "mb": cell.size}
                done = {int(row["seed"]) for row in tables.chosen(file.rows, **same)}
                for seed in range(options.seed, options.seed + options.runs):
                    if seed not in done:
                        row, text = cell.kill(seed)
                        file.add(row)
                        bad += [text] if text else []
                print(line_of(cell.name(), tables.chosen(file.rows, **same)), flush=True)
    print(*bad, sep="\n", end="\n" if bad else "")
    return len(bad)


def unprotected(events, enter, leave):
    """Returns the seconds from the entry of a call to the end of its protection, from the events of a rank's trace."""
    ends = [(event["ts"] + event["dur"]) / 1e6 for event in events if event["name"] == "protect"]
    within = [end for end in ends if enter <= end <= leave + 1e-6]
    return max(within) - enter if within else None


def read_trace(path):
    """Returns the events of a trace file, whose array may have no end."""
    lines = (line.strip().rstrip(",") for line in path.read_text().splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]


def measured(output, traces):
    """Yields (turn, copy seconds, unprotected seconds, sort seconds), each the mean over ranks."""
    turns = collections.defaultdict(list)
    for line in output.splitlines():
        if line.startswith("turn "):
            rank, turn, copy, enter, leave = line.split()[1:]
            exposed = unprotected(traces[int(rank)], float(enter), float(leave))
            if exposed is None:
                sys.exit(f"the trace of rank {rank} has no phase \"protect\" in turn {turn}")
            turns[int(turn)].append((float(copy), exposed, float(leave) - float(enter)))
    for turn, ranks in sorted(turns.items()):
        yield (turn, *map(statistics.mean, zip(*ranks)))


def measure_all(options, program, folder):
    """Measures the shares of a bare copy and of the unprotected time, for all numbers of ranks, sizes and replicas."""
    print(f"{'ranks':>5} {'log2':>5} {'replicas':>8} {'copy, %':>9} {'unprotected, %':>15} {'sort, ms':>9}  (medians of "
          f"{options.turns} turns, means over ranks)")
    comment = f"Made by: scripts/random_kills.py --measure --turns {options.turns}"
    with tables.Appender(options.csv, MEASURES, fresh=True, comment=comment) as file:
        for ranks in options.measured_ranks:
            for log2 in options.log2:
                for replicas in sorted({1, 2, ranks - 1}):
                    work = folder / "measured"
                    shutil.rmtree(work, ignore_errors=True)
                    work.mkdir()
                    command = [program, "measure", work, "memory", replicas, 2**log2 // ranks, options.seed, options.turns]
                    run = launch.launch(ranks, command, options.limit * options.turns)
                    if run.hung:
                        sys.exit(f"not finished: {run.output}{run.stacks}")
                    traces = [read_trace(work / f"trace.{rank}.json") for rank in range(ranks)]
                    found = list(measured(run.output, traces))
                    if len(found) != options.turns:
                        sys.exit(run.output)
                    rows = [{"ranks": ranks, "log2": log2, "replicas": replicas, "turn": turn,
                             "copy_share": f"{copy / sort:.4f}", "unprotected_share": f"{exposed / sort:.4f}",
                             "copy_ms": f"{copy * 1e3:.2f}", "unprotected_ms": f"{exposed * 1e3:.2f}",
                             "sort_ms": f"{sort * 1e3:.2f}"} for turn, copy, exposed, sort in found]
                    file.add(*rows)
                    middle = [statistics.median(float(row[name]) for row in rows)
                              for name in ("copy_share", "unprotected_share", "sort_ms")]
                    print(f"{ranks:>5} {log2:>5} {replicas:>8} {100 * middle[0]:>9.1f} {100 * middle[1]:>15.1f} "
                          f"{middle[2]:>9.1f}", flush=True)
    return 0


def main():
    numbers = lambda words: [int(word) for word in words.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a few runs of a small sort with each store, as a test")
    parser.add_argument("--runs", type=int, default=100, help="kills for each store and size")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--stores", type=lambda words: words.split(","),
                        help="memory:REPLICAS, directory or none; default: memory:1, memory:N-1, none and directory")
    parser.add_argument("--mb", type=lambda words: [float(word) for word in words.split(",")], default=[200.0],
                        help="sizes of all inputs together, in MB")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--limit", type=float, default=60, help="seconds after which a run counts as hung")
    parser.add_argument("--resume", action="store_true", help="continue the table of --csv")
    parser.add_argument("--profile", default="release", help="cargo's profile of the library")
    parser.add_argument("--csv", type=pathlib.Path, help="a file for the row of each run or turn")
    parser.add_argument("--measure", action="store_true", help="measure the unprotected share instead of killing")
    parser.add_argument("--measured-ranks", type=numbers, default=[4, 8], help="numbers of ranks for --measure")
    parser.add_argument("--log2", type=numbers, default=[24, 26], help="log2 of the numbers of records for --measure")
    parser.add_argument("--turns", type=int, default=15, help="turns of copy and sort for --measure")
    options = parser.parse_args()
    if options.short:
        options.runs, options.mb, options.log2, options.turns = 2, [8.0], [18], 3
    options.stores = options.stores or [f"memory:{replicas}" for replicas in sorted({1, max(1, options.ranks - 1)})] + [
        "none", "directory"]
    with tempfile.TemporaryDirectory(prefix="ftsort-random-kills-") as folder:
        folder = pathlib.Path(folder)
        options.csv = options.csv or folder / "rows.csv"
        program = launch.build_c(launch.ROOT / "tests/c/random_kills.c", folder, options.profile)
        sys.exit(1 if (measure_all if options.measure else kill_all)(options, program, folder) else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Kills random ranks of sorts from outside, at instants drawn uniformly, many times over.

Each run is one mpirun of tests/c/random_kills.c with the default configuration but for the store. A mode says when ranks
are killed, and how the program sorts:

  call        one rank is killed in the call: from the entry of ftsort_run on the first rank to its return on the last
  protected   the same, but ftsort_protect has protected the input before, and the call is ftsort_run_protected: no data
              may be lost
  free        one rank is killed between the entry of ftsort_run on the first rank and the end of ftsort_result_free on
              the last. After the sort the program reads and prints every block, as one that writes its output, and
              recovers the result until an agreement finds all blocks printed and no new failure. Only the input of a
              rank that is killed in the call or before it may be lost, and no result may be short
  successive  the input is protected, and then all ranks but one are killed, one after another, each at an instant
              between the end of the recovery from the kill before it and the length of a sort with its output later.
              First the input is sorted again and again; after a random number of kills it is released, and the last
              result is kept until one rank is left. No data may be lost, and no result may be short. A recovery has
              ended when ftsort_run_protected has returned on all survivors and they know the failure, since that call
              renews both the input and the result; once the input is released, when ftsort_result_recover has returned

The lengths of the call, and of a sort with its output, are measured by runs without a kill: some at the start and one
after every ten kills. Digests that the ranks compute of their inputs and blocks without ftsort are combined here:
counts, sums, hashes and the order between blocks must be right. In the modes "free" and "successive" the blocks are those
of the ranks that the last agreement on the output found alive. A rank that is killed after its part in that agreement has
printed its blocks, and they count.

  right   all survivors have sorted, and all blocks are there
  short   all survivors returned FTSORT_OK, but blocks of killed ranks are missing (in the call: because the rank was
          killed after its part in the last agreement); all other blocks are those of an independent sort
  lost    all survivors returned FTSORT_ERR_DATA_LOST and named only killed ranks
  wrong   any other result: a wrong block, or survivors that disagree
  crash   a survivor ended without a status
  hang    the run did not end within the time limit
  cut     a hang of Open MPI, recognised by its queues (queues.py)
  late    the rank had left the interval of its mode before the signal; such a run does not count as a run with a kill

Runs that are wrong, crash or hang, and losses and short results that a mode excludes, are failures and are printed with
their seed. The table has a line for each mode, store and size. `--measure` instead measures the share of an unprotected
input in the time of a sort: from the entry of ftsort_run to the end of the phase "protect" of the trace, the mean over
ranks, and in turns with it the share of a bare copy of the inputs by MPI_Sendrecv.
"""

import argparse
import collections
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
import timeline

COLUMNS = ["right", "short", "lost", "wrong", "crash", "hang", "cut", "late"]
BAD = ["wrong", "crash", "hang"]
MODES = ["call", "protected", "free", "successive"]
# The lists of a row with several kills have spaces between their numbers. "moments": where the victim was killed.
FIELDS = ["mode", "ranks", "store", "mb", "seed", "victims", "drawn_ms", "killed_ms", "moments", "length_ms", "outcome"]
MEASURES = ["ranks", "log2", "replicas", "turn", "copy_share", "unprotected_share", "copy_ms", "unprotected_ms", "sort_ms"]
DATA_LOST = "-40"
MASK = (1 << 64) - 1
# Runs without a kill: at the start of each cell, and then one after this many kills. The length is that of the last ones.
QUIET_FIRST, QUIET_EVERY = 3, 10


def numbers_of(words):
    """Returns the ranks of a word that joins them by commas."""
    return set() if words in ([], ["-"]) else set(map(int, words[0].split(",")))


class Sort:
    """The lines of one sort on one rank."""

    def __init__(self, entered):
        self.entered, self.returned, self.freed = entered, None, None
        # The statuses of the sort and of the recoveries of its result.
        self.statuses, self.lost, self.blocks, self.changed = [], set(), [], []
        # The ranks that had failed when all blocks were written.
        self.failed = None

    def read(self, word, rest):
        if word == "return":
            self.returned = float(rest[1])
        if word in ("return", "recovered"):
            self.statuses.append(rest[2])
        elif word == "lost":
            self.lost = numbers_of(rest[1:])
        elif word == "block":
            self.blocks.append(tuple(map(int, rest)))
        elif word == "changed":
            self.changed.append(int(rest[1]))
        elif word == "written":
            self.failed = numbers_of(rest[2:])
        elif word == "free":
            self.freed = float(rest[1])


class Report:
    """The lines of one run: the inputs and the sorts of each rank."""

    def __init__(self, output):
        self.inputs, self.sorts = {}, {}
        for line in output.splitlines():
            word, *rest = line.split() or [""]
            if word == "input":
                self.inputs[int(rest[0])] = tuple(map(int, rest[1:]))
            elif word == "enter":
                self.sorts.setdefault(int(rest[0]), []).append(Sort(float(rest[1])))
            elif word in ("return", "recovered", "lost", "block", "changed", "written", "free"):
                self.sorts[int(rest[0])][-1].read(word, rest)

    def first(self, rank):
        """Returns the first sort of a rank."""
        return self.sorts.get(rank, [Sort(None)])[0]

    def length(self, until):
        """Returns the seconds from the first entry to the last return or release (`until`)."""
        sorts = [sort for sorts in self.sorts.values() for sort in sorts]
        return max(getattr(sort, until) for sort in sorts) - min(sort.entered for sort in sorts)

    def moment(self, rank):
        """Returns where a killed rank was: before a sort, in its call, with a kept result, or after its release."""
        last = self.sorts[rank][-1] if rank in self.sorts else None
        if last is None:
            return "before"
        return "call" if last.returned is None else "kept" if last.freed is None else "after"


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


def judge(report, ranks, killed, ranges):
    """Returns the outcome of a run that ended, and the reason if it is bad.

    `killed`: the killed ranks. `ranges`: returns the (offset, count, sum, xor) of ranges of an independent sort.
    """
    survivors = sorted(set(range(ranks)) - killed)
    silent = [rank for rank in survivors if rank not in report.sorts or report.sorts[rank][-1].freed is None]
    if silent:
        return "crash", f"ranks {silent} have not ended"
    if set(report.inputs) != set(range(ranks)):
        return "wrong", "an input has no digest"
    counts = {len(report.sorts[rank]) for rank in survivors}
    if len(counts) != 1:
        return "wrong", f"the survivors made {sorted(counts)} sorts"
    for number in range(counts.pop()):
        there = {rank: sorts[number] for rank, sorts in report.sorts.items() if len(sorts) > number}
        outcome, reason = judge_sort(list(report.inputs.values()), there, survivors, killed, ranges)
        if outcome != "right":
            return outcome, f"sort {number}: {reason}" if reason else ""
    return "right", ""


def judge_sort(inputs, sorts, survivors, killed, ranges):
    """Returns the outcome of one sort. `sorts`: the Sort of each rank that began it; `survivors`: of the whole run."""
    ends = {tuple(sorts[rank].statuses) for rank in survivors}
    if len(ends) != 1:
        return "wrong", f"statuses {sorted(ends)}"
    *before, last = ends.pop()
    if any(status != "0" for status in before) or last not in ("0", DATA_LOST):
        return "wrong", f"statuses {[*before, last]}"
    if last == DATA_LOST:
        named = [sorts[rank].lost for rank in survivors]
        is_right = named[0] and named[0] <= killed and all(lost == named[0] for lost in named)
        return ("lost", "in a recovery" if before else "") if is_right else ("wrong", f"lost ranks {named}")
    changed = sorted(node for sort in sorts.values() for node in sort.changed)
    if changed:
        return "wrong", f"the blocks of nodes {changed} changed"
    failed = {rank: sort.failed for rank, sort in sorts.items() if sort.failed is not None}
    gone = set().union(*failed.values())
    if failed and (any(found != gone for found in failed.values()) or set(survivors) - failed.keys() or gone - killed):
        return "wrong", f"failed ranks at the end of the output: {failed}"
    blocks = [block for rank, sort in sorts.items() if rank not in gone for block in sort.blocks]
    verdict, _ = combine(inputs, blocks)
    if verdict == "right":
        return "right", ""
    if verdict != "short" or not killed:
        return "wrong", verdict
    if killed <= {block[1] for block in blocks}:
        return "wrong", f"records are missing, but not those of nodes {sorted(killed)}"
    there = {block[2:6] for block in blocks if block[3]}
    if there != set(ranges([(offset, count) for offset, count, _, _ in there])):
        return "wrong", "a block of a short result is not that of an independent sort"
    return "short", "blocks of killed ranks are missing"


def draw(cell, seed, ranks, length):
    """Returns the victim of a run, and the seconds after the start at which it is killed: uniform in the call."""
    rng = random.Random(f"{cell} {seed}")
    return rng.randrange(ranks), rng.uniform(0, length)


def draw_successive(cell, seed, ranks, length):
    """Returns how many failed ranks end the sorts, and the kills of a run: (seconds after a recovery, rank)."""
    rng = random.Random(f"{cell} {seed}")
    return rng.randrange(ranks), [(rng.uniform(0, length), rank) for rank in rng.sample(range(ranks), ranks - 1)]


def is_bad(row):
    """Returns whether the outcome of a row is a failure in its mode."""
    outcome, mode = row["outcome"], row["mode"]
    if outcome == "lost" and row["store"] != "none":
        return mode in ("protected", "successive") or (mode == "free" and row["moments"] not in ("before", "call"))
    return outcome in BAD or (outcome == "short" and mode in ("free", "successive"))


class Cell:
    """A mode, a store, a number of ranks and a size."""

    def __init__(self, options, program, work, mode, store, megabytes):
        self.options, self.program, self.work, self.mode = options, program, work, mode
        self.ranks, self.store, self.size = options.ranks, store, f"{megabytes:g}"
        self.count = int(megabytes * 1e6) // 4 // self.ranks
        self.until = "returned" if mode in ("call", "protected") else "freed"
        self.lengths, self.kills = [], 0

    def name(self):
        """Returns the name of the cell, which is a part of the seed. It has no mode for kills in a call."""
        name = f"{self.store:<10} {self.size:>5} MB"
        return name if self.mode == "call" else f"{name} {self.mode}"

    def sort(self, seed, plan, sender=outside.Sender, again=0, hold=0):
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        store, _, replicas = self.store.partition(":")
        command = [self.program, "sort", self.work, store, replicas or 0, self.count, seed, self.mode, again, hold]
        return outside.run(self.ranks, command, self.options.limit, plan, sender)

    def ranges(self, seed, wanted):
        """Returns the digests of ranges of positions, from a sort by qsort."""
        words = [f"{offset}:{count}" for offset, count in wanted]
        command = [self.program, "check", self.ranks, self.count, seed, *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
        return [tuple(map(int, line.split()[1:])) for line in done.stdout.splitlines()]

    def judged(self, run, killed, seed):
        """Returns the outcome, the reason and the Report of a run."""
        report = Report(run.output)
        if run.hung:
            return *(("cut", f"queues of ranks {run.cut}") if run.cut else ("hang", "time limit")), report
        return *judge(report, self.ranks, killed, lambda wanted: self.ranges(seed, wanted)), report

    def length(self):
        """Returns the seconds of the mode's interval without a kill: the median of the last runs."""
        wanted = (1 if self.options.short else QUIET_FIRST) + self.kills // QUIET_EVERY
        while len(self.lengths) < wanted:
            run, _ = self.sort(len(self.lengths), [])
            outcome, reason, report = self.judged(run, set(), len(self.lengths))
            if outcome != "right":
                sys.exit(f"{self.name()} without a kill: {outcome}: {reason}\n{run.output}{run.stacks}")
            self.lengths.append(report.length(self.until))
        return statistics.median(self.lengths[-QUIET_FIRST:])

    def kill(self, seed):
        """Runs one sort with kills; returns its row, and the text to print if its outcome is bad."""
        length = self.length()
        self.kills += 1
        if self.mode == "successive":
            again, steps = draw_successive(self.name(), seed, self.ranks, length)
            run, sender = self.sort(seed, steps, outside.SuccessiveKills, again, self.ranks - 1)
        else:
            victim, instant = draw(self.name(), seed, self.ranks, length)
            steps = [(instant, victim)]
            run, sender = self.sort(seed, [(instant, victim, signal.SIGKILL)])
        killed = sender.killed()
        outcome, reason, report = self.judged(run, set(killed), seed)
        if outcome in ("right", "short") and self.mode != "successive":
            has_left = any(getattr(report.first(rank), self.until) is not None for _, rank in steps)
            outcome = "late" if has_left or not killed else outcome
        elif outcome == "right" and len(killed) < len(steps):
            outcome, reason = "wrong", f"only the ranks {sorted(killed)} were killed"
        row = {"mode": self.mode, "ranks": self.ranks, "store": self.store, "mb": self.size, "seed": seed,
               **self.kills_of(steps, sender, report), "length_ms": f"{length * 1e3:.2f}", "outcome": outcome}
        repeat = (f"--modes {self.mode} --runs 1 --seed {seed} --ranks {self.ranks} --stores {self.store} "
                  f"--mb {self.size}")
        text = (f"{self.name()} seed={seed} ranks {row['victims']} at {row['killed_ms']} ms: {outcome}: {reason}\n"
                f"    scripts/random_kills.py {repeat}")
        return row, text + f"\n{run.output}{run.stacks}" if is_bad(row) else None

    def kills_of(self, steps, sender, report):
        """Returns the columns of a row about its kills."""
        killed, after = sender.killed(), {}
        for rank, seconds in killed.items():
            entered = report.first(rank).entered or sender.start
            after[rank] = f"{(sender.start + seconds - entered) * 1e3:.2f}"
        ranks = [rank for _, rank in steps if rank in killed or self.mode != "successive"]
        return {"victims": " ".join(map(str, ranks)),
                "drawn_ms": " ".join(f"{seconds * 1e3:.2f}" for seconds, rank in steps if rank in ranks),
                "killed_ms": " ".join(after.get(rank, "") for rank in ranks),
                "moments": " ".join(report.moment(rank) for rank in ranks if rank in killed)}


def line_of(name, rows):
    """Returns the line of the table for the rows of a cell."""
    counts = collections.Counter(row["outcome"] for row in rows)
    kills = sum(len(row["victims"].split()) for row in rows if row["outcome"] not in ("late", "cut"))
    times = {name: [float(row["killed_ms"].split()[-1]) for row in rows if row["outcome"] == name and row["killed_ms"]]
             for name in ("lost", "short")}
    latest = f"{max(times['lost']):.1f}" if times["lost"] else "-"
    first = f"{min(times['short']):.1f}" if times["short"] else "-"
    length = statistics.median(float(row["length_ms"]) for row in rows)
    cells = " ".join(f"{counts[column]:>5}" for column in COLUMNS)
    return (f"{name:<31} {kills:>5} {cells}  {outside.shown_interval(counts['lost'], kills):>18} "
            f"{outside.shown_interval(counts['short'], kills):>18} {length:>10.1f} {latest:>11} {first:>11}")


def cells_of(options):
    """Yields (mode, store, runs) of each cell of a size."""
    for mode in options.modes:
        # As a test, the modes beside "call" run with one store.
        is_brief = options.short and mode != "call"
        for store in options.stores[:1] if is_brief else options.stores:
            yield mode, store, 1 if is_brief else options.runs


def kill_all(options, program, folder):
    """Runs all cells; returns the number of bad runs."""
    print(f"{options.ranks} ranks; random ranks are killed at uniformly drawn instants")
    print(f"{'store, size, mode':<31} kills " + " ".join(f"{column:>5}" for column in COLUMNS)
          + f"  {'lost, % (95 %)':>18} {'short, % (95 %)':>18} {'length, ms':>10} {'latest loss':>11} {'first short':>11}")
    sizes = ",".join(f"{megabytes:g}" for megabytes in options.mb)
    comment = (f"Made by: scripts/random_kills.py --modes {','.join(options.modes)} --runs {options.runs} "
               f"--ranks {options.ranks} --seed {options.seed} --stores {','.join(options.stores)} --mb {sizes}")
    bad = []
    with tables.Appender(options.csv, FIELDS, fresh=not options.resume, comment=comment) as file:
        for megabytes in options.mb:
            for mode, store, runs in cells_of(options):
                cell = Cell(options, program, folder / "work", mode, store, megabytes)
                same = {"mode": mode, "ranks": str(cell.ranks), "store": store, "mb": cell.size}
                done = {int(row["seed"]) for row in tables.chosen(file.rows, **same)}
                for seed in range(options.seed, options.seed + runs):
                    if seed not in done:
                        row, text = cell.kill(seed)
                        file.add(row)
                        bad += [text] if text else []
                print(line_of(cell.name(), tables.chosen(file.rows, **same)), flush=True)
        if not any(row["killed_ms"].strip() for row in file.rows):
            bad.append("no rank was killed")
    print(*bad, sep="\n", end="\n" if bad else "")
    return len(bad)


def unprotected(events, enter, leave):
    """Returns the seconds from the entry of a call to the end of its protection, from the events of a rank's trace."""
    ends = [(event["ts"] + event["dur"]) / 1e6 for event in events if event["name"] == "protect"]
    within = [end for end in ends if enter <= end <= leave + 1e-6]
    return max(within) - enter if within else None


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
                    traces = timeline.traces_of(work / "trace")
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
    parser.add_argument("--modes", type=lambda words: words.split(","),
                        help=f"some of {', '.join(MODES)}; default: call, and all as a test")
    parser.add_argument("--runs", type=int, default=100, help="runs for each mode, store and size")
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
    options.modes = options.modes or (MODES if options.short else MODES[:1])
    if set(options.modes) - set(MODES):
        parser.error(f"--modes is {','.join(options.modes)}: use some of {','.join(MODES)}")
    options.stores = options.stores or [f"memory:{replicas}" for replicas in sorted({1, max(1, options.ranks - 1)})] + [
        "none", "directory"]
    with tempfile.TemporaryDirectory(prefix="ftsort-random-kills-") as folder:
        folder = pathlib.Path(folder)
        options.csv = options.csv or folder / "rows.csv"
        program = launch.build_c(launch.ROOT / "tests/c/random_kills.c", folder, options.profile)
        sys.exit(1 if (measure_all if options.measure else kill_all)(options, program, folder) else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Kills ranks of a running sort with SIGKILL, many times over, and counts the outcomes.

A cell of the table is a number of ranks, a number of victims, a store and a repair method. A timer kills a victim at a
random moment of the sort; one victim in four is killed during the recovery from another failure. Every run is checked:
the output is compared bit for bit with the same records, sorted by an independent program, and every rank that was not
a victim must have left a status. The seed of a failed run is printed with the command that repeats it.

  right   all survivors have sorted
  lost    all survivors returned FTSORT_ERR_DATA_LOST and the same lost ranks; these have failed, and more ranks failed
          than the store has copies for, or a rank failed before its input was in the store
  wrong   any other result: wrong output, or survivors that disagree
  crash   a rank that was not a victim ended without a status
  hang    the run did not end within the time limit
  cut     a hang of Open MPI, recognised by its queues (queues.py): a rank was killed while it appended a message to the
          queue of another rank in shared memory. The run is repeated and not counted among the others. If the layout
          of the queues is unknown, the run counts as a hang.

After the outcomes a line has the failed ranks of a run on average, the median of the seconds of a run's slowest survivor,
and the greatest resident memory of a survivor in any run. With --large the table has 128 and 256 ranks; use a smaller
--count and a longer --limit.
"""

import argparse
import collections
import pathlib
import random
import shutil
import statistics
import sys
import tempfile

import launch

COLUMNS = ["right", "lost", "wrong", "crash", "hang", "cut"]
DATA_LOST = "-40"
# A broken queue occurs once in hundreds of runs. This many in a row count as a hang.
TRIES = 3


class Cell:
    def __init__(self, ranks, victims, store, replicas, repair, runs, algorithm="auto"):
        self.ranks, self.victims, self.store = ranks, victims, store
        self.replicas, self.repair, self.runs = replicas, repair, runs
        self.algorithm = algorithm

    def name(self):
        store = f"{self.store}:{self.replicas}" if self.store in ("memory", "parity") else self.store
        return f"N={self.ranks:<3} killed={self.victims:<3} {store:<10} {self.repair:<6}"


def large_cells():
    """Yields cells with far more ranks than processors. More kills than the copies in memory need `reload`."""
    for ranks, runs in [(128, 50), (256, 20)]:
        for victims in (0, 1, ranks // 2, ranks - 1):
            store, replicas = ("memory", 1) if victims <= 1 else ("reload", 0)
            yield Cell(ranks, victims, store, replicas, "agree", runs)


def cells(short, repairs):
    """Yields the cells of the table of docs/failure-model.md; with `short` one run of some cells with failures."""
    for repair in repairs:
        for ranks, runs in [(1, 5), (2, 30), (3, 10), (4, 30), (5, 10), (6, 10), (7, 10), (8, 30), (16, 10), (32, 5)]:
            usual = {0, 1, ranks // 2, ranks - 1}
            # Of parity: the shares, and the ranks of a group.
            shapes = ["1/4", "2/8"] if ranks == 8 else []
            for victims in sorted(usual | {2 for _ in shapes}):
                if victims >= ranks:
                    continue
                # With one copy data can be lost only if more than one rank fails.
                few = [1] if victims > 1 else []
                few += [2] if victims > 1 and not short else []
                memory = [("memory", replicas) for replicas in sorted({*few, max(1, ranks - 1)})]
                stores = [*memory, ("directory", 0), ("reload", 0)] if victims in usual else []
                for store, replicas in [*stores, *(("parity", shape) for shape in shapes)]:
                    if short and (ranks not in (3, 8) or victims == 0 or repair == "shrink"):
                        continue
                    count = 1 if short else 5 if victims == 0 else runs
                    yield Cell(ranks, victims, store, replicas, repair, count)


def schedule(cell, rng, window):
    """Returns the failures as a value of FTSORT_FAULTS, and the set of victims."""
    words = []
    for index, rank in enumerate(rng.sample(range(cell.ranks), cell.victims)):
        if index % 4 == 3:
            words.append(f"{rank}@{rng.randrange(4)}.recover")
        else:
            words.append(f"{rank}@{rng.uniform(0, window) * 1e3:.3f}ms")
    return " ".join(words), {int(word.split("@")[0]) for word in words}


def shape_of(cell):
    """The shares of a group, and the ranks of a group, with the store parity."""
    shares, _, group = str(cell.replicas).partition("/")
    return int(shares), int(group or 8)


def may_lose(cell, failed, copies):
    """Returns whether so many ranks have failed that data can be lost. All ranks are on one host."""
    if cell.store != "parity" or len(failed) > copies + 1:
        return len(failed) > copies
    # The ranks are dealt to the groups in turn.
    groups = -(-cell.ranks // shape_of(cell)[1])
    return len(failed) > copies and len({rank % groups for rank in failed}) == 1


def judge(cell, run, left, victims, check):
    """Returns the column of a run, and the reason if the run failed."""
    if run.hung:
        return ("cut", f"queues of ranks {run.cut}") if run.cut else ("hang", "time limit")
    silent = set(range(cell.ranks)) - set(left) - victims
    if silent:
        return "crash", f"ranks {sorted(silent)} left no status"
    codes = {status["status"] for status in left.values()}
    if codes == {"0"}:
        verdict = check()
        return ("right", "") if verdict == "right" else ("wrong", verdict)
    failed = set(range(cell.ranks)) - set(left)
    copies = {"none": 0, "memory": cell.replicas, "parity": shape_of(cell)[0]}.get(cell.store, cell.ranks)
    lost = {status.get("lost", "") for status in left.values()}
    names = {int(rank) for word in lost for rank in word.split(",") if rank}
    loading = all(status.get("rounds") == "0" for status in left.values())
    agreed = len(lost) == 1 and names and names <= failed
    if codes == {DATA_LOST} and agreed and cell.store != "reload" and (may_lose(cell, failed, copies) or loading):
        return "lost", ""
    return "wrong", f"statuses {sorted(codes)}, {len(failed)} failed, lost {sorted(lost)}"


class GeneratedRecords:
    """Sorts records that tests/c/sorter.c generates."""

    def __init__(self, options, folder):
        self.sorter = launch.build_c(launch.ROOT / "tests/c/sorter.c", folder, options.profile)
        self.size = [options.count, options.kind, options.shape]

    def sort(self, cell, work):
        return [self.sorter, "run", work, *self.size, cell.store, cell.replicas, cell.repair, cell.algorithm,
                "reload" if cell.store == "reload" else "-"]

    def check(self, cell, work):
        return [self.sorter, "check", work, *self.size, cell.ranks]

    def statuses(self, work, _run):
        """Returns the status file of each rank, as words by name."""
        found = {}
        for file in work.glob("status.*"):
            words = file.read_text().split("text=")[0].split()
            found[int(file.suffix[1:])] = dict(word.split("=") for word in words)
        return found


class RealFile:
    """Sorts a file with c_examples/sort_file.c, which reads the file again after a loss of data."""

    def __init__(self, options, folder):
        self.sorter = launch.build_c(launch.ROOT / "c_examples/sort_file.c", folder, options.profile)
        self.checker = launch.build_checker(folder)
        self.input = folder / "input"
        content = options.file.read_bytes()[: options.bytes]
        self.input.write_bytes(content[: len(content) // 4 * 4])

    def sort(self, cell, work):
        store = ["--store", cell.store, "--directory", work, "--replicas", cell.replicas]
        algorithm = ["--algorithm", cell.algorithm.split(":")[0]]
        return [self.sorter, "--progress", *algorithm, *store, self.input, work / "output"]

    def check(self, _cell, work):
        return [self.checker, "i32", self.input, work / "output"]

    def statuses(self, _work, run):
        """Returns the status of each survivor from the line that it prints at its end."""
        ends = (line.split() for line in run.output.splitlines() if line.startswith("finished "))
        return {int(end[1]): {"status": "0", "seconds": end[3]} for end in ends}


class Table:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.subject = (RealFile if options.file else GeneratedRecords)(options, folder)
        self.bad = []
        self.quiet = {}

    def undisturbed(self, cell):
        """Returns the seconds of the cell's sort without failures, from which the moments of the kills are drawn."""
        quiet = Cell(cell.ranks, 0, cell.store, cell.replicas, cell.repair, 1, cell.algorithm)
        key = quiet.name(), quiet.algorithm
        if key not in self.quiet:
            column, self.quiet[key], _, _ = self.one(quiet, 0, 0)
            if column != "right":
                sys.exit("\n".join(["without kills:", *self.bad]))
        return self.quiet[key]

    def one(self, cell, seed, window):
        """Runs one sort; returns its column, the seconds of the slowest survivor, the number of failures, and the
        greatest resident memory of a survivor in MiB, which is 0 if the subject does not report it."""
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        faults, victims = schedule(cell, random.Random(f"{cell.name()} {seed}"), window)
        command = self.subject.sort(cell, work)
        run = launch.launch(cell.ranks, command, self.options.limit, faults)
        left = self.subject.statuses(work, run)

        column, reason = judge(cell, run, left, victims, lambda: launch.verdict_of(self.subject.check(cell, work)))
        if column in ("wrong", "crash", "hang", "cut"):
            self.keep(cell, seed, column, reason, launch.shown(cell.ranks, command, faults), run.output + run.stacks, left)
        leftovers = list(work.glob("ftsort-*"))
        if column in ("right", "lost") and leftovers:
            column = "wrong"
            self.keep(cell, seed, column, f"files left: {leftovers}", "", run.output, left)
        seconds = max((float(status.get("seconds", 0)) for status in left.values()), default=0)
        resident = max((int(status.get("resident", 0)) for status in left.values()), default=0) / 1024
        return column, seconds, cell.ranks - len(left), resident

    def keep(self, cell, seed, column, reason, command, output, left):
        self.bad.append(f"{cell.name()} {cell.algorithm} seed={seed} {column}: {reason}\n    {command}")
        if self.options.keep:
            file = pathlib.Path(self.options.keep) / f"{cell.name().replace(' ', '_')}seed{seed}.log"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{column}: {reason}\n{command}\n{left}\n{output}")

    def row(self, cell):
        columns, failures, times, resident = collections.Counter(), 0, [], 0
        algorithms = self.options.algorithm.split(",")
        for seed in range(self.options.seed, self.options.seed + cell.runs):
            cell.algorithm = algorithms[(seed - 1) % len(algorithms)]
            for _ in range(TRIES):
                column, seconds, failed, memory = self.one(cell, seed, 0.9 * self.undisturbed(cell))
                columns[column] += 1
                if column != "cut":
                    break
            else:
                columns["hang"] += 1
            failures += failed
            times.append(seconds)
            resident = max(resident, memory)
        counts = " ".join(f"{columns[name]:>5}" for name in COLUMNS)
        measured = f"{statistics.median(times):7.2f} {resident:6.1f}"
        print(f"{cell.name()} {counts}   {failures / cell.runs:8.1f} {measured}", flush=True)
        return columns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="one run of few cells, as a test of every change")
    parser.add_argument("--large", action="store_true", help="cells of 128 and 256 ranks instead of the usual ones")
    parser.add_argument("--repair", default="agree,shrink", help="agree, shrink or both")
    parser.add_argument("--algorithm", default="auto,hyperquicksort,quickmerge,bitonic,auto:dense",
                        help="the algorithms, which the runs of a cell use in turn")
    parser.add_argument("--count", type=int, default=200_000, help="records of each rank")
    parser.add_argument("--kind", default="i32")
    parser.add_argument("--shape", default="random", help="random, equal, few, sorted, reversed, holes, one, empty")
    parser.add_argument("--file", type=pathlib.Path, help="sort this file, as 32-bit integers, instead of generated records")
    parser.add_argument("--bytes", type=int, default=1 << 25, help="use at most this many bytes of the file")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--limit", type=float, default=40, help="seconds after which a run counts as hung")
    parser.add_argument("--runs", type=int, help="at most this many runs of each cell")
    parser.add_argument("--ranks", type=int, help="only the cells with this number of ranks")
    parser.add_argument("--store", help="only the cells with this store")
    parser.add_argument("--killed", type=int, help="only the cells with so many kills")
    parser.add_argument("--profile", default="release", help="cargo's profile of the library")
    parser.add_argument("--keep", help="a folder for the logs of failed runs")
    options = parser.parse_args()

    print(f"{'':<34} " + " ".join(f"{name:>5}" for name in COLUMNS) + "   failures seconds    MiB")
    total = {}
    with tempfile.TemporaryDirectory(prefix="ftsort-kills-") as folder:
        table = Table(options, pathlib.Path(folder))
        for cell in large_cells() if options.large else cells(options.short, options.repair.split(",")):
            if options.store and cell.store != options.store or options.killed not in (None, cell.victims):
                continue
            cell.runs = min(cell.runs, options.runs or cell.runs)
            if options.ranks in (None, cell.ranks):
                total.setdefault(cell.repair, collections.Counter()).update(table.row(cell))
    for repair, columns in total.items():
        print(f"{'all, ' + repair:<34} " + " ".join(f"{columns[name]:>5}" for name in COLUMNS))
    for line in table.bad:
        print(line)
    # The repair method of the papers (shrink) is measured for comparison. Its failures are not counted.
    ours = total.get("agree", collections.Counter())
    bad = ours["wrong"] + ours["crash"] + ours["hang"]
    runs = sum(sum(columns.values()) - columns["cut"] for columns in total.values())
    print(f"{runs - bad} passed, {bad} failed")
    sys.exit(1 if bad or not runs else 0)


if __name__ == "__main__":
    main()

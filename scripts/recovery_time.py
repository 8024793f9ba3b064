#!/usr/bin/env python3
"""Measures how long the survivors need after a failure until they commit again.

Kills one rank of a running sort from outside, many times over. The time of a run is the time from the kill to the
next commit, which contains the work of that round and the work that has to be repeated. For comparison, the program
also prints the longest time between two commits of a run without a failure. --csv writes the time of each run.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import statistics
import tempfile
import threading
import time

import launch
import tables

ROUND = 1


class Trace:
    """The files that tests/c/sorter.c writes with "trace": one line for each event of each rank."""

    def __init__(self, folder, ranks):
        self.files = [folder / f"trace.{rank}" for rank in range(ranks)]

    def events(self, rank):
        """Returns (pid, seconds, kind, round) of each event that the rank has received so far."""
        if not self.files[rank].exists():
            return []
        lines = (line.split() for line in self.files[rank].read_text().splitlines())
        return [(int(w[0]), float(w[1]), int(w[2]), int(w[3])) for w in lines if len(w) == 4]

    def commits(self):
        """Returns the time of each commit, in order, on the rank that learned of it last."""
        times = {}
        for rank in range(len(self.files)):
            for _, seconds, kind, number in self.events(rank):
                if kind == ROUND:
                    times[number] = max(seconds, times.get(number, 0))
        return sorted(times.values())


def kill(trace, victim, wait, kills):
    """Kills the victim `wait` seconds after the commit of its input."""
    deadline = time.monotonic() + 30
    while not trace.events(victim):
        if time.monotonic() > deadline:
            return
        time.sleep(0.0005)
    time.sleep(wait)
    try:
        os.kill(trace.events(victim)[0][0], signal.SIGKILL)
        kills.append(time.monotonic())
    except ProcessLookupError:
        pass  # The rank had finished.


def one(options, sorter, work, victim, wait):
    """Runs one sort; returns the time of the kill, if it fell into the sort, and the times of the commits."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    trace, kills = Trace(work, options.ranks), []
    killer = threading.Thread(target=kill, args=(trace, victim, wait, kills))
    if victim is not None:
        killer.start()
    command = [sorter, "run", work, options.count, "i32", "random", options.store, 1, "agree", "hyperquicksort", "trace"]
    run = launch.launch(options.ranks, command, 60)
    if victim is not None:
        killer.join()
    if run.hung:
        raise SystemExit(f"a run did not end: {run.output}")
    return (kills or [None])[0], trace.commits()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="number of kills within a sort")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--count", type=int, default=1_000_000, help="records of each rank")
    parser.add_argument("--store", default="memory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--note", default="", help="a remark for the title of the picture, such as the load of the machine")
    parser.add_argument("--csv", type=pathlib.Path, help="a file for the time of each run")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="ftsort-recovery-") as folder:
        sorter = launch.build_c(launch.ROOT / "tests/c/sorter.c", folder)
        work = pathlib.Path(folder) / "work"
        _, quiet = one(options, sorter, work, None, 0)
        longest = max(after - before for before, after in zip(quiet, quiet[1:]))
        window = quiet[-1] - quiet[0]
        times = []
        while len(times) < options.runs:
            killed, commits = one(options, sorter, work, draw.randrange(options.ranks), draw.uniform(0, 0.9 * window))
            later = [seconds for seconds in commits if killed and seconds > killed]
            if later:
                times.append(later[0] - killed)
    print(f"{options.ranks} ranks, {options.count} records each, store {options.store}, {len(times)} kills within the sort")
    print(f"without a failure, the longest time between two commits: {longest * 1e3:.1f} ms")
    print(f"from a kill to the next commit: median {statistics.median(times) * 1e3:.1f} ms, "
          f"longest {max(times) * 1e3:.1f} ms")
    if options.csv:
        command = (f"scripts/recovery_time.py --runs {options.runs} --ranks {options.ranks} --count {options.count} "
                   f"--store {options.store} --seed {options.seed} --csv {options.csv.name}")
        comment = (f"Made by: {command}; without a failure, the longest time between two commits was {longest * 1e3:.1f} ms"
                   + f". Note: {options.note}" * bool(options.note))
        tables.write(options.csv, [{"recovery_ms": f"{seconds * 1e3:.1f}"} for seconds in times], comment)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Kills one rank of a running sort from outside, many times over, and prints how long it takes until the
survivors commit again: the next round after the kill, its own work and what has to be done again
included. Beside it, the longest time between two commits of a run that nobody disturbs.
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

ROUND = 1


class Trace:
    """What tests/c/sorter.c writes with "trace": one line for each event of each rank."""

    def __init__(self, folder, ranks):
        self.files = [folder / f"trace.{rank}" for rank in range(ranks)]

    def events(self, rank):
        """(pid, seconds, kind, round) of what the rank has been told so far."""
        if not self.files[rank].exists():
            return []
        lines = (line.split() for line in self.files[rank].read_text().splitlines())
        return [(int(w[0]), float(w[1]), int(w[2]), int(w[3])) for w in lines if len(w) == 4]

    def commits(self):
        """When each round was committed, on the rank that heard of it last, in order."""
        times = {}
        for rank in range(len(self.files)):
            for _, seconds, kind, number in self.events(rank):
                if kind == ROUND:
                    times[number] = max(seconds, times.get(number, 0))
        return sorted(times.values())


def strike(trace, victim, wait, struck):
    """Kills the victim some time after its inputs were committed."""
    deadline = time.monotonic() + 30
    while not trace.events(victim):
        if time.monotonic() > deadline:
            return
        time.sleep(0.0005)
    time.sleep(wait)
    try:
        os.kill(trace.events(victim)[0][0], signal.SIGKILL)
        struck.append(time.monotonic())
    except ProcessLookupError:
        pass  # It was done already.


def one(options, sorter, work, victim, wait):
    """One run; returns the time of the kill, if it fell into the sort, and the commits."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    trace, struck = Trace(work, options.ranks), []
    killer = threading.Thread(target=strike, args=(trace, victim, wait, struck))
    if victim is not None:
        killer.start()
    command = [sorter, "run", work, options.count, "i32", "random", options.store, 1, "agree", "hyperquicksort", "trace"]
    run = launch.launch(options.ranks, command, 60)
    if victim is not None:
        killer.join()
    if run.hung:
        raise SystemExit(f"hung: {run.output}")
    return (struck or [None])[0], trace.commits()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--count", type=int, default=1_000_000, help="records a rank")
    parser.add_argument("--store", default="memory")
    parser.add_argument("--seed", type=int, default=1)
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
            struck, commits = one(options, sorter, work, draw.randrange(options.ranks), draw.uniform(0, 0.9 * window))
            later = [seconds for seconds in commits if struck and seconds > struck]
            if later:
                times.append(later[0] - struck)
        print(f"{options.ranks} ranks, {options.count} records each, {options.store}, {len(times)} kills within the sort")
        print(f"undisturbed, the longest time between two commits: {longest * 1e3:.1f} ms")
        print(f"from a kill to the next commit: median {statistics.median(times) * 1e3:.1f} ms, "
              f"worst {max(times) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Kills ranks, or whole jobs that another job continues, at instants drawn uniformly, many times over.

The first two modes sort a file of random records of 100 bytes with 10-byte keys (tests/c/external_killed.c) that is larger
than the memory of the sort, and scripts/check_records.c compares order and content. Modes:

  ranks  1, N/2 and N-1 of N ranks are killed during one job
  job    all ranks are killed, and the sort is resumed, with another number of ranks each time, until it is complete
  loop   all ranks of a loop with stored states (tests/c/restart_killed.c) are killed, sometimes one rank before the others,
         and other jobs continue the states, until the loop is complete
  rounds the same with an algorithm in rounds (tests/c/restart_rounds_killed.c)
  sort   the same with a sort that stores its result, of which the jobs repeat nothing (tests/c/restart_sort_killed.c)

Outcomes:

  right  the output is right, and no other file is left (after jobs that may be resumed: but for the state). In a loop, no
         job repeats a round whose commit a rank of an earlier job has reported
  wrong  any other output or status
  hang   a run did not end within the time limit

Runs that are wrong or hang are failures, and are printed with their seed. The time is in multiples of a sort without
failures, the median of all runs: of the survivors, or of all jobs of a sort together, without the start of MPI.

With the default memory a sort reads and writes every byte twice; with `--memory 1` it makes three passes. The number of
passes of the sort without failures is printed first.
"""

import argparse
import pathlib
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time

import launch
import outside

OUTCOMES = ["right", "wrong", "hang"]

# The seconds from the announcement of the start to the start, in tests/c/outside.h.
NOTICE = 0.3


def seconds_of(output):
    """Returns the seconds of the sort on each rank that has finished it."""
    lines = [line for line in output.splitlines() if " records in " in line]
    return [float(line.split(" in ")[1].split()[0]) - NOTICE for line in lines]


def bytes_read(output):
    """Returns the bytes that all ranks have read."""
    lines = [line for line in output.splitlines() if " records in " in line]
    return sum(1e6 * float(line.split(" read ")[1].split()[0]) for line in lines)


class Sorts:
    """External sorts of one file in a folder."""

    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.program = launch.build_c(launch.ROOT / "tests/c/external_killed.c", folder, options.profile)
        self.checker = launch.build_checker(folder, "check_records")
        self.input, self.output, self.scratch = self.folder / "input", self.folder / "sorted", self.folder / "scratch"
        draw = random.Random(options.seed)
        with open(self.input, "wb") as file:
            for _ in range(options.mb):
                file.write(draw.randbytes(1_000_000))
        self.seconds = self.whole()

    def run(self, ranks, plan, resume):
        """Runs one job; returns the launch.Run and the Sender."""
        self.scratch.mkdir(exist_ok=True)
        command = [self.program, "--memory", self.options.memory, "--scratch", self.scratch]
        command += ["--parts", self.options.parts] if self.options.parts else []
        command += ["--resume"] if resume else []
        return outside.run(ranks, [*command, self.input, self.output], self.options.limit, plan)

    def whole(self):
        """Sorts without failures; returns the seconds of the sort."""
        done, _ = self.run(self.options.ranks, [], False)
        if self.verdict(done, False) != "right":
            sys.exit(f"the sort without failures is wrong:\n{done.output}")
        passes = bytes_read(done.output) / self.input.stat().st_size
        seconds = statistics.median(seconds_of(done.output))
        print(f"a sort without failures: {passes:.1f} passes, {seconds:.2f} s", flush=True)
        return seconds

    def verdict(self, done, resume):
        """Returns the outcome of the last job, and removes its files."""
        if done.hung:
            return "hang"
        left = sorted(path.name for path in [*self.folder.glob("sorted*"), *self.scratch.glob("*")])
        files = [f"sorted.{part:05}" for part in range(self.options.parts)]
        right = left == (files or ["sorted"]) + (["sorted.ftsort"] if resume else [])
        if files and right:
            with open(self.output, "wb") as whole:
                for name in files:
                    whole.write((self.folder / name).read_bytes())
        right = right and launch.verdict_of([self.checker, 100, 10, self.input, self.output]) == "right"
        for path in self.folder.glob("sorted*"):
            path.unlink()
        shutil.rmtree(self.scratch)
        return "right" if right else f"wrong ({left})"

    def with_kills(self, kills, draw):
        """Kills ranks during one job. Returns the outcome, the kills that were sent, and the seconds of the survivors."""
        ranks = draw.sample(range(self.options.ranks), kills)
        plan = [(draw.uniform(0, self.seconds), rank, signal.SIGKILL) for rank in ranks]
        done, sender = self.run(self.options.ranks, plan, False)
        return self.verdict(done, False), len(sender.sent), max(seconds_of(done.output), default=0.0), done.output

    def with_killed_jobs(self, draw):
        """Kills whole jobs until the sort is complete. Returns the outcome, the number of killed jobs, the output, and the
        seconds of all jobs together."""
        killed, text, seconds = 0, "", 0.0
        while True:
            ranks = draw.randint(1, self.options.ranks)
            instant = draw.uniform(0, 1.2 * self.seconds)
            plan = [(instant, rank, signal.SIGKILL) for rank in range(ranks)] if killed < self.options.most else []
            done, sender = self.run(ranks, plan, True)
            text += done.output
            if done.hung or len(sender.sent) < ranks:
                break
            killed += 1
            seconds += instant
        if sender.sent and not done.hung:
            # Some ranks had ended: the others may have been killed while they removed their runs.
            done, _ = self.run(self.options.ranks, [], True)
            text += done.output
        seconds += max(seconds_of(done.output), default=0.0)
        return self.verdict(done, True), killed, text, seconds


class Loops:
    """Loops with stored states in a folder, of the program tests/c/NAME.c.

    `arguments` are those of the program, and `last` is the number of the last stored round. The line of the result begins
    with `result`. A loop that `clears` removes its files at the end.
    """

    ROUNDS, POINTS = 60, 100_000

    def __init__(self, options, folder, name, last, arguments=(ROUNDS, POINTS), result="pi is about", clears=True):
        self.options, self.folder = options, pathlib.Path(folder)
        self.program = launch.build_c(launch.ROOT / "tests/c" / f"{name}.c", folder, options.profile)
        self.last, self.arguments, self.prefix, self.clears = last, arguments, result, clears
        # The numbers of ranks with as many nodes.
        self.ranks = [ranks for ranks in range(2, options.ranks + 1)
                      if (ranks - 1).bit_length() == (options.ranks - 1).bit_length()]
        start = time.monotonic()
        done, sender = self.run(options.ranks, [])
        self.seconds = time.monotonic() - max(start, sender.start)
        self.result = self.result_of(done.output)
        if self.result is None:
            sys.exit(f"the loop without failures is wrong:\n{done.output}")

    def run(self, ranks, plan):
        """Runs one job; returns the launch.Run and the Sender."""
        command = [self.program, self.folder / "states", *self.arguments]
        (self.folder / "states").mkdir(exist_ok=True)
        return outside.run(ranks, command, self.options.limit, plan)

    def result_of(self, output):
        """Returns the result of a complete loop; None also if it has not removed its files and should have."""
        result = [line for line in output.splitlines() if line.startswith(self.prefix)]
        has_files = self.clears and any((self.folder / "states").iterdir())
        return result[0] if result and not has_files else None

    def with_killed_jobs(self, draw):
        """Kills jobs until the loop is complete. Returns the outcome, the number of killed jobs, the output, and no seconds."""
        killed, committed, text = 0, 0, ""
        shutil.rmtree(self.folder / "states", ignore_errors=True)
        while True:
            ranks = draw.choice(self.ranks)
            instant = draw.uniform(0, self.seconds)
            early = draw.randrange(ranks) if draw.random() < 0.5 else None
            plan = [(instant if rank != early else draw.uniform(0, instant), rank, signal.SIGKILL)
                    for rank in range(ranks)] if killed < self.options.most else []
            done, sender = self.run(ranks, plan)
            text += done.output
            if done.hung:
                return "hang", killed, text, None
            words = [line.split() for line in done.output.splitlines()]
            found = {int(line[1]) for line in words if line[:1] == ["found"]}
            reported = [int(line[1]) for line in words if line[:1] == ["committed"]]
            if self.clears and committed == self.last and (found == {1} or reported and not found):
                # The states of the complete loop had been discarded, and a job may end before it reports its first commit.
                committed = 0
            if len(found) > 1 or any(not committed <= rounds <= committed + 1 for rounds in found):
                return f"wrong (found {found} after {committed})", killed, text, None
            if reported and not found and committed > 0:
                return f"wrong (begun again after {committed})", killed, text, None
            committed = max([committed, *found, *reported])
            if len(sender.sent) < ranks:
                break
            killed += 1
        if sender.sent and self.result_of(done.output) is None:
            # Some ranks had ended: the others may have been killed while they removed their files.
            done, _ = self.run(self.options.ranks, [])
            text += done.output
        # Also the results of jobs that were killed.
        results = {line for line in text.splitlines() if line.startswith(self.prefix)}
        is_right = self.result_of(done.output) == self.result and results == {self.result}
        return "right" if is_right else "wrong", killed, text, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each number of kills, and sorts of killed jobs")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["ranks", "job", "loop", "rounds", "sort"])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mb", type=int, default=100, help="the size of the file in 10^6 bytes")
    parser.add_argument("--memory", type=int, default=16, help="the memory of each rank in MiB")
    parser.add_argument("--parts", type=int, default=0, help="the number of files of the output; 0: one without a number")
    parser.add_argument("--most", type=int, default=12, help="at most so many killed jobs for one sort")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60, help="seconds after which a run counts as hung")
    parser.add_argument("--profile", default="release", help="cargo's profile of the library")
    options = parser.parse_args()
    bad = 0

    def count(counts, outcome, name, text):
        nonlocal bad
        counts[outcome.split()[0]] += 1
        if outcome != "right":
            bad += 1
            print(f"{outcome}: {name}\n{text}", file=sys.stderr, flush=True)

    def show(name, counts, sent, more=""):
        print(f"{name:<10}" + "".join(f"{counts[outcome]:>8}" for outcome in OUTCOMES) + f"{sent:>8}{more}", flush=True)

    def kill_jobs(mode, target):
        counts, jobs, times = dict.fromkeys(OUTCOMES, 0), 0, []
        for number in range(options.runs):
            name = f"seed {options.seed}, mode {mode}, run {number}"
            outcome, killed, text, seconds = target.with_killed_jobs(random.Random(name))
            count(counts, outcome, name, text)
            jobs += killed
            times += [seconds / target.seconds] if seconds else []
        show(mode, counts, jobs, f"{statistics.median(times):>8.2f}" if times else "")

    with tempfile.TemporaryDirectory(prefix="ftsort-external-kills-") as folder:
        sorts = Sorts(options, folder) if {"ranks", "job"} & set(options.modes) else None
        print(f"{'kills':<10}" + "".join(f"{outcome:>8}" for outcome in OUTCOMES) + f"{'sent':>8}{'time':>8}")
        for kills in sorted({1, options.ranks // 2, options.ranks - 1} if "ranks" in options.modes else ()):
            counts, sent, times = dict.fromkeys(OUTCOMES, 0), 0, []
            for number in range(options.runs):
                name = f"seed {options.seed}, {kills} kills, run {number}"
                outcome, some, seconds, text = sorts.with_kills(kills, random.Random(name))
                count(counts, outcome, name, text)
                sent += some
                times.append(seconds / sorts.seconds)
            show(kills, counts, sent, f"{statistics.median(times):>8.2f}")
        if "job" in options.modes:
            kill_jobs("job", sorts)
        if "loop" in options.modes:
            kill_jobs("loop", Loops(options, folder, "restart_killed", Loops.ROUNDS))
        if "rounds" in options.modes:
            dimensions = (options.ranks - 1).bit_length()
            kill_jobs("rounds", Loops(options, folder, "restart_rounds_killed", Loops.ROUNDS + dimensions))
        if "sort" in options.modes:
            result = "the whole result is"
            kill_jobs("sort", Loops(options, folder, "restart_sort_killed", 1, (3_000_000,), result, clears=False))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

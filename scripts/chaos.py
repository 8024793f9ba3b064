#!/usr/bin/env python3
"""Kills, stops and slows ranks from outside at random instants, while they make many different calls of the library.

Each run is one mpirun of tests/c/chaos.c: sorts with all algorithms and stores, queries, gathers, rounds, trees,
broadcasts, stores of states and agreements in several groups, each result compared by each rank with the expected
bytes. Signals come from this script: SIGKILL; SIGSTOP and later SIGCONT; and both in quick turns, which makes a rank
slow. The seed of a run decides the calls and the signals. The instants are drawn from the time of a run without signals.

The lines that the ranks leave are compared: the same calls and statuses on all ranks; results that are complete, unless
a rank was killed in that very call; and lost data only of ranks that were killed, if more failed at once than the group
tolerates. A failed run is printed with the command that repeats it. A hang that is recognised as a defect of Open MPI
(queues.py) counts as cut.
"""

import argparse
import collections
import pathlib
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time

import launch
import outside
import tables

LOST, OK = "-40", "0"
# The kinds of steps in which the parts of all ranks are the total.
WITH_PARTS = {"sort", "rounds", "merge", "gather", "states", "keep", "recover", "again", "many", "top", "unique", "argsort",
              "by-key", "positions"}
# The groups that can reload all inputs, and the kinds of steps that do.
RELOADING = {"reload", "reload-bitonic", "foreground"}
RELOADED = {"sort", "rounds", "keep", "protect", "again", "select", "top", "unique", "by-key"}
# The groups with results that cannot be made again: those of bitonic sorts without copies, and those without redundancy.
WITHOUT_RECOVERY = {"reload-bitonic", "released"}
# The steps that use a result or input of an earlier step of the same group, and the kinds of that step; the latest counts.
USES = {"recover": {"keep", "recover"}, "again": {"protect", "update", "again"}}
# The number of failures at once that a group tolerates in such steps; others tolerate one.
ALL = ["hyperquicksort", "quickmerge", "modified", *RELOADING]
TOLERATED = {"none": 0, "dense": 2, "parity": 2, **dict.fromkeys(ALL, sys.maxsize)}
FIELDS = ["kind", "group", "steps", "killed", "whole", "short", "lost"]
SLICE = 0.012


def plan_of(seed, ranks, window):
    """Returns the signals of a run: up to N - 1 kills, and ranks that are stopped or slow for a while."""
    rng = random.Random(f"chaos {seed} {ranks}")
    plan = [(rng.uniform(0, window), rank, signal.SIGKILL) for rank in rng.sample(range(ranks), rng.randrange(ranks))]
    for _ in range(rng.randrange(4)):
        rank, at = rng.randrange(ranks), rng.uniform(0, window)
        plan += [(at, rank, signal.SIGSTOP), (at + rng.choice([0.002, 0.05, 0.5, 1.5]), rank, signal.SIGCONT)]
    for _ in range(rng.randrange(3)):
        rank, at, share = rng.randrange(ranks), rng.uniform(0, window), rng.uniform(0.2, 0.95)
        for _ in range(rng.randrange(5, 60)):
            plan += [(at, rank, signal.SIGSTOP), (at + share * SLICE, rank, signal.SIGCONT)]
            at += SLICE
    return sorted(plan, key=lambda step: step[0])


class Steps:
    """The lines of one rank: the steps that it began, and the statuses of those that it ended."""

    def __init__(self, text):
        self.began, self.ended, self.done = [], {}, False
        for line in text.splitlines():
            word, *rest = line.split()
            if word == "begin":
                self.began.append(tuple(rest))
            elif word == "end":
                status, part, total, lost, wrong = rest[1:]
                names = frozenset() if lost == "-" else frozenset(map(int, lost.split(",")))
                self.ended[int(rest[0])] = (status, int(part), int(total), names, int(wrong))
            elif word == "done":
                self.done = True


def tolerated(kind, group):
    """Returns the number of failures at once that a step that uses an earlier one tolerates."""
    if group in WITHOUT_RECOVERY and kind == "recover":
        return 0
    return TOLERATED.get(group, 1)


def problems_of_step(number, kind, group, ends, absent, new=None):
    """Yields the problems of one step. `ends`: the ends by rank. `absent`: the ranks without one, and whether each was
    in this step when it was killed. `new`: those of them that may have failed since the step that this one uses."""
    statuses = {(status, total, lost) for status, _, total, lost, _ in ends.values()}
    if any(wrong for *_, wrong in ends.values()):
        yield "a result differs from the expected one"
    if len(statuses) > 1:
        yield f"the ranks disagree: {sorted(map(str, statuses))}"
        return
    status, total, lost = next(iter(statuses))
    if status not in (OK, LOST):
        yield f"status {status}"
    if status == LOST and kind != "states":
        if not lost or not lost <= set(absent):
            yield f"lost data of ranks {sorted(lost)}, but only {sorted(absent)} were killed"
        if group in RELOADING and kind in RELOADED:
            yield "lost data, although they can be reloaded"
        if new is not None and len(new) <= tolerated(kind, group):
            yield f"lost data, although only {sorted(new)} were killed since they were protected"
    parts = sum(part for _, part, *_ in ends.values())
    if status == OK and kind in WITH_PARTS and parts != total and not any(absent.values()):
        yield f"the ranks have {parts} of {total}"
    if status == OK and kind in WITH_PARTS and parts > total:
        yield f"the ranks have {parts}, which is more than {total}"


def judge(ranks, killed):
    """Returns the problems of a run. `ranks`: the Steps of each rank. `killed`: the ranks that were killed."""
    found = [f"rank {rank} ended early" for rank, steps in ranks.items() if not steps.done and rank not in killed]
    longest = max(ranks.values(), key=lambda steps: len(steps.began)).began
    found += [f"rank {rank} made other calls" for rank, steps in ranks.items()
              if steps.began != longest[: len(steps.began)]]
    for number, kind, group, ends, absent, new in steps_of(ranks, longest, killed):
        found += [f"step {number} ({kind}, group {group}): {text}"
                  for text in problems_of_step(number, kind, group, ends, absent, new)]
    return found


def steps_of(ranks, longest, killed):
    """Yields each step that a rank ended: its number, kind and group, and the last arguments of problems_of_step.

    If a rank is killed after its last step, the others may have repeated that step without it: it counts as killed in it.
    """
    for number, kind, group in longest:
        number = int(number)
        ends = {rank: steps.ended[number] for rank, steps in ranks.items()
                if number in steps.ended and (rank not in killed or number + 1 in steps.ended)}
        absent = {rank: len(steps.began) >= number - 1 for rank, steps in ranks.items() if rank not in ends}
        used = [int(other) for other, before, same in longest[: number - 1]
                if same == group and before in USES.get(kind, ())]
        new = {rank for rank in absent if len(ranks[rank].began) >= used[-1]} if used else None
        if ends:
            yield number, kind, group, ends, absent, new


def figures_of(ranks, killed):
    """Counts the steps of a run by kind, group and column of the table."""
    figures = collections.Counter()
    longest = max(ranks.values(), key=lambda steps: len(steps.began)).began
    for _, kind, group, ends, absent, _ in steps_of(ranks, longest, killed):
        status, _, total, *_ = next(iter(ends.values()))
        is_short = kind in WITH_PARTS and sum(part for _, part, *_ in ends.values()) < total
        outcome = "lost" if status == LOST else "short" if is_short else "whole"
        figures.update([(kind, group, "steps"), (kind, group, outcome)])
        figures[kind, group, "killed"] += any(absent.values())
    return figures


def table_of(figures):
    """Returns the rows of the table of all runs."""
    pairs = dict.fromkeys((kind, group) for kind, group, _ in sorted(figures))
    counts = lambda pair: {name: figures[(*pair, name)] for name in FIELDS[2:]}
    return [{"kind": kind, "group": group, **counts((kind, group))} for kind, group in pairs]


class Chaos:
    def __init__(self, options, program, work):
        self.options, self.program, self.work = options, program, work
        self.windows, self.figures = {}, collections.Counter()

    def run(self, seed, ranks, plan):
        """Runs the program; returns the launch.Run, the signals that were sent, and the Steps of each rank."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        command = [self.program, self.work, seed, self.options.steps]
        run, sender = outside.run(ranks, command, self.options.limit, plan)
        files = [self.work / f"steps.{rank}" for rank in range(ranks)]
        return run, sender, {rank: Steps(file.read_text() if file.exists() else "") for rank, file in enumerate(files)}

    def window(self, ranks):
        """Returns the seconds of a run without signals."""
        if self.options.window:
            return self.options.window
        if ranks not in self.windows:
            run, sender, steps = self.run(0, ranks, [])
            end = time.monotonic()
            problems = ["not finished"] if run.hung else judge(steps, set())
            if problems or sender.start is None:
                sys.exit("\n".join(["without signals:", *problems, run.output, run.stacks]))
            self.windows[ranks] = end - sender.start
        return self.windows[ranks]

    def trial(self, seed, ranks):
        """Runs one seed; returns its outcome, the numbers of kills and other signals, and the text of a failed run."""
        window = self.window(ranks)
        run, sender, steps = self.run(seed, ranks, plan_of(seed, ranks, window))
        kills = sender.killed()
        others = len(sender.sent) - len(kills)
        if run.hung and run.cut:
            return "cut", kills, others, ""
        problems = ["not finished at the time limit"] if run.hung else []
        if not run.hung:
            problems += judge(steps, set(kills))
        if not problems:
            self.figures += figures_of(steps, set(kills))
            return "right", kills, others, ""
        command = ["scripts/chaos.py", "--seed", seed, "--ranks", ranks, "--steps", self.options.steps, "--window",
                   f"{window:.3f}", "--runs", 1]
        last = {rank: found.began[-1:] for rank, found in steps.items()}
        text = "\n".join([f"seed={seed} N={ranks}: {shlex.join(map(str, command))}", *problems,
                          f"killed: {kills}; the latest signal was {sender.late:.1f} s late", f"last steps: {last}",
                          run.output, run.stacks])
        return "hang" if run.hung else "wrong", kills, others, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="time after which no run is started")
    parser.add_argument("--runs", type=int, help="at most this many runs")
    parser.add_argument("--ranks", type=lambda words: [int(word) for word in words.split(",")], default=[4, 8, 16],
                        help="numbers of ranks, which the runs use in turn")
    parser.add_argument("--steps", type=int, default=150, help="steps of each run")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--window", type=float, help="seconds in which signals are sent; default: measured")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a run counts as hung")
    parser.add_argument("--csv", type=pathlib.Path, help="a file for the table of the steps of all right runs")
    parser.add_argument("--profile", default="release", help="cargo's profile of the library")
    options = parser.parse_args()
    outcomes, signals, bad, start = collections.Counter(), collections.Counter(), [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ftsort-chaos-") as folder:
        folder = pathlib.Path(folder)
        program = launch.build_c(launch.ROOT / "tests/c/chaos.c", folder, options.profile)
        chaos, seed = Chaos(options, program, folder / "work"), options.seed
        while time.monotonic() - start < 60 * options.minutes and seed - options.seed < (options.runs or sys.maxsize):
            ranks = options.ranks[(seed - options.seed) % len(options.ranks)]
            outcome, kills, others, text = chaos.trial(seed, ranks)
            outcomes[outcome] += 1
            signals.update(kills=len(kills), others=others)
            if text:
                bad.append(seed)
                print(text, flush=True)
            seed += 1
    print(f"{outcomes.total()} runs of {options.steps} steps on {' and '.join(map(str, options.ranks))} ranks, "
          f"{signals['kills']} kills, {signals['others']} other signals: {outcomes['right']} right, {outcomes['wrong']} wrong, "
          f"{outcomes['hang']} hang, {outcomes['cut']} cut; share of bad runs, % (95 %): "
          f"{outside.shown_interval(len(bad), outcomes.total() - outcomes['cut'])}")
    rows = table_of(chaos.figures)
    sums = [{"kind": kind, **{name: sum(row[name] for row in rows if row["kind"] == kind) for name in FIELDS[2:]}}
            for kind in dict.fromkeys(row["kind"] for row in rows)]
    if sums:
        print(tables.markdown(list(sums[0]), [row.values() for row in sums]))
    if rows and options.csv:
        tables.write(options.csv, rows, f"Made by: scripts/chaos.py {shlex.join(sys.argv[1:])}")
    print("failed seeds: " + " ".join(map(str, bad)) if bad else "no failed seed")
    sys.exit(1 if bad or not outcomes["right"] or not signals["kills"] else 0)


if __name__ == "__main__":
    main()

"""Sends signals from outside to the ranks of a running program, and judges counts of outcomes.

A program that starts with `start_together` of tests/c/outside.h announces the instant at which all ranks continue, and
their pids. The signals of a plan are sent at instants relative to it. A plan is a list of (seconds, rank, signal).
"""

import math
import os
import pathlib
import queue
import signal
import threading
import time

import launch

# The quantile of the normal distribution for an interval of 95 %.
Z95 = 1.959964


def interval(count, runs):
    """Returns the limits of the interval of 95 % of a share (Wilson); (0, 1) without runs."""
    if runs == 0:
        return 0.0, 1.0
    share, z2 = count / runs, Z95 * Z95
    middle = share + z2 / (2 * runs)
    half = Z95 * math.sqrt(share * (1 - share) / runs + z2 / (4 * runs * runs))
    low, high = (middle - half) / (1 + z2 / runs), (middle + half) / (1 + z2 / runs)
    return (0.0 if count == 0 else low), (1.0 if count == runs else high)


def shown_interval(count, runs):
    """Returns a share and its interval as text, in percent."""
    low, high = interval(count, runs)
    return f"{100 * count / max(1, runs):.1f} ({100 * low:.1f}-{100 * high:.1f})"


def is_running(pid, program):
    """Tells whether a process still runs a program; it may have ended, and its pid may be another's."""
    try:
        return pathlib.Path("/proc", str(pid), "cmdline").read_text().split("\0")[0] == str(program)
    except OSError:
        return False


def run_before_others():
    """Lets this thread run before all ordinary threads of the machine, where the user may do so; its children do not.

    Waiting ranks occupy all processors, and a late SIGCONT keeps a rank stopped for longer than planned. Linux 6.18 left a
    thread without a processor for up to 62 seconds although its nice value was -20.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        pass


class Sender:
    """Reads the output of a run, and sends the signals of a plan from its announced start on.

    `sent` has (seconds, rank, signal) of each signal that was sent, in seconds after the start. `late`: by how many seconds
    the latest of them missed its instant.
    """

    def __init__(self, program, plan):
        self.program, self.plan = program, sorted(plan, key=lambda step: step[0])
        self.start, self.pids, self.sent, self.late = None, [], [], 0.0
        self.over, self.thread = threading.Event(), None

    def read(self, line):
        """Takes in a line of output."""
        words = line.split()
        if self.thread is None and words[:1] == ["start"]:
            self.start, self.pids = float(words[1]), list(map(int, words[2:]))
            self.thread = threading.Thread(target=self.send, daemon=True)
            self.thread.start()

    def steps(self):
        """Yields the steps of the plan, each when the one before it has been sent."""
        yield from self.plan

    def send(self):
        run_before_others()
        killed = set()
        for seconds, rank, number in self.steps():
            if self.over.wait(max(0, self.start + seconds - time.monotonic())):
                return
            if rank in killed or not is_running(self.pids[rank], self.program):
                continue
            try:
                os.kill(self.pids[rank], number)
            except ProcessLookupError:
                continue
            self.sent.append((time.monotonic() - self.start, rank, number))
            self.late = max(self.late, self.sent[-1][0] - seconds)
            if number == signal.SIGKILL:
                killed.add(rank)

    def end(self):
        """Sends no further signal."""
        self.over.set()
        if self.thread:
            self.thread.join()

    def killed(self):
        """Returns the seconds after the start at which each killed rank was killed."""
        return {rank: seconds for seconds, rank, number in self.sent if number == signal.SIGKILL}


class SuccessiveKills(Sender):
    """Kills ranks one after another, each when the recovery from the kill before it has ended.

    `plan` is a list of (seconds, rank): how long after the end of a recovery (or the start) a rank is killed. A recovery
    has ended when every survivor has printed "whole RANK SECONDS RANKS" in which RANKS names all ranks that were killed
    before. It ended at the last one of these instants. A kill whose instant has passed when the lines arrive follows at
    once.
    """

    def __init__(self, program, plan):
        super().__init__(program, [])
        self.kills, self.lines = plan, queue.SimpleQueue()

    def read(self, line):
        if line.startswith("whole "):
            self.lines.put(line.split()[1:])
        super().read(line)

    def steps(self):
        ended, killed = 0.0, set()
        for delay, rank in self.kills:
            yield ended + delay, rank, signal.SIGKILL
            killed.add(rank)
            ended = self.end_of_recovery(killed)
            if ended is None:
                return

    def end_of_recovery(self, killed):
        """Waits for the end of the recovery from these kills; returns its seconds after the start, or None at the end."""
        instants = {}
        while set(range(len(self.pids))) - killed - instants.keys():
            try:
                rank, seconds, failed = self.lines.get(timeout=0.01)
            except queue.Empty:
                if self.over.is_set():
                    return None
                continue
            if failed != "-" and set(map(int, failed.split(","))) >= killed:
                instants.setdefault(int(rank), float(seconds) - self.start)
        return max(instants.values(), default=0.0)


def run(ranks, command, limit, plan, sender=Sender):
    """Runs a program while the signals of a plan are sent; returns the launch.Run and the Sender."""
    sender = sender(command[0], plan)
    # This thread and that of the sender wait for each other.
    run_before_others()
    try:
        done = launch.launch(ranks, command, limit, on_line=sender.read)
    finally:
        sender.end()
    return done, sender

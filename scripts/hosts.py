#!/usr/bin/env python3
"""Disconnects or ends whole hosts during a sort, many times over, and counts the outcomes.

Three network namespaces of this machine stand for the hosts, each with an address of its own on a bridge. One mpirun
outside of them starts every rank through a small wrapper, which enters the namespace of a host; on real hosts the
wrapper would be ssh. Rank i runs on host i mod 3, and the ranks communicate over TCP. The wrapper is essential: with
the usual launch, which has a daemon on each host, mpirun (PRRTE 3.0) ends the whole job when a daemon is lost with its
host.

Each run disturbs one host at a random moment of the sort:

  killed  the ranks of the host get SIGKILL; the kernel closes their connections
  off     the link of the host is cut and its ranks get SIGKILL, as if the power failed. mpirun sees its children end
          and tells the other ranks, as it would after the keep-alive of ssh
  cut     only the link is cut; the ranks of the host continue, and still reach the directory of the store
  frozen  the ranks of the host get SIGSTOP, and SIGCONT after the other ranks have ended

Only the heartbeats of Open MPI detect "cut" and "frozen"; they are on in these rows. The outcome is that of the ranks
on the other hosts. Their output is compared bit for bit:

  right   all of them have sorted
  lost    all of them returned FTSORT_ERR_DATA_LOST, and the host had more ranks than there are copies
  wrong   any other result: wrong output, disagreement, or a rank of the disturbed host that finished alone with success
  crash   one of them failed
  hang    one of them had not ended at the time limit
  late    right, but the sort had finished before the disturbance; not counted as a run

The last column counts the ranks of the disturbed host by their end:

  silent  ended without a status                              error   left a status other than success
  stuck   neither ended nor left a status, and was killed     alone   recovered, and left success
  ok      left success: had sorted together with all others before it could notice the disturbance

Two runs of each row have no disturbance and measure the time of a sort; they are counted only if they fail. The script
needs root, ip, unshare and hostname; where they are missing, it prints "skipped" and succeeds.
"""

import argparse
import collections
import ipaddress
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import kill_table
import launch

HOSTS = 3
COLUMNS = [*kill_table.COLUMNS, "late"]
# A rank that does not call MPI during the timeout counts as failed, unless a thread sends its heartbeats.
HEARTBEATS = {
    "mpi_ft_detector": "1",
    "mpi_ft_detector_period": "0.3",
    "mpi_ft_detector_timeout": "1.5",
}
# More bytes than this from a host show that the sort has begun: the start-up sends far fewer.
BEGUN = 1 << 19
# Seconds for which the ranks of the disturbed host are watched after the others have ended.
PATIENCE = 10
WRAPPER = """#!/bin/sh
host={tag}h$((OMPI_COMM_WORLD_RANK % {hosts}))
echo $$ > "{pids}/$OMPI_COMM_WORLD_RANK"
exec ip netns exec $host unshare --uts sh -c 'hostname "$0"; exec "$@"' $host "$@"
"""


class NoHosts(Exception):
    """This machine cannot simulate hosts."""


def ip(*words):
    """Runs ip and returns its output."""
    ran = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if ran.returncode != 0:
        raise OSError(f"`ip {' '.join(map(str, words))}`: {ran.stderr.strip()}")
    return ran.stdout


def free_network():
    """Returns a network that no route of this machine uses."""
    routes = json.loads(ip("-json", "-4", "route", "show", "table", "all") or "[]")
    taken = [ipaddress.ip_network(route["dst"], strict=False)
             for route in routes if route.get("dst", "default") != "default"]
    for third in range(256):
        network = ipaddress.ip_network(f"10.203.{third}.0/24")
        if not any(network.overlaps(other) for other in taken):
            return network
    raise OSError("no free network in 10.203.0.0/16")


class Network:
    """The hosts; they exist during the `with` block."""

    def __init__(self):
        # Another run of this script may be active.
        self.tag = f"fts{os.getpid()}"
        self.names = [f"{self.tag}h{host}" for host in range(HOSTS)]

    def __enter__(self):
        missing = [tool for tool in ("ip", "unshare", "hostname") if shutil.which(tool) is None]
        if missing:
            raise NoHosts(f"no {', '.join(missing)} in PATH")
        if os.geteuid() != 0:
            raise NoHosts("network namespaces need root")
        try:
            self.make()
        except BaseException as reason:
            self.remove()
            if isinstance(reason, OSError):
                raise NoHosts(reason) from reason
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    def make(self):
        self.net = free_network()
        ip("link", "add", self.tag, "type", "bridge")
        ip("addr", "add", f"{self.net[1]}/24", "dev", self.tag)
        ip("link", "set", self.tag, "up")
        for host, name in enumerate(self.names):
            ip("netns", "add", name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", self.tag, "up")
            ip("-n", name, "addr", "add", f"{self.net[11 + host]}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            self.link(host, "up")
        enter = ["ip", "netns", "exec", self.names[0], "unshare", "--uts", "hostname", self.names[0]]
        entered = subprocess.run(enter, capture_output=True, text=True)
        if entered.returncode != 0:
            raise OSError(f"`{' '.join(enter)}`: {entered.stderr.strip()}")

    def remove(self):
        self.clear()
        # Removing a namespace removes its links too, but later. Until then their names would be taken.
        for words in [["link", "del", name] for name in [*self.names, self.tag]] + [
                ["netns", "del", name] for name in self.names]:
            subprocess.run(["ip", *words], capture_output=True)

    def link(self, host, state):
        ip("-n", self.names[host], "link", "set", "eth0", state)

    def sent(self):
        """Returns the bytes that the hosts have sent so far."""
        counters = (pathlib.Path("/sys/class/net", name, "statistics/rx_bytes") for name in self.names)
        return sum(int(counter.read_text()) for counter in counters)

    def processes(self, host):
        """Returns the processes in the namespace of a host, all of which the wrapper started."""
        ran = subprocess.run(["ip", "netns", "pids", self.names[host]], capture_output=True, text=True)
        return {int(pid) for pid in ran.stdout.split()}

    def signal(self, host, number):
        for pid in self.processes(host):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def clear(self):
        for host in range(HOSTS):
            self.signal(host, signal.SIGKILL)


class Case:
    def __init__(self, disturbance, store, replicas=0):
        self.disturbance, self.store, self.replicas = disturbance, store, replicas
        self.heartbeats = disturbance in ("cut", "frozen")

    def name(self):
        store = f"{self.store}:{self.replicas}" if self.store == "memory" else self.store
        return f"{self.disturbance}/{store}"


CASES = [
    Case("killed", "directory"), Case("killed", "memory", 2), Case("killed", "memory", 1),
    Case("off", "directory"), Case("off", "memory", 2),
    Case("cut", "directory"), Case("cut", "memory", 2),
    Case("frozen", "directory"), Case("frozen", "memory", 2),
]


class Disturber(threading.Thread):
    """Watches one run from outside.

    Disturbs the host, waits for the ranks of the other hosts, notes the end of each rank of the disturbed host, and ends
    all remaining processes, so that mpirun ends by itself and cleans up.
    """

    def __init__(self, network, case, work, pids):
        super().__init__(daemon=True)
        self.network, self.case, self.work, self.pids = network, case, work, pids
        self.over = threading.Event()
        self.hung, self.stacks, self.ends, self.error = False, "", {}, None

    def aim(self, victim, delay, ranks, limit, sorter):
        self.victim, self.delay, self.limit, self.sorter = victim, delay, limit, sorter
        self.disturbed = {rank for rank in range(ranks) if rank % HOSTS == victim}
        self.others = set(range(ranks)) - self.disturbed
        return self

    def run(self):
        try:
            self.watch()
        except Exception as error:
            self.error = error
        # mpirun would wait for remaining processes for ever.
        self.network.clear()

    def watch(self):
        deadline = time.monotonic() + self.limit
        sent = self.network.sent()
        if self.disturbed and self.until(lambda: self.begun(sent), deadline):
            self.over.wait(self.delay)
            self.disturb()
        if not self.until(lambda: self.have_ended(self.others), deadline) and not self.over.is_set():
            self.hung = True
            self.stacks = launch.stacks_of(os.getpid(), self.sorter)
        else:
            if self.disturbed and self.case.disturbance == "frozen":
                self.network.signal(self.victim, signal.SIGCONT)
            self.until(lambda: self.have_ended(self.disturbed), time.monotonic() + PATIENCE)
        self.ends = {rank: self.end_of(rank) for rank in self.disturbed}

    def until(self, happened, deadline):
        """Waits until `happened()`; returns False at the deadline, or once the run is over."""
        while not happened():
            if time.monotonic() > deadline or self.over.wait(0.02):
                return False
        return True

    def begun(self, sent):
        # A sort begins by copying its input to the store.
        return self.network.sent() - sent > BEGUN or any(self.work.glob("ftsort-*"))

    def disturb(self):
        if self.case.disturbance in ("off", "cut"):
            self.network.link(self.victim, "down")
        if self.case.disturbance in ("off", "killed"):
            self.network.signal(self.victim, signal.SIGKILL)
        if self.case.disturbance == "frozen":
            self.network.signal(self.victim, signal.SIGSTOP)

    def is_running(self, rank):
        try:
            pid = (self.pids / str(rank)).read_text().strip()
        except OSError:
            return True  # It has not been started yet.
        try:
            # This file does not exist for a process that has ended, even if its parent has not waited for it.
            os.stat(f"/proc/{pid}/ns/net")
        except OSError:
            return False
        return True

    def have_ended(self, ranks):
        return not any(self.is_running(rank) for rank in ranks)

    def end_of(self, rank):
        status = kill_table.GeneratedRecords.statuses(None, self.work, None).get(rank)
        if status is None:
            return "stuck" if self.is_running(rank) else "silent"
        if status["status"] != "0":
            return "error"
        return "alone" if recovered(status) else "ok"


def recovered(status):
    """Returns whether the rank that left this status took part in a recovery."""
    return status.get("replayed") != "0" or status.get("runs") != "1"


class Table:
    def __init__(self, options, network, folder):
        self.options, self.network, self.folder = options, network, folder
        self.subject = kill_table.GeneratedRecords(options, folder)
        self.bad = []
        self.pids = folder / "pids"
        self.wrapper = folder / "enter-host"
        self.wrapper.write_text(WRAPPER.format(tag=network.tag, hosts=HOSTS, pids=self.pids))
        self.wrapper.chmod(0o755)

    def settings(self, case):
        """Returns the further arguments of mpirun for a case."""
        net = str(self.network.net)
        mca = {"btl": "tcp,self", "btl_tcp_if_include": net}
        if case.heartbeats:
            mca.update(HEARTBEATS)
            mca["mpi_ft_detector_thread"] = "1" if self.options.heartbeats == "thread" else "0"
        words = [word for name, value in mca.items() for word in ("--mca", name, value)]
        # The ranks must reach mpirun itself, too.
        return [*words, "--prtemca", "prte_if_include", net, "--pmixmca", "ptl_base_if_include", net,
                "--pmixmca", "ptl_base_remote_connections", "1"]

    def one(self, case, seed, window):
        """Runs one sort, without a disturbance if the window is 0.

        Returns its column, the seconds of the fastest rank, and the end of each rank of the disturbed host.
        """
        work = self.folder / "work"
        for folder in (work, self.pids):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        rng = random.Random(f"{case.name()} {seed}")
        victim, delay = (rng.randrange(HOSTS), rng.uniform(0, window)) if window else (None, 0)
        ranks, limit = self.options.ranks, self.options.limit
        disturber = Disturber(self.network, case, work, self.pids)
        disturber.aim(victim, delay, ranks, limit, self.subject.sorter)
        cell = kill_table.Cell(ranks, len(disturber.disturbed), case.store, case.replicas, "agree", 1)
        disturber.start()
        try:
            # The larger part of a divided network continues, and the smaller one gives up.
            last = f"quorum={ranks // 2 + 1}" if case.disturbance == "cut" else "-"
            command = [self.wrapper, *self.subject.sort(cell, work)[:-1], last]
            run = launch.launch(ranks, command, 2 * limit + PATIENCE, extra=self.settings(case))
        finally:
            disturber.over.set()
            disturber.join()
            if victim is not None:
                self.network.link(victim, "up")
        if disturber.error:
            raise disturber.error
        run.hung = run.hung or disturber.hung
        left = self.subject.statuses(work, run)
        column, reason = self.judge(cell, run, left, disturber, work)
        if self.options.verbose:
            print(f"    seed {seed}: host {victim} at {delay:.3f} of {window:.3f} s; mpirun {run.code} after "
                  f"{run.seconds:.1f} s; {column}; {disturber.ends}", flush=True)
        if column in ("wrong", "crash", "hang"):
            self.keep(case, seed if window else "none", f"{column}: {reason}", run, disturber, left)
        fastest = min((float(status.get("seconds", 0)) for status in left.values()), default=0)
        return column, fastest, disturber.ends

    def judge(self, cell, run, left, disturber, work):
        judged = {rank: status for rank, status in left.items() if rank not in disturber.disturbed}
        column, reason = kill_table.judge(
            cell, run, judged, disturber.disturbed, lambda: launch.verdict_of(self.subject.check(cell, work)))
        alone = sorted(rank for rank, end in disturber.ends.items() if end == "alone")
        if column in ("right", "lost") and alone:
            return "wrong", f"{column}, but ranks {alone} of the disturbed host finished alone with success"
        if column == "right" and len(left) == cell.ranks and not any(map(recovered, left.values())):
            return "late", ""
        return column, reason

    def keep(self, case, seed, verdict, run, disturber, left):
        options = self.options
        # The moment also depends on the time of the sort, so the same seed may give another outcome.
        again = f"--case {case.name()} --seed {seed} --runs 1" if seed != "none" else f"--case {case.name()}"
        size = f"--ranks {options.ranks} --count {options.count} --heartbeats {options.heartbeats}"
        self.bad.append(f"{case.name()} seed={seed} {verdict}\n    scripts/hosts.py {again} {size}")
        if options.keep:
            file = pathlib.Path(options.keep) / f"{case.name().replace('/', '_')}_seed{seed}.log"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{verdict}\n{left}\n{disturber.ends}\n{run.output}{run.stacks}{disturber.stacks}")

    def row(self, case):
        columns, all_ends = collections.Counter(), collections.Counter()
        quiet = [self.one(case, 0, 0) for _ in range(2)]
        columns.update(column for column, _, _ in quiet if column != "late")
        # The disturbance must fall into the sort.
        window = 0.9 * min(seconds for _, seconds, _ in quiet) or 0.1
        disturbed = 0
        for seed in range(self.options.seed, self.options.seed + 4 * self.options.runs):
            if disturbed < self.options.runs:
                column, _, ends = self.one(case, seed, window)
                disturbed += column != "late"
                columns[column] += 1
                all_ends.update(ends.values())
        counts = " ".join(f"{columns[name]:>5}" for name in COLUMNS)
        noted = ", ".join(f"{count} {end}" for end, count in sorted(all_ends.items()))
        print(f"{case.name():<18} {counts}   {noted}", flush=True)
        return columns


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--runs", type=int, default=5, help="runs of each case (default: 5)")
    names = [case.name() for case in CASES]
    parser.add_argument("--case", action="append", choices=names, help="only this row; can be repeated")
    parser.add_argument("--ranks", type=int, default=6)
    parser.add_argument("--count", type=int, default=2_000_000, help="records of each rank")
    parser.add_argument("--heartbeats", default="plain", choices=["plain", "thread"],
                        help="sent during calls of MPI (default), or by a thread of Open MPI, with which "
                             "MPI_Finalize of 5.0.11 hangs if no rank has failed")
    parser.add_argument("--kind", default="i32")
    parser.add_argument("--shape", default="random", help="see tests/c/sorter.c")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--limit", type=float, default=30, help="seconds after which a run counts as hung")
    parser.add_argument("--profile", default="release")
    parser.add_argument("--keep", help="a folder for the logs of failed runs")
    parser.add_argument("--verbose", action="store_true", help="a line for each run")
    options = parser.parse_args()

    total = collections.Counter()
    try:
        with tempfile.TemporaryDirectory(prefix="ftsort-hosts-") as folder, Network() as network:
            table = Table(options, network, pathlib.Path(folder))
            counts = " ".join(f"{name:>5}" for name in COLUMNS)
            print(f"{'':<18} {counts}   ranks of the disturbed host")
            for case in CASES:
                if not options.case or case.name() in options.case:
                    total.update(table.row(case))
    except NoHosts as reason:
        print(f"skipped: {reason}")
        return
    for line in table.bad:
        print(line)
    good = total["right"] + total["lost"]
    bad = total["wrong"] + total["crash"] + total["hang"]
    print(f"{good} passed, {bad} failed")
    sys.exit(1 if bad or not good else 0)


if __name__ == "__main__":
    main()

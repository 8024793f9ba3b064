#!/usr/bin/env python3
"""Takes whole hosts away from a running sort, many times over, and prints what came of it.

The hosts are played by network namespaces of this machine: three, each with an address of its own on a
bridge. One mpirun on the head (outside of them) starts every rank through a small wrapper that enters
a host's namespace; on real hosts the wrapper would be ssh. Rank i is on host i mod 3. The ranks talk
over TCP. This way to start is the point of it: with the usual one, which has a daemon on each host,
mpirun (PRRTE 3.0) ends the whole job as soon as a daemon is lost with its host.

In each run one host is struck at a random instant of the sort:

  killed  its ranks get SIGKILL at once; the connections are closed, as by a kernel that lives on
  off     its link is cut and its ranks get SIGKILL: as if the power failed. mpirun sees its children
          end and tells the others, as it would after the keep-alive of ssh
  cut     only its link is cut; its ranks compute on, and still reach the store's directory
  frozen  its ranks get SIGSTOP; when the others are done and gone, SIGCONT

"cut" and "frozen" are seen by Open MPI's heartbeats alone, which are on in these rows. The ranks of the
other hosts are judged, and their output is compared bit for bit:

  right   sorted, by all of them
  lost    all of them said FTSORT_ERR_DATA_LOST, and the host had more ranks than there are copies
  wrong   anything else: wrong output, disagreement, or a struck rank that went on alone to success
  crash   one of them died
  hang    one of them had not ended at the time limit
  late    right, but the sort was over before the strike; does not count as one of the runs

What the ranks of the struck host did is noted beside:

  silent  ended, and left no status                    error   left a status that is not success
  stuck   neither ended nor left a status; was killed  alone   recovered, and left success
  ok      left success: had sorted with all others before it could notice

Two runs of each row go without a strike, to know how long a sort takes; they are counted only if they
fail. Needs root, ip, unshare and hostname; says "skipped" and succeeds where that is missing.
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
# A rank that does not call MPI for the timeout is taken for dead, unless a thread sends its heartbeats.
HEARTBEATS = {
    "mpi_ft_detector": "1",
    "mpi_ft_detector_period": "0.3",
    "mpi_ft_detector_timeout": "1.5",
}
# How many bytes from a host show that the sort has begun: start-up sends far less.
BEGUN = 1 << 19
# How long the struck ranks are watched once the others are done.
PATIENCE = 10
WRAPPER = """#!/bin/sh
host={tag}h$((OMPI_COMM_WORLD_RANK % {hosts}))
echo $$ > "{pids}/$OMPI_COMM_WORLD_RANK"
exec ip netns exec $host unshare --uts sh -c 'hostname "$0"; exec "$@"' $host "$@"
"""


class NoHosts(Exception):
    """This machine does not let us play hosts."""


def ip(*words):
    """Runs ip; its output."""
    ran = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if ran.returncode != 0:
        raise OSError(f"`ip {' '.join(map(str, words))}`: {ran.stderr.strip()}")
    return ran.stdout


def free_network():
    """A network that nothing on this machine has to do with."""
    routes = json.loads(ip("-json", "-4", "route", "show", "table", "all") or "[]")
    taken = [ipaddress.ip_network(route["dst"], strict=False)
             for route in routes if route.get("dst", "default") != "default"]
    for third in range(256):
        network = ipaddress.ip_network(f"10.203.{third}.0/24")
        if not any(network.overlaps(other) for other in taken):
            return network
    raise OSError("no free network in 10.203.0.0/16")


class Network:
    """The hosts, for as long as the `with` block lasts."""

    def __init__(self):
        # Other runs of this script may be under way.
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
        except BaseException as why:
            self.remove()
            if isinstance(why, OSError):
                raise NoHosts(why) from why
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
        # A namespace takes its links along, but later: the names would be in the way until then.
        for words in [["link", "del", name] for name in [*self.names, self.tag]] + [
                ["netns", "del", name] for name in self.names]:
            subprocess.run(["ip", *words], capture_output=True)

    def link(self, host, state):
        ip("-n", self.names[host], "link", "set", "eth0", state)

    def sent(self):
        """Bytes that the hosts have sent so far."""
        counters = (pathlib.Path("/sys/class/net", name, "statistics/rx_bytes") for name in self.names)
        return sum(int(counter.read_text()) for counter in counters)

    def processes(self, host):
        """Who is in the host's namespace: only what came in through our wrapper."""
        ran = subprocess.run(["ip", "netns", "pids", self.names[host]], capture_output=True, text=True)
        return {int(pid) for pid in ran.stdout.split()}

    def signal(self, host, what):
        for pid in self.processes(host):
            try:
                os.kill(pid, what)
            except ProcessLookupError:
                pass

    def clear(self):
        for host in range(HOSTS):
            self.signal(host, signal.SIGKILL)


class Case:
    def __init__(self, strike, store, replicas=0):
        self.strike, self.store, self.replicas = strike, store, replicas
        self.heartbeats = strike in ("cut", "frozen")

    def name(self):
        store = f"{self.store}:{self.replicas}" if self.store == "memory" else self.store
        return f"{self.strike}/{store}"


CASES = [
    Case("killed", "directory"), Case("killed", "memory", 2), Case("killed", "memory", 1),
    Case("off", "directory"), Case("off", "memory", 2),
    Case("cut", "directory"), Case("cut", "memory", 2),
    Case("frozen", "directory"), Case("frozen", "memory", 2),
]


class Striker(threading.Thread):
    """Watches one run from outside: strikes the host, waits for the others, notes what the struck ranks
    do, and ends whatever is left, so that mpirun comes back by itself and cleans up."""

    def __init__(self, network, case, work, pids):
        super().__init__(daemon=True)
        self.network, self.case, self.work, self.pids = network, case, work, pids
        self.over = threading.Event()
        self.hung, self.stacks, self.fate, self.error = False, "", {}, None

    def aim(self, victim, delay, ranks, limit, sorter):
        self.victim, self.delay, self.limit, self.sorter = victim, delay, limit, sorter
        self.struck = {rank for rank in range(ranks) if rank % HOSTS == victim}
        self.others = set(range(ranks)) - self.struck
        return self

    def run(self):
        try:
            self.watch()
        except Exception as error:
            self.error = error
        # mpirun would wait for them for ever.
        self.network.clear()

    def watch(self):
        deadline = time.monotonic() + self.limit
        sent = self.network.sent()
        if self.struck and self.until(lambda: self.begun(sent), deadline):
            self.over.wait(self.delay)
            self.strike()
        if not self.until(lambda: self.gone(self.others), deadline) and not self.over.is_set():
            self.hung = True
            self.stacks = launch.stacks_of(os.getpid(), self.sorter)
        else:
            if self.struck and self.case.strike == "frozen":
                self.network.signal(self.victim, signal.SIGCONT)
            self.until(lambda: self.gone(self.struck), time.monotonic() + PATIENCE)
        self.fate = {rank: self.fate_of(rank) for rank in self.struck}

    def until(self, happened, deadline):
        """Waits for it; False at the deadline, or once the run is over."""
        while not happened():
            if time.monotonic() > deadline or self.over.wait(0.02):
                return False
        return True

    def begun(self, sent):
        # The first thing that a sort does is to bring its input to the store.
        return self.network.sent() - sent > BEGUN or any(self.work.glob("ftsort-*"))

    def strike(self):
        if self.case.strike in ("off", "cut"):
            self.network.link(self.victim, "down")
        if self.case.strike in ("off", "killed"):
            self.network.signal(self.victim, signal.SIGKILL)
        if self.case.strike == "frozen":
            self.network.signal(self.victim, signal.SIGSTOP)

    def lives(self, rank):
        try:
            pid = (self.pids / str(rank)).read_text().strip()
        except OSError:
            return True  # It has not been started yet.
        try:
            # Not there for one that has ended, even if nobody has asked for its exit status.
            os.stat(f"/proc/{pid}/ns/net")
        except OSError:
            return False
        return True

    def gone(self, ranks):
        return not any(self.lives(rank) for rank in ranks)

    def fate_of(self, rank):
        status = kill_table.MadeUp.statuses(None, self.work, None).get(rank)
        if status is None:
            return "stuck" if self.lives(rank) else "silent"
        if status["status"] != "0":
            return "error"
        return "alone" if recovered(status) else "ok"


def recovered(status):
    """Did the rank that left this status have to do with a fault?"""
    return status.get("replayed") != "0" or status.get("runs") != "1"


class Table:
    def __init__(self, options, network, folder):
        self.options, self.network, self.folder = options, network, folder
        self.subject = kill_table.MadeUp(options, folder)
        self.bad = []
        self.pids = folder / "pids"
        self.wrapper = folder / "enter-host"
        self.wrapper.write_text(WRAPPER.format(tag=network.tag, hosts=HOSTS, pids=self.pids))
        self.wrapper.chmod(0o755)

    def settings(self, case):
        """What mpirun needs to be told beside the usual."""
        net = str(self.network.net)
        mca = {"btl": "tcp,self", "btl_tcp_if_include": net}
        if case.heartbeats:
            mca.update(HEARTBEATS)
            mca["mpi_ft_detector_thread"] = "1" if self.options.heartbeats == "thread" else "0"
        words = [word for name, value in mca.items() for word in ("--mca", name, value)]
        # The ranks must reach mpirun itself too.
        return [*words, "--prtemca", "prte_if_include", net, "--pmixmca", "ptl_base_if_include", net,
                "--pmixmca", "ptl_base_remote_connections", "1"]

    def one(self, case, seed, window):
        """One run, without a strike if the window is 0; its column, how long the sort took on the fastest
        rank, and the fates of the struck ranks."""
        work = self.folder / "work"
        for folder in (work, self.pids):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        rng = random.Random(f"{case.name()} {seed}")
        victim, delay = (rng.randrange(HOSTS), rng.uniform(0, window)) if window else (None, 0)
        ranks, limit = self.options.ranks, self.options.limit
        striker = Striker(self.network, case, work, self.pids)
        striker.aim(victim, delay, ranks, limit, self.subject.sorter)
        cell = kill_table.Cell(ranks, len(striker.struck), case.store, case.replicas, "agree", 1)
        striker.start()
        try:
            # The larger part goes on, the smaller one gives up.
            last = f"quorum={ranks // 2 + 1}" if case.strike == "cut" else "-"
            command = [self.wrapper, *self.subject.sort(cell, work)[:-1], last]
            run = launch.launch(ranks, command, 2 * limit + PATIENCE, extra=self.settings(case))
        finally:
            striker.over.set()
            striker.join()
            if victim is not None:
                self.network.link(victim, "up")
        if striker.error:
            raise striker.error
        run.hung = run.hung or striker.hung
        left = self.subject.statuses(work, run)
        column, why = self.judge(cell, run, left, striker, work)
        if self.options.verbose:
            print(f"    seed {seed}: host {victim} at {delay:.3f} of {window:.3f} s; mpirun {run.code} after "
                  f"{run.seconds:.1f} s; {column}; {striker.fate}", flush=True)
        if column in ("wrong", "crash", "hang"):
            self.keep(case, seed if window else "none", f"{column}: {why}", run, striker, left)
        fastest = min((float(status.get("seconds", 0)) for status in left.values()), default=0)
        return column, fastest, striker.fate

    def judge(self, cell, run, left, striker, work):
        def check():
            checker = list(map(str, self.subject.check(cell, work)))
            checked = subprocess.run(checker, capture_output=True, text=True)
            return "right" if checked.returncode == 0 else checked.stdout.strip()

        judged = {rank: status for rank, status in left.items() if rank not in striker.struck}
        column, why = kill_table.judge(cell, run, judged, striker.struck, check)
        alone = sorted(rank for rank, fate in striker.fate.items() if fate == "alone")
        if column in ("right", "lost") and alone:
            return "wrong", f"{column}, but the struck ranks {alone} went on alone and left success"
        if column == "right" and len(left) == cell.ranks and not any(map(recovered, left.values())):
            return "late", ""
        return column, why

    def keep(self, case, seed, verdict, run, striker, left):
        options = self.options
        # The instant depends on how long the sort took here too, so the seed need not show it again.
        again = f"--case {case.name()} --seed {seed} --runs 1" if seed != "none" else f"--case {case.name()}"
        size = f"--ranks {options.ranks} --count {options.count} --heartbeats {options.heartbeats}"
        self.bad.append(f"{case.name()} seed={seed} {verdict}\n    scripts/hosts.py {again} {size}")
        if options.keep:
            file = pathlib.Path(options.keep) / f"{case.name().replace('/', '_')}_seed{seed}.log"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{verdict}\n{left}\n{striker.fate}\n{run.output}{run.stacks}{striker.stacks}")

    def row(self, case):
        columns, fates = collections.Counter(), collections.Counter()
        quiet = [self.one(case, 0, 0) for _ in range(2)]
        columns.update(column for column, _, _ in quiet if column != "late")
        # How long is the time in which to strike?
        window = 0.9 * min(seconds for _, seconds, _ in quiet) or 0.1
        struck = 0
        for seed in range(self.options.seed, self.options.seed + 4 * self.options.runs):
            if struck < self.options.runs:
                column, _, fate = self.one(case, seed, window)
                struck += column != "late"
                columns[column] += 1
                fates.update(fate.values())
        counts = " ".join(f"{columns[name]:>5}" for name in COLUMNS)
        noted = ", ".join(f"{count} {fate}" for fate, count in sorted(fates.items()))
        print(f"{case.name():<18} {counts}   {noted}", flush=True)
        return columns


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--runs", type=int, default=5, help="runs of each case (default: 5)")
    names = [case.name() for case in CASES]
    parser.add_argument("--case", action="append", choices=names, help="only this row; can be repeated")
    parser.add_argument("--ranks", type=int, default=6)
    parser.add_argument("--count", type=int, default=2_000_000, help="records a rank")
    parser.add_argument("--heartbeats", default="plain", choices=["plain", "thread"],
                        help="sent while MPI is being called (default), or by a thread of Open MPI's, with "
                             "which MPI_Finalize hangs in 5.0.11 if nobody has died")
    parser.add_argument("--kind", default="i32")
    parser.add_argument("--shape", default="random", help="see tests/c/sorter.c")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--limit", type=float, default=30, help="seconds after which a run counts as hung")
    parser.add_argument("--profile", default="release")
    parser.add_argument("--keep", help="a folder for the logs of bad runs")
    parser.add_argument("--verbose", action="store_true", help="a line for each run")
    options = parser.parse_args()

    total = collections.Counter()
    try:
        with tempfile.TemporaryDirectory(prefix="ftsort-hosts-") as folder, Network() as network:
            table = Table(options, network, pathlib.Path(folder))
            counts = " ".join(f"{name:>5}" for name in COLUMNS)
            print(f"{'':<18} {counts}   struck ranks")
            for case in CASES:
                if not options.case or case.name() in options.case:
                    total.update(table.row(case))
    except NoHosts as why:
        print(f"skipped: {why}")
        return
    for line in table.bad:
        print(line)
    good = total["right"] + total["lost"]
    bad = total["wrong"] + total["crash"] + total["hang"]
    print(f"{good} passed, {bad} failed")
    sys.exit(1 if bad or not good else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Sorts in allocations of a Slurm cluster on this machine, and checks outputs, statuses, hosts and left processes.

The cluster has Slurm's own daemons: munged, slurmctld, and a slurmd for each of three hosts, which are the network
namespaces of hosts.py. Its configuration, key and logs are in a temporary folder. The jobs are those of the command
`ftsort` and of scripts/ftsort-mpirun. The script needs root, and installs Debian's packages of Slurm. Where that is not
possible, it prints "skipped" and succeeds. Names of cases select them: `slurm.py export cancelled`.
"""

import argparse
import os
import pathlib
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import debian_tools
import hosts
import launch
import python_env

PACKAGES = ["munge", "slurm-client", "slurmctld", "slurmd"]
PROGRAMS = ["munged", "srun", "slurmctld", "slurmd", "nsenter", "unshare"]
LIMIT = 90        # seconds for a job
TIME_LIMIT = 150  # seconds until Slurm ends a job with --time=1, which it checks every half minute
ROWS = 8_000_000
# The hosts have more processors than this machine, so ranks are not bound to cores.
MPIRUN = [str(launch.ROOT / "scripts" / "ftsort-mpirun"), "--bind-to", "none"]
# mpirun (PRRTE 3.0.14) sometimes does not end if all processes of several hosts end at once when they start.
HOSTNAME = ["sh", "-c", "uname -n; sleep 1"]
ONE, THREE, UNEVEN = ["-N1", "-n4"], ["-N3", "--ntasks-per-node=2"], ["-n3", "-c2"]

CONFIGURATION = """
ClusterName=trial
SlurmctldHost={here}({address})
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldPort=16817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
KillWait=10
{nodes}
PartitionName=main Nodes={names} Default=YES State=UP
"""
NODE = "NodeName={name} NodeAddr={address} NodeHostname={name} CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1"

CHECK = "import numpy, sys; numpy.testing.assert_array_equal(numpy.sort(numpy.load('in.npy')), numpy.load('out.npy'))"
MAKE = f"import numpy; numpy.save('in.npy', numpy.random.default_rng(1).normal(size={ROWS}))"


class Failed(Exception):
    """A case has failed."""


def wait_for(condition, limit, text, details=str):
    """Waits until `condition` is true; raises Failed after `limit` seconds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"{text} within {limit} s: {details()}")
        time.sleep(0.01)


def command_line(pid):
    """Returns the command line of a process; empty if it has ended."""
    try:
        return pathlib.Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


class Cluster:
    """The daemons; they run during the `with` block."""

    def __init__(self, folder, network):
        self.folder, self.network, self.daemons = folder, network, []
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        self.environment.update(SLURM_CONF=str(folder / "slurm.conf"), PYTHONPATH=str(python_env.PACKAGE / "src"),
                                FTSORT_LIBRARY=str(launch.library_dir() / "libftsort.so"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()

    def daemon(self, name, *command):
        with open(self.folder / f"{name}.log", "w") as log:
            self.daemons.append(subprocess.Popen(list(map(str, command)), env=self.environment, cwd=self.folder,
                                                 stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT))

    def start(self):
        folder, network = self.folder, self.network
        for name in ["state", *network.names]:
            (folder / name).mkdir()
        nodes = [NODE.format(name=name, address=network.net[11 + host]) for host, name in enumerate(network.names)]
        (folder / "slurm.conf").write_text(CONFIGURATION.format(
            here=os.uname().nodename, address=network.net[1], folder=folder, nodes="\n".join(nodes),
            names=",".join(network.names)))
        (folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (folder / "munge.key").chmod(0o400)
        folder.chmod(0o711)  # munged asks for a folder in which all users reach its socket.
        files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed")]
        self.daemon("munged", "munged", "--foreground", f"--socket={folder}/munge.socket", *files)
        wait_for((folder / "munge.socket").exists, 10, "munged does not start")
        self.daemon("slurmctld", "slurmctld", "-D")
        for name in network.names:
            # Slurm finds the control groups in /sys, which `ip netns exec` would replace.
            self.daemon(name, "nsenter", f"--net=/run/netns/{name}", "unshare", "--uts", "sh", "-c",
                        'hostname "$0"; exec slurmd -D -N "$0"', name)
        wait_for(lambda: self.output("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(len(network.names)), 30,
                 "the hosts of Slurm do not get ready")

    def output(self, *command):
        """Returns the standard output and the errors of a command."""
        return subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT).stdout

    def processes(self):
        """Returns the processes on the hosts other than slurmd."""
        daemons = {daemon.pid for daemon in self.daemons}
        return {pid for host in range(hosts.HOSTS) for pid in self.network.processes(host)} - daemons


class Trial:
    """Runs jobs in a folder that all hosts see."""

    def __init__(self, cluster):
        self.cluster, self.folder = cluster, cluster.folder / "work"
        self.folder.mkdir()
        self.python = str(python_env.python())
        subprocess.run([self.python, "-c", MAKE], cwd=self.folder, check=True)
        self.hello = str(launch.build_c(launch.ROOT / "c_examples" / "hello.c", self.folder))
        self.sort = [self.python, "-m", "ftsort.cli", "sort", "in.npy", "-o", "out.npy", "--progress", "plain"]

    def submit(self, allocation, command):
        """Submits a batch job, which sets its environment itself, and returns its number."""
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self.cluster.environment.items()
                   if name.startswith(("PATH", "FTSORT_", "PYTHONPATH", "OMPI_", "PRTE_", "SLURM_CONF"))]
        lines = ["#!/bin/sh", *exports, shlex.join(command), "echo $? > status.part", "mv status.part status"]
        for name in ("status", "text", "out.npy"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "text").touch()
        (self.folder / "job").write_text("\n".join(lines) + "\n")
        return self.cluster.output("sbatch", "--parsable", f"--chdir={self.folder}", "--output=text", *allocation,
                                   str(self.folder / "job")).strip()

    def text(self):
        return (self.folder / "text").read_text(errors="replace")

    def batch(self, allocation, command, status=0):
        """Runs a batch job to its end, and returns its output."""
        self.submit(allocation, command)
        wait_for((self.folder / "status").exists, LIMIT, "does not end", self.text)
        found = int((self.folder / "status").read_text())
        if found != status:
            raise Failed(f"status {found}: {self.text()}")
        return self.text()

    def check_sort(self, allocation, ranks, *options, before=(), batch=True):
        """Runs a sort, and checks its output and that it ran on as many ranks."""
        command = [*before, *self.sort, *options]
        text = self.batch(allocation, command) if batch else self.cluster.output(
            "salloc", f"--chdir={self.folder}", *allocation, *command)
        if f"on {ranks} ranks" not in text or ("--chaos" in options and "of which failed" not in text):
            raise Failed(f"not complete on {ranks} ranks, or no rank was killed: {text}")
        if subprocess.run([self.python, "-c", CHECK], cwd=self.folder).returncode != 0:
            raise Failed(f"out.npy is wrong: {text}")

    def check_hosts(self, allocation, *counts):
        """Checks the number of ranks that ftsort-mpirun starts on each host."""
        found, names = self.batch(allocation, [*MPIRUN, *HOSTNAME]).split(), self.cluster.network.names
        if [found.count(name) for name in names] != list(counts) or len(found) != sum(counts):
            raise Failed(f"{found}, not {counts} ranks on {names}")

    def check_program(self, allocation, faults, survivors):
        """Runs a program of which a rank is killed, on as many ranks as there are tasks."""
        text = self.batch(allocation, ["env", f"FTSORT_FAULTS={faults}", *MPIRUN, self.hello])
        if text.count(", in order") != survivors:
            raise Failed(text)

    def check_ended(self, allocation, limit, *cancel):
        """Stops the ranks of a sort, and checks that nothing is left after Slurm has ended the job."""
        number = self.submit([*THREE, *allocation], self.sort)
        wait_for(lambda: "sorting" in self.text(), LIMIT, "does not sort", self.text)
        for pid in self.cluster.processes():
            if "ftsort.cli.worker" in command_line(pid):
                os.kill(pid, signal.SIGSTOP)
        if not list(self.folder.glob(".out.npy.ftsort-*")):
            raise Failed(f"the sort had no temporary file to remove: {self.text()}")
        if cancel:
            self.cluster.output(*cancel, number)
        wait_for(lambda: not self.cluster.output("squeue", "-hj", number).strip(), limit, "does not end", self.text)
        if (self.folder / "out.npy").exists():
            raise Failed("out.npy was written")

    def check_clean(self):
        """Checks that no process is left on the hosts, and no temporary file."""
        wait_for(lambda: not list(filter(command_line, self.cluster.processes())), 20, "processes are left",
                 lambda: "\n".join(map(command_line, self.cluster.processes())))
        files = list(self.folder.glob(".*"))
        for file in files:
            file.unlink()
        if files:
            raise Failed(f"files are left: {', '.join(file.name for file in files)}")


CASES = {
    "login: three hosts, from a host outside": lambda trial: trial.check_sort(THREE, 6, batch=False),
    "batch: one host": lambda trial: trial.check_sort(ONE, 4),
    "batch: three hosts": lambda trial: trial.check_sort(THREE, 6),
    "hosts: ranks of ftsort-mpirun on three hosts": lambda trial: trial.check_hosts(THREE, 2, 2, 2),
    "uneven: three tasks on two hosts": lambda trial: trial.check_sort(UNEVEN, 3),
    "uneven: ranks of ftsort-mpirun": lambda trial: trial.check_hosts(UNEVEN, 2, 1, 0),
    "chaos: half of the ranks, on one host": lambda trial: trial.check_sort(
        ONE, 8, "--ranks", "8", "--chaos", "half", "--chaos-seed", "1"),
    "chaos: two of the ranks, on three hosts": lambda trial: trial.check_sort(
        THREE, 6, "--chaos", "half", "--chaos-seed", "3"),
    "program: a rank of four is killed": lambda trial: trial.check_program(ONE, "1@2", 3),
    "program: a rank on another host is killed": lambda trial: trial.check_program(THREE, "5@1", 5),
    "ranks: more than tasks": lambda trial: trial.check_sort(["-N3", "-n3"], 8, "--ranks", "8"),
    "ranks: more than tasks, which mpirun refuses": lambda trial: trial.batch(
        ["-N3", "-n3"], [*MPIRUN, "-np", "4", *HOSTNAME], status=1),
    "step: srun -n 1": lambda trial: trial.check_sort(THREE, 1, before=["srun", "-n", "1"]),
    "step: srun -n 1 --mpi=pmi2": lambda trial: trial.check_sort(
        THREE, 6, "--ranks", "6", before=["srun", "-n", "1", "--mpi=pmi2"]),
    "step: all processors belong to the step": lambda trial: trial.check_sort(
        THREE, 6, before=["srun", "-n", "6", "sh", "-c", "test $SLURM_PROCID != 0 || exec \"$@\"", "sh"]),
    "export: sbatch --export=NONE": lambda trial: trial.check_sort([*THREE, "--export=NONE"], 6),
    "export: ftsort-mpirun": lambda trial: trial.check_hosts([*THREE, "--export=NONE"], 2, 2, 2),
    "cancelled: scancel": lambda trial: trial.check_ended([], 30, "scancel"),
    "cancelled: the time limit": lambda trial: trial.check_ended(["--time=1"], TIME_LIMIT),
}


def install():
    """Installs the packages of Slurm if it is not installed; raises NoHosts where the cases cannot run."""
    def missing():
        return ", ".join(program for program in PROGRAMS if shutil.which(program) is None)

    if os.geteuid() != 0:
        raise hosts.NoHosts("not root")
    error = debian_tools.install(PACKAGES) if missing() and shutil.which("apt-get") else None
    if error or missing():
        raise hosts.NoHosts(f"no {missing()}: {', '.join(PACKAGES)} cannot be installed: {error or 'no apt-get'}")


def run(trial, name):
    """Runs a case, prints its line, and returns whether it is right."""
    start, verdict = time.monotonic(), "right"
    for check in (CASES[name], Trial.check_clean):
        try:
            check(trial)
        except (Failed, subprocess.TimeoutExpired) as error:
            verdict = f"FAILED: {error}"
            trial.cluster.output("scancel", "-u", "root")
    print(f"  {name}: {verdict} ({time.monotonic() - start:.1f} s)", flush=True)
    return verdict == "right"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="the first words of the cases to run (default: all)")
    chosen = parser.parse_args().names
    names = [name for name in CASES if not chosen or name.split(":")[0] in chosen]
    try:
        install()
        with tempfile.TemporaryDirectory(prefix="ftsort-slurm-") as folder, hosts.Network() as network, \
                Cluster(pathlib.Path(folder), network) as cluster:
            cluster.start()
            trial = Trial(cluster)
            failed = [name for name in names if not run(trial, name)]
    except hosts.NoHosts as error:
        print(f"slurm: skipped: {error}")
        return
    except Failed as error:
        sys.exit(f"slurm: {error}")
    print(f"slurm: {len(names) - len(failed)} of {len(names)} cases are right")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

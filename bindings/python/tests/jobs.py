"""Starts jobs of mpirun with a hard time limit, and ends every process of a job that passes it."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent
#: The message of an mpirun that gives up before it has started any rank (about once in a thousand runs).
NOT_STARTED = "PMIx server's listener thread failed to start"
#: For kills at any moment. One that cuts a queue in shared memory lets the survivors wait for ever (docs/open-mpi.md,
#: section 15).
NO_QUEUES = {"OMPI_MCA_btl": "self,tcp"}
TRIES = 3


def mpirun_command():
    """Returns the words that start mpirun, which `FTSORT_TEST_MPIRUN` replaces."""
    return shlex.split(os.environ.get("FTSORT_TEST_MPIRUN", "")) or [sys.executable, "-m", "ftsort.mpirun"]


def environment(**extra):
    """Returns the environment of a job: one thread for each rank, and mpirun works for root in a container."""
    values = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", **extra)
    if os.getuid() == 0:
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
            values[name] = values[f"{name}_CONFIRM"] = "1"
    return values


def descendants(pid):
    """Returns the process ids of a process and of all processes below it."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = [pid]
    for parent in found:
        found += [child for child, above in parents.items() if above == parent]
    return found


def end(process):
    """Ends a job: mpirun, its daemons and its ranks."""
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


class Job:
    """A job: ``with Job(4, "program.py") as job: text = job.output(limit)``."""

    def __init__(self, ranks, *arguments, **extra):
        self._output = tempfile.TemporaryFile()
        words = [*mpirun_command(), "--oversubscribe", "-n", str(ranks), sys.executable, *map(str, arguments)]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self._output,
                                        stderr=subprocess.STDOUT, env=environment(**extra), cwd=TESTS)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        if self.process.poll() is None:
            end(self.process)
        self._output.close()

    def text(self):
        """Returns the output so far."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def output(self, limit):
        """Returns the whole output; raises AssertionError if the job does not end within `limit` seconds."""
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            end(self.process)
            raise AssertionError(f"the job did not end within {limit} s:\n{self.text()}") from None
        return self.text()


def run(ranks, *arguments, limit=60, during=None, **extra):
    """Runs a job and returns its output and its exit status. Calls `during` with the Job while it runs."""
    for _ in range(TRIES):
        with Job(ranks, *arguments, **extra) as job:
            if during:
                during(job)
            text = job.output(limit)
            if NOT_STARTED not in text:
                break
        time.sleep(1)
    return text, job.process.returncode


def wait_for(job, condition, seconds=30):
    """Waits until `condition` returns a true value; returns whether it did before the job ended and the time passed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and job.process.poll() is None:
        if condition():
            return True
        time.sleep(0.01)
    return False


def repeated(start):
    """Calls `start` until its mpirun has started ranks. `start` returns an object with `stdout` and `stderr`."""
    for _ in range(TRIES):
        done = start()
        if NOT_STARTED not in done.stdout + done.stderr:
            break
    return done

"""Runs a job: starts the ranks, follows their reports, and makes the output appear when all of it was checked.

The command is the only process that can make an output appear. It renames a temporary file after the ranks have
reported that every block is on the medium, and that the digests of the input and of the output are equal.
"""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import socket
import tempfile
import time
from typing import Any, Dict, List, Optional, Set, Tuple

import numpy as np

from . import files, launch, worker
from .check import Key, digest, MASK
from .progress import Display, amount

OK, FAILED, USAGE, WRONG, NO_MPI = 0, 1, 2, 3, 4
TICK = 0.05
END_LIMIT = 10.0     # seconds from the decision about a job to the end of its processes
START_LIMIT = 300.0  # seconds in which all ranks have to start

# The parts of a job in which --chaos kills ranks, with the part of the kills in each, and the bytes that a rank does
# there in a second at least; the moment of a kill is random within the time that follows from it.
CHAOS = {"read": (0.15, 1e9), "sort": (0.6, 1.5e8), "write": (0.25, 5e8)}


class Failed(Exception):
    """The command ends with a status other than 0."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status


class Output:
    """An output that appears when it is complete: temporary files beside it, and a rename.

    `path` None: the rows are only needed by the command itself, and the file is in `folder`.
    """

    def __init__(self, path: Optional[str], name: str, dtype: np.dtype, rows: int, delimiter: Optional[str]) -> None:
        # A symbolic link stays; the file behind it is replaced.
        self.path = path = os.path.realpath(path) if path else None
        self.format, self.dtype, self.delimiter = name, dtype, delimiter
        folder = os.path.dirname(path) if path else scratch_folder()
        base = os.path.basename(path) if path else "rows"
        self.mark = os.path.join(folder, f".{base}.ftsort-{os.getpid()}-{secrets.token_hex(3)}")
        self.is_table = name in ("csv", "parquet")
        self.attempt = 0
        self.part = ""                         # rows in binary form, written by the ranks
        self.converted = self.mark + ".table"  # CSV or Parquet, written by the command
        self.offset = len(files.npy_header(dtype, rows)) if name == "npy" else 0
        self._check_target(folder)

    def _check_target(self, folder: str) -> None:
        if not os.path.isdir(folder):
            raise Failed(f"{folder} is not a directory: create it, or choose another output")
        if self.path and os.path.isdir(self.path):
            raise Failed(f"{self.path} is a directory: name a file")
        if self.path and os.path.exists(self.path) and not os.path.isfile(self.path):
            raise Failed(f"{self.path} is no regular file, and the output would take its place: name a file")

    def reset(self) -> None:
        """Creates the temporary file, empty. Its name is new, so that no rank of an earlier attempt writes to it."""
        try:
            self.remove()
            self.attempt += 1
            self.part = f"{self.mark}-{self.attempt}.part"
            files.create_private(self.part)
        except OSError as error:
            raise Failed(f"cannot write in {os.path.dirname(self.mark)}: {error.strerror}") from None

    def check_space(self, rows: int) -> None:
        """Refuses to begin if the file system has too little space."""
        status = os.statvfs(self.part)
        need, free = rows * self.dtype.itemsize, status.f_bavail * status.f_frsize
        if need > free:
            raise Failed(f"the output needs {amount(need)}, but {os.path.dirname(self.part)} has only {amount(free)}: "
                         "choose another place with -o")

    def settings(self) -> Optional[Dict[str, Any]]:
        """Returns the settings of an external sort for the ranks; None: the sort is in memory."""
        return None

    def poll(self, display: Display) -> None:
        """Is called again and again while the ranks run; shows progress that they do not report."""

    def has_new_state(self) -> bool:
        """Returns whether this command has left a state that a later one can continue."""
        return False

    def source(self, rows: int) -> files.BinarySource:
        """Returns the binary rows."""
        return files.BinarySource(self.part, self.dtype, rows, [], self.dtype, self.offset, "raw")

    def complete(self, rows: int, display: Display) -> None:
        """Makes the temporary file that gets the name of the output, and forces it to the medium."""
        if self.path is None:
            return
        try:
            if self.is_table:
                self._convert(rows, display)
                return
            with open(self.part, "r+b") as file:
                if self.format == "npy":
                    file.write(files.npy_header(self.dtype, rows, self.offset))
                file.truncate(self.offset + rows * self.dtype.itemsize)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._unwritten(error) from None

    def commit(self) -> None:
        """Makes the output appear under its name."""
        if self.path is None:
            return
        try:
            files.replace(self.converted if self.is_table else self.part, self.path)
        except OSError as error:
            raise self._unwritten(error) from None

    def _unwritten(self, error: OSError) -> Failed:
        return Failed(f"cannot write {self.path}: {files.reason(error)}")

    def _convert(self, rows: int, display: Display) -> None:
        from . import tables
        display.event("phase", phase="convert")
        source = self.source(rows)
        delimiter = self.delimiter or tables.default_delimiter(self.path or "")
        key = secrets.randbits(64)
        files.create_private(self.converted)
        try:
            tables.write_table(source, self.converted, self.format, delimiter)
            written = tables.reopen(self.converted, self.format, self.dtype, delimiter)
            before = sum(digest(tables.canonical(part), key) for part in source.chunks(0, rows)) & MASK
            after = sum(digest(tables.canonical(part), key) for part in written.chunks(0, written.rows)) & MASK
        except tables.ERRORS as error:
            raise Failed(f"{self.path}: the rows cannot be written in the format {self.format}: {error}: write a .npy "
                         "file") from None
        if written.rows != rows or before != after:
            raise Failed(f"{self.path}: the {self.format} file does not hold the rows that were sorted: a value cannot "
                         "be written in this format; write a .npy file", WRONG)

    def discard(self) -> None:
        """Marks the rows as wrong, so that no later command uses them."""

    def remove(self) -> None:
        """Removes the temporary files."""
        if self.part:
            files.remove(self.part)
        files.remove(self.converted)


def scratch_folder() -> str:
    """Returns a directory that all ranks see: that for temporary files, or the working directory in an allocation."""
    return os.getcwd() if launch.allocation() else tempfile.gettempdir()


class Chaos:
    """Kills ranks at random moments, for demonstrations."""

    def __init__(self, victims: int, seed: int, ranks: int, size: int,
                 phases: Dict[str, Tuple[float, float]] = CHAOS) -> None:
        numbers = random.Random(seed)
        self.moments: List[Tuple[str, float, int]] = []
        names = list(phases)
        for rank in numbers.sample(range(ranks), victims):
            phase = numbers.choices(names, [phases[name][0] for name in names])[0]
            self.moments.append((phase, numbers.random() * (0.01 + size / ranks / phases[phase][1]), rank))
        self.planned = list(self.moments)
        self.began: Dict[str, float] = {}
        self.order = [*names, "check", "convert"]

    def restart(self) -> None:
        """Plans the same kills for another attempt, after one in which no rank was killed."""
        self.moments, self.began = list(self.planned), {}

    def due(self, phase: str, now: float) -> List[int]:
        """Returns the ranks to kill now. A kill that was planned for an earlier phase is due at once."""
        if phase not in self.order:
            return []
        since = now - self.began.setdefault(phase, now)
        place = self.order.index(phase)
        found = [moment for moment in self.moments if self.order.index(moment[0]) < place
                 or (moment[0] == phase and moment[1] <= since)]
        self.moments = [moment for moment in self.moments if moment not in found]
        return [rank for _, _, rank in found]


def reason_line(text: str) -> str:
    """Returns the line of an error text that says most: the first within the lines of dashes of mpirun, or the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    framed = [line for above, line in zip(lines, lines[1:]) if not above.strip("-") and line.strip("-")]
    return (framed[:1] or lines[-1:] or ["MPI failed"])[0]


class Attempt:
    """The reports of one start of mpirun."""

    def __init__(self) -> None:
        self.ready: Dict[int, Tuple[int, str]] = {}
        self.phases: Set[str] = set()
        self.parts: Dict[Tuple[str, int], Dict[str, Any]] = {}
        self.done: Optional[Dict[str, Any]] = None
        self.error: Optional[Tuple[str, str]] = None
        self.has_reason = False  # The error is of the rank that knows its reason.
        self.crash = ""
        self.failed: Set[int] = set()
        self.moved = 0
        self._counts: Dict[Tuple[str, int], Dict[int, List[Any]]] = {}

    def take_part(self, event: Dict[str, Any]) -> None:
        """Takes in a report about a part, which counts as checked once the reports with all of its counts are here."""
        part = (event["kind"], event["part"])
        pieces = self._counts.setdefault(part, {})
        pieces[event["first"]] = event["counts"]
        counts = [count for first in sorted(pieces) for count in pieces[first]]
        if len(counts) == event["of"]:
            self.parts[part] = {**event, "counts": counts}


class Runner:
    """Runs a job until it is done, in several attempts if MPI itself fails."""

    def __init__(self, job: Dict[str, Any], source: files.Source, ranks: int, display: Display, *,
                 attempts: int, chaos: Optional[Chaos], time_limit: Optional[float], mpirun: List[str]) -> None:
        self.job, self.source, self.ranks, self.display = job, source, ranks, display
        self.attempts, self.chaos, self.mpirun = attempts, chaos, mpirun
        self.deadline = time.monotonic() + time_limit if time_limit else None
        self.killed: List[int] = []
        self.failed: List[int] = []
        self.attempt = 1

    def run(self, output: Output) -> Dict[str, Any]:
        """Runs the job. Returns the last report of a rank."""
        free_starts = 2  # mpirun sometimes fails before it has started a rank; this does not count.
        while True:
            self.display.event("start", command=self.job["command"], input=self.source.path, rows=self.source.rows,
                               bytes=self.source.bytes, ranks=self.ranks, attempt=self.attempt,
                               **({"external": True} if output.settings() else {}))
            attempt, text = self._once(output)
            if attempt.done is not None and not self._missing(attempt):
                self.failed = sorted({*attempt.failed, *attempt.done["failed"]})
                self._judge(attempt)
                return attempt.done
            kind, reason = attempt.error or ("mpi", attempt.crash or text)
            if attempt.done is not None:
                reason = f"reports about {len(self._missing(attempt))} checks were lost"
            if kind == "ulfm":
                raise launch.NoMpi(reason)
            if kind == "lost":
                raise Failed(reason, WRONG)
            if kind not in ("mpi", "crash"):
                raise Failed(reason)
            if not attempt.ready and launch.NOT_STARTED in text and free_starts:
                free_starts -= 1
            elif self.attempt >= self.attempts:
                hint = "all ranks failed, or MPI did" if attempt.ready else "mpirun could not start the ranks"
                raise Failed(f"{hint}: {reason or 'no reason was reported'}")
            else:
                self.attempt += 1
            output.reset()
            continued = (output.settings() or {}).get("resume")
            how = "continuing with the last batch" if continued else "starting again from the file"
            self.display.event("retry", attempt=self.attempt, reason=f"{reason_line(reason)}: {how}")
            if self.killed:
                self.chaos = None
            elif self.chaos is not None:
                self.chaos.restart()

    def _once(self, output: Output) -> Tuple[Attempt, str]:
        self.job["path"], self.job["external"] = output.part, output.settings()
        # The token is the last argument of the ranks, and only those of this job have it.
        program = [*launch.python_line("from ftsort.cli.worker import main; main()"), secrets.token_hex(16)]
        variables = worker.encode_job(self.job, program[-1])
        attempt = Attempt()
        try:
            job = launch.Job(launch.arguments(program, self.ranks, self.mpirun, variables), variables)
        except launch.TooLarge:
            raise self._too_large(variables) from None
        began, decided = time.monotonic(), None
        try:
            while not job.ended():
                for line in job.lines(TICK):
                    self._take(attempt, line)
                    self._kill(attempt)
                output.poll(self.display)
                self._kill(attempt)
                self.display.tick()
                if self.deadline and time.monotonic() > self.deadline:
                    raise Failed("the job was not finished within --time-limit: no output was written")
                if decided is None and (attempt.done or attempt.error or self._have_ended(attempt, program[-1])):
                    decided = time.monotonic()
                # MPI does not always end after failures, and its start can hang.
                if decided is not None and time.monotonic() > decided + END_LIMIT:
                    break
                is_starting = not attempt.phases and len(attempt.ready) < self.ranks
                if is_starting and time.monotonic() > began + START_LIMIT:
                    attempt.error = ("mpi", f"only {len(attempt.ready)} of {self.ranks} ranks started in "
                                     f"{START_LIMIT:.0f} s")
                    break
        finally:
            job.stop()
            for pid, host in attempt.ready.values():
                if host == socket.gethostname():
                    launch.end_rank(pid, program[-1])
        text = "\n".join(job.other)
        if not attempt.ready and launch.TOO_LARGE in text:
            raise self._too_large(variables)  # The ranks have more variables than mpirun.
        return attempt, text

    def _have_ended(self, attempt: Attempt, token: str) -> bool:
        """Returns whether all ranks have ended; False if some are on other machines."""
        host = socket.gethostname()
        return (len(attempt.ready) == self.ranks and all(where == host for _, where in attempt.ready.values())
                and not any(launch.runs_rank(pid, token) for pid, _ in attempt.ready.values()))

    def _too_large(self, variables: Dict[str, str]) -> Failed:
        size = sum(map(len, variables.values()))
        return Failed(f"{self.source.path}: the description of its fields for the ranks has {amount(size)}, which is "
                      "more than this system passes to a program: raise the limit with `ulimit -s`, or use a file with "
                      "fewer fields or with shorter names")

    def _take(self, attempt: Attempt, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return  # Two reports that mpirun has mixed; every important one is checked for at the end.
        kind = event.pop("event")
        if kind == "ready":
            attempt.ready[event["rank"]] = (event["pid"], event["host"])
        elif kind == "bytes":
            attempt.moved += event["n"]
            self.display.event("progress", phase=self.display.state.phase, bytes=attempt.moved)
        elif kind == "phase":
            attempt.phases.add(event["phase"])
            attempt.moved = 0
            self.display.event("phase", phase=event["phase"])
        elif kind == "part":
            attempt.take_part(event)
        elif kind == "done":
            attempt.done = attempt.done or event
            for rank in event["failed"]:
                self._failure(attempt, rank)
        elif kind == "error":
            # All ranks report an error that they have agreed on.
            is_own = event.get("is_own", True)
            if attempt.error is None or (is_own and not attempt.has_reason):
                attempt.error, attempt.has_reason = (event["kind"], event["message"]), is_own
        elif kind == "crash":
            attempt.crash = event["message"]
        elif kind == "failure":
            self._failure(attempt, event["rank"])
        else:
            self.display.event(kind, **event)

    def _failure(self, attempt: Attempt, rank: int) -> None:
        if rank not in attempt.failed:
            attempt.failed.add(rank)
            self.display.event("failure", rank=rank, alive=self.ranks - len(attempt.failed))

    def _kill(self, attempt: Attempt) -> None:
        # A rank that fails while MPI starts can end the job, so no rank is killed before all have started. In the
        # second part of the job, a report of a start that is not here was lost.
        if self.chaos is None or not (len(attempt.phases) > 1 or len(attempt.ready) == self.ranks):
            return
        for rank in self.chaos.due(self.display.state.phase, time.monotonic()):
            pid, host = attempt.ready.get(rank, (0, ""))
            if not pid:
                self.display.event("note", message=f"--chaos cannot kill rank {rank}: the report of its start was lost")
            elif host != socket.gethostname():
                self.display.event("note", message=f"--chaos cannot kill rank {rank} on {host}: only ranks of "
                                   f"{socket.gethostname()} are killed")
            elif attempt.done is None and launch.kill_rank(pid):
                self.killed.append(rank)
                self.display.event("chaos", rank=rank)

    def _missing(self, attempt: Attempt) -> List[Tuple[str, int]]:
        """Returns the parts of the input and of the output that no rank has reported as checked."""
        return [(kind, part) for kind in worker.kinds_of(self.job["command"]) for part in range(self.ranks)
                if (kind, part) not in attempt.parts]

    def _judge(self, attempt: Attempt) -> None:
        """Compares the findings of the ranks about the input and the output."""
        name, rows = self.job["output"] or "the result", attempt.done["rows"]  # type: ignore[index]
        kinds = worker.kinds_of(self.job["command"])
        self.source.check_unchanged()
        wrong = [event["wrong"] for event in attempt.parts.values() if event.get("wrong") is not None]
        if wrong:
            raise Failed(f"{name}: row {min(wrong)} is out of order in the file that was written, which is a defect of "
                         "ftsort or of the file system: the file was discarded", WRONG)
        if self.job["command"] in ("sort", "argsort"):
            digests = [sum(attempt.parts[(kind, part)]["digest"] for part in range(self.ranks)) & MASK
                       for kind in kinds]
            if digests[0] != digests[1] or rows != self.source.rows:
                raise Failed(f"{name}: the file that was written does not hold the rows of {self.source.path}, which "
                             "is a defect of ftsort or of the file system: the file was discarded", WRONG)
        if self.job["command"] in ("quantiles", "top"):
            self._judge_selected(attempt, rows)
        if self.job["command"] == "unique":
            counted = sum(event["counted"] for event in attempt.parts.values())
            if counted != self.source.rows:
                raise Failed(f"{name}: the counts add up to {counted}, but {self.source.path} has {self.source.rows} "
                             "rows: the file was discarded", WRONG)


    def _judge_selected(self, attempt: Attempt, rows: int) -> None:
        """Compares the positions that the selected rows can have in the sorted order with those that they should."""
        def sums(kind: str) -> List[List[int]]:
            parts = [attempt.parts[(kind, part)]["counts"] for part in range(self.ranks)]
            return [[sum(part[number][side] for part in parts) for side in (0, 1)] for number in range(len(parts[0]))]

        total = self.source.rows
        if self.job["command"] == "top":
            wanted = [min(self.job["count"], total) - 1] if total else []
        else:
            wanted = [max(0, math.ceil(fraction * total) - 1) for fraction in self.job["fractions"]]
        found = sums("in")
        right = len(found) == len(wanted) and all(before <= position < before + equal
                                                  for (before, equal), position in zip(found, wanted))
        if self.job["command"] == "top":
            digests = [sum(attempt.parts[(kind, part)]["digest"] for part in range(self.ranks)) & MASK
                       for kind in ("in", "out")]
            written = [before for before, _ in sums("out")]
            right = right and digests[0] == digests[1] and written == [before for before, _ in found]
            right = right and rows == min(self.job["count"], total)
        if not right:
            raise Failed(f"{self.job['command']}: the rows that were found are not at the right positions of the "
                         "order, which is a defect of ftsort", WRONG)


def make_job(command: str, source: files.Source, keys: List[Key], output: Output, **more: Any) -> Dict[str, Any]:
    """Returns the description of a job for the ranks."""
    return {"command": command, "source": source.to_json(), "keys": [list(key) for key in keys],
            "out_dtype": files.dtype_to_json(output.dtype), "offset": output.offset,
            "output": output.path or "", "digest_key": secrets.randbits(64), **more}

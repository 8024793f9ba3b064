"""Sorts of files that do not fit into memory: the choice of such a sort, and its output.

The library sorts `.npy` and raw files by runs in scratch files. Its output has a name beside the final one, until the
ranks have checked it. The state for `--resume` is in a file beside it.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, Dict, List, Optional

import numpy as np

from . import files, launch, run
from .progress import Display, amount

#: Bytes that a sort in memory takes for each byte of the input: the rows of the rank, and the library's buffers without
#: replicas (docs/performance.md).
IN_MEMORY = 3.2
#: The phases in which --chaos kills ranks, as in `run.CHAOS`.
CHAOS = {"runs": (0.4, 1e8), "merge": (0.6, 1e8)}
#: In place of no limit, version 1 of the control groups writes a larger number than this, and version 2 a word.
NO_GROUP_LIMIT = 1 << 60
POLL = 0.1  # seconds between two reports of progress


def available_memory() -> Optional[int]:
    """Returns the bytes of memory that programs can take on the hosts of the job; None if it is not known.

    All hosts of an allocation are taken to have as much as this one.
    """
    found: List[int] = []
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found += [1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:")]
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            found += memory_in_groups(file.read())
    except (OSError, ValueError):
        pass
    return min(found) * launch.host_count() if found else None


def memory_in_groups(groups: str, root: str = "/sys/fs/cgroup") -> List[int]:
    """Returns the bytes that control groups leave to this process, as the library reads them (src/control_group.rs).

    `groups` is the content of /proc/self/cgroup, and `root` the folder of all control groups.
    """
    found = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, path = os.path.join(root, "memory") if controllers else root, path.strip("/")
        while True:
            found += _left_in_group(os.path.join(folder, path), bool(controllers))
            if not path:
                break
            path = os.path.dirname(path)
    return found


def _left_in_group(path: str, is_version_1: bool) -> List[int]:
    """Returns the bytes that are left of the limit of a control group, if it has one.

    Cached files do not count as used, since the system reclaims them.
    """
    limit, *used = (("memory.limit_in_bytes", "total_rss", "total_shmem") if is_version_1 else
                    ("memory.max", "anon", "shmem"))
    try:
        with open(os.path.join(path, limit), encoding="ascii") as file:
            most = int(file.read())
        with open(os.path.join(path, "memory.stat"), encoding="ascii") as file:
            figures = dict(line.split() for line in file)
        # Old systems do not count shared memory.
        left = most - int(figures[used[0]]) - int(figures.get(used[1], 0))
    except (OSError, ValueError, KeyError):
        return []  # There is no such group, or its limit is the word "max".
    return [max(0, left)] if most <= NO_GROUP_LIMIT else []


def is_wanted(options: argparse.Namespace, source: files.Source, name: str) -> bool:
    """Returns whether the sort is external: by an option, or because the file does not fit into memory.

    `name` is the format of the output. Refuses files that cannot be sorted in this way.
    """
    if options.command != "sort":
        return False
    words = [word for word, given in (("--external", options.external), ("--resume", options.resume),
                                      ("--scratch", options.scratch)) if given]
    limit = options.memory or available_memory()
    need = int((IN_MEMORY + (options.replicas if options.store == "memory" else 0)) * source.bytes)
    if not words and (limit is None or need <= limit):
        return False
    origin = words[0] if words else (f"{source.path} takes {amount(need)} to sort in memory, but there are "
                                     f"{amount(limit or 0)}")
    kind = files.UsageError if words else files.FileError
    for role, found in (("input", source.format), ("output", name)):
        if found in ("csv", "parquet"):
            raise kind(f"{origin}: only .npy and raw files can be larger than memory, and the {role} is {found}: "
                       f"use a .npy or raw {role}, or give the sort more memory with --memory or more hosts")
    if not isinstance(source, files.BinarySource) or source.stored != source.dtype:
        raise kind(f"{origin}: {source.path} is not in the byte order of this machine, which is only converted in "
                   "memory: write the file in native byte order")
    rest = source.mark[1] - source.offset - source.bytes
    if rest:
        raise kind(f"{origin}: {source.path} has {rest} bytes behind its last row: write the file without them")
    for folder in options.scratch:
        if not os.path.isdir(folder):
            raise files.UsageError(f"--scratch {folder}: not a directory: create it on all hosts")
    return True


class ExternalOutput(run.Output):
    """The output of an external sort: the library writes `.NAME.external`, and its state stays until it is complete."""

    def __init__(self, path: str, name: str, dtype: np.dtype, rows: int, options: argparse.Namespace,
                 ranks: int) -> None:
        super().__init__(path, name, dtype, rows, None)
        folder, base = os.path.split(self.path or "")
        self.part = os.path.join(folder, f".{base}.external")
        self.draft, self.state = self.part + ".partial", self.part + ".ftsort"
        self.scratch = [os.path.abspath(one) for one in options.scratch]
        self.memory = max(1, options.memory // ranks) if options.memory else None
        self.resume = options.resume
        self.is_over = False
        self._before = self._state_mark()
        self._next = 0.0

    def _state_mark(self) -> Optional[List[int]]:
        return files.fingerprint(self.state) if os.path.exists(self.state) else None

    def reset(self) -> None:
        """Begins an attempt. It continues the one before if that has left a state."""
        self.attempt += 1
        if self.attempt > 1 and self._state_mark() not in (None, self._before):
            self.resume = True

    def settings(self) -> Dict[str, Any]:
        """Returns the settings of the sort for the ranks."""
        return {"memory": self.memory, "scratch": self.scratch, "resume": self.resume}

    def check_space(self, rows: int) -> None:
        """Refuses to begin if the file systems have too little space."""
        if self.resume and self._before:
            return  # A part of the files exists.
        size, folder = rows * self.dtype.itemsize, os.path.dirname(self.part)
        scratch = self.scratch or [folder]
        need: Dict[int, List[Any]] = {}  # by file system
        for place, share in [(folder, size), *((one, size // len(scratch)) for one in scratch)]:
            need.setdefault(os.stat(place).st_dev, [0, place])[0] += share
        for share, place in need.values():
            status = os.statvfs(place)
            free = status.f_bavail * status.f_frsize
            if share > free:
                raise run.Failed(f"the output and the sorted runs need {amount(share)}, but {place} has only "
                                 f"{amount(free)}: choose another place with -o or --scratch")

    def poll(self, display: Display) -> None:
        """Shows the progress, from the sizes of the files."""
        phase = display.state.phase
        if phase not in CHAOS or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + POLL
        moved = _size(self.draft) - self.offset
        if moved > 0 and phase == "runs":
            display.event("phase", phase="merge")
        if moved <= 0:
            moved = sum(_runs_in(folder) for folder in self.scratch or [os.path.dirname(self.part)])
        display.event("progress", phase=display.state.phase, bytes=moved)

    def commit(self) -> None:
        """Makes the output appear under its name."""
        super().commit()
        self.is_over = True

    def discard(self) -> None:
        """Marks the rows as wrong, so that no later command uses them."""
        self.is_over = True

    def has_new_state(self) -> bool:
        """Returns whether this command has left a state that a later one can continue."""
        return not self.is_over and self._state_mark() not in (None, self._before)

    def remove(self) -> None:
        """Removes the files of this sort, unless a later command can continue it, or they are of another sort."""
        if self.is_over or self._state_mark() is None:
            for path in (self.part, self.draft, self.state):
                files.remove(path)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0  # It does not exist yet, or has got its final name.


def _runs_in(folder: str) -> int:
    """Returns the bytes of the sorted runs in a directory that this host sees, without the pieces of runs."""
    try:
        with os.scandir(folder) as entries:
            return sum(_size(entry.path) for entry in entries
                       if entry.name.startswith("ftsort-run-") and ".piece" not in entry.name)
    except OSError:
        return 0

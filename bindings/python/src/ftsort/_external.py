"""Sorts of files that need not fit into memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
from ctypes import byref
from typing import Any, List, NamedTuple, Optional, Sequence, Union

import numpy as np

from ftsort import _native
from ftsort._calls import Calls
from ftsort._errors import ArgumentError
from ftsort._layout import Compare, Descending, Key, Layout, listed

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class ExternalStats(NamedTuple):
    """Figures of an external sort on this rank."""

    records: int          #: Records of the sources.
    resumed_records: int  #: Records that an earlier sort had put into the output.
    resumed_runs: int     #: Runs of an earlier sort that this rank found in its scratch directories.
    runs: int             #: Runs that this rank made, also those in place of lost ones.
    batches: int          #: Committed batches.
    restarts: int         #: How often a failure or an unreadable run made the ranks repeat the present batch.
    bytes_read: int       #: Bytes that this rank read from the sources and from runs.
    bytes_written: int    #: Bytes that this rank wrote to runs and to the output.


class ExternalSorts(Calls):
    """The method of `Group` that sorts files. See `Group` for the conventions."""

    def external_sort(self, sources: Union[Path, Sequence[Path]], output: Path, dtype: Any, key: Key = None,
                      descending: Descending = False, *, compare: Optional[Compare] = None,
                      scratch: Union[None, Path, Sequence[Path]] = None, memory: Optional[int] = None,
                      resume: bool = False, sync: bool = False, source_offset: int = 0,
                      output_offset: int = 0, output_parts: int = 0) -> ExternalStats:
        """Sorts raw files that need not fit into memory into one file or several. [collective]

        The ranks sort parts of the files into runs in scratch directories, and then the records of all runs batch by
        batch into the output. If a rank fails, the survivors make its runs again from the files. Equal keys do not
        keep their order.

        Parameters
        ----------
        sources : path or sequence of paths
            The files, which are taken as one, one after the other. Every rank must be able to read all of them.
        output : path
            The sorted file, in a directory that all ranks can write. An existing file is replaced at the end.
        dtype : numpy.dtype
            The type of the elements of the files.
        key, descending, compare
            As for `Group.sort`. A float16 cannot be a key. If `compare` raises an exception, `output` is removed.
        scratch : path or sequence of paths, optional
            Directories for runs, which together take as many bytes as this rank's part of the files; they may be
            local to the host. By default the directory of `output`.
        memory : int, optional
            Bytes that the buffers of the sort may take on this rank. By default half of the group's `memory_limit`,
            or of the available memory. The smallest value of all ranks counts.
        resume : bool
            Whether to continue an earlier sort of the same files into `output` that ended before it was complete,
            with any number of ranks. Without one a new sort begins. The state stays in the file ``output.ftsort``
            for a later call.
        sync : bool
            Whether a sort can be resumed after a host has lost its power.
        source_offset : int
            Bytes before the first element of each source, which are not read.
        output_offset : int
            The position of the first element in each file of the output. The bytes before it are left to the program.
        output_parts : int
            The number of files of the output. If it is not 0, the files are ``output.00000``, ``output.00001`` and so
            on, in the order of the elements, each with an equal number of them or one more.

        Returns
        -------
        ExternalStats
            Figures of this rank. The output is complete under its name.

        Raises
        ------
        ArgumentError
            An argument is invalid, or the state of another sort is to be resumed.
        StoreError
            A file cannot be read or written, or a source has changed.
        MemoryLimit
            `memory` is too small for the sources.

        Examples
        --------
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "numbers.bin")
        ...     np.array([3, 1, 2]).tofile(path)
        ...     group.external_sort(path, path + ".sorted", "i8").records
        ...     np.fromfile(path + ".sorted", "i8").tolist()
        3
        [1, 2, 3]
        """
        function = self._library.external_sort
        with self._refusing(lambda: function(self._pointer(), None, None, None)):
            layout = Layout(self._library, _type(dtype), key, descending, False, compare, self._callbacks.fail)
            if layout.has_half_keys:
                raise ArgumentError("a key is a float16, which the sort of a file cannot map: store it as float32")
            sizes = {"memory": 0 if memory is None else memory, "source_offset": source_offset,
                     "output_offset": output_offset, "output_parts": output_parts}
            for name, value in sizes.items():
                if not isinstance(value, (int, np.integer)) or not 0 <= value < 2**63:
                    unit = "files" if name == "output_parts" else "bytes"
                    raise ArgumentError(f"{name} is {value!r}, expected a number of {unit}")
            if memory is not None and memory == 0:
                raise ArgumentError("memory is 0, expected a number of bytes, or None for the default")
            names, places = _paths(sources, "sources"), _paths(() if scratch is None else scratch, "scratch")
            if not names:
                raise ArgumentError("sources is empty: name at least one file")
            files = _native.External(
                struct_size=ctypes.sizeof(_native.External), sources=_array(names), source_count=len(names),
                output=_path(output, "output"), scratch=_array(places), scratch_count=len(places),
                memory_bytes=int(sizes["memory"]), resume=int(bool(resume)), sync=int(bool(sync)),
                source_offset=int(source_offset), output_offset=int(output_offset),
                output_parts=int(output_parts))
        raw = _native.ExternalStats(struct_size=ctypes.sizeof(_native.ExternalStats))
        self._call(function, byref(layout.record), byref(files), byref(raw), layouts=[layout], keep=(layout, files),
                   discard=lambda: _remove(output, int(output_parts)))
        return ExternalStats(*(getattr(raw, name) for name in ExternalStats._fields))


def _remove(output: Path, parts: int) -> None:
    """Removes an output and the state from which another call would take it for complete."""
    path = os.fsencode(output)
    files = [path + b".%05d" % part for part in range(parts)] or [path]
    for name in [path + b".ftsort", *files]:
        with contextlib.suppress(FileNotFoundError):  # Another rank has removed it.
            os.remove(name)


def _type(dtype: Any) -> np.dtype:
    # NumPy takes None for float64.
    if dtype is None:
        raise ArgumentError("dtype is None, expected the type of the elements of the files")
    return np.dtype(dtype)


def _path(given: Any, name: str) -> bytes:
    """Returns a path as the library takes it."""
    if not isinstance(given, (str, bytes, os.PathLike)):
        raise ArgumentError(f"{name} is {given!r}, expected a path")
    path = os.fsencode(given)
    if not path or b"\0" in path:
        raise ArgumentError(f"{name} has {os.fsdecode(path)!r}, which is not a path")
    return path


def _paths(given: Any, name: str) -> List[bytes]:
    """Returns one path or several as the library takes them."""
    if isinstance(given, (str, bytes, os.PathLike)):
        return [_path(given, name)]
    return [_path(path, name) for path in listed(given, name, "a path or a sequence of paths")]


def _array(paths: List[bytes]) -> Any:
    """Returns an array of the library; NULL if it is empty."""
    return (ctypes.c_char_p * len(paths))(*paths) if paths else None

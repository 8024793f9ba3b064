"""Sorts of files that need not fit into memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from ctypes import byref
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from ftsort import _native
from ftsort._calls import Calls
from ftsort._errors import ArgumentError
from ftsort._layout import Compare, Descending, Key, Layout, listed

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_MOST_PARTS = 100_000
#: The end of the name of an output until the ranks know that `compare` has not failed.
_UNCHECKED = b".unchecked"


class ExternalStats(NamedTuple):
    """Figures of an external sort on this rank."""

    records: int          #: Records of the sources.
    resumed_records: int  #: Records that an earlier sort had put into the output.
    resumed_runs: int     #: Runs of an earlier sort that this rank found in its scratch directories.
    runs: int             #: Runs that this rank made, also those in place of lost ones.
    batches: int          #: Committed batches.
    restarts: int         #: How often a failure or an unreadable run made the ranks repeat the present batch.
    bytes_read: int       #: Bytes of records that this rank read from the sources and from runs.
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
            The sorted file, in a directory that all ranks can write. An existing file is replaced at the end. The mode is
            0600, also if a file with another mode is replaced.
        dtype : numpy.dtype
            The type of the elements of the files.
        key, descending, compare
            As for `Group.sort`. A float16 cannot be a key. With `compare` the output has the name
            ``output.unchecked`` until all ranks know that the function has raised no exception. If it has raised one,
            that file is removed, and `output` stays as it is.
        scratch : path or sequence of paths, optional
            Directories for runs, which together take as many bytes as this rank's part of the files; they may be
            local to the host. By default the directory of `output`.
        memory : int, optional
            Bytes that the buffers of the sort may take on this rank. By default half of the group's `memory_limit`,
            or of the available memory. The smallest value of all ranks counts.
        resume : bool
            Whether to continue an earlier sort of the same files into `output` that ended before it was complete,
            with any number of ranks. Without one a new sort begins. The state stays in the file ``output.ftsort``
            for a later call. Not with `compare`: a later job cannot know whether its function is the same.
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
        CallbackError
            `compare` raised an exception on some rank; the exception is the cause of that of its rank.
        StoreError
            A file cannot be read or written, or a source has changed. If no rank can give an output of a sort with
            `compare` its name, it stays in ``output.unchecked``.
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
            if output_parts > _MOST_PARTS:
                raise ArgumentError(f"output_parts is {output_parts}, expected at most {_MOST_PARTS}")
            names, places = _paths(sources, "sources"), _paths(() if scratch is None else scratch, "scratch")
            if not names:
                raise ArgumentError("sources is empty: name at least one file")
            written, unchecked = _path(output, "output"), None
            if compare is not None:
                if resume:
                    raise ArgumentError("resume is true, but a sort with compare cannot be resumed: a later job cannot"
                                        " know whether its function is the same")
                unchecked = _Unchecked(written, int(output_parts), names, bool(sync))
                unchecked.check(names)
                sync = unchecked.is_synced
                written += _UNCHECKED
            files = _native.External(
                struct_size=ctypes.sizeof(_native.External), sources=_array(names), source_count=len(names),
                output=written, scratch=_array(places), scratch_count=len(places),
                memory_bytes=int(sizes["memory"]), resume=int(bool(resume)), sync=int(bool(sync)),
                source_offset=int(source_offset), output_offset=int(output_offset),
                output_parts=int(output_parts))
        raw = _native.ExternalStats(struct_size=ctypes.sizeof(_native.ExternalStats))
        self._call(function, byref(layout.record), byref(files), byref(raw), layouts=[layout], keep=(layout, files),
                   commit=unchecked.commit if unchecked else None, discard=unchecked.discard if unchecked else None)
        return ExternalStats(*(getattr(raw, name) for name in ExternalStats._fields))


class _Unchecked:
    """The files of an output that the library has written with `compare`, before the ranks have agreed on it.

    The library does not know that a comparator raised an exception, and takes its answers for right. Before the agreement
    its output must not replace another file, which may be the source.
    """

    def __init__(self, output: bytes, parts: int, sources: List[bytes], is_synced: bool) -> None:
        self._has_parts = parts > 0
        #: From this state of an earlier sort a later call would take the output for that of that sort.
        self._state = output + b".ftsort"
        ends = [b".%05d" % part for part in range(parts)] or [b""]
        #: The name of each file before and after the agreement.
        self._names = [(output + _UNCHECKED + end, output + end) for end in ends]
        # After a loss of power there must be the source or the whole output.
        replaced = {_place(name) for _, name in self._names}
        places = {_place(path) for source in sources for path in (source, os.path.realpath(source))}
        self.is_synced = is_synced or not replaced.isdisjoint(places)

    def check(self, sources: List[bytes]) -> None:
        """Raises ArgumentError for an output that is no file, and for sources that would be replaced too early."""
        for _, name in self._names:
            with contextlib.suppress(OSError):  # It does not exist, or the library reports the reason.
                if not stat.S_ISREG(os.stat(name).st_mode):
                    raise ArgumentError(f"output has the file {os.fsdecode(name)}, which is no regular file: name another"
                                        " file")
        # The source may be an output that is one file. Several files are not replaced all at once.
        kept = {_place(name) for pair in self._names for name in pair[:2 if self._has_parts else 1]}
        kept.add(_place(self._state))
        for source in sources:
            if not kept.isdisjoint((_place(source), _place(os.path.realpath(source)))):
                raise ArgumentError(f"the source {os.fsdecode(source)} has the name of a file that the sort writes or"
                                    " removes: rename the source, or name another output")

    def commit(self) -> None:
        """Gives the files their names, unless another rank has done so."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._state)
        for unchecked, name in self._names:
            try:
                os.replace(unchecked, name)
            except FileNotFoundError:
                if not os.path.exists(name):
                    raise
        if self.is_synced:
            sync_directory(self._names[0][1])

    def discard(self) -> None:
        """Removes the files, unless another rank has done so."""
        for unchecked, _ in self._names:
            with contextlib.suppress(OSError):  # The error of the function is the one to report.
                os.remove(unchecked)


def _place(path: bytes) -> Tuple[bytes, bytes]:
    """Returns the folder and the name of a path, which are the same for all paths without a link at the end."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.realpath(folder), name


def sync_directory(path: Union[str, bytes]) -> None:
    """Makes the name of a renamed file permanent, where the file system allows it."""
    # Some network file systems refuse to synchronise directories, and a directory may be writable but not readable.
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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

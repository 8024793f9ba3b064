"""Files of records: NumPy `.npy` and raw binary files, read and written in parallel by row ranges.

A `Source` describes a file that is read: the type and the number of its rows. The command plans a source once, sends
it to the ranks as JSON, and each rank reads its own row ranges. CSV and Parquet are in `tables.py`. This module uses
neither MPI nor the ftsort library.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import stat
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np

from ftsort._external import sync_directory

FORMATS = ("npy", "raw", "csv", "parquet")
EXTENSIONS = {".npy": "npy", ".bin": "raw", ".raw": "raw", ".dat": "raw",
              ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet"}
TRANSFER = 1 << 23  # bytes of one read or write, between two reports of progress
CHUNK = 1 << 18     # bytes of one step of a check, which should fit into a cache

Progress = Callable[[int], None]


class FileError(Exception):
    """A file cannot be read or written as the user asked. The text names the file and the remedy."""


class UsageError(FileError):
    """An option does not fit the file or the other options. The text begins with the option."""


def reason(error: OSError) -> str:
    """Returns the text of an error, in one line. Those of pyarrow have no `strerror`, and can have several lines."""
    return " ".join((error.strerror or str(error)).split())


def ignore(_: int) -> None:
    """A progress callback that does nothing."""


def format_of(path: str, given: Optional[str], default: Optional[str] = None) -> str:
    """Returns the format of a file, by `given` or by its extension."""
    if given:
        return given
    extension = os.path.splitext(path)[1].lower()
    found = EXTENSIONS.get(extension, default)
    if found is None:
        raise UsageError(f"--format is missing: {path} has the extension {extension!r}, which names no format: use one "
                         f"of {', '.join(FORMATS)}")
    return found


# ---- types of rows --------------------------------------------------------------------------------------------


def dtype_to_json(dtype: np.dtype) -> Any:
    """Returns a description of a type that JSON can hold."""
    return np.lib.format.dtype_to_descr(dtype)


def dtype_from_json(description: Any) -> np.dtype:
    """Returns the type of a description by `dtype_to_json`."""

    def restore(entry: Any) -> Any:
        if isinstance(entry, str):
            return entry
        fields = []
        for name, kind, *shape in entry:
            title = tuple(name) if isinstance(name, list) else name
            fields.append((title, restore(kind), *(tuple(part) for part in shape)))
        return fields

    return np.lib.format.descr_to_dtype(restore(description))


def parse_dtype(text: str) -> np.dtype:
    """Returns the type of `--dtype`: a NumPy type such as `f8`, or a list of fields such as `id:i8,name:S12`."""
    try:
        if ":" in text:
            fields = [tuple(part.strip() for part in field.rsplit(":", 1)) for field in text.split(",")]
            dtype = np.dtype(fields)  # type: ignore[arg-type]
        else:
            dtype = np.dtype(text)
    except (TypeError, ValueError, SyntaxError) as error:
        raise UsageError(f"--dtype {text}: not a NumPy type ({error}): use for example f8, or id:i8,name:S12") from None
    check_dtype(dtype, f"--dtype {text}")
    return dtype


def check_dtype(dtype: np.dtype, origin: str) -> None:
    """Refuses types whose bytes cannot be moved to another process, and rows without bytes."""
    if dtype.hasobject:
        raise FileError(f"{origin}: the type {dtype} holds Python objects, which cannot be sorted: use types of fixed "
                        "width")
    if dtype.itemsize == 0:
        raise FileError(f"{origin}: the type {dtype} has 0 bytes in a row: name a width, for example S12")


def native(dtype: np.dtype) -> np.dtype:
    """Returns the type in the byte order of this machine."""
    return dtype.newbyteorder("=")


def describe(dtype: np.dtype) -> str:
    """Returns a short text of a type: `float64`, or `id:i8, name:S12`."""
    if dtype.names is None:
        return str(dtype)
    return ", ".join(f"{name}:{dtype[name].str.lstrip('<>|=')}" for name in dtype.names)


def unify_nan(rows: np.ndarray) -> None:
    """Gives every NaN of the fields the bits of `np.nan`. Its sign and its payload would decide the order."""
    for values in [rows[name] for name in rows.dtype.names] if rows.dtype.names else [rows]:
        if values.dtype.kind == "f":
            values[np.isnan(values)] = np.nan


# ---- sources --------------------------------------------------------------------------------------------------


def fingerprint(path: str) -> List[int]:
    """Returns numbers that change if a file is replaced or written to."""
    status = os.stat(path)
    return [status.st_ino, status.st_size, status.st_mtime_ns]


class Source:
    """A file of rows. `dtype` is in native byte order, and rows are converted to it when they are read."""

    format = "raw"

    def __init__(self, path: str, dtype: np.dtype, rows: int, mark: List[int]) -> None:
        self.path, self.dtype, self.rows, self.mark = path, dtype, rows, mark

    @property
    def bytes(self) -> int:
        """The number of bytes of all rows in memory."""
        return self.rows * self.dtype.itemsize

    def check_unchanged(self) -> None:
        """Refuses a file that was written to or replaced since it was planned."""
        try:
            same = fingerprint(self.path) == self.mark
        except OSError:
            same = False
        if not same:
            raise FileError(f"{self.path} changed while it was read: run the command again when it is complete")

    def share(self, index: int, of: int) -> Tuple[int, int]:
        """Returns the rows of share `index` of `of` shares: the first one, and the one after the last."""
        return self.rows * index // of, self.rows * (index + 1) // of

    def read(self, start: int, stop: int, progress: Progress = ignore) -> np.ndarray:
        """Returns the rows from `start` to `stop`, in memory of their own."""
        raise NotImplementedError

    def chunks(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Yields the rows from `start` to `stop` in pieces that are small enough for memory."""
        step = max(1, CHUNK // self.dtype.itemsize)
        for first in range(start, stop, step):
            yield self.read(first, min(stop, first + step))

    def to_json(self) -> Dict[str, Any]:
        """Returns the plan of this file for the ranks."""
        raise NotImplementedError


class BinarySource(Source):
    """A `.npy` or raw file, which is read with positioned reads.

    Positioned reads instead of a memory map: if the file is cut while it is read, a read returns fewer bytes and the
    rank reports an error, while an access to a map ends the process by a signal. `one_nan`: every NaN is read as
    `np.nan`, as from a table.
    """

    def __init__(self, path: str, dtype: np.dtype, rows: int, mark: List[int], stored: np.dtype, offset: int,
                 name: str, one_nan: bool = False) -> None:
        super().__init__(path, dtype, rows, mark)
        self.stored, self.offset, self.format, self.one_nan = stored, offset, name, one_nan

    def read(self, start: int, stop: int, progress: Progress = ignore) -> np.ndarray:
        """Returns the rows from `start` to `stop`, in memory of their own."""
        rows = np.empty(stop - start, self.stored)
        view = rows.view(np.uint8).data.cast("B")
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            done, at = 0, self.offset + start * self.stored.itemsize
            while done < len(view):
                count = os.preadv(descriptor, [view[done:done + TRANSFER]], at + done)
                if count == 0:
                    raise FileError(f"{self.path} ended at byte {at + done}, before row {stop}: it changed while it "
                                    "was read")
                done += count
                progress(count)
        except OSError as error:
            error.filename = self.path  # The kernel names only files that it opens.
            raise
        finally:
            os.close(descriptor)
        if self.stored != self.dtype:
            # Padding between fields is not copied, so it has to be zero for the digests to be equal.
            stored, rows = rows, np.zeros(stop - start, self.dtype)
            rows[...] = stored
        if self.one_nan:
            unify_nan(rows)
        return rows

    def take(self, positions: np.ndarray) -> np.ndarray:
        """Returns the rows at any positions, for a check of an index."""
        stored = np.memmap(self.path, self.stored, "r", self.offset, (self.rows,))
        rows = np.zeros(len(positions), self.dtype)
        rows[...] = stored[positions]
        return rows

    def to_json(self) -> Dict[str, Any]:
        """Returns the plan of this file for the ranks."""
        return {"format": self.format, "path": self.path, "rows": self.rows, "mark": self.mark,
                "dtype": dtype_to_json(self.dtype), "stored": dtype_to_json(self.stored), "offset": self.offset,
                "one_nan": self.one_nan}


def open_binary(path: str, name: str, dtype: Optional[np.dtype]) -> BinarySource:
    """Plans a `.npy` file, or a raw file of `dtype`."""
    mark = fingerprint(path)
    if name == "npy":
        stored, rows, offset = read_npy_header(path)
        if dtype is not None and native(dtype) != native(stored):
            raise UsageError(f"--dtype {describe(dtype)}: {path} holds {describe(stored)}: leave --dtype out")
        available = mark[1] - offset
        if available < rows * stored.itemsize:
            raise FileError(f"{path} should hold {rows} rows of {stored.itemsize} bytes, but it ends after "
                            f"{max(0, available)} bytes of them: it is cut")
    else:
        if dtype is None:
            raise UsageError(f"--dtype is missing: {path} is a raw file, so name the type of its rows, for example f8")
        stored, offset = dtype, 0
        rows, rest = divmod(mark[1], stored.itemsize)
        if rest:
            raise UsageError(f"--dtype {describe(stored)}: {path} has {mark[1]} bytes, which is not a multiple of the "
                             f"{stored.itemsize} bytes of a row of this type")
    check_dtype(stored, path)
    return BinarySource(path, native(stored), rows, mark, stored, offset, name)


def read_npy_header(path: str) -> Tuple[np.dtype, int, int]:
    """Returns the type, the number of rows and the position of the first row of a `.npy` file."""
    with open(path, "rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            width = 2 if version == (1, 0) else 4
            length = int.from_bytes(file.read(width), "little")
            text = file.read(length).decode("utf-8" if version == (3, 0) else "latin-1")
            header = ast.literal_eval(text)
            dtype = np.lib.format.descr_to_dtype(header["descr"])
            shape = header["shape"]
            if not isinstance(shape, tuple) or not all(isinstance(side, int) and side >= 0 for side in shape):
                raise ValueError(f"its shape is {shape!r}")
        except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
            raise FileError(f"{path} is not a .npy file ({error}): name its format with --format") from None
        if len(shape) != 1:
            raise FileError(f"{path} has {len(shape)} dimensions, {shape}; the command takes arrays with one "
                            "dimension: use a structured type for rows with several columns")
        return dtype, int(shape[0]), file.tell()


def open_source(path: str, name: Optional[str] = None, dtype: Optional[str] = None,
                delimiter: Optional[str] = None) -> Source:
    """Plans a file for reading. `name` is its format; without it the extension decides."""
    try:
        # Before it is opened, because opening a pipe waits for its other end.
        if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            raise FileError(f"{path} is not a regular file, which parallel reads need: write it into a file first")
        with open(path, "rb"):
            pass
        name = format_of(path, name)
        if name in ("npy", "raw"):
            return open_binary(path, name, parse_dtype(dtype) if dtype else None)
        from . import tables
        return tables.open_table(path, name, dtype, delimiter)
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None


def source_from_json(plan: Dict[str, Any]) -> Source:
    """Returns the source of a plan by `Source.to_json`."""
    dtype = dtype_from_json(plan["dtype"])
    if plan["format"] in ("npy", "raw"):
        return BinarySource(plan["path"], dtype, plan["rows"], plan["mark"], dtype_from_json(plan["stored"]),
                            plan["offset"], plan["format"], plan["one_nan"])
    from . import tables
    return tables.table_from_json(plan, dtype)


# ---- outputs --------------------------------------------------------------------------------------------------


def npy_header(dtype: np.dtype, rows: int, size: int = 0) -> bytes:
    """Returns the header of a `.npy` file; with `size` it is filled up to that many bytes.

    The ranks write behind the header before the number of rows is final, so its size must not depend on it.
    """
    members = {"descr": dtype_to_json(dtype), "fortran_order": False, "shape": (rows,)}
    try:
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, members)
        if len(buffer.getvalue()) == size or not size:
            return buffer.getvalue()  # NumPy leaves room for the digits of more rows.
    except (ValueError, UnicodeError):
        pass  # A long header, or names of fields that need version 3.
    text = repr(members)
    body, version, width = text.encode("utf-8"), b"\x03\x00", 4
    if text.isascii() and len(text) < 60000:
        version, width = b"\x01\x00", 2
    prefix = b"\x93NUMPY" + version
    total = size or -(-(len(prefix) + width + len(body) + 1 + 20) // 64) * 64  # 20: for the digits of more rows
    length = total - len(prefix) - width
    return prefix + length.to_bytes(width, "little") + body.ljust(length - 1) + b"\n"


def write_rows(descriptor: int, rows: np.ndarray, position: int, progress: Progress = ignore) -> None:
    """Writes rows at a position of a file, completely."""
    view = np.ascontiguousarray(rows).view(np.uint8).data.cast("B")
    done = 0
    while done < len(view):
        count = os.pwrite(descriptor, view[done:done + TRANSFER], position + done)
        done += count
        progress(count)


def remove(path: str) -> None:
    """Removes a file that may be absent."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def create_private(path: str) -> None:
    """Creates an empty file that only this user can read and write."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def replace(ready: str, path: str) -> None:
    """Gives a private file its final name, with the permissions of the file that it replaces or of a new file."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode) & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    with contextlib.suppress(PermissionError):  # Some file systems give all files the same permissions.
        os.chmod(ready, mode)
    os.replace(ready, path)
    sync_directory(path)

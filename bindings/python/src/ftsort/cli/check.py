"""Checks that do not rely on ftsort: digests of multisets of rows, and the order of rows.

The command compares the input with the output by these functions before an output file appears. They read the files
again, so they also find errors of the file system. They use NumPy only.
"""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .files import FileError, Progress, Source, UsageError, describe, ignore

MASK = (1 << 64) - 1
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


class Key(NamedTuple):
    """A part of the sort key: a field (None: the whole row, which is a plain value) and its direction."""

    field: Optional[str]
    descending: bool


def parse_keys(words: Sequence[str], descending: bool, dtype: np.dtype, origin: str) -> List[Key]:
    """Returns the parts of the key from the words of `--key`, as in `magnitude` or `name:desc`.

    Without words the key is the whole row: a plain value, or all fields in their order.
    """
    if dtype.names is None:
        if words:
            raise UsageError(f"--key {words[0]}: {origin} holds plain values ({describe(dtype)}) without fields: leave "
                            "--key out")
        keys = [Key(None, descending)]
    else:
        keys = [_parse_key(word, descending, dtype, origin) for word in words or dtype.names]
    for key in keys:
        _check_comparable(dtype if key.field is None else dtype[key.field], key, origin)
    return keys


def _parse_key(word: str, descending: bool, dtype: np.dtype, origin: str) -> Key:
    names = dtype.names or ()
    if word in names:
        return Key(word, descending)
    field, _, direction = word.rpartition(":")
    if field in names and direction in ("asc", "desc"):
        return Key(field, direction == "desc")
    if field in names:
        raise UsageError(f"--key {word}: the direction {direction!r} is not asc or desc")
    raise UsageError(f"--key {word}: {origin} has no field of this name; its fields are {', '.join(names)}")


def _check_comparable(dtype: np.dtype, key: Key, origin: str) -> None:
    name = "its values" if key.field is None else f"the field {key.field}"
    if dtype.subdtype is not None or dtype.names is not None or dtype.kind not in "biufSUMmV" or \
            (dtype.kind == "f" and dtype.itemsize > 8):
        raise FileError(f"{origin}: {name} of type {describe(dtype)} cannot be a key: use an integer, a float, a text "
                        "or a time")


# ---- digests --------------------------------------------------------------------------------------------------


def _packed(dtype: np.dtype) -> np.dtype:
    """Returns a type with the same fields and no padding."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_packed(base), shape))
    if dtype.names is None:
        return dtype
    return np.dtype([(name, _packed(dtype[name])) for name in dtype.names])


def digest(rows: np.ndarray, key: int) -> int:
    """Returns the digest of a multiset of rows: the sum of a hash of each row, modulo 2^64.

    The digest of two parts together is the sum of their digests. Padding does not count: NumPy does not copy it.
    """
    packed = _packed(rows.dtype)
    if packed.itemsize < rows.dtype.itemsize:
        rows = rows.astype(packed)
    size = rows.dtype.itemsize
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), size)
    if size % 8:
        padded = np.zeros((len(rows), -(-size // 8) * 8), np.uint8)
        padded[:, :size] = raw
        raw = padded
    words = raw.view(np.uint64)
    total = np.full(len(rows), np.uint64(key & MASK))
    with np.errstate(over="ignore"):
        for column in range(words.shape[1]):
            total ^= words[:, column]
            total *= _ODD
            total ^= total >> _HALF
        total *= _MIX
        total ^= total >> _HALF
        total *= _ODD
        return int(np.sum(total, dtype=np.uint64))


def digest_of(source: Source, start: int, stop: int, key: int, progress: Progress = ignore) -> int:
    """Returns the digest of a range of rows of a file."""
    total = 0
    for rows in source.chunks(start, stop):
        total += digest(rows, key)
        progress(rows.nbytes)
    return total & MASK


# ---- order ----------------------------------------------------------------------------------------------------


def _comparable(values: np.ndarray) -> np.ndarray:
    """Returns values whose `<` is the order of ftsort."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f":
        # The total order of IEEE 754: -NaN, -infinity, ..., -0.0, +0.0, ..., +infinity, +NaN.
        signed = np.ascontiguousarray(values).view(f"i{size}")
        return np.where(signed < 0, ~signed ^ np.iinfo(signed.dtype).min, signed)
    if kind in "Mm":
        return np.ascontiguousarray(values).view("i8")
    if kind == "U" and size:
        return _until_zero(values)
    if kind == "V":
        return np.ascontiguousarray(values).view(f"S{size}")
    return values


def _until_zero(values: np.ndarray) -> np.ndarray:
    """Returns texts of a type `U` without the code points behind the first 0, which the library does not compare."""
    points = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), values.dtype.itemsize // 4)
    if not ((points[:, :-1] == 0) & (points[:, 1:] != 0)).any():
        return values
    return np.where(np.logical_or.accumulate(points == 0, axis=1), np.uint32(0), points).view(values.dtype)[:, 0]


def columns(rows: np.ndarray, keys: Sequence[Key]) -> List[Tuple[np.ndarray, bool]]:
    """Returns the columns of the key, in an order that NumPy compares, each with its direction."""
    return [(_comparable(rows if key.field is None else rows[key.field]), key.descending) for key in keys]


def first_violation(rows: np.ndarray, keys: Sequence[Key], strict: bool = False) -> Optional[int]:
    """Returns the first row that belongs before the row before it, or None. `strict`: equal keys are violations."""
    if len(rows) < 2:
        return None
    equal = np.ones(len(rows) - 1, bool)
    wrong = np.zeros(len(rows) - 1, bool)
    for column, descending in columns(rows, keys):
        before, after = column[:-1], column[1:]
        wrong |= equal & ((before < after) if descending else (after < before))
        equal &= before == after
        if not strict and not equal.any():
            break
    if strict:
        wrong |= equal
    found = np.flatnonzero(wrong)
    return int(found[0]) + 1 if len(found) else None


def compare_with(rows: np.ndarray, row: np.ndarray, keys: Sequence[Key]) -> Tuple[np.ndarray, np.ndarray]:
    """Returns which of `rows` belong before `row`, an array of one row, and which have the same key."""
    before = np.zeros(len(rows), bool)
    equal = np.ones(len(rows), bool)
    for (column, descending), (other, _) in zip(columns(rows, keys), columns(row, keys)):
        before |= equal & ((column > other) if descending else (column < other))
        equal &= column == other
    return before, equal


def check_order(source: Source, start: int, stop: int, keys: Sequence[Key], strict: bool = False,
                key: Optional[int] = None, progress: Progress = ignore) -> Tuple[Optional[int], int]:
    """Returns the first row of a range that is out of order, or None, and the digest of the range if `key` is given.

    The row before the range counts too, so that ranges that follow each other cover every pair of neighbours.
    """
    total = 0
    last = source.read(start - 1, start) if start > 0 and stop > start else None
    violation: Optional[int] = None
    at = start
    for rows in source.chunks(start, stop):
        if key is not None:
            total += digest(rows, key)
        if violation is None:
            joined = rows if last is None else np.concatenate([last, rows])
            found = first_violation(joined, keys, strict)
            if found is not None:
                violation = at + found - (0 if last is None else 1)
        last = rows[-1:]
        at += len(rows)
        progress(rows.nbytes)
    return violation, total & MASK


def show(value: object) -> object:
    """Returns a NumPy value as a value that JSON can hold. Floats that JSON lacks are texts."""
    if isinstance(value, np.void) and value.dtype.names is not None:
        return {name: show(value[name]) for name in value.dtype.names}
    if isinstance(value, np.ndarray):
        return [show(item) for item in value]
    if isinstance(value, np.void):
        return value.tobytes().hex()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.floating):
        number = float(str(value))  # The shortest digits of its own type.
        return number if np.isfinite(number) else str(value)  # A longdouble can be beyond the range of a double.
    if isinstance(value, (np.bool_, np.integer, np.str_)):
        return value.item()
    return str(value)


def rows_to_json(rows: Iterable[object]) -> List[object]:
    """Returns rows as values that JSON can hold."""
    return [show(row) for row in rows]

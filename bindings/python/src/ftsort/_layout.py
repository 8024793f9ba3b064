"""Describes NumPy types as records of the C library."""

from __future__ import annotations

import copy
import ctypes
import hashlib
from typing import Any, Callable, List, NamedTuple, Optional, Protocol, Sequence, Union

import numpy as np

from ftsort import _native
from ftsort._errors import ArgumentError

Key = Union[None, str, Sequence[str]]
Descending = Union[bool, Sequence[bool]]
Compare = Callable[[Any, Any], int]

_NUMBERS = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "i8": 7, "u8": 8, "f4": 9, "f8": 10,
            "b1": 2, "M8": 7, "m8": 7, "f2": 4}
_BYTES, _COMPARE, _TEXT32, _LIST = 11, 12, 15, 16
_MOST_PARTS = 64


class Part(NamedTuple):
    """One key in a record."""

    offset: int
    size: int
    key: int
    descending: bool
    is_half: bool

    @property
    def bytes(self) -> int:
        """The size as the library takes it: 0 for numbers, whose kind says it."""
        return self.size if self.key in (_BYTES, _TEXT32) else 0


def as_array(given: Any, name: str = "the array") -> np.ndarray:
    """Returns an argument as an array. Raises ArgumentError for a mask, which the library would lose."""
    if isinstance(given, np.ma.MaskedArray):
        raise ArgumentError(f"{name} is a masked array, whose mask cannot be sorted: pass compressed() or filled()")
    return np.asarray(given)


def contiguous(array: np.ndarray) -> np.ndarray:
    """Returns the elements one after the other, and copied only if necessary.

    A copy has the padding of structured elements too: the library compares and digests whole elements.
    """
    raw = np.dtype((np.void, array.dtype.itemsize))
    return np.ascontiguousarray(array.view(raw)).view(array.dtype) if array.dtype.names else np.ascontiguousarray(array)


def listed(given: Any, name: str, expected: str) -> List[Any]:
    """Returns the elements of an argument. Raises ArgumentError for an argument that has none."""
    try:
        return list(given)
    except TypeError:
        raise ArgumentError(f"{name} is {given!r}, expected {expected}") from None


def half_to_key(bits: np.ndarray) -> np.ndarray:
    """Maps the bits of float16 numbers to uint16 numbers in the same order, the total order of IEEE 754."""
    return np.where(bits & 0x8000, bits ^ 0xFFFF, bits ^ 0x8000).astype(np.uint16)


def key_to_half(keys: np.ndarray) -> np.ndarray:
    """Reverses `half_to_key`."""
    return np.where(keys & 0x8000, keys ^ 0x8000, keys ^ 0xFFFF).astype(np.uint16)


def _mapped(array: np.ndarray, offsets: Sequence[int], mapping: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Returns a copy of elements in which the float16 numbers at these offsets are mapped."""
    raw = contiguous(array).view(np.uint8).reshape(len(array), array.dtype.itemsize).copy()
    for offset in offsets:
        bits = np.ascontiguousarray(raw[:, offset:offset + 2]).view(np.uint16)
        raw[:, offset:offset + 2] = mapping(bits).view(np.uint8)
    return raw.reshape(-1).view(array.dtype)


def _is_extension(dtype: np.dtype) -> bool:
    """Returns whether a type comes from another package, as bfloat16 of ml_dtypes.

    Its kind says nothing about its order: that of bfloat16 is V, as of plain bytes.
    """
    return dtype.isbuiltin == 2 or dtype.kind == "V" and not issubclass(dtype.type, np.void)


def _description(dtype: np.dtype) -> Any:
    """Describes a type by all that its elements mean, in the same way in every process."""
    if dtype.subdtype is not None:
        return _description(dtype.base), dtype.shape
    if dtype.fields is None:
        # NumPy describes extension types by their kind and size alone.
        return (dtype.str, str(dtype.type)) if _is_extension(dtype) else dtype.str
    return [(name, dtype.fields[name][1], _description(dtype.fields[name][0])) for name in dtype.names or ()]


def type_id(*types: np.dtype) -> int:
    """Returns a hash of types, which is not 0: ranks that pass others get an error."""
    descriptions = repr([_description(dtype) for dtype in types]).encode()
    return int.from_bytes(hashlib.blake2b(descriptions, digest_size=8).digest(), "little") or 1


def check_type(dtype: np.dtype, name: str) -> None:
    """Raises ArgumentError for elements that cannot move to another process."""
    if dtype.hasobject:
        raise ArgumentError(f"{name} has the type {dtype}, which holds Python objects: pass an array, or a list of numbers or"
                            " texts, of a type of fixed size")
    if dtype.itemsize == 0:
        raise ArgumentError(f"{name} has the type {dtype}, whose elements have 0 bytes")


def key_kind(dtype: np.dtype, name: str) -> int:
    """Returns the kind of key of a type, one of `ftsort_key`."""
    if not dtype.isnative:
        raise ArgumentError(f"{name} has the type {dtype}, which is not of this machine's byte order: convert it with"
                            " array.astype(array.dtype.newbyteorder('='))")
    if dtype.subdtype is None and dtype.names is None and not _is_extension(dtype):
        if dtype.kind in "SV":
            return _BYTES
        if dtype.kind == "U":
            return _TEXT32
        code = dtype.kind + str(dtype.itemsize)
        if code in _NUMBERS:
            return _NUMBERS[code]
    raise ArgumentError(f"{name} has the type {dtype}, which is not a key: keys are integers, floats of 16 to 64 bits,"
                        " bool, datetime64, timedelta64, S, U and V")


def _parts(dtype: np.dtype, key: Key, descending: Descending) -> List[Part]:
    if dtype.names is None:
        if key is not None:
            raise ArgumentError(f"key is {key!r}, but the elements have the type {dtype}, which has no fields")
        names: List[Optional[str]] = [None]
    elif key is None:
        names = list(dtype.names)
    else:
        names = [key] if isinstance(key, str) else listed(key, "key", "a field or a sequence of fields")
    if isinstance(descending, (bool, np.bool_)):
        orders = [bool(descending)] * len(names)
    else:
        orders = [bool(one) for one in listed(descending, "descending", "a bool, or a sequence of bool")]
    if len(orders) != len(names):
        raise ArgumentError(f"descending has {len(orders)} elements, but there are {len(names)} keys")
    if not 1 <= len(names) <= _MOST_PARTS:
        raise ArgumentError(f"key has {len(names)} fields: 1 to {_MOST_PARTS} are possible")
    parts = []
    for name, order in zip(names, orders):
        if name is None:
            field, offset, shown = dtype, 0, "the array"
        elif dtype.fields is not None and name in (dtype.names or ()):
            field, offset = dtype.fields[name][:2]
            shown = f"field {name!r}"
        else:
            raise ArgumentError(f"key is {name!r}, but the fields are {', '.join(dtype.names or ())}")
        kind = key_kind(field, shown)
        is_half = field.kind == "f" and field.itemsize == 2
        parts.append(Part(offset, field.itemsize, kind, order, is_half))
    return parts


class Layout:
    """The type of the elements and their order, as a record of the C library.

    Attributes
    ----------
    dtype : numpy.dtype
        The type of the elements.
    record : _native.Record
        The record; lives as long as the layout, with all that it points to.
    has_compare : bool
        Whether a function of the caller decides the order.
    """

    def __init__(self, library: _native.Library, dtype: np.dtype, key: Key = None, descending: Descending = False,
                 stable: bool = False, compare: Optional[Compare] = None,
                 failed: Callable[[BaseException], None] = lambda error: None) -> None:
        check_type(dtype, "the array")
        self.dtype = dtype
        self.record = _native.Record(struct_size=ctypes.sizeof(_native.Record), record_bytes=dtype.itemsize,
                                     stable=int(stable), type_id=type_id(dtype))
        #: The offsets of the float16 keys, which `encode` maps.
        self._halves: List[int] = []
        self.has_compare = compare is not None
        self._compare = None if compare is None else (compare, failed)
        self._origin: Optional[Layout] = None
        #: The keys, without `compare`.
        self._parts: List[Part] = []
        if compare is not None:
            if key is not None or not isinstance(descending, (bool, np.bool_)):
                raise ArgumentError("compare decides the order alone: pass no key, and one bool for descending")
            if not callable(compare):
                raise ArgumentError(f"compare is {compare!r}, expected a function of two elements")
            self.record.key, self.record.descending = _COMPARE, int(descending)
            self.record.compare = self._comparator(compare, failed)
            return
        parts = self._parts = _parts(dtype, key, descending)
        # A field can be named twice, but is mapped once.
        self._halves = sorted({part.offset for part in parts if part.is_half})
        self._check_parts(parts)
        if len(parts) == 1:
            part = parts[0]
            self.record.key, self.record.key_offset, self.record.key_bytes = part.key, part.offset, part.bytes
            self.record.descending = int(part.descending)
        else:
            listed = [_native.KeyPart(part.offset, part.bytes, part.key, int(part.descending)) for part in parts]
            self._listed = (_native.KeyPart * len(listed))(*listed)
            self.record.key, self.record.parts, self.record.part_count = _LIST, self._listed, len(listed)

    @property
    def has_half_keys(self) -> bool:
        """Whether `encode` maps keys, so that the library cannot read elements as they are."""
        return bool(self._halves)

    def check_read(self, offset: int, size: int, is_half: bool = False) -> None:
        """Raises ArgumentError if a field overlaps a float16 key, which `encode` maps, and is another field."""
        for half in self._halves:
            is_other = offset != half or not is_half
            if offset < half + 2 and half < offset + size and is_other:
                raise ArgumentError(f"the float16 key at byte {half} overlaps another field that is used, at byte {offset}:"
                                    " copy it to a field of its own")

    def _check_parts(self, parts: List[Part]) -> None:
        for part in parts:
            self.check_read(part.offset, part.size, part.is_half)

    def with_order_of(self, other: "Layout") -> "Layout":
        """Returns the layout of elements that `encode` of this layout has encoded, in the order of another one."""
        if not set(other._halves) <= set(self._halves):
            raise ArgumentError("a float16 field can be a key only if it was a key when the records were protected")
        self._check_parts(other._parts)
        combined = copy.copy(other)
        combined._halves = self._halves
        if other._compare is not None:
            # Its function receives encoded elements too.
            combined.record = _native.Record.from_buffer_copy(other.record)
            combined.record.compare = combined._comparator(*other._compare)
        return combined

    def stable(self) -> "Layout":
        """Returns this layout with the demand that elements with equal keys keep their order."""
        stable = copy.copy(self)
        stable.record = _native.Record.from_buffer_copy(self.record)
        stable.record.stable = 1
        stable._origin = self  # A copy of a record does not keep its comparator.
        return stable

    def _comparator(self, compare: Compare, failed: Callable[[BaseException], None]) -> Any:
        size, dtype, halves = self.dtype.itemsize, self.dtype, self._halves

        def element(address: int) -> Any:
            array = np.frombuffer(ctypes.string_at(address, size), dtype=dtype)
            return (_mapped(array, halves, key_to_half) if halves else array)[0]

        def call(_user: Any, left: int, right: int) -> int:
            try:
                order = compare(element(left), element(right))
                return int(order > 0) - int(order < 0)
            except BaseException as error:  # An exception must not pass through the frames of the library.
                failed(error)
                return 0

        return _native.COMPARE_FN(call)

    def encode(self, array: Any) -> np.ndarray:
        """Returns the elements in the form that the library sorts: contiguous, and copied only if necessary."""
        array = as_array(array)
        if array.ndim != 1:
            raise ArgumentError(f"the array has {array.ndim} dimensions: pass one with 1")
        if array.dtype != self.dtype:
            raise ArgumentError(f"the array has the type {array.dtype}, expected {self.dtype}")
        return _mapped(array, self._halves, half_to_key) if self._halves else contiguous(array)

    def decode(self, array: np.ndarray) -> np.ndarray:
        """Returns elements in the form of the caller: the array itself unless a key is a float16."""
        if not self._halves:
            return array
        decoded = _mapped(array, self._halves, key_to_half)
        decoded.flags.writeable = False
        return decoded


class Encoder(Protocol):
    """Brings an array that `reload` returns into the form that the library sorts."""

    dtype: np.dtype
    has_compare: bool

    def encode(self, array: Any) -> np.ndarray: ...


class Rows:
    """The type of the values beside the keys of `Group.sort_by_key`: one row of an array for each key."""

    has_compare = False

    def __init__(self, values: np.ndarray) -> None:
        check_type(values.dtype, "values")
        if values.ndim == 0:
            raise ArgumentError("values is a single number, expected one value for each key")
        self.dtype = np.dtype((values.dtype, values.shape[1:]))
        if self.dtype.itemsize == 0:
            raise ArgumentError(f"values has the shape {values.shape}: a value has 0 bytes")

    def encode(self, array: Any) -> np.ndarray:
        """Returns the rows, contiguous."""
        array = as_array(array, "values")
        if (array.dtype, array.shape[1:]) != (self.dtype.base, self.dtype.shape):
            raise ArgumentError(f"values has the type {array.dtype} and the shape {array.shape}, expected rows of"
                                f" {self.dtype}")
        return contiguous(array)


class Input:
    """The elements of this rank beside their layout, kept in memory for the time of a call."""

    def __init__(self, layout: Layout, array: Any) -> None:
        self.layout = layout
        self.array = layout.encode(array)
        self.record = ctypes.byref(layout.record)
        self.count = len(self.array)
        self.pointer = self.array.ctypes.data if self.count else None

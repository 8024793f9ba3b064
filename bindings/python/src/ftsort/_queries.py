"""Calls that answer questions about the sorted order: positions, quantiles, distinct keys, groups."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_double, c_size_t, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ftsort import _native
from ftsort._calls import Calls
from ftsort._errors import ArgumentError
from ftsort._layout import Compare, Descending, Input, Key, Rows, as_array, key_kind, type_id
from ftsort._result import Column, Result

#: ("sum", "field"), or "count".
Aggregate = Union[str, Tuple[str, Any]]

_COUNT, _SUM, _MIN, _MAX = 1, 2, 3, 4
_AGGREGATIONS = {"count": _COUNT, "sum": _SUM, "min": _MIN, "max": _MAX}
_POSITION = np.dtype(np.uint64)


class Queries(Calls):
    """The methods of `Group` that need more than a sort. See `Group` for the conventions."""

    if TYPE_CHECKING:
        def _result_call(self, function: Callable[..., int], *arguments: Any, columns: Sequence[Column],
                         layouts: Sequence[Any], keep: Any) -> Result: ...

        def _input(self, array: Any, key: Key = None, descending: Descending = False, stable: bool = False,
                   compare: Optional[Compare] = None) -> Input: ...

    def _of_elements(self, function: Any, names: Sequence[str], array: Any, key: Key, descending: Descending,
                     stable: bool = False, compare: Optional[Compare] = None) -> Result:
        """Makes a call with the elements of this rank alone. Columns other than "records" have numbers of the library."""
        refused = c_void_p()
        with self._refusing(lambda: function(self._pointer(), None, None, 0, byref(refused))):
            given = self._input(array, key, descending, stable, compare)
        columns = [Column.records(given.layout) if name == "records" else Column(name, _POSITION) for name in names]
        return self._result_call(function, given.record, given.pointer, given.count, keep=given,
                                 layouts=[given.layout], columns=columns)

    def sort_by_key(self, keys: Any, values: Any, descending: Descending = False, *, key: Key = None) -> Result:
        """Sorts keys and moves the value beside each key along. [collective]

        Parameters
        ----------
        keys : array_like, shape (n,)
            The keys of this rank, of any type that `Group.sort` accepts.
        values : array_like, shape (n, ...)
            The value of each key, of any type of fixed size.
        descending, key
            As for `Group.sort`.

        Returns
        -------
        Result
            With the columns "keys" and "values". Equal keys keep the order of ranks and positions, so the algorithm
            'bitonic_merge', which does not keep it, is refused.

        Examples
        --------
        >>> result = group.sort_by_key([3, 1, 2], [30.0, 10.0, 20.0])
        >>> result.columns["values"].tolist()
        [10.0, 20.0, 30.0]
        """
        function, refused = self._library.sort_by_key, c_void_p()
        with self._refusing(lambda: function(self._pointer(), None, None, None, 1, 0, byref(refused))):
            given = self._input(keys, key, descending, stable=True)
            rows = Rows(as_array(values, "values"))
            given.layout.record.type_id = type_id(given.layout.dtype, rows.dtype)
            moved = rows.encode(values)
            if len(moved) != given.count:
                raise ArgumentError(f"values has {len(moved)} elements, but there are {given.count} keys")
        pointer = moved.ctypes.data if given.count else None
        return self._result_call(
            function, given.record, given.pointer, pointer, rows.dtype.itemsize, given.count,
            keep=(given, moved), layouts=[given.layout, rows],
            columns=[Column("keys", given.layout.dtype, given.layout), Column("values", rows.dtype)])

    def argsort(self, array: Any, key: Key = None, descending: Descending = False) -> Result:
        """Returns the positions of the elements in sorted order. [collective]

        As ``numpy.argsort(kind="stable")``, but NaN, -0.0 and NaT have the places that `Group.sort` describes.

        Parameters
        ----------
        array, key, descending
            As for `Group.sort`.

        Returns
        -------
        Result
            With the column "positions" (uint64): the position of each element in the inputs of all ranks, rank by
            rank, in sorted order. Stable.

        Examples
        --------
        >>> group.argsort([30, 10, 20]).array.tolist()
        [1, 2, 0]
        """
        return self._of_elements(self._library.argsort, ["positions"], array, key, descending)

    def positions(self, array: Any, key: Key = None, descending: Descending = False) -> Result:
        """Returns the position of each element in the sorted order: the inverse of `argsort`. [collective]

        Other libraries call it *rank*, as ``scipy.stats.rankdata(method="ordinal")`` does, which counts from 1; here
        a rank is a process.

        Parameters
        ----------
        array, key, descending
            As for `Group.sort`.

        Returns
        -------
        Result
            With the column "positions" (uint64), one for each element in the order of the input. The block of a node
            belongs to the input of the rank of the same number.

        Examples
        --------
        >>> group.positions([30, 10, 20]).array.tolist()
        [2, 0, 1]
        """
        return self._of_elements(self._library.positions, ["positions"], array, key, descending)

    def select(self, array: Any, positions: Any, key: Key = None, descending: Descending = False) -> np.ndarray:
        """Returns the elements at given positions of the sorted order, without a whole sort. [collective]

        Parameters
        ----------
        array, key, descending
            As for `Group.sort`.
        positions : int or array_like of int, shape (m,)
            Positions in the sorted order of all ranks, from 0; the same on all ranks.

        Returns
        -------
        numpy.ndarray
            The elements, the same on all ranks, with shape ``(m,)``; for one position an element.

        Examples
        --------
        >>> group.select([30, 10, 20], [0, 2]).tolist()
        [10, 30]
        """
        function = self._library.select
        with self._refusing(lambda: function(self._pointer(), None, None, 0, None, 0, None)):
            wanted = as_array(positions, "positions")
            if wanted.dtype.kind not in "iu" and wanted.size > 0:
                raise ArgumentError(f"positions has the type {wanted.dtype}, expected integers")
            if wanted.ndim > 1 or (wanted.size > 0 and int(wanted.min()) < 0):
                raise ArgumentError("positions has a negative number or more than one dimension")
            numbers = np.ascontiguousarray(np.atleast_1d(wanted), dtype=np.uint64)
            given = self._input(array, key, descending)
            found = np.empty(len(numbers), given.layout.dtype)
        pointer = numbers.ctypes.data_as(ctypes.POINTER(c_uint64))
        return self._elements(function, given, pointer, found, wanted.ndim)

    def quantiles(self, array: Any, fractions: Any, key: Key = None, descending: Descending = False) -> np.ndarray:
        """Returns exact quantiles without a sort. [collective]

        As ``numpy.quantile(method="inverted_cdf")``, but NaN and NaT are elements as all others, with the places that
        `Group.sort` describes. NumPy returns NaN or NaT for every fraction if one element is NaN or NaT.

        Parameters
        ----------
        array, key, descending
            As for `Group.sort`.
        fractions : float or array_like of float, shape (m,)
            Numbers from 0 to 1, the same on all ranks.

        Returns
        -------
        numpy.ndarray
            Elements of the inputs, the same on all ranks, with shape ``(m,)``; for one fraction an element.

        Raises
        ------
        ArgumentError
            On all ranks also if no rank has an element.

        Examples
        --------
        >>> int(group.quantiles([30, 10, 20], 0.5))
        20
        """
        function = self._library.quantiles
        with self._refusing(lambda: function(self._pointer(), None, None, 0, None, 0, None)):
            wanted = as_array(fractions, "fractions").astype(np.float64, copy=False)
            if wanted.ndim > 1:
                raise ArgumentError("fractions has more than one dimension")
            numbers = np.ascontiguousarray(np.atleast_1d(wanted))
            given = self._input(array, key, descending)
            found = np.empty(len(numbers), given.layout.dtype)
        pointer = numbers.ctypes.data_as(ctypes.POINTER(c_double))
        return self._elements(function, given, pointer, found, wanted.ndim)

    def _elements(self, function: Any, given: Input, numbers: Any, found: np.ndarray, dimensions: int) -> np.ndarray:
        layout, count = given.layout, len(found)
        self._call(function, given.record, given.pointer, given.count, numbers, c_size_t(count),
                   found.ctypes.data if count else None, layouts=[layout], keep=(given, found))
        found = layout.decode(found)
        return found if dimensions else found[0]

    def top(self, array: Any, count: int, key: Key = None, descending: Descending = False) -> Result:
        """Returns the first elements of the sorted order, in order, without a whole sort. [collective]

        Parameters
        ----------
        array, key, descending
            As for `Group.sort`; ``descending=True`` returns the greatest elements.
        count : int
            The number of elements over all ranks, the same on all ranks; all elements if there are fewer.

        Returns
        -------
        Result
            The elements, divided over the ranks as the library decides.

        Examples
        --------
        >>> group.top([30, 10, 20], 2, descending=True).array.tolist()
        [30, 20]
        """
        function, refused = self._library.top, c_void_p()
        with self._refusing(lambda: function(self._pointer(), None, None, 0, 0, byref(refused))):
            if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 0 <= count < 2**64:
                raise ArgumentError(f"count is {count!r}, expected an integer of at least 0")
            given = self._input(array, key, descending)
        return self._result_call(function, given.record, given.pointer, given.count, int(count), keep=given,
                                 layouts=[given.layout], columns=[Column.records(given.layout)])

    def unique(self, array: Any, key: Key = None, descending: Descending = False) -> Result:
        """Returns the distinct keys in order. [collective]

        As ``numpy.unique(return_counts=True)``, but in the order that `Group.sort` describes, and keys are equal only if
        they are equal in that order: 0.0 and -0.0 are two keys, and so are NaN with different bits.

        Parameters
        ----------
        array, key, descending
            As for `Group.sort`.

        Returns
        -------
        Result
            With the columns "records", the first element of each key, and "counts" (uint64).

        Examples
        --------
        >>> result = group.unique([7, 5, 7])
        >>> result.array.tolist(), result.columns["counts"].tolist()
        ([5, 7], [1, 2])
        """
        return self._of_elements(self._library.unique, ["records", "counts"], array, key, descending)

    def group_by(self, array: Any, key: Key, aggregates: Mapping[str, Aggregate],
                 descending: Descending = False) -> Result:
        """Aggregates the elements of each key, in the order of keys. [collective]

        Keys are equal as in `unique`. "min" and "max" are the first and the last number in the order that `Group.sort`
        describes, whereas `numpy.min` and `numpy.max` return NaN or NaT if one element is NaN or NaT.

        Parameters
        ----------
        array, key, descending
            As for `Group.sort`.
        aggregates : mapping
            From the name of a column to "count", or to a pair of "sum", "min" or "max" and a field; the field is None
            for an array without fields.

        Returns
        -------
        Result
            With the column "records", the first element of each key, and one column for each aggregate: counts are
            uint64; sums are int64, uint64 (wrapping), float64 or timedelta64; "min" and "max" have the type of the
            field.

        Raises
        ------
        ArgumentError
            An argument is invalid, or a field of timedelta64 that is summed has NaT, which is stored as a number.

        Examples
        --------
        >>> import numpy as np
        >>> sales = np.array([(2, 1.5), (1, 4.0), (2, 2.5)], dtype=[('shop', 'i4'), ('price', 'f8')])
        >>> result = group.group_by(sales, 'shop', {'total': ('sum', 'price'), 'sales': 'count'})
        >>> result.array['shop'].tolist(), result.columns['total'].tolist(), result.columns['sales'].tolist()
        ([1, 2], [4.0, 4.0], [1, 2])
        """
        function, refused = self._library.group_by, c_void_p()
        with self._refusing(lambda: function(self._pointer(), None, None, 0, None, 0, byref(refused))):
            given = self._input(array, key, descending)
            if not isinstance(aggregates, Mapping):
                raise ArgumentError(f"aggregates is {aggregates!r}, expected a mapping from a name to an aggregate")
            described = [_aggregate(given, name, wanted) for name, wanted in aggregates.items()]
            passed = (_native.Aggregate * len(described))(*(raw for raw, _ in described))
            columns = [Column.records(given.layout), *(column for _, column in described)]
            if len({column.name for column in columns}) < len(columns):
                raise ArgumentError("aggregates has the name 'records', which is the name of the first column")
        return self._result_call(function, given.record, passed, len(passed), given.pointer, given.count, keep=given,
                                 layouts=[given.layout], columns=columns)


def _aggregate(given: Input, name: str, wanted: Aggregate) -> Tuple[_native.Aggregate, Column]:
    """Returns an aggregate of the library, and its column."""
    pair = (wanted, None) if isinstance(wanted, str) else wanted
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ArgumentError(f"aggregate {name!r} is {wanted!r}, expected 'count', or a pair as ('sum', field)")
    operation, field_name = pair
    if operation not in _AGGREGATIONS:
        raise ArgumentError(f"aggregate {name!r} is {operation!r}, expected one of {', '.join(_AGGREGATIONS)}")
    number = _AGGREGATIONS[operation]
    if number == _COUNT:
        return _native.Aggregate(number, 0, 0), Column(name, _POSITION)
    dtype = given.layout.dtype
    field, offset, values = dtype, 0, given.array
    if field_name is not None:
        if dtype.fields is None or field_name not in dtype.fields:
            raise ArgumentError(f"aggregate {name!r} has the field {field_name!r}, which the array lacks")
        field, offset = dtype.fields[field_name][:2]
        values = given.array[field_name]
    if field.names is not None:
        raise ArgumentError(f"aggregate {name!r} names no field: pass ({operation!r}, field), with one of"
                            f" {', '.join(field.names)}")
    kind = key_kind(field, f"aggregate {name!r}")
    if field.kind not in "iufbmM" or field.str[1:] == "f2" or (field.kind == "M" and number == _SUM):
        raise ArgumentError(f"aggregate {name!r} is the {operation} of {field}, which is not a number for it")
    if field.kind == "m" and number == _SUM and np.isnat(values).any():
        raise ArgumentError(f"aggregate {name!r} is the sum of {field}, but the elements have NaT, which has no sum:"
                            " replace it, or leave these elements out")
    given.layout.check_read(offset, field.itemsize)
    value = field
    if number == _SUM and field.kind != "m":
        value = np.dtype({"i": np.int64, "u": np.uint64, "b": np.uint64, "f": np.float64}[field.kind])
    return _native.Aggregate(number, kind, offset), Column(name, value)

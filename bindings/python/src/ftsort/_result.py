"""Results and protected inputs."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import byref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, \
    Sequence, Union, overload

import numpy as np

from ftsort import _native
from ftsort._errors import ArgumentError, StateError, integer
from ftsort._layout import Compare, Descending, Encoder, Input, Key, Layout

if TYPE_CHECKING:
    from ftsort._group import Group


class Column(NamedTuple):
    """The name and the type of a column of a result."""

    name: str
    dtype: np.dtype
    #: The layout of the records, which maps float16 keys back; None for numbers that the library computed.
    layout: Optional[Layout] = None

    @classmethod
    def records(cls, layout: Layout) -> "Column":
        """Returns the column of the sorted elements."""
        return cls("records", layout.dtype, layout)


class NotCopied:
    """An object that owns memory of the library, which a copy or a pickle of it would release twice."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: it owns memory of the library")


class _Memory:
    """Bytes of a result as NumPy sees them. Each array refers to it, and it keeps the result alive."""

    def __init__(self, handle: "_Handle", address: int, size: int) -> None:
        self._handle = handle
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, True), "version": 3}


class _Handle:
    """Owns a result or a protected input of the library, and releases it when nothing refers to the handle any more.

    The arrays of a result refer to it, and so does every call that uses it: `close` can come from a callback or from
    another thread during the call.
    """

    def __init__(self, group: "Group", free: Callable[..., None], pointer: int, *kept: Any) -> None:
        self.pointer = pointer
        self._release = weakref.finalize(self, _free, free, pointer, kept)
        # At the end of the program arrays may still be in use, and the system takes the memory back anyway. Files of
        # the store are removed.
        self._release.atexit = group._has_files
        group._owned.add(self)


class _Owner(NotCopied):
    """An object with a handle, until it is closed."""

    _name: str
    _handle: Optional[_Handle]

    def _opened(self) -> _Handle:
        """Returns the handle, to which the caller refers for as long as it uses the pointer."""
        handle = self._handle
        if handle is None:
            raise StateError(f"the {self._name} is closed")
        return handle


class Block:
    """The part of a result that belongs to one node.

    Attributes
    ----------
    node : int
        The node of the block.
    offset : int
        The position of its first element in the global order, in elements.
    columns : dict of str to numpy.ndarray
        The columns of the block by name. They share the memory of the result, which they keep alive, and are
        read-only. Elements with a float16 key are copies.
    """

    def __init__(self, node: int, offset: int, columns: Dict[str, np.ndarray]) -> None:
        self.node = node
        self.offset = offset
        self.columns = columns

    @property
    def array(self) -> np.ndarray:
        """The first column: the records of a sort."""
        return next(iter(self.columns.values()))

    def __len__(self) -> int:
        return len(self.array)

    def __repr__(self) -> str:
        return f"Block(node={self.node}, offset={self.offset}, count={len(self)})"


class Result(_Owner, Sequence[Block]):
    """The sorted blocks of this rank, in ascending order of node: a sequence of `Block`.

    A rank has one block for each node that it executes: its own, and those of failed ranks that it stands in for. If
    the number of ranks is no power of two, some ranks also have the block of a node without a rank, which can be empty.

    The result stays valid after its group is closed. Its memory and its redundancy are released by `close`, or when
    the result and its arrays are garbage; arrays that are still in use keep the memory.

    Examples
    --------
    >>> result = group.sort([3, 1, 2])
    >>> len(result), result.total, result.array.tolist()
    (1, 3, [1, 2, 3])
    """

    _name = "result"

    def __init__(self, group: "Group", pointer: int, columns: Sequence[Column],
                 layouts: Sequence[Encoder]) -> None:
        self._group = group
        self._library = group._library
        self._handle = _Handle(group, group._library.result_free, pointer)
        self._columns = tuple(columns)
        #: The encoders that `reload` needs when the result is recovered.
        self._layouts = list(layouts)
        self._blocks: Optional[List[Block]] = None

    # ---- Blocks ----

    def _column(self, handle: _Handle, index: int, number: int, block: _native.Block) -> np.ndarray:
        column = self._columns[number]
        data = ctypes.c_void_p()
        self._group._check_local(self._library.result_column(handle.pointer, index, number, byref(data), None))
        if block.count == 0:
            return _joined([], column.dtype)
        assert data.value is not None
        memory = _Memory(handle, data.value, block.count * column.dtype.itemsize)
        array = np.asarray(memory).view(column.dtype.base).reshape(block.count, *column.dtype.shape)
        return column.layout.decode(array) if column.layout else array

    @property
    def blocks(self) -> List[Block]:
        """The blocks of this rank, in ascending order of node."""
        blocks = self._blocks
        if blocks is None:
            handle, blocks = self._opened(), []
            for index in range(self._library.result_count(handle.pointer)):
                block = _native.Block()
                self._group._check_local(self._library.result_block(handle.pointer, index, byref(block)))
                columns = {column.name: self._column(handle, index, number, block)
                           for number, column in enumerate(self._columns)}
                blocks.append(Block(block.node, block.offset, columns))
            if self._handle is handle:
                self._blocks = blocks
        return blocks

    def __len__(self) -> int:
        return len(self.blocks)

    @overload
    def __getitem__(self, index: int) -> Block: ...

    @overload
    def __getitem__(self, index: slice) -> List[Block]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[Block, List[Block]]:
        return self.blocks[index]

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """The columns of all blocks of this rank by name.

        With one block that is not empty the arrays share its memory; several blocks are joined in copies.
        """
        blocks = [block for block in self.blocks if len(block) > 0] or self.blocks[:1]
        if len(blocks) == 1:
            return blocks[0].columns
        return {column.name: _joined([block.columns[column.name] for block in blocks], column.dtype)
                for column in self._columns}

    @property
    def array(self) -> np.ndarray:
        """The first column of all blocks of this rank: `columns` without its names."""
        return self.columns[self._columns[0].name]

    @property
    def total(self) -> int:
        """The number of elements over all ranks."""
        handle = self._opened()
        return int(self._library.result_total(handle.pointer))

    def __repr__(self) -> str:
        if self._handle is None:
            return "Result(closed)"
        return f"Result(total={self.total}, blocks={self.blocks!r})"

    # ---- Calls of the group ----

    def recover(self) -> "Result":
        """Rebuilds the blocks of ranks that have failed since the result was made. [collective]

        All survivors call it with the results of the same call. Lost blocks are rebuilt on the executors of their
        nodes, and the redundancy of the result is renewed. Blocks of survivors stay where they are.

        Returns
        -------
        Result
            This result, whose `blocks` now include the rebuilt ones.

        Raises
        ------
        DataLost
            Blocks cannot be rebuilt; the blocks of survivors stay valid.
        CallbackError
            `compare` or `reload` raised an exception on some rank. The result is closed on all ranks if the call
            rebuilt blocks with comparisons that may be wrong. Otherwise, as after an exception of `reload`, it stays
            open, and `recover` can be called again.
        """
        group, function = self._group, self._group._library.result_recover
        with group._refusing(lambda: function(group._pointer(), None)):
            handle = self._opened()
        self._blocks = None
        try:
            # Blocks that were made with a failed comparison may be wrong.
            group._call(function, handle.pointer, layouts=self._layouts, keep=handle, discard=self.close)
        finally:
            self._blocks = None  # A callback or another thread may have asked for them during the call.
        return self

    def to_numpy(self, root: int = 0) -> Optional[np.ndarray]:
        """Gathers the whole result at one rank, in order. [collective]

        Parameters
        ----------
        root : int
            The rank that receives the records. If it has failed, the executor of its node takes its place.

        Returns
        -------
        numpy.ndarray or None
            The first column of all ranks on the rank that received it, with shape ``(total,)``; None on the others.

        Raises
        ------
        DataLost
            The result cannot be recovered after a failure.
        CallbackError
            `compare` or `reload` raised an exception on some rank, while the result was recovered; `recover` says
            when it is closed. Also if the receiving rank has no memory for the array.
        """
        group, column, function = self._group, self._columns[0], self._group._library.gather_sorted
        refused = _native.CONSUME_FN()
        with group._refusing(lambda: function(group._pointer(), None, None, refused, None)):
            handle, total = self._opened(), self.total
            options = _native.TreeOptions(struct_size=ctypes.sizeof(_native.TreeOptions), has_sink=1,
                                          sink=integer("root", root, -2**31, 2**31 - 1))
        size, filled = column.dtype.itemsize, 0
        gathered: Optional[np.ndarray] = None

        def consume(_user: Any, address: int, count: int) -> int:
            nonlocal gathered, filled
            try:
                if gathered is None:
                    gathered = np.empty(total, column.dtype)
                ctypes.memmove(gathered.ctypes.data + filled * size, address, count * size)
                filled += count
                return 0
            except Exception as error:
                return group._callbacks.refuse(error)
            except BaseException as error:  # Of a signal handler: the records were for this rank alone.
                group._callbacks.fail_here(error)
                return 0

        callback = _native.CONSUME_FN(consume)
        try:
            group._call(function, byref(options), handle.pointer, callback, None, layouts=self._layouts, keep=handle,
                        discard=self.close)
        finally:
            self._blocks = None  # The call recovers the result if ranks have failed.
        if gathered is None and total == 0 and group.executor(root) == group.rank:
            gathered = np.empty(0, column.dtype)
        if gathered is None or column.layout is None:
            return gathered
        return column.layout.decode(gathered)

    def verify(self, array: Any = None) -> int:
        """Verifies that the result is in order and has the records that were sorted. [collective]

        Parameters
        ----------
        array : array_like, optional
            The records that this rank passed to the sort, in any order; if no rank passes an array, only the order and
            the number of records are verified. After failures a survivor must also pass those of the failed ranks.

        Returns
        -------
        int
            The number of places where the result is wrong, the same on all survivors; 0 if it is right.
        """
        group, violations = self._group, ctypes.c_uint64()
        function = group._library.result_verify
        with group._refusing(lambda: function(group._pointer(), None, None, 1, byref(violations))):
            handle = self._opened()
            layout = self._columns[0].layout
            if layout is None:
                raise ArgumentError("the result has positions: only records are verified")
            given = Input(layout, np.empty(0, layout.dtype) if array is None else array)
        # NULL would mean that this rank passes no array. Nothing is read at the address of an empty one.
        passed = given.pointer if array is None or given.count else byref(violations)
        group._call(function, handle.pointer, passed, given.count, byref(violations), layouts=[layout],
                    keep=(handle, given))
        return violations.value

    def close(self) -> None:
        """Releases the result and its redundancy as soon as no array and no call uses its memory. [local]"""
        self._handle = None
        self._blocks = None

    def __enter__(self) -> "Result":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()


class ProtectedInput(_Owner):
    """Records of this rank that survive its failure; made by `Group.protect`.

    Released by `close`, at the end of a ``with`` block, or when it is garbage. Results of its sorts stay valid.
    """

    _name = "protected input"

    def __init__(self, group: "Group", pointer: int, layout: Layout) -> None:
        self._group = group
        self._layout = layout
        # The library uses the callbacks of the layout until the input is released.
        self._handle = _Handle(group, group._library.input_free, pointer, layout)

    def sort(self, key: Key = None, descending: Optional[Descending] = None, *, stable: bool = False,
             compare: Optional[Compare] = None) -> Result:
        """Sorts the protected records. [collective]

        As `Group.sort`, but no moment of the call is unprotected. Without arguments the order is that of
        `Group.protect`. The records can be sorted again, also by another key. A float16 field can be a key only if
        it was a key of `Group.protect`.

        Returns
        -------
        Result
            The sorted blocks of this rank.
        """
        return self._group.sort_protected(self, key, descending, stable=stable, compare=compare)

    def update(self, array: Any) -> None:
        """Replaces the records of all ranks: either on all of them or, after an error, on none. [collective]

        Parameters
        ----------
        array : array_like, shape (n,)
            The new records of this rank, of the type of the old ones; the number may change.

        Raises
        ------
        DataLost
            A rank failed before its new records had left it.
        """
        group, function = self._group, self._group._library.input_update
        with group._refusing(lambda: function(group._pointer(), None, None, 1)):
            handle, given = self._opened(), Input(self._layout, array)
        group._call(function, handle.pointer, given.pointer, given.count, layouts=[self._layout], keep=(handle, given))

    def close(self) -> None:
        """Releases the input and its redundancy as soon as no call uses it. [local]"""
        self._handle = None

    def __enter__(self) -> "ProtectedInput":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()


def _joined(parts: List[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Returns a read-only copy of the elements of all parts, of their type: np.concatenate would remove padding."""
    raw = [part.reshape(-1).view(np.uint8) for part in parts]
    joined = (np.concatenate(raw) if raw else np.empty(0, np.uint8)).view(dtype.base).reshape(-1, *dtype.shape)
    joined.flags.writeable = False
    return joined


def _free(free: Callable[..., None], pointer: int, _kept: Any) -> None:
    free(pointer)

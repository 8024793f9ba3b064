"""Groups: the ranks of a communicator, and the calls that they make together."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import operator
import sys
import weakref
from ctypes import byref, c_size_t, c_uint32, c_void_p
from typing import Any, Callable, Iterable, List, NoReturn, Optional, Sequence, Tuple, Union

import numpy as np

from ftsort import _native
from ftsort._calls import BUSY, Calls
from ftsort._config import Callbacks, Event, Stats, algorithm_numbers, make_config
from ftsort._errors import ArgumentError, InternalError, PeerArgumentError, StateError, error_of, integer
from ftsort._external import ExternalSorts
from ftsort._layout import Compare, Descending, Encoder, Input, Key, Layout, as_array, listed
from ftsort._queries import Queries
from ftsort._result import Column, NotCopied, ProtectedInput, Result


def _free_group(library: _native.Library, pointer: int, _callbacks: Callbacks) -> None:
    from mpi4py import MPI

    if not MPI.Is_finalized():
        library.free(pointer)


class Group(NotCopied, Queries, ExternalSorts):
    """The ranks of a communicator, with the knowledge which of them have failed. [collective]

    Methods marked [collective] are called by all surviving ranks in the same order, and all ranks get the same
    exception, except that a rank with a wrong argument gets `ArgumentError` (or the exception of NumPy) and the
    others `PeerArgumentError`. Methods marked [local] do not communicate. One call at a time may use a group; meanwhile
    methods marked [local] raise `StateError`.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The ranks of the group; ``MPI.COMM_WORLD`` by default. It is copied and not changed, unless `keep_comm` is true.
    store : {'memory', 'directory', 'none', 'reload', 'parity'}
        The redundancy that lets the survivors recover the data of a failed rank.
    replicas : int, optional
        Copies of each input in the memory of other ranks; 1 by default. Store 'memory' only.
    parity : int, optional
        The failures of a group of ranks at once that lose nothing; 1 by default. Store 'parity' only.
    parity_group : int, optional
        The ranks of a group, more than `parity`; 8 by default. Store 'parity' only.
    algorithm : {'auto', 'samplesort', 'samplesort_2', 'samplesort_3', 'hyperquicksort', 'quickmerge', \
'quickmerge_modified', 'bitonic', 'bitonic_merge'}
        The sorting algorithm.
    pivot : {'sampled', 'paper'}
        The choice of pivots in HyperQuickSort and QuickMerge.
    repair : {'agree', 'shrink'}
        The way in which the survivors agree on failed ranks.
    dense : bool
        Whether every survivor receives one block, and the sizes differ by at most one element.
    memory_limit : int, optional
        Bytes that blocks and messages may take in this process; by default the free memory of the host, divided by its
        surviving ranks.
    timeout : float, optional
        Seconds without a sign of life of a rank after which waiting calls raise `MpiError`; 60 by default;
        ``math.inf``: no limit.
    threads : int, optional
        Threads for local sorting, at most 1024; by default the processors of this process divided by the ranks of
        the host.
    store_directory : path, optional
        Store 'directory' only: a directory that all ranks can write and read.
    store_sync : bool
        Whether files of the store survive power failures.
    checks : str or sequence of str
        Checks against data corruption: 'digest', 'progress', 'feasibility', 'consistency', 'purity'.
    reload : callable, optional
        ``reload(rank)`` returns the input of `rank` again, byte for byte; for `sort_many` a list of arrays, for
        `sort_by_key` the keys and the values.
        Store 'reload' needs it. It must not call this group.
    on_event : callable, optional
        ``on_event(event)`` receives each `Event`. It must not call this group. Events and the library's own messages
        are also records of the logger "ftsort".
    min_survivors : int, optional
        The number of survivors below which calls raise `Excluded`.
    spares : int, optional
        The number of spares, which replace failed ranks. They are the highest ranks and pass no elements.
    release_after_run : bool
        Whether the redundancy of an input is released at the end of each call.
    group_access : bool
        Whether the group of the user can read files of the store and of traces.
    keep_comm : bool
        Whether the group communicates on `comm` itself, so that ranks may fail in this call. Until the group is released,
        `comm` must not be used or freed, and it returns errors. `repair` must be 'agree'.
    trace : path, optional
        The prefix of trace files.
    faults : str, optional
        Failures to inject, for tests.
    accept_no_ulfm : bool, optional
        Whether to accept an MPI without ULFM, on which failures are not tolerated; by default only if the group has
        one rank.

    Raises
    ------
    ArgumentError
        An argument is invalid, or differs between ranks although it must not.
    NoUlfm
        MPI has no ULFM or was started without ``--with-ft ulfm``.
    LibraryError
        The C library cannot be loaded.

    Examples
    --------
    >>> import ftsort
    >>> from mpi4py import MPI
    >>> with ftsort.Group(MPI.COMM_WORLD) as group:
    ...     result = group.sort([2.5, -1.0, 7.0], descending=True)
    >>> result.array
    array([ 7. ,  2.5, -1. ])
    """

    def __init__(self, comm: Any = None, store: str = "memory", *, replicas: Optional[int] = None,
                 parity: Optional[int] = None, parity_group: Optional[int] = None,
                 algorithm: str = "auto", pivot: str = "sampled", repair: str = "agree", dense: bool = False,
                 memory_limit: Optional[int] = None, timeout: Optional[float] = None, threads: Optional[int] = None,
                 store_directory: Any = None, store_sync: bool = False, checks: Union[str, Iterable[str]] = (),
                 reload: Optional[Callable[[int], Any]] = None, on_event: Optional[Callable[[Event], Any]] = None,
                 min_survivors: Optional[int] = None, spares: Optional[int] = None, release_after_run: bool = False,
                 group_access: bool = False, trace: Any = None, faults: Optional[str] = None,
                 accept_no_ulfm: Optional[bool] = None, keep_comm: bool = False) -> None:
        given = dict(locals())  # A trace function changes locals() itself while a loop runs over it.
        options = {name: value for name, value in given.items() if name not in ("self", "comm")}
        from mpi4py import MPI

        if not MPI.Is_initialized() or MPI.Is_finalized():
            raise StateError("MPI is not initialised, or is finalised already")
        comm = MPI.COMM_WORLD if comm is None else comm
        if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
            raise ArgumentError(f"comm is {comm!r}, expected an mpi4py.MPI.Intracomm that is not COMM_NULL")
        library = _native.library()
        Calls.__init__(self, library, Callbacks(library, on_event, reload))
        handle, pointer = self._library.comm_type(comm.handle), c_void_p()
        self._kept = comm if keep_comm else None
        try:
            # A group of one rank needs no ULFM: no other rank can fail.
            accepted = comm.Get_size() == 1 if accept_no_ulfm is None else bool(accept_no_ulfm)
            config = make_config(self._callbacks, accepted, options)
        except BaseException:
            # The other ranks are in this call already: an invalid member lets them return.
            refused = _native.Config(struct_size=ctypes.sizeof(_native.Config), algorithm=-1,
                                     keep_comm=int(self._kept is not None))
            self._library.init(handle, byref(refused), byref(pointer))
            raise
        with self._callbacks.running():
            status = self._library.init(handle, byref(config), byref(pointer))
        if status != 0:
            raise error_of(status, self._last_error(None))
        self._handle = pointer.value
        assert pointer.value is not None
        self._close = weakref.finalize(self, _free_group, self._library, pointer.value, self._callbacks)
        self._has_files = store == "directory"
        #: Results and protected inputs, which `leave` releases with their files.
        self._owned: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._rank: int = self._library.rank(pointer)
        self._size: int = self._library.ranks(pointer)
        _, own_error = self._callbacks.take_errors()
        if own_error is not None:  # Of a signal handler, in a report of the library.
            self._close()
            raise own_error

    def _result_call(self, function: Callable[..., int], *arguments: Any, columns: Sequence[Column],
                     layouts: Sequence[Encoder], keep: Any) -> Result:
        """Makes a collective call that returns a result."""
        pointer = c_void_p()
        try:
            self._call(function, *arguments, byref(pointer), layouts=layouts, keep=keep)
        except BaseException:
            self._library.result_free(pointer)
            raise
        assert pointer.value is not None
        return Result(self, pointer.value, columns, layouts)

    def _input(self, array: Any, key: Key = None, descending: Descending = False, stable: bool = False,
               compare: Optional[Compare] = None) -> Input:
        array = as_array(array)
        return Input(Layout(self._library, array.dtype, key, descending, stable, compare, self._callbacks.fail),
                     array)

    # ---- Sorting ----

    def sort(self, array: Any, key: Key = None, descending: Descending = False, *, stable: bool = False,
             compare: Optional[Compare] = None) -> Result:
        """Sorts the elements of all ranks. [collective]

        Parameters
        ----------
        array : array_like, shape (n,)
            The elements of this rank; `n` may differ between ranks, the type may not: a rank without elements passes
            ``np.empty(0, dtype)``. It is read in place if it is contiguous, and must not change during the call.
        key : str or sequence of str, optional
            The fields of a structured type that decide the order: the first one, among equal ones the second, and so
            on. By default all fields in their order.
        descending : bool or sequence of bool
            The direction, of all keys or of each.
        stable : bool
            Refuses an algorithm that does not keep the order of elements with equal keys: 'bitonic_merge' only.
        compare : callable, optional
            ``compare(a, b)`` returns a number below, equal to or above 0, and decides the order in place of keys. It
            is called by several threads, one at a time because of the GIL, so it is thousands of times slower than a
            key. It must be the same total order on all ranks, and must not call MPI or this group. If it raises an
            exception on one rank, all ranks get `CallbackError`, and on that rank its cause is the exception.

        Returns
        -------
        Result
            The sorted blocks of this rank; the same elements in order over all ranks.

        Raises
        ------
        ArgumentError
            The array or the key is invalid, on the rank that passed it; also if the types differ between ranks.
        CallbackError
            `compare` or `reload` raised an exception, or `compare` contradicts itself.
        DataLost
            Data of failed ranks cannot be recovered.
        MemoryLimit
            A rank would exceed its memory limit.

        Notes
        -----
        The order differs from that of `numpy.sort` for floats and times. Floats have the total order of IEEE 754: -NaN,
        -inf, ..., -0.0, +0.0, ..., +inf, +NaN. So -0.0 comes before 0.0, and a NaN with the sign bit comes first. The NaN of
        ``numpy.nan`` has no sign bit and comes last, but that of 0/0 and of inf - inf has one on x86_64. NaT is the
        smallest datetime64 and timedelta64 and comes first, whereas `numpy.sort` puts it last.

        False comes before True. ``S`` is ordered by bytes and ``U`` by code points. A float16 key is mapped to an integer
        and back, which takes a copy in each direction.

        Examples
        --------
        >>> import numpy as np
        >>> stars = np.array([(1.5, 'Vega'), (0.5, 'Rigel'), (0.5, 'Capella')],
        ...                  dtype=[('magnitude', 'f4'), ('name', 'S8')])
        >>> group.sort(stars, key='magnitude').array['name']
        array([b'Rigel', b'Capella', b'Vega'], dtype='|S8')
        """
        return self._of_elements(self._library.run, ["records"], array, key, descending, stable, compare)

    def sort_many(self, arrays: Sequence[Any], key: Key = None, descending: Descending = False, *,
                  stable: bool = False) -> List[Result]:
        """Sorts several arrays, each by itself, with the messages of one sort. [collective]

        Many small arrays take much less time than by as many calls of `sort`.

        Parameters
        ----------
        arrays : sequence of array_like
            The arrays, in the same order and of the same types on all ranks. Their elements have the same size.
        key, descending, stable
            As for `sort`; they apply to each array.

        Returns
        -------
        list of Result
            One result for each array.

        Examples
        --------
        >>> [result.array.tolist() for result in group.sort_many([[2, 1], [9, 8, 7]])]
        [[1, 2], [7, 8, 9]]
        """
        function, refused = self._library.run_many, c_void_p()
        with self._refusing(lambda: function(self._pointer(), None, 1, byref(refused))):
            given = [self._input(array, key, descending, stable)
                     for array in listed(arrays, "arrays", "a sequence of arrays")]
            passed = (_native.Array * len(given))(*(
                _native.Array(ctypes.pointer(one.layout.record), one.pointer, one.count) for one in given))
        pointers = (c_void_p * len(given))()
        layouts = [one.layout for one in given]
        try:
            self._call(function, passed, len(given), pointers, layouts=layouts, keep=given)
        except BaseException:
            # Also after a call that succeeded: a callback or a signal handler has raised an exception.
            for pointer in pointers:
                self._library.result_free(pointer)
            raise
        return [Result(self, pointer, [Column.records(layout)], layouts) for pointer, layout in zip(pointers, layouts)]

    def protect(self, array: Any, key: Key = None, descending: Descending = False, *, stable: bool = False,
                compare: Optional[Compare] = None) -> ProtectedInput:
        """Protects records before they are sorted. [collective]

        Once it returns, the records survive the failure of their rank, and the array is not needed any more. Call it
        as early as the data exist.

        Parameters
        ----------
        array, key, descending, stable, compare
            As for `sort`. The order applies to sorts that name no other one.

        Returns
        -------
        ProtectedInput
            The protected records; sort them with `ProtectedInput.sort` or `sort_protected`.

        Raises
        ------
        DataLost
            A rank failed before its records were protected.

        Examples
        --------
        >>> with group.protect([3, 1, 2]) as protected:
        ...     protected.sort(descending=True).array.tolist()
        [3, 2, 1]
        """
        function, pointer = self._library.protect, c_void_p()
        with self._refusing(lambda: function(self._pointer(), None, None, 0, byref(pointer))):
            given = self._input(array, key, descending, stable, compare)
        try:
            self._call(function, given.record, given.pointer, given.count, byref(pointer), layouts=[given.layout],
                       keep=given)
        except BaseException:
            self._library.input_free(pointer)
            raise
        assert pointer.value is not None
        return ProtectedInput(self, pointer.value, given.layout)

    def sort_protected(self, protected: ProtectedInput, key: Key = None, descending: Optional[Descending] = None, *,
                       stable: bool = False, compare: Optional[Compare] = None) -> Result:
        """Sorts protected records: `ProtectedInput.sort`. [collective]"""
        function, refused = self._library.run_protected, c_void_p()
        with self._refusing(lambda: function(self._pointer(), None, None, byref(refused))):
            if not isinstance(protected, ProtectedInput):
                raise ArgumentError(f"protected is {protected!r}, expected a result of protect")
            handle, layout = protected._opened(), protected._layout
            if key is not None or descending is not None or compare is not None:
                chosen = Layout(self._library, layout.dtype, key, False if descending is None else descending, stable,
                                compare, self._callbacks.fail)
                layout = layout.with_order_of(chosen)
            elif stable:
                layout = layout.stable()
        return self._result_call(function, handle.pointer, byref(layout.record), keep=handle, layouts=[layout],
                                 columns=[Column.records(layout)])

    def set_algorithm(self, algorithm: str, pivot: str = "sampled") -> None:
        """Selects the algorithm of the sorts that follow, by the names of `Group`. [collective]"""
        function = self._library.set_algorithm
        with self._refusing(lambda: function(self._pointer(), -1, -1)):
            numbers = algorithm_numbers(algorithm, pivot)
        self._call(function, *numbers)

    # ---- Failures ----

    def fault_check(self) -> int:
        """Finds failed ranks, so that all survivors know the same ones. [collective]

        Returns
        -------
        int
            The number of ranks that this call found failed, plus those that agreements about callbacks have found since
            the last call that returned such a number: see the notes of `agree`.
        """
        found = c_size_t()
        self._call(self._library.fault_check, byref(found), new_failures=found)
        return found.value

    def agree(self, flags: int = 1) -> Tuple[int, int]:
        """Combines the `flags` of all survivors with a bitwise AND, for decisions of the caller. [collective]

        Parameters
        ----------
        flags : int or bool
            A number of 32 bits; True is 1. If it is none on one rank, that rank gets `ArgumentError`, and counts as 0
            for the others.

        Returns
        -------
        flags : int
            The agreed number, the same on all survivors.
        new_failures : int
            The number of ranks that this call found failed, plus those that agreements about callbacks have found since
            the last call that returned such a number: see the notes. The same on all survivors.

        Notes
        -----
        A call with `compare`, or of a group with `reload`, ends with an agreement on whether a callback raised an
        exception. The call does not recover the data of ranks that this agreement finds failed, so the next `agree` or
        `fault_check` that returns adds their number.

        Examples
        --------
        >>> group.agree(0b101)
        (5, 0)
        """
        def refuse() -> None:
            if self._library.agree(self._pointer(), None, None) == ArgumentError.status:
                self._uncounted = 0  # The other ranks have counted these failures.

        with self._refusing(refuse):
            if isinstance(flags, (bool, np.bool_)):
                flags = int(flags)
            if not isinstance(flags, (int, np.integer)) or not 0 <= flags < 2**32:
                raise ArgumentError(f"flags is {flags!r}, expected an integer of 32 bits")
        agreed, found = c_uint32(int(flags)), c_size_t()
        self._call(self._library.agree, byref(agreed), byref(found), new_failures=found)
        return agreed.value, found.value

    def survivors(self) -> Any:
        """Lends a communicator of the survivors, in ascending order of rank. [collective]

        Call it as seldom as possible: MPI libraries survive failures worst while they create a communicator.

        Returns
        -------
        mpi4py.MPI.Intracomm
            Belongs to the group: do not free it. Valid until the group is closed, or until the next call of this
            method that finds new failures. Its error handler is ``MPI.ERRORS_RETURN``.
        """
        from mpi4py import MPI

        handle = self._library.comm_type()
        self._call(self._library.comm, byref(handle))
        return MPI.Intracomm.fromhandle(handle.value)

    @property
    def rank(self) -> int:
        """The rank of this process in the communicator of the group; it never changes. [local]"""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks of the group, failed ranks included. [local]"""
        return self._size

    def is_failed(self, rank: int) -> bool:
        """Returns whether `rank` was known to have failed at the last collective call. [local]"""
        number = _rank(rank)
        with self._asking() as pointer:
            return bool(self._library.is_failed(pointer, number))

    def is_spare(self, rank: int) -> bool:
        """Returns whether `rank` is an idle spare, which has no node and must pass no elements. [local]"""
        number = _rank(rank)
        with self._asking() as pointer:
            return bool(self._library.is_spare(pointer, number))

    @property
    def failed(self) -> List[int]:
        """The failed ranks, ascending, as known at the last collective call. [local]"""
        with self._asking() as pointer:
            return [rank for rank in range(self._size) if self._library.is_failed(pointer, rank)]

    @property
    def lost_ranks(self) -> List[int]:
        """The ranks of the data that the last call could not recover, ascending. [local]"""
        with self._asking() as pointer:
            return self._lost_ranks(pointer)

    def executor(self, node: int) -> int:
        """Returns the rank that executes `node`; -1 for a node that does not exist. [local]"""
        number = _rank(node)
        with self._asking() as pointer:
            return int(self._library.executor(pointer, number))

    def stats(self) -> Stats:
        """Returns the figures of the last sort on this rank. [local]

        Examples
        --------
        >>> _ = group.sort([2, 1])
        >>> group.stats().failures
        0
        """
        raw = _native.Stats(struct_size=ctypes.sizeof(_native.Stats))
        with self._asking() as pointer:
            self._check_local(self._library.get_stats(pointer, byref(raw)))
        return Stats(*(getattr(raw, name) for name in Stats._fields))

    # ---- The end ----

    def close(self) -> None:
        """Releases the group; every survivor calls it before MPI is finalised. Results stay valid. [local]

        After failures ``MPI_Finalize``, which mpi4py calls at the end of the process, can wait for failed ranks: end
        the process with `leave` then.

        Raises
        ------
        StateError
            A call uses the group, which stays open. A callback of the group cannot close it, nor can a signal handler
            that interrupts a call.
        """
        if not self._lock.acquire(False):
            raise StateError(BUSY)  # The library would keep the group for the rest of the process.
        try:
            with self._questions:
                if self._open_questions:  # This is a signal handler, and the question goes on after it.
                    raise StateError(BUSY)
                self._handle = None  # Local questions of other threads have been answered, and no new one begins.
            self._close()
        finally:
            self._lock.release()

    def leave(self, exit_code: int = 0) -> NoReturn:
        """Ends the process, in place of `close` and of the end of the program. [collective]

        Waits for the other survivors, and then ends the process without the wait for failed ranks in
        ``MPI_Finalize``. Standard streams and logs are flushed; functions of `atexit` are not called.

        Raises
        ------
        ArgumentError
            `exit_code` is no integer of 32 bits. No rank ends, and the group stays open.
        """
        with self._refusing(lambda: self._agree(self._pointer(), False)):
            exit_code = integer("exit_code", exit_code, -2**31, 2**31 - 1)

        def leave(pointer: int) -> Any:
            # For the library every exit code is valid. An unusable group has no agreement, and is left all the same.
            status, is_valid = self._agree(pointer, True)
            if status == 0 and not is_valid:
                return PeerArgumentError.status
            steps = [lambda: sys.stdout.flush(), lambda: sys.stderr.flush(), logging.shutdown]
            if self._has_files:
                # No array is used any more, because the process ends.
                steps += [owned._release for owned in list(self._owned)]
            try:
                for step in steps:
                    # The other ranks wait: not even the exception of a signal handler may keep this one.
                    with contextlib.suppress(BaseException):
                        step()
            finally:
                left = self._library.leave(pointer, exit_code)
            return left

        try:
            self._call(leave)
        except PeerArgumentError:
            raise PeerArgumentError("exit_code is invalid on another rank") from None
        raise InternalError("the call that ends the process has returned")

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._handle is None:
            return "Group(closed)"
        try:
            state = f"failed={self.failed}"
        except StateError:
            state = "busy"
        return f"Group(rank={self.rank}, size={self.size}, {state})"


def _rank(value: Any) -> int:
    """Returns a rank or a node for the library; -1, which does not exist, for a number beyond its type."""
    number = operator.index(value)
    return number if -2**31 <= number < 2**31 else -1

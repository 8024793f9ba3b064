"""Collective calls of the library: the state of a group while one runs, and the exception of its status."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from ctypes import byref, c_int32, c_size_t, c_uint32
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

from ftsort import _native
from ftsort._config import Callbacks
from ftsort._errors import CallbackError, Corruption, DataLost, Error, InternalError, MpiError, StateError, error_of
from ftsort._layout import Encoder

#: Arrays that MPI may still read after an MpiError or an InternalError; they must not change before the process ends.
_pinned: List[Any] = []


class Calls:
    """The part of `Group` that calls the library."""

    def __init__(self, library: _native.Library, callbacks: Callbacks) -> None:
        self._library, self._callbacks = library, callbacks
        #: The group of the library; None once it is closed.
        self._handle: Optional[int] = None
        #: Held by the call that runs, and during the agreement that may follow it.
        self._lock = threading.Lock()
        #: Failures that agreements after callbacks have found, and no call has counted.
        self._uncounted = 0

    def _pointer(self) -> int:
        if self._handle is None:
            raise StateError("the group is closed")
        return self._handle

    def _idle_pointer(self) -> int:
        """Returns the pointer for a local question. While a call uses the group, the answer would be wrong."""
        pointer = self._pointer()
        raw = _native.Stats(struct_size=ctypes.sizeof(_native.Stats))
        if self._library.get_stats(pointer, byref(raw)) == StateError.status:
            raise StateError("the group is busy with another call, or MPI is finalised")
        return pointer

    def _check_local(self, status: int) -> None:
        if status != 0:
            raise error_of(status, self._library.status_text(status).decode(errors="replace"))

    def _last_error(self, pointer: Optional[int]) -> str:
        return str(self._library.last_error(pointer).decode(errors="replace"))

    def _lost_ranks(self) -> List[int]:
        pointer = self._idle_pointer()
        ranks = (c_int32 * self._library.lost_ranks(pointer, None, 0))()
        count = self._library.lost_ranks(pointer, ranks, len(ranks))
        return list(ranks[:count])

    @contextlib.contextmanager
    def _refusing(self, call: Callable[[], Any]) -> Iterator[None]:
        """Makes `call`, a call with an invalid argument, if the preparation of a collective call fails.

        The other ranks are in the call already, and would wait for this one. So they get `PeerArgumentError`, also if the
        exception is that of a signal.
        """
        self._pointer()
        try:
            yield
        except BaseException:
            # While another call runs in this process, the other ranks are in that one.
            if self._lock.acquire(False):
                try:
                    call()
                finally:
                    self._lock.release()
            raise

    def _status(self, function: Callable[..., int], *arguments: Any) -> int:
        """Returns the status of a collective call.

        The exception of a signal that arrived during the call is raised right after it. It is kept for the end of
        `_call`, because the other ranks know the status and act on it.
        """
        status: List[int] = []
        try:
            with self._callbacks.running():
                # One step of the interpreter makes the call and stores its status.
                status.extend(itertools.starmap(function, [arguments]))
        except BaseException as error:
            if not status:
                raise
            self._callbacks.fail_here(error)
        return status[0]

    def _agreed_status(self, function: Callable[..., int], arguments: Sequence[Any], layouts: Sequence[Encoder],
                       new_failures: Optional[c_size_t]) -> Tuple[int, str, bool]:
        """Makes a collective call. Returns its status, its text, and whether a callback of some rank has raised."""
        pointer = self._pointer()
        status = self._status(function, pointer, *arguments)
        text = self._last_error(pointer) if status != 0 else ""
        if status == 0 and new_failures is not None:
            new_failures.value += self._uncounted
            self._uncounted = 0
        uses_callbacks = self._callbacks.has_reload or any(layout.has_compare for layout in layouts)
        # A comparator that changes its mind may also look like corruption.
        if not layouts or not uses_callbacks or status not in (0, Corruption.status):
            return status, text, False
        agreed, found = c_uint32(not self._callbacks.has_failed()), c_size_t()
        agreement = self._status(self._library.agree, pointer, byref(agreed), byref(found))
        if agreement != 0:
            return agreement, self._last_error(pointer), False
        self._uncounted += found.value
        return status, text, not agreed.value

    def _call(self, function: Callable[..., int], *arguments: Any, layouts: Sequence[Encoder] = (),
              keep: Any = None, discard: Callable[[], Any] = lambda: None,
              new_failures: Optional[c_size_t] = None) -> None:
        """Makes a collective call, and raises the exception of its status.

        The library does not know that a comparator raised an exception, or that a signal handler did so in `reload`,
        on one rank perhaps. So the ranks agree on it afterwards, and all of them `discard` the outcome and raise
        CallbackError. Failures that this agreement finds are added to the `new_failures` of the next successful call
        that has them. The library returns the same status on all survivors, so they all have the same number, also if
        one of them does not receive it because of a signal.
        """
        held: List[bool] = []
        try:
            # One step of the interpreter takes the lock and stores whether it did.
            held.extend(map(self._lock.acquire, [False]))
            if not held[0]:
                # The library would refuse the call too, but the call that runs needs its encoders.
                raise StateError("the group is busy with another call: call it after that call has returned")
            self._callbacks.layouts = list(layouts)
            status, text, has_raised = self._agreed_status(function, arguments, layouts, new_failures)
            error, own_error = self._callbacks.take_errors()
            lost = tuple(self._lost_ranks()) if status == DataLost.status else ()
        finally:
            if any(held):
                self._lock.release()
        raised: Optional[Error] = None
        if has_raised:
            if status == 0:
                discard()
            raised = CallbackError("compare or reload raised an exception on some rank")
        elif status != 0:
            if layouts and "record is not the same" in text:
                types = ", ".join(dict.fromkeys(str(layout.dtype) for layout in layouts))
                text += f": here the elements have the type {types}; an empty list has float64"
            raised = error_of(status, text or self._library.status_text(status).decode(errors="replace"))
        if isinstance(raised, (InternalError, MpiError)):
            _pinned.append(keep)
        if isinstance(raised, DataLost):
            raised.ranks = lost
        if own_error is not None:
            raise own_error from raised
        if error is not None and (raised is None or not isinstance(error, Exception)):
            raise error from raised
        if raised is not None:
            raise raised from error

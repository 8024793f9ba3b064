"""Collective calls of the library: the state of a group while one runs, and the exception of its status."""

from __future__ import annotations

import contextlib
import itertools
import threading
from ctypes import byref, c_int32, c_size_t, c_uint32
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

from ftsort import _native
from ftsort._config import RIGHT, WORKED, Callbacks
from ftsort._errors import (CallbackError, Corruption, DataLost, Error, InternalError, MemoryLimit, MpiError,
                             StateError, StoreError, error_of)
from ftsort._layout import Encoder

#: Arrays that MPI may still read after an MpiError or an InternalError; they must not change before the process ends.
_pinned: List[Any] = []

BUSY = "the group is busy with another call: call it after that call has returned"

#: Statuses after which a result may have blocks that were rebuilt.
_REBUILT = (0, MemoryLimit.status, StoreError.status, CallbackError.status, DataLost.status, Corruption.status)

#: The number of exceptions of signals that may interrupt a call between its status and its end.
_MOST_SIGNALS = 100


class _Agreement:
    """An agreement that is made once, although a signal may interrupt the steps before and after it."""

    def __init__(self) -> None:
        self.status: List[int] = []
        self.flag, self.found = c_uint32(), c_size_t()


class Calls:
    """The part of `Group` that calls the library."""

    def __init__(self, library: _native.Library, callbacks: Callbacks) -> None:
        self._library, self._callbacks = library, callbacks
        #: The group of the library; None once it is closed.
        self._handle: Optional[int] = None
        #: Held by the call that runs, and during the agreement that may follow it.
        self._lock = threading.Lock()
        #: The number of calls that have begun.
        self._begun = 0
        #: Held while the library reads from the group. A signal handler can interrupt a question and ask another one.
        self._questions = threading.RLock()
        #: The number of questions that are open, one within another.
        self._open_questions = 0
        #: Failures that agreements after callbacks have found, and no call has counted.
        self._uncounted = 0

    def _pointer(self) -> int:
        if self._handle is None:
            raise StateError("the group is closed")
        return self._handle

    @contextlib.contextmanager
    def _asking(self) -> Iterator[int]:
        """Lends the pointer of the group for a local question.

        Raises StateError if a call uses the group at any moment of the block: the library then answers as for no group,
        in which every rank has failed. A question does not hold the lock of the calls, because a collective call that
        begins meanwhile would be refused on this rank alone.
        """
        with self._question():
            begun, pointer = self._begun, self._pointer()
            if self._lock.locked():
                raise StateError(BUSY)
            yield pointer
            if self._lock.locked() or self._begun != begun:
                raise StateError(BUSY)

    @contextlib.contextmanager
    def _question(self) -> Iterator[None]:
        """Keeps the group from being freed, also by a signal handler of this thread."""
        with self._questions:
            self._open_questions += 1
            try:
                yield
            finally:
                self._open_questions -= 1

    def _check_local(self, status: int) -> None:
        if status != 0:
            raise error_of(status, self._library.status_text(status).decode(errors="replace"))

    def _last_error(self, pointer: Optional[int]) -> str:
        with self._question():
            return str(self._library.last_error(pointer).decode(errors="replace"))

    def _lost_ranks(self, pointer: int) -> List[int]:
        with self._question():
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
                    self._begun += 1
                    call()
                finally:
                    self._lock.release()
            raise

    def _status(self, function: Callable[..., int], *arguments: Any, made: List[int]) -> int:
        """Returns the status of a collective call, which is made unless `made` has its status already.

        The exception of a signal that arrived during the call is raised right after it. It is kept for the end of
        `_call`, because the other ranks know the status and act on it.
        """
        try:
            if not made:
                with self._callbacks.running():
                    # One step of the interpreter makes the call and stores its status.
                    made.extend(itertools.starmap(function, [arguments]))
        except BaseException as error:
            if not made:
                raise
            self._callbacks.fail_here(error)
        return made[0]

    def _agree(self, pointer: int, flags: int, agreement: Optional[_Agreement] = None) -> Tuple[int, int]:
        """Returns the status of an agreement, and the flags that all survivors pass. Adds the failures that it finds."""
        agreement = agreement or _Agreement()
        if not agreement.status:
            agreement.flag.value = flags
        arguments = (pointer, byref(agreement.flag), byref(agreement.found))
        status = self._status(self._library.agree, *arguments, made=agreement.status)
        if status == 0:
            found, agreement.found.value = agreement.found.value, 0
            self._uncounted += found
        return status, agreement.flag.value

    def _commit(self, pointer: int, commit: Callable[[], Any], tried: List[Optional[BaseException]],
                agreement: _Agreement) -> Tuple[int, str]:
        """Lets all ranks `commit` the outcome of a call, of which one that succeeds is sufficient.

        Returns the status of the call, and its text. The agreement also makes every rank wait until all have tried.
        """
        if not tried:
            try:
                commit()
                tried.append(None)
            except BaseException as error:
                tried.append(error)
                if not isinstance(error, OSError):
                    self._callbacks.fail_here(error)
        failure = tried[0]
        status, has_failed = self._agree(pointer, failure is not None, agreement)
        if status != 0:
            return status, self._last_error(pointer)
        return (StoreError.status, f"no rank can give the output its name: {failure}") if has_failed else (0, "")

    def _agreed_status(self, pointer: int, function: Callable[..., int], arguments: Sequence[Any],
                       layouts: Sequence[Encoder], new_failures: Optional[c_size_t],
                       commit: Optional[Callable[[], Any]], is_of_result: bool) -> Tuple[int, str, int]:
        """Makes a collective call. Returns its status, its text, and the verdict of all ranks on their callbacks."""
        made: List[int] = []
        worked, committed = _Agreement(), _Agreement()
        tried: List[Optional[BaseException]] = []

        def steps() -> Tuple[int, str, int]:
            status = self._status(function, pointer, *arguments, made=made)
            text = self._last_error(pointer) if status != 0 else ""
            if status == 0 and new_failures is not None:
                added, self._uncounted = self._uncounted, 0
                new_failures.value += added
            uses_callbacks = self._callbacks.has_reload or any(layout.has_compare for layout in layouts)
            # A comparator that changes its mind may also look like corruption. Calls with a result compare it before
            # anything else, so that all ranks have the same callbacks at every status.
            decided = _REBUILT if is_of_result else (0, Corruption.status)
            if not layouts or not uses_callbacks or status not in decided:
                return status, text, WORKED | RIGHT
            agreed, verdict = self._agree(pointer, self._callbacks.verdict(), worked)
            if agreed != 0:
                return agreed, self._last_error(pointer), WORKED | RIGHT
            if status == 0 and verdict & WORKED and commit is not None:
                status, text = self._commit(pointer, commit, tried, committed)
            return status, text, verdict

        for _ in range(_MOST_SIGNALS):
            try:
                return steps()
            except BaseException as error:
                if not made:
                    raise
                # The other ranks know the status, and wait for this one in the agreements.
                self._callbacks.fail_here(error)
        return steps()

    def _call(self, function: Callable[..., int], *arguments: Any, layouts: Sequence[Encoder] = (),
              keep: Any = None, commit: Optional[Callable[[], Any]] = None,
              discard: Optional[Callable[[], Any]] = None, new_failures: Optional[c_size_t] = None) -> None:
        """Makes a collective call, and raises the exception of its status.

        The library does not know that a comparator raised an exception, or that a signal handler did so in `reload`,
        on one rank perhaps. So the ranks agree on it afterwards, and all of them either `commit` the outcome, or
        `discard` it and raise CallbackError. Without `commit` the outcome is a result that was there before the call.

        Failures that the agreements find are added to the `new_failures` of the next successful call that has them.
        The library returns the same status on all survivors, so they all have the same number, also if one of them
        does not receive it because of a signal.
        """
        held: List[bool] = []
        try:
            # One step of the interpreter takes the lock and stores whether it did.
            held.extend(map(self._lock.acquire, [False]))
            if not held[0]:
                # The library would refuse the call too, but the call that runs needs its encoders.
                raise StateError(BUSY)
            self._begun += 1
            # Those of an earlier call that a signal ended.
            self._callbacks.take_errors()
            self._callbacks.layouts = list(layouts)
            pointer = self._pointer()
            is_of_result = discard is not None and commit is None
            status, text, verdict = self._agreed_status(pointer, function, arguments, layouts, new_failures, commit,
                                                        is_of_result)
            error, own_error = self._callbacks.take_errors()
            lost = tuple(self._lost_ranks(pointer)) if status == DataLost.status else ()
        finally:
            if any(held):
                self._lock.release()
        raised: Optional[Error] = None
        if not verdict & RIGHT and discard is not None:
            discard()
        # The library has a text for exceptions that it knows of.
        if not verdict & RIGHT or (status == 0 and not verdict & WORKED):
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

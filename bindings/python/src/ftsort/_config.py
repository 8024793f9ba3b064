"""The configuration and the figures of a group: names and units of Python, and the callbacks."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import logging
import math
import os
import sys
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from ftsort import _native
from ftsort._errors import ArgumentError, integer
from ftsort._layout import Encoder

logger = logging.getLogger("ftsort")
logger.addHandler(logging.NullHandler())

ALGORITHMS = {"auto": 0, "hyperquicksort": 1, "quickmerge": 2, "quickmerge_modified": 3, "bitonic": 4,
              "bitonic_merge": 5, "samplesort": 6, "samplesort_2": 7, "samplesort_3": 8}
STORES = {"memory": 0, "directory": 1, "none": 2, "reload": 3, "parity": 4}
PIVOTS = {"sampled": 0, "paper": 1}
REPAIRS = {"agree": 0, "shrink": 1}
CHECKS = {"digest": 1, "progress": 2, "feasibility": 4, "consistency": 8, "purity": 16}
NO_TIMEOUT = 2**32 - 1

_LEVELS = {0: logging.ERROR, 1: logging.WARNING, 2: logging.INFO}


class EventKind(enum.IntEnum):
    """The kind of an event. A newer library may send numbers that are not listed."""

    ROUND = 1      #: ``round`` of ``rounds`` was committed.
    FAILURE = 2    #: ``rank`` has failed.
    EXECUTOR = 3   #: Node ``rank`` is executed by rank ``peer`` for the rest of the call.
    RESTORED = 4   #: This rank restored the block of node ``rank`` from a copy of rank ``peer``, or recomputed it (-1).
    REPLAY = 5     #: ``round`` is replayed after failures.
    CORRUPT = 6    #: Rank ``peer`` detected data corruption in ``round`` and accuses ``rank``, or no rank (-1).
    EXCLUDED = 7   #: A monitor does not recommend ``rank``: it executes no node until it rejoins or the call ends.
    REJOINED = 8   #: ``rank`` is recommended again.
    RENEWED = 9    #: A result was recovered and its redundancy renewed.


class Event(NamedTuple):
    """An event on which the survivors have agreed."""

    kind: int              #: One of `EventKind`.
    rank: int              #: See the kind; else -1.
    peer: int              #: See the kind; else -1.
    round: int             #: The round: 0 loads, and ``rounds - 1`` makes the result.
    rounds: int            #: The number of rounds.
    epoch: int             #: The number of repairs and changes of executors so far.
    lowest_survivor: int   #: The lowest surviving rank, for programs that report each event once.
    finding: int           #: The check that detected a corruption, one of ``ftsort_finding``.


class Stats(NamedTuple):
    """Figures of the last sort on this rank."""

    total_seconds: float     #: Seconds from the call to the result.
    sort_seconds: float      #: Seconds of local sorting.
    exchange_seconds: float  #: Seconds of pivots, partitioning and exchanges.
    merge_seconds: float     #: Seconds of merging sorted runs into the result.
    store_seconds: float     #: Seconds of protecting inputs and storing versions, with copies to other ranks.
    commit_seconds: float    #: Seconds of agreements at the ends of rounds, including waits.
    repair_seconds: float    #: Seconds of agreeing on failed ranks and restoring lost blocks.
    bytes_sent: int          #: Bytes sent to other ranks.
    bytes_stored: int        #: Bytes put into the store on this rank.
    rounds: int              #: Committed rounds, including loading and the result.
    rounds_replayed: int     #: Rounds that were replayed.
    failures: int            #: Ranks that were found failed.
    peak_bytes: int          #: The peak bytes of blocks and messages of this process.
    algorithm: int           #: The algorithm that sorted, one of ``ftsort_algorithm``.
    corruptions: int         #: Detected data corruptions.
    injected: int            #: Changes of data of this rank by `faults`.
    predicted_seconds: float #: Predicted seconds of exchanges, if 'auto' chose; otherwise 0.
    other_seconds: float     #: The least prediction for another algorithm.


_TEXTS = {
    EventKind.ROUND: (logging.DEBUG, "round {0.round} of {0.rounds} was committed"),
    EventKind.FAILURE: (logging.WARNING, "rank {0.rank} has failed"),
    EventKind.EXECUTOR: (logging.INFO, "node {0.rank} is executed by rank {0.peer}"),
    EventKind.RESTORED: (logging.INFO, "the block of node {0.rank} was restored"),
    EventKind.REPLAY: (logging.INFO, "round {0.round} is replayed"),
    EventKind.CORRUPT: (logging.WARNING, "rank {0.peer} detected data corruption in round {0.round}"),
    EventKind.EXCLUDED: (logging.WARNING, "rank {0.rank} is slow and executes no node in this call"),
    EventKind.REJOINED: (logging.INFO, "rank {0.rank} executes nodes again"),
    EventKind.RENEWED: (logging.INFO, "a result was recovered and its redundancy renewed"),
}


#: The calls that run, with their threads, and the hook that was there before them.
_running: "List[Tuple[int, Callbacks]]" = []
_previous_hook: Callable[[Any], Any] = sys.unraisablehook
_hook_lock = threading.Lock()


#: Parts of the representations of this package's callbacks. Those in `_REPORTS` decide no outcome of another rank.
_REPORTS = ("Callbacks._event of <ftsort.", "Callbacks._log of <ftsort.",
            "<function Result.to_numpy.<locals>.consume at ")
_CALLBACKS = (*_REPORTS, "Callbacks._reload_input of <ftsort.", "<function Layout._comparator.<locals>.call at ")


def _unraisable(ignored: Any) -> None:
    """Receives exceptions that Python ignores: those of callbacks of this package fail the calls of their thread.

    Only this rank raises the exceptions of `on_event`, of the logger and of the function that receives records.
    """
    # The object is the callback; since Python 3.13 it is None, and the message has the representation of the callback.
    function = f"{ignored.err_msg} {ignored.object!r}" if "ctypes" in (ignored.err_msg or "") else ""
    if not any(name in function for name in _CALLBACKS):
        _previous_hook(ignored)
        return
    here = [callbacks for thread, callbacks in _running if thread == threading.get_ident()]
    # A thread of the library has no call of its own.
    is_report = any(name in function for name in _REPORTS)
    for callbacks in here or [callbacks for _, callbacks in _running]:
        (callbacks.fail_here if is_report else callbacks.fail)(ignored.exc_value)


#: What ranks agree on after a call with callbacks: that no callback raised an exception, and that the library knows of
#: those that were raised.
WORKED, RIGHT = 1, 2


class Callbacks:
    """The functions that the library calls. Has no reference to the group, so that the group can be collected."""

    def __init__(self, library: _native.Library, on_event: Optional[Callable[[Event], Any]],
                 reload: Optional[Callable[[int], Any]]) -> None:
        self._library = library
        self._on_event = on_event
        self._reload = reload
        #: The encoders of the call that runs, one for each array, for `reload`.
        self.layouts: List[Encoder] = []
        #: The first exception in `compare`, `reload` or another function that decides the outcome of a call.
        self._error: Optional[BaseException] = None
        #: Whether the library took an answer of a function that raised an exception for right.
        self._is_wrong = False
        #: The first exception of a signal handler at another time. The outcome of the call does not depend on it.
        self._own_error: Optional[BaseException] = None
        self.has_reload = reload is not None
        self.event_fn = _native.EVENT_FN(self._event)
        self.log_fn = _native.LOG_FN(self._log)
        self.reload_fn = _native.RELOAD_FN(self._reload_input) if reload is not None else _native.RELOAD_FN()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Receives the exceptions that a signal handler raises in a callback outside of its `try`, during a call.

        ctypes prints and ignores them, and gives the library 0: a comparator would be wrong without an error.
        """
        global _previous_hook
        call = (threading.get_ident(), self)
        with _hook_lock:
            _running.append(call)
            if sys.unraisablehook is not _unraisable:
                _previous_hook, sys.unraisablehook = sys.unraisablehook, _unraisable
        try:
            yield
        finally:
            with _hook_lock:
                _running.remove(call)
                if not _running and sys.unraisablehook is _unraisable:
                    sys.unraisablehook = _previous_hook

    def refuse(self, error: BaseException) -> int:
        """Keeps the first exception of a callback, which must not pass through the frames of the library.

        Returns the number by which the callback tells the library.
        """
        if self._error is None:
            self._error = error
        return 1

    def fail(self, error: BaseException) -> None:
        """Keeps an exception as `refuse`, of a callback that cannot tell the library."""
        self.refuse(error)
        self._is_wrong = True

    def fail_here(self, error: BaseException) -> None:
        """Keeps the first exception that only this rank is to raise when the call ends."""
        if self._own_error is None:
            self._own_error = error

    def verdict(self) -> int:
        """Returns `RIGHT` if the library knows of all exceptions, and `WORKED` if there are none in decisive callbacks."""
        return (0 if self._is_wrong else RIGHT) | (WORKED if self._error is None else 0)

    def take_errors(self) -> Tuple[Optional[BaseException], Optional[BaseException]]:
        """Returns the exceptions of `fail` and of `fail_here` since the last call of this method."""
        errors, self._error, self._own_error = (self._error, self._own_error), None, None
        self._is_wrong = False
        return errors

    def _event(self, _user: Any, address: Any) -> None:
        try:
            raw = address.contents
            kind = EventKind(raw.kind) if raw.kind in EventKind._value2member_map_ else raw.kind
            event = Event(kind, raw.rank, raw.peer, raw.round, raw.rounds, raw.epoch, raw.lowest_survivor,
                          raw.finding)
            level, text = _TEXTS.get(kind, (logging.DEBUG, "event {0.kind}"))
            if logger.isEnabledFor(level):
                logger.log(level, text.format(event))
            if self._on_event is not None:
                self._on_event(event)
        except Exception:
            logger.exception("on_event raised an exception")
        except BaseException as error:
            self.fail_here(error)

    def _log(self, _user: Any, level: int, line: bytes) -> None:
        try:
            logger.log(_LEVELS.get(level, logging.INFO), line.decode(errors="replace"))
        except BaseException as error:
            self.fail_here(error)

    def _reload_input(self, _user: Any, rank: int, buffer: Any) -> int:
        try:
            data = self._reload(rank)  # type: ignore[misc]
            is_list = isinstance(data, (list, tuple)) and len(data) == 1 and isinstance(data[0], np.ndarray)
            arrays = data if len(self.layouts) > 1 or is_list else [data]
            if len(arrays) != len(self.layouts):
                raise ArgumentError(f"reload returned {len(arrays)} arrays, expected {len(self.layouts)}")
            for layout, array in zip(self.layouts, arrays):
                encoded = layout.encode(array)
                if self._library.buffer_append(buffer, encoded.ctypes.data, encoded.nbytes) != 0:
                    raise MemoryError(f"there is no memory for the input of rank {rank}")
            return 0
        except BaseException as error:
            return self.refuse(error)


def _choice(name: str, value: Any, choices: Dict[str, int]) -> int:
    if isinstance(value, str) and value in choices:
        return choices[value]
    raise ArgumentError(f"{name} is {value!r}, expected one of {', '.join(choices)}")


def _number(name: str, value: Any, most: int, least: int = 1) -> int:
    """Returns a number in the range of its C type; None is 0, which selects the default of the library."""
    if value is None:
        return 0
    try:
        return integer(name, value, least, most)
    except ArgumentError as error:
        raise ArgumentError(f"{error}, or None for the default") from None


def _timeout(value: Optional[float]) -> int:
    if value is None:
        return 0
    if value == math.inf:
        return NO_TIMEOUT
    if not isinstance(value, (int, float, np.integer, np.floating)) or not 0 < value < NO_TIMEOUT / 1000:
        raise ArgumentError(f"timeout is {value!r}, expected a number of seconds above 0, math.inf or None")
    return max(1, round(float(value) * 1000))


def _checks(value: Union[None, str, Iterable[str]]) -> int:
    names = [value] if isinstance(value, str) else list(value or ())
    bits = 0
    for name in names:
        bits |= _choice("checks", name, CHECKS)
    return bits


def _path(name: str, value: Any) -> Optional[bytes]:
    if value is None:
        return None
    path = os.fsencode(value)
    if b"\0" in path:
        raise ArgumentError(f"{name} is {value!r}, which has a NUL character")
    return path


def algorithm_numbers(algorithm: str, pivot: str) -> Tuple[int, int]:
    """Returns the numbers of an algorithm and of a choice of pivots."""
    return _choice("algorithm", algorithm, ALGORITHMS), _choice("pivot", pivot, PIVOTS)


def make_config(callbacks: Callbacks, accept_no_ulfm: bool, options: Dict[str, Any]) -> _native.Config:
    """Returns the configuration with the options of `Group`, which documents them."""
    word, size = 2**32 - 1, 2**64 - 1
    algorithm, pivot = algorithm_numbers(options["algorithm"], options["pivot"])
    if options["store"] == "reload" and options["reload"] is None:
        raise ArgumentError("store is 'reload', which needs the argument reload: a function of the rank")
    return _native.Config(
        struct_size=ctypes.sizeof(_native.Config),
        algorithm=algorithm,
        store=_choice("store", options["store"], STORES),
        pivot=pivot,
        repair=_choice("repair", options["repair"], REPAIRS),
        dense=int(bool(options["dense"])),
        replicas=_number("replicas", options["replicas"], word),
        threads=_number("threads", options["threads"], word),
        accept_no_ulfm=int(accept_no_ulfm),
        timeout_ms=_timeout(options["timeout"]),
        min_survivors=_number("min_survivors", options["min_survivors"], word, least=0),
        memory_limit=_number("memory_limit", options["memory_limit"], size),
        store_directory=_path("store_directory", options["store_directory"]),
        faults=_path("faults", options["faults"]),
        reload=callbacks.reload_fn,
        on_event=callbacks.event_fn,
        on_log=callbacks.log_fn,
        checks=_checks(options["checks"]),
        trace=_path("trace", options["trace"]),
        store_sync=int(bool(options["store_sync"])),
        group_access=int(bool(options["group_access"])),
        spares=_number("spares", options["spares"], word, least=0),
        release_after_run=int(bool(options["release_after_run"])),
        parity=_number("parity", options["parity"], word),
        parity_group=_number("parity_group", options["parity_group"], word),
        keep_comm=int(bool(options["keep_comm"])),
    )

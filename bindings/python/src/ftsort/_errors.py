"""Exceptions: one class for each error status of the library."""

from __future__ import annotations

import operator
from typing import Any, Dict, Iterable, Optional, Tuple, Type


class Error(Exception):
    """An error of ftsort; the base class of all others.

    Attributes
    ----------
    status : int or None
        The status of the C library, one of ``ftsort_status_code``; None if the library could not be loaded.
    text : str
        The reason: the argument and its value, the file, or the rank.
    """

    status: Optional[int] = None

    def __init__(self, text: str, status: Optional[int] = None) -> None:
        super().__init__(text)
        self.text = text
        if status is not None:
            self.status = status


class LibraryError(Error, ImportError):
    """The C library cannot be loaded, or has another version than this package."""


class ArgumentError(Error, ValueError):
    """An argument of this rank is invalid. The other ranks get `PeerArgumentError`, and nothing has changed."""

    status = -1


class PeerArgumentError(Error):
    """An argument of another rank is invalid. Nothing has changed."""

    status = -2


class StateError(Error, RuntimeError):
    """The group is busy, closed or unusable, or MPI is not running. Nothing has changed."""

    status = -3


class NoUlfm(Error):
    """The MPI library lacks ULFM, is not Open MPI, or was started without ``--with-ft ulfm``."""

    status = -20


class MemoryLimit(Error, MemoryError):
    """A rank ran out of memory or reached its memory limit. The group stays usable."""

    status = -21


class StoreError(Error):
    """A rank could not write or read the store. The group stays usable."""

    status = -22


class CallbackError(Error):
    """A callback refused on some rank. The group stays usable."""

    status = -23


class DataLost(Error):
    """The store has too few copies to recover data of failed ranks. The group stays usable.

    Attributes
    ----------
    ranks : tuple of int
        The ranks of the data, ascending, the same on all survivors.
    """

    status = -40

    def __init__(self, text: str, status: Optional[int] = None, ranks: Iterable[int] = ()) -> None:
        super().__init__(text, status)
        self.ranks: Tuple[int, ...] = tuple(ranks)


class Corruption(Error):
    """Data corruption was detected and could not be repaired. The group stays usable."""

    status = -41


class Excluded(Error):
    """Fewer than ``min_survivors`` ranks are left. The group is unusable: leave it."""

    status = -60


class MpiError(Error):
    """MPI failed in another way than by a failed process. The group is unusable: leave it."""

    status = -61


class InternalError(Error):
    """A defect in ftsort. The group is unusable: leave it."""

    status = -62


_CLASSES: Dict[int, Type[Error]] = {
    cls.status: cls
    for cls in (ArgumentError, PeerArgumentError, StateError, NoUlfm, MemoryLimit, StoreError, CallbackError,
                DataLost, Corruption, Excluded, MpiError, InternalError)
    if cls.status is not None
}


def error_of(status: int, text: str) -> Error:
    """Returns the exception of a status. Later versions of the library may add statuses."""
    return _CLASSES.get(status, Error)(text, status)


def integer(name: str, value: Any, least: int, most: int) -> int:
    """Returns an argument that must be an integer in a range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is {value!r}, expected an integer") from None
    if not least <= number <= most:
        raise ArgumentError(f"{name} is {number}, expected {least} to {most}")
    return number

"""ftsort: a distributed sort of NumPy arrays over MPI that tolerates process failures.

Import ftsort before ``mpi4py.MPI``, so that MPI starts with the settings for fault tolerance (`prepare`), and start
the program with ``ftsort-mpirun -n 4 python program.py``.

>>> import ftsort
>>> from mpi4py import MPI
>>> with ftsort.Group(MPI.COMM_WORLD) as group:
...     group.sort([3, 1, 2]).array.tolist()
[1, 2, 3]
"""

from __future__ import annotations

from ftsort import _native
from ftsort._config import Event, EventKind, Stats
from ftsort._errors import (ArgumentError, CallbackError, Corruption, DataLost, Error, Excluded, InternalError,
                            LibraryError, MemoryLimit, MpiError, NoUlfm, PeerArgumentError, StateError, StoreError)
from ftsort._external import ExternalStats
from ftsort._group import Group
from ftsort._native import library_path
from ftsort._result import Block, ProtectedInput, Result
from ftsort._settings import prepare

__all__ = [
    "ArgumentError", "Block", "CallbackError", "Corruption", "DataLost", "Error", "Event", "EventKind", "Excluded",
    "ExternalStats", "Group", "InternalError", "LibraryError", "MemoryLimit", "MpiError", "NoUlfm", "PeerArgumentError",
    "ProtectedInput", "Result", "StateError", "Stats", "StoreError", "allow_faults", "build_info", "library_path",
    "prepare", "version",
]

__version__ = "0.2.0"

# MPI reads these settings when it starts, which importing mpi4py.MPI does.
prepare()


def build_info() -> str:
    """Returns a line for bug reports: the versions of ftsort, compiler and MPI, and whether it has ULFM. [local]"""
    return str(_native.library().build_info().decode(errors="replace"))


def version() -> str:
    """Returns the version of the C library, which may differ from ``ftsort.__version__``. [local]"""
    return ".".join(str(number) for number in _native.library().version_numbers())


def allow_faults() -> None:
    """Lets the environment variable FTSORT_FAULTS inject failures into later groups, in tests. [local]"""
    _native.library().allow_faults()
